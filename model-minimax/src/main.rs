// SPDX-License-Identifier: MIT OR Apache-2.0

//! The command line. `REFERENCE.md` lists its commands and options.

mod cli;

use std::process::ExitCode;

/// Exit codes: 0 done, 1 failed, 2 wrong usage.
fn main() -> ExitCode {
    match cli::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", message(&error));
            if let Some(code) = model_minimax::explain::code_of(error.as_ref()) {
                eprintln!("help: model-minimax --explain {code}");
            }
            if error.is::<cli::Usage>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// The messages of an error and its causes. Many of ours end with the message of their cause, which is then not repeated.
fn message(error: &anyhow::Error) -> String {
    let mut message = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !message.ends_with(&cause) {
            message = format!("{message}: {cause}");
        }
    }
    message
}
