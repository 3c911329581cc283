// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tokens that end a generation.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;

use super::fields::{Fields, read};
use super::{ConfigError, ModelConfig};

/// A file that can name end-of-sequence tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EosSource {
    /// `generation_config.json`.
    GenerationConfig,
    /// `config.json`.
    Config,
    /// The `eos_token` of `tokenizer_config.json`.
    Tokenizer,
}

impl fmt::Display for EosSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GenerationConfig => "generation_config.json",
            Self::Config => "config.json",
            Self::Tokenizer => "tokenizer_config.json",
        })
    }
}

/// The tokens that end a generation: the union of all sources.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StopIds {
    /// Each id with the files that name it.
    pub ids: BTreeMap<u32, Vec<EosSource>>,
    /// Ids outside the vocabulary, which can never be generated. Worth a warning: the files do not fit together.
    pub outside_vocab: Vec<(i64, EosSource)>,
}

impl StopIds {
    /// Collects the ids of `generation_config.json` in `dir` (optional), of `config`, and `tokenizer_eos`: the id that
    /// the tokenizer gives to [`tokenizer_eos_token`]. No id anywhere is allowed; a generation then runs to its limit.
    ///
    /// # Errors
    /// `Read`, `Json` or `WrongType` for a `generation_config.json` that is there but unusable.
    pub fn collect(dir: &Path, config: &ModelConfig, tokenizer_eos: Option<u32>) -> Result<Self, ConfigError> {
        let generation = optional_fields(&dir.join("generation_config.json"), |f| f.token_ids("eos_token_id"))?;
        let tokenizer: Vec<i64> = tokenizer_eos.map(i64::from).into_iter().collect();
        let mut stops = Self::default();
        for (source, ids) in [
            (EosSource::GenerationConfig, &generation.unwrap_or_default()),
            (EosSource::Config, &config.eos_token_ids),
            (EosSource::Tokenizer, &tokenizer),
        ] {
            for &id in ids {
                match u32::try_from(id) {
                    Ok(token) if (token as usize) < config.vocab_size => {
                        let sources = stops.ids.entry(token).or_default();
                        if !sources.contains(&source) {
                            sources.push(source);
                        }
                    }
                    _ => stops.outside_vocab.push((id, source)),
                }
            }
        }
        Ok(stops)
    }

    /// Whether `id` ends a generation.
    pub fn contains(&self, id: u32) -> bool {
        self.ids.contains_key(&id)
    }
}

/// The `eos_token` of `tokenizer_config.json` in `dir`, written as a string or as an object with `content`.
/// `None` if there is no such file or field.
///
/// # Errors
/// `Read`, `Json` or `WrongType` for a file that is there but unusable.
pub fn tokenizer_eos_token(dir: &Path) -> Result<Option<String>, ConfigError> {
    let token = optional_fields(&dir.join("tokenizer_config.json"), |fields| {
        let Some(value) = fields.get("eos_token") else { return Ok(None) };
        let text = value.as_str().or_else(|| value.get("content")?.as_str());
        match text {
            Some(text) => Ok(Some(text.to_owned())),
            None => Err(fields.wrong_type("eos_token", "a string or an object with `content`", value)),
        }
    })?;
    Ok(token.flatten())
}

/// What `read_fields` finds in the JSON object at `path`; `None` if the file does not exist.
fn optional_fields<T>(
    path: &Path,
    read_fields: impl FnOnce(&Fields<'_>) -> Result<T, ConfigError>,
) -> Result<Option<T>, ConfigError> {
    match read(path) {
        Err(ConfigError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(text) => read_fields(&Fields::parse(&text, path)?).map(Some),
    }
}
