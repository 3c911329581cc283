// SPDX-License-Identifier: MIT OR Apache-2.0

//! What AscendCL keeps per thread: the current context, the last error and its message, the argument handle, the
//! capture mode; and of the emulator, the host's virtual time and the tag of allocations.
//!
//! Each emulator has its own set in each thread.

use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::ffi::CString;
use std::sync::{Arc, Weak};

use super::args::ArgsBuilder;
use super::slab::Key;
use crate::sys::{ACL_MODEL_RI_CAPTURE_MODE_GLOBAL, aclError, aclmdlRICaptureMode};

/// Which emulator, for the threads that know several.
pub(super) struct Identity {
    pub(super) number: u32,
    alive: Arc<()>,
}

impl Identity {
    pub(super) fn new() -> Identity {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Identity { number: NEXT.fetch_add(1, Ordering::Relaxed), alive: Arc::new(()) }
    }
}

/// The state of one thread in one emulator.
pub(super) struct ThreadState {
    /// The current context, or null.
    pub(super) context: Key,
    /// The host's virtual time on this thread, in nanoseconds.
    pub(super) now: u64,
    pub(super) exchange_mode: aclmdlRICaptureMode,
    pub(super) last_error: aclError,
    /// The text that `aclGetRecentErrMsg` will hand out.
    pub(super) message: Option<CString>,
    /// The text that it handed out last, which stays valid until the next call.
    pub(super) handed_out: Option<CString>,
    pub(super) args: Option<Box<ArgsBuilder>>,
    pub(super) tag: Option<Arc<str>>,
}

impl Default for ThreadState {
    fn default() -> Self {
        Self {
            context: Key::NULL,
            now: 0,
            exchange_mode: ACL_MODEL_RI_CAPTURE_MODE_GLOBAL,
            last_error: 0,
            message: None,
            handed_out: None,
            args: None,
            tag: None,
        }
    }
}

struct Entry {
    number: u32,
    alive: Weak<()>,
    state: ThreadState,
}

thread_local! {
    static ENTRIES: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
    static NUMBER: Cell<u64> = const { Cell::new(0) };
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// Runs a function on the state of this thread. The function must not call back into the emulator; where the state
/// cannot be had (the thread is ending), it gets a fresh one that is dropped afterwards.
pub(super) fn with<R>(identity: &Identity, f: impl FnOnce(&mut ThreadState) -> R) -> R {
    let mut f = Some(f);
    let result = ENTRIES.try_with(|entries| {
        let mut entries = entries.try_borrow_mut().ok()?;
        let at = entries.iter().position(|entry| entry.number == identity.number).unwrap_or_else(|| {
            entries.retain(|entry| entry.alive.strong_count() > 0);
            entries.push(Entry {
                number: identity.number,
                alive: Arc::downgrade(&identity.alive),
                state: ThreadState::default(),
            });
            entries.len() - 1
        });
        f.take().map(|f| f(&mut entries[at].state))
    });
    match (result, f) {
        (Ok(Some(result)), _) => result,
        (_, Some(f)) => f(&mut ThreadState::default()),
        // `f` is taken only when it has run, and then there is a result.
        (_, None) => unreachable!("the function ran without a result"),
    }
}

/// A number of this thread that no other thread of the process ever has.
pub(super) fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NUMBER
        .try_with(|number| {
            if number.get() == 0 {
                number.set(NEXT.fetch_add(1, Ordering::Relaxed));
            }
            number.get()
        })
        .unwrap_or(u64::MAX)
}

/// Marks that this thread runs a task until the guard goes.
pub(super) struct InsideTask(());

impl InsideTask {
    pub(super) fn enter() -> InsideTask {
        let _ = INSIDE.try_with(|inside| inside.set(inside.get() + 1));
        InsideTask(())
    }

    /// Whether this thread runs a task of any emulator.
    pub(super) fn now() -> bool {
        INSIDE.try_with(Cell::get).is_ok_and(|inside| inside > 0)
    }
}

impl Drop for InsideTask {
    fn drop(&mut self) {
        let _ = INSIDE.try_with(|inside| inside.set(inside.get().saturating_sub(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_has_a_state_of_its_own_in_every_emulator() {
        let (a, b) = (Identity::new(), Identity::new());
        with(&a, |state| state.now = 5);
        with(&b, |state| state.now = 7);
        assert_eq!(with(&a, |state| state.now), 5);
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(with(&a, |state| state.now), 0));
        });
        assert_eq!(with(&b, |state| state.now), 7);
    }

    #[test]
    fn states_of_emulators_that_are_gone_are_dropped() {
        for _ in 0..100 {
            let identity = Identity::new();
            with(&identity, |state| state.now = 1);
        }
        assert!(ENTRIES.with(|entries| entries.borrow().len()) <= 2);
    }

    #[test]
    fn being_inside_a_task_nests_and_ends() {
        assert!(!InsideTask::now());
        let outer = InsideTask::enter();
        drop(InsideTask::enter());
        assert!(InsideTask::now());
        drop(outer);
        assert!(!InsideTask::now());
    }

    #[test]
    fn threads_have_numbers_of_their_own() {
        let here = number();
        assert_eq!(number(), here);
        let there = std::thread::spawn(number).join().expect("no panic");
        assert!(there != here && there != 0);
    }
}
