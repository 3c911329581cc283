// SPDX-License-Identifier: MIT OR Apache-2.0

//! Synthetic checkpoints: specs, files, values, and what happens to interrupted and damaged ones.

use std::fs;
use std::path::Path;

use model_minimax::checkpoint::synthetic::{CreateOptions, SyntheticError, SyntheticSpec, create, ensure};
use model_minimax::checkpoint::{Checkpoint, Dtype, FfnTensors, LinearTensors, ModelTensors, Tensor, expected_tensors};
use model_minimax::config::{
    FP8_BLOCK, FfnKind, HiddenAct, MX_BLOCK, ModelConfig, NormKind, QkNorm, StopIds, Variant, WeightFormat,
    tokenizer_eos_token,
};
use model_minimax::cpu_tiles::{E8M0, F8E4M3, Format};
use op_testkit::golden;
use proptest::prelude::*;

use super::moe;
use crate::scratch::Scratch;

fn spec(text: &str) -> SyntheticSpec {
    text.parse().unwrap()
}

/// Makes `text` in `cache`, and says whether anything was written.
fn make(text: &str, cache: &Path) -> (std::path::PathBuf, bool) {
    let mut last = None;
    let dir = ensure(&spec(text), cache, |done, total| {
        assert!(last.is_none_or(|(before, _)| done > before) && done <= total);
        last = Some((done, total));
    });
    if let Some((done, total)) = last {
        assert_eq!(done, total);
    }
    (dir.unwrap(), last.is_some())
}

fn open(dir: &Path) -> (ModelTensors, ModelConfig) {
    let checkpoint = Checkpoint::open(dir).unwrap();
    let config = ModelConfig::load(dir).unwrap();
    let (tensors, report) = checkpoint.model_tensors(&config).unwrap();
    assert_eq!(report.expected, report.found);
    (tensors, config)
}

#[test]
fn bad_specs_say_what_is_wrong() {
    for (text, what) in [
        ("", r#""" is neither a preset nor key=value"#),
        ("huge", r#""huge" is neither a preset nor key=value"#),
        ("layers=2,tiny", "the preset tiny should come first"),
        ("tiny,", r#""" is neither a preset nor key=value"#),
        ("depth=2", "unknown key depth"),
        ("layers=2,layers=3", "layers occurs twice"),
        ("layers=0", "layers should be between 1 and 1024, found 0"),
        ("layers=two", "layers should be between 1 and 1024, found two"),
        ("experts=100000", "experts should be between 1 and 1024, found 100000"),
        ("hidden=1000", "hidden should be a multiple of 384 up to 65280, found 1000"),
        ("vocab=575", "vocab should be between 576 and 16777216, found 575"),
        ("weights=int4", "weights should be fp8, mxfp8 or bf16, found int4"),
        ("tiny,m3-tiny", "the preset m3-tiny should come first"),
        ("blocks=2", "blocks are a matter of M3 (m3-tiny, m3-slice, m3-full)"),
        ("seed=-1", "seed should be a number below 2^64, found -1"),
        ("m3-tiny,blocks=0", "blocks should be between 1 and 65536, found 0"),
    ] {
        let error = text.parse::<SyntheticSpec>().unwrap_err();
        assert_eq!(error.what, what);
        let message = error.to_string();
        assert!(message.contains(what) && message.contains("`layers=4,experts=32,"), "{message}");
    }
}

#[test]
fn specs_print_what_differs_from_the_preset() {
    for (text, printed) in [
        ("slice", "slice"),
        ("layers=4, experts=32", "slice"),
        ("experts=64,layers=2", "slice,layers=2,experts=64"),
        ("tiny,weights=bf16,vocab=1024", "tiny,vocab=1024,weights=bf16"),
        ("tiny,weights=mxfp8", "tiny,weights=mxfp8"),
        ("m3-slice,weights=mxfp8,blocks=16", "m3-slice"),
        ("m3-full,layers=4,seed=27", "m3-full,layers=4"),
        ("tiny,seed=28", "tiny,seed=28"),
        ("m3-tiny,weights=fp8,blocks=16", "m3-tiny,blocks=16,weights=fp8"),
    ] {
        assert_eq!(spec(text).to_string(), printed);
    }
    assert_eq!(SyntheticSpec::default(), spec("slice"));
    for (variant, text) in [(Variant::M27, "slice"), (Variant::M3, "m3-slice")] {
        assert_eq!(SyntheticSpec::slice(variant), spec(text));
        assert_eq!(spec(text).variant(), variant);
    }
}

proptest! {
    #[test]
    fn printed_specs_parse_to_the_same(
        preset in prop::sample::select(vec!["tiny", "slice", "m3-tiny", "m3-slice"]),
        layers in 1_usize..=1024,
        experts in 1_usize..=1024,
        hidden in 1_usize..=170,
        vocab in 576_usize..300_000,
        weights in prop::sample::select(vec!["fp8", "mxfp8", "bf16"]),
        blocks in 1_usize..=64,
    ) {
        let hidden = hidden * 384;
        let mut text =
            format!("{preset},weights={weights},vocab={vocab},hidden={hidden},experts={experts},layers={layers}");
        if preset.starts_with("m3") {
            text.push_str(&format!(",blocks={blocks}"));
        }
        let spec = spec(&text);
        prop_assert_eq!(&spec.to_string().parse::<SyntheticSpec>().unwrap(), &spec);
        // Every spec is a valid configuration.
        let config = spec.config().unwrap();
        prop_assert_eq!((config.num_hidden_layers, config.num_local_experts), (layers, experts));
        prop_assert_eq!((config.hidden_size, config.vocab_size), (hidden, vocab));
        prop_assert_eq!(config.variant, spec.variant());
        for layer in &config.layers {
            prop_assert!(layer.msa().is_none_or(|msa| msa.topk == blocks));
        }
    }
}

#[test]
fn slice_has_the_published_layer_geometry() {
    let config = SyntheticSpec::default().config().unwrap();
    assert_eq!((config.hidden_size, config.intermediate_size), (3072, 1536));
    assert_eq!((config.num_attention_heads, config.num_key_value_heads), (48, 8));
    assert_eq!((config.head_dim, config.rotary_dim, config.rope_theta), (128, 64, 5e6));
    assert_eq!(config.num_experts_per_tok, 8);
    assert!(matches!(config.weight_format, WeightFormat::Fp8Block { .. }));
    let bytes: usize = expected_tensors(&config).iter().map(|t| t.dtype.byte_len(&t.shape).unwrap()).sum();
    assert!((2_000_000_000..3_000_000_000).contains(&bytes), "{bytes}");
}

#[test]
fn m3_slice_has_the_published_layer_geometry() {
    let config = SyntheticSpec::slice(Variant::M3).config().unwrap();
    assert_eq!((config.hidden_size, config.intermediate_size, config.shared_size()), (6144, 3072, 3072));
    assert_eq!((config.num_attention_heads, config.num_key_value_heads), (64, 4));
    assert_eq!((config.head_dim, config.rotary_dim, config.rope_theta), (128, 64, 5e6));
    assert_eq!((config.num_experts_per_tok, config.routed_scaling_factor), (4, 2.0));
    assert_eq!((config.norm, config.qk_norm), (NormKind::Gemma, QkNorm::PerHead));
    assert_eq!(config.hidden_act, HiddenAct::SwigluOai { alpha: 1.702, limit: 7.0 });
    assert!(matches!(config.weight_format, WeightFormat::Mxfp8 { .. }));
    let msa = config.layers[1].msa().unwrap();
    assert_eq!((msa.index_heads, msa.index_dim, msa.block, msa.topk), (4, 128, 128, 16));
    assert_eq!((msa.init_blocks, msa.local_blocks), (0, 1));
    assert_eq!(config.layers[0].ffn, FfnKind::Dense { intermediate_size: 12288 });
    let bytes: usize = expected_tensors(&config).iter().map(|t| t.dtype.byte_len(&t.shape).unwrap()).sum();
    assert!((3_000_000_000..4_500_000_000).contains(&bytes), "{bytes}");
}

#[test]
fn m3_layers_are_dense_first_and_sparse_then() {
    for (layers, dense) in [(1, 0), (2, 1), (4, 1), (20, 1), (21, 2), (60, 3)] {
        let config = spec(&format!("m3-tiny,layers={layers}")).config().unwrap();
        for (i, layer) in config.layers.iter().enumerate() {
            assert_eq!(layer.ffn != FfnKind::Moe, i < dense, "layer {i} of {layers}");
            assert_eq!(layer.msa().is_none(), i < dense, "layer {i} of {layers}");
        }
    }
    // Every width leaves several query heads to a KV head, and an index head to each of these.
    for (hidden, heads, kv_heads) in [(384, 4, 2), (768, 8, 4), (1152, 12, 4), (6144, 64, 4)] {
        let config = spec(&format!("m3-tiny,hidden={hidden}")).config().unwrap();
        assert_eq!((config.num_attention_heads, config.num_key_value_heads), (heads, kv_heads));
        assert_eq!(config.layers[1].msa().unwrap().index_heads, kv_heads);
    }
}

#[test]
fn m3_tiny_is_a_complete_folder() {
    let cache = Scratch::new();
    let (dir, written) = make("m3-tiny", cache.path());
    assert!(written && !make("m3-tiny", cache.path()).1);
    let (tensors, config) = open(&dir);
    assert_eq!((config.variant, tensors.layers.len()), (Variant::M3, 3));
    assert!(matches!(tensors.layers[0].ffn, FfnTensors::Dense(_)));
    let layer = &tensors.layers[2];
    assert_eq!(moe(layer).experts.len(), 8);
    assert!(moe(layer).shared.is_some());
    let scale = layer.index.as_ref().unwrap().k.scale.as_ref().unwrap();
    assert_eq!((scale.dtype(), scale.shape()), (Dtype::U8, [128, 12].as_slice()));
    assert_eq!(tensors.embed.name(), "language_model.model.embed_tokens.weight");
    // One-based names.
    let names: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().any(|name| name == "model-00001-of-00005.safetensors"), "{names:?}");
    assert!(names.iter().any(|name| name == "model-00005-of-00005.safetensors"), "{names:?}");

    let golden = golden::dir().join("models/m3-tiny-bf16");
    for file in ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"] {
        assert_eq!(fs::read(dir.join(file)).unwrap(), fs::read(golden.join(file)).unwrap(), "{file}");
    }
    let stops = StopIds::collect(&dir, &config, Some(532)).unwrap();
    assert_eq!(stops.ids.keys().copied().collect::<Vec<_>>(), [532]);
}

#[test]
fn tiny_is_a_complete_folder() {
    let cache = Scratch::new();
    let (dir, written) = make("tiny", cache.path());
    assert!(written);
    assert_eq!(dir, cache.path().join("synthetic-tiny"));
    let (tensors, config) = open(&dir);
    assert_eq!((tensors.layers.len(), moe(&tensors.layers[0]).experts.len()), (2, 8));
    assert_eq!(tensors.layers[0].q.weight.dtype(), Dtype::F8E4M3);
    assert_eq!(moe(&tensors.layers[0]).router.dtype(), Dtype::F32);
    // An expert width of 192 leaves a partial block.
    assert_eq!(moe(&tensors.layers[0]).experts[0].gate.scale.as_ref().unwrap().shape(), [2, 3]);
    // Zero-based names, several files.
    assert!(
        dir.join("model-00000-of-00005.safetensors").exists(),
        "{:?}",
        fs::read_dir(&dir).unwrap().collect::<Vec<_>>()
    );

    let tokenizer = fs::read(dir.join("tokenizer.json")).unwrap();
    assert_eq!(tokenizer, fs::read(golden::dir().join("models/m27-tiny-bf16/tokenizer.json")).unwrap());
    for file in ["tokenizer_config.json", "chat_template.jinja", "generation_config.json", "synthetic.json"] {
        assert!(dir.join(file).exists(), "{file}");
    }
    assert_eq!(tokenizer_eos_token(&dir).unwrap().as_deref(), Some("[e~["));
    let stops = StopIds::collect(&dir, &config, Some(532)).unwrap();
    assert_eq!(stops.ids.keys().copied().collect::<Vec<_>>(), [532]);
    // Nothing else is left in the cache.
    let mut names: Vec<_> = fs::read_dir(cache.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["synthetic-tiny", "synthetic-tiny.lock"]);
}

#[test]
fn the_same_spec_gives_the_same_bytes() {
    let [one, two] = [Scratch::new(), Scratch::new()];
    let (a, _) = make("tiny", one.path());
    let (b, _) = make("tiny", two.path());
    let mut compared = 0;
    for entry in fs::read_dir(&a).unwrap() {
        let name = entry.unwrap().file_name();
        assert_eq!(fs::read(a.join(&name)).unwrap(), fs::read(b.join(&name)).unwrap(), "{name:?}");
        compared += 1;
    }
    assert_eq!(compared, 5 + 5 + 2, "weights, companions, index and stamp");
}

#[test]
fn whole_checkpoints_are_used_again_and_damaged_ones_are_made_again() {
    let cache = Scratch::new();
    let (dir, written) = make("tiny", cache.path());
    assert!(written);
    assert!(!make("tiny", cache.path()).1, "made twice");
    // Another spec is another folder.
    assert_ne!(make("tiny,layers=1", cache.path()).0, dir);

    let shard = dir.join("model-00001-of-00005.safetensors");
    let original = fs::read(&shard).unwrap();
    fs::write(&shard, &original[..original.len() - 1]).unwrap();
    assert!(make("tiny", cache.path()).1, "a cut shard was accepted");
    assert_eq!(fs::read(&shard).unwrap(), original);

    fs::write(dir.join("synthetic.json"), "{}").unwrap();
    assert!(make("tiny", cache.path()).1, "a foreign stamp was accepted");
}

#[test]
fn leftovers_of_an_interrupted_run_are_no_checkpoint() {
    let cache = Scratch::new();
    let partial = cache.path().join("synthetic-tiny.partial");
    fs::create_dir(&partial).unwrap();
    fs::write(partial.join("model-00000-of-00005.safetensors"), [0; 100]).unwrap();
    let (dir, written) = make("tiny", cache.path());
    assert!(written && !partial.exists());
    open(&dir);
}

#[test]
fn full_has_the_published_sizes() {
    // Bytes of the text tensors as published: every weight and scale of the checkpoints' headers.
    for (text, layers, tensors) in [("full", 62, 96_103), ("m3-full", 60, 22_893 + 22_422)] {
        let config = spec(text).config().unwrap();
        assert_eq!((config.num_hidden_layers, config.vocab_size), (layers, 200_064));
        assert_eq!(expected_tensors(&config).len(), tensors, "{text}");
    }
}

#[test]
fn a_folder_of_its_own_has_the_size_of_files_and_the_seed_asked_for() {
    let scratch = Scratch::new();
    let dir = scratch.path().join("new/m3");
    let options = CreateOptions { shard_bytes: std::num::NonZeroU64::new(1 << 20), replace: false };
    let created = create(&spec("m3-tiny"), &dir, &options, |_, _| ()).unwrap();
    let (tensors, config) = open(&dir);
    assert_eq!(created.tensors, expected_tensors(&config).len());
    let mut largest = 0;
    let mut files = 0;
    for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
        if entry.file_name().to_str().unwrap().ends_with(".safetensors") {
            files += 1;
            largest = largest.max(entry.metadata().unwrap().len());
        }
    }
    // The header comes on top.
    assert!(files == created.files && largest < (1 << 20) + (1 << 17), "{files} files, up to {largest} bytes");
    assert!(created.bytes > 7 << 20 && files >= 7, "{created:?}");
    // The text files are there, and a second seed gives other values in the same places.
    assert!(fs::read_to_string(dir.join("chat_template.jinja")).unwrap().contains("thinking_mode"));
    let other_dir = scratch.path().join("other");
    create(&spec("m3-tiny,seed=28"), &other_dir, &options, |_, _| ()).unwrap();
    let (other, _) = open(&other_dir);
    assert_eq!(tensors.embed.byte_len(), other.embed.byte_len());
    assert_ne!(tensors.embed.bytes(), other.embed.bytes());
    // What `ensure` keeps under the same spec is the same.
    let (kept, _) = make("m3-tiny,seed=28", scratch.path());
    assert_eq!(open(&kept).0.embed.bytes(), other.embed.bytes());
}

#[test]
fn a_folder_that_is_in_use_is_left_alone() {
    let scratch = Scratch::new();
    let dir = scratch.path().join("model");
    let make = |replace| {
        create(&spec("tiny"), &dir, &CreateOptions { shard_bytes: None, replace }, |_, _| ()).map_err(|e| e.to_string())
    };
    // Empty: as if it were not there.
    fs::create_dir(&dir).unwrap();
    make(false).unwrap();
    let error = make(false).unwrap_err();
    assert!(error.contains("model is in the way: a synthetic checkpoint, which --force replaces"), "{error}");
    make(true).unwrap();
    // A file that no synthetic checkpoint has makes it somebody's folder.
    fs::write(dir.join("notes.txt"), "mine").unwrap();
    let error = make(true).unwrap_err();
    assert!(error.contains("neither empty nor a synthetic checkpoint"), "{error}");
    assert_eq!(fs::read_to_string(dir.join("notes.txt")).unwrap(), "mine");
    // So does a published checkpoint, which has no stamp.
    fs::remove_file(dir.join("notes.txt")).unwrap();
    fs::remove_file(dir.join("synthetic.json")).unwrap();
    assert!(make(true).is_err() && dir.join("config.json").is_file());
    // A killed run leaves a folder beside it.
    fs::remove_dir_all(&dir).unwrap();
    let partial = scratch.path().join("model.partial");
    fs::create_dir(&partial).unwrap();
    fs::write(partial.join("model-00000-of-00004.safetensors"), "cut").unwrap();
    let error = make(false).unwrap_err();
    assert!(error.contains("model.partial is in the way: what an interrupted run has left"), "{error}");
    make(true).unwrap();
    assert!(!partial.exists());
    fs::create_dir(&partial).unwrap();
    fs::write(partial.join("letter"), "mine").unwrap();
    fs::remove_dir_all(&dir).unwrap();
    assert!(make(true).is_err() && partial.join("letter").exists() && !dir.exists());
}

#[test]
fn two_processes_at_once_share_one_checkpoint() {
    let cache = Scratch::new();
    let written: Vec<bool> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| make("tiny", cache.path()).1)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(written.iter().filter(|written| **written).count(), 1, "{written:?}");
}

#[cfg(unix)]
#[test]
fn a_disk_that_is_too_small_is_noticed_before_anything_is_written() {
    let cache = Scratch::new();
    let spec = spec("layers=62,experts=256,hidden=65280");
    let error = ensure(&spec, cache.path(), |_, _| panic!("written")).unwrap_err();
    let SyntheticError::DiskSpace { needed, free, .. } = error else { panic!("{error}") };
    assert!(needed > free && needed > 100_000_000_000_000, "{needed}");
    assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 1, "only the lock");
}

#[test]
fn cache_folder_that_cannot_be_made_is_named() {
    let folder = Scratch::new();
    let file = folder.write("file", "");
    let error = ensure(&spec("tiny"), &file.join("cache"), |_, _| ()).unwrap_err();
    let SyntheticError::Io { path, .. } = &error else { panic!("{error}") };
    assert_eq!(path, &file.join("cache"));
    assert!(error.to_string().starts_with(&format!("cannot write {}", path.display())), "{error}");
}

/// Mean and standard deviation.
fn moments(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let n = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / n;
    (mean, (values.map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt())
}

/// Every weight of a linear layer, by the definition of its format.
fn values(linear: &LinearTensors) -> Vec<f64> {
    let grid: Vec<f64> = match (&linear.scale, linear.format) {
        (None, _) => return linear.weight.as_bf16().unwrap().iter().map(|w| w.to_f64()).collect(),
        (Some(scale), Format::Mxfp8) => {
            scale.bytes().iter().map(|&code| E8M0::from_bits(code).to_f32().into()).collect()
        }
        (Some(scale), _) => scale.as_f32().unwrap().iter().map(|&scale| scale.into()).collect(),
    };
    let block = if linear.format == Format::Mxfp8 { MX_BLOCK } else { FP8_BLOCK };
    let columns = linear.cols.div_ceil(block[1]);
    let value = |(i, &code): (usize, &u8)| {
        let scale = grid[i / linear.cols / block[0] * columns + i % linear.cols / block[1]];
        f64::from(F8E4M3::from_bits(code).to_f32()) * scale
    };
    linear.bytes().iter().enumerate().map(value).collect()
}

#[test]
fn values_look_like_a_trained_layer() {
    for (text, expert_gain, norm, bias_range) in [
        ("tiny", 1.5, 1.0, 7.4..8.6),
        ("tiny,weights=bf16", 1.5, 1.0, 7.4..8.6),
        ("m3-tiny", 1.0, 0.0, 14.4..15.6),
        ("m3-tiny,weights=bf16", 1.0, 0.0, 14.4..15.6),
    ] {
        let cache = Scratch::new();
        let (tensors, config) = open(&make(text, cache.path()).0);
        assert_eq!(config.weight_format == WeightFormat::Bf16, text.ends_with("bf16"));
        let layer = &tensors.layers[1];
        let mut linears = vec![(&layer.q, 1.0), (&layer.o, 1.0), (&moe(layer).experts[3].down, expert_gain)];
        linears.extend(moe(layer).shared.iter().map(|shared| (&shared.gate, 1.0)));
        linears.extend(layer.index.iter().map(|index| (&index.q, 1.0)));
        for (linear, gain) in linears {
            let (mean, std) = moments(values(linear).into_iter());
            let expected = gain / (linear.cols as f64).sqrt();
            assert!(mean.abs() < 0.02 * expected, "{text}: mean {mean}");
            assert!((std / expected - 1.0).abs() < 0.03, "{text}: std {std}, expected {expected}");
        }
        let (mean, std) = moments(tensors.embed.as_bf16().unwrap().iter().map(|v| v.to_f64()));
        assert!(mean.abs() < 0.01 && (std - 1.0).abs() < 0.01, "embedding {mean} {std}");
        let bias = moe(layer).bias.as_f32().unwrap();
        assert!(bias.iter().all(|bias| bias_range.contains(bias)), "{bias:?}");
        assert!(bias.iter().any(|b| *b != bias[0]));
        let (mean, _) = moments(layer.input_norm.as_bf16().unwrap().iter().map(|v| v.to_f64()));
        assert!((mean - norm).abs() < 0.05, "norm {mean}");
    }
}

#[test]
fn fp8_codes_use_their_range_and_differ_between_tensors() {
    let cache = Scratch::new();
    let (tensors, _) = open(&make("tiny", cache.path()).0);
    let layer = &tensors.layers[0];
    let q = layer.q.bytes();
    for block in 0..layer.q.rows / 128 {
        // One block of rows, first block of columns.
        let codes = (0..128).flat_map(|row| &q[(block * 128 + row) * layer.q.cols..][..128]);
        let magnitudes = codes.map(|&code| F8E4M3::from_bits(code).to_f32().abs());
        let amax = magnitudes.fold(0.0, |max: f32, m| if m.is_nan() { f32::NAN } else { max.max(m) });
        assert!((384.0..=448.0).contains(&amax), "block {block}: {amax}");
    }
    assert_ne!(layer.k.bytes(), layer.v.bytes());
    assert_ne!(q, tensors.layers[1].q.bytes());
    let scales = layer.q.scale.as_ref().unwrap().as_f32().unwrap();
    assert!(scales.iter().all(|scale| *scale > 0.0));
    assert!(scales.iter().any(|scale| *scale != scales[0]));
}

/// `y = x * w^T` for one row.
fn apply(weights: &[f64], x: &[f64]) -> Vec<f64> {
    weights.chunks(x.len()).map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
}

/// RMS norm of one run, times `1 + w`.
fn gemma_norm(x: &[f64], weight: &Tensor) -> Vec<f64> {
    let rms = (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64 + 1e-6).sqrt();
    let weight = weight.as_bf16().unwrap();
    x.iter().zip(weight.iter()).map(|(x, w)| x / rms * (1.0 + w.to_f64())).collect()
}

#[test]
fn index_heads_choose_among_blocks() {
    const BLOCKS: usize = 8;
    let cache = Scratch::new();
    let (tensors, config) = open(&make("m3-tiny", cache.path()).0);
    let layer = &tensors.layers[1];
    let index = layer.index.as_ref().unwrap();
    let msa = config.layers[1].msa().unwrap();
    let (q_weight, k_weight) = (values(&index.q), values(&index.k));
    // What the layer would see of a text if the layers before it added nothing. Rotation is left out: it takes nothing
    // from the norms of queries and keys.
    let embed: Vec<f64> = tensors.embed.as_bf16().unwrap().iter().map(|x| x.to_f64()).collect();
    let token = |i: usize| (i * 7919 + i / 128 * 31) % 512;
    let normed = |i: usize| {
        let row = &embed[token(i) * config.hidden_size..][..config.hidden_size];
        gemma_norm(row, &layer.input_norm)
    };
    let tokens = BLOCKS * msa.block;
    let keys: Vec<_> = (0..tokens).map(|i| gemma_norm(&apply(&k_weight, &normed(i)), &index.k_norm)).collect();
    let mut chosen = [[0; BLOCKS]; 2];
    let mut disagreements = 0;
    for query in tokens - 40..tokens {
        let heads = apply(&q_weight, &normed(query));
        let mut best = Vec::new();
        for (head, chosen) in heads.chunks(msa.index_dim).zip(&mut chosen) {
            let head = gemma_norm(head, &index.q_norm);
            let score = |block: &[Vec<f64>]| block.iter().map(|key| apply(key, &head)[0]).fold(f64::MIN, f64::max);
            // Without the query's own block, which is always chosen.
            let scores: Vec<f64> = keys.chunks(msa.block).take(BLOCKS - 1).map(score).collect();
            assert!(scores.iter().all(|score| score.is_finite()));
            let mut order: Vec<usize> = (0..scores.len()).collect();
            order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
            chosen[order[0]] += 1;
            best.push(order[0]);
        }
        disagreements += usize::from(best[0] != best[1]);
    }
    for chosen in chosen {
        let used = chosen.iter().filter(|count| **count > 0).count();
        assert!(used >= 3 && chosen.iter().all(|count| *count <= 30), "{chosen:?}");
    }
    assert!(disagreements >= 10, "{disagreements}");
}

#[test]
fn head_is_zero_beyond_the_text_tokens() {
    let cache = Scratch::new();
    let (tensors, config) = open(&make("tiny,vocab=700", cache.path()).0);
    let head = tensors.lm_head.as_bf16().unwrap();
    for (id, row) in head.chunks(config.hidden_size).enumerate() {
        assert_eq!(row.iter().all(|v| v.to_f32() == 0.0), id >= 512, "row {id}");
    }
    assert_eq!(tensors.lm_head.shape(), [700, 384]);
}
