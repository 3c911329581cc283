// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sizes around every edge: of blocks, of tiles of queries, of tasks, of waves; every prefix; every number of threads.

use crate::fixture::{KINDS, Kind, REDUCES, Sequence, check, dims, levels, pool};
use cpu_tiles::Level;
use msa_indexer::{HeadReduce, IndexerDims};
use op_testkit::compare::assert_same_bits;

/// The lengths around the first blocks, and around the one from which on blocks are selected.
#[test]
fn lengths_around_block_edges() {
    for length in [1, 2, 127, 128, 129, 255, 256, 257, 2047, 2048, 2049, 2175, 2176, 2177] {
        for kind in [Kind::Bf16, Kind::Integers] {
            let sequence = Sequence::of_decode(IndexerDims::M3, kind, length, 40);
            for reduce in REDUCES {
                let sequence = sequence.with_reduce(reduce);
                let expected = sequence.expected();
                let blocks = length.div_ceil(128);
                assert_eq!(sequence.ids_shape()[2], blocks.min(16));
                for level in Level::available() {
                    let actual = sequence.run_all_layouts(level);
                    check(&sequence, &actual, &expected, kind.tolerance())
                        .unwrap_or_else(|report| panic!("{length} {kind:?} {level}: {report}"));
                    assert!(actual.0.chunks_exact(blocks.min(16)).all(|ids| ids.ends_with(&[blocks as i32 - 1])));
                }
            }
        }
    }
}

/// Numbers of queries around tiles of 96 rows, and of blocks around tasks of 8.
#[test]
fn edges_of_tiles_and_tasks() {
    for heads in [1, 4, 7] {
        let tile = 96 / heads;
        for queries in [1, tile - 1, tile, tile + 1, 2 * tile, 2 * tile + 1] {
            for blocks in [7, 8, 9, 16, 17] {
                let length = (blocks * 8 - 3).max(queries);
                let dims = dims(heads, 6, 8, 5);
                let sequence = Sequence::new(dims, Kind::Integers, length - queries, queries, length, 60);
                let expected = sequence.expected();
                for level in Level::available() {
                    check(&sequence, &sequence.run(level), &expected, Kind::Integers.tolerance())
                        .unwrap_or_else(|report| panic!("{heads} {queries} {blocks} {level}: {report}"));
                }
            }
        }
    }
}

/// More scores of heads than exist at a time.
#[test]
fn waves() {
    for reduce in REDUCES {
        let dims = IndexerDims { reduce, ..dims(4, 2, 1, 9) };
        let sequence = Sequence::new(dims, Kind::Integers, 0, 900, 900, 70);
        let expected = sequence.expected();
        for level in Level::available() {
            check(&sequence, &sequence.run(level), &expected, Kind::Integers.tolerance()).unwrap();
        }
    }
}

/// A prefill gives the bits of a decode step at each of its positions.
#[test]
fn a_prefill_is_the_decode_of_every_prefix() {
    for kind in KINDS {
        for reduce in REDUCES {
            let dims = IndexerDims { init_blocks: 1, reduce, ..dims(3, 24, 16, 4) };
            let whole = Sequence::new(dims, kind, 0, 150, 150, 80);
            for level in levels() {
                let (ids, scores) = whole.run(level);
                let [_, selections, of_ids] = whole.ids_shape();
                let [_, _, of_scores] = whole.scores_shape();
                for position in 0..150 {
                    let step = whole.part(position..position + 1, position + 1);
                    let (step_ids, step_scores) = step.run(level);
                    let (few_ids, few_scores) = (step.ids_shape()[2], step.scores_shape()[2]);
                    for selection in 0..selections {
                        let at = position * selections + selection;
                        let (seen, behind) = ids[at * of_ids..][..of_ids].split_at(few_ids);
                        assert_eq!(seen, &step_ids[selection * few_ids..][..few_ids], "{level} {kind:?} {position}");
                        assert!(behind.iter().all(|&id| id == -1), "{level} {kind:?} {position}");
                        let (seen, behind) = scores[at * of_scores..][..of_scores].split_at(few_scores);
                        let of_step = &step_scores[selection * few_scores..][..few_scores];
                        assert_same_bits("scores", seen, of_step, &[few_scores]);
                        assert!(behind.iter().all(|&score| score == f32::NEG_INFINITY), "{level} {kind:?} {position}");
                    }
                }
            }
        }
    }
}

#[test]
fn threads() {
    for kind in KINDS {
        for reduce in REDUCES {
            let dims = IndexerDims { reduce, ..dims(4, 48, 16, 6) };
            for [start, queries, length] in [[699, 1, 700], [100, 250, 400]] {
                let sequence = Sequence::new(dims, kind, start, queries, length, 90);
                for level in levels() {
                    let run = |threads: usize| sequence.run_with(level, &pool(threads), sequence.plain());
                    let expected = run(1);
                    for threads in [2, 3, 8] {
                        let (actual, what) = (run(threads), format!("{threads} threads, {kind:?} at {level}"));
                        assert_eq!(actual.0, expected.0, "{what}");
                        assert_same_bits(&what, &actual.1, &expected.1, &sequence.scores_shape());
                    }
                }
            }
        }
    }
}

/// Levels with fused multiply-adds, the models too, give the same bits, and so do F32 queries of BF16 values.
#[test]
fn levels_and_formats() {
    for [start, queries, length] in [[499, 1, 500], [0, 60, 60]] {
        let sequence = Sequence::new(dims(4, 50, 16, 6), Kind::Bf16, start, queries, length, 95);
        let mut wide = sequence.clone();
        wide.queries = crate::fixture::Owned::F32(sequence.queries.wide());
        let mut wider = wide.clone();
        wider.keys = crate::fixture::Owned::F32(sequence.keys.wide());
        let fused = || levels().into_iter().filter(|&level| level != Level::SCALAR);
        let Some(first) = fused().next() else { return };
        for reduce in [HeadReduce::PerKvHead, HeadReduce::Shared] {
            let expected = sequence.with_reduce(reduce).run(first);
            for level in fused() {
                for sequence in [&sequence, &wide, &wider] {
                    let sequence = sequence.with_reduce(reduce);
                    let actual = sequence.run(level);
                    assert_eq!(actual.0, expected.0, "{level}");
                    assert_same_bits(level.name(), &actual.1, &expected.1, &sequence.scores_shape());
                }
            }
        }
    }
}
