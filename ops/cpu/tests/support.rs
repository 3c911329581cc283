// SPDX-License-Identifier: MIT OR Apache-2.0

//! Weights in every format from one seed, and the levels under test.

use cpu_tiles::{E8M0, F8E4M3, Format, Isa, Level, Overflow, PackedWeight, Pool, WeightRef};
use half::bf16;
use op_testkit::{fill_bf16, fill_f32};

/// Every level of this machine, and the software models of the AVX-512 ones.
pub(crate) fn levels() -> Vec<Level> {
    let mut levels = Level::available();
    levels.extend(Isa::ALL.into_iter().filter_map(Level::emulated));
    levels
}

/// A weight that owns its values.
pub(crate) struct Owned {
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) format: Format,
    pub(crate) f32: Vec<f32>,
    pub(crate) bf16: Vec<bf16>,
    pub(crate) codes: Vec<F8E4M3>,
    pub(crate) block_scales: Vec<f32>,
    pub(crate) mx_scales: Vec<E8M0>,
}

impl Owned {
    /// Values of order one.
    pub(crate) fn new(format: Format, n: usize, k: usize, seed: u64) -> Self {
        let values = fill_f32(seed, n * k, 1.0);
        let codes = values.iter().map(|x| F8E4M3::from_f32(x * 448.0, Overflow::Saturate)).collect();
        let block_scales = fill_f32(seed + 1, n.div_ceil(128) * k.div_ceil(128), 1.0 / 448.0);
        let mx_scales = fill_f32(seed + 2, n * k.div_ceil(32), 2.0)
            .into_iter()
            .map(|x| E8M0::from_bits((118.0 + x) as u8))
            .collect();
        Self { n, k, format, f32: values, bf16: fill_bf16(seed, n * k, 1.0), codes, block_scales, mx_scales }
    }

    pub(crate) fn row_major(&self) -> WeightRef<'_> {
        let (n, k) = (self.n, self.k);
        match self.format {
            Format::F32 => WeightRef::f32(n, k, &self.f32),
            Format::Bf16 => WeightRef::bf16(n, k, &self.bf16),
            Format::Fp8Block => WeightRef::fp8_block(n, k, &self.codes, &self.block_scales),
            Format::Mxfp8 => WeightRef::mxfp8(n, k, &self.codes, &self.mx_scales),
        }
        .unwrap()
    }

    pub(crate) fn packed(&self, level: Level) -> PackedWeight {
        PackedWeight::pack(level, &Pool::new(1).unwrap(), self.row_major()).unwrap()
    }
}

pub(crate) const FORMATS: [Format; 4] = [Format::F32, Format::Bf16, Format::Fp8Block, Format::Mxfp8];
