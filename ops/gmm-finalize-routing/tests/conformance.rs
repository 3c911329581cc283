// SPDX-License-Identifier: MIT OR Apache-2.0

//! The problems of this operator, on every backend and SIMD level, the golden data among them.

use crate::fixture::{Call, DTYPES, Fp8, Shared, TOLERANCE, scales};
use cpu_tiles::{E8M0, F8E4M3, F8E5M2, Isa, Level};
use gmm_finalize_routing::{Dims, Dtype};
use op_testkit::compare::{Comparison, Tolerance, assert_close, assert_same_bits};
use op_testkit::conformance::{self, NotBuilt, Skip, Subject};
use op_testkit::golden::{Case, Ops};
use std::cell::OnceCell;

const OP: &str = "grouped_matmul_finalize_routing";

/// A problem; its input is made when it is asked for.
struct Problem {
    name: String,
    make: Box<dyn Fn() -> (Call, Vec<f32>)>,
    input: OnceCell<(Call, Vec<f32>)>,
}

impl Problem {
    fn new(name: String, make: impl Fn() -> (Call, Vec<f32>) + 'static) -> Self {
        Self { name, make: Box::new(make), input: OnceCell::new() }
    }

    fn input(&self) -> &(Call, Vec<f32>) {
        self.input.get_or_init(&self.make)
    }

    /// Both formats of a call that is made from one, with the result of the reference.
    fn both(name: &str, make: impl Fn(Dtype) -> Call + Copy + 'static) -> [Self; 2] {
        DTYPES.map(|dtype| {
            Self::new(format!("{name}_{dtype}"), move || {
                let call = make(dtype);
                let expected = call.expected();
                (call, expected)
            })
        })
    }
}

impl conformance::Problem for Problem {
    type Output = Vec<f32>;

    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self, output: &Vec<f32>, tolerance: Tolerance) -> Result<(), String> {
        let (call, expected) = self.input();
        Comparison::new(output, expected, &call.shape()).check(tolerance)
    }
}

fn golden(case: &Case<'_>) -> (Call, Vec<f32>) {
    let bytes = |name: &str| case.tensor(name).unwrap().bytes().to_vec();
    let codes = |name: &str| match case.str("in_dtype").unwrap() {
        "e4m3" => Fp8::E4M3(bytes(name).into_iter().map(F8E4M3::from_bits).collect()),
        _ => Fp8::E5M2(bytes(name).into_iter().map(F8E5M2::from_bits).collect()),
    };
    let scales = |name: &str| case.tensor(name).unwrap().u8().unwrap().into_iter().map(E8M0::from_bits).collect();
    let has = |key: &str| case.bool(key).unwrap();
    let call = Call {
        dims: Dims { experts: case.usize("E").unwrap(), k: case.usize("K").unwrap(), n: case.usize("N").unwrap() },
        x1: codes("x1"),
        pertoken_scale: scales("pertoken_scale"),
        x2: codes("x2"),
        transpose_x2: has("transpose_x2"),
        scale: scales("scale"),
        per_expert: false,
        group_list_type: case.usize("group_list_type").unwrap() as i64,
        group_list: case.tensor("group_list").unwrap().i64().unwrap(),
        row_index: case.tensor("row_index").unwrap().i64().unwrap(),
        logit: has("has_logit").then(|| case.tensor("logit").unwrap().f32().unwrap()),
        shared_input: has("has_shared_input").then(|| Shared {
            values: case.tensor("shared_input").unwrap().bf16().unwrap(),
            offset: case.usize("shared_input_offset").unwrap(),
            weight: case.f32("shared_input_weight").unwrap(),
        }),
        out: case.tensor("out_init").unwrap().f32().unwrap(),
    };
    assert_eq!([call.rows(), call.batch()], [case.usize("M").unwrap(), case.usize("batch").unwrap()]);
    (call, case.tensor("output").unwrap().f32().unwrap())
}

#[test]
fn the_oracle_gives_the_golden_data() {
    let ops = Ops::open(OP).unwrap();
    assert_eq!(ops.cases().count(), 9);
    for case in ops.cases() {
        let (call, expected) = golden(&case);
        let tolerance = Tolerance { abs: 0.0, rel: 0.0, rel_to_max: 5e-7 };
        assert_close(case.name(), &call.expected(), &expected, &call.shape(), tolerance);
    }
}

fn problems() -> Vec<Problem> {
    let dims = |experts, k, n| Dims { experts, k, n };
    let ops = Ops::open(OP).unwrap();
    let mut problems: Vec<_> = ops
        .case_names()
        .into_iter()
        .map(|name| {
            Problem::new(format!("golden_{name}"), move || golden(&Ops::open(OP).unwrap().case(&name).unwrap()))
        })
        .collect();
    problems.extend(Problem::both("uneven", move |dtype| Call::new(dtype, dims(5, 128, 70), &[0, 5, 1, 0, 14], 6, 1)));
    problems.extend(Problem::both("one_group_of_scales", move |dtype| Call::new(dtype, dims(2, 32, 8), &[3, 2], 4, 2)));
    problems.extend(Problem::both("odd_groups", move |dtype| Call::new(dtype, dims(3, 224, 65), &[7, 0, 4], 5, 3)));
    problems.extend(Problem::both("one_output", move |dtype| Call::new(dtype, dims(2, 64, 1), &[2, 9], 3, 4)));
    problems.extend(Problem::both("no_rows", move |dtype| Call::new(dtype, dims(3, 64, 33), &[0, 0, 0], 4, 5)));
    problems.extend(Problem::both("no_output_rows", move |dtype| Call::new(dtype, dims(2, 64, 33), &[0, 0], 0, 6)));
    problems.extend(Problem::both("one_takes_all", move |dtype| {
        let mut call = Call::new(dtype, dims(8, 96, 129), &[0, 0, 0, 37, 0, 0, 0, 0], 1, 7);
        call.logit = None;
        call
    }));
    problems.extend(Problem::both("many_experts", move |dtype| Call::new(dtype, dims(64, 64, 20), &[1; 64], 9, 8)));
    // Several chunks of inputs, few rows and many.
    problems.extend(Problem::both("deep", move |dtype| Call::new(dtype, dims(3, 2336, 66), &[2, 0, 17], 16, 9)));
    problems.extend(Problem::both("per_expert_scales", move |dtype| {
        let mut call = Call::new(dtype, dims(3, 160, 72), &[4, 5, 6], 7, 10);
        call.per_expert = true;
        call.scale = scales(11, 3 * 72 * 3 * 2);
        call
    }));
    problems.extend(Problem::both("in_other_layout", move |dtype| {
        Call::new(dtype, dims(3, 1120, 72), &[4, 5, 6], 7, 12).in_other_layout()
    }));
    problems
}

struct Cpu(Level);

impl Subject<Problem> for Cpu {
    fn tolerance(&self, _: &Problem) -> Tolerance {
        TOLERANCE
    }

    fn skips(&self) -> &[Skip] {
        &[]
    }

    /// In place and packed, which must agree in every bit.
    fn run(&self, problem: &Problem) -> Result<Vec<f32>, String> {
        let (call, _) = problem.input();
        let packed = call.pack(self.0);
        let (in_place, rows) = call.run_with(self.0, 2, call.weights()).map_err(|error| error.to_string())?;
        let (packed, _) = call.run_with(self.0, 2, &packed).map_err(|error| error.to_string())?;
        assert_eq!(rows, call.rows(), "rows multiplied");
        assert_same_bits("packed and in place", &packed, &in_place, &call.shape());
        Ok(in_place)
    }
}

fn on_cpu(isa: Isa) {
    let subject = Level::new(isa).map(Cpu).map_err(|error| NotBuilt(error.to_string()));
    conformance::run("gmm-finalize-routing", "cpu", isa.name(), subject, problems());
}

fn on_model(isa: Isa) {
    let level = Level::emulated(isa).expect("the AVX-512 levels have models");
    conformance::run("gmm-finalize-routing", "cpu", level.name(), Ok(Cpu(level)), problems());
}

/// The kernel on the twin of a chip.
#[cfg(feature = "sim")]
struct Twin(&'static str);

#[cfg(feature = "sim")]
impl Subject<Problem> for Twin {
    fn tolerance(&self, _: &Problem) -> Tolerance {
        TOLERANCE
    }

    fn skips(&self) -> &[Skip] {
        &[]
    }

    fn run(&self, problem: &Problem) -> Result<Vec<f32>, String> {
        let (call, _) = problem.input();
        let (out, status) = crate::device::run(self.0, call, call.options())?;
        assert_eq!(status, Default::default(), "a good call");
        Ok(out)
    }
}

#[cfg(feature = "sim")]
fn on_twin(backend: &str, chip: &'static str) {
    conformance::run("gmm-finalize-routing", backend, "-", Ok(Twin(chip)), problems());
}

#[cfg(not(feature = "sim"))]
fn not_built(backend: &str) {
    let reason = NotBuilt("the feature `sim` is off".into());
    conformance::run::<_, Cpu>("gmm-finalize-routing", backend, "-", Err(reason), problems());
}

#[test]
fn cpu_scalar() {
    on_cpu(Isa::Scalar);
}

#[test]
fn cpu_avx2() {
    on_cpu(Isa::Avx2);
}

#[test]
fn cpu_avx512() {
    on_cpu(Isa::Avx512);
}

#[test]
fn cpu_avx512bf16() {
    on_cpu(Isa::Avx512Bf16);
}

#[test]
fn cpu_avx512_model() {
    on_model(Isa::Avx512);
}

#[test]
fn cpu_avx512bf16_model() {
    on_model(Isa::Avx512Bf16);
}

#[cfg(feature = "sim")]
#[test]
fn sim_910b() {
    on_twin("sim:910b", "Ascend910B3");
}

#[cfg(feature = "sim")]
#[test]
fn sim_950() {
    on_twin("sim:950", "Ascend950PR_9589");
}

#[cfg(not(feature = "sim"))]
#[test]
fn sim() {
    not_built("sim:910b");
    not_built("sim:950");
}

/// The card of this machine, where there is one and device code for it.
#[test]
fn npu() {
    #[cfg(feature = "sim")]
    let reason =
        match ascend_sim::testing::card(gmm_finalize_routing::npu::blobs(), gmm_finalize_routing::npu::origin()) {
            Ok(card) => return on_twin("npu", card),
            Err(reason) => reason,
        };
    #[cfg(not(feature = "sim"))]
    let reason = "tests on devices need the feature `sim`".to_owned();
    conformance::run::<_, Cpu>("gmm-finalize-routing", "npu", "-", Err(NotBuilt(reason)), problems());
}
