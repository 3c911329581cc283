// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What differs on dav-2201 (A2, A3): the left operand lies row by row in L0A, vector instructions that depend on each
// other need a barrier, and cube and vector cores meet in device memory alone.

#ifndef GROUPED_GEMM_ARCH_2201_H
#define GROUPED_GEMM_ARCH_2201_H

#include "common.h"

namespace moe {
namespace arch {

constexpr uint32_t kL1Bytes = 512 * 1024 - 256;
constexpr uint32_t kL0CBytes = 128 * 1024;
constexpr uint32_t kUbBytes = 184 * 1024 - 256;

// Rows [rows16 * 16] x columns [steps * 16], the fractals of `from` column by column, `rows16` in each.
__aicore__ inline void LoadLeft(const LocalTensor<bfloat16_t> &to, const LocalTensor<bfloat16_t> &from, uint32_t rows16,
                                uint32_t step, uint32_t steps)
{
    for (uint32_t i = 0; i < rows16; i++) {
        LoadData2DParams p;
        p.startIndex = static_cast<uint16_t>(step * rows16 + i);
        p.repeatTimes = static_cast<uint8_t>(steps);
        p.srcStride = static_cast<uint16_t>(rows16);
        LoadData(to[i * steps * kFractal], from, p);
    }
}

// Columns [blocks * 16] x depth [steps * 16], the fractals of `from` block by block, `depth16` in each.
__aicore__ inline void LoadRight(const LocalTensor<bfloat16_t> &to, const LocalTensor<bfloat16_t> &from, uint32_t blocks,
                                 uint32_t depth16, uint32_t step, uint32_t steps, bool transpose)
{
    for (uint32_t j = 0; j < steps; j++) {
        LoadData2DParams p;
        p.startIndex = static_cast<uint16_t>(step + j);
        p.repeatTimes = static_cast<uint8_t>(blocks);
        p.srcStride = static_cast<uint16_t>(depth16);
        p.ifTranspose = transpose;
        LoadData(to[j * blocks * kFractal], from, p);
    }
}

__aicore__ inline void VectorBarrier() { PipeBarrier<PIPE_V>(); }

} // namespace arch
} // namespace moe

#endif
