// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is decided on the host before a launch.

use msa_indexer::npu::{Kind, MsaIndexerTiling, Split};
use msa_indexer::{Error, HeadReduce, IndexerDims};
use op_testkit::{fields_of, tiling};

#[test]
fn kernel_and_host_lay_the_tiling_out_alike() {
    let host = fields_of!(MsaIndexerTiling {
        ws_products: u64,
        ws_heads: u64,
        queries: u32,
        heads: u32,
        head_dim: u32,
        block: u32,
        capacity: u32,
        top_k: u32,
        init_blocks: u32,
        local_blocks: u32,
        shared: u32,
        has_table: u32,
        tile_queries: u32,
        group_blocks: u32,
        pages: u32,
        want_scores: u32,
        dtype: u32,
        reserved: u32,
    });
    assert_eq!(tiling::fields(include_str!("../kernel/tiling.h"), "MsaIndexerTiling").unwrap(), host);
}

#[test]
fn tiles_fill_the_rows_and_groups_the_columns() {
    let of = |dims: &IndexerDims, queries| {
        let split = Split::new(dims, &Kind { queries, blocks: 512, paged: true }, 20).unwrap();
        (split.tiling.tile_queries, split.tiling.group_blocks)
    };
    // Decode: 4 rows, 512 keys. Prefill: 128 rows, one block.
    assert_eq!(of(&IndexerDims::M3, 1), (1, 4));
    assert_eq!(of(&IndexerDims::M3, 4096), (32, 1));
    // Wide blocks leave room for fewer rows.
    assert_eq!(of(&IndexerDims { block: 256, head_dim: 64, ..IndexerDims::M3 }, 4096), (16, 1));
    let none = Split::new(&IndexerDims::M3, &Kind { queries: 0, blocks: 0, paged: false }, 20).unwrap();
    assert_eq!((none.blocks, none.workspace), (0, 0));
}

#[test]
fn forced_blocks_fit_the_selection() {
    let dims = IndexerDims { topk: 4, init_blocks: 3, local_blocks: 9, reduce: HeadReduce::Shared, ..IndexerDims::M3 };
    let tiling = Split::new(&dims, &Kind { queries: 1, blocks: 9, paged: true }, 20).unwrap().tiling;
    assert_eq!((tiling.init_blocks, tiling.local_blocks, tiling.shared), (3, 1, 1));
}

#[test]
fn what_does_not_fit_is_refused() {
    let kind = Kind { queries: 1, blocks: 20, paged: true };
    let refused = |dims: IndexerDims, kind: Kind| match Split::new(&dims, &kind, 20) {
        Err(Error::DeviceSize { what, most, found }) => (what, most, found),
        other => panic!("{other:?}"),
    };
    let m3 = IndexerDims::M3;
    assert_eq!(refused(IndexerDims { heads: 17, ..m3 }, kind), ("index heads", 16, 17));
    assert_eq!(refused(IndexerDims { topk: 65, ..m3 }, kind), ("blocks that are selected", 64, 65));
    assert_eq!(refused(IndexerDims { head_dim: 257, ..m3 }, kind), ("values of a head", 256, 257));
    assert_eq!(refused(IndexerDims { block: 257, ..m3 }, kind), ("keys of a block", 256, 257));
    assert_eq!(refused(m3, Kind { blocks: 4097, ..kind }), ("blocks of the sequence", 4096, 4097));
    let (what, ..) = refused(IndexerDims { block: 200, ..m3 }, kind);
    assert_eq!(what, "elements of a block, with both sizes rounded up to 16");
    let many = Split::new(&m3, &Kind { queries: 2561, ..kind }, 20);
    assert!(matches!(many, Err(Error::QueryBeyondLength { queries: 2561, length: 2560, .. })), "{many:?}");
}
