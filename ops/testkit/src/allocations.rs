// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counting what chosen threads allocate, for code that must not.
//!
//! A test binary that counts has the allocator as its own:
//!
//! ```
//! use op_testkit::allocations::{CountingAllocator, count_allocations};
//!
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator;
//!
//! let (count, list) = count_allocations(|each| each(), || vec![1, 2, 3]);
//! assert_eq!((count, list.len()), (1, 3));
//! ```
//!
//! Memory that a program maps by itself is not seen.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The system's allocator, which counts the allocations of threads that asked for it.
#[derive(Debug, Clone, Copy)]
pub struct CountingAllocator;

/// Allocations of all counted threads.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Whose count it is.
static COUNTING: Mutex<()> = Mutex::new(());

thread_local! {
    static COUNTED: Cell<bool> = const { Cell::new(false) };
}

fn note() {
    // A thread that ends has no variables any more, and is not counted.
    if COUNTED.try_with(Cell::get).unwrap_or(false) {
        COUNT.fetch_add(1, Ordering::SeqCst);
    }
}

// SAFETY: every call is passed on to the system's allocator as it is, whose contract is the same; `note` does not allocate,
// since its variables need neither initialisation nor a destructor.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's promises are those that are asked for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are those that are asked for; the block is the system's.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's promises are those that are asked for.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: the caller's promises are those that are asked for; the block is the system's.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Runs `run` and returns how often the threads of a pool allocated meanwhile, with the result of `run`. `on_each_thread`
/// calls what it is given on every thread that is to be counted, the calling one included. Other threads of the process may
/// allocate as they like; other counts wait.
///
/// Without [`CountingAllocator`] in the binary the count is 0: a test should also count something that does allocate.
pub fn count_allocations<T>(on_each_thread: impl Fn(&(dyn Fn() + Sync)), run: impl FnOnce() -> T) -> (usize, T) {
    let _turn = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    on_each_thread(&|| COUNTED.set(true));
    let before = COUNT.load(Ordering::SeqCst);
    let result = run();
    let count = COUNT.load(Ordering::SeqCst) - before;
    on_each_thread(&|| COUNTED.set(false));
    (count, result)
}
