// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What differs on dav-3510 (950): the left operand lies in L0A as it does in L1, vector instructions are ordered, and
// the cube core writes into the memories of its vector cores.

#ifndef GROUPED_GEMM_ARCH_3510_H
#define GROUPED_GEMM_ARCH_3510_H

#include "common.h"

namespace moe {
namespace arch {

constexpr uint32_t kL1Bytes = 512 * 1024;
constexpr uint32_t kL0CBytes = 256 * 1024;
constexpr uint32_t kUbBytes = 248 * 1024;

// Rows [rows16 * 16] x columns [steps * 16], the fractals of `from` column by column, `rows16` in each.
__aicore__ inline void LoadLeft(const LocalTensor<bfloat16_t> &to, const LocalTensor<bfloat16_t> &from, uint32_t rows16,
                                uint32_t step, uint32_t steps)
{
    LoadData2DParamsV2 p;
    p.kStartPosition = step;
    p.mStep = static_cast<uint16_t>(rows16);
    p.kStep = static_cast<uint16_t>(steps);
    p.srcStride = static_cast<int32_t>(rows16);
    p.dstStride = static_cast<uint16_t>(rows16);
    LoadData(to, from, p);
}

// Columns [blocks * 16] x depth [steps * 16], the fractals of `from` block by block, `depth16` in each.
__aicore__ inline void LoadRight(const LocalTensor<bfloat16_t> &to, const LocalTensor<bfloat16_t> &from, uint32_t blocks,
                                 uint32_t depth16, uint32_t step, uint32_t steps, bool transpose)
{
    for (uint32_t j = 0; j < steps; j++) {
        LoadData2DParamsV2 p;
        p.mStartPosition = step + j;
        p.mStep = 1;
        p.kStep = static_cast<uint16_t>(blocks);
        p.srcStride = static_cast<int32_t>(depth16);
        p.dstStride = 1;
        p.ifTranspose = transpose;
        LoadData(to[j * blocks * kFractal], from, p);
    }
}

// A whole tile of the result, or a part of it, rounded.
__aicore__ inline void Round(const GlobalTensor<bfloat16_t> &to, uint32_t pitch, const LocalTensor<float> &from, uint32_t rows,
                             uint32_t padded, uint32_t columns)
{
    FixpipeParamsArch3510<CO2Layout::ROW_MAJOR> f;
    f.nSize = static_cast<uint16_t>(columns);
    f.mSize = static_cast<uint16_t>(rows);
    f.srcStride = static_cast<uint16_t>(padded);
    f.dstStride = pitch;
    f.quantPre = F322BF16;
    Fixpipe<bfloat16_t, float, CFG_ROW_MAJOR>(to, from, f);
}

__aicore__ inline void VectorBarrier() {}

// Where things lie in UB: slots of gate and up first.
constexpr uint32_t kSlots = 2;
constexpr uint32_t kPartBytes = 32 * 1024; // gate, or up, of half of the rows of a tile
constexpr uint32_t kTempAt = kSlots * 2 * kPartBytes;
constexpr uint32_t kRoundedAt = kTempAt + 2 * kSliceBytes; // two buffers
constexpr uint16_t kSecond = 16; // to the flags of the second vector core
constexpr FixpipeConfig kToUb = {CO2Layout::ROW_MAJOR, true};

__aicore__ inline LocalTensor<float> Part(uint32_t slot, uint32_t part)
{
    return LocalTensor<float>(TPosition::VECCALC, (2 * slot + part) * kPartBytes, kPartBytes / sizeof(float));
}

// Tiles of gate and up on their way from the cube core to its vector cores, half of the rows to each.
class Outbox {
public:
    __aicore__ inline void Init(const Arguments &) {}
    __aicore__ inline void Send(const Tile &t, const LocalTensor<float> &sum)
    {
        const uint32_t columns = t.blocks * kC0, slot = sent_ % kSlots;
        if (sent_ >= kSlots) {
            Wait();
        }
        FixpipeParamsArch3510<CO2Layout::ROW_MAJOR> f;
        f.nSize = static_cast<uint16_t>(columns);
        f.mSize = static_cast<uint16_t>(t.padded);
        f.srcStride = static_cast<uint16_t>(t.padded);
        f.dstStride = columns;
        f.dualDstCtl = 1;
        Fixpipe<float, float, kToUb>(Part(slot, 0), sum, f);
        Fixpipe<float, float, kToUb>(Part(slot, 1), sum[t.padded * columns], f);
        CrossCoreSetFlag<4, PIPE_FIX>(kTileFull);
        CrossCoreSetFlag<4, PIPE_FIX>(kTileFull + kSecond);
        sent_++;
    }
    __aicore__ inline void Drain()
    {
        for (uint32_t i = 0; i < Min(sent_, kSlots); i++) {
            Wait();
        }
    }

private:
    __aicore__ inline static void Wait()
    {
        CrossCoreWaitFlag<4, PIPE_FIX>(kTileFree);
        CrossCoreWaitFlag<4, PIPE_FIX>(kTileFree + kSecond);
    }
    uint32_t sent_ = 0;
};

// The other end.
class Inbox {
public:
    __aicore__ inline void Init(const Arguments &, uint32_t half) { half_ = half; }
    // Waits for a tile, and says which rows are this core's.
    __aicore__ inline void Open(const Tile &t, uint32_t &begin, uint32_t &rows)
    {
        CrossCoreWaitFlag<4, PIPE_V>(kTileFull);
        const uint32_t share = t.padded / 2;
        begin = half_ * share;
        rows = Min(t.rows > begin ? t.rows - begin : 0, share);
        if (rows == 0) {
            CrossCoreSetFlag<4, PIPE_V>(kTileFree);
        }
    }
    // Rows from `at` on, of this core's.
    __aicore__ inline void Get(LocalTensor<float> &gate, LocalTensor<float> &up, uint32_t at, uint32_t, uint32_t columns, bool)
    {
        gate = Part(taken_ % kSlots, 0)[at * columns];
        up = Part(taken_ % kSlots, 1)[at * columns];
    }
    // Gate and up of the slice were used.
    __aicore__ inline void Put(bool last)
    {
        if (last) {
            CrossCoreSetFlag<4, PIPE_V>(kTileFree);
        }
    }
    __aicore__ inline void Close() { taken_++; }
    __aicore__ inline void Drain() {}

private:
    uint32_t half_ = 0, taken_ = 0;
};

// FP8 weights: vector cores write the stages into L1.
constexpr bool kPaired = false;
constexpr float kUnit = 1.0f;
// Codes and powers of two are exact in BF16, and so are their products: 8 rows of 16 columns at a time, over all groups
// of 32 rows.
constexpr bool kScaleRounded = true;
__aicore__ inline void ScaleRounded(const LocalTensor<bfloat16_t> &codes, const LocalTensor<bfloat16_t> &scales, uint32_t count)
{
    const BinaryRepeatParams r(1, 1, 0, 32, 32, 1);
    const uint32_t whole = count / (2 * kFractal), rest = count % (2 * kFractal);
    for (uint32_t at = 0; at < 2 * kFractal; at += 128) {
        const uint32_t repeats = whole + (at < rest ? 1 : 0);
        if (repeats != 0) {
            Mul(codes[at], codes[at], scales, static_cast<uint64_t>(128), static_cast<uint8_t>(repeats), r);
        }
    }
}
constexpr uint32_t kWeightsAt = kRoundedAt + kSliceBytes + 16 * 1024;

// The cube core's end.
class WeightsGate {
public:
    static constexpr bool kCopies = false;
    __aicore__ inline void Init(const Arguments &) {}
    __aicore__ inline void Take(const LocalTensor<bfloat16_t> &, uint32_t, uint32_t, const LocalTensor<half> &, uint32_t) {}
    // Waits until both have written a stage.
    __aicore__ inline void Wait()
    {
        CrossCoreWaitFlag<4, PIPE_MTE1>(kWeightsFull);
        CrossCoreWaitFlag<4, PIPE_MTE1>(kWeightsFull + kSecond);
    }
    __aicore__ inline void Free()
    {
        CrossCoreSetFlag<4, PIPE_MTE1>(kWeightsFree);
        CrossCoreSetFlag<4, PIPE_MTE1>(kWeightsFree + kSecond);
    }
};

// A vector core's end.
class WeightsPort {
public:
    __aicore__ inline void Init(const Arguments &, uint32_t) {}
    __aicore__ inline void Open()
    {
        if (count_ >= kStages) {
            CrossCoreWaitFlag<4, PIPE_MTE3>(kWeightsFree);
        }
    }
    __aicore__ inline void Put(uint32_t to, const LocalTensor<bfloat16_t> &from, uint32_t count)
    {
        const LocalTensor<bfloat16_t> stage(TPosition::A1, kRowBytes + count_ % kStages * kStageBytes,
                                            kStageBytes / sizeof(bfloat16_t));
        DataCopy(stage[to], from, count);
    }
    __aicore__ inline void PutSteps(uint32_t, const LocalTensor<half> &, uint32_t, uint32_t) {}
    __aicore__ inline void PutTile(uint32_t, const LocalTensor<half> &) {}
    __aicore__ inline void Close()
    {
        CrossCoreSetFlag<4, PIPE_MTE3>(kWeightsFull);
        count_++;
    }
    __aicore__ inline void Drain()
    {
        for (uint32_t i = 0; i < Min(count_, kStages); i++) {
            CrossCoreWaitFlag<4, PIPE_MTE3>(kWeightsFree);
        }
    }

private:
    uint32_t count_ = 0;
};

// Codes of E4M3 as F32 numbers.
__aicore__ inline void Decode(const LocalTensor<float> &to, const LocalTensor<uint8_t> &code, uint32_t count, uint32_t, uint32_t, bool)
{
    Cast(to, code.ReinterpretCast<fp8_e4m3fn_t>(), RoundMode::CAST_NONE, static_cast<int32_t>(count));
}

// The cube core does not scale: its vector cores are fast enough.
constexpr bool kScales = false;
constexpr uint32_t kPiece = 64, kStep = 32, kTileBytes = 1024;
constexpr uint32_t kCodedL0Bytes = 32 * 1024;
constexpr uint32_t kCodedSumBytes = kL0CBytes / 2;
class Scaler {
public:
    __aicore__ inline void Init(uint32_t) {}
    __aicore__ inline void Drain() {}
    __aicore__ inline bool HasRoom() const { return false; }
    __aicore__ inline static LocalTensor<half> Tile(uint32_t, uint32_t) { return LocalTensor<half>(); }
    __aicore__ inline void Scale(const LocalTensor<half> &, uint32_t, uint32_t, uint32_t, const LocalTensor<half> &, uint32_t, bool) {}
    __aicore__ inline void Load(const LocalTensor<bfloat16_t> &, uint32_t, uint32_t) {}
};
__aicore__ inline LocalTensor<half> Unpack(const LocalTensor<uint8_t> &, uint32_t, uint32_t, uint32_t) { return LocalTensor<half>(); }
__aicore__ inline void MakeUnit(const LocalTensor<half> &) {}

} // namespace arch
} // namespace moe

#endif
