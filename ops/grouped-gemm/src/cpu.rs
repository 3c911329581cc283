// SPDX-License-Identifier: MIT OR Apache-2.0

//! The fast path on the tiles of [`cpu_tiles`].
//!
//! Rows are taken in waves of at most [`ROW_BLOCK`]. A wave has two phases with a barrier between them. Phase 1: a task
//! is one panel of 64 intermediate columns of one expert, both products and the activation. Phase 2: a task is one
//! panel of 64 output columns; it walks the experts of the wave in ascending order. So no two tasks write one place,
//! and every output is summed in one order, whatever the number of threads.

use crate::error::Error;
use crate::shape::{Activation, Expert, Experts, MoeDims, Routing, Tokens, check_len, check_shape};
use cpu_tiles::acts::ActsPanels;
use cpu_tiles::threads::ColumnPanels;
use cpu_tiles::{Acts, Level, PANEL, Pool, ShapeError, convert, linear, math, tile};
use half::bf16;
use ndarray::{ArrayView1, ArrayView2, ArrayViewMut2};

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
    let (routing, weights) = route(dims, tokens, topk_ids, topk_weights, out)?;
    let jobs = jobs(dims, experts, &routing)?;
    out.fill(0.0);
    fused(level, pool, dims, tokens, &jobs, out, |assignment, sums, out| {
        math::add_scaled(level, weights[assignment], sums, out);
    })
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
    let (hidden, intermediate) = (dims.hidden, dims.intermediate);
    let (routing, weights) = route(dims, tokens, topk_ids, topk_weights, out)?;
    let jobs = jobs(dims, experts, &routing)?;
    out.fill(0.0);
    for Job { expert, rows, first } in jobs {
        let x = gather(level, pool, hidden, tokens, rows)?;
        let mut gate = vec![0.0; rows.len() * intermediate];
        let mut up = vec![0.0; rows.len() * intermediate];
        linear(pool, &x, expert.gate, &mut gate)?;
        linear(pool, &x, expert.up, &mut up)?;

        let mut act = vec![0.0; rows.len() * intermediate];
        let mut act_rows: Vec<_> = act.chunks_exact_mut(intermediate).collect();
        pool.for_each_mut(&mut act_rows, |row, act| {
            let columns = row * intermediate..(row + 1) * intermediate;
            activate(level, dims.activation, &gate[columns.clone()], &up[columns], act);
        });
        let act = Acts::from_f32(level, pool, tokens.precision(), rows.len(), intermediate, &act)?;

        let mut sums = vec![0.0; rows.len() * hidden];
        linear(pool, &act, expert.down, &mut sums)?;
        let columns = ColumnPanels::new(out, hidden, PANEL);
        pool.run(columns.panels(), |panel| {
            let mut out = columns.claim(panel);
            for (i, &row) in rows.iter().enumerate() {
                let out = out.row(row as usize);
                let sums = &sums[i * hidden + panel * PANEL..][..out.len()];
                math::add_scaled(level, weights[first + i], sums, out);
            }
        });
    }
    Ok(())
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
    let jobs = jobs(dims, experts, &routing)?;
    fused(level, pool, dims, tokens, &jobs, out, write)
}

/// The checks of a call on routed tokens but those of the experts.
fn route(
    dims: &MoeDims,
    tokens: Tokens<'_>,
    topk_ids: &[u32],
    topk_weights: &[f32],
    out: &[f32],
) -> Result<(Routing, Vec<f32>), Error> {
    dims.check()?;
    let rows = tokens.rows(dims.hidden)?;
    check_len("out", &[rows as usize, dims.hidden], out.len())?;
    Routing::by_choice(dims.experts, rows, topk_ids, topk_weights)
}

/// One expert and its rows, or a part of them.
#[derive(Clone, Copy)]
struct Job<'a> {
    expert: Expert<'a>,
    /// Rows of the tokens and of the output.
    rows: &'a [u32],
    /// The assignment that `rows[0]` is.
    first: usize,
}

/// The experts that have rows, checked.
fn jobs<'a>(dims: &MoeDims, experts: &'a (impl Experts + ?Sized), routing: &'a Routing) -> Result<Vec<Job<'a>>, Error> {
    if let Some(found) = experts.count().filter(|count| *count != dims.experts) {
        return Err(Error::ExpertCount { expected: dims.experts, found });
    }
    let job = |(index, range): &(usize, std::ops::Range<usize>)| {
        let expert = experts.expert(*index);
        expert.check(*index, dims)?;
        Ok(Job { expert, rows: &routing.rows[range.clone()], first: range.start })
    };
    routing.experts.iter().map(job).collect()
}

/// Cuts jobs into waves of at most [`ROW_BLOCK`] rows. An expert is split only where it alone has more, and then
/// evenly, since each part reads the expert's weights again.
fn waves<'a>(jobs: &[Job<'a>]) -> Vec<Vec<Job<'a>>> {
    let mut waves: Vec<Vec<Job<'a>>> = Vec::new();
    let mut free = 0;
    for job in jobs {
        let parts = job.rows.len().div_ceil(ROW_BLOCK);
        let mut first = job.first;
        for rows in job.rows.chunks(job.rows.len().div_ceil(parts)) {
            if rows.len() > free {
                waves.push(Vec::new());
                free = ROW_BLOCK;
            }
            free -= rows.len();
            waves.last_mut().expect("a wave was begun").push(Job { rows, first, ..*job });
            first += rows.len();
        }
    }
    waves
}

/// Both products and the activation between them. `write` gets an assignment, 64 or fewer sums of the second product,
/// and the place of the output they belong to; it is called in ascending order of experts for each place.
fn fused<T: Send>(
    level: Level,
    pool: &Pool,
    dims: &MoeDims,
    tokens: Tokens<'_>,
    jobs: &[Job<'_>],
    out: &mut [T],
    write: impl Fn(usize, &[f32], &mut [T]) + Sync,
) -> Result<(), Error> {
    let waves = waves(jobs);
    if waves.is_empty() {
        return Ok(());
    }
    let acts = acts(level, pool, dims.hidden, tokens)?;
    let all_rows: Vec<u32> = (0..ROW_BLOCK as u32).collect();
    for wave in waves {
        let mut inner = Vec::with_capacity(wave.len());
        for job in &wave {
            inner.push(Acts::zeroed(level, tokens.precision(), job.rows.len(), dims.intermediate)?);
        }

        let columns: Vec<ActsPanels<'_>> = inner.iter_mut().map(Acts::panels).collect();
        let panels = dims.intermediate.div_ceil(PANEL);
        pool.try_run(wave.len() * panels, |task| {
            let (job, panel) = (task / panels, task % panels);
            let Job { expert, rows, .. } = wave[job];
            let mut sums = vec![0.0; 2 * rows.len() * PANEL];
            let (gate, up) = sums.split_at_mut(rows.len() * PANEL);
            tile(expert.gate, panel, &acts, rows, gate)?;
            tile(expert.up, panel, &acts, rows, up)?;
            let mut columns = columns[job].claim(panel);
            let mut act = [0.0; PANEL];
            for (row, (gate, up)) in gate.chunks_exact(PANEL).zip(up.chunks_exact(PANEL)).enumerate() {
                activate(level, dims.activation, gate, up, &mut act);
                columns.store(row, &act);
            }
            Ok::<(), ShapeError>(())
        })?;
        drop(columns);

        let most = wave.iter().map(|job| job.rows.len()).max().unwrap_or(0);
        let columns = ColumnPanels::new(out, dims.hidden, PANEL);
        pool.try_run(columns.panels(), |panel| {
            let mut columns = columns.claim(panel);
            let mut sums = vec![0.0; most * PANEL];
            for (job, inner) in wave.iter().zip(&inner) {
                let sums = &mut sums[..job.rows.len() * PANEL];
                tile(job.expert.down, panel, inner, &all_rows[..job.rows.len()], sums)?;
                for (i, (&row, sums)) in job.rows.iter().zip(sums.chunks_exact(PANEL)).enumerate() {
                    let out = columns.row(row as usize);
                    write(job.first + i, &sums[..out.len()], out);
                }
            }
            Ok::<(), ShapeError>(())
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
fn acts(level: Level, pool: &Pool, hidden: usize, tokens: Tokens<'_>) -> Result<Acts, ShapeError> {
    match tokens {
        Tokens::Bf16(x) => Acts::from_bf16(level, pool, tokens.precision(), x.len() / hidden, hidden, x),
        Tokens::F32(x) => Acts::from_f32(level, pool, tokens.precision(), x.len() / hidden, hidden, x),
    }
}

/// A copy of some rows of the tokens.
fn gather(level: Level, pool: &Pool, hidden: usize, tokens: Tokens<'_>, rows: &[u32]) -> Result<Acts, ShapeError> {
    fn copy<T: Copy>(x: &[T], columns: usize, rows: &[u32]) -> Vec<T> {
        rows.iter().flat_map(|&row| &x[row as usize * columns..][..columns]).copied().collect()
    }
    match tokens {
        Tokens::Bf16(x) => acts(level, pool, hidden, Tokens::Bf16(&copy(x, hidden, rows))),
        Tokens::F32(x) => acts(level, pool, hidden, Tokens::F32(&copy(x, hidden, rows))),
    }
}
