// SPDX-License-Identifier: MIT OR Apache-2.0

//! What must hold whatever the numbers are.

use crate::fixture::{Call, DTYPES, TOLERANCE, levels, scales};
use cpu_tiles::{E8M0, Level};
use gmm_finalize_routing::{Dims, Dtype};
use op_testkit::compare::{assert_close, assert_same_bits};
use op_testkit::strategies::{any_f32, expert_counts, tile_edge_size};
use proptest::prelude::*;
use proptest::sample::{Index, select};

#[derive(Clone, Debug)]
struct Setup {
    level: Level,
    dtype: Dtype,
    dims: Dims,
    counts: Vec<usize>,
    batch: usize,
    seed: u64,
    transpose_x2: bool,
    per_expert: bool,
    has_logit: bool,
    has_shared: bool,
}

impl Setup {
    fn call(&self) -> Call {
        let Dims { experts, k, n } = self.dims;
        let mut call = Call::new(self.dtype, self.dims, &self.counts, self.batch, self.seed);
        if self.per_expert {
            call.per_expert = true;
            call.scale = scales(self.seed + 7, experts * n * k.div_ceil(64) * 2);
        }
        if !self.transpose_x2 {
            call = call.in_other_layout();
        }
        if !self.has_logit {
            call.logit = None;
        }
        if !self.has_shared {
            call.shared_input = None;
        }
        // Some other order of the rows of the output, with collisions.
        let step = 1 + self.seed as usize % self.batch;
        for (row, index) in call.row_index.iter_mut().enumerate() {
            *index = (row * step % self.batch) as i64;
        }
        call
    }

    /// A call in which every row of the output gets at most one row.
    fn call_without_collisions(&self) -> Call {
        let mut call = Call::new(self.dtype, self.dims, &self.counts, self.rows().max(1), self.seed);
        call.row_index.reverse();
        call
    }

    fn rows(&self) -> usize {
        self.counts.iter().sum()
    }
}

fn setups() -> impl Strategy<Value = Setup> {
    // K is 32 times an even or an odd number.
    let dims = (1..=5usize, 1..=11usize, tile_edge_size(1..=140));
    let kind = (select(levels()), select(DTYPES.to_vec()), any::<[bool; 4]>());
    (dims, kind, 0..=30usize, 1..=9usize, any::<u32>()).prop_flat_map(|(dims, kind, total, batch, seed)| {
        let (experts, groups, n) = dims;
        let (level, dtype, [transpose_x2, per_expert, has_logit, has_shared]) = kind;
        expert_counts(experts, total).prop_map(move |counts| Setup {
            level,
            dtype,
            dims: Dims { experts, k: 32 * groups, n },
            counts,
            batch,
            seed: seed.into(),
            transpose_x2,
            per_expert,
            has_logit,
            has_shared,
        })
    })
}

/// The rows of each expert.
fn ranges(counts: &[usize]) -> Vec<Vec<usize>> {
    let mut end = 0;
    counts
        .iter()
        .map(|count| {
            end += count;
            (end - count..end).collect()
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn agrees_with_the_reference(setup in setups()) {
        let call = setup.call();
        assert_close("out", &call.run(setup.level), &call.expected(), &call.shape(), TOLERANCE);
    }

    #[test]
    fn both_layouts_packed_or_not_agree_in_every_bit(setup in setups()) {
        let call = setup.call();
        let expected = call.run(setup.level);
        let other = call.in_other_layout();
        assert_same_bits("packed", &call.run_packed(setup.level), &expected, &call.shape());
        assert_same_bits("other layout", &other.run(setup.level), &expected, &call.shape());
        assert_same_bits("other layout, packed", &other.run_packed(setup.level), &expected, &call.shape());
    }

    #[test]
    fn counts_and_running_ends_agree_in_every_bit(setup in setups()) {
        let call = setup.call();
        let mut other = call.clone();
        other.group_list_type = 0;
        let mut end = 0;
        for entry in &mut other.group_list {
            end += *entry;
            *entry = end;
        }
        assert_same_bits("ends", &other.run(setup.level), &call.run(setup.level), &call.shape());
    }

    #[test]
    fn one_scale_for_all_experts_is_the_same_for_each(setup in setups()) {
        let mut setup = setup;
        setup.per_expert = false;
        let call = setup.call();
        let mut other = call.clone();
        other.per_expert = true;
        other.scale = call.scale.repeat(setup.dims.experts);
        assert_same_bits("per expert", &other.run(setup.level), &call.run(setup.level), &call.shape());
        assert_same_bits("packed", &other.run_packed(setup.level), &call.run(setup.level), &call.shape());
    }

    #[test]
    fn rows_that_nothing_is_added_to_keep_their_bits(setup in setups(), init in prop::collection::vec(any_f32(), 1..40)) {
        let mut call = setup.call();
        for (value, init) in call.out.iter_mut().zip(init.iter().cycle()) {
            *value = *init;
        }
        // Every second row of the output is left alone.
        call.row_index.iter_mut().for_each(|index| *index -= *index % 2);
        call.shared_input = None;
        let out = call.run(setup.level);
        let n = setup.dims.n;
        for row in (0..call.batch()).filter(|row| !call.row_index.contains(&(*row as i64))) {
            assert_same_bits("row", &out[row * n..(row + 1) * n], &call.out[row * n..(row + 1) * n], &[n]);
        }
    }

    #[test]
    fn the_order_of_experts_and_rows_has_no_effect_without_collisions(setup in setups(), by in any::<Index>()) {
        let call = setup.call_without_collisions();
        let expected = call.run(setup.level);
        // Experts rotated, and the rows of each.
        let experts = setup.dims.experts;
        let by = by.index(experts);
        let order: Vec<usize> = (0..experts).map(|expert| (expert + by) % experts).collect();
        let mut groups = ranges(&setup.counts);
        groups.iter_mut().filter(|rows| !rows.is_empty()).for_each(|rows| rows.rotate_left(1));
        let which: Vec<usize> = order.iter().flat_map(|&expert| groups[expert].clone()).collect();
        let counts: Vec<usize> = order.iter().map(|&expert| setup.counts[expert]).collect();
        let mut other = call.select(&which, &counts);
        let size = setup.dims.k * setup.dims.n;
        other.x2 = call.x2.pick(order.iter().flat_map(|&expert| expert * size..(expert + 1) * size));
        assert_same_bits("reordered", &other.run(setup.level), &expected, &call.shape());
    }

    #[test]
    fn the_order_of_rows_that_collide_changes_rounding_only(setup in setups()) {
        let call = setup.call();
        let which: Vec<usize> = ranges(&setup.counts).into_iter().flat_map(|rows| rows.into_iter().rev()).collect();
        let other = call.select(&which, &setup.counts);
        assert_close("reversed", &other.run(setup.level), &call.expected(), &call.shape(), TOLERANCE);
    }

    #[test]
    fn splitting_a_call_changes_nothing(setup in setups(), share in 0.0..=1.0) {
        let call = setup.call();
        let whole = call.run(setup.level);
        let cut = (setup.rows() as f64 * share) as usize;
        let of = |rows: std::ops::Range<usize>| {
            let counts: Vec<usize> = ranges(&setup.counts)
                .into_iter()
                .map(|group| group.into_iter().filter(|row| rows.contains(row)).count())
                .collect();
            call.select(&rows.collect::<Vec<_>>(), &counts)
        };
        let mut first = of(0..cut);
        first.shared_input = None;
        let mut second = of(cut..setup.rows());
        second.out = first.run(setup.level);
        assert_same_bits("in two calls", &second.run(setup.level), &whole, &call.shape());
    }

    #[test]
    fn logits_scale_the_products(setup in setups(), power in -6i32..=6) {
        let factor = 2f32.powi(power);
        let mut call = setup.call();
        call.shared_input = None;
        call.out.fill(0.0);
        let expected: Vec<f32> = call.run(setup.level).into_iter().map(|value| value * factor).collect();
        let logit = call.logit.get_or_insert_with(|| vec![1.0; setup.rows()]);
        logit.iter_mut().for_each(|logit| *logit *= factor);
        assert_same_bits("scaled", &call.run(setup.level), &expected, &call.shape());
    }

    #[test]
    fn no_logit_is_a_logit_of_one(setup in setups()) {
        let mut call = setup.call();
        call.logit = None;
        let expected = call.run(setup.level);
        call.logit = Some(vec![1.0; setup.rows()]);
        assert_same_bits("ones", &call.run(setup.level), &expected, &call.shape());
    }

    #[test]
    fn powers_of_two_move_between_the_scales(setup in setups(), power in -9i8..=9) {
        let call = setup.call();
        let moved = |scales: &[E8M0], power: i8| {
            let moved = |scale: &E8M0| E8M0::from_bits(scale.to_bits().checked_add_signed(power).unwrap());
            scales.iter().map(moved).collect::<Vec<_>>()
        };
        let mut other = call.clone();
        other.pertoken_scale = moved(&call.pertoken_scale, power);
        other.scale = moved(&call.scale, -power);
        assert_same_bits("moved", &other.run(setup.level), &call.run(setup.level), &call.shape());
    }
}

/// Rows after the end of the group list add nothing, and nothing of them is looked at.
#[test]
fn rows_beyond_the_group_list_are_ignored_and_reported() {
    for dtype in DTYPES {
        let dims = Dims { experts: 3, k: 96, n: 70 };
        let long = Call::new(dtype, dims, &[2, 0, 9], 4, 1);
        let covered: Vec<usize> = (0..8).collect();
        let expected = long.select(&covered, &[2, 0, 6]).run(Level::best());
        for (group_list_type, group_list) in [(0, [2, 2, 8]), (1, [2, 0, 6])] {
            let mut call = long.clone();
            (call.group_list_type, call.group_list) = (group_list_type, group_list.to_vec());
            call.row_index[8..].copy_from_slice(&[-1, 99, i64::MAX]);
            call.logit.as_mut().unwrap()[8..].fill(f32::NAN);
            call.pertoken_scale[8 * 4..].fill(E8M0::NAN);
            for (what, experts) in [("in place", None), ("packed", Some(call.pack(Level::best())))] {
                let (out, rows) = match &experts {
                    None => call.run_with(Level::best(), 2, call.weights()).unwrap(),
                    Some(packed) => call.run_with(Level::best(), 2, packed).unwrap(),
                };
                assert_eq!(rows, 8, "{what}");
                assert_same_bits(what, &out, &expected, &call.shape());
            }
        }
    }
}
