// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Which blocks of keys each query attends to.
//
// First all cores score: the cube core multiplies a tile of queries (rows: queries times heads) and a group of blocks, the
// two vector cores take half of the rows each and keep the largest product of each block among the keys that the row's
// query sees. The (tile, group) pairs stand in a row and are cut into equal ranges. Then, after a barrier, the vector cores
// select: the scores of a query, forced blocks raised above all others, are sorted to find the least that is selected, and
// the ids of all that are not less come out ascending.

#if __NPU_ARCH__ == 3510
#include "arch_3510.h"
#else
#include "arch_2201.h"
#endif

namespace indexer {

constexpr float kInfinity = __builtin_huge_valf();
// What infinite scores and NaN count as in a selection, which keeps infinity for forced blocks.
constexpr float kInfinite = 3.4028233e38f;
constexpr float kNan = 3.4028235e38f;
static_assert(kInfinite < kNan && kNan < kInfinity, "ranks");

constexpr uint32_t kL0Stage = 32 * 1024; // of L0A and L0B, bytes
static_assert(kStages * 2 * kMaxProducts * sizeof(float) <= kL0cBytes, "L0C");

// Events of MTE2 and MTE1: keys 0 to 2, queries 3.
constexpr int32_t kQueriesEvent = 3;

template <class T> class CubePart {
    static constexpr uint32_t kGroup = kGroupBytes / sizeof(T); // elements
    static constexpr uint32_t kL0 = kL0Stage / sizeof(T);
    // L1, in bytes.
    static constexpr uint32_t kL1Queries = 0;
    static constexpr uint32_t kL1Keys = kL1Queries + kOperand * sizeof(T);
    static_assert(kL1Keys + kKeyStages * kGroupBytes <= kL1Bytes, "L1");

public:
    __aicore__ inline void Init(const Shape &s, GM_ADDR q, GM_ADDR k, GM_ADDR table, GM_ADDR status, GM_ADDR workspace)
    {
        s_ = &s;
        const uint32_t core = static_cast<uint32_t>(GetBlockIdx());
        found_ = core == 0 && s.clamped ? kClamped : 0;
        status_.SetGlobalBuffer(reinterpret_cast<__gm__ uint32_t *>(status) + core * kStatusWords, kStatusWords);
        q_.SetGlobalBuffer(reinterpret_cast<__gm__ T *>(q));
        k_.SetGlobalBuffer(reinterpret_cast<__gm__ T *>(k));
        if (s.tiles == 1) {
            // Read once.
            k_.SetL2CacheHint(CacheMode::CACHE_MODE_DISABLE);
        }
        table_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t *>(table));
        ahead_.Init(s, core);
        units_.Init(s, core);
        side_.Init(s, workspace, core);
        queries_ = LocalTensor<T>(TPosition::A1, kL1Queries, kOperand);
        for (uint32_t i = 0; i < kKeyStages; i++) {
            keys_[i] = LocalTensor<T>(TPosition::B1, kL1Keys + i * kGroupBytes, kGroup);
        }
        for (uint32_t i = 0; i < kStages; i++) {
            left_[i] = LocalTensor<T>(TPosition::A2, i * kL0Stage, kL0);
            right_[i] = LocalTensor<T>(TPosition::B2, i * kL0Stage, kL0);
            products_[i] = LocalTensor<float>(TPosition::CO1, i * 2 * kMaxProducts * sizeof(float), 2 * kMaxProducts);
        }
    }

    __aicore__ inline void Process()
    {
        SetFlag<HardEvent::MTE1_MTE2>(0);
        SetFlag<HardEvent::MTE1_MTE2>(1);
        SetFlag<HardEvent::MTE1_MTE2>(2);
        SetFlag<HardEvent::MTE1_MTE2>(kQueriesEvent);
        SetFlag<HardEvent::M_MTE1>(0);
        SetFlag<HardEvent::M_MTE1>(1);
        SetFlag<HardEvent::FIX_M>(0);
        SetFlag<HardEvent::FIX_M>(1);
        // With an odd number of rows the vector cores work on one more, which must hold numbers.
        InitConstValueParams<T> zero;
        zero.repeatTimes = 1;
        zero.blockNum = static_cast<uint16_t>(kOperand / kWide<T>);
        zero.dstGap = 0;
        zero.initValue = static_cast<T>(0.0f);
        Fill(queries_, zero);
        PipeBarrier<PIPE_MTE2>();

        Load();
        Load();
        Unit unit;
        uint32_t tile = s_->tiles; // none
        while (units_.Next(unit)) {
            Load();
            if (unit.tile != tile) {
                if (tile != s_->tiles) {
                    SetFlag<HardEvent::MTE1_MTE2>(kQueriesEvent);
                }
                tile = unit.tile;
                WaitFlag<HardEvent::MTE1_MTE2>(kQueriesEvent);
                const uint32_t rows = s_->Queries(tile) * s_->t.heads;
                LoadRows(queries_, q_[static_cast<uint64_t>(tile) * s_->t.tile_queries * s_->t.heads * s_->t.head_dim], rows, Up16(rows));
                SetFlag<HardEvent::MTE2_MTE1>(kQueriesEvent);
                WaitFlag<HardEvent::MTE2_MTE1>(kQueriesEvent);
            }
            Multiply(unit);
        }
        if (tile != s_->tiles) {
            SetFlag<HardEvent::MTE1_MTE2>(kQueriesEvent);
        }
        WaitFlag<HardEvent::MTE1_MTE2>(0);
        WaitFlag<HardEvent::MTE1_MTE2>(1);
        WaitFlag<HardEvent::MTE1_MTE2>(2);
        WaitFlag<HardEvent::MTE1_MTE2>(kQueriesEvent);
        WaitFlag<HardEvent::M_MTE1>(0);
        WaitFlag<HardEvent::M_MTE1>(1);
        WaitFlag<HardEvent::FIX_M>(0);
        WaitFlag<HardEvent::FIX_M>(1);
        side_.End();
        if (found_ != 0) {
            status_.SetValue(0, status_.GetValue(0) | found_);
            DataCacheCleanAndInvalid<uint32_t, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(status_);
        }
    }

private:
    // Rows of head_dim elements to NZ form with `rows16` rows.
    __aicore__ inline void LoadRows(const LocalTensor<T> &to, const GlobalTensor<T> &from, uint32_t rows, uint32_t rows16)
    {
        Nd2NzParams p;
        p.ndNum = 1;
        p.nValue = static_cast<uint16_t>(rows);
        p.dValue = static_cast<uint16_t>(s_->t.head_dim);
        p.srcNdMatrixStride = 0;
        p.srcDValue = static_cast<uint16_t>(s_->t.head_dim);
        p.dstNzC0Stride = static_cast<uint16_t>(rows16);
        p.dstNzNStride = 1;
        p.dstNzMatrixStride = 0;
        DataCopy(to, from, p);
    }

    // The keys of the unit after those that are loaded. No key that no query of the tile sees is read.
    __aicore__ inline void Load()
    {
        Unit unit;
        if (!ahead_.Next(unit)) {
            return;
        }
        const MsaIndexerTiling &t = s_->t;
        const uint32_t seen = s_->start + s_->LastQuery(unit.tile) + 1;
        WaitFlag<HardEvent::MTE1_MTE2>(loadStage_);
        for (uint32_t i = 0; i < unit.count; i++) {
            const uint32_t block = unit.first + i;
            uint64_t page = block;
            if (t.has_table != 0) {
                const int32_t found = table_.GetValue(block);
                // What is no page is nobody's: what comes out then is of no use, but nothing else is read.
                const bool isPage = found >= 0 && static_cast<uint32_t>(found) < t.pages;
                page = isPage ? static_cast<uint64_t>(found) : 0;
                found_ |= isPage ? 0 : kBadIndex;
            }
            LoadRows(keys_[loadStage_][i * s_->block16 * s_->dim16], k_[page * t.block * t.head_dim],
                     Least(t.block, seen - block * t.block), s_->block16);
        }
        SetFlag<HardEvent::MTE2_MTE1>(loadStage_);
        loadStage_ = (loadStage_ + 1) % static_cast<int32_t>(kKeyStages);
    }

    __aicore__ inline void Multiply(const Unit &unit)
    {
        const uint32_t rows = 2 * s_->Half(unit.tile), rows16 = Up16(rows), dim = s_->t.head_dim;
        // Of queries and keys that fit a stage of L0 side by side: all of BF16.
        const uint32_t step = kL0 / Most(rows16, s_->block16) / kLane * kLane;
        WaitFlag<HardEvent::FIX_M>(productStage_);
        WaitFlag<HardEvent::MTE2_MTE1>(keyStage_);
        for (uint32_t i = 0; i < unit.count; i++) {
            for (uint32_t k = 0; k < dim; k += step) {
                const uint32_t size = Least(step, dim - k), wide = Ceil(size, kWide<T>);
                WaitFlag<HardEvent::M_MTE1>(stage_);
                LoadQueries(left_[stage_], queries_[k * rows16], rows16 / kLane, wide);
                LoadKeys(right_[stage_], keys_[keyStage_][i * s_->block16 * s_->dim16 + k * s_->block16], s_->block16 / kLane, wide);
                SetFlag<HardEvent::MTE1_M>(stage_);
                WaitFlag<HardEvent::MTE1_M>(stage_);
                MmadParams p;
                p.m = static_cast<uint16_t>(rows);
                // Columns beyond the keys come of what lay in L1; the vector cores overwrite them.
                p.n = static_cast<uint16_t>(s_->block16);
                p.k = static_cast<uint16_t>(size);
                p.cmatrixInitVal = k == 0;
                if (k > 0) {
                    PipeBarrier<PIPE_M>();
                }
                Mmad(products_[productStage_][i * rows16 * s_->block16], left_[stage_], right_[stage_], p);
                SetFlag<HardEvent::M_MTE1>(stage_);
                stage_ = 1 - stage_;
            }
        }
        SetFlag<HardEvent::MTE1_MTE2>(keyStage_);
        keyStage_ = (keyStage_ + 1) % static_cast<int32_t>(kKeyStages);
        SetFlag<HardEvent::M_FIX>(productStage_);
        WaitFlag<HardEvent::M_FIX>(productStage_);
        side_.Put(products_[productStage_], rows, unit.count);
        SetFlag<HardEvent::FIX_M>(productStage_);
        side_.Done();
        productStage_ = 1 - productStage_;
    }

    const Shape *s_;
    uint32_t found_; // bits of the status
    GlobalTensor<T> q_, k_;
    GlobalTensor<int32_t> table_;
    GlobalTensor<uint32_t> status_;
    LocalTensor<T> queries_, keys_[kKeyStages], left_[kStages], right_[kStages];
    LocalTensor<float> products_[kStages];
    Units units_, ahead_;
    CubeSide side_;
    int32_t loadStage_ = 0, keyStage_ = 0, stage_ = 0, productStage_ = 0;
};

constexpr uint32_t kFloats = 8; // of 32 bytes
constexpr uint32_t kRepeat = 64; // floats of an instruction's repeat
constexpr uint32_t kKept = 64; // block scores of a row that are stored at once

// UB while scoring, in bytes: two places for products, then
constexpr uint32_t kUbKept = 2 * kMaxProducts * sizeof(float);
static_assert(kUbKept + kMaxHalf * kKept * sizeof(float) <= kUbBytes, "UB");
// UB while selecting. A list to sort has a power of four times 32 elements, or the most blocks.
constexpr uint32_t kUbScores = 0;
constexpr uint32_t kUbOther = kUbScores + kMaxBlocks * sizeof(float);
constexpr uint32_t kUbSort = kUbOther + kMaxBlocks * sizeof(float);
constexpr uint32_t kUbIota = kUbSort + 2 * kMaxBlocks * 2 * sizeof(float);
constexpr uint32_t kUbIds = kUbIota + kMaxBlocks * sizeof(int32_t);
constexpr uint32_t kUbNothing = kUbIds + kMaxBlocks * sizeof(int32_t);
constexpr uint32_t kUbNone = kUbNothing + kMaxBlocks * sizeof(float);
constexpr uint32_t kUbBits = kUbNone + kMaxTop * sizeof(int32_t);
static_assert(kUbBits + kMaxBlocks / 8 <= kUbBytes, "UB");

// Events of MTE3 and V: block scores 0, ids 1. Of MTE2 and V while selecting: scores 2, those of a further head 3.
constexpr int32_t kKeptEvent = 0, kIdsEvent = 1, kScoresEvent = 2, kOtherEvent = 3;

class VectorPart {
public:
    __aicore__ inline void Init(const Shape &s, GM_ADDR ids, GM_ADDR scores, GM_ADDR workspace)
    {
        s_ = &s;
        core_ = static_cast<uint32_t>(GetBlockIdx()) / 2;
        sub_ = static_cast<uint32_t>(GetSubBlockIdx());
        ids_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t *>(ids));
        scores_.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(scores));
        heads_.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(s.t.shared != 0 ? workspace + s.t.ws_heads : scores));
        units_.Init(s, core_);
        side_.Init(s, workspace, core_, sub_);
        kept_ = LocalTensor<float>(TPosition::VECOUT, kUbKept, kMaxHalf * kKept);
    }

    __aicore__ inline void Process()
    {
        Score();
        SyncAll();
        Select();
    }

private:
    // ---- scores

    __aicore__ inline void Score()
    {
        SetFlag<HardEvent::MTE3_V>(kKeptEvent);
        Unit unit;
        uint32_t tile = s_->tiles, first = 0, count = 0; // what is kept
        while (units_.Next(unit)) {
            if (unit.tile != tile || count + unit.count > kKept) {
                Keep(tile, first, count);
                tile = unit.tile;
                first = unit.first;
                count = 0;
                WaitFlag<HardEvent::MTE3_V>(kKeptEvent);
            }
            Largest(unit, count);
            count += unit.count;
        }
        Keep(tile, first, count);
        WaitFlag<HardEvent::MTE3_V>(kKeptEvent);
        side_.End();
    }

    // Stores what is kept.
    __aicore__ inline void Keep(uint32_t tile, uint32_t first, uint32_t count)
    {
        if (count == 0) {
            return;
        }
        SetFlag<HardEvent::V_MTE3>(kKeptEvent);
        WaitFlag<HardEvent::V_MTE3>(kKeptEvent);
        const uint32_t half = s_->Half(tile), all = s_->Queries(tile) * s_->t.heads;
        const uint32_t mine = sub_ == 0 ? half : all - half;
        if (mine > 0) {
            const uint64_t row = static_cast<uint64_t>(tile) * s_->t.tile_queries * s_->t.heads + sub_ * half;
            const uint32_t bytes = count * sizeof(float);
            DataCopyExtParams p{static_cast<uint16_t>(mine), bytes, kKept * sizeof(float) / 32 - Ceil(bytes, 32),
                                static_cast<uint32_t>((s_->t.capacity - count) * sizeof(float)), 0};
            DataCopyPad(heads_[row * s_->t.capacity + first], kept_, p);
        }
        SetFlag<HardEvent::MTE3_V>(kKeptEvent);
    }

    // The largest product of each block of a unit, to what is kept.
    __aicore__ inline void Largest(const Unit &unit, uint32_t at)
    {
        const uint32_t half = s_->Half(unit.tile), tile = half * s_->block16, rows = unit.count * half;
        const LocalTensor<float> products = side_.Get(half, unit.count);
        for (uint32_t i = 0; i < unit.count; i++) {
            Hide(products[i * tile], unit.tile, unit.first + i, half);
        }
        VECTOR_ORDER();
        const uint8_t pitch = static_cast<uint8_t>(s_->block16 / kFloats);
        for (uint32_t c = kRepeat; c < s_->block16; c += kRepeat) {
            const uint64_t mask = Least(kRepeat, s_->block16 - c);
            for (uint32_t r = 0; r < rows; r += 128) {
                Max(products[r * s_->block16], products[r * s_->block16], products[r * s_->block16 + c], mask,
                    static_cast<uint8_t>(Least(128, rows - r)), {1, 1, 1, pitch, pitch, pitch});
            }
            VECTOR_ORDER();
        }
        const int32_t columns = static_cast<int32_t>(Least(kRepeat, s_->block16));
        for (uint32_t i = 0; i < unit.count; i++) {
            if (i > 0) {
                // The results of neighbours lie in one block of 32 bytes.
                VECTOR_ORDER();
            }
            WholeReduceMax(kept_[at + i], products[i * tile], columns, static_cast<int32_t>(half), static_cast<int32_t>(kKept), 1,
                           static_cast<int32_t>(pitch), ReduceOrder::ORDER_ONLY_VALUE);
        }
        side_.Taken();
    }

    // Columns of a block that the query of a row does not see.
    __aicore__ inline void Hide(const LocalTensor<float> &products, uint32_t tile, uint32_t block, uint32_t half)
    {
        const MsaIndexerTiling &t = s_->t;
        const uint32_t begin = block * t.block, last = s_->Queries(tile) - 1;
        uint32_t row = 0;
        while (row < half) {
            const uint32_t query = Least((sub_ * half + row) / t.heads, last);
            const uint32_t end = s_->start + tile * t.tile_queries + query + 1;
            uint32_t seen = end <= begin ? 0 : Least(t.block, end - begin);
            uint32_t count = query == last ? half - row : (query + 1) * t.heads - sub_ * half - row;
            if (seen == t.block) {
                // So it is for all later queries.
                count = half - row;
            }
            count = Least(count, half - row);
            HideRows(products[row * s_->block16], seen, count);
            row += count;
        }
    }
    __aicore__ inline void HideRows(const LocalTensor<float> &rows, uint32_t seen, uint32_t count)
    {
        for (uint32_t c = seen / kRepeat * kRepeat; c < s_->block16; c += kRepeat) {
            const uint32_t width = Least(kRepeat, s_->block16 - c);
            uint64_t mask[2] = {width == kRepeat ? ~0ull : (1ull << width) - 1, 0};
            if (seen > c) {
                mask[0] &= ~((1ull << (seen - c)) - 1);
            }
            if (mask[0] != 0) {
                Duplicate(rows[c], -kInfinity, mask, static_cast<uint8_t>(count), 1, static_cast<uint8_t>(s_->block16 / kFloats));
            }
        }
    }

    // ---- selection

    __aicore__ inline void Select()
    {
        const MsaIndexerTiling &t = s_->t;
        row_ = LocalTensor<float>(TPosition::VECIN, kUbScores, kMaxBlocks);
        other_ = LocalTensor<float>(TPosition::VECIN, kUbOther, kMaxBlocks);
        sorted_[0] = LocalTensor<float>(TPosition::VECCALC, kUbSort, 2 * kMaxBlocks);
        sorted_[1] = LocalTensor<float>(TPosition::VECCALC, kUbSort + 2 * kMaxBlocks * sizeof(float), 2 * kMaxBlocks);
        iota_ = LocalTensor<int32_t>(TPosition::VECOUT, kUbIota, kMaxBlocks);
        chosen_ = LocalTensor<int32_t>(TPosition::VECOUT, kUbIds, kMaxBlocks);
        nothing_ = LocalTensor<float>(TPosition::VECOUT, kUbNothing, kMaxBlocks);
        none_ = LocalTensor<int32_t>(TPosition::VECOUT, kUbNone, kMaxTop);
        bits_ = LocalTensor<uint8_t>(TPosition::VECCALC, kUbBits, kMaxBlocks / 8);
        width_ = Least(t.top_k, t.capacity);
        CreateVecIndex(iota_, static_cast<int32_t>(0), kMaxBlocks);
        Duplicate(nothing_, -kInfinity, kMaxBlocks);
        Duplicate(none_, static_cast<int32_t>(-1), kMaxTop);
        SetFlag<HardEvent::V_MTE3>(kIdsEvent);
        WaitFlag<HardEvent::V_MTE3>(kIdsEvent);
        SetFlag<HardEvent::MTE3_V>(kIdsEvent);
        SetFlag<HardEvent::MTE3_MTE2>(0);
        SetFlag<HardEvent::V_MTE2>(kScoresEvent);
        SetFlag<HardEvent::V_MTE2>(kOtherEvent);
        const uint32_t selections = t.shared != 0 ? 1 : t.heads;
        for (uint32_t r = static_cast<uint32_t>(GetBlockIdx()); r < t.queries * selections; r += 2 * s_->blocks) {
            const uint32_t query = r / selections, visible = Least(s_->Visible(query), t.capacity);
            const uint64_t to = static_cast<uint64_t>(r) * t.capacity;
            if (visible < t.capacity && t.want_scores != 0) {
                // No query of the row's tile may have seen these.
                StoreFloats(to + visible, nothing_, t.capacity - visible);
            }
            if (visible > t.top_k || (t.shared != 0 && t.want_scores != 0)) {
                LoadScores(query, r, visible);
                if (t.shared != 0) {
                    WaitFlag<HardEvent::V_MTE3>(kKeptEvent);
                    StoreFloats(to, row_, visible);
                    SetFlag<HardEvent::MTE3_MTE2>(0);
                }
                if (visible > t.top_k) {
                    Choose(r, visible);
                }
                SetFlag<HardEvent::V_MTE2>(kScoresEvent);
            }
            if (visible <= t.top_k) {
                StoreIds(r, 0, iota_, visible);
                if (visible < width_) {
                    StoreIds(r, visible, none_, width_ - visible);
                }
            }
        }
        WaitFlag<HardEvent::MTE3_V>(kIdsEvent);
        WaitFlag<HardEvent::MTE3_MTE2>(0);
        WaitFlag<HardEvent::V_MTE2>(kScoresEvent);
        WaitFlag<HardEvent::V_MTE2>(kOtherEvent);
    }

    __aicore__ inline void StoreFloats(uint64_t to, const LocalTensor<float> &from, uint32_t count)
    {
        DataCopyExtParams p{1, static_cast<uint32_t>(count * sizeof(float)), 0, 0, 0};
        DataCopyPad(scores_[to], from, p);
    }
    __aicore__ inline void StoreIds(uint32_t row, uint32_t at, const LocalTensor<int32_t> &from, uint32_t count)
    {
        DataCopyExtParams p{1, static_cast<uint32_t>(count * sizeof(int32_t)), 0, 0, 0};
        DataCopyPad(ids_[static_cast<uint64_t>(row) * width_ + at], from, p);
    }
    __aicore__ inline void LoadRow(const LocalTensor<float> &to, uint64_t row, uint32_t count)
    {
        const uint32_t rest = (kFloats - count % kFloats) % kFloats;
        DataCopyExtParams p{1, static_cast<uint32_t>(count * sizeof(float)), 0, 0, 0};
        DataCopyPadExtParams<float> pad{true, 0, static_cast<uint8_t>(rest), -kInfinity};
        DataCopyPad(to, heads_[row * s_->t.capacity], p, pad);
    }

    // The scores of a selection: the largest of all heads where they share it.
    __aicore__ inline void LoadScores(uint32_t query, uint32_t row, uint32_t visible)
    {
        const MsaIndexerTiling &t = s_->t;
        WaitFlag<HardEvent::V_MTE2>(kScoresEvent);
        if (t.shared != 0) {
            WaitFlag<HardEvent::MTE3_MTE2>(0);
        }
        LoadRow(row_, t.shared != 0 ? static_cast<uint64_t>(query) * t.heads : row, visible);
        SetFlag<HardEvent::MTE2_V>(kScoresEvent);
        WaitFlag<HardEvent::MTE2_V>(kScoresEvent);
        if (t.shared == 0) {
            return;
        }
        const int32_t count = static_cast<int32_t>(Ceil(visible, kFloats) * kFloats);
        for (uint32_t h = 1; h < t.heads; h++) {
            WaitFlag<HardEvent::V_MTE2>(kOtherEvent);
            LoadRow(other_, static_cast<uint64_t>(query) * t.heads + h, visible);
            SetFlag<HardEvent::MTE2_V>(kOtherEvent);
            WaitFlag<HardEvent::MTE2_V>(kOtherEvent);
            Max(row_, row_, other_, count);
            SetFlag<HardEvent::V_MTE2>(kOtherEvent);
        }
        SetFlag<HardEvent::V_MTE3>(kKeptEvent);
    }

    // Elements [from, to) of the scores.
    __aicore__ inline void Put(uint32_t from, uint32_t to, float value)
    {
        for (uint32_t c = from / kRepeat * kRepeat; from < to && c < to; c += kRepeat) {
            uint64_t mask[2] = {to - c >= kRepeat ? ~0ull : (1ull << (to - c)) - 1, 0};
            if (from > c) {
                mask[0] &= ~((1ull << (from - c)) - 1);
            }
            Duplicate(other_[c], value, mask, 1, 1, 8);
        }
    }

    // The top of more blocks than there is room for.
    __aicore__ inline void Choose(uint32_t row, uint32_t visible)
    {
        const MsaIndexerTiling &t = s_->t;
        uint32_t size = 128;
        while (size < visible) {
            size = size < 2048 ? size * 4 : kMaxBlocks;
        }
        const uint32_t even = Ceil(visible, kFloats) * kFloats, whole = Ceil(visible, kRepeat) * kRepeat;
        WaitFlag<HardEvent::V_MTE2>(kOtherEvent);
        if (even < whole) {
            Duplicate(row_[even], -kInfinity, static_cast<int32_t>(whole - even));
        }
        VECTOR_ORDER();
        Compare(bits_, row_, row_, CMPMODE::EQ, whole);
        Mins(other_, row_, kInfinite, static_cast<int32_t>(whole));
        VECTOR_ORDER();
        AscendC::Select(other_, bits_, other_, kNan, SELMODE::VSEL_TENSOR_SCALAR_MODE, whole);
        if (whole < size) {
            Duplicate(other_[whole], -kInfinity, static_cast<int32_t>(size - whole));
        }
        VECTOR_ORDER();
        Put(0, t.init_blocks, kInfinity);
        VECTOR_ORDER();
        Put(visible - t.local_blocks, visible, kInfinity);
        VECTOR_ORDER();

        Sort32(sorted_[0], other_, iota_.ReinterpretCast<uint32_t>(), static_cast<int32_t>(size / 32));
        VECTOR_ORDER();
        uint32_t now = 0;
        for (uint32_t run = 32; run < size; run *= 4) {
            const LocalTensor<float> from = sorted_[now];
            if (run * 4 <= size) {
                const uint16_t lengths[4] = {static_cast<uint16_t>(run), static_cast<uint16_t>(run), static_cast<uint16_t>(run),
                                             static_cast<uint16_t>(run)};
                MrgSort(sorted_[1 - now], {from, from[2 * run], from[4 * run], from[6 * run]},
                        MrgSort4Info(lengths, false, 15, static_cast<uint16_t>(size / run / 4)));
            } else {
                const uint16_t lengths[4] = {static_cast<uint16_t>(run), static_cast<uint16_t>(run), 0, 0};
                MrgSort(sorted_[1 - now], {from, from[2 * run], from, from}, MrgSort4Info(lengths, false, 3, 1));
            }
            VECTOR_ORDER();
            now = 1 - now;
        }
        SetFlag<HardEvent::V_S>(0);
        WaitFlag<HardEvent::V_S>(0);
        const float least = sorted_[now].GetValue(2 * (t.top_k - 1));

        WaitFlag<HardEvent::MTE3_V>(kIdsEvent);
        CompareScalar(bits_, other_, least, CMPMODE::GE, whole);
        VECTOR_ORDER();
        uint64_t found = 0;
        GatherMask(chosen_, iota_, bits_.ReinterpretCast<uint32_t>(), true, whole, {1, 1, 8, 1}, found);
        if (found > t.top_k) {
            Ties(least, static_cast<uint32_t>(found));
        }
        SetFlag<HardEvent::S_V>(0);
        WaitFlag<HardEvent::S_V>(0);
        SetFlag<HardEvent::V_MTE2>(kOtherEvent);
        SetFlag<HardEvent::V_MTE3>(kIdsEvent);
        WaitFlag<HardEvent::V_MTE3>(kIdsEvent);
        StoreIds(row, 0, chosen_, t.top_k);
        SetFlag<HardEvent::MTE3_V>(kIdsEvent);
    }

    // More blocks than there is room for have at least the score `least`: of those with just that, the first stay.
    __aicore__ inline void Ties(float least, uint32_t found)
    {
        const uint32_t room = s_->t.top_k;
        uint32_t above = 0;
        for (uint32_t i = 0; i < found; i++) {
            above += other_.GetValue(static_cast<uint32_t>(chosen_.GetValue(i))) > least ? 1 : 0;
        }
        uint32_t equal = room - above, kept = 0;
        for (uint32_t i = 0; i < found && kept < room; i++) {
            const int32_t id = chosen_.GetValue(i);
            const bool more = other_.GetValue(static_cast<uint32_t>(id)) > least;
            if (more || equal > 0) {
                equal -= more ? 0 : 1;
                chosen_.SetValue(kept++, id);
            }
        }
        SetFlag<HardEvent::S_MTE3>(0);
        WaitFlag<HardEvent::S_MTE3>(0);
    }

    const Shape *s_;
    uint32_t core_, sub_, width_;
    GlobalTensor<int32_t> ids_;
    GlobalTensor<float> scores_, heads_;
    LocalTensor<float> kept_, row_, other_, sorted_[2], nothing_;
    LocalTensor<int32_t> iota_, chosen_, none_;
    LocalTensor<uint8_t> bits_;
    Units units_;
    VectorSide side_;
};

template <class T>
__aicore__ inline void Multiply(const Shape &shape, GM_ADDR q, GM_ADDR k, GM_ADDR table, GM_ADDR status, GM_ADDR workspace)
{
    CubePart<T> part;
    part.Init(shape, q, k, table, status, workspace);
    part.Process();
}

__aicore__ inline void Run(GM_ADDR q, GM_ADDR k, GM_ADDR table, GM_ADDR first, GM_ADDR ids, GM_ADDR scores, GM_ADDR status,
                           GM_ADDR workspace, GM_ADDR tiling)
{
    Shape shape;
    shape.Init(first, tiling);
    if ASCEND_IS_AIC {
        if (shape.t.dtype == 0) {
            Multiply<bfloat16_t>(shape, q, k, table, status, workspace);
        } else {
            Multiply<float>(shape, q, k, table, status, workspace);
        }
    }
    if ASCEND_IS_AIV {
        VectorPart part;
        part.Init(shape, ids, scores, workspace);
        part.Process();
    }
}

} // namespace indexer

extern "C" __global__ __aicore__ void msa_indexer(GM_ADDR q, GM_ADDR k, GM_ADDR table, GM_ADDR first, GM_ADDR ids, GM_ADDR scores,
                                                  GM_ADDR status, GM_ADDR workspace, GM_ADDR tiling)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
    indexer::Run(q, k, table, first, ids, scores, status, workspace, tiling);
}
