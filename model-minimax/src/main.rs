// SPDX-License-Identifier: MIT OR Apache-2.0

//! The command line: `ask`, `bench`, `list-knobs`.

mod cli;

use std::process::ExitCode;

/// Exit codes: 0 done, 1 failed, 2 wrong usage (from the argument parser).
fn main() -> ExitCode {
    match cli::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
