// SPDX-License-Identifier: MIT OR Apache-2.0

//! Prefill at the geometry of MiniMax-M3 (64 query heads on 4 KV heads of 128 channels, blocks of 128), beside the
//! machine's limits.
//!
//! `cargo bench -p msa-main-branch -- --help`
//!
//! Probes of the limits and cases take turns in short slices, round after round, and a case's share of the limit is
//! that against the probes of its own round: absolute speeds of a shared machine move by half within minutes. FLOP are
//! those of the keys that the rows see, none for what causality hides; packing the keys is part of the time.

use cpu_tiles::probe::{self, Bandwidth};
use cpu_tiles::{Level, Pool, Precision};
use half::bf16;
use msa_main_branch::{AttentionDims, Blocks, Data, KeysValues, Query, msa_main_branch};
use op_testkit::{fill_bf16, fill_f32};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str = "\
cargo bench -p msa-main-branch -- [options]

  --json FILE   write the report, with raw samples
  --rounds N    rounds of slices (default 5; 2 with --quick)
  --threads N   threads (default: RAYON_NUM_THREADS, else physical cores)
  --level L     SIMD level: scalar, avx2, avx512, avx512bf16 (default: CPU_TILES_LEVEL, else the best)
  --case TEXT   only cases whose kernel or shape contains this
  --quick       dense prefill of 1024 tokens only, two rounds
  --help        this text
";

const SCHEMA: &str = "msa-main-branch-bench/1";
const DIMS: AttentionDims = AttentionDims::M3;
const TOPK: usize = 16;
const SLICE: Duration = Duration::from_millis(100);
/// Many times any last-level cache.
const PROBE_BYTES: usize = 512 << 20;

type Failure = Box<dyn std::error::Error>;

struct Options {
    json: Option<PathBuf>,
    rounds: usize,
    pool: Pool,
    level: Level,
    case: String,
    quick: bool,
}

/// The options, or `None` where the usage is asked for.
fn options() -> Result<Option<Options>, Failure> {
    let (mut json, mut rounds, mut threads, mut level, mut quick) = (None, None, None, None, false);
    let mut case = String::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("`{arg}` needs a value"));
        match arg.as_str() {
            "--json" => json = Some(PathBuf::from(value()?)),
            "--rounds" => rounds = Some(value()?.parse::<usize>().ok().filter(|n| *n > 0).ok_or("bad `--rounds`")?),
            "--threads" => threads = Some(value()?.parse::<usize>().map_err(|_| "bad `--threads`")?),
            "--level" => level = Some(value()?),
            "--case" => case = value()?,
            "--quick" => quick = true,
            "--help" | "-h" => return Ok(None),
            // What cargo passes to every bench.
            "--bench" => {}
            _ => return Err(format!("unknown option `{arg}`").into()),
        }
    }
    Ok(Some(Options {
        json,
        rounds: rounds.unwrap_or(if quick { 2 } else { 5 }),
        pool: threads.map_or_else(Pool::from_env, Pool::new)?,
        level: level.map_or_else(Level::from_env, |name| Level::new(name.parse()?))?,
        case,
        quick,
    }))
}

/// Block lists that own their ids.
#[derive(Clone, Copy, PartialEq)]
enum Selection {
    /// All blocks.
    Dense,
    /// Each query and KV head chooses by itself, as if independently of its neighbours: the least that tiles can share.
    PerQuery,
    /// 128 queries and one KV head choose together.
    PerTile,
}

impl Selection {
    fn name(self) -> &'static str {
        match self {
            Self::Dense => "dense",
            Self::PerQuery => "per-query",
            Self::PerTile => "per-tile",
        }
    }

    /// Queries that share a list.
    fn tile(self) -> usize {
        if self == Self::PerTile { DIMS.block } else { 1 }
    }

    /// For each tile and KV head the block of its last query and others before it, at most [`TOPK`]; -1 where there are
    /// fewer.
    fn ids(self, n: usize, start: usize) -> Vec<i32> {
        let mut ids = Vec::new();
        if self == Self::Dense {
            return ids;
        }
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut below = |end: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as usize % end
        };
        for tile in 0..n.div_ceil(self.tile()) {
            let own = (start + n.min((tile + 1) * self.tile()) - 1) / DIMS.block;
            for _ in 0..DIMS.kv_heads {
                let mut list = vec![own as i32];
                while list.len() < TOPK.min(own + 1) {
                    let id = below(own) as i32;
                    if !list.contains(&id) {
                        list.push(id);
                    }
                }
                list.resize(TOPK, -1);
                ids.extend(list);
            }
        }
        ids
    }

    fn blocks(self, ids: &[i32]) -> Blocks<'_> {
        match self {
            Self::Dense => Blocks::All,
            Self::PerQuery => Blocks::PerQuery(ids),
            Self::PerTile => Blocks::PerTileAndHead { tile: DIMS.block, ids },
        }
    }

    /// Pairs of a row and a key that it sees.
    fn pairs(self, n: usize, start: usize, ids: &[i32]) -> usize {
        let group = DIMS.heads / DIMS.kv_heads;
        let of_query = |query: usize| -> usize {
            let position = start + query;
            match self {
                Self::Dense => (position + 1) * DIMS.heads,
                _ => {
                    let lists = &ids[query / self.tile() * DIMS.kv_heads * TOPK..][..DIMS.kv_heads * TOPK];
                    let seen = |&&id: &&i32| id >= 0 && id as usize * DIMS.block <= position;
                    let keys = |&id: &i32| (position + 1 - id as usize * DIMS.block).min(DIMS.block);
                    lists.iter().filter(seen).map(keys).sum::<usize>() * group
                }
            }
        };
        (0..n).map(of_query).sum()
    }
}

/// The arrays of a case, in one number format.
enum Arrays {
    F32([Vec<f32>; 3]),
    Bf16([Vec<bf16>; 3]),
}

impl Arrays {
    fn new(precision: Precision, n: usize, tokens: usize) -> Self {
        let (query, kv) = (n * DIMS.heads * DIMS.head_dim, tokens * DIMS.kv_heads * DIMS.head_dim);
        match precision {
            Precision::F32 => Self::F32([fill_f32(1, query, 6.0), fill_f32(2, kv, 1.7), fill_f32(3, kv, 1.7)]),
            Precision::Bf16 => Self::Bf16([fill_bf16(1, query, 6.0), fill_bf16(2, kv, 1.7), fill_bf16(3, kv, 1.7)]),
        }
    }

    fn data(&self) -> [Data<'_>; 3] {
        match self {
            Self::F32([q, k, v]) => [Data::F32(q), Data::F32(k), Data::F32(v)],
            Self::Bf16([q, k, v]) => [Data::Bf16(q), Data::Bf16(k), Data::Bf16(v)],
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::F32(arrays) => arrays.iter().map(|array| size_of_val(&array[..])).sum(),
            Self::Bf16(arrays) => arrays.iter().map(|array| size_of_val(&array[..])).sum(),
        }
    }
}

/// A case, with the milliseconds of its calls in each round.
struct Case {
    kernel: String,
    shape: String,
    precision: Precision,
    selection: Selection,
    n: usize,
    start: usize,
    bytes: usize,
    flop: f64,
    arrays: Arrays,
    ids: Vec<i32>,
    out: Vec<f32>,
    rounds: Vec<Vec<f64>>,
}

impl Case {
    fn new(options: &Options, precision: Precision, selection: Selection, n: usize, start: usize) -> Self {
        let arrays = Arrays::new(precision, n, start + n);
        let ids = selection.ids(n, start);
        let out = vec![0.0; n * DIMS.heads * DIMS.head_dim];
        let format = if precision == Precision::F32 { "f32" } else { "bf16" };
        Self {
            kernel: format!("msa_main_branch/{}/{format}/{}", selection.name(), options.level),
            shape: format!("n {n} from {start}, {}/{} heads, D {}", DIMS.heads, DIMS.kv_heads, DIMS.head_dim),
            precision,
            selection,
            n,
            start,
            bytes: arrays.bytes() + size_of_val(&out[..]) + size_of_val(&ids[..]),
            flop: (selection.pairs(n, start, &ids) * DIMS.head_dim * 4) as f64,
            arrays,
            ids,
            out,
            rounds: Vec::new(),
        }
    }

    fn call(&mut self, options: &Options) -> Result<(), Failure> {
        let [data, keys, values] = self.arrays.data();
        let (query, plain) = (Query { data, start: self.start }, KeysValues::Plain { keys, values });
        let blocks = self.selection.blocks(&self.ids);
        msa_main_branch(options.level, &options.pool, &DIMS, query, plain, blocks, &mut self.out)?;
        Ok(())
    }

    /// Calls until the slice is over, once at least.
    fn slice(&mut self, options: &Options) -> Result<(), Failure> {
        let mut samples = Vec::new();
        let begin = Instant::now();
        while samples.is_empty() || begin.elapsed() < SLICE {
            let start = Instant::now();
            self.call(options)?;
            samples.push(start.elapsed().as_secs_f64() * 1e3);
        }
        self.rounds.push(samples);
        Ok(())
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
    bf16_peak: Vec<f64>,
    f32_peak: Vec<f64>,
}

impl Limits {
    fn measure(&mut self, bandwidth: &Bandwidth, options: &Options, iterations: u64) {
        let three = |run: &dyn Fn() -> f64| median((0..3).map(|_| run()).collect());
        let peak = |precision| three(&|| probe::peak(options.level, precision, &options.pool, iterations));
        self.bandwidth.push(three(&|| bandwidth.run(&options.pool)));
        self.bf16_peak.push(peak(Precision::Bf16));
        self.f32_peak.push(peak(Precision::F32));
    }

    /// Shortest possible milliseconds in a round: by memory, by the multiply units.
    fn ms(&self, case: &Case, round: usize) -> (f64, f64) {
        let peak = if case.precision == Precision::F32 { &self.f32_peak } else { &self.bf16_peak };
        (case.bytes as f64 / self.bandwidth[round] * 1e3, case.flop / peak[round] * 1e3)
    }

    fn share(&self, case: &Case) -> f64 {
        case.over_rounds(|round, ms| {
            let (memory, compute) = self.ms(case, round);
            memory.max(compute) / ms
        })
    }

    fn bound(&self, case: &Case) -> &'static str {
        if case.over_rounds(|round, _| self.ms(case, round).0 - self.ms(case, round).1) > 0.0 {
            "memory"
        } else {
            "compute"
        }
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
    use Precision::{Bf16, F32};
    use Selection::{Dense, PerQuery, PerTile};
    let mut cases = vec![(Bf16, Dense, 1024, 0), (F32, Dense, 1024, 0)];
    if !options.quick {
        cases.extend([
            (Bf16, Dense, 2048, 0),
            (F32, Dense, 2048, 0),
            // Chunks of a long prompt: all of its first 4096 tokens, and 1024 tokens behind 31 times as many.
            (Bf16, PerQuery, 4096, 0),
            (Bf16, PerTile, 4096, 0),
            (Bf16, PerQuery, 1024, 31 * 1024),
            (Bf16, PerTile, 1024, 31 * 1024),
        ]);
    }
    let cases =
        cases.into_iter().map(|(precision, selection, n, start)| Case::new(options, precision, selection, n, start));
    let wanted = |case: &Case| case.kernel.contains(&options.case) || case.shape.contains(&options.case);
    let mut cases: Vec<_> = cases.filter(wanted).collect();

    eprintln!("{} cases, {} rounds of {} ms slices", cases.len(), options.rounds, SLICE.as_millis());
    let bandwidth = Bandwidth::new(PROBE_BYTES)?;
    let mut iterations = 1 << 12;
    while time(|| _ = probe::peak(options.level, Bf16, &options.pool, iterations)) < Duration::from_millis(20) {
        iterations *= 2;
    }
    for case in &mut cases {
        case.call(options)?;
    }
    let mut limits = Limits::default();
    for round in 1..=options.rounds {
        limits.measure(&bandwidth, options, iterations);
        for case in &mut cases {
            case.slice(options)?;
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

fn report(options: &Options, cases: &[Case], limits: &Limits) -> Value {
    let of_case = |case: &Case| {
        let ms = median(case.rounds.concat());
        json!({
            "kernel": case.kernel,
            "shape": case.shape,
            "queries": case.n,
            "bytes": case.bytes,
            "flop": case.flop,
            "median_ms": ms,
            "min_ms": case.rounds.concat().into_iter().fold(f64::INFINITY, f64::min),
            "gb_per_s": case.bytes as f64 / ms / 1e6,
            "gflop_per_s": case.flop / ms / 1e6,
            "bound": limits.bound(case),
            "share_of_limit": limits.share(case),
            "samples_ms": case.rounds,
        })
    };
    json!({
        "schema": SCHEMA,
        "machine": machine(options),
        "settings": {
            "heads": DIMS.heads, "kv_heads": DIMS.kv_heads, "head_dim": DIMS.head_dim, "block": DIMS.block,
            "topk": TOPK, "rounds": options.rounds, "slice_ms": SLICE.as_millis() as u64,
        },
        "limits": {
            "read_bytes_per_s": {"median": median(limits.bandwidth.clone()), "samples": limits.bandwidth},
            "bf16_flop_per_s": {"median": median(limits.bf16_peak.clone()), "samples": limits.bf16_peak},
            "f32_flop_per_s": {"median": median(limits.f32_peak.clone()), "samples": limits.f32_peak},
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

fn print(report: &Value) -> Result<(), Failure> {
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let (machine, limits) = (&report["machine"], &report["limits"]);
    println!(
        "{}, level {}, {} threads; read bandwidth {:.1} GB/s, BF16 peak {:.0}, F32 peak {:.0} GFLOP/s (medians)",
        machine["cpu"].as_str().unwrap_or_default(),
        machine["level"].as_str().unwrap_or_default(),
        machine["threads"],
        number(&limits["read_bytes_per_s"]["median"]) / 1e9,
        number(&limits["bf16_flop_per_s"]["median"]) / 1e9,
        number(&limits["f32_flop_per_s"]["median"]) / 1e9,
    );
    println!(
        "{:<44} {:>9} {:>8} {:>10} {:>10} {:>7} {:>8} {:>7}  {:<8} shape",
        "kernel", "MB", "GFLOP", "median ms", "min ms", "GB/s", "GFLOP/s", "of lim.", "limit"
    );
    for case in report["cases"].as_array().ok_or("no cases")? {
        println!(
            "{:<44} {:>9.1} {:>8.2} {:>10.3} {:>10.3} {:>7.1} {:>8.1} {:>5.0} %  {:<8} {}",
            case["kernel"].as_str().unwrap_or_default(),
            number(&case["bytes"]) / 1e6,
            number(&case["flop"]) / 1e9,
            number(&case["median_ms"]),
            number(&case["min_ms"]),
            number(&case["gb_per_s"]),
            number(&case["gflop_per_s"]),
            number(&case["share_of_limit"]) * 100.0,
            case["bound"].as_str().unwrap_or_default(),
            case["shape"].as_str().unwrap_or_default(),
        );
    }
    Ok(())
}
