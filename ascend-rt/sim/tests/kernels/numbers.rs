// SPDX-License-Identifier: MIT OR Apache-2.0

//! Numbers to multiply: few bits each, so that sums of products are exact in F32 in every order.

/// To the nearest BF16, ties to even.
pub(crate) fn bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// The value of a BF16.
pub(crate) fn value(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// `count` multiples of 1/8 from -2 to 2.
pub(crate) fn eighths(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..count).map(|_| (next() % 33) as f32 / 8.0 - 2.0).collect()
}

/// The same as BF16, which holds them exactly.
pub(crate) fn bf16s(values: &[f32]) -> Vec<u16> {
    values.iter().map(|&v| bf16(v)).collect()
}

/// Row-major `a[m, k] b[k, n]`.
pub(crate) fn product(a: &[f32], b: &[f32], m: usize, n: usize, k: usize) -> Vec<f32> {
    let mut c = vec![0.0f32; m * n];
    for (row, out) in a.chunks_exact(k).zip(c.chunks_exact_mut(n)) {
        for (x, right) in row.iter().zip(b.chunks_exact(n)) {
            for (sum, y) in out.iter_mut().zip(right) {
                *sum += x * y;
            }
        }
    }
    c
}
