// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tests of `gmm-finalize-routing`: one binary, since linking is what costs.

mod conformance;
mod determinism;
#[cfg(feature = "sim")]
mod device;
mod errors;
mod fixture;
#[cfg(feature = "sim")]
mod kernel;
mod laws;
#[cfg(feature = "npu")]
mod npu;
mod scales;
mod special;
