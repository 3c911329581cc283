// SPDX-License-Identifier: MIT OR Apache-2.0

//! The same bits for every number of threads, every company and, where multiply-adds are fused, every level.

use crate::fixture::{Data, REDUCTIONS, Setup, levels, pool};
use cpu_tiles::Level;
use msa_indexer::{IndexerDims, Keys};
use op_testkit::compare::assert_same_bits;
use op_testkit::fill_f32;

/// Values whose sums are rounded at every step.
fn setup(dims: IndexerDims, count: usize, length: usize, is_bf16: bool) -> Setup {
    Setup {
        dims,
        queries: Data::new(is_bf16, fill_f32(1, count * dims.heads * dims.head_dim, 1.0)),
        start: length - count,
        keys: Data::new(is_bf16, fill_f32(2, length * dims.head_dim, 1.0)),
    }
}

fn small(is_bf16: bool) -> Setup {
    let dims = IndexerDims { heads: 3, head_dim: 24, block: 32, topk: 3, ..IndexerDims::M3 };
    setup(dims, 70, 1200, is_bf16)
}

#[test]
fn threads() {
    for is_bf16 in [true, false] {
        for reduce in REDUCTIONS {
            for mut setup in [small(is_bf16), setup(IndexerDims::M3, 1, 4000, is_bf16)] {
                setup.dims.reduce = reduce;
                for level in Level::available() {
                    let expected = setup.run_all(level, &pool(1)).unwrap();
                    for threads in [2, 3, 8] {
                        let out = setup.run_all(level, &pool(threads)).unwrap();
                        assert_eq!(out.ids, expected.ids, "{threads} threads at {level}");
                        let what = format!("{threads} threads at {level}");
                        assert_same_bits(&what, &out.scores, &expected.scores, &[out.scores.len()]);
                    }
                }
            }
        }
    }
}

/// More block scores than exist at a time: several waves of queries.
#[test]
fn waves() {
    let dims = IndexerDims { heads: 2, head_dim: 2, block: 1, topk: 5, ..IndexerDims::M3 };
    let length = 6000;
    let setup = setup(dims, 200, length, true);
    assert!(200 * dims.heads * length > 2 << 20);
    let out = setup.run(Level::best(), &pool(2), Keys::Plain(setup.keys.values())).unwrap();
    assert_eq!(out.ids, setup.expected().ids);
}

#[test]
fn levels_with_fused_multiply_adds() {
    for is_bf16 in [true, false] {
        let setup = small(is_bf16);
        let mut fused = levels().into_iter().filter(|level| *level != Level::SCALAR);
        let first = fused.next().unwrap();
        let expected = setup.run_all(first, &pool(2)).unwrap();
        for level in fused {
            let out = setup.run_all(level, &pool(2)).unwrap();
            assert_eq!(out.ids, expected.ids, "{level}");
            let what = format!("{level} and {first}");
            assert_same_bits(&what, &out.scores, &expected.scores, &[out.scores.len()]);
        }
    }
}
