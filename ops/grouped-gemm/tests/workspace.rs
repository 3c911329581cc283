// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that is kept from call to call: the same bits whatever was computed in it before, and no allocation.

use crate::fixture::{Choices, Moe, Rows, combined, dims, pool};
use cpu_tiles::{Format, Level, Precision, reserve_tile_scratch};
use grouped_gemm::{Activation, Error, ROW_BLOCK, Workspace, moe_ffn_eager_in, moe_ffn_in};
use op_testkit::allocations::count_allocations;
use op_testkit::compare::assert_same_bits;

#[test]
fn calls_of_all_sizes_share_a_workspace() {
    let (level, pool) = (Level::best(), pool(2));
    let mut workspace = Workspace::new();
    let small = dims(5, 40, 72, Activation::SWIGLU_OAI);
    let large = dims(3, 136, 33, Activation::Silu);
    for (number, (dims, precision, tokens, k)) in [
        (small, Precision::Bf16, 9, 2),
        (large, Precision::F32, 30, 3),
        (small, Precision::F32, 1, 5),
        (large, Precision::Bf16, ROW_BLOCK / 2, 3),
        (small, Precision::Bf16, 0, 1),
        (small, Precision::Bf16, 2, 1),
    ]
    .into_iter()
    .enumerate()
    {
        let moe = Moe::new(dims, Format::Bf16, number as u64);
        let rows = Rows::new(precision, tokens, dims.hidden, 2);
        let choices = Choices::new(tokens, dims.experts, k, 3);
        let (ids, weights, experts) = (&choices.ids[..], &choices.weights[..], moe.row_major());
        let expected = combined(level, &pool, &dims, &rows, &experts, &choices).unwrap();
        let shape = [tokens, dims.hidden];
        let mut out = vec![f32::NAN; tokens * dims.hidden];
        moe_ffn_in(&mut workspace, level, &pool, &dims, rows.tokens(), &experts, ids, weights, &mut out).unwrap();
        assert_same_bits(&format!("fused, call {number}"), &out, &expected, &shape);
        out.fill(f32::NAN);
        moe_ffn_eager_in(&mut workspace, level, &pool, &dims, rows.tokens(), &experts, ids, weights, &mut out).unwrap();
        assert_same_bits(&format!("eager, call {number}"), &out, &expected, &shape);
        // What is refused does no harm to the next call.
        if tokens > 0 {
            let too_large = vec![dims.experts as u32; ids.len()];
            let run =
                moe_ffn_in(&mut workspace, level, &pool, &dims, rows.tokens(), &experts, &too_large, weights, &mut out);
            assert!(matches!(run, Err(Error::ExpertId { .. })), "{run:?}");
        }
    }
}

#[test]
fn a_call_like_an_earlier_one_allocates_nothing() {
    let pool = pool(2);
    let dims = dims(8, 136, 72, Activation::Silu);
    for level in Level::available() {
        for format in [Format::Bf16, Format::Fp8Block, Format::Mxfp8] {
            for precision in [Precision::F32, Precision::Bf16] {
                let (moe, rows) = (Moe::new(dims, format, 1), Rows::new(precision, 4, dims.hidden, 2));
                let experts = moe.row_major();
                let mut out = vec![0.0; 4 * dims.hidden];
                let mut workspace = Workspace::new();
                pool.on_each_thread(|| reserve_tile_scratch(4, 136).unwrap());
                let mut call = |seed| {
                    // Other experts each time, as many of them.
                    let choices = Choices::new(4, dims.experts, 8, seed);
                    let run = || {
                        let (ids, weights, tokens) = (&choices.ids[..], &choices.weights[..], rows.tokens());
                        moe_ffn_in(&mut workspace, level, &pool, &dims, tokens, &experts, ids, weights, &mut out)
                            .unwrap();
                        moe_ffn_eager_in(&mut workspace, level, &pool, &dims, tokens, &experts, ids, weights, &mut out)
                            .unwrap();
                    };
                    count_allocations(|each| pool.on_each_thread(each), run).0
                };
                assert!(call(3) > 0, "the first call makes the memory");
                assert_eq!([call(4), call(5)], [0, 0], "{level} {format} {precision:?}");
            }
        }
    }
}
