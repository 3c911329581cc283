// SPDX-License-Identifier: MIT OR Apache-2.0

//! The synchronisation of the kernel: without any one part of it, the twin must find a fault; and a launch is captured.

use crate::device::{Order, Stored, What, arch, context, launch, run};
use crate::fixture::{Choices, Moe, Rows, cumsum, dims};
use ascend_sim::testing::{argument_blocks, snapshot};
use ascend_sim::{Args, Mode, mutants};
use cpu_tiles::{Format, Precision};
use grouped_gemm::ascend_rt::{Arch, CaptureMode};
use grouped_gemm::npu::{self, Call, Layout, Options, Plan, Split, Tiles};
use grouped_gemm::{Activation, ascend_sim};
use half::bf16;

fn every_part_is_needed(arch: Arch, format: Format, layout: Layout) {
    // Few cores with unequal work, so that each of them goes round all rings: experts with few and with many rows, rows
    // that fit L1 and rows that do not, ragged sizes.
    let counts = [3, 150, 33, 0, 16, 2, 300];
    let mut moe = Moe::new(dims(counts.len(), 520, 328, Activation::SWIGLU_OAI), format, 5);
    // With FP8 weights, an expert with few rows and one with many whose weights the cube core cannot scale.
    moe.spoil(0, 2);
    moe.spoil(2, 0);
    let rows = cumsum(&counts);
    let n = counts.iter().sum::<usize>();
    let Rows::Bf16(x) = Rows::new(Precision::Bf16, n, 520, 6) else { unreachable!("asked for BF16") };
    let stored = Stored::new(&moe, layout, arch);
    let mut split = Split::new(&moe.dims, n as u32, layout, &Tiles::default(), arch, 2).unwrap();
    let slots: Vec<i32> = (0..n as i32 / 4 * 4).map(|i| i * 7 % n as i32).collect();
    let scales: Vec<f32> = slots.iter().map(|&slot| 1.0 / (1.0 + slot as f32)).collect();
    let (mut out, mut combined) = (vec![bf16::ZERO; x.len()], vec![0.0f32; n / 4 * 520]);
    let mut status = [0u32; 16];
    (split.tiling.tokens, split.tiling.choices) = (n as u32 / 4, 4);
    let tiling = [split.tiling];
    let args = Args::new().input(&x);
    let args = match &stored {
        Stored::Bf16 { w13, w2 } => args.input(w13).input(w2),
        Stored::Fp8(stored) => args.input(&stored.w13).input(&stored.scales13).input(&stored.w2).input(&stored.scales2),
    };
    let args = args.input(&rows).input(&slots).input(&scales).buffer(&mut out).buffer(&mut combined);
    let args = args.buffer(&mut status).workspace(split.workspace).input(&tiling);
    let image = ascend_sim::testing::image(npu::blobs(), arch, npu::twin_origin());
    let kernel = match &stored {
        Stored::Bf16 { .. } => "grouped_gemm_combine",
        Stored::Fp8(_) => "grouped_gemm_fp8_combine",
    };
    let mut launch = image.launch(kernel).unwrap().blocks(split.blocks).args(args);
    let all = mutants(&mut launch, 8).unwrap();
    let survivors: Vec<_> = all.iter().filter(|mutant| !mutant.is_found()).map(ToString::to_string).collect();
    let found = all.iter().filter(|mutant| mutant.is_found()).count();
    println!("{kernel} on {arch}: {} mutants, {found} found", all.len());
    assert!(all.len() > 50, "the kernel has more than {} places that synchronise", all.len());
    assert!(survivors.is_empty(), "{}", survivors.join("\n"));
}

#[test]
fn every_part_is_needed_on_910b() {
    every_part_is_needed(Arch::DAV_2201, Format::Bf16, Layout::Nz);
}

#[test]
fn every_part_is_needed_on_950() {
    every_part_is_needed(Arch::DAV_3510, Format::Bf16, Layout::Nz);
}

#[test]
fn every_part_is_needed_with_fp8_on_910b() {
    every_part_is_needed(Arch::DAV_2201, Format::Mxfp8, Layout::Mxfp8);
}

#[test]
fn every_part_is_needed_with_scales_of_blocks_on_910b() {
    every_part_is_needed(Arch::DAV_2201, Format::Fp8Block, Layout::Fp8Block);
}

#[test]
fn every_part_is_needed_with_fp8_on_950() {
    every_part_is_needed(Arch::DAV_3510, Format::Mxfp8, Layout::Mxfp8);
}

/// FP8 weights give the bits of BF16 ones that were dequantised before, whichever core multiplies them by their scales.
#[test]
fn fp8_weights_are_as_good_as_dequantised_ones() {
    let counts = [3, 0, 40, 130, 5];
    let rows = Rows::new(Precision::Bf16, counts.iter().sum(), 200, 6);
    for (format, layout) in [(Format::Fp8Block, Layout::Fp8Block), (Format::Mxfp8, Layout::Mxfp8)] {
        let mut coded = Moe::new(dims(counts.len(), 200, 328, Activation::Silu), format, 5);
        let Stored::Fp8(stored) = Stored::new(&coded, layout, Arch::DAV_2201) else { unreachable!("it is FP8") };
        assert_eq!(stored.scaled_by_cube(&coded.dims), [5, 5], "{format}");
        coded.spoil(0, 1);
        coded.spoil(3, 2);
        let Stored::Fp8(stored) = Stored::new(&coded, layout, Arch::DAV_2201) else { unreachable!("it is FP8") };
        assert_eq!(stored.scaled_by_cube(&coded.dims), [4, 4], "{format}");
        let dequantised = coded.dequantised();
        for chip in ["Ascend910B3", "Ascend950PR_9589"] {
            let [found, expected] = [(&coded, layout), (&dequantised, Layout::Nz)].map(|(moe, layout)| {
                let options = Options { layout, ..Options::default() };
                run(chip, moe, &rows, What::Grouped(&cumsum(&counts)), options).unwrap()
            });
            // All NaN are one.
            let bits = |x: &f32| if x.is_nan() { u32::MAX } else { x.to_bits() };
            assert!(found.iter().map(bits).eq(expected.iter().map(bits)), "{format} on {chip}");
            assert!(found.iter().any(|x| x.is_nan()) && found.iter().any(|x| x.is_finite()), "{format} on {chip}");
        }
    }
}

/// What arrives of a launch at a device, for BF16 and FP8 weights, plain and combined.
#[test]
fn argument_blocks_are_as_kept() {
    let order = Order::new(Mode::Fast);
    let rows = Rows::new(Precision::Bf16, 6, 64, 6);
    let choices = Choices::new(3, 3, 2, 7);
    let mut text = String::new();
    for chip in ["Ascend910B3", "Ascend950PR_9589"] {
        for (format, layout) in [(Format::Bf16, Layout::Nz), (Format::Mxfp8, Layout::Mxfp8)] {
            let moe = Moe::new(dims(3, 64, 32, Activation::SWIGLU_OAI), format, 9);
            let (stored, options) = (Stored::new(&moe, layout, arch(chip)), Options { layout, ..Options::default() });
            text += &argument_blocks(&order, || {
                let stream = context(chip).stream().unwrap();
                launch(&stream, &moe, &stored, &rows, What::Grouped(&cumsum(&[4, 0, 2])), options).unwrap();
                if layout == Layout::Nz {
                    let tokens = Rows::new(Precision::Bf16, 3, 64, 6);
                    launch(&stream, &moe, &stored, &tokens, What::Combined(&choices), options).unwrap();
                }
            });
        }
    }
    snapshot(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/argument_blocks.txt"), &text);
}

/// A graph that is replayed reads the routing of that moment.
#[test]
fn a_captured_launch_follows_the_routing() {
    let _order = Order::new(Mode::Fast);
    let moe = Moe::new(dims(3, 64, 32, Activation::Silu), Format::Bf16, 9);
    let stored = Stored::new(&moe, Layout::Nz, arch("Ascend910B3"));
    let Rows::Bf16(x) = Rows::new(Precision::Bf16, 4, 64, 6) else { unreachable!("asked for BF16") };
    let context = context("Ascend910B3");
    let mut stream = context.stream().unwrap();
    let mut plan = Plan::new(&stream, &moe.dims, 4, Options { layout: Layout::Nz, ..Options::default() }).unwrap();
    let weights = stored.upload(&stream).unwrap();
    let tokens = stream.upload(&x).unwrap();
    let mut routing = stream.upload(&cumsum(&[4, 0, 0])).unwrap();
    let mut out = stream.upload(&vec![bf16::ZERO; x.len()]).unwrap();
    let mut graph = stream
        .capture(CaptureMode::default(), |capture| {
            let call = Call {
                tokens: (&tokens).into(),
                cumsum: (&routing).into(),
                weights: weights.weights(),
                out: (&mut out).into(),
            };
            plan.launch(capture, call).map_err(|error| match error {
                grouped_gemm::Error::Device(error) => error,
                error => panic!("{error}"),
            })
        })
        .unwrap();
    for counts in [[4, 0, 0], [1, 0, 3], [0, 2, 2]] {
        stream.upload_to(&cumsum(&counts), &mut routing).unwrap();
        graph.replay(&stream).unwrap();
        let replayed = stream.download(&out).unwrap();
        let mut fresh = stream.upload(&vec![bf16::ZERO; x.len()]).unwrap();
        let mut plan = Plan::new(&stream, &moe.dims, 4, Options { layout: Layout::Nz, ..Options::default() }).unwrap();
        let call = Call {
            tokens: (&tokens).into(),
            cumsum: (&routing).into(),
            weights: weights.weights(),
            out: (&mut fresh).into(),
        };
        plan.launch(&stream, call).unwrap();
        assert!(stream.download(&fresh).unwrap() == replayed, "{counts:?}");
    }
}

/// Bounds that decrease or leave the rows are clamped, and told.
#[test]
fn an_impossible_routing_is_clamped_and_told() {
    let _order = Order::new(Mode::Fast);
    let moe = Moe::new(dims(3, 64, 32, Activation::Silu), Format::Bf16, 9);
    let stored = Stored::new(&moe, Layout::Flat, arch("Ascend910B3"));
    let Rows::Bf16(x) = Rows::new(Precision::Bf16, 4, 64, 6) else { unreachable!("asked for BF16") };
    for (chip, bounds, good) in
        [("Ascend910B3", [0, 3, 1, 99], [0, 3, 3, 4]), ("Ascend950PR_9589", [-5, 2, 2, i32::MAX], [0, 2, 2, 4])]
    {
        let context = context(chip);
        let stream = context.stream().unwrap();
        let weights = stored.upload(&stream).unwrap();
        let tokens = stream.upload(&x).unwrap();
        let mut plan = Plan::new(&stream, &moe.dims, 4, Options::default()).unwrap();
        let mut results = Vec::new();
        for routing in [bounds, good] {
            let routing = stream.upload(&routing).unwrap();
            let mut out = stream.upload(&vec![bf16::ZERO; x.len()]).unwrap();
            let call = Call {
                tokens: (&tokens).into(),
                cumsum: (&routing).into(),
                weights: weights.weights(),
                out: (&mut out).into(),
            };
            plan.launch(&stream, call).unwrap();
            results.push((stream.download(&out).unwrap(), plan.take_clamped(&stream).unwrap()));
        }
        assert!(results[0].0 == results[1].0, "{chip}");
        assert!(results[0].1 && !results[1].1, "{chip}");
    }
}
