// SPDX-License-Identifier: MIT OR Apache-2.0

//! The one table of tensor names: where each tensor of a model lies in a checkpoint, its shape and its dtype.
//!
//! Validation, the model builder and the synthetic checkpoint all walk it.

use std::convert::Infallible;

use super::tensor::{Dtype, Tensor};
use crate::config::{FP8_BLOCK, ModelConfig};

/// What a tensor is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Token embedding, `[vocab, hidden]`.
    Embedding,
    /// Weight of an RMS norm.
    Norm,
    /// Weight of a linear layer, `[out, in]`.
    Linear,
    /// F32 multipliers of the FP8 blocks of a linear weight with this shape.
    Scale {
        /// Rows of the weight.
        rows: usize,
        /// Columns of the weight.
        cols: usize,
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
    /// Element type.
    pub dtype: Dtype,
    /// Purpose.
    pub role: Role,
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
    /// Norm over the whole query projection, BF16 `[heads * head_dim]`.
    pub q_norm: T,
    /// Norm over the whole key projection, BF16 `[kv_heads * head_dim]`.
    pub k_norm: T,
    /// Norm before the experts, BF16 `[hidden]`.
    pub post_norm: T,
    /// Router weight, F32 `[experts, hidden]`.
    pub gate: T,
    /// Router bias, F32 `[experts]`.
    pub bias: T,
    /// The experts by number.
    pub experts: Vec<ExpertTensors<T>>,
}

/// One expert: `w2(act(w1 x) * (w3 x))`.
#[derive(Debug, Clone)]
pub struct ExpertTensors<T = Tensor> {
    /// Gate projection, `[intermediate, hidden]`.
    pub w1: LinearTensors<T>,
    /// Down projection, `[hidden, intermediate]`.
    pub w2: LinearTensors<T>,
    /// Up projection, `[intermediate, hidden]`.
    pub w3: LinearTensors<T>,
}

/// Weight of a linear layer, row-major `[rows, cols]` = `[out, in]`.
#[derive(Debug, Clone)]
pub struct LinearTensors<T = Tensor> {
    /// BF16, or E4M3 codes if there is a scale.
    pub weight: T,
    /// F32 multipliers `[ceil(rows / 128), ceil(cols / 128)]`: weight `(r, c)` has the value
    /// `code * scale[r / 128][c / 128]`.
    pub scale: Option<T>,
    /// Output features.
    pub rows: usize,
    /// Input features.
    pub cols: usize,
}

impl LinearTensors {
    /// The stored weight: E4M3 codes or BF16, as [`Tensor::dtype`] of the weight says.
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

impl<T> ModelTensors<T> {
    /// Calls `take` for each expected tensor, in the order of the model, and puts what it returns in its place.
    pub(super) fn try_build<E>(config: &ModelConfig, take: impl FnMut(TensorSpec) -> Result<T, E>) -> Result<Self, E> {
        let (hidden, vocab) = (config.hidden_size, config.vocab_size);
        let mut walk = Walk { config, take };
        Ok(Self {
            embed: walk.tensor("model.embed_tokens.weight", &[vocab, hidden], Dtype::Bf16, Role::Embedding)?,
            layers: (0..config.num_hidden_layers)
                .map(|layer| walk.layer(&format!("model.layers.{layer}")))
                .collect::<Result<_, E>>()?,
            norm: walk.norm("model.norm.weight", hidden)?,
            lm_head: walk.tensor("lm_head.weight", &[vocab, hidden], Dtype::Bf16, Role::LmHead)?,
        })
    }
}

struct Walk<'c, F> {
    config: &'c ModelConfig,
    take: F,
}

impl<T, E, F: FnMut(TensorSpec) -> Result<T, E>> Walk<'_, F> {
    fn tensor(&mut self, name: &str, shape: &[usize], dtype: Dtype, role: Role) -> Result<T, E> {
        (self.take)(TensorSpec { name: name.to_owned(), shape: shape.to_vec(), dtype, role })
    }

    fn norm(&mut self, name: &str, len: usize) -> Result<T, E> {
        self.tensor(name, &[len], Dtype::Bf16, Role::Norm)
    }

    fn linear(&mut self, module: &str, rows: usize, cols: usize) -> Result<LinearTensors<T>, E> {
        let weight = format!("{module}.weight");
        let (dtype, scale) = if self.config.weight_format.is_fp8(module) {
            (Dtype::F8E4M3, Some([rows.div_ceil(FP8_BLOCK[0]), cols.div_ceil(FP8_BLOCK[1])]))
        } else {
            (Dtype::Bf16, None)
        };
        Ok(LinearTensors {
            weight: self.tensor(&weight, &[rows, cols], dtype, Role::Linear)?,
            scale: match scale {
                Some(grid) => Some(self.tensor(&scale_name(&weight), &grid, Dtype::F32, Role::Scale { rows, cols })?),
                None => None,
            },
            rows,
            cols,
        })
    }

    fn layer(&mut self, layer: &str) -> Result<LayerTensors<T>, E> {
        let config = self.config;
        let (hidden, experts) = (config.hidden_size, config.num_local_experts);
        let (q, kv) = (config.q_size(), config.kv_size());
        let attention = format!("{layer}.self_attn");
        let moe = format!("{layer}.block_sparse_moe");
        Ok(LayerTensors {
            input_norm: self.norm(&format!("{layer}.input_layernorm.weight"), hidden)?,
            q: self.linear(&format!("{attention}.q_proj"), q, hidden)?,
            k: self.linear(&format!("{attention}.k_proj"), kv, hidden)?,
            v: self.linear(&format!("{attention}.v_proj"), kv, hidden)?,
            o: self.linear(&format!("{attention}.o_proj"), hidden, q)?,
            q_norm: self.norm(&format!("{attention}.q_norm.weight"), q)?,
            k_norm: self.norm(&format!("{attention}.k_norm.weight"), kv)?,
            post_norm: self.norm(&format!("{layer}.post_attention_layernorm.weight"), hidden)?,
            gate: self.tensor(&format!("{moe}.gate.weight"), &[experts, hidden], Dtype::F32, Role::Router)?,
            bias: self.tensor(&format!("{moe}.e_score_correction_bias"), &[experts], Dtype::F32, Role::RouterBias)?,
            experts: (0..experts)
                .map(|expert| self.expert(&format!("{moe}.experts.{expert}")))
                .collect::<Result<_, E>>()?,
        })
    }

    fn expert(&mut self, expert: &str) -> Result<ExpertTensors<T>, E> {
        let (hidden, intermediate) = (self.config.hidden_size, self.config.intermediate_size);
        Ok(ExpertTensors {
            w1: self.linear(&format!("{expert}.w1"), intermediate, hidden)?,
            w2: self.linear(&format!("{expert}.w2"), hidden, intermediate)?,
            w3: self.linear(&format!("{expert}.w3"), intermediate, hidden)?,
        })
    }
}

const SCALE_SUFFIX: &str = "_scale_inv";

/// Name of the scale that belongs to a weight.
pub(super) fn scale_name(weight: &str) -> String {
    format!("{weight}{SCALE_SUFFIX}")
}

/// Name of the weight that a scale belongs to.
pub(super) fn weight_of_scale(scale: &str) -> Option<&str> {
    scale.strip_suffix(SCALE_SUFFIX)
}
