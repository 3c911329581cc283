// SPDX-License-Identifier: MIT OR Apache-2.0

//! The same bits for every number of threads, in every form. That tiles do not show either is tested beside them.

use crate::fixture::{KINDS, Lists, Sequence, dims, pool, run};
use cpu_tiles::Level;
use op_testkit::compare::assert_same_bits;

const THREADS: [usize; 4] = [1, 2, 3, 8];

#[test]
fn threads() {
    for kind in KINDS {
        let sequence = Sequence::new(dims(8, 2, 48, 16), kind, 100, 150, 0, 1);
        for (form, lists) in Lists::forms(&sequence, 6, 16, 2).iter().enumerate() {
            for level in Level::available() {
                let run = |threads: usize| {
                    let pool = pool(threads);
                    run(level, &pool, &sequence.dims, sequence.query(), sequence.plain(), lists.get()).unwrap()
                };
                let [first, others @ ..] = THREADS;
                let expected = run(first);
                for threads in others {
                    let actual = run(threads);
                    let what = format!("{threads} threads, form {form}, {kind:?} at {level}");
                    assert_same_bits(&what, &actual.0, &expected.0, &sequence.shape());
                    assert_eq!(actual.1, expected.1, "{what}");
                }
            }
        }
    }
}
