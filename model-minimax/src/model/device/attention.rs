// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sparse attention on a device: the cache, the choice of blocks, and attention to them. Ids never leave the device unless
//! somebody wants to see them.
//!
//! The cache of a layer is one buffer of pages for keys, one for values, one for index keys; block `i` is page `i`. When a
//! sequence outgrows them, larger ones take their place. What lies behind a sequence is of no interest, so that cutting it
//! needs nothing here.

use super::accelerator::{Both, failed, refused};
use super::{DeviceError, Step};
use crate::model::msa::{Choice, Msa};
use ascend_rt::{DeviceBuffer, Queue, Stream};
use cpu_tiles::Level;
use cpu_tiles::convert::f32_to_bf16;
use half::bf16;
use msa_indexer::HeadReduce;
use msa_indexer::npu as indexer;
use msa_main_branch::knobs::Dtype;
use msa_main_branch::npu as prefill;
use msa_sparse_decode::cpu_tiles::Precision;
use msa_sparse_decode::npu as decode;
use std::ops::Range;

/// Pages that a cache begins with.
const FIRST_PAGES: usize = 4;
/// Elements between the borders at which parts of a packet begin.
const ALIGN: usize = 256;
const WHAT: &str = "attention";

/// Pages that a cache for sequences of at most so many tokens begins with.
pub(super) fn first_pages(max_tokens: usize) -> usize {
    FIRST_PAGES.min(max_tokens.div_ceil(crate::model::cache::PAGE)).max(1)
}

/// Bytes of a page of one layer: keys and values, index keys.
pub(super) fn page_bytes(msa: &Msa) -> [usize; 2] {
    let [page, index_page] = page_values(msa);
    [2 * page, index_page].map(|values| values * size_of::<bf16>())
}

/// Values of a page of keys, and of one of index keys.
fn page_values(msa: &Msa) -> [usize; 2] {
    let dims = &msa.prefill;
    [dims.kv_heads * dims.block * dims.head_dim, msa.indexer.block * msa.indexer.head_dim]
}

/// How the queries of a call attend.
#[derive(Debug)]
enum Attend {
    /// One query.
    Decode(decode::Plan),
    /// Several.
    Prefill(prefill::Plan),
}

/// Kinds of calls for so many queries on a cache of so many pages.
struct Kinds {
    indexer: indexer::Kind,
    decode: decode::Kind,
    prefill: prefill::Kind,
}

impl Kinds {
    fn new(msa: &Msa, count: usize, pages: usize) -> Self {
        let top_k = msa.indexer.topk.min(pages);
        let per_kv_head = msa.indexer.reduce == HeadReduce::PerKvHead;
        Self {
            indexer: indexer::Kind { queries: count, blocks: pages, paged: true },
            decode: decode::Kind {
                batch: 1,
                top_k,
                per_kv_head,
                cache: decode::CacheLayout::Paged { blocks: pages },
                precision: Precision::Bf16,
                out_f32: true,
            },
            prefill: prefill::Kind {
                n: count,
                dtype: Dtype::Bf16,
                layout: prefill::Layout::Paged,
                lists: if per_kv_head { prefill::Lists::PerQuery } else { prefill::Lists::PerTile { tile: 1 } },
                topk: top_k,
            },
        }
    }
}

/// Where the parts of a packet are: queries, index queries, keys, values, index keys.
fn packet_parts(msa: &Msa, count: usize) -> [Range<usize>; 5] {
    let dims = &msa.prefill;
    let (query, key) = (dims.heads * dims.head_dim, dims.kv_heads * dims.head_dim);
    let mut end = 0;
    [query, msa.index_width(), key, key, msa.index_dim()].map(|width| {
        let part = end..end + count * width;
        end = part.end.next_multiple_of(ALIGN);
        part
    })
}

/// Bytes on the device of what calls of `count` queries work in, on a cache of so many pages.
pub(super) fn work_bytes(msa: &Msa, count: usize, pages: usize, cores: u32) -> Result<usize, DeviceError> {
    let kinds = Kinds::new(msa, count, pages);
    let indexer = indexer::Split::new(&msa.indexer, &kinds.indexer, cores).map_err(refused(WHAT))?.workspace;
    let attend = if count == 1 {
        decode::Split::new(&msa.decode, &kinds.decode, cores).map_err(refused(WHAT))?.workspace
    } else {
        prefill::Split::new(&msa.prefill, &kinds.prefill, cores).map_err(refused(WHAT))?.workspace
    };
    let [.., last] = packet_parts(msa, count);
    let lists = count * msa.indexer.selections();
    let out = 4 * count * msa.prefill.heads * msa.prefill.head_dim;
    // Ids, and the scores that the indexer's plan has room for.
    let ids = 4 * lists * (kinds.decode.top_k + pages);
    Ok(indexer + attend + 2 * last.end + out + ids)
}

/// All that calls of so many queries need.
#[derive(Debug)]
struct Unit {
    count: usize,
    pages: usize,
    indexer: indexer::Plan,
    attend: Attend,
    /// What is new of each token, as [`packet_parts`] says; keys and values are `[pages, KV heads, tokens, head_dim]`.
    packet: Both<bf16>,
    /// Position of the first query, length of the sequence.
    place: Both<i32>,
    /// `[queries, selections, top-k]`.
    ids: DeviceBuffer<i32>,
    /// `[queries, selections, pages]`, if somebody has wanted them.
    scores: Option<DeviceBuffer<f32>>,
    /// `[queries, KV heads]`.
    seen: DeviceBuffer<i32>,
    /// `[queries, heads, head_dim]`.
    out: Both<f32>,
}

/// Numbers from the position to the length, which begin where copies may.
const PLACE_PITCH: usize = 128;

impl Unit {
    fn new(stream: &Stream, msa: &Msa, count: usize, pages: usize) -> Result<Self, DeviceError> {
        let kinds = Kinds::new(msa, count, pages);
        let attend = if count == 1 {
            Attend::Decode(decode::Plan::new(stream, &msa.decode, &kinds.decode).map_err(refused(WHAT))?)
        } else {
            Attend::Prefill(prefill::Plan::new(stream, &msa.prefill, &kinds.prefill).map_err(refused(WHAT))?)
        };
        let [.., last] = packet_parts(msa, count);
        let lists = count * msa.indexer.selections();
        Ok(Self {
            count,
            pages,
            indexer: indexer::Plan::new(stream, &msa.indexer, &kinds.indexer).map_err(refused(WHAT))?,
            attend,
            packet: Both::new(stream, last.end)?,
            place: Both::new(stream, 2 * PLACE_PITCH)?,
            ids: zeroed(stream, lists * kinds.decode.top_k)?,
            scores: None,
            seen: zeroed(stream, count * msa.prefill.kv_heads)?,
            out: Both::new(stream, count * msa.prefill.heads * msa.prefill.head_dim)?,
        })
    }
}

fn zeroed<T: ascend_rt::DeviceRepr>(stream: &Stream, len: usize) -> Result<DeviceBuffer<T>, DeviceError> {
    let mut buffer = stream.context().alloc(len).map_err(failed(WHAT))?;
    stream.fill(&mut buffer, 0).map_err(failed(WHAT))?;
    Ok(buffer)
}

/// The cache of one layer.
#[derive(Debug)]
struct LayerCache {
    /// `[pages, KV heads, block, head_dim]`.
    keys: DeviceBuffer<bf16>,
    /// The same.
    values: DeviceBuffer<bf16>,
    /// `[pages, block, index_dim]`.
    index_keys: DeviceBuffer<bf16>,
}

impl LayerCache {
    fn new(stream: &Stream, msa: &Msa, pages: usize) -> Result<Self, DeviceError> {
        let [page, index_page] = page_values(msa);
        Ok(Self {
            keys: zeroed(stream, pages * page)?,
            values: zeroed(stream, pages * page)?,
            index_keys: zeroed(stream, pages * index_page)?,
        })
    }
}

/// The layers with sparse attention.
#[derive(Debug)]
pub(super) struct Attention {
    /// Of the layers that have it.
    layers: Vec<Option<LayerCache>>,
    pages: usize,
    most_pages: usize,
    /// Block `i` is page `i`.
    table: DeviceBuffer<i32>,
    decode: Option<Unit>,
    prefill: Option<Unit>,
}

impl Attention {
    /// Empty caches for the layers that `sparse` names.
    pub(super) fn new(stream: &Stream, msa: &Msa, sparse: &[bool], max_tokens: usize) -> Result<Self, DeviceError> {
        let pages = first_pages(max_tokens);
        let layer = |is: &bool| is.then(|| LayerCache::new(stream, msa, pages)).transpose();
        Ok(Self {
            layers: sparse.iter().map(layer).collect::<Result<_, _>>()?,
            pages,
            most_pages: max_tokens.div_ceil(msa.indexer.block).max(1),
            table: table(stream, pages)?,
            decode: None,
            prefill: None,
        })
    }

    /// Makes room for `pages` pages in all layers.
    fn grow(&mut self, stream: &Stream, msa: &Msa, pages: usize) -> Result<(), DeviceError> {
        if pages <= self.pages {
            return Ok(());
        }
        let pages = pages.next_power_of_two().min(self.most_pages).max(pages);
        let copy = |from: &DeviceBuffer<bf16>, to: &mut DeviceBuffer<bf16>| {
            let to = to.slice_mut(..from.len()).map_err(failed(WHAT))?;
            stream.copy(from, to).map_err(failed(WHAT))
        };
        for layer in self.layers.iter_mut().flatten() {
            let mut larger = LayerCache::new(stream, msa, pages)?;
            copy(&layer.keys, &mut larger.keys)?;
            copy(&layer.values, &mut larger.values)?;
            copy(&layer.index_keys, &mut larger.index_keys)?;
            *layer = larger;
        }
        self.table = table(stream, pages)?;
        self.pages = pages;
        Ok(())
    }

    /// See [`Accelerator::attend`](super::Accelerator::attend).
    pub(super) fn attend(
        &mut self,
        level: Level,
        stream: &Stream,
        msa: &Msa,
        step: &Step<'_>,
        want_choice: bool,
        out: &mut [f32],
    ) -> Result<Option<Choice>, DeviceError> {
        let count = step.q.len() / (msa.prefill.heads * msa.prefill.head_dim);
        let length = step.first + count;
        self.grow(stream, msa, length.div_ceil(msa.indexer.block))?;
        let unit = if count == 1 { &mut self.decode } else { &mut self.prefill };
        if unit.as_ref().is_none_or(|unit| (unit.count, unit.pages) != (count, self.pages)) {
            // The memory of the one before goes first.
            *unit = None;
            *unit = Some(Unit::new(stream, msa, count, self.pages)?);
        }
        let (Some(unit), Some(Some(cache))) = (unit, self.layers.get_mut(step.layer)) else {
            return Err(DeviceError::Failed { what: WHAT, report: format!("layer {} has no cache", step.layer) });
        };
        unit.append(level, stream, msa, step, cache)?;
        unit.choose(stream, msa, cache, &self.table, want_choice)?;
        unit.attend(stream, msa, step, cache, &self.table)?;
        let Both { host, device } = &mut unit.out;
        stream.download_pinned(&*device, host).map_err(failed(WHAT))?;
        out.copy_from_slice(&host.read().map_err(failed(WHAT))?);
        want_choice.then(|| unit.choice(stream, msa, length)).transpose()
    }
}

fn table(stream: &Stream, pages: usize) -> Result<DeviceBuffer<i32>, DeviceError> {
    let table: Vec<i32> = (0..).take(pages).collect();
    stream.upload(&table).map_err(failed(WHAT))
}

impl Unit {
    /// Brings the new tokens to the device, and their keys and values to the cache.
    fn append(
        &mut self,
        level: Level,
        stream: &Stream,
        msa: &Msa,
        step: &Step<'_>,
        cache: &mut LayerCache,
    ) -> Result<(), DeviceError> {
        let dims = &msa.prefill;
        let (block, head_dim, index_dim) = (dims.block, dims.head_dim, msa.index_dim());
        let [q, index_q, k, v, index_k] = packet_parts(msa, self.count);
        let tokens = step.first..step.first + self.count;
        self.packet.upload(stream, |packet| {
            f32_to_bf16(level, step.q, &mut packet[q]);
            f32_to_bf16(level, step.index_q, &mut packet[index_q]);
            f32_to_bf16(level, step.index_k, &mut packet[index_k.clone()]);
            for (values, to) in [(step.k, k.clone()), (step.v, v.clone())] {
                let mut to = packet[to].chunks_exact_mut(head_dim);
                for run in runs(tokens.clone(), block) {
                    for head in 0..dims.kv_heads {
                        for token in run.clone() {
                            let from = ((token - step.first) * dims.kv_heads + head) * head_dim;
                            let Some(to) = to.next() else { return };
                            f32_to_bf16(level, &values[from..from + head_dim], to);
                        }
                    }
                }
            }
        })?;
        self.place.upload(stream, |place| {
            place[0] = step.first as i32;
            place[PLACE_PITCH] = tokens.end as i32;
        })?;
        let copy = |from: Range<usize>, to: &mut DeviceBuffer<bf16>, at: usize| {
            let to = to.slice_mut(at..at + from.len()).map_err(failed(WHAT))?;
            stream.copy(self.packet.device.slice(from).map_err(failed(WHAT))?, to).map_err(failed(WHAT))
        };
        for (part, to) in [(k, &mut cache.keys), (v, &mut cache.values)] {
            let mut from = part.start;
            for run in runs(tokens.clone(), block) {
                let values = run.len() * head_dim;
                for head in 0..dims.kv_heads {
                    let page = run.start / block * dims.kv_heads + head;
                    copy(from..from + values, to, (page * block + run.start % block) * head_dim)?;
                    from += values;
                }
            }
        }
        copy(index_k, &mut cache.index_keys, tokens.start * index_dim)
    }

    /// Chooses blocks.
    fn choose(
        &mut self,
        stream: &Stream,
        msa: &Msa,
        cache: &LayerCache,
        table: &DeviceBuffer<i32>,
        want_scores: bool,
    ) -> Result<(), DeviceError> {
        if want_scores && self.scores.is_none() {
            self.scores = Some(zeroed(stream, self.count * msa.indexer.selections() * self.pages)?);
        }
        let [_, queries, ..] = packet_parts(msa, self.count);
        let call = indexer::Call {
            queries: self.packet.device.slice(queries).map_err(failed(WHAT))?,
            keys: (&cache.index_keys).into(),
            block_table: Some(table.into()),
            first: self.place.device.slice(..1).map_err(failed(WHAT))?,
            ids: (&mut self.ids).into(),
            scores: self.scores.as_mut().filter(|_| want_scores).map(Into::into),
        };
        self.indexer.launch(stream, call).map_err(refused(WHAT))
    }

    /// Attends to the blocks chosen.
    fn attend(
        &mut self,
        stream: &Stream,
        msa: &Msa,
        step: &Step<'_>,
        cache: &LayerCache,
        table: &DeviceBuffer<i32>,
    ) -> Result<(), DeviceError> {
        let [queries, ..] = packet_parts(msa, self.count);
        let query = self.packet.device.slice(queries).map_err(failed(WHAT))?;
        let (keys, values) = ((&cache.keys).into(), (&cache.values).into());
        match &mut self.attend {
            Attend::Decode(plan) => {
                let call = decode::Call {
                    queries: query,
                    keys,
                    values,
                    block_table: Some(table.into()),
                    block_ids: (&self.ids).into(),
                    seq_lens: self.place.device.slice(PLACE_PITCH..=PLACE_PITCH).map_err(failed(WHAT))?,
                    out: decode::Out::F32((&mut self.out.device).into()),
                };
                plan.launch(stream, call).map_err(refused(WHAT))
            }
            Attend::Prefill(plan) => {
                let call = prefill::Call {
                    inputs: prefill::Inputs::Bf16 { query, keys, values },
                    start: step.first,
                    table: Some(table.into()),
                    block_ids: Some((&self.ids).into()),
                    out: (&mut self.out.device).into(),
                    seen: (&mut self.seen).into(),
                };
                plan.launch(stream, call).map_err(refused(WHAT))
            }
        }
    }

    /// The blocks chosen, and the scores.
    fn choice(&self, stream: &Stream, msa: &Msa, length: usize) -> Result<Choice, DeviceError> {
        let [_, lists, top_k] = msa.indexer.ids_shape(self.count, length);
        let blocks = msa.indexer.blocks(length);
        let ids = stream.download(&self.ids).map_err(failed(WHAT))?;
        let scores = match &self.scores {
            Some(scores) => stream.download(scores).map_err(failed(WHAT))?,
            None => Vec::new(),
        };
        // The device has room for more blocks than there are.
        let ids = columns(&ids, msa.indexer.topk.min(self.pages), top_k);
        Ok(Choice::new(msa, lists, ids, columns(&scores, self.pages, blocks), blocks))
    }
}

/// The first `width` values of rows of `pitch`.
fn columns<T: Copy>(rows: &[T], pitch: usize, width: usize) -> Vec<T> {
    rows.chunks_exact(pitch).flat_map(|row| &row[..width]).copied().collect()
}

/// Positions cut at the borders of blocks.
fn runs(tokens: Range<usize>, block: usize) -> impl Iterator<Item = Range<usize>> {
    let mut start = tokens.start;
    std::iter::from_fn(move || {
        let run = start..tokens.end.min((start / block + 1) * block);
        start = run.end;
        (!run.is_empty()).then_some(run)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_end_at_the_borders_of_blocks() {
        assert_eq!(runs(100..300, 128).collect::<Vec<_>>(), [100..128, 128..256, 256..300]);
        assert_eq!(runs(128..256, 128).collect::<Vec<_>>(), vec![128..256]);
        assert_eq!(runs(5..5, 128).count(), 0);
    }

    #[test]
    fn columns_are_the_first_of_each_row() {
        assert_eq!(columns(&[1, 2, 3, 4, 5, 6], 3, 2), [1, 2, 4, 5]);
    }
}
