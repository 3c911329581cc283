// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sizes around the edges of the work that is shared out, and what must not matter: company, the order of keys in a block,
//! room in packed blocks.

use crate::fixture::{Data, REDUCTIONS, Setup, levels, pool};
use cpu_tiles::weights::packed_index;
use cpu_tiles::{Format, Level, PANEL, PackedRef};
use half::bf16;
use msa_indexer::{IndexerDims, Keys};
use op_testkit::fill_f32;

/// Numbers of queries around tiles of 96 rows, and of blocks around tasks of 8 and of 16.
#[test]
fn edges_of_tiles_and_tasks() {
    for heads in [1, 4, 7, 130] {
        let tile = (96 / heads).max(1);
        for reduce in REDUCTIONS {
            let dims = IndexerDims { heads, head_dim: 6, block: 8, topk: 5, reduce, ..IndexerDims::M3 };
            for count in [tile, tile + 1, 2 * tile - 1, 2 * tile] {
                for blocks in [7, 8, 9, 16, 17, 25] {
                    let length = (blocks * 8 - 3).max(count);
                    let setup = Setup::new(dims, [true, true], count, length, blocks as u64);
                    let expected = setup.expected();
                    for level in Level::available() {
                        let out = setup.run(level, &pool(2), Keys::Plain(setup.keys.values())).unwrap();
                        assert_eq!(out, expected, "{heads} heads, {count} queries, {blocks} blocks at {level}");
                    }
                }
            }
        }
    }
}

/// A prompt in chunks, whose later keys do not exist yet, gives what it gives in one call.
#[test]
fn chunks_of_a_prompt_equal_the_whole() {
    const COUNT: usize = 160;
    for reduce in REDUCTIONS {
        let dims =
            IndexerDims { heads: 3, head_dim: 20, block: 16, topk: 4, init_blocks: 1, reduce, ..IndexerDims::M3 };
        let values = |seed, len| Data::new(true, fill_f32(seed, len, 1.0));
        let whole = Setup { dims, queries: values(1, COUNT * 60), start: 0, keys: values(2, COUNT * 20) };
        for level in levels() {
            let out = whole.run(level, &pool(2), Keys::Plain(whole.keys.values())).unwrap();
            for cuts in [&[0, 64, 160][..], &[0, 1, 37, 65, 159, 160]] {
                for range in cuts.windows(2).map(|pair| pair[0]..pair[1]) {
                    let part = Setup {
                        dims,
                        queries: Data::new(true, whole.queries.to_f32()[range.start * 60..range.end * 60].to_vec()),
                        start: range.start,
                        keys: Data::new(true, whole.keys.to_f32()[..range.end * 20].to_vec()),
                    };
                    let of_part = part.run(level, &pool(2), Keys::Plain(part.keys.values())).unwrap();
                    let [_, selections, places] = dims.ids_shape(COUNT, COUNT);
                    let (few, blocks) = (dims.ids_shape(1, range.end)[2], dims.blocks(range.end));
                    for row in 0..range.len() * selections {
                        let at = range.start * selections + row;
                        let (ids, behind) = out.ids[at * places..][..places].split_at(few);
                        assert_eq!(ids, &of_part.ids[row * few..][..few], "{range:?} at {level}");
                        assert!(behind.iter().all(|&id| id == -1), "{range:?} at {level}");
                        let all = dims.blocks(COUNT);
                        let (scores, behind) = out.scores[at * all..][..all].split_at(blocks);
                        assert_eq!(scores, &of_part.scores[row * blocks..][..blocks], "{range:?} at {level}");
                        assert!(behind.iter().all(|&score| score == f32::NEG_INFINITY), "{range:?} at {level}");
                    }
                }
            }
        }
    }
}

/// Only the largest score of a block counts, wherever in its panels it is.
#[test]
fn the_order_of_keys_in_a_block_has_no_effect() {
    let dims = IndexerDims { heads: 5, head_dim: 33, block: 130, topk: 3, ..IndexerDims::M3 };
    let setup = Setup {
        dims,
        queries: Data::new(true, fill_f32(1, 5 * 33, 1.0)),
        start: 6 * 130 - 1,
        keys: Data::new(true, fill_f32(2, 6 * 130 * 33, 1.0)),
    };
    for level in levels() {
        let expected = setup.run_all(level, &pool(1)).unwrap();
        // Numbers without a common divisor with 130 permute its keys.
        for step in [3, 77, 129] {
            let keys = setup.keys.to_f32();
            let key = |at: usize| {
                let from = at / 130 * 130 + (at % 130 * step + 11) % 130;
                &keys[from * 33..][..33]
            };
            let keys = Data::new(true, (0..6 * 130).flat_map(key).copied().collect());
            let out = Setup { keys, ..setup.clone() }.run_all(level, &pool(1)).unwrap();
            assert_eq!(out, expected, "{step} at {level}");
        }
    }
}

/// Panels as a cache holds them that is written key by key: what was never written is NaN, and there is room for more values
/// than a key has, which are zero.
#[test]
fn blocks_that_are_written_key_by_key() {
    let dims = IndexerDims { heads: 4, head_dim: 21, block: 70, topk: 2, ..IndexerDims::M3 };
    const CAPACITY: usize = 32;
    let length = 5 * 70 - 33;
    for (format, is_bf16) in [(Format::Bf16, true), (Format::F32, false)] {
        let setup = Setup::new(dims, [true, is_bf16], 30, length, 6);
        let keys = setup.keys.to_f32();
        let panels = |block: usize| {
            let mut panels = vec![f32::NAN; 2 * PANEL * CAPACITY];
            for key in block * 70..length.min((block + 1) * 70) {
                let (panel, output) = (key % 70 / PANEL, key % 70 % PANEL);
                for k in 0..CAPACITY {
                    let value = if k < 21 { keys[key * 21 + k] } else { 0.0 };
                    panels[panel * PANEL * CAPACITY + packed_index(format, output, k)] = value;
                }
            }
            panels
        };
        let f32_panels: Vec<Vec<f32>> = (0..5).map(panels).collect();
        let bf16_panels: Vec<Vec<bf16>> =
            f32_panels.iter().map(|panels| panels.iter().map(|&value| bf16::from_f32(value)).collect()).collect();
        let blocks: Vec<PackedRef<'_>> = (0..5)
            .map(|block| match is_bf16 {
                true => PackedRef::bf16(70, 21, CAPACITY, &bf16_panels[block]).unwrap(),
                false => PackedRef::f32(70, 21, CAPACITY, &f32_panels[block]).unwrap(),
            })
            .collect();
        let expected = setup.expected();
        for level in levels() {
            let out = setup.run(level, &pool(2), Keys::Packed { blocks: &blocks, block_table: None }).unwrap();
            assert_eq!(out, expected, "{format} at {level}");
        }
    }
}

/// A head alone, with its own queries, selects what it selects among others.
#[test]
fn heads_are_independent() {
    let dims = IndexerDims { heads: 3, head_dim: 5, block: 4, topk: 3, ..IndexerDims::M3 };
    let together = Setup::new(dims, [true, true], 40, 60, 8);
    let queries = together.queries.to_f32();
    let expected = together.expected();
    for head in 0..3 {
        let of_head = (0..40).flat_map(|query| &queries[(query * 3 + head) * 5..][..5]).copied().collect();
        let alone =
            Setup { dims: IndexerDims { heads: 1, ..dims }, queries: Data::new(true, of_head), ..together.clone() };
        for level in levels() {
            let out = alone.run_all(level, &pool(1)).unwrap();
            for query in 0..40 {
                let row = query * 3 + head;
                assert_eq!(out.ids[query * 3..][..3], expected.ids[row * 3..][..3], "{level}");
                assert_eq!(out.scores[query * 15..][..15], expected.scores[row * 15..][..15], "{level}");
            }
        }
    }
}
