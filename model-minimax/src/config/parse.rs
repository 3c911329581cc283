// SPDX-License-Identifier: MIT OR Apache-2.0

//! From the fields of `config.json` to a [`ModelConfig`].

use std::path::Path;

use serde_json::Value;

use super::fields::{COUNT, Fields, SIZE};
use super::{
    AttentionKind, ConfigError, FP8_BLOCK, FfnKind, HiddenAct, LayerConfig, MSA_BLOCK, MX_BLOCK, ModelConfig,
    MsaConfig, NormKind, QkNorm, ScoreType, Variant, WeightFormat,
};

pub(super) fn parse(text: &str, path: &Path) -> Result<ModelConfig, ConfigError> {
    let root = Fields::parse(text, path)?;
    match variant(&root)? {
        Variant::M27 => m27(&root),
        Variant::M3 => match root.optional_object("text_config")? {
            Some(text) => m3(&root, &text, "language_model."),
            None => m3(&root, &root, ""),
        },
    }
}

fn variant(root: &Fields<'_>) -> Result<Variant, ConfigError> {
    let value = root.get("model_type").ok_or_else(|| root.missing("model_type"))?;
    match value.as_str() {
        Some("minimax_m2") => Ok(Variant::M27),
        Some(name) if name.starts_with("minimax_m3") => Ok(Variant::M3),
        _ => Err(ConfigError::UnknownModelType { path: root.path(), found: value.to_string() }),
    }
}

/// What the variants say in fields of their own.
struct Differences {
    variant: Variant,
    tensor_prefix: &'static str,
    mtp_layers: usize,
    layers: Vec<LayerConfig>,
    norm: NormKind,
    qk_norm: QkNorm,
    hidden_act: HiddenAct,
    routed_scaling_factor: f32,
    shared_intermediate_size: usize,
    n_shared_experts: usize,
}

fn m27(root: &Fields<'_>) -> Result<ModelConfig, ConfigError> {
    let layers = root.size("num_hidden_layers", COUNT)?;
    root.only_per_layer("attn_type_list", layers, "1 (full attention) for every layer", |v| v == 1)?;
    root.only_per_layer("layer_types", layers, "\"full_attention\" for every layer", |v| v == "full_attention")?;
    root.only("qk_norm_type", "\"per_layer\"", |v| v == "per_layer")?;
    root.only("hidden_act", "\"silu\"", |v| v == "silu")?;
    root.only("shared_intermediate_size", "0 (no shared expert)", |v| v == 0)?;
    let differences = Differences {
        variant: Variant::M27,
        tensor_prefix: "",
        mtp_layers: mtp_layers(root)?,
        layers: vec![LayerConfig { attention: AttentionKind::Full, ffn: FfnKind::Moe }; layers],
        norm: NormKind::Plain,
        qk_norm: QkNorm::PerLayer,
        hidden_act: HiddenAct::Silu,
        routed_scaling_factor: 1.0,
        shared_intermediate_size: 0,
        n_shared_experts: 0,
    };
    model(root, root, differences)
}

/// `text` holds the fields of the language model; in a file of the whole model it is nested in `root`.
fn m3(root: &Fields<'_>, text: &Fields<'_>, tensor_prefix: &'static str) -> Result<ModelConfig, ConfigError> {
    text.only("qk_norm_type", "\"per_head\"", |v| v == "per_head")?;
    text.only("attention_output_gate", "false", |v| v == false)?;
    text.only("norm_topk_prob", "true", |v| v == true)?;
    text.only("swiglu_beta", "1", |v| v.as_f64() == Some(1.0))?;
    let differences = Differences {
        variant: Variant::M3,
        tensor_prefix,
        // Prediction heads have a name of their own there, not a layer number.
        mtp_layers: 0,
        layers: m3_layers(text)?,
        norm: m3_norm(text)?,
        qk_norm: QkNorm::PerHead,
        hidden_act: m3_activation(text)?,
        routed_scaling_factor: text.positive("routed_scaling_factor")? as f32,
        shared_intermediate_size: text.size("shared_intermediate_size", 0..=*SIZE.end())?,
        n_shared_experts: text.size("n_shared_experts", 0..=*COUNT.end())?,
    };
    model(root, text, differences)
}

/// Whether a transformers class of M3 wrote the file. It does not write what the class has only one way to do.
fn is_saved_again(text: &Fields<'_>) -> bool {
    text.get("layer_types").is_some()
}

fn m3_norm(text: &Fields<'_>) -> Result<NormKind, ConfigError> {
    match text.flag("use_gemma_norm")? {
        Some(true) => Ok(NormKind::Gemma),
        Some(false) => Ok(NormKind::Plain),
        None if is_saved_again(text) => Ok(NormKind::Gemma),
        None => Err(text.missing("use_gemma_norm")),
    }
}

fn m3_activation(text: &Fields<'_>) -> Result<HiddenAct, ConfigError> {
    // The class of transformers writes "silu" and computes SwiGLU-OAI, whose parameters it writes too.
    let silu_means_oai = is_saved_again(text);
    text.get("hidden_act").ok_or_else(|| text.missing("hidden_act"))?;
    text.only("hidden_act", "\"swigluoai\"", |v| v == "swigluoai" || (silu_means_oai && v == "silu"))?;
    Ok(HiddenAct::SwigluOai {
        alpha: text.positive("swiglu_alpha")? as f32,
        limit: text.positive("swiglu_limit")? as f32,
    })
}

fn m3_layers(text: &Fields<'_>) -> Result<Vec<LayerConfig>, ConfigError> {
    let layers = text.size("num_hidden_layers", COUNT)?;
    let moe = agreeing(
        text,
        [
            ("moe_layer_freq", flags_per_layer(text, "moe_layer_freq", layers)?),
            (
                "mlp_layer_types",
                text.choice_per_layer(
                    "mlp_layer_types",
                    layers,
                    "\"dense\" or \"sparse\" for every layer",
                    ["dense".into(), "sparse".into()],
                )?,
            ),
        ],
    )?
    .ok_or_else(|| text.missing("moe_layer_freq (or mlp_layer_types)"))?;

    let published = text.optional_object("sparse_attention_config")?;
    let sparse = agreeing(
        text,
        [
            (
                "sparse_attention_config.sparse_attention_freq",
                match &published {
                    Some(config) => sparse_layers(config, layers)?,
                    None => None,
                },
            ),
            (
                "layer_types",
                text.choice_per_layer(
                    "layer_types",
                    layers,
                    "\"full_attention\" or \"minimax_m3_sparse\" for every layer",
                    ["full_attention".into(), "minimax_m3_sparse".into()],
                )?,
            ),
        ],
    )?
    .ok_or_else(|| text.missing("sparse_attention_config (or layer_types)"))?;

    let msa = match &published {
        _ if !sparse.contains(&true) => None,
        Some(config) => Some(published_msa(text, config, &sparse)?),
        None => Some(saved_msa(text)?),
    };
    let dense = match moe.contains(&false) {
        true => Some(FfnKind::Dense { intermediate_size: text.size("dense_intermediate_size", SIZE)? }),
        false => None,
    };
    let attention = |sparse: bool| msa.filter(|_| sparse).map_or(AttentionKind::Full, AttentionKind::Sparse);
    let ffn = |moe: bool| dense.filter(|_| !moe).unwrap_or(FfnKind::Moe);
    let layers = sparse.into_iter().zip(moe);
    Ok(layers.map(|(sparse, moe)| LayerConfig { attention: attention(sparse), ffn: ffn(moe) }).collect())
}

fn flags_per_layer(fields: &Fields<'_>, field: &str, layers: usize) -> Result<Option<Vec<bool>>, ConfigError> {
    fields.choice_per_layer(field, layers, "0 or 1 for every layer", [0.into(), 1.into()])
}

/// The layers with sparse attention, as the published file says it.
fn sparse_layers(config: &Fields<'_>, layers: usize) -> Result<Option<Vec<bool>>, ConfigError> {
    let listed = flags_per_layer(config, "sparse_attention_freq", layers)?;
    match config.flag("use_sparse_attention")? {
        Some(false) => Ok(Some(vec![false; layers])),
        Some(true) => listed.map(Some).ok_or_else(|| config.missing("sparse_attention_freq")),
        None => Err(config.missing("use_sparse_attention")),
    }
}

/// The answer of two spellings of one thing; an error if they do not agree.
fn agreeing<T: PartialEq>(text: &Fields<'_>, spellings: [(&str, Option<T>); 2]) -> Result<Option<T>, ConfigError> {
    match spellings {
        [(a, Some(x)), (b, Some(y))] if x != y => {
            let [a, b] = [text.full_name(a), text.full_name(b)];
            Err(text.contradiction(format!("`{a}` and `{b}` do not say the same")))
        }
        [(_, x), (_, y)] => Ok(x.or(y)),
    }
}

fn published_msa(text: &Fields<'_>, config: &Fields<'_>, sparse: &[bool]) -> Result<MsaConfig, ConfigError> {
    // A layer that does not disable it has an index value projection, which nobody has published.
    if let Some(disabled) = flags_per_layer(config, "sparse_disable_index_value", sparse.len())? {
        let supported = "1 (no index values) for every layer with sparse attention";
        let all = sparse.iter().zip(&disabled).all(|(sparse, disabled)| !sparse || *disabled);
        config.only("sparse_disable_index_value", supported, |_| all)?;
    }
    config.get("sparse_score_type").ok_or_else(|| config.missing("sparse_score_type"))?;
    config.only("sparse_score_type", "\"max\"", |v| v == "max")?;
    msa(
        text,
        config,
        [
            "sparse_num_index_heads",
            "sparse_index_dim",
            "sparse_block_size",
            "sparse_topk_blocks",
            "sparse_init_block",
            "sparse_local_block",
        ],
    )
}

/// As a transformers class writes it. It knows neither initial blocks nor another score than the maximum.
fn saved_msa(text: &Fields<'_>) -> Result<MsaConfig, ConfigError> {
    msa(
        text,
        text,
        [
            "index_n_heads",
            "index_head_dim",
            "index_block_size",
            "index_topk_blocks",
            "index_init_blocks",
            "index_local_blocks",
        ],
    )
}

fn msa(text: &Fields<'_>, config: &Fields<'_>, names: [&str; 6]) -> Result<MsaConfig, ConfigError> {
    let [heads, dim, block, topk, init, local] = names;
    let init_blocks = match config.optional_size(init, 0..=*SIZE.end())? {
        None if is_saved_again(text) => 0,
        found => found.ok_or_else(|| config.missing(init))?,
    };
    let msa = MsaConfig {
        index_heads: config.size(heads, COUNT)?,
        index_dim: config.size(dim, SIZE)?,
        block: config.size(block, SIZE)?,
        topk: config.size(topk, SIZE)?,
        init_blocks,
        local_blocks: config.size(local, SIZE)?,
        score_type: ScoreType::Max,
    };
    let kv_heads = text.size("num_key_value_heads", COUNT)?;
    if msa.index_heads != kv_heads {
        return Err(text.contradiction(format!(
            "`{}` is {}, `num_key_value_heads` is {kv_heads}; each index head selects for one of them",
            config.full_name(heads),
            msa.index_heads
        )));
    }
    let (_, rotary_dim) = rope(text, text.size("head_dim", SIZE)?)?;
    if msa.index_dim < rotary_dim {
        return Err(text.contradiction(format!(
            "`{}` is {}, less than the {rotary_dim} rotated channels of a head",
            config.full_name(dim),
            msa.index_dim
        )));
    }
    config.only(block, "128 (the page of the cache)", |v| *v == MSA_BLOCK)?;
    if msa.init_blocks + msa.local_blocks > msa.topk {
        return Err(text.contradiction(format!(
            "`{}` {} and `{}` {} exceed `{}` {} together",
            config.full_name(init),
            msa.init_blocks,
            config.full_name(local),
            msa.local_blocks,
            config.full_name(topk),
            msa.topk
        )));
    }
    Ok(msa)
}

/// What all variants say in the same fields.
fn model(root: &Fields<'_>, text: &Fields<'_>, differences: Differences) -> Result<ModelConfig, ConfigError> {
    let num_attention_heads = text.size("num_attention_heads", COUNT)?;
    let num_key_value_heads = text.size("num_key_value_heads", COUNT)?;
    let head_dim = text.size("head_dim", SIZE)?;
    let num_local_experts = text.size("num_local_experts", COUNT)?;
    let num_experts_per_tok = text.size("num_experts_per_tok", COUNT)?;
    if num_attention_heads % num_key_value_heads != 0 {
        return Err(text.contradiction(format!(
            "`num_attention_heads` {num_attention_heads} is not a multiple of `num_key_value_heads` {num_key_value_heads}"
        )));
    }
    if num_experts_per_tok > num_local_experts {
        return Err(text.contradiction(format!(
            "`num_experts_per_tok` {num_experts_per_tok} exceeds `num_local_experts` {num_local_experts}"
        )));
    }
    text.only("use_qk_norm", "true", |v| v == true)?;
    text.only("scoring_func", "\"sigmoid\"", |v| v == "sigmoid")?;
    text.only("use_routing_bias", "true", |v| v == true)?;
    text.only("attention_bias", "false", |v| v == false)?;
    text.only("sliding_window", "null", |_| false)?;
    for fields in [root, text] {
        fields.only("tie_word_embeddings", "false", |v| v == false)?;
        for field in ["dtype", "torch_dtype"] {
            fields.only(field, "\"bfloat16\"", |v| v == "bfloat16")?;
        }
    }
    let (rope_theta, rotary_dim) = rope(text, head_dim)?;
    let mut eos_token_ids = text.token_ids("eos_token_id")?;
    for id in root.token_ids("eos_token_id")? {
        if !eos_token_ids.contains(&id) {
            eos_token_ids.push(id);
        }
    }
    let Differences {
        variant,
        tensor_prefix,
        mtp_layers,
        layers,
        norm,
        qk_norm,
        hidden_act,
        routed_scaling_factor,
        shared_intermediate_size,
        n_shared_experts,
    } = differences;
    Ok(ModelConfig {
        path: root.path(),
        variant,
        tensor_prefix,
        hidden_size: text.size("hidden_size", SIZE)?,
        num_hidden_layers: layers.len(),
        checkpoint_layers: layers.len(),
        layers,
        mtp_layers,
        num_attention_heads,
        num_key_value_heads,
        head_dim,
        rotary_dim,
        rope_theta,
        norm,
        qk_norm,
        rms_norm_eps: text.positive("rms_norm_eps")? as f32,
        intermediate_size: text.size("intermediate_size", SIZE)?,
        num_local_experts,
        num_experts_per_tok,
        routed_scaling_factor,
        shared_intermediate_size,
        n_shared_experts,
        hidden_act,
        vocab_size: text.size("vocab_size", SIZE)?,
        max_position_embeddings: text.size("max_position_embeddings", SIZE)?,
        weight_format: weight_format(root, text)?,
        eos_token_ids,
    })
}

fn mtp_layers(root: &Fields<'_>) -> Result<usize, ConfigError> {
    if root.get("use_mtp").is_none_or(|v| v == false) {
        return Ok(0);
    }
    let modules = root.optional_size("num_mtp_modules", 0..=*COUNT.end())?.unwrap_or(1);
    Ok(modules * root.optional_size("mtp_transformer_layers", COUNT)?.unwrap_or(1))
}

/// Base of the frequencies and the number of rotated channels.
fn rope(text: &Fields<'_>, head_dim: usize) -> Result<(f64, usize), ConfigError> {
    let nested = text.object("rope_parameters")?;
    for rope in [&nested, &text.object("rope_scaling")?] {
        for field in ["rope_type", "type"] {
            rope.only(field, "\"default\"", |v| v == "default")?;
        }
    }
    let theta = match text.optional_positive("rope_theta")? {
        None => nested.optional_positive("rope_theta")?,
        published => published,
    };
    let theta = theta.ok_or_else(|| text.missing("rope_theta (or rope_parameters.rope_theta)"))?;

    let factor = match text.optional_positive("partial_rotary_factor")? {
        None => nested.optional_positive("partial_rotary_factor")?,
        published => published,
    };
    let by_factor = factor.map(|factor| factor * head_dim as f64);
    let rotary_dim = match (text.optional_size("rotary_dim", SIZE)?, by_factor) {
        (None, None) => {
            return Err(text.missing("rotary_dim (or partial_rotary_factor, or rope_parameters.partial_rotary_factor)"));
        }
        (Some(dim), Some(by_factor)) if dim as f64 != by_factor => {
            return Err(text.contradiction(format!(
                "`rotary_dim` is {dim}, `partial_rotary_factor` times `head_dim` is {by_factor}"
            )));
        }
        (Some(dim), _) => dim as f64,
        (None, Some(by_factor)) => by_factor,
    };
    if rotary_dim > head_dim as f64 || rotary_dim % 2.0 != 0.0 {
        return Err(text.contradiction(format!(
            "the rotated channels should be an even number up to `head_dim` {head_dim}, found {rotary_dim}"
        )));
    }
    Ok((theta, rotary_dim as usize))
}

/// The one `quantization_config`, at the top or in the fields of the language model.
fn weight_format(root: &Fields<'_>, text: &Fields<'_>) -> Result<WeightFormat, ConfigError> {
    const FIELD: &str = "quantization_config";
    let holder = match (root.get(FIELD), text.get(FIELD)) {
        (None, None) => return Ok(WeightFormat::Bf16),
        (Some(a), Some(b)) if a != b => {
            let [a, b] = [root, text].map(|fields| fields.full_name(FIELD));
            return Err(root.contradiction(format!("`{a}` and `{b}` do not say the same")));
        }
        (Some(_), _) => root,
        (None, Some(_)) => text,
    };
    let quant = holder.object(FIELD)?;
    let method = quant.get("quant_method").ok_or_else(|| quant.missing("quant_method"))?;
    let mx = method == "mxfp8";
    quant.only("quant_method", "\"fp8\" or \"mxfp8\"", |v| v == "fp8" || v == "mxfp8")?;
    // Another format for the experts than for the rest.
    quant.only("moe_quant_algo", "null", |_| false)?;
    quant.only("fmt", "\"float8_e4m3fn\"", |v| v == "float8_e4m3fn" || v == "e4m3")?;
    quant.only("activation_scheme", "\"dynamic\"", |v| v == "dynamic")?;
    quant.get("weight_block_size").ok_or_else(|| quant.missing("weight_block_size"))?;
    let (block, supported) = match mx {
        true => (MX_BLOCK, "[1,32] with `quant_method` \"mxfp8\""),
        false => (FP8_BLOCK, "[128,128] with `quant_method` \"fp8\""),
    };
    quant.only("weight_block_size", supported, |v| *v == Value::from(block.to_vec()))?;
    let mut not_converted = Vec::new();
    for field in ["modules_to_not_convert", "ignored_layers"] {
        not_converted.extend(module_names(&quant, field)?);
    }
    Ok(match mx {
        true => WeightFormat::Mxfp8 { not_converted },
        false => WeightFormat::Fp8Block { not_converted },
    })
}

fn module_names(quant: &Fields<'_>, field: &str) -> Result<Vec<String>, ConfigError> {
    let Some(list) = quant.get(field) else { return Ok(Vec::new()) };
    let names = list.as_array().and_then(|names| names.iter().map(|name| name.as_str().map(str::to_owned)).collect());
    names.ok_or_else(|| quant.wrong_type(field, "a list of module names", list))
}
