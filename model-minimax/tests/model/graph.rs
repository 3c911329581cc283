// SPDX-License-Identifier: MIT OR Apache-2.0

//! Captured decode steps: the same bits as steps that are not captured, the golden continuations, and no allocation.

use std::ops::ControlFlow;
use std::sync::Arc;

use cpu_tiles::{Level, Pool, Precision};
use model_minimax::bench::{Arm, BenchDecoder};
use model_minimax::checkpoint::Checkpoint;
use model_minimax::config::ModelConfig;
use model_minimax::generate::{Decoder, GenerateOptions, generate};
use model_minimax::model::{AttentionMode, Event, HeadReduce, LoadMode, LoadOptions, Model, ModelError, Routing};
use op_testkit::allocations::count_allocations;
use op_testkit::compare::assert_same_bits;
use op_testkit::golden;

const MODELS: [&str; 4] = ["m27-tiny-bf16", "m27-tiny-fp8", "m3-tiny-bf16", "m3-tiny-mxfp8"];
const PRECISIONS: [Precision; 2] = [Precision::F32, Precision::Bf16];
/// A captured arm and the one that runs the same operators without.
const TWINS: [(Arm, Arm); 2] = [(Arm::VecGraph, Arm::Eager), (Arm::FusedGraph, Arm::Fused)];
const VOCAB: usize = 576;

fn options(precision: Precision) -> LoadOptions {
    let pool = Arc::new(Pool::new(2).unwrap());
    LoadOptions { precision, load_mode: LoadMode::Pack, ..LoadOptions::new(Level::best(), pool) }
}

fn load(model: &str, options: &LoadOptions) -> Model {
    load_with(model, options, |_| ())
}

fn load_with(model: &str, options: &LoadOptions, change: impl FnOnce(&mut ModelConfig)) -> Model {
    let folder = golden::dir().join("models").join(model);
    let mut config = ModelConfig::load(&folder).unwrap();
    change(&mut config);
    Model::load(&Checkpoint::open(&folder).unwrap(), &config, options, |_, _| ()).unwrap()
}

fn golden_ids(model: &str, name: &str) -> Vec<u32> {
    let expected = golden::open(format!("models/{model}/expected.safetensors")).unwrap();
    expected.tensor(name).unwrap().i64().unwrap().iter().map(|&id| id as u32).collect()
}

/// Makes the sequence of a model, which is empty or begins like them, that of `prompt`, and captures what `arm` captures for
/// `steps` more. The keys and values are those of any arm.
fn begin(model: &mut Model, arm: Arm, prompt: &[u32], steps: usize) {
    model.set_arm(arm);
    model.truncate(prompt.len());
    if model.len() < prompt.len() {
        model.forward(&prompt[model.len()..]).unwrap();
    }
    model.prepare(prompt.len() + steps).unwrap();
}

/// The logits of each of the last `steps` ids, one forward pass each.
fn decode(model: &mut Model, arm: Arm, ids: &[u32], steps: usize) -> Vec<f32> {
    let (prompt, rest) = ids.split_at(ids.len() - steps);
    begin(model, arm, prompt, steps);
    rest.iter().flat_map(|id| model.forward(&[*id]).unwrap().to_vec()).collect()
}

#[test]
fn a_replayed_step_has_the_bits_of_its_twin() {
    for name in MODELS {
        // M3: from before the position that chooses blocks to behind it, then across the edge of a page.
        let long = golden_ids(name, "long.input_ids");
        let cases: &[&[u32]] = if name.starts_with("m3") { &[&long[..388], &long[..644]] } else { &[&long] };
        let is_best = |level: &Level| *level == Level::best();
        // The slower levels do it with scaled weights and in one precision, the rest being the same code.
        let scaled = [MODELS[1], MODELS[3]].contains(&name);
        for level in Level::available().into_iter().filter(|level| scaled || is_best(level)) {
            for precision in PRECISIONS.into_iter().filter(|p| level == Level::best() || *p == Precision::Bf16) {
                let mut model = load(name, &LoadOptions { level, ..options(precision) });
                for ids in cases.iter().take(if level == Level::best() { 2 } else { 1 }) {
                    for (graph, twin) in TWINS {
                        let steps = 8;
                        let expected = decode(&mut model, twin, ids, steps);
                        let what = format!("{name} {precision:?} {graph} at {level}, {} tokens", ids.len());
                        assert_same_bits(&what, &decode(&mut model, graph, ids, steps), &expected, &[steps, VOCAB]);
                    }
                }
            }
        }
    }
}

#[test]
fn replays_in_all_forms_have_the_bits_of_their_twins() {
    let ids = golden_ids(MODELS[3], "long.input_ids");
    let shared = AttentionMode::Msa(HeadReduce::Shared);
    for (load_mode, attention) in [
        (LoadMode::Mmap, AttentionMode::Msa(HeadReduce::PerKvHead)),
        (LoadMode::Pack, shared),
        (LoadMode::Mmap, AttentionMode::Dense),
    ] {
        for threads in [1, 3] {
            let pool = Arc::new(Pool::new(threads).unwrap());
            let mut model = load(MODELS[3], &LoadOptions { load_mode, attention, pool, ..options(Precision::Bf16) });
            let expected = decode(&mut model, Arm::Fused, &ids[..400], 4);
            let replayed = decode(&mut model, Arm::FusedGraph, &ids[..400], 4);
            assert_same_bits(&format!("{load_mode:?} {attention:?} {threads}"), &replayed, &expected, &[4, VOCAB]);
        }
    }
}

#[test]
fn a_replay_allocates_nothing() {
    for name in MODELS {
        let ids = golden_ids(name, "long.input_ids");
        for precision in PRECISIONS {
            let options = options(precision);
            let mut model = load(name, &options);
            let (prompt, rest) = ids.split_at(ids.len() - 6);
            let mut count = |arm: Arm, steps: usize| {
                begin(&mut model, arm, prompt, steps);
                let replay = || rest.iter().for_each(|id| assert_eq!(model.forward(&[*id]).unwrap().len(), VOCAB));
                count_allocations(|each| options.pool.on_each_thread(each), replay).0
            };
            for (graph, twin) in TWINS {
                assert_eq!(count(graph, rest.len()), 0, "{name} {precision:?} {graph}");
                // The same counter sees what the other arms, and a capture, do.
                assert!(count(twin, rest.len()) > 100, "{name} {precision:?} {twin}");
            }
        }
    }
}

#[test]
fn a_step_that_was_not_prepared_is_captured_when_it_comes() {
    let options = options(Precision::Bf16);
    let ids = golden_ids(MODELS[0], "long.input_ids");
    let mut model = load(MODELS[0], &options);
    let expected = decode(&mut model, Arm::Fused, &ids, ids.len() - 1);
    model.set_arm(Arm::FusedGraph);
    model.reset();
    // Also the first token, and across the end of what was captured for it.
    let mut captured = Vec::new();
    let mut logits = Vec::new();
    for id in &ids {
        let forward = || model.forward(&[*id]).unwrap().to_vec();
        let (count, of_step) = count_allocations(|each| options.pool.on_each_thread(each), forward);
        // The copy of the logits is one.
        captured.push(count > 1);
        logits.extend(of_step);
    }
    let steps: Vec<usize> = captured.iter().enumerate().filter_map(|(step, &is)| is.then_some(step)).collect();
    assert_eq!(steps, [0, 128]);
    assert_same_bits("from the first token on", &logits[VOCAB..], &expected, &[ids.len() - 1, VOCAB]);
}

#[test]
fn graph_arms_give_the_golden_continuations() {
    for name in MODELS {
        let mut model = load(name, &options(Precision::F32));
        for prompt in ["mini", "short", "long"] {
            let ids = golden_ids(name, &format!("{prompt}.input_ids"));
            let expected = golden_ids(name, &format!("{prompt}.greedy_ids"));
            // The other arm has the same bits; so once is enough for what takes long.
            for arm in [Arm::FusedGraph, Arm::VecGraph].into_iter().take(if prompt == "long" { 1 } else { 2 }) {
                model.set_arm(arm);
                let request =
                    GenerateOptions { max_new_tokens: expected.len(), ignore_eos: true, ..GenerateOptions::default() };
                let answer = generate(&mut model, &ids, &request, |_| ControlFlow::Continue(())).unwrap();
                assert_eq!(answer.ids, expected, "{name} {prompt} {arm}");
            }
        }
    }
}

#[test]
fn impossible_tokens_are_refused_and_do_no_harm() {
    let ids = golden_ids(MODELS[2], "mini.input_ids");
    let mut model = load(MODELS[2], &options(Precision::F32));
    let expected = decode(&mut model, Arm::FusedGraph, &ids, 1);
    model.truncate(ids.len() - 1);
    assert!(matches!(model.forward(&[576]), Err(ModelError::OutsideVocab { id: 576, vocab: 576 })));
    assert_eq!(model.len(), ids.len() - 1);
    assert_same_bits("after an error", model.forward(&ids[ids.len() - 1..]).unwrap(), &expected, &[VOCAB]);

    // To the last position and not beyond it.
    let most = ids.len() + 2;
    let mut model = load_with(MODELS[2], &options(Precision::F32), |config| config.max_position_embeddings = most);
    model.set_arm(Arm::FusedGraph);
    model.forward(&ids).unwrap();
    model.forward(&[2]).unwrap();
    model.forward(&[3]).unwrap();
    assert!(matches!(model.forward(&[3]), Err(ModelError::TooLong { found, max }) if max == most && found == max + 1));
    assert!(model.prepare(most + 1).is_ok() && model.len() == most);
}

#[test]
fn a_window_has_the_logits_of_a_plain_pass_with_the_same_routing() {
    for name in MODELS {
        for precision in PRECISIONS {
            // The last is longer than the position that chooses blocks.
            let lengths = [1, 32, 400];
            for tokens in lengths.into_iter().take(if name == "m3-tiny-mxfp8" { 3 } else { 2 }) {
                let ids = golden_ids(name, "long.input_ids");
                let ids: Vec<u32> = ids.iter().cycle().take(tokens).copied().collect();
                let options = LoadOptions { attention: AttentionMode::Dense, ..options(precision) };
                let mut oracle = load(name, &options);
                oracle.set_routing(Routing::Static);
                // A model whose layers choose blocks gives the same.
                let mut model = load(
                    name,
                    &LoadOptions {
                        attention: LoadOptions::new(options.level, options.pool.clone()).attention,
                        ..options
                    },
                );
                for (arm, twin) in TWINS {
                    oracle.set_arm(twin);
                    oracle.reset();
                    let mut routed = 0;
                    let record = |event: Event<'_>| match event {
                        Event::RouterLogits { .. } => panic!("the router is not computed"),
                        Event::TopK { ids, weights, .. } => {
                            let k = ids.len() / tokens;
                            assert!(ids.chunks(k).all(|ids| ids.iter().copied().eq(0..k as u32)), "{ids:?}");
                            assert!(weights.iter().all(|weight| *weight == 1.0 / k as f32), "{weights:?}");
                            routed += 1;
                        }
                        _ => {}
                    };
                    let expected = oracle.forward_observed(&ids, record).unwrap().to_vec();
                    assert_eq!(routed, 2, "{name}: layers with experts");
                    model.set_arm(arm);
                    for what in ["captured", "replayed"] {
                        let what = format!("{name} {precision:?} {arm}, {tokens} tokens, {what}");
                        assert_same_bits(&what, model.forward_window(&ids).unwrap(), &expected, &[VOCAB]);
                    }
                }
                assert!(model.is_empty());
            }
        }
    }
}

#[test]
fn a_replayed_window_allocates_nothing() {
    for name in MODELS {
        for precision in PRECISIONS {
            let options = options(precision);
            let mut model = load(name, &options);
            let ids = golden_ids(name, "long.input_ids");
            for (arm, _) in TWINS {
                model.set_arm(arm);
                let mut count = |ids: &[u32]| {
                    let run = || model.forward_window(ids).unwrap().len();
                    count_allocations(|each| options.pool.on_each_thread(each), run).0
                };
                assert!(count(&ids[..32]) > 0, "the first one is captured");
                assert_eq!([count(&ids[1..33]), count(&ids[2..34])], [0, 0], "{name} {precision:?} {arm}");
            }
        }
    }
}

#[test]
fn a_graph_follows_the_routing_of_the_model() {
    let ids = golden_ids(MODELS[1], "mini.input_ids");
    let mut model = load(MODELS[1], &options(Precision::Bf16));
    let learned = decode(&mut model, Arm::FusedGraph, &ids, 2);
    model.set_routing(Routing::Static);
    let expected = decode(&mut model, Arm::Fused, &ids, 2);
    assert_same_bits("static", &decode(&mut model, Arm::FusedGraph, &ids, 2), &expected, &[2, VOCAB]);
    assert_ne!(learned, expected);
    model.set_routing(Routing::Learned);
    assert_same_bits("learned again", &decode(&mut model, Arm::FusedGraph, &ids, 2), &learned, &[2, VOCAB]);
    assert!(matches!(model.forward_window(&[]), Err(ModelError::NoTokens)));
    assert!(matches!(model.forward_window(&[1; 2049]), Err(ModelError::TooLong { found: 2049, max: 2048 })));
}
