// SPDX-License-Identifier: MIT OR Apache-2.0

//! Images for the twin: the exact commands and sources, when they are made, and what cargo is told.

use std::path::{Path, PathBuf};

use ascend_build::env::Env;
use ascend_build::twin::Twin;
use ascend_build::{Arch, Error, Kernel};

use crate::fake::{Crate, Folder, Toolkit};

/// Records its call, and makes the image and the list of what it read.
const COMPILER: &str = r#"#!/bin/sh
root=$(dirname "$0")
[ "$1" = --version ] && { echo "cxx (a test) 12.2.0"; echo more; exit 0; }
{ for arg in "$@"; do echo "$arg"; done; echo; } >> "$root/log"
image=; list=; arch=; source=; include=
while [ $# -gt 0 ]; do
    case "$1" in
        -o) image=$2; shift;;
        -MF) list=$2; shift;;
        -I*) [ -e "${1#-I}/kernel_operator.h" ] && include=${1#-I};;
        -D__NPU_ARCH__=*) arch=${1#*=};;
        *.twin.cpp) source=$1;;
    esac
    shift
done
grep -q 'syntax error' kernel/gemm.cpp && { echo "kernel/gemm.cpp:1:1: error: 'syntax' does not name a type" >&2; exit 1; }
printf 'image of %s' "$arch" > "$image"
printf '%s: %s kernel/gemm.cpp \\\n  kernel/tiling.h %s/kernel_operator.h /nowhere/temporary.h\n' "$image" "$source" "$include" > "$list"
"#;

type Variables = Vec<(&'static str, PathBuf)>;

/// The compiler alone.
pub(crate) fn compiler(folder: &Folder) -> PathBuf {
    folder.program("cxx", COMPILER)
}

/// A compiler, and the twin's headers and library.
struct Sim {
    folder: Folder,
}

impl Sim {
    fn new() -> Self {
        let folder = Folder::new();
        compiler(&folder);
        folder.file("include/kernel_operator.h", "");
        for arch in ["2201", "3510"] {
            folder.file(&format!("lib/libascend_twin_{arch}.a"), "");
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The variables of a build with the feature `sim`.
    fn variables(&self) -> Variables {
        vec![
            ("CARGO_FEATURE_SIM", "1".into()),
            ("DEP_ASCEND_TWIN_INCLUDE", self.path("include")),
            ("DEP_ASCEND_TWIN_LIB", self.path("lib")),
            ("CXX", self.path("cxx")),
        ]
    }

    fn calls(&self, op: &Crate) -> Vec<String> {
        let mut log = std::fs::read_to_string(self.path("log")).unwrap_or_default();
        for (name, path) in [("$SIM", self.folder.path())].iter().chain(&op.names()) {
            log = log.replace(&*path.to_string_lossy(), name);
        }
        log.split_terminator("\n\n").map(|call| call.replace('\n', " ")).collect()
    }
}

fn script(op: &Crate, variables: &[(&'static str, PathBuf)]) -> ascend_build::Script {
    op.script(&variables.iter().map(|(name, value)| (*name, value.as_path())).collect::<Vec<_>>())
}

fn kernel() -> Kernel {
    ascend_build::kernel("gemm").mix("gemm")
}

fn starting<'a>(directives: &'a [String], start: &str) -> Vec<&'a str> {
    directives.iter().filter_map(|line| line.strip_prefix(start)).collect()
}

#[test]
fn one_command_for_each_architecture() {
    let (op, sim) = (Crate::new(), Sim::new());
    kernel().define("TILE=128").include("kernel/nowhere").try_build(&script(&op, &sim.variables())).unwrap();
    let command = |arch: &str| {
        format!(
            "-std=c++17 -O2 -ffp-contract=off -fno-exceptions -fno-rtti -shared -fPIC -fvisibility=hidden -Wl,-Bsymbolic \
             -Wl,-z,defs -Wl,--exclude-libs,ALL -D__NPU_ARCH__={arch} -DASCEND_TWIN=1 -I$CRATE/kernel -I$SIM/include \
             -DTILE=128 -ffile-prefix-map=$CRATE/= -ffile-prefix-map=$SIM/include/= -ffile-prefix-map=$OUT/= -MMD -MF \
             $OUT/gemm-dav-{arch}.twin.d -o $OUT/gemm-dav-{arch}.twin.so $OUT/gemm-dav-{arch}.twin.cpp \
             $SIM/lib/libascend_twin_{arch}.a"
        )
    };
    assert_eq!(sim.calls(&op), [command("2201"), command("3510")]);
}

#[test]
fn the_generated_source() {
    let (op, sim) = (Crate::new(), Sim::new());
    op.folder.file(
        "kernel/gemm.cpp",
        "extern \"C\" __global__ __aicore__ void gemm(GM_ADDR x, GM_ADDR workspace) {\n\
         KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_1);\n}\n\
         extern \"C\" __global__ __aicore__ void zero(GM_ADDR y) {}\n",
    );
    op.folder.file("kernel/more.cpp", "ENTRY(more)\n");
    let kernel = kernel().vector("zero").cube("more").source("kernel/gemm.cpp").source("kernel/more.cpp");
    kernel.try_build(&script(&op, &sim.variables())).unwrap();
    let text = op.result("gemm-dav-2201.twin.cpp").replace(&*op.folder.path().to_string_lossy(), "$CRATE");
    assert_eq!(
        text,
        "// Made by ascend-build: kernels, and what makes them known to the twin.\n\
         #include \"$CRATE/kernel/gemm.cpp\"\n\
         #include \"$CRATE/kernel/more.cpp\"\n\
         #include \"twin/register.h\"\n\n\
         ASCEND_TWIN_BEGIN\n\
         ASCEND_TWIN_KERNEL(gemm, ASCEND_TWIN_MIX_1_1)\n\
         ASCEND_TWIN_KERNEL(zero, ASCEND_TWIN_AIV_ONLY)\n\
         ASCEND_TWIN_KERNEL(more, ASCEND_TWIN_AIC_ONLY)\n\
         ASCEND_TWIN_END\n\n\
         // The name of the module, then a line for each kernel with the names of its parameters.\n\
         extern \"C\" {\n\
         extern const char ascend_twin_module[] __attribute__((visibility(\"default\")));\n\
         const char ascend_twin_module[] = \"gemm\\ngemm x workspace\\nzero y\\nmore\";\n}\n"
    );
    // Kernels of both kinds: the core is known at run time only. Of one kind: it is known to the compiler.
    assert!(!sim.calls(&op)[0].contains("ASCEND_TWIN_CORE"));
    for (kernel, define) in [
        (ascend_build::kernel("gemm").vector("a").vector("b"), "-DASCEND_TWIN_CORE=1"),
        (ascend_build::kernel("gemm").cube("a"), "-DASCEND_TWIN_CORE=2"),
    ] {
        let (op, sim) = (Crate::new(), Sim::new());
        kernel.try_build(&script(&op, &sim.variables())).unwrap();
        assert!(sim.calls(&op).iter().all(|call| call.contains(define)), "{:?}", sim.calls(&op));
    }
}

#[test]
fn images_are_embedded_and_watched() {
    let (op, sim) = (Crate::new(), Sim::new());
    let outcome = kernel().try_build(&script(&op, &sim.variables())).unwrap();
    assert!(outcome.blobs.is_empty(), "there is no CANN");
    assert_eq!(outcome.images.iter().map(|image| image.arch).collect::<Vec<_>>(), [Arch::Dav2201, Arch::Dav3510]);
    assert_eq!(starting(&outcome.directives, "rustc-cfg="), [r#"ascend_kernels="none""#, r#"ascend_twin="built""#]);
    assert!(outcome.directives.contains(&"rerun-if-env-changed=CXX".to_owned()));
    let watched: Vec<String> = starting(&outcome.directives, "rerun-if-changed=")
        .into_iter()
        .map(|path| path.replace(&*sim.folder.path().to_string_lossy(), "$SIM"))
        .map(|path| path.replace(&*op.folder.path().to_string_lossy(), "$CRATE"))
        .collect();
    assert_eq!(
        watched,
        [
            "$CRATE/kernel/gemm.cpp",
            "$SIM/lib/libascend_twin_2201.a",
            "$SIM/lib/libascend_twin_3510.a",
            "$CRATE/kernel/tiling.h",
            "$SIM/include/kernel_operator.h",
        ]
    );
    let (rust, json) = (op.result("kernels.rs"), op.result("kernels.json"));
    for arch in ["2201", "3510"] {
        let line =
            format!("Blob::twin(::ascend_rt::Arch::from_number({arch}), include_bytes!(\"gemm-dav-{arch}.twin.so\")),");
        assert!(rust.contains(&line), "{rust}");
    }
    assert!(rust.contains("TWIN_ORIGIN: &str = \"cxx (a test) 12.2.0: dav-2201, 13 bytes, sha256 "), "{rust}");
    assert!(json.contains("\"twin\": \"cxx (a test) 12.2.0\"") && json.contains("\"toolkit\": null"), "{json}");
    assert!(!rust.contains(&*op.out.path().to_string_lossy()), "no path of this machine is compiled in");
}

#[test]
fn beside_device_code() {
    let (op, sim, toolkit) = (Crate::new(), Sim::new(), Toolkit::new("9.1.0"));
    let mut variables = sim.variables();
    variables.push(("ASCEND_HOME_PATH", toolkit.root().to_owned()));
    variables.push(("ASCEND_RT_SOC", "950".into()));
    let outcome = kernel().try_build(&script(&op, &variables)).unwrap();
    assert_eq!((outcome.blobs.len(), outcome.images.len()), (1, 1));
    assert_eq!(outcome.images[0].arch, Arch::Dav3510);
    assert_eq!(starting(&outcome.directives, "rustc-cfg="), [r#"ascend_kernels="built""#, r#"ascend_twin="built""#]);
    let rust = op.result("kernels.rs");
    assert!(rust.find("Blob::arch(").unwrap() < rust.find("Blob::twin(").unwrap(), "{rust}");
    // Device code may be off without the twin being so.
    variables.push(("ASCEND_RT_BUILD", "off".into()));
    let outcome = kernel().try_build(&script(&Crate::new(), &variables)).unwrap();
    assert_eq!((outcome.blobs.len(), outcome.images.len()), (0, 1));
}

#[test]
fn states_without_images() {
    let sim = Sim::new();
    let with = |name: &'static str, value: &str| {
        let mut variables = sim.variables();
        variables.retain(|(known, _)| *known != name);
        variables.push((name, value.into()));
        variables
    };
    for (variables, why) in [
        (with("CARGO_FEATURE_SIM", ""), "the feature `sim` is off"),
        (with("DOCS_RS", "1"), "DOCS_RS is set"),
        (with("ASCEND_RT_SOC", "310p"), "ASCEND_RT_SOC names no architecture that the twin knows"),
    ] {
        let op = Crate::new();
        let outcome = kernel().try_build(&script(&op, &variables)).unwrap();
        assert!(outcome.images.is_empty());
        assert!(outcome.directives.contains(&r#"rustc-cfg=ascend_twin="none""#.to_owned()), "{why}");
        assert!(op.result("kernels.rs").contains(&format!("TWIN_ORIGIN: &str = \"not built: {why}\"")), "{why}");
        assert!(op.result("kernels.json").contains(&format!("\"twin_reason\": \"{why}\"")), "{why}");
    }
    assert!(sim.calls(&Crate::new()).is_empty(), "the compiler was not called");
}

#[test]
fn what_stops_a_build() {
    let sim = Sim::new();
    let message = |change: &dyn Fn(&mut Variables, &Crate)| {
        let (op, mut variables) = (Crate::new(), sim.variables());
        change(&mut variables, &op);
        let error = kernel().try_build(&script(&op, &variables)).unwrap_err();
        assert!(!op.out.path().join("kernels.rs").exists(), "nothing is left that looks like a result");
        (error.to_string(), error)
    };
    let without = |name: &'static str| {
        message(&move |variables: &mut Variables, _| variables.retain(|(known, _)| *known != name))
    };
    for name in ["DEP_ASCEND_TWIN_INCLUDE", "DEP_ASCEND_TWIN_LIB"] {
        let (text, error) = without(name);
        assert!(matches!(error, Error::NoTwin { name: found } if found == name), "{error:?}");
        assert!(text.contains(&format!("{name} is not set")) && text.contains("`ascend-sim`"), "{text}");
    }
    let (text, error) = without("CXX");
    assert!(matches!(error, Error::NoCompiler), "{error:?}");
    assert!(text.contains("none of c++, g++, clang++") && text.contains("packages `g++`"), "{text}");

    let (text, _) = message(&|variables, _| variables.push(("CXX", "/nowhere/g++ -m64".into())));
    assert_eq!(text, "CXX=\"/nowhere/g++ -m64\": expected a C++ compiler: a path, or the name of a program on PATH");

    let (text, _) = message(&|_, op| {
        op.folder.file("kernel/gemm.cpp", "syntax error\n");
    });
    for part in ["exit status: 1", "does not name a type", "/cxx -std=c++17", "-D__NPU_ARCH__=2201"] {
        assert!(text.contains(part), "{text}");
    }

    let (text, _) = message(&|_, op| {
        let source = "__global__ void gemm(GM_ADDR x) { KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY); }\n";
        op.folder.file("kernel/gemm.cpp", source);
    });
    let expected = "kernel `gemm`: `gemm` is described for Mix cores, and its source says ASCEND_TWIN_AIV_ONLY";
    assert_eq!(text, expected);
}

#[test]
fn which_compiler() {
    let folder = Folder::new();
    let find = |variables: &[(&str, &str)]| {
        let path = folder.path().to_string_lossy().into_owned();
        let all = [("PATH", path.as_str())].into_iter().chain(variables.iter().copied());
        Twin::find(&Env::of(all), Path::new("/i"), Path::new("/l.a")).map(|twin| {
            let name = twin.compiler.file_name().unwrap().to_string_lossy().into_owned();
            [vec![name], twin.flags].concat().join(" ")
        })
    };
    assert!(matches!(find(&[]), Err(Error::NoCompiler)));
    folder.program("clang++", "#!/bin/sh\n");
    assert_eq!(find(&[]).unwrap(), "clang++");
    folder.program("g++", "#!/bin/sh\n");
    assert_eq!(find(&[]).unwrap(), "g++");
    folder.program("c++", "#!/bin/sh\n");
    assert_eq!(find(&[]).unwrap(), "c++");
    assert_eq!(find(&[("CXX", "clang++")]).unwrap(), "clang++");
    assert_eq!(find(&[("CXX", "g++ -m64 -w")]).unwrap(), "g++ -m64 -w");
    let spaced = folder.program("my cxx", "#!/bin/sh\n");
    assert_eq!(find(&[("CXX", &spaced.to_string_lossy())]).unwrap(), "my cxx");
    assert!(find(&[("CXX", "icpc")]).is_err(), "what was asked for is not replaced by another one");
}
