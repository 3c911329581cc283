// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that is kept from call to call: the same bits whatever was computed in it before, and no allocation.

use crate::fixture::{Ids, Setup, pool};
use cpu_tiles::attention::reserve_attention_scratch;
use cpu_tiles::{Format, Level, Precision};
use msa_sparse_decode::{DecodeBatch, DecodeDims, Error, Queries, Workspace, sparse_decode_f32_in};
use op_testkit::allocations::count_allocations;
use op_testkit::compare::assert_same_bits;

/// A list for each KV head of each entry: every third block, beginning with another one.
fn lists(lists: usize, blocks: usize, top_k: usize) -> Ids {
    let list = |list: usize| (0..top_k).map(move |slot| ((3 * slot + list) % blocks) as i32);
    Ids::PerKvHead((0..lists).flat_map(list).collect())
}

#[test]
fn calls_of_all_sizes_share_a_workspace() {
    let (level, pool) = (Level::best(), pool(2));
    let mut workspace = Workspace::new();
    let (small, large) =
        (DecodeDims { chunk_keys: 64, ..DecodeDims::new(6, 3, 24, 32) }, DecodeDims::new(8, 2, 72, 128));
    for (dims, precision, batch, blocks) in [
        (small, Precision::F32, 1, 7),
        (large, Precision::Bf16, 2, 5),
        (small, Precision::Bf16, 3, 4),
        (large, Precision::F32, 1, 11),
        (small, Precision::F32, 0, 1),
    ] {
        let setup =
            Setup::new(dims, precision, batch, blocks, 5).with_ids(lists(batch * dims.kv_heads, blocks, 3.min(blocks)));
        let expected = setup.run_on(level, &pool, setup.plain()).unwrap().0;
        let wide: Vec<f32> = setup.q.iter().map(|x| x.to_f32()).collect();
        let queries = if precision == Precision::Bf16 { Queries::Bf16(&setup.q) } else { Queries::F32(&wide) };
        let batch =
            DecodeBatch { queries, cache: setup.plain(), block_ids: setup.ids.as_ref(), seq_lens: &setup.seq_lens };
        let mut out = vec![f32::NAN; expected.len()];
        let blind = sparse_decode_f32_in(&mut workspace, level, &pool, &dims, &batch, &mut out).unwrap();
        assert!(blind.is_empty());
        assert_same_bits(&format!("{dims:?} {precision:?}"), &out, &expected, &setup.shape());
    }
}

#[test]
fn a_reserved_call_allocates_nothing() {
    let pool = pool(2);
    let dims = DecodeDims { chunk_keys: 64, ..DecodeDims::new(12, 2, 72, 32) };
    for level in Level::available() {
        for precision in [Precision::Bf16, Precision::F32] {
            let setup = Setup::new(dims, precision, 1, 11, 5);
            let format = if precision == Precision::Bf16 { Format::Bf16 } else { Format::F32 };
            let packed = setup.packed(level, format);
            let wide: Vec<f32> = setup.q.iter().map(|x| x.to_f32()).collect();
            let queries = if precision == Precision::Bf16 { Queries::Bf16(&setup.q) } else { Queries::F32(&wide) };
            pool.on_each_thread(|| reserve_attention_scratch(level, precision, 72, 6, 32).unwrap());
            let mut out = vec![0.0; setup.q.len()];
            let mut call = |workspace: &mut Workspace, top_k, length| {
                let ids = lists(2, 11, top_k);
                let cache = packed.cache();
                let batch = DecodeBatch { queries, cache, block_ids: ids.as_ref(), seq_lens: &[length] };
                let run = || sparse_decode_f32_in(workspace, level, &pool, &dims, &batch, &mut out).unwrap().len();
                count_allocations(|each| pool.on_each_thread(each), run)
            };
            let mut workspace = Workspace::new();
            workspace.reserve(level, &dims, 1, 9).unwrap();
            for (top_k, length) in [(9, 352), (4, 352), (9, 300)] {
                assert_eq!(call(&mut workspace, top_k, length), (0, 0), "{top_k} {length} {precision:?} at {level}");
            }
            assert!(call(&mut Workspace::new(), 9, 352).0 > 0, "what is not reserved is made");
        }
    }
    let impossible = DecodeDims { block: 0, ..dims };
    let refused = Workspace::new().reserve(Level::best(), &impossible, 1, 4);
    assert!(matches!(refused, Err(Error::ZeroSize { field: "block" })), "{refused:?}");
}
