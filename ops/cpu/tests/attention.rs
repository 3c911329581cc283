// SPDX-License-Identifier: MIT OR Apache-2.0

//! The online softmax against a plain one in F64, on every level; what must not reach a row; and that neither the company
//! of a row nor the memory around a block has an effect.

use crate::support::levels;
use cpu_tiles::attention::{FlashRows, PackedBlock, PackedBlocks, PackedPages, Rows};
use cpu_tiles::weights::packed_index;
use cpu_tiles::{Acts, Format, Level, PANEL, PackedRef, Pool, Precision, Weight, WeightRef};
use half::bf16;
use op_testkit::fill_f32;
use proptest::prelude::*;

/// Queries, keys and values of one KV head, BF16 values held as F32.
struct Case {
    head_dim: usize,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

fn round(x: f32) -> f32 {
    bf16::from_f32(x).to_f32()
}

fn narrow(x: &[f32]) -> Vec<bf16> {
    x.iter().copied().map(bf16::from_f32).collect()
}

fn filled(seed: u64, len: usize) -> Vec<f32> {
    fill_f32(seed, len, 1.0).into_iter().map(round).collect()
}

impl Case {
    fn new(head_dim: usize, rows: usize, keys: usize, seed: u64) -> Self {
        Self {
            head_dim,
            q: filled(seed, rows * head_dim),
            k: filled(seed + 1, keys * head_dim),
            v: filled(seed + 2, keys * head_dim),
        }
    }

    fn rows(&self) -> usize {
        self.q.len() / self.head_dim
    }

    fn keys(&self) -> usize {
        self.k.len() / self.head_dim
    }

    fn acts(&self, level: Level, precision: Precision) -> Acts {
        Acts::from_f32(level, &Pool::new(1).unwrap(), precision, self.rows(), self.head_dim, &self.q).unwrap()
    }

    /// The formula, in F64: what a row sees is given key by key, as is what is added to its scores.
    fn expected(
        &self,
        scale: f32,
        sees: impl Fn(usize, usize) -> bool,
        bias: impl Fn(usize, usize) -> f64,
    ) -> Vec<f64> {
        let d = self.head_dim;
        let mut out = Vec::new();
        for (row, q) in self.q.chunks(d).enumerate() {
            let seen: Vec<usize> = (0..self.keys()).filter(|&key| sees(row, key)).collect();
            let dot =
                |key: usize| q.iter().zip(&self.k[key * d..]).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
            let scores: Vec<f64> = seen.iter().map(|&key| f64::from(scale) * dot(key) + bias(row, key)).collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let e: Vec<f64> = scores.iter().map(|x| (x - max).exp()).collect();
            let sum: f64 = e.iter().sum();
            for channel in 0..d {
                let total: f64 = seen.iter().zip(&e).map(|(key, e)| e * f64::from(self.v[key * d + channel])).sum();
                out.push(if sum == 0.0 || seen.is_empty() { 0.0 } else { total / sum });
            }
        }
        out
    }
}

/// Takes all keys, in blocks; `visible(row, first key of the block, its keys)`.
fn attend(
    state: &mut FlashRows,
    case: &Case,
    (level, precision, format): (Level, Precision, Format),
    block: usize,
    scale: f32,
    visible: impl Fn(usize, usize, usize) -> usize,
) {
    let d = case.head_dim;
    let q = case.acts(level, precision);
    let all: Vec<u32> = (0..case.rows() as u32).collect();
    let mut packed = PackedBlock::new(format, d, block).unwrap();
    for first in (0..case.keys()).step_by(block) {
        let keys = block.min(case.keys() - first);
        let range = first * d..(first + keys) * d;
        packed.pack_f32(level, keys, &case.k[range.clone()], &case.v[range], d).unwrap();
        let seen: Vec<u32> = (0..case.rows()).map(|row| visible(row, first, keys) as u32).collect();
        let rows = Rows { rows: &all, q_rows: &all, visible: &seen, bias: None };
        state.block(&q, rows, scale, packed.keys(), packed.values()).unwrap();
    }
}

fn new_state(level: Level, precision: Precision, case: &Case, block: usize) -> FlashRows {
    let mut state = FlashRows::new(level, precision, case.head_dim, case.rows(), block).unwrap();
    state.reset(case.rows()).unwrap();
    state
}

fn finish(state: &FlashRows) -> Vec<f32> {
    let mut out = vec![f32::NAN; state.rows() * state.head_dim()];
    for (row, out) in out.chunks_mut(state.head_dim()).enumerate() {
        state.finish(row, out);
    }
    out
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Largest difference that is admitted: values are below 1.
fn tolerance(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 2e-5,
        Precision::Bf16 => 4e-3,
    }
}

fn assert_close(what: &str, found: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(*found) - expected).abs();
        assert!(error <= tolerance, "{what} at {i}: {found} for {expected}");
    }
}

const KINDS: [(Precision, Format); 3] =
    [(Precision::F32, Format::F32), (Precision::Bf16, Format::Bf16), (Precision::F32, Format::Bf16)];

#[test]
fn every_level_precision_and_size_is_right() {
    for level in levels() {
        for (precision, format) in KINDS {
            for (head_dim, rows, keys, block) in [
                (128, 16, 300, 128),
                (96, 7, 129, 32),
                (32, 1, 77, 20),
                (40, 13, 70, 32),
                (128, 1, 1, 128),
                (64, 6, 128, 128),
                (5, 3, 9, 3),
            ] {
                let case = Case::new(head_dim, rows, keys, 11);
                let scale = 1.5 / (head_dim as f32).sqrt();
                let what = format!("{level} {precision:?} {format} {head_dim} {rows} {keys} {block}");

                let mut state = new_state(level, precision, &case, block);
                attend(&mut state, &case, (level, precision, format), block, scale, |_, _, keys| keys);
                let expected = case.expected(scale, |_, _| true, |_, _| 0.0);
                assert_close(&what, &finish(&state), &expected, tolerance(precision));

                // Causal: row r sees the first keys / rows * (r + 1).
                let limit = |row: usize| (keys * (row + 1)).div_ceil(rows);
                let mut state = new_state(level, precision, &case, block);
                attend(&mut state, &case, (level, precision, format), block, scale, |row, first, keys| {
                    limit(row).saturating_sub(first).min(keys)
                });
                let expected = case.expected(scale, |row, key| key < limit(row), |_, _| 0.0);
                assert_close(&what, &finish(&state), &expected, tolerance(precision));
            }
        }
    }
}

#[test]
fn a_state_is_used_again_and_sees_nothing_of_before() {
    for level in levels() {
        let kind = (level, Precision::Bf16, Format::Bf16);
        let (first, second) = (Case::new(40, 9, 50, 1), Case::new(40, 5, 33, 2));
        let mut used = new_state(level, Precision::Bf16, &first, 32);
        attend(&mut used, &first, kind, 32, 1.0, |_, _, keys| keys);
        used.reset(5).unwrap();
        attend(&mut used, &second, kind, 32, 0.3, |_, _, keys| keys);
        let mut new = new_state(level, Precision::Bf16, &second, 32);
        attend(&mut new, &second, kind, 32, 0.3, |_, _, keys| keys);
        assert_eq!(bits(&finish(&used)), bits(&finish(&new)), "{level}");
    }
}

#[test]
fn a_state_of_another_size_in_the_same_memory_is_as_a_new_one() {
    let level = Level::best();
    let (large, small, wide) = (Case::new(72, 5, 130, 1), Case::new(24, 3, 70, 2), Case::new(200, 2, 60, 3));
    let mut state = new_state(level, Precision::F32, &large, 130);
    for (case, precision) in
        [(&small, Precision::Bf16), (&large, Precision::F32), (&wide, Precision::Bf16), (&small, Precision::F32)]
    {
        let mut new = new_state(level, precision, case, case.keys());
        state.resize(level, precision, case.head_dim, case.rows(), case.keys()).unwrap();
        assert_eq!(state.rows(), 0);
        for state in [&mut state, &mut new] {
            state.reset(case.rows()).unwrap();
            let mut block = PackedBlock::new(Format::F32, case.head_dim, case.keys()).unwrap();
            block.pack_f32(level, case.keys(), &case.k, &case.v, case.head_dim).unwrap();
            let rows: Vec<u32> = (0..case.rows() as u32).collect();
            let visible = vec![case.keys() as u32; rows.len()];
            let rows = Rows { rows: &rows, q_rows: &rows, visible: &visible, bias: None };
            state.block(&case.acts(level, precision), rows, 0.3, block.keys(), block.values()).unwrap();
        }
        assert_eq!(bits(&finish(&state)), bits(&finish(&new)));
        assert!(state.reset(case.rows() + 1).is_err(), "there is room for no more");
    }
}

#[test]
fn a_row_that_sees_nothing_is_zero_and_says_so() {
    for level in levels() {
        for (precision, format) in KINDS {
            let case = Case::new(32, 3, 40, 5);
            let mut state = new_state(level, precision, &case, 20);
            // Row 1 sees nothing at all, row 2 only the second block.
            attend(&mut state, &case, (level, precision, format), 20, 1.0, |row, first, keys| match row {
                0 => keys,
                1 => 0,
                _ => {
                    if first == 0 {
                        0
                    } else {
                        3
                    }
                }
            });
            let mut out = [f32::NAN; 32];
            assert!(!state.finish(1, &mut out));
            assert_eq!(out, [0.0; 32], "{level}");
            assert!(state.finish(2, &mut out));
            let expected = case.expected(1.0, |row, key| row == 2 && (20..23).contains(&key), |_, _| 0.0);
            assert_close("row 2", &out, &expected[64..], tolerance(precision));
        }
    }
}

#[test]
fn a_nan_of_any_bits_makes_its_row_nan() {
    for level in levels() {
        for (precision, format) in KINDS {
            for nan in [0x7FFF_FFFF, 0xFFFF_FFFF, 0x7F80_0001, 0x7FC0_0000].map(f32::from_bits) {
                let case = Case::new(32, 2, 20, 5);
                let mut packed = PackedBlock::new(format, 32, 20).unwrap();
                packed.pack_f32(level, 20, &case.k, &case.v, 32).unwrap();
                let mut bias = [0.0; 40];
                bias[7] = nan;
                let mut state = new_state(level, precision, &case, 20);
                let rows = Rows { rows: &[0, 1], q_rows: &[0, 1], visible: &[20, 20], bias: Some(&bias) };
                state.block(&case.acts(level, precision), rows, 1.0, packed.keys(), packed.values()).unwrap();
                let out = finish(&state);
                assert!(out[..32].iter().all(|x| x.is_nan()), "{level} {precision:?} {nan:?}");
                let expected = case.expected(1.0, |_, _| true, |_, _| 0.0);
                assert_close("the other row", &out[32..], &expected[32..], tolerance(precision));
            }
        }
    }
}

/// The same values in packed layout, with other values in all places that belong to no key and channel.
fn padded(k: &[f32], v: &[f32], d: usize, room: usize, rest: f32) -> (Vec<bf16>, Vec<bf16>) {
    let keys = k.len() / d;
    let (key_room, value_room) = (d.next_multiple_of(4), room.next_multiple_of(4));
    let mut packed_k = vec![bf16::from_f32(rest); room.next_multiple_of(PANEL) * key_room];
    let mut packed_v = vec![bf16::from_f32(rest); d.next_multiple_of(PANEL) * value_room];
    let index = |output: usize, room: usize, k: usize| {
        output / PANEL * PANEL * room + packed_index(Format::Bf16, output % PANEL, k)
    };
    for key in 0..room {
        for channel in 0..key_room {
            // Tiles multiply the padding of the channels: it is zero in every cache.
            let value = if channel >= d {
                0.0
            } else if key < keys {
                k[key * d + channel]
            } else {
                rest
            };
            packed_k[index(key, key_room, channel)] = bf16::from_f32(value);
        }
    }
    for key in 0..keys {
        for channel in 0..d {
            packed_v[index(channel, value_room, key)] = bf16::from_f32(v[key * d + channel]);
        }
    }
    (packed_k, packed_v)
}

#[test]
fn nothing_unseen_reaches_a_row() {
    for level in levels() {
        for precision in [Precision::F32, Precision::Bf16] {
            for (d, room, keys) in [(32, 128, 70), (40, 20, 18), (128, 64, 61), (5, 128, 3)] {
                let rows = 7;
                let case = Case::new(d, rows, keys, 3);
                let seen: Vec<u32> = (0..rows).map(|row| (keys * (row + 1) / rows) as u32).collect();
                let all: Vec<u32> = (0..rows as u32).collect();
                let run = |k: Weight<'_>, v: Weight<'_>, seen: &[u32]| {
                    let mut state = new_state(level, precision, &case, room);
                    let rows = Rows { rows: &all, q_rows: &all, visible: seen, bias: None };
                    state.block(&case.acts(level, precision), rows, 0.5, k, v).unwrap();
                    finish(&state)
                };
                let whole = |k: &[f32], v: &[f32], rest: f32, tokens: usize| {
                    let (k, v) = padded(k, v, d, room, rest);
                    let keys = PackedRef::bf16(room, d, d.next_multiple_of(4), &k).unwrap();
                    let values = PackedRef::bf16(d, tokens, room.next_multiple_of(4), &v).unwrap();
                    run(keys.into(), values.into(), &seen)
                };
                let clean = whole(&case.k, &case.v, 0.0, keys);
                let expected = case.expected(0.5, |row, key| key < seen[row] as usize, |_, _| 0.0);
                assert_close(&format!("{level} {d}"), &clean, &expected, tolerance(precision));
                for poison in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let what = format!("{level} {precision:?} {d} {room} {keys} {poison}");
                    // Beyond all keys: in the padding, and as keys of the block that no row sees.
                    for tokens in [keys, room] {
                        assert_eq!(bits(&whole(&case.k, &case.v, poison, tokens)), bits(&clean), "{what} {tokens}");
                    }
                    // In keys that some rows see, and others do not.
                    let first = seen[3] as usize;
                    for (in_k, in_v) in [(true, false), (false, true), (true, true)] {
                        let (mut k, mut v) = (case.k.clone(), case.v.clone());
                        if in_k {
                            k[first * d..].fill(poison);
                        }
                        if in_v {
                            v[first * d..].fill(poison);
                        }
                        for out in [
                            whole(&k, &v, poison, room),
                            run(
                                WeightRef::bf16(keys, d, &narrow(&k)).unwrap().into(),
                                WeightRef::bf16(d, keys, &transposed(&narrow(&v), d)).unwrap().into(),
                                &seen,
                            ),
                        ] {
                            assert_eq!(bits(&out[..4 * d]), bits(&clean[..4 * d]), "{what} {in_k} {in_v}");
                            // A key of infinities may be one whose score is minus infinity, and count for nothing.
                            if poison.is_nan() || in_v {
                                assert!(out[4 * d..].iter().all(|x| !x.is_finite()), "{what} {in_k} {in_v}");
                            }
                        }
                    }
                }
            }
        }
    }
}

fn transposed(v: &[bf16], d: usize) -> Vec<bf16> {
    (0..d).flat_map(|channel| v.iter().skip(channel).step_by(d)).copied().collect()
}

#[test]
fn a_row_of_which_the_first_key_is_nan_is_nan() {
    // The maximum has no number to start from.
    for level in levels() {
        let mut case = Case::new(8, 1, 5, 3);
        case.k[..8].fill(f32::NAN);
        let mut state = new_state(level, Precision::F32, &case, 4);
        attend(&mut state, &case, (level, Precision::F32, Format::F32), 4, 1.0, |_, first, _| 1 - first / 4);
        let mut out = [0.0; 8];
        assert!(state.finish(0, &mut out) && out.iter().all(|x| x.is_nan()), "{level}: {out:?}");
    }
}

#[test]
fn a_bias_is_added_and_minus_infinity_hides() {
    for level in levels() {
        for (precision, format) in KINDS {
            let (d, rows, keys, block) = (40, 5, 75, 32);
            let mut case = Case::new(d, rows, keys, 9);
            let bias: Vec<f32> = fill_f32(17, rows * keys, 2.0)
                .into_iter()
                .map(|x| {
                    if x > 1.4 {
                        f32::NEG_INFINITY
                    } else if x < -1.8 {
                        -1e9
                    } else {
                        x
                    }
                })
                .collect();
            let hidden = |row: usize, key: usize| row == 2 || bias[row * keys + key] == f32::NEG_INFINITY;
            let run = |case: &Case| {
                let mut state = new_state(level, precision, case, block);
                let q = case.acts(level, precision);
                let mut packed = PackedBlock::new(format, d, block).unwrap();
                for first in (0..keys).step_by(block) {
                    let count = block.min(keys - first);
                    let range = first * d..(first + count) * d;
                    packed.pack_f32(level, count, &case.k[range.clone()], &case.v[range], d).unwrap();
                    // Rows in another order of queries, one of them hidden by minus infinity throughout.
                    let part: Vec<f32> = [0, 1, 2, 3, 4]
                        .iter()
                        .flat_map(|&row| (first..first + count).map(move |key| (row, key)))
                        .map(|(row, key)| if hidden(row, key) { f32::NEG_INFINITY } else { bias[row * keys + key] })
                        .collect();
                    let rows = Rows {
                        rows: &[0, 1, 2, 3, 4],
                        q_rows: &[0, 1, 2, 3, 4],
                        visible: &[count as u32; 5],
                        bias: Some(&part),
                    };
                    state.block(&q, rows, 0.5, packed.keys(), packed.values()).unwrap();
                }
                let mut out = vec![f32::NAN; d];
                assert!(!state.finish(2, &mut out) && out == vec![0.0; d], "{level}: a hidden row");
                finish(&state)
            };
            let clean = run(&case);
            let what = format!("{level} {precision:?} {format}");
            let of = |row: usize, key: usize| f64::from(bias[row * keys + key]);
            let expected = case.expected(0.5, |row, key| !hidden(row, key), of);
            assert_close(&what, &clean, &expected, tolerance(precision));

            // A key that all rows hide may hold anything.
            let key = (0..keys).find(|&key| [0, 1, 3, 4].iter().filter(|&&row| hidden(row, key)).count() == 1).unwrap();
            case.k[key * d..(key + 1) * d].fill(f32::NAN);
            case.v[key * d..(key + 1) * d].fill(f32::INFINITY);
            let out = run(&case);
            for row in [0, 1, 3, 4] {
                let range = row * d..(row + 1) * d;
                if hidden(row, key) {
                    assert_eq!(bits(&out[range.clone()]), bits(&clean[range]), "{what} row {row}");
                } else {
                    assert!(out[range].iter().all(|x| x.is_nan()), "{what} row {row}");
                }
            }
        }
    }
}

#[test]
fn merged_parts_are_the_sequence_up_to_rounding() {
    for level in levels() {
        for (precision, format) in KINDS {
            let (d, rows, keys, block) = (96, 6, 200, 32);
            let case = Case::new(d, rows, keys, 21);
            let kind = (level, precision, format);
            let mut whole = new_state(level, precision, &case, block);
            // Row 0 sees nothing of the second half, row 1 nothing of the first.
            let sees = |row: usize, key: usize| match row {
                0 => key < 96,
                1 => key >= 96,
                _ => true,
            };
            let visible = |row: usize, first: usize, keys: usize| if sees(row, first) { keys } else { 0 };
            attend(&mut whole, &case, kind, block, 0.7, visible);
            let mut merged = new_state(level, precision, &case, block);
            let mut part = new_state(level, precision, &case, block);
            for half in 0..2 {
                part.reset(rows).unwrap();
                attend(&mut part, &case, kind, block, 0.7, |row, first, keys| {
                    if (first >= 96) == (half == 1) { visible(row, first, keys) } else { 0 }
                });
                merged.merge(&part).unwrap();
            }
            let whole = finish(&whole);
            let expected = case.expected(0.7, sees, |_, _| 0.0);
            let merged = finish(&merged);
            assert_close("merged", &merged, &expected, tolerance(precision));
            for (a, b) in merged.iter().zip(&whole) {
                let bound = if precision == Precision::F32 { 1e-5 } else { 4e-3 };
                assert!((a - b).abs() <= bound, "{level} {precision:?}: {a} {b}");
            }
            // Rows of one part only are those of the part, bit for bit.
            assert_eq!(bits(&merged[..2 * d]), bits(&whole[..2 * d]), "{level}");
        }
    }
}

#[test]
fn large_scores_do_not_overflow_and_a_large_block_after_small_ones_takes_over() {
    for level in levels() {
        let mut case = Case::new(32, 2, 60, 2);
        case.k[40 * 32..].iter_mut().for_each(|x| *x = round(*x * 300.0));
        let mut state = new_state(level, Precision::F32, &case, 20);
        attend(&mut state, &case, (level, Precision::F32, Format::F32), 20, 1.0, |_, _, keys| keys);
        assert_close(&level.to_string(), &finish(&state), &case.expected(1.0, |_, _| true, |_, _| 0.0), 2e-3);
    }
}

#[test]
fn plain_strided_blocks_are_packed_as_they_are() {
    for level in levels() {
        for (d, stride, keys, block) in [(32, 96, 33, 64), (40, 40, 20, 20), (128, 130, 65, 128)] {
            let (k, v) = (filled(1, keys * stride), filled(2, keys * stride));
            let mut from = Vec::new();
            for format in [Format::F32, Format::Bf16] {
                let mut packed = PackedBlock::new(format, d, block).unwrap();
                // Twice, so that what the first left behind would show.
                packed.pack_f32(level, block, &vec![9.0; block * d], &vec![9.0; block * d], d).unwrap();
                packed.pack_f32(level, keys, &k, &v, stride).unwrap();
                from.push(read(&packed));
                packed.pack_bf16(level, block, &vec![bf16::NAN; block * d], &vec![bf16::NAN; block * d], d).unwrap();
                // The last row ends with its last value.
                let end = (keys - 1) * stride + d;
                packed.pack_bf16(level, keys, &narrow(&k)[..end], &narrow(&v)[..end], stride).unwrap();
                from.push(read(&packed));
            }
            let plain = |x: &[f32]| x.chunks(stride).flat_map(|row| &row[..d]).copied().collect::<Vec<_>>();
            for (packed_k, packed_v) in from {
                assert_eq!(packed_k, plain(&k), "{level} keys");
                assert_eq!(packed_v, plain(&v), "{level} values");
            }
        }
    }
}

#[test]
fn pages_hold_what_was_written_all_at_once_or_token_by_token() {
    let (heads, pages) = (3, 2);
    for level in levels() {
        for (d, block, tokens) in [(32, 64, 64), (40, 20, 18), (5, 7, 7), (70, 130, 129)] {
            for format in [Format::F32, Format::Bf16] {
                let stride = heads * d;
                let (k, v) = (filled(1, tokens * stride), filled(2, tokens * stride));
                let (k16, v16) = (narrow(&k), narrow(&v));
                let [mut whole, mut grown] =
                    [(); 2].map(|()| PackedPages::new(format, heads, d, block, pages).unwrap());
                assert_eq!(
                    (whole.kv_heads(), whole.head_dim(), whole.block_tokens(), whole.blocks()),
                    (heads, d, block, pages)
                );
                let expected = if format == Format::F32 { Precision::F32 } else { Precision::Bf16 };
                assert_eq!(whole.precision(), expected);
                for head in 0..heads {
                    let at = head * d;
                    whole.write_bf16(level, 1, head, 0, tokens, &k16[at..], &v16[at..], stride).unwrap();
                    for token in 0..tokens {
                        let at = at + token * stride;
                        grown.write_f32(level, 1, head, token, 1, &k[at..], &v[at..], stride).unwrap();
                    }
                }
                let q = Case::new(d, 4, 1, 3).acts(level, Precision::F32);
                for head in 0..heads {
                    let [a, b] = [&whole, &grown].map(|pages| {
                        let (keys, values) = (pages.keys(head, 1).unwrap(), pages.values(head, 1, tokens).unwrap());
                        assert_eq!((keys.n(), keys.k(), values.n(), values.k()), (block, d, d, tokens));
                        for (token, channel) in
                            (0..tokens).flat_map(|token| (0..d).map(move |channel| (token, channel)))
                        {
                            let at = token * stride + head * d + channel;
                            assert_eq!(keys.get(token, channel), k[at], "{level} {format}");
                            assert_eq!(values.get(channel, token), v[at], "{level} {format}");
                        }
                        let mut state = FlashRows::new(level, Precision::F32, d, 4, block).unwrap();
                        state.reset(4).unwrap();
                        let all = [0, 1, 2, 3];
                        let rows = Rows { rows: &all, q_rows: &all, visible: &[tokens as u32; 4], bias: None };
                        state.block(&q, rows, 1.0, keys.into(), values.into()).unwrap();
                        bits(&finish(&state))
                    });
                    assert_eq!(a, b, "{level} {format}");
                    // The other page is untouched.
                    assert!((0..d).all(|channel| whole.keys(head, 0).unwrap().get(0, channel) == 0.0));
                }
            }
        }
    }
    let mut pages = PackedPages::new(Format::F32, 3, 4, 6, 2).unwrap();
    let x = [0.0; 24];
    for (page, head, first, count, message) in [
        (2, 0, 0, 1, "page beyond the last is 2, expected 2"),
        (0, 3, 0, 1, "KV head beyond the last is 3, expected 3"),
        (0, 0, 5, 2, "keys beyond the room of a block is 7, expected 6"),
    ] {
        let error = pages.write_f32(Level::SCALAR, page, head, first, count, &x, &x, 4).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    assert_eq!(pages.keys(0, 2).unwrap_err().to_string(), "page beyond the last is 2, expected 2");
    let message = "keys beyond the room of a block is 7, expected 6";
    assert_eq!(pages.values(0, 0, 7).unwrap_err().to_string(), message);
    assert!(PackedPages::new(Format::F32, usize::MAX, 4, 6, 2).is_err());
    // Blocks and heads of no size hold nothing and break nothing.
    for (d, block) in [(0, 4), (4, 0), (0, 0)] {
        let mut pages = PackedPages::new(Format::Bf16, 1, d, block, 1).unwrap();
        pages.write_f32(Level::best(), 0, 0, 0, block, &[0.0; 16], &[0.0; 16], d).unwrap();
        pages.write_f32(Level::best(), 0, 0, block, 0, &[], &[], d).unwrap();
    }
}

/// Keys and values, `[keys, head_dim]` both.
fn read(block: &PackedBlock) -> (Vec<f32>, Vec<f32>) {
    let (k, v) = (block.keys(), block.values());
    let each = |get: &dyn Fn(usize, usize) -> f32| -> Vec<f32> {
        (0..k.n()).flat_map(|key| (0..k.k()).map(move |channel| (key, channel))).map(|(a, b)| get(a, b)).collect()
    };
    (each(&|key, channel| k.get(key, channel)), each(&|key, channel| v.get(channel, key)))
}

#[test]
fn bad_arguments_are_errors_with_their_numbers_and_change_nothing() {
    let level = Level::SCALAR;
    let case = Case::new(8, 3, 6, 1);
    let mut packed = PackedBlock::new(Format::F32, 8, 6).unwrap();
    packed.pack_f32(level, 6, &case.k, &case.v, 8).unwrap();
    let mut narrow = PackedBlock::new(Format::F32, 7, 6).unwrap();
    narrow.pack_f32(level, 6, &case.k, &case.v, 8).unwrap();
    let q = case.acts(level, Precision::F32);
    let mut state = new_state(level, Precision::F32, &case, 6);
    let all = Rows { rows: &[0, 1, 2], q_rows: &[0, 1, 2], visible: &[6; 3], bias: None };
    state.block(&q, all, 1.0, packed.keys(), packed.values()).unwrap();
    let before = finish(&state);

    let bias = [0.0; 17];
    for (rows, message) in [
        (Rows { rows: &[0, 1, 3], ..all }, "row beyond the last of the softmax is 3, expected 3"),
        (Rows { rows: &[0, 2, 2], ..all }, "row that does not ascend is 2, expected 3"),
        (Rows { q_rows: &[0, 1, 4], ..all }, "row beyond the last of the queries is 4, expected 3"),
        (Rows { q_rows: &[0, 1], ..all }, "`q_rows` has 2 elements, expected 3 for the shape [3]"),
        (Rows { visible: &[1], ..all }, "`visible` has 1 elements, expected 3 for the shape [3]"),
        (Rows { visible: &[6, 7, 6], ..all }, "visible keys beyond the block is 7, expected 6"),
        (Rows { bias: Some(&bias), ..all }, "`bias` has 17 elements, expected 18 for the shape [3, 6]"),
    ] {
        let error = state.block(&q, rows, 1.0, packed.keys(), packed.values()).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let one = Rows { rows: &[0], q_rows: &[0], visible: &[1], bias: None };
    for (keys, values, message) in [
        (narrow.keys(), packed.values(), "columns of the keys is 7, expected 8"),
        (packed.keys(), narrow.values(), "outputs of the values is 7, expected 8"),
    ] {
        assert_eq!(state.block(&q, one, 1.0, keys, values).unwrap_err().to_string(), message);
    }
    let (mut large, mut few) =
        (PackedBlock::new(Format::F32, 8, 7).unwrap(), PackedBlock::new(Format::F32, 8, 7).unwrap());
    large.pack_f32(level, 7, &[0.0; 56], &[0.0; 56], 8).unwrap();
    few.pack_f32(level, 2, &[0.0; 56], &[0.0; 56], 8).unwrap();
    assert_eq!(
        state.block(&q, one, 1.0, large.keys(), large.values()).unwrap_err().to_string(),
        "keys beyond the room of a block is 7, expected 6"
    );
    assert_eq!(
        state.block(&q, one, 1.0, few.keys(), packed.values()).unwrap_err().to_string(),
        "values beyond the keys of a block is 6, expected 2"
    );
    let wide = Acts::zeroed(level, Precision::F32, 3, 9).unwrap();
    assert_eq!(
        state.block(&wide, one, 1.0, packed.keys(), packed.values()).unwrap_err().to_string(),
        "columns of the queries is 9, expected 8"
    );
    let other = FlashRows::new(level, Precision::F32, 9, 3, 6).unwrap();
    assert_eq!(state.merge(&other).unwrap_err().to_string(), "values of a merged row is 9, expected 8");
    let other = FlashRows::new(level, Precision::F32, 8, 3, 6).unwrap();
    assert_eq!(state.merge(&other).unwrap_err().to_string(), "rows to be merged is 0, expected 3");
    assert_eq!(bits(&finish(&state)), bits(&before));
    assert_eq!(state.reset(4).unwrap_err().to_string(), "rows beyond the room of the softmax is 4, expected 3");
    assert!(FlashRows::new(level, Precision::F32, usize::MAX, 3, 6).is_err());
    assert!(FlashRows::new(level, Precision::F32, 1 << 40, 1 << 40, 6).is_err());
    assert!(FlashRows::new(level, Precision::F32, 0, usize::MAX, 6).is_err());

    for (error, message) in [
        (packed.pack_f32(level, 7, &[0.0; 56], &[0.0; 56], 8), "keys beyond the room of a block is 7, expected 6"),
        (packed.pack_f32(level, 6, &[0.0; 47], &[0.0; 48], 8), "number of key elements is 47, expected 48"),
        (packed.pack_f32(level, 6, &[0.0; 48], &[0.0; 47], 8), "number of value elements is 47, expected 48"),
        (packed.pack_f32(level, 6, &[0.0; 48], &[0.0; 48], 7), "stride below the head dimension is 7, expected 8"),
    ] {
        assert_eq!(error.unwrap_err().to_string(), message);
    }
    assert!(packed.pack_f32(level, usize::MAX, &[], &[], 8).is_err());
    assert_eq!(
        PackedBlock::new(Format::Mxfp8, 8, 6).unwrap_err().to_string(),
        "bytes of a value of a packed block is 1, expected 2"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Rows in any company, any order of queries, from a packed or a row-major block.
    #[test]
    fn rows_do_not_depend_on_their_company(
        d in 1_usize..140, rows in 1_usize..20, keys in 1_usize..150, seed: u32, kind in 0_usize..3,
    ) {
        let (precision, format) = KINDS[kind];
        for level in levels() {
            let case = Case::new(d, rows, keys, seed.into());
            let q = case.acts(level, precision);
            let mut packed = PackedBlock::new(format, d, keys + 5).unwrap();
            packed.pack_f32(level, keys, &case.k, &case.v, d).unwrap();
            let seen: Vec<u32> = (0..rows).map(|row| ((row * 7 + seed as usize) % (keys + 1)) as u32).collect();
            let reversed: Vec<u32> = (0..rows as u32).rev().collect();
            let ascending: Vec<u32> = (0..rows as u32).collect();
            let mut together = new_state(level, precision, &case, keys);
            for _ in 0..2 {
                let rows = Rows { rows: &ascending, q_rows: &reversed, visible: &seen, bias: None };
                together.block(&q, rows, 0.2, packed.keys(), packed.values()).unwrap();
            }
            let (k, v) = (narrow(&case.k), transposed(&narrow(&case.v), d));
            let mut alone = new_state(level, precision, &case, keys);
            for row in 0..rows {
                let only = Rows {
                    rows: &ascending[row..=row],
                    q_rows: &reversed[row..=row],
                    visible: &seen[row..=row],
                    bias: None,
                };
                alone.block(&q, only, 0.2, packed.keys(), packed.values()).unwrap();
                let row_major = (WeightRef::bf16(keys, d, &k).unwrap(), WeightRef::bf16(d, keys, &v).unwrap());
                if format == Format::Bf16 {
                    alone.block(&q, only, 0.2, row_major.0.into(), row_major.1.into()).unwrap();
                } else {
                    alone.block(&q, only, 0.2, packed.keys(), packed.values()).unwrap();
                }
            }
            prop_assert_eq!(bits(&finish(&together)), bits(&finish(&alone)), "{}", level);
        }
    }
}
