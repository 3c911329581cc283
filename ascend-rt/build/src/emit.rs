// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a build leaves in `OUT_DIR`: `kernels.rs` for the crate, `kernels.json` for tools.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::arch::Arch;
use crate::error::Error;
use crate::kernel::{Recipe, write};
use crate::sha256;

/// Code for one architecture: for the device, or an image for the twin.
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

/// Code of one origin, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// What made the code; none where there is no code.
    pub maker: Option<String>,
    /// Why there is none.
    pub why_none: String,
    /// The code by architecture.
    pub blobs: Vec<Blob>,
}

impl Part {
    /// There is no code.
    #[must_use]
    pub fn none(why: impl Into<String>) -> Self {
        Self { maker: None, why_none: why.into(), blobs: Vec::new() }
    }

    /// There is code.
    #[must_use]
    pub fn built(maker: impl Into<String>, blobs: Vec<Blob>) -> Self {
        Self { maker: Some(maker.into()), why_none: String::new(), blobs }
    }

    /// One line about it.
    #[must_use]
    pub fn origin(&self) -> String {
        let Some(maker) = &self.maker else { return format!("not built: {}", self.why_none) };
        let list = self.blobs.iter().map(|blob| format!("{}, {} bytes, sha256 {}", blob.arch, blob.bytes, blob.sha256));
        format!("{maker}: {}", list.collect::<Vec<_>>().join("; "))
    }
}

/// What a build came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Code for the device by architecture; none if there is no toolkit.
    pub blobs: Vec<Blob>,
    /// Images for the twin by architecture; none without the feature `sim`.
    pub images: Vec<Blob>,
    /// Lines for cargo, without their leading `cargo::`.
    pub directives: Vec<String>,
}

/// Writes the files.
///
/// # Errors
///
/// A file cannot be written.
pub fn files(recipe: &Recipe, device: &Part, twin: &Part, out: &Path) -> Result<(), Error> {
    write(&out.join("kernels.rs"), rust(&recipe.name, device, twin).as_bytes())?;
    write(&out.join("kernels.json"), json(recipe, device, twin).as_bytes())
}

/// The text of `kernels.rs`: `BLOBS` for `ascend_rt::Module::load`, `ORIGIN` and `TWIN_ORIGIN` for messages.
#[must_use]
pub fn rust(name: &str, device: &Part, twin: &Part) -> String {
    const UNUSED: &str = "#[allow(dead_code, reason = \"a build without a device does not use it\")]\n";
    let mut text = format!("/// Code of `{name}`, by architecture. Empty where there was neither CANN nor the twin.\n");
    text += UNUSED;
    text += "pub(crate) static BLOBS: &[::ascend_rt::Blob] = &[\n";
    for (made_by, blobs) in [("arch", &device.blobs), ("twin", &twin.blobs)] {
        for blob in blobs {
            let file = blob.path.file_name().unwrap_or_default().to_string_lossy();
            let number = blob.arch.number();
            let _ = writeln!(text, "    // For {}.\n    // sha256 {}", blob.arch.socs().join(", "), blob.sha256);
            let _ = writeln!(
                text,
                "    ::ascend_rt::Blob::{made_by}(::ascend_rt::Arch::from_number({number}), include_bytes!({file:?})),",
            );
        }
    }
    text += "];\n";
    for (name, what, part) in [("ORIGIN", "device code", device), ("TWIN_ORIGIN", "images for the twin", twin)] {
        let _ = write!(text, "\n/// What made the {what}, or why there is none.\n{UNUSED}");
        let _ = writeln!(text, "pub(crate) static {name}: &str = {:?};", part.origin());
    }
    text
}

/// The text of `kernels.json`.
#[must_use]
pub fn json(recipe: &Recipe, device: &Part, twin: &Part) -> String {
    let mut text = format!("{{\n  \"kernel\": {},\n", string(&recipe.name));
    let entries = recipe.entries.iter().map(|entry| entry.name.clone()).collect();
    let _ = writeln!(text, "  \"entries\": [{}],", strings(entries));
    let maker = |part: &Part| part.maker.as_ref().map_or("null".to_owned(), |maker| string(maker));
    let _ = writeln!(text, "  \"toolkit\": {},", maker(device));
    let _ = writeln!(text, "  \"reason\": {},", string(&device.why_none));
    let _ = writeln!(text, "  \"blobs\": {},", list(&device.blobs));
    let _ = writeln!(text, "  \"twin\": {},", maker(twin));
    let _ = writeln!(text, "  \"twin_reason\": {},", string(&twin.why_none));
    let _ = writeln!(text, "  \"twin_blobs\": {}\n}}", list(&twin.blobs));
    text
}

/// Blobs as a list of JSON.
fn list(blobs: &[Blob]) -> String {
    let mut text = "[".to_owned();
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
    text + if blobs.is_empty() { "]" } else { "\n  ]" }
}

fn strings(items: Vec<String>) -> String {
    items.iter().map(|item| string(item)).collect::<Vec<_>>().join(", ")
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
        let text = rust("gemm", &Part::none("no \"CANN\""), &Part::none("off"));
        assert!(text.contains("static BLOBS: &[::ascend_rt::Blob] = &[\n];"), "{text}");
        assert!(text.contains(r#"static ORIGIN: &str = "not built: no \"CANN\"";"#), "{text}");
        assert!(text.contains(r#"static TWIN_ORIGIN: &str = "not built: off";"#), "{text}");
    }

    #[test]
    fn strings_of_json() {
        assert_eq!(string("a\"b\\c\nd é"), r#""a\"b\\c\u000ad é""#);
    }

    #[test]
    fn a_blob_is_embedded_by_its_file_name() {
        let blob = Blob::new(Arch::Dav3510, PathBuf::from("/target/out/gemm-dav-3510.o"), b"abc");
        let image = Blob::new(Arch::Dav2201, PathBuf::from("/target/out/gemm-dav-2201.twin.so"), b"abc");
        let text = rust("gemm", &Part::built("CANN 9.1.0", vec![blob]), &Part::built("g++ 12", vec![image]));
        let line = r#"::ascend_rt::Blob::twin(::ascend_rt::Arch::from_number(2201), include_bytes!("gemm-dav-2201.twin.so")),"#;
        assert!(text.contains(line), "{text}");
        let line =
            r#"::ascend_rt::Blob::arch(::ascend_rt::Arch::from_number(3510), include_bytes!("gemm-dav-3510.o")),"#;
        assert!(text.contains(line), "{text}");
        assert!(text.contains("// For Ascend950PR, Ascend950DT.") && !text.contains("/target"), "{text}");
        assert!(text.contains("sha256 ba7816bf8f01cfea"), "{text}");
    }
}
