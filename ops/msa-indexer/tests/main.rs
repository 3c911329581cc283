// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tests of `msa-indexer`: one binary, since linking is what costs.

mod arithmetic;
mod conformance;
mod determinism;
mod errors;
mod fixture;
mod golden;
mod laws;
mod special;
mod sweep;
