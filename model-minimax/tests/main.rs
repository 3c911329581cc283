// SPDX-License-Identifier: MIT OR Apache-2.0

//! All integration tests of the crate, linked once.

mod bench;
mod checkpoint;
mod cli;
mod config;
#[cfg(feature = "download")]
mod download;
mod fake;
mod generate;
mod inspect;
mod model;
mod plan;
mod scratch;
#[cfg(feature = "text")]
mod text;

#[global_allocator]
static ALLOCATOR: op_testkit::allocations::CountingAllocator = op_testkit::allocations::CountingAllocator;
