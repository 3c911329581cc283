// SPDX-License-Identifier: MIT OR Apache-2.0

//! The AVX2 level, and the entries into code compiled for each x86 level.

use super::simd::{Kernel, Simd};
use core::arch::x86_64::*;

pub(super) mod avx512 {
    //! The AVX-512 levels on the CPU's own instructions.
    pub(in crate::kernels) mod arch {
        pub(in crate::kernels) use core::arch::x86_64::*;

        /// The register as BF16 pairs. The one transmutation of the crate: between vector types of one size.
        #[allow(clippy::disallowed_methods, reason = "no intrinsic converts __m512i to __m512bh")]
        #[inline(always)]
        pub(in crate::kernels) fn as_bf16(v: __m512i) -> __m512bh {
            // SAFETY: both are 64-byte SIMD registers without invalid bit patterns.
            unsafe { core::mem::transmute(v) }
        }
    }
    include!("avx512_ops.rs");
}

/// AVX2 and FMA.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

/// Runs `kernel` compiled for AVX2 and FMA.
///
/// # Safety
/// The CPU has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
pub(crate) unsafe fn with_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2(()))
}

/// Runs `kernel` compiled for AVX-512 F, BW, VL and DQ.
///
/// # Safety
/// The CPU has AVX2, FMA and AVX-512 F, BW, VL and DQ.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq")]
pub(crate) unsafe fn with_avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(avx512::Avx512::new())
}

/// Runs `kernel` compiled for AVX-512 with VBMI and BF16.
///
/// # Safety
/// The CPU has AVX2, FMA and AVX-512 F, BW, VL, DQ, VBMI and BF16.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512bf16")]
pub(crate) unsafe fn with_avx512_bf16<K: super::dot::DotKernel>(kernel: K) -> K::Output {
    kernel.run(avx512::Avx512Bf16::new())
}

impl Simd for Avx2 {
    const LANES: usize = 8;
    const WIDE: usize = 2;
    type V = __m256;

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        // SAFETY: `Avx2` exists only inside `with_avx2`; the same holds for every intrinsic below.
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: __m256) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_ps(p, v) }
    }
    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: AVX2 is there.
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: AVX2 is there.
        unsafe { _mm256_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: AVX2 is there.
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: AVX2 is there.
        unsafe { _mm256_div_ps(a, b) }
    }
    #[inline(always)]
    fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: FMA is there.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: AVX2 is there.
        unsafe { _mm256_max_ps(a, b) }
    }
    #[inline(always)]
    fn min(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: AVX2 is there.
        unsafe { _mm256_min_ps(a, b) }
    }
    #[inline(always)]
    fn max_or_nan(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: AVX2 is there.
        unsafe {
            // The instruction gives `b` where either is NaN.
            _mm256_blendv_ps(_mm256_max_ps(a, b), a, _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a))
        }
    }
    #[inline(always)]
    fn round(self, a: __m256) -> __m256 {
        // SAFETY: AVX2 is there.
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    fn scale2(self, a: __m256, n: __m256) -> __m256 {
        // Two factors, since 2^n itself leaves F32's range at both ends; the first product is exact but at the ends.
        // SAFETY: AVX2 is there.
        unsafe {
            let half = self.round(_mm256_mul_ps(n, _mm256_set1_ps(0.5)));
            _mm256_mul_ps(_mm256_mul_ps(a, pow2(half)), pow2(_mm256_sub_ps(n, half)))
        }
    }
    #[inline(always)]
    fn prefetch<T>(self, p: *const T) {
        // SAFETY: a prefetch of any address is sound.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
    #[inline(always)]
    fn reduce_add(self, v: __m256) -> f32 {
        // SAFETY: AVX2 is there.
        unsafe {
            let four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }
    #[inline(always)]
    fn reduce_max(self, v: __m256) -> f32 {
        // SAFETY: AVX2 is there.
        unsafe {
            let four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe {
            let words = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words))
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(self, p: *mut u16, v: __m256) {
        // SAFETY: the caller's promise for the store; AVX2 is there.
        unsafe {
            // A NaN keeps its upper bits and gets the quiet one, so that rounding cannot turn it into infinity.
            let nan = _mm256_or_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x0040_0000));
            let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(v, v));
            store_upper_words(p, _mm256_blendv_epi8(rounded_to_upper_words(v), nan, is_nan));
        }
    }
    #[inline(always)]
    unsafe fn store_bf16_numbers(self, p: *mut u16, v: __m256) {
        // SAFETY: the caller's promise for the store; AVX2 is there.
        unsafe { store_upper_words(p, rounded_to_upper_words(v)) }
    }
    #[inline(always)]
    unsafe fn load_codes(self, p: *const u8) -> __m256 {
        // SAFETY: the caller's promise; AVX2 is there.
        unsafe {
            // Sign-extended, so that the shift leaves the sign in the top bit; the mask clears its copies.
            let wide = _mm256_slli_epi32::<20>(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast())));
            _mm256_castsi256_ps(_mm256_and_si256(wide, _mm256_set1_epi32(0x87F0_0000_u32 as i32)))
        }
    }
    #[inline(always)]
    unsafe fn load_pairs(self, p: *const u16) -> [__m256; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let pairs = _mm256_loadu_si256(p.cast());
            [
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs)),
                _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(0xFFFF_0000_u32 as i32))),
            ]
        }
    }
    #[inline(always)]
    unsafe fn load_quads(self, p: *const u8) -> [__m256; 4] {
        // SAFETY: the caller's promise; AVX2 is there.
        unsafe {
            let codes = _mm256_loadu_si256(p.cast());
            // The code is moved to the top byte of its output's lane; an arithmetic shift by 4 puts exponent and mantissa
            // where F32 has them and smears the sign over the exponent's upper bits, which the mask clears.
            let mask = _mm256_set1_epi32(0x87F0_0000_u32 as i32);
            let value = |index: __m256i| {
                let top = _mm256_shuffle_epi8(codes, index);
                _mm256_castsi256_ps(_mm256_and_si256(_mm256_srai_epi32::<4>(top), mask))
            };
            let lane = |first: i8| {
                let byte = |output: i8| (i32::from(first + 2 * output) << 24) | 0x0080_8080;
                let quarter = _mm_setr_epi32(byte(0), byte(1), byte(2), byte(3));
                _mm256_broadcastsi128_si256(quarter)
            };
            [value(lane(0)), value(lane(1)), value(lane(8)), value(lane(9))]
        }
    }
}

/// 2^n for integers `-126 <= n <= 127`; any finite garbage for NaN.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
unsafe fn pow2(n: __m256) -> __m256 {
    // SAFETY: AVX2 is there by the caller's promise.
    unsafe {
        let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
        _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent))
    }
}

/// The bits of `v` with the upper word rounded to nearest even; the lower words are left over.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
unsafe fn rounded_to_upper_words(v: __m256) -> __m256i {
    // SAFETY: AVX2 is there by the caller's promise.
    unsafe {
        let bits = _mm256_castps_si256(v);
        let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)))
    }
}

/// # Safety
/// The CPU has AVX2, and `p` is writable for 8 values.
#[inline(always)]
unsafe fn store_upper_words(p: *mut u16, v: __m256i) {
    // SAFETY: the caller's promises.
    unsafe {
        let words = _mm256_srli_epi32::<16>(v);
        let packed = _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
        _mm_storeu_si128(p.cast(), packed);
    }
}

/// Transposes 8 rows of 8 words: word `c` of `rows[r]` becomes word `r` of result `c`.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
pub(crate) unsafe fn transpose8(rows: [__m256i; 8]) -> [__m256i; 8] {
    // SAFETY: AVX2 is there by the caller's promise.
    unsafe {
        let lo: [_; 4] = std::array::from_fn(|i| _mm256_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]));
        let hi: [_; 4] = std::array::from_fn(|i| _mm256_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]));
        // Four rows at a time: quad[half][c] holds words c (low lane) and c + 4 (high lane) of rows 4 * half ..
        let quad: [[_; 4]; 2] = std::array::from_fn(|half| {
            let (a, b) = (2 * half, 2 * half + 1);
            [
                _mm256_unpacklo_epi64(lo[a], lo[b]),
                _mm256_unpackhi_epi64(lo[a], lo[b]),
                _mm256_unpacklo_epi64(hi[a], hi[b]),
                _mm256_unpackhi_epi64(hi[a], hi[b]),
            ]
        });
        std::array::from_fn(|c| {
            if c < 4 {
                _mm256_permute2x128_si256::<0x20>(quad[0][c], quad[1][c])
            } else {
                _mm256_permute2x128_si256::<0x31>(quad[0][c - 4], quad[1][c - 4])
            }
        })
    }
}

/// Brings the bytes of four outputs, four along K each, into packed order in each 128-bit lane.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
pub(crate) unsafe fn quad_order(v: __m256i) -> __m256i {
    // SAFETY: AVX2 is there by the caller's promise.
    unsafe {
        let order = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
        _mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(order))
    }
}
