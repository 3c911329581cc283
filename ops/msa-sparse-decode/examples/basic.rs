// SPDX-License-Identifier: MIT OR Apache-2.0

//! A sequence that grows token by token in packed pages, and attends to its first and its last two blocks.
//!
//! `cargo run -p msa-sparse-decode --example msa-sparse-decode-basic`

use half::bf16;
use msa_sparse_decode::cpu_tiles::attention::PackedPages;
use msa_sparse_decode::cpu_tiles::{Format, Level, Pool};
use msa_sparse_decode::{BlockIds, Cache, DecodeBatch, DecodeDims, Queries, sparse_decode};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dims = DecodeDims::new(8, 2, 64, 32);
    let (level, pool) = (Level::from_env()?, Pool::from_env()?);

    // Eight pages that any sequence may own; this one takes them from the end.
    let mut pages = PackedPages::new(Format::Bf16, dims.kv_heads, dims.head_dim, dims.block, 8)?;
    let block_table = [7, 6, 5, 4, 3, 2, 1, 0];
    let wave = |seed: usize, count: usize| -> Vec<bf16> {
        (0..count).map(|i| bf16::from_f32(((seed * 31 + i) as f32 * 0.37).sin())).collect()
    };

    println!("{} / {} heads at level {level} on {} threads", dims.heads, dims.kv_heads, pool.threads());
    for token in 0..200 {
        // What the projections of the token give: keys and values `[kv_heads, head_dim]`, queries `[heads, head_dim]`.
        let (k, v) =
            (wave(3 * token, dims.kv_heads * dims.head_dim), wave(3 * token + 1, dims.kv_heads * dims.head_dim));
        let q = wave(3 * token + 2, dims.heads * dims.head_dim);

        let (block, place) = (token / dims.block, token % dims.block);
        let page = block_table[block] as usize;
        for head in 0..dims.kv_heads {
            let at = head * dims.head_dim;
            pages.write_bf16(level, page, head, place, 1, &k[at..], &v[at..], dims.head_dim)?;
        }

        let mut ids = vec![0, block.saturating_sub(1) as i32, block as i32];
        ids.sort_unstable();
        ids.dedup();
        let batch = DecodeBatch {
            queries: Queries::Bf16(&q),
            cache: Cache::Packed { pages: &pages, block_table: Some(&block_table) },
            block_ids: BlockIds::Shared(&ids),
            seq_lens: &[token + 1],
        };
        let mut out = vec![bf16::ZERO; q.len()];
        let blind = sparse_decode(level, &pool, &dims, &batch, &mut out)?;
        assert!(blind.is_empty(), "every token sees itself");
        if token % 50 == 49 {
            println!("token {token}, blocks {ids:?}: {:?} ...", &out[..4]);
        }
    }
    Ok(())
}
