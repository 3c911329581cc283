// SPDX-License-Identifier: MIT OR Apache-2.0

//! Golden data that is not a problem of the conformance suite: the oracle, and selections made inside the golden models.

use crate::fixture::{Data, Output, Setup};
use msa_indexer::{HeadReduce, IndexerDims, reference};
use ndarray::Array3;
use op_testkit::compare::{Tolerance, assert_close};
use op_testkit::golden::{self, Case, Ops};

pub(crate) const TOLERANCE: Tolerance = Tolerance::abs(1e-4);

/// A golden case in one reduction, and what it gives.
pub(crate) fn setup(case: &Case<'_>, reduce: HeadReduce) -> (Setup, Output) {
    let size = |key: &str| case.usize(key).unwrap();
    let queries = case.tensor("idx_q").unwrap();
    let (heads, head_dim) = (queries.shape()[0], queries.shape()[1]);
    let mut keys = case.tensor("idx_k").unwrap().bf16().unwrap();
    let dims = IndexerDims {
        heads,
        head_dim,
        block: keys.len() / head_dim / size("nb"),
        topk: size("topk"),
        init_blocks: size("init_blocks"),
        local_blocks: size("local_blocks"),
        reduce,
    };
    let suffix = match reduce {
        HeadReduce::PerKvHead => "per_head",
        HeadReduce::Shared => "shared",
    };
    let expected = Output {
        ids: case.tensor(&format!("ids_{suffix}")).unwrap().i32().unwrap(),
        scores: case.tensor(&format!("block_scores_{suffix}")).unwrap().f32().unwrap(),
    };
    keys.truncate(size("length") * head_dim);
    let queries = Data::Bf16(queries.bf16().unwrap());
    (Setup { dims, queries, start: size("length") - 1, keys: Data::Bf16(keys) }, expected)
}

#[test]
fn the_oracle_gives_the_golden_data() {
    let ops = Ops::open("msa_indexer").unwrap();
    assert_eq!(ops.cases().count(), 7);
    for case in ops.cases() {
        for reduce in [HeadReduce::PerKvHead, HeadReduce::Shared] {
            let (setup, expected) = setup(&case, reduce);
            let oracle = setup.expected();
            assert_eq!(oracle.ids, expected.ids, "{}, {reduce:?}", case.name());
            assert_close(case.name(), &oracle.scores, &expected.scores, &[expected.scores.len()], TOLERANCE);
        }
    }
}

/// The block scores of every sparse layer give the blocks that the model chose there.
#[test]
fn the_oracle_selects_what_the_golden_models_select() {
    let mut selections = 0;
    for (model, topk) in [("m3-tiny-bf16", 2), ("m3-tiny-mxfp8", 3)] {
        let file = golden::open(format!("models/{model}/expected.safetensors")).unwrap();
        let positions = file.tensor("long.positions").unwrap().i64().unwrap();
        for layer in 3..5 {
            let scores = file.tensor(&format!("long.layer{layer}.msa_block_scores")).unwrap();
            let blocks = file.tensor(&format!("long.layer{layer}.msa_blocks")).unwrap();
            let (shape, [heads, queries, width]) =
                (scores.shape().to_vec(), <[usize; 3]>::try_from(blocks.shape().to_vec()).unwrap());
            assert_eq!((shape[0], shape[1], width), (heads, positions.len(), topk));
            let (scores, blocks) = (scores.f32().unwrap(), blocks.i32().unwrap());
            for head in 0..heads {
                for (row, &position) in positions.iter().enumerate() {
                    let dims = IndexerDims { heads: 1, topk, ..IndexerDims::M3 };
                    let of_row = &scores[(head * shape[1] + row) * shape[2]..][..shape[2]];
                    let of_row = Array3::from_shape_vec((1, 1, shape[2]), of_row.to_vec()).unwrap();
                    let ids = reference::select(&dims, of_row.view(), position as usize).unwrap();
                    let expected = &blocks[(head * queries + position as usize) * width..][..width];
                    let what = format!("{model}, layer {layer}, head {head}, position {position}");
                    assert_eq!(ids.as_slice().unwrap(), expected, "{what}");
                    selections += usize::from(position as usize >= topk * dims.block);
                }
            }
        }
    }
    assert!(selections > 20, "only {selections} selections had a choice");
}
