// SPDX-License-Identifier: MIT OR Apache-2.0

//! Contexts: what streams, memory and modules belong to, and what failures spoil.

use crate::device::{Device, Facts, signed};
use crate::error::{Error, ErrorKind, Result};
use crate::handle::Handle;
use crate::lane::{Lane, Mark};
use crate::mem::pool::{MemoryUse, Pool, PoolPolicy, Retired};
use crate::raw::{Call, Raw};
use crate::runtime::{Backend, Runtime, RuntimeInner};
use crate::stream::{Stream, StreamOptions};
use crate::sys::*;
use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use once_cell::sync::OnceCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

pub(crate) struct ContextInner {
    runtime: Arc<RuntimeInner>,
    pub(crate) device: u32,
    handle: Handle,
    isolated: bool,
    facts: OnceCell<Facts>,
    poisoned: AtomicBool,
    first: Mutex<Option<Arc<Error>>>,
    quiet: Mutex<Quiet>,
    pub(crate) pool: Mutex<Pool>,
    lanes: Mutex<Vec<Weak<Lane>>>,
    serials: AtomicU64,
    captures: AtomicUsize,
}

/// What a drop hands an error to.
type Hook = dyn Fn(&Error) + Send + Sync;

/// Errors that nobody could be handed.
#[derive(Default)]
struct Quiet {
    last: Option<Error>,
    hook: Option<Arc<Hook>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No user code runs under these locks but the hook's `Arc` clone; what they guard stays whole after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ContextInner {
    fn new(runtime: Arc<RuntimeInner>, device: u32, handle: Handle, isolated: bool) -> Self {
        let policy = match runtime.backend() {
            Backend::Acl => PoolPolicy::Cached,
            Backend::Host => PoolPolicy::Direct,
        };
        Self {
            runtime,
            device,
            handle,
            isolated,
            facts: OnceCell::new(),
            poisoned: AtomicBool::new(false),
            first: Mutex::new(None),
            quiet: Mutex::default(),
            pool: Mutex::new(Pool::new(policy)),
            lanes: Mutex::new(Vec::new()),
            serials: AtomicU64::new(0),
            captures: AtomicUsize::new(0),
        }
    }

    pub(crate) fn raw(&self) -> &dyn Raw {
        &*self.runtime.raw
    }

    pub(crate) fn runtime(&self) -> &Arc<RuntimeInner> {
        &self.runtime
    }

    pub(crate) fn is_isolated(&self) -> bool {
        self.isolated
    }

    /// Makes the context current in this thread until the guard goes.
    pub(crate) fn bind(&self) -> Result<Bound<'_>> {
        let mut current = core::ptr::null_mut();
        // SAFETY: `current` is written.
        let code = unsafe { self.raw().aclrtGetCurrentContext(&raw mut current) };
        let before = match code {
            ACL_SUCCESS if Handle::new(current) == self.handle => {
                return Ok(Bound { context: self, before: None, thread: PhantomData });
            }
            ACL_SUCCESS if !current.is_null() => Some(Handle::new(current)),
            ACL_SUCCESS => None,
            ACL_ERROR_RT_CONTEXT_NULL => {
                // Nobody asked, so the message is not anybody's.
                let _ = self.runtime.message();
                None
            }
            code => {
                self.check(Call::aclrtGetCurrentContext, code)?;
                None
            }
        };
        // SAFETY: the context lives as long as this object.
        let code = unsafe { self.raw().aclrtSetCurrentContext(self.handle.get()) };
        self.check(Call::aclrtSetCurrentContext, code)?;
        Ok(Bound { context: self, before, thread: PhantomData })
    }

    /// Turns a code into a result that knows device and first failure; a failure on the device spoils the context.
    pub(crate) fn check(&self, call: Call, code: aclError) -> Result<()> {
        if code == ACL_SUCCESS {
            return Ok(());
        }
        let error = Error::from_code(call, code, self.runtime.message()).on_device(self.device);
        Err(self.note(error))
    }

    /// Adds the first failure to an error; the first one that spoils the context becomes it.
    pub(crate) fn note(&self, error: Error) -> Error {
        let mut first = lock(&self.first);
        match &*first {
            Some(before) => {
                let before = Arc::clone(before);
                error.with_first(Some(before))
            }
            None => {
                if error.poisons() {
                    *first = Some(Arc::new(error.clone()));
                    self.poisoned.store(true, Ordering::Release);
                }
                error
            }
        }
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// Refuses work after a failure.
    pub(crate) fn usable(&self, call: &'static str) -> Result<()> {
        if !self.is_poisoned() {
            return Ok(());
        }
        let first = lock(&self.first).clone();
        Err(Error::refused(ErrorKind::Poisoned, call, "").on_device(self.device).with_first(first))
    }

    /// An error that a drop met.
    pub(crate) fn quietly(&self, error: Error) {
        let hook = {
            let mut quiet = lock(&self.quiet);
            quiet.last.get_or_insert_with(|| error.clone());
            quiet.hook.clone()
        };
        if let Some(hook) = hook {
            // A hook that panics must not take a drop with it.
            let _ = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| hook(&error)));
        }
    }

    pub(crate) fn quietly_check(&self, call: Call, code: aclError) {
        if let Err(error) = self.check(call, code) {
            self.quietly(error);
        }
    }

    pub(crate) fn facts(&self) -> &Facts {
        self.facts.get_or_init(|| {
            let device = Device::new(Runtime::from_inner(Arc::clone(&self.runtime)), self.device);
            device.facts()
        })
    }

    /// A new event. The context is bound.
    pub(crate) fn create_event(&self, flag: u32) -> Result<Handle> {
        let mut event = core::ptr::null_mut();
        // SAFETY: `event` is written.
        let code = unsafe { self.raw().aclrtCreateEventExWithFlag(&raw mut event, flag) };
        self.check(Call::aclrtCreateEventExWithFlag, code)?;
        Ok(Handle::new(event))
    }

    /// Destroys an event that nobody uses any more. The context is bound.
    pub(crate) fn destroy_event(&self, event: Handle) {
        // SAFETY: the caller gives the event up; what waits for it on the device is not disturbed.
        let code = unsafe { self.raw().aclrtDestroyEvent(event.get()) };
        self.quietly_check(Call::aclrtDestroyEvent, code);
    }

    pub(crate) fn next_serial(&self) -> u64 {
        self.serials.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn add_lane(&self, lane: &Arc<Lane>) {
        let mut lanes = lock(&self.lanes);
        lanes.retain(|lane| lane.strong_count() > 0);
        lanes.push(Arc::downgrade(lane));
    }

    pub(crate) fn lanes(&self) -> Vec<Arc<Lane>> {
        lock(&self.lanes).iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn captures(&self) -> &AtomicUsize {
        &self.captures
    }

    pub(crate) fn pool(&self) -> MutexGuard<'_, Pool> {
        lock(&self.pool)
    }

    /// Gives something up when its last uses are done. The context need not be bound.
    pub(crate) fn retire(&self, what: Retired, marks: Vec<Mark>) {
        let bound = self.bind();
        let marks: Vec<Mark> = marks.into_iter().filter(|mark| !mark.is_done()).collect();
        if marks.is_empty() && bound.is_ok() {
            self.release(what);
            return;
        }
        if bound.is_ok() && !self.is_poisoned() {
            for mark in &marks {
                // Where no event can be recorded now, the next look tries again.
                let _ = mark.lane.ensure_fence(self, mark.ticket);
            }
        }
        self.pool().defer(what, marks);
    }

    /// Frees what was given up and is no longer used. The context is bound.
    pub(crate) fn reap(&self) {
        if !self.pool().has_deferred() {
            return;
        }
        if !self.is_poisoned() {
            for lane in self.lanes() {
                lane.advance(self);
            }
        }
        loop {
            let ready = self.pool().take_ready();
            match ready {
                Some(what) => self.release(what),
                None => break,
            }
        }
        if self.is_poisoned() {
            return;
        }
        // What has no event after its last use, because it was dropped during a capture, gets one now.
        let bare = self.pool().deferred_marks();
        for mark in bare {
            let _ = mark.lane.ensure_fence(self, mark.ticket);
        }
    }

    /// Waits for everything that was given up, as far as it can be waited for, and frees it. The context is bound.
    pub(crate) fn reap_waiting(&self) -> Result<()> {
        let marks = self.pool().deferred_marks();
        for mark in marks {
            mark.lane.wait_host(self, mark.ticket)?;
        }
        self.reap();
        Ok(())
    }

    /// Frees one thing at once. The context is bound, and no lock is held.
    fn release(&self, what: Retired) {
        match what {
            Retired::Device(block) => {
                let returned = self.pool().give_back(block);
                if let Some(pointer) = returned {
                    // SAFETY: the pool gave the address up, and every task that used it is done.
                    let code = unsafe { self.raw().aclrtFree(pointer.get()) };
                    self.quietly_check(Call::aclrtFree, code);
                }
            }
            Retired::Pinned { pointer, bytes } => {
                self.pool().pinned_freed(bytes);
                // SAFETY: the buffer is gone, and every copy that used it is done.
                let code = unsafe { self.raw().aclrtFreeHost(pointer.get()) };
                self.quietly_check(Call::aclrtFreeHost, code);
            }
            Retired::Graph { graph, events } => {
                // SAFETY: the graph's owner is gone, and its last replay is done.
                let code = unsafe { self.raw().aclmdlRIDestroy(graph.get()) };
                self.quietly_check(Call::aclmdlRIDestroy, code);
                for event in events {
                    self.destroy_event(event);
                }
            }
            Retired::Module(module) => {
                // SAFETY: the module's owner is gone with all its kernels, and its last launch is done.
                let code = unsafe { self.raw().aclrtBinaryUnLoad(module.get()) };
                self.quietly_check(Call::aclrtBinaryUnLoad, code);
            }
        }
    }
}

impl Drop for ContextInner {
    fn drop(&mut self) {
        // Streams, events, buffers and modules hold the context, so none is left; what they gave up is no longer used,
        // since a stream waits for its tasks, or discards them, before it goes.
        let bound = match self.bind() {
            Ok(bound) => bound,
            Err(error) => {
                self.quietly(error);
                return;
            }
        };
        loop {
            let next = self.pool().take_any();
            match next {
                Some(what) => self.release(what),
                None => break,
            }
        }
        let held = self.pool().take_cached();
        for pointer in held {
            // SAFETY: nothing of the cache is in use.
            let code = unsafe { self.raw().aclrtFree(pointer.get()) };
            self.quietly_check(Call::aclrtFree, code);
        }
        let before = bound.before;
        // The context is destroyed while it is current, so there is nothing to go back from.
        core::mem::forget(bound);
        if self.isolated {
            // SAFETY: the context was made by `aclrtCreateContext`, and everything in it is gone.
            let code = unsafe { self.raw().aclrtDestroyContext(self.handle.get()) };
            self.quietly_check(Call::aclrtDestroyContext, code);
        } else {
            // SAFETY: this undoes the one `aclrtSetDevice` of this object.
            let code = unsafe { self.raw().aclrtResetDevice(signed(self.device)) };
            self.quietly_check(Call::aclrtResetDevice, code);
        }
        if let Some(before) = before {
            // SAFETY: a context that was current before. Should it be gone by now, the library says so.
            let code = unsafe { self.raw().aclrtSetCurrentContext(before.get()) };
            self.quietly_check(Call::aclrtSetCurrentContext, code);
        }
    }
}

/// The time in which a context is current in this thread. What was current before comes back at the end.
///
/// While it lives, foreign code in this thread (aclnn, HCCL) works in this context.
#[must_use = "the context is current only while the guard lives"]
pub struct Bound<'a> {
    context: &'a ContextInner,
    before: Option<Handle>,
    /// What is current is a property of the thread.
    thread: PhantomData<*mut ()>,
}

impl fmt::Debug for Bound<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bound(device {})", self.context.device)
    }
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // SAFETY: a context that was current before. Should it be gone by now, the library says so.
            let code = unsafe { self.context.raw().aclrtSetCurrentContext(before.get()) };
            self.context.quietly_check(Call::aclrtSetCurrentContext, code);
        }
    }
}

/// Free and total bytes of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes that nobody has. The largest block may be smaller.
    pub free: usize,
    /// All bytes.
    pub total: usize,
}

/// A context on a device: streams, events, memory, modules and graphs are made in it and used with each other.
///
/// Every method makes it current in the calling thread first, so objects may go to any thread. It may be cloned; all
/// clones are one, and every object made in it keeps it alive.
///
/// After a failure on the device the context is *poisoned*: [`poisoned`](Self::poisoned) says by what, work is refused,
/// and dropping everything and making a new context is the way on.
///
/// ```
/// use ascend_rt::{Choice, Runtime};
///
/// let context = Runtime::open(Choice::Auto)?.device(0)?.isolated()?;
/// let stream = context.stream()?;
/// let buffer = stream.upload(&[1.0f32, 2.0, 3.0])?;
/// assert_eq!(stream.download(&buffer)?, [1.0, 2.0, 3.0]);
/// # Ok::<(), ascend_rt::Error>(())
/// ```
#[derive(Clone)]
pub struct Context {
    inner: Arc<ContextInner>,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("device", &self.inner.device)
            .field("isolated", &self.inner.isolated)
            .field("poisoned", &self.inner.is_poisoned())
            .finish_non_exhaustive()
    }
}

impl Context {
    pub(crate) fn primary(runtime: &Runtime, device: u32) -> Result<Self> {
        let mut primaries = runtime.primaries();
        if let Some(inner) = primaries.get(&device).and_then(Weak::upgrade) {
            return Ok(Self { inner });
        }
        let raw = runtime.raw();
        let before = current(&**raw);
        // SAFETY: the number is that of a device.
        let code = unsafe { raw.aclrtSetDevice(signed(device)) };
        runtime.inner().check(Call::aclrtSetDevice, code).map_err(|error| error.on_device(device))?;
        let mut context = core::ptr::null_mut();
        // SAFETY: `context` is written.
        let code = unsafe { raw.aclrtGetCurrentContext(&raw mut context) };
        let result = runtime.inner().check(Call::aclrtGetCurrentContext, code);
        let inner = result
            .map(|()| Arc::new(ContextInner::new(Arc::clone(runtime.inner()), device, Handle::new(context), false)));
        if inner.is_err() {
            // SAFETY: this undoes the call above.
            let _ = unsafe { raw.aclrtResetDevice(signed(device)) };
        }
        back(&**raw, before);
        let inner = inner.map_err(|error| error.on_device(device))?;
        primaries.insert(device, Arc::downgrade(&inner));
        Ok(Self { inner })
    }

    pub(crate) fn isolated(runtime: &Runtime, device: u32) -> Result<Self> {
        let raw = runtime.raw();
        let before = current(&**raw);
        let mut context = core::ptr::null_mut();
        // SAFETY: `context` is written.
        let code = unsafe { raw.aclrtCreateContext(&raw mut context, signed(device)) };
        let result = runtime.inner().check(Call::aclrtCreateContext, code);
        back(&**raw, before);
        result.map_err(|error| error.on_device(device))?;
        let inner = ContextInner::new(Arc::clone(runtime.inner()), device, Handle::new(context), true);
        Ok(Self { inner: Arc::new(inner) })
    }

    pub(crate) fn inner(&self) -> &Arc<ContextInner> {
        &self.inner
    }

    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// The number of its device.
    #[must_use]
    pub fn device_index(&self) -> u32 {
        self.inner.device
    }

    /// Its device.
    #[must_use]
    pub fn device(&self) -> Device {
        Device::new(self.runtime(), self.inner.device)
    }

    /// Its runtime.
    #[must_use]
    pub fn runtime(&self) -> Runtime {
        Runtime::from_inner(Arc::clone(&self.inner.runtime))
    }

    /// The facts of its device, asked for once.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        self.inner.facts()
    }

    /// Makes the context current in this thread for foreign code, until the guard goes.
    ///
    /// # Errors
    ///
    /// The context cannot be made current.
    pub fn bind(&self) -> Result<Bound<'_>> {
        self.inner.bind()
    }

    /// The handle, for foreign code: an `aclrtContext`. It lives as long as this object.
    #[must_use]
    pub fn handle(&self) -> aclrtContext {
        self.inner.handle.get()
    }

    /// The first failure on the device, after which the context takes no more work.
    #[must_use]
    pub fn poisoned(&self) -> Option<Error> {
        lock(&self.inner.first).as_deref().cloned()
    }

    /// A stream with the usual options.
    ///
    /// # Errors
    ///
    /// There is none to be had.
    pub fn stream(&self) -> Result<Stream> {
        self.stream_with(StreamOptions::default())
    }

    /// A stream.
    ///
    /// # Errors
    ///
    /// There is none to be had.
    pub fn stream_with(&self, options: StreamOptions) -> Result<Stream> {
        Stream::new(self, options)
    }

    /// Waits for all streams of the context.
    ///
    /// # Errors
    ///
    /// A task failed, or a stream of the context is being captured.
    pub fn synchronize(&self) -> Result<()> {
        let _bound = self.inner.bind()?;
        let lanes: Vec<_> = self.inner.lanes().into_iter().map(|lane| (lane.submitted(), lane)).collect();
        // SAFETY: the function has no argument.
        let code = unsafe { self.inner.raw().aclrtSynchronizeDevice() };
        self.inner.check(Call::aclrtSynchronizeDevice, code)?;
        for (ticket, lane) in lanes {
            lane.complete(ticket);
        }
        self.inner.reap();
        self.inner.usable(Call::aclrtSynchronizeDevice.name())
    }

    /// Free and total memory of the device. Memory that the pool holds is not free; memory that other processes hold is
    /// neither.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn memory(&self) -> Result<MemoryInfo> {
        let _bound = self.inner.bind()?;
        self.inner.memory_info()
    }

    /// What this context has of the device's memory.
    #[must_use]
    pub fn memory_use(&self) -> MemoryUse {
        self.inner.pool().usage()
    }

    /// Waits for what was dropped and is still in use, and gives everything that is not in use back to the device.
    /// Returns the bytes that the device got back.
    ///
    /// # Errors
    ///
    /// A task failed.
    pub fn trim(&self) -> Result<usize> {
        let _bound = self.inner.bind()?;
        let before = self.inner.pool().usage();
        self.inner.reap_waiting()?;
        self.inner.trim_cache();
        let after = self.inner.pool().usage();
        Ok(before.taken.saturating_sub(after.taken))
    }

    /// Says how device memory is kept after use. The default is [`PoolPolicy::Cached`] on a card, and
    /// [`PoolPolicy::Direct`] on the emulator, where every allocation has guards of its own and freed memory is found out.
    ///
    /// # Errors
    ///
    /// A task failed, when what is cached had to be waited for.
    pub fn set_pool_policy(&self, policy: PoolPolicy) -> Result<()> {
        self.trim()?;
        self.inner.pool().set_policy(policy);
        Ok(())
    }

    /// Limits the bytes that this context takes from the device, in use and cached; beyond it, allocation fails as if
    /// the device had no more. `None` is no limit.
    pub fn set_memory_limit(&self, bytes: Option<usize>) {
        self.inner.pool().set_limit(bytes);
    }

    /// The first error that a drop met since the last call. A drop has nobody to return it to.
    #[must_use]
    pub fn take_drop_error(&self) -> Option<Error> {
        lock(&self.inner.quiet).last.take()
    }

    /// What is called with each error that a drop meets, from the thread of the drop.
    pub fn on_drop_error(&self, hook: impl Fn(&Error) + Send + Sync + 'static) {
        lock(&self.inner.quiet).hook = Some(Arc::new(hook));
    }

    /// How many more streams the device has, where the library tells.
    ///
    /// # Errors
    ///
    /// The call failed for another reason than that it is not there.
    pub fn streams_left(&self) -> Result<Option<u32>> {
        let _bound = self.inner.bind()?;
        self.inner.streams_left()
    }

    /// How many captures are running in this context.
    #[must_use]
    pub fn captures(&self) -> usize {
        self.inner.captures.load(Ordering::Acquire)
    }

    /// Lets kernels of this device reach the memory of another device.
    ///
    /// # Errors
    ///
    /// The devices cannot.
    pub fn enable_peer_access(&self, peer: &Device) -> Result<()> {
        let _bound = self.inner.bind()?;
        // SAFETY: the function has no pointer.
        let code = unsafe { self.inner.raw().aclrtDeviceEnablePeerAccess(signed(peer.index()), 0) };
        self.inner.check(Call::aclrtDeviceEnablePeerAccess, code)
    }
}

impl ContextInner {
    /// The context is bound.
    pub(crate) fn memory_info(&self) -> Result<MemoryInfo> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are written.
        let code = unsafe { self.raw().aclrtGetMemInfo(ACL_HBM_MEM, &raw mut free, &raw mut total) };
        self.check(Call::aclrtGetMemInfo, code)?;
        Ok(MemoryInfo { free, total })
    }

    /// The context is bound.
    pub(crate) fn streams_left(&self) -> Result<Option<u32>> {
        let mut count = 0;
        if !self.raw().has(Call::aclrtGetStreamAvailableNum) {
            return Ok(None);
        }
        // SAFETY: `count` is written.
        let code = unsafe { self.raw().aclrtGetStreamAvailableNum(&raw mut count) };
        self.check(Call::aclrtGetStreamAvailableNum, code)?;
        Ok(Some(count))
    }

    /// Gives the cache back to the device. The context is bound.
    pub(crate) fn trim_cache(&self) {
        let held = self.pool().take_cached();
        for pointer in held {
            // SAFETY: nothing of the cache is in use.
            let code = unsafe { self.raw().aclrtFree(pointer.get()) };
            self.quietly_check(Call::aclrtFree, code);
        }
    }
}

/// The context that is current in this thread, if any.
fn current(raw: &dyn Raw) -> Option<Handle> {
    let mut context = core::ptr::null_mut();
    // SAFETY: `context` is written.
    let code = unsafe { raw.aclrtGetCurrentContext(&raw mut context) };
    (code == ACL_SUCCESS && !context.is_null()).then(|| Handle::new(context))
}

/// Makes the context current again that was before.
fn back(raw: &dyn Raw, before: Option<Handle>) {
    if let Some(before) = before {
        // SAFETY: it was current a moment ago. Should it be gone by now, the library says so.
        let _ = unsafe { raw.aclrtSetCurrentContext(before.get()) };
    }
}
