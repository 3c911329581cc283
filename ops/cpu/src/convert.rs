// SPDX-License-Identifier: MIT OR Apache-2.0

//! Bulk conversions between number formats, at the speed of the level.

use crate::formats::{F8E4M3, F8E5M2};
use crate::kernels::simd::{Kernel, Simd, dispatch};
use crate::level::Level;
use crate::threads::Pool;
use crate::weights::{BLOCK, Data, MX_GROUP, ShapeError, WeightRef, check_len};
use half::bf16;

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

/// Rounds F32 to BF16, to nearest even, and keeps the values as F32.
///
/// # Panics
/// When the lengths differ.
pub fn round_to_bf16(level: Level, x: &[f32], out: &mut [f32]) {
    same_len(x.len(), out.len());
    let mut words = [bf16::ZERO; 256];
    for (x, out) in x.chunks(words.len()).zip(out.chunks_mut(words.len())) {
        let words = &mut words[..x.len()];
        f32_to_bf16(level, x, words);
        bf16_to_f32(level, words, out);
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
    let mut rows: Vec<_> = out.chunks_mut((weight.k * 32).max(1)).collect();
    pool.for_each_mut(&mut rows, |task, rows| {
        for (i, out) in rows.chunks_exact_mut(weight.k).enumerate() {
            dequantize_row(level, weight, task * 32 + i, out);
        }
    });
    Ok(())
}

fn dequantize_row(level: Level, weight: WeightRef<'_>, row: usize, out: &mut [bf16]) {
    let k = weight.k;
    let range = row * k..(row + 1) * k;
    match weight.data {
        Data::F32(values) => f32_to_bf16(level, &values[range], out),
        Data::Bf16(values) => out.copy_from_slice(&values[range]),
        Data::Fp8Block { codes, scales } => {
            let scales = &scales[row / BLOCK * k.div_ceil(BLOCK)..];
            for ((codes, out), scale) in codes[range].chunks(BLOCK).zip(out.chunks_mut(BLOCK)).zip(scales) {
                dequantize(level, codes, *scale, out);
            }
        }
        Data::Mxfp8 { codes, scales } => {
            let scales = &scales[row * k.div_ceil(MX_GROUP)..];
            for ((codes, out), scale) in codes[range].chunks(MX_GROUP).zip(out.chunks_mut(MX_GROUP)).zip(scales) {
                dequantize(level, codes, scale.to_f32(), out);
            }
        }
    }
}

/// Codes under one scale.
fn dequantize(level: Level, codes: &[F8E4M3], scale: f32, out: &mut [bf16]) {
    struct Dequantize<'a>(&'a [F8E4M3], f32, &'a mut [bf16]);
    impl Kernel for Dequantize<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let Self(codes, scale, out) = self;
            let mut x = codes.chunks_exact(S::LANES);
            let mut o = out.chunks_exact_mut(S::LANES);
            // The decoder's NaN codes come out as 480 and are mended by the last loop.
            let factor = s.splat(scale * TWO_120);
            let mut nan = false;
            for (x, out) in x.by_ref().zip(o.by_ref()) {
                nan |= x.iter().fold(false, |nan, code| nan | code.is_nan());
                // SAFETY: both chunks have LANES values; codes are transparent bytes, `bf16` a transparent `u16`.
                unsafe { s.store_bf16(out.as_mut_ptr().cast(), s.mul(s.load_codes(x.as_ptr().cast()), factor)) };
            }
            for (x, out) in x.remainder().iter().zip(o.into_remainder()) {
                *out = bf16::from_f32(x.to_f32() * scale);
            }
            if nan || !is_fast_scale(scale) {
                for (x, out) in codes.iter().zip(out) {
                    *out = bf16::from_f32(x.to_f32() * scale);
                }
            }
        }
    }
    dispatch(level, Dequantize(codes, scale, out));
}

/// Whether the decoders can take a scale: whether it is finite, times 2^120 too.
pub(crate) fn is_fast_scale(scale: f32) -> bool {
    scale.abs() < 128.0
}

/// What brings the decoders' values, which are 2^-120 times the codes', to scale.
pub(crate) const TWO_120: f32 = f32::from_bits((120 + 127) << 23);
