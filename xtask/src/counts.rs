// SPDX-License-Identifier: MIT OR Apache-2.0

//! Instructions that the cases of the operators' benches execute, counted by callgrind: a measure that no neighbour on the
//! machine disturbs, for comparisons in continuous integration.
//!
//! Counts are those of one thread at one SIMD level that the tool can run, at small sizes, without making the data. They
//! say nothing about time: memory has no price in them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use crate::cargo::Call;
use crate::cli::{self, LEVELS, Usage};
use crate::workspace::Workspace;

/// The benches with the harness of `op_testkit::bench`, by crate.
const BENCHES: [(&str, &str); 5] = [
    ("gmm-finalize-routing", "finalize"),
    ("grouped-gemm", "moe"),
    ("msa-indexer", "indexer"),
    ("msa-main-branch", "prefill"),
    ("msa-sparse-decode", "decode"),
];
/// The function of the harness around every call of a case.
const FUNCTION: &str = "op_testkit::bench::counted";
/// The level unless `--level` says otherwise: the best that valgrind knows the instructions of.
const LEVEL: &str = "avx2";
/// What the harness writes before the name of a case.
const CASE: &str = "counted: ";
const SCHEMA: &str = "instruction-counts/1";

/// What is asked for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Request {
    pub(crate) op: Option<String>,
    pub(crate) level: String,
    pub(crate) json: Option<PathBuf>,
    pub(crate) baseline: Option<PathBuf>,
    /// Percent by which a count may exceed that of the baseline.
    pub(crate) threshold: f64,
}

/// The options behind `bench`.
pub(crate) fn parse(words: &[String]) -> Result<Request, Usage> {
    const OPTIONS: &[&str] = &["--counts", "--op", "--level", "--json", "--baseline", "--threshold"];
    let mut request = Request { op: None, level: LEVEL.to_owned(), json: None, baseline: None, threshold: 1.0 };
    let mut counts = false;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().cloned().ok_or_else(|| Usage(format!("`{word}` needs a value")));
        match word.as_str() {
            "--counts" => counts = true,
            "--op" => request.op = Some(cli::known("op", value()?, &BENCHES.map(|(op, _)| op))?),
            "--level" => request.level = cli::known("level", value()?, LEVELS)?,
            "--json" => request.json = Some(value()?.into()),
            "--baseline" => request.baseline = Some(value()?.into()),
            "--threshold" => {
                let text = value()?;
                let percent = text.parse().ok().filter(|percent: &f64| percent.is_finite() && *percent >= 0.0);
                request.threshold =
                    percent.ok_or_else(|| Usage(format!("`--threshold` takes a number of percent, found `{text}`")))?;
            }
            other => return Err(cli::unknown("option", other, OPTIONS)),
        }
    }
    if counts { Ok(request) } else { Err(Usage("`bench` needs `--counts`".to_owned())) }
}

impl Request {
    fn benches(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        BENCHES.into_iter().filter(|(op, _)| self.op.as_deref().is_none_or(|asked| asked == *op))
    }

    /// The same with paths that mean the same in any folder.
    pub(crate) fn with_absolute_paths(&self) -> anyhow::Result<Self> {
        let absolute = |path: &Option<PathBuf>| path.as_deref().map(std::path::absolute).transpose();
        Ok(Self { json: absolute(&self.json)?, baseline: absolute(&self.baseline)?, ..self.clone() })
    }

    /// Prints what [`run`](Self::run) does.
    pub(crate) fn describe(&self) {
        for (op, bench) in self.benches() {
            println!("  command    {}", build(op, bench));
            println!("  counted    {:?}", self.count(Path::new(bench), Path::new("callgrind.out")));
        }
    }

    /// Counts, prints, writes, compares; whether nothing has grown beyond the threshold.
    pub(crate) fn run(&self, workspace: &Workspace) -> anyhow::Result<bool> {
        let valgrind = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
        ensure!(
            valgrind.is_ok_and(|status| status.success()),
            "valgrind was not found; instructions are counted by its tool callgrind (Debian: apt-get install valgrind)"
        );
        let baseline = self.baseline.as_deref().map(read).transpose()?;
        let folder = workspace.target.join("counts");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let mut counts = BTreeMap::new();
        for (op, bench) in self.benches() {
            eprintln!("{op}: building the bench");
            let program = program_of(&build(op, bench).output()?)
                .with_context(|| format!("cargo names no program of the bench {bench}"))?;
            eprintln!("{op}: counting");
            counts.extend(self.of_bench(op, &program, &folder)?);
        }
        print!("{}", table(&counts, baseline.as_ref()));
        if let Some(path) = &self.json {
            let report = json!({ "schema": SCHEMA, "level": self.level, "counts": counts });
            std::fs::write(path, format!("{report:#}\n"))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        let grown = baseline.map_or(Vec::new(), |baseline| grown(&counts, &baseline, self.threshold));
        for case in &grown {
            println!("more than {} % above the baseline: {case}", self.threshold);
        }
        Ok(grown.is_empty())
    }

    /// The counting process of a bench; each case leaves a file `<out>.<number>`.
    fn count(&self, program: &Path, out: &Path) -> Command {
        let mut command = Command::new("valgrind");
        command
            .args(["--tool=callgrind", "-q"])
            .args([format!("--toggle-collect={FUNCTION}"), format!("--dump-after={FUNCTION}")])
            .arg(format!("--callgrind-out-file={}", out.display()))
            .arg(program)
            .args(["--calls", "1", "--threads", "1", "--level", &self.level]);
        command
    }

    fn of_bench(&self, op: &str, program: &Path, folder: &Path) -> anyhow::Result<Vec<(String, u64)>> {
        let out = folder.join(format!("{op}.callgrind"));
        for number in 1.. {
            if std::fs::remove_file(numbered(&out, number)).is_err() {
                break;
            }
        }
        let output = self.count(program, &out).stderr(Stdio::inherit()).output().context("cannot start valgrind")?;
        ensure!(output.status.success(), "counting {op} failed ({})", output.status);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut counts = Vec::new();
        for (number, case) in text.lines().filter_map(|line| line.strip_prefix(CASE)).enumerate() {
            let path = numbered(&out, number + 1);
            let dump = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let total = total(&dump).with_context(|| format!("{} has no total", path.display()))?;
            ensure!(total > 0, "nothing was counted of {case}: the harness has no function {FUNCTION}");
            counts.push((format!("{op} {case}"), total));
        }
        ensure!(!counts.is_empty(), "the bench of {op} names no case");
        Ok(counts)
    }
}

fn build(op: &str, bench: &str) -> Call {
    // The profile of everything else, so that nothing is compiled twice.
    Call::new(&format!("bench --quiet --package {op} --bench {bench} --profile dev --no-run --message-format json"))
}

/// The program that cargo's messages name.
fn program_of(messages: &[u8]) -> Option<PathBuf> {
    let messages = String::from_utf8_lossy(messages).into_owned();
    let message = |line: &str| serde_json::from_str::<Value>(line).ok();
    messages.lines().filter_map(message).find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

fn numbered(out: &Path, number: usize) -> PathBuf {
    let mut path = out.as_os_str().to_owned();
    path.push(format!(".{number}"));
    path.into()
}

/// The instructions of a dump: the line `summary:` or `totals:`.
fn total(dump: &str) -> Option<u64> {
    let line = dump.lines().find_map(|line| line.strip_prefix("summary:").or_else(|| line.strip_prefix("totals:")))?;
    line.split_whitespace().next()?.parse().ok()
}

fn read(path: &Path) -> anyhow::Result<BTreeMap<String, u64>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let report: Value = serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))?;
    let Some(counts) = report["counts"].as_object().filter(|_| report["schema"] == SCHEMA) else {
        bail!("{} holds no counts of schema {SCHEMA}", path.display());
    };
    Ok(counts.iter().filter_map(|(case, count)| Some((case.clone(), count.as_u64()?))).collect())
}

fn table(counts: &BTreeMap<String, u64>, baseline: Option<&BTreeMap<String, u64>>) -> String {
    let mut out = format!("{:>16}{:>16}{:>9}  case\n", "instructions", "baseline", "ratio");
    for (case, &count) in counts {
        let old = baseline.and_then(|baseline| baseline.get(case)).copied();
        let old_text = old.map_or("-".to_owned(), |old| old.to_string());
        let ratio = old.map_or("-".to_owned(), |old| format!("{:.4}", count as f64 / old as f64));
        // Writing into a String cannot fail.
        let _ = writeln!(out, "{count:>16}{old_text:>16}{ratio:>9}  {case}");
    }
    out
}

/// Cases that exceed their baseline by more than `threshold` percent.
fn grown<'a>(counts: &'a BTreeMap<String, u64>, baseline: &BTreeMap<String, u64>, threshold: f64) -> Vec<&'a str> {
    let limit = |old: u64| old as f64 * (1.0 + threshold / 100.0);
    let grown =
        counts.iter().filter(|(case, count)| baseline.get(*case).is_some_and(|&old| **count as f64 > limit(old)));
    grown.map(|(case, _)| case.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, Usage> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_and_their_errors() {
        let request = parsed("--counts --op msa-indexer --level scalar --json a --baseline b --threshold 0.5").unwrap();
        assert_eq!((request.op.as_deref(), request.level.as_str()), (Some("msa-indexer"), "scalar"));
        assert_eq!((request.json, request.baseline, request.threshold), (Some("a".into()), Some("b".into()), 0.5));
        assert_eq!(parsed("--counts").unwrap().benches().count(), 5);
        assert_eq!(
            parsed("--counts --op grouped-gemm").unwrap().benches().collect::<Vec<_>>(),
            [("grouped-gemm", "moe")]
        );
        for (line, word) in [
            ("", "`bench` needs `--counts`"),
            ("--counts --op", "`--op` needs a value"),
            ("--counts --op gemm", "the nearest is `grouped-gemm`"),
            ("--counts --threshold x", "found `x`"),
            ("--count", "the nearest is `--counts`"),
        ] {
            assert!(parsed(line).unwrap_err().0.contains(word), "{line}");
        }
    }

    #[test]
    fn dumps_and_messages_are_read() {
        let dump = "# callgrind format\nversion: 1\nevents: Ir\nsummary: 12345\n\nfn=(1) x\n12 3\n\ntotals: 12345\n";
        assert_eq!((total(dump), total("totals: 7\n"), total("events: Ir\n")), (Some(12345), Some(7), None));
        let messages =
            b"{\"reason\":\"compiler-artifact\",\"executable\":null}\nnoise\n{\"executable\":\"target/x\"}\n";
        assert_eq!(program_of(messages), Some("target/x".into()));
        assert_eq!(program_of(b""), None);
    }

    #[test]
    fn what_grows_beyond_the_threshold_is_named() {
        let of = |counts: &[(&str, u64)]| counts.iter().map(|(case, count)| ((*case).to_owned(), *count)).collect();
        let old: BTreeMap<String, u64> = of(&[("a", 1000), ("b", 1000), ("gone", 5)]);
        let new: BTreeMap<String, u64> = of(&[("a", 1010), ("b", 1011), ("new", 9)]);
        assert_eq!(grown(&new, &old, 1.0), ["b"]);
        let text = table(&new, Some(&old));
        assert!(
            text.contains("1011            1000   1.0110  b") && text.contains("9               -        -  new"),
            "{text}"
        );
    }

    #[test]
    fn the_benches_are_there_and_use_the_harness_that_is_counted() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for (op, bench) in BENCHES {
            let path = root.join(format!("ops/{op}/benches/{bench}.rs"));
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.contains("op_testkit::bench"), "{}", path.display());
        }
        let harness = std::fs::read_to_string(root.join("ops/testkit/src/bench.rs")).unwrap();
        assert!(harness.contains(&format!("\"{CASE}\"")) && harness.contains("#[inline(never)]\nfn counted("));
    }
}
