// SPDX-License-Identifier: MIT OR Apache-2.0

//! What of a chip decides whether a kernel runs on it.

use core::fmt;
use std::ffi::CString;

use crate::abi;

/// Cores and on-chip memories of a chip, in bytes that kernels may use.
///
/// [`Chip::preset`] knows the chips by name; every field may be changed afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Chip {
    /// The name.
    pub name: String,
    /// Architecture number: 2201 or 3510.
    pub arch: u32,
    /// Cube cores.
    pub cube_cores: u32,
    /// Vector cores.
    pub vector_cores: u32,
    /// Unified buffer of a vector core, without what is reserved.
    pub ub: u32,
    /// L1 buffer of a cube core, without what is reserved.
    pub l1: u32,
    /// L0A buffer.
    pub l0a: u32,
    /// L0B buffer.
    pub l0b: u32,
    /// L0C buffer.
    pub l0c: u32,
    /// Bias table buffer.
    pub bt: u32,
    /// Fixpipe buffer.
    pub fb: u32,
    /// Scales beside L0A; 0 where there are none.
    pub l0a_mx: u32,
    /// Scales beside L0B; 0 where there are none.
    pub l0b_mx: u32,
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
        for (at, (name, ..)) in PRESETS.iter().enumerate() {
            write!(f, "{}{name}", if at == 0 { "" } else { ", " })?;
        }
        f.write_str(", also in short, as 910b3 or 950pr")
    }
}

impl core::error::Error for UnknownChip {}

/// Name, architecture, cube cores.
const PRESETS: &[(&str, u32, u32)] = &[
    ("Ascend910B1", 2201, 24),
    ("Ascend910B2", 2201, 24),
    ("Ascend910B2C", 2201, 24),
    ("Ascend910B3", 2201, 20),
    ("Ascend910B4", 2201, 20),
    ("Ascend910B4-1", 2201, 20),
    ("Ascend910_9391", 2201, 24),
    ("Ascend910_9392", 2201, 24),
    ("Ascend910_9381", 2201, 24),
    ("Ascend910_9382", 2201, 24),
    ("Ascend910_9372", 2201, 20),
    ("Ascend910_9362", 2201, 20),
    ("Ascend950PR_9599", 3510, 36),
    ("Ascend950PR_9589", 3510, 32),
    ("Ascend950PR_9579", 3510, 28),
    ("Ascend950DT_9591", 3510, 36),
    ("Ascend950DT_9581", 3510, 32),
    ("Ascend950DT_9571", 3510, 28),
];

/// Names that stand for one of a family.
const FAMILIES: &[(&str, &str)] = &[
    ("910b", "Ascend910B2"),
    ("a2", "Ascend910B2"),
    ("a3", "Ascend910_9391"),
    ("950", "Ascend950PR_9589"),
    ("950pr", "Ascend950PR_9589"),
    ("950dt", "Ascend950DT_9581"),
];

const KIB: u32 = 1024;

impl Chip {
    /// A chip of this name: that of a bin (`Ascend910B3`), the same in short (`910b3`), or a family (`a2`, `a3`,
    /// `950`), which stands for one of its bins.
    ///
    /// # Errors
    ///
    /// No chip has the name.
    pub fn preset(name: &str) -> Result<Self, UnknownChip> {
        let lower = name.to_lowercase();
        let family = FAMILIES.iter().find(|(short, _)| *short == lower).map(|(_, name)| *name);
        let wanted = family.map_or(lower.clone(), str::to_lowercase);
        let same = |known: &str| {
            let known = known.to_lowercase();
            known == wanted || known.strip_prefix("ascend") == Some(&wanted)
        };
        let found = PRESETS.iter().find(|(known, ..)| same(known));
        let &(name, arch, cube) = found.ok_or_else(|| UnknownChip { name: name.to_owned() })?;
        Self::of_arch(name, arch, cube, 2 * cube).ok_or_else(|| UnknownChip { name: name.to_owned() })
    }

    /// A chip of an architecture with so many cores. None if the twin does not know the architecture.
    #[must_use]
    pub fn of_arch(name: &str, arch: u32, cube_cores: u32, vector_cores: u32) -> Option<Self> {
        // What the compiler keeps for itself: 256 bytes of L1 and UB and 8 KiB of UB on 2201, 8 KiB of UB on 3510.
        let (ub, l1, l0c, bt, fb, mx) = match arch {
            2201 => (192 * KIB - 256 - 8 * KIB, 512 * KIB - 256, 128 * KIB, KIB, 2 * KIB, 0),
            3510 => (248 * KIB, 512 * KIB, 256 * KIB, 4 * KIB, 4 * KIB, 4 * KIB),
            _ => return None,
        };
        Some(Self {
            name: name.to_owned(),
            arch,
            cube_cores,
            vector_cores,
            ub,
            l1,
            l0a: 64 * KIB,
            l0b: 64 * KIB,
            l0c,
            bt,
            fb,
            l0a_mx: mx,
            l0b_mx: mx,
        })
    }

    /// The names that [`preset`](Self::preset) knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|(name, ..)| *name).chain(FAMILIES.iter().map(|(name, _)| *name))
    }

    /// As the image takes it; `name` must live as long.
    pub(crate) fn raw(&self, name: &CString) -> abi::Chip {
        abi::Chip {
            name: name.as_ptr(),
            arch: self.arch,
            cube_cores: self.cube_cores,
            vector_cores: self.vector_cores,
            ub: self.ub,
            l1: self.l1,
            l0a: self.l0a,
            l0b: self.l0b,
            l0c: self.l0c,
            bt: self.bt,
            fb: self.fb,
            l0a_mx: self.l0a_mx,
            l0b_mx: self.l0b_mx,
        }
    }
}
