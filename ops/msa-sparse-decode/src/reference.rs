// SPDX-License-Identifier: MIT OR Apache-2.0

//! The oracle: the operator as its formula reads, one value at a time.
//!
//! Sums are F64; probabilities are relative to the largest score of all, and in BF16 mode rounded to BF16 before they
//! multiply the values, after they were summed. Keys and values are arrays of anything that widens to F32.

use crate::error::Error;
use crate::shape::{BlockIds, DecodeDims, Plan, Room, check_shape};
use cpu_tiles::Precision;
use half::bf16;
use ndarray::{Array3, ArrayView3, ArrayView5};

/// The result of [`sparse_decode`](crate::sparse_decode) before its rounding, `[B, H, D]`.
///
/// `q` is `[B, H, D]`, `k_blocks` and `v_blocks` `[B, G, blocks, block, D]`.
///
/// # Errors
/// Those of [`sparse_decode`](crate::sparse_decode) about dims, shapes, ids and lengths.
pub fn sparse_decode<Q: Copy + Into<f32>, K: Copy + Into<f32>>(
    dims: &DecodeDims,
    precision: Precision,
    q: ArrayView3<'_, Q>,
    k_blocks: ArrayView5<'_, K>,
    v_blocks: ArrayView5<'_, K>,
    block_ids: BlockIds<'_>,
    seq_lens: &[usize],
) -> Result<Array3<f32>, Error> {
    dims.check()?;
    let DecodeDims { heads, kv_heads, head_dim, block, .. } = *dims;
    let (entries, blocks) = (q.len_of(ndarray::Axis(0)), k_blocks.len_of(ndarray::Axis(2)));
    check_shape("q", &[entries, heads, head_dim], q.shape())?;
    check_shape("k_blocks", &[entries, kv_heads, blocks, block, head_dim], k_blocks.shape())?;
    check_shape("v_blocks", k_blocks.shape(), v_blocks.shape())?;
    let plan = Plan::of_lists(dims, entries, &Room::plain(blocks), precision, block_ids, seq_lens)?;

    let scale = f64::from(dims.scale());
    let mut out = Array3::zeros(q.dim());
    for entry in 0..entries {
        for head in 0..heads {
            let kv_head = head / dims.group();
            let keys: Vec<(usize, usize)> = plan.steps[plan.lists[entry * kv_heads + kv_head].clone()]
                .iter()
                .flat_map(|step| (0..step.tokens).map(|token| (step.page, token)))
                .collect();
            let score = |&(page, token): &(usize, usize)| {
                let products = (0..head_dim).map(|d| {
                    let (q, k): (f32, f32) =
                        (q[[entry, head, d]].into(), k_blocks[[entry, kv_head, page, token, d]].into());
                    f64::from(q) * f64::from(k)
                });
                scale * products.sum::<f64>()
            };
            let scores: Vec<f64> = keys.iter().map(score).collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let probabilities: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
            let sum: f64 = probabilities.iter().sum();
            for d in 0..head_dim {
                let products = keys.iter().zip(&probabilities).map(|(&(page, token), &p)| {
                    let v: f32 = v_blocks[[entry, kv_head, page, token, d]].into();
                    let p = match precision {
                        Precision::F32 => p,
                        Precision::Bf16 => bf16::from_f64(p).to_f64(),
                    };
                    p * f64::from(v)
                });
                if !keys.is_empty() {
                    out[[entry, head, d]] = (products.sum::<f64>() / sum) as f32;
                }
            }
        }
    }
    Ok(out)
}
