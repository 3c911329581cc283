// SPDX-License-Identifier: MIT OR Apache-2.0

//! The published MiniMax-M2.7 checkpoint: all its names, shapes and dtypes, in sparse files that hold no data.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;

use model_minimax::checkpoint::Checkpoint;
use model_minimax::config::ModelConfig;
use serde_json::{Map, Value, json};

use crate::scratch::Scratch;

const LAYERS: usize = 62;
const EXPERTS: usize = 256;
/// File numbers that were left out when the checkpoint was published.
const GAPS: [usize; 5] = [9, 40, 41, 77, 129];

type Entry = (String, &'static str, Vec<usize>);

/// Names, dtypes and shapes as listed from the published files.
fn published_tensors() -> Vec<Entry> {
    let mut tensors: Vec<Entry> = vec![
        ("model.embed_tokens.weight".into(), "BF16", vec![200_064, 3072]),
        ("lm_head.weight".into(), "BF16", vec![200_064, 3072]),
        ("model.norm.weight".into(), "BF16", vec![3072]),
    ];
    for layer in 0..LAYERS {
        let mut add = |name: String, dtype, shape: &[usize]| {
            tensors.push((format!("model.layers.{layer}.{name}"), dtype, shape.to_vec()));
        };
        add("input_layernorm.weight".into(), "BF16", &[3072]);
        add("post_attention_layernorm.weight".into(), "BF16", &[3072]);
        add("self_attn.q_norm.weight".into(), "BF16", &[6144]);
        add("self_attn.k_norm.weight".into(), "BF16", &[1024]);
        for (name, weight, scale) in [
            ("q_proj", [6144, 3072], [48, 24]),
            ("k_proj", [1024, 3072], [8, 24]),
            ("v_proj", [1024, 3072], [8, 24]),
            ("o_proj", [3072, 6144], [24, 48]),
        ] {
            add(format!("self_attn.{name}.weight"), "F8_E4M3", &weight);
            add(format!("self_attn.{name}.weight_scale_inv"), "F32", &scale);
        }
        add("block_sparse_moe.gate.weight".into(), "F32", &[256, 3072]);
        add("block_sparse_moe.e_score_correction_bias".into(), "F32", &[256]);
        for expert in 0..EXPERTS {
            for (name, weight, scale) in
                [("w1", [1536, 3072], [12, 24]), ("w2", [3072, 1536], [24, 12]), ("w3", [1536, 3072], [12, 24])]
            {
                add(format!("block_sparse_moe.experts.{expert}.{name}.weight"), "F8_E4M3", &weight);
                add(format!("block_sparse_moe.experts.{expert}.{name}.weight_scale_inv"), "F32", &scale);
            }
        }
    }
    tensors
}

fn config() -> Value {
    json!({
        "attn_type_list": vec![1; LAYERS], "dtype": "bfloat16", "head_dim": 128, "hidden_act": "silu", "hidden_size": 3072,
        "intermediate_size": 1536, "max_position_embeddings": 204_800, "model_type": "minimax_m2",
        "mtp_transformer_layers": 1, "num_attention_heads": 48, "num_experts_per_tok": 8, "num_hidden_layers": LAYERS,
        "num_key_value_heads": 8, "num_local_experts": EXPERTS, "num_mtp_modules": 3, "qk_norm_type": "per_layer",
        "quantization_config": {
            "activation_scheme": "dynamic", "fmt": "float8_e4m3fn", "quant_method": "fp8", "weight_block_size": [128, 128],
            "modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"]
        },
        "rms_norm_eps": 1e-6, "rope_theta": 5_000_000, "rotary_dim": 64, "scoring_func": "sigmoid",
        "shared_intermediate_size": 0, "tie_word_embeddings": false, "use_mtp": true, "use_qk_norm": true,
        "use_routing_bias": true, "vocab_size": 200_064
    })
}

/// Writes headers and lengths; the data are holes in the files.
fn write_checkpoint(folder: &Scratch) {
    let tensors = published_tensors();
    let numbers: Vec<usize> = (0..130).filter(|number| !GAPS.contains(number)).collect();
    assert_eq!(numbers.len(), 125);
    let mut weight_map = Map::new();
    // Cut by count, not by layer or weight: some scales are in the file after their weight.
    for (number, part) in numbers.iter().zip(tensors.chunks(tensors.len().div_ceil(125))) {
        let name = format!("model-{number:05}-of-00130.safetensors");
        let mut header = BTreeMap::new();
        let mut end = 0;
        for (tensor, dtype, shape) in part {
            let bytes = match *dtype {
                "F32" => 4,
                "BF16" => 2,
                _ => 1,
            };
            let begin = end;
            end += bytes * shape.iter().product::<usize>();
            header.insert(tensor, json!({ "dtype": dtype, "shape": shape, "data_offsets": [begin, end] }));
            weight_map.insert(tensor.clone(), name.clone().into());
        }
        let header = serde_json::to_vec(&header).unwrap();
        let mut file = File::create(folder.path().join(&name)).unwrap();
        file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
        file.write_all(&header).unwrap();
        file.set_len((8 + header.len() + end) as u64).unwrap();
    }
    folder.write("model.safetensors.index.json", &json!({ "weight_map": weight_map }).to_string());
    folder.write("config.json", &config().to_string());
}

#[test]
fn all_96103_published_tensors_have_a_place() {
    let folder = Scratch::new();
    write_checkpoint(&folder);
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let config = ModelConfig::load(folder.path()).unwrap();
    let (tensors, report) = checkpoint.model_tensors(&config).unwrap();
    assert_eq!(report.to_string(), "96103/96103 text tensors, 0 missing, 0 unexpected, 0 skipped");
    assert_eq!(tensors.layers.len(), LAYERS);
    assert!(tensors.layers.iter().all(|layer| layer.experts.len() == EXPERTS));
    let split = |layer: &model_minimax::checkpoint::LayerTensors| {
        let mut linears = layer.experts.iter().flat_map(|expert| [&expert.w1, &expert.w2, &expert.w3]);
        linears.any(|linear| linear.scale.as_ref().is_some_and(|scale| scale.file() != linear.weight.file()))
    };
    assert!(tensors.layers.iter().any(split), "no weight has its scale in another file");

    let (tensors, report) = checkpoint.model_tensors(&config.with_max_layers(4).unwrap()).unwrap();
    assert_eq!(tensors.layers.len(), 4);
    assert_eq!(
        report.to_string(),
        "6203/6203 text tensors, 0 missing, 0 unexpected, 89900 skipped (89900 model.layers.4..61: beyond the layers asked for)"
    );
}
