// SPDX-License-Identifier: MIT OR Apache-2.0

//! Launches on the twin: what is not seen, what is NaN, what is wrong, and what a graph follows.

use crate::device::{Order, context, kind, launch, launch_with_status};
use crate::fixture::{Ids, Setup, tolerance};
use cpu_tiles::Precision;
use half::bf16;
use msa_sparse_decode::ascend_rt::{CaptureMode, Stream};
use msa_sparse_decode::ascend_sim::Mode;
use msa_sparse_decode::ascend_sim::testing::{argument_blocks, snapshot};
use msa_sparse_decode::npu::{Call, Out, Plan, Status};
use msa_sparse_decode::{DecodeDims, Error};
use op_testkit::compare::{assert_close, assert_same_bits};

const CHIPS: [&str; 2] = ["Ascend910B3", "Ascend950PR_9589"];
const DIMS: DecodeDims = DecodeDims::new(12, 2, 40, 20);

fn setup(precision: Precision) -> Setup {
    let ids = Ids::PerKvHead(vec![4, 0, 1, 3, 1, -1, 0, 5, -1, 2, 4, 1]);
    Setup::new(DIMS, precision, 2, 6, 3).with_ids(ids).with_lens(&[93, 53])
}

fn run(chip: &str, setup: &Setup) -> Vec<f32> {
    let _order = Order::new(Mode::Fast);
    launch(&context(chip).stream().unwrap(), setup, true, true).unwrap()
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
                launch(&stream, &setup(Precision::Bf16), true, false).unwrap();
                launch(&stream, &setup(Precision::F32), false, true).unwrap();
            })
        })
        .collect();
    snapshot(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/argument_blocks.txt"), &text);
}

#[test]
fn what_is_not_seen_has_no_effect_even_as_nan() {
    for chip in CHIPS {
        for precision in [Precision::Bf16, Precision::F32] {
            let clean = setup(precision);
            let expected = run(chip, &clean);
            for poison in [bf16::NAN, bf16::INFINITY] {
                let mut setup = clean.clone();
                let room = setup.blocks * DIMS.block;
                let mut lists = setup.ids.clone();
                for key in 0..2 * 2 * room {
                    let (entry, head, position) = (key / room / 2, key / room % 2, key % room);
                    let list = &lists.values()[(entry * 2 + head) * 3..][..3];
                    let block = (position / DIMS.block) as i32;
                    if position >= clean.seq_lens[entry] || !list.contains(&block) {
                        let range = key * DIMS.head_dim..(key + 1) * DIMS.head_dim;
                        setup.k[range.clone()].fill(poison);
                        setup.v[range].fill(poison);
                    }
                }
                assert_same_bits(chip, &run(chip, &setup), &expected, &clean.shape());
            }
        }
    }
}

#[test]
fn a_nan_that_is_seen_reaches_the_heads_that_see_it_and_no_other() {
    for chip in CHIPS {
        let clean = setup(Precision::Bf16);
        let expected = run(chip, &clean);
        // KV head 1 of entry 0 sees block 3, KV head 0 does not.
        for in_keys in [true, false] {
            let mut setup = clean.clone();
            for head in 0..2 {
                let at = (head * setup.blocks * DIMS.block + 3 * DIMS.block + 7) * DIMS.head_dim + 5;
                if in_keys {
                    setup.k[at] = bf16::NAN;
                } else {
                    setup.v[at] = bf16::NAN;
                }
            }
            for (i, (&out, &expected)) in run(chip, &setup).iter().zip(&expected).enumerate() {
                let (entry, head, channel) = (i / 480, i / 40 % 12, i % 40);
                if entry == 0 && head >= 6 && (in_keys || channel == 5) {
                    assert!(out.is_nan(), "{chip}: {entry} {head} {channel} is {out}");
                } else {
                    assert_eq!(out.to_bits(), expected.to_bits(), "{chip}: {entry} {head} {channel}");
                }
            }
        }
    }
}

/// Nobody checks what is on the device: ids without keys are passed over, lengths are clamped, and no page is read that there
/// is not.
#[test]
fn device_values_that_are_wrong_harm_nobody_else() {
    for chip in CHIPS {
        let good =
            Setup::new(DIMS, Precision::Bf16, 2, 4, 5).with_ids(Ids::Shared(vec![2, 0, 1, -1, -1, 3, 0, -1, -1, -1]));
        let good = good.with_lens(&[80, 75]);
        let expected = run(chip, &good);
        let mut wrong = good.clone();
        *wrong.ids.values() = vec![2, -7, 0, 1, i32::MAX, 3, 4, 0, 99, i32::MIN];
        wrong.seq_lens = vec![1 << 20, 75];
        // Other places in the lists may be other cores' business.
        assert_close(chip, &run(chip, &wrong), &expected, &good.shape(), tolerance(Precision::Bf16));

        let _order = Order::new(Mode::Fast);
        let stream = context(chip).stream().unwrap();
        let mut pages = good.paged();
        (pages.table[1], pages.table[6]) = (-1, i32::MAX);
        let mut plan = Plan::new(&stream, &good.dims, &kind(&good, true, true)).unwrap();
        let out = with_table(&stream, &mut plan, &good, &pages.table);
        // Sequence 0 reads block 1. Sequence 1 does not read its block 2.
        assert!(out[..480] != expected[..480]);
        assert_same_bits(chip, &out[480..], &expected[480..], &[480]);
    }
}

/// What the host still has is checked as on the CPU.
#[test]
fn lists_lengths_and_tables_are_checked_before_they_are_uploaded() {
    let _order = Order::new(Mode::Fast);
    let stream = context(CHIPS[0]).stream().unwrap();
    let setup = Setup::new(DIMS, Precision::Bf16, 2, 4, 5).with_ids(Ids::Shared(vec![2, 0, -1, 3, 1, -1]));
    let setup = setup.with_lens(&[80, 75]);
    let plan = Plan::new(&stream, &DIMS, &kind(&setup, true, true)).unwrap();
    let table = [0, 1, 2, 3, 4, 5, 6, 7];
    let of = |ids: [i32; 6], lens: [usize; 2], table: &[i32]| plan.check(&ids, &lens, Some((table, 8)));
    let good = [2, 0, -1, 3, 1, -1];
    assert!(of(good, [80, 75], &table).unwrap().is_empty());
    // Sequence 1 ends before its blocks.
    let blind = of(good, [80, 20], &table).unwrap();
    assert_eq!(blind.iter().map(|blind| (blind.batch, blind.kv_head)).collect::<Vec<_>>(), [(1, 0), (1, 1)]);
    let error = |ids, lens, table: &[i32]| of(ids, lens, table).unwrap_err();
    assert!(matches!(error([2, 4, -1, 3, 1, -1], [80, 75], &table), Error::BlockId { blocks: 4, found: 4, .. }));
    assert!(matches!(error([2, -1, 0, 3, 1, -1], [80, 75], &table), Error::IdAfterPadding { found: 0, .. }));
    assert!(matches!(error([2, 2, -1, 3, 1, -1], [80, 75], &table), Error::DuplicateId { found: 2, .. }));
    assert!(matches!(error(good, [81, 75], &table), Error::SeqLen { batch: 0, expected: 80, found: 81 }));
    assert!(matches!(error(good, [80, 75], &table[..7]), Error::Length { argument: "block_table", .. }));
    let wrong = [0, 1, 2, 3, 4, 8, 6, 7];
    assert!(matches!(error(good, [80, 75], &wrong), Error::BlockTable { batch: 1, block: 1, pages: 8, found: 8 }));
    assert!(matches!(plan.check(&good, &[80, 75], None), Err(Error::OtherPlan { argument: "block_table", .. })));
    assert!(matches!(plan.check(&good[1..], &[80, 75], Some((&table, 8))), Err(Error::Length { .. })));
}

/// What the device does not take at its word, it says when it is asked.
#[test]
fn wrong_values_and_blind_items_are_reported() {
    let _order = Order::new(Mode::Fast);
    let good =
        Setup::new(DIMS, Precision::Bf16, 2, 4, 5).with_ids(Ids::Shared(vec![2, 0, 1, -1, -1, 3, 0, -1, -1, -1]));
    let good = good.with_lens(&[80, 75]);
    for chip in CHIPS {
        let stream = context(chip).stream().unwrap();
        let of = |ids: [i32; 10], lens: [usize; 2], paged: bool| {
            let mut setup = good.clone();
            *setup.ids.values() = ids.to_vec();
            setup.seq_lens = lens.to_vec();
            let mut status = Status::default();
            launch_with_status(&stream, &setup, paged, true, Some(&mut status)).unwrap();
            (status.clamped, status.index, status.blind)
        };
        let ids = [2, 0, 1, -1, -1, 3, 0, -1, -1, -1];
        for paged in [false, true] {
            assert_eq!(of(ids, [80, 75], paged), (false, false, false), "{chip}");
            assert_eq!(of(ids, [81, 75], paged), (true, false, false), "{chip}");
            assert_eq!(of([2, 0, -2, 1, -1, 3, 0, -1, -1, -1], [80, 75], paged), (false, true, false), "{chip}");
            assert_eq!(of([2, 0, 1, -1, -1, 3, 0, 4, -1, -1], [80, 75], paged), (false, true, false), "{chip}");
            // Sequence 1 ends before its blocks, or has none listed. Its only block may be the last of the list.
            assert_eq!(of([2, 0, 1, -1, -1, 3, 2, -1, -1, -1], [80, 40], paged), (false, false, true), "{chip}");
            assert_eq!(of([2, 0, 1, -1, -1, -1, -1, -1, -1, -1], [80, 75], paged), (false, false, true), "{chip}");
            assert_eq!(of([2, 0, 1, -1, -1, 3, 2, 3, 2, 0], [80, 20], paged), (false, false, false), "{chip}");
            assert_eq!(of(ids, [80, 0], paged), (false, false, true), "{chip}");
        }
        let mut plan = Plan::new(&stream, &DIMS, &kind(&good, true, true)).unwrap();
        let mut pages = good.paged();
        let read = pages.table.clone();
        for (entry, page, expected) in [(1, -1, true), (1, i32::MAX, true), (6, -1, false)] {
            pages.table.clone_from(&read);
            pages.table[entry] = page;
            with_table(&stream, &mut plan, &good, &pages.table);
            assert_eq!(plan.take_status(&stream).unwrap().index, expected, "{chip}: {entry}");
        }
    }
}

fn with_table(stream: &Stream, plan: &mut Plan, setup: &Setup, table: &[i32]) -> Vec<f32> {
    let pages = setup.paged();
    let (Ids::Shared(ids) | Ids::PerKvHead(ids)) = &setup.ids;
    let (q, k, v) =
        (stream.upload(&setup.q).unwrap(), stream.upload(&pages.k).unwrap(), stream.upload(&pages.v).unwrap());
    let (table, ids) = (stream.upload(table).unwrap(), stream.upload(ids).unwrap());
    let lens: Vec<i32> = setup.seq_lens.iter().map(|len| *len as i32).collect();
    let lens = stream.upload(&lens).unwrap();
    let mut out = stream.upload(&vec![0.0f32; setup.q.len()]).unwrap();
    let call = Call {
        queries: (&q).into(),
        keys: (&k).into(),
        values: (&v).into(),
        block_table: Some((&table).into()),
        block_ids: (&ids).into(),
        seq_lens: (&lens).into(),
        out: Out::F32((&mut out).into()),
    };
    plan.launch(stream, call).unwrap();
    stream.download(&out).unwrap()
}

/// A graph that is replayed reads ids, lengths and table of that moment.
#[test]
fn a_captured_launch_follows_ids_and_lengths() {
    let _order = Order::new(Mode::Fast);
    for chip in CHIPS {
        let setup = setup(Precision::Bf16);
        let mut stream = context(chip).stream().unwrap();
        let pages = setup.paged();
        let mut plan = Plan::new(&stream, &setup.dims, &kind(&setup, true, false)).unwrap();
        let (Ids::Shared(list) | Ids::PerKvHead(list)) = setup.ids.clone();
        let (q, k, v) =
            (stream.upload(&setup.q).unwrap(), stream.upload(&pages.k).unwrap(), stream.upload(&pages.v).unwrap());
        let table = stream.upload(&pages.table).unwrap();
        let (mut ids, mut lens) = (stream.upload(&list).unwrap(), stream.upload(&[93, 53]).unwrap());
        let mut out = stream.upload(&vec![bf16::NAN; setup.q.len()]).unwrap();
        let mut graph = stream
            .capture(CaptureMode::default(), |capture| {
                let call = Call {
                    queries: (&q).into(),
                    keys: (&k).into(),
                    values: (&v).into(),
                    block_table: Some((&table).into()),
                    block_ids: (&ids).into(),
                    seq_lens: (&lens).into(),
                    out: Out::Bf16((&mut out).into()),
                };
                plan.launch(capture, call).map_err(|error| match error {
                    Error::Device(error) => error,
                    error => panic!("{error}"),
                })
            })
            .unwrap();
        let mut turned = list.clone();
        turned.chunks_exact_mut(3).for_each(<[i32]>::reverse);
        turned.iter_mut().for_each(|id| *id = (*id).max(0));
        turned[8] = 2;
        turned[3] = 4;
        for (list, lengths) in [(&list, [93, 53]), (&list, [94, 7]), (&turned, [120, 20])] {
            stream.upload_to(list, &mut ids).unwrap();
            stream.upload_to(&lengths, &mut lens).unwrap();
            graph.replay(&stream).unwrap();
            let replayed: Vec<f32> = stream.download(&out).unwrap().into_iter().map(bf16::to_f32).collect();
            let mut now = setup.clone().with_lens(&lengths.map(|len| len as usize));
            now.ids.values().clone_from(list);
            let fresh = launch(&context(chip).stream().unwrap(), &now, true, false).unwrap();
            assert_same_bits(chip, &replayed, &fresh, &setup.shape());
        }
    }
}

#[test]
fn calls_that_do_not_fit_their_plan_are_refused() {
    let _order = Order::new(Mode::Fast);
    let stream = context(CHIPS[0]).stream().unwrap();
    let setup = setup(Precision::Bf16);
    let (q, k) = (stream.upload(&setup.q).unwrap(), stream.upload(&setup.k).unwrap());
    let (ids, lens, table) =
        (stream.upload(&[0; 12]).unwrap(), stream.upload(&[1; 2]).unwrap(), stream.upload(&[0; 12]).unwrap());
    let mut out = stream.upload(&vec![bf16::ZERO; setup.q.len()]).unwrap();
    let mut wide = stream.upload(&vec![0.0f32; setup.q.len()]).unwrap();
    let mut refusal = |paged: bool, table_there: bool, f32_out: bool, ids_there: usize| {
        let mut plan = Plan::new(&stream, &setup.dims, &kind(&setup, paged, false)).unwrap();
        let call = Call {
            queries: (&q).into(),
            keys: (&k).into(),
            values: (&k).into(),
            block_table: table_there.then(|| (&table).into()),
            block_ids: ids.slice(..ids_there).unwrap(),
            seq_lens: (&lens).into(),
            out: if f32_out { Out::F32((&mut wide).into()) } else { Out::Bf16((&mut out).into()) },
        };
        plan.launch(&stream, call).map_err(|error| error.to_string())
    };
    assert_eq!(refusal(false, false, false, 12), Ok(()));
    let plan =
        |argument: &str, expected: &str| Err(format!("`{argument}` does not fit the plan, which is for {expected}"));
    assert_eq!(refusal(false, true, false, 12), plan("block_table", "a plain cache"));
    assert_eq!(refusal(true, false, false, 12), plan("block_table", "a paged cache"));
    assert_eq!(refusal(false, false, true, 12), plan("out", "a BF16 result"));
    let found = refusal(false, false, false, 11).unwrap_err();
    assert!(found.contains("`block_ids`") && found.contains("[2, 2, 3]"), "{found}");
}
