// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What cube and vector cores agree on: the plan of tiles, the layout of workspace slots and the numbers of flags.

#ifndef GROUPED_GEMM_COMMON_H
#define GROUPED_GEMM_COMMON_H

#include "kernel_operator.h"
#include "tiling.h"

namespace moe {

using namespace AscendC;

constexpr uint32_t kC0 = 16; // elements of a fractal's row, BF16
constexpr uint32_t kFractal = 256; // elements of a fractal
constexpr uint32_t kTileRows = 128;
constexpr uint32_t kFewRows = 32;
constexpr uint32_t kStages = 4; // of weights in L1
constexpr uint32_t kStageBytes = 64 * 1024;
constexpr uint32_t kRowBytes = 192 * 1024; // in L1, before them
constexpr uint32_t kWeights = 8192; // FP8 weights of a slice
constexpr uint32_t kSliceBytes = 16 * 1024; // of F32 elements of one slice of the activation

// Cross-core flags.
constexpr uint16_t kTileFull = 0; // cube -> vector: an F32 tile is in its slot
constexpr uint16_t kTileFree = 1; // vector -> cube: it was read
constexpr uint16_t kRowsAmongVectors = 2; // the activations of all experts are in memory
constexpr uint16_t kRowsToCube = 3;
constexpr uint16_t kResultAmongCubes = 4; // the result is in memory
constexpr uint16_t kResultToVector = 5;
constexpr uint16_t kWeightsFull = 6; // vector -> cube: a stage of weights is there
constexpr uint16_t kWeightsFree = 7; // cube -> vector: it was taken
constexpr uint16_t kTailAmongVectors = 8; // the last columns are in the result

__aicore__ inline uint32_t Ceil(uint32_t a, uint32_t b) { return (a + b - 1) / b; }
__aicore__ inline uint32_t RoundUp(uint32_t a, uint32_t b) { return Ceil(a, b) * b; }
__aicore__ inline uint32_t Min(uint32_t a, uint32_t b) { return a < b ? a : b; }
__aicore__ inline uint32_t Max(uint32_t a, uint32_t b) { return a > b ? a : b; }

// The arguments, as every core reads them once.
struct Arguments {
    GM_ADDR x;
    GM_ADDR w13;
    GM_ADDR w2;
    GM_ADDR cumsum;
    GM_ADDR out;
    GM_ADDR status;
    GM_ADDR workspace;
    GM_ADDR slots; // only of the entry that combines
    GM_ADDR scales;
    GM_ADDR combined;
    GM_ADDR scales13; // only of the entry with FP8 weights
    GM_ADDR scales2;
    GroupedGemmTiling t;
    uint32_t core; // of the group
    uint32_t cores;
};

__aicore__ inline void ReadTiling(GroupedGemmTiling &to, GM_ADDR from)
{
    const __gm__ uint32_t *words = reinterpret_cast<const __gm__ uint32_t *>(from);
    uint32_t *out = reinterpret_cast<uint32_t *>(&to);
    for (uint32_t i = 0; i < sizeof(GroupedGemmTiling) / sizeof(uint32_t); i++) {
        out[i] = words[i];
    }
}

// One of the two products.
struct Product {
    GlobalTensor<bfloat16_t> left; // [rows][pitch]
    GlobalTensor<bfloat16_t> weights;
    GM_ADDR codes; // FP8
    GM_ADDR scales;
    uint32_t pitch;
    uint32_t depth; // K
    uint32_t blocks; // of 16 columns; pairs in the first product
    uint32_t columns; // of the result; of gate in the first product
    uint32_t width; // blocks of a tile of many rows
    uint32_t stage; // depth of its stages
    uint32_t fewWidth;
    uint32_t fewStage;
    bool pairs;
};

__aicore__ inline void FirstProduct(Product &p, const Arguments &a)
{
    p.left.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(a.x), static_cast<uint64_t>(a.t.rows) * a.t.hidden);
    p.pitch = a.t.hidden;
    p.depth = a.t.hidden;
    p.blocks = Ceil(a.t.intermediate, kC0);
    p.columns = a.t.intermediate;
    p.width = a.t.columns1 / (2 * kC0);
    p.stage = a.t.depth1;
    p.fewWidth = a.t.few_columns1 / (2 * kC0);
    p.fewStage = a.t.few_depth1;
    p.pairs = true;
    p.codes = a.w13;
    p.scales = a.scales13;
}

__aicore__ inline void SecondProduct(Product &p, const Arguments &a)
{
    p.pitch = RoundUp(a.t.intermediate, kC0);
    p.left.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(a.workspace + a.t.a16), static_cast<uint64_t>(a.t.rows) * p.pitch);
    p.depth = a.t.intermediate;
    p.blocks = Ceil(a.t.hidden, kC0);
    p.columns = a.t.hidden;
    p.width = a.t.columns2 / kC0;
    p.stage = a.t.depth2;
    p.fewWidth = a.t.few_columns2 / kC0;
    p.fewStage = a.t.few_depth2;
    p.pairs = false;
    p.codes = a.w2;
    p.scales = a.scales2;
}

__aicore__ inline uint32_t Parts(const Product &p) { return p.pairs ? 2 : 1; }
// FP8 codes of an expert, with their padding.
__aicore__ inline uint64_t Codes(const Product &p)
{
    return static_cast<uint64_t>(Parts(p)) * p.blocks * kC0 * RoundUp(p.depth, 32);
}
// Bytes of the scales of an expert, with its numbers behind them: 8 of F32, of which two mean something.
constexpr uint32_t kWayBytes = 32;
__aicore__ inline uint64_t ScaleBytes(const Arguments &a, const Product &p)
{
    return kWayBytes + (a.t.scale_kind == 0 ? sizeof(float) * Parts(p) * Ceil(p.columns, 128) * Ceil(p.depth, 128) : Codes(p) / 16);
}
// The two numbers of each expert. The first is zero where the vector cores multiply codes by scales: then the second tells
// whether there are NaN codes. Else the cube core does, and the first is what its products lack; the second is what all
// codes are multiplied by where scales are of groups.
class Ways {
public:
    __aicore__ inline void Init(const Arguments &a, const Product &p)
    {
        pitch_ = ScaleBytes(a, p) / sizeof(float);
        scales_.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(p.scales), pitch_ * a.t.experts);
    }
    __aicore__ inline float First(uint32_t expert) { return Number(expert, 0); }
    __aicore__ inline float Second(uint32_t expert) { return Number(expert, 1); }

private:
    __aicore__ inline float Number(uint32_t expert, uint32_t i)
    {
        return scales_.GetValue((expert + 1) * pitch_ - kWayBytes / sizeof(float) + i);
    }
    GlobalTensor<float> scales_;
    uint64_t pitch_ = 0;
};

// Whether vector cores have something to do when the result is there.
__aicore__ inline bool HasEpilogue(const Arguments &a) { return a.t.hidden % kC0 != 0 || a.t.choices != 0; }

// Rows of the experts, from device memory. Bounds that decrease or leave the rows are clamped.
class Rows {
public:
    __aicore__ inline void Init(const Arguments &a)
    {
        bounds_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t *>(a.cumsum), a.t.experts + 1);
        rows_ = a.t.rows;
        DataCacheCleanAndInvalid<int32_t, CacheLine::ENTIRE_DATA_CACHE, DcciDst::CACHELINE_OUT>(bounds_);
    }
    __aicore__ inline uint32_t Bound(uint32_t e, uint32_t least)
    {
        int32_t found = bounds_.GetValue(e);
        uint32_t bound = found < 0 ? 0 : static_cast<uint32_t>(found);
        bound = Min(Max(bound, least), rows_);
        clamped_ = clamped_ || static_cast<int32_t>(bound) != found;
        return bound;
    }
    __aicore__ inline bool Clamped() const { return clamped_; }

private:
    GlobalTensor<int32_t> bounds_;
    uint32_t rows_ = 0;
    bool clamped_ = false;
};

// A tile of one of the two products: rows of one expert times a range of blocks of 16 columns. A block of the first
// product stands for 16 columns of gate and the 16 of up.
struct Tile {
    uint32_t expert;
    uint32_t row; // of the tokens
    uint32_t rows;
    uint32_t padded; // rows, as the cube sees them
    uint32_t block;
    uint32_t blocks;
    bool group; // the first tile with these rows
    bool narrow; // the expert has few rows: tiles of other columns and depth
};

// The tiles of one core for one product. All experts' blocks lie on one line, each as long as it costs; a core has
// the part from core / cores to (core + 1) / cores of it, cut at multiples of the unit. So cores differ by one unit.
class Tiles {
public:
    // `width` and `narrow`: blocks of a tile of an expert with many rows, and with few.
    __aicore__ inline void Init(const Arguments &a, Rows &rows, uint32_t blocks, uint32_t width, uint32_t narrow)
    {
        bounds_ = &rows;
        experts_ = a.t.experts;
        blocks_ = blocks;
        unit_ = a.t.unit;
        units_ = Ceil(blocks, unit_);
        width_ = width;
        narrow_ = narrow;
        most_ = 0;
        uint64_t total = 0;
        uint32_t begin = rows.Bound(0, 0);
        first_ = begin;
        for (uint32_t e = 0; e < experts_; e++) {
            uint32_t end = rows.Bound(e + 1, begin);
            total += static_cast<uint64_t>(Cost(end - begin)) * units_;
            most_ = Max(most_, end - begin);
            begin = end;
        }
        last_ = begin;
        // The line's positions fit 32 bits per core after the division, and its length times the cores fits 64.
        low_ = total * a.core / a.cores;
        high_ = total * (a.core + 1) / a.cores;
        expert_ = 0;
        begin_ = first_;
        end_ = first_;
        position_ = 0;
        open_ = false;
        NextExpert(true);
    }
    // The rows of all experts.
    __aicore__ inline uint32_t First() const { return first_; }
    __aicore__ inline uint32_t Last() const { return last_; }
    // Whether each weight is used once.
    __aicore__ inline bool Once() const { return most_ <= kTileRows; }
    // The next tile; false if there is none.
    __aicore__ inline bool Next(Tile &tile)
    {
        if (!open_) {
            return false;
        }
        uint32_t row = begin_ + rowAt_;
        tile.expert = expert_;
        tile.row = row;
        tile.rows = Min(end_ - row, kTileRows);
        tile.padded = RoundUp(tile.rows, kC0);
        tile.block = blockAt_;
        tile.narrow = end_ - begin_ <= kFewRows;
        tile.blocks = Min(blockEnd_ - blockAt_, tile.narrow ? narrow_ : width_);
        tile.group = blockAt_ == blockBegin_ || end_ - begin_ > kTileRows;
        rowAt_ += tile.rows;
        if (row + tile.rows == end_) {
            rowAt_ = 0;
            blockAt_ += tile.blocks;
            if (blockAt_ >= blockEnd_) {
                NextExpert(false);
            }
        }
        return true;
    }

private:
    __aicore__ inline static uint32_t Cost(uint32_t rows)
    {
        // Up to about 186 rows a block takes as long as its weights take to arrive.
        return rows == 0 ? 0 : Max(RoundUp(rows, kC0), 192);
    }
    // Goes to the next expert of which this core has blocks.
    __aicore__ inline void NextExpert(bool start)
    {
        if (!start) {
            position_ += static_cast<uint64_t>(Cost(end_ - begin_)) * units_;
            expert_++;
        }
        open_ = false;
        begin_ = start ? first_ : end_;
        for (; expert_ < experts_ && position_ < high_; expert_++) {
            end_ = bounds_->Bound(expert_ + 1, begin_);
            uint32_t cost = Cost(end_ - begin_);
            uint64_t length = static_cast<uint64_t>(cost) * units_;
            if (cost != 0 && position_ + length > low_) {
                uint32_t from = position_ < low_ ? Ceil(static_cast<uint32_t>(low_ - position_), cost) : 0;
                uint32_t to = position_ + length > high_ ? Ceil(static_cast<uint32_t>(high_ - position_), cost) : units_;
                if (from < to) {
                    blockBegin_ = from * unit_;
                    blockAt_ = blockBegin_;
                    blockEnd_ = Min(to * unit_, blocks_);
                    rowAt_ = 0;
                    open_ = true;
                    return;
                }
            }
            position_ += length;
            begin_ = end_;
        }
    }

    Rows *bounds_ = nullptr;
    uint32_t experts_ = 0, blocks_ = 0, unit_ = 1, units_ = 0, width_ = 1, narrow_ = 1, most_ = 0, first_ = 0, last_ = 0;
    uint64_t low_ = 0, high_ = 0, position_ = 0;
    uint32_t expert_ = 0, begin_ = 0, end_ = 0, rowAt_ = 0, blockBegin_ = 0, blockAt_ = 0, blockEnd_ = 0;
    bool open_ = false;
};

} // namespace moe

#endif
