// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What differs on dav-3510 (950): the cube multiplies FP8 with its scales.

#ifndef GMM_FINALIZE_ROUTING_ARCH_3510_H
#define GMM_FINALIZE_ROUTING_ARCH_3510_H

#include "common.h"

namespace finalize {
namespace arch {

constexpr uint32_t kTileRows = 128;
constexpr uint32_t kTileColumns = 256;
constexpr uint32_t kDepth = 512; // of a stage of L1, along K
constexpr uint32_t kDepthUnit = kPair;
constexpr uint32_t kStep = 128; // of L0
constexpr uint32_t kSums = 2; // buffers of L0C
// Up to so many rows, multiplying a unit takes no longer than its weights take to arrive.
constexpr uint32_t kLeastCost = 192;
using TileList = Tiles<kTileRows, kTileRows, kLeastCost>;
constexpr uint32_t kManyColumns = kTileColumns;
__aicore__ inline uint32_t FewColumns(const FinalizeTiling &) { return kTileColumns; }

constexpr uint32_t kL1Bytes = 512 * 1024;
constexpr uint32_t kUbBytes = 248 * 1024;
constexpr uint32_t kSumBytes = kTileRows * kTileColumns * sizeof(float);

constexpr uint32_t kLeftBytes = kTileRows * kDepth;
constexpr uint32_t kRightBytes = kTileColumns * kDepth;
constexpr uint32_t kLeftScaleBytes = kTileRows * kDepth / kGroup;
constexpr uint32_t kRightScaleBytes = kTileColumns * kDepth / kGroup;
constexpr uint32_t kStageBytes = kLeftBytes + kRightBytes + kLeftScaleBytes + kRightScaleBytes;
constexpr uint32_t kL0Bytes = 32 * 1024; // of one of two buffers

static_assert(2 * kStageBytes <= kL1Bytes, "L1");
static_assert(kTileColumns * kStep <= kL0Bytes && kTileRows * kStep <= kL0Bytes, "L0A and L0B");
static_assert(kSums * kSumBytes <= 256 * 1024, "L0C");

// The hardware orders vector instructions that depend on each other.
__aicore__ inline void VectorBarrier() {}

// Whether the cube waits for something that vector cores prepare: pairs of scales whose second one is not used.
__aicore__ inline bool NeedsVectors(const FinalizeTiling &t) { return t.k % kPair != 0; }

template <class Fp8> class Loads {
public:
    __aicore__ inline void Init(const Arguments &a)
    {
        k_ = a.t.k;
        n_ = a.t.n;
        pairs_ = Ceil(k_, kPair);
        odd_ = k_ % kPair != 0;
        transposed_ = a.t.transposed != 0;
        scalePerExpert_ = a.t.scale_per_expert != 0;
        stream_ = a.t.stream != 0;
        uint64_t matrix = static_cast<uint64_t>(k_) * n_;
        uint32_t scales = scalePerExpert_ ? a.t.experts : 1;
        x_.SetGlobalBuffer(reinterpret_cast<__gm__ Fp8 *>(a.x1), static_cast<uint64_t>(a.t.rows) * k_);
        w_.SetGlobalBuffer(reinterpret_cast<__gm__ Fp8 *>(a.x2), a.t.experts * matrix);
        xScale_.SetGlobalBuffer(reinterpret_cast<__gm__ uint16_t *>(a.pertokenScale), static_cast<uint64_t>(a.t.rows) * pairs_);
        wScale_.SetGlobalBuffer(reinterpret_cast<__gm__ uint16_t *>(a.scale), static_cast<uint64_t>(scales) * pairs_ * n_);
        if (odd_) {
            xTail_.SetGlobalBuffer(reinterpret_cast<__gm__ uint16_t *>(a.workspace + a.t.x_tail), a.t.rows);
            wTail_.SetGlobalBuffer(reinterpret_cast<__gm__ uint16_t *>(a.workspace + a.t.w_tail),
                                   static_cast<uint64_t>(scales) * n_);
        }
    }

    // Columns of a tile as the cube sees them: transposing loads make 32 at a time.
    __aicore__ inline uint32_t Columns(const Tile &tile) const
    {
        return RoundUp(tile.columns, transposed_ ? kFractalRows : 32);
    }

    // Rows of the left operand, columns of the right one and their scales, inputs k0 on, to L1.
    __aicore__ inline void Stage(uint32_t stage, const Tile &tile, uint32_t k0, uint32_t depth)
    {
        uint32_t rows = RoundUp(tile.rows, kFractalRows);
        uint32_t columns = RoundUp(tile.columns, kFractalRows);
        uint32_t padded = RoundUp(depth, kPair);
        LocalTensor<Fp8> left = Left(stage), right = Right(stage);

        ToFractals(left, x_[static_cast<uint64_t>(tile.row) * k_ + k0], tile.rows, depth, k_, rows);
        uint64_t matrix = static_cast<uint64_t>(tile.expert) * k_ * n_;
        w_.SetL2CacheHint(stream_ && tile.once ? CacheMode::CACHE_MODE_DISABLE : CacheMode::CACHE_MODE_NORMAL);
        if (transposed_) {
            ToFractals(right, w_[matrix + static_cast<uint64_t>(tile.column) * k_ + k0], tile.columns, depth, k_, columns);
        } else {
            ToFractals(right, w_[matrix + static_cast<uint64_t>(k0) * n_ + tile.column], depth, tile.columns, n_, padded);
        }
        if (padded != depth) {
            // The cube takes inputs 64 at a time.
            Zero(left, depth * rows, rows, 1, 0);
            if (transposed_) {
                Zero(right, depth * columns, columns, 1, 0);
            } else {
                Zero(right, depth * 32, kGroup, Ceil(tile.columns, 32), depth);
            }
        }

        uint32_t pair = k0 / kPair, pairs = padded / kPair, whole = depth / kPair;
        uint32_t expert = scalePerExpert_ ? tile.expert : 0;
        LocalTensor<uint16_t> leftScale = LeftScale(stage), rightScale = RightScale(stage);
        if (whole != 0) {
            ScalesOfRows(leftScale, xScale_[static_cast<uint64_t>(tile.row) * pairs_ + pair], tile.rows, whole, pairs);
            uint64_t scales = static_cast<uint64_t>(expert) * pairs_ * n_;
            if (transposed_) {
                ScalesOfRows(rightScale, wScale_[scales + static_cast<uint64_t>(tile.column) * pairs_ + pair], tile.columns, whole,
                             pairs);
            } else {
                ScalesOfColumns(rightScale, wScale_[scales + static_cast<uint64_t>(pair) * n_ + tile.column], tile.columns, whole,
                                pairs);
            }
        }
        if (whole != pairs) {
            ScalesOfColumns(leftScale[whole * kFractalRows], xTail_[tile.row], tile.rows, 1, pairs);
            ScalesOfColumns(rightScale[whole * kFractalRows], wTail_[static_cast<uint64_t>(expert) * n_ + tile.column], tile.columns, 1,
                            pairs);
        }
    }

    // Inputs s on of a stage to L0A and L0B.
    __aicore__ inline void Step(uint32_t half, uint32_t stage, const Tile &tile, uint32_t depth, uint32_t s, uint32_t step)
    {
        uint32_t rows = Ceil(tile.rows, kFractalRows), columns = Columns(tile) / kFractalRows;
        LoadData2DMxParams scale;
        scale.yStartPosition = static_cast<uint16_t>(s / kPair);
        scale.xStep = static_cast<uint8_t>(rows);
        scale.yStep = static_cast<uint8_t>(step / kPair);
        scale.srcStride = static_cast<uint16_t>(depth / kPair);
        scale.dstStride = static_cast<uint16_t>(step / kPair);
        LoadData2DParamsV2 p;
        p.kStartPosition = s / 32;
        p.mStep = static_cast<uint16_t>(rows);
        p.kStep = static_cast<uint16_t>(step / 32);
        p.srcStride = static_cast<int32_t>(rows);
        p.dstStride = static_cast<uint16_t>(rows);
        LoadData(LeftL0(half), Left(stage), LeftScale(stage).template ReinterpretCast<fp8_e8m0_t>(), p, scale);

        scale.xStep = static_cast<uint8_t>(columns);
        p.dstStride = static_cast<uint16_t>(columns);
        if (transposed_) {
            p.mStep = static_cast<uint16_t>(columns);
            p.srcStride = static_cast<int32_t>(columns);
        } else {
            // In L1 the rows of the right operand are K.
            p.mStartPosition = s / kFractalRows;
            p.kStartPosition = 0;
            p.mStep = static_cast<uint16_t>(step / kFractalRows);
            p.kStep = static_cast<uint16_t>(columns / 2);
            p.srcStride = static_cast<int32_t>(depth / kFractalRows);
            p.ifTranspose = true;
        }
        LoadData(RightL0(half), Right(stage), RightScale(stage).template ReinterpretCast<fp8_e8m0_t>(), p, scale);
    }

    __aicore__ inline void Multiply(const LocalTensor<float> &sums, uint32_t half, MmadParams &p)
    {
        p.disableGemv = true;
        MmadMx(sums, LeftL0(half), RightL0(half), p);
    }

private:
    __aicore__ inline static LocalTensor<Fp8> Left(uint32_t stage)
    {
        return LocalTensor<Fp8>(TPosition::A1, stage * kStageBytes, kLeftBytes);
    }
    __aicore__ inline static LocalTensor<Fp8> Right(uint32_t stage)
    {
        return LocalTensor<Fp8>(TPosition::B1, stage * kStageBytes + kLeftBytes, kRightBytes);
    }
    __aicore__ inline static LocalTensor<uint16_t> LeftScale(uint32_t stage)
    {
        return LocalTensor<uint16_t>(TPosition::A1, stage * kStageBytes + kLeftBytes + kRightBytes, kLeftScaleBytes / 2);
    }
    __aicore__ inline static LocalTensor<uint16_t> RightScale(uint32_t stage)
    {
        return LocalTensor<uint16_t>(TPosition::B1, stage * kStageBytes + kLeftBytes + kRightBytes + kLeftScaleBytes,
                                     kRightScaleBytes / 2);
    }
    __aicore__ inline static LocalTensor<Fp8> LeftL0(uint32_t half)
    {
        return LocalTensor<Fp8>(TPosition::A2, half * kL0Bytes, kL0Bytes);
    }
    __aicore__ inline static LocalTensor<Fp8> RightL0(uint32_t half)
    {
        return LocalTensor<Fp8>(TPosition::B2, half * kL0Bytes, kL0Bytes);
    }

    // A matrix of `rows` x `columns` to fractals column by column, `pitch` rows in each. Columns up to the next multiple of
    // 32 bytes become zero; rows up to `pitch` stay what they were.
    template <class T>
    __aicore__ inline static void ToFractals(const LocalTensor<T> &to, const GlobalTensor<T> &from, uint32_t rows, uint32_t columns,
                                             uint64_t fromPitch, uint32_t pitch)
    {
        Nd2NzParams p;
        p.ndNum = 1;
        p.nValue = static_cast<uint16_t>(rows);
        p.dValue = columns;
        p.srcDValue = fromPitch;
        p.dstNzC0Stride = static_cast<uint16_t>(pitch);
        p.dstNzNStride = 1;
        DataCopy(to, from, p);
    }
    // Pairs of scales [pair][column] to cells of 16 columns, `pitch` pairs in each group of 16.
    __aicore__ inline void ScalesOfColumns(const LocalTensor<uint16_t> &to, const GlobalTensor<uint16_t> &from, uint32_t columns,
                                           uint32_t pairs, uint32_t pitch) const
    {
        ToFractals(to, from, pairs, columns, n_, pitch);
    }
    // Pairs of scales [row][pair], the same.
    __aicore__ inline void ScalesOfRows(const LocalTensor<uint16_t> &to, const GlobalTensor<uint16_t> &from, uint32_t rows,
                                        uint32_t pairs, uint32_t pitch) const
    {
        Dn2NzParams p;
        p.dnNum = 1;
        p.nValue = static_cast<uint16_t>(pairs);
        p.dValue = rows;
        p.srcDValue = pairs_;
        p.dstNzC0Stride = static_cast<uint16_t>(pitch);
        p.dstNzNStride = 1;
        DataCopy(to, from, p);
    }
    // Runs of `blocks` blocks of 32 bytes, `gap` such blocks between them, from byte `at` on.
    __aicore__ inline static void Zero(const LocalTensor<Fp8> &matrix, uint32_t at, uint32_t blocks, uint32_t runs, uint32_t gap)
    {
        InitConstValueParams<uint16_t> p;
        p.repeatTimes = static_cast<uint16_t>(runs);
        p.blockNum = static_cast<uint16_t>(blocks);
        p.dstGap = static_cast<uint16_t>(gap);
        p.initValue = 0;
        Fill(matrix[at].template ReinterpretCast<uint16_t>(), p);
    }

    GlobalTensor<Fp8> x_, w_;
    GlobalTensor<uint16_t> xScale_, wScale_, xTail_, wTail_;
    uint32_t k_ = 0, n_ = 0, pairs_ = 0;
    bool odd_ = false, transposed_ = false, scalePerExpert_ = false, stream_ = false;
};

// Rows of F32 sums to device memory.
__aicore__ inline void Store(const GlobalTensor<float> &to, const LocalTensor<float> &sums, uint32_t rows, uint32_t columns,
                             uint32_t pitch)
{
    FixpipeParamsArch3510<CO2Layout::ROW_MAJOR> p;
    p.nSize = static_cast<uint16_t>(columns);
    p.mSize = static_cast<uint16_t>(rows);
    p.srcStride = static_cast<uint16_t>(RoundUp(rows, kFractalRows));
    p.dstStride = pitch;
    p.quantPre = QuantMode_t::NoQuant;
    p.params.ndNum = 1;
    Fixpipe<float, float, CFG_ROW_MAJOR>(to, sums, p);
}

// What vector cores do before the products are there: the last pairs of scales, with 1 for the scale that is not used.
// What lies there may be NaN, and NaN times the zeros of the cube is NaN.
class Prepare {
public:
    __aicore__ inline float Factor() const { return 1.0f; }
    __aicore__ inline void Run(const Arguments &a, Groups &, uint32_t &)
    {
        if (!NeedsVectors(a.t)) {
            return;
        }
        uint32_t pairs = Ceil(a.t.k, kPair);
        uint32_t scales = a.t.scale_per_expert != 0 ? a.t.experts : 1;
        uint32_t worker = static_cast<uint32_t>(GetBlockIdx()), workers = 2 * a.cores;
        GlobalTensor<uint16_t> from, to;
        SetFlag<HardEvent::V_MTE2>(0);
        SetFlag<HardEvent::MTE3_V>(0);
        from.SetGlobalBuffer(reinterpret_cast<__gm__ uint16_t *>(a.pertokenScale), static_cast<uint64_t>(a.t.rows) * pairs);
        to.SetGlobalBuffer(reinterpret_cast<__gm__ uint16_t *>(a.workspace + a.t.x_tail), a.t.rows);
        Lasts(to, from, a.t.rows, pairs, worker, workers);
        from.SetGlobalBuffer(reinterpret_cast<__gm__ uint16_t *>(a.scale), static_cast<uint64_t>(scales) * pairs * a.t.n);
        to.SetGlobalBuffer(reinterpret_cast<__gm__ uint16_t *>(a.workspace + a.t.w_tail), static_cast<uint64_t>(scales) * a.t.n);
        if (a.t.transposed != 0) {
            Lasts(to, from, scales * a.t.n, pairs, worker, workers);
        } else {
            for (uint32_t e = 0; e < scales; e++) {
                uint64_t last = (static_cast<uint64_t>(e) * pairs + pairs - 1) * a.t.n;
                Lasts(to[static_cast<uint64_t>(e) * a.t.n], from[last], a.t.n, 1, worker, workers);
            }
        }
        WaitFlag<HardEvent::V_MTE2>(0);
        WaitFlag<HardEvent::MTE3_V>(0);
        CrossCoreSetFlag<0, PIPE_MTE3>(kReadyAmongVectors);
        CrossCoreWaitFlag<0, PIPE_MTE3>(kReadyAmongVectors);
        CrossCoreSetFlag<2, PIPE_MTE3>(kReadyToCube);
        // What follows uses the same memory.
        PipeBarrier<PIPE_ALL>();
    }

private:
    static constexpr uint32_t kChunk = 256;

    // The last of every `pairs` pairs, one in each block of 32 bytes of UB.
    __aicore__ inline static void Lasts(const GlobalTensor<uint16_t> &to, const GlobalTensor<uint16_t> &from, uint32_t count,
                                        uint32_t pairs, uint32_t worker, uint32_t workers)
    {
        LocalTensor<uint16_t> in(TPosition::VECIN, 0, kChunk * 16), out(TPosition::VECOUT, kChunk * 32, kChunk * 16);
        for (uint32_t at = worker * kChunk; at < count; at += workers * kChunk) {
            uint32_t n = Min(kChunk, count - at);
            WaitFlag<HardEvent::V_MTE2>(0);
            DataCopyExtParams get{static_cast<uint16_t>(n), 2, static_cast<int64_t>(pairs - 1) * 2, 0, 0};
            DataCopyPadExtParams<uint16_t> pad{true, 0, 15, 0};
            DataCopyPad(in, from[static_cast<uint64_t>(at) * pairs + pairs - 1], get, pad);
            SetFlag<HardEvent::MTE2_V>(0);
            WaitFlag<HardEvent::MTE2_V>(0);
            WaitFlag<HardEvent::MTE3_V>(0);
            ShiftLeft(in, in, static_cast<uint16_t>(8), static_cast<int32_t>(n * 16));
            ShiftRight(in, in, static_cast<uint16_t>(8), static_cast<int32_t>(n * 16));
            Adds(out.ReinterpretCast<int16_t>(), in.ReinterpretCast<int16_t>(), static_cast<int16_t>(127 << 8),
                 static_cast<int32_t>(n * 16));
            SetFlag<HardEvent::V_MTE2>(0);
            SetFlag<HardEvent::V_MTE3>(0);
            WaitFlag<HardEvent::V_MTE3>(0);
            DataCopyExtParams put{static_cast<uint16_t>(n), 2, 0, 0, 0};
            DataCopyPad(to[at], out, put);
            SetFlag<HardEvent::MTE3_V>(0);
        }
    }
};

// The cube's part for the number format of the codes.
template <template <class> class Part> __aicore__ inline void RunCube(const Arguments &a)
{
    if (a.t.e5m2 != 0) {
        Part<fp8_e5m2_t> part;
        part.Run(a);
    } else {
        Part<fp8_e4m3fn_t> part;
        part.Run(a);
    }
}

} // namespace arch
} // namespace finalize

#endif
