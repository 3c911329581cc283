// SPDX-License-Identifier: MIT OR Apache-2.0

//! The law of several streams: whatever streams a program spreads its work over, its results are those of its order.

use crate::common::*;
use ascend_rt::host::Executor;
use ascend_rt::mem::PoolPolicy;
use ascend_rt::{CaptureMode, DeviceBuffer, Graph, PinnedBuffer, Queue, Result, Stream};
use proptest::prelude::*;

const BUFFERS: usize = 4;
const STREAMS: usize = 3;
const LEN: usize = 8;

/// One step of a program. Numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    Set {
        stream: usize,
        to: usize,
        value: u32,
    },
    Next {
        stream: usize,
        from: usize,
        to: usize,
    },
    Copy {
        stream: usize,
        from: usize,
        to: usize,
    },
    Fill {
        stream: usize,
        to: usize,
        byte: u8,
    },
    Upload {
        stream: usize,
        to: usize,
        value: u32,
    },
    Read {
        stream: usize,
        from: usize,
    },
    PinnedUp {
        stream: usize,
        to: usize,
    },
    PinnedDown {
        stream: usize,
        from: usize,
    },
    PinnedWrite {
        value: u32,
    },
    PinnedRead,
    /// Drops a buffer with whatever uses it, and makes a new one.
    Renew {
        stream: usize,
        buffer: usize,
        value: u32,
    },
    /// `to = from + 1`, then `from = to + 1`, in a graph of the streams.
    Capture {
        stream: usize,
        fork: usize,
        from: usize,
        to: usize,
    },
    Replay {
        stream: usize,
    },
    DropGraph,
    Sync {
        stream: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (s, b) = (0..STREAMS, 0..BUFFERS);
    prop_oneof![
        (s.clone(), b.clone(), any::<u32>()).prop_map(|(stream, to, value)| Step::Set { stream, to, value }),
        (s.clone(), b.clone(), b.clone()).prop_map(|(stream, from, to)| Step::Next { stream, from, to }),
        (s.clone(), b.clone(), b.clone()).prop_map(|(stream, from, to)| Step::Next { stream, from, to }),
        (s.clone(), b.clone(), b.clone()).prop_map(|(stream, from, to)| Step::Copy { stream, from, to }),
        (s.clone(), b.clone(), any::<u8>()).prop_map(|(stream, to, byte)| Step::Fill { stream, to, byte }),
        (s.clone(), b.clone(), any::<u32>()).prop_map(|(stream, to, value)| Step::Upload { stream, to, value }),
        (s.clone(), b.clone()).prop_map(|(stream, from)| Step::Read { stream, from }),
        (s.clone(), b.clone()).prop_map(|(stream, to)| Step::PinnedUp { stream, to }),
        (s.clone(), b.clone()).prop_map(|(stream, from)| Step::PinnedDown { stream, from }),
        any::<u32>().prop_map(|value| Step::PinnedWrite { value }),
        Just(Step::PinnedRead),
        (s.clone(), b.clone(), any::<u32>()).prop_map(|(stream, buffer, value)| Step::Renew { stream, buffer, value }),
        (s.clone(), s.clone(), b.clone(), b).prop_map(|(stream, fork, from, to)| Step::Capture {
            stream,
            fork,
            from,
            to
        }),
        s.clone().prop_map(|stream| Step::Replay { stream }),
        Just(Step::DropGraph),
        s.prop_map(|stream| Step::Sync { stream }),
    ]
}

/// Two different elements of a list.
fn pair<T>(list: &mut [T], from: usize, to: usize) -> Option<(&T, &mut T)> {
    let [from, to] = list.get_disjoint_mut([from, to]).ok()?;
    Some((from, to))
}

/// What the program should say: values of buffers, of pinned memory, and which buffers the graph works on.
struct Model {
    buffers: [u32; BUFFERS],
    pinned: u32,
    /// The graph's own buffers: they may have been renewed since.
    graph: Option<(usize, usize)>,
}

struct Machine {
    kernels: Kernels,
    streams: Vec<Stream>,
    buffers: Vec<DeviceBuffer<u32>>,
    pinned: PinnedBuffer<u32>,
    graph: Option<Graph>,
}

fn run(steps: &[Step], executor: Executor, policy: PoolPolicy) -> Result<()> {
    let (context, slot) = context_of(config().executor(executor));
    context.set_pool_policy(policy)?;
    let streams = (0..STREAMS).map(|_| context.stream()).collect::<Result<Vec<_>>>()?;
    let buffers = (0..BUFFERS).map(|_| streams[0].upload(&[0u32; LEN])).collect::<Result<Vec<_>>>()?;
    let mut m =
        Machine { kernels: Kernels::new(&context), streams, buffers, pinned: context.pinned(LEN)?, graph: None };
    let mut model = Model { buffers: [0; BUFFERS], pinned: 0, graph: None };
    for step in steps {
        match *step {
            Step::Set { stream, to, value } => {
                m.kernels.set(&m.streams[stream], &mut m.buffers[to], value)?;
                model.buffers[to] = value;
            }
            Step::Next { stream, from, to } => {
                if let Some((source, target)) = pair(&mut m.buffers, from, to) {
                    m.kernels.next(&m.streams[stream], source, target)?;
                    model.buffers[to] = model.buffers[from].wrapping_add(1);
                }
            }
            Step::Copy { stream, from, to } => {
                if let Some((source, target)) = pair(&mut m.buffers, from, to) {
                    m.streams[stream].copy(source, target)?;
                    model.buffers[to] = model.buffers[from];
                }
            }
            Step::Fill { stream, to, byte } => {
                m.streams[stream].fill(&mut m.buffers[to], byte)?;
                model.buffers[to] = u32::from_ne_bytes([byte; 4]);
            }
            Step::Upload { stream, to, value } => {
                m.streams[stream].upload_to(&[value; LEN], &mut m.buffers[to])?;
                model.buffers[to] = value;
            }
            Step::Read { stream, from } => {
                assert_eq!(m.streams[stream].download(&m.buffers[from])?, [model.buffers[from]; LEN]);
            }
            Step::PinnedUp { stream, to } => {
                m.streams[stream].upload_pinned(&m.pinned, &mut m.buffers[to])?;
                model.buffers[to] = model.pinned;
            }
            Step::PinnedDown { stream, from } => {
                m.streams[stream].download_pinned(&m.buffers[from], &mut m.pinned)?;
                model.pinned = model.buffers[from];
            }
            Step::PinnedWrite { value } => {
                m.pinned.write()?.fill(value);
                model.pinned = value;
            }
            Step::PinnedRead => assert_eq!(*m.pinned.read()?, [model.pinned; LEN]),
            Step::Renew { stream, buffer, value } => {
                // A graph that works on the old buffer keeps it; its replays have nothing to do with the new one.
                if model.graph.is_some_and(|(from, to)| from == buffer || to == buffer) {
                    m.graph = None;
                    model.graph = None;
                }
                let mut fresh = context.alloc(LEN)?;
                m.kernels.set(&m.streams[stream], &mut fresh, value)?;
                m.buffers[buffer] = fresh;
                model.buffers[buffer] = value;
            }
            Step::Capture { stream, fork, from, to } => {
                let side = m.streams[fork].clone();
                let Ok([source, target]) = m.buffers.get_disjoint_mut([from, to]) else { continue };
                let kernels = &m.kernels;
                m.graph = Some(m.streams[stream].capture(CaptureMode::default(), |capture| {
                    if fork == stream {
                        kernels.next(capture, source, target)?;
                    } else {
                        capture.fork(&side, |capture| kernels.next(capture, source, target))?;
                    }
                    kernels.next(capture, target, source)
                })?);
                model.graph = Some((from, to));
            }
            Step::Replay { stream } => {
                if let (Some(graph), Some((from, to))) = (&mut m.graph, model.graph) {
                    graph.replay(&m.streams[stream])?;
                    model.buffers[to] = model.buffers[from].wrapping_add(1);
                    model.buffers[from] = model.buffers[to].wrapping_add(1);
                }
            }
            Step::DropGraph => {
                m.graph = None;
                model.graph = None;
            }
            Step::Sync { stream } => m.streams[stream].synchronize()?,
        }
    }
    for (buffer, value) in m.buffers.iter().zip(model.buffers) {
        assert_eq!(m.streams[0].download(buffer)?, [value; LEN]);
    }
    assert_eq!(*m.pinned.read()?, [model.pinned; LEN]);
    assert!(context.take_drop_error().is_none());
    drop((m, context));
    assert_clean(&slot);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn results_are_those_of_the_program(
        steps in prop::collection::vec(step(), 1..60),
        executor in prop_oneof![
            1 => Just(Executor::Threads),
            1 => Just(Executor::Lazy),
            3 => any::<u64>().prop_map(Executor::Seeded),
        ],
        policy in prop_oneof![Just(PoolPolicy::Direct), Just(PoolPolicy::Cached)],
    ) {
        run(&steps, executor, policy).map_err(|error| TestCaseError::fail(format!("{error:#}")))?;
    }
}
