// SPDX-License-Identifier: MIT OR Apache-2.0

//! FP8 weights in the layout of the kernel.

use crate::error::Error;
use crate::shape::{MoeDims, check_len};
use ascend_rt::Arch;
use cpu_tiles::weights::{BLOCK, MX_GROUP};
use cpu_tiles::{E8M0, F8E4M3};
use half::{bf16, f16};

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
    /// Their scales, and behind those of each expert its numbers.
    pub scales13: Vec<u8>,
    /// Codes of down.
    pub w2: Vec<u8>,
    /// Their scales, and behind those of each expert its numbers.
    pub scales2: Vec<u8>,
}

impl Stored {
    /// Of how many experts the cube core scales gate and up, and down: the fast way of dav-2201. The vector cores scale
    /// the others.
    #[must_use]
    pub fn scaled_by_cube(&self, dims: &MoeDims) -> [usize; 2] {
        [&self.scales13, &self.scales2].map(|scales| {
            let experts = scales.chunks_exact((scales.len() / dims.experts.max(1)).max(WAY_BYTES));
            experts.filter(|scales| scales[scales.len() - WAY_BYTES..][..4] != [0; 4]).count()
        })
    }
}

/// Bytes behind the scales of each expert.
pub(crate) const WAY_BYTES: usize = 32;

/// Converts gate, up and down of each expert for one architecture.
///
/// Codes become fractals of 16 inputs and 16 outputs, `[out / 16][in / 16][16][16]`, padded with zeros to multiples of 16
/// and 32; gate and up take turns along `out / 16`. Scales of blocks stay as they are, gate before up; scales of groups
/// become BF16, `[out / 16][in / 32][16]`. Eight F32 numbers follow the scales of each expert, of which two mean something:
/// where the first is zero, the vector cores multiply codes by scales, and the second is 1 if there are NaN codes. All
/// parts of an expert lie together, so experts that were converted one by one may be put one behind the other.
///
/// For dav-2201, the first and the last 128 codes of a fractal take turns byte by byte. There the cube core multiplies
/// codes by scales where that gives each weight exactly, as code times scale, rounded once to BF16: which is proved here,
/// expert by expert, for gate with up and for down. Then fractals are `[16 outputs][16 inputs]`, a scale of a block is
/// two half numbers, a scale of a group one half number, and the numbers of the expert are what its products lack, a power
/// of two, and what the cube core multiplies groups by. It is not exact where scales differ too much within an expert
/// (blocks by more than about 2^15, groups by more than about 2^12) or are too far from 1 (blocks outside of 2^-23 to
/// 2^41, groups about 2^-54 to 2^55), where a scale is NaN or infinite or gives weights that are not normal BF16 numbers,
/// where there is a NaN code, or where no two half numbers round all weights of a block as its scale does.
///
/// # Errors
/// [`Error::Length`], [`Error::ExpertCount`], [`Error::MixedScales`].
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
        }
        let (gate_up, down) = (&weights[..2], &weights[2..]);
        for (i, (parts, depth, out)) in
            [(gate_up, hidden, intermediate), (down, intermediate, hidden)].iter().enumerate()
        {
            let (to, scales) = match i {
                0 => (&mut stored.w13, &mut stored.scales13),
                _ => (&mut stored.w2, &mut stored.scales2),
            };
            let way = if paired { Way::new(parts, *depth) } else { Way::Vector { nan: false } };
            for block in 0..out.div_ceil(16) {
                for weight in *parts {
                    codes(weight, *depth, block, paired, way.is_cube(), to);
                    groups(weight, *depth, block, &way, scales);
                }
            }
            for weight in *parts {
                if let Scales::Blocks(values) = weight.scales {
                    for &scale in values {
                        scales.extend(way.block(scale));
                    }
                }
            }
            let [first, second] = way.numbers();
            scales.extend([first, second, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0].iter().flat_map(|x| x.to_le_bytes()));
        }
    }
    Ok(stored)
}

/// Who multiplies codes by scales, for the weights of one product of one expert.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// The vector cores.
    Vector {
        /// There are NaN codes.
        nan: bool,
    },
    /// The cube core: scales of blocks in units of `2^lacks`.
    Blocks {
        /// Exponent of what products lack.
        lacks: i32,
    },
    /// The cube core: scales of groups in units of `2^unit`.
    Groups {
        /// Exponent of the unit.
        unit: i32,
    },
}

/// Codes of blocks come to the cube core in units of 2^-5: none is subnormal as a half number.
const BLOCK_UNIT: i32 = 5;
/// Codes of groups come to be multiplied in units of 2^-8.
const GROUP_UNIT: i32 = 8;
/// The least exponent of a normal half number.
const LEAST: i32 = -14;
/// The greatest.
const MOST: i32 = 15;
/// The most that products may lack, as an exponent: activations are to stay normal numbers.
const FAR: i32 = 32;

impl Way {
    fn new(parts: &[Coded<'_>], depth: usize) -> Self {
        let nan = parts.iter().any(|weight| weight.codes.iter().any(|code| code.to_bits() & 0x7f == 0x7f));
        let way = if nan { None } else { Self::blocks(parts).or_else(|| Self::groups(parts, depth)) };
        way.unwrap_or(Self::Vector { nan })
    }

    fn blocks(parts: &[Coded<'_>]) -> Option<Self> {
        let mut all = Vec::new();
        for weight in parts {
            let Scales::Blocks(scales) = weight.scales else { return None };
            all.extend_from_slice(scales);
        }
        let most = all.iter().fold(0.0f32, |most, scale| most.max(scale.abs()));
        // The largest scale is to be near the top of what a half number holds, so that the rest of each is normal.
        let lacks = if most == 0.0 { 0 } else { exponent(most) + BLOCK_UNIT - 14 };
        let exact = lacks.abs() <= FAR && all.iter().all(|&scale| split(scale, lacks).is_some());
        exact.then_some(Self::Blocks { lacks })
    }

    fn groups(parts: &[Coded<'_>], depth: usize) -> Option<Self> {
        // Of the unit.
        let (mut least, mut most) = (i32::MIN, i32::MAX);
        for weight in parts {
            let Scales::Groups(scales) = weight.scales else { return None };
            let rows = weight.codes.chunks(depth).zip(scales.chunks(depth.div_ceil(MX_GROUP)));
            for (codes, scale) in rows.flat_map(|(codes, scales)| codes.chunks(MX_GROUP).zip(scales)) {
                let Some((low, high)) = range(codes) else { continue };
                let scale = scale.to_f32();
                if scale.is_nan() {
                    return None;
                }
                let scale = exponent(scale);
                if scale + low < -126 || scale + high > 127 {
                    return None;
                }
                // The scale in units, and codes times that, are normal half numbers.
                let from = LEAST.max(LEAST + GROUP_UNIT - low);
                let to = MOST.min(MOST + GROUP_UNIT - high);
                (least, most) = (least.max(scale - to), most.min(scale - from));
            }
        }
        // The unit is best where the cube core's factor makes up for it.
        let way = (least <= most).then(|| Self::Groups { unit: (-GROUP_UNIT).clamp(least, most) });
        way.filter(|way| (power(-FAR)..=power(FAR)).contains(&way.numbers()[0]))
    }

    fn is_cube(self) -> bool {
        !matches!(self, Self::Vector { .. })
    }

    /// The two numbers of the expert.
    fn numbers(self) -> [f32; 2] {
        match self {
            Self::Vector { nan } => [0.0, f32::from(u8::from(nan))],
            Self::Blocks { lacks } => [power(lacks), 0.0],
            Self::Groups { unit } => {
                let factor = (unit + GROUP_UNIT).clamp(LEAST, MOST);
                [power(unit + GROUP_UNIT - factor), power(factor)]
            }
        }
    }

    /// A scale of a block, as it is stored.
    fn block(self, scale: f32) -> [u8; 4] {
        let Self::Blocks { lacks } = self else { return scale.to_le_bytes() };
        let [[a, b], [c, d]] = split(scale, lacks).unwrap_or_default().map(f16::to_le_bytes);
        [a, b, c, d]
    }

    /// A scale of a group, as it is stored.
    fn group(self, scale: E8M0) -> [u8; 2] {
        let Self::Groups { unit } = self else { return bf16::from_f32(scale.to_f32()).to_le_bytes() };
        // Groups whose codes are all zero may have any scale.
        f16::from_f32(power((exponent(scale.to_f32()) - unit).clamp(LEAST, MOST))).to_le_bytes()
    }
}

/// The exponent of a number that is not zero: `2^e <= abs(x) < 2^(e + 1)`.
fn exponent(x: f32) -> i32 {
    let bits = f64::from(x).to_bits();
    ((bits >> 52) & 0x7ff) as i32 - 1023
}

/// `2^e`, where that is a normal number; else the nearest normal power.
fn power(e: i32) -> f32 {
    f32::from_bits((e.clamp(-126, 127) + 127).cast_unsigned() << 23)
}

/// The least and the greatest exponent of codes that are not zero, if there are any.
fn range(codes: &[F8E4M3]) -> Option<(i32, i32)> {
    let sizes = codes.iter().map(|code| code.to_bits() & 0x7f).filter(|&size| size != 0);
    let (least, most) = sizes.fold((u8::MAX, 0), |(least, most), size| (size.min(least), size.max(most)));
    (most != 0).then(|| [least, most].map(|size| exponent(F8E4M3::from_bits(size).to_f32())).into())
}

/// Two half numbers that do for codes what a scale does: their products with a code, in units of 2^-5 and of `2^lacks`,
/// added in F32 with whatever rounding and then rounded to BF16, are code times scale in F32, rounded to BF16. Weights are
/// normal numbers.
fn split(scale: f32, lacks: i32) -> Option<[f16; 2]> {
    if scale == 0.0 {
        return Some([f16::ZERO; 2]);
    }
    // The least code is 2^-9, the greatest 448.
    if !bf16::from_f32(scale * 448.0).is_finite() || exponent(scale) - 9 < -126 {
        return None;
    }
    let unit = 2f64.powi(BLOCK_UNIT - lacks);
    let wanted = f64::from(scale) * unit;
    let near = f16::from_f64(wanted);
    let normal = |x: f16| x.is_normal() || x == f16::ZERO;
    let bits = near.to_bits();
    let candidates =
        [bits, bits.wrapping_add(1), bits.wrapping_sub(1)].map(f16::from_bits).into_iter().flat_map(|first| {
            let rest = f16::from_f64(wanted - first.to_f64());
            [[first, rest], [first, f16::ZERO]]
        });
    candidates.into_iter().find(|&[first, rest]| {
        first.is_normal()
            && normal(rest)
            && (8u8..16).all(|significand| {
                let product = bf16::from_f32(f32::from(significand) * scale).to_f64() * unit;
                let sum = f64::from(significand) * (first.to_f64() + rest.to_f64());
                let rounded = sum as f32;
                // The other neighbour of a sum that is no F32 number.
                let other = match f64::from(rounded).abs().total_cmp(&sum.abs()) {
                    std::cmp::Ordering::Less => f32::from_bits(rounded.to_bits() + 1),
                    std::cmp::Ordering::Equal => rounded,
                    std::cmp::Ordering::Greater => f32::from_bits(rounded.to_bits() - 1),
                };
                [rounded, other].iter().all(|&sum| bf16::from_f32(sum).to_f64() == product)
            })
    })
}

/// Appends the codes of 16 outputs. `rows`: fractals have outputs for rows.
fn codes(weight: &Coded<'_>, depth: usize, block: usize, paired: bool, rows: bool, to: &mut Vec<u8>) {
    let out = weight.codes.len() / depth;
    let at = |row: usize, k: usize| {
        if row < out && k < depth { weight.codes[row * depth + k].to_bits() } else { 0 }
    };
    for k in (0..depth.next_multiple_of(MX_GROUP)).step_by(16) {
        let element = |i: usize| {
            let (row, column) = if rows { (i / 16, i % 16) } else { (i % 16, i / 16) };
            at(16 * block + row, k + column)
        };
        if paired {
            to.extend((0..128).flat_map(|i| [element(i), element(128 + i)]));
        } else {
            to.extend((0..256).map(element));
        }
    }
}

/// Appends the scales of groups of 16 outputs.
fn groups(weight: &Coded<'_>, depth: usize, block: usize, way: &Way, to: &mut Vec<u8>) {
    let Scales::Groups(scales) = weight.scales else { return };
    let (out, count) = (weight.codes.len() / depth, depth.div_ceil(MX_GROUP));
    for group in 0..count {
        for row in 16 * block..16 * block + 16 {
            let scale = if row < out { scales[row * count + group] } else { E8M0::for_e4m3_amax(448.0) };
            to.extend(way.group(scale));
        }
    }
}
