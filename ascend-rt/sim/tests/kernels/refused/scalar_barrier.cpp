// SPDX-License-Identifier: MIT OR Apache-2.0
//
// chips: 2201 3510
// says: PipeBarrier does not take PIPE_S

#include "kernel_operator.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void scalar_barrier(GM_ADDR in)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    PipeBarrier<PIPE_S>();
}
