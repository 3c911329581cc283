// SPDX-License-Identifier: MIT OR Apache-2.0

//! How the kernel cuts its work, per architecture, and what that takes of the memories of a core.

use crate::error::Error;
use crate::knobs::TILES;
use crate::shape::{Activation, MoeDims};
use ascend_rt::Arch;

/// Bytes of L1 that hold rows of the left operand; the stages of weights lie behind it.
pub const ROW_BYTES: u32 = 192 << 10;
/// Stages of weights in L1.
pub const STAGES: u32 = 4;
/// Bytes of one stage.
pub const STAGE_BYTES: u32 = 64 << 10;
/// Bytes of diagonals beside a stage in memory, where the cube core scales FP8 weights.
pub const TILE_BYTES: u32 = 2 << 10;
/// The most rows of one tile.
pub const TILE_ROWS: u32 = 128;
/// Up to so many rows of an expert, tiles have other columns and stages another depth.
pub const FEW_ROWS: u32 = 32;
/// Slots of F32 tiles per core between cube and vector cores.
pub const RING_SLOTS: u32 = 4;

ascend_rt::tiling! {
    /// What the kernel is told beside its buffers: `kernel/tiling.h`.
    pub struct GroupedGemmTiling {
        /// Offset in the workspace of the activations, `[rows, 16 * ceil(I / 16)]` BF16.
        pub a16: u64,
        /// Offset of the slots of F32 tiles.
        pub ring: u64,
        /// Offset of the last columns of the result where H is no multiple of 16, `[rows, 16]` BF16.
        pub tail: u64,
        /// Offset of stages of decoded weights.
        pub weights: u64,
        /// Bytes from the slots of one core to those of the next.
        pub ring_pitch: u32,
        /// Bytes of a slot.
        pub ring_slot: u32,
        /// Slots of a core.
        pub ring_slots: u32,
        /// E.
        pub experts: u32,
        /// H.
        pub hidden: u32,
        /// I.
        pub intermediate: u32,
        /// N.
        pub rows: u32,
        /// 0 silu, 1 swigluoai.
        pub activation: u32,
        /// 0 flat, 1 nz.
        pub layout: u32,
        /// Blocks of 16 columns that the share of a core is a multiple of.
        pub unit: u32,
        /// Columns of a tile of the first product where an expert has many rows, gate and up together.
        pub columns1: u32,
        /// Depth of its stages, along H.
        pub depth1: u32,
        /// Columns of a tile of the first product where an expert has few rows.
        pub few_columns1: u32,
        /// Depth of its stages.
        pub few_depth1: u32,
        /// The same of the second product.
        pub columns2: u32,
        /// Along I.
        pub depth2: u32,
        /// Where an expert has few rows.
        pub few_columns2: u32,
        /// Depth of its stages.
        pub few_depth2: u32,
        /// The most elements of a slice of the activation.
        pub vector_elements: u32,
        /// Tokens of the combined result.
        pub tokens: u32,
        /// Rows of each token.
        pub choices: u32,
        /// Of FP8 weights: 0 F32 for 128 x 128, 1 a power of two for 32 of K.
        pub scale_kind: u32,
        /// Of swigluoai.
        pub alpha: f32,
        /// Of swigluoai.
        pub limit: f32,
    }
}

/// How weights lie in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// That of the published operator, from [`convert_minimax_weights`](crate::convert_minimax_weights).
    Flat,
    /// Fractals of 16 outputs and 16 inputs, gate and up in turns, from
    /// [`convert_minimax_weights_nz`](crate::convert_minimax_weights_nz): the fastest.
    Nz,
    /// E4M3 with F32 scales of 128 x 128 blocks, from [`convert_fp8_weights`](crate::npu::convert_fp8_weights).
    Fp8Block,
    /// E4M3 with E8M0 scales of 32 values, from the same function.
    Mxfp8,
}

impl Layout {
    /// Whether weights are FP8.
    #[must_use]
    pub fn is_fp8(self) -> bool {
        matches!(self, Self::Fp8Block | Self::Mxfp8)
    }
}

/// Sizes of tiles that a program may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiles {
    /// `PYPTO_MM1_N`: columns of a tile of the first product, gate and up together.
    pub mm1_n: u32,
    /// `PYPTO_MM1_K`: depth of its stages.
    pub mm1_k: u32,
    /// `PYPTO_MM2_N`: columns of a tile of the second product.
    pub mm2_n: u32,
    /// `PYPTO_MM2_K`: depth of its stages.
    pub mm2_k: u32,
    /// `PYPTO_VEC_TILE`: columns of a slice of the activation, of which there are 32 rows.
    pub vector: u32,
}

impl Default for Tiles {
    fn default() -> Self {
        let [mm1_n, mm1_k, mm2_n, mm2_k, vector] = TILES.each_ref().map(|knob| knob.default);
        Self { mm1_n, mm1_k, mm2_n, mm2_k, vector }
    }
}

/// A memory of a core, what a kernel takes of it, and what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// The memory.
    pub memory: &'static str,
    /// What decides it.
    pub knob: &'static str,
    /// Bytes taken.
    pub bytes: u32,
    /// Bytes there are.
    pub capacity: u32,
}

/// Bytes that a kernel may use of L1, L0A, L0B, L0C and UB.
fn memories(arch: Arch) -> Option<[u32; 5]> {
    match arch.number() {
        2201 => Some([(512 << 10) - 256, 64 << 10, 64 << 10, 128 << 10, (184 << 10) - 256]),
        3510 => Some([512 << 10, 64 << 10, 64 << 10, 256 << 10, 248 << 10]),
        _ => None,
    }
}

impl Tiles {
    /// What these sizes take of the memories of a core.
    ///
    /// # Errors
    /// [`Error::Architecture`] if there is no kernel for it.
    pub fn budget(&self, arch: Arch) -> Result<Vec<Use>, Error> {
        let [l1, l0a, l0b, l0c, ub] = memories(arch).ok_or(Error::Architecture { found: arch.to_string() })?;
        let item = |memory, knob, bytes: u64, capacity| Use {
            memory,
            knob,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            capacity,
        };
        let product = |a: u32, b: u32| u64::from(a) * u64::from(b);
        let stages = u64::from(ROW_BYTES) + u64::from(STAGES * STAGE_BYTES);
        let mut uses = Vec::new();
        for (knob_n, knob_k, n, k) in [
            ("PYPTO_MM1_N", "PYPTO_MM1_K", self.mm1_n, self.mm1_k),
            ("PYPTO_MM2_N", "PYPTO_MM2_K", self.mm2_n, self.mm2_k),
        ] {
            uses.push(item("L1, one stage of weights", knob_k, 2 * product(n, k), STAGE_BYTES));
            uses.push(item("L1, rows of one stage", knob_k, 2 * product(TILE_ROWS, k), ROW_BYTES / STAGES));
            // Steps of 64 along K where tiles are wide, of 128 where they are not; two of each.
            let step = if n <= 128 { 128 } else { 64 };
            uses.push(item("L0A", knob_k, 4 * product(TILE_ROWS, step), l0a));
            uses.push(item("L0B", knob_n, 4 * product(n, step), l0b));
            uses.push(item("L0C", knob_n, 4 * product(TILE_ROWS, n), l0c.min(128 << 10)));
        }
        uses.push(item("L1", "PYPTO_MM1_K", stages, l1));
        // Gate, up and result in two buffers each, and a temporary: 4, 4 and 2 bytes an element, and 4.
        uses.push(item("UB", "PYPTO_VEC_TILE", 24 * 32 * u64::from(self.vector), ub));
        Ok(uses)
    }

    /// The sizes that the environment sets, the defaults for the others. What a chip has room for is checked when a
    /// plan is made.
    ///
    /// # Errors
    /// [`Error::Knob`] or [`Error::Tile`], naming the variable.
    pub fn from_env() -> Result<Self, Error> {
        let [mm1_n, mm1_k, mm2_n, mm2_k, vector] = TILES.each_ref().map(|knob| knob.value_or_default());
        Ok(Self { mm1_n: mm1_n?, mm1_k: mm1_k?, mm2_n: mm2_n?, mm2_k: mm2_k?, vector: vector? })
    }

    fn check(&self, arch: Arch) -> Result<(), Error> {
        let sizes = [self.mm1_n, self.mm1_k, self.mm2_n, self.mm2_k, self.vector];
        for (knob, size) in TILES.iter().zip(sizes) {
            knob.check(size)?;
        }
        match self.budget(arch)?.into_iter().find(|item| item.bytes > item.capacity) {
            Some(Use { memory, knob, bytes, capacity }) => Err(Error::Budget { knob, memory, bytes, capacity }),
            None => Ok(()),
        }
    }
}

/// A tiling, and the scratch memory it needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// For the kernel.
    pub tiling: GroupedGemmTiling,
    /// Bytes of workspace.
    pub workspace: usize,
    /// Blocks to launch: all cores.
    pub blocks: u32,
}

/// Scratch regions begin at multiples of this.
const ALIGN: u64 = 512;

impl Split {
    /// Cuts a call of at most `rows` rows for a chip with so many cube cores.
    ///
    /// # Errors
    /// A size is impossible, there is no kernel for the architecture, or a tile does not fit the memories of a core
    /// ([`Error::Budget`], which names the knob).
    pub fn new(
        dims: &MoeDims,
        rows: u32,
        layout: Layout,
        tiles: &Tiles,
        arch: Arch,
        cores: u32,
    ) -> Result<Self, Error> {
        dims.check()?;
        tiles.check(arch)?;
        // A stage must not cut a block of scales.
        for (knob, found) in [("PYPTO_MM1_K", tiles.mm1_k), ("PYPTO_MM2_K", tiles.mm2_k)] {
            if layout.is_fp8() && !found.is_multiple_of(128) {
                return Err(Error::Tile { knob, of: 128, found });
            }
        }
        let cores = cores.max(1);
        let size = |field, size: usize, most: u32| match u32::try_from(size) {
            Ok(size) if size <= most => Ok(size),
            _ => Err(Error::DeviceSize { field, most, found: size }),
        };
        // Rows of flat weights have a pitch of 16 bits, and so have the gaps between fractals.
        let hidden = size("hidden", dims.hidden, 32_752)?;
        let intermediate = size("intermediate", dims.intermediate, 32_752)?;
        let experts = size("experts", dims.experts, 1 << 16)?;
        let (activation, alpha, limit) = match dims.activation {
            Activation::Silu => (0, 0.0, 0.0),
            Activation::SwigluOai { alpha, limit } => (1, alpha, limit),
        };
        let few_columns = layout.is_fp8().then_some(FEW_ROWS * 256);
        let ring_slot = 4 * (TILE_ROWS * tiles.mm1_n.max(16)).max(few_columns.unwrap_or_default());
        // An odd multiple of 512 bytes apart, cores do not meet in the channels of the memory.
        let ring_pitch = (RING_SLOTS * ring_slot + 512).next_multiple_of(1024) + 512;
        let mut at = 0u64;
        let mut region = |bytes: u64| {
            let begin = at;
            at += bytes.next_multiple_of(ALIGN);
            begin
        };
        let a16 = region(u64::from(rows) * 2 * u64::from(intermediate.next_multiple_of(16)));
        let ring = region(u64::from(cores) * u64::from(ring_pitch));
        let tail = region(if hidden.is_multiple_of(16) { 0 } else { u64::from(rows) * 32 });
        // Stages of decoded weights, where the cube core takes them from memory.
        let decoded = layout.is_fp8() && arch == Arch::DAV_2201;
        let weights =
            region(u64::from(cores) * if decoded { u64::from(STAGES * (STAGE_BYTES + TILE_BYTES)) + ALIGN } else { 0 });
        let workspace =
            usize::try_from(at).map_err(|_| Error::TooManyRows { argument: "tokens", found: rows as usize })?;
        // With few rows, weights are all that matters: long runs of them in either layout.
        let few = |columns: u32, depth: u32| match layout {
            Layout::Flat => (2 * columns, depth / 2),
            Layout::Nz | Layout::Fp8Block | Layout::Mxfp8 => (columns / 2, 2 * depth),
        };
        let (mut columns1, mut depth1, mut columns2, mut depth2) = (tiles.mm1_n, tiles.mm1_k, tiles.mm2_n, tiles.mm2_k);
        let (mut few_columns1, mut few_depth1) = few(columns1, depth1);
        let (mut few_columns2, mut few_depth2) = few(columns2, depth2);
        let scales = layout.is_fp8() && arch == Arch::DAV_2201;
        if scales {
            // Tiles of a part lie in one block of scales, of which a stage has two. The sums of a tile with many rows
            // leave half of L0C to the weights.
            let part = |columns: u32, most: u32| 1 << (columns / 16).clamp(1, most).ilog2();
            (few_columns1, few_depth1) = (32 * part(columns1 / 2, 8), 128);
            (columns1, depth1) = (32 * part(columns1 / 2, 4), 128);
            (columns2, depth2) = (16 * part(columns2, 8), 256);
            (few_columns2, few_depth2) = (columns2, depth2);
        }
        let tiling = GroupedGemmTiling {
            a16,
            ring,
            tail,
            weights,
            ring_pitch,
            ring_slot,
            ring_slots: RING_SLOTS,
            experts,
            hidden,
            intermediate,
            rows,
            activation,
            layout: match layout {
                Layout::Flat => 0,
                Layout::Nz => 1,
                Layout::Fp8Block | Layout::Mxfp8 => 2,
            },
            unit: match layout {
                Layout::Flat => 16,
                _ if scales => 8,
                Layout::Nz | Layout::Fp8Block | Layout::Mxfp8 => 1,
            },
            columns1,
            depth1,
            few_columns1,
            few_depth1,
            columns2,
            depth2,
            few_columns2,
            few_depth2,
            vector_elements: 32 * tiles.vector,
            tokens: 0,
            choices: 0,
            scale_kind: u32::from(layout == Layout::Mxfp8),
            alpha,
            limit,
        };
        Ok(Self { tiling, workspace, blocks: cores })
    }
}
