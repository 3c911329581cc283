// SPDX-License-Identifier: MIT OR Apache-2.0

//! Contexts and threads: what is current where, and what that forbids.

use crate::support::{Arg, Handle, Rig, acl};
use ascend_rt::host::{Chip, Executor, HostConfig, ReportSlot};
use ascend_rt::sys::*;
use std::ptr::null_mut;

fn context(rig: &Rig, device: i32) -> aclrtContext {
    let mut context = null_mut();
    assert_eq!(acl!(rig, aclrtCreateContext(&mut context, device)), 0);
    context
}

fn current(rig: &Rig) -> aclrtContext {
    let mut context = null_mut();
    assert_eq!(acl!(rig, aclrtGetCurrentContext(&mut context)), 0);
    context
}

fn set(rig: &Rig, context: aclrtContext) {
    assert_eq!(acl!(rig, aclrtSetCurrentContext(context)), 0);
}

#[test]
fn a_thread_without_a_context_gets_107002_for_nearly_everything() {
    let rig = Rig::bare(HostConfig::new().executor(Executor::Lazy));
    let (mut pointer, mut a, mut b) = (null_mut(), 0usize, 0usize);
    let (mut number, mut device, mut status) = (0u32, 0i32, ACL_STREAM_STATUS_COMPLETE);
    let image = ascend_rt::host::module_image("t", None);
    let none = ACL_ERROR_RT_CONTEXT_NULL;
    for (what, code) in [
        ("GetDevice", acl!(rig, aclrtGetDevice(&mut device))),
        ("GetMemInfo", acl!(rig, aclrtGetMemInfo(ACL_HBM_MEM, &mut a, &mut b))),
        ("GetCurrentContext", acl!(rig, aclrtGetCurrentContext(&mut pointer))),
        ("SynchronizeDevice", acl!(rig, aclrtSynchronizeDevice())),
        ("CreateStream", acl!(rig, aclrtCreateStreamWithConfig(&mut pointer, 0, 0))),
        ("SynchronizeStream", acl!(rig, aclrtSynchronizeStream(null_mut()))),
        ("StreamQuery", acl!(rig, aclrtStreamQuery(null_mut(), &mut status))),
        ("GetStreamAvailableNum", acl!(rig, aclrtGetStreamAvailableNum(&mut number))),
        ("CreateEvent", acl!(rig, aclrtCreateEventExWithFlag(&mut pointer, ACL_EVENT_SYNC))),
        ("Malloc", acl!(rig, aclrtMalloc(&mut pointer, 8, ACL_MEM_MALLOC_HUGE_FIRST))),
        ("MallocHost", acl!(rig, aclrtMallocHost(&mut pointer, 8))),
        ("Free", acl!(rig, aclrtFree(null_mut()))),
        ("Memset", acl!(rig, aclrtMemset(null_mut(), 8, 0, 8))),
        ("CaptureBegin", acl!(rig, aclmdlRICaptureBegin(null_mut(), ACL_MODEL_RI_CAPTURE_MODE_GLOBAL))),
        ("Execute", acl!(rig, aclmdlRIExecuteAsync(null_mut(), null_mut()))),
        (
            "Load",
            acl!(rig, aclrtBinaryLoadFromData(image.as_ptr().cast(), image.len(), std::ptr::null(), &mut pointer)),
        ),
    ] {
        assert_eq!(code, none, "{what}");
    }
    assert_eq!(acl!(rig, aclrtGetDeviceCount(&mut number)), 0);
    assert_eq!(number, 1);
    assert!(!acl!(rig, aclrtGetSocName()).is_null());
}

#[test]
fn devices_that_are_not_there_are_107001() {
    let rig = Rig::bare(HostConfig::new().devices(2, Chip::default()));
    let mut pointer = null_mut();
    for device in [-1, 2, i32::MAX, i32::MIN] {
        rig.refused(acl!(rig, aclrtSetDevice(device)), ACL_ERROR_RT_INVALID_DEVICEID, "the machine has 2");
        assert_eq!(acl!(rig, aclrtResetDevice(device)), ACL_ERROR_RT_INVALID_DEVICEID);
        assert_eq!(acl!(rig, aclrtCreateContext(&mut pointer, device)), ACL_ERROR_RT_INVALID_DEVICEID);
    }
    let rig = Rig::bare(HostConfig::new().no_device());
    assert_eq!(acl!(rig, aclrtSetDevice(0)), ACL_ERROR_RT_INVALID_DEVICEID);
    let mut count = 7;
    assert_eq!(acl!(rig, aclrtGetDeviceCount(&mut count)), 0);
    assert_eq!(count, 0);
    assert!(acl!(rig, aclrtGetSocName()).is_null());
}

#[test]
fn the_last_call_decides_the_current_context_of_its_thread_only() {
    let rig = Rig::bare(HostConfig::new().devices(2, Chip::default()));
    assert_eq!(acl!(rig, aclrtSetDevice(0)), 0);
    let primary = current(&rig);
    let own = context(&rig, 1);
    assert_eq!(current(&rig), own, "made current where it was made");
    let device = || {
        let mut device = -1;
        assert_eq!(acl!(rig, aclrtGetDevice(&mut device)), 0);
        device
    };
    assert_eq!(device(), 1);
    set(&rig, primary);
    assert_eq!(device(), 0, "the context brings its device");
    let (primary, own) = (Handle(primary), Handle(own));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut none = null_mut();
            assert_eq!(acl!(rig, aclrtGetCurrentContext(&mut none)), ACL_ERROR_RT_CONTEXT_NULL);
            assert_eq!(acl!(rig, aclrtSetDevice(0)), 0);
            assert_eq!(Handle(current(&rig)), primary, "one primary context for all threads");
            set(&rig, own.get());
        });
    });
    assert_eq!(Handle(current(&rig)), primary, "the other thread's choice is its own");
    assert_eq!(acl!(rig, aclrtSetCurrentContext(null_mut())), ACL_ERROR_RT_PARAM_INVALID);
}

#[test]
fn streams_and_events_of_another_context_are_107003() {
    let rig = Rig::bare(HostConfig::new().executor(Executor::Lazy));
    assert_eq!(acl!(rig, aclrtSetDevice(0)), 0);
    let (stream, event, log) = (rig.stream(), rig.event(), rig.new_log());
    let primary = current(&rig);
    context(&rig, 0);
    let (own_stream, own_event) = (rig.stream(), rig.event());
    let foreign = ACL_ERROR_RT_STREAM_CONTEXT;
    let mut status = ACL_STREAM_STATUS_COMPLETE;
    rig.refused(rig.sync(stream), foreign, "another context");
    for code in [
        acl!(rig, aclrtStreamQuery(stream, &mut status)),
        rig.record(own_event, stream),
        rig.record(event, own_stream),
        rig.wait(stream, own_event),
        rig.wait(own_stream, event),
        rig.fill_async(log, 0, 4, stream),
        acl!(rig, aclrtDestroyStream(stream)),
        acl!(rig, aclrtDestroyStreamForce(stream)),
        acl!(rig, aclrtDestroyEvent(event)),
        acl!(rig, aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED)),
    ] {
        assert_eq!(code, foreign);
    }
    // Waiting for an event, and asking for it, work from everywhere.
    let mut recorded = ACL_EVENT_RECORDED_STATUS_NOT_READY;
    assert_eq!(acl!(rig, aclrtSynchronizeEvent(event)), 0);
    assert_eq!(acl!(rig, aclrtQueryEventStatus(event, &mut recorded)), 0);
    set(&rig, primary);
    assert_eq!(rig.sync(stream), 0);
    assert_eq!(acl!(rig, aclrtDestroyEvent(event)), 0);
    assert_eq!(acl!(rig, aclrtDestroyStream(stream)), 0);
}

#[test]
fn modules_and_kernels_belong_to_the_context_that_loaded_them() {
    let rig = Rig::lazy();
    let module = rig.load("t");
    let kernel = rig.kernel_of(module, "noop");
    context(&rig, 0);
    let stream = rig.stream();
    let mut function = null_mut();
    let lookup = acl!(rig, aclrtBinaryGetFunction(module, c"noop".as_ptr(), &mut function));
    rig.refused(lookup, ACL_ERROR_RT_INVALID_HANDLE, "another context");
    assert_eq!(rig.try_launch(kernel, 1, stream, &[]), ACL_ERROR_RT_INVALID_HANDLE);
    assert_eq!(acl!(rig, aclrtBinaryUnLoad(module)), ACL_ERROR_RT_INVALID_HANDLE);
}

#[test]
fn the_primary_context_is_counted_and_goes_with_its_streams() {
    let rig = Rig::lazy();
    assert_eq!(acl!(rig, aclrtSetDevice(0)), 0);
    let (stream, log) = (rig.stream(), rig.new_log());
    rig.log(log, 1, stream);
    assert_eq!(acl!(rig, aclrtResetDevice(0)), 0);
    assert_eq!(rig.read_log(log), [0u32; 0], "still set once");
    rig.log(log, 2, stream);
    assert_eq!(acl!(rig, aclrtResetDevice(0)), 0);
    rig.refused(rig.sync(stream), ACL_ERROR_RT_CONTEXT_NULL, "destroyed");
    rig.refused(acl!(rig, aclrtResetDevice(0)), ACL_ERROR_RT_CONTEXT_NULL, "reset before");
    assert_eq!(acl!(rig, aclrtSetDevice(0)), 0);
    assert_eq!(rig.sync(stream), ACL_ERROR_RT_INVALID_HANDLE, "a new context");
    let report = rig.host.report();
    assert_eq!((report.streams, report.contexts), (0, 1));
    assert!(report.unseen.iter().any(|text| text.contains("1 live allocations")), "{report}");
    assert_eq!(acl!(rig, aclrtResetDeviceForce(0)), 0);
    assert_eq!(acl!(rig, aclrtResetDeviceForce(0)), ACL_ERROR_RT_CONTEXT_NULL, "a second one fails");
    assert_eq!(acl!(rig, aclrtResetDevice(0)), ACL_ERROR_RT_CONTEXT_NULL);
}

#[test]
fn own_contexts_are_destroyed_with_what_is_theirs_and_primary_ones_are_not() {
    let slot = ReportSlot::new();
    let rig = Rig::new(HostConfig::new().executor(Executor::Lazy).report_to(&slot));
    let primary = current(&rig);
    rig.refused(acl!(rig, aclrtDestroyContext(primary)), ACL_ERROR_RT_PARAM_INVALID, "primary");
    let left = rig.streams_left();
    let own = context(&rig, 0);
    let (stream, event, log) = (rig.stream(), rig.event(), rig.new_log());
    rig.load("t");
    rig.begin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED);
    rig.launch("noop", 1, stream, &[]);
    rig.end(stream);
    rig.begin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED);
    assert_eq!(acl!(rig, aclrtFree(log)), 0);
    assert_eq!(acl!(rig, aclrtDestroyContext(own)), 0);
    assert_eq!(acl!(rig, aclrtDestroyContext(own)), ACL_ERROR_RT_CONTEXT_NULL);
    assert_eq!(acl!(rig, aclrtSetCurrentContext(own)), ACL_ERROR_RT_CONTEXT_NULL);
    rig.refused(rig.sync(stream), ACL_ERROR_RT_CONTEXT_NULL, "destroyed");
    set(&rig, primary);
    assert_eq!(rig.streams_left(), left, "streams of graphs come back too");
    assert_eq!(acl!(rig, aclrtSynchronizeEvent(event)), ACL_ERROR_RT_INVALID_HANDLE);
    assert_eq!(acl!(rig, aclrtResetDevice(0)), 0);
    drop(rig);
    let report = slot.take().expect("gone");
    assert!(report.is_clean(), "{report}");
}

#[test]
fn eight_threads_with_four_streams_each() {
    let rig = Rig::new(HostConfig::new());
    std::thread::scope(|scope| {
        for thread in 0..8u32 {
            let rig = &rig;
            scope.spawn(move || {
                assert_eq!(acl!(rig, aclrtSetDevice(0)), 0);
                let streams: Vec<_> = (0..4).map(|_| rig.stream()).collect();
                let x = rig.device(&[0f32; 100]);
                let done = rig.event();
                for round in 0..20 {
                    let stream = streams[round % 4];
                    assert_eq!(rig.wait(stream, done), 0);
                    rig.launch("add", 4, stream, &[Arg::Pointer(x), Arg::U32(100), Arg::F32(thread as f32)]);
                    assert_eq!(rig.record(done, stream), 0);
                }
                assert_eq!(acl!(rig, aclrtSynchronizeEvent(done)), 0);
                assert_eq!(rig.download::<f32>(x, 100), [20.0 * thread as f32; 100]);
                for stream in streams {
                    assert_eq!(acl!(rig, aclrtDestroyStream(stream)), 0);
                }
                assert_eq!(acl!(rig, aclrtDestroyEvent(done)), 0);
                assert_eq!(acl!(rig, aclrtFree(x)), 0);
            });
        }
    });
    let report = rig.host.report();
    assert_eq!((report.streams, report.events, rig.host.memory(0).count), (0, 0, 0));
}

#[test]
fn messages_and_last_errors_belong_to_the_thread_and_go_when_read() {
    let rig = Rig::lazy();
    assert_eq!(rig.message(), "");
    assert_eq!(rig.sync(Handle(null_mut()).0.wrapping_byte_add(8)), ACL_ERROR_RT_INVALID_HANDLE);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(rig.message(), "");
            assert_eq!(acl!(rig, aclrtGetLastError(ACL_RT_THREAD_LEVEL)), 0);
        });
    });
    // A call that succeeds leaves both.
    assert_eq!(acl!(rig, aclrtSetDevice(0)), 0);
    assert_eq!(acl!(rig, aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL)), ACL_ERROR_RT_INVALID_HANDLE);
    assert_eq!(acl!(rig, aclrtGetLastError(ACL_RT_THREAD_LEVEL)), ACL_ERROR_RT_INVALID_HANDLE);
    assert_eq!(acl!(rig, aclrtGetLastError(ACL_RT_THREAD_LEVEL)), 0);
    assert_eq!(acl!(rig, aclrtGetLastError(aclrtLastErrLevel(1))), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(rig.message(), "EH107017: aclrtSynchronizeStream: 0x8 is no live stream of this machine");
    assert_eq!(rig.message(), "");
}

#[test]
fn calls_from_a_thread_that_ends_do_no_harm() {
    thread_local! {
        static LAST: std::cell::RefCell<Option<Rig>> = const { std::cell::RefCell::new(None) };
    }
    // The machine goes in a destructor of thread-local data, when other such data may be gone already.
    let slot = ReportSlot::new();
    let config = HostConfig::new().report_to(&slot);
    std::thread::spawn(move || {
        let rig = Rig::new(config);
        let stream = rig.stream();
        rig.launch("noop", 1, stream, &[]);
        LAST.set(Some(rig));
    })
    .join()
    .expect("no panic");
    assert_eq!(slot.take().expect("the machine is gone").streams, 1);
}

#[test]
fn initialisation_is_counted_and_said_when_repeated() {
    let rig = Rig::lazy();
    assert_eq!(acl!(rig, aclFinalize()), ACL_ERROR_REPEAT_FINALIZE);
    assert_eq!(acl!(rig, aclInit(std::ptr::null())), 0);
    assert_eq!(acl!(rig, aclInit(std::ptr::null())), ACL_ERROR_REPEAT_INITIALIZE);
    let mut left = 9;
    assert_eq!(acl!(rig, aclFinalizeReference(&mut left)), 0);
    assert_eq!(left, 1);
    assert_eq!(acl!(rig, aclFinalizeReference(null_mut())), 0);
    assert_eq!(acl!(rig, aclFinalizeReference(null_mut())), ACL_ERROR_REPEAT_FINALIZE);
    assert_eq!(acl!(rig, aclInit(std::ptr::null())), 0);
    assert_eq!((acl!(rig, aclFinalize()), acl!(rig, aclFinalize())), (0, ACL_ERROR_REPEAT_FINALIZE));
}

#[test]
fn facts_of_the_device_come_from_its_chip() {
    let rig = Rig::new(HostConfig::new().device(Chip::preset("Ascend910B4").expect("a preset")).capacity(1 << 20));
    let info = |attribute| {
        let mut value = -1;
        match acl!(rig, aclrtGetDeviceInfo(0, attribute, &mut value)) {
            0 => Ok(value),
            code => Err(code),
        }
    };
    for (attribute, value) in [
        (ACL_DEV_ATTR_AICORE_CORE_NUM, 20),
        (ACL_DEV_ATTR_CUBE_CORE_NUM, 20),
        (ACL_DEV_ATTR_VECTOR_CORE_NUM, 40),
        (ACL_DEV_ATTR_UBUF_PER_VECTOR_CORE, 192 << 10),
        (ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE, 1 << 20),
        (ACL_DEV_ATTR_L2_CACHE_SIZE, 96 << 20),
        (ACL_DEV_ATTR_PHY_CHIP_ID, 0),
        (ACL_DEV_ATTR_IS_VIRTUAL, 0),
        (ACL_DEV_ATTR_NPU_ARCH, 2201),
    ] {
        assert_eq!(info(attribute), Ok(value), "{attribute:?}");
    }
    assert_eq!(info(aclrtDevAttr(12345)), Err(ACL_ERROR_RT_PARAM_INVALID));
    let mut value = 0;
    assert_eq!(acl!(rig, aclrtGetDeviceInfo(1, ACL_DEV_ATTR_NPU_ARCH, &mut value)), ACL_ERROR_RT_INVALID_DEVICEID);
    assert_eq!(acl!(rig, aclGetDeviceCapability(0, ACL_DEVICE_INFO_VECTOR_CORE_NUM, &mut value)), 0);
    assert_eq!(value, 40);
    assert_eq!(acl!(rig, aclGetDeviceCapability(0, ACL_DEVICE_INFO_UNDEFINED, &mut value)), ACL_ERROR_RT_PARAM_INVALID);
    let compatible = |name: &std::ffi::CStr| {
        let mut can = -1;
        match acl!(rig, aclrtCheckArchCompatibility(name.as_ptr(), &mut can)) {
            0 => Ok(can),
            code => Err(code),
        }
    };
    assert_eq!(compatible(c"Ascend910_9392"), Ok(1));
    assert_eq!(compatible(c"Ascend910B"), Ok(0), "the first 910");
    assert_eq!(compatible(c"Ascend950PR_9599"), Ok(0));
    assert_eq!(compatible(c"910B"), Err(ACL_ERROR_RT_PARAM_INVALID));
    let (mut free, mut total) = (0, 0);
    let odd = acl!(rig, aclrtGetMemInfo(aclrtMemAttr(99), &mut free, &mut total));
    assert_eq!(odd, ACL_ERROR_RT_PARAM_INVALID);
}
