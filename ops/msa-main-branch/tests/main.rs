// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tests of `msa-main-branch`: one binary, since linking is what costs.

mod conformance;
mod determinism;
mod errors;
mod factory;
mod fixture;
mod golden;
mod knobs;
mod laws;
mod masks;
mod rounding;
mod special;
