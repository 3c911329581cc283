// SPDX-License-Identifier: MIT OR Apache-2.0

//! Wrong input: each is an error with a code, its name, the call, and something to do about it. Nothing panics.

use crate::common::*;
use ascend_rt::host::module_image;
use ascend_rt::kernel::Target;
use ascend_rt::{Arch, Blob, Error, ErrorKind, Module, Queue};
use std::borrow::Cow;
use std::path::Path;

#[track_caller]
fn assert_told(error: &Error) {
    assert!(error.name().is_some(), "a symbolic name: {error}");
    assert!(!error.call().is_empty() && !error.advice().is_empty(), "a call and advice: {error}");
    assert!(!error.to_string().contains('\n'), "one line: {error}");
    let text = error.to_string();
    assert!(text.contains(error.call()) && text.contains(error.name().unwrap_or("?")), "{text}");
}

#[test]
fn sizes_that_are_nothing_or_too_much() {
    let context = context();
    for error in [
        context.alloc::<u32>(0).map(|_| ()).expect_err("nothing"),
        context.alloc::<u64>(usize::MAX).map(|_| ()).expect_err("overflow"),
        context.alloc::<u8>(usize::MAX / 2 + 2).map(|_| ()).expect_err("more than an object can have"),
        context.alloc::<[u8; 0]>(5).map(|_| ()).expect_err("elements without bytes"),
        context.pinned::<u32>(0).map(|_| ()).expect_err("nothing"),
        context.pinned::<u16>(usize::MAX).map(|_| ()).expect_err("overflow"),
        context.stream().expect("stream").upload::<u8>(&[]).map(|_| ()).expect_err("nothing"),
    ] {
        assert!(matches!(error.kind(), ErrorKind::Argument { argument: "len", .. }), "{error}");
        assert_told(&error);
    }
    // A size that fits an object and no device.
    let error = context.alloc::<u8>(isize::MAX as usize).expect_err("no device has that");
    assert!(error.is_oom(), "{error}");
    assert_told(&error);
}

#[test]
fn ranges_and_lengths_that_do_not_fit() {
    let context = context();
    let stream = context.stream().expect("stream");
    let mut buffer = stream.upload(&[0u32; 8]).expect("upload");
    let other = stream.upload(&[0u32; 9]).expect("upload");
    let mut pinned = context.pinned::<u32>(7).expect("pinned");
    #[allow(clippy::reversed_empty_ranges, reason = "that is what is wrong with it")]
    for error in [
        buffer.slice(9..).map(|_| ()).expect_err("begins beyond"),
        buffer.slice(..9).map(|_| ()).expect_err("ends beyond"),
        buffer.slice(..=usize::MAX).map(|_| ()).expect_err("overflows"),
        buffer
            .slice((std::ops::Bound::Excluded(usize::MAX), std::ops::Bound::Unbounded))
            .map(|_| ())
            .expect_err("overflows"),
        buffer.slice(5..3).map(|_| ()).expect_err("ends before it begins"),
        buffer.slice_mut(2..).and_then(|slice| slice.split_at(7)).map(|_| ()).expect_err("beyond"),
        buffer.slice(1..).and_then(|slice| slice.cast::<u64>()).map(|_| ()).expect_err("not aligned"),
        buffer.slice(..3).and_then(|slice| slice.cast::<u64>()).map(|_| ()).expect_err("no whole number"),
        buffer.slice(..3).and_then(|slice| slice.cast::<[u8; 0]>()).map(|_| ()).expect_err("no bytes"),
        stream.copy(&other, &mut buffer).expect_err("lengths"),
        stream.upload_to(&[0u32; 7], &mut buffer).expect_err("lengths"),
        stream.download_to(&buffer, &mut [0u32; 9]).expect_err("lengths"),
        stream.upload_pinned(&pinned, &mut buffer).expect_err("lengths"),
        stream.download_pinned(&buffer, &mut pinned).expect_err("lengths"),
    ] {
        assert!(matches!(error.kind(), ErrorKind::Argument { .. }), "{error}");
        assert_told(&error);
    }
    stream.synchronize().expect("nothing was queued");
}

#[test]
fn devices_that_are_not_there() {
    let runtime = runtime(config());
    for index in [1, 64, u32::MAX] {
        let error = runtime.device(index).expect_err("there is one");
        assert_eq!(error.name(), Some("ACL_ERROR_RT_INVALID_DEVICEID"));
        assert!(error.detail().contains("of 1"), "{error}");
        assert_told(&error);
    }
}

#[test]
fn modules_that_do_not_fit() {
    let context = context();
    let load = |blobs: &[Blob]| Module::load(&context, blobs).map(|_| ()).expect_err("it does not fit");
    let error = load(&[]);
    assert_eq!(error.kind(), &ErrorKind::Module { had: vec!["nothing".into()], device: "the emulator".into() });
    assert_told(&error);
    let error = load(&[Blob::arch(Arch::DAV_2201, b"\x7fELF"), Blob::arch(Arch::DAV_3510, b"\x7fELF")]);
    assert!(error.to_string().contains("the module has code for dav-2201, dav-3510, expected the emulator"), "{error}");
    assert_told(&error);
    let image = |bytes: Vec<u8>| Blob { target: Target::Emulator, bytes: Cow::Owned(bytes) };
    for bytes in [
        b"\x7fELF, not an image".to_vec(),
        b"ascend-host-module".to_vec(),
        module_image("", None),
        module_image("test", Some("dav-3510")),
        b"ascend-host-module\0\xff\xff".to_vec(),
    ] {
        let error = load(&[image(bytes)]);
        assert_eq!((error.call(), error.code().0), ("aclrtBinaryLoadFromData", 107000), "{error}");
        assert_told(&error);
    }
    Module::load(&context, &[image(module_image("test", Some("dav-2201")))]).expect("this one does");
    let error = load(&[image(Vec::new())]);
    assert!(matches!(error.kind(), ErrorKind::Argument { argument: "bytes", .. }), "{error}");
    assert_told(&error);
}

#[test]
fn module_files_that_are_not_there() {
    let context = context();
    let folder = crate::open::folder();
    for path in [folder, &folder.join("nothing.o"), Path::new("")] {
        let error = Module::load_file(&context, path).map(|_| ()).expect_err("no file");
        assert_told(&error);
    }
    let path = folder.join("module.o");
    std::fs::write(&path, module_image("test", None)).expect("a file");
    let module = Module::load_file(&context, &path).expect("a file with an image");
    module.kernel::<Empty>().expect("kernel");
    std::fs::write(&path, b"something else").expect("a file");
    let error = Module::load_file(&context, &path).map(|_| ()).expect_err("no module");
    assert_eq!(error.call(), "aclrtBinaryLoadFromFile");
    assert_told(&error);
}

#[test]
fn kernels_that_are_not_there() {
    let context = context();
    let module = module(&context);
    ascend_rt::kernel! {
        /// Nobody has it.
        kernel Nobody("nobody") on cube {}
    }
    let error = module.kernel::<Nobody>().expect_err("nobody has it");
    assert_eq!((error.kind(), error.call()), (&ErrorKind::Kernel, "aclrtBinaryGetFunction"));
    assert!(error.detail().contains("`nobody`"), "{error}");
    assert_told(&error);
    let layout = ascend_rt::kernel::ArgLayout::default();
    let error =
        module.kernel_dyn("em\0pty", layout, ascend_rt::kernel::CoreKind::Vector).expect_err("a name with a zero byte");
    assert!(matches!(error.kind(), ErrorKind::Argument { argument: "name", .. }), "{error}");
    assert_told(&error);
    let other = Module::load(&context, &[Blob::emulator("unknown module")]).expect("a name is all it needs");
    assert_eq!(other.kernel::<Empty>().expect_err("it has no kernels").kind(), &ErrorKind::Kernel);
}

#[test]
fn errors_say_everything_in_one_line_and_more_on_demand() {
    let context = context_of(config().capacity(1000)).0;
    ascend_rt::range!(&context, "load");
    let error = context.alloc::<u8>(2000).expect_err("too much");
    let line = error.to_string();
    assert!(line.starts_with("aclrtMalloc: out of device memory: 2000 bytes asked for, 1000 of 1000 free"), "{line}");
    assert!(line.contains("[ACL_ERROR_RT_MEMORY_ALLOCATION (207001)]"), "{line}");
    assert!(line.contains("(device 0, in load)"), "{line}");
    let all = format!("{error:#}");
    assert!(all.lines().count() > 1 && all.contains("EH"), "{all}");
    // The message is gone from the library, and stays in the error.
    assert!(error.message().is_some());
    assert!(context.alloc::<u8>(2000).expect_err("too much").message().is_some());
}

#[test]
fn errors_are_small_and_go_anywhere() {
    assert_eq!(size_of::<Error>(), size_of::<usize>());
    fn anywhere<T: Send + Sync + std::error::Error + Clone + 'static>() {}
    anywhere::<Error>();
}
