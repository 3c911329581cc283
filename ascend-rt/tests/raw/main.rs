// SPDX-License-Identifier: MIT OR Apache-2.0

//! The emulator at the level of single calls, with their codes: what the safe layer builds on.
//!
//! Under valgrind (no AVX-512 needed, the crate uses none):
//!
//! ```console
//! $ cargo test -p ascend-rt --test raw --no-run
//! $ VALGRIND=1 valgrind --error-exitcode=9 --leak-check=full --show-leak-kinds=definite \
//!       target/debug/deps/raw-<hash> --test-threads=1
//! ```
//!
//! `VALGRIND` makes the tests of many seeds run with fewer.

mod calls;
mod capture;
mod executors;
mod faults;
mod kernels;
mod memory;
mod model;
mod prof;
mod replay;
mod streams;
mod support;
mod threads;
