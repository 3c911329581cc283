// SPDX-License-Identifier: MIT OR Apache-2.0

//! The expert FFN at the geometry of MiniMax-M2.7 or M3, beside the machine's limits.
//!
//! `cargo bench -p grouped-gemm -- --help`
//!
//! Probes of the limits and cases take turns in short slices, round after round, and a case's share of the limit is
//! that against the probes of its own round: absolute speeds of a shared machine move by half within minutes.

use cpu_tiles::probe::{self, Bandwidth};
use cpu_tiles::{E8M0, F8E4M3, Format, Level, Overflow, PackedWeight, Pool, Precision, Weight, WeightRef, convert};
use grouped_gemm::{Activation, Expert, MoeDims, Tokens, moe_ffn, moe_ffn_eager};
use half::bf16;
use op_testkit::{fill_bf16, fill_f32};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str = "\
cargo bench -p grouped-gemm -- [options]

  --model M     m27 (default: H 3072, I 1536, top 8, SiLU) or m3 (H 6144, I 3072, top 4, SwiGLU-OAI)
  --json FILE   write the report, with raw samples
  --rounds N    rounds of slices (default 7; 2 with --quick)
  --threads N   threads (default: RAYON_NUM_THREADS, else physical cores)
  --level L     SIMD level: scalar, avx2, avx512, avx512bf16 (default: CPU_TILES_LEVEL, else the best)
  --quick       fewer formats and tokens, two rounds
  --help        this text
";

const SCHEMA: &str = "grouped-gemm-bench/1";
const ROUTINGS: usize = 4;
const SLICE: Duration = Duration::from_millis(100);
/// Many times any last-level cache.
const PROBE_BYTES: usize = 512 << 20;

/// The sizes of a model. There are twice as many experts as a token chooses: of two routings that choose complements, each
/// touches what the other has not.
#[derive(Clone, Copy)]
struct Geometry {
    top_k: usize,
    dims: MoeDims,
}

const M27: Geometry = Geometry {
    top_k: 8,
    dims: MoeDims { experts: 16, hidden: 3072, intermediate: 1536, activation: Activation::Silu },
};
const M3: Geometry = Geometry {
    top_k: 4,
    dims: MoeDims {
        experts: 8,
        hidden: 6144,
        intermediate: 3072,
        activation: Activation::SwigluOai { alpha: 1.702, limit: 7.0 },
    },
};

type Failure = Box<dyn std::error::Error>;

struct Options {
    geometry: Geometry,
    json: Option<PathBuf>,
    rounds: usize,
    pool: Pool,
    level: Level,
    quick: bool,
}

/// The options, or `None` where the usage is asked for.
fn options() -> Result<Option<Options>, Failure> {
    let (mut json, mut rounds, mut threads, mut level, mut quick) = (None, None, None, None, false);
    let mut geometry = M27;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("`{arg}` needs a value"));
        match arg.as_str() {
            "--model" => {
                geometry = match value()?.as_str() {
                    "m27" => M27,
                    "m3" => M3,
                    other => return Err(format!("bad `--model` {other}: expected m27 or m3").into()),
                }
            }
            "--json" => json = Some(PathBuf::from(value()?)),
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
        geometry,
        json,
        rounds: rounds.unwrap_or(if quick { 2 } else { 7 }),
        pool: threads.map_or_else(Pool::from_env, Pool::new)?,
        level: level.map_or_else(Level::from_env, |name| Level::new(name.parse()?))?,
        quick,
    }))
}

/// A weight as a checkpoint holds it.
enum Stored {
    Bf16(Vec<bf16>),
    Fp8Block(Vec<F8E4M3>, Vec<f32>),
    Mxfp8(Vec<F8E4M3>, Vec<E8M0>),
}

impl Stored {
    fn new(format: Format, n: usize, k: usize, seed: u64) -> Self {
        match format {
            Format::Fp8Block => {
                let scales = fill_f32(seed, n.div_ceil(128) * k.div_ceil(128), 0.01);
                Self::Fp8Block(codes(seed, n * k), scales.into_iter().map(|x| 0.0003 + x / 100.0).collect())
            }
            Format::Mxfp8 => {
                let exponents = fill_f32(seed, n * k.div_ceil(32), 2.0);
                let scales = exponents.into_iter().map(|x| E8M0::from_bits((122.0 + x) as u8));
                Self::Mxfp8(codes(seed, n * k), scales.collect())
            }
            Format::Bf16 | Format::F32 => Self::Bf16(fill_bf16(seed, n * k, 0.03)),
        }
    }

    fn weight(&self, n: usize, k: usize) -> Result<WeightRef<'_>, cpu_tiles::ShapeError> {
        match self {
            Self::Bf16(values) => WeightRef::bf16(n, k, values),
            Self::Fp8Block(codes, scales) => WeightRef::fp8_block(n, k, codes, scales),
            Self::Mxfp8(codes, scales) => WeightRef::mxfp8(n, k, codes, scales),
        }
    }
}

/// Codes as a quantiser leaves them: normally distributed weights, scaled so that the largest of a block is near 448. One in
/// some thousand is subnormal, which is what the F32 levels' decoders are slow at.
fn codes(seed: u64, n: usize) -> Vec<F8E4M3> {
    // A sum of twelve uniform values of variance one third is normal enough, with variance four.
    let table: Vec<_> = fill_f32(seed, 12 << 16, 1.0)
        .chunks(12)
        .map(|x| F8E4M3::from_f32(x.iter().sum::<f32>() / 2.0 * 110.0, Overflow::Saturate))
        .collect();
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        table[(state >> 32) as usize % table.len()]
    };
    (0..n).map(|_| next()).collect()
}

/// Choices `[N, top-k]`.
struct Routing {
    ids: Vec<u32>,
    weights: Vec<f32>,
}

/// Random routings, each second one the complement of the one before, which all touch the same number of experts.
fn routings(geometry: Geometry, tokens: usize) -> Vec<Routing> {
    let Geometry { top_k, dims: MoeDims { experts, .. } } = geometry;
    let distinct = |ids: &[u32]| (0..experts as u32).filter(|id| ids.contains(id)).count();
    let most = experts.min(top_k * tokens);
    let pairs = (0..).map(|seed| {
        let keys = fill_f32(seed, tokens * experts, 1.0);
        let mut halves = [Vec::new(), Vec::new()];
        for keys in keys.chunks_exact(experts) {
            let mut ids: Vec<u32> = (0..experts as u32).collect();
            ids.sort_by(|&a, &b| keys[a as usize].total_cmp(&keys[b as usize]));
            for (half, ids) in halves.iter_mut().zip(ids.chunks_exact(top_k)) {
                half.extend_from_slice(ids);
            }
        }
        halves
    });
    pairs
        .filter(|halves| halves.iter().all(|ids| distinct(ids) == most))
        .flatten()
        .take(ROUTINGS)
        .map(|ids| Routing { weights: vec![1.0 / top_k as f32; ids.len()], ids })
        .collect()
}

/// What is measured: one call per number.
struct Case<'a> {
    kernel: String,
    shape: String,
    tokens: usize,
    /// Bytes of the weights that a call reads, as stored.
    bytes: usize,
    flop: f64,
    /// Whether memory or the multiply units limit it, so that a share of the limit means something.
    has_limit: bool,
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

    fn share(&self, case: &Case<'_>) -> f64 {
        case.over_rounds(|round, ms| {
            let (memory, compute) = self.ms(case, round);
            memory.max(compute) / ms
        })
    }

    fn bound(&self, case: &Case<'_>) -> &'static str {
        if case.over_rounds(|round, _| self.ms(case, round).0 - self.ms(case, round).1) > 0.0 {
            "memory"
        } else {
            "compute"
        }
    }
}

/// How a case holds and runs its experts.
struct Arm<'a> {
    name: &'static str,
    format: Format,
    layout: &'static str,
    experts: Vec<Expert<'a>>,
    /// Bytes of one expert.
    bytes: usize,
}

impl Arm<'_> {
    fn run(&self, options: &Options, x: &[bf16], routing: &Routing, out: &mut [f32]) -> Result<(), Failure> {
        let operator = if self.name == "eager" { moe_ffn_eager } else { moe_ffn };
        let (ids, weights) = (&routing.ids, &routing.weights);
        Ok(operator(
            options.level,
            &options.pool,
            &options.geometry.dims,
            Tokens::Bf16(x),
            &self.experts,
            ids,
            weights,
            out,
        )?)
    }
}

fn expert<'a>(weights: [impl Into<Weight<'a>>; 3]) -> Expert<'a> {
    let [gate, up, down] = weights.map(Into::into);
    Expert { gate, up, down }
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
    let (level, pool) = (options.level, &options.pool);
    let Geometry { top_k, dims: MoeDims { experts, hidden, intermediate, .. } } = options.geometry;
    let formats: &[Format] = if options.quick {
        &[Format::Bf16, Format::Fp8Block]
    } else {
        &[Format::Bf16, Format::Fp8Block, Format::Mxfp8]
    };
    let token_counts: &[usize] = if options.quick { &[1, 8, 64] } else { &[1, 8, 256, 1024] };

    eprintln!("making weights of {experts} experts in {} formats, in place and packed", formats.len());
    let shapes = [(intermediate, hidden), (intermediate, hidden), (hidden, intermediate)];
    let mut stored = Vec::new();
    for &format in formats {
        let seeds = 1000 * stored.len()..1000 * stored.len() + 3 * experts;
        stored.push(
            seeds
                .zip(shapes.iter().cycle())
                .map(|(seed, &(n, k))| Stored::new(format, n, k, seed as u64))
                .collect::<Vec<_>>(),
        );
    }
    let mut in_place = Vec::new();
    let mut packed = Vec::new();
    for stored in &stored {
        let weights = stored.iter().zip(shapes.iter().cycle()).map(|(stored, &(n, k))| stored.weight(n, k));
        let weights = weights.collect::<Result<Vec<_>, _>>()?;
        packed.push(PackedWeight::pack_all(level, pool, &weights)?);
        in_place.push(weights);
    }

    let mut arms = Vec::new();
    for ((&format, in_place), packed) in formats.iter().zip(&in_place).zip(&packed) {
        let of_packed = || packed.chunks_exact(3).map(|w| expert([&w[0], &w[1], &w[2]])).collect::<Vec<_>>();
        let bytes = packed[..3].iter().map(PackedWeight::bytes).sum();
        arms.push(Arm { name: "fused", format, layout: "packed", experts: of_packed(), bytes });
        arms.push(Arm {
            name: "fused",
            format,
            layout: "in place",
            experts: in_place.chunks_exact(3).map(|w| expert([w[0], w[1], w[2]])).collect(),
            bytes: in_place[..3].iter().map(WeightRef::bytes).sum(),
        });
        if format != Format::Mxfp8 {
            arms.push(Arm { name: "eager", format, layout: "packed", experts: of_packed(), bytes });
        }
    }

    let tokens: Vec<_> =
        token_counts.iter().map(|&n| (fill_bf16(n as u64, n * hidden, 1.0), routings(options.geometry, n))).collect();
    check(options, &arms, &tokens[0])?;

    let mut cases: Vec<Case<'_>> = Vec::new();
    for (&n, (x, routings)) in token_counts.iter().zip(&tokens) {
        for arm in &arms {
            let mut out = vec![0.0; n * hidden];
            cases.push(Case {
                kernel: format!("moe_ffn/{}/{}/{}/{level}", arm.name, arm.format, arm.layout.replace(' ', "-")),
                shape: format!("N {n} x top {top_k} of {experts}, H {hidden}, I {intermediate}"),
                tokens: n,
                bytes: arm.bytes * experts.min(top_k * n),
                flop: (n * top_k * 3 * hidden * intermediate * 2) as f64,
                has_limit: true,
                call: Box::new(move |call| arm.run(options, x, &routings[call % ROUTINGS], &mut out)),
                calls: 0,
                rounds: Vec::new(),
            });
        }
    }
    let fp8 = formats.iter().position(|format| *format == Format::Fp8Block).ok_or("no FP8 weights")?;
    let down = in_place[fp8][2];
    let mut out = vec![bf16::ZERO; hidden * intermediate];
    cases.push(Case {
        kernel: format!("dequantize_to_bf16/fp8/{level}"),
        shape: format!("[{hidden}, {intermediate}], 1 B read and 2 B written per weight"),
        tokens: 0,
        bytes: down.bytes() + size_of_val(&out[..]),
        flop: 0.0,
        has_limit: false,
        call: Box::new(move |_| Ok(convert::dequantize_to_bf16(level, pool, down, &mut out)?)),
        calls: 0,
        rounds: Vec::new(),
    });

    eprintln!("{} cases, {} rounds of {} ms slices", cases.len(), options.rounds, SLICE.as_millis());
    let bandwidth = Bandwidth::new(PROBE_BYTES)?;
    let mut iterations = 1 << 12;
    while time(|| _ = probe::peak(level, Precision::Bf16, pool, iterations)) < Duration::from_millis(20) {
        iterations *= 2;
    }
    for case in &mut cases {
        (case.call)(ROUTINGS - 1)?;
    }
    let mut limits = Limits::default();
    for round in 1..=options.rounds {
        limits.measure(&bandwidth, level, pool, iterations);
        for case in &mut cases {
            case.slice()?;
        }
        eprintln!("round {round} of {}", options.rounds);
    }
    let report = report(options, &cases, &limits);
    print(&report)?;
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

/// All arms of a format give the same bits, or there is nothing to time.
fn check(options: &Options, arms: &[Arm<'_>], (x, routings): &(Vec<bf16>, Vec<Routing>)) -> Result<(), Failure> {
    let output = |arm: &Arm<'_>| -> Result<Vec<u32>, Failure> {
        let mut out = vec![0.0; x.len()];
        arm.run(options, x, &routings[0], &mut out)?;
        Ok(out.into_iter().map(f32::to_bits).collect())
    };
    for same_format in arms.chunk_by(|a, b| a.format == b.format) {
        let expected = output(&same_format[0])?;
        for arm in &same_format[1..] {
            if output(arm)? != expected {
                return Err(format!("{} {} {}: another result", arm.name, arm.format, arm.layout).into());
            }
        }
    }
    Ok(())
}

fn report(options: &Options, cases: &[Case<'_>], limits: &Limits) -> Value {
    let Geometry { top_k, dims: MoeDims { experts, hidden, intermediate, .. } } = options.geometry;
    let of_case = |case: &Case<'_>| {
        let ms = case.median_ms();
        json!({
            "kernel": case.kernel,
            "shape": case.shape,
            "tokens": case.tokens,
            "bytes": case.bytes,
            "flop": case.flop,
            "median_ms": ms,
            "min_ms": case.rounds.concat().into_iter().fold(f64::INFINITY, f64::min),
            "gb_per_s": case.bytes as f64 / ms / 1e6,
            "gflop_per_s": case.flop / ms / 1e6,
            "bound": case.has_limit.then(|| limits.bound(case)),
            "share_of_limit": case.has_limit.then(|| limits.share(case)),
            "samples_ms": case.rounds,
        })
    };
    // Both packed and fused, round by round.
    let of_format = |format: &str| {
        let prefix = format!("moe_ffn/fused/{format}/packed/");
        cases.iter().find(|case| case.tokens == 8 && case.kernel.starts_with(&prefix))
    };
    let ratio = of_format("fp8")
        .zip(of_format("bf16"))
        .map(|(fp8, bf16)| fp8.over_rounds(|round, ms| ms / median(bf16.rounds[round].clone())));
    json!({
        "schema": SCHEMA,
        "machine": machine(options),
        "settings": {
            "hidden": hidden, "intermediate": intermediate, "experts": experts, "top_k": top_k,
            "routings": ROUTINGS, "rounds": options.rounds, "slice_ms": SLICE.as_millis() as u64,
        },
        "limits": {
            "read_bytes_per_s": {"median": median(limits.bandwidth.clone()), "samples": limits.bandwidth},
            "multiply_add_flop_per_s": {"median": median(limits.peak.clone()), "samples": limits.peak},
        },
        "cases": cases.iter().map(of_case).collect::<Vec<_>>(),
        "fp8_over_bf16_time_at_n8": ratio,
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

fn print(report: &Value) -> Result<(), Failure> {
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let (machine, limits) = (&report["machine"], &report["limits"]);
    println!(
        "{}, level {}, {} threads; read bandwidth {:.1} GB/s, multiply-add peak {:.0} GFLOP/s (medians)",
        machine["cpu"].as_str().unwrap_or_default(),
        machine["level"].as_str().unwrap_or_default(),
        machine["threads"],
        number(&limits["read_bytes_per_s"]["median"]) / 1e9,
        number(&limits["multiply_add_flop_per_s"]["median"]) / 1e9,
    );
    println!(
        "{:<44} {:>9} {:>8} {:>10} {:>10} {:>7} {:>8} {:>7}  {:<8} shape",
        "kernel", "MB", "GFLOP", "median ms", "min ms", "GB/s", "GFLOP/s", "of lim.", "limit"
    );
    for case in report["cases"].as_array().ok_or("no cases")? {
        println!(
            "{:<44} {:>9.1} {:>8.2} {:>10.3} {:>10.3} {:>7.1} {:>8.1} {:>7}  {:<8} {}",
            case["kernel"].as_str().unwrap_or_default(),
            number(&case["bytes"]) / 1e6,
            number(&case["flop"]) / 1e9,
            number(&case["median_ms"]),
            number(&case["min_ms"]),
            number(&case["gb_per_s"]),
            number(&case["gflop_per_s"]),
            case["share_of_limit"].as_f64().map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0)),
            case["bound"].as_str().unwrap_or("-"),
            case["shape"].as_str().unwrap_or_default(),
        );
    }
    if let Some(ratio) = report["fp8_over_bf16_time_at_n8"].as_f64() {
        println!("FP8 over BF16, time at N 8, fused and packed: {ratio:.2}");
    }
    Ok(())
}
