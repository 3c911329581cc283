// SPDX-License-Identifier: MIT OR Apache-2.0

//! A linear layer.

use crate::acts::Acts;
use crate::threads::{ColumnPanels, Pool};
use crate::tile::{RowNumbers, tile, with_sums};
use crate::weights::{PANEL, ShapeError, Weight, check_len};

/// Computes `out = acts * weight^T`: F32 `[m, n]` from activations `[m, k]` and a weight `[n, k]`.
///
/// A task is one panel of 64 outputs for all rows; results do not depend on the thread count. Up to 2048 rows need no memory if
/// the threads have their scratch ([`reserve_tile_scratch`](crate::reserve_tile_scratch)).
pub fn linear(pool: &Pool, acts: &Acts, weight: Weight<'_>, out: &mut [f32]) -> Result<(), ShapeError> {
    linears(pool, acts, [(weight, out)])
}

/// Several linear layers of the same activations at a time: as one call of [`linear`] for each, with the same bits, but the
/// threads meet only once.
///
/// # Errors
/// [`ShapeError`] when a length does not fit; nothing is written if it is one of the outputs'.
pub fn linears<const N: usize>(
    pool: &Pool,
    acts: &Acts,
    layers: [(Weight<'_>, &mut [f32]); N],
) -> Result<(), ShapeError> {
    for (weight, out) in &layers {
        check_len("out", out.len(), &[acts.m(), weight.n()])?;
    }
    if acts.m() == 0 {
        return Ok(());
    }
    let rows = RowNumbers::first(acts.m());
    // The first task of each layer, and its outputs.
    let mut tasks = 0;
    let layers = layers.map(|(weight, out)| {
        let columns = ColumnPanels::new(out, weight.n(), PANEL);
        let first = tasks;
        tasks += if weight.n() == 0 { 0 } else { columns.panels() };
        (first, weight, columns)
    });
    pool.try_run(tasks, |task| {
        let later = layers.iter().skip(1).take_while(|(first, ..)| *first <= task).count();
        let (first, weight, columns) = &layers[later];
        with_sums(acts.m(), |sums| {
            tile(*weight, task - first, acts, &rows, sums)?;
            let mut panel = columns.claim(task - first);
            for (row, sums) in sums.chunks_exact(PANEL).enumerate() {
                let out = panel.row(row);
                out.copy_from_slice(&sums[..out.len()]);
            }
            Ok(())
        })
    })
}
