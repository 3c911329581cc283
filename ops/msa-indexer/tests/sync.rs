// SPDX-License-Identifier: MIT OR Apache-2.0

//! Every synchronisation of the kernel is needed, and what the kernel is predicted to take.

use crate::device::pages;
use crate::fixture::{Data, Setup};
use half::bf16;
use msa_indexer::ascend_rt::Arch;
use msa_indexer::ascend_rt::zerocopy::IntoBytes;
use msa_indexer::ascend_sim::cost::{Options, simulate};
use msa_indexer::ascend_sim::testing::image;
use msa_indexer::ascend_sim::{Args, Chip, Image, Launch, mutants};
use msa_indexer::npu::{Format, Kind, Split, blobs, budget, twin_origin};
use msa_indexer::{HeadReduce, IndexerDims};
use std::collections::BTreeMap;

/// Calls `body` with a launch of a setup.
fn with_launch<R>(image: &Image, chip: &str, setup: &Setup, cores: u32, body: impl FnOnce(&mut Launch<'_>) -> R) -> R {
    let (dims, length, count) = (&setup.dims, setup.length(), setup.count());
    let kind = Kind { queries: count, blocks: dims.blocks(length), paged: true };
    let bits = |values: &[bf16]| values.iter().flat_map(|value| value.to_bits().to_ne_bytes()).collect::<Vec<_>>();
    let (format, queries, (pages, table)) = match (&setup.queries, &setup.keys) {
        (Data::Bf16(queries), Data::Bf16(keys)) => {
            let (pages, table) = pages(setup, keys, bf16::NAN, true);
            (Format::Bf16, bits(queries), (bits(&pages), table))
        }
        (Data::F32(queries), Data::F32(keys)) => {
            let (pages, table) = pages(setup, keys, f32::NAN, true);
            (Format::F32, queries.as_bytes().to_vec(), (pages.as_bytes().to_vec(), table))
        }
        _ => unreachable!("one format for both"),
    };
    let mut split = Split::of_format(dims, &kind, cores, format).unwrap();
    split.tiling.pages = 2 * kind.blocks as u32 + 1;
    let mut status = vec![0u32; 16 * split.blocks as usize];
    let [_, selections, width] = dims.ids_shape(count, length);
    let (mut ids, mut scores) = (vec![0; count * selections * width], vec![0.0f32; count * selections * kind.blocks]);
    let (first, tiling) = ([setup.start as i32], [split.tiling]);
    let args = Args::new()
        .input(&queries)
        .input(&pages)
        .input(&table)
        .input(&first)
        .buffer(&mut ids)
        .buffer(&mut scores)
        .buffer(&mut status)
        .workspace(split.workspace)
        .input(&tiling);
    let launch = image.launch("msa_indexer").unwrap();
    body(&mut launch.chip(Chip::preset(chip).unwrap()).blocks(split.blocks).args(args))
}

/// Between them the setups need all: tiles of several queries, blocks that take several instructions, lists that take
/// several merges, forced blocks side by side, and both kinds of selections.
fn each_is_missed(arch: Arch, chip: &str) {
    let odd = IndexerDims {
        heads: 3,
        head_dim: 37,
        block: 80,
        topk: 4,
        init_blocks: 1,
        local_blocks: 2,
        reduce: HeadReduce::PerKvHead,
    };
    let shared = IndexerDims { reduce: HeadReduce::Shared, ..IndexerDims::M3 };
    let many = IndexerDims { heads: 2, head_dim: 16, block: 16, topk: 16, init_blocks: 2, local_blocks: 3, ..odd };
    let setups = [
        (Setup::new(odd, [true, true], 61, 1430, 1), 1),
        (Setup::new(IndexerDims { block: 20, ..odd }, [true, true], 61, 130, 2), 1),
        (Setup::new(shared, [true, true], 70, 2300, 3), 2),
        (Setup::new(many, [true, true], 3, 9000, 4), 2),
        // Products in two steps of k.
        (Setup::new(IndexerDims { head_dim: 80, block: 128, ..odd }, [false, false], 4, 700, 5), 1),
    ];
    let image = image(blobs(), arch, twin_origin());
    let mut places = BTreeMap::new();
    for (setup, cores) in &setups {
        let found = with_launch(&image, chip, setup, *cores, |launch| mutants(launch, 3)).unwrap();
        for mutant in found {
            *places.entry(mutant.sync.to_string()).or_insert(false) |= mutant.is_found();
        }
    }
    let survivors: Vec<_> = places.iter().filter(|(_, found)| !**found).map(|(place, _)| place).collect();
    println!("{chip}: {} places, {} missed", places.len(), places.len() - survivors.len());
    assert!(places.len() > 60, "{} places", places.len());
    assert!(survivors.is_empty(), "{survivors:#?}");
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
        let setup = Setup::new(IndexerDims::M3, [true, true], 3, 2300, 3);
        let used =
            with_launch(&image(blobs(), arch, twin_origin()), chip, &setup, 1, |launch| launch.run()).unwrap().used;
        let budget = budget(arch).unwrap();
        assert_eq!([used.l1, used.l0a, used.l0b, used.l0c, used.ub], budget.map(|item| item.bytes), "{chip}");
        assert!(budget.iter().all(|item| item.bytes <= item.capacity), "{budget:?}");
    }
    assert_eq!(budget(Arch::DAV_1001), None);
}

/// With the launch, at most twice the time that the bytes and the launch take.
#[test]
fn decode_is_predicted_within_twice_its_bound() {
    for (arch, chip, cores) in [(Arch::DAV_2201, "910b3", 20), (Arch::DAV_3510, "950pr", 32)] {
        let setup = Setup::decode(IndexerDims::M3, 65_536, 3);
        let run = with_launch(&image(blobs(), arch, twin_origin()), chip, &setup, cores, |launch| launch.run());
        let timeline =
            simulate(&run.unwrap().program, &Chip::preset(chip).unwrap(), &Options::default().with_launch(true))
                .unwrap();
        let bound = 5.0 + (65_536 * 128 * 2) as f64 / 1.6e6;
        let predicted = timeline.microseconds();
        println!("{chip}: predicted {predicted:.1} us, bound {bound:.1} us");
        assert!(predicted <= 2.0 * bound, "{chip}: predicted {predicted} us, bound {bound} us");
    }
}
