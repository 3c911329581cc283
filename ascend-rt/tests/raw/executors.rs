// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the executors are for: a wait that is missing shows; a program that is right is right in every order. And what
//! they cost: nothing is allocated once a program runs steadily.

use crate::support::{Arg, Rig, acl, kernels, seeds};
use ascend_rt::host::{CoreKind, Executor, Fill, Host, HostConfig, HostKernel};
use ascend_rt::kernel::{ArgKind, ArgLayout};
use ascend_rt::sys::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as for this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as for this function.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as for this function.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as for this function.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

/// Two streams: one produces, the other one consumes what it produced, three times over.
fn pipeline(seed: u64, with_waits: bool) -> bool {
    let rig = Rig::new(HostConfig::new().executor(Executor::Seeded(seed)).capacity(4096).fill(Fill::Pattern));
    let (producer, consumer) = (rig.stream(), rig.stream());
    let (ready, taken) = (rig.event(), rig.event());
    let (x, sum) = (rig.malloc(4), rig.device(&[0f32]));
    let (pinned, out) = (rig.pinned(&[1f32, 2.0, 4.0]), rig.malloc_host(4));
    let add = rig.kernel("add_to");
    for round in 0..3 {
        let from = pinned.wrapping_byte_add(4 * round);
        if with_waits {
            assert_eq!(rig.wait(producer, taken), 0);
        }
        assert_eq!(rig.copy_async(x, from, 4, producer), 0);
        assert_eq!(rig.record(ready, producer), 0);
        if with_waits {
            assert_eq!(rig.wait(consumer, ready), 0);
        }
        assert_eq!(rig.try_launch(add, 1, consumer, &[Arg::Pointer(x), Arg::Pointer(sum)]), 0);
        assert_eq!(rig.record(taken, consumer), 0);
    }
    assert_eq!(rig.copy_async(out, sum, 4, consumer), 0);
    assert_eq!(rig.sync(consumer), 0);
    let right = rig.peek::<f32>(out, 1) == [7.0];
    assert_eq!(rig.sync(producer), 0);
    right
}

#[test]
fn a_missing_wait_shows_within_a_thousand_seeds() {
    register_add_to();
    let wrong = (0..seeds(1000)).filter(|seed| !pipeline(*seed, false)).count();
    // With two streams nearly every order is wrong somewhere.
    assert!(wrong > 0, "no seed found it");
}

#[test]
fn the_right_program_is_right_with_ten_thousand_seeds() {
    register_add_to();
    for seed in 0..seeds(10_000) {
        assert!(pipeline(seed, true), "seed {seed}");
    }
}

fn register_add_to() {
    let layout = ArgLayout::new([("x", ArgKind::In), ("sum", ArgKind::InOut)]).expect("small");
    let kernel = HostKernel::per_block(layout, CoreKind::Vector, |core| {
        let (x, sum) = (core.args().buffer(0)?, core.args().buffer(1)?);
        sum.store(0, &(sum.load::<f32>(0)? + x.load::<f32>(0)?))
    });
    ascend_rt::host::register("t", "add_to", kernel);
}

/// A single missing wait among many, in a fork of four streams: rarer, so it takes more seeds.
#[test]
fn a_rare_order_is_found_too() {
    let run = |seed: u64, missing: Option<usize>| {
        let rig = Rig::with(Executor::Seeded(seed));
        let streams: Vec<_> = (0..5).map(|_| rig.stream()).collect();
        let (start, log) = (rig.event(), rig.new_log());
        rig.log(log, 9, streams[0]);
        assert_eq!(rig.record(start, streams[0]), 0);
        for (index, stream) in streams.iter().enumerate().skip(1) {
            let done = rig.event();
            assert_eq!(rig.wait(*stream, start), 0);
            rig.log(log, index as u32, *stream);
            assert_eq!(rig.record(done, *stream), 0);
            if missing != Some(index) {
                assert_eq!(rig.wait(streams[0], done), 0);
            }
        }
        rig.log(log, 8, streams[0]);
        assert_eq!(rig.sync(streams[0]), 0);
        let order = rig.read_log(log);
        order.len() == 6 && order[0] == 9 && order[5] == 8
    };
    for missing in 1..5 {
        assert!((0..seeds(1000)).any(|seed| !run(seed, Some(missing))), "stream {missing}");
    }
    assert!((0..seeds(1000)).all(|seed| run(seed, None)));
}

#[test]
fn the_lazy_executor_finds_a_missing_wait_at_once() {
    register_add_to();
    let rig = Rig::with(Executor::Lazy);
    let (producer, consumer, log) = (rig.stream(), rig.stream(), rig.new_log());
    rig.log(log, 1, producer);
    rig.log(log, 2, consumer);
    assert_eq!(rig.sync(consumer), 0);
    assert_eq!(rig.read_log(log), [2]);
}

#[test]
fn a_seed_gives_the_same_order_every_time() {
    let order = |seed| {
        let rig = Rig::with(Executor::Seeded(seed));
        let streams: Vec<_> = (0..4).map(|_| rig.stream()).collect();
        let log = rig.new_log();
        for value in 0..20 {
            rig.log(log, value, streams[value as usize % 4]);
        }
        assert_eq!(acl!(rig, aclrtSynchronizeDevice()), 0);
        rig.read_log(log)
    };
    let first: Vec<_> = (0..10).map(order).collect();
    let second: Vec<_> = (0..10).map(order).collect();
    assert_eq!(first, second);
    let distinct: std::collections::BTreeSet<_> = first.iter().collect();
    assert!(distinct.len() > 5, "and other seeds give other orders");
}

/// Launches, copies, records, waits and replays, over and over.
struct Steady {
    rig: Rig,
    streams: [aclrtStream; 2],
    events: [aclrtEvent; 2],
    kernel: aclrtFuncHandle,
    graph: aclmdlRI,
    x: *mut std::ffi::c_void,
    pinned: *mut std::ffi::c_void,
    tiling: Vec<u8>,
}

impl Steady {
    fn new(config: HostConfig) -> Steady {
        let rig = Rig::new(config);
        let streams = [rig.stream(), rig.stream()];
        let events = [rig.event(), rig.event()];
        let (x, pinned) = (rig.device(&[0f32; 64]), rig.pinned(&[1f32; 64]));
        rig.begin(streams[0], ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL);
        rig.launch("add", 2, streams[0], &[Arg::Pointer(x), Arg::U32(64), Arg::F32(1.0)]);
        assert_eq!((rig.record(events[0], streams[0]), rig.wait(streams[1], events[0])), (0, 0));
        rig.launch("add", 2, streams[1], &[Arg::Pointer(x), Arg::U32(64), Arg::F32(1.0)]);
        assert_eq!((rig.record(events[1], streams[1]), rig.wait(streams[0], events[1])), (0, 0));
        let graph = rig.end(streams[0]);
        let kernel = rig.kernel("tiled_scale");
        let tiling = [64u32, 32].iter().flat_map(|n| n.to_le_bytes()).collect();
        Steady { rig, streams, events, kernel, graph, x, pinned, tiling }
    }

    fn round(&self) {
        let Steady { rig, streams: [a, b], events: [first, second], kernel, graph, x, pinned, tiling } = self;
        assert_eq!(rig.copy_async(*x, *pinned, 256, *a), 0);
        let args = [Arg::Pointer(*x), Arg::F32(2.0), Arg::Pointer(*x), Arg::Tiling(tiling)];
        assert_eq!(rig.try_launch(*kernel, 2, *a, &args), 0);
        assert_eq!((rig.record(*first, *a), rig.wait(*b, *first)), (0, 0));
        assert_eq!(rig.replay(*graph, *b), 0);
        assert_eq!(rig.fill_async(*x, 0, 4, *b), 0);
        assert_eq!((rig.record(*second, *b), rig.wait(*a, *second)), (0, 0));
        assert_eq!(rig.sync(*a), 0);
    }
}

#[test]
fn a_steady_program_allocates_nothing_on_its_thread() {
    for executor in [Executor::Lazy, Executor::Seeded(1), Executor::Seeded(2), Executor::Threads] {
        let steady = Steady::new(HostConfig::new().executor(executor));
        for _ in 0..50 {
            steady.round();
        }
        let before = allocations();
        for _ in 0..100 {
            steady.round();
        }
        assert_eq!(allocations() - before, 0, "{executor:?}");
    }
}

#[test]
fn workers_of_a_steady_program_allocate_nothing() {
    // The kernel runs on the worker and looks at that thread's count.
    let seen = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let note = seen.clone();
    let kernel = HostKernel::per_block(ArgLayout::default(), CoreKind::Cube, move |_| {
        let calls = note[0].fetch_add(1, Ordering::SeqCst);
        let count = allocations();
        if calls == 200 {
            note[1].store(count, Ordering::SeqCst);
        } else if calls == 1000 {
            note[1].store(count - note[1].load(Ordering::SeqCst), Ordering::SeqCst);
        }
        Ok(())
    });
    let rig = Rig::new(HostConfig::new().kernel("t", "look", kernel));
    let (stream, event, x, pinned) = (rig.stream(), rig.event(), rig.malloc(64), rig.malloc_host(64));
    for _ in 0..=1000 {
        rig.launch("look", 1, stream, &[]);
        assert_eq!(rig.copy_async(x, pinned, 64, stream), 0);
        assert_eq!((rig.record(event, stream), rig.wait(stream, event)), (0, 0));
    }
    assert_eq!(rig.sync(stream), 0);
    assert_eq!((seen[0].load(Ordering::SeqCst), seen[1].load(Ordering::SeqCst)), (1001, 0));
}

#[test]
fn a_machine_without_work_starts_no_thread() {
    let threads = || std::fs::read_dir("/proc/self/task").map(Iterator::count).unwrap_or(0);
    let before = threads();
    let hosts: Vec<_> = (0..100).map(|_| Host::new(kernels(HostConfig::new()))).collect();
    // Other tests start and end threads meanwhile; a hundred of them would show.
    assert!(threads() < before + 90);
    drop(hosts);
}
