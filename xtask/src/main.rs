// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tasks of the workspace. `cargo xtask help` lists the verbs.
//!
//! Exit codes: 0 all well, 1 something failed, 2 the command line is wrong.

mod bindgen;
mod build;
mod cargo;
mod ci;
mod cli;
mod counts;
mod doctor;
mod predict;
mod report;
mod sim;
mod system;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

use cli::{Request, Usage, Verb};
use system::System;
use workspace::Workspace;

fn main() -> ExitCode {
    let outcome = cli::parse(std::env::args().skip(1)).map_err(anyhow::Error::from).and_then(|request| run(&request));
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            if error.is::<Usage>() {
                eprintln!("`cargo xtask help` shows the verbs and their options.");
                return ExitCode::from(2);
            }
            ExitCode::FAILURE
        }
    }
}

/// Whether the task found everything in order.
fn run(request: &Request) -> anyhow::Result<bool> {
    match &request.verb {
        Verb::Help => {
            print!("{}", cli::HELP);
            Ok(true)
        }
        Verb::Test(selection) => {
            let plan = test::Plan::new(selection, &Workspace::enter()?)?;
            if request.dry_run {
                plan.describe();
                return Ok(true);
            }
            let totals = plan.run()?;
            println!("{totals}");
            Ok(totals.failed == 0)
        }
        Verb::Build(selection) => {
            let plan = build::Plan::new(selection, &Workspace::enter()?)?;
            if request.dry_run {
                plan.describe();
                return Ok(true);
            }
            plan.run()
        }
        Verb::Budget(asked) | Verb::Bench(asked) => {
            // Before the folder changes.
            let asked = asked.absolute()?;
            let is_budget = matches!(request.verb, Verb::Budget(_));
            let plan = predict::Plan::new(is_budget, &asked, &Workspace::enter()?)?;
            if request.dry_run {
                plan.describe();
                return Ok(true);
            }
            plan.run()
        }
        Verb::Sim(words) if request.dry_run => {
            println!("  command    {}", sim::call(words));
            Ok(true)
        }
        Verb::Sim(words) => sim::run(words),
        Verb::Counts(counts) if request.dry_run => {
            counts.describe();
            Ok(true)
        }
        // Entering the workspace changes the folder that relative paths start from.
        Verb::Counts(counts) => counts.with_absolute_paths()?.run(&Workspace::enter()?),
        Verb::Doctor if request.dry_run => {
            doctor::describe();
            Ok(true)
        }
        Verb::Doctor => {
            let report = doctor::examine(&System::of_process());
            print!("{report}");
            Ok(!report.is_broken())
        }
        Verb::Bindgen { identity } => {
            Workspace::enter()?;
            let plan = bindgen::Plan::new(&System::of_process(), *identity)?;
            if request.dry_run {
                plan.describe();
                return Ok(true);
            }
            plan.run()
        }
        Verb::Tidy if request.dry_run => {
            tidy::describe();
            Ok(true)
        }
        Verb::Tidy => tidy::run(),
        Verb::Ci if request.dry_run => {
            ci::describe(&Workspace::enter()?)?;
            Ok(true)
        }
        Verb::Ci => ci::run(&Workspace::enter()?),
    }
}
