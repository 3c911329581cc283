// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the host tells the kernel beside its buffers. `src/tiling.rs` has the same struct; a test compares the two.

#ifndef GROUPED_GEMM_TILING_H
#define GROUPED_GEMM_TILING_H

#include <stdint.h>

struct GroupedGemmTiling {
    uint64_t a16; // offsets in the workspace, bytes: activations, [rows][16 * ceil(intermediate / 16)] BF16
    uint64_t ring; // slots of F32 tiles
    uint64_t tail; // [rows][16] BF16: the last columns of the result where hidden is no multiple of 16
    uint64_t weights; // stages of weights on their way to L1, 4 of 66 KB for each core (910B with FP8 weights)
    uint32_t ring_pitch; // bytes from one core's slots to the next core's
    uint32_t ring_slot; // bytes of a slot
    uint32_t ring_slots;
    uint32_t experts;
    uint32_t hidden;
    uint32_t intermediate;
    uint32_t rows;
    uint32_t activation; // 0 silu, 1 swigluoai
    uint32_t layout; // 0 flat, 1 nz, 2 FP8
    uint32_t unit; // blocks of 16 columns that one core's share is a multiple of
    uint32_t columns1; // of the first product's tile where an expert has many rows: gate and up together
    uint32_t depth1; // of a stage of it, along K
    uint32_t few_columns1; // the same where it has few
    uint32_t few_depth1;
    uint32_t columns2;
    uint32_t depth2;
    uint32_t few_columns2;
    uint32_t few_depth2;
    uint32_t vector_elements; // most elements of one slice of the activation
    uint32_t tokens; // of the combined result
    uint32_t choices; // rows of each token
    uint32_t scale_kind; // of FP8 weights: 0 F32 for 128 x 128, 1 a power of two for 32 of K
    float alpha;
    float limit;
};

#endif
