// SPDX-License-Identifier: MIT OR Apache-2.0

#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod cpu;
mod error;
pub mod knobs;
#[cfg(feature = "npu")]
pub mod npu;
pub mod reference;
mod shape;
#[cfg(feature = "npu")]
pub mod tiling;

pub use cpu::{Workspace, sparse_decode, sparse_decode_f32, sparse_decode_f32_in};
pub use error::{Error, Slot};
pub use shape::{Blind, BlockIds, Cache, DecodeBatch, DecodeDims, Queries};

#[cfg(feature = "npu")]
pub use ascend_rt;
#[cfg(feature = "sim")]
pub use ascend_sim;
pub use cpu_tiles;
