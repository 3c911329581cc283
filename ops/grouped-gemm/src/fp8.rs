// SPDX-License-Identifier: MIT OR Apache-2.0

//! FP8 weights in the layout of the kernel.

use crate::error::Error;
use crate::shape::{MoeDims, check_len};
use ascend_rt::Arch;
use ascend_rt::zerocopy::IntoBytes;
use cpu_tiles::weights::{BLOCK, MX_GROUP};
use cpu_tiles::{E8M0, F8E4M3};
use half::bf16;

/// The scales of a weight, as a checkpoint stores them.
#[derive(Clone, Copy, Debug)]
pub enum Scales<'a> {
    /// One for 128 x 128 values, `[ceil(out / 128), ceil(in / 128)]`.
    Blocks(&'a [f32]),
    /// One for 32 values along `in`, `[out, ceil(in / 32)]`.
    Groups(&'a [E8M0]),
}

/// A weight `[out, in]`.
#[derive(Clone, Copy, Debug)]
pub struct Coded<'a> {
    /// The codes, row-major.
    pub codes: &'a [F8E4M3],
    /// The scales: of one kind for all weights of a call.
    pub scales: Scales<'a>,
}

/// The weights of all experts as the kernel reads them, to be brought to the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Codes of gate and up.
    pub w13: Vec<u8>,
    /// Their scales.
    pub scales13: Vec<u8>,
    /// Codes of down.
    pub w2: Vec<u8>,
    /// Their scales.
    pub scales2: Vec<u8>,
}

/// Converts gate, up and down of each expert for one architecture.
///
/// Codes become fractals of 16 inputs and 16 outputs, `[out / 16][in / 16][16][16]`, padded with zeros to multiples of 16
/// and 32; gate and up take turns along `out / 16`. For dav-2201, the first and the last 128 codes of a fractal take turns
/// byte by byte. Scales of blocks stay as they are, gate before up; scales of groups become BF16,
/// `[out / 16][in / 32][16]`.
///
/// # Errors
/// [`Error::Length`], [`Error::ExpertCount`]; [`Error::NanCode`] for dav-2201, where the vector cores do not know NaN codes;
/// [`Error::MixedScales`].
pub fn convert_fp8_weights(dims: &MoeDims, arch: Arch, experts: &[[Coded<'_>; 3]]) -> Result<Stored, Error> {
    dims.check()?;
    if experts.len() != dims.experts {
        return Err(Error::ExpertCount { expected: dims.experts, found: experts.len() });
    }
    let paired = arch == Arch::DAV_2201;
    let (hidden, intermediate) = (dims.hidden, dims.intermediate);
    let blocks = matches!(experts.first(), Some([Coded { scales: Scales::Blocks(_), .. }, ..]));
    let mut stored = Stored::default();
    for (expert, weights) in experts.iter().enumerate() {
        for (name, weight, out, depth) in [
            ("gate", &weights[0], intermediate, hidden),
            ("up", &weights[1], intermediate, hidden),
            ("down", &weights[2], hidden, intermediate),
        ] {
            check_len(name, &[out, depth], weight.codes.len())?;
            match weight.scales {
                Scales::Blocks(scales) if blocks => {
                    check_len(name, &[out.div_ceil(BLOCK), depth.div_ceil(BLOCK)], scales.len())?;
                }
                Scales::Groups(scales) if !blocks => check_len(name, &[out, depth.div_ceil(MX_GROUP)], scales.len())?,
                _ => return Err(Error::MixedScales { expert, weight: name }),
            }
            if paired && weight.codes.iter().any(|code| code.to_bits() & 0x7f == 0x7f) {
                return Err(Error::NanCode { expert, weight: name });
            }
        }
        let [gate, up, down] = weights;
        for block in 0..intermediate.div_ceil(16) {
            for weight in [gate, up] {
                codes(weight, hidden, block, paired, &mut stored.w13);
                groups(weight, hidden, block, &mut stored.scales13);
            }
        }
        for block in 0..hidden.div_ceil(16) {
            codes(down, intermediate, block, paired, &mut stored.w2);
            groups(down, intermediate, block, &mut stored.scales2);
        }
        for (weight, is_down) in [(gate, false), (up, false), (down, true)] {
            if let Scales::Blocks(scales) = weight.scales {
                let to = if is_down { &mut stored.scales2 } else { &mut stored.scales13 };
                to.extend(scales.as_bytes());
            }
        }
    }
    Ok(stored)
}

/// Appends the codes of 16 outputs.
fn codes(weight: &Coded<'_>, depth: usize, block: usize, paired: bool, to: &mut Vec<u8>) {
    let out = weight.codes.len() / depth;
    let at = |row: usize, k: usize| {
        if row < out && k < depth { weight.codes[row * depth + k].to_bits() } else { 0 }
    };
    for k in (0..depth.next_multiple_of(MX_GROUP)).step_by(16) {
        let element = |i: usize| at(16 * block + i % 16, k + i / 16);
        if paired {
            to.extend((0..128).flat_map(|i| [element(i), element(128 + i)]));
        } else {
            to.extend((0..256).map(element));
        }
    }
}

/// Appends the scales of groups of 16 outputs.
fn groups(weight: &Coded<'_>, depth: usize, block: usize, to: &mut Vec<u8>) {
    let Scales::Groups(scales) = weight.scales else { return };
    let (out, count) = (weight.codes.len() / depth, depth.div_ceil(MX_GROUP));
    for group in 0..count {
        for row in 16 * block..16 * block + 16 {
            let scale = if row < out { bf16::from_f32(scales[row * count + group].to_f32()) } else { bf16::ONE };
            to.extend(scale.to_bits().to_le_bytes());
        }
    }
}
