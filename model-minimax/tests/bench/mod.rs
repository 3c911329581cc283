// SPDX-License-Identifier: MIT OR Apache-2.0

mod activity;
mod compare;
mod files;
pub(crate) mod plot;
mod report;
mod run;
