// SPDX-License-Identifier: MIT OR Apache-2.0

//! The same bits for every number of threads, with every kind of cache.

use crate::fixture::{Ids, Setup, pool};
use cpu_tiles::{Format, Level, Precision};
use msa_sparse_decode::DecodeDims;
use op_testkit::compare::assert_same_bits;

#[test]
fn thread_counts() {
    let dims = DecodeDims { chunk_keys: 64, ..DecodeDims::new(12, 2, 72, 32) };
    for precision in [Precision::Bf16, Precision::F32] {
        let lists = |count| (0..count).flat_map(|list| (0..11).map(move |id| (id * 3 + list) % 11)).collect();
        for ids in [Ids::Shared(lists(2)), Ids::PerKvHead(lists(4))] {
            let setup = Setup::new(dims, precision, 2, 11, 5).with_ids(ids).with_lens(&[352, 300]);
            for level in Level::available() {
                let (paged, packed) = (setup.paged(), setup.packed(level, Format::Bf16));
                let expected = setup.run_on(level, &pool(1), setup.plain()).unwrap().0;
                for threads in [1, 2, 3, 8] {
                    let pool = pool(threads);
                    for cache in [setup.plain(), paged.cache(), packed.cache()] {
                        let what = format!("{threads} threads at {level}, {cache:?}");
                        let actual = setup.run_on(level, &pool, cache).unwrap().0;
                        assert_same_bits(&what, &actual, &expected, &setup.shape());
                    }
                }
            }
        }
    }
}
