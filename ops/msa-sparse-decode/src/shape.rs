// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::{Error, Slot};
use cpu_tiles::Precision;
use cpu_tiles::attention::PackedBlocks;
use half::bf16;
use std::fmt;
use std::ops::Range;

/// The sizes of a decode attention, and how it is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecodeDims {
    /// Query heads, H; a multiple of the KV heads. Query head `h` uses KV head `h / (heads / kv_heads)`.
    pub heads: usize,
    /// KV heads, G.
    pub kv_heads: usize,
    /// Channels of a head, D.
    pub head_dim: usize,
    /// Keys of a block.
    pub block: usize,
    /// What scores are multiplied by; `None`: 1 / sqrt(D).
    pub scale: Option<f32>,
    /// Keys of a chunk, a multiple of the block: chunks of the listed blocks are worked on side by side and merged in
    /// order. Results depend on it by rounding.
    pub chunk_keys: usize,
}

impl DecodeDims {
    /// MiniMax-M3: 64 query heads, 4 KV heads of 128 channels, blocks of 128 keys.
    pub const M3: Self = Self::new(64, 4, 128, 128);

    /// Dims with the default scale and chunks of 512 keys, or of one block where that is larger or no divisor of 512.
    pub const fn new(heads: usize, kv_heads: usize, head_dim: usize, block: usize) -> Self {
        let divides = block != 0 && 512usize.is_multiple_of(block);
        Self { heads, kv_heads, head_dim, block, scale: None, chunk_keys: if divides { 512 } else { block } }
    }

    /// What scores are multiplied by.
    pub fn scale(&self) -> f32 {
        self.scale.unwrap_or_else(|| 1.0 / (self.head_dim as f32).sqrt())
    }

    /// Query heads of a KV head.
    pub(crate) fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let Self { heads, kv_heads, head_dim, block, scale, chunk_keys } = *self;
        let sizes = [("heads", heads), ("kv_heads", kv_heads), ("head_dim", head_dim), ("block", block)];
        if let Some((field, _)) = sizes.into_iter().find(|(_, size)| *size == 0) {
            return Err(Error::ZeroSize { field });
        }
        if !heads.is_multiple_of(kv_heads) {
            return Err(Error::Heads { kv_heads, found: heads });
        }
        if let Some(found) = scale.filter(|scale| !scale.is_finite()) {
            return Err(Error::Scale { found });
        }
        if chunk_keys == 0 || !chunk_keys.is_multiple_of(block) {
            return Err(Error::ChunkKeys { block, found: chunk_keys });
        }
        Ok(())
    }
}

/// Queries `[B, H, D]`, one token of each sequence, row-major; their type decides about rounding.
#[derive(Clone, Copy, Debug)]
pub enum Queries<'a> {
    /// BF16 mode: probabilities are rounded to BF16 before they multiply the values. With a packed cache of F32 values it is
    /// the exact mode, nothing being rounded by it.
    Bf16(&'a [bf16]),
    /// Exact mode: nothing is rounded beyond F32 arithmetic.
    F32(&'a [f32]),
}

impl Queries<'_> {
    fn len(self) -> usize {
        match self {
            Self::Bf16(values) => values.len(),
            Self::F32(values) => values.len(),
        }
    }
}

/// The keys and values.
#[derive(Clone, Copy)]
pub enum Cache<'a> {
    /// The published layout: every sequence has its blocks side by side.
    Plain {
        /// BF16 `[B, G, blocks, block, D]`.
        k_blocks: &'a [bf16],
        /// BF16 `[B, G, blocks, block, D]`.
        v_blocks: &'a [bf16],
    },
    /// Pages that sequences own by a block table.
    Paged {
        /// BF16 `[pages, G, block, D]`.
        k_pages: &'a [bf16],
        /// BF16 `[pages, G, block, D]`.
        v_pages: &'a [bf16],
        /// The page of each block of each sequence, `[B, blocks]`. Entries of blocks that are not read may hold anything.
        block_table: &'a [i32],
    },
    /// Pages in the layout of the tiles, which are read without being packed first.
    Packed {
        /// The pages.
        pages: &'a dyn PackedBlocks,
        /// As in [`Cache::Paged`]; `None`: block `i` of every sequence is page `i`.
        block_table: Option<&'a [i32]>,
    },
}

impl fmt::Debug for Cache<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain { k_blocks, .. } => write!(f, "Plain({} key elements)", k_blocks.len()),
            Self::Paged { k_pages, .. } => write!(f, "Paged({} key elements)", k_pages.len()),
            Self::Packed { pages, .. } => write!(f, "Packed({} pages)", pages.blocks()),
        }
    }
}

/// The blocks that each sequence attends to, in any order, -1 after the last one of a shorter list.
#[derive(Clone, Copy, Debug)]
pub enum BlockIds<'a> {
    /// One list for all KV heads, `[B, top-k]`: the published operator.
    Shared(&'a [i32]),
    /// A list for each KV head, `[B, G, top-k]`: what the model means.
    PerKvHead(&'a [i32]),
}

/// The arguments of a call.
#[derive(Clone, Copy, Debug)]
pub struct DecodeBatch<'a> {
    /// The queries, `[B, H, D]`.
    pub queries: Queries<'a>,
    /// The keys and values.
    pub cache: Cache<'a>,
    /// The blocks to attend to.
    pub block_ids: BlockIds<'a>,
    /// Keys of each sequence, `[B]`. Key `i` of block `b` has the position `b * block + i`; those at or beyond the length are
    /// not seen, and never read from a plain or paged cache.
    pub seq_lens: &'a [usize],
}

/// A KV head of a batch entry for which there was nothing to see: no listed block begins before the end of the sequence. The
/// result of its query heads is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blind {
    /// The batch entry.
    pub batch: usize,
    /// The KV head.
    pub kv_head: usize,
}

/// A block that is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// The page, or the block of the sequence in a plain cache.
    pub(crate) page: usize,
    /// How many of its keys the sequence has.
    pub(crate) tokens: usize,
}

/// What a checked call reads.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) batch: usize,
    /// Blocks of a sequence in a plain cache.
    pub(crate) blocks: usize,
    pub(crate) steps: Vec<Step>,
    /// The steps of each KV head of each batch entry, `[B * G]`, ascending in the sequence.
    pub(crate) lists: Vec<Range<usize>>,
    /// The precision of the products.
    pub(crate) precision: Precision,
    /// Ids of a list with their slots, ascending.
    sorted: Vec<(i32, usize)>,
}

impl Default for Plan {
    fn default() -> Self {
        let precision = Precision::F32;
        Self { batch: 0, blocks: 0, steps: Vec::new(), lists: Vec::new(), precision, sorted: Vec::new() }
    }
}

impl Plan {
    /// Memory for lists of `top_k` ids for each KV head of `entries` batch entries.
    pub(crate) fn reserve(&mut self, dims: &DecodeDims, entries: usize, top_k: usize) {
        let lists = entries.saturating_mul(dims.kv_heads);
        self.steps.clear();
        self.steps.reserve(lists.saturating_mul(top_k));
        self.lists.clear();
        self.lists.reserve(lists);
        self.sorted.clear();
        self.sorted.reserve(top_k);
    }

    /// Checks everything; in the memory that is there where it is enough.
    pub(crate) fn set(&mut self, dims: &DecodeDims, batch: &DecodeBatch<'_>, out: usize) -> Result<(), Error> {
        dims.check()?;
        let DecodeDims { heads, head_dim, .. } = *dims;
        let entries = pieces("queries", batch.queries.len(), "a batch entry", &[heads, head_dim])?;
        if u32::try_from(entries * heads).is_err() {
            return Err(Error::TooManyRows { found: entries * heads });
        }
        check_len("out", &[entries, heads, head_dim], out)?;
        let room = Room::new(dims, &batch.cache, entries)?;
        let precision = room.precision(batch.queries);
        self.set_lists(dims, entries, &room, precision, batch.block_ids, batch.seq_lens)
    }

    /// Checks lists and lengths; the dims are checked.
    pub(crate) fn of_lists(
        dims: &DecodeDims,
        entries: usize,
        room: &Room<'_>,
        precision: Precision,
        block_ids: BlockIds<'_>,
        seq_lens: &[usize],
    ) -> Result<Self, Error> {
        let mut plan = Self::default();
        plan.set_lists(dims, entries, room, precision, block_ids, seq_lens)?;
        Ok(plan)
    }

    fn set_lists(
        &mut self,
        dims: &DecodeDims,
        entries: usize,
        room: &Room<'_>,
        precision: Precision,
        block_ids: BlockIds<'_>,
        seq_lens: &[usize],
    ) -> Result<(), Error> {
        let DecodeDims { kv_heads, block, .. } = *dims;
        check_len("seq_lens", &[entries], seq_lens.len())?;
        let expected = room.blocks.saturating_mul(block);
        if let Some(batch) = seq_lens.iter().position(|len| *len > expected) {
            return Err(Error::SeqLen { batch, expected, found: seq_lens[batch] });
        }
        let (ids, per_head) = match block_ids {
            BlockIds::Shared(ids) => (ids, 1),
            BlockIds::PerKvHead(ids) => (ids, kv_heads),
        };
        let lists = entries * per_head;
        let top_k = columns("block_ids", ids.len(), "one id for each list", lists)?;
        (self.batch, self.blocks, self.precision) = (entries, room.blocks, precision);
        self.steps.clear();
        self.lists.clear();
        for list in 0..lists {
            let (entry, kv_head) = (list / per_head, (per_head > 1).then_some(list % per_head));
            let at = |slot| Slot { batch: entry, kv_head, slot };
            distinct_ids(&ids[list * top_k..][..top_k], room.blocks, at, &mut self.sorted)?;
            let first = self.steps.len();
            for &(id, _) in &self.sorted {
                let tokens = seq_lens[entry].saturating_sub(id as usize * block).min(block);
                if tokens == 0 {
                    break;
                }
                self.steps.push(Step { page: room.page(entry, id as usize)?, tokens });
            }
            for _ in 0..kv_heads / per_head {
                self.lists.push(first..self.steps.len());
            }
        }
        Ok(())
    }

    /// The KV heads with nothing to see.
    pub(crate) fn blind(&self, kv_heads: usize) -> Vec<Blind> {
        let lists = self.lists.iter().enumerate().filter(|(_, list)| list.is_empty());
        lists.map(|(list, _)| Blind { batch: list / kv_heads, kv_head: list % kv_heads }).collect()
    }
}

/// The ids of a list with their slots, ascending, without the padding.
fn distinct_ids(
    ids: &[i32],
    blocks: usize,
    at: impl Fn(usize) -> Slot,
    sorted: &mut Vec<(i32, usize)>,
) -> Result<(), Error> {
    let count = ids.iter().position(|id| *id == -1).unwrap_or(ids.len());
    if let Some(slot) = ids[..count].iter().position(|&id| usize::try_from(id).map_or(true, |id| id >= blocks)) {
        return Err(Error::BlockId { at: at(slot), blocks, found: ids[slot] });
    }
    if let Some(slot) = (count..ids.len()).find(|slot| ids[*slot] != -1) {
        return Err(Error::IdAfterPadding { at: at(slot), found: ids[slot] });
    }
    sorted.clear();
    sorted.extend(ids[..count].iter().copied().zip(0..));
    sorted.sort_unstable();
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(Error::DuplicateId { at: at(pair[1].1), first: pair[0].1, found: pair[1].0 });
    }
    Ok(())
}

/// The blocks that a cache has.
pub(crate) struct Room<'a> {
    /// Blocks of a sequence.
    blocks: usize,
    /// Physical blocks.
    pages: usize,
    table: Option<&'a [i32]>,
    /// The precision of a packed cache.
    packed: Option<Precision>,
}

impl<'a> Room<'a> {
    /// A plain cache.
    pub(crate) fn plain(blocks: usize) -> Self {
        Self { blocks, pages: blocks, table: None, packed: None }
    }

    /// Pages that are not at hand.
    #[cfg(feature = "npu")]
    pub(crate) fn paged(table: &'a [i32], blocks: usize, pages: usize) -> Self {
        Self { blocks, pages, table: Some(table), packed: None }
    }

    fn new(dims: &DecodeDims, cache: &Cache<'a>, entries: usize) -> Result<Self, Error> {
        let DecodeDims { kv_heads, head_dim, block, .. } = *dims;
        match *cache {
            Cache::Plain { k_blocks, v_blocks } => {
                let of = "one block of each sequence and KV head";
                let rows = product(&[entries, kv_heads, block, head_dim]);
                let blocks = columns("k_blocks", k_blocks.len(), of, rows)?;
                check_len("v_blocks", &[entries, kv_heads, blocks, block, head_dim], v_blocks.len())?;
                Ok(Self::plain(blocks))
            }
            Cache::Paged { k_pages, v_pages, block_table } => {
                let pages = pieces("k_pages", k_pages.len(), "a page", &[kv_heads, block, head_dim])?;
                check_len("v_pages", &[pages, kv_heads, block, head_dim], v_pages.len())?;
                let blocks = columns("block_table", block_table.len(), "one block of each sequence", entries)?;
                Ok(Self { blocks, pages, table: Some(block_table), packed: None })
            }
            Cache::Packed { pages, block_table } => {
                for (what, expected, found) in [
                    ("KV heads", kv_heads, pages.kv_heads()),
                    ("channels of a head", head_dim, pages.head_dim()),
                    ("tokens of a block", block, pages.block_tokens()),
                ] {
                    if found != expected {
                        return Err(Error::PackedCache { what, expected, found });
                    }
                }
                let count = pages.blocks();
                let blocks = match block_table {
                    Some(table) => columns("block_table", table.len(), "one block of each sequence", entries)?,
                    None => count,
                };
                Ok(Self { blocks, pages: count, table: block_table, packed: Some(pages.precision()) })
            }
        }
    }

    /// The page of a block of a sequence.
    fn page(&self, batch: usize, block: usize) -> Result<usize, Error> {
        let Some(table) = self.table else { return Ok(block) };
        let found = table[batch * self.blocks + block];
        let page = usize::try_from(found).ok().filter(|page| *page < self.pages);
        page.ok_or(Error::BlockTable { batch, block, pages: self.pages, found })
    }

    fn precision(&self, queries: Queries<'_>) -> Precision {
        match (queries, self.packed) {
            (Queries::Bf16(_), None | Some(Precision::Bf16)) => Precision::Bf16,
            _ => Precision::F32,
        }
    }
}

/// The columns of a matrix of `rows` rows; none where it has no rows.
fn columns(argument: &'static str, found: usize, of: &'static str, rows: usize) -> Result<usize, Error> {
    if rows == 0 {
        check_len(argument, &[0], found)?;
        return Ok(0);
    }
    if !found.is_multiple_of(rows) {
        return Err(Error::Pieces { argument, of, expected: rows, found });
    }
    Ok(found / rows)
}

/// The number of pieces of the given shape.
pub(crate) fn pieces(argument: &'static str, found: usize, of: &'static str, shape: &[usize]) -> Result<usize, Error> {
    columns(argument, found, of, product(shape))
}

/// The number of elements of a shape; no slice has as many as the largest number.
fn product(shape: &[usize]) -> usize {
    shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size)).unwrap_or(usize::MAX)
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
