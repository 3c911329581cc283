// SPDX-License-Identifier: MIT OR Apache-2.0

//! The oracle: the operator as its definition reads, one score at a time, in F64.

use crate::error::Error;
use crate::shape::{HeadReduce, IndexerDims, check_positions, check_shape};
use ndarray::{Array3, ArrayView2, ArrayView3, Axis};

/// The larger of two scores, NaN where either is.
fn larger(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::NAN } else { a.max(b) }
}

/// Block scores `[queries, selections, blocks]` of queries `[queries, heads, D]` at the positions from `start` on, and
/// keys `[length, D]`: sums in F64, rounded to F32 once; minus infinity where nothing is visible.
///
/// # Errors
/// Those of [`prefill`](crate::prefill) about shapes and positions.
pub fn block_scores<Q: Copy + Into<f32>, K: Copy + Into<f32>>(
    dims: &IndexerDims,
    queries: ArrayView3<'_, Q>,
    start: usize,
    keys: ArrayView2<'_, K>,
) -> Result<Array3<f32>, Error> {
    dims.check()?;
    let (count, length) = (queries.len_of(Axis(0)), keys.nrows());
    check_shape("queries", &[count, dims.heads, dims.head_dim], queries.shape())?;
    check_shape("keys", &[length, dims.head_dim], keys.shape())?;
    check_positions(start, count, length)?;
    let mut scores = Array3::from_elem(dims.scores_shape(count, length), f32::NEG_INFINITY);
    for query in 0..count {
        for key in 0..=start + query {
            for head in 0..dims.heads {
                let product = |(&q, &k): (&Q, &K)| f64::from(q.into()) * f64::from(k.into());
                let sum: f64 =
                    queries.index_axis(Axis(0), query).row(head).iter().zip(keys.row(key)).map(product).sum();
                let selection = match dims.reduce {
                    HeadReduce::PerKvHead => head,
                    HeadReduce::Shared => 0,
                };
                let score = &mut scores[[query, selection, key / dims.block]];
                *score = larger(*score, sum as f32);
            }
        }
    }
    Ok(scores)
}

/// Block ids `[queries, selections, min(topk, blocks)]` from block scores `[queries, selections, blocks]` of queries at
/// the positions from `start` on.
///
/// # Errors
/// Those of [`prefill`](crate::prefill) about shapes; [`Error::QueryBeyondLength`] where there are fewer blocks than the
/// positions call for.
pub fn select(dims: &IndexerDims, scores: ArrayView3<'_, f32>, start: usize) -> Result<Array3<i32>, Error> {
    dims.check()?;
    let (queries, _, blocks) = scores.dim();
    check_shape("scores", &[queries, dims.selections(), blocks], scores.shape())?;
    check_positions(start, queries, blocks.saturating_mul(dims.block))?;
    let mut ids = Array3::from_elem([queries, dims.selections(), dims.topk.min(blocks)], -1);
    for query in 0..queries {
        let visible = (start + query) / dims.block + 1;
        for selection in 0..dims.selections() {
            let score = |block: usize| scores[[query, selection, block]];
            // The best first: init blocks, then local ones from the last, then by score, NaN before all others.
            let mut order: Vec<usize> = (0..visible).collect();
            let class = |block: usize| match block {
                _ if block < dims.init_blocks => (0, block),
                _ if visible - block <= dims.local_blocks => (1, visible - block),
                _ if score(block).is_nan() => (2, 0),
                _ => (3, 0),
            };
            // The sort is stable, so that equals stay in ascending order.
            order.sort_by(|&a, &b| {
                let by_score = || score(b).partial_cmp(&score(a)).unwrap_or(std::cmp::Ordering::Equal);
                class(a).cmp(&class(b)).then_with(by_score)
            });
            order.truncate(dims.topk);
            order.sort_unstable();
            for (place, block) in order.into_iter().enumerate() {
                ids[[query, selection, place]] = block as i32;
            }
        }
    }
    Ok(ids)
}
