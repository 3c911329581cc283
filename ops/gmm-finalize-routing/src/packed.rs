// SPDX-License-Identifier: MIT OR Apache-2.0

//! Weights packed once, for repeated use.

use crate::error::Error;
use crate::order::{PanelCodes, scales_to_groups, scales_to_rows, to_pairs, to_rows};
use crate::shape::{Codes, Dims, Dtype, Scale, Weights};
use cpu_tiles::mem::Buffer;
use cpu_tiles::{E8M0, F8E4M3, Level, PANEL, PackedWeight, Pool, WeightRef};
use std::fmt;
use zerocopy::IntoBytes;

/// The weights of all experts in panels of 64 outputs, each of which is one sequential stream: codes as they were, one byte
/// each, in huge pages where the system has them. The form is the same for every SIMD level, and results are those of the
/// weights it was packed from, bit for bit.
pub struct PackedWeights {
    dims: Dims,
    pub(crate) panels: Panels,
}

pub(crate) enum Panels {
    /// One weight for each expert.
    E4M3(Vec<PackedWeight>),
    E5M2 {
        /// `[E][panels][k / 2][64][2]`.
        codes: Buffer,
        /// `[E or 1][panels][k / 32][64]`.
        scales: Vec<E8M0>,
        shared: bool,
    },
}

impl PackedWeights {
    /// Packs the weights of all experts.
    ///
    /// # Errors
    /// Those of [`finalize_routing`](crate::finalize_routing) about `dims`, `x2` and `scale`.
    pub fn pack(level: Level, pool: &Pool, dims: &Dims, weights: Weights<'_>) -> Result<Self, Error> {
        dims.check()?;
        weights.check(dims)?;
        let panels = match weights.x2 {
            Codes::E4M3(codes) => Self::pack_e4m3(level, pool, dims, &weights, codes)?,
            Codes::E5M2(_) => Self::pack_e5m2(level, pool, dims, &weights)?,
        };
        Ok(Self { dims: *dims, panels })
    }

    /// Expert by expert, each brought into the layout of a linear layer where it has another.
    fn pack_e4m3(
        level: Level,
        pool: &Pool,
        dims: &Dims,
        weights: &Weights<'_>,
        codes: &[F8E4M3],
    ) -> Result<Panels, Error> {
        let &Dims { experts, k, n } = dims;
        let mut rows = vec![F8E4M3::default(); if weights.transpose_x2 { 0 } else { n * k }];
        let mut scales = vec![E8M0::default(); n * dims.groups()];
        let mut packed = Vec::with_capacity(experts);
        for expert in 0..experts {
            if expert == 0 || matches!(weights.scale, Scale::PerExpert(_)) {
                let mut panels: Vec<_> = scales.chunks_mut(PANEL * dims.groups()).collect();
                pool.for_each_mut(&mut panels, |panel, rows| scales_to_rows(dims, weights, expert, panel, rows));
            }
            let mut panels: Vec<_> = rows.chunks_mut(PANEL * k).collect();
            pool.for_each_mut(&mut panels, |panel, rows| {
                to_rows(level, PanelCodes::new(dims, weights, expert, panel), rows.as_mut_bytes());
            });
            let codes = if weights.transpose_x2 { &codes[expert * n * k..][..n * k] } else { &rows };
            packed.push(PackedWeight::pack(level, pool, WeightRef::mxfp8(n, k, codes, &scales)?)?);
        }
        Ok(Panels::E4M3(packed))
    }

    fn pack_e5m2(level: Level, pool: &Pool, dims: &Dims, weights: &Weights<'_>) -> Result<Panels, Error> {
        let &Dims { experts, k, n } = dims;
        let panels = n.div_ceil(PANEL);
        let mut codes = Buffer::zeroed(experts * panels * k * PANEL)?;
        let mut tasks: Vec<_> = codes.chunks_exact_mut(k * PANEL).collect();
        pool.for_each_mut(&mut tasks, |task, pairs| {
            to_pairs(level, PanelCodes::new(dims, weights, task / panels, task % panels), pairs);
        });
        let shared = matches!(weights.scale, Scale::Shared(_));
        let tensors = if shared { 1 } else { experts };
        let mut scales = vec![E8M0::default(); tensors * panels * dims.groups() * PANEL];
        let mut tasks: Vec<_> = scales.chunks_exact_mut(dims.groups() * PANEL).collect();
        pool.for_each_mut(&mut tasks, |task, groups| {
            scales_to_groups(dims, weights, task / panels, task % panels, groups);
        });
        Ok(Panels::E5M2 { codes, scales, shared })
    }

    /// The sizes they were packed for.
    pub fn dims(&self) -> Dims {
        self.dims
    }

    /// The number format of the codes.
    pub fn dtype(&self) -> Dtype {
        match self.panels {
            Panels::E4M3(_) => Dtype::E4M3,
            Panels::E5M2 { .. } => Dtype::E5M2,
        }
    }

    /// Bytes of codes and scales, padding included.
    pub fn bytes(&self) -> usize {
        match &self.panels {
            Panels::E4M3(experts) => experts.iter().map(PackedWeight::bytes).sum(),
            Panels::E5M2 { codes, scales, .. } => codes.len() + scales.len(),
        }
    }
}

impl fmt::Debug for PackedWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Dims { experts, k, n } = self.dims;
        write!(f, "PackedWeights([{experts}, {k}, {n}], {})", self.dtype())
    }
}
