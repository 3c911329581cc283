// SPDX-License-Identifier: MIT OR Apache-2.0

//! Copies, kernels, events, several streams, pinned memory: what works, on every executor and chip.

use crate::common::*;
use ascend_rt::host::{Executor, HostConfig};
use ascend_rt::mem::PoolPolicy;
use ascend_rt::{Arch, ErrorKind, Queue, Source};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

#[test]
fn a_kernel_runs_on_every_executor() {
    for executor in executors() {
        let (context, slot) = context_of(config().executor(executor));
        let kernels = Kernels::new(&context);
        check_axpy(&context.stream().expect("stream"), &kernels);
        drop((context, kernels));
        assert_clean(&slot);
    }
}

#[test]
fn a_kernel_runs_in_the_primary_context_that_all_share() {
    let slot = ascend_rt::host::ReportSlot::new();
    let runtime = runtime(config().report_to(&slot));
    let device = runtime.device(0).expect("device");
    let one = device.primary().expect("context");
    let two = device.primary().expect("context");
    assert_eq!(one.handle(), two.handle());
    let buffer = one.alloc::<u8>(100).expect("memory");
    assert_eq!(two.memory_use().live, 100);
    check_axpy(&two.stream().expect("stream"), &Kernels::new(&one));
    drop((one, two, buffer, device, runtime));
    assert_clean(&slot);
}

#[test]
fn a_kernel_runs_with_a_pool_that_keeps_memory() {
    let (context, slot) = context_of(config());
    context.set_pool_policy(PoolPolicy::Cached).expect("policy");
    let stream = context.stream().expect("stream");
    let kernels = Kernels::new(&context);
    for _ in 0..10 {
        check_axpy(&stream, &kernels);
    }
    let usage = context.memory_use();
    assert_eq!((usage.live, usage.buffers, usage.taken), (0, 0, 2 << 20), "one block serves all");
    assert_eq!(context.trim().expect("trim"), 2 << 20);
    assert_eq!(context.memory_use().taken, 0);
    drop((context, stream, kernels));
    assert_clean(&slot);
}

#[test]
fn parts_of_buffers_are_copied_and_filled() {
    let context = context();
    let stream = context.stream().expect("stream");
    let mut buffer = stream.upload(&[1u16, 2, 3, 4, 5, 6]).expect("upload");
    let other = stream.upload(&[7u16, 8]).expect("upload");
    {
        let (mut left, right) = buffer.slice_mut(1..).expect("part").split_at(2).expect("split");
        stream.copy(&other, &mut left).expect("copy");
        stream.fill(right.slice(2..3).expect("part"), 0xff).expect("fill");
    }
    assert_eq!(stream.download(&buffer).expect("download"), [1, 7, 8, 4, 5, 0xffff]);
    assert_eq!(stream.download(buffer.slice(2..=3).expect("part")).expect("download"), [8, 4]);
    let bytes = buffer.slice(..2).expect("part").cast::<u8>().expect("cast");
    assert_eq!(stream.download(bytes).expect("download"), [1, 0, 7, 0]);
    let whole = buffer.slice(..).expect("part").cast::<[u16; 3]>().expect("cast");
    assert_eq!(stream.download(whole).expect("download"), [[1, 7, 8], [4, 5, 0xffff]]);
    // Nothing is something, too.
    assert_eq!(stream.download(buffer.slice(3..3).expect("part")).expect("download"), [0u16; 0]);
    stream
        .copy(buffer.slice(0..0).expect("part"), context.alloc::<u16>(1).expect("memory").slice_mut(1..).expect("part"))
        .expect("copy");
}

#[test]
fn types_of_all_kinds_go_through() {
    let context = context();
    let stream = context.stream().expect("stream");
    macro_rules! round_trip {
        ($($values:expr),+) => {$(
            let values = $values;
            let buffer = stream.upload(&values).expect("upload");
            assert_eq!(stream.download(&buffer).expect("download"), values);
        )+};
    }
    let half = half::bf16::from_f32(1.5);
    round_trip!(
        [1u8, 2],
        [-1i8],
        [3u16],
        [-4i16],
        [5u32],
        [-6i32],
        [7u64],
        [-8i64],
        [1.5f32],
        [2.5f64],
        [half],
        [half::f16::ONE],
        [[1u8; 3]; 2],
        [Split { n: 1, per_block: 2 }]
    );
}

#[test]
fn streams_wait_for_each_other_where_buffers_say_so() {
    for executor in executors() {
        let context = context_of(config().executor(executor)).0;
        let kernels = Kernels::new(&context);
        let streams = [0; 3].map(|_| context.stream().expect("stream"));
        let mut buffers = [0; 4].map(|_| context.alloc::<u32>(64).expect("memory"));
        for round in 0..20u32 {
            kernels.set(&streams[0], &mut buffers[0], round).expect("set");
            for i in 0..3 {
                let (before, after) = buffers.split_at_mut(i + 1);
                kernels.next(&streams[i % 3], &before[i], &mut after[0]).expect("next");
            }
        }
        // The chain of the last round is done last, whatever the streams did.
        assert_eq!(streams[1].download(&buffers[3]).expect("download"), [22; 64]);
        for stream in &streams {
            stream.synchronize().expect("sync");
        }
    }
}

#[test]
fn events_order_streams_and_tell_time() {
    for executor in executors() {
        let context = context_of(config().executor(executor)).0;
        let kernels = Kernels::new(&context);
        let (one, two) = (context.stream().expect("stream"), context.stream().expect("stream"));
        let mut buffer = context.alloc::<u32>(1024).expect("memory");
        let begin = one.record_timed().expect("event");
        kernels.set(&one, &mut buffer, 5).expect("set");
        let mut end = one.record_timed().expect("event");
        two.wait(&end).expect("wait");
        let after = two.record().expect("event");
        after.synchronize().expect("sync");
        assert!(end.query().expect("query") && begin.query().expect("query"));
        let time = end.elapsed_since(&begin).expect("time");
        assert!(time > Duration::ZERO && time < Duration::from_secs(1), "{time:?}");
        kernels.set(&one, &mut buffer, 6).expect("set");
        one.record_again(&mut end).expect("again");
        end.synchronize_timeout(Duration::from_secs(10)).expect("sync");
        assert!(end.elapsed_since(&begin).expect("time") > time);
        let error = begin.elapsed_since(&end).expect_err("the other way round");
        assert_eq!(error.name(), Some("ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL"));
    }
}

#[test]
fn host_functions_run_in_order_and_their_panics_are_told() {
    for executor in executors() {
        let context = context_of(config().executor(executor)).0;
        let stream = context.stream().expect("stream");
        let count = Arc::new(AtomicU32::new(0));
        for expected in 0..5 {
            let count = Arc::clone(&count);
            stream
                .host_func(move || {
                    let _ = count.compare_exchange(expected, expected + 1, Ordering::SeqCst, Ordering::SeqCst);
                })
                .expect("host function");
        }
        stream.synchronize().expect("sync");
        assert_eq!(count.load(Ordering::SeqCst), 5);
        stream.host_func(|| panic!("first")).expect("host function");
        stream.host_func(|| panic!("second")).expect("host function");
        let error = stream.synchronize().expect_err("a panic");
        assert_eq!((error.kind(), error.detail()), (&ErrorKind::HostFunction, "first"));
        stream.synchronize().expect("once is enough");
        assert!(context.poisoned().is_none());
    }
}

#[test]
fn host_functions_that_never_run_are_dropped() {
    let alive = Arc::new(());
    {
        let context = context_of(config().executor(Executor::Lazy)).0;
        let kernels = Kernels::new(&context);
        let stream = context.stream().expect("stream");
        let mut buffer = context.alloc::<u32>(1).expect("memory");
        kernels.fault(&stream, &mut buffer).expect("launch");
        let held = Arc::clone(&alive);
        stream.host_func(move || drop(held)).expect("host function");
        stream.synchronize().expect_err("the kernel faults");
    }
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
fn pinned_memory_takes_turns_with_the_device() {
    for executor in executors() {
        let (context, slot) = context_of(config().executor(executor));
        let kernels = Kernels::new(&context);
        let (one, two) = (context.stream().expect("stream"), context.stream().expect("stream"));
        let mut host = context.pinned_from(&[1u32; 256]).expect("pinned");
        let mut device = context.alloc::<u32>(256).expect("memory");
        let mut out = context.alloc::<u32>(256).expect("memory");
        for round in 0..10 {
            one.upload_pinned(&host, &mut device).expect("upload");
            kernels.next(&two, &device, &mut out).expect("next");
            two.download_pinned(&out, &mut host).expect("download");
            assert_eq!(*host.read().expect("read"), [round + 2; 256]);
        }
        host.write().expect("write").fill(40);
        one.upload_pinned(&host, &mut device).expect("upload");
        // The memory is dropped while the copy may still run.
        drop(host);
        assert_eq!(one.download(&device).expect("download"), [40; 256]);
        assert_eq!(context.memory_use().pinned, 0);
        drop((context, kernels, one, two, device, out));
        assert_clean(&slot);
    }
}

#[test]
fn a_dropped_buffer_lives_until_its_last_task() {
    for executor in executors() {
        let (context, slot) = context_of(config().executor(executor));
        let kernels = Kernels::new(&context);
        let stream = context.stream().expect("stream");
        let mut out = context.alloc::<u32>(4096).expect("memory");
        for value in 0..50 {
            let mut temporary = context.alloc::<u32>(4096).expect("memory");
            kernels.set(&stream, &mut temporary, value).expect("set");
            kernels.next(&stream, &temporary, &mut out).expect("next");
        }
        assert_eq!(stream.download(&out).expect("download"), [50; 4096]);
        let usage = context.memory_use();
        assert_eq!((usage.live, usage.deferred), (out.bytes(), 0), "a synchronisation frees what is done");
        drop((context, kernels, stream, out));
        assert_clean(&slot);
    }
}

#[test]
fn facts_come_from_the_device() {
    for (name, arch, cores) in
        [("Ascend910B3", Arch::DAV_2201, (20, 40)), ("Ascend950PR_9599", Arch::DAV_3510, (36, 72))]
    {
        let runtime = runtime(HostConfig::new().device(chip(name)));
        let facts = runtime.device(0).expect("device").facts();
        assert_eq!(facts.soc.as_deref(), Some(name));
        assert_eq!(facts.arch.map(|fact| (fact.value, fact.source)), Some((arch, Source::Device)));
        assert_eq!(facts.cube_cores.map(|fact| fact.value), Some(cores.0));
        assert_eq!(facts.vector_cores.map(|fact| fact.value), Some(cores.1));
        assert!(facts.memory.is_some_and(|fact| fact.value >= 1 << 30));
        assert!(facts.ub.is_some_and(|fact| fact.value > 100 << 10) && facts.l2.is_some());
    }
}

#[test]
fn binding_brings_back_what_was_current() {
    let runtime = runtime(config().devices(2, chip("Ascend910B2")));
    let one = runtime.device(0).expect("device").isolated().expect("context");
    let two = runtime.device(1).expect("device").primary().expect("context");
    let current = || {
        let mut context = std::ptr::null_mut();
        // SAFETY: `context` is written.
        let code = unsafe { runtime.raw().aclrtGetCurrentContext(&raw mut context) };
        (code, context)
    };
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                assert_eq!(current().0, 107002, "a fresh thread has none");
                let bound = one.bind().expect("bind");
                assert_eq!(current(), (0, one.handle()));
                {
                    let _inner = two.bind().expect("bind");
                    assert_eq!(current(), (0, two.handle()));
                    one.alloc::<u8>(1).expect("another context's memory");
                    assert_eq!(current(), (0, two.handle()));
                }
                assert_eq!(current(), (0, one.handle()));
                drop(bound);
            })
            .join()
            .expect("the thread is well");
    });
}

#[test]
fn a_range_names_what_fails() {
    let context = context();
    let error = {
        ascend_rt::range!(&context, "outer");
        ascend_rt::range!(&context, "inner");
        context.alloc::<u8>(0).expect_err("nothing")
    };
    assert_eq!(error.op(), Some("inner"));
    assert!(error.to_string().contains("in inner"), "{error}");
    assert_eq!(context.alloc::<u8>(0).expect_err("nothing").op(), None);
}
