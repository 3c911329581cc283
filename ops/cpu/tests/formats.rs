// SPDX-License-Identifier: MIT OR Apache-2.0

//! The 8-bit formats: every code, every policy.

use cpu_tiles::{E8M0, F8E4M3, F8E5M2, Overflow};
use op_testkit::golden::Ops;
use proptest::prelude::*;

fn assert_value(found: f32, expected: f32, what: &str) {
    assert!(
        found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan()),
        "{what}: {found} for {expected}"
    );
}

#[test]
fn all_codes_have_the_golden_values() {
    let quant = Ops::open("quant").unwrap();
    let case = quant.case("tables").unwrap();
    let [e4m3, e5m2, e8m0] = ["e4m3", "e5m2", "e8m0"].map(|name| case.tensor(name).unwrap().f32().unwrap());
    for code in 0..=255_u8 {
        let i = usize::from(code);
        assert_value(F8E4M3::from_bits(code).to_f32(), e4m3[i], &format!("e4m3 {code:#04x}"));
        assert_value(F8E4M3::from_bits(code).to_bf16().to_f32(), e4m3[i], &format!("e4m3 {code:#04x} as bf16"));
        assert_value(F8E5M2::from_bits(code).to_f32(), e5m2[i], &format!("e5m2 {code:#04x}"));
        assert_value(F8E5M2::from_bits(code).to_bf16().to_f32(), e5m2[i], &format!("e5m2 {code:#04x} as bf16"));
        assert_value(E8M0::from_bits(code).to_f32(), e8m0[i], &format!("e8m0 {code:#04x}"));
    }
}

#[test]
fn encoders_invert_decoders() {
    for code in 0..=255_u8 {
        for overflow in [Overflow::Saturate, Overflow::NonFinite] {
            let e4m3 = F8E4M3::from_bits(code);
            let again = F8E4M3::from_f32(e4m3.to_f32(), overflow);
            assert!(again == e4m3 || (again.is_nan() && e4m3.is_nan()), "{e4m3:?} became {again:?}");
            let e5m2 = F8E5M2::from_bits(code).to_f32();
            let again = F8E5M2::from_f32(e5m2, overflow).to_f32();
            let infinity_saturates = overflow == Overflow::Saturate && e5m2.is_infinite();
            let expected = if infinity_saturates { 57344.0_f32.copysign(e5m2) } else { e5m2 };
            assert_value(again, expected, &format!("e5m2 {code:#04x}"));
        }
    }
}

#[test]
fn overflow_follows_the_policy() {
    let e4m3 = |x, policy| F8E4M3::from_f32(x, policy).to_bits();
    // 464 lies half way between 448 and what would be 480, and goes to the even one.
    for (x, saturate, non_finite) in [
        (464.0, 0x7E, 0x7E),
        (464.1, 0x7E, 0x7F),
        (-1000.0, 0xFE, 0xFF),
        (f32::INFINITY, 0x7E, 0x7F),
        (f32::NEG_INFINITY, 0xFE, 0xFF),
        (f32::MAX, 0x7E, 0x7F),
    ] {
        assert_eq!((e4m3(x, Overflow::Saturate), e4m3(x, Overflow::NonFinite)), (saturate, non_finite), "{x}");
    }
    assert!(F8E4M3::from_f32(f32::NAN, Overflow::Saturate).is_nan());
    let e5m2 = |x, policy| F8E5M2::from_f32(x, policy).to_bits();
    for (x, saturate, non_finite) in
        [(61439.0, 0x7B, 0x7B), (61440.0, 0x7B, 0x7C), (-1e30, 0xFB, 0xFC), (f32::INFINITY, 0x7B, 0x7C)]
    {
        assert_eq!((e5m2(x, Overflow::Saturate), e5m2(x, Overflow::NonFinite)), (saturate, non_finite), "{x}");
    }
}

#[test]
fn mx_scales_are_the_smallest_that_fit() {
    let quant = Ops::open("quant").unwrap();
    let case = quant.case("mxfp8_quantize").unwrap();
    let x = case.tensor("x").unwrap().f32().unwrap();
    let q = case.tensor("q").unwrap().u8().unwrap();
    let scale = case.tensor("scale").unwrap().u8().unwrap();
    for (group, (x, q)) in x.chunks(32).zip(q.chunks(32)).enumerate() {
        let amax = x.iter().fold(0.0_f32, |amax, x| amax.max(x.abs()));
        let found = E8M0::for_e4m3_amax(amax);
        assert_eq!(found.to_bits(), scale[group], "group {group}, amax {amax}");
        for (x, q) in x.iter().zip(q) {
            assert_eq!(F8E4M3::from_f32(x / found.to_f32(), Overflow::NonFinite).to_bits(), *q);
        }
    }
    assert_eq!(E8M0::for_e4m3_amax(448.0).to_f32(), 1.0);
    assert_eq!(E8M0::for_e4m3_amax(448.0_f32.next_up()).to_f32(), 2.0);
    assert_eq!(E8M0::for_e4m3_amax(f32::MAX).to_f32(), 2.0_f32.powi(120));
    assert_eq!(E8M0::for_e4m3_amax(f32::NAN), E8M0::NAN);
    assert_eq!(E8M0::for_e4m3_amax(f32::INFINITY), E8M0::NAN);
}

proptest! {
    /// The nearest finite code, the even one of two as near; checked against a search of all codes.
    #[test]
    fn encoders_round_to_nearest_even(exponent in -20_i32..17, fraction in 1.0_f32..2.0, negative in any::<bool>()) {
        let x = fraction * 2.0_f32.powi(exponent) * if negative { -1.0 } else { 1.0 };
        let nearest = |value: &dyn Fn(u8) -> f32, last: u8| {
            let sign = if negative { 0x80 } else { 0 };
            let codes = (0..=last).map(|code| code | sign);
            let error = |code: u8| (f64::from(value(code)) - f64::from(x)).abs();
            codes.min_by(|&a, &b| error(a).total_cmp(&error(b)).then((a & 1).cmp(&(b & 1)))).unwrap()
        };
        let e4m3 = nearest(&|code| F8E4M3::from_bits(code).to_f32(), 0x7E);
        prop_assert_eq!(F8E4M3::from_f32(x, Overflow::Saturate).to_bits(), e4m3);
        let e5m2 = nearest(&|code| F8E5M2::from_bits(code).to_f32(), 0x7B);
        prop_assert_eq!(F8E5M2::from_f32(x, Overflow::Saturate).to_bits(), e5m2);
    }
}
