// SPDX-License-Identifier: MIT OR Apache-2.0

//! The same programs through a library that is opened at run time: the backend of a card, with a library of one's own in
//! place of the card's. It does everything at once and its kernels do nothing; what is tested is the way there.

use crate::common::*;
use crate::open::{library, needed, whole};
use ascend_rt::{Arch, Blob, CaptureMode, Choice, Context, ErrorKind, Module, Queue, Runtime};
use std::cell::Cell;

fn context() -> Option<Context> {
    let runtime = Runtime::open(Choice::AclAt(whole()?.to_owned())).expect("open");
    Some(runtime.device(0).expect("device").isolated().expect("context"))
}

/// Code for the architecture that the library says it has.
fn load(context: &Context) -> Module {
    Module::load(context, &[Blob::emulator("test"), Blob::arch(Arch::DAV_2201, b"\x7fELF and no more")]).expect("load")
}

#[test]
fn copies_and_fills_arrive() {
    let Some(context) = context() else { return };
    let stream = context.stream().expect("stream");
    let mut buffer = stream.upload(&[1u32, 2, 3, 4]).expect("upload");
    let mut pinned = context.pinned::<u32>(4).expect("pinned");
    stream.download_pinned(&buffer, &mut pinned).expect("download");
    assert_eq!(*pinned.read().expect("read"), [1, 2, 3, 4]);
    pinned.write().expect("write")[0] = 9;
    stream.upload_pinned(&pinned, &mut buffer).expect("upload");
    stream.fill(buffer.slice_mut(3..).expect("part"), 0).expect("fill");
    assert_eq!(stream.download(&buffer).expect("download"), [9, 2, 3, 0]);
    let other = context.stream().expect("stream");
    let event = stream.record_timed().expect("event");
    other.wait(&event).expect("wait");
    assert_eq!(event.elapsed_since(&event).expect("time").as_micros(), 1500);
    assert!(other.query().expect("query"));
    drop((buffer, pinned));
    context.synchronize().expect("sync");
    assert_eq!(context.memory_use().live, 0);
    assert!(context.take_drop_error().is_none());
}

#[test]
fn the_pool_is_the_one_of_a_card() {
    let Some(context) = context() else { return };
    let small: Vec<_> = (0..100).map(|_| context.alloc::<u8>(1000).expect("memory")).collect();
    assert_eq!(context.memory_use().taken, 2 << 20, "small buffers share a block");
    drop(small);
    assert_eq!(context.trim().expect("trim"), 2 << 20);
    let error = context.alloc::<u8>(3 << 30).expect_err("more than there is");
    let ErrorKind::OutOfMemory { asked, free, total, .. } = *error.kind() else { panic!("{error}") };
    assert_eq!((asked, free, total), (3 << 30, 1 << 30, 1 << 31));
    assert_eq!(error.message(), Some("EE1003: out of memory"));
}

#[test]
fn kernels_graphs_and_modules_go_through() {
    let Some(context) = context() else { return };
    // This library has no loading from memory, so the code goes through a file.
    let module = load(&context);
    let axpy = module.kernel::<Axpy>().expect("kernel");
    let mut stream = context.stream().expect("stream");
    let x = stream.upload(&[1.0f32; 8]).expect("upload");
    let mut y = stream.upload(&[1.0f32; 8]).expect("upload");
    let split = Split { n: 8, per_block: 8 };
    let mut graph = stream
        .capture(CaptureMode::default(), |capture| {
            // SAFETY: the kernels of this library do nothing.
            unsafe { axpy.launch(capture, 1, Axpy { x: (&x).into(), y: (&mut y).into(), a: 1.0, split }) }
        })
        .expect("capture");
    drop((module, axpy, x, y));
    for _ in 0..10 {
        graph.replay(&stream).expect("replay");
    }
    stream.synchronize().expect("sync");
    drop(graph);
    assert!(context.take_drop_error().is_none());
    let error = Module::load(&context, &[Blob::arch(Arch::DAV_3510, b"\x7fELF")]).expect_err("another chip");
    assert!(error.to_string().contains("the module has code for dav-3510, expected dav-2201"), "{error}");
    let error = Module::load(&context, &[Blob::emulator("test")]).expect_err("not for a card");
    assert!(matches!(error.kind(), ErrorKind::Module { .. }), "{error}");
    let leftovers = std::fs::read_dir(std::env::temp_dir())
        .expect("a folder")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with(&format!("ascend-rt-{}-", std::process::id())) && name.ends_with(".o"))
        .count();
    assert_eq!(leftovers, 0, "temporary files go away");
}

#[test]
fn a_time_limit_that_the_library_does_not_know_is_refused() {
    let Some(context) = context() else { return };
    let empty = load(&context).kernel::<Empty>().expect("kernel");
    let stream = context.stream().expect("stream");
    let launch = ascend_rt::Launch::blocks(1).timeout(std::time::Duration::from_secs(1));
    // SAFETY: the kernel does nothing.
    let error = unsafe { empty.launch(&stream, launch, Empty {}) }.expect_err("it came later");
    assert_eq!((error.kind(), error.name()), (&ErrorKind::Unsupported, Some("ACL_ERROR_API_NOT_SUPPORT")));
}

#[test]
fn host_functions_of_an_older_library_have_a_thread_of_ours() {
    let Some(path) = library("callbacks/libascendcl.so", &["-DFAKE_CALLBACKS"], needed) else { return };
    let runtime = Runtime::open(Choice::AclAt(path)).expect("open");
    assert!(runtime.has(ascend_rt::Feature::HostFunctions));
    let context = runtime.device(0).expect("device").isolated().expect("context");
    let stream = context.stream().expect("stream");
    let (send, receive) = std::sync::mpsc::channel();
    for number in 0..3 {
        let send = send.clone();
        stream.host_func(move || send.send(number).expect("the test listens")).expect("host function");
    }
    stream.host_func(|| panic!("caught")).expect("host function");
    drop(send);
    assert_eq!(receive.iter().collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(stream.synchronize().expect_err("a panic").detail(), "caught");
    drop(stream);
    assert!(context.take_drop_error().is_none());
}

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, which counts what each thread asks for.
struct Counting;

// SAFETY: every method hands its arguments to the system's allocator, which keeps the contract.
unsafe impl std::alloc::GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: std::alloc::Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract.
        unsafe { std::alloc::System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: std::alloc::Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { std::alloc::System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: std::alloc::Layout, size: usize) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract.
        unsafe { std::alloc::System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often this thread asks for memory while `work` runs.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = COUNT.with(Cell::get);
    work();
    COUNT.with(Cell::get) - before
}

/// Everything that a decoding loop does: launches with all kinds of arguments, copies, replays. `stream` and `other` use
/// the same buffers, so that one waits for the other each time.
fn steady(context: &Context, module: &Module) -> u64 {
    let (axpy, empty) = (module.kernel::<Axpy>().expect("kernel"), module.kernel::<Empty>().expect("kernel"));
    let mut stream = context.stream().expect("stream");
    let other = context.stream().expect("stream");
    let x = stream.upload(&[1.0f32; 64]).expect("upload");
    let mut y = stream.upload(&[1.0f32; 64]).expect("upload");
    let mut z = stream.upload(&[1.0f32; 64]).expect("upload");
    let mut host = context.pinned::<f32>(64).expect("pinned");
    let split = Split { n: 64, per_block: 64 };
    let mut graph = stream
        .capture(CaptureMode::default(), |capture| {
            capture.upload_pinned(&host, &mut z)?;
            // SAFETY: the buffers have 64 elements.
            unsafe { axpy.launch(capture, 1, Axpy { x: (&x).into(), y: (&mut z).into(), a: 1.0, split }) }
        })
        .expect("capture");
    let mut work = |rounds: usize| {
        for round in 0..rounds {
            // SAFETY: the kernel does nothing.
            unsafe { empty.launch(&stream, 1, Empty {}) }.expect("launch");
            for queue in [&stream, &other] {
                // SAFETY: the buffers have 64 elements.
                unsafe { axpy.launch(queue, 1, Axpy { x: (&x).into(), y: (&mut y).into(), a: 1.0, split }) }
                    .expect("launch");
            }
            stream.copy(&x, &mut y).expect("copy");
            stream.fill(&mut y, 0).expect("fill");
            stream.download_pinned(&y, &mut host).expect("download");
            graph.replay(&stream).expect("replay");
            if round % 8 == 7 {
                stream.synchronize().expect("sync");
                host.write().expect("write")[0] = 1.0;
            }
        }
    };
    work(100);
    // On the emulator other threads decide how much is under way at once, and a new maximum takes new memory; a window
    // without one shows that there is no other reason.
    (0..10).map(|_| allocations(|| work(200))).min().unwrap_or(u64::MAX)
}

#[test]
fn a_steady_loop_allocates_nothing() {
    if let Some(context) = context() {
        let count = steady(&context, &load(&context));
        assert_eq!(count, 0, "through the library");
    }
    let context = context_of(config()).0;
    let count = steady(&context, &module(&context));
    assert_eq!(count, 0, "on the emulator");
}
