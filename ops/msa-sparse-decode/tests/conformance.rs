// SPDX-License-Identifier: MIT OR Apache-2.0

//! The problems of this operator, on every backend and SIMD level.

use crate::fixture::{Ids, Setup, tolerance};
use crate::golden;
use cpu_tiles::{Isa, Level, Precision};
use msa_sparse_decode::DecodeDims;
use op_testkit::compare::{Comparison, Tolerance};
use op_testkit::conformance::{self, NotBuilt, Skip, Subject};
use op_testkit::golden::Ops;
use std::cell::OnceCell;

/// A problem; its input is made when it is asked for.
struct Problem {
    name: String,
    tolerance: Tolerance,
    make: Box<dyn Fn() -> (Setup, Vec<f32>)>,
    input: OnceCell<(Setup, Vec<f32>)>,
}

impl Problem {
    fn golden(name: &str, precision: Precision) -> Self {
        let case_name = name.to_owned();
        let make = move || {
            let ops = Ops::open("msa_sparse_decode").unwrap();
            let case = ops.case(&case_name).unwrap();
            (golden::setup(&case, precision), case.tensor("out").unwrap().f32().unwrap())
        };
        Self {
            name: format!("golden_{name}_{precision:?}").to_lowercase(),
            tolerance: golden::tolerance(precision),
            make: Box::new(make),
            input: OnceCell::new(),
        }
    }

    fn new(name: &str, setup: Setup) -> Self {
        let name = format!("{name}_{:?}", setup.precision).to_lowercase();
        let tolerance = tolerance(setup.precision);
        let make = move || (setup.clone(), setup.expected());
        Self { name, tolerance, make: Box::new(make), input: OnceCell::new() }
    }

    fn input(&self) -> &(Setup, Vec<f32>) {
        self.input.get_or_init(&self.make)
    }
}

impl conformance::Problem for Problem {
    type Output = Vec<f32>;

    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self, output: &Vec<f32>, tolerance: Tolerance) -> Result<(), String> {
        let (setup, expected) = self.input();
        Comparison::new(output, expected, &setup.shape()).check(tolerance)
    }
}

fn problems() -> Vec<Problem> {
    let mut problems = Vec::new();
    for precision in [Precision::Bf16, Precision::F32] {
        let golden = Ops::open("msa_sparse_decode").unwrap();
        problems.extend(golden.case_names().iter().map(|name| Problem::golden(name, precision)));
        let setup = |heads, kv_heads, head_dim, block, batch, blocks| {
            Setup::new(DecodeDims::new(heads, kv_heads, head_dim, block), precision, batch, blocks, 7)
        };
        let scaled = DecodeDims { scale: Some(-0.03), chunk_keys: 60, ..DecodeDims::new(6, 3, 72, 20) };
        problems.extend([
            Problem::new("group_1", setup(3, 3, 128, 128, 1, 3).with_lens(&[300])),
            Problem::new("group_6", setup(12, 2, 64, 32, 2, 5).with_lens(&[160, 97])),
            Problem::new("group_7_ragged_head", setup(7, 1, 40, 32, 1, 9).with_lens(&[257])),
            Problem::new("group_16_small_blocks", setup(32, 2, 96, 20, 1, 30).with_lens(&[581])),
            Problem::new("group_64", setup(64, 1, 32, 64, 1, 3).with_lens(&[129])),
            Problem::new("one_channel", setup(2, 1, 1, 3, 1, 3).with_lens(&[8])),
            Problem::new("one_key", setup(4, 2, 128, 128, 1, 1).with_lens(&[1])),
            Problem::new("chunks_and_a_negative_scale", Setup::new(scaled, precision, 1, 13, 3).with_lens(&[259])),
            Problem::new(
                "padded_lists_of_three_sequences",
                setup(4, 2, 32, 16, 3, 6)
                    .with_ids(Ids::Shared(vec![5, 0, -1, -1, 2, -1, -1, -1, 1, 3, 0, 2]))
                    .with_lens(&[96, 40, 33]),
            ),
            Problem::new(
                "lists_of_kv_heads",
                setup(4, 2, 32, 16, 2, 6)
                    .with_ids(Ids::PerKvHead(vec![5, 0, -1, 3, 4, 1, -1, -1, -1, 2, 0, 5]))
                    .with_lens(&[96, 33]),
            ),
            Problem::new("an_empty_sequence_among_others", setup(6, 2, 64, 32, 3, 2).with_lens(&[64, 0, 1])),
            Problem::new("no_lists", setup(4, 2, 32, 16, 2, 3).with_ids(Ids::Shared(Vec::new()))),
            Problem::new("no_sequences", setup(4, 2, 32, 16, 0, 0)),
        ]);
    }
    problems
}

struct Cpu {
    level: Level,
    skips: &'static [Skip],
}

impl Subject<Problem> for Cpu {
    fn tolerance(&self, problem: &Problem) -> Tolerance {
        problem.tolerance
    }

    fn skips(&self) -> &[Skip] {
        self.skips
    }

    fn run(&self, problem: &Problem) -> Result<Vec<f32>, String> {
        let (setup, _) = problem.input();
        Ok(setup.run_all(self.level).map_err(|error| error.to_string())?.0)
    }
}

fn on_cpu(isa: Isa) {
    let subject = Level::new(isa).map(|level| Cpu { level, skips: &[] }).map_err(|error| NotBuilt(error.to_string()));
    conformance::run("msa-sparse-decode", "cpu", isa.name(), subject, problems());
}

/// Hundreds of times slower than the instructions they stand for.
fn on_model(isa: Isa) {
    let reason = "too large for a software model of the instructions";
    let large = |problem: &&Problem| {
        problem.name.starts_with("golden")
            && !["nb1_five_keys", "nb4_short"].iter().any(|name| problem.name.contains(name))
    };
    let problems = problems();
    let skips = problems.iter().filter(large).map(|problem| Skip { problem: problem.name.clone().leak(), reason });
    let level = Level::emulated(isa).expect("the AVX-512 levels have models");
    let skips = Vec::leak(skips.collect());
    conformance::run("msa-sparse-decode", "cpu", level.name(), Ok(Cpu { level, skips }), problems);
}

/// The kernel on the twin of a chip.
#[cfg(feature = "sim")]
struct Twin(&'static str);

#[cfg(feature = "sim")]
impl Subject<Problem> for Twin {
    fn tolerance(&self, problem: &Problem) -> Tolerance {
        problem.tolerance
    }

    fn run(&self, problem: &Problem) -> Result<Vec<f32>, String> {
        crate::device::run(self.0, &problem.input().0)
    }
}

#[cfg(feature = "sim")]
fn on_twin(backend: &str, chip: &'static str) {
    conformance::run("msa-sparse-decode", backend, "-", Ok(Twin(chip)), problems());
}

#[cfg(not(feature = "sim"))]
fn not_built(backend: &str) {
    let reason = NotBuilt("the feature `sim` is off".into());
    conformance::run::<_, Cpu>("msa-sparse-decode", backend, "-", Err(reason), problems());
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
    let reason = match ascend_sim::testing::card(msa_sparse_decode::npu::blobs(), msa_sparse_decode::npu::origin()) {
        Ok(card) => return on_twin("npu", card),
        Err(reason) => reason,
    };
    #[cfg(not(feature = "sim"))]
    let reason = "tests on devices need the feature `sim`".to_owned();
    conformance::run::<_, Cpu>("msa-sparse-decode", "npu", "-", Err(NotBuilt(reason)), problems());
}
