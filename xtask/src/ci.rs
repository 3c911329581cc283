// SPDX-License-Identifier: MIT OR Apache-2.0

//! What continuous integration runs, step by step.

use std::time::{Duration, Instant};

use crate::cargo::Call;
use crate::cli::Selection;
use crate::workspace::Workspace;
use crate::{test, tidy};

/// The steps before `tidy` and `test`.
fn calls(workspace: &Workspace) -> [(&'static str, Call); 4] {
    let twin = workspace.with_twin(None);
    [
        ("fmt", Call::new("fmt --all --check")),
        // As it is tested: with the kernels on the twin.
        ("clippy", Call::new(&format!("clippy --workspace --all-targets {twin} -- -D warnings"))),
        // A feature must not be needed by what does not name it.
        ("clippy-bare", Call::new("clippy --workspace --all-targets --no-default-features -- -D warnings")),
        ("doc", Call::new("doc --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings")),
    ]
}

/// Prints the steps.
pub(crate) fn describe(workspace: &Workspace) -> anyhow::Result<()> {
    for (name, call) in calls(workspace) {
        println!("{name}: {call}");
    }
    println!("tidy:");
    tidy::describe();
    println!("test:");
    test::Plan::new(&Selection::default(), workspace)?.describe();
    Ok(())
}

/// Runs the steps up to the first that fails; whether all passed.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<bool> {
    let mut steps = Steps::default();
    for (name, call) in calls(workspace) {
        if !steps.passes(name, || call.succeeds())? {
            return Ok(false);
        }
    }
    if !steps.passes("tidy", tidy::run)? {
        return Ok(false);
    }
    let mut totals = None;
    let passed = steps.passes("test", || {
        let outcome = test::Plan::new(&Selection::default(), workspace)?.run()?;
        Ok(totals.insert(outcome).failed == 0)
    })?;
    // The totals stay the last line, where a caller looks for them.
    if let Some(totals) = totals {
        println!("{totals}");
    }
    Ok(passed)
}

/// Steps done so far with their times.
#[derive(Default)]
struct Steps(Vec<(&'static str, Duration)>);

impl Steps {
    fn passes(&mut self, name: &'static str, step: impl FnOnce() -> anyhow::Result<bool>) -> anyhow::Result<bool> {
        println!("ci: {name}");
        let start = Instant::now();
        let passed = step()?;
        self.0.push((name, start.elapsed()));
        let times: Vec<_> = self.0.iter().map(|(name, time)| format!("{name} {:.1} s", time.as_secs_f64())).collect();
        println!("ci: {name} {} ({})", if passed { "passed" } else { "FAILED" }, times.join(", "));
        Ok(passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_and_a_broken_one_are_told_apart() {
        let mut steps = Steps::default();
        assert!(steps.passes("first", || Ok(true)).unwrap());
        assert!(!steps.passes("second", || Ok(false)).unwrap());
        assert!(steps.passes("third", || anyhow::bail!("cannot start")).is_err());
        assert_eq!(steps.0.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["first", "second"]);
    }
}
