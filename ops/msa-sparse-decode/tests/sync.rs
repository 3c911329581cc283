// SPDX-License-Identifier: MIT OR Apache-2.0

//! Every synchronisation of the kernel is needed, and what the kernel is predicted to take.

use crate::device::kind;
use crate::fixture::{Ids, Setup};
use cpu_tiles::Precision;
use half::bf16;
use msa_sparse_decode::DecodeDims;
use msa_sparse_decode::ascend_rt::Arch;
use msa_sparse_decode::ascend_rt::zerocopy::IntoBytes;
use msa_sparse_decode::ascend_sim::cost::{Options, simulate};
use msa_sparse_decode::ascend_sim::testing::image;
use msa_sparse_decode::ascend_sim::{Args, Chip, Image, Launch, Mode, mutants};
use msa_sparse_decode::npu::{Split, blobs, budget, split_queries, twin_origin};

/// The arguments of one launch.
struct Data {
    q: Vec<bf16>,
    k: Vec<bf16>,
    v: Vec<bf16>,
    table: Vec<i32>,
    ids: Vec<i32>,
    lens: Vec<i32>,
    out: Vec<f32>,
    status: Vec<u32>,
    split: Split,
    tiling: Vec<u8>,
}

impl Data {
    fn new(setup: &Setup, cores: u32, pass_slots: u32) -> Self {
        let pages = setup.paged();
        let mut split = Split::of_slots(&setup.dims, &kind(setup, true, true), cores, pass_slots).unwrap();
        split.tiling.pages = (pages.k.len() / (setup.dims.kv_heads * setup.dims.block * setup.dims.head_dim)) as u64;
        let (Ids::Shared(ids) | Ids::PerKvHead(ids)) = setup.ids.clone();
        let q = match setup.precision {
            Precision::Bf16 => setup.q.clone(),
            Precision::F32 => split_queries(&setup.q.iter().map(|x| x.to_f32()).collect::<Vec<_>>()),
        };
        let lens = setup.seq_lens.iter().map(|len| *len as i32).collect();
        let tiling = split.tiling.as_bytes().to_vec();
        let (out, status) = (vec![0.0; setup.q.len()], vec![0; 16 * split.blocks as usize]);
        Self { q, k: pages.k, v: pages.v, table: pages.table, ids, lens, out, status, split, tiling }
    }

    fn launch<'a>(&'a mut self, image: &Image, chip: &str) -> Launch<'a> {
        let args = Args::new()
            .input(&self.q)
            .input(&self.k)
            .input(&self.v)
            .input(&self.table)
            .input(&self.ids)
            .input(&self.lens)
            .buffer(&mut self.out)
            .buffer(&mut self.status)
            .workspace(self.split.workspace)
            .input(&self.tiling);
        let launch = image.launch("msa_sparse_decode").unwrap();
        launch.chip(Chip::preset(chip).unwrap()).blocks(self.split.blocks).args(args)
    }
}

/// Descending lists of so many blocks, for each KV head.
fn lists(batch: usize, kv_heads: usize, blocks: i32, top_k: i32) -> Ids {
    Ids::PerKvHead((0..batch * kv_heads).flat_map(|_| (blocks - top_k..blocks).rev()).collect())
}

/// Items of one task and of several, on cores with several tasks; rings wrap.
fn setups() -> [(Setup, u32, u32); 3] {
    let wide = DecodeDims::new(32, 4, 128, 128);
    let many = DecodeDims::new(16, 8, 64, 32);
    let odd = DecodeDims::new(7, 1, 40, 72);
    [
        (Setup::new(wide, Precision::Bf16, 2, 20, 3).with_ids(lists(2, 4, 20, 16)).with_lens(&[2560, 2001]), 2, 8),
        (Setup::new(many, Precision::Bf16, 2, 8, 4).with_ids(lists(2, 8, 8, 4)).with_lens(&[200, 100]), 2, 16),
        (Setup::new(odd, Precision::F32, 3, 24, 5).with_lens(&[1650, 900, 3]), 2, 5),
    ]
}

fn each_is_missed(arch: Arch, chip: &str) {
    let image = image(blobs(), arch, twin_origin());
    for (setup, cores, pass_slots) in setups() {
        let mut data = Data::new(&setup, cores, pass_slots);
        let found = mutants(&mut data.launch(&image, chip), 3).unwrap();
        assert!(found.len() > 60, "{} places", found.len());
        let survivors: Vec<_> = found.iter().filter(|mutant| !mutant.is_found()).map(ToString::to_string).collect();
        assert!(survivors.is_empty(), "{} of {} places: {survivors:#?}", survivors.len(), found.len());
        println!("{chip}: {} places, each was missed", found.len());
    }
}

#[test]
fn each_synchronisation_is_missed_on_2201() {
    each_is_missed(Arch::DAV_2201, "910b3");
}

#[test]
fn each_synchronisation_is_missed_on_3510() {
    each_is_missed(Arch::DAV_3510, "950pr");
}

/// The kernel takes what the budget says.
#[test]
fn memories_are_used_as_budgeted() {
    for (arch, chip) in [(Arch::DAV_2201, "910b3"), (Arch::DAV_3510, "950pr")] {
        let (setup, cores, pass_slots) = &setups()[0];
        let mut data = Data::new(setup, *cores, *pass_slots);
        let used = data.launch(&image(blobs(), arch, twin_origin()), chip).run().unwrap().used;
        let budget = budget(arch).unwrap();
        assert_eq!([used.l1, used.l0a, used.l0b, used.l0c, used.ub], budget.map(|item| item.bytes), "{chip}");
        assert!(budget.iter().all(|item| item.bytes <= item.capacity), "{budget:?}");
    }
    assert_eq!(budget(Arch::DAV_1001), None);
}

/// With the launch, at most twice the time that the bytes and the launch take.
#[test]
fn one_sequence_is_predicted_within_twice_its_bound() {
    for (arch, chip, cores) in [(Arch::DAV_2201, "910b3", 20), (Arch::DAV_3510, "950pr", 32)] {
        let image = image(blobs(), arch, twin_origin());
        for (batch, most) in [(1, 2.0), (16, 1.5)] {
            let setup = Setup::new(DecodeDims::M3, Precision::Bf16, batch, 16, 3);
            let mut data = Data::new(&setup, cores, 16);
            let run = data.launch(&image, chip).mode(Mode::Dry).run().unwrap();
            let chip = Chip::preset(chip).unwrap();
            let options = Options::default().with_launch(true);
            let timeline = simulate(&run.program, &chip, &options).unwrap();
            // Keys and values once, at 1.6 TB/s, and 5 us for the launch.
            let bound = 5.0 + (batch * 2 * 4 * 2048 * 128 * 2) as f64 / 1.6e6;
            let predicted = timeline.microseconds();
            println!("{}, {batch} sequences: predicted {predicted:.1} us, bound {bound:.1} us", chip.name);
            assert!(predicted <= most * bound, "{}: predicted {predicted} us, bound {bound} us", chip.name);
        }
    }
}
