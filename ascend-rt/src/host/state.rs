// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the emulator knows: contexts, streams, events, modules, graphs. All of it lies under one lock.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};

use super::args::Payload;
use super::fail::Fail;
use super::graph::Body;
use super::kernel::HostKernel;
use super::slab::{Key, Kind, Slab};
use crate::sys::{aclmdlRICaptureMode, aclrtCallback, aclrtHostFunc};

/// A pointer of the program that travels with a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostPointer(pub(super) *mut u8);

// SAFETY: the emulator only carries the pointer; whoever reads or writes through it relies on the contract of the call
// that brought it, which is that the memory stays as long as the task is queued, whatever thread runs it.
unsafe impl Send for HostPointer {}

/// One end of a copy.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Device(u64),
    Host(HostPointer),
}

/// A copy of `height` rows of `width` bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy2d {
    pub(super) to: Place,
    pub(super) to_pitch: u64,
    pub(super) from: Place,
    pub(super) from_pitch: u64,
    pub(super) width: u64,
    pub(super) height: u64,
}

impl Copy2d {
    /// Bytes from the first to the last one of a side, `None` when they cannot be counted.
    pub(super) fn span(&self, pitch: u64) -> Option<u64> {
        match self.height.checked_sub(1) {
            Some(rows) => rows.checked_mul(pitch)?.checked_add(self.width),
            None => Some(0),
        }
    }
}

/// A kernel of a loaded module.
pub(super) struct Function {
    pub(super) context: Key,
    pub(super) module_name: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) kernel: HostKernel,
    /// Its module is gone.
    pub(super) unloaded: AtomicBool,
}

pub(super) struct Launch {
    pub(super) function: Arc<Function>,
    pub(super) blocks: u32,
    pub(super) payload: Payload,
    /// Nanoseconds of virtual time.
    pub(super) limit: Option<u64>,
}

/// A function of the program with its argument.
#[derive(Clone, Copy)]
pub(super) struct UserCall {
    pub(super) function: aclrtHostFunc,
    pub(super) argument: HostPointer,
}

impl UserCall {
    pub(super) fn new(function: aclrtCallback, argument: *mut c_void) -> UserCall {
        UserCall { function, argument: HostPointer(argument.cast()) }
    }

    /// Calls it.
    ///
    /// # Safety
    ///
    /// As for the call that brought the function: it may be called with its argument, once, on any thread.
    pub(super) unsafe fn call(self) {
        if let Some(function) = self.function {
            // SAFETY: by the contract above.
            unsafe { function(self.argument.0.cast()) };
        }
    }
}

/// What a task does.
pub(super) enum Op {
    Kernel(Launch),
    Copy(Copy2d),
    Fill {
        address: u64,
        value: u8,
        bytes: u64,
    },
    Record {
        mark: Key,
    },
    Wait {
        mark: Key,
        limit: Option<u64>,
    },
    Host(UserCall),
    /// The older callback: delivered to the thread that processes the stream's reports.
    Report {
        call: UserCall,
        block: bool,
    },
    Replay(Arc<Graph>),
    Update {
        graph: Arc<Graph>,
        launches: Vec<(u32, Launch)>,
    },
    Note(Arc<str>),
}

impl Op {
    /// Whether running it may call functions of the program, which may wait for each other.
    pub(super) fn calls_program(&self) -> bool {
        match self {
            Op::Host(_) => true,
            Op::Replay(graph) => graph.calls_program,
            _ => false,
        }
    }
}

/// A queued task.
pub(super) struct Task {
    pub(super) op: Op,
    /// Virtual time of the submission.
    pub(super) submitted: u64,
}

/// A point in a stream that an event or a wait refers to.
pub(super) struct Mark {
    pub(super) done: bool,
    pub(super) time: u64,
    /// The event, the record and the waits that refer to it.
    pub(super) refs: u32,
    /// The waits among them that are queued.
    pub(super) waits: u32,
    /// The stream that records it.
    pub(super) stream: Key,
    /// What had failed on that stream before, and was not returned by then.
    pub(super) failed: Option<Fail>,
}

pub(super) struct Event {
    pub(super) context: Key,
    pub(super) flags: u32,
    /// Made by `aclrtCreateEventExWithFlag`.
    pub(super) ex: bool,
    pub(super) mark: Option<Key>,
    /// The capture that recorded it last, and the place in it.
    pub(super) captured: Option<(Key, u32)>,
    pub(super) polls: u32,
}

/// Whether a stream marks or updates a group of captured tasks.
pub(super) enum Grouping {
    None,
    Marking(Vec<(u32, Arc<Function>)>),
    Updating { group: Key, launches: Vec<(u32, Launch)> },
}

pub(super) struct Stream {
    pub(super) context: Key,
    pub(super) device: u32,
    pub(super) id: i32,
    pub(super) default: bool,
    pub(super) queue: VecDeque<Task>,
    /// A task of it runs.
    pub(super) busy: bool,
    /// When its last task ended.
    pub(super) end: u64,
    pub(super) submitted: u64,
    pub(super) completed: u64,
    pub(super) error: Option<Fail>,
    /// Virtual time of that.
    pub(super) failed_at: u64,
    pub(super) aborted: bool,
    pub(super) failure_mode_set: bool,
    /// The capture that it takes part in, and its lane there.
    pub(super) capture: Option<(Key, u32)>,
    pub(super) grouping: Grouping,
    pub(super) polls: u32,
    /// For the seeded executor: the highest of those that can run goes first.
    pub(super) priority: u64,
    pub(super) worker: Option<Arc<Condvar>>,
    /// The thread that processes its reports, as the system numbers threads.
    pub(super) reports_to: Option<u64>,
}

impl Stream {
    pub(super) fn new(context: Key, device: u32, id: i32, default: bool) -> Stream {
        Stream {
            context,
            device,
            id,
            default,
            queue: VecDeque::new(),
            busy: false,
            end: 0,
            submitted: 0,
            completed: 0,
            error: None,
            failed_at: 0,
            aborted: false,
            failure_mode_set: false,
            capture: None,
            grouping: Grouping::None,
            polls: 0,
            priority: 0,
            worker: None,
            reports_to: None,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        !self.busy && self.queue.is_empty()
    }
}

pub(super) struct Context {
    pub(super) device: u32,
    pub(super) primary: bool,
    pub(super) default_stream: Key,
    /// Whether the first failure stops all streams.
    pub(super) stop: bool,
    pub(super) stopped: Option<Fail>,
}

pub(super) struct Module {
    pub(super) context: Key,
    pub(super) name: Arc<str>,
    /// The kernels that came with its image.
    pub(super) own: Option<Vec<(Arc<str>, HostKernel)>>,
    pub(super) functions: Vec<Key>,
}

/// A captured graph.
pub(super) struct Graph {
    pub(super) calls_program: bool,
    pub(super) body: Mutex<Body>,
    /// Replays that are queued or running.
    pub(super) pending: AtomicU32,
    /// When the last replay ended.
    pub(super) end: AtomicU64,
}

pub(super) enum GraphState {
    Capturing,
    Ready(Arc<Graph>),
}

pub(super) struct GraphSlot {
    pub(super) context: Key,
    pub(super) device: u32,
    pub(super) state: GraphState,
    /// Streams of the budget that it holds.
    pub(super) streams: u32,
    pub(super) on_destroy: Vec<UserCall>,
}

/// One task of a capture or a graph.
pub(super) struct Node {
    /// What it does; a record or a wait does nothing, its order counts.
    pub(super) op: Option<Op>,
    pub(super) lane: u32,
    /// The task before it on its stream.
    pub(super) before: Option<u32>,
    /// The record that it waits for.
    pub(super) waits_for: Option<u32>,
    pub(super) is_record: bool,
    pub(super) waited: bool,
}

/// One stream that takes part in a capture.
pub(super) struct Lane {
    pub(super) stream: Key,
    pub(super) last: Option<u32>,
    /// Tasks on the graph's current stream of the lane.
    pub(super) tasks: u32,
}

pub(super) struct Capture {
    pub(super) graph: Key,
    pub(super) context: Key,
    pub(super) device: u32,
    pub(super) origin: Key,
    pub(super) mode: aclmdlRICaptureMode,
    /// The thread that began it.
    pub(super) thread: u64,
    pub(super) invalidated: bool,
    pub(super) nodes: Vec<Node>,
    pub(super) lanes: Vec<Lane>,
}

/// Captured tasks whose arguments can be changed.
pub(super) struct Group {
    pub(super) graph: Key,
    pub(super) nodes: Vec<(u32, Arc<Function>)>,
    pub(super) updating: bool,
}

/// What is counted per device.
#[derive(Default)]
pub(super) struct DeviceState {
    pub(super) primary: Option<Key>,
    /// How often the primary context was set and not reset.
    pub(super) primary_count: u64,
    pub(super) lost: bool,
    /// Streams in use: those of contexts and those of graphs.
    pub(super) streams: u32,
    /// Devices whose memory it may reach.
    pub(super) peers: Vec<u32>,
}

/// A small generator: its quality matters little, its speed and its being the same everywhere do.
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not zero.
    pub(super) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

/// A report that waits for its thread.
pub(super) struct Report {
    pub(super) thread: u64,
    pub(super) call: UserCall,
    /// The stream that it holds back.
    pub(super) holds: Option<Key>,
}

pub(super) struct State {
    pub(super) contexts: Slab<Context>,
    pub(super) streams: Slab<Stream>,
    pub(super) events: Slab<Event>,
    pub(super) marks: Slab<Mark>,
    pub(super) modules: Slab<Module>,
    pub(super) functions: Slab<Arc<Function>>,
    pub(super) graphs: Slab<GraphSlot>,
    pub(super) captures: Slab<Capture>,
    pub(super) groups: Slab<Group>,
    pub(super) devices: Vec<DeviceState>,
    /// Argument blocks to be used again.
    pub(super) spare: Vec<Payload>,
    /// Argument blocks ever made; there is room for all of them in `spare`.
    payloads: usize,
    pub(super) rng: Rng,
    /// For the seeded executor: fewer than so many tasks run at a submission.
    pub(super) eagerness: usize,
    /// A thread of the program runs a task.
    pub(super) driving: bool,
    /// Tasks that the callback thread is to run.
    pub(super) handed: VecDeque<(Key, Task, u64)>,
    pub(super) reports: VecDeque<Report>,
    /// Threads of the program that wait.
    pub(super) waiting: u32,
    /// Functions of the program that run.
    pub(super) user_code: u32,
    pub(super) shutdown: bool,
    pub(super) next_stream_id: i32,
    pub(super) inits: u64,
    /// Events of the pool with numbers.
    pub(super) pool_events: u32,
    /// Failures of objects that are gone.
    pub(super) unseen: Vec<String>,
}

impl State {
    pub(super) fn new(emulator: u32, devices: usize, seed: u64) -> State {
        let mut rng = Rng::new(seed);
        State {
            contexts: Slab::new(Kind::Context, emulator),
            streams: Slab::new(Kind::Stream, emulator),
            events: Slab::new(Kind::Event, emulator),
            marks: Slab::new(Kind::Mark, emulator),
            modules: Slab::new(Kind::Module, emulator),
            functions: Slab::new(Kind::Function, emulator),
            graphs: Slab::new(Kind::Graph, emulator),
            captures: Slab::new(Kind::Capture, emulator),
            groups: Slab::new(Kind::Group, emulator),
            devices: (0..devices).map(|_| DeviceState::default()).collect(),
            spare: Vec::new(),
            payloads: 0,
            eagerness: [1, 2, 3, 9][rng.below(4)],
            rng,
            driving: false,
            handed: VecDeque::new(),
            reports: VecDeque::new(),
            waiting: 0,
            user_code: 0,
            shutdown: false,
            next_stream_id: 1,
            inits: 0,
            pool_events: 0,
            unseen: Vec::new(),
        }
    }

    /// An argument block to fill. Whoever gives it back later need not allocate.
    pub(super) fn payload(&mut self) -> Payload {
        self.spare.pop().unwrap_or_else(|| {
            self.payloads += 1;
            self.spare.reserve(self.payloads);
            Payload::default()
        })
    }

    /// Gives up one reference to a mark.
    pub(super) fn release(&mut self, mark: Key) {
        if let Some(found) = self.marks.get_mut(mark) {
            found.refs -= 1;
            if found.refs == 0 {
                self.marks.remove(mark);
            }
        }
    }
}
