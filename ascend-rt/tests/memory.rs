// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that runs out: of the device, of the host, by a limit of one's own; and what is not about memory.

use crate::common::*;
use ascend_rt::host::{Executor, Fault};
use ascend_rt::mem::PoolPolicy;
use ascend_rt::raw::Call;
use ascend_rt::{CaptureMode, ErrorKind, Queue};

const MIB: usize = 1 << 20;

#[test]
fn device_memory_that_runs_out_says_how_much_there_is() {
    let context = context_of(config().capacity(MIB as u64)).0;
    let held = context.alloc::<u8>(MIB / 2).expect("half fits");
    let error = context.alloc::<u8>(MIB / 2).expect_err("with what rounding costs, the other half does not");
    assert!(error.is_oom() && !error.is_timeout() && !error.is_retryable());
    assert_eq!(error.name(), Some("ACL_ERROR_RT_MEMORY_ALLOCATION"));
    assert_eq!(error.call(), "aclrtMalloc");
    assert!(error.message().is_some_and(|text| text.contains("aclrtMalloc")), "{error:?}");
    let ErrorKind::OutOfMemory { asked, free, total, pool_held } = *error.kind() else { panic!("{error}") };
    assert_eq!((asked, total, pool_held), (MIB / 2, MIB, 0));
    assert!(free < MIB / 2 && free > MIB / 2 - 100, "{free}");
    drop(held);
    context.alloc::<u8>(MIB / 2).expect("now it fits");
}

#[test]
fn what_was_dropped_and_is_done_is_no_obstacle() {
    for executor in executors() {
        let context = context_of(config().capacity(MIB as u64).executor(executor)).0;
        let kernels = Kernels::new(&context);
        let stream = context.stream().expect("stream");
        for round in 0..20 {
            // Each is dropped with a task under way, and takes more than half of the device.
            let mut buffer = context.alloc::<u32>(150_000).expect("waits for the one before");
            kernels.set(&stream, &mut buffer, round).expect("set");
        }
        stream.synchronize().expect("sync");
    }
}

#[test]
fn trimming_gives_memory_back() {
    let context = context_of(config().capacity(8 * MIB as u64)).0;
    context.set_pool_policy(PoolPolicy::Cached).expect("policy");
    let small = context.alloc::<u8>(100).expect("memory");
    assert_eq!(context.memory_use().taken, 2 * MIB);
    let before = context.memory().expect("memory").free;
    drop(small);
    assert_eq!(context.memory().expect("memory").free, before, "the pool keeps it");
    assert_eq!(context.trim().expect("trim"), 2 * MIB);
    assert!(context.memory().expect("memory").free > before);
    // An allocation that fails trims by itself.
    drop(context.alloc::<u8>(100).expect("memory"));
    context.set_pool_policy(PoolPolicy::Direct).expect("policy");
    context.alloc::<u8>(7 * MIB).expect("the cache makes room");
}

#[test]
fn what_the_pool_holds_is_part_of_the_error() {
    let context = context_of(config().capacity(8 * MIB as u64)).0;
    context.set_pool_policy(PoolPolicy::Cached).expect("policy");
    let _held = context.alloc::<u8>(100).expect("memory");
    let error = context.alloc::<u8>(20 * MIB).expect_err("too much");
    let ErrorKind::OutOfMemory { asked, pool_held, .. } = *error.kind() else { panic!("{error}") };
    assert_eq!((asked, pool_held), (20 * MIB, 2 * MIB - 100));
}

#[test]
fn a_limit_of_ones_own_is_told_like_the_device() {
    let context = context();
    context.set_memory_limit(Some(1000));
    let held = context.alloc::<u8>(600).expect("memory");
    let error = context.alloc::<u8>(500).expect_err("beyond the limit");
    assert!(error.is_oom(), "{error}");
    assert!(error.detail().contains("limit"), "{error}");
    drop(held);
    let held = context.alloc::<u8>(1000).expect("memory");
    context.set_memory_limit(None);
    context.alloc::<u8>(1000).expect("memory");
    assert_eq!(context.memory_use().peak, 2000);
    drop(held);
}

#[test]
fn pinned_memory_has_a_limit_of_its_own() {
    let context = context_of(config().pinned_limit(4096)).0;
    let held = context.pinned::<u8>(4000).expect("pinned");
    let error = context.pinned::<u8>(4000).expect_err("beyond the limit");
    assert_eq!(error.kind(), &ErrorKind::HostOutOfMemory { asked: Some(4000) });
    assert!(!error.is_oom(), "this is not the card's memory");
    assert_eq!((error.call(), error.code().0), ("aclrtMallocHost", 207001));
    context.alloc::<u8>(MIB).expect("the device has enough");
    drop(held);
    context.pinned::<u8>(4000).expect("pinned");
}

#[test]
fn what_is_not_about_memory_is_not_called_so() {
    // Codes that were taken for memory in public reports, and what they are.
    for (call, code, kind) in [
        (Call::aclrtMalloc, 207018, "OutOfMemory"),
        (Call::aclrtMalloc, 107020, "Timeout"),
        (Call::aclrtMalloc, 107027, "StreamCaptured"),
        (Call::aclrtMalloc, 207005, "Resource"),
        (Call::aclrtMalloc, 207008, "Resource"),
        (Call::aclrtMalloc, 200000, "HostOutOfMemory"),
    ] {
        let context = context_of(config().fault(Fault::call(call, code).always())).0;
        let error = context.alloc::<u8>(64).expect_err("planned");
        let name = format!("{:?}", error.kind());
        assert!(name.starts_with(kind), "{code}: {name}");
        assert_eq!(error.is_oom(), kind == "OutOfMemory", "{code}");
    }
}

#[test]
fn memory_is_not_waited_for_during_a_capture() {
    let context = context_of(config().capacity(MIB as u64).executor(Executor::Threads)).0;
    let kernels = Kernels::new(&context);
    let mut stream = context.stream().expect("stream");
    let busy = context.stream().expect("stream");
    let mut buffer = context.alloc::<u32>(150_000).expect("memory");
    // The other stream stands until the test lets it go.
    let (go, wait) = std::sync::mpsc::channel::<()>();
    busy.host_func(move || {
        let _ = wait.recv();
    })
    .expect("host function");
    kernels.set(&busy, &mut buffer, 1).expect("set");
    drop(buffer);
    let mut out = context.alloc::<u32>(10).expect("memory");
    let error = stream
        .capture(CaptureMode::default(), |capture| {
            capture.fill(&mut out, 0)?;
            Err(context.alloc::<u32>(150_000).map(|_| ()).expect_err("what was dropped is still in use"))
        })
        .expect_err("the closure failed");
    assert!(error.is_oom(), "{error}");
    go.send(()).expect("the function waits");
    context.alloc::<u32>(150_000).expect("now it can be waited for");
}
