// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A vector core: the activation of the tiles of its cube core, half of the rows each, and what is left of the result.

#ifndef GROUPED_GEMM_VECTOR_H
#define GROUPED_GEMM_VECTOR_H

#include "common.h"

namespace moe {

constexpr uint32_t kTailAt = arch::kRoundedAt + kSliceBytes;
constexpr uint32_t kTailRows = 512; // a part of the ragged columns
static_assert(kTailAt + kTailRows * kC0 * sizeof(bfloat16_t) <= arch::kUbBytes, "UB");

// The combination uses the same memory again.
constexpr uint32_t kPart = 1024; // columns
constexpr uint32_t kRowAt = 0; // two buffers
constexpr uint32_t kWideAt = kRowAt + 2 * kPart * sizeof(bfloat16_t);
constexpr uint32_t kSumAt = kWideAt + kPart * sizeof(float); // two buffers

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
        const bool coded = a.t.layout == 2;
        Product p;
        FirstProduct(p, a);
        if (coded) {
            weights_.Init(a, half_);
            weights_.SetWeights(p);
            Product second;
            SecondProduct(second, a);
            second_.Init(a, second);
        }
        Tiles tiles;
        tiles.Init(a, rows_, p.blocks, p.width, p.fewWidth);
        // Weights of the next tile come before the activation of this one: the cube core is ahead.
        Tile t, next;
        bool more = tiles.Next(next);
        if (coded && more) {
            weights_.Decode(p, next);
        }
        while (more) {
            t = next;
            more = tiles.Next(next);
            if (coded && more) {
                weights_.Decode(p, next);
            }
            Activate(t, coded);
        }
        inbox_.Drain();
        for (int32_t i = 0; i < 2; i++) {
            WaitFlag<HardEvent::MTE3_V>(i);
        }
        CrossCoreSetFlag<0, PIPE_MTE3>(kRowsAmongVectors);
        CrossCoreWaitFlag<0, PIPE_MTE3>(kRowsAmongVectors);
        CrossCoreSetFlag<2, PIPE_MTE3>(kRowsToCube);
        if (coded) {
            SecondProduct(p, a);
            weights_.SetWeights(p);
            tiles.Init(a, rows_, p.blocks, p.width, p.fewWidth);
            while (tiles.Next(t)) {
                weights_.Decode(p, t);
            }
            weights_.Drain();
        }
        if (!HasEpilogue(a)) {
            return;
        }
        CrossCoreWaitFlag<2, PIPE_MTE2>(kResultToVector);
        if (a.t.hidden % kC0 != 0) {
            CopyTail(tiles.First(), tiles.Last());
        }
        if (a.t.choices != 0) {
            if (a.t.hidden % kC0 != 0) {
                CrossCoreSetFlag<0, PIPE_MTE3>(kTailAmongVectors);
                CrossCoreWaitFlag<0, PIPE_MTE2>(kTailAmongVectors);
            }
            Combine();
        }
    }

private:
    template <class T> __aicore__ inline static LocalTensor<T> Ub(uint32_t address, uint32_t count)
    {
        return LocalTensor<T>(TPosition::VECCALC, address, count);
    }

    __aicore__ inline void Activate(const Tile &t, bool coded)
    {
        uint32_t begin = 0, rows = 0;
        // Powers of two that the products lack: before the activation, and ahead of the second product.
        const float before = coded ? weights_.Lacks(t.expert) : 1.0f, after = coded && arch::kScales ? second_.First(t.expert) : 0.0f;
        inbox_.Open(t, begin, rows);
        const uint32_t columns = t.blocks * kC0, most = Max(Min(a_.t.vector_elements, kSliceBytes / sizeof(float)) / columns, 1);
        for (uint32_t at = 0; at < rows; at += most) {
            const uint32_t now = Min(most, rows - at), count = now * columns;
            const bool last = at + now == rows;
            const int32_t b = static_cast<int32_t>(buffer_);
            const LocalTensor<float> temp = Ub<float>(arch::kTempAt, kSliceBytes / sizeof(float));
            const LocalTensor<bfloat16_t> rounded =
                Ub<bfloat16_t>(arch::kRoundedAt + buffer_ * kSliceBytes / 2, kSliceBytes / sizeof(float));
            LocalTensor<float> gate, up;
            inbox_.Get(gate, up, at, now, columns, last);
            WaitFlag<HardEvent::MTE3_V>(b);
            if (before != 1.0f) {
                Muls(gate, gate, before, static_cast<int32_t>(count));
                Muls(up, up, before, static_cast<int32_t>(count));
                arch::VectorBarrier();
            }
            if (a_.t.activation == 0) {
                Silu(temp, gate, up, count);
            } else {
                SwigluOai(temp, gate, up, count);
            }
            if (after != 0.0f && after != 1.0f) {
                Muls(temp, temp, after, static_cast<int32_t>(count));
                arch::VectorBarrier();
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

    // For each token the sum of its rows, in the order of `slots`, each times its scale, in F32. Parts of kPart columns are
    // spread over the vector cores. Rows of experts of earlier launches are among them; slots that are no rows count nothing.
    __aicore__ inline void Combine()
    {
        const uint32_t hidden = a_.t.hidden, choices = a_.t.choices, parts = Ceil(hidden, kPart), items = a_.t.tokens * parts;
        const uint32_t share = Ceil(items, 2 * a_.cores), begin = Min((2 * a_.core + half_) * share, items);
        const uint32_t end = Min(begin + share, items);
        GlobalTensor<int32_t> slots;
        GlobalTensor<float> scales, combined;
        GlobalTensor<bfloat16_t> rows;
        slots.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t *>(a_.slots), static_cast<uint64_t>(a_.t.tokens) * choices);
        scales.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(a_.scales), static_cast<uint64_t>(a_.t.tokens) * choices);
        combined.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(a_.combined), static_cast<uint64_t>(a_.t.tokens) * hidden);
        rows.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(a_.out), static_cast<uint64_t>(a_.t.rows) * hidden);
        const LocalTensor<float> wide = Ub<float>(kWideAt, kPart);
        uint32_t row = 0, sum = 0; // buffers
        for (int32_t i = 0; i < 2; i++) {
            SetFlag<HardEvent::V_MTE2>(i);
            SetFlag<HardEvent::MTE3_V>(i);
        }
        uint32_t token = begin / parts, part = begin % parts;
        for (uint32_t item = begin; item < end; item++) {
            const uint32_t column = part * kPart, count = Min(kPart, hidden - column);
            const int32_t n = static_cast<int32_t>(count);
            const LocalTensor<float> to = Ub<float>(kSumAt + sum * kPart * sizeof(float), kPart);
            WaitFlag<HardEvent::MTE3_V>(static_cast<int32_t>(sum));
            Duplicate(to, 0.0f, n);
            for (uint32_t j = 0; j < choices; j++) {
                const uint64_t choice = static_cast<uint64_t>(token) * choices + j;
                const int32_t slot = slots.GetValue(choice);
                if (slot < 0 || slot >= static_cast<int32_t>(a_.t.rows)) {
                    continue;
                }
                const float scale = scales.GetValue(choice);
                const int32_t b = static_cast<int32_t>(row);
                const LocalTensor<bfloat16_t> from = Ub<bfloat16_t>(kRowAt + row * kPart * sizeof(bfloat16_t), kPart);
                DataCopyExtParams d;
                d.blockCount = 1;
                d.blockLen = count * sizeof(bfloat16_t);
                d.srcStride = 0;
                d.dstStride = 0;
                DataCopyPadExtParams<bfloat16_t> pad;
                WaitFlag<HardEvent::V_MTE2>(b);
                DataCopyPad(from, rows[static_cast<uint64_t>(slot) * hidden + column], d, pad);
                SetFlag<HardEvent::MTE2_V>(b);
                WaitFlag<HardEvent::MTE2_V>(b);
                Cast(wide, from, RoundMode::CAST_NONE, n);
                SetFlag<HardEvent::V_MTE2>(b);
                arch::VectorBarrier();
                Axpy(to, wide, scale, n);
                arch::VectorBarrier();
                row ^= 1;
            }
            SetFlag<HardEvent::V_MTE3>(static_cast<int32_t>(sum));
            WaitFlag<HardEvent::V_MTE3>(static_cast<int32_t>(sum));
            DataCopyExtParams s;
            s.blockCount = 1;
            s.blockLen = count * sizeof(float);
            s.srcStride = 0;
            s.dstStride = 0;
            DataCopyPad(combined[static_cast<uint64_t>(token) * hidden + column], to, s);
            SetFlag<HardEvent::MTE3_V>(static_cast<int32_t>(sum));
            sum ^= 1;
            if (++part == parts) {
                part = 0;
                token++;
            }
        }
        for (int32_t i = 0; i < 2; i++) {
            WaitFlag<HardEvent::V_MTE2>(i);
            WaitFlag<HardEvent::MTE3_V>(i);
        }
    }

    Arguments a_;
    Rows rows_;
    arch::Inbox inbox_;
    Dequantiser weights_;
    GlobalTensor<bfloat16_t> a16_;
    Ways second_; // of the second product
    uint32_t half_ = 0; // which of the two vector cores
    uint32_t pitch_ = 0; // of the activations
    uint32_t buffer_ = 0;
};

} // namespace moe

#endif
