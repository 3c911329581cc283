// SPDX-License-Identifier: MIT OR Apache-2.0

use grouped_gemm::Activation;
use grouped_gemm::knobs::{self, ALL, SWIGLU_ALPHA, SWIGLU_LIMIT, TILES};
use std::process::Command;

const CHILD: &str = "GROUPED_GEMM_TEST_PRINTS_KNOBS";
const OWN: Activation = Activation::SwigluOai { alpha: 1.5, limit: 3.0 };

#[test]
fn texts_and_values() {
    assert_eq!(SWIGLU_ALPHA.parse(" 1.702 ").unwrap(), 1.702);
    assert_eq!(SWIGLU_ALPHA.parse("-2").unwrap(), -2.0);
    assert_eq!(SWIGLU_LIMIT.parse("7").unwrap(), 7.0);
    for (knob, text, message) in [
        (&SWIGLU_ALPHA, "fast", "environment variable PYPTO_SWIGLU_ALPHA is `fast`, expected a finite number"),
        (&SWIGLU_ALPHA, "inf", "environment variable PYPTO_SWIGLU_ALPHA is `inf`, expected a finite number"),
        (&SWIGLU_LIMIT, "0", "environment variable PYPTO_SWIGLU_LIMIT is `0`, expected a positive finite number"),
        (&SWIGLU_LIMIT, "NaN", "environment variable PYPTO_SWIGLU_LIMIT is `NaN`, expected a positive finite number"),
        (&SWIGLU_LIMIT, "7,0", "environment variable PYPTO_SWIGLU_LIMIT is `7,0`, expected a positive finite number"),
    ] {
        assert_eq!(knob.parse(text).unwrap_err().to_string(), message);
    }
}

#[test]
fn the_listing_is_complete_and_its_defaults_are_possible() {
    assert_eq!(ALL.map(|knob| knob.name), ["PYPTO_SWIGLU_ALPHA", "PYPTO_SWIGLU_LIMIT"]);
    for knob in ALL {
        assert_eq!(knob.parse(&knob.default.to_string()).unwrap(), knob.default);
        assert!(!knob.doc.is_empty());
    }
    let defaults = Activation::SwigluOai { alpha: SWIGLU_ALPHA.default, limit: SWIGLU_LIMIT.default };
    assert_eq!(defaults, Activation::SWIGLU_OAI);
}

#[test]
fn sizes_of_tiles() {
    for knob in TILES {
        assert_eq!(knob.parse(&knob.default.to_string()).unwrap(), knob.default);
        assert!(!knob.doc.is_empty());
        let message = format!("environment variable {} is `wide`, expected a whole number", knob.name);
        assert_eq!(knob.parse("wide").unwrap_err().to_string(), message);
        for text in [0, knob.of + 1] {
            let message = format!("{} is {text}, expected a positive multiple of {}", knob.name, knob.of);
            assert_eq!(knob.parse(&text.to_string()).unwrap_err().to_string(), message);
        }
    }
    assert_eq!(TILES[4].name, "PYPTO_VEC_TILE");
    assert_eq!(TILES[4].parse(" 256 ").unwrap(), 256);
}

/// Each environment in a process of its own: variables are shared by all threads of one.
#[test]
fn the_environment_wins_over_the_typed_value_when_it_is_read() {
    if std::env::var_os(CHILD).is_some() {
        let activations = [Activation::Silu, OWN].map(|activation| match knobs::with_knobs(activation) {
            Ok(activation) => format!("{activation:?}"),
            Err(error) => error.to_string(),
        });
        println!("knobs: {}", activations.join("; "));
        return;
    }
    for (alpha, limit, expected) in [
        (None, None, "Silu; SwigluOai { alpha: 1.5, limit: 3.0 }"),
        (Some("2.25"), None, "Silu; SwigluOai { alpha: 2.25, limit: 3.0 }"),
        (Some(""), Some("6.5"), "Silu; SwigluOai { alpha: 1.5, limit: 6.5 }"),
        (None, Some("-1"), "Silu; environment variable PYPTO_SWIGLU_LIMIT is `-1`, expected a positive finite number"),
    ] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "knobs::the_environment_wins_over_the_typed_value_when_it_is_read", "--nocapture"]);
        child.env(CHILD, "1");
        for (knob, value) in [(&SWIGLU_ALPHA, alpha), (&SWIGLU_LIMIT, limit)] {
            match value {
                Some(value) => child.env(knob.name, value),
                None => child.env_remove(knob.name),
            };
        }
        let output = child.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().find_map(|line| line.split_once("knobs: ")).map(|(_, line)| line);
        assert_eq!(line, Some(expected), "alpha {alpha:?}, limit {limit:?}: {text}");
    }
}
