// SPDX-License-Identifier: MIT OR Apache-2.0

//! Accuracy over every BF16 value, against F64, and the laws of the row functions.

use crate::support::levels;
use cpu_tiles::Level;
use cpu_tiles::math::{
    EXP_MAX_ULP, SIGMOID_MAX_ULP, SILU_MAX_ULP, add_scaled, exp, exp_minus_max, scale, sigmoid, silu, silu_glu,
    sum_of_squares, swiglu_oai,
};
use half::bf16;
use op_testkit::compare::{Tolerance, assert_close};
use op_testkit::fill_f32;
use op_testkit::golden::Ops;

fn all_bf16() -> Vec<f32> {
    (0..=u16::MAX).map(|bits| bf16::from_bits(bits).to_f32()).collect()
}

/// Units in the last place of `exact` as an F32 number; subnormals have the unit 2^-149.
fn ulps(found: f32, exact: f64) -> f64 {
    let exponent = (exact.abs().log2().floor() as i32).clamp(-126, 127);
    (f64::from(found) - exact).abs() / 2.0_f64.powi(exponent - 23)
}

/// The worst error over the BF16 values from `from` on, subnormal results of `exp` allowed one unit more for the second
/// rounding.
fn check(function: fn(Level, &[f32], &mut [f32]), exact: fn(f64) -> f64, from: f32, bound: f64) {
    let x: Vec<f32> = all_bf16().into_iter().filter(|x| x.is_nan() || *x >= from).collect();
    for level in levels() {
        let mut out = vec![0.0; x.len()];
        function(level, &x, &mut out);
        let mut worst = (0.0, 0.0);
        for (&x, &found) in x.iter().zip(&out) {
            let exact = exact(f64::from(x));
            let expected = exact as f32;
            if !expected.is_finite() || (expected == 0.0 && found == 0.0) {
                let same = found == expected || (found.is_nan() && expected.is_nan());
                assert!(same, "{level} at {x:e}: {found:e} for {expected:e}");
            } else {
                let error = ulps(found, exact) - if expected.abs() < f32::MIN_POSITIVE { 1.0 } else { 0.0 };
                worst = if error > worst.0 { (error, x) } else { worst };
            }
        }
        println!("{level}: worst {:.3} ULP at {:e}", worst.0, worst.1);
        assert!(worst.0 <= bound, "{level}: {} ULP at {:e}, bound {bound}", worst.0, worst.1);
    }
}

#[test]
fn exp_is_within_its_bound_for_every_bf16() {
    check(exp, f64::exp, f32::NEG_INFINITY, EXP_MAX_ULP);
}

#[test]
fn sigmoid_is_within_its_bound_for_every_bf16() {
    check(sigmoid, |x| 1.0 / (1.0 + (-x).exp()), -87.0, SIGMOID_MAX_ULP);
}

#[test]
fn silu_is_within_its_bound_for_every_bf16() {
    check(silu, |x| x / (1.0 + (-x).exp()), -88.5, SILU_MAX_ULP);
}

#[test]
fn far_below_zero_the_formulas_are_taken_literally() {
    let x: Vec<f32> = all_bf16().into_iter().filter(|x| *x < -89.0).collect();
    for level in levels() {
        let mut out = vec![1.0; x.len()];
        sigmoid(level, &x, &mut out);
        assert!(out.iter().all(|y| y.to_bits() == 0), "sigmoid on {level}");
        silu(level, &x, &mut out);
        for (&x, y) in x.iter().zip(&out) {
            let expected = if x == f32::NEG_INFINITY { y.is_nan() } else { y.to_bits() == 0x8000_0000 };
            assert!(expected, "silu on {level} at {x:e}: {y:e}");
        }
    }
}

#[test]
fn activations_have_the_golden_values() {
    let ops = Ops::open("activation").unwrap();
    let case = ops.case("activation").unwrap();
    let [gate, up, silu, oai] =
        ["gate", "up", "silu_glu", "swigluoai"].map(|name| case.tensor(name).unwrap().f32().unwrap());
    let tolerance = Tolerance { abs: 1e-6, rel: 1e-5, ..Tolerance::default() };
    for level in levels() {
        let mut out = vec![0.0; gate.len()];
        silu_glu(level, &gate, &up, &mut out);
        assert_close(&format!("silu_glu on {level}"), &out, &silu, &[out.len()], tolerance);
        swiglu_oai(level, 1.702, 7.0, &gate, &up, &mut out);
        assert_close(&format!("swigluoai on {level}"), &out, &oai, &[out.len()], tolerance);
    }
}

#[test]
fn swiglu_oai_clamps_the_gate_above_and_the_up_on_both_sides() {
    let edge = [-1e4, -8.0, -7.0, 0.0, 7.0, 8.0, 1e4_f32];
    let (gate, up): (Vec<_>, Vec<_>) = edge.iter().flat_map(|&g| edge.iter().map(move |&u| (g, u))).unzip();
    for level in levels() {
        let mut out = vec![0.0; gate.len()];
        swiglu_oai(level, 1.702, 7.0, &gate, &up, &mut out);
        for ((&g, &u), &found) in gate.iter().zip(&up).zip(&out) {
            let (g, u) = (f64::from(g).min(7.0), f64::from(u).clamp(-7.0, 7.0));
            let exact = (u + 1.0) * g / (1.0 + (-f64::from(1.702_f32) * g).exp());
            assert!(
                (f64::from(found) - exact).abs() <= 1e-6 * exact.abs() + 1e-12,
                "{level} ({g}, {u}): {found} for {exact}"
            );
        }
        let mut out = [0.0; 2];
        swiglu_oai(level, 1.702, 7.0, &[f32::NAN, 1.0], &[1.0, f32::NAN], &mut out);
        assert!(out[0].is_nan() && out[1].is_nan());
    }
}

#[test]
fn row_functions_agree_with_plain_sums_at_every_length() {
    for level in levels() {
        for len in 0..140 {
            let x = fill_f32(len as u64, len, 3.0);
            let exact: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
            assert!((f64::from(sum_of_squares(level, &x)) - exact).abs() <= 1e-6 * exact);

            let y = fill_f32(1000 + len as u64, len, 3.0);
            let mut sum = y.clone();
            add_scaled(level, 0.75, &x, &mut sum);
            let mut product = x.clone();
            scale(level, 0.75, &mut product);
            for i in 0..len {
                assert!((f64::from(sum[i]) - (0.75 * f64::from(x[i]) + f64::from(y[i]))).abs() < 1e-6);
                assert_eq!(product[i], 0.75 * x[i]);
            }

            let mut e = x.clone();
            let (max, total) = exp_minus_max(level, 1.5, &mut e);
            assert_eq!(max, x.iter().fold(1.5, |max, &x| f32::max(max, x)));
            let exact: Vec<f64> = x.iter().map(|&x| (f64::from(x) - f64::from(max)).exp()).collect();
            assert!((f64::from(total) - exact.iter().sum::<f64>()).abs() <= 1e-5);
            assert!(e.iter().zip(&exact).all(|(&e, exact)| (f64::from(e) - exact).abs() <= 1e-6));
        }
        let mut nothing = [f32::NEG_INFINITY; 21];
        assert_eq!(exp_minus_max(level, f32::NEG_INFINITY, &mut nothing), (f32::NEG_INFINITY, 0.0));
        assert_eq!(nothing, [0.0; 21]);
        let mut poisoned = [0.0, f32::NAN, 1.0];
        assert!(exp_minus_max(level, f32::NEG_INFINITY, &mut poisoned).1.is_nan());
    }
}
