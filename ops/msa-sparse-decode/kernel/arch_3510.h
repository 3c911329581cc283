// SPDX-License-Identifier: MIT OR Apache-2.0
//
// 3510: scores go from L0C to the unified buffers of the vector cores, weights from there to L1.

#ifndef MSA_SPARSE_DECODE_ARCH_H
#define MSA_SPARSE_DECODE_ARCH_H

#include "shape.h"

// The chip orders dependent vector instructions by itself.
#define VECTOR_ORDER() static_cast<void>(0)

namespace sparse_decode {

constexpr uint32_t kUbBytes = 248 * 1024;
constexpr uint32_t kL1Bytes = 512 * 1024;
constexpr uint32_t kL0cBytes = 256 * 1024;
constexpr uint32_t kValueStagePages = 3;
constexpr uint32_t kWeightElements = kLane * kMaxKeys;

// L1, in bytes.
constexpr uint32_t kL1Queries = 0;
constexpr uint32_t kL1Keys = kL1Queries + 3 * kLane * kMaxDim * sizeof(bfloat16_t);
constexpr uint32_t kL1Values = kL1Keys + kStages * kKeyStagePages * kPage * sizeof(bfloat16_t);
constexpr uint32_t kL1Weights = kL1Values + kStages * kValueStagePages * kPage * sizeof(bfloat16_t);
constexpr uint32_t kL1End = kL1Weights + kRing * kWeightElements * sizeof(bfloat16_t);
static_assert(kL1End <= kL1Bytes, "L1");

// UB, in bytes.
constexpr uint32_t kUbScores = 0;
constexpr uint32_t kUbOwn = kUbScores + kRing * kMaxRows * kMaxKeys * sizeof(float);

constexpr uint16_t kScoresFull = 0, kWeightsFull = 2, kPartFull = 4;
constexpr uint16_t kSecond = 16; // the flags of the second vector core, as the cube core counts them

// ---- cube core

// A [16 x k] from L1 to L0A; `count` fractals in a row.
__aicore__ inline void LoadLeft(const LocalTensor<bfloat16_t> &to, const LocalTensor<bfloat16_t> &from, uint32_t count)
{
    LoadData2DParamsV2 p;
    p.mStartPosition = 0;
    p.kStartPosition = 0;
    p.mStep = 1;
    p.kStep = static_cast<uint16_t>(count);
    p.srcStride = 1;
    p.dstStride = 1;
    p.ifTranspose = false;
    LoadData(to, from, p);
}
// B [k x n] from a page [n rows, k columns] in NZ form: fractals lie in the order of L0B.
__aicore__ inline void LoadKeys(const LocalTensor<bfloat16_t> &to, const LocalTensor<bfloat16_t> &from, uint32_t n16, uint32_t k16)
{
    LoadData2DParamsV2 p;
    p.mStartPosition = 0;
    p.kStartPosition = 0;
    p.mStep = static_cast<uint16_t>(n16);
    p.kStep = static_cast<uint16_t>(k16);
    p.srcStride = static_cast<int32_t>(n16);
    p.dstStride = static_cast<uint16_t>(n16);
    p.ifTranspose = false;
    LoadData(to, from, p);
}
// B [k x n] from a page of `rows16` x 16 rows and n columns, of which the first k16 x 16 rows are k.
__aicore__ inline void LoadValues(const LocalTensor<bfloat16_t> &to, const LocalTensor<bfloat16_t> &from, uint32_t rows16,
                                  uint32_t k16, uint32_t n16)
{
    LoadData2DParamsV2 p;
    p.mStartPosition = 0;
    p.kStartPosition = 0;
    p.mStep = static_cast<uint16_t>(k16);
    p.kStep = static_cast<uint16_t>(n16);
    p.srcStride = static_cast<int32_t>(rows16);
    p.dstStride = static_cast<uint16_t>(n16);
    p.ifTranspose = true;
    LoadData(to, from, p);
}

// Rows of L0C to rows of global memory, n columns.
__aicore__ inline void StoreRows(const GlobalTensor<float> &to, const LocalTensor<float> &from, uint32_t rows, uint32_t n,
                                 uint32_t pitch)
{
    FixpipeParamsArch3510<CO2Layout::ROW_MAJOR> p;
    p.nSize = static_cast<uint16_t>(n);
    p.mSize = static_cast<uint16_t>(rows);
    p.srcStride = static_cast<uint16_t>(kLane);
    p.dstStride = pitch;
    p.quantPre = QuantMode_t::NoQuant;
    p.params.ndNum = 1;
    p.params.srcNdStride = 0;
    p.params.dstNdStride = 0;
    Fixpipe<float, float, CFG_ROW_MAJOR>(to, from, p);
}

constexpr FixpipeConfig kToUb = {CO2Layout::ROW_MAJOR, true};

// What passes between the cores, seen from the cube core.
class CubeSide {
public:
    __aicore__ inline void Init(const Shape &s, GM_ADDR, uint32_t) { s_ = &s; }
    __aicore__ inline void End() {}
    __aicore__ inline void PutScores(uint32_t ring, uint32_t slot, const LocalTensor<float> &from, uint32_t rows, uint32_t tiles)
    {
        const uint32_t size = kMaxRows * kMaxKeys, tile = rows / 2 * s_->block16;
        const LocalTensor<float> to(TPosition::VECIN, kUbScores + ring * size * sizeof(float), size);
        FixpipeParamsArch3510<CO2Layout::ROW_MAJOR> p;
        p.nSize = static_cast<uint16_t>(s_->block16);
        p.mSize = static_cast<uint16_t>(rows);
        p.srcStride = static_cast<uint16_t>(kLane);
        p.dstStride = s_->block16;
        p.quantPre = QuantMode_t::NoQuant;
        p.dualDstCtl = 1; // the first half of the rows to one vector core, the rest to the other
        p.params.ndNum = static_cast<uint16_t>(tiles);
        p.params.srcNdStride = static_cast<uint16_t>(s_->block16);
        p.params.dstNdStride = tile;
        Fixpipe<float, float, kToUb>(to[slot * tile], from, p);
    }
    __aicore__ inline void ScoresDone()
    {
        CrossCoreSetFlag<4, PIPE_FIX>(kScoresFull);
        CrossCoreSetFlag<4, PIPE_FIX>(kScoresFull + kSecond);
    }
    // The weights of a task, term by term, each [slots][block16 / 16][16 rows][16] in L1.
    __aicore__ inline LocalTensor<bfloat16_t> Weights(uint32_t ring, uint32_t, uint32_t)
    {
        CrossCoreWaitFlag<4, PIPE_MTE1>(kWeightsFull);
        CrossCoreWaitFlag<4, PIPE_MTE1>(kWeightsFull + kSecond);
        return LocalTensor<bfloat16_t>(TPosition::A1, kL1Weights + ring * kWeightElements * sizeof(bfloat16_t), kWeightElements);
    }
    __aicore__ inline void WeightsTaken() {}
    __aicore__ inline void PartDone()
    {
        CrossCoreSetFlag<4, PIPE_FIX>(kPartFull);
        CrossCoreSetFlag<4, PIPE_FIX>(kPartFull + kSecond);
    }

private:
    const Shape *s_;
};

// The same, seen from a vector core.
class VectorSide {
public:
    __aicore__ inline void Init(const Shape &s, GM_ADDR, uint32_t, uint32_t sub)
    {
        s_ = &s;
        sub_ = sub;
    }
    __aicore__ inline void End() {}
    // The scores of a task, [slots][half][block16].
    __aicore__ inline LocalTensor<float> Scores(uint32_t ring, uint32_t, uint32_t)
    {
        CrossCoreWaitFlag<4, PIPE_V>(kScoresFull);
        const uint32_t size = kMaxRows * kMaxKeys;
        return LocalTensor<float>(TPosition::VECIN, kUbScores + ring * size * sizeof(float), size);
    }
    __aicore__ inline void ScoresTaken() {}
    // A term of the weights of a task, [slots][half][block16], to NZ form.
    __aicore__ inline void PutWeights(uint32_t ring, uint32_t term, const LocalTensor<bfloat16_t> &from, uint32_t slots, uint32_t half)
    {
        const uint32_t tile = kLane * s_->block16;
        const LocalTensor<bfloat16_t> to(TPosition::A1, kL1Weights + ring * kWeightElements * sizeof(bfloat16_t), kWeightElements);
        Nd2NzParams p;
        p.ndNum = 1; // this way takes no more at once
        p.nValue = static_cast<uint16_t>(half);
        p.dValue = s_->block16;
        p.srcNdMatrixStride = 0;
        p.srcDValue = s_->block16;
        p.dstNzC0Stride = static_cast<uint16_t>(kLane);
        p.dstNzNStride = 1;
        p.dstNzMatrixStride = 0;
        for (uint32_t slot = 0; slot < slots; slot++) {
            DataCopy(to[(term * slots + slot) * tile + sub_ * half * kLane], from[slot * half * s_->block16], p);
        }
    }
    __aicore__ inline void WeightsDone() { CrossCoreSetFlag<4, PIPE_MTE3>(kWeightsFull); }
    __aicore__ inline void WaitPart() { CrossCoreWaitFlag<4, PIPE_MTE2>(kPartFull); }

private:
    const Shape *s_;
    uint32_t sub_;
};

} // namespace sparse_decode

#endif
