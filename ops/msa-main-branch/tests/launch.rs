// SPDX-License-Identifier: MIT OR Apache-2.0

//! Launches on the twin beside those of the suite: the published form with its mask, wrong calls, what a status says.

use crate::device::{launch_masked, launch_with_tiles};
use crate::fixture::{self, Kind, Sequence, dims, expected_masked};
use half::bf16;
use msa_main_branch::ascend_rt::Stream;
use msa_main_branch::ascend_sim::Mode;
use msa_main_branch::ascend_sim::testing::{Order, context, seeds};
use msa_main_branch::knobs::Dtype;
use msa_main_branch::npu::{self, Call, Inputs, Layout, Lists, MaskedCall, Plan, Status, Tiles};
use msa_main_branch::{AttentionDims, Error, MASK_NEG};
use op_testkit::compare::{Tolerance, assert_close, assert_same_bits};
use op_testkit::fill_f32;

const CHIPS: [&str; 2] = ["Ascend910B3", "Ascend950PR_9589"];

/// Keys that are hidden in each way, rows that see nothing, numbers that are added; several tasks of an item.
#[test]
fn a_mask_agrees_with_the_reference() {
    for (kind, dims, n, slots) in [
        (Kind::F32, dims(4, 2, 40, 20), 45, 3),
        (Kind::Bf16, dims(32, 2, 64, 128), 9, 5),
        (Kind::F16, dims(3, 3, 16, 8), 30, 9),
    ] {
        let sequence = Sequence::new(dims, kind, 0, n, n.max(slots * dims.block) - n, 3);
        let gathered = sequence.gathered(&(0..slots as i32).collect::<Vec<_>>());
        let entries = n.div_ceil(dims.block) * slots * dims.block * dims.block;
        // Query 4 sees nothing.
        let hides = |at: usize| {
            let (query_block, row) = (at / dims.block.pow(2) / slots, at / dims.block % dims.block);
            query_block * dims.block + row == 4
        };
        let value = |(at, x): (usize, f32)| match x {
            _ if hides(at) => MASK_NEG,
            ..-0.6 => f32::NEG_INFINITY,
            -0.6..-0.2 => MASK_NEG,
            -0.2..0.2 => 0.0,
            _ => 3.0 * x,
        };
        let mask: Vec<f32> = fill_f32(7, entries, 1.0).into_iter().enumerate().map(value).collect();
        let (expected, defined) = expected_masked(&dims, kind, &sequence.q, &gathered, &mask);
        let tolerance = match kind {
            Kind::F16 => Tolerance { abs: 0.0, rel: 0.0, rel_to_max: 0.0005 },
            _ => kind.tolerance(),
        };
        for chip in CHIPS {
            let mut first: Option<Vec<f32>> = None;
            for mode in std::iter::once(Mode::Fast).chain(seeds(2)) {
                let _order = Order::new(mode);
                let (out, seen, status) =
                    launch_masked(&context(chip).stream().unwrap(), &dims, &sequence.q, &gathered, &mask).unwrap();
                assert_close(chip, &out, &expected, &sequence.shape(), tolerance);
                let rows: Vec<bool> =
                    seen.chunks_exact(dims.kv_heads).map(|row| row.iter().all(|seen| *seen)).collect();
                assert_eq!(rows, (0..n).map(|query| defined.query(query)).collect::<Vec<_>>(), "{chip}");
                assert_eq!(status, Status { index: false, blind: true }, "{chip}");
                if let Some(first) = &first {
                    assert_same_bits(chip, &out, first, &sequence.shape());
                }
                first = Some(out);
            }
        }
    }
}

/// Tiles of other sizes have the same results but for rounding.
#[test]
fn tiles_of_any_size_agree_with_the_reference() {
    let _order = Order::new(Mode::Fast);
    let sequence = Sequence::new(dims(6, 3, 40, 20), Kind::F32, 37, 41, 0, 3);
    let ids = fixture::Lists::Shared(vec![2, 0, 3, 1]);
    let (expected, _) = fixture::expected(&sequence, &ids);
    for chip in CHIPS {
        let stream = context(chip).stream().unwrap();
        for (keys, queries) in [(Some(20), None), (Some(60), Some(1)), (None, Some(5)), (None, Some(1000))] {
            let tiles = Tiles { keys, queries };
            let (out, _) = launch_with_tiles(&stream, &sequence, &ids, Layout::Plain, &tiles).unwrap();
            assert_close(&format!("{tiles:?}"), &out, &expected, &sequence.shape(), Kind::F32.tolerance());
        }
    }
}

const DIMS: AttentionDims = dims(2, 1, 16, 8);

/// One launch on 5 queries from position 19 on, three blocks of keys and two entries a list: what it says.
fn status(stream: &Stream, layout: Layout, ids: &[i32], table: &[i32]) -> Status {
    let kind = npu::Kind { n: 5, dtype: Dtype::Bf16, layout, lists: Lists::Shared, topk: 2 };
    let mut plan = Plan::new(stream, &DIMS, &kind).unwrap();
    let query = stream.upload(&[bf16::ONE; 5 * 2 * 16]).unwrap();
    let keys = stream.upload(&[bf16::ONE; 3 * 8 * 16]).unwrap();
    let (ids, table) = (stream.upload(ids).unwrap(), stream.upload(table).unwrap());
    let (mut out, mut seen) = (stream.upload(&[0.0f32; 5 * 2 * 16]).unwrap(), stream.upload(&[7; 5]).unwrap());
    let call = Call {
        inputs: Inputs::Bf16 { query: (&query).into(), keys: (&keys).into(), values: (&keys).into() },
        start: 19,
        table: (layout == Layout::Paged).then(|| (&table).into()),
        block_ids: Some((&ids).into()),
        out: (&mut out).into(),
        seen: (&mut seen).into(),
    };
    plan.launch(stream, call).unwrap();
    let found = plan.take_status(stream).unwrap();
    assert_eq!(plan.take_status(stream).unwrap(), Status::default());
    found
}

#[test]
fn ids_and_pages_that_are_none_and_blind_queries_are_reported() {
    let _order = Order::new(Mode::Fast);
    for chip in CHIPS {
        let stream = context(chip).stream().unwrap();
        let of = |layout, ids: [i32; 2], table: [i32; 3]| {
            let Status { index, blind } = status(&stream, layout, &ids, &table);
            (index, blind)
        };
        let pages = [2, 0, 1];
        for layout in [Layout::Plain, Layout::Paged] {
            assert_eq!(of(layout, [1, -1], pages), (false, false), "{chip}");
            // Queries 19 to 23 see all of block 2 or some of it; there are none behind it.
            assert_eq!(of(layout, [2, 0], pages), (false, false), "{chip}");
            assert_eq!(of(layout, [-1, -1], pages), (false, true), "{chip}");
            assert_eq!(of(layout, [0, -2], pages), (true, false), "{chip}");
        }
        assert_eq!(of(Layout::Plain, [0, 3], pages), (true, false), "{chip}");
        assert_eq!(of(Layout::Paged, [0, 1], [2, 3, 1]), (true, false), "{chip}");
        assert_eq!(of(Layout::Paged, [0, 1], [2, -1, 1]), (true, false), "{chip}");
        // Nobody looks for the page of a block that is in no list.
        assert_eq!(of(Layout::Paged, [0, 1], [2, 1, -1]), (false, false), "{chip}");
    }
}

/// What the host still has is checked as on the CPU.
#[test]
fn lists_and_tables_are_checked_before_they_are_uploaded() {
    let _order = Order::new(Mode::Fast);
    let stream = context(CHIPS[0]).stream().unwrap();
    let kind =
        npu::Kind { n: 5, dtype: Dtype::Bf16, layout: Layout::Paged, lists: Lists::PerTile { tile: 4 }, topk: 2 };
    let plan = Plan::new(&stream, &DIMS, &kind).unwrap();
    let of = |start, ids: &[i32], table: &[i32]| plan.check(start, 24, ids, Some((table, 3)));
    of(19, &[0, 2, 1, -1], &[2, 0, 1]).unwrap();
    let error = |start, ids: &[i32], table: &[i32]| of(start, ids, table).unwrap_err();
    assert!(matches!(error(20, &[0, 2, 1, -1], &[2, 0, 1]), Error::TooFewTokens { start: 20, queries: 5, found: 24 }));
    assert!(matches!(error(19, &[0, 2], &[2, 0, 1]), Error::Length { argument: "block_ids", .. }));
    let found = |error| match error {
        Error::BlockRange { argument, at, blocks: 3, found } => (argument, at, found),
        Error::BlockPadding { argument, at, found } | Error::BlockTwice { argument, at, found } => {
            (argument, at, found)
        }
        error => panic!("{error}"),
    };
    assert_eq!(found(error(19, &[0, 3, 1, -1], &[2, 0, 1])), ("block_ids", vec![0, 1], 3));
    assert_eq!(found(error(19, &[0, 2, -1, 1], &[2, 0, 1])), ("block_ids", vec![1, 0], -1));
    assert_eq!(found(error(19, &[0, 0, 1, -1], &[2, 0, 1])), ("block_ids", vec![0, 1], 0));
    assert!(matches!(error(19, &[0, 2, 1, -1], &[2, 0]), Error::BlockTable { expected: 3, found: 2 }));
    assert!(matches!(error(19, &[0, 2, 1, -1], &[2, 3, 1]), Error::Page { entry: 1, pages: 3, found: 3 }));
}

/// A refusal names the argument; nothing is queued.
#[test]
fn calls_that_do_not_fit_their_plan_are_refused() {
    let _order = Order::new(Mode::Fast);
    let stream = context(CHIPS[0]).stream().unwrap();
    let wide = stream.upload(&[1.0f32; 5 * 2 * 16]).unwrap();
    let bf16s = stream.upload(&[bf16::ONE; 5 * 2 * 16]).unwrap();
    let keys = stream.upload(&[bf16::ONE; 3 * 8 * 16]).unwrap();
    let ids = stream.upload(&[0; 4]).unwrap();
    let (mut out, mut seen) = (stream.upload(&[0.0f32; 5 * 2 * 16]).unwrap(), stream.upload(&[0; 5]).unwrap());
    let good = Inputs::Bf16 { query: (&bf16s).into(), keys: (&keys).into(), values: (&keys).into() };
    // Lengths of the table and of the lists, where there are any.
    let mut refusal = |layout, lists, inputs, start, table: Option<usize>, list: Option<usize>| {
        let kind = npu::Kind { n: 5, dtype: Dtype::Bf16, layout, lists, topk: 2 };
        let mut plan = Plan::new(&stream, &DIMS, &kind).unwrap();
        let [table, block_ids] = [table, list].map(|len| len.map(|len| ids.slice(..len).unwrap()));
        let call = Call { inputs, start, table, block_ids, out: (&mut out).into(), seen: (&mut seen).into() };
        plan.launch(&stream, call).unwrap_err()
    };
    let (plain, paged, all, shared) = (Layout::Plain, Layout::Paged, Lists::All, Lists::Shared);
    let other = |error: Error| match error {
        Error::OtherPlan { argument, .. } => argument,
        error => panic!("{error}"),
    };
    let of_f32 = Inputs::F32 { query: (&wide).into(), keys: (&wide).into(), values: (&wide).into() };
    assert_eq!(other(refusal(plain, all, of_f32, 19, None, None)), "inputs");
    assert_eq!(other(refusal(plain, all, good, 19, Some(3), None)), "table");
    assert_eq!(other(refusal(paged, all, good, 19, None, None)), "table");
    assert_eq!(other(refusal(plain, all, good, 19, None, Some(2))), "block_ids");
    assert_eq!(other(refusal(plain, shared, good, 19, None, None)), "block_ids");
    let short = Inputs::Bf16 { query: keys.slice(..80).unwrap(), keys: (&keys).into(), values: (&keys).into() };
    let uneven = Inputs::Bf16 { query: (&bf16s).into(), keys: (&keys).into(), values: keys.slice(..16).unwrap() };
    for (argument, inputs, list) in [("block_ids", good, 3), ("query", short, 2), ("values", uneven, 2)] {
        let message = refusal(plain, shared, inputs, 19, None, Some(list)).to_string();
        assert!(message.contains(&format!("`{argument}`")), "{message}");
    }
    let error = refusal(plain, all, good, 20, None, None);
    assert!(matches!(error, Error::TooFewTokens { start: 20, queries: 5, found: 24 }), "{error}");
    let error = refusal(paged, all, good, 20, Some(3), None);
    assert!(matches!(error, Error::BlockTable { expected: 4, found: 3 }), "{error}");
    let error = refusal(plain, all, good, usize::MAX, None, None);
    assert!(matches!(error, Error::DeviceSize { what: "positions", .. }), "{error}");
}

#[test]
fn a_plan_is_for_masks_or_for_positions() {
    let _order = Order::new(Mode::Fast);
    let stream = context(CHIPS[0]).stream().unwrap();
    let dtype = Dtype::F32;
    let query = stream.upload(&[1.0f32; 5 * 2 * 16]).unwrap();
    let keys = stream.upload(&[1.0f32; 2 * 8 * 16]).unwrap();
    let (mut out, mut seen) = (stream.upload(&[0.0f32; 5 * 2 * 16]).unwrap(), stream.upload(&[0; 5]).unwrap());
    let mask = stream.upload(&[0.0f32; 2 * 64]).unwrap();
    let inputs = Inputs::F32 { query: (&query).into(), keys: (&keys).into(), values: (&keys).into() };
    let mut masked = Plan::masked(&stream, &DIMS, 5, dtype, 2, &Tiles::default()).unwrap();
    let kind = npu::Kind { n: 5, dtype, layout: Layout::Plain, lists: Lists::All, topk: 0 };
    let mut other = Plan::new(&stream, &DIMS, &kind).unwrap();
    let mut call = |plan: &mut Plan, mask_len: usize| {
        let mask = mask.slice(..mask_len).unwrap();
        plan.launch_masked(&stream, MaskedCall { inputs, mask, out: (&mut out).into(), seen: (&mut seen).into() })
    };
    let refused = call(&mut other, 128).unwrap_err();
    assert!(matches!(refused, Error::OtherPlan { argument: "mask", .. }), "{refused}");
    let refused = call(&mut masked, 64).unwrap_err();
    assert!(refused.to_string().contains("`mask`"), "{refused}");
    call(&mut masked, 128).unwrap();
    let refused = masked
        .launch(
            &stream,
            Call { inputs, start: 0, table: None, block_ids: None, out: (&mut out).into(), seen: (&mut seen).into() },
        )
        .unwrap_err();
    assert!(matches!(refused, Error::OtherPlan { argument: "inputs", .. }), "{refused}");
    stream.synchronize().unwrap();
    // All keys are alike.
    assert!(stream.download(&out).unwrap().iter().all(|x| *x == 1.0));
}
