// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a checkpoint folder holds, from its configuration, its index and the headers of its files: no weight is read, so
//! that hundreds of gigabytes take seconds.
//!
//! ```
//! use model_minimax::inspect::Inspection;
//!
//! # let dir = op_testkit::golden::dir().join("models/m3-tiny-mxfp8");
//! let inspection = Inspection::of(&dir, None)?;
//! assert!(inspection.usable);
//! println!("{inspection}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::checkpoint::{
    Checkpoint, CheckpointError, Dtype, FileProblemKind, HeaderError, LoadReport, Role, ScaleGrid, Skipped, Unexpected,
    WrongDtype, WrongShape, expected_tensors,
};
use crate::config::{AttentionKind, ConfigError, FfnKind, ModelConfig, WeightFormat};

/// Version of the JSON form; it grows when a field changes its meaning or disappears.
pub const SCHEMA: u32 = 1;

/// What a checkpoint folder holds. [`Display`](fmt::Display) gives the text form, [`Serialize`] the JSON form.
#[derive(Debug, Serialize)]
pub struct Inspection {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The folder.
    pub folder: String,
    /// Whether the model can be loaded: the configuration is understood, and everything it asks for is there and fits.
    pub usable: bool,
    /// The model, or nothing if `config.json` is not understood.
    pub model: Option<ModelFacts>,
    /// Why `config.json` is not understood; tensors are then not compared with it.
    pub config_error: Option<String>,
    /// What the files hold.
    pub weights: WeightFacts,
    /// What was compared with the configuration.
    pub tensors: Option<TensorFacts>,
    /// Files that cannot be used.
    pub unusable_files: Vec<UnusableFile>,
    /// Bytes that the index counts and no file on disk has.
    pub absent_bytes: Option<u64>,
    /// Safetensors files of the folder that do not belong to the checkpoint.
    pub ignored_files: Vec<String>,
    /// What a reader should know, and no error.
    pub notes: Vec<Note>,
    /// The report that [`Display`](fmt::Display) shows.
    #[serde(skip)]
    report: Option<LoadReport>,
}

/// The model that `config.json` describes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelFacts {
    /// Display name.
    pub name: String,
    /// Layers that were looked at.
    pub layers: usize,
    /// Layers of the checkpoint.
    pub checkpoint_layers: usize,
    /// Layers with experts, of those looked at.
    pub moe_layers: usize,
    /// Layers with sparse attention, of those looked at.
    pub sparse_layers: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Routed experts of a layer.
    pub experts: usize,
    /// Experts of a token.
    pub experts_per_token: usize,
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Longest sequence.
    pub max_positions: usize,
    /// How linear weights are stored: `bf16`, `fp8` (128 x 128) or `mxfp8` (1 x 32).
    pub weight_format: &'static str,
}

/// The weight files, as far as they can be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WeightFacts {
    /// Whether there is an index.
    pub index: bool,
    /// Files that hold tensors.
    pub files: usize,
    /// Their tensors.
    pub tensors: usize,
    /// The tensors' bytes.
    pub bytes: u64,
    /// The same by element type.
    pub by_dtype: BTreeMap<&'static str, Amount>,
}

/// Tensors and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Amount {
    /// How many.
    pub tensors: usize,
    /// Bytes as stored.
    pub bytes: u64,
}

/// The checkpoint compared with its configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TensorFacts {
    /// Tensors that the model needs.
    pub expected: usize,
    /// Those that a usable file holds.
    pub found: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Needed ones that lie in unusable files.
    pub in_unusable_files: usize,
    /// Needed ones that nothing holds.
    pub missing: Vec<String>,
    /// FP8 weights without a scale.
    pub missing_scale: Vec<String>,
    /// Tensors that nothing explains.
    pub unexpected: Vec<Unexpected>,
    /// Tensors left out on purpose.
    pub skipped: Vec<Skipped>,
    /// Shapes that contradict the configuration.
    pub wrong_shape: Vec<WrongShape>,
    /// Element types that contradict it.
    pub wrong_dtype: Vec<WrongDtype>,
    /// Scales that do not fit their weight.
    pub scale_grid: Vec<ScaleGrid>,
    /// Scales by element type; `U8` scales are E8M0 codes.
    pub scales: BTreeMap<&'static str, usize>,
}

/// A file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnusableFile {
    /// Its name.
    pub file: String,
    /// `absent`, `truncated`, `broken`, `lacks-tensors` or `duplicate`.
    pub kind: &'static str,
    /// Bytes that are absent at its end.
    pub short_by: Option<u64>,
    /// The whole story.
    pub message: String,
}

/// Something to know about a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Note {
    /// `head`, `mtp` or `u8-scales`.
    pub kind: &'static str,
    /// One sentence.
    pub text: String,
}

impl Inspection {
    /// Reads the headers of the checkpoint in `dir`; with `max_layers`, as if only so many layers were to run.
    ///
    /// # Errors
    /// [`CheckpointError`] when there is no folder, no weight file or no readable index, [`ConfigError::MaxLayers`]
    /// for an impossible number of layers. A configuration that is not understood is part of the result.
    pub fn of(dir: &Path, max_layers: Option<usize>) -> Result<Self, InspectError> {
        let checkpoint = Checkpoint::open(dir)?;
        let (config, config_error) = match (ModelConfig::load(dir), max_layers) {
            (Ok(config), Some(layers)) => (Some(config.with_max_layers(layers)?), None),
            (Ok(config), None) => (Some(config), None),
            (Err(error), _) => (None, Some(error.to_string())),
        };
        let report = config.as_ref().map(|config| checkpoint.check(config));
        let tensors = config.as_ref().zip(report.as_ref()).map(|(config, report)| {
            let mut scales = BTreeMap::new();
            let of_scales = expected_tensors(config).into_iter().filter(|spec| matches!(spec.role, Role::Scale { .. }));
            for tensor in of_scales.filter_map(|spec| checkpoint.tensor(&spec.name)) {
                *scales.entry(tensor.dtype().name()).or_insert(0) += 1;
            }
            TensorFacts {
                expected: report.expected,
                found: report.found,
                bytes: report.bytes,
                in_unusable_files: report.in_unusable_files,
                missing: report.missing.clone(),
                missing_scale: report.missing_scale.clone(),
                unexpected: report.unexpected.clone(),
                skipped: report.skipped.clone(),
                wrong_shape: report.wrong_shape.clone(),
                wrong_dtype: report.wrong_dtype.clone(),
                scale_grid: report.scale_grid.clone(),
                scales,
            }
        });
        let mut by_dtype: BTreeMap<_, Amount> = BTreeMap::new();
        for tensor in checkpoint.tensors() {
            let amount = by_dtype.entry(tensor.dtype().name()).or_default();
            amount.tensors += 1;
            amount.bytes += tensor.byte_len() as u64;
        }
        let weights = WeightFacts {
            index: checkpoint.has_index(),
            files: checkpoint.tensors().iter().map(crate::checkpoint::Tensor::file).collect::<BTreeSet<_>>().len(),
            tensors: checkpoint.tensors().len(),
            bytes: by_dtype.values().map(|amount| amount.bytes).sum(),
            by_dtype,
        };
        let raw = std::fs::read_to_string(dir.join("config.json")).ok();
        let raw = raw.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or(Value::Null);
        Ok(Self {
            schema: SCHEMA,
            folder: dir.display().to_string(),
            usable: report.as_ref().is_some_and(LoadReport::is_clean),
            model: config.as_ref().map(ModelFacts::of),
            config_error,
            notes: notes(&raw, &checkpoint, tensors.as_ref()),
            weights,
            tensors,
            unusable_files: checkpoint.file_problems().iter().map(UnusableFile::of).collect(),
            absent_bytes: checkpoint.absent_bytes(),
            ignored_files: checkpoint.ignored_files().to_vec(),
            report,
        })
    }
}

/// Why a folder cannot be inspected at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// There is no checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// There are not so many layers.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl ModelFacts {
    fn of(config: &ModelConfig) -> Self {
        let layers = &config.layers[..config.num_hidden_layers];
        Self {
            name: config.variant.to_string(),
            layers: config.num_hidden_layers,
            checkpoint_layers: config.checkpoint_layers,
            moe_layers: layers.iter().filter(|layer| layer.ffn == FfnKind::Moe).count(),
            sparse_layers: layers.iter().filter(|layer| matches!(layer.attention, AttentionKind::Sparse(_))).count(),
            hidden_size: config.hidden_size,
            heads: config.num_attention_heads,
            kv_heads: config.num_key_value_heads,
            experts: config.num_local_experts,
            experts_per_token: config.num_experts_per_tok,
            vocab_size: config.vocab_size,
            max_positions: config.max_position_embeddings,
            weight_format: match config.weight_format {
                WeightFormat::Bf16 => "bf16",
                WeightFormat::Fp8Block { .. } => "fp8",
                WeightFormat::Mxfp8 { .. } => "mxfp8",
            },
        }
    }
}

impl UnusableFile {
    fn of(problem: &crate::checkpoint::FileProblem) -> Self {
        let (kind, short_by) = match &problem.kind {
            FileProblemKind::Absent { .. } => ("absent", None),
            FileProblemKind::Broken(HeaderError::Truncated { short_by, .. }) => ("truncated", Some(*short_by)),
            FileProblemKind::Broken(_) => ("broken", None),
            FileProblemKind::LacksTensors(_) => ("lacks-tensors", None),
            FileProblemKind::Duplicate { .. } => ("duplicate", None),
        };
        Self { file: problem.file.clone(), kind, short_by, message: problem.to_string() }
    }
}

/// What `config.json` says beside the model's arithmetic, and what the files make of it.
fn notes(config: &Value, checkpoint: &Checkpoint, tensors: Option<&TensorFacts>) -> Vec<Note> {
    let field = |name: &str| match &config["text_config"][name] {
        Value::Null => &config[name],
        nested => nested,
    };
    let mut notes = Vec::new();
    let mut note = |kind, text: String| notes.push(Note { kind, text });

    let ends_with = |suffix: &str| checkpoint.tensors().iter().any(|tensor| tensor.name().ends_with(suffix));
    let (head, embedding) = (ends_with("lm_head.weight"), ends_with("embed_tokens.weight"));
    let tied = field("tie_word_embeddings").as_bool();
    note(
        "head",
        match (tied, head) {
            (Some(true), true) => {
                "config.json ties the output head to the embedding, and the files hold a head of its own".to_owned()
            }
            (Some(true), false) => "the output head is tied to the embedding, which is not implemented".to_owned(),
            (_, true) => "the output head is a tensor of its own, not tied to the embedding".to_owned(),
            (_, false) if embedding => {
                "no lm_head.weight beside the embedding, though config.json does not tie them".to_owned()
            }
            (_, false) => "neither an output head nor an embedding was found".to_owned(),
        },
    );

    let modules = field("num_mtp_modules").as_u64().unwrap_or(0);
    let declared = match field("use_mtp").as_bool() {
        Some(says) => says && modules > 0,
        None => modules > 0,
    };
    let is_mtp = |name: &str| name.split('.').any(|part| part == "mtp");
    let shipped = checkpoint.tensors().iter().filter(|tensor| is_mtp(tensor.name())).count()
        + tensors.map_or(0, |tensors| {
            let of_layers = |skip: &&Skipped| skip.why.contains("multi-token") && !skip.pattern.contains("mtp.");
            tensors.skipped.iter().filter(of_layers).map(|skip| skip.count).sum()
        });
    match (declared, shipped) {
        (true, 0) => {
            note("mtp", format!("{modules} multi-token prediction modules are declared, and none is in the files"))
        }
        (_, 0) => {}
        (_, count) => {
            note("mtp", format!("{count} tensors of multi-token prediction are in the files; they are not run"))
        }
    }

    if let Some(&count) = tensors.and_then(|tensors| tensors.scales.get(Dtype::U8.name())) {
        note("u8-scales", format!("{count} scales have the type U8; they are E8M0 codes, 2^(code - 127) each"));
    }
    notes
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "folder   {}", self.folder)?;
        match (&self.model, &self.config_error) {
            (Some(model), _) => {
                let ModelFacts { name, layers, checkpoint_layers, moe_layers, sparse_layers, weight_format, .. } =
                    model;
                write!(f, "model    {name}, {layers}")?;
                if layers < checkpoint_layers {
                    write!(f, " of {checkpoint_layers}")?;
                }
                writeln!(
                    f,
                    " layers ({moe_layers} with experts, {sparse_layers} with sparse attention), weights {weight_format}"
                )?;
                writeln!(
                    f,
                    "         hidden {}, heads {} / {}, experts {} of {}, vocabulary {}, {} positions",
                    model.hidden_size,
                    model.heads,
                    model.kv_heads,
                    model.experts_per_token,
                    model.experts,
                    model.vocab_size,
                    model.max_positions
                )?;
            }
            (None, error) => writeln!(f, "model    not understood: {}", error.as_deref().unwrap_or_default())?,
        }
        let WeightFacts { index, files, tensors, bytes, by_dtype } = &self.weights;
        let how = if *index { "by an index" } else { "without an index" };
        writeln!(f, "files    {files} {how}, {tensors} tensors, {:.3} GB", *bytes as f64 / 1e9)?;
        for (dtype, amount) in by_dtype {
            writeln!(f, "         {dtype:<8} {:>6} tensors {:>12.3} GB", amount.tensors, amount.bytes as f64 / 1e9)?;
        }
        for note in &self.notes {
            writeln!(f, "note     {}", note.text)?;
        }
        match &self.report {
            Some(report) => writeln!(f, "tensors  {report}")?,
            None => {
                for file in &self.unusable_files {
                    writeln!(f, "unusable {}", file.message)?;
                }
            }
        }
        write!(f, "result   {}", if self.usable { "usable" } else { "not usable" })
    }
}
