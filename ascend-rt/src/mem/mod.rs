// SPDX-License-Identifier: MIT OR Apache-2.0

//! Device memory and pinned host memory.

mod pinned;
pub(crate) mod pool;

use crate::context::{Context, ContextInner};
use crate::error::{Error, ErrorKind, Result};
use crate::handle::Handle;
use crate::lane::{Access, Track};
use crate::raw::Call;
use crate::sys::*;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Bound, RangeBounds};
use core::sync::atomic::Ordering;
use pool::{Block, Plan, Retired};
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, IntoBytes};

pub(crate) use pinned::PinnedStorage;
pub use pinned::{PinnedBuffer, PinnedMut, PinnedRef};
pub use pool::{MemoryUse, PoolPolicy};

/// A type whose values may lie in device memory: plain bytes, with no padding and no invalid patterns.
///
/// Integers, floats, `half`'s types and arrays of them are such; a struct becomes one with zerocopy's derives. FP8 values
/// and pairs of INT4 are bytes.
///
/// What has pointers, or patterns that are no value, is refused:
///
/// ```compile_fail
/// fn references(context: &ascend_rt::Context) {
///     let _ = context.alloc::<&'static u8>(8);
/// }
/// ```
///
/// ```compile_fail
/// fn truths(context: &ascend_rt::Context) {
///     let _ = context.alloc::<bool>(8);
/// }
/// ```
pub trait DeviceRepr: FromBytes + IntoBytes + Immutable + Copy + Send + Sync + 'static {}

impl<T: FromBytes + IntoBytes + Immutable + Copy + Send + Sync + 'static> DeviceRepr for T {}

/// Device memory of one buffer. Graphs hold it too, so that what a replay uses stays.
pub(crate) struct Storage {
    context: Context,
    block: Block,
    pub(crate) track: Track,
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x}", self.block.bytes, self.block.pointer.address())
    }
}

impl Storage {
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn pointer(&self) -> Handle {
        self.block.pointer
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        let marks = self.track.before(Access::Write);
        self.context.inner().retire(Retired::Device(self.block), marks);
    }
}

/// How many bytes `len` elements have: at least one, and no more than an object can have.
fn byte_count<T>(call: &'static str, len: usize) -> Result<usize> {
    match len.checked_mul(size_of::<T>()) {
        Some(0) => Err(Error::argument(
            call,
            "len",
            "at least one byte",
            format!("{len} elements of {} bytes", size_of::<T>()),
        )),
        Some(bytes) if isize::try_from(bytes).is_ok() => Ok(bytes),
        _ => Err(Error::argument(
            call,
            "len",
            format!("at most {} bytes", isize::MAX),
            format!("{len} elements of {} bytes", size_of::<T>()),
        )),
    }
}

impl ContextInner {
    /// Device memory. The context is bound.
    fn alloc_block(&self, bytes: usize) -> Result<Block> {
        self.reap();
        let mut waited = false;
        loop {
            let plan = self.pool().plan(bytes);
            let error = match plan {
                Plan::Ready(block) => return Ok(block),
                Plan::Take(request) => {
                    let mut pointer = core::ptr::null_mut();
                    // SAFETY: `pointer` is written.
                    let code =
                        unsafe { self.raw().aclrtMalloc(&raw mut pointer, request.take, ACL_MEM_MALLOC_HUGE_FIRST) };
                    match self.check(Call::aclrtMalloc, code) {
                        Ok(()) => return Ok(self.pool().adopt(Handle::new(pointer), request)),
                        Err(error) if error.is_oom() => error,
                        Err(error) => return Err(error),
                    }
                }
                Plan::Limit => Error::as_code(
                    Call::aclrtMalloc,
                    ACL_ERROR_RT_MEMORY_ALLOCATION,
                    "the context's own limit is reached",
                )
                .on_device(self.device),
            };
            // What is cached goes first; then what was dropped is waited for, unless a capture forbids to wait.
            let before = self.pool().usage().taken;
            self.trim_cache();
            if self.pool().usage().taken < before {
                continue;
            }
            if !waited && self.pool().has_deferred() && self.captures().load(Ordering::Acquire) == 0 {
                waited = true;
                self.reap_waiting()?;
                continue;
            }
            let usage = self.pool().usage();
            let memory = self.memory_info().ok();
            let kind = ErrorKind::OutOfMemory {
                asked: bytes,
                free: memory.map_or(0, |memory| memory.free),
                total: memory.map_or(0, |memory| memory.total),
                pool_held: usage.taken.saturating_sub(usage.live),
            };
            return Err(error.with_kind(kind));
        }
    }
}

impl Context {
    /// Device memory for `len` elements. What it holds is undefined; on the emulator it is a pattern, so that what is
    /// read before it is written shows.
    ///
    /// # Errors
    ///
    /// No bytes or too many are asked for, the context is poisoned, or memory ran out
    /// ([`ErrorKind::OutOfMemory`]).
    pub fn alloc<T: DeviceRepr>(&self, len: usize) -> Result<DeviceBuffer<T>> {
        let bytes = byte_count::<T>("Context::alloc", len)?;
        self.inner().usable("Context::alloc")?;
        let _bound = self.inner().bind()?;
        let block = self.inner().alloc_block(bytes)?;
        let storage = Arc::new(Storage { context: self.clone(), block, track: Track::default() });
        Ok(DeviceBuffer { storage, len, element: PhantomData })
    }
}

/// Device memory for elements of one type.
///
/// The host cannot read it in place: copies go through a [`Stream`](crate::Stream). Dropping it is allowed at any time;
/// the memory is freed when the last task that uses it is done, and a graph that uses it keeps it.
///
/// ```
/// use ascend_rt::{Choice, Queue, Runtime};
///
/// let context = Runtime::open(Choice::Auto)?.device(0)?.isolated()?;
/// let stream = context.stream()?;
/// let mut buffer = context.alloc::<u16>(1000)?;
/// stream.fill(&mut buffer, 0)?;
/// let (mut left, _right) = buffer.slice_mut(..)?.split_at(10)?;
/// stream.upload_to(&[1u16; 10], &mut left)?;
/// assert_eq!(stream.download(buffer.slice(8..12)?)?, [1, 1, 0, 0]);
/// # Ok::<(), ascend_rt::Error>(())
/// ```
pub struct DeviceBuffer<T> {
    storage: Arc<Storage>,
    len: usize,
    element: PhantomData<T>,
}

impl<T> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBuffer<{}>({} elements, {:?})", core::any::type_name::<T>(), self.len, self.storage)
    }
}

impl<T: DeviceRepr> DeviceBuffer<T> {
    /// How many elements it has.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a buffer has at least one element")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// The context it belongs to.
    #[must_use]
    pub fn context(&self) -> &Context {
        self.storage.context()
    }

    /// The device address, for foreign code. What foreign code queues with it is not known to the buffer: keep it until
    /// that is done.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.storage.pointer().address() as u64
    }

    /// A part of it to be read.
    ///
    /// # Errors
    ///
    /// The range is out of bounds.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<DeviceSlice<'_, T>> {
        DeviceSlice::from(self).slice(range)
    }

    /// A part of it to be written.
    ///
    /// # Errors
    ///
    /// The range is out of bounds.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<DeviceSliceMut<'_, T>> {
        DeviceSliceMut::from(self).slice(range)
    }
}

impl<'a, T: DeviceRepr> From<&'a DeviceBuffer<T>> for DeviceSlice<'a, T> {
    fn from(buffer: &'a DeviceBuffer<T>) -> Self {
        Self { part: Part { storage: &buffer.storage, offset: 0, len: buffer.len }, element: PhantomData }
    }
}

impl<'a, T: DeviceRepr> From<&'a mut DeviceBuffer<T>> for DeviceSliceMut<'a, T> {
    fn from(buffer: &'a mut DeviceBuffer<T>) -> Self {
        Self { part: Part { storage: &buffer.storage, offset: 0, len: buffer.len }, element: PhantomData }
    }
}

impl<'a, T: DeviceRepr> From<&'a DeviceSlice<'_, T>> for DeviceSlice<'a, T> {
    fn from(slice: &'a DeviceSlice<'_, T>) -> Self {
        *slice
    }
}

impl<'a, T: DeviceRepr> From<&'a DeviceSliceMut<'_, T>> for DeviceSlice<'a, T> {
    fn from(slice: &'a DeviceSliceMut<'_, T>) -> Self {
        Self { part: slice.part, element: PhantomData }
    }
}

impl<'a, T: DeviceRepr> From<&'a mut DeviceSliceMut<'_, T>> for DeviceSliceMut<'a, T> {
    fn from(slice: &'a mut DeviceSliceMut<'_, T>) -> Self {
        Self { part: slice.part, element: PhantomData }
    }
}

/// A range of a storage: `offset` counts bytes, `len` elements.
#[derive(Clone, Copy)]
struct Part<'a> {
    storage: &'a Arc<Storage>,
    offset: usize,
    len: usize,
}

impl<'a> Part<'a> {
    fn range<T>(self, range: &impl RangeBounds<usize>) -> Result<Self> {
        let begin = match range.start_bound() {
            Bound::Included(&begin) => Some(begin),
            Bound::Excluded(&begin) => begin.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let end = match range.end_bound() {
            Bound::Included(&end) => end.checked_add(1),
            Bound::Excluded(&end) => Some(end),
            Bound::Unbounded => Some(self.len),
        };
        match (begin, end) {
            (Some(begin), Some(end)) if begin <= end && end <= self.len => {
                Ok(Part { storage: self.storage, offset: self.offset + begin * size_of::<T>(), len: end - begin })
            }
            _ => Err(Error::argument(
                "DeviceBuffer::slice",
                "range",
                format!("within 0..{}", self.len),
                format!("{:?}..{:?}", range.start_bound(), range.end_bound()),
            )),
        }
    }

    fn cast<T, U>(self) -> Result<Self> {
        let bytes = self.len * size_of::<T>();
        let address = self.storage.pointer().address() + self.offset;
        if size_of::<U>() == 0 || !bytes.is_multiple_of(size_of::<U>()) || !address.is_multiple_of(align_of::<U>()) {
            return Err(Error::argument(
                "DeviceSlice::cast",
                "slice",
                format!("a multiple of {} bytes at a multiple of {}", size_of::<U>(), align_of::<U>()),
                format!("{bytes} bytes at {address:#x}"),
            ));
        }
        Ok(Part { storage: self.storage, offset: self.offset, len: bytes / size_of::<U>() })
    }

    fn untyped<T>(self) -> RawSlice<'a> {
        RawSlice { storage: self.storage, offset: self.offset, bytes: self.len * size_of::<T>() }
    }
}

/// A part of device memory without its type: what a launch and a copy work with.
#[derive(Clone, Copy)]
pub struct RawSlice<'a> {
    pub(crate) storage: &'a Arc<Storage>,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

impl fmt::Debug for RawSlice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x}", self.bytes, self.address())
    }
}

impl RawSlice<'_> {
    /// The device address.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.storage.pointer().offset(self.offset).address() as u64
    }

    pub(crate) fn pointer(&self) -> Handle {
        self.storage.pointer().offset(self.offset)
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A part of device memory to be read.
pub struct DeviceSlice<'a, T> {
    part: Part<'a>,
    element: PhantomData<&'a [T]>,
}

impl<T> Clone for DeviceSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DeviceSlice<'_, T> {}

/// A part of device memory to be written. No other slice shares a byte with it.
pub struct DeviceSliceMut<'a, T> {
    part: Part<'a>,
    element: PhantomData<&'a mut [T]>,
}

macro_rules! slice_methods {
    ($slice:ident) => {
        impl<T> fmt::Debug for $slice<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let address = self.part.storage.pointer().address() + self.part.offset;
                let element = core::any::type_name::<T>();
                write!(f, concat!(stringify!($slice), "<{}>({} elements at {:#x})"), element, self.part.len, address)
            }
        }

        impl<'a, T: DeviceRepr> $slice<'a, T> {
            /// How many elements it has.
            #[must_use]
            pub fn len(&self) -> usize {
                self.part.len
            }

            /// Whether it has none.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.part.len == 0
            }

            /// Its bytes.
            #[must_use]
            pub fn bytes(&self) -> usize {
                self.part.len * size_of::<T>()
            }

            /// The device address, for foreign code.
            #[must_use]
            pub fn address(&self) -> u64 {
                self.untyped().address()
            }

            /// A part of it.
            ///
            /// # Errors
            ///
            /// The range is out of bounds.
            pub fn slice(self, range: impl RangeBounds<usize>) -> Result<Self> {
                Ok(Self { part: self.part.range::<T>(&range)?, element: PhantomData })
            }

            /// Two parts, the second from `at` on.
            ///
            /// # Errors
            ///
            /// `at` is out of bounds.
            pub fn split_at(self, at: usize) -> Result<(Self, Self)> {
                let left = self.part.range::<T>(&(..at))?;
                let right = self.part.range::<T>(&(at..))?;
                Ok((Self { part: left, element: PhantomData }, Self { part: right, element: PhantomData }))
            }

            /// The same bytes as elements of another type.
            ///
            /// # Errors
            ///
            /// They are no whole number of elements, or not aligned for them.
            pub fn cast<U: DeviceRepr>(self) -> Result<$slice<'a, U>> {
                Ok($slice { part: self.part.cast::<T, U>()?, element: PhantomData })
            }

            /// The same bytes without a type.
            #[must_use]
            pub fn untyped(&self) -> RawSlice<'a> {
                self.part.untyped::<T>()
            }
        }
    };
}
slice_methods!(DeviceSlice);
slice_methods!(DeviceSliceMut);

// Slices are references to elements that are `Send` and `Sync`, through an `Arc`; nothing in them is tied to a thread.
const _: () = {
    const fn sendable<T: Send + Sync>() {}
    sendable::<DeviceBuffer<f32>>();
    sendable::<DeviceSlice<'static, f32>>();
    sendable::<DeviceSliceMut<'static, f32>>();
    sendable::<PinnedBuffer<f32>>();
};
