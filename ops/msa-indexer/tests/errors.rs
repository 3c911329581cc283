// SPDX-License-Identifier: MIT OR Apache-2.0

//! Every check with its message, and that no refused call touches an output.

use crate::fixture::{Data, Setup, pack, pool};
use cpu_tiles::{Level, PackedRef, PackedWeight, ShapeError, WeightRef};
use half::bf16;
use msa_indexer::{Error, IndexerDims, Keys, PackedKeys, Values, decode, prefill, reference};
use ndarray::{Array2, Array3};

const DIMS: IndexerDims =
    IndexerDims { heads: 2, head_dim: 4, block: 8, topk: 2, init_blocks: 0, local_blocks: 1, ..IndexerDims::M3 };
const LENGTH: usize = 30;

fn setup() -> Setup {
    Setup::new(DIMS, [true, true], 3, LENGTH, 1)
}

/// What a call is made of; each test changes one thing.
struct Call<'a> {
    dims: IndexerDims,
    queries: Values<'a>,
    start: usize,
    keys: Keys<'a>,
    length: usize,
    ids: usize,
    scores: usize,
}

impl<'a> Call<'a> {
    fn new(setup: &'a Setup) -> Self {
        Self {
            dims: DIMS,
            queries: setup.queries.values(),
            start: setup.start,
            keys: Keys::Plain(setup.keys.values()),
            length: LENGTH,
            ids: 3 * 2 * 2,
            scores: 3 * 2 * 4,
        }
    }

    /// The message of `prefill`.
    #[track_caller]
    fn refused(self) -> String {
        let (mut ids, mut scores) = (vec![-77; self.ids], vec![-77.0; self.scores]);
        let Self { dims, queries, start, keys, length, .. } = self;
        let result = prefill(Level::SCALAR, &pool(1), &dims, queries, start, keys, length, &mut ids, Some(&mut scores));
        assert!(ids.iter().all(|id| *id == -77) && scores.iter().all(|score| *score == -77.0), "an output was touched");
        result.unwrap_err().to_string()
    }
}

#[test]
fn the_call_that_the_others_change_is_accepted() {
    let setup = setup();
    let Call { dims, queries, start, keys, length, ids, scores } = Call::new(&setup);
    let (mut ids, mut scores) = (vec![-77; ids], vec![-77.0; scores]);
    prefill(Level::SCALAR, &pool(1), &dims, queries, start, keys, length, &mut ids, Some(&mut scores)).unwrap();
    assert!(!ids.contains(&-77) && !scores.contains(&-77.0));
}

#[test]
fn dims_that_cannot_be() {
    let setup = setup();
    let zero = |change: fn(&mut IndexerDims)| {
        let mut call = Call::new(&setup);
        change(&mut call.dims);
        let dims = call.dims;
        let message = call.refused();
        let in_decode = decode(
            Level::SCALAR,
            &pool(1),
            &dims,
            setup.queries.values(),
            Keys::Plain(setup.keys.values()),
            LENGTH,
            &mut [],
            None,
        );
        assert_eq!(in_decode.unwrap_err().to_string(), message);
        message
    };
    assert_eq!(zero(|dims| dims.heads = 0), "`dims.heads` is 0, expected at least 1");
    assert_eq!(zero(|dims| dims.head_dim = 0), "`dims.head_dim` is 0, expected at least 1");
    assert_eq!(zero(|dims| dims.block = 0), "`dims.block` is 0, expected at least 1");
    assert_eq!(zero(|dims| dims.topk = 0), "`dims.topk` is 0, expected at least 1");
}

#[test]
fn queries() {
    let setup = setup();
    let other = Data::new(true, vec![1.0; 23]);
    assert_eq!(
        Call { queries: other.values(), ..Call::new(&setup) }.refused(),
        "`queries` has 23 elements, expected a multiple of those of the shape [2, 4]"
    );
    let huge = IndexerDims { heads: usize::MAX, ..DIMS };
    assert_eq!(
        Call { dims: huge, ..Call::new(&setup) }.refused(),
        format!("`queries` has 24 elements, expected a multiple of those of the shape [{}, 4]", usize::MAX)
    );
    let decoded = |queries: usize, length: usize| {
        let queries = vec![bf16::ONE; queries];
        let (keys, mut ids) = (Keys::Plain(setup.keys.values()), [-77; 4]);
        let queries = Values::Bf16(&queries);
        let result = decode(Level::SCALAR, &pool(1), &DIMS, queries, keys, length, &mut ids, None);
        assert_eq!(ids, [-77; 4], "the output was touched");
        result.unwrap_err().to_string()
    };
    assert_eq!(decoded(16, LENGTH), "`query` has 16 elements, expected those of the shape [2, 4]");
    assert_eq!(decoded(8, 0), "`length` is 0, expected at least 1, the key of the query itself");
}

#[test]
fn positions() {
    let setup = setup();
    assert_eq!(
        Call { start: 28, ..Call::new(&setup) }.refused(),
        "`start` is 28 with 3 queries, expected all of them below `length`, 30"
    );
    assert_eq!(
        Call { start: usize::MAX, ..Call::new(&setup) }.refused(),
        format!("`start` is {} with 3 queries, expected all of them below `length`, 30", usize::MAX)
    );
}

#[test]
fn outputs() {
    let setup = setup();
    assert_eq!(
        Call { ids: 11, ..Call::new(&setup) }.refused(),
        "`ids` has 11 elements, expected those of the shape [3, 2, 2]"
    );
    assert_eq!(
        Call { scores: 25, ..Call::new(&setup) }.refused(),
        "`scores` has 25 elements, expected those of the shape [3, 2, 4]"
    );
}

#[test]
fn plain_keys() {
    let setup = setup();
    let keys = Data::new(true, vec![1.0; 119]);
    assert_eq!(
        Call { keys: Keys::Plain(keys.values()), ..Call::new(&setup) }.refused(),
        "`keys` has 119 elements, expected a multiple of those of the shape [4]"
    );
    assert_eq!(
        Call { length: 31, ..Call::new(&setup) }.refused(),
        "`length` is 31, expected at most 30, the number of keys"
    );
}

#[test]
fn paged_keys() {
    let setup = setup();
    // Five pages for four blocks.
    let pages = Data::new(true, vec![1.0; 5 * 8 * 4]);
    let with = |block_table: &[i32]| {
        let keys = Keys::Paged { pages: pages.values(), block_table };
        Call { keys, ..Call::new(&setup) }.refused()
    };
    assert_eq!(with(&[0, 1, 2]), "`block_table` has 3 entries, expected at least 4, one for each block");
    assert_eq!(with(&[0, 1, -1, 2]), "`block_table[2]` is -1, expected 0 or more and less than 5");
    assert_eq!(with(&[0, 1, 2, 5]), "`block_table[3]` is 5, expected 0 or more and less than 5");
    assert_eq!(with(&[i32::MIN, 1, 2, 3]), "`block_table[0]` is -2147483648, expected 0 or more and less than 5");
    let pages = Data::new(true, vec![1.0; 5 * 8 * 4 + 4]);
    let keys = Keys::Paged { pages: pages.values(), block_table: &[0, 1, 2, 3] };
    assert_eq!(
        Call { keys, ..Call::new(&setup) }.refused(),
        "`keys` has 164 elements, expected a multiple of those of the shape [8, 4]"
    );
}

#[test]
fn packed_keys() {
    let setup = setup();
    let packed = setup.layouts(Level::SCALAR).packed;
    let with = |blocks: &dyn PackedKeys, block_table: Option<&[i32]>| {
        Call { keys: Keys::Packed { blocks, block_table }, ..Call::new(&setup) }.refused()
    };
    let three = packed[..3].to_vec();
    assert_eq!(with(&three, None), "`length` is 30, expected at most 24, the number of keys");
    assert_eq!(with(&three, Some(&[0, 1, 2])), "`block_table` has 3 entries, expected at least 4, one for each block");
    assert_eq!(with(&three, Some(&[0, 1, 2, 3])), "`block_table[3]` is 3, expected 0 or more and less than 3");
    assert_eq!(with(&three, Some(&[0, -2, 2, 1])), "`block_table[1]` is -2, expected 0 or more and less than 3");

    let pack_one = |dims: IndexerDims, is_bf16| {
        pack(Level::SCALAR, &dims, &Data::new(is_bf16, vec![1.0; dims.block * dims.head_dim])).remove(0)
    };
    let mut other = packed.clone();
    other[2] = pack_one(IndexerDims { head_dim: 5, ..DIMS }, true);
    assert_eq!(with(&other, None), "packed block 2 has shape [8, 5], expected [8, 4]");
    other[2] = pack_one(IndexerDims { block: 7, ..DIMS }, true);
    assert_eq!(with(&other, None), "packed block 2 has shape [7, 4], expected [8, 4]");
    other[2] = pack_one(DIMS, false);
    assert_eq!(with(&other, None), "packed block 2 is f32, expected the format of the first block");
    // A block that the table leaves out is not looked at.
    let mut four = other.clone();
    four.push(packed[2].clone());
    let keys = Keys::Packed { blocks: &four, block_table: Some(&[0, 1, 4, 3]) };
    assert_eq!(setup.run(Level::SCALAR, &pool(1), keys).unwrap(), setup.expected());

    let codes = vec![cpu_tiles::F8E4M3::default(); 32];
    let codes = WeightRef::fp8_block(8, 4, &codes, &[1.0]).unwrap();
    other[0] = PackedWeight::pack(Level::SCALAR, &pool(1), codes).unwrap();
    assert_eq!(with(&other, None), "packed block 0 is fp8, expected bf16 or f32");
}

/// One block for all places, as many as are asked for.
struct Endless(Vec<bf16>);

impl PackedKeys for Endless {
    fn blocks(&self) -> usize {
        usize::MAX
    }

    fn block(&self, _: usize) -> PackedRef<'_> {
        PackedRef::bf16(8, 4, 4, &self.0).unwrap()
    }
}

#[test]
fn more_blocks_than_ids() {
    let setup = setup();
    let blocks = Endless(vec![bf16::ONE; 64 * 4]);
    let keys = Keys::Packed { blocks: &blocks, block_table: None };
    let length = (i32::MAX as usize + 1) * 8;
    assert_eq!(
        Call { keys, length, ..Call::new(&setup) }.refused(),
        "`length` makes 2147483648 blocks, expected at most 2147483647"
    );
}

#[test]
fn the_oracle_checks_its_arguments() {
    let (queries, keys) = (Array3::<f32>::zeros((3, 2, 4)), Array2::<f32>::zeros((30, 4)));
    let scored = |dims: IndexerDims, start| {
        reference::block_scores(&dims, queries.view(), start, keys.view()).unwrap_err().to_string()
    };
    assert_eq!(scored(IndexerDims { topk: 0, ..DIMS }, 0), "`dims.topk` is 0, expected at least 1");
    let other = IndexerDims { heads: 3, ..DIMS };
    assert_eq!(scored(other, 0), "`queries` has shape [3, 2, 4], expected [3, 3, 4]");
    assert_eq!(scored(DIMS, 28), "`start` is 28 with 3 queries, expected all of them below `length`, 30");
    let other = Array2::<f32>::zeros((30, 5));
    let message = reference::block_scores(&DIMS, queries.view(), 0, other.view()).unwrap_err().to_string();
    assert_eq!(message, "`keys` has shape [30, 5], expected [30, 4]");
    let scores = Array3::zeros((3, 1, 4));
    let selected = |start| reference::select(&DIMS, scores.view(), start).unwrap_err().to_string();
    assert_eq!(selected(0), "`scores` has shape [3, 1, 4], expected [3, 2, 4]");
    let scores = Array3::zeros((3, 2, 4));
    let selected = |start| reference::select(&DIMS, scores.view(), start).unwrap_err().to_string();
    assert_eq!(selected(30), "`start` is 30 with 3 queries, expected all of them below `length`, 32");
}

#[test]
fn errors_of_the_tiles_are_passed_on() {
    let error = Error::from(ShapeError::Mismatch { what: "size", expected: 1, found: 2 });
    assert_eq!(error.to_string(), "the CPU tiles failed: size is 2, expected 1");
    assert!(std::error::Error::source(&error).is_some());
}
