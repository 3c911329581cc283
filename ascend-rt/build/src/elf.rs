// SPDX-License-Identifier: MIT OR Apache-2.0

//! Whether a linked file is what a device loads: an ELF file for its cores, with code, and with each kernel in it.
//!
//! This is the part of an ELF reader that the question needs: header, section table, symbol tables. Every number of the
//! file is untrusted; each offset is checked before it is used.

use std::fmt;

use crate::arch::Arch;
use crate::kernel::{Cores, Entry};

/// The machine number of AI cores.
pub const EM_AICORE: u16 = 0x1029;
/// Numbers below this one belong to registered processors. The vendor's are above.
const FIRST_VENDOR_MACHINE: u16 = 0x1000;

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ElfError {
    /// Zero bytes.
    Empty,
    /// No ELF file of 64 bits, little endian.
    NotElf {
        /// What it is instead.
        found: String,
    },
    /// It is for the host, or for another processor.
    Machine {
        /// Its machine number.
        machine: u16,
    },
    /// A table reaches beyond the file.
    Truncated {
        /// Which.
        what: &'static str,
    },
    /// It has no function at all: what a compiler makes of a source whose kernels are switched off.
    NoCode,
    /// A kernel is not in it.
    Missing {
        /// The names that would have been right.
        expected: Vec<String>,
        /// The functions that are there.
        found: Vec<String>,
    },
}

impl fmt::Display for ElfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("expected device code, found an empty file"),
            Self::NotElf { found } => write!(f, "expected an ELF file of 64 bits, little endian; found {found}"),
            Self::Machine { machine } => {
                let name = match machine {
                    62 => " (x86-64)",
                    183 => " (AArch64, or code for the AI CPU)",
                    _ => "",
                };
                write!(f, "expected code for AI cores (machine {EM_AICORE:#x}), found machine {machine}{name}")
            }
            Self::Truncated { what } => write!(f, "the {what} reaches beyond the end of the file"),
            Self::NoCode => f.write_str("expected kernels, found an ELF file without any function"),
            Self::Missing { expected, found } => {
                write!(f, "expected the kernel {}", expected.join(" or "))?;
                match found.as_slice() {
                    [] => f.write_str(", found no function that others can see"),
                    names => write!(f, ", found {}", names.join(", ")),
                }
            }
        }
    }
}

impl std::error::Error for ElfError {}

/// What is read of an ELF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    /// The machine number.
    pub machine: u16,
    /// Names of the functions that are defined and visible outside, sorted.
    pub functions: Vec<String>,
}

/// Reads header and symbols.
///
/// # Errors
///
/// It is no ELF file of 64 bits, little endian, or it is cut off.
pub fn read(bytes: &[u8]) -> Result<Elf, ElfError> {
    if bytes.is_empty() {
        return Err(ElfError::Empty);
    }
    let not_elf = |found: &str| ElfError::NotElf { found: found.to_owned() };
    if bytes.get(..4) != Some(b"\x7fELF") {
        return Err(not_elf(if bytes.starts_with(b"!<arch>") { "an archive" } else { "another kind of file" }));
    }
    match (bytes.get(4), bytes.get(5)) {
        (Some(2), Some(1)) => {}
        (Some(1), _) => return Err(not_elf("one of 32 bits")),
        (Some(2), Some(2)) => return Err(not_elf("a big-endian one")),
        _ => return Err(not_elf("a damaged one")),
    }
    let header = ElfError::Truncated { what: "header" };
    let machine = u16_at(bytes, 18).ok_or_else(|| header.clone())?;
    let table = u64_at(bytes, 40).ok_or_else(|| header.clone())?;
    let entry = u16_at(bytes, 58).ok_or_else(|| header.clone())?;
    let mut count = u64::from(u16_at(bytes, 60).ok_or(header)?);
    let truncated = |what| ElfError::Truncated { what };
    if table == 0 {
        return Ok(Elf { machine, functions: Vec::new() });
    }
    let entry = usize::from(entry);
    if entry < SECTION_BYTES {
        return Err(truncated("section header"));
    }
    if count == 0 {
        // More sections than the header's field can hold: the first one has the number.
        count = slice(bytes, table, SECTION_BYTES).and_then(|first| u64_at(first, 32)).unwrap_or(0);
    }
    let whole = usize::try_from(count).ok().and_then(|count| count.checked_mul(entry));
    let table = whole.and_then(|length| slice(bytes, table, length)).ok_or(truncated("section table"))?;
    let sections: Vec<&[u8]> = table.chunks_exact(entry).collect();

    let mut functions = Vec::new();
    for section in &sections {
        if u32_at(section, 4) != Some(SHT_SYMTAB) {
            continue;
        }
        let symbols = contents(bytes, section).ok_or(truncated("symbol table"))?;
        let strings = u32_at(section, 40).and_then(|link| sections.get(link as usize));
        let strings = strings.and_then(|section| contents(bytes, section)).ok_or(truncated("string table"))?;
        for symbol in symbols.chunks_exact(SYMBOL_BYTES) {
            let (kind, binding) = (symbol[4] & 0xf, symbol[4] >> 4);
            let section = u16_at(symbol, 6).unwrap_or(0);
            let defined = section != 0 && section != SHN_COMMON;
            if kind == STT_FUNC && (binding == STB_GLOBAL || binding == STB_WEAK) && defined {
                let start = u32_at(symbol, 0).unwrap_or(0) as usize;
                let name = strings.get(start..).ok_or(truncated("name of a symbol"))?;
                let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
                functions.push(String::from_utf8_lossy(name).into_owned());
            }
        }
    }
    functions.sort();
    functions.dedup();
    Ok(Elf { machine, functions })
}

/// Whether the file is for AI cores and has each of these kernels. The number of the machine is the same for all
/// architectures, so a file for another one is found only when it is loaded.
///
/// # Errors
///
/// It is not, or it has not; the first thing that is wrong.
pub fn check(bytes: &[u8], arch: Arch, entries: &[Entry]) -> Result<Elf, ElfError> {
    let elf = read(bytes)?;
    if elf.machine < FIRST_VENDOR_MACHINE {
        return Err(ElfError::Machine { machine: elf.machine });
    }
    if elf.functions.is_empty() {
        return Err(ElfError::NoCode);
    }
    for Entry { name, cores } in entries {
        let has = |name: &str| elf.functions.iter().any(|function| function == name);
        let (cube, vector) = (format!("{name}_mix_aic"), format!("{name}_mix_aiv"));
        let (there, expected) = match cores {
            Cores::Vector => (has(name) || has(&vector), vec![format!("`{name}`"), format!("`{vector}`")]),
            Cores::Cube => (has(name) || has(&cube), vec![format!("`{name}`"), format!("`{cube}`")]),
            Cores::Mix if !arch.has_split_cores() => (has(name), vec![format!("`{name}`")]),
            // Which of them runs on a core is the loader's choice, so one alone would hang or do half of the work.
            Cores::Mix => (has(&cube) && has(&vector), vec![format!("`{cube}` with `{vector}`")]),
        };
        if !there {
            return Err(ElfError::Missing { expected, found: elf.functions });
        }
    }
    Ok(elf)
}

const SECTION_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;
const SHT_SYMTAB: u32 = 2;
const SHN_COMMON: u16 = 0xfff2;
const STT_FUNC: u8 = 2;
const STB_GLOBAL: u8 = 1;
const STB_WEAK: u8 = 2;

fn slice(bytes: &[u8], start: u64, length: usize) -> Option<&[u8]> {
    let start = usize::try_from(start).ok()?;
    bytes.get(start..start.checked_add(length)?)
}

/// What a section header points to.
fn contents<'a>(bytes: &'a [u8], section: &[u8]) -> Option<&'a [u8]> {
    slice(bytes, u64_at(section, 24)?, usize::try_from(u64_at(section, 32)?).ok()?)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
#[path = "../tests/canned.rs"]
mod canned;

#[cfg(test)]
mod tests {
    use super::canned::{Symbol, elf};
    use super::*;

    fn entries(list: &[(&str, Cores)]) -> Vec<Entry> {
        list.iter().map(|(name, cores)| Entry { name: (*name).to_owned(), cores: *cores }).collect()
    }

    #[test]
    fn kernels_by_kind_of_core() {
        let file = elf(EM_AICORE, &["v", "c_mix_aic", "m_mix_aic", "m_mix_aiv"].map(Symbol::kernel));
        let found = check(
            &file,
            Arch::Dav2201,
            &entries(&[("v", Cores::Vector), ("c", Cores::Cube), ("m", Cores::Mix), ("m", Cores::Vector)]),
        );
        assert_eq!(found.unwrap().functions, ["c_mix_aic", "m_mix_aic", "m_mix_aiv", "v"]);
    }

    #[test]
    fn cores_that_are_not_split_have_one_name() {
        let file = elf(EM_AICORE, &[Symbol::kernel("k")]);
        assert!(check(&file, Arch::Dav2002, &entries(&[("k", Cores::Mix)])).is_ok());
        assert!(check(&file, Arch::Dav2201, &entries(&[("k", Cores::Mix)])).is_err());
    }

    #[test]
    fn a_missing_kernel_lists_what_is_there() {
        let file = elf(EM_AICORE, &["a_mix_aic", "b"].map(Symbol::kernel));
        for (name, cores, expected) in [
            ("x", Cores::Vector, "expected the kernel `x` or `x_mix_aiv`, found a_mix_aic, b"),
            ("a", Cores::Vector, "expected the kernel `a` or `a_mix_aiv`, found a_mix_aic, b"),
            ("x", Cores::Cube, "expected the kernel `x` or `x_mix_aic`, found a_mix_aic, b"),
            ("a", Cores::Mix, "expected the kernel `a_mix_aic` with `a_mix_aiv`, found a_mix_aic, b"),
            ("b", Cores::Mix, "expected the kernel `b_mix_aic` with `b_mix_aiv`, found a_mix_aic, b"),
        ] {
            assert_eq!(check(&file, Arch::Dav2201, &entries(&[(name, cores)])).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn symbols_that_do_not_count() {
        let k = entries(&[("k", Cores::Vector)]);
        for symbol in [
            Symbol { binding: 0, ..Symbol::kernel("k") }, // local
            Symbol { kind: 1, ..Symbol::kernel("k") },    // an object
            Symbol { section: 0, ..Symbol::kernel("k") }, // undefined
        ] {
            assert_eq!(check(&elf(EM_AICORE, &[symbol]), Arch::Dav2201, &k), Err(ElfError::NoCode), "{symbol:?}");
        }
        assert!(check(&elf(EM_AICORE, &[Symbol { binding: 2, ..Symbol::kernel("k") }]), Arch::Dav2201, &k).is_ok());
    }

    #[test]
    fn files_of_other_kinds() {
        let host = elf(62, &[Symbol::kernel("k")]);
        assert_eq!(check(&host, Arch::Dav2201, &[]), Err(ElfError::Machine { machine: 62 }));
        assert_eq!(check(&[], Arch::Dav2201, &[]), Err(ElfError::Empty));
        let found = |bytes: &[u8]| check(bytes, Arch::Dav2201, &[]).unwrap_err().to_string();
        assert!(found(b"!<arch>\n").contains("an archive"));
        assert!(found(b"int main").contains("another kind"));
        assert!(found(b"\x7fELF").contains("damaged"));
        let mut other = elf(EM_AICORE, &[]);
        assert_eq!(check(&other, Arch::Dav2201, &[]), Err(ElfError::NoCode));
        other[4] = 1;
        assert!(found(&other).contains("32 bits"));
        (other[4], other[5]) = (2, 2);
        assert!(found(&other).contains("big-endian"));
    }

    #[test]
    fn cut_off_and_damaged_files_are_errors() {
        let file = elf(EM_AICORE, &["first", "second_mix_aiv"].map(Symbol::kernel));
        let whole = read(&file).unwrap();
        for end in 0..file.len() {
            assert_ne!(read(&file[..end]).as_ref(), Ok(&whole), "{end} of {} bytes", file.len());
        }
        // Whatever one byte becomes, the answer is an answer.
        for at in 0..file.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut damaged = file.clone();
                damaged[at] = value;
                let _ = check(&damaged, Arch::Dav2201, &entries(&[("first", Cores::Vector)]));
            }
        }
    }

    #[test]
    fn a_file_without_sections_has_no_code() {
        let mut file = elf(EM_AICORE, &[Symbol::kernel("k")]);
        file[40..48].fill(0);
        assert_eq!(check(&file, Arch::Dav2201, &[]), Err(ElfError::NoCode));
    }
}
