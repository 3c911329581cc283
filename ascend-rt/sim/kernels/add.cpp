// SPDX-License-Identifier: MIT OR Apache-2.0
//
// z = x + y for float vectors of any length, on all vector cores.
//
// Every core takes a run of whole 32-byte blocks (the last one may end within a block) and goes through it tile by tile.
// Both inputs of a tile lie in one buffer of the queue, so one event tells that both are there. Two buffers in and two out:
// the next tile is loaded while one is added and the one before is stored.

#include "kernel_operator.h"

using namespace AscendC;

namespace {

constexpr uint32_t kBlock = 32 / sizeof(float);
constexpr uint32_t kBuffers = 2;

class Add2 {
public:
    __aicore__ inline Add2() {}

    // `tile` is a multiple of 8 elements.
    __aicore__ inline void Init(GM_ADDR x, GM_ADDR y, GM_ADDR z, uint32_t length, uint32_t tile, TPipe *pipe)
    {
        uint32_t cores = static_cast<uint32_t>(GetBlockNum());
        uint32_t blocks = (length + kBlock - 1) / kBlock;
        uint32_t perCore = (blocks + cores - 1) / cores * kBlock;
        uint32_t first = static_cast<uint32_t>(GetBlockIdx()) * perCore;
        tile_ = tile;
        count_ = first >= length ? 0 : (length - first < perCore ? length - first : perCore);
        x_.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(x) + first, count_);
        y_.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(y) + first, count_);
        z_.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(z) + first, count_);
        pipe->InitBuffer(in_, kBuffers, 2 * tile * sizeof(float));
        pipe->InitBuffer(out_, kBuffers, tile * sizeof(float));
    }

    __aicore__ inline void Process()
    {
        for (uint32_t at = 0; at < count_; at += tile_) {
            uint32_t n = count_ - at < tile_ ? count_ - at : tile_;
            Load(at, n);
            Compute(n);
            Store(at, n);
        }
    }

private:
    __aicore__ inline void Load(uint32_t at, uint32_t n)
    {
        LocalTensor<float> both = in_.AllocTensor<float>();
        if (n % kBlock == 0) {
            DataCopy(both, x_[at], n);
            DataCopy(both[tile_], y_[at], n);
        } else {
            DataCopyExtParams copy;
            copy.blockCount = 1;
            copy.blockLen = n * sizeof(float);
            copy.srcStride = 0;
            copy.dstStride = 0;
            copy.rsv = 0;
            DataCopyPadExtParams<float> pad{false, 0, 0, 0};
            DataCopyPad(both, x_[at], copy, pad);
            DataCopyPad(both[tile_], y_[at], copy, pad);
        }
        in_.EnQue(both);
    }

    __aicore__ inline void Compute(uint32_t n)
    {
        LocalTensor<float> both = in_.DeQue<float>();
        LocalTensor<float> sum = out_.AllocTensor<float>();
        Add(sum, both, both[tile_], static_cast<int32_t>(n));
        out_.EnQue(sum);
        in_.FreeTensor(both);
    }

    __aicore__ inline void Store(uint32_t at, uint32_t n)
    {
        LocalTensor<float> sum = out_.DeQue<float>();
        if (n % kBlock == 0) {
            DataCopy(z_[at], sum, n);
        } else {
            DataCopyExtParams copy;
            copy.blockCount = 1;
            copy.blockLen = n * sizeof(float);
            copy.srcStride = 0;
            copy.dstStride = 0;
            copy.rsv = 0;
            DataCopyPad(z_[at], sum, copy);
        }
        out_.FreeTensor(sum);
    }

    GlobalTensor<float> x_, y_, z_;
    TQue<TPosition::VECIN, 1> in_;
    TQue<TPosition::VECOUT, 1> out_;
    uint32_t tile_ = 0;
    uint32_t count_ = 0;
};

} // namespace

extern "C" __global__ __aicore__ void add(GM_ADDR x, GM_ADDR y, GM_ADDR z, uint32_t length, uint32_t tile)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    Add2 op;
    op.Init(x, y, z, length, tile, &pipe);
    op.Process();
}
