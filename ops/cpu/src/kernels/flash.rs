// SPDX-License-Identifier: MIT OR Apache-2.0

//! The online softmax between the two products of attention, and what belongs to it.
//!
//! A row is worked on by itself, in vectors from its first key on, so that its result does not depend on its company.

use super::simd::{Kernel, Simd};
use crate::acts::ValuesMut;
use crate::math::exp_below;
use crate::weights::PANEL;

/// Lanes of the widest vectors.
pub(crate) const MOST_LANES: usize = 16;
/// Independent sums and maxima of a row.
const CHAINS: usize = 4;

/// A row that sees something of a block.
#[derive(Clone, Copy)]
pub(crate) struct Chosen {
    /// Row of the state.
    pub(crate) row: usize,
    /// How many of the block's first keys it sees; at least one.
    pub(crate) visible: usize,
    /// Place in the caller's list.
    pub(crate) place: usize,
}

/// `scores = scores * scale + bias`, minus infinity where that is the bias: a hidden key must not show as NaN.
pub(crate) struct AddBias<'a> {
    pub(crate) scale: f32,
    /// `[places][keys]`
    pub(crate) bias: &'a [f32],
    pub(crate) keys: usize,
    pub(crate) chosen: &'a [Chosen],
    /// `[panels][chosen][64]`
    pub(crate) scores: &'a mut [f32],
}

impl Kernel for AddBias<'_> {
    type Output = ();

    // Plain loops, for the compiler to make vector code of in the function of the level.
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { scale, bias, keys, chosen, scores } = self;
        for (panel, scores) in scores.chunks_exact_mut((chosen.len() * PANEL).max(1)).enumerate() {
            for (scores, chosen) in scores.chunks_exact_mut(PANEL).zip(chosen) {
                let bias = &bias[chosen.place * keys..][..chosen.visible];
                for (score, bias) in scores.iter_mut().zip(bias.get(panel * PANEL..).unwrap_or_default()) {
                    let biased = *score * scale + bias;
                    *score = if *bias == f32::NEG_INFINITY { *bias } else { biased };
                }
            }
        }
    }
}

/// Scores to probabilities, in rows of activations, and the state of the rows.
pub(crate) struct Softmax<'a> {
    pub(crate) scale: f32,
    pub(crate) chosen: &'a [Chosen],
    /// Products, `[panels][chosen][64]`; overwritten.
    pub(crate) scores: &'a mut [f32],
    /// Keys of the block; beyond those that a row sees, its probabilities are zero.
    pub(crate) keys: usize,
    /// The largest score of each row of the state.
    pub(crate) max: &'a mut [f32],
    /// The sum of each row of the state.
    pub(crate) sum: &'a mut [f32],
    /// Scratch: the sums of the block, one for each chosen row.
    pub(crate) sums: &'a mut [f32],
    /// What earlier sums shrink by, one for each chosen row, padded to whole vectors.
    pub(crate) shrink: &'a mut [f32],
    /// Whether probabilities are rounded to BF16.
    pub(crate) round: bool,
    /// Probabilities, `[chosen]` rows of `stride` values.
    pub(crate) out: ValuesMut<'a>,
    pub(crate) stride: usize,
}

impl Kernel for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        match &mut self.out {
            ValuesMut::Bf16(out) => {
                let (to, len) = (Bf16(out.as_mut_ptr().cast()), out.len());
                // SAFETY: the slice, of transparent `u16`, is borrowed until the end of the call.
                unsafe { self.rows(s, to, len) }
            }
            ValuesMut::F32(out) => {
                let (to, len) = (out.as_mut_ptr(), out.len());
                // SAFETY: the slice is borrowed until the end of the call.
                unsafe { if self.round { self.rows(s, Rounded(to), len) } else { self.rows(s, F32(to), len) } }
            }
        }
    }
}

impl Softmax<'_> {
    /// # Safety
    /// `out` is writable for `len` values.
    #[inline(always)]
    unsafe fn rows<S: Simd, O: Out<S>>(self, s: S, out: O, len: usize) {
        let Self { scale, chosen, scores, keys, max, sum, sums, shrink, stride, .. } = self;
        let panel = chosen.len() * PANEL;
        // Whole vectors up to the padding of the columns.
        let columns = keys.next_multiple_of(S::LANES);
        assert!(columns <= stride && chosen.len().checked_mul(stride).is_some_and(|all| all <= len));
        assert!(sums.len() == chosen.len() && shrink.len() >= chosen.len() && shrink.len().is_multiple_of(S::LANES));
        for (i, &Chosen { row, visible, .. }) in chosen.iter().enumerate() {
            assert!(visible > 0 && visible <= keys && visible.div_ceil(PANEL) * panel <= scores.len());
            let scores = scores.as_mut_ptr().wrapping_add(i * PANEL);
            let out = out.at(i * stride);
            // SAFETY: the row has `visible` scores in its parts of the panels by the assertion, and in the output room for
            // whole vectors of them, and for zeros up to `columns`.
            let of_block = unsafe {
                let most = scale_row(s, scores, panel, visible, scale, max[row]);
                // Nothing to be relative to where there is no number, nor anything but minus infinity.
                let shift = if most == f32::NEG_INFINITY { 0.0 } else { most };
                // What was summed so far is relative to the old maximum.
                shrink[i] = max[row] - shift;
                max[row] = most;
                let of_block = exp_row(s, scores, panel, visible, shift, out);
                for at in (visible.next_multiple_of(S::LANES)..columns).step_by(S::LANES) {
                    out.at(at).store(s, s.splat(0.0));
                }
                of_block
            };
            sums[i] = of_block;
        }
        for falls in shrink.chunks_exact_mut(S::LANES) {
            // SAFETY: the chunk has LANES values.
            unsafe { s.store(falls.as_mut_ptr(), exp_below(s, s.load(falls.as_ptr()))) };
        }
        for ((chosen, shrink), of_block) in chosen.iter().zip(shrink).zip(sums) {
            sum[chosen.row] = sum[chosen.row] * *shrink + *of_block;
        }
    }
}

/// Multiplies a row's scores by the scale, writes minus infinity to the rest of its last vector, and returns the largest of
/// them and `max`; NaN does not count.
///
/// # Safety
/// `scores` is writable for 64 values, and so is each of the following panels, `panel` values apart, that the row sees.
#[inline(always)]
unsafe fn scale_row<S: Simd>(s: S, scores: *mut f32, panel: usize, visible: usize, scale: f32, max: f32) -> f32 {
    let scale = s.splat(scale);
    let mut most = [s.splat(max); CHAINS];
    let (mut p, mut left) = (scores, visible);
    // SAFETY: the caller's promise.
    unsafe {
        while left >= PANEL {
            for j in 0..PANEL / S::LANES {
                let p = p.wrapping_add(j * S::LANES);
                let x = s.mul(s.load(p), scale);
                s.store(p, x);
                // A NaN leaves the maximum as it is.
                most[j % CHAINS] = s.max(x, most[j % CHAINS]);
            }
            p = p.wrapping_add(panel);
            left -= PANEL;
        }
        while left > 0 {
            s.store(p, s.mul(s.load(p), scale));
            for lane in left.min(S::LANES)..S::LANES {
                p.wrapping_add(lane).write(f32::NEG_INFINITY);
            }
            most[0] = s.max(s.load(p), most[0]);
            p = p.wrapping_add(S::LANES);
            left = left.saturating_sub(S::LANES);
        }
    }
    s.reduce_max(s.max(s.max(most[0], most[1]), s.max(most[2], most[3])))
}

/// Writes `e^(score - shift)` of a row's scores and returns their sum.
///
/// # Safety
/// As [`scale_row`]; `out` is writable for whole vectors of the scores.
#[inline(always)]
unsafe fn exp_row<S: Simd, O: Out<S>>(
    s: S,
    scores: *const f32,
    panel: usize,
    visible: usize,
    shift: f32,
    out: O,
) -> f32 {
    let shift = s.splat(shift);
    let mut sums = [s.splat(0.0); CHAINS];
    let (mut p, mut left, mut out) = (scores, visible, out);
    // SAFETY: the caller's promise.
    unsafe {
        while left >= PANEL {
            for j in 0..PANEL / S::LANES {
                let e = exp_below(s, s.sub(s.load(p.wrapping_add(j * S::LANES)), shift));
                sums[j % CHAINS] = s.add(sums[j % CHAINS], e);
                out.at(j * S::LANES).store(s, e);
            }
            p = p.wrapping_add(panel);
            out = out.at(PANEL);
            left -= PANEL;
        }
        while left > 0 {
            let e = exp_below(s, s.sub(s.load(p), shift));
            sums[0] = s.add(sums[0], e);
            out.store(s, e);
            p = p.wrapping_add(S::LANES);
            out = out.at(S::LANES);
            left = left.saturating_sub(S::LANES);
        }
    }
    s.reduce_add(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])))
}

/// Where probabilities go.
trait Out<S: Simd>: Copy {
    /// The place `index` values further.
    fn at(self, index: usize) -> Self;
    /// Stores a vector; a NaN among BF16 probabilities may become any value, since the sum of the row makes its result NaN.
    ///
    /// # Safety
    /// The place is writable for LANES values.
    unsafe fn store(self, s: S, e: S::V);
}

/// BF16.
#[derive(Clone, Copy)]
struct Bf16(*mut u16);

impl<S: Simd> Out<S> for Bf16 {
    #[inline(always)]
    fn at(self, index: usize) -> Self {
        Self(self.0.wrapping_add(index))
    }
    #[inline(always)]
    unsafe fn store(self, s: S, e: S::V) {
        // SAFETY: the caller's promise.
        unsafe { s.store_bf16_numbers(self.0, e) }
    }
}

/// F32, rounded to BF16.
#[derive(Clone, Copy)]
struct Rounded(*mut f32);

impl<S: Simd> Out<S> for Rounded {
    #[inline(always)]
    fn at(self, index: usize) -> Self {
        Self(self.0.wrapping_add(index))
    }
    #[inline(always)]
    unsafe fn store(self, s: S, e: S::V) {
        let mut words = [0_u16; MOST_LANES];
        // SAFETY: the caller's promise; LANES is at most `MOST_LANES`.
        unsafe {
            s.store_bf16_numbers(words.as_mut_ptr(), e);
            s.store(self.0, s.load_bf16(words.as_ptr()));
        }
    }
}

/// F32 as it is.
#[derive(Clone, Copy)]
struct F32(*mut f32);

impl<S: Simd> Out<S> for F32 {
    #[inline(always)]
    fn at(self, index: usize) -> Self {
        Self(self.0.wrapping_add(index))
    }
    #[inline(always)]
    unsafe fn store(self, s: S, e: S::V) {
        // SAFETY: the caller's promise.
        unsafe { s.store(self.0, e) }
    }
}

/// Whether all values, a multiple of 64 of them, are finite.
pub(crate) struct AllFinite<'a>(pub(crate) &'a [f32]);

impl Kernel for AllFinite<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> bool {
        let zero = s.splat(0.0);
        let mut sums = [zero; CHAINS];
        for x in self.0.chunks_exact(PANEL) {
            for j in 0..PANEL / S::LANES {
                // SAFETY: the chunk has 64 values, a multiple of LANES.
                let x = unsafe { s.load(x.as_ptr().wrapping_add(j * S::LANES)) };
                // Zero for a finite value, else NaN.
                sums[j % CHAINS] = s.fma(x, zero, sums[j % CHAINS]);
            }
        }
        s.reduce_add(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3]))) == 0.0
    }
}

/// `values = values * shrink + products` in the chosen rows.
pub(crate) struct Accumulate<'a> {
    pub(crate) chosen: &'a [Chosen],
    /// One for each chosen row.
    pub(crate) shrink: &'a [f32],
    /// `[panels][chosen][64]`
    pub(crate) products: &'a [f32],
    /// Rows of `stride` values.
    pub(crate) values: &'a mut [f32],
    pub(crate) stride: usize,
}

impl Kernel for Accumulate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { chosen, shrink, products, values, stride } = self;
        for (panel, products) in products.chunks_exact((chosen.len() * PANEL).max(1)).enumerate() {
            for ((row, shrink), products) in chosen.iter().zip(shrink).zip(products.chunks_exact(PANEL)) {
                let values = &mut values[row.row * stride + panel * PANEL..][..PANEL];
                let shrink = s.splat(*shrink);
                for at in (0..PANEL).step_by(S::LANES) {
                    // SAFETY: both slices have 64 values, a multiple of LANES.
                    unsafe {
                        let value = values.as_mut_ptr().wrapping_add(at);
                        let product = s.load(products.as_ptr().wrapping_add(at));
                        s.store(value, s.fma(s.load(value), shrink, product));
                    }
                }
            }
        }
    }
}

/// The state of some rows: largest scores, sums, and values in rows of `stride`, a multiple of 64.
pub(crate) struct Merge<'a> {
    pub(crate) max: &'a mut [f32],
    pub(crate) sum: &'a mut [f32],
    pub(crate) values: &'a mut [f32],
    /// The state of as many rows, which is taken in.
    pub(crate) other_max: &'a [f32],
    pub(crate) other_sum: &'a [f32],
    pub(crate) other_values: &'a [f32],
    pub(crate) stride: usize,
}

impl Kernel for Merge<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let stride = self.stride;
        for row in 0..self.max.len() {
            // A part that has seen nothing is not multiplied in: nothing changes, not even by rounding.
            if self.other_sum[row] == 0.0 {
                continue;
            }
            let (a, b) = (self.max[row], self.other_max[row]);
            let max = a.max(b);
            let shift = if max == f32::NEG_INFINITY { 0.0 } else { max };
            let (old, new) = (exp_one(s, a - shift), exp_one(s, b - shift));
            self.max[row] = max;
            self.sum[row] = self.sum[row] * old + self.other_sum[row] * new;
            let values = &mut self.values[row * stride..(row + 1) * stride];
            let other = &self.other_values[row * stride..(row + 1) * stride];
            let (old, new) = (s.splat(old), s.splat(new));
            for at in (0..stride / PANEL * PANEL).step_by(S::LANES) {
                // SAFETY: both slices have `stride` values, and 64 is a multiple of LANES.
                unsafe {
                    let (value, other) = (values.as_mut_ptr().wrapping_add(at), other.as_ptr().wrapping_add(at));
                    s.store(value, s.fma(s.load(value), old, s.mul(s.load(other), new)));
                }
            }
        }
    }
}

/// e^x of one value that is not positive, rounded as those of vectors.
#[inline(always)]
fn exp_one<S: Simd>(s: S, x: f32) -> f32 {
    let mut lanes = [0.0; MOST_LANES];
    // SAFETY: LANES is at most `MOST_LANES`.
    unsafe { s.store(lanes.as_mut_ptr(), exp_below(s, s.splat(x))) };
    lanes[0]
}
