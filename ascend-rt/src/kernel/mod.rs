// SPDX-License-Identifier: MIT OR Apache-2.0

//! Modules, kernels, their arguments, and launches.

mod layout;

pub use layout::{ArgKind, ArgLayout, LayoutError, MAX_BYTES, MAX_PARAMS, Param, SLOT};
