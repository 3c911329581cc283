// SPDX-License-Identifier: MIT OR Apache-2.0

//! The kernel itself on few cores of the twin: more tiles for each than its buffers hold, unequal work, rows beyond the
//! groups, bad input that only the device sees, and each of its synchronisations left out once.

use crate::device::{Order, bits, context, launch};
use crate::fixture::{Call, DTYPES, TOLERANCE, scales};
use ascend_sim::cost::{self, simulate};
use ascend_sim::testing::{argument_blocks, image, snapshot};
use ascend_sim::{Args, Chip, Launch, Mode, mutants};
use cpu_tiles::E8M0;
use gmm_finalize_routing::ascend_rt::Arch;
use gmm_finalize_routing::npu::{FinalizeTiling, Options, Plan, Split, blobs, twin_origin};
use gmm_finalize_routing::{Dims, Dtype, ascend_sim};
use half::bf16;
use op_testkit::compare::assert_close;
use std::collections::BTreeSet;

const ARCHS: [Arch; 2] = [Arch::DAV_2201, Arch::DAV_3510];

/// A launch on so many blocks, which `run` gets. It keeps its record where it is for a certain chip.
fn on<R>(
    arch: Arch,
    chip: Option<Chip>,
    call: &Call,
    options: Options,
    cores: u32,
    mode: Mode,
    run: impl FnOnce(&mut Launch<'_>) -> R,
) -> (R, Vec<f32>, u32) {
    let split = Split::new(&call.dims, call.rows() as u32, &options, arch, cores).unwrap();
    let shared = call.shared_input.as_ref();
    let tiling = FinalizeTiling {
        batch: call.batch() as u32,
        has_logit: u32::from(call.logit.is_some()),
        shared_offset: shared.map_or(0, |shared| shared.offset as u32),
        shared_rows: shared.map_or(0, |shared| (shared.values.len() / call.dims.n) as u32),
        shared_weight: shared.map_or(0.0, |shared| shared.weight),
        ..split.tiling
    };
    let bytes = |scales: &[E8M0]| scales.iter().map(|scale| scale.to_bits()).collect::<Vec<_>>();
    let (x1, x2) = (call.x1.bytes(), call.x2.bytes());
    let (pertoken_scale, scale) = (bytes(&call.pertoken_scale), bytes(&call.scale));
    let logit = call.logit.clone().unwrap_or_default();
    let shared: Vec<u16> =
        shared.map_or_else(Vec::new, |shared| shared.values.iter().map(|value: &bf16| value.to_bits()).collect());
    let (mut out, mut status) = (call.out.clone(), vec![0u32; split.status]);
    let args = Args::new()
        .input(&x1)
        .input(&pertoken_scale)
        .input(&x2)
        .input(&scale)
        .input(&call.group_list)
        .input(&call.row_index)
        .input(&logit)
        .input(&shared)
        .buffer(&mut out)
        .buffer(&mut status)
        .workspace(split.workspace)
        .input(core::slice::from_ref(&tiling));
    let launch =
        image(blobs(), arch, twin_origin()).launch("gmm_finalize_routing").unwrap().blocks(cores).mode(mode).args(args);
    let mut launch = match chip {
        Some(chip) => launch.chip(chip),
        None => launch.record(false),
    };
    let result = run(&mut launch);
    drop(launch);
    (result, out, status.into_iter().fold(0, |all, word| all | word))
}

fn run(arch: Arch, call: &Call, options: Options, cores: u32, mode: Mode) -> (Vec<f32>, u32) {
    let (result, out, status) = on(arch, None, call, options, cores, mode, |launch| launch.run().map(|_| ()));
    if let Err(error) = result {
        panic!("{arch}, {cores} cores, {mode}: {error}");
    }
    (out, status)
}

/// Both layouts of calls with more rows than a tile, more columns than one, more of K than the stages of L1 and the ring
/// hold, an odd number of scales, and groups of very different sizes.
fn calls() -> Vec<Call> {
    let mut calls = Vec::new();
    for dtype in DTYPES {
        calls.push(Call::new(dtype, Dims { experts: 3, k: 224, n: 300 }, &[300, 17, 140], 40, 31));
        calls.push(Call::new(dtype, Dims { experts: 3, k: 224, n: 300 }, &[300, 0, 17], 40, 32).in_other_layout());
        let mut call = Call::new(dtype, Dims { experts: 2, k: 2656, n: 200 }, &[9, 20], 3, 33);
        call.per_expert = true;
        call.scale = scales(34, 2 * 200 * call.packs() * 2);
        calls.push(call.clone());
        calls.push(call.in_other_layout());
    }
    calls.push(Call::new(Dtype::E4M3, Dims { experts: 2, k: 64, n: 2100 }, &[3, 9], 5, 35));
    calls
}

#[test]
fn any_number_of_cores_gives_the_same_bits() {
    for arch in ARCHS {
        for call in calls() {
            let expected = call.expected();
            let (first, _) = run(arch, &call, call.options(), 1, Mode::Fast);
            assert_close(&arch.to_string(), &first, &expected, &call.shape(), TOLERANCE);
            for (cores, seed) in [(2, 0), (3, 1), (5, 2), (11, 3)] {
                for mode in [Mode::Fast, Mode::Chaos(seed)] {
                    let (out, status) = run(arch, &call, call.options(), cores, mode);
                    assert_eq!(bits(&out), bits(&first), "{arch} {cores} {mode}");
                    assert_eq!(status, 0);
                }
            }
        }
    }
}

#[test]
fn windows_of_rows_give_the_same_bits() {
    for arch in ARCHS {
        let call = Call::new(Dtype::E4M3, Dims { experts: 3, k: 96, n: 40 }, &[30, 17, 14], 9, 41);
        let (whole, _) = run(arch, &call, call.options(), 2, Mode::Fast);
        for window in [1, 7, 61] {
            for mode in [Mode::Fast, Mode::Chaos(window.into())] {
                let (out, _) = run(arch, &call, Options { window, ..call.options() }, 2, mode);
                assert_eq!(bits(&out), bits(&whole), "{arch} {window} {mode}");
            }
        }
    }
}

#[test]
fn atomic_adds() {
    for arch in ARCHS {
        for (logit, n) in [(true, 2100), (false, 70)] {
            let mut call = Call::new(Dtype::E5M2, Dims { experts: 3, k: 96, n }, &[5, 3, 40], 4, 51);
            call.logit = call.logit.filter(|_| logit);
            for mode in [Mode::Fast, Mode::Chaos(0), Mode::Chaos(1)] {
                let (out, _) = run(arch, &call, Options { atomic: true, ..call.options() }, 2, mode);
                assert_close(&format!("{arch} {mode}"), &out, &call.expected(), &call.shape(), TOLERANCE);
            }
        }
    }
}

/// Rows beyond the groups may hold anything, and the two kinds of lists say the same.
#[test]
fn short_groups_of_both_kinds() {
    for arch in ARCHS {
        let whole = Call::new(Dtype::E4M3, Dims { experts: 3, k: 96, n: 70 }, &[4, 0, 9], 5, 61);
        let mut call = whole.clone();
        let beyond = Call::new(Dtype::E4M3, Dims { experts: 1, k: 96, n: 70 }, &[7], 5, 62);
        call.row_index.extend([-1, i64::MAX, 5, 99, i64::MIN, 0, 1]);
        call.logit.as_mut().unwrap().extend([f32::NAN; 7]);
        call.pertoken_scale.extend(vec![E8M0::from_bits(255); beyond.pertoken_scale.len()]);
        let codes = [call.x1.bytes(), vec![0x7F; 7 * 96]].concat();
        call.x1 = crate::fixture::Fp8::of_bits(Dtype::E4M3, codes.into_iter());
        let (expected, _) = run(arch, &whole, whole.options(), 2, Mode::Fast);
        let (counts, status) = run(arch, &call, call.options(), 2, Mode::Fast);
        assert_eq!((bits(&counts), status), (bits(&expected), 0), "{arch}");
        call.group_list_type = 0;
        call.group_list = vec![4, 4, 13];
        let (ends, status) = run(arch, &call, call.options(), 2, Mode::Fast);
        assert_eq!((bits(&ends), status), (bits(&expected), 0), "{arch}");
    }
}

/// What the host cannot see: clamped or left out, and reported.
#[test]
fn bad_groups_indices_and_scales() {
    for arch in ARCHS {
        let good = Call::new(Dtype::E4M3, Dims { experts: 3, k: 64, n: 33 }, &[4, 2, 5], 5, 71);
        let mut call = good.clone();
        call.row_index[3] = 5;
        call.row_index[7] = -1;
        call.row_index[8] = 1 << 32;
        let (out, status) = run(arch, &call, call.options(), 2, Mode::Fast);
        let mut without = good.clone();
        for row in [3, 7, 8] {
            without.logit.as_mut().unwrap()[row] = 0.0;
        }
        assert_close(&arch.to_string(), &out, &without.expected(), &call.shape(), TOLERANCE);
        assert_eq!(status, 2, "{arch}");

        for (list, clamped) in [([4, 2, 1 << 40], [4, 2, 5]), ([4, -3, 7], [4, 0, 7]), ([99, 0, 1], [11, 0, 0])] {
            let mut call = good.clone();
            call.group_list = list.to_vec();
            let (out, status) = run(arch, &call, call.options(), 2, Mode::Fast);
            call.group_list = clamped.to_vec();
            assert_close(&format!("{arch} {list:?}"), &out, &call.expected(), &call.shape(), TOLERANCE);
            assert_eq!(status, 1, "{arch} {list:?}");
        }

        let mut call = good.clone();
        call.scale[5] = E8M0::from_bits(9);
        let (_, status) = run(arch, &call, call.options(), 2, Mode::Fast);
        assert_eq!(status, if arch == Arch::DAV_2201 { 8 } else { 0 }, "{arch}");
    }
}

/// NaN in a code or a scale and infinities in a code reach the outputs that use them, and no other.
#[test]
fn not_a_number() {
    for arch in ARCHS {
        for dtype in DTYPES {
            for in_other_layout in [false, true] {
                let mut call = Call::new(dtype, Dims { experts: 2, k: 96, n: 40 }, &[5, 6], 11, 81);
                if in_other_layout {
                    call = call.in_other_layout();
                }
                call.x1.set(3 * 96 + 5, 0x7F);
                call.x2.set(96 * 40 + 77, 0xFF);
                call.pertoken_scale[8 * 4 + 1] = E8M0::from_bits(255);
                if dtype == Dtype::E5M2 {
                    call.x1.set(6 * 96 + 5, 0x7C);
                }
                let expected = call.expected();
                let (out, _) = run(arch, &call, call.options(), 2, Mode::Fast);
                let largest =
                    expected.iter().filter(|value| value.is_finite()).fold(0.0f32, |most, value| most.max(value.abs()));
                for (at, (out, expected)) in out.iter().zip(&expected).enumerate() {
                    let same = out == expected || (out.is_nan() && expected.is_nan());
                    assert!(same || (out - expected).abs() <= 5e-6 * largest, "{arch} {dtype} {at}: {out} {expected}");
                }
                assert!(expected.iter().any(|value| value.is_nan()) && expected.iter().any(|value| value.is_finite()));
            }
        }
    }
}

/// Halfs where the range of scales allows them, BF16 where not, and the same bits as if always BF16.
#[test]
fn halfs_give_the_bits_of_bf16() {
    let plain = Call::new(Dtype::E4M3, Dims { experts: 3, k: 1024, n: 150 }, &[30, 0, 5], 7, 85);
    let mut outlier = plain.clone();
    outlier.pertoken_scale[77] = E8M0::from_bits(140);
    outlier.pertoken_scale[5] = E8M0::from_bits(124);
    let mut far = Call::new(Dtype::E4M3, Dims { experts: 2, k: 2048, n: 66 }, &[2, 140], 16, 86);
    far.scale.iter_mut().for_each(|scale| *scale = E8M0::from_bits(scale.to_bits() - 40));
    far.pertoken_scale.iter_mut().for_each(|scale| *scale = E8M0::from_bits(scale.to_bits() + 33));
    for (call, seed) in [(plain, 0), (outlier, 1), (far, 2)] {
        let wide = Options { always_bf16: true, ..call.options() };
        let (expected, _) = run(Arch::DAV_2201, &call, wide, 2, Mode::Fast);
        assert_close("BF16", &expected, &call.expected(), &call.shape(), TOLERANCE);
        for (cores, mode) in [(2, Mode::Fast), (3, Mode::Chaos(seed))] {
            let (out, status) = run(Arch::DAV_2201, &call, call.options(), cores, mode);
            assert_eq!((bits(&out), status), (bits(&expected), 0), "{mode}");
        }
    }
}

/// Every synchronisation of the kernel is missed when it is left out, by one of these launches.
fn every_synchronisation_is_needed(arch: Arch) {
    let seeds = ascend_sim::testing::seeds(4).count() as u64;
    let call = |dtype, [experts, k, n]: [usize; 3], counts: &[usize], batch| {
        let call = Call::new(dtype, Dims { experts, k, n }, counts, batch, 91);
        let options = call.options();
        (call, options)
    };
    let other = |(call, _): &(Call, Options)| (call.in_other_layout(), call.in_other_layout().options());
    let rows = call(Dtype::E4M3, [3, 192, 300], &[300, 17, 140], 40);
    let deep = call(Dtype::E4M3, [2, 2336, 66], &[9, 17], 16);
    let odd = call(Dtype::E5M2, [3, 224, 65], &[7, 0, 4], 5);
    let columns = call(Dtype::E4M3, [3, 64, 2100], &[5, 3, 40], 4);
    let windows = call(Dtype::E4M3, [3, 96, 40], &[30, 17, 14], 9);
    let halfs = call(Dtype::E4M3, [2, 3072, 130], &[3, 9], 4);
    let mut launches = vec![other(&rows), other(&odd)];
    launches.push((other(&rows).0, Options { always_bf16: true, ..other(&rows).1 }));
    launches.push((windows.0, Options { window: 7, ..windows.1 }));
    launches.push((columns.0.clone(), Options { atomic: true, ..columns.1 }));
    launches.push((halfs.0.clone(), Options { always_bf16: true, ..halfs.1 }));
    launches.extend([rows, deep, odd, columns, halfs]);

    let (mut found, mut missed) = (BTreeSet::new(), BTreeSet::new());
    for (call, options) in launches {
        let (all, ..) = on(arch, None, &call, options, 2, Mode::Fast, |launch| mutants(launch, seeds));
        for mutant in all.unwrap() {
            let set = if mutant.is_found() { &mut found } else { &mut missed };
            set.insert(mutant.sync.to_string());
        }
    }
    let survivors: Vec<_> = missed.difference(&found).collect();
    assert!(survivors.is_empty(), "{arch}: {survivors:#?}");
    assert!(found.len() > 60, "{arch}: {} places", found.len());
}

#[test]
fn every_synchronisation_is_needed_on_2201() {
    every_synchronisation_is_needed(Arch::DAV_2201);
}

#[test]
fn every_synchronisation_is_needed_on_3510() {
    every_synchronisation_is_needed(Arch::DAV_3510);
}

/// What arrives of a launch at a device.
#[test]
fn argument_blocks_are_as_kept() {
    let order = Order::new(Mode::Fast);
    let text: String = ["Ascend910B3", "Ascend950PR_9589"]
        .iter()
        .map(|chip| {
            argument_blocks(&order, || {
                let stream = context(chip).stream().unwrap();
                let call = Call::new(Dtype::E4M3, Dims { experts: 2, k: 96, n: 40 }, &[3, 2], 7, 5);
                let mut plan = Plan::new(&stream, &call.dims, call.rows(), call.options()).unwrap();
                launch(&stream, &mut plan, &call).unwrap();
            })
        })
        .collect();
    snapshot(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/argument_blocks.txt"), &text);
}

/// Microseconds that the cost model predicts for a launch on all cores of a chip, and the share of what its traffic and
/// instructions take at least.
fn predicted(chip: &str, call: &Call, options: Options) -> (f64, f64) {
    let chip = Chip::preset(chip).unwrap();
    let (arch, cores) = if chip.name.contains("910") { (Arch::DAV_2201, 20) } else { (Arch::DAV_3510, 32) };
    let (run, ..) = on(arch, Some(chip.clone()), call, options, cores, Mode::Fast, |launch| launch.run());
    let timeline = simulate(&run.unwrap().program, &chip, &cost::Options::default().with_launch(true)).unwrap();
    let (time, bound) = (timeline.microseconds(), timeline.bound().name());
    println!("{} {:?}: predicted {time:.1} us, bound by {bound}", chip.name, call.dims);
    (timeline.microseconds(), timeline.bound_reached())
}

/// A call whose values do not matter, of experts with as many rows each.
fn even(dims: Dims, rows: usize, batch: usize) -> Call {
    let small = Dims { k: 32, n: 1, ..dims };
    let mut call = Call::new(Dtype::E4M3, small, &vec![rows / dims.experts; dims.experts], batch, 97);
    let zeros = |count| crate::fixture::Fp8::of_bits(Dtype::E4M3, std::iter::repeat_n(0x38, count));
    (call.x1, call.x2) = (zeros(rows * dims.k), zeros(dims.experts * dims.k * dims.n));
    call.pertoken_scale = vec![E8M0::from_bits(127); rows * dims.k / 32];
    call.scale = vec![E8M0::from_bits(127); dims.n * dims.k / 32];
    call.dims = dims;
    call.out = vec![0.0; batch * dims.n];
    call.shared_input = None;
    call
}

/// What the documentation says of the forms, at an eighth of its work: every form has to keep its rate.
#[test]
fn predicted_times() {
    let call = even(Dims { experts: 4, k: 3584, n: 2048 }, 512, 64);
    let no_nan = Options { no_nan: true, ..call.options() };
    let wide = Options { always_bf16: true, ..no_nan };
    let forms = [
        ("950pr", call.options(), 38.0),
        ("910b3", no_nan, 67.0),
        ("910b3", call.options(), 74.0),
        ("910b3", wide, 114.0),
    ];
    let times = forms.map(|(chip, options, most)| (predicted(chip, &call, options).0, most));
    assert!(times.iter().all(|(time, most)| time < most), "microseconds and limits of the forms: {times:?}");
}

/// Work of a size that shows whether loads, products and stores overlap.
#[test]
fn pipes_overlap() {
    let call = even(Dims { experts: 2, k: 2048, n: 2048 }, 128, 16);
    for (chip, least) in [("950pr", 0.35), ("910b3", 0.35)] {
        let (_, share) = predicted(chip, &call, call.options());
        assert!(share > least, "{chip}: {share:.2} of the bound");
    }
}
