// SPDX-License-Identifier: MIT OR Apache-2.0

//! Events: marks in a stream.

use crate::context::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::handle::Handle;
use crate::lane::Mark;
use crate::raw::Call;
use crate::sys::*;
use core::fmt;
use core::marker::PhantomData;
use core::time::Duration;

/// What an event is good for: [`Plain`] or [`Timed`].
pub trait EventKind: sealed::Sealed + Send + Sync + 'static {}

mod sealed {
    pub trait Sealed {
        /// How the event is made.
        const FLAG: u32;
    }
}

/// An event that orders.
#[derive(Debug)]
pub struct Plain;

/// An event that orders and has a time stamp.
#[derive(Debug)]
pub struct Timed;

impl sealed::Sealed for Plain {
    const FLAG: u32 = ACL_EVENT_SYNC;
}

impl sealed::Sealed for Timed {
    const FLAG: u32 = ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE;
}

impl EventKind for Plain {}
impl EventKind for Timed {}

/// A mark in a stream: everything submitted before it is done when it is.
///
/// [`Stream::record`](crate::Stream::record) makes one. Other streams wait for it on the device
/// ([`Stream::wait`](crate::Stream::wait)), the host with [`synchronize`](Self::synchronize).
///
/// ```
/// use ascend_rt::{Choice, Runtime};
///
/// let context = Runtime::open(Choice::Auto)?.device(0)?.isolated()?;
/// let stream = context.stream()?;
/// let begin = stream.record_timed()?;
/// let end = stream.record_timed()?;
/// end.synchronize()?;
/// println!("{:?}", end.elapsed_since(&begin)?);
/// # Ok::<(), ascend_rt::Error>(())
/// ```
///
/// Only timed events have a time between them:
///
/// ```compile_fail
/// # use ascend_rt::{Choice, Runtime};
/// # let context = Runtime::open(Choice::Auto)?.device(0)?.isolated()?;
/// # let stream = context.stream()?;
/// let begin = stream.record()?;
/// let end = stream.record()?;
/// end.elapsed_since(&begin)?; // no such method
/// # Ok::<(), ascend_rt::Error>(())
/// ```
pub struct Event<K: EventKind = Plain> {
    context: Context,
    handle: Handle,
    mark: Mark,
    kind: PhantomData<K>,
}

impl<K: EventKind> fmt::Debug for Event<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("mark", &self.mark).finish_non_exhaustive()
    }
}

impl<K: EventKind> Event<K> {
    /// A new event that was not recorded yet. The context is bound.
    pub(crate) fn create(context: &Context, mark: Mark) -> Result<Self> {
        let handle = context.inner().create_event(<K as sealed::Sealed>::FLAG)?;
        Ok(Self { context: context.clone(), handle, mark, kind: PhantomData })
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    pub(crate) fn set_mark(&mut self, mark: Mark) {
        self.mark = mark;
    }

    /// The context it belongs to.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The handle, for foreign code: an `aclrtEvent`. It lives as long as this object.
    #[must_use]
    pub fn raw_handle(&self) -> aclrtEvent {
        self.handle.get()
    }

    /// Whether it is done.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn query(&self) -> Result<bool> {
        let context = self.context.inner();
        let _bound = context.bind()?;
        let mut status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
        // SAFETY: the event lives; `status` is written.
        let code = unsafe { context.raw().aclrtQueryEventStatus(self.handle.get(), &raw mut status) };
        context.check(Call::aclrtQueryEventStatus, code)?;
        let done = status == ACL_EVENT_RECORDED_STATUS_COMPLETE;
        if done {
            self.mark.lane.complete(self.mark.ticket);
        }
        Ok(done)
    }

    /// Waits for it on the host.
    ///
    /// # Errors
    ///
    /// A task failed; or the event was recorded in a capture.
    pub fn synchronize(&self) -> Result<()> {
        let context = self.context.inner();
        let _bound = context.bind()?;
        // SAFETY: the event lives.
        let code = unsafe { context.raw().aclrtSynchronizeEvent(self.handle.get()) };
        context.check(Call::aclrtSynchronizeEvent, code)?;
        self.mark.lane.complete(self.mark.ticket);
        Ok(())
    }

    /// The same with a limit; zero asks without waiting.
    ///
    /// # Errors
    ///
    /// The limit passed, and the work goes on; or as [`synchronize`](Self::synchronize).
    pub fn synchronize_timeout(&self, limit: Duration) -> Result<()> {
        let context = self.context.inner();
        let Some(limit) = milliseconds(limit) else {
            return if self.query()? {
                Ok(())
            } else {
                let call = Call::aclrtSynchronizeEventWithTimeout;
                Err(Error::as_code(call, ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, "").on_device(context.device))
            };
        };
        let _bound = context.bind()?;
        // SAFETY: the event lives.
        let code = unsafe { context.raw().aclrtSynchronizeEventWithTimeout(self.handle.get(), limit) };
        context.check(Call::aclrtSynchronizeEventWithTimeout, code)?;
        self.mark.lane.complete(self.mark.ticket);
        Ok(())
    }
}

impl Event<Timed> {
    /// The time on the device from an earlier event to this one. Both must be done.
    ///
    /// # Errors
    ///
    /// One of them is not done, they are in the other order, or in two contexts.
    pub fn elapsed_since(&self, earlier: &Self) -> Result<Duration> {
        let context = self.context.inner();
        if !self.context.same(&earlier.context) {
            let call = Call::aclrtEventElapsedTime;
            return Err(Error::as_code(call, ACL_ERROR_RT_STREAM_CONTEXT, "the events are of two contexts"));
        }
        let _bound = context.bind()?;
        let mut ms = 0.0f32;
        // SAFETY: both events live; `ms` is written.
        let code = unsafe { context.raw().aclrtEventElapsedTime(&raw mut ms, earlier.handle.get(), self.handle.get()) };
        context.check(Call::aclrtEventElapsedTime, code)?;
        Duration::try_from_secs_f64(f64::from(ms) / 1000.0).map_err(|_| {
            Error::as_code(
                Call::aclrtEventElapsedTime,
                ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL,
                format!("the time between the events is {ms} ms"),
            )
        })
    }
}

impl<K: EventKind> Drop for Event<K> {
    fn drop(&mut self) {
        match self.context.inner().bind() {
            Ok(_bound) => self.context.inner().destroy_event(self.handle),
            Err(error) => self.context.inner().quietly(error),
        }
    }
}

/// A limit as the library wants it: rounded up to milliseconds, `None` for zero.
pub(crate) fn milliseconds(limit: Duration) -> Option<i32> {
    if limit.is_zero() {
        return None;
    }
    let rounded = limit.as_nanos().div_ceil(1_000_000);
    Some(i32::try_from(rounded).unwrap_or(i32::MAX))
}

/// A submission that can be waited for.
#[derive(Clone, Debug)]
pub struct Completion {
    context: Context,
    mark: Mark,
}

impl Completion {
    pub(crate) fn new(context: &Context, mark: Mark) -> Self {
        Self { context: context.clone(), mark }
    }

    pub(crate) fn mark(&self) -> &Mark {
        &self.mark
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Whether it is done.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn query(&self) -> Result<bool> {
        let context = self.context.inner();
        let _bound = context.bind()?;
        self.mark.lane.ensure_fence(context, self.mark.ticket)?;
        self.mark.lane.advance(context);
        Ok(self.mark.is_done())
    }

    /// Waits for it on the host. A failure of its tasks is told by the next synchronisation of the stream.
    ///
    /// # Errors
    ///
    /// A task failed, or the stream is being captured.
    pub fn synchronize(&self) -> Result<()> {
        let context = self.context.inner();
        let _bound = context.bind()?;
        if self.mark.lane.wait_host(context, self.mark.ticket)? {
            Ok(())
        } else {
            Err(Error::as_code(Call::aclrtSynchronizeEvent, ACL_ERROR_RT_STREAM_CAPTURED, "")
                .with_kind(ErrorKind::StreamCaptured))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_rounded_up_and_never_zero() {
        assert_eq!(milliseconds(Duration::ZERO), None);
        assert_eq!(milliseconds(Duration::from_nanos(1)), Some(1));
        assert_eq!(milliseconds(Duration::from_millis(7)), Some(7));
        assert_eq!(milliseconds(Duration::from_micros(7001)), Some(8));
        assert_eq!(milliseconds(Duration::MAX), Some(i32::MAX));
    }
}
