// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use model_minimax::explain::Coded;
use model_minimax::prepare::{corrections, in_place, overlay, restore};

use super::shell::quoted;

#[derive(Debug, Args)]
pub(crate) struct PrepareArgs {
    /// Checkpoint folder
    #[arg(long, env = "MODEL_PATH", value_name = "DIR")]
    model_path: Option<OsString>,

    /// Write an overlay: a folder with the corrected configuration and links to everything else
    #[arg(long, value_name = "DIR", conflicts_with_all = ["in_place", "restore"])]
    output_dir: Option<PathBuf>,

    /// Replace an overlay that is there
    #[arg(long, requires = "output_dir")]
    force: bool,

    /// Correct the checkpoint's own config.json; the original is kept as config.json.orig
    #[arg(long, conflicts_with = "restore")]
    in_place: bool,

    /// Put the original back
    #[arg(long)]
    restore: bool,
}

pub(crate) fn run(args: &PrepareArgs) -> anyhow::Result<()> {
    let Some(dir) = args.model_path.as_ref().filter(|path| !path.is_empty()).map(Path::new) else {
        return Err(Coded::new("E0001", "no checkpoint: neither --model-path nor MODEL_PATH is given").into());
    };
    let mut out = std::io::stdout().lock();
    if args.restore {
        let path = restore(dir)?;
        return writeln!(out, "{} is the original again", path.display()).context("stdout");
    }
    let prepared = match &args.output_dir {
        Some(to) => overlay(dir, to, args.force)?,
        None if args.in_place => in_place(dir)?,
        None => corrections(dir)?,
    };
    eprintln!("{}", prepared.report);
    for correction in &prepared.corrections {
        writeln!(out, "{correction}")?;
    }
    if prepared.corrections.is_empty() {
        writeln!(out, "config.json needs no correction")?;
    }
    if args.output_dir.is_some() {
        let place = std::path::absolute(&prepared.dir)?;
        writeln!(out, "export MODEL_PATH={}", quoted(&place.to_string_lossy()))?;
    } else if !args.in_place && !prepared.corrections.is_empty() {
        eprintln!("nothing was written: --output-dir DIR makes an overlay, --in-place changes the checkpoint");
    }
    Ok(())
}
