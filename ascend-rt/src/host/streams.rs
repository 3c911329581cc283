// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls about streams, events and callbacks.

use core::time::Duration;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use super::exec::Need;
use super::fail::{Answer, Fail};
use super::machine::{Machine, usage};
use super::slab::Key;
use super::state::{Event, Mark, Op, State, Stream, UserCall};
use crate::sys::*;

/// Events of the pool with numbers.
const POOL_EVENTS: u32 = 65_536;

impl Machine {
    pub(super) fn create_stream(&self, priority: u32, flags: u32) -> Answer<Key> {
        let known = ACL_STREAM_FAST_LAUNCH
            | ACL_STREAM_FAST_SYNC
            | ACL_STREAM_PERSISTENT
            | ACL_STREAM_HUGE
            | ACL_STREAM_CPU_SCHEDULE
            | ACL_STREAM_DEVICE_USE_ONLY;
        if flags & !known != 0 || priority > 7 {
            return usage(format!("priority {priority}, flags {flags:#x}: expected at most 7 and known flags"));
        }
        let mut s = self.state();
        let context = self.current(&s)?;
        let device = self.current_device(&s)?;
        self.take_stream(&mut s, device, ACL_ERROR_RT_NO_STREAM_RESOURCE)?;
        let id = s.next_stream_id;
        s.next_stream_id = id.wrapping_add(1);
        let stream = Stream { priority: s.rng.next(), ..Stream::new(context, device, id, false) };
        s.streams.insert(stream).ok_or_else(|| Fail::new(ACL_ERROR_RT_NO_STREAM_RESOURCE, "no stream handle is left"))
    }

    /// A stream that may be destroyed.
    fn own_stream(&self, s: &State, stream: aclrtStream) -> Answer<Key> {
        let key = self.stream_of(s, stream, self.current_or_lost(s)?)?;
        match s.streams.get(key) {
            Some(found) if found.default => usage("the default stream goes with its context"),
            Some(found) => Self::not_captured(found, "destroyed").map(|()| key),
            None => Ok(key),
        }
    }

    pub(super) fn destroy_stream(&self, stream: aclrtStream, force: bool) -> Answer {
        let mut s = self.state();
        let key = self.own_stream(&s, stream)?;
        if !force {
            let upto = s.streams.get(key).map_or(0, |stream| stream.submitted);
            s = self.wait(s, Need::Stream(key, upto), None).0;
            let end = s.streams.get(key).map_or(0, |stream| stream.end);
            self.at_least(end);
        }
        self.remove_stream(&mut s, key);
        Ok(())
    }

    /// Removes a stream with what it has queued.
    pub(super) fn remove_stream(&self, s: &mut State, key: Key) {
        self.discard(s, key);
        let Some(stream) = s.streams.remove(key) else { return };
        s.devices[stream.device as usize].streams -= 1;
        if let Some(fail) = stream.error {
            s.unseen.push(fail.text.into_owned());
        }
        if let super::state::Grouping::Updating { group, .. } = stream.grouping
            && let Some(group) = s.groups.get_mut(group)
        {
            group.updating = false;
        }
        if let Some(worker) = stream.worker {
            worker.notify_all();
        }
    }

    /// Takes what has failed on a stream.
    pub(super) fn take_error(&self, s: &mut State, key: Key) -> Answer {
        let Some(stream) = s.streams.get_mut(key) else { return Ok(()) };
        let (context, device) = (stream.context, stream.device);
        if let Some(fail) = stream.error.take() {
            return Err(fail);
        }
        if let Some(stopped) = s.contexts.get(context).and_then(|context| context.stopped.clone()) {
            return Err(stopped);
        }
        if s.devices[device as usize].lost {
            return Err(Self::lost(device));
        }
        Ok(())
    }

    pub(super) fn sync_stream(&self, stream: aclrtStream, timeout: i32) -> Answer {
        let limit = Self::limit(timeout)?;
        let s = self.state();
        let key = self.stream(&s, stream)?;
        if let Some(found) = s.streams.get(key) {
            Self::not_captured(found, "waited for")?;
        }
        if self.faults.sync_timeout() {
            return Err(Fail::new(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "planned to time out"));
        }
        self.drain(s, key, limit)
    }

    /// Waits for what a stream has queued, and returns what has failed.
    pub(super) fn drain(&self, s: std::sync::MutexGuard<'_, State>, key: Key, limit: Option<Duration>) -> Answer {
        let upto = s.streams.get(key).map_or(0, |stream| stream.submitted);
        let (mut s, done) = self.wait(s, Need::Stream(key, upto), limit);
        let Some(found) = s.streams.get(key) else {
            return Err(Fail::new(ACL_ERROR_RT_INVALID_HANDLE, "the stream was destroyed while it was waited for"));
        };
        if found.aborted {
            return Err(Fail::new(ACL_ERROR_RT_STREAM_ABORT, format!("stream {} was aborted", found.id)));
        }
        self.pass_time(found.end, limit, done, ACL_ERROR_RT_STREAM_SYNC_TIMEOUT)?;
        self.take_error(&mut s, key)?;
        drop(s);
        self.take_damage()
    }

    pub(super) fn query_stream(&self, stream: aclrtStream) -> Answer<aclrtStreamStatus> {
        let mut s = self.state();
        let key = self.stream(&s, stream)?;
        let Some(found) = s.streams.get_mut(key) else { return Ok(ACL_STREAM_STATUS_COMPLETE) };
        Self::not_captured(found, "queried")?;
        found.polls = found.polls.saturating_add(1);
        let (upto, polls) = (found.submitted, found.polls);
        let s = self.poll(s, polls, Need::Stream(key, upto));
        Ok(match s.streams.get(key) {
            Some(stream) if stream.completed < upto => ACL_STREAM_STATUS_NOT_READY,
            _ => ACL_STREAM_STATUS_COMPLETE,
        })
    }

    pub(super) fn set_failure_mode(&self, stream: aclrtStream, mode: u64) -> Answer {
        let mut s = self.state();
        let key = self.stream(&s, stream)?;
        if mode > ACL_STOP_ON_FAILURE {
            return usage(format!("failure mode {mode}, expected 0 or 1"));
        }
        let Some(found) = s.streams.get_mut(key) else { return Ok(()) };
        if core::mem::replace(&mut found.failure_mode_set, true) {
            return usage(format!("the failure mode of stream {} was set before", found.id));
        }
        let context = found.context;
        if let Some(context) = s.contexts.get_mut(context)
            && mode == ACL_STOP_ON_FAILURE
        {
            context.stop = true;
        }
        Ok(())
    }

    pub(super) fn set_stream_attribute(&self, stream: aclrtStream, attribute: aclrtStreamAttr, value: u64) -> Answer {
        match attribute {
            ACL_STREAM_ATTR_FAILURE_MODE => self.set_failure_mode(stream, value),
            ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK => {
                let s = self.state();
                let key = self.stream(&s, stream)?;
                s.streams.get(key).map_or(Ok(()), |stream| Self::not_captured(stream, "given an overflow switch"))
            }
            ACL_STREAM_ATTR_USER_CUSTOM_TAG | ACL_STREAM_ATTR_CACHE_OP_INFO | ACL_STREAM_ATTR_PRIORITY => {
                self.stream(&self.state(), stream).map(|_| ())
            }
            other => usage(format!("attribute {other:?} is not known here")),
        }
    }

    pub(super) fn abort_stream(&self, stream: aclrtStream) -> Answer {
        let mut s = self.state();
        let key = self.stream(&s, stream)?;
        if let Some(found) = s.streams.get_mut(key) {
            Self::not_captured(found, "aborted")?;
            found.aborted = true;
        }
        self.discard(&mut s, key);
        self.host_cv.notify_all();
        Ok(())
    }

    pub(super) fn stream_id(&self, stream: aclrtStream) -> Answer<i32> {
        let s = self.state();
        let key = self.stream(&s, stream)?;
        Ok(s.streams.get(key).map_or(0, |stream| stream.id))
    }

    pub(super) fn streams_left(&self) -> Answer<u32> {
        let s = self.state();
        let device = self.current_device(&s)? as usize;
        Ok(self.devices[device].chip.streams.saturating_sub(s.devices[device].streams))
    }

    pub(super) fn create_event(&self, flags: u32, ex: bool) -> Answer<Key> {
        let known = ACL_EVENT_SYNC
            | ACL_EVENT_CAPTURE_STREAM_PROGRESS
            | ACL_EVENT_TIME_LINE
            | ACL_EVENT_DEVICE_USE_ONLY
            | ACL_EVENT_EXTERNAL
            | ACL_EVENT_IPC;
        if flags & !known != 0 || flags == 0 {
            return usage(format!("event flags {flags:#x}, expected known ones"));
        }
        let mut s = self.state();
        let context = self.current(&s)?;
        if !ex {
            if s.pool_events >= POOL_EVENTS {
                return Err(Fail::new(
                    ACL_ERROR_RT_NO_EVENT_RESOURCE,
                    format!("all {POOL_EVENTS} event numbers are in use"),
                ));
            }
            s.pool_events += 1;
        }
        let event = Event { context, flags, ex, mark: None, captured: None, polls: 0 };
        s.events.insert(event).ok_or_else(|| Fail::new(ACL_ERROR_RT_NO_EVENT_RESOURCE, "no event handle is left"))
    }

    pub(super) fn destroy_event(&self, event: aclrtEvent) -> Answer {
        let mut s = self.state();
        let key = self.own_event(&s, event)?;
        self.remove_event(&mut s, key);
        Ok(())
    }

    pub(super) fn remove_event(&self, s: &mut State, key: Key) {
        let Some(event) = s.events.remove(key) else { return };
        s.pool_events -= u32::from(!event.ex);
        if let Some(mark) = event.mark {
            s.release(mark);
        }
    }

    pub(super) fn record(self: &Arc<Self>, event: aclrtEvent, stream: aclrtStream) -> Answer {
        let mut s = self.state();
        let key = self.stream(&s, stream)?;
        let event_key = self.own_event(&s, event)?;
        self.check_submission(&s, key)?;
        if let Some((capture, lane)) = s.streams.get(key).and_then(|stream| stream.capture) {
            if s.events.get(event_key).is_some_and(|event| !event.ex) {
                return Err(Fail::new(
                    ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                    "only an event made by aclrtCreateEventExWithFlag can be recorded in a capture",
                ));
            }
            let at = self.add_node(&mut s, capture, lane, None, None, true)?;
            if let Some(event) = s.events.get_mut(event_key) {
                event.captured = Some((capture, at));
            }
            return Ok(());
        }
        let mark = Mark { done: false, time: 0, refs: 2, waits: 0, stream: key, failed: None };
        let Some(mark) = s.marks.insert(mark) else {
            return Err(Fail::new(ACL_ERROR_RT_NO_EVENT_RESOURCE, "no record of an event is left"));
        };
        let mut old = None;
        if let Some(event) = s.events.get_mut(event_key) {
            old = event.mark.replace(mark);
            event.captured = None;
            event.polls = 0;
        }
        if let Some(old) = old {
            s.release(old);
        }
        self.enqueue(s, key, Op::Record { mark }).map(drop)
    }

    pub(super) fn wait_event(self: &Arc<Self>, stream: aclrtStream, event: aclrtEvent, seconds: i32) -> Answer {
        let mut s = self.state();
        let key = self.stream(&s, stream)?;
        let event_key = self.own_event(&s, event)?;
        let Ok(seconds) = u64::try_from(seconds) else {
            return usage(format!("a time limit of {seconds} s, expected 0 or more"));
        };
        self.check_submission(&s, key)?;
        if let Some(answer) = self.captured_wait(&mut s, key, event_key) {
            return answer;
        }
        // What was never recorded counts as complete.
        let Some(mark) = s.events.get(event_key).and_then(|event| event.mark) else { return Ok(()) };
        if let Some(mark) = s.marks.get_mut(mark) {
            mark.refs += 1;
            mark.waits += 1;
        }
        let limit = (seconds > 0).then(|| seconds.saturating_mul(1_000_000_000));
        self.enqueue(s, key, Op::Wait { mark, limit }).map(drop)
    }

    pub(super) fn query_event(&self, event: aclrtEvent) -> Answer<aclrtEventRecordedStatus> {
        let mut s = self.state();
        self.current(&s)?;
        let key = self.event(&s, event)?;
        Self::event_not_captured(&s, key, "queried")?;
        let Some(found) = s.events.get_mut(key) else { return Ok(ACL_EVENT_RECORDED_STATUS_COMPLETE) };
        found.polls = found.polls.saturating_add(1);
        let (mark, polls) = (found.mark, found.polls);
        let Some(mark) = mark else { return Ok(ACL_EVENT_RECORDED_STATUS_COMPLETE) };
        let s = self.poll(s, polls, Need::Mark(mark));
        Ok(match s.marks.get(mark) {
            Some(mark) if !mark.done => ACL_EVENT_RECORDED_STATUS_NOT_READY,
            _ => ACL_EVENT_RECORDED_STATUS_COMPLETE,
        })
    }

    pub(super) fn sync_event(&self, event: aclrtEvent, timeout: i32) -> Answer {
        let limit = Self::limit(timeout)?;
        let mut s = self.state();
        self.current(&s)?;
        let key = self.event(&s, event)?;
        Self::event_not_captured(&s, key, "waited for")?;
        if self.faults.sync_timeout() {
            return Err(Fail::new(ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, "planned to time out"));
        }
        let Some(mark) = s.events.get(key).and_then(|event| event.mark) else { return Ok(()) };
        // Held, so that it is there afterwards whatever becomes of the event.
        if let Some(mark) = s.marks.get_mut(mark) {
            mark.refs += 1;
        }
        let (mut s, done) = self.wait(s, Need::Mark(mark), limit);
        let (end, failed) = s.marks.get(mark).map_or((0, None), |mark| (mark.time, mark.failed.clone()));
        s.release(mark);
        self.pass_time(end, limit, done, ACL_ERROR_RT_EVENT_SYNC_TIMEOUT)?;
        match failed {
            Some(fail) => Err(fail),
            None => Ok(()),
        }
    }

    /// Milliseconds of virtual time between two events.
    pub(super) fn elapsed(&self, start: aclrtEvent, end: aclrtEvent) -> Answer<f32> {
        let s = self.state();
        self.current(&s)?;
        let time = |event: aclrtEvent| -> Answer<u64> {
            let key = self.event(&s, event)?;
            Self::event_not_captured(&s, key, "timed")?;
            let Some(found) = s.events.get(key) else { return Ok(0) };
            if found.flags & ACL_EVENT_TIME_LINE == 0 {
                return Err(Fail::new(
                    ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID,
                    "the event was made without ACL_EVENT_TIME_LINE",
                ));
            }
            match found.mark.and_then(|mark| s.marks.get(mark)) {
                None => Err(Fail::new(ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID, "the event was not recorded")),
                Some(mark) if !mark.done => {
                    Err(Fail::new(ACL_ERROR_RT_EVENT_NOT_COMPLETE, "the event is not complete"))
                }
                Some(mark) => Ok(mark.time),
            }
        };
        let (start, end) = (time(start)?, time(end)?);
        let Some(ns) = end.checked_sub(start) else {
            return Err(Fail::new(ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL, "the end was recorded before the start"));
        };
        Ok((ns as f64 / 1e6) as f32)
    }

    pub(super) fn host_function(self: &Arc<Self>, stream: aclrtStream, call: UserCall) -> Answer {
        if call.function.is_none() {
            return usage("a null function");
        }
        self.submit(stream, |_| Ok(Op::Host(call)))
    }

    pub(super) fn callback(
        self: &Arc<Self>,
        stream: aclrtStream,
        call: UserCall,
        block: aclrtCallbackBlockType,
    ) -> Answer {
        if call.function.is_none() || block.0 > ACL_CALLBACK_BLOCK.0 {
            return usage("a null function, or a block type other than 0 and 1");
        }
        {
            let s = self.state();
            let key = self.stream(&s, stream)?;
            if s.streams.get(key).is_some_and(|stream| stream.reports_to.is_none()) {
                return Err(Fail::new(
                    ACL_ERROR_RT_STREAM_NO_CB_REG,
                    "no thread is subscribed to the stream's reports",
                ));
            }
            if s.streams.get(key).is_some_and(|stream| stream.capture.is_some()) {
                return Err(Fail::new(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "the older callbacks cannot be captured"));
            }
        }
        self.submit(stream, |_| Ok(Op::Report { call, block: block == ACL_CALLBACK_BLOCK }))
    }

    pub(super) fn subscribe(&self, thread: u64, stream: aclrtStream) -> Answer {
        let mut s = self.state();
        let key = self.stream(&s, stream)?;
        let Some(found) = s.streams.get_mut(key) else { return Ok(()) };
        if found.reports_to.is_some() {
            return Err(Fail::new(ACL_ERROR_RT_STREAM_SUBSCRIBE, "a thread is subscribed to the stream already"));
        }
        found.reports_to = Some(thread);
        Ok(())
    }

    pub(super) fn unsubscribe(&self, thread: u64, stream: aclrtStream) -> Answer {
        let mut s = self.state();
        let key = self.stream(&s, stream)?;
        let Some(found) = s.streams.get_mut(key) else { return Ok(()) };
        if found.reports_to != Some(thread) {
            return Err(Fail::new(ACL_ERROR_RT_STREAM_NO_CB_REG, "the thread is not subscribed to the stream"));
        }
        found.reports_to = None;
        Ok(())
    }

    /// Runs the next callback for this thread.
    pub(super) fn process_report(&self, timeout: i32) -> Answer {
        let limit = Self::limit(timeout)?;
        let me = this_thread();
        let mut s = self.state();
        if !s.streams.iter().any(|(_, stream)| stream.reports_to == Some(me)) {
            return Err(Fail::new(ACL_ERROR_RT_THREAD_SUBSCRIBE, "the thread is subscribed to no stream"));
        }
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let report = loop {
            if let Some(at) = s.reports.iter().position(|report| report.thread == me) {
                // The position was just found.
                if let Some(report) = s.reports.remove(at) {
                    break report;
                }
            }
            s = match deadline {
                None => self.host_cv.wait(s).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(Fail::new(ACL_ERROR_RT_REPORT_TIMEOUT, "no callback within the limit"));
                    }
                    self.host_cv.wait_timeout(s, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        };
        drop(s);
        {
            let _inside = super::thread::InsideTask::enter();
            // SAFETY: the program passed the function for this call.
            unsafe { report.call.call() };
        }
        if let Some(key) = report.holds {
            let mut s = self.state();
            if let Some(stream) = s.streams.get_mut(key) {
                stream.busy = false;
                stream.completed += 1;
            }
            self.wake(&s, key);
        }
        Ok(())
    }
}

/// This thread as the system numbers it.
fn this_thread() -> u64 {
    unsafe extern "C" {
        // An integer or a pointer; of this size either way.
        fn pthread_self() -> usize;
    }
    // SAFETY: the function has no precondition.
    unsafe { pthread_self() as u64 }
}
