// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sparse and dense decode at the geometry of MiniMax-M3, beside the machine's limits.
//!
//! `cargo bench -p msa-sparse-decode -- --help`
//!
//! Probes of the limits and cases take turns in short slices, round after round, and a case's share of the limit is
//! that against the probes of its own round: absolute speeds of a shared machine move by half within minutes.

use cpu_tiles::attention::PackedPages;
use cpu_tiles::mem::Buffer;
use cpu_tiles::probe::{self, Bandwidth};
use cpu_tiles::{Format, Level, Pool, Precision};
use half::bf16;
use msa_sparse_decode::{BlockIds, Cache, DecodeBatch, DecodeDims, Queries, sparse_decode};
use op_testkit::fill_bf16;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use zerocopy::FromBytes;

const USAGE: &str = "\
cargo bench -p msa-sparse-decode -- [options]

  --json FILE   write the report, with raw samples
  --rounds N    rounds of slices (default 7; 2 with --quick)
  --threads N   threads (default: RAYON_NUM_THREADS, else physical cores)
  --level L     SIMD level: scalar, avx2, avx512, avx512bf16 (default: CPU_TILES_LEVEL, else the best)
  --quick       one sequence, two rounds
  --help        this text
";

const SCHEMA: &str = "msa-sparse-decode-bench/1";
const DIMS: DecodeDims = DecodeDims::M3;
/// Blocks of a sequence: 65,536 keys.
const BLOCKS: usize = 512;
const TOP_K: usize = 16;
/// Elements of the keys of a block of one KV head.
const BLOCK: usize = DIMS.block * DIMS.head_dim;
/// Elements of the keys of a sequence.
const SEQUENCE: usize = DIMS.kv_heads * BLOCKS * BLOCK;
const SLICE: Duration = Duration::from_millis(100);
/// Many times any last-level cache.
const PROBE_BYTES: usize = 512 << 20;

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
        rounds: rounds.unwrap_or(if quick { 2 } else { 7 }),
        pool: threads.map_or_else(Pool::from_env, Pool::new)?,
        level: level.map_or_else(Level::from_env, |name| Level::new(name.parse()?))?,
        quick,
    }))
}

/// What is measured: one call per number.
struct Case<'a> {
    kernel: String,
    shape: String,
    /// Bytes of the keys and values that a call reads.
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

/// Keys and values of some sequences, in both layouts.
struct Data {
    sequences: usize,
    /// Keys, then values, `[sequences, G, blocks, block, D]` each.
    plain: Buffer,
    packed: PackedPages,
    /// The pages of each sequence.
    tables: Vec<Vec<i32>>,
}

impl Data {
    fn new(level: Level, sequences: usize) -> Result<Self, Failure> {
        // Enough distinct values for the softmax to be an ordinary one; the rest repeats them.
        let values = fill_bf16(1, 1 << 20, 1.0);
        let mut plain = Buffer::zeroed(2 * sequences * SEQUENCE * size_of::<bf16>())?;
        let elements = <[bf16]>::mut_from_bytes(&mut plain).map_err(|error| error.to_string())?;
        for (i, chunk) in elements.chunks_mut(values.len() - 1).enumerate() {
            let turn = i * 977 % values.len();
            let (a, b) = (&values[turn..], &values[..turn]);
            let first = a.len().min(chunk.len());
            chunk[..first].copy_from_slice(&a[..first]);
            let rest = chunk.len() - first;
            chunk[first..].copy_from_slice(&b[..rest]);
        }
        let mut data = Self {
            sequences,
            packed: PackedPages::new(Format::Bf16, DIMS.kv_heads, DIMS.head_dim, DIMS.block, sequences * BLOCKS)?,
            // The pages of a sequence lie apart, as those of a cache in use do.
            tables: (0..sequences)
                .map(|sequence| (0..BLOCKS).map(|block| (block * 181 % BLOCKS * sequences + sequence) as i32).collect())
                .collect(),
            plain,
        };
        let (keys, values) = elements_of(&data.plain).split_at(sequences * SEQUENCE);
        for (sequence, table) in data.tables.iter().enumerate() {
            for (block, &page) in table.iter().enumerate() {
                for head in 0..DIMS.kv_heads {
                    let at = ((sequence * DIMS.kv_heads + head) * BLOCKS + block) * BLOCK;
                    let (k, v) = (&keys[at..at + BLOCK], &values[at..at + BLOCK]);
                    data.packed.write_bf16(level, page as usize, head, 0, DIMS.block, k, v, DIMS.head_dim)?;
                }
            }
        }
        Ok(data)
    }

    fn cache(&self, packed: bool, sequence: usize) -> Cache<'_> {
        if packed {
            return Cache::Packed { pages: &self.packed, block_table: Some(&self.tables[sequence]) };
        }
        let (keys, values) = elements_of(&self.plain).split_at(self.sequences * SEQUENCE);
        let range = sequence * SEQUENCE..(sequence + 1) * SEQUENCE;
        Cache::Plain { k_blocks: &keys[range.clone()], v_blocks: &values[range] }
    }
}

fn elements_of(buffer: &Buffer) -> &[bf16] {
    <[bf16]>::ref_from_bytes(buffer).expect("a buffer is aligned, and was made for whole values")
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

/// How the blocks of a call are chosen.
#[derive(Clone, Copy, PartialEq)]
enum Choice {
    /// 16 blocks that no recent call has read.
    Fresh,
    /// The same 16 blocks in every call.
    Same,
    /// All blocks.
    All,
}

fn run(options: &Options) -> Result<(), Failure> {
    let (level, pool) = (options.level, &options.pool);
    let sequences = if options.quick { 1 } else { 4 };
    eprintln!("making {sequences} sequences of {BLOCKS} blocks, plain and packed");
    let data = Data::new(level, sequences)?;
    let queries = fill_bf16(2, DIMS.heads * DIMS.head_dim, 1.0);
    let all: Vec<i32> = (0..BLOCKS as i32).collect();
    // Permuted, so that the sixteen blocks of a call are spread over the sequence; distinct from call to call.
    let spread: Vec<i32> = (0..BLOCKS).map(|i| (i * 37 % BLOCKS) as i32).collect();

    let mut cases: Vec<Case<'_>> = Vec::new();
    for (choice, name) in [(Choice::Fresh, "sparse"), (Choice::Same, "sparse-resident"), (Choice::All, "dense")] {
        for packed in [true, false] {
            let (queries, data, all, spread) = (&queries, &data, &all, &spread);
            let listed = if choice == Choice::All { BLOCKS } else { TOP_K };
            let keys = listed * DIMS.block;
            let mut out = vec![bf16::ZERO; queries.len()];
            cases.push(Case {
                kernel: format!("sparse_decode/{name}/{}/{level}", if packed { "packed" } else { "plain" }),
                shape: format!(
                    "B 1, heads {}/{}, D {}, {listed} of {BLOCKS} blocks of {}",
                    DIMS.heads, DIMS.kv_heads, DIMS.head_dim, DIMS.block
                ),
                bytes: 2 * DIMS.kv_heads * keys * DIMS.head_dim * size_of::<bf16>(),
                flop: (DIMS.heads * keys * DIMS.head_dim * 4) as f64,
                call: Box::new(move |call| {
                    let (sequence, ids) = match choice {
                        Choice::Fresh => {
                            let first = call / sequences % (BLOCKS / TOP_K) * TOP_K;
                            (call % sequences, &spread[first..first + TOP_K])
                        }
                        Choice::Same => (0, &spread[..TOP_K]),
                        Choice::All => (call % sequences, &all[..]),
                    };
                    let batch = DecodeBatch {
                        queries: Queries::Bf16(queries),
                        cache: data.cache(packed, sequence),
                        block_ids: BlockIds::Shared(ids),
                        seq_lens: &[BLOCKS * DIMS.block],
                    };
                    let blind = sparse_decode(level, pool, &DIMS, &batch, &mut out)?;
                    if blind.is_empty() { Ok(()) } else { Err("a KV head saw nothing".into()) }
                }),
                calls: 0,
                rounds: Vec::new(),
            });
        }
    }
    check(options, &data, &queries, &all)?;

    eprintln!("{} cases, {} rounds of {} ms slices", cases.len(), options.rounds, SLICE.as_millis());
    let bandwidth = Bandwidth::new(PROBE_BYTES)?;
    let mut iterations = 1 << 12;
    while time(|| _ = probe::peak(level, Precision::Bf16, pool, iterations)) < Duration::from_millis(20) {
        iterations *= 2;
    }
    let mut limits = Limits::default();
    for round in 1..=options.rounds {
        limits.measure(&bandwidth, level, pool, iterations);
        for case in &mut cases {
            case.slice()?;
        }
        eprintln!("round {round} of {}", options.rounds);
    }
    let report = report(options, sequences, &cases, &limits);
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

/// Both layouts give the same bits, or there is nothing to time.
fn check(options: &Options, data: &Data, queries: &[bf16], ids: &[i32]) -> Result<(), Failure> {
    let output = |packed: bool| -> Result<Vec<bf16>, Failure> {
        let mut out = vec![bf16::ZERO; queries.len()];
        let batch = DecodeBatch {
            queries: Queries::Bf16(queries),
            cache: data.cache(packed, 0),
            block_ids: BlockIds::Shared(ids),
            seq_lens: &[BLOCKS * DIMS.block - 3],
        };
        sparse_decode(options.level, &options.pool, &DIMS, &batch, &mut out)?;
        Ok(out)
    };
    if output(true)? == output(false)? { Ok(()) } else { Err("packed and plain give other results".into()) }
}

fn report(options: &Options, sequences: usize, cases: &[Case<'_>], limits: &Limits) -> Value {
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
            "chunk_keys": DIMS.chunk_keys, "sequences": sequences, "blocks": BLOCKS, "top_k": TOP_K,
            "rounds": options.rounds, "slice_ms": SLICE.as_millis() as u64,
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
        "{:<48} {:>7} {:>7} {:>10} {:>8} {:>7} {:>8} {:>7}  {:<8} shape",
        "kernel", "MB", "GFLOP", "median ms", "min ms", "GB/s", "GFLOP/s", "of lim.", "limit"
    );
    for case in report["cases"].as_array().ok_or("no cases")? {
        println!(
            "{:<48} {:>7.1} {:>7.2} {:>10.3} {:>8.3} {:>7.1} {:>8.1} {:>7}  {:<8} {}",
            case["kernel"].as_str().unwrap_or_default(),
            number(&case["bytes"]) / 1e6,
            number(&case["flop"]) / 1e9,
            number(&case["median_ms"]),
            number(&case["min_ms"]),
            number(&case["gb_per_s"]),
            number(&case["gflop_per_s"]),
            format!("{:.0} %", number(&case["share_of_limit"]) * 100.0),
            case["bound"].as_str().unwrap_or_default(),
            case["shape"].as_str().unwrap_or_default(),
        );
    }
    Ok(())
}
