// SPDX-License-Identifier: MIT OR Apache-2.0

//! The cost model: predictions against published profiles, laws that any of its results keep, its parts by hand.

mod programs;

use ascend_sim::cost::{Chip, Options, Program, Timeline, simulate};
use programs::{Grouped, Matmul, Sweep};

fn chip(name: &str) -> Chip {
    Chip::preset(name).expect("a known chip")
}

fn run(program: &Program, chip: &Chip) -> Timeline {
    let options = Options::default().with_launch(true).with_warm(true);
    simulate(program, chip, &options).expect("a record that can be replayed")
}

#[test]
#[ignore]
fn calib() {
    let a2 = chip("910B1");
    let p = chip("950PR");
    let show = |name: &str, program: &Program, chip: &Chip, want: f64| {
        let t0 = std::time::Instant::now();
        let t = run(program, chip);
        let n: usize = program.cores.iter().map(|c| c.records.len()).sum();
        print!("{name:24} {:9.1} / {want:9.1} = {:.3} |", t.microseconds(), t.microseconds() / want);
        for (cube, k) in [(true, "aic"), (false, "aiv")] {
            if t.mean_cycles(cube) > 0.0 {
                print!(" {k} {:.1}:", t.us(t.mean_cycles(cube)));
                for (i, p) in ascend_sim::cost::PIPES.iter().enumerate() {
                    let b = t.us(t.mean_busy(cube, i));
                    if b > 0.0 { print!(" {p} {b:.1}") }
                }
            }
        }
        println!(" | hbm {:.0}+{:.0} MB l2 {:.0} MB {} recs {:.2}s", t.hbm_read / 1e6, t.hbm_written / 1e6, (t.l2_read + t.l2_written) / 1e6, n, t0.elapsed().as_secs_f64());
        if std::env::var("WORDS").is_ok() {for s in t.summary(program) { println!("      {s}"); }}
    };
    show("add single core", &programs::add(1, 4096, false, false), &a2, 6909.6);
    show("add 8K", &programs::add(48, 4096, false, false), &a2, 306.58);
    show("add 32K", &programs::add(48, 16384, false, false), &a2, 268.5);
    show("add double", &programs::add(48, 16384, true, false), &a2, 264.02);
    show("add bypass", &programs::add(48, 16384, true, true), &a2, 187.68);
    show("950 add 8K", &programs::add(64, 4096, false, false), &p, 310.489);
    show("950 add 43K", &programs::add(64, 21760, false, false), &p, 251.684);
    show("950 add double", &programs::add(64, 21760, true, false), &p, 247.665);
    show("950 add bypass", &programs::add(64, 21760, true, true), &p, 182.04);
    let ub = Sweep { blocks: 48, l1: false, rows: 12288, columns: 12288, tile: (64, 1024), parts: 1, repeats: 1 };
    let l1 = Sweep { blocks: 24, l1: true, ..ub };
    show("sweep ub 1x64", &programs::sweep(&Sweep { tile: (1, 64), ..ub }), &a2, 564.84);
    show("sweep ub 64x64", &programs::sweep(&Sweep { tile: (64, 64), ..ub }), &a2, 233.54);
    show("sweep ub", &programs::sweep(&ub), &a2, 215.82);
    show("sweep ub odd", &programs::sweep(&Sweep { columns: 12287, ..ub }), &a2, 275.3);
    show("sweep ub x4", &programs::sweep(&Sweep { repeats: 4, ..ub }), &a2, 828.06);
    show("sweep ub 4x4", &programs::sweep(&Sweep { repeats: 4, parts: 4, ..ub }), &a2, 365.74);
    show("sweep l1 64x64", &programs::sweep(&Sweep { tile: (64, 64), ..l1 }), &a2, 300.7);
    show("sweep l1 64x256", &programs::sweep(&Sweep { tile: (64, 256), ..l1 }), &a2, 230.24);
    show("sweep l1 odd", &programs::sweep(&Sweep { tile: (64, 256), columns: 12287, ..l1 }), &a2, 438.76);
    show("sweep l1 x4", &programs::sweep(&Sweep { repeats: 4, ..l1 }), &a2, 899.34);
    show("sweep l1 4x4", &programs::sweep(&Sweep { repeats: 4, parts: 4, ..l1 }), &a2, 414.96);
    let ub = Sweep { blocks: 64, ..ub };
    let l1 = Sweep { blocks: 32, ..l1 };
    show("950 ub 1x64", &programs::sweep(&Sweep { tile: (1, 64), ..ub }), &p, 884.06);
    show("950 ub", &programs::sweep(&ub), &p, 188.52);
    show("950 ub 4x4", &programs::sweep(&Sweep { repeats: 4, parts: 4, ..ub }), &p, 354.95);
    show("950 l1 64x256", &programs::sweep(&Sweep { tile: (64, 256), ..l1 }), &p, 190.52);
    show("950 l1 4x4", &programs::sweep(&Sweep { repeats: 4, parts: 4, ..l1 }), &p, 390.347);
    let g = Grouped { blocks: 24, vectors: 1, depth: 1, base_m: 128, fused: false };
    show("grouped 1", &programs::grouped(&g), &a2, 583.5);
    show("grouped 2", &programs::grouped(&Grouped { vectors: 2, ..g }), &a2, 353.9);
    show("grouped ring", &programs::grouped(&Grouped { vectors: 2, depth: 4, ..g }), &a2, 299.3);
    let g = Grouped { blocks: 32, vectors: 1, depth: 1, base_m: 256, fused: true };
    show("950 grouped 1", &programs::grouped(&g), &p, 282.7);
    show("950 grouped 2", &programs::grouped(&Grouped { vectors: 2, ..g }), &p, 224.1);
    show("950 grouped ring", &programs::grouped(&Grouped { vectors: 2, depth: 4, ..g }), &p, 204.1);
    let half = Matmul {
        blocks: 24, size: (8192, 8192, 8192), base: (128, 256, 64), single: (2048, 1536), steps: (8, 4), bits: 16,
        dtype: programs::F16, new_loads: false, unit_flag: true, scale_steps: 0, rounds: 1,
    };
    show("half A2", &programs::matmul(&half), &a2, 4121.0);
    show("half A2 rounds", &programs::matmul(&Matmul { rounds: 2, single: (1024, 1536), ..half.clone() }), &a2, 4081.6);
    let half = Matmul { blocks: 32, base: (256, 256, 64), single: (2048, 1024), steps: (4, 4), new_loads: true, ..half };
    show("half 950", &programs::matmul(&half), &p, 2572.0);
    let mx = Matmul { base: (256, 256, 256), steps: (2, 2), bits: 4, dtype: programs::MX_E2M1, unit_flag: false, scale_steps: 4, ..half };
    show("mxfp4 950", &programs::matmul(&mx), &p, 681.0);
}
