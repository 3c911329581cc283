// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::Error;
use crate::shape::check_shape;
use ndarray::{Array2, ArrayView2, ArrayView3, Axis};

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

/// Converts weights from the layout of a linear layer to the one that the kernel reads fastest.
///
/// Each weight `[out, in]` becomes fractals of 16 outputs and 16 inputs, `[out / 16][in / 16][16][16]`, padded with
/// `T::default()`; in the first result the fractals of gate and up take turns along `out / 16`. Experts follow each other.
///
/// ```text
/// w13_nz[e][2 * b + u][c][j][h] = gate_up_proj[e][u * I + 16 * b + j][16 * c + h]
/// w2_nz[e][b][c][j][i] = down_proj[e][16 * b + j][16 * c + i]
/// ```
///
/// # Errors
/// [`Error::Shape`] where the two do not belong together.
pub fn convert_minimax_weights_nz<T: Clone + Default>(
    gate_up_proj: ArrayView3<'_, T>,
    down_proj: ArrayView3<'_, T>,
) -> Result<(Vec<T>, Vec<T>), Error> {
    let (experts, hidden, intermediate) = down_proj.dim();
    check_shape("gate_up_proj", &[experts, 2 * intermediate, hidden], gate_up_proj.shape())?;
    let (mut w13, mut w2) = (Vec::new(), Vec::new());
    for (gate_up, down) in gate_up_proj.outer_iter().zip(down_proj.outer_iter()) {
        let (gate, up) = gate_up.split_at(Axis(0), intermediate);
        for block in 0..intermediate.div_ceil(16) {
            fractals(&gate, block, &mut w13);
            fractals(&up, block, &mut w13);
        }
        for block in 0..hidden.div_ceil(16) {
            fractals(&down, block, &mut w2);
        }
    }
    Ok((w13, w2))
}

/// Appends the fractals of 16 outputs.
fn fractals<T: Clone + Default>(weight: &ArrayView2<'_, T>, block: usize, to: &mut Vec<T>) {
    for column in 0..weight.ncols().div_ceil(16) {
        for j in 0..16 {
            to.extend((0..16).map(|i| weight.get((16 * block + j, 16 * column + i)).cloned().unwrap_or_default()));
        }
    }
}
