// SPDX-License-Identifier: MIT OR Apache-2.0
//
// chips: 2201
// says: this chip has no such mode of CrossCoreSetFlag

#include "kernel_operator.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void mode_4(GM_ADDR in)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    CrossCoreSetFlag<4, PIPE_V>(0);
}
