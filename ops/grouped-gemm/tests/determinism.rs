// SPDX-License-Identifier: MIT OR Apache-2.0

//! The same bits for every number of threads, in every path.

use crate::fixture::{Choices, Moe, Rows, combined, cumsum, dims, eager, grouped, pool};
use cpu_tiles::{Format, Level, Precision};
use grouped_gemm::{Activation, ROW_BLOCK};
use op_testkit::compare::assert_same_bits;

const THREADS: [usize; 4] = [1, 2, 3, 8];

/// `run` with each number of threads, at each level of this machine.
fn same_for_all_thread_counts(what: &str, run: impl Fn(Level, usize) -> Vec<f32>) {
    for level in Level::available() {
        let [first, others @ ..] = THREADS;
        let expected = run(level, first);
        for threads in others {
            let what = format!("{what}: {threads} threads at {level}");
            assert_same_bits(&what, &run(level, threads), &expected, &[expected.len()]);
        }
    }
}

#[test]
fn grouped_gemm() {
    let dims = dims(4, 200, 136, Activation::SWIGLU_OAI);
    for format in [Format::Bf16, Format::Fp8Block, Format::Mxfp8] {
        for precision in [Precision::Bf16, Precision::F32] {
            let moe = Moe::new(dims, format, 1);
            let rows = Rows::new(precision, 45, dims.hidden, 2);
            let cumsum = cumsum(&[20, 0, 1, 24]);
            same_for_all_thread_counts(&format!("{format}, {precision:?}"), |level, threads| {
                grouped(level, &pool(threads), &dims, &rows, &moe.row_major(), &cumsum).unwrap()
            });
        }
    }
}

/// Eight terms of mixed sign and magnitude for each output: their order decides about the last bits.
#[test]
fn moe_ffn() {
    let dims = dims(16, 136, 72, Activation::Silu);
    let moe = Moe::new(dims, Format::Fp8Block, 3);
    let rows = Rows::new(Precision::Bf16, 30, dims.hidden, 4);
    let mut choices = Choices::new(30, dims.experts, 8, 5);
    for (choice, weight) in choices.weights.iter_mut().enumerate() {
        *weight *= [1.0, -32.0, 0.125, 512.0][choice % 4];
    }
    for run in [combined, eager] {
        same_for_all_thread_counts("moe_ffn", |level, threads| {
            run(level, &pool(threads), &dims, &rows, &moe.row_major(), &choices).unwrap()
        });
    }
}

/// More rows than a wave takes: experts side by side, and one expert that is split. The eager form knows no waves.
#[test]
fn waves_of_rows() {
    let cases = [(5, 700, 4), (1, ROW_BLOCK + 50, 1), (2, ROW_BLOCK + 1, 2)];
    for (experts, tokens, k) in cases {
        assert!(tokens * k > ROW_BLOCK);
        let dims = dims(experts, 72, 40, Activation::Silu);
        let moe = Moe::new(dims, Format::Bf16, 6);
        let rows = Rows::new(Precision::Bf16, tokens, dims.hidden, 7);
        let choices = Choices::new(tokens, experts, k, 8);
        same_for_all_thread_counts("waves", |level, threads| {
            combined(level, &pool(threads), &dims, &rows, &moe.row_major(), &choices).unwrap()
        });
        let [fused, eager] = [combined, eager]
            .map(|run| run(Level::best(), &pool(2), &dims, &rows, &moe.row_major(), &choices).unwrap());
        assert_same_bits("fused and eager", &fused, &eager, &[tokens, dims.hidden]);
    }
}
