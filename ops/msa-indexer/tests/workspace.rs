// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that is kept from call to call: the same choice whatever was computed in it before, and no allocation.

use crate::fixture::{REDUCTIONS, Setup, pool};
use cpu_tiles::{Level, reserve_max_scores_scratch};
use msa_indexer::{Error, IndexerDims, Keys, Values, Workspace, decode_in};
use op_testkit::allocations::count_allocations;
use op_testkit::compare::assert_same_bits;

#[test]
fn calls_of_all_sizes_share_a_workspace() {
    let (level, pool) = (Level::best(), pool(2));
    let mut workspace = Workspace::new();
    let other = IndexerDims { heads: 3, head_dim: 24, block: 32, topk: 3, ..IndexerDims::M3 };
    for reduce in REDUCTIONS {
        for (dims, is_bf16, length) in
            [(IndexerDims::M3, true, 4000), (other, false, 900), (other, true, 1), (IndexerDims::M3, false, 2100)]
        {
            let dims = IndexerDims { reduce, ..dims };
            let setup = Setup::new(dims, [is_bf16; 2], 1, length, 5);
            let expected = setup.expected();
            let (mut ids, mut scores) = (vec![7; expected.ids.len()], vec![7.0; expected.scores.len()]);
            let (query, keys) = (setup.queries.values(), Keys::Plain(setup.keys.values()));
            decode_in(&mut workspace, level, &pool, &dims, query, keys, length, &mut ids, Some(&mut scores)).unwrap();
            assert_eq!(ids, expected.ids, "{dims:?}, {length} keys");
            assert_same_bits("scores", &scores, &expected.scores, &[scores.len()]);
        }
    }
}

#[test]
fn a_reserved_call_allocates_nothing() {
    let pool = pool(2);
    for level in Level::available() {
        for (reduce, is_bf16) in REDUCTIONS.into_iter().flat_map(|reduce| [(reduce, true), (reduce, false)]) {
            let dims = IndexerDims { reduce, ..IndexerDims::M3 };
            let setup = Setup::new(dims, [is_bf16; 2], 1, 6000, 5);
            let layouts = setup.layouts(level);
            let mut workspace = Workspace::new();
            workspace.reserve(level, &dims, 6000).unwrap();
            pool.on_each_thread(|| reserve_max_scores_scratch(dims.head_dim).unwrap());
            let mut ids = vec![0; dims.ids_shape(1, 6000).iter().product()];
            let keys = Keys::Packed { blocks: &layouts.packed, block_table: None };
            let mut call = |workspace: &mut Workspace, length| {
                let query = setup.queries.values();
                let run = || decode_in(workspace, level, &pool, &dims, query, keys, length, &mut ids, None).unwrap();
                count_allocations(|each| pool.on_each_thread(each), run).0
            };
            // From the first length that chooses to the longest that was asked for.
            let counts = [2049, 4000, 6000].map(|length| call(&mut workspace, length));
            assert_eq!(counts, [0; 3], "{reduce:?} {is_bf16} at {level}");
            assert!(call(&mut Workspace::new(), 6000) > 0, "what is not reserved is made");
        }
    }
    let impossible = IndexerDims { heads: 0, ..IndexerDims::M3 };
    assert!(matches!(
        Workspace::new().reserve(Level::best(), &impossible, 10),
        Err(Error::ZeroSize { field: "heads" })
    ));
    let mut ids = [];
    let refused = decode_in(
        &mut Workspace::new(),
        Level::best(),
        &pool,
        &IndexerDims::M3,
        Values::F32(&[]),
        Keys::Plain(Values::F32(&[])),
        1,
        &mut ids,
        None,
    );
    assert!(matches!(refused, Err(Error::Length { argument: "query", .. })), "{refused:?}");
}
