// SPDX-License-Identifier: MIT OR Apache-2.0

use half::{bf16, f16};
use op_testkit::safetensors::{Dtype, Safetensors, SafetensorsBuilder, SafetensorsError};

/// A file with the given header text and this many bytes of data.
fn file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend(std::iter::repeat_n(0, data));
    bytes
}

fn parse_error(bytes: Vec<u8>) -> SafetensorsError {
    Safetensors::parse("f", bytes).unwrap_err()
}

fn entry(name: &str, dtype: &str, shape: &str, offsets: &str) -> String {
    format!(r#""{name}": {{"dtype": "{dtype}", "shape": {shape}, "data_offsets": {offsets}}}"#)
}

#[test]
fn what_was_written_is_read_back() {
    let folder = crate::scratch("round-trip");
    let mut builder = SafetensorsBuilder::new();
    builder
        .metadata("format", "pt")
        .add("f32", Dtype::F32, &[2, 1], &[1.5f32, f32::NEG_INFINITY][..])
        .add("bf16", Dtype::BF16, &[3], &[bf16::ONE, bf16::MIN, bf16::from_bits(1)][..])
        .add("f16", Dtype::F16, &[1], &[f16::MAX][..])
        .add("i32", Dtype::I32, &[2], &[-7, i32::MAX][..])
        .add("i64", Dtype::I64, &[1], &[i64::MIN][..])
        .add("e4m3", Dtype::F8E4M3, &[2], &[0x7Eu8, 0x80][..])
        .add("e5m2", Dtype::F8E5M2, &[1], &[0x7Cu8][..])
        .add("e8m0", Dtype::F8E8M0, &[1], &[127u8][..])
        .add("u8", Dtype::U8, &[3], &[1u8, 2, 255][..])
        .add("bool", Dtype::Bool, &[2], &[true, false][..])
        .add("f64", Dtype::F64, &[], &1.0f64)
        .add("empty", Dtype::F32, &[0, 4], &[0f32; 0][..]);
    let path = folder.join("all.safetensors");
    builder.write(&path).unwrap();
    let file = Safetensors::open(&path).unwrap();

    assert_eq!((file.path(), &file.metadata()["format"][..]), (path.as_path(), "pt"));
    let names: Vec<&str> = file.names().collect();
    assert_eq!(names, ["bf16", "bool", "e4m3", "e5m2", "e8m0", "empty", "f16", "f32", "f64", "i32", "i64", "u8"]);
    let get = |name: &str| file.tensor(name).unwrap();
    assert_eq!((get("f32").shape(), get("f32").f32().unwrap()), (&[2, 1][..], vec![1.5, f32::NEG_INFINITY]));
    assert_eq!(get("bf16").bf16().unwrap(), [bf16::ONE, bf16::MIN, bf16::from_bits(1)]);
    assert_eq!(get("bf16").f32().unwrap(), [1.0, bf16::MIN.to_f32(), 2f32.powi(-133)]);
    assert_eq!(get("f16").f32().unwrap(), [65504.0]);
    assert_eq!(get("i32").i32().unwrap(), [-7, i32::MAX]);
    assert_eq!(get("i64").i64().unwrap(), [i64::MIN]);
    assert_eq!(get("e4m3").u8().unwrap(), [0x7E, 0x80]);
    assert_eq!(get("e5m2").u8().unwrap(), [0x7C]);
    assert_eq!(get("e8m0").u8().unwrap(), [127]);
    assert_eq!(get("u8").u8().unwrap(), [1, 2, 255]);
    assert_eq!(get("bool").u8().unwrap(), [1, 0]);
    assert_eq!((get("f64").shape(), get("f64").bytes()), (&[][..], &1.0f64.to_le_bytes()[..]));
    assert_eq!((get("empty").shape(), get("empty").f32().unwrap()), (&[0, 4][..], vec![]));
}

#[test]
fn a_file_can_be_altered() {
    let mut builder = SafetensorsBuilder::new();
    builder.metadata("k", "v").add("b", Dtype::U8, &[1], &[1u8][..]).add("a", Dtype::U8, &[1], &[2u8][..]);
    let original = builder.to_bytes();
    let mut copy = Safetensors::parse("f", original.clone()).unwrap().to_builder();
    assert_eq!(copy.to_bytes(), original);

    copy.add("b", Dtype::I32, &[1], &[9i32][..]);
    assert!(copy.remove("a"));
    assert!(!copy.remove("a"));
    let altered = Safetensors::parse("f", copy.to_bytes()).unwrap();
    assert_eq!(altered.names().collect::<Vec<_>>(), ["b"]);
    assert_eq!(altered.tensor("b").unwrap().i32().unwrap(), [9]);
}

#[test]
fn an_accessor_of_another_type_is_refused() {
    let mut builder = SafetensorsBuilder::new();
    builder.add("x", Dtype::I32, &[1], &[1i32][..]).add("y", Dtype::F32, &[1], &[1f32][..]);
    let file = Safetensors::parse("f", builder.to_bytes()).unwrap();
    let (x, y) = (file.tensor("x").unwrap(), file.tensor("y").unwrap());
    for (result, message) in [
        (x.f32().map(drop), "tensor `x`: expected F32, BF16 or F16, found I32"),
        (x.bf16().map(drop), "tensor `x`: expected BF16, found I32"),
        (x.u8().map(drop), "tensor `x`: expected U8, BOOL, F8_E4M3, F8_E5M2 or F8_E8M0, found I32"),
        (x.i64().map(drop), "tensor `x`: expected I64, found I32"),
        (y.i32().map(drop), "tensor `y`: expected I32, found F32"),
    ] {
        assert_eq!(result.unwrap_err().to_string(), message);
    }
    let error = file.tensor("z").unwrap_err();
    assert!(matches!(&error, SafetensorsError::NoTensor { tensor, .. } if tensor == "z"));
    assert_eq!(error.to_string(), "f: no tensor `z`");
}

#[test]
fn an_absent_file_and_a_folder_are_told_apart() {
    let folder = crate::scratch("absent");
    let path = folder.join("absent.safetensors");
    assert!(matches!(Safetensors::open(&path), Err(SafetensorsError::Missing { path: p }) if p == path));
    assert!(matches!(Safetensors::open(&folder), Err(SafetensorsError::Io { path: p, .. }) if p == folder));
}

/// Every proper prefix of a valid file is recognised as such.
#[test]
fn a_file_cut_anywhere_is_truncated() {
    let mut builder = SafetensorsBuilder::new();
    builder.add("a", Dtype::F32, &[2], &[1f32, 2.0][..]).add("b", Dtype::BF16, &[1], &[bf16::ONE][..]);
    let whole = builder.to_bytes();
    Safetensors::parse("f", whole.clone()).unwrap();
    for length in 0..whole.len() {
        match parse_error(whole[..length].to_vec()) {
            SafetensorsError::Truncated { found, expected, .. } => {
                assert_eq!(found, length as u64);
                assert!(expected > found && expected <= whole.len() as u64);
            }
            other => panic!("{length} bytes: {other}"),
        }
    }
    let error = parse_error(whole[..whole.len() - 1].to_vec());
    let (expected, found) = (whole.len(), whole.len() - 1);
    assert_eq!(error.to_string(), format!("f: truncated: expected {expected} bytes, found {found}, short by 1"));
}

#[test]
fn a_bad_header_is_explained() {
    let long = u64::MAX.to_le_bytes().to_vec();
    let with = |dtype: &str, shape: &str, offsets: &str| file(&format!("{{{}}}", entry("t", dtype, shape, offsets)), 4);
    for (bytes, reason) in [
        (long, "length 18446744073709551615 exceeds the limit of 100000000 bytes"),
        (file("[]", 0), "invalid type: sequence, expected a map"),
        (file("{", 0), "EOF while parsing an object"),
        (file(r#"{"__metadata__": {"k": 1}}"#, 0), "`__metadata__`: invalid type: integer `1`"),
        (file(r#"{"t": 1}"#, 0), "tensor `t`: no `dtype`"),
        (with("F7", "[1]", "[0, 4]"), "tensor `t`: unknown dtype \"F7\""),
        (with("F32", "[-1]", "[0, 4]"), "tensor `t`: `shape` is no list of sizes"),
        (with("F32", "[1]", "[0, 4, 8]"), "tensor `t`: `data_offsets` is no pair"),
        (with("F32", "[4294967296, 4294967296]", "[0, 4]"), "tensor `t`: its size exceeds 64 bits"),
    ] {
        match parse_error(bytes) {
            SafetensorsError::Header { reason: found, .. } => {
                assert!(found.starts_with(reason), "{found}")
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn ranges_must_cover_the_data_exactly_once() {
    let parse = |entries: &[String], data| parse_error(file(&format!("{{{}}}", entries.join(",")), data)).to_string();
    let u8s = |name, length: u64, begin: u64| {
        entry(name, "U8", &format!("[{length}]"), &format!("[{begin}, {}]", begin + length))
    };
    for (entries, data, message) in [
        (
            vec![entry("t", "F32", "[2]", "[0, 4]")],
            4,
            "f: tensor `t`: shape and dtype need 8 bytes, the offsets give 4",
        ),
        (vec![entry("t", "U8", "[2]", "[2, 0]")], 2, "f: tensor `t`: offsets 2..0 outside the 2 bytes of data"),
        (vec![u8s("a", 2, 0), u8s("b", 2, 9)], 4, "f: tensor `b`: offsets 9..11 outside the 4 bytes of data"),
        (vec![u8s("a", 3, 0), u8s("b", 2, 2)], 4, "f: tensors `a` and `b` overlap"),
        (vec![u8s("a", 4, 0), u8s("b", 4, 0)], 4, "f: tensors `a` and `b` overlap"),
        (vec![u8s("a", 1, 0), u8s("b", 1, 2)], 3, "f: bytes 1..2 of the data belong to no tensor"),
        (vec![u8s("a", 2, 1)], 3, "f: bytes 0..1 of the data belong to no tensor"),
        (vec![u8s("a", 2, 0)], 5, "f: bytes 2..5 of the data belong to no tensor"),
        (vec![], 1, "f: bytes 0..1 of the data belong to no tensor"),
    ] {
        assert_eq!(parse(&entries, data), message);
    }
    let valid = [u8s("b", 2, 0), u8s("empty", 0, 2), u8s("a", 1, 2)].join(",");
    Safetensors::parse("f", file(&format!("{{{valid}}}"), 3)).unwrap();
}

#[test]
fn dtypes_have_their_names_and_sizes() {
    for (dtype, name, size) in [
        (Dtype::Bool, "BOOL", 1),
        (Dtype::U8, "U8", 1),
        (Dtype::F8E4M3, "F8_E4M3", 1),
        (Dtype::F8E5M2, "F8_E5M2", 1),
        (Dtype::F8E8M0, "F8_E8M0", 1),
        (Dtype::F16, "F16", 2),
        (Dtype::BF16, "BF16", 2),
        (Dtype::I32, "I32", 4),
        (Dtype::F32, "F32", 4),
        (Dtype::I64, "I64", 8),
        (Dtype::F64, "F64", 8),
    ] {
        assert_eq!((dtype.name(), dtype.size(), dtype.to_string()), (name, size, name.into()));
    }
}
