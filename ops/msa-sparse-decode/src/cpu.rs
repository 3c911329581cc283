// SPDX-License-Identifier: MIT OR Apache-2.0

//! The fast path on [`cpu_tiles::attention`].
//!
//! The rows of a tile are the query heads of one KV head, so keys and values are read once for all of them. A task is one
//! KV head of one batch entry and a chunk of its listed blocks; where chunks begin depends on the lists alone. The chunks
//! of a KV head are merged in order, so the result is the same for every number of threads.

use crate::error::Error;
use crate::shape::{Blind, Cache, DecodeBatch, DecodeDims, Plan, Queries, Step};
use cpu_tiles::attention::{Ahead, FlashRows, PackedBlock, Rows};
use cpu_tiles::mem::Scratch;
use cpu_tiles::threads::ColumnPanels;
use cpu_tiles::{Acts, Format, Level, PackedRef, Pool, Precision, RowNumbers, ShapeError, convert};
use half::bf16;
use std::cell::RefCell;
use std::fmt;
use std::ops::Range;

/// Attention of one query of each sequence over the listed blocks of its cache; the result is rounded to BF16.
///
/// `out` is `[B, H, D]`. Returns the KV heads that had nothing to see, whose results are zero; usually none.
///
/// # Errors
/// See [`Error`]; the arguments are checked before the first value is computed.
pub fn sparse_decode(
    level: Level,
    pool: &Pool,
    dims: &DecodeDims,
    batch: &DecodeBatch<'_>,
    out: &mut [bf16],
) -> Result<Vec<Blind>, Error> {
    decode(&mut Workspace::new(), level, pool, dims, batch, out, |row, out| convert::f32_to_bf16(level, row, out))
}

/// [`sparse_decode`] with the F32 result as it is.
///
/// # Errors
/// See [`Error`]; the arguments are checked before the first value is computed.
pub fn sparse_decode_f32(
    level: Level,
    pool: &Pool,
    dims: &DecodeDims,
    batch: &DecodeBatch<'_>,
    out: &mut [f32],
) -> Result<Vec<Blind>, Error> {
    sparse_decode_f32_in(&mut Workspace::new(), level, pool, dims, batch, out)
}

/// [`sparse_decode_f32`] in memory that is kept from call to call: see [`Workspace`].
///
/// # Errors
/// See [`Error`]; the arguments are checked before the first value is computed.
pub fn sparse_decode_f32_in(
    workspace: &mut Workspace,
    level: Level,
    pool: &Pool,
    dims: &DecodeDims,
    batch: &DecodeBatch<'_>,
    out: &mut [f32],
) -> Result<Vec<Blind>, Error> {
    decode(workspace, level, pool, dims, batch, out, |row, out| out.copy_from_slice(row))
}

/// The memory of [`sparse_decode_f32_in`], for any number of calls of any sizes, one after the other.
///
/// It grows to the largest call. A call that is no larger than an earlier one, or than what was
/// [reserved](Self::reserve), allocates nothing if its cache is packed, a KV head has at most 64 query heads of at most 256
/// channels, and every KV head has something to see, given that the threads of the pool have their scratch
/// ([`cpu_tiles::attention::reserve_attention_scratch`] for the query heads of a KV head).
#[derive(Default)]
pub struct Workspace {
    plan: Plan,
    queries: Option<Acts>,
    parts: Vec<Part>,
    /// One for each part, and others for larger calls.
    states: Vec<FlashRows>,
    /// The parts of each list of the plan.
    of_lists: Vec<Range<usize>>,
}

impl Workspace {
    /// Memory that is to be had.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes it large enough for `entries` sequences with lists of up to `top_k` ids for each KV head.
    ///
    /// # Errors
    /// [`Error`] when the dims are impossible, or memory runs out.
    pub fn reserve(&mut self, level: Level, dims: &DecodeDims, entries: usize, top_k: usize) -> Result<(), Error> {
        dims.check()?;
        self.plan.reserve(dims, entries, top_k);
        let lists = entries.saturating_mul(dims.kv_heads);
        let parts = lists.saturating_mul(top_k.div_ceil(dims.chunk_keys / dims.block));
        self.parts.clear();
        self.parts.reserve(parts);
        self.of_lists.clear();
        self.of_lists.reserve(lists);
        // Values of F32 are the largest.
        let rows = entries.saturating_mul(dims.heads);
        Acts::resized(&mut self.queries, level, Precision::F32, rows, dims.head_dim)?;
        states(&mut self.states, parts, level, Precision::F32, dims)?;
        Ok(())
    }
}

impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Workspace({} parts)", self.states.len())
    }
}

/// The first `count` states, made for a call.
fn states<'a>(
    states: &'a mut Vec<FlashRows>,
    count: usize,
    level: Level,
    precision: Precision,
    dims: &DecodeDims,
) -> Result<&'a mut [FlashRows], ShapeError> {
    let (head_dim, group, block) = (dims.head_dim, dims.group(), dims.block);
    for state in states.iter_mut().take(count) {
        state.resize(level, precision, head_dim, group, block)?;
    }
    while states.len() < count {
        states.push(FlashRows::new(level, precision, head_dim, group, block)?);
    }
    Ok(&mut states[..count])
}

fn decode<T: Send>(
    workspace: &mut Workspace,
    level: Level,
    pool: &Pool,
    dims: &DecodeDims,
    batch: &DecodeBatch<'_>,
    out: &mut [T],
    write: impl Fn(&[f32], &mut [T]) + Sync,
) -> Result<Vec<Blind>, Error> {
    let Workspace { plan, queries, parts, states: all_states, of_lists } = workspace;
    plan.set(dims, batch, out.len())?;
    let (plan, group, head_dim) = (&*plan, dims.group(), dims.head_dim);
    let queries = Acts::resized(queries, level, plan.precision, plan.batch * dims.heads, head_dim)?;
    match batch.queries {
        Queries::Bf16(x) => queries.write_bf16(pool, x)?,
        Queries::F32(x) => queries.write_f32(pool, x)?,
    }

    parts.clear();
    of_lists.clear();
    for (list, steps) in plan.lists.iter().enumerate() {
        let first = parts.len();
        let chunk = dims.chunk_keys / dims.block;
        let begins = steps.clone().step_by(chunk);
        parts.extend(begins.map(|begin| Part { list, first: begin, end: steps.end.min(begin + chunk) }));
        of_lists.push(first..parts.len());
    }
    let states = states(all_states, parts.len(), level, plan.precision, dims)?;
    let job = Job { level, dims, cache: &batch.cache, plan, queries, parts, threads: pool.threads() };
    let slots = ColumnPanels::new(states, parts.len(), 1);
    pool.try_run(parts.len(), |task| job.attend(task, &mut slots.claim(task).row(0)[0]))?;

    let values = out.len();
    let outs = ColumnPanels::new(out, values, group * head_dim);
    pool.try_for_each_range_mut(states, of_lists, |list, states| {
        let mut out = outs.claim(list);
        let out = out.row(0);
        let mut row = Scratch::<f32, 256>::new(head_dim, 0.0);
        let Some((state, others)) = states.split_first_mut() else {
            out.chunks_exact_mut(head_dim).for_each(|out| write(&row, out));
            return Ok(());
        };
        for other in others {
            state.merge(other)?;
        }
        for (member, out) in out.chunks_exact_mut(head_dim).enumerate() {
            state.finish(member, &mut row);
            write(&row, out);
        }
        Ok::<(), ShapeError>(())
    })?;
    Ok(plan.blind(dims.kv_heads))
}

/// A chunk of the blocks of one KV head of one batch entry.
#[derive(Clone, Copy)]
struct Part {
    /// The list of the plan: batch entry times KV heads, plus KV head.
    list: usize,
    /// Steps of the plan, at least one.
    first: usize,
    end: usize,
}

/// What all parts of a call share.
struct Job<'a> {
    level: Level,
    dims: &'a DecodeDims,
    cache: &'a Cache<'a>,
    plan: &'a Plan,
    queries: &'a Acts,
    parts: &'a [Part],
    threads: usize,
}

/// A block of one KV head of one batch entry.
#[derive(Clone, Copy)]
struct At {
    list: usize,
    step: Step,
}

impl Job<'_> {
    fn attend(&self, part: usize, state: &mut FlashRows) -> Result<(), ShapeError> {
        let group = self.dims.group();
        let Part { list, first, end } = self.parts[part];
        let steps = &self.plan.steps[first..end];
        let rows = RowNumbers::first(group);
        let q_rows = RowNumbers::new(list * group..(list + 1) * group);
        let mut visible = Scratch::<u32, 64>::new(group, 0);
        state.reset(group)?;
        // The thread's next part, most likely; a wrong guess costs some bandwidth.
        let next_part = self.parts.get(part + self.threads);
        let next_part = next_part.map(|part| At { list: part.list, step: self.plan.steps[part.first] });
        for (i, &step) in steps.iter().enumerate() {
            visible.fill(step.tokens as u32);
            let rows = Rows { rows: &rows, q_rows: &q_rows, visible: &visible, bias: None };
            let next = steps.get(i + 1).map(|&step| At { list, step }).or(next_part);
            self.step(state, rows, At { list, step }, next)?;
        }
        Ok(())
    }

    /// Takes one block; what the next one reads is asked for meanwhile.
    fn step(&self, state: &mut FlashRows, rows: Rows<'_>, at: At, next: Option<At>) -> Result<(), ShapeError> {
        let (kv_heads, scale) = (self.dims.kv_heads, self.dims.scale());
        match *self.cache {
            Cache::Packed { pages, .. } => {
                let keys = |at: At| pages.keys(at.list % kv_heads, at.step.page);
                let values = pages.values(at.list % kv_heads, at.step.page, at.step.tokens)?;
                let next = next.map(keys).transpose()?;
                let with_values = next.as_ref().map_or(&[][..], PackedRef::bytes);
                let ahead = Ahead { with_scores: values.bytes(), with_values };
                state.block_ahead(self.queries, rows, scale, keys(at)?.into(), values.into(), ahead)
            }
            Cache::Plain { k_blocks, v_blocks } => {
                let range = |at: At| self.elements(at.list * self.plan.blocks + at.step.page, at.step.tokens);
                self.plain(state, rows, [k_blocks, v_blocks], range(at), next.map(range))
            }
            Cache::Paged { k_pages, v_pages, .. } => {
                let range = |at: At| self.elements(at.step.page * kv_heads + at.list % kv_heads, at.step.tokens);
                self.plain(state, rows, [k_pages, v_pages], range(at), next.map(range))
            }
        }
    }

    /// The elements of the first tokens of a block of a plain cache; no other is read.
    fn elements(&self, block: usize, tokens: usize) -> Range<usize> {
        let first = block * self.dims.block;
        first * self.dims.head_dim..(first + tokens) * self.dims.head_dim
    }

    fn plain(
        &self,
        state: &mut FlashRows,
        rows: Rows<'_>,
        [k, v]: [&[bf16]; 2],
        range: Range<usize>,
        next: Option<Range<usize>>,
    ) -> Result<(), ShapeError> {
        let DecodeDims { head_dim, block, .. } = *self.dims;
        let ahead = next.map_or(Ahead::default(), |next| Ahead::plain(&k[next.clone()], &v[next]));
        PACKED.with_borrow_mut(|packed| {
            let packed = match packed {
                Some((kind, packed)) if *kind == (head_dim, block) => packed,
                _ => {
                    let new = PackedBlock::new(Format::Bf16, head_dim, block)?;
                    &mut packed.insert(((head_dim, block), new)).1
                }
            };
            packed.pack_bf16(self.level, range.len() / head_dim, &k[range.clone()], &v[range], head_dim)?;
            let (keys, values) = (packed.keys(), packed.values());
            state.block_ahead(self.queries, rows, self.dims.scale(), keys, values, ahead)
        })
    }
}

/// A block, and the head dimension and block size that it is for.
type Packing = ((usize, usize), PackedBlock);

thread_local! {
    static PACKED: RefCell<Option<Packing>> = const { RefCell::new(None) };
}
