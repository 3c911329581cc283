// SPDX-License-Identifier: MIT OR Apache-2.0

//! Golden parity at every level of this machine and on the software models of AVX-512, and that the comparison can fail.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use cpu_tiles::{Isa, Level, Pool, Precision};
use model_minimax::bench::Arm;
use model_minimax::config::Variant;
use model_minimax::model::parity::{Figure, ParityError, ParityOptions, ParityReport, run};
use model_minimax::model::{AttentionMode, HeadReduce, LoadMode, PREFILL_CHUNK};
use op_testkit::golden;
use op_testkit::safetensors::{Dtype, Safetensors, SafetensorsBuilder};

use crate::scratch::Scratch;

const MODELS: [&str; 4] = ["m27-tiny-bf16", "m27-tiny-fp8", "m3-tiny-bf16", "m3-tiny-mxfp8"];

fn options(level: Level) -> ParityOptions {
    ParityOptions {
        level,
        pool: Arc::new(Pool::new(1).unwrap()),
        load_mode: LoadMode::Pack,
        arm: Arm::Fused,
        attention: AttentionMode::Msa(HeadReduce::PerKvHead),
        prefill_chunk: PREFILL_CHUNK,
        variant: None,
    }
}

fn figure<'a>(report: &'a ParityReport, model: &str, precision: Precision, kind: &str) -> &'a Figure {
    let wanted = |figure: &&Figure| figure.model == model && figure.precision == precision && figure.kind == kind;
    report.figures.iter().find(wanted).unwrap_or_else(|| panic!("no {kind} of {model} in\n{report}"))
}

/// Kinds of tensors that are compared in F32, with their number for a model: there are three prompts, `layers` layers of
/// which `moe` have experts and sparse attention, if it is a model that has one.
fn kinds(model: &str) -> Vec<(&'static str, usize)> {
    let (layers, moe, msa) = if model.starts_with("m3") { (5, 2, true) } else { (2, 2, false) };
    let mut kinds = vec![
        ("embeddings", 1),
        ("hidden", 3 * layers),
        // All layers of the prompt `mini`, of the others those with sparse attention.
        ("attn_out", layers + if msa { 2 * moe } else { 0 }),
        ("router_logits", 3 * moe),
        ("router_margin", 3 * moe),
        ("topk_ids", 3 * moe),
        ("topk_weights", 3 * moe),
        ("final_norm", 1),
        ("logits", 3),
        ("greedy_ids", 3),
        ("greedy_margin", 3),
    ];
    if msa {
        kinds.extend(["msa_blocks", "msa_block_scores", "msa_margin", "greedy_msa_blocks"].map(|kind| (kind, 3 * moe)));
    }
    kinds
}

#[test]
fn every_level_reproduces_the_golden_models() {
    for level in Level::available() {
        let report = run(&golden::dir(), &options(level)).unwrap();
        assert!(report.passed(), "{report}");
        for model in MODELS {
            for (kind, tensors) in kinds(model) {
                let figure = figure(&report, model, Precision::F32, kind);
                let limit = match kind {
                    "topk_ids" | "greedy_ids" | "msa_blocks" | "greedy_msa_blocks" => 0.0,
                    "msa_block_scores" | "msa_margin" => 5e-4,
                    _ => 2e-4,
                };
                assert_eq!((figure.tensors, figure.limit), (tensors, limit), "{figure:?}");
            }
            for (kind, limit) in [("logits", 0.25), ("logits (mean)", 0.05), ("greedy_ids", 0.0)] {
                assert_eq!(figure(&report, model, Precision::Bf16, kind).limit, limit);
            }
        }
        // Nothing is left out for another reason than being of another kind.
        let skipped: Vec<&str> = report.skipped.iter().map(|(what, _)| what.as_str()).collect();
        let expected = [
            "m27-tiny-bf16 bf16.*",
            "m27-tiny-fp8 bf16w.*",
            "m27-tiny-fp8 bf16.*",
            "m3-tiny-bf16 bf16.*",
            "m3-tiny-mxfp8 bf16.*",
        ];
        assert_eq!(skipped, expected);
    }
}

#[test]
fn software_models_of_levels_reproduce_the_golden_models_too() {
    // They stand in for the levels that this machine lacks, and are tried on any. The long prompts would take them minutes.
    let scratch = Scratch::new();
    for model in MODELS {
        let to = scratch.path().join(model);
        std::fs::create_dir(&to).unwrap();
        copy_model(model, &to, |expected, names| {
            names.iter().filter(|name| name.starts_with("long.")).for_each(|name| assert!(expected.remove(name)));
        });
    }
    for level in Isa::ALL.into_iter().filter_map(Level::emulated) {
        let report = run(scratch.path(), &options(level)).unwrap();
        assert!(report.passed(), "{report}");
        for model in MODELS {
            assert_eq!(figure(&report, model, Precision::F32, "logits").tensors, 2);
        }
    }
}

#[test]
fn mapped_weights_the_eager_arm_and_short_chunks_reproduce_them_too() {
    let options = ParityOptions {
        load_mode: LoadMode::Mmap,
        arm: Arm::Eager,
        prefill_chunk: NonZeroUsize::new(100).unwrap(),
        ..options(Level::best())
    };
    let report = run(&golden::dir().join("models"), &options).unwrap();
    assert!(report.passed(), "{report}");
}

/// Whether a kind of tensor fails, and where it is worst.
fn failure<'a>(report: &'a ParityReport, model: &str, kind: &str) -> Option<&'a str> {
    let figure = figure(report, model, Precision::F32, kind);
    (!figure.passed()).then_some(figure.at.as_str())
}

#[test]
fn dense_attention_is_not_sparse_attention() {
    // What proves that the comparison sees the sparse attention: where blocks are dropped, everything behind differs.
    let options =
        ParityOptions { attention: AttentionMode::Dense, variant: Some(Variant::M3), ..options(Level::best()) };
    let report = run(&golden::dir(), &options).unwrap();
    assert!(!report.passed());
    for model in &MODELS[2..] {
        for kind in ["hidden", "attn_out", "logits", "greedy_ids", "topk_ids"] {
            assert!(
                failure(&report, model, kind).is_some_and(|at| at.starts_with("long.")),
                "{model} {kind}\n{report}"
            );
        }
        // The prompts that drop nothing are all right, in BF16 too.
        assert!(figure(&report, model, Precision::Bf16, "logits").passed());
        assert_eq!(failure(&report, model, "final_norm"), None);
        let dense = (format!("{model} *.msa_blocks"), "attention is dense".to_owned());
        assert!(report.skipped.contains(&dense), "{report}");
    }
    assert!(
        report.skipped.iter().any(|(what, reason)| what == MODELS[0] && reason.contains("asked for was MiniMax-M3"))
    );
}

#[test]
fn one_choice_for_all_heads_is_another_choice() {
    let options = ParityOptions {
        attention: AttentionMode::Msa(HeadReduce::Shared),
        variant: Some(Variant::M3),
        ..options(Level::best())
    };
    let report = run(&golden::dir(), &options).unwrap();
    for model in &MODELS[2..] {
        for kind in ["msa_blocks", "greedy_msa_blocks", "logits", "greedy_ids"] {
            assert!(
                failure(&report, model, kind).is_some_and(|at| at.starts_with("long.")),
                "{model} {kind}\n{report}"
            );
        }
    }
}

/// A copy of a golden model whose expected results, whose names are passed too, may be changed.
fn copy_model(model: &str, to: &Path, change: impl FnOnce(&mut SafetensorsBuilder, &[String])) {
    let source = golden::dir().join("models").join(model);
    for entry in std::fs::read_dir(&source).unwrap() {
        let name = entry.unwrap().file_name();
        if ["config.json", "model"].iter().any(|start| name.to_string_lossy().starts_with(start)) {
            std::fs::copy(source.join(&name), to.join(&name)).unwrap();
        }
    }
    let expected = Safetensors::open(source.join("expected.safetensors")).unwrap();
    let names: Vec<String> = expected.names().map(str::to_owned).collect();
    let mut expected = expected.to_builder();
    change(&mut expected, &names);
    expected.write(to.join("expected.safetensors")).unwrap();
}

/// A copy of one of them that is the whole golden data.
pub(crate) fn copy(scratch: &Scratch, change: impl FnOnce(&mut SafetensorsBuilder)) {
    copy_model(MODELS[0], scratch.path(), |expected, _| change(expected));
}

#[test]
fn wrong_results_are_found() {
    let scratch = Scratch::new();
    copy(&scratch, |expected| {
        let golden = golden::open("models/m27-tiny-bf16/expected.safetensors").unwrap();
        let mut ids = golden.tensor("short.greedy_ids").unwrap().i64().unwrap();
        ids[20] += 1;
        expected.add("short.greedy_ids", Dtype::I64, &[24], &ids[..]);
        let mut norm = golden.tensor("mini.final_norm").unwrap().f32().unwrap();
        norm[700] = f32::NAN;
        expected.add("mini.final_norm", Dtype::F32, &[10, 128], &norm[..]);
        let mut hidden = golden.tensor("long.layer1.hidden").unwrap().f32().unwrap();
        hidden[5] += 3e-4;
        expected.add("long.layer1.hidden", Dtype::F32, &[5, 128], &hidden[..]);
        expected.add("mini.embeddings", Dtype::F32, &[], &[0.0_f32][..]);
        expected.add("mini.surprise", Dtype::F32, &[1], &[0.0_f32][..]);
    });
    let report = run(scratch.path(), &options(Level::best())).unwrap();
    assert!(!report.passed());
    let model = &report.figures[0].model;
    let failed: Vec<_> = report.figures.iter().filter(|figure| !figure.passed()).collect();
    assert_eq!(failed.len(), 4, "{report}");
    let greedy = figure(&report, model, Precision::F32, "greedy_ids");
    assert_eq!((greedy.worst, greedy.at.as_str()), (1.0, "short.greedy_ids"));
    for kind in ["final_norm", "embeddings"] {
        assert_eq!(figure(&report, model, Precision::F32, kind).worst, f32::INFINITY);
    }
    let hidden = figure(&report, model, Precision::F32, "hidden");
    assert!((2.8e-4..3.2e-4).contains(&hidden.worst) && hidden.at == "long.layer1.hidden", "{hidden:?}");
    assert!(report.skipped.iter().any(|(what, reason)| what.ends_with("mini.surprise") && reason == "not computed"));
    assert!(report.to_string().contains("FAIL short.greedy_ids"), "{report}");
}

#[test]
fn unusable_golden_data_is_an_error() {
    let run = |dir: &Path| run(dir, &options(Level::best())).unwrap_err();
    let scratch = Scratch::new();
    assert!(matches!(run(&scratch.path().join("absent")), ParityError::List { .. }));
    assert!(matches!(run(scratch.path()), ParityError::Nothing { .. }));
    copy(&scratch, |expected| assert!(expected.remove("mini.logits")));
    let error = run(scratch.path());
    assert!(error.to_string().ends_with("expected.safetensors has no tensor mini.logits"), "{error}");
    copy(&scratch, |expected| _ = expected.add("mini.logits", Dtype::U8, &[1], &[0_u8][..]));
    let error = run(scratch.path());
    assert!(error.to_string().ends_with("should hold mini.logits as F32, I32 or I64, found U8"), "{error}");
    scratch.write("expected.safetensors", "");
    let error = run(scratch.path());
    assert!(error.to_string().contains("expected.safetensors is truncated"), "{error}");
}
