// SPDX-License-Identifier: MIT OR Apache-2.0

//! NaN and infinities go where IEEE arithmetic sends them, and nowhere else; and what is not seen is not there.

use crate::fixture::{Ids, Setup, levels, pool};
use cpu_tiles::{Format, Precision};
use half::bf16;
use msa_sparse_decode::{Blind, DecodeDims};
use op_testkit::compare::assert_same_bits;

const DIMS: DecodeDims = DecodeDims::new(12, 2, 40, 20);

fn setup(precision: Precision) -> Setup {
    let ids = Ids::PerKvHead(vec![4, 0, 1, 3, 1, -1, 0, 5, -1, 2, 4, 1]);
    Setup::new(DIMS, precision, 2, 6, 3).with_ids(ids).with_lens(&[93, 53])
}

/// Whether a key is seen by a KV head.
fn is_seen(setup: &Setup, entry: usize, head: usize, position: usize) -> bool {
    let mut ids = setup.ids.clone();
    let list = ids.values()[(entry * 2 + head) * 3..][..3].to_vec();
    position < setup.seq_lens[entry] && list.contains(&((position / DIMS.block) as i32))
}

#[test]
fn what_is_not_seen_has_no_effect_even_as_nan() {
    for precision in [Precision::Bf16, Precision::F32] {
        for level in levels() {
            let clean = setup(precision);
            let expected = clean.run_all(level).unwrap().0;
            for poison in [bf16::NAN, bf16::INFINITY, bf16::NEG_INFINITY] {
                let mut setup = clean.clone();
                let room = setup.blocks * DIMS.block;
                let mut poisoned = 0;
                for key in 0..2 * 2 * room {
                    let (entry, head, position) = (key / room / 2, key / room % 2, key % room);
                    if !is_seen(&setup, entry, head, position) {
                        let range = key * DIMS.head_dim..(key + 1) * DIMS.head_dim;
                        setup.k[range.clone()].fill(poison);
                        setup.v[range].fill(poison);
                        poisoned += 1;
                    }
                }
                assert!(poisoned > room);
                assert_same_bits(level.name(), &setup.run_all(level).unwrap().0, &expected, &setup.shape());
            }
        }
    }
}

#[test]
fn a_nan_that_is_seen_reaches_the_heads_that_see_it_and_no_other() {
    for precision in [Precision::Bf16, Precision::F32] {
        for level in levels() {
            let clean = setup(precision);
            let expected = clean.run(level);
            let room = clean.blocks * DIMS.block;
            // KV head 1 of entry 0 sees block 3, KV head 0 does not.
            let position = 3 * DIMS.block + 7;
            for head in 0..2 {
                assert_eq!(is_seen(&clean, 0, head, position), head == 1);
            }
            for in_keys in [true, false] {
                let mut setup = clean.clone();
                for head in 0..2 {
                    let at = (head * room + position) * DIMS.head_dim + 5;
                    if in_keys {
                        setup.k[at] = bf16::NAN;
                    } else {
                        setup.v[at] = bf16::NAN;
                    }
                }
                let out = setup.run_all(level).unwrap().0;
                for (i, (&out, &expected)) in out.iter().zip(&expected).enumerate() {
                    let (entry, head, channel) = (i / 480, i / 40 % 12, i % 40);
                    if entry == 0 && head >= 6 && (in_keys || channel == 5) {
                        assert!(out.is_nan(), "{level}: {entry} {head} {channel} is {out}");
                    } else {
                        assert_eq!(out.to_bits(), expected.to_bits(), "{level}: {entry} {head} {channel}");
                    }
                }
            }
            // A query head with NaN spoils itself only.
            let mut setup = clean.clone();
            setup.q[(12 + 7) * 40 + 3] = bf16::NAN;
            for (i, (&out, &expected)) in setup.run(level).iter().zip(&expected).enumerate() {
                if i / 40 == 12 + 7 {
                    assert!(out.is_nan(), "{level}");
                } else {
                    assert_eq!(out.to_bits(), expected.to_bits(), "{level}");
                }
            }
        }
    }
}

#[test]
fn heads_with_nothing_to_see_are_zero_and_reported() {
    for level in levels() {
        let ids = vec![2, 1, -1, -1, 0, 2, 1, 0];
        let setup = Setup::new(DIMS, Precision::Bf16, 2, 3, 5).with_ids(Ids::PerKvHead(ids)).with_lens(&[60, 15]);
        // Entry 0: an empty list. Entry 1: block 0 for the first head; blocks 1 and 0 for the second.
        let (out, blind) = setup.run_all(level).unwrap();
        assert_eq!(blind, [Blind { batch: 0, kv_head: 1 }]);
        assert!(out[240..480].iter().all(|x| *x == 0.0 && x.is_sign_positive()));

        let setup = setup.with_lens(&[20, 0]);
        let (out, blind) = setup.run_all(level).unwrap();
        let all = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(batch, kv_head)| Blind { batch, kv_head });
        assert_eq!(blind, all);
        assert!(out.iter().all(|x| *x == 0.0));
    }
}

/// Entries of the block table for blocks that are not read may hold anything.
#[test]
fn block_tables_may_be_shorter_than_the_truth_about_unread_blocks() {
    for level in levels() {
        let setup = Setup::new(DIMS, Precision::Bf16, 1, 4, 5).with_ids(Ids::Shared(vec![3, 0, 1])).with_lens(&[35]);
        let expected = setup.run(level);
        let mut paged = setup.paged();
        let mut packed = setup.packed(level, Format::Bf16);
        for table in [&mut paged.table, &mut packed.table] {
            (table[2], table[3]) = (-1, i32::MAX);
        }
        for cache in [paged.cache(), packed.cache()] {
            let out = setup.run_on(level, &pool(2), cache).unwrap().0;
            assert_same_bits("unread entries", &out, &expected, &setup.shape());
        }
    }
}

#[test]
fn extreme_scores_neither_overflow_nor_lose_the_largest() {
    for level in levels() {
        for precision in [Precision::Bf16, Precision::F32] {
            let dims = DecodeDims { scale: Some(100.0), ..DIMS };
            let mut setup = Setup::new(dims, precision, 1, 6, 8);
            // One key that is every query's by far; its value is the result.
            let at = (2 * DIMS.block + 3) * DIMS.head_dim;
            setup.q.fill(bf16::ONE);
            for head in 0..2 {
                let at = head * 6 * DIMS.block * DIMS.head_dim + at;
                setup.k[at..at + DIMS.head_dim].fill(bf16::from_f32(1000.0));
            }
            let out = setup.run_all(level).unwrap().0;
            for (row, out) in out.chunks_exact(DIMS.head_dim).enumerate() {
                let at = row / 6 * 6 * DIMS.block * DIMS.head_dim + at;
                for (out, v) in out.iter().zip(&setup.v[at..]) {
                    assert_eq!(*out, v.to_f32(), "{level}");
                }
            }
        }
    }
}
