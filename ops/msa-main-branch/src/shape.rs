// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::Error;
use cpu_tiles::attention::PackedBlocks;
use cpu_tiles::{Format, Precision};
use half::{bf16, f16};
use std::fmt;
use std::ops::Range;

/// An additive mask hides a key where it is this or less: what the published operator adds to a hidden score.
pub const MASK_NEG: f32 = -1e9;

/// Block ids are 32 bits wide and signed.
const MOST_BLOCKS: usize = i32::MAX as usize;

/// The geometry of the attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionDims {
    /// Query heads; a multiple of the KV heads. Query head `h` uses KV head `h / (heads / kv_heads)`.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Channels of a head, D.
    pub head_dim: usize,
    /// Tokens of a block. Block `b` holds the keys at positions `b * block .. (b + 1) * block`.
    pub block: usize,
}

impl AttentionDims {
    /// MiniMax-M3: 64 query heads, 4 KV heads of 128 channels, blocks of 128 tokens.
    pub const M3: Self = Self { heads: 64, kv_heads: 4, head_dim: 128, block: 128 };

    /// Query heads that share a KV head.
    ///
    /// # Panics
    /// When there are no KV heads.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// The factor of the scores, `1 / sqrt(head_dim)`.
    pub fn scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let Self { heads, kv_heads, head_dim, block } = *self;
        let sizes =
            [("dims.heads", heads), ("dims.kv_heads", kv_heads), ("dims.head_dim", head_dim), ("dims.block", block)];
        if let Some((field, _)) = sizes.into_iter().find(|(_, size)| *size == 0) {
            return Err(Error::ZeroSize { field });
        }
        if !heads.is_multiple_of(kv_heads) {
            return Err(Error::HeadGroups { heads, kv_heads });
        }
        Ok(())
    }

    /// Values of a query. Saturates, so that no array has a row of an absurd size.
    pub(crate) fn width(&self) -> usize {
        self.heads.saturating_mul(self.head_dim)
    }

    /// Values of a token's keys.
    fn kv_width(&self) -> usize {
        self.kv_heads.saturating_mul(self.head_dim)
    }
}

/// Values of one of the number formats, row-major. Where queries, keys and values are all BF16, probabilities are rounded
/// to BF16 before they multiply the values; in every other combination nothing is rounded beyond F32 arithmetic.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// F32.
    F32(&'a [f32]),
    /// F16: IEEE half precision.
    F16(&'a [f16]),
    /// BF16.
    Bf16(&'a [bf16]),
}

impl<'a> Data<'a> {
    /// The name of the format: `F32`, `F16` or `BF16`.
    pub const fn format(self) -> &'static str {
        match self {
            Self::F32(_) => "F32",
            Self::F16(_) => "F16",
            Self::Bf16(_) => "BF16",
        }
    }

    /// The number of values.
    pub const fn len(self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F16(values) => values.len(),
            Self::Bf16(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The value at `index`, widened.
    ///
    /// # Panics
    /// When the index is out of range.
    pub fn get(self, index: usize) -> f32 {
        match self {
            Self::F32(values) => values[index],
            Self::F16(values) => values[index].to_f32(),
            Self::Bf16(values) => values[index].to_f32(),
        }
    }

    pub(crate) fn slice(self, range: Range<usize>) -> Self {
        match self {
            Self::F32(values) => Self::F32(&values[range]),
            Self::F16(values) => Self::F16(&values[range]),
            Self::Bf16(values) => Self::Bf16(&values[range]),
        }
    }
}

/// The queries of a call, of consecutive tokens.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// `[n, heads, head_dim]`.
    pub data: Data<'a>,
    /// The position of the first one; query `i` is at `start + i` and sees the keys at positions up to its own.
    pub start: usize,
}

/// Where keys and values are.
#[derive(Clone, Copy)]
pub enum KeysValues<'a> {
    /// In the order of tokens.
    Plain {
        /// `[tokens, kv_heads, head_dim]`.
        keys: Data<'a>,
        /// `[tokens, kv_heads, head_dim]`, in the format of the keys.
        values: Data<'a>,
    },
    /// In pages, each of one block.
    Paged {
        /// `[pages, kv_heads, block, head_dim]`.
        keys: Data<'a>,
        /// `[pages, kv_heads, block, head_dim]`, in the format of the keys.
        values: Data<'a>,
        /// The page of each block of the sequence; more entries than blocks are allowed.
        block_table: &'a [i32],
        /// Tokens of the sequence.
        tokens: usize,
    },
    /// In pages in the layout of the tiles, which are read without being packed first.
    Packed {
        /// The cache.
        pages: &'a dyn PackedBlocks,
        /// As in [`KeysValues::Paged`]; `None`: block `i` is page `i`.
        block_table: Option<&'a [i32]>,
        /// Tokens of the sequence.
        tokens: usize,
    },
    /// Gathered from the sequence, block by block: the layout of the published operator. The sequence ends with the last
    /// query.
    Gathered {
        /// `[slots, block, kv_heads, head_dim]`.
        keys: Data<'a>,
        /// `[slots, block, kv_heads, head_dim]`, in the format of the keys.
        values: Data<'a>,
        /// The block of each slot: distinct, in any order, -1 for slots at the end that hold none.
        ids: &'a [i32],
    },
}

impl fmt::Debug for KeysValues<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain { keys, .. } => write!(f, "Plain({} {})", keys.len(), keys.format()),
            Self::Paged { keys, tokens, .. } => write!(f, "Paged({} {}, {tokens} tokens)", keys.len(), keys.format()),
            Self::Packed { tokens, .. } => write!(f, "Packed({tokens} tokens)"),
            Self::Gathered { keys, ids, .. } => write!(f, "Gathered({} {}, {ids:?})", keys.len(), keys.format()),
        }
    }
}

/// The blocks that queries attend to. A list holds block ids in any order, each once, and -1 behind the last where it has
/// fewer than its length. Blocks behind a query's position may be listed; it does not see them.
///
/// The length of a list, top-k, follows from the number of ids and of lists; it is any, zero too.
#[derive(Clone, Copy, Debug)]
pub enum Blocks<'a> {
    /// All of them: dense causal attention.
    All,
    /// One list for all queries and heads, `[topk]`.
    Shared(&'a [i32]),
    /// One list for each tile of `tile` consecutive queries, `[ceil(n / tile), topk]`.
    PerTile {
        /// Queries of a tile.
        tile: usize,
        /// The lists.
        ids: &'a [i32],
    },
    /// One list for each tile of `tile` consecutive queries and each KV head, `[ceil(n / tile), kv_heads, topk]`.
    PerTileAndHead {
        /// Queries of a tile.
        tile: usize,
        /// The lists.
        ids: &'a [i32],
    },
    /// One list for each query and KV head, `[n, kv_heads, topk]`: what the indexer selects.
    PerQuery(&'a [i32]),
}

/// Which rows saw a key. A row is a query and the heads that share a KV head; one that saw none is zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowDefined {
    kv_heads: usize,
    /// `[n, kv_heads]`.
    defined: Vec<bool>,
}

impl RowDefined {
    pub(crate) fn new(kv_heads: usize, defined: Vec<bool>) -> Self {
        Self { kv_heads, defined }
    }

    /// From `[n, kv_heads]`: what a device says.
    ///
    /// # Panics
    /// When the number of rows is no multiple of the KV heads, or there are none.
    #[must_use]
    pub fn of(kv_heads: usize, defined: Vec<bool>) -> Self {
        assert!(defined.len().is_multiple_of(kv_heads), "{} rows of {kv_heads} KV heads", defined.len());
        Self { kv_heads, defined }
    }

    /// Whether every row saw a key.
    pub fn all(&self) -> bool {
        self.defined.iter().all(|defined| *defined)
    }

    /// Whether query `query` saw a key in every head.
    ///
    /// # Panics
    /// When there is no such query.
    pub fn query(&self, query: usize) -> bool {
        self.defined[query * self.kv_heads..(query + 1) * self.kv_heads].iter().all(|defined| *defined)
    }

    /// Whether query `query` saw a key in the heads of KV head `kv_head`.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn row(&self, query: usize, kv_head: usize) -> bool {
        assert!(kv_head < self.kv_heads, "KV head {kv_head} of {}", self.kv_heads);
        self.defined[query * self.kv_heads + kv_head]
    }

    /// The rows that saw nothing, ascending: query and KV head.
    pub fn undefined(&self) -> impl Iterator<Item = (usize, usize)> {
        let undefined = self.defined.iter().enumerate().filter(|(_, defined)| !**defined);
        undefined.map(|(row, _)| (row / self.kv_heads, row % self.kv_heads))
    }
}

/// The number of queries, whose rows can be counted.
pub(crate) fn count_queries(dims: &AttentionDims, query: Data<'_>) -> Result<usize, Error> {
    let n = rows_of("query", query.len(), "heads times head_dim", dims.width())?;
    let found = n * dims.heads;
    if u32::try_from(found).is_err() {
        return Err(Error::TooMany { what: "rows of queries", most: u32::MAX as usize, found });
    }
    Ok(n)
}

/// The number of slots of gathered keys and values, `[slots, block, kv_heads, head_dim]`.
pub(crate) fn check_slots(dims: &AttentionDims, keys: Data<'_>, values: Data<'_>) -> Result<usize, Error> {
    check_format(keys, values)?;
    let size = dims.kv_width().saturating_mul(dims.block);
    let slots = rows_of("key_blocks", keys.len(), "block times KV heads times head_dim", size)?;
    check_len("value_blocks", &[slots, dims.block, dims.kv_heads, dims.head_dim], values.len())?;
    if slots > MOST_BLOCKS {
        return Err(Error::TooMany { what: "blocks", most: MOST_BLOCKS, found: slots });
    }
    Ok(slots)
}

/// `found / size`, if it is a whole number.
pub(crate) fn rows_of(argument: &'static str, found: usize, of: &'static str, size: usize) -> Result<usize, Error> {
    if !found.is_multiple_of(size) {
        return Err(Error::Rows { argument, of, expected: size, found });
    }
    Ok(found.checked_div(size).unwrap_or(0))
}

pub(crate) fn check_shape(argument: &'static str, expected: &[usize], found: &[usize]) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    Err(Error::Shape { argument, expected: expected.to_vec(), found: found.to_vec() })
}

pub(crate) fn check_len(argument: &'static str, expected: &[usize], found: usize) -> Result<(), Error> {
    match expected.iter().try_fold(1usize, |product, &size| product.checked_mul(size)) {
        Some(length) if length == found => Ok(()),
        _ => Err(Error::Length { argument, expected: expected.to_vec(), found }),
    }
}

fn check_format(keys: Data<'_>, values: Data<'_>) -> Result<(), Error> {
    if keys.format() != values.format() {
        return Err(Error::Format { keys: keys.format(), values: values.format() });
    }
    Ok(())
}

/// Keys and values whose shape has been checked: every block of the sequence up to the last query can be read, of
/// gathered ones every one that was gathered.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) dims: AttentionDims,
    pub(crate) source: Source<'a>,
    /// Tokens up to the last query, the only ones that anybody sees.
    pub(crate) tokens: usize,
    /// Blocks of the sequence: ids are below.
    pub(crate) blocks: usize,
}

#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    RowMajor { keys: Data<'a>, values: Data<'a>, order: Order<'a> },
    Packed { pages: &'a dyn PackedBlocks, table: Option<&'a [i32]> },
}

#[derive(Clone, Copy)]
pub(crate) enum Order<'a> {
    Tokens,
    Pages(&'a [i32]),
    Slots(&'a [i32]),
}

impl<'a> Context<'a> {
    pub(crate) fn new(dims: &AttentionDims, start: usize, n: usize, from: KeysValues<'a>) -> Result<Self, Error> {
        let dims = *dims;
        let end = start.saturating_add(n);
        let context = |source, tokens: usize| {
            if tokens < end {
                return Err(Error::TooFewTokens { start, queries: n, found: tokens });
            }
            let blocks = tokens.div_ceil(dims.block);
            if blocks > MOST_BLOCKS {
                return Err(Error::TooMany { what: "blocks", most: MOST_BLOCKS, found: blocks });
            }
            Ok(Self { dims, source, tokens: end, blocks })
        };
        match from {
            KeysValues::Plain { keys, values } => {
                check_format(keys, values)?;
                let tokens = rows_of("keys", keys.len(), "KV heads times head_dim", dims.kv_width())?;
                check_len("values", &[tokens, dims.kv_heads, dims.head_dim], values.len())?;
                context(Source::RowMajor { keys, values, order: Order::Tokens }, tokens)
            }
            KeysValues::Paged { keys, values, block_table: table, tokens } => {
                check_format(keys, values)?;
                let size = dims.kv_width().saturating_mul(dims.block);
                let pages = rows_of("keys", keys.len(), "KV heads times block times head_dim", size)?;
                check_len("values", &[pages, dims.kv_heads, dims.block, dims.head_dim], values.len())?;
                let context = context(Source::RowMajor { keys, values, order: Order::Pages(table) }, tokens)?;
                check_table(table, context.blocks, pages)?;
                Ok(context)
            }
            KeysValues::Packed { pages, block_table: table, tokens } => {
                let of_dims = [
                    ("KV heads", dims.kv_heads, pages.kv_heads()),
                    ("channels of a head", dims.head_dim, pages.head_dim()),
                    ("tokens of a block", dims.block, pages.block_tokens()),
                ];
                if let Some((what, expected, found)) = of_dims.into_iter().find(|(_, a, b)| a != b) {
                    return Err(Error::PackedCache { what, expected, found });
                }
                let context = context(Source::Packed { pages, table }, tokens)?;
                match table {
                    Some(table) => check_table(table, context.blocks, pages.blocks())?,
                    None if context.blocks > pages.blocks() => {
                        return Err(Error::Pages { expected: context.blocks, found: pages.blocks() });
                    }
                    None => {}
                }
                Ok(context)
            }
            KeysValues::Gathered { keys, values, ids } => {
                check_format(keys, values)?;
                let shape = [ids.len(), dims.block, dims.kv_heads, dims.head_dim];
                check_len("keys", &shape, keys.len())?;
                check_len("values", &shape, values.len())?;
                let context = context(Source::RowMajor { keys, values, order: Order::Slots(ids) }, end)?;
                append_sorted(&mut Vec::new(), "ids", ids, context.blocks, |entry| vec![entry])?;
                Ok(context)
            }
        }
    }

    /// The precision of a call with queries of a format.
    pub(crate) fn precision(&self, query: Data<'_>) -> Precision {
        let is_bf16 = match self.source {
            Source::RowMajor { keys, .. } => matches!(keys, Data::Bf16(_)),
            Source::Packed { pages, .. } => pages.precision() == Precision::Bf16,
        };
        if is_bf16 && matches!(query, Data::Bf16(_)) { Precision::Bf16 } else { Precision::F32 }
    }

    /// The format of blocks that are packed from row-major memory.
    pub(crate) fn packed_format(&self) -> Format {
        match self.source {
            Source::RowMajor { keys: Data::Bf16(_), .. } => Format::Bf16,
            _ => Format::F32,
        }
    }

    /// Keys of a block up to the last query.
    pub(crate) fn keys_of(&self, block: usize) -> usize {
        self.tokens.saturating_sub(block * self.dims.block).min(self.dims.block)
    }
}

/// The checks of lists alone, for keys that are not at hand: `n` queries from `start` on of a sequence of `tokens` tokens.
#[cfg(feature = "npu")]
pub(crate) fn check_lists(
    dims: &AttentionDims,
    [start, n, tokens]: [usize; 3],
    blocks: Blocks<'_>,
) -> Result<(), Error> {
    let end = start.saturating_add(n);
    if tokens < end {
        return Err(Error::TooFewTokens { start, queries: n, found: tokens });
    }
    let source = Source::RowMajor { keys: Data::F32(&[]), values: Data::F32(&[]), order: Order::Tokens };
    let context = Context { dims: *dims, source, tokens: end, blocks: tokens.div_ceil(dims.block) };
    Lists::new(n, &context, blocks).map(drop)
}

pub(crate) fn check_table(table: &[i32], blocks: usize, pages: usize) -> Result<(), Error> {
    let Some(table) = table.get(..blocks) else {
        return Err(Error::BlockTable { expected: blocks, found: table.len() });
    };
    let exists = |page: i32| usize::try_from(page).is_ok_and(|page| page < pages);
    match table.iter().position(|&page| !exists(page)) {
        Some(entry) => Err(Error::Page { entry, pages, found: table[entry] }),
        None => Ok(()),
    }
}

/// Appends the blocks of one list, ascending. `at` gives the index of an entry.
fn append_sorted(
    list: &mut Vec<u32>,
    argument: &'static str,
    ids: &[i32],
    blocks: usize,
    at: impl Fn(usize) -> Vec<usize>,
) -> Result<(), Error> {
    let end = ids.iter().rposition(|&id| id != -1).map_or(0, |last| last + 1);
    let begin = list.len();
    for (entry, &found) in ids[..end].iter().enumerate() {
        match u32::try_from(found) {
            Ok(id) if (id as usize) < blocks => list.push(id),
            Ok(_) => return Err(Error::BlockRange { argument, at: at(entry), blocks, found }),
            Err(_) => return Err(Error::BlockPadding { argument, at: at(entry), found }),
        }
    }
    let list = &mut list[begin..];
    list.sort_unstable();
    if let Some(twice) = list.windows(2).find(|pair| pair[0] == pair[1]) {
        let found = twice[0].cast_signed();
        let entry = ids.iter().rposition(|&id| id == found).unwrap_or_default();
        return Err(Error::BlockTwice { argument, at: at(entry), found });
    }
    Ok(())
}

/// The lists of a call, each ascending and without padding.
#[derive(Debug)]
pub(crate) struct Lists {
    ids: Vec<u32>,
    /// Where each list ends in `ids`.
    ends: Vec<usize>,
    /// Consecutive queries that share lists.
    tile: usize,
    /// Lists of a tile: one, or one for each KV head.
    heads: usize,
}

impl Lists {
    pub(crate) fn new(n: usize, context: &Context<'_>, blocks: Blocks<'_>) -> Result<Self, Error> {
        let kv_heads = context.dims.kv_heads;
        let (tile, heads, ids) = match blocks {
            Blocks::All => return Self::all(context),
            Blocks::Shared(ids) => (usize::MAX, 1, ids),
            Blocks::PerTile { tile, ids } => (tile, 1, ids),
            Blocks::PerTileAndHead { tile, ids } => (tile, kv_heads, ids),
            Blocks::PerQuery(ids) => (1, kv_heads, ids),
        };
        if tile == 0 {
            return Err(Error::ZeroSize { field: "tile" });
        }
        let tiles = if matches!(blocks, Blocks::Shared(_)) { 1 } else { n.div_ceil(tile) };
        let topk = rows_of("block_ids", ids.len(), "number of lists", tiles * heads)?;
        let gathered = match context.source {
            Source::RowMajor { order: Order::Slots(ids), .. } => Some(ids),
            _ => None,
        };
        let mut lists = Self { ids: Vec::new(), ends: Vec::with_capacity(tiles * heads), tile, heads };
        for list in 0..tiles * heads {
            let at = |entry| match blocks {
                Blocks::All | Blocks::Shared(_) => vec![entry],
                Blocks::PerTile { .. } => vec![list, entry],
                Blocks::PerTileAndHead { .. } | Blocks::PerQuery(_) => vec![list / heads, list % heads, entry],
            };
            let ids = &ids[list * topk..(list + 1) * topk];
            append_sorted(&mut lists.ids, "block_ids", ids, context.blocks, at)?;
            if let Some(gathered) = gathered {
                let missing = ids.iter().position(|id| *id >= 0 && !gathered.contains(id));
                if let Some(entry) = missing {
                    return Err(Error::BlockNotGathered { at: at(entry), found: ids[entry] });
                }
            }
            lists.ends.push(lists.ids.len());
        }
        Ok(lists)
    }

    /// All blocks that the queries can see.
    fn all(context: &Context<'_>) -> Result<Self, Error> {
        let mut ids = Vec::new();
        match context.source {
            Source::RowMajor { order: Order::Slots(gathered), .. } => {
                append_sorted(&mut ids, "ids", gathered, context.blocks, |entry| vec![entry])?;
            }
            _ => ids.extend(0..context.tokens.div_ceil(context.dims.block) as u32),
        }
        Ok(Self { ends: vec![ids.len()], ids, tile: usize::MAX, heads: 1 })
    }

    /// The list of a query and KV head.
    pub(crate) fn list(&self, query: usize, kv_head: usize) -> &[u32] {
        let list = self.index(query, kv_head);
        let begin = list.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.ids[begin..self.ends[list]]
    }

    /// Whether both queries have one list.
    pub(crate) fn is_shared(&self, a: usize, b: usize) -> bool {
        a / self.tile == b / self.tile
    }

    /// Every block that a query sees in a KV head, at least once.
    pub(crate) fn visible(&self, n: usize, start: usize, dims: &AttentionDims) -> impl Iterator<Item = (usize, usize)> {
        let AttentionDims { kv_heads, block, .. } = *dims;
        // Of the queries that share lists, the last sees most.
        let last = move |tile: usize| tile.saturating_add(1).saturating_mul(self.tile).min(n) - 1;
        (0..n.div_ceil(self.tile)).map(last).flat_map(move |query| {
            (0..kv_heads).flat_map(move |kv_head| {
                let ids = self.list(query, kv_head).iter().map(|&id| id as usize);
                ids.take_while(move |id| id * block <= start + query).map(move |id| (id, kv_head))
            })
        })
    }

    fn index(&self, query: usize, kv_head: usize) -> usize {
        query / self.tile * self.heads + if self.heads == 1 { 0 } else { kv_head }
    }
}
