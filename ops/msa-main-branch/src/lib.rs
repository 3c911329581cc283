// SPDX-License-Identifier: MIT OR Apache-2.0

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod cpu;
mod error;
mod factory;
pub mod knobs;
pub mod reference;
mod shape;

pub use cpu::{msa_main_branch, msa_main_branch_masked};
pub use error::Error;
pub use factory::{MainBranch, MainBranchConfig};
pub use shape::{AttentionDims, Blocks, Data, KeysValues, MASK_NEG, Query, RowDefined};

pub use cpu_tiles;
