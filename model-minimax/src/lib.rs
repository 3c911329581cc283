// SPDX-License-Identifier: MIT OR Apache-2.0

//! MiniMax-M2.7 and MiniMax-M3 (text) on the CPU, a card or its emulator, from the checkpoints as they are published: load
//! them, generate with them, measure them, compare them with golden data. The program `model-minimax` is a thin command line
//! over this library; the README describes it.
//!
//! ```
//! use std::ops::ControlFlow;
//! use std::sync::Arc;
//!
//! use model_minimax::checkpoint::Checkpoint;
//! use model_minimax::config::{ModelConfig, StopIds};
//! use model_minimax::cpu_tiles::{Level, Pool};
//! use model_minimax::generate::{GenerateOptions, Stop, generate};
//! use model_minimax::model::{LoadOptions, Model};
//!
//! # let dir = op_testkit::golden::dir().join("models/m27-tiny-bf16");
//! // `dir` is a folder with config.json and safetensors files.
//! let config = ModelConfig::load(&dir)?;
//! let checkpoint = Checkpoint::open(&dir)?;
//! let options = LoadOptions::new(Level::from_env()?, Arc::new(Pool::from_env()?));
//! let mut model = Model::load(&checkpoint, &config, &options, |_done, _total| ())?;
//!
//! let options = GenerateOptions {
//!     max_new_tokens: 8,
//!     stop: StopIds::collect(&dir, &config, None)?,
//!     ..GenerateOptions::default()
//! };
//! let answer = generate(&mut model, &[5, 6, 7], &options, |id| {
//!     print!("{id} ");
//!     ControlFlow::Continue(())
//! })?;
//! assert!(answer.ids.len() == 8 || matches!(answer.stop, Stop::Eos(_)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to read on
//!
//! In the order in which a prompt becomes an answer:
//!
//! 1. [`config`]: geometry and arithmetic from `config.json`, and the tokens that end a generation. What is not
//!    implemented is an error here.
//! 2. [`checkpoint`]: the safetensors files, mapped and compared with the configuration before a weight is touched;
//!    [`checkpoint::synthetic`] makes one where there is none.
//! 3. `text` (feature `text`, on by default): tokenizer, chat template, decoding token by token.
//! 4. [`model`]: the forward pass and what is rounded in it. Its parts stand alone: [`model::norm`], [`model::rope`],
//!    [`model::cache`], [`model::attention`], [`model::router`]. The matrix products are [`cpu_tiles`], the experts the
//!    crate `grouped-gemm`, sparse attention the crates `msa-indexer`, `msa-sparse-decode` and `msa-main-branch`.
//!    [`model::device`] runs the experts and the sparse attention on a card or its emulator.
//! 5. [`mod@generate`] and [`sampling`]: the loop over anything that is a [`Decoder`](generate::Decoder), and the choice of
//!    the next token.
//!
//! Around that:
//!
//! * [`mod@bench`] measures generation, arm against arm, and writes the reports.
//! * [`inspect`] says what a checkpoint folder holds, [`plan`] what running it takes; neither reads a weight.
//! * [`model::parity`] compares a model with what a reference implementation computed.
//! * [`prepare`] corrects configurations that promise what their weights do not hold.
//! * [`model::verify`] finds the first place where two models differ.
//! * `download` (feature `download`, on by default) fetches a checkpoint from a hub.
//! * [`explain`] has a code for each error, and a page on it.
//! * [`knobs`] lists the environment variables that the program and its kernels read.

pub mod bench;
pub mod checkpoint;
pub mod config;
#[cfg(feature = "download")]
pub mod download;
pub mod explain;
pub mod generate;
pub mod inspect;
pub mod knobs;
pub mod model;
pub mod plan;
pub mod prepare;
pub mod sampling;
#[cfg(feature = "text")]
pub mod text;

pub use cpu_tiles;
