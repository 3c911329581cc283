// SPDX-License-Identifier: MIT OR Apache-2.0

//! Comparison of whole tensors: the worst elements with their positions, counts, and a histogram of
//! the distance in units in the last place (ULP).

use std::fmt;

use half::bf16;
use zerocopy::{Immutable, IntoBytes};

/// How far an element may be from the expected one:
///
/// ```text
/// |actual - expected| <= abs + rel * |expected| + rel_to_max * max |expected|
/// ```
///
/// The maximum is that of the finite elements of the whole expected tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tolerance {
    /// Absolute part, in units of the values.
    pub abs: f64,
    /// Part relative to the expected element.
    pub rel: f64,
    /// Part relative to the largest expected element.
    pub rel_to_max: f64,
}

impl Tolerance {
    /// Equal values. Positive and negative zero are equal values.
    pub const EXACT: Self = Self { abs: 0.0, rel: 0.0, rel_to_max: 0.0 };

    /// The same absolute bound for every element.
    pub const fn abs(abs: f64) -> Self {
        Self { abs, ..Self::EXACT }
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { abs, rel, rel_to_max } = self;
        write!(f, "{abs} + {rel} * |expected| + {rel_to_max} * max |expected|")
    }
}

/// A pair of elements and its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Element {
    /// Row-major multi-index.
    pub index: Vec<usize>,
    /// The value under test.
    pub actual: f32,
    /// The value it should have.
    pub expected: f32,
    /// The measure by which the element was chosen.
    pub error: f64,
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, actual, expected, error } = self;
        write!(f, "{error:.3e} at {index:?}: actual {actual:e}, expected {expected:e}")
    }
}

/// The format whose spacing is the unit of an [`UlpHistogram`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UlpUnit {
    /// Both values are rounded to BF16 first.
    Bf16,
    /// The values as they are.
    F32,
}

impl UlpUnit {
    /// Place of the value in the ordered list of all values of the format; both zeros are at 0.
    fn rank(self, value: f32) -> i64 {
        let (bits, sign) = match self {
            Self::Bf16 => (u32::from(bf16::from_f32(value).to_bits()), 1 << 15),
            Self::F32 => (value.to_bits(), 1 << 31),
        };
        let magnitude = i64::from(bits & (sign - 1));
        if bits & sign == 0 { magnitude } else { -magnitude }
    }

    /// Number of steps between two values; infinities count as the step after the largest finite
    /// value.
    pub fn distance(self, a: f32, b: f32) -> u64 {
        self.rank(a).abs_diff(self.rank(b))
    }
}

/// How many elements are how many ULP away from the expected ones. Pairs with a NaN are left out.
#[derive(Clone, Debug, PartialEq)]
pub struct UlpHistogram {
    /// The unit.
    pub unit: UlpUnit,
    /// `counts[0]` elements at distance 0, `counts[k]` at more than 2^(k-2) and at most 2^(k-1).
    pub counts: [usize; 34],
    /// The largest distance.
    pub max: u64,
}

impl fmt::Display for UlpHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.unit {
            UlpUnit::Bf16 => "BF16 ULP",
            UlpUnit::F32 => "F32 ULP",
        })?;
        for (k, count) in self.counts.iter().enumerate().filter(|(_, n)| **n > 0) {
            match k {
                0..3 => write!(f, "  {k}: {count}")?,
                _ => write!(f, "  {}-{}: {count}", (1u64 << (k - 2)) + 1, 1u64 << (k - 1))?,
            }
        }
        write!(f, "  (largest {})", self.max)
    }
}

/// Elements that a tolerance does not admit. Pairs that differ in NaN or infinity are not among
/// them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Beyond {
    /// How many.
    pub count: usize,
    /// The pair with the largest `error`, here the ratio of its difference to the bound, whether
    /// admitted or not. Absent when all elements agree exactly.
    pub worst: Option<Element>,
}

/// Pairs in which one element is special and the other is not, or differs in kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mismatches {
    /// How many.
    pub count: usize,
    /// The first one; its `error` is NaN or infinite.
    pub first: Option<Element>,
}

/// Two tensors of one shape, compared element by element.
///
/// NaN agrees with NaN, an infinity only with the same infinity; such pairs are equal, other pairs
/// with a NaN or an infinity are mismatches that no tolerance admits. Differences are computed in
/// F64.
///
/// ```
/// use op_testkit::compare::{Comparison, Tolerance};
///
/// let comparison = Comparison::new(&[1.0, 2.0, f32::NAN], &[1.0, 2.5, f32::NAN], &[3]);
/// assert!(comparison.check(Tolerance::abs(0.5)).is_ok());
/// let report = comparison.check(Tolerance::abs(0.1)).unwrap_err();
/// assert!(report.contains("worst absolute difference 5.000e-1 at [1]"));
/// ```
#[derive(Clone, Debug)]
pub struct Comparison<'a> {
    actual: &'a [f32],
    expected: &'a [f32],
    shape: &'a [usize],
    /// Largest |actual - expected|; absent when all finite pairs are equal.
    pub worst_abs: Option<Element>,
    /// Largest |actual - expected| / |expected| where expected is not zero; absent when there is
    /// none above zero.
    pub worst_rel: Option<Element>,
    /// Mean of |actual - expected| over the finite pairs.
    pub mean_abs: f64,
    /// Largest |expected| of the finite elements, 0 if there is none.
    pub max_expected: f64,
    /// Pairs with exactly one NaN.
    pub nan: Mismatches,
    /// Pairs without NaN that differ in an infinity.
    pub infinite: Mismatches,
}

impl<'a> Comparison<'a> {
    /// Compares two row-major tensors of the given shape.
    ///
    /// # Panics
    /// If a length is not the product of the shape.
    #[track_caller]
    pub fn new(actual: &'a [f32], expected: &'a [f32], shape: &'a [usize]) -> Self {
        let elements: usize = shape.iter().product();
        assert_eq!(actual.len(), elements, "length of `actual` and elements of the shape {shape:?}");
        assert_eq!(expected.len(), elements, "length of `expected` and elements of the shape {shape:?}");
        let mut comparison = Self {
            actual,
            expected,
            shape,
            worst_abs: None,
            worst_rel: None,
            mean_abs: 0.0,
            max_expected: expected.iter().filter(|x| x.is_finite()).fold(0.0, |max, x| max.max(f64::from(x.abs()))),
            nan: Mismatches::default(),
            infinite: Mismatches::default(),
        };
        let (mut sum, mut finite) = (0.0, 0usize);
        for i in 0..elements {
            let (a, b) = (actual[i], expected[i]);
            let mismatches = if a.is_nan() != b.is_nan() {
                &mut comparison.nan
            } else if a.is_nan() || a == b {
                finite += usize::from(a.is_finite());
                continue;
            } else if a.is_infinite() || b.is_infinite() {
                &mut comparison.infinite
            } else {
                finite += 1;
                let difference = (f64::from(a) - f64::from(b)).abs();
                sum += difference;
                keep_larger(&mut comparison.worst_abs, difference, || element(shape, i, a, b));
                if b != 0.0 {
                    let relative = difference / f64::from(b.abs());
                    keep_larger(&mut comparison.worst_rel, relative, || element(shape, i, a, b));
                }
                continue;
            };
            mismatches.count += 1;
            mismatches.first.get_or_insert_with(|| element(shape, i, a, b));
        }
        comparison.mean_abs = sum / finite.max(1) as f64;
        comparison
    }

    /// The elements that `tolerance` does not admit.
    pub fn beyond(&self, tolerance: Tolerance) -> Beyond {
        let mut beyond = Beyond::default();
        let constant = tolerance.abs + tolerance.rel_to_max * self.max_expected;
        for (i, (&a, &b)) in self.actual.iter().zip(self.expected).enumerate() {
            if a == b || !a.is_finite() || !b.is_finite() {
                continue;
            }
            let difference = (f64::from(a) - f64::from(b)).abs();
            let bound = constant + tolerance.rel * f64::from(b.abs());
            let admitted = difference <= bound;
            beyond.count += usize::from(!admitted);
            keep_larger(&mut beyond.worst, difference / bound, || element(self.shape, i, a, b));
        }
        beyond
    }

    /// The distances in ULP of `unit`.
    pub fn ulps(&self, unit: UlpUnit) -> UlpHistogram {
        let mut histogram = UlpHistogram { unit, counts: [0; 34], max: 0 };
        for (&a, &b) in self.actual.iter().zip(self.expected) {
            if a.is_nan() || b.is_nan() {
                continue;
            }
            let distance = unit.distance(a, b);
            let bucket = if distance == 0 { 0 } else { distance.next_power_of_two().trailing_zeros() as usize + 1 };
            histogram.counts[bucket] += 1;
            histogram.max = histogram.max.max(distance);
        }
        histogram
    }

    /// Whether all elements agree within `tolerance`.
    ///
    /// # Errors
    /// A report for people: counts, worst elements, and the histogram.
    pub fn check(&self, tolerance: Tolerance) -> Result<(), String> {
        let beyond = self.beyond(tolerance);
        if beyond.count == 0 && self.nan.count == 0 && self.infinite.count == 0 {
            return Ok(());
        }
        let mut report = format!(
            "{} of {} elements beyond {tolerance} (max |expected| {:e})\n",
            beyond.count,
            self.actual.len(),
            self.max_expected
        );
        if let Some(worst) = beyond.worst {
            report += &format!("  worst difference over bound {worst}\n");
        }
        Err(report + &self.to_string())
    }
}

impl fmt::Display for Comparison<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  shape {:?}, mean absolute difference {:.3e}", self.shape, self.mean_abs)?;
        if let Some(worst) = &self.worst_abs {
            write!(f, "\n  worst absolute difference {worst}")?;
        }
        if let Some(worst) = &self.worst_rel {
            write!(f, "\n  worst relative difference {worst}")?;
        }
        for (kind, mismatches) in [("NaN", &self.nan), ("infinity", &self.infinite)] {
            if let Some(Element { index, actual, expected, .. }) = &mismatches.first {
                write!(f, "\n  {} differ in {kind}, first at {index:?}: ", mismatches.count)?;
                write!(f, "actual {actual}, expected {expected}")?;
            }
        }
        let bf16_output = self.actual.iter().all(|&a| a.is_nan() || bf16::from_f32(a).to_f32() == a);
        let unit = if bf16_output { UlpUnit::Bf16 } else { UlpUnit::F32 };
        write!(f, "\n  {}", self.ulps(unit))
    }
}

fn element(shape: &[usize], i: usize, actual: f32, expected: f32) -> Element {
    let error = (f64::from(actual) - f64::from(expected)).abs();
    Element { index: multi_index(shape, i), actual, expected, error }
}

fn multi_index(shape: &[usize], mut i: usize) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (position, &size) in index.iter_mut().zip(shape).rev() {
        *position = i % size;
        i /= size;
    }
    index
}

fn keep_larger(worst: &mut Option<Element>, error: f64, element: impl FnOnce() -> Element) {
    if error > worst.as_ref().map_or(0.0, |worst| worst.error) {
        *worst = Some(Element { error, ..element() });
    }
}

/// Panics with the report of [`Comparison::check`] unless all elements agree within `tolerance`.
///
/// # Panics
/// If they do not, or if a length is not the product of the shape.
#[track_caller]
pub fn assert_close(what: &str, actual: &[f32], expected: &[f32], shape: &[usize], tolerance: Tolerance) {
    if let Err(report) = Comparison::new(actual, expected, shape).check(tolerance) {
        panic!("{what}: {report}");
    }
}

/// Panics unless both tensors have the same bits; NaN payloads and the signs of zeros count.
///
/// # Panics
/// If they do not, with the number and the first position of the elements that differ, or if a
/// length is not the product of the shape.
#[track_caller]
pub fn assert_same_bits<T>(what: &str, actual: &[T], expected: &[T], shape: &[usize])
where
    T: IntoBytes + Immutable + fmt::Debug,
{
    let elements: usize = shape.iter().product();
    assert_eq!(actual.len(), elements, "{what}: length of `actual` and elements of the shape {shape:?}");
    assert_eq!(expected.len(), elements, "{what}: length of `expected` and elements of the shape {shape:?}");
    let mut differing = (0..elements).filter(|&i| actual[i].as_bytes() != expected[i].as_bytes());
    if let Some(first) = differing.next() {
        panic!(
            "{what}: {} of {elements} elements differ in their bits, first at {:?}: actual {:?}, expected {:?}",
            1 + differing.count(),
            multi_index(shape, first),
            actual[first],
            expected[first]
        );
    }
}
