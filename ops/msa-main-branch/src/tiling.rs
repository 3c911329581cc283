// SPDX-License-Identifier: MIT OR Apache-2.0

//! How the kernel cuts its work.

use crate::error::Error;
use crate::knobs::Dtype;
use crate::shape::AttentionDims;

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
        Self::of_slots(dims, kind, cores, TASK_SLOTS)
    }

    /// With tasks of at most so many slots, which is for tests: fewer slots make more tasks.
    ///
    /// # Errors
    /// Those of [`Split::new`].
    pub fn of_slots(dims: &AttentionDims, kind: &Kind, cores: u32, pass_slots: u32) -> Result<Self, Error> {
        dims.check()?;
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
        let tile_queries = (ITEM_ROWS / group).min(list_queries);
        let list_tiles = list_queries.div_ceil(tile_queries);
        let items = [lists, list_tiles, kv_heads].into_iter().map(u64::from).product::<u64>();
        let items = most("items", usize::try_from(items).unwrap_or(usize::MAX), 1 << 30)?;
        let (dim16, block16) = (head_dim.next_multiple_of(16), block.next_multiple_of(16));
        let (dtype, bytes) = match kind.dtype {
            Dtype::Bf16 => (0, 2),
            Dtype::F16 => (1, 2),
            Dtype::F32 => (2, 4),
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
            pass_slots: pass_slots.clamp(1, TASK_SLOTS).min(1024 / (bytes * block16)),
            scale: dims.scale(),
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
