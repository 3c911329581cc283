// SPDX-License-Identifier: MIT OR Apache-2.0

//! Cycles of instructions inside one core.

use super::chip::{Arch, Chip};
use super::kinds;
use crate::abi::Record;

/// Cycles of a vector instruction: `fixed + slope` for each repeat of 256 bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Vector {
    pub(super) fixed: f64,
    pub(super) slope: f64,
}

/// What a vector call costs that no table knows, in the middle of those that they know.
const UNKNOWN_2201: Vector = Vector { fixed: 30.0, slope: 2.0 };
const UNKNOWN_3510: Vector = Vector { fixed: 40.0, slope: 2.0 };

/// 2201, measured on a 910B3 for the most part. The fixed cycles are not hidden by a preceding instruction: a published
/// loop of 1000 Adds of 64 repeats without barriers takes 88 cycles each, which is 24 and one for each repeat.
/// Two-input instructions take 2 a repeat, as they do when both inputs lie in one bank group (154 cycles in the same
/// loop); a record does not say where its operands are. Calls that were not measured stand beside what they are like.
fn vector_2201(name: &str) -> Option<Vector> {
    let (fixed, slope) = match name {
        "Add" | "Sub" | "AddRelu" | "SubRelu" | "AbsSub" | "AddDeqRelu" | "AddReluCast" | "SubReluCast" => (24.0, 2.1),
        "Mul" | "MulAddDst" | "FusedMulAdd" | "FusedMulAddRelu" | "MulAddRelu" | "MulCast" | "Mull" | "Prelu" => {
            (25.0, 2.3)
        }
        "Max" | "Min" => (24.0, 2.0),
        "Div" | "Divs" | "Reciprocal" => (30.0, 4.0),
        "Muls" | "Axpy" | "MulsCast" => (25.0, 1.0),
        "Adds" | "Subs" => (24.0, 1.0),
        "Maxs" | "Mins" => (23.0, 1.0),
        "Relu" | "Abs" | "Neg" => (23.0, 1.0),
        "LeakyRelu" => (29.0, 1.0),
        "Duplicate" | "Copy" | "DataCopy" | "CreateVecIndex" | "ArithProgression" => (24.0, 1.0),
        "And" | "Or" | "Not" | "Ands" | "Ors" => (20.0, 2.0),
        "ShiftLeft" | "ShiftRight" => (23.0, 1.0),
        "Exp" | "ExpSub" => (31.0, 2.0),
        "Ln" => (33.0, 2.0),
        "Sqrt" => (39.0, 2.0),
        "Rsqrt" => (24.0, 1.07),
        "Cast" | "CastDeq" | "CastDequant" | "Truncate" => (32.0, 2.0),
        "Compare" | "CompareScalar" | "Compares" => (36.0, 2.0),
        "Select" => (27.0, 2.0),
        "Brcb" => (18.0, 1.0),
        "WholeReduceSum" | "WholeReduceMax" | "WholeReduceMin" | "ReduceSum" | "ReduceMax" | "ReduceMin"
        | "RepeatReduceSum" | "ReduceRepeat" => (46.0, 7.0),
        "BlockReduceSum" | "BlockReduceMax" | "BlockReduceMin" | "PairReduceSum" | "ReduceDataBlock"
        | "ReducePairElem" => (34.0, 1.0),
        // 2 cycles for 8 indices: 16 for a repeat of 64.
        "Gather" | "Gatherb" | "Scatter" => (24.0, 16.0),
        "GatherMask" | "Extract" => (34.0, 14.0),
        // 78 for four lists of 64 pairs, which are 2 KiB or 8 repeats.
        "MrgSort" | "MrgSort4" => (20.0, 9.75),
        // 32 pairs a repeat; as merging four lists of 8.
        "Sort32" | "Sort" => (20.0, 9.75),
        "Transpose" | "TransDataTo5HD" | "Interleave" | "DeInterleave" => (24.0, 2.0),
        "SetCmpMask" | "GetCmpMask" => (20.0, 0.0),
        _ => return None,
    };
    Some(Vector { fixed, slope })
}

/// 3510: the latency and throughput of the register operation of 256 bytes, in a loop that loads, operates and stores.
/// Two loads and one store a cycle never bound it. Starting such a loop and filling its pipeline takes 30 cycles on top:
/// the published Add takes 99.7 cycles for 32 repeats and 370 for 170.
fn vector_3510(name: &str) -> Option<Vector> {
    let (latency, slope) = match name {
        "Add" | "Sub" | "AddRelu" | "SubRelu" | "AbsSub" | "AddDeqRelu" | "AddReluCast" | "SubReluCast" => (7.0, 2.0),
        "Mul" | "MulAddDst" | "FusedMulAdd" | "FusedMulAddRelu" | "MulAddRelu" | "MulCast" | "Mull" | "Prelu" => {
            (8.0, 2.0)
        }
        "Max" | "Min" => (6.0, 2.0),
        "Div" | "Divs" | "Reciprocal" => (17.0, 4.0),
        "Muls" | "Axpy" | "MulsCast" => (8.0, 1.0),
        "Adds" | "Subs" | "Relu" | "LeakyRelu" | "ShiftLeft" | "ShiftRight" => (7.0, 1.0),
        "Maxs" | "Mins" | "Abs" | "Neg" | "And" | "Or" | "Not" | "Ands" | "Ors" => (6.0, 1.0),
        "Duplicate" | "Copy" | "DataCopy" | "Brcb" | "CreateVecIndex" | "ArithProgression" => (6.0, 1.0),
        "Exp" | "ExpSub" | "Ln" => (16.0, 4.0),
        "Sqrt" | "Rsqrt" => (17.0, 4.0),
        "Cast" | "CastDeq" | "CastDequant" | "Truncate" => (7.0, 1.0),
        "Compare" | "CompareScalar" | "Compares" | "Select" => (6.0, 1.0),
        "WholeReduceSum" | "ReduceSum" | "RepeatReduceSum" | "ReduceRepeat" => (22.0, 1.0),
        "WholeReduceMax" | "WholeReduceMin" | "ReduceMax" | "ReduceMin" => (16.0, 1.0),
        "BlockReduceSum" | "BlockReduceMax" | "BlockReduceMin" | "PairReduceSum" | "ReduceDataBlock"
        | "ReducePairElem" => (16.0, 1.0),
        // Estimates from here on: twice the rate of 2201.
        "Gather" | "Gatherb" | "Scatter" => (24.0, 8.0),
        "GatherMask" | "Extract" => (34.0, 4.0),
        "MrgSort" | "MrgSort4" | "Sort32" | "Sort" => (20.0, 9.75),
        "Transpose" | "TransDataTo5HD" | "Interleave" | "DeInterleave" => (24.0, 2.0),
        "SetCmpMask" | "GetCmpMask" => (6.0, 0.0),
        _ => return None,
    };
    Some(Vector { fixed: 30.0 + latency, slope })
}

/// The table's entry, or the substitute and `false`.
pub(super) fn vector(arch: Arch, name: &str) -> (Vector, bool) {
    let (found, other) = match arch {
        Arch::A2201 => (vector_2201(name), UNKNOWN_2201),
        Arch::A3510 => (vector_3510(name), UNKNOWN_3510),
    };
    (found.unwrap_or(other), found.is_some())
}

/// Cycles of a vector instruction. A count that does not fill its last repeat needs the mask set twice: 16 more on 2201.
pub(super) fn vector_cycles(arch: Arch, v: Vector, record: &Record) -> f64 {
    let [repeats, size, count, _] = record.a;
    let tail = arch == Arch::A2201 && count != 0 && !(u64::from(count) * u64::from(size)).is_multiple_of(256);
    v.fixed + v.slope * f64::from(repeats) + if tail { 16.0 } else { 0.0 }
}

/// Depth in K of one block of 16 x 16, and the cycles it takes.
fn cube_block(arch: Arch, dtype: u8) -> (u32, f64) {
    use kinds::*;
    match (arch, dtype) {
        (_, I4) => (64, 1.0),
        (_, I8 | U8) => (32, 1.0),
        (_, E4M3 | E5M2 | HIF8 | MX_E4M3 | MX_E5M2) => (32, 1.0),
        (_, E2M1 | E1M2 | MX_E2M1 | MX_E1M2) => (64, 1.0),
        // 1024 and 256 multiplications a cycle; the fractal is 8 deep.
        (Arch::A2201, F32) => (8, 2.0),
        (Arch::A3510, F32) => (8, 8.0),
        _ => (16, 1.0),
    }
}

/// Cycles of a Mmad without its start. Sizes are those of whole fractals.
pub(super) fn cube_cycles(arch: Arch, record: &Record) -> f64 {
    let (depth, cycles) = cube_block(arch, record.dtype);
    let [m, n, k, _] = record.a;
    f64::from(m.div_ceil(16)) * f64::from(n.div_ceil(16)) * f64::from(k.div_ceil(depth)) * cycles
}

/// Cycles of a load to L0, BT or FB: the start on an idle pipe, the start behind another load, the bytes.
pub(super) fn load_cycles(chip: &Chip, three_d: bool, record: &Record) -> (f64, f64, f64) {
    let r = &chip.rates;
    let bytes = f64::from(record.a[2]);
    let scales = f64::from(record.a[3]) / r.l0_scales;
    match record.to {
        kinds::L0A | kinds::L0B => {
            let start = if three_d { r.load_3d } else { r.load };
            let rate = if record.to == kinds::L0A { r.l0a } else { r.l0b };
            (start, r.load_follow.min(start), bytes / rate + scales)
        }
        kinds::L0A_MX | kinds::L0B_MX => (r.load, r.load_follow, bytes.max(f64::from(record.a[3])) / r.l0_scales),
        kinds::BT | kinds::FB => (r.small, r.small, bytes / r.small_rate),
        _ => (r.small, r.small, bytes / r.local),
    }
}

/// What the scalar unit spends on a call, waiting aside. Worked out from the published scalar times: 58 cycles a step of
/// the half matmul on 2201 (5 loads, 1 Mmad, 5 flags, 0.4 copies and their flags), 42 to 58 on 3510, 26 to 44 a tile of
/// the Add. Loop counters and addresses are part of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scalar {
    pub(super) vector: f64,
    pub(super) mmad: f64,
    pub(super) load: f64,
    pub(super) copy: f64,
    pub(super) fix: f64,
    pub(super) flag: f64,
    pub(super) cross: f64,
    /// A GetValue of on-chip memory. The published scalar Add takes 34 cycles an element: two reads, a write, conversions.
    pub(super) local_read: f64,
    pub(super) local_write: f64,
    pub(super) gm_hit: f64,
    /// Estimate: a line from L2 or HBM, in between.
    pub(super) gm_miss: f64,
    /// Estimate: one line; [`Scalar::clean_byte`] more for each byte.
    pub(super) clean: f64,
    pub(super) clean_byte: f64,
    pub(super) call: f64,
}

pub(super) const COSTS: Scalar = Scalar {
    vector: 8.0,
    mmad: 8.0,
    load: 6.0,
    copy: 12.0,
    fix: 16.0,
    flag: 2.0,
    cross: 6.0,
    local_read: 12.0,
    local_write: 6.0,
    gm_hit: 8.0,
    gm_miss: 300.0,
    clean: 50.0,
    clean_byte: 1.0 / 64.0,
    call: 4.0,
};

/// Cycles of a record that is work of the scalar unit alone.
pub(super) fn scalar_cycles(record: &Record) -> f64 {
    let s = &COSTS;
    let n = f64::from(record.a[1]);
    match record.a[0] {
        0 => s.local_read,
        1 => s.local_write,
        2 => s.gm_hit,
        3 => s.gm_miss,
        4 => s.clean + s.clean_byte * n,
        _ if record.a[1] > 0 => n,
        _ => s.call,
    }
}
