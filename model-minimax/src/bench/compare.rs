// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two reports compared: for each case and metric the ratio, an interval around it, and a verdict.
//!
//! The ratio is that of geometric means, after over before; rates are compared, so more than 1 is faster. Its interval is
//! Welch's for the difference of mean logarithms ([`Interval`]): measurements are taken as independent, and each side has a
//! variance of its own. A verdict is given only where the whole interval agrees with it.

use std::fmt;

use serde::Serialize;

use super::saved::Case;
use super::stats::Interval;

/// What the interval says about a difference of `threshold`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// All of it lies below `1 - threshold`: a regression.
    Slower,
    /// All of it lies above `1 + threshold`.
    Faster,
    /// All of it lies between.
    Same,
    /// It reaches across one of these: more iterations would tell.
    Undecided,
}

impl Verdict {
    fn of(interval: &Interval, threshold: f64) -> Self {
        let (low, high) = (interval.low, interval.high.unwrap_or(f64::INFINITY));
        if high < 1.0 - threshold {
            Self::Slower
        } else if low > 1.0 + threshold {
            Self::Faster
        } else if low >= 1.0 - threshold && high <= 1.0 + threshold {
            Self::Same
        } else {
            Self::Undecided
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Slower => "slower",
            Self::Faster => "faster",
            Self::Same => "same",
            Self::Undecided => "undecided",
        }
    }
}

/// One metric of one case in both reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The case.
    pub case: String,
    /// The metric.
    pub metric: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Geometric mean before.
    pub before: f64,
    /// Geometric mean after.
    pub after: f64,
    /// After over before.
    #[serde(flatten)]
    pub interval: Interval,
    /// What that means.
    pub verdict: Verdict,
}

/// The outcome.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The confidence of the intervals, such as 0.95.
    pub confidence: f64,
    /// The smallest difference that matters, such as 0.05.
    pub threshold: f64,
    /// What both reports have.
    pub rows: Vec<Row>,
    /// Settings that differ, in words: the ratio may be theirs.
    pub differences: Vec<String>,
    /// Cases of the first report that the second lacks.
    pub only_before: Vec<String>,
    /// Cases of the second report that the first lacks.
    pub only_after: Vec<String>,
}

impl Comparison {
    /// Compares the cases of the same name; `metrics` are the metrics to look at, all if there are none.
    #[must_use]
    pub fn of(before: &[Case], after: &[Case], metrics: &[String], confidence: f64, threshold: f64) -> Self {
        let mut comparison = Self {
            confidence,
            threshold,
            rows: Vec::new(),
            differences: Vec::new(),
            only_before: Vec::new(),
            only_after: Vec::new(),
        };
        let find = |cases: &'_ [Case], name: &str| cases.iter().position(|case| case.name == name);
        for case in before {
            let Some(other) = find(after, &case.name).map(|at| &after[at]) else {
                comparison.only_before.push(case.name.clone());
                continue;
            };
            for (name, value) in &case.settings {
                let other = other.settings.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str());
                if let Some(other) = other.filter(|other| other != value) {
                    comparison.differences.push(format!("{}: {name} was {value}, is {other}", case.name));
                }
            }
            for metric in
                case.metrics.iter().filter(|m| metrics.is_empty() || metrics.iter().any(|name| name == m.name))
            {
                let other = other.metrics.iter().find(|other| other.name == metric.name);
                let rates = metric.log_rate().zip(other.and_then(super::saved::Metric::log_rate));
                let Some((old, new)) = rates else { continue };
                let interval = Interval::of(&old, &new, confidence);
                comparison.rows.push(Row {
                    case: case.name.clone(),
                    metric: metric.name,
                    unit: metric.unit,
                    before: old.rate(),
                    after: new.rate(),
                    verdict: Verdict::of(&interval, threshold),
                    interval,
                });
            }
        }
        let new = after.iter().filter(|case| find(before, &case.name).is_none());
        comparison.only_after = new.map(|case| case.name.clone()).collect();
        comparison
    }

    /// Whether something is slower.
    #[must_use]
    pub fn regressed(&self) -> bool {
        self.rows.iter().any(|row| row.verdict == Verdict::Slower)
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|row| row.case.chars().count()).max().unwrap_or(4).max(4);
        writeln!(
            f,
            "{:<width$}  {:<8}{:>12}{:>12} {:<8}{:>8}  {:<17}verdict",
            "case",
            "metric",
            "before",
            "after",
            "",
            "ratio",
            format!("{:.0} % interval", self.confidence * 100.0)
        )?;
        for Row { case, metric, unit, before, after, interval, verdict } in &self.rows {
            let high = interval.high.map_or("..".to_owned(), |high| format!("{high:.3}"));
            writeln!(
                f,
                "{case:<width$}  {metric:<8}{before:>12.3}{after:>12.3} {unit:<8}{:>8.3}  {:<17}{}",
                interval.ratio,
                format!("{:.3} .. {high}", interval.low),
                verdict.name()
            )?;
        }
        for (cases, whose) in [(&self.only_before, "before"), (&self.only_after, "after")] {
            for case in cases {
                writeln!(f, "{case}: only {whose}")?;
            }
        }
        let count = |verdict| self.rows.iter().filter(|row| row.verdict == verdict).count();
        write!(
            f,
            "threshold {:.1} %: {} slower, {} faster, {} same, {} undecided",
            self.threshold * 100.0,
            count(Verdict::Slower),
            count(Verdict::Faster),
            count(Verdict::Same),
            count(Verdict::Undecided)
        )
    }
}
