// SPDX-License-Identifier: MIT OR Apache-2.0

use cpu_tiles::ShapeError;
use std::fmt;

/// Why a call was refused. Nothing has been written then, unless memory ran out or a cache failed half-way
/// ([`Error::Tiles`]).
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A size is zero.
    ZeroSize {
        /// The field.
        field: &'static str,
    },
    /// The query heads cannot be shared out evenly to the KV heads.
    HeadGroups {
        /// The query heads.
        heads: usize,
        /// The KV heads.
        kv_heads: usize,
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
    /// A slice is no whole number of rows.
    Rows {
        /// The argument.
        argument: &'static str,
        /// What the number of elements should be a multiple of.
        of: &'static str,
        /// That size.
        expected: usize,
        /// The number of elements it has.
        found: usize,
    },
    /// Keys and values are not in one number format.
    Format {
        /// The format of the keys.
        keys: &'static str,
        /// The format of the values.
        values: &'static str,
    },
    /// There are more positions or more blocks than indices can count.
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// The most there may be.
        most: usize,
        /// The number there are.
        found: usize,
    },
    /// The last queries have no keys at their own positions.
    TooFewTokens {
        /// The position of the first query.
        start: usize,
        /// The number of queries.
        queries: usize,
        /// The number of tokens that have keys.
        found: usize,
    },
    /// More queries than the configuration is made for.
    TooManyQueries {
        /// The most there may be.
        max_n: usize,
        /// The number there are.
        found: usize,
    },
    /// The most queries of a configuration are no whole blocks.
    MaxN {
        /// Tokens of a block.
        bk: usize,
        /// The most queries.
        found: usize,
    },
    /// The block table is shorter than the sequence.
    BlockTable {
        /// The number of blocks of the sequence.
        expected: usize,
        /// The number of entries.
        found: usize,
    },
    /// The block table leads to a page that does not exist.
    Page {
        /// The entry of the table.
        entry: usize,
        /// The number of pages.
        pages: usize,
        /// The page it leads to.
        found: i32,
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
    /// A packed cache without a block table has fewer pages than the sequence has blocks.
    Pages {
        /// The blocks of the sequence.
        expected: usize,
        /// The pages.
        found: usize,
    },
    /// A list names a block that does not exist.
    BlockRange {
        /// The argument.
        argument: &'static str,
        /// The index of the entry.
        at: Vec<usize>,
        /// The number of blocks there are.
        blocks: usize,
        /// The id.
        found: i32,
    },
    /// A list has a negative id that is no padding at its end.
    BlockPadding {
        /// The argument.
        argument: &'static str,
        /// The index of the entry.
        at: Vec<usize>,
        /// The id.
        found: i32,
    },
    /// A list names a block twice.
    BlockTwice {
        /// The argument.
        argument: &'static str,
        /// The index of the second mention.
        at: Vec<usize>,
        /// The id.
        found: i32,
    },
    /// A list names a block that was not gathered.
    BlockNotGathered {
        /// The index of the entry.
        at: Vec<usize>,
        /// The id.
        found: i32,
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
    /// The tiles ran out of memory, or a packed cache could not give a block.
    Tiles(ShapeError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroSize { field } => write!(f, "`{field}` is 0, expected at least 1"),
            Self::HeadGroups { heads, kv_heads } => {
                write!(f, "`dims.heads` is {heads}, expected a multiple of {kv_heads}, the KV heads")
            }
            Self::Shape { argument, expected, found } => {
                write!(f, "`{argument}` has shape {found:?}, expected {expected:?}")
            }
            Self::Length { argument, expected, found } => {
                write!(f, "`{argument}` has {found} elements, expected those of the shape {expected:?}")
            }
            Self::Rows { argument, of, expected, found } => {
                write!(f, "`{argument}` has {found} elements, expected a multiple of {expected}, the {of}")
            }
            Self::Format { keys, values } => {
                write!(f, "`values` are {values}, expected {keys}, the format of the keys")
            }
            Self::TooMany { what, most, found } => write!(f, "there are {found} {what}, expected at most {most}"),
            Self::TooFewTokens { start, queries, found } => {
                write!(
                    f,
                    "keys of {found} tokens, expected at least {start} + {queries}, the positions up to the last query"
                )
            }
            Self::TooManyQueries { max_n, found } => {
                write!(f, "`query` has {found} rows, expected at most {max_n}, the `max_n` of the configuration")
            }
            Self::MaxN { bk, found } => {
                write!(f, "`max_n` is {found}, expected a positive multiple of {bk}, the tokens of a block")
            }
            Self::BlockTable { expected, found } => {
                write!(f, "`block_table` has {found} entries, expected at least {expected}, the blocks of the sequence")
            }
            Self::Page { entry, pages, found } => {
                write!(f, "`block_table[{entry}]` is {found}, expected a page below {pages}")
            }
            Self::PackedCache { what, expected, found } => {
                write!(f, "the packed cache has {found} {what}, expected {expected}, as the dims say")
            }
            Self::Pages { expected, found } => {
                write!(
                    f,
                    "the packed cache has {found} pages, expected at least {expected}, the blocks of the sequence"
                )
            }
            Self::BlockRange { argument, at, blocks, found } => {
                write!(f, "`{argument}`{at:?} is {found}, expected a block below {blocks}")
            }
            Self::BlockPadding { argument, at, found: -1 } => {
                write!(f, "`{argument}`{at:?} is -1 before a block, expected -1 at the end of a list only")
            }
            Self::BlockPadding { argument, at, found } => {
                write!(f, "`{argument}`{at:?} is {found}, expected a block, or -1 at the end of a list")
            }
            Self::BlockTwice { argument, at, found } => {
                write!(f, "`{argument}`{at:?} names block {found} again, expected distinct blocks")
            }
            Self::BlockNotGathered { at, found } => {
                write!(f, "`block_ids`{at:?} is {found}, expected one of the gathered blocks")
            }
            Self::Knob { variable, expected, found } => {
                write!(f, "environment variable {variable} is `{found}`, expected {expected}")
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
