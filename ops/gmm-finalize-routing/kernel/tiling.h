// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the host tells the kernel beside its buffers. `src/tiling.rs` has the same struct; a test compares the two.

#ifndef GMM_FINALIZE_ROUTING_TILING_H
#define GMM_FINALIZE_ROUTING_TILING_H

#include <stdint.h>

struct FinalizeTiling {
    uint64_t products; // offsets in the workspace, bytes: [rows][pitch] F32
    uint64_t x; // 2201: [rows][k] BF16, the activations dequantised
    uint64_t ring; // 2201: slots of dequantised weights
    uint64_t ranges; // 2201: what each vector core finds of the range of scales
    uint64_t decisions; // what comes of it, for each cube core
    uint64_t x_tail; // 3510, odd k / 32: the last pairs of scales, with 1 for the unused one, [rows]
    uint64_t w_tail; // the same of the weights, [experts or 1][n]
    uint32_t ring_pitch; // bytes from one core's slots to the next core's
    uint32_t rows;
    uint32_t k;
    uint32_t n;
    uint32_t pitch; // n, rounded up to 16
    uint32_t experts;
    uint32_t batch;
    uint32_t e5m2; // 0: E4M3
    uint32_t transposed; // 1: weights [experts][n][k], 0: [experts][k][n]
    uint32_t counts; // 1: the group list holds counts, 0: running ends
    uint32_t scale_per_expert;
    uint32_t has_logit;
    uint32_t shared_offset;
    uint32_t shared_rows; // 0: there is no shared input
    uint32_t atomic; // 1: rows are added as they come, 0: in ascending order
    uint32_t window; // rows that are sorted at a time, at most 8192
    uint32_t stream; // 1: the second cache keeps no weights
    uint32_t clean; // 1: no code is a NaN (2201, E4M3)
    float shared_weight;
    uint32_t wide; // 1: operands are BF16 in any case (2201)
};

#endif
