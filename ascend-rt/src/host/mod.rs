// SPDX-License-Identifier: MIT OR Apache-2.0

//! The emulator: a [`Raw`](crate::raw::Raw) without a card.
//!
//! Each [`Host`] is a machine of its own: devices, handles, and for every thread its own current context, last error,
//! recent message, argument block and capture mode. Several machines in one process know nothing of each other.
//!
//! The calls answer with the codes of AscendCL, in the places where it gives them. What a program gets away with on a
//! card by luck fails here where that can be had: memory is not what it was, ranges end where they end, tasks run in
//! unlucky orders ([`Executor`]), and what is left behind is reported ([`HostReport`]).
//!
//! # Rules
//!
//! | matter | rule |
//! | --- | --- |
//! | device addresses | numbers that no processor maps, aligned to 64; ranges end at the size asked for |
//! | sizes | charged rounded up to 32, with 32 more on A2 and A3; beyond the capacity 207001, no bytes 107000 |
//! | fresh and freed memory | two patterns, both NaN in the float types; guard zones around each block, checked when it is freed, when a kernel had pointers into it, and at the end: 507015 at the next synchronisation |
//! | a device range that is not allocated | blocking copies and submissions: 107000; a task that finds it gone when it runs: 507015 at the next synchronisation |
//! | memory of another device | 107000 for copies without [peer access](crate::sys::AclTable), 507015 in a kernel |
//! | one task at a time | of one device, whatever the executor; streams interleave, tasks do not overlap in time of the machine. On the virtual clock they do |
//! | failures | the code of the task at the next synchronisation of its stream or context, or of an event recorded behind it. Failure mode *continue*: later ones replace it, and once returned it is gone. *Stop*: the first one stays, queues are dropped, submissions are refused with its code |
//! | timeouts | by the virtual clock; by the machine's only while a function of the program runs, which may never return |
//! | replay | runs the captured tasks with the arguments that they had; a failing one is 507011, its message tells the task and the cause |
//! | a graph whose module was unloaded, whose memory was freed | 507011, the cause 507015 |
//! | kernels | by (module, name), see [`HostKernel`]; with a barrier, each core is a thread and one of them runs at a time |
//! | what a task may call | no call that waits, submits or allocates: 107000 |
//! | messages | `EH<code>: <call>: <what happened>`, per thread, cleared when read |
//!
//! # Capture
//!
//! | act while a stream is captured | answer | the capture |
//! | --- | --- | --- |
//! | sync, query or destruction of a captured stream | 107027 | goes on |
//! | sync of the device, any stream of the context captured | 107027 | goes on |
//! | sync, query or elapsed time of an event recorded in it | 107028 | goes on |
//! | blocking copy or fill, where the modes forbid it | 107030 | goes on |
//! | pageable copy on another stream, where the modes forbid it | 107041 | goes on |
//! | replay of a graph into it, begin again | 107027 | goes on |
//! | default stream: begin on it, or work on it while one is on in its context | 107031 | goes on |
//! | wait for an event of no capture; pageable copy; a launch that is refused; no stream left for it | 107024; 107000; the launch's code; 207008, 207005 | is invalidated |
//! | wait for an event of another capture | 107032 | both are invalidated |
//! | any submission to an invalidated capture | 507903 | stays invalidated |
//! | end: no capture, not the origin | 107029, 107036 | unchanged |
//! | end: another thread (unless relaxed), invalidated, an open task group, a stream not joined | 107038, 507903, 107033, 107025 | is given up |
//!
//! Which blocking calls the modes forbid: none to a thread that has exchanged its mode to relaxed; to a thread in the
//! default (global) mode those where any capture is global or the thread's own capture is thread-local; to a thread in
//! thread-local mode those where it has a capture of its own that is not relaxed. "Any capture" means any of the
//! emulated machine, which stands for the process.
//!
//! A stream is joined when its last task is a record that a stream of the capture waited for.
//!
//! # Virtual time
//!
//! [`Host::now`] and events tell the virtual time, which [`CostModel`] makes; [`Host::trace_json`] shows it as a
//! timeline for Chrome's trace viewer or Perfetto.

mod args;
mod calls;
mod chip;
mod config;
mod devices;
mod exec;
mod fail;
mod faults;
mod graph;
mod kernel;
mod machine;
mod memory;
mod modules;
mod prof;
mod report;
mod run;
mod slab;
mod state;
mod streams;
mod sync;
mod team;
mod thread;
mod trace;
mod transfers;

use self::machine::Machine;
use crate::raw::Call;
use core::fmt;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::Arc;

pub use chip::{Chip, UnknownChip};
pub use config::{CostModel, Executor, Fill, FullQueue, HostConfig};
pub use faults::Fault;
pub use kernel::{
    Args, BlockCtx, BlockFn, Core, CoreKind, DeviceSpace, DeviceView, HostCost, HostKernel, HostRun, IMAGE_MAGIC,
    KernelFault, LaunchCtx, LaunchFn, TimedFn, module_image,
};
pub use memory::{Leak, MemoryUse};
pub use modules::{LoadedModule, Loader, register, register_loader};
pub use report::{HostReport, ReportSlot};

/// An emulated machine. When it is dropped, tasks that are still queued do not run any more.
pub struct Host {
    machine: Arc<Machine>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("devices", &self.machine.devices.iter().map(|device| &device.chip.name).collect::<Vec<_>>())
            .field("executor", &self.machine.config.executor)
            .finish_non_exhaustive()
    }
}

impl Host {
    /// Makes a machine.
    #[must_use]
    pub fn new(config: HostConfig) -> Arc<Self> {
        Arc::new(Self { machine: Arc::new(Machine::new(config.into_settings())) })
    }

    /// Registers a kernel with this machine, in place of one of the same names. Kernel handles that are out keep the
    /// old one.
    pub fn register(&self, module: &str, kernel: &str, what: HostKernel) {
        self.machine.register_kernel(module, kernel, what);
    }

    /// Plans something to fail, from now on.
    pub fn inject(&self, fault: Fault) {
        self.machine.faults.add(fault);
    }

    /// The chip of a device.
    #[must_use]
    pub fn chip(&self, device: u32) -> Option<&Chip> {
        self.machine.devices.get(device as usize).map(|device| &device.chip)
    }

    /// The memory of a device that is in use.
    #[must_use]
    pub fn memory(&self, device: u32) -> MemoryUse {
        let device = self.machine.devices.get(device as usize);
        device.map_or_else(MemoryUse::default, |device| sync::lock(&device.arena).account())
    }

    /// The memory of a device that is in use under each name that [`tagged`](Self::tagged) gave.
    #[must_use]
    pub fn memory_by_tag(&self, device: u32) -> Vec<(String, MemoryUse)> {
        let device = self.machine.devices.get(device as usize);
        device.map_or_else(Vec::new, |device| sync::lock(&device.arena).tags())
    }

    /// Pinned memory that is in use.
    #[must_use]
    pub fn pinned_memory(&self) -> MemoryUse {
        sync::lock(&self.machine.pinned).account()
    }

    /// Gives the allocations that this thread makes meanwhile a name, for accounts, reports and messages.
    pub fn tagged<R>(&self, tag: &str, f: impl FnOnce() -> R) -> R {
        struct Restore<'a>(&'a Host, Option<Arc<str>>);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                let tag = self.1.take();
                thread::with(&self.0.machine.identity, |state| state.tag = tag);
            }
        }
        let before = thread::with(&self.machine.identity, |state| state.tag.replace(tag.into()));
        let _restore = Restore(self, before);
        f()
    }

    /// How often a call was made.
    #[must_use]
    pub fn count(&self, call: Call) -> u64 {
        self.machine.counts.get(call as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// The host's virtual time on this thread.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.machine.now())
    }

    /// Starts or stops recording the timeline.
    pub fn set_trace(&self, on: bool) {
        self.machine.trace.set(on);
    }

    /// The timeline so far, as Chrome's trace viewer and Perfetto read it. Times are virtual.
    #[must_use]
    pub fn trace_json(&self) -> String {
        self.machine.trace.json()
    }

    /// What is alive now, and what has gone wrong and was not returned by any call.
    #[must_use]
    pub fn report(&self) -> HostReport {
        self.machine.report()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let report = self.machine.report();
        self.machine.shut_down();
        match &self.machine.config.report {
            Some(slot) => slot.put(report),
            None if report.device_memory.is_empty() && report.pinned_memory.is_empty() && report.unseen.is_empty() => {}
            None => eprintln!("ascend-rt emulator: {report}"),
        }
    }
}
