// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tests of `msa-sparse-decode`: one binary, since linking is what costs.

mod conformance;
mod determinism;
#[cfg(feature = "sim")]
mod device;
mod errors;
mod fixture;
mod golden;
mod knobs;
#[cfg(feature = "sim")]
mod launch;
mod laws;
#[cfg(feature = "npu")]
mod npu;
mod special;
#[cfg(feature = "sim")]
mod sync;
mod workspace;

#[global_allocator]
static ALLOCATOR: op_testkit::allocations::CountingAllocator = op_testkit::allocations::CountingAllocator;
