// SPDX-License-Identifier: MIT OR Apache-2.0

//! CANN 8.1 to 8.3: a build file of a few lines for the toolkit's own function, and the commands that run it.
//!
//! These versions wrap each kernel (a hidden first argument, a copy of the tiling, two passes and a merge). The wrapper
//! is made by scripts of the toolkit and belongs to it, so it is left to them.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::command::Invocation;
use crate::find::Toolkit;
use crate::kernel::Recipe;

/// The build file. `script` is the toolkit's `ascendc.cmake`.
#[must_use]
pub fn lists(recipe: &Recipe, script: &Path) -> String {
    let mut text = String::from("cmake_minimum_required(VERSION 3.16)\n");
    let _ = writeln!(text, "project({})", recipe.name);
    let _ = writeln!(text, "include({})", quoted(&script.to_string_lossy()));
    let list = |items: Vec<String>| items.join(" ");
    let paths = |paths: &[PathBuf]| list(paths.iter().map(|path| quoted(&path.to_string_lossy())).collect());
    let _ = writeln!(text, "ascendc_fatbin_library({} {})", recipe.name, paths(&recipe.sources));
    if !recipe.includes.is_empty() {
        let _ = writeln!(text, "ascendc_include_directories({} PRIVATE {})", recipe.name, paths(&recipe.includes));
    }
    if !recipe.defines.is_empty() {
        let defines = list(recipe.defines.iter().map(|define| quoted(define)).collect());
        let _ = writeln!(text, "ascendc_compile_definitions({} PRIVATE {defines})", recipe.name);
    }
    text
}

/// One argument of a build file, whatever is in it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        if matches!(c, '"' | '\\' | '$') {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted.push('"');
    quoted
}

/// The first of the two commands. `folder` has the build file, and gets the results.
#[must_use]
pub fn configure(cmake: &Path, toolkit: &Toolkit, soc: &str, folder: &Path) -> Invocation {
    base(cmake, toolkit, folder)
        .arg("-S")
        .arg(folder)
        .arg("-B")
        .arg(folder.join("build"))
        .joined("-DSOC_VERSION=", soc)
        .joined("-DASCEND_CANN_PACKAGE_PATH=", &toolkit.root)
        .args(["-DRUN_MODE=npu", "-DCMAKE_BUILD_TYPE=Release"])
        .joined("-DCMAKE_INSTALL_PREFIX=", folder.join("result"))
}

/// The second.
#[must_use]
pub fn build(cmake: &Path, toolkit: &Toolkit, folder: &Path, jobs: usize) -> Invocation {
    base(cmake, toolkit, folder)
        .arg("--build")
        .arg(folder.join("build"))
        .arg("--parallel")
        .arg(OsString::from(jobs.to_string()))
}

fn base(cmake: &Path, toolkit: &Toolkit, folder: &Path) -> Invocation {
    Invocation::new(cmake).env("ASCEND_HOME_PATH", &toolkit.root).dir(folder)
}

/// Where the toolkit's function leaves its result.
#[must_use]
pub fn result(recipe: &Recipe, folder: &Path) -> PathBuf {
    folder.join("result/fatbin").join(&recipe.name).join(format!("{}.o", recipe.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_file() {
        let recipe = Recipe {
            name: "gemm".into(),
            sources: vec!["/my crate/kernel/gemm.cpp".into(), "/c/b.cpp".into()],
            includes: vec!["/my crate/kernel".into()],
            defines: vec!["TILE=64".into(), "NAME=\"${x}\"".into()],
            simt: false,
            entries: Vec::new(),
            dir: "/my crate".into(),
        };
        assert_eq!(
            lists(&recipe, Path::new("/cann/ascendc.cmake")),
            r#"cmake_minimum_required(VERSION 3.16)
project(gemm)
include("/cann/ascendc.cmake")
ascendc_fatbin_library(gemm "/my crate/kernel/gemm.cpp" "/c/b.cpp")
ascendc_include_directories(gemm PRIVATE "/my crate/kernel")
ascendc_compile_definitions(gemm PRIVATE "TILE=64" "NAME=\"\${x}\"")
"#
        );
    }
}
