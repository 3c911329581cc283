// SPDX-License-Identifier: MIT OR Apache-2.0

//! What must hold whatever the numbers are.

use crate::fixture::{Data, Setup, integers, levels, pool};
use cpu_tiles::Level;
use msa_indexer::{HeadReduce, IndexerDims};
use op_testkit::compare::assert_same_bits;
use op_testkit::fill_f32;
use op_testkit::strategies::tile_edge_size;
use proptest::prelude::*;
use proptest::sample::select;

fn all_dims() -> impl Strategy<Value = IndexerDims> {
    let sizes = (1..=7usize, tile_edge_size(1..=70), tile_edge_size(1..=130));
    let choice = (1..=9usize, 0..=4usize, 0..=4usize, select(vec![HeadReduce::PerKvHead, HeadReduce::Shared]));
    (sizes, choice).prop_map(|((heads, head_dim, block), (topk, init_blocks, local_blocks, reduce))| IndexerDims {
        heads,
        head_dim,
        block,
        topk,
        init_blocks,
        local_blocks,
        reduce,
    })
}

/// Sequences of up to about `blocks` blocks, of integers or of numbers whose sums are rounded.
fn setups(blocks: usize, exact: bool) -> impl Strategy<Value = Setup> {
    (all_dims(), any::<[bool; 2]>(), 1..=40usize, 1..=blocks, any::<u32>()).prop_flat_map(
        move |(dims, is_bf16, count, blocks, seed)| {
            let longest = (blocks * dims.block).max(count);
            (count..=longest).prop_map(move |length| {
                let mut setup = Setup::new(dims, is_bf16, count, length, seed.into());
                if !exact {
                    let rounded = |data: &Data, seed, is_bf16| {
                        let values = fill_f32(seed, data.to_f32().len(), 1.0);
                        Data::new(is_bf16, values)
                    };
                    setup.queries = rounded(&setup.queries, seed.into(), is_bf16[0]);
                    setup.keys = rounded(&setup.keys, u64::from(seed) + 1, is_bf16[1]);
                }
                setup
            })
        },
    )
}

/// The part of a call's output that belongs to query `query`.
fn of_query<T>(values: &[T], count: usize, query: usize) -> &[T] {
    let size = values.len() / count;
    &values[query * size..(query + 1) * size]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn ids_and_scores_are_those_of_the_reference(setup in setups(12, true), level in select(levels())) {
        let expected = setup.expected();
        let out = setup.run_all(level, &pool(2)).unwrap();
        prop_assert_eq!(out.ids, expected.ids);
        prop_assert_eq!(out.scores, expected.scores);
    }

    /// The ids of rounded scores are the best by these scores themselves.
    #[test]
    fn ids_are_the_best_by_the_scores_given(setup in setups(30, false), level in select(Level::available())) {
        let out = setup.run_all(level, &pool(2)).unwrap();
        let dims = &setup.dims;
        let shape = dims.scores_shape(setup.count(), setup.length());
        let scores = ndarray::ArrayView3::from_shape(shape, &out.scores).unwrap();
        let ids = msa_indexer::reference::select(dims, scores, setup.start).unwrap();
        prop_assert_eq!(out.ids, ids.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn prefill_equals_the_decode_of_every_prefix(setup in setups(6, false), level in select(Level::available())) {
        let (count, head_dim) = (setup.count(), setup.dims.head_dim);
        let whole = setup.run_all(level, &pool(2)).unwrap();
        for query in 0..count {
            let length = setup.start + query + 1;
            let cut = |data: &Data, range: std::ops::Range<usize>| {
                Data::new(matches!(data, Data::Bf16(_)), data.to_f32()[range].to_vec())
            };
            let of_one = setup.dims.heads * head_dim;
            let alone = Setup {
                dims: setup.dims,
                queries: cut(&setup.queries, query * of_one..(query + 1) * of_one),
                start: length - 1,
                keys: cut(&setup.keys, 0..length * head_dim),
            };
            let keys = alone.layouts(level);
            let out = alone.run(level, &pool(1), keys.keys()[query % 4].1).unwrap();
            // A prefix has fewer blocks: the rest of the whole call's rows is padding.
            let blocks = setup.dims.blocks(length);
            let per_row = |values: usize| values / setup.dims.selections();
            let (ids, scores) = (of_query(&whole.ids, count, query), of_query(&whole.scores, count, query));
            let (of_ids, of_scores) = (per_row(ids.len()), per_row(scores.len()));
            for (row, ids) in ids.chunks_exact(of_ids).enumerate() {
                let (seen, padding) = ids.split_at(setup.dims.topk.min(blocks));
                prop_assert_eq!(seen, &out.ids[row * seen.len()..][..seen.len()]);
                prop_assert!(padding.iter().all(|id| *id == -1));
            }
            for (row, scores) in scores.chunks_exact(of_scores).enumerate() {
                let (seen, padding) = scores.split_at(blocks);
                assert_same_bits("prefix", seen, &out.scores[row * blocks..][..blocks], &[blocks]);
                prop_assert!(padding.iter().all(|score| *score == f32::NEG_INFINITY));
            }
        }
    }

    #[test]
    fn a_shared_score_is_the_largest_of_the_heads(mut setup in setups(10, false), level in select(Level::available())) {
        setup.dims.reduce = HeadReduce::PerKvHead;
        let per_head = setup.run_all(level, &pool(2)).unwrap();
        setup.dims.reduce = HeadReduce::Shared;
        let shared = setup.run_all(level, &pool(2)).unwrap();
        let blocks = setup.dims.blocks(setup.length());
        for (query, shared) in shared.scores.chunks_exact(blocks).enumerate() {
            for (block, &shared) in shared.iter().enumerate() {
                let of_query = of_query(&per_head.scores, setup.count(), query);
                let largest = of_query.chunks_exact(blocks).map(|head| head[block]).fold(f32::NEG_INFINITY, f32::max);
                prop_assert_eq!(shared, largest);
            }
        }
    }
}

/// Every length around the edges of blocks, and around the length from which on there is a choice.
#[test]
fn lengths_around_block_edges() {
    for length in [1, 2, 127, 128, 129, 255, 256, 257, 2047, 2048, 2049, 2050, 2175, 2176, 2177] {
        for level in Level::available() {
            for is_bf16 in [true, false] {
                let setup = Setup::new(IndexerDims::M3, [is_bf16; 2], 1, length, length as u64);
                let (out, expected) = (setup.run_all(level, &pool(2)).unwrap(), setup.expected());
                assert_eq!(out, expected, "{length} keys at {level}");
                let blocks = length.div_ceil(128);
                for ids in out.ids.chunks_exact(blocks.min(16)) {
                    assert_eq!(ids.last(), Some(&(blocks as i32 - 1)), "{length} keys: the query's own block");
                    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{length} keys: {ids:?}");
                    assert!(blocks > 16 || ids.len() == blocks);
                }
            }
        }
    }
}

/// Head `h` prefers blocks `10 h .. 10 h + 10` of 40, so that the lists of the heads are disjoint but for the local block,
/// and the shared list is none of them.
#[test]
fn disjoint_preferences() {
    let (blocks, block, head_dim) = (40, 128, 128);
    let dims = IndexerDims { topk: 8, ..IndexerDims::M3 };
    let query = |head: usize| (0..head_dim).map(move |d| if d == head { 1.0 } else { 0.0 });
    let key = |at: usize| {
        let (block, place) = (at / block, at % block);
        let worth = if place == (7 * block) % 128 { 50.0 - block as f32 } else { -1.0 };
        (0..head_dim).map(move |d| if d == block / 10 { worth } else { -2.0 })
    };
    let setup = Setup {
        dims,
        queries: Data::new(true, (0..4).flat_map(query).collect()),
        start: blocks * block - 1,
        keys: Data::new(true, (0..blocks * block).flat_map(key).collect()),
    };
    let shared = Setup { dims: IndexerDims { reduce: HeadReduce::Shared, ..dims }, ..setup.clone() };
    for level in levels() {
        let ids = setup.run_all(level, &pool(2)).unwrap().ids;
        for (head, ids) in ids.chunks_exact(8).enumerate() {
            let mut expected: Vec<i32> = (10 * head as i32..).take(if head == 3 { 8 } else { 7 }).collect();
            if head == 3 {
                expected.pop();
            }
            expected.push(39);
            assert_eq!(ids, expected, "head {head} at {level}");
        }
        let ids = shared.run_all(level, &pool(2)).unwrap().ids;
        assert_eq!(ids, [0, 1, 2, 3, 4, 5, 6, 39], "shared at {level}");
    }
}

#[test]
fn exact_ties_go_to_the_lower_id() {
    for level in levels() {
        for reduce in [HeadReduce::PerKvHead, HeadReduce::Shared] {
            let dims = IndexerDims { head_dim: 8, topk: 5, reduce, ..IndexerDims::M3 };
            // All keys alike: blocks 0 to 3 and the local one.
            let one = integers(3, 8);
            let mut setup = Setup::decode(dims, 20 * 128, 4);
            setup.keys = Data::new(true, one.iter().copied().cycle().take(20 * 128 * 8).collect());
            let ids = setup.run_all(level, &pool(2)).unwrap().ids;
            assert!(ids.chunks_exact(5).all(|ids| ids == [0, 1, 2, 3, 19]), "{ids:?} at {level}");

            // Two better blocks, three as good as each other for the two places left.
            setup.queries = Data::new(true, vec![1.0; 4 * 8]);
            let worth = [1.0, 5.0, 3.0, 0.0, 3.0, 2.0, 5.0, 3.0];
            let key = |at: usize| [worth.get(at / 128).copied().unwrap_or(0.0); 8];
            setup.keys = Data::new(true, (0..20 * 128).flat_map(key).collect());
            let ids = setup.run_all(level, &pool(2)).unwrap().ids;
            assert!(ids.chunks_exact(5).all(|ids| ids == [1, 2, 4, 6, 19]), "{ids:?} at {level}");
        }
    }
}

/// The local block is there even where its score is the lowest, the first ones likewise; where both do not fit, the first
/// ones win, and of the local ones the latest.
#[test]
fn forced_blocks_count_into_the_top_k() {
    let worth = |block: usize| if (3..7).contains(&block) { 9.0 } else { -1.0 - block as f32 };
    let key = |at: usize| [worth(at / 16); 4];
    let select = |topk, init_blocks, local_blocks| {
        let dims = IndexerDims { heads: 1, head_dim: 4, block: 16, topk, init_blocks, local_blocks, ..IndexerDims::M3 };
        let setup = Setup {
            dims,
            queries: Data::new(true, vec![1.0; 4]),
            start: 12 * 16 - 1,
            keys: Data::new(true, (0..12 * 16).flat_map(key).collect()),
        };
        let ids = setup.run_all(Level::best(), &pool(1)).unwrap().ids;
        assert_eq!(ids, setup.expected().ids);
        ids
    };
    assert_eq!(select(4, 0, 0), [3, 4, 5, 6]);
    assert_eq!(select(4, 0, 1), [3, 4, 5, 11]);
    assert_eq!(select(4, 1, 0), [0, 3, 4, 5]);
    assert_eq!(select(4, 1, 2), [0, 3, 10, 11]);
    assert_eq!(select(4, 2, 2), [0, 1, 10, 11]);
    assert_eq!(select(4, 2, 5), [0, 1, 10, 11]);
    assert_eq!(select(4, 3, 2), [0, 1, 2, 11]);
    assert_eq!(select(4, 7, 2), [0, 1, 2, 3]);
    assert_eq!(select(1, 0, 1), [11]);
    assert_eq!(select(5, 5, 5), [0, 1, 2, 3, 4]);
    assert_eq!(select(12, 1, 1), (0..12).collect::<Vec<_>>());
    assert_eq!(select(usize::MAX, usize::MAX, usize::MAX), (0..12).collect::<Vec<_>>());
}
