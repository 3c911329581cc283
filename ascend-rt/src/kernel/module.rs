// SPDX-License-Identifier: MIT OR Apache-2.0

//! Modules: loaded device code.

use super::{ArgLayout, Kernel, KernelSig};
use crate::context::Context;
use crate::device::Arch;
use crate::error::{Error, ErrorKind, Result};
use crate::handle::Handle;
use crate::host::CoreKind;
use crate::lane::{Access, Track};
use crate::mem::pool::Retired;
use crate::raw::Call;
use crate::runtime::Backend;
use crate::sys::*;
use core::ffi::c_void;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::borrow::Cow;
use std::ffi::CString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a [`Blob`] runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Cards of one architecture: the bytes are an ELF file for its cores.
    Arch(Arch),
    /// The emulator: the bytes are made by [`host::module_image`](crate::host::module_image).
    Emulator,
    /// The emulator of a device of one architecture: the bytes are what a loader of this process
    /// [knows](crate::host::register_loader), as the kernels of a crate compiled for `ascend-sim` are.
    Twin(Arch),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arch(arch) => write!(f, "{arch}"),
            Self::Emulator => f.write_str("the emulator"),
            Self::Twin(arch) => write!(f, "the emulator of {arch}"),
        }
    }
}

/// Device code for one target.
#[derive(Clone, PartialEq, Eq)]
pub struct Blob {
    /// What it runs on.
    pub target: Target,
    /// The code.
    pub bytes: Cow<'static, [u8]>,
}

impl Blob {
    /// Code for cards of one architecture.
    #[must_use]
    pub const fn arch(arch: Arch, bytes: &'static [u8]) -> Self {
        Self { target: Target::Arch(arch), bytes: Cow::Borrowed(bytes) }
    }

    /// Code for the emulator of devices of one architecture.
    #[must_use]
    pub const fn twin(arch: Arch, bytes: &'static [u8]) -> Self {
        Self { target: Target::Twin(arch), bytes: Cow::Borrowed(bytes) }
    }

    /// The kernels of the emulator that are registered under this module name.
    #[must_use]
    pub fn emulator(module: &str) -> Self {
        Self { target: Target::Emulator, bytes: Cow::Owned(crate::host::module_image(module, None)) }
    }
}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blob({}, {} bytes)", self.target, self.bytes.len())
    }
}

pub(crate) struct ModuleInner {
    context: Context,
    handle: Handle,
    pub(crate) track: Track,
    /// The library keeps the pointer when its own copy fails for want of memory.
    _bytes: Cow<'static, [u8]>,
}

impl ModuleInner {
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }
}

impl fmt::Debug for ModuleInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module").field("context", &self.context).finish_non_exhaustive()
    }
}

impl Drop for ModuleInner {
    fn drop(&mut self) {
        let marks = self.track.before(Access::Write);
        self.context.inner().retire(Retired::Module(self.handle), marks);
    }
}

/// Loaded device code. It may be cloned; all clones are one. Its kernels, queued launches and graphs keep it.
#[derive(Clone, Debug)]
pub struct Module {
    inner: Arc<ModuleInner>,
}

impl Module {
    /// Loads the code that fits the device of the context.
    ///
    /// # Errors
    ///
    /// No blob fits ([`ErrorKind::Module`]), the context is poisoned, or the code does not load.
    pub fn load(context: &Context, blobs: &[Blob]) -> Result<Self> {
        let emulated = context.runtime().backend() == Backend::Host;
        let arch = context.facts().arch.map(|fact| fact.value);
        let fits = |blob: &&Blob| match blob.target {
            Target::Emulator => emulated,
            Target::Arch(for_arch) => !emulated && arch == Some(for_arch),
            Target::Twin(for_arch) => emulated && arch == Some(for_arch),
        };
        let Some(blob) = blobs.iter().find(fits) else {
            let device = match (emulated, arch) {
                (true, Some(arch)) if blobs.iter().any(|blob| matches!(blob.target, Target::Twin(_))) => {
                    Target::Twin(arch).to_string()
                }
                (true, _) => Target::Emulator.to_string(),
                (false, Some(arch)) => arch.to_string(),
                (false, None) => "an architecture that the device does not tell".to_owned(),
            };
            let had = if blobs.is_empty() {
                vec!["nothing".to_owned()]
            } else {
                blobs.iter().map(|blob| blob.target.to_string()).collect()
            };
            let kind = ErrorKind::Module { had, device };
            return Err(Error::refused(kind, "Module::load", "").on_device(context.device_index()));
        };
        Self::load_bytes(context, blob.bytes.clone())
    }

    /// Loads code without looking what it is for.
    ///
    /// # Errors
    ///
    /// The context is poisoned, or the code does not load: it is for another architecture, or no code at all.
    pub fn load_bytes(context: &Context, bytes: Cow<'static, [u8]>) -> Result<Self> {
        let inner = context.inner();
        inner.usable("Module::load")?;
        if bytes.is_empty() {
            return Err(Error::argument("Module::load", "bytes", "device code", "0 bytes"));
        }
        let _bound = inner.bind()?;
        let mut module = core::ptr::null_mut();
        if inner.raw().has(Call::aclrtBinaryLoadFromData) {
            // SAFETY: the bytes live as long as the module; `module` is written.
            let code = unsafe {
                inner.raw().aclrtBinaryLoadFromData(
                    bytes.as_ptr().cast::<c_void>(),
                    bytes.len(),
                    core::ptr::null(),
                    &raw mut module,
                )
            };
            inner.check(Call::aclrtBinaryLoadFromData, code)?;
        } else {
            let file = TemporaryFile::write(&bytes).map_err(|error| {
                let detail = format!("a module goes through a temporary file in this version of CANN: {error}");
                Error::refused(ErrorKind::Io, "Module::load", detail)
            })?;
            module = load_file(context, &file.path)?;
        }
        let inner = ModuleInner {
            context: context.clone(),
            handle: Handle::new(module),
            track: Track::default(),
            _bytes: bytes,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Loads a file.
    ///
    /// # Errors
    ///
    /// The context is poisoned, or the file is not there or does not load.
    pub fn load_file(context: &Context, path: &Path) -> Result<Self> {
        context.inner().usable("Module::load_file")?;
        let path = std::path::absolute(path).and_then(|path| std::fs::metadata(&path).map(|meta| (path, meta)));
        let path = match path {
            Ok((path, meta)) if meta.is_file() => path,
            Ok((path, _)) => {
                return Err(Error::argument("Module::load_file", "path", "a file", path.display().to_string()));
            }
            Err(error) => {
                return Err(Error::refused(ErrorKind::Io, "Module::load_file", error.to_string()));
            }
        };
        let _bound = context.inner().bind()?;
        let handle = Handle::new(load_file(context, &path)?);
        let inner =
            ModuleInner { context: context.clone(), handle, track: Track::default(), _bytes: Cow::Borrowed(&[]) };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The context it belongs to.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// A kernel by its declaration.
    ///
    /// # Errors
    ///
    /// It is not in the module, or its parameters are impossible.
    pub fn kernel<S: KernelSig>(&self) -> Result<Kernel<S>> {
        let layout = ArgLayout::new(S::PARAMS.iter().copied())?;
        let function = self.function(S::NAME)?;
        Ok(Kernel::new(Arc::clone(&self.inner), function, Cow::Borrowed(S::NAME), layout, S::CORES, S::BARRIER))
    }

    /// A kernel by its name and layout, for callers that know them only at run time.
    ///
    /// # Errors
    ///
    /// It is not in the module, or the name has a zero byte.
    pub fn kernel_dyn(&self, name: &str, layout: ArgLayout, cores: CoreKind) -> Result<Kernel<super::Dynamic>> {
        let function = self.function(name)?;
        Ok(Kernel::new(Arc::clone(&self.inner), function, Cow::Owned(name.to_owned()), layout, cores, false))
    }

    fn function(&self, name: &str) -> Result<Handle> {
        let Ok(c_name) = CString::new(name) else {
            return Err(Error::argument("Module::kernel", "name", "no zero byte", format!("{name:?}")));
        };
        let context = self.inner.context.inner();
        context.usable("Module::kernel")?;
        let _bound = context.bind()?;
        let mut function = core::ptr::null_mut();
        // SAFETY: the module lives, the name ends with zero; `function` is written.
        let code = unsafe {
            context.raw().aclrtBinaryGetFunction(self.inner.handle.get(), c_name.as_ptr(), &raw mut function)
        };
        context.check(Call::aclrtBinaryGetFunction, code).map_err(|error| {
            // A name that is not there comes back as either of two codes.
            let missing = matches!(error.code().0, ACL_ERROR_RT_PARAM_INVALID | ACL_ERROR_RT_KERNEL_LOOKUP);
            let error = error.with_detail(format!("kernel `{name}`"));
            if missing { error.with_kind(ErrorKind::Kernel) } else { error }
        })?;
        Ok(Handle::new(function))
    }
}

/// Loads a file. The context is bound.
fn load_file(context: &Context, path: &Path) -> Result<aclrtBinHandle> {
    let Ok(c_path) = CString::new(path.as_os_str().as_encoded_bytes()) else {
        return Err(Error::argument("Module::load_file", "path", "no zero byte", path.display().to_string()));
    };
    let mut module = core::ptr::null_mut();
    // SAFETY: the path ends with zero; `module` is written.
    let code = unsafe {
        context.inner().raw().aclrtBinaryLoadFromFile(c_path.as_ptr(), core::ptr::null_mut(), &raw mut module)
    };
    context.inner().check(Call::aclrtBinaryLoadFromFile, code)?;
    Ok(module)
}

/// A file that only this user can read, and that goes away.
struct TemporaryFile {
    path: PathBuf,
}

impl TemporaryFile {
    fn write(bytes: &[u8]) -> std::io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let name = format!("ascend-rt-{}-{}-{count}.o", std::process::id(), since.as_nanos());
        let path = std::env::temp_dir().join(name);
        let mut options = std::fs::OpenOptions::new();
        // A file that is there already is not taken: somebody else may have put it there.
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&path)?;
        let this = Self { path };
        file.write_all(bytes)?;
        Ok(this)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
