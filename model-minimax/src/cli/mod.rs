// SPDX-License-Identifier: MIT OR Apache-2.0

mod args;
mod ask;
mod bench;
mod knobs;
mod parity;
mod progress;
mod session;
mod text;
mod windows;

use clap::{Parser, Subcommand};

/// Runner of MiniMax-M2.7 and MiniMax-M3 (text): generation, benchmarks and golden parity on the CPU.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer a prompt; the answer streams to stdout, everything else goes to stderr.
    Ask(ask::AskArgs),
    /// Measure real generation, arm against arm; ends with a table and JSON reports.
    Bench(bench::BenchArgs),
    /// Compare the model with golden data; the table of worst differences goes to stdout.
    Parity(parity::ParityArgs),
    /// Show the environment variables that are read: value, type, default, meaning.
    ListKnobs,
}

/// Parses the command line and does what it says; usage errors end the process with code 2.
pub(crate) fn run() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Ask(args) => ask::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Parity(args) => parity::run(&args),
        Command::ListKnobs => knobs::run(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_variable_of_the_command_line_is_a_listed_knob() {
        let mut seen = 0;
        for command in Cli::command().get_subcommands() {
            for argument in command.get_arguments() {
                let Some(variable) = argument.get_env().and_then(|name| name.to_str()) else { continue };
                let knob = model_minimax::knobs::KNOBS.iter().find(|knob| knob.name == variable);
                let flag = argument.get_long().map(|long| format!("--{long}"));
                assert_eq!(knob.and_then(|knob| knob.flag), flag.as_deref(), "{variable}");
                seen += 1;
            }
        }
        assert!(seen >= 13, "only {seen} variables");
    }
}
