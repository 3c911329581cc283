// SPDX-License-Identifier: MIT OR Apache-2.0

//! The Rust side of the twin. Images of these tests are small C programs that stand for a kernel with its machine: each
//! test compiles what it needs.

mod bad_images;
mod command_line;
mod emulator;
mod fake;
mod launches;
mod layout;
mod mutant;
mod recipes;
mod reports;
