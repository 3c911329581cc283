// SPDX-License-Identifier: MIT OR Apache-2.0

use model_minimax::sampling::{Sampler, SamplingError, SamplingOptions, argmax};
use proptest::prelude::*;

fn sampler(temperature: f32, top_k: usize, top_p: f32, seed: u64) -> Sampler {
    Sampler::new(SamplingOptions { temperature, top_k, top_p, seed }).unwrap()
}

/// Counts of each token over `draws` samples.
fn histogram(mut sampler: Sampler, logits: &[f32], draws: usize) -> Vec<usize> {
    let mut counts = vec![0; logits.len()];
    for _ in 0..draws {
        counts[sampler.sample(logits).unwrap() as usize] += 1;
    }
    counts
}

#[test]
fn greedy_takes_the_lowest_of_equal_tokens() {
    assert_eq!(argmax(&[0.0, 3.0, -1.0, 3.0]), Ok(1));
    assert_eq!(argmax(&[-0.0, 0.0]), Ok(0));
    assert_eq!(argmax(&[f32::NEG_INFINITY; 3]), Ok(0));
    assert_eq!(argmax(&[1.0, f32::INFINITY, f32::INFINITY]), Ok(1));
    assert_eq!(argmax(&[1.0, f32::NAN, f32::NAN]), Err(SamplingError::Nan { token: 1 }));
    assert_eq!(argmax(&[]), Err(SamplingError::Empty));
}

#[test]
fn impossible_options_are_errors() {
    let with = |temperature, top_p| Sampler::new(SamplingOptions { temperature, top_p, ..Default::default() }).err();
    for temperature in [-0.5, f32::INFINITY, f32::NEG_INFINITY] {
        assert_eq!(with(temperature, 1.0), Some(SamplingError::Temperature { found: temperature }));
    }
    assert!(matches!(with(f32::NAN, 1.0), Some(SamplingError::Temperature { found }) if found.is_nan()));
    for top_p in [0.0, -0.1, 1.001] {
        assert_eq!(with(1.0, top_p), Some(SamplingError::TopP { found: top_p }));
    }
    assert!(matches!(with(1.0, f32::NAN), Some(SamplingError::TopP { found }) if found.is_nan()));
    // Greedy does not excuse them.
    assert_eq!(with(0.0, 2.0), Some(SamplingError::TopP { found: 2.0 }));
}

#[test]
fn unusable_logits_are_errors_in_both_modes() {
    for temperature in [0.0, 1.0] {
        let mut sampler = sampler(temperature, 0, 1.0, 0);
        assert_eq!(sampler.sample(&[0.0, f32::NAN]), Err(SamplingError::Nan { token: 1 }));
        assert_eq!(sampler.sample(&[]), Err(SamplingError::Empty));
    }
}

#[test]
fn frequencies_follow_the_softmax() {
    // Probabilities 0.5, 0.25, 0.125, 0.125; deviations of 20000 draws are below 0.0036 at one sigma.
    let logits = [0.5f32.ln(), 0.25f32.ln(), 0.125f32.ln(), 0.125f32.ln()];
    let draws = 20_000;
    let counts = histogram(sampler(1.0, 0, 1.0, 42), &logits, draws);
    for (count, expected) in counts.iter().zip([0.5, 0.25, 0.125, 0.125]) {
        let frequency = *count as f64 / draws as f64;
        assert!((frequency - expected).abs() < 0.02, "{counts:?}");
    }
    // Temperature 0.5 squares them: 16/22, 4/22, 1/22, 1/22.
    let counts = histogram(sampler(0.5, 0, 1.0, 42), &logits, draws);
    assert!((counts[0] as f64 / draws as f64 - 16.0 / 22.0).abs() < 0.02, "{counts:?}");
}

#[test]
fn top_k_and_top_p_cut_the_tail() {
    let logits = [0.125f32.ln(), 0.5f32.ln(), 0.25f32.ln(), 0.125f32.ln()];
    let alive = |top_k, top_p| -> Vec<usize> {
        let counts = histogram(sampler(1.0, top_k, top_p, 7), &logits, 500);
        counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(token, _)| token).collect()
    };
    assert_eq!(alive(0, 1.0), [0, 1, 2, 3]);
    assert_eq!(alive(1, 1.0), [1]);
    assert_eq!(alive(2, 1.0), [1, 2]);
    // Tokens 0 and 3 tie: the lower id stays.
    assert_eq!(alive(3, 1.0), [0, 1, 2]);
    assert_eq!(alive(9, 1.0), [0, 1, 2, 3]);
    assert_eq!(alive(0, 0.4), [1]);
    assert_eq!(alive(0, 0.6), [1, 2]);
    assert_eq!(alive(0, 0.8), [0, 1, 2]);
    // top-p looks at what top-k left: of 0.5 and 0.25, the first alone is two thirds.
    assert_eq!(alive(2, 0.6), [1]);
}

#[test]
fn infinite_logits_win_and_vanish_as_they_should() {
    let counts = histogram(sampler(1.0, 0, 1.0, 1), &[f32::INFINITY, 5.0, f32::INFINITY, f32::NEG_INFINITY], 200);
    assert!(counts[0] > 0 && counts[2] > 0 && counts[1] == 0 && counts[3] == 0, "{counts:?}");
    let counts = histogram(sampler(1.0, 0, 1.0, 1), &[f32::NEG_INFINITY, 5.0], 200);
    assert_eq!(counts, [0, 200]);
}

#[test]
fn the_sequence_of_a_seed_is_fixed() {
    // splitmix64 and two sums: no platform may give other tokens. The list was made by a Python model of the sampler.
    let logits: Vec<f32> = (0..16).map(|i| (i * 7 % 16) as f32 * 0.25).collect();
    let mut sampler = sampler(1.0, 8, 0.9, 2026);
    let tokens: Vec<u32> = (0..12).map(|_| sampler.sample(&logits).unwrap()).collect();
    assert_eq!(tokens, [13, 2, 4, 2, 13, 4, 15, 13, 2, 9, 2, 6]);
}

fn any_logits() -> impl Strategy<Value = Vec<f32>> {
    // Few distinct values, so that ties are common.
    prop::collection::vec(prop_oneof![(-4i32..4).prop_map(|i| i as f32), -20f32..20.0], 1..60)
}

proptest! {
    #[test]
    fn argmax_is_the_first_maximum(logits in any_logits()) {
        let token = argmax(&logits).unwrap() as usize;
        prop_assert!(logits.iter().all(|&logit| logit <= logits[token]));
        prop_assert!(logits[..token].iter().all(|&logit| logit < logits[token]));
    }

    #[test]
    fn a_seed_decides_everything(
        logits in any_logits(), temperature in 0f32..3.0, top_k in 0usize..70, top_p in 0.01f32..=1.0, seed: u64,
    ) {
        let draw = || {
            let mut sampler = sampler(temperature, top_k, top_p, seed);
            (0..5).map(|_| sampler.sample(&logits).unwrap()).collect::<Vec<u32>>()
        };
        let tokens = draw();
        prop_assert_eq!(&tokens, &draw());
        // Every token is among the top k: fewer than k others are above it.
        if top_k > 0 && temperature > 0.0 {
            for token in tokens {
                let above = logits.iter().filter(|&&logit| logit > logits[token as usize]).count();
                prop_assert!(above < top_k, "token {} of {:?}", token, logits);
            }
        }
    }

    #[test]
    fn limits_of_the_options_are_greedy(logits in any_logits(), seed: u64) {
        let greedy = argmax(&logits).unwrap();
        prop_assert_eq!(sampler(1.0, 1, 1.0, seed).sample(&logits), Ok(greedy));
        prop_assert_eq!(sampler(1.0, 0, f32::MIN_POSITIVE, seed).sample(&logits), Ok(greedy));
        // So cold that every other logit has weight zero; equal maxima stay equally likely.
        let cold = sampler(1e-30, 0, 1.0, seed).sample(&logits).unwrap();
        prop_assert_eq!(logits[cold as usize], logits[greedy as usize]);
    }
}
