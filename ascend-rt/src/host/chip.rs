// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the emulator knows of the chips.

use core::fmt;

/// The sizes of a chip, as its driver would report them.
///
/// [`Chip::preset`] knows the chips by name; every field may be changed afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Chip {
    /// The name that `aclrtGetSocName` answers.
    pub name: String,
    /// Architecture number: 2201 for A2 and A3, 3510 for 950PR and 950DT, 2002 for 310P, 1001 for the old 910.
    pub arch: i64,
    /// Cube cores. On architectures whose cores are not split, all cores.
    pub cube_cores: u32,
    /// Vector cores.
    pub vector_cores: u32,
    /// Device memory in bytes.
    pub memory: u64,
    /// Second-level cache in bytes.
    pub l2: u64,
    /// Unified buffer of one vector core in bytes.
    pub ub: u64,
    /// L1 buffer of one cube core in bytes.
    pub l1: u64,
    /// L0A and L0B buffer of one cube core in bytes, each.
    pub l0ab: u64,
    /// L0C buffer of one cube core in bytes.
    pub l0c: u64,
    /// Clock in MHz.
    pub mhz: u32,
    /// Streams that exist at once, those of captured graphs included.
    pub streams: u32,
    /// Bytes that an allocation takes beyond its size rounded up to 32.
    pub extra: u64,
    /// Whether the chip can capture streams.
    pub capture: bool,
}

/// No chip has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownChip {
    /// The name that was asked for.
    pub name: String,
}

impl fmt::Display for UnknownChip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no chip is called {:?}; known names are ", self.name)?;
        for (i, preset) in PRESETS.iter().enumerate() {
            write!(f, "{}{}", if i == 0 { "" } else { ", " }, preset.name)?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownChip {}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

struct Preset {
    name: &'static str,
    family: Family,
    cube: u32,
    vector: u32,
    memory_gib: u64,
    l2_mib: u64,
    mhz: u32,
}

#[derive(Clone, Copy)]
enum Family {
    /// The first 910: cores are not split, no capture.
    Old910,
    A2A3,
    F950,
}

const fn preset(
    name: &'static str,
    family: Family,
    (cube, vector): (u32, u32),
    memory_gib: u64,
    l2_mib: u64,
    mhz: u32,
) -> Preset {
    Preset { name, family, cube, vector, memory_gib, l2_mib, mhz }
}

/// Where the published table gives a range for a group of bins, each bin has the smallest memory and cache of the
/// range: what fits there fits on every part of that name.
const PRESETS: &[Preset] = {
    use Family::{A2A3, F950, Old910};
    &[
        // The bare name is the first 910 with 30 cores and 32 GiB, and no A2.
        preset("Ascend910B", Old910, (30, 30), 32, 32, 1000),
        preset("Ascend910B1", A2A3, (24, 48), 64, 192, 1850),
        preset("Ascend910B2", A2A3, (24, 48), 64, 192, 1800),
        preset("Ascend910B2C", A2A3, (24, 48), 64, 192, 1800),
        preset("Ascend910B3", A2A3, (20, 40), 64, 192, 1800),
        preset("Ascend910B4", A2A3, (20, 40), 32, 96, 1500),
        preset("Ascend910B4-1", A2A3, (20, 40), 32, 168, 1500),
        preset("Ascend910_9391", A2A3, (24, 48), 64, 192, 1850),
        preset("Ascend910_9392", A2A3, (24, 48), 64, 192, 1850),
        preset("Ascend910_9381", A2A3, (24, 48), 64, 192, 1800),
        preset("Ascend910_9382", A2A3, (24, 48), 64, 192, 1800),
        preset("Ascend910_9372", A2A3, (20, 40), 64, 192, 1800),
        preset("Ascend910_9362", A2A3, (20, 40), 64, 168, 1500),
        preset("Ascend910_9363", A2A3, (20, 40), 32, 168, 1500),
        preset("Ascend950PR_9599", F950, (36, 72), 128, 128, 1800),
        preset("Ascend950DT_9591", F950, (36, 72), 64, 128, 1800),
        preset("Ascend950DT_9592", F950, (36, 72), 64, 128, 1800),
        preset("Ascend950DT_9595", F950, (36, 72), 64, 128, 1800),
        preset("Ascend950DT_9596", F950, (36, 72), 64, 128, 1800),
        preset("Ascend950DT_95A1", F950, (36, 72), 64, 128, 1800),
        preset("Ascend950DT_95A2", F950, (36, 72), 64, 128, 1800),
        preset("Ascend950PR_9589", F950, (32, 64), 56, 112, 1650),
        preset("Ascend950PR_958b", F950, (32, 64), 56, 112, 1650),
        preset("Ascend950DT_9581", F950, (32, 64), 56, 112, 1650),
        preset("Ascend950DT_9582", F950, (32, 64), 56, 112, 1650),
        preset("Ascend950DT_9583", F950, (32, 64), 56, 112, 1650),
        preset("Ascend950DT_9584", F950, (32, 64), 56, 112, 1650),
        preset("Ascend950DT_9585", F950, (32, 64), 56, 112, 1650),
        preset("Ascend950DT_9586", F950, (32, 64), 56, 112, 1650),
        preset("Ascend950DT_9587", F950, (32, 64), 56, 112, 1650),
        preset("Ascend950DT_9588", F950, (32, 64), 56, 112, 1650),
        preset("Ascend950PR_9579", F950, (28, 56), 56, 96, 1650),
        preset("Ascend950PR_957b", F950, (28, 56), 56, 96, 1650),
        preset("Ascend950PR_957c", F950, (28, 56), 56, 96, 1650),
        preset("Ascend950PR_957d", F950, (28, 56), 56, 96, 1650),
        preset("Ascend950DT_9571", F950, (28, 56), 56, 96, 1650),
        preset("Ascend950DT_9572", F950, (28, 56), 56, 96, 1650),
        preset("Ascend950DT_9573", F950, (28, 56), 56, 96, 1650),
        preset("Ascend950DT_9574", F950, (28, 56), 56, 96, 1650),
        preset("Ascend950DT_9575", F950, (28, 56), 56, 96, 1650),
        preset("Ascend950DT_9576", F950, (28, 56), 56, 96, 1650),
        preset("Ascend950DT_9577", F950, (28, 56), 56, 96, 1650),
        preset("Ascend950DT_9578", F950, (28, 56), 56, 96, 1650),
        preset("Ascend950DT_950x", F950, (8, 16), 16, 16, 1650),
        preset("Ascend950DT_950y", F950, (4, 8), 16, 16, 1650),
        preset("Ascend950PR_950z", F950, (4, 8), 16, 16, 1650),
    ]
};

impl Chip {
    /// The chip of this name: the full name of a bin, such as `Ascend910B2` or `Ascend950PR_9599`.
    ///
    /// The bare `Ascend910B` is the first 910, architecture 1001.
    pub fn preset(name: &str) -> Result<Chip, UnknownChip> {
        let found = PRESETS.iter().find(|p| p.name == name).ok_or_else(|| UnknownChip { name: name.to_owned() })?;
        let (arch, ub, l1, l0c, extra, streams, capture) = match found.family {
            Family::Old910 => (1001, 256 * KIB, MIB, 256 * KIB, 32, 1024, false),
            Family::A2A3 => (2201, 192 * KIB, 512 * KIB, 128 * KIB, 32, 1984, true),
            Family::F950 => (3510, 248 * KIB, 512 * KIB, 256 * KIB, 0, 1984, true),
        };
        Ok(Chip {
            name: found.name.to_owned(),
            arch,
            cube_cores: found.cube,
            vector_cores: found.vector,
            memory: found.memory_gib * GIB,
            l2: found.l2_mib * MIB,
            ub,
            l1,
            l0ab: 64 * KIB,
            l0c,
            mhz: found.mhz,
            streams,
            extra,
            capture,
        })
    }

    /// The names that [`Chip::preset`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|p| p.name)
    }
}

impl Default for Chip {
    /// An Ascend910B2.
    fn default() -> Self {
        // The name stands in the table above; a test walks all of them.
        Self::preset("Ascend910B2").unwrap_or_else(|_| unreachable!("the default chip has a preset"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_preset_and_appears_once() {
        let mut names: Vec<_> = Chip::names().collect();
        for name in &names {
            let chip = Chip::preset(name).expect(name);
            assert_eq!(chip.name, *name);
            assert!(chip.cube_cores > 0 && chip.vector_cores > 0 && chip.memory > 0, "{name}");
        }
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn families_are_told_apart() {
        for (name, arch, cube, vector) in [
            ("Ascend910B", 1001, 30, 30),
            ("Ascend910B1", 2201, 24, 48),
            ("Ascend910B4-1", 2201, 20, 40),
            ("Ascend910_9362", 2201, 20, 40),
            ("Ascend950PR_9599", 3510, 36, 72),
            ("Ascend950DT_950y", 3510, 4, 8),
        ] {
            let chip = Chip::preset(name).expect(name);
            assert_eq!((chip.arch, chip.cube_cores, chip.vector_cores), (arch, cube, vector), "{name}");
            assert_eq!(chip.extra, if arch == 3510 { 0 } else { 32 }, "{name}");
        }
    }

    #[test]
    fn unknown_names_are_refused_with_the_list() {
        for name in ["", "910B", "Ascend910B5", "ascend910b1", "Ascend910B1 ", "Ascend910_95"] {
            let error = Chip::preset(name).expect_err(name);
            assert!(error.to_string().contains("Ascend910B2"), "{error}");
        }
    }
}
