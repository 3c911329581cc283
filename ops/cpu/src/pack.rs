// SPDX-License-Identifier: MIT OR Apache-2.0

//! From row-major weights to the packed layout of [`crate::weights`]: whole panels at load, and cache-sized chunks of
//! panels where a row-major weight is used in place.

use crate::convert::TWO_120;
use crate::formats::{E8M0, F8E4M3};
use crate::level::{Isa, Level};
use crate::weights::{Data, Format, MX_GROUP, PANEL, WeightRef, packed_index};
use std::ops::Range;
use zerocopy::IntoBytes;

/// The largest E8M0 code whose power of two, times 2^120, is finite in F32: what the F32 kernels scale decoded codes by.
pub(crate) const LARGEST_FAST_SCALE: u8 = 134;

/// Packs inputs `k` of panel `panel` into `out`, of which every byte is written. `k` starts at a multiple of 4. Returns
/// whether there is a NaN among E4M3 codes.
pub(crate) fn pack_panel(level: Level, weight: WeightRef<'_>, panel: usize, k: Range<usize>, out: &mut [u8]) -> bool {
    let values = match weight.data {
        Data::F32(values) => values.as_bytes(),
        Data::Bf16(values) => values.as_bytes(),
        Data::Fp8Block { codes, .. } | Data::Mxfp8 { codes, .. } => codes.as_bytes(),
    };
    let size = weight.format().value_bytes();
    let first = panel * PANEL;
    let count = weight.n.min(first + PANEL).saturating_sub(first);
    let mut rows = [&[][..]; PANEL];
    for (row, slice) in (first..).zip(&mut rows[..count]) {
        *slice = &values[(row * weight.k + k.start) * size..(row * weight.k + k.end) * size];
    }
    pack_rows(level, weight.format(), k.len(), &rows[..count], out)
}

/// [`pack_panel`] of at most 64 rows of `k` values each, as bytes.
pub(crate) fn pack_rows(level: Level, format: Format, k: usize, rows: &[&[u8]], out: &mut [u8]) -> bool {
    let size = format.value_bytes();
    let padded = k.next_multiple_of(4);
    assert_eq!(out.len(), padded * PANEL * size);
    assert!(rows.len() <= PANEL && rows.iter().all(|row| row.len() == k * size));

    let (transposed, mut nan) = transpose_blocks(level, format, rows, out);
    // What the block transposition did not cover: the last inputs, the last outputs, and the zeros of the padding.
    for output in 0..PANEL {
        let row = rows.get(output).copied().unwrap_or_default();
        let from = if output / 8 < rows.len() / 8 { transposed } else { 0 };
        for k in from..padded {
            let at = packed_index(format, output, k) * size;
            match row.get(k * size..(k + 1) * size) {
                Some(value) => {
                    out[at..at + size].copy_from_slice(value);
                    nan |= size == 1 && F8E4M3::from_bits(value[0]).is_nan();
                }
                None => out[at..at + size].fill(0),
            }
        }
    }
    nan
}

/// Transposes whole blocks of 8 outputs by 32 bytes along K; returns how many inputs of each whole group of 8 rows it
/// has done, and whether there was a NaN among E4M3 codes.
fn transpose_blocks(level: Level, format: Format, rows: &[&[u8]], out: &mut [u8]) -> (usize, bool) {
    #[cfg(target_arch = "x86_64")]
    if level.isa() >= Isa::Avx2 && !level.is_emulated() {
        let bytes = rows.first().map_or(0, |row| row.len()) / 32 * 32;
        assert!(rows.iter().all(|row| row.len() >= bytes) && out.len() >= bytes * PANEL);
        // SAFETY: the level has AVX2; rows have at least `bytes` bytes, and `out` room for 64 outputs of as many.
        let nan = unsafe { transpose_blocks_avx2(format, rows, bytes, out) };
        return (bytes / format.value_bytes(), nan);
    }
    let _ = (level, format, rows, out, Isa::Avx2);
    (0, false)
}

/// # Safety
/// The CPU has AVX2; `bytes` is a multiple of 32, every row has `bytes` bytes and `out` 64 times as many.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn transpose_blocks_avx2(format: Format, rows: &[&[u8]], bytes: usize, out: &mut [u8]) -> bool {
    use crate::kernels::x86::{quad_order, transpose8};
    use core::arch::x86_64::*;
    let is_code = format.value_bytes() == 1;
    let mut nan = _mm256_setzero_si256();
    for (group, rows) in rows.chunks_exact(8).enumerate() {
        for at in (0..bytes).step_by(32) {
            // SAFETY: 32 bytes from `at` lie inside each row. Word `c` of the block is word `at / 4 + c` along K; its 8
            // outputs are 32 bytes at output `8 * group` of the 64, inside `out`.
            unsafe {
                let block: [__m256i; 8] = std::array::from_fn(|row| {
                    let from = rows[row].as_ptr().wrapping_add(at);
                    // The same place of the next chunk: too many rows for the hardware to follow. A prefetch cannot fault.
                    _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(bytes).cast());
                    _mm256_loadu_si256(from.cast())
                });
                if is_code {
                    for codes in block {
                        let magnitude_ones = _mm256_or_si256(codes, _mm256_set1_epi8(0x80_u8 as i8));
                        nan = _mm256_or_si256(nan, _mm256_cmpeq_epi8(magnitude_ones, _mm256_set1_epi8(-1)));
                    }
                }
                for (c, word) in transpose8(block).into_iter().enumerate() {
                    let word = if is_code { quad_order(word) } else { word };
                    let to = out.as_mut_ptr().wrapping_add((at / 4 + c) * PANEL * 4 + group * 32);
                    _mm256_storeu_si256(to.cast(), word);
                }
            }
        }
    }
    _mm256_testz_si256(nan, nan) == 0
}

/// What decides which decoders can take a packed panel, or a part of one: see
/// [`PackedRef::mxfp8_facts`](crate::PackedRef::mxfp8_facts).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PanelFacts {
    /// Whether there is a NaN among E4M3 codes.
    nan: bool,
    /// The smallest and the largest E8M0 code; 127 for other formats.
    scales: [u8; 2],
}

impl PanelFacts {
    /// Nothing that any decoder minds.
    pub(crate) const PLAIN: PanelFacts = PanelFacts { nan: false, scales: [127; 2] };

    /// Of packed E8M0 scales, and of codes of which is known whether there is a NaN.
    #[inline(always)]
    pub(crate) fn new(nan: bool, mx_scales: &[u8]) -> Self {
        if mx_scales.is_empty() {
            return Self { nan, ..Self::PLAIN };
        }
        // Two folds without an early end are vector code.
        let smallest = mx_scales.iter().fold(255, |a: u8, &b| a.min(b));
        let largest = mx_scales.iter().fold(0, |a: u8, &b| a.max(b));
        Self { nan, scales: [smallest, largest] }
    }

    /// Whether the fast decoders of the F32 kernels cannot take it.
    pub(crate) fn is_slow(self) -> bool {
        self.nan || self.scales[1] > LARGEST_FAST_SCALE
    }

    /// Whether the codes are numbers and all scales in `range`.
    pub(crate) fn is_within(self, range: &std::ops::RangeInclusive<u8>) -> bool {
        !self.nan && self.scales.iter().all(|scale| range.contains(scale))
    }
}

/// Packs the E8M0 scales of inputs `k` of a panel as `[k / 32][64]`; outputs beyond N get 1.0. `k` starts at a multiple
/// of 32. Nothing to do for other formats.
pub(crate) fn pack_mx_scales(weight: WeightRef<'_>, panel: usize, k: Range<usize>, out: &mut [u8]) {
    let Data::Mxfp8 { scales, .. } = weight.data else { return };
    let groups = weight.k.div_ceil(MX_GROUP);
    let columns = k.start / MX_GROUP..k.end.div_ceil(MX_GROUP);
    for output in 0..PANEL {
        let row = panel * PANEL + output;
        if row < weight.n {
            let scales = &scales[row * groups + columns.start..row * groups + columns.end];
            for (out, scale) in out.chunks_exact_mut(PANEL).zip(scales) {
                out[output] = scale.to_bits();
            }
        } else {
            out.chunks_exact_mut(PANEL).for_each(|out| out[output] = 127);
        }
    }
}

/// Whether there is a NaN among E4M3 codes. Inlined, to become the vector code of its caller's level.
#[inline(always)]
pub(crate) fn has_nan(codes: &[u8]) -> bool {
    // The largest magnitude code is a NaN's; folded like this, the search is vector code.
    codes.iter().fold(0, |largest, &code| (code & 0x7F).max(largest)) == 0x7F
}

const _: () = assert!(E8M0::from_bits(LARGEST_FAST_SCALE).to_f32() * TWO_120 < f32::INFINITY);
