// SPDX-License-Identifier: MIT OR Apache-2.0

//! The command line.

use std::fmt;
use std::path::PathBuf;

use crate::counts;

pub(crate) const HELP: &str = "\
Tasks of the workspace.

usage: cargo xtask <verb> [options]

  test     run all tests, then print a table op x backend x level and the totals
  build    build the device code of the operators with the CANN that is found, and list it by SoC
  budget   what each kernel takes of the memories of a core; fails and names the knob where it does not fit
  bench    predicted times of the kernels against their bounds, and what binds: nothing runs on a card;
           with --counts: instructions of the operators' benches on the CPU, small cases, one thread (needs valgrind)
  sim      compile a kernel for the twin, run it on made-up data, and report: `cargo xtask sim --help` has the options
  doctor   say what this machine has and lacks for each device, why, and what to do
  bindgen  with --check: compare the declarations of ascend-rt with genuine AscendCL headers
  tidy     check the tree: walls between crates, docs, leaks, licence lines, manifests
  ci       fmt, clippy, doc, tidy, test; stops at the first step that fails
  help     print this text

options of every verb
  --dry-run       print what would run, run nothing

options of test, build and budget
  --op NAME       only this operator's crate
  --soc SOC       only this SoC: 910b (A2, A3), 950 (950PR, 950DT), or all (the default)

options of bench
  --op NAME       only this operator's crate
  --soc CHIP      the chip, as 910b3 (the default), 910b4 or 950pr
  --html FOLDER   the timeline of each launch goes there, as a page and for Chrome's trace viewer
  --json FILE     everything goes there

options of test
  --level LEVEL   compute with this SIMD level and list it only: scalar, avx2, avx512, avx512bf16

options of bench --counts
  --op NAME       only this operator
  --level LEVEL   SIMD level (default avx2, the best that valgrind knows)
  --json FILE     write the counts
  --baseline FILE compare with counts written before; exit code 1 if one has grown
  --threshold P   by more than P percent (default 1)

options of bindgen
  --check         required: nothing is generated, the declarations are written by hand
  --identity      also let rustc compare the types (needs libclang)

examples
  cargo xtask doctor
  cargo xtask test --op grouped-gemm --level avx2
  cargo xtask build --soc 910b
  PYPTO_MM1_N=512 cargo xtask budget --op grouped-gemm
  cargo xtask bench --soc 910b3 --op msa-sparse-decode --html timelines
  cargo xtask bench --counts --op msa-indexer --baseline counts.json
  cargo xtask sim add.cpp --soc 910b3 --arg in:f16:4096 --arg in:f16:4096 --arg out:f16:4096 --seeds 20
  ACL_INCLUDE=/usr/local/Ascend/cann/include cargo xtask bindgen --check
";

const VERBS: &[&str] = &["test", "build", "budget", "bench", "sim", "doctor", "bindgen", "tidy", "ci", "help"];
const OPTIONS: &[&str] =
    &["--dry-run", "--op", "--level", "--soc", "--html", "--json", "--check", "--identity", "--help"];
/// The SIMD levels of `cpu-tiles`, as `CPU_TILES_LEVEL` spells them.
pub(crate) const LEVELS: &[&str] = &["scalar", "avx2", "avx512", "avx512bf16"];
pub(crate) const SOCS: &[&str] = &["910b", "950"];
const SOC_CHOICES: &[&str] = &["910b", "950", "all"];

/// The architecture of a SoC, as the compiler spells it.
pub(crate) fn arch(soc: &str) -> &'static str {
    if soc == "950" { "dav-3510" } else { "dav-2201" }
}

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
    Build(Selection),
    Budget(Prediction),
    Bench(Prediction),
    /// With the words that are for the other program.
    Sim(Vec<String>),
    Counts(counts::Request),
    Doctor,
    Bindgen {
        identity: bool,
    },
    Tidy,
    Ci,
    Help,
}

/// What `test` and `build` are narrowed to; the default is everything.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Selection {
    pub(crate) op: Option<String>,
    pub(crate) level: Option<String>,
    pub(crate) soc: Option<String>,
}

impl Selection {
    /// The SoCs that are meant.
    pub(crate) fn socs(&self) -> Vec<String> {
        let one = self.soc.as_deref().filter(|&soc| soc != "all");
        one.map_or(SOCS.to_vec(), |soc| vec![soc]).into_iter().map(str::to_owned).collect()
    }
}

/// What `budget` and `bench` are narrowed to, and where their results go.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Prediction {
    pub(crate) op: Option<String>,
    /// A SoC, or the name of a chip.
    pub(crate) soc: Option<String>,
    pub(crate) html: Option<PathBuf>,
    pub(crate) json: Option<PathBuf>,
}

impl Prediction {
    /// With paths that mean the same in any folder.
    pub(crate) fn absolute(&self) -> std::io::Result<Self> {
        let absolute = |path: &Option<PathBuf>| path.as_ref().map(std::path::absolute).transpose();
        Ok(Self {
            op: self.op.clone(),
            soc: self.soc.clone(),
            html: absolute(&self.html)?,
            json: absolute(&self.json)?,
        })
    }
}

pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Request, Usage> {
    let mut args = args.into_iter().peekable();
    if args.next_if(|arg| arg == "sim").is_some() {
        // What follows is for the program that runs the kernel: its options are its own.
        let (dry_run, words): (Vec<_>, Vec<_>) = args.partition(|arg| arg == "--dry-run");
        return Ok(Request { verb: Verb::Sim(words), dry_run: !dry_run.is_empty() });
    }
    let words: Vec<String> = args.collect();
    let asks = |word: &str| words.iter().any(|given| given == word);
    if words.first().is_some_and(|word| word == "bench") && asks("--counts") {
        if asks("--help") || asks("-h") {
            return Ok(Request { verb: Verb::Help, dry_run: asks("--dry-run") });
        }
        let others: Vec<String> = words[1..].iter().filter(|word| *word != "--dry-run").cloned().collect();
        return Ok(Request { verb: Verb::Counts(counts::parse(&others)?), dry_run: asks("--dry-run") });
    }
    let mut args = words.into_iter();
    let mut verb = None;
    let mut help = false;
    let mut dry_run = false;
    let mut selection = Selection::default();
    let (mut check, mut identity) = (false, false);
    let (mut html, mut json) = (None, None);
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
            // The chips of `bench` are those of the cost model, which knows them.
            "--soc" => selection.soc = Some(value()?),
            "--html" => html = Some(PathBuf::from(value()?)),
            "--json" => json = Some(PathBuf::from(value()?)),
            "--check" => check = true,
            "--identity" => identity = true,
            _ if name.starts_with('-') => return Err(unknown("option", name, OPTIONS)),
            _ if verb.is_none() => verb = Some(known("verb", name.to_owned(), VERBS)?),
            _ if verb.as_deref() == Some("sim") => {}
            _ => return Err(Usage(format!("unexpected argument `{name}`"))),
        }
        if let Some(value) = inline {
            return Err(Usage(format!("`{name}` takes no value, found `{value}`")));
        }
    }
    let verb = verb.as_deref().filter(|_| !help).unwrap_or("help");
    if verb == "sim" {
        return Err(Usage("`sim` is the first word: what follows it is its own".to_owned()));
    }
    let misplaced = |options: &str, verbs: &str| Err(Usage(format!("{options} belong to {verbs}")));
    if verb != "help" {
        if selection.level.is_some() && verb != "test" {
            return Err(Usage("`--level` belongs to `test`".to_owned()));
        }
        if selection != Selection::default() && !matches!(verb, "test" | "build" | "budget" | "bench") {
            return misplaced("`--op` and `--soc`", "`test`, `build`, `budget` and `bench`");
        }
        if (html.is_some() || json.is_some()) && verb != "bench" {
            return misplaced("`--html` and `--json`", "`bench`");
        }
        if verb != "bench"
            && let Some(soc) = &selection.soc
        {
            known("SoC", soc.clone(), SOC_CHOICES)?;
        }
        if (check || identity) && verb != "bindgen" {
            return misplaced("`--check` and `--identity`", "`bindgen`");
        }
    }
    let verb = match verb {
        "test" => Verb::Test(selection),
        "build" => Verb::Build(selection),
        "budget" => Verb::Budget(Prediction { op: selection.op, soc: selection.soc, html, json }),
        "bench" => Verb::Bench(Prediction { op: selection.op, soc: selection.soc, html, json }),
        "doctor" => Verb::Doctor,
        "bindgen" if check => Verb::Bindgen { identity },
        "bindgen" => {
            let why = "`bindgen` needs `--check`: the declarations are written by hand, and nothing is generated";
            return Err(Usage(why.to_owned()));
        }
        "tidy" => Verb::Tidy,
        "ci" => Verb::Ci,
        _ => Verb::Help,
    };
    Ok(Request { verb, dry_run })
}

/// `value` if it is one of `choices`, otherwise the list and the nearest of them.
pub(crate) fn known(what: &str, value: String, choices: &[&str]) -> Result<String, Usage> {
    if choices.contains(&value.as_str()) { Ok(value) } else { Err(unknown(what, &value, choices)) }
}

pub(crate) fn unknown(what: &str, value: &str, choices: &[&str]) -> Usage {
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
        assert_eq!(parsed("build --soc all").unwrap().verb, {
            Verb::Build(Selection { soc: Some("all".into()), ..Selection::default() })
        });
        let asked = Prediction { soc: Some("910b3".into()), html: Some("pages".into()), ..Prediction::default() };
        assert_eq!(parsed("bench --soc 910b3 --html pages").unwrap().verb, Verb::Bench(asked));
        let asked = Prediction { op: Some("grouped-gemm".into()), soc: Some("all".into()), ..Prediction::default() };
        assert_eq!(parsed("budget --op grouped-gemm --soc all").unwrap().verb, Verb::Budget(asked));
        assert_eq!(parsed("doctor").unwrap().verb, Verb::Doctor);
        assert_eq!(parsed("bindgen --check").unwrap().verb, Verb::Bindgen { identity: false });
        assert_eq!(parsed("bindgen --identity --check").unwrap().verb, Verb::Bindgen { identity: true });
        assert_eq!(parsed("ci").unwrap(), Request { verb: Verb::Ci, dry_run: false });
        assert_eq!(parsed("--dry-run tidy").unwrap(), Request { verb: Verb::Tidy, dry_run: true });
    }

    #[test]
    fn the_words_behind_sim_are_not_ours() {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let line = "sim k.cpp --soc 910b3 --blocks=8 --level --help -Iinc";
        assert_eq!(parsed(line).unwrap(), Request { verb: Verb::Sim(words(line)[1..].to_vec()), dry_run: false });
        let request = parsed("sim --dry-run k.cpp").unwrap();
        assert_eq!(request, Request { verb: Verb::Sim(words("k.cpp")), dry_run: true });
        assert_eq!(parsed("sim").unwrap().verb, Verb::Sim(Vec::new()));
        assert_eq!(message("--dry-run sim k.cpp"), "`sim` is the first word: what follows it is its own");
    }

    #[test]
    fn counting_has_options_of_its_own() {
        let Request { verb: Verb::Counts(counts), dry_run } =
            parsed("bench --counts --dry-run --op msa-indexer").unwrap()
        else {
            panic!("counts")
        };
        assert!(dry_run && counts.op.as_deref() == Some("msa-indexer"));
        assert_eq!(parsed("bench --counts --help").unwrap().verb, Verb::Help);
    }

    #[test]
    fn one_soc_or_all() {
        let socs = |line: &str| match parsed(line).unwrap().verb {
            Verb::Test(selection) | Verb::Build(selection) => selection.socs(),
            other => panic!("{other:?}"),
        };
        assert_eq!(socs("test"), SOCS);
        assert_eq!(socs("build --soc all"), SOCS);
        assert_eq!(socs("build --soc 950"), ["950"]);
        assert_eq!(SOCS.iter().map(|soc| arch(soc)).collect::<Vec<_>>(), ["dav-2201", "dav-3510"]);
    }

    #[test]
    fn help_wins_in_every_place() {
        for line in ["", "help", "--help", "-h", "test --help", "test --op x -h", "bindgen -h", "tidy --check -h"] {
            assert_eq!(parsed(line).unwrap().verb, Verb::Help, "{line:?}");
        }
    }

    #[test]
    fn help_names_every_choice() {
        for word in [VERBS, OPTIONS, LEVELS, SOC_CHOICES].concat() {
            assert!(HELP.contains(word) || word == "--help", "{word} is not in the help text");
        }
    }

    #[test]
    fn a_wrong_word_gets_the_list_and_the_nearest() {
        assert_eq!(
            message("test --level avx-512"),
            "unknown level `avx-512`; there are: scalar, avx2, avx512, avx512bf16; the nearest is `avx512`"
        );
        assert_eq!(message("test --soc 910"), "unknown SoC `910`; there are: 910b, 950, all; the nearest is `910b`");
        assert!(message("budget --soc 910b3").starts_with("unknown SoC `910b3`"));
        assert!(message("tset").ends_with("the nearest is `test`"));
        assert!(message("test --levle avx2").ends_with("the nearest is `--level`"));
    }

    #[test]
    fn misplaced_and_missing_values() {
        assert_eq!(message("test --op"), "`--op` needs a value");
        assert_eq!(message("tidy --dry-run=yes"), "`--dry-run` takes no value, found `yes`");
        assert_eq!(
            message("tidy --op grouped-gemm"),
            "`--op` and `--soc` belong to `test`, `build`, `budget` and `bench`"
        );
        assert_eq!(message("budget --html pages"), "`--html` and `--json` belong to `bench`");
        assert_eq!(message("build --level avx2"), "`--level` belongs to `test`");
        assert_eq!(message("tidy --check"), "`--check` and `--identity` belong to `bindgen`");
        assert!(message("bindgen --identity").starts_with("`bindgen` needs `--check`"));
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
