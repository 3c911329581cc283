// SPDX-License-Identifier: MIT OR Apache-2.0

//! A prompt of 4096 tokens, then one decode step: the blocks that each index head selects.
//!
//! `cargo run -p msa-indexer --example msa-indexer-basic`

use half::bf16;
use msa_indexer::cpu_tiles::{Level, PackedWeight, Pool, WeightRef};
use msa_indexer::{IndexerDims, Keys, Values, decode, prefill};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dims = IndexerDims::M3;
    let (level, pool) = (Level::from_env()?, Pool::from_env()?);
    let prompt = 4096;

    // What the model's projections, norms and rotations give; here waves.
    let wave = |seed: f32, n: usize| -> Vec<bf16> {
        (0..n).map(|i| bf16::from_f32((i as f32 * seed).sin() + (i as f32 * 0.000_37).cos())).collect()
    };
    let queries = wave(0.731, prompt * dims.heads * dims.head_dim);
    let mut keys = wave(0.417, (prompt + 1) * dims.head_dim);
    // The cache holds whole blocks.
    let blocks = dims.blocks(prompt + 1);
    keys.resize(blocks * dims.block * dims.head_dim, bf16::ZERO);

    // Packed, a block is read faster; `Keys::Plain(Values::Bf16(&keys))` uses the keys as they are.
    let rows = keys.chunks_exact(dims.block * dims.head_dim);
    let rows = rows.map(|block| WeightRef::bf16(dims.block, dims.head_dim, block)).collect::<Result<Vec<_>, _>>()?;
    let packed = PackedWeight::pack_all(level, &pool, &rows)?;
    let keys = Keys::Packed { blocks: &packed, block_table: None };

    let shape = dims.ids_shape(prompt, prompt);
    let mut ids = vec![0; shape.iter().product()];
    prefill(level, &pool, &dims, Values::Bf16(&queries), 0, keys, prompt, &mut ids, None)?;
    println!("ids {shape:?} at level {level} on {} threads", pool.threads());
    for position in [0, 300, 2048, 4095] {
        let first_head = &ids[position * shape[1] * shape[2]..][..shape[2]];
        println!("position {position:>4}, head 0: {first_head:?}");
    }

    let query = &queries[..dims.heads * dims.head_dim];
    let mut ids = vec![0; dims.ids_shape(1, prompt + 1).iter().product()];
    decode(level, &pool, &dims, Values::Bf16(query), keys, prompt + 1, &mut ids, None)?;
    for (head, ids) in ids.chunks_exact(dims.topk).enumerate() {
        println!("decode at {prompt}, head {head}: {ids:?}");
    }
    Ok(())
}
