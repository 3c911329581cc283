// SPDX-License-Identifier: MIT OR Apache-2.0

//! A process for each arm: memory, caches and the state of the allocator of one arm are not those that another has left.
//!
//! The process of an arm is this program with the arguments it was given and `--only-arm` behind them. Before each iteration
//! it writes a line `ready` and waits for a line; after the last one it writes its report as one line of JSON. So the
//! process that started it decides the order of the iterations of all arms.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, bail};
use model_minimax::bench::{Arm, Report};

use super::bench::Order;

const READY: &str = "ready";

/// The side of the process of an arm.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gate;

impl Gate {
    /// Says that the next iteration may begin, and waits until it shall. When nobody is there any more, it ends the process:
    /// there is no one to measure for.
    pub(crate) fn pass(self) {
        let mut line = String::new();
        let asked = say(READY).is_ok() && std::io::stdin().read_line(&mut line).is_ok_and(|bytes| bytes > 0);
        if !asked {
            eprintln!("the process that started this one is gone");
            std::process::exit(1);
        }
    }

    /// Hands the report of the arm over.
    pub(crate) fn report(self, reports: &[Report]) -> anyhow::Result<()> {
        let [report] = reports else { bail!("expected the report of one arm, found {}", reports.len()) };
        say(&serde_json::to_string(report)?).context("the report cannot be handed over")
    }
}

fn say(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// What an arm says.
enum Word {
    Ready,
    Report(Box<Report>),
}

/// The process of an arm, ended when it is dropped.
struct ArmProcess {
    arm: Arm,
    process: Child,
    go: ChildStdin,
    words: Lines<BufReader<ChildStdout>>,
}

impl ArmProcess {
    fn start(arm: Arm) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("the path of this program is not known")?;
        let mut process = Command::new(program)
            .args(std::env::args_os().skip(1))
            .args(["--only-arm", arm.name()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("the process of arm {arm} cannot be started"))?;
        let (go, words) = (process.stdin.take(), process.stdout.take());
        let (Some(go), Some(words)) = (go, words) else { bail!("the process of arm {arm} has no pipes") };
        Ok(Self { arm, process, go, words: BufReader::new(words).lines() })
    }

    /// Waits for what it says next.
    fn listen(&mut self) -> anyhow::Result<Word> {
        match self.words.next().transpose()? {
            Some(line) if line == READY => Ok(Word::Ready),
            Some(line) => {
                let report = serde_json::from_str(&line);
                let report = report.with_context(|| format!("the process of arm {} says {line:?}", self.arm))?;
                Ok(Word::Report(Box::new(report)))
            }
            None => {
                let status = self.process.wait()?;
                bail!("the process of arm {} ended before its report ({status}); its messages are above", self.arm)
            }
        }
    }

    fn go(&mut self) -> anyhow::Result<()> {
        let sent = writeln!(self.go).and_then(|()| self.go.flush());
        sent.with_context(|| format!("the process of arm {} does not listen", self.arm))
    }
}

impl Drop for ArmProcess {
    fn drop(&mut self) {
        // It has ended already, or nobody wants its result.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Measures every arm in a process of its own; the reports are in the order of the arms.
pub(crate) fn measure(arms: &[Arm], iters: usize, order: Order, seed: u64) -> anyhow::Result<Vec<Report>> {
    let mut reports = match order {
        Order::Sequential => arms.iter().map(|&arm| one_after_the_other(arm)).collect::<anyhow::Result<Vec<_>>>()?,
        Order::Interleaved | Order::Random => in_rounds(arms, iters, order, seed)?,
    };
    Report::relate(&mut reports);
    Ok(reports)
}

fn one_after_the_other(arm: Arm) -> anyhow::Result<Report> {
    let mut process = ArmProcess::start(arm)?;
    loop {
        match process.listen()? {
            Word::Ready => process.go()?,
            Word::Report(report) => return Ok(*report),
        }
    }
}

/// All arms are loaded and warm before the first iteration; then each round has one iteration of each.
fn in_rounds(arms: &[Arm], iters: usize, order: Order, mut seed: u64) -> anyhow::Result<Vec<Report>> {
    let mut processes = Vec::new();
    for &arm in arms {
        let mut process = ArmProcess::start(arm)?;
        match process.listen()? {
            Word::Ready => processes.push(process),
            Word::Report(_) => bail!("the process of arm {arm} measured nothing"),
        }
    }
    let mut reports: Vec<Option<Report>> = arms.iter().map(|_| None).collect();
    for round in 1..=iters {
        let mut turn: Vec<usize> = (0..arms.len()).collect();
        if order == Order::Random {
            shuffle(&mut turn, &mut seed);
            let names: Vec<&str> = turn.iter().map(|&arm| arms[arm].name()).collect();
            eprintln!("round {round}: {}", names.join(", "));
        }
        for arm in turn {
            processes[arm].go()?;
            if let Word::Report(report) = processes[arm].listen()? {
                reports[arm] = Some(*report);
            }
        }
    }
    let found: Option<Vec<Report>> = reports.into_iter().collect();
    found.context("an arm did not report after its last iteration")
}

/// Puts the items into an order that follows from the seed, which it moves on.
pub(crate) fn shuffle<T>(items: &mut [T], seed: &mut u64) {
    for end in (1..items.len()).rev() {
        // splitmix64
        *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = *seed;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^= x >> 31;
        items.swap(end, (x % (end as u64 + 1)) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_follow_from_the_seed() {
        let order = |mut seed: u64| {
            let mut items = [0, 1, 2, 3];
            shuffle(&mut items, &mut seed);
            items
        };
        assert_eq!(order(1), order(1));
        let orders: std::collections::BTreeSet<[i32; 4]> = (0..200).map(order).collect();
        assert_eq!(orders.len(), 24, "every order occurs");
        // The seed moves on: rounds differ.
        let mut seed = 3;
        let rounds: std::collections::BTreeSet<_> = (0..8)
            .map(|_| {
                let mut items = [0, 1, 2, 3];
                shuffle(&mut items, &mut seed);
                items
            })
            .collect();
        assert!(rounds.len() > 3);
    }
}
