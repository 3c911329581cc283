// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The cube core: products of its tiles, in F32 to the workspace. Two stages of L1 hold a part of K each, two of L0A and
// L0B a shorter one. MTE2, MTE1 and M work on different stages.

#ifndef GMM_FINALIZE_ROUTING_CUBE_H
#define GMM_FINALIZE_ROUTING_CUBE_H

#include "common.h"

namespace finalize {

template <class Fp8> class Cube {
public:
    __aicore__ inline void Run(const Arguments &a)
    {
        products_.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(a.workspace + a.t.products),
                                  static_cast<uint64_t>(a.t.rows) * a.t.pitch);
        k_ = a.t.k;
        pitch_ = a.t.pitch;
        loads_.Init(a);
        Groups groups;
        groups.Init(a);
        arch::TileList tiles;
        tiles.Init(a, groups, arch::FewColumns(a.t), arch::kManyColumns);

        for (uint32_t s = 0; s < 2; s++) {
            SetFlag<HardEvent::MTE1_MTE2>(s);
            SetFlag<HardEvent::M_MTE1>(s);
        }
        for (uint32_t q = 0; q < arch::kSums; q++) {
            SetFlag<HardEvent::FIX_M>(q);
        }
        if (arch::NeedsVectors(a.t)) {
            CrossCoreWaitFlag<2, PIPE_MTE2>(kReadyToCube);
        }
        Tile tile;
        while (tiles.Next(tile)) {
            Multiply(tile);
        }
        for (uint32_t s = 0; s < 2; s++) {
            WaitFlag<HardEvent::MTE1_MTE2>(s);
            WaitFlag<HardEvent::M_MTE1>(s);
        }
        for (uint32_t q = 0; q < arch::kSums; q++) {
            WaitFlag<HardEvent::FIX_M>(q);
        }
        // All products are in memory.
        SyncAll<false>();
    }

private:
    __aicore__ inline void Multiply(const Tile &tile)
    {
        uint32_t rows = RoundUp(tile.rows, kFractalRows);
        uint32_t columns = RoundUp(tile.columns, kFractalRows);
        LocalTensor<float> sums(TPosition::CO1, sum_ * arch::kSumBytes, arch::kSumBytes / sizeof(float));
        WaitFlag<HardEvent::FIX_M>(sum_);
        for (uint32_t k0 = 0; k0 < k_; k0 += arch::kDepth) {
            uint32_t depth = Min(arch::kDepth, k_ - k0);
            WaitFlag<HardEvent::MTE1_MTE2>(stage_);
            loads_.Stage(stage_, tile, k0, depth);
            SetFlag<HardEvent::MTE2_MTE1>(stage_);

            WaitFlag<HardEvent::MTE2_MTE1>(stage_);
            depth = RoundUp(depth, arch::kDepthUnit);
            for (uint32_t s = 0; s < depth; s += arch::kStep) {
                uint32_t step = Min(arch::kStep, depth - s);
                WaitFlag<HardEvent::M_MTE1>(half_);
                loads_.Step(half_, stage_, tile, depth, s, step);
                SetFlag<HardEvent::MTE1_M>(half_);

                WaitFlag<HardEvent::MTE1_M>(half_);
                MmadParams p;
                p.m = static_cast<uint16_t>(rows);
                p.n = static_cast<uint16_t>(loads_.Columns(tile));
                p.k = static_cast<uint16_t>(step);
                p.cmatrixInitVal = k0 == 0 && s == 0;
                loads_.Multiply(sums, half_, p);
                if (rows * columns < 10 * kFractalRows * kFractalRows) {
                    // So small a product does not fill the pipeline: the next one could read sums still on their way.
                    PipeBarrier<PIPE_M>();
                }
                SetFlag<HardEvent::M_MTE1>(half_);
                half_ = 1 - half_;
            }
            SetFlag<HardEvent::MTE1_MTE2>(stage_);
            stage_ = 1 - stage_;
        }
        SetFlag<HardEvent::M_FIX>(sum_);
        WaitFlag<HardEvent::M_FIX>(sum_);
        arch::Store(products_[static_cast<uint64_t>(tile.row) * pitch_ + tile.column], sums, tile.rows, columns, pitch_);
        SetFlag<HardEvent::FIX_M>(sum_);
        sum_ = sum_ + 1 == arch::kSums ? 0 : sum_ + 1;
    }

    arch::Loads<Fp8> loads_;
    GlobalTensor<float> products_;
    uint32_t k_ = 0, pitch_ = 0;
    int32_t stage_ = 0, half_ = 0;
    uint32_t sum_ = 0;
};

} // namespace finalize

#endif
