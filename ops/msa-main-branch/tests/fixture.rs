// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sequences in every number format and layout from one seed, and the calls under test in short form.

use cpu_tiles::attention::PackedPages;
use cpu_tiles::{Format, Isa, Level, Pool, Precision};
use half::{bf16, f16};
use msa_main_branch::{
    AttentionDims, Blocks, Data, Error, KeysValues, Query, RowDefined, msa_main_branch, msa_main_branch_masked,
    reference,
};
use ndarray::{Array3, ArrayView4};
use op_testkit::compare::{Tolerance, assert_same_bits};
use op_testkit::guard::Guarded;
use op_testkit::{fill_bf16, fill_f32};

/// F32 arithmetic, exact inputs.
pub(crate) const F32_TOLERANCE: Tolerance = Tolerance { abs: 0.0, rel: 0.0, rel_to_max: 5e-6 };
/// Probabilities that round to the other of two BF16 neighbours, against the reference, which rounds the same numbers
/// times a power of e.
pub(crate) const BF16_TOLERANCE: Tolerance = Tolerance { abs: 0.0, rel: 0.0, rel_to_max: 0.004 };

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    F32,
    F16,
    Bf16,
}

pub(crate) const KINDS: [Kind; 3] = [Kind::F32, Kind::F16, Kind::Bf16];

impl Kind {
    pub(crate) fn precision(self) -> Precision {
        if self == Self::Bf16 { Precision::Bf16 } else { Precision::F32 }
    }

    pub(crate) fn tolerance(self) -> Tolerance {
        if self == Self::Bf16 { BF16_TOLERANCE } else { F32_TOLERANCE }
    }
}

/// Every level of this machine, and the software models of the AVX-512 ones.
pub(crate) fn levels() -> Vec<Level> {
    let mut levels = Level::available();
    levels.extend(Isa::ALL.into_iter().filter_map(Level::emulated));
    levels
}

pub(crate) fn pool(threads: usize) -> Pool {
    Pool::new(threads).unwrap()
}

pub(crate) const fn dims(heads: usize, kv_heads: usize, head_dim: usize, block: usize) -> AttentionDims {
    AttentionDims { heads, kv_heads, head_dim, block }
}

/// Values of a number format that owns them.
#[derive(Clone, Debug)]
pub(crate) enum Values {
    F32(Vec<f32>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
}

impl Values {
    pub(crate) fn new(kind: Kind, seed: u64, len: usize, scale: f32) -> Self {
        match kind {
            Kind::F32 => Self::F32(fill_f32(seed, len, scale)),
            Kind::F16 => Self::F16(fill_f32(seed, len, scale).into_iter().map(f16::from_f32).collect()),
            Kind::Bf16 => Self::Bf16(fill_bf16(seed, len, scale)),
        }
    }

    pub(crate) fn data(&self) -> Data<'_> {
        match self {
            Self::F32(values) => Data::F32(values),
            Self::F16(values) => Data::F16(values),
            Self::Bf16(values) => Data::Bf16(values),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.data().len()
    }

    pub(crate) fn wide(&self) -> Vec<f32> {
        (0..self.len()).map(|i| self.data().get(i)).collect()
    }

    pub(crate) fn set(&mut self, at: usize, value: f32) {
        match self {
            Self::F32(values) => values[at] = value,
            Self::F16(values) => values[at] = f16::from_f32(value),
            Self::Bf16(values) => values[at] = bf16::from_f32(value),
        }
    }

    /// Values `which` of these; NaN where it says `None`.
    pub(crate) fn gather(&self, which: impl Iterator<Item = Option<usize>>) -> Self {
        match self {
            Self::F32(values) => Self::F32(which.map(|i| i.map_or(f32::NAN, |i| values[i])).collect()),
            Self::F16(values) => Self::F16(which.map(|i| i.map_or(f16::NAN, |i| values[i])).collect()),
            Self::Bf16(values) => Self::Bf16(which.map(|i| i.map_or(bf16::NAN, |i| values[i])).collect()),
        }
    }
}

/// Numbers below `end`, in an order that the seed decides.
pub(crate) fn shuffled(end: usize, seed: u64) -> Vec<usize> {
    let keys = fill_f32(seed, end, 1.0);
    let mut order: Vec<usize> = (0..end).collect();
    order.sort_by(|&a, &b| keys[a].total_cmp(&keys[b]));
    order
}

/// A number below `end` that the seed decides.
pub(crate) fn below(end: usize, seed: u64) -> usize {
    ((fill_f32(seed, 1, 0.5)[0] + 0.5) * end as f32) as usize % end
}

/// Queries, and the keys and values of a whole sequence.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    pub(crate) dims: AttentionDims,
    pub(crate) kind: Kind,
    /// The position of the first query.
    pub(crate) start: usize,
    /// `[n, heads, head_dim]`.
    pub(crate) q: Values,
    /// `[tokens, kv_heads, head_dim]`.
    pub(crate) k: Values,
    /// `[tokens, kv_heads, head_dim]`.
    pub(crate) v: Values,
}

impl Sequence {
    /// `n` queries at the positions from `start` on, in a sequence that goes on for `more` tokens behind the last.
    pub(crate) fn new(dims: AttentionDims, kind: Kind, start: usize, n: usize, more: usize, seed: u64) -> Self {
        let kv = (start + n + more) * dims.kv_heads * dims.head_dim;
        Self {
            dims,
            kind,
            start,
            q: Values::new(kind, seed, n * dims.heads * dims.head_dim, 4.0),
            k: Values::new(kind, seed + 1, kv, 1.7),
            v: Values::new(kind, seed + 2, kv, 1.7),
        }
    }

    pub(crate) fn n(&self) -> usize {
        self.q.len() / (self.dims.heads * self.dims.head_dim)
    }

    pub(crate) fn tokens(&self) -> usize {
        self.k.len() / (self.dims.kv_heads * self.dims.head_dim)
    }

    pub(crate) fn blocks(&self) -> usize {
        self.tokens().div_ceil(self.dims.block)
    }

    /// Blocks that the queries can see.
    pub(crate) fn seen_blocks(&self) -> usize {
        (self.start + self.n()).div_ceil(self.dims.block)
    }

    pub(crate) fn shape(&self) -> [usize; 3] {
        [self.n(), self.dims.heads, self.dims.head_dim]
    }

    /// The place of a token in keys and values.
    pub(crate) fn at(&self, token: usize, kv_head: usize, channel: usize) -> usize {
        (token * self.dims.kv_heads + kv_head) * self.dims.head_dim + channel
    }

    pub(crate) fn query(&self) -> Query<'_> {
        Query { data: self.q.data(), start: self.start }
    }

    pub(crate) fn plain(&self) -> KeysValues<'_> {
        KeysValues::Plain { keys: self.k.data(), values: self.v.data() }
    }

    /// Some of the queries, with the whole sequence.
    pub(crate) fn part(&self, queries: std::ops::Range<usize>) -> Self {
        let width = self.dims.heads * self.dims.head_dim;
        let q = self.q.gather((queries.start * width..queries.end * width).map(Some));
        Self { start: self.start + queries.start, q, ..self.clone() }
    }

    /// Keys or values in pages that lie in the order of `table`, among other pages that hold NaN, as do the places behind the
    /// last token.
    fn pages(&self, values: &Values, table: &[i32], pages: usize) -> Values {
        let AttentionDims { kv_heads, head_dim, block, .. } = self.dims;
        let places = (0..pages * kv_heads * block * head_dim).map(|i| {
            let (page, kv_head) = (i / (kv_heads * block * head_dim), i / (block * head_dim) % kv_heads);
            let token = table.iter().position(|&entry| entry as usize == page)? * block + i / head_dim % block;
            (token < self.tokens()).then(|| self.at(token, kv_head, i % head_dim))
        });
        values.gather(places)
    }

    pub(crate) fn paged(&self) -> Paged {
        let pages = self.blocks() + 2;
        let table: Vec<i32> = shuffled(pages, 99).into_iter().map(|page| page as i32).take(self.blocks()).collect();
        let [keys, values] = [&self.k, &self.v].map(|values| self.pages(values, &table, pages));
        Paged { keys, values, table, tokens: self.tokens() }
    }

    /// In packed pages: behind each other, or in reverse order with one page to spare.
    pub(crate) fn packed(&self, level: Level, in_order: bool) -> Packed {
        let AttentionDims { kv_heads, head_dim, block, .. } = self.dims;
        let format = if self.kind == Kind::Bf16 { Format::Bf16 } else { Format::F32 };
        let count = self.blocks() + usize::from(!in_order);
        let mut table: Vec<i32> = (0..count as i32).rev().take(self.blocks()).collect();
        if in_order {
            table.reverse();
        }
        let mut pages = PackedPages::new(format, kv_heads, head_dim, block, count).unwrap();
        let [k, v] = [&self.k, &self.v].map(Values::wide);
        for (number, &page) in table.iter().enumerate() {
            let tokens = number * block..self.tokens().min((number + 1) * block);
            for kv_head in 0..kv_heads {
                let from = self.at(tokens.start, kv_head, 0);
                let (page, stride) = (page as usize, kv_heads * head_dim);
                pages.write_f32(level, page, kv_head, 0, tokens.len(), &k[from..], &v[from..], stride).unwrap();
            }
        }
        Packed { pages, table: (!in_order).then_some(table), tokens: self.tokens() }
    }

    /// The blocks `ids`, gathered slot by slot; places behind the last token, and slots of -1, hold NaN.
    pub(crate) fn gathered(&self, ids: &[i32]) -> Gathered {
        let AttentionDims { kv_heads, head_dim, block, .. } = self.dims;
        let slot = block * kv_heads * head_dim;
        let places = || {
            (0..ids.len() * slot).map(|i| {
                let token = usize::try_from(ids[i / slot]).ok()? * block + i % slot / (kv_heads * head_dim);
                (token < self.tokens()).then(|| self.at(token, i / head_dim % kv_heads, i % head_dim))
            })
        };
        Gathered { keys: self.k.gather(places()), values: self.v.gather(places()), ids: ids.to_vec() }
    }
}

/// [`KeysValues::Paged`] that owns its arrays.
pub(crate) struct Paged {
    pub(crate) keys: Values,
    pub(crate) values: Values,
    pub(crate) table: Vec<i32>,
    pub(crate) tokens: usize,
}

impl Paged {
    pub(crate) fn get(&self) -> KeysValues<'_> {
        let Self { keys, values, table, tokens } = self;
        KeysValues::Paged { keys: keys.data(), values: values.data(), block_table: table, tokens: *tokens }
    }
}

/// [`KeysValues::Packed`] that owns its pages.
pub(crate) struct Packed {
    pub(crate) pages: PackedPages,
    pub(crate) table: Option<Vec<i32>>,
    pub(crate) tokens: usize,
}

impl Packed {
    pub(crate) fn get(&self) -> KeysValues<'_> {
        KeysValues::Packed { pages: &self.pages, block_table: self.table.as_deref(), tokens: self.tokens }
    }
}

/// [`KeysValues::Gathered`] that owns its arrays.
#[derive(Clone)]
pub(crate) struct Gathered {
    pub(crate) keys: Values,
    pub(crate) values: Values,
    pub(crate) ids: Vec<i32>,
}

impl Gathered {
    pub(crate) fn get(&self) -> KeysValues<'_> {
        KeysValues::Gathered { keys: self.keys.data(), values: self.values.data(), ids: &self.ids }
    }
}

/// Block lists that own their ids.
#[derive(Clone, Debug)]
pub(crate) enum Lists {
    All,
    Shared(Vec<i32>),
    PerTile(usize, Vec<i32>),
    PerTileAndHead(usize, Vec<i32>),
    PerQuery(Vec<i32>),
}

impl Lists {
    pub(crate) fn get(&self) -> Blocks<'_> {
        match self {
            Self::All => Blocks::All,
            Self::Shared(ids) => Blocks::Shared(ids),
            Self::PerTile(tile, ids) => Blocks::PerTile { tile: *tile, ids },
            Self::PerTileAndHead(tile, ids) => Blocks::PerTileAndHead { tile: *tile, ids },
            Self::PerQuery(ids) => Blocks::PerQuery(ids),
        }
    }

    /// `lists` lists of up to `topk` of `blocks` blocks, in any order, padded.
    pub(crate) fn ids(lists: usize, topk: usize, blocks: usize, seed: u64) -> Vec<i32> {
        let list = |list: u64| {
            let count = below(topk.min(blocks) + 1, seed + 2 * list).max(usize::from(list.is_multiple_of(3)));
            let chosen = shuffled(blocks, seed + 2 * list + 1).into_iter().map(|id| id as i32).take(count);
            chosen.chain(std::iter::repeat(-1)).take(topk).collect::<Vec<_>>()
        };
        (0..lists as u64).flat_map(list).collect()
    }

    /// One of each form, with lists of up to `topk` blocks, some empty.
    pub(crate) fn forms(sequence: &Sequence, topk: usize, tile: usize, seed: u64) -> [Self; 5] {
        let (n, kv_heads, blocks) = (sequence.n(), sequence.dims.kv_heads, sequence.blocks());
        let tiles = n.div_ceil(tile);
        [
            Self::All,
            Self::Shared(Self::ids(1, topk, blocks, seed)),
            Self::PerTile(tile, Self::ids(tiles, topk, blocks, seed + 1000)),
            Self::PerTileAndHead(tile, Self::ids(tiles * kv_heads, topk, blocks, seed + 2000)),
            Self::PerQuery(Self::ids(n * kv_heads, topk, blocks, seed + 3000)),
        ]
    }
}

/// The operator into a guarded output.
pub(crate) fn run(
    level: Level,
    pool: &Pool,
    dims: &AttentionDims,
    query: Query<'_>,
    keys_values: KeysValues<'_>,
    blocks: Blocks<'_>,
) -> Result<(Vec<f32>, RowDefined), Error> {
    let width = dims.heads * dims.head_dim;
    let mut out = Guarded::<f32>::new(query.data.len() / width, width);
    let defined = msa_main_branch(level, pool, dims, query, keys_values, blocks, out.as_mut_slice())?;
    out.check().unwrap();
    assert_eq!(out.unwritten(), 0, "elements of the output were not written");
    Ok((out.to_vec(), defined))
}

/// The operator on a sequence in plain layout.
pub(crate) fn run_plain(level: Level, sequence: &Sequence, lists: &Lists) -> (Vec<f32>, RowDefined) {
    run(level, &pool(2), &sequence.dims, sequence.query(), sequence.plain(), lists.get()).unwrap()
}

/// The operator with a mask into a guarded output.
pub(crate) fn run_masked(
    level: Level,
    dims: &AttentionDims,
    query: Data<'_>,
    gathered: &Gathered,
    mask: &[f32],
) -> Result<(Vec<f32>, RowDefined), Error> {
    let width = dims.heads * dims.head_dim;
    let mut out = Guarded::<f32>::new(query.len() / width, width);
    let (keys, values) = (gathered.keys.data(), gathered.values.data());
    let defined = msa_main_branch_masked(level, &pool(2), dims, query, keys, values, mask, out.as_mut_slice())?;
    out.check().unwrap();
    assert_eq!(out.unwritten(), 0, "elements of the output were not written");
    Ok((out.to_vec(), defined))
}

/// The operator on every layout, which must agree in every bit.
pub(crate) fn run_all_layouts(level: Level, sequence: &Sequence, lists: &Lists) -> (Vec<f32>, RowDefined) {
    let expected = run_plain(level, sequence, lists);
    let (paged, packed) = (sequence.paged(), [false, true].map(|in_order| sequence.packed(level, in_order)));
    let mut layouts = vec![("paged", paged.get())];
    layouts.extend([("packed", packed[0].get()), ("packed in order", packed[1].get())]);
    // A gathered sequence ends with the last query, so it has room for blocks up to there only.
    let seen = sequence.seen_blocks();
    let ids: Vec<i32> = shuffled(seen, 7).into_iter().map(|id| id as i32).chain([-1, -1]).collect();
    let gathered = sequence.gathered(&ids);
    if seen == sequence.blocks() {
        layouts.push(("gathered", gathered.get()));
    }
    for (layout, keys_values) in layouts {
        let actual = run(level, &pool(2), &sequence.dims, sequence.query(), keys_values, lists.get()).unwrap();
        assert_same_bits(layout, &actual.0, &expected.0, &sequence.shape());
        assert_eq!(actual.1, expected.1, "{layout}");
    }
    expected
}

pub(crate) fn array(values: &Values, heads: usize, head_dim: usize) -> Array3<f32> {
    let shape = (values.len() / (heads * head_dim), heads, head_dim);
    Array3::from_shape_vec(shape, values.wide()).unwrap()
}

/// What the operator should give, by the reference.
pub(crate) fn expected(sequence: &Sequence, lists: &Lists) -> (Vec<f32>, RowDefined) {
    let AttentionDims { heads, kv_heads, head_dim, .. } = sequence.dims;
    let q = array(&sequence.q, heads, head_dim);
    let [k, v] = [&sequence.k, &sequence.v].map(|values| array(values, kv_heads, head_dim));
    let precision = sequence.kind.precision();
    let (q, k, v) = (q.view(), k.view(), v.view());
    let (out, defined) =
        reference::msa_main_branch(&sequence.dims, precision, q, sequence.start, k, v, lists.get()).unwrap();
    (out.into_iter().collect(), defined)
}

/// What the operator should give with a mask, by the reference.
pub(crate) fn expected_masked(
    dims: &AttentionDims,
    kind: Kind,
    q: &Values,
    gathered: &Gathered,
    mask: &[f32],
) -> (Vec<f32>, RowDefined) {
    let AttentionDims { heads, kv_heads, head_dim, block } = *dims;
    let q = array(q, heads, head_dim);
    let [k, v] = [&gathered.keys, &gathered.values].map(|values| array(values, kv_heads, head_dim));
    let shape = (q.dim().0.div_ceil(block), gathered.ids.len(), block, block);
    let mask = ArrayView4::from_shape(shape, mask).unwrap();
    let (q, k, v) = (q.view(), k.view(), v.view());
    let (out, defined) = reference::msa_main_branch_masked(dims, kind.precision(), q, k, v, mask).unwrap();
    (out.into_iter().collect(), defined)
}

/// The mask that says for gathered blocks what positions from 0 on say.
pub(crate) fn mask_of_positions(n: usize, block: usize, ids: &[i32]) -> Vec<f32> {
    let shape = [n.div_ceil(block), ids.len(), block, block];
    let value = |i: usize| {
        let key = i % block;
        let (row, slot, query_block) =
            (i / block % block, i / (block * block) % ids.len(), i / (block * block * ids.len()));
        let position = query_block * block + row;
        let is_seen = position < n && ids[slot] >= 0 && ids[slot] as usize * block + key <= position;
        if is_seen { 0.0 } else { msa_main_branch::MASK_NEG }
    };
    (0..shape.iter().product()).map(value).collect()
}
