// SPDX-License-Identifier: MIT OR Apache-2.0

//! Attention over the paged cache against a plain one in F64, and the ways to cut a sequence against each other.

use cpu_tiles::{Level, Pool, Precision, ShapeError};
use half::bf16;
use model_minimax::model::attention::attention;
use model_minimax::model::cache::{CacheShape, KvCache, PAGE};
use op_testkit::compare::{Tolerance, assert_close, assert_same_bits};
use op_testkit::fill_f32;
use proptest::prelude::*;

/// Layers of the caches here; all but the last hold something else.
const LAYERS: usize = 2;

fn shape(layers: usize, kv_heads: usize, head_dim: usize) -> CacheShape {
    CacheShape { kv_heads, head_dim, index_dims: vec![0; layers], max_tokens: 1 << 20 }
}

/// A sequence of `tokens` in one layer.
struct Problem {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    tokens: usize,
    /// `[tokens, heads, head_dim]`.
    q: Vec<f32>,
    /// `[tokens, kv_heads, head_dim]`, as are the values.
    k: Vec<f32>,
    v: Vec<f32>,
}

impl Problem {
    /// Values of which BF16 holds every one.
    fn new(group: usize, kv_heads: usize, head_dim: usize, tokens: usize) -> Self {
        let rounded = |seed, n, scale| -> Vec<f32> {
            fill_f32(seed, n, scale).iter().map(|&x| bf16::from_f32(x).to_f32()).collect()
        };
        let (heads, kv) = (group * kv_heads, tokens * kv_heads * head_dim);
        // Large queries, so that some keys matter more than others.
        let q = rounded(1, tokens * heads * head_dim, 6.0);
        Self { heads, kv_heads, head_dim, tokens, q, k: rounded(2, kv, 1.0), v: rounded(3, kv, 1.0) }
    }

    fn cache(&self, precision: Precision) -> KvCache {
        KvCache::new(precision, shape(LAYERS, self.kv_heads, self.head_dim))
    }

    /// The outputs of the last `sum(pieces)` tokens, fed in pieces after those before them that the cache lacks.
    fn run(&self, level: Level, pool: &Pool, cache: &mut KvCache, pieces: &[usize]) -> Vec<f32> {
        let (width, kv_width) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let earlier = self.tokens - cache.len() - pieces.iter().sum::<usize>();
        let mut out = Vec::new();
        for (i, &piece) in [earlier].iter().chain(pieces).enumerate() {
            let tokens = cache.len()..cache.len() + piece;
            let kv = tokens.start * kv_width..tokens.end * kv_width;
            let (k, v) = (&self.k[kv.clone()], &self.v[kv]);
            cache.reserve(piece).unwrap();
            cache.append(pool, 0, v, k, &[]).unwrap();
            cache.append(pool, LAYERS - 1, k, v, &[]).unwrap();
            if i > 0 {
                let q = &self.q[tokens.start * width..tokens.end * width];
                let mut piece_out = vec![f32::NAN; q.len()];
                attention(level, pool, cache.layer(LAYERS - 1), self.heads, q, &mut piece_out).unwrap();
                out.extend(piece_out);
            }
            cache.advance(piece);
        }
        out
    }

    /// The outputs of the last `queries` tokens, plainly.
    fn reference(&self, queries: usize) -> Vec<f32> {
        let Self { heads, kv_heads, head_dim, tokens, .. } = *self;
        let mut out = Vec::new();
        for token in tokens - queries..tokens {
            for head in 0..heads {
                let q = &self.q[(token * heads + head) * head_dim..][..head_dim];
                let of = |x: &[f32], key: usize| -> Vec<f64> {
                    let at = (key * kv_heads + head / (heads / kv_heads)) * head_dim;
                    x[at..at + head_dim].iter().map(|&x| f64::from(x)).collect()
                };
                let scores: Vec<f64> = (0..=token)
                    .map(|key| of(&self.k, key).iter().zip(q).map(|(k, &q)| k * f64::from(q)).sum::<f64>())
                    .map(|score| score / (head_dim as f64).sqrt())
                    .collect();
                let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = scores.iter().map(|score| (score - max).exp()).sum();
                let mut row = vec![0.0; head_dim];
                for (key, score) in scores.iter().enumerate() {
                    let probability = (score - max).exp() / sum;
                    row.iter_mut().zip(of(&self.v, key)).for_each(|(out, v)| *out += probability * v);
                }
                out.extend(row.iter().map(|&x| x as f32));
            }
        }
        out
    }

    fn check(&self, pool: &Pool, pieces: &[usize]) {
        let queries = pieces.iter().sum();
        let expected = self.reference(queries);
        for level in Level::available() {
            for (precision, tolerance) in [(Precision::F32, 5e-6), (Precision::Bf16, 6e-3)] {
                let out = self.run(level, pool, &mut self.cache(precision), pieces);
                let what = format!("{precision:?} at {level}, {} tokens, the last in {pieces:?}", self.tokens);
                assert_close(&what, &out, &expected, &[queries, self.heads, self.head_dim], Tolerance::abs(tolerance));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_plain_attention(
        group in prop::sample::select(vec![1_usize, 3, 6]),
        kv_heads in 1_usize..=3,
        head_dim in prop::sample::select(vec![2_usize, 32, 64, 72, 128]),
        earlier in 0_usize..300,
        queries in 1_usize..40,
    ) {
        let pool = Pool::new(2).unwrap();
        Problem::new(group, kv_heads, head_dim, earlier + queries).check(&pool, &[queries]);
    }
}

#[test]
fn agrees_with_plain_attention_at_page_and_chunk_edges() {
    let pool = Pool::new(2).unwrap();
    for tokens in [1, PAGE - 1, PAGE, PAGE + 1, 8 * PAGE - 1, 8 * PAGE, 8 * PAGE + 1] {
        let problem = Problem::new(3, 2, 32, tokens);
        problem.check(&pool, &[1]);
        problem.check(&pool, &[tokens.min(11)]);
    }
}

#[test]
fn neither_pieces_nor_threads_change_a_bit() {
    let problem = Problem::new(6, 2, 32, 9 * PAGE + 30);
    let queries = PAGE + 60;
    let pieces = [vec![queries], vec![1; queries], vec![PAGE, 1, 9, 50]];
    for level in Level::available() {
        for precision in [Precision::F32, Precision::Bf16] {
            let run = |threads, pieces: &[usize]| {
                problem.run(level, &Pool::new(threads).unwrap(), &mut problem.cache(precision), pieces)
            };
            let whole = run(1, &pieces[0]);
            for (threads, pieces) in [(2, &pieces[0]), (3, &pieces[1]), (8, &pieces[1]), (2, &pieces[2])] {
                let what = format!("{precision:?} at {level}, {threads} threads, {} pieces", pieces.len());
                assert_same_bits(&what, &run(threads, pieces), &whole, &[queries, 12, 32]);
            }
        }
    }
}

#[test]
fn what_a_truncated_sequence_has_left_does_not_matter() {
    let pool = Pool::new(2).unwrap();
    let problem = Problem::new(3, 2, 32, 150);
    for precision in [Precision::F32, Precision::Bf16] {
        let expected = problem.run(Level::best(), &pool, &mut problem.cache(precision), &[1; 150]);
        for left in [0, 1, 2, 3, 130] {
            let mut cache = problem.cache(precision);
            problem.run(Level::best(), &pool, &mut cache, &[150]);
            cache.truncate(left);
            let bad = vec![f32::INFINITY; 200 * 2 * 32];
            cache.reserve(200).unwrap();
            cache.append(&pool, LAYERS - 1, &bad, &bad, &[]).unwrap();
            cache.advance(200);
            cache.truncate(left);
            assert_eq!(cache.len(), left);
            let out = problem.run(Level::best(), &pool, &mut cache, &vec![1; 150 - left]);
            assert_same_bits("after truncation", &out, &expected[left * 6 * 32..], &[150 - left, 6, 32]);
        }
    }
}

#[test]
fn what_is_no_number_reaches_the_queries_that_see_it_and_no_other() {
    let pool = Pool::new(2).unwrap();
    let (tokens, bad, kv_heads, head_dim) = (200, 150, 2, 32);
    let problem = Problem::new(3, kv_heads, head_dim, tokens);
    for precision in [Precision::F32, Precision::Bf16] {
        let run = |problem: &Problem| problem.run(Level::best(), &pool, &mut problem.cache(precision), &[tokens]);
        let clean = run(&problem);
        for poison in [f32::NAN, f32::INFINITY] {
            for of_keys in [false, true] {
                let mut poisoned = Problem::new(3, kv_heads, head_dim, tokens);
                // One channel of the second KV head of one token.
                let at = (bad * kv_heads + 1) * head_dim + 5;
                if of_keys {
                    poisoned.k[at] = poison
                } else {
                    poisoned.v[at] = poison
                }
                let out = run(&poisoned);
                let row = 6 * head_dim;
                // The queries before it are in the same block of queries as some after it, with the same page of keys.
                assert_same_bits("before", &out[..bad * row], &clean[..bad * row], &[bad, 6, head_dim]);
                for query in bad..tokens {
                    let (first, second) = out[query * row..][..row].split_at(row / 2);
                    assert_same_bits("other KV head", first, &clean[query * row..][..row / 2], &[3, head_dim]);
                    let head = &second[..head_dim];
                    if of_keys && poison.is_nan() {
                        assert!(head.iter().all(|x| x.is_nan()), "query {query}");
                    } else if !of_keys {
                        assert!(!head[5].is_finite() && head[..5].iter().all(|x| x.is_finite()), "query {query}");
                    }
                }
            }
        }
    }
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    let pool = Pool::new(1).unwrap();
    let mut cache = KvCache::new(Precision::F32, shape(1, 2, 4));
    let zeros = [0.0; 16];
    cache.reserve(1).unwrap();
    cache.append(&pool, 0, &zeros[..8], &zeros[..8], &[]).unwrap();
    let call = |heads, q: usize, out: usize| {
        attention(Level::SCALAR, &pool, cache.layer(0), heads, &zeros[..q], &mut vec![0.0; out]).unwrap_err()
    };
    assert!(matches!(call(3, 12, 12), ShapeError::Mismatch { expected: 4, found: 3, .. }));
    assert!(matches!(call(0, 0, 0), ShapeError::Mismatch { expected: 2, found: 0, .. }));
    assert!(matches!(call(2, 9, 8), ShapeError::Length { argument: "q", .. }));
    assert!(matches!(call(2, 8, 9), ShapeError::Length { argument: "out", .. }));
}
