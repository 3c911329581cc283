// SPDX-License-Identifier: MIT OR Apache-2.0

//! The operator on a device of the emulator, with the twin of its cores.

use crate::fixture::{Choices, Moe, Rows, Values};
use ascend_sim::{Mode, Settings};
use grouped_gemm::ascend_rt::host::{Chip, Executor, HostConfig};
use grouped_gemm::ascend_rt::{Choice, Context, DeviceBuffer, DeviceRepr, Runtime, Stream};
use grouped_gemm::npu::{Call, Combine, Layout, Options, Plan, Route, Weights};
use grouped_gemm::{Error, MoeDims, ascend_sim, convert_minimax_weights, convert_minimax_weights_nz};
use half::bf16;
use ndarray::ArrayView3;
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

/// Program order, then as many other orders as `SIM_SEEDS` says, 3 without it.
pub(crate) fn orders() -> impl Iterator<Item = Mode> {
    let seeds = std::env::var("SIM_SEEDS").map_or(3, |text| text.parse().expect("SIM_SEEDS is a number"));
    std::iter::once(Mode::Fast).chain((0..seeds).map(Mode::Chaos))
}

/// A context on an emulated chip. Tasks run when they are waited for, in the thread that waits.
pub(crate) fn context(chip: &str) -> Context {
    ascend_sim::install();
    let config = HostConfig::new().devices(1, Chip::preset(chip).unwrap()).executor(Executor::Lazy);
    Runtime::open(Choice::Host(config)).unwrap().device(0).unwrap().isolated().unwrap()
}

/// BF16 weights in a layout of the device.
pub(crate) struct Stored {
    pub(crate) w13: Vec<bf16>,
    pub(crate) w2: Vec<bf16>,
}

impl Stored {
    pub(crate) fn new(moe: &Moe, layout: Layout) -> Self {
        let MoeDims { experts, hidden, intermediate, .. } = moe.dims;
        let values = |which: &[usize]| -> Vec<bf16> {
            moe.experts
                .iter()
                .flat_map(|expert| which.iter().map(move |&i| &expert[i].values))
                .flat_map(|values| match values {
                    Values::Bf16(values) => values.iter().copied(),
                    _ => panic!("the kernel takes BF16 weights"),
                })
                .collect()
        };
        let (gate_up, down) = (values(&[0, 1]), values(&[2]));
        let gate_up = ArrayView3::from_shape((experts, 2 * intermediate, hidden), &gate_up).unwrap();
        let down = ArrayView3::from_shape((experts, hidden, intermediate), &down).unwrap();
        let (w13, w2) = match layout {
            Layout::Flat => {
                let (w13, w2) = convert_minimax_weights(gate_up, down).unwrap();
                (w13.into_raw_vec_and_offset().0, w2.into_raw_vec_and_offset().0)
            }
            Layout::Nz => convert_minimax_weights_nz(gate_up, down).unwrap(),
        };
        Self { w13, w2 }
    }
}

/// What a launch is to compute.
#[derive(Clone, Copy)]
pub(crate) enum What<'a> {
    Grouped(&'a [i32]),
    Combined(&'a Choices),
}

/// The operator in the orders that are asked for, which must all give the same bits.
///
/// # Errors
/// The message of the first error, with the order.
pub(crate) fn run(chip: &str, moe: &Moe, rows: &Rows, what: What<'_>, options: Options) -> Result<Vec<f32>, String> {
    let stored = Stored::new(moe, options.layout);
    let mut first: Option<Vec<f32>> = None;
    for mode in orders() {
        let _order = Order::new(mode);
        let context = context(chip);
        let stream = context.stream().map_err(|error| error.to_string())?;
        let out = launch(&stream, moe, &stored, rows, what, options).map_err(|error| match error {
            // The report of the twin.
            Error::Device(error) => format!("{mode}: {error}: {}", error.message().unwrap_or_default()),
            error => format!("{mode}: {error}"),
        })?;
        match &first {
            None => first = Some(out),
            Some(first) if bits(first) != bits(&out) => return Err(format!("{mode}: other bits than in program order")),
            Some(_) => {}
        }
    }
    Ok(first.unwrap_or_default())
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Device memory, of which there is always some.
pub(crate) fn upload<T: DeviceRepr + Default>(stream: &Stream, values: &[T]) -> Result<DeviceBuffer<T>, Error> {
    Ok(if values.is_empty() { stream.upload(&[T::default()])? } else { stream.upload(values)? })
}

/// One launch. The result holds 12345 where nothing was written.
pub(crate) fn launch(
    stream: &Stream,
    moe: &Moe,
    stored: &Stored,
    rows: &Rows,
    what: What<'_>,
    options: Options,
) -> Result<Vec<f32>, Error> {
    const UNTOUCHED: f32 = 12345.0;
    let Rows::Bf16(x) = rows else { panic!("the kernel takes BF16 rows") };
    let hidden = moe.dims.hidden;
    let (w13, w2) = (stream.upload(&stored.w13)?, stream.upload(&stored.w2)?);
    let weights = Weights { w13: (&w13).into(), w2: (&w2).into() };
    match what {
        What::Grouped(cumsum) => {
            let mut plan = Plan::new(stream, &moe.dims, x.len() / hidden, options)?;
            let (tokens, cumsum) = (upload(stream, x)?, stream.upload(cumsum)?);
            let mut out = upload(stream, &vec![bf16::from_f32(UNTOUCHED); x.len()])?;
            let call = Call {
                tokens: tokens.slice(..x.len())?,
                cumsum: (&cumsum).into(),
                weights,
                out: out.slice_mut(..x.len())?,
            };
            plan.launch(stream, call)?;
            assert!(!plan.take_clamped(stream)?, "a range of a good `expert_cumsum` was clamped");
            let mut out = stream.download(&out)?;
            out.truncate(x.len());
            Ok(out.into_iter().map(bf16::to_f32).collect())
        }
        What::Combined(Choices { ids, weights: router, .. }) => {
            let route = Route::new(moe.dims.experts, x.len() / hidden, ids, router)?;
            let sorted: Vec<bf16> =
                route.tokens.iter().flat_map(|&token| x[token as usize * hidden..][..hidden].to_vec()).collect();
            let mut plan = Plan::new(stream, &moe.dims, route.tokens.len(), options)?;
            let (tokens, cumsum) = (upload(stream, &sorted)?, stream.upload(&route.cumsum)?);
            let (slots, scales) = (upload(stream, &route.slots)?, upload(stream, &route.scales)?);
            let mut out = upload(stream, &vec![bf16::from_f32(UNTOUCHED); sorted.len()])?;
            let mut combined = upload(stream, &vec![UNTOUCHED; x.len()])?;
            let call = Call {
                tokens: tokens.slice(..sorted.len())?,
                cumsum: (&cumsum).into(),
                weights,
                out: out.slice_mut(..sorted.len())?,
            };
            let combine = Combine {
                slots: slots.slice(..ids.len())?,
                scales: scales.slice(..ids.len())?,
                out: combined.slice_mut(..x.len())?,
            };
            plan.launch_combined(stream, call, combine)?;
            let mut combined = stream.download(&combined)?;
            combined.truncate(x.len());
            Ok(combined)
        }
    }
}
