// SPDX-License-Identifier: MIT OR Apache-2.0

//! What must not change the results of a model, and what it refuses.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cpu_tiles::{Level, Pool, Precision};
use model_minimax::bench::{Arm, BenchDecoder};
use model_minimax::checkpoint::synthetic::{SyntheticSpec, ensure};
use model_minimax::checkpoint::{Checkpoint, Tensor};
use model_minimax::config::ModelConfig;
use model_minimax::generate::Decoder;
use model_minimax::model::{Event, LoadMode, LoadOptions, Model, ModelError};
use op_testkit::compare::{Tolerance, assert_close, assert_same_bits};
use op_testkit::golden;
use op_testkit::safetensors::Safetensors;

use crate::scratch::Scratch;

const MODELS: [&str; 4] = ["m27-tiny-bf16", "m27-tiny-fp8", "m3-tiny-bf16", "m3-tiny-mxfp8"];
const PRECISIONS: [Precision; 2] = [Precision::F32, Precision::Bf16];
const VOCAB: usize = 576;

fn folder(model: &str) -> PathBuf {
    golden::dir().join("models").join(model)
}

fn prompt(model: &str, name: &str) -> Vec<u32> {
    let expected = golden::open(format!("models/{model}/expected.safetensors")).unwrap();
    let ids = expected.tensor(&format!("{name}.input_ids")).unwrap().i64().unwrap();
    ids.iter().map(|&id| id as u32).collect()
}

fn options(level: Level, precision: Precision) -> LoadOptions {
    // Tests that ask for more threads say so; the others share the machine.
    let pool = Arc::new(Pool::new(1).unwrap());
    LoadOptions { precision, load_mode: LoadMode::Pack, ..LoadOptions::new(level, pool) }
}

fn load_from(folder: &Path, options: &LoadOptions) -> Model {
    let config = ModelConfig::load(folder).unwrap();
    Model::load(&Checkpoint::open(folder).unwrap(), &config, options, |_, _| ()).unwrap()
}

fn load(model: &str, options: &LoadOptions) -> Model {
    load_from(&folder(model), options)
}

fn logits(model: &mut Model, ids: &[u32]) -> Vec<f32> {
    model.reset();
    model.forward_all(ids, |_| ()).unwrap()
}

#[test]
fn prefill_equals_token_by_token_bit_for_bit() {
    for name in MODELS {
        for level in Level::available() {
            // The long one crosses the edge of a page, which the slower levels do in the tests of attention.
            let ids = prompt(name, if level == Level::best() { "long" } else { "short" });
            // Enough to cross two edges of blocks, some of which are dropped; other cuts are tried with chunks.
            let first = ids.len().saturating_sub(if name.starts_with("m3") { 250 } else { ids.len() });
            for precision in PRECISIONS {
                let mut model = load(name, &options(level, precision));
                let whole = logits(&mut model, &ids);
                model.reset();
                let mut single = if first > 0 { model.forward_all(&ids[..first], |_| ()).unwrap() } else { Vec::new() };
                for id in &ids[first..] {
                    single.extend_from_slice(model.forward(&[*id]).unwrap());
                }
                let what = format!("{name} {precision:?} at {level}");
                assert_same_bits(&what, &single, &whole, &[ids.len(), VOCAB]);
            }
        }
    }
}

#[test]
fn a_prompt_longer_than_a_prefill_is_cut_without_a_trace() {
    let scratch = Scratch::new();
    let spec: SyntheticSpec = "tiny".parse().unwrap();
    let folder = ensure(&spec, scratch.path(), |_, _| ()).unwrap();
    let mut model = load_from(&folder, &options(Level::best(), Precision::Bf16));
    let ids: Vec<u32> = (0..2200).map(|i| i * 31 % 500).collect();
    let last = model.forward(&ids).unwrap().to_vec();
    assert_eq!(model.len(), ids.len());
    model.reset();
    model.forward(&ids[..1500]).unwrap();
    assert_same_bits("in two pieces", model.forward(&ids[1500..]).unwrap(), &last, &[VOCAB]);
    let all = logits(&mut model, &ids);
    assert_same_bits("all positions", &all[all.len() - VOCAB..], &last, &[VOCAB]);
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    for name in MODELS {
        let ids = prompt(name, "short");
        for precision in PRECISIONS {
            let run = |threads| {
                let pool = Arc::new(Pool::new(threads).unwrap());
                logits(&mut load(name, &LoadOptions { pool, ..options(Level::best(), precision) }), &ids)
            };
            let one = run(1);
            for threads in [2, 3, 8] {
                assert_same_bits(&format!("{name}, {threads} threads"), &run(threads), &one, &[ids.len(), VOCAB]);
            }
        }
    }
}

#[test]
fn mapped_and_packed_weights_give_the_same_bits() {
    for name in MODELS {
        let ids = prompt(name, "short");
        for level in Level::available() {
            for precision in PRECISIONS {
                let run = |load_mode| {
                    let mut model = load(name, &LoadOptions { load_mode, ..options(level, precision) });
                    assert_eq!(model.load_mode(), load_mode);
                    logits(&mut model, &ids)
                };
                let what = format!("{name} {precision:?} at {level}");
                assert_same_bits(&what, &run(LoadMode::Mmap), &run(LoadMode::Pack), &[ids.len(), VOCAB]);
            }
        }
    }
}

#[test]
fn weights_that_lie_unaligned_in_the_file_are_usable_in_place() {
    let scratch = Scratch::new();
    let source = folder("m27-tiny-bf16");
    std::fs::copy(source.join("config.json"), scratch.path().join("config.json")).unwrap();
    // One more space in the header moves the data to odd offsets.
    let mut bytes = std::fs::read(source.join("model.safetensors")).unwrap();
    let header = u64::from_le_bytes(*bytes.first_chunk().unwrap());
    let padded = header + 1 + header % 2;
    bytes.splice(..8, padded.to_le_bytes());
    bytes.splice(8 + header as usize..8 + header as usize, vec![b' '; (padded - header) as usize]);
    let file = scratch.path().join("model.safetensors");
    std::fs::write(&file, bytes).unwrap();
    assert!(Safetensors::open(&file).is_ok());
    let checkpoint = Checkpoint::open(scratch.path()).unwrap();
    assert!(checkpoint.tensors().iter().all(|tensor: &Tensor| tensor.bytes().as_ptr().addr() % 2 == 1));

    let ids = prompt("m27-tiny-bf16", "mini");
    let aligned = logits(&mut load("m27-tiny-bf16", &options(Level::best(), Precision::F32)), &ids);
    for load_mode in [LoadMode::Mmap, LoadMode::Pack] {
        let options = LoadOptions { load_mode, ..options(Level::best(), Precision::F32) };
        let unaligned = logits(&mut load_from(scratch.path(), &options), &ids);
        assert_same_bits("unaligned", &unaligned, &aligned, &[ids.len(), VOCAB]);
    }
}

#[test]
fn the_arms_agree() {
    for name in MODELS {
        let ids = prompt(name, "short");
        for level in Level::available() {
            // In BF16 a value can round to either side, and an expert be another one; in F32 nothing is that close.
            let mut model = load(name, &options(level, Precision::F32));
            model.set_arm(Arm::Fused);
            let fused = logits(&mut model, &ids);
            model.set_arm(Arm::Eager);
            let eager = logits(&mut model, &ids);
            assert_close(&format!("{name} at {level}"), &eager, &fused, &[ids.len(), VOCAB], Tolerance::abs(5e-5));
        }
    }
}

#[test]
fn a_model_can_be_used_again() {
    let (mini, short) = (prompt(MODELS[0], "mini"), prompt(MODELS[0], "short"));
    let mut model = load(MODELS[0], &options(Level::best(), Precision::Bf16));
    let first = logits(&mut model, &mini);
    logits(&mut model, &short);
    assert_eq!(model.len(), short.len());
    model.reset();
    assert!(model.is_empty());
    assert_same_bits("after reset", &logits(&mut model, &mini), &first, &[mini.len(), VOCAB]);

    model.truncate(4);
    let rest = model.forward_all(&mini[4..], |_| ()).unwrap();
    assert_same_bits("after truncation", &rest, &first[4 * VOCAB..], &[mini.len() - 4, VOCAB]);
}

#[test]
fn layers_can_be_left_out() {
    let dir = folder(MODELS[0]);
    let config = ModelConfig::load(&dir).unwrap().with_max_layers(1).unwrap();
    let options = options(Level::best(), Precision::F32);
    let mut model = Model::load(&Checkpoint::open(&dir).unwrap(), &config, &options, |_, _| ()).unwrap();
    let mut whole = load(MODELS[0], &options);
    let mini = prompt(MODELS[0], "mini");
    let hidden = |model: &mut Model| {
        let mut hidden = Vec::new();
        let record = |event: Event<'_>| {
            if let Event::Hidden { values, .. } = event {
                hidden.push(values.to_vec());
            }
        };
        model.forward_all(&mini, record).unwrap();
        hidden
    };
    let (cut, whole) = (hidden(&mut model), hidden(&mut whole));
    assert_eq!((cut.len(), whole.len()), (1, 2));
    assert_same_bits("first layer", &cut[0], &whole[0], &[mini.len(), 128]);
}

#[test]
fn impossible_tokens_are_refused_and_do_no_harm() {
    let mut model = load(MODELS[0], &options(Level::best(), Precision::F32));
    let mini = prompt(MODELS[0], "mini");
    let expected = logits(&mut model, &mini);
    model.truncate(5);
    assert!(matches!(model.forward(&[]), Err(ModelError::NoTokens)));
    assert!(matches!(model.forward(&[1, 576]), Err(ModelError::OutsideVocab { id: 576, vocab: 576 })));
    assert!(matches!(model.forward(&[1; 2044]), Err(ModelError::TooLong { found: 2049, max: 2048 })));
    assert!(matches!(model.forward_all(&[], |_| ()), Err(ModelError::NoTokens)));
    let rest = model.forward_all(&mini[5..], |_| ()).unwrap();
    assert_same_bits("after errors", &rest, &expected[5 * VOCAB..], &[5, VOCAB]);
}

#[test]
fn the_bytes_of_a_decode_step_are_those_of_the_weights_it_reads() {
    let bytes = |name| load(name, &options(Level::best(), Precision::F32)).decode_bytes(0);
    // BF16, hidden 128: q, k, v, o of 6 and 2 heads of 32; router of 8; 3 of 8 experts of 64; norms; head of 576.
    let attention = 2 * (192 * 128 * 2 + 64 * 128 * 2);
    let (router, norms) = (4 * (8 * 128 + 8), 2 * (128 + 128 + 192 + 64));
    let experts = 3 * 3 * 64 * 128 * 2;
    assert_eq!(bytes("m27-tiny-bf16"), 2 * (attention + router + norms + experts) + 2 * (2 * 128 + 576 * 128));
    // FP8, hidden 256: 4 and 2 heads of 128; 2 of 8 experts of 128; one F32 scale for each block of 128 x 128.
    let fp8 = |rows: u64, columns: u64| rows * columns + 4 * (rows / 128) * (columns / 128);
    let attention = 2 * fp8(512, 256) + 2 * fp8(256, 256);
    let (router, norms) = (4 * (8 * 256 + 8), 2 * (256 + 256 + 512 + 256));
    let experts = 2 * (2 * fp8(128, 256) + fp8(256, 128));
    assert_eq!(bytes("m27-tiny-fp8"), 2 * (attention + router + norms + experts) + 2 * (2 * 256 + 576 * 256));
}

#[test]
fn progress_ends_at_the_bytes_of_the_linear_layers() {
    let dir = folder("m27-tiny-fp8");
    let checkpoint = Checkpoint::open(&dir).unwrap();
    let config = ModelConfig::load(&dir).unwrap();
    let is_linear = |tensor: &&Tensor| {
        let name = tensor.name();
        name.contains("proj") || name.contains(".w") || name.contains("gate") || name.contains("lm_head")
    };
    let is_norm = |tensor: &&Tensor| tensor.name().contains("norm") || tensor.name().contains("embed");
    let linear = checkpoint.tensors().iter().filter(|tensor| !is_norm(tensor)).filter(is_linear);
    let expected: usize = linear.map(Tensor::byte_len).sum();
    for load_mode in [LoadMode::Mmap, LoadMode::Pack, LoadMode::Auto] {
        let options = LoadOptions { load_mode, ..options(Level::best(), Precision::F32) };
        let mut seen = Vec::new();
        let model = Model::load(&checkpoint, &config, &options, |done, total| seen.push((done, total))).unwrap();
        assert!(seen.is_sorted() && seen.iter().all(|&(_, total)| total == expected as u64), "{seen:?}");
        assert_eq!(seen.last(), Some(&(expected as u64, expected as u64)));
        assert_ne!(model.load_mode(), LoadMode::Auto);
        assert!(model.report().is_clean());
    }
}

#[test]
fn a_checkpoint_that_does_not_fit_is_refused() {
    let checkpoint = Checkpoint::open(&folder("m27-tiny-bf16")).unwrap();
    let config = ModelConfig::load(&folder("m27-tiny-fp8")).unwrap();
    let error = Model::load(&checkpoint, &config, &options(Level::best(), Precision::F32), |_, _| ()).unwrap_err();
    assert!(matches!(error, ModelError::Checkpoint(_)), "{error}");
}
