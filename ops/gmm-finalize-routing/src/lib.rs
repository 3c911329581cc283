// SPDX-License-Identifier: MIT OR Apache-2.0

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod acts;
mod cpu;
mod error;
mod order;
mod packed;
pub mod reference;
mod shape;
mod source;

pub use cpu::finalize_routing;
pub use error::Error;
pub use packed::PackedWeights;
pub use shape::{Codes, Dims, Dtype, Experts, GroupList, Inputs, Scale, SharedInput, Weights};

pub use cpu_tiles;
