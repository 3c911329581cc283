// SPDX-License-Identifier: MIT OR Apache-2.0

//! The executors: which task runs next, on which thread, and what its end means.
//!
//! The same three steps serve all executors: [`Machine::step`] looks at the head of a stream and either completes it in
//! place (records, waits, marks) or takes it out; [`Machine::run`] does its work without the lock of the state; and
//! [`Machine::finish`] writes down what came of it. They differ in who calls them: a worker per stream, or the threads
//! of the program while they submit ([`Machine::jiggle`]) and wait ([`Machine::wait`]).
//!
//! Functions of the program never run on the thread that waits for them: with executors without workers they go to a
//! callback thread.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::{Arc, Condvar, MutexGuard, PoisonError};
use std::time::Instant;

use super::config::{Executor, FullQueue};
use super::fail::{Answer, Fail};
use super::machine::Machine;
use super::run::{Ran, Site};
use super::slab::Key;
use super::state::{Graph, GraphState, Grouping, Op, Report, State, Stream, Task};
use super::sync::lock;
use super::thread::InsideTask;
use super::trace::{Name, Piece, Row};
use crate::sys::*;

/// What a waiting call waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Need {
    /// So many tasks of a stream.
    Stream(Key, u64),
    Mark(Key),
    /// All streams of a context.
    Context(Key),
    /// All streams of a device.
    Device(u32),
    /// Room in the queue of a stream.
    Room(Key),
    /// The replays of a graph.
    Graph(Key),
}

enum Step {
    /// Nothing to do, or the head cannot run yet.
    Blocked,
    /// The head was completed in place.
    Light,
    /// The head is to be run; it begins at this virtual time.
    Heavy(Task, u64),
}

impl Machine {
    fn has_workers(&self) -> bool {
        self.config.executor == Executor::Threads
    }

    fn met(&self, s: &State, need: Need) -> bool {
        let idle =
            |select: &dyn Fn(&Stream) -> bool| s.streams.iter().all(|(_, stream)| !select(stream) || stream.is_idle());
        match need {
            Need::Stream(key, upto) => s.streams.get(key).is_none_or(|stream| stream.completed >= upto),
            Need::Mark(key) => s.marks.get(key).is_none_or(|mark| mark.done),
            Need::Context(context) => idle(&|stream| stream.context == context),
            Need::Device(device) => idle(&|stream| stream.device == device),
            Need::Room(key) => s.streams.get(key).is_none_or(|stream| stream.queue.len() < self.config.queue_limit),
            Need::Graph(key) => graph(s, key).is_none_or(|graph| graph.pending.load(Ordering::Acquire) == 0),
        }
    }

    /// Whether the head of a stream can run now.
    fn runnable(s: &State, key: Key) -> bool {
        let Some(stream) = s.streams.get(key) else { return false };
        match stream.queue.front().map(|task| &task.op) {
            None => false,
            Some(_) if stream.busy => false,
            Some(Op::Wait { mark, .. }) => s.marks.get(*mark).is_none_or(|mark| mark.done),
            Some(_) => true,
        }
    }

    /// A stream whose head runs next on a thread that waits, if one can run.
    fn pick(&self, s: &mut State, need: Need) -> Option<Key> {
        match self.config.executor {
            Executor::Threads => None,
            Executor::Seeded(_) => Self::pick_any(s, true),
            Executor::Lazy => self.pick_needed(s, need),
        }
    }

    fn pick_any(s: &mut State, with_program: bool) -> Option<Key> {
        let fits = |s: &State, key: Key| {
            let head = s.streams.get(key).and_then(|stream| stream.queue.front());
            Self::runnable(s, key) && (with_program || head.is_some_and(|task| !task.op.calls_program()))
        };
        // Priorities that change now and then, instead of an even draw: a stream of low priority falls behind all
        // others, which an even draw nearly never lets happen, and which is what a missing wait needs to show.
        let fitting = s.streams.iter().filter(|(key, _)| fits(s, *key));
        let key = fitting.max_by_key(|(_, stream)| stream.priority).map(|(key, _)| key)?;
        if s.rng.below(8) == 0 {
            let priority = s.rng.next();
            if let Some(stream) = s.streams.get_mut(key) {
                stream.priority = priority;
            }
        }
        Some(key)
    }

    /// The stream to run for a need, and for nothing else.
    fn pick_needed(&self, s: &State, need: Need) -> Option<Key> {
        let first = |select: &dyn Fn(&Stream) -> bool| {
            s.streams
                .iter()
                .filter(|(_, stream)| select(stream) && !stream.is_idle())
                .find_map(|(key, _)| Self::towards(s, key))
        };
        match need {
            Need::Stream(key, _) | Need::Room(key) => Self::towards(s, key),
            Need::Mark(mark) => Self::towards(s, s.marks.get(mark)?.stream),
            Need::Context(context) => first(&|stream| stream.context == context),
            Need::Device(device) => first(&|stream| stream.device == device),
            Need::Graph(key) => {
                let graph = graph(s, key)?;
                let replays = |task: &Task| matches!(&task.op, Op::Replay(of) if Arc::ptr_eq(of, graph));
                first(&|stream| stream.queue.iter().any(replays))
            }
        }
    }

    /// Follows waits from the head of a stream to a head that can run. Waits refer to records that were submitted
    /// before, so the way has no cycle.
    fn towards(s: &State, mut key: Key) -> Option<Key> {
        loop {
            let stream = s.streams.get(key)?;
            if stream.busy {
                return None;
            }
            match &stream.queue.front()?.op {
                Op::Wait { mark, .. } => match s.marks.get(*mark) {
                    Some(mark) if !mark.done => key = mark.stream,
                    _ => return Some(key),
                },
                _ => return Some(key),
            }
        }
    }

    /// Takes the next step of a stream.
    fn step(&self, s: &mut State, key: Key) -> Step {
        if !Self::runnable(s, key) {
            return Step::Blocked;
        }
        let Some(stream) = s.streams.get_mut(key) else { return Step::Blocked };
        let Some(task) = stream.queue.pop_front() else { return Step::Blocked };
        let begin = stream.end.max(task.submitted);
        let (device, id) = (stream.device, stream.id);
        match task.op {
            Op::Record { mark } => {
                stream.end = begin;
                stream.completed += 1;
                let failed = stream.error.clone();
                self.reach(s, mark, begin, failed);
            }
            Op::Wait { mark, limit } => {
                let time = s.marks.get(mark).map_or(0, |mark| mark.time);
                let end = match limit {
                    Some(limit) if time > begin.saturating_add(limit) => {
                        let fail = Fail::new(ACL_ERROR_RT_WAIT_TIMEOUT, "a wait for an event went over its limit");
                        self.failed(s, key, fail);
                        begin.saturating_add(limit)
                    }
                    _ => begin.max(time),
                };
                if let Some(stream) = s.streams.get_mut(key) {
                    stream.end = end;
                    stream.completed += 1;
                }
                s.release(mark);
                self.wake(s, key);
            }
            Op::Note(text) => {
                stream.end = begin;
                stream.completed += 1;
                self.trace.add(|| mark_piece(Row::Stream(device, id), Name::Text(text), begin));
                self.wake(s, key);
            }
            Op::Report { call, block } => {
                stream.end = begin;
                let thread = stream.reports_to.unwrap_or(0);
                if block {
                    stream.busy = true;
                } else {
                    stream.completed += 1;
                }
                s.reports.push_back(Report { thread, call, holds: block.then_some(key) });
                self.host_cv.notify_all();
            }
            _ => {
                stream.busy = true;
                return Step::Heavy(task, begin);
            }
        }
        Step::Light
    }

    /// Completes a mark, and wakes who waits for it.
    fn reach(&self, s: &mut State, mark: Key, time: u64, failed: Option<Fail>) {
        let mut waited = false;
        if let Some(found) = s.marks.get_mut(mark) {
            found.done = true;
            found.time = time;
            found.failed = failed;
            waited = found.waits > 0;
        }
        s.release(mark);
        if waited {
            for (_, stream) in s.streams.iter() {
                if let (Some(Op::Wait { mark: of, .. }), Some(worker)) =
                    (stream.queue.front().map(|task| &task.op), &stream.worker)
                    && *of == mark
                {
                    worker.notify_one();
                }
            }
        }
        self.wake_hosts(s);
    }

    fn wake_hosts(&self, s: &State) {
        if s.waiting > 0 {
            self.host_cv.notify_all();
        }
    }

    pub(super) fn wake(&self, s: &State, key: Key) {
        self.wake_hosts(s);
        if let Some(worker) = s.streams.get(key).and_then(|stream| stream.worker.as_ref()) {
            worker.notify_one();
        }
    }

    /// Where a task of a stream runs.
    fn site(&self, s: &mut State, key: Key, begin: u64) -> Site {
        let shuffle = matches!(self.config.executor, Executor::Seeded(_)).then(|| s.rng.next());
        let stream = s.streams.get(key);
        Site {
            device: stream.map_or(0, |stream| stream.device),
            stream_id: stream.map_or(0, |stream| stream.id),
            begin,
            shuffle,
        }
    }

    /// Runs a task that was taken out, and writes down what came of it.
    fn execute<'a>(
        &'a self,
        mut s: MutexGuard<'a, State>,
        key: Key,
        mut task: Task,
        begin: u64,
    ) -> MutexGuard<'a, State> {
        let site = self.site(&mut s, key, begin);
        if self.faults.device_lost(site.device) {
            s.devices[site.device as usize].lost = true;
        }
        if s.devices[site.device as usize].lost {
            let failure = Some(Self::lost(site.device));
            self.finish(&mut s, key, task, begin, Ran { cost: 0, bytes: 0, failure });
            return s;
        }
        let program = task.op.calls_program();
        if program {
            s.user_code += 1;
            self.wake_hosts(&s);
        }
        drop(s);
        let ran = {
            let _inside = InsideTask::enter();
            self.run(&site, &mut task.op)
        };
        if let Some(failure) = &ran.failure {
            self.tell_of_exception(&site, failure);
        }
        let mut s = self.state();
        if program {
            s.user_code -= 1;
        }
        self.finish(&mut s, key, task, begin, ran);
        s
    }

    /// Calls the program's exception hook.
    fn tell_of_exception(&self, site: &Site, failure: &Fail) {
        let Some(hook) = *lock(&self.exception_callback) else { return };
        // Task, stream, thread, device, code, as the library's own struct begins.
        let mut info = [0u32, site.stream_id.unsigned_abs(), 0, site.device, failure.code.unsigned_abs(), 0, 0, 0];
        let _inside = InsideTask::enter();
        // SAFETY: the program registered the function for such calls, and the argument lives until it returns.
        unsafe { hook(info.as_mut_ptr().cast()) };
    }

    fn finish(&self, s: &mut State, key: Key, task: Task, begin: u64, ran: Ran) {
        let end = begin.saturating_add(ran.cost);
        if let Some(stream) = s.streams.get_mut(key) {
            stream.busy = false;
            stream.completed += 1;
            stream.end = end;
            let row = Row::Stream(stream.device, stream.id);
            self.trace.add(|| piece(row, &task.op, begin, &ran));
        }
        match task.op {
            Op::Kernel(launch) => s.spare.push(launch.payload),
            Op::Replay(graph) => {
                graph.pending.fetch_sub(1, Ordering::AcqRel);
                graph.end.fetch_max(end, Ordering::AcqRel);
            }
            Op::Update { launches, .. } => s.spare.extend(launches.into_iter().map(|(_, launch)| launch.payload)),
            _ => {}
        }
        if let Some(failure) = ran.failure {
            self.failed(s, key, failure);
        }
        self.wake(s, key);
    }

    /// Writes a failure down: for the next synchronisation, and for what the failure mode says.
    fn failed(&self, s: &mut State, key: Key, failure: Fail) {
        let Some(stream) = s.streams.get_mut(key) else {
            s.unseen.push(failure.text.into_owned());
            return;
        };
        let (context, device) = (stream.context, stream.device);
        let lost = failure.code == ACL_ERROR_RT_LOST_HEARTBEAT;
        let stop = s.contexts.get(context).is_some_and(|context| context.stop);
        // The first failure stays where nothing runs after it; otherwise the last one does.
        if !(stop || lost) || stream.error.is_none() {
            stream.error = Some(failure.clone());
            stream.failed_at = stream.end;
        }
        if stop && let Some(found) = s.contexts.get_mut(context) {
            found.stopped.get_or_insert(failure);
        }
        if stop || lost {
            for key in s.streams.keys(|stream| if lost { stream.device == device } else { stream.context == context }) {
                self.discard(s, key);
            }
        }
    }

    /// Drops what a stream has queued. Who waits for it goes on.
    pub(super) fn discard(&self, s: &mut State, key: Key) {
        while let Some(stream) = s.streams.get_mut(key) {
            let Some(task) = stream.queue.pop_front() else { break };
            stream.completed += 1;
            let end = stream.end;
            let context = s.contexts.get(stream.context);
            let failed =
                stream.error.as_ref().or_else(|| context.and_then(|context| context.stopped.as_ref())).cloned();
            match task.op {
                Op::Record { mark } => self.reach(s, mark, end, failed),
                Op::Wait { mark, .. } => s.release(mark),
                Op::Replay(graph) => {
                    graph.pending.fetch_sub(1, Ordering::AcqRel);
                }
                Op::Kernel(launch) => s.spare.push(launch.payload),
                _ => {}
            }
        }
        // Reports of the stream that nobody processes any more.
        let held = s.reports.iter().any(|report| report.holds == Some(key));
        if held {
            s.reports.retain(|report| report.holds != Some(key));
            if let Some(stream) = s.streams.get_mut(key) {
                stream.busy = false;
                stream.completed += 1;
            }
        }
        self.wake(s, key);
    }

    /// Makes one step of a stream on a thread of the program.
    fn advance<'a>(&'a self, mut s: MutexGuard<'a, State>, key: Key) -> MutexGuard<'a, State> {
        match self.step(&mut s, key) {
            Step::Blocked | Step::Light => s,
            Step::Heavy(task, begin) if task.op.calls_program() => {
                s.handed.push_back((key, task, begin));
                self.callback_cv.notify_one();
                s
            }
            Step::Heavy(task, begin) => {
                s.driving = true;
                let mut s = self.execute(s, key, task, begin);
                s.driving = false;
                self.wake_hosts(&s);
                s
            }
        }
    }

    /// Lets a random number of tasks run after a submission; only the seeded executor does.
    pub(super) fn jiggle<'a>(&'a self, mut s: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if !matches!(self.config.executor, Executor::Seeded(_)) || s.driving || InsideTask::now() {
            return s;
        }
        let eagerness = s.eagerness;
        for _ in 0..s.rng.below(eagerness) {
            match Self::pick_any(&mut s, false) {
                Some(key) => s = self.advance(s, key),
                None => break,
            }
        }
        s
    }

    /// A query: with an executor that has no threads, it lets tasks run, so that a program that polls comes to an end.
    pub(super) fn poll<'a>(&'a self, mut s: MutexGuard<'a, State>, polls: u32, need: Need) -> MutexGuard<'a, State> {
        if s.driving || InsideTask::now() {
            return s;
        }
        let steps = match self.config.executor {
            Executor::Threads => 0,
            Executor::Seeded(_) => s.rng.below(4),
            // The first query after a submission shows what is really there.
            Executor::Lazy => usize::from(polls > 1),
        };
        for _ in 0..steps {
            match self.pick(&mut s, need) {
                Some(key) if !self.met(&s, need) => s = self.advance(s, key),
                _ => break,
            }
        }
        s
    }

    /// Waits for something. False when the limit has passed: of the machine's time, and only while a function of the
    /// program runs, since everything else comes to an end by itself.
    pub(super) fn wait<'a>(
        &'a self,
        mut s: MutexGuard<'a, State>,
        need: Need,
        limit: Option<Duration>,
    ) -> (MutexGuard<'a, State>, bool) {
        let mut deadline = None;
        loop {
            if self.met(&s, need) {
                return (s, true);
            }
            if s.shutdown {
                return (s, false);
            }
            if !self.has_workers()
                && !s.driving
                && let Some(key) = self.pick(&mut s, need)
            {
                s = self.advance(s, key);
                continue;
            }
            let blocked_by_program = s.user_code > 0 || !s.handed.is_empty() || !s.reports.is_empty();
            s.waiting += 1;
            match limit.filter(|_| blocked_by_program) {
                Some(limit) => {
                    let now = Instant::now();
                    let deadline = *deadline.get_or_insert_with(|| now.checked_add(limit).unwrap_or(now));
                    let Some(left) = deadline.checked_duration_since(now).filter(|left| !left.is_zero()) else {
                        s.waiting -= 1;
                        return (s, false);
                    };
                    s = self.host_cv.wait_timeout(s, left).unwrap_or_else(PoisonError::into_inner).0;
                }
                None => s = self.host_cv.wait(s).unwrap_or_else(PoisonError::into_inner),
            }
            s.waiting -= 1;
        }
    }

    /// Submits a task to a stream: to its queue, to its capture, or to the task group that it updates.
    pub(super) fn submit(self: &Arc<Self>, stream: aclrtStream, make: impl FnOnce(&mut State) -> Answer<Op>) -> Answer {
        let mut s = self.state();
        let key = self.stream(&s, stream)?;
        self.check_submission(&s, key)?;
        let op = make(&mut s)?;
        let Some(found) = s.streams.get_mut(key) else { return Ok(()) };
        if let Some((capture, lane)) = found.capture {
            let function = match &op {
                Op::Kernel(launch) => Some(launch.function.clone()),
                _ => None,
            };
            let at = self.add_node(&mut s, capture, lane, Some(op), None, false)?;
            if let (Some(function), Some(found)) = (function, s.streams.get_mut(key))
                && let Grouping::Marking(nodes) = &mut found.grouping
            {
                nodes.push((at, function));
            }
            return Ok(());
        }
        match (op, &found.grouping) {
            (Op::Kernel(launch), Grouping::Updating { .. }) => self.take_update(&mut s, key, launch),
            (op, _) => self.enqueue(s, key, op).map(drop),
        }
    }

    /// Queues a task.
    pub(super) fn enqueue<'a>(
        self: &'a Arc<Self>,
        mut s: MutexGuard<'a, State>,
        key: Key,
        op: Op,
    ) -> Answer<MutexGuard<'a, State>> {
        if !self.met(&s, Need::Room(key)) {
            if self.config.full_queue == FullQueue::Refuse {
                self.recycle(&mut s, op);
                let limit = self.config.queue_limit;
                return Err(Fail::new(
                    ACL_ERROR_RT_STREAM_TASK_FULL,
                    format!("the queue of the stream is full with {limit} tasks"),
                ));
            }
            let done;
            (s, done) = self.wait(s, Need::Room(key), None);
            if !done || !s.streams.contains(key) {
                self.recycle(&mut s, op);
                return Err(Fail::new(
                    ACL_ERROR_RT_INVALID_HANDLE,
                    "the stream was destroyed while a task was submitted",
                ));
            }
        }
        let submitted = self.now();
        let program = op.calls_program();
        let Some(stream) = s.streams.get_mut(key) else { return Ok(s) };
        if let Op::Replay(graph) = &op {
            graph.pending.fetch_add(1, Ordering::AcqRel);
        }
        stream.queue.push_back(Task { op, submitted });
        stream.submitted += 1;
        stream.polls = 0;
        if self.has_workers() {
            match stream.worker.clone() {
                Some(worker) => worker.notify_one(),
                None => self.start_worker(&mut s, key)?,
            }
        } else if program {
            self.start_callback_thread()?;
        }
        Ok(self.jiggle(s))
    }

    /// Gives back what a task that will not run holds.
    pub(super) fn recycle(&self, s: &mut State, op: Op) {
        match op {
            Op::Kernel(launch) => s.spare.push(launch.payload),
            Op::Record { mark } | Op::Wait { mark, .. } => s.release(mark),
            _ => {}
        }
    }

    fn start_worker(self: &Arc<Self>, s: &mut State, key: Key) -> Answer {
        let bell = Arc::new(Condvar::new());
        let Some(stream) = s.streams.get_mut(key) else { return Ok(()) };
        let name = format!("ascend stream {}", stream.id);
        let machine = self.clone();
        let rings = bell.clone();
        let started = std::thread::Builder::new().name(name).spawn(move || machine.work(key, &rings));
        match started {
            Ok(handle) => {
                stream.worker = Some(bell);
                self.keep(handle);
                Ok(())
            }
            Err(error) => {
                self.discard(s, key);
                Err(Fail::new(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, format!("no thread for the stream: {error}")))
            }
        }
    }

    fn keep(&self, handle: std::thread::JoinHandle<()>) {
        let mut workers = lock(&self.workers);
        workers.retain(|worker| !worker.is_finished());
        workers.push(handle);
    }

    /// The life of a worker.
    fn work(&self, key: Key, bell: &Condvar) {
        let mut s = self.state();
        while !s.shutdown && s.streams.contains(key) {
            match self.step(&mut s, key) {
                Step::Light => {}
                Step::Heavy(task, begin) => s = self.execute(s, key, task, begin),
                Step::Blocked => s = bell.wait(s).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// The thread that calls functions of the program for executors without workers.
    fn start_callback_thread(self: &Arc<Self>) -> Answer {
        if !lock(&self.workers).is_empty() {
            return Ok(());
        }
        let machine = self.clone();
        let started = std::thread::Builder::new().name("ascend callbacks".to_owned()).spawn(move || {
            let mut s = machine.state();
            while !s.shutdown {
                match s.handed.pop_front() {
                    Some((key, task, begin)) => s = machine.execute(s, key, task, begin),
                    None => s = machine.callback_cv.wait(s).unwrap_or_else(PoisonError::into_inner),
                }
            }
        });
        match started {
            Ok(handle) => {
                self.keep(handle);
                Ok(())
            }
            Err(error) => Err(Fail::new(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, format!("no thread for callbacks: {error}"))),
        }
    }
}

/// A graph that can be replayed.
fn graph(s: &State, key: Key) -> Option<&Arc<Graph>> {
    match &s.graphs.get(key)?.state {
        GraphState::Ready(graph) => Some(graph),
        GraphState::Capturing => None,
    }
}

fn mark_piece(row: Row, name: Name, start: u64) -> Piece {
    Piece { row, name, category: "mark", start, length: None, bytes: 0, blocks: 0, failed: 0 }
}

/// The piece of the timeline that shows a task.
pub(super) fn piece(row: Row, op: &Op, start: u64, ran: &Ran) -> Piece {
    let (name, category, blocks) = match op {
        Op::Kernel(launch) => {
            let function = &launch.function;
            (Name::Kernel(function.module_name.clone(), function.name.clone()), "kernel", launch.blocks)
        }
        Op::Copy(_) => (Name::Static("copy"), "copy", 0),
        Op::Fill { .. } => (Name::Static("fill"), "copy", 0),
        Op::Host(_) | Op::Report { .. } => (Name::Static("host function"), "host", 0),
        Op::Replay(_) => (Name::Static("replay"), "graph", 0),
        Op::Update { .. } => (Name::Static("update"), "graph", 0),
        Op::Record { .. } => (Name::Static("record"), "event", 0),
        Op::Wait { .. } => (Name::Static("wait"), "event", 0),
        Op::Note(text) => (Name::Text(text.clone()), "mark", 0),
    };
    let failed = ran.failure.as_ref().map_or(0, |failure| failure.code);
    Piece { row, name, category, start, length: Some(ran.cost), bytes: ran.bytes, blocks, failed }
}
