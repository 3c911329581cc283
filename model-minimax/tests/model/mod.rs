// SPDX-License-Identifier: MIT OR Apache-2.0

mod attention;
mod forward;
mod ops;
pub(crate) mod parity;
