// SPDX-License-Identifier: MIT OR Apache-2.0
//
// y = gelu(x w[g] * scale[g] * token) for the rows of each group g: int8 in, F32 scales for columns and rows, F16 out, with
// the tiles and the three steps of a published profile: one vector core beside each cube core and one slot for products
// between them; two vector cores; a ring of four slots.
//
// x [rows, 1024] is row-major, each group's w [1024, n] lies in columns of 32 (NZ), scale is [groups, n]. Groups have
// multiples of kBaseM rows, n is a multiple of 1024. Tiles of all groups are counted through and taken by the cores in turn.

#include "kernel_operator.h"

using namespace AscendC;

namespace {

#if __NPU_ARCH__ == 3510
constexpr uint32_t kBaseM = 256;
constexpr bool kBarriers = false; // dependent vector instructions are ordered by themselves
#else
constexpr uint32_t kBaseM = 128;
constexpr bool kBarriers = true;
#endif
constexpr uint32_t kK = 1024, kBaseN = 256, kBaseK = 128, kSingleN = 1024;
constexpr uint32_t kSteps = kK / kBaseK;
// A's rows stay in L1 for a single tile, in parts of K that are replaced one by one. B comes in packets.
constexpr uint32_t kStepsA = 2, kPartsA = kSteps / kStepsA, kPartA = kBaseM * kBaseK * kStepsA;
constexpr uint32_t kStepsB = 4, kPacketK = kStepsB * kBaseK, kPacketB = kPacketK * kBaseN;
constexpr uint32_t kColumn = 32; // bytes of a fractal's row
constexpr uint32_t kSlot = kBaseM * kBaseN;
constexpr uint32_t kRows = 24; // that a vector core works on at a time
constexpr uint16_t kFull = 5, kEmpty = 3;

// What a core has to do, in order.
class Work {
public:
    __aicore__ inline Work(GM_ADDR groups, uint32_t count, uint32_t n, uint32_t core, uint32_t cores)
        : count_(count), across_(n / kSingleN), cores_(cores), next_(core)
    {
        groups_.SetGlobalBuffer(reinterpret_cast<__gm__ int64_t *>(groups), count);
        DataCacheCleanAndInvalid<int64_t, CacheLine::ENTIRE_DATA_CACHE, DcciDst::CACHELINE_OUT>(groups_);
        rows_ = static_cast<uint32_t>(groups_.GetValue(0));
    }
    // False at the end.
    __aicore__ inline bool Take()
    {
        while (group < count_ && next_ >= first_ + rows_ / kBaseM * across_) {
            first_ += rows_ / kBaseM * across_;
            top_ += rows_;
            group++;
            rows_ = group < count_ ? static_cast<uint32_t>(groups_.GetValue(group)) : 0;
        }
        if (group == count_) {
            return false;
        }
        m0 = top_ + (next_ - first_) / across_ * kBaseM;
        n0 = (next_ - first_) % across_ * kSingleN;
        next_ += cores_;
        return true;
    }

    uint32_t group = 0, m0 = 0, n0 = 0;

private:
    GlobalTensor<int64_t> groups_;
    uint32_t count_, across_, cores_, next_;
    uint32_t first_ = 0, top_ = 0, rows_ = 0; // of the group: its first tile, row, how many rows
};

template <uint32_t Depth> class Cube {
public:
    __aicore__ inline Cube() {}

    __aicore__ inline void Run(GM_ADDR x, GM_ADDR w, GM_ADDR ring, Work &work, uint32_t n, uint32_t core, uint32_t cores)
    {
        x_.SetGlobalBuffer(reinterpret_cast<__gm__ int8_t *>(x));
        w_.SetGlobalBuffer(reinterpret_cast<__gm__ int8_t *>(w));
        ring_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t *>(ring));
        for (uint32_t i = 0; i < kPartsA; i++) {
            l1a_[i] = LocalTensor<int8_t>(TPosition::A1, i * kPartA, kPartA);
            SetFlag<HardEvent::MTE1_MTE2>(static_cast<int32_t>(i));
        }
        for (uint32_t i = 0; i < 2; i++) {
            l1b_[i] = LocalTensor<int8_t>(TPosition::B1, kPartsA * kPartA + i * kPacketB, kPacketB);
            l0a_[i] = LocalTensor<int8_t>(TPosition::A2, i * kBaseM * kBaseK, kBaseM * kBaseK);
            l0b_[i] = LocalTensor<int8_t>(TPosition::B2, i * kBaseN * kBaseK, kBaseN * kBaseK);
            SetFlag<HardEvent::MTE1_MTE2>(static_cast<int32_t>(kPartsA + i));
            SetFlag<HardEvent::M_MTE1>(static_cast<int32_t>(i));
        }
        l0c_ = LocalTensor<int32_t>(TPosition::CO1, 0, kSlot);

        uint32_t task = 0;
        while (work.Take()) {
            for (uint32_t at = 0; at < kSingleN; at += kBaseN, task++) {
                uint64_t weights = static_cast<uint64_t>(work.group) * kK * n + static_cast<uint64_t>(work.n0 + at) * kK;
                Product(work.m0, weights, at == 0, at + kBaseN == kSingleN);
                if (task >= Depth) {
                    CrossCoreWaitFlag<2, PIPE_FIX>(kEmpty);
                }
                Store(static_cast<uint64_t>(core + task % Depth * cores) * kSlot);
                CrossCoreSetFlag<2, PIPE_FIX>(kFull);
            }
        }
        for (uint32_t i = 0; i < (task < Depth ? task : Depth); i++) {
            CrossCoreWaitFlag<2, PIPE_FIX>(kEmpty);
        }
        for (uint32_t i = 0; i < kPartsA + 2; i++) {
            WaitFlag<HardEvent::MTE1_MTE2>(static_cast<int32_t>(i));
        }
        WaitFlag<HardEvent::M_MTE1>(EVENT_ID0);
        WaitFlag<HardEvent::M_MTE1>(EVENT_ID1);
    }

private:
    __aicore__ inline void Product(uint32_t m0, uint64_t weights, bool first, bool last)
    {
        FetchB(weights, 0);
        for (uint32_t s = 0; s < kSteps; s++) {
            int32_t part = static_cast<int32_t>(s / kStepsA), packet = static_cast<int32_t>(s / kStepsB % 2);
            if (s % kStepsA == 0 && first) {
                WaitFlag<HardEvent::MTE1_MTE2>(part);
                FetchA(m0, static_cast<uint32_t>(part));
                SetFlag<HardEvent::MTE2_MTE1>(part);
            }
            if (s % kStepsB == 0 && s + kStepsB < kSteps) {
                FetchB(weights, s / kStepsB + 1);
            }
            WaitFlag<HardEvent::M_MTE1>(half_);
            if (s % kStepsA == 0 && first) {
                WaitFlag<HardEvent::MTE2_MTE1>(part);
            }
            if (s % kStepsB == 0) {
                WaitFlag<HardEvent::MTE2_MTE1>(static_cast<int32_t>(kPartsA) + packet);
            }
            LoadA(l0a_[half_], l1a_[part][s % kStepsA * kBaseK * kBaseM]);
            LoadB(l0b_[half_], l1b_[packet], s % kStepsB * kBaseK);
            if (s % kStepsA + 1 == kStepsA && last) {
                SetFlag<HardEvent::MTE1_MTE2>(part);
            }
            if (s % kStepsB + 1 == kStepsB) {
                SetFlag<HardEvent::MTE1_MTE2>(static_cast<int32_t>(kPartsA) + packet);
            }
            SetFlag<HardEvent::MTE1_M>(half_);

            WaitFlag<HardEvent::MTE1_M>(half_);
            MmadParams p;
            p.m = kBaseM;
            p.n = kBaseN;
            p.k = kBaseK;
            p.cmatrixInitVal = s == 0;
            p.unitFlag = s + 1 == kSteps ? 3 : 2;
            Mmad(l0c_, l0a_[half_], l0b_[half_], p);
            SetFlag<HardEvent::M_MTE1>(half_);
            half_ ^= 1;
        }
    }

    __aicore__ inline void FetchA(uint32_t m0, uint32_t part)
    {
        Nd2NzParams p;
        p.ndNum = 1;
        p.nValue = kBaseM;
        p.dValue = kStepsA * kBaseK;
        p.srcNdMatrixStride = 0;
        p.srcDValue = kK;
        p.dstNzC0Stride = kBaseM;
        p.dstNzNStride = 1;
        p.dstNzMatrixStride = 0;
        DataCopy(l1a_[part], x_[static_cast<uint64_t>(m0) * kK + part * kStepsA * kBaseK], p);
    }
    // Rows of K from each column of 32 bytes.
    __aicore__ inline void FetchB(uint64_t weights, uint32_t packet)
    {
        int32_t stage = static_cast<int32_t>(packet % 2), event = static_cast<int32_t>(kPartsA) + stage;
        DataCopyParams p;
        p.blockCount = kBaseN / kColumn;
        p.blockLen = kPacketK;
        p.srcStride = kK - kPacketK;
        p.dstStride = 0;
        WaitFlag<HardEvent::MTE1_MTE2>(event);
        DataCopy(l1b_[stage], w_[weights + packet * kPacketK * kColumn], p);
        SetFlag<HardEvent::MTE2_MTE1>(event);
    }

#if __NPU_ARCH__ == 3510
    __aicore__ inline void LoadA(const LocalTensor<int8_t> &to, const LocalTensor<int8_t> &from)
    {
        LoadData2DParamsV2 p;
        p.mStep = kBaseM / 16;
        p.kStep = kBaseK / kColumn;
        p.srcStride = kBaseM / 16;
        p.dstStride = kBaseM / 16;
        LoadData(to, from, p);
    }
    __aicore__ inline void LoadB(const LocalTensor<int8_t> &to, const LocalTensor<int8_t> &from, uint32_t k)
    {
        LoadData2DParamsV2 p;
        p.mStartPosition = k / 16;
        p.mStep = kBaseK / 16;
        p.kStep = kBaseN / kColumn;
        p.srcStride = kPacketK / 16;
        p.dstStride = kBaseN / 16;
        p.ifTranspose = true;
        LoadData(to, from, p);
    }
#else
    __aicore__ inline void LoadA(const LocalTensor<int8_t> &to, const LocalTensor<int8_t> &from)
    {
        LoadData3DParamsV2<int8_t> p;
        p.l1H = 1;
        p.l1W = kBaseM;
        p.channelSize = kBaseK;
        p.kExtension = kBaseK;
        p.mExtension = kBaseM;
        LoadData(to, from, p);
    }
    // Bytes are transposed in squares of 32.
    __aicore__ inline void LoadB(const LocalTensor<int8_t> &to, const LocalTensor<int8_t> &from, uint32_t k)
    {
        LoadData2dTransposeParams p;
        p.repeatTimes = kBaseN / kColumn;
        p.srcStride = kPacketK / kColumn;
        p.dstGap = 1;
        p.dstFracGap = 0;
        for (uint32_t i = 0; i < kBaseK / kColumn; i++) {
            LoadDataWithTranspose(to[i * kBaseN * kColumn], from[(k + i * kColumn) * kColumn], p);
        }
    }
#endif

    __aicore__ inline void Store(uint64_t slot)
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
        p.dstStride = kBaseN;
        p.quantPre = QuantMode_t::NoQuant;
        p.unitFlag = 3;
        Fixpipe<int32_t, int32_t, CFG_ROW_MAJOR>(ring_[slot], l0c_, p);
    }

    GlobalTensor<int8_t> x_, w_;
    GlobalTensor<int32_t> ring_;
    LocalTensor<int8_t> l1a_[kPartsA], l1b_[2], l0a_[2], l0b_[2];
    LocalTensor<int32_t> l0c_;
    int32_t half_ = 0; // of L0A and L0B
};

template <uint32_t Depth> class Vector {
public:
    __aicore__ inline Vector() {}

    __aicore__ inline void Run(GM_ADDR scale, GM_ADDR token, GM_ADDR y, GM_ADDR ring, Work &work, uint32_t n, uint32_t core, uint32_t cores,
                               uint32_t vectors)
    {
        n_ = n;
        scale_.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(scale));
        token_.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(token));
        y_.SetGlobalBuffer(reinterpret_cast<__gm__ half *>(y));
        ring_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t *>(ring));
        constexpr uint32_t kTile = kRows * kBaseN;
        uint32_t at = 0;
        for (uint32_t i = 0; i < 2; i++) {
            in_[i] = LocalTensor<int32_t>(TPosition::VECIN, at, kTile);
            at += kTile * sizeof(int32_t);
            out_[i] = LocalTensor<half>(TPosition::VECOUT, at, kTile);
            at += kTile * sizeof(half);
            columns_[i] = LocalTensor<float>(TPosition::VECIN, at, kBaseN);
            at += kBaseN * sizeof(float);
            tokens_[i] = LocalTensor<float>(TPosition::VECIN, at, kRows);
            at += 128;
        }
        values_ = LocalTensor<float>(TPosition::VECCALC, at, kTile);
        at += kTile * sizeof(float);
        factors_ = LocalTensor<float>(TPosition::VECCALC, at, kTile);
        at += kTile * sizeof(float);
        blocks_ = LocalTensor<float>(TPosition::VECCALC, at, kRows * 8);
        for (int32_t i = 0; i < 6; i++) {
            SetFlag<HardEvent::V_MTE2>(i);
        }
        SetFlag<HardEvent::MTE3_V>(EVENT_ID0);
        SetFlag<HardEvent::MTE3_V>(EVENT_ID1);

        uint32_t task = 0, turn = 0, mine = static_cast<uint32_t>(GetSubBlockIdx());
        while (work.Take()) {
            uint32_t piece = 0; // pieces of a single tile are dealt to the vector cores
            for (uint32_t column = work.n0; column < work.n0 + kSingleN; column += kBaseN, task++) {
                int32_t scales = static_cast<int32_t>(task % 2);
                WaitFlag<HardEvent::V_MTE2>(4 + scales);
                DataCopy(columns_[scales], scale_[static_cast<uint64_t>(work.group) * n + column], kBaseN);
                SetFlag<HardEvent::MTE2_V>(4 + scales);
                WaitFlag<HardEvent::MTE2_V>(4 + scales);
                CrossCoreWaitFlag<2, PIPE_MTE2>(kFull);
                uint64_t slot = static_cast<uint64_t>(core + task % Depth * cores) * kSlot;
                for (uint32_t row = 0; row < kBaseM; row += kRows, piece++) {
                    if (piece % vectors == mine) {
                        uint32_t rows = kBaseM - row < kRows ? kBaseM - row : kRows;
                        Piece(work.m0 + row, rows, column, slot + row * kBaseN, columns_[scales], static_cast<int32_t>(turn % 2));
                        turn++;
                    }
                }
                SetFlag<HardEvent::V_MTE2>(4 + scales);
                CrossCoreSetFlag<2, PIPE_MTE2>(kEmpty);
            }
        }
        for (int32_t i = 0; i < 6; i++) {
            WaitFlag<HardEvent::V_MTE2>(i);
        }
        WaitFlag<HardEvent::MTE3_V>(EVENT_ID0);
        WaitFlag<HardEvent::MTE3_V>(EVENT_ID1);
    }

private:
    __aicore__ inline void Ordered()
    {
        if (kBarriers) {
            PipeBarrier<PIPE_V>();
        }
    }
    // Events: 0 and 1 for products, 2 and 3 for the scales of rows, 4 and 5 for those of columns.
    __aicore__ inline void Piece(uint32_t m0, uint32_t rows, uint32_t column, uint64_t from, const LocalTensor<float> &scales, int32_t stage)
    {
        constexpr uint64_t kLanes = 64;
        int32_t count = static_cast<int32_t>(rows * kBaseN);
        uint8_t repeats = static_cast<uint8_t>(rows);
        WaitFlag<HardEvent::V_MTE2>(stage);
        DataCopy(in_[stage], ring_[from], static_cast<uint32_t>(count));
        SetFlag<HardEvent::MTE2_V>(stage);
        WaitFlag<HardEvent::V_MTE2>(2 + stage);
        DataCopy(tokens_[stage], token_[m0], rows);
        SetFlag<HardEvent::MTE2_V>(2 + stage);

        // A row's scale in all of its columns: a block of it, then the block over and over.
        WaitFlag<HardEvent::MTE2_V>(2 + stage);
        Brcb(blocks_, tokens_[stage], static_cast<uint8_t>(rows / 8), BrcbRepeatParams(1, 8));
        Ordered();
        for (uint32_t c = 0; c < kBaseN; c += kLanes) {
            Copy(factors_[c], blocks_, kLanes, repeats, CopyRepeatParams(1, 0, kBaseN / 8, 1));
        }
        SetFlag<HardEvent::V_MTE2>(2 + stage);

        WaitFlag<HardEvent::MTE2_V>(stage);
        Cast(values_, in_[stage], RoundMode::CAST_RINT, static_cast<uint32_t>(count));
        SetFlag<HardEvent::V_MTE2>(stage);
        Ordered();
        for (uint32_t c = 0; c < kBaseN; c += kLanes) {
            Mul(values_[c], values_[c], scales[c], kLanes, repeats, BinaryRepeatParams(1, 1, 1, kBaseN / 8, kBaseN / 8, 0));
        }
        Ordered();
        Mul(values_, values_, factors_, count);
        Ordered();
        Muls(factors_, values_, -1.702f, count);
        Ordered();
        Exp(factors_, factors_, count);
        Ordered();
        Adds(factors_, factors_, 1.0f, count);
        Ordered();
        Div(values_, values_, factors_, count);
        Ordered();
        WaitFlag<HardEvent::MTE3_V>(stage);
        Cast(out_[stage], values_, RoundMode::CAST_RINT, static_cast<uint32_t>(count));
        SetFlag<HardEvent::V_MTE3>(stage);
        Ordered();

        WaitFlag<HardEvent::V_MTE3>(stage);
        DataCopyParams p;
        p.blockCount = static_cast<uint16_t>(rows);
        p.blockLen = kBaseN * sizeof(half) / 32;
        p.srcStride = 0;
        p.dstStride = static_cast<uint16_t>((n_ - kBaseN) * sizeof(half) / 32);
        DataCopy(y_[static_cast<uint64_t>(m0) * n_ + column], out_[stage], p);
        SetFlag<HardEvent::MTE3_V>(stage);
    }

    GlobalTensor<float> scale_, token_;
    GlobalTensor<half> y_;
    GlobalTensor<int32_t> ring_;
    LocalTensor<int32_t> in_[2];
    LocalTensor<half> out_[2];
    LocalTensor<float> columns_[2], tokens_[2], values_, factors_, blocks_;
    uint32_t n_ = 0;
};

template <uint32_t Depth>
__aicore__ inline void Run(GM_ADDR x, GM_ADDR w, GM_ADDR groups, GM_ADDR scale, GM_ADDR token, GM_ADDR y, GM_ADDR workspace, uint32_t count,
                           uint32_t n, uint32_t vectors)
{
    uint32_t cores = static_cast<uint32_t>(GetBlockNum()), index = static_cast<uint32_t>(GetBlockIdx());
    if ASCEND_IS_AIC {
        Work work(groups, count, n, index, cores);
        Cube<Depth> cube;
        cube.Run(x, w, workspace, work, n, index, cores);
    }
    if ASCEND_IS_AIV {
        // Vector cores are counted through all blocks.
        uint32_t core = index / vectors;
        Work work(groups, count, n, core, cores);
        Vector<Depth> vector;
        vector.Run(scale, token, y, workspace, work, n, core, cores, vectors);
    }
}

} // namespace

extern "C" __global__ __aicore__ void grouped_one_vector(GM_ADDR x, GM_ADDR w, GM_ADDR groups, GM_ADDR scale, GM_ADDR token, GM_ADDR y,
                                                         GM_ADDR workspace, uint32_t count, uint32_t n)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_1);
    Run<1>(x, w, groups, scale, token, y, workspace, count, n, 1);
}

extern "C" __global__ __aicore__ void grouped_two_vectors(GM_ADDR x, GM_ADDR w, GM_ADDR groups, GM_ADDR scale, GM_ADDR token, GM_ADDR y,
                                                          GM_ADDR workspace, uint32_t count, uint32_t n)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
    Run<1>(x, w, groups, scale, token, y, workspace, count, n, 2);
}

extern "C" __global__ __aicore__ void grouped_ring(GM_ADDR x, GM_ADDR w, GM_ADDR groups, GM_ADDR scale, GM_ADDR token, GM_ADDR y,
                                                   GM_ADDR workspace, uint32_t count, uint32_t n)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
    Run<4>(x, w, groups, scale, token, y, workspace, count, n, 2);
}
