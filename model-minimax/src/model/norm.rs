// SPDX-License-Identifier: MIT OR Apache-2.0

//! Root-mean-square normalisation, in F32.

use cpu_tiles::Level;
use cpu_tiles::math::sum_of_squares;

/// `y = x / sqrt(mean(x^2) + eps) * weight`, over runs of the weight's length.
///
/// A row may be one run or several: a weight as long as a whole projection gives the norm over all heads together, a
/// weight as long as a head one norm per head. A scale that is stored as `w` and means `1 + w` is passed in as `1 + w`.
#[derive(Debug, Clone)]
pub struct RmsNorm {
    weight: Vec<f32>,
    eps: f32,
}

impl RmsNorm {
    /// A norm over runs of `weight.len()` values.
    pub fn new(weight: Vec<f32>, eps: f32) -> Self {
        Self { weight, eps }
    }

    /// Values of a run.
    pub fn width(&self) -> usize {
        self.weight.len()
    }

    /// Normalises every run of `row` in place. Values after the last whole run stay as they are.
    pub fn normalize(&self, level: Level, row: &mut [f32]) {
        for run in row.chunks_exact_mut(self.weight.len().max(1)) {
            let mean = sum_of_squares(level, run) / run.len() as f32;
            let factor = 1.0 / (mean + self.eps).sqrt();
            for (x, weight) in run.iter_mut().zip(&self.weight) {
                *x = *x * factor * weight;
            }
        }
    }
}
