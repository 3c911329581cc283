// SPDX-License-Identifier: MIT OR Apache-2.0

//! Vector functions: exponential, sigmoid, the gated activations, and the sums that norms and softmax are made of.
//!
//! Accuracy is stated in units in the last place of the exact result and asserted by tests over every BF16 value.

use crate::kernels::simd::{Kernel, Simd, dispatch};
use crate::level::Level;

/// Largest error of [`exp`] in ULP, over all BF16 inputs; subnormal results within one unit of 2^-149 more.
pub const EXP_MAX_ULP: f64 = 1.0;
/// Largest error of [`sigmoid`] in ULP, over all BF16 inputs from -87 on; below -89 the result is 0.
pub const SIGMOID_MAX_ULP: f64 = 2.0;
/// Largest error of [`silu`] in ULP, over all BF16 inputs from -88.5 on.
pub const SILU_MAX_ULP: f64 = 2.0;

/// e^x. Beyond the upper limit the result is infinite anyway; the order of operands lets a NaN through.
#[inline(always)]
fn exp_v<S: Simd>(s: S, x: S::V) -> S::V {
    exp_below(s, s.min(s.splat(89.0), x))
}

/// e^x for x up to 89, as e^x = 2^n e^r with x = n ln2 + r, |r| <= ln2 / 2; e^r by the degree-7 minimax polynomial of the Cephes
/// library (`expf`).
#[inline(always)]
pub(crate) fn exp_below<S: Simd>(s: S, x: S::V) -> S::V {
    // Beyond this limit the result is zero anyway.
    let x = s.max(s.splat(-104.0), x);
    let n = s.round(s.mul(x, s.splat(std::f32::consts::LOG2_E)));
    // ln2 in two parts, the first short enough that n times it is exact.
    let r = s.fma(n, s.splat(-0.693_359_4), x);
    let r = s.fma(n, s.splat(2.121_944_4e-4), r);
    let mut p = s.splat(1.987_569_1e-4);
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = s.fma(p, r, s.splat(c));
    }
    // 1 is added last, so that only its rounding counts fully.
    let p = s.add(s.fma(s.mul(r, r), p, r), s.splat(1.0));
    s.scale2(p, n)
}

#[inline(always)]
fn sigmoid_v<S: Simd>(s: S, x: S::V) -> S::V {
    let one = s.splat(1.0);
    s.div(one, s.add(one, exp_v(s, s.sub(s.splat(0.0), x))))
}

/// x / (1 + e^-x), the formula as written: -0 where e^-x overflows, NaN at minus infinity.
#[inline(always)]
fn silu_v<S: Simd>(s: S, x: S::V) -> S::V {
    s.div(x, s.add(s.splat(1.0), exp_v(s, s.sub(s.splat(0.0), x))))
}

/// Applies a function of vectors to slices, the rest through a padded vector.
macro_rules! map {
    ($s:expr, $out:expr, ($($x:expr),*), |$($v:ident),*| $body:expr) => {{
        let s = $s;
        let out: &mut [f32] = $out;
        let whole = out.len() / S::LANES * S::LANES;
        for at in (0..whole).step_by(S::LANES) {
            // SAFETY: the slices have one length, and `at + LANES` is inside it.
            unsafe {
                $( let $v = s.load($x.as_ptr().add(at)); )*
                s.store(out.as_mut_ptr().add(at), $body);
            }
        }
        let rest = out.len() - whole;
        if rest > 0 {
            let mut tail = [0.0_f32; 16];
            // SAFETY: LANES is at most 16, the length of the padded copies.
            unsafe {
                $( let $v = { tail[..rest].copy_from_slice(&$x[whole..]); s.load(tail.as_ptr()) }; )*
                s.store(tail.as_mut_ptr(), $body);
            }
            out[whole..].copy_from_slice(&tail[..rest]);
        }
    }};
}

macro_rules! unary {
    ($(#[$doc:meta])* $name:ident, $vector:ident) => {
        $(#[$doc])*
        ///
        /// # Panics
        /// When the lengths differ.
        pub fn $name(level: Level, x: &[f32], out: &mut [f32]) {
            struct Map<'a>(&'a [f32], &'a mut [f32]);
            impl Kernel for Map<'_> {
                type Output = ();
                #[inline(always)]
                fn run<S: Simd>(self, s: S) {
                    map!(s, self.1, (self.0), |x| $vector(s, x));
                }
            }
            assert_eq!(x.len(), out.len(), "input and output have different lengths");
            dispatch(level, Map(x, out));
        }
    };
}

unary! {
    /// `out = e^x`. Error at most [`EXP_MAX_ULP`].
    exp, exp_v
}
unary! {
    /// `out = 1 / (1 + e^-x)`. Error at most [`SIGMOID_MAX_ULP`].
    sigmoid, sigmoid_v
}
unary! {
    /// `out = x / (1 + e^-x)`, the formula as written. Error at most [`SILU_MAX_ULP`] from -88.5 on; below, e^-x overflows
    /// and the result is -0; NaN at minus infinity.
    silu, silu_v
}

/// `out = silu(gate) * up`, in F32.
///
/// # Panics
/// When the lengths differ.
pub fn silu_glu(level: Level, gate: &[f32], up: &[f32], out: &mut [f32]) {
    struct Glu<'a>(&'a [f32], &'a [f32], &'a mut [f32]);
    impl Kernel for Glu<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            map!(s, self.2, (self.0, self.1), |gate, up| s.mul(silu_v(s, gate), up));
        }
    }
    assert!(gate.len() == out.len() && up.len() == out.len(), "gate, up and output have different lengths");
    dispatch(level, Glu(gate, up, out));
}

/// `out = (u + 1) * g * sigmoid(alpha * g)` with `g = min(gate, limit)` and `u = clamp(up, -limit, limit)`, in F32: the gate
/// is clamped from above only. NaN stays NaN.
///
/// # Panics
/// When the lengths differ.
pub fn swiglu_oai(level: Level, alpha: f32, limit: f32, gate: &[f32], up: &[f32], out: &mut [f32]) {
    struct Glu<'a>(f32, f32, &'a [f32], &'a [f32], &'a mut [f32]);
    impl Kernel for Glu<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let (alpha, limit, minus) = (s.splat(self.0), s.splat(self.1), s.splat(-self.1));
            map!(s, self.4, (self.2, self.3), |gate, up| {
                // The second operand is the one that a NaN comes from.
                let g = s.min(limit, gate);
                let u = s.min(limit, s.max(minus, up));
                s.mul(s.add(u, s.splat(1.0)), s.mul(g, sigmoid_v(s, s.mul(alpha, g))))
            });
        }
    }
    assert!(gate.len() == out.len() && up.len() == out.len(), "gate, up and output have different lengths");
    dispatch(level, Glu(alpha, limit, gate, up, out));
}

/// `out += factor * x`.
///
/// # Panics
/// When the lengths differ.
pub fn add_scaled(level: Level, factor: f32, x: &[f32], out: &mut [f32]) {
    struct AddScaled<'a>(f32, &'a [f32], &'a mut [f32]);
    impl Kernel for AddScaled<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let Self(factor, x, out) = self;
            let factor = s.splat(factor);
            let mut x = x.chunks_exact(S::LANES);
            let mut out = out.chunks_exact_mut(S::LANES);
            for (x, out) in x.by_ref().zip(out.by_ref()) {
                // SAFETY: both chunks have LANES values.
                unsafe { s.store(out.as_mut_ptr(), s.fma(factor, s.load(x.as_ptr()), s.load(out.as_ptr()))) };
            }
            for (x, out) in x.remainder().iter().zip(out.into_remainder()) {
                // A vector of one value, so that the tail rounds like the rest.
                let mut lanes = [0.0; 16];
                lanes[0] = *x;
                // SAFETY: LANES is at most 16.
                let sum = unsafe { s.fma(factor, s.load(lanes.as_ptr()), s.splat(*out)) };
                // SAFETY: LANES is at most 16.
                unsafe { s.store(lanes.as_mut_ptr(), sum) };
                *out = lanes[0];
            }
        }
    }
    assert_eq!(x.len(), out.len(), "input and output have different lengths");
    dispatch(level, AddScaled(factor, x, out));
}

/// The sum of squares, in an order that depends on the level and the length only.
pub fn sum_of_squares(level: Level, x: &[f32]) -> f32 {
    struct Squares<'a>(&'a [f32]);
    impl Kernel for Squares<'_> {
        type Output = f32;
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> f32 {
            let mut sums = [s.splat(0.0); 4];
            let mut tail = [0.0; 64];
            let x = self.0.chunks_exact(4 * S::LANES);
            tail[..x.remainder().len()].copy_from_slice(x.remainder());
            for x in x.chain([&tail[..4 * S::LANES]]) {
                for (j, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: the chunk has four vectors.
                    let v = unsafe { s.load(x.as_ptr().add(j * S::LANES)) };
                    *sum = s.fma(v, v, *sum);
                }
            }
            s.reduce_add(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])))
        }
    }
    dispatch(level, Squares(x))
}

/// One step of an online softmax over a row of scores, in place: `x = e^(x - m)` with `m = max(max, largest x)`. Returns
/// `m` and the sum of the new values. A row that is minus infinity throughout becomes zeros, with the sum 0.
pub fn exp_minus_max(level: Level, max: f32, x: &mut [f32]) -> (f32, f32) {
    struct ExpMinusMax<'a>(f32, &'a mut [f32]);
    impl Kernel for ExpMinusMax<'_> {
        type Output = (f32, f32);
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> (f32, f32) {
            let Self(max, x) = self;
            let whole = x.len() / S::LANES * S::LANES;
            let (body, rest) = x.split_at_mut(whole);
            let mut tail = [f32::NEG_INFINITY; 16];
            tail[..rest.len()].copy_from_slice(rest);
            let mut most = s.splat(max);
            for x in body.chunks_exact(S::LANES).chain([&tail[..S::LANES]]) {
                // SAFETY: the chunk has LANES values.
                most = s.max(unsafe { s.load(x.as_ptr()) }, most);
            }
            let max = s.reduce_max(most);
            if max == f32::NEG_INFINITY {
                body.fill(0.0);
                rest.fill(0.0);
                return (max, 0.0);
            }
            let shift = s.splat(max);
            let mut sum = s.splat(0.0);
            for x in body.chunks_exact_mut(S::LANES).chain([&mut tail[..S::LANES]]) {
                // SAFETY: the chunk has LANES values.
                unsafe {
                    let e = exp_v(s, s.sub(s.load(x.as_ptr()), shift));
                    sum = s.add(sum, e);
                    s.store(x.as_mut_ptr(), e);
                }
            }
            rest.copy_from_slice(&tail[..rest.len()]);
            (max, s.reduce_add(sum))
        }
    }
    dispatch(level, ExpMinusMax(max, x))
}

/// `x *= factor`.
pub fn scale(level: Level, factor: f32, x: &mut [f32]) {
    struct Scale<'a>(f32, &'a mut [f32]);
    impl Kernel for Scale<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let factor = s.splat(self.0);
            let mut x = self.1.chunks_exact_mut(S::LANES);
            for x in x.by_ref() {
                // SAFETY: the chunk has LANES values.
                unsafe { s.store(x.as_mut_ptr(), s.mul(factor, s.load(x.as_ptr()))) };
            }
            for x in x.into_remainder() {
                *x *= self.0;
            }
        }
    }
    dispatch(level, Scale(factor, x));
}
