// SPDX-License-Identifier: MIT OR Apache-2.0

//! Activations as the tiles take them.

use crate::error::Error;
use crate::shape::{Codes, Dims, Inputs};
use cpu_tiles::formats::{E4M3_TO_F32, E5M2_TO_F32};
use cpu_tiles::weights::MX_GROUP;
use cpu_tiles::{Acts, Level, PANEL, Pool, Precision};
use std::ops::Range;

/// Rows of `x1` in one precision.
pub(crate) struct Part {
    /// Which rows these are, ascending.
    rows: Vec<u32>,
    /// Their values for each chunk of inputs.
    pub(crate) chunks: Vec<Acts>,
}

impl Part {
    /// The part's own rows that are among `rows` of `x1`.
    pub(crate) fn within(&self, rows: &Range<usize>) -> Range<usize> {
        let before = |row: usize| self.rows.partition_point(|&own| (own as usize) < row);
        before(rows.start)..before(rows.end)
    }

    /// Which row of `x1` its own row `own` is.
    pub(crate) fn row(&self, own: usize) -> usize {
        self.rows[own] as usize
    }
}

/// The first `rows` rows of `x1`, dequantised. An FP8 code times a power of two is a BF16 number wherever it is a normal
/// one, so rows of nothing else are kept in BF16 for levels that multiply it, and the few others in F32. Which it is
/// depends on the row alone, and so do its results.
pub(crate) fn parts(
    level: Level,
    pool: &Pool,
    dims: &Dims,
    inputs: &Inputs<'_>,
    rows: usize,
    chunk: usize,
) -> Result<Vec<Part>, Error> {
    let values = Values::new(dims, inputs);
    let is_narrow = |row: &u32| level.has_bf16_dot() && values.are_bf16(*row as usize);
    let (narrow, wide): (Vec<u32>, Vec<u32>) = (0..rows as u32).partition(is_narrow);
    let mut parts = Vec::new();
    for (rows, precision) in [(narrow, Precision::Bf16), (wide, Precision::F32)] {
        if rows.is_empty() {
            continue;
        }
        let mut chunks = Vec::new();
        for k in (0..dims.k).step_by(chunk) {
            let inputs = chunk.min(dims.k - k);
            let mut acts = Acts::zeroed(level, precision, rows.len(), inputs)?;
            let panels = acts.panels();
            pool.run(inputs.div_ceil(PANEL), |panel| {
                let mut out = panels.claim(panel);
                let mut buffer = [0.0; PANEL];
                let buffer = &mut buffer[..out.width()];
                for (own, &row) in rows.iter().enumerate() {
                    for (group, buffer) in buffer.chunks_exact_mut(MX_GROUP).enumerate() {
                        values.write(row as usize, (k + panel * PANEL) / MX_GROUP + group, buffer);
                    }
                    out.store(own, buffer);
                }
            });
            drop(panels);
            chunks.push(acts);
        }
        parts.push(Part { rows, chunks });
    }
    Ok(parts)
}

/// The values of `x1`.
struct Values<'a> {
    k: usize,
    packs: usize,
    inputs: &'a Inputs<'a>,
    codes: &'a [u8],
    /// Value of each code.
    table: [f32; 256],
    /// The magnitudes, as bits, of the smallest and the largest number but zero.
    extremes: [u32; 2],
}

impl<'a> Values<'a> {
    fn new(dims: &Dims, inputs: &'a Inputs<'a>) -> Self {
        let table = *match inputs.x1 {
            Codes::E4M3(_) => &E4M3_TO_F32,
            Codes::E5M2(_) => &E5M2_TO_F32,
        };
        let numbers = table.iter().filter(|value| value.is_finite() && **value > 0.0).map(|value| value.to_bits());
        let extremes = [numbers.clone().min().unwrap_or(0), numbers.max().unwrap_or(0)];
        Self { k: dims.k, packs: dims.packs(), inputs, codes: inputs.x1.bytes(), table, extremes }
    }

    fn scale(&self, row: usize, group: usize) -> f32 {
        self.inputs.pertoken_scale[row * self.packs * 2 + group].to_f32()
    }

    fn group(&self, row: usize, group: usize) -> &[u8] {
        &self.codes[row * self.k + group * MX_GROUP..][..MX_GROUP]
    }

    /// Writes 32 values.
    fn write(&self, row: usize, group: usize, out: &mut [f32]) {
        let scale = self.scale(row, group);
        for (out, &code) in out.iter_mut().zip(self.group(row, group)) {
            *out = self.table[usize::from(code)] * scale;
        }
    }

    /// Whether BF16 holds the values of a row, and dot products of BF16 take them as they are: not as zero, as they do
    /// with subnormal ones.
    fn are_bf16(&self, row: usize) -> bool {
        (0..self.k / MX_GROUP).all(|group| {
            let scale = self.scale(row, group);
            let in_range = |bits: u32| (f32::from_bits(bits) * scale).is_normal();
            self.extremes.into_iter().all(in_range)
                || self.group(row, group).iter().all(|&code| !(self.table[usize::from(code)] * scale).is_subnormal())
        })
    }
}
