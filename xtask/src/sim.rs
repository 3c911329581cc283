// SPDX-License-Identifier: MIT OR Apache-2.0

//! One kernel on the twin: the command of `ascend-sim`, which this program only calls.

use anyhow::Context as _;

use crate::cargo::Call;
use crate::cli::Usage;

/// The call of the program that runs the kernel. It runs in the folder of the caller, so that paths mean what they say.
pub(crate) fn call(words: &[String]) -> Call {
    Call::new("run --quiet --package ascend-sim --bin ascend-sim --").args(words)
}

/// Runs it; whether the kernel came to its end.
pub(crate) fn run(words: &[String]) -> anyhow::Result<bool> {
    let call = call(words);
    let status = call.command().status().with_context(|| format!("cannot start `{call}`"))?;
    match status.code() {
        Some(2) => Err(Usage("`cargo xtask sim --help` shows the options of `sim`".to_owned()).into()),
        _ => Ok(status.success()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_go_on_as_they_are() {
        let words = ["my kernel.cpp", "--arg", "in:f32:4"].map(str::to_owned);
        assert_eq!(
            call(&words).to_string(),
            "cargo run --quiet --package ascend-sim --bin ascend-sim -- my kernel.cpp --arg in:f32:4"
        );
    }
}
