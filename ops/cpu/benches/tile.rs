// SPDX-License-Identifier: MIT OR Apache-2.0

//! How fast `tile` streams a packed weight from memory, each format and from 1 to 256 rows, as a share of the read
//! bandwidth and the multiply-add peak that are measured in the same rounds.
//!
//! `cargo bench -p cpu-tiles --bench tile [-- ROUNDS [FORMAT]]`

use cpu_tiles::probe::{Bandwidth, peak};
use cpu_tiles::{Acts, E8M0, F8E4M3, Level, Overflow, PANEL, PackedWeight, Pool, Precision, WeightRef, tile};
use half::bf16;
use std::time::Instant;

const N: usize = 8192;
const K: usize = 6144;
/// Weights of one format: together far more than a cache.
const WEIGHTS: usize = 6;
const ROWS: [usize; 9] = [1, 2, 3, 4, 6, 8, 16, 64, 256];

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Random bits, one after the other.
fn bits(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 11
    }
}

/// About normally distributed, with variance one.
fn normal(next: &mut impl FnMut() -> u64) -> f32 {
    (0..12).map(|_| (next() % 65536) as f32 / 65536.0).sum::<f32>() - 6.0
}

/// A number of rows, and what each round has measured of it.
struct Case {
    rows: usize,
    acts: Acts,
    ms: Vec<f64>,
    of_bandwidth: Vec<f64>,
    of_peak: Vec<f64>,
    of_limit: Vec<f64>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let rounds: usize = args.next().map_or(Ok(7), |arg| arg.parse())?;
    let only = args.next();
    let (level, pool) = (Level::from_env()?, Pool::from_env()?);
    let bandwidth = Bandwidth::new(512 << 20)?;

    let mut next = bits(1);
    let values: Vec<f32> = (0..1 << 16).map(|_| normal(&mut next)).collect();
    let codes: Vec<F8E4M3> = (0..N * K)
        .map(|_| F8E4M3::from_f32(values[next() as usize % values.len()] * 110.0, Overflow::Saturate))
        .collect();
    println!("{level}, {} threads, [{N}, {K}] weights", pool.threads());
    println!("format   rows   median ms      GB/s   GFLOP/s   of bandwidth   of peak   of limit");
    for format in ["bf16", "fp8", "mxfp8"] {
        if only.as_ref().is_some_and(|only| only != format) {
            continue;
        }
        let wide: Vec<bf16> = match format {
            "bf16" => codes.iter().map(|code| bf16::from_f32(code.to_f32())).collect(),
            _ => Vec::new(),
        };
        let blocks = vec![0.003_f32; N / 128 * (K / 128)];
        let groups: Vec<E8M0> = (0..N * K / 32).map(|_| E8M0::from_bits(116 + (next() % 4) as u8)).collect();
        let weight = match format {
            "bf16" => WeightRef::bf16(N, K, &wide)?,
            "fp8" => WeightRef::fp8_block(N, K, &codes, &blocks)?,
            _ => WeightRef::mxfp8(N, K, &codes, &groups)?,
        };
        let weights: Vec<PackedWeight> =
            (0..WEIGHTS).map(|_| PackedWeight::pack(level, &pool, weight)).collect::<Result<_, _>>()?;
        drop(wide);
        let bytes = weights[0].bytes();
        let mut cases = Vec::new();
        for rows in ROWS {
            let x: Vec<f32> = (0..rows * K).map(|_| values[next() as usize % values.len()]).collect();
            let acts = Acts::from_f32(level, &pool, Precision::Bf16, rows, K, &x)?;
            let (ms, of_bandwidth, of_peak, of_limit) = Default::default();
            cases.push(Case { rows, acts, ms, of_bandwidth, of_peak, of_limit });
        }
        let mut call = 0;
        for _ in 0..rounds {
            let speed = median((0..3).map(|_| bandwidth.run(&pool)).collect());
            let flops = median((0..3).map(|_| peak(level, Precision::Bf16, &pool, 100_000)).collect());
            for Case { rows, acts, ms, of_bandwidth, of_peak, of_limit } in &mut cases {
                let all: Vec<u32> = (0..*rows as u32).collect();
                let mut times = Vec::new();
                for _ in 0..5 {
                    let weight = (&weights[call % WEIGHTS]).into();
                    call += 1;
                    let start = Instant::now();
                    pool.try_run(N / PANEL, |panel| {
                        tile(weight, panel, acts, &all, &mut vec![0.0; all.len() * PANEL])
                    })?;
                    times.push(start.elapsed().as_secs_f64());
                }
                let seconds = median(times);
                let (memory, compute) = (bytes as f64 / speed, (2 * *rows * N * K) as f64 / flops);
                ms.push(seconds * 1e3);
                of_bandwidth.push(memory / seconds);
                of_peak.push(compute / seconds);
                of_limit.push(memory.max(compute) / seconds);
            }
        }
        for Case { rows, ms, of_bandwidth, of_peak, of_limit, .. } in cases {
            let ms = median(ms);
            println!(
                "{format:6} {rows:6} {ms:11.3} {:9.1} {:9.1} {:12.0} % {:7.0} % {:8.0} %",
                bytes as f64 / ms / 1e6,
                (2 * rows * N * K) as f64 / ms / 1e6,
                100.0 * median(of_bandwidth),
                100.0 * median(of_peak),
                100.0 * median(of_limit)
            );
        }
    }
    Ok(())
}
