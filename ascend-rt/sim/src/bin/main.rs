// SPDX-License-Identifier: MIT OR Apache-2.0

//! `ascend-sim KERNEL.cpp`: compiles a kernel for the twin, runs it on made-up data and reports. `--help` lists the
//! options.
//!
//! Exit codes: 0 all well, 1 the kernel does not compile or breaks a rule, 2 the command line is wrong.

mod data;
mod options;

use std::path::Path;
use std::process::ExitCode;

use ascend_sim::{Args, Image, Launch, Mode, Run, RunError};

use data::Buffer;
use options::{Arg, Options};

fn main() -> ExitCode {
    let options = match options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{}", options::HELP);
            return ExitCode::SUCCESS;
        }
        Err(usage) => {
            eprintln!("ascend-sim: {usage}");
            eprintln!("`ascend-sim --help` shows the options.");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("ascend-sim: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the kernel ran to its end in every order.
fn run(options: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    let image = open(options)?;
    let name = match &options.entry {
        Some(entry) => entry.clone(),
        None => match image.kernels() {
            [kernel] => kernel.name.clone(),
            kernels => {
                let names: Vec<&str> = kernels.iter().map(|kernel| kernel.name.as_str()).collect();
                return Err(format!("--entry says which of the kernels runs: {}", names.join(", ")).into());
            }
        },
    };
    let mut buffers = Vec::new();
    for arg in &options.args {
        buffers.push(Buffer::new(arg, options.data_seed)?);
    }
    let mut args = Args::new();
    for (arg, buffer) in options.args.iter().zip(&mut buffers) {
        args = match arg {
            Arg::In(..) | Arg::File(_) => args.input(&buffer.bytes),
            Arg::Out(..) | Arg::InOut(..) => args.buffer(&mut buffer.bytes),
            Arg::Workspace(bytes) => args.workspace(*bytes),
            Arg::Null => args.null(),
            Arg::Value(value) => value.append_to(args),
        };
    }
    let launch = image.launch(&name)?.chip(options.chip.clone()).blocks(options.blocks).args(args);
    let mut launch = launch.mode(options.mode).verbose(options.verbose);
    let Some(run) = shown(&mut launch)? else { return Ok(false) };
    println!("{name} on {}, {} blocks, {}", options.chip.name, options.blocks, options.mode);
    print!("{}", described(&run, &launch));
    let mut launch = launch.verbose(false).record(false);
    for seed in 0..options.seeds {
        launch = launch.mode(Mode::Chaos(seed));
        if shown(&mut launch)?.is_none() {
            return Ok(false);
        }
    }
    if options.seeds > 0 {
        println!("  clean under the {} seeds from 0 on", options.seeds);
    }
    Ok(true)
}

/// The image of a source, or an image that is one already.
fn open(options: &Options) -> Result<Image, Box<dyn std::error::Error>> {
    if options.kernel.extension().is_some_and(|extension| extension == "so") {
        return Ok(Image::open(&options.kernel)?);
    }
    let mut recipe = ascend_sim::kernel_of(&options.kernel, Path::new("."), options.entry.as_deref(), options.cores)?;
    for include in &options.includes {
        recipe.includes.push(std::path::absolute(include)?);
    }
    recipe.defines.extend(options.defines.iter().cloned());
    let arch = match options.chip.arch {
        3510 => ascend_build::Arch::Dav3510,
        _ => ascend_build::Arch::Dav2201,
    };
    Ok(ascend_sim::compile(&recipe, arch)?)
}

/// The run, or none after the report about a fault.
fn shown(launch: &mut Launch<'_>) -> Result<Option<Run>, RunError> {
    match launch.run() {
        Ok(run) => Ok(Some(run)),
        Err(RunError::Fault(fault)) => {
            eprintln!("{}", fault.report(Path::new(".")));
            Ok(None)
        }
        Err(other) => Err(other),
    }
}

fn described(run: &Run, launch: &Launch<'_>) -> String {
    let chip = launch.chosen_chip();
    let mut text = format!("  instructions    {}\n", run.instructions);
    let memories = [
        ("UB", run.used.ub, chip.ub),
        ("L1", run.used.l1, chip.l1),
        ("L0A", run.used.l0a, chip.l0a),
        ("L0B", run.used.l0b, chip.l0b),
        ("L0C", run.used.l0c, chip.l0c),
        ("BT", run.used.bt, chip.bt),
        ("FB", run.used.fb, chip.fb),
    ];
    let used = memories.iter().filter(|(_, used, _)| *used > 0);
    let used: Vec<String> = used.map(|(name, used, of)| format!("{name} {used} of {of}")).collect();
    text += &format!("  bytes in use    {}\n", if used.is_empty() { "none".to_owned() } else { used.join(", ") });
    text
}
