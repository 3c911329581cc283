// SPDX-License-Identifier: MIT OR Apache-2.0

//! Norms, rotation and router against the golden data of single operators.

use cpu_tiles::{Acts, Level, Pool, Precision, ShapeError, WeightRef, linear};
use model_minimax::model::norm::RmsNorm;
use model_minimax::model::rope::Rope;
use model_minimax::model::router::route;
use op_testkit::compare::{Tolerance, assert_close};
use op_testkit::golden::Ops;
use op_testkit::safetensors::Tensor;

const EPS: f32 = 1e-6;

fn f32_of_bf16(tensor: &Tensor<'_>) -> Vec<f32> {
    tensor.bf16().unwrap().iter().map(|x| x.to_f32()).collect()
}

fn one_plus(weight: &[f32]) -> Vec<f32> {
    weight.iter().map(|w| 1.0 + w).collect()
}

fn check_norm(what: &str, weight: Vec<f32>, x: &[f32], width: usize, expected: &Tensor<'_>) {
    let norm = RmsNorm::new(weight, EPS);
    for level in Level::available() {
        let mut out = x.to_vec();
        out.chunks_exact_mut(width).for_each(|row| norm.normalize(level, row));
        let what = format!("{what} at {level}");
        assert_close(&what, &out, &expected.f32().unwrap(), expected.shape(), Tolerance::abs(1e-5));
    }
}

#[test]
fn golden_norms() {
    let ops = Ops::open("norm_rope").unwrap();
    let rms = ops.case("rms").unwrap();
    let tensor = |name| rms.tensor(name).unwrap();
    let x = f32_of_bf16(&tensor("x"));
    check_norm("plain", f32_of_bf16(&tensor("weight")), &x, 256, &tensor("out_plain"));
    check_norm("gemma", one_plus(&f32_of_bf16(&tensor("weight_gemma"))), &x, 256, &tensor("out_gemma"));
}

#[test]
fn golden_qk_norms() {
    let ops = Ops::open("norm_rope").unwrap();
    let qk = ops.case("qk").unwrap();
    let tensor = |name| qk.tensor(name).unwrap();
    let q = f32_of_bf16(&tensor("q"));
    check_norm("per layer", f32_of_bf16(&tensor("weight_per_layer")), &q, 384, &tensor("out_per_layer"));
    check_norm("per head", one_plus(&f32_of_bf16(&tensor("weight_per_head"))), &q, 384, &tensor("out_per_head"));
}

#[test]
fn golden_rotation() {
    let ops = Ops::open("norm_rope").unwrap();
    let case = ops.case("rope").unwrap();
    let positions = case.tensor("positions").unwrap().i64().unwrap();
    let mut rope = Rope::new(5e6, 64);
    assert_eq!(rope.frequencies(), case.tensor("inv_freq").unwrap().f32().unwrap());
    // In two steps, as a sequence grows.
    rope.extend(100);
    rope.extend(*positions.iter().max().unwrap() as usize + 1);

    let qk = ops.case("qk").unwrap();
    let mut out = qk.tensor("out_per_head").unwrap().f32().unwrap();
    for (heads, &position) in out.chunks_exact_mut(3 * 128).zip(&positions) {
        heads.chunks_exact_mut(128).for_each(|head| rope.rotate(position as usize, head));
    }
    // An angle in F64 would be 3e-3 off at the last position.
    let expected = case.tensor("out").unwrap();
    assert_close("rotated", &out, &expected.f32().unwrap(), expected.shape(), Tolerance::abs(5e-4));
}

#[test]
fn golden_router() {
    let ops = Ops::open("router").unwrap();
    let pool = Pool::new(3).unwrap();
    for (name, top_k) in [("m27", 8), ("m3", 4)] {
        let case = ops.case(name).unwrap();
        let tensor = |name| case.tensor(name).unwrap();
        let (hidden, gate) = (f32_of_bf16(&tensor("hidden")), tensor("gate_weight").f32().unwrap());
        let bias = tensor("e_score_correction_bias").f32().unwrap();
        let tokens = hidden.len() / 64;
        for level in Level::available() {
            let acts = Acts::from_f32(level, &pool, Precision::F32, tokens, 64, &hidden).unwrap();
            let gate = WeightRef::f32(bias.len(), 64, &gate).unwrap();
            let mut logits = vec![0.0; tokens * bias.len()];
            linear(&pool, &acts, gate.into(), &mut logits).unwrap();
            let expected = tensor("logits");
            let tolerance = Tolerance::abs(1e-5);
            assert_close(name, &logits, &expected.f32().unwrap(), expected.shape(), tolerance);

            let mut ids = vec![0; tokens * top_k];
            let mut weights = vec![0.0; ids.len()];
            route(level, &pool, &logits, &bias, top_k, &mut ids, &mut weights).unwrap();
            let expected: Vec<u32> = tensor("topk_ids").i32().unwrap().iter().map(|&id| id as u32).collect();
            assert_eq!(ids, expected, "{name} at {level}");
            let expected = tensor("topk_weights");
            assert_close(name, &weights, &expected.f32().unwrap(), expected.shape(), tolerance);
        }
    }
}

#[test]
fn the_bias_chooses_and_does_not_weigh_and_ties_go_to_the_lower_id() {
    let pool = Pool::new(1).unwrap();
    let (mut ids, mut weights) = ([0; 2], [0.0; 2]);
    route(Level::SCALAR, &pool, &[0.0; 5], &[0.0, 1.0, 0.0, 0.0, 0.0], 2, &mut ids, &mut weights).unwrap();
    assert_eq!((ids, weights), ([0, 1], [0.5, 0.5]));
    route(Level::SCALAR, &pool, &[f32::INFINITY, 0.0, 0.0, 9.0], &[0.0, 0.0, 2.0, 0.0], 2, &mut ids, &mut weights)
        .unwrap();
    assert_eq!((ids, weights), ([0, 2], [1.0 / 1.5, 0.5 / 1.5]));
}

#[test]
fn impossible_routes_are_refused() {
    let pool = Pool::new(1).unwrap();
    let call = |logits: usize, top_k: usize, ids: usize| {
        let (mut ids, logits) = (vec![0; ids], vec![0.0; logits]);
        let mut weights = vec![0.0; ids.len()];
        route(Level::SCALAR, &pool, &logits, &[0.0; 4], top_k, &mut ids, &mut weights).unwrap_err()
    };
    assert!(matches!(call(8, 5, 10), ShapeError::Mismatch { expected: 4, found: 5, .. }));
    assert!(matches!(call(8, 0, 0), ShapeError::Mismatch { found: 0, .. }));
    assert!(matches!(call(9, 2, 4), ShapeError::Length { argument: "logits", .. }));
    assert!(matches!(call(8, 2, 5), ShapeError::Length { argument: "ids", .. }));
}
