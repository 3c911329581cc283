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

use crate::acts::{Acts, Precision, Values};
use crate::kernels::bf16_panels::Bf16Panels;
use crate::kernels::dot::dispatch_dot;
use crate::kernels::flash::{Accumulate, AddBias, AllFinite, Chosen, MOST_LANES, Merge, Softmax};
use crate::kernels::simd::dispatch;
use crate::level::Level;
use crate::mem::Buffer;
use crate::tile::{reserve_tile_scratch, tile};
use crate::weights::{Format, PANEL, PackedRef, ShapeError, Weight, check_len, packed_index};
use half::bf16;
use std::cell::RefCell;
use std::fmt;
use zerocopy::{FromBytes, IntoBytes};

mod packed;

pub use packed::{PackedBlock, PackedPages};

/// Tiles read the inputs of a product in fours.
const QUAD: usize = 4;

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
            max: zeros(rows)?,
            sum: zeros(rows)?,
            values: Buffer::zeroed(bytes)?,
        })
    }

    /// Makes this a state as [`new`](Self::new) would, in the memory it has where that is enough: for states of one step after
    /// the other.
    ///
    /// # Errors
    /// [`ShapeError::Memory`]; the state has no rows then.
    pub fn resize(
        &mut self,
        level: Level,
        precision: Precision,
        head_dim: usize,
        rows: usize,
        block: usize,
    ) -> Result<(), ShapeError> {
        let stride = head_dim.checked_next_multiple_of(PANEL);
        let bytes = stride.and_then(|stride| stride.checked_mul(4)?.checked_mul(rows));
        self.rows = 0;
        if bytes.is_none_or(|bytes| bytes > self.values.len()) || rows > self.max.capacity() {
            self.max.clear();
            *self = Self::new(level, precision, head_dim, rows, block)?;
            return Ok(());
        }
        (self.level, self.precision, self.head_dim, self.block) = (level, precision, head_dim, block);
        self.stride = head_dim.next_multiple_of(PANEL);
        self.max.resize(rows, 0.0);
        self.sum.resize(rows, 0.0);
        Ok(())
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
        let Scratch { chosen, rows, most, scores, sums, shrink, probabilities, .. } = scratch;
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
        let scores = floats_mut(scores);
        let scale = match visible.bias {
            None => scale,
            Some(bias) => {
                let scores = &mut scores[..most.div_ceil(PANEL) * rows.len() * PANEL];
                dispatch(self.level, AddBias { scale, bias, keys: of_block, chosen, scores });
                1.0
            }
        };
        let (out, stride) = probabilities.rows_mut();
        let softmax = Softmax {
            scale,
            chosen,
            scores,
            keys,
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

/// Memory that is read soon, and asked for while a block is worked on. A hint: results do not depend on it, and only levels
/// with BF16 dot products use it, in BF16 and for packed blocks.
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

    fn reserve(
        &mut self,
        level: Level,
        precision: Precision,
        head_dim: usize,
        rows: usize,
        block: usize,
    ) -> Result<(), ShapeError> {
        fn reserve<T>(values: &mut Vec<T>, len: usize) -> std::io::Result<()> {
            values.clear();
            values.try_reserve(len).map_err(|_| std::io::ErrorKind::OutOfMemory.into())
        }
        reserve(&mut self.chosen, rows)?;
        reserve(&mut self.rows, rows)?;
        reserve(&mut self.q_rows, rows)?;
        reserve(&mut self.numbers, rows)?;
        reserve(&mut self.pointers, rows)?;
        reserve(&mut self.sums, rows)?;
        reserve(&mut self.shrink, rows.next_multiple_of(MOST_LANES))?;
        room(&mut self.scores, block.next_multiple_of(PANEL) * rows)?;
        room(&mut self.products, head_dim.next_multiple_of(PANEL) * rows)?;
        let keys = block.next_multiple_of(QUAD);
        match &mut self.probabilities {
            Some(acts) => acts.reuse(level, precision, rows, keys)?,
            None => self.probabilities = Some(Acts::zeroed(level, precision, rows, keys)?),
        }
        Ok(())
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

/// Makes the scratch of the calling thread ready for states of up to `rows` rows and blocks of up to `block` keys:
/// [`FlashRows::block`] then needs no memory on it for packed blocks, unless something that a row does not see is not finite.
/// Without, the first calls make it. For all threads of a pool see [`Pool::on_each_thread`](crate::Pool::on_each_thread).
///
/// # Errors
/// [`ShapeError::Memory`].
pub fn reserve_attention_scratch(
    level: Level,
    precision: Precision,
    head_dim: usize,
    rows: usize,
    block: usize,
) -> Result<(), ShapeError> {
    reserve_tile_scratch(rows, head_dim.max(block))?;
    SCRATCH.with_borrow_mut(|scratch| {
        let scratch = match scratch {
            Some(scratch) => scratch,
            None => scratch.insert(Scratch::new()?),
        };
        scratch.reserve(level, precision, head_dim, rows, block)
    })
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

fn zeros(count: usize) -> Result<Vec<f32>, ShapeError> {
    let mut zeros = Vec::new();
    zeros.try_reserve_exact(count).map_err(|_| out_of_memory())?;
    zeros.resize(count, 0.0);
    Ok(zeros)
}

fn out_of_memory() -> ShapeError {
    std::io::Error::from(std::io::ErrorKind::OutOfMemory).into()
}

fn check(ok: bool, what: &'static str, expected: usize, found: usize) -> Result<(), ShapeError> {
    if ok { Ok(()) } else { Err(ShapeError::Mismatch { what, expected, found }) }
}
