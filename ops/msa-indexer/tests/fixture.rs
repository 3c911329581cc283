// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sequences in every number format and layout from one seed, and the calls under test in short form.

use cpu_tiles::weights::packed_index;
use cpu_tiles::{Format, Isa, Level, PANEL, PackedRef, PackedWeight, Pool, WeightRef};
use half::bf16;
use msa_indexer::{HeadReduce, IndexerDims, Keys, Values, decode, prefill, reference};
use ndarray::{ArrayView2, ArrayView3};
use op_testkit::compare::{Comparison, Tolerance, assert_same_bits};
use op_testkit::guard::Guarded;
use op_testkit::{fill_bf16, fill_f32};

/// F32 sums of products that the oracle sums in F64.
pub(crate) const TOLERANCE: Tolerance = Tolerance { abs: 0.0, rel: 0.0, rel_to_max: 5e-6 };

pub(crate) const REDUCES: [HeadReduce; 2] = [HeadReduce::PerKvHead, HeadReduce::Shared];

/// What queries and keys hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// Any numbers, BF16 both.
    Bf16,
    /// Any numbers, F32 both.
    F32,
    /// F32 queries, BF16 keys.
    Mixed,
    /// Small integers, BF16 both: every sum is exact, whatever its order, and many are equal.
    Integers,
}

pub(crate) const KINDS: [Kind; 4] = [Kind::Bf16, Kind::F32, Kind::Mixed, Kind::Integers];

impl Kind {
    pub(crate) fn tolerance(self) -> Tolerance {
        if self == Self::Integers { Tolerance::EXACT } else { TOLERANCE }
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

/// Top-k with the query's own block always selected.
pub(crate) const fn dims(heads: usize, head_dim: usize, block: usize, topk: usize) -> IndexerDims {
    IndexerDims { heads, head_dim, block, topk, ..IndexerDims::M3 }
}

/// Values of a number format that owns them.
#[derive(Clone, Debug)]
pub(crate) enum Owned {
    Bf16(Vec<bf16>),
    F32(Vec<f32>),
}

impl Owned {
    pub(crate) fn get(&self) -> Values<'_> {
        match self {
            Self::Bf16(values) => Values::Bf16(values),
            Self::F32(values) => Values::F32(values),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Bf16(values) => values.len(),
            Self::F32(values) => values.len(),
        }
    }

    pub(crate) fn wide(&self) -> Vec<f32> {
        match self {
            Self::Bf16(values) => values.iter().map(|value| value.to_f32()).collect(),
            Self::F32(values) => values.clone(),
        }
    }

    pub(crate) fn set(&mut self, at: usize, value: f32) {
        match self {
            Self::Bf16(values) => values[at] = bf16::from_f32(value),
            Self::F32(values) => values[at] = value,
        }
    }

    /// Values `which` of these; NaN where it says `None`.
    pub(crate) fn gather(&self, which: impl Iterator<Item = Option<usize>>) -> Self {
        match self {
            Self::Bf16(values) => Self::Bf16(which.map(|i| i.map_or(bf16::NAN, |i| values[i])).collect()),
            Self::F32(values) => Self::F32(which.map(|i| i.map_or(f32::NAN, |i| values[i])).collect()),
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

/// Queries at consecutive positions, and the keys of the sequence.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    pub(crate) dims: IndexerDims,
    /// The position of the first query.
    pub(crate) start: usize,
    /// `[queries, heads, head_dim]`.
    pub(crate) queries: Owned,
    /// `[length, head_dim]`.
    pub(crate) keys: Owned,
}

impl Sequence {
    pub(crate) fn new(dims: IndexerDims, kind: Kind, start: usize, queries: usize, length: usize, seed: u64) -> Self {
        let of = |bf16_values: bool, seed, len| match kind {
            Kind::Integers => {
                let integer = |value: f32| bf16::from_f32((value * 3.0).round());
                Owned::Bf16(fill_f32(seed, len, 1.0).into_iter().map(integer).collect())
            }
            _ if bf16_values => Owned::Bf16(fill_bf16(seed, len, 1.0)),
            _ => Owned::F32(fill_f32(seed, len, 1.0)),
        };
        Self {
            dims,
            start,
            queries: of(kind == Kind::Bf16, seed, queries * dims.heads * dims.head_dim),
            keys: of(kind != Kind::F32, seed + 1, length * dims.head_dim),
        }
    }

    /// One query at the last position.
    pub(crate) fn of_decode(dims: IndexerDims, kind: Kind, length: usize, seed: u64) -> Self {
        Self::new(dims, kind, length - 1, 1, length, seed)
    }

    /// One query at the last position with one value per head, and keys of one value each, one per block.
    pub(crate) fn of_scores(dims: IndexerDims, scores: &[f32]) -> Self {
        assert_eq!((dims.head_dim, dims.block), (1, 1));
        Self {
            dims,
            start: scores.len() - 1,
            queries: Owned::F32(vec![1.0; dims.heads]),
            keys: Owned::F32(scores.to_vec()),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.queries.len() / (self.dims.heads * self.dims.head_dim)
    }

    pub(crate) fn length(&self) -> usize {
        self.keys.len() / self.dims.head_dim
    }

    pub(crate) fn blocks(&self) -> usize {
        self.length().div_ceil(self.dims.block)
    }

    pub(crate) fn scores_shape(&self) -> [usize; 3] {
        self.dims.scores_shape(self.count(), self.length())
    }

    pub(crate) fn ids_shape(&self) -> [usize; 3] {
        self.dims.ids_shape(self.count(), self.length())
    }

    pub(crate) fn with_reduce(&self, reduce: HeadReduce) -> Self {
        Self { dims: IndexerDims { reduce, ..self.dims }, ..self.clone() }
    }

    /// Some of the queries, in a sequence that ends at `length`.
    pub(crate) fn part(&self, queries: std::ops::Range<usize>, length: usize) -> Self {
        let width = self.dims.heads * self.dims.head_dim;
        Self {
            dims: self.dims,
            start: self.start + queries.start,
            queries: self.queries.gather((queries.start * width..queries.end * width).map(Some)),
            keys: self.keys.gather((0..length * self.dims.head_dim).map(Some)),
        }
    }

    pub(crate) fn plain(&self) -> Keys<'_> {
        Keys::Plain(self.keys.get())
    }

    /// Pages in the order of a table, among others that hold NaN, as the places behind the last key do.
    pub(crate) fn pages(&self) -> (Owned, Vec<i32>) {
        let pages = self.blocks() + 2;
        let table: Vec<i32> = shuffled(pages, 99).into_iter().map(|page| page as i32).take(self.blocks()).collect();
        let page = self.dims.block * self.dims.head_dim;
        let places = (0..pages * page).map(|i| {
            let block = table.iter().position(|&entry| entry as usize == i / page)?;
            Some(block * page + i % page).filter(|&at| at < self.keys.len())
        });
        (self.keys.gather(places), table)
    }

    /// The pages, packed.
    fn packed(&self, level: Level, pages: &Owned) -> Vec<PackedWeight> {
        let IndexerDims { block, head_dim, .. } = self.dims;
        let weights: Vec<_> = match pages {
            Owned::Bf16(values) => values
                .chunks_exact(block * head_dim)
                .map(|page| WeightRef::bf16(block, head_dim, page).unwrap())
                .collect(),
            Owned::F32(values) => values
                .chunks_exact(block * head_dim)
                .map(|page| WeightRef::f32(block, head_dim, page).unwrap())
                .collect(),
        };
        PackedWeight::pack_all(level, &pool(1), &weights).unwrap()
    }

    /// What the operator should give, by the reference: ids and scores.
    pub(crate) fn expected(&self) -> (Vec<i32>, Vec<f32>) {
        let IndexerDims { heads, head_dim, .. } = self.dims;
        let (queries, keys) = (self.queries.wide(), self.keys.wide());
        let queries = ArrayView3::from_shape((self.count(), heads, head_dim), &queries).unwrap();
        let keys = ArrayView2::from_shape((self.length(), head_dim), &keys).unwrap();
        let scores = reference::block_scores(&self.dims, queries, self.start, keys).unwrap();
        let ids = reference::select(&self.dims, scores.view(), self.start).unwrap();
        (ids.into_iter().collect(), scores.into_iter().collect())
    }

    /// The ids that the reference selects by given scores.
    pub(crate) fn ids_of(&self, scores: &[f32]) -> Vec<i32> {
        let scores = ArrayView3::from_shape(self.scores_shape(), scores).unwrap();
        reference::select(&self.dims, scores, self.start).unwrap().into_iter().collect()
    }

    /// Ids and scores of the operator with keys as they are.
    pub(crate) fn run(&self, level: Level) -> (Vec<i32>, Vec<f32>) {
        self.run_with(level, &pool(2), self.plain())
    }

    /// Ids and scores of the operator. With and without scores, and as a decode step where it is one, the result must be
    /// the same; nothing outside the outputs may be written.
    pub(crate) fn run_with(&self, level: Level, pool: &Pool, keys: Keys<'_>) -> (Vec<i32>, Vec<f32>) {
        let (queries, count, length) = (self.queries.get(), self.count(), self.length());
        let mut ids = Guarded::<i32>::new(count, self.ids_shape()[1..].iter().product());
        let mut scores = Guarded::<f32>::new(count, self.scores_shape()[1..].iter().product());
        let call = |ids: &mut Guarded<i32>, scores: Option<&mut Guarded<f32>>| {
            let scores = scores.map(Guarded::as_mut_slice);
            prefill(level, pool, &self.dims, queries, self.start, keys, length, ids.as_mut_slice(), scores).unwrap();
            ids.check().unwrap();
            assert_eq!(ids.unwritten(), 0, "ids were not written");
        };
        call(&mut ids, Some(&mut scores));
        scores.check().unwrap();
        assert_eq!(scores.unwritten(), 0, "scores were not written");
        let (ids, scores) = (ids.to_vec(), scores.to_vec());

        let mut alone = Guarded::<i32>::new(count, self.ids_shape()[1..].iter().product());
        call(&mut alone, None);
        assert_eq!(alone.to_vec(), ids, "ids with and without scores");
        if count == 1 && self.start + 1 == length {
            let mut of_decode = (vec![0; ids.len()], vec![0.0; scores.len()]);
            let (out, out_scores) = (&mut of_decode.0, Some(&mut of_decode.1[..]));
            decode(level, pool, &self.dims, queries, keys, length, out, out_scores).unwrap();
            assert_eq!(of_decode.0, ids, "decode and prefill");
            assert_same_bits("decode and prefill", &of_decode.1, &scores, &self.scores_shape());
        }
        (ids, scores)
    }

    /// The operator on every layout, which must agree in every bit.
    pub(crate) fn run_all_layouts(&self, level: Level) -> (Vec<i32>, Vec<f32>) {
        let expected = self.run(level);
        let check = |layout: &str, keys: Keys<'_>| {
            let actual = self.run_with(level, &pool(2), keys);
            assert_eq!(actual.0, expected.0, "{layout}");
            assert_same_bits(layout, &actual.1, &expected.1, &self.scores_shape());
        };
        let longer = self
            .keys
            .gather((0..self.keys.len() + 3 * self.dims.head_dim).map(|i| Some(i).filter(|&i| i < self.keys.len())));
        check("plain, more keys than the sequence", Keys::Plain(longer.get()));

        let (pages, mut table) = self.pages();
        // Entries behind the blocks of the sequence are not read.
        table.extend([-1, i32::MAX]);
        check("paged", Keys::Paged { pages: pages.get(), block_table: &table });

        let packed = self.packed(level, &pages);
        check("packed, with a table", Keys::Packed { blocks: &packed, block_table: Some(&table) });
        let in_order: Vec<_> = table[..self.blocks()].iter().map(|&page| packed[page as usize].as_ref()).collect();
        check("packed, in order", Keys::Packed { blocks: &in_order, block_table: None });

        let written: Vec<_> = (0..self.blocks()).map(|block| Written::new(self, block)).collect();
        let written: Vec<_> = written.iter().map(|block| block.get(&self.dims)).collect();
        check("written key by key", Keys::Packed { blocks: &written, block_table: None });
        expected
    }
}

/// A packed block as a cache holds it that is written key by key: what no key was written to is NaN, and there is room for
/// more values than a key has, which are zero.
struct Written {
    panels: Owned,
    capacity: usize,
}

impl Written {
    fn new(sequence: &Sequence, block: usize) -> Self {
        let IndexerDims { block: size, head_dim, .. } = sequence.dims;
        let capacity = head_dim.next_multiple_of(4) + 4;
        let values = size.next_multiple_of(PANEL) * capacity;
        let (mut panels, format) = match sequence.keys {
            Owned::Bf16(_) => (Owned::Bf16(vec![bf16::NAN; values]), Format::Bf16),
            Owned::F32(_) => (Owned::F32(vec![f32::NAN; values]), Format::F32),
        };
        let keys = sequence.keys.wide();
        for key in block * size..sequence.length().min((block + 1) * size) {
            let in_block = key % size;
            for k in 0..capacity {
                let at = in_block / PANEL * PANEL * capacity + packed_index(format, in_block % PANEL, k);
                panels.set(at, if k < head_dim { keys[key * head_dim + k] } else { 0.0 });
            }
        }
        Self { panels, capacity }
    }

    fn get(&self, dims: &IndexerDims) -> PackedRef<'_> {
        match &self.panels {
            Owned::Bf16(panels) => PackedRef::bf16(dims.block, dims.head_dim, self.capacity, panels).unwrap(),
            Owned::F32(panels) => PackedRef::f32(dims.block, dims.head_dim, self.capacity, panels).unwrap(),
        }
    }
}

/// Scores near those of the reference, and the ids that belong to them: those of the reference where sums are exact, else
/// those that it selects by the scores at hand.
pub(crate) fn check(
    sequence: &Sequence,
    (ids, scores): &(Vec<i32>, Vec<f32>),
    (expected_ids, expected_scores): &(Vec<i32>, Vec<f32>),
    tolerance: Tolerance,
) -> Result<(), String> {
    Comparison::new(scores, expected_scores, &sequence.scores_shape()).check(tolerance)?;
    let selected = sequence.ids_of(scores);
    let expected_ids = if tolerance == Tolerance::EXACT { expected_ids } else { &selected };
    if ids != expected_ids {
        return Err(format!("ids: {ids:?}, expected {expected_ids:?}"));
    }
    Ok(())
}
