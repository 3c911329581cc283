// SPDX-License-Identifier: MIT OR Apache-2.0

//! Saved reports, read back for comparison and drawing: of this benchmark, of the published one, and of the operators'
//! benches. A report may lack what its writer did not measure.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Roofline;
use super::activity::Activity;
use super::stats::{LogRate, Stats, moments};

/// Why a file is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SavedError {
    /// It cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is not JSON.
    #[error("{} is not JSON: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Where parsing stopped.
        source: serde_json::Error,
    },
    /// It is JSON, and no report.
    #[error("{} holds no report of a benchmark: expected an object with `mode` or with `cases`, or a list of such", path.display())]
    NoReport {
        /// The file.
        path: PathBuf,
    },
}

/// One quantity of a case, as a rate: more is better.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// `prefill`, `decode`, `e2e` or `speed`.
    pub name: &'static str,
    /// `tok/s` or `calls/s`.
    pub unit: &'static str,
    /// The measurements; none where the report has their moments only.
    pub rates: Vec<f64>,
    /// Their mean.
    pub mean: f64,
    /// Their sample standard deviation.
    pub std: f64,
    /// How many were made.
    pub n: usize,
}

impl Metric {
    fn of(name: &'static str, unit: &'static str, rates: Vec<f64>) -> Option<Self> {
        if rates.is_empty() || rates.iter().any(|rate| !rate.is_finite() || *rate <= 0.0) {
            return None;
        }
        let (mean, std) = moments(&rates);
        Some(Self { name, unit, n: rates.len(), mean, std, rates })
    }

    /// For an interval.
    #[must_use]
    pub fn log_rate(&self) -> Option<LogRate> {
        LogRate::of(&self.rates).or_else(|| LogRate::of_moments(self.mean, self.std, self.n))
    }

    /// The middle one of the rates, or their mean.
    #[must_use]
    pub fn median(&self) -> f64 {
        if self.rates.is_empty() { self.mean } else { Stats::of(&self.rates).p50 }
    }
}

/// One arm of a model, or one case of an operator's bench.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// What makes it comparable with the case of another report.
    pub name: String,
    /// What was measured of it.
    pub metrics: Vec<Metric>,
    /// Settings of the run that the results depend on, by name.
    pub settings: Vec<(&'static str, String)>,
    /// Seconds to the first token.
    pub first_token_s: Option<Stats>,
    /// Phases beside the limits of the machine.
    pub roofline: Option<Roofline>,
    /// Share of the limit of the machine, and which limit it is.
    pub share_of_limit: Option<(f64, String)>,
    /// Experts and blocks.
    pub activity: Option<Activity>,
}

/// The cases of a file.
///
/// # Errors
/// [`SavedError`].
pub fn load(path: &Path) -> Result<Vec<Case>, SavedError> {
    let text = std::fs::read_to_string(path).map_err(|source| SavedError::Read { path: path.to_owned(), source })?;
    let value: Value =
        serde_json::from_str(&text).map_err(|source| SavedError::Json { path: path.to_owned(), source })?;
    let reports = match &value {
        Value::Array(reports) => reports.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut cases = Vec::new();
    for report in reports {
        match (report.get("mode"), report["cases"].as_array()) {
            (Some(_), _) => cases.push(of_model(report)),
            (None, Some(list)) => cases.extend(list.iter().map(|case| of_operator(report, case))),
            (None, None) => return Err(SavedError::NoReport { path: path.to_owned() }),
        }
    }
    if cases.is_empty() { Err(SavedError::NoReport { path: path.to_owned() }) } else { Ok(cases) }
}

/// A field as it is shown: text without its quotation marks, nothing for null.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn settings(of: &Value, names: &[&'static str]) -> Vec<(&'static str, String)> {
    let field = |name: &&'static str| (*name, shown(&of[*name]));
    names.iter().map(field).filter(|(_, value)| !value.is_empty()).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

fn of_model(report: &Value) -> Case {
    let prompt = number(&report["prompt_len"]);
    let samples = report["samples"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rates = |rate: &dyn Fn(&Value) -> f64| samples.iter().map(rate).collect::<Vec<f64>>();
    let mut metrics = Vec::new();
    let from_samples = [
        ("prefill", rates(&|s| prompt / number(&s["prefill_s"]))),
        (
            "decode",
            rates(&|s| (number(&s["gen_tokens"]) - 1.0) / (number(&s["total_s"]) - number(&s["first_token_s"]))),
        ),
        ("e2e", rates(&|s| number(&s["gen_tokens"]) / number(&s["total_s"]))),
    ];
    let iterations = report["iters"].as_u64().unwrap_or(0) as usize;
    for (name, rates) in from_samples {
        let of_moments = || {
            let [mean, std] = ["mean", "std"].map(|moment| number(&report[format!("{name}_tps_{moment}")]));
            let usable = mean.is_finite() && mean > 0.0 && std.is_finite();
            usable.then_some(Metric { name, unit: "tok/s", rates: Vec::new(), mean, std, n: iterations })
        };
        metrics.extend(Metric::of(name, "tok/s", rates).or_else(of_moments));
    }
    let of_machine = |name| (name, shown(&report["machine"][name]));
    let mut all = settings(
        report,
        &[
            "layers",
            "prompt_len",
            "max_new_tokens",
            "dtype",
            "load",
            "attention",
            "indexer",
            "prefill_chunk",
            "graph_window",
        ],
    );
    all.extend(["cpu", "level", "threads"].map(of_machine).into_iter().filter(|(_, value)| !value.is_empty()));
    let first_tokens: Vec<f64> = samples.iter().filter_map(|s| s["prefill_s"].as_f64()).collect();
    Case {
        name: ["model", "mode", "device"].map(|name| shown(&report[name])).join(" "),
        metrics,
        settings: all,
        first_token_s: (!first_tokens.is_empty()).then(|| Stats::of(&first_tokens)),
        roofline: serde_json::from_value(report["roofline"].clone()).ok(),
        share_of_limit: None,
        activity: serde_json::from_value(report["activity"].clone()).ok(),
    }
}

fn of_operator(report: &Value, case: &Value) -> Case {
    // Calls within a round share what happened to the machine: the round is the unit that is independent.
    let rounds = case["samples_ms"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_round = |round: &Value| {
        let ms: Vec<f64> = round.as_array()?.iter().filter_map(Value::as_f64).collect();
        (!ms.is_empty()).then(|| 1e3 / Stats::of(&ms).p50)
    };
    let rates: Vec<f64> = rounds.iter().filter_map(of_round).collect();
    let median = || Metric::of("speed", "calls/s", vec![1e3 / number(&case["median_ms"])]);
    let shares = [
        ("share_of_limit", shown(&case["bound"])),
        ("share_of_read_bandwidth", "memory".to_owned()),
        ("share_of_peak", "compute".to_owned()),
    ];
    let shares = shares.into_iter().filter_map(|(field, bound)| Some((case[field].as_f64()?, bound)));
    Case {
        name: [shown(&case["kernel"]), shown(&case["shape"])].join(" "),
        metrics: Metric::of("speed", "calls/s", rates).or_else(median).into_iter().collect(),
        settings: settings(&report["machine"], &["cpu", "level", "threads", "debug_assertions"]),
        first_token_s: None,
        roofline: None,
        share_of_limit: shares.max_by(|a, b| a.0.total_cmp(&b.0)),
        activity: None,
    }
}
