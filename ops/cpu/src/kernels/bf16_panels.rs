// SPDX-License-Identifier: MIT OR Apache-2.0

//! BF16 dot products of few rows with all panels of a small packed BF16 matrix: the products of attention, whose matrices
//! are the blocks of a cache, each read once. Sums are those of [`super::bf16_tile`], bit for bit.
//!
//! What limits few rows is that memory and multiply units take turns: the panels of a block are too short for the
//! hardware's prefetchers to get ahead. So while one matrix is multiplied, the next is asked for, a few lines at a time.

use super::dot::{Dot, DotKernel};
use super::groups;
use crate::weights::PANEL;
use half::bf16;

/// Inputs of a step, after each of which some lines are asked for.
const STEP: usize = 8;
/// Bytes of a cache line.
const LINE: usize = 64;

/// Rows times panels. `rows[i]` is readable for `inputs` values.
pub(crate) struct Bf16Panels<'a> {
    pub(crate) rows: &'a [*const bf16],
    /// A multiple of 4.
    pub(crate) inputs: usize,
    /// BF16 in packed layout.
    pub(crate) panels: &'a [u8],
    /// Bytes from one panel to the next.
    pub(crate) stride: usize,
    /// `[panels][rows][64]`.
    pub(crate) out: &'a mut [f32],
    /// What is read soon.
    pub(crate) ahead: &'a [u8],
}

impl DotKernel for Bf16Panels<'_> {
    type Output = ();

    #[inline(always)]
    fn run<D: Dot>(self, d: D) {
        let Self { rows, inputs, panels, stride, out, ahead } = self;
        let size = rows.len() * PANEL;
        if size == 0 {
            return;
        }
        assert!(inputs.is_multiple_of(4) && out.len().is_multiple_of(size));
        let count = out.len() / size;
        assert!(count == 0 || (count - 1) * stride + inputs * PANEL * 2 <= panels.len());
        let passes = groups(rows.len(), 6).count() * count * inputs.div_ceil(STEP);
        let mut ahead = Ahead {
            next: ahead.as_ptr(),
            lines: ahead.len().div_ceil(LINE),
            each: ahead.len().div_ceil(LINE).div_ceil(passes.max(1)),
        };
        for (panel, out) in out.chunks_exact_mut(size).enumerate() {
            let w = panels.as_ptr().wrapping_add(panel * stride);
            for (row, count) in groups(rows.len(), 6) {
                let rows = rows[row..row + count].as_ptr().cast::<*const u16>();
                let out = out[row * PANEL..(row + count) * PANEL].as_mut_ptr();
                // SAFETY: `count` rows are readable for the inputs, and have room for 64 sums each; the panel has as many
                // inputs by the assertion above.
                unsafe {
                    match count {
                        1 => rows_times::<D, 1>(d, rows, w, inputs, out, &mut ahead),
                        2 => rows_times::<D, 2>(d, rows, w, inputs, out, &mut ahead),
                        3 => rows_times::<D, 3>(d, rows, w, inputs, out, &mut ahead),
                        4 => rows_times::<D, 4>(d, rows, w, inputs, out, &mut ahead),
                        5 => rows_times::<D, 5>(d, rows, w, inputs, out, &mut ahead),
                        _ => rows_times::<D, 6>(d, rows, w, inputs, out, &mut ahead),
                    }
                }
            }
        }
    }
}

/// The lines that are still to be asked for.
struct Ahead {
    next: *const u8,
    lines: usize,
    /// How many after each step.
    each: usize,
}

impl Ahead {
    #[inline(always)]
    fn step(&mut self) {
        let lines = self.each.min(self.lines);
        for _ in 0..lines {
            prefetch(self.next);
            self.next = self.next.wrapping_add(LINE);
        }
        self.lines -= lines;
    }
}

/// Asks for a line in the second-level cache; any address will do.
#[inline(always)]
fn prefetch(p: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is sound, and part of the base instruction set.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T1 }>(p.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = p;
}

/// `MR` rows times the 64 outputs of a panel.
///
/// # Safety
/// `rows` is `MR` rows, readable for `inputs` values, `w` a packed BF16 panel of as many inputs, `out` writable for `MR`
/// rows of 64.
#[inline(always)]
unsafe fn rows_times<D: Dot, const MR: usize>(
    d: D,
    rows: *const *const u16,
    w: *const u8,
    inputs: usize,
    out: *mut f32,
    ahead: &mut Ahead,
) {
    // SAFETY: the caller's promises: pair `k / 2` is 256 bytes of the panel, and two values of each row.
    unsafe {
        let mut x = [core::ptr::null(); MR];
        for m in 0..MR {
            x[m] = rows.wrapping_add(m).read();
        }
        let mut sums = [[d.zero(); 4]; MR];
        let mut k = 0;
        while k < inputs {
            let end = inputs.min(k + STEP);
            while k < end {
                let at = w.wrapping_add(k * PANEL * 2);
                let w = [
                    d.load(at),
                    d.load(at.wrapping_add(64)),
                    d.load(at.wrapping_add(128)),
                    d.load(at.wrapping_add(192)),
                ];
                for m in 0..MR {
                    let pair = d.broadcast_pair(x[m].wrapping_add(k));
                    for j in 0..4 {
                        sums[m][j] = d.dot(sums[m][j], w[j], pair);
                    }
                }
                k += 2;
            }
            ahead.step();
        }
        for m in 0..MR {
            for j in 0..4 {
                d.store_f32(out.wrapping_add(m * PANEL + 16 * j), sums[m][j]);
            }
        }
    }
}
