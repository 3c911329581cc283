// SPDX-License-Identifier: MIT OR Apache-2.0

//! The twin: the same sources as a shared object of this machine, against the headers of `ascend-sim`.
//!
//! One shared object ("image") holds one module for one architecture: the sources, a generated file that registers the
//! kernels, and the twin's library. Nothing of it but its entry is visible outside, so that many images live in one
//! process. The same functions serve build scripts and programs that compile a kernel while they run.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::arch::Arch;
use crate::command::Invocation;
use crate::env::{Env, is_program};
use crate::error::Error;
use crate::kernel::{Cores, Recipe, write};
use crate::{depfile, scan};

/// The architectures that the twin knows.
pub const ARCHS: [Arch; 2] = [Arch::Dav2201, Arch::Dav3510];

/// Which cores a block of a kernel takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    /// One vector core.
    AivOnly,
    /// One cube core.
    AicOnly,
    /// One vector core that may wait for others.
    MixAiv10,
    /// One cube core that may wait for others.
    MixAic10,
    /// One cube core and one vector core.
    Mix11,
    /// One cube core and two vector cores.
    Mix12,
}

impl Task {
    /// As the twin's headers spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AivOnly => "ASCEND_TWIN_AIV_ONLY",
            Self::AicOnly => "ASCEND_TWIN_AIC_ONLY",
            Self::MixAiv10 => "ASCEND_TWIN_MIX_AIV_1_0",
            Self::MixAic10 => "ASCEND_TWIN_MIX_AIC_1_0",
            Self::Mix11 => "ASCEND_TWIN_MIX_1_1",
            Self::Mix12 => "ASCEND_TWIN_MIX_1_2",
        }
    }

    /// The cores that it takes.
    #[must_use]
    pub const fn cores(self) -> Cores {
        match self {
            Self::AivOnly | Self::MixAiv10 => Cores::Vector,
            Self::AicOnly | Self::MixAic10 => Cores::Cube,
            Self::Mix11 | Self::Mix12 => Cores::Mix,
        }
    }

    /// What a kernel is whose source says no more than its cores.
    #[must_use]
    pub const fn of(cores: Cores) -> Self {
        match cores {
            Cores::Vector => Self::AivOnly,
            Cores::Cube => Self::AicOnly,
            Cores::Mix => Self::Mix12,
        }
    }
}

/// What compiles for the twin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Twin {
    /// The C++ compiler.
    pub compiler: PathBuf,
    /// What it gets before everything else.
    pub flags: Vec<String>,
    /// The folder of `kernel_operator.h`.
    pub include: PathBuf,
    /// The archive of the twin's library for one architecture.
    pub library: PathBuf,
}

impl Twin {
    /// Looks for a C++ compiler: what `CXX` names (a program, and flags for it after blanks), then `c++`, `g++` and
    /// `clang++` on `PATH`.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn find(env: &Env, include: &Path, library: &Path) -> Result<Self, Error> {
        let found = |compiler: PathBuf, flags: Vec<String>| Self {
            compiler,
            flags,
            include: include.to_owned(),
            library: library.to_owned(),
        };
        let program = |name: &str| {
            let path = Path::new(name);
            if path.components().count() > 1 {
                return is_program(path).then(|| path.to_owned());
            }
            env.program(name)
        };
        if let Some(value) = env.get("CXX") {
            let value = value.to_string_lossy().into_owned();
            let mut words = value.split_whitespace().map(str::to_owned);
            let compiler = program(&value).map(|compiler| (compiler, Vec::new()));
            let split = || Some((program(&words.next()?)?, words.collect()));
            let (compiler, flags) = compiler.or_else(split).ok_or_else(|| Error::Variable {
                name: "CXX",
                value,
                expected: "expected a C++ compiler: a path, or the name of a program on PATH".to_owned(),
            })?;
            return Ok(found(compiler, flags));
        }
        let compiler = ["c++", "g++", "clang++"].into_iter().find_map(program).ok_or(Error::NoCompiler)?;
        Ok(found(compiler, Vec::new()))
    }

    /// The archive of an architecture in the folder where `ascend-sim` has put its libraries.
    #[must_use]
    pub fn archive(folder: &Path, arch: Arch) -> PathBuf {
        folder.join(format!("libascend_twin_{}.a", arch.number()))
    }

    /// The first line of what the compiler says about itself.
    ///
    /// # Errors
    ///
    /// It does not run.
    pub fn version(&self) -> Result<String, Error> {
        let output = Invocation::new(&self.compiler).args(&self.flags).arg("--version").run()?;
        Ok(output.stdout.lines().next().unwrap_or_default().trim().to_owned())
    }
}

/// One image to compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// What it stands for.
    pub arch: Arch,
    /// The generated source: where it goes, and its text.
    pub wrapper: (PathBuf, String),
    /// What comes out.
    pub image: PathBuf,
    /// Where the compiler lists what it read.
    pub depfile: PathBuf,
    /// The command.
    pub command: Invocation,
}

/// The command that makes the image of one architecture, and the source that it needs.
///
/// # Errors
///
/// A source cannot be read, says of a kernel that it runs on other cores than the recipe does, or has a path that no
/// `#include` can name.
pub fn unit(twin: &Twin, recipe: &Recipe, arch: Arch, out: &Path) -> Result<Unit, Error> {
    let stem = format!("{}-{arch}.twin", recipe.name);
    let file = |extension: &str| out.join(format!("{stem}.{extension}"));
    let (wrapper, image, depfile) = (file("cpp"), file("so"), file("d"));
    let mut command = Invocation::new(&twin.compiler)
        .args(&twin.flags)
        .args(["-std=c++17", "-O2", "-ffp-contract=off", "-fno-exceptions", "-fno-rtti"])
        .args(["-shared", "-fPIC", "-fvisibility=hidden"])
        .args(["-Wl,-Bsymbolic", "-Wl,-z,defs", "-Wl,--exclude-libs,ALL"])
        .arg(format!("-D__NPU_ARCH__={}", arch.number()))
        .arg("-DASCEND_TWIN=1");
    let kinds = recipe.entries.iter().map(|entry| entry.cores);
    match kinds.clone().next() {
        Some(Cores::Vector) if kinds.clone().all(|cores| cores == Cores::Vector) => {
            command = command.arg("-DASCEND_TWIN_CORE=1");
        }
        Some(Cores::Cube) if kinds.clone().all(|cores| cores == Cores::Cube) => {
            command = command.arg("-DASCEND_TWIN_CORE=2");
        }
        _ => {}
    }
    for include in recipe.includes.iter().chain([&twin.include]) {
        command = command.joined("-I", include);
    }
    for define in &recipe.defines {
        command = command.joined("-D", define);
    }
    // Places in reports are those of the crate, and nothing of this machine is in the image.
    for folder in [recipe.dir.as_path(), twin.include.as_path(), out] {
        let mut map = folder.as_os_str().to_owned();
        map.push("/=");
        command = command.joined("-ffile-prefix-map=", map);
    }
    let command = command
        .args(["-MMD", "-MF"])
        .arg(&depfile)
        .arg("-o")
        .arg(&image)
        .arg(&wrapper)
        .arg(&twin.library)
        .dir(&recipe.dir);
    Ok(Unit { arch, wrapper: (wrapper, wrapper_text(recipe)?), image, depfile, command })
}

/// The generated source of an image.
fn wrapper_text(recipe: &Recipe) -> Result<String, Error> {
    let refuse = |what: String| Error::Recipe { kernel: recipe.name.clone(), what };
    let mut text = String::from("// Made by ascend-build: kernels, and what makes them known to the twin.\n");
    let mut found = Vec::new();
    for source in &recipe.sources {
        let bytes = std::fs::read(source).map_err(|error| Error::File { path: source.clone(), error })?;
        found.extend(scan::kernels(&String::from_utf8_lossy(&bytes)));
        let path = source.to_str().filter(|path| !path.contains(['"', '\n', '\\']));
        let path = path.ok_or_else(|| refuse(format!("no #include can name the path {}", source.display())))?;
        let _ = writeln!(text, "#include \"{path}\"");
    }
    text += "#include \"twin/register.h\"\n\nASCEND_TWIN_BEGIN\n";
    let mut names = recipe.name.clone();
    for entry in &recipe.entries {
        let scanned = found.iter().find(|kernel| kernel.name == entry.name);
        let task = scanned.and_then(|kernel| kernel.task).unwrap_or(Task::of(entry.cores));
        if task.cores() != entry.cores {
            return Err(refuse(format!(
                "`{}` is described for {:?} cores, and its source says {}",
                entry.name,
                entry.cores,
                task.name()
            )));
        }
        let _ = writeln!(text, "ASCEND_TWIN_KERNEL({}, {})", entry.name, task.name());
        let _ = write!(names, "\\n{}", entry.name);
        for parameter in scanned.map_or(&[][..], |kernel| &kernel.parameters) {
            let _ = write!(names, " {parameter}");
        }
    }
    text += "ASCEND_TWIN_END\n\n";
    text += "// The name of the module, then a line for each kernel with the names of its parameters.\n";
    text += "extern \"C\" {\n";
    text += "extern const char ascend_twin_module[] __attribute__((visibility(\"default\")));\n";
    let _ = writeln!(text, "const char ascend_twin_module[] = \"{names}\";\n}}");
    Ok(text)
}

/// Writes the generated source, and gives the command that is left to run.
///
/// # Errors
///
/// The file cannot be written.
pub fn prepare(unit: &Unit) -> Result<&Invocation, Error> {
    write(&unit.wrapper.0, unit.wrapper.1.as_bytes())?;
    Ok(&unit.command)
}

/// The files that decided what came out of a unit, as far as they are there: the list of the compiler without the
/// generated source.
#[must_use]
pub fn read_by(unit: &Unit, recipe: &Recipe) -> Vec<PathBuf> {
    let listed = std::fs::read_to_string(&unit.depfile).map(|text| depfile::parse(&text)).unwrap_or_default();
    let mut read: Vec<PathBuf> = Vec::new();
    for path in listed.into_iter().map(|path| recipe.dir.join(path)) {
        if path != unit.wrapper.0 && path.exists() && !read.contains(&path) {
            read.push(path);
        }
    }
    read
}

/// Makes the image of one architecture.
///
/// # Errors
///
/// As for [`unit()`], or the compiler fails.
pub fn compile(twin: &Twin, recipe: &Recipe, arch: Arch, out: &Path) -> Result<Unit, Error> {
    let unit = unit(twin, recipe, arch, out)?;
    prepare(&unit)?.run()?;
    Ok(unit)
}
