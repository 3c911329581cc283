// SPDX-License-Identifier: MIT OR Apache-2.0

//! Compiles the twin's library and tells crates with kernels where it is. It goes into images, never into a Rust crate.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The library knows its chip when it is compiled: one for each architecture.
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

    let files = cpp_files(&sources)?;
    if std::env::var_os("DOCS_RS").is_some() {
        // Archives without members: nothing links them there.
        for arch in ARCHS {
            let path = out.join(format!("libascend_twin_{arch}.a"));
            std::fs::write(&path, "!<arch>\n").map_err(|error| format!("{}: {error}", path.display()))?;
        }
        return Ok(());
    }
    let compile = |arch: &str| {
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
            .define("__NPU_ARCH__", arch)
            .define("ASCEND_TWIN", "1")
            .include(&include)
            .include(&sources)
            .cargo_metadata(false)
            .out_dir(out.join(arch))
            .files(&files);
        let name = format!("ascend_twin_{arch}");
        compiler.try_compile(&name).map_err(|error| {
            format!(
                "the twin's library does not compile: {error}\nIt needs a C++17 compiler, g++ 11 or clang 14 or later \
                 (packages `g++` or `clang`); CXX names another one than c++"
            )
        })?;
        let (made, path) = (out.join(arch).join(format!("lib{name}.a")), out.join(format!("lib{name}.a")));
        std::fs::copy(&made, &path).map(drop).map_err(|error| format!("{}: {error}", made.display()))
    };
    // Side by side: neither needs the other.
    std::thread::scope(|scope| {
        let others: Vec<_> = ARCHS[1..].iter().map(|arch| scope.spawn(|| compile(arch))).collect();
        let first = compile(ARCHS[0]);
        let others = others.into_iter().map(|other| other.join().unwrap_or(Err("a compiler's thread ended".to_owned())));
        others.fold(first, |before, other| before.and(other))
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
