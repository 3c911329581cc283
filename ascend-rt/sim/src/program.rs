// SPDX-License-Identifier: MIT OR Apache-2.0

//! The record of a launch: what each core did, in program order.

use crate::abi;
use crate::fault::Place;

/// What one core did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreProgram {
    /// A cube core; otherwise a vector core.
    pub is_cube: bool,
    /// The launched block.
    pub block: u32,
    /// 0 or 1 on vector cores.
    pub sub_block: u32,
    /// Its calls.
    pub records: Vec<abi::Record>,
}

/// What all cores of a launch did. GM addresses are device addresses: they do not depend on where the host had put the
/// buffers, so that two runs of one launch give equal programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The cores.
    pub cores: Vec<CoreProgram>,
    /// What `Record::api` counts.
    pub api_names: Vec<String>,
    /// What `Record::site` counts.
    pub sites: Vec<Place>,
}
