// SPDX-License-Identifier: MIT OR Apache-2.0

#![doc = include_str!("../README.md")]

#[cfg(target_endian = "big")]
compile_error!("op-testkit casts between numbers and little-endian files in place");

pub mod allocations;
pub mod bench;
pub mod compare;
pub mod conformance;
pub mod golden;
pub mod guard;
pub mod safetensors;
mod splitmix;
pub mod strategies;
pub mod tiling;

pub use splitmix::{fill_bf16, fill_f32};
