// SPDX-License-Identifier: MIT OR Apache-2.0

//! The operators of the workspace with a toolkit that is a few shell scripts: the commands for each SoC, what is embedded,
//! and a missing entry point, against files that are kept. `SNAPSHOTS=renew` writes them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use ascend_build::{Kernel, Script};

use crate::canned::{Symbol, elf};
use crate::fake::{Folder, HOST, Toolkit};

/// The folders of operators that have a kernel.
fn operators() -> Vec<PathBuf> {
    let ops = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops");
    let folders = std::fs::read_dir(&ops).unwrap_or_else(|error| panic!("{}: {error}", ops.display()));
    let mut found: Vec<_> = folders.map(|entry| std::fs::canonicalize(entry.unwrap().path()).unwrap()).collect();
    found.retain(|folder| folder.join("kernel").is_dir());
    found.sort();
    found
}

/// What a build script asks for, and the names of its entry points. It is read as text: a word that is not known here fails
/// the test.
fn kernel(script: &str) -> (Kernel, Vec<String>) {
    let (_, chain) = script.split_once("ascend_build::").expect("a call of ascend_build");
    let (chain, _) = chain.split_once(".build()").expect("the chain ends with build()");
    let mut kernel: Option<Kernel> = None;
    let mut entries = Vec::new();
    for link in chain.split(')').map(|link| link.trim().trim_start_matches('.')).filter(|link| !link.is_empty()) {
        let (word, argument) = link.split_once('(').expect("a call");
        let argument = argument.trim().trim_matches('"').to_owned();
        if word == "mix" {
            entries.push(argument.clone());
        }
        kernel = Some(match (kernel, word) {
            (None, "kernel") => ascend_build::kernel(&argument),
            (Some(kernel), "mix") => kernel.mix(argument),
            (Some(kernel), "source") => kernel.source(argument),
            (Some(kernel), "include") => kernel.include(argument),
            (Some(kernel), "define") => kernel.define(argument),
            (Some(kernel), "simt") => kernel.simt(),
            (_, other) => panic!("`{other}` in a build script"),
        });
    }
    (kernel.expect("a kernel"), entries)
}

/// What the linker makes: both halves of each entry point but the last `without`.
fn linked(entries: &[String], without: usize) -> Vec<u8> {
    let names = entries.iter().flat_map(|entry| [format!("{entry}_mix_aic"), format!("{entry}_mix_aiv")]);
    let mut symbols: Vec<_> = names.map(|name| Symbol::kernel(Box::leak(name.into_boxed_str()))).collect();
    symbols.truncate(symbols.len() - without);
    elf(0x1029, &symbols)
}

/// The build of an operator in words.
fn described(folder: &Path) -> String {
    let (kernel, entries) = kernel(&std::fs::read_to_string(folder.join("build.rs")).unwrap());
    let mut text = String::new();
    for soc in ["910b", "950"] {
        let (toolkit, out) = (Toolkit::new("9.1.0"), Folder::new());
        let nowhere = out.path().join("nowhere");
        let variables: BTreeMap<&str, &Path> = [
            ("ASCEND_RT_SYSROOT", nowhere.as_path()),
            ("HOME", nowhere.as_path()),
            ("ASCEND_HOME_PATH", toolkit.root()),
            ("ASCEND_RT_SOC", Path::new(soc)),
        ]
        .into();
        let script = Script {
            env: ascend_build::env::Env::of(variables),
            dir: folder.to_owned(),
            out: out.path().to_owned(),
            host: HOST.to_owned(),
        };
        toolkit.gives(&linked(&entries, 0));
        let outcome = kernel.try_build(&script).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let names = [("$CRATE", folder), ("$OUT", out.path())];
        let _ = writeln!(text, "SoC {soc}");
        for call in toolkit.calls(&names) {
            let _ = writeln!(text, "  {call}");
        }
        for blob in &outcome.blobs {
            let same = std::fs::read(&blob.path).unwrap() == linked(&entries, 0);
            let name = blob.path.file_name().unwrap_or_default().to_string_lossy();
            let _ = writeln!(text, "  {}: {name}, {} bytes, as linked: {same}", blob.arch, blob.bytes);
        }
        let rust = std::fs::read_to_string(out.path().join("kernels.rs")).unwrap();
        for line in rust.lines().filter(|line| line.contains("include_bytes!")) {
            let _ = writeln!(text, "  embedded: {}", line.trim());
        }
        // One half of the last entry point is not there.
        toolkit.gives(&linked(&entries, 1));
        let error = kernel.try_build(&script).expect_err("an entry point is missing").to_string();
        let mut error = error.replace(&*folder.to_string_lossy(), "$CRATE");
        for (name, path) in [("$CANN", toolkit.root()), ("$OUT", out.path())] {
            error = error.replace(&*path.to_string_lossy(), name);
        }
        let _ = writeln!(text, "  half of an entry point: {}", error.lines().next().unwrap_or_default());
    }
    text
}

#[test]
fn builds_of_the_operators_are_as_kept() {
    let operators = operators();
    assert!(operators.len() >= 5, "{operators:?}");
    for folder in operators {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/operators/{name}.txt"));
        let found = described(&folder);
        if std::env::var_os("SNAPSHOTS").is_some_and(|value| value == "renew") {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &found).unwrap();
            continue;
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let differing = kept.lines().zip(found.lines()).find(|(kept, found)| kept != found);
        assert_eq!(differing, None, "{}, kept and found; SNAPSHOTS=renew writes the file", path.display());
        assert_eq!(kept.lines().count(), found.lines().count(), "{}", path.display());
    }
}
