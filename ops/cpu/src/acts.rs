// SPDX-License-Identifier: MIT OR Apache-2.0

//! Activations in the form the kernels of a level read.

use crate::convert;
use crate::level::Level;
use crate::mem::Buffer;
use crate::threads::{ColumnPanel, ColumnPanels, Pool};
use crate::weights::{PANEL, ShapeError, check_len};
use half::bf16;
use std::fmt;
use std::ops::Range;
use zerocopy::FromBytes;

/// The number format that activations are rounded to between operations. Sums are F32 in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// No rounding beyond F32 arithmetic: the exact mode.
    F32,
    /// BF16, rounded to nearest even.
    Bf16,
}

/// An activation matrix `[m, k]`, held as the level multiplies it: BF16 pairs where the level has BF16 dot products and
/// the precision is BF16, F32 values (rounded to BF16 if that is the precision) everywhere else.
///
/// Rows are padded with zeros to a multiple of 4.
pub struct Acts {
    level: Level,
    precision: Precision,
    m: usize,
    k: usize,
    /// Values from one row to the next.
    stride: usize,
    buffer: Buffer,
}

impl fmt::Debug for Acts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Acts([{}, {}], {:?}, {})", self.m, self.k, self.precision, self.level)
    }
}

impl Acts {
    /// A matrix of zeros.
    pub fn zeroed(level: Level, precision: Precision, m: usize, k: usize) -> Result<Self, ShapeError> {
        let stride = row_stride(k);
        let size = if precision == Precision::Bf16 && level.has_bf16_dot() { 2 } else { 4 };
        let bytes = m.checked_mul(stride).and_then(|values| values.checked_mul(size));
        let bytes = bytes.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::OutOfMemory))?;
        Ok(Self { level, precision, m, k, stride, buffer: Buffer::zeroed(bytes)? })
    }

    /// The matrix `x`, BF16 `[m, k]`. Exact in either precision.
    pub fn from_bf16(
        level: Level,
        pool: &Pool,
        precision: Precision,
        m: usize,
        k: usize,
        x: &[bf16],
    ) -> Result<Self, ShapeError> {
        check_len("x", x.len(), &[m, k])?;
        let mut acts = Self::zeroed(level, precision, m, k)?;
        acts.write_bf16(pool, x)?;
        Ok(acts)
    }

    /// The matrix `x`, F32 `[m, k]`, rounded to the precision.
    pub fn from_f32(
        level: Level,
        pool: &Pool,
        precision: Precision,
        m: usize,
        k: usize,
        x: &[f32],
    ) -> Result<Self, ShapeError> {
        check_len("x", x.len(), &[m, k])?;
        let mut acts = Self::zeroed(level, precision, m, k)?;
        acts.write_f32(pool, x)?;
        Ok(acts)
    }

    /// Makes this `[m, k]` of the given kind, in the memory it has where that is enough: for activations of one step after the
    /// other. Values are of no meaning until written.
    ///
    /// # Errors
    /// [`ShapeError::Memory`]; the matrix is then of no meaning until it is resized again.
    pub fn resize(&mut self, level: Level, precision: Precision, m: usize, k: usize) -> Result<(), ShapeError> {
        self.reuse(level, precision, m, k)?;
        let padding = k..k.next_multiple_of(4);
        if !padding.is_empty() {
            let (values, stride) = self.rows_mut();
            match values {
                ValuesMut::F32(values) => {
                    values.chunks_exact_mut(stride).take(m).for_each(|row| row[padding.clone()].fill(0.0));
                }
                ValuesMut::Bf16(values) => {
                    values.chunks_exact_mut(stride).take(m).for_each(|row| row[padding.clone()].fill(bf16::ZERO));
                }
            }
        }
        Ok(())
    }

    /// The matrix in `slot`, [resized](Self::resize), or a new one where there was none.
    ///
    /// # Errors
    /// [`ShapeError::Memory`].
    pub fn resized(
        slot: &mut Option<Self>,
        level: Level,
        precision: Precision,
        m: usize,
        k: usize,
    ) -> Result<&mut Self, ShapeError> {
        match slot {
            Some(acts) => {
                acts.resize(level, precision, m, k)?;
                Ok(acts)
            }
            None => Ok(slot.insert(Self::zeroed(level, precision, m, k)?)),
        }
    }

    /// Writes the matrix `x`, BF16 `[m, k]`, in place of what was there. Exact in either precision.
    ///
    /// # Errors
    /// [`ShapeError::Length`].
    pub fn write_bf16(&mut self, pool: &Pool, x: &[bf16]) -> Result<(), ShapeError> {
        let (level, k) = (self.level, self.k);
        check_len("x", x.len(), &[self.m, k])?;
        self.fill(pool, |row, out| match out {
            RowMut::F32(out) => convert::bf16_to_f32(level, &x[row * k..(row + 1) * k], out),
            RowMut::Bf16(out) => out.copy_from_slice(&x[row * k..(row + 1) * k]),
        });
        Ok(())
    }

    /// Writes the matrix `x`, F32 `[m, k]`, rounded to the precision, in place of what was there.
    ///
    /// # Errors
    /// [`ShapeError::Length`].
    pub fn write_f32(&mut self, pool: &Pool, x: &[f32]) -> Result<(), ShapeError> {
        let Self { level, precision, k, .. } = *self;
        check_len("x", x.len(), &[self.m, k])?;
        self.fill(pool, |row, out| store(level, precision, &x[row * k..(row + 1) * k], out));
        Ok(())
    }

    fn fill(&mut self, pool: &Pool, row: impl Fn(usize, RowMut<'_>) + Sync) {
        let (m, k, stride) = (self.m, self.k, self.stride);
        // A task is some ten thousand values; the split has no effect on the result.
        let rows = (16384 / stride).max(1);
        match self.values_mut() {
            ValuesMut::F32(values) => {
                pool.for_each_chunk_mut(&mut values[..m * stride], rows * stride, |task, chunk| {
                    for (i, out) in chunk.chunks_exact_mut(stride).enumerate() {
                        row(task * rows + i, RowMut::F32(&mut out[..k]));
                    }
                });
            }
            ValuesMut::Bf16(values) => {
                pool.for_each_chunk_mut(&mut values[..m * stride], rows * stride, |task, chunk| {
                    for (i, out) in chunk.chunks_exact_mut(stride).enumerate() {
                        row(task * rows + i, RowMut::Bf16(&mut out[..k]));
                    }
                });
            }
        }
    }

    /// Rows.
    pub fn m(&self) -> usize {
        self.m
    }

    /// Columns.
    pub fn k(&self) -> usize {
        self.k
    }

    /// The precision that values are rounded to.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// The level the matrix was made for.
    pub fn level(&self) -> Level {
        self.level
    }

    pub(crate) fn values(&self) -> Values<'_> {
        const ALIGNED: &str = "a buffer is aligned to 64 bytes, and its length is a multiple of the value size";
        if self.is_bf16() {
            Values::Bf16(<[bf16]>::ref_from_bytes(&self.buffer).expect(ALIGNED), self.stride)
        } else {
            Values::F32(<[f32]>::ref_from_bytes(&self.buffer).expect(ALIGNED), self.stride)
        }
    }

    /// Makes this `[m, k]` of the given kind, in the memory it has where that is enough: for scratch that is used again and
    /// again. Values are of no meaning until written, the padding to a multiple of 4 too.
    pub(crate) fn reuse(&mut self, level: Level, precision: Precision, m: usize, k: usize) -> Result<(), ShapeError> {
        let have = self.buffer.len();
        (self.level, self.precision, self.m, self.k, self.stride) = (level, precision, m, k, row_stride(k));
        let size = if self.is_bf16() { 2 } else { 4 };
        let need = m.checked_mul(self.stride).and_then(|values| values.checked_mul(size));
        if need.is_none_or(|need| need > have) {
            *self = Self::zeroed(level, precision, m, k)?;
        }
        Ok(())
    }

    /// All rows, and the values from one to the next.
    pub(crate) fn rows_mut(&mut self) -> (ValuesMut<'_>, usize) {
        let stride = self.stride;
        (self.values_mut(), stride)
    }

    fn values_mut(&mut self) -> ValuesMut<'_> {
        const ALIGNED: &str = "a buffer is aligned to 64 bytes, and its length is a multiple of the value size";
        if self.is_bf16() {
            ValuesMut::Bf16(<[bf16]>::mut_from_bytes(&mut self.buffer).expect(ALIGNED))
        } else {
            ValuesMut::F32(<[f32]>::mut_from_bytes(&mut self.buffer).expect(ALIGNED))
        }
    }

    fn is_bf16(&self) -> bool {
        self.precision == Precision::Bf16 && self.level.has_bf16_dot()
    }

    /// The value at `[row, column]`.
    ///
    /// # Panics
    /// When the index is out of range.
    pub fn get(&self, row: usize, column: usize) -> f32 {
        assert!(row < self.m && column < self.k, "[{row}, {column}] of [{}, {}] activations", self.m, self.k);
        match self.values() {
            Values::F32(values, stride) => values[row * stride + column],
            Values::Bf16(values, stride) => values[row * stride + column].to_f32(),
        }
    }

    /// The matrix in panels of [`PANEL`] columns, for writing from several threads.
    pub fn panels(&mut self) -> ActsPanels<'_> {
        self.cut(|values, stride| match values {
            ValuesMut::F32(values) => AnyPanels::F32(ColumnPanels::new(values, stride, PANEL)),
            ValuesMut::Bf16(values) => AnyPanels::Bf16(ColumnPanels::new(values, stride, PANEL)),
        })
    }

    /// As [`panels`](Self::panels), with the rows cut into `groups` too. The panels of a group count from 0, as its rows do.
    ///
    /// # Panics
    /// When the groups overlap, do not ascend, or end beyond the rows: a mistake in the splitting code, not in data.
    pub fn panels_in_groups<'a>(&'a mut self, groups: &'a [Range<usize>]) -> ActsPanels<'a> {
        self.cut(|values, stride| match values {
            ValuesMut::F32(values) => AnyPanels::F32(ColumnPanels::in_groups(values, stride, PANEL, groups)),
            ValuesMut::Bf16(values) => AnyPanels::Bf16(ColumnPanels::in_groups(values, stride, PANEL, groups)),
        })
    }

    fn cut<'a>(&'a mut self, cut: impl FnOnce(ValuesMut<'a>, usize) -> AnyPanels<'a>) -> ActsPanels<'a> {
        let Self { level, precision, m, k, stride, .. } = *self;
        let values = match self.values_mut() {
            ValuesMut::F32(values) => ValuesMut::F32(&mut values[..m * stride]),
            ValuesMut::Bf16(values) => ValuesMut::Bf16(&mut values[..m * stride]),
        };
        // A row has room for more columns than the matrix.
        ActsPanels { level, precision, k, across: stride.div_ceil(PANEL), panels: cut(values, stride) }
    }
}

pub(crate) enum Values<'a> {
    F32(&'a [f32], usize),
    Bf16(&'a [bf16], usize),
}

pub(crate) enum ValuesMut<'a> {
    F32(&'a mut [f32]),
    Bf16(&'a mut [bf16]),
}

/// Values from one row of `k` to the next: a line more than needed, so that rows of a power-of-two length do not fall on the
/// same cache sets.
fn row_stride(k: usize) -> usize {
    k.next_multiple_of(32) + 32
}

enum RowMut<'a> {
    F32(&'a mut [f32]),
    Bf16(&'a mut [bf16]),
}

fn store(level: Level, precision: Precision, x: &[f32], out: RowMut<'_>) {
    match out {
        RowMut::F32(out) => {
            out.copy_from_slice(x);
            if precision == Precision::Bf16 {
                convert::round_to_bf16(level, out);
            }
        }
        RowMut::Bf16(out) => convert::f32_to_bf16(level, x, out),
    }
}

enum AnyPanels<'a> {
    F32(ColumnPanels<'a, f32>),
    Bf16(ColumnPanels<'a, bf16>),
}

/// [`Acts`] in panels of [`PANEL`] columns that different threads may write at the same time.
pub struct ActsPanels<'a> {
    level: Level,
    precision: Precision,
    k: usize,
    /// Panels of a row.
    across: usize,
    panels: AnyPanels<'a>,
}

/// One claimed panel of [`ActsPanels`].
pub struct ActsPanel<'a> {
    level: Level,
    precision: Precision,
    width: usize,
    panel: AnyPanel<'a>,
}

enum AnyPanel<'a> {
    F32(ColumnPanel<'a, f32>),
    Bf16(ColumnPanel<'a, bf16>),
}

impl<'a> ActsPanels<'a> {
    /// Takes panel `index`, columns from `64 * index`, of all rows.
    ///
    /// # Panics
    /// When the index is out of range or the panel has been taken before.
    pub fn claim(&self, index: usize) -> ActsPanel<'a> {
        self.claim_in(0, index)
    }

    /// Takes panel `index`, columns from `64 * index`, of the rows of a group.
    ///
    /// # Panics
    /// When there is no such group or panel, or the panel has been taken before.
    pub fn claim_in(&self, group: usize, index: usize) -> ActsPanel<'a> {
        assert!(index < self.across, "panel {index} of {}", self.across);
        let place = group * self.across + index;
        let panel = match &self.panels {
            AnyPanels::F32(panels) => AnyPanel::F32(panels.claim(place)),
            AnyPanels::Bf16(panels) => AnyPanel::Bf16(panels.claim(place)),
        };
        let width = self.k.saturating_sub(index * PANEL).min(PANEL);
        ActsPanel { level: self.level, precision: self.precision, width, panel }
    }
}

impl ActsPanel<'_> {
    /// The panel's columns inside the matrix.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Writes the panel's part of `row`, rounded to the precision of the matrix. Values beyond the width are ignored.
    ///
    /// # Panics
    /// When `row` is out of range or `x` is shorter than the width.
    pub fn store(&mut self, row: usize, x: &[f32]) {
        let width = self.width;
        let out = match &mut self.panel {
            AnyPanel::F32(panel) => RowMut::F32(&mut panel.row(row)[..width]),
            AnyPanel::Bf16(panel) => RowMut::Bf16(&mut panel.row(row)[..width]),
        };
        store(self.level, self.precision, &x[..width], out);
    }
}

impl fmt::Debug for ActsPanels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ActsPanels({} columns, {:?}, {})", self.k, self.precision, self.level)
    }
}

impl fmt::Debug for ActsPanel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ActsPanel({} columns, {:?}, {})", self.width, self.precision, self.level)
    }
}
