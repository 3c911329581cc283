// SPDX-License-Identifier: MIT OR Apache-2.0

//! The 8-bit number formats of the checkpoints: [`F8E4M3`], [`F8E5M2`] and the scale format [`E8M0`].
//!
//! Decoding is exact for all 256 codes (OCP 8-bit Floating Point Specification 1.0, OCP Microscaling Formats 1.0).
//! Encoding rounds to nearest, ties to even, and takes a named [`Overflow`] policy, because the field disagrees
//! on what a value beyond the largest finite one becomes.

use half::bf16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What an encoder does with a value that rounds beyond the largest finite one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overflow {
    /// The largest finite value of the same sign, for infinities too. NaN stays NaN.
    Saturate,
    /// The non-finite value the format has: NaN in E4M3, infinity in E5M2.
    NonFinite,
}

macro_rules! code_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
        )]
        #[repr(transparent)]
        pub struct $name(u8);

        impl $name {
            /// The value with this bit pattern.
            #[inline]
            pub const fn from_bits(bits: u8) -> Self {
                Self(bits)
            }

            /// The bit pattern.
            #[inline]
            pub const fn to_bits(self) -> u8 {
                self.0
            }
        }
    };
}

code_type! {
    /// FP8 E4M3 (`float8_e4m3fn`): sign, 4 exponent bits (bias 7), 3 mantissa bits.
    ///
    /// No infinity; `0x7F` and `0xFF` are NaN; the largest finite value is 448, the smallest subnormal 2^-9.
    F8E4M3
}

code_type! {
    /// FP8 E5M2: sign, 5 exponent bits (bias 15), 2 mantissa bits.
    ///
    /// Infinities and NaNs as in IEEE 754; the largest finite value is 57344, the smallest subnormal 2^-16.
    F8E5M2
}

code_type! {
    /// E8M0, the power-of-two scale of the MX formats: 2^(code - 127), code 255 is NaN. There is no zero.
    E8M0
}

/// Value of a minifloat code with `mantissa` mantissa bits and exponent bias `bias`, infinities and NaNs not considered.
const fn minifloat_to_f32(code: u8, mantissa: u32, bias: i32) -> f32 {
    let sign = ((code & 0x80) as u32) << 24;
    let exponent = ((code & 0x7F) >> mantissa) as i32;
    let fraction = (code as u32) & ((1 << mantissa) - 1);
    let magnitude = if exponent == 0 {
        // A subnormal is fraction * 2^(1 - bias - mantissa); both factors are exact.
        fraction as f32 * f32::from_bits(((128 - bias - mantissa as i32) as u32) << 23)
    } else {
        f32::from_bits((((exponent - bias + 127) as u32) << 23) | (fraction << (23 - mantissa)))
    };
    f32::from_bits(magnitude.to_bits() | sign)
}

/// Magnitude code of a finite `x >= 0`, rounded to nearest even; may exceed the largest finite code.
fn minifloat_from_magnitude(x: f32, mantissa: u32, bias: i32) -> u32 {
    let shift = 23 - mantissa;
    let smallest_normal = f32::from_bits(((128 - bias) as u32) << 23);
    if x < smallest_normal {
        // Below the smallest normal the grid is uniform; adding 2^23 units in f32 rounds to it, ties to even.
        let units = x * f32::from_bits(((126 + bias + mantissa as i32) as u32) << 23);
        return units.round_ties_even() as u32;
    }
    let bits = x.to_bits();
    let rounded = bits + ((1 << (shift - 1)) - 1) + ((bits >> shift) & 1);
    (rounded >> shift) - (((127 - bias) as u32) << mantissa)
}

impl F8E4M3 {
    /// The largest finite value, 448.
    pub const MAX: Self = Self(0x7E);
    /// The positive NaN, `0x7F`.
    pub const NAN: Self = Self(0x7F);

    /// The value, exactly.
    #[inline]
    pub fn to_f32(self) -> f32 {
        E4M3_TO_F32[self.0 as usize]
    }

    /// The value, exactly: BF16 has more exponent and more mantissa bits.
    #[inline]
    pub fn to_bf16(self) -> bf16 {
        bf16::from_bits((self.to_f32().to_bits() >> 16) as u16)
    }

    /// Whether the code is one of the two NaNs.
    #[inline]
    pub const fn is_nan(self) -> bool {
        self.0 & 0x7F == 0x7F
    }

    /// The nearest code, ties to even. Values that round beyond 448 (magnitudes above 464, and infinities) follow
    /// `overflow`; NaN becomes NaN of the same sign.
    pub fn from_f32(x: f32, overflow: Overflow) -> Self {
        let sign = ((x.to_bits() >> 24) & 0x80) as u8;
        if x.is_nan() {
            return Self(sign | 0x7F);
        }
        let code = if x.is_infinite() { 0x7F } else { minifloat_from_magnitude(x.abs(), 3, 7) };
        let code = match overflow {
            _ if code < 0x7F => code as u8,
            Overflow::Saturate => 0x7E,
            Overflow::NonFinite => 0x7F,
        };
        Self(sign | code)
    }
}

impl F8E5M2 {
    /// The largest finite value, 57344.
    pub const MAX: Self = Self(0x7B);
    /// Positive infinity.
    pub const INFINITY: Self = Self(0x7C);

    /// The value, exactly.
    #[inline]
    pub fn to_f32(self) -> f32 {
        E5M2_TO_F32[self.0 as usize]
    }

    /// The value, exactly: BF16 has more exponent and as many or more mantissa bits.
    #[inline]
    pub fn to_bf16(self) -> bf16 {
        bf16::from_bits((self.to_f32().to_bits() >> 16) as u16)
    }

    /// The nearest code, ties to even. Values that round beyond 57344 (magnitudes of 61440 and more, and infinities)
    /// follow `overflow`; NaN becomes NaN of the same sign.
    pub fn from_f32(x: f32, overflow: Overflow) -> Self {
        let sign = ((x.to_bits() >> 24) & 0x80) as u8;
        if x.is_nan() {
            return Self(sign | 0x7E);
        }
        let code = if x.is_infinite() { 0x7C } else { minifloat_from_magnitude(x.abs(), 2, 15) };
        let code = match overflow {
            _ if code < 0x7C => code as u8,
            Overflow::Saturate => 0x7B,
            Overflow::NonFinite => 0x7C,
        };
        Self(sign | code)
    }
}

impl E8M0 {
    /// NaN, code 255.
    pub const NAN: Self = Self(255);

    /// The value, exactly; code 0 is 2^-127, a subnormal of F32.
    #[inline]
    pub const fn to_f32(self) -> f32 {
        match self.0 {
            0 => f32::from_bits(0x0040_0000),
            255 => f32::NAN,
            code => f32::from_bits((code as u32) << 23),
        }
    }

    /// The smallest power of two `s` with `amax <= s * 448`, the scale under which no E4M3 code of a group with
    /// magnitudes up to `amax` overflows: 2^ceil(log2(amax / 448)). An `amax` below 1e-30 counts as 1e-30, so an
    /// all-zero group has a scale too. NaN and infinity give [`E8M0::NAN`].
    pub fn for_e4m3_amax(amax: f32) -> Self {
        if !amax.is_finite() {
            return Self::NAN;
        }
        let amax = amax.max(1e-30);
        // amax = f * 2^e with 1 <= f < 2, and 448 = 1.75 * 2^8: the quotient's binade is known without a division.
        let exponent = (amax.to_bits() >> 23) as i32;
        let fraction = f32::from_bits((amax.to_bits() & 0x007F_FFFF) | 0x3F80_0000);
        Self((exponent - 8 + i32::from(fraction > 1.75)) as u8)
    }
}

const fn table(mantissa: u32, bias: i32, first_special: u8, infinity: bool) -> [f32; 256] {
    let mut out = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        let magnitude = (code & 0x7F) as u8;
        let sign = if code >= 128 { 0x8000_0000 } else { 0 };
        out[code] = if magnitude < first_special {
            minifloat_to_f32(code as u8, mantissa, bias)
        } else if infinity && magnitude == first_special {
            f32::from_bits(0x7F80_0000 | sign)
        } else {
            f32::from_bits(0x7FC0_0000 | sign)
        };
        code += 1;
    }
    out
}

/// [`E4M3_TO_F32`] for tables that are made at compile time.
pub(crate) const E4M3_VALUES: [f32; 256] = table(3, 7, 0x7F, false);
/// Value of each E4M3 code.
pub static E4M3_TO_F32: [f32; 256] = E4M3_VALUES;
/// Value of each E5M2 code.
pub static E5M2_TO_F32: [f32; 256] = table(2, 15, 0x7C, true);
