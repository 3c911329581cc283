// SPDX-License-Identifier: MIT OR Apache-2.0

//! MXFP8 panels in memory of the caller, and plain loops compiled for a level.

use crate::support::{Owned, levels};
use cpu_tiles::vectorize::{Loops, vectorize};
use cpu_tiles::weights::packed_index;
use cpu_tiles::{Acts, E8M0, F8E4M3, Format, Level, PANEL, PackedRef, PanelFacts, Pool, Precision, Weight, tile};
use op_testkit::compare::assert_same_bits;
use op_testkit::fill_bf16;

/// A weight in panels of its own making.
struct Panels {
    codes: Vec<F8E4M3>,
    scales: Vec<E8M0>,
    facts: Vec<PanelFacts>,
}

impl Panels {
    fn new(level: Level, weight: &Owned) -> Self {
        let &Owned { n, k, .. } = weight;
        let (panels, groups) = (n.div_ceil(PANEL), k.div_ceil(32));
        let mut codes = vec![F8E4M3::default(); panels * k * PANEL];
        let mut scales = vec![E8M0::from_bits(127); panels * groups * PANEL];
        for row in 0..n {
            let (panel, output) = (row / PANEL, row % PANEL);
            for column in 0..k {
                codes[panel * k * PANEL + packed_index(Format::Mxfp8, output, column)] = weight.codes[row * k + column];
            }
            for group in 0..groups {
                scales[(panel * groups + group) * PANEL + output] = weight.mx_scales[row * groups + group];
            }
        }
        let facts = codes.chunks(k * PANEL).zip(scales.chunks(groups * PANEL));
        let facts = facts.map(|(codes, scales)| PackedRef::mxfp8_facts(level, codes, scales)).collect();
        Self { codes, scales, facts }
    }
}

/// The same bits as from the row-major weight: with ordinary numbers, a NaN among the codes, and scales near both ends of
/// their range.
#[test]
fn panels_of_the_caller() {
    let pool = Pool::new(1).unwrap();
    let (m, n, k) = (9, 100, 1100);
    let x = fill_bf16(3, m * k, 1.0);
    for special in 0..4 {
        let mut weight = Owned::new(Format::Mxfp8, n, k, 7);
        match special {
            1 => weight.codes[70 * k + 1050] = F8E4M3::NAN,
            2 => weight.mx_scales[70 * k.div_ceil(32)] = E8M0::from_bits(240),
            3 => weight.mx_scales[70 * k.div_ceil(32)] = E8M0::from_bits(3),
            _ => {}
        }
        for level in levels() {
            let panels = Panels::new(level, &weight);
            let packed = PackedRef::mxfp8(n, k, &panels.codes, &panels.scales, &panels.facts).unwrap();
            for precision in [Precision::Bf16, Precision::F32] {
                let acts = Acts::from_bf16(level, &pool, precision, m, k, &x).unwrap();
                for rows in [&[4][..], &[0, 1, 2, 3, 4, 5, 6, 7, 8]] {
                    for panel in 0..2 {
                        let [expected, out] = [Weight::from(weight.row_major()), packed.into()].map(|weight| {
                            let mut out = vec![0.0; rows.len() * PANEL];
                            tile(weight, panel, &acts, rows, &mut out).unwrap();
                            out
                        });
                        assert_eq!(special == 1 && panel == 1, out.iter().any(|value| value.is_nan()));
                        let what = format!("{special}, {precision:?} at {level}");
                        assert_same_bits(&what, &out, &expected, &[rows.len(), PANEL]);
                    }
                }
            }
        }
    }
}

#[test]
fn panels_of_wrong_sizes_are_refused() {
    let level = Level::SCALAR;
    let fact = PackedRef::mxfp8_facts(level, &[], &[]);
    let refused = |n, k, codes, scales, facts| {
        let codes = vec![F8E4M3::default(); codes];
        let scales = vec![E8M0::default(); scales];
        PackedRef::mxfp8(n, k, &codes, &scales, &vec![fact; facts]).unwrap_err().to_string()
    };
    assert_eq!(refused(65, 36, 4607, 256, 2), "`codes` has 4607 elements, expected 4608 for the shape [2, 36, 64]");
    assert_eq!(refused(65, 36, 4608, 255, 2), "`scales` has 255 elements, expected 256 for the shape [2, 2, 64]");
    assert_eq!(refused(65, 36, 4608, 256, 1), "`facts` has 1 elements, expected 2 for the shape [2]");
    assert_eq!(refused(1, 5, 320, 64, 1), "k modulo 4 is 1, expected 0");
}

#[test]
fn loops_give_the_same_on_every_level() {
    struct Sum<'a>(&'a [f32], &'a [u8]);
    impl Loops for Sum<'_> {
        type Output = (f32, u64);
        #[inline(always)]
        fn run(self) -> (f32, u64) {
            let mut sums = (0.0, 0_u64);
            for (x, code) in self.0.iter().zip(self.1) {
                sums.0 += x * f32::from(*code);
                sums.1 = sums.1.rotate_left(5) ^ u64::from(*code);
            }
            sums
        }
    }
    let x: Vec<f32> = (0..1000).map(|i| (i as f32).sin()).collect();
    let codes: Vec<u8> = (0..1000).map(|i| (i * 37 % 251) as u8).collect();
    let expected = Sum(&x, &codes).run();
    for level in levels() {
        let (sum, mixed) = vectorize(level, Sum(&x, &codes));
        assert_eq!((sum.to_bits(), mixed), (expected.0.to_bits(), expected.1), "at {level}");
    }
}
