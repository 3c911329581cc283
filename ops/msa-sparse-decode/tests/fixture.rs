// SPDX-License-Identifier: MIT OR Apache-2.0

//! Problems from one seed, and the calls under test: every kind of cache with the same keys and values.

use cpu_tiles::attention::PackedPages;
use cpu_tiles::{Format, Isa, Level, Pool, Precision};
use half::bf16;
use msa_sparse_decode::{
    Blind, BlockIds, Cache, DecodeBatch, DecodeDims, Error, Queries, reference, sparse_decode, sparse_decode_f32,
};
use ndarray::{ArrayView3, ArrayView5};
use op_testkit::compare::{Tolerance, assert_same_bits};
use op_testkit::fill_bf16;
use op_testkit::guard::Guarded;

/// Values are of order one.
pub(crate) fn tolerance(precision: Precision) -> Tolerance {
    match precision {
        Precision::F32 => Tolerance { abs: 1e-5, rel: 1e-5, rel_to_max: 0.0 },
        Precision::Bf16 => Tolerance { abs: 4e-3, rel: 0.0, rel_to_max: 0.0 },
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

/// Which blocks each list has.
#[derive(Clone, Debug)]
pub(crate) enum Ids {
    Shared(Vec<i32>),
    PerKvHead(Vec<i32>),
}

impl Ids {
    pub(crate) fn as_ref(&self) -> BlockIds<'_> {
        match self {
            Self::Shared(ids) => BlockIds::Shared(ids),
            Self::PerKvHead(ids) => BlockIds::PerKvHead(ids),
        }
    }

    pub(crate) fn values(&mut self) -> &mut Vec<i32> {
        match self {
            Self::Shared(ids) | Self::PerKvHead(ids) => ids,
        }
    }
}

/// A problem, with a plain cache.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) dims: DecodeDims,
    pub(crate) precision: Precision,
    pub(crate) batch: usize,
    /// Blocks of a sequence.
    pub(crate) blocks: usize,
    pub(crate) q: Vec<bf16>,
    /// `[B, G, blocks, block, D]`
    pub(crate) k: Vec<bf16>,
    pub(crate) v: Vec<bf16>,
    pub(crate) ids: Ids,
    pub(crate) seq_lens: Vec<usize>,
}

impl Setup {
    /// All sequences full, all blocks listed, in descending order.
    pub(crate) fn new(dims: DecodeDims, precision: Precision, batch: usize, blocks: usize, seed: u64) -> Self {
        let cached = batch * dims.kv_heads * blocks * dims.block * dims.head_dim;
        // Scores have a standard deviation of about two with the default scale.
        let q = fill_bf16(seed, batch * dims.heads * dims.head_dim, 6.0);
        Self {
            dims,
            precision,
            batch,
            blocks,
            q,
            k: fill_bf16(seed + 1, cached, 1.0),
            v: fill_bf16(seed + 2, cached, 1.7),
            ids: Ids::Shared((0..batch).flat_map(|_| (0..blocks as i32).rev()).collect()),
            seq_lens: vec![blocks * dims.block; batch],
        }
    }

    pub(crate) fn with_ids(mut self, ids: Ids) -> Self {
        self.ids = ids;
        self
    }

    pub(crate) fn with_lens(mut self, seq_lens: &[usize]) -> Self {
        self.seq_lens = seq_lens.to_vec();
        self
    }

    pub(crate) fn shape(&self) -> [usize; 3] {
        [self.batch, self.dims.heads, self.dims.head_dim]
    }

    pub(crate) fn expected(&self) -> Vec<f32> {
        let DecodeDims { kv_heads, head_dim, block, .. } = self.dims;
        let cache = (self.batch, kv_heads, self.blocks, block, head_dim);
        let out = reference::sparse_decode(
            &self.dims,
            self.precision,
            ArrayView3::from_shape(self.shape(), &self.q).unwrap(),
            ArrayView5::from_shape(cache, &self.k).unwrap(),
            ArrayView5::from_shape(cache, &self.v).unwrap(),
            self.ids.as_ref(),
            &self.seq_lens,
        );
        out.unwrap().into_raw_vec_and_offset().0
    }

    pub(crate) fn plain(&self) -> Cache<'_> {
        Cache::Plain { k_blocks: &self.k, v_blocks: &self.v }
    }

    /// The same blocks as pages in another order, with pages that belong to nobody and hold NaN.
    pub(crate) fn paged(&self) -> Pages {
        let DecodeDims { kv_heads, head_dim, block, .. } = self.dims;
        let (owned, of_head) = (self.batch * self.blocks, block * head_dim);
        let pages = 2 * owned + 1;
        let mut paged = Pages {
            k: vec![bf16::NAN; pages * kv_heads * of_head],
            v: vec![bf16::NAN; pages * kv_heads * of_head],
            table: Vec::new(),
        };
        for number in 0..owned {
            let (entry, index) = (number / self.blocks, number % self.blocks);
            let page = 2 * (owned - 1 - number) + 1;
            paged.table.push(page as i32);
            for head in 0..kv_heads {
                let from = ((entry * kv_heads + head) * self.blocks + index) * of_head;
                let to = (page * kv_heads + head) * of_head;
                paged.k[to..to + of_head].copy_from_slice(&self.k[from..from + of_head]);
                paged.v[to..to + of_head].copy_from_slice(&self.v[from..from + of_head]);
            }
        }
        paged
    }

    pub(crate) fn packed(&self, level: Level, format: Format) -> Packed {
        let DecodeDims { kv_heads, head_dim, block, .. } = self.dims;
        let Pages { k, v, table } = self.paged();
        let of_head = block * head_dim;
        let count = k.len() / (kv_heads * of_head).max(1);
        let mut pages = PackedPages::new(format, kv_heads, head_dim, block, count).unwrap();
        for (number, (k, v)) in k.chunks_exact(of_head).zip(v.chunks_exact(of_head)).enumerate() {
            pages.write_bf16(level, number / kv_heads, number % kv_heads, 0, block, k, v, head_dim).unwrap();
        }
        Packed { pages, table }
    }

    /// One call in F32; the output lies between guards.
    pub(crate) fn run_on(&self, level: Level, pool: &Pool, cache: Cache<'_>) -> Result<(Vec<f32>, Vec<Blind>), Error> {
        let wide: Vec<f32> = self.q.iter().map(|x| x.to_f32()).collect();
        let queries = match self.precision {
            Precision::Bf16 => Queries::Bf16(&self.q),
            Precision::F32 => Queries::F32(&wide),
        };
        let batch = DecodeBatch { queries, cache, block_ids: self.ids.as_ref(), seq_lens: &self.seq_lens };
        let mut out = Guarded::<f32>::new(1, self.q.len());
        let blind = sparse_decode_f32(level, pool, &self.dims, &batch, out.as_mut_slice())?;
        out.check().unwrap();
        let out = out.to_vec();

        let mut rounded = Guarded::<bf16>::new(1, self.q.len());
        assert_eq!(sparse_decode(level, pool, &self.dims, &batch, rounded.as_mut_slice())?, blind);
        rounded.check().unwrap();
        let expected: Vec<bf16> = out.iter().copied().map(bf16::from_f32).collect();
        assert_same_bits("rounded once", &rounded.to_vec(), &expected, &[self.q.len()]);
        Ok((out, blind))
    }

    /// The plain cache alone.
    pub(crate) fn run(&self, level: Level) -> Vec<f32> {
        self.run_on(level, &pool(2), self.plain()).unwrap().0
    }

    /// Every kind of cache, which must agree in every bit.
    pub(crate) fn run_all(&self, level: Level) -> Result<(Vec<f32>, Vec<Blind>), Error> {
        let pool = pool(2);
        let (out, blind) = self.run_on(level, &pool, self.plain())?;
        let (paged, packed) = (self.paged(), self.packed(level, Format::Bf16));
        for (name, cache) in [("paged", paged.cache()), ("packed", packed.cache())] {
            let (same, also_blind) = self.run_on(level, &pool, cache)?;
            assert_same_bits(name, &same, &out, &self.shape());
            assert_eq!(also_blind, blind, "{name}");
        }
        Ok((out, blind))
    }
}

pub(crate) struct Pages {
    pub(crate) k: Vec<bf16>,
    pub(crate) v: Vec<bf16>,
    pub(crate) table: Vec<i32>,
}

impl Pages {
    pub(crate) fn cache(&self) -> Cache<'_> {
        Cache::Paged { k_pages: &self.k, v_pages: &self.v, block_table: &self.table }
    }
}

pub(crate) struct Packed {
    pub(crate) pages: PackedPages,
    pub(crate) table: Vec<i32>,
}

impl Packed {
    pub(crate) fn cache(&self) -> Cache<'_> {
        Cache::Packed { pages: &self.pages, block_table: Some(&self.table) }
    }
}
