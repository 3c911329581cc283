// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Sizes, and the tasks of a core: which slots of which item it works on. Cube and vector cores make the same list.

#ifndef MSA_SPARSE_DECODE_SHAPE_H
#define MSA_SPARSE_DECODE_SHAPE_H

#include "kernel_operator.h"
#include "tiling.h"

namespace sparse_decode {

using namespace AscendC;

constexpr uint32_t kLane = 16; // rows and columns of a fractal
constexpr uint32_t kFractal = kLane * kLane;
constexpr uint32_t kMaxSlots = 16; // of a task
constexpr uint32_t kMaxKeys = 2048; // of a task
constexpr uint32_t kMaxRows = 8; // of a vector core
constexpr uint32_t kPage = 128 * 128; // elements of a padded page, at most
constexpr uint32_t kMaxDim = 256;
constexpr uint32_t kMaxBlock = 256;
constexpr uint32_t kKeyStagePages = 2;
constexpr uint32_t kStages = 2; // of keys, of values, of L0, of scores in L0C
constexpr uint32_t kBatchKeys = 512; // keys of a score tile in L0C
constexpr uint32_t kStats = 16; // after each row of a part: its maximum and its sum, eight times each
constexpr uint32_t kRing = 2; // tasks in flight

// Bits of a status word, and words of each cube core: a line of the data cache.
constexpr uint32_t kClamped = 1, kBadIndex = 2, kBlind = 4;
constexpr uint32_t kStatusWords = 16;

__aicore__ inline uint32_t Least(uint32_t a, uint32_t b) { return a < b ? a : b; }
__aicore__ inline uint32_t Most(uint32_t a, uint32_t b) { return a < b ? b : a; }
__aicore__ inline uint32_t Ceil(uint32_t a, uint32_t b) { return (a + b - 1) / b; }
__aicore__ inline uint32_t Up16(uint32_t a) { return (a + 15) / 16 * 16; }

// What follows from the tiling.
struct Shape {
    MsaSparseDecodeTiling t;
    uint32_t group, block16, dim16;
    uint32_t partRow; // elements of a row of a part
    uint32_t blocks; // launched

    __aicore__ inline void Init(GM_ADDR tiling)
    {
        GlobalTensor<uint32_t> words;
        constexpr uint32_t count = sizeof(MsaSparseDecodeTiling) / sizeof(uint32_t);
        words.SetGlobalBuffer(reinterpret_cast<__gm__ uint32_t *>(tiling), count);
        uint32_t *to = reinterpret_cast<uint32_t *>(&t);
        for (uint32_t i = 0; i < count; i++) {
            to[i] = words.GetValue(i);
        }
        group = t.heads / t.kv_heads;
        block16 = Up16(t.block);
        dim16 = Up16(t.head_dim);
        partRow = dim16 + kStats;
        blocks = static_cast<uint32_t>(GetBlockNum());
    }
    // The first slot of a core, of all slots of all items in a row.
    __aicore__ inline uint32_t First(uint32_t core) const
    {
        return static_cast<uint32_t>(static_cast<uint64_t>(t.items) * t.topk * core / blocks);
    }
    __aicore__ inline uint32_t Rows(uint32_t item) const
    {
        return Least(kLane, group - item % t.row_tiles * kLane);
    }
    // Rows that each vector core works on: the same for both; the last of them may be nobody's.
    __aicore__ inline uint32_t Half(uint32_t rows) const { return (rows + 1) / 2; }
    // The first query head of an item, counted through all batch entries.
    __aicore__ inline uint32_t Head(uint32_t item) const
    {
        return item / t.row_tiles * group + item % t.row_tiles * kLane;
    }
    // Elements of the part of a task from the start of all parts.
    __aicore__ inline uint64_t Part(uint32_t core, uint32_t task) const
    {
        return (static_cast<uint64_t>(core) * t.tasks + task) * kLane * partRow;
    }
};

struct Task {
    uint32_t item, rows;
    uint32_t number; // of the core
    uint32_t whole; // 1: all slots of the item
    uint32_t slots; // that have keys
    uint32_t id[kMaxSlots];
    uint32_t keys[kMaxSlots];
};

class Tasks {
public:
    __aicore__ inline void Init(const Shape &s, GM_ADDR ids, GM_ADDR lens, uint32_t core)
    {
        s_ = &s;
        const uint32_t batch = s.t.items / (s.t.row_tiles * s.t.kv_heads);
        ids_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t *>(ids),
                             static_cast<uint64_t>(batch) * (s.t.per_head != 0 ? s.t.kv_heads : 1) * s.t.topk);
        lens_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t *>(lens), batch);
        // An earlier kernel may have written them.
        DataCacheCleanAndInvalid<int32_t, CacheLine::ENTIRE_DATA_CACHE, DcciDst::CACHELINE_OUT>(ids_);
        at_ = s.First(core);
        end_ = s.First(core + 1);
        number_ = 0;
    }
    // The next task; false after the last one.
    __aicore__ inline bool Next(Task &task)
    {
        if (at_ >= end_) {
            return false;
        }
        const MsaSparseDecodeTiling &t = s_->t;
        const uint32_t item = at_ / t.topk, slot = at_ - item * t.topk;
        const uint32_t count = Least(Least(t.pass_slots, t.topk - slot), end_ - at_);
        at_ += count;
        task.item = item;
        task.rows = s_->Rows(item);
        task.number = number_++;
        task.whole = count == t.topk ? 1 : 0;
        task.slots = 0;
        const uint32_t list = item / t.row_tiles, entry = list / t.kv_heads;
        const uint64_t from = static_cast<uint64_t>(t.per_head != 0 ? list : entry) * t.topk + slot;
        const uint32_t capacity = t.capacity * t.block;
        const int32_t stored = lens_.GetValue(entry);
        const uint32_t len = stored < 0 ? 0 : Least(static_cast<uint32_t>(stored), capacity);
        if (static_cast<uint32_t>(stored) != len) {
            found_ |= kClamped;
        }
        const uint32_t used = Ceil(len, t.block);
        for (uint32_t i = 0; i < count; i++) {
            const int32_t id = ids_.GetValue(from + i);
            if (id < -1 || (id >= 0 && static_cast<uint32_t>(id) >= t.capacity)) {
                found_ |= kBadIndex;
            }
            // Blocks beyond the end have no keys; neither has the padding of a list.
            if (id < 0 || static_cast<uint32_t>(id) >= used) {
                continue;
            }
            task.id[task.slots] = static_cast<uint32_t>(id);
            task.keys[task.slots] = Least(t.block, len - static_cast<uint32_t>(id) * t.block);
            task.slots++;
        }
        if (slot == 0 && task.slots == 0) {
            // The rest of the list is other tasks', but one must say that the item sees nothing.
            uint32_t i = count;
            while (i < t.topk) {
                const int32_t id = ids_.GetValue(from + i);
                if (id >= 0 && static_cast<uint32_t>(id) < used) {
                    break;
                }
                i++;
            }
            found_ |= i >= t.topk ? kBlind : 0;
        }
        return true;
    }
    // Bits of the status.
    __aicore__ inline uint32_t Found() const { return found_; }

private:
    const Shape *s_;
    GlobalTensor<int32_t> ids_, lens_;
    uint32_t at_, end_, number_, found_ = 0;
};

} // namespace sparse_decode

#endif
