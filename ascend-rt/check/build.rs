// SPDX-License-Identifier: MIT OR Apache-2.0

//! Leaves in `OUT_DIR` what the tests compile: code as `ascend-build` generates it, and with the feature `check-ffi`
//! the genuine declarations and the assertions about ours.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use ascend_build::Arch;
use ascend_build::emit::{self, Blob, Part};
use ascend_build::twin;

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or_else(|| std::io::Error::other("no OUT_DIR"))?);
    generated(&out)?;
    #[cfg(feature = "check-ffi")]
    ffi::write(&out)?;
    Ok(())
}

/// A crate's `kernels.rs` with one blob for each architecture, and a table of these.
fn generated(out: &Path) -> std::io::Result<()> {
    let mut blobs = Vec::new();
    let mut table = String::from("/// Number, name and what the names of chips begin with.\n");
    table += "static ARCHS: &[(u32, &str, &[&str])] = &[\n";
    for arch in Arch::ALL {
        let path = out.join(format!("check-{arch}.o"));
        std::fs::write(&path, arch.name())?;
        blobs.push(Blob::new(arch, path, arch.name().as_bytes()));
        let _ = writeln!(table, "    ({}, {:?}, &{:?}),", arch.number(), arch.name(), arch.socs());
    }
    table += "];\n";
    std::fs::write(out.join("archs.rs"), table)?;
    let images = twin::ARCHS.map(|arch| {
        let path = out.join(format!("check-{arch}.twin.so"));
        (Blob::new(arch, path.clone(), b"twin"), path)
    });
    for (_, path) in &images {
        std::fs::write(path, "twin")?;
    }
    let images = images.map(|(blob, _)| blob).into();
    let text = emit::rust("check", &Part::built("a test", blobs), &Part::built("another test", images));
    std::fs::write(out.join("kernels.rs"), text)?;
    std::fs::write(out.join("empty.rs"), emit::rust("empty", &Part::none("a test"), &Part::none("another test")))
}

#[cfg(feature = "check-ffi")]
mod ffi {
    use std::collections::BTreeSet;
    use std::fmt::Write as _;
    use std::path::Path;

    const DECLARATIONS: &str = "../src/sys.rs";

    /// Writes `bindings.rs` and `identity.rs`; where that cannot be, files without content and the reason.
    pub(crate) fn write(out: &Path) -> std::io::Result<()> {
        for name in ["ACL_INCLUDE", "LIBCLANG_PATH", "BINDGEN_EXTRA_CLANG_ARGS"] {
            println!("cargo::rerun-if-env-changed={name}");
        }
        println!("cargo::rerun-if-changed={DECLARATIONS}");
        let declarations = std::fs::read_to_string(DECLARATIONS)?;
        let (bindings, identity) = match bindings() {
            Ok(bindings) => {
                let identity = identity(&declarations, &bindings);
                (bindings, identity)
            }
            Err(missing) => {
                println!("cargo::warning=check-ffi: {}", missing.lines().next().unwrap_or_default());
                (String::new(), nothing(&missing))
            }
        };
        std::fs::write(out.join("bindings.rs"), bindings)?;
        std::fs::write(out.join("identity.rs"), identity)
    }

    /// What bindgen makes of the headers, or what is missing.
    fn bindings() -> Result<String, String> {
        clang_sys::load().map_err(|error| {
            format!("no libclang: {error}. Install it (libclang-dev), or let LIBCLANG_PATH name the folder that has libclang.so")
        })?;
        let named = std::env::var("ACL_INCLUDE").unwrap_or_default();
        let folder = std::env::split_paths(&named).next().filter(|folder| folder.join("acl/acl.h").is_file());
        let folder = folder.ok_or_else(|| {
            format!("no genuine headers: ACL_INCLUDE={named:?}, expected a folder that has acl/acl.h")
        })?;
        println!("cargo::rerun-if-changed={}", folder.join("acl").display());
        let made = bindgen::Builder::default()
            .header_contents("genuine.h", "#include <acl/acl.h>\n#include <acl/acl_prof.h>\n")
            .clang_arg(format!("-I{}", folder.display()))
            .allowlist_function("acl.*")
            .allowlist_type("acl.*")
            .allowlist_var("ACL_.*")
            .prepend_enum_name(false)
            .layout_tests(false)
            .generate_comments(false)
            .generate();
        made.map(|bindings| bindings.to_string()).map_err(|error| {
            format!(
                "bindgen cannot read {}: {error}. If it is stddef.h that is not found, see BINDGEN_EXTRA_CLANG_ARGS",
                folder.display()
            )
        })
    }

    fn nothing(missing: &str) -> String {
        format!(
            "const MISSING: Option<&str> = Some({missing:?});\nconst ABSENT: &[&str] = &[];\nconst COUNTS: [usize; 4] = [0; 4];\nmacro_rules! when_present {{ ($($any:tt)*) => {{}} }}\nmacro_rules! when_required {{ ($($any:tt)*) => {{}} }}\n"
        )
    }

    /// The assertions. Ours is read as text, by the conventions that stand at its head.
    fn identity(ours: &str, genuine: &str) -> String {
        let items = |start: &str| -> BTreeSet<&str> {
            let name = |rest: &'_ str| rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
            genuine.split(start).skip(1).map(|rest| &rest[..name(rest)]).collect()
        };
        let functions = items("pub fn ");
        let values = items("pub const ");
        let types: BTreeSet<&str> = ["pub type ", "pub struct ", "pub union "].into_iter().flat_map(items).collect();

        let mut text = String::from("const MISSING: Option<&str> = None;\n");
        text += "#[allow(unused_macros, reason = \"made for all functions\")]\nmacro_rules! when_present {\n";
        for function in &functions {
            let _ = writeln!(text, "    ({function} $($item:tt)*) => {{ $($item)* }};");
        }
        text += "    ($other:ident $($item:tt)*) => {};\n}\n";
        text += "macro_rules! when_required { ($name:ident $($item:tt)*) => { $($item)* } }\n";

        let (mut absent, mut value_count, mut type_count, mut layout_count) = (Vec::new(), 0, 0, 0);
        let mut marks = String::new();
        for line in ours.lines().map(str::trim) {
            if let Some(mark) = line.strip_prefix("// acl: ") {
                marks = mark.to_owned();
                continue;
            }
            if line.starts_with("#[") || line.starts_with("//") {
                continue;
            }
            let mark = std::mem::take(&mut marks);
            if mark.contains("skip") {
                continue;
            }
            let mut missing = |name: &str| {
                if !mark.contains("optional") {
                    absent.push(name.to_owned());
                }
            };
            if let Some((name, rest)) = line.strip_prefix("pub const ").and_then(|rest| rest.split_once(": ")) {
                if !name.starts_with("ACL_") {
                    continue;
                }
                if !values.contains(name) {
                    missing(name);
                    continue;
                }
                let inner = if rest.contains('(') { ".0" } else { "" };
                let _ = writeln!(
                    text,
                    "const _: () = assert!(sys::{name}{inner} as i64 == real::{name} as i64, \"value of {name}\");"
                );
                value_count += 1;
            } else if let Some(name) = alias(line) {
                if types.contains(name) {
                    let inner = if line.starts_with("pub struct") { ".0" } else { "" };
                    let _ = writeln!(text, "const _: fn(sys::{name}) -> real::{name} = |value| value{inner};");
                    type_count += 1;
                } else if name.starts_with("acl") {
                    missing(name);
                }
            }
        }
        // Layouts: what stands in the braces is `name { size: .., align: .., field @ offset, .. }`.
        for part in ours.split("\nlayout! {").skip(1) {
            let Some((inner, _)) = part.split_once("}") else { continue };
            let Some((name, fields)) = inner.split_once('{').map(|(name, fields)| (name.trim(), fields)) else {
                continue;
            };
            if !types.contains(name) {
                continue;
            }
            layout_count += 1;
            for field in fields.split(',').map(str::trim).filter(|field| !field.is_empty()) {
                let claim = match field.split_once(": ").or_else(|| field.split_once(" @ ")) {
                    Some(("size", size)) => format!("size_of::<real::{name}>() == {size}"),
                    Some(("align", align)) => format!("align_of::<real::{name}>() == {align}"),
                    Some((field, offset)) => format!("core::mem::offset_of!(real::{name}, {field}) == {offset}"),
                    None => continue,
                };
                let _ = writeln!(text, "const _: () = assert!({claim}, \"layout of {name}\");");
            }
        }
        let _ = writeln!(text, "const ABSENT: &[&str] = &{absent:?};");
        let _ = writeln!(
            text,
            "const COUNTS: [usize; 4] = [{}, {value_count}, {type_count}, {layout_count}];",
            functions.len()
        );
        text
    }

    /// The name of a type that stands for another: `pub type x = ..;` or `pub struct x(pub ..);`.
    fn alias(line: &str) -> Option<&str> {
        let of_type = line.strip_prefix("pub type ").and_then(|rest| rest.split_once(" = "));
        let of_struct = line.strip_prefix("pub struct ").and_then(|rest| rest.split_once("(pub "));
        of_type.or(of_struct).map(|(name, _)| name)
    }
}
