// SPDX-License-Identifier: MIT OR Apache-2.0
//
// chips: 2201 3510
// says: Exp does not take this element type

#include "kernel_operator.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void bf16_exp(GM_ADDR in)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    LocalTensor<bfloat16_t> a(TPosition::VECCALC, 0, 16);
    Exp(a, a, 16);
}
