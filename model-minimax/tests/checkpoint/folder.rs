// SPDX-License-Identifier: MIT OR Apache-2.0

//! A copy of a golden checkpoint that a test may damage.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use model_minimax::checkpoint::{Checkpoint, CheckpointError, LoadReport};
use model_minimax::config::ModelConfig;
use op_testkit::golden;
use op_testkit::safetensors::{Safetensors, SafetensorsBuilder};
use serde_json::Value;

use crate::scratch::Scratch;

pub(super) const SHARD_0: &str = "model-00000-of-00002.safetensors";
pub(super) const SHARD_1: &str = "model-00001-of-00002.safetensors";
pub(super) const M3_SHARD_1: &str = "model-00001-of-00002.safetensors";
pub(super) const M3_SHARD_2: &str = "model-00002-of-00002.safetensors";
pub(super) const SINGLE: &str = "model.safetensors";
pub(super) const INDEX: &str = "model.safetensors.index.json";

pub(super) struct Folder(Scratch);

impl Folder {
    /// Two shards with an index.
    pub(super) fn fp8() -> Self {
        Self::copy("m27-tiny-fp8", &["config.json", INDEX, SHARD_0, SHARD_1])
    }

    /// One file without an index.
    pub(super) fn bf16() -> Self {
        Self::copy("m27-tiny-bf16", &["config.json", SINGLE])
    }

    /// MiniMax-M3: two shards with an index, numbered from one.
    pub(super) fn m3(model: &str) -> Self {
        Self::copy(model, &["config.json", INDEX, M3_SHARD_1, M3_SHARD_2])
    }

    fn copy(model: &str, files: &[&str]) -> Self {
        let folder = Self(Scratch::new());
        for file in files {
            fs::copy(golden::dir().join("models").join(model).join(file), folder.file(file)).unwrap();
        }
        folder
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Writes a weight file again with other content.
    pub(super) fn edit(&self, file: &str, change: impl FnOnce(&mut SafetensorsBuilder)) {
        let path = self.file(file);
        let mut builder = Safetensors::open(&path).unwrap().to_builder();
        change(&mut builder);
        // A new file: the old one may be mapped.
        fs::remove_file(&path).unwrap();
        builder.write(&path).unwrap();
    }

    pub(super) fn edit_json(&self, file: &str, change: impl FnOnce(&mut Value)) {
        let path = self.file(file);
        let mut value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut value);
        fs::write(&path, value.to_string()).unwrap();
    }

    /// Takes bytes off the end of a file.
    pub(super) fn cut(&self, file: &str, bytes: u64) {
        let file = File::options().write(true).open(self.file(file)).unwrap();
        file.set_len(file.metadata().unwrap().len() - bytes).unwrap();
    }

    pub(super) fn config(&self) -> ModelConfig {
        ModelConfig::load(self.path()).unwrap()
    }

    /// The report of a checkpoint that can be used.
    pub(super) fn clean_report(&self) -> LoadReport {
        let checkpoint = Checkpoint::open(self.path()).unwrap();
        checkpoint.model_tensors(&self.config()).unwrap().1
    }

    /// The report of a checkpoint that cannot be used, with the error message.
    pub(super) fn bad_report(&self) -> (LoadReport, String) {
        let checkpoint = Checkpoint::open(self.path()).unwrap();
        let error = checkpoint.model_tensors(&self.config()).unwrap_err();
        let message = error.to_string();
        match error {
            CheckpointError::Unusable(report) => (*report, message),
            other => panic!("not a report: {other}"),
        }
    }
}
