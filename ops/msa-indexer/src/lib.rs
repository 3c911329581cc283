// SPDX-License-Identifier: MIT OR Apache-2.0

#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod cpu;
mod error;
#[cfg(feature = "npu")]
pub mod npu;
pub mod reference;
mod select;
mod shape;
#[cfg(feature = "npu")]
pub mod tiling;

pub use cpu::{Workspace, decode, decode_in, prefill};
pub use error::Error;
pub use shape::{HeadReduce, IndexerDims, Keys, PackedKeys, Values};

#[cfg(feature = "npu")]
pub use ascend_rt;
#[cfg(feature = "sim")]
pub use ascend_sim;
pub use cpu_tiles;
