// SPDX-License-Identifier: MIT OR Apache-2.0

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod cpu;
mod error;
pub mod knobs;
pub mod reference;
mod shape;

pub use cpu::{sparse_decode, sparse_decode_f32};
pub use error::{Error, Slot};
pub use shape::{Blind, BlockIds, Cache, DecodeBatch, DecodeDims, Queries};

pub use cpu_tiles;
