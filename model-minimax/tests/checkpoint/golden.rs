// SPDX-License-Identifier: MIT OR Apache-2.0

//! The golden checkpoints open completely, and every tensor is where it belongs.

use model_minimax::checkpoint::{Checkpoint, Dtype};
use model_minimax::config::ModelConfig;
use op_testkit::golden;
use op_testkit::safetensors::Safetensors;

use super::folder::{Folder, SHARD_0, SHARD_1};
use super::moe;

fn open(model: &str) -> (Checkpoint, ModelConfig) {
    let dir = golden::dir().join("models").join(model);
    (Checkpoint::open(&dir).unwrap(), ModelConfig::load(&dir).unwrap())
}

#[test]
fn bf16_single_file_is_complete() {
    let (checkpoint, config) = open("m27-tiny-bf16");
    let (tensors, report) = checkpoint.model_tensors(&config).unwrap();
    // 2 layers of 10 + 8 experts of 3, and 3. The expected outputs of the tests lie in the same folder.
    let expected =
        "71/71 text tensors, 0 missing, 0 unexpected, 0 skipped\nnot part of the checkpoint: expected.safetensors";
    assert_eq!(report.to_string(), expected);
    assert!(report.is_clean());
    let q = &tensors.layers[1].q;
    assert_eq!((q.rows, q.cols, q.weight.dtype()), (192, 128, Dtype::Bf16));
    assert!(q.scale.is_none());
    assert_eq!((q.bytes().len(), q.byte_len()), (192 * 128 * 2, 192 * 128 * 2));
}

#[test]
fn fp8_shards_are_complete() {
    let (checkpoint, config) = open("m27-tiny-fp8");
    let (tensors, report) = checkpoint.model_tensors(&config).unwrap();
    let (first, rest) = report.to_string().split_once('\n').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    assert_eq!(first, "127/127 text tensors, 0 missing, 0 unexpected, 0 skipped");
    assert_eq!(rest, "not part of the checkpoint: expected.safetensors");
    assert_eq!(report.bytes, 2_971_776, "the total_size of the index");

    let layer = &tensors.layers[0];
    let scale = layer.o.scale.as_ref().unwrap();
    assert_eq!((layer.o.rows, layer.o.cols, scale.shape()), (256, 512, [2, 4].as_slice()));
    assert_eq!(layer.o.byte_len(), 256 * 512 + 2 * 4 * 4);
    let moe = moe(layer);
    assert_eq!((moe.router.dtype(), moe.bias.dtype()), (Dtype::F32, Dtype::F32));
}

#[test]
fn weight_and_scale_may_lie_in_different_files() {
    let (checkpoint, config) = open("m27-tiny-fp8");
    let (tensors, _) = checkpoint.model_tensors(&config).unwrap();
    let v = &tensors.layers[0].v;
    assert_eq!(v.weight.file(), SHARD_0);
    assert_eq!(v.scale.as_ref().unwrap().file(), SHARD_1);
}

#[test]
fn every_tensor_has_the_bytes_of_an_independent_reader() {
    for (model, files) in [("m27-tiny-bf16", ["model.safetensors"].as_slice()), ("m27-tiny-fp8", &[SHARD_0, SHARD_1])] {
        let (checkpoint, _) = open(model);
        let mut compared = 0;
        for file in files {
            let reference = Safetensors::open(checkpoint.dir().join(file)).unwrap();
            for name in reference.names() {
                let (expected, found) = (reference.tensor(name).unwrap(), checkpoint.tensor(name).unwrap());
                assert_eq!(found.bytes(), expected.bytes(), "{name}");
                assert_eq!(found.shape(), expected.shape(), "{name}");
                assert_eq!(found.dtype().name(), expected.dtype().name(), "{name}");
                compared += 1;
            }
        }
        assert_eq!(compared, checkpoint.tensors().len());
    }
}

#[test]
fn places_match_names() {
    let (checkpoint, config) = open("m27-tiny-fp8");
    let (tensors, _) = checkpoint.model_tensors(&config).unwrap();
    let layer = &tensors.layers[1];
    let moe = moe(layer);
    let expert = &moe.experts[5];
    for (tensor, name) in [
        (&tensors.embed, "model.embed_tokens.weight"),
        (&tensors.norm, "model.norm.weight"),
        (&tensors.lm_head, "lm_head.weight"),
        (&layer.input_norm, "model.layers.1.input_layernorm.weight"),
        (&layer.post_norm, "model.layers.1.post_attention_layernorm.weight"),
        (&layer.q.weight, "model.layers.1.self_attn.q_proj.weight"),
        (&layer.k.weight, "model.layers.1.self_attn.k_proj.weight"),
        (&layer.v.weight, "model.layers.1.self_attn.v_proj.weight"),
        (&layer.o.weight, "model.layers.1.self_attn.o_proj.weight"),
        (&layer.q_norm, "model.layers.1.self_attn.q_norm.weight"),
        (&layer.k_norm, "model.layers.1.self_attn.k_norm.weight"),
        (&moe.router, "model.layers.1.block_sparse_moe.gate.weight"),
        (&moe.bias, "model.layers.1.block_sparse_moe.e_score_correction_bias"),
        (&expert.gate.weight, "model.layers.1.block_sparse_moe.experts.5.w1.weight"),
        (&expert.down.weight, "model.layers.1.block_sparse_moe.experts.5.w2.weight"),
        (expert.up.scale.as_ref().unwrap(), "model.layers.1.block_sparse_moe.experts.5.w3.weight_scale_inv"),
    ] {
        assert_eq!(tensor.name(), name);
    }
}

#[test]
fn values_are_read_in_their_own_type_only() {
    let (checkpoint, _) = open("m27-tiny-bf16");
    let bias = checkpoint.tensor("model.layers.0.block_sparse_moe.e_score_correction_bias").unwrap();
    let values = bias.as_f32().unwrap();
    assert_eq!(values.len(), 8);
    assert!(values.iter().all(|bias| (7.0..9.0).contains(bias)), "{values:?}");
    let error = bias.as_bf16().unwrap_err();
    assert_eq!(
        error.to_string(),
        "tensor model.layers.0.block_sparse_moe.e_score_correction_bias holds F32, it was read as BF16"
    );
    let norm = checkpoint.tensor("model.norm.weight").unwrap();
    assert_eq!(norm.as_bf16().unwrap().len(), 128);
    assert!(norm.as_f32().is_err());
}

#[test]
fn layers_beyond_the_limit_are_skipped() {
    let (checkpoint, config) = open("m27-tiny-fp8");
    let (tensors, report) = checkpoint.model_tensors(&config.with_max_layers(1).unwrap()).unwrap();
    assert_eq!(tensors.layers.len(), 1);
    let line = report.to_string();
    let expected =
        "65/65 text tensors, 0 missing, 0 unexpected, 62 skipped (62 model.layers.1..1: beyond the layers asked for)\n";
    assert!(line.starts_with(expected), "{line}");
}

#[test]
fn copies_of_the_fp8_checkpoint_keep_what_quantization_config_excludes() {
    // Layer 0's query projection is declared to stay BF16, and is.
    let folder = Folder::fp8();
    let name = "model.layers.0.self_attn.q_proj.weight";
    folder.edit_json("config.json", |config| {
        let list = config["quantization_config"]["modules_to_not_convert"].as_array_mut().unwrap();
        list.push("model.layers.0.self_attn.q_proj".into());
    });
    folder.edit_json("model.safetensors.index.json", |index| {
        index["weight_map"].as_object_mut().unwrap().remove(&format!("{name}_scale_inv")).unwrap();
    });
    for file in [SHARD_0, SHARD_1] {
        folder.edit(file, |shard| {
            shard.remove(&format!("{name}_scale_inv"));
            if shard.remove(name) {
                shard.add(name, op_testkit::safetensors::Dtype::BF16, &[512, 256], &vec![0_u16; 512 * 256][..]);
            }
        });
    }
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let (tensors, report) = checkpoint.model_tensors(&folder.config()).unwrap();
    assert_eq!(report.to_string(), "126/126 text tensors, 0 missing, 0 unexpected, 0 skipped");
    assert!(tensors.layers[0].q.scale.is_none());
    assert!(tensors.layers[1].q.scale.is_some());
}
