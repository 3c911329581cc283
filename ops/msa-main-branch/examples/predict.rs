// SPDX-License-Identifier: MIT OR Apache-2.0

//! Predicted times of the kernel on the twin: `cargo run -p msa-main-branch --features sim --example msa-main-branch-predict`. A
//! prompt of M3 with lists of 16 blocks for each 128 queries. Only the record of the launch is made, so keys and values need no
//! memory. `--chip NAME`, `--dtype bf16|fp16|fp32`, `--queries N`, `--trace FILE` for the timeline.

use msa_main_branch::ascend_sim::cost::{Chip, Options, simulate};
use msa_main_branch::ascend_sim::{Call, Image, Memory, Mode, Role, write_timeline};
use msa_main_branch::knobs::Dtype;
use msa_main_branch::npu::{self, Kind, Layout, Lists, Split};
use msa_main_branch::{AttentionDims, ascend_rt};
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut chip, mut dtype, mut queries, mut trace) = ("910b3".to_owned(), Dtype::Bf16, 4096, None);
    let mut words = std::env::args().skip(1);
    while let Some(argument) = words.next() {
        let value = words.next().ok_or(format!("{argument} lacks its value"))?;
        match &argument[..] {
            "--chip" => chip = value,
            "--dtype" => dtype = value.parse().map_err(|()| format!("no dtype `{value}`"))?,
            "--queries" => queries = value.parse()?,
            "--trace" => trace = Some(PathBuf::from(value)),
            _ => return Err(format!("no option `{argument}`").into()),
        }
    }
    predict(&Chip::preset(&chip)?, dtype, queries, trace)
}

fn predict(chip: &Chip, dtype: Dtype, n: usize, trace: Option<PathBuf>) -> Result<(), Box<dyn Error>> {
    const TILE: usize = 128;
    let dims = AttentionDims::M3;
    let arch = ascend_rt::Arch::from_number(chip.arch.number());
    let kind = Kind { n, dtype, layout: Layout::Plain, lists: Lists::PerTile { tile: TILE }, topk: 16 };
    let split = Split::new(&dims, &kind, chip.cube_cores)?;
    let blob = npu::blobs().iter().find(|blob| blob.target == ascend_rt::kernel::Target::Twin(arch));
    let image = Image::load(&blob.ok_or(npu::twin_origin())?.bytes)?;

    let tiles = n.div_ceil(TILE) as i32;
    // The last blocks that a tile can see.
    let mut ids: Vec<i32> = (0..tiles).flat_map(|tile| (0..16).map(move |i| (tile - i).max(-1))).collect();
    let mut tiling = split.tiling;
    tiling.pages = n.div_ceil(dims.block) as u64;
    // Only what the scalar unit reads is there; the rest are addresses, each 4 GiB or more from the next.
    let (size, peak) = match (dtype, chip.arch.number()) {
        (Dtype::F32, 2201) => (4, 1024.0),
        (Dtype::F32, _) => (4, 256.0),
        _ => (2, 4096.0),
    };
    let mut at = 1u64 << 44;
    let mut range = |name: &str, bytes: usize, role: Role| {
        let device = at;
        at += (bytes as u64).next_multiple_of(1 << 32);
        let address = core::ptr::without_provenance_mut(device as usize);
        Memory { address, bytes, role, name: Some(name.into()), device }
    };
    let (wide, narrow) = (n * dims.heads * dims.head_dim, n * dims.kv_heads * dims.head_dim);
    let mut memory = vec![
        range("q", size * wide, Role::Buffer),
        range("k", size * narrow, Role::Buffer),
        range("v", size * narrow, Role::Buffer),
        range("table", 4, Role::Buffer),
        range("ids", 4 * ids.len(), Role::Buffer),
        range("mask", 4, Role::Buffer),
        range("out", 4 * wide, Role::Buffer),
        range("seen", 4 * n * dims.kv_heads, Role::Buffer),
        range("status", 3 * 64 * split.blocks as usize, Role::Buffer),
        range("workspace", split.workspace, Role::Workspace),
        range("tiling", size_of_val(&tiling), Role::Buffer),
    ];
    memory[4].address = ids.as_mut_ptr().cast();
    memory[10].address = (&raw mut tiling).cast();
    let args: Vec<u8> =
        memory.iter().flat_map(|range| (range.address.expose_provenance() as u64).to_ne_bytes()).collect();
    let call = Call {
        kernel: image.kernel("msa_main_branch").ok_or("no kernel")?.0,
        blocks: split.blocks,
        mode: Mode::Dry,
        chip,
        memory: &memory,
        args: &args,
        mutes: &[],
        record: true,
        verbose: false,
    };
    // SAFETY: without data, the kernel touches `ids` and the tiling alone, which live and are nobody else's.
    let run = unsafe { image.run(&call, &mut |text| print!("{text}")) }?;
    let timeline = simulate(&run.program, chip, &Options::default().with_launch(true))?;
    println!("{n} queries, {dtype}, on {}", chip.name);
    for line in timeline.summary(&run.program) {
        println!("  {line}");
    }
    let us = timeline.microseconds();
    // Of a tile's own block, eight queries see as many keys as there are up to the last of them, rounded up to 16: 72 of 128
    // on average.
    let keys: f64 = (0..tiles).map(|tile| f64::from(15.min(tile)) * 128.0 + 72.0).sum();
    let products = keys * TILE as f64 * (dims.heads * dims.head_dim) as f64 * 2.0;
    let alone = products / (peak * f64::from(chip.cube_cores) * f64::from(chip.mhz));
    println!("  predicted {us:.0} us; the products alone take {alone:.0} us: {:.1} % of the cube", 100.0 * alone / us);
    if let Some(path) = trace {
        write_timeline(&path, &run.program, &timeline)?;
        println!("  {}", path.display());
    }
    Ok(())
}
