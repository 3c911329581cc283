// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tile, from which every product of activations and weights is made: some rows times one panel of 64 outputs.

use crate::acts::{Acts, Values};
use crate::kernels::bf16_tile::{self, Bf16Tile};
use crate::kernels::dot::dispatch_dot;
use crate::kernels::f32_tile::{self, F32Tile};
use crate::kernels::simd::dispatch;
use crate::level::Level;
use crate::pack::{self, PanelFacts};
use crate::weights::{BLOCK, Data, Format, MX_GROUP, PANEL, Scales, ShapeError, Weight, check_len, panel_bytes};
use half::bf16;
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// The E8M0 codes whose powers of two keep every E4M3 value a normal BF16 number: 2^-9 and 448 both stay in range.
const BF16_EXACT_SCALES: std::ops::RangeInclusive<u8> = 10..=246;

/// One panel of a weight, given out in chunks of packed inputs.
#[derive(Clone, Copy)]
pub(crate) struct Chunks<'w> {
    weight: Weight<'w>,
    panel: usize,
}

/// Some inputs of a panel, packed.
pub(crate) struct Chunk<'a> {
    pub(crate) format: Format,
    /// Inputs, not padded.
    pub(crate) k: usize,
    pub(crate) data: &'a [u8],
    /// One scale for each 128 inputs; empty for other formats.
    pub(crate) block_scales: &'a [f32],
    /// `[k / 32][64]`; empty for other formats.
    pub(crate) mx_scales: &'a [u8],
    /// Of the panel, or of this part of it.
    pub(crate) facts: PanelFacts,
}

impl<'w> Chunks<'w> {
    pub(crate) fn k(&self) -> usize {
        self.weight.k()
    }

    pub(crate) fn format(&self) -> Format {
        self.weight.format()
    }

    /// Inputs `k`, packed into the scratch where the weight is row-major. `k` starts at a multiple of 128.
    #[inline]
    pub(crate) fn get<'a>(
        &self,
        level: Level,
        k: Range<usize>,
        packed: &'a mut [u8],
        packed_scales: &'a mut [u8],
    ) -> Chunk<'a>
    where
        'w: 'a,
    {
        let format = self.weight.format();
        let bytes = panel_bytes(format, k.len());
        let blocks = k.start / BLOCK..k.end.div_ceil(BLOCK);
        let grid_row = self.panel * PANEL / BLOCK * self.k().div_ceil(BLOCK);
        let groups = k.start / MX_GROUP * PANEL..k.end.div_ceil(MX_GROUP) * PANEL;
        match self.weight {
            Weight::Packed(weight) => {
                let start = k.start * PANEL * format.value_bytes();
                Chunk {
                    format,
                    k: k.len(),
                    data: &weight.panel(self.panel)[start..start + bytes],
                    block_scales: match weight.scales {
                        Scales::Block(scales) => &scales[grid_row + blocks.start..grid_row + blocks.end],
                        _ => &[],
                    },
                    mx_scales: match weight.scales {
                        Scales::Mx(scales) => &scales[self.panel * self.k().div_ceil(MX_GROUP) * PANEL..][groups],
                        _ => &[],
                    },
                    facts: weight.facts(self.panel),
                }
            }
            Weight::RowMajor(weight) => {
                let data = &mut packed[..bytes];
                let nan = pack::pack_panel(level, weight, self.panel, k.clone(), data);
                let block_scales = match weight.data {
                    Data::Fp8Block { scales, .. } => &scales[grid_row + blocks.start..grid_row + blocks.end],
                    _ => &[],
                };
                let is_mx = format == Format::Mxfp8;
                let mx_scales = &mut packed_scales[..if is_mx { groups.len() } else { 0 }];
                pack::pack_mx_scales(weight, self.panel, k.clone(), mx_scales);
                let facts = PanelFacts::new(nan, mx_scales);
                Chunk { format, k: k.len(), data, block_scales, mx_scales, facts }
            }
        }
    }
}

impl Chunk<'_> {
    /// Whether BF16 dot products give the right result: E8M0 scales are folded into BF16 exponents, which is exact only in
    /// range and for numbers.
    pub(crate) fn fits_bf16(&self) -> bool {
        match self.format {
            Format::F32 => false,
            Format::Bf16 | Format::Fp8Block => true,
            Format::Mxfp8 => self.facts.is_within(&BF16_EXACT_SCALES),
        }
    }
}

/// The numbers of consecutive rows, for [`tile`].
///
/// ```
/// use cpu_tiles::RowNumbers;
/// assert_eq!(RowNumbers::new(2..5)[..], [2, 3, 4]);
/// ```
#[derive(Debug)]
pub struct RowNumbers(Numbers);

#[derive(Debug)]
enum Numbers {
    Few(&'static [u32]),
    Many(Vec<u32>),
}

/// 0, 1, 2 ...
static FIRST: [u32; RowNumbers::FEW] = {
    let mut first = [0; RowNumbers::FEW];
    let mut row = 0;
    while row < first.len() {
        first[row] = row as u32;
        row += 1;
    }
    first
};

impl RowNumbers {
    /// Rows below this number need no memory.
    pub const FEW: usize = 2048;

    /// The rows of a range; those beyond what 32 bits count are left out.
    pub fn new(range: Range<usize>) -> Self {
        match FIRST.get(range.clone()) {
            Some(rows) => Self(Numbers::Few(rows)),
            None => Self(Numbers::Many(range.map_while(|row| u32::try_from(row).ok()).collect())),
        }
    }

    /// The first `count` rows.
    pub fn first(count: usize) -> Self {
        Self::new(0..count)
    }
}

impl std::ops::Deref for RowNumbers {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        match &self.0 {
            Numbers::Few(rows) => rows,
            Numbers::Many(rows) => rows,
        }
    }
}

/// Scratch of a thread, for the chunk that a tile works on.
struct Scratch {
    chunk: ChunkScratch,
    /// Where the rows begin.
    f32_rows: Vec<*const f32>,
    bf16_rows: Vec<*const bf16>,
    /// BF16 rows in F32.
    wide: Vec<f32>,
}

thread_local! {
    /// What [`with_sums`] gives out.
    static SUMS: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Calls `with` with scratch of the calling thread for the results of `rows` rows of a [`tile`], `[rows, 64]` values of no
/// meaning, which is kept for the next call. A call inside of `with` gets memory of its own.
pub fn with_sums<T>(rows: usize, with: impl FnOnce(&mut [f32]) -> T) -> T {
    let mut sums = SUMS.take();
    let len = rows * PANEL;
    if sums.len() < len {
        sums.resize(len, 0.0);
    }
    let result = with(&mut sums[..len]);
    SUMS.set(sums);
    result
}

struct ChunkScratch {
    expanded: crate::mem::Buffer,
    packed: crate::mem::Buffer,
    packed_scales: crate::mem::Buffer,
}

/// The largest chunk of either kernel, in values.
const CHUNK_VALUES: usize = bf16_tile::CHUNK * PANEL;

thread_local! {
    static SCRATCH: RefCell<Option<Scratch>> = const { RefCell::new(None) };
}

impl Scratch {
    fn new() -> std::io::Result<Self> {
        Ok(Self { chunk: ChunkScratch::new()?, f32_rows: Vec::new(), bf16_rows: Vec::new(), wide: Vec::new() })
    }
}

/// Makes the scratch of the calling thread ready for tiles of up to `rows` rows of up to `inputs` values: such a [`tile`], and
/// [`with_sums`] for twice as many rows, then need no memory on it. Without, the first one makes it. For all threads of a pool
/// see [`Pool::on_each_thread`].
///
/// [`Pool::on_each_thread`]: crate::Pool::on_each_thread
///
/// # Errors
/// [`ShapeError::Memory`].
pub fn reserve_tile_scratch(rows: usize, inputs: usize) -> Result<(), ShapeError> {
    fn reserve<T>(values: &mut Vec<T>, len: usize) -> std::io::Result<()> {
        values.clear();
        values.try_reserve(len).map_err(|_| std::io::ErrorKind::OutOfMemory.into())
    }
    let mut sums = SUMS.take();
    let reserved = reserve(&mut sums, rows.saturating_mul(2 * PANEL));
    SUMS.set(sums);
    reserved?;
    SCRATCH.with_borrow_mut(|scratch| {
        let Scratch { f32_rows, bf16_rows, wide, .. } = match scratch {
            Some(scratch) => scratch,
            None => scratch.insert(Scratch::new()?),
        };
        reserve(f32_rows, rows)?;
        reserve(bf16_rows, rows)?;
        reserve(wide, rows.saturating_mul(inputs.next_multiple_of(4)))?;
        Ok(())
    })
}

impl ChunkScratch {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            // An expanded chunk is F32 in the F32 kernels, BF16 in the others.
            expanded: crate::mem::Buffer::zeroed((f32_tile::CHUNK * PANEL * 4).max(CHUNK_VALUES * 2))?,
            // A packed chunk is at most F32 in the F32 kernels, BF16 in the others.
            packed: crate::mem::Buffer::zeroed((f32_tile::CHUNK * PANEL * 4).max(CHUNK_VALUES * 2))?,
            packed_scales: crate::mem::Buffer::zeroed(CHUNK_VALUES / MX_GROUP)?,
        })
    }
}

/// Computes `out[i][j] = sum over k of acts[rows[i]][k] * weight[64 * panel + j][k]`, `[rows, 64]` in F32.
///
/// Outputs beyond the weight's N are zero. The sums run along K in a fixed order, so each row's result is the same bit
/// for bit whatever rows share the call and whether the weight is packed or row-major.
pub fn tile(weight: Weight<'_>, panel: usize, acts: &Acts, rows: &[u32], out: &mut [f32]) -> Result<(), ShapeError> {
    if acts.k() != weight.k() {
        return Err(ShapeError::Mismatch { what: "columns of the activations", expected: weight.k(), found: acts.k() });
    }
    check_len("out", out.len(), &[rows.len(), PANEL])?;
    if panel >= weight.panels() {
        return Err(ShapeError::Mismatch { what: "panel beyond the last", expected: weight.panels(), found: panel });
    }
    if let Some(&row) = rows.iter().find(|&&row| row as usize >= acts.m()) {
        return Err(ShapeError::Mismatch { what: "row beyond the last", expected: acts.m(), found: row as usize });
    }
    if rows.is_empty() {
        return Ok(());
    }
    let chunks = Chunks { weight, panel };
    SCRATCH.with_borrow_mut(|scratch| {
        let scratch = match scratch {
            Some(scratch) => scratch,
            None => scratch.insert(Scratch::new()?),
        };
        let Scratch { chunk, f32_rows, bf16_rows, wide } = scratch;
        match acts.values() {
            Values::F32(values, stride) => {
                f32_rows.clear();
                f32_rows.extend(rows.iter().map(|&row| values[row as usize * stride..].as_ptr()));
                f32_tile(acts.level(), chunks, f32_rows, out, chunk);
            }
            Values::Bf16(values, stride) => {
                let level = acts.level();
                bf16_rows.clear();
                bf16_rows.extend(rows.iter().map(|&row| values[row as usize * stride..].as_ptr()));
                {
                    let ChunkScratch { expanded, packed, packed_scales } = &mut *chunk;
                    let out = &mut *out;
                    let tile = Bf16Tile { level, chunks, rows: bf16_rows, out, expanded, packed, packed_scales };
                    if dispatch_dot(level, tile) {
                        return Ok(());
                    }
                }
                // F32 weights, and scales outside of BF16's range: rare with BF16 activations, so not made fast.
                let padded = acts.k().next_multiple_of(4);
                wide.clear();
                wide.resize(rows.len() * padded, 0.0);
                for (wide, &row) in wide.chunks_exact_mut(padded.max(1)).zip(rows) {
                    let at = row as usize * stride;
                    crate::convert::bf16_to_f32(level, &values[at..at + padded], wide);
                }
                f32_rows.clear();
                f32_rows.extend((0..rows.len()).map(|row| wide[row * padded..].as_ptr()));
                f32_tile(level, chunks, f32_rows, out, chunk);
            }
        }
        Ok(())
    })
}

fn f32_tile(level: Level, chunks: Chunks<'_>, rows: &[*const f32], out: &mut [f32], scratch: &mut ChunkScratch) {
    let ChunkScratch { expanded, packed, packed_scales } = scratch;
    let expanded = zerocopy::FromBytes::mut_from_bytes(expanded).expect("an aligned buffer of whole F32 values");
    dispatch(level, F32Tile { level, chunks, rows, out, expanded, packed, packed_scales });
}
