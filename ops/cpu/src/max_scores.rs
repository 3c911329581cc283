// SPDX-License-Identifier: MIT OR Apache-2.0

//! The largest product of a row with the keys of a block: scores that are never stored.

use crate::acts::{Acts, Values};
use crate::convert;
use crate::kernels::dot::dispatch_dot;
use crate::kernels::max_scores::{CACHED_ROWS, MAXIMA, MaxScores, Panels};
use crate::kernels::simd::dispatch;
use crate::mem::Buffer;
use crate::pack;
use crate::weights::{Format, PANEL, ShapeError, Weight, check_len, panel_bytes};
use std::cell::RefCell;
use std::ops::Range;
use zerocopy::FromBytes;

/// Scratch of a thread, kept from call to call.
#[derive(Default)]
struct Scratch {
    maxima: Option<Buffer>,
    /// A panel in F32.
    expanded: Option<Buffer>,
    /// Row-major keys, packed.
    packed: Option<Buffer>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// `bytes` of a buffer that is replaced by a larger one where it must.
fn reserve(buffer: &mut Option<Buffer>, bytes: usize) -> Result<&mut [u8], ShapeError> {
    let large_enough = buffer.take().filter(|buffer| buffer.len() >= bytes);
    let buffer = buffer.insert(match large_enough {
        Some(buffer) => buffer,
        None => Buffer::zeroed(bytes)?,
    });
    Ok(&mut buffer[..bytes])
}

fn reserve_f32(buffer: &mut Option<Buffer>, len: usize) -> Result<&mut [f32], ShapeError> {
    Ok(FromBytes::mut_from_bytes(reserve(buffer, len * size_of::<f32>())?).expect("an aligned buffer of F32 values"))
}

/// Computes `out[b][i] = max over j < visible[b][i] of sum over k of acts[rows.start + i][k] * blocks[b][j][k]`, products
/// and sums in F32. Both `visible` and `out` are `[blocks, rows]`.
///
/// A row that sees no key of a block gets minus infinity, one with a NaN among the products it sees `f32::NAN`; a zero is
/// positive. Keys that a row
/// does not see have no effect on it, whatever they hold. Keys are BF16 or F32, in either layout; packed ones are read
/// ahead from one block to the next.
///
/// A sum takes the inputs in pairs, and of each pair the second first, as `vdpbf16ps` does. So on levels with fused
/// multiply-adds the bits depend neither on the level nor on how the activations are held, but for BF16 subnormals, which
/// that instruction takes as zero.
pub fn max_scores(
    acts: &Acts,
    rows: Range<usize>,
    blocks: &[Weight<'_>],
    visible: &[usize],
    out: &mut [f32],
) -> Result<(), ShapeError> {
    if rows.end > acts.m() {
        return Err(ShapeError::Mismatch { what: "end of the rows", expected: acts.m(), found: rows.end });
    }
    check_len("visible", visible.len(), &[blocks.len(), rows.len()])?;
    check_len("out", out.len(), &[blocks.len(), rows.len()])?;
    if rows.is_empty() {
        return Ok(());
    }
    for (block, visible) in blocks.iter().zip(visible.chunks_exact(rows.len())) {
        check(acts, *block, visible)?;
    }
    SCRATCH.with_borrow_mut(|Scratch { maxima, expanded, packed }| {
        let inputs = acts.k().next_multiple_of(4);
        let maxima = reserve_f32(maxima, CACHED_ROWS * MAXIMA)?;
        let expanded = reserve_f32(expanded, inputs * PANEL)?;
        let each = visible.chunks_exact(rows.len()).zip(out.chunks_exact_mut(rows.len()));
        for (index, (visible, out)) in each.enumerate() {
            let (block, format) = (blocks[index], blocks[index].format());
            let count = visible.iter().copied().max().unwrap_or(0).div_ceil(PANEL);
            let (data, stride): (&[u8], usize) = match block {
                Weight::Packed(keys) => (keys.data, keys.stride),
                Weight::RowMajor(keys) => {
                    let stride = panel_bytes(format, keys.k);
                    let packed = reserve(packed, count * stride)?;
                    for (panel, out) in packed.chunks_exact_mut(stride.max(1)).enumerate() {
                        pack::pack_panel(acts.level(), keys, panel, 0..keys.k, out);
                    }
                    (packed, stride)
                }
            };
            let next = match blocks.get(index + 1) {
                Some(Weight::Packed(next)) if next.n > 0 => Some(next.panel(0)),
                _ => None,
            };
            let panels = Panels { data, stride, count, inputs, format, next };
            match acts.values() {
                Values::F32(values, stride) => {
                    let rows = &values[rows.start * stride..rows.end * stride];
                    dispatch(acts.level(), MaxScores { panels, rows, stride, visible, out, maxima, expanded });
                }
                Values::Bf16(values, stride) => {
                    let rows = &values[rows.start * stride..rows.end * stride];
                    if format == Format::Bf16 {
                        dispatch_dot(acts.level(), MaxScores { panels, rows, stride, visible, out, maxima, expanded });
                    } else {
                        let mut wide = vec![0.0; rows.len()];
                        convert::bf16_to_f32(acts.level(), rows, &mut wide);
                        let rows = &wide[..];
                        dispatch(acts.level(), MaxScores { panels, rows, stride, visible, out, maxima, expanded });
                    }
                }
            }
        }
        Ok(())
    })
}

/// Makes the scratch of the calling thread ready for packed keys of up to `inputs` values: [`max_scores`] then needs no memory
/// on it, unless it multiplies BF16 activations with F32 keys. Without, the first call makes it. For all threads of a pool see
/// [`Pool::on_each_thread`].
///
/// [`Pool::on_each_thread`]: crate::Pool::on_each_thread
///
/// # Errors
/// [`ShapeError::Memory`].
pub fn reserve_max_scores_scratch(inputs: usize) -> Result<(), ShapeError> {
    SCRATCH.with_borrow_mut(|Scratch { maxima, expanded, .. }| {
        reserve_f32(maxima, CACHED_ROWS * MAXIMA)?;
        reserve_f32(expanded, inputs.next_multiple_of(4) * PANEL)?;
        Ok(())
    })
}

fn check(acts: &Acts, keys: Weight<'_>, visible: &[usize]) -> Result<(), ShapeError> {
    if acts.k() != keys.k() {
        return Err(ShapeError::Mismatch { what: "columns of the activations", expected: keys.k(), found: acts.k() });
    }
    if !matches!(keys.format(), Format::Bf16 | Format::F32) {
        let found = keys.format().value_bytes();
        return Err(ShapeError::Mismatch { what: "bytes of a key's value (BF16 or F32)", expected: 2, found });
    }
    match visible.iter().find(|visible| **visible > keys.n()) {
        Some(&found) => Err(ShapeError::Mismatch { what: "visible keys", expected: keys.n(), found }),
        None => Ok(()),
    }
}
