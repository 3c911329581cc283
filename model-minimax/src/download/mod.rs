// SPDX-License-Identifier: MIT OR Apache-2.0

//! Fetches a checkpoint from a hub (feature `download`): a repository's files into a folder, as loading wants them.
//!
//! The hub is asked once for the files of a revision with their sizes and sha256 sums; then they are fetched, several at a
//! time. What arrives is kept in `DIR/.download` under the name of its content and moved to its place by renaming when its
//! length and sum are right, so a file in its place is whole, whatever ended the run. A later run goes on where an earlier
//! one stopped. Nothing is fetched when a model is loaded: loading takes a folder.

mod client;
mod file;
mod pattern;
mod state;

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use client::{Client, Failure};
use pattern::matches;
use state::State;

/// The hub that is asked unless another is named.
pub const DEFAULT_ENDPOINT: &str = "https://huggingface.co";
/// Folder below the output folder with the state of downloads.
const WORK: &str = ".download";

/// What to fetch from where.
#[derive(Clone)]
pub struct Source {
    /// Address of the hub or of a mirror of it, such as [`DEFAULT_ENDPOINT`]; `http` or `https`.
    pub endpoint: String,
    /// The repository, `owner/name`.
    pub model_id: String,
    /// Branch, tag or commit.
    pub revision: String,
    /// Sent to the endpoint alone, never to where it redirects.
    pub token: Option<String>,
    /// A file of certificates in PEM that take the place of the built-in roots.
    pub certificates: Option<PathBuf>,
}

/// The token is a secret.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoint, model_id, revision, token, certificates } = self;
        f.debug_struct("Source")
            .field("endpoint", endpoint)
            .field("model_id", model_id)
            .field("revision", revision)
            .field("token", &token.as_ref().map(|_| "..."))
            .field("certificates", certificates)
            .finish()
    }
}

/// How to fetch it.
#[derive(Debug, Clone)]
pub struct DownloadOptions {
    /// Only files that one of these patterns matches; all if there is none. `*` stands for any characters, `/` included, `?`
    /// for one.
    pub allow: Vec<String>,
    /// No file that one of these matches.
    pub ignore: Vec<String>,
    /// Files fetched at a time.
    pub parallel: NonZeroUsize,
    /// Attempts in a row without a byte before a file is given up.
    pub retries: u32,
    /// Wait after the first attempt in vain; it doubles with each.
    pub backoff: Duration,
    /// Asks nobody and says whether the folder is whole, by what an earlier download noted.
    pub offline: bool,
    /// Computes the sums of files that are there again.
    pub verify: bool,
}

impl Default for DownloadOptions {
    /// Everything, four files at a time, five retries from half a second on.
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            ignore: Vec::new(),
            parallel: NonZeroUsize::new(4).unwrap_or(NonZeroUsize::MIN),
            retries: 5,
            backoff: Duration::from_millis(500),
            offline: false,
            verify: false,
        }
    }
}

impl DownloadOptions {
    /// The wait after `before` attempts in vain and one more.
    fn backoff_after(&self, before: u32) -> Duration {
        self.backoff * 2_u32.pow(before.min(6))
    }
}

/// What a download tells while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// What there is to do.
    Plan {
        /// Files in all.
        files: usize,
        /// Their bytes.
        bytes: u64,
        /// Bytes of files that are in place.
        present: u64,
    },
    /// A file has this many bytes now; fewer than before when a server makes it start again.
    File {
        /// Its number.
        number: usize,
        /// Its path in the repository.
        path: String,
        /// Bytes that are there.
        done: u64,
        /// Bytes in all.
        size: u64,
    },
    /// A file is in its place.
    Finished {
        /// Its number.
        number: usize,
    },
    /// An attempt was in vain.
    Waiting {
        /// Its path.
        path: String,
        /// What went wrong.
        why: String,
        /// Before the next attempt.
        wait: Duration,
    },
}

/// What a download has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Downloaded {
    /// The commit that the revision was.
    pub commit: String,
    /// Files of the folder that belong to it.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that came over the network.
    pub fetched: u64,
}

/// Why a download failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DownloadError {
    /// The repository's name cannot be one.
    #[error("model id {found:?} should be owner/name")]
    BadModelId {
        /// The name.
        found: String,
    },
    /// An address that nothing can be fetched from.
    #[error("endpoint {found:?} should begin with https:// or http://")]
    BadEndpoint {
        /// The address.
        found: String,
    },
    /// Certificates cannot be used.
    #[error("certificates of {}: {what}", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// HTTPS is not possible here.
    #[error("no TLS: {0}")]
    NoTls(String),
    /// The hub wants to know who asks, or refuses this one.
    #[error(
        "{url} answers {status}: {}",
        if *token { "the token does not give access (has its owner accepted the terms of the repository?)" }
        else { "a token is needed (--token or HF_TOKEN), or the repository does not exist" }
    )]
    Unauthorized {
        /// What was asked for.
        url: String,
        /// 401 or 403.
        status: u16,
        /// Whether a token was sent.
        token: bool,
    },
    /// There is no such repository, revision or file.
    #[error("{url} answers 404: no such repository, revision or file")]
    NotFound {
        /// What was asked for.
        url: String,
    },
    /// Too many requests.
    #[error("{url} answers 429: too many requests; try later or with a token")]
    TooManyRequests {
        /// What was asked for.
        url: String,
    },
    /// Any other status.
    #[error("{url} answers {status}")]
    Status {
        /// What was asked for.
        url: String,
        /// The status.
        status: u16,
    },
    /// The connection failed or was cut.
    #[error("{url}: {what}")]
    Network {
        /// What was asked for.
        url: String,
        /// What went wrong.
        what: String,
    },
    /// The list of files cannot be used.
    #[error("the list of files at {url} cannot be used: {what}")]
    Listing {
        /// What was asked for.
        url: String,
        /// What is wrong with it.
        what: String,
    },
    /// The repository has no file that is wanted.
    #[error("no file of {model_id} passes the patterns; it has {}", files.join(", "))]
    NothingMatches {
        /// The repository.
        model_id: String,
        /// Its files, or the first of them.
        files: Vec<String>,
    },
    /// A file has another length than the hub says.
    #[error("{path} should have {expected} bytes, the server has {found}")]
    Length {
        /// The file.
        path: String,
        /// Bytes by the list of files.
        expected: u64,
        /// Bytes by the server that has it.
        found: u64,
    },
    /// A file has another content than the hub says.
    #[error("{path} should have the sha256 {expected}, found {found}; it was removed")]
    Checksum {
        /// The file.
        path: String,
        /// By the list of files.
        expected: String,
        /// Of what came.
        found: String,
    },
    /// The disk is too full.
    #[error("{} needs {needed} more bytes, {free} are free", dir.display())]
    DiskSpace {
        /// The folder.
        dir: PathBuf,
        /// Bytes to be fetched.
        needed: u64,
        /// Bytes that may be written.
        free: u64,
    },
    /// Another download into the same folder goes on.
    #[error("another download into {} goes on", dir.display())]
    Busy {
        /// The folder.
        dir: PathBuf,
    },
    /// The folder is not what an earlier download should have made of it.
    #[error("offline, and {} is not whole: {what}", dir.display())]
    Incomplete {
        /// The folder.
        dir: PathBuf,
        /// What is missing.
        what: String,
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

fn at(path: &Path) -> impl FnOnce(io::Error) -> DownloadError {
    let path = path.to_owned();
    |source| DownloadError::Io { path, source }
}

/// A file of the repository.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    /// Where it lies, with `/`; checked to stay below the folder.
    path: String,
    size: u64,
    /// Of files in large-file storage; others have a length only.
    sha256: Option<String>,
    /// A name for this content and no other, of letters and digits.
    id: String,
}

/// Fetches the files of `source` into the folder `dir`, which is made. `progress` is called from several threads.
///
/// # Errors
/// [`DownloadError`]. Files in their place are whole all the same, and what has arrived of others is kept for the next run.
pub fn download(
    source: &Source,
    dir: &Path,
    options: &DownloadOptions,
    progress: impl Fn(Progress) + Sync,
) -> Result<Downloaded, DownloadError> {
    let is_plain = |part: &str| !part.is_empty() && !part.starts_with('.') && part.chars().all(is_name_character);
    if !source.model_id.split_once('/').is_some_and(|(owner, name)| is_plain(owner) && is_plain(name)) {
        return Err(DownloadError::BadModelId { found: source.model_id.clone() });
    }
    let wanted = |path: &str| {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, path));
        (options.allow.is_empty() || any(&options.allow)) && !any(&options.ignore)
    };
    if options.offline {
        return offline(source, dir, options, wanted);
    }
    let client = Client::new(source)?;
    let (commit, mut entries) = list(&client, options, &progress)?;
    if !entries.iter().any(|entry| wanted(&entry.path)) {
        let files = entries.into_iter().map(|entry| entry.path).take(20).collect();
        return Err(DownloadError::NothingMatches { model_id: source.model_id.clone(), files });
    }
    entries.retain(|entry| wanted(&entry.path));

    let work = dir.join(WORK);
    fs::create_dir_all(&work).map_err(at(&work))?;
    let lock_path = work.join("lock");
    let lock = File::create(&lock_path).map_err(at(&lock_path))?;
    if lock.try_lock().is_err() {
        return Err(DownloadError::Busy { dir: dir.to_owned() });
    }
    let state = State::read(&work).unwrap_or_default().of(&source.model_id, &source.revision, &commit);

    let mut missing = Vec::new();
    let mut present = 0;
    for (number, entry) in entries.iter().enumerate() {
        if state.is_in_place(dir, entry, options.verify)? {
            present += entry.size;
        } else {
            missing.push((number, entry));
        }
    }
    let bytes = entries.iter().map(|entry| entry.size).sum();
    progress(Progress::Plan { files: entries.len(), bytes, present });
    let needed: u64 = missing.iter().map(|(_, entry)| entry.size - file::kept(&work, entry)).sum();
    if let Some(free) = crate::checkpoint::free_bytes(dir).filter(|&free| free < needed) {
        return Err(DownloadError::DiskSpace { dir: dir.to_owned(), needed, free });
    }
    let fetched = fetch_all(&client, dir, &work, &commit, &entries, &missing, state, options, &progress)?;
    Ok(Downloaded { commit, files: entries.len(), bytes, fetched })
}

/// The commit and its files; asked for again as a file is.
fn list(
    client: &Client,
    options: &DownloadOptions,
    progress: &impl Fn(Progress),
) -> Result<(String, Vec<Entry>), DownloadError> {
    let mut in_vain = 0;
    loop {
        match client.list() {
            Ok(listed) => return Ok(listed),
            Err(Failure::Again(why, wait)) if in_vain < options.retries => {
                let wait = wait.unwrap_or_else(|| options.backoff_after(in_vain));
                progress(Progress::Waiting { path: "list of files".to_owned(), why: why.to_string(), wait });
                std::thread::sleep(wait);
                in_vain += 1;
            }
            Err(failure) => return Err(failure.into_error()),
        }
    }
}

fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.".contains(c)
}

/// Fetches the files of `missing` on several threads; the first failure ends them all.
#[allow(clippy::too_many_arguments, reason = "the parts of one call of `download`")]
fn fetch_all(
    client: &Client,
    dir: &Path,
    work: &Path,
    commit: &str,
    entries: &[Entry],
    missing: &[(usize, &Entry)],
    mut state: State,
    options: &DownloadOptions,
    progress: &(impl Fn(Progress) + Sync),
) -> Result<u64, DownloadError> {
    // Files that were found in place with the right sum need not be read again.
    let is_missing = |number: usize| missing.iter().any(|(other, _)| *other == number);
    for (_, entry) in entries.iter().enumerate().filter(|(number, _)| !is_missing(*number)) {
        state.note(entry);
    }
    state.write(work)?;
    let state = Mutex::new(state);
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let worker = || -> Result<u64, DownloadError> {
        let mut fetched = 0;
        while let Some(&(number, entry)) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let job = file::Job { client, dir, work, commit, entry, number, options, stop: &stop, progress };
            let done = job.fetch().and_then(|bytes| {
                let mut state = state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                state.note(entry);
                state.write(work).map(|()| bytes)
            });
            match done {
                Ok(bytes) => fetched += bytes,
                // What fails after the first failure was only told to stop.
                Err(_) if stop.swap(true, Ordering::Relaxed) => break,
                Err(error) => return Err(error),
            }
            progress(Progress::Finished { number });
        }
        Ok(fetched)
    };
    std::thread::scope(|scope| {
        let threads = options.parallel.get().min(missing.len());
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let results: Vec<_> = workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        results.into_iter().sum()
    })
}

/// Whether the folder holds what an earlier download noted, and what that is.
fn offline(
    source: &Source,
    dir: &Path,
    options: &DownloadOptions,
    wanted: impl Fn(&str) -> bool,
) -> Result<Downloaded, DownloadError> {
    let incomplete = |what: String| DownloadError::Incomplete { dir: dir.to_owned(), what };
    let state = State::read(&dir.join(WORK)).ok_or_else(|| incomplete("no download into it has begun".to_owned()))?;
    if state.model_id != source.model_id {
        return Err(incomplete(format!(
            "it was downloaded from {}, asked for was {}",
            state.model_id, source.model_id
        )));
    }
    let entries: Vec<Entry> = state.entries().filter(|entry| wanted(&entry.path)).collect();
    let mut missing = Vec::new();
    for entry in &entries {
        if !state.is_in_place(dir, entry, options.verify)? {
            missing.push(entry);
        }
    }
    if let [first, ..] = missing.as_slice() {
        let bytes: u64 = missing.iter().map(|entry| entry.size).sum();
        return Err(incomplete(format!(
            "{} files of {bytes} bytes are not in place, such as {}",
            missing.len(),
            first.path
        )));
    }
    let bytes = entries.iter().map(|entry| entry.size).sum();
    Ok(Downloaded { commit: state.commit.clone(), files: entries.len(), bytes, fetched: 0 })
}
