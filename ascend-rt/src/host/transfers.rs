// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls about memory: allocation, copies, fills.

use std::sync::Arc;

use super::exec::Need;
use super::fail::{Answer, Fail};
use super::machine::{Machine, usage};
use super::memory::{HostMemory, Origin, is_device_like};
use super::slab::Key;
use super::state::{Copy2d, HostPointer, Op, Place, State};
use super::sync::lock;
use super::thread;
use super::trace::{Name, Piece, Row};
use crate::sys::*;

/// A copy as it is asked for.
#[derive(Clone, Copy)]
pub(super) struct CopyCall {
    pub(super) to: *mut u8,
    /// Bytes between rows, or what the destination can take of a plain copy.
    pub(super) to_pitch: usize,
    pub(super) from: *const u8,
    pub(super) from_pitch: usize,
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) kind: aclrtMemcpyKind,
}

/// A copy that has been checked.
struct Checked {
    copy: Copy2d,
    /// One side is host memory that is not pinned.
    pageable: bool,
    /// No side is device memory.
    on_host: bool,
}

impl Machine {
    fn origin(&self, context: Key) -> Origin {
        Origin { tag: thread::with(&self.identity, |state| state.tag.clone()), context: context.0 }
    }

    pub(super) fn malloc(&self, size: usize, policy: aclrtMemMallocPolicy) -> Answer<u64> {
        let known = policy.0 <= ACL_MEM_MALLOC_HUGE1G_ONLY_P2P.0
            || [ACL_MEM_TYPE_LOW_BAND_WIDTH, ACL_MEM_TYPE_HIGH_BAND_WIDTH, ACL_MEM_ACCESS_USER_SPACE_READONLY]
                .contains(&policy);
        if size == 0 || !known {
            return usage(format!("{size} bytes with policy {policy:?}, expected at least 1 byte and a known policy"));
        }
        let s = self.state();
        let context = self.current(&s)?;
        let device = self.current_device(&s)?;
        drop(s);
        let origin = self.origin(context);
        let mut arena = lock(&self.devices[device as usize].arena);
        arena.allocate(size as u64, origin).map_err(|error| {
            Fail::new(ACL_ERROR_RT_MEMORY_ALLOCATION, format!("no memory on device {device}: {error}"))
        })
    }

    pub(super) fn free(&self, pointer: *mut u8, sync: bool) -> Answer {
        let s = self.state();
        self.current_or_lost(&s)?;
        let address = pointer.addr() as u64;
        if address == 0 {
            return usage("a null pointer");
        }
        let Some(device) = self.owner(address) else {
            return Err(Fail::new(
                ACL_ERROR_RT_MEMORY_FREE,
                format!("{pointer:?} is no device memory of this machine"),
            ));
        };
        if sync {
            if s.streams.iter().any(|(_, stream)| stream.device == device && stream.capture.is_some()) {
                return Err(Fail::new(ACL_ERROR_RT_STREAM_CAPTURED, "a stream of the device is captured"));
            }
            drop(self.wait(s, Need::Device(device), None));
        } else {
            drop(s);
        }
        let found = &self.devices[device as usize];
        lock(&found.arena).free(address).map_err(|fault| Fail::new(ACL_ERROR_RT_MEMORY_FREE, fault.0))?;
        // A free does not wait for the task that runs; whoever has the token next settles it.
        if let Ok(_token) = found.token.try_lock() {
            self.settle(device);
        }
        Ok(())
    }

    pub(super) fn malloc_host(&self, size: usize) -> Answer<*mut u8> {
        if size == 0 {
            return usage("0 bytes of pinned memory");
        }
        let context = self.current(&self.state())?;
        let origin = self.origin(context);
        lock(&self.pinned)
            .allocate(size as u64, origin)
            .map_err(|error| Fail::new(ACL_ERROR_RT_MEMORY_ALLOCATION, format!("no pinned memory: {error}")))
    }

    pub(super) fn free_host(&self, pointer: *mut u8) -> Answer {
        self.current_or_lost(&self.state())?;
        if pointer.is_null() {
            return usage("a null pointer");
        }
        let damage = lock(&self.pinned)
            .free(pointer.addr() as u64)
            .map_err(|fault| Fail::new(ACL_ERROR_RT_MEMORY_FREE, fault.0))?;
        lock(&self.damage).extend(damage);
        Ok(())
    }

    pub(super) fn register_host(&self, pointer: *mut u8, size: u64, kind: aclrtHostRegisterType) -> Answer {
        self.current(&self.state())?;
        let address = pointer.addr() as u64;
        let known = [ACL_HOST_REGISTER_MAPPED, ACL_HOST_REGISTER_IOMEMORY, ACL_HOST_REGISTER_READONLY].contains(&kind);
        let end = address.checked_add(size).filter(|_| !is_device_like(address));
        if address == 0 || size == 0 || !address.is_multiple_of(4096) || end.is_none() || !known {
            return usage(format!(
                "{size} bytes at {pointer:?} as {kind:?}: expected host memory that begins at a multiple of 4096"
            ));
        }
        if !lock(&self.pinned).register(address, size) {
            return Err(Fail::new(ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "the range overlaps a registered one"));
        }
        Ok(())
    }

    pub(super) fn unregister_host(&self, pointer: *mut u8) -> Answer {
        self.current_or_lost(&self.state())?;
        if !lock(&self.pinned).unregister(pointer.addr() as u64) {
            return Err(Fail::new(
                ACL_ERROR_HOST_MEMORY_NOT_REGISTERED,
                format!("no registered range begins at {pointer:?}"),
            ));
        }
        Ok(())
    }

    pub(super) fn pointer_attributes(&self, pointer: *const u8) -> Answer<aclrtPtrAttributes> {
        self.current(&self.state())?;
        let address = pointer.addr() as u64;
        let device =
            self.owner(address).filter(|device| lock(&self.devices[*device as usize].arena).range(address, 1).is_ok());
        let (id, kind, page_size) = match device {
            Some(device) => (device, ACL_MEM_LOCATION_TYPE_DEVICE, 2 << 20),
            None => match lock(&self.pinned).kind(address, 1) {
                Ok(HostMemory::Pinned) => (0, ACL_MEM_LOCATION_TYPE_HOST, 4096),
                _ => (0, ACL_MEM_LOCATION_TYPE_UNREGISTERED, 4096),
            },
        };
        let location = aclrtMemLocation { id, r#type: kind };
        Ok(aclrtPtrAttributes { location, pageSize: page_size, rsv: [0; 4] })
    }

    /// What one end of a copy is, checked as far as it can be at submission.
    fn place(&self, pointer: *mut u8, span: u64) -> Answer<(Place, HostMemory)> {
        let address = pointer.addr() as u64;
        if is_device_like(address) {
            let Some(device) = self.owner(address) else {
                return usage(format!("{pointer:?} is no device memory of this machine"));
            };
            let range = lock(&self.devices[device as usize].arena).range(address, span);
            range.map_err(|fault| Fail::new(ACL_ERROR_RT_PARAM_INVALID, fault.0))?;
            return Ok((Place::Device(address), HostMemory::Pinned));
        }
        let kind = lock(&self.pinned).kind(address, span);
        let kind = kind.map_err(|fault| Fail::new(ACL_ERROR_RT_PARAM_INVALID, fault.0))?;
        Ok((Place::Host(HostPointer(pointer)), kind))
    }

    /// Checks a copy. `None`: there is nothing to do.
    fn check_copy(&self, s: &State, call: &CopyCall) -> Answer<Option<Checked>> {
        let CopyCall { to, to_pitch, from, from_pitch, width, height, kind } = *call;
        if to.is_null() || from.is_null() {
            return usage("a null pointer");
        }
        if width == 0 || height == 0 {
            return usage(format!("{width} bytes, {height} rows"));
        }
        if width > to_pitch || width > from_pitch {
            return usage(format!("{width} bytes into {to_pitch} from {from_pitch}"));
        }
        if kind.0 > ACL_MEMCPY_INTER_DEVICE_TO_DEVICE.0 {
            return usage(format!("{kind:?}"));
        }
        if core::ptr::eq(to, from) {
            return Ok(None);
        }
        let shape = Copy2d {
            to: Place::Device(0),
            to_pitch: to_pitch as u64,
            from: Place::Device(0),
            from_pitch: from_pitch as u64,
            width: width as u64,
            height: height as u64,
        };
        let (Some(to_span), Some(from_span)) = (shape.span(shape.to_pitch), shape.span(shape.from_pitch)) else {
            return usage(format!("{height} rows of {width} bytes are more than can be addressed"));
        };
        let (to, to_kind) = self.place(to, to_span)?;
        let (from, from_kind) = self.place(from.cast_mut(), from_span)?;
        self.check_devices(s, to, from)?;
        let on_host = matches!((to, from), (Place::Host(_), Place::Host(_)));
        let pageable = to_kind == HostMemory::Pageable || from_kind == HostMemory::Pageable;
        Ok(Some(Checked { copy: Copy2d { to, from, ..shape }, pageable, on_host }))
    }

    /// Device memory must be of the current device, or of one that it may reach.
    fn check_devices(&self, s: &State, to: Place, from: Place) -> Answer {
        let current = self.current_device(s)?;
        let owner = |place: Place| match place {
            Place::Device(address) => self.owner(address),
            Place::Host(_) => None,
        };
        let reaches = |a: u32, b: u32| s.devices[a as usize].peers.contains(&b);
        match (owner(to), owner(from)) {
            (Some(a), Some(b)) if a != b && !reaches(a, b) && !reaches(b, a) => {
                usage(format!("a copy between devices {a} and {b} without peer access"))
            }
            (Some(a), Some(b)) if a != current && b != current => {
                usage(format!("a copy on devices {a} and {b}, the current one is {current}"))
            }
            (Some(device), None) | (None, Some(device)) if device != current => {
                usage(format!("the memory belongs to device {device}, the current one is {current}"))
            }
            _ => Ok(()),
        }
    }

    /// Copies here and now.
    fn copy_now(&self, copy: &Copy2d) -> Answer {
        self.run_copy(copy)?;
        let cost = self.copy_cost(copy);
        let bytes = copy.width.saturating_mul(copy.height);
        self.blocking(Name::Static("blocking copy"), cost, bytes);
        Ok(())
    }

    /// The host spends virtual time in a call.
    fn blocking(&self, name: Name, cost: u64, bytes: u64) {
        let start = self.now();
        self.at_least(start.saturating_add(cost));
        self.trace.add(|| Piece {
            row: Row::Host(thread::number()),
            name,
            category: "copy",
            start,
            length: Some(cost),
            bytes,
            blocks: 0,
            failed: 0,
        });
    }

    pub(super) fn copy(&self, call: &CopyCall) -> Answer {
        let s = self.state();
        self.current(&s)?;
        let Some(checked) = self.check_copy(&s, call)? else { return Ok(()) };
        self.check_mode(&s, ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT, "a blocking copy")?;
        drop(s);
        self.copy_now(&checked.copy)
    }

    pub(super) fn copy_async(self: &Arc<Self>, call: &CopyCall, stream: aclrtStream) -> Answer {
        let s = self.state();
        let key = self.stream(&s, stream)?;
        self.check_submission(&s, key)?;
        let Some(checked) = self.check_copy(&s, call)? else { return Ok(()) };
        if checked.on_host {
            return Err(Fail::new(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "a stream does not copy from host to host"));
        }
        if !checked.pageable {
            drop(s);
            return self.submit(stream, |_| Ok(Op::Copy(checked.copy)));
        }
        if s.streams.get(key).is_some_and(|stream| stream.capture.is_some()) {
            return usage("a copy with host memory that is not pinned cannot be captured");
        }
        // What AscendCL makes of it: a hidden wait for the stream, then a blocking copy.
        self.drain(s, key, None)?;
        self.check_mode(&self.state(), ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC, "a copy with memory that is not pinned")?;
        self.copy_now(&checked.copy)
    }

    fn check_fill(&self, s: &State, pointer: *mut u8, room: usize, count: usize) -> Answer<u64> {
        let address = pointer.addr() as u64;
        if address == 0 || count == 0 || count > room {
            return usage(format!("{count} bytes into {room} at {pointer:?}"));
        }
        match self.place(pointer, count as u64)? {
            (Place::Host(_), _) => usage(format!("{pointer:?} is no device memory")),
            (to, _) => self.check_devices(s, to, to).map(|()| address),
        }
    }

    pub(super) fn fill(&self, pointer: *mut u8, room: usize, value: i32, count: usize) -> Answer {
        let s = self.state();
        self.current(&s)?;
        let address = self.check_fill(&s, pointer, room, count)?;
        self.check_mode(&s, ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT, "a blocking fill")?;
        drop(s);
        let bytes = count as u64;
        self.run_fill(address, value as u8, bytes)?;
        self.blocking(Name::Static("blocking fill"), self.config.cost.fill_ns(bytes), bytes);
        Ok(())
    }

    pub(super) fn fill_async(
        self: &Arc<Self>,
        pointer: *mut u8,
        room: usize,
        value: i32,
        count: usize,
        stream: aclrtStream,
    ) -> Answer {
        self.submit(stream, |s| {
            let address = self.check_fill(s, pointer, room, count)?;
            Ok(Op::Fill { address, value: value as u8, bytes: count as u64 })
        })
    }
}
