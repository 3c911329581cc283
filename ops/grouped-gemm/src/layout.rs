// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::Error;
use crate::shape::check_shape;
use ndarray::{Array2, ArrayView3};

/// Converts weights from the layout of a linear layer, `y = x * W^T`, to the flat one of the published operator,
/// `y = x * W`.
///
/// From `gate_up_proj` `[E, 2I, H]` (I rows of gate, then I of up) and `down_proj` `[E, H, I]` come `w13_flat`
/// `[E * H, 2I]` and `w2_flat` `[E * I, H]`, row-major: each expert transposed, experts stacked on rows.
///
/// ```text
/// w13_flat[e * H + h][j] = gate_up_proj[e][j][h]
/// w2_flat[e * I + i][h] = down_proj[e][h][i]
/// ```
///
/// # Errors
/// [`Error::Shape`] where the two do not belong together.
pub fn convert_minimax_weights<T: Clone>(
    gate_up_proj: ArrayView3<'_, T>,
    down_proj: ArrayView3<'_, T>,
) -> Result<(Array2<T>, Array2<T>), Error> {
    let (experts, hidden, intermediate) = down_proj.dim();
    check_shape("gate_up_proj", &[experts, 2 * intermediate, hidden], gate_up_proj.shape())?;
    Ok((flat(gate_up_proj), flat(down_proj)))
}

/// `[E, out, in]` to `[E * in, out]`.
fn flat<T: Clone>(weight: ArrayView3<'_, T>) -> Array2<T> {
    let (experts, outputs, inputs) = weight.dim();
    let transposed = weight.permuted_axes([0, 2, 1]);
    Array2::from_shape_vec((experts * inputs, outputs), transposed.iter().cloned().collect())
        .expect("a permutation keeps the number of elements")
}
