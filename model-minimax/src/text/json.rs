// SPDX-License-Identifier: MIT OR Apache-2.0

//! The `tojson` filter as chat templates expect it: Python's `json.dumps`, no HTML escaping, key order kept.

use std::fmt::Write;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};

/// How deep values may be nested; deeper ones are an error instead of an exhausted stack.
const MAX_DEPTH: usize = 128;

/// `value | tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`, with the defaults that
/// the template engine of the published runner uses.
pub(super) fn tojson(value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let indent = match kwargs.get::<Option<Value>>("indent")?.filter(|v| !v.is_none()) {
        None => None,
        Some(v) => Some(match v.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::try_from(v)?),
        }),
    };
    let separators = match kwargs.get::<Option<Value>>("separators")?.filter(|v| !v.is_none()) {
        Some(pair) => {
            let part = |i| match pair.get_item_by_index(i)?.as_str() {
                Some(text) => Ok(text.to_owned()),
                None => Err(Error::new(ErrorKind::InvalidOperation, "tojson: separators must be two strings")),
            };
            (part(0)?, part(1)?)
        }
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let mut writer = Writer {
        out: String::new(),
        ensure_ascii: kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort_keys: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        indent,
        separators,
    };
    kwargs.assert_all_used()?;
    writer.value(value, 0)?;
    // "Safe" keeps the formatter from touching it, whatever escaping a template turns on.
    Ok(Value::from_safe_string(writer.out))
}

struct Writer {
    out: String,
    ensure_ascii: bool,
    sort_keys: bool,
    indent: Option<String>,
    /// Between items, between key and value.
    separators: (String, String),
}

impl Writer {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::new(ErrorKind::InvalidOperation, "tojson: value is nested too deeply"));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&number(value)?),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items = value.try_iter()?.checked().collect::<Result<Vec<_>, _>>()?;
                self.items('[', ']', depth, &items, |writer, item| writer.value(item, depth + 1))?;
            }
            ValueKind::Map => {
                let mut entries = Vec::new();
                for key in value.try_iter()?.checked() {
                    let key = key?;
                    entries.push((key_text(&key)?, value.get_item(&key)?));
                }
                if self.sort_keys {
                    entries.sort_by(|a, b| a.0.cmp(&b.0));
                }
                self.items('{', '}', depth, &entries, |writer, (key, item)| {
                    writer.string(key);
                    writer.out.push_str(&writer.separators.1);
                    writer.value(item, depth + 1)
                })?;
            }
            other => {
                return Err(Error::new(
                    ErrorKind::InvalidOperation,
                    format!("tojson: {other} is not JSON serializable"),
                ));
            }
        }
        Ok(())
    }

    fn items<T>(
        &mut self,
        open: char,
        close: char,
        depth: usize,
        items: &[T],
        mut item: impl FnMut(&mut Self, &T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        for (i, entry) in items.iter().enumerate() {
            if i > 0 {
                self.out.push_str(&self.separators.0);
            }
            self.line(depth + 1);
            item(self, entry)?;
        }
        if !items.is_empty() {
            self.line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ensure_ascii && !(' '..='~').contains(&c)) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let written = write!(self.out, "\\u{unit:04x}");
                        debug_assert!(written.is_ok(), "writing into a String cannot fail");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

/// The text of a mapping key: JSON has only strings, the other scalars are written as Python does.
fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::None => Ok("null".to_owned()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.to_owned()),
        ValueKind::Number => number(key),
        other => Err(Error::new(ErrorKind::InvalidOperation, format!("tojson: a {other} cannot be a key"))),
    }
}

fn number(value: &Value) -> Result<String, Error> {
    if value.is_integer() {
        return Ok(value.to_string());
    }
    let number = f64::try_from(value.clone())?;
    Ok(if number.is_nan() {
        "NaN".to_owned()
    } else if number.is_infinite() {
        if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
    } else {
        float_repr(number)
    })
}

/// A finite float as Python's `repr` writes it: the shortest digits that read back to the same value, positional
/// for exponents from -4 to 15.
pub(super) fn float_repr(number: f64) -> String {
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(-4..=15) => format!("{number:?}"),
        _ => {
            let (sign, size) = match exponent.strip_prefix('-') {
                Some(size) => ('-', size),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{size:0>2}")
        }
    }
}
