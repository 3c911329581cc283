// SPDX-License-Identifier: MIT OR Apache-2.0

//! Device memory between the buffers and the device: deferred freeing, reuse, accounting, limit.
//!
//! Freeing is deferred: the library frees at once, whoever still uses the memory, so a block waits here until the last
//! tasks that used it are done. What happens then is the [`PoolPolicy`].
//!
//! Nothing here calls the library. The context does, without holding the pool's lock.

use crate::handle::Handle;
use crate::lane::Mark;
use std::collections::{BTreeMap, VecDeque};

/// What becomes of device memory after its last use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PoolPolicy {
    /// It is freed. Every buffer is an allocation of its own.
    Direct,
    /// It is kept and used again. Buffers of up to 1 MiB share blocks of 2 MiB, those of up to 10 MiB blocks of 20 MiB,
    /// so that the 2 MiB pages of the device are not wasted; larger ones are kept whole and go to a buffer that needs
    /// four fifths of them or more.
    Cached,
}

/// What a context has of the device's memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUse {
    /// In buffers.
    pub live: usize,
    /// The most that was in buffers at once.
    pub peak: usize,
    /// How many buffers there are.
    pub buffers: usize,
    /// Dropped, and waiting for the last tasks that use it.
    pub deferred: usize,
    /// Free to be used again by this context.
    pub cached: usize,
    /// Taken from the device: all of the above, with what rounding costs.
    pub taken: usize,
    /// Pinned memory of the host, until it is freed.
    pub pinned: usize,
}

/// Something to be given up when its last uses are done.
#[derive(Debug)]
pub(crate) enum Retired {
    Device(Block),
    Pinned { pointer: Handle, bytes: usize },
    Graph { graph: Handle, events: Vec<Handle> },
    Module(Handle),
}

/// Device memory of one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) pointer: Handle,
    /// What was asked for.
    pub(crate) bytes: usize,
    /// What was set aside.
    room: usize,
    home: Home,
}

/// Where a block came from and goes back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    /// An allocation of its own, which is freed.
    Device,
    /// A part of a shared block.
    Shared(Class),
    /// An allocation of its own, which is kept.
    Whole,
}

/// A size class of shared blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Small,
    Middle,
}

const MIB: usize = 1 << 20;
/// Parts of shared blocks are multiples of this.
const GRAIN: usize = 512;
/// What lies between the end of a buffer and the next: the device's own allocator leaves as much.
const GAP: usize = 32;
const SMALL: usize = MIB;
const MIDDLE: usize = 10 * MIB;
/// The pages of the device.
const PAGE: usize = 2 * MIB;

impl Class {
    fn block_bytes(self) -> usize {
        match self {
            Self::Small => 2 * MIB,
            Self::Middle => 20 * MIB,
        }
    }
}

/// A block that buffers share.
#[derive(Debug)]
struct Shared {
    base: Handle,
    bytes: usize,
    /// Holes by offset; neighbours are joined.
    holes: BTreeMap<usize, usize>,
}

impl Shared {
    fn new(base: Handle, bytes: usize) -> Self {
        Self { base, bytes, holes: BTreeMap::from([(0, bytes)]) }
    }

    /// The smallest hole of at least so many bytes.
    fn fits(&self, room: usize) -> Option<(usize, usize)> {
        self.holes
            .iter()
            .filter(|&(_, &size)| size >= room)
            .map(|(&offset, &size)| (size, offset))
            .min()
            .map(|(size, offset)| (offset, size))
    }

    fn take(&mut self, offset: usize, room: usize) {
        if let Some(size) = self.holes.remove(&offset)
            && size > room
        {
            self.holes.insert(offset + room, size - room);
        }
    }

    fn give(&mut self, offset: usize, room: usize) {
        let (mut offset, mut room) = (offset, room);
        if let Some((&before, &size)) = self.holes.range(..offset).next_back()
            && before + size == offset
        {
            self.holes.remove(&before);
            offset = before;
            room += size;
        }
        if let Some(size) = self.holes.remove(&(offset + room)) {
            room += size;
        }
        self.holes.insert(offset, room);
    }

    fn is_empty(&self) -> bool {
        self.holes.get(&0) == Some(&self.bytes)
    }
}

/// What an allocation needs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Nothing: here it is.
    Ready(Block),
    /// So many bytes from the device; then [`Pool::adopt`].
    Take(Request),
    /// The limit does not allow it.
    Limit,
}

/// Bytes to take from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// How many.
    pub(crate) take: usize,
    bytes: usize,
    room: usize,
    home: Home,
}

#[derive(Debug)]
pub(crate) struct Pool {
    policy: PoolPolicy,
    limit: Option<usize>,
    usage: MemoryUse,
    small: Vec<Shared>,
    middle: Vec<Shared>,
    /// Kept allocations by size.
    whole: BTreeMap<usize, Vec<Handle>>,
    deferred: VecDeque<(Retired, Vec<Mark>)>,
}

impl Pool {
    pub(crate) fn new(policy: PoolPolicy) -> Self {
        Self {
            policy,
            limit: None,
            usage: MemoryUse::default(),
            small: Vec::new(),
            middle: Vec::new(),
            whole: BTreeMap::new(),
            deferred: VecDeque::new(),
        }
    }

    pub(crate) fn usage(&self) -> MemoryUse {
        self.usage
    }

    pub(crate) fn set_policy(&mut self, policy: PoolPolicy) {
        self.policy = policy;
    }

    pub(crate) fn set_limit(&mut self, limit: Option<usize>) {
        self.limit = limit;
    }

    fn shared(&mut self, class: Class) -> &mut Vec<Shared> {
        match class {
            Class::Small => &mut self.small,
            Class::Middle => &mut self.middle,
        }
    }

    /// Finds room for a buffer of so many bytes, at least one, or says what to take from the device.
    pub(crate) fn plan(&mut self, bytes: usize) -> Plan {
        let (home, room, take) = match self.policy {
            PoolPolicy::Direct => (Home::Device, bytes, bytes),
            PoolPolicy::Cached if bytes <= MIDDLE => {
                let class = if bytes <= SMALL { Class::Small } else { Class::Middle };
                let room = (bytes + GAP).next_multiple_of(GRAIN);
                let blocks = self.shared(class);
                let best = blocks
                    .iter()
                    .enumerate()
                    .filter_map(|(index, block)| block.fits(room).map(|(offset, size)| (size, index, offset)))
                    .min();
                if let Some((_, index, offset)) = best {
                    let block = &mut blocks[index];
                    block.take(offset, room);
                    let pointer = block.base.offset(offset);
                    return Plan::Ready(self.hand_out(pointer, bytes, room, Home::Shared(class), true));
                }
                (Home::Shared(class), room, class.block_bytes())
            }
            PoolPolicy::Cached => {
                // A size that overflows when it is rounded is too large for any device; let the device say so.
                let room = bytes.checked_next_multiple_of(PAGE).unwrap_or(bytes);
                let most = room.saturating_add(room / 4);
                let kept = self.whole.range(room..=most).next().map(|(&size, _)| size);
                if let Some(size) = kept
                    && let Some(pointers) = self.whole.get_mut(&size)
                    && let Some(pointer) = pointers.pop()
                {
                    if pointers.is_empty() {
                        self.whole.remove(&size);
                    }
                    return Plan::Ready(self.hand_out(pointer, bytes, size, Home::Whole, true));
                }
                (Home::Whole, room, room)
            }
        };
        if self.limit.is_some_and(|limit| self.usage.taken.saturating_add(take) > limit) {
            return Plan::Limit;
        }
        Plan::Take(Request { take, bytes, room, home })
    }

    /// Takes over what the device gave for a request.
    pub(crate) fn adopt(&mut self, pointer: Handle, request: Request) -> Block {
        self.usage.taken += request.take;
        if let Home::Shared(class) = request.home {
            let mut block = Shared::new(pointer, request.take);
            block.take(0, request.room);
            self.shared(class).push(block);
            self.usage.cached += request.take - request.room;
        }
        self.hand_out(pointer, request.bytes, request.room, request.home, false)
    }

    fn hand_out(&mut self, pointer: Handle, bytes: usize, room: usize, home: Home, cached: bool) -> Block {
        if cached {
            self.usage.cached -= room;
        }
        self.usage.live += bytes;
        self.usage.peak = self.usage.peak.max(self.usage.live);
        self.usage.buffers += 1;
        Block { pointer, bytes, room, home }
    }

    /// Takes a block back whose last use is done. The address to free, if it is not kept.
    pub(crate) fn give_back(&mut self, block: Block) -> Option<Handle> {
        self.usage.live -= block.bytes;
        self.usage.buffers -= 1;
        match block.home {
            Home::Device => {
                self.usage.taken -= block.room;
                Some(block.pointer)
            }
            Home::Whole => {
                self.usage.cached += block.room;
                self.whole.entry(block.room).or_default().push(block.pointer);
                None
            }
            Home::Shared(class) => {
                self.usage.cached += block.room;
                let address = block.pointer.address();
                let of = |shared: &&mut Shared| {
                    address.checked_sub(shared.base.address()).is_some_and(|offset| offset < shared.bytes)
                };
                if let Some(shared) = self.shared(class).iter_mut().find(of) {
                    let offset = address - shared.base.address();
                    shared.give(offset, block.room);
                }
                None
            }
        }
    }

    /// Everything of the cache that is whole, to be freed.
    pub(crate) fn take_cached(&mut self) -> Vec<Handle> {
        let mut freed = Vec::new();
        for (size, pointers) in core::mem::take(&mut self.whole) {
            self.usage.cached -= size * pointers.len();
            self.usage.taken -= size * pointers.len();
            freed.extend(pointers);
        }
        for blocks in [&mut self.small, &mut self.middle] {
            blocks.retain(|block| {
                if !block.is_empty() {
                    return true;
                }
                self.usage.cached -= block.bytes;
                self.usage.taken -= block.bytes;
                freed.push(block.base);
                false
            });
        }
        freed
    }

    pub(crate) fn pinned_taken(&mut self, bytes: usize) {
        self.usage.pinned += bytes;
    }

    pub(crate) fn pinned_freed(&mut self, bytes: usize) {
        self.usage.pinned -= bytes;
    }

    pub(crate) fn defer(&mut self, what: Retired, marks: Vec<Mark>) {
        if let Retired::Device(block) = &what {
            self.usage.deferred += block.bytes;
        }
        self.deferred.push_back((what, marks));
    }

    pub(crate) fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    fn remove(&mut self, at: usize) -> Option<Retired> {
        let (what, _) = self.deferred.remove(at)?;
        if let Retired::Device(block) = &what {
            self.usage.deferred -= block.bytes;
        }
        Some(what)
    }

    /// The first of what was given up and is no longer used. Graphs were given up before what they use.
    pub(crate) fn take_ready(&mut self) -> Option<Retired> {
        let at = self.deferred.iter().position(|(_, marks)| marks.iter().all(Mark::is_done))?;
        self.remove(at)
    }

    /// The first of what was given up, used or not.
    pub(crate) fn take_any(&mut self) -> Option<Retired> {
        self.remove(0)
    }

    /// What everything that was given up still waits for.
    pub(crate) fn deferred_marks(&self) -> Vec<Mark> {
        self.deferred.iter().flat_map(|(_, marks)| marks).filter(|mark| !mark.is_done()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn handle(address: usize) -> Handle {
        Handle::new(core::ptr::without_provenance_mut(address))
    }

    /// A device that gives addresses and never has enough of them.
    struct Device {
        next: usize,
        live: BTreeMap<usize, usize>,
    }

    impl Device {
        fn new() -> Self {
            Self { next: 1 << 40, live: BTreeMap::new() }
        }

        fn alloc(&mut self, pool: &mut Pool, bytes: usize) -> Block {
            match pool.plan(bytes) {
                Plan::Ready(block) => block,
                Plan::Take(request) => {
                    let address = self.next;
                    self.next += request.take.next_multiple_of(PAGE) + PAGE;
                    self.live.insert(address, request.take);
                    pool.adopt(handle(address), request)
                }
                Plan::Limit => panic!("there is no limit"),
            }
        }

        fn freed(&mut self, pointer: Handle) {
            assert!(self.live.remove(&pointer.address()).is_some(), "freed twice, or never given");
        }
    }

    fn sizes() -> impl Strategy<Value = usize> {
        prop_oneof![1usize..4096, 1usize..=SMALL, SMALL..=MIDDLE, MIDDLE..=64 * MIB]
    }

    proptest! {
        #[test]
        fn blocks_never_overlap_and_nothing_is_lost(
            policy in prop_oneof![Just(PoolPolicy::Direct), Just(PoolPolicy::Cached)],
            steps in prop::collection::vec((sizes(), any::<prop::sample::Index>(), 0u8..10), 1..120),
        ) {
            let mut pool = Pool::new(policy);
            let mut device = Device::new();
            let mut live: Vec<Block> = Vec::new();
            for (bytes, index, what) in steps {
                match what {
                    0..=5 => {
                        let block = device.alloc(&mut pool, bytes);
                        let start = block.pointer.address();
                        prop_assert!(
                            device.live.iter().any(|(&base, &size)| base <= start && start + bytes <= base + size),
                            "not within what the device gave"
                        );
                        prop_assert_eq!(start % 64, 0);
                        for other in &live {
                            let begin = other.pointer.address();
                            prop_assert!(start + bytes <= begin || begin + other.bytes <= start, "overlap");
                        }
                        live.push(block);
                    }
                    6..=8 if !live.is_empty() => {
                        let block = live.swap_remove(index.index(live.len()));
                        if let Some(pointer) = pool.give_back(block) {
                            device.freed(pointer);
                        }
                    }
                    9 => {
                        for pointer in pool.take_cached() {
                            device.freed(pointer);
                        }
                    }
                    _ => {}
                }
                let usage = pool.usage();
                prop_assert_eq!(usage.live, live.iter().map(|block| block.bytes).sum::<usize>());
                prop_assert_eq!(usage.buffers, live.len());
                prop_assert_eq!(usage.taken, device.live.values().sum::<usize>());
                let used: usize = live.iter().map(|block| block.room).sum();
                prop_assert_eq!(usage.cached + used, usage.taken);
            }
            for block in live {
                if let Some(pointer) = pool.give_back(block) {
                    device.freed(pointer);
                }
            }
            for pointer in pool.take_cached() {
                device.freed(pointer);
            }
            prop_assert!(device.live.is_empty(), "something was lost");
            prop_assert_eq!(pool.usage().taken, 0);
        }
    }

    #[test]
    fn a_cached_block_is_used_again() {
        let mut pool = Pool::new(PoolPolicy::Cached);
        let mut device = Device::new();
        for bytes in [100, SMALL + 1, MIDDLE + 1] {
            let first = device.alloc(&mut pool, bytes);
            assert_eq!(pool.give_back(first), None);
            let taken = pool.usage().taken;
            let second = device.alloc(&mut pool, bytes);
            assert_eq!(first.pointer, second.pointer);
            assert_eq!(pool.usage().taken, taken);
            pool.give_back(second);
        }
    }

    #[test]
    fn a_large_block_does_not_go_to_a_small_buffer() {
        let mut pool = Pool::new(PoolPolicy::Cached);
        let mut device = Device::new();
        let large = device.alloc(&mut pool, 100 * MIB);
        pool.give_back(large);
        let other = device.alloc(&mut pool, 60 * MIB);
        assert_ne!(large.pointer, other.pointer);
        let fitting = device.alloc(&mut pool, 90 * MIB);
        assert_eq!(large.pointer, fitting.pointer);
    }

    #[test]
    fn the_limit_counts_what_is_taken() {
        let mut pool = Pool::new(PoolPolicy::Cached);
        pool.set_limit(Some(3 * MIB));
        let mut device = Device::new();
        device.alloc(&mut pool, 100);
        assert_eq!(pool.plan(MIDDLE), Plan::Limit);
        // There is room in the block that was taken.
        device.alloc(&mut pool, 100);
        let mut pool = Pool::new(PoolPolicy::Direct);
        pool.set_limit(Some(1000));
        assert!(matches!(pool.plan(1000), Plan::Take(_)));
        assert_eq!(pool.plan(1001), Plan::Limit);
        assert_eq!(pool.plan(usize::MAX), Plan::Limit);
    }

    #[test]
    fn sizes_that_overflow_reach_the_device() {
        let mut pool = Pool::new(PoolPolicy::Cached);
        let Plan::Take(request) = pool.plan(usize::MAX) else { panic!("no plan") };
        assert_eq!(request.take, usize::MAX);
    }
}
