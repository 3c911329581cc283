// SPDX-License-Identifier: MIT OR Apache-2.0
//
// 2201: scores and weights go between the cube core and its vector cores through global memory.

#ifndef MSA_SPARSE_DECODE_ARCH_H
#define MSA_SPARSE_DECODE_ARCH_H

#include "shape.h"

// Orders dependent vector instructions. A macro, so that every use is a place of its own in reports.
#define VECTOR_ORDER() AscendC::PipeBarrier<PIPE_V>()

namespace sparse_decode {

constexpr uint32_t kUbBytes = 184 * 1024;
constexpr uint32_t kL1Bytes = 512 * 1024 - 256;
constexpr uint32_t kL0cBytes = 128 * 1024;
constexpr uint32_t kValueStagePages = 4;
constexpr uint32_t kWeightElements = kLane * kMaxKeys;

// L1, in bytes.
constexpr uint32_t kL1Queries = 0;
constexpr uint32_t kL1Keys = kL1Queries + 3 * kLane * kMaxDim * sizeof(bfloat16_t);
constexpr uint32_t kL1Values = kL1Keys + kStages * kKeyStagePages * kPage * sizeof(bfloat16_t);
constexpr uint32_t kL1Weights = kL1Values + kStages * kValueStagePages * kPage * sizeof(bfloat16_t);
constexpr uint32_t kL1End = kL1Weights + kWeightElements * sizeof(bfloat16_t);
static_assert(kL1End <= kL1Bytes, "L1");

// UB, in bytes.
constexpr uint32_t kUbScores = 0;
constexpr uint32_t kUbOwn = kUbScores + kMaxRows * kMaxKeys * sizeof(float);

constexpr int32_t kWeightsEvent = 4; // of MTE2 and MTE1
constexpr int32_t kScoresEvent = 0; // of MTE2 and V

constexpr uint16_t kScoresFull = 0, kWeightsFull = 2, kPartFull = 4;

// ---- cube core

// A [16 x k] from L1 to L0A; `count` fractals in a row.
__aicore__ inline void LoadLeft(const LocalTensor<bfloat16_t> &to, const LocalTensor<bfloat16_t> &from, uint32_t count)
{
    LoadData2DParams p;
    p.repeatTimes = static_cast<uint8_t>(count);
    p.srcStride = 1;
    p.dstGap = 0;
    p.ifTranspose = false;
    LoadData(to, from, p);
}
// B [k x n] from a page [n rows, k columns] in NZ form: fractals lie in the order of L0B.
__aicore__ inline void LoadKeys(const LocalTensor<bfloat16_t> &to, const LocalTensor<bfloat16_t> &from, uint32_t n16, uint32_t k16)
{
    LoadData2DParams p;
    p.repeatTimes = static_cast<uint8_t>(n16 * k16);
    p.srcStride = 1;
    p.dstGap = 0;
    p.ifTranspose = false;
    LoadData(to, from, p);
}
// B [k x n] from a page of `rows16` x 16 rows and n columns, of which the first k16 x 16 rows are k.
__aicore__ inline void LoadValues(const LocalTensor<bfloat16_t> &to, const LocalTensor<bfloat16_t> &from, uint32_t rows16,
                                  uint32_t k16, uint32_t n16)
{
    LoadData2DParams p;
    p.repeatTimes = static_cast<uint8_t>(n16);
    p.srcStride = static_cast<uint16_t>(rows16);
    p.dstGap = 0;
    p.ifTranspose = true;
    for (uint32_t i = 0; i < k16; i++) {
        LoadData(to[i * n16 * kFractal], from[i * kFractal], p);
    }
}

// Rows of L0C to rows of global memory; `tiles` of them, n columns each.
__aicore__ inline void StoreRows(const GlobalTensor<float> &to, const LocalTensor<float> &from, uint32_t rows, uint32_t n,
                                 uint32_t pitch, uint32_t tiles = 1)
{
    FixpipeParamsV220 p;
    p.nSize = static_cast<uint16_t>(n);
    p.mSize = static_cast<uint16_t>(rows);
    p.srcStride = static_cast<uint16_t>(kLane);
    p.dstStride = pitch;
    p.quantPre = QuantMode_t::NoQuant;
    p.ndNum = static_cast<uint16_t>(tiles);
    p.srcNdStride = static_cast<uint16_t>(n / kLane);
    p.dstNdStride = static_cast<uint16_t>(kLane * pitch);
    Fixpipe<float, float, CFG_ROW_MAJOR>(to, from, p);
}

// What passes between the cores, seen from the cube core.
class CubeSide {
public:
    __aicore__ inline void Init(const Shape &s, GM_ADDR workspace, uint32_t core)
    {
        s_ = &s;
        const uint32_t tile = kLane * s.block16;
        scores_.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(workspace + s.t.ws_scores) +
                                    static_cast<uint64_t>(core) * kRing * s.t.pass_slots * tile,
                                kRing * s.t.pass_slots * tile);
        weights_.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(workspace + s.t.ws_weights) +
                                     static_cast<uint64_t>(core) * kRing * s.t.terms * s.t.pass_slots * tile,
                                 kRing * s.t.terms * s.t.pass_slots * tile);
        SetFlag<HardEvent::MTE1_MTE2>(kWeightsEvent);
    }
    __aicore__ inline void End() { WaitFlag<HardEvent::MTE1_MTE2>(kWeightsEvent); }
    __aicore__ inline void PutScores(uint32_t ring, uint32_t slot, const LocalTensor<float> &from, uint32_t rows, uint32_t tiles)
    {
        StoreRows(scores_[(ring * s_->t.pass_slots + slot) * kLane * s_->block16], from, rows, s_->block16, s_->block16, tiles);
    }
    __aicore__ inline void ScoresDone() { CrossCoreSetFlag<2, PIPE_FIX>(kScoresFull); }
    // The weights of a task, term by term, each [slots][block16 / 16][16 rows][16] in L1.
    __aicore__ inline LocalTensor<bfloat16_t> Weights(uint32_t ring, uint32_t slots, uint32_t rows)
    {
        LocalTensor<bfloat16_t> to(TPosition::A1, kL1Weights, kWeightElements);
        const uint32_t tile = kLane * s_->block16;
        CrossCoreWaitFlag<2, PIPE_MTE2>(kWeightsFull);
        WaitFlag<HardEvent::MTE1_MTE2>(kWeightsEvent);
        Nd2NzParams p;
        p.ndNum = static_cast<uint16_t>(slots);
        p.nValue = static_cast<uint16_t>(rows);
        p.dValue = static_cast<uint16_t>(s_->block16);
        p.srcNdMatrixStride = static_cast<uint16_t>(tile);
        p.srcDValue = static_cast<uint16_t>(s_->block16);
        p.dstNzC0Stride = static_cast<uint16_t>(kLane);
        p.dstNzNStride = 1;
        p.dstNzMatrixStride = static_cast<uint16_t>(tile);
        for (uint32_t term = 0; term < s_->t.terms; term++) {
            DataCopy(to[term * slots * tile], weights_[(ring * s_->t.terms + term) * s_->t.pass_slots * tile], p);
        }
        SetFlag<HardEvent::MTE2_MTE1>(kWeightsEvent);
        WaitFlag<HardEvent::MTE2_MTE1>(kWeightsEvent);
        return to;
    }
    // After the last LoadData of the weights.
    __aicore__ inline void WeightsTaken() { SetFlag<HardEvent::MTE1_MTE2>(kWeightsEvent); }
    __aicore__ inline void PartDone() { CrossCoreSetFlag<2, PIPE_FIX>(kPartFull); }

private:
    const Shape *s_;
    GlobalTensor<float> scores_;
    GlobalTensor<bfloat16_t> weights_;
};

// The same, seen from a vector core.
class VectorSide {
public:
    __aicore__ inline void Init(const Shape &s, GM_ADDR workspace, uint32_t core, uint32_t sub)
    {
        s_ = &s;
        sub_ = sub;
        const uint32_t tile = kLane * s.block16;
        scores_.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(workspace + s.t.ws_scores) +
                                    static_cast<uint64_t>(core) * kRing * s.t.pass_slots * tile,
                                kRing * s.t.pass_slots * tile);
        weights_.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(workspace + s.t.ws_weights) +
                                     static_cast<uint64_t>(core) * kRing * s.t.terms * s.t.pass_slots * tile,
                                 kRing * s.t.terms * s.t.pass_slots * tile);
        SetFlag<HardEvent::V_MTE2>(kScoresEvent);
    }
    __aicore__ inline void End() { WaitFlag<HardEvent::V_MTE2>(kScoresEvent); }
    // The scores of a task, [slots][half][block16].
    __aicore__ inline LocalTensor<float> Scores(uint32_t ring, uint32_t slots, uint32_t half)
    {
        LocalTensor<float> to(TPosition::VECIN, kUbScores, kMaxRows * kMaxKeys);
        CrossCoreWaitFlag<2, PIPE_MTE2>(kScoresFull);
        WaitFlag<HardEvent::V_MTE2>(kScoresEvent);
        DataCopyParams p;
        p.blockCount = static_cast<uint16_t>(slots);
        p.blockLen = static_cast<uint16_t>(half * s_->block16 * sizeof(float) / 32);
        p.srcStride = static_cast<uint16_t>((kLane - half) * s_->block16 * sizeof(float) / 32);
        p.dstStride = 0;
        DataCopy(to, scores_[(ring * s_->t.pass_slots * kLane + sub_ * half) * s_->block16], p);
        SetFlag<HardEvent::MTE2_V>(kScoresEvent);
        WaitFlag<HardEvent::MTE2_V>(kScoresEvent);
        return to;
    }
    // After the last use of the scores.
    __aicore__ inline void ScoresTaken() { SetFlag<HardEvent::V_MTE2>(kScoresEvent); }
    // A term of the weights of a task, [slots][half][block16].
    __aicore__ inline void PutWeights(uint32_t ring, uint32_t term, const LocalTensor<bfloat16_t> &from, uint32_t slots, uint32_t half)
    {
        DataCopyParams p;
        p.blockCount = static_cast<uint16_t>(slots);
        p.blockLen = static_cast<uint16_t>(half * s_->block16 * sizeof(bfloat16_t) / 32);
        p.srcStride = 0;
        p.dstStride = static_cast<uint16_t>((kLane - half) * s_->block16 * sizeof(bfloat16_t) / 32);
        DataCopy(weights_[(((ring * s_->t.terms + term) * s_->t.pass_slots) * kLane + sub_ * half) * s_->block16], from, p);
    }
    __aicore__ inline void WeightsDone() { CrossCoreSetFlag<2, PIPE_MTE3>(kWeightsFull); }
    __aicore__ inline void WaitPart() { CrossCoreWaitFlag<2, PIPE_MTE2>(kPartFull); }

private:
    const Shape *s_;
    uint32_t sub_;
    GlobalTensor<float> scores_;
    GlobalTensor<bfloat16_t> weights_;
};

} // namespace sparse_decode

#endif
