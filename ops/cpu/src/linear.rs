// SPDX-License-Identifier: MIT OR Apache-2.0

//! A linear layer.

use crate::acts::Acts;
use crate::threads::{ColumnPanels, Pool};
use crate::tile::tile;
use crate::weights::{PANEL, ShapeError, Weight, check_len};

/// Computes `out = acts * weight^T`: F32 `[m, n]` from activations `[m, k]` and a weight `[n, k]`.
///
/// A task is one panel of 64 outputs for all rows; results do not depend on the thread count.
pub fn linear(pool: &Pool, acts: &Acts, weight: Weight<'_>, out: &mut [f32]) -> Result<(), ShapeError> {
    check_len("out", out.len(), &[acts.m(), weight.n()])?;
    let rows: Vec<u32> = (0..acts.m() as u32).collect();
    let columns = ColumnPanels::new(out, weight.n(), PANEL);
    pool.try_run(if acts.m() == 0 { 0 } else { columns.panels() }, |panel| {
        let mut sums = vec![0.0; rows.len() * PANEL];
        tile(weight, panel, acts, &rows, &mut sums)?;
        let mut panel = columns.claim(panel);
        for (row, sums) in sums.chunks_exact(PANEL).enumerate() {
            let out = panel.row(row);
            out.copy_from_slice(&sums[..out.len()]);
        }
        Ok(())
    })
}
