// SPDX-License-Identifier: MIT OR Apache-2.0

//! SIMD levels as values: a [`Level`] can only be made where the CPU (and the operating system) has its features.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// An instruction-set level, whether or not this machine has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// Portable code, no intrinsics.
    Scalar,
    /// AVX2 and FMA; F32 arithmetic, 8 lanes.
    Avx2,
    /// AVX-512 F, BW, VL and DQ; F32 arithmetic, 16 lanes.
    Avx512,
    /// [`Isa::Avx512`] with VBMI and BF16: `vdpbf16ps` on BF16 activations, F32 arithmetic on F32 ones.
    Avx512Bf16,
}

impl Isa {
    /// All levels, slowest first.
    pub const ALL: [Isa; 4] = [Isa::Scalar, Isa::Avx2, Isa::Avx512, Isa::Avx512Bf16];

    /// The name used by `CPU_TILES_LEVEL`: `scalar`, `avx2`, `avx512`, `avx512bf16`.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Avx512Bf16 => "avx512bf16",
        }
    }

    /// The CPU features that this level needs and the running CPU lacks; empty where the level is available.
    pub fn missing_features(self) -> Vec<&'static str> {
        let mut missing = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            macro_rules! need {
                ($($feature:tt),*) => { $( if !std::arch::is_x86_feature_detected!($feature) { missing.push($feature); } )* };
            }
            if self >= Isa::Avx2 {
                need!("avx2", "fma");
            }
            if self >= Isa::Avx512 {
                need!("avx512f", "avx512bw", "avx512vl", "avx512dq");
            }
            if self >= Isa::Avx512Bf16 {
                need!("avx512vbmi", "avx512bf16");
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        if self != Isa::Scalar {
            missing.push("x86_64");
        }
        missing
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Isa {
    type Err = LevelError;

    fn from_str(name: &str) -> Result<Self, LevelError> {
        Isa::ALL.into_iter().find(|isa| isa.name() == name).ok_or_else(|| LevelError::Unknown { name: name.to_owned() })
    }
}

/// Why a SIMD level could not be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LevelError {
    /// No level has this name.
    Unknown {
        /// The name that was asked for.
        name: String,
    },
    /// The CPU lacks features of the level.
    Missing {
        /// The level that was asked for.
        isa: Isa,
        /// The features it lacks.
        features: Vec<&'static str>,
    },
}

impl fmt::Display for LevelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LevelError::Unknown { name } => {
                let names: Vec<_> = Isa::ALL.iter().map(|isa| isa.name()).collect();
                write!(f, "SIMD level `{name}` is unknown, expected one of {}", names.join(", "))
            }
            LevelError::Missing { isa, features } => {
                write!(f, "SIMD level `{isa}` is not available: this CPU has no {}", features.join(", "))
            }
        }
    }
}

impl std::error::Error for LevelError {}

/// Proof that the running CPU has the features of an [`Isa`].
///
/// Results depend on the level (rounding differs), never on the thread count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Level {
    isa: Isa,
    emulated: bool,
}

impl Level {
    /// The portable level, available everywhere.
    pub const SCALAR: Level = Level { isa: Isa::Scalar, emulated: false };

    /// The level `isa`, or which features this CPU lacks.
    pub fn new(isa: Isa) -> Result<Level, LevelError> {
        let features = isa.missing_features();
        if features.is_empty() {
            Ok(Level { isa, emulated: false })
        } else {
            Err(LevelError::Missing { isa, features })
        }
    }

    /// The best level of this CPU.
    pub fn best() -> Level {
        Isa::ALL.into_iter().rev().find_map(|isa| Level::new(isa).ok()).unwrap_or(Level::SCALAR)
    }

    /// Every level of this CPU, slowest first.
    pub fn available() -> Vec<Level> {
        Isa::ALL.into_iter().filter_map(|isa| Level::new(isa).ok()).collect()
    }

    /// The level named by `CPU_TILES_LEVEL`, or the best one where the variable is unset or empty.
    pub fn from_env() -> Result<Level, LevelError> {
        match std::env::var("CPU_TILES_LEVEL") {
            Ok(name) if !name.is_empty() => Level::new(name.parse()?),
            _ => Ok(Level::best()),
        }
    }

    /// A lane-exact software model of an AVX-512 level, `None` for the levels that have no model. For tests only.
    #[cfg(any(test, feature = "emulate"))]
    pub fn emulated(isa: Isa) -> Option<Level> {
        (isa >= Isa::Avx512).then_some(Level { isa, emulated: true })
    }

    /// The instruction-set level.
    pub const fn isa(self) -> Isa {
        self.isa
    }

    /// Whether this is a software model of the level.
    pub const fn is_emulated(self) -> bool {
        self.emulated
    }

    /// Whether BF16 activations are multiplied in BF16 (`vdpbf16ps`) on this level, instead of in F32.
    pub const fn has_bf16_dot(self) -> bool {
        matches!(self.isa, Isa::Avx512Bf16)
    }

    /// Whether BF16 dot products are also faster than F32 multiply-adds, where either would do. Intel's cores (measured:
    /// family 6, model 207) begin a `vdpbf16ps` every other cycle and two F32 multiply-adds every cycle, which is twice the
    /// rate; elsewhere it is the other way round.
    pub fn has_fast_bf16_dot(self) -> bool {
        self.has_bf16_dot() && (self.emulated || !is_intel())
    }

    /// The level's name; models carry the suffix `-model`.
    pub const fn name(self) -> &'static str {
        match (self.isa, self.emulated) {
            (Isa::Avx512, true) => "avx512-model",
            (Isa::Avx512Bf16, true) => "avx512bf16-model",
            (isa, _) => isa.name(),
        }
    }
}

/// Whether the CPU is made by Intel. Asked once: under a hypervisor the question takes microseconds.
fn is_intel() -> bool {
    static IS_INTEL: OnceLock<bool> = OnceLock::new();
    *IS_INTEL.get_or_init(|| {
        #[cfg(target_arch = "x86_64")]
        {
            let leaf = std::arch::x86_64::__cpuid(0);
            [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes).concat() == b"GenuineIntel"
        }
        #[cfg(not(target_arch = "x86_64"))]
        false
    })
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
