// SPDX-License-Identifier: MIT OR Apache-2.0

//! What belongs to one machine and not into the tree: paths, names, and addresses nobody else can reach.

use std::path::Path;

use super::{Finding, Tree, numbered};

/// First folders of paths that exist on somebody's machine only. Tests ask the system for a temporary folder instead.
const MACHINE_FOLDERS: [&str; 5] = ["home", "root", "tmp", "work", "Users"];

/// The only hosts that addresses in the tree lead to.
const HOSTS: [&str; 10] = [
    "arxiv.org",
    "doc.rust-lang.org",
    "docs.rs",
    "git-lfs.github.com",
    "github.com",
    "huggingface.co",
    "keepachangelog.com",
    "semver.org",
    "spdx.org",
    "www.apache.org",
];

/// `names` are further words to look for: those of the machine at hand.
pub(crate) fn check(tree: &Tree, names: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts() {
        for (number, line) in numbered(text) {
            findings.extend(leaks_of(line, names).into_iter().map(|message| Finding::new(path, number, message)));
        }
    }
    findings
}

/// The workspace's folder, the user's folder and the host's name, as far as they are telling.
pub(crate) fn names_of_this_machine(root: &Path) -> Vec<String> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    let home = std::env::var("HOME").unwrap_or_default();
    let root = root.to_string_lossy();
    let is_deep = |path: &str| path.split('/').filter(|part| !part.is_empty()).count() >= 2;
    let mut names = Vec::new();
    names.extend([home.as_str(), root.as_ref()].into_iter().filter(|path| is_deep(path)).map(str::to_owned));
    // A host called `laptop` says nothing and would forbid the word; `build-17` is a machine.
    names.extend((host.len() > 4 && host.contains(|c: char| c == '-' || c.is_ascii_digit())).then(|| host.to_owned()));
    names
}

fn leaks_of(line: &str, names: &[String]) -> Vec<String> {
    let lower = line.to_lowercase();
    let mut messages = Vec::new();
    for folder in MACHINE_FOLDERS {
        let folder = format!("/{folder}/");
        if starts_a_path(line, &folder) {
            messages.push(format!("path of a machine: `{folder}`"));
        }
    }
    for name in names {
        if line.contains(name) {
            messages.push(format!("name of this machine: `{name}`"));
        }
    }
    for host in lower.split("://").skip(1).map(host_of) {
        if !host.is_empty() && !HOSTS.contains(&host) {
            messages.push(format!("host `{host}` is not among those that the tree may name"));
        }
    }
    if names_an_issue(&lower) {
        messages.push("issue number: give the reason itself".to_owned());
    }
    messages
}

/// Whether an absolute path with this first folder stands in the line: not one that goes on from something.
fn starts_a_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-~})>]".contains(c))
    })
}

/// The leading part of an address that is its host's name. Empty if it is a placeholder.
fn host_of(address: &str) -> &str {
    let end = address.find(|c: char| !(c.is_ascii_alphanumeric() || ".-".contains(c))).unwrap_or(address.len());
    address[..end].trim_end_matches('.')
}

fn names_an_issue(lower: &str) -> bool {
    lower
        .match_indices("issue ")
        .any(|(at, word)| lower[at + word.len()..].trim_start_matches('#').starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(line: &str) -> Vec<String> {
        leaks_of(line, &["build-17".to_owned()])
    }

    #[test]
    fn each_kind_of_leak_is_found() {
        for (line, expected) in [
            ("let p = \"/tmp/x\";", "path of a machine: `/tmp/`"),
            ("see /home/me/notes", "path of a machine: `/home/`"),
            ("file:///Users/x", "path of a machine: `/Users/`"),
            ("measured on build-17", "name of this machine: `build-17`"),
            ("see http://wiki.corp:8080/x", "host `wiki.corp` is not among those that the tree may name"),
            ("// mended in issue #12", "issue number: give the reason itself"),
            ("// see issue 2", "issue number: give the reason itself"),
        ] {
            assert!(messages(line).contains(&expected.to_owned()), "{line:?} gave {:?}", messages(line));
        }
    }

    #[test]
    fn what_only_resembles_a_leak() {
        for line in [
            "target/tmp/x and ~/tmp/x and {root}/tmp/x",
            "https://github.com/owner/name/tree/main/home/x",
            "format!(\"{scheme}://{host}\")",
            "source = \"registry+https://github.com/rust-lang/crates.io-index\"",
            "the leading dimension; issue loads early; an issue is filed",
        ] {
            assert_eq!(messages(line), [""; 0], "{line:?}");
        }
    }

    #[test]
    fn findings_carry_path_and_line() {
        let tree = Tree::of(&[("a.md", "fine\n/tmp/x\n")]);
        assert_eq!(check(&tree, &[]), [Finding::new("a.md", 2, "path of a machine: `/tmp/`")]);
    }
}
