// SPDX-License-Identifier: MIT OR Apache-2.0

use model_minimax::bench::{Arm, ArmError, BenchError, Plan, WindowPlan, run, run_windows};
use model_minimax::config::StopIds;
use model_minimax::generate::GenerateError;

use crate::fake::Fake;

fn plan(arms: &[Arm], warmup: usize, iters: usize) -> Plan {
    Plan { arms: arms.to_vec(), warmup, iters, max_new_tokens: 5, stop: StopIds::default(), ignore_eos: false }
}

#[test]
fn arms_take_turns_and_each_iteration_is_one_prefill_and_one_generation() {
    let mut fake = Fake::new(10, 50);
    let mut lines = Vec::new();
    let mut probes = 0;
    let probe = || {
        probes += 1;
        probes as f64
    };
    let measured =
        run(&mut fake, &[1, 2], &plan(&[Arm::Eager, Arm::Fused], 1, 3), probe, |line| lines.push(line.to_owned()))
            .unwrap();

    // Warm-up E F, then per iteration E (prefill, full) and F (prefill, full).
    let (eager, fused) = (Arm::Eager, Arm::Fused);
    let iteration = [eager, eager, fused, fused];
    assert_eq!(fake.arms, [[eager, fused].as_slice(), &iteration.repeat(3)].concat());
    assert_eq!(fake.resets, 2 + 12);
    assert_eq!(measured.read_bytes_per_s, [1.0, 2.0, 3.0]);
    assert_eq!(measured.runs.iter().map(|run| run.arm).collect::<Vec<_>>(), [eager, fused]);
    for run in &measured.runs {
        assert_eq!(run.samples.len(), 3);
        assert!(run.samples.iter().all(|s| s.gen_tokens == 5 && s.prefill_s > 0.0 && s.total_s >= s.first_token_s));
    }
    assert_eq!(lines.len(), 2 + 6);
    assert!(lines[0].contains("eager      warm-up 1/1"), "{}", lines[0]);
    assert!(lines[3].contains("fused      iteration 1/3"), "{}", lines[3]);
}

#[test]
fn generated_tokens_are_counted_and_not_assumed() {
    let mut fake = Fake::new(10, 50);
    let stop = StopIds { ids: [(5, Vec::new())].into(), ..StopIds::default() };
    let mut plan = Plan { stop, ..plan(&[Arm::Fused], 0, 1) };
    let measured = run(&mut fake, &[2], &plan, || 1.0, |_| {}).unwrap();
    assert_eq!(measured.runs[0].samples[0].gen_tokens, 3);
    plan.ignore_eos = true;
    let measured = run(&mut fake, &[2], &plan, || 1.0, |_| {}).unwrap();
    assert_eq!(measured.runs[0].samples[0].gen_tokens, 5);
}

#[test]
fn impossible_plans_and_failures_are_errors() {
    let mut fake = Fake::new(10, 50);
    let mut failure = |plan: &Plan, prompt: &[u32]| run(&mut fake, prompt, plan, || 1.0, |_| {}).unwrap_err();
    assert!(matches!(failure(&plan(&Arm::ALL, 1, 0), &[1]), BenchError::Nothing { what: "iters" }));
    assert!(matches!(failure(&plan(&[], 1, 1), &[1]), BenchError::Nothing { what: "arms" }));
    let empty = failure(&plan(&Arm::ALL, 1, 1), &[]);
    assert!(
        matches!(&empty, BenchError::Generate { arm: Arm::Eager, source: GenerateError::EmptyPrompt }),
        "{empty:?}"
    );
}

#[test]
fn windows_shift_by_one_and_begin_anew() {
    let mut fake = Fake::new(10, 50);
    let plan = WindowPlan { arms: vec![Arm::VecGraph, Arm::FusedGraph], warmup: 1, iters: 2, window: 4, new_tokens: 5 };
    let mut lines = Vec::new();
    let runs = run_windows(&mut fake, &plan, |line| lines.push(line.to_owned())).unwrap();
    assert_eq!(runs.iter().map(|run| run.arm).collect::<Vec<_>>(), plan.arms);
    // One pass to capture each arm, then a loop of five for each arm, thrice.
    assert_eq!((fake.passes.len(), lines.len()), (2 + 5 * 2 * 3, 2 + 2 * 3));
    let first = &fake.passes[0];
    assert_eq!(first.len(), 4);
    assert!(first.iter().any(|id| id != &first[0]), "{first:?}");
    for steps in fake.passes[2..].chunks(5) {
        assert_eq!(&steps[0], first);
        for pair in steps.windows(2) {
            // The fake's next token is the last one plus one.
            assert_eq!(pair[1], [&pair[0][1..], &[(pair[0][3] + 1) % 10]].concat());
        }
    }
    for run in &runs {
        assert_eq!((run.seconds.len(), run.ids.len()), (2, 5));
        assert_eq!(run.ids[0], (first[3] + 1) % 10);
    }
    for (what, plan) in [
        ("arms", WindowPlan { arms: Vec::new(), ..plan.clone() }),
        ("iters", WindowPlan { iters: 0, ..plan.clone() }),
        ("graph_window", WindowPlan { window: 0, ..plan.clone() }),
        ("new tokens", WindowPlan { new_tokens: 0, ..plan.clone() }),
    ] {
        let error = run_windows(&mut fake, &plan, |_| {}).unwrap_err();
        assert!(matches!(error, BenchError::Nothing { what: found } if found == what), "{error:?}");
    }
    fake.fail_at = Some(fake.passes.len());
    assert!(matches!(run_windows(&mut fake, &plan, |_| {}), Err(BenchError::Generate { arm: Arm::VecGraph, .. })));
}

#[test]
fn names_of_arms() {
    assert_eq!("eager".parse(), Ok(Arm::Eager));
    assert_eq!("fused".parse(), Ok(Arm::Fused));
    assert_eq!("pypto".parse(), Ok(Arm::Fused));
    for (arm, names) in [(Arm::VecGraph, ["vecgraph", "graph"]), (Arm::FusedGraph, ["fusedgraph", "pyptograph"])] {
        assert!(names.iter().all(|name| name.parse() == Ok(arm)), "{arm}");
    }
    assert!(Arm::ALL.iter().all(|arm| arm.name().parse() == Ok(*arm)));
    assert_eq!("Eager".parse::<Arm>(), Err(ArmError::Unknown("Eager".to_owned())));
    assert!("npugraph".parse::<Arm>().unwrap_err().to_string().contains("eager, fused, vecgraph, fusedgraph"));
}
