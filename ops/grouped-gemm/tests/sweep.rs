// SPDX-License-Identifier: MIT OR Apache-2.0

//! Every token count from 0 to 130 on one expert. The outputs are guarded: a tile that is wider than the rows left
//! writes into what follows.

use crate::fixture::{BF16_TOLERANCE, Moe, Rows, dims, expected_grouped, grouped, levels, pool};
use cpu_tiles::{Format, Precision};
use grouped_gemm::Activation;
use half::bf16;
use op_testkit::compare::{assert_close, assert_same_bits};

const MOST: usize = 130;
/// Token counts for the software models, which are slow: around the sizes of row groups.
const FEW: [usize; 10] = [0, 1, 5, 6, 7, 11, 12, 13, 18, 19];

#[test]
fn token_counts_on_one_expert() {
    let dims = dims(1, 200, 72, Activation::Silu);
    let pool = pool(2);
    for format in [Format::Bf16, Format::Fp8Block, Format::Mxfp8] {
        let moe = Moe::new(dims, format, 1);
        let experts = moe.row_major();
        let Rows::Bf16(x) = Rows::new(Precision::Bf16, MOST, dims.hidden, 2) else { unreachable!("asked for BF16") };
        let first = |rows: usize| -> Rows { Rows::Bf16(x[..rows * dims.hidden].to_vec()) };
        let expected = expected_grouped(&moe, &first(MOST), &[0, MOST as i32]);
        for level in levels() {
            let counts = if level.is_emulated() { FEW.to_vec() } else { (0..=MOST).collect() };
            let call = |rows: usize| grouped(level, &pool, &dims, &first(rows), &experts, &[0, rows as i32]).unwrap();
            // A row does not depend on its company, so one call is enough to compare with the reference.
            let most = call(*counts.last().unwrap());
            let shape = [most.len() / dims.hidden, dims.hidden];
            assert_close(&format!("{format} at {level}"), &most, &expected[..most.len()], &shape, BF16_TOLERANCE);
            for rows in counts {
                let what = format!("{rows} rows, {format} at {level}");
                assert_same_bits(&what, &call(rows), &most[..rows * dims.hidden], &[rows, dims.hidden]);
            }
        }
    }
}

/// Columns of wider arrays: the operator takes any strides, and writes between them only.
#[test]
fn strided_views() {
    use ndarray::{Array2, ArrayView1, Axis, Slice};

    let dims = dims(3, 70, 40, Activation::SWIGLU_OAI);
    let (level, pool) = (cpu_tiles::Level::best(), pool(2));
    let moe = Moe::new(dims, Format::Bf16, 3);
    let cumsum = [0, 2, 2, 9];
    let rows = Rows::new(Precision::Bf16, 9, dims.hidden, 4);
    let expected = grouped(level, &pool, &dims, &rows, &moe.row_major(), &cumsum).unwrap();

    let sentinel = bf16::from_f32(-123.0);
    let mut wide = Array2::from_elem((9, 2 * dims.hidden), sentinel);
    let x = rows.array(dims.hidden).mapv(bf16::from_f32).reversed_axes().as_standard_layout().into_owned();
    grouped_gemm::grouped_gemm(
        level,
        &pool,
        &dims,
        x.t(),
        &moe.row_major(),
        ArrayView1::from(&cumsum),
        wide.slice_axis_mut(Axis(1), Slice::from(1..).step_by(2)),
    )
    .unwrap();
    for (at, value) in wide.indexed_iter() {
        let (row, column) = at;
        let expected = match column % 2 {
            0 => sentinel,
            _ => bf16::from_f32(expected[row * dims.hidden + column / 2]),
        };
        assert_eq!(*value, expected, "at {at:?}");
    }
}
