// SPDX-License-Identifier: MIT OR Apache-2.0

//! Words of a shell.

/// As a shell takes it for one word.
pub(crate) fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// A quotation mark has no partner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unbalanced;

/// Words separated by blanks; one in double quotes may hold blanks.
pub(crate) fn words(text: &str) -> Result<Vec<String>, Unbalanced> {
    let mut words = Vec::new();
    let (mut word, mut quoted) = (None::<String>, false);
    for c in text.chars() {
        match c {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            c if c.is_whitespace() && !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    if quoted {
        return Err(Unbalanced);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_for_a_shell() {
        assert_eq!(quoted("models/MiniMax-M2.7"), "models/MiniMax-M2.7");
        assert_eq!(quoted("my models"), "'my models'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn words_are_separated_by_blanks_outside_of_quotes() {
        assert_eq!(
            words("  --level scalar\t--model-path \"my models/a\" x\"\" ").unwrap(),
            ["--level", "scalar", "--model-path", "my models/a", "x"]
        );
        assert_eq!(words("\"\"").unwrap(), [""]);
        assert_eq!(words("--level \"scalar"), Err(Unbalanced));
    }
}
