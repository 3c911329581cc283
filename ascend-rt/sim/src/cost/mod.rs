// SPDX-License-Identifier: MIT OR Apache-2.0

//! From the record of a launch to a predicted time.
//!
//! [`simulate`] replays what each core did, in program order, against the rates of a [`Chip`]:
//!
//! * The **scalar unit** of a core issues its records one after the other, at a cost for each call. It waits when a pipe's
//!   queue is full (32 instructions), at a flag whose waiting side is S, at `PipeBarrier<PIPE_ALL>` and at `SyncAll`.
//! * A **pipe** takes its instructions in order. `SetFlag` happens when all before it on its pipe has ended; `WaitFlag`
//!   holds the pipe that waits. A vector instruction takes its fixed cycles and a slope for each repeat of 256 bytes, a
//!   Mmad the blocks of 16 x 16 of its padded sizes, a load or copy its start and its bytes. The start of a DMA copy
//!   and (on 2201, for the most part) of a load is hidden behind a preceding one of the same pipe, unless a flag or a
//!   barrier lies between them; that of a vector instruction is not: published loops show none of it hidden.
//! * With **unit flags**, a Fixpipe begins with the last Mmad before it and ends after it, and the next Mmad begins after
//!   the Fixpipe has begun and does not end before it: hand-over by 512 bytes, without following each of them.
//! * **GM**: a copy pays a latency, then its bytes. Lines that the L2 cache has come at the rate of L2, others through
//!   HBM, where lines that must be written back to make room count too. HBM and L2 are shared equally by the copies that
//!   are active at that moment ([`Fluid`]); no copy is faster than its core's port, whose rate falls with short bursts.
//!   Bursts off the border of 512 bytes (2201) pay for the piece more that they touch. Not modelled: banks of UB, channels
//!   of HBM and L2, reads of one address by many cores at once.
//! * **Cores** meet at cross-core flags (modes 0, 1, 2, 4) and at `SyncAll`. Blocks beyond the chip's cores start when
//!   others end.
//!
//! What a number comes from stands beside it, in `chip.rs` and `table.rs`; many were worked out from the times of single
//! pipes in published profiles. `tests/cost.rs` compares whole kernels with these profiles, and with others that no number
//! was taken from. They are predictions: nothing here was run on a chip by us.
//!
//! ```
//! use ascend_sim::abi::Record;
//! use ascend_sim::cost::{Chip, CoreProgram, Options, Program, simulate};
//!
//! let chip = Chip::preset("910B3")?;
//! let exp = Record { kind: 0, pipe: 1, api: 0, a: [64, 4, 4096, 0], ..Record::default() };
//! let core = CoreProgram { cube: false, block: 0, sub_block: 0, records: vec![exp; 10] };
//! let program = Program { cores: vec![core], names: vec!["Exp".into()], sites: vec![("k.cpp".into(), 7)] };
//! let timeline = simulate(&program, &chip, &Options::default())?;
//! assert_eq!(timeline.bound().name(), "vector");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod chip;
mod engine;
mod fluid;
mod html;
mod kinds;
mod l2;
mod path;
mod table;
mod trace;

use core::fmt;

use crate::abi::Record;

pub use chip::{Arch, Chip, Memories, Port, Rates, Reserve, UnknownChip};
pub use fluid::Fluid;
pub use html::write_html;
pub use l2::{Access, L2};
pub use path::{Share, Step, Wait};
pub use trace::write_chrome_trace;

/// The record of one core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreProgram {
    /// A cube core (AIC); else a vector core (AIV).
    pub cube: bool,
    /// Index of the launched block.
    pub block: u32,
    /// 0 or 1 on vector cores.
    pub sub_block: u32,
    /// What it did, in program order.
    pub records: Vec<Record>,
}

/// The record of a launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The cores that took part.
    pub cores: Vec<CoreProgram>,
    /// Names of API calls; `Record::api` is an index.
    pub names: Vec<String>,
    /// Places in the source, file and line; `Record::site` is an index.
    pub sites: Vec<(String, u32)>,
}

/// How to simulate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Count the launch of the kernel (5 us) in [`Timeline::microseconds`].
    pub launch: bool,
    /// Begin with the L2 cache as an earlier launch of the same kernel on the same buffers left it, as it is when a
    /// profiler repeats a kernel. Else it is empty.
    pub warm: bool,
}

impl Options {
    /// With the launch counted.
    pub fn with_launch(self, launch: bool) -> Self {
        Self { launch, ..self }
    }

    /// After an earlier launch.
    pub fn with_warm(self, warm: bool) -> Self {
        Self { warm, ..self }
    }
}

/// Why a core does not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// "AIC 3", "AIV 7".
    pub core: String,
    /// "S", "MTE2", ...
    pub pipe: &'static str,
    /// Index of the record that waits.
    pub record: usize,
    /// What it waits for.
    pub reason: String,
    /// Where in the source, if the record says so.
    pub site: String,
}

/// A record that cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CostError {
    /// Some cores wait for what never comes.
    Deadlock {
        /// Each pipe that waits.
        stuck: Vec<Stuck>,
    },
    /// A record does not mean anything.
    BadRecord {
        /// "AIC 3", "AIV 7".
        core: String,
        /// Its index.
        record: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// More cores than a record can be traced for.
    TooManyCores {
        /// How many.
        cores: usize,
    },
    /// The two cores of a block have the same kind and sub-block.
    DoubleCore {
        /// "AIC 3", "AIV 7".
        core: String,
    },
    /// A rate of the chip is not a positive number.
    BadChip {
        /// Its field.
        field: &'static str,
    },
}

impl fmt::Display for CostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CostError::Deadlock { stuck } => {
                write!(f, "the record dead-locks: ")?;
                for (i, s) in stuck.iter().take(8).enumerate() {
                    let sep = if i == 0 { "" } else { "; " };
                    write!(f, "{sep}{} of {} waits for {} at {}", s.pipe, s.core, s.reason, s.site)?;
                }
                if stuck.len() > 8 {
                    write!(f, "; and {} more", stuck.len() - 8)?;
                }
                Ok(())
            }
            CostError::BadRecord { core, record, what } => write!(f, "record {record} of {core}: {what}"),
            CostError::TooManyCores { cores } => write!(f, "{cores} cores; at most {MAX_CORES} can be simulated"),
            CostError::DoubleCore { core } => write!(f, "{core} is recorded twice"),
            CostError::BadChip { field } => write!(f, "the chip's {field} is not a positive number"),
        }
    }
}

impl core::error::Error for CostError {}

const MAX_CORES: usize = 1 << 16;

/// A moment that another one waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node(u64);

impl Node {
    const NONE: Node = Node(u64::MAX);

    fn issue(core: usize, record: u32) -> Self {
        Self((core as u64) << 33 | u64::from(record) << 1)
    }

    fn end(core: usize, record: u32) -> Self {
        Self(Self::issue(core, record).0 | 1)
    }

    /// Core, record, and whether it is the end of the record rather than its issue.
    fn parts(self) -> Option<(usize, usize, bool)> {
        (self != Self::NONE).then_some(((self.0 >> 33) as usize, (self.0 >> 1) as u32 as usize, self.0 & 1 == 1))
    }
}

/// What held a copy back for the most part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Limit {
    /// It is no copy from or to GM.
    #[default]
    None,
    /// Its latency.
    Latency,
    /// Its core's own port.
    Port,
    /// HBM, shared with other cores.
    Hbm,
    /// The L2 cache, shared with other cores.
    L2,
}

/// When one record was issued and carried out, in cycles of the launch.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The scalar unit was done with it.
    pub issue: f64,
    /// Its pipe began with it.
    pub start: f64,
    /// Its pipe was done with it. Of flags: when they were set or seen.
    pub end: f64,
    /// What limited a copy.
    pub limit: Limit,
    issue_cause: Node,
    end_cause: Node,
}

/// One core of a timeline. Pipes are in the order S, V, M, MTE1, MTE2, MTE3, FIX.
#[derive(Clone, Debug)]
pub struct CoreTimeline {
    /// "AIC 3", "AIV 7".
    pub name: String,
    /// A cube core.
    pub cube: bool,
    /// When its block was started.
    pub begin: f64,
    /// When all its pipes were done.
    pub end: f64,
    /// Cycles that each pipe worked.
    pub busy: [f64; kinds::PIPES],
    /// One for each record.
    pub spans: Vec<Span>,
    last: Node,
}

/// Names of the pipes in the order of [`CoreTimeline::busy`].
pub const PIPES: [&str; kinds::PIPES] = kinds::PIPE_NAMES;

/// A vector call that no table knows; its cycles are those of a middling one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// The call.
    pub name: String,
    /// How often it was made.
    pub calls: u64,
}

/// Which of the chip's resources allows no shorter time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Bytes of HBM at its rate.
    Hbm,
    /// Bytes of L2 at its rate, reads or writes.
    L2,
    /// The cube core with most Mmad cycles.
    Cube,
    /// The vector core with most vector cycles.
    Vector,
}

impl Bound {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Bound::Hbm => "HBM",
            Bound::L2 => "L2",
            Bound::Cube => "cube",
            Bound::Vector => "vector",
        }
    }
}

/// What a launch would take, and why.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Name of the chip.
    pub chip: String,
    /// Clock in MHz.
    pub mhz: u32,
    /// From the start of the first block to the end of the last, without the launch.
    pub cycles: f64,
    /// Cycles that the launch takes before; 0 unless [`Options::launch`].
    pub launch_cycles: f64,
    /// One for each core of the program.
    pub cores: Vec<CoreTimeline>,
    /// Bytes read from HBM.
    pub hbm_read: f64,
    /// Bytes written to HBM.
    pub hbm_written: f64,
    /// Bytes read through L2.
    pub l2_read: f64,
    /// Bytes written to L2.
    pub l2_written: f64,
    /// Multiplications and additions of all Mmads, without padding.
    pub flop: f64,
    /// Cycles of HBM alone, L2 alone, the busiest cube, the busiest vector unit.
    pub bounds: [f64; 4],
    /// Calls that no table knows.
    pub fallbacks: Vec<Fallback>,
}

impl Timeline {
    /// The predicted time in microseconds, launch included if it was asked for.
    pub fn microseconds(&self) -> f64 {
        self.us(self.cycles + self.launch_cycles)
    }

    /// Cycles in microseconds.
    pub fn us(&self, cycles: f64) -> f64 {
        cycles / f64::from(self.mhz)
    }

    /// The resource that allows no shorter time.
    pub fn bound(&self) -> Bound {
        let kinds = [Bound::Hbm, Bound::L2, Bound::Cube, Bound::Vector];
        let mut best = 0;
        for i in 1..kinds.len() {
            if self.bounds[i] > self.bounds[best] {
                best = i;
            }
        }
        kinds[best]
    }

    /// Share of that resource's time in the whole time: 1 is as fast as it can be.
    pub fn bound_reached(&self) -> f64 {
        let bound = self.bounds.iter().copied().fold(0.0, f64::max);
        if self.cycles > 0.0 { bound / self.cycles } else { 0.0 }
    }

    /// Mean busy cycles of a pipe over the cores of one kind, as profilers print them.
    pub fn mean_busy(&self, cube: bool, pipe: usize) -> f64 {
        self.mean(cube, |c| c.busy.get(pipe).copied().unwrap_or(0.0))
    }

    /// Mean time from the start of a core to its end.
    pub fn mean_cycles(&self, cube: bool) -> f64 {
        self.mean(cube, |c| c.end - c.begin)
    }

    fn mean(&self, cube: bool, of: impl Fn(&CoreTimeline) -> f64) -> f64 {
        let cores = self.cores.iter().filter(|c| c.cube == cube);
        let (n, sum) = cores.fold((0.0, 0.0), |(n, sum), c| (n + 1.0, sum + of(c)));
        if n > 0.0 { sum / n } else { 0.0 }
    }
}

/// Replays `program` on `chip`.
///
/// The time that this takes grows with the records, the rows of strided copies, and little else.
pub fn simulate(program: &Program, chip: &Chip, options: &Options) -> Result<Timeline, CostError> {
    let mut cache = L2::new(chip.l2);
    if options.warm {
        engine::run(program, chip, options, &mut cache)?;
    }
    engine::run(program, chip, options, &mut cache)
}
