// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tests of `ascend-rt`: one binary, since linking is what costs.

mod args;
mod bad_input;
mod basics;
mod capture;
mod codes;
mod common;
mod compile_fail;
mod drops;
mod examples;
mod failures;
mod library;
mod loaders;
mod memory;
mod open;
mod profiling;
mod program_order;
mod seeded;
mod threads;
