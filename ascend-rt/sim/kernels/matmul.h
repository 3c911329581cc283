// SPDX-License-Identifier: MIT OR Apache-2.0
//
// One output tile of C[m, n] = A[m, k] B[k, n] in BF16 on a cube core, from global memory to L0C. Rows and columns need not
// be multiples of anything.
//
// Two stages of L1 hold a strip of K each, two stages of L0A and L0B a shorter strip. MTE2, MTE1 and M work on different
// stages. Every stage has one event forward ("filled") and one back ("free"); the back events are set before the first tile
// and waited for after the last.

#ifndef KERNELS_MATMUL_H
#define KERNELS_MATMUL_H

#include "kernel_operator.h"

struct MatmulTiling {
    uint32_t m, n, k;
    // Of a tile; multiples of 16. tileK goes to L1 at once, stepK to L0; stepK divides tileK.
    uint32_t tileM, tileN, tileK, stepK;
    uint32_t reserved;
};

namespace kernels {

using namespace AscendC;

constexpr uint32_t kFractal = 16; // rows and columns of a BF16 fractal
constexpr uint32_t kFractalSize = kFractal * kFractal;

__aicore__ inline uint32_t Least(uint32_t a, uint32_t b) { return a < b ? a : b; }
__aicore__ inline uint32_t Ceil(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

class MatmulTile {
public:
    __aicore__ inline MatmulTile() {}

    __aicore__ inline void Init(GM_ADDR a, GM_ADDR b, const MatmulTiling &t)
    {
        t_ = t;
        a_.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(a), static_cast<uint64_t>(t.m) * t.k);
        b_.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(b), static_cast<uint64_t>(t.k) * t.n);
        uint32_t sizeA = t.tileM * t.tileK, sizeB = t.tileK * t.tileN;
        for (uint32_t s = 0; s < 2; s++) {
            l1a_[s] = LocalTensor<bfloat16_t>(TPosition::A1, s * sizeA * sizeof(bfloat16_t), sizeA);
            l1b_[s] = LocalTensor<bfloat16_t>(TPosition::B1, (2 * sizeA + s * sizeB) * sizeof(bfloat16_t), sizeB);
            l0a_[s] = LocalTensor<bfloat16_t>(TPosition::A2, s * t.tileM * t.stepK * sizeof(bfloat16_t), t.tileM * t.stepK);
            l0b_[s] = LocalTensor<bfloat16_t>(TPosition::B2, s * t.stepK * t.tileN * sizeof(bfloat16_t), t.stepK * t.tileN);
        }
        l0c_ = LocalTensor<float>(TPosition::CO1, 0, t.tileM * t.tileN);
    }

    // Before the first tile: all stages are free.
    __aicore__ inline void Begin()
    {
        SetFlag<HardEvent::MTE1_MTE2>(EVENT_ID0);
        SetFlag<HardEvent::MTE1_MTE2>(EVENT_ID1);
        SetFlag<HardEvent::M_MTE1>(EVENT_ID0);
        SetFlag<HardEvent::M_MTE1>(EVENT_ID1);
        SetFlag<HardEvent::FIX_M>(EVENT_ID0);
    }
    // After the last tile.
    __aicore__ inline void End()
    {
        WaitFlag<HardEvent::MTE1_MTE2>(EVENT_ID0);
        WaitFlag<HardEvent::MTE1_MTE2>(EVENT_ID1);
        WaitFlag<HardEvent::M_MTE1>(EVENT_ID0);
        WaitFlag<HardEvent::M_MTE1>(EVENT_ID1);
        WaitFlag<HardEvent::FIX_M>(EVENT_ID0);
    }

    // Leaves rows [m0, m0 + m) and columns [n0, n0 + n) of the product in L0C, for the Fixpipe of the caller, who calls
    // Taken after it.
    __aicore__ inline LocalTensor<float> Compute(uint32_t m0, uint32_t m, uint32_t n0, uint32_t n)
    {
        WaitFlag<HardEvent::FIX_M>(EVENT_ID0);
        for (uint32_t k0 = 0; k0 < t_.k; k0 += t_.tileK) {
            uint32_t k = Least(t_.tileK, t_.k - k0);
            WaitFlag<HardEvent::MTE1_MTE2>(stage_);
            LoadL1(l1a_[stage_], a_[static_cast<uint64_t>(m0) * t_.k + k0], m, k, t_.k);
            LoadL1(l1b_[stage_], b_[static_cast<uint64_t>(k0) * t_.n + n0], k, n, t_.n);
            SetFlag<HardEvent::MTE2_MTE1>(stage_);

            WaitFlag<HardEvent::MTE2_MTE1>(stage_);
            for (uint32_t s = 0; s < k; s += t_.stepK) {
                uint32_t step = Least(t_.stepK, k - s);
                WaitFlag<HardEvent::M_MTE1>(half_);
                LoadA(l0a_[half_], l1a_[stage_], m, s, step);
                LoadB(l0b_[half_], l1b_[stage_], k, n, s, step);
                SetFlag<HardEvent::MTE1_M>(half_);

                WaitFlag<HardEvent::MTE1_M>(half_);
                MmadParams p;
                // One row alone would be taken for a vector; the row after it is not stored.
                p.m = m == 1 ? kFractal : m;
                p.n = n;
                p.k = step;
                p.cmatrixInitVal = k0 == 0 && s == 0;
                Mmad(l0c_, l0a_[half_], l0b_[half_], p);
                if (Ceil(m, kFractal) * Ceil(n, kFractal) < 10) {
                    // So small a product does not fill the pipeline: the next one could read sums that are still on their way.
                    PipeBarrier<PIPE_M>();
                }
                SetFlag<HardEvent::M_MTE1>(half_);
                half_ = 1 - half_;
            }
            SetFlag<HardEvent::MTE1_MTE2>(stage_);
            stage_ = 1 - stage_;
        }
        SetFlag<HardEvent::M_FIX>(EVENT_ID0);
        WaitFlag<HardEvent::M_FIX>(EVENT_ID0);
        return l0c_;
    }
    __aicore__ inline void Taken() { SetFlag<HardEvent::FIX_M>(EVENT_ID0); }

private:
    // Rows of `pitch` elements in global memory to fractals column by column. Rows up to the next multiple of 16 stay what
    // they were: they end in rows of C that are not stored, or meet no k.
    __aicore__ inline void LoadL1(const LocalTensor<bfloat16_t> &to, const GlobalTensor<bfloat16_t> &from, uint32_t rows,
                                  uint32_t columns, uint32_t pitch)
    {
        Nd2NzParams p;
        p.ndNum = 1;
        p.nValue = rows;
        p.dValue = columns;
        p.srcNdMatrixStride = 0;
        p.srcDValue = pitch;
        p.dstNzC0Stride = Ceil(rows, kFractal) * kFractal;
        p.dstNzNStride = 1;
        p.dstNzMatrixStride = 0;
        DataCopy(to, from, p);
    }

#if __NPU_ARCH__ == 3510
    __aicore__ inline void LoadA(const LocalTensor<bfloat16_t> &to, const LocalTensor<bfloat16_t> &from, uint32_t m, uint32_t s,
                                 uint32_t step)
    {
        LoadData2DParamsV2 p;
        p.mStartPosition = 0;
        p.kStartPosition = s / kFractal;
        p.mStep = Ceil(m, kFractal);
        p.kStep = Ceil(step, kFractal);
        p.srcStride = Ceil(m, kFractal);
        p.dstStride = Ceil(m, kFractal);
        p.ifTranspose = false;
        LoadData(to, from, p);
    }
    __aicore__ inline void LoadB(const LocalTensor<bfloat16_t> &to, const LocalTensor<bfloat16_t> &from, uint32_t k, uint32_t n,
                                 uint32_t s, uint32_t step)
    {
        // In L1 the rows of B are k: they take the part of m.
        LoadData2DParamsV2 p;
        p.mStartPosition = s / kFractal;
        p.kStartPosition = 0;
        p.mStep = Ceil(step, kFractal);
        p.kStep = Ceil(n, kFractal);
        p.srcStride = Ceil(k, kFractal);
        p.dstStride = Ceil(n, kFractal);
        p.ifTranspose = true;
        LoadData(to, from, p);
    }
#else
    __aicore__ inline void LoadA(const LocalTensor<bfloat16_t> &to, const LocalTensor<bfloat16_t> &from, uint32_t m, uint32_t s,
                                 uint32_t step)
    {
        uint32_t rows = Ceil(m, kFractal), columns = Ceil(step, kFractal);
        LoadData2DParams p;
        p.repeatTimes = columns;
        p.srcStride = rows;
        p.dstGap = 0;
        p.ifTranspose = false;
        for (uint32_t i = 0; i < rows; i++) {
            LoadData(to[i * columns * kFractalSize], from[(s / kFractal * rows + i) * kFractalSize], p);
        }
    }
    __aicore__ inline void LoadB(const LocalTensor<bfloat16_t> &to, const LocalTensor<bfloat16_t> &from, uint32_t k, uint32_t n,
                                 uint32_t s, uint32_t step)
    {
        uint32_t rows = Ceil(k, kFractal), columns = Ceil(n, kFractal);
        LoadData2DParams p;
        p.repeatTimes = columns;
        p.srcStride = rows;
        p.dstGap = 0;
        p.ifTranspose = true;
        for (uint32_t i = 0; i < Ceil(step, kFractal); i++) {
            LoadData(to[i * columns * kFractalSize], from[(s / kFractal + i) * kFractalSize], p);
        }
    }
#endif

    MatmulTiling t_;
    GlobalTensor<bfloat16_t> a_, b_;
    LocalTensor<bfloat16_t> l1a_[2], l1b_[2], l0a_[2], l0b_[2];
    LocalTensor<float> l0c_;
    int32_t stage_ = 0; // of L1
    int32_t half_ = 0; // of L0A and L0B
};

} // namespace kernels

#endif
