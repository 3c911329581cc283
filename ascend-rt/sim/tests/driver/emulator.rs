// SPDX-License-Identifier: MIT OR Apache-2.0

//! Images on the emulator of `ascend-rt`: loaded as modules, launched on streams and in graphs, with their faults as the
//! errors of a card.

use std::borrow::Cow;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ascend_rt::host::{Chip, HostConfig};
use ascend_rt::kernel::Target;
use ascend_rt::{Arch, Blob, CaptureMode, Choice, Context, ErrorKind, Launch, Module, Queue, Runtime, kernel, tiling};
use ascend_sim::{Mode, Settings};

use crate::fake::{self, Folder};

kernel! {
    kernel Add("add") on vector { x: in f32, y: in f32, z: out f32, n: scalar u32, scale: scalar f32 }
    kernel Short("add") on vector { x: in f32, y: in f32, z: out f32, n: scalar u32 }
    kernel Wide("add") on vector { x: in f32, y: in f32, z: out f32, n: scalar u64, scale: scalar f32 }
    kernel Hang("hang") on mix(2) { x: inout f32 }
    kernel Tiled("tiled") on mix(1) { x: inout i32, workspace: workspace, by: tiling By }
}

tiling! {
    struct By {
        unused: u32,
        by: i32,
    }
}

/// Settings are those of the process: one test at a time sets them.
fn configured(settings: Settings) -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    ascend_sim::configure(Some(settings));
    guard
}

fn context(soc: &str) -> Context {
    ascend_sim::install();
    let config = HostConfig::new().device(Chip::preset(soc).unwrap());
    Runtime::open(Choice::Host(config)).unwrap().device(0).unwrap().isolated().unwrap()
}

fn blobs() -> Vec<Blob> {
    let bytes = |macros: &[&str]| Cow::Owned(fake::bytes(macros));
    vec![
        Blob { target: Target::Twin(Arch::DAV_3510), bytes: bytes(&["-DFAKE_ARCH=3510"]) },
        Blob { target: Target::Twin(Arch::DAV_2201), bytes: bytes(&[fake::NAMED]) },
    ]
}

#[test]
fn a_module_is_loaded_and_its_kernel_launched() {
    let _one = configured(Settings::default());
    for soc in ["Ascend910B3", "Ascend950PR_9589"] {
        let context = context(soc);
        let stream = context.stream().unwrap();
        let module = Module::load(&context, &blobs()).unwrap();
        let add = module.kernel::<Add<'_>>().unwrap();
        let (x, y) = (stream.upload(&[1.0f32, 2.0, 3.0]).unwrap(), stream.upload(&[10.0f32; 3]).unwrap());
        let mut z = stream.upload(&[0.0f32; 3]).unwrap();
        let before = context.runtime().host().unwrap().now();
        let args = Add { x: (&x).into(), y: (&y).into(), z: (&mut z).into(), n: 3, scale: 2.0 };
        // SAFETY: the buffers have three elements.
        unsafe { add.launch(&stream, Launch::blocks(4), args) }.unwrap();
        // Two scalars of four bytes lie in one word of the image's block and in two slots of the runtime's.
        assert_eq!(stream.download(&z).unwrap(), [22.0, 24.0, 26.0]);
        assert!(context.runtime().host().unwrap().now() > before, "the launch takes time of the virtual clock");
    }
}

#[test]
fn each_launch_leaves_its_timeline() {
    let folder = Folder::new();
    let path = folder.path().join("t.json");
    let _one = configured(Settings { trace: Some(path.clone()), ..Settings::default() });
    let context = context("Ascend910B3");
    let stream = context.stream().unwrap();
    let module = Module::load(&context, &blobs()).unwrap();
    let add = module.kernel::<Add<'_>>().unwrap();
    let x = stream.upload(&[1.0f32; 3]).unwrap();
    let mut z = stream.upload(&[0.0f32; 3]).unwrap();
    for _ in 0..2 {
        let args = Add { x: (&x).into(), y: (&x).into(), z: (&mut z).into(), n: 3, scale: 1.0 };
        // SAFETY: the buffers have three elements.
        unsafe { add.launch(&stream, Launch::blocks(1), args) }.unwrap();
        stream.synchronize().unwrap();
    }
    for name in ["t.json", "t-2.json"] {
        let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(text.contains("\"Add\"") && text.contains("MTE2"), "{text}");
    }
    // A path that cannot be written, here in a file, is an error that names the variable.
    ascend_sim::configure(Some(Settings { trace: Some(folder.path().join("t.json/t.json")), ..Settings::default() }));
    let args = Add { x: (&x).into(), y: (&x).into(), z: (&mut z).into(), n: 3, scale: 1.0 };
    // SAFETY: as above.
    unsafe { add.launch(&stream, Launch::blocks(1), args) }.unwrap();
    let error = stream.synchronize().unwrap_err();
    assert!(error.message().unwrap().contains("ASCEND_SIM_TRACE: "), "{error:#}");
}

#[test]
fn tiling_structs_and_workspaces() {
    let _one = configured(Settings::default());
    let context = context("Ascend910B2");
    let stream = context.stream().unwrap();
    let module = Module::load(&context, &blobs()).unwrap();
    let tiled = module.kernel::<Tiled<'_>>().unwrap();
    let mut x = stream.upload(&[1i32, 2, 3]).unwrap();
    let mut workspace = context.alloc::<u8>(100).unwrap();
    let mut launch = |x: &mut ascend_rt::DeviceBuffer<i32>, by: i32| {
        let args = Tiled { x: x.into(), workspace: (&mut workspace).into(), by: By { unused: 0, by } };
        // SAFETY: the kernel touches its buffers only.
        unsafe { tiled.launch(&stream, Launch::blocks(1), args) }.unwrap();
    };
    launch(&mut x, 5);
    assert_eq!(stream.download(&x).unwrap(), [6, 7, 8]);
    // The kernel tells what it was given: the buffer of 12 bytes, not of what the allocator rounds it to.
    launch(&mut x, 99);
    let error = stream.synchronize().unwrap_err();
    assert!(error.message().unwrap().contains("x:0:12 workspace:1"), "{error:#}");
}

#[test]
fn a_kernel_in_a_graph_is_run_by_each_replay() {
    let _one = configured(Settings::default());
    let context = context("Ascend910B2");
    let mut stream = context.stream().unwrap();
    let module = Module::load(&context, &blobs()).unwrap();
    let add = module.kernel::<Add<'_>>().unwrap();
    let mut sum = stream.upload(&[0.0f32; 8]).unwrap();
    let one = stream.upload(&[1.0f32; 8]).unwrap();
    let mut before = context.alloc::<f32>(8).unwrap();
    let mut answer = context.pinned::<f32>(8).unwrap();
    let mut graph = stream
        .capture(CaptureMode::default(), |capture| {
            capture.copy(&sum, &mut before)?;
            let args = Add { x: (&before).into(), y: (&one).into(), z: (&mut sum).into(), n: 8, scale: 1.0 };
            // SAFETY: the buffers have eight elements.
            unsafe { add.launch(capture, Launch::blocks(1), args) }?;
            capture.download_pinned(&sum, &mut answer)
        })
        .unwrap();
    for round in 1..=3 {
        graph.replay(&stream).unwrap().synchronize().unwrap();
        assert_eq!(*answer.read().unwrap(), [round as f32; 8]);
        // The kernel changes its first input, which the next replay copies anew: `one` it does not.
    }
}

#[test]
fn faults_are_the_errors_of_a_card_with_the_report_in_the_message() {
    let _one = configured(Settings { mode: Mode::Chaos(4), ..Settings::default() });
    // More elements than the buffer has: out of bounds, an exception.
    let first = context("Ascend910B2");
    let stream = first.stream().unwrap();
    let module = Module::load(&first, &blobs()).unwrap();
    let add = module.kernel::<Add<'_>>().unwrap();
    let (x, y) = (stream.upload(&[1.0f32; 3]).unwrap(), stream.upload(&[1.0f32; 3]).unwrap());
    let mut z = stream.upload(&[0.0f32; 3]).unwrap();
    let args = Add { x: (&x).into(), y: (&y).into(), z: (&mut z).into(), n: 4, scale: 1.0 };
    // SAFETY: the image checks the bounds before it touches anything.
    unsafe { add.launch(&stream, Launch::blocks(1), args) }.unwrap();
    let error = stream.synchronize().unwrap_err();
    assert_eq!((error.code().0, error.kind()), (507_015, &ErrorKind::Exec));
    let message = error.message().unwrap();
    for part in [
        "kernel adder::add failed: error[bounds]: 16 bytes of argument 0 are out of bounds",
        "--> kernel/add.cpp:21",
        "Add on pipe V of core AIV 3",
        "on Ascend910B2, in the order of seed 4 (ASCEND_SIM=chaos:4)",
    ] {
        assert!(message.contains(part), "{message}");
    }

    // A kernel that never ends: 507014.
    let second = context("Ascend910B2");
    let stream = second.stream().unwrap();
    let module = Module::load(&second, &blobs()).unwrap();
    let hang = module.kernel::<Hang<'_>>().unwrap();
    let mut x = stream.upload(&[1.0f32; 3]).unwrap();
    // SAFETY: the kernel touches nothing.
    unsafe { hang.launch(&stream, Launch::blocks(1), Hang { x: (&mut x).into() }) }.unwrap();
    let error = stream.synchronize().unwrap_err();
    assert_eq!(error.code().0, 507_014);
    assert!(error.message().unwrap().contains("error[deadlock]: no core can go on:\n  AIC 0 waits"), "{error:#}");
}

#[test]
fn arguments_that_the_image_does_not_take_are_refused_at_the_launch() {
    let _one = configured(Settings::default());
    let context = context("Ascend910B2");
    let stream = context.stream().unwrap();
    let module = Module::load(&context, &blobs()).unwrap();
    let x = stream.upload(&[1.0f32; 3]).unwrap();
    let mut z = stream.upload(&[0.0f32; 3]).unwrap();
    let short = module.kernel::<Short<'_>>().unwrap();
    let args = Short { x: (&x).into(), y: (&x).into(), z: (&mut z).into(), n: 3 };
    // SAFETY: the launch is refused.
    let error = unsafe { short.launch(&stream, Launch::blocks(1), args) }.unwrap_err();
    assert_eq!(error.code().0, 107_000);
    assert!(error.message().unwrap().contains("the kernel has 5 parameters, found 4"), "{error:#}");
    let wide = module.kernel::<Wide<'_>>().unwrap();
    let args = Wide { x: (&x).into(), y: (&x).into(), z: (&mut z).into(), n: 3, scale: 1.0 };
    // SAFETY: as above.
    let error = unsafe { wide.launch(&stream, Launch::blocks(1), args) }.unwrap_err();
    let message = error.message().unwrap();
    assert!(message.contains("parameter 3 `n` is expected to be scalar of 4 bytes, found a value of 8"), "{message}");
}

#[test]
fn images_that_do_not_load() {
    let _one = configured(Settings::default());
    let context = context("Ascend910B2");
    // Nothing for this architecture.
    let error = Module::load(&context, &blobs()[..1]).unwrap_err();
    let expected = ErrorKind::Module {
        had: vec!["the emulator of dav-3510".to_owned()],
        device: "the emulator of dav-2201".to_owned(),
    };
    assert_eq!(error.kind(), &expected);
    // Loaded all the same, damaged, or no image.
    for (bytes, part) in [
        (fake::bytes(&["-DFAKE_ARCH=3510"]), "module add is for dav-3510, and Ascend910B2 is dav-2201"),
        (fake::bytes(&["-DFAKE_ABI=2"]), "version 2 of the interface, expected 1"),
        (b"\x7fELF and then nothing".to_vec(), "the image is no module for the emulator"),
    ] {
        let error = Module::load_bytes(&context, Cow::Owned(bytes)).unwrap_err();
        assert_eq!(error.code().0, 107_000);
        assert!(error.message().unwrap().contains(part), "{error:#}");
    }
    // A file goes the same way, and a kernel that is not in it has the names of those that are.
    let folder = Folder::new();
    let module = Module::load_file(&context, &fake::file(&folder, &[])).unwrap();
    kernel! { kernel Mul("mul") on vector { x: in f32 } }
    let error = module.kernel::<Mul<'_>>().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Kernel);
    let message = error.message().unwrap();
    assert!(message.contains("module add has no kernel mul: it has add, hang, bare, tiled, nothing"), "{message}");
}
