// SPDX-License-Identifier: MIT OR Apache-2.0

//! The forward pass of MiniMax-M2.7: prefill and decode of one sequence.
//!
//! Pre-norm decoder layers. Attention: RMS norm over the whole query and the whole key projection, rotation of the first
//! channels of each head, causal attention with grouped heads. Experts: an F32 router with sigmoid scores, whose bias takes
//! part in the choice only, and the gated FFN of the chosen experts. Sums are F32 throughout. With [`Precision::F32`]
//! nothing is rounded besides; with [`Precision::Bf16`] the outputs of norms, projections, attention, experts and residual
//! additions are rounded to BF16, and the router still computes in F32.
//!
//! A token's result is the same bit for bit for every number of threads, for packed and mapped weights, and whether its
//! predecessors came in one call or in many.

pub mod attention;
pub mod cache;
mod forward;
pub mod norm;
pub mod parity;
pub mod rope;
pub mod router;
mod weights;

use crate::bench::{Arm, BenchDecoder};
use crate::checkpoint::{Checkpoint, CheckpointError, LoadReport};
use crate::config::{HiddenAct, ModelConfig, Variant};
use crate::generate::Decoder;
use cache::KvCache;
use cpu_tiles::{Level, Pool, Precision, ShapeError};
use forward::{Network, Sequence};
use grouped_gemm::{Activation, MoeDims};
use half::bf16;
use rope::Rope;
use std::sync::Arc;
use weights::{Loader, linear_bytes};

/// Tokens that go through the layers together; a longer prompt is cut, which bounds the memory of a prefill.
const PREFILL: usize = 2048;

/// Where the weights of linear layers are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadMode {
    /// In the mapped files, row-major, read when used: for checkpoints larger than memory.
    Mmap,
    /// In memory, packed once into panels, which are faster to read.
    Pack,
    /// `Pack` if that takes at most half of the memory available, else `Mmap`.
    Auto,
}

/// How a model is loaded and run.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// The SIMD level.
    pub level: Level,
    /// The threads.
    pub pool: Arc<Pool>,
    /// What activations are rounded to.
    pub precision: Precision,
    /// Where weights are held.
    pub load_mode: LoadMode,
}

/// Why a model cannot be loaded or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The checkpoint does not hold the model.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The model is of a variant that cannot be run yet.
    #[error("{0} cannot be run by this version, which runs MiniMax-M2.7")]
    UnsupportedVariant(Variant),
    /// No tokens were passed.
    #[error("no token ids: a forward pass needs at least one")]
    NoTokens,
    /// A token id is outside the vocabulary.
    #[error("token id {id} is outside the vocabulary of {vocab} tokens")]
    OutsideVocab {
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// The sequence would be longer than the model's positions.
    #[error("{found} tokens exceed the {max} positions of the model (max_position_embeddings)")]
    TooLong {
        /// Tokens of the sequence, the new ones included.
        found: usize,
        /// Positions of the model.
        max: usize,
    },
    /// A buffer could not be had.
    #[error(transparent)]
    Tiles(#[from] ShapeError),
    /// The experts could not be run.
    #[error("experts: {0}")]
    Experts(#[from] grouped_gemm::Error),
}

/// An intermediate result of a forward pass, one row per token.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// After the embedding, `[tokens, hidden]`.
    Embeddings(&'a [f32]),
    /// Output of the attention block, its output projection included, `[tokens, hidden]`.
    AttnOut {
        /// The layer.
        layer: usize,
        /// The values.
        values: &'a [f32],
    },
    /// Router logits before the sigmoid, `[tokens, experts]`.
    RouterLogits {
        /// The layer.
        layer: usize,
        /// The values.
        values: &'a [f32],
    },
    /// The experts chosen, `[tokens, experts per token]`.
    TopK {
        /// The layer.
        layer: usize,
        /// Experts, ascending.
        ids: &'a [u32],
        /// Their weights, with sum 1.
        weights: &'a [f32],
    },
    /// Residual stream after a layer, `[tokens, hidden]`.
    Hidden {
        /// The layer.
        layer: usize,
        /// The values.
        values: &'a [f32],
    },
    /// After the last norm, `[tokens, hidden]`; only for tokens whose logits were asked for.
    FinalNorm(&'a [f32]),
}

/// A loaded model and its sequence.
#[derive(Debug)]
pub struct Model {
    network: Network,
    sequence: Sequence,
    arm: Arm,
    load_mode: LoadMode,
    report: LoadReport,
    /// Of the last position.
    logits: Vec<f32>,
}

impl Model {
    /// Loads the layers of `checkpoint` that `config` names. `progress` is told the bytes done and the bytes of all linear
    /// layers, as stored. The arm is [`Arm::Fused`] until [`BenchDecoder::set_arm`] says otherwise.
    ///
    /// # Errors
    /// [`ModelError::Checkpoint`] if the checkpoint does not fit the configuration, [`ModelError::Tiles`] when memory
    /// runs out.
    pub fn load(
        checkpoint: &Checkpoint,
        config: &ModelConfig,
        options: &LoadOptions,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Self, ModelError> {
        if config.variant != Variant::M27 {
            return Err(ModelError::UnsupportedVariant(config.variant));
        }
        let (tensors, report) = checkpoint.model_tensors(config)?;
        let (stored, packed) = linear_bytes(&tensors);
        let load_mode = match options.load_mode {
            LoadMode::Auto if available_memory().is_some_and(|available| packed <= available / 2) => LoadMode::Pack,
            LoadMode::Auto => LoadMode::Mmap,
            chosen => chosen,
        };
        let mut done = 0;
        let mut loader = Loader {
            level: options.level,
            pool: &options.pool,
            pack: load_mode == LoadMode::Pack,
            eps: config.rms_norm_eps,
            ready: &mut |bytes| {
                done += bytes as u64;
                progress(done, stored);
            },
        };
        let weights = loader.load(tensors)?;
        let activation = match config.hidden_act {
            HiddenAct::Silu => Activation::Silu,
            HiddenAct::SwigluOai { alpha, limit } => Activation::SwigluOai { alpha, limit },
        };
        Ok(Self {
            sequence: Sequence {
                cache: KvCache::new(
                    options.precision,
                    config.num_hidden_layers,
                    config.num_key_value_heads,
                    config.head_dim,
                ),
                rope: Rope::new(config.rope_theta, config.rotary_dim),
            },
            arm: Arm::Fused,
            load_mode,
            report,
            logits: vec![0.0; config.vocab_size],
            network: Network {
                moe: MoeDims {
                    experts: config.num_local_experts,
                    hidden: config.hidden_size,
                    intermediate: config.intermediate_size,
                    activation,
                },
                config: config.clone(),
                level: options.level,
                pool: Arc::clone(&options.pool),
                precision: options.precision,
                weights,
            },
        })
    }

    /// The configuration.
    pub fn config(&self) -> &ModelConfig {
        &self.network.config
    }

    /// What the checkpoint was found to hold.
    pub fn report(&self) -> &LoadReport {
        &self.report
    }

    /// Where the weights are held: what [`LoadMode::Auto`] has become, too.
    pub fn load_mode(&self) -> LoadMode {
        self.load_mode
    }

    /// Tokens of the sequence.
    pub fn len(&self) -> usize {
        self.sequence.cache.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Cuts the sequence to its first `len` tokens; a shorter one stays as it is.
    pub fn truncate(&mut self, len: usize) {
        self.sequence.cache.truncate(len);
    }

    /// Appends `ids` to the sequence and returns the logits of each, F32 `[ids, vocab]`. `observe` is shown what happens on
    /// the way.
    ///
    /// # Errors
    /// As [`Decoder::forward`].
    pub fn forward_all(&mut self, ids: &[u32], mut observe: impl FnMut(Event<'_>)) -> Result<Vec<f32>, ModelError> {
        self.check(ids)?;
        let mut logits = vec![0.0; ids.len() * self.network.config.vocab_size];
        for (ids, logits) in ids.chunks(PREFILL).zip(logits.chunks_mut(PREFILL * self.network.config.vocab_size)) {
            let hidden = self.network.hidden(self.arm, &mut self.sequence, ids, &mut observe)?;
            self.network.logits(&hidden, logits, &mut observe)?;
        }
        Ok(logits)
    }

    fn check(&self, ids: &[u32]) -> Result<(), ModelError> {
        let ModelConfig { vocab_size: vocab, max_position_embeddings: max, .. } = self.network.config;
        if ids.is_empty() {
            return Err(ModelError::NoTokens);
        }
        if let Some(&id) = ids.iter().find(|&&id| id as usize >= vocab) {
            return Err(ModelError::OutsideVocab { id, vocab });
        }
        let found = self.len() + ids.len();
        if found > max {
            return Err(ModelError::TooLong { found, max });
        }
        Ok(())
    }
}

impl Decoder for Model {
    type Error = ModelError;

    fn vocab_size(&self) -> usize {
        self.network.config.vocab_size
    }

    fn max_positions(&self) -> usize {
        self.network.config.max_position_embeddings
    }

    fn reset(&mut self) {
        self.truncate(0);
    }

    fn forward(&mut self, ids: &[u32]) -> Result<&[f32], ModelError> {
        self.check(ids)?;
        let mut hidden = Vec::new();
        for ids in ids.chunks(PREFILL) {
            hidden = self.network.hidden(self.arm, &mut self.sequence, ids, &mut |_| ())?;
        }
        let last = &hidden[hidden.len() - self.network.config.hidden_size..];
        self.network.logits(last, &mut self.logits, &mut |_| ())?;
        Ok(&self.logits)
    }
}

impl BenchDecoder for Model {
    fn set_arm(&mut self, arm: Arm) {
        self.arm = arm;
    }

    fn decode_bytes(&self) -> u64 {
        let config = &self.network.config;
        let weights = &self.network.weights;
        let layer = |layer: &weights::Layer| {
            let dense = [&layer.q, &layer.k, &layer.v, &layer.o, &layer.router];
            let norms = 2 * config.hidden_size + config.q_size() + config.kv_size();
            // The experts of a layer have one size.
            let expert = layer.experts.0.first().map_or(0, |expert| {
                [&expert.gate, &expert.up, &expert.down].iter().map(|linear| linear.stored_bytes()).sum()
            });
            dense.iter().map(|linear| linear.stored_bytes()).sum::<usize>()
                + norms * size_of::<bf16>()
                + size_of_val(layer.router_bias.as_slice())
                + config.num_experts_per_tok * expert
        };
        let embedding_and_norm = 2 * config.hidden_size * size_of::<bf16>();
        let layers: usize = weights.layers.iter().map(layer).sum();
        (layers + embedding_and_norm + weights.lm_head.stored_bytes()) as u64
    }
}

/// Bytes of memory that can be had without swapping, if the system says.
fn available_memory() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
