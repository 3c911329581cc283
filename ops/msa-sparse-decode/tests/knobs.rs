// SPDX-License-Identifier: MIT OR Apache-2.0

use msa_sparse_decode::DecodeDims;
use msa_sparse_decode::knobs::{self, ALL, NTILE};
use std::process::Command;

const CHILD: &str = "MSA_SPARSE_DECODE_TEST_PRINTS_KNOBS";

#[test]
fn texts_and_values() {
    assert_eq!(NTILE.parse(128, " 512 ").unwrap(), 512);
    assert_eq!(NTILE.parse(20, "60").unwrap(), 60);
    for text in ["0", "64", "500", "-128", "many", "1e3"] {
        let expected = format!(
            "environment variable MSA_NTILE is `{text}`, expected a positive multiple of 128, the keys of a block"
        );
        assert_eq!(NTILE.parse(128, text).unwrap_err().to_string(), expected);
    }
}

#[test]
fn the_listing_is_complete_and_its_default_is_that_of_the_dims() {
    assert_eq!(ALL.map(|knob| knob.name), ["MSA_NTILE"]);
    assert_eq!(DecodeDims::M3.chunk_keys, NTILE.default);
    assert_eq!(NTILE.parse(DecodeDims::M3.block, &NTILE.default.to_string()).unwrap(), NTILE.default);
    assert!(!NTILE.doc.is_empty());
}

/// Each environment in a process of its own: variables are shared by all threads of one.
#[test]
fn the_environment_wins_over_the_typed_value_when_it_is_read() {
    if std::env::var_os(CHILD).is_some() {
        let text = match knobs::with_knobs(DecodeDims { chunk_keys: 256, ..DecodeDims::M3 }) {
            Ok(dims) => dims.chunk_keys.to_string(),
            Err(error) => error.to_string(),
        };
        println!("knobs: {text}");
        return;
    }
    for (value, expected) in [
        (None, "256"),
        (Some(""), "256"),
        (Some("1024"), "1024"),
        (
            Some("100"),
            "environment variable MSA_NTILE is `100`, expected a positive multiple of 128, the keys of a block",
        ),
    ] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "knobs::the_environment_wins_over_the_typed_value_when_it_is_read", "--nocapture"]);
        child.env(CHILD, "1");
        match value {
            Some(value) => child.env(NTILE.name, value),
            None => child.env_remove(NTILE.name),
        };
        let output = child.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().find_map(|line| line.split_once("knobs: ")).map(|(_, line)| line);
        assert_eq!(line, Some(expected), "{value:?}: {text}");
    }
}
