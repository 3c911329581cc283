// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the text of a kernel says about its entries: their names, the names of their parameters, and the cores they
//! take. A reader of words and brackets, not of C++: what it does not recognise it leaves out, and nothing but names in
//! reports and defaults depends on it.

use crate::twin::Task;

/// An entry that the text defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its name.
    pub name: String,
    /// The names of its parameters.
    pub parameters: Vec<String>,
    /// What it takes, where the text says so: by an attribute of the entry, or by `KERNEL_TASK_TYPE_DEFAULT` in its
    /// body.
    pub task: Option<Task>,
}

/// The entries of a source: functions with `__global__` that have a body.
#[must_use]
pub fn kernels(source: &str) -> Vec<Found> {
    let words = words(source);
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(offset) = words[at..].iter().position(|word| *word == "__global__") {
        at += offset + 1;
        if let Some((kernel, end)) = kernel(&words, at) {
            found.push(kernel);
            at = end;
        }
    }
    found
}

/// Reads on after `__global__`; with the place where the body ends.
fn kernel(words: &[&str], mut at: usize) -> Option<(Found, usize)> {
    let mut task = None;
    loop {
        let word = *words.get(at)?;
        let opens = words.get(at + 1) == Some(&"(");
        match word {
            "__vector__" => task = Some(Task::AivOnly),
            "__cube__" => task = Some(Task::AicOnly),
            "__mix__" if opens => {
                let end = group(words, at + 1)?;
                task = match words.get(at + 2..end - 1)? {
                    ["1", ",", "1"] => Some(Task::Mix11),
                    ["1", ",", "2"] => Some(Task::Mix12),
                    ["0", ",", "1"] => Some(Task::MixAiv10),
                    ["1", ",", "0"] => Some(Task::MixAic10),
                    _ => None,
                };
                at = end;
                continue;
            }
            ";" | "{" | "}" => return None,
            _ if opens && word.starts_with("__") => {
                at = group(words, at + 1)?;
                continue;
            }
            _ if opens && is_identifier(word) => break,
            _ => {}
        }
        at += 1;
    }
    let end = group(words, at + 1)?;
    let parameters = names(words.get(at + 2..end - 1)?);
    if words.get(end) != Some(&"{") {
        return None;
    }
    let last = group(words, end)?;
    for (place, word) in words[end..last].iter().enumerate() {
        if *word == "KERNEL_TASK_TYPE_DEFAULT" {
            task = words.get(end + place + 2).and_then(|word| task_type(word)).or(task);
        }
    }
    Some((Found { name: words[at].to_owned(), parameters, task }, last))
}

/// The type of a kernel as AscendC spells it.
#[must_use]
pub fn task_type(word: &str) -> Option<Task> {
    match word {
        "KERNEL_TYPE_AIV_ONLY" => Some(Task::AivOnly),
        "KERNEL_TYPE_AIC_ONLY" => Some(Task::AicOnly),
        "KERNEL_TYPE_MIX_AIV_1_0" => Some(Task::MixAiv10),
        "KERNEL_TYPE_MIX_AIC_1_0" => Some(Task::MixAic10),
        "KERNEL_TYPE_MIX_AIC_1_1" => Some(Task::Mix11),
        "KERNEL_TYPE_MIX_AIC_1_2" => Some(Task::Mix12),
        _ => None,
    }
}

/// The last word of each parameter. None at all if one has no name: a list with gaps would name the wrong ones.
fn names(words: &[&str]) -> Vec<String> {
    let mut names = Vec::new();
    let mut depth = 0;
    let mut begin = 0;
    for at in 0..=words.len() {
        match words.get(at) {
            Some(&("(" | "<" | "[" | "{")) => depth += 1,
            Some(&(")" | ">" | "]" | "}")) => depth -= 1,
            None | Some(&",") if depth == 0 => {
                let parameter = &words[begin..at];
                begin = at + 1;
                match parameter.last() {
                    Some(name) if parameter.len() > 1 && is_identifier(name) => names.push((*name).to_owned()),
                    _ => return Vec::new(),
                }
            }
            _ => {}
        }
    }
    names
}

/// One past the bracket that closes the one at `at`.
fn group(words: &[&str], at: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (offset, word) in words.get(at..)?.iter().enumerate() {
        match *word {
            "(" | "{" | "[" => depth += 1,
            ")" | "}" | "]" => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + offset + 1);
                }
            }
            _ => {}
        }
    }
    None
}

fn is_identifier(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// Words and single signs, without comments, literals of text, and lines of the preprocessor.
fn words(source: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = source;
    let mut line_begins = true;
    while let Some(c) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = if c == '\n' || c.is_whitespace() {
            line_begins |= c == '\n';
            rest = &rest[c.len_utf8()..];
            continue;
        } else if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(comment) = rest.strip_prefix("/*") {
            comment.find("*/").map_or(rest.len(), |end| end + 4)
        } else if c == '#' && line_begins {
            directive(rest)
        } else if c == '"' || c == '\'' {
            literal(rest, c)
        } else {
            let length = if is_word(c) { rest.find(|c| !is_word(c)).unwrap_or(rest.len()) } else { c.len_utf8() };
            words.push(&rest[..length]);
            length
        };
        line_begins = false;
        rest = &rest[length..];
    }
    words
}

/// The length of a line of the preprocessor, with the lines that continue it.
fn directive(text: &str) -> usize {
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        end += line.len();
        if !line.trim_end().ends_with('\\') {
            break;
        }
    }
    // The end of the line stays, so that the next one begins.
    text[..end].strip_suffix('\n').map_or(end, str::len)
}

fn literal(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '\\' if !escaped => escaped = true,
            // One sign of digits (1'000), or damaged.
            '\n' => return 1,
            c if c == quote && !escaped => return at + 1,
            _ => escaped = false,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parameters_and_tasks() {
        let source = r#"
            #include "kernel_operator.h"
            #define ENTRY extern "C" __global__ \
                __aicore__ void hidden(GM_ADDR x) {}
            // __global__ void commented(GM_ADDR x) {}
            /* __global__ void too(GM_ADDR x) {} */
            extern "C" __global__ __aicore__ void declared(GM_ADDR x);
            extern "C" __global__ __aicore__ void add(GM_ADDR x, __gm__ uint8_t *y, uint32_t n /* count */) {
                KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0);
                const char *text = "}"; char c = '}';
                if (n > 1'000) { Do(x); }
            }
            __global__ __mix__(1, 1) void fused(Pair<int, 4> pair, GM_ADDR tiling) { Run(pair); }
            __global__ __launch_bounds__(4) __cube__ void mm(GM_ADDR) {}
            __global__ __aicore__ void plain() {}
        "#;
        let kernels = kernels(source);
        let shown: Vec<_> =
            kernels.iter().map(|kernel| (kernel.name.as_str(), kernel.parameters.join(" "), kernel.task)).collect();
        assert_eq!(
            shown,
            [
                ("add", "x y n".to_owned(), Some(Task::MixAiv10)),
                ("fused", "pair tiling".to_owned(), Some(Task::Mix11)),
                ("mm", String::new(), Some(Task::AicOnly)),
                ("plain", String::new(), None),
            ]
        );
    }

    #[test]
    fn damaged_text_gives_nothing() {
        for source in [
            "",
            "__global__",
            "__global__ void k(",
            "__global__ void k(GM_ADDR x)",
            "__global__ void k(GM_ADDR x) {",
            "__global__ void k) (GM_ADDR x",
            "__global__ __mix__( void k()",
            "\"__global__ void k() {}",
            "/* __global__ void k() {}",
            "#define A __global__ void k() {}",
            "__global__ ü void",
        ] {
            assert_eq!(kernels(source), [], "{source:?}");
        }
    }

    #[test]
    fn the_six_types() {
        for (word, cores) in [
            ("KERNEL_TYPE_AIV_ONLY", crate::Cores::Vector),
            ("KERNEL_TYPE_MIX_AIV_1_0", crate::Cores::Vector),
            ("KERNEL_TYPE_AIC_ONLY", crate::Cores::Cube),
            ("KERNEL_TYPE_MIX_AIC_1_0", crate::Cores::Cube),
            ("KERNEL_TYPE_MIX_AIC_1_1", crate::Cores::Mix),
            ("KERNEL_TYPE_MIX_AIC_1_2", crate::Cores::Mix),
        ] {
            assert_eq!(task_type(word).map(Task::cores), Some(cores), "{word}");
        }
        assert_eq!(task_type("KERNEL_TYPE_AICORE"), None);
    }
}
