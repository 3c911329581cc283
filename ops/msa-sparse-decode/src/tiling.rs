// SPDX-License-Identifier: MIT OR Apache-2.0

//! How the kernel cuts its work.

use crate::error::Error;
use crate::knobs::NTILE;
use crate::shape::DecodeDims;
use ascend_rt::Arch;
use cpu_tiles::Precision;

/// Rows of a tile of the cube unit: query heads of one KV head.
pub const TILE_ROWS: u32 = 16;
/// The most slots of a task.
pub const TASK_SLOTS: u32 = 16;
/// The most keys of a task, blocks rounded up to 16 keys.
pub const TASK_KEYS: u32 = 2048;
/// The most elements of a page, both sizes rounded up to 16.
pub const PAGE: u32 = 128 * 128;
/// The most channels of a head.
pub const HEAD_DIM: u32 = 256;
/// The most keys of a block.
pub const BLOCK: u32 = 256;
/// Fewer slots than this are not worth a core.
pub const CORE_SLOTS: u32 = 3;
/// 32-bit words of the status of one cube core.
pub const STATUS_WORDS: usize = 16;
/// F32 values beside each row of a part.
const STATS: u32 = 16;
/// Tasks of a core that are on their way at once.
const RING: u64 = 2;

ascend_rt::tiling! {
    /// What the kernel is told beside its buffers: `kernel/tiling.h`.
    pub struct MsaSparseDecodeTiling {
        /// Query heads.
        pub heads: u32,
        /// KV heads.
        pub kv_heads: u32,
        /// Channels of a head.
        pub head_dim: u32,
        /// Keys of a block.
        pub block: u32,
        /// Tiles of at most 16 query heads of a KV head.
        pub row_tiles: u32,
        /// Batch entries x KV heads x row tiles.
        pub items: u32,
        /// Slots of a list, at least 1.
        pub topk: u32,
        /// 1: a list for each KV head, 0: one for all.
        pub per_head: u32,
        /// Blocks of a sequence.
        pub capacity: u32,
        /// 1: pages are found by a block table.
        pub has_table: u32,
        /// BF16 numbers that make up a query element and a probability: 1, or 3 in exact mode.
        pub terms: u32,
        /// 1: the result is F32, 0: BF16.
        pub out_f32: u32,
        /// Slots of a task.
        pub pass_slots: u32,
        /// Tasks of a core, at most.
        pub tasks: u32,
        /// Rows of a unit of the merge; 0: every item is one task, and there is nothing to merge.
        pub merge_rows: u32,
        /// What scores are multiplied by.
        pub scale: f32,
        /// Elements of keys from a batch entry to the next.
        pub kv_batch_pitch: u64,
        /// From a KV head to the next.
        pub kv_head_pitch: u64,
        /// From a page to the next.
        pub kv_page_pitch: u64,
        /// Elements from a term of the queries to the next.
        pub term_pitch: u64,
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
pub enum CacheLayout {
    /// `[B, G, blocks, block, D]`.
    Plain {
        /// Blocks of a sequence.
        blocks: usize,
    },
    /// `[pages, G, block, D]` and a block table `[B, blocks]`.
    Paged {
        /// Blocks of a sequence.
        blocks: usize,
    },
}

/// What a call is like, apart from its values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kind {
    /// Batch entries.
    pub batch: usize,
    /// Slots of a list.
    pub top_k: usize,
    /// Whether each KV head has a list of its own.
    pub per_kv_head: bool,
    /// Keys and values.
    pub cache: CacheLayout,
    /// BF16: queries and probabilities are BF16. F32: they are three BF16 numbers each, which sum up to all bits of an F32.
    pub precision: Precision,
    /// Whether the result is F32, not BF16.
    pub out_f32: bool,
}

/// Sizes that a caller may choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tiles {
    /// Keys of a task, whose softmax is taken at once, a multiple of the block. `None`: 2048, in exact mode 682, or 16 blocks
    /// if those are less.
    pub keys: Option<usize>,
}

impl Tiles {
    /// What the environment says ([`NTILE`]).
    ///
    /// # Errors
    /// [`Error::Knob`] for an impossible value.
    pub fn from_env(dims: &DecodeDims) -> Result<Self, Error> {
        Ok(Self { keys: NTILE.value(dims.block)? })
    }

    /// Slots of a task. The dims are checked.
    fn slots(&self, dims: &DecodeDims, precision: Precision) -> Result<u32, Error> {
        let Some(keys) = self.keys else {
            return Ok(TASK_SLOTS);
        };
        NTILE.parse(dims.block, &keys.to_string())?;
        let (slots, block16) = (keys / dims.block, dims.block.next_multiple_of(16));
        let most = (TASK_KEYS as usize / (terms(precision) as usize * block16)).min(TASK_SLOTS as usize);
        if slots > most {
            let bytes = |slots: usize| 32usize.saturating_mul(slots).saturating_mul(block16);
            let memory = "the unified buffer, for scores of 8 rows";
            return Err(Error::Budget { knob: NTILE.name, memory, bytes: bytes(slots), capacity: bytes(most) });
        }
        Ok(slots as u32)
    }
}

/// BF16 numbers that make up an element.
const fn terms(precision: Precision) -> u32 {
    match precision {
        Precision::Bf16 => 1,
        Precision::F32 => 3,
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

/// What the kernel takes of the memories of a core; no size of a call changes it. `None` where there is no kernel for the
/// architecture. The kernel asserts the same sums when it is compiled.
#[must_use]
pub fn budget(arch: Arch) -> Option<[Use; 5]> {
    let [l1, l0c, ub, l1_all, l0c_all, ub_all] = match arch.number() {
        // Queries, keys, values, weights; scores, part; scores, weights and a tree of them, three sets of rows, statistics.
        2201 => [
            (24 + 128 + 256 + 64) << 10,
            80 << 10,
            (128 << 10) + 30_784,
            (512 << 10) - 256,
            128 << 10,
            (184 << 10) - 256,
        ],
        3510 => [(24 + 128 + 192 + 128) << 10, 80 << 10, (192 << 10) + 30_784, 512 << 10, 256 << 10, 248 << 10],
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
    pub tiling: MsaSparseDecodeTiling,
    /// Blocks to launch; 0: nothing is to do.
    pub blocks: u32,
    /// Bytes of scratch memory.
    pub workspace: usize,
}

impl Split {
    /// For a chip with so many cube cores.
    ///
    /// # Errors
    /// A size is more than the kernel can hold.
    pub fn new(dims: &DecodeDims, kind: &Kind, cores: u32) -> Result<Self, Error> {
        Self::with_tiles(dims, kind, cores, &Tiles::default())
    }

    /// With sizes of the caller's.
    ///
    /// # Errors
    /// Those of [`Split::new`]; a size is more than a memory holds.
    pub fn with_tiles(dims: &DecodeDims, kind: &Kind, cores: u32, tiles: &Tiles) -> Result<Self, Error> {
        dims.check()?;
        Self::of_slots(dims, kind, cores, tiles.slots(dims, kind.precision)?)
    }

    /// With tasks of at most so many slots, which is for tests: fewer slots make more tasks.
    ///
    /// # Errors
    /// Those of [`Split::new`].
    pub fn of_slots(dims: &DecodeDims, kind: &Kind, cores: u32, pass_slots: u32) -> Result<Self, Error> {
        dims.check()?;
        let most = |what, found: usize, most: u32| match u32::try_from(found) {
            Ok(found) if found <= most => Ok(found),
            _ => Err(Error::DeviceSize { what, most: most as usize, found }),
        };
        let head_dim = most("channels of a head", dims.head_dim, HEAD_DIM)?;
        let block = most("keys of a block", dims.block, BLOCK)?;
        let (dim16, block16) = (head_dim.next_multiple_of(16), block.next_multiple_of(16));
        most("elements of a page, with both sizes rounded up to 16", (dim16 * block16) as usize, PAGE)?;
        let group = dims.group();
        let row_tiles = group.div_ceil(TILE_ROWS as usize);
        let tops = kind.top_k.max(1);
        let all = [kind.batch, dims.kv_heads, row_tiles, tops]
            .into_iter()
            .try_fold(1usize, |all, size| all.checked_mul(size));
        let slots = most("slots of all lists", all.unwrap_or(usize::MAX), 1 << 28)?;
        let (CacheLayout::Plain { blocks: capacity } | CacheLayout::Paged { blocks: capacity }) = kind.cache;
        most("keys of a sequence", capacity.saturating_mul(dims.block), i32::MAX as u32)?;
        let heads = most("query heads of all batch entries", kind.batch.saturating_mul(dims.heads), 1 << 28)?;
        let _ = most("query heads", dims.heads, 1 << 28)?;

        let terms = terms(kind.precision);
        let page = dims.block as u64 * dims.head_dim as u64;
        let (kv_batch_pitch, kv_head_pitch, kv_page_pitch) = match kind.cache {
            CacheLayout::Plain { blocks } => (dims.kv_heads as u64 * blocks as u64 * page, blocks as u64 * page, page),
            CacheLayout::Paged { .. } => (0, page, dims.kv_heads as u64 * page),
        };
        let mut tiling = MsaSparseDecodeTiling {
            heads: dims.heads as u32,
            kv_heads: dims.kv_heads as u32,
            head_dim,
            block,
            row_tiles: row_tiles as u32,
            items: slots / tops as u32,
            topk: tops as u32,
            per_head: u32::from(kind.per_kv_head),
            capacity: capacity as u32,
            has_table: u32::from(matches!(kind.cache, CacheLayout::Paged { .. })),
            terms,
            out_f32: u32::from(kind.out_f32),
            pass_slots: pass_slots.clamp(1, TASK_SLOTS).min(TASK_KEYS / (terms * block16)),
            tasks: 0,
            merge_rows: 0,
            scale: dims.scale(),
            kv_batch_pitch,
            kv_head_pitch,
            kv_page_pitch,
            term_pitch: u64::from(heads) * u64::from(head_dim),
            pages: 0,
            ws_scores: 0,
            ws_weights: 0,
            ws_parts: 0,
        };
        let blocks = cores.max(1).min(slots.div_ceil(CORE_SLOTS));
        if blocks == 0 {
            return Ok(Self { tiling, blocks, workspace: 0 });
        }
        let first = |core: u32| (u64::from(slots) * u64::from(core) / u64::from(blocks)) as u32;
        tiling.tasks = (0..blocks).map(|core| tiling.tasks_in(first(core), first(core + 1))).max().unwrap_or(0);
        let whole = tiling.topk <= tiling.pass_slots && (0..blocks).all(|core| first(core).is_multiple_of(tiling.topk));
        if !whole {
            let rows = tiling.items * TILE_ROWS.min(group as u32);
            tiling.merge_rows = rows.div_ceil(2 * blocks).clamp(1, 8);
        }
        let tile = u64::from(TILE_ROWS * block16) * u64::from(tiling.pass_slots) * RING * u64::from(blocks);
        let part = u64::from(TILE_ROWS * (dim16 + STATS)) * u64::from(tiling.tasks) * u64::from(blocks);
        let mut end = 0u64;
        let mut region = |bytes: u64| {
            let start = end;
            end += bytes.next_multiple_of(512);
            start
        };
        tiling.ws_scores = region(4 * tile);
        tiling.ws_weights = region(2 * tile * u64::from(terms));
        tiling.ws_parts = region(4 * part);
        Ok(Self { tiling, blocks, workspace: end as usize })
    }
}

impl MsaSparseDecodeTiling {
    /// Tasks of a range of slots.
    fn tasks_in(&self, from: u32, to: u32) -> u32 {
        let (mut at, mut count) = (from, 0);
        while at < to {
            let stop = to.min((at / self.topk + 1) * self.topk);
            count += (stop - at).div_ceil(self.pass_slots);
            at = stop;
        }
        count
    }
}
