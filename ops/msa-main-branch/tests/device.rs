// SPDX-License-Identifier: MIT OR Apache-2.0

//! The operator on a device of the emulator, with the twin of its cores.

use crate::fixture::{Gathered, Kind, Lists, Sequence, Values, shuffled};
use msa_main_branch::ascend_rt::host::{Chip, Executor, HostConfig};
use msa_main_branch::ascend_rt::{Choice, Context, DeviceBuffer, DeviceRepr, DeviceSlice, Runtime, Stream};
use msa_main_branch::ascend_sim::{self, Mode, Settings};
use msa_main_branch::knobs::Dtype;
use msa_main_branch::npu::{self, Call, Inputs, Layout, MaskedCall, Plan, Status, Tiles, slots_of};
use msa_main_branch::{AttentionDims, Error};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The order of instructions is that of the process, so launches of tests take turns.
pub(crate) struct Order(#[allow(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Order {
    pub(crate) fn new(mode: Mode) -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        ascend_sim::configure(Some(Settings { mode, ..Settings::default() }));
        Self(turn)
    }
}

/// Orders of instructions beside that of the program: as many as `SIM_SEEDS` says, 2 without it.
pub(crate) fn seeds() -> impl Iterator<Item = Mode> {
    let seeds = std::env::var("SIM_SEEDS").map_or(2, |text| text.parse().expect("SIM_SEEDS is a number"));
    (0..seeds).map(Mode::Chaos)
}

/// A context on an emulated chip. Tasks run when they are waited for, in the thread that waits.
pub(crate) fn context(chip: &str) -> Context {
    ascend_sim::install();
    let config = HostConfig::new().devices(1, Chip::preset(chip).unwrap()).executor(Executor::Lazy);
    Runtime::open(Choice::Host(config)).unwrap().device(0).unwrap().isolated().unwrap()
}

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
    for (mode, layout) in fast.chain(seeds().map(|mode| (mode, chaos))) {
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

/// The values on the device, with one more at the end: there are no buffers of nothing.
fn upload<T: DeviceRepr + Default>(stream: &Stream, values: &[T]) -> Result<DeviceBuffer<T>, Error> {
    Ok(stream.upload(&[values, &[T::default()]].concat())?)
}

/// All but the one at the end.
fn values<T: DeviceRepr>(buffer: &DeviceBuffer<T>) -> Result<DeviceSlice<'_, T>, Error> {
    Ok(buffer.slice(..buffer.len() - 1)?)
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
            let inputs = Inputs::$format { query: values(&q)?, keys: values(&k)?, values: values(&v)? };
            let call = MaskedCall { inputs, mask: values(&mask)?, out: (&mut out).into(), seen: (&mut seen).into() };
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
            let inputs = Inputs::$format { query: values(&q)?, keys: values(&k)?, values: values(&v)? };
            plan.launch(
                stream,
                Call {
                    inputs,
                    start: sequence.start,
                    table: table.as_ref().map(values).transpose()?,
                    block_ids: (!matches!(lists, Lists::All)).then(|| values(&block_ids)).transpose()?,
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
