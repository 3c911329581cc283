// SPDX-License-Identifier: MIT OR Apache-2.0

//! Compiles the twin's library and tells crates with kernels where it is. It goes into images, never into a Rust crate.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

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
    let library = out.join("libascend_twin.a");
    for watched in [&include, &sources] {
        println!("cargo::rerun-if-changed={}", watched.display());
    }
    println!("cargo::metadata=include={}", include.display());
    println!("cargo::metadata=lib={}", library.display());

    let files = cpp_files(&sources)?;
    if files.is_empty() || std::env::var_os("DOCS_RS").is_some() {
        // An archive without members: what links it says which function it lacks.
        return std::fs::write(&library, "!<arch>\n").map_err(|error| format!("{}: {error}", library.display()));
    }
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
        .files(files);
    compiler.try_compile("ascend_twin").map_err(|error| {
        format!(
            "the twin's library does not compile: {error}\nIt needs a C++17 compiler, g++ 11 or clang 14 or later \
             (packages `g++` or `clang`); CXX names another one than c++"
        )
    })
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
