// SPDX-License-Identifier: MIT OR Apache-2.0

//! Laws of the operator on problems of any size.

use crate::fixture::{KINDS, Kind, Owned, REDUCES, Sequence, check, levels, shuffled};
use cpu_tiles::Level;
use msa_indexer::IndexerDims;
use op_testkit::compare::assert_same_bits;
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Setup {
    level: Level,
    kind: Kind,
    seed: u64,
    sequence: Sequence,
}

fn setups() -> impl Strategy<Value = Setup> {
    let dims = (1..6usize, 1..40usize, 1..40usize, 1..8usize, 0..4usize, 0..4usize, prop::sample::select(&REDUCES[..]));
    let dims = dims.prop_map(|(heads, head_dim, block, topk, init_blocks, local_blocks, reduce)| IndexerDims {
        heads,
        head_dim,
        block,
        topk,
        init_blocks,
        local_blocks,
        reduce,
    });
    let sizes = (0..120usize, 0..50usize, 0..40usize);
    let subject = (prop::sample::select(levels()), prop::sample::select(&KINDS[..]), 0..1_000_000u64);
    (subject, dims, sizes).prop_map(|((level, kind, seed), dims, (start, queries, behind))| Setup {
        level,
        kind,
        seed,
        sequence: Sequence::new(dims, kind, start, queries, start + queries + behind, seed),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_operator_is_the_reference(setup in setups()) {
        let Setup { sequence, level, kind, .. } = &setup;
        let actual = sequence.run_all_layouts(*level);
        check(sequence, &actual, &sequence.expected(), kind.tolerance()).map_err(TestCaseError::fail)?;
    }

    /// Distinct, ascending, of blocks that the query sees, as many as there can be, the forced ones among them.
    #[test]
    fn ids_are_a_selection(setup in setups()) {
        let Setup { sequence, level, .. } = &setup;
        let dims = sequence.dims;
        let (ids, _) = sequence.run(*level);
        let [_, selections, places] = sequence.ids_shape();
        for (at, ids) in ids.chunks_exact(places.max(1)).enumerate() {
            let visible = (sequence.start + at / selections) / dims.block + 1;
            let (chosen, padding) = ids.split_at(visible.min(dims.topk));
            prop_assert!(padding.iter().all(|&id| id == -1));
            prop_assert!(chosen.is_sorted_by(|a, b| a < b));
            prop_assert!(chosen.iter().all(|&id| (0..visible as i32).contains(&id)));
            if dims.init_blocks + dims.local_blocks <= dims.topk {
                let mut forced = (0..visible).filter(|b| *b < dims.init_blocks || *b + dims.local_blocks >= visible);
                prop_assert!(forced.all(|block| chosen.contains(&(block as i32))));
            }
        }
    }

    #[test]
    fn a_query_depends_neither_on_its_company_nor_on_later_keys(setup in setups(), cut in 0.0..=1.0) {
        let Setup { sequence, level, .. } = &setup;
        let (start, n) = (sequence.start, sequence.count());
        let (ids, scores) = sequence.run(*level);
        let cut = (n as f64 * cut) as usize;
        for range in [0..cut, cut..n] {
            let part = sequence.part(range.clone(), start + range.end);
            let (of_part, of_part_scores) = part.run(*level);
            let [_, selections, places] = sequence.ids_shape();
            let [_, _, blocks] = sequence.scores_shape();
            let (few_places, few_blocks) = (part.ids_shape()[2], part.scores_shape()[2]);
            for row in 0..range.len() * selections {
                let whole = range.start * selections + row;
                let (seen, behind) = ids[whole * places..][..places].split_at(few_places);
                prop_assert_eq!(seen, &of_part[row * few_places..][..few_places]);
                prop_assert!(behind.iter().all(|&id| id == -1));
                let (seen, behind) = scores[whole * blocks..][..blocks].split_at(few_blocks);
                let expected = &of_part_scores[row * few_blocks..][..few_blocks];
                assert_same_bits("scores", seen, expected, &[few_blocks]);
                prop_assert!(behind.iter().all(|&score| score == f32::NEG_INFINITY));
            }
        }
    }

    /// Only the largest score of a block counts.
    #[test]
    fn the_order_of_keys_in_a_block_has_no_effect(setup in setups()) {
        let Setup { sequence, level, seed, .. } = &setup;
        let IndexerDims { block, head_dim, .. } = sequence.dims;
        // The last query, which sees whole blocks.
        prop_assume!(sequence.count() > 0);
        let length = (sequence.start + sequence.count()).next_multiple_of(block);
        let mut whole = Sequence { start: length - 1, ..sequence.part(sequence.count() - 1..sequence.count(), 0) };
        whole.keys = Sequence::new(sequence.dims, setup.kind, 0, 0, length, *seed).keys;
        let mut other = whole.clone();
        let order: Vec<usize> = (0..length / block)
            .flat_map(|b| shuffled(block, seed + b as u64).into_iter().map(move |key| b * block + key))
            .collect();
        other.keys = whole.keys.gather((0..length * head_dim).map(|i| Some(order[i / head_dim] * head_dim + i % head_dim)));
        let (expected, actual) = (whole.run(*level), other.run(*level));
        prop_assert_eq!(&actual.0, &expected.0);
        assert_same_bits("reordered", &actual.1, &expected.1, &whole.scores_shape());
    }

    #[test]
    fn scaling_queries_by_a_power_of_two_scales_scores_exactly(setup in setups(), power in -6i32..=6) {
        let factor = 2f32.powi(power);
        let (ids, scores) = setup.sequence.run(setup.level);
        let mut scaled = setup.sequence.clone();
        for (at, value) in setup.sequence.queries.wide().into_iter().enumerate() {
            scaled.queries.set(at, value * factor);
        }
        let (scaled_ids, scaled_scores) = scaled.run(setup.level);
        prop_assert_eq!(scaled_ids, ids);
        let expected: Vec<f32> = scores.into_iter().map(|score| score * factor).collect();
        assert_same_bits("scaled", &scaled_scores, &expected, &scaled.scores_shape());
    }

    /// Heads do not see each other: a head alone gives its selection.
    #[test]
    fn heads_are_independent(setup in setups()) {
        let sequence = setup.sequence.with_reduce(REDUCES[0]);
        let IndexerDims { heads, head_dim, .. } = sequence.dims;
        let (ids, scores) = sequence.run(setup.level);
        for head in 0..heads {
            let places = (0..sequence.count() * head_dim).map(|i| (i / head_dim * heads + head) * head_dim + i % head_dim);
            let queries: Owned = sequence.queries.gather(places.map(Some));
            let alone = Sequence { dims: IndexerDims { heads: 1, ..sequence.dims }, queries, ..sequence.clone() };
            let of_head = alone.run(setup.level);
            let [_, _, places] = sequence.ids_shape();
            let [_, _, blocks] = sequence.scores_shape();
            for query in 0..sequence.count() {
                let row = query * heads + head;
                prop_assert_eq!(&ids[row * places..][..places], &of_head.0[query * places..][..places]);
                let (actual, expected) = (&scores[row * blocks..][..blocks], &of_head.1[query * blocks..][..blocks]);
                assert_same_bits("head", actual, expected, &[blocks]);
            }
        }
    }
}
