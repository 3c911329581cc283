// SPDX-License-Identifier: MIT OR Apache-2.0

//! Predicted times and memory budgets of the kernel on the twin:
//! `cargo run -p msa-indexer --features sim --example msa-indexer-predict`. The options are those of `ascend_sim::predict`.

use half::bf16;
use msa_indexer::IndexerDims;
use msa_indexer::ascend_sim::Args;
use msa_indexer::ascend_sim::predict::{self, Error, Report, Work};
use msa_indexer::npu::{self, Kind, Split};

/// Name, queries, keys.
type Shape = (&'static str, usize, usize);

const SHAPES: [Shape; 2] =
    [("M3, decode, 65,536 keys", 1, 65_536), ("M3, prefill of 4096 queries from the start", 4096, 4096)];
const SMALL: [Shape; 2] = [("one query", 1, 4096), ("three queries", 3, 2304)];

fn main() -> std::process::ExitCode {
    predict::main("msa-indexer", |report| {
        for shape in if report.is_budget() { SMALL } else { SHAPES } {
            if report.wants("BF16", shape.0) {
                one(report, "BF16", shape)?;
            }
        }
        Ok(())
    })
}

fn one(report: &mut Report, variant: &str, (name, queries, keys): Shape) -> Result<(), Error> {
    let dims = IndexerDims::M3;
    let blocks = keys.div_ceil(dims.block);
    let kind = Kind { queries, blocks, paged: true };
    let mut split = Split::new(&dims, &kind, report.chip().cube_cores)?;
    split.tiling.pages = u32::try_from(blocks)?;
    let image = report.image(npu::blobs(), npu::twin_origin())?;
    // What is selected depends on the scores, and so does the time of selecting it.
    let mut state = 1u64;
    let mut values = |count: usize| -> Vec<bf16> {
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            bf16::from_f32((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0)
        };
        (0..count).map(|_| next()).collect()
    };
    let (q, k) = (values(queries * dims.heads * dims.head_dim), values(blocks * dims.block * dims.head_dim));
    let (q, k): (Vec<u16>, Vec<u16>) = (bits(&q), bits(&k));
    let table: Vec<i32> = (0..blocks as i32).collect();
    let first = [(keys - queries) as i32];
    let [_, selections, width] = dims.ids_shape(queries, keys);
    let (ids, scores) = (vec![0i32; queries * selections * width], vec![0.0f32; queries * selections * blocks]);
    // Words of status of every core.
    let rest = vec![0u32; 3 * 16 * split.blocks as usize];
    let tiling = [split.tiling];
    // Each query of a prompt sees the keys up to it.
    let pairs = queries * (keys - queries) + queries * (queries + 1) / 2;
    let work = Work {
        bytes: 2.0 * ((keys + queries * dims.heads) * dims.head_dim) as f64,
        products: (pairs * dims.heads * dims.head_dim) as f64,
        rate: 4096.0,
    };
    let launch = image.launch("msa_indexer")?;
    let kernel = launch.kernel();
    let args = (0..kernel.parameters.len()).fold(Args::new(), |args, index| match &kernel.parameter_name(index)[..] {
        "q" => args.input(&q),
        "k" => args.input(&k),
        "table" => args.input(&table),
        "first" => args.input(&first),
        "ids" => args.input(&ids),
        "scores" => args.input(&scores),
        "workspace" => args.workspace(split.workspace),
        "tiling" => args.input(&tiling),
        _ => args.input(&rest),
    });
    report.launch(variant, name, &work, launch.args(args), split.blocks)
}

fn bits(values: &[bf16]) -> Vec<u16> {
    values.iter().map(|value| value.to_bits()).collect()
}
