// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is planned to fail.

use crate::support::{ALL_EXECUTORS, Rig, acl};
use ascend_rt::host::{Chip, Executor, Fault, HostConfig, ReportSlot};
use ascend_rt::raw::Call;
use ascend_rt::sys::*;
use std::ptr::null_mut;
use std::sync::Mutex;

#[test]
fn the_nth_call_fails_and_does_nothing() {
    let fault = Fault::call(Call::aclrtMalloc, ACL_ERROR_RT_DEVICE_OOM).nth(2);
    let rig = Rig::new(HostConfig::new().fault(fault));
    let mut pointer = null_mut();
    let mut malloc = || acl!(rig, aclrtMalloc(&mut pointer, 8, ACL_MEM_MALLOC_HUGE_FIRST));
    assert_eq!(malloc(), 0);
    rig.refused(malloc(), ACL_ERROR_RT_DEVICE_OOM, "aclrtMalloc: planned to fail");
    assert_eq!(malloc(), 0);
    assert_eq!(rig.host.memory(0).count, 2);
    rig.host.inject(Fault::call(Call::aclrtSetDevice, ACL_ERROR_RT_DEV_SETUP_ERROR).always());
    for _ in 0..3 {
        assert_eq!(acl!(rig, aclrtSetDevice(0)), ACL_ERROR_RT_DEV_SETUP_ERROR);
    }
}

#[test]
fn a_kernel_fails_where_it_runs_and_does_nothing() {
    for executor in ALL_EXECUTORS {
        let fault = Fault::kernel("t", "log", ACL_ERROR_RT_HBM_MULTI_BIT_ECC_ERROR).nth(2).times(2);
        let rig = Rig::new(HostConfig::new().executor(executor).fault(fault));
        let (stream, log) = (rig.stream(), rig.new_log());
        for value in 1..=5 {
            rig.log(log, value, stream);
        }
        rig.refused(rig.sync(stream), ACL_ERROR_RT_HBM_MULTI_BIT_ECC_ERROR, "t::log failed: planned");
        assert_eq!(rig.read_log(log), [1, 4, 5], "{executor:?}");
    }
}

#[test]
fn a_replay_fails() {
    for empty in [false, true] {
        let rig = Rig::new(HostConfig::new().executor(Executor::Lazy).fault(Fault::replay().nth(2)));
        let (stream, log) = (rig.stream(), rig.new_log());
        rig.begin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED);
        if !empty {
            rig.log(log, 1, stream);
        }
        let graph = rig.end(stream);
        for expected in [0, ACL_ERROR_RT_MODEL_EXECUTE, 0] {
            assert_eq!(rig.replay(graph, stream), 0);
            assert_eq!(rig.sync(stream), expected);
        }
        assert!(rig.message().contains("507015"));
    }
}

#[test]
fn a_wait_times_out_and_the_work_goes_on() {
    let rig = Rig::new(HostConfig::new().executor(Executor::Lazy).fault(Fault::sync_timeout().times(3)));
    let (stream, event, log) = (rig.stream(), rig.event(), rig.new_log());
    rig.log(log, 1, stream);
    assert_eq!(rig.record(event, stream), 0);
    rig.refused(rig.sync(stream), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "planned");
    assert_eq!(acl!(rig, aclrtSynchronizeDevice()), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
    assert_eq!(acl!(rig, aclrtSynchronizeEvent(event)), ACL_ERROR_RT_EVENT_SYNC_TIMEOUT);
    assert_eq!(rig.sync(stream), 0);
    assert_eq!(rig.read_log(log), [1]);
}

#[test]
fn a_lost_device_answers_507010_to_everything_and_the_other_one_lives() {
    for executor in ALL_EXECUTORS {
        let config =
            HostConfig::new().executor(executor).devices(2, Chip::default()).fault(Fault::device_lost(0).nth(2));
        let rig = Rig::new(config);
        let (stream, event, a) = (rig.stream(), rig.event(), rig.malloc(8));
        assert_eq!(rig.fill_async(a, 1, 8, stream), 0);
        assert_eq!(rig.sync(stream), 0);
        assert_eq!(rig.fill_async(a, 2, 8, stream), 0);
        let lost = ACL_ERROR_RT_LOST_HEARTBEAT;
        // With workers the loss may come before the record is submitted.
        let recorded = rig.record(event, stream);
        assert!(recorded == 0 || recorded == lost);
        assert_eq!(rig.sync(stream), lost);
        assert_eq!(rig.sync(stream), lost);
        assert_eq!(rig.fill_async(a, 2, 8, stream), lost);
        let mut pointer = null_mut();
        assert_eq!(acl!(rig, aclrtMalloc(&mut pointer, 8, ACL_MEM_MALLOC_HUGE_FIRST)), lost);
        assert_eq!(acl!(rig, aclrtCreateContext(&mut pointer, 0)), lost);
        assert_eq!(acl!(rig, aclrtSetDevice(1)), 0);
        let (stream, b) = (rig.stream(), rig.malloc(8));
        assert_eq!(rig.fill_async(b, 3, 8, stream), 0);
        assert_eq!(rig.sync(stream), 0);
        assert_eq!(rig.download::<u8>(b, 8), [3; 8], "{executor:?}");
        // Waiting from here for an event over there ends, with the code.
        assert_eq!(acl!(rig, aclrtSynchronizeEvent(event)), if recorded == 0 { lost } else { 0 });
    }
}

#[test]
fn what_is_on_a_lost_device_can_be_given_back() {
    let slot = ReportSlot::new();
    let config = HostConfig::new().executor(Executor::Lazy).fault(Fault::device_lost(0)).report_to(&slot);
    let rig = Rig::new(config);
    let (stream, event, module) = (rig.stream(), rig.event(), rig.load("t"));
    let (a, b) = (rig.malloc(8), rig.malloc_host(8));
    rig.begin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED);
    let graph = rig.end(stream);
    assert_eq!((rig.fill_async(a, 1, 8, stream), rig.replay(graph, stream)), (0, 0));
    assert_eq!(rig.sync(stream), ACL_ERROR_RT_LOST_HEARTBEAT);
    assert_eq!(acl!(rig, aclmdlRIDestroy(graph)), 0);
    assert_eq!(acl!(rig, aclrtDestroyEvent(event)), 0);
    assert_eq!(acl!(rig, aclrtDestroyStream(stream)), 0);
    assert_eq!(acl!(rig, aclrtBinaryUnLoad(module)), 0);
    assert_eq!((acl!(rig, aclrtFree(a)), acl!(rig, aclrtFreeHost(b))), (0, 0));
    assert_eq!(acl!(rig, aclrtResetDevice(0)), 0);
    drop(rig);
    let report = slot.take().expect("gone");
    assert!(report.is_clean(), "{report}");
}

#[test]
fn the_exception_hook_hears_of_failures() {
    static HEARD: Mutex<Vec<[u32; 5]>> = Mutex::new(Vec::new());
    unsafe extern "C" fn hear(info: *mut aclrtExceptionInfo) {
        // SAFETY: what it points to begins with task, stream, thread, device and code.
        HEARD.lock().expect("no panic").push(unsafe { info.cast::<[u32; 5]>().read() });
    }
    let rig = Rig::lazy();
    assert_eq!(acl!(rig, aclrtSetExceptionInfoCallback(Some(hear))), 0);
    let stream = rig.stream();
    let mut id = 0;
    assert_eq!(acl!(rig, aclrtStreamGetId(stream, &mut id)), 0);
    rig.launch("trap", 1, stream, &[]);
    assert_eq!(rig.sync(stream), ACL_ERROR_RT_AICORE_TRAP_EXCEPTION);
    let heard = std::mem::take(&mut *HEARD.lock().expect("no panic"));
    assert_eq!(heard, [[0, id as u32, 0, 0, 507016]]);
    assert_eq!(acl!(rig, aclrtSetExceptionInfoCallback(None)), 0);
    rig.launch("trap", 1, stream, &[]);
    assert_eq!(rig.sync(stream), ACL_ERROR_RT_AICORE_TRAP_EXCEPTION);
    assert!(HEARD.lock().expect("no panic").is_empty());
}
