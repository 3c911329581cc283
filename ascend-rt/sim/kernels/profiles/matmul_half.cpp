// SPDX-License-Identifier: MIT OR Apache-2.0
//
// C[m, n] = A[m, k] B[n, k]' for halves, all row-major, with the tiles of a published profile: sums of a base tile stay in
// L0C over all of K; several steps of K go to L1 in one copy ("packet"), B's in shorter packets than A's; L1 and L0 hold two
// of each; the unit flag hands L0C to Fixpipe piece by piece.
//
// m and n are multiples of the base tile, single tiles too (the last column of them may be cut off); k is a multiple of
// A's and B's packets.

#include "kernel_operator.h"

using namespace AscendC;

namespace {

#if __NPU_ARCH__ == 3510
constexpr uint32_t kBaseM = 256, kStepsA = 4;
#else
constexpr uint32_t kBaseM = 128, kStepsA = 8;
#endif
constexpr uint32_t kBaseN = 256, kBaseK = 64, kStepsB = 4;
constexpr uint32_t kPacketA = kBaseM * kBaseK * kStepsA, kPacketB = kBaseN * kBaseK * kStepsB; // elements
constexpr uint32_t kFractal = 16;

class HalfMatmul {
public:
    __aicore__ inline HalfMatmul() {}

    __aicore__ inline void Init(GM_ADDR a, GM_ADDR b, GM_ADDR c, uint32_t m, uint32_t n, uint32_t k)
    {
        n_ = n;
        k_ = k;
        a_.SetGlobalBuffer(reinterpret_cast<__gm__ half *>(a), static_cast<uint64_t>(m) * k);
        b_.SetGlobalBuffer(reinterpret_cast<__gm__ half *>(b), static_cast<uint64_t>(n) * k);
        c_.SetGlobalBuffer(reinterpret_cast<__gm__ half *>(c), static_cast<uint64_t>(m) * n);
        for (uint32_t i = 0; i < 2; i++) {
            l1a_[i] = LocalTensor<half>(TPosition::A1, i * kPacketA * sizeof(half), kPacketA);
            l1b_[i] = LocalTensor<half>(TPosition::B1, (2 * kPacketA + i * kPacketB) * sizeof(half), kPacketB);
            l0a_[i] = LocalTensor<half>(TPosition::A2, i * kBaseM * kBaseK * sizeof(half), kBaseM * kBaseK);
            l0b_[i] = LocalTensor<half>(TPosition::B2, i * kBaseN * kBaseK * sizeof(half), kBaseN * kBaseK);
        }
        l0c_ = LocalTensor<float>(TPosition::CO1, 0, kBaseM * kBaseN);
    }

    // Events of L1: 0 and 1 for A's packets, 2 and 3 for B's.
    __aicore__ inline void Begin()
    {
        for (int32_t i = 0; i < 4; i++) {
            SetFlag<HardEvent::MTE1_MTE2>(i);
        }
        SetFlag<HardEvent::M_MTE1>(EVENT_ID0);
        SetFlag<HardEvent::M_MTE1>(EVENT_ID1);
    }
    __aicore__ inline void End()
    {
        for (int32_t i = 0; i < 4; i++) {
            WaitFlag<HardEvent::MTE1_MTE2>(i);
        }
        WaitFlag<HardEvent::M_MTE1>(EVENT_ID0);
        WaitFlag<HardEvent::M_MTE1>(EVENT_ID1);
    }

    __aicore__ inline void Tile(uint32_t m0, uint32_t n0)
    {
        uint32_t steps = k_ / kBaseK;
        nextA_ = 0;
        nextB_ = 0;
        FetchA(m0);
        FetchB(n0);
        for (uint32_t s = 0; s < steps; s++) {
            uint32_t ofA = s % kStepsA, ofB = s % kStepsB;
            int32_t stageA = static_cast<int32_t>(s / kStepsA % 2), stageB = static_cast<int32_t>(s / kStepsB % 2);
            WaitFlag<HardEvent::M_MTE1>(half_);
            if (ofA == 0) {
                WaitFlag<HardEvent::MTE2_MTE1>(stageA);
            }
            if (ofB == 0) {
                WaitFlag<HardEvent::MTE2_MTE1>(2 + stageB);
            }
            LoadA(l0a_[half_], l1a_[stageA][ofA * kBaseM * kBaseK]);
            LoadB(l0b_[half_], l1b_[stageB][ofB * kBaseN * kBaseK]);
            if (ofA + 1 == kStepsA) {
                SetFlag<HardEvent::MTE1_MTE2>(stageA);
            }
            if (ofB + 1 == kStepsB) {
                SetFlag<HardEvent::MTE1_MTE2>(2 + stageB);
            }
            SetFlag<HardEvent::MTE1_M>(half_);

            WaitFlag<HardEvent::MTE1_M>(half_);
            MmadParams p;
            p.m = kBaseM;
            p.n = kBaseN;
            p.k = kBaseK;
            p.cmatrixInitVal = s == 0;
            p.unitFlag = s + 1 == steps ? 3 : 2;
            Mmad(l0c_, l0a_[half_], l0b_[half_], p);
            SetFlag<HardEvent::M_MTE1>(half_);
            half_ ^= 1;

            // B is needed sooner than A.
            if ((s == 0 || ofB + 1 == kStepsB) && nextB_ < steps) {
                FetchB(n0);
            }
            if ((s == 0 || ofA + 1 == kStepsA) && nextA_ < steps) {
                FetchA(m0);
            }
        }
        Store(m0, n0);
    }

private:
    // `rows` rows of a packet, from global memory to columns of fractals.
    __aicore__ inline void Fetch(const LocalTensor<half> &to, const GlobalTensor<half> &from, uint32_t rows, uint32_t columns)
    {
        Nd2NzParams p;
        p.ndNum = 1;
        p.nValue = rows;
        p.dValue = columns;
        p.srcNdMatrixStride = 0;
        p.srcDValue = k_;
        p.dstNzC0Stride = rows;
        p.dstNzNStride = 1;
        p.dstNzMatrixStride = 0;
        DataCopy(to, from, p);
    }
    __aicore__ inline void FetchA(uint32_t m0)
    {
        int32_t stage = static_cast<int32_t>(nextA_ / kStepsA % 2);
        WaitFlag<HardEvent::MTE1_MTE2>(stage);
        Fetch(l1a_[stage], a_[static_cast<uint64_t>(m0) * k_ + nextA_ * kBaseK], kBaseM, kStepsA * kBaseK);
        SetFlag<HardEvent::MTE2_MTE1>(stage);
        nextA_ += kStepsA;
    }
    __aicore__ inline void FetchB(uint32_t n0)
    {
        int32_t stage = static_cast<int32_t>(nextB_ / kStepsB % 2);
        WaitFlag<HardEvent::MTE1_MTE2>(2 + stage);
        Fetch(l1b_[stage], b_[static_cast<uint64_t>(n0) * k_ + nextB_ * kBaseK], kBaseN, kStepsB * kBaseK);
        SetFlag<HardEvent::MTE2_MTE1>(2 + stage);
        nextB_ += kStepsB;
    }

#if __NPU_ARCH__ == 3510
    __aicore__ inline void Load(const LocalTensor<half> &to, const LocalTensor<half> &from, uint32_t rows)
    {
        LoadData2DParamsV2 p;
        p.mStartPosition = 0;
        p.kStartPosition = 0;
        p.mStep = rows / kFractal;
        p.kStep = kBaseK / kFractal;
        p.srcStride = rows / kFractal;
        p.dstStride = rows / kFractal;
        p.ifTranspose = false;
        LoadData(to, from, p);
    }
    __aicore__ inline void LoadA(const LocalTensor<half> &to, const LocalTensor<half> &from) { Load(to, from, kBaseM); }
    __aicore__ inline void LoadB(const LocalTensor<half> &to, const LocalTensor<half> &from) { Load(to, from, kBaseN); }
#else
    // The tile as a picture one pixel high: one instruction instead of one for each row of fractals.
    __aicore__ inline void LoadA(const LocalTensor<half> &to, const LocalTensor<half> &from)
    {
        LoadData3DParamsV2<half> p;
        p.l1H = 1;
        p.l1W = kBaseM;
        p.channelSize = kBaseK;
        p.kExtension = kBaseK;
        p.mExtension = kBaseM;
        p.kStartPt = 0;
        p.mStartPt = 0;
        LoadData(to, from, p);
    }
    __aicore__ inline void LoadB(const LocalTensor<half> &to, const LocalTensor<half> &from)
    {
        LoadData2DParams p;
        p.repeatTimes = kBaseN / kFractal;
        p.srcStride = 1;
        p.dstGap = 0;
        p.ifTranspose = false;
        for (uint32_t i = 0; i < kBaseK / kFractal; i++) {
            LoadData(to[i * kBaseN * kFractal], from[i * kBaseN * kFractal], p);
        }
    }
#endif

    __aicore__ inline void Store(uint32_t m0, uint32_t n0)
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
        p.nSize = kBaseN;
        p.mSize = kBaseM;
        p.srcStride = kBaseM;
        p.dstStride = n_;
        p.quantPre = QuantMode_t::F322F16;
        p.unitFlag = 3;
        Fixpipe<half, float, CFG_ROW_MAJOR>(c_[static_cast<uint64_t>(m0) * n_ + n0], l0c_, p);
    }

    GlobalTensor<half> a_, b_, c_;
    LocalTensor<half> l1a_[2], l1b_[2], l0a_[2], l0b_[2];
    LocalTensor<float> l0c_;
    uint32_t n_ = 0, k_ = 0;
    uint32_t nextA_ = 0, nextB_ = 0; // steps of K that are fetched or under way
    int32_t half_ = 0; // of L0A and L0B
};

} // namespace

// A core has a single tile of singleM * singleN in each of `rounds` rounds; cores next to each other share columns of C.
// With more rounds, fewer rows of A are in use at a time, and B stays in the L2 cache.
extern "C" __global__ __aicore__ void matmul_half(GM_ADDR a, GM_ADDR b, GM_ADDR c, uint32_t m, uint32_t n, uint32_t k, uint32_t singleM,
                                                  uint32_t singleN, uint32_t rounds)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
    SetMMRowMajor();
    HalfMatmul op;
    op.Init(a, b, c, m, n, k);
    op.Begin();
    uint32_t down = m / (singleM * rounds);
    uint32_t core = static_cast<uint32_t>(GetBlockIdx());
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t top = (core % down + round * down) * singleM, left = core / down * singleN;
        uint32_t right = left + singleN < n ? left + singleN : n;
        for (uint32_t n0 = left; n0 < right; n0 += kBaseN) {
            for (uint32_t m0 = top; m0 < top + singleM; m0 += kBaseM) {
                op.Tile(m0, n0);
            }
        }
    }
    op.End();
}
