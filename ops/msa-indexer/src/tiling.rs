// SPDX-License-Identifier: MIT OR Apache-2.0

//! How the kernel cuts its work.

use crate::error::Error;
use crate::shape::{HeadReduce, IndexerDims};
use ascend_rt::Arch;

/// The most rows of a tile: queries times heads.
pub const TILE_ROWS: u32 = 128;
/// The most elements of the queries of a tile, and of a block, with sizes rounded up to 16.
pub const OPERAND: u32 = 128 * 128;
/// The most bytes of a group of blocks.
pub const GROUP_BYTES: u32 = 128 << 10;
/// The most blocks of a group.
pub const GROUP_BLOCKS: u32 = 16;
/// The most products of a unit, for one of two vector cores.
pub const PRODUCTS: u32 = 8192;
/// The most blocks of a sequence.
pub const BLOCKS: u32 = 4096;
/// The most blocks that are selected.
pub const TOP_K: u32 = 64;
/// The most index heads.
pub const HEADS: u32 = 16;
/// The most values of a head, and keys of a block.
pub const SIDE: u32 = 256;
/// 32-bit words of the status of one cube core.
pub const STATUS_WORDS: usize = 16;
/// Places for products between the cores of a block.
const RING: u64 = 3;

ascend_rt::tiling! {
    /// What the kernel is told beside its buffers: `kernel/tiling.h`.
    pub struct MsaIndexerTiling {
        /// Offset in the workspace of products of queries and keys on their way.
        pub ws_products: u64,
        /// Of the block scores of each head, where heads share a selection.
        pub ws_heads: u64,
        /// Queries.
        pub queries: u32,
        /// Index heads.
        pub heads: u32,
        /// Values of a head.
        pub head_dim: u32,
        /// Keys of a block.
        pub block: u32,
        /// Blocks of the sequence, at most.
        pub capacity: u32,
        /// Blocks that are selected.
        pub top_k: u32,
        /// The first blocks, which are forced.
        pub init_blocks: u32,
        /// The last blocks, which are forced; both fit `top_k` together.
        pub local_blocks: u32,
        /// 1: one selection for all heads.
        pub shared: u32,
        /// 1: pages are found by a block table.
        pub has_table: u32,
        /// Queries of a tile.
        pub tile_queries: u32,
        /// Blocks that are worked on at once.
        pub group_blocks: u32,
        /// Pages there are; a launch says it.
        pub pages: u32,
        /// 1: somebody reads the scores of queries that see no more than `top_k` blocks; a launch says it.
        pub want_scores: u32,
        /// 0: BF16, 1: F32.
        pub dtype: u32,
        /// Nothing.
        pub reserved: u32,
    }
}

/// The number format of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// BF16.
    Bf16,
    /// F32, multiplied on the F32 cube.
    F32,
}

/// What a call is like, apart from its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Queries: 1 in a decode step.
    pub queries: usize,
    /// Blocks of the sequence, at most. It is the width of the scores and of the block table.
    pub blocks: usize,
    /// Whether pages are found by a block table.
    pub paged: bool,
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

/// What the kernel takes of the memories of a core with BF16 values; no size of a call changes it, and F32 queries take 32
/// KiB more of L1. `None` where there is no kernel for the architecture. The kernel asserts the same sums when it is compiled.
#[must_use]
pub fn budget(arch: Arch) -> Option<[Use; 5]> {
    let [l1, l0c, ub, l1_all, l0c_all, ub_all] = match arch.number() {
        // Queries, keys; products; scores, sort, ids, constants.
        2201 => [(32 + 384) << 10, 128 << 10, (144 << 10) + 768, (512 << 10) - 256, 128 << 10, (184 << 10) - 256],
        3510 => [(32 + 384) << 10, 128 << 10, (144 << 10) + 768, 512 << 10, 256 << 10, 248 << 10],
        _ => return None,
    };
    let item = |memory, bytes, capacity| Use { memory, bytes, capacity };
    Some([
        item("L1", l1, l1_all),
        item("L0A", 64 << 10, 64 << 10),
        item("L0B", 64 << 10, 64 << 10),
        item("L0C", l0c, l0c_all),
        item("UB", ub, ub_all),
    ])
}

/// How a call is cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// What the kernel is told.
    pub tiling: MsaIndexerTiling,
    /// Blocks to launch; 0: nothing is to do.
    pub blocks: u32,
    /// Bytes of scratch memory.
    pub workspace: usize,
}

impl Split {
    /// For BF16 values on a chip with so many cube cores.
    ///
    /// # Errors
    /// A size is more than the kernel can hold, or there are more queries than keys.
    pub fn new(dims: &IndexerDims, kind: &Kind, cores: u32) -> Result<Self, Error> {
        Self::of_format(dims, kind, cores, Format::Bf16)
    }

    /// For values of a format.
    ///
    /// # Errors
    /// Those of [`Split::new`].
    pub fn of_format(dims: &IndexerDims, kind: &Kind, cores: u32, format: Format) -> Result<Self, Error> {
        dims.check()?;
        let (dtype, bytes) = match format {
            Format::Bf16 => (0, 2),
            Format::F32 => (1, 4),
        };
        let most = |what, found: usize, most: u32| match u32::try_from(found) {
            Ok(found) if found <= most => Ok(found),
            _ => Err(Error::DeviceSize { what, most: most as usize, found }),
        };
        let heads = most("index heads", dims.heads, HEADS)?;
        let head_dim = most("values of a head", dims.head_dim, SIDE)?;
        let block = most("keys of a block", dims.block, SIDE)?;
        let top_k = most("blocks that are selected", dims.topk, TOP_K)?;
        let capacity = most("blocks of the sequence", kind.blocks, BLOCKS)?;
        let (dim16, block16) = (head_dim.next_multiple_of(16), block.next_multiple_of(16));
        most("elements of a block, with both sizes rounded up to 16", (dim16 * block16) as usize, OPERAND)?;
        let queries = most("queries", kind.queries, 1 << 24)?;
        if queries > capacity * block {
            let length = (capacity * block) as usize;
            return Err(Error::QueryBeyondLength { start: 0, queries: kind.queries, length });
        }
        // Rows of a tile: its queries are one operand, and its products with one block fit the places for them.
        let rows = TILE_ROWS.min(2 * PRODUCTS / block16).min(OPERAND / dim16) / 16 * 16;
        let tile_queries = (rows / heads).min(queries).max(1);
        let (half, rows16) = ((tile_queries * heads).div_ceil(2), (tile_queries * heads).next_multiple_of(16));
        let group_blocks = GROUP_BLOCKS
            .min(512 / block16)
            .min(PRODUCTS / (half * block16))
            .min(2 * PRODUCTS / (rows16 * block16))
            .min(GROUP_BYTES / (bytes * block16 * dim16))
            .max(1);
        let init_blocks = (dims.init_blocks.min(dims.topk)) as u32;
        let shared = dims.reduce == HeadReduce::Shared;
        let mut tiling = MsaIndexerTiling {
            ws_products: 0,
            ws_heads: 0,
            queries,
            heads,
            head_dim,
            block,
            capacity,
            top_k,
            init_blocks,
            local_blocks: dims.local_blocks.min((top_k - init_blocks) as usize) as u32,
            shared: u32::from(shared),
            has_table: u32::from(kind.paged),
            tile_queries,
            group_blocks,
            pages: 0,
            want_scores: 1,
            dtype,
            reserved: 0,
        };
        if queries == 0 {
            return Ok(Self { tiling, blocks: 0, workspace: 0 });
        }
        let blocks = cores.max(1);
        let products = 4 * u64::from(blocks) * RING * u64::from(2 * half * group_blocks * block16);
        let scores = 4 * u64::from(queries) * u64::from(heads) * u64::from(capacity);
        tiling.ws_heads = products.next_multiple_of(512);
        let workspace = tiling.ws_heads + if shared { scores } else { 0 };
        Ok(Self { tiling, blocks, workspace: workspace as usize })
    }
}
