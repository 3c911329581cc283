// SPDX-License-Identifier: MIT OR Apache-2.0

//! The oracle: the operator as its formula reads, one row and one key at a time.
//!
//! Products and sums are F64 and rounded to F32 once, the softmax is over all keys of a row at once, and in BF16 mode the
//! queries and the exponentials are rounded to BF16: the rounding points of the contract and no others. (A fast path
//! rounds exponentials relative to the largest score so far, which is another BF16 number of the same relative error.)

use crate::error::Error;
use crate::shape::{AttentionDims, Blocks, Context, Data, KeysValues, Lists, MASK_NEG, RowDefined, check_shape};
use cpu_tiles::Precision;
use half::bf16;
use ndarray::{Array3, ArrayView1, ArrayView3, ArrayView4, Axis};

/// A key that a row sees: what is added to its score, the key, the value.
type Seen<'a, K> = (f32, ArrayView1<'a, K>, ArrayView1<'a, K>);

/// The vector of a token, query or slot in one head.
fn vector<'a, T>(array: ArrayView3<'a, T>, token: usize, head: usize) -> ArrayView1<'a, T> {
    array.index_axis_move(Axis(0), token).index_axis_move(Axis(0), head)
}

/// The result of one row, `[head_dim]`; `None` where it sees nothing.
fn attend<K: Copy + Into<f32>>(precision: Precision, scale: f32, q: &[f32], seen: &[Seen<'_, K>]) -> Option<Vec<f32>> {
    let round = |x: f32| match precision {
        Precision::F32 => x,
        Precision::Bf16 => bf16::from_f32(x).to_f32(),
    };
    let scores = seen.iter().map(|(bias, key, _)| {
        let product = q.iter().zip(key).map(|(&q, &k)| f64::from(round(q)) * f64::from(k.into())).sum::<f64>();
        product as f32 * scale + bias
    });
    let scores: Vec<f32> = scores.collect();
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let shift = if max == f32::NEG_INFINITY { 0.0 } else { max };
    let exponentials: Vec<f32> = scores.iter().map(|score| (score - shift).exp()).collect();
    let sum: f64 = exponentials.iter().copied().map(f64::from).sum();
    if seen.is_empty() {
        return None;
    }
    let mut out = vec![0.0; q.len()];
    for (channel, out) in out.iter_mut().enumerate() {
        let products = exponentials.iter().zip(seen).map(|(&e, (_, _, value))| {
            let value: f32 = value[channel].into();
            f64::from(round(e)) * f64::from(value)
        });
        // Where every score is minus infinity, every weight is zero.
        *out = if sum == 0.0 { 0.0 } else { (products.sum::<f64>() / sum) as f32 };
    }
    Some(out)
}

/// [`msa_main_branch`](crate::msa_main_branch) of keys in the order of tokens.
///
/// `query` is `[n, heads, head_dim]`, at the positions from `start` on; `keys` and `values` are `[tokens, kv_heads,
/// head_dim]`, with at least `start + n` tokens.
///
/// # Errors
/// Those of [`msa_main_branch`](crate::msa_main_branch) about shapes and lists.
pub fn msa_main_branch<Q: Copy + Into<f32>, K: Copy + Into<f32>>(
    dims: &AttentionDims,
    precision: Precision,
    query: ArrayView3<'_, Q>,
    start: usize,
    keys: ArrayView3<'_, K>,
    values: ArrayView3<'_, K>,
    blocks: Blocks<'_>,
) -> Result<(Array3<f32>, RowDefined), Error> {
    dims.check()?;
    let AttentionDims { heads, kv_heads, head_dim, block } = *dims;
    let n = query.dim().0;
    check_shape("query", &[n, heads, head_dim], query.shape())?;
    check_shape("keys", &[keys.dim().0, kv_heads, head_dim], keys.shape())?;
    check_shape("values", keys.shape(), values.shape())?;
    // Only the shape is of interest.
    let zeros = vec![0.0; keys.len()];
    let plain = KeysValues::Plain { keys: Data::F32(&zeros), values: Data::F32(&zeros) };
    let lists = Lists::new(n, &Context::new(dims, start, n, plain)?, blocks)?;

    rows(dims, precision, query, |i, kv_head| {
        let list = lists.list(i, kv_head);
        let sees = |key: &usize| list.contains(&((key / block) as u32));
        let seen = (0..start + i + 1).filter(sees);
        seen.map(|key| (0.0, vector(keys, key, kv_head), vector(values, key, kv_head))).collect()
    })
}

/// [`msa_main_branch_masked`](crate::msa_main_branch_masked).
///
/// `query` is `[n, heads, head_dim]`, `key_blocks` and `value_blocks` are `[topk * block, kv_heads, head_dim]`, `mask` is
/// `[ceil(n / block), topk, block, block]`.
///
/// # Errors
/// Those of [`msa_main_branch_masked`](crate::msa_main_branch_masked) about shapes.
pub fn msa_main_branch_masked<Q: Copy + Into<f32>, K: Copy + Into<f32>>(
    dims: &AttentionDims,
    precision: Precision,
    query: ArrayView3<'_, Q>,
    key_blocks: ArrayView3<'_, K>,
    value_blocks: ArrayView3<'_, K>,
    mask: ArrayView4<'_, f32>,
) -> Result<(Array3<f32>, RowDefined), Error> {
    dims.check()?;
    let AttentionDims { heads, kv_heads, head_dim, block } = *dims;
    let (n, slots) = (query.dim().0, mask.dim().1);
    check_shape("query", &[n, heads, head_dim], query.shape())?;
    check_shape("mask", &[n.div_ceil(block), slots, block, block], mask.shape())?;
    check_shape("key_blocks", &[slots * block, kv_heads, head_dim], key_blocks.shape())?;
    check_shape("value_blocks", key_blocks.shape(), value_blocks.shape())?;

    rows(dims, precision, query, |i, kv_head| {
        let all = (0..slots * block).map(|key| (mask[[i / block, key / block, i % block, key % block]], key));
        let seen = all.filter(|(mask, _)| *mask > MASK_NEG || mask.is_nan());
        seen.map(|(mask, key)| (mask, vector(key_blocks, key, kv_head), vector(value_blocks, key, kv_head))).collect()
    })
}

/// All rows, each with what `seen(query, kv_head)` says that it sees.
fn rows<'a, Q: Copy + Into<f32>, K: Copy + Into<f32> + 'a>(
    dims: &AttentionDims,
    precision: Precision,
    query: ArrayView3<'_, Q>,
    seen: impl Fn(usize, usize) -> Vec<Seen<'a, K>>,
) -> Result<(Array3<f32>, RowDefined), Error> {
    let n = query.dim().0;
    let mut out = Array3::zeros(query.dim());
    let mut defined = Vec::new();
    for i in 0..n {
        for kv_head in 0..dims.kv_heads {
            let seen = seen(i, kv_head);
            defined.push(!seen.is_empty());
            for head in kv_head * dims.group()..(kv_head + 1) * dims.group() {
                let q: Vec<f32> = vector(query.view(), i, head).iter().map(|&q| q.into()).collect();
                if let Some(row) = attend(precision, dims.scale(), &q, &seen) {
                    out.index_axis_mut(Axis(0), i).index_axis_mut(Axis(0), head).assign(&ArrayView1::from(&row));
                }
            }
        }
    }
    Ok((out, RowDefined::new(dims.kv_heads, defined)))
}
