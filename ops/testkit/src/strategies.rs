// SPDX-License-Identifier: MIT OR Apache-2.0

//! Proptest strategies for what operators get wrong: token counts per expert, special values, sizes
//! next to tile edges.

use std::ops::RangeInclusive;

use half::bf16;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

/// Token counts of `experts` experts that sum to `total`: all to one expert, as even as possible,
/// or random with any number of experts left out.
///
/// # Panics
/// If there are tokens but no experts.
pub fn expert_counts(experts: usize, total: usize) -> BoxedStrategy<Vec<usize>> {
    if experts == 0 {
        assert_eq!(total, 0, "tokens without experts");
        return Just(Vec::new()).boxed();
    }
    let spread = move |chosen: &[usize], counts: &[usize]| {
        let mut all = vec![0; experts];
        for (&expert, &count) in chosen.iter().zip(counts) {
            all[expert] = count;
        }
        all
    };
    let one_takes_all = (0..experts).prop_map(move |expert| spread(&[expert], &[total]));
    let even = (0..experts).map(|expert| total / experts + usize::from(expert < total % experts)).collect();
    let random = subsequence((0..experts).collect::<Vec<_>>(), 1..=experts)
        .prop_flat_map(move |chosen| {
            let cuts = vec(0..=total, chosen.len() - 1);
            (Just(chosen), cuts)
        })
        .prop_map(move |(chosen, mut cuts)| {
            cuts.extend([0, total]);
            cuts.sort_unstable();
            let counts: Vec<usize> = cuts.windows(2).map(|pair| pair[1] - pair[0]).collect();
            spread(&chosen, &counts)
        });
    prop_oneof![1 => one_takes_all, 1 => Just(even), 3 => random].boxed()
}

/// Sizes within `range`, half of them one of those next to a usual tile edge: 1, and 16, 32, 64,
/// 128, 256 with both neighbours.
pub fn tile_edge_size(range: RangeInclusive<usize>) -> BoxedStrategy<usize> {
    let edges = [16, 32, 64, 128, 256].into_iter().flat_map(|tile| [tile - 1, tile, tile + 1]);
    let edges: Vec<usize> = std::iter::once(1).chain(edges).filter(|size| range.contains(size)).collect();
    if edges.is_empty() { range.boxed() } else { prop_oneof![range, select(edges)].boxed() }
}

fn signed(magnitude_bits: impl Strategy<Value = u32>) -> impl Strategy<Value = f32> {
    (magnitude_bits, any::<bool>()).prop_map(|(bits, negative)| f32::from_bits(bits | u32::from(negative) << 31))
}

/// F32 values: mostly of ordinary size, and zeros, subnormals, the largest binades, infinities,
/// NaNs with any payload, and arbitrary bits.
pub fn any_f32() -> impl Strategy<Value = f32> {
    prop_oneof![
        8 => -8.0f32..8.0,
        2 => signed(Just(0)),
        1 => signed(1u32..0x0080_0000),
        1 => signed(0x7800_0000u32..0x7F80_0000),
        1 => signed(Just(0x7F80_0000)),
        1 => signed(0x7F80_0001u32..=0x7FFF_FFFF),
        2 => any::<u32>().prop_map(f32::from_bits),
    ]
}

/// Finite F32 values of magnitude at most `max`: uniform, of any exponent, zeros, subnormals, and
/// the bounds.
///
/// # Panics
/// If `max` is not positive and finite.
pub fn finite_f32(max: f32) -> impl Strategy<Value = f32> {
    assert!(max > 0.0 && max.is_finite(), "the largest magnitude must be positive and finite, is {max}");
    let top = max.to_bits();
    prop_oneof![
        8 => (-1.0f32..=1.0).prop_map(move |unit| unit * max),
        3 => signed(0..=top),
        2 => signed(Just(0)),
        1 => signed(0..=top.min(0x007F_FFFF)),
        1 => signed(Just(top)),
    ]
}

/// Drops the lower half of the bits, which never enlarges a magnitude.
fn truncate(value: f32) -> bf16 {
    bf16::from_bits((value.to_bits() >> 16) as u16)
}

/// BF16 values of the kinds of [`any_f32`].
pub fn any_bf16() -> impl Strategy<Value = bf16> {
    any_f32().prop_map(truncate)
}

/// Finite BF16 values of the kinds of [`finite_f32`].
///
/// # Panics
/// If `max` is not positive and finite.
pub fn finite_bf16(max: f32) -> impl Strategy<Value = bf16> {
    finite_f32(max).prop_map(truncate)
}
