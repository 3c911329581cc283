// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two models side by side: what agrees, what differs, where it is found, and that it can be run again.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cpu_tiles::{Isa, Level, Pool, Precision};
use model_minimax::bench::{Arm, BenchDecoder};
use model_minimax::checkpoint::{Checkpoint, Dtype};
use model_minimax::config::ModelConfig;
use model_minimax::model::verify::{
    BF16_TOLERANCE, Compared, Difference, EXACT, F32_TOLERANCE, Record, Stage, VerifyError, VerifyOptions, replay,
    verify,
};
use model_minimax::model::{AttentionMode, LoadMode, LoadOptions, Model};
use op_testkit::golden;
use serde_json::Value;

use crate::scratch::Scratch;

const MODELS: [&str; 4] = ["m27-tiny-bf16", "m27-tiny-fp8", "m3-tiny-bf16", "m3-tiny-mxfp8"];

fn folder(model: &str) -> PathBuf {
    golden::dir().join("models").join(model)
}

fn options() -> LoadOptions {
    let pool = Arc::new(Pool::new(1).unwrap());
    LoadOptions { precision: Precision::F32, load_mode: LoadMode::Mmap, ..LoadOptions::new(Level::best(), pool) }
}

fn load(dir: &Path, options: &LoadOptions) -> Model {
    Model::load(&Checkpoint::open(dir).unwrap(), &ModelConfig::load(dir).unwrap(), options, |_, _| ()).unwrap()
}

/// Long enough for M3 to drop blocks.
fn ids(count: usize) -> Vec<u32> {
    (0..count as u32).map(|i| (i * 31 + i / 7 * 13) % 500).collect()
}

fn compare(a: &mut Model, b: &mut Model, ids: &[u32], tolerance: f32) -> (Option<Difference>, Vec<Compared>) {
    let mut compared = Vec::new();
    let options = VerifyOptions { tolerance, checkpoints: None };
    let difference = verify(a, b, ids, options, |tensor| compared.push(tensor)).unwrap();
    (difference, compared)
}

/// Copies a checkpoint folder.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Flips `bits` of the last byte of element `index` of a tensor, and nothing else.
pub(crate) fn plant(dir: &Path, tensor: &str, index: usize, bits: u8) {
    let checkpoint = Checkpoint::open(dir).unwrap();
    let found = checkpoint.tensor(tensor).unwrap_or_else(|| panic!("no {tensor}"));
    let (path, size) = (dir.join(found.file()), found.dtype().bits() / 8);
    drop(checkpoint);
    let mut file = fs::read(&path).unwrap();
    let header_len = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&file[8..8 + header_len]).unwrap();
    let begin = header[tensor]["data_offsets"][0].as_u64().unwrap() as usize;
    file[8 + header_len + begin + (index + 1) * size - 1] ^= bits;
    // A new file: the old one may be mapped by somebody.
    fs::remove_file(&path).unwrap();
    fs::write(&path, file).unwrap();
}

#[test]
fn threads_loading_and_cuts_change_nothing_and_levels_and_arms_little() {
    for model in MODELS {
        let dir = folder(model);
        let mut a = load(&dir, &options());
        let mut b =
            load(&dir, &LoadOptions { load_mode: LoadMode::Pack, pool: Arc::new(Pool::new(3).unwrap()), ..options() });
        let (difference, compared) = compare(&mut a, &mut b, &ids(300), EXACT);
        assert_eq!(difference, None, "{model}");
        assert!(compared.iter().all(|tensor| tensor.worst == 0.0 && tensor.near_ties == 0));
        // Every layer has both stages, and every stage that has choices shows them.
        let layers = a.config().num_hidden_layers;
        let named = |name: &str| compared.iter().filter(|tensor| tensor.tensor == name).count();
        let (moe, msa) = if model.starts_with("m3") { (2, 2) } else { (2, 0) };
        let counts = ["embeddings", "attn_out", "ffn_out", "topk_ids", "msa_blocks", "final_norm", "logits"].map(named);
        assert_eq!(counts, [1, layers, layers, moe, msa, 1, 1], "{model}");

        // Another order of summation: close, and not the same.
        let mut scalar = load(&dir, &LoadOptions { level: Level::new(Isa::Scalar).unwrap(), ..options() });
        let (difference, compared) = compare(&mut a, &mut scalar, &ids(300), F32_TOLERANCE);
        assert_eq!(difference, None, "{model}");
        let worst = compared.iter().map(|tensor| tensor.worst).fold(0.0, f32::max);
        assert!(Level::best().isa() == Isa::Scalar || worst > 0.0, "{model}");
        a.set_arm(Arm::Eager);
        scalar.set_arm(Arm::Fused);
        assert_eq!(compare(&mut a, &mut scalar, &ids(20), F32_TOLERANCE).0, None, "{model}");
        // BF16 against F32, from the same inputs at every stage.
        let mut rounded = load(&dir, &LoadOptions { precision: Precision::Bf16, ..options() });
        let (difference, compared) = compare(&mut a, &mut rounded, &ids(300), BF16_TOLERANCE);
        assert_eq!(difference, None, "{model}");
        let worst = compared.iter().map(|tensor| tensor.worst).fold(0.0, f32::max);
        assert!(worst > 1e-4, "{model}: {worst}");
        assert!(compare(&mut a, &mut rounded, &ids(20), F32_TOLERANCE).0.is_some(), "{model}");
    }
}

#[test]
fn a_single_planted_weight_is_found_and_named() {
    // Tensor, stage, tensor that shows it (if any does), with the prefix of the language model in front.
    type Case = (&'static str, &'static str, Stage, Option<&'static str>);
    let cases: [Case; 7] = [
        ("m27-tiny-bf16", "model.layers.1.self_attn.k_proj.weight", Stage::Attention(1), Some("attn_out")),
        ("m27-tiny-fp8", "model.layers.0.block_sparse_moe.gate.weight", Stage::Ffn(0), Some("router_logits")),
        ("m27-tiny-fp8", "model.layers.1.block_sparse_moe.experts.3.w2.weight_scale_inv", Stage::Ffn(1), None),
        ("m3-tiny-bf16", "model.layers.4.self_attn.index_q_proj.weight", Stage::Attention(4), Some("msa_block_scores")),
        ("m3-tiny-mxfp8", "model.layers.2.mlp.up_proj.weight", Stage::Ffn(2), Some("ffn_out")),
        (
            "m3-tiny-mxfp8",
            "model.layers.3.block_sparse_moe.shared_experts.down_proj.weight",
            Stage::Ffn(3),
            Some("ffn_out"),
        ),
        ("m3-tiny-bf16", "model.norm.weight", Stage::Head, Some("final_norm")),
    ];
    for (model, tensor, stage, shown_by) in cases {
        let dir = folder(model);
        let scratch = Scratch::new();
        copy_folder(&dir, scratch.path());
        let tensor = format!("{}{tensor}", ModelConfig::load(&dir).unwrap().tensor_prefix);
        // A scale of this size stands alone.
        let index = if tensor.ends_with("_scale_inv") { 0 } else { 5 };
        plant(scratch.path(), &tensor, index, 0x02);
        let checkpoints = [dir.as_path(), scratch.path()].map(|dir| Checkpoint::open(dir).unwrap());
        let [mut a, mut b] = [dir.as_path(), scratch.path()].map(|dir| load(dir, &options()));
        let mut compared = Vec::new();
        let options = VerifyOptions { tolerance: EXACT, checkpoints: Some([&checkpoints[0], &checkpoints[1]]) };
        let difference = verify(&mut a, &mut b, &ids(40), options, |tensor| compared.push(tensor)).unwrap();
        let difference = difference.unwrap_or_else(|| panic!("{model} {tensor} was not found"));
        assert_eq!(difference.record.stage, stage, "{tensor}");
        assert!(compared.iter().all(|tensor| tensor.worst == 0.0));
        let [weight] = difference.weights.as_slice() else { panic!("{:?}", difference.weights) };
        assert_eq!((weight.name.as_str(), weight.elements), (tensor.as_str(), 1));
        assert_eq!(*weight.index.last().unwrap(), index);
        assert_ne!(weight.a, weight.b);
        if let Some(shown_by) = shown_by {
            assert_eq!(difference.activation.as_ref().unwrap().tensor, shown_by, "{tensor}");
        }
        let text = difference.to_string();
        assert!(text.contains(&stage.to_string()) && text.contains(&format!("{tensor}: 1 of ")), "{text}");
        // Without the weights it is found where a result shows it.
        let (again, _) = compare(&mut a, &mut b, &ids(40), EXACT);
        if shown_by.is_some() {
            assert_eq!(again.unwrap().record.stage, stage);
        }
    }
}

#[test]
fn what_was_recorded_can_be_run_again() {
    let dir = folder("m3-tiny-bf16");
    let scratch = Scratch::new();
    let copy = scratch.path().join("copy");
    copy_folder(&dir, &copy);
    plant(&copy, "language_model.model.layers.1.self_attn.o_proj.weight", 1000, 0x40);
    let [mut a, mut b] = [&dir, &copy].map(|dir| load(dir, &options()));
    let difference = compare(&mut a, &mut b, &ids(30), F32_TOLERANCE).0.unwrap();
    let activation = difference.activation.clone().unwrap();
    assert_eq!((difference.record.stage, activation.tensor.as_str()), (Stage::Attention(1), "attn_out"));
    // One weight of a row: one output of each token, [1000 / columns].
    let histogram = activation.histogram.unwrap();
    assert_eq!((histogram.format, histogram.not_a_number), (Dtype::F32, 0));
    assert_eq!(histogram.counts.iter().sum::<usize>(), activation.shape.iter().product::<usize>());
    assert_eq!(histogram.counts[1..].iter().sum::<usize>(), 30);
    assert_eq!(activation.index[1], 1000 / a.config().q_size());

    let path = scratch.path().join("bundle.safetensors");
    let sides = [vec!["--level=x".to_owned()], vec!["--dtype=f32".to_owned(), "--arm=eager".to_owned()]];
    difference.record.write(&path, &sides, 0.25).unwrap();
    let (record, read_sides, tolerance) = Record::read(&path).unwrap();
    assert_eq!((&record, &read_sides, tolerance), (&difference.record, &sides, 0.25));
    // The models have since run something else.
    compare(&mut b, &mut a, &ids(7), EXACT);
    let again = replay(&record, &mut a, &mut b, F32_TOLERANCE).unwrap();
    assert!(again.a_as_recorded && again.b_as_recorded);
    assert_eq!(again.difference, difference.activation);
    // With the right weights on both sides the difference is gone, and that side is not as recorded.
    let mut right = load(&dir, &options());
    let again = replay(&record, &mut a, &mut right, EXACT).unwrap();
    assert!(again.a_as_recorded && !again.b_as_recorded && again.difference.is_none());

    let cut = load(&dir, &options());
    let config = ModelConfig::load(&dir).unwrap().with_max_layers(1).unwrap();
    let mut one = Model::load(&Checkpoint::open(&dir).unwrap(), &config, &options(), |_, _| ()).unwrap();
    let mut other_one = Model::load(&Checkpoint::open(&dir).unwrap(), &config, &options(), |_, _| ()).unwrap();
    let error = replay(&record, &mut one, &mut other_one, EXACT).unwrap_err();
    assert!(matches!(error, VerifyError::BundleOfOther { .. }) && error.to_string().contains("layer 1"), "{error}");
    let error = verify(&mut one, &mut { cut }, &[1], VerifyOptions { tolerance: EXACT, checkpoints: None }, |_| ());
    let error = error.unwrap_err().to_string();
    assert!(error.contains("num_hidden_layers (with --max-layers) is 1 in the first and 5 in the second"), "{error}");
}

#[test]
fn models_and_bundles_that_do_not_fit_are_refused() {
    let [mut a, mut b] = ["m27-tiny-bf16", "m3-tiny-bf16"].map(|model| load(&folder(model), &options()));
    let options_of = VerifyOptions { tolerance: EXACT, checkpoints: None };
    let error = verify(&mut a, &mut b, &[1], options_of, |_| ()).unwrap_err();
    assert!(error.to_string().contains("the model is MiniMax-M2.7 in the first and MiniMax-M3"), "{error}");
    let mut same = load(&folder("m27-tiny-bf16"), &options());
    let error = verify(&mut a, &mut same, &[1, 576], options_of, |_| ()).unwrap_err();
    assert_eq!(error.to_string(), "side a: token id 576 is outside the vocabulary of 576 tokens");
    assert!(verify(&mut a, &mut same, &[], options_of, |_| ()).is_err());
    // Sparse attention shows scores of blocks, dense attention does not.
    let mut dense = load(&folder("m3-tiny-bf16"), &LoadOptions { attention: AttentionMode::Dense, ..options() });
    let difference = compare(&mut b, &mut dense, &ids(4), F32_TOLERANCE).0.unwrap();
    assert_eq!(difference.record.stage, Stage::Attention(3));

    let scratch = Scratch::new();
    let read = |path: PathBuf| Record::read(&path).unwrap_err().to_string();
    assert!(read(scratch.write("a.safetensors", "hello")).contains("is truncated"));
    assert!(read(scratch.path().join("absent")).contains("absent: cannot be read"));
    assert!(read(folder("m27-tiny-bf16").join("model.safetensors")).contains("is no bundle of verify"));
}
