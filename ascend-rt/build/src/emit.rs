// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a build leaves in `OUT_DIR`: `kernels.rs` for the crate, `kernels.json` for tools.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::arch::Arch;
use crate::error::Error;
use crate::find::Toolkit;
use crate::kernel::{Recipe, write};
use crate::sha256;

/// Device code for one architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// What it runs on.
    pub arch: Arch,
    /// The file, in `OUT_DIR`.
    pub path: PathBuf,
    /// Its size.
    pub bytes: usize,
    /// Its SHA-256 in hexadecimal digits.
    pub sha256: String,
}

impl Blob {
    /// Describes a file with this content.
    #[must_use]
    pub fn new(arch: Arch, path: PathBuf, bytes: &[u8]) -> Self {
        Self { arch, path, bytes: bytes.len(), sha256: sha256::hex(bytes) }
    }
}

/// What a build came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Code by architecture; none if there is no toolkit.
    pub blobs: Vec<Blob>,
    /// Lines for cargo, without their leading `cargo::`.
    pub directives: Vec<String>,
}

/// Writes the files of a build without code.
///
/// # Errors
///
/// A file cannot be written.
pub fn none(recipe: &Recipe, why: &str, out: &Path) -> Result<(), Error> {
    write(&out.join("kernels.rs"), rust(&recipe.name, &format!("not built: {why}"), &[]).as_bytes())?;
    write(&out.join("kernels.json"), json(recipe, None, why, &[]).as_bytes())
}

/// Writes the files of a build with code.
///
/// # Errors
///
/// A file cannot be written.
pub fn built(recipe: &Recipe, toolkit: &Toolkit, blobs: &[Blob], out: &Path) -> Result<(), Error> {
    let list: Vec<String> =
        blobs.iter().map(|blob| format!("{}, {} bytes, sha256 {}", blob.arch, blob.bytes, blob.sha256)).collect();
    let origin = format!("{toolkit}: {}", list.join("; "));
    write(&out.join("kernels.rs"), rust(&recipe.name, &origin, blobs).as_bytes())?;
    write(&out.join("kernels.json"), json(recipe, Some(toolkit), "", blobs).as_bytes())
}

/// The text of `kernels.rs`: `BLOBS` for `ascend_rt::Module::load`, and `ORIGIN` for messages.
#[must_use]
pub fn rust(name: &str, origin: &str, blobs: &[Blob]) -> String {
    let mut text = format!("/// Device code of `{name}`, by architecture. Empty where there was no CANN.\n");
    text += "#[allow(dead_code, reason = \"a build without a device does not use it\")]\n";
    text += "pub(crate) static BLOBS: &[::ascend_rt::Blob] = &[\n";
    for blob in blobs {
        let file = blob.path.file_name().unwrap_or_default().to_string_lossy();
        let _ = writeln!(text, "    // For {}.\n    // sha256 {}", blob.arch.socs().join(", "), blob.sha256);
        let _ = writeln!(
            text,
            "    ::ascend_rt::Blob::arch(::ascend_rt::Arch::from_number({}), include_bytes!({file:?})),",
            blob.arch.number()
        );
    }
    text += "];\n\n/// What made the code, or why there is none.\n";
    text += "#[allow(dead_code, reason = \"a build without a device does not use it\")]\n";
    let _ = writeln!(text, "pub(crate) static ORIGIN: &str = {origin:?};");
    text
}

/// The text of `kernels.json`.
#[must_use]
pub fn json(recipe: &Recipe, toolkit: Option<&Toolkit>, why_none: &str, blobs: &[Blob]) -> String {
    let strings = |items: Vec<String>| items.iter().map(|item| string(item)).collect::<Vec<_>>().join(", ");
    let mut text = format!("{{\n  \"kernel\": {},\n", string(&recipe.name));
    let entries = recipe.entries.iter().map(|entry| entry.name.clone()).collect();
    let _ = writeln!(text, "  \"entries\": [{}],", strings(entries));
    let _ = writeln!(text, "  \"toolkit\": {},", toolkit.map_or("null".to_owned(), |it| string(&it.to_string())));
    let _ = writeln!(text, "  \"reason\": {},", string(why_none));
    text += "  \"blobs\": [";
    for (at, blob) in blobs.iter().enumerate() {
        let socs = blob.arch.socs().iter().map(|&soc| soc.to_owned()).collect();
        let file = blob.path.file_name().unwrap_or_default().to_string_lossy();
        let _ = write!(
            text,
            "{}\n    {{\"arch\": {}, \"soc_versions\": [{}], \"file\": {}, \"bytes\": {}, \"sha256\": {}}}",
            if at == 0 { "" } else { "," },
            string(blob.arch.name()),
            strings(socs),
            string(&file),
            blob.bytes,
            string(&blob.sha256)
        );
    }
    text += if blobs.is_empty() { "]\n}\n" } else { "\n  ]\n}\n" };
    text
}

/// A string of JSON.
fn string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if u32::from(c) < 0x20 => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_code() {
        let text = rust("gemm", "not built: no \"CANN\"", &[]);
        assert!(text.contains("static BLOBS: &[::ascend_rt::Blob] = &[\n];"), "{text}");
        assert!(text.contains(r#"static ORIGIN: &str = "not built: no \"CANN\"";"#), "{text}");
    }

    #[test]
    fn strings_of_json() {
        assert_eq!(string("a\"b\\c\nd é"), r#""a\"b\\c\u000ad é""#);
    }

    #[test]
    fn a_blob_is_embedded_by_its_file_name() {
        let blob = Blob::new(Arch::Dav3510, PathBuf::from("/target/out/gemm-dav-3510.o"), b"abc");
        let text = rust("gemm", "CANN 9.1.0", &[blob]);
        let line =
            r#"::ascend_rt::Blob::arch(::ascend_rt::Arch::from_number(3510), include_bytes!("gemm-dav-3510.o")),"#;
        assert!(text.contains(line), "{text}");
        assert!(text.contains("// For Ascend950PR, Ascend950DT.") && !text.contains("/target"), "{text}");
        assert!(text.contains("sha256 ba7816bf8f01cfea"), "{text}");
    }
}
