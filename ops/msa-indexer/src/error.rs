// SPDX-License-Identifier: MIT OR Apache-2.0

use cpu_tiles::{Format, ShapeError};
use std::fmt;

/// Why a call was refused. Nothing has been written then, unless memory ran out half-way ([`Error::Tiles`]).
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A size of [`IndexerDims`](crate::IndexerDims) is zero.
    ZeroSize {
        /// The field.
        field: &'static str,
    },
    /// An array has not as many elements as its shape calls for.
    Length {
        /// The argument.
        argument: &'static str,
        /// The shape it should have.
        expected: Vec<usize>,
        /// The number of elements it has.
        found: usize,
    },
    /// An array has the wrong shape.
    Shape {
        /// The argument.
        argument: &'static str,
        /// The shape it should have.
        expected: Vec<usize>,
        /// The shape it has.
        found: Vec<usize>,
    },
    /// An array is no whole number of queries, keys or pages.
    Rows {
        /// The argument.
        argument: &'static str,
        /// The shape that its number of elements should be a multiple of.
        expected: Vec<usize>,
        /// The number of elements it has.
        found: usize,
    },
    /// The sequence has no key for the query to see.
    NoKeys,
    /// The sequence is longer than the keys there are.
    LengthBeyondKeys {
        /// The number of keys there are.
        keys: usize,
        /// The length.
        found: usize,
    },
    /// The sequence has more blocks than an id can count.
    TooManyBlocks {
        /// The number of blocks.
        found: usize,
    },
    /// A query stands at a position that has no key.
    QueryBeyondLength {
        /// The position of the first query.
        start: usize,
        /// The number of queries.
        queries: usize,
        /// The length of the sequence.
        length: usize,
    },
    /// The block table has fewer entries than the sequence has blocks.
    ShortTable {
        /// The number of blocks.
        expected: usize,
        /// The number of entries.
        found: usize,
    },
    /// An entry of the block table names no block.
    TableEntry {
        /// The entry.
        entry: usize,
        /// The number of blocks that the table chooses from.
        blocks: usize,
        /// What the entry holds.
        found: i32,
    },
    /// A packed block has the wrong shape.
    PackedShape {
        /// The block, as the collection counts them.
        block: usize,
        /// The shape `[block, head_dim]` it should have.
        expected: [usize; 2],
        /// The shape it has.
        found: [usize; 2],
    },
    /// A packed block is in a format that keys cannot have, or in another one than the first block.
    PackedFormat {
        /// The block, as the collection counts them.
        block: usize,
        /// The formats it may have.
        expected: &'static str,
        /// The format it has.
        found: Format,
    },
    /// There is no kernel for this architecture.
    #[cfg(feature = "npu")]
    Architecture {
        /// The architecture.
        found: String,
    },
    /// A size is more than the kernel can hold.
    #[cfg(feature = "npu")]
    DeviceSize {
        /// What is too large.
        what: &'static str,
        /// The most it can be.
        most: usize,
        /// What it is.
        found: usize,
    },
    /// A launch is of another kind than its plan.
    #[cfg(feature = "npu")]
    OtherPlan {
        /// The argument.
        argument: &'static str,
        /// What the plan is for.
        expected: &'static str,
    },
    /// The device failed or refused.
    #[cfg(feature = "npu")]
    Device(ascend_rt::Error),
    /// The tiles ran out of memory.
    Tiles(ShapeError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroSize { field } => write!(f, "`dims.{field}` is 0, expected at least 1"),
            Self::Length { argument, expected, found } => {
                write!(f, "`{argument}` has {found} elements, expected those of the shape {expected:?}")
            }
            Self::Shape { argument, expected, found } => {
                write!(f, "`{argument}` has shape {found:?}, expected {expected:?}")
            }
            Self::Rows { argument, expected, found } => {
                write!(f, "`{argument}` has {found} elements, expected a multiple of those of the shape {expected:?}")
            }
            Self::NoKeys => write!(f, "`length` is 0, expected at least 1, the key of the query itself"),
            Self::LengthBeyondKeys { keys, found } => {
                write!(f, "`length` is {found}, expected at most {keys}, the number of keys")
            }
            Self::TooManyBlocks { found } => {
                write!(f, "`length` makes {found} blocks, expected at most {}", i32::MAX)
            }
            Self::QueryBeyondLength { start, queries, length } => {
                write!(f, "`start` is {start} with {queries} queries, expected all of them below `length`, {length}")
            }
            Self::ShortTable { expected, found } => {
                write!(f, "`block_table` has {found} entries, expected at least {expected}, one for each block")
            }
            Self::TableEntry { entry, blocks, found } => {
                write!(f, "`block_table[{entry}]` is {found}, expected 0 or more and less than {blocks}")
            }
            Self::PackedShape { block, expected, found } => {
                write!(f, "packed block {block} has shape {found:?}, expected {expected:?}")
            }
            Self::PackedFormat { block, expected, found } => {
                write!(f, "packed block {block} is {found}, expected {expected}")
            }
            #[cfg(feature = "npu")]
            Self::Architecture { found } => {
                write!(f, "the device has the architecture {found}, expected dav-2201 or dav-3510")
            }
            #[cfg(feature = "npu")]
            Self::DeviceSize { what, most, found } => {
                write!(f, "{what}: found {found}, expected at most {most} on a device")
            }
            #[cfg(feature = "npu")]
            Self::OtherPlan { argument, expected } => {
                write!(f, "`{argument}` does not fit the plan, which is for {expected}")
            }
            #[cfg(feature = "npu")]
            Self::Device(error) => write!(f, "the device failed: {error}"),
            Self::Tiles(error) => write!(f, "the CPU tiles failed: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Tiles(error) => Some(error),
            #[cfg(feature = "npu")]
            Self::Device(error) => Some(error),
            _ => None,
        }
    }
}

impl From<ShapeError> for Error {
    fn from(error: ShapeError) -> Self {
        Self::Tiles(error)
    }
}

#[cfg(feature = "npu")]
impl From<ascend_rt::Error> for Error {
    fn from(error: ascend_rt::Error) -> Self {
        Self::Device(error)
    }
}
