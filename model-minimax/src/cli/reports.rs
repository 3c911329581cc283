// SPDX-License-Identifier: MIT OR Apache-2.0

//! The subcommands of `bench`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use model_minimax::bench::ReportFile;
use model_minimax::bench::compare::Comparison;
use model_minimax::bench::plot::{Source, html};
use model_minimax::bench::saved::{SavedError, load};

use super::{Usage, ops};

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Compare two reports: ratio, interval and verdict for each case; exit code 1 if something is slower.
    Compare(CompareArgs),
    /// Draw reports: one HTML page that needs nothing else.
    Plot(PlotArgs),
    /// Build and run the operators' benches; needs the source tree.
    Ops(ops::OpsArgs),
}

impl BenchCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::Compare(args) => compare(args),
            Self::Plot(args) => plot(args),
            Self::Ops(args) => ops::run(args),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The report of before
    #[arg(value_name = "BEFORE")]
    before: PathBuf,

    /// The report of after
    #[arg(value_name = "AFTER")]
    after: PathBuf,

    /// Smallest difference that matters, in percent
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = percent)]
    threshold: f64,

    /// Confidence of the intervals, in percent
    #[arg(long, value_name = "PERCENT", default_value = "95", value_parser = percent)]
    confidence: f64,

    /// Only these metrics, separated by commas [default: all that both reports have]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = ["prefill", "decode", "e2e", "speed"])]
    metrics: Vec<String>,

    /// JSON instead of text
    #[arg(long)]
    json: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "expected a number of percent".to_owned())?;
    let within = value.is_finite() && (0.0..100.0).contains(&value);
    if within { Ok(value / 100.0) } else { Err("expected a number from 0 to below 100".to_owned()) }
}

fn compare(args: &CompareArgs) -> anyhow::Result<()> {
    // That a file is no report says nothing about speed: it must not look like a regression.
    let usage = |error: SavedError| Usage(error.to_string());
    let (before, after) = (load(&args.before).map_err(usage)?, load(&args.after).map_err(usage)?);
    let comparison = Comparison::of(&before, &after, &args.metrics, args.confidence, args.threshold);
    if comparison.rows.is_empty() {
        let (before, after) = (args.before.display(), args.after.display());
        return Err(Usage(format!("{before} and {after} have no case and metric in common")).into());
    }
    for difference in &comparison.differences {
        eprintln!("warning: {difference}");
    }
    let text = if args.json { serde_json::to_string_pretty(&comparison)? } else { comparison.to_string() };
    writeln!(std::io::stdout(), "{text}").context("the comparison cannot be written to stdout")?;
    if comparison.regressed() {
        bail!("slower by more than {} %: {}", args.threshold * 100.0, args.after.display());
    }
    Ok(())
}

#[derive(Debug, Args)]
pub(crate) struct PlotArgs {
    /// Reports of this program or of the operators' benches
    #[arg(value_name = "REPORT", required = true)]
    reports: Vec<PathBuf>,

    /// The page
    #[arg(long, value_name = "FILE", default_value = "bench.html")]
    out: PathBuf,

    /// Its heading
    #[arg(long, value_name = "TEXT", default_value = "Benchmark")]
    title: String,
}

fn plot(args: &PlotArgs) -> anyhow::Result<()> {
    let source = |path: &PathBuf| {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Ok::<_, SavedError>(Source { name, cases: load(path)? })
    };
    let sources = args.reports.iter().map(source).collect::<Result<Vec<_>, _>>()?;
    let file = ReportFile::reserve(&args.out)?;
    file.write(&html(&args.title, &sources))?;
    eprintln!("page saved: {}", args.out.display());
    Ok(())
}
