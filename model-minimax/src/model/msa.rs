// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sparse attention: index heads choose blocks of keys for each query, which attends to the keys of its blocks.
//!
//! A block is a page of the cache. One query alone (decoding) goes through `msa-sparse-decode`, several through
//! `msa-main-branch`; both take a row's blocks in ascending order, one after the other, so that they agree bit for bit.

use super::cache::{LayerCache, PAGE};
use super::forward::{Observer, narrow, narrow_to};
use super::{Event, ModelError};
use crate::config::{ModelConfig, MsaConfig, ScoreType};
use cpu_tiles::attention::PackedBlocks;
use cpu_tiles::{Level, Pool, Precision};
use half::bf16;
use msa_indexer::{HeadReduce, IndexerDims, Keys, Values};
use msa_main_branch::{AttentionDims, Blocks, Data, KeysValues, Query, msa_main_branch};
use msa_sparse_decode::{BlockIds, Cache, DecodeBatch, DecodeDims, Queries, sparse_decode_f32, sparse_decode_f32_in};

/// The sparse attention of a model: the sizes of its operators.
#[derive(Debug)]
pub(super) struct Msa {
    pub(super) indexer: IndexerDims,
    pub(super) decode: DecodeDims,
    pub(super) prefill: AttentionDims,
}

/// The blocks chosen for some queries.
pub(super) struct Choice {
    kv_heads: usize,
    /// Lists of a query: one for each KV head, or one for all.
    lists: usize,
    /// Length of a list.
    top_k: usize,
    /// `[queries, lists, top_k]`.
    ids: Vec<i32>,
    /// Blocks up to the last query.
    blocks: usize,
    /// `[queries, lists, blocks]`, if they were wanted.
    scores: Vec<f32>,
}

impl Choice {
    /// `ids` are `[queries, lists, top_k]`, `scores` `[queries, lists, blocks]` or nothing.
    #[cfg(feature = "npu")]
    pub(super) fn new(msa: &Msa, lists: usize, ids: Vec<i32>, scores: Vec<f32>, blocks: usize) -> Self {
        Self { kv_heads: msa.prefill.kv_heads, lists, top_k: msa.indexer.topk.min(blocks), ids, blocks, scores }
    }

    pub(super) fn show(&self, layer: usize, observe: &mut Observer<'_>) {
        let &Self { kv_heads, lists, top_k, blocks, .. } = self;
        if !self.scores.is_empty() {
            let values = &per_kv_head(&self.scores, blocks, kv_heads / lists);
            observe.show(Event::BlockScores { layer, kv_heads, blocks, values });
        }
        let ids = &per_kv_head(&self.ids, top_k, kv_heads / lists);
        observe.show(Event::Blocks { layer, kv_heads, top_k, ids });
    }

    /// The lists of the queries from `query` on.
    pub(super) fn from(&self, query: usize) -> Lists<'_> {
        let ids = &self.ids[query * self.lists * self.top_k..];
        if self.lists == 1 { Lists::Shared(ids) } else { Lists::PerKvHead(ids) }
    }
}

/// Blocks of some queries, `[queries, KV heads, top-k]`, or `[queries, top-k]` for all KV heads.
#[derive(Clone, Copy)]
pub(super) enum Lists<'a> {
    Shared(&'a [i32]),
    PerKvHead(&'a [i32]),
}

/// Rows of `width` values, each `times` times.
fn per_kv_head<T: Copy>(rows: &[T], width: usize, times: usize) -> Vec<T> {
    rows.chunks_exact(width).flat_map(|row| std::iter::repeat_n(row, times)).flatten().copied().collect()
}

impl Msa {
    pub(super) fn new(config: &ModelConfig, msa: MsaConfig, reduce: HeadReduce) -> Self {
        let MsaConfig { index_heads, index_dim, block, topk, init_blocks, local_blocks, score_type } = msa;
        let ModelConfig { num_attention_heads: heads, num_key_value_heads: kv_heads, head_dim, .. } = *config;
        match score_type {
            // The only one, and that of the indexer.
            ScoreType::Max => {}
        }
        Self {
            indexer: IndexerDims {
                heads: index_heads,
                head_dim: index_dim,
                block,
                topk,
                init_blocks,
                local_blocks,
                reduce,
            },
            // A list is one chunk: it has no merges that the prefill would lack.
            decode: DecodeDims { chunk_keys: topk * block, ..DecodeDims::new(heads, kv_heads, head_dim, block) },
            prefill: AttentionDims { heads, kv_heads, head_dim, block },
        }
    }

    /// Channels of an index head.
    pub(super) fn index_dim(&self) -> usize {
        self.indexer.head_dim
    }

    /// Values of an index query: all its heads.
    pub(super) fn index_width(&self) -> usize {
        self.indexer.heads * self.indexer.head_dim
    }

    /// The first position that sees more blocks than it may choose.
    pub(super) fn first_that_chooses(&self) -> usize {
        self.indexer.topk * self.indexer.block
    }

    /// How many of `context` cached tokens the one after them attends to.
    pub(super) fn attended(&self, context: usize) -> usize {
        if context < self.first_that_chooses() {
            return context;
        }
        // Its own block, which is always chosen, and others that are full.
        (self.indexer.topk - 1) * self.indexer.block + context % self.indexer.block
    }

    /// Chooses blocks for the queries at the positions from `first` on, whose index keys are in the cache. `index_q` is F32
    /// `[queries, index heads, index_dim]`.
    pub(super) fn choose(
        &self,
        level: Level,
        pool: &Pool,
        cached: LayerCache<'_>,
        first: usize,
        index_q: &[f32],
        want_scores: bool,
    ) -> Result<Choice, ModelError> {
        let dims = &self.indexer;
        let count = index_q.len() / self.index_width();
        let length = first + count;
        let ([_, lists, top_k], [_, _, blocks]) = (dims.ids_shape(count, length), dims.scores_shape(count, length));
        let mut ids = vec![0; count * lists * top_k];
        let mut scores = vec![0.0; if want_scores { count * lists * blocks } else { 0 }];
        let wanted = want_scores.then_some(scores.as_mut_slice());
        let rounded = rounded(level, pool, cached, index_q);
        let queries = rounded.as_deref().map_or(Values::F32(index_q), Values::Bf16);
        let keys = Keys::Packed { blocks: &cached, block_table: None };
        match count {
            1 => msa_indexer::decode(level, pool, dims, queries, keys, length, &mut ids, wanted)?,
            _ => msa_indexer::prefill(level, pool, dims, queries, first, keys, length, &mut ids, wanted)?,
        }
        Ok(Choice { kv_heads: self.prefill.kv_heads, lists, top_k, ids, blocks, scores })
    }

    /// Attends from the queries at the positions from `first` on, F32 `[queries, heads, head_dim]` as is `out`, to their
    /// blocks.
    #[expect(clippy::too_many_arguments, reason = "what, where, from where, to where")]
    pub(super) fn attend(
        &self,
        level: Level,
        pool: &Pool,
        cached: LayerCache<'_>,
        first: usize,
        q: &[f32],
        lists: Lists<'_>,
        out: &mut [f32],
    ) -> Result<(), ModelError> {
        let count = q.len() / (self.prefill.heads * self.prefill.head_dim);
        let rounded = rounded(level, pool, cached, q);
        // A query's own block is among those it attends to, so there is none that sees nothing.
        if count == 1 {
            let batch = DecodeBatch {
                queries: rounded.as_deref().map_or(Queries::F32(q), Queries::Bf16),
                cache: Cache::Packed { pages: &cached, block_table: None },
                block_ids: match lists {
                    Lists::Shared(ids) => BlockIds::Shared(ids),
                    Lists::PerKvHead(ids) => BlockIds::PerKvHead(ids),
                },
                seq_lens: &[first + 1],
            };
            sparse_decode_f32(level, pool, &self.decode, &batch, out)?;
        } else {
            let data = rounded.as_deref().map_or(Data::F32(q), Data::Bf16);
            let keys_values = KeysValues::Packed { pages: &cached, block_table: None, tokens: first + count };
            let blocks = match lists {
                Lists::Shared(ids) => Blocks::PerTile { tile: 1, ids },
                Lists::PerKvHead(ids) => Blocks::PerQuery(ids),
            };
            msa_main_branch(level, pool, &self.prefill, Query { data, start: first }, keys_values, blocks, out)?;
        }
        Ok(())
    }
}

/// The memory of [`Msa::decode`].
#[derive(Debug, Default)]
pub(super) struct Workspace {
    indexer: msa_indexer::Workspace,
    attention: msa_sparse_decode::Workspace,
    ids: Vec<i32>,
    /// Queries in BF16.
    index_q: Vec<bf16>,
    q: Vec<bf16>,
}

impl Workspace {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Makes it large enough for a sequence of up to `tokens`.
    pub(super) fn reserve(&mut self, msa: &Msa, level: Level, tokens: usize) -> Result<(), ModelError> {
        let Msa { indexer, decode, .. } = msa;
        self.indexer.reserve(level, indexer, tokens)?;
        self.attention.reserve(level, decode, 1, indexer.topk)?;
        self.ids.resize(indexer.selections() * indexer.topk, 0);
        self.index_q.resize(msa.index_width(), bf16::ZERO);
        self.q.resize(decode.heads * decode.head_dim, bf16::ZERO);
        Ok(())
    }
}

impl Msa {
    /// [`choose`](Self::choose) and [`attend`](Self::attend) for one query that has a choice, in memory that is kept.
    #[expect(clippy::too_many_arguments, reason = "what, where, from where, to where")]
    pub(super) fn decode(
        &self,
        workspace: &mut Workspace,
        level: Level,
        pool: &Pool,
        cached: LayerCache<'_>,
        position: usize,
        index_q: &[f32],
        q: &[f32],
        out: &mut [f32],
    ) -> Result<(), ModelError> {
        let Workspace { indexer, attention, ids, index_q: index_rounded, q: rounded } = workspace;
        let (dims, length) = (&self.indexer, position + 1);
        ids.resize(dims.ids_shape(1, length).iter().product(), 0);
        let (index_q, q) = match cached.precision() {
            Precision::F32 => (Values::F32(index_q), Queries::F32(q)),
            Precision::Bf16 => {
                index_rounded.resize(index_q.len(), bf16::ZERO);
                rounded.resize(q.len(), bf16::ZERO);
                narrow_to(level, pool, index_q, index_rounded);
                narrow_to(level, pool, q, rounded);
                (Values::Bf16(index_rounded), Queries::Bf16(rounded))
            }
        };
        let keys = Keys::Packed { blocks: &cached, block_table: None };
        msa_indexer::decode_in(indexer, level, pool, dims, index_q, keys, length, ids, None)?;
        let batch = DecodeBatch {
            queries: q,
            cache: Cache::Packed { pages: &cached, block_table: None },
            block_ids: if dims.selections() == 1 { BlockIds::Shared(ids) } else { BlockIds::PerKvHead(ids) },
            seq_lens: &[length],
        };
        // The query's own block is among those it attends to, so there is something to see.
        sparse_decode_f32_in(attention, level, pool, &self.decode, &batch, out)?;
        Ok(())
    }
}

/// Queries in the precision of the cache, if that is BF16.
fn rounded(level: Level, pool: &Pool, cached: LayerCache<'_>, q: &[f32]) -> Option<Vec<bf16>> {
    match cached.precision() {
        Precision::F32 => None,
        Precision::Bf16 => Some(narrow(level, pool, q)),
    }
}

const _: () = assert!(PAGE == crate::config::MSA_BLOCK, "a block of the sparse attention is a page of the cache");
