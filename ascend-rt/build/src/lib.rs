// SPDX-License-Identifier: MIT OR Apache-2.0

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod arch;
pub mod bisheng;
pub mod cmake;
pub mod command;
pub mod depfile;
pub mod elf;
pub mod emit;
pub mod env;
pub mod error;
pub mod find;
mod kernel;
pub mod scan;
pub mod sha256;
pub mod twin;

pub use arch::Arch;
pub use error::Error;
pub use kernel::{Cores, Entry, Kernel, Recipe, Script};

/// Begins the description of a crate's kernels. `name` is that of the module, a C identifier; the source is
/// `kernel/<name>.cpp` unless [`Kernel::source`] says otherwise.
///
/// ```no_run
/// // build.rs
/// ascend_build::kernel("grouped_gemm").mix("grouped_gemm").build();
/// ```
pub fn kernel(name: impl Into<String>) -> Kernel {
    Kernel::new(name.into())
}
