// SPDX-License-Identifier: MIT OR Apache-2.0

//! Whether the struct that a kernel reads and the one that Rust writes are laid out alike.
//!
//! The C header is read as text, so no compiler is needed; it may hold plain fields of fixed width only, which every
//! C++ compiler lays out in the same way.
//!
//! ```
//! use op_testkit::{fields_of, tiling};
//!
//! #[repr(C)]
//! struct Split { bytes: u64, rows: u32, scale: f32 }
//!
//! let header = "struct Split {\n uint64_t bytes; // in all\n uint32_t rows;\n float scale;\n};";
//! assert_eq!(tiling::fields(header, "Split"), Ok(fields_of!(Split { bytes: u64, rows: u32, scale: f32 })));
//! ```

/// A field: name, C type, offset, size.
pub type Field = (String, String, usize, usize);

/// The fields of a struct in a C header, then one called `(end)` at the size of the struct.
///
/// # Errors
/// The struct is not there, or a field is no plain field of fixed width.
pub fn fields(header: &str, name: &str) -> Result<Vec<Field>, String> {
    let code: String = header.lines().map(|line| line.split("//").next().unwrap_or("").to_owned() + "\n").collect();
    let after = code.split(&format!("struct {name} {{")).nth(1).ok_or(format!("no `struct {name} {{`"))?;
    let body = after.split("};").next().ok_or(format!("`struct {name}` has no end"))?;
    let (mut fields, mut at, mut most) = (Vec::new(), 0usize, 1);
    for field in body.split(';').map(str::trim).filter(|field| !field.is_empty()) {
        let Some((kind, name)) = field.split_once(' ').map(|(kind, name)| (kind, name.trim())) else {
            return Err(format!("`{field}` is no plain field"));
        };
        let size = match kind {
            "uint64_t" | "int64_t" => 8,
            "uint32_t" | "int32_t" | "float" => 4,
            "uint16_t" | "int16_t" => 2,
            "uint8_t" | "int8_t" => 1,
            _ => return Err(format!("`{field}`: `{kind}` has no fixed width")),
        };
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(format!("`{field}` is no plain field"));
        }
        at = at.next_multiple_of(size);
        fields.push((name.to_owned(), kind.to_owned(), at, size));
        (at, most) = (at + size, most.max(size));
    }
    fields.push(("(end)".to_owned(), String::new(), at.next_multiple_of(most), 0));
    Ok(fields)
}

/// The name of a Rust type in C.
#[must_use]
pub fn c_type(rust: &str) -> String {
    match rust.split_at_checked(1) {
        Some(("u", bits)) => format!("uint{bits}_t"),
        Some(("i", bits)) => format!("int{bits}_t"),
        _ => "float".to_owned(),
    }
}

/// The fields of a Rust struct, as [`fields`](crate::tiling::fields) gives those of a C one. A field that is left out
/// shows in the offsets or the size.
#[macro_export]
macro_rules! fields_of {
    ($type:ty { $($field:ident: $kind:ty),+ $(,)? }) => {{
        let mut fields = vec![$((
            stringify!($field).to_owned(),
            $crate::tiling::c_type(stringify!($kind)),
            ::core::mem::offset_of!($type, $field),
            ::core::mem::size_of::<$kind>(),
        )),+];
        // A field of another type than the list says does not compile.
        let _ = |value: &$type| { $(let _: &$kind = &value.$field;)+ };
        fields.push(("(end)".to_owned(), String::new(), ::core::mem::size_of::<$type>(), 0));
        fields
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    struct Mixed {
        a: u8,
        b: u32,
        c: i64,
        d: f32,
    }

    #[test]
    fn fields_have_their_places() {
        let header = "struct Mixed {\n  uint8_t a; // one; two\n uint32_t b;\n int64_t c;\n float d;\n};\n";
        assert_eq!(fields(header, "Mixed").unwrap(), fields_of!(Mixed { a: u8, b: u32, c: i64, d: f32 }));
        for (from, to) in [("uint8_t a", "uint32_t a"), ("uint32_t b", "float b"), (" d;", " e;"), ("int64_t c;", "")] {
            let changed = header.replacen(from, to, 1);
            assert_ne!(fields(&changed, "Mixed"), Ok(fields_of!(Mixed { a: u8, b: u32, c: i64, d: f32 })), "{changed}");
        }
    }

    #[test]
    fn what_has_no_fixed_place_is_refused() {
        for body in ["int a;", "uint32_t a[4];", "uint32_t *a;", "uint32_t a : 3;", "uint32_t;"] {
            assert!(fields(&format!("struct S {{\n{body}\n}};"), "S").is_err(), "{body}");
        }
        assert_eq!(fields("struct T {\n};", "S"), Err("no `struct S {`".to_owned()));
    }
}
