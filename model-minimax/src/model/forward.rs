// SPDX-License-Identifier: MIT OR Apache-2.0

//! The layers of a model, applied to the tokens that follow a sequence.

use super::attention::attention;
use super::cache::KvCache;
use super::device::{Accelerator, Step};
use super::msa::Msa;
use super::norm::RmsNorm;
use super::rope::Rope;
use super::router::{first_experts, route};
use super::weights::{Ffn, Index, Layer, Linear, Mlps, Moe, Weights};
use super::{Event, ModelError, Routing};
use crate::bench::Arm;
use crate::config::ModelConfig;
use cpu_tiles::convert::{bf16_to_f32, f32_to_bf16, round_to_bf16};
use cpu_tiles::{Acts, Level, Pool, Precision, ShapeError, linear};
use grouped_gemm::{Tokens, moe_ffn, moe_ffn_eager};
use half::bf16;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Values of a task that touches each a few times.
const TASK_VALUES: usize = 16384;

/// A model without a sequence.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) config: ModelConfig,
    pub(super) level: Level,
    pub(super) pool: Arc<Pool>,
    pub(super) precision: Precision,
    pub(super) routing: Routing,
    pub(super) weights: Weights,
    /// The sparse attention of the layers that have index heads.
    pub(super) msa: Option<Msa>,
    /// What runs the routed experts and the sparse attention instead of the CPU.
    pub(super) device: Option<Mutex<Accelerator>>,
}

/// What a model remembers of a sequence.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) cache: KvCache,
    pub(super) rope: Rope,
}

/// Whom intermediate results are shown to, if anybody.
pub(super) struct Observer<'a>(pub(super) Option<&'a mut dyn FnMut(Event<'_>)>);

impl Observer<'_> {
    pub(super) fn is_there(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn show(&mut self, event: Event<'_>) {
        if let Some(observe) = &mut self.0 {
            observe(event);
        }
    }
}

/// A projection whose heads are normalised and rotated.
struct Heads<'a> {
    linear: &'a Linear,
    norm: &'a RmsNorm,
    /// Channels of a head.
    dim: usize,
}

impl Network {
    /// The residual stream after the last layer, `[ids, hidden]`, of the tokens that follow the sequence, which then
    /// includes them.
    pub(super) fn hidden(
        &self,
        arm: Arm,
        sequence: &mut Sequence,
        ids: &[u32],
        observe: &mut Observer<'_>,
    ) -> Result<Vec<f32>, ModelError> {
        let width = self.config.hidden_size;
        sequence.cache.reserve(ids.len())?;
        sequence.rope.extend(sequence.cache.len() + ids.len());

        let mut hidden = vec![0.0; ids.len() * width];
        self.embed(ids, &mut hidden);
        observe.show(Event::Embeddings(&hidden));
        for (index, layer) in self.weights.layers.iter().enumerate() {
            let attn_out = self.attention(index, layer, sequence, &hidden, observe)?;
            observe.show(Event::AttnOut { layer: index, values: &attn_out });
            self.add(&mut hidden, &attn_out);
            let ffn_out = self.ffn(arm, index, layer, &hidden, observe)?;
            self.add(&mut hidden, &ffn_out);
            observe.show(Event::Hidden { layer: index, values: &hidden });
        }
        sequence.cache.advance(ids.len());
        Ok(hidden)
    }

    /// Writes the rows of the embedding table of some tokens.
    pub(super) fn embed(&self, ids: &[u32], hidden: &mut [f32]) {
        let (width, table) = (self.config.hidden_size, self.weights.embed.get());
        self.each_row(hidden, width, |row, out| {
            bf16_to_f32(self.level, &table[ids[row] as usize * width..][..width], out);
        });
    }

    /// Writes the logits `[rows, vocab]` of some rows of the residual stream after the last layer.
    pub(super) fn logits(&self, hidden: &[f32], out: &mut [f32], observe: &mut Observer<'_>) -> Result<(), ModelError> {
        let normed = self.normalized(&self.weights.norm, hidden);
        observe.show(Event::FinalNorm(&normed));
        Ok(linear(&self.pool, &self.acts(&normed, self.config.hidden_size)?, self.weights.lm_head.weight(), out)?)
    }

    /// The attention block, its output projection included.
    pub(super) fn attention(
        &self,
        number: usize,
        layer: &Layer,
        sequence: &mut Sequence,
        hidden: &[f32],
        observe: &mut Observer<'_>,
    ) -> Result<Vec<f32>, ModelError> {
        let Self { config, level, pool, .. } = self;
        let Sequence { cache, rope } = sequence;
        let first = cache.len();
        let acts = self.acts(&self.normalized(&layer.input_norm, hidden), config.hidden_size)?;
        let heads = |linear, norm, dim| self.heads(&acts, Heads { linear, norm, dim }, rope, first);
        let q = heads(&layer.q, &layer.q_norm, config.head_dim)?;
        let k = heads(&layer.k, &layer.k_norm, config.head_dim)?;
        let v = self.linear(&acts, &layer.v)?;

        let mut out = vec![0.0; q.len()];
        match layer.index.as_ref().zip(self.msa.as_ref()) {
            None => {
                cache.append(pool, number, &k, &v, &[])?;
                attention(*level, pool, cache.layer(number), config.num_attention_heads, &q, &mut out)?;
            }
            Some((Index { q: index_q, k: index_k, q_norm, k_norm }, msa)) if let Some(mut device) = self.device() => {
                let index_q = &heads(index_q, q_norm, msa.index_dim())?;
                let index_k = &heads(index_k, k_norm, msa.index_dim())?;
                let step = Step { layer: number, first, q: &q, k: &k, v: &v, index_q, index_k };
                if let Some(choice) = device.attend(msa, &step, observe.is_there(), &mut out)? {
                    choice.show(number, observe);
                }
            }
            Some((Index { q: index_q, k: index_k, q_norm, k_norm }, msa)) => {
                cache.append(pool, number, &k, &v, &heads(index_k, k_norm, msa.index_dim())?)?;
                let cached = cache.layer(number);
                // Queries that may choose as many blocks as they see attend to all of them.
                let dense = msa.first_that_chooses().saturating_sub(first).min(acts.m());
                let (dense_out, sparse_out) = out.split_at_mut(dense * config.q_size());
                let (dense_q, sparse_q) = q.split_at(dense_out.len());
                if dense > 0 {
                    attention(*level, pool, cached, config.num_attention_heads, dense_q, dense_out)?;
                }
                let choosing = if observe.is_there() { 0 } else { dense };
                if choosing < acts.m() {
                    let index_q = heads(index_q, q_norm, msa.index_dim())?;
                    let index_q = &index_q[choosing * msa.index_width()..];
                    let choice = msa.choose(*level, pool, cached, first + choosing, index_q, observe.is_there())?;
                    choice.show(number, observe);
                    if dense < acts.m() {
                        let lists = choice.from(dense - choosing);
                        msa.attend(*level, pool, cached, first + dense, sparse_q, lists, sparse_out)?;
                    }
                }
            }
        }
        Ok(self.linear(&self.acts(&out, config.q_size())?, &layer.o)?)
    }

    /// A projection of tokens at the positions from `first` on, its heads normalised and rotated.
    fn heads(&self, acts: &Acts, heads: Heads<'_>, rope: &Rope, first: usize) -> Result<Vec<f32>, ShapeError> {
        let Heads { linear, norm, dim } = heads;
        let mut values = self.linear(acts, linear)?;
        self.normalize_and_rotate(&mut values, linear.weight().n(), norm, dim, rope, first);
        Ok(values)
    }

    /// Normalises and rotates the heads, of `dim` channels, of tokens at the positions from `first` on, `[tokens, width]`.
    pub(super) fn normalize_and_rotate(
        &self,
        values: &mut [f32],
        width: usize,
        norm: &RmsNorm,
        dim: usize,
        rope: &Rope,
        first: usize,
    ) {
        self.each_row(values, width, |row, values| {
            norm.normalize(self.level, values);
            self.round(values);
            values.chunks_exact_mut(dim).for_each(|head| rope.rotate(first + row, head));
        });
    }

    /// The feed-forward part.
    pub(super) fn ffn(
        &self,
        arm: Arm,
        number: usize,
        layer: &Layer,
        hidden: &[f32],
        observe: &mut Observer<'_>,
    ) -> Result<Vec<f32>, ModelError> {
        let width = self.config.hidden_size;
        let normed = self.normalized(&layer.post_norm, hidden);
        let rounded;
        let tokens = match self.precision {
            Precision::F32 => Tokens::F32(&normed),
            Precision::Bf16 => {
                rounded = narrow(self.level, &self.pool, &normed);
                Tokens::Bf16(&rounded)
            }
        };
        let mut out = match &layer.ffn {
            Ffn::Dense(mlp) => self.mlp(arm, mlp, tokens, hidden.len() / width)?,
            Ffn::Moe(moe) => self.moe(arm, number, moe, &normed, tokens, observe)?,
        };
        self.each_row(&mut out, width, |_, row| self.round(row));
        Ok(out)
    }

    /// The mixture of experts on `tokens`, which are `normed` rounded; not rounded.
    fn moe(
        &self,
        arm: Arm,
        number: usize,
        moe: &Moe,
        normed: &[f32],
        tokens: Tokens<'_>,
        observe: &mut Observer<'_>,
    ) -> Result<Vec<f32>, ModelError> {
        let Self { config, level, pool, .. } = self;
        let width = config.hidden_size;
        let count = normed.len() / width;

        let mut ids = vec![0; count * config.num_experts_per_tok];
        let mut weights = vec![0.0; ids.len()];
        match self.routing {
            Routing::Static => first_experts(config.num_experts_per_tok, &mut ids, &mut weights),
            Routing::Learned => {
                // The router reads the tokens as the experts do, and computes in F32.
                let acts = Acts::from_f32(*level, pool, Precision::F32, count, width, normed)?;
                let mut logits = vec![0.0; count * config.num_local_experts];
                linear(pool, &acts, moe.router.weight(), &mut logits)?;
                observe.show(Event::RouterLogits { layer: number, values: &logits });
                route(*level, pool, &logits, &moe.bias, config.num_experts_per_tok, &mut ids, &mut weights)?;
            }
        }
        observe.show(Event::TopK { layer: number, ids: &ids, weights: &weights });

        let mut out = match (self.device(), tokens) {
            (Some(mut device), Tokens::Bf16(tokens)) => {
                device.experts(arm, number, &moe.experts, tokens, (&ids, &weights))?
            }
            _ => self.mlps(arm, &moe.experts, tokens, &ids, &weights)?,
        };
        let shared = match &moe.shared {
            Some(shared) => Some(self.mlp(arm, shared, tokens, count)?),
            None => None,
        };
        self.scale_and_share(&mut out, shared.as_deref());
        Ok(out)
    }

    /// Multiplies the experts' sum with the scaling factor and adds what the shared expert says.
    pub(super) fn scale_and_share(&self, out: &mut [f32], shared: Option<&[f32]>) {
        let (width, factor) = (self.config.hidden_size, self.config.routed_scaling_factor);
        if factor != 1.0 || shared.is_some() {
            self.each_row(out, width, |row, out| {
                out.iter_mut().for_each(|out| *out *= factor);
                if let Some(shared) = shared {
                    out.iter_mut().zip(&shared[row * width..]).for_each(|(out, shared)| *out += shared);
                }
            });
        }
    }

    /// What runs on a device. A panic in it leaves nothing behind that the next call would trust.
    fn device(&self) -> Option<MutexGuard<'_, Accelerator>> {
        self.device.as_ref().map(|device| device.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// One MLP on all of `count` tokens.
    fn mlp(&self, arm: Arm, mlp: &Mlps, tokens: Tokens<'_>, count: usize) -> Result<Vec<f32>, ModelError> {
        self.mlps(arm, mlp, tokens, &vec![0; count], &vec![1.0; count])
    }

    /// The weighted sum of the chosen MLPs for each token, `[tokens, hidden]`.
    fn mlps(
        &self,
        arm: Arm,
        mlps: &Mlps,
        tokens: Tokens<'_>,
        ids: &[u32],
        weights: &[f32],
    ) -> Result<Vec<f32>, ModelError> {
        let values = match tokens {
            Tokens::F32(values) => values.len(),
            Tokens::Bf16(values) => values.len(),
        };
        let mut out = vec![0.0; values];
        let (level, pool, dims) = (self.level, &self.pool, &mlps.dims);
        match arm {
            Arm::Eager | Arm::VecGraph => moe_ffn_eager(level, pool, dims, tokens, mlps, ids, weights, &mut out)?,
            Arm::Fused | Arm::FusedGraph => moe_ffn(level, pool, dims, tokens, mlps, ids, weights, &mut out)?,
        }
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
        let mut out = vec![0.0; hidden.len()];
        self.normalize(norm, hidden, &mut out);
        out
    }

    /// As [`normalized`](Self::normalized), to `out`.
    pub(super) fn normalize(&self, norm: &RmsNorm, hidden: &[f32], out: &mut [f32]) {
        let width = self.config.hidden_size;
        self.each_row(out, width, |row, out| {
            out.copy_from_slice(&hidden[row * width..][..width]);
            norm.normalize(self.level, out);
            self.round(out);
        });
    }

    /// Adds to the residual stream, and rounds it.
    pub(super) fn add(&self, hidden: &mut [f32], x: &[f32]) {
        let width = self.config.hidden_size;
        self.each_row(hidden, width, |row, hidden| {
            for (hidden, x) in hidden.iter_mut().zip(&x[row * width..]) {
                *hidden += x;
            }
            self.round(hidden);
        });
    }

    /// Rounds to the precision of the activations.
    pub(super) fn round(&self, x: &mut [f32]) {
        if self.precision == Precision::Bf16 {
            round_to_bf16(self.level, x);
        }
    }

    /// Calls `each` with the number and the values of every row, on all threads if there are many values.
    pub(super) fn each_row(&self, values: &mut [f32], width: usize, each: impl Fn(usize, &mut [f32]) + Sync) {
        let rows = (TASK_VALUES / width).max(1);
        self.pool.for_each_chunk_mut(values, rows * width, |task, values| {
            for (i, row) in values.chunks_exact_mut(width).enumerate() {
                each(task * rows + i, row);
            }
        });
    }
}

/// Rounds to BF16.
pub(super) fn narrow(level: Level, pool: &Pool, x: &[f32]) -> Vec<bf16> {
    let mut out = vec![bf16::ZERO; x.len()];
    narrow_to(level, pool, x, &mut out);
    out
}

/// Rounds to BF16, to `out`.
pub(super) fn narrow_to(level: Level, pool: &Pool, x: &[f32], out: &mut [bf16]) {
    pool.for_each_chunk_mut(out, TASK_VALUES, |task, out| {
        f32_to_bf16(level, &x[task * TASK_VALUES..][..out.len()], out);
    });
}
