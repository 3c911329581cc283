// SPDX-License-Identifier: MIT OR Apache-2.0

//! How fast the twin itself is: `cargo bench -p ascend-sim -- [--rounds N]`.
//!
//! Per kernel: the time of a launch in fast mode, under a chaos seed, in dry mode, and in dry mode with the cost model's replay
//! of the record; simulated instructions a second, and the rate of the arithmetic that the host carries out for them. The
//! modes of one kernel are measured in turn, round by round; figures are medians.

use ascend_build::Arch;
use ascend_sim::cost::{self, Options};
use ascend_sim::{Args, Chip, Image, Launch, Mode, Run, compile, kernel_of};
use std::path::Path;
use std::time::Instant;

fn image(source: &str, arch: Arch) -> Image {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let recipe = kernel_of(&root.join(source), root, None, None).expect("a kernel of this crate");
    compile(&recipe, arch).expect("a C++17 compiler")
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

/// Runs one launch in a mode, with or without a record, and says how long it took.
type Timed<'a> = dyn FnMut(Mode, bool) -> (f64, Run) + 'a;

fn timed(launch: Launch<'_>, chip: &Chip, mode: Mode, record: bool) -> (f64, Run) {
    let mut launch = launch.chip(chip.clone()).mode(mode).record(record);
    let start = Instant::now();
    let run = launch.run().expect("a right kernel");
    (start.elapsed().as_secs_f64(), run)
}

fn measure(name: &str, chip: &Chip, flop: f64, rounds: usize, one: &mut Timed<'_>) {
    let mut seconds = [const { Vec::new() }; 4];
    let (mut instructions, mut records, mut predicted) = (0, 0, 0.0);
    for round in 0..rounds {
        seconds[0].push(one(Mode::Fast, false).0);
        seconds[1].push(one(Mode::Chaos(round as u64 + 1), false).0);
        let (dry, run) = one(Mode::Dry, true);
        seconds[2].push(dry);
        instructions = run.instructions;
        records = run.program.cores.iter().map(|core| core.records.len()).sum();
        let start = Instant::now();
        let timeline = cost::simulate(&run.program, chip, &Options::default()).expect("it can end");
        seconds[3].push(start.elapsed().as_secs_f64());
        predicted = timeline.microseconds();
    }
    let [fast, chaos, dry, replay] = seconds.map(median);
    println!("{name} on {}: {instructions} instructions, {records} records, predicted {predicted:.1} us", chip.name);
    for (mode, time) in [("fast", fast), ("chaos", chaos), ("dry", dry), ("cost", dry + replay)] {
        print!("  {mode:<6} {:>10.2} ms {:>12.0} instructions a second", time * 1e3, instructions as f64 / time);
        match mode {
            "fast" | "chaos" => println!(" {:>8.2} GFLOP/s", flop / time / 1e9),
            _ => println!(),
        }
    }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let value = words.iter().position(|word| word == "--rounds").and_then(|at| words.get(at + 1));
    let rounds = value.and_then(|value| value.parse().ok()).unwrap_or(5).max(1);
    for (arch, chip) in [(Arch::Dav2201, "910b3"), (Arch::Dav3510, "950pr")] {
        let chip = Chip::preset(chip).expect("a known chip");

        let adds = image("kernels/add.cpp", arch);
        let length = 4 << 20;
        let (x, y) = (vec![1.0f32; length], vec![2.0f32; length]);
        let mut z = vec![0.0f32; length];
        measure("add, 4 Mi F32 in tiles of 4096", &chip, length as f64, rounds, &mut |mode, record| {
            let args = Args::new().input(&x).input(&y).buffer(&mut z).value(length as u32).value(4096u32);
            timed(adds.launch("add").expect("a kernel").args(args).blocks(chip.vector_cores), &chip, mode, record)
        });

        let products = image("kernels/matmul.cpp", arch);
        for size in [512u32, 1024] {
            let words = (size * size) as usize;
            // BF16 one.
            let (a, b) = (vec![0x3f80u16; words], vec![0x3f80u16; words]);
            let mut c = vec![0u16; words];
            // As `MatmulTiling` of `kernels/matmul.h`: m, n, k, the tile's, the step of k, and one that is not used.
            let tiling = [size, size, size, 128, 128, 256, 64, 0];
            let blocks = (size / 128).pow(2).min(chip.cube_cores);
            let flop = 2.0 * f64::from(size).powi(3);
            measure(&format!("matmul, BF16 {size}^3"), &chip, flop, rounds, &mut |mode, record| {
                let args = Args::new().input(&a).input(&b).buffer(&mut c).input(&tiling);
                timed(products.launch("matmul_bf16").expect("a kernel").args(args).blocks(blocks), &chip, mode, record)
            });
        }
    }
}
