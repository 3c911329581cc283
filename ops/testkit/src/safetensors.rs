// SPDX-License-Identifier: MIT OR Apache-2.0

//! A strict safetensors reader and a small writer, independent of the loaders they help to test.
//!
//! A file is an eight-byte little-endian header length, a JSON header that maps each tensor name to
//! its dtype, shape and byte range, and the data. [`Safetensors`] keeps the whole file in memory
//! and accepts it only if the ranges cover the data exactly once. [`SafetensorsBuilder`] writes
//! files, also files that lie, for tests of loaders.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use serde_json::{Map, Value, json};
use zerocopy::{Immutable, IntoBytes};

/// The longest header the format permits, in bytes.
const MAX_HEADER: u64 = 100_000_000;

/// Element type of a tensor, named as in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// One byte, 0 or 1.
    Bool,
    /// Unsigned 8-bit integer; also the published spelling of E8M0 scales.
    U8,
    /// Signed 8-bit integer.
    I8,
    /// FP8 with 4 exponent and 3 mantissa bits, without infinities.
    F8E4M3,
    /// FP8 with 5 exponent and 2 mantissa bits.
    F8E5M2,
    /// Power-of-two scale: an exponent biased by 127.
    F8E8M0,
    /// Signed 16-bit integer.
    I16,
    /// Unsigned 16-bit integer.
    U16,
    /// IEEE half precision.
    F16,
    /// The upper half of an F32.
    BF16,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 32-bit integer.
    U32,
    /// IEEE single precision.
    F32,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 64-bit integer.
    U64,
    /// IEEE double precision.
    F64,
}

impl Dtype {
    const ALL: [(Dtype, &'static str, usize); 16] = [
        (Dtype::Bool, "BOOL", 1),
        (Dtype::U8, "U8", 1),
        (Dtype::I8, "I8", 1),
        (Dtype::F8E4M3, "F8_E4M3", 1),
        (Dtype::F8E5M2, "F8_E5M2", 1),
        (Dtype::F8E8M0, "F8_E8M0", 1),
        (Dtype::I16, "I16", 2),
        (Dtype::U16, "U16", 2),
        (Dtype::F16, "F16", 2),
        (Dtype::BF16, "BF16", 2),
        (Dtype::I32, "I32", 4),
        (Dtype::U32, "U32", 4),
        (Dtype::F32, "F32", 4),
        (Dtype::I64, "I64", 8),
        (Dtype::U64, "U64", 8),
        (Dtype::F64, "F64", 8),
    ];

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|entry| entry.1 == name).map(|entry| entry.0)
    }

    fn entry(self) -> (Dtype, &'static str, usize) {
        *Self::ALL.iter().find(|entry| entry.0 == self).expect("ALL lists every variant")
    }

    /// The name used in safetensors headers.
    pub fn name(self) -> &'static str {
        self.entry().1
    }

    /// Bytes per element.
    pub fn size(self) -> usize {
        self.entry().2
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a safetensors file or one of its tensors cannot be used. `path` is the file as it was named
/// by the caller.
#[derive(Debug)]
pub enum SafetensorsError {
    /// No file at this path.
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file exists but cannot be read.
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The header promises more bytes than the file has.
    Truncated {
        /// The file.
        path: PathBuf,
        /// Bytes the whole file must have.
        expected: u64,
        /// Bytes it has.
        found: u64,
    },
    /// The header is no valid description of tensors.
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The byte range of a tensor does not have the length of its shape and dtype.
    Length {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Bytes that shape and dtype need.
        expected: u64,
        /// Bytes the range has.
        found: u64,
    },
    /// The byte range of a tensor runs backwards or leaves the data.
    OutOfRange {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Begin and end of the range.
        range: (u64, u64),
        /// Bytes of data in the file.
        available: u64,
    },
    /// Two tensors share bytes.
    Overlap {
        /// The file.
        path: PathBuf,
        /// The two tensors, the one that begins first first.
        tensors: (String, String),
    },
    /// Bytes of the data belong to no tensor.
    Uncovered {
        /// The file.
        path: PathBuf,
        /// Begin and end of the bytes.
        range: (u64, u64),
    },
    /// The file has no tensor of this name.
    NoTensor {
        /// The file.
        path: PathBuf,
        /// The name asked for.
        tensor: String,
    },
    /// A tensor was asked for as a type that it does not have.
    WrongDtype {
        /// The tensor.
        tensor: String,
        /// The dtypes the accessor takes.
        expected: &'static str,
        /// The dtype of the tensor.
        found: Dtype,
    },
}

impl fmt::Display for SafetensorsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { path } => write!(f, "{}: no such file", path.display()),
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Truncated { path, expected, found } => write!(
                f,
                "{}: truncated: expected {expected} bytes, found {found}, short by {}",
                path.display(),
                expected - found
            ),
            Self::Header { path, reason } => write!(f, "{}: bad header: {reason}", path.display()),
            Self::Length { path, tensor, expected, found } => write!(
                f,
                "{}: tensor `{tensor}`: shape and dtype need {expected} bytes, the offsets give {found}",
                path.display()
            ),
            Self::OutOfRange { path, tensor, range, available } => write!(
                f,
                "{}: tensor `{tensor}`: offsets {}..{} outside the {available} bytes of data",
                path.display(),
                range.0,
                range.1
            ),
            Self::Overlap { path, tensors } => {
                write!(f, "{}: tensors `{}` and `{}` overlap", path.display(), tensors.0, tensors.1)
            }
            Self::Uncovered { path, range } => {
                write!(f, "{}: bytes {}..{} of the data belong to no tensor", path.display(), range.0, range.1)
            }
            Self::NoTensor { path, tensor } => {
                write!(f, "{}: no tensor `{tensor}`", path.display())
            }
            Self::WrongDtype { tensor, expected, found } => {
                write!(f, "tensor `{tensor}`: expected {expected}, found {found}")
            }
        }
    }
}

impl std::error::Error for SafetensorsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// One tensor: name, dtype, shape and its little-endian bytes, row-major.
#[derive(Clone, Debug)]
pub struct Tensor<'a> {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Cow<'a, [u8]>,
}

impl Tensor<'_> {
    /// The name, with the case prefix it has in the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The sizes, outermost first; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The bytes as stored.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn wrong(&self, expected: &'static str) -> SafetensorsError {
        SafetensorsError::WrongDtype { tensor: self.name.clone(), expected, found: self.dtype }
    }

    fn elements<T, const SIZE: usize>(&self, from_bytes: impl Fn([u8; SIZE]) -> T) -> Vec<T> {
        self.bytes.as_chunks().0.iter().map(|chunk| from_bytes(*chunk)).collect()
    }

    /// The values of an F32 tensor, or those of a BF16 or F16 tensor widened, which is exact.
    ///
    /// # Errors
    /// [`SafetensorsError::WrongDtype`] for any other dtype.
    pub fn f32(&self) -> Result<Vec<f32>, SafetensorsError> {
        match self.dtype {
            Dtype::F32 => Ok(self.elements(f32::from_le_bytes)),
            Dtype::BF16 => Ok(self.elements(|bytes| bf16::from_le_bytes(bytes).to_f32())),
            Dtype::F16 => Ok(self.elements(|bytes| f16::from_le_bytes(bytes).to_f32())),
            _ => Err(self.wrong("F32, BF16 or F16")),
        }
    }

    /// The values of a BF16 tensor.
    ///
    /// # Errors
    /// [`SafetensorsError::WrongDtype`] for any other dtype.
    pub fn bf16(&self) -> Result<Vec<bf16>, SafetensorsError> {
        match self.dtype {
            Dtype::BF16 => Ok(self.elements(bf16::from_le_bytes)),
            _ => Err(self.wrong("BF16")),
        }
    }

    /// The values of a U8 or BOOL tensor, or the codes of an F8 tensor of any kind.
    ///
    /// # Errors
    /// [`SafetensorsError::WrongDtype`] for any other dtype.
    pub fn u8(&self) -> Result<Vec<u8>, SafetensorsError> {
        match self.dtype {
            Dtype::U8 | Dtype::Bool | Dtype::F8E4M3 | Dtype::F8E5M2 | Dtype::F8E8M0 => Ok(self.bytes.to_vec()),
            _ => Err(self.wrong("U8, BOOL, F8_E4M3, F8_E5M2 or F8_E8M0")),
        }
    }

    /// The values of an I32 tensor.
    ///
    /// # Errors
    /// [`SafetensorsError::WrongDtype`] for any other dtype.
    pub fn i32(&self) -> Result<Vec<i32>, SafetensorsError> {
        match self.dtype {
            Dtype::I32 => Ok(self.elements(i32::from_le_bytes)),
            _ => Err(self.wrong("I32")),
        }
    }

    /// The values of an I64 tensor.
    ///
    /// # Errors
    /// [`SafetensorsError::WrongDtype`] for any other dtype.
    pub fn i64(&self) -> Result<Vec<i64>, SafetensorsError> {
        match self.dtype {
            Dtype::I64 => Ok(self.elements(i64::from_le_bytes)),
            _ => Err(self.wrong("I64")),
        }
    }
}

#[derive(Debug)]
struct Entry {
    dtype: Dtype,
    shape: Vec<usize>,
    begin: u64,
    end: u64,
}

/// A safetensors file in memory, checked as a whole.
#[derive(Debug)]
pub struct Safetensors {
    path: PathBuf,
    metadata: BTreeMap<String, String>,
    entries: BTreeMap<String, Entry>,
    bytes: Vec<u8>,
    data_begin: usize,
}

impl Safetensors {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// Every variant of [`SafetensorsError`] that concerns a file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SafetensorsError> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => SafetensorsError::Missing { path: path.into() },
            _ => SafetensorsError::Io { path: path.into(), source },
        })?;
        Self::parse(path, bytes)
    }

    /// Checks the bytes of a file; `path` only names them in errors.
    ///
    /// A file whose tensors would cover its data exactly, were there more of it, is
    /// [`SafetensorsError::Truncated`].
    ///
    /// # Errors
    /// [`SafetensorsError`]: `Truncated`, `Header`, `Length`, `OutOfRange`, `Overlap` or
    /// `Uncovered`.
    pub fn parse(path: impl Into<PathBuf>, bytes: Vec<u8>) -> Result<Self, SafetensorsError> {
        let path = path.into();
        let found = bytes.len() as u64;
        let truncated = |expected| SafetensorsError::Truncated { path: path.clone(), expected, found };
        let bad_header = |reason: String| SafetensorsError::Header { path: path.clone(), reason };

        let header_len = u64::from_le_bytes(*bytes.first_chunk().ok_or_else(|| truncated(8))?);
        if header_len > MAX_HEADER {
            return Err(bad_header(format!("length {header_len} exceeds the limit of {MAX_HEADER} bytes")));
        }
        let data_begin = 8 + header_len as usize;
        let header = bytes.get(8..data_begin).ok_or_else(|| truncated(8 + header_len))?;
        let (metadata, entries) = parse_header(header).map_err(&bad_header)?;

        for (name, entry) in &entries {
            let expected = entry.shape.iter().try_fold(entry.dtype.size() as u64, |n, &d| n.checked_mul(d as u64));
            let expected = expected.ok_or_else(|| bad_header(format!("tensor `{name}`: its size exceeds 64 bits")))?;
            match entry.end.checked_sub(entry.begin) {
                Some(length) if length == expected => {}
                Some(length) => {
                    return Err(SafetensorsError::Length { path, tensor: name.clone(), expected, found: length });
                }
                None => return Err(out_of_range(&path, name, entry, found - data_begin as u64)),
            }
        }
        check_coverage(&path, &entries, data_begin as u64, found)?;
        Ok(Self { path, metadata, entries, bytes, data_begin })
    }

    /// The file, as named by the caller.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The free-form strings of the header (`__metadata__`).
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// The names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Whether there is a tensor of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// One tensor.
    ///
    /// # Errors
    /// [`SafetensorsError::NoTensor`].
    pub fn tensor(&self, name: &str) -> Result<Tensor<'_>, SafetensorsError> {
        let entry = self
            .entries
            .get(name)
            .ok_or_else(|| SafetensorsError::NoTensor { path: self.path.clone(), tensor: name.into() })?;
        let range = self.data_begin + entry.begin as usize..self.data_begin + entry.end as usize;
        Ok(Tensor {
            name: name.into(),
            dtype: entry.dtype,
            shape: entry.shape.clone(),
            bytes: Cow::Borrowed(&self.bytes[range]),
        })
    }

    /// A builder that holds everything in this file, in the order of its data.
    pub fn to_builder(&self) -> SafetensorsBuilder {
        let mut names: Vec<_> = self.entries.iter().collect();
        names.sort_by_key(|(_, entry)| entry.begin);
        let mut builder = SafetensorsBuilder { metadata: self.metadata.clone(), tensors: Vec::new() };
        for (name, _) in names {
            let Tensor { name, dtype, shape, bytes } = self.tensor(name).expect("the name comes from the file");
            builder.tensors.push(Tensor { name, dtype, shape, bytes: bytes.into_owned().into() });
        }
        builder
    }
}

type Header = (BTreeMap<String, String>, BTreeMap<String, Entry>);

fn parse_header(header: &[u8]) -> Result<Header, String> {
    let header: Map<String, Value> = serde_json::from_slice(header).map_err(|error| error.to_string())?;
    let mut metadata = BTreeMap::new();
    let mut entries = BTreeMap::new();
    for (name, value) in header {
        if name == "__metadata__" {
            metadata = serde_json::from_value(value).map_err(|error| format!("`__metadata__`: {error}"))?;
            continue;
        }
        let field = |key: &str| value.get(key).ok_or_else(|| format!("tensor `{name}`: no `{key}`"));
        let numbers = |key: &str| -> Result<Vec<u64>, String> {
            field(key)?
                .as_array()
                .and_then(|list| list.iter().map(Value::as_u64).collect())
                .ok_or_else(|| format!("tensor `{name}`: `{key}` is no list of sizes"))
        };
        let dtype = field("dtype")?;
        let dtype = dtype.as_str().and_then(Dtype::from_name);
        let dtype = dtype.ok_or_else(|| format!("tensor `{name}`: unknown dtype {}", value["dtype"]))?;
        let shape = numbers("shape")?.into_iter().map(|size| size as usize).collect();
        let [begin, end] = numbers("data_offsets")?[..] else {
            return Err(format!("tensor `{name}`: `data_offsets` is no pair"));
        };
        entries.insert(name, Entry { dtype, shape, begin, end });
    }
    Ok((metadata, entries))
}

fn out_of_range(path: &Path, name: &str, entry: &Entry, available: u64) -> SafetensorsError {
    let range = (entry.begin, entry.end);
    SafetensorsError::OutOfRange { path: path.into(), tensor: name.into(), range, available }
}

/// Checks that the ranges, each already known to have the right length, cover the data exactly
/// once.
fn check_coverage(
    path: &Path,
    entries: &BTreeMap<String, Entry>,
    data_begin: u64,
    found: u64,
) -> Result<(), SafetensorsError> {
    let available = found - data_begin;
    let mut sorted: Vec<_> = entries.iter().collect();
    sorted.sort_by_key(|(_, entry)| (entry.begin, entry.end));
    let tiles = sorted.iter().try_fold(0, |end, (_, entry)| (entry.begin == end).then_some(entry.end));
    if let Some(end) = tiles.filter(|&end| end > available) {
        return Err(SafetensorsError::Truncated { path: path.into(), expected: data_begin.saturating_add(end), found });
    }
    if let Some((name, entry)) = sorted.iter().find(|(_, entry)| entry.end > available) {
        return Err(out_of_range(path, name, entry, available));
    }
    let mut covered = 0;
    let mut last = "";
    for (name, entry) in sorted {
        if entry.begin < covered && entry.end > entry.begin {
            return Err(SafetensorsError::Overlap { path: path.into(), tensors: (last.into(), name.clone()) });
        }
        if entry.begin > covered {
            return Err(SafetensorsError::Uncovered { path: path.into(), range: (covered, entry.begin) });
        }
        if entry.end > covered {
            covered = entry.end;
            last = name;
        }
    }
    if covered < available {
        return Err(SafetensorsError::Uncovered { path: path.into(), range: (covered, available) });
    }
    Ok(())
}

/// Makes a safetensors file. Names, sizes and values are written as given, unchecked: a test may
/// want a file that lies.
///
/// ```
/// use op_testkit::safetensors::{Dtype, Safetensors, SafetensorsBuilder};
///
/// let mut builder = SafetensorsBuilder::new();
/// builder.metadata("format", "pt").add("scale", Dtype::F32, &[2], &[0.5f32, 2.0][..]);
/// let file = Safetensors::parse("memory", builder.to_bytes())?;
/// assert_eq!(file.tensor("scale")?.f32()?, [0.5, 2.0]);
/// # Ok::<(), op_testkit::safetensors::SafetensorsError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct SafetensorsBuilder {
    metadata: BTreeMap<String, String>,
    tensors: Vec<Tensor<'static>>,
}

impl SafetensorsBuilder {
    /// A file without tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets one string of `__metadata__`.
    pub fn metadata(&mut self, key: &str, value: &str) -> &mut Self {
        self.metadata.insert(key.into(), value.into());
        self
    }

    /// Adds a tensor, in place of an earlier one of the same name. `values` are its bytes or a
    /// slice of numbers in the machine's byte order, which must be little-endian.
    pub fn add(
        &mut self,
        name: &str,
        dtype: Dtype,
        shape: &[usize],
        values: &(impl IntoBytes + Immutable + ?Sized),
    ) -> &mut Self {
        let bytes = values.as_bytes().to_vec().into();
        let tensor = Tensor { name: name.into(), dtype, shape: shape.into(), bytes };
        match self.tensors.iter_mut().find(|other| other.name == name) {
            Some(old) => *old = tensor,
            None => self.tensors.push(tensor),
        }
        self
    }

    /// Takes a tensor out; false if there is none of this name.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.tensors.len();
        self.tensors.retain(|tensor| tensor.name != name);
        self.tensors.len() < before
    }

    /// The bytes of the file, tensors in the order in which they were added, data aligned to eight
    /// bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut header = Map::new();
        if !self.metadata.is_empty() {
            header.insert("__metadata__".into(), json!(self.metadata));
        }
        let mut end = 0;
        for tensor in &self.tensors {
            let begin = end;
            end += tensor.bytes.len();
            let entry = json!({"dtype": tensor.dtype.name(), "shape": tensor.shape, "data_offsets": [begin, end]});
            header.insert(tensor.name.clone(), entry);
        }
        let mut header = Value::Object(header).to_string();
        header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(8) - header.len()));
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        for tensor in &self.tensors {
            bytes.extend_from_slice(&tensor.bytes);
        }
        bytes
    }

    /// Writes the file.
    ///
    /// # Errors
    /// Those of [`std::fs::write`].
    pub fn write(&self, path: impl AsRef<Path>) -> io::Result<()> {
        std::fs::write(path, self.to_bytes())
    }
}
