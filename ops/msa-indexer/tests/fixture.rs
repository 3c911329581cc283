// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sequences from a seed in every layout, and the calls under test in short form.

use cpu_tiles::{Isa, Level, PackedWeight, Pool, WeightRef};
use half::bf16;
use msa_indexer::{Error, HeadReduce, IndexerDims, Keys, Values, decode, prefill, reference};
use ndarray::{ArrayView2, ArrayView3};
use op_testkit::compare::assert_same_bits;
use op_testkit::fill_f32;
use op_testkit::guard::Guarded;

pub(crate) const REDUCTIONS: [HeadReduce; 2] = [HeadReduce::PerKvHead, HeadReduce::Shared];

/// Every level of this machine, and the software models of the AVX-512 ones.
pub(crate) fn levels() -> Vec<Level> {
    let mut levels = Level::available();
    levels.extend(Isa::ALL.into_iter().filter_map(Level::emulated));
    levels
}

pub(crate) fn pool(threads: usize) -> Pool {
    Pool::new(threads).unwrap()
}

/// Values that own themselves.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    Bf16(Vec<bf16>),
    F32(Vec<f32>),
}

impl Data {
    pub(crate) fn new(is_bf16: bool, values: Vec<f32>) -> Self {
        if is_bf16 { Self::Bf16(values.into_iter().map(bf16::from_f32).collect()) } else { Self::F32(values) }
    }

    pub(crate) fn values(&self) -> Values<'_> {
        match self {
            Self::Bf16(values) => Values::Bf16(values),
            Self::F32(values) => Values::F32(values),
        }
    }

    pub(crate) fn to_f32(&self) -> Vec<f32> {
        match self {
            Self::Bf16(values) => values.iter().map(|value| value.to_f32()).collect(),
            Self::F32(values) => values.clone(),
        }
    }

    /// Pieces of `size` values in another order, `None` being a piece of NaN; a piece that ends early is filled with NaN.
    fn pieces(&self, size: usize, order: impl IntoIterator<Item = Option<usize>>) -> Self {
        let values = self.to_f32();
        let of_piece = |piece: Option<usize>| {
            let values = piece.map_or(&[][..], |piece| &values[piece * size..values.len().min((piece + 1) * size)]);
            values.iter().copied().chain(std::iter::repeat(f32::NAN)).take(size)
        };
        Self::new(matches!(self, Self::Bf16(_)), order.into_iter().flat_map(of_piece).collect())
    }
}

/// Queries at the positions from `start` on, and the keys of their sequence.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) dims: IndexerDims,
    pub(crate) queries: Data,
    pub(crate) start: usize,
    pub(crate) keys: Data,
}

/// Small integers: every sum is exact in F32, in any order, and ties are frequent.
pub(crate) fn integers(seed: u64, n: usize) -> Vec<f32> {
    fill_f32(seed, n, 2.49).into_iter().map(f32::round).collect()
}

impl Setup {
    /// `count` queries that end the sequence of `length` keys, all values small integers.
    pub(crate) fn new(dims: IndexerDims, is_bf16: [bool; 2], count: usize, length: usize, seed: u64) -> Self {
        let [queries, keys] = is_bf16;
        Self {
            dims,
            queries: Data::new(queries, integers(seed, count * dims.heads * dims.head_dim)),
            start: length - count,
            keys: Data::new(keys, integers(seed + 1, length * dims.head_dim)),
        }
    }

    /// One query at the end of BF16 values.
    pub(crate) fn decode(dims: IndexerDims, length: usize, seed: u64) -> Self {
        Self::new(dims, [true, true], 1, length, seed)
    }

    pub(crate) fn count(&self) -> usize {
        self.queries.to_f32().len() / self.dims.heads / self.dims.head_dim
    }

    pub(crate) fn length(&self) -> usize {
        self.keys.to_f32().len() / self.dims.head_dim
    }

    pub(crate) fn expected(&self) -> Output {
        let (dims, length) = (&self.dims, self.length());
        let (queries, keys) = (self.queries.to_f32(), self.keys.to_f32());
        let queries = ArrayView3::from_shape((self.count(), dims.heads, dims.head_dim), &queries).unwrap();
        let keys = ArrayView2::from_shape((length, dims.head_dim), &keys).unwrap();
        let scores = reference::block_scores(dims, queries, self.start, keys).unwrap();
        let ids = reference::select(dims, scores.view(), self.start).unwrap();
        Output { ids: ids.into_iter().collect(), scores: scores.into_iter().collect() }
    }

    /// The keys in every layout, with NaN wherever there is room beyond them.
    pub(crate) fn layouts(&self, level: Level) -> Layouts {
        let IndexerDims { block, head_dim, .. } = self.dims;
        let blocks = self.dims.blocks(self.length());
        // Pages in falling order, with poison between, before and after.
        let order = (0..2 * blocks + 1).rev().map(|page| (page % 2 == 1).then_some(page / 2));
        let page_of = |block: usize| 2 * (blocks - 1 - block) + 1;
        let paged = self.keys.pieces(block * head_dim, order);
        Layouts {
            plain: self.keys.pieces(head_dim, (0..self.length()).map(Some).chain([None, None, None])),
            packed: pack(level, &self.dims, &self.keys.pieces(block * head_dim, (0..blocks).map(Some))),
            packed_pages: pack(level, &self.dims, &paged),
            paged,
            block_table: (0..blocks).map(|block| page_of(block) as i32).chain([-1, i32::MAX]).collect(),
        }
    }

    /// Ids and scores; the ids without a wish for scores are the same, and so is what `decode` gives (but for software models
    /// of instructions, which are too slow for asking thrice).
    #[track_caller]
    pub(crate) fn run(&self, level: Level, pool: &Pool, keys: Keys<'_>) -> Result<Output, Error> {
        let (dims, length, count) = (&self.dims, self.length(), self.count());
        let [_, selections, width] = dims.ids_shape(count, length);
        let (mut ids, mut scores) =
            (Guarded::new(count * selections, width), Guarded::new(count * selections, dims.blocks(length)));
        let queries = self.queries.values();
        let (of_ids, of_scores) = (ids.as_mut_slice(), Some(scores.as_mut_slice()));
        prefill(level, pool, dims, queries, self.start, keys, length, of_ids, of_scores)?;
        ids.check().unwrap();
        scores.check().unwrap();
        assert_eq!((ids.unwritten(), scores.unwritten()), (0, 0), "places were not written");
        let out = Output { ids: ids.to_vec(), scores: scores.to_vec() };
        if level.is_emulated() {
            return Ok(out);
        }

        let mut alone = Guarded::new(count * selections, width);
        prefill(level, pool, dims, queries, self.start, keys, length, alone.as_mut_slice(), None)?;
        alone.check().unwrap();
        assert_eq!(alone.to_vec(), out.ids, "ids depend on the wish for scores");
        if count == 1 && self.start + 1 == length {
            let (mut ids, mut scores) = (vec![7; out.ids.len()], vec![7.0; out.scores.len()]);
            decode(level, pool, dims, queries, keys, length, &mut ids, Some(&mut scores))?;
            assert_eq!(ids, out.ids, "decode and prefill");
            assert_same_bits("decode and prefill", &scores, &out.scores, &[scores.len()]);
        }
        Ok(out)
    }

    /// [`Setup::run`] in all layouts, which must agree in every bit; on software models those with a table.
    #[track_caller]
    pub(crate) fn run_all(&self, level: Level, pool: &Pool) -> Result<Output, Error> {
        let layouts = self.layouts(level);
        let mut outputs = Vec::new();
        for (index, (name, keys)) in layouts.keys().into_iter().enumerate() {
            if index % 2 == 1 || !level.is_emulated() {
                outputs.push((name, self.run(level, pool, keys)?));
            }
        }
        let (_, first) = outputs.remove(0);
        for (name, other) in outputs {
            assert_eq!(other.ids, first.ids, "{name} at {level}");
            assert_same_bits(name, &other.scores, &first.scores, &[first.scores.len()]);
        }
        Ok(first)
    }
}

/// Packs whole blocks.
pub(crate) fn pack(level: Level, dims: &IndexerDims, blocks: &Data) -> Vec<PackedWeight> {
    let (n, k) = (dims.block, dims.head_dim);
    let weights: Vec<_> = match blocks {
        Data::Bf16(values) => values.chunks_exact(n * k).map(|x| WeightRef::bf16(n, k, x).unwrap()).collect(),
        Data::F32(values) => values.chunks_exact(n * k).map(|x| WeightRef::f32(n, k, x).unwrap()).collect(),
    };
    PackedWeight::pack_all(level, &pool(1), &weights).unwrap()
}

/// The keys of one sequence in every layout.
pub(crate) struct Layouts {
    pub(crate) plain: Data,
    pub(crate) paged: Data,
    pub(crate) packed: Vec<PackedWeight>,
    pub(crate) packed_pages: Vec<PackedWeight>,
    pub(crate) block_table: Vec<i32>,
}

impl Layouts {
    pub(crate) fn keys(&self) -> [(&'static str, Keys<'_>); 4] {
        let table = &self.block_table[..];
        [
            ("plain", Keys::Plain(self.plain.values())),
            ("paged", Keys::Paged { pages: self.paged.values(), block_table: table }),
            ("packed", Keys::Packed { blocks: &self.packed, block_table: None }),
            ("packed pages", Keys::Packed { blocks: &self.packed_pages, block_table: Some(table) }),
        ]
    }
}

/// What a call gives.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Output {
    /// `[queries, selections, min(topk, blocks)]`.
    pub(crate) ids: Vec<i32>,
    /// `[queries, selections, blocks]`.
    pub(crate) scores: Vec<f32>,
}
