// SPDX-License-Identifier: MIT OR Apache-2.0

//! The harness of the operators' benches: options, rounds, limits of the machine, report.
//!
//! Probes of the limits and cases take turns in short slices, round after round, and a case's share of the limit is that
//! against the probes of its own round: absolute speeds of a shared machine move by half within minutes.
//!
//! The crate knows no operator and no tiles: a bench passes what reads memory and what multiplies as closures.
//!
//! ```
//! use op_testkit::bench::{Bench, Case, Options, Program};
//!
//! const PROGRAM: Program = Program { package: "double", rounds: 7, quick: "one case", words: &[] };
//!
//! # let arguments = ["--quick", "--case", "small"].map(str::to_owned);
//! let options = Options::parse(&PROGRAM, arguments)?.expect("no help was asked for");
//! let data = vec![1.0_f32; 1 << 16];
//! let sum = || data.iter().sum::<f32>();
//! let bench = Bench::new(&options, "scalar", 1, || {
//!     let start = std::time::Instant::now();
//!     std::hint::black_box(sum());
//!     size_of_val(&data[..]) as f64 / start.elapsed().as_secs_f64()
//! });
//! let cases = vec![Case::new("sum", "small", size_of_val(&data[..]), 0.0, |_call| {
//!     std::hint::black_box(sum());
//!     Ok(())
//! })];
//! let measured = bench.run(cases)?;
//! assert_eq!(bench.report("double-bench/1", serde_json::json!({}), &measured)["cases"][0]["bound"], "memory");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

/// What a bench fails with.
pub type Failure = Box<dyn std::error::Error>;

/// Time that a case is called for in each round, at least.
pub const SLICE: Duration = Duration::from_millis(100);
/// Time of a reading of multiply units, at least.
const PEAK_TIME: Duration = Duration::from_millis(20);
/// What stands before the name of a case whose calls are going to be counted.
const COUNTED: &str = "counted: ";
/// Readings of a limit in each round, of which the middle one counts.
const READINGS: usize = 3;

/// A bench as its usage describes it.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// The crate.
    pub package: &'static str,
    /// Rounds unless `--rounds` says otherwise.
    pub rounds: usize,
    /// What `--quick` leaves, beside two rounds.
    pub quick: &'static str,
    /// Options of its own.
    pub words: &'static [Word],
}

/// An option that a bench has beside the common ones.
#[derive(Debug, Clone, Copy)]
pub struct Word {
    /// Its name, such as `--model`.
    pub name: &'static str,
    /// What stands for its value in the usage.
    pub value: &'static str,
    /// What it does.
    pub help: &'static str,
}

impl Program {
    /// The text of `--help`.
    #[must_use]
    pub fn usage(&self) -> String {
        let mut lines: Vec<(String, String)> =
            self.words.iter().map(|word| (format!("{} {}", word.name, word.value), word.help.to_owned())).collect();
        let common = [
            ("--json FILE", "write the report, with raw samples".to_owned()),
            ("--case TEXT", "only cases whose kernel or shape contains this".to_owned()),
            ("--rounds N", format!("rounds of slices (default {}; 2 with --quick)", self.rounds)),
            ("--threads N", "threads (default: RAYON_NUM_THREADS, else physical cores)".to_owned()),
            (
                "--level L",
                "SIMD level: scalar, avx2, avx512, avx512bf16 (default: CPU_TILES_LEVEL, else the best)".to_owned(),
            ),
            ("--quick", format!("{}, two rounds", self.quick)),
            (
                "--calls N",
                "name and call each case N times, at small sizes, for tools that count; measure nothing".to_owned(),
            ),
            ("--help", "this text".to_owned()),
        ];
        lines.extend(common.map(|(name, help)| (name.to_owned(), help)));
        let options: String = lines.iter().map(|(name, help)| format!("  {name:<14}{help}\n")).collect();
        format!("cargo bench -p {} -- [options]\n\n{options}", self.package)
    }
}

/// The options of a bench.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Where the report goes.
    pub json: Option<PathBuf>,
    /// Rounds of slices.
    pub rounds: usize,
    /// Threads; `None` means the default of the thread pool.
    pub threads: Option<usize>,
    /// SIMD level by name; `None` means the default.
    pub level: Option<String>,
    /// Whether fewer cases are wanted.
    pub quick: bool,
    /// What the kernel or the shape of a wanted case contains.
    pub case: String,
    /// How often each case is called, if nothing is to be measured.
    pub calls: Option<usize>,
    /// Values of the options of the bench's own, by name.
    pub words: BTreeMap<&'static str, String>,
}

impl Options {
    /// From the words behind the program's name; `None` where the usage is asked for.
    ///
    /// # Errors
    /// An unknown option, a missing or an impossible value.
    pub fn parse(program: &Program, arguments: impl IntoIterator<Item = String>) -> Result<Option<Self>, Failure> {
        let mut options = Self {
            json: None,
            rounds: 0,
            threads: None,
            level: None,
            quick: false,
            case: String::new(),
            calls: None,
            words: BTreeMap::new(),
        };
        let mut arguments = arguments.into_iter();
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("`{name}` needs a value"));
            let count = |value: Result<String, String>| {
                let value = value?;
                value.parse().ok().filter(|n| *n > 0).ok_or_else(|| format!("bad `{name}` {value}: expected 1 or more"))
            };
            match name.as_str() {
                "--json" => options.json = Some(PathBuf::from(value()?)),
                "--case" => options.case = value()?,
                "--rounds" => options.rounds = count(value())?,
                "--threads" => options.threads = Some(count(value())?),
                "--calls" => options.calls = Some(count(value())?),
                "--level" => options.level = Some(value()?),
                "--quick" => options.quick = true,
                "--help" | "-h" => return Ok(None),
                // What cargo passes to every bench.
                "--bench" => {}
                _ => match program.words.iter().find(|word| word.name == name) {
                    Some(word) => _ = options.words.insert(word.name, value()?),
                    None => return Err(format!("unknown option `{name}`").into()),
                },
            }
        }
        if options.rounds == 0 {
            options.rounds = if options.quick { 2 } else { program.rounds };
        }
        Ok(Some(options))
    }

    /// Whether small sizes are wanted: calls are counted, not timed.
    #[must_use]
    pub fn is_small(&self) -> bool {
        self.calls.is_some()
    }

    /// One of two, the second if small sizes are wanted.
    #[must_use]
    pub fn size<T>(&self, usual: T, small: T) -> T {
        if self.is_small() { small } else { usual }
    }

    /// Whether a case is wanted.
    #[must_use]
    pub fn wants(&self, kernel: &str, shape: &str) -> bool {
        kernel.contains(&self.case) || shape.contains(&self.case)
    }
}

/// The `main` of a bench: exit code 2 for a wrong command line, 1 for a failure.
pub fn main(program: &Program, run: impl FnOnce(&Options) -> Result<(), Failure>) -> ExitCode {
    match Options::parse(program, std::env::args().skip(1)) {
        Ok(Some(options)) => match run(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        },
        Ok(None) => {
            print!("{}", program.usage());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprint!("{error}\n\n{}", program.usage());
            ExitCode::from(2)
        }
    }
}

type Call<'a> = Box<dyn FnMut(usize) -> Result<(), Failure> + 'a>;

/// What is measured: one call per number.
pub struct Case<'a> {
    kernel: String,
    shape: String,
    bytes: usize,
    flop: f64,
    /// The multiply units that limit it, if anything does.
    peak: Option<usize>,
    facts: Map<String, Value>,
    call: Call<'a>,
    calls: usize,
    rounds: Vec<Vec<f64>>,
}

impl std::fmt::Debug for Case<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case").field("kernel", &self.kernel).field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl<'a> Case<'a> {
    /// A case that reads `bytes` bytes and does `flop` operations in each `call`, which is told its number.
    pub fn new(
        kernel: impl Into<String>,
        shape: impl Into<String>,
        bytes: usize,
        flop: f64,
        call: impl FnMut(usize) -> Result<(), Failure> + 'a,
    ) -> Self {
        Self {
            kernel: kernel.into(),
            shape: shape.into(),
            bytes,
            flop,
            peak: Some(0),
            facts: Map::new(),
            call: Box::new(call),
            calls: 0,
            rounds: Vec::new(),
        }
    }

    /// The multiply units that limit it are those of the bench's peak number `peak`.
    #[must_use]
    pub fn with_peak(mut self, peak: usize) -> Self {
        self.peak = Some(peak);
        self
    }

    /// Neither memory nor the multiply units limit it, so that a share of a limit would mean nothing.
    #[must_use]
    pub fn without_limit(mut self) -> Self {
        self.peak = None;
        self
    }

    /// One more field of its report.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.facts.insert(name.to_owned(), value.into());
        self
    }

    /// Whether it is wanted; [`Bench::run`] drops those that are not.
    #[must_use]
    pub fn is_wanted(&self, options: &Options) -> bool {
        options.wants(&self.kernel, &self.shape)
    }

    /// Its kernel.
    #[must_use]
    pub fn kernel(&self) -> &str {
        &self.kernel
    }

    /// A field that [`with`](Self::with) has added.
    #[must_use]
    pub fn fact(&self, name: &str) -> Option<&Value> {
        self.facts.get(name)
    }

    /// Milliseconds of the calls of each round.
    #[must_use]
    pub fn rounds(&self) -> &[Vec<f64>] {
        &self.rounds
    }

    /// Median over the rounds of `of(round, its median in milliseconds)`.
    pub fn over_rounds(&self, of: impl Fn(usize, f64) -> f64) -> f64 {
        median(self.rounds.iter().enumerate().map(|(round, ms)| of(round, median(ms.clone()))).collect())
    }

    fn once(&mut self) -> Result<(), Failure> {
        counted(&mut self.call, self.calls)?;
        self.calls += 1;
        Ok(())
    }

    fn slice(&mut self) -> Result<(), Failure> {
        let (begin, mut samples) = (Instant::now(), Vec::new());
        while samples.is_empty() || begin.elapsed() < SLICE {
            let start = Instant::now();
            self.once()?;
            samples.push(start.elapsed().as_secs_f64() * 1e3);
        }
        self.rounds.push(samples);
        Ok(())
    }
}

/// One call of a case. Tools that count instructions find the calls by the name of this function, so it is never inlined.
#[inline(never)]
fn counted(call: &mut Call<'_>, number: usize) -> Result<(), Failure> {
    call(number)
}

/// The middle value, or the mean of the two in the middle; NaN of none.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// A limit of the machine: how it is measured.
struct Limit<'a> {
    name: &'static str,
    read: Box<dyn Fn() -> f64 + 'a>,
}

/// A bench on one machine, at one level, on so many threads.
pub struct Bench<'a> {
    options: &'a Options,
    level: String,
    threads: usize,
    bandwidth: Limit<'a>,
    peaks: Vec<Limit<'a>>,
}

impl std::fmt::Debug for Bench<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bench").field("level", &self.level).field("threads", &self.threads).finish_non_exhaustive()
    }
}

/// Cases with their times, and the limits in each round, in units per second.
#[derive(Debug)]
pub struct Measured<'a> {
    /// The cases.
    pub cases: Vec<Case<'a>>,
    bandwidth: Vec<f64>,
    peaks: Vec<Vec<f64>>,
}

impl Measured<'_> {
    /// Shortest possible milliseconds in a round: by memory, by the multiply units `peak`.
    fn ms(&self, case: &Case<'_>, peak: usize, round: usize) -> (f64, f64) {
        let rate = self.peaks.get(peak).map_or(f64::INFINITY, |peaks| peaks[round]);
        (case.bytes as f64 / self.bandwidth[round] * 1e3, case.flop / rate * 1e3)
    }

    fn report_of(&self, case: &Case<'_>) -> Value {
        let ms = median(case.rounds.concat());
        let mut report = json!({
            "kernel": case.kernel,
            "shape": case.shape,
            "bytes": case.bytes,
            "flop": case.flop,
            "median_ms": ms,
            "min_ms": case.rounds.concat().into_iter().fold(f64::INFINITY, f64::min),
            "gb_per_s": case.bytes as f64 / ms / 1e6,
            "gflop_per_s": case.flop / ms / 1e6,
            "bound": null, "share_of_limit": null, "share_of_read_bandwidth": null, "share_of_peak": null,
            "samples_ms": case.rounds,
        });
        if let Some(peak) = case.peak {
            let share = |of: fn((f64, f64)) -> f64| case.over_rounds(|round, ms| of(self.ms(case, peak, round)) / ms);
            let of_memory = case.over_rounds(|round, _| {
                let (memory, compute) = self.ms(case, peak, round);
                memory - compute
            });
            report["bound"] = if of_memory > 0.0 { "memory" } else { "compute" }.into();
            report["share_of_limit"] = share(|(memory, compute)| memory.max(compute)).into();
            report["share_of_read_bandwidth"] = share(|(memory, _)| memory).into();
            report["share_of_peak"] = share(|(_, compute)| compute).into();
        }
        for (name, value) in &case.facts {
            report[name] = value.clone();
        }
        report
    }
}

impl<'a> Bench<'a> {
    /// A bench whose `read` measures the read bandwidth, in bytes per second.
    pub fn new(options: &'a Options, level: &str, threads: usize, read: impl Fn() -> f64 + 'a) -> Self {
        Self {
            options,
            level: level.to_owned(),
            threads,
            bandwidth: Limit { name: "read_bytes_per_s", read: Box::new(read) },
            peaks: Vec::new(),
        }
    }

    /// Multiply units, measured by `run` with as many iterations as it is told to make, in FLOP per second. The first are
    /// number 0.
    #[must_use]
    pub fn with_peak(mut self, name: &'static str, run: impl Fn(u64) -> f64 + 'a) -> Self {
        let iterations = std::cell::Cell::new(1 << 12);
        let read = move || loop {
            let start = Instant::now();
            let rate = run(iterations.get());
            if start.elapsed() >= PEAK_TIME {
                return rate;
            }
            iterations.set(iterations.get() * 2);
        };
        self.peaks.push(Limit { name, read: Box::new(read) });
        self
    }

    /// Calls every wanted case once, then measures limits and cases in rounds. With `--calls`, calls the cases so often
    /// instead.
    ///
    /// # Errors
    /// That of a case; none that is wanted.
    pub fn run<'c>(&self, cases: Vec<Case<'c>>) -> Result<Measured<'c>, Failure> {
        let mut cases: Vec<_> = cases.into_iter().filter(|case| case.is_wanted(self.options)).collect();
        if cases.is_empty() {
            return Err(format!("no kernel and no shape contains `{}`", self.options.case).into());
        }
        for case in &mut cases {
            (case.call)(0)?;
        }
        let mut measured = Measured { cases, bandwidth: Vec::new(), peaks: vec![Vec::new(); self.peaks.len()] };
        if let Some(calls) = self.options.calls {
            for case in &mut measured.cases {
                println!("{COUNTED}{}, {}", case.kernel, case.shape);
                for _ in 0..calls {
                    case.once()?;
                }
            }
            return Ok(measured);
        }
        let (count, rounds) = (measured.cases.len(), self.options.rounds);
        eprintln!("{count} cases, {rounds} rounds of {} ms slices", SLICE.as_millis());
        let middle = |limit: &Limit<'_>| median((0..READINGS).map(|_| (limit.read)()).collect());
        for round in 1..=rounds {
            measured.bandwidth.push(middle(&self.bandwidth));
            for (peak, readings) in self.peaks.iter().zip(&mut measured.peaks) {
                readings.push(middle(peak));
            }
            for case in &mut measured.cases {
                case.slice()?;
            }
            eprintln!("round {round} of {rounds}");
        }
        Ok(measured)
    }

    /// The limits of a measurement.
    #[must_use]
    pub fn limits(&self, measured: &Measured<'_>) -> Value {
        let readings =
            std::iter::once((&self.bandwidth, &measured.bandwidth)).chain(self.peaks.iter().zip(&measured.peaks));
        let of = |samples: &Vec<f64>| json!({ "median": median(samples.clone()), "samples": samples });
        readings.map(|(limit, samples)| (limit.name.to_owned(), of(samples))).collect::<Map<_, _>>().into()
    }

    /// The cases of a measurement.
    #[must_use]
    pub fn cases(&self, measured: &Measured<'_>) -> Vec<Value> {
        measured.cases.iter().map(|case| measured.report_of(case)).collect()
    }

    /// The report: `settings` are the bench's own, to which rounds and the length of a slice are added.
    #[must_use]
    pub fn report(&self, schema: &str, settings: Value, measured: &Measured<'_>) -> Value {
        json!({
            "schema": schema,
            "machine": self.machine(),
            "settings": self.settings(settings),
            "limits": self.limits(measured),
            "cases": self.cases(measured),
        })
    }

    /// The settings of the bench with those of the harness.
    #[must_use]
    pub fn settings(&self, mut settings: Value) -> Value {
        settings["rounds"] = self.options.rounds.into();
        settings["slice_ms"] = (SLICE.as_millis() as u64).into();
        settings
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> Value {
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
            "level": self.level,
            "threads": self.threads,
            "debug_assertions": cfg!(debug_assertions),
        })
    }

    /// Prints the limits and the cases of a report, unless nothing was measured.
    pub fn print(&self, limits: &Value, cases: &[Value]) {
        if self.options.calls.is_some() {
            return;
        }
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let percent = |value: &Value| value.as_f64().map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0));
        let peaks: Vec<String> = self
            .peaks
            .iter()
            .map(|peak| {
                let name = peak.name.trim_end_matches("_flop_per_s").replace('_', "-");
                format!("{name} peak {:.0} GFLOP/s", number(&limits[peak.name]["median"]) / 1e9)
            })
            .collect();
        println!(
            "{}, level {}, {} threads; read bandwidth {:.1} GB/s, {} (medians)",
            self.machine()["cpu"].as_str().unwrap_or_default(),
            self.level,
            self.threads,
            number(&limits[self.bandwidth.name]["median"]) / 1e9,
            peaks.join(", ")
        );
        println!(
            "{:<48} {:>9} {:>8} {:>10} {:>10} {:>7} {:>8} {:>7} {:>7} {:>7}  {:<8} shape",
            "kernel", "MB", "GFLOP", "median ms", "min ms", "GB/s", "GFLOP/s", "of bw", "of peak", "of lim.", "limit"
        );
        for case in cases {
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
    }

    /// Prints a report and writes it where `--json` says.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn publish(&self, report: &Value) -> Result<(), Failure> {
        self.print(&report["limits"], report["cases"].as_array().map_or(&[], Vec::as_slice));
        self.save(report)
    }

    /// Writes a report where `--json` says.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, report: &Value) -> Result<(), Failure> {
        if let Some(path) = self.options.json.as_ref().filter(|_| self.options.calls.is_none()) {
            std::fs::write(path, format!("{report:#}\n")).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: Program = Program {
        package: "p",
        rounds: 5,
        quick: "one case",
        words: &[Word { name: "--model", value: "M", help: "which" }],
    };

    fn options(line: &str) -> Result<Option<Options>, Failure> {
        Options::parse(&PROGRAM, line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_and_their_errors() {
        let all = options("--bench --json f --case c --threads 2 --level avx2 --quick --calls 3 --model m3")
            .unwrap()
            .unwrap();
        assert_eq!((all.rounds, all.threads, all.calls, all.quick), (2, Some(2), Some(3), true));
        assert_eq!((all.level.as_deref(), all.words["--model"].as_str()), (Some("avx2"), "m3"));
        assert_eq!(options("").unwrap().unwrap().rounds, 5);
        assert_eq!(options("--quick --rounds 9").unwrap().unwrap().rounds, 9);
        assert!(options("--rounds 1 --help").unwrap().is_none());
        for (line, word) in [
            ("--rounds 0", "bad `--rounds` 0"),
            ("--threads x", "bad `--threads` x"),
            ("--json", "`--json` needs a value"),
            ("--fast", "unknown option `--fast`"),
        ] {
            assert!(options(line).unwrap_err().to_string().contains(word), "{line}");
        }
        let usage = PROGRAM.usage();
        for word in ["cargo bench -p p", "--model M", "default 5; 2 with --quick", "one case, two rounds", "--calls N"]
        {
            assert!(usage.contains(word), "{word} is not in {usage}");
        }
    }

    /// A machine that reads 1 GB/s and multiplies at 10 or 20 GFLOP/s, and calls that say how long they take.
    #[test]
    fn shares_are_those_against_the_probes_of_a_round() {
        let options = options("--rounds 2").unwrap().unwrap();
        let rates = std::cell::Cell::new(1e9);
        let bench = Bench::new(&options, "scalar", 1, || rates.get());
        let mut case = Case::new("k", "s", 1_000_000, 1e6, |_| Ok(())).with("tokens", 3);
        case.rounds = vec![vec![4.0, 2.0, 2.0], vec![8.0]];
        let measured = Measured { cases: vec![case], bandwidth: vec![1e9, 0.5e9], peaks: vec![vec![10e9, 10e9]] };
        let report = measured.report_of(&measured.cases[0]);
        // 1 ms of 2 in the first round, 2 ms of 8 in the second; 0.1 ms of each by the multiply units.
        assert_eq!((&report["share_of_limit"], &report["bound"]), (&0.375.into(), &"memory".into()));
        assert_eq!(report["share_of_peak"].as_f64().map(|share| (share * 1e6).round()), Some(31250.0));
        assert_eq!((&report["median_ms"], &report["min_ms"], &report["tokens"]), (&3.0.into(), &2.0.into(), &3.into()));
        assert_eq!(bench.limits(&measured)["read_bytes_per_s"]["median"], 0.75e9);
    }

    #[test]
    fn cases_are_called_as_often_as_asked_and_nothing_else_is_done() {
        let options = options("--calls 3 --case b").unwrap().unwrap();
        let bench = Bench::new(&options, "scalar", 1, || panic!("the limit is not measured"));
        let (calls, others) = (std::cell::RefCell::new(Vec::new()), std::cell::Cell::new(0));
        let cases = vec![
            Case::new("a", "s", 0, 0.0, |_| {
                others.set(1);
                Ok(())
            }),
            Case::new("b", "s", 0, 0.0, |call| {
                calls.borrow_mut().push(call);
                Ok(())
            }),
        ];
        assert_eq!(bench.run(cases).unwrap().cases.len(), 1);
        assert_eq!((calls.into_inner(), others.get()), (vec![0, 0, 1, 2], 0));
        let none = Bench::new(&options, "scalar", 1, || 1.0).run(vec![Case::new("a", "s", 0, 0.0, |_| Ok(()))]);
        assert!(none.unwrap_err().to_string().contains("contains `b`"));
        let fails =
            Bench::new(&options, "scalar", 1, || 1.0).run(vec![Case::new("b", "s", 0, 0.0, |_| Err("no".into()))]);
        assert_eq!(fails.unwrap_err().to_string(), "no");
    }
}
