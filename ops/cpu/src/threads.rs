// SPDX-License-Identifier: MIT OR Apache-2.0

//! Threads: one function, [`Pool::run`], that hands out task numbers from a counter.
//!
//! A task is a fixed piece of the work (a panel of outputs, a row), chosen by sizes and never by the thread count, and
//! no two tasks write one place. So every result is the same bit for bit with any number of threads, and a thread
//! that the operating system takes away costs no more than its current task.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

/// How long an idle worker spins before it sleeps; decode steps follow each other within this time.
const SPINS: u32 = 1 << 13;

/// Why a thread count could not be used.
#[derive(Debug)]
pub enum ThreadsError {
    /// `RAYON_NUM_THREADS` is set to something that is not a positive number.
    BadVariable {
        /// What the variable holds.
        value: String,
    },
    /// Zero threads, or more than [`Pool::MAX_THREADS`], were asked for.
    BadCount {
        /// What was asked for.
        count: usize,
    },
    /// The operating system refused a thread.
    Spawn(std::io::Error),
}

impl fmt::Display for ThreadsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ThreadsError::BadVariable { value } => {
                write!(f, "RAYON_NUM_THREADS is `{value}`, expected a number from 1 to {}", Pool::MAX_THREADS)
            }
            ThreadsError::BadCount { count } => {
                write!(f, "thread count is {count}, expected 1 to {}", Pool::MAX_THREADS)
            }
            ThreadsError::Spawn(error) => write!(f, "a worker thread could not be started: {error}"),
        }
    }
}

impl std::error::Error for ThreadsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ThreadsError::Spawn(error) => Some(error),
            _ => None,
        }
    }
}

/// The task function of the current run, its lifetime erased. Valid from the epoch's increment until `busy` is zero.
#[derive(Clone, Copy)]
struct Job {
    task: *const (dyn Fn(usize) + Sync),
    tasks: usize,
}

// SAFETY: the pointee is `Sync`, and `Pool::run` does not return before every worker has let go of the pointer.
unsafe impl Send for Job {}

struct Shared {
    /// Incremented once per run; a worker that sees a new value takes part in the run.
    epoch: AtomicUsize,
    job: Mutex<Option<Job>>,
    next: AtomicUsize,
    busy: AtomicUsize,
    stop: AtomicBool,
    asleep: Vec<AtomicBool>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Shared {
    /// Takes tasks until none is left. A panic is kept for the caller and ends the run early.
    fn work(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            loop {
                let index = self.next.fetch_add(1, Ordering::Relaxed);
                if index >= tasks {
                    break;
                }
                task(index);
            }
        }));
        if let Err(payload) = outcome {
            self.next.store(tasks, Ordering::Relaxed);
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(payload);
        }
    }

    fn worker(&self, id: usize) {
        INSIDE.set(true);
        let mut seen = 0;
        loop {
            let mut spins = 0;
            while self.epoch.load(Ordering::SeqCst) == seen {
                if spins < SPINS {
                    spins += 1;
                    std::hint::spin_loop();
                } else {
                    self.asleep[id].store(true, Ordering::SeqCst);
                    if self.epoch.load(Ordering::SeqCst) == seen {
                        std::thread::park();
                    }
                    self.asleep[id].store(false, Ordering::SeqCst);
                }
            }
            seen += 1;
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            let job = *self.job.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(Job { task, tasks }) = job {
                // SAFETY: `Pool::run` keeps the closure alive until `busy` has fallen to zero, below.
                self.work(tasks, unsafe { &*task });
            }
            self.busy.fetch_sub(1, Ordering::Release);
        }
    }
}

thread_local! {
    /// Set in workers, and in a caller while its run is on: a nested run is then executed in place.
    static INSIDE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// A fixed set of worker threads. The thread that calls [`Pool::run`] works too.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    turn: Mutex<()>,
}

impl Pool {
    /// The largest thread count that is accepted.
    pub const MAX_THREADS: usize = 1024;

    /// A pool of `threads` threads, the caller's included.
    pub fn new(threads: usize) -> Result<Pool, ThreadsError> {
        if threads == 0 || threads > Self::MAX_THREADS {
            return Err(ThreadsError::BadCount { count: threads });
        }
        let shared = Arc::new(Shared {
            epoch: AtomicUsize::new(0),
            job: Mutex::new(None),
            next: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            asleep: (1..threads).map(|_| AtomicBool::new(false)).collect(),
            panic: Mutex::new(None),
        });
        let mut pool = Pool { shared, workers: Vec::new(), turn: Mutex::new(()) };
        for id in 0..threads - 1 {
            let shared = Arc::clone(&pool.shared);
            let worker = std::thread::Builder::new()
                .name(format!("cpu-tiles-{}", id + 1))
                .spawn(move || shared.worker(id))
                .map_err(ThreadsError::Spawn)?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// A pool of `RAYON_NUM_THREADS` threads, or of [`default_threads`] where the variable is unset or empty.
    pub fn from_env() -> Result<Pool, ThreadsError> {
        match std::env::var("RAYON_NUM_THREADS") {
            Ok(value) if !value.is_empty() => {
                Pool::new(value.parse().map_err(|_| ThreadsError::BadVariable { value })?)
            }
            _ => Pool::new(default_threads()),
        }
    }

    /// The number of threads, the caller's included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `task` once for each number below `tasks`, in any order and on any thread, and returns when all are done.
    ///
    /// A panic in a task is raised again in the caller, after all threads have stopped. A run inside a task is executed
    /// by the thread that asks for it.
    pub fn run(&self, tasks: usize, task: impl Fn(usize) + Sync) {
        if self.workers.is_empty() || tasks <= 1 || INSIDE.get() {
            (0..tasks).for_each(task);
            return;
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let task: &(dyn Fn(usize) + Sync) = &task;
        self.broadcast(Some(Job { task: erase(task), tasks }));
        INSIDE.set(true);
        self.shared.work(tasks, task);
        INSIDE.set(false);
        let mut spins = 0;
        while self.shared.busy.load(Ordering::Acquire) != 0 {
            spins += 1;
            if spins < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        if let Some(payload) = self.shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take() {
            resume_unwind(payload);
        }
    }

    /// [`Pool::run`] for tasks that can fail. All tasks are run; the error is one of theirs, if there are any.
    pub fn try_run<E: Send + Sync>(&self, tasks: usize, task: impl Fn(usize) -> Result<(), E> + Sync) -> Result<(), E> {
        let error = OnceLock::new();
        self.run(tasks, |index| {
            if let Err(found) = task(index) {
                error.get_or_init(|| found);
            }
        });
        error.into_inner().map_or(Ok(()), Err)
    }

    /// Calls `each` once for every item, with its index.
    pub fn for_each_mut<T: Send>(&self, items: &mut [T], each: impl Fn(usize, &mut T) + Sync) {
        let count = items.len();
        let items = Disjoint::new(items);
        self.run(count, |index| {
            // SAFETY: each index is handed out once, so no two of these ranges overlap.
            let item = unsafe { items.get(index..index + 1) };
            each(index, &mut item[0]);
        });
    }

    /// Calls `each` once for every run of `size` items (the last may be shorter), with its number. A size of 0 counts as 1.
    pub fn for_each_chunk_mut<T: Send>(&self, items: &mut [T], size: usize, each: impl Fn(usize, &mut [T]) + Sync) {
        let (len, size) = (items.len(), size.max(1));
        let items = Disjoint::new(items);
        self.run(len.div_ceil(size), |index| {
            let range = index * size..len.min((index + 1) * size);
            // SAFETY: each index is handed out once, and runs of different indices do not overlap.
            each(index, unsafe { items.get(range) });
        });
    }

    /// Calls `each` once for the items of every range, with its number. As [`try_run`](Self::try_run), it may fail.
    ///
    /// # Panics
    /// When a range ends before it begins, begins before the end of the one before it, or ends beyond the items: a mistake
    /// in the splitting code, not in data.
    pub fn try_for_each_range_mut<T: Send, E: Send + Sync>(
        &self,
        items: &mut [T],
        ranges: &[Range<usize>],
        each: impl Fn(usize, &mut [T]) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        check_ranges(ranges, items.len());
        let items = Disjoint::new(items);
        self.try_run(ranges.len(), |index| {
            // SAFETY: each index is handed out once, and the ranges were found not to overlap.
            each(index, unsafe { items.get(ranges[index].clone()) })
        })
    }

    /// Calls `each` once on every thread of the pool, the caller's included; inside of a task, on the caller's only. For what
    /// belongs to a thread, such as the [scratch of tiles](crate::reserve_tile_scratch), and is to be there before it is needed.
    ///
    /// A panic is raised again in the caller.
    pub fn on_each_thread(&self, each: impl Fn() + Sync) {
        if self.workers.is_empty() || INSIDE.get() {
            return each();
        }
        let threads = self.threads();
        let arrived = AtomicUsize::new(0);
        self.run(threads, |_| {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(&each)) {
                // Some threads get no task any more: nobody waits for them.
                arrived.store(threads, Ordering::Release);
                resume_unwind(payload);
            }
            arrived.fetch_add(1, Ordering::Release);
            // As many tasks as threads, and a thread that waits takes no second one.
            while arrived.load(Ordering::Acquire) < threads {
                std::thread::yield_now();
            }
        });
    }

    fn broadcast(&self, job: Option<Job>) {
        *self.shared.job.lock().unwrap_or_else(PoisonError::into_inner) = job;
        self.shared.next.store(0, Ordering::Relaxed);
        self.shared.busy.store(self.workers.len(), Ordering::Relaxed);
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        for (worker, asleep) in self.workers.iter().zip(&self.shared.asleep) {
            if asleep.load(Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
    }
}

/// Erases the lifetime of a task function. The pointer may be followed only while the function lives.
fn erase<'a>(task: &'a (dyn Fn(usize) + Sync + 'a)) -> *const (dyn Fn(usize) + Sync + 'static) {
    let pointer: *const (dyn Fn(usize) + Sync + 'a) = task;
    // Only the lifetime bound of the trait object changes; `as` cannot lengthen it, a pointer-to-pointer read can.
    // SAFETY: both types are wide pointers of one layout, and the value read is initialised.
    unsafe { std::ptr::read((&raw const pointer).cast()) }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.broadcast(None);
        for worker in self.workers.drain(..) {
            // A worker cannot panic: tasks are caught in `Shared::work`.
            let _ = worker.join();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} threads)", self.threads())
    }
}

/// The default thread count: physical cores, but no more than the process may use.
pub fn default_threads() -> usize {
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    physical_cores().map_or(allowed, |cores| cores.min(allowed)).clamp(1, Pool::MAX_THREADS)
}

/// Physical cores, counted as distinct sets of hardware threads; `None` where the system does not say.
fn physical_cores() -> Option<usize> {
    let mut cores = std::collections::HashSet::new();
    for entry in std::fs::read_dir("/sys/devices/system/cpu").ok()?.flatten() {
        let siblings = entry.path().join("topology/thread_siblings_list");
        cores.extend(std::fs::read_to_string(siblings).ok());
    }
    (!cores.is_empty()).then_some(cores.len())
}

/// Whether ranges ascend without an overlap, and end within `len`.
fn check_ranges(ranges: &[Range<usize>], len: usize) {
    let mut free = 0;
    for (index, range) in ranges.iter().enumerate() {
        assert!(free <= range.start && range.start <= range.end, "range {index}, {range:?}, after {free} items");
        free = range.end;
    }
    assert!(free <= len, "ranges up to {free} of {len} items");
}

/// An exclusively borrowed slice whose parts are given to different threads.
struct Disjoint<'a, T> {
    data: *mut T,
    len: usize,
    lifetime: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: sharing the struct shares no element, since parts that exist at the same time are disjoint (the contract of
// `get`); an element may move to another thread because `T: Send`.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    fn new(items: &'a mut [T]) -> Self {
        Self { data: items.as_mut_ptr(), len: items.len(), lifetime: std::marker::PhantomData }
    }

    /// Some of the items.
    ///
    /// # Safety
    /// No two ranges that this is called with overlap.
    unsafe fn get(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "items {range:?} of {}", self.len);
        // SAFETY: the range lies inside the slice that is borrowed for the lifetime, and the caller promises that nothing
        // else refers to it.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(range.start), range.len()) }
    }
}

/// Claims that need no memory of their own.
const FEW_CLAIMS: usize = 4096;

/// Which of some pieces have been taken.
struct Claims {
    count: usize,
    few: [AtomicU64; FEW_CLAIMS / 64],
    /// In their place where there are more.
    many: Vec<AtomicU64>,
}

impl Claims {
    fn new(count: usize) -> Self {
        let words = if count > FEW_CLAIMS { count.div_ceil(64) } else { 0 };
        Self {
            count,
            few: [const { AtomicU64::new(0) }; FEW_CLAIMS / 64],
            many: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn claim(&self, index: usize) {
        assert!(index < self.count, "column panel {index} of {}", self.count);
        let words = if self.many.is_empty() { &self.few[..] } else { &self.many[..] };
        let bit = 1 << (index % 64);
        let before = words[index / 64].fetch_or(bit, Ordering::Relaxed);
        assert!(before & bit == 0, "column panel {index} was claimed twice");
    }
}

/// A row-major matrix cut into panels of columns that different threads may write at the same time.
///
/// Each panel can be claimed once; that, and nothing the user has to promise, makes the concurrent writes sound. Up to 4096
/// panels need no memory besides the struct.
pub struct ColumnPanels<'a, T> {
    data: *mut T,
    rows: usize,
    columns: usize,
    width: usize,
    /// Rows that are cut on their own, ascending and disjoint, each into all panels; `None`: all rows together.
    groups: Option<&'a [Range<usize>]>,
    claims: Claims,
    lifetime: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: the panels are disjoint parts of one exclusively borrowed slice, and each is given to one claimer only, so
// sharing the struct shares no element; an element may move to another thread because `T: Send`.
unsafe impl<T: Send> Sync for ColumnPanels<'_, T> {}

/// One claimed panel of [`ColumnPanels`].
pub struct ColumnPanel<'a, T> {
    start: *mut T,
    stride: usize,
    rows: usize,
    width: usize,
    lifetime: std::marker::PhantomData<&'a mut [T]>,
}

impl<'a, T> ColumnPanels<'a, T> {
    /// Cuts `data`, rows of `columns` elements, into panels of `width` columns (the last may be narrower).
    ///
    /// A tail of `data` shorter than a row belongs to no panel.
    pub fn new(data: &'a mut [T], columns: usize, width: usize) -> Self {
        Self::cut(data, columns, width, None)
    }

    /// As [`new`](Self::new), with the rows cut into `groups` too: panel `g * p + i` is the `i`-th of the `p` panels of the
    /// rows of group `g`, which are its rows from 0 on.
    ///
    /// # Panics
    /// When the groups overlap, do not ascend, or end beyond the rows: a mistake in the splitting code, not in data.
    pub fn in_groups(data: &'a mut [T], columns: usize, width: usize, groups: &'a [Range<usize>]) -> Self {
        check_ranges(groups, data.len() / columns.max(1));
        Self::cut(data, columns, width, Some(groups))
    }

    fn cut(data: &'a mut [T], columns: usize, width: usize, groups: Option<&'a [Range<usize>]>) -> Self {
        let (columns, width) = (columns.max(1), width.max(1));
        Self {
            data: data.as_mut_ptr(),
            rows: data.len() / columns,
            columns,
            width,
            groups,
            claims: Claims::new(columns.div_ceil(width) * groups.map_or(1, <[_]>::len)),
            lifetime: std::marker::PhantomData,
        }
    }

    /// The number of panels, those of all groups together.
    pub fn panels(&self) -> usize {
        self.claims.count
    }

    /// Takes panel `index`.
    ///
    /// # Panics
    /// When the index is out of range or the panel has been taken before: a mistake in the splitting code, not in data.
    pub fn claim(&self, index: usize) -> ColumnPanel<'a, T> {
        self.claims.claim(index);
        let across = self.columns.div_ceil(self.width);
        let first = index % across * self.width;
        let rows = self.groups.map_or(0..self.rows, |groups| groups[index / across].clone());
        ColumnPanel {
            start: self.data.wrapping_add(rows.start * self.columns + first),
            stride: self.columns,
            rows: rows.len(),
            width: self.width.min(self.columns - first),
            lifetime: std::marker::PhantomData,
        }
    }
}

impl<T> ColumnPanel<'_, T> {
    /// The panel's part of row `row`.
    ///
    /// # Panics
    /// When `row` is out of range.
    pub fn row(&mut self, row: usize) -> &mut [T] {
        assert!(row < self.rows, "row {row} of a panel with {} rows", self.rows);
        // SAFETY: `row < rows` and the panel's columns lie inside the matrix, so the range is in bounds of the slice
        // that `ColumnPanels` borrows for the lifetime; no other panel covers it, and `&mut self` excludes this one.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.stride), self.width) }
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }
}

impl<T> fmt::Debug for ColumnPanels<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ColumnPanels({} rows, {} columns, panels of {})", self.rows, self.columns, self.width)
    }
}

impl<T> fmt::Debug for ColumnPanel<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ColumnPanel({} rows, {} columns)", self.rows, self.width)
    }
}
