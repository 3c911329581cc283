// SPDX-License-Identifier: MIT OR Apache-2.0

//! From a source to an image that runs: the recipe, the compiler and the twin's library together.

use ascend_build::{Arch, Cores, Error};
use ascend_sim::{Args, Chip, CompileError, Image, Mode, Rule, RunError, Task, compile, kernel_of};

use crate::fake::Folder;

/// Kernels that work on their pointers, without the API: what this is about is the way there.
const SOURCE: &str = r#"
#include "kernel_operator.h"
#include "shared.h"

extern "C" __global__ __aicore__ void shift(GM_ADDR x, GM_ADDR y, uint16_t n, int64_t by)
{
    if (ascend_twin::block_index() != 0) {
        return;
    }
    for (int i = 0; i < n; i++) {
        reinterpret_cast<int32_t *>(y)[i] = reinterpret_cast<int32_t *>(x)[i] + static_cast<int32_t>(by) + SHARED;
    }
}

extern "C" __global__ __aicore__ void broken(Pair pair)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
    if (!ascend_twin::is_cube() && ascend_twin::sub_block() == 1) {
        ascend_twin::fail(ascend_twin::Rule::Assert, "broken", "pair", ascend_twin::Site::here(),
                          "%u and %u on dav-%d", pair.a, pair.b, __NPU_ARCH__);
    }
}
"#;

const HEADER: &str =
    "#pragma once\n#include <stdint.h>\nstruct Pair { uint32_t a, b; };\n#ifndef SHARED\n#define SHARED 100\n#endif\n";

fn folder() -> Folder {
    let folder = Folder::new();
    folder.file("kernel/shift.cpp", SOURCE);
    folder.file("kernel/shared.h", HEADER);
    folder
}

fn image(folder: &Folder, arch: Arch) -> Image {
    let recipe = kernel_of(&folder.path().join("kernel/shift.cpp"), folder.path(), None, None).unwrap();
    compile(&recipe, arch).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_source_becomes_an_image_that_runs() {
    let folder = folder();
    for (arch, number, soc) in [(Arch::Dav2201, 2201, "910b3"), (Arch::Dav3510, 3510, "950pr")] {
        let image = image(&folder, arch);
        assert_eq!((image.name(), image.arch()), ("shift", number));
        let kernels: Vec<_> = image.kernels().iter().map(|kernel| (kernel.name.as_str(), kernel.task)).collect();
        assert_eq!(kernels, [("shift", Task::AivOnly), ("broken", Task::Mix12)]);
        let shift = &image.kernels()[0];
        let layout: Vec<_> = shift.parameters.iter().map(|p| (p.offset, p.bytes, p.is_pointer)).collect();
        assert_eq!(layout, [(0, 8, true), (8, 8, true), (16, 2, false), (24, 8, false)]);
        let names: Vec<_> = (0..4).map(|index| shift.parameter_name(index)).collect();
        assert_eq!(names, ["x", "y", "n", "by"]);

        let (x, mut y) = ([1i32, 2, 3], [0i32; 3]);
        let args = Args::new().input(&x).buffer(&mut y).value(3u16).value(-10i64);
        let chip = Chip::preset(soc).unwrap();
        image.launch("shift").unwrap().chip(chip).args(args).run().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(y, [91, 92, 93]);

        let args = Args::new().value([7u32, 8]);
        let chip = Chip::preset(soc).unwrap();
        let mut launch = image.launch("broken").unwrap().chip(chip).args(args).mode(Mode::Chaos(1));
        let Err(RunError::Fault(fault)) = launch.run() else { panic!("it breaks a rule") };
        assert_eq!((&fault.rule, fault.message.as_str()), (&Rule::Assert, &*format!("7 and 8 on dav-{number}")));
        let line = SOURCE.lines().position(|line| line.contains("Rule::Assert")).unwrap() as u32 + 1;
        assert_eq!(
            fault.site.as_ref().unwrap().to_string(),
            format!("kernel/shift.cpp:{line}"),
            "relative to the root"
        );
        assert!(fault.report(folder.path()).contains("|     ascend_twin::fail("), "{}", fault.report(folder.path()));
    }
}

#[test]
fn macros_and_headers_of_the_recipe() {
    let folder = folder();
    let mut recipe = kernel_of(&folder.path().join("kernel/shift.cpp"), folder.path(), Some("shift"), None).unwrap();
    recipe.defines.push("SHARED=1".to_owned());
    let image = compile(&recipe, Arch::Dav2201).unwrap();
    assert_eq!(image.kernels().len(), 1);
    let (x, mut y) = ([1i32], [0i32]);
    let args = Args::new().input(&x).buffer(&mut y).value(1u16).value(0i64);
    image.launch("shift").unwrap().args(args).run().unwrap();
    assert_eq!(y, [2]);
}

#[test]
fn which_kernels_a_source_has() {
    let folder = folder();
    let source = folder.path().join("kernel/shift.cpp");
    let shown = |entry, cores| {
        let recipe = kernel_of(&source, folder.path(), entry, cores).unwrap();
        recipe.entries.into_iter().map(|entry| (entry.name, entry.cores)).collect::<Vec<_>>()
    };
    assert_eq!(shown(None, None), [("shift".to_owned(), Cores::Vector), ("broken".to_owned(), Cores::Mix)]);
    assert_eq!(shown(Some("shift"), Some(Cores::Cube)), [("shift".to_owned(), Cores::Cube)]);
    // One that the text does not show: a macro may define it.
    assert_eq!(shown(Some("hidden"), Some(Cores::Mix)), [("hidden".to_owned(), Cores::Mix)]);
    let odd = folder.file("2-odd name.cpp", "int x;\n");
    let error = kernel_of(&odd, folder.path(), None, None).unwrap_err();
    assert!(matches!(error, CompileError::Build(Error::Recipe { .. })), "{error:?}");
    assert_eq!(kernel_of(&odd, folder.path(), Some("k"), None).unwrap().name, "_2_odd_name");
    let error = kernel_of(&folder.path().join("none.cpp"), folder.path(), None, None).unwrap_err();
    assert!(matches!(&error, CompileError::Io { path, .. } if path.ends_with("none.cpp")), "{error:?}");
}

#[test]
fn what_does_not_compile_says_why() {
    let folder = Folder::new();
    let source =
        folder.file("k.cpp", "#include \"kernel_operator.h\"\n__global__ void k(GM_ADDR x) { NoSuchCall(x); }\n");
    let recipe = kernel_of(&source, folder.path(), None, None).unwrap();
    let message = compile(&recipe, Arch::Dav2201).unwrap_err().to_string();
    assert!(message.contains("NoSuchCall") && message.contains("command: "), "{message}");
    let error = compile(&recipe, Arch::Dav2002).unwrap_err();
    assert!(error.to_string().contains("no code for dav-2002: the twin knows dav-2201 and dav-3510"), "{error}");
}
