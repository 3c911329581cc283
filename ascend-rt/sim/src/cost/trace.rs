// SPDX-License-Identifier: MIT OR Apache-2.0

//! The timeline in the trace format of Chrome, which Perfetto opens: a process for each core, a thread for each pipe.

use std::io::{self, Write};

use super::kinds::*;
use super::path::{call, place};
use super::{Limit, Program, Timeline};

/// `text` as a JSON string, quotes included.
pub(super) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            // A script element must not end inside a string.
            '<' => out.push_str("\\u003c"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

pub(super) fn limit_name(limit: Limit) -> &'static str {
    match limit {
        Limit::None => "",
        Limit::Latency => "latency",
        Limit::Port => "port",
        Limit::Hbm => "HBM",
        Limit::L2 => "L2",
    }
}

/// The thread on which a record appears, if it takes time there.
pub(super) fn lane(record: &crate::abi::Record) -> Option<u8> {
    match record.kind {
        INSTRUCTION => Some(record.pipe),
        WAIT_FLAG => Some(record.pipe2),
        CROSS_WAIT if record.pipe == ALL_PIPES => Some(S),
        CROSS_WAIT => Some(record.pipe),
        BARRIER if record.pipe == ALL_PIPES => Some(S),
        SYNC_ALL | SCALAR => Some(S),
        _ => None,
    }
}

/// Writes the timeline. Times are microseconds; an event is written when its turn comes, so the size of the launch does
/// not matter. `program` must be the one that was simulated.
pub fn write_chrome_trace(out: &mut impl Write, program: &Program, timeline: &Timeline) -> io::Result<()> {
    let us = |cycles: f64| timeline.us(cycles + timeline.launch_cycles);
    writeln!(out, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"chip\":{}}},", quote(&timeline.chip))?;
    write!(out, "\"traceEvents\":[")?;
    let mut first = true;
    let mut comma = |out: &mut dyn Write| -> io::Result<()> {
        let sep = if std::mem::take(&mut first) { "\n" } else { ",\n" };
        out.write_all(sep.as_bytes())
    };
    if timeline.launch_cycles > 0.0 {
        comma(out)?;
        write!(
            out,
            "{{\"ph\":\"X\",\"pid\":{0},\"tid\":0,\"name\":\"launch\",\"ts\":0,\"dur\":{1:.4}}}",
            timeline.cores.len(),
            timeline.us(timeline.launch_cycles)
        )?;
    }
    let mut flow = 0u64;
    for (i, (core, done)) in program.cores.iter().zip(&timeline.cores).enumerate() {
        comma(out)?;
        let name = quote(&done.name);
        write!(out, "{{\"ph\":\"M\",\"pid\":{i},\"name\":\"process_name\",\"args\":{{\"name\":{name}}}}}")?;
        comma(out)?;
        write!(out, "{{\"ph\":\"M\",\"pid\":{i},\"name\":\"process_sort_index\",\"args\":{{\"sort_index\":{i}}}}}")?;
        for (pipe, name) in PIPE_NAMES.iter().enumerate().filter(|(p, _)| done.busy[*p] > 0.0) {
            comma(out)?;
            write!(
                out,
                "{{\"ph\":\"M\",\"pid\":{i},\"tid\":{pipe},\"name\":\"thread_name\",\"args\":{{\"name\":\"{name}\"}}}}"
            )?;
        }
        for (j, (r, span)) in core.records.iter().zip(&done.spans).enumerate() {
            let Some(pipe) = lane(r) else { continue };
            let wait = matches!(r.kind, WAIT_FLAG | CROSS_WAIT);
            let cause = if pipe == S { span.issue_cause } else { span.end_cause };
            if r.kind == CROSS_WAIT
                && let Some((other, set, true)) = cause.parts()
                && other != i
            {
                let from = &timeline.cores[other].spans[set];
                let from_pipe = program.cores[other].records[set].pipe;
                flow += 1;
                comma(out)?;
                write!(
                    out,
                    "{{\"ph\":\"s\",\"id\":{flow},\"pid\":{other},\"tid\":{from_pipe},\"ts\":{:.4},\
                     \"cat\":\"flag\",\"name\":\"flag\"}}",
                    us(from.end)
                )?;
                comma(out)?;
                write!(
                    out,
                    "{{\"ph\":\"f\",\"bp\":\"e\",\"id\":{flow},\"pid\":{i},\"tid\":{pipe},\"ts\":{:.4},\
                     \"cat\":\"flag\",\"name\":\"flag\"}}",
                    us(span.end)
                )?;
            }
            if span.end <= span.start {
                continue;
            }
            comma(out)?;
            write!(
                out,
                "{{\"ph\":\"X\",\"pid\":{i},\"tid\":{pipe},\"ts\":{:.4},\"dur\":{:.4},\"cat\":\"{}\",\"name\":{},\
                 \"args\":{{\"at\":{}",
                us(span.start),
                timeline.us(span.end - span.start),
                if wait { "wait" } else { "work" },
                quote(&call(program, i, j)),
                quote(&place(program, i, j))
            )?;
            if r.kind == INSTRUCTION {
                write!(out, ",\"a\":[{},{},{},{}]", r.a[0], r.a[1], r.a[2], r.a[3])?;
            }
            if span.limit != Limit::None {
                write!(out, ",\"limit\":\"{}\"", limit_name(span.limit))?;
            }
            write!(out, "}}}}")?;
        }
    }
    writeln!(out, "\n]}}")
}
