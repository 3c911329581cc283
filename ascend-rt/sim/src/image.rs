// SPDX-License-Identifier: MIT OR Apache-2.0

//! Images: kernels that were compiled for the twin.

use core::ffi::{CStr, c_char};
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use libloading::Library;

use crate::Task;
use crate::abi;

/// The symbol with the names of the module and of the parameters, which the build recipe adds.
const NAMES_SYMBOL: &[u8] = b"ascend_twin_module\0";

/// No table of an image is longer.
const MAX_ENTRIES: usize = 1 << 16;
/// No argument block is longer.
const MAX_ARGS_BYTES: u32 = 1 << 20;

/// Why an image does not open.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// A file cannot be read or written.
    Io {
        /// Which.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// The bytes are no shared object of this machine.
    NotAnImage {
        /// What they are instead.
        found: &'static str,
    },
    /// The system does not load it.
    Load {
        /// Why not.
        reason: String,
    },
    /// A shared object without the one symbol of an image.
    NoSymbol,
    /// It was compiled for another version of the interface.
    Abi {
        /// The version it has.
        found: u32,
    },
    /// A table of the image is damaged.
    Table {
        /// What is wrong.
        what: String,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
            Self::NotAnImage { found } => {
                write!(f, "expected a kernel compiled for the twin, a shared object of this machine; found {found}")
            }
            Self::Load { reason } => write!(f, "the image does not load: {reason}"),
            Self::NoSymbol => f.write_str("a shared object without `ascend_twin_image`: no kernel for the twin"),
            Self::Abi { found } => write!(
                f,
                "the image has version {found} of the interface, expected {}: compile it again with this version",
                abi::ABI
            ),
            Self::Table { what } => write!(f, "the image is damaged: {what}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name, as far as the build recipe found it in the source.
    pub name: Option<String>,
    /// Where it lies in the argument block.
    pub offset: u32,
    /// Its size.
    pub bytes: u32,
    /// Whether it is an address.
    pub is_pointer: bool,
}

/// A kernel of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// What a block takes.
    pub task: Task,
    /// The size of the argument block.
    pub args_bytes: u32,
    /// Its parameters in order.
    pub parameters: Vec<Parameter>,
}

impl Kernel {
    /// The name of a parameter, or one by its number.
    #[must_use]
    pub fn parameter_name(&self, index: usize) -> String {
        let name = self.parameters.get(index).and_then(|parameter| parameter.name.clone());
        name.unwrap_or_else(|| format!("arg{index}"))
    }
}

pub(crate) struct Inner {
    pub(crate) table: abi::Image,
    arch: u32,
    name: String,
    kernels: Vec<Kernel>,
    rules: Vec<String>,
    /// Keeps the code and the tables in place.
    _library: Library,
}

/// Kernels compiled for the twin of one architecture: an open shared object. Clones are the same image.
#[derive(Clone)]
pub struct Image {
    pub(crate) inner: Arc<Inner>,
}

// SAFETY: the table is a copy, its pointers lead to data of the library that nothing changes any more, and the
// interface lets every thread run a launch of its own.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image")
            .field("name", &self.inner.name)
            .field("arch", &self.inner.arch)
            .field("kernels", &self.inner.kernels.iter().map(|kernel| &kernel.name).collect::<Vec<_>>())
            .finish()
    }
}

impl Image {
    /// Opens a file.
    ///
    /// An image is a program: opening one runs its initialisers in this process. Open what was compiled by somebody you
    /// trust.
    ///
    /// # Errors
    ///
    /// It is not there, no image, of another version, or damaged.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let path = std::path::absolute(path).map_err(|error| OpenError::Io { path: path.to_owned(), error })?;
        let mut head = [0; 20];
        let mut file = std::fs::File::open(&path).map_err(|error| OpenError::Io { path: path.clone(), error })?;
        let mut length = 0;
        while length < head.len() {
            match std::io::Read::read(&mut file, &mut head[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) => return Err(OpenError::Io { path, error }),
            }
        }
        check_head(&head[..length])?;
        Self::link(&path)
    }

    /// Opens an image that lies in memory, through a file that is gone afterwards.
    ///
    /// The same bytes are opened once in a process and stay open: a shared object with thread-local variables takes room
    /// that the system does not give back, so a program that loads an image for every launch would run out of it. Launches
    /// share nothing through the image.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open), or the file cannot be written.
    pub fn load(bytes: &[u8]) -> Result<Self, OpenError> {
        static OPEN: Mutex<Vec<(Box<[u8]>, Image)>> = Mutex::new(Vec::new());
        check_head(bytes)?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, image)) = open.iter().find(|(known, _)| **known == *bytes) {
            return Ok(image.clone());
        }
        let file = TemporaryFile::write(bytes)?;
        let image = Self::link(&file.path)?;
        open.push((bytes.into(), image.clone()));
        Ok(image)
    }

    /// Whether bytes are a shared object of this machine, as images are.
    #[must_use]
    pub fn recognises(bytes: &[u8]) -> bool {
        check_head(bytes).is_ok()
    }

    fn link(path: &Path) -> Result<Self, OpenError> {
        let load = |error: libloading::Error| {
            // The path may be one that is gone when somebody reads this.
            let reason = error.to_string().replace(&*path.to_string_lossy(), "the image");
            OpenError::Load { reason }
        };
        #[cfg(unix)]
        let library = {
            use libloading::os::unix;
            // SAFETY: the caller trusts the image, as the documentation of `open` asks.
            unsafe { unix::Library::open(Some(path), unix::RTLD_NOW | unix::RTLD_LOCAL) }.map(Library::from)
        };
        #[cfg(not(unix))]
        // SAFETY: as above.
        let library = unsafe { Library::new(path) };
        let library = library.map_err(load)?;
        // SAFETY: the symbol has this type in every version of the interface.
        let function = unsafe { library.get::<abi::ImageFn>(abi::IMAGE_SYMBOL) }.map_err(|_| OpenError::NoSymbol)?;
        // SAFETY: it takes nothing and returns a pointer to static data.
        let table = unsafe { function() };
        // SAFETY: only the address of the symbol is taken.
        let names =
            unsafe { library.get::<*const c_char>(NAMES_SYMBOL).ok().and_then(|symbol| symbol.try_as_raw_ptr()) };
        let names = names.unwrap_or(core::ptr::null_mut());
        // SAFETY: the build recipe makes the symbol an array of characters that ends with zero.
        let names = unsafe { text(names.cast(), "the names of parameters") }?.unwrap_or_default();
        // SAFETY: the pointer is what the image says it is.
        let inner = unsafe { read(table, &names, library) }?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The name of the module: that of its recipe, or of its first kernel.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The architecture it was compiled for: 2201 or 3510.
    #[must_use]
    pub fn arch(&self) -> u32 {
        self.inner.arch
    }

    /// Its kernels.
    #[must_use]
    pub fn kernels(&self) -> &[Kernel] {
        &self.inner.kernels
    }

    /// A kernel by its name, with its number.
    #[must_use]
    pub fn kernel(&self, name: &str) -> Option<(usize, &Kernel)> {
        self.inner.kernels.iter().enumerate().find(|(_, kernel)| kernel.name == name)
    }

    /// The names of the rules that its machine checks.
    #[must_use]
    pub fn rules(&self) -> &[String] {
        &self.inner.rules
    }
}

/// Reads the tables.
///
/// # Safety
///
/// `table` is null or a table of the library in the layout of its version, whose pointers are null or good as long as
/// the library.
unsafe fn read(table: *const abi::Image, names: &str, library: Library) -> Result<Inner, OpenError> {
    let damaged = |what: String| OpenError::Table { what };
    if table.is_null() {
        return Err(damaged("it has no table".to_owned()));
    }
    // SAFETY: the version stands first in every version.
    let found = unsafe { table.cast::<u32>().read() };
    if found != abi::ABI {
        return Err(OpenError::Abi { found });
    }
    // A table with null in place of a function would be no valid `abi::Image`, so these are read as numbers first.
    let functions = [core::mem::offset_of!(abi::Image, run), core::mem::offset_of!(abi::Image, free_result)];
    for (offset, name) in functions.into_iter().zip(["run", "free_result"]) {
        // SAFETY: the field lies in the table, and any of its values is a good pointer-sized number.
        if unsafe { table.cast::<u8>().add(offset).cast::<usize>().read() } == 0 {
            return Err(damaged(format!("`{name}` is null")));
        }
    }
    // SAFETY: of this version, and its functions are not null.
    let table = unsafe { table.read() };
    // SAFETY: by the contract of this function.
    let raw = unsafe { slice(table.kernels, table.kernel_count, "kernels") }?;
    let mut lines = names.lines();
    let module = lines.next().filter(|name| !name.is_empty()).map(str::to_owned);
    let lines: Vec<Vec<&str>> = lines.map(|line| line.split(' ').collect()).collect();
    let mut kernels = Vec::with_capacity(raw.len());
    for (index, kernel) in raw.iter().enumerate() {
        // SAFETY: as above.
        let name = unsafe { text(kernel.name, "the name of a kernel") }?
            .ok_or_else(|| damaged(format!("kernel {index} has no name")))?;
        let task = task(kernel.task).ok_or_else(|| damaged(format!("`{name}` has the task kind {}", kernel.task)))?;
        if kernel.args_bytes > MAX_ARGS_BYTES {
            return Err(damaged(format!("`{name}` takes {} bytes of arguments", kernel.args_bytes)));
        }
        // SAFETY: as above.
        let raw = unsafe { slice(kernel.parameters, kernel.parameter_count, "parameters") }?;
        let line = lines.iter().find(|line| line[0] == name).map_or(&[][..], |line| &line[1..]);
        let mut parameters = Vec::with_capacity(raw.len());
        for (at, parameter) in raw.iter().enumerate() {
            let end = u64::from(parameter.offset) + u64::from(parameter.bytes);
            let fits = parameter.bytes > 0 && end <= u64::from(kernel.args_bytes);
            if !fits || (parameter.is_pointer != 0 && parameter.bytes != 8) {
                return Err(damaged(format!("parameter {at} of `{name}` does not lie in its argument block")));
            }
            parameters.push(Parameter {
                name: (line.len() == raw.len()).then(|| line[at].to_owned()),
                offset: parameter.offset,
                bytes: parameter.bytes,
                is_pointer: parameter.is_pointer != 0,
            });
        }
        kernels.push(Kernel { name, task, args_bytes: kernel.args_bytes, parameters });
    }
    // SAFETY: as above.
    let raw = unsafe { slice(table.rules, table.rule_count, "rules") }?;
    let mut rules = Vec::with_capacity(raw.len());
    for &rule in raw {
        // SAFETY: as above.
        let rule = unsafe { text(rule, "the name of a rule") }?;
        rules.push(rule.ok_or_else(|| damaged("a rule has no name".to_owned()))?);
    }
    let first = || kernels.first().map_or_else(|| "image".to_owned(), |kernel| kernel.name.clone());
    let name = module.unwrap_or_else(first);
    Ok(Inner { table, arch: table.arch, name, kernels, rules, _library: library })
}

fn task(number: u32) -> Option<Task> {
    [Task::AivOnly, Task::AicOnly, Task::MixAiv10, Task::MixAic10, Task::Mix11, Task::Mix12]
        .get(number as usize)
        .copied()
}

/// A list of an image.
///
/// # Safety
///
/// The pointer is null or leads to so many elements that live as long as `'a`.
pub(crate) unsafe fn slice<'a, T>(start: *const T, count: usize, what: &str) -> Result<&'a [T], OpenError> {
    if count == 0 {
        return Ok(&[]);
    }
    if start.is_null() || !start.is_aligned() || count > MAX_ENTRIES {
        let what = format!("its list of {what} has {count} entries and begins at {:#x}", start.addr());
        return Err(OpenError::Table { what });
    }
    // SAFETY: by the contract of this function.
    Ok(unsafe { core::slice::from_raw_parts(start, count) })
}

/// A text of an image; none if it is null.
///
/// # Safety
///
/// The pointer is null or leads to characters that end with zero.
pub(crate) unsafe fn text(start: *const c_char, what: &str) -> Result<Option<String>, OpenError> {
    if start.is_null() {
        return Ok(None);
    }
    // SAFETY: by the contract of this function.
    match unsafe { CStr::from_ptr(start) }.to_str() {
        Ok(text) => Ok(Some(text.to_owned())),
        Err(_) => Err(OpenError::Table { what: format!("{what} is no UTF-8") }),
    }
}

/// Whether these are the first bytes of an ELF file of 64 bits, little endian, shared, and for this processor.
fn check_head(bytes: &[u8]) -> Result<(), OpenError> {
    let not = |found| Err(OpenError::NotAnImage { found });
    let machine: &[u8] = if cfg!(target_arch = "x86_64") {
        &[62, 0]
    } else if cfg!(target_arch = "aarch64") {
        &[183, 0]
    } else if cfg!(target_arch = "riscv64") {
        &[243, 0]
    } else {
        return not("this machine, for which there are none");
    };
    if bytes.is_empty() {
        return not("no bytes");
    }
    if !bytes.starts_with(b"\x7fELF") {
        return not("another kind of file");
    }
    if bytes.len() < 20 || bytes[4..6] != [2, 1] {
        return not("an ELF file of another word size or byte order, or a damaged one");
    }
    if bytes[18..20] != *machine {
        return not("an ELF file for another processor");
    }
    if bytes[16..18] != [3, 0] {
        return not("an ELF file that is no shared object");
    }
    Ok(())
}

/// A path in the folder for temporary files that nobody uses.
pub(crate) fn temporary(extension: &str) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let name = format!("ascend-sim-{}-{}-{count}{extension}", std::process::id(), since.as_nanos());
    std::env::temp_dir().join(name)
}

/// A file that only this user can read, and that goes away.
struct TemporaryFile {
    path: PathBuf,
}

impl TemporaryFile {
    fn write(bytes: &[u8]) -> Result<Self, OpenError> {
        let path = temporary(".so");
        let mut options = std::fs::OpenOptions::new();
        // A file that is there already is not taken: somebody else may have put it there.
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o700);
        let mut file = options.open(&path).map_err(|error| OpenError::Io { path: path.clone(), error })?;
        let this = Self { path };
        file.write_all(bytes).map_err(|error| OpenError::Io { path: this.path.clone(), error })?;
        Ok(this)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
