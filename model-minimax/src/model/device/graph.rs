// SPDX-License-Identifier: MIT OR Apache-2.0

//! The experts of a decode step as graphs: captured once for each layer, replayed for each token with its own routing.
//!
//! What a token brings is written to pinned memory, from which the graph copies it: its rows, the ranges of the experts, its
//! choices and their weights. The device reads the ranges while it replays; the host reads nothing but the result. Between
//! the first and the last token nothing is allocated, made or looked up. The weights must be on the device.

use super::DeviceError;
use super::accelerator::{Both, OperatorError, failed, refused};
use super::experts::{Parts, Work};
use ascend_rt::{CaptureMode, Graph, Queue, Stream};
use grouped_gemm::MoeDims;
use grouped_gemm::npu::{Call, Combine, Layout, Options, Plan};
use half::bf16;

const WHAT: &str = "captured experts";

/// The graphs of all layers for one token and one arm.
#[derive(Debug)]
pub(super) struct ExpertGraphs {
    fused: bool,
    dims: MoeDims,
    /// Shared: layers follow each other.
    work: Work,
    /// Of the layers that have experts.
    graphs: Vec<Option<Graph>>,
}

impl ExpertGraphs {
    /// Captures the experts of all layers in `built`: one launch of all of them, or unless `fused` one for each, most of which
    /// find no rows.
    ///
    /// # Errors
    /// The device has no memory, or a capture fails.
    pub(super) fn capture(
        stream: &mut Stream,
        fused: bool,
        (dims, top_k): (MoeDims, usize),
        (layout, bytes): (Layout, [usize; 4]),
        built: &[Option<Parts>],
    ) -> Result<Self, DeviceError> {
        let slots = if fused { dims.experts } else { 1 };
        let mut work = Work::new(stream, &dims, top_k, 1)?;
        let options = Options { layout, ..Options::default() };
        let mut plan = Plan::new(stream, &MoeDims { experts: slots, ..dims }, top_k, options).map_err(refused(WHAT))?;
        let mut graphs = Vec::with_capacity(built.len());
        for parts in built {
            let Some(parts) = parts else {
                graphs.push(None);
                continue;
            };
            // The closure's own errors are the runtime's; those of others are kept beside it.
            let mut other = None;
            let mut keep = |error: DeviceError| {
                other = Some(error);
                ascend_rt::Error::needs_host_sync(WHAT)
            };
            let graph = stream.capture(CaptureMode::default(), |capture| {
                upload(capture, &mut work.rows)?;
                upload(capture, &mut work.cumsum)?;
                upload(capture, &mut work.slots)?;
                upload(capture, &mut work.scales)?;
                for first in (0..dims.experts).step_by(slots) {
                    let call = Call {
                        tokens: (&work.rows.device).into(),
                        cumsum: work.cumsum.device.slice(first..=first + slots)?,
                        weights: parts.weights(bytes, layout, first, slots).map_err(&mut keep)?,
                        out: (&mut work.out).into(),
                    };
                    let launched = if first + slots < dims.experts {
                        plan.launch(capture, call)
                    } else {
                        let combine = Combine {
                            slots: (&work.slots.device).into(),
                            scales: (&work.scales.device).into(),
                            out: (&mut work.combined.device).into(),
                        };
                        plan.launch_combined(capture, call, combine)
                    };
                    if let Err(error) = launched {
                        return Err(match error {
                            grouped_gemm::Error::Device(error) => error,
                            error => keep(DeviceError::Failed { what: WHAT, report: error.report() }),
                        });
                    }
                }
                capture.download_pinned(&work.combined.device, &mut work.combined.host)
            });
            match (graph, other) {
                (Ok(graph), _) => graphs.push(Some(graph)),
                (Err(_), Some(error)) => return Err(error),
                (Err(error), None) => return Err(failed(WHAT)(error)),
            }
        }
        Ok(Self { fused, dims, work, graphs })
    }

    /// Whether all experts are one launch.
    pub(super) fn is_fused(&self) -> bool {
        self.fused
    }

    /// The weighted sum of the chosen experts for one token. `ids` are ascending; `out` is `[hidden]`.
    ///
    /// # Errors
    /// The choice does not fit the graph, or the device fails.
    pub(super) fn replay(
        &mut self,
        stream: &Stream,
        layer: usize,
        token: &[bf16],
        (ids, weights): (&[u32], &[f32]),
        out: &mut [f32],
    ) -> Result<(), DeviceError> {
        let Self { dims, work, graphs, .. } = self;
        let experts = dims.experts;
        let fits = ids.len() == work.scales.host.len()
            && weights.len() == ids.len()
            && (token.len(), out.len()) == (dims.hidden, dims.hidden)
            && ids.is_sorted_by(|a, b| a < b)
            && ids.iter().all(|&id| (id as usize) < experts);
        let graph = graphs.get_mut(layer).and_then(Option::as_mut).filter(|_| fits).ok_or(DeviceError::Failed {
            what: WHAT,
            report: String::from("the token, its choice or the layer does not fit what was captured"),
        })?;
        for row in work.rows.host.write().map_err(failed(WHAT))?.chunks_exact_mut(dims.hidden) {
            row.copy_from_slice(token);
        }
        {
            // Row `i` is that of the `i`-th expert chosen.
            let mut cumsum = work.cumsum.host.write().map_err(failed(WHAT))?;
            let mut chosen = ids.iter().peekable();
            let mut rows = 0;
            for (expert, begin) in cumsum[..=experts].iter_mut().enumerate() {
                *begin = rows;
                if chosen.next_if(|&&id| id as usize == expert).is_some() {
                    rows += 1;
                }
            }
        }
        for (slot, row) in work.slots.host.write().map_err(failed(WHAT))?.iter_mut().zip(0..) {
            *slot = row;
        }
        work.scales.host.write().map_err(failed(WHAT))?.copy_from_slice(weights);
        graph.replay(stream).map_err(failed(WHAT))?;
        out.copy_from_slice(&work.combined.host.read().map_err(failed(WHAT))?);
        Ok(())
    }
}

fn upload<T: ascend_rt::DeviceRepr>(queue: &impl Queue, both: &mut Both<T>) -> ascend_rt::Result<()> {
    queue.upload_pinned(&both.host, &mut both.device)
}
