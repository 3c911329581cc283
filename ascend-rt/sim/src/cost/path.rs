// SPDX-License-Identifier: MIT OR Apache-2.0

//! Why it takes as long as it takes: the critical path, and what pipes wait for, in numbers and in words.

use std::collections::HashMap;

use super::kinds::*;
use super::{Limit, Node, Program, Timeline};

/// A piece of the critical path: from the moment that it waited for to the moment that the next piece waited for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Index of the core.
    pub core: usize,
    /// Index of its record.
    pub record: usize,
    /// The pipe that was at work, in the order of [`super::PIPES`]; 0, the scalar unit, when the issue took the time.
    pub pipe: usize,
    /// In cycles.
    pub from: f64,
    /// In cycles.
    pub to: f64,
    /// What limited a copy.
    pub limit: Limit,
}

/// All pieces of the critical path that a call at one place of the source has on one pipe of one core.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// "AIC 3", "AIV 7".
    pub core: String,
    /// "S", "MTE2", ...
    pub pipe: &'static str,
    /// The call.
    pub call: String,
    /// File and line.
    pub site: String,
    /// What limited a copy, most of the time.
    pub limit: Limit,
    /// Sum of the pieces.
    pub cycles: f64,
}

/// All the time that one pipe of one core stood still at one place for one flag.
#[derive(Clone, Debug, PartialEq)]
pub struct Wait {
    /// "AIC 3", "AIV 7".
    pub core: String,
    /// The pipe that waited.
    pub pipe: &'static str,
    /// What for.
    pub flag: String,
    /// File and line.
    pub site: String,
    /// Sum.
    pub cycles: f64,
}

fn site(program: &Program, index: u32) -> String {
    program.sites.get(index as usize).map_or_else(String::new, |(file, line)| {
        let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
        format!("{name}:{line}")
    })
}

fn pipe_of(program: &Program, core: usize, record: usize) -> usize {
    let r = &program.cores[core].records[record];
    let pipe = if r.kind == WAIT_FLAG { r.pipe2 } else { r.pipe };
    if matches!(r.kind, SCALAR | SYNC_ALL) || usize::from(pipe) >= PIPES { 0 } else { usize::from(pipe) }
}

pub(super) fn call(program: &Program, core: usize, record: usize) -> String {
    let r = &program.cores[core].records[record];
    let name = |pipe: u8| PIPE_NAMES.get(usize::from(pipe)).copied().unwrap_or("ALL");
    match r.kind {
        SET_FLAG => format!("SetFlag {}_{} {}", name(r.pipe), name(r.pipe2), r.id),
        WAIT_FLAG => format!("WaitFlag {}_{} {}", name(r.pipe), name(r.pipe2), r.id),
        BARRIER => format!("PipeBarrier {}", name(r.pipe)),
        CROSS_SET => format!("CrossCoreSetFlag {}", r.id),
        CROSS_WAIT => format!("CrossCoreWaitFlag {}", r.id),
        SYNC_ALL => "SyncAll".to_owned(),
        _ => program.names.get(usize::from(r.api)).cloned().unwrap_or_default(),
    }
}

pub(super) fn place(program: &Program, core: usize, record: usize) -> String {
    site(program, program.cores[core].records[record].site)
}

impl Limit {
    fn words(self) -> &'static str {
        match self {
            Limit::None => "",
            Limit::Latency => "the latency of memory",
            Limit::Port => "the core's own port",
            Limit::Hbm => "HBM, which the cores share",
            Limit::L2 => "the L2 cache, which the cores share",
        }
    }
}

impl Timeline {
    fn time(&self, node: Node) -> f64 {
        let Some((core, record, end)) = node.parts() else { return 0.0 };
        let span = &self.cores[core].spans[record];
        if end { span.end } else { span.issue }
    }

    /// The critical path, last piece first: each begins when what it waited for came, and the pieces fill the time from 0
    /// to [`Timeline::cycles`] without a gap. `program` must be the one that was simulated.
    pub fn critical_path(&self, program: &Program) -> Vec<Step> {
        self.walk(program).into_iter().map(|(step, _)| step).collect()
    }

    /// The critical path, and of each piece the flag that its beginning waited for, as core and record.
    fn walk(&self, program: &Program) -> Vec<(Step, Option<(usize, usize)>)> {
        let mut steps: Vec<(Step, Option<(usize, usize)>)> = Vec::new();
        let latest = |best: Option<usize>, i: usize| match best {
            Some(b) if self.cores[b].end >= self.cores[i].end => Some(b),
            _ => Some(i),
        };
        let Some(last) = (0..self.cores.len()).fold(None, latest) else { return steps };
        let mut to = self.cores[last].end;
        let mut node = self.cores[last].last;
        while let Some((core, record, end)) = node.parts() {
            let span = &self.cores[core].spans[record];
            let cause = if end { span.end_cause } else { span.issue_cause };
            let from = self.time(cause).min(to);
            let kind = program.cores[core].records[record].kind;
            if matches!(kind, WAIT_FLAG | CROSS_WAIT)
                && let Some((_, flag)) = steps.last_mut()
                && flag.is_none()
            {
                *flag = Some((core, record));
            }
            if to > from {
                let pipe = if end { pipe_of(program, core, record) } else { 0 };
                let limit = if end { span.limit } else { Limit::None };
                // The way of a flag from pipe to pipe is a piece of its own.
                let flag = matches!(kind, WAIT_FLAG | CROSS_WAIT).then_some((core, record));
                steps.push((Step { core, record, pipe, from, to, limit }, flag));
            }
            to = from;
            node = cause;
        }
        steps
    }

    /// The critical path by core, pipe and place, largest first.
    pub fn shares(&self, program: &Program) -> Vec<Share> {
        #[derive(Default)]
        struct Sum {
            cycles: f64,
            record: usize,
            by_limit: [f64; 5],
        }
        let mut sums: HashMap<(usize, usize, u32, u16, u8), Sum> = HashMap::new();
        for step in self.critical_path(program) {
            let r = &program.cores[step.core].records[step.record];
            let api = if r.kind == INSTRUCTION { r.api } else { 0 };
            let sum = sums.entry((step.core, step.pipe, r.site, api, r.kind)).or_default();
            sum.cycles += step.to - step.from;
            sum.record = step.record;
            sum.by_limit[step.limit as usize] += step.to - step.from;
        }
        let limits = [Limit::None, Limit::Latency, Limit::Port, Limit::Hbm, Limit::L2];
        let mut shares: Vec<Share> = sums
            .into_iter()
            .map(|((core, pipe, at, _, _), Sum { cycles, record, by_limit })| {
                let limit = limits
                    .into_iter()
                    .fold(Limit::None, |a, b| if by_limit[b as usize] > by_limit[a as usize] { b } else { a });
                Share {
                    core: self.cores[core].name.clone(),
                    pipe: PIPE_NAMES[pipe],
                    call: call(program, core, record),
                    site: site(program, at),
                    limit,
                    cycles,
                }
            })
            .collect();
        shares.sort_by(|a, b| b.cycles.total_cmp(&a.cycles).then_with(|| (&a.core, &a.site).cmp(&(&b.core, &b.site))));
        shares
    }

    /// Where the pipes stood still at flags, largest first.
    pub fn waits(&self, program: &Program) -> Vec<Wait> {
        let mut sums: HashMap<(usize, u32, u8, u8, u8, u8), f64> = HashMap::new();

        for (i, (core, done)) in program.cores.iter().zip(&self.cores).enumerate() {
            for (r, span) in core.records.iter().zip(&done.spans) {
                if matches!(r.kind, WAIT_FLAG | CROSS_WAIT) && span.end > span.start {
                    let id = if r.kind == CROSS_WAIT { r.id } else { 0 };
                    *sums.entry((i, r.site, r.kind, r.pipe, r.pipe2, id)).or_default() += span.end - span.start;
                }
            }
        }
        let mut waits: Vec<Wait> = sums
            .into_iter()
            .map(|((core, at, kind, pipe, pipe2, id), cycles)| {
                let name = |pipe: u8| PIPE_NAMES.get(usize::from(pipe)).copied().unwrap_or("S");
                let (waiter, flag) = if kind == WAIT_FLAG {
                    (name(pipe2), format!("flag {}->{}", name(pipe), name(pipe2)))
                } else {
                    (name(pipe), format!("cross-core flag {id}"))
                };
                Wait { core: self.cores[core].name.clone(), pipe: waiter, flag, site: site(program, at), cycles }
            })
            .collect();
        waits.sort_by(|a, b| {
            b.cycles.total_cmp(&a.cycles).then_with(|| (&a.core, a.pipe, &a.site).cmp(&(&b.core, b.pipe, &b.site)))
        });
        waits
    }

    /// The time that the critical path spends away from a pipe, by the flag that led it away.
    fn detours(&self, program: &Program, walk: &[(Step, Option<(usize, usize)>)], pipe: usize) -> Vec<(String, f64)> {
        let told = |(core, record): (usize, usize)| {
            let r = &program.cores[core].records[record];
            let name = |pipe: u8| PIPE_NAMES.get(usize::from(pipe)).copied().unwrap_or("S");
            let what = match r.kind {
                WAIT_FLAG => format!("The flag {}->{}", name(r.pipe), name(r.pipe2)),
                _ => format!("The cross-core flag {}", r.id),
            };
            format!("{what} at {}", site(program, r.site))
        };
        let mut sums: HashMap<(usize, usize), f64> = HashMap::new();
        // The path is walked backwards: the first flag on the way out is the one that was waited for last. A flag from
        // another core says more than those of the way to it.
        let crosses = |(core, record): (usize, usize)| program.cores[core].records[record].kind == CROSS_WAIT;
        let (mut led, mut away) = (None, 0.0);
        for (step, flag) in walk {
            if step.pipe == pipe {
                if let Some(flag) = led {
                    *sums.entry(flag).or_default() += away;
                }
                (led, away) = (*flag, 0.0);
            } else {
                away += step.to - step.from;
                if led.is_none() || flag.is_some_and(crosses) && !led.is_some_and(crosses) {
                    led = *flag;
                }
            }
        }
        if let Some(flag) = led {
            *sums.entry(flag).or_default() += away;
        }
        let mut by_text: HashMap<String, f64> = HashMap::new();
        for (flag, cycles) in sums {
            *by_text.entry(told(flag)).or_default() += cycles;
        }
        let mut out: Vec<_> = by_text.into_iter().collect();
        out.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        out
    }

    /// The result in sentences: the time, the bound, the bottleneck, the costliest places and waits.
    pub fn summary(&self, program: &Program) -> Vec<String> {
        let mut out = Vec::new();
        if self.cycles <= 0.0 {
            out.push("Nothing was recorded that takes time.".to_owned());
            return out;
        }
        let percent = |cycles: f64| 100.0 * cycles / self.cycles;
        let launch = if self.launch_cycles > 0.0 {
            format!(", {:.1} us of them for the launch", self.us(self.launch_cycles))
        } else {
            String::new()
        };
        out.push(format!("Predicted: {:.2} us on {}{launch}.", self.microseconds(), self.chip));
        let bounds: Vec<String> = ["HBM", "L2", "cube", "vector"]
            .iter()
            .zip(self.bounds)
            .filter(|(_, cycles)| *cycles > 0.0)
            .map(|(name, cycles)| format!("{name} {:.1}", self.us(cycles)))
            .collect();
        out.push(format!(
            "No less than {:.1} us ({}) is possible with this traffic and these instructions [us alone: {}]; {:.0} % of \
             that bound is reached.",
            self.us(self.bounds.iter().copied().fold(0.0, f64::max)),
            self.bound().name(),
            bounds.join(", "),
            100.0 * self.bound_reached()
        ));
        let walk = self.walk(program);
        let mut by_pipe: HashMap<(usize, usize), f64> = HashMap::new();
        let mut by_kind = [0.0; PIPES];
        for (step, _) in &walk {
            *by_pipe.entry((step.core, step.pipe)).or_default() += step.to - step.from;
            by_kind[step.pipe] += step.to - step.from;
        }
        let main = (0..PIPES).fold(0, |best, i| if by_kind[i] > by_kind[best] { i } else { best });
        let of_main = by_pipe.iter().filter(|((_, pipe), _)| *pipe == main);
        let worst = of_main.max_by(|a, b| a.1.total_cmp(b.1).then_with(|| b.0.cmp(a.0)));
        if let Some((&(core, pipe), _)) = worst {
            let mut by_limit = [0.0; 5];
            for (step, _) in walk.iter().filter(|(s, _)| s.pipe == pipe) {
                by_limit[step.limit as usize] += step.to - step.from;
            }
            let limits = [Limit::None, Limit::Latency, Limit::Port, Limit::Hbm, Limit::L2];
            let main = limits.into_iter().max_by(|a, b| by_limit[*a as usize].total_cmp(&by_limit[*b as usize]));
            let why = match main {
                Some(limit) if limit != Limit::None => format!(", limited by {}", limit.words()),
                _ => String::new(),
            };
            out.push(format!(
                "{} is the bottleneck {:.0} % of the time, {} most of all{why}.",
                PIPE_NAMES[pipe],
                percent(by_kind[pipe]),
                self.cores[core].name
            ));
        }
        for (flag, cycles) in self.detours(program, &walk, main).iter().take(3).filter(|(_, c)| percent(*c) >= 1.0) {
            out.push(format!("{flag} costs {:.0} %: {} stands still meanwhile.", percent(*cycles), PIPE_NAMES[main]));
        }
        let mut calls: HashMap<(&'static str, String, String), f64> = HashMap::new();
        for share in self.shares(program) {
            *calls.entry((share.pipe, share.call, share.site)).or_default() += share.cycles;
        }
        let mut calls: Vec<_> = calls.into_iter().collect();
        calls.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        for ((pipe, call, site), cycles) in calls.iter().take(5).filter(|(_, c)| percent(*c) >= 1.0) {
            out.push(format!("{call} at {site} ({pipe}) is {:.0} % of the critical path.", percent(*cycles)));
        }
        // That a store waits for its data says little; that the computing units wait does.
        let told =
            |w: &&Wait| percent(w.cycles) >= 1.0 && (w.pipe == "V" || w.pipe == "M" || w.pipe == PIPE_NAMES[main]);
        let mut seen = std::collections::HashSet::new();
        let waits = self.waits(program);
        let once = |w: &&Wait| seen.insert((w.pipe, w.flag.clone(), w.site.clone()));
        for wait in waits.iter().filter(told).filter(once).take(3) {
            out.push(format!(
                "{} of {} waits {:.0} % of the time for the {} at {}.",
                wait.pipe,
                wait.core,
                percent(wait.cycles),
                wait.flag,
                wait.site
            ));
        }
        if !self.fallbacks.is_empty() {
            let names: Vec<&str> = self.fallbacks.iter().map(|f| f.name.as_str()).collect();
            out.push(format!("No cycle counts are known for {}: taken as middling.", names.join(", ")));
        }
        out
    }
}
