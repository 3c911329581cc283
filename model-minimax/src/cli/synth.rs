// SPDX-License-Identifier: MIT OR Apache-2.0

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, ValueEnum};
use model_minimax::bench::peak_memory_bytes;
use model_minimax::checkpoint::synthetic::{CreateOptions, SyntheticSpec, create};
use model_minimax::config::Variant;

use super::args::{ByteSize, OrDefault, name};
use super::progress::Bytes;

#[derive(Debug, Args)]
pub(crate) struct SynthArgs {
    /// The folder to write; it must not exist or be empty
    #[arg(long, value_name = "DIR")]
    output_dir: PathBuf,

    /// Model, m27 or m3 [default: m27]
    #[arg(long, env = "VARIANT", default_value = "", hide_default_value = true)]
    variant: OrDefault<Variant>,

    /// Sizes to start from; the options below change single ones
    #[arg(long, value_enum, default_value = "tiny")]
    scale: Scale,

    /// How linear weights are stored [default: fp8 for m27, mxfp8 for m3]
    #[arg(long, value_enum)]
    format: Option<Format>,

    /// Layers
    #[arg(long, value_name = "N")]
    layers: Option<usize>,

    /// Experts of a layer
    #[arg(long, value_name = "N")]
    experts: Option<usize>,

    /// Hidden size, a multiple of 384; the other widths follow in the published proportions
    #[arg(long, value_name = "N")]
    hidden: Option<usize>,

    /// Vocabulary; 576 entries have a text, the rest is padding
    #[arg(long, value_name = "N")]
    vocab: Option<usize>,

    /// Blocks of 128 keys that a query of a layer with sparse attention attends to (m3)
    #[arg(long, value_name = "N")]
    blocks: Option<usize>,

    /// Largest file of weights, such as 64MiB or 2GB [default: 256MiB, and at least four files]
    #[arg(long, value_name = "SIZE")]
    shard_size: Option<ByteSize>,

    /// The same seed gives the same files [default: 27]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Replace a synthetic checkpoint that is there, and what an interrupted run has left
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scale {
    /// A few megabytes
    Tiny,
    /// Published layer geometry, few layers and experts, a small vocabulary: 2 or 4 GB
    Slice,
    /// All of the published sizes: 230 or 442 GB
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// E4M3 with an F32 multiplier for each 128 x 128 weights
    Fp8,
    /// E4M3 with a power of two for each 32 weights of a row
    Mxfp8,
    /// BF16
    Bf16,
}

impl SynthArgs {
    /// As `--synthetic` takes it.
    fn spec(&self) -> String {
        let mut spec = match self.variant.0 {
            Some(Variant::M3) => format!("m3-{}", name(self.scale)),
            _ => name(self.scale),
        };
        let numbers = [
            ("layers", self.layers),
            ("experts", self.experts),
            ("hidden", self.hidden),
            ("vocab", self.vocab),
            ("blocks", self.blocks),
        ];
        for (key, value) in numbers.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            spec.push_str(&format!(",{key}={value}"));
        }
        if let Some(format) = self.format {
            spec.push_str(&format!(",weights={}", name(format)));
        }
        if let Some(seed) = self.seed {
            spec.push_str(&format!(",seed={seed}"));
        }
        spec
    }
}

pub(crate) fn run(args: &SynthArgs) -> anyhow::Result<()> {
    let spec: SyntheticSpec = args.spec().parse()?;
    let options =
        CreateOptions { shard_bytes: args.shard_size.and_then(|size| NonZeroU64::new(size.0)), replace: args.force };
    let start = Instant::now();
    let bar = Bytes::new("synthetic checkpoint");
    let created = create(&spec, &args.output_dir, &options, |done, total| bar.set(done, total))?;
    drop(bar);
    eprintln!(
        "{}, {} ({spec}): {} tensors, {} bytes in {} files, {:.1} s, peak memory {} MB",
        args.output_dir.display(),
        spec.variant(),
        created.tensors,
        created.bytes,
        created.files,
        start.elapsed().as_secs_f64(),
        peak_memory_bytes() >> 20,
    );
    Ok(())
}
