// SPDX-License-Identifier: MIT OR Apache-2.0

//! The operator on a device: a card, or the emulator with the twin of its cores. One code for both.
//!
//! The position of the first query and the block table are read by the device when a launch runs, so a launch may be
//! captured once and replayed while the sequence grows. An entry of the block table that is no page is taken for page 0,
//! and a position beyond the capacity for the last one that fits; [`Plan::take_status`] tells of either. Queries and keys are
//! both BF16 or both F32. Of equal scores the lower id is taken, as everywhere, and NaN ranks before all numbers, as far as the
//! maximum of the chip keeps it: that of the twin does.
//!
//! ```no_run
//! use ascend_rt::{Choice, Runtime};
//! use half::bf16;
//! use msa_indexer::IndexerDims;
//! use msa_indexer::npu::{Call, Kind, Plan};
//!
//! # fn main() -> Result<(), msa_indexer::Error> {
//! let context = Runtime::open(Choice::Auto)?.device(0)?.isolated()?;
//! let stream = context.stream()?;
//! let mut plan = Plan::new(&stream, &IndexerDims::M3, &Kind { queries: 1, blocks: 20, paged: false })?;
//! let (q, k) = (stream.upload(&[bf16::ONE; 4 * 128])?, stream.upload(&vec![bf16::ONE; 20 * 128 * 128])?);
//! let (first, mut ids) = (stream.upload(&[2400])?, stream.upload(&[0; 4 * 16])?);
//! plan.launch(&stream, Call {
//!     queries: (&q).into(),
//!     keys: (&k).into(),
//!     block_table: None,
//!     first: (&first).into(),
//!     ids: (&mut ids).into(),
//!     scores: None,
//! })?;
//! println!("{:?}", stream.download(&ids)?);
//! # Ok(())
//! # }
//! ```

use crate::error::Error;
use crate::shape::{IndexerDims, check_len, check_table};
use crate::tiling::STATUS_WORDS;
pub use crate::tiling::{Format, Kind, MsaIndexerTiling, Split, Use, budget};
use ascend_rt::{DeviceBuffer, DeviceRepr, DeviceSlice, DeviceSliceMut, Kernel, Launch, Module, Queue, Stream, kernel};
use half::bf16;

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

kernel! {
    /// `kernel/msa_indexer.cpp`.
    pub(crate) kernel MsaIndexer("msa_indexer") on mix(2) with barrier {
        q: in u8,
        k: in u8,
        table: in i32,
        first: in i32,
        ids: inout i32,
        scores: inout f32,
        status: inout u32,
        workspace: workspace,
        tiling: tiling MsaIndexerTiling,
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

/// A number format that the kernel takes.
pub trait Value: DeviceRepr + sealed::Sealed {
    /// Which it is.
    const FORMAT: Format;
}

impl Value for bf16 {
    const FORMAT: Format = Format::Bf16;
}

impl Value for f32 {
    const FORMAT: Format = Format::F32;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for half::bf16 {}
    impl Sealed for f32 {}
}

/// The arguments of a launch, all on the device.
#[derive(Debug)]
pub struct Call<'a, T: Value = bf16> {
    /// `[queries, heads, D]`.
    pub queries: DeviceSlice<'a, T>,
    /// `[blocks, block, D]`, or `[pages, block, D]` with a block table.
    pub keys: DeviceSlice<'a, T>,
    /// `[blocks]`, where the plan is for pages.
    pub block_table: Option<DeviceSlice<'a, i32>>,
    /// `[1]`: the position of the first query; the others follow it.
    pub first: DeviceSlice<'a, i32>,
    /// `[queries, selections, min(topk, blocks)]`: ascending, -1 after the last one of a query that sees fewer blocks.
    pub ids: DeviceSliceMut<'a, i32>,
    /// `[queries, selections, blocks]`, if wanted: minus infinity where nothing is visible. Without a wish, nothing is
    /// scored for queries that see no more than `topk` blocks.
    pub scores: Option<DeviceSliceMut<'a, f32>>,
}

/// What launches have met that the host cannot see beforehand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The position of the first query was negative, or left no room for the others, and was clamped.
    pub clamped: bool,
    /// An entry of the block table was no page, and page 0 was read in its place.
    pub index: bool,
}

/// All that launches of one kind need: the loaded kernel, its tiling and its scratch memory.
#[derive(Debug)]
pub struct Plan {
    kernel: Kernel<MsaIndexer<'static>>,
    split: Split,
    of_f32: Split,
    dims: IndexerDims,
    kind: Kind,
    scores: DeviceBuffer<f32>,
    status: DeviceBuffer<u32>,
    workspace: DeviceBuffer<u8>,
}

impl Plan {
    /// For calls of a kind in the context of the stream, which is used to set up memory.
    ///
    /// # Errors
    /// A size is impossible or more than the kernel can hold, there is no kernel for the device in this build, or device
    /// memory runs out.
    pub fn new(stream: &Stream, dims: &IndexerDims, kind: &Kind) -> Result<Self, Error> {
        let context = stream.context();
        let facts = context.facts();
        let arch = facts.arch.map(|fact| fact.value).ok_or(Error::Architecture { found: "unknown".to_owned() })?;
        if ![ascend_rt::Arch::DAV_2201, ascend_rt::Arch::DAV_3510].contains(&arch) {
            return Err(Error::Architecture { found: arch.to_string() });
        }
        let cores = facts.cube_cores.map_or(1, |fact| fact.value);
        let split = Split::new(dims, kind, cores)?;
        let of_f32 = Split::of_format(dims, kind, cores, Format::F32)?;
        let kernel = Module::load(context, BLOBS)?.kernel::<MsaIndexer>()?;
        let scores = kind.queries * dims.selections() * kind.blocks;
        Ok(Self {
            kernel,
            split,
            of_f32,
            dims: *dims,
            kind: *kind,
            scores: stream.upload(&vec![0.0; scores.max(1)])?,
            status: stream.upload(&vec![0; STATUS_WORDS * cores.max(1) as usize])?,
            workspace: context.alloc(split.workspace.max(of_f32.workspace).max(512))?,
        })
    }

    /// How the work is cut where the values are BF16.
    #[must_use]
    pub fn split(&self) -> &Split {
        &self.split
    }

    /// The checks that a launch does not make, for what the host still has: that the queries from `start` on have keys, and that
    /// entries of the table, with the number of pages, of all blocks that a query sees are pages.
    ///
    /// # Errors
    /// The first of these, by argument and place, or a length that does not fit the plan.
    pub fn check(&self, start: usize, table: Option<(&[i32], usize)>) -> Result<(), Error> {
        let (block, Kind { queries, blocks, paged }) = (self.dims.block, self.kind);
        let (end, length) = (start.saturating_add(queries), blocks * block);
        if end > length {
            return Err(Error::QueryBeyondLength { start, queries, length });
        }
        match table {
            Some(_) if !paged => Err(Error::OtherPlan { argument: "block_table", expected: "keys in a row" }),
            None if paged => Err(Error::OtherPlan { argument: "block_table", expected: "pages" }),
            Some((table, pages)) => {
                check_len("block_table", &[blocks], table.len())?;
                check_table(table, end.div_ceil(block), pages)
            }
            None => Ok(()),
        }
    }

    /// Queues a launch, eagerly or in a capture; nothing here waits for the device. Without queries, nothing is queued.
    ///
    /// # Errors
    /// A length does not fit the plan, or the launch is refused.
    #[allow(unsafe_code, reason = "launching is a promise about the kernel")]
    pub fn launch<T: Value>(&mut self, queue: &impl Queue, call: Call<'_, T>) -> Result<(), Error> {
        let Call { queries, keys, block_table, first, ids, scores } = call;
        let (IndexerDims { heads, head_dim, block, topk, .. }, Kind { queries: count, blocks, paged }) =
            (self.dims, self.kind);
        let selections = self.dims.selections();
        check_len("queries", &[count, heads, head_dim], queries.len())?;
        check_len("first", &[1], first.len())?;
        check_len("ids", &[count, selections, topk.min(blocks)], ids.len())?;
        if let Some(scores) = &scores {
            check_len("scores", &[count, selections, blocks], scores.len())?;
        }
        let page = block * head_dim;
        match &block_table {
            Some(_) if !paged => return Err(Error::OtherPlan { argument: "block_table", expected: "keys in a row" }),
            None if paged => return Err(Error::OtherPlan { argument: "block_table", expected: "pages" }),
            Some(table) => {
                check_len("block_table", &[blocks], table.len())?;
                if keys.is_empty() || !keys.len().is_multiple_of(page) {
                    let expected = vec![block, head_dim];
                    return Err(Error::Rows { argument: "keys", expected, found: keys.len() });
                }
            }
            None => check_len("keys", &[blocks, block, head_dim], keys.len())?,
        }
        let split = match T::FORMAT {
            Format::Bf16 => &self.split,
            Format::F32 => &self.of_f32,
        };
        if split.blocks == 0 {
            return Ok(());
        }
        let tiling = MsaIndexerTiling {
            // An entry of the table cannot name more.
            pages: u32::try_from(keys.len() / page).unwrap_or(u32::MAX),
            want_scores: u32::from(scores.is_some()),
            ..split.tiling
        };
        let launch = Launch::blocks(split.blocks).named("msa_indexer");
        let args = MsaIndexer {
            q: queries.cast()?,
            k: keys.cast()?,
            table: match block_table {
                Some(table) => table,
                None => (&first).into(),
            },
            first: (&first).into(),
            ids,
            scores: scores.unwrap_or((&mut self.scores).into()),
            status: (&mut self.status).into(),
            workspace: (&mut self.workspace).into(),
            tiling,
        };
        // SAFETY: the lengths were checked against the tiling, which fits the workspace. The kernel clamps the position to
        // the capacity, and reads no page that there is not.
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
        Ok(Status { clamped: bits & 1 != 0, index: bits & 2 != 0 })
    }
}
