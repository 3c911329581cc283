// SPDX-License-Identifier: MIT OR Apache-2.0

mod args;
mod ask;
mod bench;
#[cfg(feature = "text")]
mod chat;
#[cfg(test)]
mod compatibility;
mod config_file;
mod docs;
#[cfg(feature = "download")]
mod download;
mod inspect;
mod knobs;
mod ops;
mod parity;
mod plan;
mod prepare;
mod processes;
mod progress;
mod reports;
mod session;
mod shell;
mod synth;
mod text;
mod verify;
mod windows;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// Runner of MiniMax-M2.7 and MiniMax-M3 (text): generation, benchmarks and golden parity, and tools around checkpoints.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, args_conflicts_with_subcommands = true)]
struct Cli {
    /// Explain the code of an error; `list` shows all codes
    #[arg(long, value_name = "CODE")]
    explain: Option<String>,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer a prompt; the answer streams to stdout, everything else goes to stderr.
    Ask(ask::AskArgs),
    /// Talk to the model; what it thinks goes to stderr, what it answers to stdout.
    #[cfg(feature = "text")]
    Chat(Box<chat::ChatArgs>),
    /// Measure real generation, arm against arm; ends with a table and JSON reports.
    Bench(bench::BenchArgs),
    /// Say what a checkpoint folder holds and what is wrong with it; reads headers only.
    Inspect(inspect::InspectArgs),
    /// Compare the model with golden data; the table of worst differences goes to stdout.
    Parity(parity::ParityArgs),
    /// Find the first tensor in which two checkpoints, SIMD levels, dtypes or devices differ, stage by stage.
    Verify(Box<verify::VerifyArgs>),
    /// Run the stage that `verify` has recorded again.
    Replay(verify::ReplayArgs),
    /// Fetch a checkpoint from a hub; goes on where an earlier run stopped.
    #[cfg(feature = "download")]
    Download(download::DownloadArgs),
    /// Validate a checkpoint and correct its configuration, in an overlay folder or in place.
    Prepare(prepare::PrepareArgs),
    /// Write a synthetic checkpoint: a complete folder, as published, with random weights.
    Synth(synth::SynthArgs),
    /// Say what running a model takes, before a weight is read: memory by part, bytes per token, expected rate.
    Plan(plan::PlanArgs),
    /// Show the environment variables that are read: value, type, default, meaning.
    ListKnobs,
    /// Print a script that completes the command line in a shell.
    Completions(docs::CompletionsArgs),
    /// Print a manual page, or write all.
    Man(docs::ManArgs),
    /// Print the reference of the command line in Markdown.
    #[command(hide = true)]
    Reference,
}

/// A request that cannot be met as it stands: exit code 2, as for a wrong command line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

/// Parses the command line and does what it says; usage errors end the process with code 2.
pub(crate) fn run() -> anyhow::Result<()> {
    let command = config_file::with_defaults(Cli::command())?;
    let cli = Cli::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit());
    if let Some(code) = &cli.explain {
        return docs::explain(code);
    }
    let Some(command) = cli.command else { return Ok(()) };
    match command {
        Command::Ask(args) => ask::run(&args),
        #[cfg(feature = "text")]
        Command::Chat(args) => chat::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Parity(args) => parity::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Replay(args) => verify::run_replay(&args),
        #[cfg(feature = "download")]
        Command::Download(args) => download::run(&args),
        Command::Prepare(args) => prepare::run(&args),
        Command::Synth(args) => synth::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::ListKnobs => knobs::run(),
        Command::Completions(args) => docs::completions(&args, Cli::command()),
        Command::Man(args) => docs::man(&args, Cli::command()),
        Command::Reference => docs::print_reference(Cli::command()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
