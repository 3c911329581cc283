// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is decided on the host before a launch.

use crate::fixture::dims;
use grouped_gemm::ascend_rt::Arch;
use grouped_gemm::npu::{GroupedGemmTiling, Layout, Split, Tiles};
use grouped_gemm::{Activation, Error};
use op_testkit::{fields_of, tiling};
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

fn split(tiles: &Tiles, arch: Arch) -> Result<Split, Error> {
    Split::new(&dims(256, 3072, 1536, Activation::Silu), 2048, Layout::Nz, tiles, arch, 20)
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
