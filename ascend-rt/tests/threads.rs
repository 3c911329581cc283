// SPDX-License-Identifier: MIT OR Apache-2.0

//! Objects go to other threads, are used there and dropped there: the context is bound wherever they are.

use crate::common::*;
use ascend_rt::host::Executor;
use ascend_rt::{DeviceBuffer, Queue, Stream};
use std::sync::mpsc;

#[test]
fn eight_threads_use_four_streams() {
    let (context, slot) = context_of(config());
    let kernels = Kernels::new(&context);
    let streams: Vec<Stream> = (0..4).map(|_| context.stream().expect("stream")).collect();
    std::thread::scope(|scope| {
        for thread in 0..8u32 {
            let (context, kernels, streams) = (&context, &kernels, &streams);
            scope.spawn(move || {
                for round in 0..30u32 {
                    let stream = &streams[(thread + round) as usize % 4];
                    let other = &streams[(thread + round + 1) as usize % 4];
                    let mut one = context.alloc::<u32>(100).expect("memory");
                    let mut two = context.alloc::<u32>(100).expect("memory");
                    kernels.set(stream, &mut one, thread * 1000 + round).expect("set");
                    kernels.next(other, &one, &mut two).expect("next");
                    let event = other.record().expect("event");
                    stream.wait(&event).expect("wait");
                    assert_eq!(stream.download(&two).expect("download"), [thread * 1000 + round + 1; 100]);
                }
            });
        }
    });
    assert!(context.take_drop_error().is_none());
    drop((context, kernels, streams));
    assert_clean(&slot);
}

#[test]
fn objects_are_made_used_and_dropped_on_three_threads() {
    let (context, slot) = context_of(config().devices(2, chip("Ascend910B2")));
    let kernels = Kernels::new(&context);
    let (send, receive) = mpsc::channel::<(Stream, DeviceBuffer<u32>)>();
    let (send_on, receive_on) = mpsc::channel::<(Stream, DeviceBuffer<u32>)>();
    std::thread::scope(|scope| {
        let maker = context.clone();
        scope.spawn(move || {
            for _ in 0..50 {
                let stream = maker.stream().expect("stream");
                let buffer = maker.alloc(64).expect("memory");
                send.send((stream, buffer)).expect("the user listens");
            }
        });
        let kernels = &kernels;
        scope.spawn(move || {
            for (value, (stream, mut buffer)) in receive.iter().enumerate() {
                kernels.set(&stream, &mut buffer, value as u32).expect("set");
                let mut pinned = stream.context().pinned::<u32>(64).expect("pinned");
                stream.download_pinned(&buffer, &mut pinned).expect("download");
                assert_eq!(*pinned.read().expect("read"), [value as u32; 64]);
                send_on.send((stream, buffer)).expect("the dropper listens");
            }
        });
        scope.spawn(move || {
            for pair in receive_on {
                drop(pair);
            }
        });
    });
    assert!(context.take_drop_error().is_none());
    drop((context, kernels));
    assert_clean(&slot);
}

#[test]
fn a_thread_works_on_two_devices_at_once() {
    let slot = ascend_rt::host::ReportSlot::new();
    let runtime = runtime(config().devices(2, chip("Ascend910B2")).report_to(&slot));
    let contexts = [0, 1].map(|index| runtime.device(index).expect("device").isolated().expect("context"));
    let streams = contexts.each_ref().map(|context| context.stream().expect("stream"));
    let kernels = contexts.each_ref().map(Kernels::new);
    let mut buffers = contexts.each_ref().map(|context| context.alloc::<u32>(64).expect("memory"));
    for round in 0..20 {
        let at = round as usize % 2;
        kernels[at].set(&streams[at], &mut buffers[at], round).expect("set");
        let (event, other) = (streams[at].record().expect("event"), &streams[1 - at]);
        assert!(other.wait(&event).is_err(), "events do not cross devices");
        assert_eq!(streams[at].download(&buffers[at]).expect("download"), [round; 64]);
    }
    // Drops meet the other context as the current one.
    let bound = contexts[0].bind().expect("bind");
    drop((streams, buffers, kernels));
    assert!(contexts.iter().all(|context| context.take_drop_error().is_none()));
    drop(bound);
    drop((contexts, runtime));
    assert_clean(&slot);
}

#[test]
fn many_threads_allocate_and_free() {
    for executor in [Executor::Threads, Executor::Lazy] {
        let (context, slot) = context_of(config().executor(executor).capacity(1 << 24));
        let kernels = Kernels::new(&context);
        let stream = context.stream().expect("stream");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for size in 1..200 {
                        let mut buffer = context.alloc::<u32>(size * 50).expect("memory");
                        kernels.set(&stream, &mut buffer, 1).expect("set");
                    }
                });
            }
        });
        stream.synchronize().expect("sync");
        assert_eq!(context.memory_use().live, 0);
        drop((context, kernels, stream));
        assert_clean(&slot);
    }
}
