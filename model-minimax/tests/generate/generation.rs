// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::ControlFlow;

use model_minimax::config::StopIds;
use model_minimax::generate::{GenerateError, GenerateOptions, Generation, Stop, generate};
use model_minimax::sampling::{SamplingError, SamplingOptions};

use crate::fake::Fake;

fn stops(ids: &[u32]) -> StopIds {
    StopIds { ids: ids.iter().map(|&id| (id, Vec::new())).collect(), ..StopIds::default() }
}

fn options(max_new_tokens: usize, stop: &[u32]) -> GenerateOptions {
    GenerateOptions { max_new_tokens, stop: stops(stop), ..GenerateOptions::default() }
}

fn run(fake: &mut Fake, prompt: &[u32], options: &GenerateOptions) -> Result<Generation, GenerateError> {
    generate(fake, prompt, options, |_| ControlFlow::Continue(()))
}

#[test]
fn runs_to_the_limit_and_feeds_each_token_once() {
    let mut fake = Fake::new(10, 20);
    let mut seen = Vec::new();
    let generation = generate(&mut fake, &[7, 3], &options(4, &[]), |id| {
        seen.push(id);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(generation.ids, [4, 5, 6, 7]);
    assert_eq!(generation.stop, Stop::Length);
    assert_eq!(seen, generation.ids);
    // The prompt in one piece, then all tokens but the last.
    assert_eq!(fake.passes, [vec![7, 3], vec![4], vec![5], vec![6]]);
    assert_eq!(fake.resets, 1);
    assert!(generation.timings.prefill <= generation.timings.total);
}

#[test]
fn one_token_is_one_prefill() {
    let mut fake = Fake::new(10, 20);
    let generation = run(&mut fake, &[1, 2, 3], &options(1, &[])).unwrap();
    assert_eq!((generation.ids.as_slice(), fake.passes.len()), ([4].as_slice(), 1));
    assert_eq!(generation.timings.prefill, generation.timings.total);
}

#[test]
fn stops_at_any_stop_token_and_keeps_it() {
    let mut fake = Fake::new(10, 20);
    let generation = run(&mut fake, &[2], &options(8, &[5, 9])).unwrap();
    assert_eq!((generation.ids.as_slice(), generation.stop), ([3, 4, 5].as_slice(), Stop::Eos(5)));
    // A stop token on the last step counts as one.
    let generation = run(&mut fake, &[2], &options(3, &[5])).unwrap();
    assert_eq!(generation.stop, Stop::Eos(5));
}

#[test]
fn stop_tokens_can_be_ignored() {
    let mut fake = Fake::new(10, 20);
    let ignoring = GenerateOptions { ignore_eos: true, ..options(5, &[5]) };
    let generation = run(&mut fake, &[2], &ignoring).unwrap();
    assert_eq!((generation.ids.as_slice(), generation.stop), ([3, 4, 5, 6, 7].as_slice(), Stop::Length));
}

#[test]
fn the_caller_can_stop() {
    let mut fake = Fake::new(10, 20);
    let until_four = |id| if id == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let generation = generate(&mut fake, &[2], &options(8, &[]), until_four).unwrap();
    assert_eq!((generation.ids.as_slice(), generation.stop), ([3, 4].as_slice(), Stop::Caller));
}

#[test]
fn generations_do_not_depend_on_each_other() {
    let mut fake = Fake::new(10, 20);
    let sampling = SamplingOptions { temperature: 2.0, seed: 5, ..SamplingOptions::default() };
    let options = GenerateOptions { sampling, ..options(12, &[]) };
    let first = run(&mut fake, &[2], &options).unwrap();
    let second = run(&mut fake, &[2], &options).unwrap();
    assert_eq!(first.ids, second.ids);
    assert_eq!(fake.resets, 2);
    // Twelve tokens of a flat distribution are not the greedy ones.
    assert_ne!(first.ids, (3..15).map(|id| id % 10).collect::<Vec<u32>>());
}

#[test]
fn impossible_requests_are_refused_before_the_first_pass() {
    let mut fake = Fake::new(10, 8);
    let cases: [(&[u32], GenerateOptions, &str); 6] = [
        (&[], options(1, &[]), "the prompt is empty"),
        (&[1], options(0, &[]), "at least 1, found 0"),
        (&[1, 2, 3], options(6, &[]), "3 prompt tokens and 6 new tokens exceed the 8 positions"),
        (&[1], options(usize::MAX, &[]), "exceed the 8 positions"),
        (&[1, 10, 99], options(1, &[]), "prompt token 10 at position 1 is outside the vocabulary of 10 tokens"),
        (
            &[1],
            GenerateOptions {
                sampling: SamplingOptions { temperature: -1.0, ..SamplingOptions::default() },
                ..options(1, &[])
            },
            "temperature should be a finite number of at least 0, found -1",
        ),
    ];
    for (prompt, options, expected) in cases {
        let error = run(&mut fake, prompt, &options).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert_eq!((fake.resets, fake.passes.len()), (0, 0));
    // Exactly as many positions as there are is fine.
    assert_eq!(run(&mut fake, &[1, 2, 3], &options(5, &[])).unwrap().ids.len(), 5);
}

#[test]
fn failures_of_the_model_name_the_position() {
    let mut fake = Fake::new(10, 20);
    for (pass, expected) in [(0, 0), (1, 3), (3, 5)] {
        fake.fail_at = Some(pass);
        match run(&mut fake, &[1, 2, 3], &options(6, &[])) {
            Err(GenerateError::Forward { position, source }) => {
                assert_eq!((position, source.to_string().as_str()), (expected, "the fake gave up"));
            }
            other => panic!("pass {pass}: {other:?}"),
        }
    }
}

#[test]
fn unusable_logits_are_an_error() {
    let mut fake = Fake::new(0, 20);
    assert!(matches!(run(&mut fake, &[0], &options(1, &[])), Err(GenerateError::OutsideVocab { .. })));
    let error = GenerateError::from(SamplingError::Nan { token: 3 });
    assert_eq!(error.to_string(), "logit of token 3 is NaN");
}
