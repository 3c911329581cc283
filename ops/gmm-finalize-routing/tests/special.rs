// SPDX-License-Identifier: MIT OR Apache-2.0

//! NaN and infinities go where IEEE arithmetic sends them, and nowhere else.

use crate::fixture::{Call, DTYPES, TOLERANCE, levels};
use cpu_tiles::E8M0;
use gmm_finalize_routing::{Dims, Dtype};
use op_testkit::compare::assert_close;

/// Rows of three experts to rows of their own: 0..2, 2..5 and 5..13.
const COUNTS: [usize; 3] = [2, 3, 8];
const NAN: u8 = 0x7F;

fn call(dtype: Dtype) -> Call {
    Call::new(dtype, Dims { experts: 3, k: 96, n: 70 }, &COUNTS, 13, 1)
}

/// Checks, at every level, in both layouts, packed and in place, that exactly the outputs `[row, column]` that
/// `is_poisoned` names are NaN, and that the others are as without the NaN.
fn poisons(what: &str, clean: &Call, poisoned: &Call, is_poisoned: impl Fn(usize, usize) -> bool) {
    let n = clean.dims.n;
    let mut expected = clean.expected();
    for (at, value) in expected.iter_mut().enumerate() {
        if is_poisoned(at / n, at % n) {
            *value = f32::NAN;
        }
    }
    let other = poisoned.in_other_layout();
    for level in levels() {
        for (layout, out) in [
            ("in place", poisoned.run(level)),
            ("packed", poisoned.run_packed(level)),
            ("other layout", other.run(level)),
            ("other layout, packed", other.run_packed(level)),
        ] {
            assert_close(&format!("{what}, {layout} at {level}"), &out, &expected, &clean.shape(), TOLERANCE);
        }
    }
}

#[test]
fn a_nan_activation() {
    for dtype in DTYPES {
        let clean = call(dtype);
        for row in [1, 7] {
            let mut poisoned = clean.clone();
            poisoned.x1.set(row * clean.dims.k + 40, NAN);
            poisons(&format!("{dtype}, x1 of row {row}"), &clean, &poisoned, |other, _| other == row);
        }
    }
}

#[test]
fn a_nan_scale_of_activations() {
    for dtype in DTYPES {
        let clean = call(dtype);
        for row in [1, 7] {
            let mut poisoned = clean.clone();
            poisoned.pertoken_scale[row * clean.packs() * 2 + 1] = E8M0::NAN;
            // Zero times NaN is NaN: no code hides it.
            for k in 32..64 {
                poisoned.x1.set(row * clean.dims.k + k, 0);
            }
            poisons(&format!("{dtype}, scale of row {row}"), &clean, &poisoned, |other, _| other == row);
        }
    }
}

#[test]
fn a_nan_weight() {
    for dtype in DTYPES {
        let clean = call(dtype);
        for (expert, rows) in [(1, 2..5), (2, 5..13)] {
            for column in [3, 69] {
                let mut poisoned = clean.clone();
                poisoned.x2.set((expert * clean.dims.n + column) * clean.dims.k + 95, NAN);
                let what = format!("{dtype}, x2 of expert {expert}, column {column}");
                poisons(&what, &clean, &poisoned, |row, other| rows.contains(&row) && other == column);
            }
        }
    }
}

#[test]
fn a_nan_scale_of_weights() {
    for dtype in DTYPES {
        let clean = call(dtype);
        let mut poisoned = clean.clone();
        // All experts share it.
        poisoned.scale[(66 * clean.packs() + 1) * 2] = E8M0::NAN;
        poisons(&format!("{dtype}, scale"), &clean, &poisoned, |_, column| column == 66);

        let mut clean = clean;
        clean.scale = clean.scale.repeat(3);
        clean.per_expert = true;
        let mut poisoned = clean.clone();
        poisoned.scale[((2 * clean.dims.n + 66) * clean.packs() + 1) * 2] = E8M0::NAN;
        poisons(&format!("{dtype}, scale of expert 2"), &clean, &poisoned, |row, column| row >= 5 && column == 66);
    }
}

/// 96 inputs have three groups: of the second pair of scales the second is not used.
#[test]
fn the_unused_scale_may_be_anything() {
    for dtype in DTYPES {
        let clean = call(dtype);
        let mut other = clean.clone();
        for scales in [&mut other.scale, &mut other.pertoken_scale] {
            scales.chunks_exact_mut(4).for_each(|scales| scales[3] = E8M0::NAN);
        }
        poisons(&format!("{dtype}, unused scales"), &clean, &other, |_, _| false);
    }
}

/// Only E5M2 has infinities.
#[test]
fn infinities() {
    let (plus, minus) = (0x7C, 0xFC);
    let mut call = call(Dtype::E5M2);
    let Dims { k, n, .. } = call.dims;
    call.x1.set(3 * k + 40, plus);
    call.x1.set(8 * k + 7, minus);
    // Zero times infinity is NaN.
    call.x1.set(12 * k, 0);
    for expert in 0..3 {
        call.x2.set((expert * n + 5) * k, minus);
    }
    let expected = call.expected();
    assert!(expected[12 * n + 5].is_nan() && expected[3 * n].is_infinite() && expected[8 * n].is_infinite());
    for level in levels() {
        assert_close(level.name(), &call.run(level), &expected, &call.shape(), TOLERANCE);
        assert_close(level.name(), &call.run_packed(level), &expected, &call.shape(), TOLERANCE);
    }
}

/// Logits, initial values, the shared input and its weight take part as they are.
#[test]
fn other_operands() {
    let clean = call(Dtype::E4M3);
    let n = clean.dims.n;
    let mut poisoned = clean.clone();
    poisoned.logit.as_mut().unwrap()[4] = f32::NAN;
    poisons("logit", &clean, &poisoned, |row, _| row == 4);

    let mut poisoned = clean.clone();
    poisoned.out[9 * n + 60] = f32::NAN;
    poisons("initial value", &clean, &poisoned, |row, column| row == 9 && column == 60);

    let mut poisoned = clean.clone();
    poisoned.shared_input.as_mut().unwrap().values[2 * n + 69] = half::bf16::NAN;
    poisons("shared input", &clean, &poisoned, |row, column| row == 3 && column == 69);

    let mut poisoned = clean.clone();
    poisoned.shared_input.as_mut().unwrap().weight = f32::NAN;
    poisons("weight of the shared input", &clean, &poisoned, |row, _| (1..12).contains(&row));

    // A logit of zero does not hide a NaN.
    let mut poisoned = clean.clone();
    poisoned.logit.as_mut().unwrap()[4] = 0.0;
    let mut zero = poisoned.clone();
    poisoned.x1.set(4 * clean.dims.k, NAN);
    poisons("logit zero", &zero, &poisoned, |row, _| row == 4);

    // Logits may be infinite; the sums here are not zero.
    zero.logit.as_mut().unwrap()[4] = f32::INFINITY;
    let out = zero.expected();
    assert!(out[4 * n..5 * n].iter().all(|value| value.is_infinite()));
    for level in levels() {
        assert_close(level.name(), &zero.run(level), &out, &zero.shape(), TOLERANCE);
    }
}
