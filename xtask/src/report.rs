// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the tests leave behind: totals, and one [`Row`] per operator, backend and level.

use std::fmt;
use std::ops::AddAssign;
use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

use crate::cli::LEVELS;

/// Numbers of tests.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct Totals {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Totals {
    /// Reads the line with which each test program ends; `None` for any other line.
    pub(crate) fn of_result_line(line: &str) -> Option<Self> {
        let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let count = |what: &str| counts.split("; ").find_map(|part| part.strip_suffix(what)?.trim_end().parse().ok());
        Some(Self { passed: count("passed")?, failed: count("failed")?, skipped: count("ignored")? })
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// The conformance suite of one operator on one backend at one level.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) op: String,
    pub(crate) backend: String,
    /// `-` where the backend has no levels.
    pub(crate) level: String,
    pub(crate) status: Status,
    pub(crate) problems: Totals,
    /// Why it was not built, what failed, what was skipped.
    pub(crate) reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Status {
    Ok,
    Failed,
    NotBuilt,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::NotBuilt => "not built",
        })
    }
}

impl Row {
    /// A suite of which nothing ran.
    pub(crate) fn without_problems(op: &str, backend: &str, status: Status, reason: &str) -> Self {
        Self {
            op: op.to_owned(),
            backend: backend.to_owned(),
            level: "-".to_owned(),
            status,
            problems: Totals::default(),
            reason: reason.to_owned(),
        }
    }

    /// Reads a file of the conformance suite (`op_testkit::conformance`).
    fn from_json(value: &Value) -> anyhow::Result<Self> {
        let text = |key: &str| value[key].as_str().map(str::to_owned).with_context(|| format!("no text `{key}`"));
        let count = |key: &str| value[key].as_u64().with_context(|| format!("no count `{key}`"));
        Ok(Self {
            op: text("op")?,
            backend: text("backend")?,
            level: text("level")?,
            status: match text("status")?.as_str() {
                "ok" => Status::Ok,
                "failed" => Status::Failed,
                "not-built" => Status::NotBuilt,
                other => anyhow::bail!("unknown status `{other}`"),
            },
            problems: Totals { passed: count("passed")?, failed: count("failed")?, skipped: count("skipped")? },
            reason: text("reason")?,
        })
    }
}

/// The rows that the conformance suites wrote into `folder`.
pub(crate) fn read(folder: &Path) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        let row = || Row::from_json(&serde_json::from_slice(&std::fs::read(&path)?)?);
        rows.push(row().with_context(|| format!("{} is no conformance report", path.display()))?);
    }
    Ok(rows)
}

/// Sorts the rows by operator, backend and rising level, and aligns them under a heading.
pub(crate) fn table(mut rows: Vec<Row>) -> String {
    let rank = |level: &str| LEVELS.iter().position(|known| *known == level).unwrap_or(LEVELS.len());
    rows.sort_by(|a, b| {
        (&a.op, &a.backend, rank(&a.level), &a.level).cmp(&(&b.op, &b.backend, rank(&b.level), &b.level))
    });
    let heading = ["op", "backend", "level", "status", "passed", "failed", "skipped", "reason"].map(str::to_owned);
    let lines: Vec<[String; 8]> = std::iter::once(heading)
        .chain(rows.into_iter().map(|row| {
            let [passed, failed, skipped] = match row.status {
                Status::NotBuilt => ["-", "-", "-"].map(str::to_owned),
                _ => [row.problems.passed, row.problems.failed, row.problems.skipped].map(|count| count.to_string()),
            };
            [row.op, row.backend, row.level, row.status.to_string(), passed, failed, skipped, row.reason]
        }))
        .collect();
    let mut text = String::new();
    for line in &lines {
        for (column, cell) in line.iter().enumerate() {
            let width = lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
            text += &if matches!(column, 4..=6) { format!("{cell:>width$}  ") } else { format!("{cell:<width$}  ") };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn result_lines_are_counted_and_others_are_not() {
        let totals = Totals::of_result_line(
            "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.01s\n",
        );
        assert_eq!(totals, Some(Totals { passed: 12, failed: 3, skipped: 1 }));
        for line in
            ["test level::names ... ok", "running 12 tests", "test result: ok", "note: test result: ok. 1 passed;"]
        {
            assert_eq!(Totals::of_result_line(line), None, "{line}");
        }
    }

    #[test]
    fn totals_are_one_plain_line() {
        let mut totals = Totals { passed: 1, failed: 0, skipped: 2 };
        totals += Totals { passed: 10, failed: 3, skipped: 0 };
        assert_eq!(totals.to_string(), "11 passed, 3 failed, 2 skipped");
    }

    fn report(level: &str, status: &str) -> Value {
        json!({"op": "gemm", "backend": "cpu", "level": level, "status": status, "passed": 9, "failed": 1, "skipped": 0,
               "reason": "failed ragged", "skips": [], "failures": []})
    }

    #[test]
    fn rows_are_read_and_faulty_ones_refused() {
        let row = Row::from_json(&report("avx2", "failed")).unwrap();
        assert_eq!((row.level.as_str(), row.status, row.problems.passed), ("avx2", Status::Failed, 9));
        let mut odd = report("avx2", "maybe");
        assert_eq!(Row::from_json(&odd).unwrap_err().to_string(), "unknown status `maybe`");
        odd["level"] = json!(2);
        assert_eq!(Row::from_json(&odd).unwrap_err().to_string(), "no text `level`");
        odd = report("avx2", "ok");
        odd["passed"] = json!("9");
        assert_eq!(Row::from_json(&odd).unwrap_err().to_string(), "no count `passed`");
    }

    #[test]
    fn the_table_is_sorted_and_aligned() {
        let rows = vec![
            Row::without_problems("gemm", "sim:950", Status::NotBuilt, "no kernels"),
            Row::from_json(&report("avx512", "failed")).unwrap(),
            Row { status: Status::Ok, reason: String::new(), ..Row::from_json(&report("scalar", "ok")).unwrap() },
        ];
        assert_eq!(
            table(rows),
            "\
op    backend  level   status     passed  failed  skipped  reason
gemm  cpu      scalar  ok              9       1        0
gemm  cpu      avx512  failed          9       1        0  failed ragged
gemm  sim:950  -       not built       -       -        -  no kernels
"
        );
    }
}
