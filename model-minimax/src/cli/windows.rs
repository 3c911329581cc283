// SPDX-License-Identifier: MIT OR Apache-2.0

//! `bench --static-routing`.

use std::io::Write;
use std::num::NonZeroU32;

use anyhow::{Context, bail};
use model_minimax::bench::{
    Arm, Machine, WindowPlan, WindowReport, WindowSetup, peak_memory_bytes, run_windows, window_table,
};
use model_minimax::checkpoint::synthetic::SyntheticSpec;
use model_minimax::config::{FfnKind, Variant};
use model_minimax::knobs;

use super::args::name;
use super::bench::{BenchArgs, ITERS, NEW_TOKENS, Reports, WARMUP};
use super::session::{Session, load_name};

/// Tokens of a window, unless the command line says otherwise.
const WINDOW: u32 = 32;

pub(super) fn run(args: &BenchArgs, arms: Vec<Arm>) -> anyhow::Result<()> {
    let knobs = knobs::in_force()?;
    let files = Reports::reserve(args, &arms)?;
    let variant = args.model.variant.0.unwrap_or(Variant::M27);
    let session = Session::open(&args.model, Some(SyntheticSpec::slice(variant)))?;
    let config = session.config();
    let plan = WindowPlan {
        arms,
        warmup: args.warmup.0.unwrap_or(WARMUP) as usize,
        iters: args.iters.0.map_or(ITERS, NonZeroU32::get) as usize,
        window: args.graph_window.0.map_or(WINDOW, NonZeroU32::get) as usize,
        new_tokens: args.max_new_tokens.0.map_or(NEW_TOKENS, NonZeroU32::get) as usize,
    };
    if plan.window > config.max_position_embeddings {
        bail!(
            "--graph-window is {}, expected at most the {} positions of the model",
            plan.window,
            config.max_position_embeddings
        );
    }

    let names: Vec<&str> = plan.arms.iter().map(|arm| arm.name()).collect();
    let rule = "=".repeat(70);
    eprintln!("{rule}\n  {}  E2E graph-replay  {}\n{rule}", config.variant, names.join(" / ").to_uppercase());
    let (mut model, load_time) = session.load(&args.model)?;
    eprintln!(
        "window {}, static routing to the first {} of {} experts, {} new tokens, {} warm-up, {} iterations per arm",
        plan.window, config.num_experts_per_tok, config.num_local_experts, plan.new_tokens, plan.warmup, plan.iters
    );
    let runs = run_windows(&mut model, &plan, |line| eprintln!("{line}"))?;

    let layers = &config.layers[..config.num_hidden_layers];
    let reports = WindowReport::all(
        &WindowSetup {
            model: config.variant.to_string(),
            device: args.model.device.to_string(),
            layers: config.num_hidden_layers,
            moe_layers: layers.iter().filter(|layer| layer.ffn == FfnKind::Moe).count(),
            model_load_s: load_time.as_secs_f64(),
            peak_memory_bytes: peak_memory_bytes(),
            model_path: session.dir().to_owned(),
            synthetic: session.synthetic().map(ToString::to_string),
            dtype: name(args.model.dtype),
            load: load_name(&model),
            knobs,
            machine: Machine::detect(session.level().name(), session.pool().threads()),
        },
        &plan,
        &runs,
    );
    for report in &reports {
        eprintln!(
            "--- {} Summary (avg of {}) ---\n  decode-generate : {:.1} ± {:.1} tok/s\n  peak mem        : {:.0} MB",
            report.mode.name().to_uppercase(),
            report.iters,
            report.decode_tps_mean,
            report.decode_tps_std,
            report.peak_mem_mb
        );
    }
    files.write(&reports, |report| report.mode, WindowReport::json)?;
    std::io::stdout().write_all(window_table(&reports).as_bytes()).context("the table cannot be written to stdout")
}
