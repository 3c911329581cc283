// SPDX-License-Identifier: MIT OR Apache-2.0

//! The operator on a device of the emulator, with the twin of its cores.

use crate::fixture::{Call, Shared};
pub(crate) use ascend_sim::testing::{Order, context};
use gmm_finalize_routing::ascend_rt::{DeviceBuffer, DeviceRepr, Stream};
use gmm_finalize_routing::npu::{self, Options, Plan, Status};
use gmm_finalize_routing::{Error, ascend_sim};

impl Call {
    pub(crate) fn options(&self) -> Options {
        Options {
            scale_per_expert: self.per_expert,
            counts: self.group_list_type == 1,
            ..Options::new(self.x1.codes().dtype(), self.transpose_x2)
        }
    }
}

/// A buffer that holds some values, and an unused one where there is none: device memory is never empty.
fn upload<T: DeviceRepr + Default + Copy>(stream: &Stream, values: &[T]) -> Result<DeviceBuffer<T>, Error> {
    Ok(if values.is_empty() { stream.upload(&[T::default()])? } else { stream.upload(values)? })
}

/// One launch: the output, and what the kernel has met.
pub(crate) fn launch(stream: &Stream, plan: &mut Plan, call: &Call) -> Result<(Vec<f32>, Status), Error> {
    let bytes = |scales: &[cpu_tiles::E8M0]| scales.iter().map(|scale| scale.to_bits()).collect::<Vec<_>>();
    let (x1, x2) = (upload(stream, &call.x1.bytes())?, upload(stream, &call.x2.bytes())?);
    let pertoken_scale = upload(stream, &bytes(&call.pertoken_scale))?;
    let scale = upload(stream, &bytes(&call.scale))?;
    let group_list = upload(stream, &call.group_list)?;
    let row_index = upload(stream, &call.row_index)?;
    let logit = upload(stream, call.logit.as_deref().unwrap_or_default())?;
    let shared = upload(stream, call.shared_input.as_ref().map_or(&[][..], |shared| &shared.values))?;
    let mut out = upload(stream, &call.out)?;
    let shared_input = match &call.shared_input {
        Some(Shared { values, offset, weight }) => {
            Some(npu::SharedInput { values: shared.slice(..values.len())?, offset: *offset, weight: *weight })
        }
        None => None,
    };
    let arguments = npu::Call {
        x1: x1.slice(..call.x1.codes().len())?,
        pertoken_scale: pertoken_scale.slice(..call.pertoken_scale.len())?,
        x2: (&x2).into(),
        scale: (&scale).into(),
        group_list: (&group_list).into(),
        row_index: row_index.slice(..call.rows())?,
        logit: call.logit.as_ref().map(|values| logit.slice(..values.len())).transpose()?,
        shared_input,
        out: out.slice_mut(..call.out.len())?,
    };
    plan.launch(stream, arguments)?;
    let status = plan.take_status(stream)?;
    let mut found = stream.download(&out)?;
    found.truncate(call.out.len());
    Ok((found, status))
}

/// The operator in the orders that are asked for, which must all give the same bits.
///
/// # Errors
/// The message of the first error, with the order.
pub(crate) fn run(chip: &str, call: &Call, options: Options) -> Result<(Vec<f32>, Status), String> {
    let mut first: Option<(Vec<f32>, Status)> = None;
    // One plan for all: a launch finds what the one before has left.
    let context = context(chip);
    let stream = context.stream().map_err(|error| error.to_string())?;
    let mut plan = Plan::new(&stream, &call.dims, call.rows(), options).map_err(|error| error.to_string())?;
    for mode in ascend_sim::testing::orders(2) {
        let _order = Order::new(mode);
        let (out, status) = launch(&stream, &mut plan, call).map_err(|error| format!("{mode}: {error}"))?;
        match &first {
            None => first = Some((out, status)),
            Some((first, _)) if bits(first) != bits(&out) => {
                return Err(format!("{mode}: other bits than in program order"));
            }
            Some((_, found)) if *found != status => {
                return Err(format!("{mode}: {status:?}, in program order {found:?}"));
            }
            Some(_) => {}
        }
    }
    first.ok_or("no order to run in".to_owned())
}

pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}
