// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is decided on the host before a launch.

use msa_main_branch::knobs::Dtype;
use msa_main_branch::npu::{Kind, Layout, Lists, MsaMainBranchTiling, Split, Tiles, slots_of};
use msa_main_branch::{AttentionDims, Error};
use op_testkit::{fields_of, tiling};

#[test]
fn kernel_and_host_lay_the_tiling_out_alike() {
    let host = fields_of!(MsaMainBranchTiling {
        n: u32,
        start: u32,
        heads: u32,
        kv_heads: u32,
        head_dim: u32,
        block: u32,
        dtype: u32,
        has_lists: u32,
        list_queries: u32,
        list_heads: u32,
        topk: u32,
        has_table: u32,
        tile_queries: u32,
        list_tiles: u32,
        items: u32,
        pass_slots: u32,
        scale: f32,
        has_mask: u32,
        mask_slots: u32,
        reserved: u32,
        kv_row_pitch: u64,
        kv_head_pitch: u64,
        kv_page_pitch: u64,
        pages: u64,
        ws_scores: u64,
        ws_weights: u64,
        ws_parts: u64,
    });
    assert_eq!(tiling::fields(include_str!("../kernel/tiling.h"), "MsaMainBranchTiling").unwrap(), host);
}

fn kind(n: usize, lists: Lists) -> Kind {
    Kind { n, dtype: Dtype::Bf16, layout: Layout::Plain, lists, topk: 16 }
}

#[test]
fn a_tile_has_the_queries_that_share_a_list_and_fit() {
    let of = |kind: Kind| Split::new(&AttentionDims::M3, &kind, 20).unwrap();
    // Eight queries of sixteen heads are 128 rows.
    let shared = of(kind(4096, Lists::Shared));
    assert_eq!((shared.tiling.tile_queries, shared.tiling.items, shared.blocks), (8, 2048, 20));
    assert_eq!(shared.tiling.pass_slots, 4);
    assert_eq!(of(Kind { dtype: Dtype::F32, ..kind(4096, Lists::Shared) }).tiling.pass_slots, 2);
    // Thirteen queries: a tile of eight and one of five.
    let tiles = of(kind(100, Lists::PerTileAndHead { tile: 13 }));
    assert_eq!((tiles.tiling.tile_queries, tiles.tiling.list_tiles, tiles.tiling.items), (8, 2, 8 * 2 * 4));
    let single = of(kind(100, Lists::PerQuery));
    assert_eq!((single.tiling.tile_queries, single.tiling.items), (1, 400));
    // A tile of more queries than there are is one of all.
    assert_eq!(of(kind(3, Lists::PerTile { tile: usize::MAX })).tiling.list_queries, 3);
    assert_eq!(of(kind(0, Lists::All)).blocks, 0);
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |dims: AttentionDims, kind: Kind| match Split::new(&dims, &kind, 20) {
        Err(Error::DeviceSize { what, most, found }) => (what, most, found),
        other => panic!("{other:?}"),
    };
    let dims = AttentionDims::M3;
    let one = kind(1, Lists::All);
    assert_eq!(refused(AttentionDims { head_dim: 129, ..dims }, one), ("channels of a head", 128, 129));
    assert_eq!(refused(AttentionDims { block: 129, ..dims }, one), ("keys of a block", 128, 129));
    assert_eq!(refused(AttentionDims { heads: 129, kv_heads: 1, ..dims }, one), ("query heads of a KV head", 128, 129));
    assert_eq!(refused(AttentionDims { heads: 512, ..dims }, one), ("values of a query", 65535, 65536));
    assert_eq!(refused(dims, kind((1 << 30) + 1, Lists::All)), ("queries", 1 << 30, (1 << 30) + 1));
    assert!(matches!(
        Split::new(&dims, &kind(1, Lists::PerTile { tile: 0 }), 20),
        Err(Error::ZeroSize { field: "tile" })
    ));
}

#[test]
fn tiles_are_what_knobs_ask_for_or_refused() {
    let dims = AttentionDims::M3;
    let of = |dtype, keys, queries| {
        let kind = Kind { dtype, ..kind(4096, Lists::Shared) };
        Split::with_tiles(&dims, &kind, 20, &Tiles { keys, queries })
            .map(|split| (split.tiling.pass_slots, split.tiling.tile_queries))
    };
    assert_eq!(of(Dtype::Bf16, Some(256), Some(3)).unwrap(), (2, 3));
    assert_eq!(of(Dtype::F32, Some(256), Some(128)).unwrap(), (2, 8));
    let message = |dtype, keys| of(dtype, Some(keys), None).unwrap_err().to_string();
    let of_scores = "bytes of the unified buffer, for scores of 16 rows, expected at most";
    assert_eq!(message(Dtype::Bf16, 1024), format!("MSA_NTILE asks for 65536 {of_scores} 32768"));
    assert_eq!(message(Dtype::F32, 512), format!("MSA_NTILE asks for 32768 {of_scores} 16384"));
    let expected = "environment variable MSA_NTILE is `200`, expected a positive multiple of 128, the keys of a block";
    assert_eq!(message(Dtype::F16, 200), expected);
    let message = of(Dtype::Bf16, None, Some(0)).unwrap_err().to_string();
    assert_eq!(message, "environment variable MSA_NQ_TILE is `0`, expected a positive whole number");
    let masked = Split::masked(&dims, 300, Dtype::Bf16, 16, 20, &Tiles { keys: Some(128), queries: None }).unwrap();
    assert_eq!((masked.tiling.pass_slots, masked.tiling.has_mask, masked.tiling.mask_slots), (1, 1, 16));
}

#[test]
fn slots_are_found_by_block() {
    assert_eq!(slots_of(&[3, 0, -1, 9], 5), [1, -1, -1, 0, -1]);
}
