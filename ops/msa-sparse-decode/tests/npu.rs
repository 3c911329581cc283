// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is decided on the host before a launch.

use cpu_tiles::Precision;
use msa_sparse_decode::npu::{CacheLayout, Kind, MsaSparseDecodeTiling, Split, Tiles, split_queries};
use msa_sparse_decode::{DecodeDims, Error};
use op_testkit::{fields_of, fill_f32, tiling};

#[test]
fn kernel_and_host_lay_the_tiling_out_alike() {
    let host = fields_of!(MsaSparseDecodeTiling {
        heads: u32,
        kv_heads: u32,
        head_dim: u32,
        block: u32,
        row_tiles: u32,
        items: u32,
        topk: u32,
        per_head: u32,
        capacity: u32,
        has_table: u32,
        terms: u32,
        out_f32: u32,
        pass_slots: u32,
        tasks: u32,
        merge_rows: u32,
        scale: f32,
        kv_batch_pitch: u64,
        kv_head_pitch: u64,
        kv_page_pitch: u64,
        term_pitch: u64,
        pages: u64,
        ws_scores: u64,
        ws_weights: u64,
        ws_parts: u64,
    });
    assert_eq!(tiling::fields(include_str!("../kernel/tiling.h"), "MsaSparseDecodeTiling").unwrap(), host);
}

fn kind(batch: usize, top_k: usize) -> Kind {
    let cache = CacheLayout::Paged { blocks: 512 };
    Kind { batch, top_k, per_kv_head: true, cache, precision: Precision::Bf16, out_f32: false }
}

#[test]
fn items_are_cut_where_cores_would_idle() {
    let of = |batch, top_k| Split::new(&DecodeDims::M3, &kind(batch, top_k), 20).unwrap();
    // Four items on twenty cores: three or four slots each, five cores for an item, and a merge.
    let one = of(1, 16);
    assert_eq!((one.blocks, one.tiling.items, one.tiling.tasks), (20, 4, 1));
    assert_eq!(one.tiling.merge_rows, 2);
    // Twenty items: one each.
    let five = of(5, 16);
    assert_eq!((five.blocks, five.tiling.tasks, five.tiling.merge_rows), (20, 1, 0));
    // A few slots are not worth all cores.
    assert_eq!(of(1, 4).blocks, 6);
    // A list of no slots is one of padding.
    assert_eq!((of(1, 0).blocks, of(1, 0).tiling.topk), (2, 1));
    assert_eq!((of(0, 16).blocks, of(0, 16).workspace), (0, 0));
    // Longer lists take several tasks.
    let dense = of(1, 512);
    assert_eq!((dense.blocks, dense.tiling.tasks), (20, 7));
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |dims: DecodeDims, kind: Kind| match Split::new(&dims, &kind, 20) {
        Err(Error::DeviceSize { what, most, found }) => (what, most, found),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(DecodeDims::new(4, 2, 257, 16), kind(1, 16)), ("channels of a head", 256, 257));
    assert_eq!(refused(DecodeDims::new(4, 2, 16, 257), kind(1, 16)), ("keys of a block", 256, 257));
    let page = "elements of a page, with both sizes rounded up to 16";
    assert_eq!(refused(DecodeDims::new(4, 2, 250, 65), kind(1, 16)), (page, 16384, 256 * 80));
    let (what, ..) = refused(DecodeDims::M3, kind(1 << 24, 16));
    assert_eq!(what, "slots of all lists");
    let endless = Kind { cache: CacheLayout::Plain { blocks: usize::MAX }, ..kind(1, 16) };
    assert_eq!(refused(DecodeDims::M3, endless).0, "keys of a sequence");
}

#[test]
fn tiles_are_what_the_knob_asks_for_or_refused() {
    let of = |precision, keys| {
        let kind = Kind { precision, ..kind(1, 16) };
        Split::with_tiles(&DecodeDims::M3, &kind, 20, &Tiles { keys }).map(|split| split.tiling.pass_slots)
    };
    assert_eq!(of(Precision::Bf16, None).unwrap(), 16);
    assert_eq!(of(Precision::Bf16, Some(512)).unwrap(), 4);
    assert_eq!(of(Precision::F32, Some(640)).unwrap(), 5);
    let message = |precision, keys| of(precision, Some(keys)).unwrap_err().to_string();
    let of_scores = "bytes of the unified buffer, for scores of 8 rows, expected at most";
    assert_eq!(message(Precision::Bf16, 4096), format!("MSA_NTILE asks for 131072 {of_scores} 65536"));
    assert_eq!(message(Precision::F32, 768), format!("MSA_NTILE asks for 24576 {of_scores} 20480"));
    let expected = "environment variable MSA_NTILE is `100`, expected a positive multiple of 128, the keys of a block";
    assert_eq!(message(Precision::Bf16, 100), expected);
}

#[test]
fn three_terms_are_a_query() {
    let mut values = fill_f32(3, 4000, 7.0);
    values.extend([0.0, -0.0, 1.0e-30, 3.0e38, f32::INFINITY, f32::NEG_INFINITY]);
    let terms = split_queries(&values);
    for (i, value) in values.iter().enumerate() {
        let sum = (0..3).rev().map(|term| terms[term * values.len() + i].to_f32()).sum::<f32>();
        assert_eq!(sum, *value, "value {i}");
    }
    assert!(split_queries(&[f32::NAN]).iter().any(|term| term.is_nan()));
}
