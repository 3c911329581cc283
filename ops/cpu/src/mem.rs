// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory for weights and caches: 64-byte aligned, zeroed, in huge pages where that pays.

use std::ops::{Deref, DerefMut};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// One cache line.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
struct Line([u8; 64]);

const HUGE_PAGE: usize = 2 << 20;

enum Storage {
    Lines(Vec<Line>),
    Pages { map: memmap2::MmapMut, start: usize },
}

/// A zeroed, 64-byte aligned byte buffer. From 4 MiB on it lies in its own mapping, aligned to 2 MiB, for which the
/// kernel is asked to use huge pages (a refusal is not an error: the buffer then has ordinary pages).
pub struct Buffer {
    storage: Storage,
    len: usize,
}

impl Buffer {
    /// A zeroed buffer of `len` bytes. Fails only where the operating system has no memory to give.
    pub fn zeroed(len: usize) -> std::io::Result<Buffer> {
        let storage = if len < 2 * HUGE_PAGE {
            let lines = Line::new_vec_zeroed(len.div_ceil(64))
                .map_err(|_| std::io::Error::from(std::io::ErrorKind::OutOfMemory))?;
            Storage::Lines(lines)
        } else {
            let map = memmap2::MmapMut::map_anon(len + HUGE_PAGE)?;
            let start = map.as_ptr().align_offset(HUGE_PAGE);
            #[cfg(target_os = "linux")]
            let _ = map.advise_range(memmap2::Advice::HugePage, start, len);
            Storage::Pages { map, start }
        };
        Ok(Buffer { storage, len })
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.storage {
            Storage::Lines(lines) => &lines.as_slice().as_bytes()[..self.len],
            Storage::Pages { map, start } => &map[*start..*start + self.len],
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.storage {
            Storage::Lines(lines) => &mut lines.as_mut_slice().as_mut_bytes()[..self.len],
            Storage::Pages { map, start } => &mut map[*start..*start + self.len],
        }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}

/// Some values of scratch: on the stack if there are at most `N`, else on the heap. So that a decode step, whose rows are few,
/// needs no memory, and a prefill no limit.
#[derive(Debug)]
pub struct Scratch<T, const N: usize> {
    few: [T; N],
    many: Vec<T>,
    len: usize,
}

impl<T: Copy, const N: usize> Scratch<T, N> {
    /// `len` times `value`.
    pub fn new(len: usize, value: T) -> Self {
        Self { few: [value; N], many: if len > N { vec![value; len] } else { Vec::new() }, len }
    }
}

impl<T, const N: usize> Deref for Scratch<T, N> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        if self.len > N { &self.many } else { &self.few[..self.len] }
    }
}

impl<T, const N: usize> DerefMut for Scratch<T, N> {
    fn deref_mut(&mut self) -> &mut [T] {
        if self.len > N { &mut self.many } else { &mut self.few[..self.len] }
    }
}
