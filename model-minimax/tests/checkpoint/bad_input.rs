// SPDX-License-Identifier: MIT OR Apache-2.0

//! Everything that can be wrong with a checkpoint folder, each with the words that name it.

use std::fs;

use model_minimax::checkpoint::{Checkpoint, CheckpointError, Dtype, FileProblemKind, HeaderError};
use op_testkit::safetensors as testkit;
use serde_json::json;

use super::folder::{Folder, INDEX, SHARD_0, SHARD_1, SINGLE};
use crate::scratch::Scratch;

#[track_caller]
pub(super) fn assert_contains(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "no {part:?} in:\n{message}");
    }
}

#[test]
fn path_that_does_not_exist_shows_what_is_there_and_what_helps() {
    let folder = Scratch::new();
    folder.write("config.json", "{}");
    fs::create_dir(folder.path().join("MiniMax-M2.7")).unwrap();
    let dir = folder.path().join("MiniMax-M2.8").join("snapshot");
    let error = Checkpoint::open(&dir).unwrap_err();
    assert!(matches!(&error, CheckpointError::NoFolder { .. }), "{error}");
    let there = format!("{} holds MiniMax-M2.7/, config.json\n", folder.path().display());
    assert_contains(
        &error.to_string(),
        &[
            &format!("no checkpoint folder at {}\n", dir.display()),
            &there,
            "model-minimax bench --synthetic slice",
            "MODEL_PATH",
            "model-minimax download --model-id MiniMaxAI/MiniMax-M2.7",
        ],
    );
    // A relative name is looked for in the current folder.
    let error = Checkpoint::open("no-such-checkpoint".as_ref()).unwrap_err();
    assert_contains(&error.to_string(), &["no checkpoint folder at no-such-checkpoint\n. holds ", "Cargo.toml"]);
}

#[test]
fn path_to_a_file_is_no_folder() {
    let folder = Folder::bf16();
    let error = Checkpoint::open(&folder.file(SINGLE)).unwrap_err();
    assert!(matches!(&error, CheckpointError::NoFolder { .. }), "{error}");
    assert_contains(&error.to_string(), &["holds config.json, model.safetensors\n"]);
}

#[test]
fn folder_without_weights_shows_what_is_there_and_what_helps() {
    let folder = Scratch::new();
    let message = Checkpoint::open(folder.path()).unwrap_err().to_string();
    assert_contains(&message, &["no weights found", INDEX, SINGLE, "holds nothing\n", "--synthetic slice"]);
    for i in 0..25 {
        folder.write(&format!("file-{i:02}.bin"), "");
    }
    let message = Checkpoint::open(folder.path()).unwrap_err().to_string();
    assert_contains(&message, &["holds file-00.bin, file-01.bin,", "file-19.bin and 5 more\n"]);
}

#[test]
fn several_files_need_an_index() {
    let folder = Folder::fp8();
    fs::remove_file(folder.file(INDEX)).unwrap();
    let error = Checkpoint::open(folder.path()).unwrap_err();
    assert!(matches!(&error, CheckpointError::NoIndex { .. }), "{error}");
    assert_contains(&error.to_string(), &[INDEX, SHARD_0, SHARD_1]);
}

#[test]
fn single_file_may_have_any_name() {
    let folder = Folder::bf16();
    fs::rename(folder.file(SINGLE), folder.file("weights.safetensors")).unwrap();
    assert_eq!(folder.clean_report().to_string(), "71/71 text tensors, 0 missing, 0 unexpected, 0 skipped");
}

#[test]
fn shards_may_have_any_name() {
    let folder = Folder::fp8();
    fs::rename(folder.file(SHARD_0), folder.file("b.safetensors")).unwrap();
    fs::rename(folder.file(SHARD_1), folder.file("a.bin")).unwrap();
    folder.edit_json(INDEX, |index| {
        for file in index["weight_map"].as_object_mut().unwrap().values_mut() {
            *file = if file == SHARD_0 { "b.safetensors" } else { "a.bin" }.into();
        }
    });
    assert_eq!(folder.clean_report().to_string(), "127/127 text tensors, 0 missing, 0 unexpected, 0 skipped");
}

#[test]
fn index_may_lack_metadata() {
    let folder = Folder::fp8();
    for metadata in [json!(null), json!({}), json!({ "total_size": 2_971_776.0 })] {
        folder.edit_json(INDEX, |index| index["metadata"] = metadata);
        assert!(folder.clean_report().is_clean());
    }
}

#[test]
fn file_without_tensors() {
    let folder = Folder::bf16();
    fs::write(folder.file(SINGLE), [&2_u64.to_le_bytes(), b"{}".as_slice()].concat()).unwrap();
    let (report, message) = folder.bad_report();
    assert_eq!((report.missing.len(), report.in_unusable_files), (71, 0));
    assert_contains(&message, &["0/71 text tensors, 71 missing", "\n  and 63 more"]);
}

#[test]
fn index_that_is_unusable_is_named() {
    let folder = Folder::fp8();
    for (text, what) in [
        ("{", "EOF while parsing"),
        ("{}", "missing field `weight_map`"),
        (r#"{ "weight_map": {} }"#, "`weight_map` names no tensor"),
        (r#"{ "weight_map": { "lm_head.weight": "../other/model.safetensors" } }"#, "which is not below the folder"),
        (r#"{ "weight_map": { "lm_head.weight": "/model.safetensors" } }"#, "which is not below the folder"),
        (r#"{ "weight_map": { "lm_head.weight": "" } }"#, "which is not below the folder"),
    ] {
        fs::write(folder.file(INDEX), text).unwrap();
        let error = Checkpoint::open(folder.path()).unwrap_err();
        assert!(matches!(&error, CheckpointError::Index { .. }), "{text}: {error}");
        assert_contains(&error.to_string(), &[INDEX, what]);
    }
}

#[test]
fn shard_that_is_absent() {
    let folder = Folder::fp8();
    let bytes = fs::metadata(folder.file(SHARD_0)).unwrap().len();
    fs::remove_file(folder.file(SHARD_1)).unwrap();
    let (report, message) = folder.bad_report();
    let [problem] = report.files.as_slice() else { panic!("{message}") };
    assert_eq!(problem.file, SHARD_1);
    let FileProblemKind::Absent { tensors } = problem.kind else { panic!("{message}") };
    assert_eq!(report.in_unusable_files, tensors);
    assert_eq!(report.found + tensors, report.expected);
    assert_eq!(report.absent_bytes, Some(2_971_776 - bytes));
    assert!(report.missing.is_empty(), "{:?}", report.missing);
    assert_contains(
        &message,
        &[
            &format!("{SHARD_1} is not in the folder; the index places {tensors} tensors in it"),
            &format!("about {} bytes are not on disk", 2_971_776 - bytes),
        ],
    );
}

#[test]
fn shard_cut_by_one_byte() {
    let folder = Folder::fp8();
    folder.cut(SHARD_1, 1);
    let (report, message) = folder.bad_report();
    let [problem] = report.files.as_slice() else { panic!("{message}") };
    assert!(matches!(problem.kind, FileProblemKind::Broken(HeaderError::Truncated { short_by: 1, .. })), "{message}");
    assert_contains(
        &message,
        &[&format!("{SHARD_1} is truncated, bytes short by 1 (has 1198759, should have 1198760)")],
    );
}

#[test]
fn single_file_cut_by_one_byte() {
    let folder = Folder::bf16();
    folder.cut(SINGLE, 1);
    let (report, message) = folder.bad_report();
    assert_eq!((report.found, report.in_unusable_files), (0, 71));
    assert_contains(&message, &["0/71 text tensors", "model.safetensors is truncated, bytes short by 1"]);
}

#[test]
fn all_problems_of_the_files_come_in_one_report() {
    let folder = Folder::fp8();
    folder.cut(SHARD_0, 7);
    fs::remove_file(folder.file(SHARD_1)).unwrap();
    let (report, message) = folder.bad_report();
    assert_eq!(report.files.len(), 2);
    assert_contains(&message, &["bytes short by 7", "is not in the folder"]);
}

#[test]
fn index_naming_a_tensor_that_its_shard_lacks() {
    let folder = Folder::fp8();
    folder.edit(SHARD_0, |shard| assert!(shard.remove("model.embed_tokens.weight")));
    let (report, message) = folder.bad_report();
    let [problem] = report.files.as_slice() else { panic!("{message}") };
    assert!(
        matches!(&problem.kind, FileProblemKind::LacksTensors(names) if names == &["model.embed_tokens.weight"]),
        "{message}"
    );
    assert_contains(
        &message,
        &[
            "126/127 text tensors, 1 missing",
            "lacks 1 of the tensors that the index places in it, the first is model.embed_tokens.weight",
        ],
    );
}

#[test]
fn tensor_in_two_files() {
    let norm = |shard: &mut testkit::SafetensorsBuilder| {
        shard.add("model.norm.weight", testkit::Dtype::BF16, &[256], &[0_u16; 256][..]);
    };
    // The index settles which one counts.
    let folder = Folder::fp8();
    folder.edit(SHARD_0, norm);
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    assert_eq!(checkpoint.tensor("model.norm.weight").unwrap().file(), SHARD_1);
    assert!(checkpoint.check(&folder.config()).is_clean());
    // The index is silent.
    folder.edit_json(INDEX, |index| {
        index["weight_map"].as_object_mut().unwrap().remove("model.norm.weight").unwrap();
    });
    let (report, message) = folder.bad_report();
    assert!(matches!(&report.files[0].kind, FileProblemKind::Duplicate { .. }), "{message}");
    assert_contains(&message, &["holds model.norm.weight a second time"]);
}

#[test]
fn stray_file_is_named_and_ignored() {
    let folder = Folder::fp8();
    fs::copy(folder.file(SHARD_0), folder.file(SINGLE)).unwrap();
    let report = folder.clean_report();
    assert_eq!(report.ignored_files, [SINGLE]);
    assert_contains(&report.to_string(), &["127/127", "\nnot part of the checkpoint: model.safetensors"]);
}

/// Takes a tensor out of the FP8 checkpoint, index and all.
fn remove(folder: &Folder, name: &str) {
    folder.edit_json(INDEX, |index| {
        index["weight_map"].as_object_mut().unwrap().remove(name).unwrap();
    });
    let mut removed = false;
    for file in [SHARD_0, SHARD_1] {
        folder.edit(file, |shard| removed |= shard.remove(name));
    }
    assert!(removed, "{name}");
}

#[test]
fn missing_tensor() {
    let folder = Folder::fp8();
    remove(&folder, "model.layers.1.self_attn.q_norm.weight");
    let (report, message) = folder.bad_report();
    assert_eq!(report.missing, ["model.layers.1.self_attn.q_norm.weight"]);
    assert_contains(
        &message,
        &["126/127 text tensors, 1 missing", "\nmissing:\n  model.layers.1.self_attn.q_norm.weight"],
    );
}

#[test]
fn missing_scale() {
    let folder = Folder::fp8();
    let weight = "model.layers.0.block_sparse_moe.experts.3.w2.weight";
    remove(&folder, &format!("{weight}_scale_inv"));
    let (report, message) = folder.bad_report();
    assert_eq!(report.missing_scale, [weight]);
    assert!(report.missing.is_empty());
    assert_contains(
        &message,
        &["126/127 text tensors, 1 missing", &format!("{weight} (its scale would be {weight}_scale_inv)")],
    );
}

#[test]
fn f8_tensor_without_scale_in_a_bf16_checkpoint() {
    let folder = Folder::bf16();
    let weight = "model.layers.0.self_attn.k_proj.weight";
    folder.edit(SINGLE, |file| {
        file.add(weight, testkit::Dtype::F8E4M3, &[64, 128], &[0_u8; 64 * 128][..]);
    });
    let (report, message) = folder.bad_report();
    assert_eq!(report.missing_scale, [weight]);
    assert_contains(&message, &["FP8 weights without a scale", weight]);
    // With a scale it is still not what config.json says, and the scale itself is no second problem.
    folder.edit(SINGLE, |file| {
        file.add(&format!("{weight}_scale_inv"), testkit::Dtype::F32, &[1, 1], &[1.0_f32][..]);
    });
    let (report, message) = folder.bad_report();
    assert!(report.missing_scale.is_empty() && report.unexpected.is_empty(), "{message}");
    assert_contains(
        &message,
        &[&format!("{weight}: expected BF16 (config.json has no quantization_config for it), found F8_E4M3")],
    );
}

#[test]
fn wrong_shape() {
    let folder = Folder::bf16();
    let weight = "model.layers.0.self_attn.q_proj.weight";
    folder.edit(SINGLE, |file| {
        file.add(weight, testkit::Dtype::BF16, &[128, 192], &vec![0_u16; 128 * 192][..]);
    });
    let (report, message) = folder.bad_report();
    assert_eq!(report.wrong_shape.len(), 1);
    assert_contains(&message, &[&format!("{weight}: expected [192, 128], found [128, 192]")]);
}

#[test]
fn wrong_dtype() {
    let folder = Folder::bf16();
    folder.edit(SINGLE, |file| {
        file.add("model.norm.weight", testkit::Dtype::F16, &[128], &[0_u16; 128][..]);
        let bias = "model.layers.1.block_sparse_moe.e_score_correction_bias";
        file.add(bias, testkit::Dtype::BF16, &[8], &[0_u16; 8][..]);
    });
    let (report, message) = folder.bad_report();
    let found: Vec<_> = report.wrong_dtype.iter().map(|tensor| (tensor.expected, tensor.found)).collect();
    assert_eq!(found, [(Dtype::F32, Dtype::Bf16), (Dtype::Bf16, Dtype::F16)]);
    assert_contains(
        &message,
        &[
            "e_score_correction_bias: expected F32 (a rounded router sends tokens to other experts), found BF16",
            "model.norm.weight: expected BF16 (as published), found F16",
        ],
    );
}

#[test]
fn quantization_config_left_behind_in_a_bf16_copy() {
    let folder = Folder::bf16();
    folder.edit_json("config.json", |config| {
        config["quantization_config"] = json!({ "quant_method": "fp8", "weight_block_size": [128, 128] });
    });
    let (report, message) = folder.bad_report();
    assert_eq!(report.wrong_dtype.len(), 2 * (4 + 3 * 8));
    assert_contains(
        &message,
        &["q_proj.weight: expected F8_E4M3 (config.json has a quantization_config for it), found BF16", "and 48 more"],
    );
}

#[test]
fn scale_grid_that_does_not_fit() {
    let folder = Folder::fp8();
    let scale = "model.layers.0.self_attn.o_proj.weight_scale_inv";
    for file in [SHARD_0, SHARD_1] {
        folder.edit(file, |shard| {
            if shard.remove(scale) {
                shard.add(scale, testkit::Dtype::F32, &[2, 1], &[1.0_f32; 2][..]);
            }
        });
    }
    let (report, message) = folder.bad_report();
    assert_eq!(report.scale_grid.len(), 1);
    assert_contains(
        &message,
        &[&format!("{scale}: expected [2, 4] for a weight of [256, 512] in blocks of 128 x 128, found [2, 1]")],
    );
}

#[test]
fn scale_of_another_dtype() {
    let folder = Folder::fp8();
    let scale = "model.layers.0.self_attn.o_proj.weight_scale_inv";
    for file in [SHARD_0, SHARD_1] {
        folder.edit(file, |shard| {
            if shard.remove(scale) {
                shard.add(scale, testkit::Dtype::U8, &[2, 4], &[127_u8; 8][..]);
            }
        });
    }
    let (_, message) = folder.bad_report();
    assert_contains(
        &message,
        &[&format!("{scale}: expected F32 (multipliers: quant_method is \"fp8\" in config.json), found U8")],
    );
}

#[test]
fn unexpected_tensors_name_the_nearest_expected_one() {
    let folder = Folder::bf16();
    folder.edit(SINGLE, |file| {
        for name in [
            "model.layers.1.self_attn.q_proj.weights",
            "model.layers.9.input_layernorm.weight",
            "language_model.model.layers.0.block_sparse_moe.experts.7.w1.weight",
            "vision",
        ] {
            file.add(name, testkit::Dtype::BF16, &[1], &[0_u16][..]);
        }
    });
    let (report, message) = folder.bad_report();
    assert_eq!(report.unexpected.len(), 4);
    assert_contains(
        &message,
        &[
            "71/71 text tensors, 0 missing, 4 unexpected",
            "q_proj.weights (nearest expected name: model.layers.1.self_attn.q_proj.weight)\n",
            "9.input_layernorm.weight (nearest expected name: model.layers.N.input_layernorm.weight)\n",
            "(nearest expected name: model.layers.0.block_sparse_moe.experts.7.w1.weight)\n",
        ],
    );
    assert!(message.ends_with("\n  vision"), "{message}");
}

#[test]
fn multi_token_prediction_is_skipped_where_it_is_declared() {
    let folder = Folder::bf16();
    folder.edit(SINGLE, |file| {
        for name in ["mtp.norm.weight", "model.mtp.layers.0.enorm.weight", "model.layers.2.input_layernorm.weight"] {
            file.add(name, testkit::Dtype::BF16, &[1], &[0_u16][..]);
        }
    });
    let report = folder.clean_report();
    assert_eq!(
        report.to_string(),
        "71/71 text tensors, 0 missing, 0 unexpected, 3 skipped \
         (1 model.layers.2: multi-token prediction heads are not run; \
         1 model.mtp.*: multi-token prediction heads are not run; \
         1 mtp.*: multi-token prediction heads are not run)"
    );
    // A layer that nothing declares is not explained away.
    folder.edit_json("config.json", |config| config["use_mtp"] = false.into());
    let (report, _) = folder.bad_report();
    assert_eq!(report.unexpected[0].name, "model.layers.2.input_layernorm.weight");
}

#[test]
fn config_with_other_sizes_than_the_tensors() {
    let folder = Folder::bf16();
    folder.edit_json("config.json", |config| config["num_attention_heads"] = 4.into());
    let (report, message) = folder.bad_report();
    assert_eq!(report.wrong_shape.len(), 2 * 3, "q_proj, o_proj and q_norm of two layers");
    assert_contains(&message, &["q_proj.weight: expected [128, 128], found [192, 128]"]);

    folder.edit_json("config.json", |config| {
        config["num_attention_heads"] = 6.into();
        config["num_local_experts"] = 9.into();
    });
    let (report, message) = folder.bad_report();
    assert_eq!(report.missing.len(), 2 * 3);
    assert_contains(&message, &["model.layers.0.block_sparse_moe.experts.8.w1.weight"]);
}
