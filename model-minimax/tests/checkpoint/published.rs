// SPDX-License-Identifier: MIT OR Apache-2.0

//! The published checkpoints: all their names, shapes and dtypes, in sparse files that hold no data.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;

use model_minimax::checkpoint::{Checkpoint, LinearTensors, MlpTensors};
use model_minimax::config::ModelConfig;
use model_minimax::inspect::Inspection;
use model_minimax::plan::{MemoryPlan, PlanOptions, Target};
use serde_json::{Map, Value, json};

use super::moe;
use crate::scratch::Scratch;

type Entry = (String, &'static str, Vec<usize>);

/// Writes headers and lengths; the data are holes in the files. Tensors are cut by count, not by layer or weight: some
/// scales are in the file after their weight.
fn write_checkpoint(folder: &Scratch, tensors: &[Entry], files: &[String], config: &Value) {
    let mut weight_map = Map::new();
    for (name, part) in files.iter().zip(tensors.chunks(tensors.len().div_ceil(files.len()))) {
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
        let mut file = File::create(folder.path().join(name)).unwrap();
        file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
        file.write_all(&header).unwrap();
        file.set_len((8 + header.len() + end) as u64).unwrap();
    }
    folder.write("model.safetensors.index.json", &json!({ "weight_map": weight_map }).to_string());
    folder.write("config.json", &config.to_string());
}

fn open(folder: &Scratch) -> (Checkpoint, ModelConfig) {
    (Checkpoint::open(folder.path()).unwrap(), ModelConfig::load(folder.path()).unwrap())
}

/// Whether a linear layer has its scale in another file.
fn is_split(linear: &LinearTensors) -> bool {
    linear.scale.as_ref().is_some_and(|scale| scale.file() != linear.weight.file())
}

/// The notes of one kind.
fn notes<'a>(inspection: &'a Inspection, kind: &str) -> Vec<&'a str> {
    inspection.notes.iter().filter(|note| note.kind == kind).map(|note| note.text.as_str()).collect()
}

/// The weights of a plan are those of the checkpoint, all of them, and no byte more.
fn check_plan(config: &ModelConfig, inspection: &Inspection) {
    let plan = MemoryPlan::new(config, &PlanOptions::new(Target::Cpu));
    let rest = ["keys and values", "index keys", "scratch of a prefill chunk"];
    let weights: u64 = plan.parts.iter().filter(|part| !rest.contains(&part.name)).map(|part| part.bytes).sum();
    assert_eq!(weights, inspection.tensors.as_ref().unwrap().bytes);
}

mod m27 {
    use super::*;

    const LAYERS: usize = 62;
    const EXPERTS: usize = 256;
    /// File numbers that were left out when the checkpoint was published.
    const GAPS: [usize; 5] = [9, 40, 41, 77, 129];

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

    fn files() -> Vec<String> {
        (0..130)
            .filter(|number| !GAPS.contains(number))
            .map(|number| format!("model-{number:05}-of-00130.safetensors"))
            .collect()
    }

    #[test]
    fn all_96103_published_tensors_have_a_place() {
        let folder = Scratch::new();
        assert_eq!(files().len(), 125);
        write_checkpoint(&folder, &published_tensors(), &files(), &config());
        let (checkpoint, config) = open(&folder);
        let (tensors, report) = checkpoint.model_tensors(&config).unwrap();
        assert_eq!(report.to_string(), "96103/96103 text tensors, 0 missing, 0 unexpected, 0 skipped");
        assert_eq!(tensors.layers.len(), LAYERS);
        assert!(tensors.layers.iter().all(|layer| moe(layer).experts.len() == EXPERTS));
        let split = |expert: &MlpTensors| [&expert.gate, &expert.up, &expert.down].into_iter().any(is_split);
        assert!(
            tensors.layers.iter().any(|layer| moe(layer).experts.iter().any(split)),
            "no weight has its scale in another file"
        );

        let inspection = Inspection::of(folder.path(), None).unwrap();
        assert!(inspection.usable && inspection.weights.index);
        assert_eq!((inspection.weights.files, inspection.weights.tensors), (125, 96_103));
        assert_eq!(inspection.weights.bytes, report.bytes);
        assert_eq!(
            notes(&inspection, "mtp"),
            ["3 multi-token prediction modules are declared, and none is in the files"]
        );
        assert_eq!(notes(&inspection, "u8-scales"), [""; 0]);
        check_plan(&config, &inspection);

        let (tensors, report) = checkpoint.model_tensors(&config.with_max_layers(4).unwrap()).unwrap();
        assert_eq!(tensors.layers.len(), 4);
        assert_eq!(
            report.to_string(),
            "6203/6203 text tensors, 0 missing, 0 unexpected, 89900 skipped (89900 model.layers.4..61: beyond the layers asked for)"
        );
    }
}

mod m3 {
    use super::*;

    const LAYERS: usize = 60;
    const DENSE: usize = 3;
    const EXPERTS: usize = 128;
    const PREFIX: &str = "language_model.";

    /// How the linear layers of the language model are stored.
    #[derive(Clone, Copy, PartialEq)]
    enum Format {
        Bf16,
        Mxfp8,
    }

    /// Names, dtypes and shapes as listed from the published files.
    fn published_tensors(format: Format) -> Vec<Entry> {
        let mut tensors = Vec::new();
        let mut plain = |name: String, dtype, shape: &[usize]| tensors.push((name, dtype, shape.to_vec()));
        for module in ["model.embed_tokens", "lm_head"] {
            plain(format!("{PREFIX}{module}.weight"), "BF16", &[200_064, 6144]);
        }
        plain(format!("{PREFIX}model.norm.weight"), "BF16", &[6144]);
        for layer in 0..LAYERS {
            let layer = format!("{PREFIX}model.layers.{layer}");
            for norm in ["input_layernorm", "post_attention_layernorm"] {
                plain(format!("{layer}.{norm}.weight"), "BF16", &[6144]);
            }
            for norm in ["q_norm", "k_norm"] {
                plain(format!("{layer}.self_attn.{norm}.weight"), "BF16", &[128]);
            }
        }
        let mut linear = |module: String, [rows, cols]: [usize; 2]| match format {
            Format::Bf16 => tensors.push((format!("{module}.weight"), "BF16", vec![rows, cols])),
            Format::Mxfp8 => {
                tensors.push((format!("{module}.weight"), "F8_E4M3", vec![rows, cols]));
                tensors.push((format!("{module}.weight_scale_inv"), "U8", vec![rows, cols / 32]));
            }
        };
        for layer in 0..LAYERS {
            let name = format!("{PREFIX}model.layers.{layer}");
            let attention = [("q", [8192, 6144]), ("k", [512, 6144]), ("v", [512, 6144]), ("o", [6144, 8192])];
            for (module, shape) in attention {
                linear(format!("{name}.self_attn.{module}_proj"), shape);
            }
            let mut mlp = |module: String, [gate, up, down]: [&str; 3], width: usize| {
                linear(format!("{module}.{gate}"), [width, 6144]);
                linear(format!("{module}.{up}"), [width, 6144]);
                linear(format!("{module}.{down}"), [6144, width]);
            };
            const PROJ: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];
            if layer < DENSE {
                mlp(format!("{name}.mlp"), PROJ, 12288);
                continue;
            }
            for expert in 0..EXPERTS {
                mlp(format!("{name}.block_sparse_moe.experts.{expert}"), ["w1", "w3", "w2"], 3072);
            }
            mlp(format!("{name}.block_sparse_moe.shared_experts"), PROJ, 3072);
            linear(format!("{name}.self_attn.index_q_proj"), [512, 6144]);
            linear(format!("{name}.self_attn.index_k_proj"), [128, 6144]);
        }
        let mut plain = |name: String, dtype, shape: &[usize]| tensors.push((name, dtype, shape.to_vec()));
        for layer in DENSE..LAYERS {
            let layer = format!("{PREFIX}model.layers.{layer}");
            plain(format!("{layer}.block_sparse_moe.gate.weight"), "F32", &[128, 6144]);
            plain(format!("{layer}.block_sparse_moe.e_score_correction_bias"), "F32", &[128]);
            for norm in ["index_q_norm", "index_k_norm"] {
                plain(format!("{layer}.self_attn.{norm}.weight"), "BF16", &[128]);
            }
        }
        tensors.extend(vision_tensors());
        tensors
    }

    /// What a text model leaves out; the shapes are of no importance.
    fn vision_tensors() -> Vec<Entry> {
        let tower = "vision_tower.vision_model";
        let modules = ["layer_norm1", "layer_norm2", "mlp.fc1", "mlp.fc2"].map(str::to_owned).into_iter();
        let attention = ["q_proj", "k_proj", "v_proj", "out_proj"].map(|module| format!("self_attn.{module}"));
        let modules: Vec<String> = modules.chain(attention).collect();
        let layers =
            (0..32).flat_map(|layer| modules.iter().map(move |m| format!("{tower}.encoder.layers.{layer}.{m}")));
        let others = [format!("{tower}.pre_layrnorm")].into_iter().chain(
            ["multi_modal_projector", "patch_merge_mlp"]
                .into_iter()
                .flat_map(|module| (1..=2).map(move |number| format!("{module}.linear_{number}"))),
        );
        let pairs = layers.chain(others).flat_map(|module| ["weight", "bias"].map(|kind| format!("{module}.{kind}")));
        let embedding = (format!("{tower}.embeddings.patch_embedding.weight"), "F32", vec![1280, 3, 2, 14, 14]);
        pairs.map(|name| (name, "BF16", vec![8])).chain([embedding]).collect()
    }

    fn config(format: Format) -> Value {
        let after_dense = [vec![0; DENSE], vec![1; LAYERS - DENSE]].concat();
        let mut config = json!({
            "architectures": ["MiniMaxM3SparseForConditionalGeneration"], "model_type": "minimax_m3_vl",
            "text_config": {
                "attention_output_gate": false, "dense_intermediate_size": 12288, "head_dim": 128,
                "hidden_act": "swigluoai", "hidden_size": 6144, "intermediate_size": 3072,
                "max_position_embeddings": 1_048_576, "moe_layer_freq": after_dense, "n_shared_experts": 1,
                "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": LAYERS,
                "num_key_value_heads": 4, "num_local_experts": EXPERTS, "num_mtp_modules": 7,
                "partial_rotary_factor": 0.5, "qk_norm_type": "per_head", "rms_norm_eps": 1e-6,
                "rope_theta": 5_000_000, "rotary_dim": 64, "routed_scaling_factor": 2.0, "scoring_func": "sigmoid",
                "shared_intermediate_size": 3072,
                "sparse_attention_config": {
                    "sparse_attention_freq": after_dense, "sparse_block_size": 128,
                    "sparse_disable_index_value": after_dense, "sparse_index_dim": 128, "sparse_init_block": 0,
                    "sparse_local_block": 1, "sparse_num_index_heads": 4, "sparse_score_type": "max",
                    "sparse_topk_blocks": 16, "use_sparse_attention": true
                },
                "swiglu_alpha": 1.702, "swiglu_limit": 7.0, "tie_word_embeddings": false, "use_gemma_norm": true,
                "use_qk_norm": true, "use_routing_bias": true, "vocab_size": 200_064
            },
            "torch_dtype": "bfloat16", "vision_config": { "num_hidden_layers": 32 }
        });
        if format == Format::Mxfp8 {
            let mut ignored: Vec<String> =
                ["lm_head", "model.embed_tokens", "vision_tower", "multi_modal_projector", "patch_merge_mlp"]
                    .map(str::to_owned)
                    .to_vec();
            ignored.extend((DENSE..LAYERS).map(|layer| format!("{PREFIX}model.layers.{layer}.block_sparse_moe.gate")));
            config["quantization_config"] = json!({
                "activation_scheme": "dynamic", "ignored_layers": ignored, "quant_method": "mxfp8",
                "weight_block_size": [1, 32]
            });
        }
        config
    }

    fn write(format: Format, count: usize) -> Scratch {
        let folder = Scratch::new();
        let files: Vec<String> = (1..=count).map(|i| format!("model-{i:05}-of-{count:05}.safetensors")).collect();
        write_checkpoint(&folder, &published_tensors(format), &files, &config(format));
        folder
    }

    const SKIPPED: &str = "4 multi_modal_projector.*: images and videos are not read; \
                           4 patch_merge_mlp.*: images and videos are not read; \
                           515 vision_tower.*: images and videos are not read";

    #[test]
    fn all_23416_published_bf16_tensors_have_a_place_or_a_reason() {
        let folder = write(Format::Bf16, 59);
        let (checkpoint, config) = open(&folder);
        assert_eq!(checkpoint.tensors().len(), 23_416);
        let (tensors, report) = checkpoint.model_tensors(&config).unwrap();
        assert_eq!(
            report.to_string(),
            format!("22893/22893 text tensors, 0 missing, 0 unexpected, 523 skipped ({SKIPPED})")
        );
        assert_eq!(report.bytes, 852_438_813_696);
        assert_eq!(tensors.layers.iter().filter(|layer| layer.index.is_some()).count(), LAYERS - DENSE);
        assert!(tensors.layers[DENSE..].iter().all(|layer| moe(layer).experts.len() == EXPERTS));

        let (_, report) = checkpoint.model_tensors(&config.with_max_layers(5).unwrap()).unwrap();
        assert_eq!(
            report.to_string(),
            format!(
                "838/838 text tensors, 0 missing, 0 unexpected, 22578 skipped \
                 (22055 language_model.model.layers.5..59: beyond the layers asked for; {SKIPPED})"
            )
        );
    }

    #[test]
    fn all_45838_published_mxfp8_tensors_have_a_place_or_a_reason() {
        let folder = write(Format::Mxfp8, 31);
        let (checkpoint, config) = open(&folder);
        assert_eq!(checkpoint.tensors().len(), 45_838);
        let (tensors, report) = checkpoint.model_tensors(&config).unwrap();
        assert_eq!(
            report.to_string(),
            format!("45315/45315 text tensors, 0 missing, 0 unexpected, 523 skipped ({SKIPPED})")
        );
        assert_eq!(report.bytes, 442_007_940_096);
        let inspection = Inspection::of(folder.path(), None).unwrap();
        assert_eq!(
            notes(&inspection, "u8-scales"),
            ["22422 scales have the type U8; they are E8M0 codes, 2^(code - 127) each"]
        );
        assert_eq!(
            notes(&inspection, "mtp"),
            ["7 multi-token prediction modules are declared, and none is in the files"]
        );
        assert_eq!(notes(&inspection, "head"), ["the output head is a tensor of its own, not tied to the embedding"]);
        check_plan(&config, &inspection);
        let split = |expert: &MlpTensors| [&expert.gate, &expert.up, &expert.down].into_iter().any(is_split);
        assert!(
            tensors.layers[DENSE..].iter().any(|layer| moe(layer).experts.iter().any(split)),
            "no weight has its scale in another file"
        );
    }
}
