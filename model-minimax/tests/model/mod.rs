// SPDX-License-Identifier: MIT OR Apache-2.0

mod attention;
mod cache;
#[cfg(feature = "sim")]
mod device;
mod forward;
mod graph;
mod m3;
mod ops;
pub(crate) mod parity;
pub(crate) mod verify;
