// SPDX-License-Identifier: MIT OR Apache-2.0
//
// chips: 2201 3510
// says: ascend-sim: `Matmul` of the AscendC API is not available on the twin

#include "kernel_operator.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void class_of_the_api(GM_ADDR in)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Matmul<float, float, float> mm;
    (void)mm;
}
