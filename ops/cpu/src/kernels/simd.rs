// SPDX-License-Identifier: MIT OR Apache-2.0

//! The vector operations that the F32 kernels are written in, and how a kernel reaches the level it was asked for.

use crate::level::{Isa, Level};

/// F32 vectors of one SIMD level. A value of an implementing type exists only where the CPU has the level's features
/// (see [`dispatch`]); that is what makes the methods' intrinsics sound.
///
/// All methods are inlined into the `#[target_feature]` function that [`dispatch`] enters; a kernel must be
/// `#[inline(always)]` all the way down.
pub(crate) trait Simd: Copy {
    /// F32 lanes of a vector.
    const LANES: usize;
    /// Vectors per row that the widest tile (six rows) keeps in registers.
    const WIDE: usize;
    /// A vector.
    type V: Copy;

    fn splat(self, x: f32) -> Self::V;
    /// # Safety
    /// `p` is readable for `LANES` values.
    unsafe fn load(self, p: *const f32) -> Self::V;
    /// # Safety
    /// `p` is writable for `LANES` values.
    unsafe fn store(self, p: *mut f32, v: Self::V);
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, fused where the level can.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `a > b ? a : b` per lane: `b` where either is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a < b ? a : b` per lane: `b` where either is NaN.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// The larger per lane; NaN where either is NaN.
    fn max_or_nan(self, a: Self::V, b: Self::V) -> Self::V;
    /// Nearest integer, ties to even.
    fn round(self, a: Self::V) -> Self::V;
    /// `a * 2^n`, rounded once, for integers `-252 <= n <= 254`; NaN where `a` is NaN, whatever `n` is.
    fn scale2(self, a: Self::V, n: Self::V) -> Self::V;
    /// Asks for the cache line at `p`, which need not be readable.
    #[inline(always)]
    fn prefetch<T>(self, _p: *const T) {}
    /// The sum of the lanes, in an order that depends on the level only.
    fn reduce_add(self, v: Self::V) -> f32;
    /// The largest lane; unspecified where one is NaN.
    fn reduce_max(self, v: Self::V) -> f32;
    /// `LANES` BF16 values, widened.
    /// # Safety
    /// `p` is readable for `LANES` values.
    unsafe fn load_bf16(self, p: *const u16) -> Self::V;
    /// Rounds to BF16, to nearest even, NaN stays NaN.
    /// # Safety
    /// `p` is writable for `LANES` values.
    unsafe fn store_bf16(self, p: *mut u16, v: Self::V);
    /// [`Simd::store_bf16`] for numbers; a NaN may become infinity.
    /// # Safety
    /// `p` is writable for `LANES` values.
    unsafe fn store_bf16_numbers(self, p: *mut u16, v: Self::V);
    /// `LANES` E4M3 codes, times 2^-120. NaN codes come out as 480 * 2^-120.
    /// # Safety
    /// `p` is readable for `LANES` codes.
    unsafe fn load_codes(self, p: *const u8) -> Self::V;
    /// `LANES` pairs of BF16 values: the first of each pair, and the second of each.
    /// # Safety
    /// `p` is readable for `2 * LANES` values.
    unsafe fn load_pairs(self, p: *const u16) -> [Self::V; 2];
    /// `LANES` quads of E4M3 codes in packed order ([`crate::weights`]): one vector for each of the four values along
    /// K, times 2^-120. NaN codes come out as 480 * 2^-120.
    /// # Safety
    /// `p` is readable for `4 * LANES` codes.
    unsafe fn load_quads(self, p: *const u8) -> [Self::V; 4];
}

/// A computation that is generic over the level.
pub(crate) trait Kernel {
    type Output;
    /// Must be `#[inline(always)]`.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}

/// Runs a kernel on `level`.
#[inline]
pub(crate) fn dispatch<K: Kernel>(level: Level, kernel: K) -> K::Output {
    #[cfg(any(test, feature = "emulate"))]
    if level.is_emulated() {
        return kernel.run(super::model::Avx512::new());
    }
    match level.isa() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a `Level` of this ISA exists only where its features were detected.
        Isa::Avx2 => unsafe { super::x86::with_avx2(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx512 | Isa::Avx512Bf16 => unsafe { super::x86::with_avx512(kernel) },
        _ => kernel.run(super::scalar::Scalar),
    }
}
