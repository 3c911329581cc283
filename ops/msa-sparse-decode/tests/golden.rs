// SPDX-License-Identifier: MIT OR Apache-2.0

//! The golden cases as setups, and the oracle against them.

use crate::fixture::{Ids, Setup};
use cpu_tiles::Precision;
use msa_sparse_decode::DecodeDims;
use op_testkit::compare::{Tolerance, assert_close};
use op_testkit::golden::{Case, Ops};

/// That of the golden data.
pub(crate) fn tolerance(precision: Precision) -> Tolerance {
    match precision {
        Precision::F32 => Tolerance::abs(1e-4),
        Precision::Bf16 => Tolerance::abs(1e-2),
    }
}

pub(crate) fn setup(case: &Case<'_>, precision: Precision) -> Setup {
    let size = |key| case.usize(key).unwrap();
    let values = |name| case.tensor(name).unwrap().bf16().unwrap();
    let ids = case.tensor("block_ids").unwrap();
    let lists = ids.i32().unwrap();
    Setup {
        dims: DecodeDims::new(size("HQ"), size("HKV"), size("D"), size("block")),
        precision,
        batch: size("B"),
        blocks: size("nb"),
        q: values("q"),
        k: values("k_blocks"),
        v: values("v_blocks"),
        ids: if ids.shape().len() == 3 { Ids::PerKvHead(lists) } else { Ids::Shared(lists) },
        seq_lens: vec![size("seq_len"); size("B")],
    }
}

#[test]
fn there_are_nine_cases_at_the_geometry_of_m3() {
    let ops = Ops::open("msa_sparse_decode").unwrap();
    let cases: Vec<_> = ops.cases().collect();
    assert_eq!(cases.len(), 9);
    for case in &cases {
        assert_eq!(setup(case, Precision::F32).dims, DecodeDims::M3);
    }
}

#[test]
fn the_oracle_gives_the_golden_data() {
    let ops = Ops::open("msa_sparse_decode").unwrap();
    for name in ["nb1_five_keys", "nb4_short", "per_kv_head_ids"] {
        let case = ops.case(name).unwrap();
        let expected = case.tensor("out").unwrap();
        for precision in [Precision::F32, Precision::Bf16] {
            let actual = setup(&case, precision).expected();
            assert_close(name, &actual, &expected.f32().unwrap(), expected.shape(), tolerance(precision));
        }
    }
}
