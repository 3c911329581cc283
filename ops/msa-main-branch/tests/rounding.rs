// SPDX-License-Identifier: MIT OR Apache-2.0

//! The rounding points of the contract, and no others.

use crate::fixture::{F32_TOLERANCE, Kind, Lists, Sequence, array, dims, levels, run_plain};
use cpu_tiles::Precision;
use msa_main_branch::{AttentionDims, reference};
use op_testkit::compare::Comparison;

const N: usize = 24;

/// Keys of one block, so that the first maximum is the last. With BF16 rounding of the probabilities all but a few rows
/// agree with the reference to F32 accuracy: those where an exponential is so near the middle of two neighbours that its last
/// bits decide. Without the rounding no row does; nor does any with it in F16 mode.
#[test]
fn probabilities_are_rounded_in_bf16_mode_only() {
    let dims = dims(2, 2, 40, 100);
    for kind in [Kind::Bf16, Kind::F16, Kind::F32] {
        let sequence = Sequence::new(dims, kind, 70, N, 0, 9);
        let AttentionDims { heads, kv_heads, head_dim, .. } = dims;
        let q = array(&sequence.q, heads, head_dim);
        let [k, v] = [&sequence.k, &sequence.v].map(|values| array(values, kv_heads, head_dim));
        let of = |precision| -> Vec<f32> {
            let (q, k, v) = (q.view(), k.view(), v.view());
            let (out, _) =
                reference::msa_main_branch(&dims, precision, q, sequence.start, k, v, Lists::All.get()).unwrap();
            out.into_iter().collect()
        };
        let agreeing = |actual: &[f32], expected: &[f32]| {
            let rows = actual.chunks_exact(head_dim).zip(expected.chunks_exact(head_dim));
            rows.filter(|(a, e)| Comparison::new(a, e, &[head_dim]).check(F32_TOLERANCE).is_ok()).count()
        };
        let (rounded, unrounded) = (of(Precision::Bf16), of(Precision::F32));
        assert_eq!(agreeing(&unrounded, &rounded), 0, "the rounding shows in every row");
        for level in levels() {
            let (out, _) = run_plain(level, &sequence, &Lists::All);
            let (right, wrong) = if kind == Kind::Bf16 { (&rounded, &unrounded) } else { (&unrounded, &rounded) };
            let rows = N * heads;
            let found = agreeing(&out, right);
            assert!(found >= rows - rows / 8, "{kind:?} at {level}: {found} of {rows} rows agree");
            assert!(agreeing(&out, wrong) <= rows / 8, "{kind:?} at {level}");
        }
    }
}
