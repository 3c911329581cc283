// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the cache holds and refuses.

use cpu_tiles::attention::PackedBlocks;
use cpu_tiles::{Pool, Precision, ShapeError};
use half::bf16;
use model_minimax::model::cache::{CacheError, CacheShape, KvCache, PAGE};
use msa_indexer::PackedKeys;
use op_testkit::fill_f32;

fn shape(kv_heads: usize, head_dim: usize, index_dims: &[usize]) -> CacheShape {
    CacheShape { kv_heads, head_dim, index_dims: index_dims.to_vec(), max_tokens: 1000 }
}

#[test]
fn tokens_are_found_where_they_belong() {
    let pool = Pool::new(3).unwrap();
    // Sizes that are no multiples of panels and quads, layers with and without index keys.
    let (kv_heads, head_dim, index_dims) = (3, 70, [0, 33, 5]);
    let tokens = 2 * PAGE + 7;
    let values = |seed, width: usize| fill_f32(seed, tokens * width, 1.0);
    for precision in [Precision::F32, Precision::Bf16] {
        let rounded = |x: f32| if precision == Precision::Bf16 { bf16::from_f32(x).to_f32() } else { x };
        for pieces in [vec![tokens], vec![1; tokens], vec![100, 28, 1, 130, 4]] {
            let mut cache = KvCache::new(precision, shape(kv_heads, head_dim, &index_dims));
            assert!(cache.is_empty() && cache.precision() == precision);
            for piece in &pieces {
                let range = |width: usize| cache.len() * width..(cache.len() + piece) * width;
                let parts: Vec<_> = (0..3)
                    .map(|layer| {
                        let kv = range(kv_heads * head_dim);
                        let width = kv_heads * head_dim;
                        let seed = 10 * layer as u64;
                        let k = values(seed, width)[kv.clone()].to_vec();
                        let v = values(seed + 1, width)[kv].to_vec();
                        (k, v, values(seed + 2, index_dims[layer])[range(index_dims[layer])].to_vec())
                    })
                    .collect();
                cache.reserve(*piece).unwrap();
                for (layer, (k, v, index)) in parts.iter().enumerate() {
                    cache.append(&pool, layer, k, v, index).unwrap();
                }
                cache.advance(*piece);
            }
            assert_eq!(cache.len(), tokens);
            for (layer, dim) in index_dims.into_iter().enumerate() {
                let cached = cache.layer(layer);
                assert_eq!((PackedBlocks::blocks(&cached), cached.block_tokens(), cached.index_dim()), (3, PAGE, dim));
                let seed = 10 * layer as u64;
                let (k, v) = (values(seed, kv_heads * head_dim), values(seed + 1, kv_heads * head_dim));
                let index = values(seed + 2, dim);
                for token in 0..tokens {
                    let (page, key) = (token / PAGE, token % PAGE);
                    let filled = (tokens - page * PAGE).min(PAGE);
                    for head in 0..kv_heads {
                        let keys = cached.keys(head, page).unwrap();
                        let packed_values = cached.values(head, page, filled).unwrap();
                        for channel in [0, 1, 63, 64, 69] {
                            let at = (token * kv_heads + head) * head_dim + channel;
                            assert_eq!(keys.get(key, channel), rounded(k[at]));
                            assert_eq!(packed_values.get(channel, key), rounded(v[at]));
                        }
                    }
                    for channel in 0..dim {
                        assert_eq!(cached.block(page).get(key, channel), rounded(index[token * dim + channel]));
                    }
                }
            }
        }
    }
}

#[test]
fn more_tokens_than_a_cache_may_hold_are_refused() {
    let mut cache = KvCache::new(Precision::Bf16, CacheShape { max_tokens: 300, ..shape(1, 4, &[4]) });
    cache.reserve(300).unwrap();
    cache.advance(290);
    let error = cache.reserve(11).unwrap_err();
    assert!(matches!(error, CacheError::Overflow { found: 301, max: 300 }), "{error}");
    assert_eq!(error.to_string(), "301 tokens exceed the 300 tokens of the cache");
    assert!(matches!(cache.reserve(usize::MAX), Err(CacheError::Overflow { found: usize::MAX, max: 300 })));
    // Nothing has changed; there is room after a cut.
    assert_eq!(cache.len(), 290);
    cache.reserve(10).unwrap();
    cache.truncate(100);
    cache.truncate(200);
    assert_eq!(cache.len(), 100);
    cache.reserve(200).unwrap();
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    let pool = Pool::new(1).unwrap();
    let mut cache = KvCache::new(Precision::F32, shape(2, 4, &[3]));
    let zeros = [0.0; 16];
    let mut append = |keys: usize, values: usize, index: usize| {
        cache.append(&pool, 0, &zeros[..keys], &zeros[..values], &zeros[..index]).unwrap_err()
    };
    let error = append(8, 8, 3);
    assert!(matches!(error, CacheError::NotReserved { found: 1, room: 0 }), "{error}");
    for (lengths, argument) in [([9, 8, 3], "keys"), ([8, 7, 3], "values"), ([8, 8, 2], "index_keys")] {
        let [keys, values, index] = lengths;
        match append(keys, values, index) {
            CacheError::Shape(ShapeError::Length { argument: found, .. }) => assert_eq!(found, argument),
            other => panic!("{other}"),
        }
    }
    let cached = cache.layer(0);
    assert!(matches!(cached.keys(0, 0), Err(ShapeError::Mismatch { expected: 0, found: 0, .. })));
    cache.reserve(1).unwrap();
    let cached = cache.layer(0);
    assert!(matches!(cached.keys(2, 0), Err(ShapeError::Mismatch { expected: 2, found: 2, .. })));
    assert!(matches!(cached.values(0, 1, 1), Err(ShapeError::Mismatch { expected: 1, found: 1, .. })));
    assert!(cached.values(0, 0, PAGE + 1).is_err());
}
