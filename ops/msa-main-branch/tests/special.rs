// SPDX-License-Identifier: MIT OR Apache-2.0

//! NaN and infinities go where IEEE arithmetic sends them, and nowhere else.

use crate::fixture::{KINDS, Kind, Lists, Sequence, dims, levels, pool, run, run_plain};
use msa_main_branch::{AttentionDims, RowDefined};
use op_testkit::compare::assert_same_bits;

const DIMS: AttentionDims = dims(6, 3, 24, 10);

/// Queries at positions 15 to 41 of 50 tokens.
fn sequence(kind: Kind) -> Sequence {
    Sequence::new(DIMS, kind, 15, 27, 8, 40)
}

/// For each query and KV head its own block and one before it.
fn lists() -> Lists {
    let list = |row: usize| {
        let own = ((15 + row / DIMS.kv_heads) / DIMS.block) as i32;
        [own, (row % own as usize) as i32]
    };
    Lists::PerQuery((0..27 * DIMS.kv_heads).flat_map(list).collect())
}

/// Whether a query sees a token in a KV head.
fn sees(lists: &Lists, query: usize, kv_head: usize, token: usize) -> bool {
    let Lists::PerQuery(ids) = lists else { unreachable!("lists of queries") };
    let list = &ids[(query * DIMS.kv_heads + kv_head) * 2..][..2];
    token <= 15 + query && list.contains(&((token / DIMS.block) as i32))
}

fn row(values: &[f32], query: usize, kv_head: usize) -> &[f32] {
    let width = DIMS.heads / DIMS.kv_heads * DIMS.head_dim;
    &values[(query * DIMS.kv_heads + kv_head) * width..][..width]
}

/// Spoils a token in one KV head and checks that exactly the rows that see it change, as `is_spoilt` says.
fn spoils(what: &str, spoil: impl Fn(&mut Sequence, usize, usize), is_spoilt: impl Fn(&[f32]) -> bool) {
    for kind in KINDS {
        let (clean, lists) = (sequence(kind), lists());
        for level in levels() {
            let (expected, _) = run_plain(level, &clean, &lists);
            for (token, kv_head) in [(0, 0), (14, 1), (19, 2), (30, 0), (41, 1), (45, 2), (49, 0)] {
                let mut spoilt = clean.clone();
                spoil(&mut spoilt, token, kv_head);
                let (out, defined) = run_plain(level, &spoilt, &lists);
                assert!(defined.all());
                let mut seen = 0;
                for query in 0..27 {
                    for head in 0..DIMS.kv_heads {
                        let (found, clean) = (row(&out, query, head), row(&expected, query, head));
                        let what =
                            format!("{what} in token {token}, head {kv_head}: row {query}, {head}, {kind:?}, {level}");
                        if head == kv_head && sees(&lists, query, head, token) {
                            seen += 1;
                            assert!(is_spoilt(found), "{what}: {found:?}");
                        } else {
                            assert_same_bits(&what, found, clean, &[clean.len()]);
                        }
                    }
                }
                assert_eq!(seen > 0, token < 42, "the token is one that somebody sees");
            }
        }
    }
}

#[test]
fn a_nan_in_a_key_reaches_exactly_the_rows_that_see_it() {
    let spoil = |sequence: &mut Sequence, token, head| sequence.k.set(sequence.at(token, head, 5), f32::NAN);
    spoils("NaN key", spoil, |row| row.iter().all(|x| x.is_nan()));
}

#[test]
fn a_nan_in_a_value_reaches_exactly_the_rows_that_see_it() {
    let spoil = |sequence: &mut Sequence, token, head| sequence.v.set(sequence.at(token, head, 7), f32::NAN);
    let is_spoilt = |row: &[f32]| row.iter().enumerate().all(|(at, x)| x.is_nan() == (at % DIMS.head_dim == 7));
    spoils("NaN value", spoil, is_spoilt);
}

/// Probabilities of zero times infinity are NaN; others are infinite.
#[test]
fn an_infinity_in_a_value_reaches_exactly_the_rows_that_see_it() {
    let spoil = |sequence: &mut Sequence, token, head| sequence.v.set(sequence.at(token, head, 23), f32::NEG_INFINITY);
    let is_spoilt = |row: &[f32]| row.iter().enumerate().all(|(at, x)| x.is_finite() == (at % DIMS.head_dim != 23));
    spoils("infinite value", spoil, is_spoilt);
}

/// What nobody may look at is NaN: places of pages behind the last token, pages and slots that nobody owns, keys behind the
/// last query.
#[test]
fn padding_is_never_read() {
    for kind in KINDS {
        let clean = Sequence::new(DIMS, kind, 15, 27, 0, 40);
        let lists = lists();
        for level in levels() {
            let (expected, _) = run_plain(level, &clean, &lists);
            let run = |keys_values| -> (Vec<f32>, RowDefined) {
                run(level, &pool(2), &DIMS, clean.query(), keys_values, lists.get()).unwrap()
            };
            let paged = clean.paged();
            assert!(paged.keys.wide().iter().any(|x| x.is_nan()), "pages have padding");
            assert_same_bits("paged", &run(paged.get()).0, &expected, &clean.shape());
            let gathered = clean.gathered(&[2, 4, 0, 1, 3, -1]);
            assert!(gathered.keys.wide().iter().any(|x| x.is_nan()), "slots have padding");
            assert_same_bits("gathered", &run(gathered.get()).0, &expected, &clean.shape());

            let mut longer = sequence(kind);
            for token in 42..50 {
                for at in longer.at(token, 0, 0)..longer.at(token + 1, 0, 0) {
                    longer.k.set(at, f32::NAN);
                    longer.v.set(at, f32::NAN);
                }
            }
            for at in 0..longer.at(42, 0, 0) {
                longer.k.set(at, clean.k.data().get(at));
                longer.v.set(at, clean.v.data().get(at));
            }
            assert_same_bits("longer", &run(longer.plain()).0, &expected, &clean.shape());
        }
    }
}

/// A query with a NaN or an infinity spoils its own heads only.
#[test]
fn special_queries() {
    for kind in KINDS {
        let (clean, lists) = (sequence(kind), lists());
        for level in levels() {
            let (expected, _) = run_plain(level, &clean, &lists);
            for special in [f32::NAN, f32::INFINITY] {
                let mut spoilt = clean.clone();
                // Query 9, head 4.
                spoilt.q.set((9 * DIMS.heads + 4) * DIMS.head_dim + 3, special);
                let (out, _) = run_plain(level, &spoilt, &lists);
                for (at, (found, clean)) in
                    out.chunks_exact(DIMS.head_dim).zip(expected.chunks_exact(DIMS.head_dim)).enumerate()
                {
                    if at == 9 * DIMS.heads + 4 {
                        assert!(found.iter().all(|x| x.is_nan()), "{special}, {kind:?} at {level}: {found:?}");
                    } else {
                        assert_same_bits("other heads", found, clean, &[DIMS.head_dim]);
                    }
                }
            }
        }
    }
}

/// Scores beyond the range of e^x: the softmax is relative to the largest, so nothing overflows, and the rest vanishes.
#[test]
fn large_scores() {
    for kind in KINDS {
        let mut sequence = Sequence::new(dims(1, 1, 4, 4), kind, 0, 9, 0, 3);
        for at in 0..36 {
            sequence.q.set(at, 100.0);
            // Token 3 has by far the largest score.
            sequence.k.set(at, if at / 4 == 3 { 200.0 } else { -200.0 });
            sequence.v.set(at, (at / 4) as f32);
        }
        for level in levels() {
            let (out, _) = run_plain(level, &sequence, &Lists::All);
            let expected = |at: usize| match at / 4 {
                0 => 0.0,
                1 => 0.5,
                2 => 1.0,
                _ => 3.0,
            };
            for (at, found) in out.iter().enumerate() {
                assert!((found - expected(at)).abs() < 1e-6, "{at}: {found}, {kind:?} at {level}");
            }
        }
    }
}
