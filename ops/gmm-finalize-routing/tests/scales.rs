// SPDX-License-Identifier: MIT OR Apache-2.0

//! Scales at the ends of their range, where BF16 does not hold a code times its scale.

use crate::fixture::{Call, DTYPES, Fp8, TOLERANCE, levels};
use cpu_tiles::{E8M0, Level};
use gmm_finalize_routing::{Dims, Dtype};
use op_testkit::compare::{Tolerance, assert_close, assert_same_bits};

/// Rows of two experts, few and many, to rows of their own.
fn call(dtype: Dtype, seed: u64) -> Call {
    let mut call = Call::new(dtype, Dims { experts: 2, k: 96, n: 70 }, &[3, 9], 12, seed);
    call.shared_input = None;
    call.out.fill(0.0);
    call
}

fn check(what: &str, call: &Call) {
    let expected = call.expected();
    assert!(expected.iter().any(|value| *value != 0.0 && value.is_finite()), "{what}: nothing to compare");
    for level in levels() {
        let (out, packed) = (call.run(level), call.run_packed(level));
        let what = format!("{what} at {level}");
        assert_same_bits(&what, &packed, &out, &call.shape());
        // Row by row: beside a row of 1e38 a part of the largest value would admit anything.
        let n = call.dims.n;
        for row in 0..call.batch() {
            let row = row * n..(row + 1) * n;
            assert_close(&what, &out[row.clone()], &expected[row], &[n], TOLERANCE);
        }
    }
}

/// Scales of the weights at and beside the limits of BF16 with the opposite scale of the activations, so that products are
/// ordinary numbers.
#[test]
fn opposite_scales() {
    for dtype in DTYPES {
        let mut call = call(dtype, 1);
        // Small codes, whose product with the largest scale is finite.
        call.x1 = Fp8::new(dtype, 2, call.rows() * call.dims.k, 0.9);
        call.x2 = Fp8::new(dtype, 3, 2 * call.dims.k * call.dims.n, 0.9);
        for scale in [0, 1, 9, 10, 16, 17, 60, 126, 127, 128, 190, 239, 240, 246, 247, 253, 254] {
            call.scale.fill(E8M0::from_bits(scale));
            call.pertoken_scale.fill(E8M0::from_bits(254 - scale));
            check(&format!("{dtype}, scale {scale}"), &call);
        }
    }
}

/// One row, one panel and one group of inputs beyond the range of BF16; the others have the bits they have without it.
#[test]
fn a_row_beyond_bf16_leaves_the_others_as_they_are() {
    for dtype in DTYPES {
        let clean = call(dtype, 4);
        for row in [1, 5] {
            for scale in [0, 8] {
                let mut call = clean.clone();
                call.x1 = Fp8::new(dtype, 5, call.rows() * call.dims.k, 0.9);
                let expected_of_others: Vec<Vec<f32>> = levels().into_iter().map(|level| call.run(level)).collect();
                // The second group of the row.
                call.pertoken_scale[row * clean.packs() * 2 + 1] = E8M0::from_bits(scale);
                for (level, expected) in levels().into_iter().zip(expected_of_others) {
                    let out = call.run(level);
                    let n = call.dims.n;
                    for other in (0..call.batch()).filter(|other| *other != row) {
                        let range = other * n..(other + 1) * n;
                        let what = format!("{dtype}, row {other} at {level}");
                        assert_same_bits(&what, &out[range.clone()], &expected[range], &[n]);
                    }
                    let range = row * n..(row + 1) * n;
                    let what = format!("{dtype}, row {row} with scale {scale} at {level}");
                    assert_close(&what, &out[range.clone()], &call.expected()[range], &[n], TOLERANCE);
                }
            }
        }
    }
}

/// Code times the smallest scale, which is a subnormal F32 number.
#[test]
fn the_smallest_scale_is_two_to_the_minus_127() {
    for dtype in DTYPES {
        for of_weights in [false, true] {
            let mut call = call(dtype, 6);
            call.logit = None;
            // Ones: 0x38 in E4M3, 0x3C in E5M2.
            let one = if dtype == Dtype::E4M3 { 0x38 } else { 0x3C };
            call.x1 = Fp8::of_bits(dtype, std::iter::repeat_n(one, call.rows() * call.dims.k));
            call.x2 = Fp8::of_bits(dtype, std::iter::repeat_n(one, 2 * call.dims.k * call.dims.n));
            call.scale.fill(E8M0::from_bits(if of_weights { 0 } else { 253 }));
            call.pertoken_scale.fill(E8M0::from_bits(if of_weights { 253 } else { 0 }));
            // 96 times 2^-127 times 2^126.
            for level in levels() {
                assert_close(
                    level.name(),
                    &call.run(level),
                    &vec![48.0; call.out.len()],
                    &call.shape(),
                    Tolerance::EXACT,
                );
            }
        }
    }
}

/// What F32 cannot hold is infinite, as the formula says.
#[test]
fn products_beyond_f32_are_infinite() {
    for dtype in DTYPES {
        for of_weights in [false, true] {
            let mut call = call(dtype, 7);
            call.logit = None;
            let largest = if dtype == Dtype::E4M3 { 0x7E } else { 0x7B };
            call.x1 = Fp8::of_bits(dtype, std::iter::repeat_n(largest, call.rows() * call.dims.k));
            call.x2 = Fp8::of_bits(dtype, std::iter::repeat_n(largest, 2 * call.dims.k * call.dims.n));
            let scales = if of_weights { &mut call.scale } else { &mut call.pertoken_scale };
            scales.fill(E8M0::from_bits(254));
            for level in levels() {
                assert!(call.run(level).iter().all(|value| *value == f32::INFINITY), "{dtype} at {level}");
            }
        }
    }
}

/// Every code of both formats: what the reference says of it, and of every code of the other operand.
#[test]
fn every_code() {
    for dtype in DTYPES {
        let specials = if dtype == Dtype::E4M3 { 0x7F } else { 0x7C };
        let numbers: Vec<u8> = (0..=255).filter(|code| code & 0x7F < specials).collect();
        let dims = Dims { experts: 1, k: 32, n: 256 };
        let mut call = Call::new(dtype, dims, &[256], 256, 8);
        call.logit = None;
        call.shared_input = None;
        call.out.fill(0.0);
        // One input is in use: the product of a code and a code.
        let at = |row: usize| numbers[row % numbers.len()];
        let only_first = |i: usize| if i.is_multiple_of(32) { at(i / 32) } else { 0 };
        call.x1 = Fp8::of_bits(dtype, (0..256 * 32).map(only_first));
        call.x2 = Fp8::of_bits(dtype, (0..256 * 32).map(only_first));
        call.pertoken_scale.fill(E8M0::from_bits(127));
        call.scale.fill(E8M0::from_bits(127));
        let expected = call.expected();
        for level in Level::available() {
            assert_close(level.name(), &call.run(level), &expected, &call.shape(), Tolerance::EXACT);
            assert_close(level.name(), &call.run_packed(level), &expected, &call.shape(), Tolerance::EXACT);
        }
    }
}
