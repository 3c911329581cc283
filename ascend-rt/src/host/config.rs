// SPDX-License-Identifier: MIT OR Apache-2.0

//! How an emulated machine is set up.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use super::chip::Chip;
use super::faults::Fault;
use super::kernel::HostKernel;
use super::memory::MAX_DEVICES;
use super::report::ReportSlot;
use crate::raw::Call;

/// In which order, and where, queued tasks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Executor {
    /// One thread per stream, as on a card: streams overlap as the machine's scheduler pleases.
    #[default]
    Threads,
    /// No threads: at each call a random number of tasks, each from a random stream whose next task can run. The same
    /// seed gives the same order. Finds waits that are missing; a kernel's blocks and a graph's branches are shuffled
    /// too.
    ///
    /// The order is reproducible as long as one thread of the program uses the machine.
    Seeded(u64),
    /// No threads, and nothing runs before a call waits for it; then only what that call needs. Finds waits and
    /// lifetimes that are missing and that luck hides on a card.
    ///
    /// A program that polls would wait for ever; so from the second query of one object on, with nothing submitted
    /// in between, each query runs one task.
    Lazy,
}

/// What fresh memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Fill {
    /// A pattern that is a NaN in the float types; freed memory gets another. Finds uninitialised reads.
    #[default]
    Pattern,
    /// Zeros, which large allocations get without being touched: for programs with many gigabytes.
    Zero,
}

/// What a submission does when the queue of its stream is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum FullQueue {
    /// It waits until there is room.
    #[default]
    Wait,
    /// It fails with 507002.
    Refuse,
}

/// What tasks cost on the virtual clock.
///
/// Time never comes from the machine: a task begins when its stream is free, its waits are over and it has been
/// submitted, and ends after its cost. The host's own clock moves only when a call waits. So times are the same in
/// every run and with every executor. They are a model, not a prediction for a card.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CostModel {
    /// What every kernel costs that states no cost of its own, before its bytes.
    pub kernel: Duration,
    /// What every copy or fill costs before its bytes.
    pub copy: Duration,
    /// Bytes per microsecond of device memory: kernels without a stated cost (the bytes of their buffers), fills,
    /// copies on one device (each byte is read and written).
    pub device_bytes_per_us: u64,
    /// Bytes per microsecond between host and device, and between devices.
    pub link_bytes_per_us: u64,
}

impl Default for CostModel {
    /// Round numbers of the order of an A2.
    fn default() -> Self {
        Self {
            kernel: Duration::from_micros(5),
            copy: Duration::from_micros(10),
            device_bytes_per_us: 1_000_000,
            link_bytes_per_us: 25_000,
        }
    }
}

impl CostModel {
    fn bytes(count: u64, per_us: u64) -> u64 {
        let ns = u128::from(count) * 1000 / u128::from(per_us.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Nanoseconds of a kernel that touches so many bytes.
    pub(super) fn kernel_ns(&self, bytes: u64) -> u64 {
        nanoseconds(self.kernel).saturating_add(Self::bytes(bytes, self.device_bytes_per_us))
    }

    /// Nanoseconds of a fill.
    pub(super) fn fill_ns(&self, bytes: u64) -> u64 {
        nanoseconds(self.copy).saturating_add(Self::bytes(bytes, self.device_bytes_per_us))
    }

    /// Nanoseconds of a copy, on one device or over the link.
    pub(super) fn copy_ns(&self, bytes: u64, one_device: bool) -> u64 {
        let moving = if one_device {
            Self::bytes(bytes.saturating_mul(2), self.device_bytes_per_us)
        } else {
            Self::bytes(bytes, self.link_bytes_per_us)
        };
        nanoseconds(self.copy).saturating_add(moving)
    }
}

/// A duration on the virtual clock.
pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A machine to emulate: devices, limits, executor, kernels, faults.
///
/// ```
/// use ascend_rt::host::{Chip, Executor, HostConfig};
///
/// let config = HostConfig::new()
///     .devices(2, Chip::preset("Ascend910B2")?)
///     .capacity(1 << 20)
///     .executor(Executor::Seeded(7));
/// # Ok::<(), ascend_rt::host::UnknownChip>(())
/// ```
#[derive(Clone)]
pub struct HostConfig {
    settings: Box<Settings>,
}

/// What a configuration says. Boxed, as it is large and often one of several choices.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) chips: Vec<Chip>,
    no_device: bool,
    pub(super) capacity: Option<u64>,
    pub(super) pinned_limit: u64,
    pub(super) executor: Executor,
    pub(super) queue_limit: usize,
    pub(super) full_queue: FullQueue,
    pub(super) fill: Fill,
    pub(super) quarantine: u64,
    pub(super) cost: CostModel,
    pub(super) op_timeout: Duration,
    pub(super) destroy_wait: Duration,
    pub(super) graph_lane_tasks: u32,
    pub(super) faults: Vec<Fault>,
    pub(super) kernels: Vec<(Arc<str>, Arc<str>, HostKernel)>,
    pub(super) without: Vec<Call>,
    pub(super) trace: bool,
    pub(super) report: Option<ReportSlot>,
}

impl fmt::Debug for HostConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostConfig")
            .field("chips", &self.settings.chips.iter().map(|chip| &chip.name).collect::<Vec<_>>())
            .field("executor", &self.settings.executor)
            .field("kernels", &self.settings.kernels.len())
            .field("faults", &self.settings.faults.len())
            .finish_non_exhaustive()
    }
}

impl Default for HostConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl HostConfig {
    /// One device of the default chip, one thread per stream, nothing planned to fail.
    #[must_use]
    pub fn new() -> Self {
        let settings = Settings {
            chips: Vec::new(),
            no_device: false,
            capacity: None,
            pinned_limit: 200 << 30,
            executor: Executor::default(),
            queue_limit: 2048,
            full_queue: FullQueue::default(),
            fill: Fill::default(),
            quarantine: 16 << 20,
            cost: CostModel::default(),
            op_timeout: Duration::from_secs(1091),
            destroy_wait: Duration::from_secs(10),
            graph_lane_tasks: 2000,
            faults: Vec::new(),
            kernels: Vec::new(),
            without: Vec::new(),
            trace: false,
            report: None,
        };
        Self { settings: Box::new(settings) }
    }

    /// Adds a device. A machine has at most 128; more are left out.
    #[must_use]
    pub fn device(mut self, chip: Chip) -> Self {
        self.settings.chips.push(chip);
        self
    }

    /// Adds several devices of one chip, as [`device`](Self::device) does.
    #[must_use]
    pub fn devices(mut self, count: usize, chip: Chip) -> Self {
        self.settings.chips.extend(std::iter::repeat_n(chip, count));
        self
    }

    /// Says that there is no device at all: what a program sees when no card is visible.
    #[must_use]
    pub fn no_device(mut self) -> Self {
        self.settings.chips.clear();
        self.settings.no_device = true;
        self
    }

    /// Limits the memory of every device to so many bytes, instead of what its chip has.
    #[must_use]
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.settings.capacity = Some(bytes);
        self
    }

    /// Limits pinned memory of the host; 200 GiB without it.
    #[must_use]
    pub fn pinned_limit(mut self, bytes: u64) -> Self {
        self.settings.pinned_limit = bytes;
        self
    }

    /// Chooses how queued tasks run.
    #[must_use]
    pub fn executor(mut self, executor: Executor) -> Self {
        self.settings.executor = executor;
        self
    }

    /// Limits the queue of a stream to so many tasks (at least one; 2048 without it), and says what a full one does.
    #[must_use]
    pub fn queue(mut self, tasks: usize, full: FullQueue) -> Self {
        self.settings.queue_limit = tasks.max(1);
        self.settings.full_queue = full;
        self
    }

    /// Says what fresh memory holds.
    #[must_use]
    pub fn fill(mut self, fill: Fill) -> Self {
        self.settings.fill = fill;
        self
    }

    /// Keeps the storage of freed memory until so many bytes were freed after it; 16 MiB per device without it.
    #[must_use]
    pub fn quarantine(mut self, bytes: u64) -> Self {
        self.settings.quarantine = bytes;
        self
    }

    /// Sets the costs on the virtual clock.
    #[must_use]
    pub fn cost(mut self, cost: CostModel) -> Self {
        self.settings.cost = cost;
        self
    }

    /// Limits the virtual time of a kernel; beyond it, 507014. About 1091 s without it.
    #[must_use]
    pub fn op_timeout(mut self, limit: Duration) -> Self {
        self.settings.op_timeout = limit;
        self
    }

    /// How long destroying a graph waits for a running replay before 107037; 10 s without it.
    #[must_use]
    pub fn destroy_wait(mut self, limit: Duration) -> Self {
        self.settings.destroy_wait = limit;
        self
    }

    /// How many tasks one stream of a captured graph holds before the graph takes another one from the budget (at least
    /// one; 2000 without it).
    #[must_use]
    pub fn graph_lane_tasks(mut self, tasks: u32) -> Self {
        self.settings.graph_lane_tasks = tasks.max(1);
        self
    }

    /// Plans something to fail.
    #[must_use]
    pub fn fault(mut self, fault: Fault) -> Self {
        self.settings.faults.push(fault);
        self
    }

    /// Gives the machine a kernel, for this machine only; it goes before one that is registered for the process.
    #[must_use]
    pub fn kernel(mut self, module: &str, name: &str, kernel: HostKernel) -> Self {
        self.settings.kernels.push((module.into(), name.into(), kernel));
        self
    }

    /// Takes a call away, as an older version lacks it.
    #[must_use]
    pub fn without(mut self, call: Call) -> Self {
        self.settings.without.push(call);
        self
    }

    /// Records a timeline from the start; see [`Host::trace_json`](super::Host::trace_json).
    #[must_use]
    pub fn trace(mut self) -> Self {
        self.settings.trace = true;
        self
    }

    /// Puts the report of what was left behind into a slot when the machine goes away. Without one, leaks are written
    /// to standard error.
    #[must_use]
    pub fn report_to(mut self, slot: &ReportSlot) -> Self {
        self.settings.report = Some(slot.clone());
        self
    }

    pub(super) fn into_settings(self) -> Settings {
        *self.settings
    }
}

impl Settings {
    /// The devices: one of the default chip unless something else was said.
    pub(super) fn resolved_chips(&self) -> Vec<Chip> {
        if self.chips.is_empty() && !self.no_device {
            return vec![Chip::default()];
        }
        self.chips.iter().take(MAX_DEVICES).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_grow_with_bytes_and_do_not_overflow() {
        let cost = CostModel::default();
        assert_eq!(cost.kernel_ns(0), 5_000);
        assert_eq!(cost.kernel_ns(1_000_000), 6_000);
        assert_eq!(cost.copy_ns(25_000, false), 11_000);
        assert_eq!(cost.copy_ns(500_000, true), 11_000);
        assert_eq!(cost.fill_ns(1_000_000), 11_000);
        assert!(cost.copy_ns(u64::MAX, false) > cost.copy_ns(1 << 40, false));
        let slow = CostModel { link_bytes_per_us: 0, ..cost };
        assert_eq!(slow.copy_ns(u64::MAX, false), u64::MAX);
    }

    #[test]
    fn a_machine_has_one_device_unless_told_otherwise() {
        assert_eq!(HostConfig::new().settings.resolved_chips().len(), 1);
        assert_eq!(HostConfig::new().devices(3, Chip::default()).settings.resolved_chips().len(), 3);
        assert!(HostConfig::new().no_device().settings.resolved_chips().is_empty());
        assert_eq!(HostConfig::new().capacity(0).settings.resolved_chips().len(), 1);
        assert_eq!(HostConfig::new().devices(500, Chip::default()).settings.resolved_chips().len(), MAX_DEVICES);
    }
}
