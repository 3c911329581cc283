// SPDX-License-Identifier: MIT OR Apache-2.0

#![doc = include_str!("../README.md")]

// The macros name the crate by its own name, also in here.
extern crate self as ascend_rt;

pub mod acl;
mod callback;
mod context;
mod device;
pub mod error;
mod event;
pub mod graph;
mod handle;
pub mod host;
pub mod kernel;
mod lane;
pub mod mem;
pub mod prof;
mod queue;
pub mod raw;
mod runtime;
mod stream;
pub mod sys;

pub use context::{Bound, Context, MemoryInfo};
pub use device::{Arch, Device, Fact, Facts, Source};
pub use error::{Error, ErrorKind, Result};
pub use event::{Completion, Event, EventKind, Plain, Timed};
pub use graph::{CaptureMode, CapturingStream, Graph, GraphPool};
pub use kernel::{Blob, Kernel, Launch, Module};
pub use mem::{DeviceBuffer, DeviceRepr, DeviceSlice, DeviceSliceMut, PinnedBuffer};
pub use queue::Queue;
pub use runtime::{Audit, Backend, Choice, Feature, LibraryAudit, Runtime};
pub use stream::{Stream, StreamOptions};

pub use zerocopy;
