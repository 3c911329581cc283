// SPDX-License-Identifier: MIT OR Apache-2.0

//! A prompt of 60 tokens in blocks of 8, then a decode step on the keys packed: which blocks attention would read.
//!
//! `cargo run -p msa-indexer --example basic`

use half::bf16;
use msa_indexer::cpu_tiles::{Level, PackedWeight, Pool, WeightRef};
use msa_indexer::{IndexerDims, Keys, Values, decode, prefill};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dims = IndexerDims { heads: 2, head_dim: 32, block: 8, topk: 3, ..IndexerDims::M3 };
    let (level, pool) = (Level::from_env()?, Pool::from_env()?);
    let wave = |seed: usize, rows: usize| -> Vec<bf16> {
        (0..rows * dims.head_dim).map(|i| bf16::from_f32(((seed * 31 + i) as f32 * 0.37).sin())).collect()
    };
    let (prompt, length) = (60, 61);
    let (queries, keys) = (wave(1, length * dims.heads), wave(2, length));
    let of_prompt = prompt * dims.heads * dims.head_dim;

    println!("top {} of blocks of {} keys, for {} heads, at level {level}", dims.topk, dims.block, dims.heads);
    let mut ids = vec![0; dims.ids_shape(prompt, prompt).iter().product()];
    let plain = Keys::Plain(Values::Bf16(&keys));
    prefill(level, &pool, &dims, Values::Bf16(&queries[..of_prompt]), 0, plain, prompt, &mut ids, None)?;
    let of_query = dims.heads * dims.topk;
    for query in [0, 20, prompt - 1] {
        println!("query at {query}: {:?}", &ids[query * of_query..][..of_query]);
    }

    // Blocks as a cache keeps them. The last one is partial; what lies behind its keys is not looked at.
    let mut padded = keys.clone();
    padded.resize(length.next_multiple_of(dims.block) * dims.head_dim, bf16::NAN);
    let blocks: Result<Vec<_>, _> = padded
        .chunks_exact(dims.block * dims.head_dim)
        .map(|block| WeightRef::bf16(dims.block, dims.head_dim, block))
        .collect();
    let blocks = PackedWeight::pack_all(level, &pool, &blocks?)?;
    let mut ids = vec![0; dims.ids_shape(1, length).iter().product()];
    let mut scores = vec![0.0; dims.scores_shape(1, length).iter().product()];
    let packed = Keys::Packed { blocks: &blocks, block_table: None };
    let query = Values::Bf16(&queries[of_prompt..]);
    decode(level, &pool, &dims, query, packed, length, &mut ids, Some(&mut scores))?;
    println!("query at {prompt}: {ids:?}");
    for (head, scores) in scores.chunks_exact(dims.blocks(length)).enumerate() {
        println!("block scores of head {head}: {scores:.2?}");
    }
    Ok(())
}
