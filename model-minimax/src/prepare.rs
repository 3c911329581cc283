// SPDX-License-Identifier: MIT OR Apache-2.0

//! Corrects the configuration of a checkpoint, in place or in an overlay folder that links to it.
//!
//! Published configurations promise what their weights do not hold: prediction heads that were not shipped, remote code that
//! is not in the folder. This program reads them as they are; others stumble. What [`corrections`] finds is written by
//! [`overlay`] into a new folder, whose other files are links to the originals, or by [`in_place`], which keeps the original
//! as `config.json.orig` until [`restore`]. A checkpoint is validated before anything is written: its headers must hold the
//! model that the configuration describes.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::checkpoint::{Checkpoint, CheckpointError, LoadReport};
use crate::config::{ConfigError, ModelConfig};

const CONFIG: &str = "config.json";
const BACKUP: &str = "config.json.orig";
/// In an overlay: where it leads.
const MARK: &str = "overlay.json";

/// Why a checkpoint cannot be prepared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The checkpoint does not hold the model.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The place of the overlay is taken.
    #[error("{} is in the way: {what}", dir.display())]
    Occupied {
        /// The folder.
        dir: PathBuf,
        /// What it is, and what helps.
        what: &'static str,
    },
    /// An overlay in its own checkpoint would link to itself.
    #[error("the overlay {} should not lie in the checkpoint {}", overlay.display(), checkpoint.display())]
    Nested {
        /// The overlay asked for.
        overlay: PathBuf,
        /// The checkpoint.
        checkpoint: PathBuf,
    },
    /// There is nothing to restore.
    #[error("{} has no {BACKUP}: its configuration was not changed here", dir.display())]
    NoBackup {
        /// The folder.
        dir: PathBuf,
    },
    /// A file or folder cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> PrepareError {
    let path = path.to_owned();
    |source| PrepareError::Io { path, source }
}

/// A field of `config.json` that is changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Correction {
    /// Its name, with that of the object around it.
    pub field: String,
    /// What it holds.
    pub from: Value,
    /// What it should hold; `None` to remove it.
    pub to: Option<Value>,
    /// Why.
    pub why: &'static str,
}

impl fmt::Display for Correction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, from, to, why } = self;
        match to {
            Some(to) if from.is_null() => write!(f, "{field}: {to} added ({why})"),
            Some(to) => write!(f, "{field}: {to} instead of {from} ({why})"),
            None => write!(f, "{field}: removed ({why})"),
        }
    }
}

/// A checkpoint whose configuration was looked at.
#[derive(Debug)]
pub struct Prepared {
    /// The folder with the configuration to use.
    pub dir: PathBuf,
    /// What was changed; nothing for a configuration that is right.
    pub corrections: Vec<Correction>,
    /// What the checkpoint holds.
    pub report: LoadReport,
}

/// Validates the checkpoint in `dir` and says what should be changed in its configuration. Nothing is written.
///
/// # Errors
/// [`PrepareError::Config`], [`PrepareError::Checkpoint`] if it does not hold the model.
pub fn corrections(dir: &Path) -> Result<Prepared, PrepareError> {
    let (_, prepared) = corrected(dir)?;
    Ok(prepared)
}

/// Prediction heads that a configuration may promise, and what says that there are none.
const PREDICTION: [(&str, Value); 4] = [
    ("use_mtp", Value::Bool(false)),
    ("num_mtp_modules", Value::Null),
    ("mtp_transformer_layers", Value::Null),
    ("num_nextn_predict_layers", Value::Null),
];

/// The corrected configuration, and what was corrected.
fn corrected(dir: &Path) -> Result<(Value, Prepared), PrepareError> {
    let config = ModelConfig::load(dir)?;
    let checkpoint = Checkpoint::open(dir)?;
    let (_, report) = checkpoint.model_tensors(&config)?;
    let path = dir.join(CONFIG);
    let text = fs::read_to_string(&path).map_err(at(&path))?;
    let mut root: Value =
        serde_json::from_str(&text).map_err(|source| ConfigError::Json { path: path.clone(), source })?;

    let has_prediction = checkpoint.tensors().iter().any(|tensor| {
        let name = tensor.name().strip_prefix(config.tensor_prefix).unwrap_or(tensor.name());
        let layer = name.strip_prefix("model.layers.").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
        name.starts_with("mtp.") || name.starts_with("model.mtp.") || layer >= Some(config.checkpoint_layers)
    });
    let mut corrections = Vec::new();
    for parent in [None, Some("text_config")] {
        let Some(object) = object_of(&mut root, parent) else { continue };
        let mut change = |object: &mut Map<String, Value>, field: &str, to: Option<Value>, why| {
            let from = object.get(field).cloned().unwrap_or_default();
            match &to {
                Some(to) => drop(object.insert(field.to_owned(), to.clone())),
                None => drop(object.remove(field)),
            }
            let field = parent.map_or(field.to_owned(), |parent| format!("{parent}.{field}"));
            corrections.push(Correction { field, from, to, why });
        };
        if !has_prediction {
            for (field, none) in PREDICTION {
                let promises =
                    object.get(field).is_some_and(|value| *value != false && *value != 0 && !value.is_null());
                if promises {
                    let to = Some(none).filter(|none| !none.is_null());
                    change(object, field, to, "the checkpoint has no tensors of prediction heads");
                }
            }
        }
        if object.get("auto_map").is_some_and(|map| !names_only_files_of(dir, map)) {
            change(object, "auto_map", None, "the code that it names is not in the folder");
        }
    }
    if let Some(eos) = missing_eos(dir, &config)?
        && let Some(object) = object_of(&mut root, None)
    {
        object.insert("eos_token_id".to_owned(), eos.clone());
        corrections.push(Correction {
            field: "eos_token_id".to_owned(),
            from: Value::Null,
            to: Some(eos),
            why: "from generation_config.json: without it a class default takes its place",
        });
    }
    Ok((root, Prepared { dir: dir.to_owned(), corrections, report }))
}

fn object_of<'a>(root: &'a mut Value, parent: Option<&str>) -> Option<&'a mut Map<String, Value>> {
    match parent {
        None => root.as_object_mut(),
        Some(parent) => root.get_mut(parent)?.as_object_mut(),
    }
}

/// Whether every `module.Class` of an `auto_map` has its `module.py`.
fn names_only_files_of(dir: &Path, map: &Value) -> bool {
    let has_file = |value: &Value| {
        // A name may be of another repository: `owner/name--module.Class`.
        let module = value.as_str().and_then(|name| name.split_once('.')).map(|(module, _)| module);
        module.is_some_and(|module| module.contains("--") || dir.join(format!("{module}.py")).is_file())
    };
    map.as_object().is_some_and(|map| {
        map.values().all(|value| match value {
            Value::Array(values) => values.iter().filter(|value| !value.is_null()).all(has_file),
            value => has_file(value),
        })
    })
}

/// The end tokens of `generation_config.json`, if `config.json` names none.
fn missing_eos(dir: &Path, config: &ModelConfig) -> Result<Option<Value>, PrepareError> {
    if !config.eos_token_ids.is_empty() {
        return Ok(None);
    }
    let path = dir.join("generation_config.json");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(at(&path)(error)),
    };
    let generation: Value = serde_json::from_str(&text).map_err(|source| ConfigError::Json { path, source })?;
    Ok(generation.get("eos_token_id").filter(|eos| eos.is_number() || eos.is_array()).cloned())
}

/// Writes the corrected configuration of the checkpoint in `dir` into the new folder `to`, whose other entries are links to
/// the originals. `force` replaces an overlay that is there.
///
/// # Errors
/// [`PrepareError`], except `NoBackup`. [`PrepareError::Occupied`] for a folder that is not empty, or with `force` no overlay.
pub fn overlay(dir: &Path, to: &Path, force: bool) -> Result<Prepared, PrepareError> {
    let (config, prepared) = corrected(dir)?;
    let origin = fs::canonicalize(dir).map_err(at(dir))?;
    let parent = match to.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(parent).map_err(at(parent))?;
    let parent = fs::canonicalize(parent).map_err(at(parent))?;
    let place = to.file_name().map_or_else(|| parent.clone(), |name| parent.join(name));
    if place.starts_with(&origin) {
        return Err(PrepareError::Nested { overlay: to.to_owned(), checkpoint: origin });
    }
    let occupied = |what| Err(PrepareError::Occupied { dir: to.to_owned(), what });
    match fs::read_dir(to) {
        Ok(mut entries) => match (entries.next().is_none(), to.join(MARK).is_file() && is_overlay(to)?, force) {
            (true, ..) | (_, true, true) => fs::remove_dir_all(to).map_err(at(to))?,
            (_, true, false) => return occupied("an overlay, which --force replaces"),
            _ => return occupied("it is neither empty nor an overlay; choose another folder"),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => (),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return occupied("it is no folder"),
        Err(error) => return Err(at(to)(error)),
    }
    fs::create_dir(to).map_err(at(to))?;
    write_overlay(&origin, to, &config).inspect_err(|_| drop(fs::remove_dir_all(to)))?;
    Ok(Prepared { dir: to.to_owned(), ..prepared })
}

/// Whether everything in `dir` is a link or was written by [`overlay`].
fn is_overlay(dir: &Path) -> Result<bool, PrepareError> {
    for entry in fs::read_dir(dir).map_err(at(dir))? {
        let entry = entry.map_err(at(dir))?;
        let name = entry.file_name();
        let ours = name == CONFIG || name == MARK;
        if !ours && !entry.file_type().map_err(at(&entry.path()))?.is_symlink() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn write_overlay(origin: &Path, to: &Path, config: &Value) -> Result<(), PrepareError> {
    for entry in fs::read_dir(origin).map_err(at(origin))? {
        let entry = entry.map_err(at(origin))?;
        let name = entry.file_name();
        if name == CONFIG || name == BACKUP || name == MARK || name.to_string_lossy().starts_with('.') {
            continue;
        }
        let link = to.join(&name);
        link_to(&entry.path(), &link).map_err(at(&link))?;
    }
    write_json(&to.join(CONFIG), config)?;
    write_json(&to.join(MARK), &serde_json::json!({ "checkpoint": origin.to_string_lossy() }))
}

#[cfg(unix)]
fn link_to(original: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(original, link)
}

#[cfg(not(unix))]
fn link_to(original: &Path, link: &Path) -> io::Result<()> {
    // Symbolic links need a privilege there.
    fs::hard_link(original, link)
}

fn write_json(path: &Path, value: &Value) -> Result<(), PrepareError> {
    fs::write(path, format!("{value:#}\n")).map_err(at(path))
}

/// Corrects the configuration in `dir` itself. The original becomes `config.json.orig`, unless there is one from an earlier
/// time; a configuration that is right is not touched.
///
/// # Errors
/// As [`corrections`], and [`PrepareError::Io`].
pub fn in_place(dir: &Path) -> Result<Prepared, PrepareError> {
    let (config, prepared) = corrected(dir)?;
    if prepared.corrections.is_empty() {
        return Ok(prepared);
    }
    let (path, backup, new) = (dir.join(CONFIG), dir.join(BACKUP), dir.join("config.json.new"));
    if !backup.exists() {
        fs::copy(&path, &backup).map_err(at(&backup))?;
    }
    write_json(&new, &config)?;
    fs::rename(&new, &path).map_err(at(&path))?;
    Ok(prepared)
}

/// Puts the configuration back that [`in_place`] has kept.
///
/// # Errors
/// [`PrepareError::NoBackup`], [`PrepareError::Io`].
pub fn restore(dir: &Path) -> Result<PathBuf, PrepareError> {
    let (path, backup) = (dir.join(CONFIG), dir.join(BACKUP));
    match fs::rename(&backup, &path) {
        Ok(()) => Ok(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(PrepareError::NoBackup { dir: dir.to_owned() }),
        Err(error) => Err(at(&path)(error)),
    }
}
