// SPDX-License-Identifier: MIT OR Apache-2.0

//! Codes of a panel of 64 outputs, brought into the orders that the products read.
//!
//! Transpositions work on words of 8 bytes, which any optimiser keeps in registers.

use cpu_tiles::PANEL;
use cpu_tiles::vectorize::{Loops, vectorize};
use cpu_tiles::{E8M0, Level};

use crate::shape::{Dims, Weights};

/// Where the codes of a panel lie in a matrix of codes: its `width` outputs, for some inputs from `start` on.
#[derive(Clone, Copy)]
pub(crate) struct PanelCodes<'a> {
    /// The matrix of one expert.
    pub(crate) matrix: &'a [u8],
    /// Whether the inputs of an output are contiguous.
    pub(crate) transposed: bool,
    /// Codes from one row of the matrix to the next.
    pub(crate) stride: usize,
    /// The first output.
    pub(crate) output: usize,
    /// Outputs, at most 64.
    pub(crate) width: usize,
    /// The first input.
    pub(crate) k: usize,
}

impl<'a> PanelCodes<'a> {
    pub(crate) fn new(dims: &Dims, weights: &Weights<'a>, expert: usize, panel: usize) -> Self {
        let (begin, output) = (expert * dims.k * dims.n, panel * PANEL);
        Self {
            matrix: &weights.x2.bytes()[begin..begin + dims.k * dims.n],
            transposed: weights.transpose_x2,
            stride: if weights.transpose_x2 { dims.k } else { dims.n },
            output,
            width: PANEL.min(dims.n - output),
            k: 0,
        }
    }

    /// `count` codes along the contiguous axis, from `output` of the panel and `k` on.
    #[inline(always)]
    fn run(&self, output: usize, k: usize, count: usize) -> &'a [u8] {
        let (output, k) = (self.output + output, self.k + k);
        let at = if self.transposed { output * self.stride + k } else { k * self.stride + output };
        &self.matrix[at..at + count]
    }
}

#[inline(always)]
fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]])
}

/// Exchanges the parts of `a` above `shift` with those of `b` below, as `mask` says.
#[inline(always)]
fn exchange(words: &mut [u64], a: usize, b: usize, shift: u32, mask: u64) {
    let difference = ((words[a] >> shift) ^ words[b]) & mask;
    words[a] ^= difference << shift;
    words[b] ^= difference;
}

/// Byte `j` of word `i` becomes byte `i` of word `j`.
#[inline(always)]
fn transpose_bytes(words: &mut [u64; 8]) {
    for i in 0..4 {
        exchange(words, i, i + 4, 32, 0x0000_0000_FFFF_FFFF);
    }
    for i in [0, 1, 4, 5] {
        exchange(words, i, i + 2, 16, 0x0000_FFFF_0000_FFFF);
    }
    for i in [0, 2, 4, 6] {
        exchange(words, i, i + 1, 8, 0x00FF_00FF_00FF_00FF);
    }
}

/// Pair `j` of word `i` becomes pair `i` of word `j`.
#[inline(always)]
fn transpose_pairs(words: &mut [u64; 4]) {
    for i in [0, 1] {
        exchange(words, i, i + 2, 32, 0x0000_0000_FFFF_FFFF);
    }
    for i in [0, 2] {
        exchange(words, i, i + 1, 16, 0x0000_FFFF_0000_FFFF);
    }
}

/// Writes the panel as rows `[width][k]`; `k`, which is a multiple of 32, is what `rows` has room for. The panel's matrix is
/// not transposed.
pub(crate) fn to_rows(level: Level, panel: PanelCodes<'_>, rows: &mut [u8]) {
    struct ToRows<'a>(PanelCodes<'a>, &'a mut [u8]);
    impl Loops for ToRows<'_> {
        type Output = ();
        #[inline(always)]
        fn run(self) {
            let Self(panel, rows) = self;
            let k = rows.len() / panel.width;
            // A block is gathered in the first-level cache and written in whole lines: lines of different rows a power of two
            // apart would drive each other out of it.
            let mut block = [0_u8; PANEL * PANEL];
            for k0 in (0..k).step_by(PANEL) {
                let inputs = PANEL.min(k - k0);
                for k8 in (0..inputs).step_by(8) {
                    for output in (0..panel.width / 8 * 8).step_by(8) {
                        let mut words = [0; 8];
                        for i in 0..8 {
                            words[i] = word(panel.run(output, k0 + k8 + i, 8));
                        }
                        transpose_bytes(&mut words);
                        for i in 0..8 {
                            block[(output + i) * PANEL + k8..][..8].copy_from_slice(&words[i].to_le_bytes());
                        }
                    }
                    for output in panel.width / 8 * 8..panel.width {
                        for i in 0..8 {
                            block[output * PANEL + k8 + i] = panel.run(output, k0 + k8 + i, 1)[0];
                        }
                    }
                }
                for output in 0..panel.width {
                    rows[output * k + k0..][..inputs].copy_from_slice(&block[output * PANEL..][..inputs]);
                }
            }
        }
    }
    vectorize(level, ToRows(panel, rows));
}

/// Writes the panel as pairs along K, `[k / 2][64][2]`, with zeros for the outputs it does not have; `k`, which is a multiple
/// of 32, is what `pairs` has room for.
pub(crate) fn to_pairs(level: Level, panel: PanelCodes<'_>, pairs: &mut [u8]) {
    struct ToPairs<'a>(PanelCodes<'a>, &'a mut [u8]);
    impl Loops for ToPairs<'_> {
        type Output = ();
        #[inline(always)]
        fn run(self) {
            let Self(panel, pairs) = self;
            if !panel.transposed {
                for (pair, pairs) in pairs.chunks_exact_mut(2 * PANEL).enumerate() {
                    let first = panel.run(0, 2 * pair, panel.width);
                    let second = panel.run(0, 2 * pair + 1, panel.width);
                    let (used, unused) = pairs.split_at_mut(2 * panel.width);
                    for ((pair, first), second) in used.chunks_exact_mut(2).zip(first).zip(second) {
                        pair[0] = *first;
                        pair[1] = *second;
                    }
                    unused.fill(0);
                }
                return;
            }
            // Four pairs a step, and all outputs, so that what is written is one line for each pair.
            for (step, pairs) in pairs.chunks_exact_mut(8 * PANEL).enumerate() {
                for output in (0..panel.width / 4 * 4).step_by(4) {
                    let mut words = [0; 4];
                    for i in 0..4 {
                        words[i] = word(panel.run(output + i, 8 * step, 8));
                    }
                    transpose_pairs(&mut words);
                    for i in 0..4 {
                        pairs[(i * PANEL + output) * 2..][..8].copy_from_slice(&words[i].to_le_bytes());
                    }
                }
                for output in panel.width / 4 * 4..PANEL {
                    for i in 0..4 {
                        let pair = &mut pairs[(i * PANEL + output) * 2..][..2];
                        if output < panel.width {
                            pair.copy_from_slice(panel.run(output, 8 * step + 2 * i, 2));
                        } else {
                            pair.fill(0);
                        }
                    }
                }
            }
        }
    }
    vectorize(level, ToPairs(panel, pairs));
}

/// Writes the scales of a panel as rows `[width][k / 32]`: those of a linear layer's weight.
pub(crate) fn scales_to_rows(dims: &Dims, weights: &Weights<'_>, expert: usize, panel: usize, rows: &mut [E8M0]) {
    for (output, row) in rows.chunks_exact_mut(dims.groups()).enumerate() {
        for (group, scale) in row.iter_mut().enumerate() {
            *scale = weights.scale(dims, expert, panel * PANEL + output, group);
        }
    }
}

/// Writes the scales of a panel as `[k / 32][64]`, with 1.0 for the outputs it does not have.
pub(crate) fn scales_to_groups(dims: &Dims, weights: &Weights<'_>, expert: usize, panel: usize, groups: &mut [E8M0]) {
    for (group, row) in groups.chunks_exact_mut(PANEL).enumerate() {
        for (output, scale) in (panel * PANEL..).zip(row) {
            let one = E8M0::from_bits(127);
            *scale = if output < dims.n { weights.scale(dims, expert, output, group) } else { one };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpu_tiles::weights::{Format, packed_index};

    /// Every width of a panel, both layouts, against the definition.
    #[test]
    fn both_orders_of_both_layouts() {
        let (n, k) = (64 + 64, 96 + 32);
        let value = |output: usize, k: usize| (output * 151 + k * 29 + k / 7) as u8;
        for width in 1..=PANEL {
            for transposed in [false, true] {
                let at = |i: usize| if transposed { value(i / k, i % k) } else { value(i % n, i / n) };
                let matrix: Vec<u8> = (0..n * k).map(at).collect();
                let stride = if transposed { k } else { n };
                let panel = PanelCodes { matrix: &matrix, transposed, stride, output: 64, width, k: 32 };
                for level in Level::available() {
                    let mut pairs = vec![0xEE; 96 * PANEL];
                    to_pairs(level, panel, &mut pairs);
                    for output in 0..PANEL {
                        for k in 0..96 {
                            let expected = if output < width { value(64 + output, 32 + k) } else { 0 };
                            assert_eq!(pairs[packed_index(Format::Bf16, output, k)], expected);
                        }
                    }
                    if !transposed {
                        let mut rows = vec![0xEE; 96 * width];
                        to_rows(level, panel, &mut rows);
                        for (i, &code) in rows.iter().enumerate() {
                            assert_eq!(code, value(64 + i / 96, 32 + i % 96), "width {width} at {level}");
                        }
                    }
                }
            }
        }
    }
}
