// SPDX-License-Identifier: MIT OR Apache-2.0

//! The fast path on [`cpu_tiles::attention`].
//!
//! The rows of a tile are the query heads of one KV head, so keys and values are read once for all of them. A task is one
//! KV head of one batch entry and a chunk of its listed blocks; where chunks begin depends on the lists alone. The chunks
//! of a KV head are merged in order, so the result is the same for every number of threads.

use crate::error::Error;
use crate::shape::{Blind, Cache, DecodeBatch, DecodeDims, Plan, Queries, Step};
use cpu_tiles::attention::{Ahead, FlashRows, PackedBlock, Rows};
use cpu_tiles::threads::ColumnPanels;
use cpu_tiles::{Acts, Format, Level, PackedRef, Pool, ShapeError, convert};
use half::bf16;
use std::cell::RefCell;
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
    decode(level, pool, dims, batch, out, |row, out| convert::f32_to_bf16(level, row, out))
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
    decode(level, pool, dims, batch, out, |row, out| out.copy_from_slice(row))
}

fn decode<T: Send>(
    level: Level,
    pool: &Pool,
    dims: &DecodeDims,
    batch: &DecodeBatch<'_>,
    out: &mut [T],
    write: impl Fn(&[f32], &mut [T]) + Sync,
) -> Result<Vec<Blind>, Error> {
    let plan = Plan::new(dims, batch, out.len())?;
    let (group, head_dim) = (dims.group(), dims.head_dim);
    let rows = plan.batch * dims.heads;
    let queries = match batch.queries {
        Queries::Bf16(x) => Acts::from_bf16(level, pool, plan.precision, rows, head_dim, x)?,
        Queries::F32(x) => Acts::from_f32(level, pool, plan.precision, rows, head_dim, x)?,
    };

    let mut parts = Vec::new();
    for (list, steps) in plan.lists.iter().enumerate() {
        let chunks = plan.steps[steps.clone()].chunks(dims.chunk_keys / dims.block);
        parts.extend(chunks.map(|steps| Part { list, steps }));
    }
    let state = || FlashRows::new(level, plan.precision, head_dim, group, dims.block);
    let mut states = parts.iter().map(|_| state()).collect::<Result<Vec<_>, _>>()?;
    let threads = pool.threads();
    let job = Job { level, dims, cache: &batch.cache, plan: &plan, queries: &queries, parts: &parts, threads };
    let slots = ColumnPanels::new(&mut states, parts.len(), 1);
    pool.try_run(parts.len(), |task| job.attend(task, &mut slots.claim(task).row(0)[0]))?;

    let mut states = &mut states[..];
    let mut results = Vec::with_capacity(plan.lists.len());
    for (out, of_list) in out.chunks_exact_mut(group * head_dim).zip(&plan.lists) {
        let count = of_list.len().div_ceil(dims.chunk_keys / dims.block);
        let (of_list, others) = std::mem::take(&mut states).split_at_mut(count);
        results.push((out, of_list));
        states = others;
    }
    let tasks = results.len();
    let slots = ColumnPanels::new(&mut results, tasks, 1);
    pool.try_run(tasks, |task| {
        let mut slot = slots.claim(task);
        let (out, states) = &mut slot.row(0)[0];
        let mut row = vec![0.0; head_dim];
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
struct Part<'a> {
    /// The list of the plan: batch entry times KV heads, plus KV head.
    list: usize,
    /// At least one.
    steps: &'a [Step],
}

/// What all parts of a call share.
struct Job<'a> {
    level: Level,
    dims: &'a DecodeDims,
    cache: &'a Cache<'a>,
    plan: &'a Plan,
    queries: &'a Acts,
    parts: &'a [Part<'a>],
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
        let Part { list, steps } = self.parts[part];
        let rows: Vec<u32> = (0..group as u32).collect();
        let q_rows: Vec<u32> = (list * group..).map(|row| row as u32).take(group).collect();
        let mut visible = vec![0; group];
        state.reset(group)?;
        // The thread's next part, most likely; a wrong guess costs some bandwidth.
        let next_part = self.parts.get(part + self.threads).map(|part| At { list: part.list, step: part.steps[0] });
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
type Scratch = ((usize, usize), PackedBlock);

thread_local! {
    static PACKED: RefCell<Option<Scratch>> = const { RefCell::new(None) };
}
