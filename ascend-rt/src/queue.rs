// SPDX-License-Identifier: MIT OR Apache-2.0

//! What can be submitted, to a stream or to a capture alike.

use crate::context::{Bound, Context};
use crate::error::{Error, Result};
use crate::graph::CaptureState;
use crate::kernel::ModuleInner;
use crate::lane::Access;
use crate::mem::{DeviceRepr, DeviceSlice, DeviceSliceMut, PinnedBuffer, PinnedStorage, Storage};
use crate::raw::Call;
use crate::stream::StreamInner;
use crate::sys::*;
use core::ffi::CStr;
use std::sync::{Arc, RwLockReadGuard};

/// Where a submission goes: a stream, and the capture that records it.
#[derive(Clone, Copy)]
#[doc(hidden)]
#[allow(missing_debug_implementations, reason = "not nameable outside")]
pub struct Submission<'a> {
    pub(crate) stream: &'a Arc<StreamInner>,
    pub(crate) capture: Option<&'a CaptureState>,
}

pub(crate) mod sealed {
    /// Only streams and captures are queues.
    pub trait Sealed {
        /// Where a submission goes.
        fn submission(&self) -> super::Submission<'_>;
    }
}

/// Something that a submission uses.
#[derive(Clone, Copy)]
pub(crate) enum Use<'a> {
    Device(&'a Arc<Storage>, Access),
    Pinned(&'a Arc<PinnedStorage>, Access),
    Module(&'a Arc<ModuleInner>),
}

impl Use<'_> {
    fn context(&self) -> &Context {
        match self {
            Self::Device(storage, _) => storage.context(),
            Self::Pinned(storage, _) => storage.context(),
            Self::Module(module) => module.context(),
        }
    }
}

/// The time of a submission.
pub(crate) struct Begun<'a> {
    _bound: Bound<'a>,
    _gate: Option<RwLockReadGuard<'a, ()>>,
}

impl<'a> Submission<'a> {
    /// Refuses what cannot be submitted, and makes the context current. No capture of the stream begins before the guard
    /// goes.
    pub(crate) fn begin(&self, call: Call) -> Result<Begun<'a>> {
        let context = self.stream.context.inner();
        context.usable(call.name()).map_err(|error| self.locate(error))?;
        let gate = if self.capture.is_none() {
            let Some(gate) = self.stream.lane.enter() else { return Err(self.captured(call)) };
            Some(gate)
        } else {
            None
        };
        Ok(Begun { _bound: context.bind()?, _gate: gate })
    }

    /// The refusal of what is submitted beside a capture.
    pub(crate) fn captured(&self, call: Call) -> Error {
        let detail = "the stream is being captured: submit through the capture";
        self.locate(Error::as_code(call, ACL_ERROR_RT_STREAM_CAPTURED, detail))
    }

    /// Adds the stream to an error, and remembers it as the first one of a capture.
    pub(crate) fn locate(&self, error: Error) -> Error {
        let captured = self.capture.is_some() || self.stream.lane.is_capturing();
        let error =
            error.on_device(self.stream.context.device_index()).on_stream(self.stream.lane.id).in_capture(captured);
        if let Some(capture) = self.capture {
            capture.note(&error);
        }
        error
    }

    /// Checks that a use belongs here, and lets the stream wait for what it must come after.
    pub(crate) fn prepare(&self, call: Call, what: Use<'_>) -> Result<()> {
        if !what.context().same(&self.stream.context) {
            let detail = format!(
                "what belongs to a context of device {} is used in a stream of another context, of device {}",
                what.context().device_index(),
                self.stream.context.device_index()
            );
            return Err(Error::as_code(call, ACL_ERROR_RT_STREAM_CONTEXT, detail));
        }
        // In a capture nothing runs now; replays wait for what is used.
        if self.capture.is_some() {
            return Ok(());
        }
        let (context, lane) = (self.stream.context.inner(), &self.stream.lane);
        match what {
            Use::Device(storage, access) => storage.track.prepare(context, access, lane, self.stream.handle),
            Use::Pinned(storage, access) => {
                storage.track.prepare(context, access, lane, self.stream.handle)?;
                storage.reserve(access)
            }
            Use::Module(_) => Ok(()),
        }
    }

    /// Undoes what [`prepare`](Self::prepare) did, when nothing was submitted.
    pub(crate) fn cancel(&self, what: Use<'_>) {
        if let (Use::Pinned(storage, _), None) = (what, self.capture) {
            storage.unreserve();
        }
    }

    /// Notes a use that was submitted.
    pub(crate) fn commit(&self, what: Use<'_>, ticket: u64) {
        if let Some(capture) = self.capture {
            capture.keep(what);
            return;
        }
        let lane = &self.stream.lane;
        match what {
            Use::Device(storage, access) => storage.track.commit(access, lane, ticket),
            Use::Pinned(storage, access) => {
                storage.track.commit(access, lane, ticket);
                storage.unreserve();
            }
            Use::Module(module) => module.track.commit(Access::Read, lane, ticket),
        }
    }

    /// The ticket of what was just submitted. A capture has none: what it records has not run.
    pub(crate) fn ticket(&self) -> u64 {
        if self.capture.is_some() { 0 } else { self.stream.lane.submit() }
    }

    /// Submits one call with what it uses.
    pub(crate) fn submit(&self, call: Call, uses: &[Use<'_>], run: impl FnOnce() -> aclError) -> Result<()> {
        let begun = self.begin(call)?;
        for (index, &what) in uses.iter().enumerate() {
            if let Err(error) = self.prepare(call, what) {
                for &before in &uses[..index] {
                    self.cancel(before);
                }
                return Err(self.locate(error));
            }
        }
        let code = run();
        if let Err(error) = self.stream.context.inner().check(call, code) {
            for &what in uses {
                self.cancel(what);
            }
            return Err(self.locate(error));
        }
        let ticket = self.ticket();
        for &what in uses {
            self.commit(what, ticket);
        }
        if let Some(capture) = self.capture {
            capture.count(call);
        }
        drop(begun);
        Ok(())
    }
}

fn lengths(call: &'static str, from: usize, to: usize) -> Result<()> {
    if from == to {
        Ok(())
    } else {
        Err(Error::argument(call, "to", format!("{from} elements, as the source has"), format!("{to} elements")))
    }
}

/// What a stream and a capture have in common: work is queued and runs later, in order.
///
/// A function of an operator that takes `&impl Queue` works eagerly and in a capture. What waits for the device is not
/// here: it is a method of [`Stream`](crate::Stream) alone.
///
/// Work in one stream runs in the order of its submission. Between streams of one context, a submission waits on the
/// device for the earlier ones that wrote what it reads, or used what it writes; this follows the buffers that are
/// passed, and in a capture the forks instead.
pub trait Queue: sealed::Sealed {
    /// The context.
    fn context(&self) -> &Context;

    /// Whether work is recorded rather than run. Operators that need a value on the host answer
    /// [`Error::needs_host_sync`] then.
    fn is_capturing(&self) -> bool {
        self.submission().capture.is_some()
    }

    /// Copies within the device.
    ///
    /// # Errors
    ///
    /// The lengths differ, or the call was refused.
    fn copy<'a, 'b, T: DeviceRepr>(
        &self,
        from: impl Into<DeviceSlice<'a, T>>,
        to: impl Into<DeviceSliceMut<'b, T>>,
    ) -> Result<()> {
        let (from, to) = (from.into(), to.into());
        lengths("Queue::copy", from.len(), to.len())?;
        if from.is_empty() {
            return Ok(());
        }
        let (from, to) = (from.untyped(), to.untyped());
        let submission = self.submission();
        let uses = [Use::Device(from.storage, Access::Read), Use::Device(to.storage, Access::Write)];
        submission.submit(Call::aclrtMemcpyAsync, &uses, || {
            // SAFETY: both ranges lie in live device memory of so many bytes, and are kept until the copy is done. They
            // do not overlap, since the target is borrowed alone.
            unsafe {
                submission.raw().aclrtMemcpyAsync(
                    to.pointer().get(),
                    to.bytes,
                    from.pointer().get(),
                    from.bytes,
                    ACL_MEMCPY_DEVICE_TO_DEVICE,
                    submission.stream.handle.get(),
                )
            }
        })
    }

    /// Sets every byte.
    ///
    /// # Errors
    ///
    /// The call was refused.
    fn fill<'a, T: DeviceRepr>(&self, what: impl Into<DeviceSliceMut<'a, T>>, byte: u8) -> Result<()> {
        let what = what.into().untyped();
        if what.bytes == 0 {
            return Ok(());
        }
        let submission = self.submission();
        submission.submit(Call::aclrtMemsetAsync, &[Use::Device(what.storage, Access::Write)], || {
            // SAFETY: the range lies in live device memory, and is kept until the task is done.
            unsafe {
                submission.raw().aclrtMemsetAsync(
                    what.pointer().get(),
                    what.bytes,
                    i32::from(byte),
                    what.bytes,
                    submission.stream.handle.get(),
                )
            }
        })
    }

    /// Copies from pinned memory to the device. A capture copies at each replay what the memory holds then.
    ///
    /// # Errors
    ///
    /// The lengths differ, or the call was refused.
    fn upload_pinned<'a, T: DeviceRepr>(
        &self,
        from: &PinnedBuffer<T>,
        to: impl Into<DeviceSliceMut<'a, T>>,
    ) -> Result<()> {
        let to = to.into();
        lengths("Queue::upload_pinned", from.len(), to.len())?;
        let to = to.untyped();
        let submission = self.submission();
        let uses = [Use::Pinned(&from.storage, Access::Read), Use::Device(to.storage, Access::Write)];
        submission.submit(Call::aclrtMemcpyAsync, &uses, || {
            // SAFETY: both ranges have so many bytes and are kept until the copy is done; the host does not write the
            // pinned one before.
            unsafe {
                submission.raw().aclrtMemcpyAsync(
                    to.pointer().get(),
                    to.bytes,
                    from.storage.pointer().get(),
                    to.bytes,
                    ACL_MEMCPY_HOST_TO_DEVICE,
                    submission.stream.handle.get(),
                )
            }
        })
    }

    /// Copies from the device to pinned memory.
    ///
    /// # Errors
    ///
    /// The lengths differ, or the call was refused.
    fn download_pinned<'a, T: DeviceRepr>(
        &self,
        from: impl Into<DeviceSlice<'a, T>>,
        to: &mut PinnedBuffer<T>,
    ) -> Result<()> {
        let from = from.into();
        lengths("Queue::download_pinned", from.len(), to.len())?;
        let from = from.untyped();
        let submission = self.submission();
        let uses = [Use::Device(from.storage, Access::Read), Use::Pinned(&to.storage, Access::Write)];
        submission.submit(Call::aclrtMemcpyAsync, &uses, || {
            // SAFETY: both ranges have so many bytes and are kept until the copy is done; the host does not touch the
            // pinned one before.
            unsafe {
                submission.raw().aclrtMemcpyAsync(
                    to.storage.pointer().get(),
                    from.bytes,
                    from.pointer().get(),
                    from.bytes,
                    ACL_MEMCPY_DEVICE_TO_HOST,
                    submission.stream.handle.get(),
                )
            }
        })
    }

    /// Puts a mark into the time line of a profiler that records the process. Without one it does nothing.
    ///
    /// # Errors
    ///
    /// The context cannot be made current.
    fn mark(&self, message: &CStr) -> Result<()> {
        let submission = self.submission();
        crate::prof::mark(submission, message)
    }
}

impl<'a> Submission<'a> {
    pub(crate) fn raw(&self) -> &'a dyn crate::raw::Raw {
        self.stream.context.inner().raw()
    }
}
