// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tests of `msa-main-branch`: one binary, since linking is what costs.

mod conformance;
mod determinism;
#[cfg(feature = "sim")]
mod device;
mod errors;
mod factory;
mod fixture;
mod golden;
mod knobs;
#[cfg(feature = "sim")]
mod launch;
mod laws;
mod masks;
#[cfg(feature = "npu")]
mod npu;
mod rounding;
mod special;
#[cfg(feature = "sim")]
mod sync;
