// SPDX-License-Identifier: MIT OR Apache-2.0

//! The bits of scores: rounding, number formats, zeros, NaN, infinities and subnormals.

use crate::fixture::{Data, REDUCTIONS, Setup, levels, pool};
use crate::golden;
use cpu_tiles::Level;
use half::bf16;
use msa_indexer::{IndexerDims, reference};
use ndarray::Array3;
use op_testkit::compare::{Tolerance, assert_close, assert_same_bits};
use op_testkit::fill_f32;
use op_testkit::golden::Ops;

/// F32 sums of products that the oracle sums in F64.
const TOLERANCE: Tolerance = Tolerance { abs: 0.0, rel: 0.0, rel_to_max: 5e-6 };
/// The sums of 37 products end between vectors.
const DIMS: IndexerDims = IndexerDims { heads: 3, head_dim: 37, block: 50, topk: 4, ..IndexerDims::M3 };
const BF16: [bool; 2] = [true, true];
const F32: [bool; 2] = [false, false];

/// 40 queries at the end of 12 blocks, any values.
fn any(is_bf16: [bool; 2], seed: u64) -> Setup {
    let values = |is_bf16, seed, len| Data::new(is_bf16, fill_f32(seed, len, 1.0));
    Setup {
        dims: DIMS,
        queries: values(is_bf16[0], seed, 40 * 3 * 37),
        start: 560,
        keys: values(is_bf16[1], seed + 1, 600 * 37),
    }
}

/// A query of `query` in both heads and 8 blocks of one key each.
fn of_keys(is_bf16: bool, query: [f32; 2], keys: [[f32; 2]; 8]) -> Setup {
    let dims = IndexerDims { heads: 2, head_dim: 2, block: 1, topk: 3, ..IndexerDims::M3 };
    Setup { dims, queries: Data::new(is_bf16, [query; 2].concat()), start: 7, keys: Data::new(is_bf16, keys.concat()) }
}

fn bits(scores: &[f32]) -> Vec<u32> {
    scores.iter().map(|score| score.to_bits()).collect()
}

#[test]
fn scores_are_near_those_of_the_oracle() {
    for is_bf16 in [BF16, F32, [false, true], [true, false]] {
        for seed in 0..3 {
            for reduce in REDUCTIONS {
                let mut setup = any(is_bf16, 10 * seed);
                setup.dims.reduce = reduce;
                let expected = setup.expected().scores;
                for level in Level::available() {
                    let scores = setup.run_all(level, &pool(2)).unwrap().scores;
                    let shape = setup.dims.scores_shape(setup.count(), setup.length());
                    assert_close(level.name(), &scores, &expected, &shape, TOLERANCE);
                }
            }
        }
    }
}

/// BF16 values and F32 that holds the same give the same bits, where multiply-adds are fused or not.
#[test]
fn wider_formats_of_the_same_values_agree() {
    let narrow = any(BF16, 70);
    for level in levels() {
        let expected = narrow.run_all(level, &pool(2)).unwrap();
        for [queries, keys] in [[false, true], [true, false], F32] {
            let mut wide = narrow.clone();
            wide.queries = Data::new(queries, narrow.queries.to_f32());
            wide.keys = Data::new(keys, narrow.keys.to_f32());
            let out = wide.run_all(level, &pool(2)).unwrap();
            assert_eq!(out.ids, expected.ids, "{level}");
            assert_same_bits(level.name(), &out.scores, &expected.scores, &[expected.scores.len()]);
        }
    }
}

#[test]
fn scaling_queries_by_a_power_of_two_is_exact() {
    for is_bf16 in [BF16, F32] {
        let setup = any(is_bf16, 80);
        for factor in [0.015625, 0.5, 32.0] {
            let mut scaled = setup.clone();
            let queries = setup.queries.to_f32().into_iter().map(|value| value * factor).collect();
            scaled.queries = Data::new(is_bf16[0], queries);
            for level in levels() {
                let (out, scaled) = (setup.run_all(level, &pool(2)).unwrap(), scaled.run_all(level, &pool(2)).unwrap());
                let expected: Vec<f32> = out.scores.iter().map(|score| score * factor).collect();
                assert_eq!(scaled.ids, out.ids, "{level}");
                assert_same_bits(level.name(), &scaled.scores, &expected, &[expected.len()]);
            }
        }
    }
}

#[test]
fn a_zero_is_positive() {
    let setup = of_keys(false, [1.0, 0.0], [[-0.0, -0.0]; 8]);
    for level in levels() {
        let out = setup.run_all(level, &pool(1)).unwrap();
        assert_eq!(bits(&out.scores), [0; 16], "{level}");
        assert_eq!(out.ids, [0, 1, 7, 0, 1, 7], "{level}: all equal");
    }
}

/// Whichever NaN comes in, and those that products and sums make: a weight of zero hides no NaN and no infinity.
#[test]
fn every_nan_is_the_same() {
    const INF: f32 = f32::INFINITY;
    let payload = f32::from_bits(0xffaa_0000);
    let keys = [
        [1.0, 1.0],
        [f32::NAN, 0.0],
        [0.0, -f32::NAN],
        [2.0, 0.0],
        [INF, -INF],
        [payload, 0.0],
        [3.0, 0.0],
        [0.0, 0.0],
    ];
    for is_bf16 in [true, false] {
        for (query, nan) in [([1.0, 1.0], [1, 2, 4, 5]), ([0.0, 0.0], [1, 2, 4, 5])] {
            let setup = of_keys(is_bf16, query, keys);
            for level in levels() {
                let out = setup.run_all(level, &pool(1)).unwrap();
                for (at, score) in out.scores.iter().enumerate() {
                    let expected_nan = nan.contains(&(at % 8));
                    assert_eq!(score.is_nan(), expected_nan, "{level}: {:?}", out.scores);
                    assert!(!expected_nan || score.to_bits() == f32::NAN.to_bits(), "{level}: {:x}", score.to_bits());
                }
                assert_eq!(out.ids, [1, 2, 7, 1, 2, 7], "{level}");
            }
        }
    }
}

/// BF16 dot products take subnormal inputs as zero; everything else is exact.
#[test]
fn subnormals() {
    let subnormal = 2f32.powi(-130);
    assert!(bf16::from_f32(subnormal).to_f32() == subnormal);
    for is_bf16 in [true, false] {
        let setup = of_keys(is_bf16, [2f32.powi(120), 0.0], [[subnormal, 0.0]; 8]);
        for level in levels() {
            let flushed = is_bf16 && level.has_fast_bf16_dot();
            let expected = if flushed { 0.0 } else { 2f32.powi(-10) };
            let scores = setup.run_all(level, &pool(1)).unwrap().scores;
            assert_eq!(scores, [expected; 16], "{level}");
        }
    }
}

/// The margins of the golden data are wider than a BF16 step, so an implementation that rounds scores selects the same.
#[test]
fn golden_scores_rounded_to_bf16_select_the_same_blocks() {
    let ops = Ops::open("msa_indexer").unwrap();
    for case in ops.cases() {
        for reduce in REDUCTIONS {
            let (setup, expected) = golden::setup(&case, reduce);
            let rounded = expected.scores.iter().map(|&score| bf16::from_f32(score).to_f32()).collect();
            let shape = setup.dims.scores_shape(setup.count(), setup.length());
            let rounded = Array3::from_shape_vec(shape, rounded).unwrap();
            let ids = reference::select(&setup.dims, rounded.view(), setup.start).unwrap();
            assert_eq!(ids.as_slice().unwrap(), expected.ids, "{} {reduce:?}", case.name());
        }
    }
}
