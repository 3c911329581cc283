// SPDX-License-Identifier: MIT OR Apache-2.0

//! What must hold whatever the numbers are.

use crate::fixture::{
    Choices, FORMATS, Matrix, Moe, Rows, Values, combined, cumsum, eager, expected_combined, expected_grouped, grouped,
    grouped_f32, levels, pool, tolerance,
};
use cpu_tiles::{E8M0, Format, Level, Precision};
use grouped_gemm::{Activation, Expert, MoeDims};
use op_testkit::compare::{assert_close, assert_same_bits};
use op_testkit::strategies::{expert_counts, tile_edge_size};
use proptest::prelude::*;
use proptest::sample::select;

#[derive(Clone, Debug)]
struct Setup {
    dims: MoeDims,
    format: Format,
    precision: Precision,
    level: Level,
    counts: Vec<usize>,
    seed: u64,
}

impl Setup {
    fn moe(&self) -> Moe {
        Moe::new(self.dims, self.format, self.seed)
    }

    fn rows(&self) -> Rows {
        Rows::new(self.precision, self.tokens(), self.dims.hidden, self.seed + 1)
    }

    fn tokens(&self) -> usize {
        self.counts.iter().sum()
    }

    fn shape(&self) -> [usize; 2] {
        [self.tokens(), self.dims.hidden]
    }

    /// Choices of between one and all experts.
    fn choices(&self) -> Choices {
        let k = 1 + self.seed as usize % self.dims.experts;
        Choices::new(self.tokens(), self.dims.experts, k, self.seed + 2)
    }

    fn grouped(&self, rows: &Rows, experts: &[Expert<'_>], counts: &[usize]) -> Vec<f32> {
        grouped(self.level, &pool(2), &self.dims, rows, experts, &cumsum(counts)).unwrap()
    }

    fn combined(&self, rows: &Rows, experts: &[Expert<'_>], choices: &Choices) -> Vec<f32> {
        combined(self.level, &pool(2), &self.dims, rows, experts, choices).unwrap()
    }
}

/// Setups with sizes of at least `least`.
fn setups(least: usize) -> impl Strategy<Value = Setup> {
    let size = move || tile_edge_size(least..=150);
    let dims = (1..=6usize, size(), size(), select(vec![Activation::Silu, Activation::SWIGLU_OAI]));
    let kind = (select(FORMATS.to_vec()), select(vec![Precision::Bf16, Precision::F32]), select(levels()));
    (dims, kind, 0..=40usize, any::<u32>()).prop_flat_map(|(dims, (format, precision, level), total, seed)| {
        let (experts, hidden, intermediate, activation) = dims;
        let dims = MoeDims { experts, hidden, intermediate, activation };
        expert_counts(experts, total).prop_map(move |counts| Setup {
            dims,
            format,
            precision,
            level,
            counts,
            seed: seed.into(),
        })
    })
}

/// Rows `range` of each expert, as one call's tokens.
fn select_rows(rows: &Rows, hidden: usize, which: impl IntoIterator<Item = usize>) -> Rows {
    fn pick<T: Copy>(values: &[T], hidden: usize, which: impl IntoIterator<Item = usize>) -> Vec<T> {
        which.into_iter().flat_map(|row| values[row * hidden..][..hidden].iter().copied()).collect()
    }
    match rows {
        Rows::Bf16(values) => Rows::Bf16(pick(values, hidden, which)),
        Rows::F32(values) => Rows::F32(pick(values, hidden, which)),
    }
}

fn rows_of(values: &[f32], hidden: usize, which: impl IntoIterator<Item = usize>) -> Vec<f32> {
    which.into_iter().flat_map(|row| values[row * hidden..][..hidden].iter().copied()).collect()
}

/// The weight times 2^`power`, exactly.
fn scaled(matrix: &Matrix, power: i8) -> Matrix {
    let factor = 2f32.powi(power.into());
    let mut matrix = matrix.clone();
    match &mut matrix.values {
        Values::F32(values) | Values::Fp8Block { scales: values, .. } => values.iter_mut().for_each(|x| *x *= factor),
        Values::Bf16(values) => values.iter_mut().for_each(|x| *x = half::bf16::from_f32(x.to_f32() * factor)),
        Values::Mxfp8 { scales, .. } => {
            scales.iter_mut().for_each(|x| *x = E8M0::from_bits(x.to_bits().checked_add_signed(power).unwrap()));
        }
    }
    matrix
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn both_operators_agree_with_the_reference(setup in setups(15)) {
        let (moe, rows, choices) = (setup.moe(), setup.rows(), setup.choices());
        let tolerance = tolerance(setup.precision);
        let actual = setup.grouped(&rows, &moe.row_major(), &setup.counts);
        let expected = expected_grouped(&moe, &rows, &cumsum(&setup.counts));
        assert_close("grouped", &actual, &expected, &setup.shape(), tolerance);

        let fused = setup.combined(&rows, &moe.row_major(), &choices);
        assert_close("combined", &fused, &expected_combined(&moe, &rows, &choices), &setup.shape(), tolerance);
    }

    #[test]
    fn fused_and_eager_agree_in_every_bit(setup in setups(1)) {
        let (moe, rows, choices) = (setup.moe(), setup.rows(), setup.choices());
        let fused = setup.combined(&rows, &moe.row_major(), &choices);
        let eager = eager(setup.level, &pool(2), &setup.dims, &rows, &moe.row_major(), &choices).unwrap();
        assert_same_bits("fused and eager", &fused, &eager, &setup.shape());
    }

    #[test]
    fn permuting_experts_with_their_rows_permutes_the_result(setup in setups(1)) {
        let (moe, rows) = (setup.moe(), setup.rows());
        let expected = setup.grouped(&rows, &moe.row_major(), &setup.counts);

        let order = Choices::new(1, setup.dims.experts, setup.dims.experts, setup.seed).ids;
        let order: Vec<usize> = order.into_iter().map(|expert| expert as usize).collect();
        let begins = cumsum(&setup.counts);
        let which: Vec<usize> =
            order.iter().flat_map(|&e| begins[e] as usize..begins[e + 1] as usize).collect();
        let experts: Vec<_> = order.iter().map(|&expert| moe.row_major()[expert]).collect();
        let counts: Vec<_> = order.iter().map(|&expert| setup.counts[expert]).collect();
        let hidden = setup.dims.hidden;
        let actual = setup.grouped(&select_rows(&rows, hidden, which.iter().copied()), &experts, &counts);
        assert_same_bits("permuted", &actual, &rows_of(&expected, hidden, which), &setup.shape());
    }

    #[test]
    fn splitting_a_call_changes_nothing(setup in setups(1), share in 0.0..=1.0) {
        let (moe, rows, choices) = (setup.moe(), setup.rows(), setup.choices());
        let hidden = setup.dims.hidden;
        let whole = setup.grouped(&rows, &moe.row_major(), &setup.counts);
        let begins = cumsum(&setup.counts);
        let cut = |expert: usize| begins[expert] as usize + (setup.counts[expert] as f64 * share) as usize;
        let experts = 0..setup.dims.experts;
        let parts = [
            experts.clone().map(|e| begins[e] as usize..cut(e)).collect::<Vec<_>>(),
            experts.map(|e| cut(e)..begins[e + 1] as usize).collect(),
        ];
        for ranges in parts {
            let counts: Vec<_> = ranges.iter().map(|range| range.len()).collect();
            let which: Vec<_> = ranges.into_iter().flatten().collect();
            let part = setup.grouped(&select_rows(&rows, hidden, which.iter().copied()), &moe.row_major(), &counts);
            assert_same_bits("part", &part, &rows_of(&whole, hidden, which.iter().copied()), &[which.len(), hidden]);
        }

        let whole = setup.combined(&rows, &moe.row_major(), &choices);
        let cut = (setup.tokens() as f64 * share) as usize;
        for range in [0..cut, cut..setup.tokens()] {
            let of_range = range.start * choices.k..range.end * choices.k;
            let part = Choices {
                k: choices.k,
                ids: choices.ids[of_range.clone()].to_vec(),
                weights: choices.weights[of_range].to_vec(),
            };
            let out = setup.combined(&select_rows(&rows, hidden, range.clone()), &moe.row_major(), &part);
            assert_same_bits("part", &out, &whole[range.start * hidden..range.end * hidden], &[range.len(), hidden]);
        }
    }

    #[test]
    fn scaling_down_proj_by_a_power_of_two_is_exact(setup in setups(1), power in -6i8..=6) {
        let (mut moe, rows, factor) = (setup.moe(), setup.rows(), 2f32.powi(power.into()));
        let run = |moe: &Moe| {
            let cumsum = cumsum(&setup.counts);
            grouped_f32(setup.level, &pool(2), &setup.dims, &rows, &moe.row_major(), &cumsum).unwrap()
        };
        let expected: Vec<f32> = run(&moe).into_iter().map(|sum| sum * factor).collect();
        for [_, _, down] in &mut moe.experts {
            *down = scaled(down, power);
        }
        assert_same_bits("scaled", &run(&moe), &expected, &setup.shape());
    }

    #[test]
    fn the_order_of_choices_has_no_effect_and_weights_scale(setup in setups(1)) {
        let (moe, rows, choices) = (setup.moe(), setup.rows(), setup.choices());
        let expected = setup.combined(&rows, &moe.row_major(), &choices);
        let mut other = choices.clone();
        other.ids.chunks_exact_mut(choices.k).for_each(|ids| ids.rotate_left(choices.k / 2));
        other.weights.chunks_exact_mut(choices.k).for_each(|weights| weights.rotate_left(choices.k / 2));
        other.weights.iter_mut().for_each(|weight| *weight *= 4.0);
        let actual = setup.combined(&rows, &moe.row_major(), &other);
        let expected: Vec<f32> = expected.into_iter().map(|sum| 4.0 * sum).collect();
        assert_same_bits("reordered", &actual, &expected, &setup.shape());
    }
}
