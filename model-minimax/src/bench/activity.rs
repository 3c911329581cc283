// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a model does with a prompt, apart from time: which experts tokens go to, and which blocks of keys they attend to.

use serde::{Deserialize, Serialize};

use crate::generate::Decoder;
use crate::model::{Event, Model, ModelError};

/// Rows of a [`BlockMap`], at most.
const ROWS: usize = 96;
/// Columns of a [`BlockMap`], at most.
const COLUMNS: usize = 128;

/// Loads of experts and choices of blocks during one generation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// Tokens that went through the model.
    pub tokens: usize,
    /// Layers with experts, the first first.
    pub experts: Vec<LayerLoad>,
    /// Choices of all layers with sparse attention together; null if there are none.
    pub blocks: Option<BlockMap>,
}

/// How often each expert of a layer was chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerLoad {
    /// The layer.
    pub layer: usize,
    /// Tokens of each expert.
    pub tokens: Vec<u64>,
}

/// Which blocks of keys the queries of a position attend to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BlockMap {
    /// Positions of a row.
    pub positions_per_row: usize,
    /// Blocks of a column.
    pub blocks_per_column: usize,
    /// Positions in all.
    pub positions: usize,
    /// Blocks in all.
    pub blocks: usize,
    /// For each row and column the share, from 0 to 1, of its choices (layers, KV heads, positions and blocks) that were made.
    pub shares: Vec<Vec<f64>>,
}

/// Listens to the forward passes of a generation whose length is known.
#[derive(Debug)]
pub struct Collector {
    positions: usize,
    per_row: usize,
    per_column: usize,
    tokens: usize,
    experts: Vec<LayerLoad>,
    /// Tokens that each layer with sparse attention has seen.
    seen: Vec<usize>,
    kv_heads: usize,
    /// Choices of each row and column.
    chosen: Vec<[u64; COLUMNS]>,
}

impl Collector {
    /// For a sequence of at most `positions` tokens; `block` keys are a block.
    #[must_use]
    pub fn new(positions: usize, block: usize) -> Self {
        Self {
            positions,
            per_row: positions.div_ceil(ROWS).max(1),
            per_column: positions.div_ceil(block.max(1)).div_ceil(COLUMNS).max(1),
            tokens: 0,
            experts: Vec::new(),
            seen: Vec::new(),
            kv_heads: 0,
            chosen: vec![[0; COLUMNS]; ROWS],
        }
    }

    /// Takes what a forward pass shows. Passes must continue one sequence.
    pub fn observe(&mut self, event: Event<'_>) {
        match event {
            Event::TopK { layer, ids, .. } => {
                let load = match self.experts.iter().position(|load| load.layer == layer) {
                    Some(found) => &mut self.experts[found],
                    None => {
                        self.experts.push(LayerLoad { layer, tokens: Vec::new() });
                        let last = self.experts.len() - 1;
                        &mut self.experts[last]
                    }
                };
                for &id in ids {
                    let id = id as usize;
                    if load.tokens.len() <= id {
                        load.tokens.resize(id + 1, 0);
                    }
                    load.tokens[id] += 1;
                }
            }
            Event::Blocks { layer, kv_heads, top_k, ids } => {
                if self.seen.len() <= layer {
                    self.seen.resize(layer + 1, 0);
                }
                self.kv_heads = kv_heads;
                for token in ids.chunks_exact((kv_heads * top_k).max(1)) {
                    let row = &mut self.chosen[(self.seen[layer] / self.per_row).min(ROWS - 1)];
                    for id in token.iter().filter_map(|&id| usize::try_from(id).ok()) {
                        row[(id / self.per_column).min(COLUMNS - 1)] += 1;
                    }
                    self.seen[layer] += 1;
                }
            }
            _ => {}
        }
    }

    /// What was seen; `experts` is the number of experts of a layer, `block` keys are a block.
    #[must_use]
    pub fn finish(mut self, experts: usize, block: usize) -> Activity {
        for load in &mut self.experts {
            load.tokens.resize(experts.max(load.tokens.len()), 0);
        }
        let layers = self.seen.iter().filter(|&&seen| seen > 0).count();
        let positions = self.seen.iter().copied().max().unwrap_or(0).min(self.positions);
        let blocks = positions.div_ceil(block.max(1));
        let map = (layers > 0).then(|| {
            let of_row = |row: usize| {
                let of_column = |column: usize| {
                    let rows = positions.saturating_sub(row * self.per_row).min(self.per_row);
                    let columns = blocks.saturating_sub(column * self.per_column).min(self.per_column);
                    let all = (rows * columns * layers * self.kv_heads).max(1);
                    self.chosen[row][column] as f64 / all as f64
                };
                (0..blocks.div_ceil(self.per_column)).map(of_column).collect()
            };
            BlockMap {
                positions_per_row: self.per_row,
                blocks_per_column: self.per_column,
                positions,
                blocks,
                shares: (0..positions.div_ceil(self.per_row)).map(of_row).collect(),
            }
        });
        Activity { tokens: self.tokens, experts: self.experts, blocks: map }
    }
}

/// A model whose forward passes are listened to, in its place as a [`Decoder`].
#[derive(Debug)]
pub struct Observed<'a> {
    model: &'a mut Model,
    collector: Collector,
}

impl<'a> Observed<'a> {
    /// Listens to `model` during one sequence of at most `positions` tokens.
    #[must_use]
    pub fn new(model: &'a mut Model, positions: usize) -> Self {
        Self { model, collector: Collector::new(positions, crate::config::MSA_BLOCK) }
    }

    /// What was seen.
    #[must_use]
    pub fn finish(self) -> Activity {
        self.collector.finish(self.model.config().num_local_experts, crate::config::MSA_BLOCK)
    }
}

impl Decoder for Observed<'_> {
    type Error = ModelError;

    fn vocab_size(&self) -> usize {
        self.model.vocab_size()
    }

    fn max_positions(&self) -> usize {
        self.model.max_positions()
    }

    fn reset(&mut self) {
        self.model.reset();
    }

    fn forward(&mut self, ids: &[u32]) -> Result<&[f32], ModelError> {
        let Self { model, collector } = self;
        collector.tokens += ids.len();
        model.forward_observed(ids, |event| collector.observe(event))
    }
}
