// SPDX-License-Identifier: MIT OR Apache-2.0

//! What costs a kernel time on the scalar unit and breaks no rule: a launch cannot show it, the text can.
//!
//! The text is read as it is, without includes and macros: a finding is a hint, and none is no proof.

use core::fmt;
use std::collections::HashMap;

/// What a line of a kernel's source does that is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Slow {
    /// A division or remainder by a variable in the innermost of nested loops: tens of cycles each.
    Division,
    /// A `TPipe` is a member of a class: the compiler keeps all of the object in memory.
    PipeInObject,
    /// A large struct is copied where a reference or single fields would do.
    LargeCopy,
}

/// A place in a source that is slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lint {
    /// Counted from 1.
    pub line: u32,
    /// What it is.
    pub slow: Slow,
    /// The name that it is about.
    pub name: String,
}

impl fmt::Display for Lint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, name) = (self.line, &self.name);
        match self.slow {
            Slow::Division => write!(f, "line {line}: division by `{name}` in an inner loop"),
            Slow::PipeInObject => {
                write!(
                    f,
                    "line {line}: the TPipe `{name}` is a member of a class: create it in the entry, pass a pointer"
                )
            }
            Slow::LargeCopy => write!(f, "line {line}: `{name}` has more than {LARGE} bytes and is copied"),
        }
    }
}

/// Bytes from which on a copy is called large.
const LARGE: usize = 256;

struct Token<'a> {
    text: &'a str,
    line: u32,
}

/// Words, numbers and signs, without comments, literals of text, and lines of the preprocessor.
fn tokens(source: &str) -> Vec<Token<'_>> {
    let bytes = source.as_bytes();
    let (mut all, mut at, mut line, mut fresh) = (Vec::new(), 0, 1, true);
    while at < bytes.len() {
        let (start, byte) = (at, bytes[at]);
        let rest = &bytes[at..];
        let end = |of: &[u8], from: usize| rest[from..].windows(of.len()).position(|w| w == of).map(|i| from + i);
        if byte == b'\n' {
            fresh = true;
            at += 1;
        } else if byte.is_ascii_whitespace() {
            at += 1;
        } else if byte == b'#' && fresh {
            // With the lines that it goes on in.
            while at < bytes.len() && (bytes[at] != b'\n' || bytes[at - 1] == b'\\') {
                at += 1;
            }
        } else if rest.starts_with(b"//") {
            at += end(b"\n", 0).unwrap_or(rest.len());
        } else if rest.starts_with(b"/*") {
            at += end(b"*/", 2).map_or(rest.len(), |i| i + 2);
        } else if byte == b'"' || byte == b'\'' {
            at += 1;
            while at < bytes.len() && bytes[at] != byte {
                at += if bytes[at] == b'\\' { 2 } else { 1 };
            }
            at = (at + 1).min(bytes.len());
        } else {
            fresh = false;
            let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
            let length = rest.iter().take_while(|&&b| word(b)).count();
            at += length.max(1);
            // A sign may be of several bytes.
            while !source.is_char_boundary(at) {
                at += 1;
            }
            all.push(Token { text: &source[start..at], line });
        }
        line += source.as_bytes()[start..at].iter().filter(|&&b| b == b'\n').count() as u32;
    }
    all
}

#[derive(Clone, Copy, PartialEq)]
enum Brace {
    Class,
    Loop,
    Other,
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// Literals, and names as constants have them (`kName`, `NAME`).
fn is_constant(text: &str) -> bool {
    let mut letters = text.chars();
    match letters.next() {
        Some(c) if c.is_ascii_digit() => true,
        Some('k') => letters.next().is_some_and(|c| c.is_ascii_uppercase()),
        Some(_) => !text.chars().any(|c| c.is_ascii_lowercase()) && is_word(text) || text == "sizeof",
        None => false,
    }
}

fn size_of(word: &str) -> Option<usize> {
    Some(match word {
        "bool" | "int8_t" | "uint8_t" | "char" => 1,
        "int16_t" | "uint16_t" | "half" | "bfloat16_t" => 2,
        "int32_t" | "uint32_t" | "int" | "unsigned" | "float" => 4,
        "int64_t" | "uint64_t" | "double" | "size_t" => 8,
        _ => return None,
    })
}

/// The structs of the text and about how many bytes they have.
fn structs<'a>(all: &[Token<'a>]) -> HashMap<&'a str, usize> {
    let mut sizes: HashMap<&str, usize> = HashMap::new();
    for (i, token) in all.iter().enumerate() {
        let [Some(name), Some(open)] = [all.get(i + 1), all.get(i + 2)] else { break };
        if token.text != "struct" || open.text != "{" {
            continue;
        }
        let (mut bytes, mut each, mut depth) = (0, 0, 1);
        let mut rest = all[i + 3..].iter().peekable();
        while let Some(token) = rest.next() {
            match token.text {
                "{" => depth += 1,
                "}" => {
                    depth -= 1;
                    if depth == 0 {
                        break;
                    }
                }
                ";" | "(" | ")" => each = 0,
                "[" if each != 0 => {
                    let count = rest.peek().and_then(|count| count.text.parse::<usize>().ok()).unwrap_or(1);
                    bytes = bytes + each * count.max(1) - each;
                }
                word => match size_of(word).or_else(|| sizes.get(word).copied()) {
                    Some(size) => each = size,
                    None if each != 0 && is_word(word) => bytes += each,
                    None => {}
                },
            }
        }
        sizes.insert(name.text, bytes);
    }
    sizes
}

/// Looks through a source.
///
/// ```
/// use ascend_sim::{Slow, lint};
///
/// let found = lint("class Op {\n    TPipe pipe;\n};");
/// assert_eq!((found[0].line, found[0].slow), (2, Slow::PipeInObject));
/// ```
#[must_use]
pub fn lint(source: &str) -> Vec<Lint> {
    let all = tokens(source);
    let sizes = structs(&all);
    let large = |name: &str| sizes.get(name).is_some_and(|&bytes| bytes > LARGE);
    let text = |i: usize| all.get(i).map_or("", |token| token.text);
    let mut found = Vec::new();
    // What the next brace will open, and what is open.
    let (mut next, mut open): (Brace, Vec<Brace>) = (Brace::Other, Vec::new());
    let mut parens = 0;
    for (i, token) in all.iter().enumerate() {
        let mut hit = |slow, name: &str| found.push(Lint { line: token.line, slow, name: name.to_owned() });
        match token.text {
            "class" | "struct" if text(i.wrapping_sub(1)) != "<" && text(i.wrapping_sub(1)) != "," => {
                next = Brace::Class
            }
            "for" | "while" => next = Brace::Loop,
            "(" => parens += 1,
            ")" => parens -= 1,
            ";" if parens == 0 => next = Brace::Other,
            "{" => open.push(core::mem::replace(&mut next, Brace::Other)),
            "}" => {
                open.pop();
            }
            "TPipe" if open.last() == Some(&Brace::Class) && is_word(text(i + 1)) && text(i + 2) == ";" => {
                hit(Slow::PipeInObject, text(i + 1));
            }
            "/" | "%" if open.iter().filter(|brace| **brace == Brace::Loop).count() >= 2 => {
                let by = if text(i + 1) == "=" { text(i + 2) } else { text(i + 1) };
                if is_word(by) && !is_constant(by) {
                    hit(Slow::Division, by);
                }
            }
            "GET_TILING_DATA_WITH_STRUCT" if large(text(i + 2)) => hit(Slow::LargeCopy, text(i + 2)),
            // A parameter by value.
            name if parens > 0
                && large(name)
                && matches!(text(i.wrapping_sub(1)), "(" | "," | "const")
                && is_word(text(i + 1))
                && matches!(text(i + 2), ")" | ",") =>
            {
                hit(Slow::LargeCopy, name);
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow(source: &str) -> Vec<(u32, Slow)> {
        lint(source).iter().map(|lint| (lint.line, lint.slow)).collect()
    }

    #[test]
    fn pipes_belong_into_the_entry() {
        assert_eq!(slow("class A {\npublic:\n  AscendC::TPipe pipe_;\n};"), [(3, Slow::PipeInObject)]);
        assert_eq!(slow("class A {\n  TPipe *pipe_;\n  void f() { TPipe pipe; }\n};\nvoid k() { TPipe pipe; }"), []);
        assert_eq!(slow("template <class T> void k() { TPipe pipe; }"), []);
    }

    #[test]
    fn divisions_in_inner_loops() {
        let loops = |inner: &str| format!("for (;;) {{\n  for (int i = 0; i < n; i++) {{\n    {inner}\n  }}\n}}");
        assert_eq!(slow(&loops("x = i / columns;")), [(3, Slow::Division)]);
        assert_eq!(slow(&loops("x %= columns;")), [(3, Slow::Division)]);
        assert_eq!(slow(&loops("x = i / 16 + i % kBlock + a / sizeof(T) / BLOCK;")), []);
        assert_eq!(slow(&loops("// x = i / columns\n /* i / n */ f(\"a / b\");")), []);
        assert_eq!(slow("for (;;) { x = i / columns; }"), [], "an outer loop");
    }

    #[test]
    fn large_structs_are_not_copied() {
        let text = "struct T { uint32_t a, b; uint64_t rows[64]; };\nvoid f(T t);\nvoid g(const T &t);\n";
        assert_eq!(slow(text), [(2, Slow::LargeCopy)]);
        let text =
            "struct T { uint32_t a; uint64_t rows[64]; };\nvoid k() {\n GET_TILING_DATA_WITH_STRUCT(T, t, tiling);\n}";
        assert_eq!(slow(text), [(3, Slow::LargeCopy)]);
        assert_eq!(slow("struct T { uint32_t a, b; };\nvoid f(T t);"), []);
    }

    #[test]
    fn any_text_is_read() {
        for text in ["", "\"", "'\\", "/*", "#", "é { } }", "struct", "struct A {", "a / ", "for ("] {
            assert_eq!(lint(text), [], "{text}");
        }
        assert_eq!(lint("class A { TPipe p; };")[0].to_string().split(':').next(), Some("line 1"));
    }
}
