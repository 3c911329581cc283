// SPDX-License-Identifier: MIT OR Apache-2.0

//! Arguments that `ask` and `bench` share.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use cpu_tiles::{Level, Pool};
use model_minimax::checkpoint::synthetic::SyntheticSpec;
use model_minimax::config::Variant;
use model_minimax::model::device::DeviceChoice;
use model_minimax::model::{AttentionMode, HeadReduce, LoadMode, PREFILL_CHUNK};
use model_minimax::sampling::SamplingOptions;

pub(crate) const DEFAULT_PROMPT: &str =
    "Explain in one paragraph how the router of a mixture-of-experts model chooses the experts for a token.";

/// Which model, and how it runs.
#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// Checkpoint folder
    #[arg(long, env = "MODEL_PATH", value_name = "DIR")]
    model_path: Option<OsString>,

    /// Synthetic checkpoint instead: tiny, slice, or keys such as layers=2,experts=64; wins over MODEL_PATH
    #[arg(long, value_name = "SPEC")]
    pub(crate) synthetic: Option<SyntheticSpec>,

    /// Variant that the checkpoint must be, m27 or m3 [default: what its config.json says]
    #[arg(long, env = "VARIANT", default_value = "", hide_default_value = true)]
    pub(crate) variant: OrDefault<Variant>,

    /// Device of the routed experts and the sparse attention: cpu, npu:N or sim:SOC (such as sim:910b3)
    #[arg(long, env = "DEVICE", default_value = "cpu")]
    pub(crate) device: DeviceChoice,

    /// Run only the first N layers [default: all]
    #[arg(long, env = "LAYERS", value_name = "N", default_value = "", hide_default_value = true)]
    pub(crate) max_layers: OrDefault<NonZeroUsize>,

    /// Type of the activations
    #[arg(long, value_enum, default_value = "bf16")]
    pub(crate) dtype: Dtype,

    #[command(flatten)]
    pub(crate) kernels: KernelArgs,

    #[command(flatten)]
    pub(crate) attention: AttentionArgs,

    /// Experts stay on the host, and those that a token needs are copied to the device [default]
    #[arg(long, overrides_with = "no_streaming")]
    streaming: bool,

    /// All experts are converted and brought to the device once, at load
    #[arg(long, overrides_with = "streaming")]
    no_streaming: bool,
}

impl ModelArgs {
    /// `--model-path` or `MODEL_PATH`; an empty one counts as absent.
    pub(crate) fn model_path(&self) -> Option<PathBuf> {
        self.model_path.as_ref().filter(|path| !path.is_empty()).map(PathBuf::from)
    }

    /// The options that say the same, those left to their defaults included.
    pub(crate) fn options(&self) -> Vec<OsString> {
        fn option(name: &str, value: impl Into<OsString>) -> OsString {
            let mut option = OsString::from(format!("--{name}="));
            option.push(value.into());
            option
        }
        let Self { synthetic, device, dtype, kernels, attention, .. } = self;
        let number = |n: Option<NonZeroUsize>| n.map_or(String::new(), |n| n.to_string());
        let mut options = vec![
            option("model-path", self.model_path.clone().unwrap_or_default()),
            // The folder's own config.json says it.
            option("variant", ""),
            option("device", device.to_string()),
            option("max-layers", number(self.max_layers.0)),
            option("dtype", name(*dtype)),
            option("load", name(kernels.load)),
            option("attention", attention.name()),
            option("indexer", if attention.indexer.0 == HeadReduce::Shared { "shared" } else { "per-kv-head" }),
            option("prefill-chunk", number(attention.prefill_chunk.0)),
        ];
        options.extend(synthetic.iter().map(|spec| option("synthetic", spec.to_string())));
        options.extend(kernels.threads.iter().map(|threads| option("threads", threads.to_string())));
        let held = [(self.streaming, "--streaming"), (self.no_streaming, "--no-streaming")];
        options.extend(held.iter().filter(|(given, _)| *given).map(|(_, option)| OsString::from(option)));
        options
    }

    /// Whether experts stay on the host. Graph arms want them on the device, unless streaming was asked for.
    pub(crate) fn streaming(&self, graphs: bool) -> bool {
        self.streaming || !(self.no_streaming || graphs)
    }

    /// How weights are held on the host. On the CPU, where nothing is copied anywhere, weights that are streamed are read from
    /// the mapped file, others are packed once; `--load` says otherwise.
    pub(crate) fn load_mode(&self) -> LoadMode {
        match self.kernels.load_mode() {
            LoadMode::Auto if self.device == DeviceChoice::Cpu && self.streaming => LoadMode::Mmap,
            LoadMode::Auto if self.device == DeviceChoice::Cpu && self.no_streaming => LoadMode::Pack,
            mode => mode,
        }
    }
}

/// How tokens are chosen.
#[derive(Debug, Args)]
pub(crate) struct SamplingArgs {
    /// Sample with this temperature; 0 is greedy [default: greedy, or 1 with another sampling option]
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    temperature: Option<f32>,

    /// Sample among the K most probable tokens; 0 is all [default: 0]
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,

    /// Sample among the most probable tokens that together reach P [default: 1]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    top_p: Option<f32>,

    /// Seed of the sampling; the same seed gives the same answer [default: 0]
    #[arg(long)]
    seed: Option<u64>,
}

impl SamplingArgs {
    /// Greedy, unless an option says otherwise.
    pub(crate) fn options(&self) -> SamplingOptions {
        let greedy = SamplingOptions::default();
        let sampled = self.top_k.is_some() || self.top_p.is_some() || self.seed.is_some();
        SamplingOptions {
            temperature: self.temperature.unwrap_or(if sampled { 1.0 } else { greedy.temperature }),
            top_k: self.top_k.unwrap_or(greedy.top_k),
            top_p: self.top_p.unwrap_or(greedy.top_p),
            seed: self.seed.unwrap_or(greedy.seed),
        }
    }
}

/// How the kernels of the CPU run.
#[derive(Debug, Args)]
pub(crate) struct KernelArgs {
    /// Threads [default: RAYON_NUM_THREADS, else physical cores]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,

    /// How the weights of linear layers are held: mapped from the file, packed once into panels in memory, or as fits
    #[arg(long, value_enum, default_value = "auto")]
    load: Load,
}

impl KernelArgs {
    /// The SIMD level of `CPU_TILES_LEVEL`, and the threads.
    pub(crate) fn level_and_pool(&self) -> anyhow::Result<(Level, Arc<Pool>)> {
        let level = Level::from_env()?;
        let pool = match self.threads {
            Some(threads) => Pool::new(threads.get())?,
            None => Pool::from_env()?,
        };
        Ok((level, Arc::new(pool)))
    }

    pub(crate) fn load_mode(&self) -> LoadMode {
        match self.load {
            Load::Mmap => LoadMode::Mmap,
            Load::Pack => LoadMode::Pack,
            Load::Auto => LoadMode::Auto,
        }
    }
}

/// How prompts are taken and layers with sparse attention run.
#[derive(Debug, Args)]
pub(crate) struct AttentionArgs {
    /// What layers with sparse attention (MiniMax-M3) attend to: msa, the blocks of keys that their index heads choose, or
    /// dense, all keys
    #[arg(long, env = "ATTENTION", value_name = "msa|dense", default_value = "msa")]
    attention: Attention,

    /// Whose choice of blocks it is: per-kv-head, each index head's for its KV head, or shared, one of all index heads
    /// together, as the published operator has it
    #[arg(long, env = "INDEXER", value_name = "per-kv-head|shared", default_value = "per-kv-head")]
    indexer: Indexer,

    /// Prompt tokens that go through the layers together; bounds the memory of a long prompt [default: 2048]
    #[arg(long, env = "PREFILL_CHUNK", value_name = "N", default_value = "", hide_default_value = true)]
    prefill_chunk: OrDefault<NonZeroUsize>,
}

impl AttentionArgs {
    pub(crate) fn mode(&self) -> AttentionMode {
        match (self.attention, self.indexer) {
            (Attention::Dense, _) => AttentionMode::Dense,
            (Attention::Msa, Indexer(reduce)) => AttentionMode::Msa(reduce),
        }
    }

    /// The value of `--attention`.
    pub(crate) fn name(&self) -> &'static str {
        match self.attention {
            Attention::Msa => "msa",
            Attention::Dense => "dense",
        }
    }

    /// The value of `--indexer`, if it has an effect.
    pub(crate) fn indexer_name(&self) -> Option<&'static str> {
        match self.mode() {
            AttentionMode::Dense => None,
            AttentionMode::Msa(HeadReduce::PerKvHead) => Some("per-kv-head"),
            AttentionMode::Msa(HeadReduce::Shared) => Some("shared"),
        }
    }

    pub(crate) fn prefill_chunk(&self) -> NonZeroUsize {
        self.prefill_chunk.0.unwrap_or(PREFILL_CHUNK)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attention {
    Msa,
    Dense,
}

impl FromStr for Attention {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            // Nothing, as a variable may hold, means the default.
            "" | "msa" => Ok(Self::Msa),
            "dense" => Ok(Self::Dense),
            _ => Err("expected msa or dense".to_owned()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Indexer(HeadReduce);

impl FromStr for Indexer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" | "per-kv-head" => Ok(Self(HeadReduce::PerKvHead)),
            "shared" => Ok(Self(HeadReduce::Shared)),
            _ => Err("expected per-kv-head or shared".to_owned()),
        }
    }
}

/// An option whose variable may be set to nothing, which means the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OrDefault<T>(pub(crate) Option<T>);

impl<T: FromStr> FromStr for OrDefault<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        if text.is_empty() { Ok(Self(None)) } else { text.parse().map(|value| Self(Some(value))) }
    }
}

/// A number of bytes, at least one: a whole number with a unit or none. `KB`, `MB`, `GB` are powers of 1000, `KiB`, `MiB`,
/// `GiB` of 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByteSize(pub(crate) u64);

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error = || format!("expected a size such as 64MiB, 2GB or 1000000, found {text:?}");
        let unit = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(unit);
        let factor: u64 = match unit.trim() {
            "" | "B" => 1,
            "KB" => 1000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err(error()),
        };
        let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)).filter(|&bytes| bytes > 0);
        bytes.map(Self).ok_or_else(error)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Dtype {
    /// Exact mode: F32 activations
    F32,
    /// BF16 activations, F32 accumulation
    Bf16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Load {
    /// Used in place, row by row, from the mapped file
    Mmap,
    /// Packed once into panels in memory
    Pack,
    /// Packed if memory allows, else mapped
    Auto,
}

/// The value's name on the command line.
pub(crate) fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attention() {
        assert_eq!(["", "msa", "dense"].map(str::parse), [Attention::Msa, Attention::Msa, Attention::Dense].map(Ok));
        let reduces = [HeadReduce::PerKvHead, HeadReduce::PerKvHead, HeadReduce::Shared];
        assert_eq!(["", "per-kv-head", "shared"].map(str::parse), reduces.map(|reduce| Ok(Indexer(reduce))));
        assert!("Msa".parse::<Attention>().is_err() && "per_kv_head".parse::<Indexer>().is_err());
    }

    #[test]
    fn sizes_have_units() {
        let known = [("64MiB", 64 << 20), ("2GB", 2_000_000_000), ("1000", 1000), ("3 KiB", 3072), ("1GiB", 1 << 30)];
        for (text, bytes) in known {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["", "0", "MiB", "-1", "1.5GB", "2gb", "99999999999GiB"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_empty_value_is_the_default() {
        assert_eq!("".parse(), Ok(OrDefault::<NonZeroUsize>(None)));
        assert_eq!("3".parse(), Ok(OrDefault(NonZeroUsize::new(3))));
        assert!("0".parse::<OrDefault<NonZeroUsize>>().is_err());
    }
}
