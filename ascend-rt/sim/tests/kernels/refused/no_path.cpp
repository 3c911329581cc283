// SPDX-License-Identifier: MIT OR Apache-2.0
//
// chips: 2201 3510
// says: a queue between these positions has no path on this chip

#include "kernel_operator.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void no_path(GM_ADDR in)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TQueBind<TPosition::CO1, TPosition::VECIN, 1> q;
    (void)q;
}
