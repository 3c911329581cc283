// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tensors in memory-mapped files, with typed access that casts in place.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use half::bf16;
use memmap2::Mmap;
use serde::{Serialize, Serializer};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::safetensors::HeaderEntry;

#[cfg(target_endian = "big")]
compile_error!("safetensors data is little-endian and used in place: big-endian machines are not supported");

/// Element types of the safetensors format. All are known, so that any file can be listed; the models here use
/// `F8E4M3`, `Bf16`, `F32`, and for the scales of MXFP8 `U8` or `F8E8M0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names of the format")]
pub enum Dtype {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F4,
    F6E2M3,
    F6E3M2,
    F8E4M3,
    F8E5M2,
    F8E8M0,
    F16,
    Bf16,
    F32,
    F64,
    C64,
}

impl Dtype {
    /// Every element type.
    pub const ALL: [Self; 20] = {
        use Dtype::*;
        [
            Bool, U8, I8, U16, I16, U32, I32, U64, I64, F4, F6E2M3, F6E3M2, F8E4M3, F8E5M2, F8E8M0, F16, Bf16, F32,
            F64, C64,
        ]
    };

    /// Name in a file header, and bits per element.
    const fn facts(self) -> (&'static str, usize) {
        match self {
            Self::Bool => ("BOOL", 8),
            Self::U8 => ("U8", 8),
            Self::I8 => ("I8", 8),
            Self::U16 => ("U16", 16),
            Self::I16 => ("I16", 16),
            Self::U32 => ("U32", 32),
            Self::I32 => ("I32", 32),
            Self::U64 => ("U64", 64),
            Self::I64 => ("I64", 64),
            Self::F4 => ("F4", 4),
            Self::F6E2M3 => ("F6_E2M3", 6),
            Self::F6E3M2 => ("F6_E3M2", 6),
            Self::F8E4M3 => ("F8_E4M3", 8),
            Self::F8E5M2 => ("F8_E5M2", 8),
            Self::F8E8M0 => ("F8_E8M0", 8),
            Self::F16 => ("F16", 16),
            Self::Bf16 => ("BF16", 16),
            Self::F32 => ("F32", 32),
            Self::F64 => ("F64", 64),
            Self::C64 => ("C64", 64),
        }
    }

    /// The type with this name in a file header.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// The name in a file header.
    pub const fn name(self) -> &'static str {
        self.facts().0
    }

    /// Bits per element.
    pub const fn bits(self) -> usize {
        self.facts().1
    }

    /// Bytes of a tensor of this shape; `None` if they are not whole or do not fit a `usize`.
    pub fn byte_len(self, shape: &[usize]) -> Option<usize> {
        let elements = shape.iter().try_fold(1_usize, |product, &dim| product.checked_mul(dim))?;
        let bits = elements.checked_mul(self.bits())?;
        bits.is_multiple_of(8).then_some(bits / 8)
    }
}

impl Serialize for Dtype {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A tensor was read as another element type than it has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("tensor {name} holds {found}, it was read as {requested}")]
pub struct ReadAsError {
    /// The tensor.
    pub name: String,
    /// The element type asked for.
    pub requested: Dtype,
    /// The element type in the file.
    pub found: Dtype,
}

/// A tensor in a memory-mapped file, row-major. Cloning shares the mapping; the file stays mapped while any of its
/// tensors is alive. The data is paged in when it is first read.
#[derive(Clone)]
pub struct Tensor {
    name: Arc<str>,
    dtype: Dtype,
    shape: Arc<[usize]>,
    file: Arc<str>,
    map: Arc<Mmap>,
    /// Bytes of the file; `read_header` has checked them against the length of the file and the shape.
    range: Range<usize>,
}

impl Tensor {
    pub(super) fn new(entry: HeaderEntry, file: Arc<str>, map: Arc<Mmap>) -> Self {
        let HeaderEntry { name, dtype, shape, range } = entry;
        Self { name: name.into(), dtype, shape: shape.into(), file, map, range }
    }

    /// Name of the file that holds it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Name in the checkpoint.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Dimensions, the slowest first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The data as stored.
    pub fn bytes(&self) -> &[u8] {
        &self.map[self.range.clone()]
    }

    /// Size of the data as stored.
    pub fn byte_len(&self) -> usize {
        self.range.len()
    }

    /// Takes the data out of resident memory: the system reads it from the file again when it is used again. A hint; where it
    /// cannot be followed nothing happens.
    pub(crate) fn release(&self) {
        // SAFETY: the mapping is one of a file, read-only and never written to through another mapping of this process. A page
        // that is dropped from it comes back with what the file holds, which is what it held (nobody changes the file, see
        // `Checkpoint::open`). So references into the mapping stay valid and see the same bytes.
        #[cfg(unix)]
        let _ = unsafe {
            self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, self.range.start, self.range.len())
        };
    }

    /// The elements of an F32 tensor; copied only if the file holds them unaligned.
    ///
    /// # Errors
    /// [`ReadAsError`] for any other element type.
    pub fn as_f32(&self) -> Result<Cow<'_, [f32]>, ReadAsError> {
        self.elements(Dtype::F32)
    }

    /// The elements of a BF16 tensor; copied only if the file holds them unaligned.
    ///
    /// # Errors
    /// [`ReadAsError`] for any other element type.
    pub fn as_bf16(&self) -> Result<Cow<'_, [bf16]>, ReadAsError> {
        self.elements(Dtype::Bf16)
    }

    /// `T` is the representation of `dtype`.
    fn elements<T>(&self, dtype: Dtype) -> Result<Cow<'_, [T]>, ReadAsError>
    where
        T: Clone + FromBytes + IntoBytes + Immutable + KnownLayout,
    {
        if self.dtype != dtype {
            return Err(ReadAsError { name: self.name().to_owned(), requested: dtype, found: self.dtype });
        }
        Ok(match <[T]>::ref_from_bytes(self.bytes()) {
            Ok(in_place) => Cow::Borrowed(in_place),
            Err(_unaligned) => {
                let mut copy = vec![T::new_zeroed(); self.byte_len() / size_of::<T>()];
                copy.as_mut_bytes().copy_from_slice(self.bytes());
                Cow::Owned(copy)
            }
        })
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {:?}", self.name, self.dtype, self.shape)
    }
}
