// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the kernel is told, and the scratch memory it needs.

use crate::error::Error;
use crate::shape::{Dims, Dtype};
use ascend_rt::Arch;

/// The most rows that are sorted by their row of the output at a time.
pub const MOST_WINDOW: u32 = 8192;
/// Slots of dequantised weights per core where the cube has no FP8.
pub const RING_SLOTS: u32 = 8;
/// Bytes of a slot: 256 outputs, 256 inputs, 16 bits each.
pub const RING_SLOT: u32 = 128 << 10;
/// 32-bit words of the status of one vector core.
pub const STATUS_WORDS: usize = 16;

ascend_rt::tiling! {
    /// What the kernel is told beside its buffers: `kernel/tiling.h`.
    pub struct FinalizeTiling {
        /// Offset in the workspace of the products, `[M, 16 * ceil(N / 16)]` F32.
        pub products: u64,
        /// Offset of the dequantised activations, `[M, K]` BF16, where the cube has no FP8.
        pub x: u64,
        /// Offset of the slots of dequantised weights.
        pub ring: u64,
        /// Offset of what each vector core finds of the range of scales, where the cube has no FP8.
        pub ranges: u64,
        /// Offset of what comes of it.
        pub decisions: u64,
        /// Offset of the last pairs of activation scales, where K / 32 is odd and the cube has FP8.
        pub x_tail: u64,
        /// Offset of the last pairs of weight scales.
        pub w_tail: u64,
        /// Bytes from the slots of one core to those of the next.
        pub ring_pitch: u32,
        /// M.
        pub rows: u32,
        /// K.
        pub k: u32,
        /// N.
        pub n: u32,
        /// N, rounded up to 16.
        pub pitch: u32,
        /// E.
        pub experts: u32,
        /// Rows of the output.
        pub batch: u32,
        /// 0 E4M3, 1 E5M2.
        pub e5m2: u32,
        /// 1: weights are `[E, N, K]`.
        pub transposed: u32,
        /// The type of the group list.
        pub counts: u32,
        /// 1: scales of the weights have a leading axis E.
        pub scale_per_expert: u32,
        /// 1: there are logits.
        pub has_logit: u32,
        /// Row of the output that the shared input begins at.
        pub shared_offset: u32,
        /// Rows of the shared input; 0: there is none.
        pub shared_rows: u32,
        /// 1: rows are added as they come.
        pub atomic: u32,
        /// Rows that are sorted at a time.
        pub window: u32,
        /// 1: weights are read once, and the second-level cache need not keep them.
        pub stream: u32,
        /// 1: no code is a NaN.
        pub clean: u32,
        /// What the shared input is multiplied by.
        pub shared_weight: f32,
        /// 1: operands are BF16 in any case.
        pub wide: u32,
    }
}

/// How a plan is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The format of all codes.
    pub dtype: Dtype,
    /// Whether the weights are `[E, N, K]`.
    pub transpose_x2: bool,
    /// Whether the scales of the weights have a leading axis E.
    pub scale_per_expert: bool,
    /// Whether the group list holds counts (type 1) or running ends (type 0).
    pub counts: bool,
    /// Whether rows are added to the output in the order in which they happen to be done: the bits of a result then
    /// change from launch to launch. Without it they are added in ascending order.
    pub atomic: bool,
    /// Promises that no code of activations or weights is a NaN. Used where the cube has no FP8 and the format is E4M3,
    /// whose NaNs take vector instructions of their own; broken, they count as 480.
    pub no_nan: bool,
    /// Whether operands are BF16 also where halfs would do (see [`npu`](crate::npu)). The result has the same bits, later.
    pub always_bf16: bool,
    /// Rows that are sorted by their row of the output at a time, at most [`MOST_WINDOW`].
    pub window: u32,
}

impl Options {
    /// Running ends, one scale tensor for all experts, rows in ascending order, no promises.
    #[must_use]
    pub fn new(dtype: Dtype, transpose_x2: bool) -> Self {
        Self {
            dtype,
            transpose_x2,
            scale_per_expert: false,
            counts: false,
            atomic: false,
            no_nan: false,
            always_bf16: false,
            window: MOST_WINDOW,
        }
    }
}

/// A tiling, and the scratch memory it needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// For the kernel. What belongs to one launch is zero.
    pub tiling: FinalizeTiling,
    /// Bytes of workspace.
    pub workspace: usize,
    /// Words of status.
    pub status: usize,
    /// Blocks to launch: all cores.
    pub blocks: u32,
}

/// Scratch regions begin at multiples of this.
const ALIGN: u64 = 512;

impl Split {
    /// Cuts a call of at most `rows` rows for a chip with so many cube cores.
    ///
    /// # Errors
    /// A size is impossible or more than the kernel can address, or there is no kernel for the architecture.
    pub fn new(dims: &Dims, rows: u32, options: &Options, arch: Arch, cores: u32) -> Result<Self, Error> {
        dims.check()?;
        let cores = cores.max(1);
        let has_fp8 = match arch.number() {
            2201 => false,
            3510 => true,
            _ => return Err(Error::Architecture { found: arch.to_string() }),
        };
        let size = |field, size: usize, most: u32| match u32::try_from(size) {
            Ok(size) if size <= most => Ok(size),
            _ => Err(Error::DeviceSize { field, most, found: size }),
        };
        // Where activations are dequantised, gaps between their blocks have 16 bits.
        let rows = if has_fp8 { rows } else { size("rows", rows as usize, u32::from(u16::MAX))? };
        let k = size("dims.k", dims.k, 1 << 24)?;
        let n = size("dims.n", dims.n, 1 << 24)?;
        let experts = size("dims.experts", dims.experts, 1 << 16)?;
        let window = size("options.window", options.window as usize, MOST_WINDOW)?.max(1);
        let pitch = n.next_multiple_of(16);
        let scales = if options.scale_per_expert { experts } else { 1 };
        // An odd multiple of 512 bytes apart, cores do not meet in the channels of the memory.
        let ring_pitch = RING_SLOTS * RING_SLOT + 512;
        let mut at = 0u64;
        let mut region = |bytes: u64| {
            let begin = at;
            at += bytes.next_multiple_of(ALIGN);
            begin
        };
        let odd = has_fp8 && !k.is_multiple_of(64);
        let products = region(u64::from(rows) * u64::from(pitch) * 4);
        let x = region(if has_fp8 { 0 } else { u64::from(rows) * u64::from(k) * 2 });
        let ring = region(if has_fp8 { 0 } else { u64::from(cores) * u64::from(ring_pitch) });
        let ranges = region(if has_fp8 { 0 } else { u64::from(cores) * 2 * 128 });
        let decisions = region(if has_fp8 { 0 } else { u64::from(cores) * 64 });
        let x_tail = region(if odd { u64::from(rows) * 2 } else { 0 });
        let w_tail = region(if odd { u64::from(scales) * u64::from(n) * 2 } else { 0 });
        let workspace = usize::try_from(at).map_err(|_| Error::DeviceSize {
            field: "rows",
            most: u32::MAX,
            found: rows as usize,
        })?;
        let tiling = FinalizeTiling {
            products,
            x,
            ring,
            ranges,
            decisions,
            x_tail,
            w_tail,
            ring_pitch,
            rows,
            k,
            n,
            pitch,
            experts,
            batch: 0,
            e5m2: u32::from(options.dtype == Dtype::E5M2),
            transposed: u32::from(options.transpose_x2),
            counts: u32::from(options.counts),
            scale_per_expert: u32::from(options.scale_per_expert),
            has_logit: 0,
            shared_offset: 0,
            shared_rows: 0,
            atomic: u32::from(options.atomic),
            window,
            stream: 1,
            clean: u32::from(options.no_nan),
            shared_weight: 0.0,
            wide: u32::from(options.always_bf16),
        };
        Ok(Self { tiling, workspace, status: 2 * cores as usize * STATUS_WORDS, blocks: cores })
    }
}
