// SPDX-License-Identifier: MIT OR Apache-2.0

//! The operator on a device of the emulator, with the twin of its cores.

use crate::fixture::{Moe, Rows, Values};
use ascend_sim::{Mode, Settings};
use grouped_gemm::ascend_rt::host::{Chip, Executor, HostConfig};
use grouped_gemm::ascend_rt::{Choice, Context, Runtime, Stream};
use grouped_gemm::npu::{Call, Layout, Options, Plan, Weights};
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

/// The operator in the orders that are asked for, which must all give the same bits.
///
/// # Errors
/// The message of the first error, with the order.
pub(crate) fn run(chip: &str, moe: &Moe, rows: &Rows, cumsum: &[i32], options: Options) -> Result<Vec<f32>, String> {
    let stored = Stored::new(moe, options.layout);
    let mut first: Option<Vec<bf16>> = None;
    for mode in orders() {
        let _order = Order::new(mode);
        let context = context(chip);
        let stream = context.stream().map_err(|error| error.to_string())?;
        let out = launch(&stream, moe, &stored, rows, cumsum, options).map_err(|error| format!("{mode}: {error}"))?;
        match &first {
            None => first = Some(out),
            Some(first) if bits(first) != bits(&out) => return Err(format!("{mode}: other bits than in program order")),
            Some(_) => {}
        }
    }
    Ok(first.unwrap_or_default().into_iter().map(bf16::to_f32).collect())
}

fn bits(values: &[bf16]) -> Vec<u16> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// One launch. The result holds 12345 where nothing was written.
pub(crate) fn launch(
    stream: &Stream,
    moe: &Moe,
    stored: &Stored,
    rows: &Rows,
    cumsum: &[i32],
    options: Options,
) -> Result<Vec<bf16>, Error> {
    let Rows::Bf16(x) = rows else { panic!("the kernel takes BF16 rows") };
    let n = x.len() / moe.dims.hidden;
    let mut plan = Plan::new(stream, &moe.dims, n, options)?;
    let mut out = stream.upload(&vec![bf16::from_f32(12345.0); x.len()])?;
    let (w13, w2) = (stream.upload(&stored.w13)?, stream.upload(&stored.w2)?);
    let (x, cumsum) = (stream.upload(x)?, stream.upload(cumsum)?);
    let weights = Weights { w13: (&w13).into(), w2: (&w2).into() };
    plan.launch(stream, Call { tokens: (&x).into(), cumsum: (&cumsum).into(), weights, out: (&mut out).into() })?;
    assert!(!plan.take_clamped(stream)?, "a range of a good `expert_cumsum` was clamped");
    Ok(stream.download(&out)?)
}
