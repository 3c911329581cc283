// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a download notes beside the files: which are whole, and of which commit.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{DownloadError, Entry, at, file};

const NAME: &str = "state.json";

/// `state.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) model_id: String,
    pub(super) revision: String,
    pub(super) commit: String,
    /// Whole files by path.
    files: BTreeMap<String, Whole>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Whole {
    size: u64,
    sha256: Option<String>,
    id: String,
}

impl State {
    /// `None` if there is none that can be read: what is not noted is looked at again.
    pub(super) fn read(work: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(work.join(NAME)).ok()?).ok()
    }

    /// The state under other names; what is known of files stays true.
    pub(super) fn of(self, model_id: &str, revision: &str, commit: &str) -> Self {
        Self { model_id: model_id.into(), revision: revision.into(), commit: commit.into(), files: self.files }
    }

    /// Writes it whole, by renaming.
    pub(super) fn write(&self, work: &Path) -> Result<(), DownloadError> {
        let (path, new) = (work.join(NAME), work.join("state.json.new"));
        let text = serde_json::to_vec_pretty(self).unwrap_or_default();
        fs::write(&new, text).and_then(|()| fs::rename(&new, &path)).map_err(at(&path))
    }

    /// Notes that a file is in its place.
    pub(super) fn note(&mut self, entry: &Entry) {
        let Entry { path, size, sha256, id } = entry.clone();
        self.files.insert(path, Whole { size, sha256, id });
    }

    /// The files that are noted.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> {
        self.files.iter().map(|(path, Whole { size, sha256, id })| Entry {
            path: path.clone(),
            size: *size,
            sha256: sha256.clone(),
            id: id.clone(),
        })
    }

    /// Whether the file is in its place: it has the right length, and its content was noted or, if not, is read now.
    pub(super) fn is_in_place(&self, dir: &Path, entry: &Entry, verify: bool) -> Result<bool, DownloadError> {
        let path = dir.join(&entry.path);
        if !fs::metadata(&path).is_ok_and(|file| file.is_file() && file.len() == entry.size) {
            return Ok(false);
        }
        let known = self.files.get(&entry.path).is_some_and(|whole| whole.id == entry.id);
        match &entry.sha256 {
            Some(sha256) if verify || !known => Ok(file::sha256(&path)? == *sha256),
            // Of a file without a sum only the length is known.
            Some(_) => Ok(true),
            None => Ok(known),
        }
    }
}
