// SPDX-License-Identifier: MIT OR Apache-2.0

//! Causal attention of grouped query heads to all keys of a [`KvCache`](super::cache::KvCache).
//!
//! One code for prefill and decode: the rows of a tile are the query heads that share a KV head, of one or more queries.
//! Long contexts are cut into chunks of a fixed number of pages, which are worked on in parallel and merged in order.
//! Where the cuts are depends on positions only, so a row's result is the same bit for bit however many queries share
//! the call and however many threads there are.

use super::cache::{LayerCache, PAGE};
use cpu_tiles::attention::{Ahead, FlashRows, PackedBlocks, Rows};
use cpu_tiles::threads::ColumnPanels;
use cpu_tiles::weights::check_len;
use cpu_tiles::{Acts, Level, Pool, ShapeError};
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
    let (kv_heads, head_dim, cached) = (layer.kv_heads(), layer.head_dim(), layer.cache().len());
    if heads == 0 || !heads.is_multiple_of(kv_heads) {
        let expected = heads.max(1).next_multiple_of(kv_heads);
        return Err(ShapeError::Mismatch { what: "number of query heads", expected, found: heads });
    }
    let (group, width) = (heads / kv_heads, heads * head_dim);
    let queries = q.len() / width;
    check_len("q", q.len(), &[queries, heads, head_dim])?;
    check_len("out", out.len(), &[queries, heads, head_dim])?;
    let acts = Acts::from_f32(level, pool, layer.precision(), queries * heads, head_dim, q)?;
    let job = Job { layer, heads, group, acts: &acts };

    let block = (BLOCK_ROWS / group).max(1);
    let chunks = |queries: usize| (cached + queries).div_ceil(CHUNK_PAGES * PAGE);
    let wave = (PENDING / (chunks(queries) * kv_heads).max(1)).max(1) * block;
    for (out, first) in out.chunks_mut(wave * width).zip((0..).step_by(wave)) {
        let mut parts = Vec::new();
        for start in (first..first + out.len() / width).step_by(block) {
            let queries = start..queries.min(start + block);
            for kv_head in 0..kv_heads {
                for chunk in 0..chunks(queries.end) {
                    let rows = FlashRows::new(level, layer.precision(), head_dim, queries.len() * group, PAGE)?;
                    parts.push(Part { queries: queries.clone(), kv_head, chunk, rows });
                }
            }
        }
        let tasks = parts.len();
        let slots = ColumnPanels::new(&mut parts, tasks, 1);
        pool.try_run(tasks, |task| job.attend(&mut slots.claim(task).row(0)[0]))?;

        // All chunks of a block and head into the first.
        let mut merged: Vec<&mut [Part]> =
            parts.chunk_by_mut(|a, b| (a.kv_head, &a.queries) == (b.kv_head, &b.queries)).collect();
        let tasks = merged.len();
        let slots = ColumnPanels::new(&mut merged, tasks, 1);
        pool.try_run(tasks, |task| match &mut *slots.claim(task).row(0)[0] {
            [] => Ok(()),
            [first, rest @ ..] => rest.iter().try_for_each(|part| first.rows.merge(&part.rows)),
        })?;

        let columns = ColumnPanels::new(out, width, group * head_dim);
        pool.run(kv_heads, |kv_head| {
            let mut columns = columns.claim(kv_head);
            for part in merged.iter().map(|chunks| &chunks[0]).filter(|part| part.kv_head == kv_head) {
                for (i, query) in part.queries.clone().enumerate() {
                    for (member, out) in columns.row(query - first).chunks_exact_mut(head_dim).enumerate() {
                        // Every query sees its own key at least.
                        part.rows.finish(i * group + member, out);
                    }
                }
            }
        });
    }
    Ok(())
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
    rows: FlashRows,
}

impl Job<'_> {
    fn attend(&self, part: &mut Part) -> Result<(), ShapeError> {
        let &Self { layer, heads, group, acts } = self;
        let cached = layer.cache().len();
        let scale = 1.0 / (layer.head_dim() as f32).sqrt();
        let first_head = part.kv_head * group;
        let q_rows: Vec<u32> = part
            .queries
            .clone()
            .flat_map(|query| (query * heads + first_head..).take(group))
            .map(|row| row as u32)
            .collect();
        let rows: Vec<u32> = (0..q_rows.len() as u32).collect();
        let mut visible = vec![0; rows.len()];
        part.rows.reset(rows.len())?;

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
            part.rows.block_ahead(acts, visible, scale, keys, values.into(), ahead)?;
        }
        Ok(())
    }
}
