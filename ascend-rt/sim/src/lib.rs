// SPDX-License-Identifier: MIT OR Apache-2.0

#![doc = include_str!("../README.md")]

pub mod abi;
mod args;
mod chip;
mod compile;
pub mod cost;
mod fault;
mod image;
mod launch;
mod mutants;
mod predict;
mod program;
#[cfg(feature = "rt")]
mod rt;
mod settings;

pub use args::{Args, Element};
pub use ascend_build::twin::Task;
pub use chip::{Chip, UnknownChip};
pub use compile::{CompileError, compile, include_dir, kernel_of, library};
pub use fault::{Fault, Place, Rule};
pub use image::{Image, Kernel, OpenError, Parameter};
pub use launch::{Call, Launch, Memory, Mode, Mute, Role, Run, RunError, Sync, Used};
pub use mutants::{Mutant, Verdict, mutants};
pub use program::{CoreProgram, Program};
#[cfg(feature = "rt")]
pub use rt::{configure, install};
pub use settings::{Settings, SettingsError};
