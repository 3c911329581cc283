// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the machine can do: read bandwidth and multiply-add rate. Benches time these beside the kernels, in the same rounds,
//! and state a kernel's speed as a fraction of them, because absolute speeds of shared machines move by half.

use crate::acts::Precision;
use crate::kernels::dot::{Dot, DotKernel, dispatch_dot};
use crate::kernels::simd::{Kernel, Simd, dispatch};
use crate::level::Level;
use crate::mem::Buffer;
use crate::threads::Pool;
use std::hint::black_box;
use std::time::Instant;

/// Reads a large buffer from memory with all threads.
#[derive(Debug)]
pub struct Bandwidth {
    buffer: Buffer,
}

/// Bytes that one task of the bandwidth probe reads.
const TASK: usize = 1 << 20;

impl Bandwidth {
    /// A buffer of `bytes` bytes, which should be many times the last-level cache, all of its pages touched.
    pub fn new(bytes: usize) -> std::io::Result<Self> {
        let mut buffer = Buffer::zeroed(bytes)?;
        buffer.fill(1);
        Ok(Self { buffer })
    }

    /// Reads the buffer once; bytes per second.
    pub fn run(&self, pool: &Pool) -> f64 {
        struct Read<'a>(&'a [u8]);
        impl Kernel for Read<'_> {
            type Output = f32;
            #[inline(always)]
            fn run<S: Simd>(self, s: S) -> f32 {
                let mut sums = [s.splat(0.0); 8];
                for chunk in self.0.chunks_exact(8 * 4 * S::LANES) {
                    for (j, sum) in sums.iter_mut().enumerate() {
                        // SAFETY: the chunk has eight vectors.
                        *sum = s.max(*sum, unsafe { s.load(chunk.as_ptr().cast::<f32>().add(j * S::LANES)) });
                    }
                }
                sums.into_iter().map(|sum| s.reduce_max(sum)).fold(0.0, f32::max)
            }
        }
        let level = Level::best();
        let start = Instant::now();
        pool.run(self.buffer.len().div_ceil(TASK), |task| {
            let end = self.buffer.len().min((task + 1) * TASK);
            black_box(dispatch(level, Read(&self.buffer[task * TASK..end])));
        });
        self.buffer.len() as f64 / start.elapsed().as_secs_f64()
    }
}

/// The multiply-add rate of `level` with all threads, operands in registers, in FLOP per second (a multiply-add is two):
/// BF16 dot products where the level has them and the precision is BF16, F32 multiply-adds otherwise. `iterations` of
/// some hundred FLOP are done by each of a few tasks per thread.
pub fn peak(level: Level, precision: Precision, pool: &Pool, iterations: u64) -> f64 {
    struct F32(u64);
    impl Kernel for F32 {
        type Output = u64;
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> u64 {
            let factor = s.splat(black_box(0.5));
            let mut sums = [s.splat(1.0); 12];
            for _ in 0..self.0 {
                for sum in &mut sums {
                    *sum = s.fma(*sum, factor, factor);
                }
            }
            let total = sums.into_iter().fold(s.splat(0.0), |a, b| s.add(a, b));
            black_box(s.reduce_add(total));
            self.0 * 12 * 2 * S::LANES as u64
        }
    }
    struct Bf16(u64);
    impl DotKernel for Bf16 {
        type Output = u64;
        #[inline(always)]
        fn run<D: Dot>(self, d: D) -> u64 {
            let pair = black_box([0_u16; 2]);
            // SAFETY: two values are readable.
            let pair = unsafe { d.broadcast_pair(pair.as_ptr()) };
            let mut sums = [d.zero(); 16];
            for _ in 0..self.0 {
                for sum in &mut sums {
                    *sum = d.dot(*sum, pair, pair);
                }
            }
            for sum in sums {
                let mut out = [0.0; 16];
                // SAFETY: 16 values are writable.
                unsafe { d.store_f32(out.as_mut_ptr(), sum) };
                black_box(out);
            }
            self.0 * 16 * 64
        }
    }
    let tasks = 4 * pool.threads();
    let flop = std::sync::atomic::AtomicU64::new(0);
    let start = Instant::now();
    pool.run(tasks, |_| {
        let done = if precision == Precision::Bf16 && level.has_bf16_dot() {
            dispatch_dot(level, Bf16(iterations))
        } else {
            dispatch(level, F32(iterations))
        };
        flop.fetch_add(done, std::sync::atomic::Ordering::Relaxed);
    });
    flop.into_inner() as f64 / start.elapsed().as_secs_f64()
}
