//! MiniMax-M2.7 and MiniMax-M3 (text) on the CPU.

pub mod bench;
pub mod checkpoint;
pub mod config;
pub mod generate;
pub mod knobs;
pub mod model;
pub mod sampling;
#[cfg(feature = "text")]
pub mod text;
