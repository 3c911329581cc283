// SPDX-License-Identifier: MIT OR Apache-2.0

//! Weights packed once, for repeated use.

use crate::error::Error;
use crate::order::{Order, PanelCodes, pack, scales_to_groups};
use crate::shape::{Dims, Dtype, Scale, Weights};
use cpu_tiles::mem::Buffer;
use cpu_tiles::weights::MX_GROUP;
use cpu_tiles::{E8M0, F8E4M3, Level, PANEL, PackedRef, PanelFacts, Pool};
use std::fmt;
use std::ops::Range;
use zerocopy::FromBytes;

/// The weights of all experts in panels of 64 outputs, each of which is one sequential stream: codes as they were, one byte
/// each, in huge pages where the system has them. The form is the same for every SIMD level, and results are those of the
/// weights it was packed from, bit for bit.
pub struct PackedWeights {
    dims: Dims,
    dtype: Dtype,
    /// `[E][panels][k][64]`, each panel in the order that the format is multiplied in.
    codes: Buffer,
    /// `[E or 1][panels][k / 32][64]`.
    scales: Vec<E8M0>,
    shared: bool,
    /// `[E][panels]`, of E4M3 codes only.
    facts: Vec<PanelFacts>,
}

impl PackedWeights {
    /// Packs the weights of all experts.
    ///
    /// # Errors
    /// Those of [`finalize_routing`](crate::finalize_routing) about `dims`, `x2` and `scale`.
    pub fn pack(level: Level, pool: &Pool, dims: &Dims, weights: Weights<'_>) -> Result<Self, Error> {
        dims.check()?;
        weights.check(dims)?;
        let (panels, per_panel) = (dims.n.div_ceil(PANEL), dims.groups() * PANEL);
        let shared = matches!(weights.scale, Scale::Shared(_));
        let mut scales = vec![E8M0::default(); if shared { 1 } else { dims.experts } * panels * per_panel];
        let mut tasks: Vec<_> = scales.chunks_exact_mut(per_panel).collect();
        pool.for_each_mut(&mut tasks, |task, groups| {
            scales_to_groups(dims, &weights, task / panels, task % panels, groups);
        });

        let dtype = weights.x2.dtype();
        let mut codes = Buffer::zeroed(dims.experts * panels * dims.k * PANEL)?;
        let mut facts = vec![PackedRef::mxfp8_facts(level, &[], &[]); dims.experts * panels];
        let mut tasks: Vec<_> = codes.chunks_exact_mut(dims.k * PANEL).zip(&mut facts).collect();
        pool.for_each_mut(&mut tasks, |task, (packed, facts)| {
            pack(level, PanelCodes::new(dims, &weights, task / panels, task % panels, 0), order(dtype), packed);
            if dtype == Dtype::E4M3 {
                let scales = &scales[if shared { task % panels } else { task } * per_panel..][..per_panel];
                **facts = PackedRef::mxfp8_facts(level, e4m3(packed), scales);
            }
        });
        Ok(Self { dims: *dims, dtype, codes, scales, shared, facts })
    }

    /// The sizes they were packed for.
    pub fn dims(&self) -> Dims {
        self.dims
    }

    /// The number format of the codes.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Bytes of codes and scales, padding included.
    pub fn bytes(&self) -> usize {
        self.codes.len() + self.scales.len()
    }

    /// Inputs `k`, which begin and end at multiples of 32, of a panel.
    pub(crate) fn panel(&self, expert: usize, panel: usize, k: &Range<usize>) -> PackedPanel<'_> {
        let panels = self.dims.n.div_ceil(PANEL);
        let task = expert * panels + panel;
        let scales = if self.shared { panel } else { task } * self.dims.groups() * PANEL;
        PackedPanel {
            codes: &self.codes[task * self.dims.k * PANEL..][k.start * PANEL..k.end * PANEL],
            scales: &self.scales[scales..][groups(k)],
            facts: &self.facts[task..task + 1],
        }
    }
}

/// Some inputs of one panel.
pub(crate) struct PackedPanel<'a> {
    pub(crate) codes: &'a [u8],
    /// `[k / 32][64]`.
    pub(crate) scales: &'a [E8M0],
    pub(crate) facts: &'a [PanelFacts],
}

/// The scales of inputs `k` in `[k / 32][64]`.
pub(crate) fn groups(k: &Range<usize>) -> Range<usize> {
    k.start / MX_GROUP * PANEL..k.end / MX_GROUP * PANEL
}

/// The order that codes of a format are packed in.
pub(crate) fn order(dtype: Dtype) -> Order {
    match dtype {
        Dtype::E4M3 => Order::Quads,
        Dtype::E5M2 => Order::Pairs,
    }
}

pub(crate) fn e4m3(codes: &[u8]) -> &[F8E4M3] {
    <[F8E4M3]>::ref_from_bytes(codes).expect("any bytes are codes")
}

impl fmt::Debug for PackedWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Dims { experts, k, n } = self.dims;
        write!(f, "PackedWeights([{experts}, {k}, {n}], {})", self.dtype)
    }
}
