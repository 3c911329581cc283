// SPDX-License-Identifier: MIT OR Apache-2.0

//! Running on a device: a card, or the emulator with the twin of its cores.
//!
//! Two parts of a forward pass run there, as in the published system: the routed experts, and in layers with sparse
//! attention everything between the projections: cache, choice of blocks and attention to them. Embedding, norms,
//! projections, dense attention, router, dense MLPs and shared experts stay with the CPU.
//!
//! The weights of experts have their own form on the device ([`MemoryPlan`] says how much of it). Without streaming all of
//! them are brought there once, at load; with streaming they stay on the host, and those that a call needs are copied in
//! buckets, the next one while the one before is multiplied. The bits are the same.
//!
//! In the graph arms, the experts of passes of one token are captured as graphs, one for each layer, which are replayed with
//! the routing of each token; everything else is as in the other arms.
//!
//! Differences from the CPU beside the order of F32 sums: the experts' result for a token is a sum of BF16 rows, which the
//! CPU does not round before it sums them, and FP8 weights of 128 x 128 blocks are rounded to BF16 with their scale. In
//! layers with sparse attention all queries go through the device's kernels, those too that see no more blocks than they
//! may choose.

mod choice;
mod memory;

#[cfg(feature = "npu")]
mod accelerator;
#[cfg(feature = "npu")]
mod attention;
#[cfg(feature = "npu")]
mod experts;
#[cfg(feature = "npu")]
mod graph;
#[cfg(not(feature = "npu"))]
mod none;

#[cfg(feature = "npu")]
pub(super) use accelerator::Accelerator;
#[cfg(not(feature = "npu"))]
pub(super) use none::Accelerator;

pub use choice::{DeviceChoice, DeviceNameError};
pub use memory::{MemoryItem, MemoryPlan};

use cpu_tiles::Format;
use grouped_gemm::MoeDims;

/// The tokens that a layer with sparse attention appends to its cache and attends from, all F32 and the results of their
/// projections, normalised and rotated where that is due.
#[cfg_attr(not(feature = "npu"), expect(dead_code, reason = "only a device reads it"))]
pub(super) struct Step<'a> {
    /// The layer.
    pub(super) layer: usize,
    /// The position of the first token.
    pub(super) first: usize,
    /// Queries, `[tokens, heads, head_dim]`.
    pub(super) q: &'a [f32],
    /// Keys, `[tokens, KV heads, head_dim]`.
    pub(super) k: &'a [f32],
    /// Values, the same.
    pub(super) v: &'a [f32],
    /// Index queries, `[tokens, index heads, index_dim]`.
    pub(super) index_q: &'a [f32],
    /// Index keys, `[tokens, index_dim]`.
    pub(super) index_k: &'a [f32],
}

/// Sizes of what a model has on a device.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "npu"), expect(dead_code, reason = "only a device reads it"))]
pub(super) struct Sizes {
    /// Layers with experts.
    pub(super) moe_layers: usize,
    /// Sizes and format of those experts; `None` if there are none.
    pub(super) experts: Option<(MoeDims, Format)>,
    /// Layers with sparse attention.
    pub(super) msa_layers: usize,
}

/// Why a device cannot be used, or has failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The program was built without it.
    #[error(
        "device {choice} is not in this build, which lacks the feature `{feature}`: \
         cargo run -p model-minimax --features {feature} -- ask --device {choice} .."
    )]
    NotBuilt {
        /// The device.
        choice: DeviceChoice,
        /// The feature of this crate that brings it.
        feature: &'static str,
    },
    /// The emulator knows no such chip, or there is no kernel for it.
    #[error("device {choice}: {reason}")]
    Chip {
        /// The device.
        choice: DeviceChoice,
        /// Why, and which are known.
        reason: String,
    },
    /// The card cannot be used.
    #[error("device {choice} cannot be used: {reason}\n`cargo xtask doctor` lists what this machine has and lacks")]
    Open {
        /// The device.
        choice: DeviceChoice,
        /// What the runtime said.
        reason: String,
    },
    /// The kernels of the experts take BF16 only.
    #[error(
        "device {choice} runs with BF16 activations only, since the kernels of the experts take no others; found F32"
    )]
    Precision {
        /// The device.
        choice: DeviceChoice,
    },
    /// There is less memory than the model needs.
    #[error("device {choice} has too little memory\n{plan}")]
    Memory {
        /// The device.
        choice: DeviceChoice,
        /// What would go there.
        plan: Box<MemoryPlan>,
    },
    /// A weight cannot be brought into the form of the device.
    #[error("layer {layer}, expert {expert}: {reason}")]
    Weight {
        /// The layer.
        layer: usize,
        /// The expert.
        expert: usize,
        /// Why.
        reason: String,
    },
    /// Graphs want the weights of the experts where they are.
    #[error("graph arms need the weights of the experts on the device: load them without streaming (--no-streaming)")]
    StreamedGraph,
    /// Windows are captured on the CPU.
    #[error("a window of tokens (--static-routing) is captured on the CPU only: --device cpu")]
    Window,
    /// A task failed or was refused.
    #[error("{what} on the device: {report}")]
    Failed {
        /// What was being done.
        what: &'static str,
        /// What the device or the twin said, the place in the kernel included where that is known.
        report: String,
    },
}

/// An opened device; the CPU is one, too. Clones are one.
#[derive(Debug, Clone)]
pub struct Device {
    choice: DeviceChoice,
    #[cfg(feature = "npu")]
    context: Option<ascend_rt::Context>,
}

impl Device {
    /// The CPU.
    pub fn cpu() -> Self {
        Self {
            choice: DeviceChoice::Cpu,
            #[cfg(feature = "npu")]
            context: None,
        }
    }

    /// Opens a device.
    ///
    /// # Errors
    /// [`DeviceError::NotBuilt`], [`DeviceError::Chip`] for an emulator without such a chip, [`DeviceError::Open`] for a card
    /// that there is not or that fails.
    pub fn open(choice: &DeviceChoice) -> Result<Self, DeviceError> {
        Self::require_built(choice)?;
        match choice {
            DeviceChoice::Cpu => Ok(Self::cpu()),
            #[cfg(feature = "npu")]
            DeviceChoice::Npu(number) => {
                let open = || ascend_rt::Runtime::open(ascend_rt::Choice::Acl)?.device(*number)?.isolated();
                let context =
                    open().map_err(|error| DeviceError::Open { choice: choice.clone(), reason: reason(&error) })?;
                Ok(Self { choice: choice.clone(), context: Some(context) })
            }
            #[cfg(feature = "sim")]
            DeviceChoice::Sim(soc) => {
                let chip = |reason: String| DeviceError::Chip { choice: choice.clone(), reason };
                let context = emulated(soc).map_err(chip)?;
                Ok(Self { choice: choice.clone(), context: Some(context) })
            }
            #[cfg(not(feature = "sim"))]
            other => Err(DeviceError::NotBuilt { choice: other.clone(), feature: "sim" }),
        }
    }

    /// A device that the program has opened by itself: another library, or an emulator with faults or less memory.
    #[cfg(feature = "npu")]
    pub fn from_context(context: ascend_rt::Context) -> Self {
        let choice = match context.runtime().backend() {
            ascend_rt::Backend::Acl => DeviceChoice::Npu(context.device_index()),
            ascend_rt::Backend::Host => DeviceChoice::Sim(context.facts().soc.clone().unwrap_or_default()),
        };
        Self { choice, context: Some(context) }
    }

    /// Whether this build has what a device needs; nothing is opened.
    ///
    /// # Errors
    /// [`DeviceError::NotBuilt`].
    pub fn require_built(choice: &DeviceChoice) -> Result<(), DeviceError> {
        let missing = match choice {
            DeviceChoice::Npu(_) if !cfg!(feature = "npu") => "npu",
            DeviceChoice::Sim(_) if !cfg!(feature = "sim") => "sim",
            _ => return Ok(()),
        };
        Err(DeviceError::NotBuilt { choice: choice.clone(), feature: missing })
    }

    /// The context; `None` for the CPU.
    #[cfg(feature = "npu")]
    pub fn context(&self) -> Option<&ascend_rt::Context> {
        self.context.as_ref()
    }

    /// What was opened.
    pub fn choice(&self) -> &DeviceChoice {
        &self.choice
    }

    /// Whether it is the CPU.
    pub fn is_cpu(&self) -> bool {
        self.choice == DeviceChoice::Cpu
    }
}

/// Why a card cannot be used, with every place where its library was looked for.
#[cfg(feature = "npu")]
fn reason(error: &ascend_rt::Error) -> String {
    let mut reason = format!("{error:#}");
    if let ascend_rt::ErrorKind::Library(error) = error.kind() {
        for (path, why) in error.tried() {
            reason += &format!("\n  {}: {why}", path.display());
        }
    }
    reason
}

/// A context on an emulated chip.
#[cfg(feature = "sim")]
fn emulated(soc: &str) -> Result<ascend_rt::Context, String> {
    use ascend_rt::host::{self, HostConfig};
    use grouped_gemm::ascend_sim;

    let chip = ascend_sim::Chip::preset(soc).map_err(|error| error.to_string())?;
    // The cost model has parts of the published profiles under names that are no chip's.
    let full = match chip.name.as_str() {
        "Ascend950PR" => "Ascend950PR_9589",
        "Ascend950DT" => "Ascend950DT_9581",
        other => other,
    };
    let chip = host::Chip::preset(full).map_err(|error| error.to_string())?;
    ascend_sim::install();
    let config = HostConfig::new().device(chip);
    let open = || ascend_rt::Runtime::open(ascend_rt::Choice::Host(config))?.device(0)?.isolated();
    open().map_err(|error| format!("{error:#}"))
}
