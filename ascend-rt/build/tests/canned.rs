// SPDX-License-Identifier: MIT OR Apache-2.0

//! ELF files made by hand: what a linker would leave, without the code.

/// One symbol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol {
    pub(crate) name: &'static str,
    /// 1 object, 2 function.
    pub(crate) kind: u8,
    /// 0 local, 1 global, 2 weak.
    pub(crate) binding: u8,
    /// 0 is undefined.
    pub(crate) section: u16,
}

impl Symbol {
    /// A global function.
    pub(crate) fn kernel(name: &'static str) -> Self {
        Self { name, kind: 2, binding: 1, section: 1 }
    }
}

/// A relocatable-looking ELF file with these symbols: header, string table, symbol table, section table.
pub(crate) fn elf(machine: u16, symbols: &[Symbol]) -> Vec<u8> {
    let mut strings = vec![0];
    let mut table = vec![0; 24];
    for symbol in symbols {
        table.extend((strings.len() as u32).to_le_bytes());
        table.extend([symbol.binding << 4 | symbol.kind, 0]);
        table.extend(symbol.section.to_le_bytes());
        table.extend([0; 16]);
        strings.extend(symbol.name.as_bytes());
        strings.push(0);
    }
    let strings_at = 64_u64;
    let symbols_at = strings_at + strings.len() as u64;
    let sections_at = symbols_at + table.len() as u64;

    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend(2_u16.to_le_bytes());
    file.extend(machine.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    file.extend([0; 16]);
    file.extend(sections_at.to_le_bytes());
    file.extend(0_u32.to_le_bytes());
    for field in [64_u16, 0, 0, 64, 4, 3] {
        file.extend(field.to_le_bytes());
    }
    file.extend(&strings);
    file.extend(&table);
    let mut section = |kind: u32, at: u64, size: usize, link: u32| {
        file.extend(0_u32.to_le_bytes());
        file.extend(kind.to_le_bytes());
        file.extend([0; 16]);
        file.extend(at.to_le_bytes());
        file.extend((size as u64).to_le_bytes());
        file.extend(link.to_le_bytes());
        file.extend([0; 20]);
    };
    section(0, 0, 0, 0);
    section(1, 64, 0, 0);
    section(2, symbols_at, table.len(), 3);
    section(3, strings_at, strings.len(), 0);
    file
}
