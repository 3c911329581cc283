// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls of cargo: printed by `--dry-run`, run otherwise, both from the same value.

use std::fmt;
use std::process::Command;

use anyhow::Context as _;

/// One call of cargo with its environment.
#[derive(Debug)]
pub(crate) struct Call {
    env: Vec<(&'static str, String)>,
    args: Vec<String>,
}

impl Call {
    /// A call with these space-separated arguments.
    pub(crate) fn new(args: &str) -> Self {
        Self { env: Vec::new(), args: args.split_whitespace().map(str::to_owned).collect() }
    }

    /// More arguments, each as it is.
    pub(crate) fn args(mut self, args: &[String]) -> Self {
        self.args.extend_from_slice(args);
        self
    }

    pub(crate) fn env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.env.push((name, value.into()));
        self
    }

    /// The process to spawn, by the cargo that runs this program.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(&self.args).envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs it with its output passed through; whether it succeeded.
    pub(crate) fn succeeds(&self) -> anyhow::Result<bool> {
        let status = self.command().status().with_context(|| format!("cannot start `{self}`"))?;
        Ok(status.success())
    }

    /// Its standard output.
    pub(crate) fn output(&self) -> anyhow::Result<Vec<u8>> {
        let output = self.command().output().with_context(|| format!("cannot start `{self}`"))?;
        anyhow::ensure!(
            output.status.success(),
            "`{self}` failed: {}",
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
        Ok(output.stdout)
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.env {
            write!(f, "{name}={value:?} ")?;
        }
        write!(f, "cargo {}", self.args.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_as_typed_in_a_shell() {
        let call = Call::new("doc --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(call.to_string(), r#"RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps"#);
    }
}
