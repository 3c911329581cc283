// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The second part, on vector cores: products, times their logits, are added to the rows of the output they belong to.

#ifndef GMM_FINALIZE_ROUTING_COMBINE_H
#define GMM_FINALIZE_ROUTING_COMBINE_H

#include "common.h"

namespace finalize {

constexpr uint32_t kSlice = 1024; // columns of the output that are summed at a time
constexpr uint32_t kMostWindow = 8192; // rows that are sorted at a time
constexpr uint32_t kOwn = 2048; // rows of the output that rows are sorted for at a time
constexpr uint32_t kIndexChunk = 1024;

// UB in bytes.
constexpr uint32_t kIndexAt = 0; // [kIndexChunk] INT64
constexpr uint32_t kHitsAt = kIndexAt + kIndexChunk * 8; // [window] UINT32
constexpr uint32_t kSortedAt = kHitsAt + kMostWindow * 4; // [window] UINT32
constexpr uint32_t kLogitAt = kSortedAt + kMostWindow * 4; // [window] F32
constexpr uint32_t kStartAt = kLogitAt + kMostWindow * 4; // [kOwn + 8] UINT32
constexpr uint32_t kSumAt = kStartAt + (kOwn + 8) * 4; // 2 x [kSlice] F32
constexpr uint32_t kProductAt = kSumAt + 2 * kSlice * 4; // 4 x [kSlice] F32
constexpr uint32_t kProducts = 4;
constexpr uint32_t kSharedAt = kProductAt + kProducts * kSlice * 4; // [kSlice] BF16
constexpr uint32_t kSharedWideAt = kSharedAt + kSlice * 2; // [kSlice] F32
constexpr uint32_t kCombineBytes = kSharedWideAt + kSlice * 4;
static_assert(kCombineBytes <= arch::kUbBytes, "UB");

// What both forms share.
class Outputs {
public:
    __aicore__ inline void Init(const Arguments &a, uint32_t covered, float factor)
    {
        factor_ = factor;
        t_ = a.t;
        covered_ = covered;
        worker_ = static_cast<uint32_t>(GetBlockIdx());
        workers_ = 2 * a.cores;
        slices_ = Ceil(t_.n, kSlice);
        index_.SetGlobalBuffer(reinterpret_cast<__gm__ int64_t *>(a.rowIndex), t_.rows);
        products_.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(a.workspace + t_.products),
                                  static_cast<uint64_t>(t_.rows) * t_.pitch);
        out_.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(a.out), static_cast<uint64_t>(t_.batch) * t_.n);
        if (t_.has_logit != 0) {
            logit_.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(a.logit), t_.rows);
        }
        if (t_.shared_rows != 0) {
            shared_.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(a.sharedInput),
                                    static_cast<uint64_t>(t_.shared_rows) * t_.n);
        }
    }

protected:
    // Indices of rows `at` on to UB, where the scalar unit may read them.
    __aicore__ inline void ReadIndices(uint32_t at, uint32_t count)
    {
        SetFlag<HardEvent::S_MTE2>(0);
        WaitFlag<HardEvent::S_MTE2>(0);
        DataCopyExtParams get{1, count * 8, 0, 0, 0};
        DataCopyPadExtParams<int64_t> pad{false, 0, 0, 0};
        DataCopyPad(LocalTensor<int64_t>(TPosition::VECIN, kIndexAt, kIndexChunk), index_[at], get, pad);
        SetFlag<HardEvent::MTE2_S>(0);
        WaitFlag<HardEvent::MTE2_S>(0);
    }
    __aicore__ inline void ReadLogits(uint32_t at, uint32_t count)
    {
        if (t_.has_logit == 0) {
            return;
        }
        SetFlag<HardEvent::S_MTE2>(1);
        WaitFlag<HardEvent::S_MTE2>(1);
        DataCopyExtParams get{1, count * 4, 0, 0, 0};
        DataCopyPadExtParams<float> pad{false, 0, 0, 0};
        DataCopyPad(LocalTensor<float>(TPosition::VECIN, kLogitAt, kMostWindow), logit_[at], get, pad);
        SetFlag<HardEvent::MTE2_S>(1);
        WaitFlag<HardEvent::MTE2_S>(1);
    }
    // A row's place in the output; false if there is no such row.
    __aicore__ inline bool Target(uint32_t inChunk, uint32_t &target) const
    {
        LocalTensor<int64_t> indices(TPosition::VECIN, kIndexAt, kIndexChunk);
        int64_t found = indices.GetValue(inChunk);
        target = static_cast<uint32_t>(found);
        return found >= 0 && found < static_cast<int64_t>(t_.batch);
    }
    __aicore__ inline float Logit(uint32_t inWindow) const
    {
        LocalTensor<float> logits(TPosition::VECIN, kLogitAt, kMostWindow);
        return t_.has_logit != 0 ? logits.GetValue(inWindow) * factor_ : factor_;
    }
    template <class T>
    __aicore__ inline static void Load(const LocalTensor<T> &to, const GlobalTensor<T> &from, uint32_t count)
    {
        DataCopyExtParams get{1, static_cast<uint32_t>(count * sizeof(T)), 0, 0, 0};
        DataCopyPadExtParams<T> pad{false, 0, 0, 0};
        DataCopyPad(to, from, get, pad);
    }
    __aicore__ inline static void Save(const GlobalTensor<float> &to, const LocalTensor<float> &from, uint32_t count)
    {
        DataCopyExtParams put{1, static_cast<uint32_t>(count * sizeof(float)), 0, 0, 0};
        DataCopyPad(to, from, put);
    }
    __aicore__ inline static LocalTensor<float> Sum(uint32_t i)
    {
        return LocalTensor<float>(TPosition::VECCALC, kSumAt + i * kSlice * 4, kSlice);
    }
    __aicore__ inline static LocalTensor<float> Product(uint32_t i)
    {
        return LocalTensor<float>(TPosition::VECIN, kProductAt + i * kSlice * 4, kSlice);
    }
    // Columns [column, column + count) of a row of the shared input, as F32 in kSharedWideAt. The buffer is free once
    // V_MTE2 5 is set.
    __aicore__ inline LocalTensor<float> Shared(uint32_t row, uint32_t column, uint32_t count)
    {
        LocalTensor<bfloat16_t> narrow(TPosition::VECIN, kSharedAt, kSlice);
        LocalTensor<float> wide(TPosition::VECCALC, kSharedWideAt, kSlice);
        WaitFlag<HardEvent::V_MTE2>(5);
        Load(narrow, shared_[static_cast<uint64_t>(row) * t_.n + column], count);
        SetFlag<HardEvent::MTE2_V>(5);
        WaitFlag<HardEvent::MTE2_V>(5);
        arch::VectorBarrier();
        Cast(wide, narrow, RoundMode::CAST_NONE, count);
        SetFlag<HardEvent::V_MTE2>(5);
        arch::VectorBarrier();
        return wide;
    }

    FinalizeTiling t_;
    uint32_t covered_ = 0, worker_ = 0, workers_ = 1, slices_ = 1;
    float factor_ = 1.0f; // of all products
    GlobalTensor<int64_t> index_;
    GlobalTensor<float> products_, out_, logit_;
    GlobalTensor<bfloat16_t> shared_;
};

// In ascending order of rows, the shared input last: the same bits for any number of cores. A core has some rows of the
// output, or slices of one. It sorts the rows that go there, a window of rows at a time, while the products are made.
class Combine : public Outputs {
public:
    __aicore__ inline void Run(uint32_t &status)
    {
        uint64_t units = static_cast<uint64_t>(t_.batch) * slices_;
        uint64_t begin = units * worker_ / workers_, end = units * (worker_ + 1) / workers_;
        bool waited = false;
        Prime();
        uint64_t at = begin;
        do {
            // The output rows of this round.
            uint32_t first = static_cast<uint32_t>(at / slices_);
            uint32_t last = static_cast<uint32_t>((end + slices_ - 1) / slices_);
            last = Min(last, first + kOwn);
            uint64_t to = static_cast<uint64_t>(last) * slices_;
            to = to < end ? to : end;
            uint32_t row = 0;
            do {
                uint32_t rows = Min(covered_ - row, t_.window);
                bool wanted = at < to || worker_ == 0;
                uint32_t hits = wanted ? Sort(row, rows, first, at < to ? last : first, status) : 0;
                if (!waited) {
                    SyncAll<false>();
                    waited = true;
                }
                if (at < to) {
                    ReadLogits(row, rows);
                    Add(at, to, first, row, hits, row + rows >= covered_);
                }
                row += rows;
                if (row < covered_) {
                    // The next window adds to what this one has stored.
                    PipeBarrier<PIPE_ALL>();
                }
            } while (row < covered_);
            at = to;
            if (at < end) {
                PipeBarrier<PIPE_ALL>();
            }
        } while (at < end);
        Drain();
    }

private:
    __aicore__ inline static LocalTensor<uint32_t> Hits() { return LocalTensor<uint32_t>(TPosition::VECCALC, kHitsAt, kMostWindow); }
    __aicore__ inline static LocalTensor<uint32_t> Sorted() { return LocalTensor<uint32_t>(TPosition::VECCALC, kSortedAt, kMostWindow); }
    __aicore__ inline static LocalTensor<uint32_t> Starts() { return LocalTensor<uint32_t>(TPosition::VECCALC, kStartAt, kOwn + 8); }

    __aicore__ inline static void Prime()
    {
        for (uint32_t i = 0; i < kProducts; i++) {
            SetFlag<HardEvent::V_MTE2>(i);
        }
        SetFlag<HardEvent::V_MTE2>(5);
        SetFlag<HardEvent::MTE3_MTE2>(0);
        SetFlag<HardEvent::MTE3_MTE2>(1);
    }
    __aicore__ inline static void Drain()
    {
        for (uint32_t i = 0; i < kProducts; i++) {
            WaitFlag<HardEvent::V_MTE2>(i);
        }
        WaitFlag<HardEvent::V_MTE2>(5);
        WaitFlag<HardEvent::MTE3_MTE2>(0);
        WaitFlag<HardEvent::MTE3_MTE2>(1);
    }

    // Sorts rows [row, row + rows) that go to rows [first, last) of the output by those, ascending among equals.
    __aicore__ inline uint32_t Sort(uint32_t row, uint32_t rows, uint32_t first, uint32_t last, uint32_t &status)
    {
        LocalTensor<uint32_t> hits = Hits(), sorted = Sorted(), starts = Starts();
        uint32_t own = last - first, count = 0;
        // Counts, one place further on, so that they become the starts.
        for (uint32_t i = 0; i <= own + 1; i++) {
            starts.SetValue(i, 0);
        }
        for (uint32_t at = 0; at < rows; at += kIndexChunk) {
            uint32_t chunk = Min(kIndexChunk, rows - at);
            ReadIndices(row + at, chunk);
            for (uint32_t i = 0; i < chunk; i++) {
                uint32_t target = 0;
                if (!Target(i, target)) {
                    status |= kBadIndex;
                } else if (target - first < own) {
                    uint32_t mine = target - first;
                    hits.SetValue(count, mine * kMostWindow + at + i);
                    starts.SetValue(mine + 2, starts.GetValue(mine + 2) + 1);
                    count++;
                }
            }
        }
        for (uint32_t i = 2; i <= own; i++) {
            starts.SetValue(i, starts.GetValue(i) + starts.GetValue(i - 1));
        }
        // Each start moves to its end, which is the start of the next.
        for (uint32_t i = 0; i < count; i++) {
            uint32_t hit = hits.GetValue(i);
            uint32_t mine = hit / kMostWindow + 1, place = starts.GetValue(mine);
            sorted.SetValue(place, hit % kMostWindow);
            starts.SetValue(mine, place + 1);
        }
        return count;
    }

    __aicore__ inline void Add(uint64_t at, uint64_t to, uint32_t first, uint32_t row, uint32_t hits, bool isLast)
    {
        LocalTensor<uint32_t> sorted = Sorted(), starts = Starts();
        uint32_t target = static_cast<uint32_t>(at / slices_), slice = static_cast<uint32_t>(at % slices_);
        for (; at < to; at++) {
            uint32_t begin = starts.GetValue(target - first), end = starts.GetValue(target - first + 1);
            uint32_t shared = target - t_.shared_offset;
            bool withShared = isLast && t_.shared_rows != 0 && shared < t_.shared_rows;
            if (begin < end || withShared) {
                uint32_t column = slice * kSlice, count = Min(kSlice, t_.n - column);
                uint64_t place = static_cast<uint64_t>(target) * t_.n + column;
                LocalTensor<float> sum = Sum(sum_);
                WaitFlag<HardEvent::MTE3_MTE2>(sum_);
                Load(sum, out_[place], count);
                SetFlag<HardEvent::MTE2_V>(4);
                WaitFlag<HardEvent::MTE2_V>(4);
                for (uint32_t i = begin; i < end; i++) {
                    uint32_t from = sorted.GetValue(i);
                    LocalTensor<float> product = Product(product_);
                    WaitFlag<HardEvent::V_MTE2>(product_);
                    Load(product, products_[static_cast<uint64_t>(row + from) * t_.pitch + column], count);
                    SetFlag<HardEvent::MTE2_V>(product_);
                    WaitFlag<HardEvent::MTE2_V>(product_);
                    arch::VectorBarrier();
                    Axpy(sum, product, Logit(from), static_cast<int32_t>(count));
                    SetFlag<HardEvent::V_MTE2>(product_);
                    product_ = (product_ + 1) % kProducts;
                }
                if (withShared) {
                    LocalTensor<float> wide = Shared(shared, column, count);
                    Axpy(sum, wide, t_.shared_weight, static_cast<int32_t>(count));
                }
                SetFlag<HardEvent::V_MTE3>(sum_);
                WaitFlag<HardEvent::V_MTE3>(sum_);
                Save(out_[place], sum, count);
                SetFlag<HardEvent::MTE3_MTE2>(sum_);
                sum_ = 1 - sum_;
            }
            slice++;
            if (slice == slices_) {
                slice = 0;
                target++;
            }
        }
        (void)hits;
    }

    uint32_t sum_ = 0, product_ = 0;
};

// As they come, by atomic adds: not the same bits twice.
class Scatter : public Outputs {
public:
    __aicore__ inline void Run(uint32_t &status)
    {
        SyncAll<false>();
        SetFlag<HardEvent::MTE3_MTE2>(0);
        SetFlag<HardEvent::MTE3_MTE2>(1);
        SetFlag<HardEvent::V_MTE2>(5);
        SetFlag<HardEvent::MTE3_V>(0);
        Rows(status);
        SharedRows();
        WaitFlag<HardEvent::MTE3_MTE2>(0);
        WaitFlag<HardEvent::MTE3_MTE2>(1);
        WaitFlag<HardEvent::V_MTE2>(5);
        WaitFlag<HardEvent::MTE3_V>(0);
    }

private:
    __aicore__ inline void Rows(uint32_t &status)
    {
        uint32_t begin = static_cast<uint32_t>(static_cast<uint64_t>(covered_) * worker_ / workers_);
        uint32_t end = static_cast<uint32_t>(static_cast<uint64_t>(covered_) * (worker_ + 1) / workers_);
        for (uint32_t at = begin; at < end; at += kIndexChunk) {
            uint32_t chunk = Min(kIndexChunk, end - at);
            ReadIndices(at, chunk);
            ReadLogits(at, chunk);
            for (uint32_t i = 0; i < chunk; i++) {
                uint32_t target = 0;
                if (!Target(i, target)) {
                    status |= kBadIndex;
                    continue;
                }
                for (uint32_t column = 0; column < t_.n; column += kSlice) {
                    uint32_t count = Min(kSlice, t_.n - column);
                    LocalTensor<float> sum = Sum(sum_);
                    WaitFlag<HardEvent::MTE3_MTE2>(sum_);
                    Load(sum, products_[static_cast<uint64_t>(at + i) * t_.pitch + column], count);
                    SetFlag<HardEvent::MTE2_V>(sum_);
                    WaitFlag<HardEvent::MTE2_V>(sum_);
                    if (t_.has_logit != 0 || factor_ != 1.0f) {
                        Muls(sum, sum, Logit(i), static_cast<int32_t>(count));
                    }
                    SetFlag<HardEvent::V_MTE3>(sum_);
                    WaitFlag<HardEvent::V_MTE3>(sum_);
                    SetAtomicAdd<float>();
                    Save(out_[static_cast<uint64_t>(target) * t_.n + column], sum, count);
                    SetAtomicNone();
                    SetFlag<HardEvent::MTE3_MTE2>(sum_);
                    sum_ = 1 - sum_;
                }
            }
        }
    }
    __aicore__ inline void SharedRows()
    {
        uint64_t units = static_cast<uint64_t>(t_.shared_rows) * slices_;
        uint64_t end = units * (worker_ + 1) / workers_;
        for (uint64_t at = units * worker_ / workers_; at < end; at++) {
            uint32_t row = static_cast<uint32_t>(at / slices_), column = static_cast<uint32_t>(at % slices_) * kSlice;
            uint32_t count = Min(kSlice, t_.n - column);
            WaitFlag<HardEvent::MTE3_V>(0);
            LocalTensor<float> wide = Shared(row, column, count);
            Muls(wide, wide, t_.shared_weight, static_cast<int32_t>(count));
            SetFlag<HardEvent::V_MTE3>(2);
            WaitFlag<HardEvent::V_MTE3>(2);
            SetAtomicAdd<float>();
            Save(out_[static_cast<uint64_t>(t_.shared_offset + row) * t_.n + column], wide, count);
            SetAtomicNone();
            SetFlag<HardEvent::MTE3_V>(0);
        }
    }

    uint32_t sum_ = 0;
};

} // namespace finalize

#endif
