// SPDX-License-Identifier: MIT OR Apache-2.0

//! Causal attention of grouped query heads over a [`KvCache`].
//!
//! One code for prefill and decode: the rows of a tile are the query heads that share a KV head, of one or more queries.
//! Scores exist for one page and a block of rows at a time; an online softmax carries a maximum and a sum per row from
//! page to page. Long contexts are cut into chunks of a fixed number of pages, which are worked on in parallel and
//! merged in order. Where the cuts are depends on positions only, so a row's result is the same bit for bit however many
//! queries share the call and however many threads there are.

use super::cache::{KvCache, PAGE};
use cpu_tiles::math::{exp, exp_minus_max};
use cpu_tiles::threads::ColumnPanels;
use cpu_tiles::weights::check_len;
use cpu_tiles::{Acts, Level, PANEL, Pool, ShapeError, tile};
use std::ops::Range;

/// Pages of a chunk.
const CHUNK_PAGES: usize = 8;
/// Rows of a block, about: ten full micro-tiles of six.
const BLOCK_ROWS: usize = 60;
/// Chunks that are kept before they are merged, about.
const PENDING: usize = 512;

/// Attends from the tokens that were appended to the cache last, the queries, to all tokens up to each.
///
/// * `layer`: the layer of the cache;
/// * `q`: F32 `[queries, heads, head_dim]`, at the positions from `cache.len()` on; `heads` is a multiple of the KV heads,
///   and query head `h` uses KV head `h / (heads / kv_heads)`. Rounded to the precision of the cache, as the
///   probabilities are;
/// * `out`: F32 `[queries, heads, head_dim]`. The softmax is over `q . k / sqrt(head_dim)`, in F32.
///
/// A cached value that is infinite or NaN reaches the queries that see it, and may reach the few before it that share a
/// tile with one that does.
///
/// # Errors
/// [`ShapeError`] when a length does not fit.
///
/// # Panics
/// When there is no such layer, or no room was reserved for the queries.
pub fn attention(
    level: Level,
    pool: &Pool,
    cache: &KvCache,
    layer: usize,
    heads: usize,
    q: &[f32],
    out: &mut [f32],
) -> Result<(), ShapeError> {
    let (kv_heads, head_dim) = (cache.kv_heads(), cache.head_dim());
    if heads == 0 || !heads.is_multiple_of(kv_heads) {
        let expected = heads.max(1).next_multiple_of(kv_heads);
        return Err(ShapeError::Mismatch { what: "number of query heads", expected, found: heads });
    }
    let (group, width) = (heads / kv_heads, heads * head_dim);
    let queries = q.len() / width;
    check_len("q", q.len(), &[queries, heads, head_dim])?;
    check_len("out", out.len(), &[queries, heads, head_dim])?;
    let acts = Acts::from_f32(level, pool, cache.precision(), queries * heads, head_dim, q)?;
    let job = Job { level, cache, layer, heads, group, acts: &acts };

    let block = (BLOCK_ROWS / group).max(1);
    let chunks = |queries: usize| (cache.len() + queries).div_ceil(CHUNK_PAGES * PAGE);
    let wave = (PENDING / (chunks(queries) * kv_heads).max(1)).max(1) * block;
    for (out, first) in out.chunks_mut(wave * width).zip((0..).step_by(wave)) {
        let mut parts = Vec::new();
        for start in (first..first + out.len() / width).step_by(block) {
            let queries = start..queries.min(start + block);
            for kv_head in 0..kv_heads {
                parts.extend((0..chunks(queries.end)).map(|chunk| Part::new(queries.clone(), kv_head, chunk)));
            }
        }
        let tasks = parts.len();
        let slots = ColumnPanels::new(&mut parts, tasks, 1);
        pool.try_run(tasks, |task| job.attend(&mut slots.claim(task).row(0)[0]))?;

        let columns = ColumnPanels::new(out, width, group * head_dim);
        pool.run(kv_heads, |kv_head| {
            let mut columns = columns.claim(kv_head);
            for chunks in parts.chunk_by(|a, b| (a.kv_head, &a.queries) == (b.kv_head, &b.queries)) {
                if chunks[0].kv_head != kv_head {
                    continue;
                }
                for (i, query) in chunks[0].queries.clone().enumerate() {
                    for (member, out) in columns.row(query - first).chunks_exact_mut(head_dim).enumerate() {
                        merge(chunks, i * group + member, out);
                    }
                }
            }
        });
    }
    Ok(())
}

/// What all parts of a call share.
struct Job<'a> {
    level: Level,
    cache: &'a KvCache,
    layer: usize,
    heads: usize,
    /// Query heads of a KV head.
    group: usize,
    /// The queries, `[queries * heads, head_dim]`.
    acts: &'a Acts,
}

/// A block of queries against a chunk of the keys of one KV head: the softmax, not yet divided by its sum. A row is a
/// query and one head of the group.
struct Part {
    queries: Range<usize>,
    kv_head: usize,
    chunk: usize,
    /// Largest score of each row so far.
    max: Vec<f32>,
    /// Sum of `e^(score - max)` of each row; zero for a row that has seen no key.
    sum: Vec<f32>,
    /// Values weighted with `e^(score - max)`, `[rows, head_dim]`, rows padded to whole panels.
    values: Vec<f32>,
}

impl Part {
    fn new(queries: Range<usize>, kv_head: usize, chunk: usize) -> Self {
        Self { queries, kv_head, chunk, max: Vec::new(), sum: Vec::new(), values: Vec::new() }
    }
}

impl Job<'_> {
    fn attend(&self, part: &mut Part) -> Result<(), ShapeError> {
        let &Self { level, cache, layer, heads, group, acts } = self;
        let head_dim = cache.head_dim();
        let scale = 1.0 / (head_dim as f32).sqrt();
        let stride = head_dim.next_multiple_of(PANEL);
        let first_head = part.kv_head * group;
        let q_rows: Vec<u32> = part
            .queries
            .clone()
            .flat_map(|query| (query * heads + first_head..).take(group))
            .map(|row| row as u32)
            .collect();
        let rows: Vec<u32> = (0..q_rows.len() as u32).collect();
        part.max = vec![f32::NEG_INFINITY; rows.len()];
        part.sum = vec![0.0; rows.len()];
        part.values = vec![0.0; rows.len() * stride];
        let mut product = vec![0.0; rows.len() * PANEL];
        let mut scores = vec![0.0; rows.len() * PAGE];
        let mut sums = vec![0.0; rows.len()];
        let mut fall = vec![0.0; rows.len()];
        let mut shrink = vec![0.0; rows.len()];
        let mut probabilities: Option<Acts> = None;

        let positions = cache.len() + part.queries.start..cache.len() + part.queries.end;
        let pages = part.chunk * CHUNK_PAGES..((part.chunk + 1) * CHUNK_PAGES).min(positions.end.div_ceil(PAGE));
        for page in pages {
            let first_key = page * PAGE;
            let keys = (positions.end - first_key).min(PAGE);
            // The rows that see nothing of the page are those of the first queries.
            let active = first_key.saturating_sub(positions.start) * group..rows.len();
            let product = &mut product[..active.len() * PANEL];

            let weight = cache.keys(layer, part.kv_head, page)?.into();
            for panel in 0..keys.div_ceil(PANEL) {
                tile(weight, panel, acts, &q_rows[active.clone()], product)?;
                let scores = scores[active.start * PAGE..].chunks_exact_mut(PAGE);
                for (scores, product) in scores.zip(product.chunks_exact(PANEL)) {
                    for (score, x) in scores[panel * PANEL..].iter_mut().zip(product) {
                        *score = x * scale;
                    }
                }
            }

            for row in active.clone() {
                let visible = (positions.start + row / group + 1 - first_key).min(keys);
                let (seen, hidden) = scores[row * PAGE..][..keys].split_at_mut(visible);
                let (max, sum) = exp_minus_max(level, part.max[row], seen);
                hidden.fill(0.0);
                fall[row] = part.max[row] - max;
                (part.max[row], sums[row]) = (max, sum);
            }
            // What was summed so far is relative to the old maximum.
            exp(level, &fall[active.clone()], &mut shrink[active.clone()]);

            let probabilities = match &mut probabilities {
                Some(acts) if acts.k() == keys => acts,
                acts => acts.insert(Acts::zeroed(level, cache.precision(), rows.len(), keys)?),
            };
            let panels = probabilities.panels();
            for panel in 0..keys.div_ceil(PANEL) {
                let mut columns = panels.claim(panel);
                for row in active.clone() {
                    columns.store(row, &scores[row * PAGE + panel * PANEL..]);
                }
            }

            let weight = cache.values(layer, part.kv_head, page, keys)?.into();
            for panel in 0..stride / PANEL {
                tile(weight, panel, probabilities, &rows[active.clone()], product)?;
                for (row, product) in active.clone().zip(product.chunks_exact(PANEL)) {
                    let values = &mut part.values[row * stride + panel * PANEL..][..PANEL];
                    for (value, x) in values.iter_mut().zip(product) {
                        *value = *value * shrink[row] + x;
                    }
                }
            }
            for row in active {
                part.sum[row] = part.sum[row] * shrink[row] + sums[row];
            }
        }
        Ok(())
    }
}

/// The output of a row, `[head_dim]`, from all its chunks in order.
fn merge(chunks: &[Part], row: usize, out: &mut [f32]) {
    let stride = out.len().next_multiple_of(PANEL);
    let (mut max, mut sum) = (f32::NEG_INFINITY, 0.0);
    out.fill(0.0);
    // A row may end before the last chunk of its block. NaN is no zero, so it goes on to the output.
    for part in chunks.iter().filter(|part| part.sum[row] != 0.0) {
        let larger = part.max[row].max(max);
        let (old, new) = ((max - larger).exp(), (part.max[row] - larger).exp());
        sum = sum * old + part.sum[row] * new;
        for (out, value) in out.iter_mut().zip(&part.values[row * stride..]) {
            *out = *out * old + value * new;
        }
        max = larger;
    }
    let factor = 1.0 / sum;
    out.iter_mut().for_each(|out| *out *= factor);
}
