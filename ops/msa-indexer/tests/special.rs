// SPDX-License-Identifier: MIT OR Apache-2.0

//! NaN and infinities, keys beyond the sequence, and calls that compute nothing.

use crate::fixture::{Data, Layouts, REDUCTIONS, Setup, levels, pool};
use cpu_tiles::{Level, PackedRef, PackedWeight};
use half::bf16;
use msa_indexer::{HeadReduce, IndexerDims, Keys, PackedKeys, Values, decode, prefill};
use std::sync::atomic::{AtomicUsize, Ordering};

const DIMS: IndexerDims = IndexerDims { heads: 2, head_dim: 12, block: 70, topk: 3, ..IndexerDims::M3 };

/// A sequence with `value` in one value of each of some keys.
fn with(keys: &[usize], value: f32) -> Setup {
    let mut setup = Setup::decode(DIMS, 10 * 70 - 9, 1);
    // No query value is zero, so that every key's value matters.
    setup.queries = Data::new(true, (0..24).map(|i| 1.0 + (i % 3) as f32).collect());
    let mut values = setup.keys.to_f32();
    for key in keys {
        values[key * DIMS.head_dim + 5] = value;
    }
    setup.keys = Data::new(true, values);
    setup
}

/// A NaN is the largest score, as in the maxima and the top-k of the frameworks.
#[test]
fn a_nan_makes_its_block_the_best() {
    for reduce in REDUCTIONS {
        let mut setup = with(&[2 * 70 + 69, 5 * 70 + 64], f32::NAN);
        setup.dims.reduce = reduce;
        for level in levels() {
            let out = setup.run_all(level, &pool(2)).unwrap();
            let nan: Vec<_> = (0..10).filter(|&block| out.scores[block].is_nan()).collect();
            assert_eq!(nan, [2, 5], "{level}");
            for ids in out.ids.chunks_exact(3) {
                assert_eq!(ids, [2, 5, 9], "{level}");
            }
            assert_eq!(out.ids, setup.expected().ids, "{level}");
        }
    }
    // More of them than places: the lower ids. Better than infinity.
    let mut setup = with(&[70, 4 * 70 + 1, 7 * 70, 8 * 70 + 3], f32::NAN);
    let Data::Bf16(keys) = &mut setup.keys else { unreachable!("asked for BF16") };
    keys[5] = bf16::INFINITY;
    for level in levels() {
        let ids = setup.run_all(level, &pool(2)).unwrap().ids;
        assert_eq!(ids, [1, 4, 9, 1, 4, 9], "{level}");
    }
}

#[test]
fn a_nan_in_one_head_is_in_the_shared_score() {
    let mut setup = with(&[], 0.0);
    let mut queries = setup.queries.to_f32();
    queries[12 + 5] = f32::NAN;
    setup.queries = Data::new(true, queries);
    for level in levels() {
        setup.dims.reduce = HeadReduce::PerKvHead;
        let scores = setup.run_all(level, &pool(2)).unwrap().scores;
        assert!(scores[..10].iter().all(|score| score.is_finite()), "{level}");
        assert!(scores[10..].iter().all(|score| score.is_nan()), "{level}");
        setup.dims.reduce = HeadReduce::Shared;
        let out = setup.run_all(level, &pool(2)).unwrap();
        assert!(out.scores.iter().all(|score| score.is_nan()), "{level}");
        assert_eq!(out.ids, [0, 1, 9], "{level}: all equal");
    }
}

#[test]
fn infinities_are_scores_like_others() {
    let setup = with(&[6 * 70, 3 * 70 + 4], f32::INFINITY);
    for level in levels() {
        let out = setup.run_all(level, &pool(2)).unwrap();
        assert_eq!((out.scores[3], out.scores[6]), (f32::INFINITY, f32::INFINITY), "{level}");
        assert_eq!(out.ids, [3, 6, 9, 3, 6, 9], "{level}");
    }
    // Blocks of minus infinity are there to be chosen, unlike those that are not visible.
    let setup = with(&(0..9 * 70).collect::<Vec<_>>(), f32::NEG_INFINITY);
    for level in levels() {
        let out = setup.run_all(level, &pool(2)).unwrap();
        assert_eq!(out.scores[..9], [f32::NEG_INFINITY; 9], "{level}");
        assert_eq!(out.ids, [0, 1, 9, 0, 1, 9], "{level}");
    }
}

/// Every layout of the fixture has NaN beyond the length; here also every key that an early query must not see.
#[test]
fn later_keys_do_not_matter() {
    let (count, length) = (200, 700);
    for is_bf16 in [true, false] {
        let clean = Setup::new(DIMS, [is_bf16; 2], count, length, 7);
        let expected = clean.expected();
        for seen in [501, 560, 561, 639, 699] {
            let mut poisoned = clean.clone();
            let mut keys = clean.keys.to_f32();
            keys[seen * DIMS.head_dim..].fill(f32::NAN);
            poisoned.keys = Data::new(is_bf16, keys);
            for level in levels() {
                let out = poisoned.run_all(level, &pool(2)).unwrap();
                // Queries at positions below `seen`.
                let queries = seen - poisoned.start;
                let (ids, scores) = (expected.ids.len() / count, expected.scores.len() / count);
                assert_eq!(out.ids[..queries * ids], expected.ids[..queries * ids], "{seen} at {level}");
                assert_eq!(out.scores[..queries * scores], expected.scores[..queries * scores], "{seen} at {level}");
            }
        }
    }
}

/// Counts how often it is asked for a block.
struct Counting<'a>(&'a [PackedWeight], AtomicUsize);

impl PackedKeys for Counting<'_> {
    fn blocks(&self) -> usize {
        self.0.len()
    }

    fn block(&self, index: usize) -> PackedRef<'_> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0[index].as_ref()
    }
}

#[test]
fn nothing_is_computed_where_all_blocks_are_selected() {
    let asked = |length: usize, with_scores: bool| {
        let setup = Setup::decode(DIMS, length, 3);
        let Layouts { packed, .. } = setup.layouts(Level::best());
        let keys = Counting(&packed, AtomicUsize::new(0));
        let dims = &setup.dims;
        let mut ids = vec![7; dims.ids_shape(1, length).iter().product()];
        let mut scores = vec![7.0; dims.scores_shape(1, length).iter().product()];
        let scores = with_scores.then_some(&mut scores[..]);
        let (queries, packed) = (setup.queries.values(), Keys::Packed { blocks: &keys, block_table: None });
        decode(Level::best(), &pool(1), dims, queries, packed, length, &mut ids, scores).unwrap();
        keys.1.into_inner()
    };
    // Once for the check of the arguments, and once more only where there is something to compute.
    assert_eq!((asked(3 * 70, false), asked(3 * 70, true)), (3, 6));
    assert_eq!((asked(3 * 70 + 1, false), asked(3 * 70 + 1, true)), (4 + 4, 4 + 4));
}

#[test]
fn the_slice_forms_of_packed_keys() {
    let setup = Setup::decode(DIMS, 400, 3);
    let layouts = setup.layouts(Level::best());
    let refs: Vec<PackedRef<'_>> = layouts.packed.iter().map(PackedWeight::as_ref).collect();
    let expected = setup.expected();
    let forms: [&dyn PackedKeys; 2] = [&refs, &layouts.packed];
    for keys in forms.map(|blocks| Keys::Packed { blocks, block_table: None }) {
        assert_eq!(setup.run(Level::best(), &pool(2), keys).unwrap(), expected);
    }
    assert_eq!((refs[..].blocks(), layouts.packed[..].blocks()), (6, 6));
    assert_eq!(
        format!("{:?}", Keys::Packed { blocks: &refs, block_table: None }),
        "Keys::Packed(6 blocks, table of None)"
    );
}

/// Queries at the front of a longer sequence: blocks that none of them sees are padding.
#[test]
fn queries_before_the_end_of_the_sequence() {
    let whole = Setup::new(DIMS, [true, true], 500, 500, 5);
    let (expected, count) = (whole.expected(), 300);
    let queries = whole.queries.to_f32()[..count * 24].iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>();
    let dims = &whole.dims;
    for level in levels() {
        let mut ids = vec![7; dims.ids_shape(count, 500).iter().product()];
        let mut scores = vec![7.0; dims.scores_shape(count, 500).iter().product()];
        let keys = Keys::Plain(whole.keys.values());
        prefill(level, &pool(2), dims, Values::Bf16(&queries), 0, keys, 500, &mut ids, Some(&mut scores)).unwrap();
        assert_eq!(ids, expected.ids[..ids.len()], "{level}");
        assert_eq!(scores, expected.scores[..scores.len()], "{level}");
    }
}
