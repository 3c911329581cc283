// SPDX-License-Identifier: MIT OR Apache-2.0

//! Weight matrices in the layout of a linear layer, `[n, k]` = `[out, in]`, in the formats of the checkpoints, either
//! row-major as in the file ([`WeightRef`], used in place) or packed into panels ([`PackedWeight`]).
//!
//! # Packed layout
//! Panels of [`PANEL`] = 64 outputs, K padded to a multiple of 4 and N to one of 64, both with zeros. One layout serves
//! all SIMD levels:
//!
//! | format | order of a panel |
//! | --- | --- |
//! | F32 | `[k][64]` |
//! | BF16 | `[k / 2][64][2]` |
//! | E4M3 | `[k / 4][16 groups of 4 outputs][2 pairs along K][4 outputs][2]` |
//! | E8M0 scales | `[k / 32][64]` |
//!
//! In each, the values that one vector instruction wants are contiguous, and a panel is one sequential stream.

use crate::formats::{E8M0, F8E4M3};
use crate::level::Level;
use crate::mem::Buffer;
use crate::pack;
use crate::threads::Pool;
use half::bf16;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// Outputs of a panel, the unit of packed weights and of tiles.
pub const PANEL: usize = 64;
/// Rows and columns of a block with one scale, in block-scaled FP8.
pub const BLOCK: usize = 128;
/// Values along K with one scale, in MXFP8.
pub const MX_GROUP: usize = 32;

/// How a weight's values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// F32.
    F32,
    /// BF16.
    Bf16,
    /// E4M3 with one F32 scale for each block of 128 x 128 (`weight_scale_inv`, a multiplier).
    Fp8Block,
    /// E4M3 with one E8M0 scale for each 32 values along K.
    Mxfp8,
}

impl Format {
    /// The format's name: `f32`, `bf16`, `fp8`, `mxfp8`.
    pub const fn name(self) -> &'static str {
        match self {
            Format::F32 => "f32",
            Format::Bf16 => "bf16",
            Format::Fp8Block => "fp8",
            Format::Mxfp8 => "mxfp8",
        }
    }

    /// Bytes of one value, scales not counted.
    pub const fn value_bytes(self) -> usize {
        match self {
            Format::F32 => 4,
            Format::Bf16 => 2,
            Format::Fp8Block | Format::Mxfp8 => 1,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A buffer that does not have the size its shape calls for, or memory that could not be had.
#[derive(Debug)]
pub enum ShapeError {
    /// The number of elements of `argument` is wrong.
    Length {
        /// The argument's name.
        argument: &'static str,
        /// The shape that is expected of it.
        expected: Vec<usize>,
        /// The number of elements it has.
        found: usize,
    },
    /// Two sizes that must agree do not.
    Mismatch {
        /// What the two sizes are.
        what: &'static str,
        /// The size expected.
        expected: usize,
        /// The size found.
        found: usize,
    },
    /// The operating system has no memory for a buffer.
    Memory(std::io::Error),
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShapeError::Length { argument, expected, found } => {
                let count = expected.iter().fold(1usize, |a, &b| a.saturating_mul(b));
                write!(f, "`{argument}` has {found} elements, expected {count} for the shape {expected:?}")
            }
            ShapeError::Mismatch { what, expected, found } => write!(f, "{what} is {found}, expected {expected}"),
            ShapeError::Memory(error) => write!(f, "no memory for a buffer: {error}"),
        }
    }
}

impl std::error::Error for ShapeError {}

impl From<std::io::Error> for ShapeError {
    fn from(error: std::io::Error) -> Self {
        ShapeError::Memory(error)
    }
}

/// Checks that `argument` has as many elements as `shape` calls for.
pub fn check_len(argument: &'static str, found: usize, shape: &[usize]) -> Result<(), ShapeError> {
    match shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size)) {
        Some(expected) if expected == found => Ok(()),
        _ => Err(ShapeError::Length { argument, expected: shape.to_vec(), found }),
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Data<'a> {
    F32(&'a [f32]),
    Bf16(&'a [bf16]),
    Fp8Block { codes: &'a [F8E4M3], scales: &'a [f32] },
    Mxfp8 { codes: &'a [F8E4M3], scales: &'a [E8M0] },
}

/// A borrowed row-major weight `[n, k]`, as it lies in a checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct WeightRef<'a> {
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) data: Data<'a>,
}

impl<'a> WeightRef<'a> {
    /// F32 values `[n, k]`.
    pub fn f32(n: usize, k: usize, values: &'a [f32]) -> Result<Self, ShapeError> {
        check_len("values", values.len(), &[n, k])?;
        Ok(Self { n, k, data: Data::F32(values) })
    }

    /// BF16 values `[n, k]`.
    pub fn bf16(n: usize, k: usize, values: &'a [bf16]) -> Result<Self, ShapeError> {
        check_len("values", values.len(), &[n, k])?;
        Ok(Self { n, k, data: Data::Bf16(values) })
    }

    /// E4M3 codes `[n, k]` and F32 multipliers `[ceil(n / 128), ceil(k / 128)]`.
    pub fn fp8_block(n: usize, k: usize, codes: &'a [F8E4M3], scales: &'a [f32]) -> Result<Self, ShapeError> {
        check_len("codes", codes.len(), &[n, k])?;
        check_len("scales", scales.len(), &[n.div_ceil(BLOCK), k.div_ceil(BLOCK)])?;
        Ok(Self { n, k, data: Data::Fp8Block { codes, scales } })
    }

    /// E4M3 codes `[n, k]` and E8M0 scales `[n, ceil(k / 32)]`.
    pub fn mxfp8(n: usize, k: usize, codes: &'a [F8E4M3], scales: &'a [E8M0]) -> Result<Self, ShapeError> {
        check_len("codes", codes.len(), &[n, k])?;
        check_len("scales", scales.len(), &[n, k.div_ceil(MX_GROUP)])?;
        Ok(Self { n, k, data: Data::Mxfp8 { codes, scales } })
    }

    /// Outputs.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Inputs.
    pub fn k(&self) -> usize {
        self.k
    }

    /// How the values are stored.
    pub fn format(&self) -> Format {
        match self.data {
            Data::F32(_) => Format::F32,
            Data::Bf16(_) => Format::Bf16,
            Data::Fp8Block { .. } => Format::Fp8Block,
            Data::Mxfp8 { .. } => Format::Mxfp8,
        }
    }

    /// Bytes of values and scales.
    pub fn bytes(&self) -> usize {
        match self.data {
            Data::F32(values) => size_of_val(values),
            Data::Bf16(values) => size_of_val(values),
            Data::Fp8Block { codes, scales } => size_of_val(codes) + size_of_val(scales),
            Data::Mxfp8 { codes, scales } => size_of_val(codes) + size_of_val(scales),
        }
    }

    /// The value at `[row, column]`, dequantised in F32: code times scale, rounded once.
    ///
    /// # Panics
    /// When the index is out of range.
    pub fn get(&self, row: usize, column: usize) -> f32 {
        assert!(row < self.n && column < self.k, "[{row}, {column}] of a [{}, {}] weight", self.n, self.k);
        let at = row * self.k + column;
        match self.data {
            Data::F32(values) => values[at],
            Data::Bf16(values) => values[at].to_f32(),
            Data::Fp8Block { codes, scales } => {
                codes[at].to_f32() * scales[row / BLOCK * self.k.div_ceil(BLOCK) + column / BLOCK]
            }
            Data::Mxfp8 { codes, scales } => {
                codes[at].to_f32() * scales[row * self.k.div_ceil(MX_GROUP) + column / MX_GROUP].to_f32()
            }
        }
    }
}

/// Scales of a packed weight.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scales<'a> {
    None,
    /// The grid of the row-major weight.
    Block(&'a [f32]),
    /// `[panel][k / 32][64]`.
    Mx(&'a [u8]),
}

/// A borrowed packed weight.
///
/// Besides weights, anything that is multiplied like one can have this form: the pages of a KV cache do.
#[derive(Clone, Copy, Debug)]
pub struct PackedRef<'a> {
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) format: Format,
    /// Bytes from one panel to the next.
    pub(crate) stride: usize,
    pub(crate) data: &'a [u8],
    pub(crate) scales: Scales<'a>,
    /// Panels that the decoders of the F32 kernels cannot take (NaN codes, E8M0 scales near the end of their range); empty where none can be.
    pub(crate) special: &'a [bool],
}

impl<'a> PackedRef<'a> {
    /// BF16 panels `[ceil(n / 64)][capacity / 2][64][2]`, of which the first `k <= capacity` values along K count.
    /// `capacity` is a multiple of 4.
    pub fn bf16(n: usize, k: usize, capacity: usize, panels: &'a [bf16]) -> Result<Self, ShapeError> {
        Self::plain(Format::Bf16, n, k, capacity, panels.len(), panels.as_bytes())
    }

    /// F32 panels `[ceil(n / 64)][capacity][64]`, of which the first `k <= capacity` values along K count.
    /// `capacity` is a multiple of 4.
    pub fn f32(n: usize, k: usize, capacity: usize, panels: &'a [f32]) -> Result<Self, ShapeError> {
        Self::plain(Format::F32, n, k, capacity, panels.len(), panels.as_bytes())
    }

    fn plain(
        format: Format,
        n: usize,
        k: usize,
        capacity: usize,
        found: usize,
        data: &'a [u8],
    ) -> Result<Self, ShapeError> {
        check_len("panels", found, &[n.div_ceil(PANEL), capacity, PANEL])?;
        if !capacity.is_multiple_of(4) {
            return Err(ShapeError::Mismatch { what: "capacity modulo 4", expected: 0, found: capacity % 4 });
        }
        if k > capacity {
            return Err(ShapeError::Mismatch {
                what: "k beyond the capacity of the panels",
                expected: capacity,
                found: k,
            });
        }
        Ok(Self {
            n,
            k,
            format,
            stride: capacity * PANEL * format.value_bytes(),
            data,
            scales: Scales::None,
            special: &[],
        })
    }

    /// Outputs.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Inputs.
    pub fn k(&self) -> usize {
        self.k
    }

    /// How the values are stored.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The panels, whose order the [module](self) describes.
    pub fn bytes(&self) -> &'a [u8] {
        self.data
    }

    /// The value at `[row, column]`, dequantised in F32: code times scale, rounded once.
    ///
    /// # Panics
    /// When the index is out of range.
    pub fn get(&self, row: usize, column: usize) -> f32 {
        assert!(row < self.n && column < self.k, "[{row}, {column}] of a [{}, {}] weight", self.n, self.k);
        let (panel, output) = (row / PANEL, row % PANEL);
        let size = self.format.value_bytes();
        let value = &self.panel(panel)[packed_index(self.format, output, column) * size..][..size];
        let scale = match self.scales {
            Scales::None => 1.0,
            Scales::Block(scales) => scales[row / BLOCK * self.k.div_ceil(BLOCK) + column / BLOCK],
            Scales::Mx(scales) => {
                let group = panel * self.k.div_ceil(MX_GROUP) + column / MX_GROUP;
                E8M0::from_bits(scales[group * PANEL + output]).to_f32()
            }
        };
        match *value {
            [code] => F8E4M3::from_bits(code).to_f32() * scale,
            [a, b] => bf16::from_ne_bytes([a, b]).to_f32(),
            [a, b, c, d] => f32::from_ne_bytes([a, b, c, d]),
            _ => unreachable!("values have one, two or four bytes"),
        }
    }

    /// Whether the decoders of the F32 kernels cannot take a panel.
    pub(crate) fn is_special(&self, panel: usize) -> bool {
        self.special.get(panel).copied().unwrap_or(false)
    }

    pub(crate) fn panel(&self, panel: usize) -> &'a [u8] {
        &self.data[panel * self.stride..(panel + 1) * self.stride]
    }
}

/// Where a packed value lies: the index, in values, of output `output` (below 64) and input `k` in a panel.
#[inline]
pub fn packed_index(format: Format, output: usize, k: usize) -> usize {
    match format {
        Format::F32 => k * PANEL + output,
        Format::Bf16 => (k / 2) * 2 * PANEL + output * 2 + k % 2,
        Format::Fp8Block | Format::Mxfp8 => {
            (k / 4) * 4 * PANEL + (output / 4) * 16 + (k / 2 % 2) * 8 + (output % 4) * 2 + k % 2
        }
    }
}

/// A weight packed into panels, in memory of its own or shared with other weights that were packed together.
#[derive(Clone, Debug)]
pub struct PackedWeight {
    n: usize,
    k: usize,
    format: Format,
    buffer: Arc<Buffer>,
    data: Range<usize>,
    scales: Range<usize>,
    special: Arc<[bool]>,
}

impl PackedWeight {
    /// Packs one weight.
    pub fn pack(level: Level, pool: &Pool, weight: WeightRef<'_>) -> Result<Self, ShapeError> {
        Ok(Self::pack_all(level, pool, &[weight])?.remove(0))
    }

    /// Packs weights into one buffer, in parallel over their panels.
    pub fn pack_all(level: Level, pool: &Pool, weights: &[WeightRef<'_>]) -> Result<Vec<Self>, ShapeError> {
        struct Task<'a, 'b> {
            weight: WeightRef<'a>,
            panel: usize,
            data: &'b mut [u8],
            scales: &'b mut [u8],
            special: bool,
        }
        let mut end = 0;
        let mut reserve = |bytes: usize| {
            let start = end;
            end += bytes.next_multiple_of(64);
            start..start + bytes
        };
        let ranges: Vec<_> = weights
            .iter()
            .map(|weight| {
                let panels = weight.n.div_ceil(PANEL);
                let data = reserve(panels * panel_bytes(weight.format(), weight.k));
                let scales = reserve(match weight.data {
                    Data::F32(_) | Data::Bf16(_) => 0,
                    Data::Fp8Block { scales, .. } => size_of_val(scales),
                    Data::Mxfp8 { .. } => panels * weight.k.div_ceil(MX_GROUP) * PANEL,
                });
                (data, scales)
            })
            .collect();
        let mut buffer = Buffer::zeroed(end)?;

        let mut tasks = Vec::new();
        let mut rest: &mut [u8] = &mut buffer;
        let mut at = 0;
        let mut take = |range: &Range<usize>| {
            let (_, tail) = std::mem::take(&mut rest).split_at_mut(range.start - at);
            let (part, tail) = tail.split_at_mut(range.len());
            (rest, at) = (tail, range.end);
            part
        };
        for (weight, (data, scales)) in weights.iter().zip(&ranges) {
            let panels = weight.n.div_ceil(PANEL);
            let mut data = take(data).chunks_exact_mut(panel_bytes(weight.format(), weight.k).max(1));
            let scales = take(scales);
            let mut scales = match weight.data {
                Data::Fp8Block { scales: grid, .. } => {
                    scales.copy_from_slice(grid.as_bytes());
                    [].chunks_exact_mut(1)
                }
                _ => scales.chunks_exact_mut((weight.k.div_ceil(MX_GROUP) * PANEL).max(1)),
            };
            for panel in 0..panels {
                if let Some(data) = data.next() {
                    tasks.push(Task {
                        weight: *weight,
                        panel,
                        data,
                        scales: scales.next().unwrap_or_default(),
                        special: false,
                    });
                }
            }
        }
        pool.for_each_mut(&mut tasks, |_, Task { weight, panel, data, scales, special }| {
            let nan = pack::pack_panel(level, *weight, *panel, 0..weight.k, data);
            pack::pack_mx_scales(*weight, *panel, 0..weight.k, scales);
            *special = nan || pack::has_slow_scale(scales);
        });
        let mut special = tasks.iter().map(|task| task.special).collect::<Vec<_>>().into_iter();
        drop(tasks);

        let buffer = Arc::new(buffer);
        Ok(weights
            .iter()
            .zip(ranges)
            .map(|(weight, (data, scales))| PackedWeight {
                n: weight.n,
                k: weight.k,
                format: weight.format(),
                buffer: Arc::clone(&buffer),
                data,
                scales,
                special: special.by_ref().take(weight.n.div_ceil(PANEL)).collect(),
            })
            .collect())
    }

    /// Outputs.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Inputs.
    pub fn k(&self) -> usize {
        self.k
    }

    /// How the values are stored.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Bytes of panels and scales, padding included.
    pub fn bytes(&self) -> usize {
        self.data.len() + self.scales.len()
    }

    /// The borrowed form.
    pub fn as_ref(&self) -> PackedRef<'_> {
        let scales = &self.buffer[self.scales.clone()];
        PackedRef {
            n: self.n,
            k: self.k,
            format: self.format,
            stride: panel_bytes(self.format, self.k),
            data: &self.buffer[self.data.clone()],
            scales: match self.format {
                Format::F32 | Format::Bf16 => Scales::None,
                // The range starts at a multiple of 64 in a 64-byte aligned buffer and was copied from F32 values.
                Format::Fp8Block => Scales::Block(<[f32]>::ref_from_bytes(scales).expect("aligned F32 values")),
                Format::Mxfp8 => Scales::Mx(scales),
            },
            special: &self.special,
        }
    }
}

/// Bytes of one packed panel with `k` inputs.
pub(crate) fn panel_bytes(format: Format, k: usize) -> usize {
    k.next_multiple_of(4) * PANEL * format.value_bytes()
}

/// A weight in either layout.
#[derive(Clone, Copy, Debug)]
pub enum Weight<'a> {
    /// Row-major, used in place.
    RowMajor(WeightRef<'a>),
    /// Packed into panels.
    Packed(PackedRef<'a>),
}

impl Weight<'_> {
    /// Outputs.
    pub fn n(&self) -> usize {
        match self {
            Weight::RowMajor(weight) => weight.n,
            Weight::Packed(weight) => weight.n,
        }
    }

    /// Inputs.
    pub fn k(&self) -> usize {
        match self {
            Weight::RowMajor(weight) => weight.k,
            Weight::Packed(weight) => weight.k,
        }
    }

    /// How the values are stored.
    pub fn format(&self) -> Format {
        match self {
            Weight::RowMajor(weight) => weight.format(),
            Weight::Packed(weight) => weight.format,
        }
    }

    /// The value at `[row, column]`, dequantised in F32: code times scale, rounded once.
    ///
    /// # Panics
    /// When the index is out of range.
    pub fn get(&self, row: usize, column: usize) -> f32 {
        match self {
            Weight::RowMajor(weight) => weight.get(row, column),
            Weight::Packed(weight) => weight.get(row, column),
        }
    }

    /// The first `k` inputs of the weight, or all of them where the layout does not give them for nothing.
    pub(crate) fn first_inputs(self, k: usize) -> Self {
        match self {
            Weight::Packed(weight) if matches!(weight.scales, Scales::None) => {
                Weight::Packed(PackedRef { k: weight.k.min(k), ..weight })
            }
            weight => weight,
        }
    }

    /// Panels of 64 outputs, the last one possibly partial.
    pub fn panels(&self) -> usize {
        self.n().div_ceil(PANEL)
    }
}

impl<'a> From<WeightRef<'a>> for Weight<'a> {
    fn from(weight: WeightRef<'a>) -> Self {
        Weight::RowMajor(weight)
    }
}

impl<'a> From<PackedRef<'a>> for Weight<'a> {
    fn from(weight: PackedRef<'a>) -> Self {
        Weight::Packed(weight)
    }
}

impl<'a> From<&'a PackedWeight> for Weight<'a> {
    fn from(weight: &'a PackedWeight) -> Self {
        Weight::Packed(weight.as_ref())
    }
}
