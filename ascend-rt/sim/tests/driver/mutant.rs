// SPDX-License-Identifier: MIT OR Apache-2.0

//! The driver of mutants: each place that synchronises once without.

use ascend_sim::{Args, Mode, RunError, Verdict, mutants};

use crate::fake;

#[test]
fn each_place_is_left_out_once() {
    let image = fake::image();
    let (x, mut z) = ([1.0f32; 4], [5.0f32; 4]);
    let args = Args::new().input(&x).input(&x).buffer(&mut z).value(4u32).value(1.0f32);
    let mut launch = image.launch("add").unwrap().args(args).print_to(|_| {});
    let found = mutants(&mut launch, 5).unwrap();
    let shown: Vec<_> = found.iter().map(|mutant| (mutant.sync.api.as_str(), mutant.is_found())).collect();
    assert_eq!(shown, [("SetFlag", true), ("WaitFlag", true), ("PipeBarrier", false)]);
    assert!(matches!(&found[0].verdict, Verdict::Found { mode: Mode::Chaos(2), fault } if fault.rule.hangs()));
    assert!(matches!(&found[1].verdict, Verdict::Found { mode: Mode::Fast, .. }));
    assert_eq!(found[2].verdict, Verdict::Survived { wrong_results: true });
    let text = found[2].to_string();
    assert_eq!(text, "without PipeBarrier at kernel/add.cpp:12 (1 calls): NOT FOUND, and its results are wrong");
    assert!(found[0].to_string().contains("chaos:2: error[deadlock]: the wait never ends"), "{}", found[0]);

    // Too few seeds: not found, and its results were right.
    let found = mutants(&mut launch, 2).unwrap();
    assert_eq!(found[0].verdict, Verdict::Survived { wrong_results: false });
    drop(launch);
    assert_eq!(z, [5.0; 4], "the buffers of the caller do not change");
}

#[test]
fn a_kernel_that_fails_as_it_is_has_no_mutants() {
    let mut launch = fake::image().launch("hang").unwrap().args(Args::new().null());
    assert!(matches!(mutants(&mut launch, 1), Err(RunError::Fault(_))));
}
