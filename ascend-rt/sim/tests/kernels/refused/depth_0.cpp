// SPDX-License-Identifier: MIT OR Apache-2.0
//
// chips: 2201 3510
// says: AllocTensor() is for queues of a depth of 1 or more; with depth 0 use AllocTensor(tensor)

#include "kernel_operator.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void depth_0(GM_ADDR in)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    TQue<TPosition::VECIN, 0> q;
    pipe.InitBuffer(q, 1, 1024);
    LocalTensor<float> a = q.AllocTensor<float>();
}
