// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tiles and linear layers against plain sums in F64, on every level, in every format and layout.

use crate::support::{FORMATS, Owned, levels};
use cpu_tiles::{
    Acts, E8M0, F8E4M3, Format, Level, PANEL, PackedRef, Pool, Precision, RowNumbers, ShapeError, Weight, linear,
    linears, reserve_tile_scratch, tile,
};
use half::bf16;
use op_testkit::allocations::count_allocations;
use op_testkit::fill_bf16;
use proptest::prelude::*;

/// Plain sums, in F64, and the sums of magnitudes that bound their rounding errors.
fn reference(weight: &Owned, m: usize, x: &[bf16]) -> Vec<(f64, f64)> {
    let w = weight.row_major();
    let mut out = Vec::with_capacity(m * weight.n);
    for row in 0..m {
        for n in 0..weight.n {
            let terms = (0..weight.k).map(|k| f64::from(x[row * weight.k + k].to_f32()) * f64::from(w.get(n, k)));
            out.push(terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs())));
        }
    }
    out
}

fn run(level: Level, threads: usize, precision: Precision, weight: Weight<'_>, m: usize, x: &[bf16]) -> Vec<f32> {
    let pool = Pool::new(threads).unwrap();
    let acts = Acts::from_bf16(level, &pool, precision, m, weight.k(), x).unwrap();
    let mut out = vec![f32::NAN; m * weight.n()];
    linear(&pool, &acts, weight, &mut out).unwrap();
    out
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Both layouts and both precisions against the reference; the layouts bit for bit against each other.
fn check(level: Level, format: Format, m: usize, n: usize, k: usize) {
    let weight = Owned::new(format, n, k, 7);
    let x = fill_bf16(99, m * k, 1.0);
    let expected = reference(&weight, m, &x);
    let packed = weight.packed(level);
    for precision in [Precision::F32, Precision::Bf16] {
        let in_place = run(level, 1, precision, weight.row_major().into(), m, &x);
        let from_panels = run(level, 1, precision, (&packed).into(), m, &x);
        assert_eq!(bits(&in_place), bits(&from_panels), "{level} {format} {m}x{n}x{k} {precision:?}: layouts differ");
        for (i, (&found, &(sum, size))) in in_place.iter().zip(&expected).enumerate() {
            // K roundings of partial sums, each at most half a unit in the last place of the sum of magnitudes.
            let bound = size * (k as f64 + 2.0) * f64::from(f32::EPSILON) / 2.0 + 1e-30;
            let error = (f64::from(found) - sum).abs();
            assert!(
                error <= bound,
                "{level} {format} {m}x{n}x{k} {precision:?} at {i}: {found} for {sum}, bound {bound:e}"
            );
        }
    }
}

#[test]
fn every_level_format_and_layout_is_right() {
    for level in levels() {
        for format in FORMATS {
            for (m, n, k) in
                [(1, 64, 128), (1, 200, 300), (3, 65, 33), (6, 63, 257), (7, 129, 514), (13, 70, 31), (2, 1, 1)]
            {
                check(level, format, m, n, k);
            }
        }
    }
}

#[test]
fn chunk_edges_of_long_inputs() {
    for level in levels() {
        for format in FORMATS {
            for (m, k) in [(1, 1024), (9, 1025), (4, 1153), (1, 2050)] {
                check(level, format, m, 64, k);
            }
        }
    }
}

#[test]
fn no_inputs_give_zeros_and_no_rows_give_nothing() {
    for level in levels() {
        for format in FORMATS {
            let weight = Owned::new(format, 70, 0, 1);
            let out = run(level, 1, Precision::Bf16, weight.row_major().into(), 3, &[]);
            assert_eq!(out, vec![0.0; 210]);
            assert_eq!(run(level, 1, Precision::Bf16, (&weight.packed(level)).into(), 3, &[]), vec![0.0; 210]);
            let weight = Owned::new(format, 70, 40, 1);
            assert_eq!(run(level, 1, Precision::Bf16, weight.row_major().into(), 0, &[]), Vec::<f32>::new());
        }
    }
}

#[test]
fn rows_do_not_depend_on_their_company() {
    for level in levels() {
        for format in FORMATS {
            let (m, n, k) = (14, 70, 300);
            let weight = Owned::new(format, n, k, 3);
            let packed = weight.packed(level);
            let x = fill_bf16(5, m * k, 1.0);
            for precision in [Precision::F32, Precision::Bf16] {
                let together = run(level, 1, precision, (&packed).into(), m, &x);
                for row in 0..m {
                    let alone = run(level, 1, precision, (&packed).into(), 1, &x[row * k..(row + 1) * k]);
                    assert_eq!(bits(&alone), bits(&together[row * n..(row + 1) * n]), "{level} {format} row {row}");
                }
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_the_thread_count() {
    for level in Level::available() {
        for format in FORMATS {
            let weight = Owned::new(format, 700, 300, 3);
            let x = fill_bf16(5, 9 * 300, 1.0);
            let one = run(level, 1, Precision::Bf16, weight.row_major().into(), 9, &x);
            for threads in [2, 3, 8] {
                assert_eq!(bits(&run(level, threads, Precision::Bf16, weight.row_major().into(), 9, &x)), bits(&one));
            }
        }
    }
}

#[test]
fn a_nan_weight_poisons_its_output_and_no_other() {
    for level in levels() {
        for format in [Format::Fp8Block, Format::Mxfp8] {
            for m in [1, 9] {
                for code in [0x7F, 0xFF] {
                    let (n, k, at) = (130, 200, 77 * 200 + 131);
                    let mut weight = Owned::new(format, n, k, 3);
                    let x = fill_bf16(5, m * k, 1.0);
                    let clean = run(level, 1, Precision::Bf16, weight.row_major().into(), m, &x);
                    weight.codes[at] = F8E4M3::from_bits(code);
                    for weight in [Weight::from(weight.row_major()), Weight::from(&weight.packed(level))] {
                        let out = run(level, 1, Precision::Bf16, weight, m, &x);
                        for (i, (&found, &clean)) in out.iter().zip(&clean).enumerate() {
                            if i % n == 77 {
                                assert!(found.is_nan(), "{level} {format} output {i} is {found}");
                            } else {
                                // MXFP8 panels with a NaN take F32 products, which round differently.
                                assert!(
                                    (found - clean).abs() <= 1e-4 * clean.abs() + 1e-3,
                                    "{level} {format} output {i}"
                                );
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn scales_at_the_ends_of_their_range() {
    // One input, so that the expected value is one product: code 2^-9 .. 448 times any scale times one.
    for level in levels() {
        for scale in 0..=255_u8 {
            let scale = E8M0::from_bits(scale);
            for code in [0x01, 0x08, 0x38, 0x7E, 0xBC, 0x00] {
                let code = F8E4M3::from_bits(code);
                let weight =
                    cpu_tiles::WeightRef::mxfp8(1, 1, std::slice::from_ref(&code), std::slice::from_ref(&scale))
                        .unwrap();
                for m in [1, 8] {
                    let out = run(level, 1, Precision::Bf16, weight.into(), m, &vec![bf16::ONE; m]);
                    let expected = code.to_f32() * scale.to_f32();
                    for found in out {
                        assert!(
                            found == expected || (found.is_nan() && expected.is_nan()),
                            "{level} {code:?} {scale:?}: {found:e} for {expected:e}"
                        );
                    }
                }
            }
        }
        for scale in [0.0, -3.5, 127.9, 128.0, 1e30, 1e-38, 1e-42, f32::INFINITY, f32::NAN] {
            let code = F8E4M3::from_bits(0x38);
            let weight =
                cpu_tiles::WeightRef::fp8_block(1, 1, std::slice::from_ref(&code), std::slice::from_ref(&scale))
                    .unwrap();
            for m in [1, 8] {
                for found in run(level, 1, Precision::Bf16, weight.into(), m, &vec![bf16::ONE; m]) {
                    assert!(found == scale || (found.is_nan() && scale.is_nan()), "{level} scale {scale:e}: {found:e}");
                }
            }
        }
    }
}

#[test]
fn sums_of_any_size_do_not_depend_on_their_company() {
    // Sums that come near the end of F32, and beyond it where they are kept in units of small scales.
    for level in levels() {
        for (scale, x) in [(100, 1e28), (87, 1e30), (90, 3e38), (127, 1e30), (87, 1e-30), (64, 1.0), (200, 1.0)] {
            let (m, n, k) = (7, 70, 256);
            let mut weight = Owned::new(Format::Mxfp8, n, k, 3);
            for (i, e8m0) in weight.mx_scales.iter_mut().enumerate() {
                *e8m0 = E8M0::from_bits(scale + (i % 3) as u8);
            }
            let x: Vec<bf16> = fill_bf16(5, m * k, 1.0).iter().map(|v| bf16::from_f32(v.to_f32() * x)).collect();
            let together = run(level, 1, Precision::Bf16, (&weight.packed(level)).into(), m, &x);
            for row in 0..m {
                let alone = run(level, 1, Precision::Bf16, weight.row_major().into(), 1, &x[row * k..(row + 1) * k]);
                assert_eq!(bits(&alone), bits(&together[row * n..(row + 1) * n]), "{level} scale {scale} row {row}");
            }
        }
    }
}

#[test]
fn infinities_and_nans_of_activations_reach_their_rows_only() {
    for level in levels() {
        for format in FORMATS {
            let (m, n, k) = (8, 66, 40);
            let weight = Owned::new(format, n, k, 21);
            let mut x = fill_bf16(4, m * k, 1.0);
            x[2 * k + 5] = bf16::NAN;
            x[5 * k + 6] = bf16::INFINITY;
            let out = run(level, 1, Precision::Bf16, weight.row_major().into(), m, &x);
            for (row, out) in out.chunks(n).enumerate() {
                for (column, out) in out.iter().enumerate() {
                    let sign = weight.row_major().get(column, 6);
                    match row {
                        2 => assert!(out.is_nan()),
                        // Infinity times zero is NaN, and a zero weight does occur.
                        5 if sign == 0.0 => assert!(out.is_nan()),
                        5 => assert_eq!(*out, f32::INFINITY.copysign(sign), "{level} {format}"),
                        _ => assert!(out.is_finite(), "{level} {format} row {row}"),
                    }
                }
            }
        }
    }
}

#[test]
fn a_borrowed_panel_uses_a_prefix_of_its_inputs() {
    for level in levels() {
        let (n, k, capacity) = (128, 37, 128);
        // Beyond K lie zeros up to a multiple of 4, then values that must not be read.
        let mut panels = vec![bf16::NAN; n * capacity];
        let weight = Owned::new(Format::Bf16, n, k, 9);
        for output in 0..n {
            for input in 0..k.next_multiple_of(4) {
                let at = output / PANEL * PANEL * capacity
                    + cpu_tiles::weights::packed_index(Format::Bf16, output % PANEL, input);
                panels[at] = if input < k { weight.bf16[output * k + input] } else { bf16::ZERO };
            }
        }
        let x = fill_bf16(5, 3 * k, 1.0);
        for precision in [Precision::F32, Precision::Bf16] {
            let expected = run(level, 1, precision, weight.row_major().into(), 3, &x);
            let borrowed = PackedRef::bf16(n, k, capacity, &panels).unwrap();
            assert_eq!(bits(&run(level, 1, precision, borrowed.into(), 3, &x)), bits(&expected), "{level}");
        }
    }
}

#[test]
fn bad_shapes_are_errors_with_their_numbers() {
    let pool = Pool::new(1).unwrap();
    let weight = Owned::new(Format::Bf16, 70, 40, 1);
    let w = Weight::from(weight.row_major());
    let acts = Acts::zeroed(Level::SCALAR, Precision::Bf16, 2, 41).unwrap();
    let message = |error: ShapeError| error.to_string();
    let mut out = vec![0.0; 140];
    assert_eq!(
        message(linear(&pool, &acts, w, &mut out).unwrap_err()),
        "columns of the activations is 41, expected 40"
    );
    let acts = Acts::zeroed(Level::SCALAR, Precision::Bf16, 2, 40).unwrap();
    assert_eq!(
        message(linear(&pool, &acts, w, &mut out[1..]).unwrap_err()),
        "`out` has 139 elements, expected 140 for the shape [2, 70]"
    );
    let mut sums = [0.0; 64];
    assert_eq!(message(tile(w, 2, &acts, &[0], &mut sums).unwrap_err()), "panel beyond the last is 2, expected 2");
    assert_eq!(message(tile(w, 0, &acts, &[2], &mut sums).unwrap_err()), "row beyond the last is 2, expected 2");
    assert_eq!(
        message(tile(w, 0, &acts, &[0, 1], &mut sums).unwrap_err()),
        "`out` has 64 elements, expected 128 for the shape [2, 64]"
    );
    let codes = vec![F8E4M3::default(); 130_000];
    let fp8 = cpu_tiles::WeightRef::fp8_block(1000, 130, &codes, &[1.0; 8]);
    assert_eq!(message(fp8.unwrap_err()), "`scales` has 8 elements, expected 16 for the shape [8, 2]");
    let scales = [E8M0::default(); 4];
    let mx = cpu_tiles::WeightRef::mxfp8(2, 80, &codes[..160], &scales);
    assert_eq!(message(mx.unwrap_err()), "`scales` has 4 elements, expected 6 for the shape [2, 3]");
    let huge = cpu_tiles::WeightRef::bf16(usize::MAX, 2, &[]);
    assert!(message(huge.unwrap_err()).starts_with("`values` has 0 elements"));
    assert_eq!(
        message(PackedRef::f32(64, 9, 8, &[0.0; 512]).unwrap_err()),
        "k beyond the capacity of the panels is 9, expected 8"
    );
    assert_eq!(
        message(Acts::from_bf16(Level::SCALAR, &pool, Precision::F32, 2, 3, &[bf16::ONE; 5]).unwrap_err()),
        "`x` has 5 elements, expected 6 for the shape [2, 3]"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_shape_is_right_on_the_best_level(m in 1_usize..20, n in 1_usize..150, k in 1_usize..600, f in 0_usize..4) {
        check(Level::best(), FORMATS[f], m, n, k);
    }
}

#[test]
fn layers_of_the_same_activations_are_those_one_by_one() {
    let level = Level::best();
    let pool = Pool::new(3).unwrap();
    for m in [0, 1, 7] {
        let k = 70;
        let weights = [(130, 1), (0, 2), (64, 3), (1, 4), (0, 5)].map(|(n, seed)| Owned::new(Format::Bf16, n, k, seed));
        let acts = Acts::from_bf16(level, &pool, Precision::Bf16, m, k, &fill_bf16(9, m * k, 1.0)).unwrap();
        let mut together = weights.each_ref().map(|weight| vec![f32::NAN; m * weight.n]);
        let [a, b, c, d, e] = &mut together;
        let [v, w, x, y, z] = weights.each_ref().map(|weight| Weight::from(weight.row_major()));
        linears(&pool, &acts, [(v, a), (w, b), (x, c), (y, d), (z, e)]).unwrap();
        for (weight, together) in weights.iter().zip(&together) {
            let mut alone = vec![f32::NAN; m * weight.n];
            linear(&pool, &acts, weight.row_major().into(), &mut alone).unwrap();
            assert_eq!(bits(together), bits(&alone), "{m} x {}", weight.n);
        }
        let mut short = vec![0.0; m * 64 + 1];
        assert!(matches!(linears(&pool, &acts, [(x, &mut short)]), Err(ShapeError::Length { argument: "out", .. })));
    }
}

#[test]
fn activations_that_are_used_again_are_as_new_ones() {
    let pool = Pool::new(2).unwrap();
    for level in levels() {
        let mut slot = None;
        // Larger and smaller, in both precisions, with and without padding that earlier values lie in.
        for (precision, m, k) in [
            (Precision::F32, 5, 64),
            (Precision::Bf16, 3, 33),
            (Precision::F32, 2, 70),
            (Precision::Bf16, 9, 130),
            (Precision::Bf16, 1, 1),
            (Precision::F32, 4, 31),
        ] {
            let weight = Owned::new(Format::F32, 65, k, 3);
            let x = fill_bf16(k as u64, m * k, 1.0);
            let wide: Vec<f32> = x.iter().map(|x| x.to_f32()).collect();
            let expected = run(level, 1, precision, weight.row_major().into(), m, &x);
            let acts = Acts::resized(&mut slot, level, precision, m, k).unwrap();
            acts.write_bf16(&pool, &vec![bf16::NAN; m * k]).unwrap();
            let mut out = vec![0.0; m * 65];
            acts.write_bf16(&pool, &x).unwrap();
            linear(&pool, acts, weight.row_major().into(), &mut out).unwrap();
            assert_eq!(bits(&out), bits(&expected), "{level} {precision:?} {m} x {k}");
            acts.write_f32(&pool, &wide).unwrap();
            linear(&pool, acts, weight.row_major().into(), &mut out).unwrap();
            assert_eq!(bits(&out), bits(&expected), "{level} {precision:?} {m} x {k}");
            assert!(acts.write_f32(&pool, &wide[1..]).is_err() && acts.write_bf16(&pool, &x[1..]).is_err());
        }
    }
}

#[test]
fn row_numbers_count_from_anywhere() {
    for range in [0..0, 0..5, 3..2048, 2040..2050, 5000..5003] {
        let expected: Vec<u32> = range.clone().map(|row| row as u32).collect();
        assert_eq!(RowNumbers::new(range.clone())[..], expected, "{range:?}");
    }
    assert_eq!(RowNumbers::first(3)[..], [0, 1, 2]);
}

#[test]
fn a_tile_with_its_scratch_needs_no_memory() {
    let pool = Pool::new(2).unwrap();
    let (m, k) = (4, 160);
    for level in Level::available() {
        for format in FORMATS {
            let weight = Owned::new(format, 130, k, 3);
            let packed = weight.packed(level);
            for precision in [Precision::F32, Precision::Bf16] {
                let x = fill_bf16(5, m * k, 1.0);
                let mut acts = Acts::zeroed(level, precision, m, k).unwrap();
                let mut out = vec![0.0; m * 130];
                pool.on_each_thread(|| reserve_tile_scratch(m, k).unwrap());
                let mut call = |weight: Weight<'_>| {
                    acts.write_bf16(&pool, &x).unwrap();
                    linear(&pool, &acts, weight, &mut out).unwrap();
                };
                let run = || {
                    call((&packed).into());
                    call(weight.row_major().into());
                };
                let (count, ()) = count_allocations(|each| pool.on_each_thread(each), run);
                assert_eq!(count, 0, "{level} {format} {precision:?}");
            }
        }
    }
}
