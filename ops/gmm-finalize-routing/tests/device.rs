// SPDX-License-Identifier: MIT OR Apache-2.0

//! The operator on a device of the emulator, with the twin of its cores.

use crate::fixture::Call;
use ascend_sim::{Mode, Settings};
use gmm_finalize_routing::ascend_rt::host::{Chip, Executor, HostConfig};
use gmm_finalize_routing::ascend_rt::{Choice, Context, Runtime, Stream};
use gmm_finalize_routing::npu::{self, Options, Plan, Status};
use gmm_finalize_routing::{Error, ascend_sim};
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

/// Program order, then as many other orders as `SIM_SEEDS` says, 2 without it.
pub(crate) fn orders() -> impl Iterator<Item = Mode> {
    let seeds = std::env::var("SIM_SEEDS").map_or(2, |text| text.parse().expect("SIM_SEEDS is a number"));
    std::iter::once(Mode::Fast).chain((0..seeds).map(Mode::Chaos))
}

/// A context on an emulated chip. Tasks run when they are waited for, in the thread that waits.
pub(crate) fn context(chip: &str) -> Context {
    ascend_sim::install();
    let config = HostConfig::new().devices(1, Chip::preset(chip).unwrap()).executor(Executor::Lazy);
    Runtime::open(Choice::Host(config)).unwrap().device(0).unwrap().isolated().unwrap()
}

impl Call {
    pub(crate) fn options(&self) -> Options {
        Options {
            scale_per_expert: self.per_expert,
            counts: self.group_list_type == 1,
            ..Options::new(self.x1.codes().dtype(), self.transpose_x2)
        }
    }
}

/// One launch: the output, and what the kernel has met.
pub(crate) fn launch(stream: &Stream, call: &Call, options: Options) -> Result<(Vec<f32>, Status), Error> {
    let mut plan = Plan::new(stream, &call.dims, call.rows(), options)?;
    let mut out = stream.upload(&call.out)?;
    let (x1, x2) = (stream.upload(&call.x1.bytes())?, stream.upload(&call.x2.bytes())?);
    let scales = |scales: &[cpu_tiles::E8M0]| stream.upload(&scales.iter().map(|scale| scale.to_bits()).collect::<Vec<_>>());
    let (pertoken_scale, scale) = (scales(&call.pertoken_scale)?, scales(&call.scale)?);
    let (group_list, row_index) = (stream.upload(&call.group_list)?, stream.upload(&call.row_index)?);
    let logit = call.logit.as_ref().map(|logit| stream.upload(logit)).transpose()?;
    let shared = call.shared_input.as_ref().map(|shared| stream.upload(&shared.values)).transpose()?;
    let shared_input = call.shared_input.as_ref().zip(shared.as_ref()).map(|(shared, values)| npu::SharedInput {
        values: values.into(),
        offset: shared.offset,
        weight: shared.weight,
    });
    let arguments = npu::Call {
        x1: (&x1).into(),
        pertoken_scale: (&pertoken_scale).into(),
        x2: (&x2).into(),
        scale: (&scale).into(),
        group_list: (&group_list).into(),
        row_index: (&row_index).into(),
        logit: logit.as_ref().map(Into::into),
        shared_input,
        out: (&mut out).into(),
    };
    plan.launch(stream, arguments)?;
    let status = plan.take_status(stream)?;
    Ok((stream.download(&out)?, status))
}

/// The operator in the orders that are asked for, which must all give the same bits.
///
/// # Errors
/// The message of the first error, with the order.
pub(crate) fn run(chip: &str, call: &Call, options: Options) -> Result<(Vec<f32>, Status), String> {
    let mut first: Option<(Vec<f32>, Status)> = None;
    for mode in orders() {
        let _order = Order::new(mode);
        let context = context(chip);
        let stream = context.stream().map_err(|error| error.to_string())?;
        let (out, status) = launch(&stream, call, options).map_err(|error| format!("{mode}: {error}"))?;
        match &first {
            None => first = Some((out, status)),
            Some((first, _)) if bits(first) != bits(&out) => {
                return Err(format!("{mode}: other bits than in program order"));
            }
            Some((_, found)) if *found != status => return Err(format!("{mode}: {status:?}, in program order {found:?}")),
            Some(_) => {}
        }
    }
    first.ok_or("no order to run in".to_owned())
}

pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}
