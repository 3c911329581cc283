// SPDX-License-Identifier: MIT OR Apache-2.0

//! Streams, events, waiting, callbacks.

use crate::support::{ALL_EXECUTORS, Handle, Rig, acl};
use ascend_rt::host::{Executor, FullQueue, HostConfig};
use ascend_rt::raw::Call;
use ascend_rt::sys::*;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// A host function that holds a stream until the test lets it go.
#[derive(Clone)]
pub(crate) struct Gate(Arc<(Mutex<u32>, Condvar)>);

impl Gate {
    pub(crate) fn new() -> Gate {
        Gate(Arc::new((Mutex::new(0), Condvar::new())))
    }

    /// Queues the wait for one opening. The gate must outlive it.
    pub(crate) fn hold(&self, rig: &Rig, stream: aclrtStream) {
        unsafe extern "C" fn pass(argument: *mut c_void) {
            // SAFETY: the gate outlives the stream's tasks.
            let (openings, bell) = unsafe { &*argument.cast::<(Mutex<u32>, Condvar)>() };
            let mut openings = openings.lock().expect("no panic");
            while *openings == 0 {
                openings = bell.wait(openings).expect("no panic");
            }
            *openings -= 1;
        }
        let argument = Arc::as_ptr(&self.0).cast_mut().cast();
        assert_eq!(acl!(rig, aclrtLaunchHostFunc(stream, Some(pass), argument)), 0);
    }

    pub(crate) fn open(&self) {
        *self.0.0.lock().expect("no panic") += 1;
        self.0.1.notify_all();
    }
}

#[test]
fn a_stream_runs_its_tasks_in_order() {
    for executor in ALL_EXECUTORS {
        let rig = Rig::with(executor);
        let (stream, log) = (rig.stream(), rig.new_log());
        for value in 0..20 {
            rig.log(log, value, stream);
        }
        assert_eq!(rig.sync(stream), 0);
        assert_eq!(rig.read_log(log), (0..20).collect::<Vec<_>>(), "{executor:?}");
        assert_eq!(rig.query(stream), ACL_STREAM_STATUS_COMPLETE);
        // The default stream is one too.
        rig.log(log, 20, null_mut());
        assert_eq!(rig.sync(null_mut()), 0);
        assert_eq!(rig.read_log(log)[20], 20);
    }
}

#[test]
fn an_event_orders_two_streams() {
    for executor in ALL_EXECUTORS {
        let rig = Rig::with(executor);
        let (a, b, event, log) = (rig.stream(), rig.stream(), rig.event(), rig.new_log());
        for value in 0..5 {
            rig.log(log, value, a);
        }
        assert_eq!(rig.record(event, a), 0);
        assert_eq!(rig.wait(b, event), 0);
        rig.log(log, 9, b);
        assert_eq!(rig.sync(b), 0);
        assert_eq!(rig.read_log(log), [0, 1, 2, 3, 4, 9], "{executor:?}");
    }
}

#[test]
fn a_wait_is_for_the_record_before_it_and_not_for_a_later_one() {
    let rig = Rig::lazy();
    let (a, b, c, event, log) = (rig.stream(), rig.stream(), rig.stream(), rig.event(), rig.new_log());
    rig.log(log, 1, a);
    assert_eq!(rig.record(event, a), 0);
    assert_eq!(rig.wait(b, event), 0);
    rig.log(log, 2, b);
    // The event now stands for another point; the wait in `b` does not.
    rig.log(log, 3, c);
    assert_eq!(rig.record(event, c), 0);
    assert_eq!(rig.sync(b), 0);
    assert_eq!(rig.read_log(log), [1, 2]);
    assert_eq!(acl!(rig, aclrtSynchronizeEvent(event)), 0);
    assert_eq!(rig.read_log(log), [1, 2, 3]);
    // What was queued on an event outlives it.
    rig.log(log, 4, a);
    assert_eq!(rig.record(event, a), 0);
    assert_eq!(rig.wait(b, event), 0);
    assert_eq!(acl!(rig, aclrtDestroyEvent(event)), 0);
    rig.log(log, 5, b);
    assert_eq!(rig.sync(b), 0);
    assert_eq!(rig.read_log(log), [1, 2, 3, 4, 5]);
}

fn event_status(rig: &Rig, event: aclrtEvent) -> aclrtEventRecordedStatus {
    let mut status = aclrtEventRecordedStatus(9);
    assert_eq!(acl!(rig, aclrtQueryEventStatus(event, &mut status)), 0);
    status
}

#[test]
fn a_wait_ends_although_its_event_was_destroyed_or_recorded_again() {
    for executor in ALL_EXECUTORS {
        let rig = Rig::with(executor);
        let (a, b, c, log) = (rig.stream(), rig.stream(), rig.stream(), rig.new_log());
        let (gone, again) = (rig.event(), rig.event());
        let gate = Gate::new();
        gate.hold(&rig, a);
        rig.log(log, 1, a);
        assert_eq!((rig.record(gone, a), rig.record(again, a)), (0, 0));
        assert_eq!((rig.wait(b, gone), rig.wait(c, again)), (0, 0));
        assert_eq!((rig.record(again, b), acl!(rig, aclrtDestroyEvent(gone))), (0, 0));
        gate.open();
        assert_eq!((rig.sync(b), rig.sync(c)), (0, 0));
        assert_eq!(rig.read_log(log), [1], "{executor:?}");
    }
}

#[test]
fn an_event_that_was_never_recorded_counts_as_complete() {
    let rig = Rig::lazy();
    let (stream, event, log) = (rig.stream(), rig.event(), rig.new_log());
    assert_eq!(event_status(&rig, event), ACL_EVENT_RECORDED_STATUS_COMPLETE);
    assert_eq!(acl!(rig, aclrtSynchronizeEvent(event)), 0);
    assert_eq!(rig.wait(stream, event), 0);
    rig.log(log, 1, stream);
    assert_eq!(rig.sync(stream), 0);
    assert_eq!(rig.read_log(log), [1]);
    rig.log(log, 2, stream);
    assert_eq!(rig.record(event, stream), 0);
    assert_eq!(event_status(&rig, event), ACL_EVENT_RECORDED_STATUS_NOT_READY);
    assert_eq!(acl!(rig, aclrtSynchronizeEvent(event)), 0);
    assert_eq!(event_status(&rig, event), ACL_EVENT_RECORDED_STATUS_COMPLETE);
}

#[test]
fn a_program_that_polls_comes_to_an_end() {
    for executor in ALL_EXECUTORS {
        let rig = Rig::with(executor);
        let (a, b, event, log) = (rig.stream(), rig.stream(), rig.event(), rig.new_log());
        for value in 0..5 {
            rig.log(log, value, a);
        }
        assert_eq!(rig.record(event, a), 0);
        assert_eq!(rig.wait(b, event), 0);
        rig.log(log, 5, b);
        if executor == Executor::Lazy {
            assert_eq!(rig.query(b), ACL_STREAM_STATUS_NOT_READY);
            assert_eq!(rig.read_log(log), [0u32; 0], "the first query runs nothing");
        }
        while rig.query(b) == ACL_STREAM_STATUS_NOT_READY {
            std::thread::yield_now();
        }
        assert_eq!(rig.read_log(log), [0, 1, 2, 3, 4, 5], "{executor:?}");
        rig.log(log, 6, a);
        assert_eq!(rig.record(event, a), 0);
        while event_status(&rig, event) == ACL_EVENT_RECORDED_STATUS_NOT_READY {
            std::thread::yield_now();
        }
        assert_eq!(rig.read_log(log)[6], 6);
    }
}

#[test]
fn the_lazy_executor_runs_only_what_is_needed() {
    let rig = Rig::lazy();
    let (a, b, c, event) = (rig.stream(), rig.stream(), rig.stream(), rig.event());
    let logs = [rig.new_log(), rig.new_log(), rig.new_log()];
    rig.log(logs[0], 1, a);
    assert_eq!(rig.record(event, a), 0);
    rig.log(logs[0], 2, a);
    assert_eq!(rig.wait(b, event), 0);
    rig.log(logs[1], 3, b);
    rig.log(logs[2], 4, c);
    assert_eq!(rig.sync(b), 0);
    assert_eq!(rig.read_log(logs[0]), [1], "up to the record that `b` waits for");
    assert_eq!(rig.read_log(logs[1]), [3]);
    assert_eq!(rig.read_log(logs[2]), [0u32; 0], "nobody asked");
    assert_eq!(acl!(rig, aclrtSynchronizeDevice()), 0);
    assert_eq!((rig.read_log(logs[0]), rig.read_log(logs[2])), (vec![1, 2], vec![4]));
}

#[test]
fn times_are_virtual_and_the_same_with_every_executor() {
    for executor in ALL_EXECUTORS {
        let rig = Rig::with(executor);
        let (a, b) = (rig.stream(), rig.stream());
        let log = [rig.new_log(), rig.new_log()];
        let events: Vec<_> = (0..4).map(|_| rig.event_with(ACL_EVENT_TIME_LINE | ACL_EVENT_SYNC)).collect();
        let before = rig.host.now();
        assert_eq!(rig.record(events[0], a), 0);
        for value in 0..3 {
            rig.log(log[0], value, a);
        }
        assert_eq!(rig.record(events[1], a), 0);
        // Three times 0.1 ms on `a`; `b` does one of its own meanwhile, waits, and one more.
        rig.log(log[1], 0, b);
        assert_eq!(rig.record(events[2], b), 0);
        assert_eq!(rig.wait(b, events[1]), 0);
        rig.log(log[1], 1, b);
        assert_eq!(rig.record(events[3], b), 0);
        assert_eq!(rig.host.now(), before, "submitting takes no time");
        assert_eq!(rig.sync(b), 0);
        assert_eq!(rig.host.now() - before, Duration::from_micros(400));
        let elapsed = |from: usize, to: usize| {
            let mut ms = -1.0;
            assert_eq!(acl!(rig, aclrtEventElapsedTime(&mut ms, events[from], events[to])), 0);
            ms
        };
        assert_eq!([elapsed(0, 1), elapsed(0, 2), elapsed(0, 3), elapsed(1, 3)], [0.3, 0.1, 0.4, 0.1], "{executor:?}");
        let mut ms = 0.0;
        let reversed = acl!(rig, aclrtEventElapsedTime(&mut ms, events[1], events[0]));
        rig.refused(reversed, ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL, "before");
    }
}

#[test]
fn elapsed_time_needs_flags_records_and_completion() {
    let rig = Rig::lazy();
    let (stream, log) = (rig.stream(), rig.new_log());
    let (timed, fresh) = (rig.event_with(ACL_EVENT_TIME_LINE), rig.event_with(ACL_EVENT_TIME_LINE));
    let untimed = rig.event();
    let mut ms = 0.0;
    rig.log(log, 1, stream);
    assert_eq!((rig.record(timed, stream), rig.record(untimed, stream)), (0, 0));
    let mut elapsed = |start, end| acl!(rig, aclrtEventElapsedTime(&mut ms, start, end));
    assert_eq!(elapsed(timed, timed), ACL_ERROR_RT_EVENT_NOT_COMPLETE);
    assert_eq!(rig.sync(stream), 0);
    assert_eq!(elapsed(timed, timed), 0);
    assert_eq!(elapsed(timed, fresh), ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID);
    assert_eq!(elapsed(untimed, timed), ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID);
    assert_eq!(elapsed(timed, null_mut()), ACL_ERROR_RT_INVALID_HANDLE);
    assert_eq!(acl!(rig, aclrtEventElapsedTime(null_mut(), timed, timed)), ACL_ERROR_RT_PARAM_INVALID);
}

#[test]
fn limits_of_virtual_time_leave_the_work_going() {
    for executor in ALL_EXECUTORS {
        let rig = Rig::with(executor);
        let (stream, event) = (rig.stream(), rig.event());
        rig.launch("slow", 1, stream, &[]);
        assert_eq!(rig.record(event, stream), 0);
        let sync = |ms| acl!(rig, aclrtSynchronizeStreamWithTimeout(stream, ms));
        rig.refused(sync(0), ACL_ERROR_RT_PARAM_INVALID, "0 ms");
        rig.refused(sync(-2), ACL_ERROR_RT_PARAM_INVALID, "-2 ms");
        rig.refused(sync(1000), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "1s");
        let code = acl!(rig, aclrtSynchronizeEventWithTimeout(event, 1000));
        rig.refused(code, ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, "1s");
        let code = acl!(rig, aclrtSynchronizeDeviceWithTimeout(1000));
        rig.refused(code, ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "1s");
        assert_eq!(rig.host.now(), Duration::from_secs(3));
        assert_eq!(sync(2500), 0, "5 s are over then");
        assert_eq!(rig.host.now(), Duration::from_secs(5));
        assert_eq!(sync(-1), 0);
    }
}

#[test]
fn a_function_of_the_program_that_does_not_return_is_given_up_by_the_clock_of_the_machine() {
    for executor in [Executor::Threads, Executor::Lazy, Executor::Seeded(3)] {
        let rig = Rig::with(executor);
        let (stream, log) = (rig.stream(), rig.new_log());
        let gate = Gate::new();
        gate.hold(&rig, stream);
        rig.log(log, 1, stream);
        let code = acl!(rig, aclrtSynchronizeStreamWithTimeout(stream, 20));
        rig.refused(code, ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "20ms");
        assert_eq!(rig.query(stream), ACL_STREAM_STATUS_NOT_READY);
        gate.open();
        assert_eq!(rig.sync(stream), 0);
        assert_eq!(rig.read_log(log), [1], "{executor:?}");
    }
}

#[test]
fn host_functions_run_in_order_on_a_thread_of_the_runtime() {
    unsafe extern "C" fn note(argument: *mut c_void) {
        // SAFETY: the test keeps the list until the stream is synchronised.
        let seen = unsafe { &*argument.cast::<Mutex<Vec<std::thread::ThreadId>>>() };
        seen.lock().expect("no panic").push(std::thread::current().id());
    }
    for executor in ALL_EXECUTORS {
        let rig = Rig::with(executor);
        let (stream, log) = (rig.stream(), rig.new_log());
        let seen: Mutex<Vec<std::thread::ThreadId>> = Mutex::default();
        rig.log(log, 1, stream);
        let argument = std::ptr::from_ref(&seen).cast_mut().cast();
        assert_eq!(acl!(rig, aclrtLaunchHostFunc(stream, Some(note), argument)), 0);
        rig.log(log, 2, stream);
        assert_eq!(acl!(rig, aclrtLaunchHostFunc(stream, Some(note), argument)), 0);
        assert_eq!(rig.sync(stream), 0);
        let seen = seen.lock().expect("no panic");
        assert!(seen.len() == 2 && !seen.contains(&std::thread::current().id()), "{executor:?}");
        let none = acl!(rig, aclrtLaunchHostFunc(stream, None, null_mut()));
        rig.refused(none, ACL_ERROR_RT_PARAM_INVALID, "null function");
    }
}

#[test]
fn a_host_function_can_wait_for_what_the_caller_holds() {
    // While tasks are submitted the caller may hold a lock that the function takes.
    static LOCK: Mutex<u32> = Mutex::new(0);
    unsafe extern "C" fn take(_: *mut c_void) {
        *LOCK.lock().expect("no panic") += 1;
    }
    for seed in 0..20 {
        let rig = Rig::with(Executor::Seeded(seed));
        let stream = rig.stream();
        let before = {
            let held = LOCK.lock().expect("no panic");
            for _ in 0..4 {
                assert_eq!(acl!(rig, aclrtLaunchHostFunc(stream, Some(take), null_mut())), 0);
                rig.launch("noop", 1, stream, &[]);
            }
            *held
        };
        assert_eq!(rig.sync(stream), 0);
        assert_eq!(*LOCK.lock().expect("no panic"), before + 4);
    }
}

struct Inner {
    rig: Rig,
    stream: Handle,
    buffer: Handle,
    codes: Mutex<Vec<(Call, aclError)>>,
}

#[test]
fn a_task_may_not_wait_submit_or_allocate() {
    unsafe extern "C" fn misbehave(argument: *mut c_void) {
        // SAFETY: the test keeps the struct until the stream is synchronised.
        let inner = unsafe { &*argument.cast::<Inner>() };
        let rig = &inner.rig;
        let mut codes = inner.codes.lock().expect("no panic");
        let mut pointer = null_mut();
        let (stream, buffer) = (inner.stream.get(), inner.buffer.get());
        codes.push((Call::aclrtMalloc, acl!(rig, aclrtMalloc(&mut pointer, 8, ACL_MEM_MALLOC_HUGE_FIRST))));
        codes.push((Call::aclrtSynchronizeStream, rig.sync(stream)));
        codes.push((Call::aclrtMemsetAsync, rig.fill_async(buffer, 0, 8, stream)));
        codes.push((Call::aclrtMemset, acl!(rig, aclrtMemset(buffer, 8, 0, 8))));
        // What is allowed: to free, with a context that is this thread's.
        codes.push((Call::aclrtSetDevice, acl!(rig, aclrtSetDevice(0))));
        codes.push((Call::aclrtFree, acl!(rig, aclrtFree(buffer))));
    }
    for executor in ALL_EXECUTORS {
        let rig = Rig::with(executor);
        let (stream, buffer) = (Handle(rig.stream()), Handle(rig.malloc(8)));
        let inner = Inner { rig, stream, buffer, codes: Mutex::default() };
        let argument = std::ptr::from_ref(&inner).cast_mut().cast();
        assert_eq!(acl!(inner.rig, aclrtLaunchHostFunc(stream.get(), Some(misbehave), argument)), 0);
        assert_eq!(inner.rig.sync(stream.get()), 0);
        let codes = inner.codes.lock().expect("no panic").clone();
        let refused = ACL_ERROR_RT_PARAM_INVALID;
        assert_eq!(codes.iter().map(|(_, code)| *code).collect::<Vec<_>>(), [refused, refused, refused, refused, 0, 0]);
    }
}

#[test]
fn older_callbacks_run_on_the_thread_that_processes_reports() {
    static CALLED: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn count(_: *mut c_void) {
        CALLED.fetch_add(1, Ordering::SeqCst);
    }
    unsafe extern "C" {
        fn pthread_self() -> std::ffi::c_ulong;
    }
    for executor in ALL_EXECUTORS {
        CALLED.store(0, Ordering::SeqCst);
        let shared = Rig::with(executor);
        let mut stream = null_mut();
        assert_eq!(acl!(shared, aclrtCreateStreamWithConfig(&mut stream, 0, 0)), 0);
        let callback = |block| acl!(shared, aclrtLaunchCallback(Some(count), null_mut(), block, stream));
        assert_eq!(callback(ACL_CALLBACK_BLOCK), ACL_ERROR_RT_STREAM_NO_CB_REG);
        assert_eq!(acl!(shared, aclrtProcessReport(1)), ACL_ERROR_RT_THREAD_SUBSCRIBE);
        let handle = Handle(stream);
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let shared = &shared;
            scope.spawn(move || {
                assert_eq!(acl!(shared, aclrtSetDevice(0)), 0);
                // SAFETY: no precondition.
                let me = unsafe { pthread_self() };
                assert_eq!(acl!(shared, aclrtSubscribeReport(me, handle.get())), 0);
                assert_eq!(acl!(shared, aclrtSubscribeReport(me, handle.get())), ACL_ERROR_RT_STREAM_SUBSCRIBE);
                assert_eq!(acl!(shared, aclrtProcessReport(1)), ACL_ERROR_RT_REPORT_TIMEOUT);
                send.send(()).expect("the test waits");
                for _ in 0..2 {
                    assert_eq!(acl!(shared, aclrtProcessReport(10_000)), 0);
                }
                assert_eq!(acl!(shared, aclrtUnSubscribeReport(me, handle.get())), 0);
                assert_eq!(acl!(shared, aclrtUnSubscribeReport(me, handle.get())), ACL_ERROR_RT_STREAM_NO_CB_REG);
            });
            receive.recv().expect("the thread lives");
            assert_eq!(callback(aclrtCallbackBlockType(2)), ACL_ERROR_RT_PARAM_INVALID);
            assert_eq!(callback(ACL_CALLBACK_NO_BLOCK), 0);
            assert_eq!(callback(ACL_CALLBACK_BLOCK), 0);
            assert_eq!(acl!(shared, aclrtSynchronizeStream(stream)), 0);
            assert_eq!(CALLED.load(Ordering::SeqCst), 2, "{executor:?}");
        });
    }
}

#[test]
fn a_full_queue_refuses_or_waits() {
    let rig = Rig::new(HostConfig::new().executor(Executor::Lazy).queue(3, FullQueue::Refuse));
    let (stream, a) = (rig.stream(), rig.malloc(8));
    for _ in 0..3 {
        assert_eq!(rig.fill_async(a, 1, 8, stream), 0);
    }
    rig.refused(rig.fill_async(a, 2, 8, stream), ACL_ERROR_RT_STREAM_TASK_FULL, "3 tasks");
    assert_eq!(rig.sync(stream), 0);
    assert_eq!(rig.fill_async(a, 2, 8, stream), 0);
    for executor in ALL_EXECUTORS {
        let rig = Rig::new(HostConfig::new().executor(executor).queue(2, FullQueue::Wait));
        let (a, b, event, log) = (rig.stream(), rig.stream(), rig.event(), rig.new_log());
        rig.log(log, 0, b);
        assert_eq!(rig.record(event, b), 0);
        assert_eq!(rig.wait(a, event), 0);
        for value in 1..20 {
            rig.log(log, value, a);
        }
        assert_eq!(rig.sync(a), 0);
        assert_eq!(rig.read_log(log), (0..20).collect::<Vec<_>>(), "{executor:?}");
    }
}

#[test]
fn in_mode_continue_later_tasks_run_and_later_failures_replace_the_first() {
    for executor in ALL_EXECUTORS {
        let rig = Rig::with(executor);
        let (stream, other, log) = (rig.stream(), rig.stream(), rig.new_log());
        let small = rig.malloc(4);
        rig.launch("trap", 1, stream, &[]);
        rig.log(log, 1, stream);
        rig.launch("beyond", 1, stream, &[crate::support::Arg::Pointer(small)]);
        rig.log(log, 2, stream);
        rig.launch("noop", 1, other, &[]);
        assert_eq!(rig.sync(other), 0, "another stream");
        rig.refused(rig.sync(stream), ACL_ERROR_RT_AICORE_EXCEPTION, "t::beyond");
        assert_eq!(rig.sync(stream), 0);
        assert_eq!(rig.read_log(log), [1, 2], "{executor:?}");
        rig.launch("trap", 1, other, &[]);
        rig.refused(acl!(rig, aclrtSynchronizeDevice()), ACL_ERROR_RT_AICORE_TRAP_EXCEPTION, "t::trap");
        assert_eq!(acl!(rig, aclrtSynchronizeDevice()), 0);
        // Of two streams, the device tells what failed first.
        rig.log(log, 3, stream);
        rig.launch("trap", 1, stream, &[]);
        rig.launch("beyond", 1, other, &[crate::support::Arg::Pointer(small)]);
        rig.refused(acl!(rig, aclrtSynchronizeDevice()), ACL_ERROR_RT_AICORE_EXCEPTION, "t::beyond");
        assert_eq!((rig.sync(stream), rig.sync(other)), (0, 0), "told");
    }
}

#[test]
fn in_mode_stop_the_first_failure_stops_the_context_and_stays() {
    for executor in ALL_EXECUTORS {
        let rig = Rig::bare(HostConfig::new().executor(executor));
        let mut context = null_mut();
        assert_eq!(acl!(rig, aclrtCreateContext(&mut context, 0)), 0);
        let (stream, other, log) = (rig.stream(), rig.stream(), rig.new_log());
        let mode = |stream, mode| acl!(rig, aclrtSetStreamFailureMode(stream, mode));
        assert_eq!(mode(stream, 2), ACL_ERROR_RT_PARAM_INVALID);
        assert_eq!(mode(stream, ACL_STOP_ON_FAILURE), 0);
        rig.refused(mode(stream, ACL_STOP_ON_FAILURE), ACL_ERROR_RT_PARAM_INVALID, "set before");
        let event = rig.event();
        rig.launch("trap", 1, stream, &[]);
        // Refused, when the failure is already there.
        let recorded = rig.record(event, stream);
        assert!(recorded == 0 || recorded == ACL_ERROR_RT_AICORE_TRAP_EXCEPTION);
        let _ = rig.try_launch(
            rig.kernel("log"),
            1,
            stream,
            &[crate::support::Arg::Pointer(log), crate::support::Arg::U32(1)],
        );
        assert_eq!(rig.sync(stream), ACL_ERROR_RT_AICORE_TRAP_EXCEPTION);
        assert_eq!(rig.sync(stream), ACL_ERROR_RT_AICORE_TRAP_EXCEPTION, "it stays");
        assert_eq!(rig.sync(other), ACL_ERROR_RT_AICORE_TRAP_EXCEPTION, "and holds for all streams");
        rig.refused(
            rig.fill_async(log, 0, 4, other),
            ACL_ERROR_RT_AICORE_TRAP_EXCEPTION,
            "stopped by its first failure",
        );
        assert_eq!(acl!(rig, aclrtSynchronizeDevice()), ACL_ERROR_RT_AICORE_TRAP_EXCEPTION);
        let expected = if recorded == 0 { ACL_ERROR_RT_AICORE_TRAP_EXCEPTION } else { 0 };
        assert_eq!(acl!(rig, aclrtSynchronizeEvent(event)), expected, "nobody waits for ever");
        assert_eq!(rig.read_log(log), [0u32; 0], "{executor:?}");
        // Another context is not concerned.
        assert_eq!(acl!(rig, aclrtSetDevice(0)), 0);
        let fresh = rig.stream();
        assert_eq!(rig.fill_async(log, 0, 4, fresh), 0);
        assert_eq!(rig.sync(fresh), 0);
    }
}

#[test]
fn an_event_whose_stream_was_stopped_by_another_one_tells_of_it() {
    let rig = Rig::lazy();
    let (failing, other, event) = (rig.stream(), rig.stream(), rig.event());
    assert_eq!(acl!(rig, aclrtSetStreamFailureMode(failing, ACL_STOP_ON_FAILURE)), 0);
    rig.launch("noop", 1, other, &[]);
    assert_eq!(rig.record(event, other), 0);
    rig.launch("trap", 1, failing, &[]);
    assert_eq!(rig.sync(failing), ACL_ERROR_RT_AICORE_TRAP_EXCEPTION);
    assert_eq!(acl!(rig, aclrtSynchronizeEvent(event)), ACL_ERROR_RT_AICORE_TRAP_EXCEPTION, "its work was dropped");
}

#[test]
fn an_event_behind_a_failure_tells_of_it() {
    let rig = Rig::lazy();
    let (stream, event) = (rig.stream(), rig.event());
    rig.launch("trap", 1, stream, &[]);
    assert_eq!(rig.record(event, stream), 0);
    rig.refused(acl!(rig, aclrtSynchronizeEvent(event)), ACL_ERROR_RT_AICORE_TRAP_EXCEPTION, "t::trap");
    assert_eq!(rig.sync(stream), ACL_ERROR_RT_AICORE_TRAP_EXCEPTION, "the stream has not told yet");
}

#[test]
fn an_aborted_stream_drops_its_queue_and_lets_waiters_go() {
    for executor in [Executor::Threads, Executor::Lazy] {
        let rig = Rig::with(executor);
        let (stream, other, event, log) = (rig.stream(), rig.stream(), rig.event(), rig.new_log());
        let gate = Gate::new();
        gate.hold(&rig, stream);
        rig.log(log, 1, stream);
        assert_eq!(rig.record(event, stream), 0);
        assert_eq!(rig.wait(other, event), 0);
        rig.log(log, 2, other);
        let handle = Handle(stream);
        std::thread::scope(|scope| {
            let shared = &rig;
            let waiter = scope.spawn(move || {
                assert_eq!(acl!(shared, aclrtSetDevice(0)), 0);
                acl!(shared, aclrtSynchronizeStream(handle.get()))
            });
            // Whether the waiter waits already or comes later, it is told.
            assert_eq!(acl!(rig, aclrtStreamAbort(stream)), 0);
            gate.open();
            assert_eq!(waiter.join().expect("no panic"), ACL_ERROR_RT_STREAM_ABORT);
        });
        assert_eq!(rig.fill_async(log, 0, 4, stream), ACL_ERROR_RT_STREAM_ABORT);
        assert_eq!(rig.sync(other), 0);
        assert_eq!(rig.read_log(log), [2]);
        assert_eq!(acl!(rig, aclrtDestroyStreamForce(stream)), 0);
        assert_eq!(rig.sync(stream), ACL_ERROR_RT_INVALID_HANDLE);
    }
}

#[test]
fn destroying_a_stream_waits_for_its_work_unless_forced() {
    for executor in ALL_EXECUTORS {
        let rig = Rig::with(executor);
        let (a, b, log) = (rig.stream(), rig.stream(), rig.new_log());
        rig.log(log, 1, a);
        assert_eq!(acl!(rig, aclrtDestroyStream(a)), 0);
        assert_eq!(rig.read_log(log), [1], "{executor:?}");
        let gate = Gate::new();
        gate.hold(&rig, b);
        rig.log(log, 2, b);
        assert_eq!(acl!(rig, aclrtDestroyStreamForce(b)), 0);
        gate.open();
        assert_eq!(acl!(rig, aclrtDestroyStream(b)), ACL_ERROR_RT_INVALID_HANDLE);
        assert_eq!(acl!(rig, aclrtDestroyStream(null_mut())), ACL_ERROR_RT_PARAM_INVALID, "the default stream");
        assert_eq!(acl!(rig, aclrtSynchronizeDevice()), 0);
        assert_eq!(rig.read_log(log), [1]);
    }
}

#[test]
fn streams_and_events_are_finite() {
    let mut chip = ascend_rt::host::Chip::default();
    chip.streams = 4;
    let rig = Rig::new(HostConfig::new().device(chip).executor(Executor::Lazy));
    assert_eq!(rig.streams_left(), 3, "the default stream is one");
    let streams: Vec<_> = (0..3).map(|_| rig.stream()).collect();
    let mut stream = null_mut();
    let code = acl!(rig, aclrtCreateStreamWithConfig(&mut stream, 0, 0));
    rig.refused(code, ACL_ERROR_RT_NO_STREAM_RESOURCE, "all 4 streams");
    assert_eq!(acl!(rig, aclrtDestroyStream(streams[0])), 0);
    rig.stream();
    for (priority, flags) in [(8, 0), (0, 0x40)] {
        let code = acl!(rig, aclrtCreateStreamWithConfig(&mut stream, priority, flags));
        assert_eq!(code, ACL_ERROR_RT_PARAM_INVALID);
    }
    let last = std::cell::Cell::new(null_mut());
    let create = |flags| {
        let mut event = null_mut();
        let code = acl!(rig, aclrtCreateEventWithFlag(&mut event, flags));
        last.set(event);
        code
    };
    for _ in 0..65_536 {
        assert_eq!(create(ACL_EVENT_SYNC), 0);
    }
    let event = last.get();
    rig.refused(create(ACL_EVENT_SYNC), ACL_ERROR_RT_NO_EVENT_RESOURCE, "65536");
    assert_eq!(create(0), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(create(0x80), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(acl!(rig, aclrtDestroyEvent(event)), 0);
    assert_eq!(create(ACL_EVENT_SYNC), 0);
    rig.event();
}

#[test]
fn a_wait_with_a_limit_fails_when_the_record_comes_too_late() {
    let rig = Rig::lazy();
    let (a, b, event, log) = (rig.stream(), rig.stream(), rig.event(), rig.new_log());
    rig.launch("slow", 1, a, &[]);
    assert_eq!(rig.record(event, a), 0);
    let wait = |seconds| acl!(rig, aclrtStreamWaitEventWithTimeout(b, event, seconds));
    assert_eq!(wait(-1), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(wait(2), 0);
    rig.log(log, 1, b);
    rig.refused(rig.sync(b), ACL_ERROR_RT_WAIT_TIMEOUT, "limit");
    assert_eq!((wait(0), wait(9)), (0, 0));
    assert_eq!(rig.sync(b), 0);
}

#[test]
fn attributes_and_numbers_of_streams() {
    let rig = Rig::lazy();
    let (a, b) = (rig.stream(), rig.stream());
    let id = |stream| {
        let mut id = -1;
        assert_eq!(acl!(rig, aclrtStreamGetId(stream, &mut id)), 0);
        id
    };
    assert!(id(a) != id(b) && id(a) != id(null_mut()) && id(a) > 0);
    let mut value = aclrtStreamAttrValue { reserve: [0; 4] };
    let mut set = |stream, attribute| acl!(rig, aclrtSetStreamAttribute(stream, attribute, &mut value));
    assert_eq!(set(a, ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK), 0);
    assert_eq!(set(a, ACL_STREAM_ATTR_USER_CUSTOM_TAG), 0);
    assert_eq!(set(a, ACL_STREAM_ATTR_FAILURE_MODE), 0);
    assert_eq!(set(a, ACL_STREAM_ATTR_FAILURE_MODE), ACL_ERROR_RT_PARAM_INVALID, "once per stream");
    assert_eq!(set(a, aclrtStreamAttr(77)), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(acl!(rig, aclrtSetStreamAttribute(a, ACL_STREAM_ATTR_PRIORITY, null_mut())), ACL_ERROR_RT_PARAM_INVALID);
}
