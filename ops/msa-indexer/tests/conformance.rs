// SPDX-License-Identifier: MIT OR Apache-2.0

//! The problems of this operator, on every backend and SIMD level.

use crate::fixture::{KINDS, Kind, REDUCES, Sequence, check, dims};
use crate::golden;
use cpu_tiles::{Isa, Level};
use msa_indexer::{HeadReduce, IndexerDims};
use op_testkit::compare::Tolerance;
use op_testkit::conformance::{self, NotBuilt, Skip, Subject};
use op_testkit::golden::Ops;
use std::cell::OnceCell;

struct Input {
    sequence: Sequence,
    expected: (Vec<i32>, Vec<f32>),
}

/// A problem; its input is made when it is asked for.
struct Problem {
    name: String,
    tolerance: Tolerance,
    make: Box<dyn Fn() -> Input>,
    input: OnceCell<Input>,
}

impl Problem {
    fn golden(case_name: &str, reduce: HeadReduce) -> Self {
        let (name, case_name) = (format!("golden_{case_name}_{}", name_of(reduce)), case_name.to_owned());
        let make = move || {
            let ops = Ops::open("msa_indexer").unwrap();
            let (sequence, expected) = golden::read(&ops.case(&case_name).unwrap(), reduce);
            Input { sequence, expected }
        };
        Self { name, tolerance: golden::TOLERANCE, make: Box::new(make), input: OnceCell::new() }
    }

    /// `queries` queries from position `start` on, in a sequence of `length` keys.
    fn new(name: &str, kind: Kind, dims: IndexerDims, [start, queries, length]: [usize; 3]) -> Self {
        let make = move || {
            let sequence = Sequence::new(dims, kind, start, queries, length, 300);
            Input { expected: sequence.expected(), sequence }
        };
        let name = format!("{name}_{}_{}", format!("{kind:?}").to_lowercase(), name_of(dims.reduce));
        Self { name, tolerance: kind.tolerance(), make: Box::new(make), input: OnceCell::new() }
    }

    fn input(&self) -> &Input {
        self.input.get_or_init(&self.make)
    }
}

fn name_of(reduce: HeadReduce) -> &'static str {
    match reduce {
        HeadReduce::PerKvHead => "per_head",
        HeadReduce::Shared => "shared",
    }
}

impl conformance::Problem for Problem {
    type Output = (Vec<i32>, Vec<f32>);

    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self, output: &Self::Output, tolerance: Tolerance) -> Result<(), String> {
        let Input { sequence, expected } = self.input();
        check(sequence, output, expected, tolerance)?;
        // Golden ids are far from a tie.
        if self.name.starts_with("golden") && output.0 != expected.0 {
            return Err(format!("ids: {:?}, expected {:?}", output.0, expected.0));
        }
        Ok(())
    }
}

fn problems() -> Vec<Problem> {
    let golden = Ops::open("msa_indexer").unwrap();
    let mut problems = Vec::new();
    for reduce in REDUCES {
        problems.extend(golden.case_names().iter().map(|name| Problem::golden(name, reduce)));
        let with = |dims: IndexerDims| IndexerDims { reduce, ..dims };
        for kind in KINDS {
            problems.extend([
                Problem::new("decode", kind, with(dims(4, 48, 16, 4)), [200, 1, 201]),
                Problem::new("prefill", kind, with(dims(3, 20, 8, 5)), [0, 90, 90]),
                Problem::new("chunk_of_a_longer_sequence", kind, with(dims(2, 20, 8, 5)), [37, 50, 101]),
                Problem::new("ragged_sizes", kind, with(dims(5, 33, 13, 3)), [7, 60, 70]),
            ]);
        }
        let forced = IndexerDims { init_blocks: 2, local_blocks: 3, ..dims(2, 16, 4, 7) };
        problems.extend([
            Problem::new("no_queries", Kind::Bf16, with(dims(4, 16, 8, 3)), [20, 0, 40]),
            Problem::new("no_keys", Kind::Bf16, with(dims(4, 16, 8, 3)), [0, 0, 0]),
            Problem::new("all_sizes_one", Kind::F32, with(dims(1, 1, 1, 1)), [3, 5, 9]),
            Problem::new("one_wide_query", Kind::Bf16, with(dims(130, 8, 8, 3)), [0, 30, 30]),
            Problem::new("forced_blocks", Kind::Integers, with(forced), [0, 70, 70]),
            Problem::new(
                "nothing_forced",
                Kind::Integers,
                with(IndexerDims { local_blocks: 0, ..forced }),
                [0, 70, 70],
            ),
            Problem::new("wide_block", Kind::Bf16, with(dims(2, 8, 200, 2)), [500, 200, 700]),
            Problem::new("m3", Kind::Bf16, with(IndexerDims::M3), [2300, 30, 2330]),
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

    /// In every layout, which must agree in every bit.
    fn run(&self, problem: &Problem) -> Result<(Vec<i32>, Vec<f32>), String> {
        Ok(problem.input().sequence.run_all_layouts(self.level))
    }
}

fn on_cpu(isa: Isa) {
    let subject = Level::new(isa).map(|level| Cpu { level, skips: &[] }).map_err(|error| NotBuilt(error.to_string()));
    conformance::run("msa-indexer", "cpu", isa.name(), subject, problems());
}

/// Hundreds of times slower than the instructions they stand for.
fn on_model(isa: Isa) {
    let reason = "too large for a software model of the instructions";
    let skip = |problem| Skip { problem, reason };
    const SKIPPED: [&str; 2] = ["m3_bf16_per_head", "m3_bf16_shared"];
    let level = Level::emulated(isa).expect("the AVX-512 levels have models");
    let skips = Vec::leak(SKIPPED.map(skip).to_vec());
    conformance::run("msa-indexer", "cpu", level.name(), Ok(Cpu { level, skips }), problems());
}

fn not_built(backend: &str) {
    let reason = NotBuilt("the AscendC kernel is not part of this version".into());
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

#[test]
fn sim_910b() {
    not_built("sim:910b");
}

#[test]
fn sim_950() {
    not_built("sim:950");
}

#[test]
fn npu() {
    not_built("npu");
}
