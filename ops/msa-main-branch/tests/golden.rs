// SPDX-License-Identifier: MIT OR Apache-2.0

//! Golden data beyond the conformance suite: whole prompts in one call, the stored masks through the published factory,
//! the oracle.

use crate::fixture::{Gathered, Kind, Lists, Sequence, Values, dims, expected, pool, run_masked, run_plain};
use cpu_tiles::Level;
use msa_main_branch::{MASK_NEG, MainBranchConfig};
use ndarray::{ArrayView3, ArrayView4, ArrayViewMut3};
use op_testkit::compare::{Tolerance, assert_close, assert_same_bits};
use op_testkit::golden::{Case, Ops};
use std::ops::Range;

/// The golden data admits 1e-3; F32 arithmetic is this good.
pub(crate) const TOLERANCE: Tolerance = Tolerance { abs: 1e-5, rel: 1e-5, rel_to_max: 0.0 };

/// A golden case: a whole prompt, and the result of some of its rows.
pub(crate) struct Golden {
    pub(crate) sequence: Sequence,
    pub(crate) topk: usize,
    pub(crate) ids: Vec<i32>,
    /// The queries whose results there are.
    pub(crate) rows: Vec<usize>,
    pub(crate) out: Vec<f32>,
    pub(crate) row_defined: Vec<bool>,
    /// `[blocks, topk, bk, bk]`.
    pub(crate) mask: Option<Vec<f32>>,
}

pub(crate) fn read(case: &Case<'_>) -> Golden {
    let size = |name| case.usize(name).unwrap();
    let values = |name| Values::F32(case.tensor(name).unwrap().f32().unwrap());
    let ints = |name| case.tensor(name).unwrap().i32().unwrap();
    let mask = case.tensor("block_mask_hidden").ok();
    Golden {
        sequence: Sequence {
            dims: dims(size("hq"), size("hkv"), size("dh"), size("bk")),
            kind: Kind::F32,
            start: 0,
            q: values("query"),
            k: values("key"),
            v: values("value"),
        },
        topk: size("topk"),
        ids: ints("block_indices"),
        rows: ints("rows").into_iter().map(|row| row as usize).collect(),
        out: case.tensor("out").unwrap().f32().unwrap(),
        row_defined: case.tensor("row_defined").unwrap().bytes().iter().map(|&byte| byte != 0).collect(),
        mask: mask.map(|mask| mask.bytes().iter().map(|&hidden| if hidden == 0 { 0.0 } else { MASK_NEG }).collect()),
    }
}

impl Golden {
    /// Runs of rows whose results there are, each with the place of its first.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        let mut first = 0;
        self.rows.chunk_by(|a, b| a + 1 == *b).map(move |rows| {
            first += rows.len();
            (first - rows.len(), rows[0]..rows[0] + rows.len())
        })
    }

    /// The gathered blocks, padded with slots of zeros.
    fn gathered(&self) -> Gathered {
        let mut ids = self.ids.clone();
        ids.resize(self.topk, -1);
        let mut gathered = self.sequence.gathered(&ids);
        for values in [&mut gathered.keys, &mut gathered.values] {
            let Values::F32(values) = values else { unreachable!("golden data is F32") };
            values.iter_mut().filter(|value| value.is_nan()).for_each(|value| *value = 0.0);
        }
        gathered
    }

    fn check(&self, what: &str, actual: &[f32], defined: impl Fn(usize) -> bool) {
        let width = self.sequence.dims.heads * self.sequence.dims.head_dim;
        let rows: Vec<f32> =
            self.rows.iter().flat_map(|&row| &actual[row * width..(row + 1) * width]).copied().collect();
        assert_close(what, &rows, &self.out, &[self.rows.len(), width], TOLERANCE);
        let found: Vec<bool> = self.rows.iter().map(|&row| defined(row)).collect();
        assert_eq!(found, self.row_defined, "{what}");
    }
}

/// Thousands of queries in one call, at the best level; the conformance suite runs the stored rows alone.
#[test]
fn whole_prompts() {
    let ops = Ops::open("msa_main_branch").unwrap();
    for case in ops.cases() {
        let golden = read(&case);
        let (out, defined) = run_plain(Level::best(), &golden.sequence, &Lists::Shared(golden.ids.clone()));
        golden.check(case.name(), &out, |row| defined.query(row));
        assert_eq!(defined.all(), golden.sequence.n() == 1 || golden.ids.contains(&0), "{}", case.name());
    }
}

/// The stored masks: directly and through the factory, whose result with positions has the same bits.
#[test]
fn published_form() {
    let ops = Ops::open("msa_main_branch").unwrap();
    let mut masks = 0;
    for case in ops.cases() {
        let golden = read(&case);
        let Some(mask) = &golden.mask else { continue };
        masks += 1;
        let (sequence, dims) = (&golden.sequence, golden.sequence.dims);
        let gathered = golden.gathered();
        let direct = run_masked(Level::best(), &dims, sequence.q.data(), &gathered, mask).unwrap();
        golden.check(case.name(), &direct.0, |row| direct.1.query(row));

        let config = MainBranchConfig {
            hq: dims.heads,
            hkv: dims.kv_heads,
            dh: dims.head_dim,
            bk: dims.block,
            topk: golden.topk,
            max_n: Some(sequence.n().next_multiple_of(dims.block)),
        };
        let main_branch = config.build().unwrap();
        let [q, k, v] = [&sequence.q, &gathered.keys, &gathered.values].map(Values::wide);
        let query = ArrayView3::from_shape(sequence.shape(), &q).unwrap();
        let shape = (golden.topk * dims.block, dims.kv_heads, dims.head_dim);
        let [k, v] = [&k, &v].map(|values| ArrayView3::from_shape(shape, values).unwrap());
        let shape = (sequence.n().div_ceil(dims.block), golden.topk, dims.block, dims.block);
        let mask = ArrayView4::from_shape(shape, mask).unwrap();
        let mut out = [vec![f32::NAN; q.len()], vec![f32::NAN; q.len()]];
        let [masked, by_position] = out.each_mut().map(|out| ArrayViewMut3::from_shape(sequence.shape(), out).unwrap());
        let (level, pool) = (Level::best(), pool(2));
        let of_mask = main_branch.run(level, &pool, query, k, v, mask, masked).unwrap();
        let of_positions = main_branch.run_by_position(level, &pool, query, k, v, &gathered.ids, by_position).unwrap();
        assert_eq!((&of_mask, &of_positions), (&direct.1, &direct.1), "{}", case.name());
        assert_same_bits(case.name(), &out[0], &direct.0, &sequence.shape());
        // Slots in another order than their blocks: the sums run in another order.
        golden.check(case.name(), &out[1], |row| of_positions.query(row));
    }
    assert_eq!(masks, 3);
}

#[test]
fn the_oracle_gives_the_golden_data() {
    let ops = Ops::open("msa_main_branch").unwrap();
    for case in ops.cases() {
        let golden = read(&case);
        let width = golden.sequence.dims.heads * golden.sequence.dims.head_dim;
        for (first, rows) in golden.chunks() {
            let (out, defined) = expected(&golden.sequence.part(rows.clone()), &Lists::Shared(golden.ids.clone()));
            let stored = &golden.out[first * width..(first + rows.len()) * width];
            assert_close(case.name(), &out, stored, &[rows.len(), width], TOLERANCE);
            let found: Vec<bool> = (0..rows.len()).map(|row| defined.query(row)).collect();
            assert_eq!(found, golden.row_defined[first..first + rows.len()], "{}", case.name());
        }
    }
}
