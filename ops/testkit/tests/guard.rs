// SPDX-License-Identifier: MIT OR Apache-2.0

use half::bf16;
use op_testkit::guard::{GuardError, Guarded, Place, Sentinel};

/// Writes where a faulty kernel would, at an offset from the first element.
fn write_at<T: Sentinel>(out: &mut Guarded<T>, offset: isize, value: T) {
    assert!(offset.unsigned_abs() < 64, "the offset stays within the guards of these small outputs");
    // SAFETY: `as_mut_ptr` is valid for at least 256 elements on either side of the first one, and
    // no reference into the buffer is alive.
    unsafe { out.as_mut_ptr().offset(offset).write(value) };
}

#[test]
fn writing_exactly_the_rows_is_clean() {
    let mut out = Guarded::<bf16>::new(3, 5);
    assert_eq!(out.unwritten(), 15);
    for (i, value) in out.as_mut_slice().iter_mut().enumerate() {
        *value = bf16::from_f32(i as f32);
    }
    assert_eq!(out.check(), Ok(()));
    assert_eq!(out.unwritten(), 0);
    assert_eq!(out.row(1)[0].to_f32(), 5.0);
    assert_eq!(out.to_vec().len(), 15);
}

#[test]
fn an_element_never_written_is_counted() {
    let mut out = Guarded::<i32>::new(2, 4);
    let written = out.as_mut_slice();
    written.fill(-1);
    written[6] = i32::SENTINEL;
    assert_eq!((out.unwritten(), out.check()), (1, Ok(())));
}

#[test]
fn writes_before_and_after_are_reported_with_their_distance() {
    let mut out = Guarded::<f32>::new(2, 3);
    write_at(&mut out, 6, 2.5);
    write_at(&mut out, 8, 2.5);
    let error = out.check().unwrap_err();
    assert_eq!(error, GuardError { count: 2, place: Place::After(1), found: "2.5".into() });
    assert_eq!(
        error.to_string(),
        "2 elements written outside the output, first 1 past the end of the last row, now 2.5"
    );

    write_at(&mut out, -4, f32::NAN);
    let error = out.check().unwrap_err();
    assert_eq!((error.count, error.place), (3, Place::Before(4)), "another NaN is not the sentinel");
}

#[test]
fn writes_into_a_gap_are_reported_with_their_row() {
    let mut out = Guarded::<u8>::with_gap(3, 4, 2);
    assert_eq!((out.stride(), out.as_mut_slice().len()), (6, 16));
    for row in 0..3 {
        out.as_mut_slice()[row * 6..row * 6 + 4].fill(row as u8);
    }
    assert_eq!((out.check(), out.to_vec()), (Ok(()), vec![0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]));
    out.as_mut_slice()[6 + 5] = 9;
    let error = out.check().unwrap_err();
    assert_eq!(error, GuardError { count: 1, place: Place::Gap { row: 1, past: 2 }, found: "9".into() });
}

#[test]
fn empty_outputs_have_guards_too() {
    for (rows, columns) in [(0, 7), (7, 0), (0, 0)] {
        let mut out = Guarded::<i64>::new(rows, columns);
        assert_eq!((out.as_mut_slice().len(), out.check()), (0, Ok(())));
        write_at(&mut out, 0, 1);
        assert_eq!(out.check().unwrap_err().place, Place::After(1));
    }
    assert!(Guarded::<i64>::with_gap(0, 3, 2).as_mut_slice().is_empty());
}
