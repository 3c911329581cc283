// SPDX-License-Identifier: MIT OR Apache-2.0

//! The demonstration kernels of `kernels/`: right in program order and in many random orders, and stopped as soon as one
//! synchronisation of theirs is left out. The kernels of `bugs.cpp`: stopped by the rule that the bug breaks.

mod add;
mod bugs;
mod matmul;
mod mix;
mod numbers;
mod refused;
mod run;
