// SPDX-License-Identifier: MIT OR Apache-2.0

//! A crate with a build script of three lines, built by cargo: with no toolkit, with one that works, with one that
//! fails.

use std::path::Path;
use std::process::Command;

use crate::fake::{Folder, Toolkit};

const BUILD: &str = r#"fn main() {
    ascend_build::kernel("gemm").mix("gemm").build();
}
"#;

const MAIN: &str = r#"include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

fn main() {
    let state = if cfg!(ascend_kernels = "built") { "built" } else { "none" };
    let blobs: Vec<_> = BLOBS.iter().map(|blob| format!("{}:{}", blob.arch, blob.bytes.len())).collect();
    println!("{state} [{}] {ORIGIN}", blobs.join(" "));
    println!("twin {} {TWIN_ORIGIN}", cfg!(ascend_twin = "built"));
}
"#;

/// What of `ascend_rt` the generated code uses. The real one is used by the checks of `ascend-rt-check`.
const RUNTIME: &str = r#"
#[derive(Clone, Copy)]
pub struct Arch(u32);
impl Arch {
    pub const fn from_number(number: u32) -> Self { Self(number) }
}
impl std::fmt::Display for Arch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { write!(f, "{}", self.0) }
}
pub struct Blob { pub arch: Arch, pub bytes: &'static [u8] }
impl Blob {
    pub const fn arch(arch: Arch, bytes: &'static [u8]) -> Self { Self { arch, bytes } }
    pub const fn twin(arch: Arch, bytes: &'static [u8]) -> Self { Self { arch, bytes } }
}
"#;

/// What of `ascend-sim` a build script sees. Its files are watched by nobody but the crate with kernels.
const SIM: &str = r#"fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::metadata=include={}/include", std::env::var("CARGO_MANIFEST_DIR").unwrap());
    println!("cargo::metadata=lib={}/lib", std::env::var("CARGO_MANIFEST_DIR").unwrap());
}
"#;

struct Fixture {
    folder: Folder,
}

impl Fixture {
    fn new() -> Self {
        let folder = Folder::new();
        let ours = env!("CARGO_MANIFEST_DIR");
        folder.file(
            "Cargo.toml",
            format!(
                "[package]\nname = \"op\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
                 [features]\nsim = [\"dep:ascend-sim\"]\n\n\
                 [dependencies]\nascend-rt = {{ path = \"runtime\" }}\n\
                 ascend-sim = {{ path = \"sim\", optional = true }}\n\n\
                 [build-dependencies]\nascend-build = {{ path = {ours:?} }}\n\n\
                 [lints.rust]\nunexpected_cfgs = \"deny\"\nwarnings = \"deny\"\n"
            ),
        );
        folder.file("build.rs", BUILD);
        folder.file("src/main.rs", MAIN);
        folder.file("kernel/gemm.cpp", "// a kernel\n");
        folder.file("kernel/tiling.h", "");
        folder.file("runtime/Cargo.toml", "[package]\nname = \"ascend-rt\"\nversion = \"0.0.0\"\nedition = \"2024\"\n");
        folder.file("runtime/src/lib.rs", RUNTIME);
        folder.file(
            "sim/Cargo.toml",
            "[package]\nname = \"ascend-sim\"\nversion = \"0.0.0\"\nedition = \"2024\"\nlinks = \"ascend_twin\"\n",
        );
        folder.file("sim/build.rs", SIM);
        folder.file("sim/src/lib.rs", "");
        folder.file("sim/include/kernel_operator.h", "");
        for arch in ["2201", "3510"] {
            folder.file(&format!("sim/lib/libascend_twin_{arch}.a"), "");
        }
        Self { folder }
    }

    /// Whether cargo succeeded, what the program printed, and what cargo said.
    fn run(&self, variables: &[(&str, &Path)]) -> (bool, String, String) {
        self.run_with(&[], variables)
    }

    fn run_with(&self, args: &[&str], variables: &[(&str, &Path)]) -> (bool, String, String) {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["run", "--offline"]).args(args).current_dir(self.folder.path());
        // Nothing of the machine or of the outer cargo decides the result.
        for name in ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_RT_BUILD", "ASCEND_RT_SOC", "DOCS_RS"] {
            cargo.env_remove(name);
        }
        cargo.env("CARGO_TARGET_DIR", self.folder.path().join("target"));
        cargo.env("ASCEND_RT_SYSROOT", self.folder.path().join("nowhere"));
        cargo.env("CARGO_INCREMENTAL", "0").env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
        let output = cargo.envs(variables.iter().copied()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    }
}

#[test]
fn a_crate_in_its_three_states() {
    let fixture = Fixture::new();
    let toolkit = Toolkit::host("9.1.0");

    let (succeeds, says, log) = fixture.run(&[]);
    assert!(succeeds, "{log}");
    assert!(says.starts_with("none [] not built: no CANN toolkit: "), "{says}");
    assert_eq!(log.matches("warning:").count(), 1, "{log}");
    assert!(log.contains("gemm: built without device code: no CANN toolkit"), "{log}");

    // A variable that changes makes cargo look again.
    let home = ("ASCEND_HOME_PATH", toolkit.root());
    let (succeeds, says, log) = fixture.run(&[home]);
    assert!(succeeds, "{log}");
    let bytes = std::fs::metadata(toolkit.root().join("canned.o")).unwrap().len();
    assert!(says.starts_with(&format!("built [2201:{bytes} 3510:{bytes}] CANN 9.1.0: dav-2201, ")), "{says}");
    assert_eq!(log.matches("warning:").count(), 0, "{log}");

    // Nothing changed: nothing is compiled again. A header changed: it is.
    let calls = toolkit.calls(&[]).len();
    fixture.run(&[home]);
    assert_eq!(toolkit.calls(&[]).len(), calls);
    std::thread::sleep(std::time::Duration::from_millis(20));
    fixture.folder.file("kernel/tiling.h", "// changed\n");
    fixture.run(&[home]);
    assert!(toolkit.calls(&[]).len() > calls);

    fixture.folder.file("kernel/gemm.cpp", "syntax error\n");
    let (succeeds, _, log) = fixture.run(&[home]);
    assert!(!succeeds);
    for part in ["ascend-build: exit status: 1", "command: ", "--npu-arch=dav-2201", "unknown type name 'syntax'"] {
        assert!(log.contains(part), "{log}");
    }
}

#[test]
fn a_crate_with_the_twin() {
    let fixture = Fixture::new();
    let folder = Folder::new();
    let compiler = crate::twin::compiler(&folder);
    let variables = [("CXX", compiler.as_path())];
    let (succeeds, says, log) = fixture.run_with(&[], &variables);
    assert!(succeeds, "{log}");
    assert!(says.contains("\ntwin false not built: the feature `sim` is off\n"), "{says}");
    let calls = || std::fs::read_to_string(compiler.with_file_name("log")).unwrap_or_default().matches("-o\n").count();
    assert_eq!(calls(), 0);

    let run = || fixture.run_with(&["--features", "sim"], &variables);
    let (succeeds, says, log) = run();
    assert!(succeeds, "{log}");
    assert!(says.starts_with("none [2201:13 3510:13] not built: no CANN"), "{says}");
    assert!(says.contains("\ntwin true cxx (a test) 12.2.0: dav-2201, 13 bytes, "), "{says}");
    assert_eq!(calls(), 2);
    // Nothing changed, then a header of the twin, then its library.
    run();
    assert_eq!(calls(), 2);
    for (changed, expected) in [("sim/include/kernel_operator.h", 4), ("sim/lib/libascend_twin_3510.a", 6)] {
        std::thread::sleep(std::time::Duration::from_millis(20));
        fixture.folder.file(changed, "changed");
        let (succeeds, _, log) = run();
        assert!(succeeds, "{log}");
        assert_eq!(calls(), expected, "{changed}");
    }
}
