// SPDX-License-Identifier: MIT OR Apache-2.0

//! Host memory that the device reaches.

use super::pool::Retired;
use super::{DeviceRepr, byte_count};
use crate::context::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::handle::Handle;
use crate::lane::{Access, Track};
use crate::raw::Call;
use crate::sys::*;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Pinned memory aligned like this by the library.
const ALIGN: usize = 64;

/// Pinned memory of one buffer. Graphs hold it too.
///
/// Host and device take turns. The host's accesses are counted by guards; a submission of the device reserves the buffer
/// from before it is queued until its mark is noted, and from then on the mark speaks for it. So a host access begins
/// only when no submission is on its way and those that were queued are done, and a submission is refused while the host
/// has a guard that it collides with. Eager copies cannot collide, since they borrow the buffer; replays can.
pub(crate) struct PinnedStorage {
    context: Context,
    pointer: Handle,
    bytes: usize,
    pub(crate) track: Track,
    turns: Mutex<Turns>,
    changed: Condvar,
}

#[derive(Default)]
struct Turns {
    /// Guards of the host that read.
    readers: usize,
    /// Whether the host has a guard that writes.
    writer: bool,
    /// Submissions on their way.
    reserved: usize,
}

impl fmt::Debug for PinnedStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pinned bytes at {:#x}", self.bytes, self.pointer.address())
    }
}

impl PinnedStorage {
    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn pointer(&self) -> Handle {
        self.pointer
    }

    /// The device is about to use the memory. Ends with [`unreserve`](Self::unreserve).
    pub(crate) fn reserve(&self, access: Access) -> Result<()> {
        let mut turns = self.turns();
        if turns.writer || (access == Access::Write && turns.readers > 0) {
            return Err(Error::refused(
                ErrorKind::Busy,
                "PinnedBuffer",
                "the host has a guard on pinned memory that the device is to use",
            ));
        }
        turns.reserved += 1;
        Ok(())
    }

    pub(crate) fn unreserve(&self) {
        self.turns().reserved -= 1;
        self.changed.notify_all();
    }

    /// The host is about to use the memory: waits for the device.
    fn enter(&self, access: Access) -> Result<()> {
        let mut turns = self.turns();
        while turns.reserved > 0 {
            turns = self.changed.wait(turns).unwrap_or_else(PoisonError::into_inner);
        }
        match access {
            Access::Read => turns.readers += 1,
            Access::Write => turns.writer = true,
        }
        drop(turns);
        let waited = self.context.inner().bind().and_then(|_bound| self.track.wait_host(self.context.inner(), access));
        match waited {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.leave(access);
                Err(Error::as_code(
                    Call::aclrtSynchronizeEvent,
                    ACL_ERROR_RT_STREAM_CAPTURED,
                    "a stream that uses the pinned memory is being captured",
                ))
            }
            Err(error) => {
                self.leave(access);
                Err(error)
            }
        }
    }

    fn leave(&self, access: Access) {
        let mut turns = self.turns();
        match access {
            Access::Read => turns.readers -= 1,
            Access::Write => turns.writer = false,
        }
    }
}

impl Drop for PinnedStorage {
    fn drop(&mut self) {
        let marks = self.track.before(Access::Write);
        let what = Retired::Pinned { pointer: self.pointer, bytes: self.bytes };
        self.context.inner().retire(what, marks);
    }
}

impl Context {
    /// Pinned host memory for `len` elements, all zero. Copies from and to it are asynchronous, and may be captured.
    ///
    /// # Errors
    ///
    /// No bytes or too many are asked for, the context is poisoned, or pinned memory ran out
    /// ([`ErrorKind::HostOutOfMemory`]; its limit is the host's, not the card's).
    pub fn pinned<T: DeviceRepr>(&self, len: usize) -> Result<PinnedBuffer<T>> {
        let bytes = byte_count::<T>("Context::pinned", len)?;
        if align_of::<T>() > ALIGN {
            let found = format!("a type aligned to {}", align_of::<T>());
            return Err(Error::argument("Context::pinned", "T", format!("alignment of at most {ALIGN}"), found));
        }
        self.inner().usable("Context::pinned")?;
        let _bound = self.inner().bind()?;
        self.inner().reap();
        let mut pointer = core::ptr::null_mut();
        // SAFETY: `pointer` is written.
        let code = unsafe { self.inner().raw().aclrtMallocHost(&raw mut pointer, bytes) };
        if let Err(error) = self.inner().check(Call::aclrtMallocHost, code) {
            return Err(if matches!(error.kind(), ErrorKind::HostOutOfMemory { .. }) {
                error.with_kind(ErrorKind::HostOutOfMemory { asked: Some(bytes) })
            } else {
                error
            });
        }
        // SAFETY: the memory has that many bytes, and nobody else knows it yet.
        unsafe { pointer.cast::<u8>().write_bytes(0, bytes) };
        self.inner().pool().pinned_taken(bytes);
        let storage = Arc::new(PinnedStorage {
            context: self.clone(),
            pointer: Handle::new(pointer),
            bytes,
            track: Track::default(),
            turns: Mutex::default(),
            changed: Condvar::new(),
        });
        Ok(PinnedBuffer { storage, len, element: PhantomData })
    }

    /// Pinned host memory with these elements.
    ///
    /// # Errors
    ///
    /// As [`pinned`](Self::pinned).
    pub fn pinned_from<T: DeviceRepr>(&self, elements: &[T]) -> Result<PinnedBuffer<T>> {
        let mut buffer = self.pinned(elements.len())?;
        buffer.write()?.copy_from_slice(elements);
        Ok(buffer)
    }
}

/// Pinned host memory: what the device copies from and to while the host goes on.
///
/// The host reads and writes it through guards, which first wait for the copies that were queued. A guard that is
/// forgotten makes the buffer unusable for replays, and nothing worse.
///
/// ```
/// use ascend_rt::{Choice, Queue, Runtime};
///
/// let context = Runtime::open(Choice::Auto)?.device(0)?.isolated()?;
/// let stream = context.stream()?;
/// let mut host = context.pinned::<i32>(4)?;
/// host.write()?.copy_from_slice(&[1, 2, 3, 4]);
/// let mut device = context.alloc::<i32>(4)?;
/// stream.upload_pinned(&host, &mut device)?;
/// host.write()?.fill(0); // waits for the copy
/// stream.download_pinned(&device, &mut host)?;
/// assert_eq!(*host.read()?, [1, 2, 3, 4]); // waits too
/// # Ok::<(), ascend_rt::Error>(())
/// ```
pub struct PinnedBuffer<T> {
    pub(crate) storage: Arc<PinnedStorage>,
    len: usize,
    element: PhantomData<T>,
}

impl<T> fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedBuffer<{}>({} elements, {:?})", core::any::type_name::<T>(), self.len, self.storage)
    }
}

impl<T: DeviceRepr> PinnedBuffer<T> {
    /// How many elements it has.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a buffer has at least one element")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.storage.bytes
    }

    /// The elements, when the copies into them are done.
    ///
    /// # Errors
    ///
    /// A task failed, or a capture forbids the wait.
    pub fn read(&self) -> Result<PinnedRef<'_, T>> {
        self.storage.enter(Access::Read)?;
        Ok(PinnedRef { storage: &self.storage, len: self.len, element: PhantomData })
    }

    /// The elements to be changed, when all copies from and into them are done.
    ///
    /// # Errors
    ///
    /// A task failed, or a capture forbids the wait.
    pub fn write(&mut self) -> Result<PinnedMut<'_, T>> {
        self.storage.enter(Access::Write)?;
        Ok(PinnedMut { storage: &self.storage, len: self.len, element: PhantomData })
    }
}

/// The elements of a [`PinnedBuffer`], to be read.
pub struct PinnedRef<'a, T> {
    storage: &'a PinnedStorage,
    len: usize,
    element: PhantomData<&'a [T]>,
}

/// The elements of a [`PinnedBuffer`], to be changed.
pub struct PinnedMut<'a, T> {
    storage: &'a PinnedStorage,
    len: usize,
    element: PhantomData<&'a mut [T]>,
}

impl<T> Deref for PinnedRef<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the memory has `len` elements, aligned, and every pattern is a value of `T`, since buffers are made
        // of `DeviceRepr` types only. While the guard lives, neither host nor device writes it.
        unsafe { core::slice::from_raw_parts(self.storage.pointer.get().cast::<T>(), self.len) }
    }
}

impl<T> Deref for PinnedMut<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: as for reading; while the guard lives, nobody else has the memory.
        unsafe { core::slice::from_raw_parts(self.storage.pointer.get().cast::<T>(), self.len) }
    }
}

impl<T> DerefMut for PinnedMut<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for reading; while the guard lives, nobody else has the memory.
        unsafe { core::slice::from_raw_parts_mut(self.storage.pointer.get().cast::<T>(), self.len) }
    }
}

impl<T> Drop for PinnedRef<'_, T> {
    fn drop(&mut self) {
        self.storage.leave(Access::Read);
    }
}

impl<T> Drop for PinnedMut<'_, T> {
    fn drop(&mut self) {
        self.storage.leave(Access::Write);
    }
}

impl<T: fmt::Debug> fmt::Debug for PinnedRef<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: fmt::Debug> fmt::Debug for PinnedMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
