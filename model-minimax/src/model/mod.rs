// SPDX-License-Identifier: MIT OR Apache-2.0

//! The forward pass of MiniMax-M2.7 and MiniMax-M3 (text): prefill and decode of one sequence.
//!
//! Pre-norm decoder layers; what they consist of is data of the [configuration](ModelConfig::layers). Attention: RMS norm of
//! queries and keys (over a whole projection or per head), rotation of the first channels of each head, causal attention
//! with grouped heads, to all keys or, in layers with sparse attention, to those of blocks that index heads choose.
//! Feed-forward part: one MLP, or an F32 router with sigmoid scores, whose bias takes part in the choice only, the chosen
//! experts, their sum times the scaling factor, and the shared expert. Sums are F32 throughout. With [`Precision::F32`]
//! nothing is rounded besides; with [`Precision::Bf16`] the outputs of norms, projections, attention, feed-forward parts and
//! residual additions are rounded to BF16, and the router still computes in F32.
//!
//! A token's result is the same bit for bit for every number of threads, for packed and mapped weights, and whether its
//! predecessors came in one call or in many.

pub mod attention;
pub mod cache;
pub mod device;
mod forward;
mod graph;
mod msa;
pub mod norm;
pub mod parity;
pub mod rope;
pub mod router;
pub mod verify;
mod weights;

use crate::bench::{Arm, BenchDecoder};
use crate::checkpoint::{Checkpoint, CheckpointError, FfnTensors, LayerTensors, LoadReport, ModelTensors};
use crate::config::{HiddenAct, LayerConfig, ModelConfig};
use crate::generate::Decoder;
use cache::{CacheError, CacheShape, KvCache};
use cpu_tiles::{Level, Pool, Precision, ShapeError};
use device::{Accelerator, Device, DeviceError, MemoryPlan, Sizes};
use forward::{Network, Observer, Sequence};
use graph::{Graph, Window};
use grouped_gemm::{Activation, MoeDims};
use msa::Msa;
use rope::Rope;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use weights::{LinearBytes, Loader, linear_bytes};

pub use msa_indexer::HeadReduce;

/// Tokens that go through the layers together, unless [`LoadOptions::prefill_chunk`] says otherwise.
pub const PREFILL_CHUNK: NonZeroUsize = NonZeroUsize::new(2048).unwrap();

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

/// How layers with sparse attention attend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionMode {
    /// To the blocks of keys that their index heads choose: each for its KV head, as the model means it, or all together, as
    /// the published operator does.
    Msa(HeadReduce),
    /// To all keys; index heads are not computed. The same as long as a query sees no more blocks than it may choose.
    Dense,
}

/// Which experts a token goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routing {
    /// Those that the router chooses, with its weights.
    Learned,
    /// The first, as many as a token may choose, with equal weights of sum 1, whatever the token is: what the graph arms of
    /// the published benchmark do. The router is not computed.
    Static,
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
    /// How layers with sparse attention attend. Models without any do not read it.
    pub attention: AttentionMode,
    /// Tokens that go through the layers together; a longer prompt is cut, which bounds the memory of a prefill. Results do
    /// not depend on it.
    pub prefill_chunk: NonZeroUsize,
    /// Where routed experts and sparse attention run.
    pub device: Device,
    /// Whether the experts stay on the host and are copied to the device when they are used; otherwise all are brought there
    /// at load. Results do not depend on it, and the CPU does not read it.
    pub streaming: bool,
}

impl LoadOptions {
    /// On the CPU: BF16 activations, weights packed if memory allows, sparse attention as the model means it.
    pub fn new(level: Level, pool: Arc<Pool>) -> Self {
        Self {
            level,
            pool,
            precision: Precision::Bf16,
            load_mode: LoadMode::Auto,
            attention: AttentionMode::Msa(HeadReduce::PerKvHead),
            prefill_chunk: PREFILL_CHUNK,
            device: Device::cpu(),
            streaming: true,
        }
    }
}

/// Why a model cannot be loaded or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The checkpoint does not hold the model.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
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
    /// The tokens could not be cached.
    #[error("KV cache: {0}")]
    Cache(#[from] CacheError),
    /// A buffer could not be had.
    #[error(transparent)]
    Tiles(#[from] ShapeError),
    /// The experts could not be run.
    #[error("experts: {0}")]
    Experts(#[from] grouped_gemm::Error),
    /// The blocks of keys could not be chosen.
    #[error("indexer: {0}")]
    Indexer(#[from] msa_indexer::Error),
    /// The chosen blocks could not be attended to, by one query.
    #[error("sparse decode: {0}")]
    SparseDecode(#[from] msa_sparse_decode::Error),
    /// The chosen blocks could not be attended to, by several queries.
    #[error("main branch: {0}")]
    MainBranch(#[from] msa_main_branch::Error),
    /// The device cannot run the model, or has failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// An intermediate result of a forward pass, one row per token.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// After the embedding, `[tokens, hidden]`.
    Embeddings(&'a [f32]),
    /// How well the index heads of a layer with sparse attention like the blocks of keys, F32 `[tokens, KV heads, blocks]`:
    /// what the choice for a KV head is made by, the largest score of the keys that the token sees, minus infinity where it
    /// sees none. Forced blocks are scored like others.
    BlockScores {
        /// The layer.
        layer: usize,
        /// KV heads.
        kv_heads: usize,
        /// Blocks up to the last token.
        blocks: usize,
        /// The values.
        values: &'a [f32],
    },
    /// The blocks of keys chosen, `[tokens, KV heads, top-k]`.
    Blocks {
        /// The layer.
        layer: usize,
        /// KV heads.
        kv_heads: usize,
        /// Blocks that a token may choose.
        top_k: usize,
        /// Blocks, ascending; -1 after the last where a token sees fewer than it may choose.
        ids: &'a [i32],
    },
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
    /// What the graph arms have captured, one for each.
    graphs: Vec<Graph>,
    /// Windows that were captured, one for each arm.
    windows: Vec<Window>,
    prefill_chunk: NonZeroUsize,
    load_mode: LoadMode,
    report: LoadReport,
    /// Of the last position.
    logits: Vec<f32>,
}

impl Model {
    /// What of the model would lie on the device of `options`: `None` on the CPU. Headers are read, nothing is allocated.
    ///
    /// # Errors
    /// [`ModelError::Checkpoint`] if the checkpoint does not fit the configuration, [`ModelError::Device`] if the device cannot
    /// run the model. Too little memory is no error here.
    pub fn memory_plan(
        checkpoint: &Checkpoint,
        config: &ModelConfig,
        options: &LoadOptions,
    ) -> Result<Option<MemoryPlan>, ModelError> {
        let (tensors, _) = checkpoint.model_tensors(config)?;
        Ok(device_plan(&tensors, config, options, msa_of(config, options.attention).as_ref())?)
    }

    /// Loads the layers of `checkpoint` that `config` names. `progress` is told the bytes done and the bytes of all linear
    /// layers, as stored. The arm is [`Arm::Fused`] until [`BenchDecoder::set_arm`] says otherwise.
    ///
    /// # Errors
    /// [`ModelError::Checkpoint`] if the checkpoint does not fit the configuration, [`ModelError::Tiles`] when memory
    /// runs out, [`ModelError::Device`] if the device cannot run the model or has too little memory.
    pub fn load(
        checkpoint: &Checkpoint,
        config: &ModelConfig,
        options: &LoadOptions,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Self, ModelError> {
        let (tensors, report) = checkpoint.model_tensors(config)?;
        let msa = msa_of(config, options.attention);
        let plan = device_plan(&tensors, config, options, msa.as_ref())?;
        let LinearBytes { stored, packed, packed_experts } = linear_bytes(&tensors, msa.is_some());
        // The experts that a device has need no memory here, those that are streamed there about as much as packed ones.
        let on_device = plan.is_some();
        let packed = packed + if on_device && !options.streaming { 0 } else { packed_experts };
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
            pack_experts: !on_device,
            index: msa.is_some(),
            norm: config.norm,
            eps: config.rms_norm_eps,
            activation: match config.hidden_act {
                HiddenAct::Silu => Activation::Silu,
                HiddenAct::SwigluOai { alpha, limit } => Activation::SwigluOai { alpha, limit },
            },
            ready: &mut |bytes| {
                done += bytes as u64;
                progress(done, stored);
            },
        };
        let weights = loader.load(tensors)?;
        let device = match plan {
            None => None,
            Some(plan) => {
                let keep = load_mode == LoadMode::Pack;
                Accelerator::new(&options.device, options, plan, config, &weights.layers, msa.as_ref(), keep)?
            }
        };
        let layers = &config.layers[..config.num_hidden_layers];
        let index_dim = |layer: &LayerConfig| msa.as_ref().and(layer.msa()).map_or(0, |msa| msa.index_dim);
        let shape = CacheShape {
            kv_heads: config.num_key_value_heads,
            head_dim: config.head_dim,
            index_dims: layers.iter().map(index_dim).collect(),
            max_tokens: config.max_position_embeddings,
        };
        Ok(Self {
            sequence: Sequence {
                cache: KvCache::new(options.precision, shape),
                rope: Rope::new(config.rope_theta, config.rotary_dim),
            },
            arm: Arm::Fused,
            graphs: Vec::new(),
            windows: Vec::new(),
            prefill_chunk: options.prefill_chunk,
            load_mode,
            report,
            logits: vec![0.0; config.vocab_size],
            network: Network {
                msa,
                config: config.clone(),
                level: options.level,
                pool: Arc::clone(&options.pool),
                precision: options.precision,
                routing: Routing::Learned,
                weights,
                device: device.map(Mutex::new),
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
        self.check(self.len(), ids)?;
        let (chunk, vocab) = (self.prefill_chunk.get(), self.network.config.vocab_size);
        let mut logits = vec![0.0; ids.len() * vocab];
        let observe = &mut Observer(Some(&mut observe));
        for (ids, logits) in ids.chunks(chunk).zip(logits.chunks_mut(chunk.saturating_mul(vocab))) {
            let hidden = self.network.hidden(self.arm, &mut self.sequence, ids, observe)?;
            self.network.logits(&hidden, logits, observe)?;
        }
        Ok(logits)
    }

    /// As [`Decoder::forward`], and `observe` is shown what happens on the way.
    ///
    /// # Errors
    /// As [`Decoder::forward`].
    pub fn forward_observed(&mut self, ids: &[u32], mut observe: impl FnMut(Event<'_>)) -> Result<&[f32], ModelError> {
        self.last_logits(ids, &mut Observer(Some(&mut observe)))
    }

    fn last_logits(&mut self, ids: &[u32], observe: &mut Observer<'_>) -> Result<&[f32], ModelError> {
        self.check(self.len(), ids)?;
        let mut hidden = Vec::new();
        for ids in ids.chunks(self.prefill_chunk.get()) {
            hidden = self.network.hidden(self.arm, &mut self.sequence, ids, observe)?;
        }
        let last = &hidden[hidden.len() - self.network.config.hidden_size..];
        self.network.logits(last, &mut self.logits, observe)?;
        Ok(&self.logits)
    }

    /// Selects the experts of the tokens from the next forward pass on; [`Routing::Learned`] after loading.
    pub fn set_routing(&mut self, routing: Routing) {
        if self.network.routing != routing {
            self.graphs.clear();
            self.network.routing = routing;
        }
    }

    /// The place of the arm's graph, with room for a sequence of `tokens` tokens: captured if it is not there.
    fn captured(&mut self, tokens: usize) -> Result<usize, ModelError> {
        let place = self.graphs.iter().position(|graph| graph.arm() == self.arm);
        if let Some(place) = place.filter(|&place| self.graphs[place].capacity() >= tokens) {
            return Ok(place);
        }
        // What has become too small goes first, for its memory.
        place.map(|place| self.graphs.remove(place));
        let capacity = tokens.next_multiple_of(cache::PAGE).min(self.network.config.max_position_embeddings);
        self.graphs.push(Graph::capture(&self.network, &mut self.sequence, self.arm, capacity)?);
        Ok(self.graphs.len() - 1)
    }

    /// Whether `ids` can be appended to a sequence of `before` tokens.
    fn check(&self, before: usize, ids: &[u32]) -> Result<(), ModelError> {
        let ModelConfig { vocab_size: vocab, max_position_embeddings: max, .. } = self.network.config;
        if ids.is_empty() {
            return Err(ModelError::NoTokens);
        }
        if let Some(&id) = ids.iter().find(|&&id| id as usize >= vocab) {
            return Err(ModelError::OutsideVocab { id, vocab });
        }
        let found = before + ids.len();
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

    fn keep(&mut self, len: usize) -> usize {
        self.truncate(len);
        self.len()
    }

    fn prepare(&mut self, tokens: usize) -> Result<(), ModelError> {
        if let Some(device) = self.network.device.as_mut().filter(|_| self.arm.is_graph()) {
            device.get_mut().unwrap_or_else(PoisonError::into_inner).capture(self.arm)?;
        } else if self.arm.is_graph() {
            self.captured(tokens.min(self.max_positions()))?;
        }
        Ok(())
    }

    fn forward(&mut self, ids: &[u32]) -> Result<&[f32], ModelError> {
        match *ids {
            // On a device the experts' part is what is captured.
            [id] if self.arm.is_graph() && self.network.device.is_none() => {
                self.check(self.len(), ids)?;
                let place = self.captured(self.len() + 1)?;
                self.graphs[place].replay(&self.network, &mut self.sequence, id)
            }
            _ => self.last_logits(ids, &mut Observer(None)),
        }
    }
}

impl BenchDecoder for Model {
    fn set_arm(&mut self, arm: Arm) {
        self.arm = arm;
    }

    fn forward_window(&mut self, ids: &[u32]) -> Result<&[f32], ModelError> {
        self.check(0, ids)?;
        if self.network.device.is_some() {
            return Err(DeviceError::Window.into());
        }
        let arm = self.arm.as_graph();
        let place = self.windows.iter().position(|window| window.arm() == arm);
        let place = match place {
            Some(place) if self.windows[place].tokens() == ids.len() => place,
            place => {
                // What has another size goes first, for its memory.
                place.map(|place| self.windows.remove(place));
                self.windows.push(Window::capture(&self.network, arm, ids.len())?);
                self.windows.len() - 1
            }
        };
        self.windows[place].replay(&self.network, ids)
    }

    fn decode_bytes(&self, context: usize) -> u64 {
        let Network { config, weights, msa, precision, .. } = &self.network;
        let value_bytes = match precision {
            Precision::F32 => size_of::<f32>(),
            Precision::Bf16 => size_of::<half::bf16>(),
        };
        let keys_and_values = |tokens: usize| tokens * 2 * config.kv_size();
        let cached = weights.layers.iter().map(|layer| match layer.index.as_ref().zip(msa.as_ref()) {
            None => keys_and_values(context),
            Some((_, msa)) if context < msa.first_that_chooses() => keys_and_values(context),
            Some((_, msa)) => keys_and_values(msa.attended(context)) + context * msa.index_dim(),
        });
        (weights.stored_bytes_of_token(config.num_experts_per_tok) + cached.sum::<usize>() * value_bytes) as u64
    }
}

/// The sparse attention that is the same in all layers that have it.
fn msa_of(config: &ModelConfig, attention: AttentionMode) -> Option<Msa> {
    let AttentionMode::Msa(reduce) = attention else { return None };
    let layers = &config.layers[..config.num_hidden_layers];
    layers.iter().find_map(LayerConfig::msa).map(|msa| Msa::new(config, msa, reduce))
}

/// What of a model would lie on its device.
fn device_plan(
    tensors: &ModelTensors,
    config: &ModelConfig,
    options: &LoadOptions,
    msa: Option<&Msa>,
) -> Result<Option<MemoryPlan>, DeviceError> {
    if options.device.is_cpu() {
        return Ok(None);
    }
    let experts = |layer: &LayerTensors| match &layer.ffn {
        FfnTensors::Moe(moe) => moe
            .experts
            .first()
            .map(|expert| (moe.experts.len(), [expert.gate.cols, expert.gate.rows], expert.gate.format)),
        FfnTensors::Dense(_) => None,
    };
    let experts: Vec<_> = tensors.layers.iter().filter_map(experts).collect();
    let sizes = Sizes {
        moe_layers: experts.len(),
        experts: experts.first().map(|&(experts, [hidden, intermediate], format)| {
            (MoeDims { experts, hidden, intermediate, activation: Activation::Silu }, format)
        }),
        msa_layers: tensors.layers.iter().filter(|layer| layer.index.is_some()).count(),
    };
    Accelerator::plan(&options.device, config, options, msa, &sizes)
}

/// Bytes of memory that can be had without swapping, if the system says.
pub fn available_memory() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
