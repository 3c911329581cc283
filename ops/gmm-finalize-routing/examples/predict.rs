// SPDX-License-Identifier: MIT OR Apache-2.0

//! Predicted times and memory budgets of the kernel on the twin:
//! `cargo run -p gmm-finalize-routing --features sim --example gmm-finalize-routing-predict`. The options are those of
//! `ascend_sim::predict`. Scales decide on the device which operands are made, so where the cube has no FP8 the launches are
//! carried out, which takes some seconds each.

use gmm_finalize_routing::ascend_rt::Arch;
use gmm_finalize_routing::ascend_rt::zerocopy::IntoBytes;
use gmm_finalize_routing::ascend_sim::predict::{self, Error, Report, Work};
use gmm_finalize_routing::ascend_sim::{Args, Mode};
use gmm_finalize_routing::npu::{self, FinalizeTiling, Options, Split};
use gmm_finalize_routing::{Dims, Dtype};

/// Name, dims, rows, rows of the output, and whether the cube has FP8 on the only architecture that it is for.
type Shape = (&'static str, Dims, usize, usize, Option<bool>);

const SHAPES: [Shape; 2] = [
    ("M 1024, K 7168, N 4096, E 8", Dims { experts: 8, k: 7168, n: 4096 }, 1024, 128, None),
    ("M 36,864, K 4096, N 1024, E 4", Dims { experts: 4, k: 4096, n: 1024 }, 36_864, 4608, Some(true)),
];
const SMALL: [Shape; 1] = [("M 300, K 1024, N 600, E 3", Dims { experts: 3, k: 1024, n: 600 }, 300, 64, None)];

fn main() -> std::process::ExitCode {
    predict::main("gmm-finalize-routing", |report| {
        let has_fp8 = report.arch() == Arch::DAV_3510;
        let e4m3 = Options { no_nan: true, ..Options::new(Dtype::E4M3, true) };
        let e5m2 = Options::new(Dtype::E5M2, true);
        let mut variants = vec![("E4M3", e4m3), ("E5M2", e5m2)];
        if !has_fp8 {
            variants.push(("E4M3, NaNs", Options { no_nan: false, ..e4m3 }));
            variants.push(("E4M3, wide", Options { always_bf16: true, ..e4m3 }));
        }
        for (variant, options) in variants {
            for shape in if report.is_budget() { &SMALL[..] } else { &SHAPES } {
                if report.wants(variant, shape.0) && shape.4.is_none_or(|only| only == has_fp8) {
                    one(report, variant, options, shape)?;
                }
            }
        }
        Ok(())
    })
}

fn one(report: &mut Report, variant: &str, options: Options, shape: &Shape) -> Result<(), Error> {
    let (name, dims, rows, batch, _) = shape;
    let has_fp8 = report.arch() == Arch::DAV_3510;
    let Dims { experts, k, n } = *dims;
    let split = Split::new(dims, u32::try_from(*rows)?, &options, report.arch(), report.chip().cube_cores)?;
    let tiling = FinalizeTiling { batch: u32::try_from(*batch)?, has_logit: 1, ..split.tiling };
    let image = report.image(npu::blobs(), npu::twin_origin())?;
    let ends: Vec<i64> = (1..=experts as i64).map(|expert| expert * (rows / experts) as i64).collect();
    let index: Vec<i64> = (0..*rows as i64).map(|row| row * 7 % *batch as i64).collect();
    let logit = vec![0.5f32; *rows];
    let work = Work {
        bytes: ((experts * n + rows) * k + 4 * batch * n) as f64,
        products: (rows * k * n) as f64,
        rate: if has_fp8 { 8192.0 } else { 4096.0 },
    };
    let launch = image.launch("gmm_finalize_routing")?;
    if has_fp8 {
        let scale = vec![127u8; k.div_ceil(64) * 2 * n.max(*rows)];
        let given = [
            ("group_list", ends.as_bytes()),
            ("row_index", index.as_bytes()),
            ("logit", logit.as_bytes()),
            ("scale", &scale[..]),
            ("pertoken_scale", &scale[..]),
            ("tiling", tiling.as_bytes()),
        ];
        let args = Args::dry(launch.kernel(), &given)?;
        return report.launch(variant, name, &work, launch.mode(Mode::Dry).args(args), split.blocks);
    }
    let (x, w) = (vec![0x38u8; rows * k], vec![0x38u8; experts * k * n]);
    let (x_scale, w_scale) = (vec![127u8; rows * k.div_ceil(64) * 2], vec![127u8; n * k.div_ceil(64) * 2]);
    let (mut out, mut status) = (vec![0.0f32; batch * n], vec![0u32; split.status]);
    let args = Args::new()
        .input(&x)
        .input(&x_scale)
        .input(&w)
        .input(&w_scale)
        .input(&ends)
        .input(&index)
        .input(&logit)
        .input::<u16>(&[])
        .buffer(&mut out)
        .buffer(&mut status)
        .workspace(split.workspace)
        .input(core::slice::from_ref(&tiling));
    report.launch(variant, name, &work, launch.args(args), split.blocks)
}
