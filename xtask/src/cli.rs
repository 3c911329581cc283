// SPDX-License-Identifier: MIT OR Apache-2.0

//! The command line.

use std::fmt;

pub(crate) const HELP: &str = "\
Tasks of the workspace.

usage: cargo xtask <verb> [options]

  test   run all tests, then print a table op x backend x level and the totals
  tidy   check the tree: walls between crates, docs, leaks, licence lines, manifests
  ci     fmt, clippy, doc, tidy, test; stops at the first step that fails
  help   print this text

options of every verb
  --dry-run       print what would run, run nothing

options of test
  --op NAME       only this operator's crate
  --level LEVEL   compute with this SIMD level and list it only: scalar, avx2, avx512, avx512bf16
  --soc SOC       list the device rows of this SoC only: 910b, 950

examples
  cargo xtask test
  cargo xtask test --op grouped-gemm --level avx2
  cargo xtask test --soc 910b --dry-run
  cargo xtask ci
";

const VERBS: &[&str] = &["test", "tidy", "ci", "help"];
const OPTIONS: &[&str] = &["--dry-run", "--op", "--level", "--soc", "--help"];
/// The SIMD levels of `cpu-tiles`, as `CPU_TILES_LEVEL` spells them.
pub(crate) const LEVELS: &[&str] = &["scalar", "avx2", "avx512", "avx512bf16"];
pub(crate) const SOCS: &[&str] = &["910b", "950"];

/// A wrong command line: exit code 2.
#[derive(Debug, PartialEq)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

#[derive(Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) verb: Verb,
    pub(crate) dry_run: bool,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Verb {
    Test(Selection),
    Tidy,
    Ci,
    Help,
}

/// What `test` is narrowed to; the default is everything.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Selection {
    pub(crate) op: Option<String>,
    pub(crate) level: Option<String>,
    pub(crate) soc: Option<String>,
}

pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Request, Usage> {
    let mut args = args.into_iter();
    let mut verb = None;
    let mut help = false;
    let mut dry_run = false;
    let mut selection = Selection::default();
    while let Some(arg) = args.next() {
        let (name, mut inline) = match arg.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
            _ => (arg.as_str(), None),
        };
        let mut value =
            || inline.take().or_else(|| args.next()).ok_or_else(|| Usage(format!("`{name}` needs a value")));
        match name {
            "--dry-run" => dry_run = true,
            "--help" | "-h" => help = true,
            "--op" => selection.op = Some(value()?),
            "--level" => selection.level = Some(known("level", value()?, LEVELS)?),
            "--soc" => selection.soc = Some(known("SoC", value()?, SOCS)?),
            _ if name.starts_with('-') => return Err(unknown("option", name, OPTIONS)),
            _ if verb.is_none() => verb = Some(known("verb", name.to_owned(), VERBS)?),
            _ => return Err(Usage(format!("unexpected argument `{name}`"))),
        }
        if let Some(value) = inline {
            return Err(Usage(format!("`{name}` takes no value, found `{value}`")));
        }
    }
    let verb = match verb.as_deref() {
        _ if help => Verb::Help,
        None | Some("help") => Verb::Help,
        Some("test") => Verb::Test(std::mem::take(&mut selection)),
        Some("tidy") => Verb::Tidy,
        _ => Verb::Ci,
    };
    if !help && selection != Selection::default() {
        return Err(Usage("`--op`, `--level` and `--soc` belong to `test`".to_owned()));
    }
    Ok(Request { verb, dry_run })
}

/// `value` if it is one of `choices`, otherwise the list and the nearest of them.
pub(crate) fn known(what: &str, value: String, choices: &[&str]) -> Result<String, Usage> {
    if choices.contains(&value.as_str()) { Ok(value) } else { Err(unknown(what, &value, choices)) }
}

fn unknown(what: &str, value: &str, choices: &[&str]) -> Usage {
    let nearest = choices.iter().min_by_key(|choice| edit_distance(value, choice));
    let hint = nearest.map_or(String::new(), |name| format!("; the nearest is `{name}`"));
    Usage(format!("unknown {what} `{value}`; there are: {}{hint}", choices.join(", ")))
}

/// Levenshtein distance: insertions, deletions and substitutions that turn `a` into `b`.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, Usage> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    fn message(line: &str) -> String {
        parsed(line).unwrap_err().0
    }

    #[test]
    fn verbs_and_options() {
        let test = parsed("test --op grouped-gemm --level=avx2 --soc 910b --dry-run").unwrap();
        assert_eq!(
            test,
            Request {
                verb: Verb::Test(Selection {
                    op: Some("grouped-gemm".into()),
                    level: Some("avx2".into()),
                    soc: Some("910b".into()),
                }),
                dry_run: true,
            }
        );
        assert_eq!(parsed("ci").unwrap(), Request { verb: Verb::Ci, dry_run: false });
        assert_eq!(parsed("--dry-run tidy").unwrap(), Request { verb: Verb::Tidy, dry_run: true });
    }

    #[test]
    fn help_wins_in_every_place() {
        for line in ["", "help", "--help", "-h", "test --help", "test --op x -h"] {
            assert_eq!(parsed(line).unwrap().verb, Verb::Help, "{line:?}");
        }
    }

    #[test]
    fn help_names_every_choice() {
        for word in [VERBS, OPTIONS, LEVELS, SOCS].concat() {
            assert!(HELP.contains(word) || word == "--help", "{word} is not in the help text");
        }
    }

    #[test]
    fn a_wrong_word_gets_the_list_and_the_nearest() {
        assert_eq!(
            message("test --level avx-512"),
            "unknown level `avx-512`; there are: scalar, avx2, avx512, avx512bf16; the nearest is `avx512`"
        );
        assert_eq!(message("test --soc 910"), "unknown SoC `910`; there are: 910b, 950; the nearest is `910b`");
        assert!(message("tset").ends_with("the nearest is `test`"));
        assert!(message("test --levle avx2").ends_with("the nearest is `--level`"));
    }

    #[test]
    fn misplaced_and_missing_values() {
        assert_eq!(message("test --op"), "`--op` needs a value");
        assert_eq!(message("tidy --dry-run=yes"), "`--dry-run` takes no value, found `yes`");
        assert_eq!(message("tidy --op grouped-gemm"), "`--op`, `--level` and `--soc` belong to `test`");
        assert_eq!(message("test tidy"), "unexpected argument `tidy`");
    }

    #[test]
    fn distance() {
        for (a, b, expected) in [("", "abc", 3), ("kitten", "sitting", 3), ("same", "same", 0), ("ab", "ba", 2)] {
            assert_eq!(edit_distance(a, b), expected, "{a} {b}");
            assert_eq!(edit_distance(b, a), expected, "{b} {a}");
        }
    }
}
