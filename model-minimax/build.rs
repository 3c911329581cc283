// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tells the program what built it: benchmark reports name the compiler and the commit.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let version = first_line(&rustc, &["--version"]).unwrap_or_else(|| "rustc (unknown version)".to_owned());
    println!("cargo:rustc-env=MODEL_MINIMAX_RUSTC={version}");

    // Every commit and checkout appends to this log. Without it (no repository, no commit yet) there is nothing to watch.
    let log = Path::new("../.git/logs/HEAD");
    if log.exists() {
        println!("cargo:rerun-if-changed={}", log.display());
        if let Some(commit) = first_line("git", &["rev-parse", "HEAD"]) {
            println!("cargo:rustc-env=MODEL_MINIMAX_COMMIT={commit}");
        }
    }
}

/// The first line that a command prints, if it succeeds.
fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next().map(str::to_owned)
}
