// SPDX-License-Identifier: MIT OR Apache-2.0

//! `config.json` in both spellings, everything that can be wrong with it, and the stop ids.

mod m3;

use std::path::Path;

use model_minimax::config::{
    AttentionKind, ConfigError, EosSource, FfnKind, HiddenAct, LayerConfig, ModelConfig, NormKind, QkNorm, StopIds,
    Variant, WeightFormat, tokenizer_eos_token,
};
use model_minimax::cpu_tiles::Format;
use op_testkit::golden;
use serde_json::{Value, json};

use crate::scratch::Scratch;

/// The fields of the published MiniMax-M2.7 configuration.
fn published() -> Value {
    json!({
        "architectures": ["MiniMaxM2ForCausalLM"],
        "attn_type_list": vec![1; 62],
        "auto_map": { "AutoConfig": "configuration_minimax_m2.MiniMaxM2Config" },
        "dtype": "bfloat16",
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 3072,
        "intermediate_size": 1536,
        "max_position_embeddings": 204_800,
        "model_type": "minimax_m2",
        "mtp_transformer_layers": 1,
        "num_attention_heads": 48,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 62,
        "num_key_value_heads": 8,
        "num_local_experts": 256,
        "num_mtp_modules": 3,
        "qk_norm_type": "per_layer",
        "quantization_config": {
            "activation_scheme": "dynamic",
            "fmt": "float8_e4m3fn",
            "modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"],
            "quant_method": "fp8",
            "weight_block_size": [128, 128],
        },
        "rms_norm_eps": 1e-6,
        "rope_theta": 5_000_000,
        "rotary_dim": 64,
        "scoring_func": "sigmoid",
        "shared_intermediate_size": 0,
        "tie_word_embeddings": false,
        "transformers_version": "4.46.1",
        "use_mtp": true,
        "use_qk_norm": true,
        "use_routing_bias": true,
        "vocab_size": 200_064,
    })
}

fn parse(config: &Value) -> Result<ModelConfig, ConfigError> {
    ModelConfig::from_json(&config.to_string(), Path::new("DIR/config.json"))
}

/// `base` with some fields replaced, of nested objects too; null takes a field out.
fn merged(mut base: Value, changes: Value) -> Value {
    match changes {
        Value::Object(changes) if base.is_object() => {
            for (key, value) in changes {
                base[&key] = merged(base[&key].take(), value);
            }
            base
        }
        value => value,
    }
}

fn with(changes: Value) -> Value {
    merged(published(), changes)
}

#[test]
fn published_config_gives_the_published_model() {
    let config = parse(&published()).unwrap();
    assert_eq!(config.variant, Variant::M27);
    assert_eq!((config.hidden_size, config.intermediate_size, config.vocab_size), (3072, 1536, 200_064));
    assert_eq!((config.num_hidden_layers, config.checkpoint_layers, config.mtp_layers), (62, 62, 3));
    assert_eq!((config.num_attention_heads, config.num_key_value_heads, config.head_dim), (48, 8, 128));
    assert_eq!((config.q_size(), config.kv_size()), (6144, 1024));
    assert_eq!((config.rotary_dim, config.rope_theta, config.rms_norm_eps), (64, 5e6, 1e-6));
    assert_eq!((config.num_local_experts, config.num_experts_per_tok), (256, 8));
    assert_eq!((config.hidden_act, config.qk_norm), (HiddenAct::Silu, QkNorm::PerLayer));
    assert_eq!(config.max_position_embeddings, 204_800);
    assert_eq!((config.norm, config.tensor_prefix), (NormKind::Plain, ""));
    assert_eq!((config.routed_scaling_factor, config.shared_size()), (1.0, 0));
    let layer = LayerConfig { attention: AttentionKind::Full, ffn: FfnKind::Moe };
    assert_eq!(config.layers, vec![layer; 62]);
    assert_eq!(config.eos_token_ids, Vec::<i64>::new());
}

#[test]
fn config_saved_again_by_transformers_5_gives_the_same_model() {
    let mut saved = with(json!({
        "attn_type_list": null,
        "bos_token_id": 200_034,
        "dtype": null,
        "initializer_range": 0.02,
        "layer_types": vec!["full_attention"; 62],
        "output_router_logits": false,
        "pad_token_id": null,
        "quantization_config": { "dequantize": false },
        "rope_parameters": { "partial_rotary_factor": 0.5, "rope_theta": 5_000_000.0, "rope_type": "default" },
        "rope_theta": null,
        "rotary_dim": null,
        "sliding_window": null,
        "torch_dtype": "bfloat16",
        "transformers_version": "5.24.0",
    }));
    // The class of transformers does not have these; what it implements is what the published values say.
    for field in ["qk_norm_type", "scoring_func", "shared_intermediate_size", "use_qk_norm", "use_routing_bias"] {
        saved.as_object_mut().unwrap().remove(field).unwrap();
    }
    assert_eq!(parse(&saved).unwrap(), parse(&published()).unwrap());

    saved["rope_parameters"]["partial_rotary_factor"] = Value::Null;
    saved["partial_rotary_factor"] = json!(0.5);
    assert_eq!(parse(&saved).unwrap(), parse(&published()).unwrap());
}

#[test]
fn golden_configs_parse() {
    let models = golden::dir().join("models");
    let bf16 = ModelConfig::load(&models.join("m27-tiny-bf16")).unwrap();
    assert_eq!((bf16.hidden_size, bf16.num_attention_heads, bf16.head_dim, bf16.rotary_dim), (128, 6, 32, 16));
    assert_eq!(bf16.weight_format, WeightFormat::Bf16);
    let fp8 = ModelConfig::load(&models.join("m27-tiny-fp8")).unwrap();
    assert_eq!((fp8.hidden_size, fp8.num_experts_per_tok), (256, 2));
    assert_eq!(fp8.weight_format.of("model.layers.0.self_attn.q_proj"), Format::Fp8Block);
}

#[test]
fn variants_have_short_names() {
    assert_eq!("m27".parse::<Variant>().unwrap(), Variant::M27);
    assert_eq!("m3".parse::<Variant>().unwrap(), Variant::M3);
    let error = "m28".parse::<Variant>().unwrap_err();
    assert_eq!(error.to_string(), r#"unknown variant "m28"; known are "m27" (MiniMax-M2.7) and "m3" (MiniMax-M3)"#);
}

#[test]
fn every_needed_field_is_missed_by_name() {
    let needed = [
        "head_dim",
        "hidden_size",
        "intermediate_size",
        "max_position_embeddings",
        "model_type",
        "num_attention_heads",
        "num_experts_per_tok",
        "num_hidden_layers",
        "num_key_value_heads",
        "num_local_experts",
        "rms_norm_eps",
        "rope_theta",
        "rotary_dim",
        "vocab_size",
    ];
    for field in needed {
        let error = parse(&with(json!({ field: null }))).unwrap_err();
        assert!(matches!(error, ConfigError::MissingField { .. }), "{error}");
        assert!(error.to_string().starts_with(&format!("DIR/config.json has no field {field}")), "{error}");
    }
    for field in ["quant_method", "weight_block_size"] {
        let error = parse(&with(json!({ "quantization_config": { field: null } }))).unwrap_err();
        assert_eq!(error.to_string(), format!("DIR/config.json has no field quantization_config.{field}"));
    }
}

#[test]
fn bad_values_are_named_with_what_would_be_right() {
    let cases = [
        (json!({ "model_type": "llama" }), r#"`model_type` is "llama", known are "minimax_m2""#),
        (json!({ "model_type": 7 }), "`model_type` is 7, known are"),
        // Sizes.
        (json!({ "hidden_size": 0 }), "`hidden_size` should be between 1 and 16777216, found 0"),
        (json!({ "num_hidden_layers": 1_000_000 }), "`num_hidden_layers` should be between 1 and 1024, found 1000000"),
        (json!({ "vocab_size": "many" }), r#"`vocab_size` should be a whole number, found "many""#),
        (json!({ "vocab_size": -1 }), "`vocab_size` should be a whole number, found -1"),
        (json!({ "vocab_size": 1.5 }), "`vocab_size` should be a whole number, found 1.5"),
        (json!({ "rms_norm_eps": 0 }), "`rms_norm_eps` should be a number above zero, found 0"),
        // Contradictions.
        (json!({ "num_key_value_heads": 7 }), "`num_attention_heads` 48 is not a multiple of `num_key_value_heads` 7"),
        (json!({ "num_experts_per_tok": 257 }), "`num_experts_per_tok` 257 exceeds `num_local_experts` 256"),
        (json!({ "rotary_dim": 130 }), "an even number up to `head_dim` 128, found 130"),
        (json!({ "rotary_dim": 63 }), "an even number up to `head_dim` 128, found 63"),
        (
            json!({ "partial_rotary_factor": 0.25 }),
            "`rotary_dim` is 64, `partial_rotary_factor` times `head_dim` is 32",
        ),
        (json!({ "attn_type_list": vec![1; 61] }), "`attn_type_list` has 61 entries, `num_hidden_layers` is 62"),
        (
            json!({ "layer_types": vec!["full_attention"; 63] }),
            "`layer_types` has 63 entries, `num_hidden_layers` is 62",
        ),
        (json!({ "attn_type_list": 1 }), "`attn_type_list` should be a list with one entry per layer, found 1"),
        // Values that this crate does not implement.
        (json!({ "attn_type_list": vec![0; 62] }), "supported is 1 (full attention) for every layer"),
        (json!({ "layer_types": vec!["sliding_attention"; 62] }), r#"supported is "full_attention" for every layer"#),
        (json!({ "hidden_act": "gelu" }), r#"`hidden_act` is "gelu", supported is "silu""#),
        (json!({ "scoring_func": "softmax" }), r#"`scoring_func` is "softmax", supported is "sigmoid""#),
        (json!({ "qk_norm_type": "per_head" }), r#"`qk_norm_type` is "per_head", supported is "per_layer""#),
        (json!({ "use_qk_norm": false }), "`use_qk_norm` is false, supported is true"),
        (json!({ "use_routing_bias": false }), "`use_routing_bias` is false, supported is true"),
        (json!({ "shared_intermediate_size": 1536 }), "`shared_intermediate_size` is 1536, supported is 0"),
        (json!({ "tie_word_embeddings": true }), "`tie_word_embeddings` is true, supported is false"),
        (json!({ "sliding_window": 4096 }), "`sliding_window` is 4096, supported is null"),
        (json!({ "dtype": "float16" }), r#"`dtype` is "float16", supported is "bfloat16""#),
        (json!({ "torch_dtype": "float32" }), r#"`torch_dtype` is "float32", supported is "bfloat16""#),
        (
            json!({ "rope_parameters": { "rope_type": "yarn" } }),
            r#"`rope_parameters.rope_type` is "yarn", supported is "default""#,
        ),
        (json!({ "rope_scaling": { "type": "linear" } }), r#"`rope_scaling.type` is "linear", supported is "default""#),
        (json!({ "rope_parameters": [] }), "`rope_parameters` should be an object, found []"),
        // Quantisation.
        (
            json!({ "quantization_config": { "quant_method": "awq" } }),
            r#"`quantization_config.quant_method` is "awq", supported is "fp8" or "mxfp8""#,
        ),
        (
            json!({ "quantization_config": { "quant_method": "mxfp8" } }),
            r#"`quantization_config.weight_block_size` is [128,128], supported is [1,32] with `quant_method` "mxfp8""#,
        ),
        (
            json!({ "quantization_config": { "weight_block_size": [1, 32] } }),
            r#"`quantization_config.weight_block_size` is [1,32], supported is [128,128] with `quant_method` "fp8""#,
        ),
        (
            json!({ "quantization_config": { "activation_scheme": "static" } }),
            r#"`quantization_config.activation_scheme` is "static", supported is "dynamic""#,
        ),
        (
            json!({ "quantization_config": { "fmt": "float8_e5m2" } }),
            r#"`quantization_config.fmt` is "float8_e5m2", supported is "float8_e4m3fn""#,
        ),
        (
            json!({ "quantization_config": { "modules_to_not_convert": "gate" } }),
            "`quantization_config.modules_to_not_convert` should be a list of module names",
        ),
        (json!({ "quantization_config": "fp8" }), r#"`quantization_config` should be an object, found "fp8""#),
        (
            json!({ "eos_token_id": "</s>" }),
            r#"`eos_token_id` should be a token id or a list of token ids, found "</s>""#,
        ),
    ];
    let mut failures = Vec::new();
    for (changes, message) in cases {
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
fn unreadable_files_are_named() {
    let folder = Scratch::new();
    let error = ModelConfig::load(folder.path()).unwrap_err();
    assert!(matches!(error, ConfigError::Read { .. }), "{error}");
    assert!(error.to_string().contains(&folder.path().join("config.json").display().to_string()), "{error}");

    for text in ["", "{", "[1]", "\"minimax_m2\""] {
        folder.write("config.json", text);
        let error = ModelConfig::load(folder.path()).unwrap_err();
        assert!(matches!(error, ConfigError::Json { .. }), "{text}: {error}");
    }
}

#[test]
fn layers_can_be_cut_within_the_checkpoint() {
    let config = parse(&published()).unwrap().with_max_layers(4).unwrap();
    assert_eq!((config.num_hidden_layers, config.checkpoint_layers), (4, 62));
    assert_eq!(config.clone().with_max_layers(62).unwrap().num_hidden_layers, 62);
    for layers in [0, 63] {
        let error = config.clone().with_max_layers(layers).unwrap_err();
        let expected = format!("max layers should be between 1 and 62 (the layers of the checkpoint), found {layers}");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn mtp_layers_need_use_mtp() {
    let layers = |changes: Value| parse(&with(changes)).unwrap().mtp_layers;
    assert_eq!(layers(json!({ "mtp_transformer_layers": 2 })), 6);
    assert_eq!(layers(json!({ "num_mtp_modules": 0 })), 0);
    assert_eq!(layers(json!({ "use_mtp": false })), 0);
    assert_eq!(layers(json!({ "use_mtp": null })), 0);
}

#[test]
fn modules_to_not_convert_match_whole_components() {
    let not_converted = || vec!["gate".into(), "lm_head".into(), "model.layers.1".into(), "layers.2.self_attn".into()];
    for (format, scaled) in [
        (WeightFormat::Fp8Block { not_converted: not_converted() }, Format::Fp8Block),
        (WeightFormat::Mxfp8 { not_converted: not_converted() }, Format::Mxfp8),
    ] {
        for (module, is_scaled) in [
            ("model.layers.0.self_attn.q_proj", true),
            ("model.layers.0.block_sparse_moe.gate", false),
            ("model.layers.0.mlp.gate_proj", true),
            ("lm_head", false),
            ("model.layers.1.self_attn.q_proj", false),
            ("language_model.model.layers.1.self_attn.q_proj", false),
            ("model.layers.11.self_attn.q_proj", true),
            ("model.layers.2.self_attn.o_proj", false),
            ("model.layers.2.block_sparse_moe.experts.0.w1", true),
        ] {
            assert_eq!(format.of(module), if is_scaled { scaled } else { Format::Bf16 }, "{module}");
        }
    }
    assert_eq!(WeightFormat::Bf16.of("model.layers.0.self_attn.q_proj"), Format::Bf16);
}

#[test]
fn stop_ids_are_the_union_of_all_files() {
    let folder = Scratch::new();
    folder.write("generation_config.json", r#"{ "eos_token_id": [200020, 7, 200020] }"#);
    let config = parse(&with(json!({ "eos_token_id": 200_020 }))).unwrap();
    let stops = StopIds::collect(folder.path(), &config, Some(9)).unwrap();
    assert_eq!(stops.ids.keys().copied().collect::<Vec<_>>(), [7, 9, 200_020]);
    assert_eq!(stops.ids[&7], [EosSource::GenerationConfig]);
    assert_eq!(stops.ids[&9], [EosSource::Tokenizer]);
    assert_eq!(stops.ids[&200_020], [EosSource::GenerationConfig, EosSource::Config]);
    assert!(stops.contains(9) && !stops.contains(8));
    assert!(stops.outside_vocab.is_empty());
}

#[test]
fn stop_ids_outside_the_vocabulary_are_set_aside() {
    let folder = Scratch::new();
    folder.write("generation_config.json", r#"{ "eos_token_id": 200064 }"#);
    let config = parse(&with(json!({ "eos_token_id": [-1, 200_063, 99_999_999_999_u64] }))).unwrap();
    let stops = StopIds::collect(folder.path(), &config, None).unwrap();
    assert_eq!(stops.ids.keys().copied().collect::<Vec<_>>(), [200_063]);
    let outside =
        [(200_064, EosSource::GenerationConfig), (-1, EosSource::Config), (99_999_999_999, EosSource::Config)];
    assert_eq!(stops.outside_vocab, outside);
}

#[test]
fn stop_ids_may_be_absent_everywhere() {
    let folder = Scratch::new();
    let config = parse(&published()).unwrap();
    assert_eq!(StopIds::collect(folder.path(), &config, None).unwrap(), StopIds::default());
    folder.write("generation_config.json", r#"{ "eos_token_id": "end" }"#);
    let error = StopIds::collect(folder.path(), &config, None).unwrap_err();
    assert!(error.to_string().contains("generation_config.json: `eos_token_id` should be a token id"), "{error}");
}

#[test]
fn eos_token_of_the_tokenizer_is_read_in_both_forms() {
    let folder = Scratch::new();
    assert_eq!(tokenizer_eos_token(folder.path()).unwrap(), None);
    for (text, token) in [
        (r#"{ "eos_token": "[e~[" }"#, Some("[e~[")),
        (r#"{ "eos_token": { "content": "[e~[", "special": true } }"#, Some("[e~[")),
        (r#"{ "eos_token": null }"#, None),
        (r#"{ "bos_token": "]~!b[" }"#, None),
    ] {
        folder.write("tokenizer_config.json", text);
        assert_eq!(tokenizer_eos_token(folder.path()).unwrap().as_deref(), token, "{text}");
    }
    folder.write("tokenizer_config.json", r#"{ "eos_token": 7 }"#);
    let error = tokenizer_eos_token(folder.path()).unwrap_err();
    assert!(error.to_string().contains("`eos_token` should be a string or an object with `content`"), "{error}");
}
