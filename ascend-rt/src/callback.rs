// SPDX-License-Identifier: MIT OR Apache-2.0

//! Functions that a stream calls on the host.
//!
//! From CANN 8.5 on the runtime has a thread for them. Before, the program brings one, which says that it serves a stream
//! and then asks for calls in a loop; it is started with the first function of a stream and ends with the stream.

use crate::context::Context;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::raw::Call;
use crate::sys::*;
use core::ffi::c_void;
use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// How long a thread of ours waits for a call before it looks whether it should end.
const LOOK_MS: i32 = 50;

/// The functions of one stream.
#[derive(Default)]
pub(crate) struct HostCalls(Mutex<State>);

#[derive(Default)]
struct State {
    /// Those that were queued, until they have run.
    queued: Vec<Arc<HostCall>>,
    /// What the first one said that panicked.
    panics: Arc<Mutex<Option<String>>>,
    server: Option<Server>,
}

struct HostCall {
    function: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    panics: Arc<Mutex<Option<String>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No user code runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a queued function; the argument is an `Arc<HostCall>` that was turned into a pointer.
unsafe extern "C" fn run(argument: *mut c_void) {
    // SAFETY: the pointer comes from `Arc::into_raw` in `submit`, and the runtime passes it once.
    let call = unsafe { Arc::from_raw(argument.cast_const().cast::<HostCall>()) };
    let function = lock(&call.function).take();
    let Some(function) = function else { return };
    // A panic must not cross into the library.
    if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(function)) {
        let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
            (Some(text), _) => (*text).to_owned(),
            (_, Some(text)) => text.clone(),
            _ => "no message".to_owned(),
        };
        // What a panic carries may panic when it is dropped.
        core::mem::forget(panic);
        lock(&call.panics).get_or_insert(text);
    }
}

impl HostCalls {
    /// Queues a function. The context is bound, and the stream lives.
    pub(crate) fn submit(
        &self,
        context: &Context,
        stream: Handle,
        function: impl FnOnce() + Send + 'static,
    ) -> Result<()> {
        let raw = context.inner().raw();
        let mut state = lock(&self.0);
        state.queued.retain(|call| lock(&call.function).is_some());
        let newer = raw.has(Call::aclrtLaunchHostFunc);
        if !newer && state.server.is_none() {
            state.server = Some(Server::start(context, stream)?);
        }
        let host_call =
            Arc::new(HostCall { function: Mutex::new(Some(Box::new(function))), panics: Arc::clone(&state.panics) });
        let pointer = Arc::into_raw(Arc::clone(&host_call));
        let argument = pointer.cast_mut().cast::<c_void>();
        let (call, code) = if newer {
            // SAFETY: the stream lives; the function takes the pointer as an `Arc`, and is called once.
            (Call::aclrtLaunchHostFunc, unsafe { raw.aclrtLaunchHostFunc(stream.get(), Some(run), argument) })
        } else {
            // SAFETY: as above.
            let code = unsafe { raw.aclrtLaunchCallback(Some(run), argument, ACL_CALLBACK_BLOCK, stream.get()) };
            (Call::aclrtLaunchCallback, code)
        };
        if let Err(error) = context.inner().check(call, code) {
            // SAFETY: the call failed, so nobody else has the pointer.
            drop(unsafe { Arc::from_raw(pointer) });
            return Err(error);
        }
        state.queued.push(host_call);
        Ok(())
    }

    /// What a function said that panicked, once.
    pub(crate) fn take_panic(&self) -> Option<String> {
        // Not under the lock of the list: a function may be telling.
        let panics = Arc::clone(&lock(&self.0).panics);
        lock(&panics).take()
    }

    /// Takes the thread off a stream that is about to be destroyed. `wait` says whether its functions are waited for. The
    /// context is bound.
    pub(crate) fn unsubscribe(&self, context: &Context, stream: Handle, wait: bool) {
        let state = lock(&self.0);
        let Some(server) = &state.server else { return };
        let inner = context.inner();
        if wait {
            // SAFETY: the stream lives.
            let code = unsafe { inner.raw().aclrtSynchronizeStream(stream.get()) };
            inner.quietly_check(Call::aclrtSynchronizeStream, code);
        }
        // SAFETY: the thread was said to serve this stream.
        let code = unsafe { inner.raw().aclrtUnSubscribeReport(server.id, stream.get()) };
        inner.quietly_check(Call::aclrtUnSubscribeReport, code);
    }

    /// Drops what was queued and never ran, when the stream is gone, and ends the thread.
    pub(crate) fn close(&self) {
        let (queued, server) = {
            let mut state = lock(&self.0);
            (core::mem::take(&mut state.queued), state.server.take())
        };
        drop(server);
        for call in queued {
            // If the library kept the pointer, it finds nothing to call.
            let function = lock(&call.function).take();
            drop(function);
        }
    }
}

/// A thread of ours that runs the functions of one stream.
struct Server {
    id: u64,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    #[cfg(unix)]
    fn start(context: &Context, stream: Handle) -> Result<Self> {
        use crate::error::ErrorKind;
        use std::os::unix::thread::JoinHandleExt as _;
        let inner = context.inner();
        for call in [Call::aclrtLaunchCallback, Call::aclrtSubscribeReport, Call::aclrtProcessReport] {
            if !inner.raw().has(call) {
                return Err(Error::missing(Call::aclrtLaunchHostFunc));
            }
        }
        let stop = Arc::new(AtomicBool::new(false));
        // The thread keeps the runtime and not the context: the stream ends it before the context goes.
        let (stopped, runtime, handle) =
            (Arc::clone(&stop), Arc::clone(inner.runtime()), Handle::new(context.handle()));
        let thread = std::thread::Builder::new()
            .name("ascend-rt host".to_owned())
            .spawn(move || {
                // SAFETY: the context lives until the thread has ended.
                let _ = unsafe { runtime.raw.aclrtSetCurrentContext(handle.get()) };
                while !stopped.load(Ordering::Acquire) {
                    // SAFETY: the function has no pointer. What it calls are the functions of this module.
                    let code = unsafe { runtime.raw.aclrtProcessReport(LOOK_MS) };
                    if code != ACL_SUCCESS {
                        // Mostly that there was nothing to do. Any other code would come at once and again.
                        let _ = runtime.message();
                        std::thread::sleep(core::time::Duration::from_millis(1));
                    }
                }
            })
            .map_err(|error| {
                Error::refused(ErrorKind::Resource { streams_left: None }, "Stream::host_func", error.to_string())
            })?;
        #[allow(clippy::unnecessary_cast, reason = "the type is another one on other systems")]
        let this = Self { id: thread.as_pthread_t() as u64, stop, thread: Some(thread) };
        // SAFETY: the thread runs, and the stream lives.
        let code = unsafe { inner.raw().aclrtSubscribeReport(this.id, stream.get()) };
        inner.check(Call::aclrtSubscribeReport, code)?;
        Ok(this)
    }

    #[cfg(not(unix))]
    fn start(_context: &Context, _stream: Handle) -> Result<Self> {
        Err(Error::missing(Call::aclrtLaunchHostFunc))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // It does not panic: user code is caught, and the rest cannot.
            let _ = thread.join();
        }
    }
}
