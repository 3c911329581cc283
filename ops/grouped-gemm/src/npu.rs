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
//! let weights = Weights::Bf16 { w13: (&w13).into(), w2: (&w2).into() };
//! plan.launch(&stream, Call { tokens: (&x).into(), cumsum: (&cumsum).into(), weights, out: (&mut out).into() })?;
//! println!("{:?}", stream.download(&out)?);
//! # Ok(())
//! # }
//! ```

use crate::error::Error;
use crate::fp8::WAY_BYTES;
pub use crate::fp8::{Coded, Scales, Stored, convert_fp8_weights};
use crate::shape::{MoeDims, Routing, check_len, row_count};
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

    /// The same, and then the sum of the rows of each token.
    pub(crate) kernel GroupedGemmCombine("grouped_gemm_combine") on mix(2) with barrier {
        x: in bf16,
        w13: in bf16,
        w2: in bf16,
        cumsum: in i32,
        slots: in i32,
        scales: in f32,
        out: inout bf16,
        combined: inout f32,
        status: inout u32,
        workspace: workspace,
        tiling: tiling GroupedGemmTiling,
    }
}

kernel! {
    /// [`GroupedGemm`] with FP8 weights.
    pub(crate) kernel GroupedGemmFp8("grouped_gemm_fp8") on mix(2) with barrier {
        x: in bf16,
        w13: in u8,
        scales13: in u8,
        w2: in u8,
        scales2: in u8,
        cumsum: in i32,
        out: inout bf16,
        status: inout u32,
        workspace: workspace,
        tiling: tiling GroupedGemmTiling,
    }

    /// [`GroupedGemmCombine`] with FP8 weights.
    pub(crate) kernel GroupedGemmFp8Combine("grouped_gemm_fp8_combine") on mix(2) with barrier {
        x: in bf16,
        w13: in u8,
        scales13: in u8,
        w2: in u8,
        scales2: in u8,
        cumsum: in i32,
        slots: in i32,
        scales: in f32,
        out: inout bf16,
        combined: inout f32,
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
pub enum Weights<'a> {
    /// In one of the BF16 layouts.
    Bf16 {
        /// Gate and up.
        w13: DeviceSlice<'a, bf16>,
        /// Down.
        w2: DeviceSlice<'a, bf16>,
    },
    /// The four parts of [`Stored`].
    Fp8 {
        /// Codes of gate and up.
        w13: DeviceSlice<'a, u8>,
        /// Their scales.
        scales13: DeviceSlice<'a, u8>,
        /// Codes of down.
        w2: DeviceSlice<'a, u8>,
        /// Their scales.
        scales2: DeviceSlice<'a, u8>,
    },
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

/// What a launch does with the result for each token: the sum of its rows in F32, in the order of `slots`.
#[derive(Debug)]
pub struct Combine<'a> {
    /// `[T, k]`: rows of the result, also those that earlier launches have left there. One that is not there counts nothing.
    pub slots: DeviceSlice<'a, i32>,
    /// `[T, k]`: what each row is multiplied by.
    pub scales: DeviceSlice<'a, f32>,
    /// `[T, H]`.
    pub out: DeviceSliceMut<'a, f32>,
}

/// The choices of a router in the form that a launch takes: work for the host, or for whatever routes on the device.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// The token of each row.
    pub tokens: Vec<u32>,
    /// Where the rows of each expert begin, `[E + 1]`.
    pub cumsum: Vec<i32>,
    /// The rows of each token, experts ascending, `[T, k]`.
    pub slots: Vec<i32>,
    /// The weights of the router in the order of `slots`.
    pub scales: Vec<f32>,
}

impl Route {
    /// Sorts the choices `[T, k]` of so many tokens by expert.
    ///
    /// # Errors
    /// As for [`moe_ffn`](crate::moe_ffn).
    pub fn new(experts: usize, tokens: usize, topk_ids: &[u32], topk_weights: &[f32]) -> Result<Self, Error> {
        let (routing, weights) = Routing::by_choice(experts, row_count("tokens", tokens)?, topk_ids, topk_weights)?;
        let mut cumsum = vec![0; experts + 1];
        for (expert, rows) in &routing.experts {
            cumsum[expert + 1] = rows.len() as i32;
        }
        for expert in 0..experts {
            cumsum[expert + 1] += cumsum[expert];
        }
        let k = topk_ids.len().checked_div(tokens).unwrap_or(0);
        let mut taken = vec![0; tokens];
        let (mut slots, mut scales) = (vec![0; topk_ids.len()], vec![0.0; topk_ids.len()]);
        for (row, (&token, &weight)) in routing.rows.iter().zip(&weights).enumerate() {
            let at = token as usize * k + taken[token as usize];
            (slots[at], scales[at]) = (row as i32, weight);
            taken[token as usize] += 1;
        }
        Ok(Self { tokens: routing.rows, cumsum, slots, scales })
    }
}

/// All that launches of one size need: the loaded kernel, its tiling and its scratch memory.
#[derive(Debug)]
pub struct Plan {
    kernel: Kernel<GroupedGemm<'static>>,
    combining: Kernel<GroupedGemmCombine<'static>>,
    fp8: Kernel<GroupedGemmFp8<'static>>,
    fp8_combining: Kernel<GroupedGemmFp8Combine<'static>>,
    layout: Layout,
    scales: [usize; 2],
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
        let rows = row_count("tokens", rows)?;
        let split = Split::new(dims, rows, options.layout, &options.tiles, arch, cores)?;
        let module = Module::load(context, BLOBS)?;
        Ok(Self {
            kernel: module.kernel()?,
            combining: module.kernel()?,
            fp8: module.kernel()?,
            fp8_combining: module.kernel()?,
            layout: options.layout,
            scales: options.layout.scale_bytes(dims),
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
        let rows = self.check(&call)?;
        if rows == 0 {
            return Ok(());
        }
        let Call { tokens, cumsum, weights, out } = call;
        let tiling = GroupedGemmTiling { rows, ..self.split.tiling };
        let (status, workspace) = ((&mut self.status).into(), (&mut self.workspace).into());
        let launch = Launch::blocks(self.split.blocks).named("grouped_gemm");
        match weights {
            Weights::Bf16 { w13, w2 } => {
                let args = GroupedGemm { x: tokens, w13, w2, cumsum, out, status, workspace, tiling };
                // SAFETY: the lengths were checked against the tiling, which fits the workspace; the kernel clamps the
                // ranges of `cumsum` to the rows there are.
                unsafe { self.kernel.launch(queue, launch, args) }?;
            }
            Weights::Fp8 { w13, scales13, w2, scales2 } => {
                let args =
                    GroupedGemmFp8 { x: tokens, w13, scales13, w2, scales2, cumsum, out, status, workspace, tiling };
                // SAFETY: as above.
                unsafe { self.fp8.launch(queue, launch, args) }?;
            }
        }
        Ok(())
    }

    /// As [`launch`](Self::launch), and afterwards sums up the rows of each token; the rows themselves are in the result
    /// of the call as well. Without rows, nothing is queued and the sums stay as they are.
    ///
    /// # Errors
    /// A length does not fit the plan or another one, or the launch is refused.
    #[allow(unsafe_code, reason = "launching is a promise about the kernel")]
    pub fn launch_combined(&mut self, queue: &impl Queue, call: Call<'_>, combine: Combine<'_>) -> Result<(), Error> {
        let rows = self.check(&call)?;
        let hidden = self.split.tiling.hidden as usize;
        let Combine { slots, scales, out: combined } = combine;
        let tokens = combined.len() / hidden;
        check_len("combined", &[tokens, hidden], combined.len())?;
        let choices = slots.len().checked_div(tokens).unwrap_or(0);
        check_len("slots", &[tokens, choices], slots.len())?;
        check_len("scales", &[tokens, choices], scales.len())?;
        if rows == 0 || choices == 0 {
            return Ok(());
        }
        let (tokens, choices) = (row_count("combined", tokens)?, row_count("slots", choices)?);
        let Call { tokens: x, cumsum, weights, out } = call;
        let tiling = GroupedGemmTiling { rows, tokens, choices, ..self.split.tiling };
        let (status, workspace) = ((&mut self.status).into(), (&mut self.workspace).into());
        let launch = Launch::blocks(self.split.blocks).named("grouped_gemm_combine");
        match weights {
            Weights::Bf16 { w13, w2 } => {
                let args =
                    GroupedGemmCombine { x, w13, w2, cumsum, slots, scales, out, combined, status, workspace, tiling };
                // SAFETY: as in `launch`; the kernel passes over slots that are no rows.
                unsafe { self.combining.launch(queue, launch, args) }?;
            }
            Weights::Fp8 { w13, scales13, w2, scales2 } => {
                let args = GroupedGemmFp8Combine {
                    x,
                    w13,
                    scales13,
                    w2,
                    scales2,
                    cumsum,
                    slots,
                    scales,
                    out,
                    combined,
                    status,
                    workspace,
                    tiling,
                };
                // SAFETY: as above.
                unsafe { self.fp8_combining.launch(queue, launch, args) }?;
            }
        }
        Ok(())
    }

    /// The number of rows of a call that fits the plan.
    fn check(&self, call: &Call<'_>) -> Result<u32, Error> {
        let Call { tokens, cumsum, weights, out } = call;
        let GroupedGemmTiling { hidden, experts, rows: most, .. } = self.split.tiling;
        let rows = out.len() / hidden as usize;
        if rows > most as usize {
            return Err(Error::PlanRows { most: most as usize, found: rows });
        }
        check_len("tokens", &[rows, hidden as usize], tokens.len())?;
        check_len("result", &[rows, hidden as usize], out.len())?;
        check_len("expert_cumsum", &[experts as usize + 1], cumsum.len())?;
        match weights {
            Weights::Bf16 { w13, w2 } if !self.layout.is_fp8() => {
                check_len("w13", &[self.weights[0]], w13.len())?;
                check_len("w2", &[self.weights[1]], w2.len())?;
            }
            Weights::Fp8 { w13, scales13, w2, scales2 } if self.layout.is_fp8() => {
                check_len("w13", &[self.weights[0]], w13.len())?;
                check_len("w2", &[self.weights[1]], w2.len())?;
                check_len("scales13", &[self.scales[0]], scales13.len())?;
                check_len("scales2", &[self.scales[1]], scales2.len())?;
            }
            Weights::Bf16 { .. } => return Err(Error::WeightKind { expected: "FP8", found: "BF16" }),
            Weights::Fp8 { .. } => return Err(Error::WeightKind { expected: "BF16", found: "FP8" }),
        }
        Ok(rows as u32)
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
        let (out, depth) = match self {
            Self::Flat => (1, 1),
            Self::Nz => (16, 16),
            Self::Fp8Block | Self::Mxfp8 => (16, 32),
        };
        let one = |parts: usize, rows: usize, columns: usize| {
            let values = rows.next_multiple_of(out).saturating_mul(columns.next_multiple_of(depth));
            dims.experts.saturating_mul(parts).saturating_mul(values)
        };
        [one(2, dims.intermediate, dims.hidden), one(1, dims.hidden, dims.intermediate)]
    }

    /// Bytes of the scales of `w13` and `w2`, with the numbers of the experts.
    #[must_use]
    pub fn scale_bytes(self, dims: &MoeDims) -> [usize; 2] {
        let scales = match self {
            Self::Flat | Self::Nz => return [0; 2],
            Self::Mxfp8 => self.elements(dims).map(|elements| elements / 16),
            Self::Fp8Block => {
                let blocks = dims.hidden.div_ceil(128).saturating_mul(dims.intermediate.div_ceil(128));
                [8, 4].map(|bytes| dims.experts.saturating_mul(blocks).saturating_mul(bytes))
            }
        };
        scales.map(|bytes| bytes.saturating_add(dims.experts.saturating_mul(WAY_BYTES)))
    }
}

/// The code of this build for one device, and on which it runs.
#[must_use]
pub fn blobs() -> &'static [ascend_rt::Blob] {
    BLOBS
}
