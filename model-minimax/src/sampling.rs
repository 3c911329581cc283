// SPDX-License-Identifier: MIT OR Apache-2.0

//! Choosing the next token from logits: greedy, or temperature / top-k / top-p with a seed.

use std::cmp::Ordering;

/// How tokens are chosen. The default is greedy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplingOptions {
    /// Logits are divided by it; 0 is greedy, and then the other fields do not matter.
    pub temperature: f32,
    /// Only the `top_k` most probable tokens remain; 0 keeps all.
    pub top_k: usize,
    /// After top-k, only the most probable tokens that together reach this share remain; 1 keeps all.
    pub top_p: f32,
    /// Start of the random sequence: the same seed and logits give the same tokens.
    pub seed: u64,
}

impl Default for SamplingOptions {
    fn default() -> Self {
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, seed: 0 }
    }
}

/// Impossible options, or logits nothing can be chosen from.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SamplingError {
    /// The temperature is negative, infinite or not a number.
    #[error("temperature should be a finite number of at least 0, found {found}")]
    Temperature {
        /// The value given.
        found: f32,
    },
    /// top-p is outside (0, 1].
    #[error("top-p should be above 0 and at most 1, found {found}")]
    TopP {
        /// The value given.
        found: f32,
    },
    /// A logit is not a number: the forward pass went wrong.
    #[error("logit of token {token} is NaN")]
    Nan {
        /// The first such token.
        token: usize,
    },
    /// There are no logits.
    #[error("no logits to choose from")]
    Empty,
}

/// The token with the largest logit; of equal ones the lowest id.
///
/// # Errors
/// [`SamplingError::Nan`], [`SamplingError::Empty`].
pub fn argmax(logits: &[f32]) -> Result<u32, SamplingError> {
    check(logits)?;
    // The iterator's own `max_by` keeps the last of equal elements, so it runs backwards.
    let best = logits.iter().enumerate().rev().max_by(|a, b| a.1.partial_cmp(b.1).unwrap_or(Ordering::Equal));
    best.map(|(token, _)| token as u32).ok_or(SamplingError::Empty)
}

fn check(logits: &[f32]) -> Result<(), SamplingError> {
    if logits.is_empty() {
        return Err(SamplingError::Empty);
    }
    match logits.iter().position(|logit| logit.is_nan()) {
        Some(token) => Err(SamplingError::Nan { token }),
        None => Ok(()),
    }
}

/// Chooses tokens one after the other.
#[derive(Debug, Clone)]
pub struct Sampler {
    options: SamplingOptions,
    random: SplitMix64,
}

impl Sampler {
    /// A sampler at the start of its random sequence.
    ///
    /// # Errors
    /// [`SamplingError::Temperature`], [`SamplingError::TopP`].
    pub fn new(options: SamplingOptions) -> Result<Self, SamplingError> {
        let SamplingOptions { temperature, top_p, seed, .. } = options;
        if !temperature.is_finite() || temperature < 0.0 {
            return Err(SamplingError::Temperature { found: temperature });
        }
        // Written so that NaN fails too.
        if !(top_p > 0.0 && top_p <= 1.0) {
            return Err(SamplingError::TopP { found: top_p });
        }
        Ok(Self { options, random: SplitMix64(seed) })
    }

    /// The next token. Each call that is not greedy takes exactly one random number.
    ///
    /// # Errors
    /// [`SamplingError::Nan`], [`SamplingError::Empty`].
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32, SamplingError> {
        if self.options.temperature == 0.0 {
            return argmax(logits);
        }
        check(logits)?;
        let mut candidates: Vec<u32> = (0..logits.len() as u32).collect();
        // Descending logits, then ascending ids: a total order, so that ties at the borders have one outcome.
        let order = |a: &u32, b: &u32| {
            let descending = logits[*b as usize].partial_cmp(&logits[*a as usize]);
            descending.unwrap_or(Ordering::Equal).then(a.cmp(b))
        };
        let top_k = match self.options.top_k {
            0 => candidates.len(),
            k => k.min(candidates.len()),
        };
        if top_k < candidates.len() {
            candidates.select_nth_unstable_by(top_k, order);
            candidates.truncate(top_k);
        }
        candidates.sort_unstable_by(order);

        let temperature = f64::from(self.options.temperature);
        let max = logits[candidates[0] as usize];
        let mut weights: Vec<f64> = candidates
            .iter()
            .map(|&token| match logits[token as usize] {
                // Also where both are infinite and the difference would not be a number.
                logit if logit == max => 1.0,
                logit => (f64::from(logit - max) / temperature).exp(),
            })
            .collect();
        let mut total: f64 = weights.iter().sum();
        if self.options.top_p < 1.0 {
            let wanted = f64::from(self.options.top_p) * total;
            let mut share = 0.0;
            let kept = weights.iter().take_while(|&&weight| {
                let short = share < wanted;
                share += weight;
                short
            });
            let kept = kept.count();
            weights.truncate(kept);
            total = weights.iter().sum();
        }

        let mut point = self.random.unit() * total;
        for (&token, weight) in candidates.iter().zip(&weights) {
            if point < *weight {
                return Ok(token);
            }
            point -= weight;
        }
        // Rounding of the sums can leave a hair's breadth above the last weight that is not zero.
        let last = weights.iter().rposition(|&weight| weight > 0.0).unwrap_or(0);
        Ok(candidates[last])
    }
}

/// The splitmix64 generator (Steele, Lea, Flood 2014): a counter with a finaliser, the same on every platform.
#[derive(Debug, Clone)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in [0, 1), a multiple of 2^-53.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs for seed 1234567, as published with the reference implementation.
    #[test]
    fn splitmix_reference_outputs() {
        let mut random = SplitMix64(1_234_567);
        let outputs = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        for expected in outputs {
            assert_eq!(random.next(), expected);
        }
    }

    #[test]
    fn units_are_below_one() {
        assert!((0..10_000).scan(SplitMix64(3), |random, _| Some(random.unit())).all(|u| (0.0..1.0).contains(&u)));
        // The largest output of the generator.
        assert!((u64::MAX >> 11) as f64 * (1.0 / (1u64 << 53) as f64) < 1.0);
    }
}
