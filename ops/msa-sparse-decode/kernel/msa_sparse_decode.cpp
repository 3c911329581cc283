// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Decode attention over listed blocks of a cache.
//
// All slots of all lists stand in a row and are cut into equal ranges, one for each core. A core takes its range in tasks of
// at most `pass_slots` slots of one item (a KV head of a batch entry, at most 16 query heads). The cube core multiplies
// queries and keys, the two vector cores make weights of the scores, half of the rows each, and the cube core multiplies
// these and the values. What comes out is the part of a task: a row of sums for each query head, with the maximum that its
// weights are relative to and the sum of the weights. An item with one part is divided and stored at once; the other parts
// are merged when all cores are done.
//
// The cube core is one task ahead: it multiplies the keys of the next task while the vector cores work on this one. That
// order alone keeps it from overwriting scores and weights that are in use: both have two places, and the scores of a task
// come after the weights of the one two before.

#if __NPU_ARCH__ == 3510
#include "arch_3510.h"
#else
#include "arch_2201.h"
#endif

namespace sparse_decode {

constexpr float kInfinity = __builtin_huge_valf();
constexpr float kLargest = 3.4028234e38f;
constexpr float kSmallest = 1.1754944e-38f;

// L0, in bytes.
constexpr uint32_t kL0Stage = 32 * 1024; // of L0A and L0B
static_assert(kPage * sizeof(bfloat16_t) <= kL0Stage, "a page does not fit a stage of L0B");
static_assert(3 * kLane * kMaxDim * sizeof(bfloat16_t) <= kL0Stage, "queries do not fit a stage of L0A");
static_assert(3 * kLane * kMaxBlock * sizeof(bfloat16_t) <= kL0Stage, "weights do not fit a stage of L0A");
constexpr uint32_t kL0cScores = 0;
constexpr uint32_t kL0cPart = kStages * kLane * kBatchKeys * sizeof(float);
static_assert(kL0cPart + kLane * kMaxDim * sizeof(float) <= kL0cBytes, "L0C");

// Events of MTE2 and MTE1: keys 0 and 1, values 2 and 3, weights 4, queries 5. Of M and FIX: scores 0 and 1, part 2.
constexpr int32_t kKeysEvent = 0, kValuesEvent = 2, kQueriesEvent = 5, kPartEvent = 2;

class CubePart {
public:
    __aicore__ inline void Init(const Shape &s, GM_ADDR q, GM_ADDR k, GM_ADDR v, GM_ADDR table, GM_ADDR ids, GM_ADDR lens,
                                GM_ADDR status, GM_ADDR workspace)
    {
        s_ = &s;
        core_ = static_cast<uint32_t>(GetBlockIdx());
        q_.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(q));
        k_.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(k));
        v_.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(v));
        if (s.t.row_tiles == 1) {
            // Read once.
            k_.SetL2CacheHint(CacheMode::CACHE_MODE_DISABLE);
            v_.SetL2CacheHint(CacheMode::CACHE_MODE_DISABLE);
        }
        table_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t *>(table));
        parts_.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(workspace + s.t.ws_parts));
        status_.SetGlobalBuffer(reinterpret_cast<__gm__ uint32_t *>(status) + core_ * kStatusWords, kStatusWords);
        tasks_.Init(s, ids, lens, core_);
        side_.Init(s, workspace, core_);
        queries_ = LocalTensor<bfloat16_t>(TPosition::A1, kL1Queries, 3 * kLane * kMaxDim);
        for (uint32_t i = 0; i < kStages; i++) {
            keys_[i] = LocalTensor<bfloat16_t>(TPosition::B1, kL1Keys + i * kKeyStagePages * kPage * sizeof(bfloat16_t),
                                               kKeyStagePages * kPage);
            values_[i] = LocalTensor<bfloat16_t>(TPosition::B1, kL1Values + i * kValueStagePages * kPage * sizeof(bfloat16_t),
                                                 kValueStagePages * kPage);
            left_[i] = LocalTensor<bfloat16_t>(TPosition::A2, i * kL0Stage, kL0Stage / sizeof(bfloat16_t));
            right_[i] = LocalTensor<bfloat16_t>(TPosition::B2, i * kL0Stage, kL0Stage / sizeof(bfloat16_t));
            scores_[i] = LocalTensor<float>(TPosition::CO1, kL0cScores + i * kLane * kBatchKeys * sizeof(float), kLane * kBatchKeys);
        }
        sums_ = LocalTensor<float>(TPosition::CO1, kL0cPart, kLane * kMaxDim);
    }

    __aicore__ inline void Process()
    {
        SetFlag<HardEvent::MTE1_MTE2>(kKeysEvent);
        SetFlag<HardEvent::MTE1_MTE2>(kKeysEvent + 1);
        SetFlag<HardEvent::MTE1_MTE2>(kValuesEvent);
        SetFlag<HardEvent::MTE1_MTE2>(kValuesEvent + 1);
        SetFlag<HardEvent::MTE1_MTE2>(kQueriesEvent);
        SetFlag<HardEvent::M_MTE1>(0);
        SetFlag<HardEvent::M_MTE1>(1);
        SetFlag<HardEvent::FIX_M>(0);
        SetFlag<HardEvent::FIX_M>(1);
        SetFlag<HardEvent::FIX_M>(kPartEvent);
        // With an odd number of rows the vector cores work on one more, which must hold numbers.
        InitConstValueParams<bfloat16_t> zero;
        zero.repeatTimes = 1;
        zero.blockNum = static_cast<uint16_t>(3 * kMaxDim);
        zero.dstGap = 0;
        zero.initValue = static_cast<bfloat16_t>(0.0f);
        Fill(queries_, zero);
        PipeBarrier<PIPE_MTE2>();

        uint32_t now = 0;
        bool more = NextTask(tasks_storage_[0]);
        if (more) {
            Scores(tasks_storage_[0], 0);
            issued_[0] = 0;
            issued_[1] = 0;
            Ahead(&tasks_storage_[0], nullptr);
        }
        uint32_t done = 0;
        while (more) {
            const Task &task = tasks_storage_[now];
            more = NextTask(tasks_storage_[1 - now]);
            const Task *next = nullptr;
            if (more) {
                next = &tasks_storage_[1 - now];
                Scores(*next, (done + 1) % kRing);
                Ahead(&task, next);
            }
            Values(task, next, done % kRing);
            issued_[0] = issued_[1];
            issued_[1] = 0;
            now = 1 - now;
            done++;
        }

        WaitFlag<HardEvent::MTE1_MTE2>(kKeysEvent);
        WaitFlag<HardEvent::MTE1_MTE2>(kKeysEvent + 1);
        WaitFlag<HardEvent::MTE1_MTE2>(kValuesEvent);
        WaitFlag<HardEvent::MTE1_MTE2>(kValuesEvent + 1);
        WaitFlag<HardEvent::MTE1_MTE2>(kQueriesEvent);
        WaitFlag<HardEvent::M_MTE1>(0);
        WaitFlag<HardEvent::M_MTE1>(1);
        WaitFlag<HardEvent::FIX_M>(0);
        WaitFlag<HardEvent::FIX_M>(1);
        WaitFlag<HardEvent::FIX_M>(kPartEvent);
        side_.End();
        found_ |= tasks_.Found();
        if (found_ != 0) {
            status_.SetValue(0, status_.GetValue(0) | found_);
            DataCacheCleanAndInvalid<uint32_t, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(status_);
        }
    }

private:
    // Tasks without keys are the vector cores' alone.
    __aicore__ inline bool NextTask(Task &task)
    {
        while (tasks_.Next(task)) {
            if (task.slots > 0) {
                return true;
            }
        }
        return false;
    }

    // Where the page of a slot begins, in keys or values.
    __aicore__ inline uint64_t Page(const Task &task, uint32_t slot)
    {
        const MsaSparseDecodeTiling &t = s_->t;
        const uint32_t list = task.item / t.row_tiles, entry = list / t.kv_heads;
        uint64_t page = task.id[slot];
        if (t.has_table != 0) {
            const int32_t found = table_.GetValue(static_cast<uint64_t>(entry) * t.capacity + task.id[slot]);
            // What is no page is nobody's: what comes out then is of no use, but nothing else is read.
            const bool isPage = found >= 0 && static_cast<uint64_t>(found) < t.pages;
            page = isPage ? static_cast<uint64_t>(found) : 0;
            found_ |= isPage ? 0 : kBadIndex;
        }
        return entry * t.kv_batch_pitch + (list - entry * t.kv_heads) * t.kv_head_pitch + page * t.kv_page_pitch;
    }

    // Rows of `columns` elements to NZ form with `rows16` rows.
    __aicore__ inline void LoadRows(const LocalTensor<bfloat16_t> &to, const GlobalTensor<bfloat16_t> &from, uint32_t rows,
                                    uint32_t rows16)
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

    // Scores of a task: to the vector cores.
    __aicore__ inline void Scores(const Task &task, uint32_t ring)
    {
        const MsaSparseDecodeTiling &t = s_->t;
        const uint32_t rows = 2 * s_->Half(task.rows);
        const uint32_t tile = kLane * s_->block16, page = s_->block16 * s_->dim16;
        const uint32_t queries = kLane * s_->dim16;
        WaitFlag<HardEvent::MTE1_MTE2>(kQueriesEvent);
        for (uint32_t term = 0; term < t.terms; term++) {
            LoadRows(queries_[term * queries], q_[term * t.term_pitch + static_cast<uint64_t>(s_->Head(task.item)) * t.head_dim],
                     task.rows, kLane);
        }
        SetFlag<HardEvent::MTE2_MTE1>(kQueriesEvent);
        WaitFlag<HardEvent::MTE2_MTE1>(kQueriesEvent);
        const uint32_t batch = kBatchKeys / s_->block16;
        for (uint32_t first = 0; first < task.slots; first += batch) {
            const uint32_t count = Least(batch, task.slots - first);
            WaitFlag<HardEvent::FIX_M>(scoreStage_);
            for (uint32_t i = 0; i < count; i++) {
                const uint32_t slot = first + i, inStage = slot % kKeyStagePages;
                if (inStage == 0) {
                    WaitFlag<HardEvent::MTE1_MTE2>(kKeysEvent + keyStage_);
                    for (uint32_t p = 0; p < kKeyStagePages && slot + p < task.slots; p++) {
                        LoadRows(keys_[keyStage_][p * page], k_[Page(task, slot + p)], task.keys[slot + p], s_->block16);
                    }
                    SetFlag<HardEvent::MTE2_MTE1>(kKeysEvent + keyStage_);
                    WaitFlag<HardEvent::MTE2_MTE1>(kKeysEvent + keyStage_);
                }
                WaitFlag<HardEvent::M_MTE1>(stage_);
                LoadLeft(left_[stage_], queries_, t.terms * s_->dim16 / kLane);
                LoadKeys(right_[stage_], keys_[keyStage_][inStage * page], s_->block16 / kLane, s_->dim16 / kLane);
                SetFlag<HardEvent::MTE1_M>(stage_);
                WaitFlag<HardEvent::MTE1_M>(stage_);
                MmadParams p;
                p.m = static_cast<uint16_t>(rows);
                // Columns beyond the keys come of what lay in L1; the vector cores overwrite them.
                p.n = static_cast<uint16_t>(s_->block16);
                p.k = static_cast<uint16_t>(t.head_dim);
                for (uint32_t term = 0; term < t.terms; term++) {
                    p.cmatrixInitVal = term == 0;
                    if (term > 0) {
                        PipeBarrier<PIPE_M>();
                    }
                    Mmad(scores_[scoreStage_][i * tile], left_[stage_][term * queries], right_[stage_], p);
                }
                SetFlag<HardEvent::M_MTE1>(stage_);
                stage_ = 1 - stage_;
                if (inStage == kKeyStagePages - 1 || slot + 1 == task.slots) {
                    SetFlag<HardEvent::MTE1_MTE2>(kKeysEvent + keyStage_);
                    keyStage_ = 1 - keyStage_;
                }
            }
            SetFlag<HardEvent::M_FIX>(scoreStage_);
            WaitFlag<HardEvent::M_FIX>(scoreStage_);
            side_.PutScores(ring, first, scores_[scoreStage_], rows, count);
            SetFlag<HardEvent::FIX_M>(scoreStage_);
            scoreStage_ = 1 - scoreStage_;
        }
        SetFlag<HardEvent::MTE1_MTE2>(kQueriesEvent);
        side_.ScoresDone();
    }

    // Fills the free stages of values: with those of this task, then with those of the next.
    __aicore__ inline void Ahead(const Task *task, const Task *next)
    {
        while (ahead_ < kStages) {
            if (issued_[0] < Ceil(task->slots, kValueStagePages)) {
                LoadStage(*task, issued_[0]++);
            } else if (next != nullptr && issued_[1] < Ceil(next->slots, kValueStagePages)) {
                LoadStage(*next, issued_[1]++);
            } else {
                return;
            }
        }
    }
    __aicore__ inline void LoadStage(const Task &task, uint32_t number)
    {
        const uint32_t page = s_->block16 * s_->dim16;
        WaitFlag<HardEvent::MTE1_MTE2>(kValuesEvent + fillStage_);
        for (uint32_t p = 0; p < kValueStagePages && number * kValueStagePages + p < task.slots; p++) {
            const uint32_t slot = number * kValueStagePages + p;
            const uint32_t keys = task.keys[slot], keys16 = Up16(keys);
            if (keys != keys16) {
                // The rest of the last fractal: the product has as many terms as there are keys, but 0 x NaN is NaN.
                InitConstValueParams<bfloat16_t> zero;
                zero.repeatTimes = static_cast<uint16_t>(s_->dim16 / kLane);
                zero.blockNum = static_cast<uint16_t>(keys16 - keys);
                zero.dstGap = static_cast<uint16_t>(s_->block16 - (keys16 - keys));
                zero.initValue = static_cast<bfloat16_t>(0.0f);
                Fill(values_[fillStage_][p * page + keys * kLane], zero);
            }
            LoadRows(values_[fillStage_][p * page], v_[Page(task, slot)], keys, s_->block16);
        }
        SetFlag<HardEvent::MTE2_MTE1>(kValuesEvent + fillStage_);
        fillStage_ = 1 - fillStage_;
        ahead_++;
    }

    // Weights times values: to the parts.
    __aicore__ inline void Values(const Task &task, const Task *next, uint32_t ring)
    {
        const MsaSparseDecodeTiling &t = s_->t;
        const uint32_t rows = 2 * s_->Half(task.rows);
        const uint32_t tile = kLane * s_->block16, page = s_->block16 * s_->dim16;
        LocalTensor<bfloat16_t> weights = side_.Weights(ring, task.slots, rows);
        WaitFlag<HardEvent::FIX_M>(kPartEvent);
        for (uint32_t slot = 0; slot < task.slots; slot++) {
            const uint32_t inStage = slot % kValueStagePages;
            const uint32_t keys16 = Ceil(task.keys[slot], kLane);
            if (inStage == 0) {
                WaitFlag<HardEvent::MTE2_MTE1>(kValuesEvent + useStage_);
            }
            WaitFlag<HardEvent::M_MTE1>(stage_);
            for (uint32_t term = 0; term < t.terms; term++) {
                LoadLeft(left_[stage_][term * tile], weights[(term * task.slots + slot) * tile], keys16);
            }
            LoadValues(right_[stage_], values_[useStage_][inStage * page], s_->block16 / kLane, keys16, s_->dim16 / kLane);
            SetFlag<HardEvent::MTE1_M>(stage_);
            WaitFlag<HardEvent::MTE1_M>(stage_);
            MmadParams p;
            p.m = static_cast<uint16_t>(rows);
            p.n = static_cast<uint16_t>(s_->dim16);
            p.k = static_cast<uint16_t>(task.keys[slot]);
            for (uint32_t term = 0; term < t.terms; term++) {
                p.cmatrixInitVal = slot == 0 && term == 0;
                if (slot > 0 || term > 0) {
                    PipeBarrier<PIPE_M>();
                }
                Mmad(sums_, left_[stage_][term * tile], right_[stage_], p);
            }
            SetFlag<HardEvent::M_MTE1>(stage_);
            stage_ = 1 - stage_;
            if (inStage == kValueStagePages - 1 || slot + 1 == task.slots) {
                SetFlag<HardEvent::MTE1_MTE2>(kValuesEvent + useStage_);
                useStage_ = 1 - useStage_;
                ahead_--;
                if (slot + 1 == task.slots) {
                    side_.WeightsTaken();
                }
                Ahead(&task, next);
            }
        }
        SetFlag<HardEvent::M_FIX>(kPartEvent);
        WaitFlag<HardEvent::M_FIX>(kPartEvent);
        StoreRows(parts_[s_->Part(core_, task.number)], sums_, rows, s_->dim16, s_->partRow);
        SetFlag<HardEvent::FIX_M>(kPartEvent);
        side_.PartDone();
    }

    const Shape *s_;
    uint32_t core_;
    GlobalTensor<bfloat16_t> q_, k_, v_;
    GlobalTensor<int32_t> table_;
    GlobalTensor<float> parts_;
    GlobalTensor<uint32_t> status_;
    uint32_t found_ = 0; // bits of the status
    LocalTensor<bfloat16_t> queries_, keys_[kStages], values_[kStages], left_[kStages], right_[kStages];
    LocalTensor<float> scores_[kStages], sums_;
    Tasks tasks_;
    Task tasks_storage_[2];
    CubeSide side_;
    int32_t stage_ = 0, keyStage_ = 0, scoreStage_ = 0, fillStage_ = 0, useStage_ = 0;
    uint32_t ahead_ = 0; // stages of values that are filled, or being filled
    uint32_t issued_[2] = {0, 0}; // of this task, of the next one
};

// Floats of UB. What the merge needs lies over what the tasks need.
constexpr uint32_t kUbWeights = kUbOwn;
constexpr uint32_t kUbTree = kUbWeights + kMaxRows * kMaxKeys * sizeof(bfloat16_t);
constexpr uint32_t kUbSums = kUbTree + kMaxRows * kMaxKeys / 2 * sizeof(float);
constexpr uint32_t kUbOut = kUbSums + kMaxRows * (kMaxDim + kStats) * sizeof(float);
constexpr uint32_t kUbZero = kUbOut + kMaxRows * kMaxDim * sizeof(float);
constexpr uint32_t kUbStats = kUbZero + kMaxRows * (kMaxDim + kStats) * sizeof(float);
constexpr uint32_t kUbRow = kUbStats + kRing * kMaxRows * kStats * sizeof(float);
constexpr uint32_t kUbSpread = kUbRow + 2 * 32;
constexpr uint32_t kUbEnd = kUbSpread + kMaxSlots * kMaxRows * 32;
static_assert(kUbEnd <= kUbBytes, "UB");
constexpr uint32_t kMergeElements = 16 * 1024;

constexpr uint32_t kBlockFloats = 8; // of 32 bytes
constexpr uint32_t kRepeatFloats = 64;

// Events. Of MTE2 and V: scores 0 (2201), sums of a part 1. Of MTE3 and V: weights 0, results 1.
constexpr int32_t kSumsEvent = 1, kWeightsOut = 0, kResultOut = 1;

class VectorPart {
public:
    __aicore__ inline void Init(const Shape &s, GM_ADDR ids, GM_ADDR lens, GM_ADDR out, GM_ADDR workspace)
    {
        s_ = &s;
        core_ = static_cast<uint32_t>(GetBlockIdx()) / 2;
        sub_ = static_cast<uint32_t>(GetSubBlockIdx());
        out32_.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(out));
        out16_.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(out));
        parts_.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(workspace + s.t.ws_parts));
        tasks_.Init(s, ids, lens, core_);
        side_.Init(s, workspace, core_, sub_);
        weights_ = LocalTensor<bfloat16_t>(TPosition::VECOUT, kUbWeights, kMaxRows * kMaxKeys);
        tree_ = LocalTensor<float>(TPosition::VECCALC, kUbTree, kMaxRows * kMaxKeys / 2);
        sums_ = LocalTensor<float>(TPosition::VECIN, kUbSums, kMaxRows * (kMaxDim + kStats));
        result_ = LocalTensor<float>(TPosition::VECOUT, kUbOut, kMaxRows * kMaxDim);
        zero_ = LocalTensor<float>(TPosition::VECOUT, kUbZero, kMaxRows * (kMaxDim + kStats));
        for (uint32_t i = 0; i < kRing; i++) {
            stats_[i] = LocalTensor<float>(TPosition::VECOUT, kUbStats + i * kMaxRows * kStats * sizeof(float), kMaxRows * kStats);
        }
        row_ = LocalTensor<float>(TPosition::VECCALC, kUbRow, 2 * kBlockFloats);
        spread_ = LocalTensor<float>(TPosition::VECCALC, kUbSpread, kMaxSlots * kMaxRows * kBlockFloats);
    }

    __aicore__ inline void Process()
    {
        SetFlag<HardEvent::V_MTE2>(kSumsEvent);
        SetFlag<HardEvent::MTE3_V>(kWeightsOut);
        SetFlag<HardEvent::MTE3_V>(kResultOut);
        // A part that saw nothing: sums and weights 0, maximum -infinity, which the merge gives no weight.
        Duplicate(zero_, 0.0f, static_cast<int32_t>(kMaxRows * s_->partRow));
        Duplicate(row_, 0.0f, static_cast<int32_t>(2 * kBlockFloats));
        VECTOR_ORDER();
        Duplicate(zero_[s_->dim16], -kInfinity, static_cast<uint64_t>(kBlockFloats), static_cast<uint8_t>(kMaxRows), 1,
                  static_cast<uint8_t>(s_->partRow / kBlockFloats));
        SetFlag<HardEvent::V_MTE3>(kResultOut);
        WaitFlag<HardEvent::V_MTE3>(kResultOut);

        Task task[2];
        uint32_t now = 0, done = 0;
        bool more = NextTask(task[0]);
        if (more) {
            Weights(task[0], 0);
        }
        while (more) {
            more = NextTask(task[1 - now]);
            if (more) {
                Weights(task[1 - now], (done + 1) % kRing);
            }
            Finish(task[now], done % kRing);
            now = 1 - now;
            done++;
        }
        WaitFlag<HardEvent::V_MTE2>(kSumsEvent);
        WaitFlag<HardEvent::MTE3_V>(kWeightsOut);
        WaitFlag<HardEvent::MTE3_V>(kResultOut);
        side_.End();
        if (s_->t.merge_rows != 0) {
            SyncAll();
            Merge();
        }
    }

private:
    // Rows of a task that are this core's.
    __aicore__ inline uint32_t Mine(const Task &task) const
    {
        const uint32_t half = s_->Half(task.rows);
        return sub_ == 0 ? half : task.rows - half;
    }
    __aicore__ inline bool NextTask(Task &task)
    {
        while (tasks_.Next(task)) {
            if (task.slots > 0) {
                return true;
            }
            Nothing(task);
        }
        return false;
    }
    __aicore__ inline void Nothing(const Task &task)
    {
        const uint32_t rows = Mine(task);
        if (rows == 0) {
            return;
        }
        if (task.whole != 0) {
            StoreZeros(task, rows);
        } else {
            DataCopy(parts_[s_->Part(core_, task.number) + sub_ * s_->Half(task.rows) * s_->partRow], zero_,
                     rows * s_->partRow);
        }
    }
    __aicore__ inline void StoreZeros(const Task &task, uint32_t rows)
    {
        const MsaSparseDecodeTiling &t = s_->t;
        const uint64_t to = static_cast<uint64_t>(s_->Head(task.item) + sub_ * s_->Half(task.rows)) * t.head_dim;
        // Each row from the same place, which has no maximum in it.
        for (uint32_t r = 0; r < rows; r++) {
            if (t.out_f32 != 0) {
                DataCopyExtParams p{1, static_cast<uint32_t>(t.head_dim * sizeof(float)), 0, 0, 0};
                DataCopyPad(out32_[to + r * t.head_dim], zero_, p);
            } else {
                DataCopyExtParams p{1, static_cast<uint32_t>(t.head_dim * sizeof(bfloat16_t)), 0, 0, 0};
                DataCopyPad(out16_[to + r * t.head_dim], zero_.ReinterpretCast<bfloat16_t>(), p);
            }
        }
    }

    // The largest, or the sum, of the columns of each row of [slots][half][block16], to `to`.
    template <bool isMax> __aicore__ inline void Reduce(const LocalTensor<float> &to, const LocalTensor<float> &from, uint32_t slots, uint32_t half)
    {
        const uint32_t tile = half * s_->block16, pitch = s_->block16 / kBlockFloats;
        LocalTensor<float> all = from;
        for (uint32_t n = slots; n > 1;) {
            const uint32_t pairs = n / 2;
            Two<isMax>(tree_, all, all[pairs * tile], pairs * tile);
            VECTOR_ORDER();
            if (n % 2 != 0) {
                Two<isMax>(tree_, tree_, all[(n - 1) * tile], tile);
                VECTOR_ORDER();
            }
            all = tree_;
            n = pairs;
        }
        const uint32_t columns = Least(kRepeatFloats, s_->block16);
        if (s_->block16 > kRepeatFloats) {
            for (uint32_t c = kRepeatFloats; c < s_->block16; c += kRepeatFloats) {
                const uint64_t mask = Least(kRepeatFloats, s_->block16 - c);
                const BinaryRepeatParams p{1, 1, 1, static_cast<uint8_t>(pitch), static_cast<uint8_t>(pitch), static_cast<uint8_t>(pitch)};
                if (slots == 1 && c == kRepeatFloats) {
                    // The scores themselves are still needed.
                    if (mask < kRepeatFloats) {
                        const CopyRepeatParams copy{1, 1, static_cast<uint16_t>(pitch), static_cast<uint16_t>(pitch)};
                        Copy(tree_, all, static_cast<uint64_t>(kRepeatFloats), static_cast<uint8_t>(half), copy);
                        VECTOR_ORDER();
                    }
                    TwoRows<isMax>(tree_, all, all[c], mask, half, p);
                } else {
                    TwoRows<isMax>(tree_, tree_, all[c], mask, half, p);
                }
                VECTOR_ORDER();
            }
            all = tree_;
        }
        if (isMax) {
            WholeReduceMax(to, all, static_cast<int32_t>(columns), static_cast<int32_t>(half), 1, 1, static_cast<int32_t>(pitch),
                           ReduceOrder::ORDER_ONLY_VALUE);
        } else {
            WholeReduceSum(to, all, static_cast<int32_t>(columns), static_cast<int32_t>(half), 1, 1, static_cast<int32_t>(pitch));
        }
        VECTOR_ORDER();
    }
    template <bool isMax>
    __aicore__ inline void Two(const LocalTensor<float> &to, const LocalTensor<float> &a, const LocalTensor<float> &b, uint32_t count)
    {
        if (isMax) {
            Max(to, a, b, static_cast<int32_t>(count));
        } else {
            Add(to, a, b, static_cast<int32_t>(count));
        }
    }
    template <bool isMax>
    __aicore__ inline void TwoRows(const LocalTensor<float> &to, const LocalTensor<float> &a, const LocalTensor<float> &b, uint64_t mask,
                                   uint32_t rows, const BinaryRepeatParams &p)
    {
        if (isMax) {
            Max(to, a, b, mask, static_cast<uint8_t>(rows), p);
        } else {
            Add(to, a, b, mask, static_cast<uint8_t>(rows), p);
        }
    }

    // Columns beyond the keys.
    __aicore__ inline void Mask(const LocalTensor<float> &scores, const Task &task, uint32_t half, float value)
    {
        const uint8_t pitch = static_cast<uint8_t>(s_->block16 / kBlockFloats);
        for (uint32_t i = 0; i < task.slots; i++) {
            const uint32_t keys = task.keys[i];
            for (uint32_t c = keys / kRepeatFloats * kRepeatFloats; c < s_->block16; c += kRepeatFloats) {
                const uint32_t width = Least(kRepeatFloats, s_->block16 - c);
                uint64_t mask[2] = {width == kRepeatFloats ? ~0ull : (1ull << width) - 1, 0};
                if (keys > c) {
                    mask[0] &= ~((1ull << (keys - c)) - 1);
                }
                if (mask[0] != 0) {
                    Duplicate(scores[i * half * s_->block16 + c], value, mask, static_cast<uint8_t>(half), 1, pitch);
                }
            }
        }
    }

    // Scores of a task to weights, which go to the cube core.
    __aicore__ inline void Weights(const Task &task, uint32_t ring)
    {
        const MsaSparseDecodeTiling &t = s_->t;
        const uint32_t half = s_->Half(task.rows), slots = task.slots;
        const uint32_t tile = half * s_->block16, count = slots * tile;
        LocalTensor<float> scores = side_.Scores(ring, slots, half);
        WaitFlag<HardEvent::MTE3_V>(kWeightsOut);
        // What lies beyond the keys is no number to calculate with.
        const bool positive = t.scale > 0.0f;
        Mask(scores, task, half, positive ? -kInfinity : 0.0f);
        VECTOR_ORDER();
        Muls(scores, scores, t.scale, static_cast<int32_t>(count));
        VECTOR_ORDER();
        if (!positive) {
            Mask(scores, task, half, -kInfinity);
            VECTOR_ORDER();
        }
        const uint8_t pitch = static_cast<uint8_t>(s_->block16 / kBlockFloats);
        LocalTensor<float> stats = stats_[ring];
        Reduce<true>(row_, scores, slots, half);
        Brcb(stats, row_, 1, {2, 16});
        VECTOR_ORDER();
        // The maximum of each row in front of each of its tiles.
        Copy(spread_, stats, static_cast<uint64_t>(kBlockFloats), static_cast<uint8_t>(half), {1, 1, 1, 2});
        VECTOR_ORDER();
        if (slots > 1) {
            Copy(spread_[half * kBlockFloats], spread_, static_cast<uint64_t>(half * kBlockFloats), static_cast<uint8_t>(slots - 1),
                 {1, 1, static_cast<uint16_t>(half), 0});
            VECTOR_ORDER();
        }
        for (uint32_t c = 0; c < s_->block16; c += kRepeatFloats) {
            const uint64_t mask = Least(kRepeatFloats, s_->block16 - c);
            Sub(scores[c], scores[c], spread_, mask, static_cast<uint8_t>(slots * half), {1, 1, 0, pitch, pitch, 1});
        }
        VECTOR_ORDER();
        Exp(scores, scores, static_cast<int32_t>(count));
        VECTOR_ORDER();
        Reduce<false>(row_[kBlockFloats], scores, slots, half);
        Brcb(stats[kBlockFloats], row_[kBlockFloats], 1, {2, 16});
        for (uint32_t term = 0; term < t.terms; term++) {
            LocalTensor<bfloat16_t> to = weights_[term * count];
            Cast(to, scores, RoundMode::CAST_RINT, static_cast<int32_t>(count));
            if (term + 1 < t.terms) {
                // What this term leaves.
                for (uint32_t at = 0; at < count; at += kMaxRows * kMaxKeys / 2) {
                    const int32_t part = static_cast<int32_t>(Least(kMaxRows * kMaxKeys / 2, count - at));
                    VECTOR_ORDER();
                    Cast(tree_, to[at], RoundMode::CAST_NONE, part);
                    VECTOR_ORDER();
                    Sub(scores[at], scores[at], tree_, part);
                }
                VECTOR_ORDER();
            }
        }
        side_.ScoresTaken();
        SetFlag<HardEvent::V_MTE3>(kWeightsOut);
        WaitFlag<HardEvent::V_MTE3>(kWeightsOut);
        for (uint32_t term = 0; term < t.terms; term++) {
            side_.PutWeights(ring, term, weights_[term * count], slots, half);
        }
        side_.WeightsDone();
        const uint32_t rows = Mine(task);
        if (task.whole == 0 && rows > 0) {
            DataCopyParams p;
            p.blockCount = static_cast<uint16_t>(rows);
            p.blockLen = kStats * sizeof(float) / 32;
            p.srcStride = 0;
            p.dstStride = static_cast<uint16_t>(s_->dim16 * sizeof(float) / 32);
            DataCopy(parts_[s_->Part(core_, task.number) + sub_ * half * s_->partRow + s_->dim16], stats, p);
        }
        SetFlag<HardEvent::MTE3_V>(kWeightsOut);
    }

    // The part of a task is there.
    __aicore__ inline void Finish(const Task &task, uint32_t ring)
    {
        side_.WaitPart();
        const uint32_t half = s_->Half(task.rows), rows = Mine(task);
        if (task.whole == 0 || rows == 0) {
            return;
        }
        WaitFlag<HardEvent::V_MTE2>(kSumsEvent);
        DataCopyParams p;
        p.blockCount = static_cast<uint16_t>(rows);
        p.blockLen = static_cast<uint16_t>(s_->dim16 * sizeof(float) / 32);
        p.srcStride = kStats * sizeof(float) / 32;
        p.dstStride = 0;
        DataCopy(sums_, parts_[s_->Part(core_, task.number) + sub_ * half * s_->partRow], p);
        SetFlag<HardEvent::MTE2_V>(kSumsEvent);
        WaitFlag<HardEvent::MTE2_V>(kSumsEvent);
        WaitFlag<HardEvent::MTE3_V>(kResultOut);
        Divide(sums_, s_->dim16, stats_[ring][kBlockFloats], kStats, rows);
        SetFlag<HardEvent::V_MTE2>(kSumsEvent);
        StoreResult(s_->Head(task.item) + sub_ * half, rows);
        SetFlag<HardEvent::MTE3_V>(kResultOut);
    }

    // Rows over their sums to the result, rounded where it is BF16. `sums` may be the result's rows.
    __aicore__ inline void Divide(const LocalTensor<float> &rows, uint32_t pitch, const LocalTensor<float> &sums, uint32_t sumPitch,
                                  uint32_t count)
    {
        const uint8_t from = static_cast<uint8_t>(pitch / kBlockFloats), by = static_cast<uint8_t>(sumPitch / kBlockFloats),
                      to = static_cast<uint8_t>(s_->dim16 / kBlockFloats);
        const bool round = s_->t.out_f32 == 0;
        const LocalTensor<float> quotients = round ? tree_ : result_;
        for (uint32_t c = 0; c < s_->dim16; c += kRepeatFloats) {
            const uint64_t mask = Least(kRepeatFloats, s_->dim16 - c);
            Div(quotients[c], rows[c], sums, mask, static_cast<uint8_t>(count), {1, 1, 0, to, from, by});
        }
        if (round) {
            VECTOR_ORDER();
            Cast(result_.ReinterpretCast<bfloat16_t>(), quotients, RoundMode::CAST_RINT, static_cast<int32_t>(count * s_->dim16));
        }
    }
    __aicore__ inline void StoreResult(uint32_t head, uint32_t rows)
    {
        const MsaSparseDecodeTiling &t = s_->t;
        SetFlag<HardEvent::V_MTE3>(kResultOut);
        WaitFlag<HardEvent::V_MTE3>(kResultOut);
        const uint64_t to = static_cast<uint64_t>(head) * t.head_dim;
        if (t.out_f32 != 0) {
            const uint32_t bytes = t.head_dim * sizeof(float);
            DataCopyExtParams p{static_cast<uint16_t>(rows), bytes, s_->dim16 * sizeof(float) / 32 - Ceil(bytes, 32), 0, 0};
            DataCopyPad(out32_[to], result_, p);
        } else {
            DataCopyExtParams p{static_cast<uint16_t>(rows), static_cast<uint32_t>(t.head_dim * sizeof(bfloat16_t)), 0, 0, 0};
            DataCopyPad(out16_[to], result_.ReinterpretCast<bfloat16_t>(), p);
        }
    }

    // Items of several tasks: parts in ascending order, a few rows at a time, spread over all vector cores.
    __aicore__ inline void Merge()
    {
        const MsaSparseDecodeTiling &t = s_->t;
        const uint32_t units = Ceil(Least(kLane, s_->group), t.merge_rows);
        SetFlag<HardEvent::V_MTE2>(kSumsEvent);
        SetFlag<HardEvent::MTE3_V>(kResultOut);
        for (uint32_t u = static_cast<uint32_t>(GetBlockIdx()); u < t.items * units; u += 2 * s_->blocks) {
            const uint32_t item = u / units, first = (u - item * units) * t.merge_rows;
            if (first < s_->Rows(item)) {
                MergeRows(item, first, Least(t.merge_rows, s_->Rows(item) - first));
            }
        }
        WaitFlag<HardEvent::V_MTE2>(kSumsEvent);
        WaitFlag<HardEvent::MTE3_V>(kResultOut);
    }

    __aicore__ inline void MergeRows(uint32_t item, uint32_t first, uint32_t rows)
    {
        const MsaSparseDecodeTiling &t = s_->t;
        const LocalTensor<float> parts(TPosition::VECIN, kUbScores, kMergeElements);
        const uint32_t size = rows * s_->partRow;
        const uint32_t room = Least(kMergeElements / size, 2 * kRepeatFloats / rows);
        const uint32_t begin = item * t.topk, end = begin + t.topk;
        uint32_t core = static_cast<uint32_t>(static_cast<uint64_t>(begin) * s_->blocks / (static_cast<uint64_t>(t.items) * t.topk));
        while (s_->First(core + 1) <= begin) {
            core++;
        }
        if (t.topk <= t.pass_slots && s_->First(core + 1) >= end) {
            return; // one task
        }
        uint32_t filled = 0;
        bool fresh = true; // the place of the parts may still be in use
        for (uint32_t at = begin; at < end; core++) {
            const uint32_t from = s_->First(core), stop = Least(end, s_->First(core + 1));
            uint32_t number = 0;
            if (from < at) {
                const uint32_t before = from / t.topk;
                number = Ceil((before + 1) * t.topk - from, t.pass_slots) + (item - before - 1) * Ceil(t.topk, t.pass_slots);
            }
            for (; at < stop; at += Least(t.pass_slots, stop - at)) {
                if (filled == room) {
                    Combine(parts, filled, rows);
                    SetFlag<HardEvent::V_MTE2>(kSumsEvent);
                    filled = 1;
                    fresh = true;
                }
                if (fresh) {
                    WaitFlag<HardEvent::V_MTE2>(kSumsEvent);
                    fresh = false;
                }
                DataCopy(parts[filled * size], parts_[s_->Part(core, number) + first * s_->partRow], size);
                filled++;
                number++;
            }
        }
        Combine(parts, filled, rows);
        const LocalTensor<float> sums = parts[s_->dim16 + kBlockFloats];
        const uint8_t pitch = static_cast<uint8_t>(s_->partRow / kBlockFloats);
        // Nothing was seen: 0 / 0 is no result.
        Maxs(sums, sums, kSmallest, static_cast<uint64_t>(kBlockFloats), static_cast<uint8_t>(rows), {1, 1, pitch, pitch});
        VECTOR_ORDER();
        WaitFlag<HardEvent::MTE3_V>(kResultOut);
        Divide(parts, s_->partRow, sums, s_->partRow, rows);
        SetFlag<HardEvent::V_MTE2>(kSumsEvent);
        StoreResult(s_->Head(item) + first, rows);
        SetFlag<HardEvent::MTE3_V>(kResultOut);
    }

    // Adds `count` parts up in the place of the first.
    __aicore__ inline void Combine(const LocalTensor<float> &parts, uint32_t count, uint32_t rows)
    {
        SetFlag<HardEvent::MTE2_V>(kSumsEvent);
        WaitFlag<HardEvent::MTE2_V>(kSumsEvent);
        const uint32_t size = rows * s_->partRow;
        const uint8_t pitch = static_cast<uint8_t>(s_->partRow / kBlockFloats);
        const uint8_t few = static_cast<uint8_t>(rows), all = static_cast<uint8_t>(rows * count);
        const uint64_t block = kBlockFloats;
        const LocalTensor<float> maxima = parts[s_->dim16], sums = parts[s_->dim16 + kBlockFloats];
        Copy(spread_, maxima, block, few, {1, 1, 1, static_cast<uint16_t>(pitch)});
        VECTOR_ORDER();
        for (uint32_t i = 1; i < count; i++) {
            Max(spread_, spread_, maxima[i * size], block, few, {1, 1, 1, 1, 1, pitch});
            VECTOR_ORDER();
        }
        // Where no part has seen anything, the weights become e^-infinity.
        Maxs(spread_, spread_, -kLargest, static_cast<int32_t>(rows * kBlockFloats));
        VECTOR_ORDER();
        for (uint32_t i = 0; i < count; i++) {
            Sub(maxima[i * size], maxima[i * size], spread_, block, few, {1, 1, 1, pitch, pitch, 1});
        }
        VECTOR_ORDER();
        Exp(maxima, maxima, block, all, {1, 1, pitch, pitch});
        VECTOR_ORDER();
        Mul(sums, sums, maxima, block, all, {1, 1, 1, pitch, pitch, pitch});
        for (uint32_t c = 0; c < s_->dim16; c += kRepeatFloats) {
            const uint64_t mask = Least(kRepeatFloats, s_->dim16 - c);
            Mul(parts[c], parts[c], maxima, mask, all, {1, 1, 0, pitch, pitch, pitch});
        }
        VECTOR_ORDER();
        for (uint32_t i = 1; i < count; i++) {
            Add(parts, parts, parts[i * size], static_cast<int32_t>(size));
            VECTOR_ORDER();
        }
        Copy(maxima, spread_, block, few, {1, 1, static_cast<uint16_t>(pitch), 1});
    }

    const Shape *s_;
    uint32_t core_, sub_;
    GlobalTensor<float> out32_, parts_;
    GlobalTensor<bfloat16_t> out16_;
    LocalTensor<bfloat16_t> weights_;
    LocalTensor<float> tree_, sums_, result_, zero_, stats_[kRing], row_, spread_;
    Tasks tasks_;
    VectorSide side_;
};

__aicore__ inline void Run(GM_ADDR q, GM_ADDR k, GM_ADDR v, GM_ADDR table, GM_ADDR ids, GM_ADDR lens, GM_ADDR out, GM_ADDR status,
                           GM_ADDR workspace, GM_ADDR tiling)
{
    Shape shape;
    shape.Init(tiling);
    if ASCEND_IS_AIC {
        CubePart part;
        part.Init(shape, q, k, v, table, ids, lens, status, workspace);
        part.Process();
    }
    if ASCEND_IS_AIV {
        VectorPart part;
        part.Init(shape, ids, lens, out, workspace);
        part.Process();
    }
}

} // namespace sparse_decode

extern "C" __global__ __aicore__ void msa_sparse_decode(GM_ADDR q, GM_ADDR k, GM_ADDR v, GM_ADDR table, GM_ADDR ids, GM_ADDR lens,
                                                        GM_ADDR out, GM_ADDR status, GM_ADDR workspace, GM_ADDR tiling)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
    sparse_decode::Run(q, k, v, table, ids, lens, out, status, workspace, tiling);
}
