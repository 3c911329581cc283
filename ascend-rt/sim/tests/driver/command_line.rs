// SPDX-License-Identifier: MIT OR Apache-2.0

//! The program `ascend-sim`: a source in, a report out.

use std::path::Path;
use std::process::{Command, Output};

use crate::fake::{self, Folder};

const ADD: &str = r#"#include "kernel_operator.h"
using namespace AscendC;

extern "C" __global__ __aicore__ void add(GM_ADDR x, GM_ADDR y, GM_ADDR z, uint32_t n)
{
    GlobalTensor<float> gx, gy, gz;
    gx.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(x), n);
    gy.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(y), n);
    gz.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(z), n);
    LocalTensor<float> a(TPosition::VECIN, 0, n), b(TPosition::VECIN, 4 * n, n), c(TPosition::VECOUT, 8 * n, n);
    DataCopy(a, gx, n);
    DataCopy(b, gy, n);
    SetFlag<HardEvent::MTE2_V>(0);
#ifndef NO_WAIT
    WaitFlag<HardEvent::MTE2_V>(0);
#endif
    Add(c, a, b, n);
    SetFlag<HardEvent::V_MTE3>(0);
    WaitFlag<HardEvent::V_MTE3>(0);
    DataCopy(gz, c, n);
    PipeBarrier<PIPE_ALL>();
}
"#;

fn run(folder: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ascend-sim"));
    for name in ["ASCEND_SIM", "ASCEND_SIM_TRACE", "ASCEND_SIM_VERBOSE"] {
        command.env_remove(name);
    }
    command.args(line.split_whitespace()).current_dir(folder).output().unwrap()
}

fn texts(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_kernel_is_run_and_described() {
    let folder = Folder::new();
    folder.file("kernel/add.cpp", ADD);
    let args = "--arg in:f32:1024 --arg in:f32:1024 --arg out:f32:1024 --arg u32:1024";
    let line = format!("kernel/add.cpp --soc 910b3 {args} --seeds 3 --trace t.json --html t.html");
    let (code, out, err) = texts(&run(folder.path(), &line));
    assert_eq!(code, Some(0), "{out}{err}");
    for part in [
        "add on Ascend910B3, 1 blocks, fast\n",
        "  bytes in use    UB 12288 of ",
        "  predicted       ",
        "  vector cores    ",
        "  clean under the 3 seeds from 0 on",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let trace = std::fs::read_to_string(folder.path().join("t.json")).unwrap();
    assert!(trace.contains("MTE2") && trace.contains("add.cpp:"), "{trace}");
    assert!(folder.path().join("t.html").is_file());
}

#[test]
fn a_broken_kernel_is_reported_with_its_lines() {
    let folder = Folder::new();
    folder.file("kernel/add.cpp", ADD);
    let args = "--arg in:f32:64 --arg in:f32:64 --arg out:f32:64 --arg u32:64 -D NO_WAIT";
    let (code, out, err) = texts(&run(folder.path(), &format!("kernel/add.cpp --soc a2 {args}")));
    assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
    let line = ADD.lines().position(|line| line.contains("Add(c")).unwrap() + 1;
    assert!(err.starts_with("error[hazard-raw]: "), "{err}");
    assert!(err.contains(&format!("--> kernel/add.cpp:{line}\n")), "{err}");
    assert!(err.contains(&format!("{line} |     Add(c, a, b, n);\n")), "{err}");
}

#[test]
fn an_image_is_run_as_it_is() {
    let folder = Folder::new();
    std::fs::rename(fake::file(&folder, &[fake::NAMED]), folder.path().join("k.so")).unwrap();
    let args = "--arg in:f32:8 --arg in:f32:8 --arg out:f32:8 --arg u32:8 --arg f32:2";
    let (code, out, err) = texts(&run(folder.path(), &format!("k.so --soc a2 --entry add {args} --mode chaos:5")));
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(
        out.starts_with("1 of add on Ascend910B2 verbose 0 seed 5\nadd on Ascend910B2, 1 blocks, chaos:5\n"),
        "{out}"
    );
    // Fewer elements than the kernel is told: a fault, and the report is all there is.
    let args = "--arg in:f32:8 --arg in:f32:7 --arg out:f32:8 --arg u32:8 --arg f32:2";
    let (code, _, err) = texts(&run(folder.path(), &format!("k.so --soc a2 --entry add {args}")));
    assert_eq!(code, Some(1));
    assert!(err.starts_with("error[bounds]: 32 bytes of argument 1 are out of bounds\n"), "{err}");
}

#[test]
fn what_is_wrong_is_said_and_told_by_the_exit_code() {
    let folder = Folder::new();
    std::fs::rename(fake::file(&folder, &[]), folder.path().join("k.so")).unwrap();
    folder.file("bad.cpp", "__global__ void bad() { nothing; }\n");
    for (line, expected, part) in [
        ("--soc a2", 2, "expected the source of a kernel"),
        ("k.so --soc a2 --bogus", 2, "unknown option `--bogus`"),
        ("k.so --soc a2", 1, "--entry says which of the kernels runs: add, hang, bare, tiled, nothing"),
        ("k.so --soc a2 --entry mul", 1, "the image has no kernel `mul`"),
        ("k.so --soc a2 --entry add", 1, "kernel `add` has 5 parameters, found 0"),
        ("k.so --soc 950 --entry nothing", 1, "the image is for dav-2201, and Ascend950PR is dav-3510"),
        ("k.so --soc a2 --entry nothing --arg file:none.bin", 1, "none.bin: "),
        ("none.cpp --soc a2", 1, "none.cpp: "),
        ("bad.cpp --soc a2", 1, "command: "),
    ] {
        let (code, _, err) = texts(&run(folder.path(), line));
        assert_eq!(code, Some(expected), "{line}: {err}");
        assert!(err.starts_with("ascend-sim: ") && err.contains(part), "{line}: {err}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_ascend-sim"));
    let (code, _, err) = texts(&command.arg("k.so").env("ASCEND_SIM", "slow").output().unwrap());
    assert_eq!(code, Some(2));
    assert!(err.contains("ASCEND_SIM=\"slow\": expected fast, dry, or chaos:SEED"), "{err}");
    let (code, out, _) = texts(&run(folder.path(), "--help"));
    assert!(code == Some(0) && out.contains("usage: ascend-sim KERNEL.cpp"));
}
