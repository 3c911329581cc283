// SPDX-License-Identifier: MIT OR Apache-2.0

use cpu_tiles::ShapeError;
use std::fmt;

/// Where an id stands in `block_ids`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The batch entry.
    pub batch: usize,
    /// The KV head; `None` where all KV heads share the ids.
    pub kv_head: Option<usize>,
    /// The place in the list.
    pub slot: usize,
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { batch, kv_head, slot } = self;
        match kv_head {
            Some(kv_head) => write!(f, "batch entry {batch}, KV head {kv_head}, slot {slot}"),
            None => write!(f, "batch entry {batch}, slot {slot}"),
        }
    }
}

/// Why a call was refused. Nothing has been written then, unless memory ran out half-way ([`Error::Tiles`]).
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A size of [`DecodeDims`](crate::DecodeDims) is zero.
    ZeroSize {
        /// The field.
        field: &'static str,
    },
    /// The query heads cannot be shared out evenly among the KV heads.
    Heads {
        /// The number of KV heads.
        kv_heads: usize,
        /// The number of query heads.
        found: usize,
    },
    /// The scale of the scores is not a finite number.
    Scale {
        /// The scale.
        found: f32,
    },
    /// The keys of a chunk are no whole number of blocks.
    ChunkKeys {
        /// Keys of a block.
        block: usize,
        /// Keys of a chunk.
        found: usize,
    },
    /// An environment variable has an impossible value.
    Knob {
        /// The variable.
        variable: &'static str,
        /// The values it may have.
        expected: String,
        /// What it holds.
        found: String,
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
    /// A slice has not as many elements as its shape calls for.
    Length {
        /// The argument.
        argument: &'static str,
        /// The shape it should have.
        expected: Vec<usize>,
        /// The number of elements it has.
        found: usize,
    },
    /// A slice is no whole number of pieces.
    Pieces {
        /// The argument.
        argument: &'static str,
        /// What a piece is.
        of: &'static str,
        /// The elements of a piece.
        expected: usize,
        /// The number of elements it has.
        found: usize,
    },
    /// There are more rows than row indices can count.
    TooManyRows {
        /// The number of rows, batch entries times query heads.
        found: usize,
    },
    /// A packed cache is made for other sizes.
    PackedCache {
        /// The size.
        what: &'static str,
        /// What the dims say.
        expected: usize,
        /// What the cache says.
        found: usize,
    },
    /// A sequence is longer than its cache.
    SeqLen {
        /// The batch entry.
        batch: usize,
        /// The keys that the cache has room for.
        expected: usize,
        /// The length of the sequence.
        found: usize,
    },
    /// A block id is neither a block of the cache nor the padding -1.
    BlockId {
        /// Where it stands.
        at: Slot,
        /// The number of blocks.
        blocks: usize,
        /// The id.
        found: i32,
    },
    /// An id follows the padding.
    IdAfterPadding {
        /// Where it stands.
        at: Slot,
        /// The id.
        found: i32,
    },
    /// A block is listed twice.
    DuplicateId {
        /// Where it stands the second time.
        at: Slot,
        /// Where it stands first.
        first: usize,
        /// The id.
        found: i32,
    },
    /// The block table has no physical block for a block that is read.
    BlockTable {
        /// The batch entry.
        batch: usize,
        /// The block of the sequence.
        block: usize,
        /// The number of physical blocks.
        pages: usize,
        /// The entry.
        found: i32,
    },
    /// A tile does not fit a memory of a core.
    #[cfg(feature = "npu")]
    Budget {
        /// The knob that says how large the tile is.
        knob: &'static str,
        /// The memory.
        memory: &'static str,
        /// The bytes it would take.
        bytes: usize,
        /// The bytes there are.
        capacity: usize,
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
    /// The tiles or the packed cache failed.
    Tiles(ShapeError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroSize { field } => write!(f, "`dims.{field}` is 0, expected at least 1"),
            Self::Heads { kv_heads, found } => {
                write!(f, "`dims.heads` is {found}, expected a multiple of {kv_heads}, the KV heads")
            }
            Self::Scale { found } => write!(f, "`dims.scale` is {found}, expected a finite number"),
            Self::ChunkKeys { block, found } => {
                write!(f, "`dims.chunk_keys` is {found}, expected a positive multiple of {block}, the keys of a block")
            }
            Self::Knob { variable, expected, found } => {
                write!(f, "environment variable {variable} is `{found}`, expected {expected}")
            }
            Self::Shape { argument, expected, found } => {
                write!(f, "`{argument}` has shape {found:?}, expected {expected:?}")
            }
            Self::Length { argument, expected, found } => {
                write!(f, "`{argument}` has {found} elements, expected those of the shape {expected:?}")
            }
            Self::Pieces { argument, of, expected, found } => {
                write!(f, "`{argument}` has {found} elements, expected a multiple of {expected}, the size of {of}")
            }
            Self::TooManyRows { found } => {
                write!(f, "`queries` has {found} rows, expected at most {}", u32::MAX)
            }
            Self::PackedCache { what, expected, found } => {
                write!(f, "the packed cache has {found} {what}, expected {expected}, as the dims say")
            }
            Self::SeqLen { batch, expected, found } => {
                write!(f, "`seq_lens[{batch}]` is {found}, expected at most {expected}, the keys of the cache")
            }
            Self::BlockId { at, blocks, found } => {
                write!(f, "`block_ids` at {at} is {found}, expected a block below {blocks}, or -1 after all of them")
            }
            Self::IdAfterPadding { at, found } => {
                write!(
                    f,
                    "`block_ids` at {at} is {found} and follows a -1, expected nothing but -1 after the first one"
                )
            }
            Self::DuplicateId { at, first, found } => {
                write!(f, "`block_ids` at {at} is {found}, as slot {first} is, expected distinct blocks")
            }
            Self::BlockTable { batch, block, pages, found } => {
                write!(
                    f,
                    "`block_table` has {found} for block {block} of batch entry {batch}, expected a page below {pages}"
                )
            }
            #[cfg(feature = "npu")]
            Self::Budget { knob, memory, bytes, capacity } => {
                write!(f, "{knob} asks for {bytes} bytes of {memory}, expected at most {capacity}")
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
