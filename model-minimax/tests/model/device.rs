// SPDX-License-Identifier: MIT OR Apache-2.0

//! A model on the emulator, with the twin of the cores.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::Arc;

use ascend_rt::host::{Chip, Fault, HostConfig};
use ascend_rt::{Choice, Runtime};
use cpu_tiles::{Level, Pool, Precision};
use model_minimax::bench::{Arm, BenchDecoder};
use model_minimax::checkpoint::Checkpoint;
use model_minimax::config::ModelConfig;
use model_minimax::generate::{Decoder, GenerateOptions, generate};
use model_minimax::model::device::{Device, DeviceError};
use model_minimax::model::{Event, LoadMode, LoadOptions, Model, ModelError};
use op_testkit::compare::{Tolerance, assert_close, assert_same_bits};
use op_testkit::golden;

const MODELS: [&str; 4] = ["m27-tiny-bf16", "m27-tiny-fp8", "m3-tiny-bf16", "m3-tiny-mxfp8"];
const VOCAB: usize = 576;

fn options(device: &str) -> LoadOptions {
    let device = Device::open(&device.parse().unwrap()).unwrap();
    LoadOptions { device, ..LoadOptions::new(Level::best(), Arc::new(Pool::new(2).unwrap())) }
}

fn try_load(model: &str, options: &LoadOptions) -> Result<Model, ModelError> {
    let folder = golden::dir().join("models").join(model);
    let config = ModelConfig::load(&folder).unwrap();
    Model::load(&Checkpoint::open(&folder).unwrap(), &config, options, |_, _| ())
}

fn load(model: &str, options: &LoadOptions) -> Model {
    try_load(model, options).unwrap()
}

fn expected_ids(model: &str, tensor: &str) -> Vec<u32> {
    let file = golden::open(format!("models/{model}/expected.safetensors")).unwrap();
    file.tensor(tensor).unwrap().i64().unwrap().into_iter().map(|id| id as u32).collect()
}

#[test]
fn greedy_ids_are_the_golden_ones() {
    // In BF16 the prompt `mini` is the one without near ties.
    let cases = MODELS
        .into_iter()
        .map(|model| ("sim:910b3", model))
        .chain([("sim:950pr", MODELS[1]), ("sim:950dt", MODELS[3])]);
    for (device, name) in cases {
        let mut model = load(name, &options(device));
        let request = GenerateOptions { max_new_tokens: 16, ignore_eos: true, ..GenerateOptions::default() };
        let prompt = expected_ids(name, "mini.input_ids");
        let answer = generate(&mut model, &prompt, &request, |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(answer.ids, expected_ids(name, "mini.greedy_ids"), "{name} on {device}");
    }
}

/// Logits of a prompt of two pieces and of three more tokens.
fn logits(model: &mut Model, ids: &[u32]) -> Vec<f32> {
    model.reset();
    let mut all = model.forward_all(&ids[..ids.len() - 5], |_| ()).unwrap();
    all.extend(model.forward_all(&ids[ids.len() - 5..], |_| ()).unwrap());
    for id in [7, 300, 41] {
        all.extend_from_slice(model.forward(&[id]).unwrap());
    }
    all
}

#[test]
fn it_does_not_matter_where_the_experts_wait() {
    // One for each format of experts.
    for name in [MODELS[0], MODELS[1], MODELS[3]] {
        let ids = expected_ids(name, "mini.input_ids");
        let shape = [ids.len() + 3, VOCAB];
        let prebuilt = LoadOptions { streaming: false, ..options("sim:910b3") };
        let mut model = load(name, &prebuilt);
        let expected = logits(&mut model, &ids);
        // One launch for each expert, all of them on the device.
        model.set_arm(Arm::Eager);
        assert_same_bits(&format!("{name}, eager"), &logits(&mut model, &ids), &expected, &shape);
        // Converted at each use, or once.
        for load_mode in [LoadMode::Mmap, LoadMode::Pack] {
            let mut model = load(name, &LoadOptions { streaming: true, load_mode, ..prebuilt.clone() });
            assert_same_bits(&format!("{name}, {load_mode:?}"), &logits(&mut model, &ids), &expected, &shape);
            if load_mode == LoadMode::Pack {
                model.set_arm(Arm::Eager);
                assert_same_bits(&format!("{name}, streamed, eager"), &logits(&mut model, &ids), &expected, &shape);
            }
        }
    }
}

/// What the first layer with sparse attention has computed: blocks with their scores, and its output.
#[derive(Default)]
struct Seen {
    blocks: Vec<i32>,
    scores: Vec<f32>,
    out: Vec<f32>,
}

fn observed(model: &mut Model, ids: &[u32]) -> Seen {
    let mut seen = Seen::default();
    let record = |event: Event<'_>| match event {
        Event::BlockScores { layer: 3, values, .. } => seen.scores.extend_from_slice(values),
        Event::Blocks { layer: 3, ids, .. } => seen.blocks.extend_from_slice(ids),
        Event::AttnOut { layer: 3, values } => seen.out.extend_from_slice(values),
        _ => {}
    };
    model.forward_all(ids, record).unwrap();
    seen
}

#[test]
fn a_long_sequence_drops_the_blocks_that_it_drops_on_the_cpu() {
    // Before the first layer with sparse attention both compute the same bits. The second piece outgrows the first cache,
    // and sees five blocks, of which it takes two or three.
    for name in &MODELS[2..] {
        let ids = &expected_ids(name, "long.input_ids")[..560];
        let prefill_chunk = NonZeroUsize::new(400).unwrap();
        let options = LoadOptions { prefill_chunk, ..options("sim:910b3") };
        let mut cpu = load(name, &LoadOptions { device: Device::cpu(), ..options.clone() });
        let mut sim = load(name, &options);
        for piece in [&ids[..540], &ids[540..541], &ids[541..560]] {
            let (expected, found) = (observed(&mut cpu, piece), observed(&mut sim, piece));
            let differ = expected.blocks.iter().zip(&found.blocks).filter(|(a, b)| a != b).count();
            assert_eq!((found.blocks.len(), differ), (expected.blocks.len(), 0), "{name}");
            let close = |what: &str, found: &[f32], expected: &[f32], tolerance| {
                assert_eq!(found.len(), expected.len(), "{name}: {what}");
                assert_close(&format!("{name}: {what}"), found, expected, &[expected.len()], tolerance);
            };
            close("scores", &found.scores, &expected.scores, Tolerance::abs(2e-3));
            close("attention", &found.out, &expected.out, Tolerance::abs(2e-2));
        }
        assert_eq!(sim.len(), 560);
        // Cut within a block, it goes on as if nothing had followed.
        let again = |model: &mut Model| {
            model.truncate(500);
            model.forward(&ids[500..540]).unwrap().to_vec()
        };
        let first = again(&mut sim);
        observed(&mut sim, &ids[..9]);
        assert_same_bits(name, &again(&mut sim), &first, &[VOCAB]);
    }
}

/// A device of the emulator, changed as a test wants it.
fn emulated(change: impl FnOnce(HostConfig) -> HostConfig) -> Device {
    // Images of the twin are known from here on.
    drop(options("sim:910b3"));
    let config = change(HostConfig::new().device(Chip::preset("Ascend910B3").unwrap()));
    Device::from_context(Runtime::open(Choice::Host(config)).unwrap().device(0).unwrap().isolated().unwrap())
}

#[test]
fn what_the_device_cannot_do_is_said() {
    let on =
        |device: Device| LoadOptions { device, ..LoadOptions::new(Level::best(), Arc::new(Pool::new(1).unwrap())) };
    let exact = LoadOptions { precision: Precision::F32, ..options("sim:910b3") };
    let error = try_load(MODELS[0], &exact).unwrap_err();
    assert!(matches!(error, ModelError::Device(DeviceError::Precision { .. })), "{error}");

    let small = on(emulated(|config| config.capacity(1 << 20)));
    let error = try_load(MODELS[0], &small).unwrap_err();
    let ModelError::Device(DeviceError::Memory { plan, .. }) = &error else { panic!("{error}") };
    assert!(!plan.fits() && plan.bytes() > 1 << 20, "{plan}");
    assert!(error.to_string().contains("experts of 2 layers (bf16), streamed from the host"), "{error}");

    // A task that fails is told with what the device said, and nothing is computed on.
    let broken =
        on(emulated(|config| config.fault(Fault::kernel("grouped_gemm", "grouped_gemm_combine", 507015).nth(3))));
    let mut model = load(MODELS[0], &broken);
    let error = (0..4).find_map(|_| model.forward(&[1, 2, 3]).err());
    let Some(ModelError::Device(DeviceError::Failed { what, report })) = error else { panic!("{error:?}") };
    assert!(what == "experts" && report.contains("507015"), "{what}: {report}");
    assert!(model.forward(&[4]).is_err());
}

#[test]
fn captured_experts_follow_the_routing_of_each_token() {
    for (name, device) in [(MODELS[0], "sim:910b3"), (MODELS[3], "sim:910b3"), (MODELS[1], "sim:950pr")] {
        let options = LoadOptions { streaming: false, ..options(device) };
        let mut model = load(name, &options);
        let prompt = expected_ids(name, "mini.input_ids");
        let run = |model: &mut Model| {
            model.truncate(0);
            let mut all = model.forward(&prompt).unwrap().to_vec();
            let mut experts = Vec::new();
            for id in [7, 300, 41, 9] {
                let record = |event: Event<'_>| {
                    if let Event::TopK { layer, ids, .. } = event
                        && layer == model_layers(name) - 1
                    {
                        experts.push(ids.to_vec());
                    }
                };
                all.extend_from_slice(model.forward_observed(&[id], record).unwrap());
            }
            // Tokens go different ways, or there were nothing to follow.
            experts.dedup();
            assert!(experts.len() > 1, "{name}: {experts:?}");
            all
        };
        for (arm, graph) in [(Arm::Fused, Arm::FusedGraph), (Arm::Eager, Arm::VecGraph)] {
            model.set_arm(arm);
            let expected = run(&mut model);
            model.set_arm(graph);
            model.prepare(20).unwrap();
            let live = live(&options.device);
            assert_same_bits(&format!("{name} {graph} on {device}"), &run(&mut model), &expected, &[5, VOCAB]);
            assert_eq!(self::live(&options.device), live, "memory was taken while replaying");
        }
    }
    let mut streamed = load(MODELS[0], &options("sim:910b3"));
    streamed.set_arm(Arm::FusedGraph);
    let error = streamed.forward(&[1]).unwrap_err();
    assert!(matches!(error, ModelError::Device(DeviceError::StreamedGraph)), "{error}");
    let error = streamed.forward_window(&[1, 2]).unwrap_err();
    assert!(matches!(error, ModelError::Device(DeviceError::Window)), "{error}");
}

/// Layers of a model.
fn model_layers(model: &str) -> usize {
    if model.starts_with("m3") { 5 } else { 2 }
}

fn live(device: &Device) -> u64 {
    device.context().unwrap().memory_use().live as u64
}

#[test]
fn the_memory_plan_counts_what_is_allocated() {
    let folder = golden::dir().join("models").join(MODELS[3]);
    let (config, checkpoint) = (ModelConfig::load(&folder).unwrap(), Checkpoint::open(&folder).unwrap());
    for streaming in [true, false] {
        let prefill_chunk = NonZeroUsize::new(8).unwrap();
        let options = LoadOptions { streaming, prefill_chunk, ..options("sim:910b3") };
        let plan = Model::memory_plan(&checkpoint, &config, &options).unwrap().unwrap();
        assert_eq!(plan.streamed.is_some(), streaming);
        // 3 x 64 x 128 codes, a BF16 scale for each 32 and 32 bytes behind the scales of each product, of 2 layers of 8
        // experts, or of 2 buckets of 4.
        let experts = (3 * 64 * 128 * 17 / 16 + 2 * 32) * if streaming { 8 } else { 16 };
        assert_eq!(plan.items[0].bytes, experts, "{plan}");
        let before = live(&options.device);
        let mut model = load(MODELS[3], &options);
        model.forward(&[1; 8]).unwrap();
        model.forward(&[2]).unwrap();
        let used = live(&options.device) - before;
        let planned = plan.bytes();
        // Tables, states and roundings come on top.
        assert!(used >= planned && used < planned + planned / 4, "{used} of {plan}");
        // From here on, decoding takes no more.
        for _ in 0..3 {
            model.forward(&[3]).unwrap();
        }
        assert_eq!(live(&options.device) - before, used);
    }
    let cpu = LoadOptions { device: Device::cpu(), ..options("sim:910b3") };
    assert_eq!(Model::memory_plan(&checkpoint, &config, &cpu).unwrap(), None);
}
