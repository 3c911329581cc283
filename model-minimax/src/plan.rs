// SPDX-License-Identifier: MIT OR Apache-2.0

//! What running a model takes, before a weight is read: memory by part and place, bytes and FLOP of a token, and the rate
//! that the bandwidth of the machine allows.
//!
//! Everything follows from the configuration. A rate is that of memory alone, an upper bound: it is called *expected* where
//! the bandwidth was measured on the machine at hand, and *predicted* where it is a published figure of a card.
//!
//! ```
//! use model_minimax::config::ModelConfig;
//! use model_minimax::plan::{Chip, MemoryPlan, PlanOptions, Target};
//!
//! # let dir = op_testkit::golden::dir().join("models/m3-tiny-mxfp8");
//! let config = ModelConfig::load(&dir)?;
//! let target = Target::Npu { chip: Chip::find("910b3")?, streaming: false };
//! let plan = MemoryPlan::new(&config, &PlanOptions { context: 1024, ..PlanOptions::new(target) });
//! assert_eq!(plan.fits, Some(true));
//! println!("{plan}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::num::NonZeroUsize;

use cpu_tiles::{PANEL, Precision};
use serde::Serialize;

use crate::checkpoint::{FfnTensors, LinearTensors, MlpTensors, ModelTensors, TensorSpec};
use crate::config::{ModelConfig, MsaConfig};
use crate::model::cache::{CacheShape, KvCache, PAGE};
use crate::model::{LoadMode, PREFILL_CHUNK};

/// Version of the JSON form; it grows when a field changes its meaning or disappears.
pub const SCHEMA: u32 = 1;

const GIB: u64 = 1 << 30;

/// A card, as far as a plan needs to know it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Chip {
    /// Short name, as in `sim:910b3`.
    pub name: &'static str,
    /// Its memory. Parts of one name that differ have the smallest that is published for the name.
    pub memory_bytes: u64,
    /// Rate of its memory: published, or estimated from what is published.
    pub read_bytes_per_s: f64,
    /// Rate at which the host copies to it. An assumption: half of what PCIe 4.0 x16 (A2, A3) or 5.0 x16 (950) can do.
    pub link_bytes_per_s: f64,
}

const CHIPS: [Chip; 6] = {
    const fn chip(name: &'static str, gib: u64, read: f64, link: f64) -> Chip {
        Chip { name, memory_bytes: gib * GIB, read_bytes_per_s: read, link_bytes_per_s: link }
    }
    [
        chip("910b1", 64, 1.6e12, 16e9),
        chip("910b2", 64, 1.6e12, 16e9),
        chip("910b3", 64, 1.6e12, 16e9),
        chip("910b4", 32, 0.8e12, 16e9),
        chip("950pr", 56, 1.6e12, 32e9),
        chip("950dt", 56, 3.8e12, 32e9),
    ]
};

/// No card has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown card {name:?}; plans know {}, and 910b and 950 for one of each family", names().collect::<Vec<_>>().join(", "))]
pub struct UnknownChip {
    /// The name asked for.
    pub name: String,
}

/// The short names of the cards that plans know.
pub fn names() -> impl Iterator<Item = &'static str> {
    CHIPS.iter().map(|chip| chip.name)
}

impl Chip {
    /// The card of this name. Case and a leading `Ascend` do not matter; `910b` stands for 910b2, `950` for 950pr.
    ///
    /// # Errors
    /// [`UnknownChip`].
    pub fn find(name: &str) -> Result<Self, UnknownChip> {
        let lower = name.to_lowercase();
        let short = match lower.strip_prefix("ascend").unwrap_or(&lower) {
            "910b" | "a2" => "910b2",
            "950" => "950pr",
            other => other,
        };
        CHIPS.into_iter().find(|chip| chip.name == short).ok_or_else(|| UnknownChip { name: name.to_owned() })
    }
}

/// What a model runs on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// This machine's CPU.
    Cpu,
    /// Routed experts and sparse attention on a card, the rest on the CPU.
    Npu {
        /// The card.
        chip: Chip,
        /// Whether the experts stay on the host, and those that are routed to are copied for every call.
        streaming: bool,
    },
}

/// How a model is going to run.
#[derive(Debug, Clone)]
pub struct PlanOptions {
    /// Where.
    pub target: Target,
    /// Tokens of the sequence, prompt and answer together.
    pub context: usize,
    /// What activations are rounded to, and the cache holds.
    pub precision: Precision,
    /// Where the CPU's weights are held.
    pub load: LoadMode,
    /// Whether layers with sparse attention choose blocks.
    pub sparse: bool,
    /// Tokens that go through the layers together.
    pub prefill_chunk: NonZeroUsize,
    /// Memory of the host that can be had.
    pub host_memory_bytes: Option<u64>,
    /// Measured read bandwidth of the host.
    pub host_bytes_per_s: Option<f64>,
}

impl PlanOptions {
    /// A sequence of 4096 tokens with the defaults of loading; nothing is known of the host.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            context: 4096,
            precision: Precision::Bf16,
            load: LoadMode::Auto,
            sparse: true,
            prefill_chunk: PREFILL_CHUNK,
            host_memory_bytes: None,
            host_bytes_per_s: None,
        }
    }
}

/// Where a part of a model lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// In the host's memory.
    Host,
    /// In mapped files: the system reads it when it is used, and may forget it.
    Mapped,
    /// In the card's memory.
    Device,
    /// In mapped files, copied to the card for every call that uses it.
    Streamed,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Host => "host",
            Self::Mapped => "mapped",
            Self::Device => "device",
            Self::Streamed => "streamed",
        })
    }
}

/// A part of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Part {
    /// What it is.
    pub name: &'static str,
    /// Where it lies.
    pub place: Place,
    /// Its size.
    pub bytes: u64,
    /// What a decode step at the end of the context reads of it.
    pub bytes_per_token: u64,
}

/// What running a model takes. [`Display`](fmt::Display) gives the text form, [`Serialize`] the JSON form.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MemoryPlan {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Display name of the model.
    pub model: String,
    /// `cpu` or the card.
    pub device: &'static str,
    /// Layers that run.
    pub layers: usize,
    /// Tokens of the sequence.
    pub context: usize,
    /// The parts.
    pub parts: Vec<Part>,
    /// Bytes that must be in the host's memory: parts on the host.
    pub host_bytes: u64,
    /// Bytes that are used from mapped files, those copied to a card included.
    pub mapped_bytes: u64,
    /// Bytes on the card.
    pub device_bytes: u64,
    /// Memory of the host that can be had, if known.
    pub host_memory_bytes: Option<u64>,
    /// Memory of the card.
    pub device_memory_bytes: Option<u64>,
    /// Whether what must be in memory is; `None` where the memory is not known.
    pub fits: Option<bool>,
    /// Whether the mapped files stay in the host's memory beside the rest; if not, they are read from disk again and again.
    pub mapped_stay: Option<bool>,
    /// Bytes that a decode step reads in the host's memory.
    pub host_bytes_per_token: u64,
    /// Bytes that it reads in the card's memory.
    pub device_bytes_per_token: u64,
    /// Bytes that it copies to the card.
    pub link_bytes_per_token: u64,
    /// Multiplications and additions of a decode step.
    pub flop_per_token: u64,
    /// The read bandwidth of the host that was given.
    pub host_bytes_per_s: Option<f64>,
    /// The card.
    pub chip: Option<Chip>,
    /// Tokens per second that these rates allow at most, one step after the other; `None` without a measured bandwidth.
    pub tokens_per_s: Option<f64>,
}

/// Bytes and FLOP of some tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Bytes of weights as stored and of the cache, each read once.
    pub bytes: u64,
    /// Multiplications and additions.
    pub flop: u64,
}

/// Sizes of the kinds of weights, as stored.
#[derive(Debug, Clone, Copy, Default)]
struct Sizes {
    /// As stored.
    bytes: u64,
    /// As packed into panels.
    packed: u64,
    /// Values of a weight.
    values: u64,
}

impl Sizes {
    fn of(linear: &LinearTensors<TensorSpec>) -> Self {
        let values = linear.rows * linear.cols;
        let padded = linear.rows.next_multiple_of(PANEL) * linear.cols.next_multiple_of(4);
        let bytes = linear.weight.byte_len() + linear.scale.as_ref().map_or(0, TensorSpec::byte_len);
        Self {
            bytes: bytes as u64,
            packed: (bytes + (padded - values) * linear.weight.dtype.bits() / 8) as u64,
            values: values as u64,
        }
    }

    fn plain(tensor: &TensorSpec) -> Self {
        let (bytes, values) = (tensor.byte_len() as u64, tensor.shape.iter().product::<usize>() as u64);
        Self { bytes, packed: bytes, values }
    }

    /// A weight that is never quantised.
    fn unscaled(tensor: &TensorSpec) -> Self {
        let [rows, cols] = [0, 1].map(|axis| tensor.shape.get(axis).copied().unwrap_or(0));
        let padded = rows.next_multiple_of(PANEL) * cols.next_multiple_of(4);
        let sizes = Self::plain(tensor);
        Self { packed: sizes.bytes + ((padded - rows * cols) * tensor.dtype.bits() / 8) as u64, ..sizes }
    }

    fn mlp(mlp: &MlpTensors<TensorSpec>) -> Self {
        [&mlp.gate, &mlp.up, &mlp.down].map(Self::of).into_iter().sum()
    }
}

impl std::iter::Sum for Sizes {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::default(), |a, b| Self {
            bytes: a.bytes + b.bytes,
            packed: a.packed + b.packed,
            values: a.values + b.values,
        })
    }
}

/// The weights of a model by kind.
#[derive(Debug, Clone, Copy, Default)]
struct Weights {
    embedding: Sizes,
    norms: Sizes,
    attention: Sizes,
    index: Sizes,
    router: Sizes,
    bias: Sizes,
    dense: Sizes,
    shared: Sizes,
    /// All routed experts.
    experts: Sizes,
    /// Layers with experts.
    moe_layers: usize,
    head: Sizes,
}

impl Weights {
    /// Without index heads unless `index`.
    fn of(config: &ModelConfig, index: bool) -> Self {
        let tensors = ModelTensors::expected(config);
        let sum = |parts: &[Sizes]| parts.iter().copied().sum::<Sizes>();
        let mut weights = Self {
            embedding: Sizes::plain(&tensors.embed),
            norms: Sizes::plain(&tensors.norm),
            head: Sizes::unscaled(&tensors.lm_head),
            ..Self::default()
        };
        for layer in &tensors.layers {
            let norms = [&layer.input_norm, &layer.q_norm, &layer.k_norm, &layer.post_norm].map(Sizes::plain);
            weights.norms = sum(&[weights.norms, sum(&norms)]);
            weights.attention =
                sum(&[weights.attention, sum(&[&layer.q, &layer.k, &layer.v, &layer.o].map(Sizes::of))]);
            if let Some(heads) = layer.index.as_ref().filter(|_| index) {
                weights.index = sum(&[weights.index, Sizes::of(&heads.q), Sizes::of(&heads.k)]);
                weights.norms = sum(&[weights.norms, Sizes::plain(&heads.q_norm), Sizes::plain(&heads.k_norm)]);
            }
            match &layer.ffn {
                FfnTensors::Dense(mlp) => weights.dense = sum(&[weights.dense, Sizes::mlp(mlp)]),
                FfnTensors::Moe(moe) => {
                    weights.moe_layers += 1;
                    weights.router = sum(&[weights.router, Sizes::unscaled(&moe.router)]);
                    weights.bias = sum(&[weights.bias, Sizes::plain(&moe.bias)]);
                    weights.experts = sum(&[weights.experts, moe.experts.iter().map(Sizes::mlp).sum()]);
                    weights.shared = sum(&[weights.shared, moe.shared.iter().map(Sizes::mlp).sum()]);
                }
            }
        }
        weights
    }

    /// Linear weights of the CPU that packing copies: all but embedding and norms, routed experts only if they are its.
    fn packed(&self, experts: bool) -> u64 {
        let parts = [self.attention, self.index, self.router, self.dense, self.shared, self.head];
        parts.iter().map(|part| part.packed).sum::<u64>() + if experts { self.experts.packed } else { 0 }
    }

    /// Values of linear weights that every token is multiplied with, the output head not included.
    fn values_of_token(&self, config: &ModelConfig) -> u64 {
        let parts = [self.attention, self.index, self.router, self.dense, self.shared];
        let all: u64 = parts.iter().map(|part| part.values).sum();
        all + share(self.experts.values, config.num_experts_per_tok, config.num_local_experts)
    }
}

/// `part` of `whole` equal shares of `bytes`.
fn share(bytes: u64, part: usize, whole: usize) -> u64 {
    bytes / (whole.max(1) as u64) * part as u64
}

/// The cache of a sequence in all layers that run.
#[derive(Debug, Clone, Copy)]
struct Cache<'a> {
    config: &'a ModelConfig,
    precision: Precision,
    sparse: bool,
}

impl Cache<'_> {
    fn value_bytes(&self) -> usize {
        match self.precision {
            Precision::F32 => size_of::<f32>(),
            Precision::Bf16 => size_of::<half::bf16>(),
        }
    }

    fn msa(&self) -> impl Iterator<Item = Option<MsaConfig>> {
        self.config.layers[..self.config.num_hidden_layers].iter().map(|layer| layer.msa().filter(|_| self.sparse))
    }

    /// Bytes of the keys and values, and of the index keys, of `tokens` tokens, in layers that `which` wants.
    fn bytes(&self, tokens: usize, which: impl Fn(bool) -> bool) -> (u64, u64) {
        let shape = CacheShape {
            kv_heads: self.config.num_key_value_heads,
            head_dim: self.config.head_dim,
            index_dims: self.msa().map(|msa| msa.map_or(0, |msa| msa.index_dim)).collect(),
            max_tokens: self.config.max_position_embeddings,
        };
        let cache = KvCache::new(self.precision, shape);
        let pages = tokens.div_ceil(PAGE);
        let (mut keys_values, mut index) = (0, 0);
        for (layer, msa) in self.msa().enumerate().filter(|(_, msa)| which(msa.is_some())) {
            let (of_keys_values, of_index) = cache.page_bytes(layer);
            keys_values += (pages * of_keys_values) as u64;
            index += (pages * of_index) as u64;
            debug_assert_eq!(msa.is_some(), of_index > 0, "index keys are those of layers with sparse attention");
        }
        (keys_values, index)
    }

    /// Cached tokens that the one after them attends to in a layer.
    fn attended(msa: Option<MsaConfig>, context: usize) -> usize {
        match msa {
            Some(msa) if context >= msa.topk * msa.block => (msa.topk - 1) * msa.block + context % msa.block,
            _ => context,
        }
    }

    /// Bytes of keys and values, and of index keys, that a decode step reads after `context` tokens.
    fn read(&self, context: usize, which: impl Fn(bool) -> bool) -> (u64, u64) {
        let (mut keys_values, mut index) = (0, 0);
        for msa in self.msa().filter(|msa| which(msa.is_some())) {
            keys_values += Self::attended(msa, context) * 2 * self.config.kv_size();
            if let Some(msa) = msa.filter(|msa| context >= msa.topk * msa.block) {
                index += context * msa.index_dim;
            }
        }
        let bytes = |values: usize| (values * self.value_bytes()) as u64;
        (bytes(keys_values), bytes(index))
    }

    /// FLOP of attention and index scores of the token after `context` tokens.
    fn flop(&self, context: usize) -> u64 {
        let of_layer = |msa: Option<MsaConfig>| {
            let scores = msa.filter(|msa| context >= msa.topk * msa.block);
            4 * self.config.q_size() * Self::attended(msa, context)
                + scores.map_or(0, |msa| 2 * msa.index_heads * msa.index_dim * context)
        };
        self.msa().map(of_layer).sum::<usize>() as u64
    }
}

/// Bytes and FLOP of the decode step after `context` tokens. `sparse` as in [`PlanOptions::sparse`].
pub fn decode_work(config: &ModelConfig, precision: Precision, sparse: bool, context: usize) -> Work {
    let weights = Weights::of(config, sparse);
    let cache = Cache { config, precision, sparse };
    let (keys_values, index) = cache.read(context, |_| true);
    let row = weights.embedding.bytes / config.vocab_size.max(1) as u64;
    let parts = [
        weights.norms,
        weights.attention,
        weights.index,
        weights.router,
        weights.bias,
        weights.dense,
        weights.shared,
        weights.head,
    ];
    let experts = share(weights.experts.bytes, config.num_experts_per_tok, config.num_local_experts);
    Work {
        bytes: parts.iter().map(|part| part.bytes).sum::<u64>() + row + experts + keys_values + index,
        flop: 2 * (weights.values_of_token(config) + weights.head.values) + cache.flop(context),
    }
}

/// Bytes and FLOP of a prompt of `tokens` tokens, `chunk` of them together. Each chunk reads every weight once, of the
/// routed experts those that a router without preferences would reach, and the cached tokens before and in it.
pub fn prefill_work(
    config: &ModelConfig,
    precision: Precision,
    sparse: bool,
    tokens: usize,
    chunk: NonZeroUsize,
) -> Work {
    let weights = Weights::of(config, sparse);
    let cache = Cache { config, precision, sparse };
    let parts =
        [weights.norms, weights.attention, weights.index, weights.router, weights.bias, weights.dense, weights.shared];
    let every: u64 = parts.iter().map(|part| part.bytes).sum();
    let missed = 1.0 - config.num_experts_per_tok as f64 / config.num_local_experts.max(1) as f64;
    let mut work = Work { bytes: weights.head.bytes, flop: 2 * weights.head.values };
    let mut done = 0;
    while done < tokens {
        let count = (tokens - done).min(chunk.get());
        let reached = 1.0 - missed.powf(count as f64);
        let (keys_values, index) = cache.read(done + count, |_| true);
        work.bytes += every + (weights.experts.bytes as f64 * reached) as u64 + keys_values + index;
        work.flop += (done..done + count).map(|position| cache.flop(position + 1)).sum::<u64>();
        done += count;
    }
    work.flop += 2 * tokens as u64 * weights.values_of_token(config);
    work.bytes += tokens as u64 * (weights.embedding.bytes / config.vocab_size.max(1) as u64);
    work
}

/// F32 values of a token that are alive at once in a forward pass, at most: the residual stream, its norm, queries, keys,
/// values and attention of a layer, or the inputs and outputs of its experts.
fn scratch_values(config: &ModelConfig) -> usize {
    let attention = 3 * config.hidden_size + 2 * config.q_size() + 2 * config.kv_size();
    let experts = 4 * config.hidden_size + config.num_local_experts + 2 * config.num_experts_per_tok;
    attention.max(experts)
}

impl MemoryPlan {
    /// The plan of a model.
    pub fn new(config: &ModelConfig, options: &PlanOptions) -> Self {
        let sparse =
            options.sparse && config.layers[..config.num_hidden_layers].iter().any(|layer| layer.msa().is_some());
        let weights = Weights::of(config, sparse);
        let cache = Cache { config, precision: options.precision, sparse };
        let (chip, streaming) = match options.target {
            Target::Cpu => (None, false),
            Target::Npu { chip, streaming } => (Some(chip), streaming),
        };
        let packed = weights.packed(chip.is_none());
        let pack = match options.load {
            LoadMode::Mmap => false,
            LoadMode::Pack => true,
            LoadMode::Auto => options.host_memory_bytes.is_some_and(|memory| packed <= memory / 2),
        };
        let mut parts = Vec::new();
        let mut add = |name, place, bytes: u64, bytes_per_token: u64| {
            if bytes > 0 {
                parts.push(Part { name, place, bytes, bytes_per_token });
            }
        };
        let linear = |sizes: Sizes| if pack { (Place::Host, sizes.packed) } else { (Place::Mapped, sizes.bytes) };
        let row = weights.embedding.bytes / config.vocab_size.max(1) as u64;
        add("embedding", Place::Mapped, weights.embedding.bytes, row);
        let small = weights.norms.bytes + weights.bias.bytes;
        add("norms and router bias", Place::Host, small, small);
        for (name, sizes) in [
            ("attention projections", weights.attention),
            ("index projections", weights.index),
            ("router", weights.router),
            ("dense MLPs", weights.dense),
            ("shared experts", weights.shared),
            ("output head", weights.head),
        ] {
            let (place, bytes) = linear(sizes);
            add(name, place, bytes, sizes.bytes);
        }
        let routed = share(weights.experts.bytes, config.num_experts_per_tok, config.num_local_experts);
        match (chip, streaming) {
            (None, _) => {
                let (place, bytes) = linear(weights.experts);
                add("routed experts", place, bytes, routed);
            }
            (Some(_), false) => add("routed experts", Place::Device, weights.experts.bytes, routed),
            (Some(_), true) => {
                add("routed experts", Place::Streamed, weights.experts.bytes, routed);
                // The experts of one layer that a token uses, twice: one set computes while the next is copied.
                let of_layer = routed / weights.moe_layers.max(1) as u64;
                add("experts in flight", Place::Device, 2 * of_layer, routed);
            }
        }
        let context = options.context;
        let (keys_values, index) = cache.bytes(context, |_| true);
        let on_host = |sparse: bool| chip.is_none() || !sparse;
        let (host_keys_values, host_index) = cache.read(context, on_host);
        add("keys and values", Place::Host, keys_values, host_keys_values);
        add("index keys", Place::Host, index, host_index);
        if chip.is_some() {
            let (keys_values, index) = cache.bytes(context, |sparse| sparse);
            let (read, read_index) = cache.read(context, |sparse| sparse);
            add("keys and values of sparse layers", Place::Device, keys_values, read);
            add("index keys of sparse layers", Place::Device, index, read_index);
        }
        let rows = context.min(options.prefill_chunk.get()).max(1);
        let scratch = rows * scratch_values(config) * size_of::<f32>() + config.vocab_size * size_of::<f32>();
        add("scratch of a prefill chunk", Place::Host, scratch as u64, 0);
        if chip.is_some() {
            // Tokens in BF16, their intermediate values, and one F32 row per routed copy.
            let of_token = config.num_experts_per_tok * (config.hidden_size * 6 + config.intermediate_size * 2);
            add("workspace of a prefill chunk", Place::Device, (rows * of_token) as u64, 0);
        }

        let sum = |places: &[Place], of: fn(&Part) -> u64| {
            parts.iter().filter(|part| places.contains(&part.place)).map(of).sum::<u64>()
        };
        let host_bytes = sum(&[Place::Host], |part| part.bytes);
        let mapped_bytes = sum(&[Place::Mapped, Place::Streamed], |part| part.bytes);
        let device_bytes = sum(&[Place::Device], |part| part.bytes);
        let host_bytes_per_token = sum(&[Place::Host, Place::Mapped], |part| part.bytes_per_token);
        let device_bytes_per_token = sum(&[Place::Device], |part| part.bytes_per_token);
        let link_bytes_per_token = sum(&[Place::Streamed], |part| part.bytes_per_token);
        let on_device = chip.map(|chip| device_bytes <= chip.memory_bytes);
        let on_host = options.host_memory_bytes.map(|memory| host_bytes <= memory);
        let seconds = options.host_bytes_per_s.map(|host| {
            let of_chip = |chip: Chip| {
                device_bytes_per_token as f64 / chip.read_bytes_per_s
                    + link_bytes_per_token as f64 / chip.link_bytes_per_s
            };
            host_bytes_per_token as f64 / host + chip.map_or(0.0, of_chip)
        });
        Self {
            schema: SCHEMA,
            model: config.variant.to_string(),
            device: chip.map_or("cpu", |chip| chip.name),
            layers: config.num_hidden_layers,
            context,
            host_bytes,
            mapped_bytes,
            device_bytes,
            host_memory_bytes: options.host_memory_bytes,
            device_memory_bytes: chip.map(|chip| chip.memory_bytes),
            fits: match (on_host, on_device) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (None, None) => None,
                _ => Some(true),
            },
            mapped_stay: options.host_memory_bytes.map(|memory| host_bytes + mapped_bytes <= memory),
            host_bytes_per_token,
            device_bytes_per_token,
            link_bytes_per_token,
            flop_per_token: decode_work(config, options.precision, sparse, context).flop,
            host_bytes_per_s: options.host_bytes_per_s,
            chip,
            tokens_per_s: seconds.map(|seconds| 1.0 / seconds.max(1e-12)),
            parts,
        }
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gb = |bytes: u64| bytes as f64 / 1e9;
        writeln!(f, "{} on {}, {} layers, {} tokens", self.model, self.device, self.layers, self.context)?;
        writeln!(f, "{:<34}{:<10}{:>14}{:>16}", "part", "place", "GB", "MB per token")?;
        for part in &self.parts {
            let Part { name, place, bytes, bytes_per_token } = part;
            writeln!(f, "{name:<34}{place:<10}{:>14.6}{:>16.3}", gb(*bytes), *bytes_per_token as f64 / 1e6)?;
        }
        let against = |bytes: u64, memory: Option<u64>| match memory {
            Some(memory) => format!("{:.3} GB of {:.3} GB", gb(bytes), gb(memory)),
            None => format!("{:.3} GB", gb(bytes)),
        };
        writeln!(f, "host memory    {}", against(self.host_bytes, self.host_memory_bytes))?;
        write!(f, "mapped files   {:.3} GB", gb(self.mapped_bytes))?;
        writeln!(
            f,
            "{}",
            match self.mapped_stay {
                Some(false) => ", more than memory keeps: read from disk again and again",
                Some(true) => ", which memory keeps",
                None => "",
            }
        )?;
        if self.chip.is_some() {
            writeln!(f, "device memory  {}", against(self.device_bytes, self.device_memory_bytes))?;
        }
        write!(f, "a token        {:.3} GB read by the host", gb(self.host_bytes_per_token))?;
        if self.chip.is_some() {
            write!(f, ", {:.3} GB by the device, ", gb(self.device_bytes_per_token))?;
            write!(f, "{:.3} GB copied to it", gb(self.link_bytes_per_token))?;
        }
        writeln!(f, ", {:.3} GFLOP", self.flop_per_token as f64 / 1e9)?;
        let word = if self.chip.is_some() { "predicted" } else { "expected" };
        match (self.tokens_per_s, self.host_bytes_per_s) {
            (Some(rate), Some(host)) => {
                write!(f, "rate           {word} at most {rate:.2} tok/s at {:.1} GB/s of the host", host / 1e9)?;
                if let Some(chip) = self.chip {
                    write!(f, ", {:.0} GB/s of the device", chip.read_bytes_per_s / 1e9)?;
                    write!(f, ", {:.0} GB/s between them", chip.link_bytes_per_s / 1e9)?;
                }
                if self.mapped_stay == Some(false) {
                    write!(f, "; less where mapped files come from disk")?;
                }
                writeln!(f)?;
            }
            _ => writeln!(f, "rate           not known: no bandwidth was measured")?,
        }
        match self.fits {
            Some(true) => write!(f, "fits           yes"),
            Some(false) => write!(f, "fits           no"),
            None => write!(f, "fits           not known: the memory of the host is not"),
        }
    }
}
