// SPDX-License-Identifier: MIT OR Apache-2.0

//! Manifests that are ready for publishing.

use super::{Finding, Tree, numbered};
use crate::workspace::{Member, Role, Table, Workspace};

const LICENSE: &str = "MIT OR Apache-2.0";
/// A registry takes no more than this.
const MAX_KEYWORDS: usize = 5;
/// Anything shorter is no description.
const MIN_DESCRIPTION: usize = 20;

pub(crate) fn check(workspace: &Workspace, tree: &Tree) -> Vec<Finding> {
    workspace.members.iter().flat_map(|member| check_member(member, workspace, tree)).collect()
}

fn check_member(member: &Member, workspace: &Workspace, tree: &Tree) -> Vec<Finding> {
    let manifest = member.file("Cargo.toml");
    let text = tree.text(&manifest).unwrap_or_default();
    let mut findings = Vec::new();
    let mut require = |holds: bool, key: &str, message: &str| {
        if !holds {
            let line = numbered(text).find(|(_, line)| line.starts_with(key)).map_or(1, |(number, _)| number);
            findings.push(Finding::new(manifest.as_str(), line, message));
        }
    };
    let for_tests_or_tasks = matches!(member.role, Some(Role::Testkit | Role::Tool | Role::Check));
    require(
        member.published != for_tests_or_tasks,
        "publish",
        if for_tests_or_tasks { "needs `publish = false`" } else { "is to be published, but says `publish = false`" },
    );
    require(member.license == LICENSE, "license", &format!("license must be `{LICENSE}`"));
    require(!member.rust_version.is_empty(), "rust-version", "needs `rust-version`");
    require(
        member.description.len() >= MIN_DESCRIPTION,
        "description",
        "needs a description that says what the crate is for",
    );
    require(text.contains("[lints]\nworkspace = true"), "[lints]", "needs `[lints]` with `workspace = true`");
    if member.published {
        require(!member.repository.is_empty(), "repository", "needs `repository`");
        require(
            !member.readme.is_empty() && tree.contains(&member.file(&member.readme)),
            "readme",
            "needs `readme` and the file it names",
        );
        require(
            (1..=MAX_KEYWORDS).contains(&member.keywords.len()),
            "keywords",
            &format!("needs one to {MAX_KEYWORDS} keywords"),
        );
        require(!member.categories.is_empty(), "categories", "needs `categories`");
    }
    for dependency in member.dependencies.iter().filter(|dependency| dependency.ours) {
        let name = dependency.name.as_str();
        let versioned = dependency.requirement != "*";
        // Publishing drops development dependencies that have a path only, and refuses others that cannot be had.
        if workspace.member(name).is_some_and(|other| !other.published) {
            require(!versioned, name, &format!("dependency `{name}` is not published: give its path only"));
        } else {
            require(
                versioned || dependency.table == Table::Dev,
                name,
                &format!("dependency `{name}` needs a version next to its path"),
            );
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn manifest_of(folder: &str) -> Value {
        json!({
            "id": folder, "name": folder.rsplit('/').next(), "manifest_path": format!("/w/{folder}/Cargo.toml"),
            "publish": null, "description": "An operator for people who run models", "license": LICENSE,
            "repository": "https://github.com/x/y", "readme": "README.md", "rust_version": "1.95",
            "keywords": ["gemm"], "categories": ["science"],
            "dependencies": [
                {"name": "cpu", "kind": null, "req": "^0.1", "path": "/w/ops/cpu"},
                {"name": "testkit", "kind": "dev", "req": "*", "path": "/w/ops/testkit"},
            ],
        })
    }

    /// Findings about an operator whose manifest has `key` replaced by `value`.
    fn findings(key: &str, value: Value, text: &str) -> Vec<Finding> {
        let mut op = manifest_of("ops/gemm");
        op[key] = value;
        let mut cpu = manifest_of("ops/cpu");
        cpu["dependencies"] = json!([]);
        let mut testkit = cpu.clone();
        testkit["id"] = json!("ops/testkit");
        testkit["name"] = json!("testkit");
        testkit["manifest_path"] = json!("/w/ops/testkit/Cargo.toml");
        testkit["publish"] = json!([]);
        let workspace = Workspace::from_metadata(&json!({
            "workspace_root": "/w", "workspace_members": ["ops/gemm", "ops/cpu", "ops/testkit"],
            "packages": [op, cpu, testkit],
        }));
        let lints = "[lints]\nworkspace = true\n";
        let tree = Tree::of(&[
            ("ops/gemm/Cargo.toml", text),
            ("ops/gemm/README.md", ""),
            ("ops/cpu/Cargo.toml", lints),
            ("ops/cpu/README.md", ""),
            ("ops/testkit/Cargo.toml", lints),
        ]);
        check(&workspace, &tree)
    }

    const GOOD: &str = "[package]\nkeywords = []\n\n[lints]\nworkspace = true\n";

    #[test]
    fn a_ready_manifest() {
        assert_eq!(findings("license", json!(LICENSE), GOOD), []);
    }

    #[test]
    fn each_gap_is_one_finding() {
        let path = |name: &str, req: &str| json!([{"name": name, "kind": null, "req": req, "path": "/w"}]);
        for (key, value, message) in [
            ("description", json!("x"), "needs a description that says what the crate is for"),
            ("license", json!("MIT"), "license must be `MIT OR Apache-2.0`"),
            ("repository", Value::Null, "needs `repository`"),
            ("readme", Value::Null, "needs `readme` and the file it names"),
            ("readme", json!("ABOUT.md"), "needs `readme` and the file it names"),
            ("rust_version", Value::Null, "needs `rust-version`"),
            ("keywords", json!(["a", "b", "c", "d", "e", "f"]), "needs one to 5 keywords"),
            ("keywords", json!([]), "needs one to 5 keywords"),
            ("categories", json!([]), "needs `categories`"),
            ("publish", json!([]), "is to be published, but says `publish = false`"),
            ("dependencies", path("cpu", "*"), "dependency `cpu` needs a version next to its path"),
            ("dependencies", path("testkit", "^0.1"), "dependency `testkit` is not published: give its path only"),
        ] {
            let found = findings(key, value, GOOD);
            assert_eq!(found.iter().map(|finding| finding.message.as_str()).collect::<Vec<_>>(), [message], "{key}");
            assert_eq!(found[0].path, "ops/gemm/Cargo.toml");
        }
    }

    #[test]
    fn the_line_of_the_key_is_given() {
        assert_eq!(findings("keywords", json!([]), GOOD)[0].line, 2);
        assert_eq!(findings("categories", json!([]), GOOD)[0].line, 1);
    }

    #[test]
    fn lints_are_the_workspace_s() {
        assert_eq!(
            findings("license", json!(LICENSE), "[package]\n")[0].message,
            "needs `[lints]` with `workspace = true`"
        );
    }

    #[test]
    fn test_machinery_is_not_published() {
        let mut testkit = manifest_of("ops/testkit");
        testkit["dependencies"] = json!([]);
        let workspace = Workspace::from_metadata(&json!({
            "workspace_root": "/w", "workspace_members": ["ops/testkit"], "packages": [testkit],
        }));
        let tree = Tree::of(&[("ops/testkit/Cargo.toml", GOOD), ("ops/testkit/README.md", "")]);
        assert_eq!(check(&workspace, &tree), [Finding::new("ops/testkit/Cargo.toml", 1, "needs `publish = false`")]);
    }
}
