// SPDX-License-Identifier: MIT OR Apache-2.0

//! The replay.
//!
//! What happens inside a core is arithmetic on times: the end of an instruction follows from when it was issued, when its
//! pipe was free and when the flags before it were set, all of which lie earlier in the record. So a core runs ahead until
//! it needs something that depends on other cores: the end of a copy from or to GM, or a cross-core flag. Only these are
//! events with a global order. What an event sets free begins at the event's time or later, so no time is ever computed
//! that lies before an event already dealt with.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use super::chip::{Chip, Port};
use super::fluid::{Fluid, Key, grid};
use super::kinds::*;
use super::l2::{Access, L2};
use super::table::{self, COSTS, Vector};
use super::{CoreTimeline, CostError, Fallback, Limit, MAX_CORES, Node, Options, Program, Span, Stuck, Timeline};
use crate::abi::Record;

/// Instructions of one pipe between their issue and their end. Documented for MTE1; taken for all.
const DEPTH: usize = 32;
/// Flag ids of one pair of pipes.
const IDS: usize = 16;
/// Ids of cross-core flags; with mode 4 a cube core sees those of the second vector core from 16 on.
const CROSS_IDS: usize = 32;
/// Rows and bytes of one copy beyond which a record is nonsense.
const MAX_BURSTS: u64 = 1 << 22;
const MAX_BYTES: u64 = 1 << 31;
const NO_GATE: u32 = u32::MAX;
/// Marks the transfer of dirty lines to HBM among the transfers of a pipe.
const BACK: u32 = 1 << 30;

#[derive(Clone, Copy)]
struct Queued {
    record: u32,
    /// The instruction of the other side of a unit flag.
    gate: u32,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    Dispatched,
    Latent,
    Hbm,
    L2,
}

/// The copy from or to GM that a pipe is busy with.
#[derive(Clone, Copy)]
struct Flow {
    phase: Phase,
    record: u32,
    gate: u32,
    write: bool,
    /// Its pipe is busy with it from here on: earlier than its dispatch if a unit flag holds it back.
    begin: f64,
    dispatch: f64,
    dispatch_cause: Node,
    entry: f64,
    stage: f64,
    back: f64,
    hbm: f64,
    l2: f64,
    hbm_limit: f64,
    l2_limit: f64,
    hbm_cycles: f64,
}

struct Pipe {
    queue: VecDeque<Queued>,
    /// When the last `DEPTH` instructions left it, and which one let them.
    left: [(f64, Node); DEPTH],
    entered: u64,
    done: u64,
    /// No instruction begins before.
    front: f64,
    front_cause: Node,
    /// End of the last instruction.
    last: f64,
    last_node: Node,
    flow: Flow,
    /// Dirty lines that its last copy drove out of L2 are still on their way to HBM.
    writing_back: bool,
    /// A copy waits for that.
    held: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stall {
    None,
    Full(u8),
    Drain,
    Flag,
    Cross,
    Sync,
}

struct Core<'a> {
    records: &'a [Record],
    cube: bool,
    sub: u8,
    group: usize,
    pc: u32,
    clock: f64,
    clock_cause: Node,
    stall: Stall,
    synced: bool,
    running: bool,
    done: bool,
    dirty: u8,
    unit_mmad: u32,
    unit_fix: u32,
    syncs: [u32; 2],
    /// Cross-core flags that have arrived, by id.
    arrived: [VecDeque<(f64, Node)>; CROSS_IDS],
    /// Pipes that wait for one.
    crossing: u8,
    pipes: [Pipe; PIPES],
    flags: Vec<VecDeque<(f64, Node)>>,
}

/// Sets of one flag that have not been joined with those of the other cores of their group.
type Pending = HashMap<(usize, u8, u8), VecDeque<(f64, Node)>>;

#[derive(Clone, Copy)]
struct Meeting {
    arrived: usize,
    time: f64,
    node: Node,
}

struct Group {
    cores: Vec<usize>,
    left: usize,
    end: f64,
    end_node: Node,
}

struct NameInfo {
    vector: Vector,
    known: bool,
    three_d: bool,
    calls: u64,
}

struct Engine<'a> {
    chip: &'a Chip,
    cache: &'a mut L2,
    cores: Vec<Core<'a>>,
    spans: Vec<Vec<Span>>,
    busy: Vec<[f64; PIPES]>,
    begin: Vec<f64>,
    end: Vec<f64>,
    end_node: Vec<Node>,
    names: Vec<NameInfo>,
    groups: Vec<Group>,
    next_group: usize,
    vectors: Vec<usize>,
    cubes: Vec<usize>,
    pending: Pending,
    meetings: [Vec<Meeting>; 2],
    /// How many cores come to the first, second, ... SyncAll of each mode. Not all need to: the software form takes a
    /// number of cores.
    members: [Vec<usize>; 2],
    now: f64,
    events: BinaryHeap<Reverse<(Key, u64, u32)>>,
    sequence: u64,
    work: Vec<usize>,
    hbm: Fluid,
    /// Bytes a cycle at which the lines that one copy drives out leave at most: all that HBM can take.
    write_back: f64,
    l2: Fluid,
    l2_write: Fluid,
    hbm_read: f64,
    hbm_written: f64,
    l2_read: f64,
    l2_written: f64,
    flop: f64,
}

/// The name of a core: its index among those of its kind.
fn names_of(program: &Program) -> Vec<String> {
    let ratio = program.cores.iter().filter(|c| !c.cube).map(|c| c.sub_block + 1).max().unwrap_or(1);
    let name = |c: &super::CoreProgram| {
        if c.cube {
            format!("AIC {}", c.block)
        } else {
            format!("AIV {}", u64::from(c.block) * u64::from(ratio) + u64::from(c.sub_block))
        }
    };
    program.cores.iter().map(name).collect()
}

fn check(program: &Program, chip: &Chip, names: &[String]) -> Result<(), CostError> {
    if program.cores.len() >= MAX_CORES {
        return Err(CostError::TooManyCores { cores: program.cores.len() });
    }
    let r = &chip.rates;
    let ports = [r.cube_read, r.cube_write, r.vector_read, r.vector_write];
    let port = ports.iter().map(|p| p.rate.min(p.hbm_rate)).fold(f64::INFINITY, f64::min);
    let rates = [
        ("hbm", r.hbm),
        ("l2", r.l2),
        ("l2_write", r.l2_write),
        ("port", port),
        ("mhz", f64::from(chip.mhz)),
        ("cores", f64::from(chip.cube_cores.min(chip.vector_cores))),
        ("l0a", r.l0a),
        ("l0b", r.l0b),
        ("l0_scales", r.l0_scales),
        ("small_rate", r.small_rate),
        ("fix_elements", r.fix_elements),
        ("fix_ub", r.fix_ub),
        ("local", r.local),
        ("granule", r.granule as f64),
    ];
    for (field, value) in rates {
        if !(value > 0.0 && value.is_finite()) {
            return Err(CostError::BadChip { field });
        }
    }
    let bursts = ports.iter().map(|p| p.burst.max(p.hbm_burst)).fold(0.0, f64::max);
    let times = [
        ("burst", bursts),
        ("hbm_latency", r.hbm_latency),
        ("l2_latency", r.l2_latency),
        ("write_latency", r.write_latency),
        ("copy_interval", r.copy_interval),
        ("load", r.load),
        ("load_3d", r.load_3d),
        ("load_follow", r.load_follow),
        ("small", r.small),
        ("mmad", r.mmad),
        ("fix", r.fix),
        ("flag", r.flag),
        ("cross_flag", r.cross_flag),
        ("sync_all", r.sync_all),
        ("launch", r.launch),
    ];
    for (field, value) in times {
        if !(value >= 0.0 && value.is_finite()) {
            return Err(CostError::BadChip { field });
        }
    }
    let mut seen = std::collections::HashSet::new();
    for (core, name) in program.cores.iter().zip(names) {
        if !seen.insert((core.cube, core.block, core.sub_block)) {
            return Err(CostError::DoubleCore { core: name.clone() });
        }
        let bad = |record, what| Err(CostError::BadRecord { core: name.clone(), record, what });
        if core.records.len() >= (1 << 31) {
            return bad(core.records.len(), "too many records");
        }
        if core.sub_block > 1 {
            return bad(0, "the sub-block is neither 0 nor 1");
        }
        for (i, r) in core.records.iter().enumerate() {
            if r.site as usize >= program.sites.len() {
                return bad(i, "its site is not in the table");
            }
            let pipe = usize::from(r.pipe) < PIPES;
            match r.kind {
                INSTRUCTION => {
                    if !pipe {
                        return bad(i, "no such pipe");
                    }
                    if usize::from(r.api) >= program.names.len() {
                        return bad(i, "its name is not in the table");
                    }
                    let bursts = u64::from(r.gm_n1).checked_mul(u64::from(r.gm_n2));
                    let bytes = bursts.and_then(|n| n.checked_mul(r.gm_bytes));
                    if bursts.is_none_or(|n| n > MAX_BURSTS) || bytes.is_none_or(|n| n > MAX_BYTES) {
                        return bad(i, "a copy of more than 4194304 rows or 2 GiB");
                    }
                }
                SET_FLAG | WAIT_FLAG => {
                    if !pipe || usize::from(r.pipe2) >= PIPES || r.pipe == r.pipe2 {
                        return bad(i, "a flag needs two different pipes");
                    }
                    if usize::from(r.id) >= IDS {
                        return bad(i, "no such event id");
                    }
                }
                BARRIER if !pipe && r.pipe != ALL_PIPES => return bad(i, "no such pipe"),
                CROSS_SET if !pipe || !matches!(r.mode, 0 | 1 | 2 | 4) || usize::from(r.id) >= CROSS_IDS => {
                    return bad(i, "no such cross-core flag");
                }
                CROSS_WAIT if !(pipe || r.pipe == ALL_PIPES) || usize::from(r.id) >= CROSS_IDS => {
                    return bad(i, "no such cross-core flag");
                }
                SYNC_ALL if r.mode > 1 => return bad(i, "no such SyncAll"),
                BARRIER | CROSS_SET | CROSS_WAIT | SYNC_ALL | SCALAR => {}
                _ => return bad(i, "no such kind"),
            }
        }
    }
    Ok(())
}

pub(super) fn run(program: &Program, chip: &Chip, options: &Options, cache: &mut L2) -> Result<Timeline, CostError> {
    let core_names = names_of(program);
    check(program, chip, &core_names)?;
    let mut engine = Engine::new(program, chip, cache);
    engine.simulate();
    if engine.cores.iter().any(|c| !c.done) {
        return Err(CostError::Deadlock { stuck: engine.stuck(program, &core_names) });
    }
    let hz = chip.hz();
    let most = |cube: bool, pipe: u8| {
        let of_kind = engine.cores.iter().zip(&engine.busy).filter(|(c, _)| c.cube == cube);
        of_kind.map(|(_, busy)| busy[usize::from(pipe)]).fold(0.0, f64::max)
    };
    let bounds = [
        (engine.hbm_read + engine.hbm_written) * hz / chip.rates.hbm,
        (engine.l2_read * hz / chip.rates.l2).max(engine.l2_written * hz / chip.rates.l2_write),
        most(true, M),
        most(false, V),
    ];
    let fallbacks = engine.names.iter().zip(&program.names).filter(|(n, _)| !n.known && n.calls > 0);
    let fallbacks = fallbacks.map(|(n, name)| Fallback { name: name.clone(), calls: n.calls }).collect();
    let cycles = engine.end.iter().copied().fold(0.0, f64::max);
    let mut cores = Vec::with_capacity(program.cores.len());
    for (i, spans) in std::mem::take(&mut engine.spans).into_iter().enumerate() {
        cores.push(CoreTimeline {
            name: core_names[i].clone(),
            cube: program.cores[i].cube,
            begin: engine.begin[i],
            end: engine.end[i],
            busy: engine.busy[i],
            last: engine.end_node[i],
            spans,
        });
    }
    Ok(Timeline {
        chip: chip.name.clone(),
        mhz: chip.mhz,
        cycles,
        launch_cycles: if options.launch { chip.rates.launch * hz } else { 0.0 },
        cores,
        hbm_read: engine.hbm_read,
        hbm_written: engine.hbm_written,
        l2_read: engine.l2_read,
        l2_written: engine.l2_written,
        flop: engine.flop,
        bounds,
        fallbacks,
    })
}

fn flag_slot(r: &Record) -> usize {
    (usize::from(r.pipe) * PIPES + usize::from(r.pipe2)) * IDS + usize::from(r.id)
}

fn later(time: f64, cause: Node, other: f64, other_cause: Node) -> (f64, Node) {
    if other > time { (other, other_cause) } else { (time, cause) }
}

impl<'a> Engine<'a> {
    fn new(program: &'a Program, chip: &'a Chip, cache: &'a mut L2) -> Self {
        let mut order: Vec<u32> = program.cores.iter().map(|c| c.block).collect();
        order.sort_unstable();
        order.dedup();
        let place: HashMap<u32, usize> = order.iter().enumerate().map(|(i, &b)| (b, i)).collect();
        let mut groups: Vec<Group> =
            order.iter().map(|_| Group { cores: Vec::new(), left: 0, end: 0.0, end_node: Node::NONE }).collect();
        let mut cores = Vec::with_capacity(program.cores.len());
        let (mut vectors, mut cubes) = (Vec::new(), Vec::new());
        for (i, c) in program.cores.iter().enumerate() {
            let group = place[&c.block];
            groups[group].cores.push(i);
            groups[group].left += 1;
            if c.cube {
                cubes.push(i)
            } else {
                vectors.push(i)
            }
            cores.push(Core::new(&c.records, c.cube, c.sub_block as u8, group));
        }
        let mut members = [Vec::new(), Vec::new()];
        for c in &program.cores {
            let mut nth = [0; 2];
            for r in c.records.iter().filter(|r| r.kind == SYNC_ALL) {
                let mode = usize::from(r.mode);
                if members[mode].len() == nth[mode] {
                    members[mode].push(0);
                }
                members[mode][nth[mode]] += 1;
                nth[mode] += 1;
            }
        }
        let names = program.names.iter().map(|name| {
            let (vector, known) = table::vector(chip.arch, name);
            NameInfo { vector, known, three_d: name.contains("3D"), calls: 0 }
        });
        let hz = chip.hz();
        let blank = Span {
            issue: 0.0,
            start: 0.0,
            end: f64::NAN,
            limit: Limit::None,
            issue_cause: Node::NONE,
            end_cause: Node::NONE,
        };
        let n = cores.len();
        Self {
            chip,
            cache,
            spans: program.cores.iter().map(|c| vec![blank; c.records.len()]).collect(),
            busy: vec![[0.0; PIPES]; n],
            begin: vec![0.0; n],
            end: vec![0.0; n],
            end_node: vec![Node::NONE; n],
            names: names.collect(),
            cores,
            groups,
            next_group: 0,
            vectors,
            cubes,
            pending: HashMap::new(),
            meetings: [Vec::new(), Vec::new()],
            members,
            now: 0.0,
            events: BinaryHeap::new(),
            sequence: 0,
            work: Vec::new(),
            hbm: Fluid::new(chip.rates.hbm / hz),
            write_back: chip.rates.hbm / hz,
            l2: Fluid::new(chip.rates.l2 / hz),
            l2_write: Fluid::new(chip.rates.l2_write / hz),
            hbm_read: 0.0,
            hbm_written: 0.0,
            l2_read: 0.0,
            l2_written: 0.0,
            flop: 0.0,
        }
    }

    fn simulate(&mut self) {
        let resident = if self.cubes.is_empty() {
            let widest = self.groups.iter().map(|g| g.cores.len()).max().unwrap_or(1).max(1);
            (self.chip.vector_cores as usize / widest).max(1)
        } else {
            self.chip.cube_cores as usize
        };
        for _ in 0..resident {
            self.start_group(0.0, Node::NONE);
        }
        let mut ended = Vec::new();
        loop {
            while let Some(core) = self.work.pop() {
                self.run_core(core);
            }
            let event = self.events.peek().map_or(f64::INFINITY, |Reverse((time, _, _))| time.value());
            let (hbm, l2, l2_write) = (self.hbm.next(), self.l2.next(), self.l2_write.next());
            let next = event.min(hbm).min(l2).min(l2_write);
            if next == f64::INFINITY {
                return;
            }
            self.now = self.now.max(next);
            if hbm <= next {
                self.hbm.finish(self.now, &mut ended);
            } else if l2 <= next {
                self.l2.finish(self.now, &mut ended);
            } else if l2_write <= next {
                self.l2_write.finish(self.now, &mut ended);
            } else if let Some(Reverse((_, _, code))) = self.events.pop() {
                self.event(code);
            }
            for id in ended.drain(..) {
                let (core, pipe) = (((id & !BACK) >> 3) as usize, (id & 7) as u8);
                if id & BACK == 0 {
                    self.stage_ended(core, pipe);
                    continue;
                }
                let p = &mut self.cores[core].pipes[usize::from(pipe)];
                p.writing_back = false;
                if std::mem::take(&mut p.held) {
                    self.enter(core, pipe);
                }
            }
        }
    }

    fn start_group(&mut self, time: f64, cause: Node) {
        let Some(group) = self.groups.get(self.next_group) else { return };
        self.next_group += 1;
        for &core in &group.cores {
            let c = &mut self.cores[core];
            c.running = true;
            c.clock = time;
            c.clock_cause = cause;
            c.dirty = 1;
            for pipe in &mut c.pipes {
                pipe.front = time;
                pipe.front_cause = cause;
                pipe.last = time;
                pipe.last_node = cause;
            }
            self.begin[core] = time;
            self.end[core] = time;
            self.work.push(core);
        }
    }

    fn post(&mut self, time: f64, code: u32) {
        self.sequence += 1;
        self.events.push(Reverse((Key::new(time), self.sequence, code)));
    }

    fn wake(&mut self, core: usize, actor: u8) {
        let c = &mut self.cores[core];
        if c.dirty == 0 {
            self.work.push(core);
        }
        c.dirty |= 1 << actor;
    }

    fn run_core(&mut self, core: usize) {
        while self.cores[core].dirty != 0 {
            let actor = self.cores[core].dirty.trailing_zeros() as u8;
            self.cores[core].dirty &= !(1 << actor);
            if actor == S {
                self.run_scalar(core);
            } else {
                self.run_pipe(core, actor);
            }
        }
        let c = &self.cores[core];
        let idle = |p: &Pipe| p.queue.is_empty() && p.flow.phase == Phase::Idle;
        if c.running && !c.done && c.pc as usize == c.records.len() && c.pipes.iter().all(idle) {
            self.core_done(core);
        }
    }

    fn core_done(&mut self, core: usize) {
        let c = &mut self.cores[core];
        c.done = true;
        let (mut end, mut node) = (c.clock, c.clock_cause);
        for pipe in &c.pipes {
            (end, node) = later(end, node, pipe.last, pipe.last_node);
            (end, node) = later(end, node, pipe.front, pipe.front_cause);
        }
        self.end[core] = end;
        self.end_node[core] = node;
        let group = c.group;
        let more = self.next_group < self.groups.len();
        let g = &mut self.groups[group];
        (g.end, g.end_node) = later(g.end, g.end_node, end, node);
        g.left -= 1;
        if g.left == 0 && more {
            let time = g.end;
            self.post(time, 1 << 31 | group as u32);
        }
    }

    fn event(&mut self, code: u32) {
        if code & 1 << 31 != 0 {
            let g = &self.groups[(code & !(1 << 31)) as usize];
            let (time, node) = (g.end, g.end_node);
            self.start_group(time, node);
            return;
        }
        let (core, pipe) = ((code >> 3) as usize, (code & 7) as u8);
        match self.cores[core].pipes[usize::from(pipe)].flow.phase {
            Phase::Dispatched => self.dispatch(core, pipe),
            Phase::Latent => self.enter(core, pipe),
            _ => {}
        }
    }

    // The scalar unit.

    fn scalar_done(&mut self, core: usize, cost: f64, time: f64, cause: Node) {
        let c = &mut self.cores[core];
        let record = c.pc;
        c.pc += 1;
        c.clock = time;
        c.clock_cause = Node::issue(core, record);
        c.stall = Stall::None;
        self.busy[core][usize::from(S)] += cost;
        let span = &mut self.spans[core][record as usize];
        span.issue = time;
        span.issue_cause = cause;
    }

    /// Ends a record that no pipe has a part in.
    fn scalar_only(&mut self, core: usize, cost: f64, time: f64, cause: Node) {
        let record = self.cores[core].pc;
        let begin = self.cores[core].clock;
        self.scalar_done(core, cost, time, cause);
        let span = &mut self.spans[core][record as usize];
        span.start = begin.max(time - cost);
        span.end = time;
        span.end_cause = Node::issue(core, record);
    }

    fn run_scalar(&mut self, core: usize) {
        loop {
            let c = &self.cores[core];
            let Some(&r) = c.records.get(c.pc as usize) else { return };
            let (clock, cause, pc) = (c.clock, c.clock_cause, c.pc);
            match r.kind {
                SCALAR => {
                    let cost = table::scalar_cycles(&r);
                    self.scalar_only(core, cost, clock + cost, cause);
                }
                INSTRUCTION if r.pipe == S => self.scalar_only(core, COSTS.call, clock + COSTS.call, cause),
                INSTRUCTION => {
                    let cost = match r.pipe {
                        V => COSTS.vector,
                        M => COSTS.mmad,
                        MTE1 => COSTS.load,
                        FIX => COSTS.fix,
                        _ => COSTS.copy,
                    };
                    if !self.issue(core, r.pipe, cost) {
                        return;
                    }
                }
                SET_FLAG if r.pipe == S => {
                    let time = clock + COSTS.flag;
                    self.scalar_only(core, COSTS.flag, time, cause);
                    self.cores[core].flags[flag_slot(&r)].push_back((time, Node::end(core, pc)));
                    self.wake(core, r.pipe2);
                }
                WAIT_FLAG if r.pipe2 == S => {
                    let slot = flag_slot(&r);
                    let Some((set, node)) = self.cores[core].flags[slot].pop_front() else {
                        self.cores[core].stall = Stall::Flag;
                        return;
                    };
                    let (time, cause) = later(clock + COSTS.flag, cause, set + self.chip.rates.flag, node);
                    self.scalar_only(core, COSTS.flag, time, cause);
                }
                SET_FLAG | BARRIER if r.pipe != ALL_PIPES && r.pipe != S => {
                    if !self.issue(core, r.pipe, COSTS.flag) {
                        return;
                    }
                }
                WAIT_FLAG => {
                    if !self.issue(core, r.pipe2, COSTS.flag) {
                        return;
                    }
                }
                BARRIER if r.pipe == S => self.scalar_only(core, COSTS.flag, clock + COSTS.flag, cause),
                BARRIER => {
                    let Some((drained, node)) = self.drained(core) else {
                        self.cores[core].stall = Stall::Drain;
                        return;
                    };
                    let (time, cause) = later(clock + COSTS.flag, cause, drained, node);
                    self.scalar_only(core, COSTS.flag, time, cause);
                }
                CROSS_SET if r.pipe == S => {
                    let time = clock + COSTS.cross;
                    self.scalar_only(core, COSTS.cross, time, cause);
                    self.cross_set(core, &r, time, Node::end(core, pc));
                }
                CROSS_WAIT if matches!(r.pipe, S | ALL_PIPES) => {
                    let Some((set, node)) = self.cross_wait(core, &r, S) else {
                        self.cores[core].stall = Stall::Cross;
                        return;
                    };
                    let (time, cause) = later(clock + COSTS.cross, cause, set, node);
                    self.scalar_only(core, COSTS.cross, time, cause);
                }
                CROSS_SET | CROSS_WAIT => {
                    if !self.issue(core, r.pipe, COSTS.cross) {
                        return;
                    }
                }
                SYNC_ALL => {
                    if !self.sync_all(core, usize::from(r.mode)) {
                        return;
                    }
                }
                // `check` let no other kind through.
                _ => self.scalar_only(core, 0.0, clock, cause),
            }
        }
    }

    /// Puts the next record into a pipe's queue, if there is room.
    fn issue(&mut self, core: usize, pipe: u8, cost: f64) -> bool {
        let c = &mut self.cores[core];
        let p = &c.pipes[usize::from(pipe)];
        let (mut time, mut cause) = (c.clock + cost, c.clock_cause);
        if p.entered >= DEPTH as u64 {
            if p.done + (DEPTH as u64) <= p.entered {
                c.stall = Stall::Full(pipe);
                return false;
            }
            let (left, node) = p.left[(p.entered % DEPTH as u64) as usize];
            (time, cause) = later(time, cause, left, node);
        }
        let record = c.pc;
        let r = &c.records[record as usize];
        let mut gate = NO_GATE;
        if r.kind == INSTRUCTION && pipe == M {
            if r.a[3] & 2 != 0 {
                gate = std::mem::replace(&mut c.unit_fix, NO_GATE);
                c.unit_mmad = record;
            } else {
                c.unit_mmad = NO_GATE;
            }
        } else if r.kind == INSTRUCTION && pipe == FIX {
            gate = c.unit_mmad;
            c.unit_fix = if gate == NO_GATE { NO_GATE } else { record };
        }
        let p = &mut c.pipes[usize::from(pipe)];
        p.entered += 1;
        p.queue.push_back(Queued { record, gate });
        c.dirty |= 1 << pipe;
        self.scalar_done(core, cost, time, cause);
        true
    }

    /// When all pipes are done with what they have, if that is known.
    fn drained(&self, core: usize) -> Option<(f64, Node)> {
        let (mut time, mut node) = (0.0, Node::NONE);
        for p in &self.cores[core].pipes {
            if !p.queue.is_empty() || p.flow.phase != Phase::Idle {
                return None;
            }
            (time, node) = later(time, node, p.last, p.last_node);
            (time, node) = later(time, node, p.front, p.front_cause);
        }
        Some((time, node))
    }

    fn sync_all(&mut self, core: usize, mode: usize) -> bool {
        let c = &self.cores[core];
        let (clock, cause) = (c.clock, c.clock_cause);
        let nth = c.syncs[mode] as usize;
        let members = self.members[mode].get(nth).copied().unwrap_or(0);
        if !c.synced {
            let Some((drained, node)) = self.drained(core) else {
                self.cores[core].stall = Stall::Drain;
                return false;
            };
            let (time, node) = later(clock, cause, drained, node);
            let meetings = &mut self.meetings[mode];
            if meetings.len() <= nth {
                meetings.push(Meeting { arrived: 0, time: 0.0, node: Node::NONE });
            }
            let meeting = &mut meetings[nth];
            meeting.arrived += 1;
            (meeting.time, meeting.node) = later(meeting.time, meeting.node, time, node);
            self.cores[core].synced = true;
            if meeting.arrived == members {
                for other in 0..self.cores.len() {
                    if other != core && self.cores[other].stall == Stall::Sync {
                        self.wake(other, S);
                    }
                }
            }
        }
        let meeting = self.meetings[mode][nth];
        if meeting.arrived < members {
            self.cores[core].stall = Stall::Sync;
            return false;
        }
        let c = &mut self.cores[core];
        c.synced = false;
        c.syncs[mode] += 1;
        let time = meeting.time + self.chip.rates.sync_all * self.chip.hz();
        self.scalar_only(core, COSTS.cross, time, meeting.node);
        true
    }

    // Cross-core flags.

    fn deliver(&mut self, to: usize, id: u8, time: f64, node: Node) {
        let c = &mut self.cores[to];
        c.arrived[usize::from(id) % CROSS_IDS].push_back((time, node));
        let waiting = std::mem::take(&mut c.crossing);
        for actor in (0..PIPES as u8).filter(|a| waiting & 1 << a != 0) {
            self.wake(to, actor);
        }
    }

    /// Whom a set reaches: mode 0 all cores of its kind once all have set it, mode 1 the vector cores of its block once
    /// both have, mode 2 from a cube core its vector cores, from vector cores their cube core once all have, mode 4 one
    /// core of the block at once.
    fn cross_set(&mut self, core: usize, r: &Record, time: f64, node: Node) {
        let c = &self.cores[core];
        let (cube, sub) = (c.cube, c.sub);
        let block = &self.groups[c.group].cores;
        let of = |cube: bool| block.iter().copied().filter(|&i| self.cores[i].cube == cube).collect::<Vec<_>>();
        let (members, targets) = match r.mode {
            0 => {
                let all = if cube { self.cubes.clone() } else { self.vectors.clone() };
                (all.clone(), all)
            }
            1 => (of(cube), of(cube)),
            2 if cube => (Vec::new(), of(false)),
            2 => (of(false), of(true)),
            _ if cube => (Vec::new(), of(false).into_iter().filter(|&i| self.cores[i].sub == r.id / 16).collect()),
            _ => (Vec::new(), of(true)),
        };
        if members.is_empty() {
            let id = match (r.mode, cube) {
                (4, true) => r.id % 16,
                (4, false) => r.id % 16 + 16 * sub,
                _ => r.id,
            };
            for to in targets {
                self.deliver(to, id, time, node);
            }
            return;
        }
        self.pending.entry((core, r.mode, r.id)).or_default().push_back((time, node));
        let set = |m: &usize| self.pending.get(&(*m, r.mode, r.id)).is_some_and(|q| !q.is_empty());
        if !members.iter().all(set) {
            return;
        }
        let (mut last, mut by) = (0.0, Node::NONE);
        for &m in &members {
            let first = self.pending.get_mut(&(m, r.mode, r.id)).and_then(VecDeque::pop_front);
            if let Some((time, node)) = first {
                (last, by) = later(last, by, time, node);
            }
        }
        for to in targets {
            self.deliver(to, r.id, last, by);
        }
    }

    /// When the next flag of this id arrives, if it was set. The mode of a wait says nothing.
    fn cross_wait(&mut self, core: usize, r: &Record, actor: u8) -> Option<(f64, Node)> {
        let c = &mut self.cores[core];
        let Some((time, node)) = c.arrived[usize::from(r.id) % CROSS_IDS].pop_front() else {
            c.crossing |= 1 << actor;
            return None;
        };
        Some((time + self.chip.rates.cross_flag, node))
    }

    // Pipes.

    /// Books that the first of a pipe's queue is done.
    fn retire(&mut self, core: usize, pipe: u8, record: u32, cause: Node, start: f64, end: f64) {
        let span = &mut self.spans[core][record as usize];
        span.start = start;
        span.end = end;
        span.end_cause = cause;
        let node = Node::end(core, record);
        let c = &mut self.cores[core];
        let p = &mut c.pipes[usize::from(pipe)];
        let before = match p.done {
            0 => (0.0, Node::NONE),
            n => p.left[((n - 1) % DEPTH as u64) as usize],
        };
        p.left[(p.done % DEPTH as u64) as usize] = later(before.0, before.1, end, node);
        p.done += 1;
        if c.stall == Stall::Full(pipe) || c.stall == Stall::Drain {
            self.wake(core, S);
        }
    }

    fn run_pipe(&mut self, core: usize, pipe: u8) {
        let at = usize::from(pipe);
        loop {
            let c = &self.cores[core];
            let p = &c.pipes[at];
            if p.flow.phase != Phase::Idle {
                return;
            }
            let Some(&Queued { record, gate }) = p.queue.front() else { return };
            let r = c.records[record as usize];
            let issue = self.spans[core][record as usize].issue;
            let (ready, ready_cause) = later(issue, Node::issue(core, record), p.front, p.front_cause);
            let (last, last_node) = (p.last, p.last_node);
            let node = Node::end(core, record);
            match r.kind {
                SET_FLAG | CROSS_SET => {
                    let (time, cause) = later(ready, ready_cause, last, last_node);
                    self.cores[core].pipes[at].queue.pop_front();
                    self.retire(core, pipe, record, cause, time, time);
                    if r.kind == SET_FLAG {
                        self.cores[core].flags[flag_slot(&r)].push_back((time, node));
                        self.wake(core, r.pipe2);
                    } else {
                        self.cross_set(core, &r, time, node);
                    }
                }
                WAIT_FLAG | CROSS_WAIT => {
                    let set = if r.kind == WAIT_FLAG {
                        let set = self.cores[core].flags[flag_slot(&r)].pop_front();
                        set.map(|(time, node)| (time + self.chip.rates.flag, node))
                    } else {
                        self.cross_wait(core, &r, pipe)
                    };
                    let Some((set, by)) = set else { return };
                    let (time, cause) = later(ready, ready_cause, set, by);
                    let p = &mut self.cores[core].pipes[at];
                    p.queue.pop_front();
                    p.front = time;
                    p.front_cause = node;
                    self.retire(core, pipe, record, cause, ready.max(last).min(time), time);
                }
                BARRIER => {
                    let (time, cause) = later(ready, ready_cause, last, last_node);
                    let p = &mut self.cores[core].pipes[at];
                    p.queue.pop_front();
                    p.front = time;
                    p.front_cause = node;
                    self.retire(core, pipe, record, cause, ready.max(last).min(time), time);
                }
                _ => {
                    if !self.instruction(core, pipe, record, gate, (ready, ready_cause)) {
                        return;
                    }
                }
            }
        }
    }

    /// Carries out an instruction, or lets a copy begin. False when the pipe cannot go on now.
    fn instruction(&mut self, core: usize, pipe: u8, record: u32, gate: u32, ready: (f64, Node)) -> bool {
        let at = usize::from(pipe);
        let r = self.cores[core].records[record as usize];
        let (mut ready, mut ready_cause) = ready;
        let gm = pipe != V && pipe != M && moved(&r) > 0;
        let mut gate_end = None;
        let free = ready;
        if gate != NO_GATE {
            let other = self.spans[core][gate as usize];
            if other.end.is_nan() {
                return false;
            }
            // A unit flag: neither side begins before the other has begun, nor ends before it.
            if other.start > ready {
                (ready, ready_cause) = (other.start, other.end_cause);
            }
            gate_end = Some((other.end, Node::end(core, gate)));
        }
        if gm {
            let p = &mut self.cores[core].pipes[at];
            p.queue.pop_front();
            p.flow = Flow {
                phase: Phase::Dispatched,
                record,
                gate,
                write: r.gm_write != 0,
                begin: free,
                dispatch: ready,
                dispatch_cause: ready_cause,
                ..NO_FLOW
            };
            if ready > self.now {
                self.post(ready, (core as u32) << 3 | u32::from(pipe));
            } else {
                self.dispatch(core, pipe);
            }
            return false;
        }
        let arch = self.chip.arch;
        let rates = &self.chip.rates;
        let (start, follow, work) = match pipe {
            V => {
                let name = &mut self.names[usize::from(r.api)];
                name.calls += 1;
                let cycles = table::vector_cycles(arch, name.vector, &r);
                (0.0, 0.0, cycles)
            }
            M => {
                self.flop += 2.0 * f64::from(r.a[0]) * f64::from(r.a[1]) * f64::from(r.a[2]);
                (rates.mmad, rates.mmad, table::cube_cycles(arch, &r))
            }
            MTE1 => table::load_cycles(self.chip, self.names[usize::from(r.api)].three_d, &r),
            FIX => {
                let elements = f64::from(r.a[0]) * f64::from(r.a[1]);
                let mut work = elements / rates.fix_elements;
                if r.to == UB {
                    let rate = if r.a[3] & 1 != 0 { 2.0 * rates.fix_ub } else { rates.fix_ub };
                    work = work.max(elements * f64::from(r.a[2]) / rate);
                }
                (rates.fix, rates.fix, work)
            }
            _ => (rates.small, rates.small, f64::from(r.a[2]) / rates.local),
        };
        let p = &mut self.cores[core].pipes[at];
        let (base, mut cause) = later(ready + start, ready_cause, p.last + follow, p.last_node);
        let mut end = base + work;
        if let Some((other, node)) = gate_end {
            (end, cause) = later(end, cause, other, node);
        }
        // As in profiles, a pipe that a unit flag holds back counts as busy.
        let begin = free.max(p.last);
        p.queue.pop_front();
        p.front = ready;
        p.front_cause = ready_cause;
        p.last = end;
        p.last_node = Node::end(core, record);
        self.busy[core][at] += end - begin;
        self.retire(core, pipe, record, cause, begin, end);
        // The other side of a unit flag may wait for this.
        match pipe {
            M if !self.cores[core].pipes[usize::from(FIX)].queue.is_empty() => self.wake(core, FIX),
            FIX if !self.cores[core].pipes[usize::from(M)].queue.is_empty() => self.wake(core, M),
            _ => {}
        }
        true
    }

    // Copies from and to GM.

    fn port(&self, core: usize, pipe: u8) -> Port {
        let r = &self.chip.rates;
        match (self.cores[core].cube, pipe) {
            (true, FIX | MTE3) => r.cube_write,
            (true, _) => r.cube_read,
            (false, FIX | MTE3) => r.vector_write,
            (false, _) => r.vector_read,
        }
    }

    /// A copy is about to begin: what it finds in L2 decides its latency and its rates.
    fn dispatch(&mut self, core: usize, pipe: u8) {
        let at = usize::from(pipe);
        let flow = self.cores[core].pipes[at].flow;
        let r = self.cores[core].records[flow.record as usize];
        let rates = &self.chip.rates;
        let write = r.gm_write != 0;
        let granule = rates.granule;
        let (mut found, mut past, mut bytes, mut touched) = (Access::default(), 0u64, 0u64, 0u64);
        for i2 in 0..u64::from(r.gm_n2) {
            let group = r.gm_address.wrapping_add(i2.wrapping_mul(r.gm_pitch2));
            for i1 in 0..u64::from(r.gm_n1) {
                let address = group.wrapping_add(i1.wrapping_mul(r.gm_pitch1));
                bytes += r.gm_bytes;
                let units = (address % granule + r.gm_bytes).div_ceil(granule);
                touched += r.gm_bytes * units / r.gm_bytes.div_ceil(granule);
                if r.l2 == 1 {
                    past += r.gm_bytes;
                    if write {
                        self.cache.drop_range(address, r.gm_bytes);
                    }
                } else {
                    let a = self.cache.access(address, r.gm_bytes, write);
                    found.hit += a.hit;
                    found.miss += a.miss;
                    found.back += a.back;
                }
            }
        }
        let whole = touched as f64;
        let stretch = whole / bytes as f64;
        let rows = if r.gm_pitch1 == r.gm_bytes { u64::from(r.gm_n2) } else { u64::from(r.gm_n1) * u64::from(r.gm_n2) };
        let port = self.port(core, pipe);
        // The cache counts whole lines; a burst that is shorter than one moves no more than itself.
        let lines = (found.hit + found.miss) as f64;
        let miss_share = if lines > 0.0 { found.miss as f64 / lines } else { 0.0 };
        let fetched = found.miss as f64 * stretch + past as f64 * stretch;
        let mut l2 = if r.l2 == 1 { 0.0 } else { whole * (1.0 - miss_share) };
        if r.gm_write == 2 {
            // Read and written where it lies.
            l2 *= 2.0;
        }
        if write {
            self.hbm_written += fetched + found.back as f64;
        } else {
            self.hbm_read += fetched;
            self.hbm_written += found.back as f64;
        }
        if write {
            self.l2_written += l2;
        } else if r.l2 != 1 {
            self.l2_read += l2 + fetched;
        }
        let mut limit = f64::INFINITY;
        let latency = match pipe {
            FIX => {
                let elements = f64::from(r.a[0]) * f64::from(r.a[1]);
                if elements > 0.0 {
                    limit = whole * rates.fix_elements / elements;
                }
                rates.fix
            }
            _ if write => rates.write_latency,
            _ if fetched > 0.0 => rates.hbm_latency,
            _ => rates.l2_latency,
        };
        let p = &mut self.cores[core].pipes[at];
        let f = &mut p.flow;
        f.hbm = fetched;
        f.back = found.back as f64;
        f.l2 = l2;
        f.hbm_limit = grid(port.hbm(whole, rows as f64).min(limit));
        f.l2_limit = grid(port.l2(whole, rows as f64).min(limit));
        f.entry = (f.dispatch + latency).max(p.last);
        f.phase = Phase::Latent;
        if pipe == MTE2 || pipe == MTE3 {
            // The next copy may begin its latency soon after this one did.
            p.front = f.dispatch + rates.copy_interval;
        } else {
            p.front = f.dispatch;
        }
        p.front_cause = f.dispatch_cause;
        let entry = f.entry;
        if entry > self.now {
            self.post(entry, (core as u32) << 3 | u32::from(pipe));
        } else {
            self.enter(core, pipe);
        }
    }

    fn enter(&mut self, core: usize, pipe: u8) {
        let id = (core as u32) << 3 | u32::from(pipe);
        let p = &mut self.cores[core].pipes[usize::from(pipe)];
        let f = &mut p.flow;
        if f.back > 0.0 {
            // Lines leave while the copy goes on, but one copy's lines at a time.
            if p.writing_back {
                p.held = true;
                return;
            }
            p.writing_back = true;
            self.hbm.start(self.now, id | BACK, f.back, self.write_back);
            f.back = 0.0;
        }
        f.stage = self.now;
        if f.hbm > 0.0 {
            f.phase = Phase::Hbm;
            self.hbm.start(self.now, id, f.hbm, f.hbm_limit);
        } else if f.l2 > 0.0 {
            self.enter_l2(core, pipe);
        } else {
            self.flow_ended(core, pipe);
        }
    }

    fn enter_l2(&mut self, core: usize, pipe: u8) {
        let id = (core as u32) << 3 | u32::from(pipe);
        let f = &mut self.cores[core].pipes[usize::from(pipe)].flow;
        f.phase = Phase::L2;
        let side = if f.write { &mut self.l2_write } else { &mut self.l2 };
        side.start(self.now, id, f.l2, f.l2_limit);
    }

    fn stage_ended(&mut self, core: usize, pipe: u8) {
        let f = &mut self.cores[core].pipes[usize::from(pipe)].flow;
        if f.phase == Phase::Hbm {
            f.hbm_cycles = self.now - f.stage;
            f.stage = self.now;
            if f.l2 > 0.0 {
                self.enter_l2(core, pipe);
                return;
            }
        }
        self.flow_ended(core, pipe);
    }

    fn flow_ended(&mut self, core: usize, pipe: u8) {
        let at = usize::from(pipe);
        let p = &mut self.cores[core].pipes[at];
        let f = p.flow;
        let mut end = self.now;
        let mut cause = if p.last > f.dispatch && f.entry <= p.last { p.last_node } else { f.dispatch_cause };
        if f.gate != NO_GATE {
            let other = self.spans[core][f.gate as usize].end;
            (end, cause) = later(end, cause, other, Node::end(core, f.gate));
        }
        let begin = f.begin.max(p.last);
        let l2_cycles = if f.l2 > 0.0 { self.now - f.stage } else { 0.0 };
        let shared = |cycles: f64, bytes: f64, limit: f64| bytes > 0.0 && cycles > 1.05 * bytes / limit;
        let mut weights = [(Limit::Latency, f.entry - begin), (Limit::Hbm, 0.0), (Limit::L2, 0.0), (Limit::Port, 0.0)];
        weights[if shared(f.hbm_cycles, f.hbm, f.hbm_limit) { 1 } else { 3 }].1 += f.hbm_cycles;
        weights[if shared(l2_cycles, f.l2, f.l2_limit) { 2 } else { 3 }].1 += l2_cycles;
        let limit = weights.iter().fold(weights[0], |best, w| if w.1 > best.1 { *w } else { best }).0;
        p.flow = NO_FLOW;
        p.last = end;
        p.last_node = Node::end(core, f.record);
        self.busy[core][at] += end - begin;
        self.spans[core][f.record as usize].limit = limit;
        self.retire(core, pipe, f.record, cause, begin, end);
        self.wake(core, pipe);
        if pipe == FIX {
            self.wake(core, M);
        }
    }

    fn stuck(&self, program: &Program, names: &[String]) -> Vec<Stuck> {
        let mut stuck = Vec::new();
        for (i, c) in self.cores.iter().enumerate().filter(|(_, c)| !c.done) {
            let mut add = |pipe: u8, record: u32, reason: String| {
                let site = program.sites.get(c.records[record as usize].site as usize);
                stuck.push(Stuck {
                    core: names[i].clone(),
                    pipe: PIPE_NAMES[usize::from(pipe)],
                    record: record as usize,
                    reason,
                    site: site.map_or_else(String::new, |(file, line)| format!("{file}:{line}")),
                });
            };
            let cross = |r: &Record| format!("cross-core flag {}", r.id);
            let flag = |r: &Record| {
                let (from, to) = (PIPE_NAMES[usize::from(r.pipe)], PIPE_NAMES[usize::from(r.pipe2)]);
                format!("flag {} from {from} to {to}", r.id)
            };
            if !c.running {
                if !c.records.is_empty() {
                    add(S, 0, "a free core".to_owned());
                }
                continue;
            }
            if let Some(r) = c.records.get(c.pc as usize) {
                match c.stall {
                    Stall::Flag => add(S, c.pc, flag(r)),
                    Stall::Cross => add(S, c.pc, cross(r)),
                    Stall::Sync => add(S, c.pc, "the other cores of SyncAll".to_owned()),
                    _ => {}
                }
            }
            for (pipe, p) in c.pipes.iter().enumerate() {
                if let Some(q) = p.queue.front() {
                    let r = &c.records[q.record as usize];
                    let reason = match r.kind {
                        WAIT_FLAG => flag(r),
                        CROSS_WAIT => cross(r),
                        _ if q.gate != NO_GATE => "the other side of its unit flag".to_owned(),
                        _ => continue,
                    };
                    add(pipe as u8, q.record, reason);
                }
            }
        }
        stuck
    }
}

const NO_FLOW: Flow = Flow {
    phase: Phase::Idle,
    record: 0,
    gate: NO_GATE,
    write: false,
    begin: 0.0,
    dispatch: 0.0,
    dispatch_cause: Node::NONE,
    entry: 0.0,
    stage: 0.0,
    back: 0.0,
    hbm: 0.0,
    l2: 0.0,
    hbm_limit: 1.0,
    l2_limit: 1.0,
    hbm_cycles: 0.0,
};

/// Bytes of GM that a record moves.
fn moved(r: &Record) -> u64 {
    // `check` bounds the product.
    u64::from(r.gm_n1) * u64::from(r.gm_n2) * r.gm_bytes
}

impl<'a> Core<'a> {
    fn new(records: &'a [Record], cube: bool, sub: u8, group: usize) -> Self {
        let pipe = || Pipe {
            queue: VecDeque::new(),
            left: [(0.0, Node::NONE); DEPTH],
            entered: 0,
            done: 0,
            front: 0.0,
            front_cause: Node::NONE,
            last: 0.0,
            last_node: Node::NONE,
            flow: NO_FLOW,
            writing_back: false,
            held: false,
        };
        Self {
            records,
            cube,
            sub,
            group,
            pc: 0,
            clock: 0.0,
            clock_cause: Node::NONE,
            stall: Stall::None,
            synced: false,
            running: false,
            done: false,
            dirty: 0,
            unit_mmad: NO_GATE,
            unit_fix: NO_GATE,
            syncs: [0; 2],
            arrived: std::array::from_fn(|_| VecDeque::new()),
            crossing: 0,
            pipes: std::array::from_fn(|_| pipe()),
            flags: (0..PIPES * PIPES * IDS).map(|_| VecDeque::new()).collect(),
        }
    }
}
