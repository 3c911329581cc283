// SPDX-License-Identifier: MIT OR Apache-2.0

//! The routed experts on a device.
//!
//! A call is one launch or several: rows are sorted by expert, every launch has a run of experts and writes their rows, and
//! the last one sums up the rows of each token. So the bits do not depend on how the experts are divided among launches.

use super::DeviceError;
use super::accelerator::{Both, failed, refused};
use super::graph::ExpertGraphs;
use crate::bench::Arm;
use crate::model::weights::{Mlps, StoredValues};
use ascend_rt::{Arch, DeviceBuffer, PinnedBuffer, Queue, Stream};
use cpu_tiles::{Format, Pool};
use grouped_gemm::npu::{
    Call, Coded, Combine, Layout, Options, Plan, Route, Scales, Stored, Weights, convert_fp8_weights,
};
use grouped_gemm::{MoeDims, convert_minimax_weights_nz};
use half::bf16;
use ndarray::ArrayView3;
use zerocopy::IntoBytes;

/// Experts that are copied to the device together.
pub(super) const BUCKET: usize = 4;
/// Ranges of experts begin at multiples of so many elements.
const CUMSUM_ALIGN: usize = 128;
/// Plans and buffers that are kept for later calls.
const KEPT: usize = 6;
const WHAT: &str = "experts";

/// How the experts of a checkpoint lie on the device.
pub(super) fn layout_of(format: Format) -> Option<Layout> {
    match format {
        Format::F32 => None,
        Format::Bf16 => Some(Layout::Nz),
        Format::Fp8Block => Some(Layout::Fp8Block),
        Format::Mxfp8 => Some(Layout::Mxfp8),
    }
}

/// Bytes of the parts of one expert: gate and up, their scales, down, its scales.
pub(super) fn part_bytes(dims: &MoeDims, layout: Layout) -> [usize; 4] {
    let one = MoeDims { experts: 1, ..*dims };
    let [w13, w2] = layout.elements(&one);
    let [scales13, scales2] = layout.scale_bytes(&one);
    let value = if layout.is_fp8() { 1 } else { size_of::<bf16>() };
    [w13 * value, scales13, w2 * value, scales2]
}

/// The parts of one expert as the kernel reads them.
type Converted = [Vec<u8>; 4];

/// The parts of one expert of a layer.
fn convert(dims: &MoeDims, arch: Arch, mlps: &Mlps, expert: usize) -> Result<Converted, String> {
    let one = MoeDims { experts: 1, ..*dims };
    let parts = mlps.stored(expert).ok_or("its weights were packed for the CPU")?;
    if let [StoredValues::Bf16(gate), StoredValues::Bf16(up), StoredValues::Bf16(down)] = parts {
        let gate_up = [gate, up].concat();
        let (hidden, intermediate) = (dims.hidden, dims.intermediate);
        let gate_up = ArrayView3::from_shape((1, 2 * intermediate, hidden), &gate_up).map_err(|e| e.to_string())?;
        let down = ArrayView3::from_shape((1, hidden, intermediate), down).map_err(|e| e.to_string())?;
        let (w13, w2) = convert_minimax_weights_nz(gate_up, down).map_err(|e| e.to_string())?;
        return Ok([w13.as_bytes().to_vec(), Vec::new(), w2.as_bytes().to_vec(), Vec::new()]);
    }
    let mut coded = Vec::with_capacity(3);
    for part in parts {
        coded.push(match part {
            StoredValues::Fp8Block { codes, scales } => Coded { codes, scales: Scales::Blocks(scales) },
            StoredValues::Mxfp8 { codes, scales } => Coded { codes, scales: Scales::Groups(scales) },
            StoredValues::F32(_) | StoredValues::Bf16(_) => {
                return Err("gate, up and down should be BF16 or FP8, all of one kind".to_owned());
            }
        });
    }
    let coded: [Coded<'_>; 3] = coded.try_into().map_err(|_| "an expert has three weights")?;
    let Stored { w13, scales13, w2, scales2 } = convert_fp8_weights(&one, arch, &[coded]).map_err(|e| e.to_string())?;
    Ok([w13, scales13, w2, scales2])
}

/// The parts of some experts on the device, each those of all experts one after the other; none where one has no bytes.
#[derive(Debug)]
pub(super) struct Parts([Option<DeviceBuffer<u8>>; 4]);

impl Parts {
    fn new(stream: &Stream, bytes: [usize; 4], experts: usize) -> Result<Self, DeviceError> {
        let mut parts = [const { None }; 4];
        for (part, bytes) in parts.iter_mut().zip(bytes).filter(|(_, bytes)| *bytes > 0) {
            *part = Some(stream.context().alloc(bytes * experts).map_err(failed(WHAT))?);
        }
        Ok(Self(parts))
    }

    /// `count` experts from `first` on.
    pub(super) fn weights(
        &self,
        bytes: [usize; 4],
        layout: Layout,
        first: usize,
        count: usize,
    ) -> Result<Weights<'_>, DeviceError> {
        let part = |index: usize| {
            let range = first * bytes[index]..(first + count) * bytes[index];
            self.0[index].as_ref().ok_or("a part of no bytes").map(|part| part.slice(range))
        };
        let part = |index: usize| part(index).map_err(failed_text)?.map_err(failed(WHAT));
        Ok(if layout.is_fp8() {
            Weights::Fp8 { w13: part(0)?, scales13: part(1)?, w2: part(2)?, scales2: part(3)? }
        } else {
            let cast = |index| part(index)?.cast().map_err(failed(WHAT));
            Weights::Bf16 { w13: cast(0)?, w2: cast(2)? }
        })
    }
}

fn failed_text(report: &str) -> DeviceError {
    DeviceError::Failed { what: WHAT, report: report.to_owned() }
}

/// Experts on their way to the device.
#[derive(Debug)]
struct Bucket {
    host: Vec<[Option<PinnedBuffer<u8>>; 4]>,
    device: Parts,
}

/// Where the weights of the experts are.
#[derive(Debug)]
enum Residence {
    /// All on the device, by layer.
    Prebuilt(Vec<Option<Parts>>),
    /// On the host; copied in two buckets that take turns.
    Streamed {
        /// What was converted before, by layer and expert, if that is to be kept.
        kept: Option<Vec<Vec<Option<Converted>>>>,
        buckets: [Bucket; 2],
        next: usize,
        /// Of the copies.
        stream: Stream,
    },
}

/// What calls of up to so many tokens work in.
#[derive(Debug)]
pub(super) struct Work {
    tokens: usize,
    /// `[tokens * top-k, hidden]`, sorted by expert.
    pub(super) rows: Both<bf16>,
    /// A range of rows for each expert of each launch.
    pub(super) cumsum: Both<i32>,
    /// `[tokens, top-k]`.
    pub(super) slots: Both<i32>,
    /// `[tokens, top-k]`.
    pub(super) scales: Both<f32>,
    /// `[tokens * top-k, hidden]`.
    pub(super) out: DeviceBuffer<bf16>,
    /// `[tokens, hidden]`.
    pub(super) combined: Both<f32>,
}

/// Bytes on the device of what calls of up to `tokens` tokens work in.
pub(super) fn work_bytes(dims: &MoeDims, top_k: usize, tokens: usize) -> usize {
    let rows = tokens * top_k;
    2 * 2 * rows * dims.hidden + 8 * rows + 4 * cumsum_len(dims.experts) + 4 * tokens * dims.hidden
}

/// Numbers of all launches of a call, however the experts are divided.
fn cumsum_len(experts: usize) -> usize {
    let launches = |slots: usize| experts.div_ceil(slots) * cumsum_pitch(slots);
    launches(1).max(launches(BUCKET.min(experts))).max(launches(experts))
}

/// Numbers from one launch to the next.
fn cumsum_pitch(slots: usize) -> usize {
    (slots + 1).next_multiple_of(CUMSUM_ALIGN)
}

impl Work {
    pub(super) fn new(stream: &Stream, dims: &MoeDims, top_k: usize, tokens: usize) -> Result<Self, DeviceError> {
        let rows = tokens * top_k;
        let mut out = stream.context().alloc(rows * dims.hidden).map_err(failed(WHAT))?;
        stream.fill(&mut out, 0).map_err(failed(WHAT))?;
        Ok(Self {
            tokens,
            rows: Both::new(stream, rows * dims.hidden)?,
            cumsum: Both::new(stream, cumsum_len(dims.experts))?,
            slots: Both::new(stream, rows)?,
            scales: Both::new(stream, rows)?,
            out,
            combined: Both::new(stream, tokens * dims.hidden)?,
        })
    }
}

/// A plan for launches of so many experts and at most so many rows.
#[derive(Debug)]
struct Planned {
    slots: usize,
    rows: usize,
    plan: Plan,
}

/// The place of the first that `is` accepts, after moving it to the end; where there is none, of what `make` makes. No more
/// than [`KEPT`] are kept, those that were used last.
fn recent<T>(
    list: &mut Vec<T>,
    is: impl Fn(&T) -> bool,
    make: impl FnOnce() -> Result<T, DeviceError>,
) -> Result<usize, DeviceError> {
    match list.iter().position(is) {
        Some(at) => {
            let last = list.remove(at);
            list.push(last);
        }
        None => {
            if list.len() == KEPT {
                list.remove(0);
            }
            list.push(make()?);
        }
    }
    Ok(list.len() - 1)
}

/// The routed experts of all layers.
#[derive(Debug)]
pub(super) struct Experts {
    dims: MoeDims,
    top_k: usize,
    layout: Layout,
    arch: Arch,
    bytes: [usize; 4],
    residence: Residence,
    plans: Vec<Planned>,
    works: Vec<Work>,
    /// One token's experts, of the arms that were captured.
    graphs: Vec<ExpertGraphs>,
}

/// A launch: which experts, and where their rows are.
struct Group {
    experts: Vec<usize>,
    cumsum: Vec<i32>,
}

impl Experts {
    /// Of `layers` layers with experts of one size. With `streaming` they stay on the host, converted once if `keep` says so;
    /// otherwise [`build`](Self::build) brings those of a layer to the device.
    pub(super) fn new(
        stream: &Stream,
        layers: usize,
        dims: MoeDims,
        top_k: usize,
        layout: Layout,
        (streaming, keep): (bool, bool),
    ) -> Result<Self, DeviceError> {
        let context = stream.context();
        let bytes = part_bytes(&dims, layout);
        let slots = BUCKET.min(dims.experts);
        let bucket = || {
            let mut host = Vec::new();
            for _ in 0..slots {
                let mut parts = [const { None }; 4];
                for (part, bytes) in parts.iter_mut().zip(bytes).filter(|(_, bytes)| *bytes > 0) {
                    *part = Some(context.pinned(bytes).map_err(failed(WHAT))?);
                }
                host.push(parts);
            }
            let device = Parts::new(stream, bytes, slots)?;
            Ok::<_, DeviceError>(Bucket { host, device })
        };
        let residence = if streaming {
            Residence::Streamed {
                kept: keep.then(|| vec![vec![None; dims.experts]; layers]),
                buckets: [bucket()?, bucket()?],
                next: 0,
                stream: context.stream().map_err(failed(WHAT))?,
            }
        } else {
            Residence::Prebuilt((0..layers).map(|_| None).collect())
        };
        let arch = context.facts().arch.map_or(Arch::DAV_2201, |fact| fact.value);
        Ok(Self {
            dims,
            top_k,
            layout,
            arch,
            bytes,
            residence,
            plans: Vec::new(),
            works: Vec::new(),
            graphs: Vec::new(),
        })
    }

    /// Brings the experts of a layer to the device, unless they are streamed.
    pub(super) fn build(&mut self, stream: &Stream, pool: &Pool, layer: usize, mlps: &Mlps) -> Result<(), DeviceError> {
        let Residence::Prebuilt(layers) = &mut self.residence else { return Ok(()) };
        let mut parts = Parts::new(stream, self.bytes, self.dims.experts)?;
        let all: Vec<usize> = (0..self.dims.experts).collect();
        // So many at once are on the host twice.
        for some in all.chunks(pool.threads()) {
            for (&expert, converted) in some.iter().zip(convert_all(&self.dims, self.arch, pool, layer, mlps, some)?) {
                for ((part, values), bytes) in parts.0.iter_mut().zip(&converted).zip(self.bytes) {
                    let Some(part) = part else { continue };
                    let to = part.slice_mut(expert * bytes..(expert + 1) * bytes).map_err(failed(WHAT))?;
                    stream.upload_to(values, to).map_err(failed(WHAT))?;
                }
            }
        }
        layers[layer] = Some(parts);
        mlps.release();
        Ok(())
    }

    /// The experts of one token as a graph arm runs them: captured now, unless they were before.
    pub(super) fn captured(&mut self, stream: &mut Stream, arm: Arm) -> Result<&mut ExpertGraphs, DeviceError> {
        let Self { dims, top_k, layout, bytes, residence, graphs, .. } = self;
        let Residence::Prebuilt(layers) = residence else { return Err(DeviceError::StreamedGraph) };
        let place = match graphs.iter().position(|graphs| graphs.is_fused() == arm.is_fused()) {
            Some(place) => place,
            None => {
                let (sizes, form) = ((*dims, *top_k), (*layout, *bytes));
                graphs.push(ExpertGraphs::capture(stream, arm.is_fused(), sizes, form, layers)?);
                graphs.len() - 1
            }
        };
        Ok(&mut graphs[place])
    }

    /// The weighted sum of the chosen experts for each token, F32 `[tokens, hidden]`. `tokens` are `[tokens, hidden]`, the
    /// choice of experts and weights `[tokens, top-k]`.
    #[expect(clippy::too_many_arguments, reason = "where, how, what, of which")]
    pub(super) fn run(
        &mut self,
        stream: &Stream,
        pool: &Pool,
        arm: Arm,
        layer: usize,
        mlps: &Mlps,
        tokens: &[bf16],
        (ids, weights): (&[u32], &[f32]),
    ) -> Result<Vec<f32>, DeviceError> {
        let Self { dims, top_k, layout, arch, bytes, residence, plans, works, .. } = self;
        let (hidden, top_k) = (dims.hidden, *top_k);
        let count = tokens.len() / hidden;
        let route = Route::new(dims.experts, count, ids, weights).map_err(refused(WHAT))?;
        let rows = route.tokens.len();
        let slots = match residence {
            _ if !arm.is_fused() => 1,
            Residence::Prebuilt(_) => dims.experts,
            Residence::Streamed { .. } => BUCKET.min(dims.experts),
        };
        let groups = divide(&route.cumsum, slots);

        let class = count.next_power_of_two();
        let work = recent(works, |work| work.tokens == class, || Work::new(stream, dims, top_k, class))?;
        let work = &mut works[work];
        let dims = MoeDims { experts: slots, ..*dims };
        let options = Options { layout: *layout, ..Options::default() };
        let plan = recent(
            plans,
            |planned| (planned.slots, planned.rows) == (slots, class * top_k),
            || {
                let plan = Plan::new(stream, &dims, class * top_k, options).map_err(refused(WHAT))?;
                Ok(Planned { slots, rows: class * top_k, plan })
            },
        )?;
        let plan = &mut plans[plan].plan;

        work.rows.upload(stream, |all| {
            for (row, &token) in all.chunks_exact_mut(hidden).zip(&route.tokens) {
                row.copy_from_slice(&tokens[token as usize * hidden..][..hidden]);
            }
        })?;
        work.cumsum.upload(stream, |all| {
            for (to, group) in all.chunks_exact_mut(cumsum_pitch(slots)).zip(&groups) {
                to[..group.cumsum.len()].copy_from_slice(&group.cumsum);
            }
        })?;
        work.slots.upload(stream, |all| all[..rows].copy_from_slice(&route.slots))?;
        work.scales.upload(stream, |all| all[..rows].copy_from_slice(&route.scales))?;

        for (number, group) in groups.iter().enumerate() {
            let weights = match residence {
                Residence::Prebuilt(layers) => {
                    let parts = layers[layer].as_ref().ok_or_else(|| failed_text("the layer was not built"))?;
                    parts.weights(*bytes, *layout, group.experts[0], slots)?
                }
                Residence::Streamed { kept, buckets, next, stream } => {
                    let bucket = &mut buckets[*next];
                    *next = 1 - *next;
                    let kept = kept.as_mut().map(|kept| &mut kept[layer]);
                    fill(stream, pool, (bucket, *bytes), (&dims, *arch), (layer, mlps, &group.experts), kept)?;
                    bucket.device.weights(*bytes, *layout, 0, slots)?
                }
            };
            let begin = number * cumsum_pitch(slots);
            let call = Call {
                tokens: work.rows.device.slice(..rows * hidden).map_err(failed(WHAT))?,
                cumsum: work.cumsum.device.slice(begin..begin + slots + 1).map_err(failed(WHAT))?,
                weights,
                out: work.out.slice_mut(..rows * hidden).map_err(failed(WHAT))?,
            };
            if number + 1 < groups.len() {
                plan.launch(stream, call).map_err(refused(WHAT))?;
            } else {
                let combine = Combine {
                    slots: work.slots.device.slice(..rows).map_err(failed(WHAT))?,
                    scales: work.scales.device.slice(..rows).map_err(failed(WHAT))?,
                    out: work.combined.device.slice_mut(..count * hidden).map_err(failed(WHAT))?,
                };
                plan.launch_combined(stream, call, combine).map_err(refused(WHAT))?;
            }
        }
        let Both { host, device } = &mut work.combined;
        stream.download_pinned(&*device, host).map_err(failed(WHAT))?;
        Ok(host.read().map_err(failed(WHAT))?[..count * hidden].to_vec())
    }
}

/// Divides the experts that have rows among launches of `slots` experts each; a launch of all experts has those without
/// rows, too.
fn divide(cumsum: &[i32], slots: usize) -> Vec<Group> {
    let experts = cumsum.len() - 1;
    if slots == experts {
        return vec![Group { experts: (0..experts).collect(), cumsum: cumsum.to_vec() }];
    }
    let active: Vec<usize> = (0..experts).filter(|&expert| cumsum[expert] < cumsum[expert + 1]).collect();
    let group = |experts: &[usize]| {
        let mut ranges: Vec<i32> = experts.iter().map(|&expert| cumsum[expert]).collect();
        // The rows of experts that follow each other here follow each other there; the slots left are of no rows.
        let end = experts.last().map_or(0, |&last| cumsum[last + 1]);
        ranges.resize(slots + 1, end);
        Group { experts: experts.to_vec(), cumsum: ranges }
    };
    active.chunks(slots).map(group).collect()
}

/// Converts some experts of a layer on all threads.
fn convert_all(
    dims: &MoeDims,
    arch: Arch,
    pool: &Pool,
    layer: usize,
    mlps: &Mlps,
    experts: &[usize],
) -> Result<Vec<Converted>, DeviceError> {
    let mut tasks: Vec<_> = experts.iter().map(|&expert| (expert, Ok(Converted::default()))).collect();
    pool.for_each_mut(&mut tasks, |_, (expert, converted)| *converted = convert(dims, arch, mlps, *expert));
    tasks
        .into_iter()
        .map(|(expert, converted)| converted.map_err(|reason| DeviceError::Weight { layer, expert, reason }))
        .collect()
}

/// Queues the copies of some experts into a bucket. The host waits only for earlier copies out of the same memory, the
/// copies for launches that read what they overwrite.
fn fill(
    stream: &Stream,
    pool: &Pool,
    (bucket, bytes): (&mut Bucket, [usize; 4]),
    (dims, arch): (&MoeDims, Arch),
    (layer, mlps, experts): (usize, &Mlps, &[usize]),
    mut kept: Option<&mut Vec<Option<Converted>>>,
) -> Result<(), DeviceError> {
    let is_kept = |expert: &usize| kept.as_ref().is_some_and(|kept| kept[*expert].is_some());
    let wanted: Vec<usize> = experts.iter().copied().filter(|expert| !is_kept(expert)).collect();
    let mut converted = convert_all(dims, arch, pool, layer, mlps, &wanted)?.into_iter();
    for (slot, &expert) in experts.iter().enumerate() {
        let is_new = wanted.contains(&expert);
        let fresh = if is_new { converted.next() } else { None };
        let parts = match (&mut kept, fresh) {
            (Some(kept), Some(fresh)) => kept[expert].insert(fresh),
            (Some(kept), None) => kept[expert].get_or_insert_default(),
            (None, fresh) => &mut fresh.unwrap_or_default(),
        };
        for (((part, host), device), bytes) in
            parts.iter().zip(&mut bucket.host[slot]).zip(&mut bucket.device.0).zip(bytes)
        {
            let (Some(host), Some(device)) = (host, device) else { continue };
            host.write().map_err(failed(WHAT))?.copy_from_slice(part);
            let to = device.slice_mut(slot * bytes..(slot + 1) * bytes).map_err(failed(WHAT))?;
            stream.upload_pinned(host, to).map_err(failed(WHAT))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_belongs_to_one_launch() {
        // Experts 1, 2, 4 and 5 of 6 have rows.
        let cumsum = [0, 0, 2, 5, 5, 6, 9];
        for slots in 1..=6 {
            let groups = divide(&cumsum, slots);
            let mut row = 0;
            for group in &groups {
                assert_eq!((group.cumsum.len(), group.cumsum[0]), (slots + 1, row), "{slots}");
                for (slot, &expert) in group.experts.iter().enumerate() {
                    assert_eq!(group.cumsum[slot..slot + 2], cumsum[expert..expert + 2], "{slots}");
                }
                row = group.cumsum[slots];
            }
            assert_eq!((row, groups.len()), (9, if slots == 6 { 1 } else { 4usize.div_ceil(slots) }), "{slots}");
        }
        for slots in [1, BUCKET, 6] {
            assert!(divide(&[0, 1, 2, 3, 4, 5, 6], slots).len() * cumsum_pitch(slots) <= cumsum_len(6));
        }
    }

    #[test]
    fn what_is_used_stays() {
        let mut list = Vec::new();
        for number in 0..KEPT {
            recent(&mut list, |_| false, || Ok(number)).unwrap();
        }
        assert_eq!(recent(&mut list, |&number| number == 0, || Ok(9)).unwrap(), KEPT - 1);
        recent(&mut list, |&number| number == 7, || Ok(7)).unwrap();
        assert_eq!(list, [2, 3, 4, 5, 0, 7]);
    }
}
