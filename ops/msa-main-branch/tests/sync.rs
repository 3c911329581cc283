// SPDX-License-Identifier: MIT OR Apache-2.0

//! Every synchronisation of the kernel is needed, and what the kernel is predicted to take.

use crate::device::{Order, context, kind, launch};
use crate::fixture::{Kind, Lists, Sequence, Values, dims};
use half::{bf16, f16};
use msa_main_branch::ascend_rt::Arch;
use msa_main_branch::ascend_rt::zerocopy::IntoBytes;
use msa_main_branch::ascend_sim::cost::{Options, simulate};
use msa_main_branch::ascend_sim::testing::{argument_blocks, image, snapshot};
use msa_main_branch::ascend_sim::{Args, Chip, Image, Launch, Mode, Mutant, mutants};
use msa_main_branch::knobs::Dtype;
use msa_main_branch::npu::{self, Layout, Split, Tiles, blobs, budget_of, twin_origin};
use msa_main_branch::{AttentionDims, MASK_NEG};

fn bytes(values: &Values) -> Vec<u8> {
    match values {
        Values::F32(values) => values.as_bytes().to_vec(),
        Values::F16(values) => values.iter().flat_map(|value: &f16| value.to_bits().to_ne_bytes()).collect(),
        Values::Bf16(values) => values.iter().flat_map(|value: &bf16| value.to_bits().to_ne_bytes()).collect(),
    }
}

/// The arguments of one launch.
struct Data {
    inputs: [Vec<u8>; 3],
    table: Vec<i32>,
    ids: Vec<i32>,
    mask: Vec<f32>,
    out: Vec<f32>,
    seen: Vec<i32>,
    status: Vec<u32>,
    split: Split,
    tiling: Vec<u8>,
}

impl Data {
    fn new(sequence: &Sequence, lists: &Lists, cores: u32, pass_slots: u32) -> Self {
        let (kind, ids) = kind(sequence, lists, Layout::Plain);
        let split = Split::of_slots(&sequence.dims, &kind, cores, pass_slots).unwrap();
        Self::of(sequence, split, ids, vec![0.0])
    }

    /// A prompt of M3 with a list of 16 blocks for each 128 queries. Nobody looks at its zeros where no data is moved.
    fn unwritten(kind: Kind, n: usize, ids: Vec<i32>, cores: u32) -> Self {
        let dims = AttentionDims::M3;
        let (dtype, size) = if kind == Kind::F32 { (Dtype::F32, 4) } else { (Dtype::Bf16, 2) };
        let kind = npu::Kind { n, dtype, layout: Layout::Plain, lists: npu::Lists::PerTile { tile: 128 }, topk: 16 };
        let mut split = Split::new(&dims, &kind, cores).unwrap();
        split.tiling.pages = n.div_ceil(dims.block) as u64;
        let (wide, narrow) = (n * dims.heads * dims.head_dim, n * dims.kv_heads * dims.head_dim);
        Self {
            inputs: [vec![0; size * wide], vec![0; size * narrow], vec![0; size * narrow]],
            table: vec![-1],
            ids,
            mask: vec![0.0],
            out: vec![0.0; wide],
            seen: vec![0; n * dims.kv_heads],
            status: vec![0; 3 * 16 * split.blocks as usize],
            tiling: split.tiling.as_bytes().to_vec(),
            split,
        }
    }

    /// Every slot is a block; rows of the mask hide all, nothing, or some keys.
    fn masked(sequence: &Sequence, cores: u32, keys: usize) -> Self {
        let (slots, block) = (sequence.blocks(), sequence.dims.block);
        let tiles = Tiles { keys: Some(keys), queries: None };
        let split = Split::masked(&sequence.dims, sequence.n(), Dtype::F32, slots, cores, &tiles).unwrap();
        let value =
            |i: usize| if (i / block).is_multiple_of(3) || i % 5 == 1 { MASK_NEG } else { (i % 7) as f32 - 3.0 };
        let mask = (0..sequence.n().div_ceil(block) * slots * block * block).map(value).collect();
        Self::of(sequence, split, Vec::new(), mask)
    }

    fn of(sequence: &Sequence, mut split: Split, mut ids: Vec<i32>, mask: Vec<f32>) -> Self {
        split.tiling.start = sequence.start as u32;
        split.tiling.pages = sequence.blocks() as u64;
        ids.push(-1);
        Self {
            inputs: [bytes(&sequence.q), bytes(&sequence.k), bytes(&sequence.v)],
            table: vec![-1],
            ids,
            mask,
            out: vec![0.0; sequence.q.len()],
            seen: vec![0; sequence.n() * sequence.dims.kv_heads],
            status: vec![0; 3 * 16 * split.blocks as usize],
            tiling: split.tiling.as_bytes().to_vec(),
            split,
        }
    }

    fn launch<'a>(&'a mut self, image: &Image, chip: &str) -> Launch<'a> {
        let args = Args::new()
            .input(&self.inputs[0])
            .input(&self.inputs[1])
            .input(&self.inputs[2])
            .input(&self.table)
            .input(&self.ids)
            .input(&self.mask)
            .buffer(&mut self.out)
            .buffer(&mut self.seen)
            .buffer(&mut self.status)
            .workspace(self.split.workspace)
            .input(&self.tiling);
        let launch = image.launch("msa_main_branch").unwrap();
        launch.chip(Chip::preset(chip).unwrap()).blocks(self.split.blocks).args(args)
    }
}

/// Several items and several tasks of an item on a core, so that rings wrap: products of many fractals and of few.
fn setups() -> [(Sequence, Lists, u32, u32); 2] {
    let large = Sequence::new(dims(16, 1, 64, 24), Kind::Bf16, 100, 24, 0, 3);
    let small = Sequence::new(dims(2, 2, 72, 20), Kind::F32, 130, 9, 0, 4);
    let ids = Lists::PerTileAndHead(4, Lists::ids(3 * 2, 5, small.blocks(), 5));
    [(large, Lists::All, 1, 2), (small, ids, 1, 2)]
}

fn each_is_missed(arch: Arch, chip: &str) {
    let image = image(blobs(), arch, twin_origin());
    // Whole blocks, so that there are as many keys as slots hold.
    let masked = Sequence::new(dims(2, 1, 16, 24), Kind::F32, 0, 48, 0, 5);
    let mut data = Data::masked(&masked, 1, 24);
    let mut found: Vec<Mutant> = mutants(&mut data.launch(&image, chip), 3).unwrap();
    for (sequence, lists, cores, pass_slots) in setups() {
        let mut data = Data::new(&sequence, &lists, cores, pass_slots);
        found.extend(mutants(&mut data.launch(&image, chip), 3).unwrap());
    }
    let mut survivors = Vec::new();
    for mutant in &found {
        // What one number format does not need, another does: a place is one in the source.
        let is_same = |other: &&Mutant| other.sync.site == mutant.sync.site && other.sync.api == mutant.sync.api;
        let is_missed = found.iter().filter(is_same).any(Mutant::is_found);
        if !is_missed {
            survivors.push(mutant.to_string());
        }
    }
    assert!(found.len() > 150, "{} places", found.len());
    assert!(survivors.is_empty(), "{} of {} places: {survivors:#?}", survivors.len(), found.len());
    println!("{chip}: {} places, each was missed", found.len());
}

/// The kernel takes what the budget says.
#[test]
fn memories_are_used_as_budgeted() {
    for (arch, chip) in [(Arch::DAV_2201, "910b3"), (Arch::DAV_3510, "950pr")] {
        for (kind, dtype) in [(Kind::Bf16, Dtype::Bf16), (Kind::F32, Dtype::F32)] {
            let sequence = Sequence::new(dims(16, 1, 128, 128), kind, 1000, 24, 0, 3);
            let mut data = Data::new(&sequence, &Lists::All, 1, 8);
            let used = data.launch(&image(blobs(), arch, twin_origin()), chip).run().unwrap().used;
            let budget = budget_of(arch, dtype).unwrap();
            assert_eq!([used.l1, used.l0a, used.l0b, used.l0c, used.ub], budget.map(|item| item.bytes), "{chip}");
            assert!(budget.iter().all(|item| item.bytes <= item.capacity), "{budget:?}");
        }
    }
    assert_eq!(budget_of(Arch::DAV_1001, Dtype::F32), None);
}

#[test]
fn each_synchronisation_is_missed_on_2201() {
    each_is_missed(Arch::DAV_2201, "910b3");
}

#[test]
fn each_synchronisation_is_missed_on_3510() {
    each_is_missed(Arch::DAV_3510, "950pr");
}

/// What arrives of a launch at a device.
#[test]
fn argument_blocks_are_as_kept() {
    let order = Order::new(Mode::Fast);
    let text: String = ["Ascend910B3", "Ascend950PR_9589"]
        .iter()
        .map(|chip| {
            argument_blocks(&order, || {
                let stream = context(chip).stream().unwrap();
                let sequence = Sequence::new(dims(4, 2, 24, 20), Kind::Bf16, 3, 9, 4, 3);
                let lists = Lists::PerTile(4, Lists::ids(3, 2, sequence.blocks(), 5));
                launch(&stream, &sequence, &lists, Layout::Paged).unwrap();
            })
        })
        .collect();
    snapshot(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/argument_blocks.txt"), &text);
}

/// A prompt of 4096 tokens with lists of 16 blocks for each 128 queries, against the products alone: the share of the rate
/// of the cube unit in the format of the inputs.
#[test]
fn a_prompt_is_predicted_to_use_its_share_of_the_cube() {
    const N: usize = 4096;
    // Cores, clock in GHz; per format: products per cycle and core, and the share.
    let b3 = (Arch::DAV_2201, "910b3", 20, 1.8, [(Kind::Bf16, 4096.0, 0.53), (Kind::F32, 1024.0, 0.93)]);
    let pr = (Arch::DAV_3510, "950pr", 32, 1.65, [(Kind::Bf16, 4096.0, 0.52), (Kind::F32, 256.0, 0.97)]);
    for (arch, chip, cores, clock, kinds) in [b3, pr] {
        let image = image(blobs(), arch, twin_origin());
        let chip_of = Chip::preset(chip).unwrap();
        for (kind, rate, least) in kinds {
            // The last blocks that a tile can see, and no more than 16.
            let list = |tile: i32| (0..16).map(move |i| if tile >= i { tile - i } else { -1 });
            let mut data = Data::unwritten(kind, N, (0..32).flat_map(list).collect(), cores);
            let run = data.launch(&image, chip).mode(Mode::Dry).run().unwrap();
            let timeline = simulate(&run.program, &chip_of, &Options::default().with_launch(true)).unwrap();
            let predicted = timeline.microseconds();
            // Of a tile's own block, eight queries see as many keys as there are up to the last of them, rounded up to 16:
            // 72 of 128 on average.
            let keys: f64 = (0..32).map(|tile| f64::from(15.min(tile)) * 128.0 + 72.0).sum();
            let products = keys * 128.0 * 64.0 * 128.0 * 2.0;
            let alone = products / (rate * f64::from(cores) * clock * 1e3);
            println!("{}, {kind:?}: predicted {predicted:.0} us, the products alone {alone:.0} us", chip_of.name);
            assert!(alone >= least * predicted, "{chip}, {kind:?}: predicted {predicted} us, alone {alone} us");
        }
    }
}
