// SPDX-License-Identifier: MIT OR Apache-2.0

//! How the kernel cuts its work.

use crate::error::Error;
use crate::knobs::{Dtype, NQ_TILE, NTILE};
use crate::shape::AttentionDims;
use ascend_rt::Arch;

/// Rows of an item: queries times the heads that share a KV head.
pub const ITEM_ROWS: u32 = 128;
/// The most channels of a head.
pub const HEAD_DIM: u32 = 128;
/// The most keys of a block.
pub const BLOCK: u32 = 128;
/// The most slots of a task.
pub const TASK_SLOTS: u32 = 8;
/// The most values of a query: what a copy can stride over.
pub const QUERY_WIDTH: u32 = u16::MAX as u32;
/// 32-bit words of the status of one core.
pub const STATUS_WORDS: usize = 16;
/// Places of a core for weights and for parts of tasks.
const RING: u64 = 2;
/// For scores, of which the cube core is further ahead.
const SCORES_RING: u64 = 3;

ascend_rt::tiling! {
    /// What the kernel is told beside its buffers: `kernel/tiling.h`.
    pub struct MsaMainBranchTiling {
        /// Queries.
        pub n: u32,
        /// The position of the first; a launch says it.
        pub start: u32,
        /// Query heads.
        pub heads: u32,
        /// KV heads.
        pub kv_heads: u32,
        /// Channels of a head.
        pub head_dim: u32,
        /// Keys of a block.
        pub block: u32,
        /// 0: BF16, 1: F16, 2: F32.
        pub dtype: u32,
        /// 0: every block, without a list.
        pub has_lists: u32,
        /// Queries that share lists.
        pub list_queries: u32,
        /// Lists of such a tile: 1, or one for each KV head.
        pub list_heads: u32,
        /// Entries of a list.
        pub topk: u32,
        /// 1: pages are found by a table.
        pub has_table: u32,
        /// Queries of an item, at most.
        pub tile_queries: u32,
        /// Items of a KV head that share a list, at most.
        pub list_tiles: u32,
        /// Items.
        pub items: u32,
        /// Slots of a task, at most.
        pub pass_slots: u32,
        /// What scores are multiplied by.
        pub scale: f32,
        /// 1: every query sees every slot as far as the mask lets it, whatever its position.
        pub has_mask: u32,
        /// Slots of the mask.
        pub mask_slots: u32,
        /// Nothing.
        pub reserved: u32,
        /// Elements of keys from a token to the next.
        pub kv_row_pitch: u64,
        /// From a KV head to the next.
        pub kv_head_pitch: u64,
        /// From a page to the next.
        pub kv_page_pitch: u64,
        /// Pages there are; a launch says it.
        pub pages: u64,
        /// Offset in the workspace of the scores.
        pub ws_scores: u64,
        /// Of the weights.
        pub ws_weights: u64,
        /// Of the parts.
        pub ws_parts: u64,
    }
}

/// How keys and values lie in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `[tokens, kv_heads, head_dim]`.
    Plain,
    /// `[pages, kv_heads, block, head_dim]`, and a table with the page of each block.
    Paged,
    /// `[slots, block, kv_heads, head_dim]`, and a table with the slot of each block.
    Gathered,
}

/// Which lists of blocks there are: [`Blocks`](crate::Blocks) without the ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lists {
    /// None: dense causal attention.
    All,
    /// `[topk]`.
    Shared,
    /// `[ceil(n / tile), topk]`.
    PerTile {
        /// Queries of a tile.
        tile: usize,
    },
    /// `[ceil(n / tile), kv_heads, topk]`.
    PerTileAndHead {
        /// Queries of a tile.
        tile: usize,
    },
    /// `[n, kv_heads, topk]`.
    PerQuery,
}

/// What a call is like, apart from its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Queries.
    pub n: usize,
    /// Queries, keys and values. Probabilities are rounded to the same format before they multiply the values.
    pub dtype: Dtype,
    /// Keys and values.
    pub layout: Layout,
    /// The lists.
    pub lists: Lists,
    /// Entries of a list.
    pub topk: usize,
}

/// Sizes that a caller may choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tiles {
    /// Keys of a step of the online softmax, a multiple of the block. `None`: 512, in F32 256, or 8 blocks if those are less.
    pub keys: Option<usize>,
    /// The most queries of an item. `None`: as many as 128 rows hold. Results depend on both by rounding.
    pub queries: Option<usize>,
}

impl Tiles {
    /// What the environment says ([`NTILE`] and [`NQ_TILE`]).
    ///
    /// # Errors
    /// [`Error::Knob`] for an impossible value.
    pub fn from_env() -> Result<Self, Error> {
        Ok(Self { keys: NTILE.value()?, queries: NQ_TILE.value()? })
    }

    /// Slots of a task.
    fn slots(&self, dims: &AttentionDims, dtype: Dtype) -> Result<u32, Error> {
        if self.queries == Some(0) {
            return Err(NQ_TILE.refuse("0".to_owned(), NQ_TILE.expected.to_owned()));
        }
        let Some(keys) = self.keys else {
            return Ok(TASK_SLOTS);
        };
        if keys == 0 || !keys.is_multiple_of(dims.block) {
            let expected = format!("a positive multiple of {}, the keys of a block", dims.block);
            return Err(NTILE.refuse(keys.to_string(), expected));
        }
        let (most, _) = task_keys(dtype);
        let slots = keys / dims.block;
        if slots > TASK_SLOTS as usize || slots * dims.block.next_multiple_of(16) > most as usize {
            let bytes = 64 * slots.saturating_mul(dims.block.next_multiple_of(16));
            let capacity = 64 * most.min(TASK_SLOTS * dims.block.next_multiple_of(16) as u32);
            let memory = "the unified buffer, for scores of 16 rows";
            return Err(Error::Budget { knob: NTILE.name, memory, bytes, capacity: capacity as usize });
        }
        Ok(slots as u32)
    }
}

/// The most keys of a task, with blocks rounded up to 16, and the bytes of a value.
const fn task_keys(dtype: Dtype) -> (u32, u32) {
    match dtype {
        Dtype::Bf16 | Dtype::F16 => (512, 2),
        Dtype::F32 => (256, 4),
    }
}

/// A memory of a core, what the kernel takes of it, and what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// The memory.
    pub memory: &'static str,
    /// Bytes taken.
    pub bytes: u32,
    /// Bytes there are.
    pub capacity: u32,
}

/// What the kernel takes of the memories of a core, whatever the sizes of a call; `None` where there is no kernel for the
/// architecture. The kernel asserts the same sums when it is compiled. [`budget`] is that of BF16 and F16.
#[must_use]
pub fn budget_of(arch: Arch, dtype: Dtype) -> Option<[Use; 5]> {
    // What there is, rows of scores in L0C, and rows that a vector core works on at once.
    let ([l1_all, l0c_all, ub_all], piece_rows, slice_rows) = match arch.number() {
        2201 => ([(512 << 10) - 256, 128 << 10, (184 << 10) - 256], 64, 16),
        3510 => ([512 << 10, 256 << 10, 248 << 10], 128, 24),
        _ => return None,
    };
    let (keys, bytes) = task_keys(dtype);
    let operand = ITEM_ROWS * HEAD_DIM * bytes;
    // Queries, two blocks of keys and of values, weights: of two tasks where they come straight from the vector cores.
    let weights = if arch.number() == 3510 && bytes == 2 { RING as u32 } else { 1 } * ITEM_ROWS * keys * bytes;
    let l1 = operand + 4 * BLOCK * HEAD_DIM * bytes + weights;
    // Two places for scores and for weights, and a tree of maxima or sums; two for sums of values; statistics of the rows.
    let (slice, rows) = (slice_rows * keys, ITEM_ROWS / 2);
    let statistics = 7 * 32 * rows + 32 * (TASK_SLOTS * slice_rows).max(2 * rows) + 4 * (slice_rows + rows);
    let ub = 2 * slice * (4 + bytes) + slice / 2 + 4 * ITEM_ROWS * HEAD_DIM + statistics + 512 + 512 + 32;
    let item = |memory, bytes, capacity| Use { memory, bytes, capacity };
    Some([
        item("L1", l1, l1_all),
        item("L0A", 64 << 10, 64 << 10),
        item("L0B", 64 << 10, 64 << 10),
        item("L0C", 4 * (2 * piece_rows * BLOCK + ITEM_ROWS * HEAD_DIM), l0c_all),
        item("UB", ub, ub_all),
    ])
}

/// [`budget_of`] BF16 and F16.
#[must_use]
pub fn budget(arch: Arch) -> Option<[Use; 5]> {
    budget_of(arch, Dtype::Bf16)
}

/// How a call is cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// What the kernel is told.
    pub tiling: MsaMainBranchTiling,
    /// Blocks to launch; 0: nothing is to do.
    pub blocks: u32,
    /// Bytes of scratch memory.
    pub workspace: usize,
}

impl Split {
    /// For a chip with so many cube cores.
    ///
    /// # Errors
    /// A size is impossible or more than the kernel can hold.
    pub fn new(dims: &AttentionDims, kind: &Kind, cores: u32) -> Result<Self, Error> {
        Self::with_tiles(dims, kind, cores, &Tiles::default())
    }

    /// With sizes of the caller's.
    ///
    /// # Errors
    /// Those of [`Split::new`]; a size is more than a memory holds.
    pub fn with_tiles(dims: &AttentionDims, kind: &Kind, cores: u32, tiles: &Tiles) -> Result<Self, Error> {
        dims.check()?;
        let slots = tiles.slots(dims, kind.dtype)?;
        Self::cut(dims, kind, cores, slots, tiles.queries.unwrap_or(usize::MAX), None)
    }

    /// For `n` queries, gathered blocks of `slots` slots and an additive mask.
    ///
    /// # Errors
    /// Those of [`Split::with_tiles`].
    pub fn masked(
        dims: &AttentionDims,
        n: usize,
        dtype: Dtype,
        slots: usize,
        cores: u32,
        tiles: &Tiles,
    ) -> Result<Self, Error> {
        dims.check()?;
        let kind = Kind { n, dtype, layout: Layout::Plain, lists: Lists::All, topk: 0 };
        Self::cut(dims, &kind, cores, tiles.slots(dims, dtype)?, tiles.queries.unwrap_or(usize::MAX), Some(slots))
    }

    /// With tasks of at most so many slots, which is for tests: fewer slots make more tasks.
    ///
    /// # Errors
    /// Those of [`Split::new`].
    pub fn of_slots(dims: &AttentionDims, kind: &Kind, cores: u32, pass_slots: u32) -> Result<Self, Error> {
        dims.check()?;
        Self::cut(dims, kind, cores, pass_slots, usize::MAX, None)
    }

    /// The dims are checked.
    fn cut(
        dims: &AttentionDims,
        kind: &Kind,
        cores: u32,
        pass_slots: u32,
        tile: usize,
        mask_slots: Option<usize>,
    ) -> Result<Self, Error> {
        let most_queries = u32::try_from(tile).unwrap_or(u32::MAX);
        let most = |what, found: usize, most: u32| match u32::try_from(found) {
            Ok(found) if found <= most => Ok(found),
            _ => Err(Error::DeviceSize { what, most: most as usize, found }),
        };
        let head_dim = most("channels of a head", dims.head_dim, HEAD_DIM)?;
        let block = most("keys of a block", dims.block, BLOCK)?;
        let group = most("query heads of a KV head", dims.group(), ITEM_ROWS)?;
        most("values of a query", dims.width(), QUERY_WIDTH)?;
        let (heads, kv_heads) = (dims.heads as u32, dims.kv_heads as u32);
        let n = most("queries", kind.n, 1 << 30)?;
        most("rows of queries", kind.n.saturating_mul(dims.heads), 1 << 31)?;
        let (tile, list_heads) = match kind.lists {
            Lists::All | Lists::Shared => (kind.n, 1),
            Lists::PerTile { tile } => (tile, 1),
            Lists::PerTileAndHead { tile } => (tile, kv_heads),
            Lists::PerQuery => (1, kv_heads),
        };
        if tile == 0 && kind.n > 0 {
            return Err(Error::ZeroSize { field: "tile" });
        }
        let list_queries = tile.clamp(1, kind.n.max(1)) as u32;
        let lists = n.div_ceil(list_queries);
        let topk = most("entries of a list", kind.topk, 1 << 30)?;
        let tile_queries = (ITEM_ROWS / group).min(list_queries).min(most_queries);
        let list_tiles = list_queries.div_ceil(tile_queries);
        let items = [lists, list_tiles, kv_heads].into_iter().map(u64::from).product::<u64>();
        let items = most("items", usize::try_from(items).unwrap_or(usize::MAX), 1 << 30)?;
        let (dim16, block16) = (head_dim.next_multiple_of(16), block.next_multiple_of(16));
        let mask_slots = mask_slots.map(|slots| most("slots of the mask", slots, 1 << 20)).transpose()?;
        let (keys, bytes) = task_keys(kind.dtype);
        let dtype = match kind.dtype {
            Dtype::Bf16 => 0,
            Dtype::F16 => 1,
            Dtype::F32 => 2,
        };
        let (row, page) = (u64::from(head_dim), u64::from(block) * u64::from(head_dim));
        let (kv_row_pitch, kv_head_pitch) = match kind.layout {
            Layout::Plain | Layout::Gathered => (u64::from(kv_heads) * row, row),
            Layout::Paged => (row, page),
        };
        let mut tiling = MsaMainBranchTiling {
            n,
            start: 0,
            heads,
            kv_heads,
            head_dim,
            block,
            dtype,
            has_lists: u32::from(kind.lists != Lists::All),
            list_queries,
            list_heads,
            topk,
            has_table: u32::from(kind.layout != Layout::Plain),
            tile_queries,
            list_tiles,
            items,
            pass_slots: pass_slots.clamp(1, TASK_SLOTS).min(keys / block16),
            scale: dims.scale(),
            has_mask: u32::from(mask_slots.is_some()),
            mask_slots: mask_slots.unwrap_or(0),
            reserved: 0,
            kv_row_pitch,
            kv_head_pitch,
            kv_page_pitch: u64::from(kv_heads) * page,
            pages: 0,
            ws_scores: 0,
            ws_weights: 0,
            ws_parts: 0,
        };
        let blocks = cores.max(1).min(items);
        let tile = u64::from(ITEM_ROWS * block16) * u64::from(tiling.pass_slots) * u64::from(blocks);
        let part = u64::from(ITEM_ROWS * dim16) * RING * u64::from(blocks);
        let mut end = 0u64;
        let mut region = |bytes: u64| {
            let start = end;
            end += bytes.next_multiple_of(512);
            start
        };
        tiling.ws_scores = region(4 * SCORES_RING * tile);
        tiling.ws_weights = region(u64::from(bytes) * RING * tile);
        tiling.ws_parts = region(4 * part);
        Ok(Self { tiling, blocks, workspace: end as usize })
    }
}
