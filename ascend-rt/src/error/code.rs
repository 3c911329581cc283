// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::sys::*;
use core::fmt;

/// A code of AscendCL.
///
/// ```
/// use ascend_rt::error::{AclError, Class};
///
/// let code = AclError(107027);
/// assert_eq!(code.name(), Some("ACL_ERROR_RT_STREAM_CAPTURED"));
/// assert_eq!(code.class(), Class::Capture);
/// assert_eq!(code.to_string(), "ACL_ERROR_RT_STREAM_CAPTURED (107027)");
/// assert_eq!(AclError(123).to_string(), "123");
/// ```
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AclError(pub aclError);

/// What kind of trouble a code means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// Success, or something that was done already.
    Ok,
    /// A wrong argument, or a call at the wrong time.
    Usage,
    /// No context, or the wrong one, is current.
    Context,
    /// A call that a capture forbids, or a capture that went wrong.
    Capture,
    /// A kernel or module is not found or does not fit.
    Kernel,
    /// Device memory ran out. After `aclrtMallocHost` the same code means host memory: the class depends on the call.
    OutOfMemory,
    /// Host memory ran out.
    HostOutOfMemory,
    /// Streams, events or other ids ran out.
    Resource,
    /// A time limit passed. The work may go on.
    Timeout,
    /// Stopped by a call.
    Aborted,
    /// In use, or full; may succeed later.
    Busy,
    /// Not on this chip, or not in this version.
    Unsupported,
    /// A numeric overflow was detected.
    Numeric,
    /// A task failed on the device.
    Exec,
    /// The device cannot be used.
    Device,
    /// The device is lost or has broken memory.
    DeviceFatal,
    /// The driver failed.
    Driver,
    /// A layer of the library failed.
    Internal,
    /// A code that this version does not know.
    Unknown,
}

impl AclError {
    /// No error.
    pub const SUCCESS: Self = Self(ACL_SUCCESS);

    /// The symbolic name, if the code is known.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        CODES.binary_search_by_key(&self.0, |&(code, _)| code).ok().map(|index| CODES[index].1)
    }

    /// What kind of trouble it means when nothing is known of the call.
    #[must_use]
    pub fn class(self) -> Class {
        match self.0 {
            ACL_SUCCESS | ACL_ERROR_REPEAT_INITIALIZE | ACL_ERROR_REPEAT_FINALIZE => Class::Ok,

            ACL_ERROR_RT_CONTEXT_NULL
            | ACL_ERROR_RT_STREAM_CONTEXT
            | ACL_ERROR_RT_MODEL_CONTEXT
            | ACL_ERROR_RT_STREAM_MODEL => Class::Context,

            ACL_ERROR_RT_CAPTURE_DEPENDENCY
            | ACL_ERROR_RT_STREAM_UNJOINED
            | ACL_ERROR_RT_MODEL_CAPTURED
            | ACL_ERROR_RT_STREAM_CAPTURED
            | ACL_ERROR_RT_EVENT_CAPTURED
            | ACL_ERROR_RT_STREAM_NOT_CAPTURED
            | ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT
            | ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT
            | ACL_ERROR_STREAM_CAPTURE_CONFLICT
            | ACL_ERROR_STREAM_TASK_GROUP_STATUS
            | ACL_ERROR_STREAM_TASK_GROUP_INTR
            | ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED
            | ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD
            | ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC
            | ACL_ERROR_RT_SUB_ACLGRAPH_IS_CAPTURING
            | ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED => Class::Capture,

            ACL_ERROR_RT_KERNEL_LOOKUP
            | ACL_ERROR_RT_KERNEL_UNREGISTERING
            | ACL_ERROR_RT_KERNEL_DUPLICATE
            | ACL_ERROR_RT_SYMBOL_NOT_FOUND
            | ACL_ERROR_RT_INVALID_SYMBOL
            | ACL_ERROR_RT_INVALID_DEVICE_FUNCTION
            | ACL_ERROR_KERNEL_NOT_FOUND => Class::Kernel,

            ACL_ERROR_RT_MEMORY_ALLOCATION | ACL_ERROR_RT_DEVICE_OOM => Class::OutOfMemory,
            ACL_ERROR_BAD_ALLOC => Class::HostOutOfMemory,

            ACL_ERROR_RT_RESOURCE_ALLOC_FAIL
            | ACL_ERROR_RT_NO_EVENT_RESOURCE
            | ACL_ERROR_RT_NO_STREAM_RESOURCE
            | ACL_ERROR_RT_NO_NOTIFY_RESOURCE
            | ACL_ERROR_RT_NO_MODEL_RESOURCE
            | ACL_ERROR_RT_NO_CDQ_RESOURCE
            | ACL_ERROR_RT_OVER_LIMIT
            | ACL_ERROR_STORAGE_OVER_LIMIT => Class::Resource,

            ACL_ERROR_RT_WAIT_TIMEOUT
            | ACL_ERROR_RT_TASK_TIMEOUT
            | ACL_ERROR_RT_TIMEOUT
            | ACL_ERROR_WAIT_CALLBACK_TIMEOUT
            | ACL_ERROR_RT_REPORT_TIMEOUT
            | ACL_ERROR_RT_STREAM_SYNC_TIMEOUT
            | ACL_ERROR_RT_EVENT_SYNC_TIMEOUT => Class::Timeout,

            ACL_ERROR_RT_DEVICE_TASK_ABORT
            | ACL_ERROR_RT_STREAM_ABORT
            | ACL_ERROR_RT_TASK_ABORT_STOP
            | ACL_ERROR_RT_MODEL_ABORT_NORMAL => Class::Aborted,

            ACL_ERROR_RT_MODEL_RUNNING
            | ACL_ERROR_RT_STREAM_TASK_FULL
            | ACL_ERROR_RT_STREAM_NOT_COMPLETE
            | ACL_ERROR_RT_EVENT_NOT_COMPLETE
            | ACL_ERROR_RT_QUEUE_FULL => Class::Busy,

            ACL_ERROR_API_NOT_SUPPORT
            | ACL_ERROR_FEATURE_UNSUPPORTED
            | ACL_ERROR_RT_FEATURE_NOT_SUPPORT
            | ACL_ERROR_RT_FEATURE_NOT_SUPPORT_UPDATE_OP
            | ACL_ERROR_RT_LINK_TYPE_NOT_SUPPORTED
            | ACL_ERROR_PROF_MODULES_UNSUPPORTED
            | ACL_ERROR_COMPILING_STUB_MODE
            | ACL_ERROR_RT_TASK_TYPE_NOT_SUPPORT
            | ACL_ERROR_RT_SOC_VERSION => Class::Unsupported,

            ACL_ERROR_RT_AICORE_OVER_FLOW | ACL_ERROR_RT_AIVEC_OVER_FLOW | ACL_ERROR_RT_OVER_FLOW => Class::Numeric,

            ACL_ERROR_INVALID_DEVICE
            | ACL_ERROR_RT_NO_DEVICE
            | ACL_ERROR_RT_NO_PERMISSION
            | ACL_ERROR_RT_DEV_SETUP_ERROR => Class::Device,

            ACL_ERROR_RT_MODEL_EXECUTE
            | ACL_ERROR_RT_SYS_DMA
            | ACL_ERROR_RT_AICORE_TIMEOUT
            | ACL_ERROR_RT_AICORE_EXCEPTION
            | ACL_ERROR_RT_AICORE_TRAP_EXCEPTION
            | ACL_ERROR_RT_AICPU_TIMEOUT
            | ACL_ERROR_RT_AICPU_EXCEPTION
            | ACL_ERROR_RT_VECTOR_CORE_TIMEOUT
            | ACL_ERROR_RT_VECTOR_CORE_EXCEPTION
            | ACL_ERROR_RT_VECTOR_CORE_TRAP_EXCEPTION
            | ACL_ERROR_RT_AICORE_TRAP_READ_OVERFLOW
            | ACL_ERROR_RT_AICORE_TRAP_WRITE_OVERFLOW
            | ACL_ERROR_RT_VECTOR_CORE_TRAP_READ_OVERFLOW
            | ACL_ERROR_RT_VECTOR_CORE_TRAP_WRITE_OVERFLOW
            | ACL_ERROR_RT_FFTS_PLUS_TIMEOUT
            | ACL_ERROR_RT_FFTS_PLUS_EXCEPTION
            | ACL_ERROR_RT_FFTS_PLUS_TRAP_EXCEPTION
            | ACL_ERROR_RT_CCU_TIMEOUT
            | ACL_ERROR_RT_CCU_EXCEPTION => Class::Exec,

            ACL_ERROR_RT_LOST_HEARTBEAT
            | ACL_ERROR_RT_DEVICE_MEM_ERROR
            | ACL_ERROR_RT_HBM_MULTI_BIT_ECC_ERROR
            | ACL_ERROR_RT_SUSPECT_DEVICE_MEM_ERROR
            | ACL_ERROR_RT_LINK_ERROR
            | ACL_ERROR_RT_SUSPECT_REMOTE_ERROR
            | ACL_ERROR_RT_L3_PORT_ERROR => Class::DeviceFatal,

            ACL_ERROR_RT_DRV_INTERNAL_ERROR
            | ACL_ERROR_RT_AICPU_INTERNAL_ERROR
            | ACL_ERROR_RT_SOCKET_CLOSE
            | ACL_ERROR_DRV_FAILURE => Class::Driver,

            ACL_ERROR_INTERNAL_ERROR
            | ACL_ERROR_FAILURE
            | ACL_ERROR_GE_FAILURE
            | ACL_ERROR_RT_FAILURE
            | ACL_ERROR_PROFILING_FAILURE => Class::Internal,

            // Ranges last: what is not named above is what its range says.
            100_000..=199_999 | 207_002 | 200_003..=200_005 => Class::Usage,
            507_910..=507_911 => Class::Usage,
            207_000..=207_999 => Class::Resource,
            500_000..=599_999 => Class::Internal,
            _ if self.name().is_some() => Class::Usage,
            _ => Class::Unknown,
        }
    }

    /// What to look at, in one sentence; empty when there is nothing particular to say.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self.0 {
            ACL_ERROR_UNINITIALIZE => "open a `Runtime` first; it initialises the library",
            ACL_ERROR_INVALID_PARAM | ACL_ERROR_RT_PARAM_INVALID => {
                "compare the arguments with the message of the library; in a capture the host memory of a copy must be \
                 pinned, and a kernel name that is not in its module comes back like this too"
            }
            ACL_ERROR_RT_INVALID_DEVICEID | ACL_ERROR_INVALID_DEVICE => {
                "compare the device with `Runtime::device_count` and with ASCEND_RT_VISIBLE_DEVICES, which renumbers"
            }
            ACL_ERROR_RT_CONTEXT_NULL => {
                "no context is current in this thread: foreign code must hold the guard of `Context::bind`"
            }
            ACL_ERROR_RT_STREAM_CONTEXT => {
                "the stream or event belongs to another context: use objects of one context together"
            }
            ACL_ERROR_RT_MODEL_CONTEXT | ACL_ERROR_RT_STREAM_MODEL => "replay a graph in the context that captured it",
            ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID => "record both timing events, and wait for the second",
            ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL => "the first event was recorded after the second: swap them",
            ACL_ERROR_RT_INVALID_HANDLE => "the handle is stale or of another context: keep its owner alive",
            ACL_ERROR_RT_STREAM_CAPTURED
            | ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT
            | ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC => {
                "a capture forbids synchronising, querying and blocking copies: do them before or after it, or capture \
                 in a mode that leaves other threads alone"
            }
            ACL_ERROR_RT_EVENT_CAPTURED => "an event recorded in a capture cannot be waited for on the host",
            ACL_ERROR_RT_STREAM_UNJOINED => {
                "a stream that joined the capture must be waited for before its end: use `fork`"
            }
            ACL_ERROR_RT_CAPTURE_DEPENDENCY => "wait only for events that were recorded in the same capture",
            ACL_ERROR_STREAM_CAPTURE_CONFLICT => "the event and the stream belong to two captures",
            ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT => "the default stream cannot take part in a capture: make a stream",
            ACL_ERROR_RT_STREAM_NOT_CAPTURED | ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED => {
                "end a capture on the stream on which it began"
            }
            ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD => "end a capture in the thread that began it",
            ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED => {
                "an earlier call spoiled the capture: the cause is the first error, not this one"
            }
            ACL_ERROR_RT_MODEL_CAPTURED => "the graph is still being captured",
            ACL_ERROR_RT_MODEL_RUNNING => "synchronise the stream in which the graph runs, then drop it",
            ACL_ERROR_RT_KERNEL_LOOKUP
            | ACL_ERROR_RT_SYMBOL_NOT_FOUND
            | ACL_ERROR_RT_INVALID_SYMBOL
            | ACL_ERROR_RT_INVALID_DEVICE_FUNCTION
            | ACL_ERROR_KERNEL_NOT_FOUND => {
                "compare the name with the symbols of the module, without `_mix_aic` and `_mix_aiv`, and the module's \
                 architecture with the device's"
            }
            ACL_ERROR_RT_MEMORY_ALLOCATION | ACL_ERROR_RT_DEVICE_OOM => {
                "free buffers, call `Context::trim`, or look for other processes on the card"
            }
            ACL_ERROR_BAD_ALLOC => "host memory ran out",
            ACL_ERROR_RT_MEMORY_FREE => "the address was freed before, or is none that was allocated",
            ACL_ERROR_RT_RESOURCE_ALLOC_FAIL
            | ACL_ERROR_RT_NO_STREAM_RESOURCE
            | ACL_ERROR_RT_NO_EVENT_RESOURCE
            | ACL_ERROR_RT_NO_MODEL_RESOURCE
            | ACL_ERROR_RT_NO_NOTIFY_RESOURCE => {
                "too many streams, events or captured graphs are alive: each graph holds streams; budget them with \
                 `GraphPool`"
            }
            ACL_ERROR_RT_WAIT_TIMEOUT | ACL_ERROR_RT_TASK_TIMEOUT | ACL_ERROR_RT_TIMEOUT => {
                "a time limit passed; this is not about memory, and to allocate again does not help"
            }
            ACL_ERROR_RT_STREAM_SYNC_TIMEOUT | ACL_ERROR_RT_EVENT_SYNC_TIMEOUT => {
                "the limit of this wait passed and the work goes on: wait again, or look for a kernel that does not end"
            }
            ACL_ERROR_RT_DEVICE_TASK_ABORT | ACL_ERROR_RT_STREAM_ABORT => {
                "the work was stopped by a call: drop the stream"
            }
            ACL_ERROR_RT_STREAM_TASK_FULL => "the queue of the stream is full: synchronise, then submit again",
            ACL_ERROR_API_NOT_SUPPORT | ACL_ERROR_FEATURE_UNSUPPORTED | ACL_ERROR_RT_FEATURE_NOT_SUPPORT => {
                "this chip or this version of CANN lacks it: ask `Runtime::has` first"
            }
            ACL_ERROR_RT_SOC_VERSION => "this CANN is older than the chip: install a newer one",
            ACL_ERROR_RT_NO_DEVICE => "no card is visible: look at `npu-smi info` and ASCEND_RT_VISIBLE_DEVICES",
            ACL_ERROR_RT_NO_PERMISSION => "this user may not open the card: look at the rights of /dev/davinci*",
            ACL_ERROR_RT_DEV_SETUP_ERROR => {
                "the card did not open; often its memory is taken, another process holds it, or the driver does not fit"
            }
            ACL_ERROR_RT_MODEL_EXECUTE => {
                "a task of the graph failed: run the same steps without a graph to find which one"
            }
            ACL_ERROR_RT_AICORE_TIMEOUT | ACL_ERROR_RT_VECTOR_CORE_TIMEOUT => {
                "the kernel did not end: usually cores that wait for each other with more blocks than cores"
            }
            ACL_ERROR_RT_AICORE_EXCEPTION
            | ACL_ERROR_RT_VECTOR_CORE_EXCEPTION
            | ACL_ERROR_RT_AICORE_TRAP_READ_OVERFLOW
            | ACL_ERROR_RT_AICORE_TRAP_WRITE_OVERFLOW
            | ACL_ERROR_RT_VECTOR_CORE_TRAP_READ_OVERFLOW
            | ACL_ERROR_RT_VECTOR_CORE_TRAP_WRITE_OVERFLOW => {
                "the kernel touched memory out of range: check sizes, indices and the tiling"
            }
            ACL_ERROR_RT_AICORE_TRAP_EXCEPTION | ACL_ERROR_RT_VECTOR_CORE_TRAP_EXCEPTION => {
                "the kernel stopped itself: an assertion or a trap"
            }
            ACL_ERROR_RT_AICPU_TIMEOUT | ACL_ERROR_RT_AICPU_EXCEPTION => "an operator on the device's CPU failed",
            ACL_ERROR_RT_LOST_HEARTBEAT => "the card is gone: look at `npu-smi info` and the system log",
            ACL_ERROR_RT_DEVICE_MEM_ERROR
            | ACL_ERROR_RT_HBM_MULTI_BIT_ECC_ERROR
            | ACL_ERROR_RT_SUSPECT_DEVICE_MEM_ERROR => {
                "the card's memory has errors: end the process, and have the card checked"
            }
            ACL_ERROR_RT_DRV_INTERNAL_ERROR | ACL_ERROR_DRV_FAILURE => {
                "the driver failed and its log has the cause; typical is a driver older than CANN"
            }
            _ => "",
        }
    }
}

impl fmt::Display for AclError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Debug for AclError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
