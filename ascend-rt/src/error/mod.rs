// SPDX-License-Identifier: MIT OR Apache-2.0

//! Errors: what failed, why, and what to do about it.
//!
//! An [`Error`] says the [kind](ErrorKind) of trouble, the code with its symbolic name, the call, the library's own
//! message (copied on the thread that failed, at once), device, stream and operation, and one sentence of advice. After
//! a failure on the device it also carries the *first* one of its context, which is the cause; what follows it are
//! consequences.

mod code;

use crate::acl::{LoadError, LoadReason};
use crate::kernel::LayoutError;
use crate::raw::Call;
use crate::sys::*;
use core::fmt;
use std::sync::Arc;

pub use code::{AclError, Class};

/// A result with an [`Error`].
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Why a call failed or was refused.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    code: AclError,
    call: &'static str,
    detail: String,
    message: Option<String>,
    device: Option<u32>,
    stream: Option<i32>,
    op: Option<&'static str>,
    captured: bool,
    first: Option<Arc<Error>>,
}

/// What kind of trouble it is. Match on it; the numbers are in [`Error::code`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A wrong argument, or a call at the wrong time.
    Usage,
    /// An argument of this crate's own checks: its name, what was expected and what was found.
    Argument {
        /// The argument.
        argument: &'static str,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// The parameters of a kernel are impossible.
    Layout(LayoutError),
    /// No context, or the wrong one: objects of two contexts or devices were used together.
    Context,
    /// A capture forbids the call: it would wait, query or copy from memory that is not pinned.
    StreamCaptured,
    /// A capture went wrong otherwise.
    Capture,
    /// An operator needs a value on the host in the middle of its work, so it cannot be captured as one piece.
    NeedsHostSync,
    /// A kernel is not in its module.
    Kernel,
    /// No part of a module fits the device.
    Module {
        /// What the module has.
        had: Vec<String>,
        /// What the device is.
        device: String,
    },
    /// Device memory ran out.
    OutOfMemory {
        /// The bytes that were asked for.
        asked: usize,
        /// The bytes that the device has free; the largest block may be smaller.
        free: usize,
        /// All its bytes.
        total: usize,
        /// The bytes that this context's pool holds without use.
        pool_held: usize,
    },
    /// Host memory ran out: the limit of pinned memory, or an allocation inside the library.
    HostOutOfMemory {
        /// The bytes that were asked for, if this crate did.
        asked: Option<usize>,
    },
    /// Streams, events or other ids ran out.
    Resource {
        /// How many streams there still are, if it is known.
        streams_left: Option<u32>,
    },
    /// A time limit passed.
    Timeout,
    /// The work was stopped by a call.
    Aborted,
    /// In use, or full; may succeed later.
    Busy,
    /// Not on this chip, or not in this version.
    Unsupported,
    /// The library lacks a function that the call needs.
    MissingSymbol {
        /// The function.
        symbol: &'static str,
        /// The library.
        library: &'static str,
    },
    /// A library cannot be opened.
    Library(LoadError),
    /// An environment variable has an impossible value.
    Knob {
        /// The variable.
        variable: &'static str,
        /// The values it may have.
        expected: &'static str,
        /// What it holds.
        found: String,
    },
    /// A numeric overflow was detected.
    Numeric,
    /// A task failed on the device.
    Exec,
    /// An earlier task failed, and the context takes no more work; [`Error::first`] is the cause.
    Poisoned,
    /// The device cannot be used.
    Device,
    /// The device is lost or has broken memory.
    DeviceFatal,
    /// The driver failed.
    Driver,
    /// A layer of the library failed.
    Internal,
    /// A function that a stream called on the host panicked.
    HostFunction,
    /// A file could not be written or read.
    Io,
    /// A code that this version does not know.
    Unknown,
}

impl PartialEq for LoadError {
    fn eq(&self, other: &Self) -> bool {
        self.library() == other.library() && self.tried() == other.tried()
    }
}

impl Eq for LoadError {}

impl Error {
    /// The code that a call returned, with what kind of trouble it means after that call.
    pub(crate) fn from_code(call: Call, code: aclError, message: Option<String>) -> Self {
        let code = AclError(code);
        if code.0 == crate::raw::NOT_AVAILABLE {
            return Self::missing(call);
        }
        let kind = match code.class() {
            Class::Context => ErrorKind::Context,
            Class::Capture => match code.0 {
                ACL_ERROR_RT_STREAM_CAPTURED
                | ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT
                | ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC => ErrorKind::StreamCaptured,
                _ => ErrorKind::Capture,
            },
            Class::Kernel => ErrorKind::Kernel,
            // 207001 means device memory only where device memory was asked for.
            Class::OutOfMemory if code.0 == ACL_ERROR_RT_DEVICE_OOM || call == Call::aclrtMalloc => {
                ErrorKind::OutOfMemory { asked: 0, free: 0, total: 0, pool_held: 0 }
            }
            Class::OutOfMemory | Class::HostOutOfMemory => ErrorKind::HostOutOfMemory { asked: None },
            Class::Resource => ErrorKind::Resource { streams_left: None },
            Class::Timeout => ErrorKind::Timeout,
            Class::Aborted => ErrorKind::Aborted,
            Class::Busy => ErrorKind::Busy,
            Class::Unsupported => ErrorKind::Unsupported,
            Class::Numeric => ErrorKind::Numeric,
            Class::Exec => ErrorKind::Exec,
            Class::Device => ErrorKind::Device,
            Class::DeviceFatal => ErrorKind::DeviceFatal,
            Class::Driver => ErrorKind::Driver,
            Class::Internal => ErrorKind::Internal,
            Class::Ok | Class::Usage => ErrorKind::Usage,
            Class::Unknown => ErrorKind::Unknown,
        };
        Self(Box::new(Inner {
            kind,
            code,
            call: call.name(),
            detail: String::new(),
            message,
            device: None,
            stream: None,
            op: crate::prof::current_op(),
            captured: false,
            first: None,
        }))
    }

    /// A refusal of this crate, before any call.
    pub(crate) fn refused(kind: ErrorKind, call: &'static str, detail: impl Into<String>) -> Self {
        let code = AclError(kind.code());
        Self(Box::new(Inner {
            kind,
            code,
            call,
            detail: detail.into(),
            message: None,
            device: None,
            stream: None,
            op: crate::prof::current_op(),
            captured: false,
            first: None,
        }))
    }

    /// A refusal of this crate that says what the library would say.
    pub(crate) fn as_code(call: Call, code: aclError, detail: impl Into<String>) -> Self {
        let mut error = Self::from_code(call, code, None);
        error.0.detail = detail.into();
        error
    }

    pub(crate) fn argument(
        call: &'static str,
        argument: &'static str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self::refused(ErrorKind::Argument { argument, expected: expected.into(), found: found.into() }, call, "")
    }

    pub(crate) fn missing(call: Call) -> Self {
        let kind = ErrorKind::MissingSymbol { symbol: call.name(), library: call.library().file() };
        Self::refused(kind, call.name(), "")
    }

    /// What an operator returns that needs a value on the host in the middle of its work and is asked to run in a
    /// capture. The caller then splits the graph there.
    #[must_use]
    pub fn needs_host_sync(op: &'static str) -> Self {
        Self::refused(ErrorKind::NeedsHostSync, op, "")
    }

    pub(crate) fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.0.kind = kind;
        self
    }

    pub(crate) fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = detail.into();
        self
    }

    pub(crate) fn on_device(mut self, device: u32) -> Self {
        self.0.device.get_or_insert(device);
        self
    }

    pub(crate) fn on_stream(mut self, stream: Option<i32>) -> Self {
        self.0.stream = self.0.stream.or(stream);
        self
    }

    pub(crate) fn in_capture(mut self, captured: bool) -> Self {
        self.0.captured |= captured;
        self
    }

    pub(crate) fn with_op(mut self, op: Option<&'static str>) -> Self {
        self.0.op = op.or(self.0.op);
        self
    }

    pub(crate) fn with_first(mut self, first: Option<Arc<Self>>) -> Self {
        if let (ErrorKind::Poisoned, Some(first)) = (&self.0.kind, &first) {
            self.0.code = first.code();
        }
        self.0.first = self.0.first.or(first);
        self
    }

    /// What kind of trouble it is.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The code that the call returned; for a refusal of this crate, the one that says the same.
    #[must_use]
    pub fn code(&self) -> AclError {
        self.0.code
    }

    /// The symbolic name of the code.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        self.0.code.name()
    }

    /// The call: a function of AscendCL, or the method of this crate that refused.
    #[must_use]
    pub fn call(&self) -> &'static str {
        self.0.call
    }

    /// What this crate knows beyond the kind; may be empty.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// The library's own message.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        self.0.message.as_deref()
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> Option<u32> {
        self.0.device
    }

    /// The number of the stream in profiles and logs.
    #[must_use]
    pub fn stream(&self) -> Option<i32> {
        self.0.stream
    }

    /// Whether the stream was being captured.
    #[must_use]
    pub fn captured(&self) -> bool {
        self.0.captured
    }

    /// The innermost [range](crate::range!) or launch name of the thread that failed.
    #[must_use]
    pub fn op(&self) -> Option<&'static str> {
        self.0.op
    }

    /// The first failure on the device in this context, when this one came after it.
    #[must_use]
    pub fn first(&self) -> Option<&Self> {
        self.0.first.as_deref()
    }

    /// What to do about it, in one sentence.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match &self.0.kind {
            ErrorKind::OutOfMemory { .. } => AclError(ACL_ERROR_RT_DEVICE_OOM).advice(),
            ErrorKind::HostOutOfMemory { .. } => {
                "this is host memory, not the card's: pinned memory has a limit of its own; take smaller pieces"
            }
            ErrorKind::Poisoned => "drop everything of this context and make a new one; the first error is the cause",
            ErrorKind::NeedsHostSync => "end the capture before this operator and begin another one after it",
            ErrorKind::Module { .. } => "build the kernels for this device's architecture: ASCEND_RT_SOC",
            ErrorKind::MissingSymbol { .. } => "this CANN is older than the function: ask `Runtime::has` first",
            ErrorKind::Library(_) => {
                "source CANN's set_env.sh, or name the library with ASCEND_RT_LIB; in a container, mount the driver too"
            }
            ErrorKind::Knob { .. } => "set the variable to one of the values, or unset it",
            ErrorKind::Layout(_) => "put what is many or large into a tiling struct or a buffer",
            ErrorKind::Argument { .. } => "correct the argument",
            ErrorKind::Io => "look at the path and its rights",
            ErrorKind::HostFunction => "a function that a stream calls must not panic",
            _ => self.0.code.advice(),
        }
    }

    /// Whether device memory ran out. Neither host memory, nor streams, nor time.
    #[must_use]
    pub fn is_oom(&self) -> bool {
        matches!(self.0.kind, ErrorKind::OutOfMemory { .. })
    }

    /// Whether it is about a capture.
    #[must_use]
    pub fn is_capture(&self) -> bool {
        matches!(self.0.kind, ErrorKind::StreamCaptured | ErrorKind::Capture | ErrorKind::NeedsHostSync)
    }

    /// Whether a time limit passed.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Timeout)
    }

    /// Whether the device, not only the context, is of no more use.
    #[must_use]
    pub fn is_device_fatal(&self) -> bool {
        matches!(self.0.kind, ErrorKind::DeviceFatal) || self.first().is_some_and(Self::is_device_fatal)
    }

    /// Whether the same call may succeed later with nothing else changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self.0.kind {
            ErrorKind::Busy => true,
            ErrorKind::Timeout => {
                matches!(self.0.code.0, ACL_ERROR_RT_STREAM_SYNC_TIMEOUT | ACL_ERROR_RT_EVENT_SYNC_TIMEOUT)
            }
            _ => false,
        }
    }

    /// Whether the failure leaves the context without use.
    pub(crate) fn poisons(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Exec | ErrorKind::DeviceFatal)
    }
}

impl ErrorKind {
    /// The code that says the same, for a refusal of this crate.
    fn code(&self) -> aclError {
        match self {
            Self::Usage | Self::Argument { .. } | Self::Layout(_) | Self::Module { .. } => ACL_ERROR_RT_PARAM_INVALID,
            Self::Context => ACL_ERROR_RT_CONTEXT_NULL,
            Self::StreamCaptured | Self::NeedsHostSync => ACL_ERROR_RT_STREAM_CAPTURED,
            Self::Capture => ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED,
            Self::Kernel => ACL_ERROR_RT_KERNEL_LOOKUP,
            Self::OutOfMemory { .. } => ACL_ERROR_RT_MEMORY_ALLOCATION,
            Self::HostOutOfMemory { .. } => ACL_ERROR_BAD_ALLOC,
            Self::Resource { .. } => ACL_ERROR_RT_NO_STREAM_RESOURCE,
            Self::Timeout => ACL_ERROR_RT_STREAM_SYNC_TIMEOUT,
            Self::Aborted => ACL_ERROR_RT_STREAM_ABORT,
            Self::Busy => ACL_ERROR_RT_MODEL_RUNNING,
            Self::Unsupported | Self::MissingSymbol { .. } => ACL_ERROR_API_NOT_SUPPORT,
            Self::Library(error) => {
                let stub = error.tried().iter().any(|(_, reason)| *reason == LoadReason::Stub);
                match (stub, error.missing()) {
                    (true, _) => ACL_ERROR_COMPILING_STUB_MODE,
                    (false, Some(_)) => ACL_ERROR_API_NOT_SUPPORT,
                    (false, None) => ACL_ERROR_INVALID_FILE,
                }
            }
            Self::Knob { .. } => ACL_ERROR_INVALID_PARAM,
            Self::Numeric => ACL_ERROR_RT_OVER_FLOW,
            Self::Exec | Self::Poisoned => ACL_ERROR_RT_AICORE_EXCEPTION,
            Self::Device => ACL_ERROR_INVALID_DEVICE,
            Self::DeviceFatal => ACL_ERROR_RT_LOST_HEARTBEAT,
            Self::Driver => ACL_ERROR_RT_DRV_INTERNAL_ERROR,
            Self::Internal | Self::HostFunction | Self::Unknown => ACL_ERROR_INTERNAL_ERROR,
            Self::Io => ACL_ERROR_INVALID_FILE,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage => f.write_str("wrong use"),
            Self::Argument { argument, expected, found } => {
                write!(f, "`{argument}` is {found}, expected {expected}")
            }
            Self::Layout(error) => write!(f, "{error}"),
            Self::Context => f.write_str("no context or the wrong one"),
            Self::StreamCaptured => f.write_str("forbidden while a stream is being captured"),
            Self::Capture => f.write_str("the capture went wrong"),
            Self::NeedsHostSync => f.write_str("needs a value on the host, so it cannot be captured"),
            Self::Kernel => f.write_str("kernel not found"),
            Self::Module { had, device } => {
                write!(f, "the module has code for {}, expected {device}", had.join(", "))
            }
            Self::OutOfMemory { asked, free, total, pool_held } => write!(
                f,
                "out of device memory: {asked} bytes asked for, {free} of {total} free, {pool_held} held by the pool"
            ),
            Self::HostOutOfMemory { asked: Some(asked) } => {
                write!(f, "out of host memory: {asked} bytes asked for")
            }
            Self::HostOutOfMemory { asked: None } => f.write_str("out of host memory"),
            Self::Resource { streams_left: Some(left) } => {
                write!(f, "out of streams or other ids: {left} streams left")
            }
            Self::Resource { streams_left: None } => f.write_str("out of streams or other ids"),
            Self::Timeout => f.write_str("a time limit passed"),
            Self::Aborted => f.write_str("stopped by a call"),
            Self::Busy => f.write_str("in use or full"),
            Self::Unsupported => f.write_str("not supported here"),
            Self::MissingSymbol { symbol, library } => write!(f, "{library} has no function {symbol}"),
            Self::Library(error) => write!(f, "{error}"),
            Self::Knob { variable, expected, found } => {
                write!(f, "environment variable {variable} is `{found}`, expected {expected}")
            }
            Self::Numeric => f.write_str("numeric overflow"),
            Self::Exec => f.write_str("a task failed on the device"),
            Self::Poisoned => f.write_str("an earlier task failed, and the context takes no more work"),
            Self::Device => f.write_str("the device cannot be used"),
            Self::DeviceFatal => f.write_str("the device is lost or has broken memory"),
            Self::Driver => f.write_str("the driver failed"),
            Self::Internal => f.write_str("the library failed"),
            Self::HostFunction => f.write_str("a host function panicked"),
            Self::Io => f.write_str("a file could not be written or read"),
            Self::Unknown => f.write_str("unknown trouble"),
        }
    }
}

impl fmt::Display for Error {
    /// One line; with `{:#}` the library's own message follows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.0;
        write!(f, "{}: {} [{}]", inner.call, inner.kind, inner.code)?;
        if !inner.detail.is_empty() {
            write!(f, ": {}", inner.detail)?;
        }
        let mut places = 0;
        let mut place = |f: &mut fmt::Formatter<'_>, name: &str, what: &dyn fmt::Display| {
            places += 1;
            write!(f, "{}{name} {what}", if places == 1 { " (" } else { ", " })
        };
        if let Some(device) = inner.device {
            place(f, "device", &device)?;
        }
        if let Some(stream) = inner.stream {
            place(f, "stream", &stream)?;
        }
        if inner.captured {
            place(f, "being", &"captured")?;
        }
        if let Some(op) = inner.op {
            place(f, "in", &op)?;
        }
        if places > 0 {
            f.write_str(")")?;
        }
        let advice = self.advice();
        if !advice.is_empty() {
            write!(f, "; {advice}")?;
        }
        if let Some(first) = &inner.first {
            write!(f, "; first error: {}: {} [{}]", first.call(), first.kind(), first.code())?;
        }
        if f.alternate()
            && let Some(message) = &inner.message
        {
            write!(f, "\n{message}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#}")
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.kind {
            ErrorKind::Library(error) => Some(error),
            ErrorKind::Layout(error) => Some(error),
            _ => self.0.first.as_deref().map(|first| first as &(dyn std::error::Error + 'static)),
        }
    }
}

impl From<LayoutError> for Error {
    fn from(error: LayoutError) -> Self {
        Self::refused(ErrorKind::Layout(error), "ArgLayout::new", "")
    }
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Self {
        Self::refused(ErrorKind::Library(error), "dlopen", "")
    }
}
