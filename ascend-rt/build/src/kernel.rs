// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a build script says about its kernels, and what is done with it.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::arch::{self, Arch};
use crate::command::Invocation;
use crate::emit::{self, Blob, Outcome, Part};
use crate::env::Env;
use crate::error::Error;
use crate::find::{self, Toolkit, Way};
use crate::twin::{self, Twin};
use crate::{bisheng, cmake, depfile, elf};

/// Variables that decide something here.
const VARIABLES: [&str; 6] =
    ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_RT_BUILD", "ASCEND_RT_SOC", "ASCEND_RT_SYSROOT", "DOCS_RS"];

/// The cores that a kernel runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cores {
    /// Vector cores.
    Vector,
    /// Cube cores.
    Cube,
    /// Groups of both.
    Mix,
}

/// A kernel that a host launches by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The C name.
    pub name: String,
    /// What it runs on.
    pub cores: Cores,
}

/// All that a compiler of the sources must know: the same for the device and for any other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// The name of the module.
    pub name: String,
    /// Absolute paths.
    pub sources: Vec<PathBuf>,
    /// Absolute paths.
    pub includes: Vec<PathBuf>,
    /// `NAME` or `NAME=VALUE`.
    pub defines: Vec<String>,
    /// Whether the sources have code for threads of vector cores, which the compiler must be told on [`Arch::Dav3510`].
    pub simt: bool,
    /// The kernels that must come out.
    pub entries: Vec<Entry>,
    /// The folder that commands run in: that of the crate.
    pub dir: PathBuf,
}

/// What cargo tells a build script.
#[derive(Clone, Debug)]
pub struct Script {
    /// The environment.
    pub env: Env,
    /// The folder of the crate.
    pub dir: PathBuf,
    /// Where results go.
    pub out: PathBuf,
    /// The architecture of this machine, as in `x86_64`.
    pub host: String,
}

impl Script {
    /// The build script that this process is.
    ///
    /// # Errors
    ///
    /// It is none.
    pub fn of_process() -> Result<Self, Error> {
        let env = Env::of_process();
        let path = |name| env.path(name).map(Path::to_owned).ok_or(Error::NotABuildScript { name });
        let (dir, out) = (path("CARGO_MANIFEST_DIR")?, path("OUT_DIR")?);
        Ok(Self { dir, out, host: std::env::consts::ARCH.to_owned(), env })
    }

    /// How many commands run at once.
    fn jobs(&self) -> usize {
        let jobs = self.env.get("NUM_JOBS").and_then(|jobs| jobs.to_str()?.parse().ok());
        jobs.unwrap_or(1).clamp(1, 64)
    }
}

/// Which of the three states was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Auto,
    Off,
    Require,
}

impl Mode {
    fn of(env: &Env) -> Result<Self, Error> {
        if env.get("DOCS_RS").is_some() {
            return Ok(Self::Off);
        }
        match env.get("ASCEND_RT_BUILD").map(|value| value.to_string_lossy()).as_deref() {
            None | Some("auto") => Ok(Self::Auto),
            Some("off") => Ok(Self::Off),
            Some("require") => Ok(Self::Require),
            Some(value) => Err(Error::Variable {
                name: "ASCEND_RT_BUILD",
                value: value.to_owned(),
                expected: "expected auto, off or require".to_owned(),
            }),
        }
    }
}

/// The kernels of a crate, being described. [`kernel`](crate::kernel) begins it, [`build`](Self::build) ends it.
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `build`"]
pub struct Kernel {
    name: String,
    sources: Vec<PathBuf>,
    includes: Vec<PathBuf>,
    defines: Vec<String>,
    simt: bool,
    entries: Vec<Entry>,
}

impl Kernel {
    pub(crate) fn new(name: String) -> Self {
        let (sources, includes) = (Vec::new(), vec![PathBuf::from("kernel")]);
        Self { name, sources, includes, defines: Vec::new(), simt: false, entries: Vec::new() }
    }

    /// One more source file, relative to the crate. Without any, it is `kernel/<name>.cpp`.
    pub fn source(mut self, path: impl Into<PathBuf>) -> Self {
        self.sources.push(path.into());
        self
    }

    /// One more folder of headers, relative to the crate. `kernel` is always one.
    pub fn include(mut self, path: impl Into<PathBuf>) -> Self {
        self.includes.push(path.into());
        self
    }

    /// A macro: `NAME` or `NAME=VALUE`.
    pub fn define(mut self, definition: impl Into<String>) -> Self {
        self.defines.push(definition.into());
        self
    }

    /// The sources have code for threads of vector cores (950 only).
    pub fn simt(mut self) -> Self {
        self.simt = true;
        self
    }

    /// A kernel for vector cores that must come out.
    pub fn vector(self, name: impl Into<String>) -> Self {
        self.entry(name, Cores::Vector)
    }

    /// A kernel for cube cores that must come out.
    pub fn cube(self, name: impl Into<String>) -> Self {
        self.entry(name, Cores::Cube)
    }

    /// A kernel for groups of cube and vector cores that must come out.
    pub fn mix(self, name: impl Into<String>) -> Self {
        self.entry(name, Cores::Mix)
    }

    fn entry(mut self, name: impl Into<String>, cores: Cores) -> Self {
        self.entries.push(Entry { name: name.into(), cores });
        self
    }

    /// Compiles, or says why not. Ends the build script with exit code 1 where the build must fail.
    pub fn build(self) {
        let outcome = Script::of_process().and_then(|script| self.try_build(&script));
        match outcome {
            Ok(outcome) => {
                for directive in &outcome.directives {
                    println!("cargo::{directive}");
                }
            }
            Err(error) => {
                eprintln!("ascend-build: {error}");
                std::process::exit(1);
            }
        }
    }

    /// As [`build`](Self::build), with the environment as a value, and with the directives for cargo as the answer.
    ///
    /// # Errors
    ///
    /// The description or a variable is impossible, a toolkit was required and is not there, or there is one and a
    /// command or a check fails.
    pub fn try_build(&self, script: &Script) -> Result<Outcome, Error> {
        let recipe = self.recipe(&script.dir)?;
        let mode = Mode::of(&script.env)?;
        let asked_for = script.env.get("ASCEND_RT_SOC").map(|list| arch::parse(&list.to_string_lossy())).transpose()?;

        let mut directives: Vec<String> = ["ascend_kernels", "ascend_twin"]
            .map(|name| format!(r#"rustc-check-cfg=cfg({name}, values("none", "built"))"#))
            .into();
        directives.extend(VARIABLES.map(|name| format!("rerun-if-env-changed={name}")));
        directives.extend(recipe.sources.iter().map(|source| format!("rerun-if-changed={}", source.display())));

        let device = device_code(&recipe, mode, asked_for.clone(), script, &mut directives)?;
        let twin = twin_images(&recipe, asked_for, script, &mut directives)?;
        emit::files(&recipe, &device, &twin, &script.out)?;
        Ok(Outcome { blobs: device.blobs, images: twin.blobs, directives })
    }

    /// The description with absolute paths, checked as far as it can be without a compiler.
    ///
    /// # Errors
    ///
    /// A name is no identifier, a source is not there, or no kernel is named.
    pub fn recipe(&self, dir: &Path) -> Result<Recipe, Error> {
        let refuse = |what: String| Error::Recipe { kernel: self.name.clone(), what };
        let identifier = |name: &str| {
            let head = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
            head && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        if !identifier(&self.name) {
            return Err(refuse("the name of the module is expected to be a C identifier".to_owned()));
        }
        if self.entries.is_empty() {
            return Err(refuse("expected the kernels it has: `.vector(..)`, `.cube(..)`, `.mix(..)`".to_owned()));
        }
        for (at, entry) in self.entries.iter().enumerate() {
            if !identifier(&entry.name) {
                return Err(refuse(format!("`{}` is no C identifier", entry.name)));
            }
            if self.entries[..at].iter().any(|before| before.name == entry.name) {
                return Err(refuse(format!("`{}` is named twice", entry.name)));
            }
        }
        let default = PathBuf::from(format!("kernel/{}.cpp", self.name));
        let sources = if self.sources.is_empty() { vec![default] } else { self.sources.clone() };
        for source in &sources {
            if !dir.join(source).is_file() {
                return Err(refuse(format!("no source `{}` in {}", source.display(), dir.display())));
            }
        }
        let mut includes = Vec::new();
        for path in self.includes.iter().map(|path| dir.join(path)).filter(|path| path.is_dir()) {
            if !includes.contains(&path) {
                includes.push(path);
            }
        }
        Ok(Recipe {
            name: self.name.clone(),
            sources: sources.iter().map(|source| dir.join(source)).collect(),
            includes,
            defines: self.defines.clone(),
            simt: self.simt,
            entries: self.entries.clone(),
            dir: dir.to_owned(),
        })
    }
}

/// Compiles for the device, where there is a toolkit.
fn device_code(
    recipe: &Recipe,
    mode: Mode,
    asked_for: Option<Vec<Arch>>,
    script: &Script,
    directives: &mut Vec<String>,
) -> Result<Part, Error> {
    let mut none = |why: &str, warns: bool| {
        if warns {
            directives.push(format!("warning={}: built without device code: {why}", recipe.name));
        }
        directives.push(r#"rustc-cfg=ascend_kernels="none""#.to_owned());
        Ok(Part::none(why))
    };
    if mode == Mode::Off {
        let name = if script.env.get("DOCS_RS").is_some() { "DOCS_RS is set" } else { "ASCEND_RT_BUILD=off" };
        return none(name, false);
    }
    let found = find::find(&script.env, &script.host);
    let Some(toolkit) = &found.toolkit else {
        let why = found.why_none();
        return if mode == Mode::Require {
            Err(Error::NoToolkit { why })
        } else {
            none(&format!("no CANN toolkit: {why}"), true)
        };
    };
    directives.push(format!("rerun-if-changed={}", toolkit.bisheng.display()));

    let built = match &toolkit.way {
        Way::Bisheng { linker } => by_architecture(recipe, toolkit, linker, asked_for, script)?,
        Way::CMake { script: file } => by_cmake(recipe, toolkit, file, asked_for, script)?,
    };
    directives.extend(built.read.iter().map(|path| format!("rerun-if-changed={}", path.display())));
    directives
        .extend(built.skipped.iter().map(|(arch, why)| format!("warning={}: no code for {arch}: {why}", recipe.name)));
    directives.push(r#"rustc-cfg=ascend_kernels="built""#.to_owned());
    Ok(Part::built(toolkit.to_string(), built.blobs))
}

/// Compiles for the twin, where the crate's feature `sim` is on.
fn twin_images(
    recipe: &Recipe,
    asked_for: Option<Vec<Arch>>,
    script: &Script,
    directives: &mut Vec<String>,
) -> Result<Part, Error> {
    let why_none = if script.env.get("DOCS_RS").is_some() {
        Some("DOCS_RS is set")
    } else {
        script.env.get("CARGO_FEATURE_SIM").is_none().then_some("the feature `sim` is off")
    };
    if let Some(why) = why_none {
        directives.push(r#"rustc-cfg=ascend_twin="none""#.to_owned());
        return Ok(Part::none(why));
    }
    directives.push("rerun-if-env-changed=CXX".to_owned());
    let place = |name| script.env.path(name).ok_or(Error::NoTwin { name });
    let (include, folder) = (place("DEP_ASCEND_TWIN_INCLUDE")?, place("DEP_ASCEND_TWIN_LIB")?);
    let mut twin = Twin::find(&script.env, include, folder)?;
    let mut read = Vec::new();
    let mut units = Vec::new();
    for arch in twin::ARCHS {
        if asked_for.as_ref().is_none_or(|asked| asked.contains(&arch)) {
            twin.library = Twin::archive(folder, arch);
            units.push(twin::unit(&twin, recipe, arch, &script.out)?);
            read.push(twin.library.clone());
        }
    }
    if units.is_empty() {
        directives.push(r#"rustc-cfg=ascend_twin="none""#.to_owned());
        return Ok(Part::none("ASCEND_RT_SOC names no architecture that the twin knows"));
    }
    let commands = units.iter().map(twin::prepare).collect::<Result<Vec<_>, _>>()?;
    run_all(&commands, script.jobs())?;

    let mut blobs = Vec::new();
    for unit in units {
        for path in twin::read_by(&unit, recipe) {
            if !read.contains(&path) && !recipe.sources.contains(&path) {
                read.push(path);
            }
        }
        let bytes = std::fs::read(&unit.image).map_err(|error| Error::File { path: unit.image.clone(), error })?;
        blobs.push(Blob::new(unit.arch, unit.image, &bytes));
    }
    directives.extend(read.iter().map(|path| format!("rerun-if-changed={}", path.display())));
    directives.push(r#"rustc-cfg=ascend_twin="built""#.to_owned());
    Ok(Part::built(twin.version()?, blobs))
}

/// What the two ways come to.
struct Built {
    blobs: Vec<Blob>,
    /// Files that decided what came out.
    read: Vec<PathBuf>,
    /// Architectures that nobody asked for by name and the compiler does not know.
    skipped: Vec<(Arch, String)>,
}

fn by_architecture(
    recipe: &Recipe,
    toolkit: &Toolkit,
    linker: &Path,
    asked_for: Option<Vec<Arch>>,
    script: &Script,
) -> Result<Built, Error> {
    let mut skipped = Vec::new();
    let mut archs = asked_for.clone().unwrap_or_else(|| Arch::DEFAULT.to_vec());
    let probe = script.out.join("probe.asc");
    write(&probe, bisheng::PROBE.as_bytes())?;
    let mut refusals = Vec::new();
    archs.retain(|&arch| match bisheng::probe(toolkit, arch, &probe, &script.out).run() {
        Ok(_) => true,
        Err(error) => {
            refusals.push((arch, error));
            false
        }
    });
    if archs.is_empty() || (asked_for.is_some() && !refusals.is_empty()) {
        let (arch, error) = refusals.swap_remove(0);
        let why = format!("{toolkit} does not compile an empty kernel for it: {error}");
        return Err(Error::Unsupported { arch, why });
    }
    skipped.extend(refusals.into_iter().map(|(arch, _)| (arch, format!("{toolkit} does not know it"))));

    let units: Vec<bisheng::Unit> =
        archs.iter().flat_map(|&arch| bisheng::units(toolkit, recipe, arch, &script.out)).collect();
    let commands: Vec<&Invocation> = units.iter().map(|unit| &unit.command).collect();
    run_all(&commands, script.jobs())?;

    let mut read = Vec::new();
    for unit in &units {
        // A compiler that writes no list leaves us the sources, which are watched anyway.
        let listed = std::fs::read_to_string(&unit.depfile).map(|text| depfile::parse(&text)).unwrap_or_default();
        for path in listed.into_iter().map(|path| recipe.dir.join(path)) {
            // A file that is there during the compilation only would make cargo compile every time.
            if path.exists() && !read.contains(&path) && !recipe.sources.contains(&path) {
                read.push(path);
            }
        }
    }
    let mut blobs = Vec::new();
    for arch in archs {
        let objects: Vec<&Path> =
            units.iter().filter(|unit| unit.arch == arch).map(|unit| unit.object.as_path()).collect();
        let file = script.out.join(format!("{}-{arch}.o", recipe.name));
        let command = bisheng::link(toolkit, linker, &objects, &file, &recipe.dir);
        command.run()?;
        blobs.push(checked(recipe, arch, file, command)?);
    }
    Ok(Built { blobs, read, skipped })
}

fn by_cmake(
    recipe: &Recipe,
    toolkit: &Toolkit,
    file: &Path,
    asked_for: Option<Vec<Arch>>,
    script: &Script,
) -> Result<Built, Error> {
    let mut skipped = Vec::new();
    let mut archs = Vec::new();
    for arch in asked_for.clone().unwrap_or_else(|| Arch::DEFAULT.to_vec()) {
        match arch.cmake_soc() {
            Some(soc) => archs.push((arch, soc)),
            None if asked_for.is_some() => {
                let why = format!("{toolkit} does not know its chips; CANN 9.0 or later does");
                return Err(Error::Unsupported { arch, why });
            }
            None => skipped.push((arch, format!("{toolkit} does not know its chips"))),
        }
    }
    let program = script.env.program("cmake").ok_or_else(|| Error::NoProgram {
        name: "cmake",
        why: format!("{toolkit} compiles kernels through its own build files; CANN 8.5 and later do without"),
    })?;
    let mut blobs = Vec::new();
    for (arch, soc) in archs {
        let folder = script.out.join(format!("cmake-{arch}"));
        // What CMake remembers of another toolkit is an error to it.
        if folder.exists() {
            std::fs::remove_dir_all(&folder).map_err(|error| Error::File { path: folder.clone(), error })?;
        }
        std::fs::create_dir_all(&folder).map_err(|error| Error::File { path: folder.clone(), error })?;
        write(&folder.join("CMakeLists.txt"), cmake::lists(recipe, file).as_bytes())?;
        cmake::configure(&program, toolkit, soc, &folder).run()?;
        let command = cmake::build(&program, toolkit, &folder, script.jobs());
        command.run()?;
        let made = cmake::result(recipe, &folder);
        let blob = script.out.join(format!("{}-{arch}.o", recipe.name));
        std::fs::copy(&made, &blob).map_err(|error| Error::File { path: made, error })?;
        blobs.push(checked(recipe, arch, blob, command)?);
    }
    // No list of headers comes out of this way: the folders stand for what is in them.
    Ok(Built { blobs, read: recipe.includes.clone(), skipped })
}

/// Checks what was linked.
fn checked(recipe: &Recipe, arch: Arch, path: PathBuf, command: Invocation) -> Result<Blob, Error> {
    let bytes = std::fs::read(&path).map_err(|error| Error::File { path: path.clone(), error })?;
    match elf::check(&bytes, arch, &recipe.entries) {
        Ok(_) => Ok(Blob::new(arch, path, &bytes)),
        Err(error) => Err(Error::Elf { path, command: Box::new(command), error }),
    }
}

/// Runs independent commands, `jobs` at a time. Of several failures it is the first in their order.
fn run_all(commands: &[&Invocation], jobs: usize) -> Result<(), Error> {
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let worker = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(command) = commands.get(at) else { return };
            if let Err(error) = command.run() {
                // No further command begins; those that run end.
                next.store(commands.len(), Ordering::Relaxed);
                failures.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((at, error));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..jobs.min(commands.len()) {
            scope.spawn(worker);
        }
        worker();
    });
    let mut failures = failures.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    failures.sort_by_key(|(at, _)| *at);
    match failures.into_iter().next() {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}

/// Writes a file of ours.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    std::fs::write(path, bytes).map_err(|error| Error::File { path: path.to_owned(), error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes() {
        let mode = |variables: &[(&str, &str)]| Mode::of(&Env::of(variables.iter().copied()));
        assert_eq!(mode(&[]).unwrap(), Mode::Auto);
        assert_eq!(mode(&[("ASCEND_RT_BUILD", "off")]).unwrap(), Mode::Off);
        assert_eq!(mode(&[("ASCEND_RT_BUILD", "require")]).unwrap(), Mode::Require);
        // The documentation host has no toolkit, whatever else is set.
        assert_eq!(mode(&[("ASCEND_RT_BUILD", "require"), ("DOCS_RS", "1")]).unwrap(), Mode::Off);
        let message = mode(&[("ASCEND_RT_BUILD", "on")]).unwrap_err().to_string();
        assert_eq!(message, r#"ASCEND_RT_BUILD="on": expected auto, off or require"#);
    }

    #[test]
    fn descriptions_that_cannot_be() {
        let dir = Path::new("/nowhere");
        let kernel = |name: &str| Kernel::new(name.to_owned());
        for (kernel, part) in [
            (kernel("a-b").vector("k"), "C identifier"),
            (kernel("").vector("k"), "C identifier"),
            (kernel("a"), "expected the kernels"),
            (kernel("a").mix("1k"), "`1k` is no C identifier"),
            (kernel("a").mix("k").cube("k"), "`k` is named twice"),
            (kernel("a").cube("k"), "no source `kernel/a.cpp`"),
        ] {
            let message = kernel.recipe(dir).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn the_first_failure_of_several_is_told() {
        let sh = |script: &str| Invocation::new("sh").args(["-c", script]);
        let commands = [sh("exit 0"), sh("sleep 0.1; exit 7"), sh("exit 8"), sh("exit 9")];
        for jobs in [1, 2, 4, 9] {
            let error = run_all(&commands.each_ref(), jobs).unwrap_err().to_string();
            let first = if jobs == 1 { "status: 7" } else { "status: " };
            assert!(error.contains(first), "{jobs}: {error}");
        }
        assert!(run_all(&[], 4).is_ok());
    }
}
