// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the host tells the kernel. `src/tiling.rs` has the same fields in the same order, and says how they come about.

#ifndef MSA_MAIN_BRANCH_TILING_H
#define MSA_MAIN_BRANCH_TILING_H

#include <stdint.h>

struct MsaMainBranchTiling {
    // Sizes.
    uint32_t n; // queries
    uint32_t start; // position of the first
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t block;
    uint32_t dtype; // 0: BF16, 1: F16, 2: F32
    // Lists.
    uint32_t has_lists; // 0: every block
    uint32_t list_queries; // that share lists
    uint32_t list_heads; // lists of such a tile: 1, or one for each KV head
    uint32_t topk; // entries of a list
    uint32_t has_table;
    // Split.
    uint32_t tile_queries; // of an item, at most
    uint32_t list_tiles; // items of a KV head that share a list, at most
    uint32_t items;
    uint32_t pass_slots; // slots of a task, at most
    float scale;
    uint32_t has_mask; // 1: every query sees every slot as far as the mask lets it, whatever its position
    uint32_t mask_slots;
    uint32_t reserved;
    // Elements between neighbours of keys and of values, and how many pages there are.
    uint64_t kv_row_pitch;
    uint64_t kv_head_pitch;
    uint64_t kv_page_pitch;
    uint64_t pages;
    // Bytes from the start of the workspace.
    uint64_t ws_scores;
    uint64_t ws_weights;
    uint64_t ws_parts;
};

#endif
