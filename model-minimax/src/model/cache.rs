// SPDX-License-Identifier: MIT OR Apache-2.0

//! The KV cache of one sequence.
//!
//! Pages of 128 tokens, and in each the keys and values of every layer and KV head in the layout of packed weights, so
//! that attention multiplies them with the same tiles and nothing is repacked while decoding: the keys of a page are a
//! weight `[128 keys, head_dim]`, its values a weight `[head_dim, 128 keys]`. They are F32 in the exact mode, else BF16.

use cpu_tiles::mem::Buffer;
use cpu_tiles::weights::{check_len, packed_index};
use cpu_tiles::{Format, PANEL, PackedRef, Pool, Precision, ShapeError};
use half::bf16;
use std::ops::Range;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Tokens of a page.
pub const PAGE: usize = 128;
/// Tiles read inputs in fours.
const QUAD: usize = 4;
/// Up to this many tokens are appended without the help of other threads.
const FEW_TOKENS: usize = 8;

/// Keys and values of all layers for the tokens of one sequence.
///
/// One forward pass: [`reserve`](Self::reserve) room for its tokens, [`append`](Self::append) in each layer, and when
/// all layers are through, [`advance`](Self::advance).
#[derive(Debug)]
pub struct KvCache {
    format: Format,
    layers: usize,
    kv_heads: usize,
    head_dim: usize,
    len: usize,
    /// Each `[layers][kv_heads]` slots of keys and values.
    pages: Vec<Buffer>,
}

impl KvCache {
    /// An empty cache. The format follows the precision of the activations.
    pub fn new(precision: Precision, layers: usize, kv_heads: usize, head_dim: usize) -> Self {
        let format = match precision {
            Precision::F32 => Format::F32,
            Precision::Bf16 => Format::Bf16,
        };
        Self { format, layers, kv_heads, head_dim, len: 0, pages: Vec::new() }
    }

    /// The precision of activations that the keys and values have.
    pub fn precision(&self) -> Precision {
        match self.format {
            Format::F32 => Precision::F32,
            _ => Precision::Bf16,
        }
    }

    /// Tokens of the sequence so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// KV heads.
    pub fn kv_heads(&self) -> usize {
        self.kv_heads
    }

    /// Channels of a head.
    pub fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// Cuts the sequence to its first `len` tokens; a longer one stays as it is. Pages are kept for later use.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Makes room for `tokens` more.
    ///
    /// # Errors
    /// [`ShapeError::Memory`] when the system has no memory for another page.
    pub fn reserve(&mut self, tokens: usize) -> Result<(), ShapeError> {
        while self.pages.len() * PAGE < self.len + tokens {
            self.pages.push(Buffer::zeroed(self.layers * self.layer_bytes())?);
        }
        Ok(())
    }

    /// Writes keys and values, F32 `[tokens, kv_heads, head_dim]`, of the tokens that follow the sequence; rounded to
    /// the format of the cache. The sequence is not longer before [`advance`](Self::advance).
    ///
    /// # Errors
    /// [`ShapeError`] when a length does not fit, or there is no room: see [`reserve`](Self::reserve).
    ///
    /// # Panics
    /// When there is no such layer.
    pub fn append(&mut self, pool: &Pool, layer: usize, keys: &[f32], values: &[f32]) -> Result<(), ShapeError> {
        let (heads, head_dim) = (self.kv_heads, self.head_dim);
        let tokens = keys.len() / (heads * head_dim);
        check_len("keys", keys.len(), &[tokens, heads, head_dim])?;
        check_len("values", values.len(), &[tokens, heads, head_dim])?;
        if self.pages.len() * PAGE < self.len + tokens {
            let (expected, found) = (self.pages.len() * PAGE, self.len + tokens);
            return Err(ShapeError::Mismatch { what: "tokens beyond the room of the cache", expected, found });
        }
        let (format, first, end) = (self.format, self.len, self.len + tokens);
        let (key_values, slot) = (self.key_values(), self.slot_bytes());
        let layer = layer * self.layer_bytes()..(layer + 1) * self.layer_bytes();
        let touched = first / PAGE..end.div_ceil(PAGE);
        let mut slots: Vec<_> = self.pages[touched.clone()]
            .iter_mut()
            .zip(touched)
            .flat_map(|(page, number)| {
                let slots = page[layer.clone()].chunks_exact_mut(slot).enumerate();
                slots.map(move |(head, slot)| (number, head, slot))
            })
            .collect();
        let write = |(page, head, slot): &mut (usize, usize, &mut [u8])| {
            let tokens = Tokens {
                keys,
                values,
                stride: heads * head_dim,
                channels: *head * head_dim..(*head + 1) * head_dim,
                first,
                range: first.max(*page * PAGE)..end.min((*page + 1) * PAGE),
            };
            match format {
                Format::F32 => tokens.write::<f32>(format, key_values, slot, |x| x),
                _ => tokens.write::<bf16>(format, key_values, slot, bf16::from_f32),
            }
        };
        if tokens <= FEW_TOKENS {
            slots.iter_mut().for_each(write);
        } else {
            pool.for_each_mut(&mut slots, |_, slot| write(slot));
        }
        Ok(())
    }

    /// Makes `tokens` appended ones part of the sequence.
    pub fn advance(&mut self, tokens: usize) {
        self.len += tokens;
    }

    /// The keys of a page, `[128, head_dim]`; those of tokens that were not appended are of no meaning.
    pub(crate) fn keys(&self, layer: usize, head: usize, page: usize) -> Result<PackedRef<'_>, ShapeError> {
        let bytes = &self.slot(layer, head, page)[..self.key_values() * self.format.value_bytes()];
        self.packed(PAGE, self.head_dim, self.head_dim.next_multiple_of(QUAD), bytes)
    }

    /// The values of the first `keys` tokens of a page, `[head_dim, keys]`. The tokens were appended.
    pub(crate) fn values(
        &self,
        layer: usize,
        head: usize,
        page: usize,
        keys: usize,
    ) -> Result<PackedRef<'_>, ShapeError> {
        let bytes = &self.slot(layer, head, page)[self.key_values() * self.format.value_bytes()..];
        self.packed(self.head_dim, keys, PAGE, bytes)
    }

    fn packed<'a>(&self, n: usize, k: usize, capacity: usize, bytes: &'a [u8]) -> Result<PackedRef<'a>, ShapeError> {
        match self.format {
            Format::F32 => PackedRef::f32(n, k, capacity, typed(bytes)),
            _ => PackedRef::bf16(n, k, capacity, typed(bytes)),
        }
    }

    fn slot(&self, layer: usize, head: usize, page: usize) -> &[u8] {
        let slot = self.slot_bytes();
        &self.pages[page][layer * self.layer_bytes()..][head * slot..(head + 1) * slot]
    }

    /// Values of the keys of a slot.
    fn key_values(&self) -> usize {
        PAGE * self.head_dim.next_multiple_of(QUAD)
    }

    /// Keys, then values, of one layer and head; a multiple of 64.
    fn slot_bytes(&self) -> usize {
        (self.key_values() + self.head_dim.next_multiple_of(PANEL) * PAGE) * self.format.value_bytes()
    }

    fn layer_bytes(&self) -> usize {
        self.kv_heads * self.slot_bytes()
    }
}

fn typed<T: FromBytes + Immutable + KnownLayout>(bytes: &[u8]) -> &[T] {
    <[T]>::ref_from_bytes(bytes).expect("slots are aligned to 64 bytes and hold whole values")
}

/// What one head of one page gets.
struct Tokens<'a> {
    keys: &'a [f32],
    values: &'a [f32],
    /// Values from one token to the next.
    stride: usize,
    /// Those of the head.
    channels: Range<usize>,
    /// Position of the first token in `keys` and `values`.
    first: usize,
    /// Positions that lie in the page.
    range: Range<usize>,
}

impl Tokens<'_> {
    fn write<T>(&self, format: Format, key_values: usize, slot: &mut [u8], round: impl Fn(f32) -> T)
    where
        T: Copy + FromBytes + IntoBytes + KnownLayout,
    {
        let slot = <[T]>::mut_from_bytes(slot).expect("slots are aligned to 64 bytes and hold whole values");
        let (keys, values) = slot.split_at_mut(key_values);
        let key_panel = key_values / (PAGE / PANEL);
        let value_index = |key, channel| channel / PANEL * PANEL * PAGE + packed_index(format, channel % PANEL, key);
        for position in self.range.clone() {
            let key = position % PAGE;
            let token = (position - self.first) * self.stride;
            let channels = token + self.channels.start..token + self.channels.end;
            let panel = &mut keys[key / PANEL * key_panel..];
            for (channel, &x) in self.keys[channels.clone()].iter().enumerate() {
                panel[packed_index(format, key % PANEL, channel)] = round(x);
            }
            for (channel, &x) in self.values[channels].iter().enumerate() {
                values[value_index(key, channel)] = round(x);
            }
        }
        // Up to the next multiple of four, tiles multiply values by the zeros of padded probabilities: what another
        // sequence left there could be infinite.
        let end = (self.range.end - 1) % PAGE + 1;
        for key in end..end.next_multiple_of(QUAD) {
            for channel in 0..self.channels.len() {
                values[value_index(key, channel)] = round(0.0);
            }
        }
    }
}
