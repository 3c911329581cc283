// SPDX-License-Identifier: MIT OR Apache-2.0

//! The operator on a device: a card, or the emulator with the twin of its cores. One code for both.
//!
//! Two forms of the kernel do the same. Where the cube multiplies FP8 with its scales (950), codes go there as they are. On
//! 910B, vector cores write codes times scales as BF16, which holds them exactly while scales are between 10 and 246
//! (E4M3) or 17 and 239 (E5M2); [`Status::scale`] tells that some were not. Where the codes are E4M3, the weights `[E, N,
//! K]`, K is a multiple of 1024, and neither the scales of the activations nor those of the weights span more than 12 powers
//! of two, halfs hold them as well, relative to one power of two each, and are made in half the time: the kernel looks at
//! the scales first. Either way products are exact and their sums over K are F32. Products times logits are added to the output in ascending order of rows, so that a result has the same
//! bits on any number of cores, unless a plan asks for atomic adds.
//!
//! ```no_run
//! use ascend_rt::{Choice, Runtime};
//! use gmm_finalize_routing::npu::{Call, Options, Plan};
//! use gmm_finalize_routing::{Dims, Dtype};
//!
//! # fn main() -> Result<(), gmm_finalize_routing::Error> {
//! let context = Runtime::open(Choice::Auto)?.device(0)?.isolated()?;
//! let stream = context.stream()?;
//! let dims = Dims { experts: 2, k: 64, n: 4 };
//! let mut plan = Plan::new(&stream, &dims, 3, Options::new(Dtype::E4M3, true))?;
//! let (x1, x2) = (stream.upload(&[0x38u8; 3 * 64])?, stream.upload(&[0x38u8; 2 * 4 * 64])?);
//! let (pertoken_scale, scale) = (stream.upload(&[128u8; 3 * 2])?, stream.upload(&[126u8; 4 * 2])?);
//! let (group_list, row_index) = (stream.upload(&[2i64, 3])?, stream.upload(&[0i64, 1, 0])?);
//! let mut out = stream.upload(&[0.0f32; 2 * 4])?;
//! let call = Call {
//!     x1: (&x1).into(),
//!     pertoken_scale: (&pertoken_scale).into(),
//!     x2: (&x2).into(),
//!     scale: (&scale).into(),
//!     group_list: (&group_list).into(),
//!     row_index: (&row_index).into(),
//!     logit: None,
//!     shared_input: None,
//!     out: (&mut out).into(),
//! };
//! plan.launch(&stream, call)?;
//! println!("{:?}", stream.download(&out)?);
//! # Ok(())
//! # }
//! ```

use crate::error::Error;
use crate::shape::{Dims, check_len, row_count, rows_of};
use crate::tiling::STATUS_WORDS;
pub use crate::tiling::{FinalizeTiling, Options, Split};
use ascend_rt::{DeviceBuffer, DeviceSlice, DeviceSliceMut, Kernel, Launch, Module, Queue, Stream, kernel};
use half::bf16;

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

kernel! {
    /// `kernel/gmm_finalize_routing.cpp`.
    pub(crate) kernel FinalizeRouting("gmm_finalize_routing") on mix(2) with barrier {
        x1: in u8,
        pertoken_scale: in u8,
        x2: in u8,
        scale: in u8,
        group_list: in i64,
        row_index: in i64,
        logit: in f32,
        shared_input: in bf16,
        out: inout f32,
        status: inout u32,
        workspace: workspace,
        tiling: tiling FinalizeTiling,
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

/// What the output of the experts that every token passes adds.
#[derive(Debug)]
pub struct SharedInput<'a> {
    /// `[rows, N]`.
    pub values: DeviceSlice<'a, bf16>,
    /// The row of the output that the first one is added to.
    pub offset: usize,
    /// What they are multiplied by.
    pub weight: f32,
}

/// The arguments of a launch. M is the number of entries of `row_index`.
#[derive(Debug)]
pub struct Call<'a> {
    /// Codes of the activations, `[M, K]`.
    pub x1: DeviceSlice<'a, u8>,
    /// Their scales, `[M, ceil(K / 64), 2]`.
    pub pertoken_scale: DeviceSlice<'a, u8>,
    /// Codes of the weights, in the layout of the plan.
    pub x2: DeviceSlice<'a, u8>,
    /// Their scales.
    pub scale: DeviceSlice<'a, u8>,
    /// `[E]`, read by the device when the launch runs. Groups that decrease or go beyond M are clamped
    /// ([`Status::groups`]).
    pub group_list: DeviceSlice<'a, i64>,
    /// `[M]`, read by the device. Rows whose index is no row of the output are left out ([`Status::index`]).
    pub row_index: DeviceSlice<'a, i64>,
    /// `[M]`.
    pub logit: Option<DeviceSlice<'a, f32>>,
    /// Added after all products.
    pub shared_input: Option<SharedInput<'a>>,
    /// `[batch, N]`: the initial values, added to in place.
    pub out: DeviceSliceMut<'a, f32>,
}

/// What launches have met that the host cannot see beforehand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// A group list decreased or went beyond M, and was clamped.
    pub groups: bool,
    /// An entry of `row_index` was no row of the output, and its row was left out.
    pub index: bool,
    /// Where the cube has no FP8: a scale was beyond the range in which BF16 holds every code times it.
    pub scale: bool,
}

/// All that launches of one size need: the loaded kernel, its tiling and its scratch memory.
#[derive(Debug)]
pub struct Plan {
    kernel: Kernel<FinalizeRouting<'static>>,
    split: Split,
    dims: Dims,
    status: DeviceBuffer<u32>,
    workspace: DeviceBuffer<u8>,
    no_logit: DeviceBuffer<f32>,
    no_shared: DeviceBuffer<bf16>,
}

impl Plan {
    /// For calls of at most `rows` rows in the context of the stream, which is used to set up memory.
    ///
    /// # Errors
    /// A size is impossible or more than the kernel can address, there is no kernel for the device in this build, or
    /// device memory runs out.
    pub fn new(stream: &Stream, dims: &Dims, rows: usize, options: Options) -> Result<Self, Error> {
        let context = stream.context();
        let facts = context.facts();
        let arch = facts.arch.map(|fact| fact.value).ok_or(Error::Architecture { found: "unknown".to_owned() })?;
        let cores = facts.cube_cores.map_or(1, |fact| fact.value);
        let split = Split::new(dims, row_count(rows)? as u32, &options, arch, cores)?;
        let kernel = Module::load(context, BLOBS)?.kernel::<FinalizeRouting>()?;
        Ok(Self {
            kernel,
            dims: *dims,
            status: stream.upload(&vec![0; split.status])?,
            workspace: context.alloc(split.workspace.max(512))?,
            no_logit: stream.upload(&[1.0])?,
            no_shared: stream.upload(&[bf16::ZERO])?,
            split,
        })
    }

    /// How the work is cut.
    #[must_use]
    pub fn split(&self) -> &Split {
        &self.split
    }

    /// The tiling of a launch.
    ///
    /// # Errors
    /// Those of [`launch`](Self::launch) about lengths.
    fn tiling(&self, call: &Call<'_>) -> Result<FinalizeTiling, Error> {
        let Dims { experts, k, n } = self.dims;
        let base = self.split.tiling;
        let rows = call.row_index.len();
        if rows > base.rows as usize {
            return Err(Error::PlanRows { most: base.rows as usize, found: rows });
        }
        let packs = self.dims.packs();
        check_len("x1", &[rows, k], call.x1.len())?;
        check_len("pertoken_scale", &[rows, packs, 2], call.pertoken_scale.len())?;
        check_len("x2", &[experts, k, n], call.x2.len())?;
        let scales = if base.scale_per_expert != 0 { experts } else { 1 };
        check_len("scale", &[scales, packs, n, 2], call.scale.len())?;
        check_len("group_list", &[experts], call.group_list.len())?;
        if let Some(logit) = &call.logit {
            check_len("logit", &[rows], logit.len())?;
        }
        let batch = rows_of("out", n, call.out.len())?;
        let to_u32 =
            |field, found: usize| u32::try_from(found).map_err(|_| Error::DeviceSize { field, most: u32::MAX, found });
        let mut tiling = FinalizeTiling {
            rows: rows as u32,
            batch: to_u32("batch", batch)?,
            has_logit: u32::from(call.logit.is_some()),
            ..base
        };
        if let Some(SharedInput { values, offset, weight }) = &call.shared_input {
            let rows = rows_of("shared_input", n, values.len())?;
            if offset.checked_add(rows).is_none_or(|end| end > batch) {
                return Err(Error::SharedRows { offset: *offset, rows, batch });
            }
            tiling.shared_offset = to_u32("shared_input_offset", *offset)?;
            tiling.shared_rows = to_u32("shared_input", rows)?;
            tiling.shared_weight = *weight;
        }
        Ok(tiling)
    }

    /// Queues a launch, eagerly or in a capture; nothing here waits for the device. Where nothing can be added, nothing is
    /// queued.
    ///
    /// # Errors
    /// A length does not fit the plan, or the launch is refused.
    #[allow(unsafe_code, reason = "launching is a promise about the kernel")]
    pub fn launch(&mut self, queue: &impl Queue, call: Call<'_>) -> Result<(), Error> {
        let tiling = self.tiling(&call)?;
        if tiling.batch == 0 || (tiling.rows == 0 && tiling.shared_rows == 0) {
            return Ok(());
        }
        // Without rows, no argument of them is read, but each needs an address.
        let none = tiling.rows == 0;
        let args = FinalizeRouting {
            x1: if none { call.x2 } else { call.x1 },
            pertoken_scale: if none { call.scale } else { call.pertoken_scale },
            x2: call.x2,
            scale: call.scale,
            group_list: call.group_list,
            row_index: if none { call.group_list } else { call.row_index },
            logit: call.logit.filter(|_| !none).unwrap_or_else(|| (&self.no_logit).into()),
            shared_input: call.shared_input.map_or_else(|| (&self.no_shared).into(), |shared| shared.values),
            out: call.out,
            status: (&mut self.status).into(),
            workspace: (&mut self.workspace).into(),
            tiling,
        };
        let launch = Launch::blocks(self.split.blocks).named("gmm_finalize_routing");
        // SAFETY: the lengths were checked against the tiling, which fits the workspace; the kernel clamps groups to the
        // rows there are and leaves out rows whose index is no row of the output.
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
        Ok(Status { groups: bits & 1 != 0, index: bits & 2 != 0, scale: bits & 8 != 0 })
    }
}
