// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::Variant;

/// What is wrong with a configuration file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not JSON, or not a JSON object.
    #[error("{} is not a JSON object: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Where parsing stopped.
        source: serde_json::Error,
    },
    /// A field that has no safe default is absent.
    #[error("{} has no field {field}", path.display())]
    MissingField {
        /// The file.
        path: PathBuf,
        /// The field, with its other spellings.
        field: String,
    },
    /// A field holds another kind of value.
    #[error("{}: `{field}` should be {expected}, found {found}", path.display())]
    WrongType {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// What the field should hold.
        expected: &'static str,
        /// The value as JSON.
        found: String,
    },
    /// A size is zero or implausibly large.
    #[error("{}: `{field}` should be between {} and {}, found {found}", path.display(), range.start(), range.end())]
    OutOfRange {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// The accepted values.
        range: RangeInclusive<usize>,
        /// The value.
        found: u64,
    },
    /// Two fields cannot both be right.
    #[error("{}: {what}", path.display())]
    Contradiction {
        /// The file.
        path: PathBuf,
        /// The fields with their values.
        what: String,
    },
    /// A field asks for something that this crate does not implement.
    #[error("{}: `{field}` is {found}, supported is {supported}", path.display())]
    UnsupportedValue {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// The value as JSON.
        found: String,
        /// What would be accepted.
        supported: &'static str,
    },
    /// `model_type` names another family of models.
    #[error("{}: `model_type` is {found}, known are \"minimax_m2\" (MiniMax-M2.7) and \"minimax_m3_vl\" (MiniMax-M3)", path.display())]
    UnknownModelType {
        /// The file.
        path: PathBuf,
        /// The value as JSON.
        found: String,
    },
    /// A variant name that nothing is known about.
    #[error("unknown variant \"{found}\"; known are \"m27\" ({}) and \"m3\" ({})", Variant::M27, Variant::M3)]
    UnknownVariant {
        /// The name.
        found: String,
    },
    /// More or fewer layers asked for than the checkpoint has.
    #[error("max layers should be between 1 and {available} (the layers of the checkpoint), found {requested}")]
    MaxLayers {
        /// The layers asked for.
        requested: usize,
        /// The layers of the checkpoint.
        available: usize,
    },
}
