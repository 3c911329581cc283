// SPDX-License-Identifier: MIT OR Apache-2.0

//! The fast path on the tiles of [`cpu_tiles`].
//!
//! A task is one panel of 64 output columns. It walks the experts, and the rows of each, in ascending order and adds to
//! its own columns of the output. So no two tasks write one place, and every output is summed in one order, whatever the
//! number of threads.

use crate::acts::{self, Part};
use crate::error::Error;
use crate::shape::{Dims, Experts, Inputs, Plan, SharedInput, check};
use crate::source::{Scratch, chunk_len, weight};
use cpu_tiles::threads::{ColumnPanel, ColumnPanels};
use cpu_tiles::{Level, PANEL, Pool, convert, math, tile};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// The most rows whose sums exist at a time in a task.
const ROW_BLOCK: usize = 1024;

/// Multiplies the rows of each expert, and adds each product, times its logit, to the row of `out` that `row_index` names.
///
/// ```text
/// out[row_index[t]] += logit[t] * (x1[t] * pertoken_scale[t]) @ (x2[e] * scale)   for each row t of each expert e
/// out[offset..]     += shared_input * weight
/// ```
///
/// `out` is `[batch, N]` and holds the initial values. What is added to one of its values is added in ascending order of
/// `t`, by multiply-add in F32, then the shared input: the same bits for any number of threads. A row of `out` that no row
/// and no shared input is added to keeps its bits.
///
/// Returns the number of rows that were multiplied: where the group list ends. Rows from there on add nothing, and their
/// activations, scales, logits and indices may hold anything.
///
/// # Errors
/// See [`Error`]; the arguments are checked before the first value is computed.
pub fn finalize_routing<'a>(
    level: Level,
    pool: &Pool,
    dims: &Dims,
    experts: impl Into<Experts<'a>>,
    inputs: &Inputs<'_>,
    out: &mut [f32],
) -> Result<usize, Error> {
    let experts = experts.into();
    let plan = check(dims, experts, inputs, out.len())?;
    let rows = plan.targets.len();
    let chunk = chunk_len(inputs.x1.dtype(), dims);
    let parts = acts::parts(level, pool, dims, inputs, rows, chunk)?;
    let call = Call { level, dims, experts, inputs, plan, parts, chunk };

    let columns = ColumnPanels::new(out, dims.n, PANEL);
    let spare: Mutex<Vec<Task>> = Mutex::default();
    pool.try_run(if call.plan.batch == 0 { 0 } else { columns.panels() }, |panel| {
        let lock = || spare.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = lock().pop();
        let mut task = match taken {
            Some(task) => task,
            None => Task::new()?,
        };
        call.add_panel(panel, &mut columns.claim(panel), &mut task)?;
        lock().push(task);
        Ok::<(), Error>(())
    })?;
    Ok(rows)
}

/// A checked call.
struct Call<'a> {
    level: Level,
    dims: &'a Dims,
    experts: Experts<'a>,
    inputs: &'a Inputs<'a>,
    plan: Plan,
    parts: Vec<Part>,
    /// Inputs that are multiplied at a time.
    chunk: usize,
}

/// Scratch that tasks hand on.
struct Task {
    weights: Scratch,
    /// `[rows][64]`, part by part.
    sums: Vec<f32>,
    /// Those of one more chunk of inputs.
    more: Vec<f32>,
    rows: Vec<u32>,
}

impl Task {
    fn new() -> std::io::Result<Self> {
        Ok(Self { weights: Scratch::new()?, sums: Vec::new(), more: Vec::new(), rows: Vec::new() })
    }
}

impl Call<'_> {
    /// Everything that is added to one panel of the output.
    fn add_panel(&self, panel: usize, out: &mut ColumnPanel<'_, f32>, task: &mut Task) -> Result<(), Error> {
        for (expert, rows) in &self.plan.groups {
            for begin in rows.clone().step_by(ROW_BLOCK) {
                let rows = begin..rows.end.min(begin + ROW_BLOCK);
                self.multiply(*expert, panel, &rows, task)?;
                self.add_rows(&rows, &task.sums, out);
            }
        }
        if let Some(SharedInput { values, offset, weight }) = self.inputs.shared_input {
            let mut wide = [0.0; PANEL];
            for (row, values) in values.chunks_exact(self.dims.n).enumerate() {
                let out = out.row(offset + row);
                let wide = &mut wide[..out.len()];
                convert::bf16_to_f32(self.level, &values[panel * PANEL..][..out.len()], wide);
                math::add_scaled(self.level, weight, wide, out);
            }
        }
        Ok(())
    }

    /// Products of some rows of an expert with one panel of its weights.
    fn multiply(&self, expert: usize, panel: usize, rows: &Range<usize>, task: &mut Task) -> Result<(), Error> {
        let Task { weights, sums, more, rows: own_rows } = task;
        sums.resize(rows.len() * PANEL, 0.0);
        for (chunk, begin) in (0..self.dims.k).step_by(self.chunk).enumerate() {
            let inputs = begin..self.dims.k.min(begin + self.chunk);
            let weight = weight(self.level, self.dims, self.experts, expert, panel, inputs, weights)?;
            let mut rest = &mut sums[..];
            for part in &self.parts {
                own_rows.clear();
                own_rows.extend(part.within(rows).map(|row| row as u32));
                let (sums, tail) = rest.split_at_mut(own_rows.len() * PANEL);
                rest = tail;
                let acts = &part.chunks[chunk];
                if chunk == 0 {
                    tile(weight, 0, acts, own_rows, sums)?;
                } else {
                    more.resize(sums.len(), 0.0);
                    tile(weight, 0, acts, own_rows, more)?;
                    math::add_scaled(self.level, 1.0, more, sums);
                }
            }
        }
        Ok(())
    }

    /// Adds the sums of `rows`, which lie part by part, in ascending order of rows.
    fn add_rows(&self, rows: &Range<usize>, sums: &[f32], out: &mut ColumnPanel<'_, f32>) {
        let mut begin = 0;
        let mut ahead: Vec<_> = self
            .parts
            .iter()
            .map(|part| {
                let own = part.within(rows);
                begin += own.len();
                (part, own.clone(), begin - own.len())
            })
            .collect();
        for row in rows.clone() {
            let next = ahead.iter_mut().find(|(part, own, _)| !own.is_empty() && part.row(own.start) == row);
            let (_, own, at) = next.expect("each row is in one of the parts");
            own.start += 1;
            *at += 1;
            let sums = &sums[(*at - 1) * PANEL..*at * PANEL];
            let out = out.row(self.plan.targets[row] as usize);
            let factor = self.inputs.logit.map_or(1.0, |logit| logit[row]);
            math::add_scaled(self.level, factor, &sums[..out.len()], out);
        }
    }
}
