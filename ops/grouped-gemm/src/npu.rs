// SPDX-License-Identifier: MIT OR Apache-2.0

//! The operator on a device: a card, or the emulator with the twin of its cores. One code for both.
//!
//! ```no_run
//! use ascend_rt::{Choice, Runtime};
//! use grouped_gemm::npu::{Call, Options, Plan, Weights};
//! use grouped_gemm::{Activation, MoeDims};
//! use half::bf16;
//!
//! # fn main() -> Result<(), grouped_gemm::Error> {
//! let context = Runtime::open(Choice::Auto)?.device(0)?.isolated()?;
//! let stream = context.stream()?;
//! let dims = MoeDims { experts: 2, hidden: 64, intermediate: 32, activation: Activation::Silu };
//! let mut plan = Plan::new(&stream, &dims, 3, Options::default())?;
//! let (w13, w2) = (stream.upload(&[bf16::ONE; 2 * 64 * 64])?, stream.upload(&[bf16::ONE; 2 * 32 * 64])?);
//! let (x, cumsum) = (stream.upload(&[bf16::ONE; 3 * 64])?, stream.upload(&[0, 1, 3])?);
//! let mut out = stream.upload(&[bf16::ZERO; 3 * 64])?;
//! let weights = Weights { w13: (&w13).into(), w2: (&w2).into() };
//! plan.launch(&stream, Call { tokens: (&x).into(), cumsum: (&cumsum).into(), weights, out: (&mut out).into() })?;
//! println!("{:?}", stream.download(&out)?);
//! # Ok(())
//! # }
//! ```

use crate::error::Error;
use crate::shape::{MoeDims, check_len};
pub use crate::tiling::{GroupedGemmTiling, Layout, Split, Tiles, Use};
use ascend_rt::{DeviceBuffer, DeviceSlice, DeviceSliceMut, Kernel, Launch, Module, Queue, Stream, kernel};
use half::bf16;

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

kernel! {
    /// `kernel/grouped_gemm.cpp`.
    pub(crate) kernel GroupedGemm("grouped_gemm") on mix(2) with barrier {
        x: in bf16,
        w13: in bf16,
        w2: in bf16,
        cumsum: in i32,
        out: inout bf16,
        status: inout u32,
        workspace: workspace,
        tiling: tiling GroupedGemmTiling,
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

/// How a plan is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How the weights lie.
    pub layout: Layout,
    /// Sizes of tiles.
    pub tiles: Tiles,
}

impl Default for Options {
    fn default() -> Self {
        Self { layout: Layout::Flat, tiles: Tiles::default() }
    }
}

/// The weights of all experts, on the device.
#[derive(Debug)]
pub struct Weights<'a> {
    /// Gate and up.
    pub w13: DeviceSlice<'a, bf16>,
    /// Down.
    pub w2: DeviceSlice<'a, bf16>,
}

/// The arguments of a launch.
#[derive(Debug)]
pub struct Call<'a> {
    /// `[N, H]`, sorted by expert.
    pub tokens: DeviceSlice<'a, bf16>,
    /// `[E + 1]`, read by the device when the launch runs.
    pub cumsum: DeviceSlice<'a, i32>,
    /// In the layout of the plan.
    pub weights: Weights<'a>,
    /// `[N, H]`. Rows outside of `cumsum[0]..cumsum[E]` stay as they are.
    pub out: DeviceSliceMut<'a, bf16>,
}

/// All that launches of one size need: the loaded kernel, its tiling and its scratch memory.
#[derive(Debug)]
pub struct Plan {
    kernel: Kernel<GroupedGemm<'static>>,
    split: Split,
    weights: [usize; 2],
    status: DeviceBuffer<u32>,
    workspace: DeviceBuffer<u8>,
}

impl Plan {
    /// For calls of at most `rows` rows in the context of the stream, which is used to set up memory.
    ///
    /// # Errors
    /// A size is impossible or does not fit the memories of a core, there is no kernel for the device in this build, or
    /// device memory runs out.
    pub fn new(stream: &Stream, dims: &MoeDims, rows: usize, options: Options) -> Result<Self, Error> {
        let context = stream.context();
        let facts = context.facts();
        let arch = facts.arch.map(|fact| fact.value).ok_or(Error::Architecture { found: "unknown".to_owned() })?;
        let cores = facts.cube_cores.map_or(1, |fact| fact.value);
        let rows = crate::shape::row_count("tokens", rows)?;
        let split = Split::new(dims, rows, options.layout, &options.tiles, arch, cores)?;
        let kernel = Module::load(context, BLOBS)?.kernel::<GroupedGemm>()?;
        Ok(Self {
            kernel,
            split,
            weights: options.layout.elements(dims),
            status: stream.upload(&[0; 16])?,
            workspace: context.alloc(split.workspace.max(512))?,
        })
    }

    /// How the work is cut.
    #[must_use]
    pub fn split(&self) -> &Split {
        &self.split
    }

    /// Queues a launch, eagerly or in a capture; nothing here waits for the device. Without rows, nothing is queued.
    ///
    /// # Errors
    /// A length does not fit the plan, or the launch is refused.
    #[allow(unsafe_code, reason = "launching is a promise about the kernel")]
    pub fn launch(&mut self, queue: &impl Queue, call: Call<'_>) -> Result<(), Error> {
        let Call { tokens, cumsum, weights, out } = call;
        let GroupedGemmTiling { hidden, experts, rows: most, .. } = self.split.tiling;
        let rows = out.len() / hidden as usize;
        if rows > most as usize {
            return Err(Error::PlanRows { most: most as usize, found: rows });
        }
        check_len("tokens", &[rows, hidden as usize], tokens.len())?;
        check_len("result", &[rows, hidden as usize], out.len())?;
        check_len("expert_cumsum", &[experts as usize + 1], cumsum.len())?;
        check_len("w13", &[self.weights[0]], weights.w13.len())?;
        check_len("w2", &[self.weights[1]], weights.w2.len())?;
        if rows == 0 {
            return Ok(());
        }
        let tiling = GroupedGemmTiling { rows: rows as u32, ..self.split.tiling };
        let args = GroupedGemm {
            x: tokens,
            w13: weights.w13,
            w2: weights.w2,
            cumsum,
            out,
            status: (&mut self.status).into(),
            workspace: (&mut self.workspace).into(),
            tiling,
        };
        let launch = Launch::blocks(self.split.blocks).named("grouped_gemm");
        // SAFETY: the lengths were checked against the tiling above, which fits the workspace; the kernel clamps the
        // ranges of `cumsum` to the rows there are.
        unsafe { self.kernel.launch(queue, launch, args) }?;
        Ok(())
    }

    /// Whether a launch since the last call met an `expert_cumsum` that decreases or leaves the rows, and clamped it.
    /// Waits for the stream.
    ///
    /// # Errors
    /// The stream has failed.
    pub fn take_clamped(&mut self, stream: &Stream) -> Result<bool, Error> {
        let clamped = stream.download(&self.status)?.first().is_some_and(|word| word & 1 != 0);
        if clamped {
            stream.upload_to(&[0; 16], &mut self.status)?;
        }
        Ok(clamped)
    }
}

impl Layout {
    /// Elements of `w13` and `w2`.
    #[must_use]
    pub fn elements(self, dims: &MoeDims) -> [usize; 2] {
        let round = |size: usize| match self {
            Self::Flat => size,
            Self::Nz => size.next_multiple_of(16),
        };
        let (hidden, intermediate) = (round(dims.hidden), round(dims.intermediate));
        let one = dims.experts.saturating_mul(hidden).saturating_mul(intermediate);
        [one.saturating_mul(2), one]
    }
}

/// The code of this build for one device, and on which it runs.
#[must_use]
pub fn blobs() -> &'static [ascend_rt::Blob] {
    BLOBS
}
