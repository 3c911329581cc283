// SPDX-License-Identifier: MIT OR Apache-2.0

//! Device code of the operators: built, and listed by operator and SoC.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context as _;
use serde_json::Value;

use crate::cargo::Call;
use crate::cli::{self, Selection, arch};
use crate::workspace::Workspace;

/// Why an operator without a kernel has no device code.
pub(crate) const NO_KERNEL: &str = "no AscendC kernels in this version";

/// What will be built.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Operators with a kernel, by name and package id, and those without.
    with_kernel: Vec<(String, String)>,
    without: Vec<String>,
    socs: Vec<String>,
}

/// One operator on one SoC.
#[derive(Debug, Clone, PartialEq)]
struct Line {
    op: String,
    soc: String,
    built: bool,
    /// Size and digest, or why not.
    text: String,
}

impl Plan {
    pub(crate) fn new(selection: &Selection, workspace: &Workspace) -> anyhow::Result<Self> {
        let all: Vec<&str> = workspace.ops().collect();
        let ops: Vec<&str> = match &selection.op {
            Some(op) => {
                cli::known("op", op.clone(), &all)?;
                vec![op]
            }
            None => all,
        };
        let (with_kernel, without): (Vec<_>, Vec<_>) = ops.into_iter().partition(|op| workspace.has_kernel(op));
        let with_id = |op: &str| (op.to_owned(), workspace.member(op).map_or_else(String::new, |op| op.id.clone()));
        Ok(Self {
            with_kernel: with_kernel.into_iter().map(with_id).collect(),
            without: without.into_iter().map(str::to_owned).collect(),
            socs: selection.socs(),
        })
    }

    /// The call of cargo; none if no operator has a kernel.
    fn call(&self) -> Option<Call> {
        if self.with_kernel.is_empty() {
            return None;
        }
        let packages: Vec<String> = self.with_kernel.iter().map(|(op, _)| format!("--package {op}")).collect();
        let archs: Vec<&str> = self.socs.iter().map(|soc| arch(soc)).collect();
        let call = Call::new(&format!("build {} --message-format json-render-diagnostics", packages.join(" ")));
        Some(call.env("ASCEND_RT_SOC", archs.join(",")))
    }

    pub(crate) fn describe(&self) {
        println!("  SoCs       {}", self.socs.join(", "));
        match self.call() {
            Some(call) => println!("  command    {call}"),
            None => println!("  command    none: no operator has a kernel yet"),
        }
    }

    /// Builds, and prints the table; whether the build passed. Code that is not built for want of CANN is a listed
    /// state, not a failure.
    pub(crate) fn run(&self) -> anyhow::Result<bool> {
        self.describe();
        let mut folders = Vec::new();
        let mut passed = true;
        if let Some(call) = self.call() {
            let child = call.command().stdout(Stdio::piped()).spawn();
            let mut child = child.with_context(|| format!("cannot start `{call}`"))?;
            let output = child.stdout.take().context("cargo has no standard output")?;
            for line in BufReader::new(output).lines() {
                // What is no message of cargo is of no interest here.
                let message: Value = serde_json::from_str(&line?).unwrap_or_default();
                folders.extend(result_folder(&message));
            }
            passed = child.wait()?.success();
        }
        println!("\n{}", table(&self.lines(&folders, passed)));
        Ok(passed)
    }

    fn lines(&self, folders: &[(String, PathBuf)], passed: bool) -> Vec<Line> {
        let mut lines = Vec::new();
        for soc in &self.socs {
            let line = |op: &str, built, text| Line { op: op.to_owned(), soc: soc.clone(), built, text };
            lines.extend(self.without.iter().map(|op| line(op, false, NO_KERNEL.to_owned())));
            for (op, id) in &self.with_kernel {
                let manifest = folders.iter().filter(|(package, _)| package == id).find_map(|(_, out)| manifest(out));
                lines.push(match manifest {
                    Some(manifest) => match blob(&manifest, arch(soc)) {
                        Some(text) => line(op, true, text),
                        None => line(op, false, reason(&manifest)),
                    },
                    None if passed => line(op, false, "its build script left no kernels.json".to_owned()),
                    None => line(op, false, "the build failed".to_owned()),
                });
            }
        }
        lines.sort_by(|a, b| (&a.op, &a.soc).cmp(&(&b.op, &b.soc)));
        lines
    }
}

/// The package of a build script that ran, and its `OUT_DIR`.
fn result_folder(message: &Value) -> Option<(String, PathBuf)> {
    if message["reason"] != "build-script-executed" {
        return None;
    }
    Some((message["package_id"].as_str()?.to_owned(), message["out_dir"].as_str()?.into()))
}

/// What `ascend-build` left there, if it was called.
fn manifest(folder: &Path) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(folder.join("kernels.json")).ok()?).ok()
}

/// What a manifest says of one architecture.
fn blob(manifest: &Value, arch: &str) -> Option<String> {
    let blob = manifest["blobs"].as_array()?.iter().find(|blob| blob["arch"] == arch)?;
    let digest = blob["sha256"].as_str()?;
    Some(format!(
        "{} bytes, sha256 {}, by {}",
        blob["bytes"],
        digest.get(..12).unwrap_or(digest),
        manifest["toolkit"].as_str()?
    ))
}

fn reason(manifest: &Value) -> String {
    match manifest["reason"].as_str() {
        Some(reason) if !reason.is_empty() => reason.to_owned(),
        _ => format!("{} made no code for it", manifest["toolkit"].as_str().unwrap_or("the toolkit")),
    }
}

fn table(lines: &[Line]) -> String {
    let mut rows = vec![["op", "soc", "status", "code"].map(str::to_owned)];
    rows.extend(lines.iter().map(|line| {
        let status = if line.built { "built" } else { "not built" };
        [line.op.clone(), line.soc.clone(), status.to_owned(), line.text.clone()]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    let mut text = String::new();
    for [op, soc, status, code] in &rows {
        text += &format!("{op:<0$}  {soc:<1$}  {status:<2$}  {code}\n", widths[0], widths[1], widths[2]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::testing::Folder;
    use serde_json::json;

    /// Two operators, of which the first has a kernel.
    fn workspace(folder: &Folder) -> Workspace {
        let root = folder.path().display();
        folder.file("ops/gemm/kernel/gemm.cpp", "");
        let package =
            |name: &str| json!({"id": name, "name": name, "manifest_path": format!("{root}/ops/{name}/Cargo.toml")});
        Workspace::from_metadata(&json!({
            "workspace_root": root.to_string(), "workspace_members": ["gemm", "rope"],
            "packages": [package("gemm"), package("rope")],
        }))
    }

    fn on(soc: &str) -> Selection {
        Selection { soc: Some(soc.to_owned()), ..Selection::default() }
    }

    #[test]
    fn only_operators_with_a_kernel_are_built() {
        let folder = Folder::new();
        let plan = Plan::new(&on("all"), &workspace(&folder)).unwrap();
        assert_eq!(
            plan.call().unwrap().to_string(),
            r#"ASCEND_RT_SOC="dav-2201,dav-3510" cargo build --package gemm --message-format json-render-diagnostics"#
        );
        let narrowed = Selection { op: Some("rope".to_owned()), ..on("950") };
        assert!(Plan::new(&narrowed, &workspace(&folder)).unwrap().call().is_none());
        let unknown = Selection { op: Some("rop".to_owned()), ..on("950") };
        assert!(Plan::new(&unknown, &workspace(&folder)).unwrap_err().to_string().contains("the nearest is `rope`"));
    }

    #[test]
    fn the_table_says_what_was_built_and_why_not() {
        let folder = Folder::new();
        let plan = Plan::new(&on("all"), &workspace(&folder)).unwrap();
        let manifest = json!({
            "kernel": "gemm", "toolkit": "CANN 8.5.0", "reason": "",
            "blobs": [{"arch": "dav-2201", "bytes": 9216, "sha256": "0123456789abcdef"}],
        });
        folder.file("out/kernels.json", manifest.to_string());
        let message =
            json!({"reason": "build-script-executed", "package_id": "gemm", "out_dir": folder.path().join("out")});
        let folders: Vec<_> = result_folder(&message).into_iter().collect();
        assert_eq!(
            table(&plan.lines(&folders, true)),
            "\
op    soc   status     code
gemm  910b  built      9216 bytes, sha256 0123456789ab, by CANN 8.5.0
gemm  950   not built  CANN 8.5.0 made no code for it
rope  910b  not built  no AscendC kernels in this version
rope  950   not built  no AscendC kernels in this version
"
        );
        folder.file(
            "out/kernels.json",
            r#"{"kernel": "gemm", "toolkit": null, "reason": "no CANN toolkit", "blobs": []}"#,
        );
        assert_eq!(plan.lines(&folders, true)[0].text, "no CANN toolkit");
        folder.file("out/kernels.json", "damaged");
        assert_eq!(plan.lines(&folders, true)[0].text, "its build script left no kernels.json");
        assert_eq!(plan.lines(&[], false)[1].text, "the build failed");
        assert_eq!(result_folder(&json!({"reason": "compiler-artifact", "out_dir": "/x"})), None);
    }
}
