// SPDX-License-Identifier: MIT OR Apache-2.0

//! The exact commands, for each architecture and both generations of the toolkit.

use std::path::Path;

use crate::fake::{Crate, Toolkit};

fn calls(toolkit: &Toolkit, soc: Option<&str>, kernel: &ascend_build::Kernel) -> Vec<String> {
    let op = Crate::new();
    let path = toolkit.root().join("host");
    let mut variables = vec![("ASCEND_HOME_PATH", toolkit.root()), ("PATH", path.as_path())];
    variables.extend(soc.map(|soc| ("ASCEND_RT_SOC", Path::new(soc))));
    op.folder.file("kernel/second.cpp", "");
    kernel.try_build(&op.script(&variables)).unwrap();
    toolkit.calls(&op.names())
}

fn kernel() -> ascend_build::Kernel {
    ascend_build::kernel("gemm").mix("gemm")
}

#[test]
fn from_8_5_on_by_architecture() {
    assert_eq!(
        calls(&Toolkit::new("8.5.0"), Some("910b"), &kernel()),
        [
            "bisheng -c --asc-aicore-lang $OUT/probe.asc -o $OUT/probe-dav-2201.o --npu-arch=dav-2201 --aicore-only",
            "bisheng -c --asc-aicore-lang $CRATE/kernel/gemm.cpp -o $OUT/gemm-dav-2201.dev.o --npu-arch=dav-2201 \
             --aicore-only -O3 -std=c++17 -I$CRATE/kernel -MD -MF $OUT/gemm-dav-2201.d",
            "ld.lld -m aicorelinux -Ttext=0 $OUT/gemm-dav-2201.dev.o -static -o $OUT/gemm-dav-2201.o",
        ]
    );
}

#[test]
fn several_architectures_sources_and_options() {
    let kernel = kernel()
        .source("kernel/gemm.cpp")
        .source("kernel/second.cpp")
        .define("ASCENDC_DUMP=0")
        .include("kernel/nowhere")
        .simt();
    assert_eq!(
        calls(&Toolkit::new("9.1.0"), Some("950,a3,310p"), &kernel),
        [
            "bisheng -c --asc-aicore-lang $OUT/probe.asc -o $OUT/probe-dav-2201.o --npu-arch=dav-2201 --aicore-only",
            "bisheng -c --asc-aicore-lang $OUT/probe.asc -o $OUT/probe-dav-3510.o --npu-arch=dav-3510 --aicore-only",
            "bisheng -c --asc-aicore-lang $OUT/probe.asc -o $OUT/probe-dav-2002.o --npu-arch=dav-2002 --aicore-only",
            "bisheng -c --asc-aicore-lang $CRATE/kernel/gemm.cpp -o $OUT/gemm-dav-2201.dev.o --npu-arch=dav-2201 \
             --aicore-only -O3 -std=c++17 -I$CRATE/kernel -DASCENDC_DUMP=0 -MD -MF $OUT/gemm-dav-2201.d",
            "bisheng -c --asc-aicore-lang $CRATE/kernel/second.cpp -o $OUT/second-dav-2201.dev.o --npu-arch=dav-2201 \
             --aicore-only -O3 -std=c++17 -I$CRATE/kernel -DASCENDC_DUMP=0 -MD -MF $OUT/second-dav-2201.d",
            "bisheng -c --asc-aicore-lang $CRATE/kernel/gemm.cpp -o $OUT/gemm-dav-3510.dev.o --npu-arch=dav-3510 \
             --aicore-only -O3 -std=c++17 -I$CRATE/kernel -DASCENDC_DUMP=0 --enable-simt -MD -MF $OUT/gemm-dav-3510.d",
            "bisheng -c --asc-aicore-lang $CRATE/kernel/second.cpp -o $OUT/second-dav-3510.dev.o --npu-arch=dav-3510 \
             --aicore-only -O3 -std=c++17 -I$CRATE/kernel -DASCENDC_DUMP=0 --enable-simt -MD -MF $OUT/second-dav-3510.d",
            "bisheng -c --asc-aicore-lang $CRATE/kernel/gemm.cpp -o $OUT/gemm-dav-2002.dev.o --npu-arch=dav-2002 \
             --aicore-only -O3 -std=c++17 -I$CRATE/kernel -DASCENDC_DUMP=0 -MD -MF $OUT/gemm-dav-2002.d",
            "bisheng -c --asc-aicore-lang $CRATE/kernel/second.cpp -o $OUT/second-dav-2002.dev.o --npu-arch=dav-2002 \
             --aicore-only -O3 -std=c++17 -I$CRATE/kernel -DASCENDC_DUMP=0 -MD -MF $OUT/second-dav-2002.d",
            "ld.lld -m aicorelinux -Ttext=0 $OUT/gemm-dav-2201.dev.o $OUT/second-dav-2201.dev.o -static \
             -o $OUT/gemm-dav-2201.o",
            "ld.lld -m aicorelinux -Ttext=0 $OUT/gemm-dav-3510.dev.o $OUT/second-dav-3510.dev.o -static \
             -o $OUT/gemm-dav-3510.o",
            "ld.lld -m aicorelinux -Ttext=0 $OUT/gemm-dav-2002.dev.o $OUT/second-dav-2002.dev.o -static \
             -o $OUT/gemm-dav-2002.o",
        ]
    );
}

#[test]
fn before_8_5_through_the_toolkit_s_build_files() {
    for (version, soc, arch, chip) in
        [("8.1.RC1", None, "dav-2201", "Ascend910B1"), ("8.3.RC1", Some("310p"), "dav-2002", "Ascend310P3")]
    {
        assert_eq!(
            calls(&Toolkit::old(version), soc, &kernel()),
            [
                format!(
                    "cmake -S $OUT/cmake-{arch} -B $OUT/cmake-{arch}/build -DSOC_VERSION={chip} \
                     -DASCEND_CANN_PACKAGE_PATH=$CANN -DRUN_MODE=npu -DCMAKE_BUILD_TYPE=Release \
                     -DCMAKE_INSTALL_PREFIX=$OUT/cmake-{arch}/result"
                ),
                format!("cmake --build $OUT/cmake-{arch}/build --parallel 1"),
            ],
            "{version}"
        );
    }
}
