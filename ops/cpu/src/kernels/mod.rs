// SPDX-License-Identifier: MIT OR Apache-2.0

//! The kernels: generic over the vectors of a level ([`simd`], [`dot`]), and those vectors for each level.

pub(crate) mod bf16_tile;
pub(crate) mod dot;
pub(crate) mod f32_tile;
#[cfg(any(test, feature = "emulate"))]
mod model;
mod scalar;
pub(crate) mod simd;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;
