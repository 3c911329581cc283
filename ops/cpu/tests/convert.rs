// SPDX-License-Identifier: MIT OR Apache-2.0

//! Bulk conversions: exact where they must be, nearest even where they round.

use crate::support::{FORMATS, Owned, levels};
use cpu_tiles::convert::{
    bf16_to_f32, dequantize_to_bf16, e4m3_to_bf16, e4m3_to_f32, e5m2_to_bf16, e5m2_to_f32, f32_to_bf16, round_to_bf16,
};
use cpu_tiles::{F8E4M3, F8E5M2, Level, Pool, WeightRef};
use half::bf16;
use op_testkit::golden::Ops;
use proptest::prelude::*;

#[test]
fn bf16_survives_the_way_through_f32() {
    let x: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
    for level in levels() {
        let mut wide = vec![0.0; x.len()];
        bf16_to_f32(level, &x, &mut wide);
        let mut narrow = vec![bf16::ZERO; x.len()];
        f32_to_bf16(level, &wide, &mut narrow);
        for (i, x) in x.iter().enumerate() {
            assert_eq!(wide[i].to_bits(), u32::from(x.to_bits()) << 16);
            assert!(
                narrow[i] == *x && narrow[i].to_bits() == x.to_bits() || narrow[i].is_nan() && x.is_nan(),
                "{level} {x:?}"
            );
        }
    }
}

#[test]
fn packed_values_are_read_back_as_they_were_in_every_format() {
    for level in levels() {
        for format in FORMATS {
            for (n, k) in [(1, 1), (70, 37), (130, 300)] {
                let weight = Owned::new(format, n, k, 5);
                let (in_place, packed) = (weight.row_major(), weight.packed(level));
                let packed = packed.as_ref();
                assert_eq!((packed.n(), packed.k(), packed.format()), (n, k, format));
                for (row, column) in (0..n).flat_map(|row| (0..k).map(move |column| (row, column))) {
                    let expected = in_place.get(row, column).to_bits();
                    assert_eq!(packed.get(row, column).to_bits(), expected, "{level} {format} [{row}, {column}]");
                }
            }
        }
    }
}

#[test]
fn bulk_decoding_is_that_of_the_codes() {
    let e4m3: Vec<_> = (0..=255).map(F8E4M3::from_bits).collect();
    let e5m2: Vec<_> = (0..=255).map(F8E5M2::from_bits).collect();
    let (mut wide, mut narrow) = (vec![0.0; 256], vec![bf16::ZERO; 256]);
    e4m3_to_f32(&e4m3, &mut wide);
    e4m3_to_bf16(&e4m3, &mut narrow);
    for i in 0..256 {
        assert_eq!(wide[i].to_bits(), e4m3[i].to_f32().to_bits());
        assert_eq!(narrow[i].to_bits(), e4m3[i].to_bf16().to_bits());
    }
    e5m2_to_f32(&e5m2, &mut wide);
    e5m2_to_bf16(&e5m2, &mut narrow);
    for i in 0..256 {
        assert_eq!(wide[i].to_bits(), e5m2[i].to_f32().to_bits());
        assert_eq!(narrow[i].to_bits(), e5m2[i].to_bf16().to_bits());
    }
}

fn codes(bytes: &[u8]) -> Vec<F8E4M3> {
    bytes.iter().copied().map(F8E4M3::from_bits).collect()
}

#[test]
fn dequantisation_has_the_golden_values() {
    let ops = Ops::open("quant").unwrap();
    let pool = Pool::new(2).unwrap();
    for level in levels() {
        let case = ops.case("fp8_block").unwrap();
        let values = codes(&case.tensor("weight").unwrap().u8().unwrap());
        let scales = case.tensor("weight_scale_inv").unwrap().f32().unwrap();
        let weight = WeightRef::fp8_block(200, 300, &values, &scales).unwrap();
        let mut out = vec![bf16::ZERO; 200 * 300];
        dequantize_to_bf16(level, &pool, weight, &mut out).unwrap();
        assert!(out == case.tensor("dequant_bf16").unwrap().bf16().unwrap(), "fp8_block on {level}");

        let case = ops.case("mxfp8").unwrap();
        let values = codes(&case.tensor("weight").unwrap().u8().unwrap());
        let scales: Vec<_> = case.tensor("weight_scale_inv").unwrap().u8().unwrap();
        let scales: Vec<_> = scales.into_iter().map(cpu_tiles::E8M0::from_bits).collect();
        let weight = WeightRef::mxfp8(96, 256, &values, &scales).unwrap();
        let mut out = vec![bf16::ZERO; 96 * 256];
        dequantize_to_bf16(level, &pool, weight, &mut out).unwrap();
        assert!(out == case.tensor("dequant_bf16").unwrap().bf16().unwrap(), "mxfp8 on {level}");
    }
}

#[test]
fn linear_layers_on_quantised_weights_have_the_golden_values() {
    let ops = Ops::open("quant").unwrap();
    let pool = Pool::new(2).unwrap();
    for (name, n, k, m) in [("fp8_block", 200, 300, 4), ("mxfp8", 96, 256, 5)] {
        let case = ops.case(name).unwrap();
        let values = codes(&case.tensor("weight").unwrap().u8().unwrap());
        let x = case.tensor("x").unwrap().bf16().unwrap();
        let y = case.tensor("y").unwrap().f32().unwrap();
        let (block, mx): (Vec<f32>, Vec<_>) = match name {
            "mxfp8" => {
                let bytes = case.tensor("weight_scale_inv").unwrap().u8().unwrap();
                (Vec::new(), bytes.into_iter().map(cpu_tiles::E8M0::from_bits).collect())
            }
            _ => (case.tensor("weight_scale_inv").unwrap().f32().unwrap(), Vec::new()),
        };
        let weight = match name {
            "mxfp8" => WeightRef::mxfp8(n, k, &values, &mx),
            _ => WeightRef::fp8_block(n, k, &values, &block),
        }
        .unwrap();
        let largest = y.iter().fold(0.0_f32, |largest, y| largest.max(y.abs()));
        for level in levels() {
            for precision in [cpu_tiles::Precision::F32, cpu_tiles::Precision::Bf16] {
                let acts = cpu_tiles::Acts::from_bf16(level, &pool, precision, m, k, &x).unwrap();
                let mut out = vec![0.0; m * n];
                cpu_tiles::linear(&pool, &acts, weight.into(), &mut out).unwrap();
                for (found, expected) in out.iter().zip(&y) {
                    let bound = 1e-5 * expected.abs() + 1e-6 * largest;
                    assert!((found - expected).abs() <= bound, "{name} on {level}: {found} for {expected}");
                }
            }
        }
    }
}

#[test]
fn dequantisation_is_code_times_scale_in_every_format() {
    let pool = Pool::new(2).unwrap();
    for level in levels() {
        for format in FORMATS {
            let mut weight = Owned::new(format, 70, 77, 5);
            weight.codes[80] = F8E4M3::from_bits(0x7F);
            weight.block_scales[0] = 1e30;
            let mut out = vec![bf16::ZERO; 70 * 77];
            dequantize_to_bf16(level, &pool, weight.row_major(), &mut out).unwrap();
            for (i, found) in out.iter().enumerate() {
                let expected = bf16::from_f32(weight.row_major().get(i / 77, i % 77));
                assert!(*found == expected || found.is_nan() && expected.is_nan(), "{level} {format} at {i}");
            }
        }
    }
    let weight = Owned::new(FORMATS[1], 2, 3, 5);
    let error = dequantize_to_bf16(Level::SCALAR, &pool, weight.row_major(), &mut [bf16::ZERO; 5]).unwrap_err();
    assert_eq!(error.to_string(), "`out` has 5 elements, expected 6 for the shape [2, 3]");
}

proptest! {
    #[test]
    fn rounding_is_to_nearest_even(bits in proptest::collection::vec(any::<u32>(), 1..60)) {
        let x: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
        for level in levels() {
            let mut narrow = vec![bf16::ZERO; x.len()];
            f32_to_bf16(level, &x, &mut narrow);
            let mut rounded = x.clone();
            round_to_bf16(level, &mut rounded);
            for i in 0..x.len() {
                let expected = bf16::from_f32(x[i]);
                prop_assert!(narrow[i] == expected || narrow[i].is_nan() && expected.is_nan());
                prop_assert!(rounded[i] == expected.to_f32() || rounded[i].is_nan() && expected.is_nan());
            }
        }
    }
}
