// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::Error;
use crate::select::Selector;
use crate::shape::{Blocks, HeadReduce, IndexerDims, Keys, Values, check_len, check_positions};
use cpu_tiles::mem::Scratch;
use cpu_tiles::threads::ColumnPanels;
use cpu_tiles::{Acts, Format, Level, Pool, Precision, ShapeError, max_scores};
use std::fmt;
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
    decode_in(&mut Workspace::new(), level, pool, dims, query, keys, length, ids, scores)
}

/// [`decode`] in memory that is kept from call to call: see [`Workspace`].
///
/// # Errors
/// See [`Error`]; the arguments are checked before the first value is computed.
#[expect(clippy::too_many_arguments, reason = "each is an argument of the operator")]
pub fn decode_in(
    workspace: &mut Workspace,
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
    run(workspace, level, pool, dims, query, position..length, keys, length, ids, scores)
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
    let workspace = &mut Workspace::new();
    run(workspace, level, pool, dims, queries, start..start + count, keys, length, ids, scores)
}

/// The memory of [`decode_in`], for any number of calls of any sizes, one after the other.
///
/// It grows to the largest call. A call that is no larger than an earlier one, or than what was
/// [reserved](Self::reserve), allocates nothing for up to 16 index heads and a top-k of up to 64, given that the threads of
/// the pool have their scratch ([`cpu_tiles::reserve_max_scores_scratch`] for the values of a head) and the keys are packed.
#[derive(Default)]
pub struct Workspace {
    queries: Option<Acts>,
    /// Scores of every head, `[queries, heads, blocks]`.
    of_heads: Vec<f32>,
    /// Rows of `of_heads` of each tile of queries.
    tiles: Vec<Range<usize>>,
    tasks: Vec<Task>,
}

impl Workspace {
    /// Memory that is to be had.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes it large enough for a query of a sequence of up to `length` keys.
    ///
    /// # Errors
    /// [`Error`] when the dims are impossible, or memory runs out.
    pub fn reserve(&mut self, level: Level, dims: &IndexerDims, length: usize) -> Result<(), Error> {
        dims.check()?;
        let blocks = dims.blocks(length);
        // Values of F32 are the largest.
        Acts::resized(&mut self.queries, level, Precision::F32, dims.heads, dims.head_dim)?;
        unseen(&mut self.of_heads, dims.heads.saturating_mul(blocks))?;
        self.tiles.clear();
        self.tiles.reserve(1);
        self.tasks.clear();
        self.tasks.reserve(blocks.div_ceil(TASK_BLOCKS));
        Ok(())
    }
}

impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Workspace({} scores)", self.of_heads.capacity())
    }
}

/// A tile of queries and some blocks.
#[derive(Clone)]
struct Task {
    tile: usize,
    /// Of the queries.
    positions: Range<usize>,
    blocks: Range<usize>,
}

/// The remaining checks of a call, and the call. `positions` are those of the queries, below `length`.
#[expect(clippy::too_many_arguments, reason = "each is an argument of the operator")]
fn run(
    workspace: &mut Workspace,
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
    let Workspace { queries: slot, of_heads, tiles, tasks } = workspace;
    let acts = acts(slot, level, pool, dims, queries, scored.start - positions.start, keys.format)?;
    let scoring = Scoring { pool, dims, acts, positions: scored, keys, blocks: dims.blocks(length) };
    scoring.run(of_heads, tiles, tasks, ids, scores)
}

/// The queries from `first` on, one row for each head, as the tiles read them: BF16 where both are BF16 and the CPU
/// multiplies it faster. The scores are the same either way.
fn acts<'a>(
    slot: &'a mut Option<Acts>,
    level: Level,
    pool: &Pool,
    dims: &IndexerDims,
    queries: Values<'_>,
    first: usize,
    keys: Format,
) -> Result<&'a Acts, ShapeError> {
    let (dim, at) = (dims.head_dim, first * dims.heads * dims.head_dim);
    let rows = (queries.len() - at) / dim;
    match queries {
        Values::Bf16(q) => {
            let precision =
                if keys == Format::Bf16 && level.has_fast_bf16_dot() { Precision::Bf16 } else { Precision::F32 };
            let acts = Acts::resized(slot, level, precision, rows, dim)?;
            acts.write_bf16(pool, &q[at..])?;
            Ok(acts)
        }
        Values::F32(q) => {
            let acts = Acts::resized(slot, level, Precision::F32, rows, dim)?;
            acts.write_f32(pool, &q[at..])?;
            Ok(acts)
        }
    }
}

/// Makes `scores` some of which nothing is visible yet.
fn unseen(scores: &mut Vec<f32>, len: usize) -> Result<(), ShapeError> {
    scores.clear();
    scores.try_reserve_exact(len).map_err(|_| std::io::Error::from(std::io::ErrorKind::OutOfMemory))?;
    scores.resize(len, f32::NEG_INFINITY);
    Ok(())
}

/// Queries that need scores.
struct Scoring<'a> {
    pool: &'a Pool,
    dims: &'a IndexerDims,
    /// `[queries, heads]` rows.
    acts: &'a Acts,
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
    of_heads: &'a mut [f32],
    ids: &'a mut [i32],
    scores: Option<&'a mut [f32]>,
}

impl Scoring<'_> {
    fn run(
        &self,
        of_heads: &mut Vec<f32>,
        tiles: &mut Vec<Range<usize>>,
        tasks: &mut Vec<Task>,
        ids: &mut [i32],
        mut scores: Option<&mut [f32]>,
    ) -> Result<(), Error> {
        let Self { dims, blocks, ref positions, .. } = *self;
        let tile = (TILE_ROWS / dims.heads).max(1);
        let wave = (MAX_SCORES / blocks / dims.heads / tile).max(1) * tile;
        let ids_of_query = dims.selections() * dims.topk.min(blocks);
        let scores_of_query = dims.selections() * blocks;

        let mut ids = ids.chunks_mut(wave * ids_of_query);
        let mut scores = scores.as_mut().map(|scores| scores.chunks_mut(wave * scores_of_query));
        for start in positions.clone().step_by(wave) {
            let positions = start..positions.end.min(start + wave);
            // Later blocks are visible to no query of the wave.
            let blocks = dims.visible_blocks(positions.end - 1);
            unseen(of_heads, positions.len() * dims.heads * blocks)?;
            self.score(positions.clone(), tile, blocks, of_heads, tiles, tasks)?;

            let ids = ids.next().unwrap_or_default();
            let scores = scores.as_mut().and_then(Iterator::next);
            let width = ids.len();
            let ids = ColumnPanels::new(ids, width, tile * ids_of_query);
            let scores = scores.map(|scores| {
                let width = scores.len();
                ColumnPanels::new(scores, width, tile * scores_of_query)
            });
            self.pool.for_each_chunk_mut(of_heads, tile * dims.heads * blocks, |index, of_heads| {
                let start = positions.start + index * tile;
                let (mut ids, mut scores) = (ids.claim(index), scores.as_ref().map(|scores| scores.claim(index)));
                self.select(Outputs {
                    positions: start..positions.end.min(start + tile),
                    of_heads,
                    ids: ids.row(0),
                    scores: scores.as_mut().map(|scores| scores.row(0)),
                });
            });
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
        tiles: &mut Vec<Range<usize>>,
        tasks: &mut Vec<Task>,
    ) -> Result<(), ShapeError> {
        let dims = self.dims;
        tiles.clear();
        tasks.clear();
        for start in positions.clone().step_by(tile) {
            let of_tile = start..positions.end.min(start + tile);
            let visible = dims.visible_blocks(of_tile.end - 1);
            for first in (0..visible).step_by(TASK_BLOCKS) {
                let blocks = first..visible.min(first + TASK_BLOCKS);
                tasks.push(Task { tile: tiles.len(), positions: of_tile.clone(), blocks });
            }
            let first = (start - positions.start) * dims.heads;
            tiles.push(first..first + of_tile.len() * dims.heads);
        }
        let columns = ColumnPanels::in_groups(of_heads, blocks, TASK_BLOCKS, tiles);
        let across = blocks.div_ceil(TASK_BLOCKS);
        self.pool.try_run(tasks.len(), |task| {
            let Task { tile, positions, blocks } = tasks[task].clone();
            let mut columns = columns.claim(tile * across + blocks.start / TASK_BLOCKS);
            let first = (positions.start - self.positions.start) * dims.heads;
            let rows = first..first + positions.len() * dims.heads;
            // Each is asked for once.
            let mut keys = [self.keys.get(blocks.start)?; TASK_BLOCKS];
            for (block, key) in blocks.clone().zip(&mut keys).skip(1) {
                *key = self.keys.get(block)?;
            }
            let mut visible = Scratch::<usize, 256>::new(blocks.len() * rows.len(), 0);
            for (block, visible) in blocks.clone().zip(visible.chunks_exact_mut(rows.len())) {
                for (position, visible) in positions.clone().zip(visible.chunks_exact_mut(dims.heads)) {
                    visible.fill((position + 1).saturating_sub(block * dims.block).min(dims.block));
                }
            }
            let mut scores = Scratch::<f32, 256>::new(visible.len(), 0.0);
            max_scores(self.acts, rows.clone(), &keys[..blocks.len()], &visible, &mut scores)?;
            for row in 0..rows.len() {
                for (block, score) in columns.row(row)[..blocks.len()].iter_mut().enumerate() {
                    *score = scores[block * rows.len() + row];
                }
            }
            Ok(())
        })
    }

    /// Ids, and scores if wanted, from the scores of the heads.
    fn select(&self, outputs: Outputs<'_>) {
        let Self { dims, blocks, .. } = *self;
        let Outputs { positions, of_heads, ids, mut scores } = outputs;
        let of_query = of_heads.len() / positions.len();
        let (width, row) = (dims.topk.min(blocks), of_query / dims.heads);
        let selector = Selector::new(dims);
        for (query, (position, of_heads)) in positions.zip(of_heads.chunks_exact_mut(of_query)).enumerate() {
            let visible = dims.visible_blocks(position);
            let of_selections = match dims.reduce {
                HeadReduce::PerKvHead => of_heads,
                HeadReduce::Shared => {
                    // The largest, in place of the scores of the first head.
                    let (largest, others) = of_heads.split_at_mut(row);
                    for of_head in others.chunks_exact(row) {
                        for (largest, score) in largest.iter_mut().zip(of_head) {
                            // A NaN stays, and one that comes is taken.
                            if !(*largest >= *score || largest.is_nan()) {
                                *largest = *score;
                            }
                        }
                    }
                    largest
                }
            };
            for (selection, of_selection) in of_selections.chunks_exact(row).enumerate() {
                let at = query * dims.selections() + selection;
                selector.select(&of_selection[..visible], &mut ids[at * width..][..width]);
                if let Some(out) = &mut scores {
                    let (seen, unseen) = out[at * blocks..][..blocks].split_at_mut(row);
                    seen.copy_from_slice(of_selection);
                    unseen.fill(f32::NEG_INFINITY);
                }
            }
        }
    }
}
