// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checkpoints: a folder in the layout of the Hub, with safetensors files and perhaps an index of them.
//!
//! [`Checkpoint::open`] reads the headers of all files and maps the files; no weight is touched.
//! [`Checkpoint::model_tensors`] compares them with what a [`ModelConfig`] asks for, in one [`LoadReport`], and hands
//! out the tensors by their place in the model. A checkpoint that does not fit completely is an error: running with
//! weights that are absent, cut, unscaled or not understood would produce wrong text without a word.
//!
//! ```no_run
//! use model_minimax::checkpoint::Checkpoint;
//! use model_minimax::config::ModelConfig;
//!
//! let checkpoint = Checkpoint::open("MiniMax-M2.7".as_ref())?;
//! let config = ModelConfig::load(checkpoint.dir())?;
//! let (tensors, report) = checkpoint.model_tensors(&config)?;
//! eprintln!("{report}"); // 96103/96103 text tensors, 0 missing, 0 unexpected, 0 skipped
//! assert_eq!(tensors.embed.shape(), [config.vocab_size, config.hidden_size]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod layout;
mod report;
mod safetensors;
pub mod synthetic;

mod tensor;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;
use serde::Deserialize;

use crate::config::ModelConfig;
pub use layout::{
    FfnTensors, IndexTensors, LayerTensors, LinearTensors, MlpTensors, ModelTensors, MoeTensors, Role, TensorSpec,
    expected_tensors,
};
pub use report::{FileProblem, FileProblemKind, LoadReport, ScaleGrid, Skipped, Unexpected, WrongDtype, WrongShape};
pub use safetensors::HeaderError;
pub(crate) use safetensors::header as safetensors_header;
#[cfg(feature = "download")]
pub(crate) use synthetic::free_bytes;
pub use tensor::{Dtype, ReadAsError, Tensor};

const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";

/// Why a checkpoint cannot be opened or used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The path does not exist, or is no folder.
    #[error("no checkpoint folder at {}\n{parent}\n{HELP}", dir.display())]
    NoFolder {
        /// The path asked for.
        dir: PathBuf,
        /// The nearest folder above it that exists.
        parent: Listing,
    },
    /// The folder cannot be listed.
    #[error("cannot list {}: {source}", dir.display())]
    List {
        /// The folder.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The folder has no weights.
    #[error("no weights found; looked for {INDEX}, {SINGLE} and any single *.safetensors file\n{folder}\n{HELP}")]
    NoWeights {
        /// The folder.
        folder: Listing,
    },
    /// The folder has several weight files and nothing that says how they belong together.
    #[error("several *.safetensors files and no {INDEX} to say which belong together; fetch the index\n{folder}")]
    NoIndex {
        /// The folder.
        folder: Listing,
    },
    /// The index cannot be used.
    #[error("{}: {what}", path.display())]
    Index {
        /// The index file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The checkpoint does not hold the model that its configuration describes.
    #[error("the checkpoint cannot be used: {0}")]
    Unusable(Box<LoadReport>),
}

const HELP: &str = "What helps:
  model-minimax bench --synthetic slice                     needs no checkpoint: makes a synthetic one and keeps it
  model-minimax download --model-id MiniMaxAI/MiniMax-M2.7 --output-dir DIR
                                                            fetches the published weights (230 GB)
  model-minimax download --model-id MiniMaxAI/MiniMax-M3-MXFP8 --output-dir DIR
                                                            those of MiniMax-M3 (442 GB)
  model-minimax bench --model-path DIR                      names the folder, as does MODEL_PATH=DIR";

/// What a folder holds, for errors.
#[derive(Debug)]
pub struct Listing {
    /// The folder.
    pub dir: PathBuf,
    /// Its entries in order, folders with a `/` at the end.
    pub entries: Vec<String>,
}

impl Listing {
    fn of(dir: &Path) -> io::Result<Self> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let slash = if entry.path().is_dir() { "/" } else { "" };
            entries.push(format!("{}{slash}", entry.file_name().to_string_lossy()));
        }
        entries.sort();
        Ok(Self { dir: dir.to_owned(), entries })
    }

    fn with_suffix<'a>(&'a self, suffix: &'a str) -> impl Iterator<Item = &'a String> {
        self.entries.iter().filter(move |entry| entry.ends_with(suffix))
    }
}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 20;
        write!(f, "{} holds ", self.dir.display())?;
        let shown = &self.entries[..self.entries.len().min(SHOWN)];
        match self.entries.len() {
            0 => f.write_str("nothing"),
            len if len > SHOWN => write!(f, "{} and {} more", shown.join(", "), len - SHOWN),
            _ => f.write_str(&shown.join(", ")),
        }
    }
}

/// The headers of a checkpoint folder, its files mapped.
///
/// Problems of single files do not fail the opening; they are part of the report of [`Checkpoint::check`].
#[derive(Debug)]
pub struct Checkpoint {
    dir: PathBuf,
    /// Those of usable files, sorted by name, without duplicates.
    tensors: Vec<Tensor>,
    /// Names that the index places in unusable files, sorted.
    out_of_reach: Vec<String>,
    problems: Arc<Vec<FileProblem>>,
    absent_bytes: Option<u64>,
    ignored_files: Vec<String>,
}

impl Checkpoint {
    /// Opens the folder `dir`. The files are those that `model.safetensors.index.json` names; without it
    /// `model.safetensors`, or the only `*.safetensors` file there is. Their names may be any.
    ///
    /// The files must not be changed or shortened while the checkpoint or one of its tensors is alive: they are
    /// mapped, and reading a page that is gone ends the process.
    ///
    /// # Errors
    /// Every variant of [`CheckpointError`] except `Unusable`.
    pub fn open(dir: &Path) -> Result<Self, CheckpointError> {
        let folder = list(dir)?;
        let index = Index::find(&folder)?;
        let files = match &index {
            Some(index) => index.files(),
            None => BTreeMap::from([(single_file(&folder)?, 0)]),
        };

        let mut tensors = Vec::new();
        let mut problems = Vec::new();
        let mut on_disk = 0;
        for (&file, &placed) in &files {
            let kind = match open_file(dir, file) {
                Ok((len, found)) => {
                    on_disk += len;
                    // A tensor that the index places in another file is a leftover.
                    tensors.extend(found.into_iter().filter(|tensor| {
                        index.as_ref().and_then(|index| index.weight_map.get(tensor.name())).is_none_or(|f| f == file)
                    }));
                    continue;
                }
                Err(HeaderError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                    FileProblemKind::Absent { tensors: placed }
                }
                Err(error) => FileProblemKind::Broken(error),
            };
            problems.push(FileProblem { file: file.to_owned(), kind });
        }
        let absent = problems.iter().any(|problem| matches!(problem.kind, FileProblemKind::Absent { .. }));
        let total_size = index.as_ref().and_then(Index::total_size).filter(|_| absent);

        tensors.sort_by(|a: &Tensor, b| a.name().cmp(b.name()));
        tensors.dedup_by(|later, first| {
            let twice = later.name() == first.name();
            if twice {
                let kind = FileProblemKind::Duplicate { tensor: first.name().to_owned() };
                problems.push(FileProblem { file: later.file().to_owned(), kind });
            }
            twice
        });
        let mut checkpoint = Self {
            dir: dir.to_owned(),
            tensors,
            out_of_reach: Vec::new(),
            problems: Arc::default(),
            absent_bytes: total_size.map(|total| total.saturating_sub(on_disk)),
            ignored_files: folder
                .with_suffix(".safetensors")
                .filter(|name| !files.contains_key(name.as_str()))
                .cloned()
                .collect(),
        };
        if let Some(index) = &index {
            checkpoint.find_out_of_reach(index, &mut problems);
        }
        checkpoint.problems = Arc::new(problems);
        Ok(checkpoint)
    }

    /// Notes what the index promises and no usable file holds.
    fn find_out_of_reach(&mut self, index: &Index, problems: &mut Vec<FileProblem>) {
        let unusable: BTreeSet<String> = problems.iter().map(|problem| problem.file.clone()).collect();
        let mut lacks: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (name, file) in &index.weight_map {
            if self.tensor(name).is_none() {
                self.out_of_reach.push(name.clone());
                if !unusable.contains(file) {
                    lacks.entry(file).or_default().push(name.clone());
                }
            }
        }
        problems.extend(
            lacks
                .into_iter()
                .map(|(file, names)| FileProblem { file: file.to_owned(), kind: FileProblemKind::LacksTensors(names) }),
        );
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether the folder has an index of its files.
    pub fn has_index(&self) -> bool {
        self.dir.join(INDEX).is_file()
    }

    /// Files that cannot be used, whatever the configuration.
    pub fn file_problems(&self) -> &[FileProblem] {
        &self.problems
    }

    /// Bytes that the index counts and no file on disk has.
    pub fn absent_bytes(&self) -> Option<u64> {
        self.absent_bytes
    }

    /// Safetensors files of the folder that do not belong to the checkpoint.
    pub fn ignored_files(&self) -> &[String] {
        &self.ignored_files
    }

    /// All tensors of usable files, sorted by name.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The tensor with this name.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.position(name).map(|i| &self.tensors[i])
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.tensors.binary_search_by(|tensor| tensor.name().cmp(name)).ok()
    }

    /// Compares the headers with the tensors that `config` asks for.
    pub fn check(&self, config: &ModelConfig) -> LoadReport {
        let mut report = LoadReport {
            files: Arc::clone(&self.problems),
            absent_bytes: self.absent_bytes,
            ignored_files: self.ignored_files.clone(),
            ..LoadReport::default()
        };
        let mut explained = vec![false; self.tensors.len()];
        let expected = expected_tensors(config);
        for spec in &expected {
            match self.position(&spec.name) {
                Some(i) => {
                    explained[i] = true;
                    self.check_tensor(spec, &self.tensors[i], &mut explained, &mut report);
                }
                None => self.note_absent(spec, &mut report),
            }
        }
        report.expected = expected.len();

        let mut skipped = BTreeMap::new();
        for tensor in self.tensors.iter().zip(explained).filter(|(_, explained)| !explained).map(|(tensor, _)| tensor) {
            match skip_reason(config, tensor.name()) {
                Some(reason) => *skipped.entry(reason).or_insert(0) += 1,
                None => report.unexpected.push(Unexpected { name: tensor.name().to_owned(), nearest: None }),
            }
        }
        report.skipped = skipped.into_iter().map(|((pattern, why), count)| Skipped { pattern, count, why }).collect();
        report::find_nearest(&mut report.unexpected, expected.iter().map(|spec| spec.name.as_str()));
        report
    }

    fn check_tensor(&self, spec: &TensorSpec, tensor: &Tensor, explained: &mut [bool], report: &mut LoadReport) {
        report.found += 1;
        report.bytes += tensor.byte_len() as u64;
        let (name, found) = (spec.name.clone(), tensor.dtype());
        let wrong_dtype = !spec.accepts(found);
        if wrong_dtype {
            // FP8 without a scale is meaningless whatever the configuration says; with one, the scale is no surprise.
            if found == Dtype::F8E4M3 {
                match self.position(&layout::scale_name(&name)) {
                    Some(scale) => explained[scale] = true,
                    None => return report.missing_scale.push(name),
                }
            }
            let why = match (spec.role, spec.dtype) {
                (Role::Linear, Dtype::F8E4M3) => "config.json has a quantization_config for it",
                (Role::Linear, _) => "config.json has no quantization_config for it",
                (Role::Scale { .. }, Dtype::U8) => "E8M0 codes: quant_method is \"mxfp8\" in config.json",
                (Role::Scale { .. }, _) => "multipliers: quant_method is \"fp8\" in config.json",
                (Role::Router | Role::RouterBias, _) => "a rounded router sends tokens to other experts",
                _ => "as published",
            };
            report.wrong_dtype.push(WrongDtype { name: name.clone(), expected: spec.dtype, found, why });
        }
        if tensor.shape() != spec.shape {
            let (expected, found) = (spec.shape.clone(), tensor.shape().to_vec());
            match spec.role {
                // With the dtype it tells which format the scales are of.
                Role::Scale { rows, cols, block } => {
                    report.scale_grid.push(ScaleGrid { name, weight: [rows, cols], block, expected, found });
                }
                _ if wrong_dtype => (),
                _ => report.wrong_shape.push(WrongShape { name, expected, found }),
            }
        }
    }

    fn note_absent(&self, spec: &TensorSpec, report: &mut LoadReport) {
        // With the only file unusable and no index, everything is in that file.
        let nothing_readable = self.tensors.is_empty() && !self.problems.is_empty();
        if nothing_readable || self.out_of_reach.binary_search(&spec.name).is_ok() {
            report.in_unusable_files += 1;
            return;
        }
        if let Role::Scale { .. } = spec.role
            && let Some(weight) = layout::weight_of_scale(&spec.name)
            && self.tensor(weight).is_some_and(|weight| weight.dtype() == Dtype::F8E4M3)
        {
            report.missing_scale.push(weight.to_owned());
        } else {
            report.missing.push(spec.name.clone());
        }
    }

    /// The tensors that `config` asks for, by their place in the model, with the report to show.
    ///
    /// # Errors
    /// [`CheckpointError::Unusable`] if the report is not clean.
    pub fn model_tensors(&self, config: &ModelConfig) -> Result<(ModelTensors, LoadReport), CheckpointError> {
        let report = self.check(config);
        if !report.is_clean() {
            return Err(CheckpointError::Unusable(Box::new(report)));
        }
        let Ok(tensors) = ModelTensors::try_build(config, |spec| {
            let tensor = self.tensor(&spec.name).expect("a clean report has found every expected tensor");
            Ok::<_, Infallible>(tensor.clone())
        });
        Ok((tensors, report))
    }
}

/// Pattern and reason if a tensor that the model has no place for is left out on purpose.
fn skip_reason(config: &ModelConfig, name: &str) -> Option<(String, &'static str)> {
    const MTP: &str = "multi-token prediction heads are not run";
    const VISION: &str = "images and videos are not read";
    let begins_with = |patterns: &[String]| patterns.iter().find(|pattern| name.starts_with(*pattern)).cloned();
    let prefix = config.tensor_prefix;
    let mtp = [format!("{prefix}model.mtp."), format!("{prefix}mtp."), "model.mtp.".to_owned(), "mtp.".to_owned()];
    if let Some(pattern) = begins_with(&mtp) {
        return Some((format!("{pattern}*"), MTP));
    }
    // A prefix says that the checkpoint holds more than the language model.
    let vision = ["vision_tower.", "multi_modal_projector.", "patch_merge_mlp."].map(str::to_owned);
    if let Some(pattern) = begins_with(&vision).filter(|_| !prefix.is_empty()) {
        return Some((format!("{pattern}*"), VISION));
    }
    let layers = format!("{prefix}model.layers.");
    let layer: usize = name.strip_prefix(&layers)?.split('.').next()?.parse().ok()?;
    let (run, stored) = (config.num_hidden_layers, config.checkpoint_layers);
    if (run..stored).contains(&layer) {
        Some((format!("{layers}{run}..{}", stored - 1), "beyond the layers asked for"))
    } else if (stored..stored + config.mtp_layers).contains(&layer) {
        Some((format!("{layers}{layer}"), MTP))
    } else {
        None
    }
}

/// The entries of the checkpoint folder.
fn list(dir: &Path) -> Result<Listing, CheckpointError> {
    if dir.is_dir() {
        return Listing::of(dir).map_err(|source| CheckpointError::List { dir: dir.to_owned(), source });
    }
    // The parent of a bare name is the empty path, which means the current folder.
    let parent = dir.ancestors().skip(1).map(|p| if p == Path::new("") { Path::new(".") } else { p });
    let parent = parent.into_iter().find(|p| p.is_dir()).unwrap_or(Path::new("."));
    let parent = Listing::of(parent).map_err(|source| CheckpointError::List { dir: parent.to_owned(), source })?;
    Err(CheckpointError::NoFolder { dir: dir.to_owned(), parent })
}

/// The weight file of a folder without an index.
fn single_file(folder: &Listing) -> Result<&str, CheckpointError> {
    let files: Vec<&String> = folder.with_suffix(".safetensors").collect();
    let listing = || Listing { dir: folder.dir.clone(), entries: folder.entries.clone() };
    match files.as_slice() {
        [] => Err(CheckpointError::NoWeights { folder: listing() }),
        [only] => Ok(only),
        several if several.iter().any(|file| *file == SINGLE) => Ok(SINGLE),
        _ => Err(CheckpointError::NoIndex { folder: listing() }),
    }
}

/// Length and tensors of one safetensors file, whose header is checked first. The file is mapped, as [`Checkpoint::open`] says.
pub(crate) fn open_file(dir: &Path, name: &str) -> Result<(u64, Vec<Tensor>), HeaderError> {
    let mut file = File::open(dir.join(name))?;
    let entries = safetensors::read_header(&mut file)?;
    // SAFETY: the mapping is read-only, and this process never writes to the file. That nobody else changes or
    // shortens it while it is mapped is what `Checkpoint::open` and `parity::run` ask of their callers.
    let map = Arc::new(unsafe { Mmap::map(&file) }?);
    let name: Arc<str> = name.into();
    let tensors = entries.into_iter().map(|entry| Tensor::new(entry, Arc::clone(&name), Arc::clone(&map)));
    Ok((map.len() as u64, tensors.collect()))
}

/// `model.safetensors.index.json`.
#[derive(Deserialize)]
struct Index {
    metadata: Option<IndexMetadata>,
    /// File of each tensor.
    weight_map: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct IndexMetadata {
    /// Bytes of all tensors; some writers make it a float.
    total_size: Option<f64>,
}

impl Index {
    fn find(folder: &Listing) -> Result<Option<Self>, CheckpointError> {
        if !folder.entries.iter().any(|entry| entry == INDEX) {
            return Ok(None);
        }
        let path = folder.dir.join(INDEX);
        let invalid = |what: String| CheckpointError::Index { path: path.clone(), what };
        let text = std::fs::read_to_string(&path).map_err(|error| invalid(format!("cannot be read: {error}")))?;
        let index: Self = serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))?;
        if index.weight_map.is_empty() {
            return Err(invalid("`weight_map` names no tensor".to_owned()));
        }
        let plain = |file: &str| Path::new(file).components().all(|part| matches!(part, Component::Normal(_)));
        match index.weight_map.values().find(|file| file.is_empty() || !plain(file)) {
            Some(file) => {
                Err(invalid(format!("`weight_map` names the file \"{file}\", which is not below the folder")))
            }
            None => Ok(Some(index)),
        }
    }

    /// The files with the number of tensors in each.
    fn files(&self) -> BTreeMap<&str, usize> {
        let mut files = BTreeMap::new();
        for file in self.weight_map.values() {
            *files.entry(file.as_str()).or_insert(0) += 1;
        }
        files
    }

    fn total_size(&self) -> Option<u64> {
        self.metadata.as_ref()?.total_size.map(|bytes| bytes as u64)
    }
}
