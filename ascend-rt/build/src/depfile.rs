// SPDX-License-Identifier: MIT OR Apache-2.0

//! The files that a compiler read, as it lists them for `make` (`-MD -MF`).

use std::path::PathBuf;

/// The prerequisites of all rules of a dependency file, each once, in their order.
#[must_use]
pub fn parse(text: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    for rule in text.replace("\\\r\n", " ").replace("\\\n", " ").lines() {
        // The first colon followed by a blank ends the targets; a drive letter's is not.
        let Some((_, prerequisites)) = rule.split_once(": ") else { continue };
        for word in words(prerequisites) {
            let path = PathBuf::from(word);
            if !files.contains(&path) {
                files.push(path);
            }
        }
    }
    files
}

/// Splits at blanks, and undoes what is written for `make`: `\ `, `\#`, `$$`. Any other backslash stands for itself.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\\', Some(&next @ (' ' | '#'))) => {
                word.push(next);
                chars.next();
            }
            ('$', Some('$')) => {
                word.push('$');
                chars.next();
            }
            (c, _) if c.is_whitespace() => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            _ => word.push(c),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_rule_over_several_lines() {
        let text = "out/k.dev.o: kernel/k.cpp \\\n  kernel/tiling.h \\\n  /opt/my\\ cann/include/kernel_operator.h\n";
        assert_eq!(
            parse(text),
            ["kernel/k.cpp", "kernel/tiling.h", "/opt/my cann/include/kernel_operator.h"].map(PathBuf::from)
        );
    }

    #[test]
    fn empty_rules_repeats_and_odd_names() {
        let text = "k.o: a.cpp a.h\r\n\r\na.h:\n\nl.o: a.h c\\#.h d$$.h e\\f.h C:\\g.h\n";
        assert_eq!(parse(text), ["a.cpp", "a.h", "c#.h", "d$.h", "e\\f.h", "C:\\g.h"].map(PathBuf::from));
    }

    #[test]
    fn nothing_in_it() {
        for text in ["", "\n", "k.o:", "no rule", "\\"] {
            assert_eq!(parse(text), [""; 0].map(PathBuf::from), "{text:?}");
        }
    }
}
