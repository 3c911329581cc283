// SPDX-License-Identifier: MIT OR Apache-2.0

//! The timeline of a machine, on the virtual clock, in the format of Chrome's trace viewer.

use core::fmt::Write as _;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::sync::lock;

/// What a piece of the timeline is called.
#[derive(Clone, Debug)]
pub(super) enum Name {
    Static(&'static str),
    /// Module and kernel.
    Kernel(Arc<str>, Arc<str>),
    Text(Arc<str>),
}

impl Name {
    fn write(&self, out: &mut String) {
        match self {
            Name::Static(text) => escape(out, text),
            Name::Kernel(module, kernel) => {
                escape(out, module);
                out.push_str("::");
                escape(out, kernel);
            }
            Name::Text(text) => escape(out, text),
        }
    }
}

/// On which row of the timeline something lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Row {
    /// A stream of a device: device, stream number.
    Stream(u32, i32),
    /// One stream of a graph that a stream replays: device, stream number, lane.
    Lane(u32, i32, u32),
    /// A thread of the host.
    Host(u64),
}

#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) row: Row,
    pub(super) name: Name,
    pub(super) category: &'static str,
    pub(super) start: u64,
    /// Nanoseconds; none for a mark.
    pub(super) length: Option<u64>,
    pub(super) bytes: u64,
    pub(super) blocks: u32,
    pub(super) failed: i32,
}

/// The recorder. While it is off, nothing is kept and nothing allocated.
pub(super) struct Trace {
    on: AtomicBool,
    pieces: Mutex<Vec<Piece>>,
}

impl Trace {
    pub(super) fn new(on: bool) -> Trace {
        Trace { on: AtomicBool::new(on), pieces: Mutex::new(Vec::new()) }
    }

    pub(super) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    pub(super) fn add(&self, piece: impl FnOnce() -> Piece) {
        if self.is_on() {
            lock(&self.pieces).push(piece());
        }
    }

    pub(super) fn json(&self) -> String {
        let mut pieces = lock(&self.pieces).clone();
        // Executors finish tasks in different orders; the timeline does not show that.
        pieces.sort_by_key(|piece| (piece.start, piece.row, piece.length.unwrap_or(0)));
        render(&pieces)
    }
}

fn render(pieces: &[Piece]) -> String {
    let mut out = String::from("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
    let mut rows: Vec<Row> = pieces.iter().map(|piece| piece.row).collect();
    rows.sort_unstable();
    rows.dedup();
    let mut first = true;
    let mut comma = |out: &mut String| {
        if !core::mem::take(&mut first) {
            out.push(',');
        }
        out.push('\n');
    };
    let mut last_process = None;
    for row in &rows {
        let (pid, tid) = place(*row);
        let (process, thread) = match row {
            Row::Stream(device, stream) => (format!("device {device}"), format!("stream {stream}")),
            Row::Lane(device, stream, lane) => {
                (format!("device {device}"), format!("stream {stream}, graph stream {lane}"))
            }
            Row::Host(thread) => ("host".to_owned(), format!("thread {thread}")),
        };
        if last_process != Some(pid) {
            last_process = Some(pid);
            comma(&mut out);
            let _ = write!(
                out,
                "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{pid},\"args\":{{\"name\":\"{process}\"}}}}"
            );
        }
        comma(&mut out);
        let _ = write!(
            out,
            "{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{pid},\"tid\":{tid},\"args\":{{\"name\":\"{thread}\"}}}}"
        );
    }
    for piece in pieces {
        let (pid, tid) = place(piece.row);
        comma(&mut out);
        out.push_str("{\"name\":\"");
        piece.name.write(&mut out);
        let _ = write!(out, "\",\"cat\":\"{}\",\"pid\":{pid},\"tid\":{tid},\"ts\":{}", piece.category, Us(piece.start));
        match piece.length {
            Some(length) => {
                let _ = write!(out, ",\"ph\":\"X\",\"dur\":{}", Us(length));
            }
            None => out.push_str(",\"ph\":\"i\",\"s\":\"t\""),
        }
        let mut separator = ",\"args\":{";
        for (name, value) in
            [("bytes", piece.bytes), ("blocks", u64::from(piece.blocks)), ("error", piece.failed.unsigned_abs().into())]
        {
            if value > 0 {
                let _ = write!(out, "{separator}\"{name}\":{value}");
                separator = ",";
            }
        }
        out.push_str(if separator == "," { "}}" } else { "}" });
    }
    out.push_str("\n]}\n");
    out
}

/// Process and thread number of a row.
fn place(row: Row) -> (u64, u64) {
    match row {
        Row::Host(thread) => (0, thread),
        Row::Stream(device, stream) => (u64::from(device) + 1, u64::from(stream.unsigned_abs()) * 100_000),
        Row::Lane(device, stream, lane) => {
            (u64::from(device) + 1, u64::from(stream.unsigned_abs()) * 100_000 + 1 + u64::from(lane))
        }
    }
}

/// Nanoseconds as microseconds, exactly.
struct Us(u64);

impl core::fmt::Display for Us {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// A text inside a JSON string.
fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if u32::from(c) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_sorted_rows_named_and_texts_escaped() {
        let trace = Trace::new(false);
        let piece = |start, length, name| Piece {
            row: Row::Stream(0, 3),
            name,
            category: "kernel",
            start,
            length,
            bytes: 8,
            blocks: 0,
            failed: 0,
        };
        trace.add(|| unreachable!("off"));
        trace.set(true);
        trace.add(|| piece(2_500, None, Name::Text("a\"b\\c\n".into())));
        trace.add(|| piece(1_001, Some(7), Name::Kernel("m".into(), "k".into())));
        trace.set(false);
        trace.add(|| unreachable!("off again"));
        assert_eq!(
            trace.json(),
            concat!(
                "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n",
                "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1,\"args\":{\"name\":\"device 0\"}},\n",
                "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":300000,\"args\":{\"name\":\"stream 3\"}},\n",
                "{\"name\":\"m::k\",\"cat\":\"kernel\",\"pid\":1,\"tid\":300000,\"ts\":1.001,\"ph\":\"X\",\"dur\":0.007,",
                "\"args\":{\"bytes\":8}},\n",
                "{\"name\":\"a\\\"b\\\\c\\u000a\",\"cat\":\"kernel\",\"pid\":1,\"tid\":300000,\"ts\":2.500,",
                "\"ph\":\"i\",\"s\":\"t\",\"args\":{\"bytes\":8}}\n]}\n"
            )
        );
    }

    #[test]
    fn an_empty_timeline_is_valid() {
        assert_eq!(Trace::new(true).json(), "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n]}\n");
    }
}
