// SPDX-License-Identifier: MIT OR Apache-2.0

//! NaN, infinities, zeros and subnormals in queries and keys; keys that nobody sees. What lies behind the last key and in
//! pages of other sequences is NaN in every layout of the fixture.

use crate::fixture::{KINDS, Kind, REDUCES, Sequence, dims, levels};
use cpu_tiles::Level;
use msa_indexer::HeadReduce;
use op_testkit::compare::assert_same_bits;

/// 12 blocks of 8 keys, top 4, two heads; the query at the last position.
fn sequence(kind: Kind) -> Sequence {
    Sequence::of_decode(dims(2, 20, 8, 4), kind, 96, 5)
}

/// The only NaN there is.
fn is_the_nan(score: f32) -> bool {
    score.to_bits() == f32::NAN.to_bits()
}

#[test]
fn a_nan_in_a_visible_key_is_the_score_of_its_block_and_selects_it() {
    for kind in KINDS {
        for reduce in REDUCES {
            let clean = sequence(kind).with_reduce(reduce);
            // Every place of a block and of a key, and both signs.
            for (key, channel, nan) in [(40, 0, f32::NAN), (45, 19, -f32::NAN), (47, 7, f32::NAN)] {
                let mut poisoned = clean.clone();
                poisoned.keys.set(key * 20 + channel, nan);
                for level in levels() {
                    let (_, expected) = clean.run(level);
                    let (ids, scores) = poisoned.run_all_layouts(level);
                    for (at, (score, expected)) in scores.iter().zip(&expected).enumerate() {
                        match at % 12 {
                            5 => assert!(is_the_nan(*score), "{level} {kind:?}: {score}"),
                            _ => assert_eq!(score.to_bits(), expected.to_bits(), "{level} {kind:?}"),
                        }
                    }
                    assert!(ids.chunks_exact(4).all(|ids| ids.contains(&5)), "{level} {kind:?}: {ids:?}");
                    assert_eq!(ids, poisoned.expected().0.as_slice(), "{level} {kind:?}");
                }
            }
        }
    }
}

/// A weight of zero hides no NaN and makes one of an infinity.
#[test]
fn zeros_times_nan_and_infinity() {
    for poison in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut sequence = sequence(Kind::Integers);
        for channel in 0..40 {
            sequence.queries.set(channel, 0.0);
        }
        sequence.keys.set(13 * 20 + 3, poison);
        for level in levels() {
            let (ids, scores) = sequence.run_all_layouts(level);
            let nan_at_1 = scores.iter().enumerate().all(|(at, &score)| match at % 12 {
                1 => is_the_nan(score),
                _ => score.to_bits() == 0,
            });
            assert!(nan_at_1, "{level}: {scores:?}");
            assert_eq!(ids, [0, 1, 2, 11, 0, 1, 2, 11], "{level}");
        }
    }
}

#[test]
fn a_nan_in_a_query_stays_in_its_head() {
    for kind in KINDS {
        let clean = sequence(kind);
        let mut poisoned = clean.clone();
        poisoned.queries.set(20 + 11, f32::NAN);
        for level in levels() {
            let expected = clean.run(level);
            let (ids, scores) = poisoned.run(level);
            assert_same_bits("the other head", &scores[..12], &expected.1[..12], &[12]);
            assert_eq!(ids[..4], expected.0[..4], "{level}");
            assert!(scores[12..].iter().all(|&score| is_the_nan(score)), "{level}");
            assert_eq!(ids[4..], [0, 1, 2, 11], "{level}: all NaN, a tie");

            let (ids, scores) = poisoned.with_reduce(HeadReduce::Shared).run(level);
            assert!(scores.iter().all(|&score| is_the_nan(score)), "{level}");
            assert_eq!(ids, [0, 1, 2, 11], "{level}");
        }
    }
}

#[test]
fn infinities_are_the_best_and_the_worst() {
    for reduce in REDUCES {
        let mut sequence = sequence(Kind::Bf16).with_reduce(reduce);
        for head in 0..2 {
            sequence.queries.set(head * 20, 1.0);
        }
        sequence.keys.set(50 * 20, f32::INFINITY);
        // All keys of block 2.
        for key in 16..24 {
            sequence.keys.set(key * 20, f32::NEG_INFINITY);
        }
        for level in levels() {
            let (ids, scores) = sequence.run_all_layouts(level);
            for scores in scores.chunks_exact(12) {
                assert_eq!((scores[6], scores[2]), (f32::INFINITY, f32::NEG_INFINITY), "{level}");
            }
            assert!(ids.chunks_exact(4).all(|ids| ids.contains(&6) && !ids.contains(&2)), "{level}: {ids:?}");
        }
    }
}

/// Infinities of both signs in one sum.
#[test]
fn infinity_minus_infinity_is_nan() {
    let mut sequence = sequence(Kind::F32);
    for head in 0..2 {
        sequence.queries.set(head * 20, 1.0);
        sequence.queries.set(head * 20 + 9, 1.0);
    }
    sequence.keys.set(50 * 20, f32::INFINITY);
    sequence.keys.set(50 * 20 + 9, f32::NEG_INFINITY);
    for level in levels() {
        let (_, scores) = sequence.run_all_layouts(level);
        assert!(is_the_nan(scores[6]) && is_the_nan(scores[12 + 6]), "{level}");
    }
}

/// Keys behind a query, in its own block and in later ones, do not reach it.
#[test]
fn what_a_query_does_not_see_has_no_effect() {
    for kind in KINDS {
        for reduce in REDUCES {
            let clean = Sequence::new(dims(2, 20, 8, 4), kind, 30, 66, 96, 9).with_reduce(reduce);
            for poison in [f32::NAN, f32::INFINITY] {
                // Position 61 is in the middle of a block: 31 queries see nothing of it.
                let mut poisoned = clean.clone();
                for at in 61 * 20..96 * 20 {
                    poisoned.keys.set(at, poison);
                }
                for level in levels() {
                    let (expected, actual) = (clean.run(level), poisoned.run(level));
                    let ids = 31 * clean.ids_shape()[1..].iter().product::<usize>();
                    let scores = 31 * clean.scores_shape()[1..].iter().product::<usize>();
                    assert_eq!(actual.0[..ids], expected.0[..ids], "{level} {kind:?}");
                    assert_same_bits("seen", &actual.1[..scores], &expected.1[..scores], &[scores]);
                    let behind = &actual.1[scores..];
                    assert!(behind.iter().any(|score| !score.is_finite() && *score != f32::NEG_INFINITY), "{level}");
                }
            }
        }
    }
}

#[test]
fn a_score_of_zero_is_positive() {
    let mut sequence = sequence(Kind::F32);
    for at in 0..sequence.keys.len() {
        sequence.keys.set(at, -0.0);
    }
    for level in levels() {
        let (_, scores) = sequence.run(level);
        assert!(scores.iter().all(|score| score.to_bits() == 0), "{level}: {scores:?}");
    }
}

/// BF16 dot products take subnormal inputs as zero; everything else is exact.
#[test]
fn subnormals() {
    let subnormal = 2f32.powi(-130);
    for (kind, is_bf16) in [(Kind::Bf16, true), (Kind::Mixed, false), (Kind::F32, false)] {
        let mut sequence = sequence(kind);
        for at in 0..40 {
            sequence.queries.set(at, if at % 20 == 3 { 2f32.powi(120) } else { 0.0 });
        }
        for at in 0..96 * 20 {
            sequence.keys.set(at, if at % 20 == 3 { subnormal } else { 0.0 });
        }
        for level in levels() {
            let flushed = is_bf16 && level.has_fast_bf16_dot();
            let expected = if flushed { 0.0 } else { 2f32.powi(-10) };
            let (_, scores) = sequence.run(level);
            assert!(scores.iter().all(|&score| score == expected), "{level} {kind:?}: {scores:?}");
        }
    }
    assert!(!Level::SCALAR.has_fast_bf16_dot());
}
