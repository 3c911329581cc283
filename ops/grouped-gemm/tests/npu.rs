// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is decided on the host before a launch.

use crate::fixture::dims;
use cpu_tiles::{E8M0, F8E4M3, Overflow};
use grouped_gemm::ascend_rt::Arch;
use grouped_gemm::npu::{self, Coded, GroupedGemmTiling, Layout, Scales, Split, Tiles, convert_fp8_weights};
use grouped_gemm::{Activation, Error, MoeDims};
use half::{bf16, f16};
use op_testkit::{fields_of, fill_f32, tiling};
use std::process::Command;

#[test]
fn kernel_and_host_lay_the_tiling_out_alike() {
    let host = fields_of!(GroupedGemmTiling {
        a16: u64,
        ring: u64,
        tail: u64,
        weights: u64,
        ring_pitch: u32,
        ring_slot: u32,
        ring_slots: u32,
        experts: u32,
        hidden: u32,
        intermediate: u32,
        rows: u32,
        activation: u32,
        layout: u32,
        unit: u32,
        columns1: u32,
        depth1: u32,
        few_columns1: u32,
        few_depth1: u32,
        columns2: u32,
        depth2: u32,
        few_columns2: u32,
        few_depth2: u32,
        vector_elements: u32,
        tokens: u32,
        choices: u32,
        scale_kind: u32,
        alpha: f32,
        limit: f32,
    });
    assert_eq!(tiling::fields(include_str!("../kernel/tiling.h"), "GroupedGemmTiling").unwrap(), host);
}

const CHILD: &str = "GROUPED_GEMM_TEST_PRINTS_TILES";

/// Each environment in a process of its own: variables are shared by all threads of one.
#[test]
fn the_environment_sets_the_sizes_of_tiles() {
    if std::env::var_os(CHILD).is_some() {
        let text = match Tiles::from_env().and_then(|tiles| split(&tiles, Arch::DAV_2201)) {
            Ok(split) => format!("{} columns, {} deep", split.tiling.columns1, split.tiling.depth1),
            Err(error) => error.to_string(),
        };
        println!("tiles: {text}");
        return;
    }
    for (n, k, expected) in [
        (None, None, "256 columns, 128 deep"),
        (Some("128"), Some("64"), "128 columns, 64 deep"),
        (Some(""), Some("100"), "PYPTO_MM1_K is 100, expected a positive multiple of 64"),
        (
            None,
            Some("256"),
            "PYPTO_MM1_K is too large: L1, one stage of weights would take 131072 bytes, expected at most 65536",
        ),
    ] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "npu::the_environment_sets_the_sizes_of_tiles", "--nocapture"]).env(CHILD, "1");
        for (knob, value) in [("PYPTO_MM1_N", n), ("PYPTO_MM1_K", k)] {
            match value {
                Some(value) => child.env(knob, value),
                None => child.env_remove(knob),
            };
        }
        let output = child.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().find_map(|line| line.split_once("tiles: ")).map(|(_, line)| line);
        assert_eq!(line, Some(expected), "{n:?}, {k:?}: {text}");
    }
}

const SATURATE: Overflow = Overflow::Saturate;

fn split(tiles: &Tiles, arch: Arch) -> Result<Split, Error> {
    Split::new(&dims(256, 3072, 1536, Activation::Silu), 2048, Layout::Nz, tiles, arch, 20)
}

/// What a weight of the first block of scales is on a device that has the cube core scale it, in units of what products
/// lack: the two half numbers of its scale, and that power of two.
fn stored_scale(stored: &npu::Stored) -> Option<([f64; 2], f64)> {
    let [scales, way] = [&stored.scales13[..4], &stored.scales13[stored.scales13.len() - 32..]];
    let lacks = f64::from(f32::from_le_bytes([way[0], way[1], way[2], way[3]]));
    let half = |i: usize| f16::from_le_bytes([scales[i], scales[i + 1]]).to_f64();
    (lacks != 0.0).then_some(([half(0), half(2)], lacks))
}

/// Experts may be converted one by one, and their parts put one behind the other.
#[test]
fn all_that_belongs_to_an_expert_lies_together() {
    let three = dims(3, 40, 24, Activation::Silu);
    let codes: Vec<F8E4M3> = fill_f32(3, 3 * 960, 448.0).into_iter().map(|x| F8E4M3::from_f32(x, SATURATE)).collect();
    let groups = fill_f32(4, 80, 3.0).into_iter().map(|x| E8M0::from_bits((120.0 + x) as u8)).collect::<Vec<_>>();
    let blocks = [0.5, 1.25, 3.0];
    for arch in [Arch::DAV_2201, Arch::DAV_3510] {
        for in_groups in [true, false] {
            let coded = |which: usize, out: usize, depth: usize| Coded {
                codes: &codes[which * 960..][..960],
                scales: if in_groups {
                    Scales::Groups(&groups[..out * depth.div_ceil(32)])
                } else {
                    Scales::Blocks(&blocks[which..=which])
                },
            };
            let expert = |i: usize| [coded(i, 24, 40), coded((i + 1) % 3, 24, 40), coded((i + 2) % 3, 40, 24)];
            let all = convert_fp8_weights(&three, arch, &[0, 1, 2].map(expert)).unwrap();
            let mut joined = npu::Stored::default();
            for i in 0..3 {
                let one = convert_fp8_weights(&MoeDims { experts: 1, ..three }, arch, &[expert(i)]).unwrap();
                joined.w13.extend(one.w13);
                joined.scales13.extend(one.scales13);
                joined.w2.extend(one.w2);
                joined.scales2.extend(one.scales2);
            }
            assert!(joined == all, "{arch}, {in_groups}");
            let layout = if in_groups { Layout::Mxfp8 } else { Layout::Fp8Block };
            assert_eq!(layout.elements(&three), [all.w13.len(), all.w2.len()]);
            assert_eq!(layout.scale_bytes(&three), [all.scales13.len(), all.scales2.len()]);
        }
    }
}

#[test]
fn the_cube_core_scales_where_that_is_exact() {
    let dims = dims(1, 1, 1, Activation::Silu);
    let convert = |code: u8, scale: f32, other: f32| {
        let codes = [code, 0x38].map(|bits| [F8E4M3::from_bits(bits)]);
        let scales = [scale, other].map(|scale| [scale]);
        let coded = |i: usize| Coded { codes: &codes[i], scales: Scales::Blocks(&scales[i]) };
        convert_fp8_weights(&dims, Arch::DAV_2201, &[[coded(0), coded(1), coded(1)]]).unwrap()
    };
    let mut exact = 0;
    let scales = fill_f32(11, 500, 1.0);
    for &scale in &scales {
        let scale = scale * 1e-3;
        let Some((halves, lacks)) = stored_scale(&convert(0x38, scale, scale)) else { continue };
        exact += 1;
        for code in (0..=255).map(F8E4M3::from_bits).filter(|code| !code.to_f32().is_nan()) {
            // Codes are in units of 2^-5 there. The core may round the sum either way.
            let wanted = bf16::from_f32(code.to_f32() * scale).to_f64();
            let sum = f64::from(code.to_f32()) / 32.0 * (halves[0] + halves[1]);
            let near = sum as f32;
            let others = [near.next_down(), near, near.next_up()];
            let either = others.into_iter().filter(|x| (f64::from(*x) - sum).abs() < f64::from(near.next_up() - near));
            for sum in either {
                assert_eq!(bf16::from_f32(sum).to_f64() * lacks, wanted, "{scale}, {code:?}");
            }
        }
    }
    assert!(exact > 495, "{exact} of {} scales", scales.len());
    // NaN codes, scales that are no numbers, that make weights other than normal numbers, or that lie too far apart.
    for (code, scale, other) in [
        (0x7f, 1.0, 1.0),
        (0x38, f32::NAN, 1.0),
        (0x38, 1.0, f32::INFINITY),
        (0x38, 1e37, 1.0),
        (0x38, 1e-37, 1e-37),
        (0x38, 1e-9, 1e-9),
        (0x38, 1.0, 1.234_567e-9),
    ] {
        assert_eq!(stored_scale(&convert(code, scale, other)), None, "{code:x}, {scale}, {other}");
    }
    assert_eq!(stored_scale(&convert(0x38, 1.0, 0.0)), Some(([16384.0, 0.0], 2f64.powi(-9))));
}

#[test]
fn a_tile_beyond_a_memory_names_its_knob() {
    for arch in [Arch::DAV_2201, Arch::DAV_3510] {
        split(&Tiles::default(), arch).unwrap();
        for (tiles, knob) in [
            (Tiles { mm1_n: 512, ..Tiles::default() }, "PYPTO_MM1_N"),
            (Tiles { mm1_k: 256, ..Tiles::default() }, "PYPTO_MM1_K"),
            (Tiles { mm2_k: 256, ..Tiles::default() }, "PYPTO_MM2_K"),
            (Tiles { vector: 512, ..Tiles::default() }, "PYPTO_VEC_TILE"),
        ] {
            match split(&tiles, arch) {
                Err(Error::Budget { knob: found, bytes, capacity, .. }) => {
                    assert!(bytes > capacity);
                    assert!(found == knob || (knob == "PYPTO_MM1_N" && found == "PYPTO_MM1_K"), "{found}");
                }
                other => panic!("{tiles:?}: {other:?}"),
            }
        }
    }
    assert!(matches!(split(&Tiles { mm2_n: 40, ..Tiles::default() }, Arch::DAV_2201), Err(Error::Tile { .. })));
    assert!(matches!(split(&Tiles::default(), Arch::DAV_1001), Err(Error::Architecture { .. })));
}
