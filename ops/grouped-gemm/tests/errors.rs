// SPDX-License-Identifier: MIT OR Apache-2.0

//! Every check with its message, and what no refused call touches.

use crate::fixture::{Matrix, Moe, Rows, dims, pool};
use cpu_tiles::weights::ShapeError;
use cpu_tiles::{E8M0, F8E4M3, Format, Level, Precision};
use grouped_gemm::{
    Activation, Error, Expert, Experts, GateUp, MoeDims, Tokens, convert_minimax_weights, gate_up_halves, grouped_gemm,
    grouped_gemm_f32, moe_ffn, moe_ffn_eager, reference,
};
use half::bf16;
use ndarray::{Array1, Array2, Array3};
use std::sync::atomic::{AtomicUsize, Ordering};

const HIDDEN: usize = 8;
const OUT: f32 = -77.0;

fn small() -> MoeDims {
    dims(3, HIDDEN, 4, Activation::Silu)
}

fn moe() -> Moe {
    Moe::new(small(), Format::Bf16, 1)
}

fn message<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().to_string()
}

/// The message of `grouped_gemm_f32`, which must be that of `grouped_gemm` too; the output stays as it was.
fn grouped(dims: MoeDims, tokens: usize, experts: &[Expert<'_>], cumsum: &[i32]) -> String {
    let x = vec![bf16::ONE; tokens * HIDDEN];
    let mut out = vec![OUT; tokens * HIDDEN];
    let in_f32 = message(grouped_gemm_f32(Level::SCALAR, &pool(1), &dims, Tokens::Bf16(&x), experts, cumsum, &mut out));
    assert!(out.iter().all(|&value| value == OUT), "{in_f32}: the output was touched");

    let x = Array2::from_elem((tokens, HIDDEN), bf16::ONE);
    let mut out = Array2::from_elem((tokens, HIDDEN), bf16::from_f32(OUT));
    let cumsum = Array1::from_vec(cumsum.to_vec());
    let in_bf16 =
        message(grouped_gemm(Level::SCALAR, &pool(1), &dims, x.view(), experts, cumsum.view(), out.view_mut()));
    assert!(out.iter().all(|&value| value == bf16::from_f32(OUT)), "{in_bf16}: the output was touched");
    assert_eq!(in_bf16, in_f32);
    in_f32
}

/// The message of `moe_ffn`, which must be that of `moe_ffn_eager` too; the output stays as it was.
fn combined(dims: MoeDims, tokens: usize, experts: &[Expert<'_>], ids: &[u32], weights: &[f32]) -> String {
    let x = vec![1.0; tokens * HIDDEN];
    let mut out = vec![OUT; tokens * HIDDEN];
    let (pool, x) = (pool(1), Tokens::F32(&x));
    let fused = message(moe_ffn(Level::SCALAR, &pool, &dims, x, experts, ids, weights, &mut out));
    let eager = message(moe_ffn_eager(Level::SCALAR, &pool, &dims, x, experts, ids, weights, &mut out));
    assert!(out.iter().all(|&value| value == OUT), "{fused}: the output was touched");
    assert_eq!(eager, fused);
    fused
}

#[test]
fn dims_that_cannot_be() {
    let moe = moe();
    let experts = moe.row_major();
    let zero = |change: fn(&mut MoeDims)| {
        let mut dims = small();
        change(&mut dims);
        assert_eq!(grouped(dims, 0, &experts, &[0; 4]), combined(dims, 0, &experts, &[], &[]));
        grouped(dims, 0, &experts, &[0; 4])
    };
    assert_eq!(zero(|dims| dims.experts = 0), "`dims.experts` is 0, expected at least 1");
    assert_eq!(zero(|dims| dims.hidden = 0), "`dims.hidden` is 0, expected at least 1");
    assert_eq!(zero(|dims| dims.intermediate = 0), "`dims.intermediate` is 0, expected at least 1");
    assert_eq!(
        zero(|dims| dims.activation = Activation::SwigluOai { alpha: f32::NAN, limit: 7.0 }),
        "`dims.activation`: alpha is NaN, expected a finite number"
    );
    assert_eq!(
        zero(|dims| dims.activation = Activation::SwigluOai { alpha: 1.702, limit: 0.0 }),
        "`dims.activation`: limit is 0, expected a positive finite number"
    );
}

#[test]
fn activation_names() {
    assert_eq!("silu".parse::<Activation>().unwrap(), Activation::Silu);
    assert_eq!("swigluoai".parse::<Activation>().unwrap(), Activation::SWIGLU_OAI);
    assert_eq!(Activation::SWIGLU_OAI.to_string(), "swigluoai");
    assert_eq!(message("gelu".parse::<Activation>()), "activation is `gelu`, expected `silu` or `swigluoai`");
}

#[test]
fn shapes_of_the_published_operator() {
    let (moe, pool) = (moe(), pool(1));
    let refused = |tokens: (usize, usize), cumsum: usize, result: (usize, usize)| {
        let x = Array2::from_elem(tokens, bf16::ONE);
        let mut out = Array2::from_elem(result, bf16::ONE);
        let cumsum = Array1::zeros(cumsum);
        message(grouped_gemm(Level::SCALAR, &pool, &small(), x.view(), &moe.row_major(), cumsum.view(), out.view_mut()))
    };
    assert_eq!(refused((2, 7), 4, (2, 7)), "`sorted_tokens` has shape [2, 7], expected [2, 8]");
    assert_eq!(refused((2, 8), 4, (3, 8)), "`result` has shape [3, 8], expected [2, 8]");
    assert_eq!(refused((2, 8), 3, (2, 8)), "`expert_cumsum` has 3 elements, expected those of the shape [4]");
}

#[test]
fn lengths_of_slices() {
    let (moe, pool) = (moe(), pool(1));
    let refused = |tokens: usize, out: usize| {
        let (x, mut out) = (vec![1.0; tokens], vec![0.0; out]);
        let (experts, tokens) = (moe.row_major(), Tokens::F32(&x));
        let in_groups = message(grouped_gemm_f32(Level::SCALAR, &pool, &small(), tokens, &experts, &[0; 4], &mut out));
        assert_eq!(message(moe_ffn(Level::SCALAR, &pool, &small(), tokens, &experts, &[], &[], &mut out)), in_groups);
        in_groups
    };
    assert_eq!(refused(15, 16), "`tokens` has 15 elements, expected a multiple of 8, the hidden size");
    assert_eq!(refused(16, 17), "`out` has 17 elements, expected those of the shape [2, 8]");
}

#[test]
fn expert_cumsum_is_fully_checked() {
    let moe = moe();
    let refused = |cumsum: &[i32]| grouped(small(), 5, &moe.row_major(), cumsum);
    assert_eq!(refused(&[]), "`expert_cumsum` has 0 elements, expected those of the shape [4]");
    assert_eq!(refused(&[0, 1, 2, 3, 5]), "`expert_cumsum` has 5 elements, expected those of the shape [4]");
    assert_eq!(refused(&[1, 2, 3, 5]), "`expert_cumsum` begins with 1, expected 0");
    assert_eq!(refused(&[-1, 2, 3, 5]), "`expert_cumsum` begins with -1, expected 0");
    assert_eq!(refused(&[0, 4, 3, 5]), "`expert_cumsum` gives expert 1 the rows 4..3, expected no decrease");
    assert_eq!(refused(&[0, -4, 3, 5]), "`expert_cumsum` gives expert 0 the rows 0..-4, expected no decrease");
    assert_eq!(refused(&[0, 1, 3, 4]), "`expert_cumsum` ends with 4, expected 5, the number of tokens");
    assert_eq!(refused(&[0, 1, 3, 6]), "`expert_cumsum` ends with 6, expected 5, the number of tokens");
}

#[test]
fn choices_are_fully_checked() {
    let moe = moe();
    let refused = |ids: &[u32], weights: usize| combined(small(), 2, &moe.row_major(), ids, &vec![1.0; weights]);
    assert_eq!(refused(&[0, 1, 2], 3), "`topk_ids` has 3 elements, expected a multiple of 2, the number of tokens");
    assert_eq!(refused(&[], 0), "`topk_ids` has 0 experts per token, expected 1 to 3");
    assert_eq!(refused(&[0, 1, 2, 0, 0, 1, 2, 0], 8), "`topk_ids` has 4 experts per token, expected 1 to 3");
    assert_eq!(refused(&[0, 1, 2, 0], 3), "`topk_weights` has 3 elements, expected those of the shape [2, 2]");
    assert_eq!(refused(&[0, 1, 2, 3], 4), "`topk_ids` routes token 1 to expert 3, expected less than 3");
    assert_eq!(refused(&[0, u32::MAX], 2), "`topk_ids` routes token 1 to expert 4294967295, expected less than 3");
    assert_eq!(
        refused(&[0, 1, 2, 2], 4),
        "`topk_ids` routes token 1 to expert 2 more than once, expected distinct experts"
    );
    let of_none = combined(small(), 0, &moe.row_major(), &[0], &[1.0]);
    assert_eq!(of_none, "`topk_ids` has 1 elements, expected a multiple of 0, the number of tokens");
}

#[test]
fn experts_and_their_weights() {
    let moe = moe();
    let experts = moe.row_major();
    let count = "`experts` has 2 experts, expected 3, as `dims.experts` says";
    assert_eq!(grouped(small(), 5, &experts[..2], &[0, 1, 2, 5]), count);
    assert_eq!(combined(small(), 1, &experts[..2], &[0], &[1.0]), count);
    // Absurd sizes are refused as well, before anything is allocated for them.
    let mut absurd = small();
    absurd.experts = usize::MAX;
    assert_eq!(
        combined(absurd, 1, &experts, &[0], &[1.0]),
        format!("`experts` has 3 experts, expected {}, as `dims.experts` says", usize::MAX)
    );
    assert_eq!(
        grouped(absurd, 1, &experts, &[0, 1]),
        format!("`expert_cumsum` has 2 elements, expected those of the shape [{}]", usize::MAX)
    );

    let wrong = Matrix::new(Format::Bf16, 4, 9, 1, 1.0);
    for (weight, expected) in [
        ("gate", "`experts[1].gate` has shape [4, 9], expected [4, 8]"),
        ("up", "`experts[1].up` has shape [4, 9], expected [4, 8]"),
        ("down", "`experts[1].down` has shape [4, 9], expected [8, 4]"),
    ] {
        let mut experts = experts.clone();
        let field = match weight {
            "gate" => &mut experts[1].gate,
            "up" => &mut experts[1].up,
            _ => &mut experts[1].down,
        };
        *field = wrong.weight().into();
        assert_eq!(grouped(small(), 5, &experts, &[0, 1, 2, 5]), expected);
        assert_eq!(combined(small(), 1, &experts, &[1], &[1.0]), expected);
        // An expert without rows is not looked at.
        let (x, mut out) = (vec![1.0; HIDDEN], vec![OUT; HIDDEN]);
        grouped_gemm_f32(Level::SCALAR, &pool(1), &small(), Tokens::F32(&x), &experts, &[0, 1, 1, 1], &mut out)
            .unwrap();
    }
}

/// A collection that maps weights on demand is asked for the experts with rows, once each.
#[test]
fn only_experts_with_rows_are_asked_for() {
    struct Lazy<'a> {
        experts: Vec<Expert<'a>>,
        asked: [AtomicUsize; 3],
    }
    impl Experts for Lazy<'_> {
        fn expert(&self, index: usize) -> Expert<'_> {
            self.asked[index].fetch_add(1, Ordering::Relaxed);
            self.experts[index]
        }
    }
    let moe = moe();
    let lazy = Lazy { experts: moe.row_major(), asked: Default::default() };
    let rows = Rows::new(Precision::F32, 3, HIDDEN, 2);
    let mut out = vec![OUT; 3 * HIDDEN];
    let pool = pool(2);
    grouped_gemm_f32(Level::SCALAR, &pool, &small(), rows.tokens(), &lazy, &[0, 0, 3, 3], &mut out).unwrap();
    moe_ffn(Level::SCALAR, &pool, &small(), rows.tokens(), &lazy, &[2, 2, 2], &[1.0; 3], &mut out).unwrap();
    assert_eq!(lazy.asked.map(AtomicUsize::into_inner), [0, 1, 1]);
}

#[test]
fn fused_gate_and_up() {
    let codes = vec![F8E4M3::from_bits(0x38); 2 * 128 * 200];
    let scales = vec![1.0; 2 * 2];
    let halves = |intermediate, codes, scales| gate_up_halves(intermediate, 200, GateUp::Fp8Block { codes, scales });
    let (gate, up) = halves(128, &codes, &scales).unwrap();
    assert_eq!([gate.n(), gate.k(), up.n(), up.k()], [128, 200, 128, 200]);
    assert_eq!(
        message(halves(100, &codes, &scales)),
        "`gate_up` is FP8 with 128 x 128 blocks and intermediate size 100, expected a multiple of 128"
    );
    assert_eq!(
        message(halves(128, &codes[1..], &scales)),
        "`gate_up` has 51199 elements, expected those of the shape [2, 128, 200]"
    );
    assert_eq!(
        message(halves(128, &codes, &scales[1..])),
        "`gate_up scales` has 3 elements, expected those of the shape [2, 1, 2]"
    );
    let scales = vec![E8M0::from_bits(127); 2 * 128 * 6];
    let mx = GateUp::Mxfp8 { codes: &codes, scales: &scales };
    assert_eq!(
        message(gate_up_halves(128, 200, mx)),
        "`gate_up scales` has 1536 elements, expected those of the shape [2, 128, 7]"
    );
    assert_eq!(
        message(gate_up_halves(usize::MAX, 200, GateUp::F32(&[]))),
        format!("`gate_up` has 0 elements, expected those of the shape [2, {}, 200]", usize::MAX)
    );
}

/// Halves of a fused tensor are the rows of gate, then those of up, with their scales.
#[test]
fn fused_experts_equal_separate_ones() {
    for format in [Format::F32, Format::Bf16, Format::Fp8Block, Format::Mxfp8] {
        use crate::fixture::{Values, grouped};
        let dims = dims(1, 72, 128, Activation::Silu);
        let moe = Moe::new(dims, format, 4);
        let fused = |[gate, up, down]: [Matrix; 3]| match (gate.values, up.values) {
            (Values::F32(gate), Values::F32(up)) => (Values::F32([gate, up].concat()), down),
            (Values::Bf16(gate), Values::Bf16(up)) => (Values::Bf16([gate, up].concat()), down),
            (Values::Fp8Block { codes, scales }, Values::Fp8Block { codes: up, scales: of_up }) => {
                (Values::Fp8Block { codes: [codes, up].concat(), scales: [scales, of_up].concat() }, down)
            }
            (Values::Mxfp8 { codes, scales }, Values::Mxfp8 { codes: up, scales: of_up }) => {
                (Values::Mxfp8 { codes: [codes, up].concat(), scales: [scales, of_up].concat() }, down)
            }
            _ => unreachable!("gate and up have one format"),
        };
        let (gate_up, down) = fused(moe.experts[0].clone());
        let gate_up = match &gate_up {
            Values::F32(values) => GateUp::F32(values),
            Values::Bf16(values) => GateUp::Bf16(values),
            Values::Fp8Block { codes, scales } => GateUp::Fp8Block { codes, scales },
            Values::Mxfp8 { codes, scales } => GateUp::Mxfp8 { codes, scales },
        };
        let expert = Expert::from_fused(&dims, gate_up, down.weight()).unwrap();
        let rows = Rows::new(Precision::F32, 3, dims.hidden, 5);
        let [separate, fused] = [moe.row_major(), vec![expert]]
            .map(|experts| grouped(Level::best(), &pool(1), &dims, &rows, &experts, &[0, 3]).unwrap());
        assert_eq!(fused, separate, "{format}");
    }
}

#[test]
fn weights_to_convert() {
    let gate_up = Array3::<f32>::zeros((2, 5, 3));
    let down = Array3::zeros((2, 3, 2));
    assert_eq!(
        message(convert_minimax_weights(gate_up.view(), down.view())),
        "`gate_up_proj` has shape [2, 5, 3], expected [2, 4, 3]"
    );
}

#[test]
fn the_reference_checks_too() {
    let dims = small();
    let weights = (Array3::<f32>::zeros((3, 8, 8)), Array3::<f32>::zeros((3, 8, 4)));
    let call = |tokens: (usize, usize), gate_up: &Array3<f32>, down: &Array3<f32>, ids: (usize, usize), of: usize| {
        message(reference::moe_ffn(
            &dims,
            Precision::F32,
            Array2::<f32>::zeros(tokens).view(),
            gate_up.view(),
            down.view(),
            Array2::zeros(ids).view(),
            Array2::zeros((ids.0, of)).view(),
        ))
    };
    let (gate_up, down) = &weights;
    assert_eq!(call((2, 7), gate_up, down, (2, 1), 1), "`tokens` has shape [2, 7], expected [2, 8]");
    assert_eq!(call((2, 8), down, down, (2, 1), 1), "`gate_up_proj` has shape [3, 8, 4], expected [3, 8, 8]");
    assert_eq!(call((2, 8), gate_up, gate_up, (2, 1), 1), "`down_proj` has shape [3, 8, 8], expected [3, 8, 4]");
    assert_eq!(call((2, 8), gate_up, down, (3, 1), 1), "`topk_ids` has shape [3, 1], expected [2, 1]");
    assert_eq!(call((2, 8), gate_up, down, (2, 1), 2), "`topk_weights` has shape [2, 2], expected [2, 1]");
    assert_eq!(
        call((2, 8), gate_up, down, (2, 2), 2),
        "`topk_ids` routes token 0 to expert 0 more than once, expected distinct experts"
    );
    let cumsum = Array1::from_vec(vec![0, 0, 0, 1]);
    let x = Array2::<f32>::zeros((2, 8));
    assert_eq!(
        message(reference::grouped_gemm(&dims, Precision::F32, x.view(), gate_up.view(), down.view(), cumsum.view())),
        "`expert_cumsum` ends with 1, expected 2, the number of tokens"
    );
}

#[test]
fn an_error_of_the_tiles_keeps_its_source() {
    let error = Error::from(ShapeError::Mismatch { what: "columns of the activations", expected: 8, found: 9 });
    assert_eq!(error.to_string(), "the CPU tiles failed: columns of the activations is 9, expected 8");
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.to_string(), "columns of the activations is 9, expected 8");
}
