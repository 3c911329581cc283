// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a synthetic checkpoint is like: its sizes, its `config.json` and the other small files.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde_json::{Value, json};

use super::{GENERATOR, SEED};
use crate::config::{ConfigError, FP8_BLOCK, MSA_BLOCK, MX_BLOCK, ModelConfig, Variant};

/// Entries of the tokenizer, text and special.
const TOKENIZER_ENTRIES: usize = 576;
/// Entries of the tokenizer that are text.
pub(super) const TEXT_TOKENS: usize = 512;
/// `]~b]`, the start of a turn.
const BOS: usize = 531;
/// `[e~[`, the end of a turn.
const EOS: usize = 532;

/// Entries of the published vocabularies.
const PUBLISHED_VOCAB: usize = 200_064;
/// Multiples of this width keep the published proportions whole.
const HIDDEN_STEP: usize = 384;
const HEAD_DIM: usize = 128;

/// Names of the small files.
pub(super) const COMPANIONS: [&str; 5] =
    ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"];

/// Named sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Preset {
    Tiny,
    Slice,
    Full,
    M3Tiny,
    M3Slice,
    M3Full,
}

/// How the linear weights are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weights {
    Fp8,
    Mxfp8,
    Bf16,
}

impl Weights {
    const ALL: [Self; 3] = [Self::Fp8, Self::Mxfp8, Self::Bf16];

    fn name(self) -> &'static str {
        match self {
            Self::Fp8 => "fp8",
            Self::Mxfp8 => "mxfp8",
            Self::Bf16 => "bf16",
        }
    }
}

/// The size of a synthetic checkpoint: a preset, or a list of keys that change one.
///
/// | preset | model | layers | experts | hidden | vocab | blocks | weights | size |
/// | --- | --- | --- | --- | --- | --- | --- | --- | --- |
/// | `tiny` | M2.7 | 2 | 8 | 384 | 576 | | FP8 | 6 MB |
/// | `slice` (default) | M2.7 | 4 | 32 | 3072 | 16384 | | FP8 | 2.2 GB |
/// | `full` | M2.7 | 62 | 256 | 3072 | 200064 | | FP8 | 230 GB |
/// | `m3-tiny` | M3 | 3 | 8 | 384 | 576 | 2 | MXFP8 | 8 MB |
/// | `m3-slice` | M3 | 4 | 16 | 6144 | 16384 | 16 | MXFP8 | 4.1 GB |
/// | `m3-full` | M3 | 60 | 128 | 6144 | 200064 | 16 | MXFP8 | 442 GB |
///
/// `layers=`, `experts=`, `hidden=`, `vocab=`, `weights=fp8|mxfp8|bf16`, `seed=` and, for M3, `blocks=` (of 128 keys, that
/// a query of a layer with sparse attention attends to) change a preset, which may come first and otherwise is `slice`:
/// `layers=2,experts=64`, `m3-slice,blocks=2`. `hidden` is a multiple of 384; the other widths follow it in the published
/// proportions:
///
/// * M2.7: at 3072, 48 query heads and 8 KV heads of 128, experts of 1536; each token goes to 8 experts.
/// * M3: at 6144, 64 query heads and 4 KV and index heads of 128, dense layers of 12288, experts and shared expert of 3072;
///   each token goes to 4 experts. One layer in twenty, from the first, has full attention and one MLP; the others have
///   sparse attention and experts.
///
/// A token goes to at most half of the experts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntheticSpec {
    preset: Preset,
    layers: usize,
    experts: usize,
    hidden: usize,
    vocab: usize,
    /// Blocks that a query attends to; of no meaning without sparse attention.
    blocks: usize,
    weights: Weights,
    seed: u64,
}

/// A [`SyntheticSpec`] that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "synthetic spec \"{spec}\": {what}; write `tiny`, `slice`, `full`, `m3-tiny`, `m3-slice`, `m3-full` or keys such as \
     `layers=4,experts=32,hidden=3072,vocab=16384,weights=bf16`, separated by commas"
)]
pub struct SpecError {
    /// The whole spec.
    pub spec: String,
    /// What is wrong with it.
    pub what: String,
}

impl Preset {
    const ALL: [Self; 6] = [Self::Tiny, Self::Slice, Self::Full, Self::M3Tiny, Self::M3Slice, Self::M3Full];

    fn name(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Slice => "slice",
            Self::Full => "full",
            Self::M3Tiny => "m3-tiny",
            Self::M3Slice => "m3-slice",
            Self::M3Full => "m3-full",
        }
    }

    fn variant(self) -> Variant {
        match self {
            Self::Tiny | Self::Slice | Self::Full => Variant::M27,
            Self::M3Tiny | Self::M3Slice | Self::M3Full => Variant::M3,
        }
    }

    fn spec(self) -> SyntheticSpec {
        let (layers, experts, hidden, vocab, blocks) = match self {
            Self::Tiny => (2, 8, 384, TOKENIZER_ENTRIES, 0),
            Self::Slice => (4, 32, 3072, 16384, 0),
            Self::Full => (62, 256, 3072, PUBLISHED_VOCAB, 0),
            Self::M3Tiny => (3, 8, 384, TOKENIZER_ENTRIES, 2),
            Self::M3Slice => (4, 16, 6144, 16384, 16),
            Self::M3Full => (60, 128, 6144, PUBLISHED_VOCAB, 16),
        };
        let weights = match self.variant() {
            Variant::M27 => Weights::Fp8,
            Variant::M3 => Weights::Mxfp8,
        };
        SyntheticSpec { preset: self, layers, experts, hidden, vocab, blocks, weights, seed: SEED }
    }
}

impl Default for SyntheticSpec {
    /// `slice`.
    fn default() -> Self {
        Preset::Slice.spec()
    }
}

impl FromStr for SyntheticSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let error = |what: String| SpecError { spec: text.to_owned(), what };
        let mut spec = Self::default();
        let mut seen = Vec::new();
        for (i, part) in text.split(',').map(str::trim).enumerate() {
            let Some((key, value)) = part.split_once('=') else {
                let preset = Preset::ALL.into_iter().find(|preset| preset.name() == part);
                let preset = preset.ok_or_else(|| error(format!("\"{part}\" is neither a preset nor key=value")))?;
                if i > 0 {
                    return Err(error(format!("the preset {part} should come first")));
                }
                spec = preset.spec();
                continue;
            };
            if seen.contains(&key) {
                return Err(error(format!("{key} occurs twice")));
            }
            seen.push(key);
            let number = |accept: fn(usize) -> bool, expected: &str| {
                value
                    .parse()
                    .ok()
                    .filter(|&n| accept(n))
                    .ok_or_else(|| error(format!("{key} should be {expected}, found {value}")))
            };
            match key {
                "layers" => spec.layers = number(|n| (1..=1024).contains(&n), "between 1 and 1024")?,
                "experts" => spec.experts = number(|n| (1..=1024).contains(&n), "between 1 and 1024")?,
                "hidden" => {
                    let accept = |n: usize| n.is_multiple_of(HIDDEN_STEP) && (HIDDEN_STEP..=65_280).contains(&n);
                    spec.hidden = number(accept, "a multiple of 384 up to 65280")?;
                }
                "vocab" => {
                    spec.vocab = number(|n| (TOKENIZER_ENTRIES..=1 << 24).contains(&n), "between 576 and 16777216")?
                }
                "blocks" if spec.variant() == Variant::M3 => {
                    spec.blocks = number(|n| (1..=1 << 16).contains(&n), "between 1 and 65536")?;
                }
                "blocks" => return Err(error("blocks are a matter of M3 (m3-tiny, m3-slice, m3-full)".to_owned())),
                "weights" => {
                    let weights = Weights::ALL.into_iter().find(|weights| weights.name() == value);
                    spec.weights =
                        weights.ok_or_else(|| error(format!("weights should be fp8, mxfp8 or bf16, found {value}")))?;
                }
                "seed" => {
                    let seed =
                        value.parse().map_err(|_| error(format!("seed should be a number below 2^64, found {value}")));
                    spec.seed = seed?;
                }
                _ => return Err(error(format!("unknown key {key}"))),
            }
        }
        Ok(spec)
    }
}

/// The shortest spec: the preset, then the keys that differ from it.
impl fmt::Display for SyntheticSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.preset.name())?;
        let preset = self.preset.spec();
        for (key, value, default) in [
            ("layers", self.layers, preset.layers),
            ("experts", self.experts, preset.experts),
            ("hidden", self.hidden, preset.hidden),
            ("vocab", self.vocab, preset.vocab),
            ("blocks", self.blocks, preset.blocks),
        ] {
            if value != default {
                write!(f, ",{key}={value}")?;
            }
        }
        if self.weights != preset.weights {
            write!(f, ",weights={}", self.weights.name())?;
        }
        if self.seed != SEED {
            write!(f, ",seed={}", self.seed)?;
        }
        Ok(())
    }
}

impl SyntheticSpec {
    /// The preset with the published layer geometry of `variant`: `slice` or `m3-slice`.
    pub fn slice(variant: Variant) -> Self {
        match variant {
            Variant::M27 => Preset::Slice.spec(),
            Variant::M3 => Preset::M3Slice.spec(),
        }
    }

    /// The variant that the checkpoint is of.
    pub fn variant(&self) -> Variant {
        self.preset.variant()
    }

    /// The number that every value is drawn by.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The configuration of the checkpoint.
    ///
    /// # Errors
    /// None are known; the widths that a spec allows all make a valid configuration.
    pub fn config(&self) -> Result<ModelConfig, ConfigError> {
        ModelConfig::from_json(&self.config_json(), Path::new("config.json"))
    }

    /// `config.json` in the published spelling.
    fn config_json(&self) -> String {
        let mut config = match self.variant() {
            Variant::M27 => self.m27(),
            Variant::M3 => self.m3(),
        };
        let (method, block, not_converted) = match self.weights {
            Weights::Bf16 => return pretty(&config),
            Weights::Fp8 => ("fp8", FP8_BLOCK, "modules_to_not_convert"),
            Weights::Mxfp8 => ("mxfp8", MX_BLOCK, "ignored_layers"),
        };
        config["quantization_config"] = json!({
            "activation_scheme": "dynamic",
            "quant_method": method,
            "weight_block_size": block,
            not_converted: ["gate", "e_score_correction_bias", "lm_head"],
        });
        if self.weights == Weights::Fp8 {
            config["quantization_config"]["fmt"] = "float8_e4m3fn".into();
        }
        pretty(&config)
    }

    fn m27(&self) -> Value {
        json!({
            "architectures": ["MiniMaxM2ForCausalLM"],
            "attn_type_list": vec![1; self.layers],
            "dtype": "bfloat16",
            "head_dim": HEAD_DIM,
            "hidden_act": "silu",
            "hidden_size": self.hidden,
            "intermediate_size": self.hidden / 2,
            "max_position_embeddings": 204_800,
            "model_type": "minimax_m2",
            "num_attention_heads": self.hidden / 64,
            "num_experts_per_tok": self.experts.div_ceil(2).min(8),
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.hidden / 384,
            "num_local_experts": self.experts,
            "qk_norm_type": "per_layer",
            "rms_norm_eps": 1e-6,
            "rope_theta": 5_000_000,
            "rotary_dim": HEAD_DIM / 2,
            "scoring_func": "sigmoid",
            "shared_intermediate_size": 0,
            "tie_word_embeddings": false,
            "use_mtp": false,
            "use_qk_norm": true,
            "use_routing_bias": true,
            "vocab_size": self.vocab,
        })
    }

    fn m3(&self) -> Value {
        let query_heads = self.hidden / 96;
        // Four from a width of 768 on. Narrower ones still have several query heads to each.
        let kv_heads = (query_heads / 2).min(4);
        let dense = self.layers.div_ceil(20).min(self.layers - 1);
        let after_dense = [vec![0; dense], vec![1; self.layers - dense]].concat();
        json!({
            "architectures": ["MiniMaxM3SparseForConditionalGeneration"],
            "model_type": "minimax_m3_vl",
            "text_config": {
                "architectures": ["MiniMaxM3SparseForCausalLM"],
                "attention_output_gate": false,
                "dense_intermediate_size": 2 * self.hidden,
                "dtype": "bfloat16",
                "head_dim": HEAD_DIM,
                "hidden_act": "swigluoai",
                "hidden_size": self.hidden,
                "intermediate_size": self.hidden / 2,
                "max_position_embeddings": 1_048_576,
                "moe_layer_freq": after_dense,
                "n_shared_experts": 1,
                "num_attention_heads": query_heads,
                "num_experts_per_tok": self.experts.div_ceil(2).min(4),
                "num_hidden_layers": self.layers,
                "num_key_value_heads": kv_heads,
                "num_local_experts": self.experts,
                "qk_norm_type": "per_head",
                "rms_norm_eps": 1e-6,
                "rope_theta": 5_000_000,
                "rotary_dim": HEAD_DIM / 2,
                "routed_scaling_factor": 2.0,
                "scoring_func": "sigmoid",
                "shared_intermediate_size": self.hidden / 2,
                "sparse_attention_config": {
                    "sparse_attention_freq": after_dense,
                    "sparse_block_size": MSA_BLOCK,
                    "sparse_disable_index_value": after_dense,
                    "sparse_index_dim": HEAD_DIM,
                    "sparse_init_block": 0,
                    "sparse_local_block": 1,
                    "sparse_num_index_heads": kv_heads,
                    "sparse_score_type": "max",
                    "sparse_topk_blocks": self.blocks,
                    "use_sparse_attention": true,
                },
                "swiglu_alpha": 1.702,
                "swiglu_limit": 7.0,
                "tie_word_embeddings": false,
                "use_gemma_norm": true,
                "use_qk_norm": true,
                "use_routing_bias": true,
                "vocab_size": self.vocab,
            },
            "torch_dtype": "bfloat16",
        })
    }

    /// The small files with their names; the stamp, which comes last, is not among them.
    pub(super) fn companions(&self) -> [(&'static str, String); 5] {
        let generation = json!({ "bos_token_id": BOS, "do_sample": true, "eos_token_id": EOS, "temperature": 1.0, "top_k": 40, "top_p": 0.95 });
        let [tokenizer, tokenizer_config, template] = match self.variant() {
            Variant::M27 => [
                include_str!("../../../data/m27/tokenizer.json"),
                include_str!("../../../data/m27/tokenizer_config.json"),
                include_str!("../../../data/m27/chat_template.jinja"),
            ],
            Variant::M3 => [
                include_str!("../../../data/m3/tokenizer.json"),
                include_str!("../../../data/m3/tokenizer_config.json"),
                include_str!("../../../data/m3/chat_template.jinja"),
            ],
        };
        let texts =
            [self.config_json(), pretty(&generation), tokenizer.into(), tokenizer_config.into(), template.into()];
        let mut texts = texts.into_iter();
        COMPANIONS.map(|name| (name, texts.next().unwrap_or_default()))
    }

    /// What a finished folder says about itself.
    pub(super) fn stamp(&self) -> String {
        pretty(&json!({ "generator": GENERATOR, "seed": self.seed, "spec": self.to_string() }))
    }
}

pub(super) fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
