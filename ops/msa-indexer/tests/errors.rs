// SPDX-License-Identifier: MIT OR Apache-2.0

//! Every check with its message, and what no refused call touches.

use crate::fixture::{dims, pool};
use cpu_tiles::{F8E4M3, Level, PackedRef, PackedWeight, WeightRef};
use half::bf16;
use msa_indexer::{Error, HeadReduce, IndexerDims, Keys, Values, decode, prefill, reference};
use ndarray::{Array2, Array3};

const ID: i32 = -77;
const SCORE: f32 = -77.0;
/// A query is 6 values, a key 3, a block 2 keys.
const DIMS: IndexerDims = dims(2, 3, 2, 2);

fn message<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().to_string()
}

/// The message of a prefill of queries of `queries` values, which leaves outputs of these sizes as they were.
fn refused_of(
    dims: IndexerDims,
    queries: usize,
    start: usize,
    keys: Keys<'_>,
    length: usize,
    ids: usize,
    scores: Option<usize>,
) -> String {
    let queries = vec![1.0; queries];
    let (mut ids, mut scores) = (vec![ID; ids], scores.map(|scores| vec![SCORE; scores]));
    let (level, queries) = (Level::SCALAR, Values::F32(&queries));
    let result = prefill(level, &pool(1), &dims, queries, start, keys, length, &mut ids, scores.as_deref_mut());
    let message = message(result);
    assert!(ids.iter().all(|&id| id == ID), "{message}: ids were touched");
    assert!(scores.into_iter().flatten().all(|score| score == SCORE), "{message}: scores were touched");
    message
}

/// The message for keys, with two queries at the end of a sequence of 5: 3 blocks, of which 2 are selected by each of 2 heads.
fn refused_keys(keys: Keys<'_>) -> String {
    refused_of(DIMS, 12, 3, keys, 5, 8, Some(12))
}

fn five_keys() -> Keys<'static> {
    Keys::Plain(Values::F32(&[1.0; 15]))
}

#[test]
fn dims_that_cannot_be() {
    let zero = |change: fn(&mut IndexerDims)| {
        let mut dims = DIMS;
        change(&mut dims);
        let none = Keys::Plain(Values::F32(&[]));
        let of_prefill = refused_of(dims, 0, 0, none, 0, 0, None);
        let step = decode(Level::SCALAR, &pool(1), &dims, Values::F32(&[]), none, 0, &mut [], None);
        assert_eq!(message(step), of_prefill);
        let empty = Array3::<f32>::zeros((0, 0, 0));
        let keys = Array2::<f32>::zeros((0, 0));
        assert_eq!(message(reference::block_scores(&dims, empty.view(), 0, keys.view())), of_prefill);
        assert_eq!(message(reference::select(&dims, empty.view(), 0)), of_prefill);
        of_prefill
    };
    assert_eq!(zero(|dims| dims.heads = 0), "`dims.heads` is 0, expected at least 1");
    assert_eq!(zero(|dims| dims.head_dim = 0), "`dims.head_dim` is 0, expected at least 1");
    assert_eq!(zero(|dims| dims.block = 0), "`dims.block` is 0, expected at least 1");
    assert_eq!(zero(|dims| dims.topk = 0), "`dims.topk` is 0, expected at least 1");
}

#[test]
fn decode_arguments() {
    let refused = |query: usize, length: usize, ids: usize, scores: usize| {
        let query = vec![1.0; query];
        let (mut ids, mut scores) = (vec![ID; ids], vec![SCORE; scores]);
        let (query, out) = (Values::F32(&query), Some(&mut scores[..]));
        let message = message(decode(Level::SCALAR, &pool(1), &DIMS, query, five_keys(), length, &mut ids, out));
        assert!(ids.iter().all(|&id| id == ID) && scores.iter().all(|&score| score == SCORE), "{message}");
        message
    };
    assert_eq!(refused(5, 5, 4, 6), "`query` has 5 elements, expected those of the shape [2, 3]");
    assert_eq!(refused(12, 5, 4, 6), "`query` has 12 elements, expected those of the shape [2, 3]");
    assert_eq!(refused(6, 0, 4, 6), "`length` is 0, expected at least 1, the key of the query itself");
    assert_eq!(refused(6, 6, 4, 6), "`length` is 6, expected at most 5, the number of keys");
    assert_eq!(refused(6, 5, 3, 6), "`ids` has 3 elements, expected those of the shape [1, 2, 2]");
    assert_eq!(refused(6, 2, 4, 2), "`ids` has 4 elements, expected those of the shape [1, 2, 1]");
    assert_eq!(refused(6, 5, 4, 7), "`scores` has 7 elements, expected those of the shape [1, 2, 3]");
}

#[test]
fn queries_and_positions() {
    let refused = |queries: usize, start: usize| refused_of(DIMS, queries, start, five_keys(), 5, 8, Some(12));
    assert_eq!(refused(11, 3), "`queries` has 11 elements, expected a multiple of those of the shape [2, 3]");
    assert_eq!(refused(12, 4), "`start` is 4 with 2 queries, expected all of them below `length`, 5");
    assert_eq!(refused(0, 6), "`start` is 6 with 0 queries, expected all of them below `length`, 5");
    assert_eq!(
        refused(12, usize::MAX),
        format!("`start` is {} with 2 queries, expected all of them below `length`, 5", usize::MAX)
    );
    // Absurd sizes are refused as well, before anything is allocated for them.
    let absurd = IndexerDims { heads: usize::MAX, ..DIMS };
    assert_eq!(
        refused_of(absurd, 6, 0, five_keys(), 5, 8, None),
        format!("`queries` has 6 elements, expected a multiple of those of the shape [{}, 3]", usize::MAX)
    );
}

#[test]
fn outputs() {
    let refused = |ids: usize, scores: Option<usize>| refused_of(DIMS, 12, 3, five_keys(), 5, ids, scores);
    assert_eq!(refused(7, Some(12)), "`ids` has 7 elements, expected those of the shape [2, 2, 2]");
    assert_eq!(refused(9, None), "`ids` has 9 elements, expected those of the shape [2, 2, 2]");
    assert_eq!(refused(8, Some(11)), "`scores` has 11 elements, expected those of the shape [2, 2, 3]");
    let shared = IndexerDims { reduce: HeadReduce::Shared, ..DIMS };
    assert_eq!(
        refused_of(shared, 12, 3, five_keys(), 5, 8, None),
        "`ids` has 8 elements, expected those of the shape [2, 1, 2]"
    );
    assert_eq!(
        refused_of(shared, 12, 3, five_keys(), 5, 4, Some(12)),
        "`scores` has 12 elements, expected those of the shape [2, 1, 3]"
    );
    // No queries have no outputs.
    assert_eq!(
        refused_of(DIMS, 0, 3, five_keys(), 5, 1, None),
        "`ids` has 1 elements, expected those of the shape [0, 2, 2]"
    );
}

#[test]
fn plain_keys() {
    let refused = |keys: usize| refused_keys(Keys::Plain(Values::F32(&vec![1.0; keys])));
    assert_eq!(refused(16), "`keys` has 16 elements, expected a multiple of those of the shape [3]");
    assert_eq!(refused(12), "`length` is 5, expected at most 4, the number of keys");
    let one_key = IndexerDims { block: 1, ..DIMS };
    assert_eq!(
        refused_of(one_key, 0, 0, five_keys(), usize::MAX, 0, None),
        format!("`length` makes {} blocks, expected at most 2147483647", usize::MAX)
    );
}

#[test]
fn paged_keys() {
    // Pages are 6 values.
    let refused = |pages: usize, block_table: &[i32]| {
        let pages = vec![1.0; pages];
        refused_keys(Keys::Paged { pages: Values::F32(&pages), block_table })
    };
    assert_eq!(refused(20, &[0, 1, 2]), "`keys` has 20 elements, expected a multiple of those of the shape [2, 3]");
    assert_eq!(refused(18, &[0, 1]), "`block_table` has 2 entries, expected at least 3, one for each block");
    assert_eq!(refused(18, &[0, 3, 9]), "`block_table[1]` is 3, expected 0 or more and less than 3");
    assert_eq!(refused(18, &[0, 2, -1]), "`block_table[2]` is -1, expected 0 or more and less than 3");
    assert_eq!(refused(18, &[i32::MIN, 2, 0]), "`block_table[0]` is -2147483648, expected 0 or more and less than 3");
    let huge = IndexerDims { block: usize::MAX, ..DIMS };
    let keys = Keys::Paged { pages: Values::F32(&[1.0; 6]), block_table: &[0] };
    assert_eq!(
        refused_of(huge, 12, 3, keys, 5, 4, None),
        format!("`keys` has 6 elements, expected a multiple of those of the shape [{}, 3]", usize::MAX)
    );
}

/// Packed blocks `[n, k]` of ones, F32.
fn packed(shapes: &[[usize; 2]]) -> Vec<PackedWeight> {
    let pack = |[n, k]: [usize; 2]| {
        let values = vec![1.0; n * k];
        PackedWeight::pack(Level::SCALAR, &pool(1), WeightRef::f32(n, k, &values).unwrap()).unwrap()
    };
    shapes.iter().copied().map(pack).collect()
}

#[test]
fn packed_keys() {
    let refused = |shapes: &[[usize; 2]], block_table: Option<&[i32]>| {
        refused_keys(Keys::Packed { blocks: &packed(shapes), block_table })
    };
    let three = [[2, 3]; 3];
    assert_eq!(refused(&three[..2], None), "`length` is 5, expected at most 4, the number of keys");
    assert_eq!(refused(&three, Some(&[0, 1])), "`block_table` has 2 entries, expected at least 3, one for each block");
    assert_eq!(refused(&three, Some(&[0, 3, 1])), "`block_table[1]` is 3, expected 0 or more and less than 3");
    assert_eq!(refused(&three, Some(&[0, 1, -5])), "`block_table[2]` is -5, expected 0 or more and less than 3");
    assert_eq!(refused(&[[2, 3], [1, 3], [2, 3]], None), "packed block 1 has shape [1, 3], expected [2, 3]");
    assert_eq!(refused(&[[2, 3], [2, 3], [2, 4]], None), "packed block 2 has shape [2, 4], expected [2, 3]");
    // Counted as the collection does.
    assert_eq!(
        refused(&[[2, 3], [2, 3], [4, 3]], Some(&[2, 0, 1])),
        "packed block 2 has shape [4, 3], expected [2, 3]"
    );
}

#[test]
fn packed_formats() {
    let f32_blocks = packed(&[[2, 3]; 2]);
    let (values, codes) = ([bf16::ONE; 6], [F8E4M3::from_bits(0x38); 6]);
    let pack = |weight| PackedWeight::pack(Level::SCALAR, &pool(1), weight).unwrap();
    let bf16_block = pack(WeightRef::bf16(2, 3, &values).unwrap());
    let fp8_block = pack(WeightRef::fp8_block(2, 3, &codes, &[1.0]).unwrap());
    let refused = |blocks: [&PackedWeight; 3]| {
        let blocks: Vec<PackedRef<'_>> = blocks.map(PackedWeight::as_ref).to_vec();
        refused_keys(Keys::Packed { blocks: &blocks, block_table: None })
    };
    let [first, second] = &f32_blocks[..] else { unreachable!() };
    let fp8 = fp8_block.format();
    assert_eq!(refused([&fp8_block, first, second]), format!("packed block 0 is {fp8}, expected bf16 or f32"));
    assert_eq!(
        refused([first, &fp8_block, second]),
        format!("packed block 1 is {fp8}, expected the format of the first block")
    );
    let bf16 = bf16_block.format();
    assert_eq!(
        refused([first, second, &bf16_block]),
        format!("packed block 2 is {bf16}, expected the format of the first block")
    );
}

#[test]
fn reference_arguments() {
    let scores = |queries: (usize, usize, usize), start: usize, keys: (usize, usize)| {
        let (queries, keys) = (Array3::<f32>::zeros(queries), Array2::<f32>::zeros(keys));
        message(reference::block_scores(&DIMS, queries.view(), start, keys.view()))
    };
    assert_eq!(scores((4, 3, 3), 0, (5, 3)), "`queries` has shape [4, 3, 3], expected [4, 2, 3]");
    assert_eq!(scores((4, 2, 3), 0, (5, 4)), "`keys` has shape [5, 4], expected [5, 3]");
    assert_eq!(scores((4, 2, 3), 2, (5, 3)), "`start` is 2 with 4 queries, expected all of them below `length`, 5");
    let select = |scores: (usize, usize, usize), start: usize| {
        message(reference::select(&DIMS, Array3::zeros(scores).view(), start))
    };
    assert_eq!(select((4, 1, 3), 0), "`scores` has shape [4, 1, 3], expected [4, 2, 3]");
    assert_eq!(select((4, 2, 3), 3), "`start` is 3 with 4 queries, expected all of them below `length`, 6");
}

#[test]
fn keys_say_what_they_are() {
    let blocks = packed(&[[2, 3]; 2]);
    let (pages, table) = (Values::Bf16(&[bf16::ONE; 6]), [0, 0, 0]);
    assert_eq!(format!("{:?}", five_keys()), "Keys::Plain(15 f32 values)");
    assert_eq!(format!("{:?}", Keys::Paged { pages, block_table: &table }), "Keys::Paged(6 bf16 values, table of 3)");
    assert_eq!(
        format!("{:?}", Keys::Packed { blocks: &blocks, block_table: None }),
        "Keys::Packed(2 blocks, table of None)"
    );
}

/// Sizes at the end of their range that are no errors.
#[test]
fn sizes_without_bounds() {
    let dims = IndexerDims { block: usize::MAX, topk: usize::MAX, init_blocks: usize::MAX, ..DIMS };
    let (mut ids, mut scores) = ([ID; 2], [SCORE; 2]);
    let query = Values::F32(&[1.0; 6]);
    decode(Level::SCALAR, &pool(1), &dims, query, five_keys(), 5, &mut ids, Some(&mut scores)).unwrap();
    assert_eq!((ids, scores), ([0; 2], [3.0; 2]));
    prefill(Level::SCALAR, &pool(1), &dims, Values::F32(&[]), 0, Keys::Plain(Values::F32(&[])), 0, &mut [], None)
        .unwrap();
}
