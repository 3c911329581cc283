// SPDX-License-Identifier: MIT OR Apache-2.0
//
// C[m, n] = A[m, k] B[k, n]: BF16 in, F32 sums, BF16 or F32 out, all row-major. The cores take tiles of C in turn.

#include "matmul.h"

using namespace AscendC;

namespace {

template <class T>
__aicore__ inline void Store(const GlobalTensor<T> &to, const LocalTensor<float> &from, uint32_t m, uint32_t n, uint32_t pitch)
{
#if __NPU_ARCH__ == 3510
    FixpipeParamsArch3510<CO2Layout::ROW_MAJOR> p;
    p.params.ndNum = 1;
    p.params.srcNdStride = 0;
    p.params.dstNdStride = 0;
#else
    FixpipeParamsV220 p;
    p.ndNum = 1;
    p.srcNdStride = 0;
    p.dstNdStride = 0;
#endif
    p.nSize = n;
    p.mSize = m;
    p.srcStride = kernels::Ceil(m, kernels::kFractal) * kernels::kFractal;
    p.dstStride = pitch;
    if (Std::is_same<T, bfloat16_t>::value) {
        p.quantPre = QuantMode_t::F322BF16;
    } else {
        p.quantPre = QuantMode_t::NoQuant;
    }
    Fixpipe<T, float, CFG_ROW_MAJOR>(to, from, p);
}

template <class T> __aicore__ inline void Run(GM_ADDR a, GM_ADDR b, GM_ADDR c, GM_ADDR tiling)
{
    MatmulTiling t;
    GlobalTensor<uint32_t> words;
    words.SetGlobalBuffer(reinterpret_cast<__gm__ uint32_t *>(tiling), sizeof(MatmulTiling) / sizeof(uint32_t));
    t.m = words.GetValue(0);
    t.n = words.GetValue(1);
    t.k = words.GetValue(2);
    t.tileM = words.GetValue(3);
    t.tileN = words.GetValue(4);
    t.tileK = words.GetValue(5);
    t.stepK = words.GetValue(6);

    GlobalTensor<T> out;
    out.SetGlobalBuffer(reinterpret_cast<__gm__ T *>(c), static_cast<uint64_t>(t.m) * t.n);
    kernels::MatmulTile tile;
    tile.Init(a, b, t);
    uint32_t columns = kernels::Ceil(t.n, t.tileN);
    uint32_t tiles = kernels::Ceil(t.m, t.tileM) * columns;
    tile.Begin();
    for (uint32_t i = static_cast<uint32_t>(GetBlockIdx()); i < tiles; i += static_cast<uint32_t>(GetBlockNum())) {
        uint32_t m0 = i / columns * t.tileM, n0 = i % columns * t.tileN;
        uint32_t m = kernels::Least(t.tileM, t.m - m0), n = kernels::Least(t.tileN, t.n - n0);
        LocalTensor<float> sums = tile.Compute(m0, m, n0, n);
        Store<T>(out[static_cast<uint64_t>(m0) * t.n + n0], sums, m, n, t.n);
        tile.Taken();
    }
    tile.End();
}

} // namespace

extern "C" __global__ __aicore__ void matmul_bf16(GM_ADDR a, GM_ADDR b, GM_ADDR c, GM_ADDR tiling)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
    Run<bfloat16_t>(a, b, c, tiling);
}

extern "C" __global__ __aicore__ void matmul_f32(GM_ADDR a, GM_ADDR b, GM_ADDR c, GM_ADDR tiling)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
    Run<float>(a, b, c, tiling);
}
