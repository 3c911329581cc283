// SPDX-License-Identifier: MIT OR Apache-2.0

//! What must hold whatever the numbers are.

use crate::fixture::{Ids, Setup, levels, tolerance};
use cpu_tiles::{Format, Level, Precision};
use half::bf16;
use msa_sparse_decode::{Cache, DecodeDims};
use op_testkit::compare::{assert_close, assert_same_bits};
use proptest::prelude::*;
use proptest::sample::select;

#[derive(Clone, Debug)]
struct Any {
    setup: Setup,
    level: Level,
}

/// Lists of distinct blocks, padded to one length.
fn lists(blocks: usize, count: usize, seed: u64) -> Vec<i32> {
    let top_k = 1 + seed as usize % (blocks + 1);
    let list = |list: usize| {
        let seed = seed.wrapping_add(list as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let mut ids: Vec<i32> = (0..blocks as i32).collect();
        ids.sort_by_key(|&id| (id as u64 + 1).wrapping_mul(seed | 1).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 40);
        ids.truncate(seed as usize % (top_k + 1));
        ids.resize(top_k, -1);
        ids
    };
    (0..count).flat_map(list).collect()
}

fn any_setup() -> impl Strategy<Value = Any> {
    let heads = select(vec![(1, 1), (6, 1), (16, 1), (2, 2), (12, 2), (14, 2), (32, 2), (20, 4)]);
    let sizes = (select(vec![1usize, 24, 32, 40, 64, 96, 128, 130]), select(vec![1usize, 8, 20, 32, 128]));
    let kind = (select(vec![Precision::Bf16, Precision::F32]), select(levels()), any::<bool>());
    let counts = (1usize..=3, 1usize..=7, 1usize..=3);
    (heads, sizes, kind, counts, any::<u32>()).prop_map(
        |((heads, kv_heads), (head_dim, block), (precision, level, shared), (batch, blocks, chunk), seed)| {
            let dims = DecodeDims { chunk_keys: chunk * block, ..DecodeDims::new(heads, kv_heads, head_dim, block) };
            let seed = u64::from(seed);
            let room = blocks * block;
            let lens: Vec<_> = (0..batch).map(|entry| (seed as usize + 31 * entry) % (room + 1)).collect();
            let count = if shared { batch } else { batch * kv_heads };
            let ids = lists(blocks, count, seed);
            let ids = if shared { Ids::Shared(ids) } else { Ids::PerKvHead(ids) };
            let setup = Setup::new(dims, precision, batch, blocks, seed).with_ids(ids).with_lens(&lens);
            Any { setup, level }
        },
    )
}

/// Softmax attention over all keys of a sequence, in F64, that knows nothing of blocks.
fn dense(setup: &Setup) -> Vec<f32> {
    let DecodeDims { heads, kv_heads, head_dim, block, .. } = setup.dims;
    let room = setup.blocks * block * head_dim;
    let mut out = Vec::new();
    for (row, q) in setup.q.chunks_exact(head_dim).enumerate() {
        let (entry, head) = (row / heads, row % heads);
        let first = (entry * kv_heads + head / (heads / kv_heads)) * room;
        let keys = setup.k[first..first + room].chunks_exact(head_dim).take(setup.seq_lens[entry]);
        let values = setup.v[first..first + room].chunks_exact(head_dim);
        let dot = |k: &[bf16]| q.iter().zip(k).map(|(q, k)| q.to_f64() * k.to_f64()).sum::<f64>();
        let scores: Vec<f64> = keys.map(|k| dot(k) * f64::from(setup.dims.scale())).collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|score| (score - max).exp()).sum();
        let mut total = vec![0.0; head_dim];
        for (score, v) in scores.iter().zip(values) {
            for (total, v) in total.iter_mut().zip(v) {
                *total += (score - max).exp() / sum * v.to_f64();
            }
        }
        out.extend(total.into_iter().map(|x| x as f32));
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_cache_agrees_with_the_reference(any in any_setup()) {
        let Any { setup, level } = any;
        let (out, blind) = setup.run_all(level).unwrap();
        assert_close("out", &out, &setup.expected(), &setup.shape(), tolerance(setup.precision));
        // Blind heads are the ones whose rows are zero.
        let DecodeDims { kv_heads, head_dim, heads, .. } = setup.dims;
        let rows = heads / kv_heads * head_dim;
        for (list, out) in out.chunks_exact(rows).enumerate() {
            let is_blind = blind.iter().any(|blind| blind.batch * kv_heads + blind.kv_head == list);
            prop_assert_eq!(out.iter().all(|x| *x == 0.0), is_blind, "list {}", list);
        }
    }

    #[test]
    fn the_order_of_ids_and_their_padding_have_no_effect(any in any_setup(), turn in 0usize..20) {
        let Any { mut setup, level } = any;
        let expected = setup.run(level);
        let lists = setup.batch * if matches!(setup.ids, Ids::Shared(_)) { 1 } else { setup.dims.kv_heads };
        let ids = setup.ids.values();
        let top_k = ids.len() / lists;
        let mut other = Vec::new();
        for list in ids.chunks_exact(top_k) {
            let mut list: Vec<i32> = list.iter().copied().filter(|id| *id >= 0).rev().collect();
            let turn = turn % list.len().max(1);
            list.rotate_left(turn);
            list.resize(top_k + turn % 3 + 2, -1);
            list.truncate(top_k + 2);
            other.extend(list);
        }
        *ids = other;
        assert_same_bits("reordered", &setup.run(level), &expected, &setup.shape());
    }

    #[test]
    fn all_blocks_are_dense_attention(any in any_setup()) {
        let Any { setup, level } = any;
        let all = (0..setup.batch).flat_map(|_| 0..setup.blocks as i32).collect();
        let setup = setup.with_ids(Ids::Shared(all));
        assert_close("dense", &setup.run(level), &dense(&setup), &setup.shape(), tolerance(setup.precision));
    }

    #[test]
    fn a_batch_is_each_of_its_entries_alone(any in any_setup()) {
        let Any { setup, level } = any;
        let together = setup.run(level);
        let part = |values: &[bf16], entry: usize| {
            let size = values.len() / setup.batch;
            values[entry * size..(entry + 1) * size].to_vec()
        };
        let size = together.len() / setup.batch;
        for entry in 0..setup.batch {
            let mut ids = setup.ids.clone();
            let of_entry = ids.values().len() / setup.batch;
            *ids.values() = ids.values()[entry * of_entry..(entry + 1) * of_entry].to_vec();
            let alone = Setup {
                batch: 1,
                q: part(&setup.q, entry),
                k: part(&setup.k, entry),
                v: part(&setup.v, entry),
                ids,
                seq_lens: vec![setup.seq_lens[entry]],
                ..setup.clone()
            };
            let expected = &together[entry * size..(entry + 1) * size];
            assert_same_bits("alone", &alone.run(level), expected, &alone.shape());
        }
    }

    #[test]
    fn shared_ids_are_the_same_ids_for_every_kv_head(any in any_setup()) {
        let Any { setup, level } = any;
        let blocks = setup.blocks;
        let shared = lists(blocks, setup.batch, 11);
        let top_k = shared.len() / setup.batch;
        let each = shared.chunks_exact(top_k).flat_map(|list| list.repeat(setup.dims.kv_heads)).collect();
        let setup = setup.with_ids(Ids::Shared(shared));
        let expected = setup.run(level);
        let setup = setup.with_ids(Ids::PerKvHead(each));
        assert_same_bits("per KV head", &setup.run(level), &expected, &setup.shape());
    }

    #[test]
    fn scaling_values_by_a_power_of_two_is_exact(any in any_setup(), power in -6i32..=6) {
        let Any { mut setup, level } = any;
        let factor = 2f32.powi(power);
        let expected: Vec<f32> = setup.run(level).into_iter().map(|x| x * factor).collect();
        setup.v.iter_mut().for_each(|v| *v = bf16::from_f32(v.to_f32() * factor));
        assert_same_bits("scaled", &setup.run(level), &expected, &setup.shape());
    }
}

/// A packed cache of F32 values makes the call exact, whatever the queries are.
#[test]
fn packed_caches_of_either_format_and_without_a_table() {
    let dims = DecodeDims::new(12, 2, 40, 20);
    for level in levels() {
        let mut setup = Setup::new(dims, Precision::F32, 2, 4, 9).with_lens(&[80, 55]);
        let exact = setup.run(level);
        let packed = setup.packed(level, Format::F32);
        for precision in [Precision::F32, Precision::Bf16] {
            setup.precision = precision;
            let (out, _) = setup.run_on(level, &crate::fixture::pool(2), packed.cache()).unwrap();
            assert_same_bits("F32 pages", &out, &exact, &setup.shape());
        }

        // Two sequences that share the pages 0 to 3, the second being shorter.
        let setup = Setup::new(dims, Precision::Bf16, 1, 4, 9);
        let mut twice = setup.clone();
        (twice.batch, twice.seq_lens) = (2, vec![80, 33]);
        twice.q = setup.q.repeat(2);
        (twice.k, twice.v) = (setup.k.repeat(2), setup.v.repeat(2));
        *twice.ids.values() = [3, 1, 2, 0, 0, 1, 3, 2].to_vec();
        let packed = setup.packed(level, Format::Bf16);
        let mut pages = packed.table.clone();
        pages.extend(&packed.table);
        let expected = twice.run(level);
        let with_table = Cache::Packed { pages: &packed.pages, block_table: Some(&pages) };
        let (out, _) = twice.run_on(level, &crate::fixture::pool(2), with_table).unwrap();
        assert_same_bits("shared pages", &out, &expected, &twice.shape());

        let in_order = Identity::new(&setup, level);
        let cache = Cache::Packed { pages: &in_order.0, block_table: None };
        let (out, _) = twice.run_on(level, &crate::fixture::pool(2), cache).unwrap();
        assert_same_bits("no table", &out, &expected, &twice.shape());
    }
}

/// The pages of one sequence in order.
struct Identity(cpu_tiles::attention::PackedPages);

impl Identity {
    fn new(setup: &Setup, level: Level) -> Self {
        let DecodeDims { kv_heads, head_dim, block, .. } = setup.dims;
        let of_head = block * head_dim;
        let mut pages =
            cpu_tiles::attention::PackedPages::new(Format::Bf16, kv_heads, head_dim, block, setup.blocks).unwrap();
        for (number, (k, v)) in setup.k.chunks_exact(of_head).zip(setup.v.chunks_exact(of_head)).enumerate() {
            let (head, page) = (number / setup.blocks, number % setup.blocks);
            pages.write_bf16(level, page, head, 0, block, k, v, head_dim).unwrap();
        }
        Self(pages)
    }
}
