// SPDX-License-Identifier: MIT OR Apache-2.0

//! Capture and replay. What a recording stream takes and refuses stands in the documentation of the emulator.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::exec::piece;
use super::fail::{Answer, Fail};
use super::machine::{Machine, usage};
use super::run::{Ran, Site};
use super::slab::Key;
use super::state::{Capture, Graph, GraphSlot, GraphState, Grouping, Lane, Launch, Node, Op, Rng, State, Stream};
use super::sync::lock;
use super::thread;
use super::trace::Row;
use crate::sys::*;

/// What a replay walks through, with what it reuses from one to the next.
pub(super) struct Body {
    nodes: Vec<Node>,
    /// The nodes behind each node: `next[next_start[i]..next_start[i + 1]]`.
    next_start: Vec<u32>,
    next: Vec<u32>,
    /// How many nodes each node comes after.
    needs: Vec<u8>,
    // Reused from one replay to the next:
    open: Vec<u8>,
    ready: Vec<u32>,
    ends: Vec<u64>,
}

impl Body {
    fn new(nodes: Vec<Node>) -> Body {
        let edges = |node: &Node| node.before.into_iter().chain(node.waits_for);
        let mut counts = vec![0u32; nodes.len() + 1];
        for from in nodes.iter().flat_map(edges) {
            counts[from as usize + 1] += 1;
        }
        for i in 0..nodes.len() {
            counts[i + 1] += counts[i];
        }
        let mut next = vec![0; counts[nodes.len()] as usize];
        let mut fill = counts.clone();
        for (to, node) in nodes.iter().enumerate() {
            for from in edges(node) {
                next[fill[from as usize] as usize] = to as u32;
                fill[from as usize] += 1;
            }
        }
        let needs = nodes.iter().map(|node| edges(node).count() as u8).collect();
        let (open, ends) = (vec![0; nodes.len()], vec![0; nodes.len()]);
        let ready = Vec::with_capacity(nodes.len());
        Body { nodes, next_start: counts, next, needs, open, ready, ends }
    }

    /// Exchanges the arguments of launches.
    pub(super) fn update(&mut self, launches: &mut [(u32, Launch)]) {
        for (at, launch) in launches {
            if let Some(Op::Kernel(old)) = self.nodes.get_mut(*at as usize).and_then(|node| node.op.as_mut()) {
                core::mem::swap(old, launch);
            }
        }
    }
}

impl Machine {
    /// Runs a graph. Its branches run in the order of their capture, or shuffled with the seeded executor.
    pub(super) fn run_replay(&self, site: &Site, graph: &Graph) -> Ran {
        let mut body = lock(&graph.body);
        let Body { nodes, next_start, next, needs, open, ready, ends } = &mut *body;
        let planned = self.faults.replay();
        let mut rng = site.shuffle.map(Rng::new);
        open.copy_from_slice(needs);
        ready.clear();
        ready.extend((0..nodes.len() as u32).filter(|at| needs[*at as usize] == 0));
        let (mut cost, mut bytes, mut done) = (0u64, 0u64, 0);
        while done < nodes.len() {
            // A node comes after what it depends on, so the order of the capture is one that fits.
            let at = match &mut rng {
                Some(rng) => ready.swap_remove(rng.below(ready.len())) as usize,
                None => done,
            };
            done += 1;
            let node = &mut nodes[at];
            let before = node.before.into_iter().chain(node.waits_for);
            let mut end = before.map(|from| ends[from as usize]).max().unwrap_or(0);
            if let Some(op) = &mut node.op {
                let shuffle = rng.as_mut().map(Rng::next);
                let begin = site.begin.saturating_add(end);
                let mut ran = self.run(&Site { begin, shuffle, ..*site }, op);
                if let Some(code) = planned.filter(|_| ran.failure.is_none()) {
                    ran.failure = Some(Fail::new(code, "planned to fail"));
                }
                end = end.saturating_add(ran.cost);
                bytes = bytes.saturating_add(ran.bytes);
                let row = Row::Lane(site.device, site.stream_id, node.lane);
                self.trace.add(|| piece(row, op, begin, &ran));
                if let Some(cause) = ran.failure {
                    let text = format!("task {at} of the graph failed with {}: {}", cause.code, cause.text);
                    let failure = Some(Fail::new(ACL_ERROR_RT_MODEL_EXECUTE, text));
                    return Ran { cost: cost.max(end), bytes, failure };
                }
            }
            ends[at] = end;
            cost = cost.max(end);
            if rng.is_some() {
                for to in &next[next_start[at] as usize..next_start[at + 1] as usize] {
                    open[*to as usize] -= 1;
                    if open[*to as usize] == 0 {
                        ready.push(*to);
                    }
                }
            }
        }
        // A graph without work fails all the same when it is planned to.
        let failure = planned.map(|code| {
            Fail::new(ACL_ERROR_RT_MODEL_EXECUTE, format!("the graph failed with {code}: planned to fail"))
        });
        Ran { cost, bytes, failure }
    }

    /// Whether the modes of captures forbid a blocking call to this thread.
    pub(super) fn check_mode(&self, s: &State, code: aclError, what: &str) -> Answer {
        if s.captures.len() == 0 {
            return Ok(());
        }
        let exchanged = thread::with(&self.identity, |state| state.exchange_mode);
        let me = thread::number();
        let any = |mode| s.captures.iter().any(|(_, capture)| capture.mode == mode);
        let mine = |mode| s.captures.iter().any(|(_, capture)| capture.mode == mode && capture.thread == me);
        let forbidden = match exchanged {
            ACL_MODEL_RI_CAPTURE_MODE_RELAXED => false,
            ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL => {
                mine(ACL_MODEL_RI_CAPTURE_MODE_GLOBAL) || mine(ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL)
            }
            _ => any(ACL_MODEL_RI_CAPTURE_MODE_GLOBAL) || mine(ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL),
        };
        if forbidden {
            return Err(Fail::new(code, format!("{what} is not permitted while a stream is captured in this mode")));
        }
        Ok(())
    }

    /// 107027 when a stream is captured.
    pub(super) fn not_captured(stream: &Stream, what: &str) -> Answer {
        match stream.capture {
            Some(_) => Err(Fail::new(
                ACL_ERROR_RT_STREAM_CAPTURED,
                format!("stream {} is captured: it cannot be {what} now", stream.id),
            )),
            None => Ok(()),
        }
    }

    /// The capture that recorded an event last, as long as it is on.
    pub(super) fn capture_of(s: &State, event: Key) -> Option<(Key, u32)> {
        s.events.get(event)?.captured.filter(|(capture, _)| s.captures.contains(*capture))
    }

    /// 107028 when an event belongs to a capture.
    pub(super) fn event_not_captured(s: &State, event: Key, what: &str) -> Answer {
        match Self::capture_of(s, event) {
            Some(_) => Err(Fail::new(
                ACL_ERROR_RT_EVENT_CAPTURED,
                format!("the event was recorded in a capture that is on: it cannot be {what} now"),
            )),
            None => Ok(()),
        }
    }

    /// What a stream's own state says against a submission.
    pub(super) fn check_submission(&self, s: &State, key: Key) -> Answer {
        let Some(stream) = s.streams.get(key) else { return Ok(()) };
        if stream.aborted {
            return Err(Fail::new(ACL_ERROR_RT_STREAM_ABORT, format!("stream {} was aborted", stream.id)));
        }
        if let Some(stopped) = s.contexts.get(stream.context).and_then(|context| context.stopped.as_ref()) {
            let text = format!("the context was stopped by its first failure: {}", stopped.text);
            return Err(Fail::new(stopped.code, text));
        }
        if stream.default && s.captures.iter().any(|(_, capture)| capture.context == stream.context) {
            return Err(Fail::new(
                ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT,
                "the default stream cannot be used while a stream of the context is captured",
            ));
        }
        if let Some((capture, _)) = stream.capture
            && s.captures.get(capture).is_some_and(|capture| capture.invalidated)
        {
            return Err(Fail::new(
                ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED,
                "the capture was invalidated by a call that failed before",
            ));
        }
        Ok(())
    }

    /// Spoils the capture of a stream after a submission to it has failed.
    pub(super) fn invalidate(s: &mut State, key: Key) {
        if let Some((capture, _)) = s.streams.get(key).and_then(|stream| stream.capture)
            && let Some(capture) = s.captures.get_mut(capture)
        {
            capture.invalidated = true;
        }
    }

    /// Adds a task to a capture.
    pub(super) fn add_node(
        &self,
        s: &mut State,
        capture: Key,
        lane: u32,
        op: Option<Op>,
        waits_for: Option<u32>,
        is_record: bool,
    ) -> Answer<u32> {
        let limit = self.config.graph_lane_tasks;
        let Some(found) = s.captures.get(capture) else {
            return Err(Fail::new(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "the capture has ended"));
        };
        let (device, graph) = (found.device, found.graph);
        let another = found.lanes[lane as usize].tasks >= limit;
        if another {
            self.take_stream(s, device, ACL_ERROR_RT_RESOURCE_ALLOC_FAIL)?;
            if let Some(slot) = s.graphs.get_mut(graph) {
                slot.streams += 1;
            }
        }
        let Some(found) = s.captures.get_mut(capture) else { return Ok(0) };
        let at = found.nodes.len() as u32;
        let lane_state = &mut found.lanes[lane as usize];
        lane_state.tasks = if another { 1 } else { lane_state.tasks + 1 };
        let before = lane_state.last.replace(at);
        found.nodes.push(Node { op, lane, before, waits_for, is_record, waited: false });
        if let Some(record) = waits_for {
            found.nodes[record as usize].waited = true;
        }
        Ok(at)
    }

    /// Lets a stream take part in a capture.
    fn join(&self, s: &mut State, key: Key, capture: Key) -> Answer<u32> {
        let Some(found) = s.captures.get(capture) else {
            return Err(Fail::new(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "the capture has ended"));
        };
        let (device, graph) = (found.device, found.graph);
        self.take_stream(s, device, ACL_ERROR_RT_NO_STREAM_RESOURCE)?;
        if let Some(slot) = s.graphs.get_mut(graph) {
            slot.streams += 1;
        }
        let Some(found) = s.captures.get_mut(capture) else { return Ok(0) };
        let lane = found.lanes.len() as u32;
        found.lanes.push(Lane { stream: key, last: None, tasks: 0 });
        if let Some(stream) = s.streams.get_mut(key) {
            stream.capture = Some((capture, lane));
        }
        Ok(lane)
    }

    /// A wait of a stream for an event that is part of a capture, or of a captured stream. `None`: the wait has nothing
    /// to do with a capture.
    pub(super) fn captured_wait(&self, s: &mut State, key: Key, event: Key) -> Option<Answer> {
        let of_event = Self::capture_of(s, event);
        let of_stream = s.streams.get(key).and_then(|stream| stream.capture);
        let (capture, record) = match (of_stream, of_event) {
            (None, None) => return None,
            (Some(_), None) => {
                return Some(Err(Fail::new(
                    ACL_ERROR_RT_CAPTURE_DEPENDENCY,
                    "a captured stream waits for an event that was not recorded in the capture",
                )));
            }
            (Some((mine, _)), Some((other, _))) if mine != other => {
                for capture in [mine, other] {
                    if let Some(capture) = s.captures.get_mut(capture) {
                        capture.invalidated = true;
                    }
                }
                return Some(Err(Fail::new(
                    ACL_ERROR_STREAM_CAPTURE_CONFLICT,
                    "the event was recorded in another capture than that of the stream",
                )));
            }
            (_, Some(found)) => found,
        };
        Some(self.wait_in_capture(s, key, capture, record))
    }

    fn wait_in_capture(&self, s: &mut State, key: Key, capture: Key, record: u32) -> Answer {
        let Some(stream) = s.streams.get(key) else { return Ok(()) };
        if stream.default {
            return Err(Fail::new(
                ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT,
                "the default stream cannot take part in a capture",
            ));
        }
        if s.captures.get(capture).is_some_and(|capture| capture.invalidated) {
            return Err(Fail::new(ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED, "the capture of the event was invalidated"));
        }
        let lane = match stream.capture {
            Some((_, lane)) => lane,
            None => match self.join(s, key, capture) {
                Ok(lane) => lane,
                Err(fail) => {
                    if let Some(capture) = s.captures.get_mut(capture) {
                        capture.invalidated = true;
                    }
                    return Err(fail);
                }
            },
        };
        self.add_node(s, capture, lane, None, Some(record), false).map(|_| ())
    }

    pub(super) fn capture_begin(&self, stream: aclrtStream, mode: aclmdlRICaptureMode) -> Answer {
        let mut s = self.state();
        if mode.0 > ACL_MODEL_RI_CAPTURE_MODE_RELAXED.0 {
            return usage(format!("capture mode {}, expected 0, 1 or 2", mode.0));
        }
        let key = self.stream(&s, stream)?;
        let Some(found) = s.streams.get(key) else { return Ok(()) };
        if found.default {
            return Err(Fail::new(ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT, "the default stream cannot be captured"));
        }
        Self::not_captured(found, "captured again")?;
        let (device, context) = (found.device, found.context);
        let chip = &self.devices[device as usize].chip;
        if !chip.capture {
            return Err(Fail::new(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, format!("{} cannot capture streams", chip.name)));
        }
        self.check_submission(&s, key)?;
        self.take_stream(&mut s, device, ACL_ERROR_RT_NO_STREAM_RESOURCE)?;
        let slot = GraphSlot { context, device, state: GraphState::Capturing, streams: 1, on_destroy: Vec::new() };
        let none_left = || Fail::new(ACL_ERROR_RT_NO_MODEL_RESOURCE, "no graph is left");
        let graph = s.graphs.insert(slot).ok_or_else(none_left)?;
        let capture = Capture {
            graph,
            context,
            device,
            origin: key,
            mode,
            thread: thread::number(),
            invalidated: false,
            nodes: Vec::new(),
            lanes: vec![Lane { stream: key, last: None, tasks: 0 }],
        };
        let capture = s.captures.insert(capture).ok_or_else(none_left)?;
        if let Some(stream) = s.streams.get_mut(key) {
            stream.capture = Some((capture, 0));
        }
        Ok(())
    }

    /// Status and future graph of a stream's capture.
    pub(super) fn capture_info(&self, stream: aclrtStream) -> Answer<(aclmdlRICaptureStatus, Key)> {
        let s = self.state();
        let key = self.stream(&s, stream)?;
        let capture = s.streams.get(key).and_then(|stream| stream.capture).and_then(|(key, _)| s.captures.get(key));
        Ok(match capture {
            None => (ACL_MODEL_RI_CAPTURE_STATUS_NONE, Key::NULL),
            Some(capture) if capture.invalidated => (ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED, capture.graph),
            Some(capture) => (ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE, capture.graph),
        })
    }

    pub(super) fn capture_end(&self, stream: aclrtStream) -> Answer<Key> {
        let mut s = self.state();
        let key = self.stream(&s, stream)?;
        let none = || Fail::new(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "the stream is not captured");
        let (capture_key, _) = s.streams.get(key).and_then(|stream| stream.capture).ok_or_else(none)?;
        let capture = s.captures.get(capture_key).ok_or_else(none)?;
        if capture.origin != key {
            return Err(Fail::new(
                ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED,
                "the capture began on another stream, which must end it",
            ));
        }
        let relaxed = capture.mode == ACL_MODEL_RI_CAPTURE_MODE_RELAXED;
        let refusal = if !relaxed && capture.thread != thread::number() {
            Some(Fail::new(ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD, "the capture began on another thread"))
        } else if capture.invalidated {
            Some(Fail::new(
                ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED,
                "the capture was invalidated by a call that failed before",
            ))
        } else if capture.lanes.iter().any(|lane| {
            s.streams.get(lane.stream).is_some_and(|stream| matches!(stream.grouping, Grouping::Marking(_)))
        }) {
            Some(Fail::new(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "a task group was begun and not ended"))
        } else {
            unjoined(capture).map(|lane| {
                let id = s.streams.get(capture.lanes[lane].stream).map_or(0, |stream| stream.id);
                Fail::new(
                    ACL_ERROR_RT_STREAM_UNJOINED,
                    format!(
                        "stream {id} takes part in the capture and is not joined: \
                         record an event on it last, and wait for that on the origin"
                    ),
                )
            })
        };
        let Some(capture) = Self::leave(&mut s, capture_key) else { return Err(none()) };
        if let Some(fail) = refusal {
            self.drop_graph(&mut s, capture.graph);
            return Err(fail);
        }
        let calls_program = capture.nodes.iter().any(|node| node.op.as_ref().is_some_and(Op::calls_program));
        let graph = Graph {
            calls_program,
            body: Mutex::new(Body::new(capture.nodes)),
            pending: AtomicU32::new(0),
            end: AtomicU64::new(0),
        };
        if let Some(slot) = s.graphs.get_mut(capture.graph) {
            slot.state = GraphState::Ready(Arc::new(graph));
        }
        Ok(capture.graph)
    }

    /// Ends a capture; its streams are ordinary ones again.
    pub(super) fn leave(s: &mut State, capture: Key) -> Option<Capture> {
        let capture = s.captures.remove(capture)?;
        for lane in &capture.lanes {
            if let Some(stream) = s.streams.get_mut(lane.stream) {
                stream.capture = None;
                stream.grouping = Grouping::None;
            }
        }
        Some(capture)
    }

    /// Removes a graph, and gives its streams back.
    pub(super) fn drop_graph(&self, s: &mut State, graph: Key) -> Option<GraphSlot> {
        let slot = s.graphs.remove(graph)?;
        s.devices[slot.device as usize].streams -= slot.streams;
        for group in s.groups.keys(|group| group.graph == graph) {
            s.groups.remove(group);
        }
        Some(slot)
    }

    pub(super) fn exchange_mode(&self, mode: aclmdlRICaptureMode) -> Answer<aclmdlRICaptureMode> {
        if mode.0 > ACL_MODEL_RI_CAPTURE_MODE_RELAXED.0 {
            return usage(format!("capture mode {}, expected 0, 1 or 2", mode.0));
        }
        let s = self.state();
        self.current(&s)?;
        Ok(thread::with(&self.identity, |state| core::mem::replace(&mut state.exchange_mode, mode)))
    }

    /// A graph of the current context: 107017 for none, 107004 for one of another context.
    fn graph(&self, s: &State, graph: aclmdlRI) -> Answer<Key> {
        let current = self.current_or_lost(s)?;
        let key = Key::of(graph);
        let Some(slot) = s.graphs.get(key) else {
            return Err(Fail::new(ACL_ERROR_RT_INVALID_HANDLE, format!("{graph:?} is no live graph of this machine")));
        };
        if slot.context != current {
            return Err(Fail::new(
                ACL_ERROR_RT_MODEL_CONTEXT,
                "the graph belongs to another context than the current one",
            ));
        }
        Ok(key)
    }

    fn captured_graph() -> Fail {
        Fail::new(ACL_ERROR_RT_MODEL_CAPTURED, "the graph is still being captured")
    }

    pub(super) fn replay(self: &Arc<Self>, graph: aclmdlRI, stream: aclrtStream) -> Answer {
        let s = self.state();
        let graph = self.graph(&s, graph)?;
        let key = self.stream(&s, stream)?;
        let Some(found) = s.streams.get(key) else { return Ok(()) };
        Self::not_captured(found, "given a replay")?;
        self.check_submission(&s, key)?;
        let graph = match s.graphs.get(graph).map(|slot| &slot.state) {
            Some(GraphState::Ready(graph)) => graph.clone(),
            _ => return Err(Self::captured_graph()),
        };
        self.enqueue(s, key, Op::Replay(graph)).map(drop)
    }

    pub(super) fn destroy_graph(&self, graph: aclmdlRI) -> Answer {
        let s = self.state();
        let key = self.graph(&s, graph)?;
        let graph = match s.graphs.get(key).map(|slot| &slot.state) {
            Some(GraphState::Ready(graph)) => graph.clone(),
            _ => return Err(Self::captured_graph()),
        };
        let limit = self.config.destroy_wait;
        let (mut s, done) = self.wait(s, super::exec::Need::Graph(key), Some(limit));
        let now = self.now();
        let until = now.saturating_add(super::config::nanoseconds(limit));
        if !done || graph.end.load(Ordering::Acquire) > until {
            self.at_least(until);
            return Err(Fail::new(ACL_ERROR_RT_MODEL_RUNNING, format!("a replay still runs after {limit:?}")));
        }
        self.at_least(graph.end.load(Ordering::Acquire).min(until));
        let slot = self.drop_graph(&mut s, key);
        drop(s);
        for call in slot.into_iter().flat_map(|slot| slot.on_destroy) {
            // SAFETY: the program registered the function to be called once at this moment.
            unsafe { call.call() };
        }
        Ok(())
    }

    pub(super) fn on_destroy(&self, graph: aclmdlRI, call: super::state::UserCall) -> Answer {
        let mut s = self.state();
        let key = self.graph(&s, graph)?;
        if let Some(slot) = s.graphs.get_mut(key) {
            slot.on_destroy.push(call);
        }
        Ok(())
    }

    /// A description of a graph, as JSON.
    pub(super) fn graph_json(&self, graph: aclmdlRI) -> Answer<String> {
        let s = self.state();
        let key = self.graph(&s, graph)?;
        let graph = match s.graphs.get(key).map(|slot| &slot.state) {
            Some(GraphState::Ready(graph)) => graph.clone(),
            _ => return Err(Self::captured_graph()),
        };
        drop(s);
        let body = lock(&graph.body);
        let mut out = String::from("{\"nodes\":[");
        for (at, node) in body.nodes.iter().enumerate() {
            let what = match &node.op {
                Some(Op::Kernel(launch)) => format!(
                    "\"kernel\",\"module\":{:?},\"name\":{:?},\"blocks\":{}",
                    launch.function.module_name, launch.function.name, launch.blocks
                ),
                Some(Op::Copy(copy)) => format!("\"copy\",\"bytes\":{}", copy.width.saturating_mul(copy.height)),
                Some(Op::Fill { bytes, .. }) => format!("\"fill\",\"bytes\":{bytes}"),
                Some(Op::Host(_) | Op::Report { .. }) => "\"host function\"".to_owned(),
                Some(_) => "\"mark\"".to_owned(),
                None if node.is_record => "\"record\"".to_owned(),
                None => "\"wait\"".to_owned(),
            };
            let after: Vec<_> = node.before.into_iter().chain(node.waits_for).collect();
            let comma = if at == 0 { "" } else { "," };
            out.push_str(&format!(
                "{comma}\n{{\"id\":{at},\"stream\":{},\"after\":{after:?},\"kind\":{what}}}",
                node.lane
            ));
        }
        out.push_str("\n]}\n");
        Ok(out)
    }

    pub(super) fn group_begin(&self, stream: aclrtStream) -> Answer {
        let mut s = self.state();
        let key = self.stream(&s, stream)?;
        let Some(found) = s.streams.get_mut(key) else { return Ok(()) };
        if found.capture.is_none() {
            return Err(Fail::new(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "the stream is not captured"));
        }
        if !matches!(found.grouping, Grouping::None) {
            return Err(Fail::new(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "the stream has a task group already"));
        }
        found.grouping = Grouping::Marking(Vec::new());
        Ok(())
    }

    pub(super) fn group_end(&self, stream: aclrtStream) -> Answer<Key> {
        let mut s = self.state();
        let key = self.stream(&s, stream)?;
        let Some(found) = s.streams.get_mut(key) else { return Ok(Key::NULL) };
        let Some((capture, _)) = found.capture else {
            return Err(Fail::new(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "the stream is not captured"));
        };
        let Grouping::Marking(nodes) = core::mem::replace(&mut found.grouping, Grouping::None) else {
            return Err(Fail::new(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "the stream has no task group"));
        };
        match s.captures.get(capture) {
            Some(capture) if !capture.invalidated => {
                let group = super::state::Group { graph: capture.graph, nodes, updating: false };
                s.groups.insert(group).ok_or_else(|| Fail::new(ACL_ERROR_RT_NO_MODEL_RESOURCE, "no task group is left"))
            }
            _ => Err(Fail::new(ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED, "the capture was invalidated")),
        }
    }

    pub(super) fn update_begin(&self, stream: aclrtStream, group: aclrtTaskGrp) -> Answer {
        let mut s = self.state();
        let key = self.stream(&s, stream)?;
        let Some(found) = s.streams.get(key) else { return Ok(()) };
        Self::not_captured(found, "given updates")?;
        if !matches!(found.grouping, Grouping::None) {
            return Err(Fail::new(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "the stream updates a task group already"));
        }
        let group = Key::of(group);
        let Some(found) = s.groups.get_mut(group) else {
            return Err(Fail::new(ACL_ERROR_RT_INVALID_HANDLE, "no such task group"));
        };
        if core::mem::replace(&mut found.updating, true) {
            return Err(Fail::new(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "another stream updates the task group"));
        }
        if let Some(stream) = s.streams.get_mut(key) {
            stream.grouping = Grouping::Updating { group, launches: Vec::new() };
        }
        Ok(())
    }

    pub(super) fn update_end(self: &Arc<Self>, stream: aclrtStream) -> Answer {
        let mut s = self.state();
        let key = self.stream(&s, stream)?;
        let Some(found) = s.streams.get_mut(key) else { return Ok(()) };
        Self::not_captured(found, "given updates")?;
        let (group, launches) = match core::mem::replace(&mut found.grouping, Grouping::None) {
            Grouping::Updating { group, launches } => (group, launches),
            other => {
                found.grouping = other;
                return Err(Fail::new(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "the stream updates no task group"));
            }
        };
        let Some(found) = s.groups.get_mut(group) else {
            return Err(Fail::new(ACL_ERROR_RT_INVALID_HANDLE, "the graph of the task group was destroyed"));
        };
        found.updating = false;
        if launches.len() != found.nodes.len() {
            let text = format!("the task group has {} tasks, {} were given", found.nodes.len(), launches.len());
            return Err(Fail::new(ACL_ERROR_STREAM_TASK_GROUP_STATUS, text));
        }
        let graph = found.graph;
        let graph = match s.graphs.get(graph).map(|slot| &slot.state) {
            Some(GraphState::Ready(graph)) => graph.clone(),
            _ => return Err(Self::captured_graph()),
        };
        self.enqueue(s, key, Op::Update { graph, launches }).map(drop)
    }

    /// Takes a launch as the update of the next task of a group.
    pub(super) fn take_update(&self, s: &mut State, key: Key, launch: Launch) -> Answer {
        let Some(stream) = s.streams.get_mut(key) else { return Ok(()) };
        let Grouping::Updating { group, launches } = &mut stream.grouping else { return Ok(()) };
        let at = launches.len();
        let Some((node, function)) = s.groups.get(*group).and_then(|group| group.nodes.get(at)).cloned() else {
            return Err(Fail::new(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "more launches than the task group has tasks"));
        };
        if !Arc::ptr_eq(&function, &launch.function) {
            return usage(format!("task {at} of the group is {}, found {}", function.name, launch.function.name));
        }
        launches.push((node, launch));
        Ok(())
    }
}

/// The first lane beside the origin's whose last task is not a record that a stream of the capture waited for.
///
/// That is enough: the wait stands in a lane that goes on later than the record, so from lane to lane the way leads on
/// in time, and it can end in none but the origin's.
fn unjoined(capture: &Capture) -> Option<usize> {
    let joined = |lane: &Lane| {
        let last = lane.last.and_then(|at| capture.nodes.get(at as usize));
        last.is_some_and(|node| node.is_record && node.waited)
    };
    (1..capture.lanes.len()).find(|lane| !joined(&capture.lanes[*lane]))
}
