// SPDX-License-Identifier: MIT OR Apache-2.0

//! The operator on a device of the emulator, with the twin of its cores.

use crate::fixture::{Choices, Matrix, Moe, Rows, Values};
pub(crate) use ascend_sim::testing::{Order, arch, context};
use grouped_gemm::ascend_rt::{Arch, DeviceBuffer, DeviceRepr, Stream};
use grouped_gemm::npu::{
    self, Call, Coded, Combine, Layout, Options, Plan, Route, Scales, Weights, convert_fp8_weights,
};
use grouped_gemm::{Error, MoeDims, ascend_sim, convert_minimax_weights, convert_minimax_weights_nz};
use half::bf16;
use ndarray::ArrayView3;

/// Weights in a layout of the device.
pub(crate) enum Stored {
    Bf16 { w13: Vec<bf16>, w2: Vec<bf16> },
    Fp8(npu::Stored),
}

impl Stored {
    pub(crate) fn new(moe: &Moe, layout: Layout, arch: Arch) -> Self {
        let MoeDims { experts, hidden, intermediate, .. } = moe.dims;
        if layout.is_fp8() {
            let coded = |matrix: &Matrix| match &matrix.values {
                Values::Fp8Block { codes, scales } => (codes.clone(), Some(scales.clone()), Vec::new()),
                Values::Mxfp8 { codes, scales } => (codes.clone(), None, scales.clone()),
                _ => panic!("the layout is of FP8 weights"),
            };
            let all: Vec<_> = moe.experts.iter().map(|expert| expert.each_ref().map(coded)).collect();
            let views: Vec<_> = all
                .iter()
                .map(|expert| {
                    expert.each_ref().map(|(codes, blocks, groups)| Coded {
                        codes,
                        scales: blocks.as_ref().map_or(Scales::Groups(groups), |blocks| Scales::Blocks(blocks)),
                    })
                })
                .collect();
            return Self::Fp8(convert_fp8_weights(&moe.dims, arch, &views).unwrap());
        }
        let values = |which: &[usize]| -> Vec<bf16> {
            moe.experts
                .iter()
                .flat_map(|expert| which.iter().map(move |&i| &expert[i].values))
                .flat_map(|values| match values {
                    Values::Bf16(values) => values.iter().copied(),
                    _ => panic!("the layout is of BF16 weights"),
                })
                .collect()
        };
        let (gate_up, down) = (values(&[0, 1]), values(&[2]));
        let gate_up = ArrayView3::from_shape((experts, 2 * intermediate, hidden), &gate_up).unwrap();
        let down = ArrayView3::from_shape((experts, hidden, intermediate), &down).unwrap();
        let (w13, w2) = if layout == Layout::Flat {
            let (w13, w2) = convert_minimax_weights(gate_up, down).unwrap();
            (w13.into_raw_vec_and_offset().0, w2.into_raw_vec_and_offset().0)
        } else {
            convert_minimax_weights_nz(gate_up, down).unwrap()
        };
        Self::Bf16 { w13, w2 }
    }

    pub(crate) fn upload(&self, stream: &Stream) -> Result<Uploaded, Error> {
        Ok(match self {
            Self::Bf16 { w13, w2 } => Uploaded::Bf16([stream.upload(w13)?, stream.upload(w2)?]),
            Self::Fp8(npu::Stored { w13, scales13, w2, scales2 }) => {
                let [a, b, c, d] = [w13, scales13, w2, scales2].map(|part| stream.upload(part));
                Uploaded::Fp8([a?, b?, c?, d?])
            }
        })
    }
}

/// Weights on the device.
pub(crate) enum Uploaded {
    Bf16([DeviceBuffer<bf16>; 2]),
    Fp8([DeviceBuffer<u8>; 4]),
}

impl Uploaded {
    pub(crate) fn weights(&self) -> Weights<'_> {
        match self {
            Self::Bf16([w13, w2]) => Weights::Bf16 { w13: w13.into(), w2: w2.into() },
            Self::Fp8([w13, scales13, w2, scales2]) => {
                Weights::Fp8 { w13: w13.into(), scales13: scales13.into(), w2: w2.into(), scales2: scales2.into() }
            }
        }
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
    let stored = Stored::new(moe, options.layout, arch(chip));
    let mut first: Option<Vec<f32>> = None;
    for mode in ascend_sim::testing::orders(2) {
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
            Some(first) if bits(first) != bits(&out) => {
                return Err(format!("{mode}: other bits than in program order"));
            }
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
    let weights = stored.upload(stream)?;
    let weights = weights.weights();
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
