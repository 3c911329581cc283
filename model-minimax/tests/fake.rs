// SPDX-License-Identifier: MIT OR Apache-2.0

//! A decoder without weights: the next token is the last one plus one, modulo the vocabulary.

use model_minimax::bench::{Arm, BenchDecoder};
use model_minimax::generate::Decoder;

pub(crate) struct Fake {
    logits: Vec<f32>,
    max_positions: usize,
    /// The ids of every forward pass since the last reset.
    pub(crate) passes: Vec<Vec<u32>>,
    /// Resets so far.
    pub(crate) resets: usize,
    /// Every choice of an arm, in order.
    pub(crate) arms: Vec<Arm>,
    /// The forward pass after a reset that fails, if any.
    pub(crate) fail_at: Option<usize>,
}

#[derive(Debug, thiserror::Error)]
#[error("the fake gave up")]
pub(crate) struct GaveUp;

impl Fake {
    pub(crate) fn new(vocab: usize, max_positions: usize) -> Self {
        Self { logits: vec![0.0; vocab], max_positions, passes: Vec::new(), resets: 0, arms: Vec::new(), fail_at: None }
    }
}

impl Decoder for Fake {
    type Error = GaveUp;

    fn vocab_size(&self) -> usize {
        self.logits.len()
    }

    fn max_positions(&self) -> usize {
        self.max_positions
    }

    fn reset(&mut self) {
        self.passes.clear();
        self.resets += 1;
    }

    fn forward(&mut self, ids: &[u32]) -> Result<&[f32], GaveUp> {
        if self.fail_at == Some(self.passes.len()) {
            return Err(GaveUp);
        }
        self.passes.push(ids.to_vec());
        self.logits.fill(0.0);
        let next = (ids[ids.len() - 1] as usize + 1) % self.logits.len();
        self.logits[next] = 1.0;
        Ok(&self.logits)
    }
}

impl BenchDecoder for Fake {
    fn set_arm(&mut self, arm: Arm) {
        self.arms.push(arm);
    }

    fn forward_window(&mut self, ids: &[u32]) -> Result<&[f32], GaveUp> {
        self.forward(ids)
    }

    fn decode_bytes(&self, _context: usize) -> u64 {
        1_000_000
    }
}
