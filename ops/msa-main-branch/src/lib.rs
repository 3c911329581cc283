// SPDX-License-Identifier: MIT OR Apache-2.0

#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod cpu;
mod error;
mod factory;
pub mod knobs;
#[cfg(feature = "npu")]
pub mod npu;
pub mod reference;
mod shape;
#[cfg(feature = "npu")]
pub mod tiling;

pub use cpu::{msa_main_branch, msa_main_branch_masked};
pub use error::Error;
pub use factory::{MainBranch, MainBranchConfig};
pub use shape::{AttentionDims, Blocks, Data, KeysValues, MASK_NEG, Query, RowDefined};

#[cfg(feature = "npu")]
pub use ascend_rt;
#[cfg(feature = "sim")]
pub use ascend_sim;
pub use cpu_tiles;
