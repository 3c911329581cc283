// SPDX-License-Identifier: MIT OR Apache-2.0

//! The operator at its published sizes, beside the machine's limits.
//!
//! `cargo bench -p gmm-finalize-routing -- --help`
//!
//! Shares of the limits are those of the round: see `op_testkit::bench`. One set of weights exists at a time.

use cpu_tiles::probe::{self, Bandwidth};
use cpu_tiles::{E8M0, F8E4M3, F8E5M2, Level, Overflow, Pool, Precision};
use gmm_finalize_routing::{
    Codes, Dims, Dtype, Experts, GroupList, Inputs, PackedWeights, Scale, SharedInput, Weights, finalize_routing,
};
use half::bf16;
use op_testkit::bench::{self, Bench, Case, Failure, Program};
use op_testkit::{fill_bf16, fill_f32};
use serde_json::{Value, json};
use std::process::ExitCode;

const PROGRAM: Program =
    Program { package: "gmm-finalize-routing", rounds: 7, quick: "the first set only", words: &[] };
const SCHEMA: &str = "gmm-finalize-routing-bench/1";
const N: usize = 4096;
/// Many times any last-level cache.
const PROBE_BYTES: usize = 512 << 20;

/// Weights of one size, and the calls on them.
struct Set {
    dtype: Dtype,
    k: usize,
    experts: usize,
    /// Routed rows M and rows of the output.
    calls: &'static [(usize, usize)],
    forms: &'static [Form],
}

/// How a call has its weights.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Packed,
    /// `[E, N, K]`.
    Nk,
    /// `[E, K, N]`.
    Kn,
}

impl Form {
    fn name(self) -> &'static str {
        match self {
            Self::Packed => "packed",
            Self::Nk => "in-place-nk",
            Self::Kn => "in-place-kn",
        }
    }
}

const ALL_FORMS: &[Form] = &[Form::Packed, Form::Nk, Form::Kn];
const SETS: [Set; 5] = [
    Set { dtype: Dtype::E4M3, k: 7168, experts: 8, calls: &[(32, 4), (128, 16), (1024, 128)], forms: ALL_FORMS },
    Set { dtype: Dtype::E4M3, k: 6144, experts: 32, calls: &[(768, 128)], forms: &[Form::Packed] },
    Set { dtype: Dtype::E4M3, k: 8192, experts: 32, calls: &[(768, 256)], forms: &[Form::Packed] },
    Set { dtype: Dtype::E4M3, k: 5120, experts: 8, calls: &[(128, 64)], forms: &[Form::Packed] },
    Set { dtype: Dtype::E5M2, k: 7168, experts: 16, calls: &[(256, 64)], forms: ALL_FORMS },
];

const SMALL: [Set; 2] = [
    Set { dtype: Dtype::E4M3, k: 512, experts: 2, calls: &[(32, 4)], forms: ALL_FORMS },
    Set { dtype: Dtype::E5M2, k: 512, experts: 2, calls: &[(32, 4)], forms: ALL_FORMS },
];

impl Set {
    fn name(&self) -> String {
        format!("{}-k{}-e{}", self.dtype, self.k, self.experts)
    }

    /// The calls that are wanted: rows, rows of the output, form.
    fn wanted(&self, options: &Options<'_>) -> Vec<(usize, usize, Form)> {
        let cases =
            self.calls.iter().flat_map(|&(rows, batch)| self.forms.iter().map(move |&form| (rows, batch, form)));
        let is_wanted = |&(rows, _, form): &(usize, usize, Form)| {
            let name = format!("{}-m{rows}-{}", self.name(), form.name());
            options.asked.wants(&name, "")
        };
        cases.filter(is_wanted).collect()
    }

    fn dims(&self) -> Dims {
        Dims { experts: self.experts, k: self.k, n: N }
    }
}

struct Options<'a> {
    asked: &'a bench::Options,
    pool: Pool,
    level: Level,
}

/// Codes as a quantiser leaves them: normally distributed values, the largest near the largest code. `repeat` copies, each
/// begun elsewhere.
enum Owned {
    E4M3(Vec<F8E4M3>),
    E5M2(Vec<F8E5M2>),
}

impl Owned {
    fn new(dtype: Dtype, seed: u64, len: usize, repeat: usize) -> Self {
        // A sum of twelve uniform values of variance one third is normal enough, with variance four.
        let table: Vec<f32> =
            fill_f32(seed, 12 << 16, 1.0).chunks(12).map(|x| x.iter().sum::<f32>() / 2.0 * 0.245).collect();
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            table[(state >> 32) as usize % table.len()]
        };
        fn copies<T: Copy>(one: &[T], repeat: usize) -> Vec<T> {
            let mut all = Vec::with_capacity(one.len() * repeat);
            for copy in 0..repeat {
                let (head, tail) = one.split_at(copy * 1021 % one.len());
                all.extend_from_slice(tail);
                all.extend_from_slice(head);
            }
            all
        }
        match dtype {
            Dtype::E4M3 => {
                let one: Vec<_> = (0..len).map(|_| F8E4M3::from_f32(next() * 448.0, Overflow::Saturate)).collect();
                Self::E4M3(copies(&one, repeat))
            }
            Dtype::E5M2 => {
                let one: Vec<_> = (0..len).map(|_| F8E5M2::from_f32(next() * 57344.0, Overflow::Saturate)).collect();
                Self::E5M2(copies(&one, repeat))
            }
        }
    }

    fn codes(&self) -> Codes<'_> {
        match self {
            Self::E4M3(codes) => Codes::E4M3(codes),
            Self::E5M2(codes) => Codes::E5M2(codes),
        }
    }

    /// Matrices `[rows, columns]` one after the other, each transposed.
    fn transposed(&self, rows: usize, columns: usize) -> Self {
        fn transposed<T: Copy + Default>(from: &[T], rows: usize, columns: usize) -> Vec<T> {
            let mut to = vec![T::default(); from.len()];
            for (from, to) in from.chunks_exact(rows * columns).zip(to.chunks_exact_mut(rows * columns)) {
                for row0 in (0..rows).step_by(64) {
                    for column in 0..columns {
                        for row in row0..rows.min(row0 + 64) {
                            to[column * rows + row] = from[row * columns + column];
                        }
                    }
                }
            }
            to
        }
        match self {
            Self::E4M3(codes) => Self::E4M3(transposed(codes, rows, columns)),
            Self::E5M2(codes) => Self::E5M2(transposed(codes, rows, columns)),
        }
    }
}

fn scales(seed: u64, n: usize) -> Vec<E8M0> {
    fill_f32(seed, n, 2.0).into_iter().map(|x| E8M0::from_bits((118.0 + x) as u8)).collect()
}

/// The arguments of a call besides the weights.
struct Arguments {
    x1: Owned,
    pertoken_scale: Vec<E8M0>,
    group_list: Vec<i64>,
    row_index: Vec<i64>,
    logit: Vec<f32>,
    shared_input: Vec<bf16>,
}

impl Arguments {
    /// Rows spread evenly over the experts, and in turn over the output.
    fn new(set: &Set, rows: usize, batch: usize) -> Self {
        let count = |expert: usize| rows / set.experts + usize::from(expert < rows % set.experts);
        Self {
            x1: Owned::new(set.dtype, 7, rows * set.k, 1),
            pertoken_scale: scales(8, rows * set.k.div_ceil(64) * 2),
            group_list: (0..set.experts).map(|expert| count(expert) as i64).collect(),
            row_index: (0..rows).map(|row| (row % batch) as i64).collect(),
            logit: fill_f32(9, rows, 1.0),
            shared_input: fill_bf16(10, batch * N, 0.5),
        }
    }

    fn run<'a>(
        &self,
        options: &Options<'_>,
        set: &Set,
        experts: impl Into<Experts<'a>>,
        out: &mut [f32],
    ) -> Result<(), Failure> {
        let inputs = Inputs {
            x1: self.x1.codes(),
            pertoken_scale: &self.pertoken_scale,
            group_list: GroupList::Counts(&self.group_list),
            row_index: &self.row_index,
            logit: Some(&self.logit),
            shared_input: Some(SharedInput { values: &self.shared_input, offset: 0, weight: 1.0 }),
        };
        finalize_routing(options.level, &options.pool, &set.dims(), experts, &inputs, out)?;
        Ok(())
    }
}

fn main() -> ExitCode {
    bench::main(&PROGRAM, run)
}

fn run(asked: &bench::Options) -> Result<(), Failure> {
    let options = &Options {
        asked,
        pool: asked.threads.map_or_else(Pool::from_env, Pool::new)?,
        level: asked.level.as_ref().map_or_else(Level::from_env, |name| Level::new(name.parse()?))?,
    };
    let wanted = |set: &&Set| !set.wanted(options).is_empty();
    let sets: &[Set] = if asked.is_small() { &SMALL } else { &SETS };
    let sets: Vec<_> = sets.iter().filter(wanted).take(if asked.quick { 1 } else { sets.len() }).collect();
    if sets.is_empty() {
        let names: Vec<_> = SETS.iter().map(Set::name).collect();
        return Err(format!("no case has this name; the sets are: {}", names.join(", ")).into());
    }
    let (level, pool) = (options.level, &options.pool);
    let bandwidth = Bandwidth::new(asked.size(PROBE_BYTES, 1 << 20))?;
    // The sets have their own names for cases, by which they have chosen already.
    let all = bench::Options { case: String::new(), ..asked.clone() };
    let bench = Bench::new(&all, level.name(), pool.threads(), || bandwidth.run(pool))
        .with_peak("multiply_add_flop_per_s", |iterations| probe::peak(level, Precision::Bf16, pool, iterations));
    let (mut limits, mut cases) = (Vec::new(), Vec::new());
    for set in sets {
        let (of_set, of_cases) = run_set(options, set, &bench)?;
        limits.push(json!({ "set": set.name(), "limits": of_set }));
        cases.extend(of_cases);
    }
    bench.save(&json!({
        "schema": SCHEMA,
        "machine": bench.machine(),
        "settings": bench.settings(json!({ "n": N })),
        "sets": limits,
        "cases": cases,
    }))
}

/// The limits beside the cases of a set, and these.
fn run_set(options: &Options<'_>, set: &Set, bench: &Bench<'_>) -> Result<(Value, Vec<Value>), Failure> {
    let (level, pool, dims) = (options.level, &options.pool, set.dims());
    eprintln!("{}: making weights", set.name());
    let codes = Owned::new(set.dtype, 1, set.k * N, set.experts);
    let scale = scales(2, N * set.k.div_ceil(64) * 2);
    let in_place = Weights { x2: codes.codes(), transpose_x2: true, scale: Scale::Shared(&scale) };
    // So many copies that a call finds nothing of its own in a cache.
    let copies = options.asked.size(PROBE_BYTES.div_ceil(set.experts * set.k * N), 1);
    let pack = |_| PackedWeights::pack(level, pool, &dims, in_place);
    let packed = (0..copies).map(pack).collect::<Result<Vec<_>, _>>()?;
    let wanted = set.wanted(options);
    let has_kn = wanted.iter().any(|(_, _, form)| *form == Form::Kn);
    let kn_codes = if has_kn { codes.transposed(N, set.k) } else { Owned::new(set.dtype, 1, 0, 0) };
    let kn_scale: Vec<E8M0> =
        (0..scale.len()).map(|at| scale[(at / 2 % N * set.k.div_ceil(64) + at / 2 / N) * 2 + at % 2]).collect();
    let kn = Weights { x2: kn_codes.codes(), transpose_x2: false, scale: Scale::Shared(&kn_scale) };

    let calls = wanted.chunk_by(|a, b| a.0 == b.0);
    let arguments: Vec<_> = calls.clone().map(|call| Arguments::new(set, call[0].0, call[0].1)).collect();
    let weights = |form: Form, call: usize| match form {
        Form::Packed => Experts::Packed(&packed[call % copies]),
        Form::Nk => in_place.into(),
        Form::Kn => kn.into(),
    };
    let mut cases: Vec<Case<'_>> = Vec::new();
    for (arguments, call) in arguments.iter().zip(calls) {
        let mut first: Option<Vec<f32>> = None;
        for &(rows, batch, form) in call {
            let mut out = vec![0.0; batch * N];
            arguments.run(options, set, weights(form, 0), &mut out)?;
            // All forms give the same bits, or there is nothing to time.
            let expected = first.get_or_insert_with(|| out.clone());
            if expected.iter().zip(&out).any(|(a, b)| a.to_bits() != b.to_bits()) {
                return Err(format!("{}, {}: another result", set.name(), form.name()).into());
            }
            let case = Case::new(
                format!("finalize_routing/{}/{}/{level}", set.dtype, form.name()),
                format!("M {rows}, K {}, N {N}, E {}, batch {batch}", set.k, set.experts),
                rows.min(set.experts) * set.k * N + scale.len(),
                2.0 * (rows * set.k * N) as f64,
                move |call| arguments.run(options, set, weights(form, call), &mut out),
            );
            cases.push(case.with("set", set.name()));
        }
    }
    eprintln!("{}", set.name());
    let measured = bench.run(cases)?;
    let (limits, cases) = (bench.limits(&measured), bench.cases(&measured));
    bench.print(&limits, &cases);
    Ok((limits, cases))
}
