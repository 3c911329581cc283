// SPDX-License-Identifier: MIT OR Apache-2.0

//! Plain loops of any crate, compiled for a SIMD level.
//!
//! A crate without `unsafe` cannot enter code that is compiled for more than the baseline of its target. Where it has
//! loops of its own around the tiles (another layout of codes, another number format), [`vectorize`] does so for it.

use crate::kernels::simd::{Kernel, Simd, dispatch};
use crate::level::Level;

/// A computation in plain loops over slices, without intrinsics: what an optimiser turns into vector code.
///
/// Only what is inlined into [`Loops::run`] is compiled for the level, so that method and what it calls must be
/// `#[inline(always)]`. A closure cannot be marked so; innermost loops have none. Integer arithmetic gives the same on
/// every level; so does F32 arithmetic, since the compiler neither reorders nor fuses it.
pub trait Loops {
    /// What is computed.
    type Output;

    /// Runs the loops. Must be `#[inline(always)]`.
    fn run(self) -> Self::Output;
}

/// Runs loops that are compiled for the instructions of `level`; on a model of a level, for the baseline.
pub fn vectorize<L: Loops>(level: Level, loops: L) -> L::Output {
    struct OfKernel<L>(L);
    impl<L: Loops> Kernel for OfKernel<L> {
        type Output = L::Output;
        #[inline(always)]
        fn run<S: Simd>(self, _: S) -> L::Output {
            self.0.run()
        }
    }
    dispatch(level, OfKernel(loops))
}
