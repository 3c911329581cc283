// SPDX-License-Identifier: MIT OR Apache-2.0

//! Errors: codes with their names and classes.

mod code;

pub use code::{AclError, Class};
