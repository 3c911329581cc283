// SPDX-License-Identifier: MIT OR Apache-2.0

//! Predicted times and memory budgets of the kernel on the twin:
//! `cargo run -p grouped-gemm --features sim --example grouped-gemm-predict -- nz m2.7`. The options are those of
//! `ascend_sim::predict`. Sizes of tiles are taken from the environment, as `PYPTO_MM1_N`.

use grouped_gemm::ascend_rt::zerocopy::IntoBytes;
use grouped_gemm::ascend_sim::predict::{self, Error, Report, Work};
use grouped_gemm::ascend_sim::{Args, Mode};
use grouped_gemm::npu::{self, Layout, Split, Tiles};
use grouped_gemm::{Activation, MoeDims};

/// Name, dims, rows of each expert.
type Shape = (&'static str, MoeDims, usize);

const fn shape(name: &'static str, experts: usize, hidden: usize, intermediate: usize, rows: usize) -> Shape {
    (name, MoeDims { experts, hidden, intermediate, activation: Activation::Silu }, rows)
}

const SHAPES: [Shape; 3] = [
    shape("M2.7, 256 experts of 8 rows", 256, 3072, 1536, 8),
    shape("M3, 256 experts of 8 rows", 256, 6144, 3072, 8),
    shape("M2.7, 40 experts of 512 rows", 40, 3072, 1536, 512),
];

/// With FP8 weights, whose decoding makes records of some gigabytes.
const FP8_SHAPES: [Shape; 3] = [
    shape("M2.7, 64 experts of 8 rows", 64, 3072, 1536, 8),
    shape("M3, 16 experts of 8 rows", 16, 6144, 3072, 8),
    shape("M2.7, 8 experts of 512 rows", 8, 3072, 1536, 512),
];

/// Few and many rows, so that all tiles are made.
const SMALL: [Shape; 2] = [shape("few rows", 40, 512, 512, 8), shape("many rows", 4, 512, 512, 160)];

/// Name, layout, whether the weights allow the cube core of 910B to scale them.
const LAYOUTS: [(&str, Layout, bool); 6] = [
    ("BF16 nz", Layout::Nz, false),
    ("BF16 flat", Layout::Flat, false),
    ("FP8 128x128", Layout::Fp8Block, true),
    ("FP8 128x128, vector", Layout::Fp8Block, false),
    ("MXFP8", Layout::Mxfp8, true),
    ("MXFP8, vector", Layout::Mxfp8, false),
];

/// Of the fields of [`Tiles`].
const KNOBS: [&str; 5] = ["PYPTO_MM1_N", "PYPTO_MM1_K", "PYPTO_MM2_N", "PYPTO_MM2_K", "PYPTO_VEC_TILE"];

fn main() -> std::process::ExitCode {
    predict::main("grouped-gemm", |report| {
        for (variant, layout, by_cube) in LAYOUTS {
            let shapes = if layout.is_fp8() { &FP8_SHAPES } else { &SHAPES };
            for shape in if report.is_budget() { &SMALL[..] } else { shapes } {
                if report.wants(variant, shape.0) {
                    one(report, variant, (layout, by_cube), shape)?;
                }
            }
        }
        Ok(())
    })
}

fn one(
    report: &mut Report,
    variant: &str,
    (layout, scaled_by_cube): (Layout, bool),
    (name, dims, rows): &Shape,
) -> Result<(), Error> {
    let all = dims.experts * rows;
    let cores = report.chip().cube_cores;
    let tiles = match Tiles::from_env() {
        Ok(tiles) => tiles,
        Err(error) => {
            report.refuse(variant, &error);
            return Ok(());
        }
    };
    let split = match Split::new(dims, u32::try_from(all)?, layout, &tiles, report.arch(), cores) {
        Ok(split) => split,
        Err(error @ (grouped_gemm::Error::Budget { knob, .. } | grouped_gemm::Error::Tile { knob, .. })) => {
            let Tiles { mm1_n, mm1_k, mm2_n, mm2_k, vector } = tiles;
            let value = KNOBS.iter().zip([mm1_n, mm1_k, mm2_n, mm2_k, vector]).find(|(name, _)| **name == knob);
            report.refuse(variant, &format!("{knob}={}: {error}", value.map_or(0, |(_, value)| value)));
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let image = report.image(npu::blobs(), npu::twin_origin())?;
    let cumsum: Vec<i32> = (0..=dims.experts).map(|e| (e * rows) as i32).collect();
    // The last 32 bytes of an expert's scales begin with a number that is not zero where the cube core scales, as it may
    // where that is exact.
    let mut scales = layout.scale_bytes(dims).map(|bytes| vec![0u8; bytes]);
    for scales in scales.iter_mut().filter(|scales| scaled_by_cube && !scales.is_empty()) {
        let one = scales.len() / dims.experts;
        for scales in scales.chunks_exact_mut(one) {
            scales[one - 32..].as_chunks_mut().0.fill(1f32.to_le_bytes());
        }
    }
    let mut given = vec![("cumsum", cumsum.as_bytes()), ("tiling", split.tiling.as_bytes())];
    let kernel = if layout.is_fp8() { "grouped_gemm_fp8" } else { "grouped_gemm" };
    if layout.is_fp8() {
        given.extend([("scales13", &scales[0][..]), ("scales2", &scales[1][..])]);
    }
    let elements: usize = layout.elements(dims).iter().sum();
    let work = Work {
        bytes: (if layout.is_fp8() { elements } else { 2 * elements } + 2 * 2 * all * dims.hidden) as f64,
        products: 3.0 * (all * dims.hidden * dims.intermediate) as f64,
        rate: 4096.0,
    };
    let launch = image.launch(kernel)?.mode(Mode::Dry);
    let args = Args::dry(launch.kernel(), &given)?;
    report.launch(variant, name, &work, launch.args(args), split.blocks)
}
