// SPDX-License-Identifier: MIT OR Apache-2.0

//! `kernels/matmul.cpp`.

use ascend_sim::{Args, Image, Launch};

use crate::numbers::{bf16, bf16s, eighths, product};
use crate::run::{ARCHS, SEEDS, chip, each_is_needed, image, modes};

const SOURCE: &str = "kernels/matmul.cpp";

/// As `MatmulTiling` of `kernels/matmul.h`.
pub(crate) type Tiling = [u32; 8];

pub(crate) struct Problem {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) tiling: Tiling,
    pub(crate) blocks: u32,
    pub(crate) a: Vec<u16>,
    pub(crate) b: Vec<u16>,
    pub(crate) c: Vec<f32>,
}

impl Problem {
    /// `tile`: rows, columns, K in L1, K in L0.
    pub(crate) fn new((m, n, k): (usize, usize, usize), tile: [u32; 4], blocks: u32) -> Self {
        let (a, b) = (eighths(m * k, 3), eighths(k * n, 4));
        let tiling = [m as u32, n as u32, k as u32, tile[0], tile[1], tile[2], tile[3], 0];
        Self { m, n, k, tiling, blocks, c: product(&a, &b, m, n, k), a: bf16s(&a), b: bf16s(&b) }
    }

    /// Nothing is a multiple of anything; one row; one fractal; whole tiles; more cores than tiles; tiles of 3 by 4 fractals.
    pub(crate) fn all() -> [Self; 6] {
        [
            Self::new((37, 45, 53), [32, 32, 32, 16], 2),
            Self::new((1, 40, 70), [16, 32, 32, 32], 1),
            Self::new((16, 16, 16), [16, 16, 16, 16], 1),
            Self::new((64, 64, 64), [32, 32, 32, 16], 1),
            Self::new((20, 17, 33), [16, 16, 48, 16], 5),
            Self::new((100, 70, 90), [48, 64, 64, 32], 2),
        ]
    }

    pub(crate) fn shape(&self) -> String {
        format!("{}x{}x{} {:?}", self.m, self.n, self.k, self.tiling)
    }
}

fn launch<'a, T: ascend_sim::Element>(image: &Image, entry: &str, p: &'a Problem, c: &'a mut [T]) -> Launch<'a> {
    let args = Args::new().input(&p.a).input(&p.b).buffer(c).input(&p.tiling);
    image.launch(entry).unwrap().args(args).blocks(p.blocks).chip(chip_of(image))
}

fn chip_of(image: &Image) -> ascend_sim::Chip {
    chip(if image.arch() == 3510 { ARCHS[1] } else { ARCHS[0] })
}

#[test]
fn products_are_right_in_every_order() {
    for arch in ARCHS {
        let image = image(SOURCE, arch);
        for p in Problem::all() {
            let expected = bf16s(&p.c);
            for mode in modes(SEEDS) {
                let mut c = vec![bf16(f32::NAN); p.m * p.n];
                let mut launch = launch(&image, "matmul_bf16", &p, &mut c).mode(mode).record(false);
                launch.run().unwrap_or_else(|error| panic!("{arch} {} {mode:?}: {error}", p.shape()));
                drop(launch);
                assert_eq!(c, expected, "{arch} {} {mode:?}", p.shape());
            }
            let mut c = vec![f32::NAN; p.m * p.n];
            let mut launch = launch(&image, "matmul_f32", &p, &mut c);
            launch.run().unwrap_or_else(|error| panic!("{arch} {}: {error}", p.shape()));
            drop(launch);
            assert_eq!(c, p.c, "{arch} {}", p.shape());
        }
    }
}

#[test]
fn every_flag_and_barrier_is_needed() {
    for arch in ARCHS {
        let image = image(SOURCE, arch);
        // Four tiles on one core, three strips of K in L1, two of each in L0.
        let p = Problem::new((40, 40, 90), [32, 32, 32, 16], 1);
        let mut c = vec![0u16; p.m * p.n];
        each_is_needed(launch(&image, "matmul_bf16", &p, &mut c), 23);
    }
}
