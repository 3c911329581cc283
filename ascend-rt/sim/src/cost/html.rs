// SPDX-License-Identifier: MIT OR Apache-2.0

//! The timeline as one HTML file that needs nothing else, not even a server.

use std::collections::HashMap;
use std::io::{self, Write};

use super::kinds::*;
use super::path::{call, place};
use super::trace::{lane, limit_name, quote};
use super::{CoreProgram, CoreTimeline, Limit, Program, Timeline};

const PAGE: &str = include_str!("view.html");
/// Where the data goes.
const MARK: &str = "/*DATA*/";
/// Spans of one picture. More than a lane's part of them are drawn as shares of intervals.
const SPANS: usize = 200_000;

/// Kinds of spans beside the shares, which are 2 and the percentage.
const WORK: u32 = 0;
const WAIT: u32 = 1;
const SHARE: u32 = 2;

#[derive(Clone, Copy)]
struct Block {
    start: f64,
    cycles: f64,
    label: u32,
    kind: u32,
}

/// Texts that many spans share.
#[derive(Default)]
struct Labels {
    texts: Vec<String>,
    known: HashMap<(u8, u16, u32, u8, u8), u32>,
}

impl Labels {
    fn of(&mut self, program: &Program, core: usize, record: usize, limit: Limit) -> u32 {
        let r = &program.cores[core].records[record];
        let pipes = if matches!(r.kind, WAIT_FLAG | CROSS_WAIT) { r.pipe << 3 | r.pipe2 } else { 0 };
        let what = if r.kind == INSTRUCTION { r.api } else { u16::from(r.id) };
        let texts = &mut self.texts;
        *self.known.entry((r.kind, what, r.site, limit as u8, pipes)).or_insert_with(|| {
            let mut text = format!("{}\n{}", call(program, core, record), place(program, core, record));
            if limit != Limit::None {
                text.push_str(&format!("\nlimited by {}", limit_name(limit)));
            }
            texts.push(text);
            texts.len() as u32 - 1
        })
    }
}

fn is_wait(kind: u8) -> bool {
    matches!(kind, WAIT_FLAG | CROSS_WAIT)
}

fn lane_records<'a>(
    core: &'a CoreProgram,
    done: &'a CoreTimeline,
    pipe: u8,
) -> impl Iterator<Item = (usize, f64, f64, Limit, bool)> + 'a {
    core.records.iter().zip(&done.spans).enumerate().filter_map(move |(i, (r, span))| {
        let shown = lane(r) == Some(pipe) && span.end > span.start;
        shown.then_some((i, span.start, span.end, span.limit, is_wait(r.kind)))
    })
}

/// The spans of a lane in intervals: of each, how much of it was work, and what most of that was.
fn shares(spans: &[Block], from: f64, to: f64, intervals: usize) -> Vec<Block> {
    let width = (to - from) / intervals as f64;
    let mut sums: Vec<HashMap<u32, f64>> = vec![HashMap::new(); intervals];
    let at = |t: f64| (((t - from) / width) as usize).min(intervals - 1);
    for span in spans.iter().filter(|s| s.kind == WORK) {
        let end = span.start + span.cycles;
        for i in at(span.start)..=at(end) {
            let begin = from + i as f64 * width;
            let part = end.min(begin + width) - span.start.max(begin);
            if part > 0.0 {
                *sums[i].entry(span.label).or_default() += part;
            }
        }
    }
    let mut out: Vec<Block> = Vec::new();
    for (i, by) in sums.iter().enumerate() {
        let most = by.iter().max_by(|a, b| a.1.total_cmp(b.1).then_with(|| b.0.cmp(a.0)));
        let Some((&label, _)) = most else { continue };
        let share = (100.0 * by.values().sum::<f64>() / width).round().clamp(0.0, 100.0) as u32;
        let block = Block { start: from + i as f64 * width, cycles: width, label, kind: SHARE + share };
        match out.last_mut() {
            Some(last)
                if (last.label, last.kind) == (label, block.kind)
                    && (block.start - last.start - last.cycles).abs() < 0.01 * width =>
            {
                last.cycles += width;
            }
            _ => out.push(block),
        }
    }
    out
}

/// Writes the picture: a summary and, for each core, a lane for each pipe that worked, to zoom and to point at.
/// `program` must be the one that was simulated.
pub fn write_html(out: &mut impl Write, program: &Program, timeline: &Timeline) -> io::Result<()> {
    let (head, tail) = PAGE.split_once(MARK).unwrap_or((PAGE, ""));
    out.write_all(head.as_bytes())?;
    write_data(out, program, timeline)?;
    out.write_all(tail.as_bytes())
}

fn write_data(out: &mut impl Write, program: &Program, timeline: &Timeline) -> io::Result<()> {
    let us = |cycles: f64| timeline.us(cycles);
    write!(
        out,
        "{{\"chip\":{},\"total\":{:.4},\"work\":{:.4},\"end\":{:.4},\"pipes\":[",
        quote(&timeline.chip),
        timeline.microseconds(),
        us(timeline.cycles).max(1e-9),
        us(timeline.cycles)
    )?;
    for (i, name) in PIPE_NAMES.iter().enumerate() {
        write!(out, "{}\"{name}\"", if i == 0 { "" } else { "," })?;
    }
    write!(out, "],\"words\":[")?;
    for (i, text) in timeline.summary(program).iter().enumerate() {
        write!(out, "{}{}", if i == 0 { "" } else { "," }, quote(text))?;
    }
    let [hbm, l2, cube, vector] = timeline.bounds.map(us);
    write!(out, "],\"bounds\":[{hbm:.4},{l2:.4},{cube:.4},{vector:.4}],\"busy\":[")?;
    let mut sep = "";
    for (name, cube) in [("AIC", true), ("AIV", false)] {
        if !timeline.cores.iter().any(|c| c.cube == cube) {
            continue;
        }
        write!(out, "{sep}[\"{name}\",[")?;
        sep = ",";
        for pipe in 0..PIPES {
            write!(out, "{}{:.4}", if pipe == 0 { "" } else { "," }, us(timeline.mean_busy(cube, pipe)))?;
        }
        write!(out, "]]")?;
    }
    let counts = |i: usize| {
        let mut n = [0usize; PIPES];
        for (r, span) in program.cores[i].records.iter().zip(&timeline.cores[i].spans) {
            if let Some(pipe) = lane(r)
                && span.end > span.start
                && usize::from(pipe) < PIPES
            {
                n[usize::from(pipe)] += 1;
            }
        }
        n
    };
    let cores = program.cores.len().min(timeline.cores.len());
    let counts: Vec<_> = (0..cores).map(counts).collect();
    let lanes = counts.iter().flatten().filter(|n| **n > 0).count().max(1);
    let total: usize = counts.iter().flatten().sum();
    let budget = if total <= SPANS { usize::MAX } else { (SPANS / lanes).max(64) };
    let mut labels = Labels::default();
    let mut merged = false;
    write!(out, "],\"cores\":[")?;
    for (i, n) in counts.iter().enumerate() {
        let (core, done) = (&program.cores[i], &timeline.cores[i]);
        write!(out, "{}\n{{\"name\":{},\"lanes\":[", if i == 0 { "" } else { "," }, quote(&done.name))?;
        let mut sep = "";
        for pipe in (0..PIPES).filter(|&p| n[p] > 0) {
            let spans = lane_records(core, done, pipe as u8).map(|(record, start, end, limit, wait)| Block {
                start,
                cycles: end - start,
                label: labels.of(program, i, record, limit),
                kind: if wait { WAIT } else { WORK },
            });
            let mut spans: Vec<Block> = spans.collect();
            spans.sort_by(|a, b| a.start.total_cmp(&b.start));
            if spans.len() > budget {
                spans = shares(&spans, done.begin, done.end, budget);
                merged = true;
            }
            write!(out, "{sep}{{\"pipe\":{pipe},\"spans\":[")?;
            sep = ",";
            for (j, s) in spans.iter().enumerate() {
                let comma = if j == 0 { "" } else { "," };
                write!(out, "{comma}{:.4},{:.4},{},{}", us(s.start), us(s.cycles), s.label, s.kind)?;
            }
            write!(out, "]}}")?;
        }
        write!(out, "]}}")?;
    }
    write!(out, "],\"merged\":{merged},\"labels\":[")?;
    for (i, text) in labels.texts.iter().enumerate() {
        write!(out, "{}{}", if i == 0 { "" } else { "," }, quote(text))?;
    }
    write!(out, "]}}")
}
