// SPDX-License-Identifier: MIT OR Apache-2.0

//! Documentation in step with the tree.

use super::{Finding, Tree, numbered};
use crate::cli::LEVELS;
use crate::workspace::{Role, Workspace};

/// The commands a newcomer types first.
const FIRST_COMMANDS: [&str; 2] = ["cargo run -p model-minimax -- bench", "cargo xtask test"];
/// Texts that name every crate of the workspace.
const MAPS: [&str; 2] = ["README.md", "ARCHITECTURE.md"];
const README_IS_CRATE_DOC: &str = r#"#![doc = include_str!("../README.md")]"#;
/// Where `cpu-tiles` names its SIMD levels.
const LEVEL_NAMES: &str = "ops/cpu/src/level.rs";

pub(crate) fn check(workspace: &Workspace, tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in &workspace.members {
        let root = member.file("src/lib.rs");
        let is_library = matches!(member.role, Some(Role::Tiles | Role::Op | Role::Runtime | Role::Build | Role::Twin));
        if is_library && !tree.text(&root).unwrap_or_default().lines().any(|line| line == README_IS_CRATE_DOC) {
            findings.push(Finding::new(root, 1, format!("the crate doc is the README: `{README_IS_CRATE_DOC}`")));
        }
        for map in MAPS {
            if !tree.text(map).unwrap_or_default().contains(&format!("`{}`", member.name)) {
                findings.push(Finding::new(map, 1, format!("does not name the crate `{}`", member.name)));
            }
        }
    }
    for command in FIRST_COMMANDS {
        if !tree.text("README.md").unwrap_or_default().contains(command) {
            findings.push(Finding::new("README.md", 1, format!("does not show `{command}`")));
        }
    }
    if !tree.text("CHANGELOG.md").unwrap_or_default().lines().any(|line| line == "## [Unreleased]") {
        findings.push(Finding::new("CHANGELOG.md", 1, "has no section `## [Unreleased]`"));
    }
    let levels = level_names(tree.text(LEVEL_NAMES).unwrap_or_default());
    if levels != LEVELS {
        let message = format!("levels {levels:?}, but `cargo xtask test --level` knows {LEVELS:?}");
        findings.push(Finding::new(LEVEL_NAMES, 1, message));
    }
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with(".md")) {
        for (line, target) in numbered(text).flat_map(|(number, line)| links(line).map(move |target| (number, target)))
        {
            if !tree.contains(&resolve(path, target)) {
                findings.push(Finding::new(path, line, format!("link to `{target}`, which is not in the tree")));
            }
        }
    }
    findings
}

/// The names in match arms of the form `Isa::Variant => "name",`.
fn level_names(source: &str) -> Vec<&str> {
    let arms = source.lines().filter(|line| line.trim_start().starts_with("Isa::"));
    arms.filter_map(|arm| arm.split_once("=> \"")?.1.split('"').next()).collect()
}

/// Targets of the inline links of a line that mean a file of the tree, without their anchors.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| {
        let (target, _) = rest.split_once(')')?;
        let file = target.split('#').next().unwrap_or_default();
        // `::` is a path of Rust items, a scheme is another host.
        (!file.is_empty() && !file.contains(':')).then_some(file)
    })
}

/// The path that a relative link in the file `from` means.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const README: &str = "`grouped-gemm`\ncargo run -p model-minimax -- bench\ncargo xtask test\n";

    const LEVELS_IN_STEP: &str = "\
match self {
    Isa::Scalar => \"scalar\",
    Isa::Avx2 => \"avx2\",
    Isa::Avx512 => \"avx512\",
    Isa::Avx512Bf16 => \"avx512bf16\",
    (Isa::Avx512, true) => \"avx512-model\",
}";

    /// Findings about a good tree with one file replaced.
    fn findings(path: &str, text: &str) -> Vec<String> {
        let workspace = Workspace::from_metadata(&json!({
            "workspace_root": "/w", "workspace_members": ["g"],
            "packages": [{"id": "g", "name": "grouped-gemm", "manifest_path": "/w/ops/grouped-gemm/Cargo.toml"}],
        }));
        let mut tree = Tree::of(&[
            ("README.md", README),
            ("ARCHITECTURE.md", "`grouped-gemm`"),
            ("CHANGELOG.md", "## [Unreleased]\n"),
            ("ops/cpu/src/level.rs", LEVELS_IN_STEP),
            ("ops/grouped-gemm/src/lib.rs", "// line\n#![doc = include_str!(\"../README.md\")]\n"),
        ]);
        tree.files.insert(path.to_owned(), Some(text.to_owned()));
        check(&workspace, &tree).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn docs_in_step() {
        assert_eq!(findings("README.md", README), [""; 0]);
    }

    #[test]
    fn crate_doc_is_the_readme() {
        let found = findings("ops/grouped-gemm/src/lib.rs", "//! Grouped GEMM.\n");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("ops/grouped-gemm/src/lib.rs:1: the crate doc is the README"), "{}", found[0]);
    }

    #[test]
    fn maps_name_every_crate() {
        assert_eq!(findings("ARCHITECTURE.md", "# Map"), ["ARCHITECTURE.md:1: does not name the crate `grouped-gemm`"]);
    }

    #[test]
    fn first_commands_are_shown_literally() {
        let found = findings("README.md", &README.replace("xtask test", "test"));
        assert_eq!(found, ["README.md:1: does not show `cargo xtask test`"]);
    }

    #[test]
    fn changelog_has_an_open_section() {
        assert_eq!(findings("CHANGELOG.md", "## [0.1.0]\n"), ["CHANGELOG.md:1: has no section `## [Unreleased]`"]);
    }

    #[test]
    fn levels_of_the_tiles_and_of_the_command_line() {
        let found = findings("ops/cpu/src/level.rs", &LEVELS_IN_STEP.replace("avx512bf16", "avx10"));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("ops/cpu/src/level.rs:1: levels") && found[0].contains("avx10"), "{}", found[0]);
    }

    #[test]
    fn dead_links() {
        let text = "[a](../README.md#x), [b](#here), [c](https://spdx.org/x), [d](crate::Tile)\n[e](src/main.rs)";
        let found = findings("ops/README.md", text);
        assert_eq!(found, ["ops/README.md:2: link to `src/main.rs`, which is not in the tree"]);
    }
}
