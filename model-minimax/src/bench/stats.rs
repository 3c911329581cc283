// SPDX-License-Identifier: MIT OR Apache-2.0

//! Statistics of measurements: moments, percentiles, and the interval of a ratio.

use serde::{Deserialize, Serialize};

/// What some measurements of one quantity say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// How many.
    pub n: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Sample standard deviation (n - 1; 0 for one value).
    pub std: f64,
    /// Percentiles, interpolated between the two nearest values.
    pub p5: f64,
    /// The median.
    pub p50: f64,
    /// See `p5`.
    pub p95: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Stats {
    /// Of at least one value; of none, all are 0.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else { return Self::default() };
        let (mean, std) = moments(&sorted);
        let at = |share| percentile(&sorted, share);
        Self { n: sorted.len(), mean, std, p5: at(0.05), p50: at(0.5), p95: at(0.95), min, max }
    }
}

impl Stats {
    /// Each value rounded to 9 significant digits, which any reader of JSON gets back exactly.
    #[must_use]
    pub fn rounded(self) -> Self {
        let round = |value: f64| format!("{value:.8e}").parse().unwrap_or(value);
        let Self { n, mean, std, p5, p50, p95, min, max } = self;
        Self {
            n,
            mean: round(mean),
            std: round(std),
            p5: round(p5),
            p50: round(p50),
            p95: round(p95),
            min: round(min),
            max: round(max),
        }
    }
}

/// Mean and sample standard deviation (n - 1; 0 for one value) of at least one value.
pub(super) fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (mean, if values.len() > 1 { (squares / (n - 1.0)).sqrt() } else { 0.0 })
}

/// The value below which `share` of at least one sorted value lie, interpolated between the two nearest.
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

/// Mean of the logarithm of a rate, and what is known of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogRate {
    mean: f64,
    /// Variance of the mean; `None` for a single measurement.
    variance: Option<f64>,
    n: f64,
}

impl LogRate {
    /// From measured rates above zero; `None` if there are none.
    #[must_use]
    pub fn of(rates: &[f64]) -> Option<Self> {
        if rates.is_empty() || rates.iter().any(|rate| !rate.is_finite() || *rate <= 0.0) {
            return None;
        }
        let logs: Vec<f64> = rates.iter().map(|rate| rate.ln()).collect();
        let ((mean, std), n) = (moments(&logs), logs.len() as f64);
        Some(Self { mean, variance: (logs.len() > 1).then(|| std * std / n), n })
    }

    /// From the mean and the sample standard deviation of `n` rates, to first order.
    #[must_use]
    pub fn of_moments(mean: f64, std: f64, n: usize) -> Option<Self> {
        let usable = mean.is_finite() && mean > 0.0 && std.is_finite() && n > 0;
        usable.then(|| Self {
            mean: mean.ln(),
            variance: (n > 1).then(|| (std / mean).powi(2) / n as f64),
            n: n as f64,
        })
    }

    /// The geometric mean of the rates.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.mean.exp()
    }
}

/// How many times faster one series is than another, and where the truth lies with some confidence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Ratio of the geometric means.
    pub ratio: f64,
    /// Lower end; 0 where one of the two was measured only once.
    pub low: f64,
    /// Upper end; `None` (unbounded) where one of the two was measured only once.
    pub high: Option<f64>,
}

impl Interval {
    /// Welch's interval of the difference of the mean logarithms, as a ratio. The measurements of each series are taken as
    /// independent, their logarithms as normal with variances of their own.
    #[must_use]
    pub fn of(before: &LogRate, after: &LogRate, confidence: f64) -> Self {
        let difference = after.mean - before.mean;
        let ratio = difference.exp();
        let (Some(a), Some(b)) = (before.variance, after.variance) else {
            return Self { ratio, low: 0.0, high: None };
        };
        let variance = a + b;
        if variance == 0.0 {
            return Self { ratio, low: ratio, high: Some(ratio) };
        }
        let freedom = variance * variance / (a * a / (before.n - 1.0) + b * b / (after.n - 1.0));
        let half = t_quantile(0.5 + confidence / 2.0, freedom) * variance.sqrt();
        Self { ratio, low: (difference - half).exp(), high: Some((difference + half).exp()) }
    }
}

/// The value that Student's t with `freedom` degrees of freedom stays below with probability `p`, from 0.5 to 1.
fn t_quantile(p: f64, freedom: f64) -> f64 {
    let below = |t: f64| 1.0 - 0.5 * incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5);
    let (mut low, mut high) = (0.0, 1.0);
    while below(high) < p && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if below(middle) < p { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// The regularised incomplete beta function, by its continued fraction.
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The fraction converges fast below the mean; beyond it the symmetric one does.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp() / a;
    let away = |value: f64| if value.abs() < 1e-300 { 1e-300 } else { value };
    let (mut c, mut d) = (1.0, 1.0 / away(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for m in 1..500 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let before = fraction;
        for numerator in [even, odd] {
            d = 1.0 / away(1.0 + numerator * d);
            c = away(1.0 + numerator / c);
            fraction *= c * d;
        }
        if (fraction / before - 1.0).abs() < 1e-15 {
            break;
        }
    }
    front * fraction
}

/// Logarithm of the gamma function above zero: Stirling's series, after shifting the argument up.
fn ln_gamma(mut x: f64) -> f64 {
    let mut shift = 0.0;
    while x < 10.0 {
        shift -= x.ln();
        x += 1.0;
    }
    let x2 = x * x;
    let series = 1.0 / (12.0 * x) * (1.0 - 1.0 / (30.0 * x2) * (1.0 - 2.0 / (7.0 * x2) * (1.0 - 3.0 / (4.0 * x2))));
    shift + (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_few_values() {
        let stats = Stats::of(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!((stats.n, stats.mean, stats.p50, stats.min, stats.max), (4, 2.5, 2.5, 1.0, 4.0));
        assert!((stats.p5 - 1.15).abs() < 1e-12 && (stats.p95 - 3.85).abs() < 1e-12);
        assert!((stats.std - 1.290_994_448_735_805_6).abs() < 1e-12);
        let one = Stats::of(&[7.0]);
        assert_eq!((one.std, one.p5, one.p50, one.p95), (0.0, 7.0, 7.0, 7.0));
        assert_eq!(Stats::of(&[]), Stats::default());
        assert_eq!(Stats::of(&[1.0 / 3.0]).rounded().mean, 0.333_333_333);
        assert_eq!(Stats::of(&[2e-6 / 3.0]).rounded().max, 6.666_666_67e-7);
    }

    #[test]
    fn quantiles_of_students_t() {
        // Tables of the two-sided 95 % and 99 % points.
        for (p, freedom, t) in [
            (0.975, 1.0, 12.706_2),
            (0.975, 2.0, 4.302_65),
            (0.975, 4.0, 2.776_45),
            (0.975, 10.0, 2.228_14),
            (0.995, 5.0, 4.032_14),
            (0.975, 1000.0, 1.962_34),
        ] {
            assert!((t_quantile(p, freedom) / t - 1.0).abs() < 1e-4, "{p} {freedom}: {}", t_quantile(p, freedom));
        }
        assert!((ln_gamma(0.5) - std::f64::consts::PI.sqrt().ln()).abs() < 1e-9);
    }

    #[test]
    fn intervals() {
        let of = |rates: &[f64]| LogRate::of(rates).unwrap();
        let (before, after) = (of(&[10.0, 10.5, 9.5]), of(&[20.0, 21.0, 19.0]));
        let Interval { ratio, low, high } = Interval::of(&before, &after, 0.95);
        assert!((ratio - 2.0).abs() < 1e-12 && low > 1.7 && low < 1.9 && high > Some(2.1) && high < Some(2.4));
        // More confidence is a wider interval; the other way round it is the reciprocal.
        let wider = Interval::of(&before, &after, 0.99);
        assert!(wider.low < low && wider.high > high);
        let inverse = Interval::of(&after, &before, 0.95);
        assert!((inverse.low * high.unwrap() - 1.0).abs() < 1e-9 && (inverse.ratio - 0.5).abs() < 1e-12);
        // Equal variances and counts: Student's interval of 4 degrees of freedom, by hand.
        let logs = [10f64.ln(), 10.5f64.ln(), 9.5f64.ln()];
        let se = moments(&logs).1 * (2.0f64 / 3.0).sqrt();
        assert!((low - (2f64.ln() - 2.776_445 * se).exp()).abs() < 1e-5);
        // Moments say nearly what the values say.
        let by_moments = Interval::of(&LogRate::of_moments(10.0, 0.5, 3).unwrap(), &after, 0.95);
        assert!((by_moments.low / low - 1.0).abs() < 0.01);
        // Once is never.
        assert_eq!(Interval::of(&of(&[10.0]), &after, 0.95).high, None);
        let exact = Interval::of(&of(&[3.0, 3.0]), &of(&[6.0, 6.0]), 0.95);
        assert!(exact.low == exact.ratio && exact.high == Some(exact.ratio));
        assert!(LogRate::of(&[]).is_none() && LogRate::of(&[1.0, 0.0]).is_none());
    }
}
