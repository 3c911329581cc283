// SPDX-License-Identifier: MIT OR Apache-2.0

//! Which crate may know which.

use super::Finding;
use crate::workspace::{Graph, Member, Role, Table, Workspace};

/// Crates of applications: text, command line, JSON, network. Only the model runner and the unpublished tools use them.
const OF_APPLICATIONS: [&str; 13] = [
    "anyhow",
    "axum",
    "clap",
    "env_logger",
    "hf-hub",
    "hyper",
    "indicatif",
    "minijinja",
    "reqwest",
    "serde_json",
    "tokenizers",
    "tokio",
    "ureq",
];

/// What the runtime does without: its types are bytes and plain numbers, and arrays are the callers'.
const NOT_IN_THE_RUNTIME: [&str; 1] = ["ndarray"];

pub(crate) fn check(workspace: &Workspace, graph: &Graph) -> Vec<Finding> {
    workspace.members.iter().flat_map(|member| check_member(member, workspace, graph)).collect()
}

fn check_member(member: &Member, workspace: &Workspace, graph: &Graph) -> Vec<Finding> {
    let manifest = member.file("Cargo.toml");
    let finding = |message: String| Finding::new(manifest.as_str(), 1, message);
    let Some(role) = member.role else {
        return vec![finding(format!("the map has no place for a crate in `{}`; see ARCHITECTURE.md", member.folder))];
    };
    let mut findings = Vec::new();
    let is_library = matches!(role, Role::Tiles | Role::Op | Role::Runtime | Role::Build | Role::Twin);
    let unwanted = |name: &str| {
        if is_library && OF_APPLICATIONS.contains(&name) {
            return Some("applications");
        }
        (matches!(role, Role::Runtime | Role::Twin) && NOT_IN_THE_RUNTIME.contains(&name))
            .then_some("the runtime's callers")
    };
    for dependency in &member.dependencies {
        // A crate that lists itself for its tests turns on features of its own.
        let is_other = dependency.ours && dependency.name != member.name;
        let other = workspace.member(&dependency.name).filter(|_| is_other).and_then(|other| other.role);
        let normal_twin = other == Some(Role::Twin) && dependency.table == Table::Normal;
        if normal_twin && matches!(role, Role::Op | Role::Model) && !dependency.optional {
            findings.push(finding(format!("`{}` needs `optional = true`: the twin is a feature", dependency.name)));
        }
        let normal_runtime = other == Some(Role::Runtime) && dependency.table == Table::Normal;
        if normal_runtime && role == Role::Twin && !dependency.optional {
            findings.push(finding(format!("`{}` needs `optional = true`: the twin runs without it", dependency.name)));
        }
        if other.is_some_and(|other| !may_know(role, other, dependency.table)) {
            let table = match dependency.table {
                Table::Normal => "dependencies",
                Table::Dev => "dev-dependencies",
                Table::Build => "build-dependencies",
            };
            findings.push(finding(format!("`{}` must not have `{}` in its {table}", member.name, dependency.name)));
        }
        if let Some(whom) = unwanted(&dependency.name).filter(|_| dependency.table != Table::Dev) {
            findings.push(finding(format!("`{}` is for {whom}, not for a library", dependency.name)));
        }
    }
    // Chains of two are the direct dependencies, which the manifest shows for every platform and feature.
    for chain in graph.chains(&member.id, |name| unwanted(name).is_some()) {
        if let [_, _, .., last] = chain.as_slice() {
            let whom = unwanted(last).unwrap_or_default();
            findings.push(finding(format!("compiles in what is for {whom}: {}", chain.join(" -> "))));
        }
    }
    findings
}

fn may_know(who: Role, whom: Role, table: Table) -> bool {
    match (who, whom) {
        (Role::Tool | Role::Testkit | Role::Build, _) => false,
        // The declarations are checked against nothing but headers, and generated code against the real runtime.
        (Role::Check, Role::Runtime) => true,
        (Role::Op | Role::Check, Role::Build) => table == Table::Build,
        (Role::Check, _) => false,
        (_, Role::Testkit) => table == Table::Dev,
        // It compiles kernels while it runs, and brings them to the emulator.
        (Role::Twin, Role::Build | Role::Runtime) | (Role::Op | Role::Model, Role::Twin) => table != Table::Build,
        (Role::Op, Role::Tiles | Role::Runtime) | (Role::Model, Role::Tiles | Role::Op | Role::Runtime) => {
            table != Table::Build
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A workspace of all roles in which `grouped-gemm`, or another crate, has one more dependency.
    fn messages(folder: &str, dependency: Value, nodes: Value) -> Vec<String> {
        let package = |name: &str, place: &str| {
            let dependencies = if place == folder { json!([dependency]) } else { json!([]) };
            json!({"id": name, "name": name, "manifest_path": format!("/w/{place}/Cargo.toml"), "dependencies": dependencies})
        };
        let metadata = json!({
            "workspace_root": "/w",
            "workspace_members": [
                "cpu-tiles", "grouped-gemm", "msa-indexer", "op-testkit", "model-minimax", "xtask",
                "ascend-rt", "ascend-build", "ascend-sim", "ascend-rt-check",
            ],
            "packages": [
                package("cpu-tiles", "ops/cpu"), package("grouped-gemm", "ops/grouped-gemm"),
                package("msa-indexer", "ops/msa-indexer"), package("op-testkit", "ops/testkit"),
                package("model-minimax", "model-minimax"), package("xtask", "xtask"),
                package("ascend-rt", "ascend-rt"), package("ascend-build", "ascend-rt/build"),
                package("ascend-sim", "ascend-rt/sim"), package("ascend-rt-check", "ascend-rt/check"),
                {"id": "ndarray", "name": "ndarray"}, {"id": "rayon", "name": "rayon"}, {"id": "serde_json", "name": "serde_json"},
            ],
            "resolve": {"nodes": nodes},
        });
        check(&Workspace::from_metadata(&metadata), &Graph::from_metadata(&metadata))
            .into_iter()
            .map(|finding| finding.to_string())
            .collect()
    }

    fn ours(name: &str, kind: &str) -> Value {
        json!({"name": name, "kind": if matches!(kind, "dev" | "build") { json!(kind) } else { Value::Null }, "path": "/w"})
    }

    fn optional(name: &str) -> Value {
        json!({"name": name, "kind": null, "path": "/w", "optional": true})
    }

    #[test]
    fn the_twin_and_its_emulator_are_features() {
        for (folder, whom, why) in [
            ("ops/grouped-gemm", "ascend-sim", "the twin is a feature"),
            ("model-minimax", "ascend-sim", "the twin is a feature"),
            ("ascend-rt/sim", "ascend-rt", "the twin runs without it"),
        ] {
            assert_eq!(
                messages(folder, ours(whom, ""), json!([])),
                [format!("{folder}/Cargo.toml:1: `{whom}` needs `optional = true`: {why}")]
            );
        }
    }

    #[test]
    fn allowed_edges_give_no_finding() {
        for (folder, dependency) in [
            ("ops/grouped-gemm", ours("cpu-tiles", "")),
            ("ops/grouped-gemm", ours("op-testkit", "dev")),
            ("ops/grouped-gemm", ours("ascend-rt", "")),
            ("ops/grouped-gemm", ours("ascend-build", "build")),
            ("model-minimax", ours("ascend-rt", "")),
            ("ascend-rt", ours("op-testkit", "dev")),
            ("ascend-rt", json!({"name": "ndarray", "kind": "dev"})),
            ("ascend-rt/check", ours("ascend-rt", "")),
            ("ascend-rt/check", ours("ascend-build", "build")),
            ("ops/grouped-gemm", json!({"name": "ndarray", "kind": null})),
            ("ascend-rt/sim", ours("ascend-build", "")),
            ("ascend-rt/sim", optional("ascend-rt")),
            ("ascend-rt/sim", ours("ascend-rt", "dev")),
            ("ops/grouped-gemm", optional("ascend-sim")),
            ("ops/grouped-gemm", ours("ascend-sim", "dev")),
            ("model-minimax", optional("ascend-sim")),
            ("ops/cpu", ours("op-testkit", "dev")),
            ("ops/cpu", ours("cpu-tiles", "dev")),
            ("model-minimax", ours("grouped-gemm", "")),
            ("model-minimax", json!({"name": "serde_json", "kind": null})),
            ("ops/grouped-gemm", json!({"name": "serde_json", "kind": "dev"})),
            ("xtask", json!({"name": "serde_json", "kind": null})),
        ] {
            assert_eq!(messages(folder, dependency, json!([])), [""; 0], "{folder}");
        }
    }

    #[test]
    fn forbidden_edges_between_our_crates() {
        for (folder, who, whom, kind) in [
            ("ops/grouped-gemm", "grouped-gemm", "msa-indexer", "normal"),
            ("ops/grouped-gemm", "grouped-gemm", "msa-indexer", "dev"),
            ("ops/grouped-gemm", "grouped-gemm", "model-minimax", "normal"),
            ("ops/grouped-gemm", "grouped-gemm", "op-testkit", "normal"),
            ("ops/cpu", "cpu-tiles", "grouped-gemm", "dev"),
            ("ops/testkit", "op-testkit", "cpu-tiles", "normal"),
            ("model-minimax", "model-minimax", "op-testkit", "normal"),
            ("xtask", "xtask", "model-minimax", "normal"),
            ("xtask", "xtask", "ascend-rt", "normal"),
            ("ascend-rt", "ascend-rt", "grouped-gemm", "dev"),
            ("ascend-rt", "ascend-rt", "cpu-tiles", "normal"),
            ("ascend-rt", "ascend-rt", "ascend-build", "build"),
            ("ascend-rt/build", "ascend-build", "ascend-rt", "dev"),
            ("ascend-rt/build", "ascend-build", "ascend-sim", "dev"),
            ("ascend-rt", "ascend-rt", "ascend-sim", "dev"),
            ("ascend-rt/sim", "ascend-sim", "grouped-gemm", "dev"),
            ("ascend-rt/sim", "ascend-sim", "cpu-tiles", "normal"),
            ("ascend-rt/sim", "ascend-sim", "ascend-build", "build"),
            ("ops/cpu", "cpu-tiles", "ascend-sim", "dev"),
            ("ops/grouped-gemm", "grouped-gemm", "ascend-sim", "build"),
            ("xtask", "xtask", "ascend-sim", "normal"),
            ("ascend-rt/check", "ascend-rt-check", "ascend-sim", "dev"),
            ("ops/cpu", "cpu-tiles", "ascend-rt", "normal"),
            ("ops/cpu", "cpu-tiles", "ascend-build", "build"),
            ("ops/grouped-gemm", "grouped-gemm", "ascend-build", "normal"),
            ("ops/grouped-gemm", "grouped-gemm", "ascend-build", "dev"),
            ("ops/grouped-gemm", "grouped-gemm", "ascend-rt", "build"),
            ("model-minimax", "model-minimax", "ascend-build", "build"),
            ("ascend-rt/check", "ascend-rt-check", "grouped-gemm", "dev"),
        ] {
            let table = if kind == "normal" { "dependencies".to_owned() } else { format!("{kind}-dependencies") };
            assert_eq!(
                messages(folder, ours(whom, kind), json!([])),
                [format!("{folder}/Cargo.toml:1: `{who}` must not have `{whom}` in its {table}")]
            );
        }
    }

    #[test]
    fn application_crates_direct_and_through_others() {
        assert_eq!(
            messages("ops/cpu", json!({"name": "clap", "kind": null}), json!([])),
            ["ops/cpu/Cargo.toml:1: `clap` is for applications, not for a library"]
        );
        let normal = json!([{"kind": null}]);
        let nodes = json!([
            {"id": "cpu-tiles", "deps": [{"pkg": "rayon", "dep_kinds": normal}]},
            {"id": "rayon", "deps": [{"pkg": "serde_json", "dep_kinds": normal}]},
        ]);
        assert_eq!(
            messages("ops/cpu", json!({"name": "rayon", "kind": null}), nodes),
            ["ops/cpu/Cargo.toml:1: compiles in what is for applications: cpu-tiles -> rayon -> serde_json"]
        );
    }

    #[test]
    fn the_runtime_has_no_arrays() {
        assert_eq!(
            messages("ascend-rt", json!({"name": "ndarray", "kind": null}), json!([])),
            ["ascend-rt/Cargo.toml:1: `ndarray` is for the runtime's callers, not for a library"]
        );
        let normal = json!([{"kind": null}]);
        let nodes = json!([
            {"id": "ascend-rt", "deps": [{"pkg": "rayon", "dep_kinds": normal}]},
            {"id": "rayon", "deps": [{"pkg": "ndarray", "dep_kinds": normal}]},
        ]);
        assert_eq!(
            messages("ascend-rt", json!({"name": "rayon", "kind": null}), nodes),
            ["ascend-rt/Cargo.toml:1: compiles in what is for the runtime's callers: ascend-rt -> rayon -> ndarray"]
        );
    }

    #[test]
    fn a_crate_outside_the_map() {
        let metadata = json!({
            "workspace_root": "/w", "workspace_members": ["x"],
            "packages": [{"id": "x", "name": "x", "manifest_path": "/w/scratch/x/Cargo.toml"}],
        });
        let findings = check(&Workspace::from_metadata(&metadata), &Graph::default());
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.contains("`scratch/x`"), "{}", findings[0]);
    }
}
