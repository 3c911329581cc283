// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// CPU features that the kernels look at; the report lists those that the CPU has.
const RELEVANT_FLAGS: [&str; 14] = [
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512dq",
    "avx512_bf16",
    "avx512_vnni",
    "avx512_vbmi",
    "amx_bf16",
    "asimd",
    "asimddp",
    "bf16",
];

/// The machine and the build that a report was made with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model name of the CPU; empty where the system does not tell.
    pub cpu: String,
    /// Its features that matter here, as the kernel names them.
    pub flags: Vec<String>,
    /// Cores, hardware threads of one core counted once.
    pub physical_cores: usize,
    /// Hardware threads.
    pub logical_cores: usize,
    /// Main memory; 0 where the system does not tell.
    pub memory_bytes: u64,
    /// Operating system.
    pub os: String,
    /// Architecture.
    pub arch: String,
    /// SIMD level in use.
    pub level: String,
    /// Threads in use.
    pub threads: usize,
    /// Compiler that built this program.
    pub rustc: String,
    /// Commit that it was built from; `None` outside a repository.
    pub commit: Option<String>,
}

impl Machine {
    /// This machine, running at SIMD level `level` with `threads` threads.
    #[must_use]
    pub fn detect(level: &str, threads: usize) -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        Self::parse(&read("/proc/cpuinfo"), &read("/proc/meminfo"), level, threads)
    }

    /// From the text of `/proc/cpuinfo` and `/proc/meminfo`.
    fn parse(cpuinfo: &str, meminfo: &str, level: &str, threads: usize) -> Self {
        let first = |key: &'static str| field(cpuinfo, key).next().unwrap_or_default();
        let has: BTreeSet<&str> = first("flags").split(' ').chain(first("Features").split(' ')).collect();
        let logical_cores = field(cpuinfo, "processor").count().max(1);
        let cores: BTreeSet<_> = field(cpuinfo, "physical id").zip(field(cpuinfo, "core id")).collect();
        Self {
            cpu: first("model name").to_owned(),
            flags: RELEVANT_FLAGS.into_iter().filter(|flag| has.contains(flag)).map(str::to_owned).collect(),
            physical_cores: if cores.is_empty() { logical_cores } else { cores.len() },
            logical_cores,
            memory_bytes: kib(meminfo, "MemTotal"),
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            level: level.to_owned(),
            threads,
            rustc: env!("MODEL_MINIMAX_RUSTC").to_owned(),
            commit: option_env!("MODEL_MINIMAX_COMMIT").map(str::to_owned),
        }
    }
}

/// Largest resident memory of this process so far, in bytes; 0 where the system does not tell.
#[must_use]
pub fn peak_memory_bytes() -> u64 {
    kib(&std::fs::read_to_string("/proc/self/status").unwrap_or_default(), "VmHWM")
}

/// Values of the lines `key : value`.
fn field<'a>(text: &'a str, key: &'static str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    })
}

/// The line `key : n kB` in bytes.
fn kib(text: &str, key: &'static str) -> u64 {
    let value = field(text, key).next().and_then(|value| value.strip_suffix(" kB"));
    value.and_then(|number| number.parse::<u64>().ok()).map_or(0, |kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPUINFO: &str = "processor\t: 0\nmodel name\t: Some CPU\nphysical id\t: 0\ncore id\t\t: 0\nflags\t\t: fpu fma avx2\n\
                           \nprocessor\t: 1\nmodel name\t: Some CPU\nphysical id\t: 0\ncore id\t\t: 0\nflags\t\t: fpu\n\
                           \nprocessor\t: 2\nmodel name\t: Some CPU\nphysical id\t: 0\ncore id\t\t: 1\nflags\t\t: fpu\n";

    #[test]
    fn cores_flags_and_memory_are_read() {
        let machine = Machine::parse(CPUINFO, "MemTotal:       24684092 kB\nMemFree: 1 kB\n", "avx2", 3);
        assert_eq!(machine.cpu, "Some CPU");
        assert_eq!(machine.flags, ["avx2", "fma"]);
        assert_eq!((machine.physical_cores, machine.logical_cores), (2, 3));
        assert_eq!(machine.memory_bytes, 24_684_092 * 1024);
        assert_eq!((machine.level.as_str(), machine.threads), ("avx2", 3));
        assert!(machine.rustc.starts_with("rustc "), "{}", machine.rustc);
    }

    #[test]
    fn absent_facts_are_empty() {
        let machine = Machine::parse("", "", "scalar", 1);
        assert_eq!((machine.cpu.as_str(), machine.flags.len(), machine.memory_bytes), ("", 0, 0));
        assert_eq!((machine.physical_cores, machine.logical_cores), (1, 1));
        // An Arm machine names features instead of flags, and no cores.
        let arm = Machine::parse("processor : 0\nFeatures : fp asimd asimddp\nprocessor : 1\n", "", "neon", 1);
        assert_eq!((arm.flags.as_slice(), arm.physical_cores), (["asimd", "asimddp"].map(String::from).as_slice(), 2));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn peak_memory_is_known_here() {
        let buffer = vec![1u8; 64 << 20];
        assert!(peak_memory_bytes() >= buffer.len() as u64);
    }
}
