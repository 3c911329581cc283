// SPDX-License-Identifier: MIT OR Apache-2.0

#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod acts;
mod cpu;
mod error;
#[cfg(feature = "npu")]
pub mod npu;
mod order;
mod packed;
pub mod reference;
mod shape;
mod source;
#[cfg(feature = "npu")]
pub mod tiling;

pub use cpu::finalize_routing;
pub use error::Error;
pub use packed::PackedWeights;
pub use shape::{Codes, Dims, Dtype, Experts, GroupList, Inputs, Scale, SharedInput, Weights};

#[cfg(feature = "npu")]
pub use ascend_rt;
#[cfg(feature = "sim")]
pub use ascend_sim;
pub use cpu_tiles;
