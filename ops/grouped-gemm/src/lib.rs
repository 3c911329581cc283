// SPDX-License-Identifier: MIT OR Apache-2.0

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod cpu;
mod error;
pub mod knobs;
mod layout;
pub mod reference;
mod shape;

pub use cpu::{ROW_BLOCK, grouped_gemm, grouped_gemm_f32, moe_ffn, moe_ffn_eager};
pub use error::Error;
pub use layout::convert_minimax_weights;
pub use shape::{Activation, Expert, Experts, GateUp, MoeDims, Tokens, gate_up_halves};

pub use cpu_tiles;
