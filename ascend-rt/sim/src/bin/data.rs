// SPDX-License-Identifier: MIT OR Apache-2.0

//! Made-up data.

use crate::options::{Arg, Type};

/// The bytes of one argument.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) bytes: Vec<u8>,
}

impl Buffer {
    /// What an argument begins with; nothing for one that is no buffer of ours.
    pub(crate) fn new(arg: &Arg, seed: u64) -> Result<Self, String> {
        let bytes = match arg {
            Arg::In(of, count) | Arg::InOut(of, count) => numbers(*of, *count, seed),
            Arg::Out(of, count) => vec![0; of.bytes() * count],
            Arg::File(path) => std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?,
            Arg::Workspace(_) | Arg::Null | Arg::Value(_) => Vec::new(),
        };
        Ok(Self { bytes })
    }
}

/// Numbers that every type holds exactly: multiples of 1/128 from -1 to 1 for floats, small ones for integers.
fn numbers(of: Type, count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = Vec::with_capacity(count * of.bytes());
    for _ in 0..count {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        let real = ((word & 0xff) as f32 - 128.0) / 128.0;
        let whole = (word & 0xf) as i64;
        let signed = whole - 8;
        match of {
            Type::F32 => bytes.extend(real.to_le_bytes()),
            Type::Bf16 => bytes.extend(&real.to_le_bytes()[2..]),
            Type::F16 => bytes.extend(half(real).to_le_bytes()),
            Type::I8 => bytes.extend((signed as i8).to_le_bytes()),
            Type::U8 => bytes.extend((whole as u8).to_le_bytes()),
            Type::I16 => bytes.extend((signed as i16).to_le_bytes()),
            Type::U16 => bytes.extend((whole as u16).to_le_bytes()),
            Type::I32 => bytes.extend((signed as i32).to_le_bytes()),
            Type::U32 => bytes.extend((whole as u32).to_le_bytes()),
            Type::I64 => bytes.extend(signed.to_le_bytes()),
            Type::U64 => bytes.extend((whole as u64).to_le_bytes()),
        }
    }
    bytes
}

/// The bits of a half that is one of the numbers above: zero, or normal and without further bits.
fn half(value: f32) -> u16 {
    let bits = value.to_bits();
    if value == 0.0 {
        return 0;
    }
    let exponent = ((bits >> 23) & 0xff) + 15 - 127;
    (bits >> 16 & 0x8000) as u16 | (exponent << 10) as u16 | (bits >> 13 & 0x3ff) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_in_every_float_type() {
        let f32s = numbers(Type::F32, 300, 7);
        assert_eq!(f32s, numbers(Type::F32, 300, 7));
        assert_ne!(f32s, numbers(Type::F32, 300, 8));
        let values: Vec<f32> =
            f32s.chunks(4).map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])).collect();
        assert!(values.iter().all(|value| (-1.0..1.0).contains(value)));
        assert!(values.contains(&0.0) || values.iter().any(|value| *value < 0.0));
        for ((value, bf16), f16) in
            values.iter().zip(numbers(Type::Bf16, 300, 7).chunks(2)).zip(numbers(Type::F16, 300, 7).chunks(2))
        {
            let bits = u16::from_le_bytes([bf16[0], bf16[1]]);
            assert_eq!(f32::from_bits(u32::from(bits) << 16), *value);
            let bits = u16::from_le_bytes([f16[0], f16[1]]);
            let (sign, exponent, mantissa) = (bits >> 15, bits >> 10 & 31, bits & 0x3ff);
            let magnitude = if exponent == 0 {
                0.0
            } else {
                (1.0 + f32::from(mantissa) / 1024.0) * 2f32.powi(i32::from(exponent) - 15)
            };
            assert_eq!(if sign == 1 { -magnitude } else { magnitude }, *value);
        }
    }

    #[test]
    fn sizes_follow_the_type() {
        for (_, of) in Type::ALL {
            assert_eq!(numbers(of, 5, 1).len(), 5 * of.bytes());
            assert_eq!(Buffer::new(&Arg::Out(of, 3), 1).unwrap().bytes, vec![0; 3 * of.bytes()]);
        }
        assert!(Buffer::new(&Arg::File("/nowhere/x".into()), 1).unwrap_err().contains("/nowhere/x"));
    }
}
