// SPDX-License-Identifier: MIT OR Apache-2.0

//! NaN and infinities go where IEEE arithmetic sends them, and nowhere else.

use crate::fixture::{
    BF16_TOLERANCE, Choices, FORMATS, Matrix, Moe, Rows, Values, combined, cumsum, dims, expected_grouped, grouped,
    levels, pool,
};
use cpu_tiles::{E8M0, F8E4M3, Format, Precision};
use grouped_gemm::Activation;
use half::bf16;
use op_testkit::compare::assert_close;

const COUNTS: [usize; 3] = [2, 3, 8];

fn moe(format: Format) -> Moe {
    Moe::new(dims(3, 70, 140, Activation::SWIGLU_OAI), format, 1)
}

fn rows(moe: &Moe) -> Rows {
    Rows::new(Precision::Bf16, COUNTS.iter().sum(), moe.dims.hidden, 2)
}

fn set_nan(matrix: &mut Matrix, row: usize, column: usize) {
    let at = row * matrix.k + column;
    match &mut matrix.values {
        Values::F32(values) => values[at] = f32::NAN,
        Values::Bf16(values) => values[at] = bf16::NAN,
        Values::Fp8Block { codes, .. } | Values::Mxfp8 { codes, .. } => codes[at] = F8E4M3::NAN,
    }
}

/// Checks, at every level and in both layouts, that exactly the outputs `[row, column]` that `is_poisoned` names are
/// NaN, and that the others are as without the NaN.
fn poisons(what: &str, clean: &Moe, poisoned: &Moe, is_poisoned: impl Fn(usize, usize) -> bool) {
    let (hidden, rows, cumsum, pool) = (clean.dims.hidden, rows(clean), cumsum(&COUNTS), pool(2));
    let mut expected = expected_grouped(clean, &rows, &cumsum);
    for (at, value) in expected.iter_mut().enumerate() {
        if is_poisoned(at / hidden, at % hidden) {
            *value = f32::NAN;
        }
    }
    for level in levels() {
        let packed = poisoned.pack(level);
        for (layout, experts) in [("in place", poisoned.row_major()), ("packed", packed.experts())] {
            let out = grouped(level, &pool, &poisoned.dims, &rows, &experts, &cumsum).unwrap();
            let what = format!("{what}, {layout} at {level}");
            assert_close(&what, &out, &expected, &[out.len() / hidden, hidden], BF16_TOLERANCE);
        }
    }
}

/// Expert 1 has few rows, expert 2 many: the tiles treat them differently.
#[test]
fn a_nan_in_one_weight_poisons_exactly_the_outputs_that_use_it() {
    for format in FORMATS {
        let clean = moe(format);
        for (expert, rows) in [(1, 2..5), (2, 5..13)] {
            for which in [0, 1] {
                let mut poisoned = clean.clone();
                set_nan(&mut poisoned.experts[expert][which], 131, 3);
                let what = format!("{format}, {} of expert {expert}", ["gate", "up"][which]);
                poisons(&what, &clean, &poisoned, |row, _| rows.contains(&row));
            }
            let mut poisoned = clean.clone();
            set_nan(&mut poisoned.experts[expert][2], 65, 77);
            let what = format!("{format}, down of expert {expert}");
            poisons(&what, &clean, &poisoned, |row, column| rows.contains(&row) && column == 65);
        }
    }
}

#[test]
fn an_infinity_in_one_weight_gives_infinities() {
    for format in [Format::F32, Format::Bf16] {
        let mut moe = moe(format);
        match &mut moe.experts[2][2] {
            Matrix { values: Values::F32(values), .. } => values[65 * 140 + 77] = f32::INFINITY,
            Matrix { values: Values::Bf16(values), .. } => values[65 * 140 + 77] = bf16::INFINITY,
            _ => unreachable!("asked for plain values"),
        }
        let (rows, cumsum, hidden) = (rows(&moe), cumsum(&COUNTS), moe.dims.hidden);
        let expected = expected_grouped(&moe, &rows, &cumsum);
        let infinite: Vec<_> = (0..expected.len()).filter(|&at| expected[at].is_infinite()).collect();
        assert_eq!(infinite, (5..13).map(|row| row * hidden + 65).collect::<Vec<_>>());
        for level in levels() {
            let out = grouped(level, &pool(2), &moe.dims, &rows, &moe.row_major(), &cumsum).unwrap();
            let what = format!("{format} at {level}");
            assert_close(&what, &out, &expected, &[out.len() / hidden, hidden], BF16_TOLERANCE);
        }
    }
}

#[test]
fn a_nan_in_one_scale_poisons_exactly_the_outputs_that_use_it() {
    let clean = moe(Format::Mxfp8);
    let mut poisoned = clean.clone();
    let down = &mut poisoned.experts[2][2];
    let groups = down.k.div_ceil(32);
    let Values::Mxfp8 { scales, .. } = &mut down.values else { unreachable!("asked for MXFP8") };
    scales[65 * groups + 4] = E8M0::NAN;
    poisons("mxfp8 scale", &clean, &poisoned, |row, column| row >= 5 && column == 65);

    let clean = moe(Format::Fp8Block);
    let mut poisoned = clean.clone();
    // The second block of the first row of blocks, which all outputs share.
    let Values::Fp8Block { scales, .. } = &mut poisoned.experts[2][2].values else { unreachable!("asked for FP8") };
    scales[1] = f32::NAN;
    poisons("fp8 scale", &clean, &poisoned, |row, _| row >= 5);
}

/// One token each with an infinity, a NaN, and values whose products overflow F32; the others are as without them.
#[test]
fn special_tokens() {
    for activation in [Activation::Silu, Activation::SWIGLU_OAI] {
        for format in FORMATS {
            let moe = Moe::new(dims(3, 70, 140, activation), format, 1);
            let hidden = moe.dims.hidden;
            let Rows::Bf16(mut x) = rows(&moe) else { unreachable!("asked for BF16") };
            x[9] = bf16::INFINITY;
            x[3 * hidden + 69] = bf16::NAN;
            x[6 * hidden] = bf16::NEG_INFINITY;
            for value in &mut x[8 * hidden..9 * hidden] {
                *value *= bf16::from_f32(1e30);
            }
            let (rows, cumsum) = (Rows::Bf16(x), cumsum(&COUNTS));
            let expected = expected_grouped(&moe, &rows, &cumsum);
            let is_special = |row: usize| expected[row * hidden..][..hidden].iter().any(|value| !value.is_finite());
            let special: Vec<_> = (0..expected.len() / hidden).filter(|&row| is_special(row)).collect();
            // The clamp of swigluoai keeps what overflows silu.
            let expected_special = if activation == Activation::Silu { &[0, 3, 6, 8][..] } else { &[0, 3, 6] };
            assert_eq!(special, *expected_special, "{activation}, {format}");
            for level in levels() {
                let out = grouped(level, &pool(2), &moe.dims, &rows, &moe.row_major(), &cumsum).unwrap();
                let shape = [out.len() / hidden, hidden];
                // The relative part only: beside values of 1e30 a part of the largest would admit anything.
                for row in 0..shape[0] {
                    let range = row * hidden..(row + 1) * hidden;
                    let what = format!("token {row}, {activation}, {format} at {level}");
                    assert_close(&what, &out[range.clone()], &expected[range], &[hidden], BF16_TOLERANCE);
                }
            }
        }
    }
}

/// Zero times NaN is NaN: an expert cannot be switched off by its weight.
#[test]
fn a_weight_of_zero_does_not_hide_a_nan() {
    let mut moe = moe(Format::Bf16);
    set_nan(&mut moe.experts[1][2], 5, 0);
    let rows = Rows::new(Precision::Bf16, 2, moe.dims.hidden, 3);
    let choices = Choices { k: 2, ids: vec![0, 1, 0, 2], weights: vec![1.0, 0.0, 0.5, 0.5] };
    for level in levels() {
        let out = combined(level, &pool(2), &moe.dims, &rows, &moe.row_major(), &choices).unwrap();
        let nan: Vec<_> = (0..out.len()).filter(|&at| out[at].is_nan()).collect();
        assert_eq!(nan, [5], "at {level}");
    }
}
