// SPDX-License-Identifier: MIT OR Apache-2.0

//! Failures on the device: told at a later synchronisation, the first one kept, the context spoiled.

use crate::common::*;
use ascend_rt::host::Fault;
use ascend_rt::raw::Call;
use ascend_rt::{CaptureMode, ErrorKind, Launch, Queue, StreamOptions};
use std::time::Duration;

#[test]
fn a_failure_is_told_by_the_next_synchronisation_and_spoils_the_context() {
    for executor in executors() {
        let (context, slot) = context_of(config().executor(executor));
        let kernels = Kernels::new(&context);
        let stream = context.stream().expect("stream");
        let mut buffer = context.alloc::<u32>(16).expect("memory");
        kernels.fault(&stream, &mut buffer).expect("a launch only queues");
        let error = stream.synchronize().expect_err("the kernel faults");
        assert_eq!((error.kind(), error.name()), (&ErrorKind::Exec, Some("ACL_ERROR_RT_AICORE_EXCEPTION")));
        assert_eq!((error.call(), error.device(), error.stream()), ("aclrtSynchronizeStream", Some(0), stream.id()));
        assert!(error.first().is_none(), "it is the first one");
        let first = context.poisoned().expect("spoiled");
        assert_eq!(first.code(), error.code());

        // Nothing more is taken, and every refusal names the cause.
        let refusals = [
            kernels.set(&stream, &mut buffer, 1).expect_err("launch"),
            stream.fill(&mut buffer, 0).expect_err("fill"),
            stream.upload_to(&[0; 16], &mut buffer).expect_err("upload"),
            stream.download(&buffer).expect_err("download"),
            stream.record().map(|_| ()).expect_err("record"),
            stream.host_func(|| ()).expect_err("host function"),
            context.alloc::<u8>(1).map(|_| ()).expect_err("memory"),
            context.pinned::<u8>(1).map(|_| ()).expect_err("pinned"),
            context.stream().map(|_| ()).expect_err("stream"),
            stream.synchronize().expect_err("sync"),
            context.synchronize().expect_err("sync"),
        ];
        for refusal in refusals {
            assert_eq!(refusal.first().map(|first| first.code()), Some(error.code()), "{refusal}");
            assert_eq!(refusal.code(), error.code(), "{refusal}");
            assert!(refusal.to_string().contains("first error: aclrtSynchronizeStream"), "{refusal}");
        }
        assert_eq!(kernels.set(&stream, &mut buffer, 1).expect_err("launch").kind(), &ErrorKind::Poisoned);
        // Everything can be dropped, and another context works.
        let fresh = context.device().isolated().expect("context");
        check_axpy(&fresh.stream().expect("stream"), &Kernels::new(&fresh));
        drop((fresh, context, kernels, stream, buffer));
        assert_clean(&slot);
    }
}

#[test]
fn the_second_failure_does_not_hide_the_first() {
    for stop in [true, false] {
        for executor in executors() {
            let context = context_of(config().executor(executor)).0;
            let kernels = Kernels::new(&context);
            let mut options = StreamOptions::default();
            options.stop_on_failure = Some(stop);
            let one = context.stream_with(options).expect("stream");
            let two = context.stream_with(options).expect("stream");
            let mut buffer = context.alloc::<u32>(16).expect("memory");
            let mut other = context.alloc::<u32>(16).expect("memory");
            kernels.fault(&one, &mut buffer).expect("launch");
            let first = one.synchronize().expect_err("the kernel faults");
            assert_eq!(first.code().0, 507015);
            assert!(kernels.trap(&two, &mut other).is_err(), "the context is spoiled");
            let second = two.synchronize().expect_err("spoiled");
            assert_eq!(second.first().map(|first| first.code().0), Some(507015));
            assert_eq!(context.poisoned().map(|first| first.code().0), Some(507015));
        }
    }
}

#[test]
fn a_failure_in_one_context_leaves_others_alone() {
    let runtime = runtime(config());
    let device = runtime.device(0).expect("device");
    let (one, two) = (device.isolated().expect("context"), device.primary().expect("context"));
    let (first, second) = (one.stream().expect("stream"), two.stream().expect("stream"));
    let mut buffer = one.alloc::<u32>(16).expect("memory");
    let (broken, well) = (Kernels::new(&one), Kernels::new(&two));
    broken.trap(&first, &mut buffer).expect("launch");
    assert_eq!(first.synchronize().expect_err("the kernel traps").code().0, 507016);
    check_axpy(&second, &well);
    assert!(two.poisoned().is_none());
}

#[test]
fn limits_of_waiting_leave_the_work_alone() {
    let context = context_of(config().fault(Fault::sync_timeout().times(2))).0;
    let kernels = Kernels::new(&context);
    let stream = context.stream().expect("stream");
    let mut buffer = context.alloc::<u32>(16).expect("memory");
    kernels.set(&stream, &mut buffer, 3).expect("set");
    let event = stream.record().expect("event");
    let error = stream.synchronize_timeout(Duration::from_millis(5)).expect_err("planned");
    assert_eq!((error.kind(), error.name()), (&ErrorKind::Timeout, Some("ACL_ERROR_RT_STREAM_SYNC_TIMEOUT")));
    assert!(error.is_timeout() && error.is_retryable() && !error.is_oom());
    let error = event.synchronize_timeout(Duration::from_millis(5)).expect_err("planned");
    assert_eq!(error.name(), Some("ACL_ERROR_RT_EVENT_SYNC_TIMEOUT"));
    assert!(context.poisoned().is_none());
    assert_eq!(stream.download(&buffer).expect("download"), [3; 16]);
    stream.synchronize_timeout(Duration::ZERO).expect("it is done");
    stream.synchronize_timeout(Duration::MAX).expect("it is done");
}

#[test]
fn no_limit_at_all_asks_and_does_not_wait() {
    let context = context_of(config().executor(ascend_rt::host::Executor::Lazy)).0;
    let kernels = Kernels::new(&context);
    let stream = context.stream().expect("stream");
    let mut buffer = context.alloc::<u32>(16).expect("memory");
    kernels.set(&stream, &mut buffer, 3).expect("set");
    let error = stream.synchronize_timeout(Duration::ZERO).expect_err("not done");
    assert_eq!((error.code().0, error.stream()), (507046, stream.id()));
    let event = stream.record().expect("event");
    assert_eq!(event.synchronize_timeout(Duration::ZERO).expect_err("not done").code().0, 507047);
}

#[test]
fn the_process_has_a_limit_for_kernels() {
    let (context, kernels) = {
        let slow = <Empty as ascend_rt::kernel::KernelSig>::on_host(|_| Ok(())).expect("layout");
        let slow = slow.with_cost(|_| Duration::from_secs(3));
        let context = context_of(config().kernel("test", "empty", slow)).0;
        let kernels = Kernels::new(&context);
        (context, kernels)
    };
    let stream = context.stream().expect("stream");
    // SAFETY: the kernel does nothing.
    let launch = || unsafe { kernels.empty.launch(&stream, 1, Empty {}) };
    launch().expect("launch");
    stream.synchronize().expect("within the usual limit");
    let actual = context.runtime().set_kernel_timeout(Duration::from_secs(2)).expect("limit");
    assert!(actual >= Duration::from_secs(2) && actual < Duration::from_secs(3), "{actual:?}");
    launch().expect("launch");
    assert_eq!(stream.synchronize().expect_err("over the limit").name(), Some("ACL_ERROR_RT_AICORE_TIMEOUT"));
}

#[test]
fn a_lost_device_is_fatal() {
    let context = context_of(config().fault(Fault::device_lost(0))).0;
    let kernels = Kernels::new(&context);
    let stream = context.stream().expect("stream");
    let mut buffer = context.alloc::<u32>(16).expect("memory");
    kernels.set(&stream, &mut buffer, 3).expect("set");
    let error = stream.synchronize().expect_err("the device is lost");
    assert_eq!(error.name(), Some("ACL_ERROR_RT_LOST_HEARTBEAT"));
    assert!(error.is_device_fatal());
    let error = kernels.set(&stream, &mut buffer, 3).expect_err("spoiled");
    assert!(error.is_device_fatal(), "also what follows: {error}");
}

#[test]
fn aborting_a_stream_ends_its_work() {
    let context = context_of(config().executor(ascend_rt::host::Executor::Lazy)).0;
    let kernels = Kernels::new(&context);
    let stream = context.stream().expect("stream");
    let mut buffer = context.alloc::<u32>(16).expect("memory");
    kernels.set(&stream, &mut buffer, 3).expect("set");
    stream.abort().expect("abort");
    let error = stream.synchronize().expect_err("aborted");
    assert_eq!((error.kind(), error.name()), (&ErrorKind::Aborted, Some("ACL_ERROR_RT_STREAM_ABORT")));
    drop(stream);
    let other = context.stream().expect("stream");
    kernels.set(&other, &mut buffer, 4).expect("set");
    assert_eq!(other.download(&buffer).expect("download"), [4; 16]);
}

#[test]
fn a_failing_replay_names_the_tasks_of_the_graph() {
    let context = context_of(config().fault(Fault::replay())).0;
    let kernels = Kernels::new(&context);
    let mut stream = context.stream().expect("stream");
    let mut one = context.alloc::<u32>(16).expect("memory");
    let mut two = context.alloc::<u32>(16).expect("memory");
    let mut graph = stream
        .capture(CaptureMode::default(), |capture| {
            kernels.set(capture, &mut one, 1)?;
            let launch = Launch::blocks(1).named("router");
            // SAFETY: the buffers are of one length.
            unsafe {
                kernels.next.launch(
                    capture,
                    launch,
                    Next { n: one.len() as u32, input: (&one).into(), out: (&mut two).into() },
                )
            }
        })
        .expect("capture");
    graph.replay(&stream).expect("a replay only queues");
    let error = stream.synchronize().expect_err("planned");
    assert_eq!((error.kind(), error.name()), (&ErrorKind::Exec, Some("ACL_ERROR_RT_MODEL_EXECUTE")));
    assert!(error.detail().contains("set, router"), "{error}");
    assert!(graph.replay(&stream).is_err_and(|error| *error.kind() == ErrorKind::Poisoned));
}

#[test]
fn every_call_that_fails_leaves_things_whole() {
    // Each call in turn fails once, in a program that uses most of them. It ends with an error of that call or, where a
    // drop met it, quietly; and nothing is left behind but what the failed call was to give back.
    let program = |host: ascend_rt::host::HostConfig| -> ascend_rt::Result<()> {
        let runtime = ascend_rt::Runtime::open(ascend_rt::Choice::Host(host))?;
        let context = runtime.device(0)?.isolated()?;
        let module = ascend_rt::Module::load(&context, &[ascend_rt::Blob::emulator("test")])?;
        let next = module.kernel::<Next>()?;
        let axpy = module.kernel::<Axpy>()?;
        let mut stream = context.stream()?;
        let other = context.stream()?;
        let mut host = context.pinned_from(&[1u32; 8])?;
        let mut one = context.alloc::<u32>(8)?;
        let mut two = context.alloc::<u32>(8)?;
        let mut y = stream.upload(&[1.0f32; 8])?;
        let x = stream.upload(&[1.0f32; 8])?;
        let mut graph = stream.capture(CaptureMode::default(), |capture| {
            capture.upload_pinned(&host, &mut one)?;
            // SAFETY: the buffers are of one length.
            unsafe {
                next.launch(capture, 1, Next { n: one.len() as u32, input: (&one).into(), out: (&mut two).into() })
            }?;
            capture.fork(&other, |capture| capture.download_pinned(&two, &mut host))
        })?;
        graph.replay(&stream)?.synchronize()?;
        assert_eq!(host.read()?[0], 2);
        let split = Split { n: 8, per_block: 8 };
        // SAFETY: the buffers have eight elements.
        unsafe { axpy.launch(&other, 1, Axpy { x: (&x).into(), y: (&mut y).into(), a: 1.0, split }) }?;
        let event = other.record_timed()?;
        stream.wait(&event)?;
        stream.fill(&mut two, 0)?;
        stream.host_func(|| ())?;
        assert_eq!(stream.download(&y)?, [2.0; 8]);
        event.query()?;
        stream.query()?;
        drop((one, x));
        context.trim()?;
        context.synchronize()
    };
    program(config()).expect("without a fault it is right");
    let mut failed = 0;
    for &call in Call::ALL {
        for nth in 1..=3 {
            let slot = ascend_rt::host::ReportSlot::new();
            let config = config().fault(Fault::call(call, 507899).nth(nth)).report_to(&slot);
            let result = program(config);
            if let Err(error) = &result {
                failed += 1;
                assert_eq!(error.code().0, 507899, "{call} {nth}: {error}");
                assert_eq!(error.call(), call.name(), "{call} {nth}: {error}");
            }
            assert!(slot.take().is_some(), "{call} {nth}: something still holds the machine");
        }
    }
    assert!(failed > 50, "only {failed} faults were met");
}
