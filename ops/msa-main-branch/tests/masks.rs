// SPDX-License-Identifier: MIT OR Apache-2.0

//! The additive mask of the published form.

use crate::fixture::{
    Gathered, KINDS, Kind, Lists, Sequence, Values, dims, expected_masked, levels, mask_of_positions, pool, run,
    run_masked, shuffled,
};
use cpu_tiles::Level;
use half::bf16;
use msa_main_branch::{AttentionDims, MASK_NEG};
use op_testkit::compare::{assert_close, assert_same_bits};
use op_testkit::fill_f32;
use proptest::prelude::*;
use proptest::sample::select;

#[derive(Clone, Debug)]
struct Setup {
    dims: AttentionDims,
    kind: Kind,
    level: Level,
    n: usize,
    slots: usize,
    seed: u64,
}

impl Setup {
    fn sequence(&self) -> Sequence {
        // So that every slot can hold a block.
        let tokens = self.n.max(self.slots * self.dims.block);
        Sequence::new(self.dims, self.kind, 0, self.n, tokens - self.n, self.seed)
    }

    fn shape(&self) -> [usize; 3] {
        [self.n, self.dims.heads, self.dims.head_dim]
    }

    fn gathered(&self) -> Gathered {
        self.sequence().gathered(&(0..self.slots as i32).collect::<Vec<_>>())
    }

    /// Entries of every kind: hidden by -1e9, by less and by minus infinity, zero, other numbers.
    fn mask(&self) -> Vec<f32> {
        let block = self.dims.block;
        let entries = self.n.div_ceil(block) * self.slots * block * block;
        // Some rows of a slot are hidden throughout, some have nothing to add.
        let rows = fill_f32(self.seed + 10, entries / block, 1.0);
        let value = |(at, x): (usize, f32)| match (rows[at / block], x) {
            (..-0.6, _) => MASK_NEG,
            (-0.6..0.0, ..0.0) => MASK_NEG,
            (-0.6..0.0, _) => 0.0,
            (_, ..-0.6) => f32::NEG_INFINITY,
            (_, -0.6..-0.4) => 2.0 * MASK_NEG,
            (_, -0.4..-0.2) => 0.0,
            _ => 5.0 * x,
        };
        fill_f32(self.seed + 11, entries, 1.0).into_iter().enumerate().map(value).collect()
    }
}

fn setups() -> impl Strategy<Value = Setup> {
    let dims = (1..=3usize, 1..=4usize, 1..=40usize, 1..=24usize);
    let kind = (select(KINDS.to_vec()), select(levels()));
    (dims, kind, 0..=40usize, 0..=4usize, any::<u32>()).prop_map(|(dims, (kind, level), n, slots, seed)| {
        let (kv_heads, group, head_dim, block) = dims;
        let dims = AttentionDims { heads: kv_heads * group, kv_heads, head_dim, block };
        Setup { dims, kind, level, n, slots, seed: seed.into() }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_mask_agrees_with_the_reference(setup in setups()) {
        let (sequence, gathered, mask) = (setup.sequence(), setup.gathered(), setup.mask());
        let (expected, expected_defined) = expected_masked(&setup.dims, setup.kind, &sequence.q, &gathered, &mask);
        let (actual, defined) =
            run_masked(setup.level, &setup.dims, sequence.q.data(), &gathered, &mask).unwrap();
        assert_close("masked", &actual, &expected, &setup.shape(), setup.kind.tolerance());
        prop_assert_eq!(defined, expected_defined);
    }

    /// NaN and infinities in hidden keys and values, one row or head that sees them aside.
    #[test]
    fn what_is_hidden_has_no_effect(setup in setups()) {
        let (sequence, mut gathered, mask) = (setup.sequence(), setup.gathered(), setup.mask());
        let AttentionDims { kv_heads, head_dim, block, .. } = setup.dims;
        let (clean, defined) = run_masked(setup.level, &setup.dims, sequence.q.data(), &gathered, &mask).unwrap();
        prop_assume!(setup.slots > 0 && setup.n > 0);
        // One key of each slot is spoilt.
        let spoilt = |slot: usize| (setup.seed as usize + 7 * slot) % block;
        for slot in 0..setup.slots {
            for channel in 0..kv_heads * head_dim {
                let at = (slot * block + spoilt(slot)) * kv_heads * head_dim + channel;
                gathered.keys.set(at, [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][slot % 3]);
                gathered.values.set(at, [f32::INFINITY, f32::NAN, f32::NAN][slot % 3]);
            }
        }
        let (out, of_spoilt) = run_masked(setup.level, &setup.dims, sequence.q.data(), &gathered, &mask).unwrap();
        prop_assert_eq!(of_spoilt, defined);
        let width = setup.dims.heads * head_dim;
        for query in 0..setup.n {
            let sees = (0..setup.slots).any(|slot| {
                let row = ((query / block * setup.slots + slot) * block + query % block) * block;
                mask[row + spoilt(slot)] > MASK_NEG
            });
            if !sees {
                let row = query * width..(query + 1) * width;
                assert_same_bits("hidden", &out[row.clone()], &clean[row], &[width]);
            }
        }
    }

    #[test]
    fn the_mask_of_positions_says_the_same_as_positions(setup in setups()) {
        let sequence = Sequence::new(setup.dims, setup.kind, 0, setup.n, 0, setup.seed);
        let mut ids: Vec<i32> =
            shuffled(sequence.blocks(), setup.seed).into_iter().map(|id| id as i32).take(setup.slots).collect();
        ids.sort_unstable();
        ids.resize(setup.slots, -1);
        let gathered = sequence.gathered(&ids);
        let by_position =
            run(setup.level, &pool(2), &setup.dims, sequence.query(), gathered.get(), Lists::All.get()).unwrap();
        let mask = mask_of_positions(setup.n, setup.dims.block, &ids);
        let masked = run_masked(setup.level, &setup.dims, sequence.q.data(), &gathered, &mask).unwrap();
        assert_same_bits("masked", &masked.0, &by_position.0, &setup.shape());
        prop_assert_eq!(masked.1, by_position.1);
    }
}

/// A number on all keys of a row changes nothing but rounding; one that is large enough is -1e9, and hides them.
#[test]
fn a_constant_shifts_nothing_until_it_hides() {
    let sequence = Sequence::new(dims(2, 1, 16, 8), Kind::F32, 0, 20, 0, 5);
    let gathered = sequence.gathered(&[0, 1, 2]);
    let run = |constant: f32| {
        let mask = vec![constant; 3 * 3 * 8 * 8];
        // The last four places are of no token.
        let mask: Vec<f32> = mask
            .iter()
            .enumerate()
            .map(|(at, x)| if at / 64 % 3 == 2 && at % 8 >= 4 { MASK_NEG } else { *x })
            .collect();
        run_masked(Level::best(), &sequence.dims, sequence.q.data(), &gathered, &mask).unwrap()
    };
    let (plain, defined) = run(0.0);
    assert!(defined.all());
    let (shifted, defined) = run(-3.0);
    assert!(defined.all());
    assert_close("shifted", &shifted, &plain, &sequence.shape(), crate::fixture::F32_TOLERANCE);
    let (hidden, defined) = run(MASK_NEG);
    assert_eq!(defined.undefined().count(), 20);
    assert!(hidden.iter().all(|x| x.to_bits() == 0));
}

/// A NaN in the mask is a NaN in the score.
#[test]
fn nan_in_the_mask_reaches_its_row() {
    let sequence = Sequence::new(dims(4, 2, 8, 4), Kind::Bf16, 0, 6, 0, 5);
    let gathered = sequence.gathered(&[0, 1]);
    let mut mask = mask_of_positions(6, 4, &[0, 1]);
    // Query block 1, slot 0, query row 1, key 2.
    mask[((2 * 4) + 1) * 4 + 2] = f32::NAN;
    let (out, defined) = run_masked(Level::best(), &sequence.dims, sequence.q.data(), &gathered, &mask).unwrap();
    assert!(defined.all());
    let nan: Vec<usize> =
        (0..6).filter(|&query| out[query * 32..(query + 1) * 32].iter().all(|x| x.is_nan())).collect();
    assert_eq!(nan, [5]);
    assert_eq!(out.iter().filter(|x| x.is_nan()).count(), 32);
}

#[test]
fn no_slots_and_no_queries() {
    let dims = dims(4, 2, 8, 4);
    let none = Gathered { keys: Values::Bf16(vec![]), values: Values::Bf16(vec![]), ids: vec![] };
    let q = Values::Bf16(vec![bf16::ONE; 3 * 32]);
    let (out, defined) = run_masked(Level::best(), &dims, q.data(), &none, &[]).unwrap();
    assert!(out.iter().all(|x| *x == 0.0));
    assert_eq!(defined.undefined().collect::<Vec<_>>(), [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]);
    let q = Values::Bf16(vec![]);
    let (out, defined) = run_masked(Level::best(), &dims, q.data(), &none, &[]).unwrap();
    assert!(out.is_empty() && defined.all());
}
