// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::Error;
use cpu_tiles::{Format, PackedRef, PackedWeight, ShapeError, Weight, WeightRef};
use half::bf16;

/// How many selections the index heads make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HeadReduce {
    /// One for each index head, for the KV head of the same number: what the model means.
    #[default]
    PerKvHead,
    /// One for all, by the largest score over the index heads: the published operator.
    Shared,
}

/// The sizes of an indexer, and what it always selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IndexerDims {
    /// Index heads of a query. A key has one.
    pub heads: usize,
    /// Values of one head, D.
    pub head_dim: usize,
    /// Keys of a block. Blocks begin at key 0 of the sequence.
    pub block: usize,
    /// Blocks that are selected, forced ones included.
    pub topk: usize,
    /// The first blocks, this many, are always selected.
    pub init_blocks: usize,
    /// The last blocks that the query sees, this many, are always selected, as far as `topk` leaves room beside
    /// `init_blocks`.
    pub local_blocks: usize,
    /// How many selections the heads make.
    pub reduce: HeadReduce,
}

impl IndexerDims {
    /// MiniMax-M3: 4 heads of 128, blocks of 128, top 16 with the query's own block.
    pub const M3: Self = Self {
        heads: 4,
        head_dim: 128,
        block: 128,
        topk: 16,
        init_blocks: 0,
        local_blocks: 1,
        reduce: HeadReduce::PerKvHead,
    };

    /// The number of selections of a query.
    pub const fn selections(&self) -> usize {
        match self.reduce {
            HeadReduce::PerKvHead => self.heads,
            HeadReduce::Shared => 1,
        }
    }

    /// The number of blocks of a sequence of `length` keys.
    pub const fn blocks(&self, length: usize) -> usize {
        // A block of zero keys is refused by every call.
        if self.block == 0 { 0 } else { length.div_ceil(self.block) }
    }

    /// The shape of the ids: queries, selections, the smaller of top-k and the number of blocks.
    pub const fn ids_shape(&self, queries: usize, length: usize) -> [usize; 3] {
        let blocks = self.blocks(length);
        [queries, self.selections(), if self.topk < blocks { self.topk } else { blocks }]
    }

    /// The shape of the block scores: queries, selections, blocks.
    pub const fn scores_shape(&self, queries: usize, length: usize) -> [usize; 3] {
        [queries, self.selections(), self.blocks(length)]
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let sizes = [("heads", self.heads), ("head_dim", self.head_dim), ("block", self.block), ("topk", self.topk)];
        match sizes.into_iter().find(|(_, size)| *size == 0) {
            Some((field, _)) => Err(Error::ZeroSize { field }),
            None => Ok(()),
        }
    }

    /// How many blocks the query at `position` sees.
    pub(crate) fn visible_blocks(&self, position: usize) -> usize {
        position / self.block + 1
    }
}

impl Default for IndexerDims {
    fn default() -> Self {
        Self::M3
    }
}

/// Queries or keys, row-major.
#[derive(Clone, Copy, Debug)]
pub enum Values<'a> {
    /// BF16 values.
    Bf16(&'a [bf16]),
    /// F32 values.
    F32(&'a [f32]),
}

impl<'a> Values<'a> {
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Bf16(values) => values.len(),
            Self::F32(values) => values.len(),
        }
    }

    pub(crate) fn format(self) -> Format {
        match self {
            Self::Bf16(_) => Format::Bf16,
            Self::F32(_) => Format::F32,
        }
    }

    /// How many arrays of `shape` the values are.
    pub(crate) fn count(self, argument: &'static str, shape: &[usize]) -> Result<usize, Error> {
        match product(shape) {
            Some(size) if self.len().is_multiple_of(size) => Ok(self.len() / size),
            // More elements than can be counted: none at all are a multiple of that.
            None if self.len() == 0 => Ok(0),
            _ => Err(Error::Rows { argument, expected: shape.to_vec(), found: self.len() }),
        }
    }

    /// `keys` keys of `dim` values, from value `first` on.
    fn weight(self, first: usize, keys: usize, dim: usize) -> Result<WeightRef<'a>, ShapeError> {
        let range = first..first + keys * dim;
        match self {
            Self::Bf16(values) => WeightRef::bf16(keys, dim, &values[range]),
            Self::F32(values) => WeightRef::f32(keys, dim, &values[range]),
        }
    }
}

/// Index keys that are packed in blocks, as a cache that is written key by key holds them.
///
/// A call asks for each block of its sequence once while it checks its arguments, and again while it computes; it expects
/// the same answer.
pub trait PackedKeys: Sync {
    /// How many blocks there are.
    fn blocks(&self) -> usize;

    /// Block `index`, which is below [`PackedKeys::blocks`]: a packed weight `[block, head_dim]`, BF16 or F32. Keys at and
    /// beyond the length of the sequence may hold anything.
    fn block(&self, index: usize) -> PackedRef<'_>;
}

impl PackedKeys for [PackedRef<'_>] {
    fn blocks(&self) -> usize {
        self.len()
    }

    fn block(&self, index: usize) -> PackedRef<'_> {
        self[index]
    }
}

impl PackedKeys for Vec<PackedRef<'_>> {
    fn blocks(&self) -> usize {
        self.len()
    }

    fn block(&self, index: usize) -> PackedRef<'_> {
        self[index]
    }
}

impl PackedKeys for [PackedWeight] {
    fn blocks(&self) -> usize {
        self.len()
    }

    fn block(&self, index: usize) -> PackedRef<'_> {
        self[index].as_ref()
    }
}

impl PackedKeys for Vec<PackedWeight> {
    fn blocks(&self) -> usize {
        self.len()
    }

    fn block(&self, index: usize) -> PackedRef<'_> {
        self[index].as_ref()
    }
}

/// The index keys of one sequence. Keys beyond its length may hold anything.
#[derive(Clone, Copy)]
pub enum Keys<'a> {
    /// All keys in a row, `[keys, head_dim]`.
    Plain(Values<'a>),
    /// Blocks anywhere in `pages`, `[pages, block, head_dim]`: block `b` of the sequence is page `block_table[b]`. Entries
    /// beyond the blocks of the sequence are not read.
    Paged {
        /// The pages.
        pages: Values<'a>,
        /// The page of each block.
        block_table: &'a [i32],
    },
    /// Packed blocks; with a table, block `b` of the sequence is packed block `block_table[b]`, without one packed block
    /// `b`.
    Packed {
        /// The packed blocks.
        blocks: &'a dyn PackedKeys,
        /// The packed block of each block.
        block_table: Option<&'a [i32]>,
    },
}

impl std::fmt::Debug for Keys<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Plain(keys) => write!(f, "Keys::Plain({} {} values)", keys.len(), keys.format()),
            Self::Paged { pages, block_table } => {
                write!(f, "Keys::Paged({} {} values, table of {})", pages.len(), pages.format(), block_table.len())
            }
            Self::Packed { blocks, block_table } => {
                write!(f, "Keys::Packed({} blocks, table of {:?})", blocks.blocks(), block_table.map(<[i32]>::len))
            }
        }
    }
}

/// [`Keys`] that passed the checks of a call.
#[derive(Clone, Copy)]
pub(crate) struct Blocks<'a> {
    keys: Keys<'a>,
    dims: IndexerDims,
    length: usize,
    pub(crate) format: Format,
}

impl<'a> Blocks<'a> {
    /// The keys of the first `length` positions.
    pub(crate) fn new(dims: &IndexerDims, keys: Keys<'a>, length: usize) -> Result<Self, Error> {
        let count = dims.blocks(length);
        if i32::try_from(count).is_err() {
            return Err(Error::TooManyBlocks { found: count });
        }
        let enough = |keys: usize| match keys < length {
            true => Err(Error::LengthBeyondKeys { keys, found: length }),
            false => Ok(()),
        };
        let format = match keys {
            Keys::Plain(keys) => {
                enough(keys.count("keys", &[dims.head_dim])?)?;
                keys.format()
            }
            Keys::Paged { pages, block_table } => {
                let blocks = pages.count("keys", &[dims.block, dims.head_dim])?;
                check_table(block_table, count, blocks)?;
                pages.format()
            }
            Keys::Packed { blocks, block_table } => {
                match block_table {
                    Some(table) => check_table(table, count, blocks.blocks())?,
                    None => enough(blocks.blocks().saturating_mul(dims.block))?,
                }
                let mut common = None;
                for block in 0..count {
                    let index = block_table.map_or(block, |table| table[block] as usize);
                    let format = check_packed(dims, index, blocks.block(index).into(), common)?;
                    common = Some(format);
                }
                common.unwrap_or(Format::Bf16)
            }
        };
        Ok(Self { keys, dims: *dims, length, format })
    }

    /// The keys of block `block`, those beyond the length left out where that can be.
    pub(crate) fn get(&self, block: usize) -> Result<Weight<'a>, ShapeError> {
        let IndexerDims { block: size, head_dim, .. } = self.dims;
        let keys = (self.length - block * size).min(size);
        Ok(match self.keys {
            Keys::Plain(values) => values.weight(block * size * head_dim, keys, head_dim)?.into(),
            Keys::Paged { pages, block_table } => {
                pages.weight(block_table[block] as usize * size * head_dim, keys, head_dim)?.into()
            }
            Keys::Packed { blocks, block_table } => {
                blocks.block(block_table.map_or(block, |table| table[block] as usize)).into()
            }
        })
    }
}

pub(crate) fn check_table(table: &[i32], expected: usize, blocks: usize) -> Result<(), Error> {
    if table.len() < expected {
        return Err(Error::ShortTable { expected, found: table.len() });
    }
    let names_none = |entry: &i32| usize::try_from(*entry).map_or(true, |entry| entry >= blocks);
    match table[..expected].iter().position(names_none) {
        Some(entry) => Err(Error::TableEntry { entry, blocks, found: table[entry] }),
        None => Ok(()),
    }
}

/// Returns the format of the block, which is `common` unless that is `None`.
fn check_packed(dims: &IndexerDims, block: usize, keys: Weight<'_>, common: Option<Format>) -> Result<Format, Error> {
    let (expected, found) = ([dims.block, dims.head_dim], [keys.n(), keys.k()]);
    if found != expected {
        return Err(Error::PackedShape { block, expected, found });
    }
    let (found, refused) = (keys.format(), |expected| Error::PackedFormat { block, expected, found: keys.format() });
    match common {
        None if !matches!(found, Format::Bf16 | Format::F32) => Err(refused("bf16 or f32")),
        Some(common) if common != found => Err(refused("the format of the first block")),
        _ => Ok(found),
    }
}

fn product(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size))
}

pub(crate) fn check_len(argument: &'static str, expected: &[usize], found: usize) -> Result<(), Error> {
    match product(expected) {
        Some(length) if length == found => Ok(()),
        _ => Err(Error::Length { argument, expected: expected.to_vec(), found }),
    }
}

pub(crate) fn check_shape(argument: &'static str, expected: &[usize], found: &[usize]) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    Err(Error::Shape { argument, expected: expected.to_vec(), found: found.to_vec() })
}

/// Every query has a key of its own in the sequence.
pub(crate) fn check_positions(start: usize, queries: usize, length: usize) -> Result<(), Error> {
    match start.checked_add(queries) {
        Some(end) if end <= length => Ok(()),
        _ => Err(Error::QueryBeyondLength { start, queries, length }),
    }
}
