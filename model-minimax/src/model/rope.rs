// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rotary position embedding of the first channels of each head.
//!
//! Channels `i` and `i + rotary_dim / 2` are a pair, rotated by `position * theta^(-2i / rotary_dim)`. Frequencies and
//! angles are rounded to F32 as in the reference implementation: at position 200000 the exact angle differs by 3e-3.

/// Cosines and sines of the positions seen so far.
#[derive(Debug, Clone)]
pub struct Rope {
    frequencies: Vec<f32>,
    /// `[positions][rotary_dim / 2]`, as are the sines.
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl Rope {
    /// The rotation of `rotary_dim` (even) channels with the base `theta`, for no positions yet.
    pub fn new(theta: f64, rotary_dim: usize) -> Self {
        let frequency = |i| 1.0 / theta.powf((2 * i) as f64 / rotary_dim as f64) as f32;
        Self { frequencies: (0..rotary_dim / 2).map(frequency).collect(), cos: Vec::new(), sin: Vec::new() }
    }

    /// Angle per position of each pair, `[rotary_dim / 2]`.
    pub fn frequencies(&self) -> &[f32] {
        &self.frequencies
    }

    /// Makes positions below `positions` available to [`Rope::rotate`].
    pub fn extend(&mut self, positions: usize) {
        let pairs = self.frequencies.len().max(1);
        for position in self.cos.len() / pairs..positions {
            for frequency in &self.frequencies {
                let (sin, cos) = f64::from(position as f32 * frequency).sin_cos();
                self.cos.push(cos as f32);
                self.sin.push(sin as f32);
            }
        }
    }

    /// Rotates the first `rotary_dim` channels of a head in place.
    ///
    /// # Panics
    /// When the position is beyond those asked for with [`Rope::extend`], or the head has fewer channels.
    pub fn rotate(&self, position: usize, head: &mut [f32]) {
        let pairs = self.frequencies.len();
        let table = position * pairs..(position + 1) * pairs;
        let (first, second) = head[..2 * pairs].split_at_mut(pairs);
        let angles = self.cos[table.clone()].iter().zip(&self.sin[table]);
        for ((a, b), (cos, sin)) in first.iter_mut().zip(second).zip(angles) {
            (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
        }
    }
}
