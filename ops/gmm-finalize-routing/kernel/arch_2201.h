// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What differs on dav-2201 (A2, A3): the cube has no FP8, so vector cores write codes times their scales in 16 bits.
// Activations go to the workspace once, weights through a ring of slots from which the cube takes them.
//
// BF16 holds all of them, but takes a way over F32. Half holds them where scales do not differ too much, relative to a
// power of two that activations and weights have one of each; then the product of the two goes into the logits. Whether
// they do, vector cores find out first. Either way the products are exact, and so equal.

#ifndef GMM_FINALIZE_ROUTING_ARCH_2201_H
#define GMM_FINALIZE_ROUTING_ARCH_2201_H

#include "common.h"

namespace finalize {
namespace arch {

constexpr uint32_t kFewRows = 128; // up to so many, a tile has 256 columns, else 128, and up to 256 rows
constexpr uint32_t kFewColumns = 256;
constexpr uint32_t kManyRows = 256;
constexpr uint32_t kManyColumns = 128;
constexpr uint32_t kDepth = 256; // of a stage of L1, along K, and of a slot of the ring
constexpr uint32_t kDepthUnit = kFractalRows;
constexpr uint32_t kStep = 64; // of L0
constexpr uint32_t kSums = 1; // buffers of L0C
// Up to so many rows, multiplying a unit takes no longer than dequantising its weights.
constexpr uint32_t kLeastCost = 256;
using TileList = Tiles<kFewRows, kManyRows, kLeastCost>;
// Where K is not contiguous, a slice of vector cores is as wide as a tile.
__aicore__ inline uint32_t FewColumns(const FinalizeTiling &t) { return t.transposed != 0 ? kFewColumns : kManyColumns; }

constexpr uint32_t kL1Bytes = 512 * 1024 - 256;
constexpr uint32_t kUbBytes = 184 * 1024 - 256;
constexpr uint32_t kSumBytes = kManyRows * kManyColumns * sizeof(float);

constexpr uint32_t kSlotSize = kFewColumns * kDepth; // elements of a slot of the ring
constexpr uint32_t kStageBytes = (kFewRows + kFewColumns) * kDepth * sizeof(bfloat16_t);
constexpr uint32_t kL0Bytes = 32 * 1024; // of one of two buffers
constexpr uint32_t kFractal = kFractalRows * 16; // elements
constexpr uint32_t kSlots = 8; // of the ring

static_assert(2 * kStageBytes <= kL1Bytes, "L1");
static_assert(kFewRows + kFewColumns == kManyRows + kManyColumns, "a stage");
static_assert(kManyRows * kStep * sizeof(bfloat16_t) <= kL0Bytes, "L0A");
static_assert(kFewColumns * kStep * sizeof(bfloat16_t) <= kL0Bytes, "L0B");
static_assert(kFewRows * kFewColumns <= kManyRows * kManyColumns, "L0C");
static_assert(kSums * kSumBytes <= 128 * 1024, "L0C");

__aicore__ inline void VectorBarrier() { PipeBarrier<PIPE_V>(); }

// The cube has waited before it knows what it multiplies.
__aicore__ inline bool NeedsVectors(const FinalizeTiling &) { return false; }

// Whether operands may be halfs: codes are E4M3, and no scale is unused.
__aicore__ inline bool MayNarrow(const FinalizeTiling &t)
{
    return t.e5m2 == 0 && t.k % kPair == 0 && t.wide == 0;
}
constexpr int32_t kMostHalf = 7; // the largest scale as a power of two, so that 448 of it is a number
constexpr int32_t kSpreadHalf = 12; // the smallest may be so many less: 2^-9 of it is a normal number
constexpr uint32_t kRangeHalfs = 64; // of each vector core
constexpr uint32_t kDecisionWords = 16; // of each cube core: a line of the data cache

// Activations and weights have the same order of inputs, which the product does not depend on: in each `kDepth` of them,
// those at even places, then those at odd ones. A 16-bit word holds one of each.
//
// Activations lie in the workspace as [k / 16][rows][16]. A slot has, where K is contiguous in the weights, such a matrix
// of each 32 columns, [columns / 32][depth / 16][32 columns][16], and else [depth][columns].
constexpr uint32_t kLines = 32;

// Columns of a tile in its slot where K is not contiguous.
__aicore__ inline uint32_t SlotPitch(uint32_t columns) { return RoundUp(columns, 32); }

template <class T> class Loads {
public:
    __aicore__ inline void Init(const Arguments &a)
    {
        all_ = a.t.rows;
        transposed_ = a.t.transposed != 0;
        x_.SetGlobalBuffer(reinterpret_cast<__gm__ T *>(a.workspace + a.t.x), static_cast<uint64_t>(a.t.rows) * a.t.k);
        ring_.SetGlobalBuffer(
            reinterpret_cast<__gm__ T *>(a.workspace + a.t.ring + static_cast<uint64_t>(a.core) * a.t.ring_pitch),
            kSlots * kSlotSize);
    }

    __aicore__ inline uint32_t Columns(const Tile &tile) const { return tile.columns; }

    // Rows of the left operand and columns of the right one, inputs k0 on, to L1.
    __aicore__ inline void Stage(uint32_t stage, const Tile &tile, uint32_t k0, uint32_t depth)
    {
        uint32_t rows = RoundUp(tile.rows, kFractalRows), columns = RoundUp(tile.columns, kFractalRows);
        Blocks(Left(stage), x_[(static_cast<uint64_t>(k0 / 16) * all_ + tile.row) * 16], depth / 16, tile.rows, all_, rows);
        GlobalTensor<T> slot = ring_[slot_ * kSlotSize];
        LocalTensor<T> right = Right(stage, tile);
        CrossCoreWaitFlag<2, PIPE_MTE2>(kWeightsFull);
        if (transposed_) {
            for (uint32_t line = 0; line < tile.columns; line += kLines) {
                uint32_t lines = Min(kLines, tile.columns - line);
                Blocks(right[line * 16], slot[line * depth], depth / 16, lines, lines, columns);
            }
        } else {
            ToFractals(right, slot, depth, tile.columns, SlotPitch(tile.columns), depth);
        }
        CrossCoreSetFlag<2, PIPE_MTE2>(kWeightsFree);
        slot_ = (slot_ + 1) % kSlots;
    }

    // Inputs s on of a stage to L0A and L0B.
    __aicore__ inline void Step(uint32_t half, uint32_t stage, const Tile &tile, uint32_t depth, uint32_t s, uint32_t step)
    {
        uint32_t rows = Ceil(tile.rows, kFractalRows), columns = Ceil(tile.columns, kFractalRows);
        uint32_t first = s / kFractalRows, steps = step / kFractalRows;
        LoadData2DParams p;
        p.repeatTimes = static_cast<uint8_t>(steps);
        p.srcStride = static_cast<uint16_t>(rows);
        for (uint32_t i = 0; i < rows; i++) {
            p.startIndex = static_cast<uint16_t>(first * rows + i);
            LoadData(LeftL0(half)[i * steps * kFractal], Left(stage), p);
        }
        if (transposed_) {
            // The fractals already lie in the order of L0B.
            p.startIndex = static_cast<uint16_t>(first * columns);
            p.repeatTimes = static_cast<uint8_t>(steps * columns);
            p.srcStride = 1;
            LoadData(RightL0(half), Right(stage, tile), p);
        } else {
            p.repeatTimes = static_cast<uint8_t>(columns);
            p.srcStride = static_cast<uint16_t>(depth / kFractalRows);
            p.ifTranspose = true;
            for (uint32_t i = 0; i < steps; i++) {
                p.startIndex = static_cast<uint16_t>(first + i);
                LoadData(RightL0(half)[i * columns * kFractal], Right(stage, tile), p);
            }
        }
    }

    __aicore__ inline void Multiply(const LocalTensor<float> &sums, uint32_t half, const MmadParams &p)
    {
        Mmad(sums, LeftL0(half), RightL0(half), p);
    }

private:
    __aicore__ inline static LocalTensor<T> Left(uint32_t stage)
    {
        return LocalTensor<T>(TPosition::A1, stage * kStageBytes, kManyRows * kDepth);
    }
    __aicore__ inline static LocalTensor<T> Right(uint32_t stage, const Tile &tile)
    {
        uint32_t left = (tile.rows <= kFewRows ? kFewRows : kManyRows) * kDepth * sizeof(T);
        return LocalTensor<T>(TPosition::B1, stage * kStageBytes + left, (kStageBytes - left) / sizeof(T));
    }
    __aicore__ inline static LocalTensor<T> LeftL0(uint32_t half)
    {
        return LocalTensor<T>(TPosition::A2, half * kL0Bytes, kL0Bytes / 2);
    }
    __aicore__ inline static LocalTensor<T> RightL0(uint32_t half)
    {
        return LocalTensor<T>(TPosition::B2, half * kL0Bytes, kL0Bytes / 2);
    }
    // Blocks of `lines` lines of 16 values from one pitch to another, in lines. Lines that a block does not fill stay what
    // they were: they end in rows or columns of the product that nobody reads.
    __aicore__ inline static void Blocks(const LocalTensor<T> &to, const GlobalTensor<T> &from, uint32_t blocks, uint32_t lines,
                                         uint32_t fromPitch, uint32_t toPitch)
    {
        DataCopyParams p;
        p.blockCount = static_cast<uint16_t>(blocks);
        p.blockLen = static_cast<uint16_t>(lines);
        p.srcStride = static_cast<uint16_t>(fromPitch - lines);
        p.dstStride = static_cast<uint16_t>(toPitch - lines);
        DataCopy(to, from, p);
    }
    // A matrix of `rows` x `columns` to fractals column by column, `pitch` rows in each; rows beyond `rows` stay what they
    // were: they end in rows or columns of the product that nobody reads.
    __aicore__ inline static void ToFractals(const LocalTensor<T> &to, const GlobalTensor<T> &from, uint32_t rows,
                                             uint32_t columns, uint32_t fromPitch, uint32_t pitch)
    {
        Nd2NzParams p;
        p.ndNum = 1;
        p.nValue = static_cast<uint16_t>(rows);
        p.dValue = static_cast<uint16_t>(columns);
        p.srcDValue = static_cast<uint16_t>(fromPitch);
        p.dstNzC0Stride = static_cast<uint16_t>(pitch);
        p.dstNzNStride = 1;
        DataCopy(to, from, p);
    }

    GlobalTensor<T> x_, ring_;
    uint32_t all_ = 0, slot_ = 0;
    bool transposed_ = false;
};

// Rows of F32 sums to device memory.
__aicore__ inline void Store(const GlobalTensor<float> &to, const LocalTensor<float> &sums, uint32_t rows, uint32_t columns,
                             uint32_t pitch)
{
    FixpipeParamsV220 p;
    p.nSize = static_cast<uint16_t>(columns);
    p.mSize = static_cast<uint16_t>(rows);
    p.srcStride = static_cast<uint16_t>(RoundUp(rows, kFractalRows));
    p.dstStride = pitch;
    p.quantPre = QuantMode_t::NoQuant;
    p.ndNum = 1;
    Fixpipe<float, float, CFG_ROW_MAJOR>(to, sums, p);
}

// What vector cores do before the products are there: they dequantise, first their part of the activations, then, for
// each tile of the cube core of their block, half of the weights. A slice of 8192 codes becomes the bits of halfs that are
// the codes' values, or 2^-8 of them for E4M3, then F32, times the scales, then BF16.
class Prepare {
public:
    // What the products are times what they are meant to be, a power of two.
    __aicore__ inline float Factor() const { return factor_; }

    __aicore__ inline void Run(const Arguments &a, Groups &groups, uint32_t &status)
    {
        t_ = a.t;
        pairs_ = Ceil(t_.k, kPair);
        TileList tiles;
        tiles.Init(a, groups, FewColumns(a.t), kManyColumns);
        x_.SetGlobalBuffer(reinterpret_cast<__gm__ uint8_t *>(a.x1), static_cast<uint64_t>(t_.rows) * t_.k);
        xScale_.SetGlobalBuffer(reinterpret_cast<__gm__ uint8_t *>(a.pertokenScale), static_cast<uint64_t>(t_.rows) * pairs_ * 2);
        uint32_t scales = t_.scale_per_expert != 0 ? t_.experts : 1;
        w_.SetGlobalBuffer(reinterpret_cast<__gm__ uint8_t *>(a.x2), static_cast<uint64_t>(t_.experts) * t_.k * t_.n);
        wScale_.SetGlobalBuffer(reinterpret_cast<__gm__ uint8_t *>(a.scale), static_cast<uint64_t>(scales) * pairs_ * t_.n * 2);
        wideX_.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(a.workspace + t_.x), static_cast<uint64_t>(t_.rows) * t_.k);
        ring_.SetGlobalBuffer(
            reinterpret_cast<__gm__ bfloat16_t *>(a.workspace + t_.ring + static_cast<uint64_t>(a.core) * t_.ring_pitch),
            kSlots * kSlotSize);

        for (uint32_t b = 0; b < 2; b++) {
            SetFlag<HardEvent::V_MTE2>(b);
            SetFlag<HardEvent::MTE3_V>(b);
        }
        SetFlag<HardEvent::V_MTE2>(kScaleEvent);
        // What is left of a word: sign and value of E4M3 below it, or E5M2.
        Duplicate(Int16(kKeepAt, 16), static_cast<int16_t>(t_.e5m2 == 0 ? 0xbf80 - 0x10000 : 0xff00 - 0x10000), 16);
        Duplicate(Half(kLowestAt, kScales), static_cast<half>(127.0f), kScales);
        Duplicate(Half(kHighestAt, kScales), static_cast<half>(127.0f), kScales);
        VectorBarrier();

        uint32_t worker = static_cast<uint32_t>(GetBlockIdx()), workers = 2 * a.cores;
        if (MayNarrow(t_)) {
            FindRange(a, tiles.Covered(), scales, worker, workers);
        }
        Activations(tiles.Covered(), worker, workers);
        uint32_t half = static_cast<uint32_t>(GetSubBlockIdx());
        if (MayNarrow(t_) && half == 0) {
            GlobalTensor<int32_t> decisions;
            decisions.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t *>(a.workspace + t_.decisions), a.cores * kDecisionWords);
            LocalTensor<int32_t> decision = Int32(kNumberAt, kDecisionWords);
            SetFlag<HardEvent::S_V>(0);
            WaitFlag<HardEvent::S_V>(0);
            Duplicate(decision, narrow_ ? 1 : 0, kDecisionWords);
            SetFlag<HardEvent::V_MTE3>(kScaleEvent);
            WaitFlag<HardEvent::V_MTE3>(kScaleEvent);
            DataCopy(decisions[a.core * kDecisionWords], decision, kDecisionWords);
        }
        CrossCoreSetFlag<0, PIPE_MTE3>(kReadyAmongVectors);
        CrossCoreWaitFlag<0, PIPE_MTE3>(kReadyAmongVectors);
        CrossCoreSetFlag<2, PIPE_MTE3>(kReadyToCube);

        Tile tile;
        while (tiles.Next(tile)) {
            uint32_t step = t_.transposed != 0 ? kSpan : kDepth;
            for (uint32_t k0 = 0; k0 < t_.k; k0 += step) {
                Weights(tile, k0, Min(step, t_.k - k0), half);
            }
        }
        for (uint32_t i = 0; i < Min(used_, kSlots); i++) {
            CrossCoreWaitFlag<2, PIPE_MTE3>(kWeightsFree);
        }
        for (uint32_t b = 0; b < 2; b++) {
            WaitFlag<HardEvent::V_MTE2>(b);
            WaitFlag<HardEvent::MTE3_V>(b);
        }
        WaitFlag<HardEvent::V_MTE2>(kScaleEvent);
        if (!ScalesAreExact() && !narrow_) {
            status |= kBadScale;
        }
    }

private:
    static constexpr uint32_t kCodes = 8192; // of a slice
    static_assert(kLines * kDepth <= kCodes && kPair * kManyColumns <= kCodes, "a slice");
    static constexpr uint32_t kSpan = 1024; // inputs whose scales, a block of 32 bytes of each line, are read at a time
    static constexpr uint32_t kScales = kLines * kSpan / kGroup;
    static constexpr int32_t kScaleEvent = 2;
    static constexpr int32_t kRangeEvent = 3;
    static constexpr uint32_t kInAt = 0; // 2 x [kCodes] bytes
    static constexpr uint32_t kScaleInAt = kInAt + 2 * kCodes; // [kScales] bytes
    static constexpr uint32_t kHalfAt = kScaleInAt + kScales; // [kCodes] half
    static constexpr uint32_t kWideAt = kHalfAt + kCodes * 2; // [kCodes] F32
    static constexpr uint32_t kOutAt = kWideAt + kCodes * 4; // 2 x [kCodes] BF16
    static constexpr uint32_t kScaleHalfAt = kOutAt + 2 * kCodes * 2; // [kScales] half
    static constexpr uint32_t kScaleAt = kScaleHalfAt + kScales * 2; // [kScales] F32
    static constexpr uint32_t kExtraAt = kScaleAt + kScales * 4; // [kScales] INT32
    static constexpr uint32_t kSpreadAt = kExtraAt + kScales * 4; // [kScales][8] F32
    static constexpr uint32_t kLowestAt = kSpreadAt + kScales * 32; // [kScales] half
    static constexpr uint32_t kHighestAt = kLowestAt + kScales * 2; // [kScales] half
    static constexpr uint32_t kKeepAt = kHighestAt + kScales * 2; // 16 INT16
    // Where scales are searched for their range.
    static constexpr uint32_t kLowAt = kWideAt; // [kCodes] half
    static constexpr uint32_t kHighAt = kWideAt + kCodes * 2; // [kCodes] half
    static constexpr uint32_t kRangesAt = kOutAt; // [workers][64] half
    static constexpr uint32_t kRangeAt = kKeepAt + 32; // [64] half: the ends of both ranges, 16 times each
    static constexpr uint32_t kNumberAt = kRangeAt + 128; // [64] INT32
    static_assert(kNumberAt + 256 <= kUbBytes, "UB");

    __aicore__ inline static LocalTensor<half> Half(uint32_t at, uint32_t count)
    {
        return LocalTensor<half>(TPosition::VECCALC, at, count);
    }
    __aicore__ inline static LocalTensor<int16_t> Int16(uint32_t at, uint32_t count)
    {
        return LocalTensor<int16_t>(TPosition::VECCALC, at, count);
    }
    __aicore__ inline static LocalTensor<int32_t> Int32(uint32_t at, uint32_t count)
    {
        return LocalTensor<int32_t>(TPosition::VECCALC, at, count);
    }
    __aicore__ inline static LocalTensor<float> Float(uint32_t at, uint32_t count)
    {
        return LocalTensor<float>(TPosition::VECCALC, at, count);
    }

    __aicore__ inline void Activations(uint32_t rows, uint32_t worker, uint32_t workers)
    {
        uint32_t parts = Ceil(t_.k, kSpan), units = Ceil(rows, kLines) * parts;
        for (uint32_t unit = worker; unit < units; unit += workers) {
            uint32_t row = unit / parts * kLines, k0 = unit % parts * kSpan;
            uint32_t lines = Min(kLines, rows - row), depth = Min(kSpan, t_.k - k0);
            Scales(xScale_[static_cast<uint64_t>(row) * pairs_ * 2 + k0 / kGroup], lines, depth, base_[0]);
            for (uint32_t k = 0; k < depth; k += kDepth) {
                uint32_t here = Min(kDepth, depth - k);
                AlongLines(x_[static_cast<uint64_t>(row) * t_.k + k0 + k], lines, k, here);
                Put(wideX_[(static_cast<uint64_t>((k0 + k) / 16) * t_.rows + row) * 16], Out(), here / 16, lines * 16, 0,
                    (t_.rows - lines) * 16);
                Stored();
            }
        }
    }

    // This core's half of some slots.
    __aicore__ inline void Weights(const Tile &tile, uint32_t k0, uint32_t depth, uint32_t half)
    {
        uint32_t slots = Ceil(depth, kDepth);
        for (uint32_t i = 0; i < slots; i++) {
            if (used_ + i >= kSlots) {
                CrossCoreWaitFlag<2, PIPE_MTE3>(kWeightsFree);
            }
        }
        uint64_t matrix = static_cast<uint64_t>(tile.expert) * t_.k * t_.n;
        uint64_t scales = t_.scale_per_expert != 0 ? static_cast<uint64_t>(tile.expert) * pairs_ * t_.n * 2 : 0;
        if (t_.transposed != 0) {
            uint32_t middle = Ceil(tile.columns, kLines) / 2 * kLines;
            uint32_t begin = half == 0 ? 0 : middle, end = half == 0 ? middle : tile.columns;
            for (uint32_t line = begin; line < end; line += kLines) {
                uint32_t lines = Min(kLines, end - line);
                uint64_t column = tile.column + line;
                Scales(wScale_[scales + column * pairs_ * 2 + k0 / kGroup], lines, depth, base_[1]);
                for (uint32_t i = 0; i < slots; i++) {
                    uint32_t k = i * kDepth, here = Min(kDepth, depth - k);
                    AlongLines(w_[matrix + column * t_.k + k0 + k], lines, k, here);
                    DataCopy(Slot(i)[line * here], Out(), lines * here);
                    Stored();
                }
            }
        } else {
            GlobalTensor<bfloat16_t> to = Slot(0);
            uint32_t pairs = Ceil(depth, kPair), middle = pairs / 2;
            uint32_t begin = half == 0 ? 0 : middle, end = half == 0 ? middle : pairs;
            uint32_t pitch = SlotPitch(tile.columns);
            for (uint32_t pair = begin; pair < end; pair++) {
                uint64_t k = k0 + pair * kPair;
                uint32_t lines = Min(kPair, depth - pair * kPair), line = pair * kPair / 2;
                AcrossLines(w_[matrix + k * t_.n + tile.column], wScale_[scales + (k / kPair * t_.n + tile.column) * 2], lines,
                            tile.columns);
                Put(to[line * pitch], Out(), lines / 2, pitch, pitch, 0);
                Put(to[(depth / 2 + line) * pitch], Out()[pitch], lines / 2, pitch, pitch, 0);
                Stored();
            }
        }
        for (uint32_t i = 0; i < slots; i++) {
            CrossCoreSetFlag<2, PIPE_MTE3>(kWeightsFull);
        }
        used_ += slots;
    }
    // The slot after those in use.
    __aicore__ inline GlobalTensor<bfloat16_t> Slot(uint32_t i) const { return ring_[(used_ + i) % kSlots * kSlotSize]; }

    // Lines of `width` values, gaps between them.
    __aicore__ inline static void Put(const GlobalTensor<bfloat16_t> &to, const LocalTensor<bfloat16_t> &from, uint32_t lines,
                                      uint32_t width, uint32_t fromGap, uint32_t toGap)
    {
        DataCopyParams put;
        put.blockCount = static_cast<uint16_t>(lines);
        put.blockLen = static_cast<uint16_t>(width / 16);
        put.srcStride = static_cast<uint16_t>(fromGap / 16);
        put.dstStride = static_cast<uint16_t>(toGap / 16);
        DataCopy(to, from, put);
    }

    // Where the slice's result lies once AlongLines or AcrossLines is done; MTE3 may read it until Stored.
    __aicore__ inline LocalTensor<bfloat16_t> Out() const
    {
        return LocalTensor<bfloat16_t>(TPosition::VECOUT, kOutAt + buffer_ * kCodes * 2, kCodes);
    }
    __aicore__ inline void Stored()
    {
        SetFlag<HardEvent::MTE3_V>(buffer_);
        buffer_ = 1 - buffer_;
    }

    // Finds out whether the range of all scales lets the operands be halfs.
    __aicore__ inline void FindRange(const Arguments &a, uint32_t rows, uint32_t scales, uint32_t worker, uint32_t workers)
    {
        GlobalTensor<half> ranges;
        ranges.SetGlobalBuffer(reinterpret_cast<__gm__ half *>(a.workspace + t_.ranges), workers * kRangeHalfs);
        LocalTensor<half> range = Half(kRangeAt, kRangeHalfs);
        FindRangeOf(range, xScale_, static_cast<uint64_t>(rows) * (t_.k / kGroup), worker, workers);
        FindRangeOf(range[32], wScale_, static_cast<uint64_t>(scales) * t_.n * (t_.k / kGroup), worker, workers);
        SetFlag<HardEvent::V_MTE3>(kScaleEvent);
        WaitFlag<HardEvent::V_MTE3>(kScaleEvent);
        DataCopy(ranges[worker * kRangeHalfs], range, kRangeHalfs);
        CrossCoreSetFlag<0, PIPE_MTE3>(kRangesAmongVectors);
        CrossCoreWaitFlag<0, PIPE_MTE3>(kRangesAmongVectors);
        uint32_t most = kCodes * 2 / kRangeHalfs;
        for (uint32_t at = 0; at < workers; at += most) {
            uint32_t count = Min(most, workers - at);
            SetFlag<HardEvent::V_MTE2>(kRangeEvent);
            WaitFlag<HardEvent::V_MTE2>(kRangeEvent);
            DataCopy(Half(kRangesAt, kCodes * 2), ranges[at * kRangeHalfs], count * kRangeHalfs);
            SetFlag<HardEvent::MTE2_V>(kRangeEvent);
            WaitFlag<HardEvent::MTE2_V>(kRangeEvent);
            for (uint32_t i = 0; i < count; i++) {
                LocalTensor<half> other = Half(kRangesAt, kCodes * 2)[i * kRangeHalfs];
                VectorBarrier();
                Min(range, range, other, 16);
                Max(range[16], range[16], other[16], 16);
                Min(range[32], range[32], other[32], 16);
                Max(range[48], range[48], other[48], 16);
            }
        }
        VectorBarrier();
        LocalTensor<int32_t> number = Int32(kNumberAt, kRangeHalfs);
        Cast(number, range, RoundMode::CAST_RINT, kRangeHalfs);
        SetFlag<HardEvent::V_S>(0);
        WaitFlag<HardEvent::V_S>(0);
        int32_t ends[4];
        for (uint32_t end = 0; end < 4; end++) {
            ends[end] = number.GetValue(end * 16);
            for (uint32_t i = 1; i < 16; i++) {
                int32_t found = number.GetValue(end * 16 + i);
                ends[end] = (found < ends[end]) == (end % 2 == 0) ? found : ends[end];
            }
        }
        int32_t exponent = ends[1] + ends[3] - 2 * (127 + kMostHalf);
        narrow_ = ends[1] - ends[0] <= kSpreadHalf && ends[3] - ends[2] <= kSpreadHalf && exponent >= -100 && exponent <= 100;
        if (!narrow_) {
            return;
        }
        base_[0] = ends[1] - kMostHalf;
        base_[1] = ends[3] - kMostHalf;
        for (int32_t i = 0; i < exponent; i++) {
            factor_ *= 2.0f;
        }
        for (int32_t i = exponent; i < 0; i++) {
            factor_ *= 0.5f;
        }
    }
    // The least and the most of `count` bytes, 16 times each.
    __aicore__ inline void FindRangeOf(const LocalTensor<half> &range, const GlobalTensor<uint8_t> &bytes, uint64_t count,
                                       uint32_t worker, uint32_t workers)
    {
        LocalTensor<half> low = Half(kLowAt, kCodes), high = Half(kHighAt, kCodes), number = Half(kHalfAt, kCodes);
        VectorBarrier();
        Duplicate(low, static_cast<half>(255.0f), static_cast<int32_t>(kCodes));
        Duplicate(high, static_cast<half>(0.0f), static_cast<int32_t>(kCodes));
        for (uint64_t at = static_cast<uint64_t>(worker) * kCodes; at < count; at += static_cast<uint64_t>(workers) * kCodes) {
            uint32_t here = count - at < kCodes ? static_cast<uint32_t>(count - at) : kCodes;
            WaitFlag<HardEvent::V_MTE2>(buffer_);
            GetLines(In(), bytes[at], 1, here, here, 0);
            SetFlag<HardEvent::MTE2_V>(buffer_);
            WaitFlag<HardEvent::MTE2_V>(buffer_);
            VectorBarrier();
            Cast(number, In(), RoundMode::CAST_NONE, here);
            SetFlag<HardEvent::V_MTE2>(buffer_);
            VectorBarrier();
            Min(low, low, number, static_cast<int32_t>(here));
            Max(high, high, number, static_cast<int32_t>(here));
            buffer_ = 1 - buffer_;
        }
        for (uint32_t n = kCodes / 2; n >= 16; n /= 2) {
            VectorBarrier();
            Min(low, low, low[n], static_cast<int32_t>(n));
            Max(high, high, high[n], static_cast<int32_t>(n));
        }
        VectorBarrier();
        Adds(range, low, static_cast<half>(0.0f), 16);
        Adds(range[16], high, static_cast<half>(0.0f), 16);
    }

    // The scales of lines along K, 32 of each line, eight copies of each, or 16 of halfs.
    __aicore__ inline void Scales(const GlobalTensor<uint8_t> &scales, uint32_t lines, uint32_t depth, int32_t base)
    {
        uint32_t count = lines * kSpan / kGroup;
        WaitFlag<HardEvent::V_MTE2>(kScaleEvent);
        GetLines(ScaleIn(), scales, lines, depth / kGroup, pairs_ * 2, 127);
        SetFlag<HardEvent::MTE2_V>(kScaleEvent);
        WaitFlag<HardEvent::MTE2_V>(kScaleEvent);
        Cast(Half(kScaleHalfAt, kScales), ScaleIn(), RoundMode::CAST_NONE, count);
        SetFlag<HardEvent::V_MTE2>(kScaleEvent);
        if (narrow_) {
            LocalTensor<int16_t> bits = Int16(kScaleHalfAt, kScales);
            VectorBarrier();
            Cast(bits, Half(kScaleHalfAt, kScales), RoundMode::CAST_RINT, count);
            NarrowScales(bits, count, base);
            Brcb(Half(kSpreadAt, kScales * 16), Half(kScaleHalfAt, kScales), static_cast<uint8_t>(count / 8), {1, 8});
            VectorBarrier();
            return;
        }
        ScaleValues(count);
        Brcb(Float(kSpreadAt, kScales * 8), Float(kScaleAt, kScales), static_cast<uint8_t>(count / 8), {1, 8});
        VectorBarrier();
    }
    // Numbers that are scales to the bits of halfs, relative to 2^base.
    __aicore__ inline static void NarrowScales(const LocalTensor<int16_t> &bits, uint32_t count, int32_t base)
    {
        VectorBarrier();
        // 2^8 for what halfs of codes lack, 15 for the bias of exponents.
        Adds(bits, bits, static_cast<int16_t>(23 - base), static_cast<int32_t>(count));
        VectorBarrier();
        ShiftLeft(bits, bits, static_cast<int16_t>(10), static_cast<int32_t>(count));
        VectorBarrier();
    }
    // Values `k` on of those lines, those at even places, then those at odd ones, as [depth / 16][lines][16].
    __aicore__ inline void AlongLines(const GlobalTensor<uint8_t> &codes, uint32_t lines, uint32_t k, uint32_t depth)
    {
        uint32_t words = lines * depth / 2;
        WaitFlag<HardEvent::V_MTE2>(buffer_);
        GetLines(In(), codes, lines, depth, t_.k, 0);
        SetFlag<HardEvent::MTE2_V>(buffer_);
        WaitFlag<HardEvent::MTE2_V>(buffer_);
        LocalTensor<uint16_t> word = In().ReinterpretCast<uint16_t>();
        LocalTensor<int16_t> bits = Int16(kHalfAt, kCodes);
        int32_t n = static_cast<int32_t>(words);
        ShiftLeft(bits.ReinterpretCast<uint16_t>(), word, static_cast<uint16_t>(8), n);
        if (t_.e5m2 == 0) {
            ShiftRight(bits[words], word.ReinterpretCast<int16_t>(), static_cast<int16_t>(1), n);
            SetFlag<HardEvent::V_MTE2>(buffer_);
            VectorBarrier();
            ShiftRight(bits, bits, static_cast<int16_t>(1), n);
            VectorBarrier();
            Keep(bits, bits, 2 * words);
            VectorBarrier();
            FindNan(2 * words);
        } else {
            Keep(bits[words], word.ReinterpretCast<int16_t>(), words);
            SetFlag<HardEvent::V_MTE2>(buffer_);
            VectorBarrier();
        }
        if (narrow_) {
            // A scale has a block of 16 values at even places and one at odd ones.
            LocalTensor<half> value = Half(kHalfAt, kCodes), to = Out().ReinterpretCast<half>();
            LocalTensor<half> spread = Half(kSpreadAt, kScales * 16)[k / kGroup * 16];
            BinaryRepeatParams each(lines, 1, 1, 1, depth / kGroup, kSpan / kGroup);
            WaitFlag<HardEvent::MTE3_V>(buffer_);
            for (uint32_t i = 0; i < 2; i++) {
                Mul(to[i * words], value[i * words], spread, static_cast<uint64_t>(depth / 2), static_cast<uint8_t>(lines), each);
            }
            SetFlag<HardEvent::V_MTE3>(buffer_);
            WaitFlag<HardEvent::V_MTE3>(buffer_);
            VectorBarrier();
            return;
        }
        LocalTensor<float> wide = Float(kWideAt, kCodes);
        Cast(wide, Half(kHalfAt, kCodes), RoundMode::CAST_NONE, 2 * words);
        VectorBarrier();
        // Blocks of 8 values: a scale has two at even places and two at odd ones.
        uint32_t groups = depth / kGroup, pitch = depth / 2 / 8;
        LocalTensor<float> scale = Float(kSpreadAt, kScales * 8)[k / kGroup * 8];
        BinaryRepeatParams p(2, 2, 1, pitch, pitch, kSpan / kGroup);
        for (uint32_t i = 0; i < 4; i++) {
            LocalTensor<float> part = wide[i / 2 * words + i % 2 * 8];
            Mul(part, part, scale, static_cast<uint64_t>(groups * 8), static_cast<uint8_t>(lines), p);
        }
        WaitFlag<HardEvent::MTE3_V>(buffer_);
        VectorBarrier();
        // 64 values of each line at a time, which are up to 4 blocks of 16.
        UnaryRepeatParams to(lines, 1, 1, pitch);
        for (uint32_t i = 0; i < 2; i++) {
            for (uint32_t at = 0; at < depth / 2; at += 64) {
                Cast(Out()[i * words + at * lines], wide[i * words + at], RoundMode::CAST_RINT,
                     static_cast<uint64_t>(Min(64, depth / 2 - at)), static_cast<uint8_t>(lines), to);
            }
        }
        SetFlag<HardEvent::V_MTE3>(buffer_);
        WaitFlag<HardEvent::V_MTE3>(buffer_);
    }

    // Lines across K, 64 of them with one pair of scales per column, or 32 with the first of it.
    __aicore__ inline void AcrossLines(const GlobalTensor<uint8_t> &codes, const GlobalTensor<uint8_t> &scales, uint32_t lines,
                                       uint32_t columns)
    {
        uint32_t pitch = SlotPitch(columns), count = lines * pitch, even = RoundUp(columns, kFractalRows);
        WaitFlag<HardEvent::V_MTE2>(kScaleEvent);
        GetLines(ScaleIn(), scales, 1, columns * 2, columns * 2, 127);
        SetFlag<HardEvent::MTE2_V>(kScaleEvent);
        WaitFlag<HardEvent::V_MTE2>(buffer_);
        GetLines(In(), codes, lines, columns, t_.n, 0);
        SetFlag<HardEvent::MTE2_V>(buffer_);
        WaitFlag<HardEvent::MTE2_V>(kScaleEvent);
        // The first of each pair, then the second ones.
        LocalTensor<uint16_t> raw = ScaleIn().ReinterpretCast<uint16_t>();
        LocalTensor<uint16_t> apart = Int16(kExtraAt, 2 * kManyColumns).ReinterpretCast<uint16_t>();
        ShiftLeft(apart, raw, static_cast<uint16_t>(8), static_cast<int32_t>(even));
        ShiftRight(apart[kManyColumns], raw, static_cast<uint16_t>(8), static_cast<int32_t>(even));
        SetFlag<HardEvent::V_MTE2>(kScaleEvent);
        VectorBarrier();
        ShiftRight(apart, apart, static_cast<uint16_t>(8), static_cast<int32_t>(even));
        VectorBarrier();
        for (uint32_t i = 0; narrow_ && i < lines / kGroup; i++) {
            NarrowScales(apart.ReinterpretCast<int16_t>()[i * kManyColumns], even, base_[1]);
        }
        for (uint32_t i = 0; !narrow_ && i < lines / kGroup; i++) {
            Cast(Half(kScaleHalfAt, kScales)[i * even], apart.ReinterpretCast<int16_t>()[i * kManyColumns], RoundMode::CAST_NONE, even);
        }
        if (!narrow_) {
            ScaleValues(lines / kGroup * even);
        }
        WaitFlag<HardEvent::MTE2_V>(buffer_);
        Cast(Half(kHalfAt, kCodes), In(), RoundMode::CAST_NONE, count);
        SetFlag<HardEvent::V_MTE2>(buffer_);
        VectorBarrier();
        LocalTensor<int16_t> bits = Int16(kHalfAt, kCodes);
        Cast(bits, Half(kHalfAt, kCodes), RoundMode::CAST_RINT, count);
        VectorBarrier();
        // Of unsigned numbers, since shifts of signed ones keep the sign.
        LocalTensor<uint16_t> word = bits.ReinterpretCast<uint16_t>();
        ShiftLeft(word, word, static_cast<uint16_t>(8), static_cast<int32_t>(count));
        VectorBarrier();
        if (t_.e5m2 == 0) {
            ShiftRight(bits, bits, static_cast<int16_t>(1), static_cast<int32_t>(count));
            VectorBarrier();
            Keep(bits, bits, count);
            VectorBarrier();
            FindNan(count);
        }
        if (narrow_) {
            LocalTensor<half> value = Half(kHalfAt, kCodes), to = Out().ReinterpretCast<half>();
            LocalTensor<half> each = apart.ReinterpretCast<half>();
            BinaryRepeatParams p(1, 1, 1, pitch / 16, pitch / 16, 0);
            WaitFlag<HardEvent::MTE3_V>(buffer_);
            for (uint32_t i = 0; i < lines / kGroup; i++) {
                Mul(to[i * kGroup * pitch], value[i * kGroup * pitch], each[i * kManyColumns], static_cast<uint64_t>(even),
                    static_cast<uint8_t>(kGroup), p);
            }
            SetFlag<HardEvent::V_MTE3>(buffer_);
            WaitFlag<HardEvent::V_MTE3>(buffer_);
            VectorBarrier();
            return;
        }
        LocalTensor<float> wide = Float(kWideAt, kCodes), scale = Float(kScaleAt, kScales);
        Cast(wide, Half(kHalfAt, kCodes), RoundMode::CAST_NONE, count);
        VectorBarrier();
        BinaryRepeatParams p(1, 1, 1, pitch / 8, pitch / 8, 0);
        for (uint32_t i = 0; i < lines / kGroup; i++) {
            for (uint32_t column = 0; column < even; column += 64) {
                LocalTensor<float> part = wide[i * kGroup * pitch + column];
                Mul(part, part, scale[i * even + column], static_cast<uint64_t>(Min(64, even - column)), static_cast<uint8_t>(kGroup), p);
            }
        }
        Narrow(count);
    }

    __aicore__ inline LocalTensor<uint8_t> In() const
    {
        return LocalTensor<uint8_t>(TPosition::VECIN, kInAt + buffer_ * kCodes, kCodes);
    }
    __aicore__ inline LocalTensor<uint8_t> ScaleIn() const
    {
        return LocalTensor<uint8_t>(TPosition::VECIN, kScaleInAt, kScales);
    }
    // Lines of `width` bytes, each filled up to whole blocks of 32 bytes.
    __aicore__ inline static void GetLines(const LocalTensor<uint8_t> &to, const GlobalTensor<uint8_t> &from, uint32_t lines,
                                           uint32_t width, uint32_t pitch, uint8_t fill)
    {
        DataCopyExtParams get{static_cast<uint16_t>(lines), width, pitch - width, 0, 0};
        DataCopyPadExtParams<uint8_t> pad{true, 0, static_cast<uint8_t>(RoundUp(width, 32) - width), fill};
        DataCopyPad(to, from, get, pad);
    }
    // The values of `count` scales, from what they are as numbers in kScaleHalfAt.
    __aicore__ inline void ScaleValues(uint32_t count) const
    {
        LocalTensor<half> number = Half(kScaleHalfAt, kScales);
        LocalTensor<int32_t> bits = Int32(kScaleAt, kScales), extra = Int32(kExtraAt, kScales);
        int32_t n = static_cast<int32_t>(count);
        VectorBarrier();
        Min(Half(kLowestAt, kScales), Half(kLowestAt, kScales), number, n);
        Max(Half(kHighestAt, kScales), Half(kHighestAt, kScales), number, n);
        Cast(bits, number, RoundMode::CAST_RINT, count);
        VectorBarrier();
        Adds(extra, bits, 1, n);
        ShiftLeft(bits, bits, 23, n);
        VectorBarrier();
        // 255 alone becomes 1: what makes its infinity a NaN.
        ShiftRight(extra, extra, 8, n);
        VectorBarrier();
        ShiftLeft(extra, extra, 22, n);
        VectorBarrier();
        Add(bits, bits, extra, n);
        VectorBarrier();
        // 0 is 2^-127, a subnormal number.
        Maxs(bits, bits, 0x400000, n);
        VectorBarrier();
        if (t_.e5m2 == 0) {
            LocalTensor<float> scale = Float(kScaleAt, kScales);
            Muls(scale, scale, 256.0f, n);
            VectorBarrier();
        }
    }
    // Makes NaN what was one: it is now 1.875, and numbers are at most 1.75. Times 36032, NaN alone is infinite, and that
    // times 0 is NaN.
    __aicore__ inline void FindNan(uint32_t count) const
    {
        if (t_.clean == 0) {
            LocalTensor<half> value = Half(kHalfAt, kCodes), large = Half(kWideAt, kCodes);
            Muls(large, value, static_cast<half>(36032.0f), static_cast<int32_t>(count));
            VectorBarrier();
            Axpy(value, large, static_cast<half>(0.0f), static_cast<int32_t>(count));
            VectorBarrier();
        }
    }
    // The bits that are kept of `count` words.
    __aicore__ inline static void Keep(const LocalTensor<int16_t> &to, const LocalTensor<int16_t> &from, uint32_t count)
    {
        LocalTensor<int16_t> keep = Int16(kKeepAt, 16);
        BinaryRepeatParams p(1, 1, 0, 8, 8, 0);
        uint32_t whole = count / 128, rest = count % 128;
        if (whole != 0) {
            And(to, from, keep, static_cast<uint64_t>(128), static_cast<uint8_t>(whole), p);
        }
        if (rest != 0) {
            And(to[whole * 128], from[whole * 128], keep, static_cast<uint64_t>(rest), static_cast<uint8_t>(1), p);
        }
    }
    __aicore__ inline void Narrow(uint32_t count) const
    {
        WaitFlag<HardEvent::MTE3_V>(buffer_);
        VectorBarrier();
        Cast(Out(), Float(kWideAt, kCodes), RoundMode::CAST_RINT, count);
        SetFlag<HardEvent::V_MTE3>(buffer_);
        WaitFlag<HardEvent::V_MTE3>(buffer_);
    }

    // Whether all scales left every value of a code a normal number that BF16 holds. Waits for all that was issued before.
    __aicore__ inline bool ScalesAreExact() const
    {
        LocalTensor<half> lowest = Half(kLowestAt, kScales), highest = Half(kHighestAt, kScales);
        for (uint32_t n = kScales / 2; n >= 16; n /= 2) {
            VectorBarrier();
            Min(lowest, lowest, lowest[n], static_cast<int32_t>(n));
            Max(highest, highest, highest[n], static_cast<int32_t>(n));
        }
        SetFlag<HardEvent::V_S>(0);
        WaitFlag<HardEvent::V_S>(0);
        // Bits of positive numbers are in the order of the numbers: 10 to 246, or 17 to 239.
        uint16_t least = t_.e5m2 == 0 ? 0x4900 : 0x4c40, most = t_.e5m2 == 0 ? 0x5bb0 : 0x5b78;
        LocalTensor<uint16_t> low = lowest.ReinterpretCast<uint16_t>(), high = highest.ReinterpretCast<uint16_t>();
        bool exact = true;
        for (uint32_t i = 0; i < 16; i++) {
            exact = exact && low.GetValue(i) >= least && high.GetValue(i) <= most;
        }
        return exact;
    }

    FinalizeTiling t_;
    GlobalTensor<uint8_t> x_, xScale_, w_, wScale_;
    GlobalTensor<bfloat16_t> wideX_, ring_;
    uint32_t pairs_ = 0, used_ = 0;
    int32_t buffer_ = 0;
    bool narrow_ = false;
    int32_t base_[2] = {0, 0}; // of the scales of activations and weights, which halfs are relative to
    float factor_ = 1.0f;
};

// The cube's part.
template <template <class> class Part> __aicore__ inline void RunCube(const Arguments &a)
{
    CrossCoreWaitFlag<2, PIPE_MTE2>(kReadyToCube);
    bool narrow = false;
    if (MayNarrow(a.t)) {
        GlobalTensor<uint32_t> decision;
        decision.SetGlobalBuffer(reinterpret_cast<__gm__ uint32_t *>(a.workspace + a.t.decisions), a.cores * kDecisionWords);
        GlobalTensor<uint32_t> mine = decision[a.core * kDecisionWords];
        DataCacheCleanAndInvalid<uint32_t, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(mine);
        narrow = mine.GetValue(0) != 0;
    }
    if (narrow) {
        Part<half> part;
        part.Run(a);
    } else {
        Part<bfloat16_t> part;
        part.Run(a);
    }
}

} // namespace arch
} // namespace finalize

#endif
