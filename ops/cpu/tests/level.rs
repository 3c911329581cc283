// SPDX-License-Identifier: MIT OR Apache-2.0

//! Levels exist only where the CPU has them.

use cpu_tiles::{Isa, Level, LevelError};

#[test]
fn a_level_is_available_or_says_what_is_missing() {
    for isa in Isa::ALL {
        match Level::new(isa) {
            Ok(level) => assert!(isa.missing_features().is_empty() && level.isa() == isa && !level.is_emulated()),
            Err(LevelError::Missing { isa: found, features }) => assert!(found == isa && !features.is_empty()),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(Level::available().last(), Some(&Level::best()));
    assert_eq!(Level::available().first(), Some(&Level::SCALAR));
}

#[test]
fn names_are_parsed_and_unknown_ones_refused() {
    for isa in Isa::ALL {
        assert_eq!(isa.name().parse::<Isa>(), Ok(isa));
    }
    assert_eq!(
        "sse2".parse::<Isa>().unwrap_err().to_string(),
        "SIMD level `sse2` is unknown, expected one of scalar, avx2, avx512, avx512bf16"
    );
    let missing = LevelError::Missing { isa: Isa::Avx512, features: vec!["avx512bw", "avx512dq"] };
    assert_eq!(missing.to_string(), "SIMD level `avx512` is not available: this CPU has no avx512bw, avx512dq");
}

#[test]
fn fast_bf16_dot_products_are_some_of_those_there_are() {
    for level in Level::available() {
        assert!(level.has_bf16_dot() || !level.has_fast_bf16_dot(), "{level}");
    }
    let of_model = |isa| Level::emulated(isa).map(Level::has_fast_bf16_dot);
    assert_eq!((of_model(Isa::Avx512), of_model(Isa::Avx512Bf16)), (Some(false), Some(true)));
}

#[test]
fn models_are_of_the_avx512_levels_only() {
    assert_eq!(Level::emulated(Isa::Scalar), None);
    assert_eq!(Level::emulated(Isa::Avx2), None);
    assert_eq!(Level::emulated(Isa::Avx512).map(Level::name), Some("avx512-model"));
    assert_eq!(Level::emulated(Isa::Avx512Bf16).map(Level::name), Some("avx512bf16-model"));
}
