// SPDX-License-Identifier: MIT OR Apache-2.0

//! Graphs: work that is recorded once and replayed often.
//!
//! A capture turns a stream into a recorder. What cannot be recorded (waiting, asking, copying from memory that is not
//! pinned) is not offered by a [`CapturingStream`], so the usual mistake does not compile. A [`Graph`] owns what its
//! tasks use: buffers, pinned memory, modules, events.

use crate::context::{Context, ContextInner};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Completion;
use crate::handle::Handle;
use crate::kernel::ModuleInner;
use crate::lane::{Access, Mark, Track};
use crate::mem::pool::Retired;
use crate::mem::{PinnedStorage, Storage};
use crate::queue::{Queue, Submission, Use, sealed};
use crate::raw::Call;
use crate::stream::{Stream, StreamInner};
use crate::sys::*;
use core::any::Any;
use core::cell::{Cell, RefCell};
use core::fmt;
use core::marker::PhantomData;
use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicU32, Ordering};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Which calls are forbidden while a capture runs, and to whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CaptureMode {
    /// Blocking copies and the like are forbidden in every thread of the process. Other threads that do not know of the
    /// capture fail with 107030; [`capture_lock`] keeps them off.
    Global,
    /// They are forbidden in the capturing thread.
    #[default]
    ThreadLocal,
    /// They are allowed.
    Relaxed,
}

impl CaptureMode {
    fn raw(self) -> aclmdlRICaptureMode {
        match self {
            Self::Global => ACL_MODEL_RI_CAPTURE_MODE_GLOBAL,
            Self::ThreadLocal => ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL,
            Self::Relaxed => ACL_MODEL_RI_CAPTURE_MODE_RELAXED,
        }
    }
}

thread_local! {
    /// How often this thread holds the lock of captures, and the lock itself while that is at least once.
    static HELD: RefCell<(usize, Option<MutexGuard<'static, ()>>)> = const { RefCell::new((0, None)) };
}

/// The time in which no other thread captures in [`CaptureMode::Global`].
#[derive(Debug)]
#[must_use = "captures are kept away only while the guard lives"]
pub struct CaptureLock {
    /// The lock is the thread's.
    thread: PhantomData<*mut ()>,
}

/// Keeps captures in [`CaptureMode::Global`] away while it is held: such a capture takes it for its own time. Threads that
/// must not fail because of one hold it around their blocking calls. A thread may take it again while it has it.
pub fn capture_lock() -> CaptureLock {
    static LOCK: Mutex<()> = Mutex::new(());
    HELD.with(|held| {
        let mut held = held.borrow_mut();
        if held.0 == 0 {
            held.1 = Some(LOCK.lock().unwrap_or_else(PoisonError::into_inner));
        }
        held.0 += 1;
    });
    CaptureLock { thread: PhantomData }
}

impl Drop for CaptureLock {
    fn drop(&mut self) {
        HELD.with(|held| {
            let mut held = held.borrow_mut();
            held.0 -= 1;
            if held.0 == 0 {
                held.1 = None;
            }
        });
    }
}

/// What a capture has recorded so far.
pub(crate) struct CaptureState {
    context: Context,
    keeps: RefCell<Keeps>,
    /// Streams that joined, the origin first.
    streams: RefCell<Vec<Arc<StreamInner>>>,
    events: RefCell<Vec<Handle>>,
    first: RefCell<Option<Error>>,
    ops: RefCell<Vec<Cow<'static, str>>>,
    nodes: Cell<usize>,
}

/// What a graph owns, each thing once, with the strongest use.
#[derive(Default)]
struct Keeps {
    storages: Vec<(Arc<Storage>, Access)>,
    pinned: Vec<(Arc<PinnedStorage>, Access)>,
    modules: Vec<Arc<ModuleInner>>,
    others: Vec<Arc<dyn Any + Send + Sync>>,
    /// By address, where in the lists above.
    index: HashMap<usize, usize>,
}

impl Keeps {
    fn add(&mut self, what: Use<'_>) {
        fn keep<T>(index: &mut HashMap<usize, usize>, list: &mut Vec<(Arc<T>, Access)>, what: &Arc<T>, access: Access) {
            match index.get(&Arc::as_ptr(what).addr()) {
                Some(&at) => list[at].1 = list[at].1.max(access),
                None => {
                    index.insert(Arc::as_ptr(what).addr(), list.len());
                    list.push((Arc::clone(what), access));
                }
            }
        }
        match what {
            Use::Device(storage, access) => keep(&mut self.index, &mut self.storages, storage, access),
            Use::Pinned(storage, access) => keep(&mut self.index, &mut self.pinned, storage, access),
            Use::Module(module) => {
                if !self.modules.iter().any(|other| Arc::ptr_eq(other, module)) {
                    self.modules.push(Arc::clone(module));
                }
            }
        }
    }
}

impl CaptureState {
    pub(crate) fn keep(&self, what: Use<'_>) {
        self.keeps.borrow_mut().add(what);
    }

    pub(crate) fn note(&self, error: &Error) {
        self.first.borrow_mut().get_or_insert_with(|| error.clone());
    }

    pub(crate) fn count(&self, call: Call) {
        self.nodes.set(self.nodes.get() + 1);
        self.name(Cow::Borrowed(call.name()));
    }

    pub(crate) fn count_launch(&self, name: Cow<'static, str>) {
        self.nodes.set(self.nodes.get() + 1);
        self.name(name);
    }

    /// Names follow each other as the tasks do; a name that repeats is told once.
    fn name(&self, name: Cow<'static, str>) {
        let mut ops = self.ops.borrow_mut();
        if ops.last() != Some(&name) {
            ops.push(name);
        }
    }

    fn fail(&self, error: Error) -> Error {
        self.note(&error);
        error
    }
}

/// A stream while it is captured: what is submitted is recorded and does not run.
///
/// It offers what a [`Queue`] offers, and forks. There is no waiting, asking or reading here:
///
/// ```compile_fail
/// # use ascend_rt::graph::CaptureMode;
/// # use ascend_rt::{Choice, Runtime};
/// # let context = Runtime::open(Choice::Auto)?.device(0)?.isolated()?;
/// # let mut stream = context.stream()?;
/// stream.capture(CaptureMode::default(), |capture| capture.synchronize())?;
/// # Ok::<(), ascend_rt::Error>(())
/// ```
///
/// nor through the stream itself, which is borrowed for the time of the capture:
///
/// ```compile_fail
/// # use ascend_rt::graph::CaptureMode;
/// # use ascend_rt::{Choice, Runtime};
/// # let context = Runtime::open(Choice::Auto)?.device(0)?.isolated()?;
/// # let mut stream = context.stream()?;
/// stream.capture(CaptureMode::default(), |_capture| stream.synchronize())?;
/// # Ok::<(), ascend_rt::Error>(())
/// ```
///
/// It stays in the thread that captures:
///
/// ```compile_fail
/// # use ascend_rt::graph::CaptureMode;
/// # use ascend_rt::{Choice, Queue, Runtime};
/// # let context = Runtime::open(Choice::Auto)?.device(0)?.isolated()?;
/// # let mut stream = context.stream()?;
/// # let mut buffer = context.alloc::<u8>(8)?;
/// stream.capture(CaptureMode::default(), |capture| {
///     std::thread::scope(|scope| scope.spawn(|| capture.fill(&mut buffer, 0)).join().unwrap())
/// })?;
/// # Ok::<(), ascend_rt::Error>(())
/// ```
pub struct CapturingStream<'c> {
    state: &'c CaptureState,
    stream: Arc<StreamInner>,
}

impl fmt::Debug for CapturingStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CapturingStream")
            .field("id", &self.stream.lane.id)
            .field("nodes", &self.state.nodes.get())
            .finish_non_exhaustive()
    }
}

impl sealed::Sealed for CapturingStream<'_> {
    fn submission(&self) -> Submission<'_> {
        Submission { stream: &self.stream, capture: Some(self.state) }
    }
}

impl Queue for CapturingStream<'_> {
    fn context(&self) -> &Context {
        &self.stream.context
    }
}

impl CapturingStream<'_> {
    /// How many tasks were recorded so far.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.state.nodes.get()
    }

    /// Lets the graph own something that its tasks use without this crate's knowledge.
    pub fn keep(&self, what: Arc<dyn Any + Send + Sync>) {
        self.state.keeps.borrow_mut().others.push(what);
    }

    /// Records work of another stream beside this one's: what the closure submits comes after what this stream has
    /// recorded so far, and before what it records after the fork.
    ///
    /// # Errors
    ///
    /// The other stream is of another context, is this one, or is being captured; or the closure failed.
    pub fn fork<R>(&self, other: &Stream, body: impl FnOnce(&CapturingStream<'_>) -> Result<R>) -> Result<R> {
        let inner = other.inner();
        let call = Call::aclrtStreamWaitEvent;
        let refuse = |code, detail: &str| {
            let error = Error::as_code(call, code, detail).on_stream(inner.lane.id);
            self.state.fail(error.on_device(self.state.context.device_index()))
        };
        if !inner.context.same(&self.state.context) {
            return Err(refuse(ACL_ERROR_RT_STREAM_CONTEXT, "the forked stream is of another context"));
        }
        let joined = self.state.streams.borrow().iter().any(|stream| Arc::ptr_eq(stream, inner));
        if Arc::ptr_eq(inner, &self.stream) || (!joined && inner.lane.is_capturing()) {
            return Err(refuse(ACL_ERROR_RT_STREAM_CAPTURED, "the forked stream is being captured"));
        }
        let context = self.state.context.inner();
        let _bound = context.bind().map_err(|error| self.state.fail(error))?;
        if !joined {
            if !inner.lane.begin_capture(context).map_err(|error| self.state.fail(error))? {
                return Err(refuse(ACL_ERROR_RT_STREAM_CAPTURED, "the forked stream is being captured"));
            }
            // From here on the end of the capture sets it free.
            self.state.streams.borrow_mut().push(Arc::clone(inner));
        }
        self.order(&self.stream, inner)?;
        let result = body(&CapturingStream { state: self.state, stream: Arc::clone(inner) });
        // The stream must be joined even when the closure failed, so that the capture can be ended.
        let join = self.order(inner, &self.stream);
        let result = result?;
        join?;
        Ok(result)
    }

    /// Lets what `after` records from now on come after what `before` has recorded. The context is bound.
    fn order(&self, before: &StreamInner, after: &StreamInner) -> Result<()> {
        let context = self.state.context.inner();
        let event = context.create_event(ACL_EVENT_SYNC).map_err(|error| self.state.fail(error))?;
        self.state.events.borrow_mut().push(event);
        // SAFETY: event and streams live, in one context.
        let code = unsafe { context.raw().aclrtRecordEvent(event.get(), before.handle.get()) };
        context.check(Call::aclrtRecordEvent, code).map_err(|error| self.state.fail(error))?;
        // SAFETY: event and streams live, in one context.
        let code = unsafe { context.raw().aclrtStreamWaitEvent(after.handle.get(), event.get()) };
        context.check(Call::aclrtStreamWaitEvent, code).map_err(|error| self.state.fail(error))
    }
}

/// Counts a capture of a context, from its begin to its end.
struct Counted<'a>(&'a ContextInner);

impl<'a> Counted<'a> {
    fn new(context: &'a ContextInner) -> Self {
        context.captures().fetch_add(1, Ordering::AcqRel);
        Self(context)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.captures().fetch_sub(1, Ordering::AcqRel);
    }
}

impl Stream {
    /// Records what the closure submits, and gives it back as a graph. Nothing of it runs.
    ///
    /// The stream is borrowed alone, so that the closure cannot wait for it. When the closure fails or panics, the capture
    /// is ended and what was recorded is destroyed; the error is the first one that happened, not what the library says
    /// about its consequences.
    ///
    /// ```
    /// use ascend_rt::graph::CaptureMode;
    /// use ascend_rt::{Choice, Queue, Runtime};
    ///
    /// let context = Runtime::open(Choice::Auto)?.device(0)?.isolated()?;
    /// let mut stream = context.stream()?;
    /// let mut host = context.pinned::<u32>(16)?;
    /// let mut device = context.alloc::<u32>(16)?;
    /// let mut graph = stream.capture(CaptureMode::default(), |capture| {
    ///     capture.upload_pinned(&host, &mut device)
    /// })?;
    /// for step in 0..3 {
    ///     host.write()?.fill(step);
    ///     graph.replay(&stream)?;
    /// }
    /// assert_eq!(stream.download(&device)?, [2; 16]);
    /// # Ok::<(), ascend_rt::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The stream is being captured, the context is poisoned, or the closure or the capture failed.
    pub fn capture(
        &mut self,
        mode: CaptureMode,
        body: impl FnOnce(&CapturingStream<'_>) -> Result<()>,
    ) -> Result<Graph> {
        let stream = Arc::clone(self.inner());
        let context = stream.context.inner();
        let call = Call::aclmdlRICaptureBegin;
        let submission = Submission { stream: &stream, capture: None };
        let locate = |error: Error| submission.locate(error);
        // The thread may be the one that captures the stream already.
        if stream.lane.is_capturing() {
            return Err(submission.captured(call));
        }
        let _lock = (mode == CaptureMode::Global).then(capture_lock);
        context.usable(call.name()).map_err(locate)?;
        let _bound = context.bind()?;
        context.reap();
        if !stream.lane.begin_capture(context).map_err(locate)? {
            return Err(submission.captured(call));
        }
        // SAFETY: the stream lives.
        let code = unsafe { context.raw().aclmdlRICaptureBegin(stream.handle.get(), mode.raw()) };
        if let Err(error) = context.check(call, code) {
            stream.lane.end_capture();
            return Err(locate(error));
        }
        let counted = Counted::new(context);

        let state = CaptureState {
            context: stream.context.clone(),
            keeps: RefCell::default(),
            streams: RefCell::new(vec![Arc::clone(&stream)]),
            events: RefCell::default(),
            first: RefCell::default(),
            ops: RefCell::default(),
            nodes: Cell::new(0),
        };
        let capturing = CapturingStream { state: &state, stream: Arc::clone(&stream) };
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| body(&capturing)));

        let mut graph = core::ptr::null_mut();
        // SAFETY: the stream lives, and began the capture in this thread; `graph` is written.
        let code = unsafe { context.raw().aclmdlRICaptureEnd(stream.handle.get(), &raw mut graph) };
        let ended = context.check(Call::aclmdlRICaptureEnd, code).map_err(locate);
        drop(counted);
        for joined in state.streams.take() {
            joined.lane.end_capture();
        }
        let events = state.events.take();
        // From here on the graph, whole or half, is destroyed with everything it has when it is dropped.
        let graph = (!graph.is_null()).then(|| Graph::new(&state, Handle::new(graph), events.clone()));
        if graph.is_none() {
            for event in events {
                context.destroy_event(event);
            }
        }
        let first = state.first.take();
        match result {
            Err(panic) => {
                drop(graph);
                std::panic::resume_unwind(panic);
            }
            // The closure's own error is what its caller wants to match on, unless it is a consequence.
            Ok(Err(error)) => Err(first.filter(|_| is_consequence(&error)).unwrap_or(error)),
            Ok(Ok(())) => match (ended, graph) {
                (Ok(()), Some(graph)) => Ok(graph),
                (Ok(()), None) => Err(first.unwrap_or_else(|| {
                    locate(Error::refused(ErrorKind::Capture, Call::aclmdlRICaptureEnd.name(), "there is no graph"))
                })),
                (Err(error), _) => Err(first.unwrap_or(error)),
            },
        }
    }
}

/// Whether an error says only that an earlier one spoiled the capture.
fn is_consequence(error: &Error) -> bool {
    error.code().0 == ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED
}

/// Recorded work, to be replayed. It owns what the work uses.
///
/// Dropping it is allowed at any time; it is destroyed when its last replay is done.
pub struct Graph {
    context: Context,
    handle: Handle,
    events: Vec<Handle>,
    keeps: Keeps,
    /// Replays of one graph do not overlap: each waits for the one before.
    track: Track,
    ops: Arc<[Cow<'static, str>]>,
    nodes: usize,
    forks: u32,
    /// The part of a [`GraphPool`]'s budget.
    lease: Option<Lease>,
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph")
            .field("nodes", &self.nodes)
            .field("buffers", &self.keeps.storages.len())
            .field("ops", &self.ops)
            .finish_non_exhaustive()
    }
}

impl Graph {
    fn new(state: &CaptureState, handle: Handle, events: Vec<Handle>) -> Self {
        let forks = u32::try_from(events.len() / 2).unwrap_or(u32::MAX);
        Self {
            context: state.context.clone(),
            handle,
            events,
            keeps: state.keeps.take(),
            track: Track::default(),
            ops: state.ops.take().into(),
            nodes: state.nodes.get(),
            forks,
            lease: None,
        }
    }

    /// How many tasks it has.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// The names of its tasks in order, each run of one name once.
    pub fn ops(&self) -> impl Iterator<Item = &str> {
        self.ops.iter().map(|name| &**name)
    }

    /// The context it belongs to.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The handle, for foreign code: an `aclmdlRI`. It lives as long as this object.
    #[must_use]
    pub fn raw_handle(&self) -> aclmdlRI {
        self.handle.get()
    }

    /// Queues a replay. It waits on the device for the replay before it, and for what other streams did with its buffers.
    ///
    /// # Errors
    ///
    /// The stream is of another context or being captured, the context is poisoned, or the host has a guard on pinned
    /// memory that the graph uses ([`ErrorKind::Busy`]).
    pub fn replay(&mut self, stream: &Stream) -> Result<Completion> {
        let submission = sealed::Sealed::submission(stream);
        let call = Call::aclmdlRIExecuteAsync;
        let inner = stream.inner();
        if !inner.context.same(&self.context) {
            let detail = "the graph was captured in another context";
            return Err(submission.locate(Error::as_code(call, ACL_ERROR_RT_MODEL_CONTEXT, detail)));
        }
        let _bound = submission.begin(call)?;
        let context = self.context.inner();
        let mut reserved = 0;
        let mut prepare = || {
            self.track.prepare(context, Access::Write, &inner.lane, inner.handle)?;
            for (storage, access) in &self.keeps.storages {
                submission.prepare(call, Use::Device(storage, *access))?;
            }
            for (storage, access) in &self.keeps.pinned {
                submission.prepare(call, Use::Pinned(storage, *access))?;
                reserved += 1;
            }
            // SAFETY: graph and stream live, in one context; what the graph's tasks use is owned by it.
            let code = unsafe { context.raw().aclmdlRIExecuteAsync(self.handle.get(), inner.handle.get()) };
            context.check(call, code)
        };
        if let Err(error) = prepare() {
            for (storage, access) in &self.keeps.pinned[..reserved] {
                submission.cancel(Use::Pinned(storage, *access));
            }
            return Err(submission.locate(error));
        }
        let ticket = submission.ticket();
        self.track.commit(Access::Write, &inner.lane, ticket);
        for (storage, access) in &self.keeps.storages {
            submission.commit(Use::Device(storage, *access), ticket);
        }
        for (storage, access) in &self.keeps.pinned {
            submission.commit(Use::Pinned(storage, *access), ticket);
        }
        for module in &self.keeps.modules {
            submission.commit(Use::Module(module), ticket);
        }
        inner.note_graph(&self.ops);
        Ok(Completion::new(&self.context, Mark { lane: Arc::clone(&inner.lane), ticket }))
    }

    /// Writes the graph to a file, in the library's own form.
    ///
    /// # Errors
    ///
    /// This version of CANN has no such call ([`Feature::GraphDump`](crate::Feature::GraphDump)), or the path has a zero
    /// byte.
    pub fn dump(&self, path: &std::path::Path) -> Result<()> {
        let context = self.context.inner();
        let Ok(path) = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()) else {
            return Err(Error::argument("Graph::dump", "path", "no zero byte", path.display().to_string()));
        };
        let _bound = context.bind()?;
        // SAFETY: the graph lives, the path ends with zero.
        let code = unsafe { context.raw().aclmdlRIDebugJsonPrint(self.handle.get(), path.as_ptr(), 0) };
        context.check(Call::aclmdlRIDebugJsonPrint, code)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let marks = self.track.before(Access::Write);
        let events = core::mem::take(&mut self.events);
        // What the graph owns goes after it: every buffer has the mark of the last replay, and waits in the same line.
        self.context.inner().retire(Retired::Graph { graph: self.handle, events }, marks);
    }
}

/// A budget of streams for captured graphs.
///
/// Every graph holds streams of the card, and when they run out, that shows in some other place. The pool counts what its
/// graphs hold, and refuses a capture while there is still a margin left.
///
/// ```
/// use ascend_rt::graph::{CaptureMode, GraphPool};
/// use ascend_rt::{Choice, Queue, Runtime};
///
/// let context = Runtime::open(Choice::Auto)?.device(0)?.isolated()?;
/// let mut stream = context.stream()?;
/// let mut buffer = context.alloc::<u8>(64)?;
/// let pool = GraphPool::new(&context).budget(100);
/// let graph = pool.capture(&mut stream, CaptureMode::default(), |capture| capture.fill(&mut buffer, 1))?;
/// assert!(pool.streams() >= 1);
/// drop(graph);
/// assert_eq!(pool.streams(), 0);
/// # Ok::<(), ascend_rt::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct GraphPool {
    context: Context,
    budget: Option<u32>,
    margin: u32,
    used: Arc<AtomicU32>,
}

/// What one graph has of a budget.
struct Lease {
    streams: u32,
    used: Arc<AtomicU32>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.used.fetch_sub(self.streams, Ordering::AcqRel);
    }
}

impl GraphPool {
    /// A pool that is limited by what the device has left, where the library tells.
    #[must_use]
    pub fn new(context: &Context) -> Self {
        Self { context: context.clone(), budget: None, margin: 4, used: Arc::default() }
    }

    /// Limits the streams that graphs of this pool hold together.
    #[must_use]
    pub fn budget(mut self, streams: u32) -> Self {
        self.budget = Some(streams);
        self
    }

    /// How many streams must stay free on the device; 4 without it.
    #[must_use]
    pub fn margin(mut self, streams: u32) -> Self {
        self.margin = streams;
        self
    }

    /// How many streams the graphs of this pool hold.
    #[must_use]
    pub fn streams(&self) -> u32 {
        self.used.load(Ordering::Acquire)
    }

    fn left(&self) -> Result<Option<u32>> {
        let of_device = self.context.streams_left()?.map(|left| left.saturating_sub(self.margin));
        let of_budget = self.budget.map(|budget| budget.saturating_sub(self.streams()));
        Ok(match (of_device, of_budget) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        })
    }

    fn refuse(&self, left: u32, detail: String) -> Error {
        Error::refused(ErrorKind::Resource { streams_left: Some(left) }, "GraphPool::capture", detail)
            .on_device(self.context.device_index())
    }

    /// [Captures](Stream::capture) within the budget.
    ///
    /// # Errors
    ///
    /// No stream is left ([`ErrorKind::Resource`]), before or because of the capture; or the capture failed.
    pub fn capture(
        &self,
        stream: &mut Stream,
        mode: CaptureMode,
        body: impl FnOnce(&CapturingStream<'_>) -> Result<()>,
    ) -> Result<Graph> {
        if self.left()? == Some(0) {
            return Err(self.refuse(0, format!("the graphs of this pool hold {} streams", self.streams())));
        }
        let before = self.context.streams_left()?;
        let mut graph = stream.capture(mode, body)?;
        let after = self.context.streams_left()?;
        // Where the library does not tell, a graph holds at least its own stream and those that forked.
        let streams = match (before, after) {
            (Some(before), Some(after)) => before.saturating_sub(after).max(1),
            _ => graph.forks.saturating_add(1),
        };
        let used = self.used.fetch_add(streams, Ordering::AcqRel).saturating_add(streams);
        graph.lease = Some(Lease { streams, used: Arc::clone(&self.used) });
        match self.budget {
            Some(budget) if used > budget => {
                let left = budget.saturating_sub(used - streams);
                Err(self.refuse(left, format!("the graph holds {streams} streams")))
            }
            _ => Ok(graph),
        }
    }
}
