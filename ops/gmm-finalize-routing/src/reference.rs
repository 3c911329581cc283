// SPDX-License-Identifier: MIT OR Apache-2.0

//! The oracle: the operator as its formula reads, one value at a time.
//!
//! A value is code times scale in F32. A product's sum is F64, rounded to F32 once; what follows it is F32: times the
//! logit, added to the output, rows in ascending order, the shared input last.

use crate::error::Error;
use crate::shape::{Dims, Inputs, SharedInput, Weights, check};
use ndarray::{Array2, ArrayView2};

/// The dequantised activations, `[M, K]`.
fn activations(dims: &Dims, inputs: &Inputs<'_>) -> Array2<f32> {
    Array2::from_shape_fn((inputs.row_index.len(), dims.k), |(row, k)| {
        let scale = inputs.pertoken_scale[(row * dims.k.div_ceil(64) + k / 64) * 2 + k / 32 % 2];
        inputs.x1.value(row * dims.k + k) * scale.to_f32()
    })
}

/// The dequantised weights of one expert, `[N, K]`.
fn weights_of(dims: &Dims, weights: &Weights<'_>, expert: usize) -> Array2<f32> {
    Array2::from_shape_fn((dims.n, dims.k), |(output, k)| {
        let code = weights.x2.value(weights.at(dims, expert, output, k));
        code * weights.scale(dims, expert, output, k / 32).to_f32()
    })
}

/// What [`finalize_routing`](crate::finalize_routing) makes of the initial values `out`, `[batch, N]`.
///
/// # Errors
/// Those of [`finalize_routing`](crate::finalize_routing).
pub fn finalize_routing(
    dims: &Dims,
    weights: &Weights<'_>,
    inputs: &Inputs<'_>,
    out: ArrayView2<'_, f32>,
) -> Result<Array2<f32>, Error> {
    let plan = check(dims, (*weights).into(), inputs, out.len())?;
    if out.ncols() != dims.n {
        let expected = vec![out.nrows(), dims.n];
        return Err(Error::Shape { argument: "out", expected, found: out.shape().to_vec() });
    }
    let x = activations(dims, inputs);
    let mut out = out.to_owned();
    for (expert, rows) in plan.groups {
        let w = weights_of(dims, weights, expert);
        for row in rows {
            let target = plan.targets[row] as usize;
            for (output, w) in w.rows().into_iter().enumerate() {
                let products = x.row(row).into_iter().zip(w).map(|(&x, &w)| f64::from(x) * f64::from(w));
                let sum = products.sum::<f64>() as f32;
                out[[target, output]] += inputs.logit.map_or(sum, |logit| logit[row] * sum);
            }
        }
    }
    if let Some(SharedInput { values, offset, weight }) = inputs.shared_input {
        for (at, value) in values.iter().enumerate() {
            out[[offset + at / dims.n, at % dims.n]] += value.to_f32() * weight;
        }
    }
    Ok(out)
}
