// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory of the emulated devices, and pinned memory of the host.
//!
//! A device address is a number that no processor maps: to read it on the host faults at once, as on the card. The
//! arena translates it to storage. Each block of storage lies between two guard zones; a new block is filled with a
//! pattern that is a NaN in every float type (or with zeros), and a freed one is overwritten with another pattern and
//! kept for a while, so that uninitialised reads, overruns and uses after free become visible.
//!
//! # Who may touch the bytes
//!
//! One task of a device runs at a time, and so does a blocking copy: whoever reads or writes storage holds the lock of
//! the device ([`Token`]). The maps of the arenas have their own locks, held for look-ups only.

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::config::Fill;

/// Bytes of a guard zone, before and after each block.
const GUARD: usize = 128;
/// What device and pinned addresses are aligned to.
pub(super) const ALIGN: u64 = 64;
/// What sizes are rounded up to.
pub(super) const ROUND: u64 = 32;

/// Fresh memory: a signalling NaN in f32 and bf16, a NaN in f16 and in every other E4M3 byte, a large integer.
pub(super) const FRESH: u16 = 0x7FA0;
/// Freed memory: another NaN of the same kinds.
pub(super) const FREED: u16 = 0x7FDE;
/// Guard zones.
const GUARDED: u16 = 0x7FB5;

/// The bits of an address from here on are the number of the device: 512 GiB each.
const DEVICE_SHIFT: u32 = 39;
/// Devices of one machine.
pub(super) const MAX_DEVICES: usize = 128;
/// The bits of an address from here on are the number of the emulator.
const EMULATOR_SHIFT: u32 = 46;
const EMULATOR_MASK: u32 = 0xFF;
/// The highest two bits of an address. Neither x86-64 nor aarch64 maps one like it in a program, with or without
/// ignored top bytes.
const WINDOW: u64 = 0b11 << 54;
/// Addresses of a device that are never allocated: one page that nothing uses, then room for what comes with a launch.
const RESERVED: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// Whether an address is of the form that emulators hand out. Which emulator, and whether it is live, is another
/// matter.
pub(super) fn is_device_like(address: u64) -> bool {
    address >> 54 == WINDOW >> 54
}

/// The pattern as bytes of a whole region.
fn fill_words(start: *mut u8, len: usize, word: u16) {
    let bytes = word.to_le_bytes();
    let even = len & !1;
    // SAFETY: the callers pass a region of their own storage of `len` bytes that nobody else touches; `[u8; 2]` has no
    // alignment beyond one.
    unsafe { core::slice::from_raw_parts_mut(start.cast::<[u8; 2]>(), even / 2) }.fill(bytes);
    if even < len {
        // SAFETY: `even` is the last byte of the same region.
        unsafe { start.add(even).write(bytes[0]) };
    }
}

/// Offset of the first byte of a region that does not hold the pattern.
fn first_difference(start: *const u8, len: usize, word: u16) -> Option<usize> {
    let bytes = word.to_le_bytes();
    // SAFETY: as for `fill_words`; the region has been written since it was allocated.
    let region = unsafe { core::slice::from_raw_parts(start, len) };
    region.iter().enumerate().position(|(i, byte)| *byte != bytes[i & 1])
}

/// Bytes between two guard zones.
pub(super) struct Storage {
    start: NonNull<u8>,
    len: usize,
    layout: Layout,
}

// SAFETY: the storage is owned; its bytes are touched only under the lock of the device, see the module documentation.
unsafe impl Send for Storage {}
// SAFETY: as above; a shared reference gives a pointer, not access.
unsafe impl Sync for Storage {}

impl Storage {
    /// `None` when the host has no such amount of memory.
    fn new(len: usize, fill: Fill) -> Option<Storage> {
        let total = len.checked_add(2 * GUARD)?;
        let layout = Layout::from_size_align(total, ALIGN as usize).ok()?;
        let base = match fill {
            // SAFETY: the layout has a size of at least two guards.
            Fill::Pattern => unsafe { alloc(layout) },
            // SAFETY: as above.
            Fill::Zero => unsafe { alloc_zeroed(layout) },
        };
        // SAFETY: the block has room for the guard zone in front.
        let start = NonNull::new(base).map(|base| unsafe { base.add(GUARD) })?;
        let storage = Storage { start, len, layout };
        fill_words(storage.guard_before(), GUARD, GUARDED);
        fill_words(storage.guard_after(), GUARD, GUARDED);
        if fill == Fill::Pattern {
            fill_words(start.as_ptr(), len, FRESH);
        }
        Some(storage)
    }

    fn guard_before(&self) -> *mut u8 {
        // SAFETY: the allocation starts one guard before `start`.
        unsafe { self.start.as_ptr().sub(GUARD) }
    }

    fn guard_after(&self) -> *mut u8 {
        // SAFETY: the allocation goes on for one guard after `len` bytes.
        unsafe { self.start.as_ptr().add(self.len) }
    }

    /// Where the bytes are.
    pub(super) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// How far outside the block somebody wrote: negative before it, from `len` on behind it.
    fn damage(&self) -> Option<i64> {
        if let Some(at) = first_difference(self.guard_before(), GUARD, GUARDED) {
            return Some(at as i64 - GUARD as i64);
        }
        first_difference(self.guard_after(), GUARD, GUARDED).map(|at| (self.len + at) as i64)
    }

    fn poison(&self) {
        fill_words(self.start(), self.len, FREED);
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, one guard before `start`.
        unsafe { dealloc(self.guard_before(), self.layout) };
    }
}

/// One allocation.
pub(super) struct Block {
    /// Device address, or the address on the host for pinned memory.
    pub(super) address: u64,
    /// Bytes asked for.
    pub(super) size: u64,
    /// Bytes charged.
    pub(super) charged: u64,
    /// Number of the allocation, from one.
    pub(super) serial: u64,
    /// Under which name it was made.
    pub(super) tag: Option<Arc<str>>,
    /// The context that was current.
    pub(super) context: u64,
    freed: AtomicBool,
    storage: Storage,
}

impl Block {
    /// Where the bytes are.
    pub(super) fn start(&self) -> *mut u8 {
        self.storage.start()
    }

    /// Bytes between the guard zones: the size rounded up, since the units of the card move 32 bytes at a time. Code
    /// that works on pointers may touch them.
    pub(super) fn usable(&self) -> u64 {
        self.storage.len as u64
    }

    /// Whether it has been freed.
    pub(super) fn is_freed(&self) -> bool {
        self.freed.load(Ordering::Acquire)
    }

    /// The sentence about a written guard zone, if there is one.
    pub(super) fn damage(&self) -> Option<String> {
        self.storage.damage().map(|at| {
            format!("{self} was written outside: first changed byte at offset {at}, the block has {} bytes", self.size)
        })
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "allocation {} at {:#x}", self.serial, self.address)?;
        match &self.tag {
            Some(tag) => write!(f, " ({tag})"),
            None => Ok(()),
        }
    }
}

/// Why an address range cannot be used.
#[derive(Debug)]
pub(super) struct MemoryFault(pub(super) String);

/// Memory in use, in total or under one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUse {
    /// Bytes in use, as charged: rounded, with the extra bytes of the chip.
    pub used: u64,
    /// The largest value of `used` so far.
    pub peak: u64,
    /// Live allocations.
    pub count: u64,
    /// Allocations ever made.
    pub total: u64,
}

impl MemoryUse {
    fn add(&mut self, bytes: u64) {
        self.used += bytes;
        self.peak = self.peak.max(self.used);
        self.count += 1;
        self.total += 1;
    }

    fn remove(&mut self, bytes: u64) {
        self.used -= bytes;
        self.count -= 1;
    }
}

/// An allocation that nobody freed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leak {
    /// Its address.
    pub address: u64,
    /// Bytes asked for.
    pub size: u64,
    /// Number of the allocation, from one.
    pub serial: u64,
    /// Under which name it was made.
    pub tag: Option<String>,
}

/// The shared part of device and pinned memory: blocks by address, accounts, quarantine.
struct Blocks {
    by_address: BTreeMap<u64, Arc<Block>>,
    quarantine: VecDeque<Arc<Block>>,
    quarantined: u64,
    quarantine_limit: u64,
    fill: Fill,
    serial: u64,
    account: MemoryUse,
    tags: BTreeMap<Arc<str>, MemoryUse>,
    /// Freed blocks whose bytes are still to be checked and overwritten.
    unpoisoned: Vec<Arc<Block>>,
}

impl Blocks {
    fn new(fill: Fill, quarantine_limit: u64) -> Blocks {
        Blocks {
            by_address: BTreeMap::new(),
            quarantine: VecDeque::new(),
            quarantined: 0,
            quarantine_limit,
            fill,
            serial: 0,
            account: MemoryUse::default(),
            tags: BTreeMap::new(),
            unpoisoned: Vec::new(),
        }
    }

    fn insert(&mut self, block: Block) {
        self.account.add(block.charged);
        if let Some(tag) = &block.tag {
            self.tags.entry(tag.clone()).or_default().add(block.charged);
        }
        self.by_address.insert(block.address, Arc::new(block));
    }

    /// The block that holds an address, or whose end it is.
    fn around(&self, address: u64) -> Option<&Arc<Block>> {
        let (_, block) = self.by_address.range(..=address).next_back()?;
        (address - block.address <= block.usable()).then_some(block)
    }

    fn range(&self, address: u64, len: u64) -> Result<&Arc<Block>, MemoryFault> {
        let Some(block) = self.around(address) else {
            return Err(MemoryFault(format!("address {address:#x} is not allocated")));
        };
        if block.is_freed() {
            return Err(MemoryFault(format!("address {address:#x} was used after {block} was freed")));
        }
        let offset = address - block.address;
        if offset > block.size || len > block.size - offset {
            return Err(MemoryFault(format!(
                "{len} bytes at {address:#x} reach beyond {block}, which has {} bytes from there",
                block.size.saturating_sub(offset)
            )));
        }
        Ok(block)
    }

    fn free(&mut self, address: u64) -> Result<Arc<Block>, MemoryFault> {
        let Some(block) = self.by_address.get(&address).cloned() else {
            return Err(MemoryFault(match self.around(address) {
                Some(block) => format!("address {address:#x} lies inside {block} and is not its start"),
                None => format!("address {address:#x} is not allocated"),
            }));
        };
        if block.freed.swap(true, Ordering::AcqRel) {
            return Err(MemoryFault(format!("{block} was freed before")));
        }
        self.account.remove(block.charged);
        if let Some(account) = block.tag.as_ref().and_then(|tag| self.tags.get_mut(tag)) {
            account.remove(block.charged);
        }
        self.quarantined += block.charged;
        self.quarantine.push_back(block.clone());
        self.unpoisoned.push(block.clone());
        // The newest stays unless it is larger than the whole quarantine.
        while self.quarantined > self.quarantine_limit {
            let Some(oldest) = self.quarantine.pop_front() else { break };
            self.quarantined -= oldest.charged;
            self.by_address.remove(&oldest.address);
        }
        Ok(block)
    }

    /// Checks and overwrites what has been freed since the last call. The caller holds the lock of the bytes.
    fn poison(&mut self, damage: &mut Vec<String>) {
        for block in self.unpoisoned.drain(..) {
            damage.extend(block.damage());
            // A block that has already left the quarantine is about to go.
            if self.fill == Fill::Pattern && self.by_address.contains_key(&block.address) {
                block.storage.poison();
            }
        }
    }

    fn live(&self) -> impl Iterator<Item = &Arc<Block>> {
        self.by_address.values().filter(|block| !block.is_freed())
    }

    fn leaks(&self) -> Vec<Leak> {
        self.live()
            .map(|block| Leak {
                address: block.address,
                size: block.size,
                serial: block.serial,
                tag: block.tag.as_deref().map(str::to_owned),
            })
            .collect()
    }
}

/// Why an allocation failed.
#[derive(Debug)]
pub(super) enum NoMemory {
    /// Beyond the capacity: asked, free.
    Capacity(u64, u64),
    /// The machine under the emulator has no such amount.
    Machine(u64),
}

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoMemory::Capacity(asked, free) => write!(f, "{asked} bytes asked for, {free} free"),
            NoMemory::Machine(asked) => write!(f, "the machine under the emulator cannot give {asked} bytes"),
        }
    }
}

/// The memory of one device.
pub(super) struct Arena {
    blocks: Blocks,
    base: u64,
    cursor: u64,
    capacity: u64,
    extra: u64,
}

/// What comes with a new block.
pub(super) struct Origin {
    pub(super) tag: Option<Arc<str>>,
    pub(super) context: u64,
}

impl Arena {
    pub(super) fn new(
        emulator: u32,
        device: u32,
        capacity: u64,
        extra: u64,
        fill: Fill,
        quarantine_limit: u64,
    ) -> Arena {
        let emulator = u64::from(emulator & EMULATOR_MASK) << EMULATOR_SHIFT;
        let base = WINDOW | emulator | (u64::from(device) << DEVICE_SHIFT);
        Arena { blocks: Blocks::new(fill, quarantine_limit), base, cursor: base + RESERVED, capacity, extra }
    }

    /// Where the data that comes with a launch appears.
    pub(super) fn side_address(&self) -> u64 {
        self.base + PAGE
    }

    /// Where the addresses of this device end.
    fn end(&self) -> u64 {
        self.base + (1 << DEVICE_SHIFT)
    }

    /// The addresses that this device hands out, and those that it reserves.
    pub(super) fn window(&self) -> core::ops::Range<u64> {
        self.base..self.end()
    }

    pub(super) fn allocate(&mut self, size: u64, origin: Origin) -> Result<u64, NoMemory> {
        let free = self.capacity - self.blocks.account.used;
        let usable = size.checked_next_multiple_of(ROUND);
        let charged = usable.and_then(|usable| usable.checked_add(self.extra));
        let (Some(usable), Some(charged)) = (usable, charged) else { return Err(NoMemory::Capacity(size, free)) };
        if charged > free {
            return Err(NoMemory::Capacity(charged, free));
        }
        let address = self.place(charged).ok_or(NoMemory::Capacity(charged, free))?;
        let storage = usize::try_from(usable).ok().and_then(|len| Storage::new(len, self.blocks.fill));
        let storage = storage.ok_or(NoMemory::Machine(usable))?;
        self.blocks.serial += 1;
        let serial = self.blocks.serial;
        let Origin { tag, context } = origin;
        let freed = AtomicBool::new(false);
        self.blocks.insert(Block { address, size, charged, serial, tag, context, freed, storage });
        self.cursor = (address + charged).next_multiple_of(ALIGN);
        Ok(address)
    }

    /// A free range of addresses: the next one, or after the last address has been used the lowest that fits. So an
    /// address comes back as late as possible.
    fn place(&self, charged: u64) -> Option<u64> {
        if self.end() - self.cursor >= charged && !self.overlaps(self.cursor, charged) {
            return Some(self.cursor);
        }
        let mut at = self.base + RESERVED;
        for (address, block) in &self.blocks.by_address {
            if *address >= at && *address - at >= charged {
                return Some(at);
            }
            at = at.max((address + block.charged).next_multiple_of(ALIGN));
        }
        (self.end() >= at && self.end() - at >= charged).then_some(at)
    }

    fn overlaps(&self, at: u64, charged: u64) -> bool {
        let before = self.blocks.by_address.range(..=at).next_back();
        let after = self.blocks.by_address.range(at..at + charged).next();
        before.is_some_and(|(address, block)| address + block.charged > at) || after.is_some()
    }

    /// The block of a range, which must lie inside what was asked for.
    pub(super) fn range(&self, address: u64, len: u64) -> Result<Arc<Block>, MemoryFault> {
        self.blocks.range(address, len).cloned()
    }

    pub(super) fn free(&mut self, address: u64) -> Result<Arc<Block>, MemoryFault> {
        self.blocks.free(address)
    }

    pub(super) fn account(&self) -> MemoryUse {
        self.blocks.account
    }

    pub(super) fn tags(&self) -> Vec<(String, MemoryUse)> {
        self.blocks.tags.iter().map(|(tag, account)| (tag.to_string(), *account)).collect()
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.capacity - self.blocks.account.used
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(super) fn leaks(&self) -> Vec<Leak> {
        self.blocks.leaks()
    }

    /// Addresses of the live blocks that were made in a context.
    pub(super) fn of_context(&self, context: u64) -> Vec<u64> {
        self.blocks.live().filter(|block| block.context == context).map(|block| block.address).collect()
    }

    /// Checks and overwrites what has been freed. The caller holds the [`Token`] of the device.
    pub(super) fn settle(&mut self, damage: &mut Vec<String>) {
        self.blocks.poison(damage);
    }

    /// Checks the guard zones of all live blocks. The caller holds the [`Token`] of the device.
    pub(super) fn check(&self, damage: &mut Vec<String>) {
        damage.extend(self.blocks.live().filter_map(|block| block.damage()));
    }
}

/// Pinned memory of the host: real addresses.
pub(super) struct Pinned {
    blocks: Blocks,
    limit: u64,
    /// Ranges of the program's own memory that were registered: start, bytes.
    registered: BTreeMap<u64, u64>,
}

/// What a host address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostMemory {
    /// Allocated or registered here.
    Pinned,
    /// Any other.
    Pageable,
}

impl Pinned {
    pub(super) fn new(limit: u64, fill: Fill, quarantine_limit: u64) -> Pinned {
        Pinned { blocks: Blocks::new(fill, quarantine_limit), limit, registered: BTreeMap::new() }
    }

    pub(super) fn allocate(&mut self, size: u64, origin: Origin) -> Result<*mut u8, NoMemory> {
        let free = self.limit - self.blocks.account.used;
        let usable = size.checked_next_multiple_of(ROUND).filter(|usable| *usable <= free);
        let usable = usable.ok_or(NoMemory::Capacity(size, free))?;
        let storage = usize::try_from(usable).ok().and_then(|len| Storage::new(len, self.blocks.fill));
        let storage = storage.ok_or(NoMemory::Machine(usable))?;
        let start = storage.start();
        self.blocks.serial += 1;
        let serial = self.blocks.serial;
        let Origin { tag, context } = origin;
        let freed = AtomicBool::new(false);
        let address = start.expose_provenance() as u64;
        self.blocks.insert(Block { address, size, charged: usable, serial, tag, context, freed, storage });
        Ok(start)
    }

    /// Frees a block; the sentence is about a written guard zone.
    pub(super) fn free(&mut self, address: u64) -> Result<Option<String>, MemoryFault> {
        self.blocks.free(address)?;
        // Pinned bytes belong to the program until it frees them, and to nobody afterwards; queued copies look the
        // block up again and find it freed. So no lock is needed.
        let mut damage = Vec::new();
        self.blocks.poison(&mut damage);
        Ok(damage.pop())
    }

    /// What an address range is; a fault when it starts in pinned memory and reaches beyond it, or was freed.
    pub(super) fn kind(&self, address: u64, len: u64) -> Result<HostMemory, MemoryFault> {
        if let Some((start, size)) = self.registered.range(..=address).next_back()
            && address - start < *size
        {
            if len > size - (address - start) {
                return Err(MemoryFault(format!("{len} bytes at {address:#x} reach beyond the registered range")));
            }
            return Ok(HostMemory::Pinned);
        }
        match self.blocks.around(address) {
            // The end of a block may be the start of other memory of the program.
            Some(block) if address - block.address < block.size.max(1) => {
                self.blocks.range(address, len).map(|_| HostMemory::Pinned)
            }
            _ => Ok(HostMemory::Pageable),
        }
    }

    pub(super) fn register(&mut self, address: u64, size: u64) -> bool {
        let overlaps = self.registered.range(..address + size).next_back().is_some_and(|(at, n)| at + n > address);
        if !overlaps {
            self.registered.insert(address, size);
        }
        !overlaps
    }

    pub(super) fn unregister(&mut self, address: u64) -> bool {
        self.registered.remove(&address).is_some()
    }

    pub(super) fn account(&self) -> MemoryUse {
        self.blocks.account
    }

    pub(super) fn leaks(&self) -> Vec<Leak> {
        self.blocks.leaks()
    }

    pub(super) fn registered(&self) -> usize {
        self.registered.len()
    }
}

/// Proof of holding the lock of a device's bytes, and what the holder may reuse.
#[derive(Default)]
pub(super) struct Token {
    /// Blocks that the running task uses, held so that a free meanwhile leaves their storage in place.
    pub(super) held: Vec<Arc<Block>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTRA: u64 = 32;

    fn arena(capacity: u64) -> Arena {
        Arena::new(3, 1, capacity, EXTRA, Fill::Pattern, 1 << 20)
    }

    fn origin() -> Origin {
        Origin { tag: None, context: 7 }
    }

    fn bytes(block: &Block) -> &[u8] {
        // SAFETY: the tests are the only users of their arenas.
        unsafe { core::slice::from_raw_parts(block.start(), block.usable() as usize) }
    }

    #[test]
    fn addresses_are_aligned_apart_and_of_no_processor() {
        let mut arena = arena(1 << 20);
        let mut last = 0;
        for size in [1, 31, 32, 33, 64, 100, 1000] {
            let address = arena.allocate(size, origin()).expect("fits");
            assert_eq!(address % ALIGN, 0);
            assert!(address > last && is_device_like(address) && arena.window().contains(&address));
            last = address + size;
        }
        assert!(!is_device_like(0x7fff_ffff_ffff) && !is_device_like(u64::MAX) && !is_device_like(0));
    }

    #[test]
    fn sizes_are_charged_rounded_and_with_the_extra_bytes() {
        let mut arena = arena(1 << 20);
        let address = arena.allocate(33, origin()).expect("fits");
        assert_eq!(arena.account(), MemoryUse { used: 96, peak: 96, count: 1, total: 1 });
        arena.free(address).expect("live");
        assert_eq!(arena.account(), MemoryUse { used: 0, peak: 96, count: 0, total: 1 });
    }

    #[test]
    fn the_capacity_is_a_limit_and_freeing_gives_it_back() {
        let mut arena = arena(128);
        let first = arena.allocate(64, origin()).expect("96 of 128");
        assert!(matches!(arena.allocate(1, origin()), Err(NoMemory::Capacity(64, 32))));
        assert!(matches!(arena.allocate(u64::MAX, origin()), Err(NoMemory::Capacity(u64::MAX, 32))));
        assert!(matches!(arena.allocate(u64::MAX - 40, origin()), Err(NoMemory::Capacity(..))));
        arena.free(first).expect("live");
        arena.allocate(96, origin()).expect("all of it");
    }

    #[test]
    fn fresh_and_freed_memory_hold_their_patterns() {
        let mut arena = arena(1 << 20);
        let address = arena.allocate(5, origin()).expect("fits");
        let block = arena.range(address, 5).expect("live");
        assert!(bytes(&block).chunks(2).all(|pair| pair == FRESH.to_le_bytes()));
        assert!(f32::from_bits(u32::from(FRESH) * 0x1_0001).is_nan());
        arena.free(address).expect("live");
        let mut damage = Vec::new();
        arena.settle(&mut damage);
        assert!(damage.is_empty());
        assert!(bytes(&block).chunks(2).all(|pair| pair == FREED.to_le_bytes()));
    }

    #[test]
    fn ranges_end_where_the_size_ends() {
        let mut arena = arena(1 << 20);
        let address = arena.allocate(40, origin()).expect("fits");
        assert!(arena.range(address, 40).is_ok() && arena.range(address + 8, 32).is_ok());
        assert!(arena.range(address + 40, 0).is_ok());
        assert!(arena.range(address, 41).is_err() && arena.range(address + 40, 1).is_err());
        assert!(arena.range(address - 1, 1).is_err() && arena.range(address + 8, u64::MAX).is_err());
    }

    #[test]
    fn a_freed_block_is_named_and_cannot_be_freed_again() {
        let mut arena = arena(1 << 20);
        let address = arena.allocate(64, Origin { tag: Some("weights".into()), context: 0 }).expect("fits");
        assert!(arena.free(address + 32).err().expect("not the start").0.contains("inside"));
        arena.free(address).expect("live");
        assert!(arena.free(address).err().expect("twice").0.contains("freed before"));
        let fault = arena.range(address, 1).err().expect("freed");
        assert!(fault.0.contains("after") && fault.0.contains("weights"), "{}", fault.0);
    }

    #[test]
    fn a_write_outside_is_found_on_both_sides() {
        for at in [-1isize, 64, 64 + GUARD as isize - 1, -(GUARD as isize)] {
            let mut arena = arena(1 << 20);
            let address = arena.allocate(64, origin()).expect("fits");
            let block = arena.range(address, 64).expect("live");
            // SAFETY: inside the guard zones, which belong to the storage.
            unsafe { block.start().offset(at).write(1) };
            let mut damage = Vec::new();
            arena.check(&mut damage);
            assert!(damage.len() == 1 && damage[0].contains(&format!("offset {at},")), "{damage:?}");
            arena.free(address).expect("live");
            arena.settle(&mut damage);
            assert_eq!(damage.len(), 2);
        }
    }

    #[test]
    fn the_quarantine_is_bounded_and_a_block_beyond_it_goes_at_once() {
        let mut arena = Arena::new(0, 0, 1 << 20, 0, Fill::Pattern, 256);
        let old = arena.allocate(128, origin()).expect("fits");
        let new = arena.allocate(192, origin()).expect("fits");
        arena.free(old).expect("live");
        assert!(arena.range(old, 1).err().expect("freed").0.contains("freed"));
        arena.free(new).expect("live");
        assert!(arena.range(old, 1).err().expect("gone").0.contains("not allocated"));
        let large = arena.allocate(512, origin()).expect("fits");
        arena.free(large).expect("live");
        assert!(arena.range(large, 1).err().expect("gone").0.contains("not allocated"));
        let mut damage = Vec::new();
        arena.settle(&mut damage);
        assert!(damage.is_empty());
    }

    #[test]
    fn addresses_come_back_only_after_the_last_one() {
        let mut arena = Arena::new(0, 0, u64::MAX, 0, Fill::Zero, 0);
        let first = arena.allocate(4096, origin()).expect("fits");
        let second = arena.allocate(4096, origin()).expect("fits");
        arena.free(first).expect("live");
        let third = arena.allocate(4096, origin()).expect("fits");
        assert!(third > second);
        arena.cursor = arena.end() - 64;
        assert_eq!(arena.allocate(4096, origin()).expect("fits"), first);
        let after = arena.allocate(64, origin()).expect("fits");
        assert!(after > third, "{after:#x}");
    }

    #[test]
    fn accounts_are_kept_by_tag() {
        let mut arena = arena(1 << 20);
        let kv = || Origin { tag: Some("kv".into()), context: 0 };
        let a = arena.allocate(32, kv()).expect("fits");
        arena.allocate(32, kv()).expect("fits");
        arena.allocate(32, origin()).expect("fits");
        arena.free(a).expect("live");
        let kv = MemoryUse { used: 64, peak: 128, count: 1, total: 2 };
        assert_eq!(arena.tags(), [("kv".to_owned(), kv)]);
        assert_eq!(arena.leaks().len(), 2);
        assert_eq!(arena.of_context(0).len(), 1);
    }

    #[test]
    fn pinned_memory_is_told_from_other_memory() {
        let mut pinned = Pinned::new(4096, Fill::Pattern, 1 << 20);
        let start = pinned.allocate(100, origin()).expect("fits");
        let address = start.addr() as u64;
        assert_eq!(pinned.kind(address, 100).expect("inside"), HostMemory::Pinned);
        assert_eq!(pinned.kind(address + 99, 1).expect("inside"), HostMemory::Pinned);
        assert_eq!(pinned.kind(address + 100, 1).expect("outside"), HostMemory::Pageable);
        assert!(pinned.kind(address, 101).is_err());
        let other = [0u8; 8];
        assert_eq!(pinned.kind(other.as_ptr().addr() as u64, 8).expect("outside"), HostMemory::Pageable);
        assert!(matches!(pinned.allocate(4096, origin()), Err(NoMemory::Capacity(..))));
        pinned.free(address).expect("live");
        assert!(pinned.kind(address, 1).is_err(), "freed, still known");
        assert!(pinned.free(address).is_err());
    }

    #[test]
    fn registered_ranges_do_not_overlap() {
        let mut pinned = Pinned::new(4096, Fill::Zero, 0);
        assert!(pinned.register(0x10000, 0x2000));
        assert!(!pinned.register(0x11000, 0x1000) && !pinned.register(0xF000, 0x2000));
        assert!(pinned.register(0x12000, 0x1000));
        assert_eq!(pinned.kind(0x10010, 16).expect("inside"), HostMemory::Pinned);
        assert!(pinned.kind(0x11FFF, 2).is_err());
        assert!(pinned.unregister(0x10000) && !pinned.unregister(0x10000));
        assert_eq!(pinned.kind(0x10010, 16).expect("outside"), HostMemory::Pageable);
    }
}
