// SPDX-License-Identifier: MIT OR Apache-2.0

//! Finds the first place where two models differ: two checkpoints, or one on two devices, SIMD levels, precisions or arms.
//!
//! [`verify`] takes one prompt through both, stage by stage, and gives both sides the *same* input at each stage, that of the
//! first side. So a difference belongs to the stage that shows it and does not grow on its way, and a near tie that two
//! roundings decide differently does not spoil what follows. It stops at the first tensor beyond the tolerance. What that
//! stage was given and computed is a [`Record`], which [`replay`] takes through the same stage again.

use super::weights::Ffn;
use super::{Event, Model, ModelError, Observer};
use crate::checkpoint::{Checkpoint, Dtype, Tensor, expected_tensors, open_file, safetensors_header};
use crate::config::ModelConfig;
use crate::generate::Decoder;
use cpu_tiles::convert::bf16_to_f32;
use cpu_tiles::math::sigmoid;
use cpu_tiles::{F8E4M3, Precision};
use half::bf16;
use serde_json::{Value, json};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use zerocopy::IntoBytes;

/// Everything must be the same bit for bit, as between two runs that differ in threads, loading or checkpoint only.
pub const EXACT: f32 = 0.0;
/// For two ways to add up the same F32 numbers.
pub const F32_TOLERANCE: f32 = 1e-4;
/// For activations of which one side or both are rounded to BF16.
pub const BF16_TOLERANCE: f32 = 0.05;

/// A part of the forward pass that is compared on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The rows of the embedding table.
    Embedding,
    /// The attention block of a layer, its norms and projections included.
    Attention(usize),
    /// The feed-forward part of a layer, its norm and router included.
    Ffn(usize),
    /// The last norm and the output head, of the last token.
    Head,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&match self {
            Self::Embedding => "embedding".to_owned(),
            Self::Attention(layer) => format!("layer {layer} attention"),
            Self::Ffn(layer) => format!("layer {layer} feed-forward"),
            Self::Head => "head".to_owned(),
        })
    }
}

impl Stage {
    /// All stages in the order of the forward pass.
    fn all(layers: usize) -> impl Iterator<Item = Self> {
        let layers = (0..layers).flat_map(|layer| [Self::Attention(layer), Self::Ffn(layer)]);
        [Self::Embedding].into_iter().chain(layers).chain([Self::Head])
    }

    fn parse(text: &str) -> Option<Self> {
        let layer = || text.strip_prefix("layer ")?.split(' ').next()?.parse().ok();
        match text {
            "embedding" => Some(Self::Embedding),
            "head" => Some(Self::Head),
            _ if text.ends_with(" attention") => layer().map(Self::Attention),
            _ if text.ends_with(" feed-forward") => layer().map(Self::Ffn),
            _ => None,
        }
    }

    /// The layer, if it is in one.
    #[must_use]
    pub fn layer(self) -> Option<usize> {
        match self {
            Self::Attention(layer) | Self::Ffn(layer) => Some(layer),
            Self::Embedding | Self::Head => None,
        }
    }

    /// Whether the stage reads the checkpoint's tensor of this name.
    fn reads(self, config: &ModelConfig, name: &str) -> bool {
        let Some(name) = name.strip_prefix(config.tensor_prefix) else { return false };
        let of_layer = |layer: usize| name.strip_prefix(&format!("model.layers.{layer}."));
        let is_attention = |rest: &str| rest.starts_with("self_attn.") || rest.starts_with("input_layernorm.");
        match self {
            Self::Embedding => name.starts_with("model.embed_tokens."),
            Self::Attention(layer) => of_layer(layer).is_some_and(is_attention),
            Self::Ffn(layer) => of_layer(layer).is_some_and(|rest| !is_attention(rest)),
            Self::Head => name.starts_with("model.norm.") || name.starts_with("lm_head."),
        }
    }
}

/// Why nothing was compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The two sides are not the same kind of model.
    #[error("the two sides cannot be compared: {what} is {a} in the first and {b} in the second")]
    DifferentModels {
        /// What differs.
        what: &'static str,
        /// Of the first side.
        a: String,
        /// Of the second.
        b: String,
    },
    /// A side cannot be run.
    #[error("side {side}: {source}")]
    Model {
        /// `a` or `b`.
        side: char,
        /// What it failed with.
        source: ModelError,
    },
    /// A bundle cannot be read.
    #[error("{}: {what}", path.display())]
    Bundle {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A bundle does not belong to the model.
    #[error("the bundle is of {expected}, the model has {found}")]
    BundleOfOther {
        /// What the bundle was recorded with.
        expected: String,
        /// What the model has instead.
        found: String,
    },
    /// A bundle cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A tensor of a stage, one row per token.
#[derive(Debug, Clone, PartialEq)]
pub struct Activation {
    /// Its name, as golden data has it: `attn_out`, `router_logits`, `topk_ids`, `ffn_out`, ...
    pub name: String,
    /// Its shape; the first dimension is that of the tokens.
    pub shape: Vec<usize>,
    /// The values; numbers of experts and blocks as they are.
    pub values: Vec<f32>,
}

impl Activation {
    fn new(name: &str, shape: &[usize], values: &[f32]) -> Self {
        Self { name: name.to_owned(), shape: shape.to_vec(), values: values.to_vec() }
    }

    /// Whether it holds numbers of experts or blocks, which are the same or not.
    fn is_choice(&self) -> bool {
        ["topk_ids", "msa_blocks"].contains(&self.name.as_str())
    }

    fn row_len(&self) -> usize {
        self.values.len() / self.shape.first().copied().unwrap_or(1).max(1)
    }
}

/// What a stage was given and what both sides made of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The stage.
    pub stage: Stage,
    /// The prompt.
    pub ids: Vec<u32>,
    /// The residual stream before the stage, F32 `[tokens, hidden]`; of the head only the last token's; empty for the
    /// embedding.
    pub input: Vec<f32>,
    /// What the first side computed, in order.
    pub a: Vec<Activation>,
    /// What the second side computed.
    pub b: Vec<Activation>,
}

/// One tensor within the tolerance.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// The stage.
    pub stage: Stage,
    /// The tensor.
    pub tensor: String,
    /// Its values.
    pub values: usize,
    /// The largest difference, relative to the larger of the value itself and the root mean square of the tensor.
    pub worst: f32,
    /// Tokens for which the sides chose different experts or blocks that score the same within the tolerance. What the stage
    /// computes of them is not compared.
    pub near_ties: usize,
}

/// A tensor beyond the tolerance.
#[derive(Debug, Clone, PartialEq)]
pub struct ActivationDifference {
    /// The tensor.
    pub tensor: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Values beyond the tolerance.
    pub beyond: usize,
    /// The tolerance.
    pub tolerance: f32,
    /// Place of the worst value.
    pub index: Vec<usize>,
    /// The first side's value there.
    pub a: f32,
    /// The second side's.
    pub b: f32,
    /// How far apart all values are; of a choice there is none.
    pub histogram: Option<Histogram>,
}

/// Distances in units in the last place: how many numbers of the format lie between two values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    /// `F32`, or `BF16` where both sides round to that.
    pub format: Dtype,
    /// Values with distance 0, 1, 2 to 3, 4 to 7, and so on.
    pub counts: Vec<usize>,
    /// Pairs of which one, or both, are no number.
    pub not_a_number: usize,
}

/// A weight that differs between two checkpoints.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightDifference {
    /// The tensor.
    pub name: String,
    /// Elements that differ.
    pub elements: usize,
    /// Elements in all.
    pub of: usize,
    /// Place of the first one.
    pub index: Vec<usize>,
    /// The first checkpoint's element there; FP8 codes as the value that they stand for, scales of MXFP8 as codes.
    pub a: f64,
    /// The second checkpoint's.
    pub b: f64,
}

/// The first stage at which the sides differ.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// The tensor that shows it. `None`: only weights differ, and this prompt does not show it.
    pub activation: Option<ActivationDifference>,
    /// Weights of the stage that differ, where checkpoints were compared.
    pub weights: Vec<WeightDifference>,
    /// The stage, with what is needed to run it again.
    pub record: Record,
}

/// What [`replay`] found.
#[derive(Debug, Clone, PartialEq)]
pub struct Replayed {
    /// Whether the first side computed what was recorded, bit for bit.
    pub a_as_recorded: bool,
    /// Whether the second side did.
    pub b_as_recorded: bool,
    /// How the sides differ now.
    pub difference: Option<ActivationDifference>,
}

/// What is compared.
#[derive(Debug, Clone, Copy)]
pub struct VerifyOptions<'a> {
    /// The largest difference that passes: [`EXACT`], [`F32_TOLERANCE`], [`BF16_TOLERANCE`] or another, relative to the larger
    /// of the value itself and the root mean square of its tensor.
    pub tolerance: f32,
    /// The checkpoints of both sides, to compare their weights too, stage by stage, byte by byte where they have the same
    /// element type.
    pub checkpoints: Option<[&'a Checkpoint; 2]>,
}

/// Takes the prompt `ids` through both models and returns the first stage at which they differ, if any. `compared` is told of
/// each tensor within the tolerance. Both sequences are reset.
///
/// # Errors
/// [`VerifyError::DifferentModels`] if the configurations have different sizes, [`VerifyError::Model`] if a side fails.
pub fn verify(
    a: &mut Model,
    b: &mut Model,
    ids: &[u32],
    options: VerifyOptions<'_>,
    mut compared: impl FnMut(Compared),
) -> Result<Option<Difference>, VerifyError> {
    same_kind(a.config(), b.config())?;
    a.begin(ids).map_err(side('a'))?;
    b.begin(ids).map_err(side('b'))?;
    let mut hidden = Vec::new();
    for stage in Stage::all(a.config().num_hidden_layers) {
        let width = a.config().hidden_size;
        let input = if stage == Stage::Head { &hidden[hidden.len() - width..] } else { hidden.as_slice() };
        let found = [a.stage(stage, ids, input).map_err(side('a'))?, b.stage(stage, ids, input).map_err(side('b'))?];
        let activation = first_difference(stage, a, b, &found, options.tolerance, &mut compared);
        let weights = match options.checkpoints {
            Some(checkpoints) => weight_differences(stage, a.config(), checkpoints),
            None => Vec::new(),
        };
        if activation.is_some() || !weights.is_empty() {
            let [a, b] = found;
            let record = Record { stage, ids: ids.to_vec(), input: input.to_vec(), a, b };
            return Ok(Some(Difference { activation, weights, record }));
        }
        let [found, _] = found;
        let output = found.into_iter().next_back().map(|last| last.values).unwrap_or_default();
        match stage {
            Stage::Embedding => hidden = output,
            Stage::Attention(_) | Stage::Ffn(_) => a.network.add(&mut hidden, &output),
            Stage::Head => {}
        }
    }
    Ok(None)
}

/// Takes what was recorded through its stage again.
///
/// # Errors
/// [`VerifyError`] as of [`verify`], [`VerifyError::BundleOfOther`] if the record does not fit the models.
pub fn replay(record: &Record, a: &mut Model, b: &mut Model, tolerance: f32) -> Result<Replayed, VerifyError> {
    same_kind(a.config(), b.config())?;
    let Record { stage, ids, input, .. } = record;
    let (layers, hidden) = (a.config().num_hidden_layers, a.config().hidden_size);
    if let Some(layer) = stage.layer().filter(|&layer| layer >= layers) {
        let (expected, found) = (format!("layer {layer}"), format!("{layers} layers"));
        return Err(VerifyError::BundleOfOther { expected, found });
    }
    let rows = match stage {
        Stage::Embedding => 0,
        Stage::Head => 1,
        Stage::Attention(_) | Stage::Ffn(_) => ids.len(),
    };
    if input.len() != rows * hidden {
        let expected = format!("{} values for {rows} tokens", input.len());
        return Err(VerifyError::BundleOfOther { expected, found: format!("a hidden size of {hidden}") });
    }
    a.begin(ids).map_err(side('a'))?;
    b.begin(ids).map_err(side('b'))?;
    let found = [a.stage(*stage, ids, input).map_err(side('a'))?, b.stage(*stage, ids, input).map_err(side('b'))?];
    let difference = first_difference(*stage, a, b, &found, tolerance, |_| ());
    let as_recorded = |found: &[Activation], recorded: &[Activation]| {
        found.len() == recorded.len()
            && found.iter().zip(recorded).all(|(found, recorded)| {
                let same = |(x, y): (&f32, &f32)| x.to_bits() == y.to_bits();
                found.values.len() == recorded.values.len() && found.values.iter().zip(&recorded.values).all(same)
            })
    };
    Ok(Replayed {
        a_as_recorded: as_recorded(&found[0], &record.a),
        b_as_recorded: as_recorded(&found[1], &record.b),
        difference,
    })
}

fn side(side: char) -> impl FnOnce(ModelError) -> VerifyError {
    move |source| VerifyError::Model { side, source }
}

fn same_kind(a: &ModelConfig, b: &ModelConfig) -> Result<(), VerifyError> {
    if a.variant != b.variant {
        let (a, b) = (a.variant.to_string(), b.variant.to_string());
        return Err(VerifyError::DifferentModels { what: "the model", a, b });
    }
    type Size = fn(&ModelConfig) -> usize;
    let sizes: [(&str, Size); 8] = [
        ("hidden_size", |c| c.hidden_size),
        ("num_hidden_layers (with --max-layers)", |c| c.num_hidden_layers),
        ("vocab_size", |c| c.vocab_size),
        ("num_attention_heads", |c| c.num_attention_heads),
        ("num_key_value_heads", |c| c.num_key_value_heads),
        ("num_local_experts", |c| c.num_local_experts),
        ("num_experts_per_tok", |c| c.num_experts_per_tok),
        ("intermediate_size", |c| c.intermediate_size),
    ];
    match sizes.into_iter().find(|(_, size)| size(a) != size(b)) {
        Some((what, size)) => {
            Err(VerifyError::DifferentModels { what, a: size(a).to_string(), b: size(b).to_string() })
        }
        None if a.layers[..a.num_hidden_layers] != b.layers[..b.num_hidden_layers] => {
            let kinds = |config: &ModelConfig| format!("{:?}", config.layers);
            Err(VerifyError::DifferentModels { what: "the kinds of layers", a: kinds(a), b: kinds(b) })
        }
        None => Ok(()),
    }
}

impl Model {
    /// Makes room for the sequence `ids`, of which nothing is computed yet.
    fn begin(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        self.reset();
        self.check(ids)?;
        self.sequence.cache.reserve(ids.len())?;
        self.sequence.rope.extend(ids.len());
        Ok(())
    }

    /// What one stage makes of `input`, its output last. The sequence has begun.
    fn stage(&mut self, stage: Stage, ids: &[u32], input: &[f32]) -> Result<Vec<Activation>, ModelError> {
        let Self { network, sequence, arm, .. } = self;
        let (hidden, tokens) = (network.config.hidden_size, ids.len());
        let mut found = Vec::new();
        let mut note = |event: Event<'_>| match event {
            Event::BlockScores { kv_heads, blocks, values, .. } => {
                found.push(Activation::new("msa_block_scores", &[tokens, kv_heads, blocks], values));
            }
            Event::Blocks { kv_heads, top_k, ids, .. } => {
                let ids: Vec<f32> = ids.iter().map(|&id| id as f32).collect();
                found.push(Activation::new("msa_blocks", &[tokens, kv_heads, top_k], &ids));
            }
            Event::RouterLogits { values, .. } => {
                found.push(Activation::new("router_logits", &[tokens, values.len() / tokens], values));
            }
            Event::TopK { ids, weights, .. } => {
                let shape = [tokens, weights.len() / tokens];
                let ids: Vec<f32> = ids.iter().map(|&id| id as f32).collect();
                found.push(Activation::new("topk_ids", &shape, &ids));
                found.push(Activation::new("topk_weights", &shape, weights));
            }
            Event::FinalNorm(values) => found.push(Activation::new("final_norm", &[1, hidden], values)),
            Event::Embeddings(_) | Event::AttnOut { .. } | Event::Hidden { .. } => {}
        };
        let observe = &mut Observer(Some(&mut note));
        let (name, values) = match stage {
            Stage::Embedding => {
                let table = network.weights.embed.get();
                let mut values = vec![0.0; tokens * hidden];
                for (&id, row) in ids.iter().zip(values.chunks_exact_mut(hidden)) {
                    bf16_to_f32(network.level, &table[id as usize * hidden..][..hidden], row);
                }
                ("embeddings", values)
            }
            Stage::Attention(layer) => {
                let weights = &network.weights.layers[layer];
                ("attn_out", network.attention(layer, weights, sequence, input, observe)?)
            }
            Stage::Ffn(layer) => {
                let weights = &network.weights.layers[layer];
                ("ffn_out", network.ffn(*arm, layer, weights, input, observe)?)
            }
            Stage::Head => {
                let mut logits = vec![0.0; network.config.vocab_size];
                network.logits(input, &mut logits, observe)?;
                ("logits", logits)
            }
        };
        let rows = if stage == Stage::Head { 1 } else { tokens };
        found.push(Activation::new(name, &[rows, values.len() / rows], &values));
        Ok(found)
    }
}

/// The first tensor of a stage beyond the tolerance; `compared` is told of those before it.
fn first_difference(
    stage: Stage,
    a: &Model,
    b: &Model,
    found: &[Vec<Activation>; 2],
    tolerance: f32,
    mut compared: impl FnMut(Compared),
) -> Option<ActivationDifference> {
    let rounded = [a, b].iter().all(|model| model.network.precision == Precision::Bf16);
    // Tokens whose choice is a near tie.
    let mut tied = vec![false; found[0].first().map_or(0, |first| first.shape[0])];
    for (x, y) in found[0].iter().zip(&found[1]) {
        if x.shape != y.shape || x.name != y.name {
            // One side attends to everything: it scores no blocks.
            return Some(ActivationDifference {
                tensor: x.name.clone(),
                shape: x.shape.clone(),
                beyond: x.values.len(),
                tolerance,
                index: vec![0; x.shape.len()],
                a: x.values.first().copied().unwrap_or(f32::NAN),
                b: f32::NAN,
                histogram: None,
            });
        }
        if x.is_choice() && tolerance > EXACT {
            note_near_ties(stage, a, &found[0], x, y, tolerance, &mut tied);
        }
        let rows = x.row_len().max(1);
        let skipped = |i: usize| tied.get(i / rows).copied().unwrap_or(false);
        let scale = root_mean_square(&x.values);
        let distance = |i: usize| match (x.values[i], y.values[i]) {
            (a, b) if a == b || (a.is_nan() && b.is_nan()) => 0.0,
            _ if x.is_choice() => f32::INFINITY,
            (a, b) => {
                let relative = (a - b).abs() / a.abs().max(scale);
                if relative.is_nan() { f32::INFINITY } else { relative }
            }
        };
        let (mut worst, mut at, mut beyond) = (0.0, 0, 0);
        for i in (0..x.values.len()).filter(|&i| !skipped(i)) {
            let distance = distance(i);
            beyond += usize::from(distance > tolerance);
            if distance > worst {
                (worst, at) = (distance, i);
            }
        }
        if beyond > 0 {
            let is_rounded = rounded && ["embeddings", "attn_out", "ffn_out", "final_norm"].contains(&x.name.as_str());
            let format = if is_rounded { Dtype::Bf16 } else { Dtype::F32 };
            return Some(ActivationDifference {
                tensor: x.name.clone(),
                shape: x.shape.clone(),
                beyond,
                tolerance,
                index: place(at, &x.shape),
                a: x.values[at],
                b: y.values[at],
                histogram: (!x.is_choice()).then(|| Histogram::new(format, &x.values, &y.values)),
            });
        }
        let near_ties = tied.iter().filter(|&&tied| tied).count();
        compared(Compared { stage, tensor: x.name.clone(), values: x.values.len(), worst, near_ties });
    }
    None
}

/// Marks the tokens whose choices `x` and `y` differ only in what scores the same within the tolerance.
fn note_near_ties(
    stage: Stage,
    model: &Model,
    found: &[Activation],
    x: &Activation,
    y: &Activation,
    tolerance: f32,
    tied: &mut [bool],
) {
    let named = |name: &str| found.iter().find(|activation| activation.name == name);
    let layer = stage.layer().and_then(|layer| model.network.weights.layers.get(layer));
    // What the choice was made by: a row for each list, and the size of a difference that does not count.
    let (scores, width, limit) = match (x.name.as_str(), layer.map(|layer| &layer.ffn)) {
        ("topk_ids", Some(Ffn::Moe(moe))) => {
            let Some(logits) = named("router_logits") else { return };
            let mut scores = vec![0.0; logits.values.len()];
            sigmoid(model.network.level, &logits.values, &mut scores);
            for row in scores.chunks_exact_mut(moe.bias.len()) {
                row.iter_mut().zip(&moe.bias).for_each(|(score, bias)| *score += bias);
            }
            (scores, moe.bias.len(), tolerance)
        }
        ("msa_blocks", _) => {
            let Some(scores) = named("msa_block_scores") else { return };
            let limit = tolerance * root_mean_square(&scores.values);
            (scores.values.clone(), scores.shape[2], limit)
        }
        _ => return,
    };
    let chosen = x.shape.last().copied().unwrap_or(1).max(1);
    let lists = x.row_len() / chosen;
    let lists_of = |activation: &Activation| -> Vec<Vec<f32>> {
        activation.values.chunks_exact(chosen).map(<[f32]>::to_vec).collect()
    };
    for (row, (x, y)) in lists_of(x).iter().zip(&lists_of(y)).enumerate() {
        let score = |id: &f32| scores.get(row * width + *id as usize).copied().unwrap_or(f32::NAN);
        let only_in = |list: &[f32], other: &[f32]| -> Vec<f32> {
            list.iter().filter(|id| **id >= 0.0 && !other.contains(id)).map(score).collect()
        };
        let (only_x, only_y) = (only_in(x, y), only_in(y, x));
        if only_x.is_empty() && only_y.is_empty() {
            continue;
        }
        let best = only_x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let least = only_y.iter().copied().fold(f32::INFINITY, f32::min);
        if only_x.len() == only_y.len() && best - least <= limit {
            tied[row / lists] = true;
        }
    }
}

/// Of the values that are numbers.
fn root_mean_square(values: &[f32]) -> f32 {
    let (sum, count) = (values.iter().filter(|x| x.is_finite()))
        .fold((0.0_f64, 0_usize), |(sum, count), &x| (sum + f64::from(x) * f64::from(x), count + 1));
    (sum / count.max(1) as f64).sqrt() as f32
}

/// The place of element `i` in a row-major tensor.
fn place(mut i: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (at, &size) in index.iter_mut().zip(shape).rev() {
        *at = i % size.max(1);
        i /= size.max(1);
    }
    index
}

impl Histogram {
    fn new(format: Dtype, a: &[f32], b: &[f32]) -> Self {
        let mut histogram = Self { format, counts: Vec::new(), not_a_number: 0 };
        // Numbers in ascending order have ascending places.
        let place = |x: f32| -> i64 {
            let (bits, sign) = match format {
                Dtype::Bf16 => (i64::from(bf16::from_f32(x).to_bits()), 1 << 15),
                _ => (i64::from(x.to_bits()), 1 << 31),
            };
            if bits & sign == 0 { bits } else { -(bits & !sign) }
        };
        for (&a, &b) in a.iter().zip(b) {
            if a.is_nan() || b.is_nan() {
                histogram.not_a_number += 1;
                continue;
            }
            let distance = place(a).abs_diff(place(b));
            let bucket = distance.checked_ilog2().map_or(0, |log| log as usize + 1);
            if histogram.counts.len() <= bucket {
                histogram.counts.resize(bucket + 1, 0);
            }
            histogram.counts[bucket] += 1;
        }
        histogram
    }
}

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const WIDTH: usize = 40;
        write!(f, "distance in units in the last place ({})", self.format)?;
        let most = self.counts.iter().copied().max().unwrap_or(0).max(1);
        let mut line = |label: String, count: usize| {
            let bar = (count * WIDTH).div_ceil(most).min(WIDTH);
            let gap = if bar > 0 { "  " } else { "" };
            write!(f, "\n{label:>24} {count:>9}{gap}{}", "#".repeat(bar))
        };
        let first = self.counts.iter().position(|&count| count > 0).unwrap_or(0);
        for (bucket, &count) in self.counts.iter().enumerate().skip(first) {
            let label = match bucket {
                0 => "0".to_owned(),
                1 => "1".to_owned(),
                _ => format!("{}..{}", 1_u64 << (bucket - 1), (1_u64 << bucket) - 1),
            };
            line(label, count)?;
        }
        if self.not_a_number > 0 {
            line("not a number".to_owned(), self.not_a_number)?;
        }
        Ok(())
    }
}

impl fmt::Display for ActivationDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tensor, shape, beyond, tolerance, index, a, b, histogram } = self;
        let values: usize = shape.iter().product();
        write!(
            f,
            "{tensor} {shape:?}: {beyond} of {values} values beyond the tolerance of {tolerance}\n\
             worst at {index:?}: {a} and {b}, {:e} apart",
            (a - b).abs()
        )?;
        match histogram {
            Some(histogram) => write!(f, "\n{histogram}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for WeightDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, elements, of, index, a, b } = self;
        write!(f, "{name}: {elements} of {of}, the first at {index:?}: {a} and {b}")
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LISTED: usize = 10;
        write!(f, "first difference: {}", self.record.stage)?;
        match &self.activation {
            Some(activation) => write!(f, ", {activation}")?,
            None => f.write_str("; this prompt does not show it, the weights do")?,
        }
        if !self.weights.is_empty() {
            f.write_str("\nweights of this stage that differ:")?;
        }
        for weight in self.weights.iter().take(LISTED) {
            write!(f, "\n  {weight}")?;
        }
        match self.weights.len().saturating_sub(LISTED) {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more"),
        }
    }
}

/// Weights of a stage that differ; those of two element types or shapes are not compared.
fn weight_differences(stage: Stage, config: &ModelConfig, [a, b]: [&Checkpoint; 2]) -> Vec<WeightDifference> {
    let names = expected_tensors(config).into_iter().map(|spec| spec.name).filter(|name| stage.reads(config, name));
    names.filter_map(|name| weight_difference(a.tensor(&name)?, b.tensor(&name)?)).collect()
}

fn weight_difference(a: &Tensor, b: &Tensor) -> Option<WeightDifference> {
    if (a.dtype(), a.shape()) != (b.dtype(), b.shape()) || a.bytes() == b.bytes() {
        return None;
    }
    let size = (a.dtype().bits() / 8).max(1);
    let pairs = || a.bytes().chunks(size).zip(b.bytes().chunks(size)).enumerate().filter(|(_, (x, y))| x != y);
    let (first, (x, y)) = pairs().next()?;
    Some(WeightDifference {
        name: a.name().to_owned(),
        elements: pairs().count(),
        of: a.byte_len() / size,
        index: place(first, a.shape()),
        a: element(a.dtype(), x),
        b: element(b.dtype(), y),
    })
}

/// One element of a checkpoint's tensor.
fn element(dtype: Dtype, bytes: &[u8]) -> f64 {
    match (dtype, bytes) {
        (Dtype::F32, &[a, b, c, d]) => f64::from(f32::from_le_bytes([a, b, c, d])),
        (Dtype::Bf16, &[a, b]) => bf16::from_le_bytes([a, b]).to_f64(),
        (Dtype::F8E4M3, &[code]) => f64::from(F8E4M3::from_bits(code).to_f32()),
        (_, &[code]) => f64::from(code),
        _ => f64::NAN,
    }
}

/// First word of the description in a bundle.
const BUNDLE: &str = "model-minimax bundle 1";
/// Name of the tensor that holds the description, JSON as U8.
const DESCRIPTION: &str = "description";

impl Record {
    /// Writes the record as a safetensors file, with how the two sides were run: options of the command line, which
    /// [`Record::read`] gives back as they are.
    ///
    /// # Errors
    /// [`VerifyError::Write`].
    pub fn write(&self, path: &Path, sides: &[Vec<String>; 2], tolerance: f32) -> Result<(), VerifyError> {
        let description = json!({
            "format": BUNDLE,
            "stage": self.stage.to_string(),
            "tolerance": tolerance,
            "a": sides[0],
            "b": sides[1],
        });
        let description = description.to_string().into_bytes();
        let hidden = self.input.len() / self.rows().max(1);
        let ids = self.ids.as_bytes();
        let mut tensors = vec![
            (DESCRIPTION.to_owned(), Dtype::U8, vec![description.len()], description.as_slice()),
            ("ids".to_owned(), Dtype::U32, vec![self.ids.len()], ids),
            ("input".to_owned(), Dtype::F32, vec![self.rows(), hidden], self.input.as_bytes()),
        ];
        for (side, activations) in [('a', &self.a), ('b', &self.b)] {
            for Activation { name, shape, values } in activations {
                tensors.push((format!("{side}.{name}"), Dtype::F32, shape.clone(), values.as_bytes()));
            }
        }
        // Wide elements first: every tensor is then aligned to its element.
        tensors.sort_by_key(|(_, dtype, ..)| std::cmp::Reverse(dtype.bits()));
        let mut file =
            safetensors_header(tensors.iter().map(|(name, dtype, shape, _)| (name.as_str(), *dtype, shape.as_slice())));
        tensors.iter().for_each(|(.., bytes)| file.extend_from_slice(bytes));
        std::fs::write(path, file).map_err(|source| VerifyError::Write { path: path.to_owned(), source })
    }

    fn rows(&self) -> usize {
        match self.stage {
            Stage::Embedding => 0,
            Stage::Head => 1,
            Stage::Attention(_) | Stage::Ffn(_) => self.ids.len(),
        }
    }

    /// Reads what [`Record::write`] has written: the record, the options of both sides, the tolerance.
    ///
    /// # Errors
    /// [`VerifyError::Bundle`].
    pub fn read(path: &Path) -> Result<(Self, [Vec<String>; 2], f32), VerifyError> {
        let bad = |what: String| VerifyError::Bundle { path: path.to_owned(), what };
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| bad("is no file".to_owned()))?;
        let dir = path.parent().unwrap_or(Path::new(""));
        let (_, tensors) = open_file(dir, name).map_err(|error| bad(error.to_string()))?;
        let tensor = |name: &str| tensors.iter().find(|tensor| tensor.name() == name);
        let no_bundle = || bad("is no bundle of verify".to_owned());
        let description = tensor(DESCRIPTION).filter(|tensor| tensor.dtype() == Dtype::U8).ok_or_else(no_bundle)?;
        let description: Value = serde_json::from_slice(description.bytes()).map_err(|_| no_bundle())?;
        if description["format"] != BUNDLE {
            return Err(bad(format!("is of format {}, this program reads \"{BUNDLE}\"", description["format"])));
        }
        let lacks = |what: &str| bad(format!("lacks {what}, or has it in another form"));
        let stage = description["stage"].as_str().and_then(Stage::parse).ok_or_else(|| lacks("the stage"))?;
        let tolerance = description["tolerance"].as_f64().ok_or_else(|| lacks("the tolerance"))? as f32;
        let options = |side: &str| -> Result<Vec<String>, VerifyError> {
            serde_json::from_value(description[side].clone()).map_err(|_| lacks("the options of a side"))
        };
        let ids = tensor("ids").filter(|ids| ids.dtype() == Dtype::U32).ok_or_else(|| lacks("the token ids"))?;
        let ids: Vec<u32> = ids.bytes().as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        let values = |tensor: &Tensor| tensor.as_f32().map(|values| values.into_owned());
        let input = tensor("input").and_then(|input| values(input).ok()).ok_or_else(|| lacks("the input"))?;
        let of_side = |side: &str| -> Result<Vec<Activation>, VerifyError> {
            let prefix = format!("{side}.");
            let mut found = Vec::new();
            // In the order of the file, which is that of the stage: all are F32.
            for tensor in tensors.iter().filter(|tensor| tensor.name().starts_with(&prefix)) {
                let values = values(tensor).map_err(|error| bad(error.to_string()))?;
                found.push(Activation::new(&tensor.name()[prefix.len()..], tensor.shape(), &values));
            }
            Ok(found)
        };
        let record = Self { stage, ids, input, a: of_side("a")?, b: of_side("b")? };
        Ok((record, [options("a")?, options("b")?], tolerance))
    }
}
