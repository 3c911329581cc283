// SPDX-License-Identifier: MIT OR Apache-2.0
//
// MXFP8 grouped product and what finishes it, in one launch: the products of all experts' rows go to the workspace, and,
// behind one barrier of all cores, times their logits, to the rows of the output. Which core has what is worked out on
// the device from the group list, so the host need not know it.
//
//   x1 [rows][k], x2 [experts][n][k] or [experts][k][n]  FP8      pertoken_scale, scale  E8M0, in pairs along K
//   group_list [experts], row_index [rows]  INT64                 logit [rows]  F32, or null
//   shared_input [shared_rows][n]  BF16, or null                  out [batch][n]  F32, added to
//   status: a line of 16 words for each vector core, the first one with the bits of common.h

#include "kernel_operator.h"

#include "tiling.h"

#include "common.h"
#if __NPU_ARCH__ == 3510
#include "arch_3510.h"
#else
#include "arch_2201.h"
#endif
#include "cube.h"
#include "vector.h"

extern "C" __global__ __aicore__ void gmm_finalize_routing(GM_ADDR x1, GM_ADDR pertoken_scale, GM_ADDR x2, GM_ADDR scale,
                                                           GM_ADDR group_list, GM_ADDR row_index, GM_ADDR logit,
                                                           GM_ADDR shared_input, GM_ADDR out, GM_ADDR status,
                                                           GM_ADDR workspace, GM_ADDR tiling)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
    finalize::Arguments a;
    a.x1 = x1;
    a.pertokenScale = pertoken_scale;
    a.x2 = x2;
    a.scale = scale;
    a.groupList = group_list;
    a.rowIndex = row_index;
    a.logit = logit;
    a.sharedInput = shared_input;
    a.out = out;
    a.status = status;
    a.workspace = workspace;
    finalize::ReadTiling(a.t, tiling);
    a.cores = static_cast<uint32_t>(AscendC::GetBlockNum());
    if ASCEND_IS_AIC {
        a.core = static_cast<uint32_t>(AscendC::GetBlockIdx());
        finalize::arch::RunCube<finalize::Cube>(a);
    }
    if ASCEND_IS_AIV {
        a.core = static_cast<uint32_t>(AscendC::GetBlockIdx()) / 2;
        finalize::Vector vector;
        vector.Run(a);
    }
}
