// SPDX-License-Identifier: MIT OR Apache-2.0

//! The record of a launch: what each core did, in program order.

use crate::abi;

/// The record of one core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreProgram {
    /// A cube core (AIC); else a vector core (AIV).
    pub cube: bool,
    /// Index of the launched block.
    pub block: u32,
    /// 0 or 1 on vector cores.
    pub sub_block: u32,
    /// What it did, in program order.
    pub records: Vec<abi::Record>,
}

/// The record of a launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The cores that took part.
    pub cores: Vec<CoreProgram>,
    /// Names of API calls; `Record::api` is an index.
    pub names: Vec<String>,
    /// Places in the source, file and line; `Record::site` is an index.
    pub sites: Vec<(String, u32)>,
}
