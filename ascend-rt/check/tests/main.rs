// SPDX-License-Identifier: MIT OR Apache-2.0

//! The checks; what each is for stands in the documentation of the crate.

mod generated;
mod headers;
#[cfg(feature = "check-ffi")]
mod identity;
mod planted;
mod report;
