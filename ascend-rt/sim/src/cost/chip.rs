// SPDX-License-Identifier: MIT OR Apache-2.0

//! The chips: sizes, clocks and rates, each with its origin.
//!
//! Origins are short: *ini* is the vendor's published platform configuration; *profile* is a published whole-kernel
//! profile (the best-practice samples of the kernel language, measured on an A2 part of 1850 MHz with 24 cube cores and
//! on a 950PR of 1650 MHz with 32), from which the number was worked out as the comment says; *estimate* is neither.

use core::fmt;

const KIB: u32 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The two generations of cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// Architecture number 2201: 910B (A2) and the dies of A3.
    A2201,
    /// Architecture number 3510: 950PR and 950DT.
    A3510,
}

impl Arch {
    /// The architecture number.
    pub fn number(self) -> u32 {
        match self {
            Arch::A2201 => 2201,
            Arch::A3510 => 3510,
        }
    }
}

/// How fast one side of one kind of core moves bytes to or from GM, the shared parts of the chip aside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Port {
    /// Bytes a cycle inside a burst, when the L2 cache answers.
    pub rate: f64,
    /// Bytes a cycle inside a burst, when HBM answers: what the outstanding requests of one core allow.
    pub hbm_rate: f64,
    /// Cycles that each burst (row of a strided copy) takes on top of its bytes, out of L2.
    pub burst: f64,
    /// The same out of HBM.
    pub hbm_burst: f64,
}

impl Port {
    /// Bytes a cycle of `bursts` bursts of `bytes` bytes in all.
    fn effective(rate: f64, burst: f64, bytes: f64, bursts: f64) -> f64 {
        bytes / (bytes / rate + bursts * burst)
    }

    /// Bytes a cycle against the L2 cache.
    pub fn l2(&self, bytes: f64, bursts: f64) -> f64 {
        Self::effective(self.rate, self.burst, bytes, bursts)
    }

    /// Bytes a cycle against HBM.
    pub fn hbm(&self, bytes: f64, bursts: f64) -> f64 {
        Self::effective(self.hbm_rate, self.hbm_burst, bytes, bursts)
    }
}

/// All that is shared by a chip's cores or is the same in each of them, in cycles and bytes a cycle.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    /// HBM bytes a second that a streaming kernel gets, all cores together.
    pub hbm: f64,
    /// Bytes a second read from L2, all cores together.
    pub l2: f64,
    /// Bytes a second written to L2, all cores together, while others read.
    pub l2_write: f64,
    /// GM to L1 or L0.
    pub cube_read: Port,
    /// L0C to GM.
    pub cube_write: Port,
    /// GM to UB.
    pub vector_read: Port,
    /// UB to GM.
    pub vector_write: Port,
    /// From the start of a read to its first byte out of HBM.
    pub hbm_latency: f64,
    /// From the start of a read to its first byte out of L2.
    pub l2_latency: f64,
    /// What a UB to GM copy takes beyond its bytes.
    pub write_latency: f64,
    /// Least distance of two copies in one pipe.
    pub copy_interval: f64,
    /// Unit in which GM is moved: a burst that begins off its border pays for one unit more.
    pub granule: u64,
    /// L1 to L0A and L0B.
    pub l0a: f64,
    /// L1 to L0B.
    pub l0b: f64,
    /// L1 to L0A_MX and L0B_MX.
    pub l0_scales: f64,
    /// Start of a two-dimensional load that finds MTE1 idle.
    pub load: f64,
    /// Start of a three-dimensional load that finds MTE1 idle.
    pub load_3d: f64,
    /// Start of a load that follows another without a gap.
    pub load_follow: f64,
    /// Start of a copy to BT or FB.
    pub small: f64,
    /// Bytes a cycle of copies to BT and FB.
    pub small_rate: f64,
    /// Start of a Mmad.
    pub mmad: f64,
    /// Start of a Fixpipe.
    pub fix: f64,
    /// Elements of L0C that Fixpipe reads a cycle.
    pub fix_elements: f64,
    /// Bytes a cycle of Fixpipe to UB, and twice that to both vector cores.
    pub fix_ub: f64,
    /// UB to L1, L1 to UB and other copies inside the core.
    pub local: f64,
    /// From SetFlag to the WaitFlag of another pipe.
    pub flag: f64,
    /// From CrossCoreSetFlag to the CrossCoreWaitFlag of another core.
    pub cross_flag: f64,
    /// SyncAll, in seconds.
    pub sync_all: f64,
    /// Launch of a kernel, in seconds.
    pub launch: f64,
}

/// A chip of [`Chip::preset`]. Every field may be changed afterwards.
#[derive(Clone, Debug, PartialEq)]
pub struct Chip {
    /// The full name, as `aclrtGetSocName` answers it where it is one part.
    pub name: String,
    /// Generation of the cores.
    pub arch: Arch,
    /// Cube cores.
    pub cube_cores: u32,
    /// Vector cores.
    pub vector_cores: u32,
    /// Clock of the cores in MHz.
    pub mhz: u32,
    /// Device memory in bytes.
    pub memory: u64,
    /// L2 cache in bytes.
    pub l2: u64,
    /// Rates and latencies.
    pub rates: Rates,
}

/// On-chip memories in bytes, as a kernel may use them. What the driver hands to a compiled kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memories {
    /// Unified buffer.
    pub ub: u32,
    /// L1.
    pub l1: u32,
    /// L0A.
    pub l0a: u32,
    /// L0B.
    pub l0b: u32,
    /// L0C.
    pub l0c: u32,
    /// Bias table.
    pub bt: u32,
    /// Fixpipe buffer.
    pub fb: u32,
    /// Scales of L0A; 0 where there are none.
    pub l0a_mx: u32,
    /// Scales of L0B; 0 where there are none.
    pub l0b_mx: u32,
}

/// What takes part of the on-chip memories away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// The 8 KiB of UB that the compiler keeps for itself unless told not to.
    pub ub: bool,
    /// The kernel mixes cube and vector cores: on 2201, 256 bytes of L1 hold messages.
    pub mix: bool,
}

impl Default for Reserve {
    /// All that may be taken is taken.
    fn default() -> Self {
        Self { ub: true, mix: true }
    }
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
        for (i, name) in Chip::names().enumerate() {
            write!(f, "{}{name}", if i == 0 { "" } else { ", " })?;
        }
        write!(f, "; case and the prefix \"Ascend\" do not matter, and a2, a3 and 950 stand for one of their family")
    }
}

impl core::error::Error for UnknownChip {}

struct Preset {
    name: &'static str,
    arch: Arch,
    cube: u32,
    mhz: u32,
    memory_gib: u64,
    l2_mib: u64,
    hbm: f64,
}

const fn preset(
    name: &'static str,
    arch: Arch,
    cube: u32,
    mhz: u32,
    (memory_gib, l2_mib): (u64, u64),
    hbm: f64,
) -> Preset {
    Preset { name, arch, cube, mhz, memory_gib, l2_mib, hbm }
}

/// Profile: an Add of 8192 x 8192 halves moves 403 MB through HBM in 257 us (1.56 TB/s), with inputs past the cache
/// 268 MB in 185 us (1.45); reading 302 MB takes 202 us (1.49).
const HBM_64G: f64 = 1.52e12;
/// Estimate: half the memory is half the stacks.
const HBM_32G: f64 = 0.76e12;
/// Profile: reading 302 MB four times takes 740 us (1.63 TB/s); the sample's text says 1.6.
const HBM_950PR: f64 = 1.6e12;
/// Estimate after a public talk (4 TB/s); no profile is known.
const HBM_950DT: f64 = 3.8e12;

/// Cores, clocks and sizes are those of the ini files; the smallest of a range where a group of bins has one.
const PRESETS: &[Preset] = {
    use Arch::{A2201, A3510};
    &[
        preset("Ascend910B1", A2201, 24, 1850, (64, 192), HBM_64G),
        preset("Ascend910B2", A2201, 24, 1800, (64, 192), HBM_64G),
        preset("Ascend910B2C", A2201, 24, 1800, (64, 192), HBM_64G),
        preset("Ascend910B3", A2201, 20, 1800, (64, 192), HBM_64G),
        preset("Ascend910B4", A2201, 20, 1500, (32, 96), HBM_32G),
        preset("Ascend910B4-1", A2201, 20, 1500, (32, 168), HBM_32G),
        preset("Ascend910_9391", A2201, 24, 1850, (64, 192), HBM_64G),
        preset("Ascend910_9392", A2201, 24, 1850, (64, 192), HBM_64G),
        preset("Ascend910_9381", A2201, 24, 1800, (64, 192), HBM_64G),
        preset("Ascend910_9382", A2201, 24, 1800, (64, 192), HBM_64G),
        preset("Ascend910_9372", A2201, 20, 1800, (64, 192), HBM_64G),
        preset("Ascend910_9362", A2201, 20, 1500, (64, 168), HBM_64G),
        preset("Ascend910_9363", A2201, 20, 1500, (32, 168), HBM_32G),
        // The part of the published profiles: 32 cores, all of the cache.
        preset("Ascend950PR", A3510, 32, 1650, (128, 128), HBM_950PR),
        preset("Ascend950DT", A3510, 32, 1650, (128, 128), HBM_950DT),
        preset("Ascend950PR_9599", A3510, 36, 1800, (128, 128), HBM_950PR),
        preset("Ascend950DT_9591", A3510, 36, 1800, (64, 128), HBM_950DT),
        preset("Ascend950DT_9592", A3510, 36, 1800, (64, 128), HBM_950DT),
        preset("Ascend950DT_9595", A3510, 36, 1800, (64, 128), HBM_950DT),
        preset("Ascend950DT_9596", A3510, 36, 1800, (64, 128), HBM_950DT),
        preset("Ascend950PR_9589", A3510, 32, 1650, (56, 112), HBM_950PR),
        preset("Ascend950PR_958b", A3510, 32, 1650, (56, 112), HBM_950PR),
        preset("Ascend950DT_9581", A3510, 32, 1650, (56, 112), HBM_950DT),
        preset("Ascend950DT_9582", A3510, 32, 1650, (56, 112), HBM_950DT),
        preset("Ascend950DT_9583", A3510, 32, 1650, (56, 112), HBM_950DT),
        preset("Ascend950DT_9584", A3510, 32, 1650, (56, 112), HBM_950DT),
        preset("Ascend950PR_9579", A3510, 28, 1650, (56, 96), HBM_950PR),
        preset("Ascend950PR_957b", A3510, 28, 1650, (56, 96), HBM_950PR),
        preset("Ascend950DT_9571", A3510, 28, 1650, (56, 96), HBM_950DT),
        preset("Ascend950DT_9572", A3510, 28, 1650, (56, 96), HBM_950DT),
    ]
};

fn rates_2201(hbm: f64) -> Rates {
    Rates {
        hbm,
        // Profile: a quarter of a matrix read again and again comes at 5.9 TB/s to UB and 5.0 to L1; the sample counts
        // with 5.2.
        l2: 5.2e12,
        // In proportion to the ports of the ini, 86 to 110.
        l2_write: 4.0e12,
        // Profile: strided reads of the 8192^3 matmul, half of the bytes in rows of 512 and 1/3 in rows of 1024, keep
        // MTE2 busy at 83 bytes a cycle; 113 with rows of 2048. Both fit 128 bytes (the bus) and 2.6 cycles a row. Out
        // of HBM one core alone gets 135 GB/s, and rows of 128 bytes take 5.3 cycles.
        cube_read: Port { rate: 128.0, hbm_rate: 73.0, burst: 2.6, hbm_burst: 3.6 },
        // Ini: 86. Profile: Fixpipe writes a tile of 128 rows of 512 bytes in 992 cycles, rows of 1024 at 76 bytes a cycle.
        cube_write: Port { rate: 86.0, hbm_rate: 86.0, burst: 1.8, hbm_burst: 1.8 },
        // Ini: 64. Profile: 566 cycles for 24 KiB out of L2. Out of HBM one core alone gets 100 GB/s.
        vector_read: Port { rate: 64.0, hbm_rate: 54.0, burst: 2.6, hbm_burst: 3.6 },
        // Profile: 8 KiB take one core 295 cycles, 24 rows of 512 bytes 385.
        vector_write: Port { rate: 86.0, hbm_rate: 86.0, burst: 1.8, hbm_burst: 1.8 },
        // Profile: two reads of 8 KiB take one core 701 cycles, of which 303 are bytes.
        hbm_latency: 400.0,
        // Profile: 24 KiB that another core just wrote arrive after 566 cycles, of which 384 are bytes.
        l2_latency: 190.0,
        // Profile: see vector_write.
        write_latency: 200.0,
        // Profile: 49152 copies of 128 bytes in 548 us.
        copy_interval: 20.6,
        // Profile: rows of 2 KiB off their border take 1.28 times as long, rows of 512 bytes 1.97 times.
        granule: 512,
        // Official sheet of theoretical rates.
        l0a: 256.0,
        l0b: 128.0,
        l0_scales: 32.0,
        load: 28.0,
        load_3d: 50.0,
        // Profile: one 3D load and four 2D loads, 320 cycles of bytes, keep MTE1 busy for 432 a step.
        load_follow: 15.0,
        small: 20.0,
        small_rate: 32.0,
        // Profile: 522 cycles for a Mmad of 512.
        mmad: 10.0,
        fix: 20.0,
        fix_elements: 64.0,
        fix_ub: 128.0,
        local: 128.0,
        // Profile: a tile of the single-core Add leaves nothing for its flags; the least that is not nothing.
        flag: 2.0,
        // Estimate: a write to L2 and a read of it.
        cross_flag: 200.0,
        sync_all: 2.5e-6,
        launch: 5e-6,
    }
}

fn rates_3510(hbm: f64) -> Rates {
    Rates {
        hbm,
        // Profile: 5.4 TB/s to UB, 4.4 to L1; the samples count with 5.2 and 5.
        l2: 5.2e12,
        l2_write: 4.0e12,
        // Profile: without latencies and first reads, rows of 256 bytes take 2.6 to 2.9 cycles (mxfp4 matmul), rows of
        // 512 take 4.6 (half); out of HBM rows of 128 bytes take 5.4.
        cube_read: Port { rate: 128.0, hbm_rate: 82.0, burst: 0.6, hbm_burst: 3.8 },
        // Profile: 256 rows of 512 bytes take 1735 cycles, rows of 1024 come at 85 bytes a cycle.
        cube_write: Port { rate: 100.0, hbm_rate: 100.0, burst: 1.6, hbm_burst: 1.6 },
        // Profile: 24 KiB of L2 in 627 cycles; out of HBM two reads of 8 KiB in 772.
        vector_read: Port { rate: 64.0, hbm_rate: 54.0, burst: 0.9, hbm_burst: 3.8 },
        // Profile: 24 rows of 512 bytes take 422 cycles.
        vector_write: Port { rate: 100.0, hbm_rate: 100.0, burst: 1.6, hbm_burst: 1.6 },
        hbm_latency: 460.0,
        l2_latency: 240.0,
        write_latency: 260.0,
        // Profile: 36864 copies of 128 bytes in 881 us.
        copy_interval: 39.4,
        // Profile: rows off the border of 512 bytes cost 2 to 8 %.
        granule: 128,
        l0a: 256.0,
        l0b: 256.0,
        l0_scales: 32.0,
        load: 30.0,
        load_3d: 50.0,
        // Profile: two loads of 32 KiB keep MTE1 busy for 333 cycles a step: nothing of the start is hidden.
        load_follow: 30.0,
        small: 26.0,
        small_rate: 32.0,
        mmad: 9.0,
        fix: 26.0,
        fix_elements: 64.0,
        fix_ub: 128.0,
        local: 128.0,
        flag: 2.0,
        cross_flag: 240.0,
        sync_all: 2.5e-6,
        launch: 5e-6,
    }
}

impl Chip {
    /// The chip of this name. Case and a leading `Ascend` do not matter: `Ascend910B3`, `910b3`, `910_9392`. `950PR` and
    /// `950DT` are the 32-core parts of the published profiles. Families stand for one of their bins: `910B` and `a2`
    /// for 910B2, `a3` for 910_9391, `950` for 950PR.
    pub fn preset(name: &str) -> Result<Chip, UnknownChip> {
        let key = |s: &str| {
            let s = s.to_ascii_lowercase();
            s.strip_prefix("ascend").map(str::to_owned).unwrap_or(s)
        };
        let wanted = match key(name).as_str() {
            "910b" | "a2" => "910b2".to_owned(),
            "a3" => "910_9391".to_owned(),
            "950" | "910_95" => "950pr".to_owned(),
            other => other.to_owned(),
        };
        let p = PRESETS.iter().find(|p| key(p.name) == wanted).ok_or_else(|| UnknownChip { name: name.to_owned() })?;
        Ok(Chip {
            name: p.name.to_owned(),
            arch: p.arch,
            cube_cores: p.cube,
            vector_cores: 2 * p.cube,
            mhz: p.mhz,
            memory: p.memory_gib * GIB,
            l2: p.l2_mib * MIB,
            rates: match p.arch {
                Arch::A2201 => rates_2201(p.hbm),
                Arch::A3510 => rates_3510(p.hbm),
            },
        })
    }

    /// The full names that [`Chip::preset`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|p| p.name)
    }

    /// What a kernel may use of the on-chip memories.
    pub fn memories(&self, reserve: Reserve) -> Memories {
        let messages = if reserve.mix { 256 } else { 0 };
        let kept = if reserve.ub { 8 * KIB } else { 0 };
        match self.arch {
            Arch::A2201 => Memories {
                ub: 192 * KIB - 256 - kept,
                l1: 512 * KIB - messages,
                l0a: 64 * KIB,
                l0b: 64 * KIB,
                l0c: 128 * KIB,
                bt: KIB,
                fb: 2 * KIB,
                l0a_mx: 0,
                l0b_mx: 0,
            },
            Arch::A3510 => Memories {
                ub: 256 * KIB - kept,
                l1: 512 * KIB,
                l0a: 64 * KIB,
                l0b: 64 * KIB,
                l0c: 256 * KIB,
                bt: 4 * KIB,
                fb: 4 * KIB,
                l0a_mx: 4 * KIB,
                l0b_mx: 4 * KIB,
            },
        }
    }

    /// Cycles in a second.
    pub fn hz(&self) -> f64 {
        f64::from(self.mhz) * 1e6
    }
}
