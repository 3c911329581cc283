// SPDX-License-Identifier: MIT OR Apache-2.0

use half::bf16;
use op_testkit::compare::{Comparison, Element, Tolerance, UlpUnit, assert_close, assert_same_bits};

const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;

#[test]
fn worst_elements_have_their_multi_index() {
    let expected = [1.0, 2.0, 4.0, 8.0, 0.5, 100.0];
    let actual = [1.0, 2.0, 4.0, 8.0, 0.75, 101.0];
    let comparison = Comparison::new(&actual, &expected, &[3, 1, 2]);
    let absolute = Element { index: vec![2, 0, 1], actual: 101.0, expected: 100.0, error: 1.0 };
    let relative = Element { index: vec![2, 0, 0], actual: 0.75, expected: 0.5, error: 0.5 };
    assert_eq!(comparison.worst_abs, Some(absolute));
    assert_eq!(comparison.worst_rel, Some(relative));
    assert_eq!((comparison.mean_abs, comparison.max_expected), (1.25 / 6.0, 100.0));
}

#[test]
fn equal_tensors_have_no_worst_element() {
    for (values, shape) in [(&[0.0, -1.0, NAN, INF][..], &[2, 2][..]), (&[], &[0, 3]), (&[2.0], &[])] {
        let comparison = Comparison::new(values, values, shape);
        assert_eq!((&comparison.worst_abs, &comparison.worst_rel), (&None, &None));
        assert_eq!(comparison.check(Tolerance::EXACT), Ok(()));
    }
    assert_close("zeros of either sign", &[0.0], &[-0.0], &[1], Tolerance::EXACT);
}

#[test]
fn each_part_of_the_tolerance_counts() {
    let expected = [0.0, 1.0, -10.0];
    let actual = [0.125, 1.125, -10.5];
    let beyond = |abs, rel, rel_to_max| {
        Comparison::new(&actual, &expected, &[3]).beyond(Tolerance { abs, rel, rel_to_max }).count
    };
    assert_eq!(beyond(0.0, 0.0, 0.0), 3);
    assert_eq!(beyond(0.125, 0.0, 0.0), 1);
    assert_eq!(beyond(0.5, 0.0, 0.0), 0);
    assert_eq!(beyond(0.0, 0.125, 0.0), 1, "the first element is expected to be zero");
    assert_eq!(beyond(0.0, 0.0, 0.0125), 1, "the maximum is 10");
    assert_eq!(beyond(0.0, 0.0, 0.05), 0);
    assert_eq!(beyond(0.0, 0.0375, 0.0125), 0, "0.375 + 0.125 at the last element");
    assert_eq!(beyond(f64::NAN, 1.0, 1.0), 3, "a tolerance that is no number admits nothing");
}

#[test]
fn the_worst_element_against_the_bound_need_not_be_the_worst_difference() {
    let comparison = Comparison::new(&[0.5, 104.0], &[0.25, 100.0], &[2]);
    let beyond = comparison.beyond(Tolerance { abs: 0.0, rel: 0.0625, rel_to_max: 0.0 });
    let worst = beyond.worst.unwrap();
    assert_eq!((beyond.count, &worst.index[..], worst.error), (1, &[0][..], 16.0));
}

#[test]
fn special_values_must_agree() {
    let any = Tolerance::abs(f64::INFINITY);
    for (actual, expected, nan, infinite) in [
        (NAN, NAN, 0, 0),
        (INF, INF, 0, 0),
        (-INF, -INF, 0, 0),
        (NAN, 1.0, 1, 0),
        (1.0, NAN, 1, 0),
        (INF, NAN, 1, 0),
        (INF, -INF, 0, 1),
        (INF, f32::MAX, 0, 1),
        (1.0, -INF, 0, 1),
    ] {
        let (actual, expected) = ([0.0, actual], [0.0, expected]);
        let comparison = Comparison::new(&actual, &expected, &[2]);
        assert_eq!((comparison.nan.count, comparison.infinite.count), (nan, infinite), "{actual:?} {expected:?}");
        assert_eq!(comparison.check(any).is_ok(), nan + infinite == 0, "{actual:?} {expected:?}");
        let first = comparison.nan.first.or(comparison.infinite.first);
        assert_eq!(first.map(|element| element.index), (nan + infinite > 0).then(|| vec![1]));
    }
    let comparison = Comparison::new(&[3.0, INF], &[2.0, INF], &[2]);
    assert_eq!((comparison.max_expected, comparison.mean_abs), (2.0, 1.0), "infinities take no part");
}

#[test]
fn differences_do_not_overflow() {
    let comparison = Comparison::new(&[f32::MAX], &[f32::MIN], &[1]);
    assert_eq!(comparison.worst_abs.unwrap().error, 2.0 * f64::from(f32::MAX));
}

#[test]
fn ulp_distances_step_through_the_format() {
    let next = |x: f32| f32::from_bits(x.to_bits() + 1);
    assert_eq!(UlpUnit::F32.distance(1.0, next(1.0)), 1);
    assert_eq!(UlpUnit::F32.distance(0.0, -0.0), 0);
    assert_eq!(UlpUnit::F32.distance(f32::from_bits(1), -f32::from_bits(2)), 3);
    assert_eq!(UlpUnit::F32.distance(f32::MAX, INF), 1);
    assert_eq!(UlpUnit::F32.distance(-INF, INF), 2 * 0x7F80_0000);
    assert_eq!(UlpUnit::Bf16.distance(1.0, next(1.0)), 0);
    assert_eq!(UlpUnit::Bf16.distance(1.0, 1.0078125), 1);
    assert_eq!(UlpUnit::Bf16.distance(1.0, 2.0), 128);
    assert_eq!(UlpUnit::Bf16.distance(-1.0, 1.0), 2 * 0x3F80);
}

#[test]
fn the_histogram_counts_powers_of_two() {
    let steps = [0u32, 0, 1, 2, 3, 4, 5, 8, 9, 1000];
    let actual: Vec<f32> = steps.iter().map(|step| f32::from_bits(1f32.to_bits() + step)).chain([NAN]).collect();
    let histogram = Comparison::new(&actual, &[1.0; 11], &[11]).ulps(UlpUnit::F32);
    let mut counts = [0; 34];
    counts[..6].copy_from_slice(&[2, 1, 1, 2, 2, 1]);
    counts[11] = 1;
    assert_eq!((histogram.counts, histogram.max), (counts, 1000));
    let text = "F32 ULP  0: 2  1: 1  2: 1  3-4: 2  5-8: 2  9-16: 1  513-1024: 1  (largest 1000)";
    assert_eq!(histogram.to_string(), text);
    let histogram = Comparison::new(&[-INF], &[INF], &[1]).ulps(UlpUnit::F32);
    assert_eq!((histogram.counts[33], histogram.max), (1, 0xFF00_0000));
}

#[test]
fn the_report_says_it_all() {
    let actual = [1.0, 2.5, NAN, -INF];
    let report = Comparison::new(&actual, &[1.0, 2.0, 3.0, INF], &[2, 2]).check(Tolerance::abs(0.25)).unwrap_err();
    let expected = "\
1 of 4 elements beyond 0.25 + 0 * |expected| + 0 * max |expected| (max |expected| 3e0)
  worst difference over bound 2.000e0 at [0, 1]: actual 2.5e0, expected 2e0
  shape [2, 2], mean absolute difference 2.500e-1
  worst absolute difference 5.000e-1 at [0, 1]: actual 2.5e0, expected 2e0
  worst relative difference 2.500e-1 at [0, 1]: actual 2.5e0, expected 2e0
  1 differ in NaN, first at [1, 0]: actual NaN, expected 3
  1 differ in infinity, first at [1, 1]: actual -inf, expected inf
  BF16 ULP  0: 1  17-32: 1  32769-65536: 1  (largest 65280)";
    assert_eq!(report, expected);
    let report = Comparison::new(&[0.1], &[0.3], &[1]).to_string();
    assert!(report.contains("F32 ULP"), "0.1 is no BF16 value: {report}");
}

#[test]
#[should_panic(expected = "the output: 1 of 2 elements beyond 0.1")]
fn a_comparison_that_should_fail_does() {
    assert_close("the output", &[1.0, 2.0], &[1.0, 2.2], &[2], Tolerance::abs(0.1));
}

#[test]
#[should_panic(expected = "length of `actual` and elements of the shape [2, 2]")]
fn a_wrong_length_is_refused() {
    let _ = Comparison::new(&[1.0; 3], &[1.0; 4], &[2, 2]);
}

#[test]
fn bits_are_compared_as_bits() {
    assert_same_bits("NaN with its payload", &[NAN, -0.0], &[NAN, -0.0], &[1, 2]);
    assert_same_bits("nothing", &[0i32; 0], &[], &[0]);
}

#[test]
#[should_panic(expected = "out: 2 of 4 elements differ in their bits, first at [0, 1]: actual 0.0, expected -0.0")]
fn zeros_of_different_sign_differ_in_bits() {
    let zero = bf16::ZERO;
    assert_same_bits("out", &[zero; 4], &[zero, bf16::NEG_ZERO, zero, bf16::NAN], &[2, 2]);
}
