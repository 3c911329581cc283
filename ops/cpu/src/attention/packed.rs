// SPDX-License-Identifier: MIT OR Apache-2.0

//! Blocks of keys and values in packed layout: for one at a time, and for a cache.

use super::{ALIGNED, PackedBlocks, QUAD, check, out_of_memory};
use crate::acts::Precision;
use crate::kernels::simd::{Kernel, Simd, dispatch};
use crate::level::Level;
use crate::mem::Buffer;
use crate::pack;
use crate::weights::{Format, PANEL, PackedRef, ShapeError, Weight, packed_index};
use half::bf16;
use std::fmt;
use std::ops::Range;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The memory of a packed block: keys as a weight `[block, head_dim]`, values as a weight `[head_dim, block]`.
#[derive(Clone, Copy, Debug)]
struct Layout {
    format: Format,
    head_dim: usize,
    /// The most keys.
    block: usize,
}

impl Layout {
    fn new(format: Format, head_dim: usize, block: usize) -> Result<Self, ShapeError> {
        let size = format.value_bytes();
        check(size > 1, "bytes of a value of a packed block", 2, size)?;
        // What is computed below without further checks.
        let sizes = [(block, head_dim), (head_dim, block)].map(|(n, k)| {
            let panels = n.checked_next_multiple_of(PANEL)?.checked_mul(k.checked_next_multiple_of(QUAD)?)?;
            panels.checked_mul(size)
        });
        sizes[0].zip(sizes[1]).and_then(|(keys, values)| keys.checked_add(values)).ok_or_else(out_of_memory)?;
        Ok(Self { format, head_dim, block })
    }

    /// Inputs of the keys, with padding.
    fn key_capacity(&self) -> usize {
        self.head_dim.next_multiple_of(QUAD)
    }

    /// Inputs of the values, with padding.
    fn value_capacity(&self) -> usize {
        self.block.next_multiple_of(QUAD)
    }

    /// Bytes of the keys; a multiple of 64.
    fn key_bytes(&self) -> usize {
        self.block.next_multiple_of(PANEL) * self.key_capacity() * self.format.value_bytes()
    }

    /// Bytes of keys and values.
    fn bytes(&self) -> usize {
        self.key_bytes() + self.head_dim.next_multiple_of(PANEL) * self.value_capacity() * self.format.value_bytes()
    }

    /// The first `n` keys.
    fn keys<'a>(&self, n: usize, bytes: &'a [u8]) -> Result<PackedRef<'a>, ShapeError> {
        check(n <= self.block, "keys beyond the room of a block", self.block, n)?;
        let used = n.next_multiple_of(PANEL) * self.key_capacity() * self.format.value_bytes();
        self.packed(n, self.head_dim, self.key_capacity(), &bytes[..used])
    }

    /// The values of the first `k` keys.
    fn values<'a>(&self, k: usize, bytes: &'a [u8]) -> Result<PackedRef<'a>, ShapeError> {
        check(k <= self.block, "keys beyond the room of a block", self.block, k)?;
        self.packed(self.head_dim, k, self.value_capacity(), &bytes[self.key_bytes()..])
    }

    fn packed<'a>(&self, n: usize, k: usize, capacity: usize, bytes: &'a [u8]) -> Result<PackedRef<'a>, ShapeError> {
        match self.format {
            Format::F32 => PackedRef::f32(n, k, capacity, <[f32]>::ref_from_bytes(bytes).expect(ALIGNED)),
            _ => PackedRef::bf16(n, k, capacity, <[bf16]>::ref_from_bytes(bytes).expect(ALIGNED)),
        }
    }
}

/// Plain keys and values, `[count]` rows, of the keys of a block from `first` on.
#[derive(Clone, Copy)]
struct Plain<'a, T> {
    first: usize,
    count: usize,
    k: &'a [T],
    v: &'a [T],
    /// Values from one row to the next.
    stride: usize,
}

impl<T: Copy> Plain<'_, T> {
    fn check(&self, layout: &Layout) -> Result<(), ShapeError> {
        let Layout { head_dim, block, .. } = *layout;
        let end = self.first.saturating_add(self.count);
        check(end <= block, "keys beyond the room of a block", block, end)?;
        check(self.stride >= head_dim, "stride below the head dimension", head_dim, self.stride)?;
        let needed = match self.count {
            0 => 0,
            count => (count - 1).checked_mul(self.stride).and_then(|n| n.checked_add(head_dim)).unwrap_or(usize::MAX),
        };
        check(self.k.len() >= needed, "number of key elements", needed, self.k.len())?;
        check(self.v.len() >= needed, "number of value elements", needed, self.v.len())
    }

    /// Packs values of the layout's own format.
    fn pack(&self, level: Level, layout: &Layout, bytes: &mut [u8])
    where
        T: FromBytes + IntoBytes + Immutable + KnownLayout,
    {
        if self.first > 0 {
            return self.pack_each(layout, bytes, |x| x);
        }
        let Self { count, k, v, stride, .. } = *self;
        let (keys, values) = bytes.split_at_mut(layout.key_bytes());
        let panel_bytes = layout.key_capacity() * PANEL * size_of::<T>();
        for (panel, out) in keys.chunks_exact_mut(panel_bytes.max(1)).enumerate().take(count.div_ceil(PANEL)) {
            let rows = panel * PANEL..count.min((panel + 1) * PANEL);
            let mut slices = [&[][..]; PANEL];
            for (slice, row) in slices.iter_mut().zip(rows.clone()) {
                *slice = k[row * stride..][..layout.head_dim].as_bytes();
            }
            pack::pack_rows(level, layout.format, layout.head_dim, &slices[..rows.len()], out);
        }
        let out = <[T]>::mut_from_bytes(values).expect(ALIGNED);
        let (head_dim, capacity) = (layout.head_dim, layout.value_capacity());
        let zero = T::new_zeroed();
        dispatch(level, Interleave { keys: count, head_dim, values: v, stride, capacity, out, zero });
    }

    /// Packs value by value, converted to the format of the layout.
    fn pack_each<U>(&self, layout: &Layout, bytes: &mut [u8], convert: impl Fn(T) -> U)
    where
        U: Copy + FromBytes + IntoBytes + KnownLayout,
    {
        let Self { first, count, k, v, stride } = *self;
        if count == 0 {
            return;
        }
        let (keys, values) = bytes.split_at_mut(layout.key_bytes());
        let keys = <[U]>::mut_from_bytes(keys).expect(ALIGNED);
        let values = <[U]>::mut_from_bytes(values).expect(ALIGNED);
        let index = |output: usize, capacity: usize, k: usize| {
            output / PANEL * PANEL * capacity + packed_index(layout.format, output % PANEL, k)
        };
        let (key_capacity, value_capacity) = (layout.key_capacity(), layout.value_capacity());
        for row in 0..count {
            for channel in 0..layout.head_dim {
                keys[index(first + row, key_capacity, channel)] = convert(k[row * stride + channel]);
                values[index(channel, value_capacity, first + row)] = convert(v[row * stride + channel]);
            }
        }
        // Up to the next multiple of four, tiles multiply values by the zeros of padded probabilities.
        for key in first + count..(first + count).next_multiple_of(QUAD) {
            for channel in 0..layout.head_dim {
                values[index(channel, value_capacity, key)] = U::new_zeroed();
            }
        }
    }
}

/// A block of keys and values of one KV head, packed for the tiles from plain ones. Its memory is used again by the next
/// block.
pub struct PackedBlock {
    layout: Layout,
    /// The keys it has.
    count: usize,
    buffer: Buffer,
}

impl fmt::Debug for PackedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Layout { format, head_dim, block } = self.layout;
        write!(f, "PackedBlock({} of {block} keys of {head_dim}, {format})", self.count)
    }
}

impl PackedBlock {
    /// An empty block for up to `block` keys.
    ///
    /// # Errors
    /// [`ShapeError::Memory`]; [`ShapeError::Mismatch`] for a format of other values than F32 and BF16.
    pub fn new(format: Format, head_dim: usize, block: usize) -> Result<Self, ShapeError> {
        let layout = Layout::new(format, head_dim, block)?;
        Ok(Self { layout, count: 0, buffer: Buffer::zeroed(layout.bytes())? })
    }

    /// Packs `keys` keys and values, BF16 `[keys]` rows of `head_dim` values, `stride` values from one row to the next.
    ///
    /// # Errors
    /// [`ShapeError`] when there are more keys than room, or a slice is too short; the block is then as before.
    pub fn pack_bf16(
        &mut self,
        level: Level,
        keys: usize,
        k: &[bf16],
        v: &[bf16],
        stride: usize,
    ) -> Result<(), ShapeError> {
        let plain = Plain { first: 0, count: keys, k, v, stride };
        plain.check(&self.layout)?;
        pack_bf16(level, &self.layout, plain, &mut self.buffer);
        self.count = keys;
        Ok(())
    }

    /// As [`pack_bf16`](Self::pack_bf16) from F32; rounded where the block is BF16.
    ///
    /// # Errors
    /// As [`pack_bf16`](Self::pack_bf16).
    pub fn pack_f32(
        &mut self,
        level: Level,
        keys: usize,
        k: &[f32],
        v: &[f32],
        stride: usize,
    ) -> Result<(), ShapeError> {
        let plain = Plain { first: 0, count: keys, k, v, stride };
        plain.check(&self.layout)?;
        pack_f32(level, &self.layout, plain, &mut self.buffer);
        self.count = keys;
        Ok(())
    }

    /// The keys, `[keys, head_dim]`.
    pub fn keys(&self) -> Weight<'_> {
        self.layout.keys(self.count, &self.buffer).expect("there is room for the keys").into()
    }

    /// The values, `[head_dim, keys]`.
    pub fn values(&self) -> Weight<'_> {
        self.layout.values(self.count, &self.buffer).expect("there is room for the keys").into()
    }
}

fn pack_bf16(level: Level, layout: &Layout, plain: Plain<'_, bf16>, bytes: &mut [u8]) {
    match layout.format {
        Format::F32 => plain.pack_each(layout, bytes, bf16::to_f32),
        _ => plain.pack(level, layout, bytes),
    }
}

fn pack_f32(level: Level, layout: &Layout, plain: Plain<'_, f32>, bytes: &mut [u8]) {
    match layout.format {
        Format::F32 => plain.pack(level, layout, bytes),
        _ => plain.pack_each(layout, bytes, bf16::from_f32),
    }
}

/// Pages of packed blocks, of all KV heads each, in one piece of memory: the plainest [`PackedBlocks`].
pub struct PackedPages {
    layout: Layout,
    kv_heads: usize,
    pages: usize,
    /// `[pages, kv_heads]` blocks.
    buffer: Buffer,
}

impl fmt::Debug for PackedPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layout: Layout { format, head_dim, block }, kv_heads, pages, .. } = self;
        write!(f, "PackedPages({pages} of {kv_heads} heads, {block} tokens of {head_dim}, {format})")
    }
}

impl PackedPages {
    /// Pages of `block` tokens, all zeros.
    ///
    /// # Errors
    /// [`ShapeError::Memory`]; [`ShapeError::Mismatch`] for a format of other values than F32 and BF16.
    pub fn new(
        format: Format,
        kv_heads: usize,
        head_dim: usize,
        block: usize,
        pages: usize,
    ) -> Result<Self, ShapeError> {
        let layout = Layout::new(format, head_dim, block)?;
        let bytes = kv_heads.checked_mul(pages).and_then(|blocks| blocks.checked_mul(layout.bytes()));
        Ok(Self { layout, kv_heads, pages, buffer: Buffer::zeroed(bytes.ok_or_else(out_of_memory)?)? })
    }

    /// Writes the tokens `first .. first + count` of a page for one KV head: keys and values are BF16 `[count]` rows of
    /// `head_dim` values, `stride` values from one row to the next. Writing from the first token on is fast; the tokens of a
    /// page are written in ascending order, since up to three places after the last are made zero.
    ///
    /// # Errors
    /// [`ShapeError`] when there is no such page, head or token, or a slice is too short; nothing is written then.
    #[expect(clippy::too_many_arguments, reason = "where to, how many, from where")]
    pub fn write_bf16(
        &mut self,
        level: Level,
        page: usize,
        kv_head: usize,
        first: usize,
        count: usize,
        k: &[bf16],
        v: &[bf16],
        stride: usize,
    ) -> Result<(), ShapeError> {
        let plain = Plain { first, count, k, v, stride };
        plain.check(&self.layout)?;
        let range = self.range(kv_head, page)?;
        pack_bf16(level, &self.layout, plain, &mut self.buffer[range]);
        Ok(())
    }

    /// As [`write_bf16`](Self::write_bf16) from F32; rounded where the pages are BF16.
    ///
    /// # Errors
    /// As [`write_bf16`](Self::write_bf16).
    #[expect(clippy::too_many_arguments, reason = "where to, how many, from where")]
    pub fn write_f32(
        &mut self,
        level: Level,
        page: usize,
        kv_head: usize,
        first: usize,
        count: usize,
        k: &[f32],
        v: &[f32],
        stride: usize,
    ) -> Result<(), ShapeError> {
        let plain = Plain { first, count, k, v, stride };
        plain.check(&self.layout)?;
        let range = self.range(kv_head, page)?;
        pack_f32(level, &self.layout, plain, &mut self.buffer[range]);
        Ok(())
    }

    /// The bytes of a block.
    fn range(&self, kv_head: usize, page: usize) -> Result<Range<usize>, ShapeError> {
        check(kv_head < self.kv_heads, "KV head beyond the last", self.kv_heads, kv_head)?;
        check(page < self.pages, "page beyond the last", self.pages, page)?;
        let (block, bytes) = (page * self.kv_heads + kv_head, self.layout.bytes());
        Ok(block * bytes..(block + 1) * bytes)
    }
}

impl PackedBlocks for PackedPages {
    fn kv_heads(&self) -> usize {
        self.kv_heads
    }

    fn head_dim(&self) -> usize {
        self.layout.head_dim
    }

    fn block_tokens(&self) -> usize {
        self.layout.block
    }

    fn blocks(&self) -> usize {
        self.pages
    }

    fn precision(&self) -> Precision {
        match self.layout.format {
            Format::F32 => Precision::F32,
            _ => Precision::Bf16,
        }
    }

    fn keys(&self, kv_head: usize, block: usize) -> Result<PackedRef<'_>, ShapeError> {
        self.layout.keys(self.layout.block, &self.buffer[self.range(kv_head, block)?])
    }

    fn values(&self, kv_head: usize, block: usize, tokens: usize) -> Result<PackedRef<'_>, ShapeError> {
        self.layout.values(tokens, &self.buffer[self.range(kv_head, block)?])
    }
}

/// Values `[keys][stride]` to panels `[head_dim / 64][capacity][64]` in packed order, with zeros up to a multiple of four keys.
struct Interleave<'a, T> {
    keys: usize,
    head_dim: usize,
    values: &'a [T],
    stride: usize,
    capacity: usize,
    out: &'a mut [T],
    zero: T,
}

impl<T: Copy> Kernel for Interleave<'_, T> {
    type Output = ();

    // Plain loops, for the compiler to make vector code of in the function of the level.
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { keys, head_dim, values, stride, capacity, out, zero } = self;
        // Keys that lie side by side for each output: pairs in BF16.
        let side = size_of::<f32>() / size_of::<T>();
        let steps = keys.next_multiple_of(4) / side;
        for (panel, out) in out.chunks_exact_mut((PANEL * capacity).max(1)).enumerate() {
            let width = PANEL.min(head_dim - panel * PANEL);
            let row = |key: usize| &values[key * stride + panel * PANEL..][..width];
            for (step, out) in out.chunks_exact_mut(PANEL * side).take(steps).enumerate() {
                let key = step * side;
                let out = &mut out[..side * width];
                match (side, key < keys, key + 1 < keys) {
                    (_, false, _) => out.fill(zero),
                    (1, _, _) => out.copy_from_slice(row(key)),
                    (_, _, true) => {
                        for ((out, a), b) in out.chunks_exact_mut(2).zip(row(key)).zip(row(key + 1)) {
                            out[0] = *a;
                            out[1] = *b;
                        }
                    }
                    (_, _, false) => {
                        for (out, a) in out.chunks_exact_mut(2).zip(row(key)) {
                            out[0] = *a;
                            out[1] = zero;
                        }
                    }
                }
            }
        }
    }
}
