// SPDX-License-Identifier: MIT OR Apache-2.0

//! The generation loop over anything that turns token ids into logits.

use std::error::Error;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::config::StopIds;
use crate::sampling::{Sampler, SamplingError, SamplingOptions};

/// A causal language model with a cache: one sequence, fed in pieces.
pub trait Decoder {
    /// What a forward pass fails with.
    type Error: Error + Send + Sync + 'static;

    /// Number of logits; ids are below it.
    fn vocab_size(&self) -> usize;

    /// Longest sequence, prompt and generated tokens together.
    fn max_positions(&self) -> usize;

    /// Forgets the sequence: the next call of [`forward`](Self::forward) starts at position 0.
    fn reset(&mut self);

    /// Cuts the sequence to its first `len` tokens, or to fewer, and returns how many are left. Unless a decoder can do better
    /// it forgets them all.
    fn keep(&mut self, len: usize) -> usize {
        let _ = len;
        self.reset();
        0
    }

    /// Makes what a sequence of up to `tokens` tokens needs ready, as far as that is not part of a forward pass. Nothing depends
    /// on it but time.
    ///
    /// # Errors
    /// Whatever the model fails with.
    fn prepare(&mut self, tokens: usize) -> Result<(), Self::Error> {
        let _ = tokens;
        Ok(())
    }

    /// Appends `ids` (at least one) to the sequence and returns the logits of the last position, F32
    /// `[vocab_size]`. The first call after a reset is the prefill.
    ///
    /// # Errors
    /// Whatever the model fails with; the sequence is then undefined until the next reset.
    fn forward(&mut self, ids: &[u32]) -> Result<&[f32], Self::Error>;
}

/// What to generate.
#[derive(Debug, Clone, Default)]
pub struct GenerateOptions {
    /// Upper limit of generated tokens, at least 1.
    pub max_new_tokens: usize,
    /// Tokens that end the generation; the one that does is part of the output.
    pub stop: StopIds,
    /// Runs to the limit, whatever `stop` says.
    pub ignore_eos: bool,
    /// How tokens are chosen.
    pub sampling: SamplingOptions,
}

/// Why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// This stop token was generated.
    Eos(u32),
    /// `max_new_tokens` were generated.
    Length,
    /// The callback asked for it.
    Caller,
}

/// Wall-clock times of one generation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timings {
    /// From the start to the first token, which is the time of the prefill.
    pub prefill: Duration,
    /// From the start to the last token.
    pub total: Duration,
}

/// The outcome of [`generate`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generation {
    /// The generated tokens, without the prompt.
    pub ids: Vec<u32>,
    /// Why there are no more.
    pub stop: Stop,
    /// How long it took.
    pub timings: Timings,
}

/// Why nothing, or no more, could be generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// The prompt has no token.
    #[error("the prompt is empty: at least one token is needed")]
    EmptyPrompt,
    /// `max_new_tokens` is zero.
    #[error("the number of new tokens should be at least 1, found 0")]
    NoNewTokens,
    /// The sequence would be longer than the model's positions.
    #[error(
        "{prompt} prompt tokens and {new} new tokens exceed the {max} positions of the model (max_position_embeddings); \
         shorten the prompt or ask for fewer new tokens"
    )]
    TooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens asked for.
        new: usize,
        /// Positions of the model.
        max: usize,
    },
    /// A token of the prompt is outside the vocabulary.
    #[error("prompt token {id} at position {position} is outside the vocabulary of {vocab} tokens")]
    OutsideVocab {
        /// Its place in the prompt, from 0.
        position: usize,
        /// The token.
        id: u32,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// A sampling option is impossible, or the logits are unusable.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// The model failed.
    #[error("forward pass at position {position} failed")]
    Forward {
        /// First position of the failed call.
        position: usize,
        /// The model's error.
        source: Box<dyn Error + Send + Sync>,
    },
}

/// Continues `prompt` token by token; `on_token` sees each new one, a stop token included, as soon as it is chosen.
///
/// Everything that can be checked is checked before the first forward pass. The decoder is reset at the start, so
/// that calls do not depend on each other.
///
/// # Errors
/// [`GenerateError`]; tokens that `on_token` has seen by then stay valid.
pub fn generate<D: Decoder>(
    decoder: &mut D,
    prompt: &[u32],
    options: &GenerateOptions,
    on_token: impl FnMut(u32) -> ControlFlow<()>,
) -> Result<Generation, GenerateError> {
    generate_from(decoder, prompt, 0, options, on_token)
}

/// As [`generate`], of a decoder whose sequence begins with the first `cached` tokens of the prompt: what of them it can
/// [keep](Decoder::keep) is not computed again.
///
/// # Errors
/// As [`generate`].
pub fn generate_from<D: Decoder>(
    decoder: &mut D,
    prompt: &[u32],
    cached: usize,
    options: &GenerateOptions,
    mut on_token: impl FnMut(u32) -> ControlFlow<()>,
) -> Result<Generation, GenerateError> {
    let mut sampler = Sampler::new(options.sampling)?;
    check_request(prompt, options.max_new_tokens, decoder.vocab_size(), decoder.max_positions())?;
    // The logits of the last token are needed, so at least that one goes through the model.
    let kept = match cached.min(prompt.len() - 1) {
        0 => {
            decoder.reset();
            0
        }
        cached => decoder.keep(cached),
    };
    let failed = |position, source| GenerateError::Forward { position, source: Box::new(source) };
    decoder.prepare(prompt.len() + options.max_new_tokens).map_err(|source| failed(0, source))?;

    let start = Instant::now();
    let mut timings = Timings::default();
    let mut ids = Vec::with_capacity(options.max_new_tokens);
    let mut step = &prompt[kept..];
    let stop = loop {
        let position = if ids.is_empty() { kept } else { prompt.len() + ids.len() - 1 };
        let logits = decoder.forward(step).map_err(|source| failed(position, source))?;
        let token = sampler.sample(logits)?;
        ids.push(token);
        timings.total = start.elapsed();
        if ids.len() == 1 {
            timings.prefill = timings.total;
        }
        if on_token(token).is_break() {
            break Stop::Caller;
        }
        if !options.ignore_eos && options.stop.contains(token) {
            break Stop::Eos(token);
        }
        if ids.len() == options.max_new_tokens {
            break Stop::Length;
        }
        step = &ids[ids.len() - 1..];
    };
    Ok(Generation { ids, stop, timings })
}

/// Whether `new` tokens after `prompt` are possible at all: the checks of [`generate`], for a program that wants them
/// before it loads a model.
///
/// # Errors
/// [`GenerateError`]: an empty prompt, no new tokens, too many positions, an id outside the vocabulary.
pub fn check_request(prompt: &[u32], new: usize, vocab_size: usize, max_positions: usize) -> Result<(), GenerateError> {
    if prompt.is_empty() {
        return Err(GenerateError::EmptyPrompt);
    }
    if new == 0 {
        return Err(GenerateError::NoNewTokens);
    }
    if prompt.len().checked_add(new).is_none_or(|sum| sum > max_positions) {
        return Err(GenerateError::TooLong { prompt: prompt.len(), new, max: max_positions });
    }
    match prompt.iter().position(|&id| id as usize >= vocab_size) {
        Some(position) => Err(GenerateError::OutsideVocab { position, id: prompt[position], vocab: vocab_size }),
        None => Ok(()),
    }
}
