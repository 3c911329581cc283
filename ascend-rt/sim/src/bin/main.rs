// SPDX-License-Identifier: MIT OR Apache-2.0

//! `ascend-sim KERNEL.cpp`: compiles a kernel for the twin, runs it on made-up data and reports. `--help` lists the
//! options.
//!
//! Exit codes: 0 all well, 1 the kernel does not compile or breaks a rule, 2 the command line is wrong.

mod data;
mod options;

use std::path::Path;
use std::process::ExitCode;

use ascend_sim::cost::{self, PIPES, Program, Reserve, Timeline, simulate};
use ascend_sim::{Args, Image, Launch, Mode, Run, RunError, write_page, write_timeline};

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
    let timeline = simulate(&run.program, &options.chip, &cost::Options::default())?;
    print!("{}", predicted(&run.program, &timeline));
    let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    if let Some(path) = &options.trace {
        write_timeline(path, &run.program, &timeline).map_err(|error| failed(path, error))?;
        println!("  timeline        {}", path.display());
    }
    if let Some(path) = &options.html {
        write_page(path, &run.program, &timeline).map_err(|error| failed(path, error))?;
        println!("  page            {}", path.display());
    }
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
        cost::Arch::A3510 => ascend_build::Arch::Dav3510,
        cost::Arch::A2201 => ascend_build::Arch::Dav2201,
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
    let mix = launch.kernel().task.cores() == ascend_build::Cores::Mix;
    let of = launch.chosen_chip().memories(Reserve { mix, ..Reserve::default() });
    let mut text = format!("  instructions    {}\n", run.instructions);
    let memories = [
        ("UB", run.used.ub, of.ub),
        ("L1", run.used.l1, of.l1),
        ("L0A", run.used.l0a, of.l0a),
        ("L0B", run.used.l0b, of.l0b),
        ("L0C", run.used.l0c, of.l0c),
        ("BT", run.used.bt, of.bt),
        ("FB", run.used.fb, of.fb),
    ];
    let used = memories.iter().filter(|(_, used, _)| *used > 0);
    let used: Vec<String> = used.map(|(name, used, of)| format!("{name} {used} of {of}")).collect();
    text += &format!("  bytes in use    {}\n", if used.is_empty() { "none".to_owned() } else { used.join(", ") });
    text
}

/// The predicted time and what it is made of.
fn predicted(program: &Program, timeline: &Timeline) -> String {
    let mut text =
        format!("  predicted       {:.2} us, bound by {}\n", timeline.microseconds(), timeline.bound().name());
    for (cube, kind) in [(true, "cube cores"), (false, "vector cores")] {
        let whole = timeline.mean_cycles(cube);
        let share = |pipe: usize| 100.0 * timeline.mean_busy(cube, pipe) / whole;
        let busy = PIPES.iter().enumerate().filter(|(pipe, _)| whole > 0.0 && timeline.mean_busy(cube, *pipe) > 0.0);
        let busy: Vec<String> = busy.map(|(pipe, name)| format!("{name} {:.0} %", share(pipe))).collect();
        if !busy.is_empty() {
            text += &format!("  {kind:<15} {}\n", busy.join(", "));
        }
    }
    for line in timeline.summary(program) {
        text += &format!("  {line}\n");
    }
    text
}
