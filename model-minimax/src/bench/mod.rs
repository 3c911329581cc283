// SPDX-License-Identifier: MIT OR Apache-2.0

//! End-to-end generation benchmark: the arms of one loaded model, measured in turn, and their reports.

pub mod activity;
pub mod compare;
mod machine;
pub mod plot;
mod report;
pub mod saved;
pub mod stats;
mod window;

use std::fmt;
use std::ops::ControlFlow;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use machine::{Machine, peak_memory_bytes};
pub use report::{
    Bound, Limits, Ratios, Report, ReportError, ReportFile, Roofline, SCHEMA, Setup, Share, Spread, Summary, table,
};
pub use window::{WindowPlan, WindowReport, WindowRun, WindowSetup, run_windows, window_table};

use crate::config::StopIds;
use crate::generate::{Decoder, GenerateError, GenerateOptions, generate};
use crate::sampling::SamplingOptions;

/// How the experts of a model are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arm {
    /// Expert by expert, each as plain matrix products.
    Eager,
    /// All experts in one grouped GEMM; the published name is `pypto`.
    Fused,
    /// As [`Arm::Eager`], with the decode step captured once and replayed for each token; another name is `graph`.
    #[serde(rename = "graph")]
    VecGraph,
    /// As [`Arm::Fused`], captured and replayed; the published name is `pyptograph`.
    #[serde(rename = "pypto+graph")]
    FusedGraph,
}

impl Arm {
    /// Every arm, in the order of the table.
    pub const ALL: [Self; 4] = [Self::Eager, Self::Fused, Self::VecGraph, Self::FusedGraph];

    /// The name used by `--arms`, in reports and in file names.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Eager => "eager",
            Self::Fused => "fused",
            Self::VecGraph => "vecgraph",
            Self::FusedGraph => "fusedgraph",
        }
    }

    /// Whether all experts run in one grouped GEMM.
    #[must_use]
    pub const fn is_fused(self) -> bool {
        matches!(self, Self::Fused | Self::FusedGraph)
    }

    /// The arm that runs the experts in the same way and replays a captured step.
    #[must_use]
    pub const fn as_graph(self) -> Self {
        if self.is_fused() { Self::FusedGraph } else { Self::VecGraph }
    }

    /// Whether a decode step is captured once and replayed.
    #[must_use]
    pub const fn is_graph(self) -> bool {
        matches!(self, Self::VecGraph | Self::FusedGraph)
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An arm that cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArmError {
    /// No arm has this name.
    #[error(
        "unknown arm {0:?} (available: eager, fused, vecgraph, fusedgraph; other names: pypto of fused, graph of vecgraph, \
         pyptograph of fusedgraph)"
    )]
    Unknown(String),
}

impl FromStr for Arm {
    type Err = ArmError;

    fn from_str(name: &str) -> Result<Self, ArmError> {
        match name {
            "eager" => Ok(Self::Eager),
            "fused" | "pypto" => Ok(Self::Fused),
            "vecgraph" | "graph" => Ok(Self::VecGraph),
            "fusedgraph" | "pyptograph" => Ok(Self::FusedGraph),
            _ => Err(ArmError::Unknown(name.to_owned())),
        }
    }
}

/// A model whose arms can be compared.
pub trait BenchDecoder: Decoder {
    /// Selects how the experts run from the next forward pass on.
    fn set_arm(&mut self, arm: Arm);

    /// The logits of the last of `ids`, F32 `[vocab_size]`: of these tokens alone, at positions from 0 on, each of which goes
    /// to the first experts with equal weights and attends to all before it. The sequence stays as it is. The pass is captured
    /// for the number of ids and the experts' way of the arm, when they come first, and replayed from then on.
    ///
    /// # Errors
    /// Whatever the model fails with.
    fn forward_window(&mut self, ids: &[u32]) -> Result<&[f32], Self::Error>;

    /// Bytes that a forward pass of one token reads when `context` tokens are cached: weights as stored, and of the cache what
    /// the token attends to.
    fn decode_bytes(&self, context: usize) -> u64;
}

/// What is measured.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Arms in the order in which each iteration visits them.
    pub arms: Vec<Arm>,
    /// Full generations per arm before the first measured one.
    pub warmup: usize,
    /// Measured iterations per arm.
    pub iters: usize,
    /// Upper limit of new tokens per generation.
    pub max_new_tokens: usize,
    /// Tokens that end a generation.
    pub stop: StopIds,
    /// Generates up to the limit, whatever `stop` says.
    pub ignore_eos: bool,
}

/// One measured iteration.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds of a generation of one token: the prefill.
    pub prefill_s: f64,
    /// Seconds to the first token of the full generation, which repeats the prefill.
    pub first_token_s: f64,
    /// Seconds of the full generation.
    pub total_s: f64,
    /// Tokens that the full generation made.
    pub gen_tokens: usize,
}

impl Sample {
    /// Seconds of decoding as the published benchmark takes them: the full generation less the separate prefill, at least a
    /// nanosecond.
    fn decode_s(&self) -> f64 {
        (self.total_s - self.prefill_s).max(1e-9)
    }

    fn prefill_tps(&self, prompt_len: usize) -> f64 {
        prompt_len as f64 / self.prefill_s.max(1e-9)
    }

    fn decode_tps(&self) -> f64 {
        self.gen_tokens.saturating_sub(1) as f64 / self.decode_s()
    }

    /// The decode rate within the full generation, from its first to its last token: two prefills of a busy machine differ by
    /// more than a short decode takes, which the published difference cannot tell from decoding.
    fn steady_decode_tps(&self) -> f64 {
        self.gen_tokens.saturating_sub(1) as f64 / (self.total_s - self.first_token_s).max(1e-9)
    }

    fn e2e_tps(&self) -> f64 {
        self.gen_tokens as f64 / self.total_s.max(1e-9)
    }
}

/// All measurements of one arm.
#[derive(Debug, Clone, PartialEq)]
pub struct ArmRun {
    /// The arm.
    pub arm: Arm,
    /// One entry per iteration.
    pub samples: Vec<Sample>,
}

/// The outcome of a benchmark.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// One entry per arm of the plan.
    pub runs: Vec<ArmRun>,
    /// What the probe said, once per iteration.
    pub read_bytes_per_s: Vec<f64>,
}

/// Why a benchmark stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// There is nothing to measure.
    #[error("{what} should be at least 1, found 0")]
    Nothing {
        /// `iters` or `arms`.
        what: &'static str,
    },
    /// A generation failed.
    #[error("arm {arm}")]
    Generate {
        /// The arm that was running.
        arm: Arm,
        /// The failure.
        source: GenerateError,
    },
}

/// Measures all arms greedily on one loaded model, interleaved (A B A B ...) so that a machine that slows down or speeds
/// up does so for every arm. `read_bandwidth` measures the machine's own limit in bytes per second, in the same rounds for
/// the same reason. `log` gets one line per generation.
///
/// # Errors
/// [`BenchError`]; the first failing generation ends the benchmark.
pub fn run<D: BenchDecoder>(
    decoder: &mut D,
    prompt: &[u32],
    plan: &Plan,
    mut read_bandwidth: impl FnMut() -> f64,
    mut log: impl FnMut(&str),
) -> Result<Measured, BenchError> {
    if plan.iters == 0 {
        return Err(BenchError::Nothing { what: "iters" });
    }
    if plan.arms.is_empty() {
        return Err(BenchError::Nothing { what: "arms" });
    }
    let mut timed = |arm: Arm, max_new_tokens: usize| {
        decoder.set_arm(arm);
        let options = GenerateOptions {
            max_new_tokens,
            stop: plan.stop.clone(),
            ignore_eos: plan.ignore_eos,
            sampling: SamplingOptions::default(),
        };
        let generation = generate(decoder, prompt, &options, |_| ControlFlow::Continue(()));
        generation.map_err(|source| BenchError::Generate { arm, source })
    };

    for i in 1..=plan.warmup {
        for &arm in &plan.arms {
            let seconds = timed(arm, plan.max_new_tokens)?.timings.total.as_secs_f64();
            log(&format!("  {arm:<10} warm-up {i}/{}: {seconds:.3} s", plan.warmup));
        }
    }
    let mut runs: Vec<ArmRun> = plan.arms.iter().map(|&arm| ArmRun { arm, samples: Vec::new() }).collect();
    let mut read_bytes_per_s = Vec::new();
    for i in 1..=plan.iters {
        read_bytes_per_s.push(read_bandwidth());
        for run in &mut runs {
            let prefill = timed(run.arm, 1)?;
            let full = timed(run.arm, plan.max_new_tokens)?;
            let sample = Sample {
                prefill_s: prefill.timings.total.as_secs_f64(),
                first_token_s: full.timings.prefill.as_secs_f64(),
                total_s: full.timings.total.as_secs_f64(),
                gen_tokens: full.ids.len(),
            };
            log(&format!(
                "  {:<10} iteration {i}/{}: prefill {:.3} s, total {:.3} s, {} tokens, decode {:.1} tok/s, e2e {:.1} tok/s",
                run.arm,
                plan.iters,
                sample.prefill_s,
                sample.total_s,
                sample.gen_tokens,
                sample.steady_decode_tps(),
                sample.e2e_tps(),
            ));
            run.samples.push(sample);
        }
    }
    Ok(Measured { runs, read_bytes_per_s })
}
