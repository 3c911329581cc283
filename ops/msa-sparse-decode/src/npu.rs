// SPDX-License-Identifier: MIT OR Apache-2.0

//! The operator on a device: a card, or the emulator with the twin of its cores. One code for both.
//!
//! Ids, lengths and the block table are read by the device when a launch runs, so they may be what an earlier launch
//! leaves. Nobody checks them then: ids that are negative or at or beyond the end of their sequence are passed over, as are
//! keys beyond it, and an item that sees nothing has a result of zero. An entry of the block table that is no page is taken
//! for page 0. [`Plan::take_status`] tells of all of these but ids beyond the end.
//!
//! ```no_run
//! use ascend_rt::{Choice, Runtime};
//! use half::bf16;
//! use msa_sparse_decode::DecodeDims;
//! use msa_sparse_decode::cpu_tiles::Precision;
//! use msa_sparse_decode::npu::{CacheLayout, Call, Kind, Out, Plan};
//!
//! # fn main() -> Result<(), msa_sparse_decode::Error> {
//! let context = Runtime::open(Choice::Auto)?.device(0)?.isolated()?;
//! let stream = context.stream()?;
//! let dims = DecodeDims::M3;
//! let cache = CacheLayout::Paged { blocks: 4 };
//! let kind = Kind { batch: 1, top_k: 2, per_kv_head: false, cache, precision: Precision::Bf16, out_f32: false };
//! let mut plan = Plan::new(&stream, &dims, &kind)?;
//! let q = stream.upload(&[bf16::ONE; 64 * 128])?;
//! let pages = stream.upload(&vec![bf16::ONE; 9 * 4 * 128 * 128])?;
//! let (table, ids, lens) = (stream.upload(&[7, 3, 0, 8])?, stream.upload(&[2, 0])?, stream.upload(&[300])?);
//! let mut out = stream.upload(&[bf16::ZERO; 64 * 128])?;
//! plan.launch(&stream, Call {
//!     queries: (&q).into(),
//!     keys: (&pages).into(),
//!     values: (&pages).into(),
//!     block_table: Some((&table).into()),
//!     block_ids: (&ids).into(),
//!     seq_lens: (&lens).into(),
//!     out: Out::Bf16((&mut out).into()),
//! })?;
//! println!("{:?}", stream.download(&out)?);
//! # Ok(())
//! # }
//! ```

use crate::error::Error;
use crate::shape::{Blind, BlockIds, DecodeDims, Plan as Lists, Room, check_len};
use crate::tiling::STATUS_WORDS;
pub use crate::tiling::{CacheLayout, Kind, MsaSparseDecodeTiling, Split, Tiles, Use, budget};
use ascend_rt::{DeviceBuffer, DeviceSlice, DeviceSliceMut, Kernel, Launch, Module, Queue, Stream, kernel};
use cpu_tiles::Precision;
use half::bf16;

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

kernel! {
    /// `kernel/msa_sparse_decode.cpp`.
    pub(crate) kernel MsaSparseDecode("msa_sparse_decode") on mix(2) with barrier {
        q: in bf16,
        k: in bf16,
        v: in bf16,
        table: in i32,
        ids: in i32,
        lens: in i32,
        out: inout u8,
        status: inout u32,
        workspace: workspace,
        tiling: tiling MsaSparseDecodeTiling,
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

/// F32 queries as the kernel takes them in exact mode: three BF16 numbers for each element, `[3, B, H, D]`, whose sum it
/// is (but for bits below 2^-133).
#[must_use]
pub fn split_queries(queries: &[f32]) -> Vec<bf16> {
    let mut rest = queries.to_vec();
    let mut terms = Vec::with_capacity(3 * queries.len());
    for _ in 0..3 {
        for rest in &mut rest {
            let term = bf16::from_f32(*rest);
            // What is not finite has no rest.
            *rest = if term.is_finite() { *rest - term.to_f32() } else { 0.0 };
            terms.push(term);
        }
    }
    terms
}

/// The result of a launch, `[B, H, D]`.
#[derive(Debug)]
pub enum Out<'a> {
    /// Rounded once.
    Bf16(DeviceSliceMut<'a, bf16>),
    /// As it is.
    F32(DeviceSliceMut<'a, f32>),
}

/// The arguments of a launch, all on the device.
#[derive(Debug)]
pub struct Call<'a> {
    /// `[B, H, D]`; in exact mode `[3, B, H, D]`, from [`split_queries`].
    pub queries: DeviceSlice<'a, bf16>,
    /// As [`CacheLayout`] says.
    pub keys: DeviceSlice<'a, bf16>,
    /// As the keys.
    pub values: DeviceSlice<'a, bf16>,
    /// `[B, blocks]` of a paged cache.
    pub block_table: Option<DeviceSlice<'a, i32>>,
    /// `[B, top-k]` or `[B, G, top-k]`.
    pub block_ids: DeviceSlice<'a, i32>,
    /// `[B]`.
    pub seq_lens: DeviceSlice<'a, i32>,
    /// The result.
    pub out: Out<'a>,
}

/// What launches have met that the host cannot see beforehand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// A length was negative or beyond the capacity, and was clamped.
    pub clamped: bool,
    /// An id was less than -1, or at or beyond the capacity, and was passed over; or an entry of the block table was no page,
    /// and page 0 was read in its place.
    pub index: bool,
    /// A KV head of a batch entry saw nothing: its result is zero.
    pub blind: bool,
}

/// All that launches of one kind need: the loaded kernel, its tiling and its scratch memory.
#[derive(Debug)]
pub struct Plan {
    kernel: Kernel<MsaSparseDecode<'static>>,
    split: Split,
    dims: DecodeDims,
    kind: Kind,
    /// A list of no slots is one with padding only.
    padding: DeviceBuffer<i32>,
    status: DeviceBuffer<u32>,
    workspace: DeviceBuffer<u8>,
}

impl Plan {
    /// For calls of a kind in the context of the stream, which is used to set up memory.
    ///
    /// # Errors
    /// A size is impossible or more than the kernel can hold, there is no kernel for the device in this build, or device
    /// memory runs out.
    pub fn new(stream: &Stream, dims: &DecodeDims, kind: &Kind) -> Result<Self, Error> {
        Self::with_tiles(stream, dims, kind, &Tiles::default())
    }

    /// With sizes of the caller's, as [`Tiles::from_env`] gives them.
    ///
    /// # Errors
    /// Those of [`Plan::new`]; a size is more than a memory holds.
    pub fn with_tiles(stream: &Stream, dims: &DecodeDims, kind: &Kind, tiles: &Tiles) -> Result<Self, Error> {
        let context = stream.context();
        let facts = context.facts();
        let arch = facts.arch.map(|fact| fact.value).ok_or(Error::Architecture { found: "unknown".to_owned() })?;
        if ![ascend_rt::Arch::DAV_2201, ascend_rt::Arch::DAV_3510].contains(&arch) {
            return Err(Error::Architecture { found: arch.to_string() });
        }
        let split = Split::with_tiles(dims, kind, facts.cube_cores.map_or(1, |fact| fact.value), tiles)?;
        let kernel = Module::load(context, BLOBS)?.kernel::<MsaSparseDecode>()?;
        let lists = if kind.top_k == 0 { (split.tiling.items as usize).max(1) } else { 1 };
        Ok(Self {
            kernel,
            split,
            dims: *dims,
            kind: *kind,
            padding: stream.upload(&vec![-1; lists])?,
            status: stream.upload(&vec![0; STATUS_WORDS * split.blocks.max(1) as usize])?,
            workspace: context.alloc(split.workspace.max(512))?,
        })
    }

    /// How the work is cut.
    #[must_use]
    pub fn split(&self) -> &Split {
        &self.split
    }

    /// The checks that a launch does not make, for what the host still has: ids that are out of range, behind padding or twice,
    /// lengths beyond the capacity, and entries of the table of a paged cache, with the number of pages, that are no page.
    /// Says which KV heads see nothing.
    ///
    /// # Errors
    /// The first of these, by argument and place, or a length that does not fit the plan.
    pub fn check(
        &self,
        block_ids: &[i32],
        seq_lens: &[usize],
        table: Option<(&[i32], usize)>,
    ) -> Result<Vec<Blind>, Error> {
        let (kv_heads, Kind { batch, top_k, per_kv_head, cache, precision, .. }) = (self.dims.kv_heads, self.kind);
        let room = match (cache, table) {
            (CacheLayout::Plain { blocks }, None) => Room::plain(blocks),
            (CacheLayout::Paged { blocks }, Some((table, pages))) => {
                check_len("block_table", &[batch, blocks], table.len())?;
                Room::paged(table, blocks, pages)
            }
            (CacheLayout::Plain { .. }, Some(_)) => {
                return Err(Error::OtherPlan { argument: "block_table", expected: "a plain cache" });
            }
            (CacheLayout::Paged { .. }, None) => {
                return Err(Error::OtherPlan { argument: "block_table", expected: "a paged cache" });
            }
        };
        let ids = if per_kv_head {
            check_len("block_ids", &[batch, kv_heads, top_k], block_ids.len())?;
            BlockIds::PerKvHead(block_ids)
        } else {
            check_len("block_ids", &[batch, top_k], block_ids.len())?;
            BlockIds::Shared(block_ids)
        };
        Ok(Lists::of_lists(&self.dims, batch, &room, precision, ids, seq_lens)?.blind(kv_heads))
    }

    /// Queues a launch, eagerly or in a capture; nothing here waits for the device. Without batch entries, nothing is
    /// queued.
    ///
    /// # Errors
    /// A length does not fit the plan, or the launch is refused.
    #[allow(unsafe_code, reason = "launching is a promise about the kernel")]
    pub fn launch(&mut self, queue: &impl Queue, call: Call<'_>) -> Result<(), Error> {
        let Call { queries, keys, values, block_table, block_ids, seq_lens, out } = call;
        let (DecodeDims { heads, kv_heads, head_dim, block, .. }, Kind { batch, top_k, .. }) = (self.dims, self.kind);
        match self.kind.precision {
            Precision::Bf16 => check_len("queries", &[batch, heads, head_dim], queries.len())?,
            Precision::F32 => check_len("queries", &[3, batch, heads, head_dim], queries.len())?,
        }
        let pages = match self.kind.cache {
            CacheLayout::Plain { blocks } => {
                if block_table.is_some() {
                    return Err(Error::OtherPlan { argument: "block_table", expected: "a plain cache" });
                }
                vec![batch, kv_heads, blocks, block, head_dim]
            }
            CacheLayout::Paged { blocks } => {
                let Some(table) = &block_table else {
                    return Err(Error::OtherPlan { argument: "block_table", expected: "a paged cache" });
                };
                check_len("block_table", &[batch, blocks], table.len())?;
                vec![
                    crate::shape::pieces("keys", keys.len(), "a page", &[kv_heads, block, head_dim])?,
                    kv_heads,
                    block,
                    head_dim,
                ]
            }
        };
        check_len("keys", &pages, keys.len())?;
        check_len("values", &pages, values.len())?;
        let lists = if self.kind.per_kv_head { vec![batch, kv_heads, top_k] } else { vec![batch, top_k] };
        check_len("block_ids", &lists, block_ids.len())?;
        check_len("seq_lens", &[batch], seq_lens.len())?;
        let result = [batch, heads, head_dim];
        let out: DeviceSliceMut<'_, u8> = match (out, self.kind.out_f32) {
            (Out::Bf16(out), false) => {
                check_len("out", &result, out.len())?;
                out.cast()?
            }
            (Out::F32(out), true) => {
                check_len("out", &result, out.len())?;
                out.cast()?
            }
            (_, true) => return Err(Error::OtherPlan { argument: "out", expected: "an F32 result" }),
            (_, false) => return Err(Error::OtherPlan { argument: "out", expected: "a BF16 result" }),
        };
        if self.split.blocks == 0 {
            return Ok(());
        }
        let mut tiling = self.split.tiling;
        tiling.pages = (keys.len() / (kv_heads * block * head_dim)) as u64;
        if tiling.pages == 0 {
            tiling.capacity = 0;
        }
        let ids = if top_k == 0 { (&self.padding).into() } else { block_ids };
        let args = MsaSparseDecode {
            q: queries,
            k: keys,
            v: values,
            table: block_table.unwrap_or((&self.padding).into()),
            ids,
            lens: seq_lens,
            out,
            status: (&mut self.status).into(),
            workspace: (&mut self.workspace).into(),
            tiling,
        };
        let launch = Launch::blocks(self.split.blocks).named("msa_sparse_decode");
        // SAFETY: the lengths were checked against the tiling, which fits the workspace. The kernel passes over ids, clamps
        // lengths that do not fit the capacity, and reads no page that there is not.
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
        Ok(Status { clamped: bits & 1 != 0, index: bits & 2 != 0, blind: bits & 4 != 0 })
    }
}
