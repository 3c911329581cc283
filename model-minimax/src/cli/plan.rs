// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ffi::OsString;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Context;
use clap::Args;
use cpu_tiles::Precision;
use cpu_tiles::probe::Bandwidth;
use model_minimax::checkpoint::synthetic::SyntheticSpec;
use model_minimax::config::ModelConfig;
use model_minimax::model::device::DeviceChoice;
use model_minimax::model::{AttentionMode, available_memory};
use model_minimax::plan::{Chip, MemoryPlan, PlanOptions, Target, UnknownChip};

use super::args::{AttentionArgs, Dtype, KernelArgs, OrDefault};
use super::inspect::folder;

/// Far beyond any cache, yet some ten milliseconds a reading.
const PROBE_BYTES: usize = 256 << 20;
const READINGS: usize = 5;

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Folder with a config.json; weights need not be there [default: --model-path]
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Folder with a config.json
    #[arg(long, env = "MODEL_PATH", value_name = "DIR")]
    model_path: Option<OsString>,

    /// Plan for a synthetic model instead; nothing is made
    #[arg(long, value_name = "SPEC")]
    synthetic: Option<SyntheticSpec>,

    /// Tokens of the sequence, prompt and answer together
    #[arg(long, value_name = "N", default_value = "4096")]
    context: NonZeroUsize,

    /// Device: cpu; sim:SOC or a card's name such as 910b3 or 950pr, whose figures are published ones; npu:N stands for 910b
    #[arg(long, env = "DEVICE", default_value = "cpu")]
    device: PlanDevice,

    /// Only the first N layers [default: all]
    #[arg(long, env = "LAYERS", value_name = "N", default_value = "", hide_default_value = true)]
    max_layers: OrDefault<NonZeroUsize>,

    /// Type of the activations, and of the cache
    #[arg(long, value_enum, default_value = "bf16")]
    dtype: Dtype,

    /// On a card, routed experts stay on the host and are copied when used [default]
    #[arg(long, overrides_with = "no_streaming")]
    streaming: bool,

    /// On a card, routed experts are copied once and stay
    #[arg(long)]
    no_streaming: bool,

    /// Memory of the host in GB [default: what is available]
    #[arg(long, value_name = "GB", value_parser = positive)]
    host_memory: Option<f64>,

    /// Read bandwidth of the host in GB/s [default: measured now]
    #[arg(long, value_name = "GB/S", value_parser = positive)]
    host_bandwidth: Option<f64>,

    #[command(flatten)]
    kernels: KernelArgs,

    #[command(flatten)]
    attention: AttentionArgs,

    /// JSON instead of text
    #[arg(long)]
    json: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|x: &f64| x.is_finite() && *x > 0.0).ok_or_else(|| "expected a number above 0".to_owned())
}

/// What `--device` names.
#[derive(Debug, Clone, Copy)]
enum PlanDevice {
    Cpu,
    Card(Chip),
}

impl FromStr for PlanDevice {
    type Err = UnknownChip;

    fn from_str(text: &str) -> Result<Self, UnknownChip> {
        match (text.parse(), Chip::find(text)) {
            (_, Ok(chip)) => Ok(Self::Card(chip)),
            (Ok(DeviceChoice::Cpu), _) => Ok(Self::Cpu),
            (Ok(DeviceChoice::Sim(soc)), _) => Chip::find(&soc).map(Self::Card),
            (Ok(DeviceChoice::Npu(_)), _) => Chip::find("910b").map(Self::Card),
            (Err(_), Err(unknown)) => Err(unknown),
        }
    }
}

pub(crate) fn run(args: &PlanArgs) -> anyhow::Result<()> {
    let mut config = match &args.synthetic {
        Some(spec) => spec.config()?,
        None => ModelConfig::load(&folder(args.dir.as_ref(), args.model_path.as_ref())?)?,
    };
    if let Some(layers) = args.max_layers.0 {
        config = config.with_max_layers(layers.get())?;
    }
    let target = match args.device {
        PlanDevice::Cpu => Target::Cpu,
        PlanDevice::Card(chip) => Target::Npu { chip, streaming: !args.no_streaming },
    };
    let (_, pool) = args.kernels.level_and_pool()?;
    let measured = || {
        let bandwidth = Bandwidth::new(PROBE_BYTES).context("no memory for the bandwidth probe")?;
        let mut readings: Vec<f64> = (0..READINGS).map(|_| bandwidth.run(&pool)).collect();
        readings.sort_by(f64::total_cmp);
        anyhow::Ok(readings[READINGS / 2])
    };
    let options = PlanOptions {
        context: args.context.get(),
        precision: match args.dtype {
            Dtype::F32 => Precision::F32,
            Dtype::Bf16 => Precision::Bf16,
        },
        load: args.kernels.load_mode(),
        sparse: args.attention.mode() != AttentionMode::Dense,
        prefill_chunk: args.attention.prefill_chunk(),
        host_memory_bytes: args.host_memory.map(|gb| (gb * 1e9) as u64).or_else(available_memory),
        host_bytes_per_s: Some(args.host_bandwidth.map_or_else(measured, |gb| Ok(gb * 1e9))?),
        ..PlanOptions::new(target)
    };
    if options.context > config.max_position_embeddings {
        eprintln!(
            "warning: --context {} exceeds the {} positions of the model",
            options.context, config.max_position_embeddings
        );
    }
    let plan = MemoryPlan::new(&config, &options);
    let text = if args.json { serde_json::to_string_pretty(&plan)? } else { plan.to_string() };
    writeln!(std::io::stdout(), "{text}").context("the plan cannot be written to stdout")
}
