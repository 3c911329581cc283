// SPDX-License-Identifier: MIT OR Apache-2.0

//! Source files: licence lines and marks of unfinished work.

use super::{Finding, Tree, numbered};

const SPDX: &str = "SPDX-License-Identifier: MIT OR Apache-2.0";

/// What must not stand in a source file, and why.
const MARKS: [(&str, &str); 5] = [
    ("#[ignore]", "a test is ignored without a reason"),
    ("TODO", "unfinished work"),
    ("FIXME", "unfinished work"),
    ("todo!(", "unfinished work"),
    ("unimplemented!(", "unfinished work"),
];

/// The licence stands in the first line, or in the second where the first names the interpreter.
pub(crate) fn headers(tree: &Tree) -> Vec<Finding> {
    tree.sources()
        .filter(|(_, text)| !text.lines().take(2).any(|line| line.contains(SPDX)))
        .map(|(path, _)| Finding::new(path, 1, format!("needs the line `{SPDX}` at the top")))
        .collect()
}

pub(crate) fn marks(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.sources() {
        for (number, line) in numbered(text) {
            for (mark, why) in MARKS {
                if line.contains(mark) {
                    findings.push(Finding::new(path, number, format!("`{mark}`: {why}")));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licence_lines() {
        let tree = Tree::of(&[
            ("good.rs", "// SPDX-License-Identifier: MIT OR Apache-2.0\n\n//! Doc.\n"),
            ("good.py", "#!/usr/bin/env python3\n# SPDX-License-Identifier: MIT OR Apache-2.0\n"),
            ("late.cpp", "\n\n// SPDX-License-Identifier: MIT OR Apache-2.0\n"),
            ("other.h", "// SPDX-License-Identifier: GPL-3.0\n"),
            ("program", "#!/bin/sh\n"),
            ("notes.md", "no source\n"),
        ]);
        let paths: Vec<_> = headers(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(paths, ["late.cpp", "other.h", "program"]);
    }

    #[test]
    fn unfinished_work() {
        let tree = Tree::of(&[
            ("a.rs", "#[ignore = \"needs a card\"]\nfn fine() {}\n"),
            ("b.rs", "#[ignore]\n// TODO later\n// FIXME\ntodo!()\nunimplemented!()\n"),
            ("c.md", "TODO\n"),
        ]);
        let found: Vec<_> = marks(&tree).into_iter().map(|finding| (finding.path, finding.line)).collect();
        assert_eq!(found, [1, 2, 3, 4, 5].map(|line| ("b.rs".to_owned(), line)));
    }
}
