// SPDX-License-Identifier: MIT OR Apache-2.0

//! The pool: every task once, panics arrive, panels are disjoint.

use cpu_tiles::threads::{ColumnPanels, default_threads};
use cpu_tiles::{Pool, ThreadsError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn every_task_runs_once_on_any_thread_count() {
    for threads in [1, 2, 3, 8] {
        let pool = Pool::new(threads).unwrap();
        assert_eq!(pool.threads(), threads);
        for tasks in [0, 1, 2, 7, 1000] {
            let counts: Vec<_> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
            for _ in 0..20 {
                pool.run(tasks, |task| {
                    counts[task].fetch_add(1, Ordering::Relaxed);
                });
            }
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 20));
        }
    }
}

#[test]
fn workers_wake_from_sleep() {
    let pool = Pool::new(3).unwrap();
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(5));
        let sum = AtomicUsize::new(0);
        pool.run(100, |task| {
            sum.fetch_add(task, Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), 4950);
    }
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
    let pool = Pool::new(3).unwrap();
    let outcome = catch_unwind(AssertUnwindSafe(|| pool.run(50, |task| assert!(task != 17, "task 17"))));
    let message = outcome.unwrap_err();
    assert_eq!(message.downcast_ref::<&str>(), Some(&"task 17"));
    let count = AtomicUsize::new(0);
    pool.run(50, |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(count.into_inner(), 50);
}

#[test]
fn an_error_of_a_task_is_returned_and_the_others_run() {
    let pool = Pool::new(3).unwrap();
    let count = AtomicUsize::new(0);
    let outcome = pool.try_run(50, |task| {
        count.fetch_add(1, Ordering::Relaxed);
        if task == 17 { Err(task) } else { Ok(()) }
    });
    assert_eq!((outcome, count.into_inner()), (Err(17), 50));
    assert_eq!(pool.try_run(50, |_| Ok::<(), usize>(())), Ok(()));
}

#[test]
fn nested_runs_and_runs_from_several_threads_finish() {
    let pool = Pool::new(2).unwrap();
    let count = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                pool.run(10, |_| {
                    pool.run(10, |_| {
                        count.fetch_add(1, Ordering::Relaxed);
                    });
                });
            });
        }
    });
    assert_eq!(count.into_inner(), 300);
}

#[test]
fn items_are_visited_with_their_index() {
    let pool = Pool::new(3).unwrap();
    let mut items = vec![0; 257];
    pool.for_each_mut(&mut items, |index, item| *item = index * 3);
    assert!(items.iter().enumerate().all(|(index, item)| *item == index * 3));
    pool.for_each_mut(&mut Vec::<usize>::new(), |_, _| unreachable!("there are no items"));
}

#[test]
fn chunks_and_ranges_are_visited_with_their_number() {
    let pool = Pool::new(3).unwrap();
    for (len, size) in [(257, 10), (10, 10), (3, 10), (0, 10), (5, 0)] {
        let mut items = vec![usize::MAX; len];
        pool.for_each_chunk_mut(&mut items, size, |index, chunk| chunk.fill(index));
        assert!(items.iter().enumerate().all(|(place, item)| *item == place / size.max(1)), "{len} by {size}");
    }
    // Gaps, an empty one, and items of no range.
    let mut items = vec![0; 20];
    let ranges = [1..4, 4..4, 6..15];
    let each = |index, items: &mut [usize]| {
        items.fill(index + 1);
        if items.len() == 3 { Err(index) } else { Ok(()) }
    };
    assert_eq!(pool.try_for_each_range_mut(&mut items, &ranges, each), Err(0));
    assert_eq!(items, [0, 1, 1, 1, 0, 0, 3, 3, 3, 3, 3, 3, 3, 3, 3, 0, 0, 0, 0, 0]);
    let (overlap, beyond, backwards) = ([0..4, 3..6], [0..4, 5..21], [4..8, 0..2]);
    for ranges in [overlap, beyond, backwards] {
        let run = || pool.try_for_each_range_mut(&mut [0; 20], &ranges, |_, _| Ok::<(), ()>(()));
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err(), "{ranges:?} must be refused");
    }
}

#[test]
fn every_thread_is_called_once() {
    for threads in [1, 2, 5] {
        let pool = Pool::new(threads).unwrap();
        for _ in 0..20 {
            let called = Mutex::new(Vec::new());
            pool.on_each_thread(|| called.lock().unwrap().push(std::thread::current().id()));
            let mut called = called.into_inner().unwrap();
            assert_eq!(called.len(), threads);
            assert!(called.contains(&std::thread::current().id()));
            called.sort_by_key(|id| format!("{id:?}"));
            called.dedup();
            assert_eq!(called.len(), threads);
        }
    }
    // Inside of a task there is one thread; a panic does not leave the others waiting.
    let pool = Pool::new(3).unwrap();
    let count = AtomicUsize::new(0);
    pool.run(4, |_| {
        pool.on_each_thread(|| {
            count.fetch_add(1, Ordering::Relaxed);
        });
    });
    assert_eq!(count.into_inner(), 4);
    assert!(catch_unwind(AssertUnwindSafe(|| pool.on_each_thread(|| panic!("each")))).is_err());
    pool.on_each_thread(|| ());
}

#[test]
fn panels_of_groups_of_rows_cover_them_and_nothing_else() {
    let mut matrix = vec![0; 6 * 10];
    let groups = [0..1, 2..5];
    let panels = ColumnPanels::in_groups(&mut matrix, 10, 4, &groups);
    assert_eq!(panels.panels(), 6);
    for index in 0..6 {
        let mut panel = panels.claim(index);
        assert_eq!(panel.rows(), groups[index / 3].len());
        for row in 0..panel.rows() {
            panel.row(row).fill(100 * (index + 1) + row);
        }
        assert!(catch_unwind(AssertUnwindSafe(|| panel.row(groups[index / 3].len()).len())).is_err());
    }
    assert!(catch_unwind(AssertUnwindSafe(|| panels.claim(4))).is_err(), "a second claim must be refused");
    for (at, value) in matrix.iter().enumerate() {
        let expected = match at / 10 {
            0 => 100 * (at % 10 / 4 + 1),
            row @ 2..5 => 100 * (at % 10 / 4 + 4) + row - 2,
            _ => 0,
        };
        assert_eq!(*value, expected, "{at}");
    }
    let (overlap, beyond) = ([0..3, 2..4], [0..3, 4..7]);
    for groups in [overlap, beyond] {
        let cut = || ColumnPanels::in_groups(&mut [0; 60], 10, 4, &groups).panels();
        assert!(catch_unwind(cut).is_err(), "{groups:?} must be refused");
    }
}

#[test]
fn many_panels_are_claimed_once_too() {
    for count in [4096, 4097, 10000] {
        let mut items = vec![0; count];
        let panels = ColumnPanels::new(&mut items, count, 1);
        (0..count).for_each(|index| panels.claim(index).row(0)[0] += 1);
        for index in [0, count - 1, count] {
            assert!(catch_unwind(AssertUnwindSafe(|| panels.claim(index))).is_err(), "{index} of {count}");
        }
        assert!(items.iter().all(|item| *item == 1));
    }
}

#[test]
fn panels_cover_the_matrix_and_are_claimed_once() {
    let mut matrix = vec![0; 4 * 10];
    let panels = ColumnPanels::new(&mut matrix, 10, 4);
    assert_eq!(panels.panels(), 3);
    for index in 0..3 {
        let mut panel = panels.claim(index);
        assert_eq!(panel.rows(), 4);
        for row in 0..4 {
            panel.row(row).fill(100 * index + row);
        }
    }
    assert!(catch_unwind(AssertUnwindSafe(|| panels.claim(1))).is_err(), "a second claim must be refused");
    for (at, value) in matrix.iter().enumerate() {
        assert_eq!(*value, at % 10 / 4 * 100 + at / 10);
    }
}

#[test]
fn impossible_counts_are_errors() {
    assert!(matches!(Pool::new(0), Err(ThreadsError::BadCount { count: 0 })));
    assert_eq!(Pool::new(5000).unwrap_err().to_string(), "thread count is 5000, expected 1 to 1024");
    assert!(default_threads() >= 1);
}
