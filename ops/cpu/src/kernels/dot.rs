// SPDX-License-Identifier: MIT OR Apache-2.0

//! The operations of the BF16 dot-product kernels (`vdpbf16ps`), which compute in BF16 pairs along K.
//!
//! `vdpbf16ps` reads and writes subnormals as zero. BF16 subnormals are below 1.2e-38, far under any weight or
//! activation of a model; E4M3 subnormals are normal numbers in BF16 and lose nothing.

use crate::level::Level;

/// A 512-bit level with BF16 dot products. As for [`super::simd::Simd`], a value proves the CPU's features, and all code
/// is inlined into the entry function.
pub(crate) trait Dot: Copy {
    /// 16 F32 sums.
    type F: Copy;
    /// 64 bytes: 16 pairs of BF16, or 64 codes.
    type I: Copy;
    /// The E4M3 decoder's tables.
    type Tables: Copy;

    fn zero(self) -> Self::F;
    fn splat(self, x: f32) -> Self::F;
    /// # Safety
    /// `p` is readable for 16 values.
    unsafe fn load_f32(self, p: *const f32) -> Self::F;
    /// # Safety
    /// `p` is writable for 16 values.
    unsafe fn store_f32(self, p: *mut f32, v: Self::F);
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The larger per lane; NaN where either is NaN.
    fn max_or_nan(self, a: Self::F, b: Self::F) -> Self::F;
    /// # Safety
    /// `p` is readable for 64 bytes.
    unsafe fn load(self, p: *const u8) -> Self::I;
    /// # Safety
    /// `p` is writable for 64 bytes.
    unsafe fn store(self, p: *mut u8, v: Self::I);
    /// Asks for the line at `p`, which may be any address, to be brought near.
    fn prefetch(self, p: *const u8);
    /// Two activations along K, in every lane.
    /// # Safety
    /// `p` is readable for 2 values.
    unsafe fn broadcast_pair(self, p: *const u16) -> Self::I;
    /// `sum += weights[2i] * pair[0] + weights[2i + 1] * pair[1]` in lane `i`.
    fn dot(self, sum: Self::F, weights: Self::I, pair: Self::I) -> Self::F;
    fn tables(self) -> Self::Tables;
    /// 64 E4M3 codes in packed order: the K pairs of 16 outputs, exactly, first and second pair. NaN codes are NaN.
    fn decode(self, tables: Self::Tables, codes: Self::I) -> [Self::I; 2];
    /// `2^(a - b)` for the E8M0 scales `a` and `b` of 16 outputs, which are less than 127 apart.
    /// # Safety
    /// `a` and `b` are readable for 16 bytes.
    unsafe fn ratios(self, a: *const u8, b: *const u8) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// What [`Dot::scale_exponents`] adds for the E8M0 scales of 16 outputs.
    /// # Safety
    /// `scales` is readable for 16 bytes.
    unsafe fn exponents(self, scales: *const u8) -> Self::I;
    /// Multiplies BF16 pairs by powers of two in their exponent fields; zeros stay zero. Exact where the result is a
    /// normal BF16 number, which the caller has to know.
    fn scale_exponents(self, values: Self::I, exponents: Self::I) -> Self::I;
}

/// A computation on BF16 dot products.
pub(crate) trait DotKernel {
    type Output;
    /// Must be `#[inline(always)]`.
    fn run<D: Dot>(self, d: D) -> Self::Output;
}

/// Runs a kernel on `level`, which has BF16 dot products (`Level::has_bf16_dot`).
#[inline]
pub(crate) fn dispatch_dot<K: DotKernel>(level: Level, kernel: K) -> K::Output {
    assert!(level.has_bf16_dot(), "level {level} has no BF16 dot products");
    #[cfg(any(test, feature = "emulate"))]
    if level.is_emulated() {
        return kernel.run(super::model::Avx512Bf16::new());
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a `Level` with BF16 dot products exists only where AVX-512 with VBMI and BF16 was detected.
    return unsafe { super::x86::with_avx512_bf16(kernel) };
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("no level of this architecture has BF16 dot products");
}

const fn lut(shift: u32) -> [u8; 128] {
    let mut out = [0; 128];
    let mut code = 0;
    while code < 128 {
        out[code] = (crate::formats::E4M3_VALUES[code].to_bits() >> shift) as u8;
        code += 1;
    }
    out
}

/// Upper byte of the BF16 value of each E4M3 magnitude.
pub(crate) static LUT_HIGH: [u8; 128] = lut(24);
/// Lower byte of the BF16 value of each E4M3 magnitude.
pub(crate) static LUT_LOW: [u8; 128] = lut(16);
