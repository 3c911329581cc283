// SPDX-License-Identifier: MIT OR Apache-2.0

//! Expected results: where they are, and access to the cases of the `ops` files.
//!
//! The golden folder is vendored with this crate; its own README says how the data was made and how
//! far to trust it. A case of an operator is a set of tensors `case/name`, scalars as JSON in the
//! header, and recipes for the inputs that are too large to store. [`Case::tensor`] gives stored
//! and generated tensors alike.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::safetensors::{Dtype, Safetensors, SafetensorsError, Tensor};
use crate::splitmix::{round_to_bf16, values};

/// The golden folder: the environment variable `GOLDEN_DIR`, else the copy vendored with this
/// crate.
pub fn dir() -> PathBuf {
    std::env::var_os("GOLDEN_DIR").map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("golden"), PathBuf::from)
}

/// Opens a safetensors file of the golden folder, such as
/// `models/m27-tiny-bf16/expected.safetensors`.
///
/// # Errors
/// [`SafetensorsError`], with the full path.
pub fn open(relative: impl AsRef<Path>) -> Result<Safetensors, SafetensorsError> {
    Safetensors::open(dir().join(relative))
}

/// Why a golden case cannot be used.
#[derive(Debug)]
pub enum GoldenError {
    /// The file itself, or the dtype of one of its tensors.
    File(SafetensorsError),
    /// The file has no such case.
    NoCase {
        /// The operator, which is the name of the file.
        op: String,
        /// The case asked for.
        case: String,
        /// The cases there are.
        found: Vec<String>,
    },
    /// The case has no such tensor, neither stored nor as a recipe.
    NoTensor {
        /// The case.
        case: String,
        /// The tensor asked for.
        tensor: String,
        /// The tensors there are.
        found: Vec<String>,
    },
    /// A scalar of the case is absent or of another type.
    Scalar {
        /// The case.
        case: String,
        /// The name of the scalar.
        key: String,
        /// The type asked for.
        expected: &'static str,
        /// What the metadata holds; `null` if nothing.
        found: Value,
    },
    /// A recipe is incomplete or of an unknown kind.
    Recipe {
        /// The tensor.
        tensor: String,
        /// What is wrong.
        reason: String,
    },
    /// The generated tensor is not the one the golden data was made from.
    Checksum {
        /// The tensor.
        tensor: String,
        /// The checksum in the recipe.
        expected: String,
        /// The checksum of the generated words.
        found: String,
    },
}

impl fmt::Display for GoldenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::NoCase { op, case, found } => {
                write!(f, "golden `{op}`: no case `{case}`, only {}", found.join(", "))
            }
            Self::NoTensor { case, tensor, found } => {
                write!(f, "golden case `{case}`: no tensor `{tensor}`, only {}", found.join(", "))
            }
            Self::Scalar { case, key, expected, found } => {
                write!(f, "golden case `{case}`: `{key}`: expected {expected}, found {found}")
            }
            Self::Recipe { tensor, reason } => write!(f, "recipe of `{tensor}`: {reason}"),
            Self::Checksum { tensor, expected, found } => {
                write!(f, "recipe of `{tensor}`: checksum: expected {expected}, found {found}")
            }
        }
    }
}

impl std::error::Error for GoldenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File(error) => Some(error),
            _ => None,
        }
    }
}

impl From<SafetensorsError> for GoldenError {
    fn from(error: SafetensorsError) -> Self {
        Self::File(error)
    }
}

/// The golden file of one operator.
#[derive(Debug)]
pub struct Ops {
    op: String,
    file: Safetensors,
}

impl Ops {
    /// Opens `ops/<op>.safetensors` of the golden folder.
    ///
    /// # Errors
    /// [`GoldenError::File`].
    pub fn open(op: &str) -> Result<Self, GoldenError> {
        Ok(Self::new(op, open(format!("ops/{op}.safetensors"))?))
    }

    /// Takes a file from anywhere; tensors without a case prefix form the case `op`.
    pub fn new(op: &str, file: Safetensors) -> Self {
        Self { op: op.into(), file }
    }

    /// The file behind the cases.
    pub fn file(&self) -> &Safetensors {
        &self.file
    }

    /// The names of the cases, sorted.
    pub fn case_names(&self) -> Vec<String> {
        let stored = self.file.names().map(|name| name.split_once('/').map_or(&self.op[..], |(case, _)| case));
        let described = self.file.metadata().iter().filter(|(_, text)| scalars(text).is_some());
        let names: BTreeSet<&str> = stored.chain(described.map(|(case, _)| &case[..])).collect();
        names.into_iter().map(String::from).collect()
    }

    /// One case.
    ///
    /// # Errors
    /// [`GoldenError::NoCase`].
    pub fn case(&self, name: &str) -> Result<Case<'_>, GoldenError> {
        let found = self.case_names();
        if !found.iter().any(|case| case == name) {
            return Err(GoldenError::NoCase { op: self.op.clone(), case: name.into(), found });
        }
        let mut scalars = self.file.metadata().get(name).and_then(|text| scalars(text)).unwrap_or_default();
        let recipes = match scalars.remove("inputs") {
            Some(Value::Object(recipes)) => recipes,
            _ => Map::new(),
        };
        Ok(Case { ops: self, name: name.into(), scalars, recipes })
    }

    /// All cases, by name.
    pub fn cases(&self) -> impl Iterator<Item = Case<'_>> {
        self.case_names().into_iter().map(|name| self.case(&name).expect("the name comes from the file"))
    }
}

fn scalars(metadata: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(metadata).ok()
}

/// One case of an operator: its scalars, and its tensors, stored or generated.
#[derive(Debug)]
pub struct Case<'a> {
    ops: &'a Ops,
    name: String,
    scalars: Map<String, Value>,
    recipes: Map<String, Value>,
}

impl<'a> Case<'a> {
    /// The name of the case.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The scalars of the case as JSON, without the recipes.
    pub fn scalars(&self) -> &Map<String, Value> {
        &self.scalars
    }

    fn scalar<'s, T>(
        &'s self,
        key: &str,
        expected: &'static str,
        read: impl Fn(&'s Value) -> Option<T>,
    ) -> Result<T, GoldenError> {
        let found = self.scalars.get(key);
        found.and_then(read).ok_or_else(|| GoldenError::Scalar {
            case: self.name.clone(),
            key: key.into(),
            expected,
            found: found.cloned().unwrap_or_default(),
        })
    }

    /// A size or count among the scalars.
    ///
    /// # Errors
    /// [`GoldenError::Scalar`]; so also for the other three kinds.
    pub fn usize(&self, key: &str) -> Result<usize, GoldenError> {
        self.scalar(key, "a size", |value| value.as_u64().map(|size| size as usize))
    }

    /// A number among the scalars, rounded to F32.
    ///
    /// # Errors
    /// [`GoldenError::Scalar`].
    pub fn f32(&self, key: &str) -> Result<f32, GoldenError> {
        self.scalar(key, "a number", |value| value.as_f64().map(|number| number as f32))
    }

    /// A flag among the scalars.
    ///
    /// # Errors
    /// [`GoldenError::Scalar`].
    pub fn bool(&self, key: &str) -> Result<bool, GoldenError> {
        self.scalar(key, "a flag", Value::as_bool)
    }

    /// A word among the scalars.
    ///
    /// # Errors
    /// [`GoldenError::Scalar`].
    pub fn str(&self, key: &str) -> Result<&str, GoldenError> {
        self.scalar(key, "a string", Value::as_str)
    }

    fn stored_name(&self, tensor: &str) -> String {
        let prefixed = format!("{}/{tensor}", self.name);
        if self.name == self.ops.op && !self.ops.file.contains(&prefixed) { tensor.into() } else { prefixed }
    }

    /// The names of all tensors of the case, stored and from recipes, sorted.
    pub fn tensor_names(&self) -> Vec<String> {
        let stored = self.ops.file.names().filter_map(|full| match full.split_once('/') {
            Some((case, name)) => (case == self.name).then_some(name),
            None => (self.name == self.ops.op).then_some(full),
        });
        let names: BTreeSet<&str> = stored.chain(self.recipes.keys().map(String::as_str)).collect();
        names.into_iter().map(String::from).collect()
    }

    /// One tensor: the stored one, or the one generated from its recipe and verified by its
    /// checksum.
    ///
    /// # Errors
    /// [`GoldenError::NoTensor`], and for recipes [`GoldenError::Recipe`] and
    /// [`GoldenError::Checksum`].
    pub fn tensor(&self, name: &str) -> Result<Tensor<'a>, GoldenError> {
        let stored = self.stored_name(name);
        if self.ops.file.contains(&stored) {
            return Ok(self.ops.file.tensor(&stored)?);
        }
        match self.recipes.get(name) {
            Some(recipe) => generate(&format!("{}/{name}", self.name), recipe),
            None => {
                Err(GoldenError::NoTensor { case: self.name.clone(), tensor: name.into(), found: self.tensor_names() })
            }
        }
    }
}

fn generate(name: &str, recipe: &Value) -> Result<Tensor<'static>, GoldenError> {
    let bad = |key: &str| GoldenError::Recipe {
        tensor: name.into(),
        reason: format!("`{key}`: found {}", recipe.get(key).unwrap_or(&Value::Null)),
    };
    let text = |key: &str| recipe.get(key).and_then(Value::as_str).ok_or_else(|| bad(key));
    if text("generator")? != "splitmix-u24" {
        return Err(bad("generator"));
    }
    let seed = recipe.get("seed").and_then(Value::as_u64).ok_or_else(|| bad("seed"))?;
    let scale = recipe.get("scale").and_then(Value::as_f64).ok_or_else(|| bad("scale"))? as f32;
    let shape: Vec<usize> = recipe
        .get("shape")
        .and_then(Value::as_array)
        .and_then(|sizes| sizes.iter().map(|size| size.as_u64().map(|size| size as usize)).collect())
        .ok_or_else(|| bad("shape"))?;
    let expected = u64::from_str_radix(text("checksum")?, 16).map_err(|_| bad("checksum"))?;

    let values = values(seed, shape.iter().product(), scale);
    let (dtype, (bytes, found)) = match text("dtype")? {
        "bf16" => (Dtype::BF16, encode::<2>(values, |value| round_to_bf16(value).to_bits().into())),
        "f32" => (Dtype::F32, encode::<4>(values, f32::to_bits)),
        _ => return Err(bad("dtype")),
    };
    if found != expected {
        return Err(GoldenError::Checksum {
            tensor: name.into(),
            expected: format!("{expected:016x}"),
            found: format!("{found:016x}"),
        });
    }
    Ok(Tensor { name: name.into(), dtype, shape, bytes: bytes.into() })
}

/// The values as words of `SIZE` bytes, and the checksum: the sum of `word[i] * (i + 1)` modulo
/// 2^64.
fn encode<const SIZE: usize>(values: impl Iterator<Item = f32>, word: impl Fn(f32) -> u32) -> (Vec<u8>, u64) {
    let mut bytes = vec![0; SIZE * values.size_hint().0];
    let mut checksum = 0u64;
    for ((chunk, value), i) in bytes.as_chunks_mut::<SIZE>().0.iter_mut().zip(values).zip(1u64..) {
        let word = word(value);
        chunk.copy_from_slice(&word.to_le_bytes()[..SIZE]);
        checksum = checksum.wrapping_add(u64::from(word).wrapping_mul(i));
    }
    (bytes, checksum)
}
