// SPDX-License-Identifier: MIT OR Apache-2.0

/// Whether `pattern` matches all of `path`: `*` stands for any characters, `/` included, and `?` for one.
pub(super) fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, path): (Vec<char>, Vec<char>) = (pattern.chars().collect(), path.chars().collect());
    let (mut p, mut i) = (0, 0);
    // Where to go on if the rest does not match: after the last star, one character further in the path.
    let mut retry = None;
    while i < path.len() {
        match pattern.get(p) {
            Some('*') => {
                retry = Some((p + 1, i + 1));
                p += 1;
            }
            Some(&c) if c == '?' || c == path[i] => (p, i) = (p + 1, i + 1),
            _ => match retry {
                Some((after_star, from)) => {
                    (p, i) = (after_star, from);
                    retry = Some((after_star, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_match_anything_and_question_marks_one_character() {
        for (pattern, path) in [
            ("*", ""),
            ("*.json", "config.json"),
            ("*.json", "a/b/config.json"),
            ("model-0000?-of-*", "model-00003-of-00130.safetensors"),
            ("a*b*c", "abbbc"),
            ("a*b*c", "a1b2b3c"),
            ("docs/*", "docs/x/y"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in
            [("", "a"), ("*.json", "config.jsonl"), ("?", ""), ("a*b*c", "a1b2"), ("config", "config.json"), ("A", "a")]
        {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
    }
}
