// SPDX-License-Identifier: MIT OR Apache-2.0

//! Profiling: sessions, ranges and marks.
//!
//! A [`Profiler`] session writes the vendor's own files, which `msprof --export=on` reads; this crate gets no numbers back
//! (for times in a test, use two timed events). [Ranges](crate::range!) and marks go to whatever profiler records the
//! process, and cost next to nothing when none does.

use crate::context::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::handle::Handle;
use crate::queue::Submission;
use crate::raw::{Call, Library, Raw};
use crate::runtime::RuntimeInner;
use crate::sys::*;
use core::cell::Cell;
use core::ffi::{CStr, c_char};
use core::fmt;
use core::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

thread_local! {
    static OP: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// The innermost range of this thread.
pub(crate) fn current_op() -> Option<&'static str> {
    OP.with(Cell::get)
}

/// The domain of our ranges, made once per runtime; zero where there is none.
pub(crate) fn domain(raw: &dyn Raw) -> Option<Handle> {
    if !raw.has(Call::mstxDomainCreateA) {
        return None;
    }
    // SAFETY: the name ends with zero.
    let domain = unsafe { raw.mstxDomainCreateA(c"ascend-rt".as_ptr()) };
    (!domain.is_null()).then(|| Handle::new(domain))
}

/// Puts a mark into a stream: through the tools extension, or else the profiler.
pub(crate) fn mark(submission: Submission<'_>, message: &CStr) -> Result<()> {
    let context = submission.stream.context.inner();
    let raw = submission.raw();
    let stream = submission.stream.handle.get();
    if let Some(domain) = context.runtime().domain() {
        let _bound = context.bind()?;
        // SAFETY: the domain lives as long as the process, the message ends with zero, the stream lives.
        unsafe { raw.mstxDomainMarkA(domain.get(), message.as_ptr(), stream) };
    } else if raw.has(Call::aclprofMarkEx) && context.runtime().profiling() {
        let _bound = context.bind()?;
        // The library takes at most so many bytes.
        let length = message.to_bytes().len().min(127);
        // SAFETY: the message has so many bytes, the stream lives.
        let code = unsafe { raw.aclprofMarkEx(message.as_ptr(), length, stream) };
        context.check(Call::aclprofMarkEx, code)?;
    }
    Ok(())
}

/// A range of this thread, until it is dropped. Made by [`range!`](crate::range!).
#[must_use = "the range ends when the value is dropped"]
pub struct Range<'a> {
    runtime: &'a Arc<RuntimeInner>,
    id: u64,
    before: Option<&'static str>,
    /// What is innermost is a property of the thread.
    thread: PhantomData<*mut ()>,
}

impl fmt::Debug for Range<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Range({:?})", current_op())
    }
}

impl<'a> Range<'a> {
    /// Begins a range; `c_name` is the name with a zero byte at its end.
    #[doc(hidden)]
    pub fn begin(context: &'a Context, name: &'static str, c_name: &'static CStr) -> Self {
        let runtime = context.inner().runtime();
        let id = match runtime.domain() {
            // SAFETY: the domain lives as long as the process, the name ends with zero; no stream is a host range.
            Some(domain) => unsafe {
                runtime.raw.mstxDomainRangeStartA(domain.get(), c_name.as_ptr(), core::ptr::null_mut())
            },
            None => 0,
        };
        let before = OP.with(|op| op.replace(Some(name)));
        Self { runtime, id, before, thread: PhantomData }
    }
}

impl Drop for Range<'_> {
    fn drop(&mut self) {
        OP.with(|op| op.set(self.before));
        if self.id != 0
            && let Some(domain) = self.runtime.domain()
        {
            // SAFETY: the range was begun in this domain.
            unsafe { self.runtime.raw.mstxDomainRangeEnd(domain.get(), self.id) };
        }
    }
}

/// Names what this thread does until the end of the scope: in profiles, and in errors as [`Error::op`].
///
/// ```
/// use ascend_rt::{Choice, Runtime, range};
///
/// let context = Runtime::open(Choice::Auto)?.device(0)?.isolated()?;
/// range!(&context, "prefill");
/// let error = context.alloc::<u8>(0).unwrap_err();
/// assert_eq!(error.op(), Some("prefill"));
/// # Ok::<(), ascend_rt::Error>(())
/// ```
#[macro_export]
macro_rules! range {
    ($context:expr, $name:literal) => {
        let _range = {
            const NAME: &::core::ffi::CStr =
                match ::core::ffi::CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("the name of a range has a zero byte"),
                };
            $crate::prof::Range::begin($context, $name, NAME)
        };
    };
}

/// Which counters of the cores a session reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Metrics {
    /// None.
    None,
    /// How long each pipe works.
    #[default]
    Pipes,
    /// How much of the arithmetic units is used.
    Arithmetic,
    /// The traffic with memory.
    Memory,
    /// The traffic with the unified buffer.
    UnifiedBuffer,
    /// Hits of the second-level cache.
    L2,
    /// Conflicts of resources.
    Conflicts,
}

impl Metrics {
    fn raw(self) -> aclprofAicoreMetrics {
        match self {
            Self::None => ACL_AICORE_NONE,
            Self::Pipes => ACL_AICORE_PIPE_UTILIZATION,
            Self::Arithmetic => ACL_AICORE_ARITHMETIC_UTILIZATION,
            Self::Memory => ACL_AICORE_MEMORY_BANDWIDTH,
            Self::UnifiedBuffer => ACL_AICORE_MEMORY_UB,
            Self::L2 => ACL_AICORE_L2_CACHE,
            Self::Conflicts => ACL_AICORE_RESOURCE_CONFLICT_RATIO,
        }
    }
}

/// What a session records.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProfilerConfig {
    /// The folder for the files. All sessions of a process share one.
    pub folder: PathBuf,
    /// The counters.
    pub metrics: Metrics,
    /// Whether calls of the library are recorded too.
    pub api: bool,
}

impl ProfilerConfig {
    /// Times of tasks and pipes, and marks, into a folder.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), metrics: Metrics::default(), api: false }
    }

    /// Sets the counters.
    #[must_use]
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// Records calls of the library too.
    #[must_use]
    pub fn api(mut self) -> Self {
        self.api = true;
        self
    }

    fn mask(&self) -> u64 {
        let mut mask = ACL_PROF_TASK_TIME | ACL_PROF_MSPROFTX;
        if self.metrics != Metrics::None {
            mask |= ACL_PROF_AICORE_METRICS;
        }
        if self.api {
            mask |= ACL_PROF_ACL_API | ACL_PROF_RUNTIME_API;
        }
        mask
    }
}

/// What a runtime knows of its sessions.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    folder: Option<PathBuf>,
    running: usize,
}

impl Sessions {
    pub(crate) fn running(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).running > 0
    }
}

/// A profiling session of the device of a context, until it is stopped or dropped.
pub struct Profiler {
    context: Context,
    config: Option<Handle>,
}

impl fmt::Debug for Profiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profiler").field("context", &self.context).finish_non_exhaustive()
    }
}

impl Profiler {
    /// Starts a session.
    ///
    /// # Errors
    ///
    /// The profiler's library cannot be opened; another folder is in use in this process; the device is being profiled;
    /// a stream is being captured; or a call failed.
    pub fn session(context: &Context, config: &ProfilerConfig) -> Result<Self> {
        let inner = context.inner();
        let raw = inner.raw();
        raw.load(Library::Profiler)?;
        if !raw.has(Call::aclprofStart) {
            return Err(Error::missing(Call::aclprofStart));
        }
        let _bound = inner.bind()?;
        let mut state = inner.runtime().sessions().0.lock().unwrap_or_else(PoisonError::into_inner);
        match &state.folder {
            None => {
                init(context, &config.folder)?;
                state.folder = Some(config.folder.clone());
            }
            Some(folder) if *folder != config.folder => {
                return Err(Error::argument(
                    "Profiler::session",
                    "folder",
                    format!("{}, as in the first session of the process", folder.display()),
                    config.folder.display().to_string(),
                ));
            }
            Some(_) => {}
        }
        let mut device = inner.device;
        // SAFETY: the list has one device; no list of events is allowed.
        let handle = unsafe {
            raw.aclprofCreateConfig(&raw mut device, 1, config.metrics.raw(), core::ptr::null(), config.mask())
        };
        if handle.is_null() {
            let message = inner.runtime().message().unwrap_or_default();
            return Err(Error::refused(ErrorKind::Usage, Call::aclprofCreateConfig.name(), message));
        }
        let handle = Handle::new(handle.cast());
        // SAFETY: the configuration was just made.
        let code = unsafe { raw.aclprofStart(handle.get().cast_const().cast()) };
        if let Err(error) = inner.check(Call::aclprofStart, code) {
            // SAFETY: the configuration is in no session.
            let code = unsafe { raw.aclprofDestroyConfig(handle.get().cast_const().cast()) };
            inner.quietly_check(Call::aclprofDestroyConfig, code);
            return Err(error);
        }
        state.running += 1;
        drop(state);
        Ok(Self { context: context.clone(), config: Some(handle) })
    }

    /// Waits for the device and ends the session.
    ///
    /// # Errors
    ///
    /// A task failed, or a call did.
    pub fn stop(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let Some(config) = self.config.take() else { return Ok(()) };
        let inner = self.context.inner();
        let raw = inner.raw();
        let _bound = inner.bind()?;
        let waited = self.context.synchronize();
        // SAFETY: the session was started with this configuration.
        let code = unsafe { raw.aclprofStop(config.get().cast_const().cast()) };
        let stopped = inner.check(Call::aclprofStop, code);
        // SAFETY: the session is over.
        let code = unsafe { raw.aclprofDestroyConfig(config.get().cast_const().cast()) };
        let destroyed = inner.check(Call::aclprofDestroyConfig, code);
        inner.runtime().sessions().0.lock().unwrap_or_else(PoisonError::into_inner).running -= 1;
        waited.and(stopped).and(destroyed)
    }
}

/// Begins profiling into a folder, once per process.
fn init(context: &Context, folder: &Path) -> Result<()> {
    let inner = context.inner();
    let bytes = folder.as_os_str().as_encoded_bytes();
    if bytes.is_empty() || bytes.len() > 4096 || bytes.contains(&0) {
        let found = format!("{} bytes", bytes.len());
        return Err(Error::argument("Profiler::session", "folder", "1 to 4096 bytes, none of them zero", found));
    }
    std::fs::create_dir_all(folder)
        .map_err(|error| Error::refused(ErrorKind::Io, "Profiler::session", error.to_string()))?;
    // SAFETY: the path has so many bytes.
    let code = unsafe { inner.raw().aclprofInit(bytes.as_ptr().cast::<c_char>(), bytes.len()) };
    inner.check(Call::aclprofInit, code)
}

impl Drop for Profiler {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            self.context.inner().quietly(error);
        }
    }
}
