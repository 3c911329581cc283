// SPDX-License-Identifier: MIT OR Apache-2.0

//! MiniMax-M3: the golden checkpoints, every place, what is skipped, and what can be wrong with them alone.

use model_minimax::checkpoint::{Checkpoint, Dtype, FfnTensors, LinearTensors, MlpTensors};
use model_minimax::config::ModelConfig;
use model_minimax::cpu_tiles::Format;
use op_testkit::golden;
use op_testkit::safetensors as testkit;
use serde_json::json;

use super::bad_input::assert_contains;
use super::folder::{Folder, INDEX, M3_SHARD_1, M3_SHARD_2};
use super::moe;

const BF16: &str = "m3-tiny-bf16";
const MXFP8: &str = "m3-tiny-mxfp8";

fn open(model: &str) -> (Checkpoint, ModelConfig) {
    let dir = golden::dir().join("models").join(model);
    (Checkpoint::open(&dir).unwrap(), ModelConfig::load(&dir).unwrap())
}

fn dense(ffn: &FfnTensors) -> &MlpTensors {
    match ffn {
        FfnTensors::Dense(mlp) => mlp,
        FfnTensors::Moe(_) => panic!("a layer with experts"),
    }
}

const VISION: &str = "4 multi_modal_projector.*: images and videos are not read; \
                      4 patch_merge_mlp.*: images and videos are not read; \
                      19 vision_tower.*: images and videos are not read";

#[test]
fn bf16_checkpoint_is_complete_and_the_rest_is_skipped_with_reasons() {
    let (checkpoint, config) = open(BF16);
    let (tensors, report) = checkpoint.model_tensors(&config).unwrap();
    // 3 dense layers of 11, 2 layers of 41 with 8 experts of 3, and 3.
    assert_eq!(
        report.to_string(),
        format!(
            "118/118 text tensors, 0 missing, 0 unexpected, 27 skipped ({VISION})\n\
             not part of the checkpoint: expected.safetensors"
        )
    );
    let q = &tensors.layers[3].index.as_ref().unwrap().q;
    assert_eq!((q.rows, q.cols, q.format, q.weight.dtype()), (128, 128, Format::Bf16, Dtype::Bf16));
    assert!(q.scale.is_none());
}

#[test]
fn mxfp8_checkpoint_is_complete_and_prediction_heads_are_skipped() {
    let (checkpoint, config) = open(MXFP8);
    let (_, report) = checkpoint.model_tensors(&config).unwrap();
    assert_eq!(
        report.to_string(),
        format!(
            "205/205 text tensors, 0 missing, 0 unexpected, 30 skipped \
             (3 language_model.model.mtp.*: multi-token prediction heads are not run; {VISION})\n\
             not part of the checkpoint: expected.safetensors"
        )
    );
    let (_, report) = checkpoint.model_tensors(&config.with_max_layers(3).unwrap()).unwrap();
    assert_contains(
        &report.to_string(),
        &["148 language_model.model.layers.3..4: beyond the layers asked for; 3 language_model.model.mtp.*"],
    );
}

#[test]
fn every_linear_layer_is_quantised_as_published() {
    let (checkpoint, config) = open(MXFP8);
    let (tensors, _) = checkpoint.model_tensors(&config).unwrap();
    let check = |linear: &LinearTensors| {
        assert_eq!((linear.format, linear.weight.dtype()), (Format::Mxfp8, Dtype::F8E4M3), "{:?}", linear.weight);
        let scale = linear.scale.as_ref().unwrap();
        assert_eq!(scale.dtype(), Dtype::U8);
        assert_eq!(scale.shape(), [linear.rows, linear.cols / 32], "{scale:?}");
        assert_eq!(linear.byte_len(), linear.rows * linear.cols * 33 / 32);
        assert_eq!(linear.bytes().len(), linear.rows * linear.cols);
    };
    let check_mlp = |mlp: &MlpTensors| [&mlp.gate, &mlp.up, &mlp.down].into_iter().for_each(check);
    for (i, layer) in tensors.layers.iter().enumerate() {
        [&layer.q, &layer.k, &layer.v, &layer.o].into_iter().for_each(check);
        assert_eq!((layer.q_norm.shape(), layer.k_norm.shape()), ([128].as_slice(), [128].as_slice()));
        if i < 3 {
            check_mlp(dense(&layer.ffn));
            assert!(layer.index.is_none());
            continue;
        }
        let moe = moe(layer);
        assert_eq!(moe.experts.len(), 8);
        moe.experts.iter().chain(&moe.shared).for_each(check_mlp);
        assert_eq!((moe.router.dtype(), moe.bias.dtype()), (Dtype::F32, Dtype::F32));
        let index = layer.index.as_ref().unwrap();
        [&index.q, &index.k].into_iter().for_each(check);
        assert_eq!((index.q.rows, index.k.rows), (256, 128));
    }
    assert_eq!((tensors.embed.dtype(), tensors.lm_head.dtype()), (Dtype::Bf16, Dtype::Bf16));
}

#[test]
fn places_match_names() {
    let (checkpoint, config) = open(MXFP8);
    let (tensors, _) = checkpoint.model_tensors(&config).unwrap();
    let (first, layer) = (&tensors.layers[1], &tensors.layers[4]);
    let (mlp, moe) = (dense(&first.ffn), moe(layer));
    let (index, shared, expert) = (layer.index.as_ref().unwrap(), moe.shared.as_ref().unwrap(), &moe.experts[5]);
    let scale = |linear: &LinearTensors| linear.scale.clone().unwrap();
    for (tensor, name) in [
        (&tensors.embed, "model.embed_tokens.weight"),
        (&tensors.norm, "model.norm.weight"),
        (&tensors.lm_head, "lm_head.weight"),
        (&mlp.gate.weight, "model.layers.1.mlp.gate_proj.weight"),
        (&mlp.up.weight, "model.layers.1.mlp.up_proj.weight"),
        (&scale(&mlp.down), "model.layers.1.mlp.down_proj.weight_scale_inv"),
        (&layer.input_norm, "model.layers.4.input_layernorm.weight"),
        (&layer.post_norm, "model.layers.4.post_attention_layernorm.weight"),
        (&layer.q.weight, "model.layers.4.self_attn.q_proj.weight"),
        (&scale(&layer.o), "model.layers.4.self_attn.o_proj.weight_scale_inv"),
        (&layer.q_norm, "model.layers.4.self_attn.q_norm.weight"),
        (&layer.k_norm, "model.layers.4.self_attn.k_norm.weight"),
        (&index.q.weight, "model.layers.4.self_attn.index_q_proj.weight"),
        (&index.k.weight, "model.layers.4.self_attn.index_k_proj.weight"),
        (&scale(&index.k), "model.layers.4.self_attn.index_k_proj.weight_scale_inv"),
        (&index.q_norm, "model.layers.4.self_attn.index_q_norm.weight"),
        (&index.k_norm, "model.layers.4.self_attn.index_k_norm.weight"),
        (&moe.router, "model.layers.4.block_sparse_moe.gate.weight"),
        (&moe.bias, "model.layers.4.block_sparse_moe.e_score_correction_bias"),
        (&shared.gate.weight, "model.layers.4.block_sparse_moe.shared_experts.gate_proj.weight"),
        (&shared.up.weight, "model.layers.4.block_sparse_moe.shared_experts.up_proj.weight"),
        (&shared.down.weight, "model.layers.4.block_sparse_moe.shared_experts.down_proj.weight"),
        (&expert.gate.weight, "model.layers.4.block_sparse_moe.experts.5.w1.weight"),
        (&expert.up.weight, "model.layers.4.block_sparse_moe.experts.5.w3.weight"),
        (&scale(&expert.down), "model.layers.4.block_sparse_moe.experts.5.w2.weight_scale_inv"),
    ] {
        assert_eq!(tensor.name(), format!("language_model.{name}"));
    }
}

#[test]
fn weight_and_scale_may_lie_in_different_files() {
    let (checkpoint, config) = open(MXFP8);
    let (tensors, _) = checkpoint.model_tensors(&config).unwrap();
    let q = &tensors.layers[3].index.as_ref().unwrap().q;
    assert_eq!(q.weight.file(), M3_SHARD_1);
    assert_eq!(q.scale.as_ref().unwrap().file(), M3_SHARD_2);
}

/// Replaces tensors of one shard.
fn replace(folder: &Folder, shard: &str, name: &str, dtype: testkit::Dtype, shape: &[usize]) {
    let name = format!("language_model.{name}");
    folder.edit(shard, |file| {
        assert!(file.remove(&name), "{name} is not in {shard}");
        match dtype {
            testkit::Dtype::F32 => file.add(&name, dtype, shape, &vec![1.0_f32; shape.iter().product()][..]),
            testkit::Dtype::BF16 => file.add(&name, dtype, shape, &vec![0_u16; shape.iter().product()][..]),
            _ => file.add(&name, dtype, shape, &vec![127_u8; shape.iter().product()][..]),
        };
    });
}

const SCALE: &str = "model.layers.0.mlp.gate_proj.weight_scale_inv";

#[test]
fn scales_may_have_the_type_e8m0() {
    let folder = Folder::m3(MXFP8);
    replace(&folder, M3_SHARD_1, SCALE, testkit::Dtype::F8E8M0, &[256, 4]);
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let (tensors, _) = checkpoint.model_tensors(&folder.config()).unwrap();
    let scale = dense(&tensors.layers[0].ffn).gate.scale.clone().unwrap();
    assert_eq!((scale.dtype(), scale.bytes()), (Dtype::F8E8M0, [127; 1024].as_slice()));
    // That is the one exception.
    replace(&folder, M3_SHARD_1, SCALE, testkit::Dtype::I8, &[256, 4]);
    let (report, message) = folder.bad_report();
    assert_eq!((report.wrong_dtype.len(), report.scale_grid.len()), (1, 0), "{message}");
    assert_contains(
        &message,
        &[r#"weight_scale_inv: expected U8 (E8M0 codes: quant_method is "mxfp8" in config.json), found I8"#],
    );
}

#[test]
fn mxfp8_scale_that_does_not_fit_its_weight() {
    for shape in [[256, 3], [128, 4], [8, 4]] {
        let folder = Folder::m3(MXFP8);
        replace(&folder, M3_SHARD_1, SCALE, testkit::Dtype::U8, &shape);
        let (report, message) = folder.bad_report();
        assert_eq!((report.scale_grid.len(), report.wrong_dtype.len()), (1, 0), "{message}");
        assert_eq!(report.scale_grid[0].block, [1, 32]);
        let expected = format!(
            "language_model.{SCALE}: expected [256, 4] for a weight of [256, 128] in blocks of 1 x 32, found {shape:?}"
        );
        assert_contains(&message, &[&expected]);
    }
}

#[test]
fn scales_of_the_other_format_contradict_the_configuration() {
    // 128 x 128 multipliers under quant_method "mxfp8": dtype and grid are both named.
    let folder = Folder::m3(MXFP8);
    replace(&folder, M3_SHARD_1, SCALE, testkit::Dtype::F32, &[2, 1]);
    let (report, message) = folder.bad_report();
    assert_eq!((report.wrong_dtype.len(), report.scale_grid.len()), (1, 1), "{message}");
    assert_contains(
        &message,
        &[
            r#"expected U8 (E8M0 codes: quant_method is "mxfp8" in config.json), found F32"#,
            "expected [256, 4] for a weight of [256, 128] in blocks of 1 x 32, found [2, 1]",
        ],
    );

    // U8 scales under quant_method "fp8".
    let folder = Folder::m3(MXFP8);
    folder.edit_json("config.json", |config| {
        config["quantization_config"]["quant_method"] = "fp8".into();
        config["quantization_config"]["weight_block_size"] = json!([128, 128]);
    });
    let (report, message) = folder.bad_report();
    let scales = 3 * (4 + 3) + 2 * (4 + 2 + 3 * 9);
    assert_eq!((report.wrong_dtype.len(), report.scale_grid.len()), (scales, scales), "{message}");
    assert_contains(
        &message,
        &[
            r#"expected F32 (multipliers: quant_method is "fp8" in config.json), found U8"#,
            "in blocks of 128 x 128, found [512, 4]",
        ],
    );
}

#[test]
fn quantisation_that_the_configuration_does_not_name() {
    let folder = Folder::m3(MXFP8);
    folder.edit_json("config.json", |config| {
        config.as_object_mut().unwrap().remove("quantization_config").unwrap();
    });
    let (report, message) = folder.bad_report();
    assert_eq!(report.wrong_dtype.len(), 3 * (4 + 3) + 2 * (4 + 2 + 3 * 9));
    assert!(report.unexpected.is_empty(), "{message}");
    assert_contains(&message, &["expected BF16 (config.json has no quantization_config for it), found F8_E4M3"]);
    // The reverse: a copy in BF16 whose file still names it.
    let folder = Folder::m3(BF16);
    folder.edit_json("config.json", |config| {
        config["quantization_config"] = json!({ "quant_method": "mxfp8", "weight_block_size": [1, 32] });
    });
    let (_, message) = folder.bad_report();
    assert_contains(
        &message,
        &["o_proj.weight: expected F8_E4M3 (config.json has a quantization_config for it), found BF16"],
    );
}

/// Takes a tensor out of a checkpoint, index and all.
fn remove(folder: &Folder, name: &str) {
    let name = format!("language_model.{name}");
    folder.edit_json(INDEX, |index| {
        index["weight_map"].as_object_mut().unwrap().remove(&name).unwrap();
    });
    let mut removed = false;
    for file in [M3_SHARD_1, M3_SHARD_2] {
        folder.edit(file, |shard| removed |= shard.remove(&name));
    }
    assert!(removed, "{name}");
}

#[test]
fn missing_tensors_are_named() {
    for name in [
        "model.layers.3.self_attn.index_q_proj.weight",
        "model.layers.4.self_attn.index_k_norm.weight",
        "model.layers.2.mlp.up_proj.weight",
        "model.layers.3.block_sparse_moe.shared_experts.down_proj.weight",
    ] {
        let folder = Folder::m3(BF16);
        remove(&folder, name);
        let (report, message) = folder.bad_report();
        assert_eq!(report.missing, [format!("language_model.{name}")], "{message}");
        assert_contains(&message, &["117/118 text tensors, 1 missing"]);
    }
    let folder = Folder::m3(MXFP8);
    let weight = "model.layers.4.self_attn.index_k_proj.weight";
    remove(&folder, &format!("{weight}_scale_inv"));
    let (report, _) = folder.bad_report();
    assert_eq!(report.missing_scale, [format!("language_model.{weight}")]);
}

#[test]
fn layers_of_another_kind_than_the_configuration_says() {
    // Index heads of a layer that is said to have full attention.
    let folder = Folder::m3(BF16);
    folder.edit_json("config.json", |config| {
        config["text_config"]["sparse_attention_config"]["sparse_attention_freq"] = json!([0, 0, 0, 0, 1]);
    });
    let (report, message) = folder.bad_report();
    let names: Vec<&str> = report.unexpected.iter().map(|tensor| tensor.name.as_str()).collect();
    let layer = "language_model.model.layers.3.self_attn";
    let expected = ["index_k_norm", "index_k_proj", "index_q_norm", "index_q_proj"];
    assert_eq!(names, expected.map(|name| format!("{layer}.{name}.weight")), "{message}");

    // Experts where a dense MLP is expected.
    let folder = Folder::m3(BF16);
    folder.edit_json("config.json", |config| config["text_config"]["moe_layer_freq"] = json!([0, 0, 0, 0, 1]));
    let (report, _) = folder.bad_report();
    assert_eq!((report.missing.len(), report.unexpected.len()), (3, 2 + 3 * 8 + 3));
}

#[test]
fn rounded_router_is_refused() {
    let folder = Folder::m3(MXFP8);
    replace(&folder, M3_SHARD_1, "model.layers.3.block_sparse_moe.gate.weight", testkit::Dtype::BF16, &[8, 128]);
    let (_, message) = folder.bad_report();
    assert_contains(
        &message,
        &["gate.weight: expected F32 (a rounded router sends tokens to other experts), found BF16"],
    );
}

#[test]
fn language_model_alone_has_neither_prefix_nor_vision() {
    let folder = Folder::m3(BF16);
    folder.edit_json("config.json", |config| {
        let mut text = config["text_config"].take();
        text["model_type"] = "minimax_m3_vl_text".into();
        *config = text;
    });
    let rename = |name: &str| name.strip_prefix("language_model.").map(str::to_owned);
    for file in [M3_SHARD_1, M3_SHARD_2] {
        let source = testkit::Safetensors::open(folder.file(file)).unwrap();
        folder.edit(file, |shard| {
            for name in source.names() {
                let tensor = source.tensor(name).unwrap();
                shard.remove(name);
                if let Some(short) = rename(name) {
                    shard.add(&short, tensor.dtype(), tensor.shape(), tensor.bytes());
                }
            }
        });
    }
    folder.edit_json(INDEX, |index| {
        let map = index["weight_map"].as_object().unwrap();
        let renamed = map.iter().filter_map(|(name, file)| Some((rename(name)?, file.clone()))).collect();
        index["weight_map"] = serde_json::Value::Object(renamed);
    });
    assert_eq!(folder.clean_report().to_string(), "118/118 text tensors, 0 missing, 0 unexpected, 0 skipped");

    // Vision tensors there are not explained by such a file.
    folder.edit(M3_SHARD_2, |shard| {
        shard.add("vision_tower.x.weight", testkit::Dtype::BF16, &[1], &[0_u16][..]);
    });
    let (report, _) = folder.bad_report();
    assert_eq!(report.unexpected[0].name, "vision_tower.x.weight");
}
