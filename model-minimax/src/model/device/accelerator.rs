// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a model has on a device, and how it gets there.

use super::attention::{self, Attention};
use super::experts::{self, BUCKET, Experts};
use super::{Device, DeviceError, MemoryItem, MemoryPlan, Sizes, Step};
use crate::bench::Arm;
use crate::config::ModelConfig;
use crate::model::msa::{Choice, Msa};
use crate::model::weights::{Ffn, Layer, Mlps};
use crate::model::{LoadOptions, ModelError};
use ascend_rt::{DeviceBuffer, DeviceRepr, PinnedBuffer, Queue, Stream};
use cpu_tiles::{Level, Pool, Precision};
use grouped_gemm::MoeDims;
use grouped_gemm::npu::{Options, Split};
use half::bf16;
use std::fmt::Display;
use std::sync::Arc;

/// An error of the runtime while something was being done.
pub(super) fn failed(what: &'static str) -> impl Fn(ascend_rt::Error) -> DeviceError {
    // In this form the library's message follows, which is the twin's report.
    move |error| DeviceError::Failed { what, report: format!("{error:#}") }
}

/// An error of an operator.
pub(super) fn refused<E: OperatorError>(what: &'static str) -> impl Fn(E) -> DeviceError {
    move |error| DeviceError::Failed { what, report: error.report() }
}

/// The error of an operator, whose text leaves out the message of the device.
pub(super) trait OperatorError: Display {
    fn device(&self) -> Option<&ascend_rt::Error>;

    fn report(&self) -> String {
        self.device().map_or_else(|| self.to_string(), |error| format!("{error:#}"))
    }
}

macro_rules! operator_errors {
    ($($name:ident),*) => {
        $(impl OperatorError for $name::Error {
            fn device(&self) -> Option<&ascend_rt::Error> {
                if let Self::Device(error) = self { Some(error) } else { None }
            }
        })*
    };
}

operator_errors!(grouped_gemm, msa_indexer, msa_sparse_decode, msa_main_branch);

/// The same values on the host, pinned, and on the device.
#[derive(Debug)]
pub(super) struct Both<T> {
    pub(super) host: PinnedBuffer<T>,
    pub(super) device: DeviceBuffer<T>,
}

impl<T: DeviceRepr> Both<T> {
    const WHAT: &'static str = "memory";

    /// Zeros.
    pub(super) fn new(stream: &Stream, len: usize) -> Result<Self, DeviceError> {
        let context = stream.context();
        let host = context.pinned(len).map_err(failed(Self::WHAT))?;
        let mut device = context.alloc(len).map_err(failed(Self::WHAT))?;
        stream.fill(&mut device, 0).map_err(failed(Self::WHAT))?;
        Ok(Self { host, device })
    }

    /// Changes the values on the host, once the copy before is done, and queues one.
    pub(super) fn upload(&mut self, queue: &impl Queue, change: impl FnOnce(&mut [T])) -> Result<(), DeviceError> {
        change(&mut self.host.write().map_err(failed(Self::WHAT))?);
        queue.upload_pinned(&self.host, &mut self.device).map_err(failed(Self::WHAT))
    }
}

/// What a model has on a device.
#[derive(Debug)]
pub(crate) struct Accelerator {
    level: Level,
    pool: Arc<Pool>,
    stream: Stream,
    experts: Option<Experts>,
    attention: Option<Attention>,
}

impl Accelerator {
    /// What of a model of such sizes would lie on the device.
    ///
    /// # Errors
    /// [`DeviceError::Precision`], or a size is impossible for a kernel.
    pub(crate) fn plan(
        device: &Device,
        config: &ModelConfig,
        options: &LoadOptions,
        msa: Option<&Msa>,
        sizes: &Sizes,
    ) -> Result<Option<MemoryPlan>, DeviceError> {
        let Some(context) = &device.context else { return Ok(None) };
        if options.precision == Precision::F32 {
            return Err(DeviceError::Precision { choice: device.choice().clone() });
        }
        let facts = context.facts();
        let unknown =
            || DeviceError::Chip { choice: device.choice().clone(), reason: "unknown architecture".to_owned() };
        let arch = facts.arch.ok_or_else(unknown)?.value;
        let cores = facts.cube_cores.map_or(1, |fact| fact.value);
        let prefill = options.prefill_chunk.get().min(config.max_position_embeddings);
        let mut items = Vec::new();
        let mut item = |what: String, bytes: usize| items.push(MemoryItem { what, bytes: bytes as u64 });
        let mut streamed = None;
        if let Some((dims, format)) = sizes.experts {
            let layout = experts::layout_of(format).ok_or_else(|| DeviceError::Chip {
                choice: device.choice().clone(),
                reason: format!("there is no kernel for experts in {format}"),
            })?;
            let one: usize = experts::part_bytes(&dims, layout).iter().sum();
            let all = sizes.moe_layers * dims.experts * one;
            let bucket = BUCKET.min(dims.experts);
            if options.streaming {
                item(format!("2 buckets of {bucket} experts"), 2 * bucket * one);
                let what = format!("experts of {} layers ({format}), streamed from the host", sizes.moe_layers);
                streamed = Some(MemoryItem { what, bytes: all as u64 });
            } else {
                item(format!("experts of {} layers ({format})", sizes.moe_layers), all);
            }
            let slots = if options.streaming { bucket } else { dims.experts };
            let mut work = 0;
            for tokens in [1, prefill.next_power_of_two()] {
                let rows = tokens * config.num_experts_per_tok;
                let (launch, plan) = (MoeDims { experts: slots, ..dims }, Options { layout, ..Options::default() });
                let rows = u32::try_from(rows).unwrap_or(u32::MAX);
                let split = Split::new(&launch, rows, layout, &plan.tiles, arch, cores).map_err(refused("experts"))?;
                work += experts::work_bytes(&dims, config.num_experts_per_tok, tokens) + split.workspace;
            }
            item(format!("workspace of the experts, {prefill} tokens at once"), work);
        }
        if let Some(msa) = msa.filter(|_| sizes.msa_layers > 0) {
            let pages = attention::first_pages(config.max_position_embeddings);
            let [keys_values, index] = attention::page_bytes(msa).map(|bytes| bytes * pages * sizes.msa_layers);
            let tokens = pages * msa.decode.block;
            let layers = sizes.msa_layers;
            item(
                format!("keys and values of {layers} layers, {tokens} tokens; doubles when they are full"),
                keys_values,
            );
            item(format!("index keys of {layers} layers, {tokens} tokens; doubles when they are full"), index);
            // A prompt of that many tokens makes the room that it needs.
            let most = pages.max(prefill.div_ceil(msa.decode.block));
            let work = attention::work_bytes(msa, 1, most, cores)? + attention::work_bytes(msa, prefill, most, cores)?;
            item(format!("workspace of the attention, {prefill} tokens at once"), work);
        }
        let chip = facts.soc.as_ref().map_or(String::new(), |soc| format!(" ({soc})"));
        Ok(Some(MemoryPlan {
            device: format!("{}{chip}", device.choice()),
            items,
            streamed,
            free: context.memory().ok().map(|memory| memory.free as u64),
            total: facts.memory.map(|fact| fact.value),
        }))
    }

    /// Sets up what [`plan`](Self::plan) says and brings weights there that are not streamed. `keep`: experts that are
    /// streamed are converted once, not at each use.
    ///
    /// # Errors
    /// [`DeviceError::Memory`] before anything is allocated; a weight cannot be converted, or the device fails.
    pub(crate) fn new(
        device: &Device,
        options: &LoadOptions,
        plan: MemoryPlan,
        config: &ModelConfig,
        layers: &[Layer],
        msa: Option<&Msa>,
        keep: bool,
    ) -> Result<Option<Self>, DeviceError> {
        let Some(context) = &device.context else { return Ok(None) };
        if !plan.fits() {
            return Err(DeviceError::Memory { choice: device.choice().clone(), plan: Box::new(plan) });
        }
        let stream = context.stream().map_err(failed("stream"))?;
        let experts_of = |layer: &'_ Layer| match &layer.ffn {
            Ffn::Moe(moe) => Some((moe.experts.dims, moe.experts.format())),
            Ffn::Dense(_) => None,
        };
        let mut experts = match layers.iter().find_map(experts_of) {
            None => None,
            Some((dims, format)) => {
                let layout = experts::layout_of(format).ok_or_else(|| DeviceError::Chip {
                    choice: device.choice().clone(),
                    reason: format!("there is no kernel for experts in {format}"),
                })?;
                let how = (options.streaming, keep);
                Some(Experts::new(&stream, layers.len(), dims, config.num_experts_per_tok, layout, how)?)
            }
        };
        for (number, layer) in layers.iter().enumerate() {
            if let (Some(experts), Ffn::Moe(moe)) = (&mut experts, &layer.ffn) {
                experts.build(&stream, &options.pool, number, &moe.experts)?;
            }
        }
        let sparse: Vec<bool> = layers.iter().map(|layer| layer.index.is_some()).collect();
        let attention = match msa.filter(|_| sparse.contains(&true)) {
            Some(msa) => Some(Attention::new(&stream, msa, &sparse, config.max_position_embeddings)?),
            None => None,
        };
        Ok(Some(Self { level: options.level, pool: Arc::clone(&options.pool), stream, experts, attention }))
    }

    /// The weighted sum of the chosen experts for each token, F32 `[tokens, hidden]`, unrounded; `tokens` are
    /// `[tokens, hidden]`, `choice` the experts and their weights, `[tokens, experts per token]`.
    pub(crate) fn experts(
        &mut self,
        arm: Arm,
        layer: usize,
        mlps: &Mlps,
        tokens: &[bf16],
        choice: (&[u32], &[f32]),
    ) -> Result<Vec<f32>, ModelError> {
        let Self { pool, stream, experts, .. } = self;
        let Some(experts) = experts else {
            return Err(DeviceError::Failed { what: "experts", report: "none were loaded".to_owned() }.into());
        };
        if arm.is_graph() && tokens.len() == mlps.dims.hidden {
            let mut out = vec![0.0; tokens.len()];
            experts.captured(stream, arm)?.replay(stream, layer, tokens, choice, &mut out)?;
            return Ok(out);
        }
        Ok(experts.run(stream, pool, arm, layer, mlps, tokens, choice)?)
    }

    /// Captures the experts of one token for a graph arm, unless that was done before.
    ///
    /// # Errors
    /// [`DeviceError::StreamedGraph`], or a capture fails.
    pub(crate) fn capture(&mut self, arm: Arm) -> Result<(), ModelError> {
        if let Some(experts) = &mut self.experts {
            experts.captured(&mut self.stream, arm)?;
        }
        Ok(())
    }

    /// Appends to the cache of a layer with sparse attention, chooses blocks and attends to them. `out` is F32
    /// `[tokens, heads, head_dim]`. The choice is given back if it is wanted.
    pub(crate) fn attend(
        &mut self,
        msa: &Msa,
        step: &Step<'_>,
        want_choice: bool,
        out: &mut [f32],
    ) -> Result<Option<Choice>, ModelError> {
        let Self { level, stream, attention, .. } = self;
        let Some(attention) = attention else {
            return Err(DeviceError::Failed { what: "attention", report: "there is no cache".to_owned() }.into());
        };
        Ok(attention.attend(*level, stream, msa, step, want_choice, out)?)
    }
}
