// SPDX-License-Identifier: MIT OR Apache-2.0

//! One suite of problems, run by every backend at every level.
//!
//! An operator describes its problems once, as values that implement [`Problem`]. Each backend and
//! level implements [`Subject`]: how it computes, how exact it is, and what it does not do, written
//! down with the reason. One ordinary test per backend and level calls [`run`]; a backend or level
//! that this build or machine does not have is passed as [`NotBuilt`] and listed as such, not left
//! out.
//!
//! ```
//! use op_testkit::compare::{Comparison, Tolerance};
//! use op_testkit::conformance::{self, NotBuilt, Problem, Skip, Subject};
//!
//! struct Double { name: &'static str, input: Vec<f32> }
//!
//! impl Problem for Double {
//!     type Output = Vec<f32>;
//!     fn name(&self) -> &str { self.name }
//!     fn check(&self, output: &Vec<f32>, tolerance: Tolerance) -> Result<(), String> {
//!         let expected: Vec<f32> = self.input.iter().map(|x| 2.0 * x).collect();
//!         Comparison::new(output, &expected, &[expected.len()]).check(tolerance)
//!     }
//! }
//!
//! struct Scalar;
//!
//! impl Subject<Double> for Scalar {
//!     fn tolerance(&self, _: &Double) -> Tolerance { Tolerance::EXACT }
//!     fn skips(&self) -> &[Skip] { &[Skip { problem: "huge", reason: "needs more than 64 KiB of scratch" }] }
//!     fn run(&self, problem: &Double) -> Result<Vec<f32>, String> {
//!         Ok(problem.input.iter().map(|x| x + x).collect())
//!     }
//! }
//!
//! fn problems() -> Vec<Double> {
//!     vec![Double { name: "small", input: vec![1.0, -2.5] }, Double { name: "huge", input: vec![3.0; 1 << 15] }]
//! }
//!
//! // In the operator's tests, each line below is a `#[test]` of its own.
//! conformance::run("double", "cpu", "scalar", Ok(Scalar), problems());
//! conformance::run::<_, Scalar>("double", "npu", "0", Err(NotBuilt("no CANN found".into())), problems());
//! ```
//!
//! # What a run leaves behind
//! One line on standard output, perhaps after text of the test harness, `reason` being the rest of
//! the line:
//! ```text
//! conformance: op=double backend=cpu level=scalar status=ok passed=1 failed=0 skipped=1 reason=skipped huge (needs more than 64 KiB of scratch)
//! conformance: op=double backend=npu level=0 status=not-built passed=0 failed=0 skipped=0 reason=no CANN found
//! ```
//! If the environment variable `CONFORMANCE_DIR` names a folder (absolute: tests run in the folder
//! of their crate), also the file `<op>.<backend>.<level>.json` in it, with the same fields, and
//! the lists `skips` (`problem`, `reason`) and `failures` (`problem`, `message`). Run a suite once
//! per operator, backend and level.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::compare::Tolerance;

/// One input of an operator together with what must come out. Cheap to make: large inputs are
/// better generated when asked for, since a skipped problem is not run.
pub trait Problem {
    /// What a backend computes.
    type Output;

    /// Unique within the suite.
    fn name(&self) -> &str;

    /// Compares an output with the expected one.
    ///
    /// # Errors
    /// A report for people.
    fn check(&self, output: &Self::Output, tolerance: Tolerance) -> Result<(), String>;
}

/// One backend at one level, as far as it exists in this build and on this machine.
pub trait Subject<P: Problem> {
    /// How exact this backend is on a problem.
    fn tolerance(&self, problem: &P) -> Tolerance;

    /// The problems that this backend does not do.
    fn skips(&self) -> &[Skip] {
        &[]
    }

    /// Solves a problem.
    ///
    /// # Errors
    /// The message of the operator's error.
    fn run(&self, problem: &P) -> Result<P::Output, String>;
}

/// A problem that a backend does not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skip {
    /// The name of the problem.
    pub problem: &'static str,
    /// Why.
    pub reason: &'static str,
}

/// A backend or level does not exist in this build or on this machine; the text says why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotBuilt(pub String);

/// What became of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Every problem that was not skipped passed.
    Ok,
    /// A problem failed, or the suite itself is faulty.
    Failed,
    /// Nothing could be run.
    NotBuilt,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::NotBuilt => "not-built",
        })
    }
}

/// A problem that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The name of the problem, or of what is wrong with the suite: `suite` or `skips`.
    pub problem: String,
    /// The report.
    pub message: String,
}

/// The result of one suite on one backend at one level.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The operator.
    pub op: String,
    /// The backend, such as `cpu` or `sim:dav-2201`.
    pub backend: String,
    /// The level, such as `avx2`.
    pub level: String,
    /// Names of the problems that passed.
    pub passed: Vec<String>,
    /// Problems that failed.
    pub failures: Vec<Failure>,
    /// Problems of the suite that were skipped.
    pub skips: Vec<Skip>,
    /// Set if nothing was run.
    pub not_built: Option<NotBuilt>,
}

impl Outcome {
    /// The status in a word.
    pub fn status(&self) -> Status {
        if self.not_built.is_some() {
            Status::NotBuilt
        } else if self.failures.is_empty() {
            Status::Ok
        } else {
            Status::Failed
        }
    }

    /// One line of text: why nothing was run, what failed, or what was skipped; empty if everything
    /// passed.
    pub fn reason(&self) -> String {
        let reason = if let Some(NotBuilt(reason)) = &self.not_built {
            reason.clone()
        } else if !self.failures.is_empty() {
            let names: Vec<_> = self.failures.iter().map(|failure| &failure.problem[..]).collect();
            format!("failed {}", names.join(", "))
        } else if !self.skips.is_empty() {
            let skips: Vec<_> = self.skips.iter().map(|skip| format!("{} ({})", skip.problem, skip.reason)).collect();
            format!("skipped {}", skips.join(", "))
        } else {
            String::new()
        };
        reason.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// The line described in the [module documentation](self).
    pub fn line(&self) -> String {
        format!(
            "conformance: op={} backend={} level={} status={} passed={} failed={} skipped={} reason={}",
            self.op,
            self.backend,
            self.level,
            self.status(),
            self.passed.len(),
            self.failures.len(),
            self.skips.len(),
            self.reason()
        )
    }

    /// The content of the file described in the [module documentation](self).
    pub fn to_json(&self) -> Value {
        let skips: Vec<_> = self.skips.iter().map(|s| json!({"problem": s.problem, "reason": s.reason})).collect();
        let failures: Vec<_> =
            self.failures.iter().map(|f| json!({"problem": f.problem, "message": f.message})).collect();
        json!({
            "op": self.op,
            "backend": self.backend,
            "level": self.level,
            "status": self.status().to_string(),
            "passed": self.passed.len(),
            "failed": self.failures.len(),
            "skipped": self.skips.len(),
            "reason": self.reason(),
            "skips": skips,
            "failures": failures,
        })
    }

    /// Writes `<op>.<backend>.<level>.json` into `folder`, which is made if absent; characters
    /// other than ASCII letters, digits, `-` and `_` become `_`.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&self, folder: &Path) -> io::Result<PathBuf> {
        let plain = |part: &str| part.replace(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'), "_");
        let name = format!("{}.{}.{}.json", plain(&self.op), plain(&self.backend), plain(&self.level));
        std::fs::create_dir_all(folder)?;
        let path = folder.join(name);
        std::fs::write(&path, format!("{:#}\n", self.to_json()))?;
        Ok(path)
    }
}

/// Runs every problem that is not skipped and collects what happened; a panic of the subject is a
/// failure of the problem.
///
/// The suite itself fails if it has no problems, if two have one name, or if a skip names no
/// problem or gives no reason.
pub fn evaluate<P, S>(
    op: &str,
    backend: &str,
    level: &str,
    subject: Result<S, NotBuilt>,
    problems: impl IntoIterator<Item = P>,
) -> Outcome
where
    P: Problem,
    S: Subject<P>,
{
    let mut outcome = Outcome {
        op: op.into(),
        backend: backend.into(),
        level: level.into(),
        passed: Vec::new(),
        failures: Vec::new(),
        skips: Vec::new(),
        not_built: None,
    };
    let subject = match subject {
        Ok(subject) => subject,
        Err(not_built) => {
            outcome.not_built = Some(not_built);
            return outcome;
        }
    };
    let mut names = BTreeSet::new();
    for problem in problems {
        let name = problem.name().to_string();
        if let Some(skip) = subject.skips().iter().find(|skip| skip.problem == name) {
            outcome.skips.push(*skip);
        } else {
            let solve = || problem.check(&subject.run(&problem)?, subject.tolerance(&problem));
            match catch_unwind(AssertUnwindSafe(solve)).unwrap_or_else(|panic| Err(panic_message(&*panic))) {
                Ok(()) => outcome.passed.push(name.clone()),
                Err(message) => outcome.failures.push(Failure { problem: name.clone(), message }),
            }
        }
        if !names.insert(name.clone()) {
            outcome.failures.push(Failure { problem: "suite".into(), message: format!("two problems `{name}`") });
        }
    }
    if names.is_empty() {
        outcome.failures.push(Failure { problem: "suite".into(), message: "no problems".into() });
    }
    for Skip { problem, reason } in subject.skips() {
        let fault = match (names.contains(*problem), reason.trim().is_empty()) {
            (false, _) => "names no problem of the suite",
            (true, true) => "gives no reason",
            (true, false) => continue,
        };
        outcome.failures.push(Failure { problem: "skips".into(), message: format!("`{problem}` {fault}") });
    }
    outcome
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    format!("panicked: {}", text.unwrap_or("no message"))
}

/// [`evaluate`], then prints the line and, if `CONFORMANCE_DIR` is set, writes the file.
///
/// # Panics
/// If a problem or the suite failed, with the reports of all failures; or if the file cannot be
/// written.
#[track_caller]
pub fn run<P, S>(
    op: &str,
    backend: &str,
    level: &str,
    subject: Result<S, NotBuilt>,
    problems: impl IntoIterator<Item = P>,
) where
    P: Problem,
    S: Subject<P>,
{
    let outcome = evaluate(op, backend, level, subject, problems);
    println!("{}", outcome.line());
    if let Some(folder) = std::env::var_os("CONFORMANCE_DIR") {
        let written = outcome.write(Path::new(&folder));
        written.unwrap_or_else(|error| panic!("CONFORMANCE_DIR={}: {error}", Path::new(&folder).display()));
    }
    if outcome.status() == Status::Failed {
        let reports: Vec<_> = outcome.failures.iter().map(|f| format!("{}: {}", f.problem, f.message)).collect();
        panic!("{}\n{}", outcome.line(), reports.join("\n"));
    }
}
