// SPDX-License-Identifier: MIT OR Apache-2.0

//! Streams: queues of work.

use crate::callback::HostCalls;
use crate::context::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Completion, Event, EventKind, Plain, Timed, milliseconds};
use crate::handle::Handle;
use crate::lane::{Access, Lane, Mark};
use crate::mem::{DeviceBuffer, DeviceRepr, DeviceSlice, DeviceSliceMut};
use crate::queue::sealed::Sealed;
use crate::queue::{Queue, Submission, Use};
use crate::raw::Call;
use crate::sys::*;
use core::ffi::c_void;
use core::fmt;
use core::time::Duration;
use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How a stream is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamOptions {
    /// Launches are quick, at the price of resources of the device set aside.
    pub fast_launch: bool,
    /// The host waits by looking, not by sleeping.
    pub fast_sync: bool,
    /// The first failure stops the stream, so that nothing works on wrong results. It spreads to all streams of the
    /// context; unless said otherwise, that is wanted in an isolated context, and not in the primary one.
    pub stop_on_failure: Option<bool>,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self { fast_launch: true, fast_sync: true, stop_on_failure: None }
    }
}

pub(crate) struct StreamInner {
    pub(crate) context: Context,
    pub(crate) handle: Handle,
    pub(crate) lane: Arc<Lane>,
    calls: HostCalls,
    /// What the last replayed graph is made of, for the message of a failure.
    last_graph: Mutex<Option<Arc<[Cow<'static, str>]>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No user code runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StreamInner {
    /// Adds to an error what is known of the stream.
    fn locate(&self, error: Error) -> Error {
        let error = error.on_stream(self.lane.id).in_capture(self.lane.is_capturing());
        let graph = lock(&self.last_graph).clone();
        match graph {
            Some(ops) if error.code().0 == ACL_ERROR_RT_MODEL_EXECUTE => {
                let ops = if ops.is_empty() { "no names".to_owned() } else { ops.join(", ") };
                error.with_detail(format!("the last graph of the stream consists of {ops}"))
            }
            _ => error,
        }
    }

    pub(crate) fn note_graph(&self, ops: &Arc<[Cow<'static, str>]>) {
        *lock(&self.last_graph) = Some(Arc::clone(ops));
    }
}

impl Drop for StreamInner {
    fn drop(&mut self) {
        let context = self.context.inner();
        match context.bind() {
            Ok(_bound) => {
                // After a failure the rest of the queue may never end. A capture that was left open never does.
                let force = context.is_poisoned() || self.lane.is_capturing();
                self.lane.close(context, |stream| {
                    self.calls.unsubscribe(&self.context, stream, !force);
                    if force {
                        // SAFETY: this was the last owner of the stream.
                        let code = unsafe { context.raw().aclrtDestroyStreamForce(stream.get()) };
                        context.quietly_check(Call::aclrtDestroyStreamForce, code);
                    } else {
                        // SAFETY: this was the last owner of the stream.
                        let code = unsafe { context.raw().aclrtDestroyStream(stream.get()) };
                        context.quietly_check(Call::aclrtDestroyStream, code);
                    }
                });
                context.reap();
            }
            Err(error) => {
                context.quietly(error);
                self.lane.close(context, |_| ());
            }
        }
        self.calls.close();
    }
}

/// A queue of work on a device. It may be cloned, sent and shared; all clones are one.
///
/// Calls of the trait [`Queue`], and launches, return when the work is queued; a failure of the work itself is told by a
/// later synchronisation. There is no default stream.
///
/// Dropping the last clone waits for the work, or discards it when the context is poisoned.
#[derive(Clone)]
pub struct Stream {
    inner: Arc<StreamInner>,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("id", &self.inner.lane.id).field("lane", &self.inner.lane).finish()
    }
}

impl Sealed for Stream {
    fn submission(&self) -> Submission<'_> {
        Submission { stream: &self.inner, capture: None }
    }
}

impl Queue for Stream {
    fn context(&self) -> &Context {
        &self.inner.context
    }
}

impl Stream {
    pub(crate) fn new(context: &Context, options: StreamOptions) -> Result<Self> {
        let inner = context.inner();
        inner.usable("Context::stream")?;
        let _bound = inner.bind()?;
        let mut flag = 0;
        if options.fast_launch {
            flag |= ACL_STREAM_FAST_LAUNCH;
        }
        if options.fast_sync {
            flag |= ACL_STREAM_FAST_SYNC;
        }
        let mut stream = core::ptr::null_mut();
        // SAFETY: `stream` is written.
        let code = unsafe { inner.raw().aclrtCreateStreamWithConfig(&raw mut stream, 0, flag) };
        if let Err(error) = inner.check(Call::aclrtCreateStreamWithConfig, code) {
            let streams_left = inner.streams_left().ok().flatten();
            return Err(match error.kind() {
                ErrorKind::Resource { .. } => error.with_kind(ErrorKind::Resource { streams_left }),
                _ => error,
            });
        }
        let mut id = 0;
        // SAFETY: the stream is new; `id` is written.
        let code = unsafe { inner.raw().aclrtStreamGetId(stream, &raw mut id) };
        if code != ACL_SUCCESS {
            let _ = inner.runtime().message();
        }
        let handle = Handle::new(stream);
        let lane = Lane::new(inner.next_serial(), handle, (code == ACL_SUCCESS).then_some(id));
        inner.add_lane(&lane);
        let this = Self {
            inner: Arc::new(StreamInner {
                context: context.clone(),
                handle,
                lane,
                calls: HostCalls::default(),
                last_graph: Mutex::new(None),
            }),
        };
        if options.stop_on_failure.unwrap_or(inner.is_isolated()) {
            // SAFETY: the stream lives, and its mode was not set before.
            let code = unsafe { inner.raw().aclrtSetStreamFailureMode(stream, ACL_STOP_ON_FAILURE) };
            inner.check(Call::aclrtSetStreamFailureMode, code)?;
        }
        Ok(this)
    }

    pub(crate) fn inner(&self) -> &Arc<StreamInner> {
        &self.inner
    }

    /// Its number in profiles and logs, where the library tells.
    #[must_use]
    pub fn id(&self) -> Option<i32> {
        self.inner.lane.id
    }

    /// The handle, for foreign code: an `aclrtStream`. It lives as long as this object. What foreign code queues is not
    /// known to buffers: order it with [`record`](Self::record) and [`wait`](Self::wait).
    #[must_use]
    pub fn handle(&self) -> aclrtStream {
        self.inner.handle.get()
    }

    /// Waits for everything that was submitted.
    ///
    /// # Errors
    ///
    /// A task failed, which poisons the context; a host function panicked; the stream is being captured.
    pub fn synchronize(&self) -> Result<()> {
        self.wait_all(Call::aclrtSynchronizeStream, || {
            // SAFETY: the stream lives.
            unsafe { self.inner.context.inner().raw().aclrtSynchronizeStream(self.inner.handle.get()) }
        })
    }

    /// The same with a limit; zero asks without waiting.
    ///
    /// # Errors
    ///
    /// The limit passed, and the work goes on; or as [`synchronize`](Self::synchronize).
    pub fn synchronize_timeout(&self, limit: Duration) -> Result<()> {
        let call = Call::aclrtSynchronizeStreamWithTimeout;
        let Some(limit) = milliseconds(limit) else {
            return if self.query()? {
                Ok(())
            } else {
                let error = Error::as_code(call, ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "");
                Err(self.inner.locate(error.on_device(self.inner.context.device_index())))
            };
        };
        self.wait_all(call, || {
            // SAFETY: the stream lives.
            unsafe {
                self.inner.context.inner().raw().aclrtSynchronizeStreamWithTimeout(self.inner.handle.get(), limit)
            }
        })
    }

    fn wait_all(&self, call: Call, wait: impl FnOnce() -> aclError) -> Result<()> {
        let context = self.inner.context.inner();
        let _bound = context.bind()?;
        let ticket = self.inner.lane.submitted();
        let code = wait();
        context.check(call, code).map_err(|error| self.inner.locate(error))?;
        self.inner.lane.complete(ticket);
        context.reap();
        if let Some(text) = self.inner.calls.take_panic() {
            return Err(self.inner.locate(Error::refused(ErrorKind::HostFunction, call.name(), text)));
        }
        // The library may say that all is well once the failure has been told.
        context.usable(call.name()).map_err(|error| self.inner.locate(error))
    }

    /// Whether everything that was submitted is done.
    ///
    /// # Errors
    ///
    /// A task failed, or the stream is being captured.
    pub fn query(&self) -> Result<bool> {
        let context = self.inner.context.inner();
        let _bound = context.bind()?;
        let ticket = self.inner.lane.submitted();
        let mut status = ACL_STREAM_STATUS_NOT_READY;
        // SAFETY: the stream lives; `status` is written.
        let code = unsafe { context.raw().aclrtStreamQuery(self.inner.handle.get(), &raw mut status) };
        context.check(Call::aclrtStreamQuery, code).map_err(|error| self.inner.locate(error))?;
        let done = status == ACL_STREAM_STATUS_COMPLETE;
        if done {
            self.inner.lane.complete(ticket);
        }
        Ok(done)
    }

    /// Lets the work that is submitted from now on wait, on the device, for an event.
    ///
    /// # Errors
    ///
    /// The event is of another context, or was recorded in a capture.
    pub fn wait<K: EventKind>(&self, event: &Event<K>) -> Result<()> {
        let submission = self.submission();
        let call = Call::aclrtStreamWaitEvent;
        let _bound = submission.begin(call)?;
        if !event.context().same(&self.inner.context) {
            let detail = "the event is of another context";
            return Err(submission.locate(Error::as_code(call, ACL_ERROR_RT_STREAM_CONTEXT, detail)));
        }
        // SAFETY: stream and event live, in one context.
        let code = unsafe { submission.raw().aclrtStreamWaitEvent(self.inner.handle.get(), event.handle().get()) };
        self.inner.context.inner().check(call, code).map_err(|error| submission.locate(error))
    }

    /// Lets the work that is submitted from now on wait, on the device, for a replay.
    ///
    /// # Errors
    ///
    /// It is of another context, or the stream is being captured.
    pub fn wait_for(&self, completion: &Completion) -> Result<()> {
        let submission = self.submission();
        let call = Call::aclrtStreamWaitEvent;
        let _bound = submission.begin(call)?;
        if !completion.context().same(&self.inner.context) {
            let detail = "the replay is of another context";
            return Err(submission.locate(Error::as_code(call, ACL_ERROR_RT_STREAM_CONTEXT, detail)));
        }
        let mark = completion.mark();
        mark.lane
            .wait_device(self.inner.context.inner(), mark.ticket, &self.inner.lane, self.inner.handle)
            .map_err(|error| submission.locate(error))
    }

    /// An event after everything that was submitted.
    ///
    /// # Errors
    ///
    /// Events ran out, or the stream is being captured.
    pub fn record(&self) -> Result<Event<Plain>> {
        self.record_kind()
    }

    /// The same, with a time stamp.
    ///
    /// # Errors
    ///
    /// Events ran out, or the stream is being captured.
    pub fn record_timed(&self) -> Result<Event<Timed>> {
        self.record_kind()
    }

    fn record_kind<K: EventKind>(&self) -> Result<Event<K>> {
        let submission = self.submission();
        let _bound = submission.begin(Call::aclrtRecordEvent)?;
        let event = Event::create(&self.inner.context, self.mark_now()).map_err(|error| submission.locate(error))?;
        self.record_into(submission, event.handle())?;
        Ok(event)
    }

    /// Moves an event to here: it is done when everything that was submitted until now is.
    ///
    /// # Errors
    ///
    /// The event is of another context, or the stream is being captured.
    pub fn record_again<K: EventKind>(&self, event: &mut Event<K>) -> Result<()> {
        let submission = self.submission();
        let call = Call::aclrtRecordEvent;
        let _bound = submission.begin(call)?;
        if !event.context().same(&self.inner.context) {
            let detail = "the event is of another context";
            return Err(submission.locate(Error::as_code(call, ACL_ERROR_RT_STREAM_CONTEXT, detail)));
        }
        let mark = self.mark_now();
        self.record_into(submission, event.handle())?;
        event.set_mark(mark);
        Ok(())
    }

    fn mark_now(&self) -> Mark {
        Mark { lane: Arc::clone(&self.inner.lane), ticket: self.inner.lane.submitted() }
    }

    fn record_into(&self, submission: Submission<'_>, event: Handle) -> Result<()> {
        // SAFETY: stream and event live, in one context.
        let code = unsafe { submission.raw().aclrtRecordEvent(event.get(), self.inner.handle.get()) };
        self.inner.context.inner().check(Call::aclrtRecordEvent, code).map_err(|error| submission.locate(error))
    }

    /// Calls a function on the host, in the order of the stream, on a thread of the runtime. The stream waits for it.
    ///
    /// The function must not call this crate: the runtime forbids allocating, launching and waiting there. A panic is
    /// caught, and told by the next synchronisation of the stream.
    ///
    /// # Errors
    ///
    /// This version of CANN has no such call ([`Feature::HostFunctions`](crate::Feature::HostFunctions)), or the stream
    /// is being captured.
    pub fn host_func(&self, function: impl FnOnce() + Send + 'static) -> Result<()> {
        let submission = self.submission();
        let _begun = submission.begin(Call::aclrtLaunchHostFunc)?;
        self.inner
            .calls
            .submit(&self.inner.context, self.inner.handle, function)
            .map_err(|error| submission.locate(error))
    }

    /// Stops the stream: its work is discarded, and those who wait for it get an error. After that, drop it.
    ///
    /// # Errors
    ///
    /// The call failed or is not there.
    pub fn abort(&self) -> Result<()> {
        let context = self.inner.context.inner();
        let _bound = context.bind()?;
        // SAFETY: the stream lives.
        let code = unsafe { context.raw().aclrtStreamAbort(self.inner.handle.get()) };
        context.check(Call::aclrtStreamAbort, code).map_err(|error| self.inner.locate(error))
    }

    /// Copies from the host to a new buffer. Returns when the copy is done.
    ///
    /// # Errors
    ///
    /// There is nothing to copy, memory ran out, an earlier task failed, or a capture forbids to wait.
    pub fn upload<T: DeviceRepr>(&self, from: &[T]) -> Result<DeviceBuffer<T>> {
        let mut to = self.inner.context.alloc(from.len())?;
        self.upload_to(from, &mut to)?;
        Ok(to)
    }

    /// Copies from the host. Returns when the copy, and everything submitted before, is done; copies from
    /// [pinned memory](Queue::upload_pinned) do not wait.
    ///
    /// # Errors
    ///
    /// The lengths differ, an earlier task failed, or a capture forbids to wait.
    pub fn upload_to<'a, T: DeviceRepr>(&self, from: &[T], to: impl Into<DeviceSliceMut<'a, T>>) -> Result<()> {
        let to = to.into();
        check_lengths("Stream::upload_to", from.len(), to.len())?;
        let to = to.untyped();
        self.copy_blocking(Use::Device(to.storage, Access::Write), to.bytes, || {
            // SAFETY: both ranges have so many bytes, and the copy is done when the call returns. Nothing else uses the
            // target then: the stream has waited for everybody who did.
            unsafe {
                self.inner.context.inner().raw().aclrtMemcpy(
                    to.pointer().get(),
                    to.bytes,
                    from.as_ptr().cast::<c_void>(),
                    to.bytes,
                    ACL_MEMCPY_HOST_TO_DEVICE,
                )
            }
        })
    }

    /// Copies to the host. Returns when the copy, and everything submitted before, is done.
    ///
    /// # Errors
    ///
    /// An earlier task failed, or a capture forbids to wait.
    pub fn download<'a, T: DeviceRepr>(&self, from: impl Into<DeviceSlice<'a, T>>) -> Result<Vec<T>> {
        let from = from.into();
        let out = <[T] as zerocopy::FromZeros>::new_box_zeroed_with_elems(from.len());
        let mut out = out
            .map_err(|_| {
                let kind = ErrorKind::HostOutOfMemory { asked: Some(from.bytes()) };
                Error::refused(kind, "Stream::download", "")
            })?
            .into_vec();
        self.download_to(from, &mut out)?;
        Ok(out)
    }

    /// Copies to the host. Returns when the copy, and everything submitted before, is done.
    ///
    /// # Errors
    ///
    /// The lengths differ, an earlier task failed, or a capture forbids to wait.
    pub fn download_to<'a, T: DeviceRepr>(&self, from: impl Into<DeviceSlice<'a, T>>, to: &mut [T]) -> Result<()> {
        let from = from.into();
        check_lengths("Stream::download_to", from.len(), to.len())?;
        let from = from.untyped();
        self.copy_blocking(Use::Device(from.storage, Access::Read), from.bytes, || {
            // SAFETY: both ranges have so many bytes, and the copy is done when the call returns. Nothing writes the
            // source then: the stream has waited for everybody who did.
            unsafe {
                self.inner.context.inner().raw().aclrtMemcpy(
                    to.as_mut_ptr().cast::<c_void>(),
                    from.bytes,
                    from.pointer().get(),
                    from.bytes,
                    ACL_MEMCPY_DEVICE_TO_HOST,
                )
            }
        })
    }

    /// A blocking copy waits for no stream by itself; so this stream waits for those who used the memory, the host waits
    /// for this stream, and then the copy is made. That way the library never holds on to memory that is not pinned.
    fn copy_blocking(&self, what: Use<'_>, bytes: usize, copy: impl FnOnce() -> aclError) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let call = Call::aclrtMemcpy;
        let submission = self.submission();
        let bound = submission.begin(call)?;
        submission.prepare(call, what).map_err(|error| submission.locate(error))?;
        self.synchronize()?;
        let code = copy();
        self.inner.context.inner().check(call, code).map_err(|error| submission.locate(error))?;
        drop(bound);
        Ok(())
    }
}

fn check_lengths(call: &'static str, from: usize, to: usize) -> Result<()> {
    if from == to {
        Ok(())
    } else {
        Err(Error::argument(call, "to", format!("{from} elements, as the source has"), format!("{to} elements")))
    }
}
