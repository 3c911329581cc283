// SPDX-License-Identifier: MIT OR Apache-2.0

//! MiniMax-M3: the nested file in both spellings, what may differ between its models, and what may not.

use model_minimax::config::{
    AttentionKind, ConfigError, FfnKind, HiddenAct, LayerConfig, ModelConfig, MsaConfig, NormKind, QkNorm, ScoreType,
    Variant, WeightFormat,
};
use model_minimax::cpu_tiles::Format;
use op_testkit::golden;
use serde_json::{Value, json};

use super::{merged, parse};

const LAYERS: usize = 60;

/// A list for the layers of the model: `dense` for the first three, `sparse` for the others.
fn after_three<T: Clone>(dense: T, sparse: T) -> Vec<T> {
    [vec![dense; 3], vec![sparse; LAYERS - 3]].concat()
}

/// The fields of the published MiniMax-M3 configuration that the language model needs, and some that it does not.
fn published() -> Value {
    let sparse = json!({
        "sparse_attention_freq": after_three(0, 1),
        "sparse_block_size": 128,
        "sparse_disable_index_value": after_three(0, 1),
        "sparse_index_dim": 128,
        "sparse_init_block": 0,
        "sparse_local_block": 1,
        "sparse_num_index_heads": 4,
        "sparse_score_type": "max",
        "sparse_topk_blocks": 16,
        "use_sparse_attention": true,
    });
    json!({
        "architectures": ["MiniMaxM3SparseForConditionalGeneration"],
        "auto_map": { "AutoConfig": "configuration_minimax_m3_vl.MiniMaxM3VLConfig" },
        "image_token_index": 200_025,
        "model_type": "minimax_m3_vl",
        "projector_hidden_size": 6144,
        "text_config": {
            "architectures": ["MiniMaxM3SparseForCausalLM"],
            "attention_output_gate": false,
            "dense_intermediate_size": 12288,
            "head_dim": 128,
            "hidden_act": "swigluoai",
            "hidden_size": 6144,
            "intermediate_size": 3072,
            "max_position_embeddings": 1_048_576,
            "moe_layer_freq": after_three(0, 1),
            "n_shared_experts": 1,
            "num_attention_heads": 64,
            "num_experts_per_tok": 4,
            "num_hidden_layers": LAYERS,
            "num_key_value_heads": 4,
            "num_local_experts": 128,
            "num_mtp_modules": 7,
            "num_nextn_predict_layers": 1,
            "partial_rotary_factor": 0.5,
            "qk_norm_type": "per_head",
            "rms_norm_eps": 1e-6,
            "rope_theta": 5_000_000,
            "rotary_dim": 64,
            "routed_scaling_factor": 2.0,
            "scoring_func": "sigmoid",
            "shared_intermediate_size": 3072,
            "sparse_attention_config": sparse,
            "swiglu_alpha": 1.702,
            "swiglu_limit": 7.0,
            "tie_word_embeddings": false,
            "use_gemma_norm": true,
            "use_qk_norm": true,
            "use_routing_bias": true,
            "vocab_size": 200_064,
        },
        "torch_dtype": "bfloat16",
        "transformers_version": "4.52.4",
        "vision_config": { "hidden_size": 1280, "model_type": "clip_vision_model", "num_hidden_layers": 32 },
    })
}

/// What the published MXFP8 file has on top.
fn mxfp8() -> Value {
    let gates = (3..LAYERS).map(|layer| format!("language_model.model.layers.{layer}.block_sparse_moe.gate"));
    let others = ["lm_head", "model.embed_tokens", "vision_tower", "multi_modal_projector", "patch_merge_mlp"];
    json!({
        "quantization_config": {
            "activation_scheme": "dynamic",
            "ignored_layers": others.map(str::to_owned).into_iter().chain(gates).collect::<Vec<_>>(),
            "quant_method": "mxfp8",
            "weight_block_size": [1, 32],
        },
        "text_config": { "dtype": "bfloat16", "num_mtp_modules": 1, "num_nextn_predict_layers": null },
    })
}

fn with(changes: Value) -> Value {
    merged(published(), changes)
}

/// The published configuration with some fields of the language model replaced.
fn with_text(changes: Value) -> Value {
    with(json!({ "text_config": changes }))
}

/// The same model as a class of transformers 5 writes it.
fn saved_again() -> Value {
    let mut saved = with_text(json!({
        "bos_token_id": 200_034,
        "dtype": "bfloat16",
        // That class computes SwiGLU-OAI whatever it writes here.
        "hidden_act": "silu",
        "index_block_size": 128,
        "index_head_dim": 128,
        "index_local_blocks": 1,
        "index_n_heads": 4,
        "index_topk_blocks": 16,
        "layer_types": after_three("full_attention", "minimax_m3_sparse"),
        "mlp_layer_types": after_three("dense", "sparse"),
        "model_type": "minimax_m3_vl_text",
        "pad_token_id": null,
        "rope_parameters": { "partial_rotary_factor": 0.5, "rope_theta": 5_000_000.0, "rope_type": "default" },
    }));
    let text = saved["text_config"].as_object_mut().unwrap();
    for field in [
        "attention_output_gate",
        "moe_layer_freq",
        "partial_rotary_factor",
        "qk_norm_type",
        "rope_theta",
        "scoring_func",
        "sparse_attention_config",
        "use_gemma_norm",
        "use_qk_norm",
    ] {
        text.remove(field).unwrap();
    }
    saved
}

const MSA: MsaConfig = MsaConfig {
    index_heads: 4,
    index_dim: 128,
    block: 128,
    topk: 16,
    init_blocks: 0,
    local_blocks: 1,
    score_type: ScoreType::Max,
};

#[test]
fn published_config_gives_the_published_model() {
    let config = parse(&published()).unwrap();
    assert_eq!((config.variant, config.tensor_prefix), (Variant::M3, "language_model."));
    assert_eq!((config.hidden_size, config.intermediate_size, config.vocab_size), (6144, 3072, 200_064));
    assert_eq!((config.num_hidden_layers, config.checkpoint_layers, config.mtp_layers), (60, 60, 0));
    assert_eq!((config.num_attention_heads, config.num_key_value_heads, config.head_dim), (64, 4, 128));
    assert_eq!((config.q_size(), config.kv_size()), (8192, 512));
    assert_eq!((config.rotary_dim, config.rope_theta, config.rms_norm_eps), (64, 5e6, 1e-6));
    assert_eq!((config.num_local_experts, config.num_experts_per_tok), (128, 4));
    assert_eq!((config.n_shared_experts, config.shared_intermediate_size, config.shared_size()), (1, 3072, 3072));
    assert_eq!(config.routed_scaling_factor, 2.0);
    assert_eq!(config.hidden_act, HiddenAct::SwigluOai { alpha: 1.702, limit: 7.0 });
    assert_eq!((config.norm, config.qk_norm), (NormKind::Gemma, QkNorm::PerHead));
    assert_eq!(config.max_position_embeddings, 1_048_576);
    assert_eq!(config.weight_format, WeightFormat::Bf16);
    let dense = LayerConfig { attention: AttentionKind::Full, ffn: FfnKind::Dense { intermediate_size: 12288 } };
    let sparse = LayerConfig { attention: AttentionKind::Sparse(MSA), ffn: FfnKind::Moe };
    assert_eq!(config.layers, after_three(dense, sparse));
    assert_eq!((dense.msa(), sparse.msa()), (None, Some(MSA)));
}

#[test]
fn mxfp8_config_names_the_modules_that_stay_bf16() {
    let config = parse(&with(mxfp8())).unwrap();
    let layer = "language_model.model.layers.3";
    for (module, format) in [
        (format!("{layer}.self_attn.q_proj"), Format::Mxfp8),
        (format!("{layer}.self_attn.index_k_proj"), Format::Mxfp8),
        (format!("{layer}.block_sparse_moe.shared_experts.gate_proj"), Format::Mxfp8),
        (format!("{layer}.block_sparse_moe.gate"), Format::Bf16),
        ("language_model.model.layers.0.mlp.gate_proj".into(), Format::Mxfp8),
        ("language_model.model.embed_tokens".into(), Format::Bf16),
        ("language_model.lm_head".into(), Format::Bf16),
    ] {
        assert_eq!(config.weight_format.of(&module), format, "{module}");
    }
    let bf16 = ModelConfig { weight_format: WeightFormat::Bf16, ..config };
    assert_eq!(bf16, parse(&published()).unwrap());
}

#[test]
fn config_saved_again_by_transformers_5_gives_the_same_model() {
    assert_eq!(parse(&saved_again()).unwrap(), parse(&published()).unwrap());
    // Some releases write both spellings, or the list of layers beside the published fields.
    let both = with_text(json!({
        "layer_types": after_three("full_attention", "minimax_m3_sparse"),
        "mlp_layer_types": after_three("dense", "sparse"),
    }));
    assert_eq!(parse(&both).unwrap(), parse(&published()).unwrap());
}

#[test]
fn language_model_alone_has_no_prefix() {
    let mut text = published()["text_config"].take();
    text["model_type"] = "minimax_m3_vl_text".into();
    let config = parse(&text).unwrap();
    assert_eq!(config, ModelConfig { tensor_prefix: "", ..parse(&published()).unwrap() });
}

#[test]
fn golden_configs_parse() {
    let models = golden::dir().join("models");
    let bf16 = ModelConfig::load(&models.join("m3-tiny-bf16")).unwrap();
    assert_eq!((bf16.hidden_size, bf16.num_attention_heads, bf16.head_dim, bf16.rotary_dim), (128, 8, 32, 16));
    assert_eq!(bf16.layers[2].ffn, FfnKind::Dense { intermediate_size: 128 });
    assert_eq!(bf16.layers[4].ffn, FfnKind::Moe);
    assert_eq!(bf16.layers[3].msa(), Some(MsaConfig { index_dim: 32, topk: 2, ..MSA }));
    assert_eq!(bf16.layers[2].msa(), None);
    let mxfp8 = ModelConfig::load(&models.join("m3-tiny-mxfp8")).unwrap();
    assert_eq!(mxfp8.layers[3].msa(), Some(MsaConfig { index_heads: 2, topk: 3, ..MSA }));
    assert_eq!(mxfp8.weight_format.of("language_model.model.layers.0.mlp.up_proj"), Format::Mxfp8);
}

#[test]
fn other_models_of_the_family_are_data() {
    let config = parse(&with_text(json!({
        "moe_layer_freq": vec![1; LAYERS],
        "n_shared_experts": 2,
        "num_experts_per_tok": 8,
        "routed_scaling_factor": 2.5,
        "sparse_attention_config": {
            "sparse_attention_freq": vec![1; LAYERS],
            "sparse_disable_index_value": vec![1; LAYERS],
            "sparse_init_block": 1,
        },
        "swiglu_alpha": 1.5,
        "use_gemma_norm": false,
    })))
    .unwrap();
    assert_eq!((config.num_experts_per_tok, config.shared_size(), config.norm), (8, 6144, NormKind::Plain));
    assert_eq!(
        (config.routed_scaling_factor, config.hidden_act),
        (2.5, HiddenAct::SwigluOai { alpha: 1.5, limit: 7.0 })
    );
    let msa = MsaConfig { init_blocks: 1, ..MSA };
    let layer = LayerConfig { attention: AttentionKind::Sparse(msa), ffn: FfnKind::Moe };
    assert_eq!(config.layers, vec![layer; LAYERS]);

    // Nothing asks for the width of dense layers or for index heads where there are none.
    let config = parse(&with_text(json!({
        "dense_intermediate_size": null,
        "moe_layer_freq": vec![1; LAYERS],
        "n_shared_experts": 0,
        "sparse_attention_config": { "sparse_num_index_heads": null, "use_sparse_attention": false },
    })))
    .unwrap();
    assert_eq!(config.layers, vec![LayerConfig { attention: AttentionKind::Full, ffn: FfnKind::Moe }; LAYERS]);
    assert_eq!(config.shared_size(), 0);

    // 128 x 128 blocks are a matter of the checkpoint, not of the variant.
    let blocks = json!({ "quantization_config": { "quant_method": "fp8", "weight_block_size": [128, 128] } });
    let config = parse(&with(blocks.clone())).unwrap();
    assert_eq!(config.weight_format, WeightFormat::Fp8Block { not_converted: Vec::new() });
    assert_eq!(parse(&with(json!({ "text_config": blocks }))).unwrap(), config);
}

#[test]
fn stop_ids_of_both_levels_count() {
    let config = parse(&with(json!({ "eos_token_id": [7, 200_020], "text_config": { "eos_token_id": 200_020 } })));
    assert_eq!(config.unwrap().eos_token_ids, [200_020, 7]);
}

#[test]
fn every_needed_field_is_missed_by_name() {
    let needed = [
        "dense_intermediate_size",
        "head_dim",
        "hidden_act",
        "hidden_size",
        "intermediate_size",
        "max_position_embeddings",
        "moe_layer_freq",
        "n_shared_experts",
        "num_attention_heads",
        "num_experts_per_tok",
        "num_hidden_layers",
        "num_key_value_heads",
        "num_local_experts",
        "rms_norm_eps",
        "rope_theta",
        "routed_scaling_factor",
        "shared_intermediate_size",
        "sparse_attention_config",
        "swiglu_alpha",
        "swiglu_limit",
        "use_gemma_norm",
        "vocab_size",
    ];
    let missing = |config: Value, field: &str| {
        let error = parse(&config).unwrap_err();
        assert!(matches!(error, ConfigError::MissingField { .. }), "{field}: {error}");
        assert!(error.to_string().starts_with(&format!("DIR/config.json has no field {field}")), "{field}: {error}");
    };
    for field in needed {
        missing(with_text(json!({ field: null })), &format!("text_config.{field}"));
    }
    for field in [
        "sparse_attention_freq",
        "sparse_block_size",
        "sparse_index_dim",
        "sparse_init_block",
        "sparse_local_block",
        "sparse_num_index_heads",
        "sparse_score_type",
        "sparse_topk_blocks",
        "use_sparse_attention",
    ] {
        let nested = json!({ "sparse_attention_config": { field: null } });
        missing(with_text(nested), &format!("text_config.sparse_attention_config.{field}"));
    }
    for field in [
        "index_n_heads",
        "index_head_dim",
        "index_block_size",
        "index_topk_blocks",
        "index_local_blocks",
        "swiglu_limit",
    ] {
        missing(merged(saved_again(), json!({ "text_config": { field: null } })), &format!("text_config.{field}"));
    }
    let rotary = json!({ "rotary_dim": null, "partial_rotary_factor": null });
    missing(with_text(rotary), "text_config.rotary_dim");
    // A file of the whole model without its language model.
    missing(with(json!({ "text_config": null })), "num_hidden_layers");
    for field in ["quant_method", "weight_block_size"] {
        let config = merged(with(mxfp8()), json!({ "quantization_config": { field: null } }));
        missing(config, &format!("quantization_config.{field}"));
    }
}

#[test]
fn bad_values_are_named_with_what_would_be_right() {
    let sparse = |changes: Value| json!({ "sparse_attention_config": changes });
    let cases = [
        // Lists of another length.
        (
            json!({ "moe_layer_freq": vec![1; 59] }),
            "`text_config.moe_layer_freq` has 59 entries, `num_hidden_layers` is 60",
        ),
        (
            sparse(json!({ "sparse_attention_freq": vec![1; 61] })),
            "`text_config.sparse_attention_config.sparse_attention_freq` has 61 entries, `num_hidden_layers` is 60",
        ),
        (
            sparse(json!({ "sparse_disable_index_value": [] })),
            "`text_config.sparse_attention_config.sparse_disable_index_value` has 0 entries, `num_hidden_layers` is 60",
        ),
        (
            json!({ "layer_types": vec!["full_attention"; 3] }),
            "`text_config.layer_types` has 3 entries, `num_hidden_layers` is 60",
        ),
        (
            json!({ "mlp_layer_types": vec!["dense"; 61] }),
            "`text_config.mlp_layer_types` has 61 entries, `num_hidden_layers` is 60",
        ),
        (json!({ "num_hidden_layers": 61 }), "`text_config.moe_layer_freq` has 60 entries, `num_hidden_layers` is 61"),
        // Entries that mean nothing.
        (json!({ "moe_layer_freq": vec![2; 60] }), "supported is 0 or 1 for every layer"),
        (
            json!({ "moe_layer_freq": 1 }),
            "`text_config.moe_layer_freq` should be a list with one entry per layer, found 1",
        ),
        (sparse(json!({ "sparse_attention_freq": vec!["1"; 60] })), "supported is 0 or 1 for every layer"),
        (
            json!({ "layer_types": vec!["sliding_attention"; 60] }),
            r#"supported is "full_attention" or "minimax_m3_sparse" for every layer"#,
        ),
        (json!({ "mlp_layer_types": vec!["moe"; 60] }), r#"supported is "dense" or "sparse" for every layer"#),
        // Spellings that do not agree.
        (
            json!({ "layer_types": vec!["full_attention"; 60] }),
            "`text_config.sparse_attention_config.sparse_attention_freq` and `text_config.layer_types` do not say the same",
        ),
        (
            json!({ "mlp_layer_types": vec!["sparse"; 60] }),
            "`text_config.moe_layer_freq` and `text_config.mlp_layer_types` do not say the same",
        ),
        // Sparse attention that does not fit the model.
        (
            sparse(json!({ "sparse_num_index_heads": 8 })),
            "`text_config.sparse_attention_config.sparse_num_index_heads` is 8, `num_key_value_heads` is 4",
        ),
        (
            sparse(json!({ "sparse_index_dim": 32 })),
            "`text_config.sparse_attention_config.sparse_index_dim` is 32, less than the 64 rotated channels of a head",
        ),
        (
            sparse(json!({ "sparse_block_size": 64 })),
            "`text_config.sparse_attention_config.sparse_block_size` is 64, supported is 128",
        ),
        (
            sparse(json!({ "sparse_block_size": 0 })),
            "`text_config.sparse_attention_config.sparse_block_size` should be between 1",
        ),
        (
            sparse(json!({ "sparse_topk_blocks": 0 })),
            "`text_config.sparse_attention_config.sparse_topk_blocks` should be between 1",
        ),
        (
            sparse(json!({ "sparse_local_block": 0 })),
            "`text_config.sparse_attention_config.sparse_local_block` should be between 1",
        ),
        (
            sparse(json!({ "sparse_init_block": 16 })),
            "`text_config.sparse_attention_config.sparse_init_block` 16 and \
             `text_config.sparse_attention_config.sparse_local_block` 1 exceed \
             `text_config.sparse_attention_config.sparse_topk_blocks` 16 together",
        ),
        (
            sparse(json!({ "sparse_score_type": "mean" })),
            r#"`text_config.sparse_attention_config.sparse_score_type` is "mean", supported is "max""#,
        ),
        (
            sparse(json!({ "sparse_disable_index_value": vec![0; 60] })),
            "supported is 1 (no index values) for every layer with sparse attention",
        ),
        (
            sparse(json!({ "use_sparse_attention": 1 })),
            "`text_config.sparse_attention_config.use_sparse_attention` should be true or false, found 1",
        ),
        (
            json!({ "sparse_attention_config": true }),
            "`text_config.sparse_attention_config` should be an object, found true",
        ),
        // Arithmetic that is not implemented.
        (json!({ "hidden_act": "silu" }), r#"`text_config.hidden_act` is "silu", supported is "swigluoai""#),
        (
            json!({ "qk_norm_type": "per_layer" }),
            r#"`text_config.qk_norm_type` is "per_layer", supported is "per_head""#,
        ),
        (json!({ "attention_output_gate": true }), "`text_config.attention_output_gate` is true, supported is false"),
        (json!({ "norm_topk_prob": false }), "`text_config.norm_topk_prob` is false, supported is true"),
        (json!({ "swiglu_beta": 0.5 }), "`text_config.swiglu_beta` is 0.5, supported is 1"),
        (json!({ "use_gemma_norm": "yes" }), r#"`text_config.use_gemma_norm` should be true or false, found "yes""#),
        (json!({ "swiglu_limit": 0 }), "`text_config.swiglu_limit` should be a number above zero, found 0"),
        (json!({ "swiglu_alpha": 1e300 }), "`text_config.swiglu_alpha` should be a number above zero"),
        (json!({ "routed_scaling_factor": -2.0 }), "`text_config.routed_scaling_factor` should be a number above zero"),
        (json!({ "scoring_func": "softmax" }), r#"`text_config.scoring_func` is "softmax", supported is "sigmoid""#),
        (json!({ "tie_word_embeddings": true }), "`text_config.tie_word_embeddings` is true, supported is false"),
        (json!({ "dtype": "float32" }), r#"`text_config.dtype` is "float32", supported is "bfloat16""#),
        (json!({ "rope_scaling": { "type": "yarn" } }), r#"`text_config.rope_scaling.type` is "yarn""#),
    ];
    let top_level = [
        (json!({ "torch_dtype": "float16" }), r#"`torch_dtype` is "float16", supported is "bfloat16""#),
        (json!({ "tie_word_embeddings": true }), "`tie_word_embeddings` is true, supported is false"),
        (json!({ "text_config": [] }), "`text_config` should be an object, found []"),
        (
            json!({ "quantization_config": { "quant_method": "mxfp8", "weight_block_size": [128, 128] } }),
            r#"`quantization_config.weight_block_size` is [128,128], supported is [1,32] with `quant_method` "mxfp8""#,
        ),
        (
            json!({ "quantization_config": { "quant_method": "fp8", "weight_block_size": [1, 32] } }),
            r#"`quantization_config.weight_block_size` is [1,32], supported is [128,128] with `quant_method` "fp8""#,
        ),
        (
            merged(mxfp8(), json!({ "quantization_config": { "moe_quant_algo": "NVFP4" } })),
            r#"`quantization_config.moe_quant_algo` is "NVFP4", supported is null"#,
        ),
        (
            merged(mxfp8(), json!({ "quantization_config": { "ignored_layers": [7] } })),
            "`quantization_config.ignored_layers` should be a list of module names",
        ),
        (
            merged(mxfp8(), json!({ "text_config": { "quantization_config": { "quant_method": "fp8" } } })),
            "`quantization_config` and `text_config.quantization_config` do not say the same",
        ),
    ];
    let cases = cases.map(|(text, message)| (json!({ "text_config": text }), message));
    let mut failures = Vec::new();
    for (changes, message) in cases.into_iter().chain(top_level) {
        match parse(&with(changes.clone())) {
            Ok(_) => failures.push(format!("{changes}: accepted")),
            Err(error) => {
                let text = error.to_string();
                if !text.starts_with("DIR/config.json") || !text.contains(message) {
                    failures.push(format!("{changes}: {text}"));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn layers_can_be_cut_within_the_checkpoint() {
    let config = parse(&published()).unwrap().with_max_layers(4).unwrap();
    assert_eq!((config.num_hidden_layers, config.checkpoint_layers, config.layers.len()), (4, 60, 60));
}
