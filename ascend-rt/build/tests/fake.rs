// SPDX-License-Identifier: MIT OR Apache-2.0

//! Folders that go away, and toolkits that are shell scripts.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::canned::{Symbol, elf};

/// The host that the fakes are for. It need not be that of the test.
pub(crate) const HOST: &str = "x86_64";

/// A folder of the test's own, deleted at its end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ascend-build-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        // What tools print is the path without links.
        Self(std::fs::canonicalize(path).unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn program(&self, name: &str, script: &str) -> PathBuf {
        // Copied by another process: a file that this one has open for writing, or a child of a test beside this one
        // inherits, cannot be run.
        let text = self.file(&format!("{name}.txt"), script);
        let path = self.0.join(name);
        let copied = std::process::Command::new("cp").args([&text, &path]).status().unwrap();
        assert!(copied.success());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Appends the call to `log` beside the toolkit: a line for the name of the program, one for each argument, an empty
/// one. `$root` is the toolkit.
const RECORD: &str = r#"#!/bin/sh
root=$(dirname "$0"); while [ ! -e "$root/canned.o" ]; do root=$(dirname "$root"); done
[ "$1" = --version ] && { echo "${0##*/} of a test, version 15"; exit 0; }
{ echo "${0##*/}"; for arg in "$@"; do echo "$arg"; done; echo; } >> "$root/log"
fail() { echo "$1" >&2; exit 1; }
"#;

/// Gives the object its file and, where it is asked to, the list of what it read. The environment of the test says
/// which architectures it knows, and whether it fails.
const BISHENG: &str = r#"
object=; list=; arch=; source=
while [ $# -gt 0 ]; do
    case "$1" in
        -o) object=$2; shift;;
        -MF) list=$2; shift;;
        --npu-arch=*) arch=${1#--npu-arch=};;
        --asc-aicore-lang) source=$2; shift;;
    esac
    shift
done
[ "$ASCEND_HOME_PATH" = "$root" ] || fail "ASCEND_HOME_PATH is not the root"
grep -qx "$arch" "$root/knows" || fail "error: invalid value '$arch' in '--npu-arch='"
grep -q 'syntax error' "$source" && fail "$source:1:1: error: unknown type name 'syntax'"
[ -n "$object" ] && echo object > "$object"
[ -n "$list" ] && printf '%s: %s \\\n  %s/include/kernel_operator.h \\\n  kernel/tiling.h /nowhere/temporary.h\n' "$object" "$source" "$root" > "$list"
exit 0
"#;

const LINKER: &str = r#"
while [ $# -gt 0 ]; do case "$1" in -o) output=$2; shift;; *.dev.o) [ -e "$1" ] || fail "no $1";; esac; shift; done
cp "$root/canned.o" "$output"
"#;

/// Configures by noting where the result goes, and builds by putting it there.
const CMAKE: &str = r#"
case "$1" in
    -S) for arg in "$@"; do case "$arg" in -DCMAKE_INSTALL_PREFIX=*) prefix=${arg#*=};; esac; done
        name=$(sed -n 's/^project(\(.*\))$/\1/p' "$2/CMakeLists.txt")
        mkdir -p "$4" && echo "$prefix/fatbin/$name" > "$4/where" && echo "$name" > "$4/name";;
    --build) where=$(cat "$2/where"); mkdir -p "$where" && cp "$root/canned.o" "$where/$(cat "$2/name").o";;
    *) fail "what is $1";;
esac
"#;

/// A toolkit that is a few shell scripts.
pub(crate) struct Toolkit {
    pub(crate) folder: Folder,
}

impl Toolkit {
    /// As from 8.5 on.
    pub(crate) fn new(version: &str) -> Self {
        Self::for_host(version, HOST)
    }

    /// The same for the machine that the test runs on.
    pub(crate) fn host(version: &str) -> Self {
        Self::for_host(version, std::env::consts::ARCH)
    }

    fn for_host(version: &str, host: &str) -> Self {
        let folder = Folder::new();
        let bin = format!("{host}-linux/ccec_compiler/bin");
        folder.program(&format!("{bin}/bisheng"), &format!("{RECORD}{BISHENG}"));
        folder.program(&format!("{bin}/ld.lld"), &format!("{RECORD}{LINKER}"));
        folder
            .file(&format!("{host}-linux/ascend_toolkit_install.info"), format!("package_name=x\nversion={version}\n"));
        folder.file(&format!("{host}-linux/asc/include/kernel_operator.h"), "");
        folder.file("include/kernel_operator.h", "");
        folder.file(&format!("{host}-linux/tikcpp/ascendc_kernel_cmake/ascendc.cmake"), "");
        folder.file("knows", "dav-2201\ndav-3510\ndav-2002\n");
        let this = Self { folder };
        this.gives(&elf(0x1029, &["gemm_mix_aic", "gemm_mix_aiv", "gemm"].map(Symbol::kernel)));
        this
    }

    /// As 8.1 to 8.3: no headers by architecture, and a `cmake` beside it.
    pub(crate) fn old(version: &str) -> Self {
        let this = Self::new(version);
        std::fs::remove_dir_all(this.root().join(format!("{HOST}-linux/asc"))).unwrap();
        this.folder.program("host/cmake", &format!("{RECORD}{CMAKE}"));
        this
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    /// What comes out of the linker.
    pub(crate) fn gives(&self, file: &[u8]) {
        self.folder.file("canned.o", file);
    }

    /// The architectures that the compiler accepts.
    pub(crate) fn knows(&self, archs: &[&str]) {
        self.folder.file("knows", archs.join("\n"));
    }

    /// The calls so far, one a line, with `$CANN` for the root and the other names for their paths.
    pub(crate) fn calls(&self, names: &[(&str, &Path)]) -> Vec<String> {
        let mut log = std::fs::read_to_string(self.root().join("log")).unwrap_or_default();
        for (name, path) in [("$CANN", self.root())].iter().chain(names) {
            log = log.replace(&*path.to_string_lossy(), name);
        }
        log.split_terminator("\n\n").map(|call| call.replace('\n', " ")).collect()
    }
}

/// A crate with one kernel, and a folder for results.
pub(crate) struct Crate {
    pub(crate) folder: Folder,
    pub(crate) out: Folder,
}

impl Crate {
    pub(crate) fn new() -> Self {
        let folder = Folder::new();
        folder.file("kernel/gemm.cpp", "// a kernel\n");
        folder.file("kernel/tiling.h", "// its tiling\n");
        Self { folder, out: Folder::new() }
    }

    /// A build script of this crate with these variables; nothing of the machine is looked at.
    pub(crate) fn script(&self, variables: &[(&str, &Path)]) -> ascend_build::Script {
        let nowhere = self.folder.path().join("nowhere");
        let all = [("ASCEND_RT_SYSROOT", nowhere.as_path()), ("HOME", nowhere.as_path())];
        ascend_build::Script {
            env: ascend_build::env::Env::of(all.iter().chain(variables).map(|&(name, value)| (name, value))),
            dir: self.folder.path().to_owned(),
            out: self.out.path().to_owned(),
            host: HOST.to_owned(),
        }
    }

    pub(crate) fn names(&self) -> [(&'static str, &Path); 2] {
        [("$CRATE", self.folder.path()), ("$OUT", self.out.path())]
    }

    pub(crate) fn result(&self, name: &str) -> String {
        std::fs::read_to_string(self.out.path().join(name)).unwrap()
    }
}
