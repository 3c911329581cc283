// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the host tells the kernel beside its buffers. `src/tiling.rs` has the same struct; a test compares the two.

#ifndef MSA_INDEXER_TILING_H
#define MSA_INDEXER_TILING_H

#include <stdint.h>

struct MsaIndexerTiling {
    uint64_t ws_products; // offsets in the workspace, bytes: products of queries and keys on their way
    uint64_t ws_heads; // block scores of each head, where heads share a selection
    uint32_t queries;
    uint32_t heads;
    uint32_t head_dim;
    uint32_t block;
    uint32_t capacity; // blocks of the sequence, at most
    uint32_t top_k;
    uint32_t init_blocks; // forced ones, which fit top_k together
    uint32_t local_blocks;
    uint32_t shared; // 1: one selection for all heads
    uint32_t has_table;
    uint32_t tile_queries; // of a tile
    uint32_t group_blocks; // blocks that are worked on at once
    uint32_t pages; // there are; a launch says it
    uint32_t want_scores; // 1: somebody reads the scores of queries that see no more than top_k; a launch says it
    uint32_t dtype; // 0: BF16, 1: F32
    uint32_t reserved;
};

#endif
