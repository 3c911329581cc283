// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tables of `docs/compatibility.md`, walked.

use clap::{CommandFactory, Parser};
use model_minimax::knobs::KNOBS;

use super::Cli;

const TABLES: &str = include_str!("../../docs/compatibility.md");

/// Options of the published runner with a value that it takes, empty for switches.
const OPTIONS: [(&str, &[(&str, &str)]); 2] = [
    (
        "ask",
        &[
            ("--variant", "m27"),
            ("--model-path", "x"),
            ("--device", "0"),
            ("--prompt", "x"),
            ("--max-new-tokens", "8"),
            ("--max-layers", "4"),
            ("--streaming", ""),
            ("--no-streaming", ""),
            ("--use_pypto", ""),
        ],
    ),
    (
        "bench",
        &[
            ("--variant", "m3"),
            ("--model-path", "x"),
            ("--device", "7"),
            ("--prompt", "x"),
            ("--max-new-tokens", "8"),
            ("--max-layers", "4"),
            ("--warmup", "2"),
            ("--iters", "5"),
            ("--streaming", ""),
            ("--no-streaming", ""),
            ("--use_pypto", ""),
            ("--graph", ""),
            ("--graph-window", "32"),
            ("--report-file", "x"),
            ("--moe-impl", "pypto"),
            ("--seq", "64"),
            ("--route", "natural"),
            ("--active", "160"),
            ("--prompt-text", "x"),
        ],
    ),
];

/// Variables of the published driver and kernels.
const VARIABLES: [&str; 22] = [
    "VARIANT",
    "MODEL_PATH",
    "DEVICE",
    "LAYERS",
    "NEW_TOKENS",
    "WARMUP",
    "ITERS",
    "WINDOW",
    "PROMPT",
    "ARMS",
    "REPORT_DIR",
    "TILE_FWK_DEVICE_ID",
    "PYPTO_SWIGLU_ALPHA",
    "PYPTO_SWIGLU_LIMIT",
    "MSA_NTILE",
    "MSA_NQ_TILE",
    "MSA_MAX_N",
    "MSA_DTYPE",
    "PYPTO_VEC_TILE",
    "TE_PARALLEL_COMPILER",
    "PYTORCH_NPU_ALLOC_CONF",
    "PYTHONPATH",
];

/// Options of the published utilities.
const UTILITIES: [(&str, &[&str]); 2] = [
    (
        "download_hf_model.py",
        &["--model-id", "--output-dir", "--revision", "--token", "--allow-pattern", "--ignore-pattern"],
    ),
    (
        "runtime_patch.py",
        &[
            "--model-family",
            "--auto-map",
            "--copy",
            "--family-name",
            "--cache-needle",
            "--model-path",
            "--output-dir",
            "--source-root",
            "--force",
        ],
    ),
];

struct Row<'a> {
    /// Heading above the table.
    section: &'a str,
    published: &'a str,
    ours: &'a str,
    here: &'a str,
}

fn rows() -> Vec<Row<'static>> {
    let mut section = "";
    let mut rows = Vec::new();
    for line in TABLES.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading;
        }
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        if let ([published, _, ours, here], true) = (cells.as_slice(), line.starts_with("| `")) {
            rows.push(Row { section, published, ours, here });
        }
    }
    rows
}

fn find<'a>(rows: &'a [Row<'static>], section: &str, published: &str) -> &'a Row<'static> {
    let row = rows.iter().find(|row| row.section.contains(section) && row.published == published);
    row.unwrap_or_else(|| panic!("{published} of {section} has no row in docs/compatibility.md"))
}

#[test]
fn every_published_option_has_a_row_and_is_accepted() {
    let rows = rows();
    for (command, options) in OPTIONS {
        for (option, value) in options {
            let row = find(&rows, &format!("model-minimax {command}"), option);
            assert!(row.here.starts_with("accepted"), "{option}: {}", row.here);
            let mut words = vec!["model-minimax", command, option];
            words.extend(Some(*value).filter(|value| !value.is_empty()));
            let parsed = Cli::try_parse_from(&words);
            assert!(parsed.is_ok(), "{words:?}: {}", parsed.unwrap_err());
        }
    }
    for (program, options) in UTILITIES {
        for option in options {
            find(&rows, program, option);
        }
    }
}

#[test]
fn every_published_variable_has_a_row_that_is_true() {
    let rows = rows();
    for variable in VARIABLES {
        let row = find(&rows, "ariables", variable);
        let knob = KNOBS.iter().find(|knob| knob.name == variable);
        if row.here.starts_with("not read") {
            assert!(knob.is_none(), "{variable} is a knob");
            continue;
        }
        assert!(row.here.starts_with("variable"), "{variable}: {}", row.here);
        let knob = knob.unwrap_or_else(|| panic!("{variable} is no knob"));
        // The option that the table names is the one whose default the variable is.
        let option = row.ours.split_once(' ').map(|(_, option)| option);
        assert_eq!(option, knob.flag, "{variable}");
    }
}

#[test]
fn every_option_that_a_row_names_as_ours_exists() {
    let program = Cli::command();
    let rows = rows();
    assert!(rows.len() > 60, "{} rows", rows.len());
    for row in rows {
        let mut words = row.ours.split_whitespace();
        let Some(name) = words.next() else { continue };
        // A build may leave commands out.
        let Some(command) = program.find_subcommand(name) else { continue };
        if let Some(option) = words.next() {
            let option = option.trim_start_matches("--");
            let known = command.get_arguments().any(|argument| {
                argument.get_long() == Some(option)
                    || argument.get_all_aliases().is_some_and(|all| all.contains(&option))
            });
            assert!(known, "{name} has no --{option}");
        }
        if row.here.starts_with("refused") {
            let words = ["model-minimax", name, row.published];
            let error = Cli::try_parse_from(words).expect_err(row.published);
            assert_eq!(error.kind(), clap::error::ErrorKind::UnknownArgument, "{words:?}");
        }
    }
}
