// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is said about folders that are whole, cut, or not what they claim to be.

use std::fs::OpenOptions;

use model_minimax::inspect::Inspection;
use serde_json::Value;

use crate::scratch::Scratch;

/// A copy of a golden model that may be damaged.
fn model(name: &str) -> Scratch {
    let folder = Scratch::new();
    for entry in std::fs::read_dir(op_testkit::golden::dir().join("models").join(name)).unwrap() {
        let entry = entry.unwrap();
        // Results of the reference implementation are no part of the checkpoint.
        if entry.file_name() != "expected.safetensors" {
            std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
        }
    }
    folder
}

/// Both forms of the result.
fn inspect(folder: &Scratch) -> (Inspection, String, Value) {
    let inspection = Inspection::of(folder.path(), None).unwrap();
    let (text, json) = (inspection.to_string(), serde_json::to_value(&inspection).unwrap());
    (inspection, text, json)
}

/// Replaces a text in `config.json`, which must have it.
fn edit_config(folder: &Scratch, from: &str, to: &str) {
    let text = std::fs::read_to_string(folder.path().join("config.json")).unwrap();
    assert!(text.contains(from), "{from} is not in {text}");
    folder.write("config.json", &text.replacen(from, to, 1));
}

#[test]
fn whole_models() {
    for (name, format, scales) in [
        ("m27-tiny-bf16", "bf16", None),
        ("m27-tiny-fp8", "fp8", Some("F32")),
        ("m3-tiny-bf16", "bf16", None),
        ("m3-tiny-mxfp8", "mxfp8", Some("U8")),
    ] {
        let (inspection, text, json) = inspect(&model(name));
        assert!(inspection.usable && inspection.unusable_files.is_empty(), "{text}");
        assert_eq!(json["model"]["weight_format"], format);
        let by_dtype = json["tensors"]["scales"].as_object().unwrap();
        assert_eq!(by_dtype.keys().next().map(String::as_str), scales, "{name}");
        assert_eq!(json["tensors"]["found"], json["tensors"]["expected"]);
        assert!(text.ends_with("result   usable"), "{text}");
    }
    let dir = op_testkit::golden::dir().join("models/m27-tiny-bf16");
    let first = Inspection::of(&dir, Some(1)).unwrap();
    assert_eq!(first.model.as_ref().map(|model| (model.layers, model.checkpoint_layers)), Some((1, 2)));
    assert!(first.usable && first.to_string().contains("1 of 2 layers"), "{first}");
    assert!(Inspection::of(&dir, Some(3)).unwrap_err().to_string().contains("found 3"));
}

#[test]
fn a_truncated_shard_and_an_absent_one() {
    let folder = model("m3-tiny-mxfp8");
    let [first, second] = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    let file = OpenOptions::new().write(true).open(folder.path().join(first)).unwrap();
    file.set_len(file.metadata().unwrap().len() - 7).unwrap();
    drop(file);
    std::fs::remove_file(folder.path().join(second)).unwrap();
    let (inspection, text, json) = inspect(&folder);
    assert!(!inspection.usable);
    let kinds: Vec<_> =
        inspection.unusable_files.iter().map(|file| (file.file.as_str(), file.kind, file.short_by)).collect();
    assert_eq!(kinds, [(first, "truncated", Some(7)), (second, "absent", None)]);
    assert_eq!(json["tensors"]["found"], 0);
    assert_eq!(json["tensors"]["in_unusable_files"], json["tensors"]["expected"]);
    assert!(text.contains("bytes short by 7") && text.ends_with("result   not usable"), "{text}");
}

#[test]
fn names_that_nobody_asked_for_have_their_nearest() {
    let folder = model("m27-tiny-bf16");
    // A header of the same length.
    let path = folder.path().join("model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    let (from, to) = (b"layers.1.self_attn.q_proj.weight", b"layers.1.self_attn.q_pr0j.weight");
    let at = bytes.windows(from.len()).position(|window| window == from).unwrap();
    bytes[at..at + to.len()].copy_from_slice(to);
    std::fs::write(&path, bytes).unwrap();
    let (_, text, json) = inspect(&folder);
    assert_eq!(json["usable"], false);
    assert_eq!(json["tensors"]["missing"][0], "model.layers.1.self_attn.q_proj.weight");
    assert_eq!(
        json["tensors"]["unexpected"][0],
        serde_json::json!({
            "name": "model.layers.1.self_attn.q_pr0j.weight", "nearest": "model.layers.1.self_attn.q_proj.weight"
        })
    );
    assert!(text.contains("nearest expected name"), "{text}");
}

#[test]
fn scale_grids_that_do_not_fit_name_both() {
    let folder = model("m27-tiny-fp8");
    edit_config(&folder, "\"intermediate_size\": 128", "\"intermediate_size\": 256");
    let (inspection, text, json) = inspect(&folder);
    assert!(!inspection.usable);
    assert!(json["tensors"]["scale_grid"].as_array().is_some_and(|grids| !grids.is_empty()), "{text}");
    assert!(text.contains("scale grids that do not fit"), "{text}");
}

#[test]
fn tied_heads_and_configurations_that_are_not_understood() {
    let folder = model("m27-tiny-bf16");
    edit_config(&folder, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
    let (inspection, text, json) = inspect(&folder);
    assert!(!inspection.usable && inspection.model.is_none() && inspection.tensors.is_none());
    assert!(json["config_error"].as_str().is_some_and(|error| error.contains("tie_word_embeddings")), "{json}");
    assert!(text.contains("config.json ties the output head to the embedding"), "{text}");
    // The files are listed all the same.
    assert!(inspection.weights.tensors > 0 && json["weights"]["by_dtype"]["BF16"]["tensors"].as_u64() > Some(0));
    folder.write("config.json", "{");
    assert!(inspect(&folder).0.config_error.is_some());
}
