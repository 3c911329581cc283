// SPDX-License-Identifier: MIT OR Apache-2.0

//! Comparison of a model with golden data: folders with a checkpoint and, in `expected.safetensors`, what a reference
//! implementation computed from it.
//!
//! In F32 every stored tensor is compared: intermediate results of some positions of each prompt, logits, and a greedy
//! continuation, token by token. In BF16 it is the logits and the continuation of the prompt `mini`, whose decisions are no
//! near ties.

use super::{Event, LoadMode, LoadOptions, Model, ModelError};
use crate::bench::{Arm, BenchDecoder};
use crate::checkpoint::{Checkpoint, CheckpointError, Dtype, Tensor, open_file};
use crate::config::{ConfigError, ModelConfig, Variant};
use crate::generate::Decoder;
use crate::sampling::{SamplingError, argmax};
use cpu_tiles::math::sigmoid;
use cpu_tiles::{Level, Pool, Precision};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest difference of a value in F32.
const F32_LIMIT: f32 = 2e-4;
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
        let width = self.figures.iter().map(|figure| figure.model.len()).max().unwrap_or(0).max(5);
        writeln!(f, "golden parity, level {}", self.level)?;
        writeln!(
            f,
            "{:width$}  dtype  {:<14} {:>7} {:>7}  {:>9} {:>8}       at",
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
                "{model:width$}  {dtype:<5}  {kind:<14} {tensors:>7} {values:>7}  {worst:>9.2e} {limit:>8}  {verdict:<4} {at}"
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
        if config.variant != Variant::M27 {
            report.skipped.push((name, ModelError::UnsupportedVariant(config.variant).to_string()));
            continue;
        }
        let checkpoint = Checkpoint::open(&folder)?;
        let expected = Expected::read(&folder)?;
        for precision in [Precision::F32, Precision::Bf16] {
            let load = LoadOptions {
                level: options.level,
                pool: Arc::clone(&options.pool),
                precision,
                load_mode: options.load_mode,
            };
            let mut model = Model::load(&checkpoint, &config, &load, |_, _| ())?;
            model.set_arm(options.arm);
            Comparison { name: &name, precision, expected: &expected, model: &mut model, report: &mut report }.run()?;
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
                        self.report.skipped.push((format!("{} {prefix}*", self.name), reason.to_owned()));
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
                let (greedy, _) = self.greedy(&ids, expected.get("mini.greedy_ids")?.values.len())?;
                self.compare("mini.greedy_ids", &greedy)?;
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
        let (greedy_ids, greedy_margin) = self.greedy(&ids, steps)?;

        let prefix = format!("{prompt}.");
        for (name, stored) in expected.tensors.range(prefix.clone()..).take_while(|(name, _)| name.starts_with(&prefix))
        {
            match &name[prefix.len()..] {
                "input_ids" | "positions" => {}
                "greedy_ids" => self.compare(name, &greedy_ids)?,
                "greedy_margin" => self.compare(name, &greedy_margin)?,
                rest => match recorded.0.get(rest) {
                    None => self.report.skipped.push((format!("{} {name}", self.name), "not computed".to_owned())),
                    Some(values) if stored.shape.first() == Some(&ids.len()) => self.compare(name, values)?,
                    Some(values) => {
                        let width = values.len() / ids.len();
                        let rows = positions.iter().flat_map(|&row| values.chunks_exact(width).nth(row as usize));
                        self.compare(name, &rows.flatten().copied().collect::<Vec<_>>())?;
                    }
                },
            }
        }
        Ok(())
    }

    /// The greedy continuation of a prompt: ids, and the best minus the second logit of each.
    fn greedy(&mut self, prompt: &[u32], steps: usize) -> Result<(Vec<f32>, Vec<f32>), ParityError> {
        self.model.reset();
        let (mut ids, mut margins) = (Vec::new(), Vec::new());
        let mut step = prompt.to_vec();
        for _ in 0..steps {
            let logits = self.model.forward(&step)?;
            let id = argmax(logits)?;
            let others = logits.iter().enumerate().filter(|(other, _)| *other != id as usize);
            let second = others.map(|(_, &logit)| logit).fold(f32::NEG_INFINITY, f32::max);
            margins.push(logits[id as usize] - second);
            ids.push(id as f32);
            step = vec![id];
        }
        Ok((ids, margins))
    }

    fn compare(&mut self, name: &str, found: &[f32]) -> Result<(), ParityError> {
        let stored = &self.expected.get(name)?.values;
        let kind = name.rsplit('.').next().unwrap_or(name);
        if kind.ends_with("_ids") {
            let wrong = found.iter().zip(stored).filter(|(found, stored)| found != stored).count();
            let wrong = if found.len() == stored.len() { wrong as f32 } else { f32::INFINITY };
            self.note(kind, name, stored.len(), wrong, 0.0);
        } else {
            self.note(kind, name, stored.len(), largest(found, stored), F32_LIMIT);
        }
        Ok(())
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

/// The largest difference; infinite if there is no value to compare, or one is no number.
fn largest(found: &[f32], stored: &[f32]) -> f32 {
    if found.len() != stored.len() {
        return f32::INFINITY;
    }
    found.iter().zip(stored).map(|(a, b)| or_infinite((a - b).abs())).fold(0.0, f32::max)
}

fn or_infinite(difference: f32) -> f32 {
    if difference.is_nan() { f32::INFINITY } else { difference }
}

/// Intermediate results by their name in the expected results, without the prompt; all positions.
#[derive(Default)]
struct Recorder(BTreeMap<String, Vec<f32>>);

impl Recorder {
    fn add(&mut self, name: &str, layer: Option<usize>, values: &[f32]) {
        let name = layer.map_or(name.to_owned(), |layer| format!("layer{layer}.{name}"));
        self.0.entry(name).or_default().extend_from_slice(values);
    }

    fn record(&mut self, event: Event<'_>) {
        match event {
            Event::Embeddings(values) => self.add("embeddings", None, values),
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

    /// By how much the last expert chosen beats the first one not chosen.
    fn margins(&mut self, model: &Model) {
        let top_k = model.config().num_experts_per_tok;
        for (index, layer) in model.network.weights.layers.iter().enumerate() {
            let logits = self.0.get(&format!("layer{index}.router_logits")).cloned().unwrap_or_default();
            let mut scores = vec![0.0; logits.len()];
            sigmoid(model.network.level, &logits, &mut scores);
            let margins: Vec<f32> = scores
                .chunks_exact(layer.router_bias.len())
                .map(|scores| {
                    let mut choice: Vec<f32> =
                        scores.iter().zip(&layer.router_bias).map(|(s, bias)| s + bias).collect();
                    choice.sort_by(|a, b| b.total_cmp(a));
                    choice[top_k - 1] - choice.get(top_k).copied().unwrap_or(f32::NEG_INFINITY)
                })
                .collect();
            self.add("router_margin", Some(index), &margins);
        }
    }
}
