// SPDX-License-Identifier: MIT OR Apache-2.0

//! A tile in BF16 dot products: rows of BF16 activations times one panel of 64 outputs, sums in F32.
//!
//! The order of the sums is fixed: pairs along K in ascending order; with block scales a sum for each block of 128 inputs,
//! started from zero, times its scale, added to the total. So, as in F32 arithmetic, the result depends neither on the
//! number of rows in a call nor on the layout.

use super::dot::{Dot, DotKernel};
use super::{group, groups};
use crate::level::Level;
use crate::tile::Chunks;
use crate::weights::{BLOCK, Format, MX_GROUP, PANEL};
use half::bf16;

/// Inputs of a chunk: expanded to BF16 it is 128 KiB and stays in the second-level cache.
pub(crate) const CHUNK: usize = 1024;
/// Inputs of a part of a chunk: in BF16 it is 16 KiB and stays in the first-level cache.
const CACHED: usize = 128;
/// Up to this many rows go over a part while it is in the first-level cache. For more, the sums, which each part loads and
/// stores, would push it out.
const CACHED_ROWS: usize = 96;
/// Up to this many rows are multiplied with FP8 decoded in registers; more share an expanded chunk.
const DIRECT_ROWS: usize = 6;
/// E8M0 scales of panels whose sums are kept in units of the scale at hand: at most 1, so that a sum in these units is
/// never smaller than the sum itself, and not so small that it comes near the end of F32.
const RESCALED: std::ops::RangeInclusive<u8> = 87..=127;
/// The bits of 2^-100: a part that is flushed to zero, below 2^-126, makes no difference to a sum that is no smaller.
const TINY: u32 = (127 - 100) << 23;
/// How far ahead of its use packed data is asked for, in bytes. The prefetchers of some CPUs stop at the end of each
/// page of 4 KiB.
const AHEAD: usize = 4096;

/// Calls a function that is generic over the number of rows.
macro_rules! by_rows {
    ($count:expr, $function:ident($d:expr, $x:expr, $($arg:expr),*)) => {
        match $count {
            1 => $function::<_, 1>($d, &std::array::from_fn(|i| $x[i]), $($arg),*),
            2 => $function::<_, 2>($d, &std::array::from_fn(|i| $x[i]), $($arg),*),
            3 => $function::<_, 3>($d, &std::array::from_fn(|i| $x[i]), $($arg),*),
            4 => $function::<_, 4>($d, &std::array::from_fn(|i| $x[i]), $($arg),*),
            5 => $function::<_, 5>($d, &std::array::from_fn(|i| $x[i]), $($arg),*),
            _ => $function::<_, 6>($d, &std::array::from_fn(|i| $x[i]), $($arg),*),
        }
    };
}

/// Rows times panel. `rows[i]` is readable for K rounded up to a multiple of 4, with zeros beyond K.
///
/// Not every weight can be multiplied like this: not F32, and not MXFP8 unless the product of each scale and code is a normal
/// BF16 number or zero.
pub(crate) struct Bf16Tile<'a, 'w> {
    pub(crate) level: Level,
    pub(crate) chunks: Chunks<'w>,
    pub(crate) rows: &'a [*const bf16],
    /// `[rows][64]`.
    pub(crate) out: &'a mut [f32],
    /// Room for an expanded chunk: `CHUNK * 64` BF16 values.
    pub(crate) expanded: &'a mut [u8],
    /// Room for a packed chunk.
    pub(crate) packed: &'a mut [u8],
    pub(crate) packed_scales: &'a mut [u8],
}

impl DotKernel for Bf16Tile<'_, '_> {
    /// Whether all chunks could be taken; if not, the output is of no meaning.
    type Output = bool;

    #[inline(always)]
    fn run<D: Dot>(self, d: D) -> bool {
        let Self { level, chunks, rows, out, expanded, packed, packed_scales } = self;
        assert_eq!(out.len(), rows.len() * PANEL);
        // The scratch has no room for a chunk of it.
        if chunks.format() == Format::F32 {
            return false;
        }
        out.fill(0.0);
        let few = rows.len() <= DIRECT_ROWS;
        for k0 in (0..chunks.k()).step_by(CHUNK) {
            let chunk = chunks.get(level, k0..(k0 + CHUNK).min(chunks.k()), packed, packed_scales);
            if !chunk.fits_bf16() {
                return false;
            }
            let format = chunk.format;
            let padded = chunk.k.next_multiple_of(4);
            assert_eq!(chunk.data.len(), padded * PANEL * format.value_bytes());
            assert!(expanded.len() >= padded * PANEL * 2);
            let in_registers = few && (format == Format::Fp8Block || chunk.facts.is_within(&RESCALED));
            let step = if few || rows.len() > CACHED_ROWS { CHUNK } else { CACHED };
            for start in (0..padded).step_by(step) {
                let inputs = (padded - start).min(step);
                let data = &chunk.data[start * PANEL * format.value_bytes()..];
                let block_scales = &chunk.block_scales[(start / BLOCK).min(chunk.block_scales.len())..];
                let block_scales = &block_scales[..block_scales.len().min(inputs.div_ceil(BLOCK))];
                let mx_scales = &chunk.mx_scales[(start / MX_GROUP * PANEL).min(chunk.mx_scales.len())..];
                // SAFETY: `data` has `inputs` inputs from its start on, `mx_scales` their scales, and `expanded` room for
                // them in BF16.
                unsafe {
                    match format {
                        Format::Fp8Block if !in_registers => expand(d, &data[..inputs * PANEL], None, expanded),
                        Format::Mxfp8 if !in_registers => expand(d, &data[..inputs * PANEL], Some(mx_scales), expanded),
                        _ => {}
                    }
                }
                for (row, count) in groups(rows.len(), 6) {
                    let x = group(rows, row, k0 + start).map(|x| x.cast::<u16>());
                    let out = &mut out[row * PANEL..];
                    let data = data.as_ptr();
                    // SAFETY: rows are readable for the padded inputs of the chunk; the weights are `inputs` inputs in the
                    // layout each function reads; `out` has `count` rows of 64.
                    unsafe {
                        match format {
                            Format::Fp8Block if in_registers => {
                                by_rows!(count, rows_times_codes(d, x, data, inputs, block_scales, out));
                            }
                            Format::Fp8Block => {
                                by_rows!(count, rows_times_blocks(d, x, expanded.as_ptr(), inputs, block_scales, out));
                            }
                            Format::Mxfp8 if in_registers => {
                                if !by_rows!(count, rows_times_mx_codes(d, x, data, inputs, mx_scales, out)) {
                                    expand(d, &chunk.data[..inputs * PANEL], Some(mx_scales), expanded);
                                    by_rows!(count, rows_times(d, x, expanded.as_ptr(), inputs, out));
                                }
                            }
                            Format::Mxfp8 => by_rows!(count, rows_times(d, x, expanded.as_ptr(), inputs, out)),
                            Format::Bf16 | Format::F32 => by_rows!(count, rows_times(d, x, data, inputs, out)),
                        }
                    }
                }
            }
        }
        true
    }
}

/// # Safety
/// `x` is readable for `inputs` values, `w` is a packed BF16 panel of as many inputs, `out` has `MR` rows of 64.
#[inline(always)]
unsafe fn rows_times<D: Dot, const MR: usize>(
    d: D,
    x: &[*const u16; MR],
    w: *const u8,
    inputs: usize,
    out: &mut [f32],
) {
    // SAFETY: the caller's promises.
    unsafe {
        let mut sums: [[D::F; 4]; MR] = load_sums(d, out);
        add_pairs(d, x, w, 0, inputs, &mut sums);
        for m in 0..MR {
            for j in 0..4 {
                d.store_f32(out.as_mut_ptr().wrapping_add(m * PANEL + 16 * j), sums[m][j]);
            }
        }
    }
}

#[inline(always)]
fn load_sums<D: Dot, const MR: usize>(d: D, out: &[f32]) -> [[D::F; 4]; MR] {
    assert!(out.len() >= MR * PANEL);
    let mut sums = [[d.zero(); 4]; MR];
    for m in 0..MR {
        for j in 0..4 {
            // SAFETY: the assertion.
            sums[m][j] = unsafe { d.load_f32(out.as_ptr().wrapping_add(m * PANEL + 16 * j)) };
        }
    }
    sums
}

/// The micro-kernel: adds the products of inputs `from .. to` to the sums.
///
/// # Safety
/// As [`rows_times`], with `to` at most `inputs`; both are even.
#[inline(always)]
unsafe fn add_pairs<D: Dot, const MR: usize>(
    d: D,
    x: &[*const u16; MR],
    w: *const u8,
    from: usize,
    to: usize,
    sums: &mut [[D::F; 4]; MR],
) {
    let mut k = from;
    while k < to {
        // SAFETY: pair `k / 2` is 256 bytes of the panel, and two values of each row.
        unsafe {
            let at = w.wrapping_add(k * PANEL * 2);
            for j in 0..4 {
                d.prefetch(at.wrapping_add(AHEAD + 64 * j));
            }
            let w =
                [d.load(at), d.load(at.wrapping_add(64)), d.load(at.wrapping_add(128)), d.load(at.wrapping_add(192))];
            for m in 0..MR {
                let pair = d.broadcast_pair(x[m].wrapping_add(k));
                for j in 0..4 {
                    sums[m][j] = d.dot(sums[m][j], w[j], pair);
                }
            }
        }
        k += 2;
    }
}

/// [`rows_times`] for values under block scales, already expanded to BF16.
///
/// # Safety
/// As [`rows_times`]; `scales` has one value for each 128 inputs.
#[inline(always)]
unsafe fn rows_times_blocks<D: Dot, const MR: usize>(
    d: D,
    x: &[*const u16; MR],
    w: *const u8,
    inputs: usize,
    scales: &[f32],
    out: &mut [f32],
) {
    assert!(out.len() >= MR * PANEL);
    for (block, scale) in scales.iter().enumerate() {
        let mut sums = [[d.zero(); 4]; MR];
        // SAFETY: the caller's promises; the assertion covers `out`.
        unsafe {
            add_pairs(d, x, w, block * BLOCK, inputs.min((block + 1) * BLOCK), &mut sums);
            add_scaled(d, &sums, *scale, out);
        }
    }
}

/// `out += sums * scale`.
///
/// # Safety
/// `out` has `MR` rows of 64.
#[inline(always)]
unsafe fn add_scaled<D: Dot, const MR: usize>(d: D, sums: &[[D::F; 4]; MR], scale: f32, out: &mut [f32]) {
    let scale = d.splat(scale);
    for m in 0..MR {
        for j in 0..4 {
            // SAFETY: the caller's promise.
            unsafe {
                let p = out.as_mut_ptr().wrapping_add(m * PANEL + 16 * j);
                d.store_f32(p, d.fma(sums[m][j], scale, d.load_f32(p)));
            }
        }
    }
}

/// [`rows_times_blocks`] for packed codes, decoded in registers.
///
/// # Safety
/// As [`rows_times`], `w` being packed codes; `scales` has one value for each 128 inputs.
#[inline(always)]
unsafe fn rows_times_codes<D: Dot, const MR: usize>(
    d: D,
    x: &[*const u16; MR],
    w: *const u8,
    inputs: usize,
    scales: &[f32],
    out: &mut [f32],
) {
    assert!(out.len() >= MR * PANEL);
    let tables = d.tables();
    // Zeros the compiler cannot see through: with one address for all four vectors it would keep the broadcast
    // activations in registers, of which there are too few, instead of reading them as operands of the dot product.
    let offsets = std::hint::black_box([0; 4]);
    for (block, scale) in scales.iter().enumerate() {
        let mut sums = [[d.zero(); 4]; MR];
        let mut k = block * BLOCK;
        // SAFETY: a quad is 256 bytes of the panel and four values of each row; the assertion covers `out`.
        unsafe {
            while k < inputs.min((block + 1) * BLOCK) {
                for j in 0..4 {
                    d.prefetch(w.wrapping_add(k * PANEL + 64 * j + AHEAD));
                    let w = d.decode(tables, d.load(w.wrapping_add(k * PANEL + 64 * j)));
                    let at = k + offsets[j];
                    for m in 0..MR {
                        sums[m][j] = d.dot(sums[m][j], w[0], d.broadcast_pair(x[m].wrapping_add(at)));
                        sums[m][j] = d.dot(sums[m][j], w[1], d.broadcast_pair(x[m].wrapping_add(at + 2)));
                    }
                }
                k += 4;
            }
            add_scaled(d, &sums, *scale, out);
        }
    }
}

/// [`rows_times`] for packed MXFP8 codes, decoded in registers. Returns whether it could be done; if not, `out` is as
/// before.
///
/// The sums are in units of the scale of the group of 32 inputs at hand: a group begins with a multiplication by the ratio
/// of the scale before to its own. These are powers of two, and exact, so the sums are those of the scaled weights bit
/// for bit, unless one overflows in its units, or is so small that dot products flush a part of it to zero in one way and
/// not in the other. Sums that are not finite, or below 2^-100, are therefore left to be computed from the scaled weights.
///
/// # Safety
/// As [`rows_times`], `w` being packed codes; `scales` has a row of 64 for each 32 inputs.
#[inline(always)]
unsafe fn rows_times_mx_codes<D: Dot, const MR: usize>(
    d: D,
    x: &[*const u16; MR],
    w: *const u8,
    inputs: usize,
    scales: &[u8],
    out: &mut [f32],
) -> bool {
    assert!(scales.len() >= inputs.div_ceil(MX_GROUP) * PANEL);
    let tables = d.tables();
    // As in `rows_times_codes`.
    let offsets = std::hint::black_box([0; 4]);
    let one = [127; PANEL];
    let mut before = one.as_ptr();
    let mut sums: [[D::F; 4]; MR] = load_sums(d, out);
    for group in 0..inputs.div_ceil(MX_GROUP) {
        let scale = scales.as_ptr().wrapping_add(group * PANEL);
        let mut k = group * MX_GROUP;
        // SAFETY: the assertion; a quad is 256 bytes of the panel and four values of each row.
        unsafe {
            rescale(d, before, scale, &mut sums);
            before = scale;
            while k < inputs.min((group + 1) * MX_GROUP) {
                for j in 0..4 {
                    d.prefetch(w.wrapping_add(k * PANEL + 64 * j + AHEAD));
                    let w = d.decode(tables, d.load(w.wrapping_add(k * PANEL + 64 * j)));
                    let at = k + offsets[j];
                    for m in 0..MR {
                        sums[m][j] = d.dot(sums[m][j], w[0], d.broadcast_pair(x[m].wrapping_add(at)));
                        sums[m][j] = d.dot(sums[m][j], w[1], d.broadcast_pair(x[m].wrapping_add(at + 2)));
                    }
                }
                k += 4;
            }
        }
    }
    // SAFETY: both are rows of 64 scales.
    unsafe { rescale(d, before, one.as_ptr(), &mut sums) };
    let mut result = [[0.0_f32; PANEL]; MR];
    for m in 0..MR {
        for j in 0..4 {
            // SAFETY: 16 values from `16 * j` of 64.
            unsafe { d.store_f32(result[m].as_mut_ptr().wrapping_add(16 * j), sums[m][j]) };
        }
    }
    let result = result.as_flattened();
    let doubtful = result.iter().fold(0, |count, sum| {
        let size = sum.to_bits() & 0x7FFF_FFFF;
        count + u32::from(size != 0 && size.wrapping_sub(TINY) >= f32::INFINITY.to_bits() - TINY)
    });
    if doubtful > 0 {
        return false;
    }
    out[..result.len()].copy_from_slice(result);
    true
}

/// Multiplies the sums by `2^(from - to)`, by the E8M0 scales of their outputs.
///
/// # Safety
/// `from` and `to` are readable for 64 bytes, and less than 127 apart.
#[inline(always)]
unsafe fn rescale<D: Dot, const MR: usize>(d: D, from: *const u8, to: *const u8, sums: &mut [[D::F; 4]; MR]) {
    for j in 0..4 {
        // SAFETY: the caller's promise.
        let ratio = unsafe { d.ratios(from.wrapping_add(16 * j), to.wrapping_add(16 * j)) };
        for m in 0..MR {
            sums[m][j] = d.mul(sums[m][j], ratio);
        }
    }
}

/// Packed codes to packed BF16, times their E8M0 scales if there are any.
///
/// # Safety
/// `codes` is whole quads of 64 outputs, `scales` one row of 64 for each 32 inputs, `out` twice as long as `codes`.
#[inline(always)]
unsafe fn expand<D: Dot>(d: D, codes: &[u8], scales: Option<&[u8]>, out: &mut [u8]) {
    let tables = d.tables();
    for (quad, codes) in codes.chunks_exact(4 * PANEL).enumerate() {
        for j in 0..4 {
            // SAFETY: 64 bytes at `64 * j` of a quad's 256; its two pairs are 256 bytes of `out` each.
            unsafe {
                let at = codes.as_ptr().wrapping_add(64 * j);
                d.prefetch(at.wrapping_add(AHEAD));
                let mut pairs = d.decode(tables, d.load(at));
                if let Some(scales) = scales {
                    let row = &scales[quad * 4 / MX_GROUP * PANEL..][..PANEL];
                    let exponents = d.exponents(row.as_ptr().wrapping_add(16 * j));
                    pairs = [d.scale_exponents(pairs[0], exponents), d.scale_exponents(pairs[1], exponents)];
                }
                for (half, pair) in pairs.into_iter().enumerate() {
                    d.store(out.as_mut_ptr().wrapping_add(quad * 512 + half * 256 + 64 * j), pair);
                }
            }
        }
    }
}

const _: () = assert!(CHUNK.is_multiple_of(CACHED) && CACHED.is_multiple_of(BLOCK) && CACHED.is_multiple_of(MX_GROUP));
