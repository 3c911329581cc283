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
    uint32_t ring_pitch; // bytes from one core's slots to the next core's
    uint32_t ring_slot; // bytes of a slot
    uint32_t ring_slots;
    uint32_t experts;
    uint32_t hidden;
    uint32_t intermediate;
    uint32_t rows;
    uint32_t activation; // 0 silu, 1 swigluoai
    uint32_t layout; // 0 flat, 1 nz
    uint32_t unit; // blocks of 16 columns that one core's share is a multiple of
    uint32_t columns1; // of the first product's tile where an expert has many rows: gate and up together
    uint32_t depth1; // of a stage of it, along K
    uint32_t columns2;
    uint32_t depth2;
    uint32_t vector_elements; // most elements of one slice of the activation
    uint32_t stream; // 1: the second cache keeps no weights
    float alpha;
    float limit;
};

#endif
