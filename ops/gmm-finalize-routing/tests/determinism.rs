// SPDX-License-Identifier: MIT OR Apache-2.0

//! The same bits for every number of threads.

use crate::fixture::{Call, DTYPES};
use cpu_tiles::{E8M0, Level};
use gmm_finalize_routing::Dims;
use op_testkit::compare::assert_same_bits;

/// Calls whose rows all go to two rows of the output, with terms of mixed sign and magnitude: their order decides about
/// the last bits.
fn calls() -> Vec<Call> {
    let mut calls = Vec::new();
    for dtype in DTYPES {
        let mut call = Call::new(dtype, Dims { experts: 4, k: 1120, n: 330 }, &[20, 0, 1, 24], 5, 1);
        for (row, index) in call.row_index.iter_mut().enumerate() {
            *index = [4, 0, 4, 4][row % 4];
        }
        for (row, logit) in call.logit.iter_mut().flatten().enumerate() {
            *logit *= [1.0, -32.0, 0.125, 512.0][row % 4];
        }
        calls.push(call.in_other_layout());
        // A row that BF16 cannot hold among others.
        let row = 3 * call.packs() * 2;
        call.pertoken_scale[row] = E8M0::from_bits(0);
        calls.push(call);
    }
    calls
}

#[test]
fn threads() {
    for call in calls() {
        for level in Level::available() {
            let packed = call.pack(level);
            let (expected, _) = call.run_with(level, 1, call.weights()).unwrap();
            for threads in [1, 2, 3, 8] {
                let what = format!("{threads} threads at {level}");
                let (in_place, _) = call.run_with(level, threads, call.weights()).unwrap();
                assert_same_bits(&what, &in_place, &expected, &call.shape());
                let (packed, _) = call.run_with(level, threads, &packed).unwrap();
                assert_same_bits(&what, &packed, &expected, &call.shape());
            }
        }
    }
}

/// What packed the weights makes no difference.
#[test]
fn packed_at_any_level() {
    for call in calls() {
        let level = Level::best();
        let expected = call.run(level);
        for packer in Level::available() {
            let (out, _) = call.run_with(level, 2, &call.pack(packer)).unwrap();
            assert_same_bits(packer.name(), &out, &expected, &call.shape());
        }
    }
}

/// More rows of one expert than a task multiplies at a time.
#[test]
fn more_rows_than_a_block() {
    for dtype in DTYPES {
        let call = Call::new(dtype, Dims { experts: 2, k: 64, n: 40 }, &[3, 2100], 700, 2);
        let level = Level::best();
        let whole = call.run(level);
        // One row after the other, in a call each.
        let mut one_by_one = call.clone();
        one_by_one.shared_input = None;
        for row in 0..call.rows() {
            let mut part = one_by_one.select(&[row], if row < 3 { &[1, 0] } else { &[0, 1] });
            part.out.clone_from(&one_by_one.out);
            if row + 1 == call.rows() {
                part.shared_input.clone_from(&call.shared_input);
            }
            one_by_one.out = part.run_with(level, 1, part.weights()).unwrap().0;
        }
        assert_same_bits("one by one", &one_by_one.out, &whole, &call.shape());
    }
}
