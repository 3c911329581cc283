// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::Path;

use op_testkit::golden::{self, GoldenError, Ops};
use op_testkit::safetensors::{Dtype, Safetensors, SafetensorsBuilder, SafetensorsError};

const OPS: [&str; 10] = [
    "activation",
    "grouped_gemm",
    "grouped_matmul_finalize_routing",
    "msa_indexer",
    "msa_main_branch",
    "msa_sparse_decode",
    "norm_rope",
    "quant",
    "router",
    "weight_layout",
];

/// A file with one case `c`: a stored tensor and a recipe for `x`, given as JSON.
fn one_recipe(recipe: &str) -> Ops {
    let mut builder = SafetensorsBuilder::new();
    builder
        .metadata("format", "pt")
        .metadata("c", &format!(r#"{{"H": 3, "name": "n", "on": true, "scale": 0.25, "inputs": {{"x": {recipe}}}}}"#))
        .add("c/y", Dtype::F32, &[1], &[1.5f32][..]);
    Ops::new("op", Safetensors::parse("memory", builder.to_bytes()).expect("a valid file"))
}

fn recipe_of_x(seed: u64, checksum: &str) -> String {
    format!(
        r#"{{"generator": "splitmix-u24", "seed": {seed}, "scale": 1.7, "shape": [1, 3, 1], "dtype": "bf16", "checksum": "{checksum}"}}"#
    )
}

/// The checksum of `fill_bf16(1010, 3, 1.7)`, computed apart from this crate.
const CHECKSUM: &str = "0000000000037b6a";

#[test]
fn the_folder_is_vendored_unless_the_environment_names_another() {
    const ELSEWHERE: &str = "golden-elsewhere";
    match std::env::var("GOLDEN_DIR") {
        Ok(folder) if folder == ELSEWHERE => assert_eq!(golden::dir(), Path::new(ELSEWHERE)),
        Ok(folder) => assert_eq!(golden::dir(), Path::new(&folder)),
        Err(_) => {
            assert_eq!(golden::dir(), Path::new(env!("CARGO_MANIFEST_DIR")).join("golden"));
            let test = "golden::the_folder_is_vendored_unless_the_environment_names_another";
            let inner = crate::rerun_with(test, "GOLDEN_DIR", ELSEWHERE);
            assert!(inner.status.success(), "{}", String::from_utf8_lossy(&inner.stdout));
        }
    }
}

#[test]
fn every_tensor_of_every_case_can_be_had() {
    let mut generated = 0;
    for op in OPS {
        let ops = Ops::open(op).unwrap();
        assert!(ops.cases().count() > 0, "{op} has cases");
        for case in ops.cases() {
            for name in case.tensor_names() {
                let tensor = case.tensor(&name).unwrap();
                let elements: usize = tensor.shape().iter().product();
                assert_eq!(tensor.bytes().len(), elements * tensor.dtype().size(), "{}", tensor.name());
                generated += usize::from(!ops.file().contains(tensor.name()));
            }
        }
    }
    assert_eq!(generated, 80, "tensors generated from recipes, checksums verified");
}

#[test]
fn every_model_file_is_valid() {
    let models = golden::dir().join("models");
    let mut files = 0;
    for model in ["m27-tiny-bf16", "m27-tiny-fp8", "m3-tiny-bf16", "m3-tiny-mxfp8"] {
        for entry in std::fs::read_dir(models.join(model)).expect("a model folder") {
            let path = entry.expect("a readable entry").path();
            if path.extension().is_some_and(|extension| extension == "safetensors") {
                let file = Safetensors::open(&path).unwrap();
                assert!(file.names().count() > 10, "{}", path.display());
                files += 1;
            }
        }
    }
    assert_eq!(files, 11);
    let expected = golden::open("models/m27-tiny-bf16/expected.safetensors").unwrap();
    assert!(expected.metadata()["short.text"].contains("How many blocks were read?"));
    assert_eq!(expected.tensor("mini.greedy_ids").unwrap().i64().unwrap().len(), 16);
}

#[test]
fn cases_have_scalars_and_tensors() {
    let ops = Ops::open("grouped_gemm").unwrap();
    assert_eq!(ops.case_names().len(), 7);
    let case = ops.case("swigluoai_e4h256i128").unwrap();
    assert_eq!((case.usize("E").unwrap(), case.usize("H").unwrap(), case.usize("I").unwrap()), (4, 256, 128));
    assert_eq!(case.str("activation").unwrap(), "swigluoai");
    assert_eq!(case.scalars()["clamp_hits"]["gate_gt"], 18);
    assert!(!case.scalars().contains_key("inputs"));
    let names = ["act", "counts", "down_proj", "expert_cumsum", "gate_up_proj", "out", "out_f32", "x"];
    assert_eq!(case.tensor_names(), names);
    assert_eq!(case.tensor("expert_cumsum").unwrap().i32().unwrap().last(), Some(&8));
    let x = case.tensor("x").unwrap();
    assert_eq!((x.name(), x.dtype(), x.shape()), ("swigluoai_e4h256i128/x", Dtype::BF16, &[8, 256][..]));
}

#[test]
fn files_without_case_prefix_are_one_case() {
    let ops = Ops::open("weight_layout").unwrap();
    assert_eq!(ops.case_names(), ["weight_layout"]);
    let case = ops.case("weight_layout").unwrap();
    assert_eq!(case.tensor_names(), ["down_proj", "gate_up_proj", "w13_flat", "w2_flat"]);
    assert_eq!(case.tensor("w13_flat").unwrap().shape(), [6, 4]);
    assert_eq!(Ops::open("quant").unwrap().case_names(), ["fp8_block", "mxfp8", "mxfp8_quantize", "tables"]);
}

#[test]
fn generated_tensors_are_those_of_the_recipe() {
    let ops = one_recipe(&recipe_of_x(1010, CHECKSUM));
    let case = ops.case("c").unwrap();
    let x = case.tensor("x").unwrap();
    assert_eq!((x.shape(), x.bf16().unwrap()), (&[1, 3, 1][..], op_testkit::fill_bf16(1010, 3, 1.7)));
    assert_eq!(case.tensor("y").unwrap().f32().unwrap(), [1.5]);
}

#[test]
fn a_wrong_seed_fails_the_checksum() {
    let ops = one_recipe(&recipe_of_x(1011, CHECKSUM));
    let error = ops.case("c").unwrap().tensor("x").unwrap_err();
    match &error {
        GoldenError::Checksum { tensor, expected, found } => {
            assert_eq!((&tensor[..], &expected[..]), ("c/x", CHECKSUM));
            assert_ne!(found, expected);
        }
        other => panic!("{other}"),
    }
    assert!(error.to_string().starts_with(&format!("recipe of `c/x`: checksum: expected {CHECKSUM}, found 0000")));
}

#[test]
fn faulty_recipes_are_named() {
    let good = recipe_of_x(1010, CHECKSUM);
    for (from, to, message) in [
        ("splitmix-u24", "mersenne", "recipe of `c/x`: `generator`: found \"mersenne\""),
        ("\"seed\"", "\"seeds\"", "recipe of `c/x`: `seed`: found null"),
        ("1.7", "null", "recipe of `c/x`: `scale`: found null"),
        ("[1, 3, 1]", "[-1]", "recipe of `c/x`: `shape`: found [-1]"),
        ("bf16", "f16", "recipe of `c/x`: `dtype`: found \"f16\""),
        (CHECKSUM, "none", "recipe of `c/x`: `checksum`: found \"none\""),
    ] {
        let ops = one_recipe(&good.replace(from, to));
        assert_eq!(ops.case("c").unwrap().tensor("x").unwrap_err().to_string(), message);
    }
}

#[test]
fn what_is_not_there_is_named_with_what_is() {
    let ops = one_recipe(&recipe_of_x(1010, CHECKSUM));
    assert_eq!(ops.case("d").unwrap_err().to_string(), "golden `op`: no case `d`, only c");
    let case = ops.case("c").unwrap();
    assert_eq!(case.tensor("z").unwrap_err().to_string(), "golden case `c`: no tensor `z`, only x, y");
    assert_eq!((case.usize("H").unwrap(), case.f32("scale").unwrap()), (3, 0.25));
    assert_eq!((case.bool("on").unwrap(), case.str("name").unwrap()), (true, "n"));
    let error = |result: Result<(), GoldenError>| result.unwrap_err().to_string();
    assert_eq!(error(case.usize("name").map(drop)), "golden case `c`: `name`: expected a size, found \"n\"");
    assert_eq!(error(case.f32("on").map(drop)), "golden case `c`: `on`: expected a number, found true");
    assert_eq!(error(case.bool("H").map(drop)), "golden case `c`: `H`: expected a flag, found 3");
    assert_eq!(error(case.str("I").map(drop)), "golden case `c`: `I`: expected a string, found null");
    assert!(matches!(Ops::open("absent"), Err(GoldenError::File(SafetensorsError::Missing { .. }))));
}
