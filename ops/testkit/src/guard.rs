// SPDX-License-Identifier: MIT OR Apache-2.0

//! Output buffers between guards, to catch writes outside an output and elements of it that were
//! never written.

use std::fmt;

use half::bf16;
use zerocopy::{Immutable, IntoBytes};

/// The shortest guard before and after the rows, in elements.
pub const MIN_GUARD: usize = 256;

/// An element type with a bit pattern that no operator writes on purpose.
pub trait Sentinel: Copy + IntoBytes + Immutable + fmt::Debug {
    /// The pattern; for floating-point types a NaN, so that reading it spoils a result.
    const SENTINEL: Self;

    /// Whether all bits are those of the sentinel.
    fn is_sentinel(&self) -> bool {
        self.as_bytes() == Self::SENTINEL.as_bytes()
    }
}

impl Sentinel for bf16 {
    const SENTINEL: Self = Self::from_bits(0xFFE5);
}

impl Sentinel for f32 {
    const SENTINEL: Self = Self::from_bits(0xFFE5_A5A5);
}

impl Sentinel for u8 {
    const SENTINEL: Self = 0xA5;
}

impl Sentinel for i32 {
    const SENTINEL: Self = 0xA5A5_A5A5_u32 as Self;
}

impl Sentinel for i64 {
    const SENTINEL: Self = 0xA5A5_A5A5_A5A5_A5A5_u64 as Self;
}

/// Where an overwritten sentinel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the guard before the first row, this many elements ahead of it.
    Before(usize),
    /// In the gap after a row, this many elements past its end.
    Gap {
        /// The row.
        row: usize,
        /// Distance to its last element.
        past: usize,
    },
    /// In the guard after the last row, this many elements past its end.
    After(usize),
}

/// Sentinels were overwritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardError {
    /// How many.
    pub count: usize,
    /// The first one in memory order.
    pub place: Place,
    /// What is there now.
    pub found: String,
}

impl fmt::Display for GuardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} elements written outside the output, first ", self.count)?;
        match self.place {
            Place::Before(ahead) => write!(f, "{ahead} before the first row")?,
            Place::Gap { row, past } => write!(f, "{past} past the end of row {row}")?,
            Place::After(past) => write!(f, "{past} past the end of the last row")?,
        }
        write!(f, ", now {}", self.found)
    }
}

impl std::error::Error for GuardError {}

/// An output of `rows` x `columns` elements with guards of at least one row before and after it
/// and, if wanted, a gap after each row. Everything, the rows too, starts as
/// [`Sentinel::SENTINEL`].
///
/// ```
/// use op_testkit::guard::Guarded;
///
/// let mut out = Guarded::<f32>::new(2, 3);
/// out.as_mut_slice().fill(1.0);
/// assert!(out.check().is_ok());
/// assert_eq!(out.unwritten(), 0);
/// ```
#[derive(Clone, Debug)]
pub struct Guarded<T> {
    data: Vec<T>,
    guard: usize,
    rows: usize,
    columns: usize,
    stride: usize,
}

impl<T: Sentinel> Guarded<T> {
    /// Contiguous rows.
    pub fn new(rows: usize, columns: usize) -> Self {
        Self::with_gap(rows, columns, 0)
    }

    /// Rows with `gap` elements between each and the next, for operators that take a row stride.
    pub fn with_gap(rows: usize, columns: usize, gap: usize) -> Self {
        let stride = columns + gap;
        let guard = stride.max(MIN_GUARD);
        let extent = (rows * stride).saturating_sub(gap);
        Self { data: vec![T::SENTINEL; guard + extent + guard], guard, rows, columns, stride }
    }

    /// Elements from the start of a row to the start of the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// From the first element of the first row to the last one of the last row, gaps included.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        let end = self.data.len() - self.guard;
        &mut self.data[self.guard..end]
    }

    /// The first element of the first row. The pointer may be used for the guards too, so that a
    /// kernel that is handed it and writes up to [`MIN_GUARD`] elements outside the rows is caught
    /// and does not corrupt other memory.
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.data.as_mut_ptr().wrapping_add(self.guard)
    }

    /// One row.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, row: usize) -> &[T] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let begin = self.guard + row * self.stride;
        &self.data[begin..begin + self.columns]
    }

    /// All rows, without gaps.
    pub fn to_vec(&self) -> Vec<T> {
        (0..self.rows).flat_map(|row| self.row(row)).copied().collect()
    }

    /// Elements of the rows that still hold the sentinel.
    pub fn unwritten(&self) -> usize {
        (0..self.rows).flat_map(|row| self.row(row)).filter(|value| value.is_sentinel()).count()
    }

    fn place(&self, i: usize) -> Option<Place> {
        let Some(offset) = i.checked_sub(self.guard) else {
            return Some(Place::Before(self.guard - i));
        };
        let extent = self.data.len() - 2 * self.guard;
        if offset >= extent {
            return Some(Place::After(offset - extent + 1));
        }
        let (row, column) = (offset / self.stride, offset % self.stride);
        (column >= self.columns).then(|| Place::Gap { row, past: column - self.columns + 1 })
    }

    /// Whether every sentinel outside the rows is intact.
    ///
    /// # Errors
    /// [`GuardError`] with the number of overwritten ones and the first.
    pub fn check(&self) -> Result<(), GuardError> {
        let mut written = self
            .data
            .iter()
            .enumerate()
            .filter(|(_, value)| !value.is_sentinel())
            .filter_map(|(i, value)| Some((self.place(i)?, value)));
        match written.next() {
            None => Ok(()),
            Some((place, value)) => Err(GuardError { count: 1 + written.count(), place, found: format!("{value:?}") }),
        }
    }
}
