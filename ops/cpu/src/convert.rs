// SPDX-License-Identifier: MIT OR Apache-2.0

//! Bulk conversions between number formats, at the speed of the level.

use crate::formats::{F8E4M3, F8E5M2};
use crate::kernels::simd::{Kernel, Simd, dispatch};
use crate::level::Level;
use crate::pack::has_nan;
use crate::threads::Pool;
use crate::weights::{BLOCK, Data, MX_GROUP, ShapeError, WeightRef, check_len};
use half::bf16;
use zerocopy::IntoBytes;

fn same_len(x: usize, out: usize) {
    assert_eq!(x, out, "input and output of a conversion have different lengths");
}

/// Widens BF16 to F32, exactly.
///
/// # Panics
/// When the lengths differ.
pub fn bf16_to_f32(level: Level, x: &[bf16], out: &mut [f32]) {
    struct Widen<'a>(&'a [bf16], &'a mut [f32]);
    impl Kernel for Widen<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let mut x = self.0.chunks_exact(S::LANES);
            let mut out = self.1.chunks_exact_mut(S::LANES);
            for (x, out) in x.by_ref().zip(out.by_ref()) {
                // SAFETY: both chunks have LANES values; `bf16` is a transparent `u16`.
                unsafe { s.store(out.as_mut_ptr(), s.load_bf16(x.as_ptr().cast())) };
            }
            for (x, out) in x.remainder().iter().zip(out.into_remainder()) {
                *out = x.to_f32();
            }
        }
    }
    same_len(x.len(), out.len());
    dispatch(level, Widen(x, out));
}

/// Rounds F32 to BF16, to nearest even; NaN stays NaN.
///
/// # Panics
/// When the lengths differ.
pub fn f32_to_bf16(level: Level, x: &[f32], out: &mut [bf16]) {
    struct Narrow<'a>(&'a [f32], &'a mut [bf16]);
    impl Kernel for Narrow<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let mut x = self.0.chunks_exact(S::LANES);
            let mut out = self.1.chunks_exact_mut(S::LANES);
            for (x, out) in x.by_ref().zip(out.by_ref()) {
                // SAFETY: both chunks have LANES values; `bf16` is a transparent `u16`.
                unsafe { s.store_bf16(out.as_mut_ptr().cast(), s.load(x.as_ptr())) };
            }
            for (x, out) in x.remainder().iter().zip(out.into_remainder()) {
                *out = bf16::from_f32(*x);
            }
        }
    }
    same_len(x.len(), out.len());
    dispatch(level, Narrow(x, out));
}

/// Rounds F32 to BF16 in place, to nearest even: the values stay F32.
pub fn round_to_bf16(level: Level, x: &mut [f32]) {
    let mut words = [bf16::ZERO; 256];
    for x in x.chunks_mut(words.len()) {
        let words = &mut words[..x.len()];
        f32_to_bf16(level, x, words);
        bf16_to_f32(level, words, x);
    }
}

macro_rules! decode {
    ($(#[$doc:meta])* $name:ident, $code:ty, $out:ty, $method:ident) => {
        $(#[$doc])*
        ///
        /// # Panics
        /// When the lengths differ.
        pub fn $name(x: &[$code], out: &mut [$out]) {
            same_len(x.len(), out.len());
            for (x, out) in x.iter().zip(out) {
                *out = x.$method();
            }
        }
    };
}

decode! {
    /// Widens E4M3 to F32, exactly.
    e4m3_to_f32, F8E4M3, f32, to_f32
}
decode! {
    /// Widens E4M3 to BF16, exactly.
    e4m3_to_bf16, F8E4M3, bf16, to_bf16
}
decode! {
    /// Widens E5M2 to F32, exactly.
    e5m2_to_f32, F8E5M2, f32, to_f32
}
decode! {
    /// Widens E5M2 to BF16, exactly.
    e5m2_to_bf16, F8E5M2, bf16, to_bf16
}

/// Dequantises a whole weight to BF16 `[n, k]`: code times scale in F32, rounded once. For other programs and for tests;
/// the kernels here never make such a copy.
pub fn dequantize_to_bf16(
    level: Level,
    pool: &Pool,
    weight: WeightRef<'_>,
    out: &mut [bf16],
) -> Result<(), ShapeError> {
    check_len("out", out.len(), &[weight.n, weight.k])?;
    let mut tasks: Vec<_> = out.chunks_mut((weight.k * TASK_ROWS).max(1)).collect();
    pool.for_each_mut(&mut tasks, |task, out| dispatch(level, Dequantize { weight, first: task * TASK_ROWS, out }));
    Ok(())
}

/// Rows of a task of [`dequantize_to_bf16`].
const TASK_ROWS: usize = 32;

/// Some rows of a weight, from row `first` on, to BF16.
struct Dequantize<'a, 'w> {
    weight: WeightRef<'w>,
    first: usize,
    out: &'a mut [bf16],
}

impl Kernel for Dequantize<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { weight, first, out } = self;
        let k = weight.k;
        for (row, out) in out.chunks_exact_mut(k.max(1)).enumerate() {
            let row = first + row;
            let range = row * k..(row + 1) * k;
            match weight.data {
                Data::F32(values) => {
                    for (x, out) in values[range].iter().zip(out) {
                        *out = bf16::from_f32(*x);
                    }
                }
                Data::Bf16(values) => out.copy_from_slice(&values[range]),
                Data::Fp8Block { codes, scales } => {
                    let scales = &scales[row / BLOCK * k.div_ceil(BLOCK)..];
                    for ((codes, out), scale) in codes[range].chunks(BLOCK).zip(out.chunks_mut(BLOCK)).zip(scales) {
                        dequantize(s, codes, *scale, out);
                    }
                }
                Data::Mxfp8 { codes, scales } => {
                    let scales = &scales[row * k.div_ceil(MX_GROUP)..];
                    for ((codes, out), scale) in codes[range].chunks(MX_GROUP).zip(out.chunks_mut(MX_GROUP)).zip(scales)
                    {
                        dequantize(s, codes, scale.to_f32(), out);
                    }
                }
            }
        }
    }
}

/// Codes under one scale.
#[inline(always)]
fn dequantize<S: Simd>(s: S, codes: &[F8E4M3], scale: f32, out: &mut [bf16]) {
    assert_eq!(codes.len(), out.len());
    let slow = has_nan(codes.as_bytes()) || !is_fast_scale(scale);
    let whole = if slow { 0 } else { codes.len() / S::LANES * S::LANES };
    let factor = s.splat(scale * TWO_120);
    for at in (0..whole).step_by(S::LANES) {
        let (from, to) = (codes.as_ptr().wrapping_add(at), out.as_mut_ptr().wrapping_add(at));
        // SAFETY: both slices have LANES values from `at` on; codes are transparent bytes, `bf16` a transparent `u16`.
        unsafe { s.store_bf16_numbers(to.cast(), s.mul(s.load_codes(from.cast()), factor)) };
    }
    for (code, out) in codes[whole..].iter().zip(&mut out[whole..]) {
        *out = bf16::from_f32(code.to_f32() * scale);
    }
}

/// Whether the decoders can take a scale: whether it is finite, times 2^120 too.
pub(crate) fn is_fast_scale(scale: f32) -> bool {
    scale.abs() < 128.0
}

/// What brings the decoders' values, which are 2^-120 times the codes', to scale.
pub(crate) const TWO_120: f32 = f32::from_bits((120 + 127) << 23);
