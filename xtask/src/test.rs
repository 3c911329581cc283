// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tests of the workspace: run, counted, and shown as a table of the conformance suites.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::Context as _;

use crate::build::NO_KERNEL;
use crate::cargo::Call;
use crate::cli::{self, Selection};
use crate::report::{self, Row, Status, Totals};
use crate::workspace::Workspace;

/// What will run.
#[derive(Debug)]
pub(crate) struct Plan {
    call: Call,
    /// Where the conformance suites write one JSON file per operator, backend and level.
    reports: PathBuf,
    ops: Vec<String>,
    /// Those of the operators that have sources for the device.
    with_kernel: Vec<String>,
    level: Option<String>,
    socs: Vec<String>,
    /// Crates that are no operator and whose rows belong into the table.
    others: Vec<String>,
}

impl Plan {
    pub(crate) fn new(selection: &Selection, workspace: &Workspace) -> anyhow::Result<Self> {
        let all: Vec<&str> = workspace.ops().collect();
        let packages = match &selection.op {
            Some(op) => format!("--package {}", cli::known("op", op.clone(), &all)?),
            None => "--workspace".to_owned(),
        };
        let reports = workspace.target.join("conformance");
        let twin = workspace.with_twin(selection.op.as_deref());
        let mut call = Call::new(&format!("test {packages} {twin} --no-fail-fast"))
            .env("CONFORMANCE_DIR", reports.to_string_lossy());
        if let Some(level) = &selection.level {
            call = call.env("CPU_TILES_LEVEL", level.as_str());
        }
        let with_kernel = all.iter().copied().filter(|op| workspace.has_kernel(op)).map(str::to_owned).collect();
        Ok(Self {
            call,
            reports,
            ops: selection.op.as_ref().map_or(all, |op| vec![op]).into_iter().map(str::to_owned).collect(),
            with_kernel,
            level: selection.level.clone(),
            socs: selection.socs(),
            others: match &selection.op {
                Some(_) => Vec::new(),
                None => workspace.members.iter().map(|member| member.name.clone()).collect(),
            },
        })
    }

    /// Prints what [`run`](Self::run) does.
    pub(crate) fn describe(&self) {
        let level = self.level.as_deref().map_or("every SIMD level".to_owned(), |level| format!("SIMD level {level}"));
        println!("  operators  {}", self.ops.join(", "));
        println!(
            "  backends   cpu at {level}; kernels on the twin of SoC {}, and on the card where there is one",
            self.socs.join(", ")
        );
        println!("  command    {}", self.call);
    }

    /// Runs the tests with their output passed through, then prints the table.
    pub(crate) fn run(&self) -> anyhow::Result<Totals> {
        self.describe();
        if self.reports.exists() {
            std::fs::remove_dir_all(&self.reports)
                .with_context(|| format!("cannot empty {}", self.reports.display()))?;
        }
        std::fs::create_dir_all(&self.reports).with_context(|| format!("cannot create {}", self.reports.display()))?;

        let mut child = self
            .call
            .command()
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start `{}`", self.call))?;
        let mut totals = Totals::default();
        let mut lines = BufReader::new(child.stdout.take().context("the tests have no standard output")?);
        let mut line = Vec::new();
        let mut out = std::io::stdout().lock();
        while lines.read_until(b'\n', &mut line)? > 0 {
            out.write_all(&line)?;
            totals += Totals::of_result_line(&String::from_utf8_lossy(&line)).unwrap_or_default();
            line.clear();
        }
        drop(out);
        let status = child.wait()?;

        let rows = self.rows(report::read(&self.reports)?);
        let all_well = status.success() && rows.iter().all(|row| row.status != Status::Failed);
        println!("\n{}", report::table(rows));
        if !all_well && totals.failed == 0 {
            println!("No test says that it failed, yet not all is well ({status}): counted as one failure.");
            totals.failed = 1;
        }
        Ok(totals)
    }

    /// What the suites wrote, as far as it was asked for, and the rows that nobody could write.
    fn rows(&self, written: Vec<Row>) -> Vec<Row> {
        let asked_for = |row: &Row| {
            let level = row.backend != "cpu" || self.level.as_ref().is_none_or(|level| row.level == *level);
            let twin = row.backend.strip_prefix("sim:").is_none_or(|soc| self.socs.iter().any(|known| known == soc));
            level && twin && (self.ops.contains(&row.op) || self.others.contains(&row.op))
        };
        let mut rows: Vec<Row> = written.into_iter().filter(asked_for).collect();
        for op in &self.ops {
            let mut add = |backend: &str, status, reason: &str| {
                if !rows.iter().any(|row| row.op == *op && row.backend == backend) {
                    rows.push(Row::without_problems(op, backend, status, reason));
                }
            };
            add("cpu", Status::Failed, "the conformance suite wrote no report");
            for device in self.socs.iter().map(|soc| format!("sim:{soc}")).chain(["npu".to_owned()]) {
                let has_kernel = self.with_kernel.contains(op);
                let why = if has_kernel { "the conformance suite says nothing about it" } else { NO_KERNEL };
                add(&device, Status::NotBuilt, why);
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn plan(selection: &Selection) -> anyhow::Result<Plan> {
        let package = |name: &str, folder: &str| {
            let features = if name == "grouped-gemm" { json!({"default": [], "sim": []}) } else { json!({}) };
            json!({"id": name, "name": name, "manifest_path": format!("/w/{folder}/Cargo.toml"), "features": features})
        };
        let workspace = Workspace::from_metadata(&json!({
            "workspace_root": "/w", "target_directory": "/w/target",
            "workspace_members": ["cpu-tiles", "grouped-gemm", "msa-indexer", "ascend-rt"],
            "packages": [
                package("ascend-rt", "ascend-rt"),
                package("cpu-tiles", "ops/cpu"), package("grouped-gemm", "ops/grouped-gemm"), package("msa-indexer", "ops/msa-indexer"),
            ],
        }));
        Plan::new(selection, &workspace)
    }

    fn narrowed(op: &str, level: Option<&str>, soc: Option<&str>) -> Selection {
        Selection { op: Some(op.to_owned()), level: level.map(str::to_owned), soc: soc.map(str::to_owned) }
    }

    fn on_cpu(level: &str) -> Row {
        Row { level: level.to_owned(), ..Row::without_problems("grouped-gemm", "cpu", Status::Ok, "") }
    }

    fn shown(rows: &[Row]) -> Vec<(&str, &str, &str, Status)> {
        rows.iter().map(|row| (row.op.as_str(), row.backend.as_str(), row.level.as_str(), row.status)).collect()
    }

    #[test]
    fn the_whole_workspace_unless_narrowed() {
        let all = plan(&Selection::default()).unwrap();
        assert!(
            all.call.to_string().ends_with("cargo test --workspace --features grouped-gemm/sim --no-fail-fast"),
            "{}",
            all.call
        );
        assert_eq!(all.ops, ["grouped-gemm", "msa-indexer"]);
        let one = plan(&narrowed("grouped-gemm", Some("avx2"), None)).unwrap();
        let command = one.call.to_string();
        assert!(command.contains(r#"CPU_TILES_LEVEL="avx2" "#), "{command}");
        assert!(
            command.ends_with("cargo test --package grouped-gemm --features grouped-gemm/sim --no-fail-fast"),
            "{command}"
        );
        assert!(!command.contains("ASCEND_RT_SOC"), "{command}");
        let without = plan(&narrowed("msa-indexer", None, None)).unwrap().call.to_string();
        assert!(without.ends_with("cargo test --package msa-indexer --no-fail-fast"), "{without}");
    }

    #[test]
    fn an_unknown_operator_gets_the_list() {
        let error = plan(&narrowed("gemm", None, None)).unwrap_err();
        assert!(error.is::<cli::Usage>());
        assert_eq!(
            error.to_string(),
            "unknown op `gemm`; there are: grouped-gemm, msa-indexer; the nearest is `grouped-gemm`"
        );
    }

    #[test]
    fn devices_are_listed_and_a_silent_suite_is_a_failure() {
        let rows = plan(&Selection::default()).unwrap().rows(vec![on_cpu("scalar"), on_cpu("avx2")]);
        assert_eq!(
            shown(&rows),
            [
                ("grouped-gemm", "cpu", "scalar", Status::Ok),
                ("grouped-gemm", "cpu", "avx2", Status::Ok),
                ("grouped-gemm", "sim:910b", "-", Status::NotBuilt),
                ("grouped-gemm", "sim:950", "-", Status::NotBuilt),
                ("grouped-gemm", "npu", "-", Status::NotBuilt),
                ("msa-indexer", "cpu", "-", Status::Failed),
                ("msa-indexer", "sim:910b", "-", Status::NotBuilt),
                ("msa-indexer", "sim:950", "-", Status::NotBuilt),
                ("msa-indexer", "npu", "-", Status::NotBuilt),
            ]
        );
    }

    #[test]
    fn rows_follow_the_selection() {
        let other = Row::without_problems("msa-indexer", "cpu", Status::Ok, "");
        let unasked = Row::without_problems("grouped-gemm", "sim:910b", Status::Ok, "");
        let rows = plan(&narrowed("grouped-gemm", Some("avx2"), Some("950"))).unwrap().rows(vec![
            on_cpu("scalar"),
            on_cpu("avx2"),
            other,
            unasked,
        ]);
        assert_eq!(
            shown(&rows),
            [
                ("grouped-gemm", "cpu", "avx2", Status::Ok),
                ("grouped-gemm", "sim:950", "-", Status::NotBuilt),
                ("grouped-gemm", "npu", "-", Status::NotBuilt),
            ]
        );
    }

    #[test]
    fn checks_of_other_crates_are_listed_with_everything() {
        let row = |name: &str| Row::without_problems(name, "headers", Status::NotBuilt, "ACL_INCLUDE is not set");
        let listed = |plan: Plan| {
            let rows = plan.rows(vec![on_cpu("scalar"), row("ascend-rt"), row("example-of-a-document")]);
            rows.into_iter().filter(|row| row.backend == "headers").map(|row| row.op).collect::<Vec<_>>()
        };
        assert_eq!(listed(plan(&Selection::default()).unwrap()), ["ascend-rt"]);
        assert_eq!(listed(plan(&narrowed("grouped-gemm", None, None)).unwrap()), [""; 0]);
    }

    #[test]
    fn a_level_that_no_suite_reports_is_a_failure() {
        let rows = plan(&narrowed("grouped-gemm", Some("avx512"), None)).unwrap().rows(vec![on_cpu("scalar")]);
        assert_eq!(shown(&rows)[0], ("grouped-gemm", "cpu", "-", Status::Failed));
    }

    #[test]
    fn what_a_suite_says_about_a_device_stands() {
        let said = Row::without_problems("grouped-gemm", "npu", Status::NotBuilt, "no CANN found");
        let rows = plan(&narrowed("grouped-gemm", None, Some("950"))).unwrap().rows(vec![on_cpu("scalar"), said]);
        let reasons: Vec<_> = rows.iter().filter(|row| row.backend == "npu").map(|row| row.reason.as_str()).collect();
        assert_eq!(reasons, ["no CANN found"]);
    }
}
