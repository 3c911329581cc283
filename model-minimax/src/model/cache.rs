// SPDX-License-Identifier: MIT OR Apache-2.0

//! The cache of one sequence: keys, values, and the index keys of the layers that choose blocks.
//!
//! Pages of 128 tokens, which are also the blocks of the sparse attention. A page has the keys and values of every layer
//! and KV head, and the index keys of the layers that have some, in the layout of packed weights, so that attention and
//! indexer multiply them with the tiles of weights and nothing is repacked while decoding: the keys of a page are a
//! weight `[128 keys, head_dim]`, its values a weight `[head_dim, 128 keys]`, its index keys a weight
//! `[128 keys, index_dim]`. They are F32 in the exact mode, else BF16.

use cpu_tiles::attention::PackedBlocks;
use cpu_tiles::mem::Buffer;
use cpu_tiles::weights::{check_len, packed_index};
use cpu_tiles::{Format, PANEL, PackedRef, Pool, Precision, ShapeError};
use half::bf16;
use msa_indexer::PackedKeys;
use std::ops::Range;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Tokens of a page.
pub const PAGE: usize = 128;
/// Tiles read inputs in fours.
const QUAD: usize = 4;
/// Up to this many tokens are appended without the help of other threads.
const FEW_TOKENS: usize = 8;

/// What a cache holds of each token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheShape {
    /// KV heads.
    pub kv_heads: usize,
    /// Channels of a key and of a value.
    pub head_dim: usize,
    /// Channels of the index key of each layer; 0 where a layer has none.
    pub index_dims: Vec<usize>,
    /// Tokens that there may be at most.
    pub max_tokens: usize,
}

/// Why tokens cannot be cached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The sequence would be longer than the cache may be.
    #[error("{found} tokens exceed the {max} tokens of the cache")]
    Overflow {
        /// Tokens of the sequence, the new ones included.
        found: usize,
        /// Tokens that there may be.
        max: usize,
    },
    /// Room was not reserved.
    #[error("{found} tokens exceed the room of {room} that was reserved in the cache")]
    NotReserved {
        /// Tokens of the sequence, the new ones included.
        found: usize,
        /// Tokens that there is room for.
        room: usize,
    },
    /// A length does not fit, or the system has no memory for another page.
    #[error(transparent)]
    Shape(#[from] ShapeError),
}

/// Keys, values and index keys of all layers for the tokens of one sequence.
///
/// One forward pass: [`reserve`](Self::reserve) room for its tokens, [`append`](Self::append) in each layer, and when
/// all layers are through, [`advance`](Self::advance).
#[derive(Debug)]
pub struct KvCache {
    format: Format,
    shape: CacheShape,
    /// Where each layer begins in a page, and the end of the last.
    offsets: Vec<usize>,
    len: usize,
    /// Each the layers one after the other: a slot of keys and values for each KV head, then index keys.
    pages: Vec<Buffer>,
}

impl KvCache {
    /// An empty cache. The format follows the precision of the activations.
    pub fn new(precision: Precision, shape: CacheShape) -> Self {
        let format = match precision {
            Precision::F32 => Format::F32,
            Precision::Bf16 => Format::Bf16,
        };
        let mut cache = Self { format, offsets: vec![0], len: 0, pages: Vec::new(), shape };
        let mut end = 0;
        for &dim in &cache.shape.index_dims {
            end += cache.shape.kv_heads * cache.slot_bytes() + cache.key_values(dim) * format.value_bytes();
            cache.offsets.push(end);
        }
        cache
    }

    /// The precision of activations that keys and values have.
    pub fn precision(&self) -> Precision {
        match self.format {
            Format::F32 => Precision::F32,
            _ => Precision::Bf16,
        }
    }

    /// What it holds of each token.
    pub fn shape(&self) -> &CacheShape {
        &self.shape
    }

    /// Tokens of the sequence so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Cuts the sequence to its first `len` tokens; a shorter one stays as it is. Pages are kept for later use.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Makes room for `tokens` more.
    ///
    /// # Errors
    /// [`CacheError::Overflow`] beyond [`CacheShape::max_tokens`], [`CacheError::Shape`] when the system has no memory for
    /// another page.
    pub fn reserve(&mut self, tokens: usize) -> Result<(), CacheError> {
        let (found, max) = (self.len.saturating_add(tokens), self.shape.max_tokens);
        if found > max {
            return Err(CacheError::Overflow { found, max });
        }
        while self.room() < found {
            let bytes = self.offsets.last().copied().unwrap_or(0);
            self.pages.push(Buffer::zeroed(bytes).map_err(ShapeError::from)?);
        }
        Ok(())
    }

    /// Writes what the tokens that follow the sequence have in a layer, rounded to the format of the cache: keys and values,
    /// F32 `[tokens, kv_heads, head_dim]`, and index keys, `[tokens, index_dim]`. The sequence is not longer before
    /// [`advance`](Self::advance).
    ///
    /// # Errors
    /// [`CacheError`] when a length does not fit, or there is no room: see [`reserve`](Self::reserve).
    ///
    /// # Panics
    /// When there is no such layer.
    pub fn append(
        &mut self,
        pool: &Pool,
        layer: usize,
        keys: &[f32],
        values: &[f32],
        index_keys: &[f32],
    ) -> Result<(), CacheError> {
        let CacheShape { kv_heads, head_dim, ref index_dims, .. } = self.shape;
        let index_dim = index_dims[layer];
        let tokens = keys.len() / (kv_heads * head_dim);
        check_len("keys", keys.len(), &[tokens, kv_heads, head_dim])?;
        check_len("values", values.len(), &[tokens, kv_heads, head_dim])?;
        check_len("index_keys", index_keys.len(), &[tokens, index_dim])?;
        let (first, end) = (self.len, self.len + tokens);
        if end > self.room() {
            return Err(CacheError::NotReserved { found: end, room: self.room() });
        }
        let (format, slot) = (self.format, self.slot_bytes());
        let (key_values, index_values) = (self.key_values(head_dim), self.key_values(index_dim));
        let layer = self.offsets[layer]..self.offsets[layer + 1];
        let touched = first / PAGE..end.div_ceil(PAGE);
        for (page, number) in self.pages[touched.clone()].iter_mut().zip(touched) {
            let of = |x, stride, channels| Tokens {
                x,
                stride,
                channels,
                first,
                range: first.max(number * PAGE)..end.min((number + 1) * PAGE),
            };
            let (slots, index_slot) = page[layer.clone()].split_at_mut(kv_heads * slot);
            let write = |head: usize, slot: &mut [u8]| {
                let channels = head * head_dim..(head + 1) * head_dim;
                let (key_part, value_part) = slot.split_at_mut(key_values * format.value_bytes());
                of(keys, kv_heads * head_dim, channels.clone()).write_keys(format, key_part, key_values);
                of(values, kv_heads * head_dim, channels).write_values(format, value_part);
            };
            if tokens <= FEW_TOKENS {
                slots.chunks_exact_mut(slot).enumerate().for_each(|(head, slot)| write(head, slot));
            } else {
                pool.for_each_chunk_mut(slots, slot, write);
            }
            // Nothing, if the layer has no index keys.
            of(index_keys, index_dim, 0..index_dim).write_keys(format, index_slot, index_values);
        }
        Ok(())
    }

    /// Makes `tokens` appended ones part of the sequence.
    pub fn advance(&mut self, tokens: usize) {
        self.len += tokens;
    }

    /// One layer, for attention and indexer.
    ///
    /// # Panics
    /// When there is no such layer.
    pub fn layer(&self, layer: usize) -> LayerCache<'_> {
        assert!(layer < self.shape.index_dims.len(), "layer {layer} of {}", self.shape.index_dims.len());
        LayerCache { cache: self, layer }
    }

    /// Bytes of the keys and values, and of the index keys, of a page in one layer.
    ///
    /// # Panics
    /// When there is no such layer.
    pub fn page_bytes(&self, layer: usize) -> (usize, usize) {
        let all = self.offsets[layer + 1] - self.offsets[layer];
        let keys_values = self.shape.kv_heads * self.slot_bytes();
        (keys_values, all - keys_values)
    }

    /// Tokens that there is room for.
    fn room(&self) -> usize {
        self.pages.len() * PAGE
    }

    /// Values of the keys of a page with `dim` channels.
    fn key_values(&self, dim: usize) -> usize {
        PAGE * dim.next_multiple_of(QUAD)
    }

    /// Keys, then values, of one layer and KV head; a multiple of 64.
    fn slot_bytes(&self) -> usize {
        let head_dim = self.shape.head_dim;
        (self.key_values(head_dim) + head_dim.next_multiple_of(PANEL) * PAGE) * self.format.value_bytes()
    }
}

/// Keys, values and index keys of one layer.
#[derive(Debug, Clone, Copy)]
pub struct LayerCache<'a> {
    cache: &'a KvCache,
    layer: usize,
}

impl<'a> LayerCache<'a> {
    /// The cache that it is a layer of.
    pub fn cache(&self) -> &'a KvCache {
        self.cache
    }

    /// Channels of an index key; 0 if the layer has none.
    pub fn index_dim(&self) -> usize {
        self.cache.shape.index_dims[self.layer]
    }

    /// The bytes of the layer in a page.
    fn page(&self, page: usize) -> Result<&'a [u8], ShapeError> {
        let pages = &self.cache.pages;
        let bytes = pages.get(page).ok_or(ShapeError::Mismatch {
            what: "page beyond the last of the cache",
            expected: pages.len(),
            found: page,
        })?;
        Ok(&bytes[self.cache.offsets[self.layer]..self.cache.offsets[self.layer + 1]])
    }

    /// Keys and values of a head in a page.
    fn slot(&self, kv_head: usize, page: usize) -> Result<(&'a [u8], &'a [u8]), ShapeError> {
        let CacheShape { kv_heads, head_dim, .. } = self.cache.shape;
        if kv_head >= kv_heads {
            return Err(ShapeError::Mismatch { what: "KV head beyond the last", expected: kv_heads, found: kv_head });
        }
        let slot = self.cache.slot_bytes();
        let slot = &self.page(page)?[kv_head * slot..(kv_head + 1) * slot];
        Ok(slot.split_at(self.cache.key_values(head_dim) * self.cache.format.value_bytes()))
    }

    fn packed(&self, n: usize, k: usize, capacity: usize, bytes: &'a [u8]) -> Result<PackedRef<'a>, ShapeError> {
        match self.cache.format {
            Format::F32 => PackedRef::f32(n, k, capacity, typed(bytes)),
            _ => PackedRef::bf16(n, k, capacity, typed(bytes)),
        }
    }

    fn packed_keys(&self, dim: usize, bytes: &'a [u8]) -> Result<PackedRef<'a>, ShapeError> {
        self.packed(PAGE, dim, dim.next_multiple_of(QUAD), bytes)
    }
}

impl PackedBlocks for LayerCache<'_> {
    fn kv_heads(&self) -> usize {
        self.cache.shape.kv_heads
    }

    fn head_dim(&self) -> usize {
        self.cache.shape.head_dim
    }

    fn block_tokens(&self) -> usize {
        PAGE
    }

    fn blocks(&self) -> usize {
        self.cache.pages.len()
    }

    fn precision(&self) -> Precision {
        self.cache.precision()
    }

    fn keys(&self, kv_head: usize, block: usize) -> Result<PackedRef<'_>, ShapeError> {
        self.packed_keys(self.cache.shape.head_dim, self.slot(kv_head, block)?.0)
    }

    fn values(&self, kv_head: usize, block: usize, tokens: usize) -> Result<PackedRef<'_>, ShapeError> {
        self.packed(self.cache.shape.head_dim, tokens, PAGE, self.slot(kv_head, block)?.1)
    }
}

impl PackedKeys for LayerCache<'_> {
    fn blocks(&self) -> usize {
        self.cache.pages.len()
    }

    fn block(&self, index: usize) -> PackedRef<'_> {
        let CacheShape { kv_heads, .. } = self.cache.shape;
        let index_keys = self
            .page(index)
            .and_then(|page| self.packed_keys(self.index_dim(), &page[kv_heads * self.cache.slot_bytes()..]));
        index_keys.expect("a page below their number holds the index keys of its layer")
    }
}

fn typed<T: FromBytes + Immutable + KnownLayout>(bytes: &[u8]) -> &[T] {
    <[T]>::ref_from_bytes(bytes).expect("slots are aligned to 64 bytes and hold whole values")
}

fn typed_mut<T: FromBytes + IntoBytes + KnownLayout>(bytes: &mut [u8]) -> &mut [T] {
    <[T]>::mut_from_bytes(bytes).expect("slots are aligned to 64 bytes and hold whole values")
}

/// What one head of one page gets.
struct Tokens<'a> {
    x: &'a [f32],
    /// Values from one token to the next.
    stride: usize,
    /// Those of the head.
    channels: Range<usize>,
    /// Position of the first token in `x`.
    first: usize,
    /// Positions that lie in the page.
    range: Range<usize>,
}

impl Tokens<'_> {
    /// Writes to `slot`, whose `values` values are the keys of a page.
    fn write_keys(&self, format: Format, slot: &mut [u8], values: usize) {
        fn write<T: Copy>(tokens: &Tokens<'_>, format: Format, panel: usize, keys: &mut [T], round: impl Fn(f32) -> T) {
            tokens.each(|key, x| {
                let keys = &mut keys[key / PANEL * panel..];
                for (channel, &x) in x.iter().enumerate() {
                    keys[packed_index(format, key % PANEL, channel)] = round(x);
                }
            });
        }
        let panel = values / (PAGE / PANEL);
        match format {
            Format::F32 => write(self, format, panel, typed_mut(slot), |x| x),
            _ => write(self, format, panel, typed_mut(slot), bf16::from_f32),
        }
    }

    /// Writes to `slot`, the values of a page.
    fn write_values(&self, format: Format, slot: &mut [u8]) {
        fn write<T: Copy>(tokens: &Tokens<'_>, format: Format, values: &mut [T], round: impl Fn(f32) -> T) {
            let index = |key, channel| channel / PANEL * PANEL * PAGE + packed_index(format, channel % PANEL, key);
            tokens.each(|key, x| {
                for (channel, &x) in x.iter().enumerate() {
                    values[index(key, channel)] = round(x);
                }
            });
            // Up to the next multiple of four, tiles multiply values by the zeros of padded probabilities: what another
            // sequence left there could be infinite, and attention would have to look at these keys one by one.
            let end = (tokens.range.end - 1) % PAGE + 1;
            for key in end..end.next_multiple_of(QUAD) {
                for channel in 0..tokens.channels.len() {
                    values[index(key, channel)] = round(0.0);
                }
            }
        }
        match format {
            Format::F32 => write(self, format, typed_mut(slot), |x| x),
            _ => write(self, format, typed_mut(slot), bf16::from_f32),
        }
    }

    /// Calls `each` with the place in the page and the channels of every token.
    fn each(&self, mut each: impl FnMut(usize, &[f32])) {
        for position in self.range.clone() {
            let token = (position - self.first) * self.stride;
            each(position % PAGE, &self.x[token + self.channels.start..token + self.channels.end]);
        }
    }
}
