// SPDX-License-Identifier: MIT OR Apache-2.0

//! The choice of experts.

use cpu_tiles::math::sigmoid;
use cpu_tiles::mem::Scratch;
use cpu_tiles::threads::ColumnPanels;
use cpu_tiles::weights::check_len;
use cpu_tiles::{Level, Pool, ShapeError};

/// Values of a task, whose cost is that of sorting them.
const TASK_VALUES: usize = 8192;

/// Chooses `top_k` experts for each token: those with the largest `sigmoid(logit) + bias`, of equal ones the lower id.
///
/// * `logits`: F32 `[tokens, experts]`;
/// * `bias`: F32 `[experts]`; it takes part in the choice only;
/// * `ids`: `[tokens, top_k]`, filled with the chosen experts, ascending;
/// * `weights`: F32 `[tokens, top_k]`, filled with the sigmoids of the chosen, divided by their sum.
///
/// Up to 256 experts and few tokens need no memory.
///
/// # Errors
/// [`ShapeError`] when lengths do not fit each other or `top_k` exceeds the experts.
pub fn route(
    level: Level,
    pool: &Pool,
    logits: &[f32],
    bias: &[f32],
    top_k: usize,
    ids: &mut [u32],
    weights: &mut [f32],
) -> Result<(), ShapeError> {
    let experts = bias.len();
    if top_k == 0 || top_k > experts {
        return Err(ShapeError::Mismatch { what: "top_k beyond the experts", expected: experts, found: top_k });
    }
    let tokens = logits.len() / experts;
    check_len("logits", logits.len(), &[tokens, experts])?;
    check_len("ids", ids.len(), &[tokens, top_k])?;
    check_len("weights", weights.len(), &[tokens, top_k])?;

    let rows = (TASK_VALUES / experts).max(1);
    let values = weights.len();
    let weights = ColumnPanels::new(weights, values, rows * top_k);
    pool.for_each_chunk_mut(ids, rows * top_k, |task, ids| {
        let mut weights = weights.claim(task);
        let weights = weights.row(0);
        let logits = &logits[task * rows * experts..][..ids.len() / top_k * experts];
        let mut scores = Scratch::<f32, 256>::new(experts, 0.0);
        let mut order = Scratch::<u32, 256>::new(experts, 0);
        let rows = ids.chunks_exact_mut(top_k).zip(weights.chunks_exact_mut(top_k));
        for (logits, (ids, weights)) in logits.chunks_exact(experts).zip(rows) {
            sigmoid(level, logits, &mut scores);
            let choice = |id: u32| scores[id as usize] + bias[id as usize];
            order.iter_mut().zip(0..).for_each(|(place, id)| *place = id);
            order.select_nth_unstable_by(top_k - 1, |&a, &b| choice(b).total_cmp(&choice(a)).then(a.cmp(&b)));
            ids.copy_from_slice(&order[..top_k]);
            ids.sort_unstable();
            let sum: f32 = ids.iter().map(|&id| scores[id as usize]).sum();
            for (weight, &id) in weights.iter_mut().zip(&*ids) {
                *weight = scores[id as usize] / sum;
            }
        }
    });
    Ok(())
}

/// Sends each token to the first `top_k` experts with equal weights: `ids` and `weights` are `[tokens, top_k]`.
pub fn first_experts(top_k: usize, ids: &mut [u32], weights: &mut [f32]) {
    for ids in ids.chunks_mut(top_k.max(1)) {
        ids.iter_mut().zip(0..).for_each(|(place, id)| *place = id);
    }
    weights.fill(1.0 / top_k as f32);
}
