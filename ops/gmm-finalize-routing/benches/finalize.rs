// SPDX-License-Identifier: MIT OR Apache-2.0

//! The operator at its published sizes, beside the machine's limits.
//!
//! `cargo bench -p gmm-finalize-routing -- --help`
//!
//! Probes of the limits and cases take turns in short slices, round after round, and a case's share of the limit is
//! that against the probes of its own round: absolute speeds of a shared machine move by half within minutes. One set of
//! weights exists at a time.

use cpu_tiles::probe::{self, Bandwidth};
use cpu_tiles::{E8M0, F8E4M3, F8E5M2, Level, Overflow, Pool, Precision};
use gmm_finalize_routing::{
    Codes, Dims, Dtype, Experts, GroupList, Inputs, PackedWeights, Scale, SharedInput, Weights, finalize_routing,
};
use half::bf16;
use op_testkit::{fill_bf16, fill_f32};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str = "\
cargo bench -p gmm-finalize-routing -- [options]

  --json FILE   write the report, with raw samples
  --case TEXT   only cases whose name contains the text, as in `e4m3-k7168-e8-m32-packed`
  --rounds N    rounds of slices (default 7; 2 with --quick)
  --threads N   threads (default: RAYON_NUM_THREADS, else physical cores)
  --level L     SIMD level: scalar, avx2, avx512, avx512bf16 (default: CPU_TILES_LEVEL, else the best)
  --quick       the first set only, two rounds
  --help        this text
";

const SCHEMA: &str = "gmm-finalize-routing-bench/1";
const N: usize = 4096;
const SLICE: Duration = Duration::from_millis(100);
/// Many times any last-level cache.
const PROBE_BYTES: usize = 512 << 20;

type Failure = Box<dyn std::error::Error>;

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

impl Set {
    fn name(&self) -> String {
        format!("{}-k{}-e{}", self.dtype, self.k, self.experts)
    }

    /// The calls that are wanted: rows, rows of the output, form.
    fn wanted(&self, options: &Options) -> Vec<(usize, usize, Form)> {
        let cases =
            self.calls.iter().flat_map(|&(rows, batch)| self.forms.iter().map(move |&form| (rows, batch, form)));
        let is_wanted = |&(rows, _, form): &(usize, usize, Form)| {
            let name = format!("{}-m{rows}-{}", self.name(), form.name());
            options.case.as_ref().is_none_or(|text| name.contains(text))
        };
        cases.filter(is_wanted).collect()
    }

    fn dims(&self) -> Dims {
        Dims { experts: self.experts, k: self.k, n: N }
    }
}

struct Options {
    json: Option<PathBuf>,
    case: Option<String>,
    rounds: usize,
    pool: Pool,
    level: Level,
    quick: bool,
}

/// The options, or `None` where the usage is asked for.
fn options() -> Result<Option<Options>, Failure> {
    let (mut json, mut case, mut rounds, mut threads, mut level, mut quick) = (None, None, None, None, None, false);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("`{arg}` needs a value"));
        match arg.as_str() {
            "--json" => json = Some(PathBuf::from(value()?)),
            "--case" => case = Some(value()?),
            "--rounds" => rounds = Some(value()?.parse::<usize>().ok().filter(|n| *n > 0).ok_or("bad `--rounds`")?),
            "--threads" => threads = Some(value()?.parse::<usize>().map_err(|_| "bad `--threads`")?),
            "--level" => level = Some(value()?),
            "--quick" => quick = true,
            "--help" | "-h" => return Ok(None),
            // What cargo passes to every bench.
            "--bench" => {}
            _ => return Err(format!("unknown option `{arg}`").into()),
        }
    }
    Ok(Some(Options {
        json,
        case,
        rounds: rounds.unwrap_or(if quick { 2 } else { 7 }),
        pool: threads.map_or_else(Pool::from_env, Pool::new)?,
        level: level.map_or_else(Level::from_env, |name| Level::new(name.parse()?))?,
        quick,
    }))
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
        options: &Options,
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

/// What is measured: one call per number.
struct Case<'a> {
    kernel: String,
    shape: String,
    /// Bytes of the weights that a call reads, as stored.
    bytes: usize,
    flop: f64,
    call: Box<dyn FnMut(usize) -> Result<(), Failure> + 'a>,
    calls: usize,
    /// Milliseconds of the calls of each round.
    rounds: Vec<Vec<f64>>,
}

impl Case<'_> {
    fn slice(&mut self) -> Result<(), Failure> {
        let (begin, mut samples) = (Instant::now(), Vec::new());
        while samples.is_empty() || begin.elapsed() < SLICE {
            let start = Instant::now();
            (self.call)(self.calls)?;
            samples.push(start.elapsed().as_secs_f64() * 1e3);
            self.calls += 1;
        }
        self.rounds.push(samples);
        Ok(())
    }

    fn median_ms(&self) -> f64 {
        median(self.rounds.concat())
    }

    /// Median over the rounds of `of(round, its median in ms)`.
    fn over_rounds(&self, of: impl Fn(usize, f64) -> f64) -> f64 {
        median(self.rounds.iter().enumerate().map(|(round, ms)| of(round, median(ms.clone()))).collect())
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// The limits in each round, in units per second.
#[derive(Default)]
struct Limits {
    bandwidth: Vec<f64>,
    peak: Vec<f64>,
}

impl Limits {
    fn measure(&mut self, bandwidth: &Bandwidth, level: Level, pool: &Pool, iterations: u64) {
        let three = |run: &dyn Fn() -> f64| median((0..3).map(|_| run()).collect());
        self.bandwidth.push(three(&|| bandwidth.run(pool)));
        self.peak.push(three(&|| probe::peak(level, Precision::Bf16, pool, iterations)));
    }

    /// Shortest possible milliseconds in a round: by memory, by the multiply units.
    fn ms(&self, case: &Case<'_>, round: usize) -> (f64, f64) {
        (case.bytes as f64 / self.bandwidth[round] * 1e3, case.flop / self.peak[round] * 1e3)
    }
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprint!("{error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    let wanted = |set: &&Set| !set.wanted(options).is_empty();
    let sets: Vec<_> = SETS.iter().filter(wanted).take(if options.quick { 1 } else { SETS.len() }).collect();
    if sets.is_empty() {
        let names: Vec<_> = SETS.iter().map(Set::name).collect();
        return Err(format!("no case has this name; the sets are: {}", names.join(", ")).into());
    }
    let bandwidth = Bandwidth::new(PROBE_BYTES)?;
    let mut iterations = 1 << 12;
    while time(|| _ = probe::peak(options.level, Precision::Bf16, &options.pool, iterations))
        < Duration::from_millis(20)
    {
        iterations *= 2;
    }
    let reports = sets.into_iter().map(|set| run_set(options, set, &bandwidth, iterations));
    let report = json!({
        "schema": SCHEMA,
        "machine": machine(options),
        "settings": {"n": N, "rounds": options.rounds, "slice_ms": SLICE.as_millis() as u64},
        "sets": reports.collect::<Result<Vec<_>, _>>()?,
    });
    if let Some(path) = &options.json {
        std::fs::write(path, format!("{report:#}\n")).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn time(run: impl FnOnce()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}

fn run_set(options: &Options, set: &Set, bandwidth: &Bandwidth, iterations: u64) -> Result<Value, Failure> {
    let (level, pool, dims) = (options.level, &options.pool, set.dims());
    eprintln!("{}: making weights", set.name());
    let codes = Owned::new(set.dtype, 1, set.k * N, set.experts);
    let scale = scales(2, N * set.k.div_ceil(64) * 2);
    let in_place = Weights { x2: codes.codes(), transpose_x2: true, scale: Scale::Shared(&scale) };
    // So many copies that a call finds nothing of its own in a cache.
    let copies = PROBE_BYTES.div_ceil(set.experts * set.k * N);
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
            cases.push(Case {
                kernel: format!("finalize_routing/{}/{}/{level}", set.dtype, form.name()),
                shape: format!("M {rows}, K {}, N {N}, E {}, batch {batch}", set.k, set.experts),
                bytes: rows.min(set.experts) * set.k * N + scale.len(),
                flop: 2.0 * (rows * set.k * N) as f64,
                call: Box::new(move |call| arguments.run(options, set, weights(form, call), &mut out)),
                calls: 0,
                rounds: Vec::new(),
            });
        }
    }
    eprintln!("{}: {} cases, {} rounds of {} ms slices", set.name(), cases.len(), options.rounds, SLICE.as_millis());
    let mut limits = Limits::default();
    for _ in 0..options.rounds {
        limits.measure(bandwidth, level, pool, iterations);
        for case in &mut cases {
            case.slice()?;
        }
    }
    let report = report(set, &cases, &limits);
    print(options, &report)?;
    Ok(report)
}

fn report(set: &Set, cases: &[Case<'_>], limits: &Limits) -> Value {
    let of_case = |case: &Case<'_>| {
        let ms = case.median_ms();
        let share = |of: fn((f64, f64)) -> f64| case.over_rounds(|round, ms| of(limits.ms(case, round)) / ms);
        let is_memory = case.over_rounds(|round, _| limits.ms(case, round).0 - limits.ms(case, round).1) > 0.0;
        json!({
            "kernel": case.kernel,
            "shape": case.shape,
            "bytes": case.bytes,
            "flop": case.flop,
            "median_ms": ms,
            "min_ms": case.rounds.concat().into_iter().fold(f64::INFINITY, f64::min),
            "gb_per_s": case.bytes as f64 / ms / 1e6,
            "gflop_per_s": case.flop / ms / 1e6,
            "bound": if is_memory { "memory" } else { "compute" },
            "share_of_read_bandwidth": share(|(memory, _)| memory),
            "share_of_peak": share(|(_, compute)| compute),
            "share_of_limit": share(|(memory, compute)| memory.max(compute)),
            "samples_ms": case.rounds,
        })
    };
    json!({
        "set": set.name(),
        "limits": {
            "read_bytes_per_s": {"median": median(limits.bandwidth.clone()), "samples": limits.bandwidth},
            "multiply_add_flop_per_s": {"median": median(limits.peak.clone()), "samples": limits.peak},
        },
        "cases": cases.iter().map(of_case).collect::<Vec<_>>(),
    })
}

fn machine(options: &Options) -> Value {
    let field = |path: &str, key: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix(':'));
        line.unwrap_or_default().trim().to_owned()
    };
    json!({
        "cpu": field("/proc/cpuinfo", "model name"),
        "memory": field("/proc/meminfo", "MemTotal"),
        "logical_cores": std::thread::available_parallelism().map_or(1, usize::from),
        "os": std::env::consts::OS,
        "arch": std::env::consts::ARCH,
        "level": options.level.name(),
        "threads": options.pool.threads(),
        "debug_assertions": cfg!(debug_assertions),
    })
}

fn print(options: &Options, report: &Value) -> Result<(), Failure> {
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let percent = |value: &Value| format!("{:.0} %", number(value) * 100.0);
    println!(
        "{}: level {}, {} threads; read bandwidth {:.1} GB/s, multiply-add peak {:.0} GFLOP/s (medians)",
        report["set"].as_str().unwrap_or_default(),
        options.level,
        options.pool.threads(),
        number(&report["limits"]["read_bytes_per_s"]["median"]) / 1e9,
        number(&report["limits"]["multiply_add_flop_per_s"]["median"]) / 1e9,
    );
    println!(
        "{:<48} {:>9} {:>8} {:>10} {:>10} {:>7} {:>8} {:>7} {:>7} {:>7}  {:<8} shape",
        "kernel", "MB", "GFLOP", "median ms", "min ms", "GB/s", "GFLOP/s", "of bw", "of peak", "of lim.", "limit"
    );
    for case in report["cases"].as_array().ok_or("no cases")? {
        println!(
            "{:<48} {:>9.1} {:>8.2} {:>10.3} {:>10.3} {:>7.1} {:>8.1} {:>7} {:>7} {:>7}  {:<8} {}",
            case["kernel"].as_str().unwrap_or_default(),
            number(&case["bytes"]) / 1e6,
            number(&case["flop"]) / 1e9,
            number(&case["median_ms"]),
            number(&case["min_ms"]),
            number(&case["gb_per_s"]),
            number(&case["gflop_per_s"]),
            percent(&case["share_of_read_bandwidth"]),
            percent(&case["share_of_peak"]),
            percent(&case["share_of_limit"]),
            case["bound"].as_str().unwrap_or("-"),
            case["shape"].as_str().unwrap_or_default(),
        );
    }
    Ok(())
}
