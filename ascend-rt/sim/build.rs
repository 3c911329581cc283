// SPDX-License-Identifier: MIT OR Apache-2.0

//! Compiles the twin's library and tells crates with kernels where it is. It goes into images, never into a Rust crate.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// There is a library for each architecture: what lies in `lib/chip` knows its chip when it is compiled.
const ARCHS: [&str; 2] = ["2201", "3510"];

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("ascend-sim: {why}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from).ok_or(format!("{name} is not set"));
    let (root, out) = (folder("CARGO_MANIFEST_DIR")?, folder("OUT_DIR")?);
    let (include, sources) = (root.join("include"), root.join("lib"));
    for watched in [&include, &sources] {
        println!("cargo::rerun-if-changed={}", watched.display());
    }
    println!("cargo::metadata=include={}", include.display());
    println!("cargo::metadata=lib={}", out.display());

    let (common, chip) = (cpp_files(&sources)?, cpp_files(&sources.join("chip"))?);
    if std::env::var_os("DOCS_RS").is_some() {
        // Archives without members: nothing links them there.
        for arch in ARCHS {
            let path = out.join(format!("libascend_twin_{arch}.a"));
            std::fs::write(&path, "!<arch>\n").map_err(|error| format!("{}: {error}", path.display()))?;
        }
        return Ok(());
    }
    let compiler = |folder: &str, files: &[PathBuf]| {
        let mut compiler = cc::Build::new();
        compiler
            .cpp(true)
            .std("c++17")
            .opt_level(3)
            .debug(false)
            .pic(true)
            .warnings(false)
            // The hidden symbols keep images that are open at once from meeting.
            .flags(["-ffp-contract=off", "-fno-exceptions", "-fno-rtti", "-fvisibility=hidden", "-Wall", "-Wextra"])
            .define("ASCEND_TWIN", "1")
            .include(&include)
            .include(&sources)
            .cargo_metadata(false)
            .out_dir(out.join(folder))
            .files(files);
        compiler
    };
    let failed = |error: cc::Error| {
        format!(
            "the twin's library does not compile: {error}\nIt needs a C++17 compiler, g++ 11 or clang 14 or later \
             (packages `g++` or `clang`); CXX names another one than c++"
        )
    };
    let objects = compiler("common", &common).try_compile_intermediates().map_err(failed)?;
    for arch in ARCHS {
        let name = format!("ascend_twin_{arch}");
        compiler(arch, &chip).define("__NPU_ARCH__", arch).objects(&objects).try_compile(&name).map_err(failed)?;
        let (made, path) = (out.join(arch).join(format!("lib{name}.a")), out.join(format!("lib{name}.a")));
        std::fs::copy(&made, &path).map_err(|error| format!("{}: {error}", made.display()))?;
    }
    Ok(())
}

/// The sources in their order: a folder lists them in none.
fn cpp_files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let listing = match std::fs::read_dir(folder) {
        Ok(listing) => listing,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{}: {error}", folder.display())),
    };
    let mut files = Vec::new();
    for entry in listing {
        let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "cpp") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
