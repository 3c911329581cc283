// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use clap::Args;
use model_minimax::bench::Arm;
use model_minimax::config::Variant;
use model_minimax::explain::Coded;
use model_minimax::model::parity::{ParityOptions, run as compare};

use super::args::{AttentionArgs, KernelArgs, OrDefault};

#[derive(Debug, Args)]
pub(crate) struct ParityArgs {
    /// Golden data: the folder of a model with expected.safetensors, a folder of such folders, or one with `models`
    #[arg(long, env = "GOLDEN_DIR", value_name = "DIR")]
    golden: Option<OsString>,

    /// Compare the models of this variant only, m27 or m3 [default: all]
    #[arg(long, env = "VARIANT", default_value = "", hide_default_value = true)]
    variant: OrDefault<Variant>,

    #[command(flatten)]
    kernels: KernelArgs,

    #[command(flatten)]
    attention: AttentionArgs,

    /// Run expert by expert instead of all experts as one grouped GEMM
    #[arg(long)]
    eager: bool,
}

/// Prints the report; a report that has not passed is an error after it.
pub(crate) fn run(args: &ParityArgs) -> anyhow::Result<()> {
    let Some(golden) = args.golden.as_ref().filter(|dir| !dir.is_empty()).map(Path::new) else {
        bail!(Coded::new(
            "E0701",
            "no golden data: neither --golden nor GOLDEN_DIR is given\n\
             --golden ops/testkit/golden    is the folder in the repository"
        ));
    };
    let (level, pool) = args.kernels.level_and_pool()?;
    let options = ParityOptions {
        level,
        pool,
        load_mode: args.kernels.load_mode(),
        arm: if args.eager { Arm::Eager } else { Arm::Fused },
        attention: args.attention.mode(),
        prefill_chunk: args.attention.prefill_chunk(),
        variant: args.variant.0,
    };
    let report = compare(golden, &options)?;
    writeln!(std::io::stdout(), "{report}").context("the report cannot be written to stdout")?;
    if !report.passed() {
        let message = format!("the models are not in parity with the golden data in {}", golden.display());
        bail!(Coded::new("E0703", message));
    }
    Ok(())
}
