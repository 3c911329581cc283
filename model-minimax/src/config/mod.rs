// SPDX-License-Identifier: MIT OR Apache-2.0

//! The configuration of a checkpoint: `config.json` and the stop ids of the files around it.
//!
//! Both spellings are read: the published one (`rope_theta`, `attn_type_list`, `sparse_attention_config`, a nested
//! `text_config`) and the one that transformers 5 writes when it saves a model again (`rope_parameters`, `layer_types`,
//! `index_n_heads`). A value that this crate does not implement is an error, never a silent default; so is a field that
//! the arithmetic depends on and that is absent.
//!
//! What differs between the models of the family is data: per layer a [`LayerConfig`], for all layers the other fields
//! of [`ModelConfig`]. Nothing outside this module asks for the [`Variant`] to know how to compute.

mod error;
mod fields;
mod parse;
mod stop;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use cpu_tiles::Format;

pub use error::ConfigError;
pub use stop::{EosSource, StopIds, tokenizer_eos_token};

/// Rows and columns of the blocks that share one F32 scale in an FP8 checkpoint.
pub const FP8_BLOCK: [usize; 2] = [128, 128];
/// Rows and columns of the groups that share one E8M0 scale in an MXFP8 checkpoint.
pub const MX_BLOCK: [usize; 2] = [1, 32];
/// Keys of a block of the sparse attention.
pub const MSA_BLOCK: usize = 128;

/// A variant of the model family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// MiniMax-M2.7; short name `m27`.
    M27,
    /// MiniMax-M3; short name `m3`.
    M3,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::M27 => "MiniMax-M2.7",
            Self::M3 => "MiniMax-M3",
        })
    }
}

impl FromStr for Variant {
    type Err = ConfigError;

    fn from_str(name: &str) -> Result<Self, ConfigError> {
        match name {
            "m27" => Ok(Self::M27),
            "m3" => Ok(Self::M3),
            _ => Err(ConfigError::UnknownVariant { found: name.to_owned() }),
        }
    }
}

/// Activation of every MLP: experts, shared expert and dense layers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum HiddenAct {
    /// `silu(gate) * up`.
    Silu,
    /// `(up' + 1) * g * sigmoid(alpha * g)` with `g = min(gate, limit)` and `up' = clamp(up, -limit, limit)`.
    SwigluOai {
        /// Factor in the sigmoid.
        alpha: f32,
        /// Bound of the gate from above, and of `up` on both sides.
        limit: f32,
    },
}

/// What a norm multiplies by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormKind {
    /// Its weight `w`.
    Plain,
    /// `1 + w`.
    Gemma,
}

/// What one RMS norm of the query and key projections spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QkNorm {
    /// All heads together: one weight per projected channel.
    PerLayer,
    /// Each head alone: one weight per channel of a head, the same for all heads.
    PerHead,
}

/// How the score of a block of keys follows from those of its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScoreType {
    /// Their maximum.
    Max,
}

/// Sparse attention: index heads choose, for each query, the blocks of keys that it attends to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MsaConfig {
    /// Index heads; as many as KV heads, each selects for one of them. All share one index key per token.
    pub index_heads: usize,
    /// Channels of an index head, at least [`ModelConfig::rotary_dim`].
    pub index_dim: usize,
    /// Keys of a block, [`MSA_BLOCK`].
    pub block: usize,
    /// Blocks that a query attends to, the forced ones included.
    pub topk: usize,
    /// Blocks that are always chosen, from the first of the sequence.
    pub init_blocks: usize,
    /// Blocks that are always chosen, up to that of the query; at least one. With `init_blocks`, at most `topk`.
    pub local_blocks: usize,
    /// How keys make the score of a block.
    pub score_type: ScoreType,
}

/// The attention of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionKind {
    /// Causal attention to all keys.
    Full,
    /// Causal attention to the keys of chosen blocks.
    Sparse(MsaConfig),
}

/// What follows the attention in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FfnKind {
    /// One MLP for all tokens.
    Dense {
        /// Its width.
        intermediate_size: usize,
    },
    /// Routed experts, and a shared one if [`ModelConfig::shared_size`] is not zero.
    Moe,
}

/// What a decoder layer consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerConfig {
    /// Its attention.
    pub attention: AttentionKind,
    /// Its feed-forward part.
    pub ffn: FfnKind,
}

impl LayerConfig {
    /// The sparse attention of the layer, if that is its kind.
    pub fn msa(&self) -> Option<MsaConfig> {
        match self.attention {
            AttentionKind::Full => None,
            AttentionKind::Sparse(msa) => Some(msa),
        }
    }
}

/// How the linear weights of the checkpoint are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WeightFormat {
    /// BF16 throughout.
    Bf16,
    /// E4M3 codes with one F32 multiplier per block of [`FP8_BLOCK`].
    Fp8Block {
        /// Modules that stay BF16 (`modules_to_not_convert`): whole dotted names or a run of their components.
        not_converted: Vec<String>,
    },
    /// E4M3 codes with one power of two per group of [`MX_BLOCK`].
    Mxfp8 {
        /// Modules that stay BF16 (`ignored_layers`), as above.
        not_converted: Vec<String>,
    },
}

impl WeightFormat {
    /// How the linear layer `module` (its name without `.weight`) is stored.
    pub fn of(&self, module: &str) -> Format {
        let (format, not_converted) = match self {
            Self::Bf16 => return Format::Bf16,
            Self::Fp8Block { not_converted } => (Format::Fp8Block, not_converted),
            Self::Mxfp8 { not_converted } => (Format::Mxfp8, not_converted),
        };
        let module = format!(".{module}.");
        match not_converted.iter().any(|skip| module.contains(&format!(".{skip}."))) {
            true => Format::Bf16,
            false => format,
        }
    }
}

/// Geometry and arithmetic of a model; the field names are those of `config.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// The file it was read from.
    pub path: PathBuf,
    /// The variant.
    pub variant: Variant,
    /// What the names of the language model's tensors begin with: nothing, or `language_model.` where the checkpoint
    /// holds more than the language model.
    pub tensor_prefix: &'static str,
    /// Width H of the residual stream.
    pub hidden_size: usize,
    /// Layers to run; see [`ModelConfig::with_max_layers`].
    pub num_hidden_layers: usize,
    /// Layers in the checkpoint.
    pub checkpoint_layers: usize,
    /// All layers of the checkpoint, of which the first `num_hidden_layers` are run.
    pub layers: Vec<LayerConfig>,
    /// Layers that hold multi-token prediction heads, numbered from `checkpoint_layers`. Never run; often declared
    /// without being shipped.
    pub mtp_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key and value heads; divides `num_attention_heads`.
    pub num_key_value_heads: usize,
    /// Channels per head.
    pub head_dim: usize,
    /// Channels of each head that are rotated, from the first; even.
    pub rotary_dim: usize,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// What every norm multiplies by, those of queries and keys included.
    pub norm: NormKind,
    /// Span of the query and key norms.
    pub qk_norm: QkNorm,
    /// Epsilon of every RMS norm.
    pub rms_norm_eps: f32,
    /// Width I of one routed expert.
    pub intermediate_size: usize,
    /// Routed experts E per layer.
    pub num_local_experts: usize,
    /// Experts that each token is sent to.
    pub num_experts_per_tok: usize,
    /// What the weighted sum of the routed experts is multiplied by.
    pub routed_scaling_factor: f32,
    /// Width of one shared expert.
    pub shared_intermediate_size: usize,
    /// Shared experts, which are stored as one; see [`ModelConfig::shared_size`].
    pub n_shared_experts: usize,
    /// Activation of all MLPs.
    pub hidden_act: HiddenAct,
    /// Rows of the embedding and of the output head.
    pub vocab_size: usize,
    /// Longest sequence, prompt and generated tokens together.
    pub max_position_embeddings: usize,
    /// Storage of the linear weights.
    pub weight_format: WeightFormat,
    /// `eos_token_id` as written: none, one or several ids.
    pub eos_token_ids: Vec<i64>,
}

impl ModelConfig {
    /// Reads `config.json` in the folder `dir`.
    ///
    /// # Errors
    /// Every variant of [`ConfigError`] except `MaxLayers` and `UnknownVariant`.
    pub fn load(dir: &Path) -> Result<Self, ConfigError> {
        let path = dir.join("config.json");
        Self::from_json(&fields::read(&path)?, &path)
    }

    /// Parses the text of a `config.json`; `path` names it in errors.
    ///
    /// # Errors
    /// As [`ModelConfig::load`], without `Read`.
    pub fn from_json(text: &str, path: &Path) -> Result<Self, ConfigError> {
        parse::parse(text, path)
    }

    /// The same model cut to its first `layers` layers.
    ///
    /// # Errors
    /// [`ConfigError::MaxLayers`] unless `1 <= layers <= checkpoint_layers`.
    pub fn with_max_layers(mut self, layers: usize) -> Result<Self, ConfigError> {
        if !(1..=self.checkpoint_layers).contains(&layers) {
            return Err(ConfigError::MaxLayers { requested: layers, available: self.checkpoint_layers });
        }
        self.num_hidden_layers = layers;
        Ok(self)
    }

    /// Width of the shared expert, `n_shared_experts * shared_intermediate_size`; 0 if there is none.
    pub fn shared_size(&self) -> usize {
        self.n_shared_experts * self.shared_intermediate_size
    }

    /// Rows of the query projection: `num_attention_heads * head_dim`.
    pub fn q_size(&self) -> usize {
        self.num_attention_heads * self.head_dim
    }

    /// Rows of the key and of the value projection: `num_key_value_heads * head_dim`.
    pub fn kv_size(&self) -> usize {
        self.num_key_value_heads * self.head_dim
    }
}
