// SPDX-License-Identifier: MIT OR Apache-2.0

//! The C interface in Rust against that in C: what a C compiler says of each field, each constant and each rule.

use core::mem::offset_of;
use std::fmt::Write as _;
use std::process::Command;

use ascend_sim::{Rule, abi};

use crate::fake::{Folder, compiler};

/// Lines as the C program prints them, and the program. A field that is not listed does not compile here.
macro_rules! structs {
    ($($rust:ident $c:ident { $($field:ident),* })*) => {{
        let (mut lines, mut program) = (Vec::new(), String::new());
        $(
            let _ = |all: abi::$rust| {
                let abi::$rust { $($field: _),* } = all;
            };
            lines.push(format!("{} {} {}", stringify!($c), size_of::<abi::$rust>(), align_of::<abi::$rust>()));
            let _ = writeln!(program, "printf(\"{0} %zu %zu\\n\", sizeof({0}), _Alignof({0}));", stringify!($c));
            $(
                lines.push(format!("{}.{} {}", stringify!($c), stringify!($field), offset_of!(abi::$rust, $field)));
                let _ = writeln!(
                    program,
                    "printf(\"{0}.{1} %zu\\n\", offsetof({0}, {1}));",
                    stringify!($c),
                    stringify!($field)
                );
            )*
        )*
        (lines, program)
    }};
}

/// What a C program prints.
fn printed(body: &str) -> Vec<String> {
    let folder = Folder::new();
    let text = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include \"twin/abi.h\"\nint main(void) {{\n{body}return 0;\n}}\n"
    );
    let source = folder.file("layout.c", text);
    let program = folder.path().join("layout");
    let include = format!("-I{}", ascend_sim::include_dir().display());
    compiler("cc", &["-std=c11", &include, "-o", program.to_str().unwrap(), source.to_str().unwrap()]);
    let output = Command::new(program).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn every_field_lies_where_c_puts_it() {
    let (lines, program) = structs! {
        Chip AscendTwinChip {
            name, arch, cube_cores, vector_cores, ub, l1, l0a, l0b, l0c, bt, fb, l0a_mx, l0b_mx
        }
        Memory AscendTwinMemory { address, bytes, role, name }
        Mute AscendTwinMute { api, file, line, nth }
        Launch AscendTwinLaunch {
            abi, kernel, blocks, mode, seed, record, verbose, chip, memory, memories, args, args_bytes, mutes, mute_count,
            print, user
        }
        Site AscendTwinSite { file, line }
        Error AscendTwinError {
            rule, rule_name, message, api, tensor, core, pipe, site, other_api, other_site
        }
        Record AscendTwinRecord {
            kind, pipe, pipe2, id, mode, dtype, from, to, api, l2, pad, site, a, gm_address, gm_bytes, gm_pitch1,
            gm_pitch2, gm_n1, gm_n2, gm_write, pad2
        }
        CoreRecord AscendTwinCoreRecord { is_cube, block, sub_block, records, count }
        Sync AscendTwinSync { api, site, calls }
        Outcome AscendTwinResult {
            error, instructions, cores, core_count, api_names, api_count, sites, site_count, syncs, sync_count, ub_used,
            l1_used, l0a_used, l0b_used, l0c_used, bt_used, fb_used
        }
        Parameter AscendTwinParameter { offset, bytes, is_pointer }
        Kernel AscendTwinKernel { name, task, args_bytes, parameters, parameter_count }
        Image AscendTwinImage { abi, arch, kernels, kernel_count, rules, rule_count, run, free_result }
    };
    assert_eq!(printed(&program), lines);
}

#[test]
fn every_struct_of_the_header_is_compared() {
    let header = std::fs::read_to_string(ascend_sim::include_dir().join("twin/abi.h")).unwrap();
    assert_eq!(header.matches("typedef struct").count(), 13, "structs that the test above lists");
}

#[test]
fn numbers_that_the_driver_writes_and_reads() {
    let names = [
        ("ASCEND_TWIN_ABI", abi::ABI),
        ("ASCEND_TWIN_FAST", 0),
        ("ASCEND_TWIN_CHAOS", 1),
        ("ASCEND_TWIN_DRY", 2),
        ("ASCEND_TWIN_BUFFER", 0),
        ("ASCEND_TWIN_WORKSPACE", 1),
        ("ASCEND_TWIN_AIV_ONLY", 0),
        ("ASCEND_TWIN_AIC_ONLY", 1),
        ("ASCEND_TWIN_MIX_AIV_1_0", 2),
        ("ASCEND_TWIN_MIX_AIC_1_0", 3),
        ("ASCEND_TWIN_MIX_1_1", 4),
        ("ASCEND_TWIN_MIX_1_2", 5),
    ];
    let program: String =
        names.iter().map(|(name, _)| format!("printf(\"{name} %u\\n\", (unsigned){name});\n")).collect();
    assert_eq!(printed(&program), names.map(|(name, value)| format!("{name} {value}")));
}

#[test]
fn the_rules_are_those_of_the_header() {
    let header = std::fs::read_to_string(ascend_sim::include_dir().join("twin/rules.h")).unwrap();
    let mut listed = Vec::new();
    for line in header.lines().filter_map(|line| line.trim().strip_prefix("X(")) {
        let words: Vec<&str> = line.split('"').collect();
        listed.push((words[0].trim_end_matches(", ").to_owned(), words[1].to_owned(), words[3].to_owned()));
    }
    let known: Vec<_> = Rule::KNOWN
        .iter()
        .map(|rule| (format!("{rule:?}"), rule.name().to_owned(), rule.meaning().to_owned()))
        .collect();
    assert_eq!(known, listed);
    for rule in Rule::KNOWN {
        assert_eq!(Rule::of_name(rule.name()), *rule);
    }
    assert_eq!(Rule::of_name("new").name(), "new");
    assert_eq!((Rule::of_name("new").meaning(), Rule::of_name("new").hangs()), ("", false));
}
