// SPDX-License-Identifier: MIT OR Apache-2.0

//! Argument blocks: how a launch builds one, and how it is held against the kernel's layout.

use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc};

use super::fail::{Answer, Fail};
use super::slab::Key;
use crate::kernel::{ArgKind, ArgLayout, MAX_BYTES, MAX_PARAMS, SLOT};
use crate::sys::{ACL_ERROR_RT_MEMORY_ALLOCATION, ACL_ERROR_RT_PARAM_INVALID, aclrtPlaceHolderInfo};

/// The argument block of one launch, and the data that moves to the device with it.
#[derive(Debug, Default)]
pub(super) struct Payload {
    pub(super) block: Vec<u8>,
    pub(super) side: Vec<u8>,
}

impl Payload {
    pub(super) fn clear(&mut self) {
        self.block.clear();
        self.side.clear();
    }
}

/// Host memory that callers write through pointers: its address never changes.
struct SideBuffer {
    start: NonNull<u8>,
}

// SAFETY: the buffer is owned; the pointers that callers hold are theirs to use on one thread, as AscendCL says.
unsafe impl Send for SideBuffer {}

impl SideBuffer {
    const LAYOUT: Layout = match Layout::from_size_align(MAX_BYTES, 64) {
        Ok(layout) => layout,
        Err(_) => panic!("64 is a power of two"),
    };

    fn new() -> Option<SideBuffer> {
        // SAFETY: the layout is not empty.
        NonNull::new(unsafe { alloc_zeroed(Self::LAYOUT) }).map(|start| SideBuffer { start })
    }
}

impl Drop for SideBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.start.as_ptr(), Self::LAYOUT) };
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Value,
    /// A place holder, and its data once the buffer was asked for: offset, bytes.
    Holder(Option<(usize, usize)>),
}

#[derive(Clone, Copy, Debug)]
struct Given {
    offset: usize,
    size: usize,
    what: What,
}

/// An argument block under construction. Each thread has one, used again for every launch.
pub(super) struct ArgsBuilder {
    /// Counts the beginnings, so that parameter handles of an earlier block are found.
    pub(super) round: u32,
    pub(super) function: Key,
    given: Vec<Given>,
    block: Vec<u8>,
    side: SideBuffer,
    side_len: usize,
    finished: bool,
}

fn invalid<T>(text: String) -> Answer<T> {
    Err(Fail::new(ACL_ERROR_RT_PARAM_INVALID, text))
}

impl ArgsBuilder {
    pub(super) fn new() -> Answer<Box<ArgsBuilder>> {
        let side = SideBuffer::new().ok_or_else(|| {
            Fail::new(ACL_ERROR_RT_MEMORY_ALLOCATION, "no host memory for the argument block of the thread")
        })?;
        Ok(Box::new(ArgsBuilder {
            round: 0,
            function: Key::NULL,
            given: Vec::with_capacity(MAX_PARAMS),
            block: Vec::with_capacity(1024),
            side,
            side_len: 0,
            finished: false,
        }))
    }

    pub(super) fn begin(&mut self, function: Key) {
        self.round = self.round.wrapping_add(1);
        self.function = function;
        self.given.clear();
        self.block.clear();
        self.side_len = 0;
        self.finished = false;
    }

    fn open(&self) -> Answer {
        if self.finished {
            return invalid("the argument block is finished".to_owned());
        }
        Ok(())
    }

    fn room(&self, bytes: usize) -> Answer {
        if self.block.len() + self.side_len + bytes > MAX_BYTES {
            let found = self.block.len() + self.side_len + bytes;
            return invalid(format!("the argument block would have {found} bytes, expected at most {MAX_BYTES}"));
        }
        Ok(())
    }

    fn slot(&mut self, bytes: usize, what: What) -> Answer<u32> {
        self.open()?;
        if self.side_len > 0 {
            return invalid("a parameter follows the buffer of a place holder".to_owned());
        }
        if self.given.len() == MAX_PARAMS {
            return invalid(format!("the kernel gets more than {MAX_PARAMS} parameters"));
        }
        let padded = bytes.checked_next_multiple_of(SLOT).filter(|padded| *padded <= MAX_BYTES);
        let Some(padded) = padded else {
            return invalid(format!("a parameter has {bytes} bytes, expected at most {MAX_BYTES}"));
        };
        self.room(padded)?;
        let offset = self.block.len();
        self.block.resize(offset + padded, 0);
        self.given.push(Given { offset, size: bytes, what });
        Ok(self.given.len() as u32 - 1)
    }

    pub(super) fn append(&mut self, value: &[u8]) -> Answer<u32> {
        if value.is_empty() {
            return invalid("a parameter has 0 bytes".to_owned());
        }
        let index = self.slot(value.len(), What::Value)?;
        let offset = self.given[index as usize].offset;
        self.block[offset..offset + value.len()].copy_from_slice(value);
        Ok(index)
    }

    pub(super) fn append_holder(&mut self) -> Answer<u32> {
        self.slot(SLOT, What::Holder(None))
    }

    /// The buffer of a place holder.
    pub(super) fn holder_buffer(&mut self, index: usize, size: usize) -> Answer<*mut u8> {
        self.open()?;
        if size == 0 {
            return invalid("the buffer of a place holder has 0 bytes".to_owned());
        }
        let padded = size.checked_next_multiple_of(SLOT).filter(|padded| *padded <= MAX_BYTES);
        let Some(padded) = padded else {
            return invalid(format!("the buffer of a place holder has {size} bytes, expected at most {MAX_BYTES}"));
        };
        match self.given.get(index).map(|given| given.what) {
            Some(What::Holder(None)) => {}
            Some(What::Holder(Some(_))) => return invalid(format!("parameter {index} has its buffer already")),
            Some(What::Value) => return invalid(format!("parameter {index} is no place holder")),
            None => return invalid(format!("there is no parameter {index}")),
        }
        self.room(padded)?;
        let offset = self.side_len;
        self.given[index].what = What::Holder(Some((offset, size)));
        self.side_len += padded;
        // SAFETY: `room` keeps the side data within the buffer, which has `MAX_BYTES` bytes.
        Ok(unsafe { self.side.start.as_ptr().add(offset) })
    }

    pub(super) fn update(&mut self, index: usize, value: &[u8]) -> Answer {
        match self.given.get(index).copied() {
            Some(Given { offset, size, what: What::Value }) if size == value.len() => {
                self.block[offset..offset + size].copy_from_slice(value);
                Ok(())
            }
            Some(Given { size, what: What::Value, .. }) => {
                invalid(format!("parameter {index} has {size} bytes, found {}", value.len()))
            }
            Some(_) => invalid(format!("parameter {index} is a place holder")),
            None => invalid(format!("there is no parameter {index}")),
        }
    }

    pub(super) fn finish(&mut self) -> Answer {
        self.open()?;
        if let Some(index) = self.given.iter().position(|given| given.what == What::Holder(None)) {
            return invalid(format!("place holder {index} has no buffer"));
        }
        self.finished = true;
        Ok(())
    }

    /// Checks the block against the kernel's layout and copies it out, with the addresses that the side data will have
    /// on the device.
    pub(super) fn copy_out(&self, layout: &ArgLayout, side_address: u64, payload: &mut Payload) -> Answer {
        if !self.finished {
            return invalid("the argument block is not finished".to_owned());
        }
        let params = layout.params();
        if self.given.len() != params.len() {
            return invalid(format!("the kernel has {} parameters, found {}", params.len(), self.given.len()));
        }
        for (index, (given, param)) in self.given.iter().zip(params).enumerate() {
            let fits = match (param.kind, given.what) {
                (ArgKind::Scalar { size }, What::Value) => size == given.size,
                (ArgKind::Tiling { size }, What::Holder(Some((_, found)))) => size == found,
                (ArgKind::Pointer, What::Holder(Some(_))) => true,
                (kind, What::Value) => kind.is_buffer() && given.size == SLOT,
                (_, What::Holder(_)) => false,
            };
            if !fits {
                let found = match given.what {
                    What::Value => format!("a value of {} bytes", given.size),
                    What::Holder(data) => format!("a place holder of {} bytes", data.map_or(0, |data| data.1)),
                };
                return invalid(format!(
                    "parameter {index} `{}` is expected to be {}, found {found}",
                    param.name, param.kind
                ));
            }
        }
        payload.clear();
        payload.block.extend_from_slice(&self.block);
        // SAFETY: the buffer has `MAX_BYTES` initialised bytes and `side_len` stays below; no caller writes to it while
        // a call of the same thread runs.
        payload.side.extend_from_slice(unsafe { core::slice::from_raw_parts(self.side.start.as_ptr(), self.side_len) });
        for given in &self.given {
            if let What::Holder(Some((offset, _))) = given.what {
                let address = side_address + offset as u64;
                payload.block[given.offset..given.offset + SLOT].copy_from_slice(&address.to_le_bytes());
            }
        }
        Ok(())
    }
}

/// Checks a raw block with its table of place holders and copies it out.
pub(super) fn copy_raw(
    layout: &ArgLayout,
    bytes: &[u8],
    holders: &[aclrtPlaceHolderInfo],
    side_address: u64,
    payload: &mut Payload,
) -> Answer {
    let head = layout.block_bytes();
    if bytes.len() < head {
        return invalid(format!("the argument block has {} bytes, expected at least {head}", bytes.len()));
    }
    if bytes.len() > MAX_BYTES {
        return invalid(format!("the argument block has {} bytes, expected at most {MAX_BYTES}", bytes.len()));
    }
    let count = |fits: fn(ArgKind) -> bool| layout.params().iter().filter(|param| fits(param.kind)).count();
    let tilings = count(|kind| matches!(kind, ArgKind::Tiling { .. }));
    let pointers = count(|kind| kind == ArgKind::Pointer);
    if !(tilings..=tilings + pointers).contains(&holders.len()) {
        return invalid(format!("the kernel has {tilings} place holders, found {}", holders.len()));
    }
    payload.clear();
    payload.block.extend_from_slice(&bytes[..head]);
    payload.side.extend_from_slice(&bytes[head..]);
    for param in layout.params() {
        let holder = holders.iter().find(|holder| holder.addrOffset as usize == param.offset);
        let (size, holder) = match (param.kind, holder) {
            (ArgKind::Tiling { size }, Some(holder)) => (size, holder),
            // Of what size is the kernel's affair; there is at least one byte.
            (ArgKind::Pointer, Some(holder)) => (1, holder),
            (ArgKind::Tiling { .. }, None) => {
                return invalid(format!("no place holder points at parameter `{}` at {}", param.name, param.offset));
            }
            _ => continue,
        };
        let data = holder.dataOffset as usize;
        let end = data.checked_add(size);
        if data < head || end.is_none_or(|end| end > bytes.len()) {
            return invalid(format!(
                "the data of parameter `{}`, {size} bytes at {data}, is not in the {} bytes behind the block",
                param.name,
                bytes.len() - head
            ));
        }
        let address = side_address + (data - head) as u64;
        payload.block[param.offset..param.offset + SLOT].copy_from_slice(&address.to_le_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> ArgLayout {
        ArgLayout::new([
            ("x", ArgKind::In),
            ("scale", ArgKind::Scalar { size: 4 }),
            ("tiling", ArgKind::Tiling { size: 12 }),
        ])
        .expect("small")
    }

    fn built(values: &[usize], tiling: Option<usize>) -> Answer<Box<ArgsBuilder>> {
        let mut args = ArgsBuilder::new()?;
        args.begin(Key::NULL);
        for size in values {
            args.append(&vec![7; *size])?;
        }
        if let Some(size) = tiling {
            let holder = args.append_holder()?;
            let buffer = args.holder_buffer(holder as usize, size)?;
            // SAFETY: the buffer has `size` bytes.
            unsafe { buffer.write_bytes(9, size) };
        }
        args.finish()?;
        Ok(args)
    }

    #[test]
    fn a_block_that_fits_is_copied_with_the_address_of_its_side_data() {
        let mut payload = Payload::default();
        built(&[8, 4], Some(12)).and_then(|args| args.copy_out(&layout(), 0x5000, &mut payload)).expect("fits");
        assert_eq!(payload.block.len(), 24);
        assert_eq!(payload.block[8..16], [7, 7, 7, 7, 0, 0, 0, 0]);
        assert_eq!(payload.block[16..], 0x5000u64.to_le_bytes());
        assert_eq!(payload.side[..12], [9; 12]);
    }

    #[test]
    fn every_way_to_miss_the_layout_is_refused() {
        for (values, tiling) in [
            (&[8, 4][..], None),
            (&[8, 8], Some(12)),
            (&[4, 4], Some(12)),
            (&[8, 4], Some(16)),
            (&[8, 4, 4], Some(12)),
            (&[8], Some(12)),
            (&[8, 4, 8], None),
        ] {
            let args = built(values, tiling).expect("well formed");
            let error = args.copy_out(&layout(), 0, &mut Payload::default()).expect_err("another layout");
            assert_eq!(error.code, ACL_ERROR_RT_PARAM_INVALID);
            assert!(error.text.contains("expected") || error.text.contains("parameters"), "{}", error.text);
        }
    }

    #[test]
    fn limits_and_order_are_kept() {
        assert!(built(&[8; MAX_PARAMS], None).is_ok());
        assert!(built(&[8; MAX_PARAMS + 1], None).is_err());
        assert!(built(&[MAX_BYTES], None).is_ok());
        assert!(built(&[MAX_BYTES, 8], None).is_err() && built(&[MAX_BYTES + 1], None).is_err());
        assert!(built(&[8], Some(MAX_BYTES)).is_err() && built(&[0], None).is_err() && built(&[], Some(0)).is_err());
        let mut args = ArgsBuilder::new().expect("memory");
        args.begin(Key::NULL);
        let value = args.append(&[1; 8]).expect("first") as usize;
        let holder = args.append_holder().expect("second") as usize;
        assert!(args.finish().is_err(), "no buffer yet");
        assert!(args.holder_buffer(value, 8).is_err() && args.holder_buffer(7, 8).is_err());
        assert!(args.holder_buffer(holder, usize::MAX).is_err());
        args.holder_buffer(holder, 8).expect("a place holder");
        assert!(args.holder_buffer(holder, 8).is_err(), "twice");
        assert!(args.append(&[1; 8]).is_err() && args.append_holder().is_err(), "after the buffer");
        args.update(value, &[2; 8]).expect("same size");
        assert!(args.update(value, &[2; 4]).is_err() && args.update(holder, &[2; 8]).is_err());
        assert!(args.copy_out(&ArgLayout::default(), 0, &mut Payload::default()).is_err(), "not finished");
        args.finish().expect("complete");
        assert!(args.finish().is_err() && args.append(&[1]).is_err() && args.holder_buffer(holder, 8).is_err());
        args.begin(Key::NULL);
        args.finish().expect("begun again, empty");
        args.copy_out(&ArgLayout::default(), 0, &mut Payload::default()).expect("a kernel without parameters");
    }

    #[test]
    fn raw_blocks_are_checked_too() {
        let mut payload = Payload::default();
        let bytes = [5u8; 40];
        let at = |address, data| aclrtPlaceHolderInfo { addrOffset: address, dataOffset: data };
        copy_raw(&layout(), &bytes, &[at(16, 24)], 0x100, &mut payload).expect("fits");
        assert_eq!((payload.block.len(), payload.side.len()), (24, 16));
        assert_eq!(payload.block[16..], 0x100u64.to_le_bytes());
        for (bytes, holders) in [
            (&bytes[..20], &[at(16, 24)][..]),
            (&bytes, &[]),
            (&bytes, &[at(8, 24)]),
            (&bytes, &[at(16, 29)]),
            (&bytes, &[at(16, 0)]),
            (&bytes, &[at(16, u32::MAX)]),
            (&[0; MAX_BYTES + 1], &[at(16, 24)]),
        ] {
            assert!(copy_raw(&layout(), bytes, holders, 0, &mut payload).is_err());
        }
    }
}
