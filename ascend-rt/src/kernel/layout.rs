// SPDX-License-Identifier: MIT OR Apache-2.0

//! The order, kinds and places of a kernel's parameters.

use core::fmt;
use std::borrow::Cow;

/// The bytes of one slot; every parameter begins at a multiple of it.
pub const SLOT: usize = 8;
/// The most parameters that a kernel can have.
pub const MAX_PARAMS: usize = 128;
/// The most bytes of an argument block, side data included.
pub const MAX_BYTES: usize = 64 * 1024;

/// What a parameter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArgKind {
    /// The device address of something that the kernel reads.
    In,
    /// The device address of something that the kernel writes.
    Out,
    /// The device address of something that the kernel reads and writes.
    InOut,
    /// The device address of scratch memory.
    Workspace,
    /// A device address, of what is not known: all that compiled code tells of its parameters. On the emulator it is
    /// given as a buffer, as a workspace, or as a tiling struct of any size.
    Pointer,
    /// A value of so many bytes, in the block itself.
    Scalar {
        /// Its size.
        size: usize,
    },
    /// The device address of a struct that comes with the block: the runtime moves it to the device with the launch.
    Tiling {
        /// The size of the struct.
        size: usize,
    },
}

impl ArgKind {
    /// The bytes in the block itself.
    #[must_use]
    pub const fn slot_bytes(self) -> usize {
        match self {
            Self::Scalar { size } => size.div_ceil(SLOT).saturating_mul(SLOT),
            _ => SLOT,
        }
    }

    /// The bytes that come beside the block.
    #[must_use]
    pub const fn side_bytes(self) -> usize {
        match self {
            Self::Tiling { size } => size.div_ceil(SLOT).saturating_mul(SLOT),
            _ => 0,
        }
    }

    /// Whether the slot holds the address of device memory that the caller owns.
    #[must_use]
    pub const fn is_buffer(self) -> bool {
        matches!(self, Self::In | Self::Out | Self::InOut | Self::Workspace | Self::Pointer)
    }
}

impl fmt::Display for ArgKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::In => f.write_str("input buffer"),
            Self::Out => f.write_str("output buffer"),
            Self::InOut => f.write_str("input and output buffer"),
            Self::Workspace => f.write_str("workspace"),
            Self::Pointer => f.write_str("device address"),
            Self::Scalar { size } => write!(f, "scalar of {size} bytes"),
            Self::Tiling { size } => write!(f, "tiling of {size} bytes"),
        }
    }
}

/// One parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Param {
    /// Its name, for messages.
    pub name: Cow<'static, str>,
    /// What it is.
    pub kind: ArgKind,
    /// Where its slot begins in the block.
    pub offset: usize,
}

/// Why a layout is impossible.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutError {
    /// There are too many parameters.
    TooManyParams {
        /// How many there are.
        found: usize,
    },
    /// The block with its side data is too large.
    TooLarge {
        /// The bytes it would have.
        found: usize,
    },
    /// A scalar or tiling struct has no bytes.
    Empty {
        /// The parameter.
        name: String,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyParams { found } => {
                write!(f, "the kernel has {found} parameters, expected at most {MAX_PARAMS}")
            }
            Self::TooLarge { found } => {
                write!(f, "the argument block has {found} bytes with its side data, expected at most {MAX_BYTES}")
            }
            Self::Empty { name } => write!(f, "parameter `{name}` has 0 bytes, expected at least 1"),
        }
    }
}

impl std::error::Error for LayoutError {}

/// The parameters of a kernel in the order of its source: the contract between the launcher, the device code, and the
/// twin that stands for it on the emulator.
///
/// The block is a row of slots of eight bytes. A buffer takes one slot, a scalar as many as it needs, and a tiling
/// struct one slot for the address under which the kernel finds it.
///
/// ```
/// use ascend_rt::kernel::{ArgKind, ArgLayout};
///
/// let layout = ArgLayout::new([
///     ("x", ArgKind::In),
///     ("scale", ArgKind::Scalar { size: 4 }),
///     ("y", ArgKind::Out),
///     ("tiling", ArgKind::Tiling { size: 24 }),
/// ])?;
/// assert_eq!(layout.params()[2].offset, 16);
/// assert_eq!(layout.block_bytes(), 32);
/// # Ok::<(), ascend_rt::kernel::LayoutError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ArgLayout {
    params: Vec<Param>,
    block: usize,
    side: usize,
}

impl ArgLayout {
    /// Places parameters one after the other.
    ///
    /// # Errors
    ///
    /// More than [`MAX_PARAMS`] parameters, more than [`MAX_BYTES`] bytes, or a value without bytes.
    pub fn new<N: Into<Cow<'static, str>>>(
        params: impl IntoIterator<Item = (N, ArgKind)>,
    ) -> Result<Self, LayoutError> {
        let mut layout = Self::default();
        for (name, kind) in params {
            let name = name.into();
            if let ArgKind::Scalar { size: 0 } | ArgKind::Tiling { size: 0 } = kind {
                return Err(LayoutError::Empty { name: name.into_owned() });
            }
            layout.params.push(Param { name, kind, offset: layout.block });
            layout.block = layout.block.saturating_add(kind.slot_bytes());
            layout.side = layout.side.saturating_add(kind.side_bytes());
        }
        if layout.params.len() > MAX_PARAMS {
            return Err(LayoutError::TooManyParams { found: layout.params.len() });
        }
        let bytes = layout.block.saturating_add(layout.side);
        if bytes > MAX_BYTES {
            return Err(LayoutError::TooLarge { found: bytes });
        }
        Ok(layout)
    }

    /// The parameters in order.
    #[must_use]
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// The bytes of the block without side data.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        self.block
    }

    /// The bytes of the side data.
    #[must_use]
    pub fn side_bytes(&self) -> usize {
        self.side
    }
}
