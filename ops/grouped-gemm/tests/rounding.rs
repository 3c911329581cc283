// SPDX-License-Identifier: MIT OR Apache-2.0

//! The rounding points, told apart from rounding more or less often.

use crate::fixture::{F32_TOLERANCE, FORMATS, Moe, Rows, dims, grouped, grouped_f32, levels, pool};
use cpu_tiles::Precision;
use grouped_gemm::{Activation, reference};
use half::bf16;
use ndarray::arr1;
use op_testkit::compare::{Comparison, assert_same_bits};

const ROWS: usize = 24;

/// With the intermediate rounded once, the F32 sums of a row are exact to F32 arithmetic, unless one of its
/// intermediate values lies so near the border of two BF16 neighbours that the order of a sum decides: one value in
/// some thousands. Without the rounding, or with one more, every row is off by a hundred times the tolerance.
#[test]
fn the_intermediate_is_rounded_exactly_once() {
    for activation in [Activation::Silu, Activation::SWIGLU_OAI] {
        for format in FORMATS {
            let moe = Moe::new(dims(1, 136, 72, activation), format, 11);
            let hidden = moe.dims.hidden;
            let rows = Rows::new(Precision::Bf16, ROWS, hidden, 12);
            let sums = |precision| -> Vec<f32> {
                let (x, gate_up, down) = (rows.array(hidden), moe.gate_up_proj(), moe.down_proj());
                let cumsum = arr1(&[0, ROWS as i32]);
                reference::grouped_gemm(&moe.dims, precision, x.view(), gate_up.view(), down.view(), cumsum.view())
                    .unwrap()
                    .into_iter()
                    .collect()
            };
            let agreeing_rows = |actual: &[f32], expected: &[f32]| {
                let rows = actual.chunks_exact(hidden).zip(expected.chunks_exact(hidden));
                rows.filter(|(a, e)| Comparison::new(a, e, &[hidden]).check(F32_TOLERANCE).is_ok()).count()
            };
            let (rounded, unrounded) = (sums(Precision::Bf16), sums(Precision::F32));
            assert_eq!(agreeing_rows(&unrounded, &rounded), 0, "the rounding shows in every row");
            for level in levels() {
                let cumsum = [0, ROWS as i32];
                let actual = grouped_f32(level, &pool(2), &moe.dims, &rows, &moe.row_major(), &cumsum).unwrap();
                let agreeing = agreeing_rows(&actual, &rounded);
                assert!(agreeing >= ROWS - 4, "{activation}, {format} at {level}: {agreeing} of {ROWS} rows agree");
            }
        }
    }
}

#[test]
fn the_result_is_the_sum_rounded_once() {
    let moe = Moe::new(dims(2, 136, 72, Activation::Silu), FORMATS[1], 13);
    let rows = Rows::new(Precision::Bf16, ROWS, moe.dims.hidden, 14);
    for level in levels() {
        let cumsum = [0, 3, ROWS as i32];
        let sums = grouped_f32(level, &pool(1), &moe.dims, &rows, &moe.row_major(), &cumsum).unwrap();
        let rounded: Vec<f32> = sums.into_iter().map(|sum| bf16::from_f32(sum).to_f32()).collect();
        let result = grouped(level, &pool(1), &moe.dims, &rows, &moe.row_major(), &cumsum).unwrap();
        assert_same_bits(level.name(), &result, &rounded, &[ROWS, moe.dims.hidden]);
    }
}
