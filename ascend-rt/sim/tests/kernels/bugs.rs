// SPDX-License-Identifier: MIT OR Apache-2.0

//! The kernels of `bugs.cpp`, against the table at its top.

use ascend_build::Arch;
use ascend_sim::{Args, Image, Mode, RunError, Slow, lint};

use crate::numbers::eighths;
use crate::run::{ARCHS, MUTANT_SEEDS, chip, image, modes};

const SOURCE: &str = "tests/kernels/bugs.cpp";

/// Random orders that a right kernel runs in.
const OK_SEEDS: u64 = 20;

#[derive(Debug)]
struct Line {
    number: u32,
    /// The kernel.
    name: String,
    /// One of them is broken.
    rules: Vec<String>,
    blocks: Blocks,
    only_2201: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Blocks {
    Given(u32),
    MoreThanCores,
}

/// The lines `//   1 missing_flag    hazard-raw (2 blocks)`.
fn table() -> Vec<Line> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels/bugs.cpp");
    let text = std::fs::read_to_string(path).unwrap();
    let mut all = Vec::new();
    for line in text.lines().take_while(|line| line.starts_with("//")) {
        let mut words = line.trim_start_matches('/').split_whitespace();
        let Some(number) = words.next().and_then(|word| word.parse().ok()) else { continue };
        let name = words.next().expect("a name after the number");
        let rest: Vec<&str> = words.collect();
        let rest = rest.join(" ");
        let (rules, remark) = rest.split_once('(').unwrap_or((&rest, ""));
        let blocks = match remark.split_once(" blocks") {
            Some(("more", _)) => Blocks::MoreThanCores,
            Some((count, _)) => Blocks::Given(count.parse().unwrap()),
            None => Blocks::Given(1),
        };
        all.push(Line {
            number,
            name: format!("bug{number:02}_{name}"),
            rules: rules.split(" or ").map(|rule| rule.trim().to_owned()).filter(|rule| !rule.is_empty()).collect(),
            blocks,
            only_2201: remark.contains("2201"),
        });
    }
    all
}

fn run(image: &Image, kernel: &str, blocks: u32, mode: Mode, arch: Arch) -> Result<Vec<f32>, RunError> {
    let (input, mut out) = (eighths(4096, 7), vec![0.0f32; 4096]);
    let args = Args::new().input(&input).buffer(&mut out).workspace(1 << 16);
    let mut launch = image.launch(kernel).unwrap().args(args).blocks(blocks).mode(mode).chip(chip(arch)).record(false);
    launch.run()?;
    drop(launch);
    Ok(out)
}

/// The report that stops the kernel in the first order in which one does.
fn found(image: &Image, kernel: &str, blocks: u32, arch: Arch) -> Option<(Mode, Box<ascend_sim::Fault>)> {
    modes(MUTANT_SEEDS).find_map(|mode| match run(image, kernel, blocks, mode, arch) {
        Ok(_) => None,
        Err(RunError::Fault(fault)) => Some((mode, fault)),
        Err(other) => panic!("{kernel}: {other}"),
    })
}

#[test]
fn every_bug_is_found() {
    let table = table();
    for arch in ARCHS {
        let image = image(SOURCE, arch);
        let mut wrong = Vec::new();
        for line in &table {
            assert!(image.kernel(&line.name).is_some(), "{arch}: there is no {}", line.name);
            let blocks = match line.blocks {
                Blocks::Given(count) => count,
                Blocks::MoreThanCores => chip(arch).vector_cores + 1,
            };
            if line.rules.is_empty() || (line.only_2201 && arch == Arch::Dav3510) {
                run(&image, &line.name, blocks, Mode::Fast, arch).unwrap_or_else(|e| panic!("{}: {e}", line.name));
                continue;
            }
            let report = found(&image, &line.name, blocks, arch);
            if line.rules == ["result"] {
                let twin = line.name.replacen("bug", "ok", 1);
                let twin = if image.kernel(&twin).is_some() { twin } else { "ok_product".to_owned() };
                let good = run(&image, &twin, blocks, Mode::Fast, arch).unwrap();
                match run(&image, &line.name, blocks, Mode::Fast, arch) {
                    Ok(bad) => assert_ne!(bits(&bad), bits(&good), "{arch}: {} is right", line.name),
                    Err(error) => wrong.push(format!("{}: expected a wrong result, found {error}", line.name)),
                }
                continue;
            }
            match report {
                Some((mode, fault)) if line.rules.iter().any(|rule| rule == fault.rule.name()) => {
                    println!("{arch}: {} ({mode}): {fault}", line.name);
                }
                Some((mode, fault)) => wrong.push(format!("{}: expected {:?}, {mode}: {fault}", line.name, line.rules)),
                None => wrong.push(format!("{}: expected {:?}, not found", line.name, line.rules)),
            }
        }
        assert!(wrong.is_empty(), "{arch}:\n{}", wrong.join("\n"));
    }
    let mut numbers: Vec<u32> = table.iter().map(|line| line.number).collect();
    numbers.dedup();
    // 21 and 23 are no kernels: see `ascend_sim::lint`.
    let expected: Vec<u32> = (1..=24).filter(|number| ![21, 23].contains(number)).collect();
    assert_eq!(numbers, expected);
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn nothing_right_is_accused() {
    for arch in ARCHS {
        let image = image(SOURCE, arch);
        let mut count = 0;
        for kernel in image.kernels().iter().filter(|kernel| kernel.name.starts_with("ok")) {
            for mode in modes(OK_SEEDS) {
                // Four blocks where cores meet, else two.
                let blocks = match kernel.name.as_str() {
                    "ok04_tail_over_neighbour" => 2,
                    "ok12_zero_without_sync" => 4,
                    _ => 1,
                };
                let out = run(&image, &kernel.name, blocks, mode, arch);
                let out = out.unwrap_or_else(|error| panic!("{arch} {} {mode:?}: {error}", kernel.name));
                assert!(out.iter().all(|value| !value.is_nan()), "{arch} {} {mode:?}", kernel.name);
            }
            count += 1;
        }
        assert!(count >= 14, "{count}");
    }
}

#[test]
fn queues_are_used_by_their_protocol() {
    for arch in ARCHS {
        let image = image(SOURCE, arch);
        let mut count = 0;
        for kernel in image.kernels().iter().filter(|kernel| kernel.name.starts_with("queue_")) {
            let (mode, fault) = found(&image, &kernel.name, 1, arch).unwrap_or_else(|| panic!("{}", kernel.name));
            println!("{arch}: {} ({mode}): {fault}", kernel.name);
            assert_eq!(fault.rule.name(), "queue", "{arch} {}: {fault}", kernel.name);
            let site = fault.site.as_ref().unwrap();
            assert!(site.file.ends_with("bugs.cpp") && site.line > 1, "{arch} {}: {fault}", kernel.name);
            count += 1;
        }
        assert_eq!(count, 13);
    }
}

#[test]
fn capacity_reports_show_what_is_there() {
    for arch in ARCHS {
        let image = image(SOURCE, arch);
        let (_, fault) = found(&image, "bug06_ub_over_capacity", 1, arch).unwrap();
        for part in ["TQue<VECIN>", "TQue<VECOUT>", "TBuf<VECCALC>", "does not fit", "reserved", "bugs.cpp:"] {
            assert!(fault.message.contains(part), "{part} of {}", fault.message);
        }
    }
}

#[test]
fn what_is_only_slow_is_in_the_text() {
    let text = |path: &str| {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        std::fs::read_to_string(path).unwrap()
    };
    let bugs = text(SOURCE);
    let found = lint(&bugs);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].slow, Slow::PipeInObject);
    let line = bugs.lines().nth(found[0].line as usize - 1).unwrap();
    assert_eq!(line.trim(), "TPipe pipe_;");
    for kernel in ["kernels/add.cpp", "kernels/matmul.cpp", "kernels/matmul.h", "kernels/mix.cpp"] {
        assert_eq!(lint(&text(kernel)), [], "{kernel}");
    }
}
