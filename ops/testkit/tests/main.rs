// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests of the test machinery: each tool must also be seen to fail.

mod allocations;
mod compare;
mod conformance;
mod golden;
mod guard;
mod safetensors;
mod strategies;
mod vendored;

#[global_allocator]
static ALLOCATOR: op_testkit::allocations::CountingAllocator = op_testkit::allocations::CountingAllocator;

use std::path::PathBuf;
use std::process::{Command, Output};

/// A folder of its own for one test.
fn scratch(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("op-testkit").join(name);
    match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            panic!("{}: {error}", folder.display())
        }
        _ => std::fs::create_dir_all(&folder).expect("the scratch folder can be made"),
    }
    folder
}

/// Runs one test of this binary again, with an environment variable set; the variable tells the
/// test that it is the inner run. This process's own environment cannot be changed safely while
/// other tests run.
fn rerun_with(test: &str, variable: &str, value: &str) -> Output {
    let this = std::env::current_exe().expect("the test binary has a path");
    let output = Command::new(this).args(["--exact", test, "--nocapture"]).env(variable, value).output();
    let output = output.expect("the test binary can be run");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("running 1 test"), "`{test}` is no test of this binary: {text}");
    output
}
