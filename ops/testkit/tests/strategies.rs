// SPDX-License-Identifier: MIT OR Apache-2.0

use half::bf16;
use op_testkit::strategies::{any_bf16, any_f32, expert_counts, finite_bf16, finite_f32, tile_edge_size};
use op_testkit::{fill_bf16, fill_f32};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// The same 600 values on every run.
fn sample<T>(strategy: impl Strategy<Value = T>) -> Vec<T> {
    let mut runner = TestRunner::deterministic();
    (0..600).map(|_| strategy.new_tree(&mut runner).expect("no rejections").current()).collect()
}

proptest! {
    #[test]
    fn counts_sum_to_the_total(
        (experts, total, counts) in (1usize..20, 0usize..300)
            .prop_flat_map(|(experts, total)| (Just(experts), Just(total), expert_counts(experts, total)))
    ) {
        prop_assert_eq!(counts.len(), experts);
        prop_assert_eq!(counts.iter().sum::<usize>(), total);
    }

    #[test]
    fn finite_values_stay_within_the_bound(
        (max, wide, narrow) in finite_f32(f32::MAX)
            .prop_map(|max| max.abs().max(f32::from_bits(1)))
            .prop_flat_map(|max| (Just(max), finite_f32(max), finite_bf16(max)))
    ) {
        prop_assert!(wide.abs() <= max);
        prop_assert!(narrow.to_f32().abs() <= max);
    }

    #[test]
    fn sizes_stay_in_their_range(size in tile_edge_size(5..=130), narrow in tile_edge_size(20..=22)) {
        prop_assert!((5..=130).contains(&size));
        prop_assert!((20..=22).contains(&narrow));
    }
}

#[test]
fn counts_are_of_every_kind() {
    let counts = sample(expert_counts(6, 100));
    assert!(counts.iter().any(|c| c.iter().filter(|&&n| n == 0).count() == 5), "one expert takes all");
    assert!(counts.contains(&vec![17, 17, 17, 17, 16, 16]), "as even as possible");
    let is_uneven = |c: &Vec<usize>| c.iter().filter(|&&n| n > 0).count() > 1 && c.iter().max() > Some(&17);
    assert!(counts.iter().any(|c| is_uneven(c) && c.contains(&0)), "some experts left out");
    assert!(counts.iter().any(|c| is_uneven(c) && !c.contains(&0)), "uneven, none left out");
    assert!(counts.iter().any(|c| c[0] == 0) && counts.iter().any(|c| c[5] == 0), "first or last expert empty");
}

#[test]
fn counts_of_nothing() {
    assert_eq!(sample(expert_counts(0, 0))[0], Vec::<usize>::new());
    assert!(sample(expert_counts(4, 0)).iter().all(|counts| *counts == [0, 0, 0, 0]));
}

#[test]
#[should_panic(expected = "tokens without experts")]
fn counts_without_experts_are_refused() {
    let _ = expert_counts(0, 1);
}

#[test]
fn any_value_is_of_every_kind() {
    let wide = sample(any_f32());
    let narrow: Vec<f32> = sample(any_bf16()).into_iter().map(bf16::to_f32).collect();
    for values in [wide, narrow] {
        for (kind, is_kind) in [
            ("zero", (|x| x == 0.0 && x.is_sign_positive()) as fn(f32) -> bool),
            ("negative zero", |x| x == 0.0 && x.is_sign_negative()),
            ("subnormal", f32::is_subnormal),
            ("large", |x| x.is_finite() && x.abs() > 1e34),
            ("infinity", |x| x == f32::INFINITY),
            ("negative infinity", |x| x == f32::NEG_INFINITY),
            ("NaN", f32::is_nan),
            ("ordinary", |x| (0.1..8.0).contains(&x.abs())),
        ] {
            assert!(values.iter().any(|&x| is_kind(x)), "no {kind}");
        }
    }
}

#[test]
fn finite_values_include_zeros_subnormals_and_the_bounds() {
    let wide = sample(finite_f32(3.0));
    let narrow: Vec<f32> = sample(finite_bf16(3.0)).into_iter().map(bf16::to_f32).collect();
    for values in [wide, narrow] {
        assert!(values.contains(&3.0) && values.contains(&-3.0), "the bounds");
        assert!(values.iter().any(|x| x.is_subnormal()), "subnormals");
        assert!(values.iter().any(|x| *x == 0.0 && x.is_sign_negative()), "negative zero");
        assert!(values.iter().all(|x| x.abs() <= 3.0), "nothing beyond the bounds");
    }
}

#[test]
#[should_panic(expected = "must be positive and finite, is inf")]
fn finite_values_need_a_finite_bound() {
    let _ = finite_f32(f32::INFINITY);
}

#[test]
fn sizes_prefer_tile_edges() {
    let sizes = sample(tile_edge_size(1..=130));
    let edges = [1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129];
    for edge in edges {
        assert!(sizes.contains(&edge), "no {edge}");
    }
    let others = sizes.iter().filter(|size| !edges.contains(size)).count();
    assert!((200..400).contains(&others), "{others} of 600 sizes are no edges");
}

/// Values of the recipe, computed apart from this crate: seed 1010, scale 1.7.
#[test]
fn fills_follow_the_recipe() {
    let bits: Vec<u32> = fill_f32(1010, 3, 1.7).into_iter().map(f32::to_bits).collect();
    assert_eq!(bits, [0xBF1B_07C7, 0x3F31_0A11, 0xBF4F_1EE5]);
    let bits: Vec<u16> = fill_bf16(1010, 3, 1.7).into_iter().map(bf16::to_bits).collect();
    assert_eq!(bits, [0xBF1B, 0x3F31, 0xBF4F]);
    for scale in [2.0, 1e-39, 3e38] {
        let wide = fill_f32(1, 100_000, scale);
        assert!(wide.iter().all(|x| x.abs() <= scale));
        let rounded: Vec<bf16> = wide.into_iter().map(bf16::from_f32).collect();
        assert_eq!(fill_bf16(1, 100_000, scale), rounded);
    }
}
