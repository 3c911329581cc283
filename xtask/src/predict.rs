// SPDX-License-Identifier: MIT OR Apache-2.0

//! Predicted times and memory budgets of the kernels: what the example `<op>-predict` of each operator says, as a table.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::Context as _;
use serde_json::Value;

use crate::cargo::Call;
use crate::cli::{self, Prediction, SOCS};
use crate::workspace::Workspace;

/// The memories of a core, as a budget names them.
const MEMORIES: [&str; 7] = ["UB", "L1", "L0A", "L0B", "L0C", "BT", "FB"];

/// What will be predicted.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Operators with a kernel.
    ops: Vec<String>,
    chips: Vec<String>,
    budget: bool,
    /// Folder for pages.
    html: Option<PathBuf>,
    /// File for all lines.
    json: Option<PathBuf>,
}

impl Plan {
    pub(crate) fn new(budget: bool, asked: &Prediction, workspace: &Workspace) -> anyhow::Result<Self> {
        let all: Vec<&str> = workspace.ops().filter(|op| workspace.has_kernel(op)).collect();
        let ops = match &asked.op {
            Some(op) => vec![cli::known("op", op.clone(), &all)?],
            None => all.into_iter().map(str::to_owned).collect(),
        };
        let chips = match asked.soc.as_deref() {
            None if !budget => vec![chip("910b")],
            None | Some("all") => SOCS.iter().map(|soc| chip(soc)).collect(),
            Some(soc) => vec![chip(soc)],
        };
        Ok(Self { ops, chips, budget, html: asked.html.clone(), json: asked.json.clone() })
    }

    fn call(&self, op: &str, chip: &str) -> Call {
        let call =
            format!("run --quiet --package {op} --features {op}/sim --example {op}-predict -- --chip {chip} --json");
        let mut words = Vec::new();
        if self.budget {
            words.push("--budget".to_owned());
        }
        if let Some(folder) = &self.html {
            words.extend(["--html".to_owned(), folder.to_string_lossy().into_owned()]);
            words.extend(["--trace".to_owned(), folder.to_string_lossy().into_owned()]);
        }
        Call::new(&call).args(&words)
    }

    fn calls(&self) -> impl Iterator<Item = Call> {
        self.ops.iter().flat_map(move |op| self.chips.iter().map(move |chip| self.call(op, chip)))
    }

    pub(crate) fn describe(&self) {
        for call in self.calls() {
            println!("  command    {call}");
        }
    }

    /// Runs the examples and prints the table; whether all of them passed and everything fits.
    pub(crate) fn run(&self) -> anyhow::Result<bool> {
        let (mut lines, mut passed) = (Vec::new(), true);
        for call in self.calls() {
            let child = call.command().stdout(Stdio::piped()).spawn();
            let mut child = child.with_context(|| format!("cannot start `{call}`"))?;
            let output = child.stdout.take().context("cargo has no standard output")?;
            for line in BufReader::new(output).lines() {
                let line = line?;
                lines.push(serde_json::from_str(&line).with_context(|| format!("`{call}` says `{line}`"))?);
            }
            passed &= child.wait()?.success();
        }
        print!("{}", if self.budget { budget(&lines) } else { times(&lines) });
        if let Some(path) = &self.json {
            std::fs::write(path, serde_json::to_vec_pretty(&lines)?)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        if !self.budget {
            println!("Every time is a predicted time: nothing here ran on a card.");
        }
        if let Some(folder) = &self.html {
            println!("Timelines, as pages and for Chrome's trace viewer: {}", folder.display());
        }
        Ok(passed && lines.iter().all(fits))
    }
}

/// The chip that stands for a SoC; other names are chips themselves.
fn chip(soc: &str) -> String {
    match soc {
        "910b" => "910b3",
        "950" => "950pr",
        chip => chip,
    }
    .to_owned()
}

/// Whether a line refuses nothing and takes no more than there is.
fn fits(line: &Value) -> bool {
    let within = |pair: &Value| pair[0].as_u64() <= pair[1].as_u64();
    line["refused"].is_null() && line["memories"].as_object().is_none_or(|all| all.values().all(within))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn times(lines: &[Value]) -> String {
    let head = ["op", "variant", "shape", "chip", "predicted us", "bound us", "of it", "binds"];
    let rows = lines.iter().map(|line| {
        let number = |key: &str| line[key].as_f64().unwrap_or(0.0);
        let [op, variant, shape, chip] = ["op", "variant", "shape", "chip"].map(|key| text(&line[key]));
        if let Some(reason) = line["refused"].as_str() {
            let refused = [op, variant, String::new(), chip, "refused".to_owned()];
            return refused.into_iter().chain([String::new(), String::new(), reason.to_owned()]).collect();
        }
        let bound = format!("{:.1} {}", number("bound_us"), text(&line["bound"]));
        let share = format!("{:.0} %", 100.0 * number("share_of_bound"));
        vec![op, variant, shape, chip, format!("{:.1}", number("predicted_us")), bound, share, text(&line["binds"])]
    });
    table(&head, rows)
}

fn budget(lines: &[Value]) -> String {
    let head: Vec<&str> = ["op", "variant", "chip"].into_iter().chain(MEMORIES).chain([""]).collect();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for line in lines {
        let mut row = ["op", "variant", "chip"].map(|key| text(&line[key])).to_vec();
        match line["refused"].as_str() {
            Some(reason) => {
                row.extend(MEMORIES.map(|_| String::new()));
                row.push(format!("REFUSED: {reason}"));
            }
            None => {
                row.extend(MEMORIES.map(|memory| {
                    let pair = &line["memories"][memory];
                    format!("{} of {}", pair[0], pair[1])
                }));
                row.push(if fits(line) { String::new() } else { "TOO LARGE".to_owned() });
            }
        }
        // Several launches of a variant take the same.
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    table(&head, rows)
}

fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut all = vec![head.iter().map(|&word| word.to_owned()).collect::<Vec<_>>()];
    all.extend(rows);
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for row in &all {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::testing::Folder;
    use serde_json::json;

    fn plan(budget: bool, asked: &Prediction) -> anyhow::Result<Plan> {
        let folder = Folder::new();
        let root = folder.path().display();
        folder.file("ops/gemm/kernel/gemm.cpp", "");
        let package =
            |name: &str| json!({"id": name, "name": name, "manifest_path": format!("{root}/ops/{name}/Cargo.toml")});
        let workspace = Workspace::from_metadata(&json!({
            "workspace_root": root.to_string(), "workspace_members": ["gemm", "rope"],
            "packages": [package("gemm"), package("rope")],
        }));
        Plan::new(budget, asked, &workspace)
    }

    #[test]
    fn one_call_for_each_operator_with_a_kernel_and_chip() {
        let calls = |budget, asked: &Prediction| {
            plan(budget, asked).unwrap().calls().map(|call| call.to_string()).collect::<Vec<_>>()
        };
        let start = "cargo run --quiet --package gemm --features gemm/sim --example gemm-predict -- --chip";
        assert_eq!(calls(false, &Prediction::default()), [format!("{start} 910b3 --json")]);
        assert_eq!(
            calls(true, &Prediction::default()),
            [format!("{start} 910b3 --json --budget"), format!("{start} 950pr --json --budget")]
        );
        let asked = Prediction { soc: Some("910b4".to_owned()), html: Some("/pages".into()), ..Prediction::default() };
        assert_eq!(calls(false, &asked), [format!("{start} 910b4 --json --html /pages --trace /pages")]);
        let wrong = Prediction { op: Some("rope".to_owned()), ..Prediction::default() };
        assert_eq!(
            plan(true, &wrong).unwrap_err().to_string(),
            "unknown op `rope`; there are: gemm; the nearest is `gemm`"
        );
    }

    #[test]
    fn budgets_that_do_not_fit_are_named_and_fail() {
        let line =
            |used| json!({"op": "gemm", "variant": "nz", "chip": "X", "memories": {"UB": [used, 8], "L1": [1, 8]}});
        let refused = json!({"op": "gemm", "variant": "fp8", "chip": "X", "refused": "PYPTO_MM1_N=512 is too large"});
        assert!(fits(&line(8)) && !fits(&line(9)) && !fits(&refused));
        let text = budget(&[line(8), line(8), line(9), refused]);
        assert_eq!(text.lines().count(), 4, "{text}");
        for part in ["8 of 8", "TOO LARGE", "REFUSED: PYPTO_MM1_N=512 is too large"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn times_stand_beside_their_bound() {
        let text = times(&[json!({
            "op": "gemm", "variant": "nz", "shape": "M3", "chip": "X", "predicted_us": 20.0, "bound_us": 15.5,
            "bound": "HBM", "share_of_bound": 0.775, "binds": "MTE2 of the cube cores"
        })]);
        assert_eq!(
            text.lines().nth(1).unwrap().split("  ").filter(|cell| !cell.is_empty()).map(str::trim).collect::<Vec<_>>(),
            ["gemm", "nz", "M3", "X", "20.0", "15.5 HBM", "78 %", "MTE2 of the cube cores"]
        );
    }
}
