// SPDX-License-Identifier: MIT OR Apache-2.0

//! Launches on the twin: special values, wrong calls, and what a graph follows.

use crate::device::{Order, context, launch, pages};
use crate::fixture::{Data, Setup};
use half::bf16;
use msa_indexer::ascend_rt::CaptureMode;
use msa_indexer::ascend_sim::Mode;
use msa_indexer::ascend_sim::testing::{argument_blocks, snapshot};
use msa_indexer::npu::{Call, Kind, Plan, Status};
use msa_indexer::{Error, HeadReduce, IndexerDims};

const CHIPS: [&str; 2] = ["Ascend910B3", "Ascend950PR_9589"];
const DIMS: IndexerDims = IndexerDims {
    heads: 3,
    head_dim: 40,
    block: 20,
    topk: 4,
    init_blocks: 0,
    local_blocks: 1,
    reduce: HeadReduce::PerKvHead,
};

fn bf16s(data: &Data) -> &[bf16] {
    let Data::Bf16(values) = data else { unreachable!("decode has BF16 values") };
    values
}

/// What arrives of a launch at a device.
#[test]
fn argument_blocks_are_as_kept() {
    let order = Order::new(Mode::Fast);
    let text: String = CHIPS
        .iter()
        .map(|chip| {
            argument_blocks(&order, || {
                let stream = context(chip).stream().unwrap();
                launch(&stream, &Setup::decode(DIMS, 171, 5), true, true).unwrap();
            })
        })
        .collect();
    snapshot(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/argument_blocks.txt"), &text);
}

/// Infinite scores are scores like others, in both directions; forced blocks stand above them.
#[test]
fn infinite_scores_are_ranked() {
    let _order = Order::new(Mode::Fast);
    for reduce in [HeadReduce::PerKvHead, HeadReduce::Shared] {
        let dims = IndexerDims { init_blocks: 1, reduce, ..DIMS };
        let mut setup = Setup::decode(dims, 171, 5);
        let Data::Bf16(queries) = &mut setup.queries else { unreachable!("decode has BF16 queries") };
        queries.fill(bf16::ONE);
        let Data::Bf16(keys) = &mut setup.keys else { unreachable!("decode has BF16 keys") };
        // Blocks 2 and 5 are the best, all of block 3 and more are the worst.
        for (key, value) in [(2 * 20 + 3, bf16::INFINITY), (5 * 20 + 19, bf16::INFINITY)] {
            keys[key * 40] = value;
        }
        for key in 3 * 20..5 * 20 {
            keys[key * 40] = bf16::NEG_INFINITY;
        }
        let expected = setup.expected();
        for chip in CHIPS {
            let out = launch(&context(chip).stream().unwrap(), &setup, true, true).unwrap();
            assert_eq!(out.ids, expected.ids, "{chip}");
            assert_eq!(out.scores, expected.scores, "{chip}");
        }
        assert_eq!(&expected.ids[..4], [0, 2, 5, 8]);
    }
}

/// A NaN ranks before every number, infinity included, and below forced blocks.
#[test]
fn nan_scores_are_ranked_first() {
    let _order = Order::new(Mode::Fast);
    for reduce in [HeadReduce::PerKvHead, HeadReduce::Shared] {
        let mut setup = Setup::decode(IndexerDims { init_blocks: 1, reduce, ..DIMS }, 171, 5);
        let Data::Bf16(queries) = &mut setup.queries else { unreachable!("decode has BF16 queries") };
        queries.fill(bf16::ONE);
        let Data::Bf16(keys) = &mut setup.keys else { unreachable!("decode has BF16 keys") };
        for (block, value) in
            [(2, bf16::INFINITY), (3, bf16::INFINITY), (5, bf16::NAN), (6, bf16::INFINITY), (7, bf16::NAN)]
        {
            keys[(block * 20 + 9) * 40 + 1] = value;
        }
        let expected = setup.expected();
        for chip in CHIPS {
            let out = launch(&context(chip).stream().unwrap(), &setup, true, true).unwrap();
            assert_eq!(out.ids, expected.ids, "{chip}");
            let nan = |scores: &[f32]| scores.iter().map(|score| score.is_nan()).collect::<Vec<_>>();
            assert_eq!(nan(&out.scores), nan(&expected.scores), "{chip}");
        }
        assert_eq!(&expected.ids[..4], [0, 5, 7, 8]);
    }
}

/// A graph that is replayed reads the position and the table of that moment.
#[test]
fn a_captured_launch_follows_the_position() {
    let _order = Order::new(Mode::Fast);
    for chip in CHIPS {
        let setup = Setup::decode(DIMS, 400, 6);
        let mut stream = context(chip).stream().unwrap();
        let kind = Kind { queries: 1, blocks: 20, paged: true };
        let mut plan = Plan::new(&stream, &DIMS, &kind).unwrap();
        let (pages, table) = pages(&setup, bf16s(&setup.keys), bf16::NAN, true);
        let (q, k, table) = (
            stream.upload(bf16s(&setup.queries)).unwrap(),
            stream.upload(&pages).unwrap(),
            stream.upload(&table).unwrap(),
        );
        let (mut first, mut ids) = (stream.upload(&[0]).unwrap(), stream.upload(&[7; 12]).unwrap());
        let mut graph = stream
            .capture(CaptureMode::default(), |capture| {
                let call = Call {
                    queries: (&q).into(),
                    keys: (&k).into(),
                    block_table: Some((&table).into()),
                    first: (&first).into(),
                    ids: (&mut ids).into(),
                    scores: None,
                };
                plan.launch(capture, call).map_err(|error| match error {
                    Error::Device(error) => error,
                    error => panic!("{error}"),
                })
            })
            .unwrap();
        // The last position is beyond the capacity: that of the last key is taken.
        for position in [0, 61, 79, 80, 333, 399, 100_000] {
            stream.upload_to(&[position], &mut first).unwrap();
            graph.replay(&stream).unwrap();
            let length = (position as usize + 1).min(400);
            let Data::Bf16(keys) = &setup.keys else { unreachable!("decode has BF16 keys") };
            let keys = Data::Bf16(keys[..length * 40].to_vec());
            let now = Setup { start: length - 1, keys, ..setup.clone() };
            let ids = stream.download(&ids).unwrap();
            // A shorter sequence has shorter rows of ids.
            let expected = now.expected().ids;
            for (row, expected) in ids.chunks_exact(4).zip(expected.chunks_exact(expected.len() / 3)) {
                assert_eq!(&row[..expected.len()], expected, "{chip} at {position}");
                assert!(row[expected.len()..].iter().all(|id| *id == -1), "{chip} at {position}: {row:?}");
            }
        }
    }
}

/// What the host still has is checked as on the CPU.
#[test]
fn positions_and_tables_are_checked_before_they_are_uploaded() {
    let _order = Order::new(Mode::Fast);
    let stream = context(CHIPS[0]).stream().unwrap();
    let of = |paged| Plan::new(&stream, &DIMS, &Kind { queries: 3, blocks: 4, paged }).unwrap();
    let (row, pages) = (of(false), of(true));
    row.check(77, None).unwrap();
    pages.check(77, Some((&[3, 0, 1, 2], 4))).unwrap();
    // No query sees block 3.
    pages.check(57, Some((&[3, 0, 1, -1], 4))).unwrap();
    let error = row.check(78, None).unwrap_err();
    assert!(matches!(error, Error::QueryBeyondLength { start: 78, queries: 3, length: 80 }), "{error}");
    let error = pages.check(58, Some((&[3, 0, 1, -1], 4))).unwrap_err();
    assert!(matches!(error, Error::TableEntry { entry: 3, blocks: 4, found: -1 }), "{error}");
    let error = pages.check(0, Some((&[4, 0, 1, 2], 4))).unwrap_err();
    assert!(matches!(error, Error::TableEntry { entry: 0, blocks: 4, found: 4 }), "{error}");
    let error = pages.check(0, Some((&[0, 1, 2], 4))).unwrap_err();
    assert!(matches!(error, Error::Length { argument: "block_table", .. }), "{error}");
    for error in [row.check(0, Some((&[0, 1, 2, 3], 4))).unwrap_err(), pages.check(0, None).unwrap_err()] {
        assert!(matches!(error, Error::OtherPlan { argument: "block_table", .. }), "{error}");
    }
}

/// What the device does not take at its word, it says when it is asked, once.
#[test]
fn positions_and_pages_that_are_none_are_reported() {
    let _order = Order::new(Mode::Fast);
    for chip in CHIPS {
        let setup = Setup::decode(DIMS, 400, 6);
        let stream = context(chip).stream().unwrap();
        let mut plan = Plan::new(&stream, &DIMS, &Kind { queries: 1, blocks: 20, paged: true }).unwrap();
        let (pages, good) = pages(&setup, bf16s(&setup.keys), bf16::NAN, true);
        let (q, k) = (stream.upload(bf16s(&setup.queries)).unwrap(), stream.upload(&pages).unwrap());
        let (mut table, mut first) = (stream.upload(&good).unwrap(), stream.upload(&[399]).unwrap());
        let mut ids = stream.upload(&[7; 12]).unwrap();
        let mut of = |position: i32, page: i32| {
            let table_now = [&good[..11], &[page], &good[12..]].concat();
            stream.upload_to(&table_now, &mut table).unwrap();
            stream.upload_to(&[position], &mut first).unwrap();
            let call = Call {
                queries: (&q).into(),
                keys: (&k).into(),
                block_table: Some((&table).into()),
                first: (&first).into(),
                ids: (&mut ids).into(),
                scores: None,
            };
            plan.launch(&stream, call).unwrap();
            let found = plan.take_status(&stream).unwrap();
            assert_eq!(plan.take_status(&stream).unwrap(), Status::default(), "{chip}");
            (found.clamped, found.index)
        };
        let last = pages.len() as i32 / 800 - 1;
        assert_eq!(of(399, last), (false, false), "{chip}");
        for (position, page, expected) in
            [(400, 0, (true, false)), (-1, 0, (true, false)), (399, last + 1, (false, true)), (399, -1, (false, true))]
        {
            assert_eq!(of(position, page), expected, "{chip} at {position}, page {page}");
        }
        // No query sees block 11.
        assert_eq!(of(100, -1), (false, false), "{chip}");
    }
}

#[test]
fn calls_that_do_not_fit_their_plan_are_refused() {
    let _order = Order::new(Mode::Fast);
    let stream = context(CHIPS[0]).stream().unwrap();
    let setup = Setup::decode(DIMS, 100, 6);
    let (q, k) = (stream.upload(bf16s(&setup.queries)).unwrap(), stream.upload(bf16s(&setup.keys)).unwrap());
    let (table, first) = (stream.upload(&[0; 5]).unwrap(), stream.upload(&[99]).unwrap());
    let (mut ids, mut scores) = (stream.upload(&[0; 12]).unwrap(), stream.upload(&[0.0f32; 15]).unwrap());
    let mut refusal = |paged: bool, table_there: bool, keys: usize, width: usize| {
        let mut plan = Plan::new(&stream, &DIMS, &Kind { queries: 1, blocks: 5, paged }).unwrap();
        let call = Call {
            queries: (&q).into(),
            keys: k.slice(..keys).unwrap(),
            block_table: table_there.then(|| (&table).into()),
            first: (&first).into(),
            ids: (&mut ids).into(),
            scores: Some(scores.slice_mut(..width).unwrap()),
        };
        plan.launch(&stream, call).map_err(|error| error.to_string())
    };
    assert_eq!(refusal(false, false, 4000, 15), Ok(()));
    let plan = |expected: &str| Err(format!("`block_table` does not fit the plan, which is for {expected}"));
    assert_eq!(refusal(false, true, 4000, 15), plan("keys in a row"));
    assert_eq!(refusal(true, false, 4000, 15), plan("pages"));
    let found = refusal(true, true, 3999, 15).unwrap_err();
    assert!(found.contains("`keys`") && found.contains("[20, 40]"), "{found}");
    let found = refusal(false, false, 4000, 14).unwrap_err();
    assert!(found.contains("`scores`") && found.contains("[1, 3, 5]"), "{found}");
}
