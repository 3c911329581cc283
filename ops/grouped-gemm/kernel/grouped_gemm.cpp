// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The feed-forward network of all experts in one launch. First the products with gate and up and the activation of all
// experts, then, behind one barrier of all cores, the products with down. Which core has what is worked out on the
// device from `cumsum`, so the host need not know it.
//
//   x [rows][hidden], w13, w2, out [rows][hidden]  BF16    cumsum [experts + 1]  INT32
//   slots [tokens][choices]  INT32, rows of `out`    scales [tokens][choices], combined [tokens][hidden]  F32
//   status [16]: bit 0 of the first word is set where `cumsum` had to be clamped

#include "kernel_operator.h"

#include "tiling.h"

#include "common.h"
#if __NPU_ARCH__ == 3510
#include "arch_3510.h"
#else
#include "arch_2201.h"
#endif
#include "cube.h"
#include "dequant.h"
#include "vector.h"

namespace moe {

__aicore__ inline void Run(Arguments &a, GM_ADDR tiling)
{
    ReadTiling(a.t, tiling);
    a.cores = static_cast<uint32_t>(GetBlockNum());
    if ASCEND_IS_AIC {
        a.core = static_cast<uint32_t>(GetBlockIdx());
        Cube cube;
        cube.Run(a);
    }
    if ASCEND_IS_AIV {
        a.core = static_cast<uint32_t>(GetBlockIdx()) / 2;
        Vector vector;
        vector.Run(a);
    }
}

} // namespace moe

extern "C" __global__ __aicore__ void grouped_gemm(GM_ADDR x, GM_ADDR w13, GM_ADDR w2, GM_ADDR cumsum, GM_ADDR out,
                                                   GM_ADDR status, GM_ADDR workspace, GM_ADDR tiling)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
    moe::Arguments a = {};
    a.x = x;
    a.w13 = w13;
    a.w2 = w2;
    a.cumsum = cumsum;
    a.out = out;
    a.status = status;
    a.workspace = workspace;
    moe::Run(a, tiling);
}

// The same, and then for each token the sum of its rows of `out`, times their scales.
extern "C" __global__ __aicore__ void grouped_gemm_combine(GM_ADDR x, GM_ADDR w13, GM_ADDR w2, GM_ADDR cumsum, GM_ADDR slots,
                                                           GM_ADDR scales, GM_ADDR out, GM_ADDR combined, GM_ADDR status,
                                                           GM_ADDR workspace, GM_ADDR tiling)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
    moe::Arguments a = {};
    a.x = x;
    a.w13 = w13;
    a.w2 = w2;
    a.cumsum = cumsum;
    a.out = out;
    a.status = status;
    a.workspace = workspace;
    a.slots = slots;
    a.scales = scales;
    a.combined = combined;
    moe::Run(a, tiling);
}

// The first with FP8 weights: codes in `w13` and `w2`, and their scales.
extern "C" __global__ __aicore__ void grouped_gemm_fp8(GM_ADDR x, GM_ADDR w13, GM_ADDR scales13, GM_ADDR w2, GM_ADDR scales2,
                                                       GM_ADDR cumsum, GM_ADDR out, GM_ADDR status, GM_ADDR workspace,
                                                       GM_ADDR tiling)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
    moe::Arguments a = {};
    a.x = x;
    a.w13 = w13;
    a.w2 = w2;
    a.cumsum = cumsum;
    a.out = out;
    a.status = status;
    a.workspace = workspace;
    a.scales13 = scales13;
    a.scales2 = scales2;
    moe::Run(a, tiling);
}

// FP8 weights, and the sums.
extern "C" __global__ __aicore__ void grouped_gemm_fp8_combine(GM_ADDR x, GM_ADDR w13, GM_ADDR scales13, GM_ADDR w2,
                                                               GM_ADDR scales2, GM_ADDR cumsum, GM_ADDR slots, GM_ADDR scales,
                                                               GM_ADDR out, GM_ADDR combined, GM_ADDR status, GM_ADDR workspace,
                                                               GM_ADDR tiling)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
    moe::Arguments a = {};
    a.x = x;
    a.w13 = w13;
    a.w2 = w2;
    a.cumsum = cumsum;
    a.out = out;
    a.status = status;
    a.workspace = workspace;
    a.slots = slots;
    a.scales = scales;
    a.combined = combined;
    a.scales13 = scales13;
    a.scales2 = scales2;
    moe::Run(a, tiling);
}
