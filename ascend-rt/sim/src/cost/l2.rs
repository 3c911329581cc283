// SPDX-License-Identifier: MIT OR Apache-2.0

//! The L2 cache: least recently used, written lines stay and are written back when they leave.
//!
//! Replacement is by sectors of 4 KiB, presence by lines of 128 bytes (the unit in which the hardware's counters count).
//! A sector is one entry of a table with two masks of 32 bits, so that 192 MiB are 49,152 entries and a burst is one
//! look-up for each 4 KiB; a strided copy that takes part of a sector pays for the lines it takes only. What the coarser
//! replacement gets wrong is a footprint of scattered lines, which fills sectors that are mostly empty.

const SECTOR: u64 = 4096;
const LINE: u64 = 128;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    sector: u64,
    valid: u32,
    dirty: u32,
    newer: u32,
    older: u32,
    chain: u32,
}

/// What an access moved, in bytes of whole lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Found in the cache, or written to it.
    pub hit: u64,
    /// Fetched from HBM.
    pub miss: u64,
    /// Written back to HBM to make room.
    pub back: u64,
}

/// The cache of a chip. Addresses are those of the records.
#[derive(Clone, Debug)]
pub struct L2 {
    entries: Vec<Entry>,
    capacity: usize,
    buckets: Vec<u32>,
    shift: u32,
    newest: u32,
    oldest: u32,
}

impl L2 {
    /// An empty cache of this size.
    pub fn new(bytes: u64) -> Self {
        let capacity = ((bytes / SECTOR) as usize).clamp(1, 1 << 24);
        let bits = (2 * capacity).next_power_of_two().trailing_zeros();
        Self {
            entries: Vec::new(),
            capacity,
            buckets: vec![NONE; 1 << bits],
            shift: 64 - bits,
            newest: NONE,
            oldest: NONE,
        }
    }

    fn bucket(&self, sector: u64) -> usize {
        (sector.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    fn find(&self, sector: u64) -> u32 {
        let mut at = self.buckets[self.bucket(sector)];
        while at != NONE && self.entries[at as usize].sector != sector {
            at = self.entries[at as usize].chain;
        }
        at
    }

    fn unlink(&mut self, at: u32) {
        let Entry { newer, older, .. } = self.entries[at as usize];
        match newer {
            NONE => self.newest = older,
            n => self.entries[n as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            o => self.entries[o as usize].newer = newer,
        }
    }

    fn push(&mut self, at: u32) {
        let second = self.newest;
        let e = &mut self.entries[at as usize];
        e.newer = NONE;
        e.older = second;
        match second {
            NONE => self.oldest = at,
            s => self.entries[s as usize].newer = at,
        }
        self.newest = at;
    }

    /// The entry of a sector, taken over from the oldest one if need be, with the bytes that had to be written back.
    fn claim(&mut self, sector: u64) -> (u32, u64) {
        let bucket = self.bucket(sector);
        let (at, back) = if self.entries.len() < self.capacity {
            self.entries.push(Entry::default());
            ((self.entries.len() - 1) as u32, 0)
        } else {
            let at = self.oldest;
            let gone = self.entries[at as usize];
            self.unlink(at);
            let home = self.bucket(gone.sector);
            if self.buckets[home] == at {
                self.buckets[home] = gone.chain;
            } else {
                let mut before = self.buckets[home];
                while self.entries[before as usize].chain != at {
                    before = self.entries[before as usize].chain;
                }
                self.entries[before as usize].chain = gone.chain;
            }
            (at, u64::from(gone.dirty.count_ones()) * LINE)
        };
        self.entries[at as usize] =
            Entry { sector, valid: 0, dirty: 0, newer: NONE, older: NONE, chain: self.buckets[bucket] };
        self.buckets[bucket] = at;
        self.push(at);
        (at, back)
    }

    fn mask(from: u64, to: u64) -> u32 {
        // Lines from..=to of a sector; both are below 32.
        (u32::MAX >> (31 - (to - from))) << from
    }

    /// Reads or writes `bytes` bytes at `address`.
    pub fn access(&mut self, address: u64, bytes: u64, write: bool) -> Access {
        let mut out = Access::default();
        if bytes == 0 {
            return out;
        }
        let last = address.saturating_add(bytes - 1);
        for sector in address / SECTOR..=last / SECTOR {
            let from = address.max(sector * SECTOR) % SECTOR / LINE;
            let to = if sector == last / SECTOR { last % SECTOR / LINE } else { SECTOR / LINE - 1 };
            let mask = Self::mask(from, to);
            let mut at = self.find(sector);
            if at == NONE {
                let (new, back) = self.claim(sector);
                at = new;
                out.back += back;
            } else if self.newest != at {
                self.unlink(at);
                self.push(at);
            }
            let e = &mut self.entries[at as usize];
            let lines = u64::from(mask.count_ones());
            if write {
                e.dirty |= mask;
                out.hit += lines * LINE;
            } else {
                let missing = u64::from((mask & !e.valid).count_ones());
                out.miss += missing * LINE;
                out.hit += (lines - missing) * LINE;
            }
            e.valid |= mask;
        }
        out
    }

    /// Forgets what is at these addresses: they were written past the cache.
    pub fn drop_range(&mut self, address: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let last = address.saturating_add(bytes - 1);
        for sector in address / SECTOR..=last / SECTOR {
            let at = self.find(sector);
            if at != NONE {
                let from = address.max(sector * SECTOR) % SECTOR / LINE;
                let to = if sector == last / SECTOR { last % SECTOR / LINE } else { SECTOR / LINE - 1 };
                let mask = Self::mask(from, to);
                let e = &mut self.entries[at as usize];
                e.valid &= !mask;
                e.dirty &= !mask;
            }
        }
    }
}
