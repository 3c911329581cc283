// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::PathBuf;

use model_minimax::bench::compare::{Comparison, Verdict};
use model_minimax::bench::saved::{Case, SavedError, load};
use model_minimax::bench::{Arm, Report};
use serde_json::json;

use super::report::{measured, setup};
use crate::scratch::Scratch;

/// A report whose times are those of `measured`, multiplied by `factor` and spread a little.
fn saved(folder: &Scratch, name: &str, factor: f64) -> PathBuf {
    let mut measured = measured(&[Arm::Fused]);
    let samples = &mut measured.runs[0].samples;
    let pattern = samples[0];
    *samples = [0.99, 1.0, 1.01, 1.0]
        .map(|spread| {
            let scale = factor * spread;
            let (prefill_s, first_token_s) = (pattern.prefill_s * scale, pattern.first_token_s * scale);
            model_minimax::bench::Sample { prefill_s, first_token_s, total_s: pattern.total_s * scale, ..pattern }
        })
        .to_vec();
    folder.write(name, &Report::json(&Report::all(&setup(), &measured)).unwrap())
}

fn compare(before: &[Case], after: &[Case]) -> Comparison {
    Comparison::of(before, after, &[], 0.95, 0.05)
}

#[test]
fn slower_faster_and_the_same() {
    let folder = Scratch::new();
    let [base, slow, fast, same] = [("base", 1.0), ("slow", 1.2), ("fast", 0.8), ("same", 1.001)]
        .map(|(name, factor)| load(&saved(&folder, name, factor)).unwrap());
    for (after, verdict, ratio) in
        [(slow, Verdict::Slower, 1.0 / 1.2), (fast, Verdict::Faster, 1.25), (same, Verdict::Same, 1.0 / 1.001)]
    {
        let comparison = compare(&base, &after);
        assert_eq!(comparison.rows.iter().map(|row| row.metric).collect::<Vec<_>>(), ["prefill", "decode", "e2e"]);
        for row in &comparison.rows {
            assert_eq!(row.verdict, verdict, "{comparison}");
            assert!((row.interval.ratio - ratio).abs() < 1e-9, "{comparison}");
            assert!(row.interval.low < ratio && row.interval.high > Some(ratio));
        }
        assert_eq!(comparison.regressed(), verdict == Verdict::Slower);
    }
    let only = Comparison::of(&base, &base, &["decode".to_owned()], 0.95, 0.05);
    assert_eq!(only.rows.len(), 1);
}

#[test]
fn noise_that_reaches_across_the_threshold_is_undecided() {
    let case = |rates: [f64; 3]| {
        let samples = rates.map(
            |rate| json!({ "prefill_s": 1.0, "first_token_s": 1.0, "total_s": 1.0 + 10.0 / rate, "gen_tokens": 11 }),
        );
        json!({ "model": "M", "mode": "eager", "device": "cpu", "prompt_len": 4, "iters": 3, "samples": samples })
            .to_string()
    };
    let folder = Scratch::new();
    let quiet = load(&folder.write("a", &case([10.0, 10.1, 9.9]))).unwrap();
    let noisy = load(&folder.write("b", &case([14.0, 6.0, 9.0]))).unwrap();
    let comparison = Comparison::of(&quiet, &noisy, &["decode".to_owned()], 0.95, 0.05);
    assert_eq!(comparison.rows[0].verdict, Verdict::Undecided, "{comparison}");
    assert!(!comparison.regressed());
}

#[test]
fn the_published_layout_and_the_operators_are_read() {
    let folder = Scratch::new();
    let published = |mean: f64| {
        json!({
            "model": "MiniMax-M2.7", "mode": "pypto+graph", "device": "npu:0", "layers": 4, "graph_window": 32, "iters": 5,
            "decode_tps_mean": mean, "decode_tps_std": 0.2,
        })
        .to_string()
    };
    let [before, after] =
        [("a", 20.0), ("b", 15.0)].map(|(name, mean)| load(&folder.write(name, &published(mean))).unwrap());
    let comparison = compare(&before, &after);
    assert_eq!((comparison.rows.len(), comparison.rows[0].verdict), (1, Verdict::Slower));
    assert_eq!(comparison.rows[0].case, "MiniMax-M2.7 pypto+graph npu:0");

    let operator = |ms: f64, threads: usize| {
        let rounds: Vec<Vec<f64>> = [1.0, 1.02, 0.98].map(|spread| vec![ms * spread, ms, ms * 7.0]).to_vec();
        json!({
            "schema": "msa-indexer-bench/1", "machine": { "level": "avx2", "threads": threads },
            "cases": [{ "kernel": "decode/bf16/avx2", "shape": "65536 keys", "median_ms": ms, "share_of_read_bandwidth": 0.8,
                "share_of_peak": 0.1, "samples_ms": rounds }],
        })
        .to_string()
    };
    let [before, after] = [("c", 2.0, 1), ("d", 1.0, 2)]
        .map(|(name, ms, threads)| load(&folder.write(name, &operator(ms, threads))).unwrap());
    let comparison = compare(&before, &after);
    // The middle call of each round: outliers do not count.
    assert!((comparison.rows[0].interval.ratio - 2.0).abs() < 0.1, "{comparison}");
    assert_eq!(comparison.rows[0].verdict, Verdict::Faster);
    assert_eq!(comparison.differences, ["decode/bf16/avx2 65536 keys: threads was 1, is 2"]);
    assert_eq!(before[0].share_of_limit, Some((0.8, "memory".to_owned())));
}

#[test]
fn what_only_one_report_has_is_named() {
    let folder = Scratch::new();
    let both = folder.write("both", &Report::json(&Report::all(&setup(), &measured(&Arm::ALL))).unwrap());
    let one = folder.write("one", &Report::json(&Report::all(&setup(), &measured(&[Arm::Fused]))).unwrap());
    let (both, one) = (load(&both).unwrap(), load(&one).unwrap());
    assert!(compare(&both, &one).only_before.contains(&"MiniMax-M2.7 eager cpu".to_owned()));
    assert!(compare(&one, &both).to_string().contains("MiniMax-M2.7 eager cpu: only after"));
}

#[test]
fn files_that_are_no_reports() {
    let folder = Scratch::new();
    assert!(matches!(load(&folder.path().join("absent")), Err(SavedError::Read { .. })));
    assert!(matches!(load(&folder.write("text", "hello")), Err(SavedError::Json { .. })));
    for text in ["[]", "{}", "{\"cases\": []}", "3", "[{\"mode\": \"eager\"}, 1]"] {
        let error = load(&folder.write("other", text)).unwrap_err();
        assert!(error.to_string().contains("holds no report"), "{text}: {error}");
    }
}
