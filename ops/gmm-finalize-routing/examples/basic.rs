// SPDX-License-Identifier: MIT OR Apache-2.0

//! Four tokens, two of three experts each, and the output of a shared expert.
//!
//! `cargo run -p gmm-finalize-routing --example gmm-finalize-routing-basic`

use gmm_finalize_routing::cpu_tiles::{E8M0, F8E4M3, Level, Overflow, Pool};
use gmm_finalize_routing::{
    Codes, Dims, GroupList, Inputs, PackedWeights, Scale, SharedInput, Weights, finalize_routing,
};
use half::bf16;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (level, pool) = (Level::from_env()?, Pool::from_env()?);
    let dims = Dims { experts: 3, k: 192, n: 96 };
    let (rows, batch, packs) = (8, 4, 3);
    let codes = |n: usize, frequency: f32| -> Vec<F8E4M3> {
        (0..n).map(|i| F8E4M3::from_f32((i as f32 * frequency).sin() * 448.0, Overflow::Saturate)).collect()
    };
    let scales = |n: usize| vec![E8M0::from_bits(127 - 9); n];

    // The layout of a linear layer, [E, N, K], as a checkpoint holds it; one table of scales for all experts.
    let (x2, scale) = (codes(dims.experts * dims.n * dims.k, 0.37), scales(dims.n * packs * 2));
    let weights = Weights { x2: Codes::E4M3(&x2), transpose_x2: true, scale: Scale::Shared(&scale) };
    // Packed once, they are read faster; `weights` in place of `&packed` uses them as they are.
    let packed = PackedWeights::pack(level, &pool, &dims, weights)?;

    let (x1, pertoken_scale) = (codes(rows * dims.k, 0.11), scales(rows * packs * 2));
    let shared: Vec<bf16> = (0..batch * dims.n).map(|i| bf16::from_f32((i as f32 * 0.05).cos())).collect();
    let inputs = Inputs {
        x1: Codes::E4M3(&x1),
        pertoken_scale: &pertoken_scale,
        // Expert 0 has rows 0 to 3, expert 1 none, expert 2 rows 4 to 7.
        group_list: GroupList::Counts(&[4, 0, 4]),
        row_index: &[0, 1, 2, 3, 0, 1, 2, 3],
        logit: Some(&[0.7, 0.6, 0.5, 0.9, 0.3, 0.4, 0.5, 0.1]),
        shared_input: Some(SharedInput { values: &shared, offset: 0, weight: 0.5 }),
    };
    let mut out = vec![0.0; batch * dims.n];
    let multiplied = finalize_routing(level, &pool, &dims, &packed, &inputs, &mut out)?;

    println!("{multiplied} rows at level {level} on {} threads", pool.threads());
    for (row, out) in out.chunks_exact(dims.n).enumerate() {
        println!("row {row}: {:?} ...", &out[..4]);
    }
    Ok(())
}
