// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls of the profiler and of the tools extension. A session records the timeline of the virtual clock; when it
//! stops, the timeline is written as `PROF_<number>/trace.json` below the directory that `aclprofInit` names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::fail::{Answer, Fail};
use super::machine::Machine;
use super::slab::{Key, Kind};
use super::state::Op;
use super::sync::lock;
use super::thread;
use super::trace::{Name, Piece, Row};
use crate::sys::*;

/// The longest path that `aclprofInit` takes.
const MAX_PATH: usize = 4096;
/// The longest value of a setting.
const MAX_SETTING: usize = 256;
/// The longest mark in a stream.
const MAX_MARK: usize = 127;

struct Session {
    devices: Vec<u32>,
    running: bool,
}

struct Range {
    text: Arc<str>,
    start: u64,
    thread: u64,
}

#[derive(Default)]
pub(super) struct Profiler {
    path: Option<PathBuf>,
    next: u32,
    configs: BTreeMap<u64, Session>,
    stamps: BTreeMap<u64, Arc<str>>,
    /// Ranges that any thread may end, by number.
    ranges: BTreeMap<u64, Range>,
    next_range: u64,
    /// Ranges of each thread, the last one ends first.
    pushed: Vec<Range>,
    domains: BTreeMap<u64, Arc<str>>,
}

impl Profiler {
    fn key(&mut self, emulator: u32, kind: Kind) -> Key {
        self.next = self.next.wrapping_add(1);
        Key::new(kind, emulator, self.next >> 20, self.next & 0xF_FFFF)
    }

    fn running(&self) -> bool {
        self.configs.values().any(|session| session.running)
    }
}

fn wrong<T>(text: impl Into<std::borrow::Cow<'static, str>>) -> Answer<T> {
    Err(Fail::new(ACL_ERROR_INVALID_PARAM, text))
}

impl Machine {
    fn nothing_captured(&self, what: &str) -> Answer {
        if self.state().captures.len() > 0 {
            return Err(Fail::new(ACL_ERROR_RT_STREAM_CAPTURED, format!("{what} while a stream is captured")));
        }
        Ok(())
    }

    pub(super) fn prof_init(&self, path: &str) -> Answer {
        if path.is_empty() || path.len() > MAX_PATH {
            return wrong(format!("a path of {} bytes, expected 1 to {MAX_PATH}", path.len()));
        }
        let mut profiler = lock(&self.profiler);
        if profiler.path.is_some() {
            return Err(Fail::new(ACL_ERROR_PROF_ALREADY_RUN, "the profiler was initialised before"));
        }
        std::fs::create_dir_all(path).or_else(|error| wrong(format!("{path} cannot be made: {error}")))?;
        profiler.path = Some(path.into());
        Ok(())
    }

    pub(super) fn prof_create(&self, devices: &[u32]) -> Answer<Key> {
        if devices.is_empty() || devices.iter().any(|device| *device as usize >= self.devices.len()) {
            return wrong("a list of devices that is empty or names one that is not there");
        }
        let mut profiler = lock(&self.profiler);
        let key = profiler.key(self.identity.number, Kind::ProfilerConfig);
        profiler.configs.insert(key.0, Session { devices: devices.to_vec(), running: false });
        Ok(key)
    }

    pub(super) fn prof_set(&self, length: usize) -> Answer {
        if length == 0 || length > MAX_SETTING {
            return wrong(format!("a setting of {length} bytes, expected 1 to {MAX_SETTING}"));
        }
        Ok(())
    }

    pub(super) fn prof_start(&self, config: *const aclprofConfig) -> Answer {
        self.nothing_captured("profiling cannot start")?;
        let mut profiler = lock(&self.profiler);
        if profiler.path.is_none() {
            return Err(Fail::new(ACL_ERROR_PROF_NOT_RUN, "the profiler is not initialised"));
        }
        let key = Key::of(config).0;
        let Some(session) = profiler.configs.get(&key) else { return wrong(format!("{config:?} is no configuration")) };
        let taken = profiler
            .configs
            .values()
            .any(|other| other.running && other.devices.iter().any(|device| session.devices.contains(device)));
        if taken {
            return Err(Fail::new(ACL_ERROR_PROF_ALREADY_RUN, "a session for one of the devices runs already"));
        }
        if let Some(session) = profiler.configs.get_mut(&key) {
            session.running = true;
        }
        self.trace.set(true);
        Ok(())
    }

    pub(super) fn prof_stop(&self, config: *const aclprofConfig) -> Answer {
        self.nothing_captured("profiling cannot stop")?;
        let mut profiler = lock(&self.profiler);
        match profiler.configs.get_mut(&Key::of(config).0) {
            Some(session) if session.running => session.running = false,
            Some(_) => return Err(Fail::new(ACL_ERROR_PROF_NOT_RUN, "the session does not run")),
            None => return wrong(format!("{config:?} is no configuration")),
        }
        self.trace.set(self.config.trace || profiler.running());
        let Some(path) = profiler.path.clone() else { return Ok(()) };
        drop(profiler);
        write_session(&path, &self.trace.json())
            .map_err(|error| Fail::new(ACL_ERROR_PROFILING_FAILURE, format!("the trace cannot be written: {error}")))
    }

    pub(super) fn prof_destroy(&self, config: *const aclprofConfig) -> Answer {
        let mut profiler = lock(&self.profiler);
        let key = Key::of(config).0;
        match profiler.configs.get(&key) {
            Some(session) if session.running => {
                Err(Fail::new(ACL_ERROR_PROF_ALREADY_RUN, "the session of the configuration still runs"))
            }
            Some(_) => {
                profiler.configs.remove(&key);
                Ok(())
            }
            None => wrong(format!("{config:?} is no configuration")),
        }
    }

    pub(super) fn prof_finalize(&self) -> Answer {
        let mut profiler = lock(&self.profiler);
        if profiler.path.take().is_none() {
            return Err(Fail::new(ACL_ERROR_PROF_NOT_RUN, "the profiler is not initialised"));
        }
        for session in profiler.configs.values_mut() {
            session.running = false;
        }
        self.trace.set(self.config.trace);
        Ok(())
    }

    pub(super) fn stamp_create(&self) -> Answer<Key> {
        let mut profiler = lock(&self.profiler);
        if !profiler.running() {
            return Err(Fail::new(ACL_ERROR_PROF_NOT_RUN, "no session runs"));
        }
        let key = profiler.key(self.identity.number, Kind::Stamp);
        profiler.stamps.insert(key.0, "".into());
        Ok(key)
    }

    pub(super) fn stamp_text(&self, stamp: Key, text: &str) -> Answer {
        match lock(&self.profiler).stamps.get_mut(&stamp.0) {
            Some(old) => {
                *old = text.into();
                Ok(())
            }
            None => wrong("no such stamp"),
        }
    }

    pub(super) fn stamp_destroy(&self, stamp: Key) {
        lock(&self.profiler).stamps.remove(&stamp.0);
    }

    fn range(&self, text: Arc<str>) -> Range {
        Range { text, start: self.now(), thread: thread::number() }
    }

    fn end_range(&self, range: Range) {
        // The end may be on another thread, whose clock may be behind.
        let length = self.now().saturating_sub(range.start);
        self.trace.add(|| Piece {
            row: Row::Host(range.thread),
            name: Name::Text(range.text),
            category: "range",
            start: range.start,
            length: Some(length),
            bytes: 0,
            blocks: 0,
            failed: 0,
        });
    }

    pub(super) fn range_push(&self, stamp: Key) -> Answer {
        let mut profiler = lock(&self.profiler);
        let Some(text) = profiler.stamps.get(&stamp.0).cloned() else { return wrong("no such stamp") };
        let range = self.range(text);
        profiler.pushed.push(range);
        Ok(())
    }

    pub(super) fn range_pop(&self) -> Answer {
        let me = thread::number();
        let mut profiler = lock(&self.profiler);
        let Some(at) = profiler.pushed.iter().rposition(|range| range.thread == me) else {
            return wrong("no range was pushed on this thread");
        };
        let range = profiler.pushed.remove(at);
        drop(profiler);
        self.end_range(range);
        Ok(())
    }

    fn open_range(&self, profiler: &mut Profiler, text: Arc<str>) -> u64 {
        profiler.next_range += 1;
        let range = self.range(text);
        profiler.ranges.insert(profiler.next_range, range);
        profiler.next_range
    }

    pub(super) fn range_start(&self, stamp: Key) -> Answer<u32> {
        let mut profiler = lock(&self.profiler);
        let Some(text) = profiler.stamps.get(&stamp.0).cloned() else { return wrong("no such stamp") };
        Ok(self.open_range(&mut profiler, text) as u32)
    }

    pub(super) fn range_stop(&self, number: u64) -> Answer {
        let Some(range) = lock(&self.profiler).ranges.remove(&number) else { return wrong("no such range") };
        self.end_range(range);
        Ok(())
    }

    /// A mark in a stream, or on the host without one.
    pub(super) fn mark(self: &Arc<Self>, text: &str, stream: aclrtStream, limited: bool) -> Answer {
        if limited && (text.is_empty() || text.len() > MAX_MARK) {
            return wrong(format!("a mark of {} bytes, expected 1 to {MAX_MARK}", text.len()));
        }
        if !self.trace.is_on() {
            return Ok(());
        }
        if stream.is_null() && !limited {
            let start = self.now();
            self.trace.add(|| Piece {
                row: Row::Host(thread::number()),
                name: Name::Text(text.into()),
                category: "mark",
                start,
                length: None,
                bytes: 0,
                blocks: 0,
                failed: 0,
            });
            return Ok(());
        }
        let text: Arc<str> = text.into();
        self.submit(stream, |_| Ok(Op::Note(text)))
    }

    fn in_domain(&self, domain: Key, text: &str) -> String {
        match lock(&self.profiler).domains.get(&domain.0) {
            Some(name) => format!("{name}: {text}"),
            None => text.to_owned(),
        }
    }

    pub(super) fn tx_domain(&self, name: &str) -> Key {
        let mut profiler = lock(&self.profiler);
        let key = profiler.key(self.identity.number, Kind::Stamp);
        profiler.domains.insert(key.0, name.into());
        key
    }

    pub(super) fn tx_domain_destroy(&self, domain: Key) {
        lock(&self.profiler).domains.remove(&domain.0);
    }

    pub(super) fn tx_mark(self: &Arc<Self>, domain: Key, text: &str, stream: aclrtStream) {
        let text = self.in_domain(domain, text);
        // The call has no answer; a mark that cannot be placed is no mark.
        let _ = self.mark(&text, stream, false);
    }

    /// Begins a range; zero when nothing records.
    pub(super) fn tx_range(&self, domain: Key, text: &str) -> u64 {
        if !self.trace.is_on() {
            return 0;
        }
        let text = self.in_domain(domain, text);
        self.open_range(&mut lock(&self.profiler), text.into())
    }
}

/// Writes a trace into the first directory of the series that is not there yet.
fn write_session(path: &Path, json: &str) -> std::io::Result<()> {
    for number in 1u32.. {
        let session = path.join(format!("PROF_{number:06}"));
        match std::fs::create_dir(&session) {
            Ok(()) => return std::fs::write(session.join("trace.json"), json),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
