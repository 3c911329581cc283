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
static_assert(kGroupFloatAt + kGroups * sizeof(float) <= arch::kUbBytes, "UB");
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
    }
    __aicore__ inline void SetWeights(const Product &p)
    {
        codes_.SetGlobalBuffer(reinterpret_cast<__gm__ uint8_t *>(p.codes), a_.t.experts * Elements(p));
        codes_.SetL2CacheHint(CacheMode::CACHE_MODE_DISABLE);
        blocks_.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(p.scales),
                                static_cast<uint64_t>(a_.t.experts) * Parts(p) * Ceil(p.columns, 128) * Ceil(p.depth, 128));
        groups_.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(p.scales), a_.t.experts * Elements(p) / 32);
    }
    // All stages of a tile.
    __aicore__ inline void Decode(const Product &p, const Tile &t)
    {
        const uint32_t stage = t.narrow ? p.fewStage : p.stage;
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
    }

private:
    __aicore__ inline static uint32_t Parts(const Product &p) { return p.pairs ? 2 : 1; }
    // Codes of an expert, with their padding; groups of 32 are whole.
    __aicore__ inline static uint64_t Elements(const Product &p)
    {
        return static_cast<uint64_t>(Parts(p)) * p.blocks * kC0 * RoundUp(p.depth, 32);
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

    // `n` blocks of 16 columns of a stage.
    __aicore__ inline void Slice(const Product &p, uint32_t expert, uint32_t part, uint32_t block, uint32_t n, uint32_t k, uint32_t depth,
                                 uint32_t to)
    {
        const int32_t b = static_cast<int32_t>(2 + buffer_);
        const uint32_t one = Ceil(depth, kC0) * kFractal, count = n * one, all = RoundUp(p.depth, 32);
        const uint64_t row = static_cast<uint64_t>(expert) * Parts(p) * p.blocks + block * Parts(p) + part;
        const LocalTensor<uint8_t> code(TPosition::VECCALC, kCodeAt + buffer_ * kWeights, kWeights);
        const LocalTensor<float> wide(TPosition::VECCALC, kFloatAt, kWeights);
        const LocalTensor<bfloat16_t> rounded(TPosition::VECCALC, kBrainAt + buffer_ * kWeights * sizeof(bfloat16_t), kWeights);
        const LocalTensor<bfloat16_t> group(TPosition::VECCALC, kGroupAt + buffer_ * kGroups * sizeof(bfloat16_t), kGroups);
        const LocalTensor<float> scale(TPosition::VECCALC, kGroupFloatAt, kGroups);
        const uint32_t groups = Ceil(depth, 32);

        WaitFlag<HardEvent::V_MTE2>(b);
        DataCopyParams d;
        d.blockCount = static_cast<uint16_t>(n);
        d.blockLen = static_cast<uint16_t>(one / 32);
        d.srcGap = static_cast<uint16_t>((Parts(p) * all * kC0 - one) / 32);
        d.dstGap = 0;
        DataCopy(code, codes_[(row * all + k) * kC0], d);
        if (a_.t.scale_kind != 0) {
            d.blockLen = static_cast<uint16_t>(groups);
            d.srcGap = static_cast<uint16_t>(Parts(p) * all / 32 - groups);
            DataCopy(group, groups_[(row * all + k) / 32 * kC0], d);
        }
        SetFlag<HardEvent::MTE2_V>(b);
        WaitFlag<HardEvent::MTE2_V>(b);
        if (a_.t.scale_kind != 0) {
            Cast(scale, group, RoundMode::CAST_NONE, static_cast<int32_t>(n * groups * kC0));
        }
        arch::Decode(wide, code, count, kHalfAt, kMaskAt);
        arch::VectorBarrier();
        SetFlag<HardEvent::V_MTE2>(b);
        if (a_.t.scale_kind == 0) {
            // One scale for 128 of K and 128 columns.
            const uint32_t blocks = Ceil(p.depth, 128);
            for (uint32_t c = 0; c < n; c++) {
                const uint64_t at =
                    ((static_cast<uint64_t>(expert) * Parts(p) + part) * Ceil(p.columns, 128) + (block + c) / 8) * blocks + k / 128;
                for (uint32_t i = 0; i < one; i += 128 * kC0) {
                    const LocalTensor<float> run = wide[c * one + i];
                    Muls(run, run, blocks_.GetValue(at + i / (128 * kC0)) * arch::kUnit, static_cast<int32_t>(Min(128 * kC0, one - i)));
                }
            }
        } else {
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
    uint32_t half_ = 0, buffer_ = 0;
};

} // namespace moe

#endif
