// SPDX-License-Identifier: MIT OR Apache-2.0

//! Compiling and running kernels of this crate.

use ascend_build::Arch;
use ascend_sim::{Chip, Image, Launch, Mode, Mutant, compile, kernel_of, mutants};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

pub(crate) const ARCHS: [Arch; 2] = [Arch::Dav2201, Arch::Dav3510];

/// Random orders that a right kernel runs in besides that of the program.
pub(crate) const SEEDS: u64 = 200;

/// Random orders in which a mutant may hide.
pub(crate) const MUTANT_SEEDS: u64 = 64;

pub(crate) fn chip(arch: Arch) -> Chip {
    Chip::preset(if arch == Arch::Dav3510 { "950" } else { "910b3" }).unwrap()
}

/// The image of a source of this crate; each is compiled once.
pub(crate) fn image(source: &str, arch: Arch) -> Image {
    type Slot = Arc<OnceLock<Image>>;
    static ALL: OnceLock<Mutex<HashMap<(String, Arch), Slot>>> = OnceLock::new();
    let slot = {
        let mut all = ALL.get_or_init(Mutex::default).lock().unwrap();
        Arc::clone(all.entry((source.to_owned(), arch)).or_default())
    };
    let make = || {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let recipe = kernel_of(&root.join(source), root, None, None).unwrap();
        compile(&recipe, arch).unwrap_or_else(|error| panic!("{error}"))
    };
    slot.get_or_init(make).clone()
}

/// Program order, and then the seeds.
pub(crate) fn modes(seeds: u64) -> impl Iterator<Item = Mode> {
    core::iter::once(Mode::Fast).chain((1..=seeds).map(Mode::Chaos))
}

/// Every place where the launch synchronises is needed: without it, the launch is stopped.
pub(crate) fn each_is_needed(mut launch: Launch<'_>, least: usize) -> Vec<Mutant> {
    let arch = launch.image().arch();
    let all = mutants(&mut launch, MUTANT_SEEDS).unwrap_or_else(|error| panic!("{error}"));
    for mutant in &all {
        println!("{arch}: {mutant}");
    }
    let hidden: Vec<String> = all.iter().filter(|m| !m.is_found()).map(ToString::to_string).collect();
    assert!(hidden.is_empty(), "{arch}: {} of {} mutants survive:\n{}", hidden.len(), all.len(), hidden.join("\n"));
    assert!(all.len() >= least, "{} places synchronise, expected {least}", all.len());
    all
}
