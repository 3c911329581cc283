// SPDX-License-Identifier: MIT OR Apache-2.0

//! Synthetic checkpoints: complete folders of MiniMax-M2.7 and MiniMax-M3 (its language model) made from a seed, for
//! benches and tests without a download.
//!
//! The files, names and dtypes are those of the published checkpoints; weights are FP8 blocks (M2.7) or MXFP8 (M3) unless
//! asked otherwise. Every value is a function of the seed, the tensor's name and the element's position, so a spec always
//! gives the same bytes on one machine, whatever the number of threads. Values are drawn like a trained layer's: roughly
//! normal, with variances that keep activations near one, FP8 codes that use the whole range of their block, routers that
//! spread the tokens, index heads that tell the blocks of keys apart. The text that such a model writes is noise.
//!
//! The tokenizer has 576 entries, 512 of them text. The vocabulary may be larger; then the rest of its rows is padding.
//! The output head is zero for padding, special and end tokens, so that a greedy run produces text tokens and never
//! ends before its limit.

mod spec;
mod values;

use std::fs::{self, File};
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use serde_json::{Map, Value, json};

use super::{Checkpoint, TensorSpec, expected_tensors};
use crate::config::{ConfigError, ModelConfig, Variant};
use spec::pretty;
pub use spec::{SpecError, SyntheticSpec};
use values::Generator;

/// Seed of a synthetic checkpoint whose spec names none.
pub const SEED: u64 = 27;
/// Changes whenever the same spec would give other files; part of the stamp.
const GENERATOR: u32 = 2;

const STAMP: &str = "synthetic.json";
/// A file holds about this much, and a checkpoint has at least about this many files, unless [`CreateOptions`] say otherwise.
const SHARD_BYTES: u64 = 256 << 20;
const MIN_SHARDS: u64 = 4;
/// Bytes made and written at a time.
const CHUNK: usize = 1 << 22;

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
        /// The folder that it would lie in.
        dir: PathBuf,
        /// Bytes to be written.
        needed: u64,
        /// Bytes that may be written.
        free: u64,
    },
    /// The place of a new folder is taken.
    #[error("{} is in the way: {what}", dir.display())]
    Occupied {
        /// The folder or file.
        dir: PathBuf,
        /// What it is, and what helps.
        what: &'static str,
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
    let written = plan(spec, None)
        .and_then(|shards| write(spec, &shards, &partial, cache_dir, progress))
        .and_then(|()| fs::rename(&partial, &dir).map_err(at(&dir)));
    // The error is worth more than the folder that could not be removed; the next run tries again.
    written.inspect_err(|_| drop(fs::remove_dir_all(&partial)))?;
    Ok(dir)
}

/// How [`create`] writes.
#[derive(Debug, Clone, Copy, Default)]
pub struct CreateOptions {
    /// Bytes that a file of weights holds at most, unless a single tensor is larger. `None`: 256 MiB, or less for a
    /// checkpoint that would have fewer than four files.
    pub shard_bytes: Option<NonZeroU64>,
    /// Whether a synthetic checkpoint that lies at the place is replaced, and what an interrupted run left beside it removed.
    pub replace: bool,
}

/// What [`create`] has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Created {
    /// Files of weights.
    pub files: usize,
    /// Tensors.
    pub tensors: usize,
    /// Bytes of all tensors.
    pub bytes: u64,
}

/// Writes the synthetic checkpoint `spec` into the new folder `dir`; the folders above it are made.
///
/// Files are streamed: memory is a few megabytes per core, whatever the size. `progress` is told the bytes written and the
/// bytes in all. The folder appears whole, by renaming `DIR.partial`; a run that fails removes that, a killed one leaves it.
///
/// # Errors
/// [`SyntheticError`], except `NoCacheDir`. [`SyntheticError::Occupied`] if `dir` or `DIR.partial` exists and is not an empty
/// folder, or with [`CreateOptions::replace`] not a synthetic checkpoint.
pub fn create(
    spec: &SyntheticSpec,
    dir: &Path,
    options: &CreateOptions,
    progress: impl FnMut(u64, u64),
) -> Result<Created, SyntheticError> {
    let parent = match dir.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(parent).map_err(at(parent))?;
    let mut partial = dir.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let place = Place::of(dir)?;
    let leftover = Place::of(&partial)?;
    let occupied = |dir: &Path, what| Err(SyntheticError::Occupied { dir: dir.to_owned(), what });
    match place {
        Place::Free | Place::Empty => (),
        Place::Synthetic { whole: true } if options.replace => (),
        Place::Synthetic { whole: true } => return occupied(dir, "a synthetic checkpoint, which --force replaces"),
        _ => return occupied(dir, "it is neither empty nor a synthetic checkpoint; choose another folder"),
    }
    match leftover {
        Place::Free => (),
        Place::Empty | Place::Synthetic { .. } if options.replace => {
            fs::remove_dir_all(&partial).map_err(at(&partial))?;
        }
        Place::Empty | Place::Synthetic { .. } => {
            return occupied(
                &partial,
                "what an interrupted run has left (or a run that still goes on), which --force removes",
            );
        }
        Place::Other => {
            return occupied(&partial, "it is not what a run would have left; remove it or choose another folder");
        }
    }
    let shards = plan(spec, options.shard_bytes)?;
    write(spec, &shards, &partial, parent, progress)
        .and_then(|()| match place {
            // Until here a failure leaves what is replaced as it was.
            Place::Synthetic { .. } | Place::Empty => fs::remove_dir_all(dir).map_err(at(dir)),
            _ => Ok(()),
        })
        .and_then(|()| fs::rename(&partial, dir).map_err(at(dir)))
        .inspect_err(|_| drop(fs::remove_dir_all(&partial)))?;
    Ok(Created {
        files: shards.len(),
        tensors: shards.iter().map(|shard| shard.tensors.len()).sum(),
        bytes: shards.iter().map(|shard| shard.bytes).sum(),
    })
}

/// What lies where a folder shall be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Free,
    Empty,
    /// A folder with nothing but files of a synthetic checkpoint; `whole` if it says so itself.
    Synthetic {
        whole: bool,
    },
    Other,
}

impl Place {
    fn of(path: &Path) -> Result<Self, SyntheticError> {
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Free),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(Self::Other),
            Err(error) => return Err(at(path)(error)),
        };
        let (mut empty, mut whole) = (true, false);
        for entry in entries {
            let name = entry.map_err(at(path))?.file_name();
            let Some(name) = name.to_str() else { return Ok(Self::Other) };
            let weights = name.starts_with("model-") && name.ends_with(".safetensors");
            if !weights && !spec::COMPANIONS.contains(&name) && ![super::INDEX, STAMP].contains(&name) {
                return Ok(Self::Other);
            }
            empty = false;
            whole |= name == STAMP;
        }
        Ok(if empty { Self::Empty } else { Self::Synthetic { whole } })
    }
}

/// Whether `dir` holds this checkpoint, by its stamp and the headers of its files.
fn is_whole(spec: &SyntheticSpec, dir: &Path) -> bool {
    fs::read_to_string(dir.join(STAMP)).is_ok_and(|stamp| stamp == spec.stamp())
        && ModelConfig::load(dir)
            .is_ok_and(|config| Checkpoint::open(dir).is_ok_and(|checkpoint| checkpoint.check(&config).is_clean()))
}

/// Bytes that this user may still write below `dir`, where the system tells.
pub(crate) fn free_bytes(dir: &Path) -> Option<u64> {
    #[cfg(unix)]
    let free = rustix::fs::statvfs(dir).ok().map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    #[cfg(not(unix))]
    let free = None;
    free
}

/// Writes all files into the new folder `dir`.
fn write(
    spec: &SyntheticSpec,
    shards: &[Shard],
    dir: &Path,
    parent: &Path,
    progress: impl FnMut(u64, u64),
) -> Result<(), SyntheticError> {
    let total = shards.iter().map(|shard| shard.bytes).sum();
    if let Some(free) = free_bytes(parent).filter(|&free| free < total) {
        return Err(SyntheticError::DiskSpace { spec: spec.clone(), dir: parent.to_owned(), needed: total, free });
    }
    fs::create_dir(dir).map_err(at(dir))?;
    let save = |name: &str, text: &str| {
        let path = dir.join(name);
        fs::write(&path, text).map_err(at(&path))
    };
    for (name, text) in spec.companions() {
        save(name, &text)?;
    }
    let generator = Generator::new(&spec.config()?, spec.seed());
    write_shards(&generator, shards, dir, total, progress)?;
    let weight_map: Map<String, Value> = (shards.iter())
        .flat_map(|shard| shard.tensors.iter().map(|tensor| (tensor.name.clone(), shard.name.as_str().into())))
        .collect();
    let index = json!({ "metadata": { "total_size": total }, "weight_map": weight_map });
    save(super::INDEX, &pretty(&index))?;
    save(STAMP, &spec.stamp())
}

/// The tensors of one file, in the order of their data.
#[derive(Default)]
struct Shard {
    name: String,
    tensors: Vec<TensorSpec>,
    bytes: u64,
}

fn byte_len(tensor: &TensorSpec) -> usize {
    tensor.dtype.byte_len(&tensor.shape).expect("ModelConfig limits the sizes")
}

/// The files of weights, none of more than `limit` bytes unless one tensor is.
fn plan(spec: &SyntheticSpec, limit: Option<NonZeroU64>) -> Result<Vec<Shard>, SyntheticError> {
    let config = spec.config()?;
    let tensors = expected_tensors(&config);
    let total: u64 = tensors.iter().map(|tensor| byte_len(tensor) as u64).sum();
    let limit = limit.map_or(SHARD_BYTES.min(total.div_ceil(MIN_SHARDS)), NonZeroU64::get);
    let mut shards = vec![Shard::default()];
    for tensor in tensors {
        let bytes = byte_len(&tensor) as u64;
        if shards.last().is_some_and(|shard| shard.bytes > 0 && shard.bytes + bytes > limit) {
            shards.push(Shard::default());
        }
        if let Some(shard) = shards.last_mut() {
            shard.tensors.push(tensor);
            shard.bytes += bytes;
        }
    }
    // Numbered as published.
    let first = match config.variant {
        Variant::M27 => 0,
        Variant::M3 => 1,
    };
    let count = shards.len();
    for (number, shard) in (first..).zip(&mut shards) {
        shard.name = format!("model-{number:05}-of-{count:05}.safetensors");
        // Wide elements first: every tensor is then aligned to its element.
        shard.tensors.sort_by_key(|tensor| std::cmp::Reverse(tensor.dtype.bits()));
    }
    Ok(shards)
}

/// Writes the files on all cores.
fn write_shards(
    generator: &Generator,
    shards: &[Shard],
    dir: &Path,
    total: u64,
    mut progress: impl FnMut(u64, u64),
) -> Result<(), SyntheticError> {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(shards.len());
    let work = |written: mpsc::Sender<u64>| {
        while let Some(shard) = shards.get(next.fetch_add(1, Ordering::Relaxed)) {
            let path = dir.join(&shard.name);
            if let Err(source) = write_shard(generator, shard, &path, &written) {
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
    let tensors = shard.tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.dtype, tensor.shape.as_slice()));
    let mut file = File::create_new(path)?;
    file.write_all(&super::safetensors::header(tensors))?;
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
