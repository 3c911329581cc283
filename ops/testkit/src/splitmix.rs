// SPDX-License-Identifier: MIT OR Apache-2.0

//! The "splitmix-u24" generator of the golden data.

use half::bf16;

/// The first `n` values of the sequence, in [-1, 1) before `scale` multiplies them in F32.
pub(crate) fn values(seed: u64, n: usize, scale: f32) -> impl Iterator<Item = f32> {
    (0..n as u64).map(move |i| {
        let mut z = seed.wrapping_add((i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        // 24 bits times 2^-23, minus 1: both steps are exact in F32. The detour over i32 is too,
        // and x86 converts only signed integers in vectors.
        ((z >> 40) as i32 as f32 * (1.0 / 8_388_608.0) - 1.0) * scale
    })
}

/// Rounds to nearest even like [`bf16::from_f32`] for everything but NaN, without a branch: one on
/// random bits would cost more than the generator.
pub(crate) fn round_to_bf16(value: f32) -> bf16 {
    let bits = value.to_bits();
    bf16::from_bits(((bits + 0x7FFF + (bits >> 16 & 1)) >> 16) as u16)
}

/// `n` reproducible F32 values in [-scale, scale]: the recipe "splitmix-u24" of the golden data.
pub fn fill_f32(seed: u64, n: usize, scale: f32) -> Vec<f32> {
    values(seed, n, scale).collect()
}

/// `n` reproducible BF16 values in [-scale, scale]: those of [`fill_f32`], rounded to nearest even.
pub fn fill_bf16(seed: u64, n: usize, scale: f32) -> Vec<bf16> {
    values(seed, n, scale).map(round_to_bf16).collect()
}
