// SPDX-License-Identifier: MIT OR Apache-2.0

mod attention;
mod cache;
mod forward;
mod graph;
mod m3;
mod ops;
pub(crate) mod parity;
