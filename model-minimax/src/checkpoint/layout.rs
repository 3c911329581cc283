// SPDX-License-Identifier: MIT OR Apache-2.0

//! The one table of tensor names: where each tensor of a model lies in a checkpoint, its shape and its dtype.
//!
//! Validation, the model builder and the synthetic checkpoint all walk it.

use std::convert::Infallible;

use cpu_tiles::Format;

use super::tensor::{Dtype, Tensor};
use crate::config::{AttentionKind, FP8_BLOCK, FfnKind, LayerConfig, MX_BLOCK, ModelConfig, QkNorm};

/// What a tensor is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Token embedding, `[vocab, hidden]`.
    Embedding,
    /// Weight of an RMS norm.
    Norm,
    /// Weight of a linear layer, `[out, in]`.
    Linear,
    /// Scales of a linear weight with this shape.
    Scale {
        /// Rows of the weight.
        rows: usize,
        /// Columns of the weight.
        cols: usize,
        /// Rows and columns of the blocks with one scale each.
        block: [usize; 2],
    },
    /// Weight of the router, `[experts, hidden]`.
    Router,
    /// Bias that takes part in the choice of experts only, `[experts]`.
    RouterBias,
    /// Output head, `[vocab, hidden]`.
    LmHead,
}

/// A tensor that a model needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    /// Name in the checkpoint.
    pub name: String,
    /// Shape.
    pub shape: Vec<usize>,
    /// Element type; see [`TensorSpec::accepts`].
    pub dtype: Dtype,
    /// Purpose.
    pub role: Role,
}

impl TensorSpec {
    /// Bytes as stored; 0 for a shape beyond what a `usize` counts.
    pub fn byte_len(&self) -> usize {
        self.dtype.byte_len(&self.shape).unwrap_or(0)
    }

    /// Whether a tensor may have this element type. E8M0 scales are published as U8 and may have their own type too,
    /// which has the same bytes.
    pub fn accepts(&self, dtype: Dtype) -> bool {
        dtype == self.dtype || (self.dtype == Dtype::U8 && dtype == Dtype::F8E8M0)
    }
}

/// The tensors of a model by their place in it.
#[derive(Debug, Clone)]
pub struct ModelTensors<T = Tensor> {
    /// Token embedding, BF16 `[vocab, hidden]`.
    pub embed: T,
    /// The decoder layers, the first first.
    pub layers: Vec<LayerTensors<T>>,
    /// Weight of the last norm, BF16 `[hidden]`.
    pub norm: T,
    /// Output head, BF16 `[vocab, hidden]`.
    pub lm_head: T,
}

/// One decoder layer.
#[derive(Debug, Clone)]
pub struct LayerTensors<T = Tensor> {
    /// Norm before the attention, BF16 `[hidden]`.
    pub input_norm: T,
    /// Query projection, `[heads * head_dim, hidden]`.
    pub q: LinearTensors<T>,
    /// Key projection, `[kv_heads * head_dim, hidden]`.
    pub k: LinearTensors<T>,
    /// Value projection, `[kv_heads * head_dim, hidden]`.
    pub v: LinearTensors<T>,
    /// Output projection of the attention, `[hidden, heads * head_dim]`.
    pub o: LinearTensors<T>,
    /// Norm of the queries, BF16: `[heads * head_dim]` over the whole projection, or `[head_dim]` for every head.
    pub q_norm: T,
    /// Norm of the keys, BF16: `[kv_heads * head_dim]` over the whole projection, or `[head_dim]` for every head.
    pub k_norm: T,
    /// The index heads of a layer with sparse attention.
    pub index: Option<IndexTensors<T>>,
    /// Norm before the feed-forward part, BF16 `[hidden]`.
    pub post_norm: T,
    /// The feed-forward part.
    pub ffn: FfnTensors<T>,
}

/// The index heads of a layer with sparse attention.
#[derive(Debug, Clone)]
pub struct IndexTensors<T = Tensor> {
    /// Query projection, `[index_heads * index_dim, hidden]`.
    pub q: LinearTensors<T>,
    /// Key projection, `[index_dim, hidden]`: one key for all index heads.
    pub k: LinearTensors<T>,
    /// Norm of every query head, BF16 `[index_dim]`.
    pub q_norm: T,
    /// Norm of the key, BF16 `[index_dim]`.
    pub k_norm: T,
}

/// The feed-forward part of a layer.
#[derive(Debug, Clone)]
pub enum FfnTensors<T = Tensor> {
    /// One MLP for all tokens.
    Dense(MlpTensors<T>),
    /// A mixture of experts.
    Moe(MoeTensors<T>),
}

/// A mixture of experts.
#[derive(Debug, Clone)]
pub struct MoeTensors<T = Tensor> {
    /// Router weight, F32 `[experts, hidden]`.
    pub router: T,
    /// Router bias, F32 `[experts]`.
    pub bias: T,
    /// The routed experts by number.
    pub experts: Vec<MlpTensors<T>>,
    /// The expert of every token, of width [`ModelConfig::shared_size`].
    pub shared: Option<MlpTensors<T>>,
}

/// An expert, a shared expert or a dense MLP: `down(act(gate x, up x))`.
#[derive(Debug, Clone)]
pub struct MlpTensors<T = Tensor> {
    /// Gate projection, `[width, hidden]`; `w1` of a routed expert.
    pub gate: LinearTensors<T>,
    /// Up projection, `[width, hidden]`; `w3` of a routed expert.
    pub up: LinearTensors<T>,
    /// Down projection, `[hidden, width]`; `w2` of a routed expert.
    pub down: LinearTensors<T>,
}

/// Weight of a linear layer, row-major `[rows, cols]` = `[out, in]`.
#[derive(Debug, Clone)]
pub struct LinearTensors<T = Tensor> {
    /// How values and scales are stored.
    pub format: Format,
    /// The values of the format: F32, BF16 or E4M3 codes.
    pub weight: T,
    /// The scales, if the format has any. [`Format::Fp8Block`]: F32 multipliers `[ceil(rows / 128), ceil(cols / 128)]`;
    /// weight `(r, c)` has the value `code * scale[r / 128][c / 128]`. [`Format::Mxfp8`]: E8M0 codes
    /// `[rows, ceil(cols / 32)]`, stored as U8 or as F8_E8M0; weight `(r, c)` has the value
    /// `code * 2^(scale[r][c / 32] - 127)`.
    pub scale: Option<T>,
    /// Output features.
    pub rows: usize,
    /// Input features.
    pub cols: usize,
}

impl LinearTensors {
    /// The stored weight without its scales.
    pub fn bytes(&self) -> &[u8] {
        self.weight.bytes()
    }

    /// Bytes of weight and scale as stored.
    pub fn byte_len(&self) -> usize {
        self.weight.byte_len() + self.scale.as_ref().map_or(0, Tensor::byte_len)
    }
}

/// Every tensor that a checkpoint with this configuration must hold, in the order of the model.
pub fn expected_tensors(config: &ModelConfig) -> Vec<TensorSpec> {
    let mut specs = Vec::new();
    let Ok(_) = ModelTensors::try_build(config, |spec| {
        specs.push(spec);
        Ok::<_, Infallible>(())
    });
    specs
}

impl ModelTensors<TensorSpec> {
    /// The tensors that a checkpoint with this configuration must hold, by their place in the model.
    pub fn expected(config: &ModelConfig) -> Self {
        let Ok(tensors) = Self::try_build(config, Ok::<_, Infallible>);
        tensors
    }
}

impl<T> ModelTensors<T> {
    /// Calls `take` for each expected tensor, in the order of the model, and puts what it returns in its place.
    pub(super) fn try_build<E>(config: &ModelConfig, take: impl FnMut(TensorSpec) -> Result<T, E>) -> Result<Self, E> {
        let (hidden, vocab) = (config.hidden_size, config.vocab_size);
        let mut walk = Walk { config, take };
        Ok(Self {
            embed: walk.tensor("model.embed_tokens.weight", &[vocab, hidden], Dtype::Bf16, Role::Embedding)?,
            layers: config.layers[..config.num_hidden_layers]
                .iter()
                .enumerate()
                .map(|(number, layer)| walk.layer(&format!("model.layers.{number}"), layer))
                .collect::<Result<_, E>>()?,
            norm: walk.norm("model.norm.weight", hidden)?,
            lm_head: walk.tensor("lm_head.weight", &[vocab, hidden], Dtype::Bf16, Role::LmHead)?,
        })
    }
}

/// Names are those of the language model; `tensor` puts the prefix of the checkpoint before them.
struct Walk<'c, F> {
    config: &'c ModelConfig,
    take: F,
}

impl<T, E, F: FnMut(TensorSpec) -> Result<T, E>> Walk<'_, F> {
    fn tensor(&mut self, name: &str, shape: &[usize], dtype: Dtype, role: Role) -> Result<T, E> {
        let name = format!("{}{name}", self.config.tensor_prefix);
        (self.take)(TensorSpec { name, shape: shape.to_vec(), dtype, role })
    }

    fn norm(&mut self, name: &str, len: usize) -> Result<T, E> {
        self.tensor(name, &[len], Dtype::Bf16, Role::Norm)
    }

    fn linear(&mut self, module: &str, rows: usize, cols: usize) -> Result<LinearTensors<T>, E> {
        let weight = format!("{module}.weight");
        let format = self.config.weight_format.of(&format!("{}{module}", self.config.tensor_prefix));
        let (dtype, scale) = match format {
            Format::F32 => (Dtype::F32, None),
            Format::Bf16 => (Dtype::Bf16, None),
            Format::Fp8Block => (Dtype::F8E4M3, Some((Dtype::F32, FP8_BLOCK))),
            Format::Mxfp8 => (Dtype::F8E4M3, Some((Dtype::U8, MX_BLOCK))),
        };
        Ok(LinearTensors {
            format,
            weight: self.tensor(&weight, &[rows, cols], dtype, Role::Linear)?,
            scale: match scale {
                Some((dtype, block)) => {
                    let grid = [rows.div_ceil(block[0]), cols.div_ceil(block[1])];
                    Some(self.tensor(&scale_name(&weight), &grid, dtype, Role::Scale { rows, cols, block })?)
                }
                None => None,
            },
            rows,
            cols,
        })
    }

    fn layer(&mut self, layer: &str, kind: &LayerConfig) -> Result<LayerTensors<T>, E> {
        let config = self.config;
        let hidden = config.hidden_size;
        let (q, kv) = (config.q_size(), config.kv_size());
        let (q_norm, k_norm) = match config.qk_norm {
            QkNorm::PerLayer => (q, kv),
            QkNorm::PerHead => (config.head_dim, config.head_dim),
        };
        let attention = format!("{layer}.self_attn");
        Ok(LayerTensors {
            input_norm: self.norm(&format!("{layer}.input_layernorm.weight"), hidden)?,
            q: self.linear(&format!("{attention}.q_proj"), q, hidden)?,
            k: self.linear(&format!("{attention}.k_proj"), kv, hidden)?,
            v: self.linear(&format!("{attention}.v_proj"), kv, hidden)?,
            o: self.linear(&format!("{attention}.o_proj"), hidden, q)?,
            q_norm: self.norm(&format!("{attention}.q_norm.weight"), q_norm)?,
            k_norm: self.norm(&format!("{attention}.k_norm.weight"), k_norm)?,
            index: match kind.attention {
                AttentionKind::Full => None,
                AttentionKind::Sparse(msa) => Some(IndexTensors {
                    q: self.linear(&format!("{attention}.index_q_proj"), msa.index_heads * msa.index_dim, hidden)?,
                    k: self.linear(&format!("{attention}.index_k_proj"), msa.index_dim, hidden)?,
                    q_norm: self.norm(&format!("{attention}.index_q_norm.weight"), msa.index_dim)?,
                    k_norm: self.norm(&format!("{attention}.index_k_norm.weight"), msa.index_dim)?,
                }),
            },
            post_norm: self.norm(&format!("{layer}.post_attention_layernorm.weight"), hidden)?,
            ffn: match kind.ffn {
                FfnKind::Dense { intermediate_size } => {
                    FfnTensors::Dense(self.mlp(&format!("{layer}.mlp"), PROJ, intermediate_size)?)
                }
                FfnKind::Moe => FfnTensors::Moe(self.moe(&format!("{layer}.block_sparse_moe"))?),
            },
        })
    }

    fn moe(&mut self, moe: &str) -> Result<MoeTensors<T>, E> {
        let config = self.config;
        let experts = config.num_local_experts;
        let router = &[experts, config.hidden_size];
        Ok(MoeTensors {
            router: self.tensor(&format!("{moe}.gate.weight"), router, Dtype::F32, Role::Router)?,
            bias: self.tensor(&format!("{moe}.e_score_correction_bias"), &[experts], Dtype::F32, Role::RouterBias)?,
            experts: (0..experts)
                .map(|expert| self.mlp(&format!("{moe}.experts.{expert}"), W, config.intermediate_size))
                .collect::<Result<_, E>>()?,
            shared: match config.shared_size() {
                0 => None,
                width => Some(self.mlp(&format!("{moe}.shared_experts"), PROJ, width)?),
            },
        })
    }

    fn mlp(&mut self, module: &str, names: [&str; 3], width: usize) -> Result<MlpTensors<T>, E> {
        let hidden = self.config.hidden_size;
        let [gate, up, down] = names.map(|name| format!("{module}.{name}"));
        Ok(MlpTensors {
            gate: self.linear(&gate, width, hidden)?,
            up: self.linear(&up, width, hidden)?,
            down: self.linear(&down, hidden, width)?,
        })
    }
}

/// Names of the gate, up and down projections of a routed expert.
const W: [&str; 3] = ["w1", "w3", "w2"];
/// Names of the gate, up and down projections of another MLP.
const PROJ: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];

const SCALE_SUFFIX: &str = "_scale_inv";

/// Name of the scale that belongs to a weight.
pub(super) fn scale_name(weight: &str) -> String {
    format!("{weight}{SCALE_SUFFIX}")
}

/// Name of the weight that a scale belongs to.
pub(super) fn weight_of_scale(scale: &str) -> Option<&str> {
    scale.strip_suffix(SCALE_SUFFIX)
}
