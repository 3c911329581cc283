// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rows for the table of `cargo xtask test`: what ran, and what could not.

use std::path::{Path, PathBuf};

/// How a check ended.
pub(crate) enum Status<'a> {
    Ok,
    NotBuilt(&'a str),
}

/// Prints a row, and leaves it where `CONFORMANCE_DIR` says. A check that failed panics instead.
pub(crate) fn report(check: &str, status: &Status<'_>) {
    let (status, passed, reason) = match status {
        Status::Ok => ("ok", 1, ""),
        Status::NotBuilt(reason) => ("not-built", 0, *reason),
    };
    println!(
        "conformance: op=ascend-rt backend={check} level=- status={status} passed={passed} failed=0 skipped=0 reason={reason}"
    );
    if let Some(folder) = std::env::var_os("CONFORMANCE_DIR") {
        let json = format!(
            "{{\"op\": \"ascend-rt\", \"backend\": {check:?}, \"level\": \"-\", \"status\": {status:?}, \"passed\": {passed}, \
             \"failed\": 0, \"skipped\": 0, \"reason\": {reason:?}, \"skips\": [], \"failures\": []}}\n"
        );
        let name = format!("ascend-rt.{}.-.json", check.replace(':', "-"));
        std::fs::write(Path::new(&folder).join(name), json).unwrap();
    }
}

/// The checker of declarations, and the declarations.
pub(crate) fn paths() -> (PathBuf, PathBuf) {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR"));
    (ours.join("../../xtask/tools/acl_ffi_check.py"), ours.join("../src/sys.rs"))
}

/// Whether a program is on `PATH` and says its version.
pub(crate) fn has(program: &str) -> bool {
    std::process::Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}
