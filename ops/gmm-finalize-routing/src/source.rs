// SPDX-License-Identifier: MIT OR Apache-2.0

//! The weights of one expert and panel as the tiles take them.
//!
//! E4M3 is a format of the tiles. E5M2 is not: some inputs of a panel at a time are expanded to BF16, which holds every code
//! times every scale that leaves it a normal number, or else to F32. Either lies in scratch that fits the second-level cache.

use crate::error::Error;
use crate::order::{PanelCodes, pack, scales_to_groups, scales_to_rows};
use crate::packed::{PackedPanel, e4m3, groups, order};
use crate::shape::{Codes, Dims, Dtype, Experts, Scale, Weights};
use cpu_tiles::mem::Buffer;
use cpu_tiles::vectorize::{Loops, vectorize};
use cpu_tiles::weights::MX_GROUP;
use cpu_tiles::{E8M0, F8E5M2, Level, PANEL, PackedRef, PanelFacts, Weight, WeightRef};
use half::bf16;
use std::ops::Range;
use zerocopy::FromBytes;

/// Inputs that are expanded at a time: 128 KiB in BF16.
const CHUNK: usize = 1024;
const ALIGNED: &str = "a buffer is aligned to 64 bytes, and its length is a multiple of the value size";

/// Inputs of a product that one call of a tile takes: all where the tiles know the format.
pub(crate) fn chunk_len(dtype: Dtype, dims: &Dims) -> usize {
    match dtype {
        Dtype::E4M3 => dims.k,
        Dtype::E5M2 => CHUNK,
    }
}

/// What a task needs to bring weights into form.
pub(crate) struct Scratch {
    codes: Buffer,
    values: Buffer,
    scales: Vec<E8M0>,
    /// The expert (0 where all share them) and panel whose scales these are.
    scales_of: Option<(usize, usize)>,
    /// Those of the codes, where they are E4M3.
    facts: Option<PanelFacts>,
}

impl Scratch {
    pub(crate) fn new() -> std::io::Result<Self> {
        let empty = || Buffer::zeroed(0);
        Ok(Self { codes: empty()?, values: empty()?, scales: Vec::new(), scales_of: None, facts: None })
    }
}

/// The first `len` bytes of a buffer, which is made larger where it is too small.
fn room(buffer: &mut Buffer, len: usize) -> std::io::Result<&mut [u8]> {
    if buffer.len() < len {
        *buffer = Buffer::zeroed(len)?;
    }
    Ok(&mut buffer[..len])
}

/// Inputs `k` of a panel of an expert, as a weight of this one panel.
pub(crate) fn weight<'a>(
    level: Level,
    dims: &Dims,
    experts: Experts<'a>,
    expert: usize,
    panel: usize,
    k: Range<usize>,
    scratch: &'a mut Scratch,
) -> Result<Weight<'a>, Error> {
    let width = PANEL.min(dims.n - panel * PANEL);
    let Scratch { codes: room_for_codes, values: room_for_values, scales: room_for_scales, scales_of, facts } = scratch;
    let (dtype, packed) = match experts {
        Experts::Packed(packed) => (packed.dtype(), packed.panel(expert, panel, &k)),
        Experts::InPlace(weights) => {
            let of = if matches!(weights.scale, Scale::Shared(_)) { 0 } else { expert };
            let is_new = scales_of.replace((of, panel)) != Some((of, panel));
            if let (Codes::E4M3(codes), true) = (weights.x2, weights.transpose_x2) {
                let codes = &codes[weights.at(dims, expert, panel * PANEL, 0)..][..width * dims.k];
                let scales = match scale_rows(dims, &weights, of, panel, width) {
                    Some(rows) => rows,
                    None => {
                        if is_new {
                            room_for_scales.resize(width * dims.groups(), E8M0::default());
                            scales_to_rows(dims, &weights, of, panel, room_for_scales);
                        }
                        room_for_scales
                    }
                };
                return Ok(WeightRef::mxfp8(width, dims.k, codes, scales)?.into());
            }
            if is_new {
                room_for_scales.resize(dims.groups() * PANEL, E8M0::default());
                scales_to_groups(dims, &weights, of, panel, room_for_scales);
            }
            let dtype = weights.x2.dtype();
            let codes = room(room_for_codes, k.len() * PANEL)?;
            pack(level, PanelCodes::new(dims, &weights, expert, panel, k.start), order(dtype), codes);
            let scales = &room_for_scales[groups(&k)];
            *facts = (dtype == Dtype::E4M3).then(|| PackedRef::mxfp8_facts(level, e4m3(codes), scales));
            (dtype, PackedPanel { codes, scales, facts: facts.as_slice() })
        }
    };
    let PackedPanel { codes, scales, facts } = packed;
    match dtype {
        Dtype::E4M3 => Ok(PackedRef::mxfp8(width, dims.k, e4m3(codes), scales, facts)?.into()),
        Dtype::E5M2 => expanded(level, width, codes, scales, room_for_values),
    }
}

/// The scales of a panel as rows, if they lie so: transposed, and without an unused one in each row.
fn scale_rows<'a>(dims: &Dims, weights: &Weights<'a>, expert: usize, panel: usize, width: usize) -> Option<&'a [E8M0]> {
    let (Scale::Shared(scales) | Scale::PerExpert(scales)) = weights.scale;
    let begin = (expert * dims.n + panel * PANEL) * dims.groups();
    let lie_so = weights.transpose_x2 && dims.groups() == 2 * dims.packs();
    lie_so.then(|| &scales[begin..][..width * dims.groups()])
}

/// A panel of E5M2 codes in pairs along K, with scales `[k / 32][64]`, as BF16 or F32 values.
fn expanded<'a>(
    level: Level,
    width: usize,
    codes: &[u8],
    scales: &[E8M0],
    room_for_values: &'a mut Buffer,
) -> Result<Weight<'a>, Error> {
    let k = codes.len() / PANEL;
    let codes = <[F8E5M2]>::ref_from_bytes(codes).expect("codes are bytes");
    // Asked for once in the larger size: the smaller one is what nearly all chunks need.
    let values = room(room_for_values, codes.len() * size_of::<f32>())?;
    let narrow = ..codes.len() * size_of::<bf16>();
    let out = <[bf16]>::mut_from_bytes(&mut values[narrow]).expect(ALIGNED);
    if vectorize(level, Expand { codes, scales, out }) {
        let values = <[bf16]>::ref_from_bytes(&values[narrow]).expect(ALIGNED);
        return Ok(PackedRef::bf16(width, k, k, values)?.into());
    }
    let wide = <[f32]>::mut_from_bytes(values).expect(ALIGNED);
    for (at, code) in codes.iter().enumerate() {
        let (output, k) = (at / 2 % PANEL, at / (2 * PANEL) * 2 + at % 2);
        wide[k * PANEL + output] = code.to_f32() * scales[k / MX_GROUP * PANEL + output].to_f32();
    }
    Ok(PackedRef::f32(width, k, k, wide)?.into())
}

/// The scales under which every E5M2 number is a normal BF16 number: 2^-16 and 1.75 * 2^15 both stay in range.
const BF16_EXACT_SCALES: std::ops::RangeInclusive<u8> = 17..=239;
/// Codes under one row of scales.
const GROUP: usize = MX_GROUP * PANEL;
/// The first magnitude that is no number.
const INFINITY: u8 = F8E5M2::INFINITY.to_bits();

/// E5M2 codes in pairs along K to BF16, times their scales. False where BF16 cannot hold a value exactly.
struct Expand<'a> {
    /// `[k / 2][64][2]`.
    codes: &'a [F8E5M2],
    /// `[k / 32][64]`.
    scales: &'a [E8M0],
    out: &'a mut [bf16],
}

impl Loops for Expand<'_> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let Self { codes, scales, out } = self;
        let groups = codes.chunks_exact(GROUP).zip(scales.chunks_exact(PANEL)).zip(out.chunks_exact_mut(GROUP));
        for ((codes, scales), out) in groups {
            let mut largest = 0;
            for code in codes {
                largest = largest.max(code.to_bits() & 0x7F);
            }
            let mut in_range = true;
            for scale in scales {
                in_range &= BF16_EXACT_SCALES.contains(&scale.to_bits());
            }
            if largest >= INFINITY || !in_range {
                if !expand_slowly(codes, scales, out) {
                    return false;
                }
                continue;
            }
            let mut exponents = [0_u16; 2 * PANEL];
            for (pair, scale) in exponents.chunks_exact_mut(2).zip(scales) {
                pair.fill(u16::from(scale.to_bits()).wrapping_sub(127) << 7);
            }
            for (codes, out) in codes.chunks_exact(2 * PANEL).zip(out.chunks_exact_mut(2 * PANEL)) {
                for i in 0..2 * PANEL {
                    out[i] = bf16::from_bits(expand(codes[i].to_bits(), exponents[i]));
                }
            }
        }
        true
    }
}

/// A number to BF16, its exponent changed by what has been shifted into the place of BF16's.
#[inline(always)]
fn expand(code: u8, exponent: u16) -> u16 {
    const fn biased(power: i32) -> u16 {
        ((power + 127) as u16) << 7
    }
    let magnitude = u16::from(code & 0x7F);
    let sign = u16::from(code & 0x80) << 8;
    // Both biases differ by 112. A subnormal is one to three times 2^-16.
    let normal = (magnitude << 5).wrapping_add(112 << 7);
    let subnormal = if magnitude == 1 {
        biased(-16)
    } else if magnitude == 2 {
        biased(-15)
    } else {
        biased(-15) | 0x40
    };
    let unscaled = if magnitude < 4 { subnormal } else { normal };
    let value = if magnitude == 0 { 0 } else { unscaled.wrapping_add(exponent) };
    value | sign
}

/// [`Expand`] for any codes and scales: one value at a time.
#[inline(never)]
fn expand_slowly(codes: &[F8E5M2], scales: &[E8M0], out: &mut [bf16]) -> bool {
    for (at, (code, out)) in codes.iter().zip(out).enumerate() {
        let value = code.to_f32() * scales[at / 2 % PANEL].to_f32();
        if value.is_subnormal() {
            return false;
        }
        *out = bf16::from_f32(value);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    /// Every code under every scale: exactly the F32 product, or a refusal.
    #[test]
    fn every_code_under_every_scale() {
        for scale in 0..=255 {
            let scales = [E8M0::from_bits(scale); PANEL];
            for half in [0, 128] {
                // Positive and negative codes with and without those that are no numbers.
                for specials in [false, true] {
                    let code = |at: usize| half + (at % if specials { 128 } else { usize::from(INFINITY) }) as u8;
                    let codes: Vec<_> = (0..GROUP).map(|at| F8E5M2::from_bits(code(at))).collect();
                    let products: Vec<_> = codes.iter().map(|code| code.to_f32() * scales[0].to_f32()).collect();
                    for level in Level::available() {
                        let mut out = vec![bf16::ZERO; GROUP];
                        let exact = vectorize(level, Expand { codes: &codes, scales: &scales, out: &mut out });
                        assert_eq!(exact, !products.iter().any(|x| x.is_subnormal()), "scale {scale}");
                        for (out, product) in out.iter().zip(&products).filter(|_| exact) {
                            let same =
                                out.to_f32().to_bits() == product.to_bits() || (out.is_nan() && product.is_nan());
                            assert!(same, "scale {scale} at {level}: {out}, expected {product}");
                        }
                    }
                }
            }
        }
    }
}
