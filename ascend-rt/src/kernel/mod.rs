// SPDX-License-Identifier: MIT OR Apache-2.0

//! Modules, kernels, their arguments, and launches.

mod launch;
mod layout;
mod macros;
mod module;

pub use crate::host::CoreKind;
pub use launch::{Arg, ArgVisitor, Dynamic, Kernel, KernelArgs, KernelSig, Launch};
pub use layout::{ArgKind, ArgLayout, LayoutError, MAX_BYTES, MAX_PARAMS, Param, SLOT};
pub(crate) use module::ModuleInner;
pub use module::{Blob, Module, Target};
