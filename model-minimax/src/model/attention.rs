// SPDX-License-Identifier: MIT OR Apache-2.0

//! Causal attention of grouped query heads to all keys of a [`KvCache`](super::cache::KvCache).
//!
//! One code for prefill and decode: the rows of a tile are the query heads that share a KV head, of one or more queries.
//! Long contexts are cut into chunks of a fixed number of pages, which are worked on in parallel and merged in order.
//! Where the cuts are depends on positions only, so a row's result is the same bit for bit however many queries share
//! the call and however many threads there are.

use super::cache::{LayerCache, PAGE};
use cpu_tiles::attention::{Ahead, FlashRows, PackedBlocks, Rows};
use cpu_tiles::mem::Scratch;
use cpu_tiles::threads::ColumnPanels;
use cpu_tiles::weights::check_len;
use cpu_tiles::{Acts, Level, Pool, Precision, RowNumbers, ShapeError};
use std::fmt;
use std::ops::Range;

/// Pages of a chunk.
const CHUNK_PAGES: usize = 8;
/// Rows of a block, about: ten full micro-tiles of six.
const BLOCK_ROWS: usize = 60;
/// Chunks that are kept before they are merged, about.
const PENDING: usize = 512;

/// Attends from the tokens that were appended to the cache last, the queries, to all tokens up to each.
///
/// * `q`: F32 `[queries, heads, head_dim]`, at the positions from the length of the cache on; `heads` is a multiple of the
///   KV heads, and query head `h` uses KV head `h / (heads / kv_heads)`. Rounded to the precision of the cache, as the
///   probabilities are;
/// * `out`: F32 `[queries, heads, head_dim]`. The softmax is over `q . k / sqrt(head_dim)`, in F32.
///
/// A cached value that is infinite or NaN reaches the queries that see it and no other.
///
/// # Errors
/// [`ShapeError`] when a length does not fit, or no room was reserved for the queries.
pub fn attention(
    level: Level,
    pool: &Pool,
    layer: LayerCache<'_>,
    heads: usize,
    q: &[f32],
    out: &mut [f32],
) -> Result<(), ShapeError> {
    attention_in(&mut Workspace::new(), level, pool, layer, heads, q, out)
}

/// [`attention`] in memory that is kept from call to call: see [`Workspace`].
///
/// # Errors
/// As [`attention`].
pub fn attention_in(
    workspace: &mut Workspace,
    level: Level,
    pool: &Pool,
    layer: LayerCache<'_>,
    heads: usize,
    q: &[f32],
    out: &mut [f32],
) -> Result<(), ShapeError> {
    let (kv_heads, head_dim, cached) = (layer.kv_heads(), layer.head_dim(), layer.cache().len());
    if heads == 0 || !heads.is_multiple_of(kv_heads) {
        let expected = heads.max(1).next_multiple_of(kv_heads);
        return Err(ShapeError::Mismatch { what: "number of query heads", expected, found: heads });
    }
    let (group, width) = (heads / kv_heads, heads * head_dim);
    let queries = q.len() / width;
    check_len("q", q.len(), &[queries, heads, head_dim])?;
    check_len("out", out.len(), &[queries, heads, head_dim])?;
    let Workspace { acts, parts, states, merged } = workspace;
    let acts = Acts::resized(acts, level, layer.precision(), queries * heads, head_dim)?;
    acts.write_f32(pool, q)?;
    let job = Job { layer, heads, group, acts };

    let block = (BLOCK_ROWS / group).max(1);
    let chunks = |queries: usize| (cached + queries).div_ceil(CHUNK_PAGES * PAGE);
    let wave = (PENDING / (chunks(queries) * kv_heads).max(1)).max(1) * block;
    for (out, first) in out.chunks_mut(wave * width).zip((0..).step_by(wave)) {
        parts.clear();
        merged.clear();
        for start in (first..first + out.len() / width).step_by(block) {
            let queries = start..queries.min(start + block);
            for kv_head in 0..kv_heads {
                let first = parts.len();
                parts.extend((0..chunks(queries.end)).map(|chunk| Part { queries: queries.clone(), kv_head, chunk }));
                merged.push(first..parts.len());
            }
        }
        let rows = parts.iter().map(|part| part.queries.len() * group);
        let states = sized(states, rows, level, layer.precision(), head_dim)?;
        let slots = ColumnPanels::new(states, parts.len(), 1);
        pool.try_run(parts.len(), |task| job.attend(&parts[task], &mut slots.claim(task).row(0)[0]))?;

        // All chunks of a block and head into the first.
        pool.try_for_each_range_mut(states, merged, |_, states| match states {
            [] => Ok(()),
            [first, rest @ ..] => rest.iter().try_for_each(|other| first.merge(other)),
        })?;

        let columns = ColumnPanels::new(out, width, group * head_dim);
        pool.run(kv_heads, |kv_head| {
            let mut columns = columns.claim(kv_head);
            for place in merged.iter().map(|chunks| chunks.start).filter(|place| parts[*place].kv_head == kv_head) {
                for (i, query) in parts[place].queries.clone().enumerate() {
                    for (member, out) in columns.row(query - first).chunks_exact_mut(head_dim).enumerate() {
                        // Every query sees its own key at least.
                        states[place].finish(i * group + member, out);
                    }
                }
            }
        });
    }
    Ok(())
}

/// The memory of [`attention_in`], for any number of calls of any sizes, one after the other.
///
/// It grows to the largest call. A call that is no larger than an earlier one, or than what was
/// [reserved](Self::reserve), allocates nothing, given that the threads of the pool have their scratch
/// ([`cpu_tiles::attention::reserve_attention_scratch`]), and that a tile has at most 64 rows, which all but unusual groups of
/// heads have.
#[derive(Default)]
pub struct Workspace {
    acts: Option<Acts>,
    parts: Vec<Part>,
    /// One for each part, and others for larger calls.
    states: Vec<FlashRows>,
    /// Parts of the same queries and KV head.
    merged: Vec<Range<usize>>,
}

impl Workspace {
    /// Memory that is to be had.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes it large enough for one query of a sequence of up to `tokens`. `heads` is a multiple of the KV heads of the layer.
    ///
    /// # Errors
    /// [`ShapeError::Memory`].
    pub fn reserve(
        &mut self,
        level: Level,
        layer: LayerCache<'_>,
        heads: usize,
        tokens: usize,
    ) -> Result<(), ShapeError> {
        let (kv_heads, head_dim) = (layer.kv_heads(), layer.head_dim());
        let parts = tokens.div_ceil(CHUNK_PAGES * PAGE) * kv_heads;
        Acts::resized(&mut self.acts, level, layer.precision(), heads, head_dim)?;
        self.parts.clear();
        self.parts.reserve(parts);
        self.merged.clear();
        self.merged.reserve(kv_heads);
        let rows = std::iter::repeat_n(heads / kv_heads, parts);
        sized(&mut self.states, rows, level, layer.precision(), head_dim)?;
        Ok(())
    }
}

impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Workspace({} parts)", self.states.len())
    }
}

/// One state for each number of rows.
fn sized(
    states: &mut Vec<FlashRows>,
    rows: impl Iterator<Item = usize>,
    level: Level,
    precision: Precision,
    head_dim: usize,
) -> Result<&mut [FlashRows], ShapeError> {
    let mut count = 0;
    for rows in rows {
        match states.get_mut(count) {
            Some(state) => state.resize(level, precision, head_dim, rows, PAGE)?,
            None => states.push(FlashRows::new(level, precision, head_dim, rows, PAGE)?),
        }
        count += 1;
    }
    Ok(&mut states[..count])
}

/// Rows of the largest tile of some queries, with `group` query heads of a KV head.
pub(super) fn most_rows(group: usize, queries: usize) -> usize {
    (BLOCK_ROWS / group).max(1).min(queries) * group
}

/// What all parts of a call share.
struct Job<'a> {
    layer: LayerCache<'a>,
    heads: usize,
    /// Query heads of a KV head.
    group: usize,
    /// The queries, `[queries * heads, head_dim]`.
    acts: &'a Acts,
}

/// A block of queries against a chunk of the keys of one KV head. A row is a query and one head of the group.
struct Part {
    queries: Range<usize>,
    kv_head: usize,
    chunk: usize,
}

impl Job<'_> {
    fn attend(&self, part: &Part, state: &mut FlashRows) -> Result<(), ShapeError> {
        let &Self { layer, heads, group, acts } = self;
        let cached = layer.cache().len();
        let scale = 1.0 / (layer.head_dim() as f32).sqrt();
        let count = part.queries.len() * group;
        let mut q_rows = Scratch::<u32, 64>::new(count, 0);
        for (i, q_row) in q_rows.iter_mut().enumerate() {
            *q_row = ((part.queries.start + i / group) * heads + part.kv_head * group + i % group) as u32;
        }
        let rows = RowNumbers::first(count);
        let mut visible = Scratch::<u32, 64>::new(count, 0);
        state.reset(count)?;

        let end = cached + part.queries.end;
        let pages = part.chunk * CHUNK_PAGES..((part.chunk + 1) * CHUNK_PAGES).min(end.div_ceil(PAGE));
        for page in pages.clone() {
            let first_key = page * PAGE;
            let keys = (end - first_key).min(PAGE);
            for (row, visible) in visible.iter_mut().enumerate() {
                let position = cached + part.queries.start + row / group;
                *visible = (position + 1).saturating_sub(first_key).min(keys) as u32;
            }
            let visible = Rows { rows: &rows, q_rows: &q_rows, visible: &visible, bias: None };
            let values = layer.values(part.kv_head, page, keys)?;
            let next_keys = if page + 1 < pages.end { layer.keys(part.kv_head, page + 1)?.bytes() } else { &[] };
            let ahead = Ahead { with_scores: values.bytes(), with_values: next_keys };
            let keys = layer.keys(part.kv_head, page)?.into();
            state.block_ahead(acts, visible, scale, keys, values.into(), ahead)?;
        }
        Ok(())
    }
}
