// SPDX-License-Identifier: MIT OR Apache-2.0
//
// chips: 2201 3510
// says: ascend-sim: `SoftMax` of the AscendC API is not available on the twin

#include "kernel_operator.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void high_level_call(GM_ADDR in)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    LocalTensor<float> a(TPosition::VECCALC, 0, 16);
    SoftMax(a, a, a, a);
}
