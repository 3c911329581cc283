// SPDX-License-Identifier: MIT OR Apache-2.0
//
// chips: 2201
// says: Add does not take this element type on dav-2201

#include "kernel_operator.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void bf16_add(GM_ADDR in)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    LocalTensor<bfloat16_t> a(TPosition::VECCALC, 0, 16);
    Add(a, a, a, 16);
}
