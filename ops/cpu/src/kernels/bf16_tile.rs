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
/// Up to this many rows are multiplied with FP8 decoded in registers; more share an expanded chunk.
const DIRECT_ROWS: usize = 6;

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
/// The caller has made sure of the format (no F32), and, for MXFP8, of scales and codes whose product is a normal BF16
/// number or zero.
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
    type Output = ();

    #[inline(always)]
    fn run<D: Dot>(self, d: D) {
        let Self { level, chunks, rows, out, expanded, packed, packed_scales } = self;
        assert_eq!(out.len(), rows.len() * PANEL);
        out.fill(0.0);
        for k0 in (0..chunks.k()).step_by(CHUNK) {
            let chunk = chunks.get(level, k0..(k0 + CHUNK).min(chunks.k()), packed, packed_scales);
            let padded = chunk.k.next_multiple_of(4);
            assert_eq!(chunk.data.len(), padded * PANEL * chunk.format.value_bytes());
            assert!(expanded.len() >= padded * PANEL * 2);
            let in_registers = chunk.format == Format::Fp8Block && rows.len() <= DIRECT_ROWS;
            // SAFETY: the chunk is `padded` inputs of packed data, and `expanded` holds as many in BF16.
            unsafe {
                match chunk.format {
                    Format::Fp8Block if !in_registers => expand(d, chunk.data, None, expanded),
                    Format::Mxfp8 => expand(d, chunk.data, Some(chunk.mx_scales), expanded),
                    _ => {}
                }
            }
            let data = chunk.data.as_ptr();
            for (row, count) in groups(rows.len(), 6) {
                let x = group(rows, row, k0).map(|x| x.cast::<u16>());
                let out = &mut out[row * PANEL..];
                // SAFETY: rows are readable for the padded inputs of the chunk; the weights are `padded` inputs in the
                // layout each function reads; `out` has `count` rows of 64.
                unsafe {
                    match chunk.format {
                        Format::Fp8Block if in_registers => {
                            by_rows!(count, rows_times_codes(d, x, data, padded, chunk.block_scales, out));
                        }
                        Format::Fp8Block => {
                            by_rows!(
                                count,
                                rows_times_blocks(d, x, expanded.as_ptr(), padded, chunk.block_scales, out)
                            );
                        }
                        Format::Mxfp8 => by_rows!(count, rows_times(d, x, expanded.as_ptr(), padded, out)),
                        Format::Bf16 | Format::F32 => by_rows!(count, rows_times(d, x, data, padded, out)),
                    }
                }
            }
        }
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
                let mut pairs = d.decode(tables, d.load(codes.as_ptr().wrapping_add(64 * j)));
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

const _: () = assert!(CHUNK.is_multiple_of(BLOCK) && CHUNK.is_multiple_of(MX_GROUP));
