// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::path::PathBuf;

use model_minimax::bench::{Arm, ArmRun, Bound, Machine, Measured, Report, SCHEMA, Sample, Setup, Spread, table};
use model_minimax::plan::Work;

pub(crate) fn setup() -> Setup {
    Setup {
        model: "MiniMax-M2.7".to_owned(),
        device: "cpu".to_owned(),
        layers: 4,
        moe_layers: 4,
        warmup: 1,
        model_load_s: 1.23456,
        prompt_len: 20,
        max_new_tokens: 11,
        peak_memory_bytes: 1_500_000_000,
        model_path: PathBuf::from("some/folder"),
        synthetic: Some("slice".to_owned()),
        dtype: "bf16".to_owned(),
        load: "auto".to_owned(),
        attention: Some("msa".to_owned()),
        indexer: None,
        prefill_chunk: 2048,
        decode_bytes_per_step: 2_000_000_000,
        decode_flop_per_step: 4_000_000_000,
        prefill_work: Work { bytes: 3_000_000_000, flop: 80_000_000_000 },
        peak_flop_per_s: 100e9,
        own_process: false,
        order: "interleaved".to_owned(),
        knobs: BTreeMap::from([("RAYON_NUM_THREADS".to_owned(), "2".to_owned())]),
        machine: Machine::detect("avx2", 2),
    }
}

const BOTH: [Arm; 2] = [Arm::Eager, Arm::Fused];

/// Eager decodes 10 tokens in 2, 4 and 5 seconds, fused in half of that; prefill takes 1 second or half of it.
pub(crate) fn measured(arms: &[Arm]) -> Measured {
    let run = |&arm: &Arm| {
        let scale = if arm == Arm::Eager { 1.0 } else { 0.5 };
        // The full generation's own prefill takes a little longer than the separate one.
        let sample = |decode: f64| Sample {
            prefill_s: scale,
            first_token_s: scale * 1.25,
            total_s: scale * (1.25 + decode),
            gen_tokens: 11,
        };
        ArmRun { arm, samples: [2.0, 4.0, 5.0].map(sample).to_vec() }
    };
    Measured { runs: arms.iter().map(run).collect(), read_bytes_per_s: vec![40e9, 20e9, 10e9] }
}

fn reports(arms: &[Arm]) -> Vec<Report> {
    Report::all(&setup(), &measured(arms))
}

/// Names of an object in the order in which the text has them, one level deep.
fn keys(json: &str, indent: usize) -> Vec<String> {
    let start = format!("{}\"", " ".repeat(indent));
    json.lines().filter_map(|line| Some(line.strip_prefix(&start)?.split_once("\":")?.0.to_owned())).collect()
}

#[test]
fn the_published_fields_come_first_and_in_their_order() {
    let json = Report::json(&reports(&[Arm::Fused])).unwrap();
    let published = [
        "model",
        "mode",
        "device",
        "layers",
        "moe_patched",
        "warmup",
        "iters",
        "model_load_s",
        "prompt_len",
        "max_new_tokens",
        "gen_tokens",
        "peak_mem_mb",
        "prefill_time_s",
        "decode_time_s",
        "total_time_s",
        "prefill_tps_mean",
        "prefill_tps_std",
        "decode_tps_mean",
        "decode_tps_std",
        "e2e_tps_mean",
        "e2e_tps_std",
    ];
    let added = [
        "schema",
        "model_path",
        "synthetic",
        "synthetic_spec",
        "dtype",
        "load",
        "attention",
        "indexer",
        "prefill_chunk",
        "prefill_tps_median",
        "decode_tps_median",
        "e2e_tps_median",
        "decode_bytes_per_step",
        "decode_gb_per_s",
        "read_gb_per_s",
        "decode_share_of_read",
        "fused_over_eager",
        "own_process",
        "order",
        "roofline",
        "stats",
        "samples",
        "activity",
        "knobs",
        "machine",
    ];
    assert_eq!(keys(&json, 2), [published.as_slice(), &added].concat());
    let machine = [
        "cpu",
        "flags",
        "physical_cores",
        "logical_cores",
        "memory_bytes",
        "os",
        "arch",
        "level",
        "threads",
        "rustc",
        "commit",
    ];
    let nested = keys(&json, 4);
    assert_eq!(nested[nested.len() - machine.len()..], machine);
    assert!(json.ends_with("}\n"));
}

#[test]
fn values_and_rounding() {
    let json: serde_json::Value = serde_json::from_str(&Report::json(&reports(&BOTH)).unwrap()).unwrap();
    let (eager, fused) = (&json[0], &json[1]);
    let expected = serde_json::json!({
        "model": "MiniMax-M2.7", "mode": "eager", "device": "cpu", "layers": 4, "moe_patched": 0, "warmup": 1, "iters": 3,
        "model_load_s": 1.23, "prompt_len": 20, "max_new_tokens": 11, "gen_tokens": [11, 11, 11], "peak_mem_mb": 1430.5,
        "prefill_time_s": [1.0, 0.0],
        // Sample standard deviations, n - 1, of 2.25, 4.25, 5.25 (less the separate prefill) and of 3.25, 5.25, 6.25.
        "decode_time_s": [3.917, 1.528], "total_time_s": [4.917, 1.528],
        "prefill_tps_mean": 20.0, "prefill_tps_std": 0.0,
        // 10 tokens in 2.25, 4.25, 5.25 s: 4.444, 2.353, 1.905 tok/s; 11 tokens in 3.25, 5.25, 6.25 s: 3.385, 2.095, 1.76.
        "decode_tps_mean": 2.901, "decode_tps_std": 1.356, "e2e_tps_mean": 2.413, "e2e_tps_std": 0.858,
        "schema": SCHEMA, "model_path": "some/folder", "synthetic": true, "synthetic_spec": "slice", "dtype": "bf16",
        "load": "auto", "attention": "msa", "indexer": null, "prefill_chunk": 2048, "prefill_tps_median": 20.0,
        // Within the full generation: 10 tokens in 2, 4, 5 s.
        "decode_tps_median": 2.5, "e2e_tps_median": 2.095,
        // Two gigabytes per step at 2.5 steps per second, against the median of three probes.
        "decode_bytes_per_step": 2_000_000_000u64, "decode_gb_per_s": 5.0, "read_gb_per_s": 20.0,
        "decode_share_of_read": 0.25, "fused_over_eager": { "prefill": 2.0, "decode": 2.0, "e2e": 2.0 },
    });
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&eager[field], value, "{field}");
    }
    assert_eq!((&fused["mode"], &fused["moe_patched"]), (&"fused".into(), &4.into()));
    assert_eq!(fused["decode_tps_mean"], 5.801);
    assert_eq!(
        fused["samples"][1],
        serde_json::json!({ "prefill_s": 0.5, "first_token_s": 0.625, "total_s": 2.625, "gen_tokens": 11 })
    );
    // 20 GB/s read and 100 GFLOP/s at most. The prompt: 3 GB and 80 GFLOP in 1 s; a token: 2 GB and 4 GFLOP in 0.4 s.
    let share = |phase: &str| eager["roofline"][phase].clone();
    assert_eq!((&share("prefill")["of_read"], &share("prefill")["of_peak"]), (&0.15.into(), &0.8.into()));
    assert_eq!((&share("decode")["of_read"], &share("decode")["of_peak"]), (&0.25.into(), &0.1.into()));
    assert_eq!((&share("prefill")["bound"], &share("decode")["bound"]), (&"compute".into(), &"memory".into()));
    assert_eq!(eager["roofline"]["limits"], serde_json::json!({ "read_gb_per_s": 20.0, "gflop_per_s": 100.0 }));
    // Decode rates of 5, 2.5 and 2 tok/s.
    let stats = &eager["stats"]["decode_tps"];
    assert_eq!(
        (&stats["n"], &stats["p50"], &stats["min"], &stats["max"]),
        (&3.into(), &2.5.into(), &2.0.into(), &5.0.into())
    );
    assert_eq!((stats["p5"].as_f64().unwrap() * 100.0).round(), 205.0);
    assert_eq!(fused["knobs"], serde_json::json!({ "RAYON_NUM_THREADS": "2" }));
    assert_eq!((&fused["machine"]["level"], &fused["machine"]["threads"]), (&"avx2".into(), &2.into()));
}

#[test]
fn one_arm_is_an_object_without_ratio_and_several_are_a_list() {
    let alone: serde_json::Value = serde_json::from_str(&Report::json(&reports(&[Arm::Eager])).unwrap()).unwrap();
    assert!(alone.is_object() && alone["fused_over_eager"].is_null());
    let real = Setup { synthetic: None, ..setup() };
    let report = &Report::all(&real, &measured(&[Arm::Eager]))[0];
    assert!(!report.synthetic && report.synthetic_spec.is_none());
    let both: serde_json::Value = serde_json::from_str(&Report::json(&reports(&BOTH)).unwrap()).unwrap();
    assert_eq!(both.as_array().map(Vec::len), Some(2));
}

#[test]
fn the_table() {
    let expected = "\
arm             prefill    decode       e2e (tok/s)  TTFT (s)
-------------------------------------------------------------
eager              20.0       2.5       2.1             1.000
fused              40.0       5.0       4.2             0.500
vecgraph      (skipped)
fusedgraph    (skipped)
fused / eager: prefill 2.00x, decode 2.00x (medians 5.0 / 2.5 tok/s)
limits: 20.0 GB/s read, 100 GFLOP/s
arm          phase            MB     GFLOP  of read  of peak  bound
eager        prompt       3000.0     80.00     15 %     80 %  compute
eager        token        2000.0      4.00     25 %     10 %  memory
fused        prompt       3000.0     80.00     30 %    160 %  compute
fused        token        2000.0      4.00     50 %     20 %  memory
";
    assert_eq!(table(&reports(&BOTH)), expected);
    let alone = table(&reports(&[Arm::Fused]));
    assert!(alone.contains("\neager         (skipped)\nfused ") && !alone.contains("fused / eager"), "{alone}");
    let graphs = table(&reports(&[Arm::VecGraph, Arm::FusedGraph]));
    assert!(graphs.contains("\nfusedgraph / vecgraph: decode 1.00x (medians 5.0 / 5.0 tok/s)\n"), "{graphs}");
}

#[test]
fn what_uses_neither_memory_nor_multiply_units_is_overhead() {
    let slow = Setup { peak_flop_per_s: 1e15, decode_bytes_per_step: 1_000_000, ..setup() };
    let reports = Report::all(&slow, &measured(&[Arm::Eager]));
    assert_eq!(reports[0].roofline.decode.map(|share| share.bound), Some(Bound::Overhead));
}

#[test]
fn reports_are_read_back_as_they_were() {
    let written = reports(&BOTH);
    let read: Vec<Report> = serde_json::from_str(&Report::json(&written).unwrap()).unwrap();
    assert_eq!(read, written);
    // Those of one arm each, as processes hand them over, are related afterwards.
    let mut apart: Vec<Report> = BOTH.iter().flat_map(|&arm| reports(&[arm])).collect();
    assert!(apart.iter().all(|report| report.fused_over_eager.is_none()));
    Report::relate(&mut apart);
    assert_eq!(apart, written);
}

#[test]
fn a_generation_of_one_token_has_no_decode_rate() {
    let sample = Sample { prefill_s: 2.0, first_token_s: 2.0, total_s: 2.0, gen_tokens: 1 };
    let run = |arm| ArmRun { arm, samples: vec![sample] };
    let measured = Measured { runs: vec![run(Arm::Eager), run(Arm::Fused)], read_bytes_per_s: vec![1e9] };
    let reports = Report::all(&setup(), &measured);
    assert_eq!((reports[0].decode_tps_mean, reports[0].decode_tps_std), (0.0, 0.0));
    // No ratio of zeros, hence no line.
    assert_eq!(reports[0].fused_over_eager, None);
    assert!(table(&reports).lines().nth(2).is_some_and(|line| line.contains("10.0         -       0.5  ")));
    assert!(reports[0].roofline.decode.is_none() && reports[0].roofline.prefill.is_some());
    assert_eq!(table(&reports).lines().filter(|line| line.contains(" token ")).count(), 0);
}

#[test]
fn spreads() {
    assert_eq!(Spread::of(&[]), Spread { mean: 0.0, std: 0.0 });
    assert_eq!(Spread::of(&[1.2345]), Spread { mean: 1.235, std: 0.0 });
    assert_eq!(Spread::of(&[1.0, 2.0, 3.0, 4.0]), Spread { mean: 2.5, std: 1.291 });
}
