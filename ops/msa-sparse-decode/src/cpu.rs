// SPDX-License-Identifier: MIT OR Apache-2.0

//! The fast path on [`cpu_tiles::attention`].
//!
//! The rows of a tile are the query heads of one KV head, so keys and values are read once for all of them. A task is one
//! KV head of one batch entry and a chunk of its listed blocks; where chunks begin depends on the lists alone. The chunks
//! of a KV head are merged in order, so the result is the same for every number of threads.

use crate::error::Error;
use crate::shape::{Blind, Cache, DecodeBatch, DecodeDims, Plan, Queries, Step};
use cpu_tiles::attention::{FlashRows, PackedBlock, Rows};
use cpu_tiles::threads::ColumnPanels;
use cpu_tiles::{Acts, Format, Level, Pool, ShapeError, convert};
use half::bf16;
use std::cell::RefCell;

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
        for steps in plan.steps[steps.clone()].chunks(dims.chunk_keys / dims.block) {
            let state = FlashRows::new(level, plan.precision, head_dim, group, dims.block)?;
            parts.push(Part { list, steps, state });
        }
    }
    let job = Job { level, dims, cache: &batch.cache, plan: &plan, queries: &queries };
    let tasks = parts.len();
    let slots = ColumnPanels::new(&mut parts, tasks, 1);
    pool.try_run(tasks, |task| job.attend(&mut slots.claim(task).row(0)[0]))?;

    let mut parts = &mut parts[..];
    let mut results = Vec::with_capacity(plan.lists.len());
    for (list, out) in out.chunks_exact_mut(group * head_dim).enumerate() {
        let count = parts.iter().take_while(|part| part.list == list).count();
        let (of_list, others) = std::mem::take(&mut parts).split_at_mut(count);
        results.push((out, of_list));
        parts = others;
    }
    let tasks = results.len();
    let slots = ColumnPanels::new(&mut results, tasks, 1);
    pool.try_run(tasks, |task| {
        let mut slot = slots.claim(task);
        let (out, parts) = &mut slot.row(0)[0];
        let mut row = vec![0.0; head_dim];
        let Some((Part { state, .. }, others)) = parts.split_first_mut() else {
            out.chunks_exact_mut(head_dim).for_each(|out| write(&row, out));
            return Ok(());
        };
        for other in others {
            state.merge(&other.state)?;
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
struct Part<'a> {
    /// The list of the plan: batch entry times KV heads, plus KV head.
    list: usize,
    steps: &'a [Step],
    state: FlashRows,
}

/// What all parts of a call share.
struct Job<'a> {
    level: Level,
    dims: &'a DecodeDims,
    cache: &'a Cache<'a>,
    plan: &'a Plan,
    queries: &'a Acts,
}

impl Job<'_> {
    fn attend(&self, part: &mut Part<'_>) -> Result<(), ShapeError> {
        let (group, kv_heads) = (self.dims.group(), self.dims.kv_heads);
        let rows: Vec<u32> = (0..group as u32).collect();
        let q_rows: Vec<u32> = (part.list * group..).map(|row| row as u32).take(group).collect();
        let mut visible = vec![0; group];
        let scale = self.dims.scale();
        part.state.reset(group)?;
        for &Step { page, tokens } in part.steps {
            visible.fill(tokens as u32);
            let rows = Rows { rows: &rows, q_rows: &q_rows, visible: &visible, bias: None };
            match *self.cache {
                Cache::Packed { pages, .. } => {
                    let kv_head = part.list % kv_heads;
                    let (keys, values) = (pages.keys(kv_head, page)?, pages.values(kv_head, page, tokens)?);
                    part.state.block(self.queries, rows, scale, keys.into(), values.into())?;
                }
                Cache::Plain { k_blocks, v_blocks } => {
                    let block = part.list * self.plan.blocks + page;
                    self.plain(part, rows, k_blocks, v_blocks, block, tokens)?;
                }
                Cache::Paged { k_pages, v_pages, .. } => {
                    let block = page * kv_heads + part.list % kv_heads;
                    self.plain(part, rows, k_pages, v_pages, block, tokens)?;
                }
            }
        }
        Ok(())
    }

    /// Takes the first `tokens` keys of a block of a plain cache, of which no other is read.
    fn plain(
        &self,
        part: &mut Part<'_>,
        rows: Rows<'_>,
        k: &[bf16],
        v: &[bf16],
        block: usize,
        tokens: usize,
    ) -> Result<(), ShapeError> {
        let DecodeDims { head_dim, block: capacity, .. } = *self.dims;
        let range = block * capacity * head_dim..(block * capacity + tokens) * head_dim;
        PACKED.with_borrow_mut(|packed| {
            let packed = match packed {
                Some((kind, packed)) if *kind == (head_dim, capacity) => packed,
                _ => {
                    let new = PackedBlock::new(Format::Bf16, head_dim, capacity)?;
                    &mut packed.insert(((head_dim, capacity), new)).1
                }
            };
            packed.pack_bf16(self.level, tokens, &k[range.clone()], &v[range], head_dim)?;
            part.state.block(self.queries, rows, self.dims.scale(), packed.keys(), packed.values())
        })
    }
}

/// A block, and the head dimension and block size that it is for.
type Scratch = ((usize, usize), PackedBlock);

thread_local! {
    static PACKED: RefCell<Option<Scratch>> = const { RefCell::new(None) };
}
