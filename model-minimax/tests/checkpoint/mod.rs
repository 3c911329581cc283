// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checkpoints: golden ones, the published names, everything that can be wrong, and synthetic ones.

mod bad_input;
mod folder;
mod golden;
mod header;
mod published;
mod synthetic;
