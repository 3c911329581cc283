// SPDX-License-Identifier: MIT OR Apache-2.0

//! `kernels/add.cpp`.

use ascend_sim::{Args, Image, Launch, Mode};

use crate::numbers::eighths;
use crate::run::{ARCHS, SEEDS, chip, each_is_needed, image, modes};

const SOURCE: &str = "kernels/add.cpp";

fn launch<'a>(image: &Image, x: &'a [f32], y: &'a [f32], z: &'a mut [f32], tile: u32, blocks: u32) -> Launch<'a> {
    let args = Args::new().input(x).input(y).buffer(z).value(x.len() as u32).value(tile);
    image.launch("add").unwrap().args(args).blocks(blocks)
}

#[test]
fn sums_are_right_in_every_order() {
    // Length, tile, blocks: less than a block of 32 bytes, cores without work, tails, whole tiles.
    let shapes = [(1, 64, 2), (7, 8, 3), (64, 64, 1), (1000, 64, 3), (2053, 128, 4)];
    for arch in ARCHS {
        let image = image(SOURCE, arch);
        for (length, tile, blocks) in shapes {
            let (x, y) = (eighths(length, 1), eighths(length, 2));
            let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
            for mode in modes(SEEDS) {
                let mut z = vec![f32::NAN; length];
                let mut launch = launch(&image, &x, &y, &mut z, tile, blocks).chip(chip(arch)).mode(mode).record(false);
                launch.run().unwrap_or_else(|error| panic!("{arch} {length} {tile} {blocks} {mode:?}: {error}"));
                drop(launch);
                assert_eq!(z, expected, "{arch} {length} {tile} {blocks} {mode:?}");
            }
        }
    }
}

#[test]
fn every_queue_call_is_needed() {
    for arch in ARCHS {
        let image = image(SOURCE, arch);
        let (x, y, mut z) = (eighths(500, 1), eighths(500, 2), vec![0.0f32; 500]);
        // Seven tiles: every buffer comes round again.
        let all = each_is_needed(launch(&image, &x, &y, &mut z, 72, 1).chip(chip(arch)), 8);
        let names: Vec<&str> = all.iter().map(|m| m.sync.api.as_str()).collect();
        for api in ["AllocTensor", "EnQue", "DeQue", "FreeTensor"] {
            assert_eq!(names.iter().filter(|n| **n == api).count(), 2, "{api} of {names:?}");
        }
    }
}

#[test]
fn a_dry_run_records_what_a_run_does() {
    for arch in ARCHS {
        let image = image(SOURCE, arch);
        let (x, y, mut z) = (eighths(500, 1), eighths(500, 2), vec![0.0f32; 500]);
        let run = launch(&image, &x, &y, &mut z, 72, 2).chip(chip(arch)).run().unwrap();
        let dry = launch(&image, &x, &y, &mut z, 72, 2).chip(chip(arch)).mode(Mode::Dry).run().unwrap();
        let count = |run: &ascend_sim::Run| run.program.cores.iter().map(|core| core.records.len()).sum::<usize>();
        assert!(count(&run) > 40);
        assert_eq!(count(&run), count(&dry));
        // The same with addresses only, which no other mode takes.
        let absent = || Args::new().absent(2000).absent(2000).absent(2000).value(500u32).value(72u32);
        let launch = || image.launch("add").unwrap().args(absent()).blocks(2).chip(chip(arch));
        assert_eq!(count(&launch().mode(Mode::Dry).run().unwrap()), count(&dry));
        let message = launch().run().unwrap_err().to_string();
        assert_eq!(message, "`x` is addresses without memory, expected memory in mode fast");
        // What the scalar unit decides by must be there.
        let matmul = crate::run::image("kernels/matmul.cpp", arch);
        let launch = matmul.launch("matmul_f32").unwrap().chip(chip(arch)).mode(Mode::Dry);
        let args = Args::dry(launch.kernel(), &[]).unwrap();
        let message = launch.args(args).run().unwrap_err().to_string();
        assert!(message.contains("`tiling`, of which this dry launch has only addresses"), "{message}");
        let unknown = Args::dry(matmul.kernel("matmul_f32").unwrap().1, &[("tilings", &[])]).unwrap_err();
        assert!(unknown.to_string().contains("has no parameter `tilings`: it has a, b, c, tiling"), "{unknown}");
    }
}
