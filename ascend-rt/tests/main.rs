// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tests of `ascend-rt`: one binary, since linking is what costs.

mod args;
mod bad_input;
mod basics;
mod capture;
mod codes;
mod common;
mod drops;
mod failures;
mod library;
mod memory;
mod open;
mod profiling;
mod seeded;
mod threads;
