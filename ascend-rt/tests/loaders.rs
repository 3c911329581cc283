// SPDX-License-Identifier: MIT OR Apache-2.0

//! Loaders: images of another kind on the emulator, with kernels whose parameters are not fully known and that tell how
//! long they take.

use std::borrow::Cow;
use std::sync::Once;
use std::time::Duration;

use ascend_rt::host::{self, Chip, CoreKind, HostConfig, HostKernel, KernelFault, LaunchCtx, LoadedModule};
use ascend_rt::kernel::{ArgKind, ArgLayout, Target};
use ascend_rt::{Arch, Blob, Choice, Context, ErrorKind, Launch, Module, Runtime, kernel, tiling};

tiling! {
    pub struct Step {
        pub by: u32,
        pub times: u32,
    }
}

kernel! {
    pub kernel Count("count") on vector { out: inout u32, step: tiling Step }
    pub kernel Slow("count") on vector { out: inout u32, step: scalar u64 }
    pub kernel Other("other") on vector { out: inout u32 }
}

/// An image of these tests: what the loader below knows.
const MAGIC: &[u8] = b"count for ";

fn load(bytes: &[u8], chip: &Chip) -> Option<Result<LoadedModule, String>> {
    let arch = std::str::from_utf8(bytes.strip_prefix(MAGIC)?).unwrap_or_default();
    if arch.parse() != Ok(chip.arch) {
        return Some(Err(format!("counts for {arch} only")));
    }
    let layout = ArgLayout::new([("out", ArgKind::Pointer), ("step", ArgKind::Pointer)]).expect("small");
    let kernel = HostKernel::timed(layout, CoreKind::Vector, count);
    Some(Ok(LoadedModule { name: "counter".to_owned(), kernels: vec![("count".to_owned(), kernel)] }))
}

/// Adds as often as the struct says, and takes as many milliseconds; the emulator's default time if that is none.
fn count(ctx: &LaunchCtx<'_>) -> Result<Option<Duration>, KernelFault> {
    let address = |index: usize| ctx.args().address(index);
    let mut step = [0; 8];
    ctx.space.read(address(1)?, &mut step)?;
    let word = |at: usize| u32::from_le_bytes([step[at], step[at + 1], step[at + 2], step[at + 3]]);
    let (by, times) = (word(0), word(4));
    let mut value = [0; 4];
    ctx.space.read(address(0)?, &mut value)?;
    ctx.space.write(address(0)?, &(u32::from_le_bytes(value) + by * times).to_le_bytes())?;
    Ok((times > 0).then(|| Duration::from_millis(u64::from(times))))
}

fn context() -> Context {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Replaced by the next one of the name.
        host::register_loader("counting", |bytes, _| bytes.starts_with(MAGIC).then(|| Err("replaced".to_owned())));
        host::register_loader("counting", load);
    });
    let config = HostConfig::new().device(Chip::preset("Ascend910B2").expect("a chip"));
    Runtime::open(Choice::Host(config)).expect("runtime").device(0).expect("device").isolated().expect("context")
}

fn blob(number: u32) -> Blob {
    let bytes = Cow::Owned([MAGIC, number.to_string().as_bytes()].concat());
    Blob { target: Target::Twin(Arch::from_number(number)), bytes }
}

#[test]
fn the_blob_of_the_architecture_goes_to_the_loader() {
    let context = context();
    let stream = context.stream().expect("stream");
    let module = Module::load(&context, &[blob(3510), blob(2201)]).expect("module");
    let count = module.kernel::<Count<'_>>().expect("kernel");
    let mut out = stream.upload(&[1u32]).expect("upload");
    let now = || context.runtime().host().expect("emulated").now();
    for (times, expected) in [(3, 16), (0, 16), (2, 26)] {
        stream.synchronize().expect("sync");
        let before = now();
        let args = Count { out: (&mut out).into(), step: Step { by: 5, times } };
        // SAFETY: the kernel adds to the one element.
        unsafe { count.launch(&stream, Launch::blocks(1), args) }.expect("launch");
        stream.synchronize().expect("sync");
        // What the kernel tells, or the few microseconds that a kernel without words takes.
        let millis = (now() - before).as_millis();
        assert_eq!(millis, u128::from(times));
        assert_eq!(stream.download(&out).expect("download"), [expected]);
    }
}

#[test]
fn an_address_that_is_none_is_found_when_it_is_used() {
    let context = context();
    let stream = context.stream().expect("stream");
    let module = Module::load(&context, &[blob(2201)]).expect("module");
    let mut out = stream.upload(&[1u32]).expect("upload");
    // A value of eight bytes looks like an address, so the launch takes it.
    let slow = module.kernel::<Slow<'_>>().expect("kernel");
    let args = Slow { out: (&mut out).into(), step: 7 };
    // SAFETY: the emulator checks the address.
    unsafe { slow.launch(&stream, Launch::blocks(1), args) }.expect("launch");
    assert_eq!(stream.synchronize().expect_err("no memory").code().0, 507_015);
}

#[test]
fn what_no_loader_makes_a_module_of() {
    let context = context();
    let error = Module::load(&context, &[blob(3510)]).expect_err("for another architecture");
    let expected = ErrorKind::Module {
        had: vec!["the emulator of dav-3510".to_owned()],
        device: "the emulator of dav-2201".to_owned(),
    };
    assert_eq!(error.kind(), &expected);
    let loaded = |bytes: Vec<u8>| Module::load_bytes(&context, Cow::Owned(bytes)).expect_err("no module");
    let error = loaded(blob(3510).bytes.into_owned());
    assert_eq!(error.code().0, 107_000);
    assert!(error.message().is_some_and(|text| text.contains("counts for 3510 only")), "{error:#}");
    let error = loaded(b"something else".to_vec());
    assert!(error.message().is_some_and(|text| text.contains("no module for the emulator")), "{error:#}");
    let module = Module::load(&context, &[blob(2201)]).expect("module");
    let error = module.kernel::<Other<'_>>().expect_err("not in it");
    assert_eq!(error.kind(), &ErrorKind::Kernel);
    let text = "module counter has no kernel other: it has count";
    assert!(error.message().is_some_and(|message| message.contains(text)), "{error:#}");
}
