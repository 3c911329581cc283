// SPDX-License-Identifier: MIT OR Apache-2.0

//! `kernels/mix.cpp`.

use ascend_sim::{Args, Image, Launch};

use crate::matmul::Problem;
use crate::numbers::{bf16, eighths, value};
use crate::run::{ARCHS, SEEDS, chip, each_is_needed, image, modes};

const SOURCE: &str = "kernels/mix.cpp";

fn launch<'a>(image: &Image, p: &'a Problem, bias: &'a [f32], d: &'a mut [u16]) -> Launch<'a> {
    let slots = 2 * p.blocks * p.tiling[3] * p.tiling[4] * 4;
    let args = Args::new().input(&p.a).input(&p.b).input(bias).buffer(d).workspace(slots as usize).input(&p.tiling);
    let arch = if image.arch() == 3510 { ARCHS[1] } else { ARCHS[0] };
    image.launch("mix_silu").unwrap().args(args).blocks(p.blocks).chip(chip(arch))
}

fn silu(x: f32) -> f32 {
    x / (1.0 + (-x).exp())
}

#[test]
fn activations_are_right_in_every_order() {
    for arch in ARCHS {
        let image = image(SOURCE, arch);
        for p in Problem::all() {
            let bias = eighths(p.n, 5);
            let expected: Vec<f32> = p.c.iter().enumerate().map(|(i, x)| silu(x + bias[i % p.n])).collect();
            for mode in modes(SEEDS) {
                let mut d = vec![bf16(f32::NAN); p.m * p.n];
                let mut launch = launch(&image, &p, &bias, &mut d).mode(mode).record(false);
                launch.run().unwrap_or_else(|error| panic!("{arch} {} {mode:?}: {error}", p.shape()));
                drop(launch);
                for (i, (&found, &expected)) in d.iter().zip(&expected).enumerate() {
                    // The F32 value may round to either neighbour.
                    let step = expected.abs() / 128.0 + 1e-37;
                    let found = value(found);
                    assert!((found - expected).abs() <= step, "{arch} {} {mode:?} {i}: {found} {expected}", p.shape());
                }
            }
        }
    }
}

#[test]
fn every_flag_and_barrier_is_needed() {
    for arch in ARCHS {
        let image = image(SOURCE, arch);
        // Nine tiles on one block.
        let p = Problem::new((44, 44, 40), [16, 16, 32, 16], 1);
        let (bias, mut d) = (eighths(p.n, 5), vec![0u16; p.m * p.n]);
        each_is_needed(launch(&image, &p, &bias, &mut d), 47);
    }
}
