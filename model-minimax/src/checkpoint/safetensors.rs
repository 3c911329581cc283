// SPDX-License-Identifier: MIT OR Apache-2.0

//! The safetensors container: `u64` header length, JSON header, data. Only the header is read and written here.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;

use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::json;

use super::tensor::Dtype;

/// Longest header that the format allows.
const MAX_HEADER: u64 = 100_000_000;
/// Bytes of the header length.
const PREFIX: u64 = 8;

/// What is wrong with one safetensors file.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// The file cannot be opened or read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The file ends before the data that its header promises.
    #[error("is truncated, bytes short by {short_by} (has {len}, should have {needed})")]
    Truncated {
        /// Bytes that are absent.
        short_by: u64,
        /// Length of the file.
        len: u64,
        /// Length by its own header.
        needed: u64,
    },
    /// Bytes follow the data that the header describes.
    #[error("has {0} bytes after the data that its header describes")]
    TrailingBytes(u64),
    /// The first eight bytes are no plausible header length.
    #[error("is not a safetensors file: it announces a header of {0} bytes, the format allows {MAX_HEADER}")]
    HeaderTooLong(u64),
    /// The file was checked out without its content.
    #[error("is a Git LFS pointer, not the weights themselves (run: git lfs pull)")]
    LfsPointer,
    /// The header is not the JSON that the format asks for.
    #[error("has an unreadable header: {0}")]
    Json(#[from] serde_json::Error),
    /// An element type that the format does not have.
    #[error("gives tensor {tensor} the unknown dtype \"{dtype}\"")]
    UnknownDtype {
        /// The tensor.
        tensor: String,
        /// The name found.
        dtype: String,
    },
    /// The data range of a tensor does not fit its shape and element type.
    #[error("gives tensor {tensor} {found} bytes at {begin}..{end}, its {dtype} {shape:?} needs {needed}",
        begin = range.start, end = range.end,
        found = range.end as i128 - range.start as i128,
        needed = needed.map_or("an impossible number".to_owned(), |n| n.to_string()))]
    DataSize {
        /// The tensor.
        tensor: String,
        /// Its element type.
        dtype: Dtype,
        /// Its shape.
        shape: Vec<usize>,
        /// Its bytes by the header.
        range: Range<u64>,
        /// Its bytes by shape and element type.
        needed: Option<usize>,
    },
    /// Data ranges overlap or leave a hole.
    #[error("places tensor {tensor} at data offset {found}, the tensor before it ends at {expected}")]
    Gap {
        /// The tensor.
        tensor: String,
        /// Where its data should begin.
        expected: u64,
        /// Where its data begins.
        found: u64,
    },
}

/// A tensor as a file header describes it.
#[derive(Debug)]
pub(super) struct HeaderEntry {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    /// Bytes of the file, counted from its start.
    pub(super) range: Range<usize>,
}

/// Reads and checks the header of an open file: afterwards every range lies within the file and fits its shape.
pub(super) fn read_header(file: &mut File) -> Result<Vec<HeaderEntry>, HeaderError> {
    let len = file.metadata()?.len();
    let truncated = |needed: u64| HeaderError::Truncated { short_by: needed - len, len, needed };
    if len < PREFIX {
        return Err(truncated(PREFIX));
    }
    let mut prefix = [0; PREFIX as usize];
    file.read_exact(&mut prefix)?;
    if &prefix == b"version " {
        return Err(HeaderError::LfsPointer);
    }
    let header_len = u64::from_le_bytes(prefix);
    if header_len > MAX_HEADER {
        return Err(HeaderError::HeaderTooLong(header_len));
    }
    let data_start = PREFIX + header_len;
    if len < data_start {
        return Err(truncated(data_start));
    }
    let mut json = vec![0; header_len as usize];
    file.read_exact(&mut json)?;
    let Header(raw) = serde_json::from_slice(&json)?;

    let mut entries = Vec::with_capacity(raw.len());
    for (name, RawEntry { dtype, shape, data_offsets: [start, end] }) in raw {
        let Some(dtype) = Dtype::from_name(&dtype) else {
            return Err(HeaderError::UnknownDtype { tensor: name, dtype });
        };
        let needed = dtype.byte_len(&shape);
        if end.checked_sub(start).is_none_or(|bytes| usize::try_from(bytes).ok() != needed) {
            return Err(HeaderError::DataSize { tensor: name, dtype, shape, range: start..end, needed });
        }
        entries.push((start..end, HeaderEntry { name, dtype, shape, range: 0..0 }));
    }
    entries.sort_by_key(|(range, _)| (range.start, range.end));
    let mut data_len = 0;
    for (range, entry) in &entries {
        if range.start != data_len {
            return Err(HeaderError::Gap { tensor: entry.name.clone(), expected: data_len, found: range.start });
        }
        data_len = range.end;
    }
    let needed = data_start.saturating_add(data_len);
    if len < needed {
        return Err(truncated(needed));
    }
    if len > needed {
        return Err(HeaderError::TrailingBytes(len - needed));
    }
    // Every end is at most `len`, the length of a file that is about to be mapped.
    let in_file = |offset: u64| (data_start + offset) as usize;
    Ok(entries
        .into_iter()
        .map(|(range, entry)| HeaderEntry { range: in_file(range.start)..in_file(range.end), ..entry })
        .collect())
}

/// What precedes the data of a file with these tensors, whose data follows in their order without holes: the length of the
/// header and the header.
pub(crate) fn header<'a>(tensors: impl IntoIterator<Item = (&'a str, Dtype, &'a [usize])>) -> Vec<u8> {
    let mut header = json!({ "__metadata__": { "format": "pt" } });
    let mut offset = 0;
    for (name, dtype, shape) in tensors {
        // A tensor in memory or on its way to a disk has a length; anything else would be refused by a reader.
        let end = offset + dtype.byte_len(shape).unwrap_or(0);
        header[name] = json!({ "dtype": dtype.name(), "shape": shape, "data_offsets": [offset, end] });
        offset = end;
    }
    let mut header = header.to_string().into_bytes();
    // The format allows spaces at the end; with them the data begins on a cache line.
    header.resize((header.len() + PREFIX as usize).next_multiple_of(64) - PREFIX as usize, b' ');
    [(header.len() as u64).to_le_bytes().as_slice(), &header].concat()
}

#[derive(Deserialize)]
struct RawEntry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

/// The entries in file order. A map type would silently keep the last of two tensors with one name.
struct Header(Vec<(String, RawEntry)>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut names = HashSet::new();
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if !names.insert(name.clone()) {
                        return Err(A::Error::custom(format_args!("the name {name} occurs twice")));
                    }
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        let entry = map.next_value()?;
                        entries.push((name, entry));
                    }
                }
                Ok(Header(entries))
            }
        }

        deserializer.deserialize_map(Entries)
    }
}
