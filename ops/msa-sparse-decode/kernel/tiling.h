// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the host tells the kernel. `src/tiling.rs` has the same fields in the same order, and says how they come about.

#ifndef MSA_SPARSE_DECODE_TILING_H
#define MSA_SPARSE_DECODE_TILING_H

#include <stdint.h>

struct MsaSparseDecodeTiling {
    // Sizes. Rows are the query heads of a KV head.
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t block;
    uint32_t row_tiles; // of a KV head, at most 16 rows each
    uint32_t items; // batch entries x KV heads x row tiles
    uint32_t topk; // slots of a list, at least 1
    uint32_t per_head; // 1: a list for each KV head, 0: one for all
    uint32_t capacity; // blocks of a sequence
    uint32_t has_table;
    uint32_t terms; // BF16 numbers that make up a query element and a probability: 1, or 3 in exact mode
    uint32_t out_f32;
    // Split.
    uint32_t pass_slots; // slots of a task
    uint32_t tasks; // of a core, at most
    uint32_t merge_rows; // of a unit of the merge; 0: every item is one task, and there is nothing to merge
    float scale;
    // Elements between neighbours, and how many pages there are.
    uint64_t kv_batch_pitch;
    uint64_t kv_head_pitch;
    uint64_t kv_page_pitch;
    uint64_t term_pitch; // of queries
    uint64_t pages;
    // Bytes from the start of the workspace.
    uint64_t ws_scores;
    uint64_t ws_weights;
    uint64_t ws_parts;
};

#endif
