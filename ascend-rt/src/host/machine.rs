// SPDX-License-Identifier: MIT OR Apache-2.0

//! One emulated machine, and the checks that most calls begin with.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::ffi::CString;
use std::sync::{Condvar, Mutex, MutexGuard, RwLock};
use std::thread::JoinHandle;

use super::chip::Chip;
use super::config::{Executor, Settings, nanoseconds};
use super::fail::{Answer, Fail};
use super::faults::Faults;
use super::memory::{Arena, Pinned, Token};
use super::modules::Kernels;
use super::prof::Profiler;
use super::slab::Key;
use super::state::State;
use super::sync::lock;
use super::thread::{self, Identity};
use super::trace::Trace;
use crate::raw::Call;
use crate::sys::*;

/// A device: its memory, and the lock of whoever touches it.
pub(super) struct Device {
    pub(super) chip: Chip,
    pub(super) arch: String,
    /// The addresses it hands out.
    pub(super) window: core::ops::Range<u64>,
    /// Where the data that comes with a launch appears.
    pub(super) side_address: u64,
    pub(super) arena: Mutex<Arena>,
    pub(super) token: Mutex<Token>,
}

pub(super) struct Machine {
    pub(super) identity: Identity,
    pub(super) config: Settings,
    pub(super) soc_name: Option<CString>,
    pub(super) devices: Vec<Device>,
    pub(super) pinned: Mutex<Pinned>,
    pub(super) state: Mutex<State>,
    /// Threads of the program that wait for tasks, and threads that wait for reports.
    pub(super) host_cv: Condvar,
    /// The callback thread.
    pub(super) callback_cv: Condvar,
    pub(super) workers: Mutex<Vec<JoinHandle<()>>>,
    pub(super) kernels: RwLock<Kernels>,
    pub(super) faults: Faults,
    pub(super) trace: Trace,
    pub(super) profiler: Mutex<Profiler>,
    /// Guard zones that were written, until a call returns them.
    pub(super) damage: Mutex<Vec<String>>,
    pub(super) exception_callback: Mutex<aclrtExceptionInfoCallback>,
    /// Nanoseconds of virtual time that a kernel may take.
    pub(super) op_timeout: AtomicU64,
    pub(super) counts: Vec<AtomicU64>,
}

/// A code that says that an argument is wrong.
pub(super) fn usage<T>(text: impl Into<std::borrow::Cow<'static, str>>) -> Answer<T> {
    Err(Fail::new(ACL_ERROR_RT_PARAM_INVALID, text))
}

impl Machine {
    pub(super) fn new(config: Settings) -> Machine {
        let identity = Identity::new();
        let chips = config.resolved_chips();
        let seed = match config.executor {
            Executor::Seeded(seed) => seed,
            _ => 0,
        };
        let devices: Vec<Device> = chips
            .into_iter()
            .enumerate()
            .map(|(index, chip)| {
                let capacity = config.capacity.unwrap_or(chip.memory);
                let (number, index) = (identity.number, index as u32);
                let arena = Arena::new(number, index, capacity, chip.extra, config.fill, config.quarantine);
                Device {
                    arch: if chip.arch == 1001 { "dav-c100".to_owned() } else { format!("dav-{}", chip.arch) },
                    window: arena.window(),
                    side_address: arena.side_address(),
                    arena: Mutex::new(arena),
                    token: Mutex::new(Token::default()),
                    chip,
                }
            })
            .collect();
        let kernels = config
            .kernels
            .iter()
            .map(|(module, name, kernel)| ((module.clone(), name.clone()), kernel.clone()))
            .collect();
        Machine {
            soc_name: devices.first().and_then(|device| CString::new(device.chip.name.as_str()).ok()),
            pinned: Mutex::new(Pinned::new(config.pinned_limit, config.fill, config.quarantine)),
            state: Mutex::new(State::new(identity.number, devices.len(), seed)),
            host_cv: Condvar::new(),
            callback_cv: Condvar::new(),
            workers: Mutex::new(Vec::new()),
            kernels: RwLock::new(kernels),
            faults: Faults::new(&config.faults),
            trace: Trace::new(config.trace),
            profiler: Mutex::new(Profiler::default()),
            damage: Mutex::new(Vec::new()),
            exception_callback: Mutex::new(None),
            op_timeout: AtomicU64::new(nanoseconds(config.op_timeout)),
            counts: Call::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            devices,
            identity,
            config,
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The host's virtual time on this thread.
    pub(super) fn now(&self) -> u64 {
        thread::with(&self.identity, |state| state.now)
    }

    /// Moves the host's virtual time on this thread to a later moment.
    pub(super) fn at_least(&self, time: u64) {
        thread::with(&self.identity, |state| state.now = state.now.max(time));
    }

    /// The current context of the thread, 107002 without one; 507010 when its device is lost.
    pub(super) fn current(&self, s: &State) -> Answer<Key> {
        let context = self.current_or_lost(s)?;
        match s.contexts.get(context) {
            Some(found) if s.devices[found.device as usize].lost => Err(Self::lost(found.device)),
            _ => Ok(context),
        }
    }

    /// The same, also when its device is lost: a program must be able to give back what it has there.
    pub(super) fn current_or_lost(&self, s: &State) -> Answer<Key> {
        let context = thread::with(&self.identity, |state| state.context);
        let text = match s.contexts.get(context) {
            Some(_) => return Ok(context),
            None if context.is_null() => "the thread has no current context: set a device or a context",
            None => "the current context of the thread was destroyed",
        };
        Err(Fail::new(ACL_ERROR_RT_CONTEXT_NULL, text))
    }

    /// What calls answer for a device that is gone.
    pub(super) fn lost(device: u32) -> Fail {
        Fail::new(ACL_ERROR_RT_LOST_HEARTBEAT, format!("device {device} is lost"))
    }

    /// The device of the current context.
    pub(super) fn current_device(&self, s: &State) -> Answer<u32> {
        let context = self.current(s)?;
        Ok(s.contexts.get(context).map_or(0, |context| context.device))
    }

    /// The index of a device, 107001 when there is none.
    pub(super) fn device(&self, device: i32) -> Answer<u32> {
        u32::try_from(device).ok().filter(|index| (*index as usize) < self.devices.len()).ok_or_else(|| {
            Fail::new(
                ACL_ERROR_RT_INVALID_DEVICEID,
                format!("device {device} is not there, the machine has {}", self.devices.len()),
            )
        })
    }

    /// A stream of the current context: null is the default one. Stale or foreign: 107017; of another context: 107003.
    pub(super) fn stream(&self, s: &State, stream: aclrtStream) -> Answer<Key> {
        self.stream_of(s, stream, self.current(s)?)
    }

    /// The same with the current context known.
    pub(super) fn stream_of(&self, s: &State, stream: aclrtStream, current: Key) -> Answer<Key> {
        let key = Key::of(stream);
        if key.is_null() {
            // A context has its default stream as long as it lives.
            return Ok(s.contexts.get(current).map_or(Key::NULL, |context| context.default_stream));
        }
        let Some(found) = s.streams.get(key) else {
            return Err(Fail::new(
                ACL_ERROR_RT_INVALID_HANDLE,
                format!("{stream:?} is no live stream of this machine"),
            ));
        };
        if found.context != current {
            return Err(Fail::new(
                ACL_ERROR_RT_STREAM_CONTEXT,
                format!("stream {} belongs to another context than the current one", found.id),
            ));
        }
        Ok(key)
    }

    /// A live event, 107017 otherwise.
    pub(super) fn event(&self, s: &State, event: aclrtEvent) -> Answer<Key> {
        let key = Key::of(event);
        if !s.events.contains(key) {
            return Err(Fail::new(ACL_ERROR_RT_INVALID_HANDLE, format!("{event:?} is no live event of this machine")));
        }
        Ok(key)
    }

    /// A live event of the current context, 107003 for one of another.
    pub(super) fn own_event(&self, s: &State, event: aclrtEvent) -> Answer<Key> {
        let current = self.current_or_lost(s)?;
        let key = self.event(s, event)?;
        if s.events.get(key).is_some_and(|event| event.context != current) {
            return Err(Fail::new(
                ACL_ERROR_RT_STREAM_CONTEXT,
                "the event belongs to another context than the current one",
            ));
        }
        Ok(key)
    }

    /// Takes a stream of a device's budget.
    pub(super) fn take_stream(&self, s: &mut State, device: u32, code: aclError) -> Answer {
        let limit = self.devices[device as usize].chip.streams;
        let used = &mut s.devices[device as usize].streams;
        if *used >= limit {
            return Err(Fail::new(
                code,
                format!("all {limit} streams of device {device} are in use, those of graphs included"),
            ));
        }
        *used += 1;
        Ok(())
    }

    /// A new reference count for a call.
    pub(super) fn count(&self, call: Call) {
        if let Some(count) = self.counts.get(call as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A limit of a waiting call: −1 is none, 0 and less are refused.
    pub(super) fn limit(timeout: i32) -> Answer<Option<Duration>> {
        match timeout {
            -1 => Ok(None),
            ms if ms > 0 => Ok(Some(Duration::from_millis(ms.unsigned_abs().into()))),
            other => usage(format!("a time limit of {other} ms, expected -1 or more than 0")),
        }
    }

    /// What has gone wrong outside any task, once.
    pub(super) fn take_damage(&self) -> Answer {
        let mut damage = lock(&self.damage);
        if damage.is_empty() {
            return Ok(());
        }
        let text = damage.join("; ");
        damage.clear();
        Err(Fail::new(ACL_ERROR_RT_AICORE_EXCEPTION, text))
    }
}
