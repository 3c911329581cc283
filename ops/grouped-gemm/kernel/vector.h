// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A vector core: the activation of the tiles of its cube core, half of the rows each, and what is left of the result.

#ifndef GROUPED_GEMM_VECTOR_H
#define GROUPED_GEMM_VECTOR_H

#include "common.h"

namespace moe {

constexpr uint32_t kRoundedAt = arch::kTempAt + kSliceBytes; // two buffers
constexpr uint32_t kTailAt = kRoundedAt + kSliceBytes;
constexpr uint32_t kTailRows = 512; // a part of the ragged columns
static_assert(kTailAt + kTailRows * kC0 * sizeof(bfloat16_t) <= arch::kUbBytes, "UB");

class Vector {
public:
    __aicore__ inline void Run(const Arguments &a)
    {
        a_ = a;
        half_ = static_cast<uint32_t>(GetSubBlockIdx());
        rows_.Init(a);
        inbox_.Init(a, half_);
        pitch_ = RoundUp(a.t.intermediate, kC0);
        a16_.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(a.workspace + a.t.a16), static_cast<uint64_t>(a.t.rows) * pitch_);
        for (int32_t i = 0; i < 2; i++) {
            SetFlag<HardEvent::MTE3_V>(i);
        }
        Tiles tiles;
        tiles.Init(a, rows_, Ceil(a.t.intermediate, kC0), a.t.columns1 / kC0, true);
        Tile t;
        while (tiles.Next(t)) {
            Activate(t);
        }
        inbox_.Drain();
        for (int32_t i = 0; i < 2; i++) {
            WaitFlag<HardEvent::MTE3_V>(i);
        }
        CrossCoreSetFlag<0, PIPE_MTE3>(kRowsAmongVectors);
        CrossCoreWaitFlag<0, PIPE_MTE3>(kRowsAmongVectors);
        CrossCoreSetFlag<2, PIPE_MTE3>(kRowsToCube);
        if (a.t.hidden % kC0 != 0) {
            CrossCoreWaitFlag<2, PIPE_MTE2>(kResultToVector);
            CopyTail(tiles.First(), tiles.Last());
        }
    }

private:
    template <class T> __aicore__ inline static LocalTensor<T> Ub(uint32_t address, uint32_t count)
    {
        return LocalTensor<T>(TPosition::VECCALC, address, count);
    }

    __aicore__ inline void Activate(const Tile &t)
    {
        uint32_t begin = 0, rows = 0;
        inbox_.Open(t, begin, rows);
        const uint32_t columns = t.blocks * kC0, most = Max(Min(a_.t.vector_elements, kSliceBytes / sizeof(float)) / columns, 1);
        for (uint32_t at = 0; at < rows; at += most) {
            const uint32_t now = Min(most, rows - at), count = now * columns;
            const bool last = at + now == rows;
            const int32_t b = static_cast<int32_t>(buffer_);
            const LocalTensor<float> temp = Ub<float>(arch::kTempAt, kSliceBytes / sizeof(float));
            const LocalTensor<bfloat16_t> rounded =
                Ub<bfloat16_t>(kRoundedAt + buffer_ * kSliceBytes / 2, kSliceBytes / sizeof(float));
            LocalTensor<float> gate, up;
            inbox_.Get(gate, up, at, now, columns, last);
            WaitFlag<HardEvent::MTE3_V>(b);
            if (a_.t.activation == 0) {
                Silu(temp, gate, up, count);
            } else {
                SwigluOai(temp, gate, up, count);
            }
            Cast(rounded, temp, RoundMode::CAST_RINT, count);
            arch::VectorBarrier();
            inbox_.Put(last);
            SetFlag<HardEvent::V_MTE3>(b);

            WaitFlag<HardEvent::V_MTE3>(b);
            DataCopyExtParams s;
            s.blockCount = static_cast<uint16_t>(now);
            s.blockLen = columns * sizeof(bfloat16_t);
            s.srcStride = 0;
            s.dstStride = (pitch_ - columns) * sizeof(bfloat16_t);
            DataCopyPad(a16_[static_cast<uint64_t>(t.row + begin + at) * pitch_ + t.block * kC0], rounded, s);
            SetFlag<HardEvent::MTE3_V>(b);
            buffer_ ^= 1;
        }
        inbox_.Close();
    }

    // gate / (1 + exp(-gate)) * up
    __aicore__ inline static void Silu(const LocalTensor<float> &to, const LocalTensor<float> &gate, const LocalTensor<float> &up,
                                       uint32_t count)
    {
        const int32_t n = static_cast<int32_t>(count);
        Muls(to, gate, -1.0f, n);
        arch::VectorBarrier();
        Exp(to, to, n);
        arch::VectorBarrier();
        Adds(to, to, 1.0f, n);
        arch::VectorBarrier();
        Div(to, gate, to, n);
        arch::VectorBarrier();
        Mul(to, to, up, n);
        arch::VectorBarrier();
    }

    // (u + 1) * g / (1 + exp(-alpha * g)), g = min(gate, limit), u = min(max(up, -limit), limit)
    __aicore__ inline void SwigluOai(const LocalTensor<float> &to, const LocalTensor<float> &gate, const LocalTensor<float> &up,
                                     uint32_t count)
    {
        const int32_t n = static_cast<int32_t>(count);
        Mins(gate, gate, a_.t.limit, n);
        Maxs(up, up, -a_.t.limit, n);
        arch::VectorBarrier();
        Muls(to, gate, -a_.t.alpha, n);
        Mins(up, up, a_.t.limit, n);
        arch::VectorBarrier();
        Exp(to, to, n);
        Adds(up, up, 1.0f, n);
        arch::VectorBarrier();
        Adds(to, to, 1.0f, n);
        arch::VectorBarrier();
        Div(to, gate, to, n);
        arch::VectorBarrier();
        Mul(to, to, up, n);
        arch::VectorBarrier();
    }

    // The last columns of the result, from the workspace, rows spread over the vector cores.
    __aicore__ inline void CopyTail(uint32_t first, uint32_t last)
    {
        const uint32_t columns = a_.t.hidden % kC0, share = Ceil(last - first, 2 * a_.cores);
        const uint32_t begin = Min(first + (2 * a_.core + half_) * share, last), end = Min(begin + share, last);
        GlobalTensor<bfloat16_t> tail, out;
        tail.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(a_.workspace + a_.t.tail), static_cast<uint64_t>(a_.t.rows) * kC0);
        out.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(a_.out), static_cast<uint64_t>(a_.t.rows) * a_.t.hidden);
        const LocalTensor<bfloat16_t> part = Ub<bfloat16_t>(kTailAt, kTailRows * kC0);
        SetFlag<HardEvent::MTE3_MTE2>(0);
        for (uint32_t at = begin; at < end; at += kTailRows) {
            const uint32_t rows = Min(kTailRows, end - at);
            WaitFlag<HardEvent::MTE3_MTE2>(0);
            DataCopy(part, tail[static_cast<uint64_t>(at) * kC0], rows * kC0);
            SetFlag<HardEvent::MTE2_MTE3>(0);
            WaitFlag<HardEvent::MTE2_MTE3>(0);
            DataCopyExtParams s;
            s.blockCount = static_cast<uint16_t>(rows);
            s.blockLen = columns * sizeof(bfloat16_t);
            s.srcStride = 0;
            s.dstStride = (a_.t.hidden - columns) * sizeof(bfloat16_t);
            DataCopyPad(out[static_cast<uint64_t>(at) * a_.t.hidden + (a_.t.hidden - columns)], part, s);
            SetFlag<HardEvent::MTE3_MTE2>(0);
        }
        WaitFlag<HardEvent::MTE3_MTE2>(0);
    }

    Arguments a_;
    Rows rows_;
    arch::Inbox inbox_;
    GlobalTensor<bfloat16_t> a16_;
    uint32_t half_ = 0; // which of the two vector cores
    uint32_t pitch_ = 0; // of the activations
    uint32_t buffer_ = 0;
};

} // namespace moe

#endif
