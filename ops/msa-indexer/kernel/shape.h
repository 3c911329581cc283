// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Sizes, and the units of a core: a tile of queries and a group of blocks each. Cube and vector cores make the same list.

#ifndef MSA_INDEXER_SHAPE_H
#define MSA_INDEXER_SHAPE_H

#include "kernel_operator.h"
#include "tiling.h"

namespace indexer {

using namespace AscendC;

constexpr uint32_t kLane = 16; // rows and columns of a fractal
constexpr uint32_t kFractal = kLane * kLane; // of products
template <class T> constexpr uint32_t kWide = 32 / sizeof(T); // columns of a fractal of queries or keys
constexpr uint32_t kMaxRows = 128; // of a tile: queries times heads
constexpr uint32_t kMaxHalf = kMaxRows / 2; // of a vector core
constexpr uint32_t kMaxProducts = 8192; // of a unit, for one vector core
constexpr uint32_t kOperand = 128 * 128; // elements of queries of a tile, and of a block, at most
constexpr uint32_t kGroupBytes = 128 * 1024; // of a group of blocks, at most
constexpr uint32_t kMaxGroup = 16; // blocks
constexpr uint32_t kMaxBlocks = 4096; // of a sequence
constexpr uint32_t kMaxTop = 64;
constexpr uint32_t kKeyStages = 3;
constexpr uint32_t kStages = 2; // of L0, of L0C

// Bits of a status word, and words of each cube core: a line of the data cache.
constexpr uint32_t kClamped = 1, kBadIndex = 2;
constexpr uint32_t kStatusWords = 16;

__aicore__ inline uint32_t Least(uint32_t a, uint32_t b) { return a < b ? a : b; }
__aicore__ inline uint32_t Most(uint32_t a, uint32_t b) { return a < b ? b : a; }
__aicore__ inline uint32_t Ceil(uint32_t a, uint32_t b) { return (a + b - 1) / b; }
__aicore__ inline uint32_t Up16(uint32_t a) { return (a + 15) / 16 * 16; }

// What follows from the tiling and the position of the first query.
struct Shape {
    MsaIndexerTiling t;
    uint32_t start;
    bool clamped; // the position of the first query was none
    uint32_t block16, dim16;
    uint32_t tiles;
    uint32_t blocks; // launched

    __aicore__ inline void Init(GM_ADDR first, GM_ADDR tiling)
    {
        GlobalTensor<uint32_t> words;
        constexpr uint32_t count = sizeof(MsaIndexerTiling) / sizeof(uint32_t);
        words.SetGlobalBuffer(reinterpret_cast<__gm__ uint32_t *>(tiling), count);
        uint32_t *to = reinterpret_cast<uint32_t *>(&t);
        for (uint32_t i = 0; i < count; i++) {
            to[i] = words.GetValue(i);
        }
        GlobalTensor<int32_t> place;
        place.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t *>(first), 1);
        // An earlier kernel may have written it, and the block table.
        DataCacheCleanAndInvalid<int32_t, CacheLine::ENTIRE_DATA_CACHE, DcciDst::CACHELINE_OUT>(place);
        const int32_t found = place.GetValue(0);
        start = found < 0 ? 0 : Least(static_cast<uint32_t>(found), t.capacity * t.block - t.queries);
        clamped = static_cast<uint32_t>(found) != start;
        block16 = Up16(t.block);
        dim16 = Up16(t.head_dim);
        tiles = Ceil(t.queries, t.tile_queries);
        blocks = static_cast<uint32_t>(GetBlockNum());
    }
    // Blocks that a query sees.
    __aicore__ inline uint32_t Visible(uint32_t query) const { return (start + query) / t.block + 1; }
    __aicore__ inline uint32_t Queries(uint32_t tile) const
    {
        return Least(t.tile_queries, t.queries - tile * t.tile_queries);
    }
    __aicore__ inline uint32_t LastQuery(uint32_t tile) const { return tile * t.tile_queries + Queries(tile) - 1; }
    // Blocks that any query of a tile sees.
    __aicore__ inline uint32_t TileBlocks(uint32_t tile) const { return Visible(LastQuery(tile)); }
    // Groups of blocks of a tile that are scored: none where every query selects all that it sees.
    __aicore__ inline uint32_t Groups(uint32_t tile) const
    {
        const uint32_t count = TileBlocks(tile);
        return t.want_scores == 0 && count <= t.top_k ? 0 : Ceil(count, t.group_blocks);
    }
    // Rows that each vector core works on: the same for both; the last of them may be nobody's.
    __aicore__ inline uint32_t Half(uint32_t tile) const { return (Queries(tile) * t.heads + 1) / 2; }
    // Elements of a place for products.
    __aicore__ inline uint32_t Place() const
    {
        return 2 * ((t.tile_queries * t.heads + 1) / 2) * t.group_blocks * block16;
    }
};

struct Unit {
    uint32_t tile;
    uint32_t first; // block
    uint32_t count; // blocks
};

class Units {
public:
    __aicore__ inline void Init(const Shape &s, uint32_t core)
    {
        s_ = &s;
        uint64_t all = 0;
        for (uint32_t i = 0; i < s.tiles; i++) {
            all += s.Groups(i);
        }
        uint64_t at = all * core / s.blocks;
        left_ = static_cast<uint32_t>(all * (core + 1) / s.blocks - at);
        tile_ = 0;
        while (tile_ < s.tiles && at >= s.Groups(tile_)) {
            at -= s.Groups(tile_);
            tile_++;
        }
        group_ = static_cast<uint32_t>(at);
    }
    // The next unit; false after the last one.
    __aicore__ inline bool Next(Unit &unit)
    {
        if (left_ == 0) {
            return false;
        }
        left_--;
        const uint32_t all = s_->TileBlocks(tile_);
        unit.tile = tile_;
        unit.first = group_ * s_->t.group_blocks;
        unit.count = Least(s_->t.group_blocks, all - unit.first);
        group_++;
        if (group_ * s_->t.group_blocks >= all) {
            group_ = 0;
            tile_++;
        }
        return true;
    }

private:
    const Shape *s_;
    uint32_t left_, tile_, group_;
};

} // namespace indexer

#endif
