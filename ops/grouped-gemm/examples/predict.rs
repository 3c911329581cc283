// SPDX-License-Identifier: MIT OR Apache-2.0

//! Predicted times of the kernel on the twin: `cargo run -p grouped-gemm --features sim --example grouped-gemm-predict`. Only the
//! record of the launch is made, so weights need no memory. `--chip NAME`, `--layout nz|flat|fp8|mxfp8`, `--vector` for FP8
//! weights that the vector cores multiply by their scales on every chip, `--experts N` for as many instead, a word for the
//! shapes whose name has it, `--trace FOLDER` for timelines.

use grouped_gemm::ascend_sim::cost::{Chip, Options, simulate};
use grouped_gemm::ascend_sim::{Call, Image, Memory, Mode, Role, write_timeline};
use grouped_gemm::npu::{self, Layout, Split, Tiles};
use grouped_gemm::{Activation, MoeDims, ascend_rt};
use std::error::Error;
use std::path::PathBuf;

/// A shape: name, dims, rows of each expert.
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    dims: MoeDims,
    rows: usize,
}

const fn shape(name: &'static str, experts: usize, hidden: usize, intermediate: usize, rows: usize) -> Shape {
    Shape { name, dims: MoeDims { experts, hidden, intermediate, activation: Activation::Silu }, rows }
}

const SHAPES: [Shape; 5] = [
    shape("m2.7, 256 experts of 8 rows", 256, 3072, 1536, 8),
    shape("m3, 256 experts of 8 rows", 256, 6144, 3072, 8),
    shape("m2.7, 8 experts of 1 row", 8, 3072, 1536, 1),
    shape("m2.7, 40 experts of 512 rows", 40, 3072, 1536, 512),
    shape("m2.7, 256 experts of 64 rows", 256, 3072, 1536, 64),
];

fn main() -> Result<(), Box<dyn Error>> {
    let (mut chip, mut layout, mut word, mut trace) = ("910b3".to_owned(), Layout::Nz, String::new(), None);
    let (mut vector, mut experts) = (false, None);
    let mut words = std::env::args().skip(1);
    while let Some(argument) = words.next() {
        let mut value = || words.next().ok_or(format!("{argument} lacks its value"));
        match &argument[..] {
            "--chip" => chip = value()?,
            "--layout" => {
                layout = match &value()?[..] {
                    "nz" => Layout::Nz,
                    "flat" => Layout::Flat,
                    "fp8" => Layout::Fp8Block,
                    "mxfp8" => Layout::Mxfp8,
                    other => return Err(format!("no layout `{other}`").into()),
                }
            }
            "--vector" => vector = true,
            "--experts" => experts = Some(value()?.parse()?),
            "--trace" => trace = Some(PathBuf::from(value()?)),
            _ => word = argument,
        }
    }
    let chip = Chip::preset(&chip)?;
    for shape in SHAPES.iter().filter(|shape| shape.name.contains(&word)) {
        let mut shape = *shape;
        shape.dims.experts = experts.unwrap_or(shape.dims.experts);
        println!("{}, experts: {} ({layout:?}) on {}", shape.name, shape.dims.experts, chip.name);
        predict(&shape, layout, vector, &chip, trace.as_ref())?;
    }
    Ok(())
}

fn predict(
    shape: &Shape,
    layout: Layout,
    vector: bool,
    chip: &Chip,
    trace: Option<&PathBuf>,
) -> Result<(), Box<dyn Error>> {
    let Shape { dims, .. } = shape;
    let rows = dims.experts * shape.rows;
    let arch = ascend_rt::Arch::from_number(chip.arch.number());
    let split = Split::new(dims, u32::try_from(rows)?, layout, &Tiles::default(), arch, chip.cube_cores)?;
    let blob = npu::blobs().iter().find(|blob| blob.target == ascend_rt::kernel::Target::Twin(arch));
    let image = Image::load(&blob.ok_or(npu::twin_origin())?.bytes)?;

    let mut cumsum: Vec<i32> = (0..=dims.experts).map(|e| (e * shape.rows) as i32).collect();
    let mut tiling = split.tiling;
    // Only what the scalar unit reads is there; the rest are addresses, each 4 GiB or more from the next.
    let size = if layout.is_fp8() { 1 } else { 2 };
    let [w13, w2] = layout.elements(dims).map(|elements| size * elements);
    let tokens = 2 * rows * dims.hidden;
    let mut at = 1u64 << 44;
    let mut range = |name: &str, bytes: usize, role: Role| {
        let device = at;
        at += (bytes as u64).next_multiple_of(1 << 32);
        Memory {
            address: core::ptr::without_provenance_mut(device as usize),
            bytes,
            role,
            name: Some(name.into()),
            device,
        }
    };
    // The last 32 bytes of an expert's scales begin with a number that is not zero where the cube core scales.
    let mut scales = layout.scale_bytes(dims).map(|bytes| vec![0u8; bytes]);
    for scales in scales.iter_mut().filter(|scales| !vector && !scales.is_empty()) {
        let one = scales.len() / dims.experts;
        for scales in scales.chunks_exact_mut(one) {
            scales[one - 32..].as_chunks_mut().0.fill(1f32.to_le_bytes());
        }
    }
    let [scales13, scales2] = &mut scales;
    let mut memory = vec![range("x", tokens, Role::Buffer)];
    for (codes, name, scales) in [(w13, "w13", scales13), (w2, "w2", scales2)] {
        memory.push(range(name, codes, Role::Buffer));
        if layout.is_fp8() {
            memory.push(range("scales", scales.len(), Role::Buffer));
            memory.last_mut().ok_or("no memory")?.address = scales.as_mut_ptr();
        }
    }
    memory.push(range("cumsum", 4 * cumsum.len(), Role::Buffer));
    memory.last_mut().ok_or("no memory")?.address = cumsum.as_mut_ptr().cast();
    memory.push(range("out", tokens, Role::Buffer));
    memory.push(range("status", 64, Role::Buffer));
    memory.push(range("workspace", split.workspace, Role::Workspace));
    memory.push(range("tiling", size_of_val(&tiling), Role::Buffer));
    memory.last_mut().ok_or("no memory")?.address = (&raw mut tiling).cast();
    let args: Vec<u8> =
        memory.iter().flat_map(|range| (range.address.expose_provenance() as u64).to_ne_bytes()).collect();
    let call = Call {
        kernel: image.kernel(if layout.is_fp8() { "grouped_gemm_fp8" } else { "grouped_gemm" }).ok_or("no kernel")?.0,
        blocks: split.blocks,
        mode: Mode::Dry,
        chip,
        memory: &memory,
        args: &args,
        mutes: &[],
        record: true,
        verbose: false,
    };
    // SAFETY: without data, the kernel touches `cumsum`, scales and the tiling alone, which live and are nobody else's.
    let run = unsafe { image.run(&call, &mut |text| print!("{text}")) }?;
    let timeline = simulate(&run.program, chip, &Options::default().with_launch(true))?;
    for line in timeline.summary(&run.program) {
        println!("  {line}");
    }
    let ms = timeline.microseconds() / 1e3;
    let bytes = (w13 + w2) as f64;
    let flop = 6.0 * rows as f64 * dims.hidden as f64 * dims.intermediate as f64;
    let peak = f64::from(chip.cube_cores) * 4096.0 * 2.0 * f64::from(chip.mhz) * 1e6;
    println!(
        "  predicted {ms:.3} ms: weights at {:.2} TB/s, {:.1} % of the cube's {:.0} TFLOPS",
        bytes / ms / 1e9,
        100.0 * flop / (ms * 1e-3) / peak,
        peak / 1e12
    );
    if let Some(folder) = trace {
        let path = folder.join(format!("{}.json", shape.name.replace([' ', ',', '.'], "_")));
        write_timeline(&path, &run.program, &timeline)?;
        println!("  {}", path.display());
    }
    Ok(())
}
