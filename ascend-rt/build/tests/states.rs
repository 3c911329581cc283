// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a build comes to: none, built, failed; and what it tells cargo.

use std::path::Path;

use ascend_build::{Arch, Error, Kernel, find};

use crate::canned::{Symbol, elf};
use crate::fake::{Crate, HOST, Toolkit};

fn kernel() -> Kernel {
    ascend_build::kernel("gemm").mix("gemm")
}

fn starting<'a>(directives: &'a [String], start: &str) -> Vec<&'a str> {
    directives.iter().filter_map(|line| line.strip_prefix(start)).collect()
}

#[test]
fn none_is_a_normal_state_with_one_warning() {
    let op = Crate::new();
    let outcome = kernel().try_build(&op.script(&[])).unwrap();
    assert!(outcome.blobs.is_empty());
    assert_eq!(
        starting(&outcome.directives, "warning="),
        ["gemm: built without device code: no CANN toolkit: ASCEND_HOME_PATH and ASCEND_TOOLKIT_HOME are not set; \
          nothing in 4 default places"]
    );
    assert_eq!(starting(&outcome.directives, "rustc-cfg="), [r#"ascend_kernels="none""#, r#"ascend_twin="none""#]);
    assert_eq!(
        starting(&outcome.directives, "rustc-check-cfg="),
        [r#"cfg(ascend_kernels, values("none", "built"))"#, r#"cfg(ascend_twin, values("none", "built"))"#]
    );
    assert_eq!(
        starting(&outcome.directives, "rerun-if-env-changed="),
        ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_RT_BUILD", "ASCEND_RT_SOC", "ASCEND_RT_SYSROOT", "DOCS_RS"]
    );
    assert!(op.result("kernels.rs").contains("= &[\n];"));
    let json = op.result("kernels.json");
    assert!(json.contains(r#""blobs": []"#) && json.contains("no CANN toolkit"), "{json}");
}

#[test]
fn off_and_the_documentation_host_are_silent() {
    let toolkit = Toolkit::new("9.1.0");
    for (name, value, reason) in [("ASCEND_RT_BUILD", "off", "ASCEND_RT_BUILD=off"), ("DOCS_RS", "1", "DOCS_RS is set")]
    {
        let op = Crate::new();
        let script = op.script(&[("ASCEND_HOME_PATH", toolkit.root()), (name, Path::new(value))]);
        let outcome = kernel().try_build(&script).unwrap();
        assert_eq!(starting(&outcome.directives, "warning="), [""; 0]);
        assert_eq!(starting(&outcome.directives, "rustc-cfg="), [r#"ascend_kernels="none""#, r#"ascend_twin="none""#]);
        assert!(op.result("kernels.rs").contains(reason));
    }
    assert_eq!(toolkit.calls(&[]), [""; 0], "the compiler was not called");
}

#[test]
fn required_and_not_there() {
    let op = Crate::new();
    let wrong = op.folder.path().join("cann");
    let variables = [("ASCEND_RT_BUILD", Path::new("require")), ("ASCEND_HOME_PATH", wrong.as_path())];
    let message = kernel().try_build(&op.script(&variables)).unwrap_err().to_string();
    let expected = format!(
        "ASCEND_RT_BUILD=require, but no CANN toolkit was found: ASCEND_HOME_PATH={}: not there",
        wrong.display()
    );
    assert!(message.starts_with(&expected), "{message}");
}

#[test]
fn built_for_both_architectures() {
    let (op, toolkit) = (Crate::new(), Toolkit::new("9.1.0"));
    let outcome = kernel().try_build(&op.script(&[("ASCEND_HOME_PATH", toolkit.root())])).unwrap();
    assert_eq!(outcome.blobs.iter().map(|blob| blob.arch).collect::<Vec<_>>(), [Arch::Dav2201, Arch::Dav3510]);
    assert_eq!(starting(&outcome.directives, "rustc-cfg="), [r#"ascend_kernels="built""#, r#"ascend_twin="none""#]);
    assert_eq!(starting(&outcome.directives, "warning="), [""; 0]);
    let watched: Vec<String> = starting(&outcome.directives, "rerun-if-changed=")
        .into_iter()
        .map(|path| path.replace(&*toolkit.root().to_string_lossy(), "$CANN"))
        .map(|path| path.replace(&*op.folder.path().to_string_lossy(), "$CRATE"))
        .collect();
    assert_eq!(
        watched,
        [
            "$CRATE/kernel/gemm.cpp",
            "$CANN/x86_64-linux/ccec_compiler/bin/bisheng",
            "$CANN/include/kernel_operator.h",
            "$CRATE/kernel/tiling.h",
        ]
    );
    let (rust, json) = (op.result("kernels.rs"), op.result("kernels.json"));
    for arch in ["2201", "3510"] {
        assert!(rust.contains(&format!("from_number({arch}), include_bytes!(\"gemm-dav-{arch}.o\")")), "{rust}");
        assert!(json.contains(&format!(r#"{{"arch": "dav-{arch}", "soc_versions": ["#)), "{json}");
    }
    assert!(rust.contains("CANN 9.1.0: dav-2201, ") && json.contains(r#""toolkit": "CANN 9.1.0""#));
    assert!(!rust.contains(&*op.out.path().to_string_lossy()), "no path of this machine is compiled in");
}

#[test]
fn jobs_do_not_change_the_result() {
    let toolkit = Toolkit::new("9.1.0");
    let result = |jobs: &str| {
        let op = Crate::new();
        op.folder.file("kernel/second.cpp", "");
        let script = op.script(&[("ASCEND_HOME_PATH", toolkit.root()), ("NUM_JOBS", Path::new(jobs))]);
        kernel().source("kernel/gemm.cpp").source("kernel/second.cpp").try_build(&script).unwrap();
        (op.result("kernels.rs"), op.result("kernels.json"))
    };
    assert_eq!(result("1"), result("8"));
    assert_eq!(result("1"), result("none"));
}

#[test]
fn an_architecture_that_the_compiler_does_not_know() {
    let toolkit = Toolkit::new("8.5.0");
    toolkit.knows(&["dav-2201"]);
    let home = ("ASCEND_HOME_PATH", toolkit.root());
    // Nobody asked for it by name: left out, and said.
    let op = Crate::new();
    let outcome = kernel().try_build(&op.script(&[home])).unwrap();
    assert_eq!(outcome.blobs.len(), 1);
    assert_eq!(starting(&outcome.directives, "warning="), ["gemm: no code for dav-3510: CANN 8.5.0 does not know it"]);
    // Asked for: an error.
    let op = Crate::new();
    let error = kernel().try_build(&op.script(&[home, ("ASCEND_RT_SOC", Path::new("910b,950"))])).unwrap_err();
    let message = error.to_string();
    assert!(message.starts_with("no code for dav-3510: CANN 8.5.0 does not compile an empty kernel"), "{message}");
    assert!(message.contains("invalid value 'dav-3510'") && message.contains("--npu-arch=dav-3510"), "{message}");
    // None of all: an error too, for there is a toolkit.
    toolkit.knows(&[]);
    let error = kernel().try_build(&Crate::new().script(&[home])).unwrap_err();
    assert!(matches!(error, Error::Unsupported { arch: Arch::Dav2201, .. }), "{error}");
    // The old build files do not know the 950.
    let old = Toolkit::old("8.1.RC1");
    let variables = [("ASCEND_HOME_PATH", old.root()), ("ASCEND_RT_SOC", Path::new("950"))];
    let message = kernel().try_build(&Crate::new().script(&variables)).unwrap_err().to_string();
    assert!(message.contains("no code for dav-3510: CANN 8.1.RC1 does not know its chips"), "{message}");
}

#[test]
fn a_kernel_that_does_not_compile_fails_the_build() {
    let (op, toolkit) = (Crate::new(), Toolkit::new("9.1.0"));
    op.folder.file("kernel/gemm.cpp", "syntax error\n");
    let error = kernel().try_build(&op.script(&[("ASCEND_HOME_PATH", toolkit.root())])).unwrap_err();
    let message = error.to_string();
    for part in ["exit status: 1", "unknown type name 'syntax'", "bisheng -c --asc-aicore-lang", "-MF"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(message.contains(&format!("ASCEND_HOME_PATH={}", toolkit.root().display())), "{message}");
    assert!(!op.out.path().join("kernels.rs").exists(), "nothing is left that looks like a result");
}

#[test]
fn what_is_linked_is_checked() {
    for (file, part) in [
        (Vec::new(), "expected device code, found an empty file"),
        (b"not an ELF file".to_vec(), "expected an ELF file of 64 bits"),
        (elf(62, &[Symbol::kernel("gemm")]), "found machine 62 (x86-64)"),
        (elf(0x1029, &[]), "found an ELF file without any function"),
        (elf(0x1029, &[Symbol::kernel("gemm_mix_aic")]), "expected the kernel `gemm_mix_aic` with `gemm_mix_aiv`"),
        (elf(0x1029, &[Symbol::kernel("other")]), "found other"),
    ] {
        for toolkit in [Toolkit::new("9.1.0"), Toolkit::old("8.2.RC1")] {
            toolkit.gives(&file);
            let (op, path) = (Crate::new(), toolkit.root().join("host"));
            let script = op.script(&[("ASCEND_HOME_PATH", toolkit.root()), ("PATH", &path)]);
            let message = kernel().try_build(&script).unwrap_err().to_string();
            assert!(message.contains(part) && message.contains("command: "), "{message}");
        }
    }
}

#[test]
fn old_toolkits_need_cmake() {
    let toolkit = Toolkit::old("8.1.RC1");
    let op = Crate::new();
    let outcome =
        kernel().try_build(&op.script(&[("ASCEND_HOME_PATH", toolkit.root()), ("PATH", &toolkit.root().join("host"))]));
    let outcome = outcome.unwrap();
    assert_eq!(outcome.blobs.len(), 1);
    assert_eq!(
        starting(&outcome.directives, "warning="),
        ["gemm: no code for dav-3510: CANN 8.1.RC1 does not know its chips"]
    );
    let watched = starting(&outcome.directives, "rerun-if-changed=");
    assert!(watched.iter().any(|path| path.ends_with("/kernel")), "{watched:?}");

    let message = kernel().try_build(&op.script(&[("ASCEND_HOME_PATH", toolkit.root())])).unwrap_err().to_string();
    assert!(message.contains("`cmake` is not on PATH") && message.contains("8.5 and later"), "{message}");
}

#[test]
fn roots_that_do_not_count() {
    let reason = |toolkit: &Toolkit| find::inspect(toolkit.root(), HOST).unwrap_err().to_string();
    let toolkit = Toolkit::new("8.0.RC3");
    assert_eq!(reason(&toolkit), "CANN 8.0.RC3 is older than 8.1");

    let toolkit = Toolkit::new("9.1.0");
    let bin = format!("{HOST}-linux/ccec_compiler/bin");
    std::fs::remove_file(toolkit.root().join(&bin).join("ld.lld")).unwrap();
    assert_eq!(reason(&toolkit), "no ld.lld in it: the installation is not complete");
    toolkit.folder.program(&format!("{bin}/bisheng"), "#!/bin/sh\necho 'GLIBC_2.99 not found' >&2\nexit 1\n");
    assert_eq!(reason(&toolkit), "its bisheng does not run: exit status: 1: GLIBC_2.99 not found");
    // For the other host it is no toolkit at all.
    assert!(find::inspect(toolkit.root(), "aarch64").unwrap_err().to_string().starts_with("no bisheng in it"));
    std::fs::remove_file(toolkit.root().join(&bin).join("bisheng")).unwrap();
    assert!(reason(&toolkit).starts_with("no bisheng in it"));
    toolkit.folder.file(&format!("{bin}/bisheng"), "may not be run");
    assert!(reason(&toolkit).starts_with("no bisheng in it"));

    // One that does not count is passed by, and the next is taken.
    let good = Toolkit::new("9.0.0");
    let op = Crate::new();
    let script = op.script(&[("ASCEND_HOME_PATH", toolkit.root()), ("ASCEND_TOOLKIT_HOME", good.root())]);
    let found = find::find(&script.env, HOST);
    assert_eq!(found.toolkit.unwrap().root, good.root());
    assert_eq!(found.rejected.len(), 1);
}

#[test]
fn the_generation_follows_version_then_layout() {
    let way = |toolkit: &Toolkit| match find::inspect(toolkit.root(), HOST).unwrap().way {
        find::Way::Bisheng { .. } => "bisheng",
        find::Way::CMake { .. } => "cmake",
    };
    for (version, expected) in [
        ("8.1.RC1", "cmake"),
        ("8.2.RC1", "cmake"),
        ("8.3.RC2", "cmake"),
        ("8.5.0", "bisheng"),
        ("9.2.0-beta.1", "bisheng"),
    ] {
        assert_eq!(way(&Toolkit::new(version)), expected, "{version}");
    }
    assert_eq!(way(&Toolkit::new("unknown")), "bisheng");
    assert_eq!(way(&Toolkit::old("unknown")), "cmake");
}

#[test]
fn default_places_below_another_root() {
    let toolkit = Toolkit::new("9.1.0");
    let op = Crate::new();
    for place in ["usr/local/Ascend/cann", "usr/local/Ascend/ascend-toolkit/latest"] {
        let link = op.folder.path().join("nowhere").join(place);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(toolkit.root(), &link).unwrap();
        let found = find::find(&op.script(&[]).env, HOST);
        assert_eq!(found.toolkit.unwrap().root, link);
        std::fs::remove_file(link).unwrap();
    }
}
