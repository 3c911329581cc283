// SPDX-License-Identifier: MIT OR Apache-2.0

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod cpu;
mod error;
pub mod reference;
mod select;
mod shape;

pub use cpu::{decode, prefill};
pub use error::Error;
pub use shape::{HeadReduce, IndexerDims, Keys, PackedKeys, Values};

pub use cpu_tiles;
