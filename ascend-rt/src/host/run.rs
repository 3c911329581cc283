// SPDX-License-Identifier: MIT OR Apache-2.0

//! What tasks do: copies, fills, kernels. Nothing here holds the lock of the state.

use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};

use super::config::nanoseconds;
use super::fail::{Answer, Fail};
use super::kernel::{BlockCtx, CoreKind, DeviceSpace, HostRun, KernelFault, LaunchCtx};
use super::machine::{Device, Machine};
use super::memory::{Block, Token};
use super::state::{Copy2d, Launch, Op, Place, Rng};
use super::sync::lock;
use super::team::{Seat, run_team};
use crate::kernel::ArgKind;
use crate::sys::*;

/// Where and when a task runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    pub(super) device: u32,
    pub(super) stream_id: i32,
    /// Virtual time.
    pub(super) begin: u64,
    /// A seed for what has no order of its own: blocks, branches.
    pub(super) shuffle: Option<u64>,
}

/// What came of a task.
#[derive(Debug)]
pub(super) struct Ran {
    /// Nanoseconds of virtual time.
    pub(super) cost: u64,
    pub(super) bytes: u64,
    pub(super) failure: Option<Fail>,
}

impl Ran {
    pub(super) fn ok(cost: u64, bytes: u64) -> Ran {
        Ran { cost, bytes, failure: None }
    }

    fn from(answer: Answer, cost: u64, bytes: u64) -> Ran {
        Ran { cost, bytes, failure: answer.err() }
    }
}

fn exception(text: String) -> Fail {
    Fail::new(ACL_ERROR_RT_AICORE_EXCEPTION, text)
}

impl Machine {
    /// The lock of a device's bytes. What was freed since somebody had it is settled first.
    pub(super) fn token(&self, device: u32) -> MutexGuard<'_, Token> {
        let token = lock(&self.devices[device as usize].token);
        self.settle(device);
        token
    }

    /// Checks and overwrites what was freed; the caller has the token.
    pub(super) fn settle(&self, device: u32) {
        // No allocation unless there is damage.
        let mut found = Vec::new();
        lock(&self.devices[device as usize].arena).settle(&mut found);
        if !found.is_empty() {
            lock(&self.damage).extend(found);
        }
    }

    /// The device that hands out such an address.
    pub(super) fn owner(&self, address: u64) -> Option<u32> {
        self.devices.iter().position(|device| device.window.contains(&address)).map(|index| index as u32)
    }

    /// Does the work of a task.
    pub(super) fn run(&self, site: &Site, op: &mut Op) -> Ran {
        match op {
            Op::Kernel(launch) => self.run_kernel(site, launch),
            Op::Copy(copy) => {
                let bytes = copy.width.saturating_mul(copy.height);
                Ran::from(self.run_copy(copy), self.copy_cost(copy), bytes)
            }
            Op::Fill { address, value, bytes } => {
                let done = self.run_fill(*address, *value, *bytes);
                Ran::from(done, self.config.cost.fill_ns(*bytes), *bytes)
            }
            Op::Host(call) => {
                // SAFETY: the program passed the function for this call; the stream's order makes it the only one.
                unsafe { call.call() };
                Ran::ok(0, 0)
            }
            Op::Replay(graph) => self.run_replay(site, graph),
            Op::Update { graph, launches } => {
                lock(&graph.body).update(launches);
                Ran::ok(0, 0)
            }
            Op::Record { .. } | Op::Wait { .. } | Op::Note(_) | Op::Report { .. } => Ran::ok(0, 0),
        }
    }

    pub(super) fn copy_cost(&self, copy: &Copy2d) -> u64 {
        let bytes = copy.width.saturating_mul(copy.height);
        let one_device = match (copy.to, copy.from) {
            (Place::Device(to), Place::Device(from)) => self.owner(to) == self.owner(from),
            (Place::Host(_), Place::Host(_)) => return 0,
            _ => false,
        };
        self.config.cost.copy_ns(bytes, one_device)
    }

    /// The bytes of a device range, kept in place by the block. The caller has the token of the device.
    pub(super) fn device_bytes(&self, address: u64, len: u64) -> Answer<(Arc<Block>, *mut u8)> {
        let device = self.owner(address).ok_or_else(|| exception(format!("address {address:#x} is of no device")))?;
        let block =
            lock(&self.devices[device as usize].arena).range(address, len).map_err(|fault| exception(fault.0))?;
        let offset = (address - block.address) as usize;
        // SAFETY: the arena has checked that the range lies in the block.
        let start = unsafe { block.start().add(offset) };
        Ok((block, start))
    }

    /// Copies, under the locks of the devices that take part.
    pub(super) fn run_copy(&self, copy: &Copy2d) -> Answer {
        let device = |place: Place| match place {
            Place::Device(address) => self.owner(address),
            Place::Host(_) => None,
        };
        let (to, from) = (device(copy.to), device(copy.from));
        // In ascending order, so that two copies between the same devices cannot wait for each other.
        let first = to.into_iter().chain(from).min();
        let second = to.into_iter().chain(from).max().filter(|second| Some(*second) != first);
        let _first = first.map(|device| self.token(device));
        let _second = second.map(|device| self.token(device));
        // Held while it copies, so that pinned memory that is freed meanwhile stays until the copy is done.
        let pinned =
            [copy.to, copy.from].iter().any(|place| matches!(place, Place::Host(_))).then(|| lock(&self.pinned));
        let side = |place: Place, pitch: u64| -> Answer<(Option<Arc<Block>>, *mut u8)> {
            let span =
                copy.span(pitch).ok_or_else(|| exception("the copy has more bytes than can be counted".to_owned()))?;
            match place {
                Place::Device(address) => self.device_bytes(address, span).map(|(block, start)| (Some(block), start)),
                Place::Host(pointer) => {
                    // Pinned memory may have been freed since the copy was queued.
                    let known = pinned.as_ref().map(|pinned| pinned.kind(pointer.0.addr() as u64, span));
                    known.transpose().map_err(|fault| exception(fault.0)).map(|_| (None, pointer.0))
                }
            }
        };
        let (_to_block, to) = side(copy.to, copy.to_pitch)?;
        let (_from_block, from) = side(copy.from, copy.from_pitch)?;
        for row in 0..copy.height {
            // SAFETY: both sides have been checked from the first to the last byte, for host memory as far as it is
            // known here; the rest is the contract of the call. The locks above keep other tasks away from device
            // memory, and the ranges may overlap.
            unsafe {
                core::ptr::copy(
                    from.add((row * copy.from_pitch) as usize),
                    to.add((row * copy.to_pitch) as usize),
                    copy.width as usize,
                );
            }
        }
        Ok(())
    }

    pub(super) fn run_fill(&self, address: u64, value: u8, bytes: u64) -> Answer {
        let device = self.owner(address).ok_or_else(|| exception(format!("address {address:#x} is of no device")))?;
        let _token = self.token(device);
        let (_block, start) = self.device_bytes(address, bytes)?;
        // SAFETY: the range is in the block, and the token keeps other tasks away.
        unsafe { start.write_bytes(value, bytes as usize) };
        Ok(())
    }

    /// Runs a launch.
    pub(super) fn run_kernel(&self, site: &Site, launch: &mut Launch) -> Ran {
        let function = launch.function.clone();
        let device = &self.devices[site.device as usize];
        let mut token = self.token(site.device);
        let space = Space {
            machine: self,
            device: site.device,
            inner: Mutex::new(SpaceInner {
                recent: [None, None, None, None],
                next: 0,
                shown: core::mem::take(&mut token.held),
            }),
            side: SidePointer(launch.payload.side.as_mut_ptr()),
            side_len: launch.payload.side.len(),
            side_address: device.side_address,
        };
        let context = LaunchCtx {
            module: &function.module_name,
            kernel: &function.name,
            arch: &device.arch,
            soc: &device.chip.name,
            kind: function.kernel.kind,
            blocks: launch.blocks,
            layout: &function.kernel.layout,
            block: &launch.payload.block,
            space: &space,
        };
        let bytes = buffer_bytes(&context);
        let planned = self.faults.kernel(&function.module_name, &function.name);
        let cost = match &function.kernel.cost {
            Some(cost) => caught(|| Ok(nanoseconds(cost(&context)))),
            None => Ok(self.config.cost.kernel_ns(bytes)),
        };
        let limit = launch.limit.unwrap_or_else(|| self.op_timeout.load(Ordering::Relaxed));
        let (mut cost, mut done) = match (cost, planned) {
            _ if function.unloaded.load(Ordering::Acquire) => {
                (0, Err(KernelFault::exception("its module was unloaded before it ran")))
            }
            (Err(fault), _) => (0, Err(fault)),
            (Ok(cost), Some(code)) => (cost, Err(KernelFault { code, message: "planned to fail".to_owned() })),
            (Ok(cost), None) => {
                let ran = run_blocks(&context, &function.kernel.run, function.kernel.barrier, device, site);
                let told = ran.as_ref().ok().copied().flatten();
                (told.map_or(cost, nanoseconds), ran.map(|_| ()))
            }
        };
        let timeouts = [ACL_ERROR_RT_AICORE_TIMEOUT, ACL_ERROR_RT_VECTOR_CORE_TIMEOUT];
        let stuck = matches!(&done, Err(fault) if timeouts.contains(&fault.code));
        if cost > limit && done.is_ok() {
            done = Err(KernelFault::timeout(format!("it takes {cost} ns of virtual time, the limit is {limit} ns")));
        }
        if stuck || cost > limit {
            cost = limit;
        }
        let mut shown = space.inner.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).shown;
        let damage: Vec<String> = shown.iter().filter_map(|block| block.damage()).collect();
        shown.clear();
        token.held = shown;
        if let (Some(text), Ok(())) = (damage.first(), &done) {
            done = Err(KernelFault::exception(text.clone()));
        }
        let failure = done.err().map(|fault| {
            let text = format!("kernel {}::{} failed: {}", function.module_name, function.name, fault.message);
            Fail::new(fault.code, text)
        });
        Ran { cost, bytes, failure }
    }
}

/// Bytes of the buffers of a launch, each to the end of its allocation.
fn buffer_bytes(context: &LaunchCtx<'_>) -> u64 {
    let mut total = 0u64;
    for param in context.layout.params() {
        if matches!(param.kind, ArgKind::In | ArgKind::Out | ArgKind::InOut | ArgKind::Pointer)
            && let Some(slot) = context.block.get(param.offset..).and_then(|slots| slots.first_chunk())
        {
            let extent = context.space.extent(u64::from_le_bytes(*slot));
            total = total.saturating_add(extent.unwrap_or(0) as u64);
        }
    }
    total
}

/// Calls into a kernel, whose panics are exceptions.
pub(super) fn caught<T>(f: impl FnOnce() -> Result<T, KernelFault>) -> Result<T, KernelFault> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Err(KernelFault::exception(format!("it panicked: {text}")))
    })
}

/// Cores of each kind in one block, with the number of blocks that run at once.
fn seats(kind: CoreKind, device: &Device) -> (u32, u32) {
    match kind {
        CoreKind::Vector => (1, device.chip.vector_cores),
        CoreKind::Cube => (1, device.chip.cube_cores),
        CoreKind::Mix { aiv_per_aic } => (1 + u32::from(aiv_per_aic), device.chip.cube_cores),
    }
}

/// Runs all blocks. The answer is the time of the launch, where the kernel tells it.
fn run_blocks(
    context: &LaunchCtx<'_>,
    run: &HostRun,
    barrier: bool,
    device: &Device,
    site: &Site,
) -> Result<Option<Duration>, KernelFault> {
    let (per_block, at_once) = seats(context.kind, device);
    if barrier && context.blocks > at_once {
        return Err(KernelFault::timeout(format!(
            "its cores wait for each other, and of its {} blocks only {at_once} are on cores at once: a dead-lock",
            context.blocks
        )));
    }
    let run = match run {
        HostRun::Launch(run) => return caught(|| run(context)).map(|()| None),
        HostRun::Timed(run) => return caught(|| run(context)),
        HostRun::Block(run) => run,
    };
    let count = u64::from(context.blocks) * u64::from(per_block);
    if barrier {
        return run_team(context, run, per_block, site.shuffle).map(|()| None);
    }
    // Shuffled cheaply: from a random core on, in a random direction.
    let (first, backwards) = match site.shuffle {
        Some(seed) => {
            let mut rng = Rng::new(seed);
            (rng.next() % count.max(1), rng.next() & 1 == 1)
        }
        None => (0, false),
    };
    caught(|| {
        for step in 0..count {
            let index = (first + if backwards { count - step } else { step }) % count;
            run(&block_ctx(context, per_block, index, Seat::alone(count)))?;
        }
        Ok(None)
    })
}

/// The context of one machine.
pub(super) fn block_ctx<'a>(context: &'a LaunchCtx<'a>, per_block: u32, index: u64, seat: Seat<'a>) -> BlockCtx<'a> {
    let core = (index % u64::from(per_block)) as u32;
    BlockCtx::new(context, (index / u64::from(per_block)) as u32, core, seat)
}

/// The bytes that came with a launch, as a pointer that several threads may know.
struct SidePointer(*mut u8);

// SAFETY: the bytes belong to the launch that made the space, and the space is gone before they move.
unsafe impl Send for SidePointer {}
// SAFETY: as above; `Space` copies through it under its own lock.
unsafe impl Sync for SidePointer {}

/// Device memory for one launch, which has the token of the device.
struct Space<'a> {
    machine: &'a Machine,
    device: u32,
    inner: Mutex<SpaceInner>,
    side: SidePointer,
    side_len: usize,
    side_address: u64,
}

struct SpaceInner {
    /// The blocks that were looked up last.
    recent: [Option<Arc<Block>>; 4],
    next: usize,
    /// The blocks whose bytes were shown as pointers.
    shown: Vec<Arc<Block>>,
}

impl Space<'_> {
    fn fault(&self, address: u64, text: String) -> KernelFault {
        match self.machine.owner(address) {
            Some(device) if device != self.device => {
                KernelFault::exception(format!("address {address:#x} is memory of device {device}"))
            }
            _ => KernelFault::exception(text),
        }
    }

    /// Offset into the data that came with the launch.
    fn side_offset(&self, address: u64) -> Option<usize> {
        let offset = address.checked_sub(self.side_address)?;
        usize::try_from(offset).ok().filter(|offset| *offset < self.side_len)
    }

    /// The block of a range.
    fn block(&self, inner: &mut SpaceInner, address: u64, len: u64) -> Result<Arc<Block>, KernelFault> {
        for block in inner.recent.iter().flatten() {
            let offset = address.wrapping_sub(block.address);
            if offset < block.size && len <= block.size - offset && !block.is_freed() {
                return Ok(block.clone());
            }
        }
        let found = lock(&self.machine.devices[self.device as usize].arena).range(address, len);
        let block = found.map_err(|fault| self.fault(address, fault.0))?;
        let place = inner.next % inner.recent.len();
        inner.recent[place] = Some(block.clone());
        inner.next = place + 1;
        Ok(block)
    }
}

impl DeviceSpace for Space<'_> {
    fn extent(&self, address: u64) -> Option<usize> {
        if let Some(offset) = self.side_offset(address) {
            return Some(self.side_len - offset);
        }
        let block = self.block(&mut lock(&self.inner), address, 1).ok()?;
        Some((block.size - (address - block.address)) as usize)
    }

    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), KernelFault> {
        let mut inner = lock(&self.inner);
        if let Some(offset) = self.side_offset(address) {
            if out.len() > self.side_len - offset {
                return Err(KernelFault::exception(format!(
                    "{} bytes at {address:#x} reach beyond a tiling struct",
                    out.len()
                )));
            }
            // SAFETY: the range was checked; the bytes live as long as the launch.
            unsafe { core::ptr::copy_nonoverlapping(self.side.0.add(offset), out.as_mut_ptr(), out.len()) };
            return Ok(());
        }
        let block = self.block(&mut inner, address, out.len() as u64)?;
        let offset = (address - block.address) as usize;
        // SAFETY: the range is in the block; the launch has the token of the device, and its threads come here one at a
        // time.
        unsafe { core::ptr::copy_nonoverlapping(block.start().add(offset), out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), KernelFault> {
        let mut inner = lock(&self.inner);
        if self.side_offset(address).is_some() {
            return Err(KernelFault::exception(format!(
                "address {address:#x} is that of a tiling struct, which is read-only"
            )));
        }
        let block = self.block(&mut inner, address, bytes.len() as u64)?;
        let offset = (address - block.address) as usize;
        // SAFETY: as for `read`; `bytes` is memory of the host, never of a block.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), block.start().add(offset), bytes.len()) };
        Ok(())
    }

    fn translate(&self, address: u64) -> Option<(NonNull<u8>, usize)> {
        if let Some(offset) = self.side_offset(address) {
            // SAFETY: the offset is inside the data.
            return NonNull::new(unsafe { self.side.0.add(offset) }).map(|start| (start, self.side_len - offset));
        }
        let mut inner = lock(&self.inner);
        let block = self.block(&mut inner, address, 1).ok()?;
        if !inner.shown.iter().any(|shown| Arc::ptr_eq(shown, &block)) {
            inner.shown.push(block.clone());
        }
        let offset = address - block.address;
        // SAFETY: the offset is inside the block.
        NonNull::new(unsafe { block.start().add(offset as usize) })
            .map(|start| (start, (block.usable() - offset) as usize))
    }
}
