// SPDX-License-Identifier: MIT OR Apache-2.0

//! The safetensors header: what is refused, what is read, and that no input panics.

use std::borrow::Cow;
use std::fs;

use model_minimax::checkpoint::{Checkpoint, Dtype};
use proptest::prelude::*;

use crate::scratch::Scratch;

fn file(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

/// The only problem of a folder with this one file; `None` if it has none.
fn problem(bytes: &[u8]) -> Option<String> {
    let folder = Scratch::new();
    fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let config = model_minimax::checkpoint::synthetic::SyntheticSpec::default().config().unwrap();
    let report = checkpoint.check(&config.with_max_layers(1).unwrap());
    assert!(report.files.len() <= 1);
    report.files.first().map(ToString::to_string)
}

#[test]
fn broken_files_are_described() {
    let f32_at = |name: &str, shape: &str, begin: u64, end: u64| {
        format!(r#""{name}":{{"dtype":"F32","shape":{shape},"data_offsets":[{begin},{end}]}}"#)
    };
    let cases = [
        (vec![], "is truncated, bytes short by 8 (has 0, should have 8)"),
        (vec![0; 7], "is truncated, bytes short by 1 (has 7, should have 8)"),
        (1000_u64.to_le_bytes().to_vec(), "is truncated, bytes short by 1000 (has 8, should have 1008)"),
        (100_000_001_u64.to_le_bytes().to_vec(), "is not a safetensors file: it announces a header of 100000001 bytes"),
        (u64::MAX.to_le_bytes().to_vec(), "is not a safetensors file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n".to_vec(), "is a Git LFS pointer"),
        (file("", b""), "has an unreadable header: EOF"),
        (file("[]", b""), "has an unreadable header: invalid type: sequence, expected an object of tensors"),
        (file("{\"a\":\"\u{fffd}\"}", b""), "has an unreadable header: invalid type: string"),
        (file(r#"{"a":{"dtype":"F32","shape":[1]}}"#, b""), "missing field `data_offsets`"),
        (file(r#"{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#, &[0; 4]), "has an unreadable header"),
        (
            file(&format!("{{{},{}}}", f32_at("a", "[1]", 0, 4), f32_at("a", "[1]", 4, 8)), &[0; 8]),
            "the name a occurs twice",
        ),
        (
            file(r#"{"a":{"dtype":"F7","shape":[4],"data_offsets":[0,4]}}"#, &[0; 4]),
            r#"gives tensor a the unknown dtype "F7""#,
        ),
        (
            file(&format!("{{{}}}", f32_at("a", "[2]", 0, 4)), &[0; 4]),
            "gives tensor a 4 bytes at 0..4, its F32 [2] needs 8",
        ),
        (
            file(&format!("{{{}}}", f32_at("a", "[1]", 4, 0)), &[0; 4]),
            "gives tensor a -4 bytes at 4..0, its F32 [1] needs 4",
        ),
        (
            file(&format!("{{{}}}", f32_at("a", "[4294967296,4294967296]", 0, 4)), &[0; 4]),
            "its F32 [4294967296, 4294967296] needs an impossible number",
        ),
        (
            file(r#"{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}}"#, &[0; 1]),
            "its F4 [3] needs an impossible number",
        ),
        (
            file(&format!("{{{},{}}}", f32_at("a", "[1]", 0, 4), f32_at("b", "[1]", 8, 12)), &[0; 12]),
            "places tensor b at data offset 8, the tensor before it ends at 4",
        ),
        (
            file(&format!("{{{},{}}}", f32_at("a", "[2]", 0, 8), f32_at("b", "[1]", 4, 8)), &[0; 8]),
            "places tensor b at data offset 4, the tensor before it ends at 8",
        ),
        (file(&format!("{{{}}}", f32_at("a", "[1]", 0, 4)), &[0; 6]), "has 2 bytes after the data"),
        (file(&format!("{{{}}}", f32_at("a", "[1]", 0, 4)), &[0; 1]), "is truncated, bytes short by 3"),
    ];
    let mut failures = Vec::new();
    for (bytes, expected) in cases {
        let found = problem(&bytes).unwrap_or_else(|| "accepted".to_owned());
        if !found.starts_with("model.safetensors ") || !found.contains(expected) {
            failures.push(format!("expected {expected}\n   found {found}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_dtype_of_the_format_is_listed() {
    let mut header = Vec::new();
    let mut end = 0;
    for dtype in Dtype::ALL {
        let begin = end;
        end += dtype.bits();
        let name = dtype.name();
        header.push(format!(r#""{name}":{{"dtype":"{name}","shape":[4,2],"data_offsets":[{begin},{end}]}}"#));
    }
    let folder = Scratch::new();
    let bytes = file(&format!("{{{}}}   ", header.join(",")), &vec![0; end]);
    fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    for dtype in Dtype::ALL {
        let tensor = checkpoint.tensor(dtype.name()).unwrap();
        assert_eq!((tensor.dtype(), tensor.byte_len()), (dtype, dtype.bits()));
    }
    assert_eq!(Dtype::from_name("F8_E4M3"), Some(Dtype::F8E4M3));
    assert_eq!((Dtype::Bf16.bits(), Dtype::F4.bits(), Dtype::F64.bits()), (16, 4, 64));
}

#[test]
fn metadata_scalars_and_empty_tensors_are_fine() {
    let header = r#"{"__metadata__":{"format":"pt"},
        "scalar":{"dtype":"F32","shape":[],"data_offsets":[0,4]},
        "empty":{"dtype":"BF16","shape":[0,8],"data_offsets":[4,4]}}"#;
    let folder = Scratch::new();
    fs::write(folder.path().join("model.safetensors"), file(header, &1.5_f32.to_le_bytes())).unwrap();
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    assert_eq!(checkpoint.tensors().len(), 2);
    assert_eq!(*checkpoint.tensor("scalar").unwrap().as_f32().unwrap(), [1.5]);
    assert!(checkpoint.tensor("empty").unwrap().as_bf16().unwrap().is_empty());
}

#[test]
fn unaligned_data_is_copied_and_aligned_data_is_not() {
    let values = [1.0_f32, -2.5, f32::NAN];
    for pad in 0..8 {
        // The data begins on a multiple of eight, so `pad` decides how the values are aligned.
        let bytes = pad + 12;
        let mut header = format!(
            r#"{{"pad":{{"dtype":"U8","shape":[{pad}],"data_offsets":[0,{pad}]}},
            "x":{{"dtype":"F32","shape":[3],"data_offsets":[{pad},{bytes}]}}}}"#
        );
        header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
        let mut data = vec![0xAA; pad];
        data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        let folder = Scratch::new();
        fs::write(folder.path().join("model.safetensors"), file(&header, &data)).unwrap();
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        let found = checkpoint.tensor("x").unwrap().as_f32().unwrap();
        assert_eq!(found.iter().map(|v| v.to_bits()).collect::<Vec<_>>(), values.map(f32::to_bits));
        assert_eq!(matches!(found, Cow::Borrowed(_)), pad % 4 == 0, "pad {pad}");
    }
}

proptest! {
    /// Whatever a file holds, opening and checking it ends in a report; what is accepted can be read.
    #[test]
    fn damaged_files_never_panic(
        changes in prop::collection::vec((0_usize..400, any::<u8>()), 0..4),
        len in 0_usize..400,
    ) {
        let header = r#"{"__metadata__":{"format":"pt"},"lm_head.weight":{"dtype":"BF16","shape":[3,2],"data_offsets":[0,12]},
            "model.norm.weight":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[12,16]}}"#;
        let mut bytes = file(header, &[7; 16]);
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        if len >= 200 {
            bytes.truncate(len);
        }
        let folder = Scratch::new();
        fs::write(folder.path().join("model.safetensors"), &bytes).unwrap();
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        for tensor in checkpoint.tensors() {
            prop_assert_eq!(Some(tensor.bytes().len()), tensor.dtype().byte_len(tensor.shape()));
        }
        let config = model_minimax::checkpoint::synthetic::SyntheticSpec::default().config().unwrap();
        prop_assert!(!checkpoint.check(&config.with_max_layers(1).unwrap()).to_string().is_empty());
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let folder = Scratch::new();
        fs::write(folder.path().join("model.safetensors"), &bytes).unwrap();
        prop_assert!(Checkpoint::open(folder.path()).unwrap().tensors().is_empty());
    }
}
