// SPDX-License-Identifier: MIT OR Apache-2.0

//! Objects by handle.
//!
//! A handle is a number that no processor maps, made of the kind of the object, the emulator, a place and its
//! generation. So a null, stale or foreign handle, or one of another kind, is found and never followed.

use core::ffi::c_void;
use core::fmt;

/// What a handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Context = 1,
    Stream,
    Event,
    Mark,
    Module,
    Function,
    Graph,
    Capture,
    Group,
    Args,
    Param,
    ProfilerConfig,
    Stamp,
}

/// A handle as a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key(pub(super) u64);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

const PLACE_BITS: u32 = 20;
const GENERATION_BITS: u32 = 16;
const EMULATOR_BITS: u32 = 12;

impl Key {
    pub(super) const NULL: Key = Key(0);

    pub(super) fn new(kind: Kind, emulator: u32, generation: u32, place: u32) -> Key {
        let emulator = u64::from(emulator) & ((1 << EMULATOR_BITS) - 1);
        let generation = u64::from(generation) & ((1 << GENERATION_BITS) - 1);
        Key((0xA0 + kind as u64) << (PLACE_BITS + GENERATION_BITS + EMULATOR_BITS)
            | emulator << (PLACE_BITS + GENERATION_BITS)
            | generation << PLACE_BITS
            | u64::from(place))
    }

    pub(super) fn of<T>(pointer: *const T) -> Key {
        Key(pointer.addr() as u64)
    }

    /// The handle as AscendCL passes it.
    pub(super) fn pointer(self) -> *mut c_void {
        core::ptr::without_provenance_mut(self.0 as usize)
    }

    pub(super) fn is_null(self) -> bool {
        self.0 == 0
    }

    pub(super) fn place(self) -> usize {
        (self.0 & ((1 << PLACE_BITS) - 1)) as usize
    }
}

struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

/// Objects of one kind. A freed place is used again with the next generation; that allocates nothing.
pub(super) struct Slab<T> {
    kind: Kind,
    emulator: u32,
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(super) fn new(kind: Kind, emulator: u32) -> Slab<T> {
        Slab { kind, emulator, entries: Vec::new(), free: Vec::new() }
    }

    /// `None` when a million objects of the kind are alive.
    pub(super) fn insert(&mut self, value: T) -> Option<Key> {
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                let place = u32::try_from(self.entries.len()).ok().filter(|place| *place < 1 << PLACE_BITS)?;
                self.entries.push(Entry { generation: 0, value: None });
                // Room for all places, so that removing never allocates.
                self.free.reserve(self.entries.len());
                place
            }
        };
        let entry = &mut self.entries[place as usize];
        entry.value = Some(value);
        Some(Key::new(self.kind, self.emulator, entry.generation, place))
    }

    fn check(&self, key: Key) -> Option<usize> {
        let place = key.place();
        let entry = self.entries.get(place)?;
        (Key::new(self.kind, self.emulator, entry.generation, place as u32) == key).then_some(place)
    }

    pub(super) fn get(&self, key: Key) -> Option<&T> {
        self.check(key).and_then(|place| self.entries[place].value.as_ref())
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.check(key).and_then(|place| self.entries[place].value.as_mut())
    }

    pub(super) fn contains(&self, key: Key) -> bool {
        self.get(key).is_some()
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        let place = self.check(key)?;
        let entry = &mut self.entries[place];
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1) & ((1 << GENERATION_BITS) - 1);
        self.free.push(place as u32);
        Some(value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.entries.iter().enumerate().filter_map(|(place, entry)| {
            let key = Key::new(self.kind, self.emulator, entry.generation, place as u32);
            entry.value.as_ref().map(|value| (key, value))
        })
    }

    pub(super) fn keys(&self, select: impl Fn(&T) -> bool) -> Vec<Key> {
        self.iter().filter(|(_, value)| select(value)).map(|(key, _)| key).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_found_only_as_long_as_they_live_and_where_they_come_from() {
        let mut slab = Slab::new(Kind::Stream, 5);
        let mut events: Slab<u32> = Slab::new(Kind::Event, 5);
        let mut foreign: Slab<u32> = Slab::new(Kind::Stream, 6);
        let a = slab.insert(1).expect("room");
        let b = slab.insert(2).expect("room");
        let event = events.insert(1).expect("room");
        let other = foreign.insert(1).expect("room");
        assert_eq!((slab.get(a), slab.get(b), slab.len()), (Some(&1), Some(&2), 2));
        assert_eq!((slab.get(event), slab.get(other), slab.get(Key::NULL)), (None, None, None));
        assert_eq!(slab.remove(a), Some(1));
        assert!(slab.get(a).is_none() && slab.remove(a).is_none());
        let c = slab.insert(3).expect("room");
        assert!(c != a && c.place() == a.place());
        assert_eq!((slab.get(a), slab.get(c)), (None, Some(&3)));
        assert_eq!(slab.keys(|value| *value > 2), [c]);
        *slab.get_mut(c).expect("live") += 1;
        assert_eq!(slab.iter().map(|(_, value)| *value).sum::<i32>(), 6);
    }

    #[test]
    fn a_handle_survives_being_a_pointer_and_is_high() {
        let mut slab = Slab::new(Kind::Param, 255);
        let key = slab.insert(()).expect("room");
        assert_eq!(Key::of(key.pointer()), key);
        assert!(key.0 >> 48 != 0 && key.0 >> 48 != 0xFFFF && !super::super::memory::is_device_like(key.0));
    }
}
