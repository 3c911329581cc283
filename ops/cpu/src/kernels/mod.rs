// SPDX-License-Identifier: MIT OR Apache-2.0

//! The kernels: generic over the vectors of a level ([`simd`], [`dot`]), and those vectors for each level.
//!
//! An intrinsic becomes one instruction only where it ends up in the function that enables its features, so everything
//! between that function and the intrinsic is `#[inline(always)]`. A closure cannot be marked so: hot code has none around
//! vector operations, not even in `array::from_fn`.

pub(crate) mod bf16_panels;
pub(crate) mod bf16_tile;
pub(crate) mod dot;
pub(crate) mod f32_tile;
pub(crate) mod flash;
pub(crate) mod max_scores;
#[cfg(any(test, feature = "emulate"))]
mod model;
mod scalar;
pub(crate) mod simd;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

/// Cuts rows into groups of at most `most`, the rows of a micro-kernel: the first row and the number of each.
#[inline(always)]
fn groups(rows: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut row = 0;
    std::iter::from_fn(move || {
        let left = rows - row;
        // A rest of little more than one group is halved: two middling tiles are faster than a full and a tiny one.
        let count = if left > most && left < 2 * most { left.div_ceil(2) } else { left.min(most) };
        row += count;
        (count > 0).then_some((row - count, count))
    })
}

/// The rows of the group that starts at `row`, from input `k0` on; places beyond the last row repeat it.
#[inline(always)]
fn group<T>(rows: &[*const T], row: usize, k0: usize) -> [*const T; 6] {
    std::array::from_fn(|i| rows[(row + i).min(rows.len() - 1)].wrapping_add(k0))
}
