// SPDX-License-Identifier: MIT OR Apache-2.0

//! A prompt of 40 tokens in blocks of 8, taken in two chunks: every query attends to the first block and to its own.
//!
//! `cargo run -p msa-main-branch --example msa-main-branch-basic`

use half::bf16;
use msa_main_branch::cpu_tiles::{Level, Pool};
use msa_main_branch::{AttentionDims, Blocks, Data, KeysValues, Query, msa_main_branch};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dims = AttentionDims { heads: 8, kv_heads: 2, head_dim: 32, block: 8 };
    let (level, pool) = (Level::from_env()?, Pool::from_env()?);
    let wave = |seed: usize, tokens: usize, heads: usize| -> Vec<bf16> {
        let value = |i: usize| bf16::from_f32(((seed * 31 + i) as f32 * 0.37).sin());
        (0..tokens * heads * dims.head_dim).map(value).collect()
    };
    let (tokens, chunk) = (40, 20);
    let (query, keys, values) =
        (wave(1, tokens, dims.heads), wave(2, tokens, dims.kv_heads), wave(3, tokens, dims.kv_heads));

    println!("{} heads on {} KV heads at level {level}", dims.heads, dims.kv_heads);
    let (row, kv_row) = (dims.heads * dims.head_dim, dims.kv_heads * dims.head_dim);
    for start in (0..tokens).step_by(chunk) {
        // For each query and KV head, as the indexer gives them: ids in any order, -1 behind the last.
        let list = |query: usize| match (start + query) / dims.block {
            0 => [0, -1],
            own => [0, own as i32],
        };
        let ids: Vec<i32> = (0..chunk).flat_map(|query| [list(query); 2]).flatten().collect();

        let end = start + chunk;
        let mut out = vec![0.0; chunk * row];
        let defined = msa_main_branch(
            level,
            &pool,
            &dims,
            Query { data: Data::Bf16(&query[start * row..end * row]), start },
            // The keys so far; those of later chunks need not exist.
            KeysValues::Plain { keys: Data::Bf16(&keys[..end * kv_row]), values: Data::Bf16(&values[..end * kv_row]) },
            Blocks::PerQuery(&ids),
            &mut out,
        )?;
        assert!(defined.all());
        for query in [0, chunk - 1] {
            println!("query at {}: {:?} ...", start + query, &out[query * row..][..4]);
        }
    }
    Ok(())
}
