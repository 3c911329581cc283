// SPDX-License-Identifier: MIT OR Apache-2.0

use op_testkit::allocations::count_allocations;
use std::alloc::Layout;
use std::hint::black_box;
use std::sync::Barrier;

#[test]
fn each_way_to_allocate_counts_once_and_freeing_does_not() {
    let count = |run: &dyn Fn()| count_allocations(|each| each(), run).0;
    assert_eq!(count(&|| drop(black_box(Box::new(1_u64)))), 1);
    assert_eq!(count(&|| drop(black_box(vec![0_u8; 100]))), 1);
    let grown = || {
        let mut list: Vec<u64> = Vec::with_capacity(1);
        list.extend(black_box([1, 2, 3]));
        black_box(&list);
    };
    assert_eq!(count(&grown), 2);
    assert_eq!(count(&|| assert_eq!(black_box(Layout::new::<u64>()).size(), 8)), 0);
}

#[test]
fn the_threads_that_are_named_are_counted_and_no_others() {
    let (start, end) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            drop(black_box(vec![1_u8; 64]));
            end.wait();
        });
        let run = || {
            start.wait();
            end.wait();
            black_box(vec![1_u8; 64])
        };
        // This thread alone; the other one allocates meanwhile.
        assert_eq!(count_allocations(|each| each(), run).0, 1);
    });
    let (count, list) = count_allocations(|_| (), || black_box(vec![1_u8; 64]));
    assert_eq!((count, list.len()), (0, 64));
    // A count leaves no thread counted.
    let (count, _) = count_allocations(|_| (), || black_box(vec![1_u8; 64]));
    assert_eq!(count, 0);
}
