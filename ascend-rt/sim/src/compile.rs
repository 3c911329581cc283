// SPDX-License-Identifier: MIT OR Apache-2.0

//! Compiling a kernel while a program runs: for tools and tests. Crates with kernels do it in their build scripts.

use core::fmt;
use std::path::{Path, PathBuf};

use ascend_build::env::Env;
use ascend_build::scan::Found;
use ascend_build::twin::{self, Twin};
use ascend_build::{Arch, Cores, Error, Recipe};

use crate::image::{Image, OpenError};

/// The folder of `kernel_operator.h`.
#[must_use]
pub fn include_dir() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/include"))
}

/// The library that an image of an architecture links. None if the twin does not know the architecture.
#[must_use]
pub fn library(arch: Arch) -> Option<&'static Path> {
    match arch {
        Arch::Dav2201 => Some(Path::new(concat!(env!("OUT_DIR"), "/libascend_twin_2201.a"))),
        Arch::Dav3510 => Some(Path::new(concat!(env!("OUT_DIR"), "/libascend_twin_3510.a"))),
        _ => None,
    }
}

/// Why there is no image.
#[derive(Debug)]
#[non_exhaustive]
pub enum CompileError {
    /// The description is impossible, or the compiler fails.
    Build(Error),
    /// What came out does not open.
    Open(OpenError),
    /// A folder or file cannot be made.
    Io {
        /// Which.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Build(error) => error.fmt(f),
            Self::Open(error) => error.fmt(f),
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for CompileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Build(error) => Some(error),
            Self::Open(error) => Some(error),
            Self::Io { error, .. } => Some(error),
        }
    }
}

impl From<Error> for CompileError {
    fn from(error: Error) -> Self {
        Self::Build(error)
    }
}

impl From<OpenError> for CompileError {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

/// Compiles a recipe for the twin of an architecture with the C++ compiler that the environment names, and opens what
/// comes out. Nothing is left behind.
///
/// ```no_run
/// let kernel = ascend_build::kernel("add").source("kernel/add.cpp").vector("add");
/// let image = ascend_sim::compile(&kernel.recipe(".".as_ref())?, ascend_build::Arch::Dav2201)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// The architecture has no twin, there is no compiler or it fails, or the image does not open.
pub fn compile(recipe: &Recipe, arch: Arch) -> Result<Image, CompileError> {
    let Some(library) = library(arch) else {
        let why = "the twin knows dav-2201 and dav-3510".to_owned();
        return Err(Error::Unsupported { arch, why }.into());
    };
    let twin = Twin::find(&Env::of_process(), include_dir(), library)?;
    let folder = Folder::new().map_err(|(path, error)| CompileError::Io { path, error })?;
    let unit = twin::compile(&twin, recipe, arch, &folder.0)?;
    // Opened as a file of its own: the folder goes away.
    Ok(Image::open(&unit.image)?)
}

/// The recipe of one source: a module of the file's name with the kernels that its text shows, or the one of them that
/// is named. `cores` is what kernels run on whose text does not say it; vector cores without it. Places in reports are
/// relative to `root`.
///
/// # Errors
///
/// The file cannot be read, or has no kernel.
pub fn kernel_of(
    source: &Path,
    root: &Path,
    entry: Option<&str>,
    cores: Option<Cores>,
) -> Result<Recipe, CompileError> {
    let io = |error| CompileError::Io { path: source.to_owned(), error };
    let text = std::fs::read(source).map_err(io)?;
    let path = std::path::absolute(source).map_err(io)?;
    let stem = source.file_stem().unwrap_or_default().to_string_lossy();
    let mut name: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name.insert(0, '_');
    }
    let mut kernel = ascend_build::kernel(name).source(path.clone());
    if let Some(folder) = path.parent() {
        kernel = kernel.include(folder);
    }
    let mut found = ascend_build::scan::kernels(&String::from_utf8_lossy(&text));
    if let Some(entry) = entry {
        found.retain(|kernel| kernel.name == entry);
        if found.is_empty() {
            // A macro may define it.
            found.push(Found { name: entry.to_owned(), parameters: Vec::new(), task: None });
        }
    }
    for found in found {
        let cores = found.task.map(twin::Task::cores).or(cores).unwrap_or(Cores::Vector);
        kernel = match cores {
            Cores::Vector => kernel.vector(found.name),
            Cores::Cube => kernel.cube(found.name),
            Cores::Mix => kernel.mix(found.name),
        };
    }
    Ok(kernel.recipe(&std::path::absolute(root).map_err(io)?)?)
}

/// A folder that only this user can read, and that goes away.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, (PathBuf, std::io::Error)> {
        let path = crate::image::temporary("");
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path).map_err(|error| (path.clone(), error))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
