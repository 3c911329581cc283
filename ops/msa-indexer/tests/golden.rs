// SPDX-License-Identifier: MIT OR Apache-2.0

//! The golden data: how it is read, and what it says about the oracle and about scores in BF16.

use crate::fixture::{Owned, REDUCES, Sequence};
use half::bf16;
use msa_indexer::{HeadReduce, IndexerDims};
use op_testkit::compare::{Tolerance, assert_close};
use op_testkit::golden::{Case, Ops};

/// What the golden data admits.
pub(crate) const TOLERANCE: Tolerance = Tolerance { abs: 1e-4, rel: 0.0, rel_to_max: 0.0 };

/// A golden case: a decode step, and its ids and scores. Unlike those of other sequences the keys go on to the end of the
/// last block.
pub(crate) fn read(case: &Case<'_>, reduce: HeadReduce) -> (Sequence, (Vec<i32>, Vec<f32>)) {
    let size = |name| case.usize(name).unwrap();
    let values = |name| case.tensor(name).unwrap().bf16().unwrap();
    let [init_blocks, local_blocks] = ["init_blocks", "local_blocks"].map(size);
    let dims = IndexerDims { topk: size("topk"), init_blocks, local_blocks, reduce, ..IndexerDims::M3 };
    let length = size("length");
    let all = values("idx_k");
    assert_eq!(all.len(), size("nb") * dims.block * dims.head_dim);
    let keys = Owned::Bf16(all[..length * dims.head_dim].to_vec());
    let form = match reduce {
        HeadReduce::PerKvHead => "per_head",
        HeadReduce::Shared => "shared",
    };
    let ids = case.tensor(&format!("ids_{form}")).unwrap().i32().unwrap();
    let scores = case.tensor(&format!("block_scores_{form}")).unwrap().f32().unwrap();
    (Sequence { dims, start: length - 1, queries: Owned::Bf16(values("idx_q")), keys }, (ids, scores))
}

#[test]
fn there_are_seven_cases() {
    assert_eq!(Ops::open("msa_indexer").unwrap().case_names().len(), 7);
}

#[test]
fn the_oracle_gives_the_golden_data() {
    let ops = Ops::open("msa_indexer").unwrap();
    for case in ops.cases() {
        for reduce in REDUCES {
            let (sequence, (ids, scores)) = read(&case, reduce);
            let expected = sequence.expected();
            assert_eq!(expected.0, ids, "{} {reduce:?}", case.name());
            assert_close(case.name(), &expected.1, &scores, &sequence.scores_shape(), TOLERANCE);
        }
    }
}

/// The margins of the golden data are wider than a BF16 step, so an implementation that rounds scores selects the same.
#[test]
fn scores_rounded_to_bf16_select_the_same_blocks() {
    let ops = Ops::open("msa_indexer").unwrap();
    for case in ops.cases() {
        for reduce in REDUCES {
            let (sequence, (ids, scores)) = read(&case, reduce);
            let rounded: Vec<f32> = scores.iter().map(|&score| bf16::from_f32(score).to_f32()).collect();
            assert_eq!(sequence.ids_of(&rounded), ids, "{} {reduce:?}", case.name());
        }
    }
}
