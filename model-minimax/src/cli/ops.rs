// SPDX-License-Identifier: MIT OR Apache-2.0

//! `bench ops`: the operators' benches, which are programs of their own, built and run one after the other.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use clap::Args;
use model_minimax::bench::ReportFile;
use serde_json::Value;

use super::Usage;

/// Operators and the names of their benches.
const BENCHES: [(&str, &str); 5] = [
    ("gmm-finalize-routing", "finalize"),
    ("grouped-gemm", "moe"),
    ("msa-indexer", "indexer"),
    ("msa-main-branch", "prefill"),
    ("msa-sparse-decode", "decode"),
];

#[derive(Debug, Args)]
pub(crate) struct OpsArgs {
    /// Only these operators, separated by commas [default: all]
    #[arg(long, value_name = "OP,...", value_delimiter = ',', value_parser = BENCHES.map(|(op, _)| op))]
    op: Vec<String>,

    /// Fewer cases, two rounds
    #[arg(long)]
    quick: bool,

    /// Only cases whose kernel or shape contains this
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,

    /// Rounds of slices [default: that of each bench]
    #[arg(long, value_name = "N")]
    rounds: Option<std::num::NonZeroU32>,

    /// Threads [default: RAYON_NUM_THREADS, else physical cores]
    #[arg(long, value_name = "N")]
    threads: Option<std::num::NonZeroU32>,

    /// Where the reports of all operators go, as one list
    #[arg(long, value_name = "FILE", default_value = "bench_ops.json")]
    report_file: PathBuf,

    /// Print what would run, run nothing
    #[arg(long)]
    dry_run: bool,
}

/// The nearest folder above the current one that holds the sources of the operators.
fn sources() -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir().context("the current folder is not known")?;
    let holds = |dir: &&Path| BENCHES.iter().all(|(op, _)| dir.join("ops").join(op).join("Cargo.toml").is_file());
    match here.ancestors().find(holds) {
        Some(dir) => Ok(dir.to_owned()),
        None => {
            let message = format!(
                "`bench ops` builds the operators' benches from their sources, and no folder above {} has ops/ with them",
                here.display()
            );
            Err(Usage(message).into())
        }
    }
}

impl OpsArgs {
    /// The call of one bench, whose report goes to `json`.
    fn command(&self, op: &str, bench: &str, json: &Path) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        // The profile of this program, so that nothing is compiled twice.
        command.args(["bench", "--package", op, "--bench", bench, "--profile", "dev", "--", "--json"]).arg(json);
        if self.quick {
            command.arg("--quick");
        }
        let numbers = [("--rounds", self.rounds), ("--threads", self.threads)];
        for (name, value) in numbers.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            command.args([name, &value.to_string()]);
        }
        if let Some(case) = &self.case {
            command.args(["--case", case]);
        }
        command
    }
}

pub(crate) fn run(args: &OpsArgs) -> anyhow::Result<()> {
    let root = sources()?;
    let wanted = BENCHES.iter().filter(|(op, _)| args.op.is_empty() || args.op.iter().any(|asked| asked == op));
    if args.dry_run {
        for (op, bench) in wanted {
            println!("{:?}", args.command(op, bench, Path::new("FILE")));
        }
        return Ok(());
    }
    let file = ReportFile::reserve(&args.report_file)?;
    let mut reports = Vec::new();
    for (op, bench) in wanted {
        eprintln!("{op}");
        let json = std::env::temp_dir().join(format!("model-minimax-{}-{op}.json", std::process::id()));
        let status = args.command(op, bench, &json).current_dir(&root).status().context("cargo cannot be started")?;
        let text = std::fs::read_to_string(&json);
        // Gone already, or nobody's any more.
        let _ = std::fs::remove_file(&json);
        // With --case, an operator may have no such case.
        match (status.success(), text) {
            (true, Ok(text)) => reports.push(serde_json::from_str::<Value>(&text)?),
            (false, _) if args.case.is_some() => eprintln!("{op}: left out ({status})"),
            (false, _) => bail!("the bench of {op} failed ({status}); its messages are above"),
            (true, Err(error)) => return Err(error).with_context(|| format!("the bench of {op} left no report")),
        }
    }
    ensure!(!reports.is_empty(), "no bench has left a report");
    let path = file.path().to_owned();
    file.write(&(serde_json::to_string_pretty(&reports)? + "\n"))?;
    eprintln!("report saved: {}", path.display());
    Ok(())
}
