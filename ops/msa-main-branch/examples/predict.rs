// SPDX-License-Identifier: MIT OR Apache-2.0

//! Predicted times and memory budgets of the kernel on the twin:
//! `cargo run -p msa-main-branch --features sim --example msa-main-branch-predict`. A prompt of M3 with lists of the last 16
//! blocks for each 128 queries. The options are those of `ascend_sim::predict`.

use msa_main_branch::AttentionDims;
use msa_main_branch::ascend_rt::zerocopy::IntoBytes;
use msa_main_branch::ascend_sim::predict::{self, Error, Report, Work};
use msa_main_branch::ascend_sim::{Args, Mode};
use msa_main_branch::knobs::Dtype;
use msa_main_branch::npu::{self, Kind, Layout, Lists, Split};

const TILE: usize = 128;
const VARIANTS: [(&str, Dtype); 3] = [("BF16", Dtype::Bf16), ("F16", Dtype::F16), ("F32", Dtype::F32)];

fn main() -> std::process::ExitCode {
    predict::main("msa-main-branch", |report| {
        for (variant, dtype) in VARIANTS {
            let (name, n) =
                if report.is_budget() { ("256 queries", 256) } else { ("M3, 4096 queries, 16 blocks", 4096) };
            // Half precision takes as long as BF16.
            if report.wants(variant, name) && (report.is_budget() || dtype != Dtype::F16) {
                one(report, variant, dtype, name, n)?;
            }
        }
        Ok(())
    })
}

fn one(report: &mut Report, variant: &str, dtype: Dtype, name: &str, n: usize) -> Result<(), Error> {
    let dims = AttentionDims::M3;
    let kind = Kind { n, dtype, layout: Layout::Plain, lists: Lists::PerTile { tile: TILE }, topk: 16 };
    let mut split = Split::new(&dims, &kind, report.chip().cube_cores)?;
    split.tiling.pages = n.div_ceil(dims.block) as u64;
    let image = report.image(npu::blobs(), npu::twin_origin())?;
    let tiles = n.div_ceil(TILE) as i32;
    // The last blocks that a tile can see.
    let ids: Vec<i32> = (0..tiles).flat_map(|tile| (0..16).map(move |i| (tile - i).max(-1))).collect();
    let given = [("ids", ids.as_bytes()), ("tiling", split.tiling.as_bytes())];
    let (size, rate) = match (dtype, report.chip().arch.number()) {
        (Dtype::F32, 2201) => (4, 1024.0),
        (Dtype::F32, _) => (4, 256.0),
        _ => (2, 4096.0),
    };
    // Of a tile's own block, eight queries see as many keys as there are up to the last of them, rounded up to 16: 72 of
    // 128 on average.
    let keys: f64 = (0..tiles).map(|tile| f64::from(15.min(tile)) * 128.0 + 72.0).sum();
    let work = Work {
        bytes: (n * dims.head_dim * (size * (dims.heads + 2 * dims.kv_heads) + 4 * dims.heads)) as f64,
        products: keys * TILE as f64 * (dims.heads * dims.head_dim) as f64 * 2.0,
        rate,
    };
    let launch = image.launch("msa_main_branch")?.mode(Mode::Dry);
    let args = Args::dry(launch.kernel(), &given)?;
    report.launch(variant, name, &work, launch.args(args), split.blocks)
}
