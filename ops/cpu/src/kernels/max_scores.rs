// SPDX-License-Identifier: MIT OR Apache-2.0

//! The largest product of each row with the keys of a block, in BF16 dot products and in F32 arithmetic.
//!
//! Lane = key: the sums of some rows with the 64 keys of a panel stay in registers and are folded into one vector of maxima
//! for each row, which becomes one number at the end of the block. A panel stays in the first-level cache while rows go by.
//!
//! A sum takes the inputs in pairs, and of a pair the second first, as `vdpbf16ps` does. So a row's result depends neither
//! on which rows share a call nor, where multiply-adds are fused, on the level (that instruction's zeros for subnormals
//! aside).

use super::dot::{Dot, DotKernel};
use super::groups;
use super::simd::{Kernel, Simd};
use crate::weights::{Format, PANEL};
use half::bf16;

/// Rows of a micro-kernel.
const MAX_ROWS: usize = 6;
/// Rows that a panel is multiplied with before the next one; their values and maxima stay in the second-level cache.
pub(crate) const CACHED_ROWS: usize = 96;
/// Places for the maxima of one row: the lanes of the widest vector.
pub(crate) const MAXIMA: usize = 16;
/// In F32 arithmetic, from so many rows on BF16 keys are widened once for all instead of in registers for each group.
const EXPAND_ROWS: usize = 48;

/// Packed keys: `count` panels of `inputs` values (a multiple of 4) for each of 64 keys.
#[derive(Clone, Copy)]
pub(crate) struct Panels<'a> {
    pub(crate) data: &'a [u8],
    /// Bytes from one panel to the next.
    pub(crate) stride: usize,
    pub(crate) count: usize,
    pub(crate) inputs: usize,
    pub(crate) format: Format,
    /// What is read after these.
    pub(crate) next: Option<&'a [u8]>,
}

impl<'a> Panels<'a> {
    /// Panel `index`, and the stream behind it.
    #[inline(always)]
    fn get(&self, index: usize) -> (&'a [u8], Ahead) {
        let panel = &self.data[index * self.stride..][..self.bytes()];
        let next = match self.next {
            Some(next) if index + 1 == self.count => next.as_ptr(),
            _ => panel.as_ptr().wrapping_add(self.stride),
        };
        (panel, Ahead { panel: panel.as_ptr(), bytes: panel.len(), next })
    }

    /// Bytes of one panel that count.
    #[inline(always)]
    fn bytes(&self) -> usize {
        self.inputs * PANEL * self.format.value_bytes()
    }
}

/// Rows times the keys of a block.
pub(crate) struct MaxScores<'a, T> {
    pub(crate) panels: Panels<'a>,
    /// Rows of `stride` values, zero from K to `panels.inputs`.
    pub(crate) rows: &'a [T],
    pub(crate) stride: usize,
    /// How many keys each row sees.
    pub(crate) visible: &'a [usize],
    pub(crate) out: &'a mut [f32],
    /// Room for the maxima of [`CACHED_ROWS`] rows.
    pub(crate) maxima: &'a mut [f32],
    /// Room for a panel in F32; may be empty where keys are not BF16 or the arithmetic is not F32.
    pub(crate) expanded: &'a mut [f32],
}

impl<T> MaxScores<'_, T> {
    /// The checks that make the kernels' pointers sound.
    #[inline(always)]
    fn check(&self) {
        let count = self.visible.len();
        assert!(self.stride >= self.panels.inputs && self.rows.len() == count * self.stride);
        assert!(self.out.len() == count && self.panels.inputs.is_multiple_of(4));
        assert!(self.maxima.len() >= CACHED_ROWS * MAXIMA);
    }

    /// Pointers to the group of rows that starts at `row`; places beyond the last row repeat it.
    #[inline(always)]
    fn pointers(&self, row: usize) -> [*const T; MAX_ROWS] {
        let last = self.visible.len() - 1;
        std::array::from_fn(|i| self.rows[(row + i).min(last) * self.stride..].as_ptr())
    }

    /// The rows in chunks of [`CACHED_ROWS`], of which nothing has been seen yet.
    #[inline(always)]
    fn chunk(&mut self, first: usize) -> std::ops::Range<usize> {
        let rows = first..self.visible.len().min(first + CACHED_ROWS);
        self.out[rows.clone()].fill(f32::NEG_INFINITY);
        self.maxima[..rows.len() * MAXIMA].fill(f32::NEG_INFINITY);
        rows
    }

    /// Brings the maxima of a chunk of rows into the output. Of several NaN, and of the two zeros, the order of the
    /// comparisons decides which one is left; the output has one of each.
    #[inline(always)]
    fn finish(&mut self, rows: std::ops::Range<usize>) {
        for (out, maxima) in self.out[rows].iter_mut().zip(self.maxima.chunks_exact(MAXIMA)) {
            let most = larger_or_nan(*out, largest_of_maxima(maxima));
            *out = if most.is_nan() { f32::NAN } else { most + 0.0 };
        }
    }
}

/// The stream of packed keys beyond the place that is being read. The hardware does not read ahead over the end of a page,
/// nor to a block elsewhere.
#[derive(Clone, Copy)]
struct Ahead {
    panel: *const u8,
    bytes: usize,
    next: *const u8,
}

impl Ahead {
    /// Bytes ahead, measured: from memory into the second-level cache, and from there into the first.
    const FAR: usize = 5 << 10;
    const NEAR: usize = 1 << 10;

    /// Asks for what comes after the bytes `range` of the panel have been read.
    #[inline(always)]
    fn read(self, range: std::ops::Range<usize>) {
        #[cfg(target_arch = "x86_64")]
        {
            use core::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
            // So many bytes of the panel have the far place in the panel too.
            let inside = self.bytes.saturating_sub(Self::FAR);
            let far = match range.start.checked_sub(inside) {
                None => self.panel.wrapping_add(range.start + Self::FAR),
                Some(at) => self.next.wrapping_add(at),
            };
            for at in (0..range.len()).step_by(64) {
                // SAFETY: a prefetch of any address is sound, and every CPU of the architecture has the instruction.
                unsafe {
                    _mm_prefetch::<_MM_HINT_T1>(far.wrapping_add(at).cast());
                    _mm_prefetch::<_MM_HINT_T0>(self.panel.wrapping_add(range.start + Self::NEAR + at).cast());
                }
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (self.panel, self.bytes, self.next, range);
    }
}

/// The larger of two numbers; NaN where either is.
#[inline(always)]
fn larger_or_nan(a: f32, b: f32) -> f32 {
    if a.is_nan() || a > b { a } else { b }
}

#[inline(always)]
fn largest_or_nan(first: f32, values: &[f32]) -> f32 {
    values.iter().fold(first, |most, &value| larger_or_nan(most, value))
}

/// The largest of the maxima of a row; halves are folded onto each other, which is vector code.
#[inline(always)]
fn largest_of_maxima(maxima: &[f32]) -> f32 {
    #[inline(always)]
    fn fold<const FROM: usize, const TO: usize>(values: [f32; FROM]) -> [f32; TO] {
        let mut out = [0.0; TO];
        for i in 0..TO {
            out[i] = larger_or_nan(values[i], values[TO + i]);
        }
        out
    }
    let mut lanes = [0.0; MAXIMA];
    lanes.copy_from_slice(maxima);
    fold::<2, 1>(fold::<4, 2>(fold::<8, 4>(fold::<MAXIMA, 8>(lanes))))[0]
}

/// The keys a row sees from key `from` on, at most `width`.
#[inline(always)]
fn seen(visible: usize, from: usize, width: usize) -> usize {
    visible.saturating_sub(from).min(width)
}

impl DotKernel for MaxScores<'_, bf16> {
    type Output = ();

    #[inline(always)]
    fn run<D: Dot>(mut self, d: D) {
        self.check();
        assert!(self.panels.format == Format::Bf16);
        for first in (0..self.visible.len()).step_by(CACHED_ROWS) {
            let rows = self.chunk(first);
            for index in 0..self.panels.count {
                let (panel, ahead) = self.panels.get(index);
                let mut first_read = Some(ahead);
                for (row, count) in groups(rows.len(), MAX_ROWS) {
                    let x = self.pointers(first + row);
                    let visible = &self.visible[first + row..][..count];
                    if visible.iter().all(|&visible| visible <= index * PANEL) {
                        continue;
                    }
                    let fold = Fold {
                        visible,
                        from: index * PANEL,
                        maxima: &mut self.maxima[row * MAXIMA..],
                        out: &mut self.out[first + row..],
                    };
                    macro_rules! rows {
                        ($rows:literal) => {{
                            let x: [*const u16; $rows] = std::array::from_fn(|i| x[i].cast());
                            // SAFETY: each row has `inputs` values at least, and so has the panel for each key.
                            unsafe { bf16_rows(d, &x, panel.as_ptr(), first_read, self.panels.inputs, fold) }
                        }};
                    }
                    match count {
                        1 => rows!(1),
                        2 => rows!(2),
                        3 => rows!(3),
                        4 => rows!(4),
                        5 => rows!(5),
                        _ => rows!(6),
                    }
                    first_read = None;
                }
            }
            self.finish(rows);
        }
    }
}

/// Where the sums of a group of rows go: of key `from` and those after it.
struct Fold<'a> {
    /// Of the rows of the group.
    visible: &'a [usize],
    from: usize,
    /// `[rows][MAXIMA]`, beginning with those of the group.
    maxima: &'a mut [f32],
    /// Beginning with that of the group.
    out: &'a mut [f32],
}

/// The micro-kernel in BF16 dot products: `MR` rows with a panel, while what is `ahead` is brought near.
///
/// # Safety
/// Every `x` is readable for `inputs` values, an even number, and `panel` for 64 times as many.
#[inline(always)]
unsafe fn bf16_rows<D: Dot, const MR: usize>(
    d: D,
    x: &[*const u16; MR],
    panel: *const u8,
    ahead: Option<Ahead>,
    inputs: usize,
    fold: Fold<'_>,
) {
    let Fold { visible, from, maxima, out } = fold;
    assert!(visible.len() == MR && out.len() >= MR && maxima.len() >= MR * MAXIMA);
    let mut sums = [[d.zero(); 4]; MR];
    let mut k = 0;
    while k < inputs {
        let at = k * PANEL * 2;
        // SAFETY: pair `k / 2` is 256 bytes of the panel, and two values of each row.
        unsafe {
            let mut keys = [d.load(panel.wrapping_add(at)); 4];
            for j in 1..4 {
                keys[j] = d.load(panel.wrapping_add(at + 64 * j));
            }
            for m in 0..MR {
                let pair = d.broadcast_pair(x[m].wrapping_add(k));
                for j in 0..4 {
                    sums[m][j] = d.dot(sums[m][j], keys[j], pair);
                }
            }
        }
        if let Some(ahead) = ahead {
            ahead.read(at..at + 4 * PANEL);
        }
        k += 2;
    }
    for m in 0..MR {
        let seen = seen(visible[m], from, PANEL);
        let maxima = maxima[m * MAXIMA..].as_mut_ptr();
        if seen == PANEL {
            // SAFETY: the row has 16 places among the maxima, by the assertion.
            unsafe {
                let upper = d.max_or_nan(sums[m][2], sums[m][3]);
                let most = d.max_or_nan(d.max_or_nan(sums[m][0], sums[m][1]), upper);
                d.store_f32(maxima, d.max_or_nan(d.load_f32(maxima), most));
            }
        } else if seen > 0 {
            let mut scores = [0.0; PANEL];
            for j in 0..4 {
                // SAFETY: 16 values at `16 * j` of 64.
                unsafe { d.store_f32(scores.as_mut_ptr().wrapping_add(16 * j), sums[m][j]) };
            }
            out[m] = largest_or_nan(out[m], &scores[..seen]);
        }
    }
}

impl Kernel for MaxScores<'_, f32> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        self.check();
        let (inputs, format) = (self.panels.inputs, self.panels.format);
        let expands = format == Format::Bf16 && self.visible.len() >= EXPAND_ROWS;
        for first in (0..self.visible.len()).step_by(CACHED_ROWS) {
            let rows = self.chunk(first);
            for index in 0..self.panels.count {
                let (mut panel, ahead) = self.panels.get(index);
                let mut first_read = Some(ahead).filter(|_| !expands);
                if expands {
                    expand(s, panel, ahead, &mut self.expanded[..inputs * PANEL]);
                    panel = zerocopy::IntoBytes::as_bytes(&self.expanded[..inputs * PANEL]);
                }
                for (row, count) in groups(rows.len(), MAX_ROWS) {
                    let x = self.pointers(first + row);
                    let visible = &self.visible[first + row..][..count];
                    if visible.iter().all(|&visible| visible <= index * PANEL) {
                        continue;
                    }
                    let fold = Fold {
                        visible,
                        from: index * PANEL,
                        maxima: &mut self.maxima[row * MAXIMA..],
                        out: &mut self.out[first + row..],
                    };
                    macro_rules! rows {
                        ($rows:literal, $vectors:literal) => {{
                            let x: [*const f32; $rows] = std::array::from_fn(|i| x[i]);
                            let panel = panel.as_ptr();
                            // SAFETY: each row has `inputs` values at least, and so has the panel for each key.
                            unsafe {
                                if format == Format::Bf16 && !expands {
                                    f32_rows::<S, Bf16Keys, $rows, $vectors>(s, &x, panel, first_read, inputs, fold);
                                } else {
                                    f32_rows::<S, F32Keys, $rows, $vectors>(s, &x, panel, first_read, inputs, fold);
                                }
                            }
                        }};
                    }
                    // Few rows take more keys at a time, so that enough independent sums hide the latency of the
                    // multiply-add.
                    match (S::WIDE, count) {
                        (2, 1) => rows!(1, 8),
                        (2, 2) => rows!(2, 4),
                        (2, 3) => rows!(3, 2),
                        (2, 4) => rows!(4, 2),
                        (2, 5) => rows!(5, 2),
                        (2, _) => rows!(6, 2),
                        (4, 1) => rows!(1, 4),
                        (4, 2) => rows!(2, 4),
                        (4, 3) => rows!(3, 4),
                        (4, 4) => rows!(4, 4),
                        (4, 5) => rows!(5, 4),
                        (4, _) => rows!(6, 4),
                        (_, 1) => rows!(1, 1),
                        (_, 2) => rows!(2, 1),
                        (_, 3) => rows!(3, 1),
                        (_, 4) => rows!(4, 1),
                        (_, 5) => rows!(5, 1),
                        (_, _) => rows!(6, 1),
                    }
                    first_read = None;
                }
            }
            self.finish(rows);
        }
    }
}

/// A packed BF16 panel in the packed order of F32, while what is `ahead` is brought near.
#[inline(always)]
fn expand<S: Simd>(s: S, panel: &[u8], ahead: Ahead, out: &mut [f32]) {
    assert!(panel.len() == out.len() * 2 && out.len().is_multiple_of(2 * PANEL));
    for (pair, out) in out.chunks_exact_mut(2 * PANEL).enumerate() {
        let at = pair * 4 * PANEL;
        for key in (0..PANEL).step_by(S::LANES) {
            // SAFETY: a pair of inputs is 256 bytes of the panel, 4 for each key, and 64 values of `out` for each input.
            unsafe {
                let values = s.load_pairs(panel.as_ptr().wrapping_add(at + 4 * key).cast());
                s.store(out.as_mut_ptr().wrapping_add(key), values[0]);
                s.store(out.as_mut_ptr().wrapping_add(PANEL + key), values[1]);
            }
        }
        ahead.read(at..at + 4 * PANEL);
    }
}

/// Packed keys of one format, as the F32 micro-kernel reads them.
trait Keys {
    /// Bytes of a value.
    const BYTES: usize;
    /// Adds the products of inputs `k + 1` and `k`, one after the other for every sum, with the keys from `column` on.
    ///
    /// # Safety
    /// Both inputs exist in the panel and in every `x`, and the keys end at or before the 64th.
    unsafe fn add_two<S: Simd, const MR: usize, const NV: usize>(
        s: S,
        x: &[*const f32; MR],
        panel: *const u8,
        column: usize,
        k: usize,
        sums: &mut [[S::V; NV]; MR],
    );
}

struct F32Keys;

impl Keys for F32Keys {
    const BYTES: usize = 4;

    #[inline(always)]
    unsafe fn add_two<S: Simd, const MR: usize, const NV: usize>(
        s: S,
        x: &[*const f32; MR],
        panel: *const u8,
        column: usize,
        k: usize,
        sums: &mut [[S::V; NV]; MR],
    ) {
        for k in [k + 1, k] {
            let mut keys = [s.splat(0.0); NV];
            for j in 0..NV {
                // SAFETY: the caller's promise: an input is 64 values of the panel.
                keys[j] = unsafe { s.load(panel.cast::<f32>().wrapping_add(k * PANEL + column + j * S::LANES)) };
            }
            // SAFETY: the caller's promise.
            unsafe { add_one(s, x, k, &keys, sums) };
        }
    }
}

struct Bf16Keys;

impl Keys for Bf16Keys {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn add_two<S: Simd, const MR: usize, const NV: usize>(
        s: S,
        x: &[*const f32; MR],
        panel: *const u8,
        column: usize,
        k: usize,
        sums: &mut [[S::V; NV]; MR],
    ) {
        let pairs = panel.cast::<u16>().wrapping_add(k * PANEL + 2 * column);
        let (mut first, mut second) = ([s.splat(0.0); NV], [s.splat(0.0); NV]);
        for j in 0..NV {
            // SAFETY: the caller's promise: a pair of inputs is 128 values of the panel, two for each key.
            let pair = unsafe { s.load_pairs(pairs.wrapping_add(2 * j * S::LANES)) };
            (first[j], second[j]) = (pair[0], pair[1]);
        }
        // SAFETY: the caller's promise.
        unsafe {
            add_one(s, x, k + 1, &second, sums);
            add_one(s, x, k, &first, sums);
        }
    }
}

/// Adds the products of input `k` with its keys.
///
/// # Safety
/// Input `k` exists in every `x`.
#[inline(always)]
unsafe fn add_one<S: Simd, const MR: usize, const NV: usize>(
    s: S,
    x: &[*const f32; MR],
    k: usize,
    keys: &[S::V; NV],
    sums: &mut [[S::V; NV]; MR],
) {
    for m in 0..MR {
        // SAFETY: the caller's promise.
        let x = s.splat(unsafe { x[m].wrapping_add(k).read_unaligned() });
        for j in 0..NV {
            sums[m][j] = s.fma(x, keys[j], sums[m][j]);
        }
    }
}

/// The micro-kernel in F32 arithmetic: `MR` rows with a panel, `NV` vectors of keys at a time, while what is
/// `ahead` is brought near.
///
/// # Safety
/// Every `x` is readable for `inputs` values, an even number, and `panel` for 64 times as many.
#[inline(always)]
unsafe fn f32_rows<S: Simd, K: Keys, const MR: usize, const NV: usize>(
    s: S,
    x: &[*const f32; MR],
    panel: *const u8,
    ahead: Option<Ahead>,
    inputs: usize,
    fold: Fold<'_>,
) {
    let Fold { visible, from, maxima, out } = fold;
    assert!(visible.len() == MR && out.len() >= MR && maxima.len() >= MR * MAXIMA);
    let width = NV * S::LANES;
    for column in (0..PANEL).step_by(width) {
        let mut sums = [[s.splat(0.0); NV]; MR];
        let mut k = 0;
        while k < inputs {
            // SAFETY: the panel and the rows have `inputs` values, an even number; `column + width` is at most 64.
            unsafe { K::add_two(s, x, panel, column, k, &mut sums) };
            if let Some(ahead) = ahead {
                let at = (k * PANEL + 2 * column) * K::BYTES;
                ahead.read(at..at + 2 * width * K::BYTES);
            }
            k += 2;
        }
        for m in 0..MR {
            let seen = seen(visible[m], from + column, width);
            let maxima = maxima[m * MAXIMA..].as_mut_ptr();
            if seen == width {
                // SAFETY: the row has 16 places among the maxima, by the assertion, and LANES is at most 16.
                unsafe {
                    let mut half = NV;
                    while half > 1 {
                        half /= 2;
                        for j in 0..half {
                            sums[m][j] = s.max_or_nan(sums[m][j], sums[m][j + half]);
                        }
                    }
                    s.store(maxima, s.max_or_nan(s.load(maxima), sums[m][0]));
                }
            } else if seen > 0 {
                let mut scores = [0.0; PANEL];
                for j in 0..NV {
                    // SAFETY: `width` is at most 64.
                    unsafe { s.store(scores.as_mut_ptr().wrapping_add(j * S::LANES), sums[m][j]) };
                }
                out[m] = largest_or_nan(out[m], &scores[..seen]);
            }
        }
    }
}
