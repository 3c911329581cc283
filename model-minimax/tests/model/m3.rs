// SPDX-License-Identifier: MIT OR Apache-2.0

//! MiniMax-M3: long sequences whose queries drop blocks of keys, in every way to cut them.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::Arc;

use cpu_tiles::{Level, Pool, Precision};
use model_minimax::bench::BenchDecoder;
use model_minimax::checkpoint::Checkpoint;
use model_minimax::checkpoint::synthetic::{SyntheticSpec, ensure};
use model_minimax::config::ModelConfig;
use model_minimax::generate::{Decoder, GenerateOptions, generate};
use model_minimax::model::{AttentionMode, Event, HeadReduce, LoadMode, LoadOptions, Model, ModelError};
use model_minimax::sampling::argmax;
use op_testkit::compare::{Tolerance, assert_close, assert_same_bits};
use op_testkit::golden;

use crate::scratch::Scratch;

const MODELS: [&str; 2] = ["m3-tiny-bf16", "m3-tiny-mxfp8"];
const PRECISIONS: [Precision; 2] = [Precision::F32, Precision::Bf16];
const VOCAB: usize = 576;

fn options(precision: Precision) -> LoadOptions {
    let pool = Arc::new(Pool::new(1).unwrap());
    LoadOptions { precision, load_mode: LoadMode::Pack, ..LoadOptions::new(Level::best(), pool) }
}

fn load(model: &str, options: &LoadOptions) -> Model {
    let folder = golden::dir().join("models").join(model);
    let config = ModelConfig::load(&folder).unwrap();
    Model::load(&Checkpoint::open(&folder).unwrap(), &config, options, |_, _| ()).unwrap()
}

fn ids(count: usize) -> Vec<u32> {
    // No two neighbourhoods alike, all in the vocabulary.
    (0..count as u32).map(|i| (i * 31 + i / 7 * 13) % 500).collect()
}

fn logits(model: &mut Model, ids: &[u32]) -> Vec<f32> {
    model.reset();
    model.forward_all(ids, |_| ()).unwrap()
}

/// Blocks that the queries of layer 3 drop, over all of them.
fn dropped(model: &mut Model, ids: &[u32]) -> usize {
    let mut dropped = 0;
    model.reset();
    let count = |event: Event<'_>| {
        if let Event::Blocks { layer: 3, kv_heads, top_k, ids } = event {
            for (token, ids) in ids.chunks_exact(kv_heads * top_k).enumerate() {
                let chosen = ids.iter().filter(|id| **id >= 0).count();
                dropped += kv_heads * (token / 128 + 1) - chosen;
            }
        }
    };
    model.forward_all(ids, count).unwrap();
    dropped
}

#[test]
fn generation_equals_one_uncached_pass_across_the_edges() {
    for name in MODELS {
        for precision in PRECISIONS {
            let mut model = load(name, &options(precision));
            // Past the edge of the first block, and past that of the sixteenth.
            for prompt in [120, 2040] {
                let request = GenerateOptions { max_new_tokens: 20, ignore_eos: true, ..GenerateOptions::default() };
                let prompt = ids(prompt);
                let answer = generate(&mut model, &prompt, &request, |_| ControlFlow::Continue(())).unwrap();
                assert_eq!(model.len(), prompt.len() + 19);
                let whole = [prompt.as_slice(), &answer.ids].concat();
                let all = logits(&mut model, &whole);
                for (token, id) in (prompt.len()..).zip(&answer.ids) {
                    let before = &all[(token - 1) * VOCAB..token * VOCAB];
                    assert_eq!(argmax(before).unwrap(), *id, "{name} {precision:?}, token {token}");
                }
            }
        }
        assert!(dropped(&mut load(name, &options(Precision::F32)), &ids(1000)) > 1000, "{name}");
    }
}

#[test]
fn decoding_agrees_with_prefill_at_every_level() {
    // The last tokens see three blocks, of which one model chooses two; the other takes all.
    let ids = ids(290);
    for level in Level::available() {
        for name in MODELS {
            for precision in PRECISIONS {
                let mut model = load(name, &LoadOptions { level, ..options(precision) });
                let whole = logits(&mut model, &ids);
                model.truncate(284);
                for token in 284..ids.len() {
                    let last = model.forward(&ids[token..=token]).unwrap();
                    let what = format!("{name} {precision:?} at {level}");
                    assert_same_bits(&what, last, &whole[token * VOCAB..][..VOCAB], &[VOCAB]);
                }
            }
        }
    }
}

#[test]
fn chunks_of_a_prefill_change_no_bit() {
    let ids = ids(700);
    for name in MODELS {
        for precision in PRECISIONS {
            let run = |chunk: usize, attention: AttentionMode| {
                let prefill_chunk = NonZeroUsize::new(chunk).unwrap();
                logits(&mut load(name, &LoadOptions { prefill_chunk, attention, ..options(precision) }), &ids)
            };
            for attention in [
                AttentionMode::Msa(HeadReduce::PerKvHead),
                AttentionMode::Msa(HeadReduce::Shared),
                AttentionMode::Dense,
            ] {
                let whole = run(ids.len(), attention);
                // Whole blocks, parts of blocks, one token at the end.
                for chunk in [128, 233, 699] {
                    let what = format!("{name} {precision:?} {attention:?} in chunks of {chunk}");
                    assert_same_bits(&what, &run(chunk, attention), &whole, &[ids.len(), VOCAB]);
                }
            }
        }
    }
}

#[test]
fn threads_change_no_bit_where_blocks_are_dropped() {
    let ids = ids(500);
    for name in MODELS {
        let run = |threads: usize| {
            let pool = Arc::new(Pool::new(threads).unwrap());
            let mut model = load(name, &LoadOptions { pool, ..options(Precision::Bf16) });
            let mut all = logits(&mut model, &ids);
            for id in [7, 8, 9] {
                all.extend_from_slice(model.forward(&[id]).unwrap());
            }
            all
        };
        let one = run(1);
        for threads in [2, 5] {
            assert_same_bits(&format!("{name}, {threads} threads"), &run(threads), &one, &[ids.len() + 3, VOCAB]);
        }
    }
}

#[test]
fn observing_changes_no_bit() {
    // Without an observer, queries that choose all they see choose nothing.
    let ids = ids(300);
    for name in MODELS {
        let mut model = load(name, &options(Precision::Bf16));
        let observed = model.forward_observed(&ids, |_| ()).unwrap().to_vec();
        model.reset();
        assert_same_bits(name, model.forward(&ids).unwrap(), &observed, &[VOCAB]);
        model.reset();
        for id in &ids {
            model.forward(&[*id]).unwrap();
        }
        model.truncate(299);
        assert_same_bits(name, model.forward(&ids[299..]).unwrap(), &observed, &[VOCAB]);
    }
}

#[test]
fn a_truncated_sequence_goes_on_as_if_nothing_had_followed() {
    let (first, other) = (ids(400), ids(900));
    for name in MODELS {
        for precision in PRECISIONS {
            let mut model = load(name, &options(precision));
            let expected = logits(&mut model, &first);
            logits(&mut model, &other);
            // In the middle of a block, at an edge, in the first block.
            for left in [333, 256, 100] {
                // The others have the same first tokens.
                model.truncate(left);
                assert_eq!(model.len(), left);
                let rest = model.forward_all(&first[left..], |_| ()).unwrap();
                let what = format!("{name} {precision:?} after {left}");
                assert_same_bits(&what, &rest, &expected[left * VOCAB..], &[first.len() - left, VOCAB]);
            }
        }
    }
}

#[test]
fn sparse_attention_is_dense_as_long_as_nothing_is_dropped() {
    let ids = ids(300);
    for (name, seen) in MODELS.into_iter().zip([2 * 128, 3 * 128]) {
        let run = |attention: AttentionMode, ids: &[u32]| {
            logits(&mut load(name, &LoadOptions { attention, ..options(Precision::F32) }), ids)
        };
        let seen = &ids[..seen.min(ids.len())];
        let (sparse, dense) = (run(AttentionMode::Msa(HeadReduce::PerKvHead), seen), run(AttentionMode::Dense, seen));
        assert_same_bits(name, &sparse, &dense, &[seen.len(), VOCAB]);
    }
    let run = |attention: AttentionMode| {
        logits(&mut load(MODELS[0], &LoadOptions { attention, ..options(Precision::F32) }), &ids)
    };
    assert_ne!(run(AttentionMode::Msa(HeadReduce::PerKvHead)), run(AttentionMode::Dense));
}

#[test]
fn a_synthetic_model_drops_blocks_and_agrees_with_itself() {
    let scratch = Scratch::new();
    let spec: SyntheticSpec = "m3-tiny".parse().unwrap();
    let folder = ensure(&spec, scratch.path(), |_, _| ()).unwrap();
    let config = ModelConfig::load(&folder).unwrap();
    let checkpoint = Checkpoint::open(&folder).unwrap();
    let ids = ids(420);
    for (load_mode, chunk) in [(LoadMode::Pack, 420), (LoadMode::Mmap, 150)] {
        let prefill_chunk = NonZeroUsize::new(chunk).unwrap();
        let options = LoadOptions { load_mode, prefill_chunk, ..options(Precision::Bf16) };
        let mut model = Model::load(&checkpoint, &config, &options, |_, _| ()).unwrap();
        let whole = logits(&mut model, &ids);
        model.reset();
        model.forward(&ids[..410]).unwrap();
        for token in 410..420 {
            let last = model.forward(&ids[token..=token]).unwrap();
            assert_same_bits("token by token", last, &whole[token * VOCAB..][..VOCAB], &[VOCAB]);
        }
        let dense = LoadOptions { attention: AttentionMode::Dense, ..options };
        let mut model = Model::load(&checkpoint, &config, &dense, |_, _| ()).unwrap();
        assert_ne!(logits(&mut model, &ids)[400 * VOCAB..], whole[400 * VOCAB..]);
    }
}

#[test]
fn impossible_tokens_are_refused_and_do_no_harm() {
    let mut model = load(MODELS[0], &options(Precision::F32));
    let ids = ids(300);
    let expected = logits(&mut model, &ids);
    model.truncate(290);
    assert!(matches!(model.forward(&[]), Err(ModelError::NoTokens)));
    assert!(matches!(model.forward(&[1, 576]), Err(ModelError::OutsideVocab { id: 576, vocab: 576 })));
    assert!(matches!(model.forward(&[1; 3807]), Err(ModelError::TooLong { found: 4097, max: 4096 })));
    let rest = model.forward_all(&ids[290..], |_| ()).unwrap();
    assert_same_bits("after errors", &rest, &expected[290 * VOCAB..], &[10, VOCAB]);
}

#[test]
fn the_arms_agree_in_dense_layers_and_the_shared_expert_too() {
    use model_minimax::bench::Arm;
    let ids = ids(64);
    for name in MODELS {
        let mut model = load(name, &options(Precision::F32));
        let fused = logits(&mut model, &ids);
        model.set_arm(Arm::Eager);
        let eager = logits(&mut model, &ids);
        assert_close(name, &eager, &fused, &[ids.len(), VOCAB], Tolerance::abs(5e-5));
    }
}

#[test]
fn the_bytes_of_a_decode_step_count_everything_that_is_read() {
    let options = options(Precision::Bf16);
    let bf16 = load(MODELS[0], &options);
    // Hidden 128, 8 query and 4 KV heads of 32: three dense layers of 128, two with 4 index heads of 32, a router of 8,
    // 4 of 8 experts of 32 and a shared one of 32; a head of 576.
    let attention = 2 * 128 * (256 + 128 + 128 + 256) + 2 * (128 + 32 + 32 + 128);
    let index = 2 * 128 * (128 + 32) + 2 * (32 + 32);
    let mlp = |width: u64| 2 * 3 * width * 128;
    let moe = 4 * (8 * 128 + 8) + 5 * mlp(32);
    let weights = 5 * attention + 3 * mlp(128) + 2 * (index + moe) + 2 * (128 + 128 + 576 * 128);
    assert_eq!(bf16.decode_bytes(0), weights);
    // Up to two blocks all keys are attended to; nothing is chosen.
    let kv = |tokens: u64| tokens * 2 * 4 * 32 * 2;
    assert_eq!(bf16.decode_bytes(255), weights + 5 * kv(255));
    // Then in two layers one whole block and one's own, and all index keys.
    assert_eq!(bf16.decode_bytes(256), weights + 3 * kv(256) + 2 * (kv(128) + 256 * 32 * 2));
    assert_eq!(bf16.decode_bytes(900), weights + 3 * kv(900) + 2 * (kv(128 + 4) + 900 * 32 * 2));
    let dense = load(MODELS[0], &LoadOptions { attention: AttentionMode::Dense, ..options.clone() });
    assert_eq!(dense.decode_bytes(900), weights - 2 * index + 5 * kv(900));

    // MXFP8: 33 bytes for 32 values; hidden 128, 4 and 2 heads of 128, 2 index heads of 128, 2 of 8 experts of 64, a
    // shared one of 64, dense layers of 256.
    let mx = |values: u64| values * 33 / 32;
    let attention = mx(128 * (512 + 256 + 256 + 512)) + 2 * 4 * 128;
    let index = mx(128 * (256 + 128)) + 2 * 2 * 128;
    let dense_width = 3 * mx(128 * dense_size(MODELS[1]));
    let moe = 4 * (8 * 128 + 8) + 3 * 3 * mx(128 * 64);
    let weights = 5 * attention + 3 * dense_width + 2 * (index + moe) + 2 * (128 + 128 + 576 * 128);
    let f32 = LoadOptions { precision: Precision::F32, ..options };
    let kv = |tokens: u64| tokens * 2 * 2 * 128 * 4;
    assert_eq!(load(MODELS[1], &f32).decode_bytes(384), weights + 3 * kv(384) + 2 * (kv(256) + 384 * 128 * 4));
}

/// Width of the dense layers.
fn dense_size(model: &str) -> u64 {
    use model_minimax::config::FfnKind;
    let config = ModelConfig::load(&golden::dir().join("models").join(model)).unwrap();
    match config.layers[0].ffn {
        FfnKind::Dense { intermediate_size } => intermediate_size as u64,
        FfnKind::Moe => panic!("the first layer is dense"),
    }
}

/// Resident bytes of the mapped files of a folder.
#[cfg(target_os = "linux")]
fn resident(folder: &std::path::Path) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    let mut kib = 0;
    for line in maps.lines() {
        // A mapping begins with its range of addresses and ends with its file.
        if line.split(' ').next().is_some_and(|first| first.contains('-')) {
            inside = line.contains(folder.to_str().unwrap());
        } else if let Some(rss) = line.strip_prefix("Rss:").filter(|_| inside) {
            kib += rss.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap();
        }
    }
    kib << 10
}

#[cfg(target_os = "linux")]
#[test]
fn packing_leaves_no_second_copy_in_memory() {
    let scratch = Scratch::new();
    let spec: SyntheticSpec = "m3-tiny,hidden=768,layers=2,experts=8".parse().unwrap();
    let folder = ensure(&spec, scratch.path(), |_, _| ()).unwrap();
    let config = ModelConfig::load(&folder).unwrap();
    let checkpoint = Checkpoint::open(&folder).unwrap();
    let size: usize = checkpoint.tensors().iter().map(|tensor| tensor.byte_len()).sum();
    let ids = ids(40);
    let run = |load_mode| {
        let options = LoadOptions { load_mode, ..options(Precision::F32) };
        let mut model = Model::load(&checkpoint, &config, &options, |_, _| ()).unwrap();
        let after_load = resident(&folder);
        let logits = logits(&mut model, &ids);
        (after_load, resident(&folder), logits)
    };
    let (packed, _, expected) = run(LoadMode::Pack);
    assert!(packed < size / 3, "{packed} of {size} bytes are resident after packing");
    // Nothing was lost: what was let go is read from the file again.
    let (_, mapped, logits) = run(LoadMode::Mmap);
    assert!(mapped > size / 2, "{mapped} of {size} bytes are resident");
    assert_same_bits("mapped after packed", &logits, &expected, &[ids.len(), VOCAB]);
    assert!(run(LoadMode::Pack).0 < size / 3);
}
