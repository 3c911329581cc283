// SPDX-License-Identifier: MIT OR Apache-2.0

//! The programs of `tests/examples`, on both architectures: what the documentation of the API says that a call does, with
//! its numbers, and what the machine below the API lets through and stops.

use ascend_build::Arch;
use ascend_build::env::Env;
use ascend_build::twin::Twin;
use ascend_sim::{Call, Chip, Image, Memory, Mode, Role, include_dir};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes of the buffer, and of the workspace behind it.
const PART: usize = 1 << 20;

/// Random orders that every example runs in besides that of the program.
const SEEDS: u64 = 4;

fn sources() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/examples");
    let mut all: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "cpp"))
        .collect();
    all.sort();
    all
}

fn compile(source: &Path, arch: Arch) -> Image {
    let library = ascend_sim::library(arch).expect("the twin knows the architecture");
    let twin = Twin::find(&Env::of_process(), include_dir(), library).unwrap();
    let stem = source.file_stem().unwrap().to_string_lossy().into_owned();
    let image = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{stem}-{arch}.so"));
    let output = Command::new(&twin.compiler)
        .args(&twin.flags)
        // They run for a moment: what takes time is to compile them.
        .args(["-std=c++17", "-O0", "-ffp-contract=off", "-fno-exceptions", "-fno-rtti", "-shared", "-fPIC"])
        .args(["-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-Wl,-Bsymbolic", "-Wl,--exclude-libs,ALL"])
        .arg(format!("-D__NPU_ARCH__={}", arch.number()))
        .arg(format!("-I{}", twin.include.display()))
        .arg("-o")
        .arg(&image)
        .arg(source)
        .arg(&twin.library)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}: {}", source.display(), String::from_utf8_lossy(&output.stderr));
    Image::open(&image).unwrap()
}

/// What an example is called, where its numbers come from, on how many blocks it runs.
fn parts(name: &str) -> (&str, &str, u32) {
    let mut parts = name.split(" @ ");
    let all = (parts.next(), parts.next(), parts.next().and_then(|blocks| blocks.parse().ok()));
    let (Some(name), Some(page), Some(blocks)) = all else { panic!("`{name}` is no example's name") };
    (name, page, blocks)
}

fn run(image: &Image, kernel: usize, chip: &Chip, mode: Mode) -> Result<(), String> {
    let (name, page, blocks) = parts(&image.kernels()[kernel].name);
    // Sixty-four words more: the first byte lies at a multiple of 512.
    let mut words = vec![0u64; 2 * PART / 8 + 64];
    let start = words.as_mut_ptr().cast::<u8>();
    let start = start.wrapping_add(start.align_offset(512));
    let part = |at: usize, role, name: &str| Memory {
        address: start.wrapping_add(at),
        bytes: PART,
        role,
        name: Some(name.to_owned()),
        device: at as u64,
    };
    let memory = [part(0, Role::Buffer, "gm"), part(PART, Role::Workspace, "workspace")];
    let args = (start.expose_provenance() as u64).to_ne_bytes();
    let call =
        Call { kernel, blocks, mode, chip, memory: &memory, args: &args, mutes: &[], record: false, verbose: false };
    // SAFETY: the memory is that of `words`, which nobody else uses until this function returns.
    let ended = unsafe { image.run(&call, &mut |_| {}) };
    let rules: Vec<&str> = page.strip_prefix('!').map(|rules| rules.split('|').collect()).unwrap_or_default();
    match ended {
        Ok(_) if rules.is_empty() => Ok(()),
        Ok(_) => Err(format!("{name} ({mode:?}) ran to its end, expected {page}")),
        Err(error) => match error.fault() {
            Some(fault) if rules.contains(&fault.rule.name()) => Ok(()),
            _ => Err(format!("{name} ({mode:?}), {page}:\n{error}")),
        },
    }
}

fn run_all(arch: Arch, chip: &str, least: usize) {
    let chip = Chip::preset(chip).unwrap();
    let mut failures = Vec::new();
    let mut pages = BTreeSet::new();
    let (mut documented, mut machine) = (0, 0);
    for source in sources() {
        let image = compile(&source, arch);
        for kernel in 0..image.kernels().len() {
            let (_, page, _) = parts(&image.kernels()[kernel].name);
            if page == "ok" || page.starts_with('!') {
                machine += 1;
            } else {
                documented += 1;
                pages.insert(page.to_owned());
            }
            let modes = (0..=SEEDS).map(|seed| if seed == 0 { Mode::Fast } else { Mode::Chaos(seed) });
            if let Some(failure) = modes.map(|mode| run(&image, kernel, &chip, mode)).find_map(Result::err) {
                failures.push(failure);
            }
        }
    }
    println!("{arch}: {documented} examples of {} pages, {machine} programs for the machine", pages.len());
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
    assert!(documented >= least, "{documented} documented examples, expected {least}");
}

#[test]
fn a2() {
    run_all(Arch::Dav2201, "910b3", 150);
}

#[test]
fn a5() {
    run_all(Arch::Dav3510, "950", 100);
}

/// The number formats against slow conversions that share nothing with them: `tests/native/numeric.cpp`.
#[test]
fn number_formats() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = ascend_sim::library(Arch::Dav2201).expect("the twin knows the architecture");
    let twin = Twin::find(&Env::of_process(), include_dir(), library).unwrap();
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("numeric");
    let output = Command::new(&twin.compiler)
        .args(&twin.flags)
        .args(["-std=c++17", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror"])
        .arg(format!("-I{}", twin.include.display()))
        .arg(format!("-I{}", root.join("lib").display()))
        .arg("-o")
        .arg(&program)
        .args([root.join("tests/native/numeric.cpp"), root.join("lib/numeric.cpp")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = Command::new(&program).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    println!("{said}");
}
