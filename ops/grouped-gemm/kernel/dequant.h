// SPDX-License-Identifier: MIT OR Apache-2.0
//
// FP8 weights. The vector cores read bytes, multiply them by their scales, round once to BF16 and hand whole stages to
// the cube core, half of the columns each: what the cube core would have copied had the weights been BF16. They follow the
// same order of tiles and stages.

#ifndef GROUPED_GEMM_DEQUANT_H
#define GROUPED_GEMM_DEQUANT_H

#include "common.h"

namespace moe {

// Where things lie in UB, behind the activation's.
constexpr uint32_t kCodeAt = arch::kWeightsAt; // two buffers of a slice
constexpr uint32_t kHalfAt = kCodeAt + 2 * kWeights; // decoded, and the mask
constexpr uint32_t kMaskAt = kHalfAt + (arch::kPaired ? kWeights * sizeof(half) : 0);
constexpr uint32_t kBrainAt = kMaskAt + (arch::kPaired ? 256 : 0); // two buffers
constexpr uint32_t kGroupAt = kBrainAt + 2 * kWeights * sizeof(bfloat16_t); // two buffers of scales of groups, as they come
constexpr uint32_t kGroups = kWeights / 32; // scales of a slice
constexpr uint32_t kGroupFloatAt = kGroupAt + 2 * kGroups * sizeof(bfloat16_t);
constexpr uint32_t kUnitAt = kGroupFloatAt + kGroups * sizeof(float); // a unit matrix, and two diagonals made of it
constexpr uint32_t kDiagonalsAt = kUnitAt + (arch::kScales ? kFractal * sizeof(half) : 0);
static_assert(kDiagonalsAt + (arch::kScales ? arch::kTileBytes : 0) <= arch::kUbBytes, "UB");
// F32 numbers lie where the activation has its temporary ones, and in the part behind it that is left for them.
constexpr uint32_t kFloatAt = arch::kTempAt;

class Dequantiser {
public:
    __aicore__ inline void Init(const Arguments &a, uint32_t half)
    {
        a_ = a;
        half_ = half;
        port_.Init(a, half);
        for (int32_t i = 2; i < 4; i++) {
            SetFlag<HardEvent::V_MTE2>(i);
            SetFlag<HardEvent::MTE3_V>(i);
        }
        if (arch::kPaired) {
            Duplicate(LocalTensor<int16_t>(TPosition::VECCALC, kMaskAt, 128), static_cast<int16_t>(0xbf80), 128);
            arch::VectorBarrier();
        }
        if (arch::kScales) {
            arch::MakeUnit(Unit());
            SetFlag<HardEvent::MTE3_V>(kDiagonals);
        }
    }
    __aicore__ inline void SetWeights(const Product &p)
    {
        codes_.SetGlobalBuffer(reinterpret_cast<__gm__ uint8_t *>(p.codes), a_.t.experts * Codes(p));
        codes_.SetL2CacheHint(CacheMode::CACHE_MODE_DISABLE);
        pitch_ = ScaleBytes(a_, p);
        const uint64_t bytes = a_.t.experts * pitch_;
        blocks_.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(p.scales), bytes / sizeof(float));
        groups_.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(p.scales), bytes / sizeof(bfloat16_t));
        halves_.SetGlobalBuffer(reinterpret_cast<__gm__ half *>(p.scales), bytes / sizeof(half));
        ways_.Init(a_, p);
    }
    // What the products of an expert lack; 1 where that is nothing.
    __aicore__ inline float Lacks(uint32_t expert)
    {
        const float unit = arch::kScales ? ways_.First(expert) : 0.0f;
        return unit == 0.0f ? 1.0f : unit;
    }
    // All stages of a tile.
    __aicore__ inline void Decode(const Product &p, const Tile &t)
    {
        const uint32_t stage = t.narrow ? p.fewStage : p.stage;
        const float unit = ways_.First(t.expert), second = ways_.Second(t.expert);
        nan_ = second != 0.0f;
        if (arch::kScales && unit != 0.0f) {
            for (uint32_t k = 0; k < p.depth; k += stage) {
                ScaledStage(p, t, k, RoundUp(Min(stage, p.depth - k), arch::kStep), static_cast<half>(second));
            }
            return;
        }
        for (uint32_t k = 0; k < p.depth; k += stage) {
            Stage(p, t, k, Min(stage, p.depth - k));
        }
    }
    __aicore__ inline void Drain()
    {
        port_.Drain();
        for (int32_t i = 2; i < 4; i++) {
            WaitFlag<HardEvent::V_MTE2>(i);
            WaitFlag<HardEvent::MTE3_V>(i);
        }
        if (arch::kScales) {
            WaitFlag<HardEvent::MTE3_V>(kDiagonals);
        }
    }

private:
    static constexpr int32_t kDiagonals = 4; // event

    __aicore__ inline static LocalTensor<half> Unit() { return LocalTensor<half>(TPosition::VECCALC, kUnitAt, kFractal); }

    // A stage for the cube core to scale: numbers and, for each block of scales, diagonals.
    __aicore__ inline void ScaledStage(const Product &p, const Tile &t, uint32_t k, uint32_t depth, half factor)
    {
        const uint32_t fractals = depth / kC0, columns16 = Parts(p) * t.blocks, first = Ceil(columns16, 2);
        const uint32_t begin = half_ == 0 ? 0 : first, end = half_ == 0 ? first : columns16, deep = Ceil(depth, 128);
        port_.Open();
        for (uint32_t tile = half_; tile < Parts(p) * deep; tile += 2) {
            Diagonals(p, t, tile / deep, k / 128 + tile % deep, tile, factor);
        }
        const uint32_t most = Max(kWeights / (fractals * kFractal), 1);
        for (uint32_t c = begin; c < end;) {
            const uint32_t part = c / t.blocks, now = Min(Min(most, end - c), (part + 1) * t.blocks - c);
            ScaledSlice(p, t, part, c % t.blocks, now, k, depth);
            c += now;
        }
        port_.Close();
    }

    // The diagonals of one block of scales: the scale of a block and what that leaves, or one factor for all groups.
    __aicore__ inline void Diagonals(const Product &p, const Tile &t, uint32_t part, uint32_t block, uint32_t tile, half factor)
    {
        const LocalTensor<half> to(TPosition::VECCALC, kDiagonalsAt, arch::kTileBytes / sizeof(half));
        half rest = factor;
        if (a_.t.scale_kind == 0) {
            const uint64_t at = Scale(p, t.expert, part, t.block, 128 * block);
            factor = halves_.GetValue(2 * at);
            rest = halves_.GetValue(2 * at + 1);
        }
        WaitFlag<HardEvent::MTE3_V>(kDiagonals);
        // One factor serves many stages.
        if (a_.t.scale_kind == 0 || static_cast<float>(factor) != factor_) {
            factor_ = static_cast<float>(factor);
            Muls(to, Unit(), factor, static_cast<int32_t>(kFractal));
            Muls(to[kFractal], Unit(), rest, static_cast<int32_t>(kFractal));
            SetFlag<HardEvent::V_MTE3>(kDiagonals);
            WaitFlag<HardEvent::V_MTE3>(kDiagonals);
        }
        port_.PutTile(tile, to);
        SetFlag<HardEvent::MTE3_V>(kDiagonals);
    }

    // `n` blocks of 16 columns of a stage, as half numbers.
    __aicore__ inline void ScaledSlice(const Product &p, const Tile &t, uint32_t part, uint32_t block, uint32_t n, uint32_t k, uint32_t depth)
    {
        const int32_t b = static_cast<int32_t>(2 + buffer_);
        const uint32_t one = depth * kC0, count = n * one, groups = depth / 32;
        const LocalTensor<uint8_t> code = CopyCodes(p, t.expert, part, t.block + block, n, k, depth);
        const LocalTensor<half> to(TPosition::VECCALC, kBrainAt + buffer_ * kWeights * sizeof(half), kWeights);
        const LocalTensor<half> group(TPosition::VECCALC, kGroupAt + buffer_ * kGroups * sizeof(half), kGroups);
        const LocalTensor<half> scale(TPosition::VECCALC, kFloatAt, kGroups * kC0);
        const LocalTensor<half> numbers = arch::Unpack(code, count, kHalfAt, kMaskAt);
        if (a_.t.scale_kind != 0) {
            // A scale for each row of 16 of K.
            Brcb(scale, group, static_cast<uint8_t>(n * groups * 2), BrcbRepeatParams(1, 8));
            arch::VectorBarrier();
        }
        SetFlag<HardEvent::V_MTE2>(b);
        WaitFlag<HardEvent::MTE3_V>(b);
        if (a_.t.scale_kind == 0) {
            // No number is subnormal then.
            Muls(to, numbers, static_cast<half>(8.0f), static_cast<int32_t>(count));
        } else {
            const BinaryRepeatParams r(1, 1, 1, 32, 32, 16);
            for (uint32_t i = 0; i < 4; i++) {
                const uint32_t at = i / 2 * kFractal + i % 2 * 128;
                Mul(to[at], numbers[at], scale[i % 2 * 128], static_cast<uint64_t>(128), static_cast<uint8_t>(n * groups), r);
            }
        }
        SetFlag<HardEvent::V_MTE3>(b);
        WaitFlag<HardEvent::V_MTE3>(b);
        for (uint32_t c = 0; c < n; c++) {
            port_.PutSteps((part * groups * t.blocks + block + c) * 2 * kFractal, to[c * one], groups, t.blocks);
        }
        SetFlag<HardEvent::MTE3_V>(b);
        buffer_ ^= 1;
        // The next slice writes where this one's numbers are.
        arch::VectorBarrier();
    }

    __aicore__ inline void Stage(const Product &p, const Tile &t, uint32_t k, uint32_t depth)
    {
        const uint32_t fractals = Ceil(depth, kC0), columns16 = Parts(p) * t.blocks, first = Ceil(columns16, 2);
        const uint32_t begin = half_ == 0 ? 0 : first, end = half_ == 0 ? first : columns16;
        port_.Open();
        // Columns of one part at a time, as many as make a slice. Groups of 32 must not be cut.
        const uint32_t most = fractals % 2 == 0 ? Max(kWeights / (fractals * kFractal), 1) : 1;
        for (uint32_t c = begin; c < end;) {
            const uint32_t part = c / t.blocks, now = Min(Min(most, end - c), (part + 1) * t.blocks - c);
            Slice(p, t.expert, part, t.block + c % t.blocks, now, k, depth, c * fractals * kFractal);
            c += now;
        }
        port_.Close();
    }

    // Where the scale of a block of 16 columns at `k` is, where scales are of blocks.
    __aicore__ inline uint64_t Scale(const Product &p, uint32_t expert, uint32_t part, uint32_t block, uint32_t k)
    {
        return expert * pitch_ / sizeof(float) + (part * Ceil(p.columns, 128) + block / 8) * Ceil(p.depth, 128) + k / 128;
    }
    // Codes of `n` blocks of 16 columns and, where they have them, scales of groups, into this turn's buffers.
    __aicore__ inline LocalTensor<uint8_t> CopyCodes(const Product &p, uint32_t expert, uint32_t part, uint32_t block, uint32_t n, uint32_t k,
                                                     uint32_t depth)
    {
        const int32_t b = static_cast<int32_t>(2 + buffer_);
        const uint32_t one = Ceil(depth, kC0) * kFractal, all = RoundUp(p.depth, 32), groups = Ceil(depth, 32);
        const uint64_t row = static_cast<uint64_t>(expert) * Parts(p) * p.blocks + block * Parts(p) + part;
        const LocalTensor<uint8_t> code(TPosition::VECCALC, kCodeAt + buffer_ * kWeights, kWeights);
        WaitFlag<HardEvent::V_MTE2>(b);
        DataCopyParams d;
        d.blockCount = static_cast<uint16_t>(n);
        d.blockLen = static_cast<uint16_t>(one / 32);
        d.srcGap = static_cast<uint16_t>((Parts(p) * all * kC0 - one) / 32);
        d.dstGap = 0;
        DataCopy(code, codes_[(row * all + k) * kC0], d);
        if (a_.t.scale_kind != 0) {
            const LocalTensor<bfloat16_t> group(TPosition::VECCALC, kGroupAt + buffer_ * kGroups * sizeof(bfloat16_t), kGroups);
            d.blockLen = static_cast<uint16_t>(groups);
            d.srcGap = static_cast<uint16_t>(Parts(p) * all / 32 - groups);
            const uint64_t scales = static_cast<uint64_t>(block * Parts(p) + part) * all;
            DataCopy(group, groups_[expert * pitch_ / sizeof(bfloat16_t) + (scales + k) / 32 * kC0], d);
        }
        SetFlag<HardEvent::MTE2_V>(b);
        WaitFlag<HardEvent::MTE2_V>(b);
        return code;
    }

    // `n` blocks of 16 columns of a stage.
    __aicore__ inline void Slice(const Product &p, uint32_t expert, uint32_t part, uint32_t block, uint32_t n, uint32_t k, uint32_t depth,
                                 uint32_t to)
    {
        const int32_t b = static_cast<int32_t>(2 + buffer_);
        const uint32_t one = Ceil(depth, kC0) * kFractal, count = n * one;
        const LocalTensor<uint8_t> code = CopyCodes(p, expert, part, block, n, k, depth);
        const LocalTensor<float> wide(TPosition::VECCALC, kFloatAt, kWeights);
        const LocalTensor<bfloat16_t> rounded(TPosition::VECCALC, kBrainAt + buffer_ * kWeights * sizeof(bfloat16_t), kWeights);
        const LocalTensor<bfloat16_t> group(TPosition::VECCALC, kGroupAt + buffer_ * kGroups * sizeof(bfloat16_t), kGroups);
        const LocalTensor<float> scale(TPosition::VECCALC, kGroupFloatAt, kGroups);
        const uint32_t groups = Ceil(depth, 32);
        const bool late = a_.t.scale_kind != 0 && arch::kScaleRounded;
        if (a_.t.scale_kind != 0 && !late) {
            Cast(scale, group, RoundMode::CAST_NONE, static_cast<int32_t>(n * groups * kC0));
        }
        arch::Decode(wide, code, count, kHalfAt, kMaskAt, nan_);
        arch::VectorBarrier();
        if (!late) {
            SetFlag<HardEvent::V_MTE2>(b);
        }
        if (a_.t.scale_kind == 0) {
            // One scale for 128 of K and 128 columns.
            for (uint32_t c = 0; c < n; c++) {
                const uint64_t at = Scale(p, expert, part, block + c, k);
                for (uint32_t i = 0; i < one; i += 128 * kC0) {
                    const LocalTensor<float> run = wide[c * one + i];
                    Muls(run, run, blocks_.GetValue(at + i / (128 * kC0)) * arch::kUnit, static_cast<int32_t>(Min(128 * kC0, one - i)));
                }
            }
        } else if (!late) {
            // One scale for 32 of K and one column: 8 columns of 8 rows at a time, over all groups.
            if (arch::kPaired) {
                Muls(scale, scale, arch::kUnit, static_cast<int32_t>(n * groups * kC0));
                arch::VectorBarrier();
            }
            BinaryRepeatParams r(2, 2, 0, 64, 64, 2);
            const uint32_t whole = count / (2 * kFractal), rest = count % (2 * kFractal);
            for (uint32_t rows = 0; rows < 4; rows++) {
                for (uint32_t side = 0; side < 2; side++) {
                    const uint32_t at = rows * 8 * kC0 + side * 8, repeats = whole + (rows * 8 * kC0 < rest ? 1 : 0);
                    if (repeats != 0) {
                        Mul(wide[at], wide[at], scale[side * 8], static_cast<uint64_t>(64), static_cast<uint8_t>(repeats), r);
                    }
                }
            }
        }
        arch::VectorBarrier();
        WaitFlag<HardEvent::MTE3_V>(b);
        Cast(rounded, wide, RoundMode::CAST_RINT, static_cast<int32_t>(count));
        arch::VectorBarrier();
        if (late) {
            arch::ScaleRounded(rounded, group, count);
            SetFlag<HardEvent::V_MTE2>(b);
        }
        SetFlag<HardEvent::V_MTE3>(b);
        WaitFlag<HardEvent::V_MTE3>(b);
        port_.Put(to, rounded, count);
        SetFlag<HardEvent::MTE3_V>(b);
        buffer_ ^= 1;
    }

    Arguments a_;
    arch::WeightsPort port_;
    GlobalTensor<uint8_t> codes_;
    GlobalTensor<float> blocks_;
    GlobalTensor<bfloat16_t> groups_;
    GlobalTensor<half> halves_; // the scales of blocks where the cube core scales: each is two
    Ways ways_;
    uint64_t pitch_ = 0; // bytes from the scales of an expert to the next one's
    uint32_t half_ = 0, buffer_ = 0;
    float factor_ = 0.0f; // of the diagonals in UB, where scales are of groups
    bool nan_ = false; // codes of the expert may be NaN
};

} // namespace moe

#endif
