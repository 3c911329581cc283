// SPDX-License-Identifier: MIT OR Apache-2.0

//! Locks of the emulator.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock. A panic while it was held leaves the data usable: every change under a lock of the emulator is
/// complete before the next step that could panic, and user code never runs under one.
pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
