// SPDX-License-Identifier: MIT OR Apache-2.0

//! Capture: each row of the table in the documentation of the emulator, with its code, and what becomes of the capture.

use crate::support::{ALL_EXECUTORS, Arg, Handle, Rig, acl};
use ascend_rt::host::{Chip, Executor, Fault, HostConfig};
use ascend_rt::raw::Call;
use ascend_rt::sys::*;
use std::ptr::null_mut;

const GLOBAL: aclmdlRICaptureMode = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
const THREAD_LOCAL: aclmdlRICaptureMode = ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL;
const RELAXED: aclmdlRICaptureMode = ACL_MODEL_RI_CAPTURE_MODE_RELAXED;
const MODES: [aclmdlRICaptureMode; 3] = [GLOBAL, THREAD_LOCAL, RELAXED];
const ACTIVE: aclmdlRICaptureStatus = ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE;
const INVALIDATED: aclmdlRICaptureStatus = ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED;
const NONE: aclmdlRICaptureStatus = ACL_MODEL_RI_CAPTURE_STATUS_NONE;

/// The capture is still good: it ends with a graph, which replays.
#[track_caller]
fn still_good(rig: &Rig, stream: aclrtStream) {
    assert_eq!(rig.status(stream), ACTIVE);
    let graph = rig.end(stream);
    assert_eq!(rig.replay(graph, stream), 0);
    assert_eq!(rig.sync(stream), 0);
    assert_eq!(acl!(rig, aclmdlRIDestroy(graph)), 0);
}

/// The capture is spoiled: further work is refused, its end is 507903, and then the stream is an ordinary one.
#[track_caller]
fn spoiled(rig: &Rig, stream: aclrtStream) {
    assert_eq!(rig.status(stream), INVALIDATED);
    let kernel = rig.kernel("noop");
    assert_eq!(rig.try_launch(kernel, 1, stream, &[]), ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED);
    let before = rig.streams_left();
    assert_eq!(rig.try_end(stream), Err(ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED));
    assert!(rig.streams_left() > before, "its streams come back");
    ordinary(rig, stream);
}

#[track_caller]
fn ordinary(rig: &Rig, stream: aclrtStream) {
    assert_eq!(rig.status(stream), NONE);
    rig.launch("noop", 1, stream, &[]);
    assert_eq!(rig.sync(stream), 0);
}

#[test]
fn a_capture_records_and_runs_nothing() {
    for executor in ALL_EXECUTORS {
        for mode in MODES {
            let rig = Rig::with(executor);
            let (stream, other, log) = (rig.stream(), rig.stream(), rig.new_log());
            let pinned = rig.pinned(&[5u32]);
            assert_eq!(rig.status(stream), NONE);
            rig.begin(stream, mode);
            let (mut status, mut future) = (NONE, null_mut());
            assert_eq!(acl!(rig, aclmdlRICaptureGetInfo(stream, &mut status, &mut future)), 0);
            assert_eq!(status, ACTIVE);
            rig.log(log, 1, stream);
            rig.log(log, 2, stream);
            let third = log.wrapping_byte_add(12);
            assert_eq!(rig.copy_async(third, pinned, 4, stream), 0);
            let (fourth, count) = (log.wrapping_byte_add(16), log);
            assert_eq!(rig.fill_async(fourth, 0, 4, stream), 0);
            rig.launch("log", 1, other, &[Arg::Pointer(log), Arg::U32(7)]);
            assert_eq!(rig.sync(other), 0, "other streams are not concerned");
            let graph = rig.end(stream);
            assert_eq!(graph, future, "the graph that was announced");
            assert_eq!(rig.read_log(log), [7], "{executor:?} {mode:?}");
            assert_eq!(rig.replay(graph, stream), 0);
            assert_eq!(rig.sync(stream), 0);
            let all = rig.download::<u32>(count, 5);
            assert_eq!(all, [3, 7, 1, 5, 0]);
        }
    }
}

#[test]
fn row_sync_query_and_destruction_of_a_captured_stream() {
    for mode in MODES {
        let rig = Rig::lazy();
        let stream = rig.stream();
        rig.begin(stream, mode);
        let captured = ACL_ERROR_RT_STREAM_CAPTURED;
        let mut status = ACL_STREAM_STATUS_COMPLETE;
        rig.refused(rig.sync(stream), captured, "is captured");
        for code in [
            acl!(rig, aclrtSynchronizeStreamWithTimeout(stream, 5)),
            acl!(rig, aclrtStreamQuery(stream, &mut status)),
            acl!(rig, aclrtDestroyStream(stream)),
            acl!(rig, aclrtDestroyStreamForce(stream)),
            acl!(rig, aclrtStreamAbort(stream)),
        ] {
            assert_eq!(code, captured);
        }
        still_good(&rig, stream);
    }
}

#[test]
fn row_sync_of_the_device() {
    for mode in MODES {
        let rig = Rig::lazy();
        let stream = rig.stream();
        rig.begin(stream, mode);
        rig.refused(acl!(rig, aclrtSynchronizeDevice()), ACL_ERROR_RT_STREAM_CAPTURED, "is captured");
        assert_eq!(acl!(rig, aclrtSynchronizeDeviceWithTimeout(5)), ACL_ERROR_RT_STREAM_CAPTURED);
        // Another context of the same device is not concerned.
        let mut context = null_mut();
        assert_eq!(acl!(rig, aclrtCreateContext(&mut context, 0)), 0);
        assert_eq!(acl!(rig, aclrtSynchronizeDevice()), 0);
        assert_eq!(acl!(rig, aclrtSetDevice(0)), 0);
        still_good(&rig, stream);
    }
}

#[test]
fn row_events_recorded_in_a_capture() {
    for mode in MODES {
        let rig = Rig::lazy();
        let (stream, event, timed) = (rig.stream(), rig.event(), rig.event_with(ACL_EVENT_TIME_LINE));
        rig.begin(stream, mode);
        assert_eq!((rig.record(event, stream), rig.record(timed, stream)), (0, 0));
        let captured = ACL_ERROR_RT_EVENT_CAPTURED;
        let (mut status, mut ms) = (ACL_EVENT_RECORDED_STATUS_COMPLETE, 0.0);
        rig.refused(acl!(rig, aclrtSynchronizeEvent(event)), captured, "recorded in a capture");
        for code in [
            acl!(rig, aclrtSynchronizeEventWithTimeout(event, 5)),
            acl!(rig, aclrtQueryEventStatus(event, &mut status)),
            acl!(rig, aclrtEventElapsedTime(&mut ms, timed, timed)),
        ] {
            assert_eq!(code, captured);
        }
        still_good(&rig, stream);
        assert_eq!(acl!(rig, aclrtSynchronizeEvent(event)), 0, "an ordinary event again");
        assert_eq!(acl!(rig, aclrtQueryEventStatus(event, &mut status)), 0);
    }
}

/// Blocking calls on this thread: copy, fill.
fn blocking(rig: &Rig, a: Handle) -> [aclError; 2] {
    let mut byte = 0u8;
    let to = (&raw mut byte).cast();
    [acl!(rig, aclrtMemcpy(to, 1, a.get(), 1, ACL_MEMCPY_DEVICE_TO_HOST)), acl!(rig, aclrtMemset(a.get(), 1, 0, 1))]
}

fn exchange(rig: &Rig, mode: aclmdlRICaptureMode) -> aclmdlRICaptureMode {
    let mut swapped = mode;
    assert_eq!(acl!(rig, aclmdlRICaptureThreadExchangeMode(&mut swapped)), 0);
    swapped
}

#[test]
fn row_blocking_copies_by_mode_of_the_capture_and_of_the_thread() {
    let no = [ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT; 2];
    let yes = [0; 2];
    // Mode of the capture, mode of the calling thread, in the capturing thread, in another one.
    for (capture, thread, here, there) in [
        (GLOBAL, GLOBAL, no, no),
        (GLOBAL, THREAD_LOCAL, no, yes),
        (GLOBAL, RELAXED, yes, yes),
        (THREAD_LOCAL, GLOBAL, no, yes),
        (THREAD_LOCAL, THREAD_LOCAL, no, yes),
        (THREAD_LOCAL, RELAXED, yes, yes),
        (RELAXED, GLOBAL, yes, yes),
        (RELAXED, THREAD_LOCAL, yes, yes),
        (RELAXED, RELAXED, yes, yes),
    ] {
        let rig = Rig::lazy();
        let (stream, a) = (rig.stream(), Handle(rig.malloc(8)));
        rig.begin(stream, capture);
        assert_eq!(exchange(&rig, thread), GLOBAL, "what a thread begins with");
        assert_eq!(blocking(&rig, a), here, "{capture:?} {thread:?}");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(acl!(rig, aclrtSetDevice(0)), 0);
                assert_eq!(exchange(&rig, thread), GLOBAL, "each thread has its own");
                assert_eq!(blocking(&rig, a), there, "{capture:?} {thread:?}, other thread");
            });
        });
        assert_eq!(exchange(&rig, GLOBAL), thread);
        still_good(&rig, stream);
        assert_eq!(blocking(&rig, a), yes, "no capture is on");
    }
    let rig = Rig::lazy();
    let mut mode = aclmdlRICaptureMode(3);
    assert_eq!(acl!(rig, aclmdlRICaptureThreadExchangeMode(&mut mode)), ACL_ERROR_RT_PARAM_INVALID);
}

#[test]
fn row_a_pageable_copy_in_the_captured_stream_spoils_it() {
    for mode in MODES {
        let rig = Rig::lazy();
        let (stream, a) = (rig.stream(), rig.malloc(8));
        rig.begin(stream, mode);
        let plain = [0u8; 8];
        rig.refused(rig.copy_async(a, plain.as_ptr().cast(), 8, stream), ACL_ERROR_RT_PARAM_INVALID, "not pinned");
        spoiled(&rig, stream);
    }
}

#[test]
fn row_a_pageable_copy_on_another_stream_is_as_a_blocking_one() {
    for (mode, expected) in [
        (GLOBAL, ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC),
        (THREAD_LOCAL, ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC),
        (RELAXED, 0),
    ] {
        let rig = Rig::lazy();
        let (stream, other, a) = (rig.stream(), rig.stream(), rig.malloc(8));
        let plain = [0u8; 8];
        rig.begin(stream, mode);
        assert_eq!(rig.copy_async(a, plain.as_ptr().cast(), 8, other), expected, "{mode:?}");
        let pinned = rig.pinned(&[1u8; 8]);
        assert_eq!(rig.copy_async(a, pinned, 8, other), 0);
        assert_eq!(rig.sync(other), 0);
        still_good(&rig, stream);
    }
}

#[test]
fn row_the_default_stream_is_left_alone() {
    for mode in MODES {
        let rig = Rig::lazy();
        let (stream, a, event) = (rig.stream(), rig.malloc(8), rig.event());
        let implicit = ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT;
        rig.refused(acl!(rig, aclmdlRICaptureBegin(null_mut(), mode)), implicit, "default stream");
        rig.begin(stream, mode);
        rig.refused(rig.fill_async(a, 0, 8, null_mut()), implicit, "default stream");
        assert_eq!(rig.record(event, null_mut()), implicit);
        assert_eq!(rig.try_launch(rig.kernel("noop"), 1, null_mut(), &[]), implicit);
        assert_eq!(rig.record(event, stream), 0);
        assert_eq!(rig.wait(null_mut(), event), implicit);
        // Another context has a default stream of its own.
        let mut context = null_mut();
        assert_eq!(acl!(rig, aclrtCreateContext(&mut context, 0)), 0);
        assert_eq!(rig.fill_async(a, 0, 8, null_mut()), 0);
        assert_eq!(acl!(rig, aclrtSetDevice(0)), 0);
        still_good(&rig, stream);
        assert_eq!(rig.fill_async(a, 0, 8, null_mut()), 0);
    }
}

#[test]
fn row_begin_twice() {
    let rig = Rig::lazy();
    let stream = rig.stream();
    rig.begin(stream, RELAXED);
    rig.refused(acl!(rig, aclmdlRICaptureBegin(stream, RELAXED)), ACL_ERROR_RT_STREAM_CAPTURED, "captured again");
    still_good(&rig, stream);
    let odd = aclmdlRICaptureMode(3);
    assert_eq!(acl!(rig, aclmdlRICaptureBegin(stream, odd)), ACL_ERROR_RT_PARAM_INVALID);
}

#[test]
fn row_end_without_begin_on_a_joined_stream_and_in_another_thread() {
    for mode in MODES {
        let rig = Rig::lazy();
        let (origin, sub, event, back) = (rig.stream(), rig.stream(), rig.event(), rig.event());
        assert_eq!(rig.try_end(origin), Err(ACL_ERROR_RT_STREAM_NOT_CAPTURED));
        rig.begin(origin, mode);
        assert_eq!((rig.record(event, origin), rig.wait(sub, event)), (0, 0));
        assert_eq!(rig.status(sub), ACTIVE);
        assert_eq!(rig.try_end(sub), Err(ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED));
        assert_eq!((rig.record(back, sub), rig.wait(origin, back)), (0, 0));
        let handle = Handle(origin);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(acl!(rig, aclrtSetDevice(0)), 0);
                let end = rig.try_end(handle.get());
                if mode == RELAXED {
                    assert!(end.is_ok(), "relaxed: any thread may end it");
                } else {
                    assert_eq!(end, Err(ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD));
                }
            });
        });
        // Either way it is over.
        assert_eq!(rig.try_end(origin), Err(ACL_ERROR_RT_STREAM_NOT_CAPTURED));
        ordinary(&rig, origin);
        ordinary(&rig, sub);
    }
}

#[test]
fn row_streams_that_are_not_joined() {
    // What is done on the sub stream after the fork, and on the origin; whether it is joined then.
    type Act = fn(&Rig, [aclrtStream; 2], [aclrtEvent; 2]);
    let cases: [(&str, bool, Act); 7] = [
        ("nothing", false, |_, _, _| {}),
        ("work, no record", false, |rig, [_, sub], _| rig.launch("noop", 1, sub, &[])),
        ("a record that nobody waits for", false, |rig, [_, sub], [_, back]| assert_eq!(rig.record(back, sub), 0)),
        ("joined", true, |rig, [origin, sub], [_, back]| {
            rig.launch("noop", 1, sub, &[]);
            assert_eq!((rig.record(back, sub), rig.wait(origin, back)), (0, 0));
        }),
        ("work after the join", false, |rig, [origin, sub], [_, back]| {
            assert_eq!((rig.record(back, sub), rig.wait(origin, back)), (0, 0));
            rig.launch("noop", 1, sub, &[]);
        }),
        ("joined, and work on the origin", true, |rig, [origin, sub], [_, back]| {
            assert_eq!((rig.record(back, sub), rig.wait(origin, back)), (0, 0));
            rig.launch("noop", 1, origin, &[]);
        }),
        ("joined twice", true, |rig, [origin, sub], [_, back]| {
            for _ in 0..2 {
                rig.launch("noop", 1, sub, &[]);
                assert_eq!((rig.record(back, sub), rig.wait(origin, back)), (0, 0));
            }
        }),
    ];
    for (what, joined, act) in cases {
        let rig = Rig::lazy();
        let (streams, events) = ([rig.stream(), rig.stream()], [rig.event(), rig.event()]);
        let left = rig.streams_left();
        rig.begin(streams[0], THREAD_LOCAL);
        rig.launch("noop", 1, streams[0], &[]);
        assert_eq!((rig.record(events[0], streams[0]), rig.wait(streams[1], events[0])), (0, 0));
        assert_eq!(rig.streams_left(), left - 2);
        act(&rig, streams, events);
        if joined {
            still_good(&rig, streams[0]);
        } else {
            assert_eq!(rig.try_end(streams[0]), Err(ACL_ERROR_RT_STREAM_UNJOINED), "{what}");
            assert!(rig.message().contains("not joined"), "{what}");
        }
        ordinary(&rig, streams[0]);
        ordinary(&rig, streams[1]);
        assert_eq!(rig.streams_left(), left, "{what}");
    }
}

#[test]
fn a_stream_can_join_through_another() {
    for direct in [false, true] {
        let rig = Rig::lazy();
        let [a, b, c] = [rig.stream(), rig.stream(), rig.stream()];
        let [fork, deeper, from_c, from_b] = [rig.event(), rig.event(), rig.event(), rig.event()];
        rig.begin(a, THREAD_LOCAL);
        assert_eq!((rig.record(fork, a), rig.wait(b, fork)), (0, 0));
        assert_eq!((rig.record(deeper, b), rig.wait(c, deeper)), (0, 0));
        rig.launch("noop", 1, c, &[]);
        assert_eq!(rig.record(from_c, c), 0);
        if direct {
            // `b` does not wait for `c`, but the origin does.
            assert_eq!(rig.wait(a, from_c), 0);
        } else {
            assert_eq!(rig.wait(b, from_c), 0);
        }
        assert_eq!((rig.record(from_b, b), rig.wait(a, from_b)), (0, 0));
        still_good(&rig, a);
    }
    // Joined to a stream that is itself joined, but before that.
    let rig = Rig::lazy();
    let [a, b, c] = [rig.stream(), rig.stream(), rig.stream()];
    let [fork, from_c, from_b] = [rig.event(), rig.event(), rig.event()];
    rig.begin(a, THREAD_LOCAL);
    assert_eq!((rig.record(fork, a), rig.wait(b, fork), rig.wait(c, fork)), (0, 0, 0));
    assert_eq!((rig.record(from_b, b), rig.wait(a, from_b)), (0, 0));
    assert_eq!((rig.record(from_c, c), rig.wait(b, from_c)), (0, 0));
    assert_eq!(rig.try_end(a), Err(ACL_ERROR_RT_STREAM_UNJOINED));
}

#[test]
fn row_a_wait_for_an_event_of_no_capture_spoils_it() {
    for recorded in [false, true] {
        let rig = Rig::lazy();
        let (stream, other, event) = (rig.stream(), rig.stream(), rig.event());
        if recorded {
            assert_eq!(rig.record(event, other), 0);
        }
        rig.begin(stream, THREAD_LOCAL);
        rig.refused(rig.wait(stream, event), ACL_ERROR_RT_CAPTURE_DEPENDENCY, "not recorded in the capture");
        spoiled(&rig, stream);
    }
    // One that a capture recorded which is over is of no capture either.
    let rig = Rig::lazy();
    let (stream, event) = (rig.stream(), rig.event());
    rig.begin(stream, THREAD_LOCAL);
    assert_eq!(rig.record(event, stream), 0);
    rig.end(stream);
    rig.begin(stream, THREAD_LOCAL);
    assert_eq!(rig.wait(stream, event), ACL_ERROR_RT_CAPTURE_DEPENDENCY);
    spoiled(&rig, stream);
}

#[test]
fn row_two_captures_that_would_depend_on_each_other_are_both_spoiled() {
    let rig = Rig::lazy();
    let (a, b, event) = (rig.stream(), rig.stream(), rig.event());
    rig.begin(a, THREAD_LOCAL);
    rig.begin(b, RELAXED);
    assert_eq!(rig.record(event, a), 0);
    rig.refused(rig.wait(b, event), ACL_ERROR_STREAM_CAPTURE_CONFLICT, "another capture");
    spoiled(&rig, a);
    spoiled(&rig, b);
}

#[test]
fn row_replay_into_a_captured_stream() {
    let rig = Rig::lazy();
    let (stream, other) = (rig.stream(), rig.stream());
    rig.begin(other, RELAXED);
    let graph = rig.end(other);
    rig.begin(stream, RELAXED);
    rig.refused(rig.replay(graph, stream), ACL_ERROR_RT_STREAM_CAPTURED, "replay");
    assert_eq!(rig.replay(graph, other), 0, "elsewhere it may be replayed");
    assert_eq!(rig.sync(other), 0);
    still_good(&rig, stream);
}

#[test]
fn row_destruction_and_replay_of_a_graph_that_is_being_captured() {
    let rig = Rig::lazy();
    let (stream, other) = (rig.stream(), rig.stream());
    rig.begin(stream, RELAXED);
    let (mut status, mut future) = (NONE, null_mut());
    assert_eq!(acl!(rig, aclmdlRICaptureGetInfo(stream, &mut status, &mut future)), 0);
    rig.refused(acl!(rig, aclmdlRIDestroy(future)), ACL_ERROR_RT_MODEL_CAPTURED, "being captured");
    assert_eq!(rig.replay(future, other), ACL_ERROR_RT_MODEL_CAPTURED);
    still_good(&rig, stream);
    assert_eq!(acl!(rig, aclmdlRIDestroy(future)), ACL_ERROR_RT_INVALID_HANDLE);
}

#[test]
fn row_a_submission_that_fails_spoils_the_capture() {
    type Act = fn(&Rig, aclrtStream) -> aclError;
    let cases: [(&str, Act, aclError); 4] = [
        ("wrong layout", |rig, stream| rig.try_launch(rig.kernel("noop"), 1, stream, &[Arg::U32(1)]), 107000),
        ("no blocks", |rig, stream| rig.try_launch(rig.kernel("noop"), 0, stream, &[]), 107000),
        ("beyond the memory", |rig, stream| rig.fill_async(rig.malloc(8), 0, 9, stream), 107000),
        ("stale event", |rig, stream| rig.record(null_mut(), stream), 107017),
    ];
    for (what, act, code) in cases {
        let rig = Rig::lazy();
        let stream = rig.stream();
        rig.begin(stream, THREAD_LOCAL);
        assert_eq!(act(&rig, stream), code, "{what}");
        spoiled(&rig, stream);
    }
    for call in [Call::aclrtMemsetAsync, Call::aclrtRecordEvent] {
        let rig = Rig::new(HostConfig::new().executor(Executor::Lazy).fault(Fault::call(call, 500_003)));
        let (stream, event, a) = (rig.stream(), rig.event(), rig.malloc(8));
        rig.begin(stream, THREAD_LOCAL);
        let code =
            if call == Call::aclrtRecordEvent { rig.record(event, stream) } else { rig.fill_async(a, 0, 8, stream) };
        assert_eq!(code, 500_003);
        spoiled(&rig, stream);
    }
}

#[test]
fn a_refusal_that_reaches_no_stream_spoils_nothing() {
    let rig = Rig::lazy();
    let (stream, event, a) = (rig.stream(), rig.event(), rig.malloc(8));
    rig.begin(stream, THREAD_LOCAL);
    assert_eq!(rig.fill_async(a, 0, 9, rig.stream()), ACL_ERROR_RT_PARAM_INVALID);
    let mut context = null_mut();
    assert_eq!(acl!(rig, aclrtCreateContext(&mut context, 0)), 0);
    assert_eq!(rig.record(event, stream), ACL_ERROR_RT_STREAM_CONTEXT);
    assert_eq!(acl!(rig, aclrtSetDevice(0)), 0);
    still_good(&rig, stream);
}

#[test]
fn row_switches_of_overflow_and_profiling() {
    let rig = Rig::lazy();
    let stream = rig.stream();
    rig.begin(stream, RELAXED);
    let captured = ACL_ERROR_RT_STREAM_CAPTURED;
    let mut value = aclrtStreamAttrValue { reserve: [0; 4] };
    let code = acl!(rig, aclrtSetStreamAttribute(stream, ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK, &mut value));
    rig.refused(code, captured, "overflow");
    assert_eq!(acl!(rig, aclprofStart(std::ptr::null())), captured);
    assert_eq!(acl!(rig, aclprofStop(std::ptr::null())), captured);
    still_good(&rig, stream);
}

#[test]
fn row_allocation_and_loading_are_allowed() {
    for mode in MODES {
        let rig = Rig::lazy();
        let stream = rig.stream();
        rig.begin(stream, mode);
        let a = rig.malloc(64);
        let b = rig.malloc_host(64);
        rig.load("t");
        assert_eq!((acl!(rig, aclrtFree(a)), acl!(rig, aclrtFreeHost(b))), (0, 0));
        let code = acl!(rig, aclrtFreeWithDevSync(a));
        assert_eq!(code, ACL_ERROR_RT_STREAM_CAPTURED, "it would wait for the device");
        still_good(&rig, stream);
    }
}

#[test]
fn row_graphs_of_another_context() {
    let rig = Rig::lazy();
    let stream = rig.stream();
    rig.begin(stream, RELAXED);
    let graph = rig.end(stream);
    let mut context = null_mut();
    assert_eq!(acl!(rig, aclrtCreateContext(&mut context, 0)), 0);
    let other = rig.stream();
    rig.refused(rig.replay(graph, other), ACL_ERROR_RT_MODEL_CONTEXT, "another context");
    assert_eq!(acl!(rig, aclmdlRIDestroy(graph)), ACL_ERROR_RT_MODEL_CONTEXT);
    assert_eq!(acl!(rig, aclrtSetDevice(0)), 0);
    assert_eq!(rig.replay(graph, other), ACL_ERROR_RT_STREAM_CONTEXT, "the graph is right, the stream is not");
    assert_eq!(rig.replay(graph, stream), 0);
}

#[test]
fn captures_take_streams_of_the_budget() {
    let mut chip = Chip::default();
    chip.streams = 6;
    let config = || HostConfig::new().executor(Executor::Lazy).device(chip.clone()).graph_lane_tasks(3);
    let rig = Rig::new(config());
    let (stream, sub, event) = (rig.stream(), rig.stream(), rig.event());
    assert_eq!(rig.streams_left(), 3);
    rig.begin(stream, RELAXED);
    for _ in 0..3 {
        rig.launch("noop", 1, stream, &[]);
    }
    assert_eq!(rig.streams_left(), 2);
    // The fourth task needs another stream.
    assert_eq!(rig.record(event, stream), 0);
    assert_eq!(rig.streams_left(), 1);
    assert_eq!(rig.wait(sub, event), 0);
    assert_eq!(rig.streams_left(), 0);
    let mut none = null_mut();
    assert_eq!(acl!(rig, aclrtCreateStreamWithConfig(&mut none, 0, 0)), ACL_ERROR_RT_NO_STREAM_RESOURCE);
    let mut context = null_mut();
    assert_eq!(acl!(rig, aclrtCreateContext(&mut context, 0)), ACL_ERROR_RT_NO_STREAM_RESOURCE);
    for _ in 0..2 {
        rig.launch("noop", 1, sub, &[]);
    }
    let code = rig.try_launch(rig.kernel("noop"), 1, sub, &[]);
    rig.refused(code, ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "those of graphs included");
    spoiled(&rig, stream);
    assert_eq!(rig.streams_left(), 3);
    // A join, and a begin.
    let streams: Vec<_> = (0..2).map(|_| rig.stream()).collect();
    rig.begin(stream, RELAXED);
    assert_eq!(rig.record(event, stream), 0);
    rig.refused(rig.wait(sub, event), ACL_ERROR_RT_NO_STREAM_RESOURCE, "all 6 streams");
    assert_eq!(rig.status(sub), NONE);
    assert_eq!(rig.try_end(stream), Err(ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED));
    rig.begin(stream, RELAXED);
    let code = acl!(rig, aclmdlRICaptureBegin(sub, RELAXED));
    assert_eq!(code, ACL_ERROR_RT_NO_STREAM_RESOURCE);
    let graph = rig.end(stream);
    assert_eq!(rig.streams_left(), 0);
    assert_eq!(acl!(rig, aclmdlRIDestroy(graph)), 0);
    assert_eq!(rig.streams_left(), 1, "a graph holds its streams as long as it lives");
    drop(streams);
}

#[test]
fn a_chip_without_capture_says_so() {
    let rig = Rig::new(HostConfig::new().device(Chip::preset("Ascend910B").expect("a preset")));
    let stream = rig.stream();
    let code = acl!(rig, aclmdlRICaptureBegin(stream, RELAXED));
    rig.refused(code, ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "Ascend910B cannot capture");
}

#[test]
fn only_ex_events_take_part() {
    let rig = Rig::lazy();
    let stream = rig.stream();
    let mut event = null_mut();
    assert_eq!(acl!(rig, aclrtCreateEventWithFlag(&mut event, ACL_EVENT_SYNC)), 0);
    rig.begin(stream, RELAXED);
    rig.refused(rig.record(event, stream), ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "aclrtCreateEventExWithFlag");
    spoiled(&rig, stream);
}

#[test]
fn an_event_of_a_capture_can_be_recorded_elsewhere_again() {
    let rig = Rig::lazy();
    let (stream, other, event) = (rig.stream(), rig.stream(), rig.event());
    rig.begin(stream, RELAXED);
    assert_eq!(rig.record(event, stream), 0);
    assert_eq!(rig.record(event, other), 0, "now it stands for a point of `other`");
    assert_eq!(acl!(rig, aclrtSynchronizeEvent(event)), 0);
    assert_eq!(rig.wait(stream, event), ACL_ERROR_RT_CAPTURE_DEPENDENCY);
    assert_eq!(rig.try_end(stream), Err(ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED));
}

#[test]
fn task_groups_change_arguments_of_a_graph() {
    for executor in ALL_EXECUTORS {
        let rig = Rig::with(executor);
        let (stream, updates, log) = (rig.stream(), rig.stream(), rig.new_log());
        let group_begin = |stream| acl!(rig, aclmdlRICaptureTaskGrpBegin(stream));
        let group_end = |stream| {
            let mut group = null_mut();
            (acl!(rig, aclmdlRICaptureTaskGrpEnd(stream, &mut group)), group)
        };
        assert_eq!(group_begin(stream), ACL_ERROR_RT_STREAM_NOT_CAPTURED);
        assert_eq!(group_end(stream).0, ACL_ERROR_RT_STREAM_NOT_CAPTURED);
        rig.begin(stream, THREAD_LOCAL);
        assert_eq!(group_end(stream).0, ACL_ERROR_STREAM_TASK_GROUP_STATUS);
        rig.log(log, 1, stream);
        assert_eq!(group_begin(stream), 0);
        assert_eq!(group_begin(stream), ACL_ERROR_STREAM_TASK_GROUP_STATUS);
        rig.log(log, 2, stream);
        rig.log(log, 3, stream);
        let (code, group) = group_end(stream);
        assert_eq!(code, 0);
        let begin = |stream| acl!(rig, aclmdlRICaptureTaskUpdateBegin(stream, group));
        let end = |stream| acl!(rig, aclmdlRICaptureTaskUpdateEnd(stream));
        assert_eq!(begin(stream), ACL_ERROR_RT_STREAM_CAPTURED);
        let graph = rig.end(stream);
        assert_eq!(end(updates), ACL_ERROR_STREAM_TASK_GROUP_STATUS);
        assert_eq!(begin(updates), 0);
        assert_eq!(
            (begin(updates), begin(stream)),
            (ACL_ERROR_STREAM_TASK_GROUP_STATUS, ACL_ERROR_STREAM_TASK_GROUP_STATUS)
        );
        rig.log(log, 20, updates);
        assert_eq!(rig.try_launch(rig.kernel("noop"), 1, updates, &[]), ACL_ERROR_RT_PARAM_INVALID, "another kernel");
        rig.log(log, 30, updates);
        let extra = rig.try_launch(rig.kernel("log"), 1, updates, &[Arg::Pointer(log), Arg::U32(4)]);
        assert_eq!(extra, ACL_ERROR_STREAM_TASK_GROUP_STATUS, "one too many");
        assert_eq!(end(updates), 0);
        assert_eq!(rig.sync(updates), 0);
        assert_eq!(rig.replay(graph, stream), 0);
        assert_eq!(rig.sync(stream), 0);
        assert_eq!(rig.read_log(log), [1, 20, 30], "{executor:?}");
        // One too few.
        assert_eq!(begin(updates), 0);
        rig.log(log, 4, updates);
        assert_eq!(end(updates), ACL_ERROR_STREAM_TASK_GROUP_STATUS);
        assert_eq!(acl!(rig, aclmdlRIDestroy(graph)), 0);
        assert_eq!(begin(updates), ACL_ERROR_RT_INVALID_HANDLE, "it went with the graph");
        // A group that is still open when the capture ends.
        rig.begin(stream, THREAD_LOCAL);
        assert_eq!(group_begin(stream), 0);
        assert_eq!(rig.try_end(stream), Err(ACL_ERROR_STREAM_TASK_GROUP_STATUS));
        ordinary(&rig, stream);
    }
}
