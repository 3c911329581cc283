// SPDX-License-Identifier: MIT OR Apache-2.0

//! Random programs of streams, events, copies, kernels and graphs give what the program says when it is run one step
//! after the other, whatever the executor: each access to a buffer waits for those that it must come after.

use crate::support::{Arg, Rig, acl, seeds};
use ascend_rt::host::{Executor, HostConfig};
use ascend_rt::sys::*;
use proptest::prelude::*;
use std::ffi::c_void;

const STREAMS: usize = 3;
const BUFFERS: usize = 4;
const WORDS: usize = 8;

#[derive(Clone, Debug)]
enum Step {
    Fill {
        stream: usize,
        buffer: usize,
        value: u8,
    },
    Copy {
        stream: usize,
        to: usize,
        from: usize,
    },
    Upload {
        stream: usize,
        to: usize,
        slot: usize,
    },
    Add {
        stream: usize,
        buffer: usize,
        by: u8,
    },
    /// A blocking read, after waiting for the buffer.
    Read {
        buffer: usize,
    },
    Sync {
        stream: usize,
    },
    /// The next steps up to so many, as far as they can be captured, become a graph that is replayed this often.
    Graph {
        stream: usize,
        steps: usize,
        times: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (stream, buffer) = (0..STREAMS, 0..BUFFERS);
    prop_oneof![
        3 => (stream.clone(), buffer.clone(), any::<u8>())
            .prop_map(|(stream, buffer, value)| Step::Fill { stream, buffer, value }),
        3 => (stream.clone(), buffer.clone(), buffer.clone())
            .prop_map(|(stream, to, from)| Step::Copy { stream, to, from }),
        3 => (stream.clone(), buffer.clone(), 0..3usize)
            .prop_map(|(stream, to, slot)| Step::Upload { stream, to, slot }),
        4 => (stream.clone(), buffer.clone(), 1..9u8).prop_map(|(stream, buffer, by)| Step::Add { stream, buffer, by }),
        1 => buffer.prop_map(|buffer| Step::Read { buffer }),
        1 => stream.clone().prop_map(|stream| Step::Sync { stream }),
        1 => (stream, 1..6usize, 0..4usize).prop_map(|(stream, steps, times)| Step::Graph { stream, steps, times }),
    ]
}

/// What each step does to the buffers when run alone.
fn apply(memory: &mut [[f32; WORDS]; BUFFERS], step: &Step) {
    match *step {
        Step::Fill { buffer, value, .. } => memory[buffer] = [f32::from_le_bytes([value & 0x3F; 4]); WORDS],
        Step::Copy { to, from, .. } => memory[to] = memory[from],
        Step::Upload { to, slot, .. } => memory[to] = pinned_values(slot),
        Step::Add { buffer, by, .. } => memory[buffer].iter_mut().for_each(|x| *x += f32::from(by)),
        Step::Read { .. } | Step::Sync { .. } | Step::Graph { .. } => {}
    }
}

fn pinned_values(slot: usize) -> [f32; WORDS] {
    std::array::from_fn(|i| (slot * 100 + i) as f32)
}

struct Machine {
    rig: Rig,
    streams: Vec<aclrtStream>,
    buffers: Vec<*mut c_void>,
    pinned: Vec<*mut c_void>,
    /// For each buffer, the events of its last write and of the reads since.
    written: Vec<Option<aclrtEvent>>,
    read: Vec<Vec<aclrtEvent>>,
    add: aclrtFuncHandle,
}

impl Machine {
    fn new(executor: Executor) -> Machine {
        let rig = Rig::new(HostConfig::new().executor(executor));
        Machine {
            streams: (0..STREAMS).map(|_| rig.stream()).collect(),
            buffers: (0..BUFFERS).map(|_| rig.device(&[0f32; WORDS])).collect(),
            pinned: (0..3).map(|slot| rig.pinned(&pinned_values(slot))).collect(),
            written: vec![None; BUFFERS],
            read: vec![Vec::new(); BUFFERS],
            add: rig.kernel("add"),
            rig,
        }
    }

    fn submit(&self, step: &Step, stream: aclrtStream) {
        let bytes = WORDS * 4;
        let code = match *step {
            Step::Fill { buffer, value, .. } => {
                self.rig.fill_async(self.buffers[buffer], (value & 0x3F).into(), bytes, stream)
            }
            Step::Copy { to, from, .. } => self.rig.copy_async(self.buffers[to], self.buffers[from], bytes, stream),
            Step::Upload { to, slot, .. } => self.rig.copy_async(self.buffers[to], self.pinned[slot], bytes, stream),
            Step::Add { buffer, by, .. } => self.rig.try_launch(
                self.add,
                3,
                stream,
                &[Arg::Pointer(self.buffers[buffer]), Arg::U32(WORDS as u32), Arg::F32(by.into())],
            ),
            Step::Read { .. } | Step::Sync { .. } | Step::Graph { .. } => 0,
        };
        assert_eq!(code, 0, "{}", self.rig.message());
    }

    /// Waits of a stream before it touches buffers.
    fn before(&self, stream: aclrtStream, writes: &[usize], reads: &[usize]) {
        let written = writes.iter().chain(reads).filter_map(|buffer| self.written[*buffer]);
        let read = writes.iter().flat_map(|buffer| self.read[*buffer].iter().copied());
        for event in written.chain(read) {
            assert_eq!(self.rig.wait(stream, event), 0);
        }
    }

    fn after(&mut self, stream: aclrtStream, writes: &[usize], reads: &[usize]) {
        let event = self.rig.event();
        assert_eq!(self.rig.record(event, stream), 0);
        for buffer in reads {
            self.read[*buffer].push(event);
        }
        for buffer in writes {
            self.written[*buffer] = Some(event);
            self.read[*buffer].clear();
        }
    }
}

/// Stream, buffers written, buffers read.
fn touches(step: &Step) -> Option<(usize, Vec<usize>, Vec<usize>)> {
    match *step {
        Step::Fill { stream, buffer, .. } => Some((stream, vec![buffer], vec![])),
        Step::Copy { stream, to, from } => Some((stream, vec![to], vec![from])),
        Step::Upload { stream, to, .. } => Some((stream, vec![to], vec![])),
        Step::Add { stream, buffer, .. } => Some((stream, vec![buffer], vec![])),
        _ => None,
    }
}

fn run(program: &[Step], executor: Executor) -> [[f32; WORDS]; BUFFERS] {
    let mut machine = Machine::new(executor);
    let mut model = [[0f32; WORDS]; BUFFERS];
    let mut rest = program;
    while let Some((step, behind)) = rest.split_first() {
        rest = behind;
        if let Some((stream, writes, reads)) = touches(step) {
            let stream = machine.streams[stream];
            machine.before(stream, &writes, &reads);
            machine.submit(step, stream);
            machine.after(stream, &writes, &reads);
            apply(&mut model, step);
            continue;
        }
        match *step {
            Step::Sync { stream } => assert_eq!(machine.rig.sync(machine.streams[stream]), 0),
            Step::Read { buffer } => {
                if let Some(event) = machine.written[buffer] {
                    assert_eq!(acl!(machine.rig, aclrtSynchronizeEvent(event)), 0);
                }
                assert_eq!(machine.rig.download::<f32>(machine.buffers[buffer], WORDS), model[buffer]);
            }
            Step::Graph { stream, steps, times } => {
                let part: Vec<&Step> = behind.iter().take(steps).take_while(|step| touches(step).is_some()).collect();
                rest = &behind[part.len()..];
                let origin = machine.streams[stream];
                machine.rig.begin(origin, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL);
                let mut forked = vec![origin];
                let (mut all_writes, mut all_reads) = (Vec::new(), Vec::new());
                // Inside the graph, each step waits for all before it on other streams.
                let mut last: Option<aclrtEvent> = None;
                for step in &part {
                    let Some((stream, writes, reads)) = touches(step) else { continue };
                    let stream = machine.streams[stream];
                    if !forked.contains(&stream) {
                        let fork = machine.rig.event();
                        assert_eq!((machine.rig.record(fork, origin), machine.rig.wait(stream, fork)), (0, 0));
                        forked.push(stream);
                    }
                    if let Some(event) = last {
                        assert_eq!(machine.rig.wait(stream, event), 0);
                    }
                    machine.submit(step, stream);
                    let done = machine.rig.event();
                    assert_eq!(machine.rig.record(done, stream), 0);
                    last = Some(done);
                    all_writes.extend(writes);
                    all_reads.extend(reads);
                }
                for stream in &forked[1..] {
                    let join = machine.rig.event();
                    assert_eq!((machine.rig.record(join, *stream), machine.rig.wait(origin, join)), (0, 0));
                }
                let graph = machine.rig.end(origin);
                for _ in 0..times {
                    machine.before(origin, &all_writes, &all_reads);
                    assert_eq!(machine.rig.replay(graph, origin), 0);
                    machine.after(origin, &all_writes, &all_reads);
                    part.iter().for_each(|step| apply(&mut model, step));
                }
                if times % 2 == 0 {
                    assert_eq!(acl!(machine.rig, aclmdlRIDestroy(graph)), 0);
                }
            }
            _ => {}
        }
    }
    assert_eq!(acl!(machine.rig, aclrtSynchronizeDevice()), 0);
    let mut memory = [[0f32; WORDS]; BUFFERS];
    for (buffer, values) in memory.iter_mut().enumerate() {
        values.copy_from_slice(&machine.rig.download::<f32>(machine.buffers[buffer], WORDS));
    }
    assert_eq!(memory, model, "{executor:?}");
    memory
}

proptest! {
    #![proptest_config(ProptestConfig { cases: seeds(150) as u32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_agree_with_running_them_step_by_step(
        program in proptest::collection::vec(step(), 0..40),
        seed in any::<u64>(),
    ) {
        let memory = run(&program, Executor::Lazy);
        for executor in [Executor::Seeded(seed), Executor::Seeded(!seed), Executor::Threads] {
            prop_assert_eq!(run(&program, executor), memory);
        }
    }
}
