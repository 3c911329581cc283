// SPDX-License-Identifier: MIT OR Apache-2.0

//! Finding and opening a library.

use crate::raw::{Call, Library};
use core::fmt;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// Why a library could not be opened: each place that was tried, and what was wrong there.
#[derive(Clone, Debug)]
pub struct LoadError {
    library: Library,
    tried: Vec<(PathBuf, LoadReason)>,
}

/// What was wrong with one place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadReason {
    /// There is no such file.
    NotFound,
    /// It is a shell for linking (a folder `stub` or `devlib`), with no code in it.
    Stub,
    /// It is a folder.
    Directory,
    /// It is no ELF file.
    NotALibrary,
    /// It cannot be read.
    Unreadable(String),
    /// The system could not open it; its own words.
    Refused(String),
    /// It lacks functions that are needed.
    MissingSymbols(Vec<Call>),
    /// Libraries cannot be opened on this system.
    Platform,
}

impl LoadError {
    fn one(library: Library, path: &Path, reason: LoadReason) -> Self {
        Self { library, tried: vec![(path.to_owned(), reason)] }
    }

    pub(super) fn lacking(opened: &Opened, calls: Vec<Call>) -> Self {
        let library = calls.first().map_or(Library::AscendCl, |call| call.library());
        Self::one(library, &opened.path, LoadReason::MissingSymbols(calls))
    }

    /// The library.
    #[must_use]
    pub fn library(&self) -> Library {
        self.library
    }

    /// Each place with what was wrong there, in the order in which they were tried.
    #[must_use]
    pub fn tried(&self) -> &[(PathBuf, LoadReason)] {
        &self.tried
    }

    /// The functions that a library lacks, when that is what was wrong.
    #[must_use]
    pub fn missing(&self) -> Option<&[Call]> {
        self.tried.iter().find_map(|(_, reason)| match reason {
            LoadReason::MissingSymbols(calls) => Some(calls.as_slice()),
            _ => None,
        })
    }
}

impl fmt::Display for LoadReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("not there"),
            Self::Stub => f.write_str("a stub for linking, expected the library itself"),
            Self::Directory => f.write_str("a folder, expected a file"),
            Self::NotALibrary => f.write_str("no ELF file, expected a shared library"),
            Self::Unreadable(text) => write!(f, "cannot be read: {text}"),
            Self::Refused(text) => write!(f, "does not open: {text}"),
            Self::MissingSymbols(calls) => {
                f.write_str("lacks ")?;
                for (index, call) in calls.iter().take(3).enumerate() {
                    write!(f, "{}{call}", if index == 0 { "" } else { ", " })?;
                }
                if calls.len() > 3 {
                    write!(f, " and {} more", calls.len() - 3)?;
                }
                f.write_str(", expected CANN 8.1 or later")
            }
            Self::Platform => f.write_str("libraries are opened on Unix only"),
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot open {}", self.library)?;
        // What is simply not there says little beside a place that is there and does not work.
        let telling: Vec<_> = self.tried.iter().filter(|(_, reason)| *reason != LoadReason::NotFound).collect();
        if telling.is_empty() {
            write!(f, ": not found in {} places; is CANN installed, and its set_env.sh sourced?", self.tried.len())?;
        }
        for (index, (path, reason)) in telling.iter().enumerate() {
            write!(f, "{} {}: {reason}", if index == 0 { ":" } else { ";" }, path.display())?;
        }
        Ok(())
    }
}

impl std::error::Error for LoadError {}

/// A library that stays open.
pub(super) struct Opened {
    /// Its file, or its name when the system found it.
    pub(super) path: PathBuf,
    #[cfg(unix)]
    library: core::mem::ManuallyDrop<libloading::os::unix::Library>,
}

impl Opened {
    /// A function of the library. The name ends with a zero byte.
    ///
    /// # Safety
    ///
    /// `F` is the type of a function pointer, and that of the function of this name.
    #[cfg(unix)]
    pub(super) unsafe fn symbol<F: Copy>(&self, name: &str) -> Option<F> {
        // SAFETY: the caller gives the right type. The library is never closed, so the copy of the pointer stays good.
        unsafe { self.library.get::<F>(name.as_bytes()) }.ok().map(|symbol| *symbol)
    }

    /// A function of the library: never there on this system.
    ///
    /// # Safety
    ///
    /// None is needed.
    #[cfg(not(unix))]
    pub(super) unsafe fn symbol<F: Copy>(&self, _name: &str) -> Option<F> {
        None
    }
}

/// Whether a path goes through a folder of link stubs.
fn is_stub(path: &Path) -> bool {
    path.components().any(|part| matches!(part, Component::Normal(name) if name == "stub" || name == "devlib"))
}

/// Looks at a file before the system opens it: opening runs code.
fn inspect(path: &Path) -> Result<(), LoadReason> {
    if is_stub(path) {
        return Err(LoadReason::Stub);
    }
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(LoadReason::NotFound),
        Err(error) => return Err(LoadReason::Unreadable(error.to_string())),
    };
    if meta.is_dir() {
        return Err(LoadReason::Directory);
    }
    // A link may lead to a stub.
    if fs::canonicalize(path).is_ok_and(|real| is_stub(&real)) {
        return Err(LoadReason::Stub);
    }
    let mut magic = [0; 4];
    match fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)) {
        Ok(()) if magic == *b"\x7fELF" => Ok(()),
        Ok(()) => Err(LoadReason::NotALibrary),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Err(LoadReason::NotALibrary),
        Err(error) => Err(LoadReason::Unreadable(error.to_string())),
    }
}

#[cfg(unix)]
fn dlopen(name: &OsStr, library: Library) -> Result<Opened, LoadReason> {
    use libloading::os::unix::{self, RTLD_GLOBAL, RTLD_LAZY, RTLD_LOCAL};
    // The profiler finds the runtime's symbols, and the runtime finds its, only when they are global.
    let visibility = if library == Library::Profiler { RTLD_GLOBAL } else { RTLD_LOCAL };
    // SAFETY: opening runs the initialisers of the library and of those it needs. It is AscendCL by name, is no stub,
    // and the user's environment says where it lies; its initialisers are made to be run by any program.
    match unsafe { unix::Library::open(Some(name), RTLD_LAZY | visibility) } {
        Ok(library) => Ok(Opened { path: PathBuf::from(name), library: core::mem::ManuallyDrop::new(library) }),
        Err(error) => Err(LoadReason::Refused(text(&error))),
    }
}

#[cfg(not(unix))]
fn dlopen(_name: &OsStr, _library: Library) -> Result<Opened, LoadReason> {
    Err(LoadReason::Platform)
}

/// The system's own words, which `libloading` keeps as the source of its error.
#[cfg(unix)]
fn text(error: &libloading::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    }
}

/// Where the system found a library that was opened by name, as far as it can be known.
fn mapped(name: &str) -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines()
        .filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])))
        .find(|path| path.file_name().and_then(OsStr::to_str).is_some_and(|file| file.starts_with(name)))
        .map(Path::to_owned)
}

/// The library in one file.
pub(super) fn file(path: &Path) -> Result<Opened, LoadError> {
    let library = Library::AscendCl;
    inspect(path)
        .and_then(|()| dlopen(path.as_os_str(), library))
        .map_err(|reason| LoadError::one(library, path, reason))
}

/// The file names of a library, the best first.
fn names(library: Library) -> &'static [&'static str] {
    match library {
        // From 8.5 on the runtime part has a file of its own; the first is still there, and leads to it.
        Library::AscendCl => &["libascendcl.so", "libacl_rt.so"],
        Library::Profiler => &["libmsprofiler.so"],
        Library::ToolsExtension => &["libms_tools_ext.so"],
    }
}

/// Looks for a library in all places; `beside` is where another one was found.
pub(super) fn search(library: Library, beside: Option<&Path>) -> Result<Opened, LoadError> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if library == Library::AscendCl
        && let Some(path) = variable("ASCEND_RT_LIB")
    {
        // Who names a file wants that file and no other.
        return file(Path::new(&path));
    }

    let mut tried = Vec::new();
    let attempt = |path: PathBuf, tried: &mut Vec<_>| {
        if tried.iter().any(|(before, _)| *before == path) {
            return None;
        }
        match inspect(&path).and_then(|()| dlopen(path.as_os_str(), library)) {
            Ok(opened) => Some(opened),
            Err(reason) => {
                tried.push((path, reason));
                None
            }
        }
    };

    let mut before = Vec::new();
    before.extend(beside.filter(|folder| folder.is_absolute()).map(Path::to_owned));
    if let Some(folders) = variable("LD_LIBRARY_PATH") {
        before.extend(std::env::split_paths(&folders).filter(|folder| folder.is_absolute()));
    }
    let mut after = Vec::new();
    for root in ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"] {
        after.extend(variable(root).map(|root| Path::new(&root).join("lib64")));
    }
    after.push(PathBuf::from("/usr/local/Ascend/cann/lib64"));
    after.push(PathBuf::from("/usr/local/Ascend/ascend-toolkit/latest/lib64"));

    for name in names(library) {
        for folder in &before {
            if let Some(opened) = attempt(folder.join(name), &mut tried) {
                return Ok(opened);
            }
        }
        // The system's own search. It walks LD_LIBRARY_PATH too, so it must not be asked where a stub stands there.
        if tried.iter().any(|(path, reason)| *reason == LoadReason::Stub && path.ends_with(name)) {
            continue;
        }
        match dlopen(OsStr::new(name), library) {
            Ok(mut opened) => match mapped(name) {
                Some(path) if is_stub(&path) => tried.push((path, LoadReason::Stub)),
                path => {
                    opened.path = path.unwrap_or(opened.path);
                    return Ok(opened);
                }
            },
            Err(LoadReason::Refused(text)) if text.contains("No such file") && text.starts_with(name) => {
                tried.push((PathBuf::from(name), LoadReason::NotFound));
            }
            Err(reason) => tried.push((PathBuf::from(name), reason)),
        }
    }
    for name in names(library) {
        for folder in &after {
            if let Some(opened) = attempt(folder.join(name), &mut tried) {
                return Ok(opened);
            }
        }
    }
    Err(LoadError { library, tried })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stubs_are_known_by_their_folder() {
        for path in ["/a/lib64/stub/libascendcl.so", "/a/devlib/linux/x86_64/libascendcl.so", "stub/x.so"] {
            assert!(is_stub(Path::new(path)), "{path}");
        }
        for path in ["/a/lib64/libascendcl.so", "/a/stubs/lib.so", "/a/my-stub/lib.so", "libstub.so"] {
            assert!(!is_stub(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_message_shows_what_tells_most() {
        let error = LoadError {
            library: Library::AscendCl,
            tried: vec![
                (PathBuf::from("/x/libascendcl.so"), LoadReason::NotFound),
                (PathBuf::from("/y/libascendcl.so"), LoadReason::Directory),
            ],
        };
        assert_eq!(error.to_string(), "cannot open libascendcl.so: /y/libascendcl.so: a folder, expected a file");
        let error = LoadError { library: Library::Profiler, tried: Vec::new() };
        assert!(error.to_string().contains("set_env.sh"));
    }
}
