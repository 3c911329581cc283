// SPDX-License-Identifier: MIT OR Apache-2.0

//! Synthetic checkpoints: complete MiniMax-M2.7 folders made from a seed, for benches and tests without a download.
//!
//! The files, names and dtypes are those of the published checkpoint; weights are FP8 blocks unless asked otherwise.
//! Every value is a function of [`SEED`], the tensor's name and the element's position, so a spec always gives the
//! same bytes on one machine, whatever the number of threads. Values are drawn like a trained layer's: roughly normal,
//! with variances that keep activations near one, FP8 codes that use the whole range of their block, routers that
//! spread the tokens. The text that such a model writes is noise.
//!
//! The tokenizer has 576 entries, 512 of them text. The vocabulary may be larger; then the rest of its rows is padding.
//! The output head is zero for padding, special and end tokens, so that a greedy run produces text tokens and never
//! ends before its limit.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use cpu_tiles::{F8E4M3, Overflow};
use half::bf16;
use serde_json::{Map, Value, json};
use zerocopy::IntoBytes;

use super::{Checkpoint, Dtype, Role, TensorSpec, expected_tensors};
use crate::config::{ConfigError, FP8_BLOCK, ModelConfig};

/// Seed of every synthetic checkpoint.
pub const SEED: u64 = 27;
/// Changes whenever the same spec would give other files; part of the stamp.
const GENERATOR: u32 = 1;

/// Entries of the tokenizer, text and special.
const TOKENIZER_ENTRIES: usize = 576;
/// Entries of the tokenizer that are text.
const TEXT_TOKENS: usize = 512;
/// `]~b]`, the start of a turn.
const BOS: usize = 531;
/// `[e~[`, the end of a turn.
const EOS: usize = 532;

/// Multiples of this width keep the published proportions whole: heads of 128 = width / 64, KV heads = width / 384.
const HIDDEN_STEP: usize = 384;
const HEAD_DIM: usize = 128;

const STAMP: &str = "synthetic.json";
/// A file holds about this much, and a checkpoint has at least about this many files.
const SHARD_BYTES: usize = 256 << 20;
const MIN_SHARDS: usize = 4;
/// Bytes made and written at a time.
const CHUNK: usize = 1 << 22;

/// Named sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Preset {
    Tiny,
    Slice,
}

/// How the linear weights are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weights {
    Fp8,
    Bf16,
}

/// The size of a synthetic checkpoint, written as `tiny`, `slice` or a list of keys:
///
/// | spec | layers | experts | hidden | vocab | size |
/// | --- | --- | --- | --- | --- | --- |
/// | `tiny` | 2 | 8 | 384 | 576 | 6 MB |
/// | `slice` (default) | 4 | 32 | 3072 | 16384 | 2.2 GB |
///
/// `layers=`, `experts=`, `hidden=`, `vocab=` and `weights=fp8|bf16` change a preset, which may come first and
/// otherwise is `slice`: `layers=2,experts=64`, `tiny,weights=bf16`. `hidden` is a multiple of 384; the other
/// widths follow it in the published proportions (at 3072: 48 query heads and 8 KV heads of 128, experts of 1536). Each
/// token goes to 8 experts, at most to half of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntheticSpec {
    preset: Preset,
    layers: usize,
    experts: usize,
    hidden: usize,
    vocab: usize,
    weights: Weights,
}

/// A [`SyntheticSpec`] that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "synthetic spec \"{spec}\": {what}; write `tiny`, `slice` or keys such as \
     `layers=4,experts=32,hidden=3072,vocab=16384,weights=bf16`, separated by commas"
)]
pub struct SpecError {
    /// The whole spec.
    pub spec: String,
    /// What is wrong with it.
    pub what: String,
}

impl Preset {
    fn spec(self) -> SyntheticSpec {
        let (layers, experts, hidden, vocab) = match self {
            Self::Tiny => (2, 8, 384, TOKENIZER_ENTRIES),
            Self::Slice => (4, 32, 3072, 16384),
        };
        SyntheticSpec { preset: self, layers, experts, hidden, vocab, weights: Weights::Fp8 }
    }
}

impl Default for SyntheticSpec {
    /// `slice`.
    fn default() -> Self {
        Preset::Slice.spec()
    }
}

impl FromStr for SyntheticSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let error = |what: String| SpecError { spec: text.to_owned(), what };
        let mut spec = Self::default();
        let mut seen = Vec::new();
        for (i, part) in text.split(',').map(str::trim).enumerate() {
            let Some((key, value)) = part.split_once('=') else {
                let preset = match part {
                    "tiny" => Preset::Tiny,
                    "slice" => Preset::Slice,
                    _ => return Err(error(format!("\"{part}\" is neither a preset nor key=value"))),
                };
                if i > 0 {
                    return Err(error(format!("the preset {part} should come first")));
                }
                spec = preset.spec();
                continue;
            };
            if seen.contains(&key) {
                return Err(error(format!("{key} occurs twice")));
            }
            seen.push(key);
            let number = |accept: fn(usize) -> bool, expected: &str| {
                value
                    .parse()
                    .ok()
                    .filter(|&n| accept(n))
                    .ok_or_else(|| error(format!("{key} should be {expected}, found {value}")))
            };
            match key {
                "layers" => spec.layers = number(|n| (1..=1024).contains(&n), "between 1 and 1024")?,
                "experts" => spec.experts = number(|n| (1..=1024).contains(&n), "between 1 and 1024")?,
                "hidden" => {
                    let accept = |n: usize| n.is_multiple_of(HIDDEN_STEP) && (HIDDEN_STEP..=65_280).contains(&n);
                    spec.hidden = number(accept, "a multiple of 384 up to 65280")?;
                }
                "vocab" => {
                    spec.vocab = number(|n| (TOKENIZER_ENTRIES..=1 << 24).contains(&n), "between 576 and 16777216")?
                }
                "weights" => {
                    spec.weights = match value {
                        "fp8" => Weights::Fp8,
                        "bf16" => Weights::Bf16,
                        _ => return Err(error(format!("weights should be fp8 or bf16, found {value}"))),
                    }
                }
                _ => return Err(error(format!("unknown key {key}"))),
            }
        }
        Ok(spec)
    }
}

/// The shortest spec: the preset, then the keys that differ from it.
impl fmt::Display for SyntheticSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.preset {
            Preset::Tiny => "tiny",
            Preset::Slice => "slice",
        })?;
        let preset = self.preset.spec();
        for (key, value, default) in [
            ("layers", self.layers, preset.layers),
            ("experts", self.experts, preset.experts),
            ("hidden", self.hidden, preset.hidden),
            ("vocab", self.vocab, preset.vocab),
        ] {
            if value != default {
                write!(f, ",{key}={value}")?;
            }
        }
        match self.weights {
            Weights::Fp8 => Ok(()),
            Weights::Bf16 => f.write_str(",weights=bf16"),
        }
    }
}

impl SyntheticSpec {
    /// The configuration of the checkpoint.
    ///
    /// # Errors
    /// None are known; the widths that a spec allows all make a valid configuration.
    pub fn config(&self) -> Result<ModelConfig, ConfigError> {
        ModelConfig::from_json(&self.config_json(), Path::new("config.json"))
    }

    /// `config.json` in the published spelling.
    fn config_json(&self) -> String {
        let mut config = json!({
            "architectures": ["MiniMaxM2ForCausalLM"],
            "attn_type_list": vec![1; self.layers],
            "dtype": "bfloat16",
            "head_dim": HEAD_DIM,
            "hidden_act": "silu",
            "hidden_size": self.hidden,
            "intermediate_size": self.hidden / 2,
            "max_position_embeddings": 204_800,
            "model_type": "minimax_m2",
            "num_attention_heads": self.hidden / 64,
            "num_experts_per_tok": self.experts.div_ceil(2).min(8),
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.hidden / HIDDEN_STEP,
            "num_local_experts": self.experts,
            "qk_norm_type": "per_layer",
            "rms_norm_eps": 1e-6,
            "rope_theta": 5_000_000,
            "rotary_dim": HEAD_DIM / 2,
            "scoring_func": "sigmoid",
            "shared_intermediate_size": 0,
            "tie_word_embeddings": false,
            "use_mtp": false,
            "use_qk_norm": true,
            "use_routing_bias": true,
            "vocab_size": self.vocab,
        });
        if self.weights == Weights::Fp8 {
            config["quantization_config"] = json!({
                "activation_scheme": "dynamic",
                "fmt": "float8_e4m3fn",
                "modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"],
                "quant_method": "fp8",
                "weight_block_size": FP8_BLOCK,
            });
        }
        pretty(&config)
    }

    /// The small files with their names; the stamp, which comes last, is not among them.
    fn companions(&self) -> [(&'static str, String); 5] {
        let generation = json!({ "bos_token_id": BOS, "do_sample": true, "eos_token_id": EOS, "temperature": 1.0, "top_k": 40, "top_p": 0.95 });
        [
            ("config.json", self.config_json()),
            ("generation_config.json", pretty(&generation)),
            ("tokenizer.json", include_str!("../../data/tokenizer.json").to_owned()),
            ("tokenizer_config.json", include_str!("../../data/tokenizer_config.json").to_owned()),
            ("chat_template.jinja", include_str!("../../data/chat_template.jinja").to_owned()),
        ]
    }

    /// What a finished folder says about itself.
    fn stamp(&self) -> String {
        pretty(&json!({ "generator": GENERATOR, "seed": SEED, "spec": self.to_string() }))
    }
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Why a synthetic checkpoint cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SyntheticError {
    /// There is no place for it.
    #[error("no cache folder for synthetic checkpoints: neither XDG_CACHE_HOME nor HOME is set to an absolute path")]
    NoCacheDir,
    /// The disk is too full.
    #[error("the synthetic checkpoint {spec} needs {needed} bytes in {}, {free} are free", dir.display())]
    DiskSpace {
        /// The spec.
        spec: SyntheticSpec,
        /// The cache folder.
        dir: PathBuf,
        /// Bytes to be written.
        needed: u64,
        /// Bytes that may be written.
        free: u64,
    },
    /// A file or folder cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The spec describes a model that [`ModelConfig`] refuses.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> SyntheticError {
    let path = path.to_owned();
    |source| SyntheticError::Io { path, source }
}

/// Where synthetic checkpoints are kept: `$XDG_CACHE_HOME/model-minimax`, or `~/.cache/model-minimax`.
///
/// # Errors
/// [`SyntheticError::NoCacheDir`].
pub fn default_cache_dir() -> Result<PathBuf, SyntheticError> {
    let absolute = |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    cache.map(|cache| cache.join("model-minimax")).ok_or(SyntheticError::NoCacheDir)
}

/// The folder of the synthetic checkpoint `spec` in `cache_dir`; made if it is not there or not whole.
///
/// `progress` is told the bytes written and the bytes in all while it is made. It is written under another name and
/// renamed when whole, so an interrupted run leaves no checkpoint. Processes that ask for the same checkpoint wait for
/// each other.
///
/// # Errors
/// [`SyntheticError`], except `NoCacheDir`.
pub fn ensure(
    spec: &SyntheticSpec,
    cache_dir: &Path,
    progress: impl FnMut(u64, u64),
) -> Result<PathBuf, SyntheticError> {
    let name = format!("synthetic-{}", spec.to_string().replace(',', "_").replace('=', "-"));
    let dir = cache_dir.join(&name);
    fs::create_dir_all(cache_dir).map_err(at(cache_dir))?;
    let lock_path = cache_dir.join(format!("{name}.lock"));
    let lock = File::create(&lock_path).map_err(at(&lock_path))?;
    lock.lock().map_err(at(&lock_path))?;

    if is_whole(spec, &dir) {
        return Ok(dir);
    }
    let partial = cache_dir.join(format!("{name}.partial"));
    for leftover in [&dir, &partial] {
        if leftover.exists() {
            fs::remove_dir_all(leftover).map_err(at(leftover))?;
        }
    }
    let written =
        write(spec, &partial, cache_dir, progress).and_then(|()| fs::rename(&partial, &dir).map_err(at(&dir)));
    if let Err(error) = written {
        // The error is worth more than the folder that could not be removed; the next run tries again.
        let _ = fs::remove_dir_all(&partial);
        return Err(error);
    }
    Ok(dir)
}

/// Whether `dir` holds this checkpoint, by its stamp and the headers of its files.
fn is_whole(spec: &SyntheticSpec, dir: &Path) -> bool {
    fs::read_to_string(dir.join(STAMP)).is_ok_and(|stamp| stamp == spec.stamp())
        && ModelConfig::load(dir)
            .is_ok_and(|config| Checkpoint::open(dir).is_ok_and(|checkpoint| checkpoint.check(&config).is_clean()))
}

/// Bytes that this user may still write below `dir`, where the system tells.
fn free_bytes(dir: &Path) -> Option<u64> {
    #[cfg(unix)]
    let free = rustix::fs::statvfs(dir).ok().map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    #[cfg(not(unix))]
    let free = None;
    free
}

/// Writes all files into the new folder `dir`.
fn write(
    spec: &SyntheticSpec,
    dir: &Path,
    cache_dir: &Path,
    progress: impl FnMut(u64, u64),
) -> Result<(), SyntheticError> {
    let shards = plan_shards(expected_tensors(&spec.config()?));
    let total = shards.iter().map(|shard| shard.bytes as u64).sum();
    if let Some(free) = free_bytes(cache_dir).filter(|&free| free < total) {
        return Err(SyntheticError::DiskSpace { spec: spec.clone(), dir: cache_dir.to_owned(), needed: total, free });
    }
    fs::create_dir(dir).map_err(at(dir))?;
    let save = |name: &str, text: &str| {
        let path = dir.join(name);
        fs::write(&path, text).map_err(at(&path))
    };
    for (name, text) in spec.companions() {
        save(name, &text)?;
    }
    write_shards(&shards, dir, total, progress)?;
    let weight_map: Map<String, Value> = (shards.iter().enumerate())
        .flat_map(|(i, shard)| shard.tensors.iter().map(move |tensor| (tensor.name.clone(), i)))
        .map(|(name, i)| (name, shard_name(i, shards.len()).into()))
        .collect();
    let index = json!({ "metadata": { "total_size": total }, "weight_map": weight_map });
    save(super::INDEX, &pretty(&index))?;
    save(STAMP, &spec.stamp())
}

/// Names as published: counted from zero.
fn shard_name(index: usize, count: usize) -> String {
    format!("model-{index:05}-of-{count:05}.safetensors")
}

/// The tensors of one file, in the order of their data.
#[derive(Default)]
struct Shard {
    tensors: Vec<TensorSpec>,
    bytes: usize,
}

fn byte_len(tensor: &TensorSpec) -> usize {
    tensor.dtype.byte_len(&tensor.shape).expect("ModelConfig limits the sizes")
}

fn plan_shards(tensors: Vec<TensorSpec>) -> Vec<Shard> {
    let total: usize = tensors.iter().map(byte_len).sum();
    let limit = SHARD_BYTES.min(total.div_ceil(MIN_SHARDS));
    let mut shards = vec![Shard::default()];
    for tensor in tensors {
        let bytes = byte_len(&tensor);
        if shards.last().is_some_and(|shard| shard.bytes > 0 && shard.bytes + bytes > limit) {
            shards.push(Shard::default());
        }
        if let Some(shard) = shards.last_mut() {
            shard.tensors.push(tensor);
            shard.bytes += bytes;
        }
    }
    for shard in &mut shards {
        // Wide elements first: every tensor is then aligned to its element.
        shard.tensors.sort_by_key(|tensor| std::cmp::Reverse(tensor.dtype.bits()));
    }
    shards
}

/// Writes the files on all cores.
fn write_shards(
    shards: &[Shard],
    dir: &Path,
    total: u64,
    mut progress: impl FnMut(u64, u64),
) -> Result<(), SyntheticError> {
    let generator = Generator::new();
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(shards.len());
    let work = |written: mpsc::Sender<u64>| {
        while let Some((i, shard)) = shards.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed)) {
            let path = dir.join(shard_name(i, shards.len()));
            if let Err(source) = write_shard(&generator, shard, &path, &written) {
                next.store(shards.len(), Ordering::Relaxed);
                return Err(at(&path)(source));
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let (sender, written) = mpsc::channel();
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                let sender = sender.clone();
                scope.spawn(|| work(sender))
            })
            .collect();
        drop(sender);
        let mut done = 0;
        for bytes in written {
            done += bytes;
            progress(done, total);
        }
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}

fn write_shard(generator: &Generator, shard: &Shard, path: &Path, written: &mpsc::Sender<u64>) -> io::Result<()> {
    let mut header = json!({ "__metadata__": { "format": "pt" } });
    let mut offset = 0;
    for tensor in &shard.tensors {
        let end = offset + byte_len(tensor);
        header[&tensor.name] =
            json!({ "dtype": tensor.dtype.name(), "shape": tensor.shape, "data_offsets": [offset, end] });
        offset = end;
    }
    let mut header = header.to_string().into_bytes();
    // The format allows spaces at the end; with them the data begins on a cache line.
    header.resize((header.len() + 8).next_multiple_of(64) - 8, b' ');

    let mut file = File::create_new(path)?;
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(&header)?;
    let mut buffer = vec![0; CHUNK];
    for tensor in &shard.tensors {
        let stream = generator.stream(tensor);
        let mut first = 0;
        let mut left = byte_len(tensor);
        while left > 0 {
            let chunk = &mut buffer[..left.min(CHUNK)];
            stream.fill(first, chunk);
            file.write_all(chunk)?;
            first += chunk.len() * 8 / tensor.dtype.bits();
            left -= chunk.len();
            // The receiver outlives the workers.
            let _ = written.send(chunk.len() as u64);
        }
    }
    Ok(())
}

/// Sixteen random bits select one of these.
const SAMPLES: usize = 1 << 16;

/// The distributions that values are drawn from.
struct Generator {
    /// A stratified sample of the standard normal distribution.
    normal: Vec<f32>,
    /// The same sample as E4M3 codes, its largest magnitude at 448.
    codes: Vec<u8>,
    /// Standard deviation of the values of `codes`.
    code_std: f32,
}

impl Generator {
    fn new() -> Self {
        // Box-Muller over a grid of 256 radii and 256 angles.
        let normal: Vec<f32> = (0..SAMPLES)
            .map(|i| {
                let [radius, angle] = [i / 256, i % 256].map(|step| (step as f64 + 0.5) / 256.0);
                ((-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()) as f32
            })
            .collect();
        let max = normal.iter().fold(0.0_f32, |max, z| max.max(z.abs()));
        let codes: Vec<F8E4M3> =
            normal.iter().map(|z| F8E4M3::from_f32(z * F8E4M3::MAX.to_f32() / max, Overflow::Saturate)).collect();
        let square_sum: f64 = codes.iter().map(|code| f64::from(code.to_f32()).powi(2)).sum();
        Self {
            normal,
            codes: codes.iter().map(|code| code.to_bits()).collect(),
            code_std: (square_sum / SAMPLES as f64).sqrt() as f32,
        }
    }

    /// The values of one tensor.
    fn stream(&self, tensor: &TensorSpec) -> Stream<'_> {
        // FNV-1a: any hash of the name will do.
        let hash = tensor
            .name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let shape = &tensor.shape;
        let expert = tensor.name.contains(".experts.");
        // Unit inputs give unit outputs. SiLU and the average over the chosen experts shrink what an expert adds; its
        // gain makes up for that.
        let linear_std = |cols: usize| if expert { 1.5 } else { 1.0 } / (cols as f32).sqrt();
        let (mean, std) = match tensor.role {
            Role::Embedding => (0.0, 1.0),
            Role::Norm => (1.0, 0.1),
            Role::Linear => (0.0, linear_std(shape[1])),
            Role::Scale { cols, .. } => {
                let scale = linear_std(cols) / self.code_std;
                (scale, 0.1 * scale)
            }
            Role::Router => (0.0, 1.5 / (shape[1] as f32).sqrt()),
            Role::RouterBias => (8.0, 0.15),
            Role::LmHead => (0.0, 2.5 / (shape[1] as f32).sqrt()),
        };
        let zero_from = match tensor.role {
            Role::LmHead => TEXT_TOKENS * shape[1],
            _ => usize::MAX,
        };
        let values = match tensor.dtype {
            Dtype::F8E4M3 => Values::Codes(&self.codes),
            Dtype::Bf16 => {
                Values::Bf16(self.normal.iter().map(|z| bf16::from_f32(mean + std * z).to_le_bytes()).collect())
            }
            Dtype::F32 => Values::F32 { normal: &self.normal, mean, std },
            other => unreachable!("no expected tensor has dtype {other}"),
        };
        Stream { seed: mix(SEED ^ hash), values, zero_from }
    }
}

/// What sixteen random bits stand for.
enum Values<'g> {
    Codes(&'g [u8]),
    Bf16(Vec<[u8; 2]>),
    /// Computed on the fly: the F32 tensors are small and many.
    F32 {
        normal: &'g [f32],
        mean: f32,
        std: f32,
    },
}

struct Stream<'g> {
    seed: u64,
    values: Values<'g>,
    /// Elements from this one on are zero.
    zero_from: usize,
}

impl Stream<'_> {
    /// Writes the elements from number `first`, a multiple of four, into `out`.
    fn fill(&self, first: usize, out: &mut [u8]) {
        match &self.values {
            Values::Codes(table) => {
                let table = &table[..SAMPLES];
                self.fill_elements(first, out, |sample| [table[sample]]);
            }
            Values::Bf16(table) => {
                let table = &table[..SAMPLES];
                self.fill_elements(first, out, |sample| table[sample]);
            }
            Values::F32 { normal, mean, std } => {
                self.fill_elements(first, out, |sample| (mean + std * normal[sample]).to_le_bytes());
            }
        }
    }

    /// Each random word serves four elements of `N` bytes.
    fn fill_elements<const N: usize>(&self, first: usize, out: &mut [u8], element: impl Fn(usize) -> [u8; N]) {
        let (elements, _) = out.as_chunks_mut::<N>();
        let random = self.zero_from.saturating_sub(first).min(elements.len());
        let (random, zero) = elements.split_at_mut(random);
        for (i, four) in random.chunks_mut(4).enumerate() {
            let mut word = mix(self.seed.wrapping_add((first / 4 + i) as u64));
            for out in four {
                *out = element(word as usize % SAMPLES);
                word >>= 16;
            }
        }
        zero.as_mut_bytes().fill(0);
    }
}

/// SplitMix64: turns a counter into 64 random bits.
fn mix(counter: u64) -> u64 {
    let z = counter.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
