// SPDX-License-Identifier: MIT OR Apache-2.0

//! How far the streams of a context are, and who used what last.
//!
//! Every submission to a stream gets a number, its *ticket*; a [`Lane`] knows how many were submitted and how many are
//! certainly done. A [`Mark`] is a ticket of a lane, and the [`Track`] of a buffer holds the marks of its last writer
//! and of the readers since. From them follows everything that needs to know when something is over:
//!
//! * a submission to one stream waits on the device for the marks that lie in others;
//! * memory, modules and graphs are freed when their marks are done;
//! * the host waits for marks before it touches pinned memory.
//!
//! An event is recorded only where a mark is asked for and no event after it exists, so work in one stream costs none.
//! Tickets are taken after the submission, and a fence reads the count before it records: so what a fence covers was
//! submitted before it, whichever threads submitted.
//!
//! Locks: the gate of a lane comes first; that of a track may be held while the state of a lane is taken; of two lanes never
//! both states; never a lock of a pool under that of a lane.

use crate::context::ContextInner;
use crate::error::Result;
use crate::handle::Handle;
use crate::raw::Call;
use crate::sys::*;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

/// What is done when the stream is gone.
const EVERYTHING: u64 = u64::MAX;

pub(crate) struct Lane {
    pub(crate) serial: u64,
    /// The number of the stream in profiles and logs.
    pub(crate) id: Option<i32>,
    submitted: AtomicU64,
    done: AtomicU64,
    /// Submissions are recorded, not run: they get no tickets, and no event may be recorded. Changes under the gate and
    /// the state.
    capturing: AtomicBool,
    /// Held to be read by who submits beside a capture, from the look at `capturing` to the end of the call: what slipped
    /// into a capture would not be owned by its graph.
    gate: RwLock<()>,
    state: Mutex<State>,
    /// Per other lane, the ticket up to which this one already waits for it.
    seen: Mutex<Vec<(u64, u64)>>,
}

struct State {
    /// None when the stream is destroyed.
    stream: Option<Handle>,
    /// Recorded events in order, each with the ticket up to which it covers.
    fences: VecDeque<(u64, Handle)>,
    /// Events that are not in use.
    spare: Vec<Handle>,
}

impl core::fmt::Debug for Lane {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Lane")
            .field("serial", &self.serial)
            .field("submitted", &self.submitted)
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

impl Lane {
    pub(crate) fn new(serial: u64, stream: Handle, id: Option<i32>) -> Arc<Self> {
        Arc::new(Self {
            serial,
            id,
            submitted: AtomicU64::new(0),
            done: AtomicU64::new(0),
            capturing: AtomicBool::new(false),
            gate: RwLock::new(()),
            state: Mutex::new(State { stream: Some(stream), fences: VecDeque::new(), spare: Vec::new() }),
            seen: Mutex::new(Vec::new()),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics under the lock; should it, the numbers are still right.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ticket of a submission that has just succeeded.
    pub(crate) fn submit(&self) -> u64 {
        self.submitted.fetch_add(1, Ordering::AcqRel) + 1
    }

    pub(crate) fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Acquire)
    }

    pub(crate) fn is_done(&self, ticket: u64) -> bool {
        self.done.load(Ordering::Acquire) >= ticket
    }

    /// Everything up to a ticket is known to be done: a wait of the host said so.
    pub(crate) fn complete(&self, ticket: u64) {
        self.done.fetch_max(ticket, Ordering::AcqRel);
        let mut state = self.state();
        while state.fences.front().is_some_and(|&(upto, _)| upto <= ticket) {
            if let Some((_, event)) = state.fences.pop_front() {
                state.spare.push(event);
            }
        }
    }

    pub(crate) fn is_capturing(&self) -> bool {
        self.capturing.load(Ordering::Acquire)
    }

    /// Keeps captures of the stream from beginning. None while one runs.
    pub(crate) fn enter(&self) -> Option<RwLockReadGuard<'_, ()>> {
        let gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        if self.is_capturing() { None } else { Some(gate) }
    }

    /// Begins the time in which submissions are recorded, when nobody is submitting. False if it has begun already.
    pub(crate) fn begin_capture(&self, context: &ContextInner) -> Result<bool> {
        let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        if self.is_capturing() {
            return Ok(false);
        }
        // What was submitted before can be waited for meanwhile.
        self.fence(context, &mut state, self.submitted())?;
        self.capturing.store(true, Ordering::Release);
        Ok(true)
    }

    /// Ends it.
    pub(crate) fn end_capture(&self) {
        let _state = self.state();
        self.capturing.store(false, Ordering::Release);
    }

    /// Looks how far the lane is, without waiting.
    pub(crate) fn advance(&self, context: &ContextInner) {
        self.advance_state(context, &mut self.state());
    }

    fn advance_state(&self, context: &ContextInner, state: &mut State) {
        while let Some(&(upto, event)) = state.fences.front() {
            let mut status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
            // SAFETY: the event lives until the lane gives it up, which takes the lock; `status` is written.
            let code = unsafe { context.raw().aclrtQueryEventStatus(event.get(), &raw mut status) };
            if code != ACL_SUCCESS || status != ACL_EVENT_RECORDED_STATUS_COMPLETE {
                break;
            }
            state.fences.pop_front();
            state.spare.push(event);
            self.done.fetch_max(upto, Ordering::AcqRel);
        }
    }

    /// An event that covers a ticket; none when the ticket is done, or when none can be recorded now because the stream
    /// is being captured.
    fn fence(&self, context: &ContextInner, state: &mut State, ticket: u64) -> Result<Option<Handle>> {
        if self.is_done(ticket) {
            return Ok(None);
        }
        if let Some(&(_, event)) = state.fences.iter().find(|&&(upto, _)| upto >= ticket) {
            return Ok(Some(event));
        }
        let Some(stream) = state.stream else { return Ok(None) };
        if self.is_capturing() {
            return Ok(None);
        }
        if state.spare.is_empty() {
            // A lane that nobody synchronises would take a new event each time.
            self.advance_state(context, state);
        }
        let event = match state.spare.pop() {
            Some(event) => event,
            None => context.create_event(ACL_EVENT_SYNC)?,
        };
        let upto = self.submitted();
        // SAFETY: event and stream are of this context, and live: giving up either takes the lock that is held.
        let code = unsafe { context.raw().aclrtRecordEvent(event.get(), stream.get()) };
        if let Err(error) = context.check(Call::aclrtRecordEvent, code) {
            state.spare.push(event);
            return Err(error);
        }
        state.fences.push_back((upto, event));
        Ok(Some(event))
    }

    /// Sees to it that an event covers a ticket, if it can be.
    pub(crate) fn ensure_fence(&self, context: &ContextInner, ticket: u64) -> Result<()> {
        self.fence(context, &mut self.state(), ticket).map(|_| ())
    }

    /// Waits on the host until a ticket is done. False when that cannot be waited for now: the stream is captured and no
    /// event covers the ticket.
    pub(crate) fn wait_host(&self, context: &ContextInner, ticket: u64) -> Result<bool> {
        if self.is_done(ticket) {
            return Ok(true);
        }
        let fence = {
            let mut state = self.state();
            let Some(event) = self.fence(context, &mut state, ticket)? else {
                return Ok(state.stream.is_none() || self.is_done(ticket));
            };
            // The event is taken out of the queue for the time of the wait, so that the lock need not be held: others
            // may submit meanwhile, and nobody records the event again.
            let at = state.fences.iter().position(|&(_, other)| other == event);
            at.and_then(|at| state.fences.remove(at))
        };
        let Some((upto, event)) = fence else { return Ok(false) };
        // SAFETY: the event is this function's alone now.
        let code = unsafe { context.raw().aclrtSynchronizeEvent(event.get()) };
        let result = context.check(Call::aclrtSynchronizeEvent, code);
        let mut state = self.state();
        if state.stream.is_none() {
            // The stream went away meanwhile, and took its events along; this one is left.
            context.destroy_event(event);
        } else if result.is_ok() {
            state.spare.push(event);
        } else {
            let at = state.fences.partition_point(|&(other, _)| other < upto);
            state.fences.insert(at, (upto, event));
        }
        drop(state);
        result?;
        self.complete(upto);
        Ok(true)
    }

    /// Lets another stream wait on the device until a ticket of this lane is done.
    pub(crate) fn wait_device(&self, context: &ContextInner, ticket: u64, who: &Lane, stream: Handle) -> Result<()> {
        if self.serial == who.serial || self.is_done(ticket) || who.has_seen(self.serial, ticket) {
            return Ok(());
        }
        let upto = {
            let mut state = self.state();
            let Some(event) = self.fence(context, &mut state, ticket)? else { return Ok(()) };
            // SAFETY: the event lives while the lock is held, the stream belongs to the caller; a wait that is queued
            // keeps its own record of the event.
            let code = unsafe { context.raw().aclrtStreamWaitEvent(stream.get(), event.get()) };
            context.check(Call::aclrtStreamWaitEvent, code)?;
            state.fences.iter().find(|&&(_, other)| other == event).map_or(ticket, |&(upto, _)| upto)
        };
        who.note_seen(self.serial, upto);
        Ok(())
    }

    fn has_seen(&self, serial: u64, ticket: u64) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().any(|&(other, upto)| other == serial && upto >= ticket)
    }

    fn note_seen(&self, serial: u64, ticket: u64) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match seen.iter_mut().find(|(other, _)| *other == serial) {
            Some((_, upto)) => *upto = (*upto).max(ticket),
            None => seen.push((serial, ticket)),
        }
    }

    /// Destroys the stream with `destroy` and gives the events up. Who asks for a ticket meanwhile waits for the lock,
    /// and then finds everything done.
    pub(crate) fn close(&self, context: &ContextInner, destroy: impl FnOnce(Handle)) {
        let mut state = self.state();
        if let Some(stream) = state.stream.take() {
            destroy(stream);
        }
        self.done.store(EVERYTHING, Ordering::Release);
        let events: Vec<Handle> = state.spare.drain(..).collect();
        let fences: Vec<Handle> = state.fences.drain(..).map(|(_, event)| event).collect();
        for event in events.into_iter().chain(fences) {
            context.destroy_event(event);
        }
    }
}

/// A submission, as something that can be asked about later.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) lane: Arc<Lane>,
    pub(crate) ticket: u64,
}

impl Mark {
    pub(crate) fn is_done(&self) -> bool {
        self.lane.is_done(self.ticket)
    }
}

/// What a submission does with something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Who used something last.
#[derive(Debug, Default)]
pub(crate) struct Track(Mutex<Uses>);

#[derive(Debug, Default)]
struct Uses {
    writer: Option<Mark>,
    /// Readers since the writer: at most one mark per lane.
    readers: Vec<Mark>,
}

impl Track {
    fn uses(&self) -> MutexGuard<'_, Uses> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a stream wait for what a use must come after.
    pub(crate) fn prepare(&self, context: &ContextInner, access: Access, who: &Lane, stream: Handle) -> Result<()> {
        let uses = self.uses();
        if let Some(mark) = &uses.writer {
            mark.lane.wait_device(context, mark.ticket, who, stream)?;
        }
        if access == Access::Write {
            for mark in &uses.readers {
                mark.lane.wait_device(context, mark.ticket, who, stream)?;
            }
        }
        Ok(())
    }

    /// Notes a use that was submitted.
    pub(crate) fn commit(&self, access: Access, lane: &Arc<Lane>, ticket: u64) {
        let mut uses = self.uses();
        match access {
            Access::Write => {
                uses.readers.clear();
                match &mut uses.writer {
                    Some(mark) if Arc::ptr_eq(&mark.lane, lane) => mark.ticket = mark.ticket.max(ticket),
                    writer => *writer = Some(Mark { lane: Arc::clone(lane), ticket }),
                }
            }
            Access::Read => match uses.readers.iter_mut().find(|mark| Arc::ptr_eq(&mark.lane, lane)) {
                Some(mark) => mark.ticket = mark.ticket.max(ticket),
                None => {
                    uses.readers.retain(|mark| !mark.is_done());
                    uses.readers.push(Mark { lane: Arc::clone(lane), ticket });
                }
            },
        }
    }

    /// The uses that a host access must wait for: writers for a read, everybody for a write.
    pub(crate) fn before(&self, access: Access) -> Vec<Mark> {
        let uses = self.uses();
        let readers = uses.readers.iter().filter(|_| access == Access::Write);
        uses.writer.iter().chain(readers).filter(|mark| !mark.is_done()).cloned().collect()
    }

    /// Waits on the host for what an access must come after. False when that cannot be waited for now.
    pub(crate) fn wait_host(&self, context: &ContextInner, access: Access) -> Result<bool> {
        for mark in self.before(access) {
            if !mark.lane.wait_host(context, mark.ticket)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
