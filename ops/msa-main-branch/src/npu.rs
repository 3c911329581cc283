// SPDX-License-Identifier: MIT OR Apache-2.0

//! The operator on a device: a card, or the emulator with the twin of its cores. One code for both.
//!
//! Lists and tables are read by the device when a launch runs, so they may be what an earlier launch leaves. Nobody checks
//! them then: ids that are negative, or of blocks behind the last query of a tile, are passed over; one that is listed twice
//! counts twice. An entry of a table that is no page is taken for page 0. [`Plan::take_status`] tells of ids and pages that are
//! none, and of queries that saw nothing.
//!
//! Probabilities are rounded to the format of the inputs, F16 too, which the CPU keeps in F32.
//!
//! ```no_run
//! use ascend_rt::{Choice, Runtime};
//! use half::bf16;
//! use msa_main_branch::AttentionDims;
//! use msa_main_branch::knobs::Dtype;
//! use msa_main_branch::npu::{Call, Inputs, Kind, Layout, Lists, Plan};
//!
//! # fn main() -> Result<(), msa_main_branch::Error> {
//! let context = Runtime::open(Choice::Auto)?.device(0)?.isolated()?;
//! let stream = context.stream()?;
//! let dims = AttentionDims::M3;
//! let kind = Kind { n: 300, dtype: Dtype::Bf16, layout: Layout::Plain, lists: Lists::Shared, topk: 2 };
//! let mut plan = Plan::new(&stream, &dims, &kind)?;
//! let q = stream.upload(&vec![bf16::ONE; 300 * 64 * 128])?;
//! let kv = stream.upload(&vec![bf16::ONE; 300 * 4 * 128])?;
//! let ids = stream.upload(&[2, 0])?;
//! let mut out = stream.upload(&vec![0.0f32; 300 * 64 * 128])?;
//! let mut seen = stream.upload(&vec![0; 300 * 4])?;
//! plan.launch(&stream, Call {
//!     inputs: Inputs::Bf16 { query: (&q).into(), keys: (&kv).into(), values: (&kv).into() },
//!     start: 0,
//!     table: None,
//!     block_ids: Some((&ids).into()),
//!     out: (&mut out).into(),
//!     seen: (&mut seen).into(),
//! })?;
//! println!("{:?}", stream.download(&out)?);
//! # Ok(())
//! # }
//! ```

use crate::error::Error;
use crate::knobs::Dtype;
use crate::shape::{AttentionDims, Blocks, check_len, check_lists, check_table, rows_of};
use crate::tiling::STATUS_WORDS;
pub use crate::tiling::{Kind, Layout, Lists, MsaMainBranchTiling, Split, Tiles, Use, budget, budget_of};
use ascend_rt::{DeviceBuffer, DeviceSlice, DeviceSliceMut, Kernel, Launch, Module, Queue, Stream, kernel};
use half::{bf16, f16};

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

kernel! {
    /// `kernel/msa_main_branch.cpp`.
    pub(crate) kernel MsaMainBranch("msa_main_branch") on mix(2) with barrier {
        q: in u8,
        k: in u8,
        v: in u8,
        table: in i32,
        ids: in i32,
        mask: in f32,
        out: inout f32,
        seen: inout i32,
        status: inout u32,
        workspace: workspace,
        tiling: tiling MsaMainBranchTiling,
    }
}

/// What made the device code of this build, or why there is none.
#[must_use]
pub fn origin() -> &'static str {
    ORIGIN
}

/// What made the images for the twin, or why there are none.
#[must_use]
pub fn twin_origin() -> &'static str {
    TWIN_ORIGIN
}

/// The code of this build for one device, and on which it runs.
#[must_use]
pub fn blobs() -> &'static [ascend_rt::Blob] {
    BLOBS
}

/// The slot of each of `blocks` blocks, -1 where it was not gathered: the table of [`Layout::Gathered`] from the ids of the
/// slots.
#[must_use]
pub fn slots_of(ids: &[i32], blocks: usize) -> Vec<i32> {
    let mut table = vec![-1; blocks];
    for (slot, &id) in ids.iter().enumerate() {
        if let Some(entry) = usize::try_from(id).ok().and_then(|id| table.get_mut(id)) {
            *entry = slot as i32;
        }
    }
    table
}

/// Queries `[n, heads, head_dim]`, and keys and values as [`Layout`] says.
#[derive(Clone, Copy, Debug)]
pub enum Inputs<'a> {
    /// BF16.
    Bf16 {
        /// Queries.
        query: DeviceSlice<'a, bf16>,
        /// Keys.
        keys: DeviceSlice<'a, bf16>,
        /// Values.
        values: DeviceSlice<'a, bf16>,
    },
    /// F16.
    F16 {
        /// Queries.
        query: DeviceSlice<'a, f16>,
        /// Keys.
        keys: DeviceSlice<'a, f16>,
        /// Values.
        values: DeviceSlice<'a, f16>,
    },
    /// F32.
    F32 {
        /// Queries.
        query: DeviceSlice<'a, f32>,
        /// Keys.
        keys: DeviceSlice<'a, f32>,
        /// Values.
        values: DeviceSlice<'a, f32>,
    },
}

/// The arguments of a launch, all on the device.
#[derive(Debug)]
pub struct Call<'a> {
    /// Queries, keys and values.
    pub inputs: Inputs<'a>,
    /// The position of the first query.
    pub start: usize,
    /// The page or slot of each block, where the layout has one.
    pub table: Option<DeviceSlice<'a, i32>>,
    /// The lists, where there are any.
    pub block_ids: Option<DeviceSlice<'a, i32>>,
    /// The result, `[n, heads, head_dim]`.
    pub out: DeviceSliceMut<'a, f32>,
    /// `[n, kv_heads]`: 1 where the query saw a key in the heads of a KV head, else 0.
    pub seen: DeviceSliceMut<'a, i32>,
}

/// The arguments of a launch in the published form, all on the device: gathered blocks and an additive mask in place of lists
/// and positions. Keys and values must be finite, also where the mask hides them.
#[derive(Debug)]
pub struct MaskedCall<'a> {
    /// Queries; keys and values `[slots * block, kv_heads, head_dim]`.
    pub inputs: Inputs<'a>,
    /// `[ceil(n / block), slots, block, block]`, added to the scaled scores. [`MASK_NEG`](crate::MASK_NEG) or less hides a key.
    pub mask: DeviceSlice<'a, f32>,
    /// The result, `[n, heads, head_dim]`.
    pub out: DeviceSliceMut<'a, f32>,
    /// `[n, kv_heads]`: 1 where the query saw a key in the heads of a KV head, else 0.
    pub seen: DeviceSliceMut<'a, i32>,
}

/// What launches have met that the host cannot see beforehand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// A listed id was less than -1, or at or beyond the last block of keys in the order of tokens; or an entry of the table
    /// was no page, and page 0 was read in its place.
    pub index: bool,
    /// A query saw nothing.
    pub blind: bool,
}

/// All that launches of one kind need: the loaded kernel, its tiling and its scratch memory.
#[derive(Debug)]
pub struct Plan {
    kernel: Kernel<MsaMainBranch<'static>>,
    split: Split,
    dims: AttentionDims,
    kind: Kind,
    /// The slots of the published form.
    mask_slots: Option<usize>,
    /// Stands for lists and tables that there are not.
    nothing: DeviceBuffer<i32>,
    /// Stands for a mask.
    no_mask: DeviceBuffer<f32>,
    status: DeviceBuffer<u32>,
    workspace: DeviceBuffer<u8>,
}

/// Lengths in elements, and bytes, of queries, keys and values.
type Sides<'a> = ([usize; 3], [DeviceSlice<'a, u8>; 3]);

/// The inputs, if they are of the format.
fn sides(inputs: Inputs<'_>, dtype: Dtype) -> Result<Sides<'_>, Error> {
    let other = |expected| Err(Error::OtherPlan { argument: "inputs", expected });
    Ok(match (inputs, dtype) {
        (Inputs::Bf16 { query, keys, values }, Dtype::Bf16) => {
            ([query.len(), keys.len(), values.len()], [query.cast()?, keys.cast()?, values.cast()?])
        }
        (Inputs::F16 { query, keys, values }, Dtype::F16) => {
            ([query.len(), keys.len(), values.len()], [query.cast()?, keys.cast()?, values.cast()?])
        }
        (Inputs::F32 { query, keys, values }, Dtype::F32) => {
            ([query.len(), keys.len(), values.len()], [query.cast()?, keys.cast()?, values.cast()?])
        }
        (_, Dtype::Bf16) => return other("BF16"),
        (_, Dtype::F16) => return other("F16"),
        (_, Dtype::F32) => return other("F32"),
    })
}

impl Plan {
    /// For calls of a kind in the context of the stream, which is used to set up memory.
    ///
    /// # Errors
    /// A size is impossible or more than the kernel can hold, there is no kernel for the device in this build, or device
    /// memory runs out.
    pub fn new(stream: &Stream, dims: &AttentionDims, kind: &Kind) -> Result<Self, Error> {
        Self::with_tiles(stream, dims, kind, &Tiles::default())
    }

    /// With sizes of the caller's, as [`Tiles::from_env`] gives them.
    ///
    /// # Errors
    /// Those of [`Plan::new`]; a size is more than a memory holds.
    pub fn with_tiles(stream: &Stream, dims: &AttentionDims, kind: &Kind, tiles: &Tiles) -> Result<Self, Error> {
        Self::of(stream, dims, *kind, None, |cores| Split::with_tiles(dims, kind, cores, tiles))
    }

    /// For calls of `n` queries in the published form: gathered blocks of `slots` slots, and a mask.
    ///
    /// # Errors
    /// Those of [`Plan::with_tiles`].
    pub fn masked(
        stream: &Stream,
        dims: &AttentionDims,
        n: usize,
        dtype: Dtype,
        slots: usize,
        tiles: &Tiles,
    ) -> Result<Self, Error> {
        let kind = Kind { n, dtype, layout: Layout::Plain, lists: Lists::All, topk: 0 };
        Self::of(stream, dims, kind, Some(slots), |cores| Split::masked(dims, n, dtype, slots, cores, tiles))
    }

    fn of(
        stream: &Stream,
        dims: &AttentionDims,
        kind: Kind,
        mask_slots: Option<usize>,
        split: impl FnOnce(u32) -> Result<Split, Error>,
    ) -> Result<Self, Error> {
        let context = stream.context();
        let facts = context.facts();
        let arch = facts.arch.map(|fact| fact.value).ok_or(Error::Architecture { found: "unknown".to_owned() })?;
        if ![ascend_rt::Arch::DAV_2201, ascend_rt::Arch::DAV_3510].contains(&arch) {
            return Err(Error::Architecture { found: arch.to_string() });
        }
        let split = split(facts.cube_cores.map_or(1, |fact| fact.value))?;
        let kernel = Module::load(context, BLOBS)?.kernel::<MsaMainBranch>()?;
        Ok(Self {
            kernel,
            split,
            dims: *dims,
            kind,
            mask_slots,
            nothing: stream.upload(&[-1])?,
            no_mask: stream.upload(&[0.0])?,
            status: stream.upload(&vec![0; 3 * STATUS_WORDS * split.blocks.max(1) as usize])?,
            workspace: context.alloc(split.workspace.max(512))?,
        })
    }

    /// How the work is cut.
    #[must_use]
    pub fn split(&self) -> &Split {
        &self.split
    }

    /// The checks that a launch does not make, for what the host still has: ids that are out of range, behind padding or twice,
    /// and entries of the table, with the number of pages, that are no page. `tokens`: of the sequence.
    ///
    /// # Errors
    /// The first of these, by argument and place, or a length that does not fit the plan.
    pub fn check(
        &self,
        start: usize,
        tokens: usize,
        block_ids: &[i32],
        table: Option<(&[i32], usize)>,
    ) -> Result<(), Error> {
        let (kv_heads, Kind { n, lists, topk, .. }) = (self.dims.kv_heads, self.kind);
        let expected =
            |tile: usize, heads: usize| check_len("block_ids", &[n.div_ceil(tile), heads, topk], block_ids.len());
        let blocks = match lists {
            Lists::All => Blocks::All,
            Lists::Shared => {
                check_len("block_ids", &[topk], block_ids.len())?;
                Blocks::Shared(block_ids)
            }
            Lists::PerTile { tile } => {
                expected(tile.max(1), 1)?;
                Blocks::PerTile { tile, ids: block_ids }
            }
            Lists::PerTileAndHead { tile } => {
                expected(tile.max(1), kv_heads)?;
                Blocks::PerTileAndHead { tile, ids: block_ids }
            }
            Lists::PerQuery => {
                expected(1, kv_heads)?;
                Blocks::PerQuery(block_ids)
            }
        };
        check_lists(&self.dims, [start, n, tokens], blocks)?;
        match table {
            Some((table, pages)) => check_table(table, tokens.div_ceil(self.dims.block), pages),
            None => Ok(()),
        }
    }

    /// Queues a launch, eagerly or in a capture; nothing here waits for the device. Without queries, nothing is queued.
    ///
    /// # Errors
    /// A length does not fit the plan, or the launch is refused.
    #[allow(unsafe_code, reason = "launching is a promise about the kernel")]
    pub fn launch(&mut self, queue: &impl Queue, call: Call<'_>) -> Result<(), Error> {
        let Call { inputs, start, table, block_ids, out, seen } = call;
        let (AttentionDims { heads, kv_heads, head_dim, block }, Kind { n, dtype, layout, lists, topk }) =
            (self.dims, self.kind);
        if self.mask_slots.is_some() {
            return Err(Error::OtherPlan { argument: "inputs", expected: "gathered blocks and a mask" });
        }
        let ([query, keys, values], [q, k, v]) = sides(inputs, dtype)?;
        check_len("query", &[n, heads, head_dim], query)?;
        check_len("out", &[n, heads, head_dim], out.len())?;
        check_len("seen", &[n, kv_heads], seen.len())?;
        check_len("values", &[keys], values)?;
        let end = start.saturating_add(n);
        if end > i32::MAX as usize {
            return Err(Error::DeviceSize { what: "positions", most: i32::MAX as usize, found: end });
        }
        let pages = if layout == Layout::Plain {
            let tokens = rows_of("keys", keys, "KV heads times head_dim", kv_heads * head_dim)?;
            if tokens < end {
                return Err(Error::TooFewTokens { start, queries: n, found: tokens });
            }
            if table.is_some() {
                return Err(Error::OtherPlan { argument: "table", expected: "keys in the order of tokens" });
            }
            tokens.div_ceil(block)
        } else {
            let Some(table) = &table else {
                return Err(Error::OtherPlan { argument: "table", expected: "keys in pages or slots" });
            };
            if table.len() < end.div_ceil(block) {
                return Err(Error::BlockTable { expected: end.div_ceil(block), found: table.len() });
            }
            rows_of("keys", keys, "block times KV heads times head_dim", block * kv_heads * head_dim)?
        };
        match (lists, &block_ids) {
            (Lists::All, Some(_)) => return Err(Error::OtherPlan { argument: "block_ids", expected: "no lists" }),
            (Lists::All, None) => {}
            (_, None) => return Err(Error::OtherPlan { argument: "block_ids", expected: "lists" }),
            (Lists::Shared, Some(ids)) => check_len("block_ids", &[topk], ids.len())?,
            (Lists::PerTile { tile }, Some(ids)) => {
                check_len("block_ids", &[n.div_ceil(tile.max(1)), topk], ids.len())?
            }
            (Lists::PerTileAndHead { tile }, Some(ids)) => {
                check_len("block_ids", &[n.div_ceil(tile.max(1)), kv_heads, topk], ids.len())?;
            }
            (Lists::PerQuery, Some(ids)) => check_len("block_ids", &[n, kv_heads, topk], ids.len())?,
        }
        if self.split.blocks == 0 {
            return Ok(());
        }
        let mut tiling = self.split.tiling;
        tiling.start = start as u32;
        tiling.pages = pages as u64;
        if pages == 0 {
            // There is no page to take for another: nothing is seen.
            (tiling.has_lists, tiling.topk) = (1, 0);
        }
        let nothing = DeviceSlice::from(&self.nothing);
        let args = MsaMainBranch {
            q,
            k,
            v,
            table: table.unwrap_or(nothing),
            ids: block_ids.unwrap_or(nothing),
            mask: (&self.no_mask).into(),
            out,
            seen,
            status: (&mut self.status).into(),
            workspace: (&mut self.workspace).into(),
            tiling,
        };
        let launch = Launch::blocks(self.split.blocks).named("msa_main_branch");
        // SAFETY: the lengths were checked against the tiling, which fits the workspace. The kernel passes over ids of
        // blocks that no query reaches, and reads no page that there is not and no key behind the last query.
        unsafe { self.kernel.launch(queue, launch, args) }?;
        Ok(())
    }

    /// Queues a launch of the published form, as [`Plan::launch`] does one of the other.
    ///
    /// # Errors
    /// A length does not fit the plan, or the launch is refused.
    #[allow(unsafe_code, reason = "launching is a promise about the kernel")]
    pub fn launch_masked(&mut self, queue: &impl Queue, call: MaskedCall<'_>) -> Result<(), Error> {
        let MaskedCall { inputs, mask, out, seen } = call;
        let (AttentionDims { heads, kv_heads, head_dim, block }, Kind { n, dtype, .. }) = (self.dims, self.kind);
        let Some(slots) = self.mask_slots else {
            return Err(Error::OtherPlan { argument: "mask", expected: "lists and positions" });
        };
        let ([query, keys, values], [q, k, v]) = sides(inputs, dtype)?;
        check_len("query", &[n, heads, head_dim], query)?;
        check_len("keys", &[slots * block, kv_heads, head_dim], keys)?;
        check_len("values", &[slots * block, kv_heads, head_dim], values)?;
        check_len("mask", &[n.div_ceil(block), slots, block, block], mask.len())?;
        check_len("out", &[n, heads, head_dim], out.len())?;
        check_len("seen", &[n, kv_heads], seen.len())?;
        if self.split.blocks == 0 {
            return Ok(());
        }
        let nothing = DeviceSlice::from(&self.nothing);
        let args = MsaMainBranch {
            q,
            k,
            v,
            table: nothing,
            ids: nothing,
            mask,
            out,
            seen,
            status: (&mut self.status).into(),
            workspace: (&mut self.workspace).into(),
            tiling: self.split.tiling,
        };
        let launch = Launch::blocks(self.split.blocks).named("msa_main_branch");
        // SAFETY: the lengths were checked against the tiling, which fits the workspace. The kernel reads the slots and rows
        // of the mask that there are.
        unsafe { self.kernel.launch(queue, launch, args) }?;
        Ok(())
    }

    /// What launches since the last call have met. Waits for the stream.
    ///
    /// # Errors
    /// The stream has failed.
    pub fn take_status(&mut self, stream: &Stream) -> Result<Status, Error> {
        let words = stream.download(&self.status)?;
        let bits = words.iter().step_by(STATUS_WORDS).fold(0, |all, word| all | word);
        if bits != 0 {
            stream.upload_to(&vec![0; words.len()], &mut self.status)?;
        }
        Ok(Status { index: bits & 2 != 0, blind: bits & 4 != 0 })
    }
}
