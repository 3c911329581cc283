// SPDX-License-Identifier: MIT OR Apache-2.0

#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod cpu;
mod error;
#[cfg(feature = "npu")]
mod fp8;
pub mod knobs;
mod layout;
#[cfg(feature = "npu")]
pub mod npu;
pub mod reference;
mod shape;
#[cfg(feature = "npu")]
pub mod tiling;

pub use cpu::{
    ROW_BLOCK, Workspace, grouped_gemm, grouped_gemm_f32, moe_ffn, moe_ffn_eager, moe_ffn_eager_in, moe_ffn_in,
};
pub use error::Error;
pub use layout::{convert_minimax_weights, convert_minimax_weights_nz};
pub use shape::{Activation, Expert, Experts, GateUp, MoeDims, Tokens, gate_up_halves};

#[cfg(feature = "npu")]
pub use ascend_rt;
#[cfg(feature = "sim")]
pub use ascend_sim;
pub use cpu_tiles;
