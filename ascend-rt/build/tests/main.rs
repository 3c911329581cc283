// SPDX-License-Identifier: MIT OR Apache-2.0

//! The whole way, with toolkits that shell scripts stand for: they record how they are called, and give back canned
//! ELF files. Nothing here compiles anything for a device.
#![cfg(unix)]

mod canned;
mod commands;
mod fake;
mod operators;
mod script;
mod states;
mod twin;
