// SPDX-License-Identifier: MIT OR Apache-2.0

//! Architectures, the chips of each, and `ASCEND_RT_SOC`, which picks among them.

use std::fmt;

use crate::error::Error;

/// An architecture that the compiler makes code for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Arch {
    /// A2 and A3: Ascend910B1 to B4, Ascend910_93xx.
    Dav2201,
    /// Ascend950PR and Ascend950DT.
    Dav3510,
    /// Ascend310P.
    Dav2002,
}

impl Arch {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Dav2201, Self::Dav3510, Self::Dav2002];

    /// Those that are built for when nobody says otherwise, as far as the compiler knows them.
    pub const DEFAULT: [Self; 2] = [Self::Dav2201, Self::Dav3510];

    /// As `--npu-arch` spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dav2201 => "dav-2201",
            Self::Dav3510 => "dav-3510",
            Self::Dav2002 => "dav-2002",
        }
    }

    /// The number that a device tells, and that `__NPU_ARCH__` is.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Dav2201 => 2201,
            Self::Dav3510 => 3510,
            Self::Dav2002 => 2002,
        }
    }

    /// Whether cube and vector cores are cores of their own, so that a mixed kernel has two entry points.
    #[must_use]
    pub const fn has_split_cores(self) -> bool {
        !matches!(self, Self::Dav2002)
    }

    /// What the names of its chips begin with.
    #[must_use]
    pub const fn socs(self) -> &'static [&'static str] {
        match self {
            Self::Dav2201 => &["Ascend910B1", "Ascend910B2", "Ascend910B3", "Ascend910B4", "Ascend910_93"],
            Self::Dav3510 => &["Ascend950PR", "Ascend950DT"],
            Self::Dav2002 => &["Ascend310P"],
        }
    }

    /// The chip that stands for the architecture in the build files of CANN 8.1 to 8.3, which know no architectures.
    /// None if these versions do not know the chips.
    #[must_use]
    pub const fn cmake_soc(self) -> Option<&'static str> {
        match self {
            Self::Dav2201 => Some("Ascend910B1"),
            Self::Dav2002 => Some("Ascend310P3"),
            Self::Dav3510 => None,
        }
    }

    fn of_word(word: &str) -> Option<Self> {
        let by_name = Self::ALL.into_iter().find(|arch| arch.name() == word);
        let family = match word {
            "910b" | "a2" | "a3" => Some(Self::Dav2201),
            "950" => Some(Self::Dav3510),
            "310p" => Some(Self::Dav2002),
            _ => None,
        };
        let of_soc = || Self::ALL.into_iter().find(|arch| arch.socs().iter().any(|soc| word.starts_with(soc)));
        by_name.or(family).or_else(of_soc)
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reads `ASCEND_RT_SOC`: words separated by commas, each an architecture (`dav-2201`), a family (`910b`, `a2`, `a3`,
/// `950`, `310p`) or the name of a chip (`Ascend910B3`). Each architecture comes once, in the order of [`Arch::ALL`].
///
/// # Errors
///
/// A word is none of these, or the list is empty. The bare name `Ascend910B` is the first 910, not an A2, and is refused.
pub fn parse(list: &str) -> Result<Vec<Arch>, Error> {
    let mut archs = Vec::new();
    for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let Some(arch) = Arch::of_word(word) else {
            let old = matches!(word, "Ascend910B" | "Ascend910A" | "Ascend910");
            let hint = if old {
                "that is the first 910, which no kernel here is for; an A2 is Ascend910B1 to Ascend910B4, or 910b"
            } else {
                "expected dav-2201, dav-3510, dav-2002, 910b, a2, a3, 950, 310p, or the name of a chip"
            };
            return Err(Error::Variable {
                name: "ASCEND_RT_SOC",
                value: list.to_owned(),
                expected: format!("`{word}`: {hint}"),
            });
        };
        archs.push(arch);
    }
    if archs.is_empty() {
        return Err(Error::Variable {
            name: "ASCEND_RT_SOC",
            value: list.to_owned(),
            expected: "at least one architecture; leave the variable unset for the default".to_owned(),
        });
    }
    archs.sort_by_key(|arch| Arch::ALL.iter().position(|other| other == arch));
    archs.dedup();
    Ok(archs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_each_kind() {
        for (word, arch) in [
            ("dav-2201", Arch::Dav2201),
            ("910b", Arch::Dav2201),
            ("a2", Arch::Dav2201),
            ("a3", Arch::Dav2201),
            ("Ascend910B1", Arch::Dav2201),
            ("Ascend910B2C", Arch::Dav2201),
            ("Ascend910B4-1", Arch::Dav2201),
            ("Ascend910_9391", Arch::Dav2201),
            ("950", Arch::Dav3510),
            ("Ascend950PR_9599", Arch::Dav3510),
            ("Ascend950DT_95A1", Arch::Dav3510),
            ("310p", Arch::Dav2002),
            ("Ascend310P3", Arch::Dav2002),
        ] {
            assert_eq!(parse(word).unwrap(), [arch], "{word}");
        }
    }

    #[test]
    fn lists_are_sorted_and_unique() {
        assert_eq!(parse(" 950, dav-2201,Ascend910B3 ,").unwrap(), [Arch::Dav2201, Arch::Dav3510]);
    }

    #[test]
    fn the_bare_name_is_the_old_chip() {
        let message = parse("Ascend910B").unwrap_err().to_string();
        assert!(message.contains("first 910") && message.contains("Ascend910B1"), "{message}");
    }

    #[test]
    fn other_words_get_the_list() {
        for word in ["Ascend310B1", "910B", "dav-9999", "Ascend950", "all"] {
            let message = parse(word).unwrap_err().to_string();
            assert!(message.contains("ASCEND_RT_SOC") && message.contains("dav-3510"), "{message}");
        }
        assert!(parse(" , ").unwrap_err().to_string().contains("at least one"));
    }

    #[test]
    fn names_and_numbers_agree() {
        for arch in Arch::ALL {
            assert_eq!(arch.to_string(), format!("dav-{}", arch.number()));
        }
    }
}
