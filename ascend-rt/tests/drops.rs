// SPDX-License-Identifier: MIT OR Apache-2.0

//! Handles are dropped in any order: nothing leaks, nothing is used after it is gone.

use crate::common::*;
use ascend_rt::host::Executor;
use ascend_rt::{CaptureMode, Queue};
use proptest::prelude::*;
use std::any::Any;

/// Everything that a program can hold, with work under way.
fn everything(executor: Executor) -> (Vec<Box<dyn Any>>, ascend_rt::host::ReportSlot) {
    let (context, slot) = context_of(config().executor(executor));
    let kernels = Kernels::new(&context);
    let loaded = module(&context);
    let mut stream = context.stream().expect("stream");
    let other = context.stream().expect("stream");
    let mut host = context.pinned_from(&[1u32; 512]).expect("pinned");
    let mut one = context.alloc::<u32>(512).expect("memory");
    let mut two = context.alloc::<u32>(512).expect("memory");
    let mut graph = stream
        .capture(CaptureMode::default(), |capture| {
            capture.upload_pinned(&host, &mut one)?;
            capture.fork(&other, |capture| kernels.next(capture, &one, &mut two))?;
            capture.download_pinned(&two, &mut host)
        })
        .expect("capture");
    let completion = graph.replay(&stream).expect("replay");
    graph.replay(&other).expect("replay");
    kernels.next(&other, &one, &mut two).expect("next");
    let event = other.record().expect("event");
    stream.wait(&event).expect("wait");
    let timed = stream.record_timed().expect("event");
    stream.host_func(|| ()).expect("host function");
    let parts: Vec<Box<dyn Any>> = vec![
        Box::new(context.runtime()),
        Box::new(context.device()),
        Box::new(context),
        Box::new(kernels),
        Box::new(loaded),
        Box::new(stream),
        Box::new(other),
        Box::new(host),
        Box::new(one),
        Box::new(two),
        Box::new(graph),
        Box::new(completion),
        Box::new(event),
        Box::new(timed),
    ];
    (parts, slot)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_order_is_right(
        order in Just((0..14usize).collect::<Vec<_>>()).prop_shuffle(),
        executor in prop_oneof![Just(Executor::Threads), Just(Executor::Lazy), any::<u64>().prop_map(Executor::Seeded)],
    ) {
        let (parts, slot) = everything(executor);
        prop_assert_eq!(parts.len(), order.len());
        let mut parts: Vec<Option<Box<dyn Any>>> = parts.into_iter().map(Some).collect();
        for at in order {
            parts[at] = None;
        }
        let report = slot.take().expect("something still holds the machine");
        prop_assert!(report.is_clean(), "{}", report);
    }
}

#[test]
fn drop_errors_are_told_to_whoever_wants_to_know() {
    use ascend_rt::host::Fault;
    use ascend_rt::raw::Call;
    use std::sync::{Arc, Mutex};
    let (context, _slot) = context_of(config());
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hook = Arc::clone(&heard);
    context.on_drop_error(move |error| hook.lock().expect("the hook is well").push(error.call()));
    let buffer = context.alloc::<u8>(8).expect("memory");
    let stream = context.stream().expect("stream");
    let runtime = context.runtime();
    let host = runtime.host().expect("emulated");
    host.inject(Fault::call(Call::aclrtFree, 507899));
    host.inject(Fault::call(Call::aclrtDestroyStream, 507899));
    drop(buffer);
    drop(stream);
    assert_eq!(*heard.lock().expect("the hook is well"), ["aclrtFree", "aclrtDestroyStream"]);
    let error = context.take_drop_error().expect("the first");
    assert_eq!((error.call(), error.name()), ("aclrtFree", Some("ACL_ERROR_RT_DRV_INTERNAL_ERROR")));
    assert!(context.take_drop_error().is_none());
    // A hook that panics does not take the drop with it.
    context.on_drop_error(|_| panic!("hook"));
    host.inject(Fault::call(Call::aclrtFree, 507899));
    drop(context.alloc::<u8>(8).expect("memory"));
    assert!(context.take_drop_error().is_some());
}
