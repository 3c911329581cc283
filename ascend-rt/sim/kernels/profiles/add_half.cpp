// SPDX-License-Identifier: MIT OR Apache-2.0
//
// z = x + y for a matrix of halves, in the steps of a published profile: short copies, long copies, two buffers, inputs
// that do not enter the L2 cache. Every core takes whole rows, which follow each other in memory, and goes through them
// tile by tile.

#include "kernel_operator.h"

using namespace AscendC;

namespace {

// Buffers: 1, so that a tile is loaded, added and stored before the next one; 2, so that these overlap.
template <uint32_t Buffers> class HalfAdd {
public:
    __aicore__ inline HalfAdd() {}

    // rows * columns and `tile` are multiples of 16 elements.
    __aicore__ inline void Init(GM_ADDR x, GM_ADDR y, GM_ADDR z, uint32_t rows, uint32_t columns, uint32_t tile, uint32_t pastL2)
    {
        uint32_t cores = static_cast<uint32_t>(GetBlockNum()), core = static_cast<uint32_t>(GetBlockIdx());
        uint32_t base = rows / cores, rest = rows % cores;
        uint32_t mine = core < rest ? base + 1 : base;
        uint32_t first = core * base + (core < rest ? core : rest);
        count_ = mine * columns;
        tile_ = tile;
        uint64_t start = static_cast<uint64_t>(first) * columns;
        x_.SetGlobalBuffer(reinterpret_cast<__gm__ half *>(x) + start, count_);
        y_.SetGlobalBuffer(reinterpret_cast<__gm__ half *>(y) + start, count_);
        z_.SetGlobalBuffer(reinterpret_cast<__gm__ half *>(z) + start, count_);
        if (pastL2 != 0) {
            x_.SetL2CacheHint(CacheMode::CACHE_MODE_DISABLE);
            y_.SetL2CacheHint(CacheMode::CACHE_MODE_DISABLE);
        }
        uint32_t bytes = tile * sizeof(half);
        for (uint32_t i = 0; i < Buffers; i++) {
            left_[i] = LocalTensor<half>(TPosition::VECIN, 3 * i * bytes, tile);
            right_[i] = LocalTensor<half>(TPosition::VECIN, (3 * i + 1) * bytes, tile);
            sum_[i] = LocalTensor<half>(TPosition::VECOUT, (3 * i + 2) * bytes, tile);
        }
    }

    __aicore__ inline void Process()
    {
        for (uint32_t i = 0; i < Buffers; i++) {
            SetFlag<HardEvent::V_MTE2>(static_cast<int32_t>(i));
            SetFlag<HardEvent::MTE3_V>(static_cast<int32_t>(i));
        }
        int32_t turn = 0;
        for (uint32_t at = 0; at < count_; at += tile_) {
            uint32_t n = count_ - at < tile_ ? count_ - at : tile_;
            WaitFlag<HardEvent::V_MTE2>(turn);
            DataCopy(left_[turn], x_[at], n);
            DataCopy(right_[turn], y_[at], n);
            SetFlag<HardEvent::MTE2_V>(turn);

            WaitFlag<HardEvent::MTE2_V>(turn);
            WaitFlag<HardEvent::MTE3_V>(turn);
            Add(sum_[turn], left_[turn], right_[turn], static_cast<int32_t>(n));
            SetFlag<HardEvent::V_MTE2>(turn);
            SetFlag<HardEvent::V_MTE3>(turn);

            WaitFlag<HardEvent::V_MTE3>(turn);
            DataCopy(z_[at], sum_[turn], n);
            SetFlag<HardEvent::MTE3_V>(turn);
            turn = (turn + 1) % static_cast<int32_t>(Buffers);
        }
        for (uint32_t i = 0; i < Buffers; i++) {
            WaitFlag<HardEvent::V_MTE2>(static_cast<int32_t>(i));
            WaitFlag<HardEvent::MTE3_V>(static_cast<int32_t>(i));
        }
    }

private:
    GlobalTensor<half> x_, y_, z_;
    LocalTensor<half> left_[Buffers], right_[Buffers], sum_[Buffers];
    uint32_t count_ = 0;
    uint32_t tile_ = 0;
};

} // namespace

extern "C" __global__ __aicore__ void add_one_buffer(GM_ADDR x, GM_ADDR y, GM_ADDR z, uint32_t rows, uint32_t columns, uint32_t tile,
                                                     uint32_t pastL2)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    HalfAdd<1> op;
    op.Init(x, y, z, rows, columns, tile, pastL2);
    op.Process();
}

extern "C" __global__ __aicore__ void add_two_buffers(GM_ADDR x, GM_ADDR y, GM_ADDR z, uint32_t rows, uint32_t columns, uint32_t tile,
                                                      uint32_t pastL2)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    HalfAdd<2> op;
    op.Init(x, y, z, rows, columns, tile, pastL2);
    op.Process();
}
