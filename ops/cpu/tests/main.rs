// SPDX-License-Identifier: MIT OR Apache-2.0

//! All integration tests of the crate, in one binary.

mod attention;
mod convert;
mod formats;
mod level;
mod math;
mod max_scores;
mod mxfp8;
mod support;
mod threads;
mod tile;

#[global_allocator]
static ALLOCATOR: op_testkit::allocations::CountingAllocator = op_testkit::allocations::CountingAllocator;
