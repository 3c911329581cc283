// SPDX-License-Identifier: MIT OR Apache-2.0

//! The oracle: the operator as its formula reads, one value at a time.
//!
//! Sums are F64 and rounded to F32, the activation is F32, and in BF16 mode its result is rounded to BF16: the rounding
//! points of the contract and no others. Weights are arrays of anything that widens to F32; for the quantised formats,
//! of their dequantised values.

use crate::error::Error;
use crate::shape::{Activation, MoeDims, Routing, check_shape, row_count};
use cpu_tiles::Precision;
use half::bf16;
use ndarray::{Array2, ArrayView1, ArrayView2, ArrayView3, Axis, Slice};

/// The gated activation of one pair, in F32.
pub fn activation(activation: Activation, gate: f32, up: f32) -> f32 {
    match activation {
        Activation::Silu => gate / (1.0 + (-gate).exp()) * up,
        Activation::SwigluOai { alpha, limit } => {
            // Comparisons instead of `min` and `max`, which would drop a NaN.
            let g = if gate > limit { limit } else { gate };
            let u = if up > limit {
                limit
            } else if up < -limit {
                -limit
            } else {
                up
            };
            (u + 1.0) * (g * (1.0 / (1.0 + (-(alpha * g)).exp())))
        }
    }
}

/// `x * w^T`: F32 `[n, out]` from `[n, in]` and `[out, in]`, summed in F64.
fn linear<X: Copy + Into<f32>, W: Copy + Into<f32>>(x: ArrayView2<'_, X>, w: ArrayView2<'_, W>) -> Array2<f32> {
    Array2::from_shape_fn((x.nrows(), w.nrows()), |(row, output)| {
        let product = |(&x, &w): (&X, &W)| f64::from(x.into()) * f64::from(w.into());
        x.row(row).iter().zip(w.row(output)).map(product).sum::<f64>() as f32
    })
}

/// The intermediate of one expert, `[n, I]`: the activation of both halves of `x * gate_up^T`, rounded to BF16 in BF16
/// mode.
/// `x` is `[n, H]`, `gate_up` `[2I, H]`.
pub fn intermediate<X: Copy + Into<f32>, W: Copy + Into<f32>>(
    kind: Activation,
    precision: Precision,
    x: ArrayView2<'_, X>,
    gate_up: ArrayView2<'_, W>,
) -> Array2<f32> {
    let products = linear(x, gate_up);
    let half = gate_up.nrows() / 2;
    Array2::from_shape_fn((x.nrows(), half), |(row, i)| {
        let act = activation(kind, products[[row, i]], products[[row, half + i]]);
        match precision {
            Precision::F32 => act,
            Precision::Bf16 => bf16::from_f32(act).to_f32(),
        }
    })
}

/// Sizes of the arguments that both operators share.
fn check<X, W>(
    dims: &MoeDims,
    tokens: &ArrayView2<'_, X>,
    gate_up_proj: &ArrayView3<'_, W>,
    down_proj: &ArrayView3<'_, W>,
) -> Result<u32, Error> {
    dims.check()?;
    let MoeDims { experts, hidden, intermediate, .. } = *dims;
    check_shape("tokens", &[tokens.nrows(), hidden], tokens.shape())?;
    check_shape("gate_up_proj", &[experts, intermediate.saturating_mul(2), hidden], gate_up_proj.shape())?;
    check_shape("down_proj", &[experts, hidden, intermediate], down_proj.shape())?;
    row_count("tokens", tokens.nrows())
}

/// The FFN of every expert over its rows of the sorted tokens: the F32 sums `D`, `[N, H]`. The published result is
/// these rounded to BF16.
///
/// `tokens` is `[N, H]`, `gate_up_proj` `[E, 2I, H]`, `down_proj` `[E, H, I]`, `expert_cumsum` `[E + 1]`.
///
/// # Errors
/// Those of [`grouped_gemm`](crate::grouped_gemm) about shapes and `expert_cumsum`.
pub fn grouped_gemm<X: Copy + Into<f32>, W: Copy + Into<f32>>(
    dims: &MoeDims,
    precision: Precision,
    tokens: ArrayView2<'_, X>,
    gate_up_proj: ArrayView3<'_, W>,
    down_proj: ArrayView3<'_, W>,
    expert_cumsum: ArrayView1<'_, i32>,
) -> Result<Array2<f32>, Error> {
    let rows = check(dims, &tokens, &gate_up_proj, &down_proj)?;
    let routing = Routing::sorted(dims.experts, rows, &expert_cumsum.to_vec())?;
    let mut out = Array2::zeros(tokens.dim());
    for (expert, rows) in routing.experts {
        let rows = Slice::from(rows);
        let x = tokens.slice_axis(Axis(0), rows);
        let act = intermediate(dims.activation, precision, x, gate_up_proj.index_axis(Axis(0), expert));
        let sums = linear(act.view(), down_proj.index_axis(Axis(0), expert));
        out.slice_axis_mut(Axis(0), rows).assign(&sums);
    }
    Ok(out)
}

/// The whole mixture of experts, `[T, H]`: for each token its experts in ascending order, their F32 sums times the
/// weight, added up in F32.
///
/// `tokens` is `[T, H]`, `gate_up_proj` `[E, 2I, H]`, `down_proj` `[E, H, I]`, `topk_ids` and `topk_weights` `[T, k]`.
///
/// # Errors
/// Those of [`moe_ffn`](crate::moe_ffn) about shapes and ids.
pub fn moe_ffn<X: Copy + Into<f32>, W: Copy + Into<f32>>(
    dims: &MoeDims,
    precision: Precision,
    tokens: ArrayView2<'_, X>,
    gate_up_proj: ArrayView3<'_, W>,
    down_proj: ArrayView3<'_, W>,
    topk_ids: ArrayView2<'_, u32>,
    topk_weights: ArrayView2<'_, f32>,
) -> Result<Array2<f32>, Error> {
    let rows = check(dims, &tokens, &gate_up_proj, &down_proj)?;
    check_shape("topk_ids", &[tokens.nrows(), topk_ids.ncols()], topk_ids.shape())?;
    check_shape("topk_weights", topk_ids.shape(), topk_weights.shape())?;
    let ids: Vec<u32> = topk_ids.iter().copied().collect();
    let weights: Vec<f32> = topk_weights.iter().copied().collect();
    let (routing, weights) = Routing::by_choice(dims.experts, rows, &ids, &weights)?;
    let mut out = Array2::zeros(tokens.dim());
    for (expert, assignments) in routing.experts {
        let rows: Vec<usize> = routing.rows[assignments.clone()].iter().map(|&row| row as usize).collect();
        let x = tokens.select(Axis(0), &rows);
        let act = intermediate(dims.activation, precision, x.view(), gate_up_proj.index_axis(Axis(0), expert));
        let sums = linear(act.view(), down_proj.index_axis(Axis(0), expert));
        for ((row, weight), sums) in rows.into_iter().zip(&weights[assignments]).zip(sums.rows()) {
            out.row_mut(row).scaled_add(*weight, &sums);
        }
    }
    Ok(out)
}
