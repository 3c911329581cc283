// SPDX-License-Identifier: MIT OR Apache-2.0

//! Golden data that is not a problem of the conformance suite: the activation alone, the oracle, the flat weight
//! layout.

use crate::fixture::{BF16_TOLERANCE, levels};
use cpu_tiles::{Precision, math};
use grouped_gemm::{Activation, MoeDims, convert_minimax_weights, reference};
use half::bf16;
use ndarray::{Array, Array1, Array2, Array3, Axis, Dimension};
use op_testkit::compare::{Tolerance, UlpUnit, assert_close, assert_same_bits};
use op_testkit::golden::{Case, Ops};

const ACTIVATION_TOLERANCE: Tolerance = Tolerance { abs: 1e-6, rel: 1e-5, rel_to_max: 0.0 };

fn bf16_array<D: Dimension>(case: &Case<'_>, name: &str) -> Array<bf16, D> {
    let tensor = case.tensor(name).unwrap();
    let values = Array1::from_vec(tensor.bf16().unwrap());
    values.into_shape_with_order(tensor.shape()).unwrap().into_dimensionality().unwrap()
}

pub(crate) fn dims(case: &Case<'_>) -> MoeDims {
    MoeDims {
        experts: case.usize("E").unwrap(),
        hidden: case.usize("H").unwrap(),
        intermediate: case.usize("I").unwrap(),
        activation: case.str("activation").unwrap().parse().unwrap(),
    }
}

#[test]
fn activation_of_the_oracle_and_of_every_level() {
    let ops = Ops::open("activation").unwrap();
    let case = ops.case("activation").unwrap();
    let [gate, up] = ["gate", "up"].map(|name| case.tensor(name).unwrap().f32().unwrap());
    for (name, kind) in [("silu_glu", Activation::Silu), ("swigluoai", Activation::SWIGLU_OAI)] {
        let expected = case.tensor(name).unwrap();
        let close = |who: &str, actual: &[f32]| {
            let what = format!("{name} of {who}");
            assert_close(&what, actual, &expected.f32().unwrap(), expected.shape(), ACTIVATION_TOLERANCE);
        };
        let oracle: Vec<f32> = gate.iter().zip(&up).map(|(&g, &u)| reference::activation(kind, g, u)).collect();
        close("the reference", &oracle);
        for level in levels() {
            let mut out = vec![f32::NAN; gate.len()];
            match kind {
                Activation::Silu => math::silu_glu(level, &gate, &up, &mut out),
                Activation::SwigluOai { alpha, limit } => math::swiglu_oai(level, alpha, limit, &gate, &up, &mut out),
            }
            close(level.name(), &out);
        }
    }
}

/// Values beyond the clamp on every side, each pair against F64.
#[test]
fn swigluoai_clamps_the_gate_from_above_only() {
    let values = [-1e4_f32, -8.0, -7.0, 0.0, 7.0, 8.0, 1e4];
    for gate in values {
        for up in values {
            let g = f64::from(gate).min(7.0);
            let u = f64::from(up).clamp(-7.0, 7.0);
            let expected = (u + 1.0) * g / (1.0 + (-f64::from(1.702_f32) * g).exp());
            let actual = reference::activation(Activation::SWIGLU_OAI, gate, up);
            assert!(
                (f64::from(actual) - expected).abs() <= 1e-6 + 1e-5 * expected.abs(),
                "gate {gate}, up {up}: {actual}, expected {expected}"
            );
        }
    }
}

/// The small cases through the oracle, with their intermediates: at most one neighbour in BF16, since the golden sums
/// are F32.
#[test]
fn the_oracle_gives_the_golden_data() {
    let ops = Ops::open("grouped_gemm").unwrap();
    let mut with_intermediates = 0;
    for case in ops.cases().filter(|case| case.usize("H").unwrap() <= 512) {
        let dims = dims(&case);
        let x: Array2<bf16> = bf16_array(&case, "x");
        let gate_up: Array3<bf16> = bf16_array(&case, "gate_up_proj");
        let down: Array3<bf16> = bf16_array(&case, "down_proj");
        let cumsum = Array1::from_vec(case.tensor("expert_cumsum").unwrap().i32().unwrap());
        let out = reference::grouped_gemm(&dims, Precision::Bf16, x.view(), gate_up.view(), down.view(), cumsum.view());
        let out = out.unwrap();
        let rounded: Vec<f32> = out.iter().map(|&sum| bf16::from_f32(sum).to_f32()).collect();
        let expected = case.tensor("out").unwrap();
        assert_close(case.name(), &rounded, &expected.f32().unwrap(), expected.shape(), BF16_TOLERANCE);

        if case.tensor_names().iter().any(|name| name == "act") {
            with_intermediates += 1;
            let expected = case.tensor("out_f32").unwrap();
            let sums: Vec<f32> = out.iter().copied().collect();
            let tolerance = Tolerance { abs: 0.0, rel: 0.0, rel_to_max: 2e-3 };
            assert_close(case.name(), &sums, &expected.f32().unwrap(), expected.shape(), tolerance);
            let act = case.tensor("act").unwrap().f32().unwrap();
            let mut at = 0;
            for expert in 0..dims.experts {
                let rows: Vec<usize> = (cumsum[expert] as usize..cumsum[expert + 1] as usize).collect();
                let gate_up = gate_up.index_axis(Axis(0), expert);
                let x = x.select(Axis(0), &rows);
                for actual in reference::intermediate(dims.activation, Precision::Bf16, x.view(), gate_up) {
                    assert!(
                        UlpUnit::Bf16.distance(actual, act[at]) <= 1,
                        "{}: act {at}: {actual}, {}",
                        case.name(),
                        act[at]
                    );
                    at += 1;
                }
            }
            assert_eq!(at, act.len());
        }
    }
    assert_eq!(with_intermediates, 2);
}

#[test]
fn flat_layout() {
    let ops = Ops::open("weight_layout").unwrap();
    let case = ops.case("weight_layout").unwrap();
    let gate_up: Array3<bf16> = bf16_array(&case, "gate_up_proj");
    let down: Array3<bf16> = bf16_array(&case, "down_proj");
    let (w13, w2) = convert_minimax_weights(gate_up.view(), down.view()).unwrap();
    for (name, flat) in [("w13_flat", &w13), ("w2_flat", &w2)] {
        let expected = case.tensor(name).unwrap();
        assert_eq!(flat.shape(), expected.shape(), "{name}");
        assert_same_bits(name, flat.as_slice().unwrap(), &expected.bf16().unwrap(), expected.shape());
    }

    // Any element type and any strides give the same.
    let bits = |array: &Array3<bf16>| array.mapv(bf16::to_bits);
    let strided = gate_up.view().permuted_axes([2, 0, 1]).as_standard_layout().into_owned();
    let (w13_bits, w2_bits) =
        convert_minimax_weights(bits(&strided).view().permuted_axes([1, 2, 0]), bits(&down).view()).unwrap();
    assert_eq!(w13_bits, w13.mapv(bf16::to_bits));
    assert_eq!(w2_bits, w2.mapv(bf16::to_bits));
}
