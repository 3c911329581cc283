// SPDX-License-Identifier: MIT OR Apache-2.0
//
// 2201: products go from the cube core to its vector cores through a ring in global memory.

#ifndef MSA_INDEXER_ARCH_H
#define MSA_INDEXER_ARCH_H

#include "shape.h"

// Orders dependent vector instructions. A macro, so that every use is a place of its own in reports.
#define VECTOR_ORDER() AscendC::PipeBarrier<PIPE_V>()

namespace indexer {

constexpr uint32_t kUbBytes = 184 * 1024;
constexpr uint32_t kL1Bytes = 512 * 1024 - 256;
constexpr uint32_t kL0cBytes = 128 * 1024;
constexpr uint32_t kRing = 3;

constexpr uint16_t kFull = 0, kFree = 1;

// A [rows16 x 16 rows, `wide` fractals] in NZ form to L0A.
template <class T>
__aicore__ inline void LoadQueries(const LocalTensor<T> &to, const LocalTensor<T> &from, uint32_t rows16, uint32_t wide)
{
    LoadData2DParams p;
    p.repeatTimes = static_cast<uint8_t>(wide);
    p.srcStride = static_cast<uint16_t>(rows16);
    p.dstGap = 0;
    p.ifTranspose = false;
    for (uint32_t i = 0; i < rows16; i++) {
        LoadData(to[i * wide * kLane * kWide<T>], from[i * kLane * kWide<T>], p);
    }
}
// B [k x n] from a block [n rows, k of `wide` fractals] in NZ form: fractals lie in the order of L0B.
template <class T>
__aicore__ inline void LoadKeys(const LocalTensor<T> &to, const LocalTensor<T> &from, uint32_t n16, uint32_t wide)
{
    LoadData2DParams p;
    p.repeatTimes = static_cast<uint8_t>(n16 * wide);
    p.srcStride = 1;
    p.dstGap = 0;
    p.ifTranspose = false;
    LoadData(to, from, p);
}

// Products, seen from the cube core.
class CubeSide {
public:
    __aicore__ inline void Init(const Shape &s, GM_ADDR workspace, uint32_t core)
    {
        s_ = &s;
        const uint32_t place = s.Place();
        ring_.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(workspace + s.t.ws_products) + static_cast<uint64_t>(core) * kRing * place,
                              kRing * place);
    }
    // [blocks][rows][block16]
    __aicore__ inline void Put(const LocalTensor<float> &from, uint32_t rows, uint32_t count)
    {
        if (done_ >= kRing) {
            CrossCoreWaitFlag<2, PIPE_FIX>(kFree);
        }
        FixpipeParamsV220 p;
        p.nSize = static_cast<uint16_t>(s_->block16);
        p.mSize = static_cast<uint16_t>(rows);
        p.srcStride = static_cast<uint16_t>(Up16(rows));
        p.dstStride = s_->block16;
        p.quantPre = QuantMode_t::NoQuant;
        p.ndNum = static_cast<uint16_t>(count);
        p.srcNdStride = static_cast<uint16_t>(Up16(rows) * s_->block16 / kFractal);
        p.dstNdStride = static_cast<uint16_t>(rows * s_->block16);
        Fixpipe<float, float, CFG_ROW_MAJOR>(ring_[done_ % kRing * s_->Place()], from, p);
        done_++;
    }
    __aicore__ inline void Done() { CrossCoreSetFlag<2, PIPE_FIX>(kFull); }
    __aicore__ inline void End()
    {
        for (uint32_t i = 0; i < Least(done_, kRing); i++) {
            CrossCoreWaitFlag<2, PIPE_FIX>(kFree);
        }
    }

private:
    const Shape *s_;
    GlobalTensor<float> ring_;
    uint32_t done_ = 0;
};

// The same, seen from a vector core.
class VectorSide {
public:
    __aicore__ inline void Init(const Shape &s, GM_ADDR workspace, uint32_t core, uint32_t sub)
    {
        s_ = &s;
        sub_ = sub;
        const uint32_t place = s.Place();
        ring_.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(workspace + s.t.ws_products) + static_cast<uint64_t>(core) * kRing * place,
                              kRing * place);
        SetFlag<HardEvent::V_MTE2>(0);
        SetFlag<HardEvent::V_MTE2>(1);
    }
    // [blocks][half][block16]
    __aicore__ inline LocalTensor<float> Get(uint32_t half, uint32_t count)
    {
        stage_ = static_cast<int32_t>(done_ % 2);
        const LocalTensor<float> to(TPosition::VECIN, static_cast<uint32_t>(stage_) * kMaxProducts * sizeof(float), kMaxProducts);
        CrossCoreWaitFlag<2, PIPE_MTE2>(kFull);
        WaitFlag<HardEvent::V_MTE2>(stage_);
        DataCopyParams p;
        p.blockCount = static_cast<uint16_t>(count);
        p.blockLen = static_cast<uint16_t>(half * s_->block16 * sizeof(float) / 32);
        p.srcStride = static_cast<uint16_t>(half * s_->block16 * sizeof(float) / 32);
        p.dstStride = 0;
        DataCopy(to, ring_[done_ % kRing * s_->Place() + sub_ * half * s_->block16], p);
        CrossCoreSetFlag<2, PIPE_MTE2>(kFree);
        SetFlag<HardEvent::MTE2_V>(stage_);
        WaitFlag<HardEvent::MTE2_V>(stage_);
        done_++;
        return to;
    }
    // After the last use of the products.
    __aicore__ inline void Taken() { SetFlag<HardEvent::V_MTE2>(stage_); }
    __aicore__ inline void End()
    {
        WaitFlag<HardEvent::V_MTE2>(0);
        WaitFlag<HardEvent::V_MTE2>(1);
    }

private:
    const Shape *s_;
    uint32_t sub_;
    GlobalTensor<float> ring_;
    uint32_t done_ = 0;
    int32_t stage_ = 0;
};

} // namespace indexer

#endif
