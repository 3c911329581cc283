// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Sizes, and the tasks of a core: which slots of which item it works on. Cube and vector cores make the same list.

#ifndef MSA_MAIN_BRANCH_SHAPE_H
#define MSA_MAIN_BRANCH_SHAPE_H

#include "kernel_operator.h"
#include "tiling.h"

namespace main_branch {

using namespace AscendC;

constexpr uint32_t kLane = 16; // rows and columns of a fractal of L0C
constexpr uint32_t kMaxRows = 128; // of an item
constexpr uint32_t kHalfRows = kMaxRows / 2; // of a vector core
constexpr uint32_t kMaxDim = 128;
constexpr uint32_t kMaxBlock = 128;
constexpr uint32_t kMaxSlots = 8; // of a task
constexpr uint32_t kRing = 2; // places for weights and for parts of tasks
constexpr uint32_t kScoresRing = 3; // for scores
constexpr uint32_t kStages = 2; // of keys, of values, of L0, of scores in L0C

// Bits of a status word, and words of each core: a line of the data cache. Cube cores come first, then vector cores.
constexpr uint32_t kBadIndex = 2, kBlind = 4;
constexpr uint32_t kStatusWords = 16;

__aicore__ inline uint32_t Least(uint32_t a, uint32_t b) { return a < b ? a : b; }
__aicore__ inline uint32_t Ceil(uint32_t a, uint32_t b) { return (a + b - 1) / b; }
__aicore__ inline uint32_t Up16(uint32_t a) { return (a + 15) / 16 * 16; }

// What follows from the tiling, for inputs of type T.
template <class T> struct Shape {
    static constexpr uint32_t kWide = 32 / sizeof(T); // columns of a fractal of T
    static constexpr uint32_t kFractal = kLane * kWide;
    static constexpr uint32_t kStep = 256 / sizeof(T); // k of a stage of L0
    static constexpr uint32_t kMaxKeys = 1024 / sizeof(T); // of a task

    MsaMainBranchTiling t;
    uint32_t group, block16, dim16;
    uint32_t pitch; // of scores and weights of a row, elements
    uint32_t blocks; // launched

    __aicore__ inline void Init(GM_ADDR tiling)
    {
        GlobalTensor<uint32_t> words;
        constexpr uint32_t count = sizeof(MsaMainBranchTiling) / sizeof(uint32_t);
        words.SetGlobalBuffer(reinterpret_cast<__gm__ uint32_t *>(tiling), count);
        uint32_t *to = reinterpret_cast<uint32_t *>(&t);
        for (uint32_t i = 0; i < count; i++) {
            to[i] = words.GetValue(i);
        }
        group = t.heads / t.kv_heads;
        block16 = Up16(t.block);
        dim16 = Up16(t.head_dim);
        pitch = t.pass_slots * block16;
        blocks = static_cast<uint32_t>(GetBlockNum());
    }
};

struct Task {
    uint32_t query, queries; // of the item
    uint32_t kvHead, rows;
    uint32_t parity; // of the item's number, those that see nothing aside
    uint32_t first, last; // of the item
    uint32_t least; // block of the item's list so far
    uint32_t slots;
    uint32_t id[kMaxSlots];
    uint32_t keys[kMaxSlots]; // that the last query sees
};

// Of one core: what it has met, said at the end.
class Status {
public:
    __aicore__ inline void Init(GM_ADDR status, uint32_t number)
    {
        words_.SetGlobalBuffer(reinterpret_cast<__gm__ uint32_t *>(status) + number * kStatusWords, kStatusWords);
    }
    __aicore__ inline void Add(uint32_t bit) { found_ |= bit; }
    __aicore__ inline void Store()
    {
        if (found_ != 0) {
            words_.SetValue(0, words_.GetValue(0) | found_);
            DataCacheCleanAndInvalid<uint32_t, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(words_);
        }
    }

private:
    GlobalTensor<uint32_t> words_;
    uint32_t found_ = 0;
};

template <class T> class Tasks {
public:
    __aicore__ inline void Init(const Shape<T> &s, GM_ADDR ids, uint32_t core)
    {
        s_ = &s;
        core_ = core;
        ids_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t *>(ids));
        // An earlier kernel may have written them.
        DataCacheCleanAndInvalid<int32_t, CacheLine::ENTIRE_DATA_CACHE, DcciDst::CACHELINE_OUT>(ids_);
    }
    // The next task; false after the last one. Without slots: an item that sees nothing.
    __aicore__ inline bool Next(Task &task)
    {
        const bool fresh = !open_;
        if (fresh && !Open()) {
            return false;
        }
        const MsaMainBranchTiling &t = s_->t;
        task.query = query_;
        task.queries = queries_;
        task.kvHead = kvHead_;
        task.rows = queries_ * s_->group;
        task.parity = parity_;
        task.first = fresh ? 1 : 0;
        task.slots = 0;
        const uint32_t end = t.start + query_ + queries_;
        while (found_ && task.slots < t.pass_slots) {
            task.id[task.slots] = id_;
            task.keys[task.slots] = t.has_mask != 0 ? t.block : Least(t.block, end - id_ * t.block);
            task.slots++;
            least_ = Least(least_, id_);
            Find();
        }
        task.least = least_;
        task.last = found_ ? 0 : 1;
        open_ = found_;
        return true;
    }

    // Whether a list had what is no id.
    __aicore__ inline bool IsBad() const { return bad_; }

private:
    // The core's next item. Every other round goes backwards, so that no core always has the later ones, which see more.
    __aicore__ inline bool Open()
    {
        const MsaMainBranchTiling &t = s_->t;
        for (;;) {
            const uint64_t item = static_cast<uint64_t>(round_) * s_->blocks + (round_ % 2 == 0 ? core_ : s_->blocks - 1 - core_);
            if (static_cast<uint64_t>(round_) * s_->blocks >= t.items) {
                return false;
            }
            round_++;
            if (item >= t.items) {
                continue;
            }
            const uint32_t tile = static_cast<uint32_t>(item) / t.kv_heads;
            const uint32_t list = tile / t.list_tiles, inList = (tile - list * t.list_tiles) * t.tile_queries;
            kvHead_ = static_cast<uint32_t>(item) - tile * t.kv_heads;
            query_ = list * t.list_queries + inList;
            // The last tile of a list, and the last list, may be short.
            if (inList >= t.list_queries || query_ >= t.n) {
                continue;
            }
            queries_ = Least(Least(t.tile_queries, t.list_queries - inList), t.n - query_);
            lastBlock_ = t.has_mask != 0 ? t.mask_slots - 1 : (t.start + query_ + queries_ - 1) / t.block;
            from_ = (static_cast<uint64_t>(list) * t.list_heads + (t.list_heads == 1 ? 0 : kvHead_)) * t.topk;
            cursor_ = 0;
            end_ = t.has_lists != 0 ? t.topk : lastBlock_ + 1;
            least_ = ~0u;
            Find();
            // Items that see nothing have no sums to keep.
            parity_ = found_ ? 1 - parity_ : parity_;
            return true;
        }
    }
    // The next slot whose block some query of the item sees.
    __aicore__ inline void Find()
    {
        found_ = false;
        while (!found_ && cursor_ < end_) {
            const int32_t id = s_->t.has_lists != 0 ? ids_.GetValue(from_ + cursor_) : static_cast<int32_t>(cursor_);
            cursor_++;
            id_ = static_cast<uint32_t>(id);
            found_ = id >= 0 && id_ <= lastBlock_;
            if (id < -1 || (id >= 0 && s_->t.has_lists != 0 && s_->t.has_table == 0 && id_ >= s_->t.pages)) {
                bad_ = true;
            }
        }
    }

    const Shape<T> *s_;
    GlobalTensor<int32_t> ids_;
    uint32_t core_;
    uint32_t round_ = 0, parity_ = 0;
    bool open_ = false, found_ = false, bad_ = false;
    uint32_t query_, queries_, kvHead_, lastBlock_, cursor_, end_, least_, id_;
    uint64_t from_;
};

} // namespace main_branch

#endif
