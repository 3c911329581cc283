// SPDX-License-Identifier: MIT OR Apache-2.0

//! The problems of this operator, on every backend and SIMD level.

use crate::fixture::{
    KINDS, Kind, Lists, Sequence, dims, expected, mask_of_positions, run_all_layouts, run_masked, run_plain,
};
use crate::golden;
use cpu_tiles::{Isa, Level};
use msa_main_branch::{AttentionDims, RowDefined};
use op_testkit::compare::{Comparison, Tolerance, assert_same_bits};
use op_testkit::conformance::{self, NotBuilt, Skip, Subject};
use op_testkit::golden::Ops;
use std::cell::OnceCell;

/// Queries that follow each other, with their lists and what must come out.
struct Chunk {
    sequence: Sequence,
    lists: Lists,
    expected: Vec<f32>,
    defined: Vec<bool>,
}

/// A problem; its chunks are made when they are asked for.
struct Problem {
    name: String,
    tolerance: Tolerance,
    make: Box<dyn Fn() -> Vec<Chunk>>,
    chunks: OnceCell<Vec<Chunk>>,
}

impl Problem {
    fn golden(name: &str) -> Self {
        let case_name = name.to_owned();
        let make = move || {
            let ops = Ops::open("msa_main_branch").unwrap();
            let case = golden::read(&ops.case(&case_name).unwrap());
            let chunk = |(i, rows): (usize, std::ops::Range<usize>)| {
                let sequence = case.sequence.part(rows.clone());
                let width = sequence.dims.heads * sequence.dims.head_dim;
                let range = i..i + rows.len();
                Chunk {
                    lists: Lists::Shared(case.ids.clone()),
                    expected: case.out[range.start * width..range.end * width].to_vec(),
                    defined: case.row_defined[range].to_vec(),
                    sequence,
                }
            };
            case.chunks().map(chunk).collect()
        };
        Self {
            name: format!("golden_{name}"),
            tolerance: golden::TOLERANCE,
            make: Box::new(make),
            chunks: OnceCell::new(),
        }
    }

    /// `n` queries from `start` on, `more` tokens behind them, one form of lists.
    fn new(name: &str, kind: Kind, dims: AttentionDims, [start, n, more]: [usize; 3], form: usize) -> Self {
        let make = move || {
            let sequence = Sequence::new(dims, kind, start, n, more, 500);
            let lists = Lists::forms(&sequence, 3, 5, 600)[form].clone();
            let (expected, defined) = expected(&sequence, &lists);
            let defined = (0..n).map(|query| defined.query(query)).collect();
            vec![Chunk { sequence, lists, expected, defined }]
        };
        Self {
            name: format!("{name}_{}", format!("{kind:?}").to_lowercase()),
            tolerance: kind.tolerance(),
            make: Box::new(make),
            chunks: OnceCell::new(),
        }
    }

    fn chunks(&self) -> &[Chunk] {
        self.chunks.get_or_init(&self.make)
    }
}

impl conformance::Problem for Problem {
    type Output = Vec<(Vec<f32>, RowDefined)>;

    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self, output: &Self::Output, tolerance: Tolerance) -> Result<(), String> {
        for (Chunk { sequence, expected, defined, .. }, (actual, actual_defined)) in self.chunks().iter().zip(output) {
            Comparison::new(actual, expected, &sequence.shape()).check(tolerance)?;
            let found: Vec<bool> = (0..defined.len()).map(|query| actual_defined.query(query)).collect();
            if found != *defined {
                return Err(format!("rows defined: {found:?}, expected {defined:?}"));
            }
        }
        Ok(())
    }
}

fn problems() -> Vec<Problem> {
    use Kind::{Bf16, F32};
    let golden = Ops::open("msa_main_branch").unwrap();
    let mut problems: Vec<_> = golden.case_names().iter().map(|name| Problem::golden(name)).collect();
    for kind in KINDS {
        for (form, name) in ["dense", "shared", "per_tile", "per_tile_and_head", "per_query"].into_iter().enumerate() {
            problems.push(Problem::new(name, kind, dims(6, 3, 40, 20), [37, 61, 0], form));
        }
        problems.extend([
            Problem::new("tokens_behind_the_last_query", kind, dims(4, 2, 16, 8), [5, 9, 30], 4),
            Problem::new("ragged_sizes", kind, dims(3, 1, 67, 13), [0, 50, 3], 4),
        ]);
    }
    problems.extend([
        Problem::new("no_queries", Bf16, dims(4, 2, 32, 16), [40, 0, 0], 4),
        Problem::new("one_query", Bf16, dims(64, 4, 128, 128), [700, 1, 0], 4),
        Problem::new("all_sizes_one", F32, dims(1, 1, 1, 1), [3, 5, 0], 4),
        Problem::new("wide_group", Bf16, dims(48, 2, 64, 32), [60, 20, 0], 3),
        Problem::new("wide_head", F32, dims(2, 2, 200, 140), [100, 70, 0], 1),
        Problem::new("m3", Bf16, AttentionDims::M3, [300, 24, 0], 4),
        Problem::new("m3", F32, AttentionDims::M3, [300, 24, 0], 0),
    ]);
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

    /// In every layout, which must agree in every bit; the published form with its mask too, where it can say the same.
    fn run(&self, problem: &Problem) -> Result<Vec<(Vec<f32>, RowDefined)>, String> {
        let run = |Chunk { sequence, lists, .. }: &Chunk| {
            if problem.name.starts_with("golden_full") {
                return run_plain(self.level, sequence, lists);
            }
            let output = run_all_layouts(self.level, sequence, lists);
            if let (Lists::Shared(ids), 0) = (lists, sequence.start) {
                let mut ascending = ids.clone();
                ascending.sort_by_key(|&id| id.cast_unsigned());
                let mask = mask_of_positions(sequence.n(), sequence.dims.block, &ascending);
                let gathered = sequence.gathered(&ascending);
                let masked = run_masked(self.level, &sequence.dims, sequence.q.data(), &gathered, &mask).unwrap();
                assert_same_bits("masked", &masked.0, &output.0, &sequence.shape());
                assert_eq!(masked.1, output.1);
            }
            output
        };
        Ok(problem.chunks().iter().map(run).collect())
    }
}

fn on_cpu(isa: Isa) {
    let subject = Level::new(isa).map(|level| Cpu { level, skips: &[] }).map_err(|error| NotBuilt(error.to_string()));
    conformance::run("msa-main-branch", "cpu", isa.name(), subject, problems());
}

/// Hundreds of times slower than the instructions they stand for.
fn on_model(isa: Isa) {
    let reason = "too large for a software model of the instructions";
    let skip = |problem| Skip { problem, reason };
    const SKIPPED: [&str; 4] = ["golden_full_shape_n500", "golden_full_shape_n2304", "m3_bf16", "m3_f32"];
    let level = Level::emulated(isa).expect("the AVX-512 levels have models");
    let skips = Vec::leak(SKIPPED.map(skip).to_vec());
    conformance::run("msa-main-branch", "cpu", level.name(), Ok(Cpu { level, skips }), problems());
}

/// The kernel on the twin of a chip.
#[cfg(feature = "sim")]
struct Twin {
    chip: &'static str,
    skips: Vec<Skip>,
}

#[cfg(feature = "sim")]
impl Twin {
    fn new(chip: &'static str) -> Self {
        let reason = "the kernel takes heads of at most 128 channels and blocks of at most 128 keys";
        Self { chip, skips: vec![Skip { problem: "wide_head_f32", reason }] }
    }
}

#[cfg(feature = "sim")]
impl Subject<Problem> for Twin {
    /// The kernel rounds the probabilities of F16 inputs to F16, which the CPU does not.
    fn tolerance(&self, problem: &Problem) -> Tolerance {
        if problem.name.ends_with("_f16") {
            return Tolerance { abs: 0.0, rel: 0.0, rel_to_max: 0.0005 };
        }
        problem.tolerance
    }

    fn skips(&self) -> &[Skip] {
        &self.skips
    }

    fn run(&self, problem: &Problem) -> Result<Vec<(Vec<f32>, RowDefined)>, String> {
        let run = |Chunk { sequence, lists, .. }: &Chunk| {
            let (out, seen) = crate::device::run(self.chip, sequence, lists)?;
            Ok((out, RowDefined::of(sequence.dims.kv_heads, seen)))
        };
        problem.chunks().iter().map(run).collect()
    }
}

#[cfg(feature = "sim")]
fn on_twin(backend: &str, chip: &'static str) {
    conformance::run("msa-main-branch", backend, "-", Ok(Twin::new(chip)), problems());
}

#[cfg(not(feature = "sim"))]
fn not_built(backend: &str) {
    let reason = NotBuilt("the feature `sim` is off".into());
    conformance::run::<_, Cpu>("msa-main-branch", backend, "-", Err(reason), problems());
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
    let reason = match ascend_sim::testing::card(msa_main_branch::npu::blobs(), msa_main_branch::npu::origin()) {
        Ok(card) => return on_twin("npu", card),
        Err(reason) => reason,
    };
    #[cfg(not(feature = "sim"))]
    let reason = "tests on devices need the feature `sim`".to_owned();
    conformance::run::<_, Cpu>("msa-main-branch", "npu", "-", Err(NotBuilt(reason)), problems());
}
