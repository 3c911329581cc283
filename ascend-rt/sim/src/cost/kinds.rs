// SPDX-License-Identifier: MIT OR Apache-2.0

//! Numbers of `include/twin/abi.h` that the model tells apart.

pub(super) const INSTRUCTION: u8 = 0;
pub(super) const SET_FLAG: u8 = 1;
pub(super) const WAIT_FLAG: u8 = 2;
pub(super) const BARRIER: u8 = 3;
pub(super) const CROSS_SET: u8 = 4;
pub(super) const CROSS_WAIT: u8 = 5;
pub(super) const SYNC_ALL: u8 = 6;
pub(super) const SCALAR: u8 = 7;

pub(super) const S: u8 = 0;
pub(super) const V: u8 = 1;
pub(super) const M: u8 = 2;
pub(super) const MTE1: u8 = 3;
pub(super) const MTE2: u8 = 4;
pub(super) const MTE3: u8 = 5;
pub(super) const FIX: u8 = 6;
pub(super) const ALL_PIPES: u8 = 255;
pub(super) const PIPES: usize = 7;
pub(super) const PIPE_NAMES: [&str; PIPES] = ["S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX"];

pub(super) const L0A: u8 = 2;
pub(super) const L0B: u8 = 3;
pub(super) const UB: u8 = 5;
pub(super) const BT: u8 = 6;
pub(super) const FB: u8 = 7;
pub(super) const L0A_MX: u8 = 8;
pub(super) const L0B_MX: u8 = 9;

pub(super) const F32: u8 = 1;
pub(super) const E4M3: u8 = 4;
pub(super) const E5M2: u8 = 5;
pub(super) const HIF8: u8 = 6;
pub(super) const E2M1: u8 = 7;
pub(super) const E1M2: u8 = 8;
pub(super) const I4: u8 = 10;
pub(super) const I8: u8 = 11;
pub(super) const U8: u8 = 12;
pub(super) const MX_E4M3: u8 = 19;
pub(super) const MX_E5M2: u8 = 20;
pub(super) const MX_E2M1: u8 = 21;
pub(super) const MX_E1M2: u8 = 22;
