// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::Write;

use model_minimax::knobs::KNOBS;

/// Prints every knob; a knob that holds something impossible is an error after the list.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let mut wrong = None;
    for knob in KNOBS {
        let value = match knob.value() {
            Ok(Some(value)) => value,
            Ok(None) => "(unset)".to_owned(),
            Err(error) => {
                let found = format!("{} (not valid)", error.found);
                wrong.get_or_insert(error);
                found
            }
        };
        writeln!(out, "{} = {value}", knob.name)?;
        writeln!(out, "    {}; default: {}; type: {}", knob.doc, knob.default, knob.kind)?;
        if let Some(flag) = knob.flag {
            writeln!(out, "    overridden by {flag}")?;
        }
    }
    match wrong {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}
