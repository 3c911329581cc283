// SPDX-License-Identifier: MIT OR Apache-2.0

//! The block selection of MiniMax-M3, beside the machine's limits.
//!
//! `cargo bench -p msa-indexer -- --help`
//!
//! Probes of the limits and cases take turns in short slices, round after round, and a case's shares are those of the
//! probes of its own round: absolute speeds of a shared machine move by half within minutes.

use cpu_tiles::probe::{self, Bandwidth};
use cpu_tiles::{Level, PackedWeight, Pool, Precision, WeightRef};
use half::bf16;
use msa_indexer::{IndexerDims, Keys, Values, decode, prefill};
use op_testkit::fill_bf16;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str = "\
cargo bench -p msa-indexer -- [options]

  --json FILE   write the report, with raw samples
  --rounds N    rounds of slices (default 9; 2 with --quick)
  --threads N   threads (default: RAYON_NUM_THREADS, else physical cores)
  --level L     SIMD level: scalar, avx2, avx512, avx512bf16 (default: CPU_TILES_LEVEL, else the best)
  --quick       fewer keys, two rounds
  --help        this text
";

const SCHEMA: &str = "msa-indexer-bench/1";
const DIMS: IndexerDims = IndexerDims::M3;
/// Keys that fit the last-level cache of a server, and keys that do not.
const SHORT: usize = 65_536;
const LONG: usize = 524_288;
/// Sequences of the long length that take turns, so that none finds its keys in a cache.
const SEQUENCES: usize = 4;
const PROMPT: usize = 8_192;
const QUERIES: usize = 1_024;
const SLICE: Duration = Duration::from_millis(100);
/// Many times any last-level cache.
const PROBE_BYTES: usize = 1 << 30;

type Failure = Box<dyn std::error::Error>;

struct Options {
    json: Option<PathBuf>,
    rounds: usize,
    pool: Pool,
    level: Level,
    quick: bool,
}

/// The options, or `None` where the usage is asked for.
fn options() -> Result<Option<Options>, Failure> {
    let (mut json, mut rounds, mut threads, mut level, mut quick) = (None, None, None, None, false);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("`{arg}` needs a value"));
        match arg.as_str() {
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
        json,
        rounds: rounds.unwrap_or(if quick { 2 } else { 9 }),
        pool: threads.map_or_else(Pool::from_env, Pool::new)?,
        level: level.map_or_else(Level::from_env, |name| Level::new(name.parse()?))?,
        quick,
    }))
}

/// The index keys of one sequence, in every layout.
struct Sequence {
    plain: Vec<bf16>,
    packed: Vec<PackedWeight>,
    /// A table that scatters the blocks.
    scattered: Vec<i32>,
}

impl Sequence {
    fn new(options: &Options, seed: u64, keys: usize) -> Result<Self, Failure> {
        let plain = fill_bf16(seed, keys * DIMS.head_dim, 1.0);
        let blocks = plain.chunks_exact(DIMS.block * DIMS.head_dim);
        let blocks = blocks.map(|block| WeightRef::bf16(DIMS.block, DIMS.head_dim, block));
        let packed = PackedWeight::pack_all(options.level, &options.pool, &blocks.collect::<Result<Vec<_>, _>>()?)?;
        let count = packed.len();
        // Any odd factor permutes a power of two of blocks.
        let scattered = (0..count).map(|block| (block * 1237 % count) as i32).collect();
        Ok(Self { plain, packed, scattered })
    }

    fn layouts(&self) -> [(&'static str, Keys<'_>); 4] {
        let (pages, block_table) = (Values::Bf16(&self.plain), &self.scattered[..]);
        [
            ("packed", Keys::Packed { blocks: &self.packed, block_table: None }),
            ("packed-scattered", Keys::Packed { blocks: &self.packed, block_table: Some(block_table) }),
            ("plain", Keys::Plain(pages)),
            ("paged", Keys::Paged { pages, block_table }),
        ]
    }
}

/// What is measured: one call per number.
struct Case<'a> {
    kernel: String,
    shape: String,
    /// Bytes of the keys that a call reads, once.
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

    /// Median over the rounds of the shortest time that a limit allows, over the round's median.
    fn share(&self, of: &[f64], amount: f64) -> f64 {
        let rounds = self.rounds.iter().zip(of);
        median(rounds.map(|(ms, limit)| amount / limit * 1e3 / median(ms.clone())).collect())
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

fn decode_case<'a>(options: &'a Options, sequences: &'a [Sequence], layout: usize, query: &'a [bf16]) -> Case<'a> {
    let Options { level, ref pool, .. } = *options;
    let length = sequences[0].plain.len() / DIMS.head_dim;
    let (name, _) = sequences[0].layouts()[layout];
    let mut ids = vec![0; DIMS.ids_shape(1, length).iter().product()];
    Case {
        kernel: format!("decode/bf16/{name}/{level}"),
        shape: format!("{} heads x {}, {length} keys in blocks of {}", DIMS.heads, DIMS.head_dim, DIMS.block),
        bytes: size_of_val(&sequences[0].plain[..]),
        flop: (2 * DIMS.heads * DIMS.head_dim * length) as f64,
        call: Box::new(move |call| {
            let (_, keys) = sequences[call % sequences.len()].layouts()[layout];
            Ok(decode(level, pool, &DIMS, Values::Bf16(query), keys, length, &mut ids, None)?)
        }),
        calls: 0,
        rounds: Vec::new(),
    }
}

fn prefill_case<'a>(options: &'a Options, sequence: &'a Sequence, layout: usize, queries: &'a [bf16]) -> Case<'a> {
    let Options { level, ref pool, .. } = *options;
    let length = sequence.plain.len() / DIMS.head_dim;
    let count = queries.len() / DIMS.heads / DIMS.head_dim;
    let (start, (name, keys)) = (length - count, sequence.layouts()[layout]);
    let mut ids = vec![0; DIMS.ids_shape(count, length).iter().product()];
    let scores: usize = (start + 1..=length).sum();
    Case {
        kernel: format!("prefill/bf16/{name}/{level}"),
        shape: format!("{count} queries x {} heads x {}, the last of {length} keys", DIMS.heads, DIMS.head_dim),
        bytes: size_of_val(&sequence.plain[..]),
        flop: (2 * DIMS.heads * DIMS.head_dim * scores) as f64,
        call: Box::new(move |_| {
            Ok(prefill(level, pool, &DIMS, Values::Bf16(queries), start, keys, length, &mut ids, None)?)
        }),
        calls: 0,
        rounds: Vec::new(),
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    let (level, pool) = (options.level, &options.pool);
    let long = if options.quick { LONG / 4 } else { LONG };
    eprintln!("making index keys, in rows and packed");
    let short = [Sequence::new(options, 1, SHORT)?];
    let long = (0..SEQUENCES as u64).map(|i| Sequence::new(options, 2 + i, long)).collect::<Result<Vec<_>, _>>()?;
    let prompt = Sequence::new(options, 9, PROMPT)?;
    let query = fill_bf16(10, DIMS.heads * DIMS.head_dim, 1.0);
    let queries = fill_bf16(11, QUERIES * DIMS.heads * DIMS.head_dim, 1.0);
    for sequence in short.iter().chain([&prompt]) {
        check(options, sequence, &query)?;
    }

    let mut cases = Vec::new();
    for layout in 0..prompt.layouts().len() {
        cases.push(decode_case(options, &short, layout, &query));
        cases.push(decode_case(options, &long, layout, &query));
        cases.push(prefill_case(options, &prompt, layout, &queries));
    }

    eprintln!("{} cases, {} rounds of {} ms slices", cases.len(), options.rounds, SLICE.as_millis());
    let bandwidth = Bandwidth::new(PROBE_BYTES)?;
    let mut iterations = 1 << 12;
    while time(|| _ = probe::peak(level, Precision::Bf16, pool, iterations)) < Duration::from_millis(20) {
        iterations *= 2;
    }
    for case in &mut cases {
        (case.call)(0)?;
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

/// Both unscattered layouts give the same bits, and so do both scattered ones, or there is nothing to time.
fn check(options: &Options, sequence: &Sequence, query: &[bf16]) -> Result<(), Failure> {
    let length = sequence.plain.len() / DIMS.head_dim;
    let output = |keys: Keys<'_>| -> Result<(Vec<i32>, Vec<u32>), Failure> {
        let mut ids = vec![0; DIMS.ids_shape(1, length).iter().product()];
        let mut scores = vec![0.0; DIMS.scores_shape(1, length).iter().product()];
        let query = Values::Bf16(query);
        decode(options.level, &options.pool, &DIMS, query, keys, length, &mut ids, Some(&mut scores))?;
        Ok((ids, scores.into_iter().map(f32::to_bits).collect()))
    };
    let layouts = sequence.layouts();
    for [(name, keys), (_, expected)] in [[layouts[0], layouts[2]], [layouts[1], layouts[3]]] {
        if output(keys)? != output(expected)? {
            return Err(format!("{name}: another result").into());
        }
    }
    Ok(())
}

fn report(options: &Options, cases: &[Case<'_>], limits: &Limits) -> Value {
    let of_case = |case: &Case<'_>| {
        let ms = case.median_ms();
        json!({
            "kernel": case.kernel,
            "shape": case.shape,
            "bytes": case.bytes,
            "flop": case.flop,
            "median_ms": ms,
            "min_ms": case.rounds.concat().into_iter().fold(f64::INFINITY, f64::min),
            "gb_per_s": case.bytes as f64 / ms / 1e6,
            "gflop_per_s": case.flop / ms / 1e6,
            "share_of_read_bandwidth": case.share(&limits.bandwidth, case.bytes as f64),
            "share_of_peak": case.share(&limits.peak, case.flop),
            "samples_ms": case.rounds,
        })
    };
    json!({
        "schema": SCHEMA,
        "machine": machine(options),
        "settings": {
            "heads": DIMS.heads, "head_dim": DIMS.head_dim, "block": DIMS.block, "topk": DIMS.topk,
            "sequences": SEQUENCES, "rounds": options.rounds, "slice_ms": SLICE.as_millis() as u64,
        },
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
        "{:<42} {:>8} {:>7} {:>10} {:>9} {:>6} {:>8} {:>9} {:>8}  shape",
        "kernel", "MB", "GFLOP", "median ms", "min ms", "GB/s", "GFLOP/s", "of bandw.", "of peak"
    );
    for case in report["cases"].as_array().ok_or("no cases")? {
        println!(
            "{:<42} {:>8.1} {:>7.2} {:>10.3} {:>9.3} {:>6.1} {:>8.1} {:>9} {:>8}  {}",
            case["kernel"].as_str().unwrap_or_default(),
            number(&case["bytes"]) / 1e6,
            number(&case["flop"]) / 1e9,
            number(&case["median_ms"]),
            number(&case["min_ms"]),
            number(&case["gb_per_s"]),
            number(&case["gflop_per_s"]),
            format!("{:.0} %", number(&case["share_of_read_bandwidth"]) * 100.0),
            format!("{:.0} %", number(&case["share_of_peak"]) * 100.0),
            case["shape"].as_str().unwrap_or_default(),
        );
    }
    Ok(())
}
