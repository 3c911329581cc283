// SPDX-License-Identifier: MIT OR Apache-2.0

//! The fast path on the tiles of [`cpu_tiles`].
//!
//! Rows are taken in waves of at most [`ROW_BLOCK`]. A wave has two phases with a barrier between them. Phase 1: a task
//! is one panel of 64 intermediate columns of one expert, both products and the activation. Phase 2: a task is one
//! panel of 64 output columns; it walks the experts of the wave in ascending order. So no two tasks write one place,
//! and every output is summed in one order, whatever the number of threads.

use crate::error::Error;
use crate::shape::{Activation, Expert, Experts, MoeDims, Routing, Tokens, check_len, check_shape};
use cpu_tiles::threads::ColumnPanels;
use cpu_tiles::{Acts, Level, PANEL, Pool, RowNumbers, ShapeError, convert, linear, math, tile, with_sums};
use half::bf16;
use ndarray::{ArrayView1, ArrayView2, ArrayViewMut2};
use std::fmt;
use std::ops::Range;

/// The most rows of the intermediate that exist at a time.
pub const ROW_BLOCK: usize = 2048;

/// The published operator: the FFN of every expert over its rows of the sorted tokens.
///
/// | argument | shape | |
/// | --- | --- | --- |
/// | `sorted_tokens` | `[N, H]` | rows grouped by ascending expert, any strides |
/// | `expert_cumsum` | `[E + 1]` | expert `e` owns rows `expert_cumsum[e]..expert_cumsum[e + 1]`; from 0 to N |
/// | `result` | `[N, H]` | every row is written, any strides |
///
/// # Errors
/// See [`Error`]; the arguments are checked before the first value is computed.
pub fn grouped_gemm(
    level: Level,
    pool: &Pool,
    dims: &MoeDims,
    sorted_tokens: ArrayView2<'_, bf16>,
    experts: &(impl Experts + ?Sized),
    expert_cumsum: ArrayView1<'_, i32>,
    mut result: ArrayViewMut2<'_, bf16>,
) -> Result<(), Error> {
    dims.check()?;
    let shape = [sorted_tokens.nrows(), dims.hidden];
    check_shape("sorted_tokens", &shape, sorted_tokens.shape())?;
    check_shape("result", &shape, result.shape())?;
    let tokens = sorted_tokens.as_standard_layout();
    let tokens = Tokens::Bf16(tokens.as_slice().expect("an array in standard layout is one slice"));
    let cumsum = expert_cumsum.to_vec();
    let compute = |out: &mut [bf16]| {
        grouped(level, pool, dims, tokens, experts, &cumsum, out, |_, sums, out| {
            convert::f32_to_bf16(level, sums, out);
        })
    };
    if let Some(out) = result.as_slice_mut() {
        return compute(out);
    }
    let mut out = vec![bf16::ZERO; result.len()];
    compute(&mut out)?;
    for (to, from) in result.iter_mut().zip(out) {
        *to = from;
    }
    Ok(())
}

/// [`grouped_gemm`] on slices, in either precision, with the F32 sums of the second product as they are. `out` is
/// `[N, H]`.
///
/// # Errors
/// See [`Error`]; the arguments are checked before the first value is computed.
pub fn grouped_gemm_f32(
    level: Level,
    pool: &Pool,
    dims: &MoeDims,
    tokens: Tokens<'_>,
    experts: &(impl Experts + ?Sized),
    expert_cumsum: &[i32],
    out: &mut [f32],
) -> Result<(), Error> {
    grouped(level, pool, dims, tokens, experts, expert_cumsum, out, |_, sums, out| out.copy_from_slice(sums))
}

/// A whole mixture of experts: routes the tokens, runs the FFN of each expert over its tokens, and combines.
///
/// `out[t] = sum over the chosen experts e, ascending, of weight[t][e] * D[e][t]`, F32 from the unrounded sums `D` of
/// the second product. The same bits for any number of threads and any order of a token's choices.
///
/// | argument | shape | |
/// | --- | --- | --- |
/// | `tokens` | `[T, H]` | |
/// | `topk_ids` | `[T, k]` | distinct experts of each token, `1 <= k <= E` |
/// | `topk_weights` | `[T, k]` | their weights, used as they are |
/// | `out` | `[T, H]` | overwritten |
///
/// # Errors
/// See [`Error`]; the arguments are checked before the first value is computed.
#[expect(clippy::too_many_arguments, reason = "each is an argument of the operator")]
pub fn moe_ffn(
    level: Level,
    pool: &Pool,
    dims: &MoeDims,
    tokens: Tokens<'_>,
    experts: &(impl Experts + ?Sized),
    topk_ids: &[u32],
    topk_weights: &[f32],
    out: &mut [f32],
) -> Result<(), Error> {
    moe_ffn_in(&mut Workspace::new(), level, pool, dims, tokens, experts, topk_ids, topk_weights, out)
}

/// [`moe_ffn`] in memory that is kept from call to call: see [`Workspace`].
///
/// # Errors
/// See [`Error`]; the arguments are checked before the first value is computed.
#[expect(clippy::too_many_arguments, reason = "each is an argument of the operator")]
pub fn moe_ffn_in(
    workspace: &mut Workspace,
    level: Level,
    pool: &Pool,
    dims: &MoeDims,
    tokens: Tokens<'_>,
    experts: &(impl Experts + ?Sized),
    topk_ids: &[u32],
    topk_weights: &[f32],
    out: &mut [f32],
) -> Result<(), Error> {
    let Workspace { routing, weights, experts: slot, products, .. } = workspace;
    route(routing, weights, dims, tokens, topk_ids, topk_weights, out)?;
    let active = active(slot, dims, experts, routing)?;
    out.fill(0.0);
    fused(products, level, pool, dims, tokens, routing, &active, out, |assignment, sums, out| {
        math::add_scaled(level, weights[assignment], sums, out);
    })?;
    *slot = emptied(active);
    Ok(())
}

/// [`moe_ffn`] without the fusion: expert by expert, each linear layer, the activation and the weighted sum a pass of
/// its own over all rows of the expert. The same bits, at the cost of gathered copies of the tokens and of whole F32
/// intermediates; the baseline of the bench.
///
/// # Errors
/// See [`Error`]; the arguments are checked before the first value is computed.
#[expect(clippy::too_many_arguments, reason = "each is an argument of the operator")]
pub fn moe_ffn_eager(
    level: Level,
    pool: &Pool,
    dims: &MoeDims,
    tokens: Tokens<'_>,
    experts: &(impl Experts + ?Sized),
    topk_ids: &[u32],
    topk_weights: &[f32],
    out: &mut [f32],
) -> Result<(), Error> {
    moe_ffn_eager_in(&mut Workspace::new(), level, pool, dims, tokens, experts, topk_ids, topk_weights, out)
}

/// [`moe_ffn_eager`] in memory that is kept from call to call: see [`Workspace`].
///
/// # Errors
/// See [`Error`]; the arguments are checked before the first value is computed.
#[expect(clippy::too_many_arguments, reason = "each is an argument of the operator")]
pub fn moe_ffn_eager_in(
    workspace: &mut Workspace,
    level: Level,
    pool: &Pool,
    dims: &MoeDims,
    tokens: Tokens<'_>,
    experts: &(impl Experts + ?Sized),
    topk_ids: &[u32],
    topk_weights: &[f32],
    out: &mut [f32],
) -> Result<(), Error> {
    fn sized(values: &mut Vec<f32>, len: usize) -> &mut [f32] {
        values.resize(len, 0.0);
        values
    }
    let (hidden, intermediate) = (dims.hidden, dims.intermediate);
    let Workspace { routing, weights, experts: slot, products, eager } = workspace;
    let Eager { f32, bf16, gate, up, act, sums } = eager;
    let Products { tokens: x, inner, .. } = products;
    route(routing, weights, dims, tokens, topk_ids, topk_weights, out)?;
    let active = active(slot, dims, experts, routing)?;
    out.fill(0.0);
    for (expert, (_, assignments)) in active.iter().zip(&routing.experts) {
        let rows = &routing.rows[assignments.clone()];
        let gathered = gather(hidden, tokens, rows, f32, bf16);
        let x = acts(x, level, pool, hidden, gathered)?;
        let gate = sized(gate, rows.len() * intermediate);
        let up = sized(up, rows.len() * intermediate);
        linear(pool, x, expert.gate, gate)?;
        linear(pool, x, expert.up, up)?;

        let act = sized(act, rows.len() * intermediate);
        pool.for_each_chunk_mut(act, intermediate, |row, act| {
            let columns = row * intermediate..(row + 1) * intermediate;
            activate(level, dims.activation, &gate[columns.clone()], &up[columns], act);
        });
        let inner = Acts::resized(inner, level, tokens.precision(), rows.len(), intermediate)?;
        inner.write_f32(pool, act)?;

        let sums = sized(sums, rows.len() * hidden);
        linear(pool, inner, expert.down, sums)?;
        let columns = ColumnPanels::new(out, hidden, PANEL);
        pool.run(columns.panels(), |panel| {
            let mut out = columns.claim(panel);
            for (i, &row) in rows.iter().enumerate() {
                let out = out.row(row as usize);
                let sums = &sums[i * hidden + panel * PANEL..][..out.len()];
                math::add_scaled(level, weights[assignments.start + i], sums, out);
            }
        });
    }
    *slot = emptied(active);
    Ok(())
}

/// The memory of [`moe_ffn_in`] and [`moe_ffn_eager_in`], for any number of calls of any sizes, one after the other.
///
/// It grows to the largest call. A call that is no larger than an earlier one of the same function in every size allocates
/// nothing, given that the threads of the pool have their scratch ([`cpu_tiles::reserve_tile_scratch`] for the most rows of an
/// expert and the larger of H and I).
#[derive(Default)]
pub struct Workspace {
    routing: Routing,
    /// Of each assignment.
    weights: Vec<f32>,
    /// Empty between calls: memory for the experts of the next one.
    experts: Vec<Expert<'static>>,
    products: Products,
    eager: Eager,
}

impl Workspace {
    /// Memory that is to be had.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Workspace({} assignments)", self.routing.rows.capacity())
    }
}

/// Of the fused products.
#[derive(Default)]
struct Products {
    tokens: Option<Acts>,
    inner: Option<Acts>,
    parts: Vec<Part>,
    /// For each part, its rows of the intermediate of its wave.
    groups: Vec<Range<usize>>,
    /// Parts of each wave.
    waves: Vec<Range<usize>>,
}

/// Of the products expert by expert.
#[derive(Default)]
struct Eager {
    f32: Vec<f32>,
    bf16: Vec<bf16>,
    gate: Vec<f32>,
    up: Vec<f32>,
    act: Vec<f32>,
    sums: Vec<f32>,
}

/// The checks of a call on sorted tokens, and the call.
#[expect(clippy::too_many_arguments, reason = "each is an argument of the operator")]
fn grouped<T: Send>(
    level: Level,
    pool: &Pool,
    dims: &MoeDims,
    tokens: Tokens<'_>,
    experts: &(impl Experts + ?Sized),
    expert_cumsum: &[i32],
    out: &mut [T],
    write: impl Fn(usize, &[f32], &mut [T]) + Sync,
) -> Result<(), Error> {
    dims.check()?;
    let rows = tokens.rows(dims.hidden)?;
    check_len("out", &[rows as usize, dims.hidden], out.len())?;
    let routing = Routing::sorted(dims.experts, rows, expert_cumsum)?;
    let active = active(&mut Vec::new(), dims, experts, &routing)?;
    fused(&mut Products::default(), level, pool, dims, tokens, &routing, &active, out, write)
}

/// The checks of a call on routed tokens but those of the experts.
fn route(
    routing: &mut Routing,
    weights: &mut Vec<f32>,
    dims: &MoeDims,
    tokens: Tokens<'_>,
    topk_ids: &[u32],
    topk_weights: &[f32],
    out: &[f32],
) -> Result<(), Error> {
    dims.check()?;
    let rows = tokens.rows(dims.hidden)?;
    check_len("out", &[rows as usize, dims.hidden], out.len())?;
    routing.choose(dims.experts, rows, topk_ids, topk_weights, weights)
}

/// The experts that have rows, in the order of the routing, checked; in the memory of `slot`.
fn active<'a>(
    slot: &mut Vec<Expert<'static>>,
    dims: &MoeDims,
    experts: &'a (impl Experts + ?Sized),
    routing: &Routing,
) -> Result<Vec<Expert<'a>>, Error> {
    if let Some(found) = experts.count().filter(|count| *count != dims.experts) {
        return Err(Error::ExpertCount { expected: dims.experts, found });
    }
    let mut active: Vec<Expert<'a>> = std::mem::take(slot);
    active.clear();
    for &(index, _) in &routing.experts {
        let expert = experts.expert(index);
        expert.check(index, dims)?;
        active.push(expert);
    }
    Ok(active)
}

/// The memory of a list, as that of a list of any lifetime.
fn emptied(mut experts: Vec<Expert<'_>>) -> Vec<Expert<'static>> {
    experts.clear();
    // Collecting a vector's own items, of which there are none, keeps its memory.
    experts.into_iter().map_while(|_| None).collect()
}

/// Rows of one expert that are worked on together.
#[derive(Clone, Copy)]
struct Part {
    /// The place in the routing.
    expert: usize,
    first: usize,
    rows: usize,
}

impl Part {
    fn assignments(&self) -> Range<usize> {
        self.first..self.first + self.rows
    }
}

impl Products {
    /// Cuts the routing into waves of at most [`ROW_BLOCK`] rows. An expert is split only where it alone has more, and then
    /// evenly, since each part reads the expert's weights again.
    fn split(&mut self, routing: &Routing) {
        let Self { parts, groups, waves, .. } = self;
        parts.clear();
        groups.clear();
        waves.clear();
        let mut used = ROW_BLOCK;
        for (expert, (_, assignments)) in routing.experts.iter().enumerate() {
            let most = assignments.len().div_ceil(assignments.len().div_ceil(ROW_BLOCK));
            for first in assignments.clone().step_by(most) {
                let rows = most.min(assignments.end - first);
                if used + rows > ROW_BLOCK {
                    waves.push(parts.len()..parts.len());
                    used = 0;
                }
                parts.push(Part { expert, first, rows });
                groups.push(used..used + rows);
                used += rows;
                waves.last_mut().expect("a wave was begun").end = parts.len();
            }
        }
    }
}

/// Both products and the activation between them. `write` gets an assignment, 64 or fewer sums of the second product,
/// and the place of the output they belong to; it is called in ascending order of experts for each place.
#[expect(clippy::too_many_arguments, reason = "each is an argument of the operator, or memory")]
fn fused<T: Send>(
    products: &mut Products,
    level: Level,
    pool: &Pool,
    dims: &MoeDims,
    tokens: Tokens<'_>,
    routing: &Routing,
    experts: &[Expert<'_>],
    out: &mut [T],
    write: impl Fn(usize, &[f32], &mut [T]) + Sync,
) -> Result<(), Error> {
    products.split(routing);
    let Products { tokens: slot, inner, parts, groups, waves } = products;
    if waves.is_empty() {
        return Ok(());
    }
    let acts = &*acts(slot, level, pool, dims.hidden, tokens)?;
    let numbers = RowNumbers::first(ROW_BLOCK);
    for wave in waves {
        let (parts, groups) = (&parts[wave.clone()], &groups[wave.clone()]);
        let rows = groups.last().map_or(0, |rows| rows.end);
        let inner = Acts::resized(inner, level, tokens.precision(), rows, dims.intermediate)?;

        let columns = inner.panels_in_groups(groups);
        let panels = dims.intermediate.div_ceil(PANEL);
        pool.try_run(parts.len() * panels, |task| {
            let (place, panel) = (task / panels, task % panels);
            let (part, expert) = (&parts[place], &experts[parts[place].expert]);
            let rows = &routing.rows[part.assignments()];
            with_sums(2 * rows.len(), |sums| {
                let (gate, up) = sums.split_at_mut(rows.len() * PANEL);
                tile(expert.gate, panel, acts, rows, gate)?;
                tile(expert.up, panel, acts, rows, up)?;
                let mut columns = columns.claim_in(place, panel);
                let mut act = [0.0; PANEL];
                for (row, (gate, up)) in gate.chunks_exact(PANEL).zip(up.chunks_exact(PANEL)).enumerate() {
                    activate(level, dims.activation, gate, up, &mut act);
                    columns.store(row, &act);
                }
                Ok::<(), ShapeError>(())
            })
        })?;
        drop(columns);

        let most = parts.iter().map(|part| part.rows).max().unwrap_or(0);
        let inner = &*inner;
        let columns = ColumnPanels::new(out, dims.hidden, PANEL);
        pool.try_run(columns.panels(), |panel| {
            let mut columns = columns.claim(panel);
            with_sums(most, |sums| {
                for (part, group) in parts.iter().zip(groups) {
                    let sums = &mut sums[..part.rows * PANEL];
                    tile(experts[part.expert].down, panel, inner, &numbers[group.clone()], sums)?;
                    for (assignment, sums) in part.assignments().zip(sums.chunks_exact(PANEL)) {
                        let out = columns.row(routing.rows[assignment] as usize);
                        write(assignment, &sums[..out.len()], out);
                    }
                }
                Ok::<(), ShapeError>(())
            })
        })?;
    }
    Ok(())
}

fn activate(level: Level, activation: Activation, gate: &[f32], up: &[f32], out: &mut [f32]) {
    match activation {
        Activation::Silu => math::silu_glu(level, gate, up, out),
        Activation::SwigluOai { alpha, limit } => math::swiglu_oai(level, alpha, limit, gate, up, out),
    }
}

/// The tokens as the tiles read them.
fn acts<'a>(
    slot: &'a mut Option<Acts>,
    level: Level,
    pool: &Pool,
    hidden: usize,
    tokens: Tokens<'_>,
) -> Result<&'a mut Acts, ShapeError> {
    let values = match tokens {
        Tokens::Bf16(x) => x.len(),
        Tokens::F32(x) => x.len(),
    };
    let acts = Acts::resized(slot, level, tokens.precision(), values / hidden, hidden)?;
    match tokens {
        Tokens::Bf16(x) => acts.write_bf16(pool, x)?,
        Tokens::F32(x) => acts.write_f32(pool, x)?,
    }
    Ok(acts)
}

/// A copy of some rows of the tokens, in the memory of the list of their type.
fn gather<'a>(
    hidden: usize,
    tokens: Tokens<'_>,
    rows: &[u32],
    f32: &'a mut Vec<f32>,
    bf16: &'a mut Vec<bf16>,
) -> Tokens<'a> {
    fn copy<T: Copy>(x: &[T], columns: usize, rows: &[u32], copy: &mut Vec<T>) {
        copy.clear();
        rows.iter().for_each(|&row| copy.extend_from_slice(&x[row as usize * columns..][..columns]));
    }
    match tokens {
        Tokens::Bf16(x) => {
            copy(x, hidden, rows, bf16);
            Tokens::Bf16(bf16)
        }
        Tokens::F32(x) => {
            copy(x, hidden, rows, f32);
            Tokens::F32(f32)
        }
    }
}
