// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ffi::OsString;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use model_minimax::inspect::Inspection;

use super::args::OrDefault;

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// Checkpoint folder [default: --model-path]
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Checkpoint folder
    #[arg(long, env = "MODEL_PATH", value_name = "DIR")]
    model_path: Option<OsString>,

    /// As if only the first N layers were to run [default: all]
    #[arg(long, env = "LAYERS", value_name = "N", default_value = "", hide_default_value = true)]
    max_layers: OrDefault<NonZeroUsize>,

    /// JSON instead of text
    #[arg(long)]
    json: bool,
}

/// The folder given by position, or by `--model-path` or its variable.
pub(crate) fn folder(dir: Option<&PathBuf>, model_path: Option<&OsString>) -> anyhow::Result<PathBuf> {
    let named = || model_path.filter(|path| !path.is_empty()).map(PathBuf::from);
    match dir.cloned().or_else(named) {
        Some(dir) => Ok(dir),
        None => bail!("no checkpoint: name its folder, or give --model-path or MODEL_PATH"),
    }
}

pub(crate) fn run(args: &InspectArgs) -> anyhow::Result<()> {
    let dir = folder(args.dir.as_ref(), args.model_path.as_ref())?;
    let inspection = Inspection::of(&dir, args.max_layers.0.map(NonZeroUsize::get))?;
    let text = match args.json {
        true => serde_json::to_string_pretty(&inspection)?,
        false => inspection.to_string(),
    };
    writeln!(std::io::stdout(), "{text}").context("the result cannot be written to stdout")?;
    match &inspection.config_error {
        _ if inspection.usable => Ok(()),
        Some(error) => bail!("the checkpoint in {} cannot be used: {error}", dir.display()),
        None => bail!("the checkpoint in {} cannot be used", dir.display()),
    }
}
