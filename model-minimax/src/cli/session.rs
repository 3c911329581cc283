// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use cpu_tiles::{Level, Pool, Precision};
use grouped_gemm::Activation;
use model_minimax::checkpoint::Checkpoint;
use model_minimax::checkpoint::synthetic::{SyntheticSpec, default_cache_dir, ensure};
use model_minimax::config::{HiddenAct, ModelConfig, StopIds, Variant};
use model_minimax::explain::Coded;
use model_minimax::model::device::Device;
use model_minimax::model::{LoadMode, LoadOptions, Model};

use super::args::{Dtype, Load, ModelArgs, name};
use super::progress::Bytes;
use super::text::Text;

/// An opened checkpoint and the settings it is going to run with.
pub(crate) struct Session {
    checkpoint: Checkpoint,
    config: ModelConfig,
    synthetic: Option<SyntheticSpec>,
    level: Level,
    pool: Arc<Pool>,
    device: Device,
}

#[derive(Debug, thiserror::Error)]
#[error("--variant {} was asked for ({asked}), {} describes {found}", name_of(*asked), path.display())]
struct VariantMismatch {
    asked: Variant,
    found: Variant,
    path: PathBuf,
}

fn name_of(variant: Variant) -> &'static str {
    match variant {
        Variant::M27 => "m27",
        Variant::M3 => "m3",
    }
}

impl Session {
    /// Opens the checkpoint that the arguments name, headers only; without one, makes or finds the synthetic checkpoint
    /// `fallback`.
    pub(crate) fn open(args: &ModelArgs, fallback: Option<SyntheticSpec>) -> anyhow::Result<Self> {
        let device = Device::open(&args.device)?;
        let (level, pool) = args.kernels.level_and_pool()?;
        let (dir, synthetic) = match (&args.synthetic, args.model_path(), fallback) {
            (Some(spec), _, _) => (make(spec)?, Some(spec.clone())),
            (None, Some(dir), _) => (dir, None),
            (None, None, Some(spec)) => {
                eprintln!("no checkpoint given (--model-path, MODEL_PATH): using the synthetic one {spec}");
                (make(&spec)?, Some(spec))
            }
            (None, None, None) => bail!(Coded::new(
                "E0001",
                "no checkpoint: neither --model-path nor MODEL_PATH is given\n\
                 --model-path DIR       names a folder with config.json and safetensors files\n\
                 --synthetic tiny       makes one with random weights (its text is noise)"
            )),
        };
        let checkpoint = Checkpoint::open(&dir)?;
        let mut config = ModelConfig::load(&dir)?;
        if let Some(asked) = args.variant.0.filter(|&asked| asked != config.variant) {
            return Err(VariantMismatch { asked, found: config.variant, path: config.path }.into());
        }
        config.hidden_act = with_knobs(config.hidden_act)?;
        if let Some(layers) = args.max_layers.0 {
            config = config.with_max_layers(layers.get())?;
        }
        Ok(Self { checkpoint, config, synthetic, level, pool, device })
    }

    /// Loads the weights, with a progress bar; the time is that of loading alone.
    pub(crate) fn load(&self, args: &ModelArgs) -> anyhow::Result<(Model, Duration)> {
        self.load_for(args, false)
    }

    /// As [`load`](Self::load), for graph arms if `graphs` says so.
    pub(crate) fn load_for(&self, args: &ModelArgs, graphs: bool) -> anyhow::Result<(Model, Duration)> {
        let (run, stored) = (self.config.num_hidden_layers, self.config.checkpoint_layers);
        let layers = if run == stored { format!("{run} layers") } else { format!("{run} of {stored} layers") };
        eprintln!(
            "{}, {layers}, {}\n{}, level {}, {} threads, {} activations",
            self.config.variant,
            self.dir().display(),
            args.device,
            self.level.name(),
            self.pool.threads(),
            name(args.dtype)
        );
        let options = LoadOptions {
            level: self.level,
            pool: Arc::clone(&self.pool),
            precision: match args.dtype {
                Dtype::F32 => Precision::F32,
                Dtype::Bf16 => Precision::Bf16,
            },
            load_mode: args.load_mode(),
            attention: args.attention.mode(),
            prefill_chunk: args.attention.prefill_chunk(),
            device: self.device.clone(),
            streaming: args.streaming(graphs),
        };
        if let Some(plan) = Model::memory_plan(&self.checkpoint, &self.config, &options)? {
            eprintln!("{plan}");
        }
        let start = Instant::now();
        let bar = Bytes::new("weights");
        let model = Model::load(&self.checkpoint, &self.config, &options, |done, total| bar.set(done, total))?;
        drop(bar);
        let time = start.elapsed();
        eprintln!("{}\nloaded ({}) in {:.2} s", model.report(), load_name(&model), time.as_secs_f64());
        Ok((model, time))
    }

    /// The tokens that end a generation; ids that do not fit the model are mentioned on stderr.
    pub(crate) fn stop_ids(&self, text: Option<&Text>) -> anyhow::Result<StopIds> {
        let tokenizer = text.map(Text::eos).transpose()?.flatten();
        let stop = StopIds::collect(self.dir(), &self.config, tokenizer)?;
        for (id, source) in &stop.outside_vocab {
            eprintln!("warning: stop token {id} of {source} is outside the vocabulary of {}", self.config.vocab_size);
        }
        Ok(stop)
    }

    pub(crate) fn dir(&self) -> &Path {
        self.checkpoint.dir()
    }

    pub(crate) fn config(&self) -> &ModelConfig {
        &self.config
    }

    pub(crate) fn synthetic(&self) -> Option<&SyntheticSpec> {
        self.synthetic.as_ref()
    }

    pub(crate) fn level(&self) -> Level {
        self.level
    }

    pub(crate) fn set_level(&mut self, level: Level) {
        self.level = level;
    }

    pub(crate) fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }
}

/// The activation with the parameters that the environment sets in place of those of the configuration.
fn with_knobs(act: HiddenAct) -> Result<HiddenAct, grouped_gemm::Error> {
    let HiddenAct::SwigluOai { alpha, limit } = act else { return Ok(act) };
    Ok(match grouped_gemm::knobs::with_knobs(Activation::SwigluOai { alpha, limit })? {
        Activation::SwigluOai { alpha, limit } => HiddenAct::SwigluOai { alpha, limit },
        Activation::Silu => act,
    })
}

/// How a model holds its weights, in the words of `--load`.
pub(crate) fn load_name(model: &Model) -> String {
    name(match model.load_mode() {
        LoadMode::Mmap => Load::Mmap,
        LoadMode::Pack => Load::Pack,
        LoadMode::Auto => Load::Auto,
    })
}

/// The folder of a synthetic checkpoint in the user's cache, made if it is not there.
fn make(spec: &SyntheticSpec) -> anyhow::Result<PathBuf> {
    let bar = Bytes::new("synthetic checkpoint");
    Ok(ensure(spec, &default_cache_dir()?, |done, total| bar.set(done, total))?)
}
