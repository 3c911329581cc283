// SPDX-License-Identifier: MIT OR Apache-2.0
//
// C[m, n] = A[m, k] B[n, k]' for four-bit floats (e2m1, two a byte) with a scale (e8m0) for each 32 of K, all row-major, C in
// BF16, with the tiles of a published profile. A and B go to L1 in packets of two steps of K, their scales in packets of
// four of those.
//
// m and n are multiples of 256, single tiles too, k of 2048.

#include "kernel_operator.h"

using namespace AscendC;

namespace {

constexpr uint32_t kBaseM = 256, kBaseN = 256, kBaseK = 256;
constexpr uint32_t kSteps = 2; // in a packet
constexpr uint32_t kScaleSteps = 4 * kSteps; // in a packet of scales
constexpr uint32_t kFractal = 16;
// Bytes.
constexpr uint32_t kPacketA = kBaseM * kBaseK * kSteps / 2, kPacketB = kBaseN * kBaseK * kSteps / 2;
constexpr uint32_t kScalesA = kBaseM * kBaseK * kScaleSteps / 32, kScalesB = kBaseN * kBaseK * kScaleSteps / 32;
constexpr uint32_t kPairs = kBaseK * kScaleSteps / 64; // of scales, in a row of their packet

class MxMatmul {
public:
    __aicore__ inline MxMatmul() {}

    __aicore__ inline void Init(GM_ADDR a, GM_ADDR b, GM_ADDR scalesA, GM_ADDR scalesB, GM_ADDR c, uint32_t m, uint32_t n, uint32_t k)
    {
        n_ = n;
        k_ = k;
        a_.SetGlobalBuffer(reinterpret_cast<__gm__ uint8_t *>(a), static_cast<uint64_t>(m) * k / 2);
        b_.SetGlobalBuffer(reinterpret_cast<__gm__ uint8_t *>(b), static_cast<uint64_t>(n) * k / 2);
        scalesA_.SetGlobalBuffer(reinterpret_cast<__gm__ half *>(scalesA), static_cast<uint64_t>(m) * k / 64);
        scalesB_.SetGlobalBuffer(reinterpret_cast<__gm__ half *>(scalesB), static_cast<uint64_t>(n) * k / 64);
        c_.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(c), static_cast<uint64_t>(m) * n);
        uint32_t at = 0;
        for (uint32_t i = 0; i < 2; i++) {
            l1a_[i] = LocalTensor<uint8_t>(TPosition::A1, at, kPacketA);
            at += kPacketA;
            l1b_[i] = LocalTensor<uint8_t>(TPosition::B1, at, kPacketB);
            at += kPacketB;
            l1sa_[i] = LocalTensor<half>(TPosition::A1, at, kScalesA / sizeof(half));
            at += kScalesA;
            l1sb_[i] = LocalTensor<half>(TPosition::B1, at, kScalesB / sizeof(half));
            at += kScalesB;
            l0a_[i] = LocalTensor<fp4x2_e2m1_t>(TPosition::A2, i * kBaseM * kBaseK / 2, kBaseM * kBaseK);
            l0b_[i] = LocalTensor<fp4x2_e2m1_t>(TPosition::B2, i * kBaseN * kBaseK / 2, kBaseN * kBaseK);
        }
        l0c_ = LocalTensor<float>(TPosition::CO1, 0, kBaseM * kBaseN);
    }

    // Events of L1: 0 and 1 for packets of A and B, 2 and 3 for those of scales.
    __aicore__ inline void Begin()
    {
        for (int32_t i = 0; i < 4; i++) {
            SetFlag<HardEvent::MTE1_MTE2>(i);
        }
        SetFlag<HardEvent::M_MTE1>(EVENT_ID0);
        SetFlag<HardEvent::M_MTE1>(EVENT_ID1);
        SetFlag<HardEvent::FIX_M>(EVENT_ID0);
    }
    __aicore__ inline void End()
    {
        for (int32_t i = 0; i < 4; i++) {
            WaitFlag<HardEvent::MTE1_MTE2>(i);
        }
        WaitFlag<HardEvent::M_MTE1>(EVENT_ID0);
        WaitFlag<HardEvent::M_MTE1>(EVENT_ID1);
        WaitFlag<HardEvent::FIX_M>(EVENT_ID0);
    }

    __aicore__ inline void Tile(uint32_t m0, uint32_t n0)
    {
        uint32_t steps = k_ / kBaseK;
        next_ = 0;
        nextScales_ = 0;
        Fetch(m0, n0);
        FetchScales(m0, n0);
        WaitFlag<HardEvent::FIX_M>(EVENT_ID0);
        for (uint32_t s = 0; s < steps; s++) {
            uint32_t of = s % kSteps, ofScales = s % kScaleSteps;
            int32_t stage = static_cast<int32_t>(s / kSteps % 2), stageScales = static_cast<int32_t>(s / kScaleSteps % 2);
            WaitFlag<HardEvent::M_MTE1>(half_);
            if (of == 0) {
                WaitFlag<HardEvent::MTE2_MTE1>(stage);
            }
            if (ofScales == 0) {
                WaitFlag<HardEvent::MTE2_MTE1>(2 + stageScales);
            }
            // A column of cells is 16 rows of two scales: step s begins at its pair of K in the first of them.
            uint32_t pair = ofScales * kBaseK / 64 * kFractal;
            Load(l0a_[half_], l1a_[stage][of * kBaseM * kBaseK / 2], l1sa_[stageScales][pair], kBaseM);
            Load(l0b_[half_], l1b_[stage][of * kBaseN * kBaseK / 2], l1sb_[stageScales][pair], kBaseN);
            if (of + 1 == kSteps) {
                SetFlag<HardEvent::MTE1_MTE2>(stage);
            }
            if (ofScales + 1 == kScaleSteps) {
                SetFlag<HardEvent::MTE1_MTE2>(2 + stageScales);
            }
            SetFlag<HardEvent::MTE1_M>(half_);

            WaitFlag<HardEvent::MTE1_M>(half_);
            MmadParams p;
            p.m = kBaseM;
            p.n = kBaseN;
            p.k = kBaseK;
            p.cmatrixInitVal = s == 0;
            MmadMx(l0c_, l0a_[half_], l0b_[half_], p);
            SetFlag<HardEvent::M_MTE1>(half_);
            half_ ^= 1;

            if ((s == 0 || ofScales + 1 == kScaleSteps) && nextScales_ < steps) {
                FetchScales(m0, n0);
            }
            if ((s == 0 || of + 1 == kSteps) && next_ < steps) {
                Fetch(m0, n0);
            }
        }
        SetFlag<HardEvent::M_FIX>(EVENT_ID0);
        WaitFlag<HardEvent::M_FIX>(EVENT_ID0);
        FixpipeParamsArch3510<CO2Layout::ROW_MAJOR> p;
        p.nSize = kBaseN;
        p.mSize = kBaseM;
        p.srcStride = kBaseM;
        p.dstStride = n_;
        p.quantPre = QuantMode_t::F322BF16;
        p.params.ndNum = 1;
        p.params.srcNdStride = 0;
        p.params.dstNdStride = 0;
        Fixpipe<bfloat16_t, float, CFG_ROW_MAJOR>(c_[static_cast<uint64_t>(m0) * n_ + n0], l0c_, p);
        SetFlag<HardEvent::FIX_M>(EVENT_ID0);
    }

private:
    __aicore__ inline void Rows(const LocalTensor<uint8_t> &to, const GlobalTensor<uint8_t> &from, uint32_t rows)
    {
        Nd2NzParams p;
        p.ndNum = 1;
        p.nValue = rows;
        p.dValue = kBaseK * kSteps / 2;
        p.srcNdMatrixStride = 0;
        p.srcDValue = k_ / 2;
        p.dstNzC0Stride = rows;
        p.dstNzNStride = 1;
        p.dstNzMatrixStride = 0;
        DataCopy(to, from, p);
    }
    __aicore__ inline void Fetch(uint32_t m0, uint32_t n0)
    {
        int32_t stage = static_cast<int32_t>(next_ / kSteps % 2);
        uint32_t column = next_ * kBaseK / 2, row = k_ / 2;
        WaitFlag<HardEvent::MTE1_MTE2>(stage);
        Rows(l1a_[stage], a_[static_cast<uint64_t>(m0) * row + column], kBaseM);
        Rows(l1b_[stage], b_[static_cast<uint64_t>(n0) * row + column], kBaseN);
        SetFlag<HardEvent::MTE2_MTE1>(stage);
        next_ += kSteps;
    }

    // Pairs of scales are what 16-bit elements are: a transposed copy makes cells of 16 rows by one pair of them.
    __aicore__ inline void Cells(const LocalTensor<half> &to, const GlobalTensor<half> &from, uint32_t rows)
    {
        Dn2NzParams p;
        p.dnNum = 1;
        p.nValue = kPairs;
        p.dValue = rows;
        p.srcDnMatrixStride = 0;
        p.srcDValue = k_ / 64;
        p.dstNzC0Stride = kPairs;
        p.dstNzNStride = 1;
        p.dstNzMatrixStride = 0;
        DataCopy(to, from, p);
    }
    __aicore__ inline void FetchScales(uint32_t m0, uint32_t n0)
    {
        int32_t stage = static_cast<int32_t>(nextScales_ / kScaleSteps % 2);
        uint32_t column = nextScales_ * kBaseK / 64, row = k_ / 64;
        WaitFlag<HardEvent::MTE1_MTE2>(2 + stage);
        Cells(l1sa_[stage], scalesA_[static_cast<uint64_t>(m0) * row + column], kBaseM);
        Cells(l1sb_[stage], scalesB_[static_cast<uint64_t>(n0) * row + column], kBaseN);
        SetFlag<HardEvent::MTE2_MTE1>(2 + stage);
        nextScales_ += kScaleSteps;
    }

    __aicore__ inline void Load(const LocalTensor<fp4x2_e2m1_t> &to, const LocalTensor<uint8_t> &from, const LocalTensor<half> &scales,
                                uint32_t rows)
    {
        LoadData2DParamsV2 p;
        p.mStartPosition = 0;
        p.kStartPosition = 0;
        p.mStep = rows / kFractal;
        p.kStep = kBaseK / 64;
        p.srcStride = rows / kFractal;
        p.dstStride = rows / kFractal;
        p.ifTranspose = false;
        LoadData2DMxParams q;
        q.xStartPosition = 0;
        q.yStartPosition = 0;
        q.xStep = rows / kFractal;
        q.yStep = kBaseK / 64;
        q.srcStride = kPairs;
        q.dstStride = kBaseK / 64;
        LoadData(to, from.ReinterpretCast<fp4x2_e2m1_t>(), scales.ReinterpretCast<fp8_e8m0_t>(), p, q);
    }

    GlobalTensor<uint8_t> a_, b_;
    GlobalTensor<half> scalesA_, scalesB_;
    GlobalTensor<bfloat16_t> c_;
    LocalTensor<uint8_t> l1a_[2], l1b_[2];
    LocalTensor<half> l1sa_[2], l1sb_[2];
    LocalTensor<fp4x2_e2m1_t> l0a_[2], l0b_[2];
    LocalTensor<float> l0c_;
    uint32_t n_ = 0, k_ = 0;
    uint32_t next_ = 0, nextScales_ = 0; // steps of K that are fetched or under way
    int32_t half_ = 0; // of L0A and L0B
};

} // namespace

// A core has a single tile of singleM * singleN; cores next to each other share columns of C.
extern "C" __global__ __aicore__ void matmul_mxfp4(GM_ADDR a, GM_ADDR b, GM_ADDR scalesA, GM_ADDR scalesB, GM_ADDR c, uint32_t m,
                                                   uint32_t n, uint32_t k, uint32_t singleM, uint32_t singleN)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
    SetMMRowMajor();
    MxMatmul op;
    op.Init(a, b, scalesA, scalesB, c, m, n, k);
    op.Begin();
    uint32_t down = m / singleM;
    uint32_t core = static_cast<uint32_t>(GetBlockIdx());
    uint32_t top = core % down * singleM, left = core / down * singleN;
    for (uint32_t n0 = left; n0 < left + singleN; n0 += kBaseN) {
        for (uint32_t m0 = top; m0 < top + singleM; m0 += kBaseM) {
            op.Tile(m0, n0);
        }
    }
    op.End();
}
