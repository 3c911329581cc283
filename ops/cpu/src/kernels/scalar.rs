// SPDX-License-Identifier: MIT OR Apache-2.0

//! The portable level: eight lanes in plain loops, which any compiler turns into whatever vectors it has.

use super::simd::Simd;
use half::bf16;

#[derive(Clone, Copy)]
pub(crate) struct Scalar;

const N: usize = 8;

#[inline(always)]
fn zip(a: [f32; N], b: [f32; N], f: impl Fn(f32, f32) -> f32) -> [f32; N] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

/// Exponent and mantissa of the code in the places of F32: 2^-120 times its value, subnormals included.
#[inline(always)]
fn code_times_2_pow_minus_120(code: u8) -> f32 {
    let code = u32::from(code);
    f32::from_bits(((code & 0x80) << 24) | ((code & 0x7F) << 20))
}

impl Simd for Scalar {
    const LANES: usize = N;
    const WIDE: usize = 1;
    type V = [f32; N];

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [x; N]
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> Self::V {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[f32; N]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: Self::V) {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[f32; N]>().write_unaligned(v) }
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        // Two roundings: without FMA instructions a fused one is a library call.
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn max_or_nan(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| if a.is_nan() || a > b { a } else { b })
    }
    #[inline(always)]
    fn round(self, a: Self::V) -> Self::V {
        a.map(f32::round_ties_even)
    }
    #[inline(always)]
    fn scale2(self, a: Self::V, n: Self::V) -> Self::V {
        // Two factors, since 2^n itself leaves F32's range at both ends; the first product is exact but at the ends.
        let pow2 = |n: f32| f32::from_bits(((n as i32 + 127) << 23) as u32);
        zip(a, n, |a, n| {
            let half = (n * 0.5).round_ties_even();
            a * pow2(half) * pow2(n - half)
        })
    }
    #[inline(always)]
    fn reduce_add(self, v: Self::V) -> f32 {
        ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]))
    }
    #[inline(always)]
    fn reduce_max(self, v: Self::V) -> f32 {
        v.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> Self::V {
        // SAFETY: the caller's promise.
        let bits = unsafe { p.cast::<[u16; N]>().read_unaligned() };
        bits.map(|bits| f32::from_bits(u32::from(bits) << 16))
    }
    #[inline(always)]
    unsafe fn store_bf16(self, p: *mut u16, v: Self::V) {
        let bits = v.map(|x| bf16::from_f32(x).to_bits());
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[u16; N]>().write_unaligned(bits) }
    }
    #[inline(always)]
    unsafe fn store_bf16_numbers(self, p: *mut u16, v: Self::V) {
        let bits = v.map(|x| {
            let bits = x.to_bits();
            (bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16) as u16
        });
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[u16; N]>().write_unaligned(bits) }
    }
    #[inline(always)]
    unsafe fn load_codes(self, p: *const u8) -> Self::V {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[u8; N]>().read_unaligned() }.map(code_times_2_pow_minus_120)
    }
    #[inline(always)]
    unsafe fn load_pairs(self, p: *const u16) -> [Self::V; 2] {
        // SAFETY: the caller's promise.
        let bits = unsafe { p.cast::<[u32; N]>().read_unaligned() }.map(u32::from_le);
        [bits.map(|pair| f32::from_bits(pair << 16)), bits.map(|pair| f32::from_bits(pair & 0xFFFF_0000))]
    }
    #[inline(always)]
    unsafe fn load_quads(self, p: *const u8) -> [Self::V; 4] {
        // SAFETY: the caller's promise.
        let codes = unsafe { p.cast::<[u8; 4 * N]>().read_unaligned() };
        std::array::from_fn(|k| {
            std::array::from_fn(|lane| {
                code_times_2_pow_minus_120(codes[(lane / 4) * 16 + (k / 2) * 8 + (lane % 4) * 2 + k % 2])
            })
        })
    }
}
