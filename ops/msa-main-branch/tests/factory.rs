// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the published factory's operator does beyond the calls that it makes: casts, and arrays of any strides.

use crate::fixture::{Gathered, KINDS, Kind, Lists, Sequence, Values, dims, mask_of_positions, pool, run, run_masked};
use cpu_tiles::Level;
use half::{bf16, f16};
use msa_main_branch::{MainBranchConfig, RowDefined};
use ndarray::{Array3, Array4, ArrayView4};
use op_testkit::compare::assert_same_bits;
use std::process::Command;

const CHILD: &str = "MSA_MAIN_BRANCH_TEST_RUNS_DTYPE";
const N: usize = 21;
const IDS: [i32; 4] = [0, 2, 1, -1];

/// The values rounded to a number format.
fn cast(values: &Values, kind: Kind) -> Values {
    let values = values.wide().into_iter();
    match kind {
        Kind::F32 => Values::F32(values.collect()),
        Kind::F16 => Values::F16(values.map(f16::from_f32).collect()),
        Kind::Bf16 => Values::Bf16(values.map(bf16::from_f32).collect()),
    }
}

/// The same values in an array whose axes lie in reverse order.
fn reversed(values: &[f32], shape: [usize; 3]) -> Array3<f32> {
    let array = Array3::from_shape_vec(shape, values.to_vec()).unwrap();
    let reversed = array.t().as_standard_layout().into_owned().reversed_axes();
    assert!(!reversed.is_standard_layout() && reversed == array);
    reversed
}

/// Runs the factory's operator in this process's environment, in both forms, on strided and on plain arrays.
fn check(kind: Kind) {
    let dims = dims(6, 3, 20, 8);
    let config = MainBranchConfig { hq: 6, hkv: 3, dh: 20, bk: 8, topk: 4, max_n: None };
    let main_branch = config.build().unwrap();
    let sequence = Sequence::new(dims, Kind::F32, 0, N, 0, 3);
    // What lies in places of no token has no effect.
    let gathered = sequence.gathered(&IDS);
    let (level, pool) = (Level::best(), pool(2));

    let q = cast(&sequence.q, kind);
    let rounded =
        Gathered { keys: cast(&gathered.keys, kind), values: cast(&gathered.values, kind), ids: IDS.to_vec() };
    let mask = mask_of_positions(N, 8, &IDS);
    let masked = run_masked(level, &dims, q.data(), &rounded, &mask).unwrap();
    let query = msa_main_branch::Query { data: q.data(), start: 0 };
    let by_position = run(level, &pool, &dims, query, rounded.get(), Lists::All.get()).unwrap();

    let query = reversed(&sequence.q.wide(), [N, 6, 20]);
    let [keys, values] = [&gathered.keys, &gathered.values].map(|values| {
        // NaN is no value to compare arrays by.
        let values: Vec<f32> = values.wide().iter().map(|x| if x.is_nan() { -9.0 } else { *x }).collect();
        reversed(&values, [32, 3, 20])
    });
    let shape = (N.div_ceil(8), 4, 8, 8);
    let mask = ArrayView4::from_shape(shape, &mask).unwrap();
    let strided_mask: Array4<f32> = mask.t().as_standard_layout().into_owned().reversed_axes();

    let same = |what: &str, out: &Array3<f32>, defined: RowDefined, expected: &(Vec<f32>, RowDefined)| {
        let out: Vec<f32> = out.iter().copied().collect();
        assert_same_bits(what, &out, &expected.0, &[N, 6, 20]);
        assert_eq!(defined, expected.1, "{what}");
    };
    for is_strided in [false, true] {
        let contiguous = |array: &Array3<f32>| array.as_standard_layout().into_owned();
        let mut out = if is_strided { Array3::zeros((20, 6, N)).reversed_axes() } else { Array3::zeros((N, 6, 20)) };
        let [query, keys, values] =
            [&query, &keys, &values].map(|array| if is_strided { array.clone() } else { contiguous(array) });
        let (query, keys, values) = (query.view(), keys.view(), values.view());
        let mask = if is_strided { strided_mask.view() } else { mask };
        let defined = main_branch.run(level, &pool, query, keys, values, mask, out.view_mut()).unwrap();
        same("masked", &out, defined, &masked);
        out.fill(f32::NAN);
        let defined = main_branch.run_by_position(level, &pool, query, keys, values, &IDS, out.view_mut()).unwrap();
        same("by position", &out, defined, &by_position);
    }
}

/// Each number format in a process of its own: variables are shared by all threads of one.
#[test]
fn casts_and_strides() {
    if let Some(kind) = std::env::var_os(CHILD) {
        let kind = KINDS.into_iter().find(|of_child| kind == *format!("{of_child:?}")).unwrap();
        check(kind);
        println!("checked: {kind:?}");
        return;
    }
    for (dtype, tile, kind) in [("", "", Kind::F32), ("fp16", "4", Kind::F16), ("bf16", "1", Kind::Bf16)] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "factory::casts_and_strides", "--nocapture"]);
        child.env(CHILD, format!("{kind:?}")).env("MSA_DTYPE", dtype).env("MSA_NQ_TILE", tile);
        child.env_remove("MSA_MAX_N").env_remove("MSA_NTILE");
        let output = child.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(&format!("checked: {kind:?}")), "{text}\n{errors}");
    }
}
