// SPDX-License-Identifier: MIT OR Apache-2.0

//! Captures and graphs: what is recorded, what is refused and with which code, what a graph owns.

use crate::common::*;
use ascend_rt::graph::capture_lock;
use ascend_rt::host::{Executor, Fault};
use ascend_rt::raw::Call;
use ascend_rt::{CaptureMode, Context, DeviceBuffer, Error, ErrorKind, GraphPool, Launch, Queue, Result, Stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const MODES: [CaptureMode; 3] = [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];

/// A context, its kernels, two streams and a buffer.
fn setup() -> (Context, Kernels, Stream, Stream, DeviceBuffer<u32>) {
    let context = context();
    let kernels = Kernels::new(&context);
    let (one, two) = (context.stream().expect("stream"), context.stream().expect("stream"));
    let buffer = one.upload(&[7u32; 64]).expect("upload");
    (context, kernels, one, two, buffer)
}

#[track_caller]
fn assert_captured<T>(result: Result<T>, code: i32) {
    let error = result.map(|_| ()).expect_err("a capture forbids it");
    assert_eq!((error.kind(), error.code().0), (&ErrorKind::StreamCaptured, code), "{error}");
    assert!(error.is_capture() && !error.is_oom() && !error.advice().is_empty());
}

#[test]
fn a_captured_stream_refuses_what_it_cannot_record_and_the_capture_goes_on() {
    for mode in MODES {
        let (context, kernels, mut stream, other, mut buffer) = setup();
        let mut extra = context.alloc::<u32>(64).expect("memory");
        let event = other.record().expect("event");
        // What the types would forbid is done through another handle of the same stream.
        let alias = stream.clone();
        let mut graph = {
            let mut small = other.capture_one(mode, |capture| capture.fill(&mut extra, 0)).expect("a graph to replay");
            let alias = &alias;
            stream
                .capture(mode, |capture| {
                    kernels.set(capture, &mut buffer, 1)?;
                    assert_captured(alias.synchronize(), 107027);
                    assert_captured(alias.synchronize_timeout(std::time::Duration::from_secs(1)), 107027);
                    assert_captured(alias.query(), 107027);
                    assert_captured(context.synchronize(), 107027);
                    // Submitting beside the capture would record what the graph does not own.
                    assert_captured(kernels.set(alias, &mut buffer, 2), 107027);
                    assert_captured(alias.fill(&mut buffer, 2), 107027);
                    assert_captured(alias.download(&buffer), 107027);
                    assert_captured(alias.upload_to(&[0; 64], &mut buffer), 107027);
                    assert_captured(alias.record(), 107027);
                    assert_captured(alias.wait(&event), 107027);
                    assert_captured(alias.host_func(|| ()), 107027);
                    assert_captured(small.replay(alias), 107027);
                    assert_captured(alias.clone().capture(mode, |_| Ok(())), 107027);
                    assert_captured(capture.fork(alias, |_| Ok(())), 107027);
                    Ok(())
                })
                .map_err(|error| (error, mode))
        };
        // A fork of the stream itself is this crate's refusal, and it is the only thing here that fails the capture's
        // own submissions; so the graph is whole.
        let graph = graph.as_mut().expect("the capture went on");
        graph.replay(&stream).expect("replay");
        assert_eq!(stream.download(&buffer).expect("download"), [1; 64]);
    }
}

/// Captures through another handle, so that the stream itself stays free for the test.
trait CaptureOne {
    fn capture_one(
        &self,
        mode: CaptureMode,
        body: impl FnOnce(&ascend_rt::CapturingStream<'_>) -> Result<()>,
    ) -> Result<ascend_rt::Graph>;
}

impl CaptureOne for Stream {
    fn capture_one(
        &self,
        mode: CaptureMode,
        body: impl FnOnce(&ascend_rt::CapturingStream<'_>) -> Result<()>,
    ) -> Result<ascend_rt::Graph> {
        self.clone().capture(mode, body)
    }
}

#[test]
fn blocking_copies_are_refused_where_the_mode_says_so() {
    for mode in MODES {
        let (_context, kernels, mut stream, other, mut buffer) = setup();
        let free = other.upload(&[5u32; 8]).expect("upload");
        stream
            .capture(mode, |capture| {
                kernels.set(capture, &mut buffer, 1)?;
                // In the capturing thread.
                let here = other.download(&free);
                // In another thread.
                let there = std::thread::scope(|scope| scope.spawn(|| other.download(&free)).join()).expect("a thread");
                match mode {
                    CaptureMode::Global => {
                        assert_captured(here, 107030);
                        assert_captured(there, 107030);
                    }
                    CaptureMode::ThreadLocal => {
                        assert_captured(here, 107030);
                        assert_eq!(there?, [5; 8]);
                    }
                    CaptureMode::Relaxed => {
                        assert_eq!(here?, [5; 8]);
                        assert_eq!(there?, [5; 8]);
                    }
                }
                Ok(())
            })
            .expect("capture");
    }
}

#[test]
fn the_lock_keeps_global_captures_away() {
    let (_context, kernels, stream, other, mut buffer) = setup();
    let free = other.upload(&[5u32; 8]).expect("upload");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = stream.clone();
            while !stop.load(Ordering::SeqCst) {
                stream.capture(CaptureMode::Global, |capture| kernels.set(capture, &mut buffer, 1)).expect("capture");
            }
        });
        for _ in 0..200 {
            let _lock = capture_lock();
            assert_eq!(other.download(&free).expect("no capture is running"), [5; 8]);
        }
        stop.store(true, Ordering::SeqCst);
    });
}

#[test]
fn memory_and_modules_come_and_go_during_a_capture() {
    let (context, kernels, mut stream, _other, mut buffer) = setup();
    let mut graph = stream
        .capture(CaptureMode::default(), |capture| {
            let mut inside = context.alloc::<u32>(64)?;
            kernels.set(capture, &mut inside, 9)?;
            let loaded = module(&context);
            let next = loaded.kernel::<Next>()?;
            // SAFETY: the buffers are of one length.
            unsafe {
                next.launch(
                    capture,
                    1,
                    Next { n: inside.len() as u32, input: (&inside).into(), out: (&mut buffer).into() },
                )
            }?;
            drop(context.alloc::<u32>(1000)?);
            // Buffer, module and kernel are dropped here; the graph has them.
            Ok(())
        })
        .expect("capture");
    assert_eq!(context.memory_use().buffers, 2);
    graph.replay(&stream).expect("replay");
    assert_eq!(stream.download(&buffer).expect("download"), [10; 64]);
    drop(graph);
    assert_eq!(context.memory_use().buffers, 1);
}

#[test]
fn a_graph_owns_what_it_uses() {
    for executor in executors() {
        let (context, slot) = context_of(config().executor(executor));
        let mut stream = context.stream().expect("stream");
        let other = context.stream().expect("stream");
        let mut out = context.pinned::<u32>(64).expect("pinned");
        let mut graph = {
            let kernels = Kernels::new(&context);
            let start = context.pinned_from(&[1u32; 64]).expect("pinned");
            let mut one = context.alloc::<u32>(64).expect("memory");
            let mut two = context.alloc::<u32>(64).expect("memory");
            stream
                .capture(CaptureMode::default(), |capture| {
                    capture.upload_pinned(&start, &mut one)?;
                    capture.fork(&other, |capture| kernels.next(capture, &one, &mut two))?;
                    capture.download_pinned(&two, &mut out)
                })
                .expect("capture")
        };
        for _ in 0..1000 {
            graph.replay(&stream).expect("replay");
        }
        assert_eq!(*out.read().expect("read"), [2; 64]);
        assert_eq!(graph.nodes(), 3);
        graph.replay(&other).expect("replay");
        drop(graph);
        drop((context, stream, other, out));
        assert_clean(&slot);
    }
}

#[test]
fn a_replay_reads_what_pinned_memory_holds_then() {
    let (context, kernels, mut stream, _other, mut buffer) = setup();
    let mut host = context.pinned::<u32>(64).expect("pinned");
    let mut device = context.alloc::<u32>(64).expect("memory");
    let mut graph = stream
        .capture(CaptureMode::default(), |capture| {
            capture.upload_pinned(&host, &mut device)?;
            kernels.next(capture, &device, &mut buffer)
        })
        .expect("capture");
    for step in 0..20 {
        host.write().expect("write").fill(step);
        graph.replay(&stream).expect("replay");
        assert_eq!(stream.download(&buffer).expect("download"), [step + 1; 64]);
    }
    // A guard of the host keeps replays off, for as long as it lives.
    let guard = host.write().expect("write");
    let error = graph.replay(&stream).expect_err("the host has the memory");
    assert_eq!(error.kind(), &ErrorKind::Busy);
    assert!(error.is_retryable());
    drop(guard);
    let guard = host.read().expect("read");
    graph.replay(&stream).expect("two may read");
    drop(guard);
}

#[test]
fn two_graphs_share_a_workspace_and_do_not_mix() {
    for executor in executors() {
        let context = context_of(config().executor(executor)).0;
        let kernels = Kernels::new(&context);
        let (mut one, mut two) = (context.stream().expect("stream"), context.stream().expect("stream"));
        let mut shared = context.alloc::<u32>(64).expect("memory");
        let mut outs = [0; 2].map(|_| context.alloc::<u32>(64).expect("memory"));
        let [first, second] = &mut outs;
        let mut graphs = [(&mut one, first, 10), (&mut two, second, 20)].map(|(stream, out, value)| {
            stream
                .capture(CaptureMode::default(), |capture| {
                    kernels.set(capture, &mut shared, value)?;
                    kernels.next(capture, &shared, out)
                })
                .expect("capture")
        });
        for _ in 0..50 {
            graphs[0].replay(&one).expect("replay");
            graphs[1].replay(&two).expect("replay");
        }
        assert_eq!(two.download(&outs[0]).expect("download"), [11; 64]);
        assert_eq!(one.download(&outs[1]).expect("download"), [21; 64]);
    }
}

#[test]
fn one_graph_is_replayed_in_several_streams_one_after_the_other() {
    for executor in executors() {
        let context = context_of(config().executor(executor)).0;
        let kernels = Kernels::new(&context);
        let (mut one, two) = (context.stream().expect("stream"), context.stream().expect("stream"));
        let mut buffers = [0; 2].map(|_| one.upload(&[0u32; 8]).expect("upload"));
        let [even, odd] = &mut buffers;
        let mut graph = one
            .capture(CaptureMode::default(), |capture| {
                kernels.next(capture, even, odd)?;
                kernels.next(capture, odd, even)
            })
            .expect("capture");
        let mut last = None;
        for step in 0..40 {
            let completion = graph.replay(if step % 2 == 0 { &one } else { &two }).expect("replay");
            last = Some(completion);
        }
        let last = last.expect("there were some");
        last.synchronize().expect("sync");
        assert!(last.query().expect("query"));
        assert_eq!(one.download(&buffers[0]).expect("download"), [80; 8]);
        one.wait_for(&last).expect("wait");
    }
}

#[test]
fn forks_run_between_what_is_before_and_after() {
    for executor in executors() {
        let context = context_of(config().executor(executor)).0;
        let kernels = Kernels::new(&context);
        let mut stream = context.stream().expect("stream");
        let sides = [0; 2].map(|_| context.stream().expect("stream"));
        let mut buffers = [0; 5].map(|_| context.alloc::<u32>(64).expect("memory"));
        let mut graph = {
            let [a, b, c, d, e] = &mut buffers;
            stream
                .capture(CaptureMode::default(), |capture| {
                    kernels.set(capture, a, 1)?;
                    let answer = capture.fork(&sides[0], |capture| {
                        kernels.next(capture, a, b)?;
                        // A fork of a fork.
                        capture.fork(&sides[1], |capture| kernels.next(capture, b, c))?;
                        Ok(42)
                    })?;
                    assert_eq!(answer, 42);
                    // The same stream again.
                    capture.fork(&sides[0], |capture| kernels.next(capture, c, d))?;
                    kernels.next(capture, d, e)
                })
                .expect("capture")
        };
        for _ in 0..5 {
            graph.replay(&sides[1]).expect("replay");
        }
        assert_eq!(stream.download(&buffers[4]).expect("download"), [5; 64]);
        // After the capture the streams are ordinary ones.
        kernels.set(&sides[0], &mut buffers[0], 3).expect("set");
        sides[0].synchronize().expect("sync");
    }
}

#[test]
fn a_closure_that_fails_ends_the_capture_with_its_error() {
    let (context, kernels, mut stream, other, mut buffer) = setup();
    let slot = buffer.len();
    let error = stream
        .capture(CaptureMode::default(), |capture| {
            kernels.set(capture, &mut buffer, 1)?;
            capture.fork(&other, |_| Err(Error::needs_host_sync("router")))
        })
        .expect_err("the closure failed");
    assert_eq!((error.kind(), error.call()), (&ErrorKind::NeedsHostSync, "router"));
    assert!(error.is_capture());
    // Both streams are ordinary ones again, and nothing was run.
    assert_eq!(stream.download(&buffer).expect("download"), vec![7; slot]);
    other.synchronize().expect("sync");
    let captures = context.captures();
    assert_eq!(captures, 0);
    let graphs = context.runtime().host().expect("emulated").report().graphs;
    assert_eq!(graphs, 0, "the half graph is gone");
}

#[test]
fn a_closure_that_panics_ends_the_capture_and_goes_on_panicking() {
    let (context, kernels, mut stream, other, mut buffer) = setup();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = stream.capture(CaptureMode::Global, |capture| {
            kernels.set(capture, &mut buffer, 1)?;
            capture.fork(&other, |_| -> Result<()> { panic!("on the way") })
        });
    }));
    assert!(panicked.is_err_and(|panic| panic.downcast_ref::<&str>() == Some(&"on the way")));
    assert_eq!(context.captures(), 0);
    assert_eq!(context.runtime().host().expect("emulated").report().graphs, 0);
    assert_eq!(stream.download(&buffer).expect("download"), [7; 64]);
    other.synchronize().expect("sync");
    drop(capture_lock());
}

#[test]
fn the_first_error_of_a_capture_is_the_one_that_is_told() {
    let (context, kernels, mut stream, _other, mut buffer) = setup();
    let runtime = context.runtime();
    let host = runtime.host().expect("emulated");
    for swallow in [true, false] {
        host.inject(Fault::call(Call::aclrtLaunchKernelWithConfig, 507899));
        let error = stream
            .capture(CaptureMode::default(), |capture| {
                kernels.set(capture, &mut buffer, 1).or_else(|error| if swallow { Ok(()) } else { Err(error) })?;
                kernels.set(capture, &mut buffer, 2)
            })
            .map(|graph| graph.nodes());
        match error {
            // A fault that the machine plans does not reach the capture itself, so it may end well.
            Ok(nodes) => assert_eq!((swallow, nodes), (true, 1)),
            Err(error) => assert_eq!((error.call(), error.code().0), ("aclrtLaunchKernelWithConfig", 507899)),
        }
    }
    // One that spoils the capture: memory that is not the device's.
    let raw = Arc::clone(runtime.raw());
    let handle = stream.handle();
    let error = stream
        .capture(CaptureMode::default(), |capture| {
            // SAFETY: the address is none of the device, and the emulator finds that.
            let code = unsafe { raw.aclrtMemsetAsync(std::ptr::without_provenance_mut(64), 64, 0, 64, handle) };
            assert_ne!(code, 0);
            kernels.set(capture, &mut buffer, 1)
        })
        .expect_err("foreign code spoiled it");
    assert!(error.is_capture() || error.code().0 == 107000, "{error}");
    stream.synchronize().expect("the stream is an ordinary one again");
}

#[test]
fn objects_of_another_context_are_refused() {
    let runtime = runtime(config().devices(2, chip("Ascend910B2")));
    let contexts = [0, 1].map(|index| runtime.device(index).expect("device").isolated().expect("context"));
    let mut streams = contexts.each_ref().map(|context| context.stream().expect("stream"));
    let kernels = contexts.each_ref().map(Kernels::new);
    let mut buffers = contexts.each_ref().map(|context| context.alloc::<u32>(8).expect("memory"));
    let [stream, foreign] = &mut streams;
    let mut graph =
        stream.capture(CaptureMode::default(), |capture| kernels[0].set(capture, &mut buffers[0], 1)).expect("capture");
    let error = graph.replay(foreign).expect_err("another context");
    assert_eq!((error.kind(), error.name()), (&ErrorKind::Context, Some("ACL_ERROR_RT_MODEL_CONTEXT")));
    let error = stream
        .capture(CaptureMode::default(), |capture| capture.fork(foreign, |_| Ok(())))
        .expect_err("another context");
    assert_eq!(error.name(), Some("ACL_ERROR_RT_STREAM_CONTEXT"));
    for error in [
        kernels[0].set(&*stream, &mut buffers[1], 1).expect_err("another context's memory"),
        kernels[1].set(&*stream, &mut buffers[0], 1).expect_err("another context's kernel"),
        stream.fill(&mut buffers[1], 0).expect_err("another context's memory"),
        stream.download(&buffers[1]).expect_err("another context's memory"),
        stream
            .upload_pinned(&contexts[1].pinned::<u32>(8).expect("pinned"), &mut buffers[0])
            .expect_err("another context's memory"),
    ] {
        assert_eq!((error.kind(), error.name()), (&ErrorKind::Context, Some("ACL_ERROR_RT_STREAM_CONTEXT")));
        assert!(error.detail().contains("device"), "{error}");
    }
    graph.replay(stream).expect("replay");
    assert_eq!(stream.download(&buffers[0]).expect("download"), [1; 8]);
}

#[test]
fn a_budget_refuses_before_the_card_does() {
    let mut small = chip("Ascend910B2");
    small.streams = 20;
    let context = context_of(config().device(small)).0;
    let kernels = Kernels::new(&context);
    let mut stream = context.stream().expect("stream");
    let mut buffer = context.alloc::<u32>(8).expect("memory");
    let pool = GraphPool::new(&context).margin(2);
    let mut graphs = Vec::new();
    let error = loop {
        match pool.capture(&mut stream, CaptureMode::default(), |capture| kernels.set(capture, &mut buffer, 1)) {
            Ok(graph) => graphs.push(graph),
            Err(error) => break error,
        }
        assert!(graphs.len() < 20, "the budget has an end");
    };
    assert_eq!(error.kind(), &ErrorKind::Resource { streams_left: Some(0) });
    assert!(graphs.len() > 5 && pool.streams() as usize >= graphs.len(), "{}", graphs.len());
    assert_eq!(context.streams_left().expect("it tells"), Some(2));
    // Without the pool the card's own limit is met, and told as what it is.
    let error = loop {
        match stream.capture(CaptureMode::default(), |capture| kernels.set(capture, &mut buffer, 1)) {
            Ok(graph) => graphs.push(graph),
            Err(error) => break error,
        }
        assert!(graphs.len() < 40, "the card has an end");
    };
    assert!(matches!(error.kind(), ErrorKind::Resource { .. }), "{error}");
    assert!(!error.is_oom() && matches!(error.code().0, 207005 | 207008), "{error}");
    // Dropping graphs makes room.
    graphs.clear();
    assert_eq!(pool.streams(), 0);
    let few = GraphPool::new(&context).budget(1);
    let first = few
        .capture(&mut stream, CaptureMode::default(), |capture| kernels.set(capture, &mut buffer, 1))
        .expect("one fits");
    let error = few
        .capture(&mut stream, CaptureMode::default(), |capture| kernels.set(capture, &mut buffer, 1))
        .expect_err("two do not");
    assert_eq!(error.kind(), &ErrorKind::Resource { streams_left: Some(0) });
    drop(first);
}

#[test]
fn eager_work_and_replays_wait_for_each_other() {
    for executor in executors() {
        let context = context_of(config().executor(executor)).0;
        let kernels = Kernels::new(&context);
        let (mut one, two) = (context.stream().expect("stream"), context.stream().expect("stream"));
        let mut input = one.upload(&[0u32; 64]).expect("upload");
        let mut out = one.upload(&[0u32; 64]).expect("upload");
        let mut graph =
            one.capture(CaptureMode::default(), |capture| kernels.next(capture, &input, &mut out)).expect("capture");
        for value in 0..30 {
            kernels.set(&two, &mut input, value).expect("set");
            graph.replay(&one).expect("replay");
            assert_eq!(two.download(&out).expect("download"), [value + 1; 64]);
        }
    }
}

#[test]
fn an_empty_graph_is_a_graph() {
    let (_context, _kernels, mut stream, other, _buffer) = setup();
    let mut graph = stream.capture(CaptureMode::default(), |_| Ok(())).expect("capture");
    assert_eq!(graph.nodes(), 0);
    graph.replay(&other).expect("replay");
    other.synchronize().expect("sync");
}

#[test]
fn one_function_is_eager_and_captured() {
    fn step(
        queue: &impl Queue,
        kernels: &Kernels,
        input: &DeviceBuffer<u32>,
        out: &mut DeviceBuffer<u32>,
    ) -> Result<bool> {
        kernels.next(queue, input, out)?;
        Ok(queue.is_capturing())
    }
    let (_context, kernels, mut stream, _other, mut buffer) = setup();
    let input = stream.upload(&[1u32; 64]).expect("upload");
    assert!(!step(&stream, &kernels, &input, &mut buffer).expect("eager"));
    let mut graph = stream
        .capture(CaptureMode::default(), |capture| {
            assert!(step(capture, &kernels, &input, &mut buffer)?);
            Ok(())
        })
        .expect("capture");
    graph.replay(&stream).expect("replay");
    assert_eq!(stream.download(&buffer).expect("download"), [2; 64]);
}

#[test]
fn a_graph_keeps_what_it_is_given() {
    let (_context, kernels, mut stream, _other, mut buffer) = setup();
    let foreign = Arc::new(5u64);
    let graph = stream
        .capture(CaptureMode::default(), |capture| {
            capture.keep(foreign.clone());
            let launch = Launch::blocks(1).named("named");
            // SAFETY: the kernel writes the whole buffer and nothing else.
            unsafe {
                kernels.set.launch(capture, launch, Set { n: buffer.len() as u32, out: (&mut buffer).into(), value: 1 })
            }
        })
        .expect("capture");
    assert_eq!(Arc::strong_count(&foreign), 2);
    assert_eq!(graph.ops().collect::<Vec<_>>(), ["named"]);
    drop(graph);
    assert_eq!(Arc::strong_count(&foreign), 1);
}

#[test]
fn a_graph_is_written_to_a_file() {
    let (_context, kernels, mut stream, _other, mut buffer) = setup();
    let graph =
        stream.capture(CaptureMode::default(), |capture| kernels.set(capture, &mut buffer, 1)).expect("capture");
    let path = crate::open::folder().join("graph.json");
    graph.dump(&path).expect("dump");
    assert!(std::fs::metadata(&path).is_ok_and(|meta| meta.len() > 0));
}

#[test]
fn lazy_machines_capture_too() {
    let context = context_of(config().executor(Executor::Lazy)).0;
    let kernels = Kernels::new(&context);
    let mut stream = context.stream().expect("stream");
    let mut buffer = context.alloc::<u32>(4).expect("memory");
    // Work that is queued before a capture still runs before what follows it.
    kernels.set(&stream, &mut buffer, 1).expect("set");
    let mut other = context.alloc::<u32>(4).expect("memory");
    let mut graph =
        stream.capture(CaptureMode::default(), |capture| kernels.next(capture, &buffer, &mut other)).expect("capture");
    graph.replay(&stream).expect("replay");
    drop(graph);
    assert_eq!(stream.download(&other).expect("download"), [2; 4]);
}
