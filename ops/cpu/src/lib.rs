// SPDX-License-Identifier: MIT OR Apache-2.0

#![doc = include_str!("../README.md")]

pub mod acts;
pub mod attention;
pub mod convert;
pub mod formats;
mod kernels;
pub mod level;
mod linear;
pub mod math;
mod max_scores;
pub mod mem;
mod mxfp8;
mod pack;
pub mod probe;
pub mod threads;
mod tile;
pub mod vectorize;
pub mod weights;

pub use acts::{Acts, Precision};
pub use formats::{E8M0, F8E4M3, F8E5M2, Overflow};
pub use level::{Isa, Level, LevelError};
pub use linear::{linear, linears};
pub use max_scores::{max_scores, reserve_max_scores_scratch};
pub use pack::PanelFacts;
pub use threads::{Pool, ThreadsError};
pub use tile::{RowNumbers, reserve_tile_scratch, tile, with_sums};
pub use weights::{Format, PANEL, PackedRef, PackedWeight, ShapeError, Weight, WeightRef};
