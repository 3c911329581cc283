// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checks of the tree that the compiler cannot make.
//!
//! Each check is a function from what it looks at to its [`Finding`]s, so that its tests can hand it a small tree in
//! memory.

mod docs;
mod leaks;
mod manifests;
mod sources;
mod walls;

use std::collections::BTreeMap;
use std::fmt;
use std::process::Command;

use anyhow::Context as _;

use crate::workspace::Workspace;

const CHECKS: [(&str, &str); 6] = [
    ("walls", "which crate may depend on which, and what a published library never compiles in"),
    ("manifests", "descriptions, licences, keywords and versions that publishing needs"),
    ("docs", "crate docs are the READMEs, the maps name every crate, level names agree, links resolve"),
    ("leaks", "paths and names of machines, hosts that nobody else can reach, issue numbers"),
    ("headers", "the SPDX line in every source file"),
    ("marks", "ignored tests without a reason, notes of unfinished work"),
];

/// Where a check finds what it looks for and is content: check, path prefix, reason.
const ALLOWED: [(&str, &str, &str); 4] = [
    ("leaks", "ascend-rt/tests/compile_fail/", "what the compiler says, word for word"),
    ("leaks", "xtask/src/tidy/leaks.rs", "the patterns, and samples of them in the tests"),
    ("leaks", "ops/testkit/tests/vendored.rs", "compares the golden data with a copy beside the repository, if any"),
    ("marks", "xtask/src/tidy/sources.rs", "the patterns, and samples of them in the tests"),
];

/// Something to mend.
#[derive(Debug, PartialEq)]
pub(crate) struct Finding {
    pub(crate) path: String,
    /// Counted from one.
    pub(crate) line: usize,
    pub(crate) message: String,
}

impl Finding {
    fn new(path: impl Into<String>, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.into(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Prints what [`run`] looks at.
pub(crate) fn describe() {
    for (name, what) in CHECKS {
        println!("  {name:<10} {what}");
    }
}

/// Runs all checks and prints what they found; whether that is nothing.
pub(crate) fn run() -> anyhow::Result<bool> {
    let (workspace, graph) = Workspace::enter_with_graph()?;
    let tree = Tree::read()?;
    let mut total = 0;
    for (name, _) in CHECKS {
        let mut findings = match name {
            "walls" => walls::check(&workspace, &graph),
            "manifests" => manifests::check(&workspace, &tree),
            "docs" => docs::check(&workspace, &tree),
            "leaks" => leaks::check(&tree, &leaks::names_of_this_machine(&workspace.root)),
            "headers" => sources::headers(&tree),
            _ => sources::marks(&tree),
        };
        findings.retain(|finding| !allowed(name, &finding.path));
        for finding in &findings {
            println!("{name}: {finding}");
        }
        total += findings.len();
    }
    for (name, versions) in graph.duplicates() {
        println!("note: {name} is compiled in {} versions: {}", versions.len(), versions.join(", "));
    }
    println!("tidy: {} checks over {} files, {total} findings", CHECKS.len(), tree.files.len());
    Ok(total == 0)
}

fn allowed(check: &str, path: &str) -> bool {
    ALLOWED.iter().any(|(name, prefix, _reason)| *name == check && path.starts_with(prefix))
}

/// The files of the repository: tracked ones and those that are new and not ignored.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// Text by path relative to the root; `None` for what is not text.
    files: BTreeMap<String, Option<String>>,
}

impl Tree {
    /// Reads the tree below the current folder.
    fn read() -> anyhow::Result<Self> {
        let listing = Command::new("git")
            // Listing needs no trust in the repository's configuration, so a checkout of another user is fine.
            .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .output()
            .context("cannot start `git`")?;
        anyhow::ensure!(
            listing.status.success(),
            "`git ls-files` failed: {}",
            String::from_utf8_lossy(&listing.stderr).trim_end()
        );
        let mut files = BTreeMap::new();
        for path in String::from_utf8(listing.stdout)?.split_terminator('\0') {
            match std::fs::read(path) {
                Ok(bytes) => {
                    let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
                    files.insert(path.to_owned(), text);
                }
                // Still in the index, gone from the disk: about to be deleted.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).with_context(|| format!("cannot read {path}")),
            }
        }
        Ok(Self { files })
    }

    fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    /// Whether it is a file or a folder of the tree.
    fn contains(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        self.files.contains_key(path)
            || self.files.range(folder.clone()..).next().is_some_and(|(file, _)| file.starts_with(&folder))
    }

    fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    /// Text files that are programs: by their extension, or by a `#!` line.
    fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        const EXTENSIONS: [&str; 8] = ["rs", "py", "sh", "c", "cc", "cpp", "h", "hpp"];
        self.texts().filter(|(path, text)| {
            let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
            EXTENSIONS.contains(&extension) || text.starts_with("#!/")
        })
    }

    #[cfg(test)]
    fn of(files: &[(&str, &str)]) -> Self {
        Self { files: files.iter().map(|(path, text)| ((*path).to_owned(), Some((*text).to_owned()))).collect() }
    }
}

/// Lines of a text with their numbers, counted from one.
fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_reads_like_a_compiler_message() {
        assert_eq!(Finding::new("a/b.rs", 3, "wrong").to_string(), "a/b.rs:3: wrong");
    }

    #[test]
    fn exceptions_hold_for_one_check_only() {
        assert!(allowed("leaks", "xtask/src/tidy/leaks.rs"));
        assert!(!allowed("headers", "xtask/src/tidy/leaks.rs"));
        assert!(!allowed("leaks", "xtask/src/tidy.rs"));
    }

    #[test]
    fn a_tree_knows_its_files_and_folders() {
        let tree = Tree::of(&[("ops/cpu/src/lib.rs", ""), ("run", "#!/bin/sh\n"), ("lib.txt", "")]);
        assert!(tree.contains("ops/cpu") && tree.contains("run"));
        assert!(!tree.contains("ops/c") && !tree.contains("ops/cpu/src/lib"));
        assert_eq!(tree.sources().map(|(path, _)| path).collect::<Vec<_>>(), ["ops/cpu/src/lib.rs", "run"]);
    }
}
