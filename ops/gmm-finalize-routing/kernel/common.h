// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What cube and vector cores agree on: the groups of rows, the plan of tiles and the numbers of flags.

#ifndef GMM_FINALIZE_ROUTING_COMMON_H
#define GMM_FINALIZE_ROUTING_COMMON_H

#include "kernel_operator.h"
#include "tiling.h"

namespace finalize {

using namespace AscendC;

constexpr uint32_t kGroup = 32; // values along K with one scale
constexpr uint32_t kPair = 64; // values along K with one pair of scales
constexpr uint32_t kFractalRows = 16;

// Cross-core flags.
constexpr uint16_t kWeightsFull = 6; // vector -> cube: a stage of weights is in its slot
constexpr uint16_t kWeightsFree = 7; // cube -> vector: it was read
constexpr uint16_t kReadyAmongVectors = 8; // what vector cores prepare for all cube cores is in memory
constexpr uint16_t kReadyToCube = 9;
constexpr uint16_t kRangesAmongVectors = 10; // 2201: the ranges of scales are in memory

// Bits of a status word.
constexpr uint32_t kBadGroups = 1; // the group list was clamped
constexpr uint32_t kBadIndex = 2; // a row's index is no row of the output; the row was left out
constexpr uint32_t kBadScale = 8; // 2201: a scale beyond the range in which dequantised values are exact
constexpr uint32_t kStatusWords = 16; // of each vector core: a line of the data cache

__aicore__ inline uint32_t Ceil(uint32_t a, uint32_t b) { return (a + b - 1) / b; }
__aicore__ inline uint32_t RoundUp(uint32_t a, uint32_t b) { return Ceil(a, b) * b; }
__aicore__ inline uint32_t Min(uint32_t a, uint32_t b) { return a < b ? a : b; }
__aicore__ inline uint32_t Max(uint32_t a, uint32_t b) { return a > b ? a : b; }

// The arguments, as every core reads them once.
struct Arguments {
    GM_ADDR x1;
    GM_ADDR pertokenScale;
    GM_ADDR x2;
    GM_ADDR scale;
    GM_ADDR groupList;
    GM_ADDR rowIndex;
    GM_ADDR logit;
    GM_ADDR sharedInput;
    GM_ADDR out;
    GM_ADDR status;
    GM_ADDR workspace;
    FinalizeTiling t;
    uint32_t core; // of the group
    uint32_t cores;
};

__aicore__ inline void ReadTiling(FinalizeTiling &to, GM_ADDR from)
{
    const __gm__ uint32_t *words = reinterpret_cast<const __gm__ uint32_t *>(from);
    uint32_t *out = reinterpret_cast<uint32_t *>(&to);
    for (uint32_t i = 0; i < sizeof(FinalizeTiling) / sizeof(uint32_t); i++) {
        out[i] = words[i];
    }
}

// Where the rows of each expert end, from device memory. Ends that decrease or leave the rows are clamped.
class Groups {
public:
    __aicore__ inline void Init(const Arguments &a)
    {
        list_.SetGlobalBuffer(reinterpret_cast<__gm__ int64_t *>(a.groupList), a.t.experts);
        rows_ = a.t.rows;
        counts_ = a.t.counts != 0;
        // An earlier kernel may have written the list past this core's cache.
        DataCacheCleanAndInvalid<int64_t, CacheLine::ENTIRE_DATA_CACHE, DcciDst::CACHELINE_OUT>(list_);
    }
    __aicore__ inline uint32_t End(uint32_t expert, uint32_t begin)
    {
        int64_t found = list_.GetValue(expert);
        int64_t least = counts_ ? 0 : static_cast<int64_t>(begin);
        int64_t most = counts_ ? static_cast<int64_t>(rows_ - begin) : static_cast<int64_t>(rows_);
        int64_t end = found < least ? least : (found > most ? most : found);
        clamped_ = clamped_ || end != found;
        return static_cast<uint32_t>(end) + (counts_ ? begin : 0);
    }
    __aicore__ inline bool Clamped() const { return clamped_; }

private:
    GlobalTensor<int64_t> list_;
    uint32_t rows_ = 0;
    bool counts_ = false;
    bool clamped_ = false;
};

// Rows of one expert times some of its columns.
struct Tile {
    uint32_t expert;
    uint32_t row; // of x1
    uint32_t rows;
    uint32_t column;
    uint32_t columns;
    bool once; // no other tile has the same weights
};

// The tiles of one core. The columns of all experts, 16 at a time, lie on one line, each unit as long as it costs; a core
// has the part from core / cores to (core + 1) / cores of it. So the shares of cores differ by one unit.
//
// An expert with few rows has tiles of another shape than one with many.
template <uint32_t kFewRows, uint32_t kManyRows, uint32_t kLeastCost> class Tiles {
public:
    __aicore__ inline void Init(const Arguments &a, Groups &groups, uint32_t fewColumns, uint32_t manyColumns)
    {
        groups_ = &groups;
        fewColumns_ = fewColumns;
        manyColumns_ = manyColumns;
        experts_ = a.t.experts;
        n_ = a.t.n;
        units_ = Ceil(n_, kFractalRows);
        uint64_t total = 0;
        uint32_t begin = 0;
        for (uint32_t e = 0; e < experts_; e++) {
            uint32_t end = groups.End(e, begin);
            total += static_cast<uint64_t>(Cost(end - begin)) * units_;
            begin = end;
        }
        covered_ = begin;
        low_ = total * a.core / a.cores;
        high_ = total * (a.core + 1) / a.cores;
        next_ = 0;
        end_ = 0;
        position_ = 0;
        open_ = false;
        Advance();
    }
    // The rows that some expert has come before this one.
    __aicore__ inline uint32_t Covered() const { return covered_; }
    // The next tile; false if there is none.
    __aicore__ inline bool Next(Tile &tile)
    {
        if (!open_) {
            return false;
        }
        tile.expert = next_ - 1;
        tile.row = row_;
        bool few = end_ - begin_ <= kFewRows;
        tile.rows = Min(end_ - row_, few ? kFewRows : kManyRows);
        tile.column = column_;
        tile.columns = Min(columnEnd_ - column_, few ? fewColumns_ : manyColumns_);
        tile.once = end_ - begin_ <= (few ? kFewRows : kManyRows);
        row_ += tile.rows;
        if (row_ == end_) {
            row_ = begin_;
            column_ += tile.columns;
            if (column_ >= columnEnd_) {
                Advance();
            }
        }
        return true;
    }

private:
    __aicore__ inline static uint32_t Cost(uint32_t rows)
    {
        return rows == 0 ? 0 : Max(RoundUp(rows, kFractalRows), kLeastCost);
    }
    // Goes to the next expert of which this core has columns.
    __aicore__ inline void Advance()
    {
        open_ = false;
        while (!open_ && next_ < experts_ && position_ < high_) {
            begin_ = end_;
            end_ = groups_->End(next_, begin_);
            next_++;
            uint64_t cost = Cost(end_ - begin_);
            uint64_t length = cost * units_;
            if (length != 0 && position_ + length > low_) {
                uint64_t from = position_ < low_ ? (low_ - position_ + cost - 1) / cost : 0;
                uint64_t to = position_ + length > high_ ? (high_ - position_ + cost - 1) / cost : units_;
                if (from < to) {
                    column_ = static_cast<uint32_t>(from) * kFractalRows;
                    columnEnd_ = Min(static_cast<uint32_t>(to) * kFractalRows, n_);
                    row_ = begin_;
                    open_ = true;
                }
            }
            position_ += length;
        }
    }

    Groups *groups_ = nullptr;
    uint32_t experts_ = 0, n_ = 0, units_ = 0, covered_ = 0, fewColumns_ = 0, manyColumns_ = 0;
    uint64_t low_ = 0, high_ = 0, position_ = 0;
    uint32_t next_ = 0, begin_ = 0, end_ = 0, row_ = 0, column_ = 0, columnEnd_ = 0;
    bool open_ = false;
};

} // namespace finalize

#endif
