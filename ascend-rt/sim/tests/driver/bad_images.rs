// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is no image, or a damaged one: a typed error that says so, and nothing worse.

use ascend_sim::{Image, OpenError};

use crate::fake::{self, Folder};

#[test]
fn bytes_that_are_no_image() {
    let good = fake::bytes(&[]);
    let with = |change: fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        bytes
    };
    for (bytes, part) in [
        (Vec::new(), "found no bytes"),
        (b"text".to_vec(), "found another kind of file"),
        (good[..10].to_vec(), "damaged"),
        (with(|bytes| bytes[4] = 1), "another word size"),
        (with(|bytes| bytes[5] = 2), "byte order"),
        (with(|bytes| bytes[18..20].copy_from_slice(&[0x29, 0x10])), "another processor"),
        (with(|bytes| bytes[16] = 1), "no shared object"),
    ] {
        let error = Image::load(&bytes).unwrap_err();
        assert!(matches!(error, OpenError::NotAnImage { .. }), "{error:?}");
        assert!(error.to_string().contains(part), "{error}");
        assert!(!Image::recognises(&bytes));
    }
    assert!(Image::recognises(&good));
    // The head is right, and nothing follows.
    let error = Image::load(&good[..200]).unwrap_err();
    assert!(matches!(error, OpenError::Load { .. }), "{error:?}");
}

#[test]
fn a_file_that_is_not_there_and_a_file_that_is_none() {
    let folder = Folder::new();
    let error = Image::open(&folder.path().join("none.so")).unwrap_err();
    assert!(matches!(&error, OpenError::Io { path, .. } if path.ends_with("none.so")), "{error:?}");
    assert!(matches!(Image::open(folder.path()).unwrap_err(), OpenError::Io { .. }));
    let error = Image::open(&folder.file("text.so", "text")).unwrap_err();
    assert!(matches!(error, OpenError::NotAnImage { .. }), "{error:?}");
    let image = Image::open(&fake::file(&folder, &[])).unwrap();
    assert_eq!(image.kernels().len(), 5);
}

#[test]
fn damaged_tables() {
    for (macros, part) in [
        ("-DFAKE_NO_SYMBOL", "without `ascend_twin_image`"),
        ("-DFAKE_ABI=2", "version 2 of the interface, expected 1"),
        ("-DFAKE_NULL_TABLE", "no table"),
        ("-DFAKE_NULL_RUN", "`run` is null"),
        ("-DFAKE_NULL_KERNELS", "list of kernels has 5 entries and begins at 0x0"),
        ("-DFAKE_NO_NAME", "kernel 0 has no name"),
        ("-DFAKE_NAME=\"\\xff\\xfe\"", "the name of a kernel is no UTF-8"),
        ("-DFAKE_TASK=6", "`add` has the task kind 6"),
        ("-DFAKE_OFFSET=30", "parameter 3 of `add` does not lie in its argument block"),
        ("-DFAKE_OFFSET=0xfffffffe", "parameter 3 of `add` does not lie"),
        ("-DFAKE_POINTER_BYTES=4", "parameter 0 of `add` does not lie"),
        ("-DFAKE_ARGS_BYTES=0x7fffffff", "`add` takes 2147483647 bytes"),
        ("-DFAKE_MODULE=\"\\xff\"", "the names of parameters is no UTF-8"),
    ] {
        let error = Image::load(&fake::bytes(&[macros])).expect_err(macros);
        assert!(error.to_string().contains(part), "{macros}: {error}");
    }
}

#[test]
fn damaged_results() {
    for (macros, part) in [
        ("-DFAKE_NULL_RESULT", "a launch without a result"),
        ("-DFAKE_BAD_LIST", "list of cores begins at 0x0"),
        ("-DFAKE_BAD_RECORD", "a record with the name 7"),
    ] {
        let image = Image::load(&fake::bytes(&[macros])).unwrap();
        let (x, mut z) = ([1.0f32; 4], [0.0f32; 4]);
        let args = ascend_sim::Args::new().input(&x).input(&x).buffer(&mut z).value(4u32).value(1.0f32);
        let error = image.launch("add").unwrap().args(args).run().unwrap_err();
        assert!(error.to_string().contains(part), "{macros}: {error}");
        assert!(error.to_string().starts_with("the image is damaged: "), "{error}");
    }
}

#[test]
fn an_image_may_be_loaded_for_every_launch() {
    let bytes = fake::bytes(&[]);
    let open = || std::fs::read_to_string("/proc/self/maps").unwrap_or_default().lines().count();
    let _first = Image::load(&bytes).unwrap();
    let before = open();
    let images: Vec<Image> = (0..1000).map(|_| Image::load(&bytes).unwrap()).collect();
    assert_eq!(images.len(), 1000);
    // Other tests open images at the same time.
    assert!(open() < before + 500, "{before} mappings became {}", open());
}
