// SPDX-License-Identifier: MIT OR Apache-2.0

//! Attention over blocks of keys and values: an online softmax ([`FlashRows`]), a block in packed layout
//! ([`PackedBlock`]), and what a cache offers whose blocks are in that layout already ([`PackedBlocks`], [`PackedPages`]).
//!
//! ```text
//! score[j] = scale * (q . k[j]) + bias[j]          out = sum of e^(score[j] - max) * v[j] / sum of e^(score[j] - max)
//! ```
//!
//! over the keys that a row (one query of one query head) sees. Scores, maximum, exponentials and their sum are F32; the
//! exponentials are rounded to the precision of the state before they multiply the values, and summed before they are
//! rounded; products are those of [`tile`].
//!
//! * A key that a row does not see never reaches it, not even as NaN or infinity in key or value. A key with a bias of minus
//!   infinity counts as not seen.
//! * NaN and infinities of keys and values reach exactly the rows that see them.
//! * A row's result is the same bit for bit whatever rows share the calls, and depends on the order of its blocks and merges.

use crate::acts::{Acts, Precision, Values, ValuesMut};
use crate::kernels::bf16_panels::Bf16Panels;
use crate::kernels::dot::dispatch_dot;
use crate::kernels::simd::{Kernel, Simd, dispatch};
use crate::level::Level;
use crate::math::exp_below;
use crate::mem::Buffer;
use crate::pack;
use crate::tile::tile;
use crate::weights::{Format, PANEL, PackedRef, ShapeError, Weight, check_len, packed_index};
use half::bf16;
use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Tiles read the inputs of a product in fours.
const QUAD: usize = 4;
/// Lanes of the widest vectors.
const MOST_LANES: usize = 16;

/// Which rows take part in a block, and what each sees of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rows<'a> {
    /// Rows of the state, ascending.
    pub rows: &'a [u32],
    /// For each, its row of the queries.
    pub q_rows: &'a [u32],
    /// For each, how many of the block's first keys it sees (causality, the end of the sequence); 0: none.
    pub visible: &'a [u32],
    /// What is added to the scaled scores, `[rows, keys]`, `keys` being the number of values of the block; usually nothing.
    pub bias: Option<&'a [f32]>,
}

/// The online softmax of some rows over blocks of keys and values of one KV head.
///
/// ```
/// use cpu_tiles::attention::{FlashRows, PackedBlock, Rows};
/// use cpu_tiles::{Acts, Format, Level, Pool, Precision};
///
/// let (level, pool) = (Level::best(), Pool::new(1)?);
/// // Two rows of one query each; three keys of one block, of which the first row sees two.
/// let q = Acts::from_f32(level, &pool, Precision::F32, 2, 4, &[1.0; 8])?;
/// let (k, v) = ([0.5; 12], [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 6.0, 6.0, 6.0, 6.0]);
/// let mut block = PackedBlock::new(Format::F32, 4, 128)?;
/// block.pack_f32(level, 3, &k, &v, 4)?;
///
/// let mut state = FlashRows::new(level, Precision::F32, 4, 2, 128)?;
/// state.reset(2)?;
/// let rows = Rows { rows: &[0, 1], q_rows: &[0, 1], visible: &[2, 3], bias: None };
/// state.block(&q, rows, 0.5, block.keys(), block.values())?;
///
/// let mut out = [0.0; 4];
/// assert!(state.finish(0, &mut out) && out == [1.5; 4]);
/// assert!(state.finish(1, &mut out) && out == [3.0; 4]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FlashRows {
    level: Level,
    precision: Precision,
    head_dim: usize,
    /// Values from one row to the next.
    stride: usize,
    /// The most keys of a block.
    block: usize,
    /// The rows in use.
    rows: usize,
    /// The largest score of each row so far; minus infinity where there is none that is a number.
    max: Vec<f32>,
    /// The sum of `e^(score - max)` of each row; zero for a row that has seen no key.
    sum: Vec<f32>,
    /// The values weighted with `e^(score - max)`, F32 `[rows, stride]`.
    values: Buffer,
}

impl fmt::Debug for FlashRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { level, precision, head_dim, block, rows, max, .. } = self;
        write!(f, "FlashRows({rows} of {} rows of {head_dim}, blocks of {block}, {precision:?}, {level})", max.len())
    }
}

impl FlashRows {
    /// A state for up to `rows` rows and blocks of up to `block` keys, with no rows in use. Allocates what it needs; the
    /// scratch of [`block`](Self::block) belongs to the thread and grows to the largest block.
    ///
    /// # Errors
    /// [`ShapeError::Memory`].
    pub fn new(
        level: Level,
        precision: Precision,
        head_dim: usize,
        rows: usize,
        block: usize,
    ) -> Result<Self, ShapeError> {
        let stride = head_dim.checked_next_multiple_of(PANEL);
        let bytes = stride.and_then(|stride| stride.checked_mul(4)?.checked_mul(rows)).ok_or_else(out_of_memory)?;
        Ok(Self {
            level,
            precision,
            head_dim,
            stride: head_dim.next_multiple_of(PANEL),
            block,
            rows: 0,
            max: vec![0.0; rows],
            sum: vec![0.0; rows],
            values: Buffer::zeroed(bytes)?,
        })
    }

    /// Begins anew with `rows` rows that have seen nothing.
    ///
    /// # Errors
    /// [`ShapeError::Mismatch`] when there is room for fewer.
    pub fn reset(&mut self, rows: usize) -> Result<(), ShapeError> {
        check(rows <= self.max.len(), "rows beyond the room of the softmax", self.max.len(), rows)?;
        self.rows = rows;
        self.max[..rows].fill(f32::NEG_INFINITY);
        self.sum[..rows].fill(0.0);
        let used = rows * self.stride;
        floats_mut(&mut self.values)[..used].fill(0.0);
        Ok(())
    }

    /// The rows in use.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values of a row.
    pub fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// Takes a block of keys and values into some rows.
    ///
    /// * `q`: `[any, head_dim]`, made for the level of the state;
    /// * `keys`: `[at least the number of values, head_dim]`;
    /// * `values`: `[head_dim, keys]`. What a packed one holds in the places between its number of keys and the next multiple
    ///   of 4 is of no meaning.
    ///
    /// # Errors
    /// [`ShapeError`] when sizes do not fit, or a row does not exist; the state is then as before.
    pub fn block(
        &mut self,
        q: &Acts,
        visible: Rows<'_>,
        scale: f32,
        keys: Weight<'_>,
        values: Weight<'_>,
    ) -> Result<(), ShapeError> {
        self.block_ahead(q, visible, scale, keys, values, Ahead::default())
    }

    /// [`block`](Self::block), while which other memory is asked for.
    ///
    /// # Errors
    /// As [`block`](Self::block).
    pub fn block_ahead(
        &mut self,
        q: &Acts,
        visible: Rows<'_>,
        scale: f32,
        keys: Weight<'_>,
        values: Weight<'_>,
        ahead: Ahead<'_>,
    ) -> Result<(), ShapeError> {
        self.check(q, &visible, keys, values)?;
        SCRATCH.with_borrow_mut(|scratch| {
            let scratch = match scratch {
                Some(scratch) => scratch,
                None => scratch.insert(Scratch::new()?),
            };
            scratch.choose(&visible);
            if scratch.rows.is_empty() {
                return Ok(());
            }
            // The probabilities of keys that nobody sees are zero, and add nothing.
            let of_block = values.k();
            let values = values.first_inputs(scratch.most.next_multiple_of(QUAD));
            scratch.scores(q, keys, ahead.with_scores)?;
            self.softmax(scratch, &visible, scale, of_block, values.k())?;
            self.weigh(scratch, &visible, of_block, values, ahead.with_values)
        })
    }

    fn check(&self, q: &Acts, visible: &Rows<'_>, keys: Weight<'_>, values: Weight<'_>) -> Result<(), ShapeError> {
        let Rows { rows, q_rows, visible, bias } = *visible;
        check(q.k() == self.head_dim, "columns of the queries", self.head_dim, q.k())?;
        check(keys.k() == self.head_dim, "columns of the keys", self.head_dim, keys.k())?;
        check(values.n() == self.head_dim, "outputs of the values", self.head_dim, values.n())?;
        check(values.k() <= self.block, "keys beyond the room of a block", self.block, values.k())?;
        check(values.k() <= keys.n(), "values beyond the keys of a block", keys.n(), values.k())?;
        check_len("q_rows", q_rows.len(), &[rows.len()])?;
        check_len("visible", visible.len(), &[rows.len()])?;
        if let Some(bias) = bias {
            check_len("bias", bias.len(), &[rows.len(), values.k()])?;
        }
        let mut next = 0;
        for ((&row, &q_row), &visible) in rows.iter().zip(q_rows).zip(visible) {
            check((row as usize) < self.rows, "row beyond the last of the softmax", self.rows, row as usize)?;
            check((q_row as usize) < q.m(), "row beyond the last of the queries", q.m(), q_row as usize)?;
            check(visible as usize <= values.k(), "visible keys beyond the block", values.k(), visible as usize)?;
            check(row as usize >= next, "row that does not ascend", next, row as usize)?;
            next = row as usize + 1;
        }
        Ok(())
    }

    /// Scores to probabilities of the first `keys` of a block, their sums and maxima, and what earlier sums shrink by.
    fn softmax(
        &mut self,
        scratch: &mut Scratch,
        visible: &Rows<'_>,
        scale: f32,
        of_block: usize,
        keys: usize,
    ) -> Result<(), ShapeError> {
        let Scratch { chosen, rows, scores, sums, shrink, probabilities, .. } = scratch;
        let probabilities = match probabilities {
            Some(acts) => {
                acts.reuse(self.level, self.precision, rows.len(), keys)?;
                acts
            }
            None => probabilities.insert(Acts::zeroed(self.level, self.precision, rows.len(), keys)?),
        };
        sums.resize(rows.len(), 0.0);
        shrink.clear();
        shrink.resize(rows.len().next_multiple_of(MOST_LANES), 0.0);
        let (out, stride) = probabilities.rows_mut();
        let softmax = Softmax {
            scale,
            bias: visible.bias.map(|bias| (bias, of_block)),
            chosen,
            scores: floats_mut(scores),
            columns: keys,
            max: &mut self.max,
            sum: &mut self.sum,
            sums,
            shrink,
            round: self.precision == Precision::Bf16,
            out,
            stride,
        };
        dispatch(self.level, softmax);
        Ok(())
    }

    /// Adds the products of probabilities and values.
    fn weigh(
        &mut self,
        scratch: &mut Scratch,
        visible: &Rows<'_>,
        of_block: usize,
        values: Weight<'_>,
        ahead: &[u8],
    ) -> Result<(), ShapeError> {
        let Scratch { chosen, numbers, pointers, products, shrink, probabilities, .. } = scratch;
        let Some(probabilities) = probabilities else { return Ok(()) };
        numbers.clear();
        numbers.extend(0..chosen.len() as u32);
        let products = room(products, values.panels() * chosen.len() * PANEL)?;
        multiply(values, probabilities, numbers, pointers, products, ahead)?;
        if !dispatch(self.level, AllFinite(products)) {
            for (panel, products) in products.chunks_exact_mut(chosen.len() * PANEL).enumerate() {
                for (i, (row, product)) in chosen.iter().zip(products.chunks_exact_mut(PANEL)).enumerate() {
                    let sees_all = row.visible == values.k().next_multiple_of(QUAD) && visible.bias.is_none();
                    if !sees_all && product.iter().any(|x| !x.is_finite()) {
                        let bias = visible.bias.map(|bias| &bias[row.place * of_block..]);
                        weigh_visible(values, panel, probabilities, i as u32, row.visible, bias, product)?;
                    }
                }
            }
        }
        let values = floats_mut(&mut self.values);
        dispatch(self.level, Accumulate { chosen, shrink, products, values, stride: self.stride });
        Ok(())
    }

    /// Takes another part of the same rows in, as if its blocks had been taken after those of this one, up to rounding.
    ///
    /// # Errors
    /// [`ShapeError::Mismatch`] when the rows in use or their sizes differ.
    pub fn merge(&mut self, other: &FlashRows) -> Result<(), ShapeError> {
        check(other.head_dim == self.head_dim, "values of a merged row", self.head_dim, other.head_dim)?;
        check(other.rows == self.rows, "rows to be merged", self.rows, other.rows)?;
        let merge = Merge {
            max: &mut self.max[..self.rows],
            sum: &mut self.sum,
            values: floats_mut(&mut self.values),
            other_max: &other.max,
            other_sum: &other.sum,
            other_values: floats(&other.values),
            stride: self.stride,
        };
        dispatch(self.level, merge);
        Ok(())
    }

    /// Writes the result of a row, `[head_dim]`, and says whether the row has seen a key; if not, the result is zero.
    ///
    /// # Panics
    /// When there is no such row, or `out` has another length.
    pub fn finish(&self, row: usize, out: &mut [f32]) -> bool {
        assert!(row < self.rows, "row {row} of a softmax with {} rows", self.rows);
        assert_eq!(out.len(), self.head_dim, "values of a row");
        // Of the largest score, one is counted; so a sum that is zero is that of no key. NaN is no zero.
        let sum = self.sum[row];
        let values = &floats(&self.values)[row * self.stride..][..out.len()];
        if sum == 0.0 {
            out.fill(0.0);
            return false;
        }
        let factor = 1.0 / sum;
        for (out, value) in out.iter_mut().zip(values) {
            *out = value * factor;
        }
        true
    }
}

/// Memory that is read soon, and asked for while a block is worked on. A hint, of which results do not depend; levels
/// without BF16 dot products do not use it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ahead<'a> {
    /// What is asked for while queries and keys are multiplied: the values of a packed block.
    pub with_scores: &'a [u8],
    /// What is asked for while probabilities and values are multiplied: the keys of the next block.
    pub with_values: &'a [u8],
}

impl<'a> Ahead<'a> {
    /// Plain values, which are packed after this block: the keys and values of the next one.
    pub fn plain(with_scores: &'a [bf16], with_values: &'a [bf16]) -> Self {
        Self { with_scores: with_scores.as_bytes(), with_values: with_values.as_bytes() }
    }
}

/// A row that sees something of a block.
#[derive(Clone, Copy)]
struct Chosen {
    /// Row of the state.
    row: usize,
    visible: usize,
    /// Place in the caller's list.
    place: usize,
}

/// Scratch of a thread.
struct Scratch {
    chosen: Vec<Chosen>,
    /// Of the chosen, row of the state and row of the queries.
    rows: Vec<u32>,
    q_rows: Vec<u32>,
    /// 0, 1, 2 ...
    numbers: Vec<u32>,
    /// The rows of a product, while it is computed.
    pointers: Vec<*const bf16>,
    /// The most keys that one of them sees.
    most: usize,
    scores: Buffer,
    products: Buffer,
    sums: Vec<f32>,
    shrink: Vec<f32>,
    probabilities: Option<Acts>,
}

thread_local! {
    static SCRATCH: RefCell<Option<Scratch>> = const { RefCell::new(None) };
}

impl Scratch {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            chosen: Vec::new(),
            rows: Vec::new(),
            q_rows: Vec::new(),
            numbers: Vec::new(),
            pointers: Vec::new(),
            most: 0,
            scores: Buffer::zeroed(0)?,
            products: Buffer::zeroed(0)?,
            sums: Vec::new(),
            shrink: Vec::new(),
            probabilities: None,
        })
    }

    /// Lists the rows that see something.
    fn choose(&mut self, visible: &Rows<'_>) {
        self.chosen.clear();
        self.rows.clear();
        self.q_rows.clear();
        self.most = 0;
        for (place, (&row, &q_row)) in visible.rows.iter().zip(visible.q_rows).enumerate() {
            let visible = visible.visible[place] as usize;
            if visible > 0 {
                self.chosen.push(Chosen { row: row as usize, visible, place });
                self.rows.push(row);
                self.q_rows.push(q_row);
                self.most = self.most.max(visible);
            }
        }
    }

    /// The products of the chosen queries with the keys that any of them sees, `[panels][rows][64]`.
    fn scores(&mut self, q: &Acts, keys: Weight<'_>, ahead: &[u8]) -> Result<(), ShapeError> {
        let size = self.most.div_ceil(PANEL) * self.q_rows.len() * PANEL;
        let scores = room(&mut self.scores, size)?;
        multiply(keys, q, &self.q_rows, &mut self.pointers, scores, ahead)
    }
}

/// Rows of `acts` times the first panels of a weight, as many as `out`, `[panels][rows][64]`, has room for.
fn multiply(
    weight: Weight<'_>,
    acts: &Acts,
    rows: &[u32],
    pointers: &mut Vec<*const bf16>,
    out: &mut [f32],
    ahead: &[u8],
) -> Result<(), ShapeError> {
    if let (Values::Bf16(values, stride), Weight::Packed(packed)) = (acts.values(), weight)
        && packed.format() == Format::Bf16
    {
        assert!(rows.iter().all(|row| (*row as usize) < acts.m()) && acts.k() == packed.k());
        pointers.clear();
        pointers.extend(rows.iter().map(|&row| values[row as usize * stride..].as_ptr()));
        // Rows have whole lines of 32 values, those beyond K up to a multiple of 4 being zeros.
        let inputs = packed.k().next_multiple_of(QUAD);
        let (panels, stride) = (packed.data, packed.stride);
        dispatch_dot(acts.level(), Bf16Panels { rows: pointers, inputs, panels, stride, out, ahead });
        return Ok(());
    }
    for (panel, out) in out.chunks_exact_mut(rows.len() * PANEL).enumerate() {
        tile(weight, panel, acts, rows, out)?;
    }
    Ok(())
}

/// See [`FlashRows::softmax`].
struct Softmax<'a> {
    scale: f32,
    bias: Option<(&'a [f32], usize)>,
    chosen: &'a [Chosen],
    /// Products, `[panels][chosen][64]`; overwritten.
    scores: &'a mut [f32],
    /// Keys of the block.
    columns: usize,
    max: &'a mut [f32],
    sum: &'a mut [f32],
    /// Sums of the block, one for each chosen row.
    sums: &'a mut [f32],
    /// What earlier sums shrink by, one for each chosen row, padded to whole vectors.
    shrink: &'a mut [f32],
    /// Whether probabilities are rounded to BF16.
    round: bool,
    /// Probabilities, `[chosen]` rows of `stride` values, with room for columns up to a multiple of 32.
    out: ValuesMut<'a>,
    stride: usize,
}

impl Kernel for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let panel = self.chosen.len() * PANEL;
        // Whole vectors up to the padding of the columns.
        let columns = self.columns.next_multiple_of(S::LANES);
        let scale = s.splat(self.scale);
        assert!(columns <= self.stride && self.sums.len() == self.chosen.len());
        assert!(self.shrink.len() >= self.chosen.len() && self.shrink.len().is_multiple_of(S::LANES));
        for i in 0..self.chosen.len() {
            let Chosen { row, visible, place } = self.chosen[i];
            let vectors = visible.div_ceil(S::LANES);
            assert!(vectors > 0 && vectors * S::LANES <= columns);
            assert!(place_of::<S>(vectors - 1, i, panel) + S::LANES <= self.scores.len());
            let scores = self.scores.as_mut_ptr();

            let mut most = s.splat(self.max[row]);
            for vector in 0..vectors {
                let p = scores.wrapping_add(place_of::<S>(vector, i, panel));
                let first = vector * S::LANES;
                // SAFETY: the vector is inside the scores by the assertion: places grow with the number.
                unsafe {
                    s.store(p, s.mul(s.load(p), scale));
                    if let Some((bias, keys)) = self.bias {
                        let bias = &bias[place * keys + first..(place + 1) * keys];
                        for (lane, bias) in bias[..S::LANES.min(visible - first)].iter().enumerate() {
                            // A hidden key must not show as NaN.
                            let score = *p.add(lane) + bias;
                            *p.add(lane) = if *bias == f32::NEG_INFINITY { *bias } else { score };
                        }
                    }
                    for lane in visible.min(first + S::LANES)..first + S::LANES {
                        *p.add(lane - first) = f32::NEG_INFINITY;
                    }
                    // A NaN leaves the maximum as it is.
                    most = s.max(s.load(p), most);
                }
            }
            let max = s.reduce_max(most);
            let shift = if max == f32::NEG_INFINITY { 0.0 } else { max };

            let mut sum = s.splat(0.0);
            for vector in 0..vectors {
                // SAFETY: as above; the assertions cover the output.
                unsafe {
                    let p = scores.wrapping_add(place_of::<S>(vector, i, panel));
                    let e = exp_below(s, s.sub(s.load(p), s.splat(shift)));
                    s.store(p, e);
                    sum = s.add(sum, e);
                    self.store(s, i, vector, e);
                }
            }
            for vector in vectors..columns / S::LANES {
                // SAFETY: the assertions cover the output.
                unsafe { self.store(s, i, vector, s.splat(0.0)) };
            }
            self.sums[i] = s.reduce_add(sum);
            if self.sums[i].is_nan() {
                for vector in 0..vectors {
                    // SAFETY: as above.
                    unsafe {
                        let e = s.load(scores.wrapping_add(place_of::<S>(vector, i, panel)));
                        self.store_nan(s, i, vector, e);
                    }
                }
            }
            // What was summed so far is relative to the old maximum.
            self.shrink[i] = self.max[row] - shift;
            self.max[row] = max;
        }
        for falls in self.shrink.chunks_exact_mut(S::LANES) {
            // SAFETY: the chunk has LANES values.
            unsafe { s.store(falls.as_mut_ptr(), exp_below(s, s.load(falls.as_ptr()))) };
        }
        for ((chosen, shrink), sum) in self.chosen.iter().zip(&*self.shrink).zip(&*self.sums) {
            self.sum[chosen.row] = self.sum[chosen.row] * shrink + sum;
        }
    }
}

/// Where a vector of the scores of chosen row `i` lies; `panel` values are from one panel to the next.
#[inline(always)]
fn place_of<S: Simd>(vector: usize, i: usize, panel: usize) -> usize {
    let key = vector * S::LANES;
    key / PANEL * panel + i * PANEL + key % PANEL
}

impl Softmax<'_> {
    /// Stores probabilities that are numbers.
    ///
    /// # Safety
    /// The output has row `i`, and in it the vector.
    #[inline(always)]
    unsafe fn store<S: Simd>(&mut self, s: S, i: usize, vector: usize, e: S::V) {
        let at = i * self.stride + vector * S::LANES;
        // SAFETY: the caller's promise; `bf16` is a transparent `u16`.
        unsafe {
            match &mut self.out {
                ValuesMut::Bf16(out) => s.store_bf16_numbers(out.as_mut_ptr().wrapping_add(at).cast(), e),
                ValuesMut::F32(out) => {
                    let mut e = e;
                    if self.round {
                        let mut words = [0_u16; 16];
                        s.store_bf16(words.as_mut_ptr(), e);
                        e = s.load_bf16(words.as_ptr());
                    }
                    s.store(out.as_mut_ptr().wrapping_add(at), e);
                }
            }
        }
    }

    /// Stores probabilities some of which are NaN, where [`store`](Self::store) does not keep them.
    ///
    /// # Safety
    /// As [`store`](Self::store).
    #[cold]
    unsafe fn store_nan<S: Simd>(&mut self, s: S, i: usize, vector: usize, e: S::V) {
        let at = i * self.stride + vector * S::LANES;
        if let ValuesMut::Bf16(out) = &mut self.out {
            let mut lanes = [0.0; 16];
            // SAFETY: LANES is at most 16.
            unsafe { s.store(lanes.as_mut_ptr(), e) };
            for (out, x) in out[at..at + S::LANES].iter_mut().zip(lanes) {
                *out = bf16::from_f32(x);
            }
        }
    }
}

/// e^x of one value that is not positive, rounded as those of vectors.
#[inline(always)]
fn exp_one<S: Simd>(s: S, x: f32) -> f32 {
    let mut lanes = [0.0; 16];
    // SAFETY: LANES is at most 16.
    unsafe { s.store(lanes.as_mut_ptr(), exp_below(s, s.splat(x))) };
    lanes[0]
}

/// Whether all values are finite.
struct AllFinite<'a>(&'a [f32]);

impl Kernel for AllFinite<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> bool {
        let zero = s.splat(0.0);
        let mut sums = [zero; 4];
        for x in self.0.chunks_exact(PANEL) {
            for at in (0..PANEL).step_by(4 * S::LANES) {
                for j in 0..4 {
                    // SAFETY: the chunk has 64 values, a multiple of four vectors.
                    let x = unsafe { s.load(x.as_ptr().wrapping_add(at + j * S::LANES)) };
                    // Zero for a finite value, else NaN.
                    sums[j] = s.fma(x, zero, sums[j]);
                }
            }
        }
        s.reduce_add(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3]))) == 0.0
    }
}

/// `values = values * shrink + products`, `[panels][chosen][64]`.
struct Accumulate<'a> {
    chosen: &'a [Chosen],
    shrink: &'a [f32],
    products: &'a [f32],
    values: &'a mut [f32],
    stride: usize,
}

impl Kernel for Accumulate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { chosen, shrink, products, values, stride } = self;
        for (panel, products) in products.chunks_exact(chosen.len() * PANEL).enumerate() {
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

/// See [`FlashRows::merge`].
struct Merge<'a> {
    max: &'a mut [f32],
    sum: &'a mut [f32],
    values: &'a mut [f32],
    other_max: &'a [f32],
    other_sum: &'a [f32],
    other_values: &'a [f32],
    stride: usize,
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
            for at in (0..stride).step_by(S::LANES) {
                // SAFETY: both slices have `stride` values, a multiple of 64.
                unsafe {
                    let (value, other) = (values.as_mut_ptr().wrapping_add(at), other.as_ptr().wrapping_add(at));
                    s.store(value, s.fma(s.load(value), old, s.mul(s.load(other), new)));
                }
            }
        }
    }
}

/// The product of one row's probabilities with the values of the keys it sees, all others being zero: where something that
/// it does not see is not finite, zero times it would be NaN. The bits are those of a block without such values.
#[cold]
fn weigh_visible(
    values: Weight<'_>,
    panel: usize,
    probabilities: &Acts,
    row: u32,
    visible: usize,
    bias: Option<&[f32]>,
    product: &mut [f32],
) -> Result<(), ShapeError> {
    let (n, k) = ((values.n() - panel * PANEL).min(PANEL), values.k());
    let capacity = k.next_multiple_of(QUAD);
    let sees = |key: usize| key < visible && bias.is_none_or(|bias| bias[key] != f32::NEG_INFINITY);
    let format = if values.format() == Format::Bf16 { Format::Bf16 } else { Format::F32 };
    let mut seen = vec![0.0_f32; PANEL * capacity];
    for key in (0..k).filter(|key| sees(*key)) {
        for output in 0..n {
            seen[packed_index(format, output, key)] = values.get(panel * PANEL + output, key);
        }
    }
    if format == Format::Bf16 {
        let seen: Vec<_> = seen.into_iter().map(bf16::from_f32).collect();
        tile(PackedRef::bf16(n, k, capacity, &seen)?.into(), 0, probabilities, &[row], product)
    } else {
        tile(PackedRef::f32(n, k, capacity, &seen)?.into(), 0, probabilities, &[row], product)
    }
}

/// The memory of a packed block: keys as a weight `[block, head_dim]`, values as a weight `[head_dim, block]`.
#[derive(Clone, Copy, Debug)]
struct Layout {
    format: Format,
    head_dim: usize,
    /// The most keys.
    block: usize,
}

impl Layout {
    fn new(format: Format, head_dim: usize, block: usize) -> Result<Self, ShapeError> {
        let size = format.value_bytes();
        check(size > 1, "bytes of a value of a packed block", 2, size)?;
        // What is computed below without further checks.
        let sizes = [(block, head_dim), (head_dim, block)].map(|(n, k)| {
            let panels = n.checked_next_multiple_of(PANEL)?.checked_mul(k.checked_next_multiple_of(QUAD)?)?;
            panels.checked_mul(size)
        });
        sizes[0].zip(sizes[1]).and_then(|(keys, values)| keys.checked_add(values)).ok_or_else(out_of_memory)?;
        Ok(Self { format, head_dim, block })
    }

    /// Inputs of the keys, with padding.
    fn key_capacity(&self) -> usize {
        self.head_dim.next_multiple_of(QUAD)
    }

    /// Inputs of the values, with padding.
    fn value_capacity(&self) -> usize {
        self.block.next_multiple_of(QUAD)
    }

    /// Bytes of the keys; a multiple of 64.
    fn key_bytes(&self) -> usize {
        self.block.next_multiple_of(PANEL) * self.key_capacity() * self.format.value_bytes()
    }

    /// Bytes of keys and values.
    fn bytes(&self) -> usize {
        self.key_bytes() + self.head_dim.next_multiple_of(PANEL) * self.value_capacity() * self.format.value_bytes()
    }

    /// The first `n` keys.
    fn keys<'a>(&self, n: usize, bytes: &'a [u8]) -> Result<PackedRef<'a>, ShapeError> {
        check(n <= self.block, "keys beyond the room of a block", self.block, n)?;
        let used = n.next_multiple_of(PANEL) * self.key_capacity() * self.format.value_bytes();
        self.packed(n, self.head_dim, self.key_capacity(), &bytes[..used])
    }

    /// The values of the first `k` keys.
    fn values<'a>(&self, k: usize, bytes: &'a [u8]) -> Result<PackedRef<'a>, ShapeError> {
        check(k <= self.block, "keys beyond the room of a block", self.block, k)?;
        self.packed(self.head_dim, k, self.value_capacity(), &bytes[self.key_bytes()..])
    }

    fn packed<'a>(&self, n: usize, k: usize, capacity: usize, bytes: &'a [u8]) -> Result<PackedRef<'a>, ShapeError> {
        match self.format {
            Format::F32 => PackedRef::f32(n, k, capacity, <[f32]>::ref_from_bytes(bytes).expect(ALIGNED)),
            _ => PackedRef::bf16(n, k, capacity, <[bf16]>::ref_from_bytes(bytes).expect(ALIGNED)),
        }
    }
}

/// Plain keys and values, `[count]` rows, of the keys of a block from `first` on.
#[derive(Clone, Copy)]
struct Plain<'a, T> {
    first: usize,
    count: usize,
    k: &'a [T],
    v: &'a [T],
    /// Values from one row to the next.
    stride: usize,
}

impl<T: Copy> Plain<'_, T> {
    fn check(&self, layout: &Layout) -> Result<(), ShapeError> {
        let Layout { head_dim, block, .. } = *layout;
        let end = self.first.saturating_add(self.count);
        check(end <= block, "keys beyond the room of a block", block, end)?;
        check(self.stride >= head_dim, "stride below the head dimension", head_dim, self.stride)?;
        let needed = match self.count {
            0 => 0,
            count => (count - 1).checked_mul(self.stride).and_then(|n| n.checked_add(head_dim)).unwrap_or(usize::MAX),
        };
        check(self.k.len() >= needed, "number of key elements", needed, self.k.len())?;
        check(self.v.len() >= needed, "number of value elements", needed, self.v.len())
    }

    /// Packs values of the layout's own format.
    fn pack(&self, level: Level, layout: &Layout, bytes: &mut [u8])
    where
        T: FromBytes + IntoBytes + Immutable + KnownLayout,
    {
        if self.first > 0 {
            return self.pack_each(layout, bytes, |x| x);
        }
        let Self { count, k, v, stride, .. } = *self;
        let (keys, values) = bytes.split_at_mut(layout.key_bytes());
        let panel_bytes = layout.key_capacity() * PANEL * size_of::<T>();
        for (panel, out) in keys.chunks_exact_mut(panel_bytes.max(1)).enumerate().take(count.div_ceil(PANEL)) {
            let rows = panel * PANEL..count.min((panel + 1) * PANEL);
            let mut slices = [&[][..]; PANEL];
            for (slice, row) in slices.iter_mut().zip(rows.clone()) {
                *slice = k[row * stride..][..layout.head_dim].as_bytes();
            }
            pack::pack_rows(level, layout.format, layout.head_dim, &slices[..rows.len()], out);
        }
        let out = <[T]>::mut_from_bytes(values).expect(ALIGNED);
        let (head_dim, capacity) = (layout.head_dim, layout.value_capacity());
        dispatch(level, Interleave { keys: count, head_dim, v, stride, capacity, out, zero: T::new_zeroed() });
    }

    /// Packs value by value, converted to the format of the layout.
    fn pack_each<U>(&self, layout: &Layout, bytes: &mut [u8], convert: impl Fn(T) -> U)
    where
        U: Copy + FromBytes + IntoBytes + KnownLayout,
    {
        let Self { first, count, k, v, stride } = *self;
        if count == 0 {
            return;
        }
        let (keys, values) = bytes.split_at_mut(layout.key_bytes());
        let keys = <[U]>::mut_from_bytes(keys).expect(ALIGNED);
        let values = <[U]>::mut_from_bytes(values).expect(ALIGNED);
        let index = |output: usize, capacity: usize, k: usize| {
            output / PANEL * PANEL * capacity + packed_index(layout.format, output % PANEL, k)
        };
        let (key_capacity, value_capacity) = (layout.key_capacity(), layout.value_capacity());
        for row in 0..count {
            for channel in 0..layout.head_dim {
                keys[index(first + row, key_capacity, channel)] = convert(k[row * stride + channel]);
                values[index(channel, value_capacity, first + row)] = convert(v[row * stride + channel]);
            }
        }
        // Up to the next multiple of four, tiles multiply values by the zeros of padded probabilities.
        for key in first + count..(first + count).next_multiple_of(QUAD) {
            for channel in 0..layout.head_dim {
                values[index(channel, value_capacity, key)] = U::new_zeroed();
            }
        }
    }
}

/// A block of keys and values of one KV head, packed for the tiles from plain ones. Its memory is used again by the next
/// block.
pub struct PackedBlock {
    layout: Layout,
    /// The keys it has.
    count: usize,
    buffer: Buffer,
}

impl fmt::Debug for PackedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Layout { format, head_dim, block } = self.layout;
        write!(f, "PackedBlock({} of {block} keys of {head_dim}, {format})", self.count)
    }
}

impl PackedBlock {
    /// An empty block for up to `block` keys.
    ///
    /// # Errors
    /// [`ShapeError::Memory`]; [`ShapeError::Mismatch`] for a format of other values than F32 and BF16.
    pub fn new(format: Format, head_dim: usize, block: usize) -> Result<Self, ShapeError> {
        let layout = Layout::new(format, head_dim, block)?;
        Ok(Self { layout, count: 0, buffer: Buffer::zeroed(layout.bytes())? })
    }

    /// Packs `keys` keys and values, BF16 `[keys]` rows of `head_dim` values, `stride` values from one row to the next.
    ///
    /// # Errors
    /// [`ShapeError`] when there are more keys than room, or a slice is too short; the block is then as before.
    pub fn pack_bf16(
        &mut self,
        level: Level,
        keys: usize,
        k: &[bf16],
        v: &[bf16],
        stride: usize,
    ) -> Result<(), ShapeError> {
        let plain = Plain { first: 0, count: keys, k, v, stride };
        plain.check(&self.layout)?;
        pack_bf16(level, &self.layout, plain, &mut self.buffer);
        self.count = keys;
        Ok(())
    }

    /// As [`pack_bf16`](Self::pack_bf16) from F32; rounded where the block is BF16.
    ///
    /// # Errors
    /// As [`pack_bf16`](Self::pack_bf16).
    pub fn pack_f32(
        &mut self,
        level: Level,
        keys: usize,
        k: &[f32],
        v: &[f32],
        stride: usize,
    ) -> Result<(), ShapeError> {
        let plain = Plain { first: 0, count: keys, k, v, stride };
        plain.check(&self.layout)?;
        pack_f32(level, &self.layout, plain, &mut self.buffer);
        self.count = keys;
        Ok(())
    }

    /// The keys, `[keys, head_dim]`.
    pub fn keys(&self) -> Weight<'_> {
        self.layout.keys(self.count, &self.buffer).expect("there is room for the keys").into()
    }

    /// The values, `[head_dim, keys]`.
    pub fn values(&self) -> Weight<'_> {
        self.layout.values(self.count, &self.buffer).expect("there is room for the keys").into()
    }
}

fn pack_bf16(level: Level, layout: &Layout, plain: Plain<'_, bf16>, bytes: &mut [u8]) {
    match layout.format {
        Format::F32 => plain.pack_each(layout, bytes, bf16::to_f32),
        _ => plain.pack(level, layout, bytes),
    }
}

fn pack_f32(level: Level, layout: &Layout, plain: Plain<'_, f32>, bytes: &mut [u8]) {
    match layout.format {
        Format::F32 => plain.pack(level, layout, bytes),
        _ => plain.pack_each(layout, bytes, bf16::from_f32),
    }
}

/// Pages of packed blocks, of all KV heads each, in one piece of memory: the plainest [`PackedBlocks`].
pub struct PackedPages {
    layout: Layout,
    kv_heads: usize,
    pages: usize,
    /// `[pages, kv_heads]` blocks.
    buffer: Buffer,
}

impl fmt::Debug for PackedPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layout: Layout { format, head_dim, block }, kv_heads, pages, .. } = self;
        write!(f, "PackedPages({pages} of {kv_heads} heads, {block} tokens of {head_dim}, {format})")
    }
}

impl PackedPages {
    /// Pages of `block` tokens, all zeros.
    ///
    /// # Errors
    /// [`ShapeError::Memory`]; [`ShapeError::Mismatch`] for a format of other values than F32 and BF16.
    pub fn new(
        format: Format,
        kv_heads: usize,
        head_dim: usize,
        block: usize,
        pages: usize,
    ) -> Result<Self, ShapeError> {
        let layout = Layout::new(format, head_dim, block)?;
        let bytes = kv_heads.checked_mul(pages).and_then(|blocks| blocks.checked_mul(layout.bytes()));
        Ok(Self { layout, kv_heads, pages, buffer: Buffer::zeroed(bytes.ok_or_else(out_of_memory)?)? })
    }

    /// Writes the tokens `first .. first + count` of a page for one KV head: keys and values are BF16 `[count]` rows of
    /// `head_dim` values, `stride` values from one row to the next. Writing from the first token on is fast; the tokens of a
    /// page are written in ascending order, since up to three places after the last are made zero.
    ///
    /// # Errors
    /// [`ShapeError`] when there is no such page, head or token, or a slice is too short; nothing is written then.
    #[expect(clippy::too_many_arguments, reason = "where to, how many, from where")]
    pub fn write_bf16(
        &mut self,
        level: Level,
        page: usize,
        kv_head: usize,
        first: usize,
        count: usize,
        k: &[bf16],
        v: &[bf16],
        stride: usize,
    ) -> Result<(), ShapeError> {
        let plain = Plain { first, count, k, v, stride };
        plain.check(&self.layout)?;
        let range = self.range(kv_head, page)?;
        pack_bf16(level, &self.layout, plain, &mut self.buffer[range]);
        Ok(())
    }

    /// As [`write_bf16`](Self::write_bf16) from F32; rounded where the pages are BF16.
    ///
    /// # Errors
    /// As [`write_bf16`](Self::write_bf16).
    #[expect(clippy::too_many_arguments, reason = "where to, how many, from where")]
    pub fn write_f32(
        &mut self,
        level: Level,
        page: usize,
        kv_head: usize,
        first: usize,
        count: usize,
        k: &[f32],
        v: &[f32],
        stride: usize,
    ) -> Result<(), ShapeError> {
        let plain = Plain { first, count, k, v, stride };
        plain.check(&self.layout)?;
        let range = self.range(kv_head, page)?;
        pack_f32(level, &self.layout, plain, &mut self.buffer[range]);
        Ok(())
    }

    /// The bytes of a block.
    fn range(&self, kv_head: usize, page: usize) -> Result<Range<usize>, ShapeError> {
        check(kv_head < self.kv_heads, "KV head beyond the last", self.kv_heads, kv_head)?;
        check(page < self.pages, "page beyond the last", self.pages, page)?;
        let (block, bytes) = (page * self.kv_heads + kv_head, self.layout.bytes());
        Ok(block * bytes..(block + 1) * bytes)
    }
}

impl PackedBlocks for PackedPages {
    fn kv_heads(&self) -> usize {
        self.kv_heads
    }

    fn head_dim(&self) -> usize {
        self.layout.head_dim
    }

    fn block_tokens(&self) -> usize {
        self.layout.block
    }

    fn blocks(&self) -> usize {
        self.pages
    }

    fn precision(&self) -> Precision {
        match self.layout.format {
            Format::F32 => Precision::F32,
            _ => Precision::Bf16,
        }
    }

    fn keys(&self, kv_head: usize, block: usize) -> Result<PackedRef<'_>, ShapeError> {
        self.layout.keys(self.layout.block, &self.buffer[self.range(kv_head, block)?])
    }

    fn values(&self, kv_head: usize, block: usize, tokens: usize) -> Result<PackedRef<'_>, ShapeError> {
        self.layout.values(tokens, &self.buffer[self.range(kv_head, block)?])
    }
}

/// Values `[keys][stride]` to panels `[head_dim / 64][capacity][64]` in packed order, with zeros up to a multiple of four keys.
struct Interleave<'a, T> {
    keys: usize,
    head_dim: usize,
    v: &'a [T],
    stride: usize,
    capacity: usize,
    out: &'a mut [T],
    zero: T,
}

impl<T: Copy> Kernel for Interleave<'_, T> {
    type Output = ();

    // Plain loops, for the compiler to make vector code of in the function of the level.
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { keys, head_dim, v, stride, capacity, out, zero } = self;
        // Keys that lie side by side for each output: pairs in BF16.
        let side = 4 / size_of::<T>();
        for (panel, out) in out.chunks_exact_mut((PANEL * capacity).max(1)).enumerate() {
            let width = PANEL.min(head_dim - panel * PANEL);
            let row = |key: usize| &v[key * stride + panel * PANEL..][..width];
            for (step, out) in out.chunks_exact_mut(PANEL * side).take(keys.next_multiple_of(QUAD) / side).enumerate() {
                let key = step * side;
                let out = &mut out[..side * width];
                match (side, key < keys, key + 1 < keys) {
                    (_, false, _) => out.fill(zero),
                    (1, _, _) => out.copy_from_slice(row(key)),
                    (_, _, true) => {
                        for ((out, a), b) in out.chunks_exact_mut(2).zip(row(key)).zip(row(key + 1)) {
                            out[0] = *a;
                            out[1] = *b;
                        }
                    }
                    (_, _, false) => {
                        for (out, a) in out.chunks_exact_mut(2).zip(row(key)) {
                            out[0] = *a;
                            out[1] = zero;
                        }
                    }
                }
            }
        }
    }
}

/// A KV cache whose blocks are in packed layout already, so that nothing is packed while decoding.
///
/// Blocks are physical ones; which of them a sequence owns, and in which order, is the business of the caller.
pub trait PackedBlocks: Sync {
    /// KV heads.
    fn kv_heads(&self) -> usize;

    /// Channels of a head.
    fn head_dim(&self) -> usize;

    /// Tokens of a block.
    fn block_tokens(&self) -> usize;

    /// Physical blocks.
    fn blocks(&self) -> usize;

    /// The precision of activations that the keys and values have.
    fn precision(&self) -> Precision;

    /// The keys of a block, `[block_tokens, head_dim]`; rows of tokens that were never written are of no meaning.
    ///
    /// # Errors
    /// [`ShapeError`] when there is no such head or block.
    fn keys(&self, kv_head: usize, block: usize) -> Result<PackedRef<'_>, ShapeError>;

    /// The values of the first `tokens` tokens of a block, `[head_dim, tokens]`.
    ///
    /// # Errors
    /// [`ShapeError`] when there is no such head or block, or a block has fewer tokens.
    fn values(&self, kv_head: usize, block: usize, tokens: usize) -> Result<PackedRef<'_>, ShapeError>;
}

const ALIGNED: &str = "a buffer is aligned to 64 bytes, and its length is a multiple of the value size";

fn floats(buffer: &Buffer) -> &[f32] {
    <[f32]>::ref_from_bytes(buffer).expect(ALIGNED)
}

fn floats_mut(buffer: &mut Buffer) -> &mut [f32] {
    <[f32]>::mut_from_bytes(buffer).expect(ALIGNED)
}

/// `values` F32 values of scratch, whose contents are of no meaning.
fn room(buffer: &mut Buffer, values: usize) -> Result<&mut [f32], ShapeError> {
    if buffer.len() < values * 4 {
        *buffer = Buffer::zeroed(values * 4)?;
    }
    Ok(&mut floats_mut(buffer)[..values])
}

fn out_of_memory() -> ShapeError {
    std::io::Error::from(std::io::ErrorKind::OutOfMemory).into()
}

fn check(ok: bool, what: &'static str, expected: usize, found: usize) -> Result<(), ShapeError> {
    if ok { Ok(()) } else { Err(ShapeError::Mismatch { what, expected, found }) }
}
