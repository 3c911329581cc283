// SPDX-License-Identifier: MIT OR Apache-2.0

//! What must hold whatever the numbers are.

use crate::fixture::{
    KINDS, Kind, Lists, Sequence, Values, expected, levels, pool, run, run_all_layouts, run_plain, shuffled,
};
use cpu_tiles::Level;
use msa_main_branch::AttentionDims;
use op_testkit::compare::{assert_close, assert_same_bits};
use op_testkit::strategies::tile_edge_size;
use proptest::prelude::*;
use proptest::sample::select;

#[derive(Clone, Debug)]
struct Setup {
    sequence: Sequence,
    level: Level,
    topk: usize,
    tile: usize,
    seed: u64,
}

impl Setup {
    fn forms(&self) -> [Lists; 5] {
        Lists::forms(&self.sequence, self.topk, self.tile, self.seed)
    }

    /// Lists of each query and KV head.
    fn per_query(&self) -> Vec<i32> {
        let [.., Lists::PerQuery(ids)] = self.forms() else { unreachable!("the last form") };
        ids
    }

    fn run(&self, lists: &Lists) -> Vec<f32> {
        run_plain(self.level, &self.sequence, lists).0
    }
}

fn setups() -> impl Strategy<Value = Setup> {
    let dims = (1..=3usize, 1..=5usize, tile_edge_size(1..=70), 1..=40usize);
    let sizes = (0..=60usize, 0..=25usize, 0..=30usize);
    let kind = (select(KINDS.to_vec()), select(levels()));
    (dims, sizes, kind, 0..=5usize, 1..=9usize, any::<u32>()).prop_map(|(dims, sizes, kind, topk, tile, seed)| {
        let (kv_heads, group, head_dim, block) = dims;
        let ((start, n, more), (kind, level)) = (sizes, kind);
        let dims = AttentionDims { heads: kv_heads * group, kv_heads, head_dim, block };
        let sequence = Sequence::new(dims, kind, start, n, more, seed.into());
        Setup { sequence, level, topk, tile, seed: u64::from(seed) << 20 }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_form_and_layout_agrees_with_the_reference(setup in setups()) {
        let Setup { sequence, level, .. } = &setup;
        for lists in setup.forms() {
            let (expected, expected_defined) = expected(sequence, &lists);
            let (actual, defined) = run_all_layouts(*level, sequence, &lists);
            assert_close("result", &actual, &expected, &sequence.shape(), sequence.kind.tolerance());
            prop_assert_eq!(&defined, &expected_defined);
            let undefined: Vec<_> = defined.undefined().collect();
            for query in 0..sequence.n() {
                for kv_head in 0..sequence.dims.kv_heads {
                    prop_assert_eq!(defined.row(query, kv_head), !undefined.contains(&(query, kv_head)));
                    if !defined.row(query, kv_head) {
                        let width = sequence.dims.heads / sequence.dims.kv_heads * sequence.dims.head_dim;
                        let row = &actual[(query * sequence.dims.kv_heads + kv_head) * width..][..width];
                        prop_assert!(row.iter().all(|x| x.to_bits() == 0), "a row that sees nothing is zero");
                    }
                }
            }
        }
    }

    #[test]
    fn listing_all_blocks_is_dense_causal_attention(setup in setups()) {
        let Sequence { dims, .. } = setup.sequence;
        let dense = setup.run(&Lists::All);
        let blocks: Vec<i32> = shuffled(setup.sequence.blocks(), setup.seed).into_iter().map(|id| id as i32).collect();
        let times = |lists: usize| blocks.iter().copied().cycle().take(lists * blocks.len()).collect::<Vec<_>>();
        let (n, tiles) = (setup.sequence.n(), setup.sequence.n().div_ceil(setup.tile));
        for lists in [
            Lists::Shared(times(1)),
            Lists::PerTile(setup.tile, times(tiles)),
            Lists::PerTileAndHead(setup.tile, times(tiles * dims.kv_heads)),
            Lists::PerQuery(times(n * dims.kv_heads)),
        ] {
            assert_same_bits("all listed", &setup.run(&lists), &dense, &setup.sequence.shape());
        }
    }

    #[test]
    fn the_order_of_a_list_has_no_effect(setup in setups()) {
        let ids = setup.per_query();
        let expected = setup.run(&Lists::PerQuery(ids.clone()));
        let mut other = ids;
        for (number, list) in other.chunks_exact_mut(setup.topk.max(1)).enumerate() {
            let count = list.iter().filter(|id| **id >= 0).count();
            let order = shuffled(count, setup.seed + number as u64);
            let shuffled: Vec<i32> = order.into_iter().map(|i| list[i]).collect();
            list[..count].copy_from_slice(&shuffled);
        }
        assert_same_bits("reordered", &setup.run(&Lists::PerQuery(other)), &expected, &setup.sequence.shape());
    }

    #[test]
    fn blocks_behind_a_query_have_no_effect(setup in setups()) {
        let Sequence { dims, start, .. } = setup.sequence;
        let ids = setup.per_query();
        let expected = setup.run(&Lists::PerQuery(ids.clone()));
        let mut other = ids;
        for (list, ids) in other.chunks_exact_mut(setup.topk.max(1)).enumerate() {
            let behind = (start + list / dims.kv_heads) / dims.block + 1;
            ids.iter_mut().filter(|id| **id >= behind as i32).for_each(|id| *id = -1);
            ids.sort_by_key(|id| id.cast_unsigned());
        }
        assert_same_bits("without", &setup.run(&Lists::PerQuery(other)), &expected, &setup.sequence.shape());
    }

    #[test]
    fn a_query_does_not_depend_on_its_company(setup in setups()) {
        let Sequence { dims, .. } = setup.sequence;
        let (width, lists) = (dims.heads * dims.head_dim, dims.kv_heads * setup.topk);
        let ids = setup.per_query();
        let together = setup.run(&Lists::PerQuery(ids.clone()));
        for query in 0..setup.sequence.n() {
            let alone = setup.sequence.part(query..query + 1);
            let of_query = Lists::PerQuery(ids[query * lists..(query + 1) * lists].to_vec());
            let (out, _) = run_plain(setup.level, &alone, &of_query);
            assert_same_bits("alone", &out, &together[query * width..(query + 1) * width], &alone.shape());
        }
    }

    #[test]
    fn chunks_of_a_prompt_equal_the_whole(setup in setups(), cut in 0.0..=1.0) {
        let Setup { sequence, level, .. } = &setup;
        let (dims, start, n) = (sequence.dims, sequence.start, sequence.n());
        let lists = Lists::Shared(Lists::ids(1, setup.topk, sequence.blocks(), setup.seed));
        for lists in [Lists::All, lists] {
            let (whole, defined) = run_plain(*level, sequence, &lists);
            let cut = (n as f64 * cut) as usize;
            for range in [0..cut, cut..n] {
                let mut part = sequence.part(range.clone());
                // The keys of later chunks do not exist yet, where no list names their blocks.
                if matches!(lists, Lists::All) {
                    let tokens = start + range.end;
                    let values = tokens * dims.kv_heads * dims.head_dim;
                    part.k = part.k.gather((0..values).map(Some));
                    part.v = part.v.gather((0..values).map(Some));
                }
                let (out, of_part) = run_plain(*level, &part, &lists);
                let width = dims.heads * dims.head_dim;
                assert_same_bits("chunk", &out, &whole[range.start * width..range.end * width], &part.shape());
                for query in range.clone() {
                    prop_assert_eq!(of_part.query(query - range.start), defined.query(query));
                }
            }
        }
    }

    #[test]
    fn scaling_values_by_a_power_of_two_is_exact(setup in setups(), power in -4i32..=4) {
        let factor = 2f32.powi(power);
        let lists = Lists::PerQuery(setup.per_query());
        let expected: Vec<f32> = setup.run(&lists).into_iter().map(|x| x * factor).collect();
        let mut scaled = setup.clone();
        for (at, value) in setup.sequence.v.wide().into_iter().enumerate() {
            scaled.sequence.v.set(at, value * factor);
        }
        // Subnormal F16 values would be rounded.
        prop_assume!(scaled.sequence.v.wide().iter().zip(setup.sequence.v.wide()).all(|(a, b)| *a == b * factor));
        assert_same_bits("scaled", &scaled.run(&lists), &expected, &setup.sequence.shape());
    }

    /// Number formats that hold the same values give the same bits, where their arithmetic is the same.
    #[test]
    fn wider_formats_of_the_same_values_agree(setup in setups()) {
        let Setup { sequence, level, .. } = &setup;
        let lists = Lists::PerQuery(setup.per_query());
        let wide = |values: &Values| Values::F32(values.wide());
        let in_f32 = Sequence {
            kind: Kind::F32,
            q: wide(&sequence.q),
            k: wide(&sequence.k),
            v: wide(&sequence.v),
            ..sequence.clone()
        };
        let (expected, _) = run_plain(*level, &in_f32, &lists);
        // Of BF16 keys with F32 queries only the storage is BF16.
        let (out, _) =
            run(*level, &pool(1), &sequence.dims, in_f32.query(), sequence.plain(), lists.get()).unwrap();
        assert_same_bits("F32 queries", &out, &expected, &sequence.shape());
        let (out, _) =
            run(*level, &pool(1), &sequence.dims, sequence.query(), in_f32.plain(), lists.get()).unwrap();
        assert_same_bits("F32 keys", &out, &expected, &sequence.shape());
    }
}
