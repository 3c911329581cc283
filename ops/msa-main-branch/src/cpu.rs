// SPDX-License-Identifier: MIT OR Apache-2.0

//! The fast path on [`cpu_tiles::attention`].
//!
//! A task is a tile of consecutive queries and one KV head; its rows are the queries times the heads that share the KV
//! head. It walks the blocks that any of its queries lists in ascending order, each with the rows that list it and see a
//! key of it: where lists differ from query to query, that gathers the rows, never the keys. A row's result does not
//! depend on its company, so neither the tiles nor the threads show in the result.

use crate::error::Error;
use crate::shape::{
    AttentionDims, Blocks, Context, Data, KeysValues, Lists, MASK_NEG, Order, Query, RowDefined, Source, check_len,
    check_slots, count_queries,
};
use cpu_tiles::attention::{Ahead, FlashRows, PackedBlock, Rows};
use cpu_tiles::threads::ColumnPanels;
use cpu_tiles::{Acts, Level, Pool, Precision, ShapeError, Weight};
use half::f16;
use half::slice::HalfFloatSliceExt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Weighted values of a tile's rows: with scores, probabilities and a block, all that a tile works on stays in the
/// second-level cache.
const STATE_BYTES: usize = 192 << 10;
/// Rows of the tiles' micro-kernel.
const ROW_GROUP: usize = 6;
/// Tiles that each thread gets at least, where there are so many queries: the longest is some times the average.
const TILES_PER_THREAD: usize = 4;

/// How the work is cut, without effect on the result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tiling {
    /// The most queries of a tile.
    pub(crate) queries: usize,
    /// Up to this much the blocks of a call are packed once, for all its tiles; beyond, each tile packs those it visits.
    pub(crate) packed_bytes: usize,
}

impl Default for Tiling {
    fn default() -> Self {
        Self { queries: usize::MAX, packed_bytes: 256 << 20 }
    }
}

/// Causal attention of a chunk of queries to the keys of the blocks that they list.
///
/// ```text
/// out[i][h] = sum of p[j] * v[j] / sum of p[j],    p[j] = e^(q[i][h] . k[j] / sqrt(head_dim))
/// ```
///
/// over the keys `j` of the listed blocks at positions up to `start + i`, in KV head `h / (heads / kv_heads)`.
///
/// | argument | shape | |
/// | --- | --- | --- |
/// | `query` | `[n, heads, head_dim]` | at the positions `start .. start + n` |
/// | `keys_values` | [`KeysValues`] | of at least `start + n` tokens |
/// | `blocks` | [`Blocks`] | |
/// | `out` | `[n, heads, head_dim]` | overwritten |
///
/// Returns which rows saw a key; the others are zero.
///
/// # Errors
/// See [`Error`]; the arguments are checked before the first value is computed.
pub fn msa_main_branch(
    level: Level,
    pool: &Pool,
    dims: &AttentionDims,
    query: Query<'_>,
    keys_values: KeysValues<'_>,
    blocks: Blocks<'_>,
    out: &mut [f32],
) -> Result<RowDefined, Error> {
    by_position(level, pool, dims, Tiling::default(), query, keys_values, blocks, out)
}

/// [`msa_main_branch`] with a tiling of the caller's.
#[expect(clippy::too_many_arguments, reason = "each is an argument of the operator")]
pub(crate) fn by_position(
    level: Level,
    pool: &Pool,
    dims: &AttentionDims,
    tiling: Tiling,
    query: Query<'_>,
    keys_values: KeysValues<'_>,
    blocks: Blocks<'_>,
    out: &mut [f32],
) -> Result<RowDefined, Error> {
    dims.check()?;
    let n = count_queries(dims, query.data)?;
    check_len("out", &[n, dims.heads, dims.head_dim], out.len())?;
    let context = Context::new(dims, query.start, n, keys_values)?;
    let lists = Lists::new(n, &context, blocks)?;

    let job = Job { level, pool, dims, precision: context.precision(query.data), query: query.data, n, tiling };
    let packed = pack(&job, &context, lists.visible(n, query.start, dims))?;
    job.run(out, |tile| {
        tile.walk(&lists, query.start, dims.block, |tile, block, queries, next| {
            let keys = context.keys_of(block);
            let first = block * dims.block;
            tile.choose(queries.iter().map(|&(_, query)| query as usize), |i| (query.start + i + 1 - first).min(keys));
            tile.block(&context, packed.as_ref(), block, keys, None, next)
        })
    })?;

    let sees = |row: usize| {
        let list = lists.list(row / dims.kv_heads, row % dims.kv_heads);
        list.first().is_some_and(|&block| block as usize * dims.block <= query.start + row / dims.kv_heads)
    };
    Ok(RowDefined::new(dims.kv_heads, (0..n * dims.kv_heads).map(sees).collect()))
}

/// The published form with its mask: attention of all queries to the gathered keys, causal only as far as the mask says.
///
/// | argument | shape | |
/// | --- | --- | --- |
/// | `query` | `[n, heads, head_dim]` | |
/// | `key_blocks`, `value_blocks` | `[topk, block, kv_heads, head_dim]` | one format; any number of slots |
/// | `mask` | `[ceil(n / block), topk, block, block]` | query block, slot, query row, key column |
/// | `out` | `[n, heads, head_dim]` | overwritten |
///
/// `mask` is added to the scaled scores. Where it is [`MASK_NEG`] or less, the row does not see the key, whatever the key
/// and its value hold; so a row that is masked throughout is zero and reported, where the published kernel gives a mean of
/// the values. Rows of the mask beyond `n` are not read.
///
/// # Errors
/// See [`Error`]; the arguments are checked before the first value is computed.
#[expect(clippy::too_many_arguments, reason = "each is an argument of the operator")]
pub fn msa_main_branch_masked(
    level: Level,
    pool: &Pool,
    dims: &AttentionDims,
    query: Data<'_>,
    key_blocks: Data<'_>,
    value_blocks: Data<'_>,
    mask: &[f32],
    out: &mut [f32],
) -> Result<RowDefined, Error> {
    by_mask(level, pool, dims, Tiling::default(), query, key_blocks, value_blocks, mask, out)
}

/// [`msa_main_branch_masked`] with a tiling of the caller's.
#[expect(clippy::too_many_arguments, reason = "each is an argument of the operator")]
pub(crate) fn by_mask(
    level: Level,
    pool: &Pool,
    dims: &AttentionDims,
    tiling: Tiling,
    query: Data<'_>,
    key_blocks: Data<'_>,
    value_blocks: Data<'_>,
    mask: &[f32],
    out: &mut [f32],
) -> Result<RowDefined, Error> {
    dims.check()?;
    let AttentionDims { block, kv_heads, .. } = *dims;
    let n = count_queries(dims, query)?;
    check_len("out", &[n, dims.heads, dims.head_dim], out.len())?;
    // Every slot stands for itself; what is seen of it is the mask's business.
    let ids: Vec<i32> = (0..).take(check_slots(dims, key_blocks, value_blocks)?).collect();
    let slots = ids.len();
    check_len("mask", &[n.div_ceil(block), slots, block, block], mask.len())?;
    let source = Source::RowMajor { keys: key_blocks, values: value_blocks, order: Order::Slots(&ids) };
    let context = Context { dims: *dims, source, tokens: slots * block, blocks: slots };

    let row_of = |query: usize, slot: usize| {
        let row = ((query / block * slots + slot) * block + query % block) * block;
        &mask[row..row + block]
    };
    let is_hidden = |mask: &f32| *mask <= MASK_NEG;
    /// What a query sees of a slot.
    struct Seen {
        /// All but its last keys, which are hidden.
        keys: usize,
        /// Whether nothing is added to the scores of these.
        is_plain: bool,
    }
    let mut seen = Vec::with_capacity(n * slots);
    for query in 0..n {
        for slot in 0..slots {
            let row = row_of(query, slot);
            let keys = row.iter().rposition(|mask| !is_hidden(mask)).map_or(0, |last| last + 1);
            seen.push(Seen { keys, is_plain: row[..keys].iter().all(|mask| *mask == 0.0) });
        }
    }

    let job = Job { level, pool, dims, precision: context.precision(query), query, n, tiling };
    let all = (0..slots).flat_map(|slot| (0..kv_heads).map(move |kv_head| (slot, kv_head)));
    let packed = pack(&job, &context, all)?;
    job.run(out, |tile| {
        let queries = tile.queries.clone();
        let mut bias = Vec::new();
        for slot in 0..slots {
            let of = |query: usize| &seen[query * slots + slot];
            tile.choose(queries.clone().filter(|&query| of(query).is_plain), |query| of(query).keys);
            tile.block(&context, packed.as_ref(), slot, block, None, None)?;

            let biased = || queries.clone().filter(|&query| !of(query).is_plain);
            tile.choose(biased(), |query| of(query).keys);
            bias.clear();
            for query in biased() {
                let row =
                    row_of(query, slot).iter().map(|mask| if is_hidden(mask) { f32::NEG_INFINITY } else { *mask });
                for _ in 0..dims.group() {
                    bias.extend(row.clone());
                }
            }
            tile.block(&context, packed.as_ref(), slot, block, Some(&bias), None)?;
        }
        Ok(())
    })?;

    let defined = |row: usize| seen[row / kv_heads * slots..][..slots].iter().any(|seen| seen.keys > 0);
    Ok(RowDefined::new(kv_heads, (0..n * kv_heads).map(defined).collect()))
}

/// Queries of a tile: as many as the state is meant for, in whole row groups of the micro-kernel, and so few that every
/// thread gets some tiles.
fn tile_queries(job: &Job<'_>) -> usize {
    let group = job.dims.group();
    let fits = STATE_BYTES / job.dims.head_dim.saturating_mul(group).saturating_mul(size_of::<f32>());
    let tiles = (TILES_PER_THREAD * job.pool.threads()).div_ceil(job.dims.kv_heads);
    let queries = fits.min(job.n.div_ceil(tiles)).min(job.tiling.queries).max(1);
    let step = (1..ROW_GROUP).find(|queries| (queries * group).is_multiple_of(ROW_GROUP)).unwrap_or(ROW_GROUP);
    if queries < step { queries } else { queries / step * step }
}

/// What all tiles of a call share.
struct Job<'a> {
    level: Level,
    pool: &'a Pool,
    dims: &'a AttentionDims,
    precision: Precision,
    query: Data<'a>,
    n: usize,
    tiling: Tiling,
}

impl Job<'_> {
    /// Calls `attend` once for each tile, which feeds the tile with blocks, and writes the results.
    fn run(&self, out: &mut [f32], attend: impl Fn(&mut Tile<'_>) -> Result<(), Error> + Sync) -> Result<(), Error> {
        let AttentionDims { kv_heads, head_dim, .. } = *self.dims;
        let queries = tile_queries(self);
        let width = self.dims.width();
        let group_width = self.dims.group() * head_dim;
        let columns = |out| ColumnPanels::new(out, width, group_width);
        let columns: Vec<_> = out.chunks_mut(queries * width).map(columns).collect();
        // The memory of tiles that are done, for those that come.
        let idle: Mutex<Vec<Scratch>> = Mutex::default();
        let idle = || idle.lock().unwrap_or_else(PoisonError::into_inner);
        self.pool.try_run(columns.len() * kv_heads, |task| {
            // Late queries see most: they go first, so that no long task is left for the end.
            let (number, kv_head) = (columns.len() - 1 - task / kv_heads, task % kv_heads);
            let first = number * queries;
            let waiting = idle().pop();
            let scratch = match waiting {
                Some(scratch) => scratch,
                None => Scratch::new(self, queries)?,
            };
            let queries = first..self.n.min(first + queries);
            let mut tile = Tile { job: self, q: self.load(queries.clone(), kv_head)?, queries, kv_head, scratch };
            tile.scratch.flash.reset(tile.queries.len() * self.dims.group())?;
            attend(&mut tile)?;
            let mut columns = columns[number].claim(kv_head);
            for query in 0..tile.queries.len() {
                for (member, out) in columns.row(query).chunks_exact_mut(head_dim).enumerate() {
                    tile.scratch.flash.finish(query * self.dims.group() + member, out);
                }
            }
            idle().push(tile.scratch);
            Ok(())
        })
    }

    /// The queries of a tile for one KV head, `[queries * group, head_dim]`.
    fn load(&self, queries: Range<usize>, kv_head: usize) -> Result<Acts, ShapeError> {
        fn gather<T: Copy>(values: &[T], starts: impl ExactSizeIterator<Item = usize>, width: usize) -> Vec<T> {
            let mut gathered = Vec::with_capacity(starts.len() * width);
            for start in starts {
                gathered.extend_from_slice(&values[start..start + width]);
            }
            gathered
        }
        let &Self { level, pool, precision, .. } = self;
        let (group, head_dim) = (self.dims.group(), self.dims.head_dim);
        let (m, width) = (queries.len() * group, group * head_dim);
        let starts = queries.map(|query| query * self.dims.width() + kv_head * width);
        match self.query {
            Data::F32(values) => Acts::from_f32(level, pool, precision, m, head_dim, &gather(values, starts, width)),
            Data::Bf16(values) => Acts::from_bf16(level, pool, precision, m, head_dim, &gather(values, starts, width)),
            Data::F16(values) => {
                let values = gather(values, starts, width).to_f32_vec();
                Acts::from_f32(level, pool, precision, m, head_dim, &values)
            }
        }
    }
}

/// Memory that one tile needs and the next can use again.
struct Scratch {
    flash: FlashRows,
    /// For the blocks of a call that are too many to be packed beforehand.
    block: Option<Packing>,
    rows: Vec<u32>,
    visible: Vec<u32>,
    /// Blocks and the queries that list them.
    listed: Vec<(u32, u32)>,
}

impl Scratch {
    fn new(job: &Job<'_>, queries: usize) -> Result<Self, ShapeError> {
        let AttentionDims { head_dim, block, .. } = *job.dims;
        let rows = queries * job.dims.group();
        Ok(Self {
            flash: FlashRows::new(job.level, job.precision, head_dim, rows, block)?,
            block: None,
            rows: Vec::new(),
            visible: Vec::new(),
            listed: Vec::new(),
        })
    }
}

/// Some consecutive queries in the heads of one KV head.
struct Tile<'a> {
    job: &'a Job<'a>,
    queries: Range<usize>,
    kv_head: usize,
    /// `[queries * group, head_dim]`.
    q: Acts,
    scratch: Scratch,
}

impl Tile<'_> {
    /// Calls `each` for every block that any of the queries lists and sees, in ascending order, with pairs of the block
    /// and a query, and the block that is likely to be next.
    fn walk(
        &mut self,
        lists: &Lists,
        start: usize,
        block: usize,
        mut each: impl FnMut(&mut Self, usize, &[(u32, u32)], Option<usize>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Range { start: first, end } = self.queries;
        let mut listed = std::mem::take(&mut self.scratch.listed);
        if lists.is_shared(first, end - 1) {
            let ids = lists.list(first, self.kv_head);
            let mut ids = ids.iter().map(|&id| id as usize).take_while(|id| id * block < start + end).peekable();
            while let Some(id) = ids.next() {
                let from = (id * block).saturating_sub(start).max(first);
                listed.clear();
                listed.extend((from..end).map(|query| (id as u32, query as u32)));
                each(self, id, &listed, ids.peek().copied())?;
            }
        } else {
            listed.clear();
            for query in first..end {
                let seen = |id: &&u32| **id as usize * block <= start + query;
                listed.extend(lists.list(query, self.kv_head).iter().take_while(seen).map(|&id| (id, query as u32)));
            }
            listed.sort_unstable();
            let mut blocks = listed.chunk_by(|a, b| a.0 == b.0).peekable();
            while let Some(listed) = blocks.next() {
                let next = blocks.peek().map(|listed| listed[0].0 as usize);
                each(self, listed[0].0 as usize, listed, next)?;
            }
        }
        self.scratch.listed = listed;
        Ok(())
    }

    /// Lists the rows of some queries, of which each sees so many of a block's first keys.
    fn choose(&mut self, queries: impl Iterator<Item = usize>, visible: impl Fn(usize) -> usize) {
        let group = self.job.dims.group();
        self.scratch.rows.clear();
        self.scratch.visible.clear();
        for query in queries {
            let first = (query - self.queries.start) * group;
            self.scratch.rows.extend(first as u32..(first + group) as u32);
            self.scratch.visible.extend(std::iter::repeat_n(visible(query) as u32, group));
        }
    }

    /// Takes the first `keys` keys of a block into the chosen rows; meanwhile `next` is asked for.
    fn block(
        &mut self,
        context: &Context<'_>,
        packed: Option<&PackedBlocksOfCall>,
        block: usize,
        keys: usize,
        bias: Option<&[f32]>,
        next: Option<usize>,
    ) -> Result<(), Error> {
        let kv_head = self.kv_head;
        let stored = |block: usize, keys: usize| -> Result<Option<[Weight<'_>; 2]>, ShapeError> {
            match (context.source, packed) {
                (Source::Packed { pages, table }, _) => {
                    let page = table.map_or(block, |table| table[block] as usize);
                    Ok(Some([pages.keys(kv_head, page)?.into(), pages.values(kv_head, page, keys)?.into()]))
                }
                (Source::RowMajor { .. }, Some(packed)) => Ok(Some(packed.get(block, kv_head))),
                (Source::RowMajor { .. }, None) => Ok(None),
            }
        };
        let Scratch { flash, block: own, rows, visible, .. } = &mut self.scratch;
        let rows = Rows { rows, q_rows: rows, visible, bias };
        let scale = self.job.dims.scale();
        if let Some([keys, values]) = stored(block, keys)? {
            let next = next.map(|next| stored(next, context.keys_of(next))).transpose()?.flatten();
            let with_values = next.as_ref().map_or(&[][..], |[keys, _]| bytes(keys));
            let ahead = Ahead { with_scores: bytes(&values), with_values };
            flash.block_ahead(&self.q, rows, scale, keys, values, ahead)?;
        } else {
            let own = match own {
                Some(own) => own,
                None => own.insert(Packing::new(context)?),
            };
            own.pack(self.job.level, context, block, kv_head)?;
            flash.block(&self.q, rows, scale, own.block.keys(), own.block.values())?;
        }
        Ok(())
    }
}

/// The memory of a packed weight.
fn bytes<'a>(weight: &Weight<'a>) -> &'a [u8] {
    match weight {
        Weight::Packed(packed) => packed.bytes(),
        Weight::RowMajor(_) => &[],
    }
}

/// A block that is packed from row-major memory.
struct Packing {
    block: PackedBlock,
    /// F16 keys and values, widened.
    wide: [Vec<f32>; 2],
}

impl Packing {
    fn new(context: &Context<'_>) -> Result<Self, ShapeError> {
        let block = PackedBlock::new(context.packed_format(), context.dims.head_dim, context.dims.block)?;
        Ok(Self { block, wide: [Vec::new(), Vec::new()] })
    }

    fn pack(&mut self, level: Level, context: &Context<'_>, block: usize, kv_head: usize) -> Result<(), ShapeError> {
        let Source::RowMajor { keys, values, order } = context.source else { return Ok(()) };
        let AttentionDims { kv_heads, head_dim, block: tokens, .. } = context.dims;
        let (first, stride) = match order {
            Order::Tokens => ((block * tokens * kv_heads + kv_head) * head_dim, kv_heads * head_dim),
            Order::Pages(table) => ((table[block] as usize * kv_heads + kv_head) * tokens * head_dim, head_dim),
            Order::Slots(ids) => {
                let slot = ids.iter().position(|&id| id as usize == block).expect("only gathered blocks are listed");
                ((slot * tokens * kv_heads + kv_head) * head_dim, kv_heads * head_dim)
            }
        };
        let count = context.keys_of(block);
        let range = first..first + count.saturating_sub(1) * stride + if count > 0 { head_dim } else { 0 };
        match (keys.slice(range.clone()), values.slice(range)) {
            (Data::F32(k), Data::F32(v)) => self.block.pack_f32(level, count, k, v, stride),
            (Data::Bf16(k), Data::Bf16(v)) => self.block.pack_bf16(level, count, k, v, stride),
            (Data::F16(k), Data::F16(v)) => {
                let [wide_k, wide_v] = &mut self.wide;
                widen(k, head_dim, stride, wide_k);
                widen(v, head_dim, stride, wide_v);
                self.block.pack_f32(level, count, wide_k, wide_v, head_dim)
            }
            _ => unreachable!("keys and values have one format"),
        }
    }
}

/// Rows of `width` values, `stride` apart, side by side in F32.
fn widen(values: &[f16], width: usize, stride: usize, wide: &mut Vec<f32>) {
    wide.resize(values.len().div_ceil(stride) * width, 0.0);
    for (wide, values) in wide.chunks_exact_mut(width).zip(values.chunks(stride)) {
        values[..width].convert_to_f32_slice(wide);
    }
}

/// The blocks that the tiles of a call visit, packed.
struct PackedBlocksOfCall {
    kv_heads: usize,
    /// `[blocks, kv_heads]`, the place of each in `packed`.
    places: Vec<u32>,
    packed: Vec<Packing>,
}

impl PackedBlocksOfCall {
    fn get(&self, block: usize, kv_head: usize) -> [Weight<'_>; 2] {
        let block = &self.packed[self.places[block * self.kv_heads + kv_head] as usize].block;
        [block.keys(), block.values()]
    }
}

/// Packs some blocks, each once however often it is named; `None` where there is nothing to pack, or too much.
fn pack(
    job: &Job<'_>,
    context: &Context<'_>,
    blocks: impl Iterator<Item = (usize, usize)>,
) -> Result<Option<PackedBlocksOfCall>, ShapeError> {
    const NOWHERE: u32 = u32::MAX;
    let AttentionDims { kv_heads, head_dim, block, .. } = *job.dims;
    if matches!(context.source, Source::Packed { .. }) {
        return Ok(None);
    }
    let mut places = vec![NOWHERE; context.blocks * kv_heads];
    let mut wanted = Vec::new();
    for (block, kv_head) in blocks {
        let place = &mut places[block * kv_heads + kv_head];
        if *place == NOWHERE {
            *place = wanted.len() as u32;
            wanted.push((block, kv_head));
        }
    }
    let bytes = head_dim.saturating_mul(block).saturating_mul(2 * context.packed_format().value_bytes());
    if wanted.len().saturating_mul(bytes) > job.tiling.packed_bytes {
        return Ok(None);
    }
    let mut packed = Vec::with_capacity(wanted.len());
    for _ in &wanted {
        packed.push((Packing::new(context)?, Ok(())));
    }
    job.pool.for_each_mut(&mut packed, |place, (packing, result)| {
        let (block, kv_head) = wanted[place];
        *result = packing.pack(job.level, context, block, kv_head);
    });
    let packed = packed.into_iter().map(|(packing, result)| result.map(|()| packing)).collect::<Result<_, _>>()?;
    Ok(Some(PackedBlocksOfCall { kv_heads, places, packed }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use op_testkit::compare::assert_same_bits;
    use op_testkit::{fill_bf16, fill_f32};

    const DIMS: AttentionDims = AttentionDims { heads: 8, kv_heads: 2, head_dim: 32, block: 16 };
    const N: usize = 75;
    const START: usize = 30;

    /// However the work is cut, the bits are the same.
    #[test]
    fn tilings() {
        let tokens = START + N;
        let query = fill_f32(1, N * 256, 3.0);
        let query = Query { data: Data::F32(&query), start: START };
        let [k, v] = [2, 3].map(|seed| fill_f32(seed, tokens * 64, 1.5));
        let [k16, v16] = [&k, &v].map(|values| values.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>());
        let [k_bf16, v_bf16] = [2, 3].map(|seed| fill_bf16(seed, tokens * 64, 1.5));
        let ids: Vec<i32> = (0..N * 2).flat_map(|i| [(i % 3) as i32, 6 - (i / 5 % 4) as i32]).collect();
        let mask = fill_f32(4, N.div_ceil(16) * 3 * 256, 4.0);
        let pool = Pool::new(2).unwrap();
        let default = Tiling::default();
        for level in Level::available() {
            let run = |tiling: Tiling| {
                let mut results = Vec::new();
                for keys_values in [
                    KeysValues::Plain { keys: Data::F32(&k), values: Data::F32(&v) },
                    KeysValues::Plain { keys: Data::F16(&k16), values: Data::F16(&v16) },
                    KeysValues::Plain { keys: Data::Bf16(&k_bf16), values: Data::Bf16(&v_bf16) },
                ] {
                    for blocks in [Blocks::All, Blocks::PerQuery(&ids)] {
                        let mut out = vec![f32::NAN; N * 256];
                        by_position(level, &pool, &DIMS, tiling, query, keys_values, blocks, &mut out).unwrap();
                        results.extend(out);
                    }
                }
                let (k, v) = (Data::F32(&k[..48 * 64]), Data::F32(&v[..48 * 64]));
                let mut out = vec![f32::NAN; N * 256];
                by_mask(level, &pool, &DIMS, tiling, query.data, k, v, &mask, &mut out).unwrap();
                results.extend(out);
                results
            };
            let expected = run(default);
            for queries in [1, 2, 5, 6, 40, N, 1000] {
                let what = format!("tiles of {queries} queries at {level}");
                assert_same_bits(&what, &run(Tiling { queries, ..default }), &expected, &[expected.len()]);
            }
            let actual = run(Tiling { packed_bytes: 0, ..default });
            assert_same_bits("packed by each tile", &actual, &expected, &[expected.len()]);
        }
    }

    /// Whole row groups of the micro-kernel where there are enough rows, and tiles for every thread.
    #[test]
    fn queries_of_a_tile() {
        let queries = |dims: &AttentionDims, n: usize, threads: usize, queries: usize| {
            let tiling = Tiling { queries, ..Tiling::default() };
            let (level, pool) = (Level::SCALAR, &Pool::new(threads).unwrap());
            tile_queries(&Job { level, pool, dims, precision: Precision::F32, query: Data::F32(&[]), n, tiling })
        };
        let any = usize::MAX;
        let rows = queries(&AttentionDims::M3, 4096, 2, any) * 16;
        assert!(rows.is_multiple_of(ROW_GROUP) && rows * 128 * 4 <= STATE_BYTES && rows * 128 * 8 > STATE_BYTES);
        assert_eq!(queries(&AttentionDims::M3, 4096, 2, 7), 6);
        assert_eq!(queries(&AttentionDims::M3, 4096, 2, 2), 2);
        assert_eq!(queries(&AttentionDims::M3, 1, 2, any), 1);
        // Four tiles for each of eight threads, of four KV heads.
        assert_eq!(queries(&AttentionDims::M3, 96, 8, any), 12);
        // The state of one query may be too large, and is taken nevertheless.
        let huge = AttentionDims { heads: 1 << 20, kv_heads: 1, ..AttentionDims::M3 };
        assert_eq!(queries(&huge, 100, 1, any), 1);
        let single = AttentionDims { heads: 1, kv_heads: 1, head_dim: 1, block: 1 };
        assert_eq!(queries(&single, 100, 1, any), 24);
    }
}
