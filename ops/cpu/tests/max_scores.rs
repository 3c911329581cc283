// SPDX-License-Identifier: MIT OR Apache-2.0

//! Largest products of rows with the keys of a block, against plain sums.

use crate::support::{Owned, levels};
use cpu_tiles::weights::packed_index;
use cpu_tiles::{Acts, Format, Level, PANEL, PackedRef, PackedWeight, Pool, Precision, Weight, max_scores};
use half::bf16;
use op_testkit::fill_f32;
use proptest::prelude::*;

const FORMATS: [Format; 2] = [Format::F32, Format::Bf16];

fn acts(level: Level, precision: Precision, m: usize, k: usize, x: &[f32]) -> Acts {
    Acts::from_f32(level, &Pool::new(1).unwrap(), precision, m, k, x).unwrap()
}

/// Numbers of visible keys around the edges of panels, the whole block first.
fn visible(m: usize, n: usize) -> Vec<usize> {
    let edges = [n, 1, 0, 63, 64, 65, 127, n / 2, n.saturating_sub(1)];
    (0..m).map(|row| edges[row % edges.len()].min(n)).collect()
}

fn run(acts: &Acts, keys: Weight<'_>, visible: &[usize]) -> Vec<f32> {
    let mut out = vec![7.0; visible.len()];
    max_scores(acts, 0..visible.len(), &[keys], visible, &mut out).unwrap();
    out
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// The definition, in the documented order, one operation at a time.
fn plain(acts: &Acts, keys: Weight<'_>, visible: &[usize]) -> Vec<f32> {
    let Weight::RowMajor(keys) = keys else { unreachable!("asked for row-major keys") };
    let multiply_add = |a: f32, b: f32, c: f32| if acts.level() == Level::SCALAR { a * b + c } else { a.mul_add(b, c) };
    let product =
        |row, key, k, sum| if k < acts.k() { multiply_add(acts.get(row, k), keys.get(key, k), sum) } else { sum };
    let sum =
        |row, key| (0..acts.k()).step_by(2).fold(0.0, |sum, k| product(row, key, k, product(row, key, k + 1, sum)));
    let rows = visible.iter().enumerate();
    rows.map(|(row, &visible)| (0..visible).map(|key| sum(row, key)).fold(f32::NEG_INFINITY, f32::max) + 0.0).collect()
}

fn check(level: Level, format: Format, m: usize, n: usize, k: usize) {
    let keys = Owned::new(format, n, k, 7);
    let packed = keys.packed(level);
    let visible = visible(m, n);
    let x = fill_f32(99, m * k, 1.0);
    for precision in [Precision::F32, Precision::Bf16] {
        let what = format!("{level} {format} {m}x{n}x{k} {precision:?}");
        let acts = acts(level, precision, m, k, &x);
        let in_place = run(&acts, keys.row_major().into(), &visible);
        assert_eq!(bits(&run(&acts, (&packed).into(), &visible)), bits(&in_place), "{what}: layouts differ");
        assert_eq!(bits(&in_place), bits(&plain(&acts, keys.row_major().into(), &visible)), "{what}");
    }
}

#[test]
fn every_level_format_and_layout_gives_the_largest_of_plain_sums() {
    for level in levels() {
        for format in FORMATS {
            for (m, n, k) in [(1, 128, 128), (4, 128, 128), (9, 130, 70), (14, 64, 33), (6, 1, 1), (20, 200, 40)] {
                check(level, format, m, n, k);
            }
            // More rows than share a panel, and keys that are widened for all of them.
            check(level, format, 100, 70, 10);
        }
    }
}

/// BF16 activations are multiplied by `vdpbf16ps` where the level has it, F32 ones by multiply-adds.
#[test]
fn bf16_dot_products_and_multiply_adds_give_the_same_bits() {
    let (m, n, k) = (30, 200, 131);
    let keys = Owned::new(Format::Bf16, n, k, 5);
    let x: Vec<f32> = fill_f32(6, m * k, 1.0).into_iter().map(|x| bf16::from_f32(x).to_f32()).collect();
    let run =
        |level, precision| bits(&run(&acts(level, precision, m, k, &x), (&keys.packed(level)).into(), &visible(m, n)));
    for level in levels() {
        let expected = run(level, Precision::F32);
        assert_eq!(run(level, Precision::Bf16), expected, "{level}");
        if level != Level::SCALAR {
            let first = levels().into_iter().find(|other| *other != Level::SCALAR).unwrap();
            assert_eq!(expected, run(first, Precision::F32), "{level} and {first}");
        }
    }
}

#[test]
fn a_row_does_not_depend_on_its_company() {
    for level in levels() {
        for format in FORMATS {
            let (m, n, k) = (13, 128, 72);
            let keys = Owned::new(format, n, k, 3);
            let packed = keys.packed(level);
            let visible = visible(m, n);
            for precision in [Precision::F32, Precision::Bf16] {
                let acts = acts(level, precision, m, k, &fill_f32(5, m * k, 1.0));
                let together = run(&acts, (&packed).into(), &visible);
                for row in 0..m {
                    let mut alone = [0.0];
                    let visible = &visible[row..=row];
                    max_scores(&acts, row..row + 1, &[(&packed).into()], visible, &mut alone).unwrap();
                    assert_eq!(alone[0].to_bits(), together[row].to_bits(), "{level} {format} row {row}");
                }
            }
        }
    }
}

/// Packed keys whose place beyond key `n` of a whole block holds NaN.
fn poisoned(format: Format, n: usize, k: usize) -> (Vec<bf16>, Vec<f32>) {
    let keys = Owned::new(format, 128, k, 11);
    let (mut in_bf16, mut in_f32) = (vec![bf16::NAN; 128 * k], vec![f32::NAN; 128 * k]);
    for key in 0..n {
        for input in 0..k {
            let at = key / PANEL * PANEL * k + packed_index(format, key % PANEL, input);
            match format {
                Format::Bf16 => in_bf16[at] = keys.bf16[key * k + input],
                _ => in_f32[at] = keys.f32[key * k + input],
            }
        }
    }
    (in_bf16, in_f32)
}

#[test]
fn keys_that_are_not_seen_have_no_effect() {
    let (m, k) = (7, 64);
    for level in levels() {
        for format in FORMATS {
            for n in [1, 5, 63, 64, 65, 127] {
                let clean = Owned::new(format, 128, k, 11).packed(level);
                let (in_bf16, in_f32) = poisoned(format, n, k);
                let poisoned = match format {
                    Format::Bf16 => PackedRef::bf16(128, k, k, &in_bf16),
                    _ => PackedRef::f32(128, k, k, &in_f32),
                };
                let visible = vec![n; m];
                for precision in [Precision::F32, Precision::Bf16] {
                    let acts = acts(level, precision, m, k, &fill_f32(5, m * k, 1.0));
                    let out = run(&acts, poisoned.as_ref().copied().unwrap().into(), &visible);
                    assert!(out.iter().all(|score| score.is_finite()));
                    assert_eq!(bits(&out), bits(&run(&acts, (&clean).into(), &visible)), "{level} {format} {n}");
                }
            }
        }
    }
}

#[test]
fn nan_and_infinities_among_the_products() {
    let (m, n, k) = (8, 128, 4);
    for level in levels() {
        for format in FORMATS {
            for place in [0, 17, 63, 64, 127] {
                let mut keys = Owned::new(format, n, k, 2);
                let set = |keys: &mut Owned, key: usize, value: f32| {
                    keys.f32[key * k] = value;
                    keys.bf16[key * k] = bf16::from_f32(value);
                };
                let acts = acts(level, Precision::Bf16, m, k, &vec![1.0; m * k]);
                let visible: Vec<usize> = (0..m).map(|row| if row % 2 == 0 { n } else { place }).collect();
                let scores = |keys: &Owned| {
                    let packed: PackedWeight = keys.packed(level);
                    let out = run(&acts, (&packed).into(), &visible);
                    assert_eq!(bits(&out), bits(&run(&acts, keys.row_major().into(), &visible)));
                    (out[0], out[1])
                };
                let (_, before) = scores(&keys);
                assert!(before.is_finite() || place == 0, "{before}");

                set(&mut keys, place, f32::INFINITY);
                assert_eq!(scores(&keys), (f32::INFINITY, before), "{level} {format} {place}");
                set(&mut keys, place, f32::NAN);
                let (all, some) = scores(&keys);
                assert!(
                    all.to_bits() == f32::NAN.to_bits() && some.to_bits() == before.to_bits(),
                    "{level} {format} {place}: {all} {some}"
                );
                for key in 0..n {
                    set(&mut keys, key, f32::NEG_INFINITY);
                }
                let least = f32::NEG_INFINITY;
                assert_eq!(scores(&keys), (least, least), "{level} {format}");
            }
        }
    }
}

#[test]
fn no_inputs_give_zero_and_nothing_visible_minus_infinity() {
    for level in levels() {
        for format in FORMATS {
            let keys = Owned::new(format, 70, 0, 1);
            let acts = acts(level, Precision::Bf16, 2, 0, &[]);
            for keys in [Weight::from(keys.row_major()), (&keys.packed(level)).into()] {
                assert_eq!(run(&acts, keys, &[70, 0]), [0.0, f32::NEG_INFINITY], "{level} {format}");
                assert_eq!(run(&acts, keys, &[0, 0]), [f32::NEG_INFINITY; 2], "{level} {format}");
                assert_eq!(run(&acts, keys, &[]), [0.0; 0]);
            }
        }
    }
}

#[test]
fn bad_arguments_are_errors_with_their_numbers() {
    let keys = Owned::new(Format::Bf16, 70, 40, 1);
    let acts = acts(Level::SCALAR, Precision::Bf16, 3, 40, &[1.0; 120]);
    let refused = |rows, keys: &Owned, visible: &[usize], out: usize| {
        max_scores(&acts, rows, &[keys.row_major().into()], visible, &mut vec![0.0; out]).unwrap_err().to_string()
    };
    assert_eq!(refused(1..4, &keys, &[1; 3], 3), "end of the rows is 4, expected 3");
    assert_eq!(refused(0..2, &keys, &[1; 3], 2), "`visible` has 3 elements, expected 2 for the shape [1, 2]");
    assert_eq!(refused(0..2, &keys, &[1; 2], 3), "`out` has 3 elements, expected 2 for the shape [1, 2]");
    assert_eq!(refused(0..2, &keys, &[1, 71], 2), "visible keys is 71, expected 70");
    let other = Owned::new(Format::Bf16, 70, 41, 1);
    assert_eq!(refused(0..2, &other, &[1; 2], 2), "columns of the activations is 40, expected 41");
    let codes = Owned::new(Format::Mxfp8, 70, 40, 1);
    assert_eq!(refused(0..2, &codes, &[1; 2], 2), "bytes of a key's value (BF16 or F32) is 1, expected 2");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_shape_is_right_on_the_best_level(m in 0_usize..20, n in 1_usize..300, k in 1_usize..300, f in 0_usize..2) {
        check(Level::best(), FORMATS[f], m, n, k);
    }
}
