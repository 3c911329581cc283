// SPDX-License-Identifier: MIT OR Apache-2.0

//! The graph arms as they were published: a window of tokens that is computed as a whole for each new one.
//!
//! A step replays the captured pass over the window, of which nothing is cached, takes the token of the largest logit of the
//! last position, shifts the window by one and appends it. Every token goes to the first experts with equal weights. What is
//! measured is the machine: the text is of no meaning.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;

use super::report::{Spread, median, round};
use super::{Arm, BenchDecoder, BenchError, Machine, SCHEMA};
use crate::generate::GenerateError;
use crate::sampling::argmax;

/// What is measured.
#[derive(Debug, Clone)]
pub struct WindowPlan {
    /// Arms in the order in which each iteration visits them; a graph arm and its twin are the same here.
    pub arms: Vec<Arm>,
    /// Loops per arm before the first measured one.
    pub warmup: usize,
    /// Measured loops per arm.
    pub iters: usize,
    /// Tokens of the window.
    pub window: usize,
    /// Tokens of a loop.
    pub new_tokens: usize,
}

/// All measurements of one arm.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowRun {
    /// The arm.
    pub arm: Arm,
    /// Seconds of each loop.
    pub seconds: Vec<f64>,
    /// The tokens of the last one.
    pub ids: Vec<u32>,
}

/// Measures all arms on one loaded model, interleaved. Each loop begins with the same window of made-up tokens. `log` gets one
/// line per loop.
///
/// # Errors
/// [`BenchError`]; the first failing step ends the benchmark.
pub fn run_windows<D: BenchDecoder>(
    decoder: &mut D,
    plan: &WindowPlan,
    mut log: impl FnMut(&str),
) -> Result<Vec<WindowRun>, BenchError> {
    let counts = [("iters", plan.iters), ("graph_window", plan.window), ("new tokens", plan.new_tokens)];
    if let Some((what, _)) = counts.into_iter().chain([("arms", plan.arms.len())]).find(|(_, count)| *count == 0) {
        return Err(BenchError::Nothing { what });
    }
    let first = made_up(plan.window, decoder.vocab_size());
    let mut runs: Vec<WindowRun> =
        plan.arms.iter().map(|&arm| WindowRun { arm, seconds: Vec::new(), ids: Vec::new() }).collect();
    let mut window = first.clone();
    // Also captures, where there is no warm-up.
    for run in &runs {
        decoder.set_arm(run.arm);
        decoder.forward_window(&first).map_err(|source| failed(run.arm, source))?;
        log(&format!("  {:<10} captured: window {}", run.arm, plan.window));
    }
    for i in 1..=plan.warmup + plan.iters {
        for run in &mut runs {
            decoder.set_arm(run.arm);
            window.copy_from_slice(&first);
            run.ids.clear();
            let start = Instant::now();
            for _ in 0..plan.new_tokens {
                let logits = decoder.forward_window(&window).map_err(|source| failed(run.arm, source))?;
                let next = argmax(logits)
                    .map_err(|source| BenchError::Generate { arm: run.arm, source: GenerateError::Sampling(source) })?;
                window.copy_within(1.., 0);
                window[plan.window - 1] = next;
                run.ids.push(next);
            }
            let seconds = start.elapsed().as_secs_f64();
            let rate = plan.new_tokens as f64 / seconds.max(1e-9);
            match i.checked_sub(plan.warmup) {
                None | Some(0) => log(&format!("  {:<10} warm-up {i}/{}: {seconds:.3} s", run.arm, plan.warmup)),
                Some(i) => {
                    run.seconds.push(seconds);
                    log(&format!(
                        "  {:<10} iteration {i}/{}: {} tokens, {seconds:.3} s, {rate:.1} tok/s",
                        run.arm, plan.iters, plan.new_tokens
                    ));
                }
            }
        }
    }
    Ok(runs)
}

fn failed(arm: Arm, source: impl std::error::Error + Send + Sync + 'static) -> BenchError {
    BenchError::Generate { arm, source: GenerateError::Forward { position: 0, source: Box::new(source) } }
}

/// Tokens without an order, the same in every run.
fn made_up(count: usize, vocab: usize) -> Vec<u32> {
    let mut state = 0_u64;
    let mut next = || {
        // SplitMix64.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % vocab.max(1) as u64) as u32
    };
    (0..count).map(|_| next()).collect()
}

/// What all arms of one benchmark have in common, besides the plan.
#[derive(Debug, Clone)]
pub struct WindowSetup {
    /// Display name of the model.
    pub model: String,
    /// Device, such as `cpu`.
    pub device: String,
    /// Layers that ran.
    pub layers: usize,
    /// Those with experts.
    pub moe_layers: usize,
    /// Seconds to load the model.
    pub model_load_s: f64,
    /// Peak resident memory of the process in bytes.
    pub peak_memory_bytes: u64,
    /// The checkpoint folder.
    pub model_path: PathBuf,
    /// The recipe, if the checkpoint is made up.
    pub synthetic: Option<String>,
    /// Type of the activations.
    pub dtype: String,
    /// How the weights of linear layers are held: `mmap` or `pack`.
    pub load: String,
    /// Knobs that are set, by name.
    pub knobs: BTreeMap<String, String>,
    /// The machine.
    pub machine: Machine,
}

/// The report of one arm. Up to `peak_mem_mb` the fields, their order and their rounding are those of the published benchmark.
#[derive(Debug, Clone, Serialize)]
pub struct WindowReport {
    /// Display name of the model.
    pub model: String,
    /// The arm.
    pub mode: Arm,
    /// Device, such as `cpu`.
    pub device: String,
    /// Layers that ran.
    pub layers: usize,
    /// Layers whose experts ran as a grouped GEMM.
    pub moe_patched: usize,
    /// Tokens of the window.
    pub graph_window: usize,
    /// Tokens of a loop.
    pub max_new_tokens: usize,
    /// Loops before the first measured one.
    pub warmup: usize,
    /// Measured loops.
    pub iters: usize,
    /// New tokens per second, mean.
    pub decode_tps_mean: f64,
    /// Its sample standard deviation.
    pub decode_tps_std: f64,
    /// Seconds of a loop.
    pub time_s: Spread,
    /// Peak resident memory of the process in 2^20 bytes, 1 decimal.
    pub peak_mem_mb: f64,
    /// [`SCHEMA`].
    pub schema: u32,
    /// `static`.
    pub routing: &'static str,
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
    /// Seconds to load the model, 2 decimals.
    pub model_load_s: f64,
    /// Median of the rate.
    pub decode_tps_median: f64,
    /// Seconds of each loop.
    pub samples: Vec<f64>,
    /// Environment variables that are set.
    pub knobs: BTreeMap<String, String>,
    /// The machine and the build.
    pub machine: Machine,
}

impl WindowReport {
    /// One report per arm, in the order of the plan.
    #[must_use]
    pub fn all(setup: &WindowSetup, plan: &WindowPlan, runs: &[WindowRun]) -> Vec<Self> {
        let of = |run: &WindowRun| {
            let rates: Vec<f64> = run.seconds.iter().map(|s| plan.new_tokens as f64 / s.max(1e-9)).collect();
            let rate = Spread::of(&rates);
            Self {
                model: setup.model.clone(),
                mode: run.arm,
                device: setup.device.clone(),
                layers: setup.layers,
                moe_patched: if run.arm.is_fused() { setup.moe_layers } else { 0 },
                graph_window: plan.window,
                max_new_tokens: plan.new_tokens,
                warmup: plan.warmup,
                iters: run.seconds.len(),
                decode_tps_mean: rate.mean,
                decode_tps_std: rate.std,
                time_s: Spread::of(&run.seconds),
                peak_mem_mb: round(setup.peak_memory_bytes as f64 / f64::from(1 << 20), 1),
                schema: SCHEMA,
                routing: "static",
                model_path: setup.model_path.display().to_string(),
                synthetic: setup.synthetic.is_some(),
                synthetic_spec: setup.synthetic.clone(),
                dtype: setup.dtype.clone(),
                load: setup.load.clone(),
                model_load_s: round(setup.model_load_s, 2),
                decode_tps_median: round(median(rates.iter().copied()), 3),
                samples: run.seconds.clone(),
                knobs: setup.knobs.clone(),
                machine: setup.machine.clone(),
            }
        };
        runs.iter().map(of).collect()
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

/// The closing table: the median rate of each arm, and how they compare.
#[must_use]
pub fn window_table(reports: &[WindowReport]) -> String {
    let mut out = format!("{:<13}{:>10}{:>10}{:>10} (tok/s)\n{}\n", "arm", "prefill", "decode", "e2e", "-".repeat(50));
    for report in reports {
        out += &format!("{:<13}{:>10}{:>10.1}{:>10}\n", report.mode, "-", report.decode_tps_median, "-");
    }
    let rate = |arm| reports.iter().find(|report| report.mode == arm).map_or(0.0, |report| report.decode_tps_median);
    let (fused, vec) = (rate(Arm::FusedGraph), rate(Arm::VecGraph));
    if fused > 0.0 && vec > 0.0 {
        let written = writeln!(
            out,
            "fusedgraph / vecgraph: {:.2}x (medians {fused:.1} / {vec:.1} tok/s), static routing",
            fused / vec
        );
        debug_assert!(written.is_ok(), "writing into a String cannot fail");
    }
    out
}
