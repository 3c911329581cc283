// SPDX-License-Identifier: MIT OR Apache-2.0

//! Which blocks are selected, on scores that are written down: blocks of one key of one value, and a query of ones.

use crate::fixture::{Owned, REDUCES, Sequence, dims, levels};
use msa_indexer::{HeadReduce, IndexerDims};

/// Top-k of one head with this many blocks forced.
fn selector(topk: usize, init_blocks: usize, local_blocks: usize) -> IndexerDims {
    IndexerDims { init_blocks, local_blocks, ..dims(1, 1, 1, topk) }
}

/// The blocks that the query at the last position gets.
fn ids(dims: IndexerDims, scores: &[f32]) -> Vec<i32> {
    let sequence = Sequence::of_scores(dims, scores);
    let mut results = levels().into_iter().map(|level| sequence.run(level).0);
    let first = results.next().unwrap();
    assert!(results.all(|other| other == first), "levels differ");
    assert_eq!(first, sequence.expected().0, "the reference");
    first
}

#[test]
fn the_best_blocks_ascending() {
    let scores = [3.0, -1.0, 5.0, 4.0, 1.0, 2.0];
    assert_eq!(ids(selector(3, 0, 0), &scores), [0, 2, 3]);
    assert_eq!(ids(selector(1, 0, 0), &scores), [2]);
    // Forced blocks count into top-k.
    assert_eq!(ids(selector(3, 0, 1), &scores), [2, 3, 5]);
    assert_eq!(ids(selector(3, 1, 1), &scores), [0, 2, 5]);
    assert_eq!(ids(selector(4, 2, 1), &scores), [0, 1, 2, 5]);
    assert_eq!(ids(selector(4, 0, 3), &scores), [2, 3, 4, 5]);
}

#[test]
fn a_budget_below_the_forced_blocks() {
    let scores = [-5.0, -4.0, 9.0, 8.0, -3.0, -2.0];
    // Init blocks first, the lowest of them; then local ones, the latest.
    assert_eq!(ids(selector(3, 2, 2), &scores), [0, 1, 5]);
    assert_eq!(ids(selector(2, 2, 2), &scores), [0, 1]);
    assert_eq!(ids(selector(1, 2, 2), &scores), [0]);
    assert_eq!(ids(selector(2, 0, 4), &scores), [4, 5]);
    assert_eq!(ids(selector(4, 2, 2), &scores), [0, 1, 4, 5]);
    assert_eq!(ids(selector(2, usize::MAX, usize::MAX), &scores), [0, 1]);
    assert_eq!(ids(selector(2, 0, usize::MAX), &scores), [4, 5]);
}

/// Scores decide nothing then, NaN neither.
#[test]
fn as_many_blocks_as_topk_or_fewer_are_all_selected() {
    for (topk, blocks) in [(4, 1), (4, 3), (4, 4), (1, 1), (usize::MAX, 5)] {
        let mut scores: Vec<f32> = (0..blocks).map(|block| -(block as f32)).collect();
        scores[blocks / 2] = f32::NAN;
        let all: Vec<i32> = (0..blocks as i32).collect();
        for (init, local) in [(0, 0), (0, 1), (1, 2), (9, 9)] {
            assert_eq!(ids(selector(topk, init, local), &scores), all);
        }
    }
    assert_eq!(ids(selector(4, 0, 1), &[0.0, 1.0, 2.0, 3.0, 4.0]), [1, 2, 3, 4]);
}

#[test]
fn ties_go_to_the_lower_id() {
    assert_eq!(ids(selector(3, 0, 0), &[2.0; 9]), [0, 1, 2]);
    assert_eq!(ids(selector(3, 0, 1), &[2.0; 9]), [0, 1, 8]);
    assert_eq!(ids(selector(3, 1, 1), &[2.0; 9]), [0, 1, 8]);
    // Some better, some worse, and a tie for the last place.
    assert_eq!(ids(selector(4, 0, 1), &[1.0, 3.0, 0.0, 3.0, 9.0, 3.0, 1.0, 3.0]), [1, 3, 4, 7]);
    assert_eq!(ids(selector(2, 0, 0), &[0.0, 1.0, 7.0, 1.0]), [1, 2]);
    assert_eq!(ids(selector(2, 0, 0), &[f32::NEG_INFINITY; 5]), [0, 1]);
    assert_eq!(ids(selector(2, 0, 0), &[f32::INFINITY; 5]), [0, 1]);
    // Scores that F32 tells apart are no tie.
    assert_eq!(ids(selector(1, 0, 0), &[1.0, 1.0 + f32::EPSILON, 1.0]), [1]);
}

#[test]
fn zeros_of_both_signs_tie() {
    assert_eq!(ids(selector(1, 0, 0), &[-1.0, -0.0, 0.0, -1.0]), [1]);
    assert_eq!(ids(selector(1, 0, 0), &[-1.0, 0.0, -0.0, -1.0]), [1]);
}

#[test]
fn nan_comes_before_every_number_and_behind_forced_blocks() {
    const NAN: f32 = f32::NAN;
    assert_eq!(ids(selector(2, 0, 0), &[f32::INFINITY, 1.0, NAN, 2.0]), [0, 2]);
    assert_eq!(ids(selector(1, 0, 0), &[f32::INFINITY, 1.0, NAN, 2.0]), [2]);
    assert_eq!(ids(selector(2, 0, 0), &[1.0, NAN, NAN, -NAN, NAN]), [1, 2]);
    assert_eq!(ids(selector(2, 1, 1), &[1.0, NAN, NAN, 2.0]), [0, 3]);
    assert_eq!(ids(selector(3, 1, 1), &[1.0, 5.0, NAN, 2.0]), [0, 2, 3]);
    assert_eq!(ids(selector(3, 0, 1), &[1.0, 5.0, 2.0, NAN]), [1, 2, 3]);
}

/// 40 blocks; head `h` has its best keys in the blocks `b` with `b % 4 == h`, and the later the better.
#[test]
fn heads_of_different_taste_select_different_blocks() {
    let dims = IndexerDims { topk: 6, head_dim: 4, ..IndexerDims::M3 };
    let key = |key: usize, channel: usize| {
        let block = key / dims.block;
        // One key of a block, at a place of its own, counts.
        match key % dims.block == block * 3 {
            true if block % 4 == channel => 100.0 + block as f32,
            _ => -(block as f32),
        }
    };
    let one_hot = (0..16).map(|i| if i / 4 == i % 4 { 1.0 } else { 0.0 });
    let sequence = Sequence {
        dims,
        start: 40 * dims.block - 1,
        queries: Owned::F32(one_hot.collect()),
        keys: Owned::F32((0..40 * dims.block * 4).map(|i| key(i / 4, i % 4)).collect()),
    };
    for level in levels() {
        let (ids, scores) = sequence.run(level);
        let per_head =
            [[20, 24, 28, 32, 36, 39], [21, 25, 29, 33, 37, 39], [22, 26, 30, 34, 38, 39], [19, 23, 27, 31, 35, 39]];
        assert_eq!(ids, per_head.concat(), "{level}");
        assert!((0..4).all(|head| scores[head * 40 + 12 + head] == 112.0 + head as f32), "{level}");

        let (ids, scores) = sequence.with_reduce(HeadReduce::Shared).run(level);
        assert_eq!(ids, [34, 35, 36, 37, 38, 39], "{level}");
        assert!(scores.iter().enumerate().all(|(block, &score)| score == 100.0 + block as f32), "{level}");
    }
}

/// A query competes with the blocks it sees; what it does not see is -1 in its ids and minus infinity in its scores.
#[test]
fn early_queries_of_a_prefill() {
    for reduce in REDUCES {
        let dims = IndexerDims { reduce, ..dims(1, 1, 2, 3) };
        // Pairs of keys make the block scores 9, 8, 7, 1, 5.
        let keys = vec![0.0, 9.0, 8.0, 2.0, 7.0, 3.0, 1.0, 0.0, 5.0, 4.0];
        let sequence = Sequence { dims, start: 0, queries: Owned::F32(vec![1.0; 10]), keys: Owned::F32(keys) };
        for level in levels() {
            let (ids, scores) = sequence.run(level);
            let by_query: Vec<&[i32]> = ids.chunks_exact(3).collect();
            assert_eq!(by_query[..2], [[0, -1, -1]; 2]);
            assert_eq!(by_query[2..4], [[0, 1, -1]; 2]);
            assert_eq!(by_query[4..6], [[0, 1, 2]; 2]);
            assert_eq!(by_query[6..8], [[0, 1, 3]; 2]);
            assert_eq!(by_query[8..], [[0, 1, 4]; 2]);
            let none = f32::NEG_INFINITY;
            // The first key of a block alone, then both.
            assert_eq!(scores[..5], [0.0, none, none, none, none]);
            assert_eq!(scores[5..10], [9.0, none, none, none, none]);
            assert_eq!(scores[40..45], [9.0, 8.0, 7.0, 1.0, 5.0]);
        }
    }
}
