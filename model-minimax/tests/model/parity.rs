// SPDX-License-Identifier: MIT OR Apache-2.0

//! Golden parity at every level of this machine and on the software models of AVX-512, and that the comparison can fail.

use std::path::Path;
use std::sync::Arc;

use cpu_tiles::{Isa, Level, Pool, Precision};
use model_minimax::bench::Arm;
use model_minimax::model::LoadMode;
use model_minimax::model::parity::{Figure, ParityError, ParityOptions, ParityReport, run};
use op_testkit::golden;
use op_testkit::safetensors::{Dtype, Safetensors, SafetensorsBuilder};

use crate::scratch::Scratch;

fn options(level: Level) -> ParityOptions {
    ParityOptions { level, pool: Arc::new(Pool::new(2).unwrap()), load_mode: LoadMode::Pack, arm: Arm::Fused }
}

fn figure<'a>(report: &'a ParityReport, model: &str, precision: Precision, kind: &str) -> &'a Figure {
    let wanted = |figure: &&Figure| figure.model == model && figure.precision == precision && figure.kind == kind;
    report.figures.iter().find(wanted).unwrap_or_else(|| panic!("no {kind} of {model} in\n{report}"))
}

#[test]
fn every_level_reproduces_the_golden_models() {
    // Software models stand in for the AVX-512 levels that this machine lacks, and are tried on any.
    for level in Level::available().into_iter().chain(Isa::ALL.into_iter().filter_map(Level::emulated)) {
        let report = run(&golden::dir(), &options(level)).unwrap();
        assert!(report.passed(), "{report}");
        for model in ["m27-tiny-bf16", "m27-tiny-fp8"] {
            // Kind and number of tensors: three prompts, two layers.
            for (kind, tensors) in [
                ("embeddings", 1),
                ("hidden", 6),
                ("attn_out", 2),
                ("router_logits", 6),
                ("router_margin", 6),
                ("topk_ids", 6),
                ("topk_weights", 6),
                ("final_norm", 1),
                ("logits", 3),
                ("greedy_ids", 3),
                ("greedy_margin", 3),
            ] {
                let figure = figure(&report, model, Precision::F32, kind);
                let limit = if kind.ends_with("_ids") { 0.0 } else { 2e-4 };
                assert_eq!((figure.tensors, figure.limit), (tensors, limit), "{figure:?}");
            }
            for (kind, limit) in [("logits", 0.25), ("logits (mean)", 0.05), ("greedy_ids", 0.0)] {
                assert_eq!(figure(&report, model, Precision::Bf16, kind).limit, limit);
            }
        }
        // Nothing is left out for another reason than being of another kind.
        let skipped: Vec<&str> = report.skipped.iter().map(|(what, _)| what.as_str()).collect();
        let expected =
            ["m27-tiny-bf16 bf16.*", "m27-tiny-fp8 bf16w.*", "m27-tiny-fp8 bf16.*", "m3-tiny-bf16", "m3-tiny-mxfp8"];
        assert_eq!(skipped, expected);
    }
}

#[test]
fn mapped_weights_and_the_eager_arm_reproduce_them_too() {
    let options = ParityOptions { load_mode: LoadMode::Mmap, arm: Arm::Eager, ..options(Level::best()) };
    let report = run(&golden::dir().join("models"), &options).unwrap();
    assert!(report.passed(), "{report}");
}

/// A copy of a golden model whose expected results may be changed.
pub(crate) fn copy(scratch: &Scratch, change: impl FnOnce(&mut SafetensorsBuilder)) {
    let source = golden::dir().join("models/m27-tiny-bf16");
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(source.join(file), scratch.path().join(file)).unwrap();
    }
    let mut expected = Safetensors::open(source.join("expected.safetensors")).unwrap().to_builder();
    change(&mut expected);
    expected.write(scratch.path().join("expected.safetensors")).unwrap();
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
