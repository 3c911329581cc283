// SPDX-License-Identifier: MIT OR Apache-2.0

//! The workspace as `cargo metadata` describes it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;

use crate::cargo::Call;

/// The members and where they are built.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) members: Vec<Member>,
}

/// One crate of the workspace. Fields that a manifest may leave out are empty then.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: String,
    pub(crate) name: String,
    /// Folder, relative to the workspace root.
    pub(crate) folder: String,
    /// Read from the folder; `None` if the map has no such place.
    pub(crate) role: Option<Role>,
    pub(crate) published: bool,
    pub(crate) description: String,
    pub(crate) license: String,
    pub(crate) repository: String,
    pub(crate) readme: String,
    pub(crate) rust_version: String,
    pub(crate) keywords: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) features: Vec<String>,
}

/// One entry of a manifest's dependency tables.
#[derive(Debug)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Which table lists it.
    pub(crate) table: Table,
    /// Version requirement; `*` if none is given.
    pub(crate) requirement: String,
    /// Given by path: a crate of this workspace.
    pub(crate) ours: bool,
    /// Compiled only if a feature asks for it.
    pub(crate) optional: bool,
}

/// The tables of a manifest that list dependencies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Table {
    Normal,
    Dev,
    Build,
}

/// What a crate is for, which decides whom it may know.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Role {
    /// `ascend-rt`: devices.
    Runtime,
    /// `ascend-rt/build`: what build scripts call.
    Build,
    /// `ascend-rt/sim`: kernels on any machine.
    Twin,
    /// `ascend-rt/check`: the declarations of the runtime against genuine headers.
    Check,
    /// `ops/cpu`: formats, SIMD levels, tiles.
    Tiles,
    /// `ops/testkit`: test machinery.
    Testkit,
    /// Any other folder of `ops/`: one operator.
    Op,
    /// `model-minimax`: the runner.
    Model,
    /// `xtask`: this program.
    Tool,
}

impl Role {
    fn of(folder: &str) -> Option<Self> {
        match folder {
            "ascend-rt" => Some(Self::Runtime),
            "ascend-rt/build" => Some(Self::Build),
            "ascend-rt/sim" => Some(Self::Twin),
            "ascend-rt/check" => Some(Self::Check),
            "ops/cpu" => Some(Self::Tiles),
            "ops/testkit" => Some(Self::Testkit),
            "model-minimax" => Some(Self::Model),
            "xtask" => Some(Self::Tool),
            _ => folder.strip_prefix("ops/").is_some_and(|op| !op.contains('/')).then_some(Self::Op),
        }
    }
}

impl Member {
    /// Path of one of its files, relative to the workspace root.
    pub(crate) fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }
}

impl Workspace {
    /// Reads the manifests and makes the workspace root the current folder.
    pub(crate) fn enter() -> anyhow::Result<Self> {
        let metadata = Call::new("metadata --no-deps --format-version 1").output()?;
        Self::enter_with(&serde_json::from_slice(&metadata)?)
    }

    /// As [`enter`](Self::enter), with the resolved dependencies for this machine's target.
    pub(crate) fn enter_with_graph() -> anyhow::Result<(Self, Graph)> {
        let host = std::process::Command::new("rustc")
            .args(["--print", "host-tuple"])
            .output()
            .context("cannot start `rustc`")?;
        let host = String::from_utf8_lossy(&host.stdout);
        let metadata = Call::new(&format!("metadata --format-version 1 --filter-platform {host}")).output()?;
        let metadata = serde_json::from_slice(&metadata)?;
        Ok((Self::enter_with(&metadata)?, Graph::from_metadata(&metadata)))
    }

    fn enter_with(metadata: &Value) -> anyhow::Result<Self> {
        let workspace = Self::from_metadata(metadata);
        std::env::set_current_dir(&workspace.root)
            .with_context(|| format!("cannot enter {}", workspace.root.display()))?;
        Ok(workspace)
    }

    pub(crate) fn from_metadata(metadata: &Value) -> Self {
        let root = PathBuf::from(text(&metadata["workspace_root"]));
        let member_ids = list(&metadata["workspace_members"]);
        let members = elements(&metadata["packages"])
            .filter(|package| member_ids.contains(&text(&package["id"])))
            .map(|package| Member::from_metadata(package, &root))
            .collect();
        Self { target: text(&metadata["target_directory"]).into(), members, root }
    }

    /// The operators, by name.
    pub(crate) fn ops(&self) -> impl Iterator<Item = &str> {
        self.members.iter().filter(|member| member.role == Some(Role::Op)).map(|member| member.name.as_str())
    }

    /// Whether an operator has sources for the device.
    pub(crate) fn has_kernel(&self, op: &str) -> bool {
        self.member(op).is_some_and(|op| self.root.join(op.file("kernel")).is_dir())
    }

    /// `--features ..` that compiles kernels for the twin, of one operator or of all crates that have the feature.
    pub(crate) fn with_twin(&self, only: Option<&str>) -> String {
        let has = |member: &&Member| {
            member.role != Some(Role::Twin)
                && member.features.iter().any(|feature| feature == "sim")
                && only.is_none_or(|only| member.name == only)
        };
        let all: Vec<String> = self.members.iter().filter(has).map(|member| format!("{}/sim", member.name)).collect();
        if all.is_empty() { String::new() } else { format!("--features {}", all.join(",")) }
    }

    pub(crate) fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name)
    }
}

impl Member {
    fn from_metadata(package: &Value, root: &Path) -> Self {
        let manifest = PathBuf::from(text(&package["manifest_path"]));
        let folder = manifest.parent().and_then(|folder| folder.strip_prefix(root).ok());
        let folder = folder.map_or(String::new(), |folder| folder.to_string_lossy().replace('\\', "/"));
        Self {
            id: text(&package["id"]),
            name: text(&package["name"]),
            role: Role::of(&folder),
            folder,
            // `publish = false` is an empty list of registries; no word about it is null.
            published: package["publish"].as_array().is_none_or(|registries| !registries.is_empty()),
            description: text(&package["description"]),
            license: text(&package["license"]),
            repository: text(&package["repository"]),
            readme: text(&package["readme"]),
            rust_version: text(&package["rust_version"]),
            keywords: list(&package["keywords"]),
            categories: list(&package["categories"]),
            dependencies: elements(&package["dependencies"])
                .map(|dependency| Dependency {
                    name: text(&dependency["name"]),
                    table: match dependency["kind"].as_str() {
                        Some("dev") => Table::Dev,
                        Some("build") => Table::Build,
                        _ => Table::Normal,
                    },
                    requirement: text(&dependency["req"]),
                    ours: dependency["path"].is_string(),
                    optional: dependency["optional"] == true,
                })
                .collect(),
            features: package["features"].as_object().map(|all| all.keys().cloned().collect()).unwrap_or_default(),
        }
    }
}

/// The resolved packages and which of them is compiled into which.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// Name and version by package id.
    packages: BTreeMap<String, (String, String)>,
    /// Normal and build dependencies by package id; development dependencies are left out.
    edges: BTreeMap<String, Vec<String>>,
}

impl Graph {
    pub(crate) fn from_metadata(metadata: &Value) -> Self {
        let packages = elements(&metadata["packages"])
            .map(|package| (text(&package["id"]), (text(&package["name"]), text(&package["version"]))))
            .collect();
        let edges = elements(&metadata["resolve"]["nodes"])
            .map(|node| {
                let compiled_in =
                    |dependency: &&Value| elements(&dependency["dep_kinds"]).any(|entry| entry["kind"] != "dev");
                let to = elements(&node["deps"]).filter(compiled_in).map(|dependency| text(&dependency["pkg"]));
                (text(&node["id"]), to.collect())
            })
            .collect();
        Self { packages, edges }
    }

    /// The shortest chain of names from package `from` (an id) to each package that `wanted` picks by name.
    pub(crate) fn chains(&self, from: &str, wanted: impl Fn(&str) -> bool) -> Vec<Vec<&str>> {
        let name = |id: &str| self.packages.get(id).map_or("?", |(name, _)| name.as_str());
        let mut seen = vec![from];
        let mut paths = vec![vec![name(from)]];
        let mut next = 0;
        while next < seen.len() {
            for id in self.edges.get(seen[next]).into_iter().flatten() {
                if !seen.contains(&id.as_str()) {
                    seen.push(id);
                    paths.push([paths[next].as_slice(), &[name(id)]].concat());
                }
            }
            next += 1;
        }
        paths.retain(|path| path.len() > 1 && wanted(path[path.len() - 1]));
        paths
    }

    /// Packages that are present in more than one version, with their versions.
    pub(crate) fn duplicates(&self) -> Vec<(&str, Vec<&str>)> {
        let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, version) in self.packages.values() {
            versions.entry(name).or_default().push(version);
        }
        versions.into_iter().filter(|(_, versions)| versions.len() > 1).collect()
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn elements(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn list(value: &Value) -> Vec<String> {
    elements(value).map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn roles_follow_the_folders() {
        assert_eq!(Role::of("ascend-rt"), Some(Role::Runtime));
        assert_eq!(Role::of("ascend-rt/build"), Some(Role::Build));
        assert_eq!(Role::of("ascend-rt/sim"), Some(Role::Twin));
        assert_eq!(Role::of("ops/cpu"), Some(Role::Tiles));
        assert_eq!(Role::of("ops/grouped-gemm"), Some(Role::Op));
        assert_eq!(Role::of("ops/grouped-gemm/fuzz"), None);
        assert_eq!(Role::of("scratch"), None);
    }

    #[test]
    fn members_are_read_and_others_left_out() {
        let workspace = Workspace::from_metadata(&json!({
            "workspace_root": "/w", "target_directory": "/w/target", "workspace_members": ["a"],
            "packages": [
                {"id": "a", "name": "alpha", "manifest_path": "/w/ops/alpha/Cargo.toml", "publish": [],
                 "keywords": ["k"],
                 "dependencies": [{"name": "beta", "kind": "dev", "req": "*", "path": "/w/beta"}]},
                {"id": "b", "name": "beta", "manifest_path": "/elsewhere/beta/Cargo.toml"},
            ],
        }));
        assert_eq!(workspace.members.len(), 1);
        let alpha = workspace.member("alpha").unwrap();
        assert_eq!(alpha.file("src/lib.rs"), "ops/alpha/src/lib.rs");
        assert!(!alpha.published);
        assert_eq!((alpha.keywords.len(), alpha.description.as_str()), (1, ""));
        let beta = &alpha.dependencies[0];
        assert!(beta.table == Table::Dev && beta.ours && beta.requirement == "*");
        assert_eq!(workspace.ops().collect::<Vec<_>>(), ["alpha"]);
    }

    #[test]
    fn chains_skip_development_dependencies() {
        let edge = |pkg: &str, kind: Value| json!({"pkg": pkg, "dep_kinds": [{"kind": kind}]});
        let graph = Graph::from_metadata(&json!({
            "packages": [{"id": "a", "name": "a"}, {"id": "b", "name": "b"}, {"id": "c", "name": "c"}, {"id": "d", "name": "d"}],
            "resolve": {"nodes": [
                {"id": "a", "deps": [edge("b", Value::Null), edge("d", json!("dev"))]},
                {"id": "b", "deps": [edge("c", json!("build"))]},
            ]},
        }));
        assert_eq!(graph.chains("a", |name| name == "c"), [["a", "b", "c"]]);
        assert!(graph.chains("a", |name| name == "d").is_empty());
    }

    #[test]
    fn duplicate_versions() {
        let graph = Graph::from_metadata(&json!({"packages": [
            {"id": "1", "name": "syn", "version": "2.0.0"},
            {"id": "2", "name": "syn", "version": "3.0.0"},
            {"id": "3", "name": "half", "version": "2.7.1"},
        ]}));
        assert_eq!(graph.duplicates(), [("syn", vec!["2.0.0", "3.0.0"])]);
    }
}
