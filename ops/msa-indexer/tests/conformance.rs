// SPDX-License-Identifier: MIT OR Apache-2.0

//! The problems of this operator, on every backend and SIMD level.

use crate::fixture::{Output, REDUCTIONS, Setup, pool};
use crate::golden;
use cpu_tiles::{Isa, Level};
use msa_indexer::{HeadReduce, IndexerDims};
use op_testkit::compare::{Comparison, Tolerance};
use op_testkit::conformance::{self, NotBuilt, Skip, Subject};
use op_testkit::golden::Ops;
use std::cell::OnceCell;

/// A problem; its input is made when it is asked for.
struct Problem {
    name: String,
    tolerance: Tolerance,
    make: Box<dyn Fn() -> (Setup, Output)>,
    input: OnceCell<(Setup, Output)>,
}

impl Problem {
    fn golden(name: &str, reduce: HeadReduce) -> Self {
        let case = name.to_owned();
        let make = move || golden::setup(&Ops::open("msa_indexer").unwrap().case(&case).unwrap(), reduce);
        let (name, tolerance) = (format!("golden_{name}_{reduce:?}"), golden::TOLERANCE);
        Self { name, tolerance, make: Box::new(make), input: OnceCell::new() }
    }

    /// Small integers, whose scores are exact.
    fn exact(name: &str, dims: IndexerDims, is_bf16: [bool; 2], count: usize, length: usize) -> Self {
        let make = move || {
            let setup = Setup::new(dims, is_bf16, count, length, 40);
            let expected = setup.expected();
            (setup, expected)
        };
        let name = format!("{name}_{:?}", dims.reduce);
        Self { name, tolerance: Tolerance::EXACT, make: Box::new(make), input: OnceCell::new() }
    }

    fn input(&self) -> &(Setup, Output) {
        self.input.get_or_init(&self.make)
    }
}

impl conformance::Problem for Problem {
    type Output = Output;

    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self, output: &Output, tolerance: Tolerance) -> Result<(), String> {
        let (_, expected) = self.input();
        if output.ids != expected.ids {
            return Err(format!("ids {:?}, expected {:?}", output.ids, expected.ids));
        }
        Comparison::new(&output.scores, &expected.scores, &[expected.scores.len()]).check(tolerance)
    }
}

fn problems() -> Vec<Problem> {
    const BF16: [bool; 2] = [true, true];
    const F32: [bool; 2] = [false, false];
    let golden = Ops::open("msa_indexer").unwrap();
    let mut problems = Vec::new();
    for reduce in REDUCTIONS {
        problems.extend(golden.case_names().iter().map(|name| Problem::golden(name, reduce)));
        let m3 = IndexerDims { reduce, ..IndexerDims::M3 };
        // Odd sizes: nothing is a multiple of a vector, a pair or a panel.
        let odd = IndexerDims { heads: 3, head_dim: 37, block: 50, topk: 4, init_blocks: 1, local_blocks: 2, reduce };
        let tiny = IndexerDims { heads: 1, head_dim: 1, block: 1, topk: 1, init_blocks: 0, local_blocks: 0, reduce };
        let free = IndexerDims { heads: 5, head_dim: 16, block: 64, topk: 3, init_blocks: 0, local_blocks: 0, reduce };
        problems.extend([
            Problem::exact("decode_20_blocks", m3, BF16, 1, 19 * 128 + 77),
            Problem::exact("decode_f32", m3, F32, 1, 18 * 128),
            Problem::exact("decode_f32_queries", m3, [false, true], 1, 18 * 128 + 1),
            Problem::exact("decode_f32_keys", m3, [true, false], 1, 18 * 128 + 1),
            Problem::exact("decode_odd", odd, BF16, 1, 451),
            Problem::exact("decode_free", free, BF16, 1, 900),
            Problem::exact("prefill_from_the_start", free, BF16, 260, 260),
            Problem::exact("prefill_in_the_middle", odd, BF16, 61, 430),
            Problem::exact("prefill_f32", odd, F32, 61, 430),
            Problem::exact("prefill_f32_keys", odd, [true, false], 33, 230),
            Problem::exact("prefill_few_visible", m3, BF16, 30, 2060),
            Problem::exact("prefill_tiny", tiny, BF16, 9, 9),
            Problem::exact("no_queries", m3, BF16, 0, 300),
            Problem::exact("no_keys", m3, BF16, 0, 0),
        ]);
    }
    problems
}

struct Cpu(Level);

impl Subject<Problem> for Cpu {
    fn tolerance(&self, problem: &Problem) -> Tolerance {
        problem.tolerance
    }

    fn skips(&self) -> &[Skip] {
        &[]
    }

    /// In every layout, which must agree in every bit.
    fn run(&self, problem: &Problem) -> Result<Output, String> {
        problem.input().0.run_all(self.0, &pool(2)).map_err(|error| error.to_string())
    }
}

fn on_cpu(isa: Isa) {
    let subject = Level::new(isa).map(Cpu).map_err(|error| NotBuilt(error.to_string()));
    conformance::run("msa-indexer", "cpu", isa.name(), subject, problems());
}

fn on_model(isa: Isa) {
    let level = Level::emulated(isa).expect("the AVX-512 levels have models");
    conformance::run("msa-indexer", "cpu", level.name(), Ok(Cpu(level)), problems());
}

/// The kernel on the twin of a chip.
#[cfg(feature = "sim")]
struct Twin {
    chip: &'static str,
    skips: Vec<Skip>,
}

#[cfg(feature = "sim")]
impl Subject<Problem> for Twin {
    fn tolerance(&self, problem: &Problem) -> Tolerance {
        problem.tolerance
    }

    fn skips(&self) -> &[Skip] {
        &self.skips
    }

    fn run(&self, problem: &Problem) -> Result<Output, String> {
        crate::device::run(self.chip, &problem.input().0)
    }
}

#[cfg(feature = "sim")]
fn on_twin(backend: &str, chip: &'static str) {
    let problems = problems();
    let reason = "a device takes queries and keys of one format";
    let skip = |problem: &Problem| Skip { problem: problem.name.clone().leak(), reason };
    let is_mixed = |problem: &&Problem| ["_f32_queries", "_f32_keys"].iter().any(|name| problem.name.contains(name));
    let skips = problems.iter().filter(is_mixed).map(skip).collect();
    conformance::run("msa-indexer", backend, "-", Ok(Twin { chip, skips }), problems);
}

#[cfg(not(feature = "sim"))]
fn not_built(backend: &str) {
    let reason = NotBuilt("the feature `sim` is off".into());
    conformance::run::<_, Cpu>("msa-indexer", backend, "-", Err(reason), problems());
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
    let reason = match ascend_sim::testing::card(msa_indexer::npu::blobs(), msa_indexer::npu::origin()) {
        Ok(card) => return on_twin("npu", card),
        Err(reason) => reason,
    };
    #[cfg(not(feature = "sim"))]
    let reason = "tests on devices need the feature `sim`".to_owned();
    conformance::run::<_, Cpu>("msa-indexer", "npu", "-", Err(NotBuilt(reason)), problems());
}
