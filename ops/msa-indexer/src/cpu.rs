// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::Error;
use crate::select::Selector;
use crate::shape::{Blocks, HeadReduce, IndexerDims, Keys, Values, check_len, check_positions};
use cpu_tiles::threads::ColumnPanels;
use cpu_tiles::{Acts, Format, Level, Pool, Precision, ShapeError, max_scores};
use std::ops::Range;

/// Rows (query times head) that share the reading of a block: whole micro-kernels, and together with a block they fit the
/// second-level cache many times.
const TILE_ROWS: usize = 96;
/// Blocks of one task.
const TASK_BLOCKS: usize = 16;
/// Block scores that exist at a time, unless one tile has more: 4 MiB.
const MAX_SCORES: usize = 1 << 20;

/// The blocks for the query at the last position of a sequence: a decode step.
///
/// | argument | shape | |
/// | --- | --- | --- |
/// | `query` | `[heads, head_dim]` | at position `length - 1` |
/// | `keys` | see [`Keys`] | |
/// | `length` | | keys of the sequence, the query's own included |
/// | `ids` | `[selections, min(topk, blocks)]` | ascending |
/// | `scores` | `[selections, blocks]` | block scores, if wanted |
///
/// # Errors
/// See [`Error`]; the arguments are checked before the first value is computed.
#[expect(clippy::too_many_arguments, reason = "each is an argument of the operator")]
pub fn decode(
    level: Level,
    pool: &Pool,
    dims: &IndexerDims,
    query: Values<'_>,
    keys: Keys<'_>,
    length: usize,
    ids: &mut [i32],
    scores: Option<&mut [f32]>,
) -> Result<(), Error> {
    dims.check()?;
    check_len("query", &[dims.heads, dims.head_dim], query.len())?;
    let position = length.checked_sub(1).ok_or(Error::NoKeys)?;
    run(level, pool, dims, query, position..length, keys, length, ids, scores)
}

/// The blocks for queries at consecutive positions of a sequence, each of which sees the keys up to its own.
///
/// | argument | shape | |
/// | --- | --- | --- |
/// | `queries` | `[queries, heads, head_dim]` | |
/// | `start` | | position of the first query |
/// | `keys` | see [`Keys`] | |
/// | `length` | | keys of the sequence; all queries are at positions below |
/// | `ids` | `[queries, selections, min(topk, blocks)]` | ascending, then -1 where the query sees fewer blocks |
/// | `scores` | `[queries, selections, blocks]` | block scores, if wanted; minus infinity where nothing is visible |
///
/// # Errors
/// See [`Error`]; the arguments are checked before the first value is computed.
#[expect(clippy::too_many_arguments, reason = "each is an argument of the operator")]
pub fn prefill(
    level: Level,
    pool: &Pool,
    dims: &IndexerDims,
    queries: Values<'_>,
    start: usize,
    keys: Keys<'_>,
    length: usize,
    ids: &mut [i32],
    scores: Option<&mut [f32]>,
) -> Result<(), Error> {
    dims.check()?;
    let count = queries.count("queries", &[dims.heads, dims.head_dim])?;
    check_positions(start, count, length)?;
    run(level, pool, dims, queries, start..start + count, keys, length, ids, scores)
}

/// The remaining checks of a call, and the call. `positions` are those of the queries, below `length`.
#[expect(clippy::too_many_arguments, reason = "each is an argument of the operator")]
fn run(
    level: Level,
    pool: &Pool,
    dims: &IndexerDims,
    queries: Values<'_>,
    positions: Range<usize>,
    keys: Keys<'_>,
    length: usize,
    ids: &mut [i32],
    scores: Option<&mut [f32]>,
) -> Result<(), Error> {
    let keys = Blocks::new(dims, keys, length)?;
    check_len("ids", &dims.ids_shape(positions.len(), length), ids.len())?;
    if let Some(scores) = &scores {
        check_len("scores", &dims.scores_shape(positions.len(), length), scores.len())?;
    }
    if positions.is_empty() {
        return Ok(());
    }
    // Early queries see no more blocks than are selected: without a wish for scores there is nothing to compute.
    let first_that_chooses = dims.topk.saturating_mul(dims.block);
    let scored = match scores {
        Some(_) => positions.clone(),
        None => first_that_chooses.clamp(positions.start, positions.end)..positions.end,
    };
    let of_query = dims.ids_shape(1, length).iter().product::<usize>();
    let (early, ids) = ids.split_at_mut((scored.start - positions.start) * of_query);
    let selector = Selector::new(dims);
    for (position, ids) in positions.clone().zip(early.chunks_exact_mut(of_query)) {
        for ids in ids.chunks_exact_mut(of_query / dims.selections()) {
            selector.all(dims.visible_blocks(position), ids);
        }
    }
    if scored.is_empty() {
        return Ok(());
    }
    let acts = acts(level, pool, dims, queries, scored.start - positions.start, keys.format)?;
    Scoring { pool, dims, acts, positions: scored, keys, blocks: dims.blocks(length) }.run(ids, scores)
}

/// The queries from `first` on, one row for each head, as the tiles read them: BF16 where both are BF16 and the CPU
/// multiplies it faster. The scores are the same either way.
fn acts(
    level: Level,
    pool: &Pool,
    dims: &IndexerDims,
    queries: Values<'_>,
    first: usize,
    keys: Format,
) -> Result<Acts, ShapeError> {
    let (dim, at) = (dims.head_dim, first * dims.heads * dims.head_dim);
    match queries {
        Values::Bf16(q) => {
            let precision =
                if keys == Format::Bf16 && level.has_fast_bf16_dot() { Precision::Bf16 } else { Precision::F32 };
            Acts::from_bf16(level, pool, precision, q[at..].len() / dim, dim, &q[at..])
        }
        Values::F32(q) => Acts::from_f32(level, pool, Precision::F32, q[at..].len() / dim, dim, &q[at..]),
    }
}

/// Scores of which nothing is visible yet.
fn scratch(len: usize) -> Result<Vec<f32>, ShapeError> {
    let mut scores = Vec::new();
    scores.try_reserve_exact(len).map_err(|_| std::io::Error::from(std::io::ErrorKind::OutOfMemory))?;
    scores.resize(len, f32::NEG_INFINITY);
    Ok(scores)
}

/// Queries that need scores.
struct Scoring<'a> {
    pool: &'a Pool,
    dims: &'a IndexerDims,
    /// `[queries, heads]` rows.
    acts: Acts,
    /// Positions of the queries.
    positions: Range<usize>,
    keys: Blocks<'a>,
    /// Blocks of the sequence.
    blocks: usize,
}

/// The outputs of the queries of one tile.
struct Outputs<'a> {
    positions: Range<usize>,
    /// `[queries, heads, blocks of the wave]`.
    of_heads: &'a [f32],
    ids: &'a mut [i32],
    scores: Option<&'a mut [f32]>,
}

impl Scoring<'_> {
    fn run(&self, ids: &mut [i32], scores: Option<&mut [f32]>) -> Result<(), Error> {
        let Self { dims, blocks, ref positions, .. } = *self;
        let tile = (TILE_ROWS / dims.heads).max(1);
        let wave = (MAX_SCORES / blocks / dims.heads / tile).max(1) * tile;
        let ids_of_query = dims.selections() * dims.topk.min(blocks);
        let scores_of_query = dims.selections() * blocks;

        let mut ids = ids.chunks_mut(wave * ids_of_query);
        let mut scores = scores.map(|scores| scores.chunks_mut(wave * scores_of_query));
        for start in positions.clone().step_by(wave) {
            let positions = start..positions.end.min(start + wave);
            // Later blocks are visible to no query of the wave.
            let blocks = dims.visible_blocks(positions.end - 1);
            let mut of_heads = scratch(positions.len() * dims.heads * blocks)?;
            self.score(positions.clone(), tile, blocks, &mut of_heads)?;

            let mut ids = ids.next().unwrap_or_default().chunks_mut(tile * ids_of_query);
            let mut scores =
                scores.as_mut().map(|scores| scores.next().unwrap_or_default().chunks_mut(tile * scores_of_query));
            let mut outputs = Vec::new();
            for (start, of_heads) in positions.clone().step_by(tile).zip(of_heads.chunks(tile * dims.heads * blocks)) {
                outputs.push(Outputs {
                    positions: start..positions.end.min(start + tile),
                    of_heads,
                    ids: ids.next().unwrap_or_default(),
                    scores: scores.as_mut().and_then(Iterator::next),
                });
            }
            self.pool.for_each_mut(&mut outputs, |_, outputs| self.select(outputs));
        }
        Ok(())
    }

    /// Scores of every head, `[queries, heads, blocks]`, for the queries of a wave. A task is a tile of queries and a range
    /// of blocks.
    fn score(
        &self,
        positions: Range<usize>,
        tile: usize,
        blocks: usize,
        of_heads: &mut [f32],
    ) -> Result<(), ShapeError> {
        let dims = self.dims;
        let mut columns = Vec::new();
        let mut tasks = Vec::new();
        for (start, of_heads) in positions.clone().step_by(tile).zip(of_heads.chunks_mut(tile * dims.heads * blocks)) {
            let positions = start..positions.end.min(start + tile);
            let visible = dims.visible_blocks(positions.end - 1);
            for first in (0..visible).step_by(TASK_BLOCKS) {
                tasks.push((columns.len(), positions.clone(), first..visible.min(first + TASK_BLOCKS)));
            }
            columns.push(ColumnPanels::new(of_heads, blocks, TASK_BLOCKS));
        }
        self.pool.try_run(tasks.len(), |task| {
            let (tile, positions, blocks) = tasks[task].clone();
            let mut columns = columns[tile].claim(blocks.start / TASK_BLOCKS);
            let first = (positions.start - self.positions.start) * dims.heads;
            let rows = first..first + positions.len() * dims.heads;
            let mut keys = Vec::with_capacity(blocks.len());
            let mut visible = Vec::with_capacity(blocks.len() * rows.len());
            for block in blocks.clone() {
                keys.push(self.keys.get(block)?);
                for position in positions.clone() {
                    let of_block = (position + 1).saturating_sub(block * dims.block).min(dims.block);
                    visible.extend(std::iter::repeat_n(of_block, dims.heads));
                }
            }
            let mut scores = vec![0.0; visible.len()];
            max_scores(&self.acts, rows.clone(), &keys, &visible, &mut scores)?;
            for row in 0..rows.len() {
                for (block, score) in columns.row(row)[..blocks.len()].iter_mut().enumerate() {
                    *score = scores[block * rows.len() + row];
                }
            }
            Ok(())
        })
    }

    /// Ids, and scores if wanted, from the scores of the heads.
    fn select(&self, outputs: &mut Outputs<'_>) {
        let Self { dims, blocks, .. } = *self;
        let queries = outputs.positions.len();
        let of_query = outputs.of_heads.len() / queries;
        let (ids, row) = (dims.topk.min(blocks), of_query / dims.heads);
        let mut selector = Selector::new(dims);
        let mut largest = Vec::new();
        for (query, position) in outputs.positions.clone().enumerate() {
            let visible = dims.visible_blocks(position);
            let of_heads = &outputs.of_heads[query * of_query..][..of_query];
            let of_selections = match dims.reduce {
                HeadReduce::PerKvHead => of_heads,
                HeadReduce::Shared => {
                    largest.clear();
                    largest.extend_from_slice(&of_heads[..row]);
                    for of_head in of_heads.chunks_exact(row) {
                        for (largest, score) in largest.iter_mut().zip(of_head) {
                            // A NaN stays, and one that comes is taken.
                            if !(*largest >= *score || largest.is_nan()) {
                                *largest = *score;
                            }
                        }
                    }
                    &largest
                }
            };
            for (selection, scores) in of_selections.chunks_exact(row).enumerate() {
                let at = query * dims.selections() + selection;
                selector.select(&scores[..visible], &mut outputs.ids[at * ids..][..ids]);
                if let Some(out) = &mut outputs.scores {
                    let (seen, unseen) = out[at * blocks..][..blocks].split_at_mut(row);
                    seen.copy_from_slice(scores);
                    unseen.fill(f32::NEG_INFINITY);
                }
            }
        }
    }
}
