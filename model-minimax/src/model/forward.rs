// SPDX-License-Identifier: MIT OR Apache-2.0

//! The layers of a model, applied to the tokens that follow a sequence.

use super::attention::attention;
use super::cache::KvCache;
use super::norm::RmsNorm;
use super::rope::Rope;
use super::router::route;
use super::weights::{Layer, Linear, Weights};
use super::{Event, ModelError};
use crate::bench::Arm;
use crate::config::ModelConfig;
use cpu_tiles::convert::{bf16_to_f32, f32_to_bf16, round_to_bf16};
use cpu_tiles::{Acts, Level, Pool, Precision, ShapeError, linear};
use grouped_gemm::{MoeDims, Tokens, moe_ffn, moe_ffn_eager};
use half::bf16;
use std::sync::Arc;

/// Values of a task that touches each a few times.
const TASK_VALUES: usize = 16384;

/// A model without a sequence.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) config: ModelConfig,
    pub(super) level: Level,
    pub(super) pool: Arc<Pool>,
    pub(super) precision: Precision,
    pub(super) weights: Weights,
    pub(super) moe: MoeDims,
}

/// What a model remembers of a sequence.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) cache: KvCache,
    pub(super) rope: Rope,
}

impl Network {
    /// The residual stream after the last layer, `[ids, hidden]`, of the tokens that follow the sequence, which then
    /// includes them.
    pub(super) fn hidden(
        &self,
        arm: Arm,
        sequence: &mut Sequence,
        ids: &[u32],
        observe: &mut dyn FnMut(Event<'_>),
    ) -> Result<Vec<f32>, ModelError> {
        let width = self.config.hidden_size;
        sequence.cache.reserve(ids.len())?;
        sequence.rope.extend(sequence.cache.len() + ids.len());

        let mut hidden = vec![0.0; ids.len() * width];
        let table = self.weights.embed.get();
        self.each_row(&mut hidden, width, |row, out| {
            bf16_to_f32(self.level, &table[ids[row] as usize * width..][..width], out);
        });
        observe(Event::Embeddings(&hidden));
        for (index, layer) in self.weights.layers.iter().enumerate() {
            let attn_out = self.attention(index, layer, sequence, &hidden)?;
            observe(Event::AttnOut { layer: index, values: &attn_out });
            self.add(&mut hidden, &attn_out);
            let moe_out = self.moe(arm, index, layer, &hidden, observe)?;
            self.add(&mut hidden, &moe_out);
            observe(Event::Hidden { layer: index, values: &hidden });
        }
        sequence.cache.advance(ids.len());
        Ok(hidden)
    }

    /// Writes the logits `[rows, vocab]` of some rows of the residual stream after the last layer.
    pub(super) fn logits(
        &self,
        hidden: &[f32],
        out: &mut [f32],
        observe: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), ModelError> {
        let normed = self.normalized(&self.weights.norm, hidden);
        observe(Event::FinalNorm(&normed));
        Ok(linear(&self.pool, &self.acts(&normed, self.config.hidden_size)?, self.weights.lm_head.weight(), out)?)
    }

    /// The attention block, its output projection included.
    fn attention(
        &self,
        index: usize,
        layer: &Layer,
        sequence: &mut Sequence,
        hidden: &[f32],
    ) -> Result<Vec<f32>, ModelError> {
        let Self { config, level, pool, .. } = self;
        let Sequence { cache, rope } = sequence;
        let acts = self.acts(&self.normalized(&layer.input_norm, hidden), config.hidden_size)?;
        let mut q = self.linear(&acts, &layer.q)?;
        let mut k = self.linear(&acts, &layer.k)?;
        let v = self.linear(&acts, &layer.v)?;
        let first = cache.len();
        for (values, norm, width) in
            [(&mut q, &layer.q_norm, config.q_size()), (&mut k, &layer.k_norm, config.kv_size())]
        {
            self.each_row(values, width, |row, values| {
                norm.normalize(*level, values);
                self.round(values);
                values.chunks_exact_mut(config.head_dim).for_each(|head| rope.rotate(first + row, head));
            });
        }
        cache.append(pool, index, &k, &v)?;
        let mut out = vec![0.0; q.len()];
        attention(*level, pool, cache, index, config.num_attention_heads, &q, &mut out)?;
        Ok(self.linear(&self.acts(&out, config.q_size())?, &layer.o)?)
    }

    /// The mixture of experts.
    fn moe(
        &self,
        arm: Arm,
        index: usize,
        layer: &Layer,
        hidden: &[f32],
        observe: &mut dyn FnMut(Event<'_>),
    ) -> Result<Vec<f32>, ModelError> {
        let Self { config, level, pool, .. } = self;
        let width = config.hidden_size;
        let normed = self.normalized(&layer.post_norm, hidden);
        let count = hidden.len() / width;

        // The router reads the tokens as the experts do, and computes in F32.
        let acts = Acts::from_f32(*level, pool, Precision::F32, count, width, &normed)?;
        let mut logits = vec![0.0; count * config.num_local_experts];
        linear(pool, &acts, layer.router.weight(), &mut logits)?;
        observe(Event::RouterLogits { layer: index, values: &logits });
        let mut ids = vec![0; count * config.num_experts_per_tok];
        let mut weights = vec![0.0; ids.len()];
        route(*level, pool, &logits, &layer.router_bias, config.num_experts_per_tok, &mut ids, &mut weights)?;
        observe(Event::TopK { layer: index, ids: &ids, weights: &weights });

        let narrow;
        let tokens = match self.precision {
            Precision::F32 => Tokens::F32(&normed),
            Precision::Bf16 => {
                narrow = self.narrow(&normed);
                Tokens::Bf16(&narrow)
            }
        };
        let mut out = vec![0.0; hidden.len()];
        match arm {
            Arm::Eager => moe_ffn_eager(*level, pool, &self.moe, tokens, &layer.experts, &ids, &weights, &mut out)?,
            Arm::Fused => moe_ffn(*level, pool, &self.moe, tokens, &layer.experts, &ids, &weights, &mut out)?,
        }
        self.each_row(&mut out, width, |_, row| self.round(row));
        Ok(out)
    }

    /// `acts * weight^T`, rounded.
    fn linear(&self, acts: &Acts, weight: &Linear) -> Result<Vec<f32>, ShapeError> {
        let weight = weight.weight();
        let mut out = vec![0.0; acts.m() * weight.n()];
        linear(&self.pool, acts, weight, &mut out)?;
        self.each_row(&mut out, weight.n(), |_, row| self.round(row));
        Ok(out)
    }

    fn acts(&self, x: &[f32], width: usize) -> Result<Acts, ShapeError> {
        Acts::from_f32(self.level, &self.pool, self.precision, x.len() / width, width, x)
    }

    /// The normalised residual stream, rounded.
    fn normalized(&self, norm: &RmsNorm, hidden: &[f32]) -> Vec<f32> {
        let width = self.config.hidden_size;
        let mut out = vec![0.0; hidden.len()];
        self.each_row(&mut out, width, |row, out| {
            out.copy_from_slice(&hidden[row * width..][..width]);
            norm.normalize(self.level, out);
            self.round(out);
        });
        out
    }

    /// Adds to the residual stream, and rounds it.
    fn add(&self, hidden: &mut [f32], x: &[f32]) {
        let width = self.config.hidden_size;
        self.each_row(hidden, width, |row, hidden| {
            for (hidden, x) in hidden.iter_mut().zip(&x[row * width..]) {
                *hidden += x;
            }
            self.round(hidden);
        });
    }

    /// Rounds to the precision of the activations.
    fn round(&self, x: &mut [f32]) {
        if self.precision == Precision::Bf16 {
            round_to_bf16(self.level, x);
        }
    }

    fn narrow(&self, x: &[f32]) -> Vec<bf16> {
        let mut out = vec![bf16::ZERO; x.len()];
        let mut tasks: Vec<_> = x.chunks(TASK_VALUES).zip(out.chunks_mut(TASK_VALUES)).collect();
        self.pool.for_each_mut(&mut tasks, |_, (x, out)| f32_to_bf16(self.level, x, out));
        out
    }

    /// Calls `each` with the number and the values of every row, on all threads if there are many values.
    fn each_row(&self, values: &mut [f32], width: usize, each: impl Fn(usize, &mut [f32]) + Sync) {
        let rows = (TASK_VALUES / width).max(1);
        let mut tasks: Vec<_> = values.chunks_mut(rows * width).collect();
        self.pool.for_each_mut(&mut tasks, |task, values| {
            for (i, row) in values.chunks_exact_mut(width).enumerate() {
                each(task * rows + i, row);
            }
        });
    }
}
