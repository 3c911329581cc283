// SPDX-License-Identifier: MIT OR Apache-2.0

//! Plans against the models that they plan.

use std::path::PathBuf;
use std::sync::Arc;

use model_minimax::bench::BenchDecoder;
use model_minimax::checkpoint::Checkpoint;
use model_minimax::config::ModelConfig;
use model_minimax::cpu_tiles::{Level, Pool, Precision};
use model_minimax::model::{AttentionMode, HeadReduce, LoadMode, LoadOptions, Model, PREFILL_CHUNK};
use model_minimax::plan::{Chip, MemoryPlan, Place, PlanOptions, Target, decode_work, prefill_work};

fn golden(model: &str) -> PathBuf {
    op_testkit::golden::dir().join("models").join(model)
}

fn config(model: &str) -> ModelConfig {
    ModelConfig::load(&golden(model)).unwrap()
}

fn card(streaming: bool) -> Target {
    Target::Npu { chip: Chip::find("910b3").unwrap(), streaming }
}

#[test]
fn bytes_of_a_token_are_those_that_the_model_counts() {
    for name in ["m27-tiny-bf16", "m27-tiny-fp8", "m3-tiny-bf16", "m3-tiny-mxfp8"] {
        let (config, checkpoint) = (config(name), Checkpoint::open(&golden(name)).unwrap());
        for (precision, attention) in
            [(Precision::Bf16, AttentionMode::Msa(HeadReduce::PerKvHead)), (Precision::F32, AttentionMode::Dense)]
        {
            let options = LoadOptions {
                precision,
                attention,
                load_mode: LoadMode::Mmap,
                ..LoadOptions::new(Level::best(), Arc::new(Pool::new(1).unwrap()))
            };
            let model = Model::load(&checkpoint, &config, &options, |_, _| ()).unwrap();
            let sparse = attention != AttentionMode::Dense;
            for context in [0, 1, 127, 128, 300, 1000] {
                let options =
                    PlanOptions { context, precision, sparse, load: LoadMode::Mmap, ..PlanOptions::new(Target::Cpu) };
                let plan = MemoryPlan::new(&config, &options);
                let counted = model.decode_bytes(context);
                assert_eq!(plan.host_bytes_per_token, counted, "{name} {precision:?} {context}");
                assert_eq!(decode_work(&config, precision, sparse, context).bytes, counted);
            }
        }
    }
}

#[test]
fn flop_of_a_tiny_model_counted_by_hand() {
    let config = config("m27-tiny-bf16").with_max_layers(1).unwrap();
    let (h, i, k, e) =
        (config.hidden_size, config.intermediate_size, config.num_experts_per_tok, config.num_local_experts);
    let linear = 2 * h * config.q_size() + 2 * h * config.kv_size() + e * h + k * 3 * h * i + config.vocab_size * h;
    // Scores and weighted values of 10 tokens in every query head.
    let expected = 2 * linear + 2 * 2 * 10 * config.q_size();
    assert_eq!(decode_work(&config, Precision::Bf16, true, 10).flop, expected as u64);
    // A prompt of one token: no head but its own.
    let one = prefill_work(&config, Precision::Bf16, true, 1, PREFILL_CHUNK);
    assert_eq!(one.flop, decode_work(&config, Precision::Bf16, true, 1).flop);
    let many = prefill_work(&config, Precision::Bf16, true, 64, PREFILL_CHUNK);
    assert!(many.flop > 60 * (one.flop - 2 * (config.vocab_size * h) as u64) && many.bytes < 64 * one.bytes);
}

#[test]
fn beyond_the_blocks_that_are_chosen_the_cache_read_stays_and_index_keys_grow() {
    let config = config("m3-tiny-bf16");
    let read = |context| {
        let plan = MemoryPlan::new(&config, &PlanOptions { context, ..PlanOptions::new(Target::Cpu) });
        let of = |name| plan.parts.iter().find(|part| part.name == name).map(|part| (part.bytes, part.bytes_per_token));
        (of("keys and values").unwrap(), of("index keys").unwrap())
    };
    let ((size, keys), (_, index)) = read(1024);
    let ((larger, later_keys), (_, later_index)) = read(2048);
    assert_eq!(larger, 2 * size);
    assert_eq!(later_index, 2 * index);
    let dense = config.layers.iter().filter(|layer| layer.msa().is_none()).count();
    assert_eq!(later_keys - keys, (dense * 1024 * 2 * config.kv_size() * 2) as u64);
}

#[test]
fn a_card_takes_the_experts_or_streams_them() {
    let config = config("m3-tiny-mxfp8");
    let plan =
        |target| MemoryPlan::new(&config, &PlanOptions { host_bytes_per_s: Some(1e9), ..PlanOptions::new(target) });
    let (cpu, stays, streams) = (plan(Target::Cpu), plan(card(false)), plan(card(true)));
    let experts = |plan: &MemoryPlan| plan.parts.iter().find(|part| part.name == "routed experts").cloned().unwrap();
    assert_eq!((experts(&cpu).place, experts(&stays).place), (Place::Mapped, Place::Device));
    assert_eq!(experts(&streams).place, Place::Streamed);
    assert_eq!(experts(&cpu).bytes, experts(&stays).bytes);
    assert!(streams.device_bytes < stays.device_bytes && streams.mapped_bytes > stays.mapped_bytes);
    assert_eq!((stays.link_bytes_per_token, cpu.device_bytes), (0, 0));
    assert_eq!(streams.link_bytes_per_token, experts(&streams).bytes_per_token);
    // What leaves the host is read by the card; copies are slower than its memory.
    assert!(stays.tokens_per_s > cpu.tokens_per_s && stays.tokens_per_s > streams.tokens_per_s);
    assert!(stays.to_string().contains("predicted at most") && cpu.to_string().contains("expected at most"));
}

#[test]
fn what_does_not_fit_is_said() {
    let config = config("m27-tiny-bf16");
    let plan = |memory, load| {
        let options = PlanOptions { host_memory_bytes: memory, load, ..PlanOptions::new(Target::Cpu) };
        MemoryPlan::new(&config, &options)
    };
    let unknown = plan(None, LoadMode::Auto);
    assert_eq!((unknown.fits, unknown.mapped_stay, unknown.tokens_per_s), (None, None, None));
    assert!(unknown.to_string().contains("no bandwidth was measured"));
    let small = plan(Some(1000), LoadMode::Auto);
    let slow =
        PlanOptions { host_memory_bytes: Some(1000), host_bytes_per_s: Some(1e9), ..PlanOptions::new(Target::Cpu) };
    assert!(MemoryPlan::new(&config, &slow).to_string().contains("less where mapped files come from disk"));
    assert_eq!((small.fits, small.mapped_stay), (Some(false), Some(false)));
    // With room for twice the weights they are packed, as the loader does it.
    let large = plan(Some(1 << 40), LoadMode::Auto);
    assert_eq!(large.parts.iter().find(|part| part.name == "routed experts").unwrap().place, Place::Host);
    assert_eq!(large, plan(Some(1 << 40), LoadMode::Pack));
    assert_eq!((large.fits, large.mapped_stay), (Some(true), Some(true)));
}

#[test]
fn cards_by_name() {
    assert_eq!(Chip::find("Ascend910B3").unwrap(), Chip::find("910b3").unwrap());
    assert_eq!(Chip::find("950").unwrap().name, "950pr");
    let error = Chip::find("910a").unwrap_err().to_string();
    assert!(error.contains("\"910a\"") && error.contains("950dt"), "{error}");
}
