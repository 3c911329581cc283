// SPDX-License-Identifier: MIT OR Apache-2.0
//
// chips: 2201 3510
// says: ascend-sim: `Conv2D` of the AscendC API is not available on the twin

#include "kernel_operator.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void basic_call(GM_ADDR in)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    LocalTensor<half> a(TPosition::A1, 0, 16);
    Conv2D(a, a, a, 3, 4);
}
