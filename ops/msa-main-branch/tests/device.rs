// SPDX-License-Identifier: MIT OR Apache-2.0

//! The operator on a device of the emulator, with the twin of its cores.

use crate::fixture::{Gathered, Kind, Lists, Sequence, Values, shuffled};
use msa_main_branch::ascend_rt::Stream;
use msa_main_branch::ascend_sim::Mode;
pub(crate) use msa_main_branch::ascend_sim::testing::{Order, context};
use msa_main_branch::ascend_sim::testing::{all, seeds, upload};
use msa_main_branch::knobs::Dtype;
use msa_main_branch::npu::{self, Call, Inputs, Layout, MaskedCall, Plan, Status, Tiles, slots_of};
use msa_main_branch::{AttentionDims, Error};

/// The kind of a call, and the ids of its lists.
pub(crate) fn kind(sequence: &Sequence, lists: &Lists, layout: Layout) -> (npu::Kind, Vec<i32>) {
    let (n, kv_heads) = (sequence.n(), sequence.dims.kv_heads);
    let (lists, count, ids) = match lists {
        Lists::All => (npu::Lists::All, 0, Vec::new()),
        Lists::Shared(ids) => (npu::Lists::Shared, 1, ids.clone()),
        Lists::PerTile(tile, ids) => (npu::Lists::PerTile { tile: *tile }, n.div_ceil(*tile), ids.clone()),
        Lists::PerTileAndHead(tile, ids) => {
            (npu::Lists::PerTileAndHead { tile: *tile }, n.div_ceil(*tile) * kv_heads, ids.clone())
        }
        Lists::PerQuery(ids) => (npu::Lists::PerQuery, n * kv_heads, ids.clone()),
    };
    let dtype = match sequence.kind {
        Kind::F32 => Dtype::F32,
        Kind::F16 => Dtype::F16,
        Kind::Bf16 => Dtype::Bf16,
    };
    (npu::Kind { n, dtype, layout, lists, topk: ids.len().checked_div(count).unwrap_or(0) }, ids)
}

/// The operator in program order in each layout, then in other orders: the bits are always the same.
///
/// # Errors
/// The message of the first error, with the order.
pub(crate) fn run(chip: &str, sequence: &Sequence, lists: &Lists) -> Result<(Vec<f32>, Vec<bool>), String> {
    let one = |mode: Mode, layout: Layout| {
        let _order = Order::new(mode);
        let stream = context(chip).stream().map_err(|error| error.to_string())?;
        launch(&stream, sequence, lists, layout).map_err(|error| format!("{mode}, {layout:?}: {error}"))
    };
    let expected = one(Mode::Fast, Layout::Plain)?;
    // Long sequences take longer to rearrange than to run.
    let is_long = sequence.k.len() > 1 << 18;
    let layouts: &[Layout] = if is_long { &[] } else { &[Layout::Paged, Layout::Gathered] };
    let chaos = if is_long { Layout::Plain } else { Layout::Paged };
    let fast = layouts.iter().map(|&layout| (Mode::Fast, layout));
    for (mode, layout) in fast.chain(seeds(2).map(|mode| (mode, chaos))) {
        let other = one(mode, layout)?;
        if let Some(at) = expected.0.iter().zip(&other.0).position(|(a, b)| a.to_bits() != b.to_bits()) {
            return Err(format!("{mode}, {layout:?}: element {at} is {}, not {}", other.0[at], expected.0[at]));
        }
        if other.1 != expected.1 {
            return Err(format!("{mode}, {layout:?}: other rows see something"));
        }
    }
    Ok(expected)
}

/// One launch of the published form: the result, for each query and KV head whether it saw something, the status.
pub(crate) fn launch_masked(
    stream: &Stream,
    dims: &AttentionDims,
    query: &Values,
    gathered: &Gathered,
    mask: &[f32],
) -> Result<(Vec<f32>, Vec<bool>, Status), Error> {
    let (n, slots) = (query.len() / (dims.heads * dims.head_dim), gathered.ids.len());
    let dtype = match query {
        Values::F32(_) => Dtype::F32,
        Values::F16(_) => Dtype::F16,
        Values::Bf16(_) => Dtype::Bf16,
    };
    let mut plan = Plan::masked(stream, dims, n, dtype, slots, &Tiles::default())?;
    let mask = upload(stream, mask)?;
    let mut out = stream.upload(&vec![f32::NAN; query.len()])?;
    let mut seen = stream.upload(&vec![7i32; n * dims.kv_heads])?;
    macro_rules! call {
        ($format:ident, $q:expr, $k:expr, $v:expr) => {{
            let [q, k, v] = [upload(stream, $q)?, upload(stream, $k)?, upload(stream, $v)?];
            let inputs = Inputs::$format { query: all(&q)?, keys: all(&k)?, values: all(&v)? };
            let call = MaskedCall { inputs, mask: all(&mask)?, out: (&mut out).into(), seen: (&mut seen).into() };
            plan.launch_masked(stream, call)?;
        }};
    }
    match (query, &gathered.keys, &gathered.values) {
        (Values::Bf16(q), Values::Bf16(k), Values::Bf16(v)) => call!(Bf16, q, k, v),
        (Values::F16(q), Values::F16(k), Values::F16(v)) => call!(F16, q, k, v),
        (Values::F32(q), Values::F32(k), Values::F32(v)) => call!(F32, q, k, v),
        _ => unreachable!("one format for all"),
    }
    let status = plan.take_status(stream)?;
    let seen = stream.download(&seen)?;
    assert!(seen.iter().all(|&seen| seen == 0 || seen == 1), "{seen:?}");
    Ok((stream.download(&out)?, seen.iter().map(|&seen| seen == 1).collect(), status))
}

/// One launch, from the host and back: the result, and for each query and KV head whether it saw something. What is
/// written whole begins as something else.
pub(crate) fn launch(
    stream: &Stream,
    sequence: &Sequence,
    lists: &Lists,
    layout: Layout,
) -> Result<(Vec<f32>, Vec<bool>), Error> {
    launch_with_tiles(stream, sequence, lists, layout, &Tiles::default())
}

/// The same, with sizes of the caller's.
pub(crate) fn launch_with_tiles(
    stream: &Stream,
    sequence: &Sequence,
    lists: &Lists,
    layout: Layout,
    tiles: &Tiles,
) -> Result<(Vec<f32>, Vec<bool>), Error> {
    let (kind, ids) = kind(sequence, lists, layout);
    let mut plan = Plan::with_tiles(stream, &sequence.dims, &kind, tiles)?;
    let (keys, values_of, table) = match layout {
        Layout::Plain => (sequence.k.clone(), sequence.v.clone(), None),
        Layout::Paged => {
            let paged = sequence.paged();
            (paged.keys, paged.values, Some(paged.table))
        }
        Layout::Gathered => {
            let ids: Vec<i32> = shuffled(sequence.blocks(), 7).into_iter().map(|id| id as i32).chain([-1]).collect();
            let gathered = sequence.gathered(&ids);
            (gathered.keys, gathered.values, Some(slots_of(&ids, sequence.blocks())))
        }
    };
    let table = table.map(|table| upload(stream, &table)).transpose()?;
    let block_ids = upload(stream, &ids)?;
    let (size, rows) = (sequence.q.len(), sequence.n() * sequence.dims.kv_heads);
    let mut out = upload(stream, &vec![f32::NAN; size])?;
    let mut seen = upload(stream, &vec![7i32; rows])?;
    macro_rules! call {
        ($format:ident, $q:expr, $k:expr, $v:expr) => {{
            let [q, k, v] = [upload(stream, $q)?, upload(stream, $k)?, upload(stream, $v)?];
            let inputs = Inputs::$format { query: all(&q)?, keys: all(&k)?, values: all(&v)? };
            plan.launch(
                stream,
                Call {
                    inputs,
                    start: sequence.start,
                    table: table.as_ref().map(all).transpose()?,
                    block_ids: (!matches!(lists, Lists::All)).then(|| all(&block_ids)).transpose()?,
                    out: out.slice_mut(..size)?,
                    seen: seen.slice_mut(..rows)?,
                },
            )?;
            stream.synchronize()?;
        }};
    }
    match (&sequence.q, &keys, &values_of) {
        (Values::Bf16(q), Values::Bf16(k), Values::Bf16(v)) => call!(Bf16, q, k, v),
        (Values::F16(q), Values::F16(k), Values::F16(v)) => call!(F16, q, k, v),
        (Values::F32(q), Values::F32(k), Values::F32(v)) => call!(F32, q, k, v),
        _ => unreachable!("one format for all"),
    }
    let mut out = stream.download(&out)?;
    out.truncate(size);
    let seen = stream.download(&seen)?;
    let is_seen = |&seen: &i32| {
        assert!(seen == 0 || seen == 1, "{seen}");
        seen == 1
    };
    Ok((out, seen[..rows].iter().map(is_seen).collect()))
}
