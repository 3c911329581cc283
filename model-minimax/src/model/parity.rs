// SPDX-License-Identifier: MIT OR Apache-2.0

//! Comparison of a model with golden data: folders with a checkpoint and, in `expected.safetensors`, what a reference
//! implementation computed from it.
//!
//! In F32 every stored tensor is compared: intermediate results of some positions of each prompt, the choice of experts and
//! blocks of keys, logits, and a greedy continuation, token by token. In BF16 it is the logits and the continuation of the prompt `mini`, whose decisions are no
//! near ties.

use super::weights::{Ffn, Moe};
use super::{AttentionMode, Event, LoadMode, LoadOptions, Model, ModelError};
use crate::bench::{Arm, BenchDecoder};
use crate::checkpoint::{Checkpoint, CheckpointError, Dtype, Tensor, open_file};
use crate::config::{ConfigError, ModelConfig, MsaConfig, Variant};
use crate::generate::Decoder;
use crate::sampling::{SamplingError, argmax};
use cpu_tiles::math::sigmoid;
use cpu_tiles::{Level, Pool, Precision};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest difference of a value in F32.
const F32_LIMIT: f32 = 2e-4;
/// The same of the scores of blocks: they are sums of products that near 100, where F32 is 1e-5 apart.
const F32_SCORE_LIMIT: f32 = 5e-4;
/// Largest and mean difference of a logit in BF16.
const BF16_LIMITS: [f32; 2] = [0.25, 0.05];
const EXPECTED: &str = "expected.safetensors";

/// How the models are run.
#[derive(Debug, Clone)]
pub struct ParityOptions {
    /// The SIMD level.
    pub level: Level,
    /// The threads.
    pub pool: Arc<Pool>,
    /// Where weights are held.
    pub load_mode: LoadMode,
    /// How experts are run.
    pub arm: Arm,
    /// How layers with sparse attention attend. Only as the model means it is there parity.
    pub attention: AttentionMode,
    /// Tokens that go through the layers together.
    pub prefill_chunk: NonZeroUsize,
    /// The variant to compare; `None` for all.
    pub variant: Option<Variant>,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParityError {
    /// The folder cannot be listed.
    #[error("cannot list {}: {source}", dir.display())]
    List {
        /// The folder.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The expected results are not what they should be.
    #[error("{} {what}", path.display())]
    Expected {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// There is nothing to compare with.
    #[error("no golden models at {}: looked for {EXPECTED} there, in its folders, and in those of `models`", dir.display())]
    Nothing {
        /// The folder.
        dir: PathBuf,
    },
    /// A configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A checkpoint cannot be used.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A model cannot be loaded or run.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A logit is no number.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
}

/// The worst of all tensors of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// The model.
    pub model: String,
    /// What activations were rounded to.
    pub precision: Precision,
    /// What was compared: the tensors' name without prompt and layer. For ids, numbers differ or not, and the worst figure
    /// is how many do.
    pub kind: String,
    /// Tensors.
    pub tensors: usize,
    /// Values of all of them.
    pub values: usize,
    /// The largest figure of a tensor; infinite if a value is no number.
    pub worst: f32,
    /// The tensor that has it.
    pub at: String,
    /// The largest figure that passes.
    pub limit: f32,
}

impl Figure {
    /// Whether all values are as they should be.
    pub fn passed(&self) -> bool {
        self.worst <= self.limit
    }
}

/// The outcome of [`run`]. [`Display`](fmt::Display) gives a table.
#[derive(Debug, Clone, PartialEq)]
pub struct ParityReport {
    /// The SIMD level.
    pub level: Level,
    /// One entry per model, precision and kind of tensor.
    pub figures: Vec<Figure>,
    /// Models and tensors that were not compared, with the reason.
    pub skipped: Vec<(String, String)>,
}

impl ParityReport {
    /// Whether something was compared and everything passed.
    pub fn passed(&self) -> bool {
        !self.figures.is_empty() && self.figures.iter().all(Figure::passed)
    }

    /// Adds one tensor to the figure of its kind.
    fn note(&mut self, figure: Figure) {
        let same = |other: &&mut Figure| {
            (&other.model, other.precision, &other.kind) == (&figure.model, figure.precision, &figure.kind)
        };
        match self.figures.iter_mut().find(same) {
            None => self.figures.push(figure),
            Some(all) => {
                all.tensors += figure.tensors;
                all.values += figure.values;
                if figure.worst > all.worst {
                    (all.worst, all.at) = (figure.worst, figure.at);
                }
            }
        }
    }
}

impl fmt::Display for ParityReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest = |of: fn(&Figure) -> &str, least| self.figures.iter().map(|f| of(f).len()).fold(least, usize::max);
        let (width, kinds) = (longest(|figure| &figure.model, 5), longest(|figure| &figure.kind, 14));
        writeln!(f, "golden parity, level {}", self.level)?;
        writeln!(
            f,
            "{:width$}  dtype  {:<kinds$} {:>7} {:>7}  {:>9} {:>8}       at",
            "model", "tensor", "tensors", "values", "worst", "limit"
        )?;
        for figure in &self.figures {
            let Figure { model, kind, tensors, values, worst, at, limit, .. } = figure;
            let dtype = match figure.precision {
                Precision::F32 => "f32",
                Precision::Bf16 => "bf16",
            };
            let verdict = if figure.passed() { "ok" } else { "FAIL" };
            writeln!(
                f,
                "{model:width$}  {dtype:<5}  {kind:<kinds$} {tensors:>7} {values:>7}  {worst:>9.2e} {limit:>8}  {verdict:<4} {at}"
            )?;
        }
        for (what, reason) in &self.skipped {
            writeln!(f, "not compared: {what} ({reason})")?;
        }
        f.write_str(if self.passed() { "all passed" } else { "FAILED" })
    }
}

/// Compares every model below `dir`: `dir` itself, its folders, or those of `dir/models`, whichever have expected results.
/// As for [`Checkpoint::open`], the files must not be changed or shortened meanwhile.
///
/// # Errors
/// [`ParityError`]. Values that are wrong are no error but a report that has not [passed](ParityReport::passed).
pub fn run(dir: &Path, options: &ParityOptions) -> Result<ParityReport, ParityError> {
    let mut report = ParityReport { level: options.level, figures: Vec::new(), skipped: Vec::new() };
    for folder in model_folders(dir)? {
        let name = folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned();
        let config = ModelConfig::load(&folder)?;
        if let Some(asked) = options.variant.filter(|&asked| asked != config.variant) {
            report.skipped.push((name, format!("it is {}, asked for was {asked}", config.variant)));
            continue;
        }
        let checkpoint = Checkpoint::open(&folder)?;
        let expected = Expected::read(&folder)?;
        for precision in [Precision::F32, Precision::Bf16] {
            let load = LoadOptions {
                precision,
                load_mode: options.load_mode,
                attention: options.attention,
                prefill_chunk: options.prefill_chunk,
                ..LoadOptions::new(options.level, Arc::clone(&options.pool))
            };
            let mut model = Model::load(&checkpoint, &config, &load, |_, _| ())?;
            model.set_arm(options.arm);
            Comparison {
                name: &name,
                precision,
                dense: options.attention == AttentionMode::Dense,
                expected: &expected,
                model: &mut model,
                report: &mut report,
            }
            .run()?;
        }
    }
    if report.figures.is_empty() && report.skipped.is_empty() {
        return Err(ParityError::Nothing { dir: dir.to_owned() });
    }
    Ok(report)
}

fn model_folders(dir: &Path) -> Result<Vec<PathBuf>, ParityError> {
    let has_expected = |folder: &PathBuf| folder.join(EXPECTED).is_file();
    let dir = dir.to_owned();
    if has_expected(&dir) {
        return Ok(vec![dir]);
    }
    let models = dir.join("models");
    let dir = if models.is_dir() { models } else { dir };
    let list = |source| ParityError::List { dir: dir.clone(), source };
    let entries = std::fs::read_dir(&dir).map_err(list)?;
    let mut folders: Vec<_> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>().map_err(list)?;
    folders.retain(has_expected);
    folders.sort();
    Ok(folders)
}

/// What the reference implementation computed. Numbers of all types are held as F32; ids are small enough for that.
struct Expected {
    path: PathBuf,
    tensors: BTreeMap<String, Stored>,
}

struct Stored {
    shape: Vec<usize>,
    values: Vec<f32>,
}

impl Expected {
    fn read(folder: &Path) -> Result<Self, ParityError> {
        let path = folder.join(EXPECTED);
        let unusable = |what: String| ParityError::Expected { path: path.clone(), what };
        let (_, found) = open_file(folder, EXPECTED).map_err(|error| unusable(error.to_string()))?;
        let mut tensors = BTreeMap::new();
        for tensor in &found {
            let (name, dtype) = (tensor.name(), tensor.dtype());
            let stored = Stored::read(tensor)
                .ok_or_else(|| unusable(format!("should hold {name} as F32, I32 or I64, found {dtype}")))?;
            tensors.insert(name.to_owned(), stored);
        }
        Ok(Self { path, tensors })
    }

    fn get(&self, name: &str) -> Result<&Stored, ParityError> {
        let missing = || ParityError::Expected { path: self.path.clone(), what: format!("has no tensor {name}") };
        self.tensors.get(name).ok_or_else(missing)
    }

    fn ids(&self, name: &str) -> Result<Vec<u32>, ParityError> {
        Ok(self.get(name)?.values.iter().map(|&id| id as u32).collect())
    }
}

impl Stored {
    /// `None` for an element type that no expected result has.
    fn read(tensor: &Tensor) -> Option<Self> {
        fn numbers<const N: usize>(bytes: &[u8], number: fn([u8; N]) -> f32) -> Vec<f32> {
            bytes.as_chunks().0.iter().map(|bytes| number(*bytes)).collect()
        }
        let values = match tensor.dtype() {
            Dtype::F32 => numbers(tensor.bytes(), f32::from_le_bytes),
            Dtype::I32 => numbers(tensor.bytes(), |bytes| i32::from_le_bytes(bytes) as f32),
            Dtype::I64 => numbers(tensor.bytes(), |bytes| i64::from_le_bytes(bytes) as f32),
            _ => return None,
        };
        Some(Self { shape: tensor.shape().to_vec(), values })
    }
}

/// One model in one precision against its expected results.
struct Comparison<'a> {
    name: &'a str,
    precision: Precision,
    /// Whether layers with sparse attention attend to everything.
    dense: bool,
    expected: &'a Expected,
    model: &'a mut Model,
    report: &'a mut ParityReport,
}

impl Comparison<'_> {
    fn run(mut self) -> Result<(), ParityError> {
        let expected = self.expected;
        let prompts = expected.tensors.keys().filter_map(|name| name.strip_suffix(".input_ids"));
        match self.precision {
            Precision::F32 => {
                for prompt in prompts {
                    self.prompt(prompt)?;
                }
                for (prefix, reason) in [
                    ("bf16w.", "weights are not rounded to BF16 here"),
                    ("bf16.", "BF16 is compared with the exact results"),
                ] {
                    if expected.tensors.keys().any(|name| name.starts_with(prefix)) {
                        self.skip(format!("{} {prefix}*", self.name), reason);
                    }
                }
            }
            Precision::Bf16 => {
                let ids = expected.ids("mini.input_ids")?;
                self.model.reset();
                let logits = self.model.forward_all(&ids, |_| ())?;
                let stored = &expected.get("mini.logits")?.values;
                let [limit, mean_limit] = BF16_LIMITS;
                self.note("logits", "mini.logits", stored.len(), largest(&logits, stored), limit);
                let sum: f64 = logits.iter().zip(stored).map(|(a, b)| f64::from(a - b).abs()).sum();
                let mean = (sum / stored.len() as f64) as f32;
                self.note("logits (mean)", "mini.logits", stored.len(), or_infinite(mean), mean_limit);
                let steps = expected.get("mini.greedy_ids")?.values.len();
                let greedy = self.greedy(&logits, steps)?;
                self.compare("mini.greedy_ids", &greedy.ids)?;
            }
        }
        Ok(())
    }

    /// Everything that is stored of a prompt.
    fn prompt(&mut self, prompt: &str) -> Result<(), ParityError> {
        let expected = self.expected;
        let ids = expected.ids(&format!("{prompt}.input_ids"))?;
        let positions = match expected.tensors.contains_key(&format!("{prompt}.positions")) {
            true => expected.ids(&format!("{prompt}.positions"))?,
            false => (0..ids.len() as u32).collect(),
        };
        self.model.reset();
        let mut recorded = Recorder::default();
        let logits = self.model.forward_all(&ids, |event| recorded.record(event))?;
        recorded.add("logits", None, &logits);
        recorded.margins(self.model);
        let steps = expected.get(&format!("{prompt}.greedy_ids"))?.values.len();
        let greedy = self.greedy(&logits, steps)?;
        recorded.add_greedy(&greedy);

        let prefix = format!("{prompt}.");
        for (name, stored) in expected.tensors.range(prefix.clone()..).take_while(|(name, _)| name.starts_with(&prefix))
        {
            let rest = &name[prefix.len()..];
            let all_positions = |rows: usize| stored.shape.get(rows) == Some(&ids.len());
            match (recorded.by_token.get(rest), recorded.by_head.get(rest)) {
                _ if ["input_ids", "positions"].contains(&rest) => {}
                (Some(values), _) if rest.starts_with("greedy_") || all_positions(0) => self.compare(name, values)?,
                (Some(values), _) => {
                    let width = values.len() / ids.len();
                    let rows = positions.iter().flat_map(|&row| values.chunks_exact(width).nth(row as usize));
                    self.compare(name, &rows.flatten().copied().collect::<Vec<_>>())?;
                }
                (None, Some(values)) => {
                    // A block that there is not.
                    let nothing = if is_choice(rest) { -1.0 } else { f32::NEG_INFINITY };
                    let every_row = rest.ends_with(".greedy_msa_blocks") || all_positions(1);
                    let token = |row| if every_row { row } else { positions.get(row).map_or(0, |&p| p as usize) };
                    self.compare(name, &values.in_shape_of(stored, nothing, token))?;
                }
                (None, None) if self.dense && rest.contains("msa_") => {
                    let kind = rest.rsplit('.').next().unwrap_or(rest);
                    self.skip(format!("{} *.{kind}", self.name), "attention is dense");
                }
                (None, None) => self.skip(format!("{} {name}", self.name), "not computed"),
            }
        }
        Ok(())
    }

    /// The greedy continuation of the sequence, of whose last position the logits are at the end of `logits`.
    fn greedy(&mut self, logits: &[f32], steps: usize) -> Result<Greedy, ParityError> {
        let mut greedy = Greedy::default();
        let mut logits = logits[logits.len() - self.model.vocab_size()..].to_vec();
        for step in 1..=steps {
            let id = argmax(&logits)?;
            let others = logits.iter().enumerate().filter(|(other, _)| *other != id as usize);
            let second = others.map(|(_, &logit)| logit).fold(f32::NEG_INFINITY, f32::max);
            greedy.margins.push(logits[id as usize] - second);
            greedy.ids.push(id as f32);
            if step < steps {
                logits = self.model.forward_observed(&[id], |event| greedy.recorded.record(event))?.to_vec();
            }
        }
        Ok(greedy)
    }

    fn compare(&mut self, name: &str, found: &[f32]) -> Result<(), ParityError> {
        let stored = &self.expected.get(name)?.values;
        let kind = name.rsplit('.').next().unwrap_or(name);
        if is_choice(kind) {
            let wrong = found.iter().zip(stored).filter(|(found, stored)| found != stored).count();
            let wrong = if found.len() == stored.len() { wrong as f32 } else { f32::INFINITY };
            self.note(kind, name, stored.len(), wrong, 0.0);
        } else {
            let limit = if ["msa_block_scores", "msa_margin"].contains(&kind) { F32_SCORE_LIMIT } else { F32_LIMIT };
            self.note(kind, name, stored.len(), largest(found, stored), limit);
        }
        Ok(())
    }

    /// Notes what is not compared, once.
    fn skip(&mut self, what: String, reason: &str) {
        let skipped = (what, reason.to_owned());
        if !self.report.skipped.contains(&skipped) {
            self.report.skipped.push(skipped);
        }
    }

    fn note(&mut self, kind: &str, at: &str, values: usize, worst: f32, limit: f32) {
        self.report.note(Figure {
            model: self.name.to_owned(),
            precision: self.precision,
            kind: kind.to_owned(),
            tensors: 1,
            values,
            worst,
            at: at.to_owned(),
            limit,
        });
    }
}

/// Whether a tensor of this name holds numbers of tokens, experts or blocks, which are the same or not.
fn is_choice(name: &str) -> bool {
    name.ends_with("_ids") || name.ends_with("_blocks")
}

/// The largest difference; infinite if there is no value to compare, or one is no number. Equal infinities do not differ.
fn largest(found: &[f32], stored: &[f32]) -> f32 {
    if found.len() != stored.len() {
        return f32::INFINITY;
    }
    let difference = |(a, b): (&f32, &f32)| if a == b { 0.0 } else { or_infinite((a - b).abs()) };
    found.iter().zip(stored).map(difference).fold(0.0, f32::max)
}

fn or_infinite(difference: f32) -> f32 {
    if difference.is_nan() { f32::INFINITY } else { difference }
}

/// A greedy continuation.
#[derive(Default)]
struct Greedy {
    ids: Vec<f32>,
    /// The best minus the second logit of each.
    margins: Vec<f32>,
    /// What happened in the steps after the first, whose events are those of the prompt.
    recorded: Recorder,
}

/// Intermediate results by their name in the expected results, without the prompt; all positions.
#[derive(Default)]
struct Recorder {
    /// One row per token, all of one width.
    by_token: BTreeMap<String, Vec<f32>>,
    by_head: BTreeMap<String, ByHead>,
}

/// Results that are stored head by head.
#[derive(Default)]
struct ByHead {
    heads: usize,
    /// Token by token, and in each head by head; a later row may be longer, as there are more blocks then.
    rows: Vec<Vec<f32>>,
}

impl ByHead {
    /// As the expected `[heads, rows]` or `[heads, rows, width]`, whose row `r` is that of token `token(r)`. What a row lacks
    /// of the width is `nothing`. Empty if there is more than the width.
    fn in_shape_of(&self, stored: &Stored, nothing: f32, token: impl Fn(usize) -> usize) -> Vec<f32> {
        let [heads, rows, width] = match *stored.shape.as_slice() {
            [heads, rows] => [heads, rows, 1],
            [heads, rows, width] => [heads, rows, width],
            _ => return Vec::new(),
        };
        let mut values = Vec::with_capacity(heads * rows * width);
        for head in 0..heads {
            for row in 0..rows {
                let found = self.rows.get(token(row) * self.heads + head).filter(|_| head < self.heads);
                let Some(found) = found else { return Vec::new() };
                if found.iter().skip(width).any(|&x| x != nothing) {
                    return Vec::new();
                }
                values.extend((0..width).map(|i| found.get(i).copied().unwrap_or(nothing)));
            }
        }
        values
    }
}

impl Recorder {
    fn add(&mut self, name: &str, layer: Option<usize>, values: &[f32]) {
        let name = layer.map_or(name.to_owned(), |layer| format!("layer{layer}.{name}"));
        self.by_token.entry(name).or_default().extend_from_slice(values);
    }

    fn add_by_head(&mut self, name: &str, layer: usize, heads: usize, rows: impl Iterator<Item = Vec<f32>>) {
        let all = self.by_head.entry(format!("layer{layer}.{name}")).or_default();
        all.heads = heads;
        all.rows.extend(rows);
    }

    fn record(&mut self, event: Event<'_>) {
        match event {
            Event::Embeddings(values) => self.add("embeddings", None, values),
            Event::BlockScores { layer, kv_heads, blocks, values } => {
                let rows = values.chunks_exact(blocks).map(<[f32]>::to_vec);
                self.add_by_head("msa_block_scores", layer, kv_heads, rows);
            }
            Event::Blocks { layer, kv_heads, top_k, ids } => {
                let rows = ids.chunks_exact(top_k).map(|ids| ids.iter().map(|&id| id as f32).collect());
                self.add_by_head("msa_blocks", layer, kv_heads, rows);
            }
            Event::AttnOut { layer, values } => self.add("attn_out", Some(layer), values),
            Event::RouterLogits { layer, values } => self.add("router_logits", Some(layer), values),
            Event::TopK { layer, ids, weights } => {
                let ids: Vec<f32> = ids.iter().map(|&id| id as f32).collect();
                self.add("topk_ids", Some(layer), &ids);
                self.add("topk_weights", Some(layer), weights);
            }
            Event::Hidden { layer, values } => self.add("hidden", Some(layer), values),
            Event::FinalNorm(values) => self.add("final_norm", None, values),
        }
    }

    /// Adds what is known of the continuation of the prompt.
    fn add_greedy(&mut self, greedy: &Greedy) {
        self.add("greedy_ids", None, &greedy.ids);
        self.add("greedy_margin", None, &greedy.margins);
        for (name, steps) in &greedy.recorded.by_head {
            if let (Some(layer), Some(prompt)) = (name.strip_suffix(".msa_blocks"), self.by_head.get(name)) {
                let last = &prompt.rows[prompt.rows.len() - prompt.heads..];
                let rows = [last, steps.rows.as_slice()].concat();
                self.by_head.insert(format!("{layer}.greedy_msa_blocks"), ByHead { heads: prompt.heads, rows });
            }
        }
    }

    /// By how much the last one chosen beats the first one not chosen, of experts and of blocks.
    fn margins(&mut self, model: &Model) {
        for (index, layer) in model.network.weights.layers.iter().enumerate() {
            if let Ffn::Moe(moe) = &layer.ffn {
                self.router_margin(model, index, moe);
            }
            if let Some(msa) = model.config().layers[index].msa() {
                self.msa_margin(index, msa);
            }
        }
    }

    fn router_margin(&mut self, model: &Model, layer: usize, moe: &Moe) {
        let top_k = model.config().num_experts_per_tok;
        let logits = self.by_token.get(&format!("layer{layer}.router_logits")).cloned().unwrap_or_default();
        let mut scores = vec![0.0; logits.len()];
        sigmoid(model.network.level, &logits, &mut scores);
        let margin = |scores: &[f32]| {
            let mut choice: Vec<f32> = scores.iter().zip(&moe.bias).map(|(s, bias)| s + bias).collect();
            choice.sort_by(|a, b| b.total_cmp(a));
            choice[top_k - 1] - choice.get(top_k).copied().unwrap_or(f32::NEG_INFINITY)
        };
        let margins: Vec<f32> = scores.chunks_exact(moe.bias.len()).map(margin).collect();
        self.add("router_margin", Some(layer), &margins);
    }

    /// Forced blocks take no part.
    fn msa_margin(&mut self, layer: usize, msa: MsaConfig) {
        let of = |name: &str| self.by_head.get(&format!("layer{layer}.{name}"));
        let (Some(scores), Some(chosen)) = (of("msa_block_scores"), of("msa_blocks")) else { return };
        let heads = scores.heads;
        let margin = |row: usize| {
            let last = row / heads / msa.block;
            let is_forced = |block: usize| block < msa.init_blocks || block + msa.local_blocks > last;
            let (mut kept, mut dropped) = (f32::INFINITY, f32::NEG_INFINITY);
            for (block, &score) in scores.rows[row].iter().enumerate().take(last + 1).filter(|(b, _)| !is_forced(*b)) {
                if chosen.rows[row].contains(&(block as f32)) {
                    kept = kept.min(score);
                } else {
                    dropped = dropped.max(score);
                }
            }
            vec![kept - dropped]
        };
        let margins: Vec<_> = (0..scores.rows.len()).map(margin).collect();
        self.add_by_head("msa_margin", layer, heads, margins.into_iter());
    }
}
