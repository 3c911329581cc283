// SPDX-License-Identifier: MIT OR Apache-2.0

//! Graphs: what a replay does, what it needs, how it fails.

use super::streams::Gate;
use crate::support::{ALL_EXECUTORS, Arg, Rig, acl};
use ascend_rt::host::{Executor, HostConfig};
use ascend_rt::sys::*;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const RELAXED: aclmdlRICaptureMode = ACL_MODEL_RI_CAPTURE_MODE_RELAXED;

#[test]
fn a_graph_replays_in_the_order_of_its_stream_and_as_often_as_wanted() {
    for executor in ALL_EXECUTORS {
        let rig = Rig::with(executor);
        let (stream, log) = (rig.stream(), rig.new_log());
        rig.begin(stream, RELAXED);
        rig.log(log, 1, stream);
        rig.log(log, 2, stream);
        let graph = rig.end(stream);
        rig.log(log, 10, stream);
        for round in 0..5 {
            assert_eq!(rig.replay(graph, stream), 0);
            rig.log(log, 20 + round, stream);
        }
        assert_eq!(rig.sync(stream), 0);
        assert_eq!(rig.read_log(log), [10, 1, 2, 20, 1, 2, 21, 1, 2, 22, 1, 2, 23, 1, 2, 24], "{executor:?}");
    }
}

#[test]
fn a_thousand_replays() {
    let rig = Rig::with(Executor::Threads);
    let (stream, x) = (rig.stream(), rig.device(&[0f32; 64]));
    rig.begin(stream, RELAXED);
    rig.launch("add", 2, stream, &[Arg::Pointer(x), Arg::U32(64), Arg::F32(1.0)]);
    let graph = rig.end(stream);
    for _ in 0..1000 {
        assert_eq!(rig.replay(graph, stream), 0);
    }
    assert_eq!(rig.sync(stream), 0);
    assert_eq!(rig.download::<f32>(x, 64), [1000.0; 64]);
}

#[test]
fn arguments_and_tiling_are_those_of_the_capture() {
    let rig = Rig::lazy();
    let stream = rig.stream();
    let (x, y) = (rig.device(&[1f32, 2.0, 3.0]), rig.device(&[0f32; 3]));
    let tiling = |n: u32| [n, n].iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
    rig.begin(stream, RELAXED);
    let three = tiling(3);
    rig.launch("tiled_scale", 1, stream, &[Arg::Pointer(x), Arg::F32(2.0), Arg::Pointer(y), Arg::Tiling(&three)]);
    let graph = rig.end(stream);
    // The thread's argument block is used for other launches in between.
    let one = tiling(1);
    rig.launch("tiled_scale", 1, stream, &[Arg::Pointer(x), Arg::F32(9.0), Arg::Pointer(y), Arg::Tiling(&one)]);
    assert_eq!(rig.sync(stream), 0);
    rig.upload(x, &[10f32, 20.0, 30.0]);
    assert_eq!(rig.replay(graph, stream), 0);
    assert_eq!(rig.sync(stream), 0);
    assert_eq!(rig.download::<f32>(y, 3), [20.0, 40.0, 60.0], "new data, old arguments");
}

#[test]
fn forks_of_a_graph_keep_their_order_and_share_virtual_time() {
    for executor in [Executor::Threads, Executor::Lazy].into_iter().chain((0..20).map(Executor::Seeded)) {
        let rig = Rig::with(executor);
        let [a, b] = [rig.stream(), rig.stream()];
        let [fork, join] = [rig.event(), rig.event()];
        let logs = [rig.new_log(), rig.new_log()];
        rig.begin(a, RELAXED);
        rig.log(logs[0], 1, a);
        assert_eq!((rig.record(fork, a), rig.wait(b, fork)), (0, 0));
        rig.log(logs[0], 2, a);
        rig.log(logs[1], 3, b);
        rig.log(logs[1], 4, b);
        assert_eq!((rig.record(join, b), rig.wait(a, join)), (0, 0));
        rig.log(logs[1], 5, a);
        let graph = rig.end(a);
        let start = rig.host.now();
        assert_eq!(rig.replay(graph, a), 0);
        assert_eq!(rig.sync(a), 0);
        assert_eq!(rig.host.now() - start, Duration::from_micros(400), "1, then 2 beside 3 and 4, then 5");
        assert_eq!((rig.read_log(logs[0]), rig.read_log(logs[1])), (vec![1, 2], vec![3, 4, 5]), "{executor:?}");
    }
}

#[test]
fn what_a_replay_fails_of_is_named_behind_507011() {
    for executor in ALL_EXECUTORS {
        let rig = Rig::with(executor);
        let (stream, log) = (rig.stream(), rig.new_log());
        rig.begin(stream, RELAXED);
        rig.log(log, 1, stream);
        rig.launch("trap", 1, stream, &[]);
        rig.log(log, 2, stream);
        let graph = rig.end(stream);
        assert_eq!(rig.replay(graph, stream), 0);
        let text = "task 1 of the graph failed with 507016: kernel t::trap failed: assertion";
        rig.refused(rig.sync(stream), ACL_ERROR_RT_MODEL_EXECUTE, text);
        assert_eq!(rig.read_log(log), [1], "the rest of the graph did not run");
        rig.log(log, 3, stream);
        assert_eq!(rig.sync(stream), 0);
        assert_eq!(rig.read_log(log), [1, 3]);
    }
}

#[test]
fn memory_that_is_freed_before_a_replay_is_a_fault_of_the_replay() {
    for executor in ALL_EXECUTORS {
        let rig = Rig::with(executor);
        let (stream, log) = (rig.stream(), rig.new_log());
        let pinned = rig.pinned(&[1u32]);
        type Act = fn(&Rig, aclrtStream, *mut c_void, *mut c_void);
        let acts: [Act; 3] = [
            |rig, stream, x, _| rig.launch("add", 1, stream, &[Arg::Pointer(x), Arg::U32(1), Arg::F32(1.0)]),
            |rig, stream, x, _| assert_eq!(rig.fill_async(x, 0, 4, stream), 0),
            |rig, stream, x, pinned| assert_eq!(rig.copy_async(x, pinned, 4, stream), 0),
        ];
        for act in acts {
            let x = rig.malloc(4);
            rig.begin(stream, RELAXED);
            act(&rig, stream, x, pinned);
            let graph = rig.end(stream);
            assert_eq!(rig.replay(graph, stream), 0);
            assert_eq!(rig.sync(stream), 0);
            assert_eq!(acl!(rig, aclrtFree(x)), 0);
            let reused = rig.malloc(4);
            assert_ne!(reused, x, "an address does not come back soon");
            assert_eq!(rig.replay(graph, stream), 0, "nothing is seen when it is submitted");
            rig.refused(rig.sync(stream), ACL_ERROR_RT_MODEL_EXECUTE, "failed with 507015");
            assert_eq!(acl!(rig, aclmdlRIDestroy(graph)), 0);
        }
        rig.begin(stream, RELAXED);
        assert_eq!(rig.copy_async(log, pinned, 4, stream), 0);
        let graph = rig.end(stream);
        assert_eq!(acl!(rig, aclrtFreeHost(pinned)), 0);
        assert_eq!(rig.replay(graph, stream), 0);
        rig.refused(rig.sync(stream), ACL_ERROR_RT_MODEL_EXECUTE, "507015");
    }
}

#[test]
fn a_module_that_is_unloaded_before_a_replay_is_one_too() {
    let rig = Rig::lazy();
    let stream = rig.stream();
    let module = rig.load("t");
    let kernel = rig.kernel_of(module, "noop");
    rig.begin(stream, RELAXED);
    assert_eq!(rig.try_launch(kernel, 1, stream, &[]), 0);
    let graph = rig.end(stream);
    assert_eq!(acl!(rig, aclrtBinaryUnLoad(module)), 0);
    assert_eq!(rig.replay(graph, stream), 0);
    rig.refused(rig.sync(stream), ACL_ERROR_RT_MODEL_EXECUTE, "unloaded");
}

#[test]
fn streams_and_events_of_a_capture_may_go_before_the_graph() {
    let rig = Rig::lazy();
    let [a, b, c] = [rig.stream(), rig.stream(), rig.stream()];
    let [fork, join] = [rig.event(), rig.event()];
    let log = rig.new_log();
    rig.begin(a, RELAXED);
    assert_eq!((rig.record(fork, a), rig.wait(b, fork)), (0, 0));
    rig.log(log, 1, b);
    assert_eq!((rig.record(join, b), rig.wait(a, join)), (0, 0));
    let graph = rig.end(a);
    for event in [fork, join] {
        assert_eq!(acl!(rig, aclrtDestroyEvent(event)), 0);
    }
    for stream in [a, b] {
        assert_eq!(acl!(rig, aclrtDestroyStream(stream)), 0);
    }
    assert_eq!(rig.replay(graph, c), 0);
    assert_eq!(rig.sync(c), 0);
    assert_eq!(rig.read_log(log), [1]);
}

#[test]
fn destroying_a_graph_waits_for_its_replays() {
    for executor in ALL_EXECUTORS {
        let rig = Rig::with(executor);
        let (stream, log) = (rig.stream(), rig.new_log());
        rig.begin(stream, RELAXED);
        rig.log(log, 1, stream);
        let graph = rig.end(stream);
        for _ in 0..3 {
            assert_eq!(rig.replay(graph, stream), 0);
        }
        assert_eq!(acl!(rig, aclmdlRIDestroy(graph)), 0);
        assert_eq!(rig.read_log(log), [1, 1, 1], "{executor:?}");
        assert_eq!(rig.replay(graph, stream), ACL_ERROR_RT_INVALID_HANDLE);
    }
}

#[test]
fn destroying_a_graph_gives_up_after_a_while() {
    for executor in [Executor::Threads, Executor::Lazy] {
        // Held up by a function that does not return: the machine's clock.
        let config = HostConfig::new().executor(executor).destroy_wait(Duration::from_millis(20));
        let rig = Rig::new(config);
        let stream = rig.stream();
        let gate = Gate::new();
        rig.begin(stream, RELAXED);
        let graph = rig.end(stream);
        gate.hold(&rig, stream);
        assert_eq!(rig.replay(graph, stream), 0);
        rig.refused(acl!(rig, aclmdlRIDestroy(graph)), ACL_ERROR_RT_MODEL_RUNNING, "20ms");
        gate.open();
        assert_eq!(rig.sync(stream), 0);
        assert_eq!(acl!(rig, aclmdlRIDestroy(graph)), 0);
    }
    // Too much work: the virtual clock. Three times 5 s are more than 10.
    let rig = Rig::lazy();
    let stream = rig.stream();
    rig.begin(stream, RELAXED);
    for _ in 0..3 {
        rig.launch("slow", 1, stream, &[]);
    }
    let graph = rig.end(stream);
    assert_eq!(rig.replay(graph, stream), 0);
    rig.refused(acl!(rig, aclmdlRIDestroy(graph)), ACL_ERROR_RT_MODEL_RUNNING, "10s");
    assert_eq!(acl!(rig, aclmdlRIDestroy(graph)), 0, "15 s are over within another 10");
    assert_eq!(rig.host.now(), Duration::from_secs(15));
}

#[test]
fn the_hook_of_a_graphs_end_is_called_once() {
    static ENDED: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn ended(by: *mut c_void) {
        ENDED.fetch_add(by.addr() as u32, Ordering::SeqCst);
    }
    let rig = Rig::lazy();
    let stream = rig.stream();
    rig.begin(stream, RELAXED);
    let graph = rig.end(stream);
    let hook = |function, by| {
        acl!(rig, aclmdlRIDestroyRegisterCallback(graph, function, std::ptr::without_provenance_mut(by)))
    };
    assert_eq!((hook(Some(ended), 1), hook(Some(ended), 10)), (0, 0));
    assert_eq!(hook(None, 1), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(ENDED.load(Ordering::SeqCst), 0);
    assert_eq!(acl!(rig, aclmdlRIDestroy(graph)), 0);
    assert_eq!(ENDED.load(Ordering::SeqCst), 11);
}

#[test]
fn host_functions_can_be_captured() {
    unsafe extern "C" fn count(counter: *mut c_void) {
        // SAFETY: the test keeps the counter.
        unsafe { &*counter.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
    }
    for executor in ALL_EXECUTORS {
        let counter = AtomicU32::new(0);
        let rig = Rig::with(executor);
        let (stream, log) = (rig.stream(), rig.new_log());
        rig.begin(stream, RELAXED);
        rig.log(log, 1, stream);
        let argument = std::ptr::from_ref(&counter).cast_mut().cast();
        assert_eq!(acl!(rig, aclrtLaunchHostFunc(stream, Some(count), argument)), 0);
        rig.log(log, 2, stream);
        let graph = rig.end(stream);
        assert_eq!(counter.load(Ordering::SeqCst), 0);
        assert_eq!((rig.replay(graph, stream), rig.replay(graph, stream)), (0, 0));
        assert_eq!(rig.sync(stream), 0);
        assert_eq!(counter.load(Ordering::SeqCst), 2, "{executor:?}");
        assert_eq!(rig.read_log(log), [1, 2, 1, 2]);
    }
}

#[test]
fn a_graph_describes_itself() {
    let rig = Rig::lazy();
    let (stream, event, x) = (rig.stream(), rig.event(), rig.malloc(8));
    rig.begin(stream, RELAXED);
    rig.launch("noop", 3, stream, &[]);
    assert_eq!(rig.fill_async(x, 0, 8, stream), 0);
    assert_eq!(rig.record(event, stream), 0);
    let graph = rig.end(stream);
    let path = std::env::temp_dir().join(format!("ascend-rt-graph-{}.json", std::process::id()));
    let name = std::ffi::CString::new(path.to_str().expect("UTF-8")).expect("no zero");
    assert_eq!(acl!(rig, aclmdlRIDebugJsonPrint(graph, name.as_ptr(), 0)), 0);
    let text = std::fs::read_to_string(&path).expect("just written");
    std::fs::remove_file(&path).expect("just written");
    let json: serde_json::Value = serde_json::from_str(&text).expect("valid JSON");
    let nodes = json["nodes"].as_array().expect("a list");
    assert_eq!(nodes.len(), 3);
    assert_eq!((nodes[0]["kind"].as_str(), nodes[0]["name"].as_str()), (Some("kernel"), Some("noop")));
    assert_eq!(nodes[0]["blocks"], 3);
    assert_eq!((nodes[1]["bytes"].as_u64(), nodes[1]["after"][0].as_u64()), (Some(8), Some(0)));
    assert_eq!(nodes[2]["kind"], "record");
    let code = acl!(rig, aclmdlRIDebugJsonPrint(graph, c"/nowhere/at/all".as_ptr(), 0));
    rig.refused(code, ACL_ERROR_RT_FILE_WRITE, "/nowhere/at/all");
}
