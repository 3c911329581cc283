// SPDX-License-Identifier: MIT OR Apache-2.0

//! A tile in F32 arithmetic: rows of F32 activations times one panel of 64 outputs.
//!
//! Every output is one chain of multiply-adds along K, in ascending order, from weights rounded to F32 once. So the result
//! does not depend on how many rows share a call, on chunk sizes, or on the weight's layout.

use super::simd::{Kernel, Simd};
use super::{group, groups};
use crate::convert::{TWO_120, is_fast_scale};
use crate::formats::{E8M0, F8E4M3};
use crate::level::Level;
use crate::tile::{Chunk, Chunks};
use crate::weights::{BLOCK, Format, MX_GROUP, PANEL, packed_index};
use half::bf16;
use zerocopy::FromBytes;

/// Inputs of a chunk: a chunk expanded to F32 is 64 KiB and stays in the second-level cache.
pub(crate) const CHUNK: usize = 256;
/// Up to this many rows are multiplied with weights decoded in registers; more share an expanded chunk.
const DIRECT_ROWS: usize = 6;
/// Rows whose part of a chunk, 96 KiB, stays in the second-level cache beside the expanded chunk.
const CACHED_ROWS: usize = 96;

/// Calls the macro `tile!(rows, vectors)` for the widest tile of the level.
macro_rules! by_size {
    ($wide:expr, $count:expr, $tile:ident) => {
        match ($wide, $count) {
            (2, 1) => $tile!(1, 2),
            (2, 2) => $tile!(2, 2),
            (2, 3) => $tile!(3, 2),
            (2, 4) => $tile!(4, 2),
            (2, 5) => $tile!(5, 2),
            (2, _) => $tile!(6, 2),
            (4, 1) => $tile!(1, 4),
            (4, 2) => $tile!(2, 4),
            (4, 3) => $tile!(3, 4),
            (4, 4) => $tile!(4, 4),
            (4, 5) => $tile!(5, 4),
            (4, _) => $tile!(6, 4),
            (_, 1) => $tile!(1, 1),
            (_, 2) => $tile!(2, 1),
            (_, 3) => $tile!(3, 1),
            (_, 4) => $tile!(4, 1),
            (_, 5) => $tile!(5, 1),
            (_, _) => $tile!(6, 1),
        }
    };
}

/// Rows times panel. `rows[i]` is readable for K rounded up to a multiple of 4, with zeros beyond K.
pub(crate) struct F32Tile<'a, 'w> {
    pub(crate) level: Level,
    pub(crate) chunks: Chunks<'w>,
    pub(crate) rows: &'a [*const f32],
    /// `[rows][64]`.
    pub(crate) out: &'a mut [f32],
    /// Room for an expanded chunk: `CHUNK * 64` values.
    pub(crate) expanded: &'a mut [f32],
    /// Room for a packed chunk.
    pub(crate) packed: &'a mut [u8],
    pub(crate) packed_scales: &'a mut [u8],
}

impl Kernel for F32Tile<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { level, chunks, rows, out, expanded, packed, packed_scales } = self;
        assert_eq!(out.len(), rows.len() * PANEL);
        if chunks.k() == 0 {
            out.fill(0.0);
        }
        for k0 in (0..chunks.k()).step_by(CHUNK) {
            let chunk = chunks.get(level, k0..(k0 + CHUNK).min(chunks.k()), packed, packed_scales);
            let padded = chunk.k.next_multiple_of(4);
            let format = chunk.format;
            assert_eq!(chunk.data.len(), padded * PANEL * format.value_bytes());
            let slow = chunk.facts.is_slow() || chunk.block_scales.iter().any(|&scale| !is_fast_scale(scale));
            // SAFETY: rows are readable for the padded inputs of the chunk, which has as many packed inputs; `expanded` has
            // room for them, and `out` has 64 values for each row.
            unsafe {
                if slow {
                    expand_slowly(s, &chunk, expanded);
                    rows_times_expanded(s, rows, k0, padded, expanded, out);
                } else if rows.len() > DIRECT_ROWS {
                    expand(s, &chunk, expanded);
                    rows_times_expanded(s, rows, k0, padded, expanded, out);
                } else {
                    rows_times_packed(s, rows, k0, padded, &chunk, out);
                }
            }
        }
    }
}

/// Rows times a chunk expanded by [`expand`]. A block of it stays in the first-level cache while some rows go by, and the
/// chunk's part of these rows in the second-level cache while all blocks do.
///
/// # Safety
/// Rows are readable for `inputs` values from `k0` on, `inputs` is a multiple of 4, `expanded` holds as many inputs, and
/// `out` has 64 values for each row.
#[inline(always)]
unsafe fn rows_times_expanded<S: Simd>(
    s: S,
    rows: &[*const f32],
    k0: usize,
    inputs: usize,
    expanded: &[f32],
    out: &mut [f32],
) {
    let width = S::WIDE * S::LANES;
    for (rows, out) in rows.chunks(CACHED_ROWS).zip(out.chunks_mut(CACHED_ROWS * PANEL)) {
        for (column, block) in (0..PANEL).step_by(width).zip(expanded.chunks_exact(inputs * width)) {
            let source = Expanded { p: block.as_ptr(), stride: width };
            for (row, count) in groups(rows.len(), 6) {
                let x = group(rows, row, k0);
                let out = &mut out[row * PANEL + column..];
                macro_rules! tile {
                    ($rows:literal, $vectors:literal) => {
                        micro::<S, _, $rows, $vectors>(s, &std::array::from_fn(|i| x[i]), source, inputs, k0 == 0, out)
                    };
                }
                // SAFETY: the caller's promises; the block has the outputs `column .. column + width`.
                unsafe { by_size!(S::WIDE, count, tile) }
            }
        }
    }
}

/// Rows times a packed chunk, decoded in registers.
///
/// # Safety
/// As [`rows_times_expanded`], the chunk having `inputs` packed inputs.
#[inline(always)]
unsafe fn rows_times_packed<S: Simd>(
    s: S,
    rows: &[*const f32],
    k0: usize,
    inputs: usize,
    chunk: &Chunk<'_>,
    out: &mut [f32],
) {
    let data = chunk.data.as_ptr();
    // Decoding takes registers, so fewer rows fit beside it where registers are few.
    let most = if chunk.format.value_bytes() == 1 && S::WIDE == 2 { 4 } else { 6 };
    for (row, count) in groups(rows.len(), most) {
        let x = group(rows, row, k0);
        let out = &mut out[row * PANEL..];
        // SAFETY: the caller's promises; each source reads the layout of its format, inside the chunk.
        unsafe {
            match chunk.format {
                Format::F32 => {
                    let source = |column| Expanded { p: data.cast::<f32>().wrapping_add(column), stride: PANEL };
                    panel_times(s, &x, count, inputs, k0 == 0, out, source);
                }
                Format::Bf16 => {
                    let source = |column| Bf16Pairs { p: data.cast::<u16>().wrapping_add(2 * column) };
                    panel_times(s, &x, count, inputs, k0 == 0, out, source);
                }
                Format::Fp8Block => {
                    for (block, scale) in chunk.block_scales.iter().enumerate() {
                        let at = block * BLOCK;
                        let source = |column| Codes {
                            p: data.wrapping_add(at * PANEL + 4 * column),
                            scales: UniformScale(s.splat(scale * TWO_120)),
                        };
                        let x = x.map(|x| x.wrapping_add(at));
                        panel_times(s, &x, count, (inputs - at).min(BLOCK), k0 + at == 0, out, source);
                    }
                }
                Format::Mxfp8 => {
                    for (group, scales) in chunk.mx_scales.chunks_exact(PANEL).enumerate() {
                        let at = group * MX_GROUP;
                        let factors = mx_factors(scales);
                        let source = |column| Codes {
                            p: data.wrapping_add(at * PANEL + 4 * column),
                            scales: OutputScales(factors.as_ptr().wrapping_add(column)),
                        };
                        let x = x.map(|x| x.wrapping_add(at));
                        panel_times(s, &x, count, (inputs - at).min(MX_GROUP), k0 + at == 0, out, source);
                    }
                }
            }
        }
    }
}

/// The E8M0 scales of 64 outputs, times 2^120.
#[inline(always)]
fn mx_factors(scales: &[u8]) -> [f32; PANEL] {
    std::array::from_fn(|output| E8M0::from_bits(scales[output]).to_f32() * TWO_120)
}

/// Weights of consecutive outputs along K, as the micro-kernel reads them.
trait Source<S: Simd>: Copy {
    /// Inputs of a step.
    const STEP: usize;
    /// Adds the products of one step, one input after the other for every sum. Few rows keep their values in registers and
    /// take the outputs in turn; more rows take the inputs in turn, with the weights of one input in registers.
    ///
    /// # Safety
    /// Inputs `k .. k + STEP` exist in the weights and in every `x`.
    unsafe fn step<const MR: usize, const NV: usize>(
        self,
        s: S,
        x: &[*const f32; MR],
        k: usize,
        sums: &mut [[S::V; NV]; MR],
    );
}

/// Adds the products of input `k` and its weights: of a row's value with all weights, row by row.
///
/// # Safety
/// Input `k` exists in every `x`.
#[inline(always)]
unsafe fn add_products<S: Simd, const MR: usize, const NV: usize>(
    s: S,
    x: &[*const f32; MR],
    k: usize,
    w: &[S::V; NV],
    sums: &mut [[S::V; NV]; MR],
) {
    for m in 0..MR {
        // SAFETY: the caller's promise.
        let x = s.splat(unsafe { x[m].wrapping_add(k).read_unaligned() });
        for j in 0..NV {
            sums[m][j] = s.fma(x, w[j], sums[m][j]);
        }
    }
}

/// F32 values, `stride` from one input to the next.
#[derive(Clone, Copy)]
struct Expanded {
    p: *const f32,
    stride: usize,
}

impl<S: Simd> Source<S> for Expanded {
    const STEP: usize = 1;

    #[inline(always)]
    unsafe fn step<const MR: usize, const NV: usize>(
        self,
        s: S,
        x: &[*const f32; MR],
        k: usize,
        sums: &mut [[S::V; NV]; MR],
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut w = [s.splat(0.0); NV];
            for j in 0..NV {
                w[j] = s.load(self.p.wrapping_add(k * self.stride + j * S::LANES));
            }
            add_products(s, x, k, &w, sums);
        }
    }
}

/// Packed BF16.
#[derive(Clone, Copy)]
struct Bf16Pairs {
    p: *const u16,
}

impl<S: Simd> Source<S> for Bf16Pairs {
    const STEP: usize = 2;

    #[inline(always)]
    unsafe fn step<const MR: usize, const NV: usize>(
        self,
        s: S,
        x: &[*const f32; MR],
        k: usize,
        sums: &mut [[S::V; NV]; MR],
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let at = |k, j| self.p.wrapping_add(k * PANEL + 2 * j * S::LANES);
            if MR <= 2 {
                for j in 0..NV {
                    let w = s.load_pairs(at(k, j));
                    for m in 0..MR {
                        for t in 0..2 {
                            let x = s.splat(x[m].wrapping_add(k + t).read_unaligned());
                            sums[m][j] = s.fma(x, w[t], sums[m][j]);
                        }
                    }
                }
            } else {
                // The panel is read in several passes, each of which leaves gaps for the others; what the next chunk's
                // passes will read is asked for here.
                for j in 0..NV {
                    s.prefetch(at(k + CHUNK, j));
                }
                for t in 0..2 {
                    let mut w = [s.splat(0.0); NV];
                    for j in 0..NV {
                        w[j] = s.load_pairs(at(k, j))[t];
                    }
                    add_products(s, x, k + t, &w, sums);
                }
            }
        }
    }
}

/// What decoded codes are multiplied by.
trait CodeScales<S: Simd>: Copy {
    /// Whether reading the next chunk ahead pays: measured, it takes a fifth of the time off long runs of inputs, and adds as
    /// much to short ones.
    const PREFETCH: bool;
    /// # Safety
    /// Output vector `j` exists.
    unsafe fn get(self, s: S, j: usize) -> S::V;
}

#[derive(Clone, Copy)]
struct UniformScale<V>(V);

impl<S: Simd> CodeScales<S> for UniformScale<S::V> {
    const PREFETCH: bool = true;

    #[inline(always)]
    unsafe fn get(self, _: S, _: usize) -> S::V {
        self.0
    }
}

#[derive(Clone, Copy)]
struct OutputScales(*const f32);

impl<S: Simd> CodeScales<S> for OutputScales {
    const PREFETCH: bool = false;

    #[inline(always)]
    unsafe fn get(self, s: S, j: usize) -> S::V {
        // SAFETY: the caller's promise.
        unsafe { s.load(self.0.wrapping_add(j * S::LANES)) }
    }
}

/// Packed E4M3 under one set of scales.
#[derive(Clone, Copy)]
struct Codes<C> {
    p: *const u8,
    scales: C,
}

impl<S: Simd, C: CodeScales<S>> Source<S> for Codes<C> {
    const STEP: usize = 4;

    #[inline(always)]
    unsafe fn step<const MR: usize, const NV: usize>(
        self,
        s: S,
        x: &[*const f32; MR],
        k: usize,
        sums: &mut [[S::V; NV]; MR],
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let at = |k, j| self.p.wrapping_add(k * PANEL + 4 * j * S::LANES);
            if C::PREFETCH {
                for j in 0..NV {
                    s.prefetch(at(k + CHUNK, j));
                }
            }
            if MR <= 2 {
                for j in 0..NV {
                    let scale = self.scales.get(s, j);
                    let mut w = s.load_quads(at(k, j));
                    for t in 0..4 {
                        w[t] = s.mul(w[t], scale);
                    }
                    for m in 0..MR {
                        for t in 0..4 {
                            let x = s.splat(x[m].wrapping_add(k + t).read_unaligned());
                            sums[m][j] = s.fma(x, w[t], sums[m][j]);
                        }
                    }
                }
            } else {
                for t in 0..4 {
                    let mut w = [s.splat(0.0); NV];
                    for j in 0..NV {
                        w[j] = s.mul(s.load_quads(at(k, j))[t], self.scales.get(s, j));
                    }
                    add_products(s, x, k + t, &w, sums);
                }
            }
        }
    }
}

/// `count` rows (at most 6) times the 64 outputs of a packed panel, over `inputs` inputs.
///
/// # Safety
/// `x` is readable for `inputs` values, which is a multiple of 4; `source(column)` gives weights of the outputs from
/// `column` on, for as many inputs; `out` has `count` rows of 64.
#[inline(always)]
unsafe fn panel_times<S: Simd, W: Source<S>>(
    s: S,
    x: &[*const f32; 6],
    count: usize,
    inputs: usize,
    first: bool,
    out: &mut [f32],
    source: impl Fn(usize) -> W,
) {
    macro_rules! tile {
        ($rows:literal, $vectors:literal) => {{
            let x: [*const f32; $rows] = std::array::from_fn(|i| x[i]);
            for column in (0..PANEL).step_by($vectors * S::LANES) {
                // SAFETY: the caller's promises; the tile's outputs end at or before 64.
                unsafe { micro::<S, W, $rows, $vectors>(s, &x, source(column), inputs, first, &mut out[column..]) };
            }
        }};
    }
    // Few rows take more outputs at a time, so that enough independent sums hide the latency of the multiply-add.
    match (S::WIDE, count) {
        (2, 1) => tile!(1, 8),
        (2, 2) => tile!(2, 4),
        _ => by_size!(S::WIDE, count, tile),
    }
}

/// The micro-kernel: `MR` rows times `NV` vectors of outputs, the sums in registers.
///
/// # Safety
/// As [`rows_times`]; `out` has `MR` rows, 64 apart, of `NV` vectors.
#[inline(always)]
unsafe fn micro<S: Simd, W: Source<S>, const MR: usize, const NV: usize>(
    s: S,
    x: &[*const f32; MR],
    w: W,
    inputs: usize,
    first: bool,
    out: &mut [f32],
) {
    assert!(out.len() >= (MR - 1) * PANEL + NV * S::LANES);
    let out = out.as_mut_ptr();
    // SAFETY: the assertion covers the loads and stores of the sums; the caller's promises cover the steps, since
    // `inputs` is a multiple of every STEP.
    unsafe {
        let mut sums = [[s.splat(0.0); NV]; MR];
        if !first {
            for m in 0..MR {
                for j in 0..NV {
                    sums[m][j] = s.load(out.wrapping_add(m * PANEL + j * S::LANES));
                }
            }
        }
        let mut k = 0;
        while k < inputs {
            // Four inputs an iteration, whatever the step.
            for step in 0..4 / W::STEP {
                w.step(s, x, k + step * W::STEP, &mut sums);
            }
            k += 4;
        }
        for m in 0..MR {
            for j in 0..NV {
                s.store(out.wrapping_add(m * PANEL + j * S::LANES), sums[m][j]);
            }
        }
    }
}

/// Expands a packed chunk to F32, in blocks of the widest tile: `[64 / width][k][width]`.
///
/// # Safety
/// The chunk's data are its padded inputs in packed layout, and `out` holds as many F32 values.
#[inline(always)]
unsafe fn expand<S: Simd>(s: S, chunk: &Chunk<'_>, out: &mut [f32]) {
    let padded = chunk.k.next_multiple_of(4);
    assert!(out.len() >= padded * PANEL);
    let width = S::WIDE * S::LANES;
    let data = chunk.data.as_ptr();
    let out = out.as_mut_ptr();
    for column in (0..PANEL).step_by(S::LANES) {
        // SAFETY: `column` and `k` stay inside the chunk, so reads stay inside its data and writes inside `out`.
        unsafe {
            let to = out.wrapping_add(column / width * width * padded + column % width);
            match chunk.format {
                Format::F32 => {
                    for k in 0..padded {
                        s.store(
                            to.wrapping_add(k * width),
                            s.load(data.cast::<f32>().wrapping_add(k * PANEL + column)),
                        );
                    }
                }
                Format::Bf16 => {
                    for k in (0..padded).step_by(2) {
                        let pair = s.load_pairs(data.cast::<u16>().wrapping_add(k * PANEL + 2 * column));
                        for t in 0..2 {
                            s.store(to.wrapping_add((k + t) * width), pair[t]);
                        }
                    }
                }
                Format::Fp8Block => {
                    for (block, scale) in chunk.block_scales.iter().enumerate() {
                        let factor = s.splat(scale * TWO_120);
                        for k in (block * BLOCK..padded.min((block + 1) * BLOCK)).step_by(4) {
                            let quad = s.load_quads(data.wrapping_add(k * PANEL + 4 * column));
                            for t in 0..4 {
                                s.store(to.wrapping_add((k + t) * width), s.mul(quad[t], factor));
                            }
                        }
                    }
                }
                Format::Mxfp8 => {
                    for (group, scales) in chunk.mx_scales.chunks_exact(PANEL).enumerate() {
                        let factors = mx_factors(scales);
                        let factor = s.load(factors.as_ptr().wrapping_add(column));
                        for k in (group * MX_GROUP..padded.min((group + 1) * MX_GROUP)).step_by(4) {
                            let quad = s.load_quads(data.wrapping_add(k * PANEL + 4 * column));
                            for t in 0..4 {
                                s.store(to.wrapping_add((k + t) * width), s.mul(quad[t], factor));
                            }
                        }
                    }
                }
            }
        }
    }
}

/// [`expand`] for chunks with NaN codes or scales that the fast decoders cannot take: one value at a time.
fn expand_slowly<S: Simd>(_: S, chunk: &Chunk<'_>, out: &mut [f32]) {
    let padded = chunk.k.next_multiple_of(4);
    let width = S::WIDE * S::LANES;
    for output in 0..PANEL {
        for k in 0..padded {
            out[output / width * width * padded + k * width + output % width] = chunk.get(output, k);
        }
    }
}

impl Chunk<'_> {
    /// The dequantised value of `output` at input `k` of the chunk.
    pub(crate) fn get(&self, output: usize, k: usize) -> f32 {
        let at = packed_index(self.format, output, k);
        let size = self.format.value_bytes();
        let value = &self.data[at * size..(at + 1) * size];
        if k >= self.k {
            return 0.0;
        }
        match self.format {
            Format::F32 => f32::read_from_bytes(value).expect("four bytes"),
            Format::Bf16 => bf16::read_from_bytes(value).expect("two bytes").to_f32(),
            Format::Fp8Block => F8E4M3::from_bits(value[0]).to_f32() * self.block_scales[k / BLOCK],
            Format::Mxfp8 => {
                let scale = E8M0::from_bits(self.mx_scales[k / MX_GROUP * PANEL + output]);
                F8E4M3::from_bits(value[0]).to_f32() * scale.to_f32()
            }
        }
    }
}

const _: () = assert!(CHUNK.is_multiple_of(BLOCK) && CHUNK.is_multiple_of(MX_GROUP));
