// SPDX-License-Identifier: MIT OR Apache-2.0

// The AVX-512 levels, compiled twice: against the intrinsics (`x86.rs`) and against the software model (`model.rs`).
// Every statement below therefore runs in the tests of any machine.

use self::arch::*;
use crate::kernels::dot::{Dot, LUT_HIGH, LUT_LOW};
use crate::kernels::simd::Simd;

/// AVX-512 F, BW, VL and DQ, in F32 arithmetic.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// Only for the functions that enter code compiled for the level.
    pub(in crate::kernels) fn new() -> Self {
        Self(())
    }
}

impl Simd for Avx512 {
    const LANES: usize = 16;
    const WIDE: usize = 4;
    type V = __m512;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: `Avx512` exists only where its features do; the same holds for every intrinsic below.
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: __m512) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_ps(p, v) }
    }
    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: AVX-512 is there.
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: AVX-512 is there.
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: AVX-512 is there.
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: AVX-512 is there.
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: AVX-512 is there.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: AVX-512 is there.
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: AVX-512 is there.
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    fn max_or_nan(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: AVX-512 is there.
        unsafe { max_or_nan(a, b) }
    }
    #[inline(always)]
    fn round(self, a: __m512) -> __m512 {
        // SAFETY: AVX-512 is there.
        unsafe { _mm512_roundscale_ps::<8>(a) }
    }
    #[inline(always)]
    fn scale2(self, a: __m512, n: __m512) -> __m512 {
        // SAFETY: AVX-512 is there.
        unsafe { _mm512_scalef_ps(a, n) }
    }
    #[inline(always)]
    fn reduce_add(self, v: __m512) -> f32 {
        // SAFETY: AVX-512 is there.
        unsafe { _mm512_reduce_add_ps(v) }
    }
    #[inline(always)]
    fn reduce_max(self, v: __m512) -> f32 {
        // SAFETY: AVX-512 is there.
        unsafe { _mm512_reduce_max_ps(v) }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe {
            let words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words))
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(self, p: *mut u16, v: __m512) {
        // SAFETY: the caller's promise for the store; AVX-512 is there.
        unsafe {
            // A NaN keeps its upper bits and gets the quiet one, so that rounding cannot turn it into infinity.
            let nan = _mm512_or_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x0040_0000));
            let words = _mm512_mask_mov_epi32(rounded_to_upper_words(v), _mm512_cmp_ps_mask::<3>(v, v), nan);
            _mm256_storeu_si256(p.cast(), _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(words)));
        }
    }
    #[inline(always)]
    unsafe fn store_bf16_numbers(self, p: *mut u16, v: __m512) {
        // SAFETY: the caller's promise for the store; AVX-512 is there.
        unsafe {
            let words = rounded_to_upper_words(v);
            _mm256_storeu_si256(p.cast(), _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(words)));
        }
    }
    #[inline(always)]
    unsafe fn load_codes(self, p: *const u8) -> __m512 {
        // SAFETY: the caller's promise; AVX-512 is there.
        unsafe {
            // Sign-extended, so that the shift leaves the sign in the top bit; the mask clears its copies.
            let wide = _mm512_slli_epi32::<20>(_mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast())));
            _mm512_castsi512_ps(_mm512_and_si512(wide, _mm512_set1_epi32(0x87F0_0000_u32 as i32)))
        }
    }
    #[inline(always)]
    unsafe fn load_pairs(self, p: *const u16) -> [__m512; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let pairs = _mm512_loadu_si512(p.cast());
            [
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs)),
                _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(0xFFFF_0000_u32 as i32))),
            ]
        }
    }
    #[inline(always)]
    unsafe fn load_quads(self, p: *const u8) -> [__m512; 4] {
        // SAFETY: the caller's promise; AVX-512 is there.
        unsafe {
            let codes = _mm512_loadu_si512(p.cast());
            // As on AVX2: the code to the top byte of its output's lane, an arithmetic shift by 4, a mask.
            let mask = _mm512_set1_epi32(0x87F0_0000_u32 as i32);
            let value = |first: i8| {
                let byte = |output: i8| (i32::from(first + 2 * output) << 24) | 0x0080_8080;
                let index = _mm512_broadcast_i32x4(_mm_setr_epi32(byte(0), byte(1), byte(2), byte(3)));
                let top = _mm512_shuffle_epi8(codes, index);
                _mm512_castsi512_ps(_mm512_and_si512(_mm512_srai_epi32::<4>(top), mask))
            };
            [value(0), value(1), value(8), value(9)]
        }
    }
}

/// The larger per lane; NaN where either is NaN.
///
/// # Safety
/// The CPU has AVX-512 F.
#[inline(always)]
unsafe fn max_or_nan(a: __m512, b: __m512) -> __m512 {
    // SAFETY: AVX-512 is there by the caller's promise.
    unsafe {
        // The instruction gives `b` where either is NaN.
        let larger = _mm512_castps_si512(_mm512_max_ps(a, b));
        let a_is_nan = _mm512_cmp_ps_mask::<3>(a, a);
        _mm512_castsi512_ps(_mm512_mask_mov_epi32(larger, a_is_nan, _mm512_castps_si512(a)))
    }
}

/// The bits of `v` with the upper word rounded to nearest even; the lower words are left over.
///
/// # Safety
/// The CPU has AVX-512 F.
#[inline(always)]
unsafe fn rounded_to_upper_words(v: __m512) -> __m512i {
    // SAFETY: AVX-512 is there by the caller's promise.
    unsafe {
        let bits = _mm512_castps_si512(v);
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)))
    }
}

/// [`Avx512`] with VBMI and BF16.
#[derive(Clone, Copy)]
pub(crate) struct Avx512Bf16(());

impl Avx512Bf16 {
    /// Only for the functions that enter code compiled for the level.
    pub(in crate::kernels) fn new() -> Self {
        Self(())
    }
}

/// The tables of the E4M3 decoder, in registers.
#[derive(Clone, Copy)]
pub(crate) struct Tables {
    high: [__m512i; 2],
    low: [__m512i; 2],
    sign: __m512i,
}

impl Dot for Avx512Bf16 {
    type F = __m512;
    type I = __m512i;
    type Tables = Tables;

    #[inline(always)]
    fn zero(self) -> __m512 {
        // SAFETY: `Avx512Bf16` exists only where its features do; the same holds for every intrinsic below.
        unsafe { _mm512_set1_ps(0.0) }
    }
    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: AVX-512 is there.
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load_f32(self, p: *const f32) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store_f32(self, p: *mut f32, v: __m512) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_ps(p, v) }
    }
    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: AVX-512 is there.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn max_or_nan(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: AVX-512 is there.
        unsafe { max_or_nan(a, b) }
    }
    #[inline(always)]
    unsafe fn load(self, p: *const u8) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { _mm512_loadu_si512(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut u8, v: __m512i) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_si512(p.cast(), v) }
    }
    #[inline(always)]
    unsafe fn broadcast_pair(self, p: *const u16) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { _mm512_set1_epi32(p.cast::<i32>().read_unaligned()) }
    }
    #[inline(always)]
    fn dot(self, sum: __m512, weights: __m512i, pair: __m512i) -> __m512 {
        // SAFETY: AVX-512 BF16 is there.
        unsafe { _mm512_dpbf16_ps(sum, as_bf16(weights), as_bf16(pair)) }
    }
    #[inline(always)]
    fn tables(self) -> Tables {
        // SAFETY: each half table is 64 bytes long; AVX-512 is there.
        unsafe {
            let half = |table: &'static [u8; 128], at: usize| _mm512_loadu_si512(table.as_ptr().add(at).cast());
            Tables {
                high: [half(&LUT_HIGH, 0), half(&LUT_HIGH, 64)],
                low: [half(&LUT_LOW, 0), half(&LUT_LOW, 64)],
                sign: _mm512_set1_epi8(0x80_u8 as i8),
            }
        }
    }
    #[inline(always)]
    fn decode(self, tables: Tables, codes: __m512i) -> [__m512i; 2] {
        // SAFETY: AVX-512 VBMI is there.
        unsafe {
            // The lookups use the lower seven bits of each code; 0xF8 is a | (b & c).
            let high = _mm512_permutex2var_epi8(tables.high[0], codes, tables.high[1]);
            let low = _mm512_permutex2var_epi8(tables.low[0], codes, tables.low[1]);
            let high = _mm512_ternarylogic_epi32::<0xF8>(high, codes, tables.sign);
            [_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)]
        }
    }
    #[inline(always)]
    unsafe fn exponents(self, scales: *const u8) -> __m512i {
        // SAFETY: the caller's promise; AVX-512 is there.
        unsafe {
            let codes = _mm512_cvtepu8_epi32(_mm_loadu_si128(scales.cast()));
            let shift = _mm512_slli_epi32::<7>(_mm512_sub_epi32(codes, _mm512_set1_epi32(127)));
            let low = _mm512_and_si512(shift, _mm512_set1_epi32(0xFFFF));
            _mm512_or_si512(_mm512_slli_epi32::<16>(shift), low)
        }
    }
    #[inline(always)]
    fn scale_exponents(self, values: __m512i, exponents: __m512i) -> __m512i {
        // SAFETY: AVX-512 BW is there.
        unsafe {
            let nonzero = _mm512_test_epi16_mask(values, _mm512_set1_epi16(0x7FFF));
            _mm512_mask_add_epi16(values, nonzero, values, exponents)
        }
    }
}
