// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::activity::Activity;
use super::stats::{Stats, moments};
use super::{Arm, ArmRun, Machine, Measured, Sample};
use crate::plan::Work;

/// Version of the report's layout; it grows when a field changes its meaning or disappears.
pub const SCHEMA: u32 = 2;

/// What all arms of one benchmark have in common.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Display name of the model.
    pub model: String,
    /// Device, such as `cpu`.
    pub device: String,
    /// Layers that ran.
    pub layers: usize,
    /// Those with experts.
    pub moe_layers: usize,
    /// Generations before the first measured one, per arm.
    pub warmup: usize,
    /// Seconds to load the model.
    pub model_load_s: f64,
    /// Tokens of the prompt.
    pub prompt_len: usize,
    /// Upper limit of new tokens.
    pub max_new_tokens: usize,
    /// Peak resident memory of the process in bytes. All arms share one process, hence one peak.
    pub peak_memory_bytes: u64,
    /// The checkpoint folder.
    pub model_path: PathBuf,
    /// The recipe, if the checkpoint is made up.
    pub synthetic: Option<String>,
    /// Type of the activations.
    pub dtype: String,
    /// How the weights of linear layers are held: `mmap` or `pack`.
    pub load: String,
    /// How layers with sparse attention attend, `msa` or `dense`; `None` if there are none.
    pub attention: Option<String>,
    /// Whose choice of blocks it is, `per-kv-head` or `shared`; `None` unless `attention` is `msa`.
    pub indexer: Option<String>,
    /// Prompt tokens that go through the layers together.
    pub prefill_chunk: usize,
    /// Bytes of weights and of the cache that one decode step reads, of a step in the middle of a generation.
    pub decode_bytes_per_step: u64,
    /// FLOP of that step.
    pub decode_flop_per_step: u64,
    /// Bytes and FLOP of the prompt.
    pub prefill_work: Work,
    /// What the multiply units can do, in FLOP per second, measured before the first iteration.
    pub peak_flop_per_s: f64,
    /// Whether the arm had a process of its own.
    pub own_process: bool,
    /// In which order the iterations of the arms were run: `sequential`, `interleaved` or `random`.
    pub order: String,
    /// Knobs that are set, by name.
    pub knobs: BTreeMap<String, String>,
    /// The machine.
    pub machine: Machine,
}

/// Mean and sample standard deviation (n - 1; 0 for one value), rounded to 3 decimals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Arithmetic mean.
    pub mean: f64,
    /// Sample standard deviation.
    pub std: f64,
}

impl Spread {
    /// Of at least one value; of none, both are 0.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        if values.is_empty() {
            return Self { mean: 0.0, std: 0.0 };
        }
        let (mean, std) = moments(values);
        Self { mean: round(mean, 3), std: round(std, 3) }
    }
}

impl Serialize for Spread {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        [self.mean, self.std].serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Spread {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <[f64; 2]>::deserialize(deserializer).map(|[mean, std]| Self { mean, std })
    }
}

pub(super) fn round(value: f64, decimals: i32) -> f64 {
    let scale = 10f64.powi(decimals);
    (value * scale).round() / scale
}

pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => 0.0,
        (n, half) if n % 2 == 1 => sorted[half],
        (_, half) => (sorted[half - 1] + sorted[half]) / 2.0,
    }
}

/// How much faster the fused arm is than the eager one: ratios of median rates.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratios {
    /// Of prompt tokens per second.
    pub prefill: f64,
    /// Of decoded tokens per second.
    pub decode: f64,
    /// Of generated tokens per second, prefill included.
    pub e2e: f64,
}

/// What bounds a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Reading memory.
    Memory,
    /// The multiply units.
    Compute,
    /// Neither: the phase uses less than [`Bound::OVERHEAD`] of both.
    Overhead,
}

impl Bound {
    /// Below this share of memory and of the multiply units, something else takes the time.
    pub const OVERHEAD: f64 = 0.25;

    fn of(memory: f64, compute: f64) -> Self {
        match memory.max(compute) {
            share if share < Self::OVERHEAD => Self::Overhead,
            _ if memory >= compute => Self::Memory,
            _ => Self::Compute,
        }
    }

    /// The one word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Compute => "compute",
            Self::Overhead => "overhead",
        }
    }
}

/// The measured limits of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Read bandwidth in 10^9 bytes per second, median of one measurement per iteration.
    pub read_gb_per_s: f64,
    /// Multiply-adds in 10^9 FLOP per second, measured at the start.
    pub gflop_per_s: f64,
}

/// A phase beside the limits of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Bytes that it reads at least.
    pub bytes: u64,
    /// Its multiplications and additions.
    pub flop: u64,
    /// Its median time in seconds.
    pub seconds: f64,
    /// Its rate of reading over the bandwidth.
    pub of_read: f64,
    /// Its FLOP rate over that of the multiply units.
    pub of_peak: f64,
    /// What bounds it.
    pub bound: Bound,
}

impl Share {
    /// `None` where no time was measured.
    fn of(work: Work, seconds: f64, limits: &Limits) -> Option<Self> {
        if !seconds.is_finite() || seconds <= 0.0 {
            return None;
        }
        let of_read = work.bytes as f64 / seconds / (limits.read_gb_per_s * 1e9).max(1.0);
        let of_peak = work.flop as f64 / seconds / (limits.gflop_per_s * 1e9).max(1.0);
        Some(Self {
            bytes: work.bytes,
            flop: work.flop,
            seconds,
            of_read: round(of_read, 4),
            of_peak: round(of_peak, 4),
            bound: Bound::of(of_read, of_peak),
        })
    }
}

/// Both phases beside the limits of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Roofline {
    /// The limits.
    pub limits: Limits,
    /// The prompt.
    pub prefill: Option<Share>,
    /// One decoded token.
    pub decode: Option<Share>,
}

/// Statistics over the iterations, rounded to 9 significant digits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Seconds to the first token.
    pub prefill_s: Stats,
    /// Seconds to the first token of the full generation.
    pub first_token_s: Stats,
    /// Seconds of the full generation.
    pub total_s: Stats,
    /// Prompt tokens per second.
    pub prefill_tps: Stats,
    /// Decoded tokens per second, from the first to the last token of the full generation.
    pub decode_tps: Stats,
    /// Generated tokens per second of the full generation.
    pub e2e_tps: Stats,
}

/// The report of one arm. Up to `e2e_tps_std` the fields, their order and their rounding are those of the published
/// benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Display name of the model.
    pub model: String,
    /// The arm.
    pub mode: Arm,
    /// Device, such as `cpu`.
    pub device: String,
    /// Layers that ran.
    pub layers: usize,
    /// Layers whose experts ran as a grouped GEMM: all with experts in the fused arm, none in the eager one.
    pub moe_patched: usize,
    /// Generations before the first measured one.
    pub warmup: usize,
    /// Measured iterations.
    pub iters: usize,
    /// Seconds to load the model, 2 decimals.
    pub model_load_s: f64,
    /// Tokens of the prompt.
    pub prompt_len: usize,
    /// Upper limit of new tokens.
    pub max_new_tokens: usize,
    /// Generated tokens of each iteration.
    pub gen_tokens: Vec<usize>,
    /// Peak resident memory of the process in 2^20 bytes, 1 decimal.
    pub peak_mem_mb: f64,
    /// Seconds to the first token.
    pub prefill_time_s: Spread,
    /// Seconds of the whole generation less the separate prefill.
    pub decode_time_s: Spread,
    /// Seconds of the whole generation.
    pub total_time_s: Spread,
    /// Prompt tokens per second of prefill, mean.
    pub prefill_tps_mean: f64,
    /// Its sample standard deviation.
    pub prefill_tps_std: f64,
    /// Tokens after the first per `decode_time_s`, mean.
    pub decode_tps_mean: f64,
    /// Its sample standard deviation.
    pub decode_tps_std: f64,
    /// Generated tokens per second of the whole generation, mean.
    pub e2e_tps_mean: f64,
    /// Its sample standard deviation.
    pub e2e_tps_std: f64,
    /// [`SCHEMA`].
    pub schema: u32,
    /// The checkpoint folder.
    pub model_path: String,
    /// Whether the weights are made up.
    pub synthetic: bool,
    /// The recipe of made-up weights.
    pub synthetic_spec: Option<String>,
    /// Type of the activations.
    pub dtype: String,
    /// How the weights of linear layers are held: `mmap` or `pack`.
    pub load: String,
    /// How layers with sparse attention attend, `msa` or `dense`; null if there are none.
    pub attention: Option<String>,
    /// Whose choice of blocks it is, `per-kv-head` or `shared`; null unless `attention` is `msa`.
    pub indexer: Option<String>,
    /// Prompt tokens that go through the layers together.
    pub prefill_chunk: usize,
    /// Median of the prefill rate.
    pub prefill_tps_median: f64,
    /// Median of the decode rate within the full generation, from its first to its last token.
    pub decode_tps_median: f64,
    /// Median of the end-to-end rate.
    pub e2e_tps_median: f64,
    /// Bytes that one decode step reads, of a step in the middle of a generation: weights as stored, keys, values and index
    /// keys of the cache.
    pub decode_bytes_per_step: u64,
    /// Those bytes times the median decode rate, in 10^9 bytes per second.
    pub decode_gb_per_s: f64,
    /// Read bandwidth of the machine in 10^9 bytes per second, median of one measurement per iteration.
    pub read_gb_per_s: f64,
    /// `decode_gb_per_s` over `read_gb_per_s`: 1 is the speed of memory.
    pub decode_share_of_read: f64,
    /// Ratios of the medians, when both arms ran.
    pub fused_over_eager: Option<Ratios>,
    /// Whether the arm had a process of its own.
    pub own_process: bool,
    /// In which order the iterations of the arms were run: `sequential`, `interleaved` or `random`.
    pub order: String,
    /// Both phases beside the limits of the machine.
    pub roofline: Roofline,
    /// Mean, deviation and percentiles of what was measured.
    pub stats: Summary,
    /// The raw measurements.
    pub samples: Vec<Sample>,
    /// Loads of experts and choices of blocks, from a generation that is not timed; in the report of one arm, if asked for.
    pub activity: Option<Activity>,
    /// Environment variables that are set.
    pub knobs: BTreeMap<String, String>,
    /// The machine and the build.
    pub machine: Machine,
}

impl Report {
    /// One report per arm, in the order of the plan.
    #[must_use]
    pub fn all(setup: &Setup, measured: &Measured) -> Vec<Self> {
        let read_bytes_per_s = median(measured.read_bytes_per_s.iter().copied());
        let mut reports: Vec<Self> = measured.runs.iter().map(|run| Self::of(setup, run, read_bytes_per_s)).collect();
        Self::relate(&mut reports);
        reports
    }

    /// Fills in what reports of one arm each cannot know: how the arms compare.
    pub fn relate(reports: &mut [Self]) {
        let ratios = Self::ratios(reports);
        for report in reports {
            report.fused_over_eager = ratios;
        }
    }

    fn of(setup: &Setup, run: &ArmRun, read_bytes_per_s: f64) -> Self {
        let samples = &run.samples;
        let spread = |value: &dyn Fn(&Sample) -> f64| Spread::of(&samples.iter().map(value).collect::<Vec<f64>>());
        let middle = |value: &dyn Fn(&Sample) -> f64| median(samples.iter().map(value));
        let prefill_tps = |sample: &Sample| sample.prefill_tps(setup.prompt_len);
        let (prefill, decode, e2e) = (spread(&prefill_tps), spread(&Sample::decode_tps), spread(&Sample::e2e_tps));
        let stats =
            |value: &dyn Fn(&Sample) -> f64| Stats::of(&samples.iter().map(value).collect::<Vec<f64>>()).rounded();
        let decode_tps_median = middle(&Sample::steady_decode_tps);
        let limits = Limits {
            read_gb_per_s: round(read_bytes_per_s / 1e9, 3),
            gflop_per_s: round(setup.peak_flop_per_s / 1e9, 3),
        };
        let decode_work = Work { bytes: setup.decode_bytes_per_step, flop: setup.decode_flop_per_step };
        let decode_bytes_per_s = setup.decode_bytes_per_step as f64 * decode_tps_median;
        Self {
            model: setup.model.clone(),
            mode: run.arm,
            device: setup.device.clone(),
            layers: setup.layers,
            moe_patched: if run.arm.is_fused() { setup.moe_layers } else { 0 },
            warmup: setup.warmup,
            iters: samples.len(),
            model_load_s: round(setup.model_load_s, 2),
            prompt_len: setup.prompt_len,
            max_new_tokens: setup.max_new_tokens,
            gen_tokens: samples.iter().map(|sample| sample.gen_tokens).collect(),
            peak_mem_mb: round(setup.peak_memory_bytes as f64 / f64::from(1 << 20), 1),
            prefill_time_s: spread(&|sample| sample.prefill_s),
            decode_time_s: spread(&Sample::decode_s),
            total_time_s: spread(&|sample| sample.total_s),
            prefill_tps_mean: prefill.mean,
            prefill_tps_std: prefill.std,
            decode_tps_mean: decode.mean,
            decode_tps_std: decode.std,
            e2e_tps_mean: e2e.mean,
            e2e_tps_std: e2e.std,
            schema: SCHEMA,
            model_path: setup.model_path.display().to_string(),
            synthetic: setup.synthetic.is_some(),
            synthetic_spec: setup.synthetic.clone(),
            dtype: setup.dtype.clone(),
            load: setup.load.clone(),
            attention: setup.attention.clone(),
            indexer: setup.indexer.clone(),
            prefill_chunk: setup.prefill_chunk,
            prefill_tps_median: round(middle(&prefill_tps), 3),
            decode_tps_median: round(decode_tps_median, 3),
            e2e_tps_median: round(middle(&Sample::e2e_tps), 3),
            decode_bytes_per_step: setup.decode_bytes_per_step,
            decode_gb_per_s: round(decode_bytes_per_s / 1e9, 3),
            read_gb_per_s: round(read_bytes_per_s / 1e9, 3),
            decode_share_of_read: round(decode_bytes_per_s / read_bytes_per_s.max(1.0), 3),
            fused_over_eager: None,
            own_process: setup.own_process,
            order: setup.order.clone(),
            roofline: Roofline {
                prefill: Share::of(setup.prefill_work, middle(&|sample| sample.prefill_s), &limits),
                decode: Share::of(decode_work, 1.0 / decode_tps_median, &limits),
                limits,
            },
            stats: Summary {
                prefill_s: stats(&|sample| sample.prefill_s),
                first_token_s: stats(&|sample| sample.first_token_s),
                total_s: stats(&|sample| sample.total_s),
                prefill_tps: stats(&prefill_tps),
                decode_tps: stats(&Sample::steady_decode_tps),
                e2e_tps: stats(&Sample::e2e_tps),
            },
            activity: None,
            samples: samples.clone(),
            knobs: setup.knobs.clone(),
            machine: setup.machine.clone(),
        }
    }

    /// Fused over eager, if both are there and nothing is divided by zero.
    fn ratios(reports: &[Self]) -> Option<Ratios> {
        let find = |arm| reports.iter().find(|report| report.mode == arm);
        let (eager, fused) = (find(Arm::Eager)?, find(Arm::Fused)?);
        let ratio = |rate: &dyn Fn(&Self) -> f64| {
            let ratio = rate(fused) / rate(eager);
            (ratio.is_finite() && ratio > 0.0).then(|| round(ratio, 3))
        };
        Some(Ratios {
            prefill: ratio(&|report| report.prefill_tps_median)?,
            decode: ratio(&|report| report.decode_tps_median)?,
            e2e: ratio(&|report| report.e2e_tps_median)?,
        })
    }

    /// Indented JSON with a final line break: one object for one report, a list for several.
    ///
    /// # Errors
    /// None that the types allow; the serialiser's signature has one.
    pub fn json(reports: &[Self]) -> Result<String, serde_json::Error> {
        let text = match reports {
            [one] => serde_json::to_string_pretty(one),
            several => serde_json::to_string_pretty(several),
        };
        text.map(|text| text + "\n")
    }
}

/// The closing table: median rates and time to the first token of each arm, arms that did not run, the ratio line, and both
/// phases of each arm beside the limits of the machine.
#[must_use]
pub fn table(reports: &[Report]) -> String {
    let mut out = format!(
        "{:<13}{:>10}{:>10}{:>10} (tok/s){:>10}\n{}\n",
        "arm",
        "prefill",
        "decode",
        "e2e",
        "TTFT (s)",
        "-".repeat(61)
    );
    for arm in Arm::ALL {
        let line = match reports.iter().find(|report| report.mode == arm) {
            None => format!("{arm:<13}{:>10}", "(skipped)"),
            Some(report) => {
                // A generation of one token has no decode rate.
                let rate = |rate: f64| if rate > 0.0 { format!("{rate:.1}") } else { "-".to_owned() };
                format!(
                    "{arm:<13}{:>10}{:>10}{:>10}{:>18.3}",
                    rate(report.prefill_tps_median),
                    rate(report.decode_tps_median),
                    rate(report.e2e_tps_median),
                    report.stats.prefill_s.p50
                )
            }
        };
        out.push_str(&line);
        out.push('\n');
    }
    if let Some(ratios) = reports.iter().find_map(|report| report.fused_over_eager) {
        let median =
            |arm| reports.iter().find(|report| report.mode == arm).map_or(0.0, |report| report.decode_tps_median);
        let written = writeln!(
            out,
            "fused / eager: prefill {:.2}x, decode {:.2}x (medians {:.1} / {:.1} tok/s)",
            ratios.prefill,
            ratios.decode,
            median(Arm::Fused),
            median(Arm::Eager)
        );
        debug_assert!(written.is_ok(), "writing into a String cannot fail");
    }
    out + &graphs(reports) + &roofline(reports)
}

/// What the phases of each arm read and compute, and their shares of what the machine can do.
fn roofline(reports: &[Report]) -> String {
    let mut out = String::new();
    for report in reports {
        let Roofline { limits, prefill, decode } = &report.roofline;
        if out.is_empty() {
            out = format!(
                "limits: {:.1} GB/s read, {:.0} GFLOP/s\n{:<13}{:<9}{:>10}{:>10}{:>9}{:>9}  bound\n",
                limits.read_gb_per_s, limits.gflop_per_s, "arm", "phase", "MB", "GFLOP", "of read", "of peak"
            );
        }
        for (phase, share) in [("prompt", prefill), ("token", decode)] {
            let Some(Share { bytes, flop, of_read, of_peak, bound, .. }) = share else { continue };
            let line = format!(
                "{:<13}{phase:<9}{:>10.1}{:>10.2}{:>9}{:>9}  {}\n",
                report.mode,
                *bytes as f64 / 1e6,
                *flop as f64 / 1e9,
                format!("{:.0} %", of_read * 100.0),
                format!("{:.0} %", of_peak * 100.0),
                bound.name()
            );
            out.push_str(&line);
        }
    }
    out
}

/// How the graph arms compare, as a line, when both ran.
fn graphs(reports: &[Report]) -> String {
    let rate = |arm| reports.iter().find(|report| report.mode == arm).map_or(0.0, |report| report.decode_tps_median);
    match (rate(Arm::FusedGraph), rate(Arm::VecGraph)) {
        (fused, vec) if fused > 0.0 && vec > 0.0 => {
            format!("fusedgraph / vecgraph: decode {:.2}x (medians {fused:.1} / {vec:.1} tok/s)\n", fused / vec)
        }
        _ => String::new(),
    }
}

/// A report that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("report {} cannot be written: {source}", path.display())]
pub struct ReportError {
    /// The report's path.
    pub path: PathBuf,
    /// The system's message.
    pub source: io::Error,
}

/// A report file that is going to be written: reserved before the benchmark, complete or absent after it.
#[derive(Debug)]
pub struct ReportFile {
    path: PathBuf,
    temporary: PathBuf,
}

impl ReportFile {
    /// Proves that `path` can be written, by creating a temporary file beside it. An existing report stays until the new
    /// one is complete.
    ///
    /// # Errors
    /// [`ReportError`] when the folder does not exist or is not writable, or `path` is a folder.
    pub fn reserve(path: &Path) -> Result<Self, ReportError> {
        let fail = |source| ReportError { path: path.to_owned(), source };
        let name = path.file_name().ok_or_else(|| fail(io::Error::other("it has no file name")))?;
        if path.is_dir() {
            return Err(fail(io::ErrorKind::IsADirectory.into()));
        }
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.tmp", std::process::id()));
        let temporary = path.with_file_name(hidden);
        std::fs::File::create(&temporary).map_err(fail)?;
        Ok(Self { path: path.to_owned(), temporary })
    }

    /// Where the report will be.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the report and puts it in its place in one step.
    ///
    /// # Errors
    /// [`ReportError`]; the place is then as it was.
    pub fn write(self, text: &str) -> Result<(), ReportError> {
        let write = || {
            let mut file = std::fs::File::create(&self.temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&self.temporary, &self.path)
        };
        write().map_err(|source| ReportError { path: self.path.clone(), source })
    }
}

impl Drop for ReportFile {
    fn drop(&mut self) {
        // Gone already after a successful write; otherwise nobody wants it.
        let _ = std::fs::remove_file(&self.temporary);
    }
}
