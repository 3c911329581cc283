// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What differs on dav-2201 (A2, A3): the left operand lies row by row in L0A, vector instructions that depend on each
// other need a barrier, and cube and vector cores meet in device memory alone.

#ifndef GROUPED_GEMM_ARCH_2201_H
#define GROUPED_GEMM_ARCH_2201_H

#include "common.h"

namespace moe {
namespace arch {

constexpr uint32_t kL1Bytes = 512 * 1024 - 256;
constexpr uint32_t kL0CBytes = 128 * 1024;
constexpr uint32_t kUbBytes = 184 * 1024 - 256;

// Rows [rows16 * 16] x columns [steps * 16], the fractals of `from` column by column, `rows16` in each.
__aicore__ inline void LoadLeft(const LocalTensor<bfloat16_t> &to, const LocalTensor<bfloat16_t> &from, uint32_t rows16,
                                uint32_t step, uint32_t steps)
{
    for (uint32_t i = 0; i < rows16; i++) {
        LoadData2DParams p;
        p.startIndex = static_cast<uint16_t>(step * rows16 + i);
        p.repeatTimes = static_cast<uint8_t>(steps);
        p.srcStride = static_cast<uint16_t>(rows16);
        LoadData(to[i * steps * kFractal], from, p);
    }
}

// Columns [blocks * 16] x depth [steps * 16], the fractals of `from` block by block, `depth16` in each.
__aicore__ inline void LoadRight(const LocalTensor<bfloat16_t> &to, const LocalTensor<bfloat16_t> &from, uint32_t blocks,
                                 uint32_t depth16, uint32_t step, uint32_t steps, bool transpose)
{
    for (uint32_t j = 0; j < steps; j++) {
        LoadData2DParams p;
        p.startIndex = static_cast<uint16_t>(step + j);
        p.repeatTimes = static_cast<uint8_t>(blocks);
        p.srcStride = static_cast<uint16_t>(depth16);
        p.ifTranspose = transpose;
        LoadData(to[j * blocks * kFractal], from, p);
    }
}

// A whole tile of the result, or a part of it, rounded.
__aicore__ inline void Round(const GlobalTensor<bfloat16_t> &to, uint32_t pitch, const LocalTensor<float> &from, uint32_t rows,
                             uint32_t padded, uint32_t columns)
{
    FixpipeParamsV220 f;
    f.nSize = static_cast<uint16_t>(columns);
    f.mSize = static_cast<uint16_t>(rows);
    f.srcStride = static_cast<uint16_t>(padded);
    f.dstStride = pitch;
    f.quantPre = F322BF16;
    Fixpipe<bfloat16_t, float, CFG_ROW_MAJOR>(to, from, f);
}

__aicore__ inline void VectorBarrier() { PipeBarrier<PIPE_V>(); }

__aicore__ inline GlobalTensor<float> Slots(const Arguments &a)
{
    GlobalTensor<float> slots;
    const uint64_t pitch = a.t.ring_pitch / sizeof(float);
    slots.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(a.workspace + a.t.ring) + a.core * pitch, pitch);
    return slots;
}

// Tiles of gate and up on their way from the cube core to its vector cores: [rows][gate | up] F32 in a slot in memory.
class Outbox {
public:
    __aicore__ inline void Init(const Arguments &a)
    {
        slots_ = Slots(a);
        slot_ = a.t.ring_slot / sizeof(float);
        count_ = a.t.ring_slots;
    }
    __aicore__ inline void Send(const Tile &t, const LocalTensor<float> &sum)
    {
        const uint32_t columns = 2 * t.blocks * kC0;
        if (sent_ >= count_) {
            CrossCoreWaitFlag<2, PIPE_FIX>(kTileFree);
        }
        FixpipeParamsV220 f;
        f.nSize = static_cast<uint16_t>(columns);
        f.mSize = static_cast<uint16_t>(t.rows);
        f.srcStride = static_cast<uint16_t>(t.padded);
        f.dstStride = columns;
        Fixpipe<float, float, CFG_ROW_MAJOR>(slots_[sent_ % count_ * slot_], sum, f);
        CrossCoreSetFlag<2, PIPE_FIX>(kTileFull);
        sent_++;
    }
    __aicore__ inline void Drain()
    {
        for (uint32_t i = 0; i < Min(sent_, count_); i++) {
            CrossCoreWaitFlag<2, PIPE_FIX>(kTileFree);
        }
    }

private:
    GlobalTensor<float> slots_;
    uint32_t slot_ = 0, count_ = 0, sent_ = 0;
};

// Where things lie in UB.
constexpr uint32_t kGateAt = 0; // two buffers of each
constexpr uint32_t kUpAt = kGateAt + 2 * kSliceBytes;
constexpr uint32_t kTempAt = kUpAt + 2 * kSliceBytes;
constexpr uint32_t kRoundedAt = kTempAt + 2 * kSliceBytes; // two buffers

// The other end: a vector core takes half of the rows, slice by slice.
class Inbox {
public:
    __aicore__ inline void Init(const Arguments &a, uint32_t half)
    {
        slots_ = Slots(a);
        slot_ = a.t.ring_slot / sizeof(float);
        count_ = a.t.ring_slots;
        half_ = half;
        for (int32_t i = 0; i < 2; i++) {
            SetFlag<HardEvent::V_MTE2>(i);
        }
    }
    // Waits for a tile, and says which rows are this core's.
    __aicore__ inline void Open(const Tile &t, uint32_t &begin, uint32_t &rows)
    {
        CrossCoreWaitFlag<2, PIPE_MTE2>(kTileFull);
        const uint32_t first = Ceil(t.rows, 2);
        begin_ = half_ == 0 ? 0 : first;
        rows = half_ == 0 ? first : t.rows - first;
        begin = begin_;
        if (rows == 0) {
            CrossCoreSetFlag<2, PIPE_MTE2>(kTileFree);
        }
    }
    // Rows from `at` on, of this core's.
    __aicore__ inline void Get(LocalTensor<float> &gate, LocalTensor<float> &up, uint32_t at, uint32_t rows, uint32_t columns, bool last)
    {
        const int32_t b = static_cast<int32_t>(buffer_);
        gate = LocalTensor<float>(TPosition::VECCALC, kGateAt + buffer_ * kSliceBytes, kSliceBytes / sizeof(float));
        up = LocalTensor<float>(TPosition::VECCALC, kUpAt + buffer_ * kSliceBytes, kSliceBytes / sizeof(float));
        const GlobalTensor<float> from = slots_[taken_ % count_ * slot_ + static_cast<uint64_t>(begin_ + at) * 2 * columns];
        DataCopyParams d;
        d.blockCount = static_cast<uint16_t>(rows);
        d.blockLen = static_cast<uint16_t>(columns * sizeof(float) / 32);
        d.srcGap = d.blockLen;
        d.dstGap = 0;
        WaitFlag<HardEvent::V_MTE2>(b);
        DataCopy(gate, from, d);
        DataCopy(up, from[columns], d);
        SetFlag<HardEvent::MTE2_V>(b);
        if (last) {
            CrossCoreSetFlag<2, PIPE_MTE2>(kTileFree);
        }
        WaitFlag<HardEvent::MTE2_V>(b);
    }
    // Gate and up of the slice were used.
    __aicore__ inline void Put(bool)
    {
        SetFlag<HardEvent::V_MTE2>(static_cast<int32_t>(buffer_));
        buffer_ ^= 1;
    }
    __aicore__ inline void Close() { taken_++; }
    __aicore__ inline void Drain()
    {
        for (int32_t i = 0; i < 2; i++) {
            WaitFlag<HardEvent::V_MTE2>(i);
        }
    }

private:
    GlobalTensor<float> slots_;
    uint32_t slot_ = 0, count_ = 0, taken_ = 0, half_ = 0, begin_ = 0, buffer_ = 0;
};

// FP8 weights pass through memory: stages in a ring of each core, which the cube core copies into L1.
constexpr bool kPaired = true; // bytes of codes: element i of a fractal beside element 128 + i
constexpr float kUnit = 256.0f; // of decoded codes
constexpr bool kScaleRounded = false; // there is no BF16 product
__aicore__ inline void ScaleRounded(const LocalTensor<bfloat16_t> &, const LocalTensor<bfloat16_t> &, uint32_t) {}
constexpr uint32_t kWeightsAt = kRoundedAt + kSliceBytes;
constexpr uint32_t kTileBytes = 1024; // two diagonals of 16 x 16, for what scale_2201.h tells of
constexpr uint32_t kStageTiles = 2; // a stage has: gate and up, or two blocks of K
constexpr uint32_t kRingStage = (kStageBytes + kStageTiles * kTileBytes) / sizeof(bfloat16_t);

__aicore__ inline GlobalTensor<bfloat16_t> WeightsRing(const Arguments &a)
{
    GlobalTensor<bfloat16_t> ring;
    const uint64_t pitch = kStages * kRingStage + 512 / sizeof(bfloat16_t);
    ring.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(a.workspace + a.t.weights) + a.core * pitch, pitch);
    return ring;
}

// The cube core's end.
class WeightsGate {
public:
    static constexpr bool kCopies = true;
    __aicore__ inline void Init(const Arguments &a) { ring_ = WeightsRing(a); }
    // Copies a stage as soon as it is there, and its diagonals if it has any.
    __aicore__ inline void Take(const LocalTensor<bfloat16_t> &to, uint32_t stage, uint32_t count, const LocalTensor<half> &diagonals,
                                uint32_t tiles)
    {
        CrossCoreWaitFlag<2, PIPE_MTE2>(kWeightsFull);
        const GlobalTensor<bfloat16_t> from = ring_[stage * kRingStage];
        DataCopy(to, from, count);
        if (tiles != 0) {
            DataCopy(diagonals.ReinterpretCast<bfloat16_t>(), from[kStageBytes / sizeof(bfloat16_t)],
                     tiles * kTileBytes / sizeof(bfloat16_t));
        }
        CrossCoreSetFlag<2, PIPE_MTE2>(kWeightsFree);
    }
    __aicore__ inline void Wait() {}
    __aicore__ inline void Free() {}

private:
    GlobalTensor<bfloat16_t> ring_;
};

// A vector core's end.
class WeightsPort {
public:
    __aicore__ inline void Init(const Arguments &a, uint32_t) { ring_ = WeightsRing(a); }
    __aicore__ inline void Open()
    {
        if (count_ >= kStages) {
            CrossCoreWaitFlag<2, PIPE_MTE3>(kWeightsFree);
        }
    }
    __aicore__ inline void Put(uint32_t to, const LocalTensor<bfloat16_t> &from, uint32_t count)
    {
        DataCopy(ring_[count_ % kStages * kRingStage + to], from, count);
    }
    // `steps` steps of 32 of K of one block of columns of `blocks`.
    __aicore__ inline void PutSteps(uint32_t to, const LocalTensor<half> &from, uint32_t steps, uint32_t blocks)
    {
        DataCopyParams d;
        d.blockCount = static_cast<uint16_t>(steps);
        d.blockLen = 2 * kFractal * sizeof(half) / 32;
        d.srcGap = 0;
        d.dstGap = static_cast<uint16_t>((blocks - 1) * d.blockLen);
        DataCopy(ring_[count_ % kStages * kRingStage + to], from.ReinterpretCast<bfloat16_t>(), d);
    }
    __aicore__ inline void PutTile(uint32_t tile, const LocalTensor<half> &from)
    {
        DataCopy(ring_[count_ % kStages * kRingStage + (kStageBytes + tile * kTileBytes) / sizeof(bfloat16_t)],
                 from.ReinterpretCast<bfloat16_t>(), kTileBytes / sizeof(bfloat16_t));
    }
    __aicore__ inline void Close()
    {
        CrossCoreSetFlag<2, PIPE_MTE3>(kWeightsFull);
        count_++;
    }
    __aicore__ inline void Drain()
    {
        for (uint32_t i = 0; i < Min(count_, kStages); i++) {
            CrossCoreWaitFlag<2, PIPE_MTE3>(kWeightsFree);
        }
    }

private:
    GlobalTensor<bfloat16_t> ring_;
    uint32_t count_ = 0;
};

// Codes of E4M3 as half numbers, in units of 2^-8: a half has the same fields, with three more bits of exponent and seven
// more of fraction.
__aicore__ inline LocalTensor<half> Unpack(const LocalTensor<uint8_t> &code, uint32_t count, uint32_t halfAt, uint32_t maskAt)
{
    const LocalTensor<int16_t> words = code.ReinterpretCast<int16_t>();
    const LocalTensor<int16_t> halves(TPosition::VECCALC, halfAt, kWeights);
    const LocalTensor<int16_t> mask(TPosition::VECCALC, maskAt, 128);
    const uint8_t fractals = static_cast<uint8_t>(count / kFractal);
    const uint64_t lanes = 128;
    ShiftLeft(halves.ReinterpretCast<uint16_t>(), words.ReinterpretCast<uint16_t>(), static_cast<uint16_t>(8), lanes, fractals,
              UnaryRepeatParams(1, 1, 16, 8));
    ShiftRight(halves[128], words, static_cast<int16_t>(1), lanes, fractals, UnaryRepeatParams(1, 1, 16, 8));
    VectorBarrier();
    ShiftRight(halves, halves, static_cast<int16_t>(1), lanes, fractals, UnaryRepeatParams(1, 1, 16, 16));
    VectorBarrier();
    And(halves, halves, mask, lanes, static_cast<uint8_t>(2 * fractals), BinaryRepeatParams(1, 1, 1, 8, 8, 0));
    VectorBarrier();
    return halves.ReinterpretCast<half>();
}

// Codes as F32 numbers. `nan`: there may be NaN codes, which unpack to 480; `to` serves as scratch memory then.
__aicore__ inline void Decode(const LocalTensor<float> &to, const LocalTensor<uint8_t> &code, uint32_t count, uint32_t halfAt,
                              uint32_t maskAt, bool nan)
{
    const LocalTensor<half> halves = Unpack(code, count, halfAt, maskAt);
    if (nan) {
        const LocalTensor<half> size = to.ReinterpretCast<half>();
        const LocalTensor<uint8_t> isNumber = to[kWeights / 2].ReinterpretCast<uint8_t>();
        Abs(size, halves, static_cast<int32_t>(count));
        VectorBarrier();
        CompareScalar(isNumber, size, static_cast<half>(480.0f / 256.0f), CMPMODE::NE, count);
        // 0 / 0: a constant that is no number need not be one on every compiler.
        Duplicate(size, static_cast<half>(0.0f), static_cast<int32_t>(count));
        VectorBarrier();
        Div(size, size, size, static_cast<int32_t>(count));
        VectorBarrier();
        Select(halves, isNumber, halves, size, SELMODE::VSEL_TENSOR_TENSOR_MODE, count);
        VectorBarrier();
    }
    Cast(to, halves, RoundMode::CAST_NONE, static_cast<int32_t>(count));
}

} // namespace arch
} // namespace moe

#include "scale_2201.h"

#endif
