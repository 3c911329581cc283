// SPDX-License-Identifier: MIT OR Apache-2.0

//! Typed access to the fields of a JSON file, with errors that name file and field.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::ConfigError;

/// Accepted widths, vocabularies and context lengths.
pub(super) const SIZE: RangeInclusive<usize> = 1..=1 << 24;
/// Accepted counts of layers, heads and experts.
pub(super) const COUNT: RangeInclusive<usize> = 1..=1024;

pub(super) fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })
}

/// The fields of one JSON object, with the file that errors name.
pub(super) struct Fields<'a> {
    path: &'a Path,
    /// Where the object lies in the file: empty, or a field name and a dot.
    prefix: String,
    map: Map<String, Value>,
}

impl<'a> Fields<'a> {
    pub(super) fn parse(text: &str, path: &'a Path) -> Result<Self, ConfigError> {
        match serde_json::from_str(text) {
            Ok(map) => Ok(Self { path, prefix: String::new(), map }),
            Err(source) => Err(ConfigError::Json { path: path.to_owned(), source }),
        }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.path.to_owned()
    }

    /// The field, unless it is absent or null.
    pub(super) fn get(&self, field: &str) -> Option<&Value> {
        self.map.get(field).filter(|value| !value.is_null())
    }

    pub(super) fn full_name(&self, field: &str) -> String {
        format!("{}{field}", self.prefix)
    }

    pub(super) fn missing(&self, field: &str) -> ConfigError {
        ConfigError::MissingField { path: self.path(), field: self.full_name(field) }
    }

    pub(super) fn wrong_type(&self, field: &str, expected: &'static str, found: &Value) -> ConfigError {
        ConfigError::WrongType { path: self.path(), field: self.full_name(field), expected, found: found.to_string() }
    }

    pub(super) fn contradiction(&self, what: String) -> ConfigError {
        ConfigError::Contradiction { path: self.path(), what }
    }

    /// Fails unless the field is absent or holds what `accept` accepts.
    pub(super) fn only(
        &self,
        field: &str,
        supported: &'static str,
        accept: impl Fn(&Value) -> bool,
    ) -> Result<(), ConfigError> {
        match self.get(field) {
            Some(value) if !accept(value) => Err(ConfigError::UnsupportedValue {
                path: self.path(),
                field: self.full_name(field),
                found: value.to_string(),
                supported,
            }),
            _ => Ok(()),
        }
    }

    /// The entries of a list with one entry per layer, unless the field is absent.
    fn per_layer(&self, field: &str, layers: usize) -> Result<Option<&[Value]>, ConfigError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        let list = value.as_array().ok_or_else(|| self.wrong_type(field, "a list with one entry per layer", value))?;
        if list.len() != layers {
            let (field, entries) = (self.full_name(field), list.len());
            return Err(self.contradiction(format!("`{field}` has {entries} entries, `num_hidden_layers` is {layers}")));
        }
        Ok(Some(list))
    }

    /// Fails unless the field is absent or has `layers` entries that `accept` accepts.
    pub(super) fn only_per_layer(
        &self,
        field: &str,
        layers: usize,
        supported: &'static str,
        accept: impl Fn(&Value) -> bool,
    ) -> Result<(), ConfigError> {
        match self.per_layer(field, layers)? {
            Some(list) => self.only(field, supported, |_| list.iter().all(&accept)),
            None => Ok(()),
        }
    }

    /// One choice per layer between two values, `false` and `true`, unless the field is absent.
    pub(super) fn choice_per_layer(
        &self,
        field: &str,
        layers: usize,
        supported: &'static str,
        values: [Value; 2],
    ) -> Result<Option<Vec<bool>>, ConfigError> {
        self.only_per_layer(field, layers, supported, |value| values.contains(value))?;
        Ok(self.per_layer(field, layers)?.map(|list| list.iter().map(|value| *value == values[1]).collect()))
    }

    /// A whole number in `range`.
    pub(super) fn optional_size(
        &self,
        field: &str,
        range: RangeInclusive<usize>,
    ) -> Result<Option<usize>, ConfigError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        let found = value.as_u64().ok_or_else(|| self.wrong_type(field, "a whole number", value))?;
        match usize::try_from(found) {
            Ok(size) if range.contains(&size) => Ok(Some(size)),
            _ => Err(ConfigError::OutOfRange { path: self.path(), field: self.full_name(field), range, found }),
        }
    }

    /// A size that must be there.
    pub(super) fn size(&self, field: &str, range: RangeInclusive<usize>) -> Result<usize, ConfigError> {
        self.optional_size(field, range)?.ok_or_else(|| self.missing(field))
    }

    /// `true` or `false`.
    pub(super) fn flag(&self, field: &str) -> Result<Option<bool>, ConfigError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.wrong_type(field, "true or false", value))
    }

    /// A number above zero.
    pub(super) fn optional_positive(&self, field: &str) -> Result<Option<f64>, ConfigError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        match value.as_f64() {
            // As it is going to be used: neither zero nor infinite in F32.
            Some(number) if number as f32 > 0.0 && (number as f32).is_finite() => Ok(Some(number)),
            _ => Err(self.wrong_type(field, "a number above zero", value)),
        }
    }

    /// A number above zero that must be there.
    pub(super) fn positive(&self, field: &str) -> Result<f64, ConfigError> {
        self.optional_positive(field)?.ok_or_else(|| self.missing(field))
    }

    /// A nested object.
    pub(super) fn optional_object(&self, field: &str) -> Result<Option<Self>, ConfigError> {
        let map = match self.get(field) {
            None => return Ok(None),
            Some(Value::Object(map)) => map.clone(),
            Some(value) => return Err(self.wrong_type(field, "an object", value)),
        };
        Ok(Some(Self { path: self.path, prefix: format!("{}.", self.full_name(field)), map }))
    }

    /// A nested object; absent and null are empty.
    pub(super) fn object(&self, field: &str) -> Result<Self, ConfigError> {
        let empty = || Self { path: self.path, prefix: format!("{}.", self.full_name(field)), map: Map::new() };
        Ok(self.optional_object(field)?.unwrap_or_else(empty))
    }

    /// None, one or several token ids, as `eos_token_id` holds them.
    pub(super) fn token_ids(&self, field: &str) -> Result<Vec<i64>, ConfigError> {
        let Some(value) = self.get(field) else { return Ok(Vec::new()) };
        let ids = match value {
            Value::Array(list) => list.iter().map(Value::as_i64).collect(),
            one => one.as_i64().map(|id| vec![id]),
        };
        ids.ok_or_else(|| self.wrong_type(field, "a token id or a list of token ids", value))
    }
}
