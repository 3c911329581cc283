// SPDX-License-Identifier: MIT OR Apache-2.0

//! Codes and scales of a panel of 64 outputs in the orders that the products read.

use crate::shape::{Dims, Weights};
use cpu_tiles::vectorize::{Loops, vectorize};
use cpu_tiles::weights::MX_GROUP;
use cpu_tiles::{E8M0, Level, PANEL};

/// Codes in a pair of inputs of a panel.
const PAIR: usize = 2 * PANEL;

/// The order of packed codes, see [`cpu_tiles::weights`].
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Order {
    /// That of E4M3: `[k / 4][16 groups of 4 outputs][2 pairs along K][4 outputs][2]`.
    Quads,
    /// That of BF16: `[k / 2][64][2]`.
    Pairs,
}

/// Where the codes of a panel lie in a matrix of codes: its `width` outputs, for inputs from `k` on.
#[derive(Clone, Copy)]
pub(crate) struct PanelCodes<'a> {
    /// The matrix of one expert.
    matrix: &'a [u8],
    /// Whether the inputs of an output are contiguous.
    transposed: bool,
    /// Codes from one row of the matrix to the next.
    stride: usize,
    /// The first output.
    output: usize,
    /// Outputs, at most 64.
    width: usize,
    /// The first input.
    k: usize,
}

impl<'a> PanelCodes<'a> {
    pub(crate) fn new(dims: &Dims, weights: &Weights<'a>, expert: usize, panel: usize, k: usize) -> Self {
        let (begin, output) = (expert * dims.k * dims.n, panel * PANEL);
        Self {
            matrix: &weights.x2.bytes()[begin..begin + dims.k * dims.n],
            transposed: weights.transpose_x2,
            stride: if weights.transpose_x2 { dims.k } else { dims.n },
            output,
            width: PANEL.min(dims.n - output),
            k,
        }
    }

    /// `count` codes along the contiguous axis, from `output` of the panel and `k` on.
    #[inline(always)]
    fn run(&self, output: usize, k: usize, count: usize) -> &'a [u8] {
        // The slice is checked, so the arithmetic need not be.
        let (output, k) = (self.output.wrapping_add(output), self.k.wrapping_add(k));
        let (row, column) = if self.transposed { (output, k) } else { (k, output) };
        let at = row.wrapping_mul(self.stride).wrapping_add(column);
        &self.matrix[at..at.wrapping_add(count)]
    }
}

#[inline(always)]
fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]])
}

/// Exchanges the upper part of `a`, above `shift` bits, with the lower part of `b`, as `mask` says.
#[inline(always)]
fn exchange(words: &mut [u64; 4], a: usize, b: usize, shift: u32, mask: u64) {
    let difference = ((words[a] >> shift) ^ words[b]) & mask;
    words[a] ^= difference << shift;
    words[b] ^= difference;
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

/// Writes inputs of a panel in packed order, with zeros for the outputs that it does not have. How many inputs, a multiple of
/// 32, is what `packed` has room for.
pub(crate) fn pack(level: Level, panel: PanelCodes<'_>, order: Order, packed: &mut [u8]) {
    match order {
        Order::Quads => vectorize(level, Pack::<true> { panel, packed }),
        Order::Pairs => vectorize(level, Pack::<false> { panel, packed }),
    }
}

struct Pack<'a, const QUADS: bool> {
    panel: PanelCodes<'a>,
    packed: &'a mut [u8],
}

/// Where a pair of inputs of four outputs lies among four inputs of a panel.
#[inline(always)]
fn word_at<const QUADS: bool>(pair: usize, outputs: usize) -> usize {
    if QUADS { outputs * 16 + pair * 8 } else { pair * PAIR + outputs * 8 }
}

impl<const QUADS: bool> Loops for Pack<'_, QUADS> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { panel, packed } = self;
        if panel.transposed {
            let mut rows: [&[u8]; PANEL] = [&[]; PANEL];
            for output in 0..panel.width {
                rows[output] = panel.run(output, 0, packed.len() / PANEL);
            }
            // Eight inputs a step, and all outputs, so that what is written is whole lines.
            for (step, packed) in packed.chunks_exact_mut(4 * PAIR).enumerate() {
                for (outputs, rows) in rows.chunks_exact(4).enumerate() {
                    let mut words = [0; 4];
                    for i in 0..4 {
                        words[i] = rows[i].get(8 * step..8 * step + 8).map_or(0, word);
                    }
                    transpose_pairs(&mut words);
                    for i in 0..4 {
                        let at = i / 2 * 2 * PAIR + word_at::<QUADS>(i % 2, outputs);
                        packed[at..at + 8].copy_from_slice(&words[i].to_le_bytes());
                    }
                }
            }
        } else {
            // Lines that are copied first come from memory side by side.
            let mut lines = [[0; PANEL]; MX_GROUP];
            for (step, packed) in packed.chunks_exact_mut(MX_GROUP * PANEL).enumerate() {
                for i in 0..MX_GROUP {
                    let line = panel.run(0, MX_GROUP * step + i, panel.width);
                    match line.first_chunk() {
                        Some(line) => lines[i] = *line,
                        None => lines[i][..line.len()].copy_from_slice(line),
                    }
                }
                for (lines, packed) in lines.chunks_exact(4).zip(packed.chunks_exact_mut(2 * PAIR)) {
                    for i in 0..2 {
                        let mut pair = [0; PAIR];
                        for output in 0..PANEL {
                            pair[2 * output] = lines[2 * i][output];
                            pair[2 * output + 1] = lines[2 * i + 1][output];
                        }
                        for outputs in 0..PANEL / 4 {
                            let at = word_at::<QUADS>(i, outputs);
                            packed[at..at + 8].copy_from_slice(&pair[8 * outputs..8 * outputs + 8]);
                        }
                    }
                }
            }
        }
    }
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
                for (order, format) in [(Order::Quads, Format::Mxfp8), (Order::Pairs, Format::Bf16)] {
                    for level in Level::available() {
                        let mut packed = vec![0xEE; 96 * PANEL];
                        pack(level, panel, order, &mut packed);
                        for output in 0..PANEL {
                            for k in 0..96 {
                                let expected = if output < width { value(64 + output, 32 + k) } else { 0 };
                                assert_eq!(packed[packed_index(format, output, k)], expected, "{width} at {level}");
                            }
                        }
                    }
                }
            }
        }
    }
}
