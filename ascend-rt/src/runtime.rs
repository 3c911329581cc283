// SPDX-License-Identifier: MIT OR Apache-2.0

//! Opening a backend, and what can be asked of it as a whole.

use crate::acl::{AclRaw, LoadError};
use crate::context::ContextInner;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::handle::Handle;
use crate::host::{Host, HostConfig};
use crate::prof::Sessions;
use crate::raw::{Call, Library, Raw};
use crate::sys::*;
use core::ffi::{CStr, c_char};
use core::fmt;
use core::time::Duration;
use once_cell::sync::OnceCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Which backend a [`Runtime`] takes.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Choice {
    /// A card when there is one: AscendCL's library opens, initialises, and sees a device. Otherwise the emulator, and
    /// [`Runtime::why_host`] says why. The variable `ASCEND_RT_BACKEND` (`auto`, `acl` or `host`) decides instead.
    #[default]
    Auto,
    /// A card, or an error.
    Acl,
    /// A card, through the library in this file.
    AclAt(PathBuf),
    /// An emulator like this.
    Host(HostConfig),
}

/// What runs the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// AscendCL.
    Acl,
    /// The emulator.
    Host,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Acl => "acl",
            Self::Host => "host",
        })
    }
}

/// Something that not every version of CANN can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// Modules come from memory. Without it they go through a temporary file.
    LoadFromMemory,
    /// [`Stream::host_func`](crate::Stream::host_func).
    HostFunctions,
    /// A launch may have a time limit of its own.
    LaunchTimeout,
    /// The facts of a device come from the device. Without it, from a table of chips.
    DeviceFacts,
    /// The number of streams that the device still has is known.
    StreamBudget,
    /// A time limit for every kernel of the process.
    ProcessTimeout,
    /// A graph can be written to a file.
    GraphDump,
    /// [`Profiler`](crate::prof::Profiler).
    Profiler,
    /// Ranges and marks reach a profiler that records the process.
    Ranges,
}

impl Feature {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::LoadFromMemory,
        Self::HostFunctions,
        Self::LaunchTimeout,
        Self::DeviceFacts,
        Self::StreamBudget,
        Self::ProcessTimeout,
        Self::GraphDump,
        Self::Profiler,
        Self::Ranges,
    ];

    /// The calls of which one is there exactly where the feature is.
    fn calls(self) -> &'static [Call] {
        match self {
            Self::LoadFromMemory => &[Call::aclrtBinaryLoadFromData],
            // The second came with 8.1, and needs a thread of ours.
            Self::HostFunctions => &[Call::aclrtLaunchHostFunc, Call::aclrtLaunchCallback],
            // The attribute has no symbol; this one came with it.
            Self::LaunchTimeout => &[Call::aclrtLaunchKernelWithHostArgs],
            Self::DeviceFacts => &[Call::aclrtGetDeviceInfo],
            Self::StreamBudget => &[Call::aclrtGetStreamAvailableNum],
            Self::ProcessTimeout => &[Call::aclrtSetOpExecuteTimeOutV2],
            Self::GraphDump => &[Call::aclmdlRIDebugJsonPrint],
            Self::Profiler => &[Call::aclprofStart],
            Self::Ranges => &[Call::mstxDomainRangeStartA],
        }
    }
}

pub(crate) struct RuntimeInner {
    pub(crate) raw: Arc<dyn Raw>,
    backend: Backend,
    acl: Option<Arc<AclRaw>>,
    host: Option<Arc<Host>>,
    why_host: Option<String>,
    /// The primary contexts in use, by device: all who ask for one share it.
    primaries: Mutex<HashMap<u32, Weak<ContextInner>>>,
    /// The domain of our ranges, asked for once.
    domain: OnceCell<Option<Handle>>,
    sessions: Sessions,
}

impl RuntimeInner {
    /// Turns the code of a call into a result, with the library's message of this thread.
    pub(crate) fn check(&self, call: Call, code: aclError) -> Result<()> {
        if code == ACL_SUCCESS { Ok(()) } else { Err(Error::from_code(call, code, self.message())) }
    }

    /// The library's last message of this thread, which is cleared.
    pub(crate) fn message(&self) -> Option<String> {
        // SAFETY: the function has no argument.
        let text = unsafe { self.raw.aclGetRecentErrMsg() };
        if text.is_null() {
            return None;
        }
        // SAFETY: it is not null, so it is a string that stays until the next call of this function by this thread.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    pub(crate) fn backend(&self) -> Backend {
        self.backend
    }

    /// Where ranges and marks go, if anywhere.
    pub(crate) fn domain(&self) -> Option<Handle> {
        *self.domain.get_or_init(|| crate::prof::domain(&*self.raw))
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Whether a profiling session runs.
    pub(crate) fn profiling(&self) -> bool {
        self.sessions.running()
    }
}

/// A backend that is open: where everything begins.
///
/// It may be cloned, sent and shared; all clones are one. Objects keep it alive.
///
/// ```
/// use ascend_rt::{Choice, Runtime};
///
/// let runtime = Runtime::open(Choice::Auto)?;
/// println!("{} devices on {}", runtime.device_count()?, runtime.backend());
/// if let Some(reason) = runtime.why_host() {
///     println!("emulated, because: {reason}");
/// }
/// # Ok::<(), ascend_rt::Error>(())
/// ```
#[derive(Clone)]
pub struct Runtime {
    inner: Arc<RuntimeInner>,
}

impl Runtime {
    /// Opens a backend.
    ///
    /// AscendCL is initialised once per process, and never finalised: other parts of the process may use it.
    ///
    /// # Errors
    ///
    /// The backend that was asked for cannot be had, with every place that was tried. [`Choice::Auto`] fails only when
    /// `ASCEND_RT_BACKEND` asks for a card, or is none of its values.
    pub fn open(choice: Choice) -> Result<Self> {
        match choice {
            Choice::Auto => Self::auto(),
            Choice::Acl => Self::acl(AclRaw::shared()?),
            Choice::AclAt(path) => Self::acl(AclRaw::open(&path)?),
            Choice::Host(config) => Ok(Self::emulated(config, None)),
        }
    }

    fn auto() -> Result<Self> {
        const VARIABLE: &str = "ASCEND_RT_BACKEND";
        match std::env::var_os(VARIABLE) {
            None => {}
            Some(value) if value.is_empty() || value == "auto" => {}
            Some(value) if value == "acl" => return Self::acl(AclRaw::shared()?),
            Some(value) if value == "host" => {
                return Ok(Self::emulated(HostConfig::default(), Some(format!("{VARIABLE} is `host`"))));
            }
            Some(value) => {
                let found = value.to_string_lossy().into_owned();
                let kind = ErrorKind::Knob { variable: VARIABLE, expected: "`auto`, `acl` or `host`", found };
                return Err(Error::refused(kind, "Runtime::open", ""));
            }
        }
        let why = match AclRaw::shared() {
            Err(error) => error.to_string(),
            Ok(raw) => match Self::acl(raw).and_then(|runtime| Ok((runtime.device_count()?, runtime))) {
                Ok((count, runtime)) if count > 0 => return Ok(runtime),
                Ok(_) => "AscendCL sees no device".to_owned(),
                Err(error) => format!("{error:#}"),
            },
        };
        Ok(Self::emulated(HostConfig::default(), Some(why)))
    }

    fn acl(raw: Arc<AclRaw>) -> Result<Self> {
        let initialised = raw.initialise();
        // Ranges are worth a look: they cost nothing when nobody records.
        let _ = raw.load(Library::ToolsExtension);
        let runtime = Self::with(Arc::clone(&raw) as Arc<dyn Raw>, Backend::Acl, Some(raw), None, None);
        match initialised {
            Ok(()) => Ok(runtime),
            Err(code) => runtime.inner.check(Call::aclInit, code).map(|()| runtime),
        }
    }

    fn emulated(config: HostConfig, why: Option<String>) -> Self {
        let host = Host::new(config);
        Self::with(Arc::clone(&host) as Arc<dyn Raw>, Backend::Host, None, Some(host), why)
    }

    fn with(
        raw: Arc<dyn Raw>,
        backend: Backend,
        acl: Option<Arc<AclRaw>>,
        host: Option<Arc<Host>>,
        why_host: Option<String>,
    ) -> Self {
        Self {
            inner: Arc::new(RuntimeInner {
                raw,
                backend,
                acl,
                host,
                why_host,
                primaries: Mutex::new(HashMap::new()),
                domain: OnceCell::new(),
                sessions: Sessions::default(),
            }),
        }
    }

    pub(crate) fn inner(&self) -> &Arc<RuntimeInner> {
        &self.inner
    }

    pub(crate) fn from_inner(inner: Arc<RuntimeInner>) -> Self {
        Self { inner }
    }

    /// What runs the calls.
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.inner.backend
    }

    /// Why [`Choice::Auto`] took the emulator.
    #[must_use]
    pub fn why_host(&self) -> Option<&str> {
        self.inner.why_host.as_deref()
    }

    /// The emulator, to plan faults and to look at its clock, trace and report.
    #[must_use]
    pub fn host(&self) -> Option<&Arc<Host>> {
        self.inner.host.as_ref()
    }

    /// The backend's calls, for what this crate does not offer.
    #[must_use]
    pub fn raw(&self) -> &Arc<dyn Raw> {
        &self.inner.raw
    }

    /// How many devices there are for this process.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn device_count(&self) -> Result<u32> {
        let mut count = 0;
        // SAFETY: `count` is written.
        let code = unsafe { self.inner.raw.aclrtGetDeviceCount(&raw mut count) };
        if code == ACL_ERROR_RT_NO_DEVICE {
            return Ok(0);
        }
        self.inner.check(Call::aclrtGetDeviceCount, code)?;
        Ok(count)
    }

    /// One device.
    ///
    /// # Errors
    ///
    /// There is none of that number.
    pub fn device(&self, index: u32) -> Result<Device> {
        let count = self.device_count()?;
        if index >= count {
            let detail = format!("device {index} of {count}");
            return Err(Error::as_code(Call::aclrtSetDevice, ACL_ERROR_RT_INVALID_DEVICEID, detail));
        }
        Ok(Device::new(self.clone(), index))
    }

    /// All devices.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn devices(&self) -> Result<Vec<Device>> {
        (0..self.device_count()?).map(|index| self.device(index)).collect()
    }

    /// Whether the backend can do something. The profiler's library is opened to find out.
    #[must_use]
    pub fn has(&self, feature: Feature) -> bool {
        feature.calls().iter().any(|&call| {
            self.inner.raw.has(call) || (self.inner.raw.load(call.library()).is_ok() && self.inner.raw.has(call))
        })
    }

    /// The version of the runtime library, as `9.1.0`, if it tells.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        let mut number = 0;
        let mut name = *b"runtime\0";
        // SAFETY: the name ends with zero, and `number` is written.
        let code = unsafe { self.inner.raw.aclsysGetVersionNum(name.as_mut_ptr().cast::<c_char>(), &raw mut number) };
        if code == ACL_SUCCESS && number > 0 {
            return Some(format!("{}.{}.{}", number / 10_000_000, number / 100_000 % 100, number / 1000 % 100));
        }
        let mut version = aclCANNPackageVersion {
            version: [0; 128],
            majorVersion: [0; 64],
            minorVersion: [0; 64],
            releaseVersion: [0; 64],
            patchVersion: [0; 64],
            reserved: [0; 128],
        };
        // SAFETY: `version` is written.
        let code = unsafe { self.inner.raw.aclsysGetCANNVersion(ACL_PKG_NAME_RUNTIME, &raw mut version) };
        // The last byte of the field stays zero if the library fills all others.
        version.version[127] = 0;
        // SAFETY: the field has a zero byte.
        let text = unsafe { CStr::from_ptr(version.version.as_ptr()) }.to_string_lossy();
        (code == ACL_SUCCESS && !text.is_empty()).then(|| text.into_owned())
    }

    /// The version of the driver, where its file says so.
    #[must_use]
    pub fn driver_version(&self) -> Option<String> {
        if self.inner.backend == Backend::Host {
            return None;
        }
        let text = std::fs::read_to_string("/usr/local/Ascend/driver/version.info").ok()?;
        text.lines().find_map(|line| line.strip_prefix("Version=")).map(|version| version.trim().to_owned())
    }

    /// Limits the time of every kernel of the process that has no limit of its own. Returns the limit in force, which the
    /// hardware rounds; about 18 minutes without one.
    ///
    /// # Errors
    ///
    /// This version of CANN has no such call ([`Feature::ProcessTimeout`]), or the call failed.
    pub fn set_kernel_timeout(&self, limit: Duration) -> Result<Duration> {
        let mut actual = 0;
        let us = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        // SAFETY: `actual` is written.
        let code = unsafe { self.inner.raw.aclrtSetOpExecuteTimeOutV2(us, &raw mut actual) };
        self.inner.check(Call::aclrtSetOpExecuteTimeOutV2, code)?;
        Ok(Duration::from_micros(actual))
    }

    /// What is there and what is not: libraries, versions, and the calls that this version lacks.
    #[must_use]
    pub fn audit(&self) -> Audit {
        let raw = &self.inner.raw;
        let libraries = [Library::AscendCl, Library::Profiler, Library::ToolsExtension].map(|library| {
            let _ = raw.load(library);
            LibraryAudit {
                library,
                path: self.inner.acl.as_ref().and_then(|acl| acl.path(library)),
                refused: self.inner.acl.as_ref().and_then(|acl| acl.refused(library)),
                missing: Call::ALL
                    .iter()
                    .copied()
                    .filter(|&call| call.library() == library && !raw.has(call))
                    .collect(),
            }
        });
        Audit {
            backend: self.inner.backend,
            version: self.version(),
            driver: self.driver_version(),
            libraries: libraries.into(),
            features: Feature::ALL.iter().map(|&feature| (feature, self.has(feature))).collect(),
        }
    }

    pub(crate) fn primaries(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Weak<ContextInner>>> {
        self.inner.primaries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("backend", &self.inner.backend)
            .field("version", &self.version())
            .field("driver", &self.driver_version())
            .field("why_host", &self.inner.why_host)
            .finish_non_exhaustive()
    }
}

/// What [`Runtime::audit`] found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Audit {
    /// What runs the calls.
    pub backend: Backend,
    /// The version of the runtime library.
    pub version: Option<String>,
    /// The version of the driver.
    pub driver: Option<String>,
    /// Each library.
    pub libraries: Vec<LibraryAudit>,
    /// Each feature, and whether it is there.
    pub features: Vec<(Feature, bool)>,
}

/// One library of an [`Audit`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LibraryAudit {
    /// The library.
    pub library: Library,
    /// Its file.
    pub path: Option<PathBuf>,
    /// Why it is not open.
    pub refused: Option<LoadError>,
    /// The calls that it lacks.
    pub missing: Vec<Call>,
}

impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "backend {}", self.backend)?;
        if let Some(version) = &self.version {
            write!(f, ", version {version}")?;
        }
        if let Some(driver) = &self.driver {
            write!(f, ", driver {driver}")?;
        }
        for library in &self.libraries {
            write!(f, "\n{}: ", library.library)?;
            match (&library.path, &library.refused) {
                (Some(path), _) => write!(f, "{}", path.display())?,
                (None, Some(error)) => write!(f, "{error}")?,
                (None, None) => write!(f, "emulated")?,
            }
            if library.refused.is_none() && !library.missing.is_empty() {
                write!(f, "; lacks {}", library.missing.len())?;
                for (index, call) in library.missing.iter().enumerate() {
                    write!(f, "{} {call}", if index == 0 { ":" } else { "," })?;
                }
            }
        }
        for (feature, has) in &self.features {
            write!(f, "\n{feature:?}: {}", if *has { "yes" } else { "no" })?;
        }
        Ok(())
    }
}
