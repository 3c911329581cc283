// SPDX-License-Identifier: MIT OR Apache-2.0

//! Predicted times and memory budgets of the kernel on the twin:
//! `cargo run -p msa-sparse-decode --features sim --example msa-sparse-decode-predict`. The options are those of
//! `ascend_sim::predict`.

use msa_sparse_decode::DecodeDims;
use msa_sparse_decode::ascend_rt::zerocopy::IntoBytes;
use msa_sparse_decode::ascend_sim::predict::{self, Error, Report, Work};
use msa_sparse_decode::ascend_sim::{Args, Mode};
use msa_sparse_decode::cpu_tiles::Precision;
use msa_sparse_decode::npu::{self, CacheLayout, Kind, Split};

const BLOCKS: usize = 16;

/// Name, sequences.
const SHAPES: [(&str, usize); 2] = [("M3, 16 blocks, 1 sequence", 1), ("M3, 16 blocks, 16 sequences", 16)];
const VARIANTS: [(&str, Precision); 2] = [("BF16", Precision::Bf16), ("exact", Precision::F32)];

fn main() -> std::process::ExitCode {
    predict::main("msa-sparse-decode", |report| {
        for (variant, precision) in VARIANTS {
            for (name, batch) in SHAPES {
                if report.wants(variant, name) {
                    one(report, variant, precision, name, batch)?;
                }
            }
        }
        Ok(())
    })
}

fn one(report: &mut Report, variant: &str, precision: Precision, name: &str, batch: usize) -> Result<(), Error> {
    let dims = DecodeDims::M3;
    let cache = CacheLayout::Paged { blocks: BLOCKS };
    let kind = Kind { batch, top_k: BLOCKS, per_kv_head: true, cache, precision, out_f32: false };
    let mut split = Split::new(&dims, &kind, report.chip().cube_cores)?;
    split.tiling.pages = (batch * BLOCKS) as u64;
    let image = report.image(npu::blobs(), npu::twin_origin())?;
    let table: Vec<i32> = (0..(batch * BLOCKS) as i32).collect();
    let ids: Vec<i32> = (0..batch * dims.kv_heads).flat_map(|_| 0..BLOCKS as i32).collect();
    let lens = vec![(BLOCKS * dims.block) as i32; batch];
    let given = [
        ("table", table.as_bytes()),
        ("ids", ids.as_bytes()),
        ("lens", lens.as_bytes()),
        ("tiling", split.tiling.as_bytes()),
    ];
    let keys = (batch * BLOCKS * dims.block * dims.head_dim) as f64;
    let work =
        Work { bytes: 2.0 * 2.0 * keys * dims.kv_heads as f64, products: 2.0 * keys * dims.heads as f64, rate: 4096.0 };
    let launch = image.launch("msa_sparse_decode")?.mode(Mode::Dry);
    let args = Args::dry(launch.kernel(), &given)?;
    report.launch(variant, name, &work, launch.args(args), split.blocks)
}
