// SPDX-License-Identifier: MIT OR Apache-2.0

//! All integration tests of the crate, linked once.

mod bench;
mod checkpoint;
mod cli;
mod config;
mod fake;
mod generate;
mod model;
mod scratch;
#[cfg(feature = "text")]
mod text;

#[global_allocator]
static ALLOCATOR: op_testkit::allocations::CountingAllocator = op_testkit::allocations::CountingAllocator;
