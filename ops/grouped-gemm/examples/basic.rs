// SPDX-License-Identifier: MIT OR Apache-2.0

//! A mixture of four experts over three tokens, two experts each.
//!
//! `cargo run -p grouped-gemm --example grouped-gemm-basic`

use grouped_gemm::cpu_tiles::{Level, PackedWeight, Pool, WeightRef};
use grouped_gemm::{Activation, Expert, MoeDims, Tokens, moe_ffn};
use half::bf16;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dims = MoeDims { experts: 4, hidden: 96, intermediate: 64, activation: Activation::Silu };
    let (level, pool) = (Level::from_env()?, Pool::from_env()?);

    // Weights `[out, in]` as a checkpoint holds them; here a wave, there a mapped file.
    let wave = |seed: usize| -> Vec<bf16> {
        let value = |i: usize| bf16::from_f32(((seed * 31 + i) as f32 * 0.37).sin() * 0.2);
        (0..dims.hidden * dims.intermediate).map(value).collect()
    };
    let values: Vec<_> = (0..3 * dims.experts).map(wave).collect();
    let weights: Vec<_> = values
        .chunks_exact(3)
        .flat_map(|expert| {
            [
                WeightRef::bf16(dims.intermediate, dims.hidden, &expert[0]),
                WeightRef::bf16(dims.intermediate, dims.hidden, &expert[1]),
                WeightRef::bf16(dims.hidden, dims.intermediate, &expert[2]),
            ]
        })
        .collect::<Result<_, _>>()?;

    // Packed once, they are read faster; `weights[i].into()` in place of `(&packed[i]).into()` uses them as they are.
    let packed = PackedWeight::pack_all(level, &pool, &weights)?;
    let experts: Vec<_> = packed
        .chunks_exact(3)
        .map(|expert| Expert { gate: (&expert[0]).into(), up: (&expert[1]).into(), down: (&expert[2]).into() })
        .collect();

    let tokens: Vec<bf16> = (0..3 * dims.hidden).map(|i| bf16::from_f32((i as f32 * 0.11).cos())).collect();
    let topk_ids = [0, 2, 3, 0, 2, 1];
    let topk_weights = [0.75, 0.25, 0.5, 0.5, 0.9, 0.1];
    let mut out = vec![0.0; tokens.len()];
    moe_ffn(level, &pool, &dims, Tokens::Bf16(&tokens), &experts, &topk_ids, &topk_weights, &mut out)?;

    println!("{} experts at level {level} on {} threads", dims.experts, pool.threads());
    for (token, out) in out.chunks_exact(dims.hidden).enumerate() {
        println!("token {token}: {:?} ...", &out[..4]);
    }
    Ok(())
}
