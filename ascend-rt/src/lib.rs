// SPDX-License-Identifier: MIT OR Apache-2.0

#![doc = include_str!("../README.md")]

pub mod error;
pub mod host;
pub mod kernel;
pub mod raw;
pub mod sys;

pub use zerocopy;
