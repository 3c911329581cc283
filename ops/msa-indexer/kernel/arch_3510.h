// SPDX-License-Identifier: MIT OR Apache-2.0
//
// 3510: products go from L0C to the unified buffers of the vector cores, half of the rows each.

#ifndef MSA_INDEXER_ARCH_H
#define MSA_INDEXER_ARCH_H

#include "shape.h"

// The chip orders dependent vector instructions by itself.
#define VECTOR_ORDER() static_cast<void>(0)

namespace indexer {

constexpr uint32_t kUbBytes = 248 * 1024;
constexpr uint32_t kL1Bytes = 512 * 1024;
constexpr uint32_t kL0cBytes = 256 * 1024;
constexpr uint32_t kRing = 2;

constexpr uint16_t kFull = 0, kFree = 1;
constexpr uint16_t kSecond = 16; // the flags of the second vector core, as the cube core counts them

// A [rows16 x 16 rows, `wide` fractals] in NZ form to L0A.
template <class T>
__aicore__ inline void LoadQueries(const LocalTensor<T> &to, const LocalTensor<T> &from, uint32_t rows16, uint32_t wide)
{
    LoadData2DParamsV2 p;
    p.mStartPosition = 0;
    p.kStartPosition = 0;
    p.mStep = static_cast<uint16_t>(rows16);
    p.kStep = static_cast<uint16_t>(wide);
    p.srcStride = static_cast<int32_t>(rows16);
    p.dstStride = static_cast<uint16_t>(rows16);
    p.ifTranspose = false;
    LoadData(to, from, p);
}
// B [k x n] from a block [n rows, k of `wide` fractals] in NZ form: fractals lie in the order of L0B.
template <class T>
__aicore__ inline void LoadKeys(const LocalTensor<T> &to, const LocalTensor<T> &from, uint32_t n16, uint32_t wide)
{
    LoadQueries(to, from, n16, wide);
}

constexpr FixpipeConfig kToUb = {CO2Layout::ROW_MAJOR, true};

// Products, seen from the cube core.
class CubeSide {
public:
    __aicore__ inline void Init(const Shape &s, GM_ADDR, uint32_t) { s_ = &s; }
    // [blocks][half of the rows][block16] for each vector core
    __aicore__ inline void Put(const LocalTensor<float> &from, uint32_t rows, uint32_t count)
    {
        if (done_ >= kRing) {
            CrossCoreWaitFlag<4, PIPE_FIX>(kFree);
            CrossCoreWaitFlag<4, PIPE_FIX>(kFree + kSecond);
        }
        const LocalTensor<float> to(TPosition::VECIN, done_ % kRing * kMaxProducts * sizeof(float), kMaxProducts);
        FixpipeParamsArch3510<CO2Layout::ROW_MAJOR> p;
        p.nSize = static_cast<uint16_t>(s_->block16);
        p.mSize = static_cast<uint16_t>(rows);
        p.srcStride = static_cast<uint16_t>(Up16(rows));
        p.dstStride = s_->block16;
        p.quantPre = QuantMode_t::NoQuant;
        p.dualDstCtl = 1; // the first half of the rows to one vector core, the rest to the other
        p.params.ndNum = static_cast<uint16_t>(count);
        p.params.srcNdStride = static_cast<uint16_t>(Up16(rows) * s_->block16 / kLane);
        p.params.dstNdStride = rows / 2 * s_->block16;
        Fixpipe<float, float, kToUb>(to, from, p);
        done_++;
    }
    __aicore__ inline void Done()
    {
        CrossCoreSetFlag<4, PIPE_FIX>(kFull);
        CrossCoreSetFlag<4, PIPE_FIX>(kFull + kSecond);
    }
    __aicore__ inline void End()
    {
        for (uint32_t i = 0; i < Least(done_, kRing); i++) {
            CrossCoreWaitFlag<4, PIPE_FIX>(kFree);
            CrossCoreWaitFlag<4, PIPE_FIX>(kFree + kSecond);
        }
    }

private:
    const Shape *s_;
    uint32_t done_ = 0;
};

// The same, seen from a vector core.
class VectorSide {
public:
    __aicore__ inline void Init(const Shape &, GM_ADDR, uint32_t, uint32_t) {}
    // [blocks][half][block16]
    __aicore__ inline LocalTensor<float> Get(uint32_t, uint32_t)
    {
        CrossCoreWaitFlag<4, PIPE_V>(kFull);
        return LocalTensor<float>(TPosition::VECIN, done_++ % kRing * kMaxProducts * sizeof(float), kMaxProducts);
    }
    // After the last use of the products.
    __aicore__ inline void Taken() { CrossCoreSetFlag<4, PIPE_V>(kFree); }
    __aicore__ inline void End() {}

private:
    uint32_t done_ = 0;
};

} // namespace indexer

#endif
