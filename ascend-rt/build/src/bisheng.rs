// SPDX-License-Identifier: MIT OR Apache-2.0

//! CANN 8.5 and later: the commands that compile by architecture, and link.

use std::path::{Path, PathBuf};

use crate::arch::Arch;
use crate::command::Invocation;
use crate::find::Toolkit;
use crate::kernel::Recipe;

/// A source without a kernel: whether it compiles says whether the compiler knows the architecture.
pub const PROBE: &str = "// ascend-build: does the compiler know this architecture?\n";

/// One source for one architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// What it is for.
    pub arch: Arch,
    /// What comes out.
    pub object: PathBuf,
    /// Where the compiler lists what it read.
    pub depfile: PathBuf,
    /// The command.
    pub command: Invocation,
}

/// The command that tries an architecture.
#[must_use]
pub fn probe(toolkit: &Toolkit, arch: Arch, source: &Path, out: &Path) -> Invocation {
    compiler(toolkit, arch, source, &out.join(format!("probe-{arch}.o"))).dir(out)
}

/// The commands that compile each source for one architecture. Two sources of one name in different folders get
/// different objects.
#[must_use]
pub fn units(toolkit: &Toolkit, recipe: &Recipe, arch: Arch, out: &Path) -> Vec<Unit> {
    let stem = |source: &Path| source.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let mut units: Vec<Unit> = Vec::new();
    for (at, source) in recipe.sources.iter().enumerate() {
        let mut name = stem(source);
        if recipe.sources[..at].iter().any(|before| stem(before) == name) {
            name = format!("{name}-{at}");
        }
        let object = out.join(format!("{name}-{arch}.dev.o"));
        let depfile = out.join(format!("{name}-{arch}.d"));
        let mut command = compiler(toolkit, arch, source, &object).args(["-O3", "-std=c++17"]);
        for include in &recipe.includes {
            command = command.joined("-I", include);
        }
        for define in &recipe.defines {
            command = command.joined("-D", define);
        }
        if recipe.simt && arch == Arch::Dav3510 {
            command = command.arg("--enable-simt");
        }
        command = command.args(["-MD", "-MF"]).arg(&depfile).dir(&recipe.dir);
        units.push(Unit { arch, object, depfile, command });
    }
    units
}

fn compiler(toolkit: &Toolkit, arch: Arch, source: &Path, object: &Path) -> Invocation {
    Invocation::new(&toolkit.bisheng)
        .env("ASCEND_HOME_PATH", &toolkit.root)
        .args(["-c", "--asc-aicore-lang"])
        .arg(source)
        .arg("-o")
        .arg(object)
        .joined("--npu-arch=", arch.name())
        .arg("--aicore-only")
}

/// The command that links the objects of one architecture.
#[must_use]
pub fn link(toolkit: &Toolkit, linker: &Path, objects: &[&Path], output: &Path, dir: &Path) -> Invocation {
    Invocation::new(linker)
        .env("ASCEND_HOME_PATH", &toolkit.root)
        .args(["-m", "aicorelinux", "-Ttext=0"])
        .args(objects)
        .args(["-static", "-o"])
        .arg(output)
        .dir(dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::Way;

    #[test]
    fn two_sources_of_one_name() {
        let toolkit = Toolkit {
            root: "/cann".into(),
            bisheng: "/cann/bin/bisheng".into(),
            compiler: String::new(),
            version: None,
            way: Way::Bisheng { linker: "/cann/bin/ld.lld".into() },
        };
        let recipe = Recipe {
            name: "k".into(),
            sources: vec!["/c/a/k.cpp".into(), "/c/b/k.cpp".into()],
            includes: Vec::new(),
            defines: Vec::new(),
            simt: false,
            entries: Vec::new(),
            dir: "/c".into(),
        };
        let objects: Vec<_> =
            units(&toolkit, &recipe, Arch::Dav2201, Path::new("/o")).into_iter().map(|unit| unit.object).collect();
        assert_eq!(objects, ["/o/k-dav-2201.dev.o", "/o/k-1-dav-2201.dev.o"].map(PathBuf::from));
    }
}
