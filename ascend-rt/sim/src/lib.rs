// SPDX-License-Identifier: MIT OR Apache-2.0

#![doc = include_str!("../README.md")]

pub mod abi;
mod args;
mod compile;
pub mod cost;
mod fault;
mod image;
mod launch;
mod lint;
mod mutants;
#[cfg(feature = "rt")]
pub mod predict;
#[cfg(feature = "rt")]
mod rt;
mod settings;
#[cfg(feature = "rt")]
pub mod testing;
mod timeline;

pub use args::{Args, Element};
pub use ascend_build::twin::Task;
pub use compile::{CompileError, compile, include_dir, kernel_of, library};
pub use cost::Chip;
pub use fault::{Fault, Place, Rule};
pub use image::{Image, Kernel, OpenError, Parameter};
pub use launch::{Call, Launch, Memory, Mode, Mute, Role, Run, RunError, Sync, Used};
pub use lint::{Lint, Slow, lint};
pub use mutants::{Mutant, Verdict, mutants};
#[cfg(feature = "rt")]
pub use rt::{configure, install};
pub use settings::{Settings, SettingsError};
pub use timeline::{write_page, write_timeline};
