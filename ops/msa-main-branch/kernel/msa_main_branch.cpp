// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Attention of consecutive queries over listed blocks of keys.
//
// An item is a KV head and a tile of queries that share a list: at most 128 rows, a row being a query and one of the heads
// that share the KV head. A core takes its items in tasks of a few blocks. The cube core multiplies queries and keys, the
// two vector cores make weights of the scores, half of the rows each, and the cube core multiplies these and the values.
// The vector cores keep the sums of an item's rows, and scale them down whenever a task has a larger score.
//
// The cube core is one task ahead: it multiplies the keys of the next task while the vector cores work on this one. That
// order alone keeps it from overwriting scores, weights and parts that are in use: all have two places, and the scores of a
// task come after the weights of the one two before.

#if __NPU_ARCH__ == 3510
#include "arch_3510.h"
#else
#include "arch_2201.h"
#endif

namespace main_branch {

constexpr float kInfinity = __builtin_huge_valf();
constexpr float kLargest = 3.4028234e38f;
constexpr float kSmallest = 1.1754944e-38f;

constexpr uint16_t kScoresFull = 0, kWeightsFull = 2, kPartFull = 4;

// L0, in bytes.
constexpr uint32_t kL0Stage = 32 * 1024; // of L0A and L0B
constexpr uint32_t kL0cStage = kPieceRows * kMaxBlock * sizeof(float);
constexpr uint32_t kL0cPart = kStages * kL0cStage;
static_assert(kMaxRows * 256 <= kL0Stage && kMaxDim * 256 <= kL0Stage && kMaxBlock * 256 <= kL0Stage, "L0A and L0B");
static_assert(kL0cPart + kMaxRows * kMaxDim * sizeof(float) <= kL0cBytes, "L0C");

// Events of MTE2 and MTE1: keys 0 and 1, values 2 and 3, weights 4, queries 5. Of M and FIX: scores 0 and 1, part 2.
constexpr int32_t kKeysEvent = 0, kValuesEvent = 2, kWeightsEvent = 4, kQueriesEvent = 5, kPartEvent = 2;

// The scratch memory of a core.
template <class T> struct Scratch {
    GlobalTensor<float> scores, parts;
    GlobalTensor<T> weights;

    __aicore__ inline void Init(const Shape<T> &s, GM_ADDR workspace, uint32_t core)
    {
        const uint32_t size = kRing * kMaxRows * s.pitch, part = kRing * kMaxRows * s.dim16;
        const uint64_t number = core;
        scores.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(workspace + s.t.ws_scores) + number * size, size);
        weights.SetGlobalBuffer(reinterpret_cast<__gm__ T *>(workspace + s.t.ws_weights) + number * size, size);
        parts.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(workspace + s.t.ws_parts) + number * part, part);
    }
};

template <class T> class CubePart {
    using Sizes = Shape<T>;
    static constexpr uint32_t kPage = kMaxBlock * kMaxDim; // elements
    // L1, in bytes.
    static constexpr uint32_t kL1Queries = 0;
    static constexpr uint32_t kL1Keys = kL1Queries + kMaxRows * kMaxDim * sizeof(T);
    static constexpr uint32_t kL1Values = kL1Keys + kStages * kPage * sizeof(T);
    static constexpr uint32_t kL1Weights = kL1Values + kStages * kPage * sizeof(T);
    static constexpr uint32_t kL1End = kL1Weights + kMaxRows * Sizes::kMaxKeys * sizeof(T);
    static_assert(kL1End <= kL1Bytes, "L1");

public:
    __aicore__ inline void Init(const Sizes &s, GM_ADDR q, GM_ADDR k, GM_ADDR v, GM_ADDR table, GM_ADDR ids, GM_ADDR workspace)
    {
        s_ = &s;
        const uint32_t core = static_cast<uint32_t>(GetBlockIdx());
        q_.SetGlobalBuffer(reinterpret_cast<__gm__ T *>(q));
        k_.SetGlobalBuffer(reinterpret_cast<__gm__ T *>(k));
        v_.SetGlobalBuffer(reinterpret_cast<__gm__ T *>(v));
        table_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t *>(table));
        tasks_.Init(s, ids, core);
        scratch_.Init(s, workspace, core);
        queries_ = LocalTensor<T>(TPosition::A1, kL1Queries, kMaxRows * kMaxDim);
        weights_ = LocalTensor<T>(TPosition::A1, kL1Weights, kMaxRows * Sizes::kMaxKeys);
        for (uint32_t i = 0; i < kStages; i++) {
            keys_[i] = LocalTensor<T>(TPosition::B1, kL1Keys + i * kPage * sizeof(T), kPage);
            values_[i] = LocalTensor<T>(TPosition::B1, kL1Values + i * kPage * sizeof(T), kPage);
            left_[i] = LocalTensor<T>(TPosition::A2, i * kL0Stage, kL0Stage / sizeof(T));
            right_[i] = LocalTensor<T>(TPosition::B2, i * kL0Stage, kL0Stage / sizeof(T));
            scores_[i] = LocalTensor<float>(TPosition::CO1, i * kL0cStage, kL0cStage / sizeof(float));
        }
        sums_ = LocalTensor<float>(TPosition::CO1, kL0cPart, kMaxRows * kMaxDim);
    }

    __aicore__ inline void Process()
    {
        SetFlag<HardEvent::MTE1_MTE2>(kKeysEvent);
        SetFlag<HardEvent::MTE1_MTE2>(kKeysEvent + 1);
        SetFlag<HardEvent::MTE1_MTE2>(kValuesEvent);
        SetFlag<HardEvent::MTE1_MTE2>(kValuesEvent + 1);
        SetFlag<HardEvent::MTE1_MTE2>(kWeightsEvent);
        SetFlag<HardEvent::MTE1_MTE2>(kQueriesEvent);
        SetFlag<HardEvent::M_MTE1>(0);
        SetFlag<HardEvent::M_MTE1>(1);
        SetFlag<HardEvent::FIX_M>(0);
        SetFlag<HardEvent::FIX_M>(1);
        SetFlag<HardEvent::FIX_M>(kPartEvent);

        uint32_t now = 0, done = 0;
        bool more = NextTask(task_[0]);
        if (more) {
            Scores(task_[0], 0);
        }
        while (more) {
            more = NextTask(task_[1 - now]);
            if (more) {
                Scores(task_[1 - now], (done + 1) % kRing);
            }
            Values(task_[now], done % kRing);
            now = 1 - now;
            done++;
        }

        WaitFlag<HardEvent::MTE1_MTE2>(kKeysEvent);
        WaitFlag<HardEvent::MTE1_MTE2>(kKeysEvent + 1);
        WaitFlag<HardEvent::MTE1_MTE2>(kValuesEvent);
        WaitFlag<HardEvent::MTE1_MTE2>(kValuesEvent + 1);
        WaitFlag<HardEvent::MTE1_MTE2>(kWeightsEvent);
        WaitFlag<HardEvent::MTE1_MTE2>(kQueriesEvent);
        WaitFlag<HardEvent::M_MTE1>(0);
        WaitFlag<HardEvent::M_MTE1>(1);
        WaitFlag<HardEvent::FIX_M>(0);
        WaitFlag<HardEvent::FIX_M>(1);
        WaitFlag<HardEvent::FIX_M>(kPartEvent);
    }

private:
    // Items that see nothing are the vector cores' alone.
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
    __aicore__ inline uint64_t Page(const Task &task, uint32_t slot) const
    {
        const MsaMainBranchTiling &t = s_->t;
        uint64_t page = task.id[slot];
        if (t.has_table != 0) {
            const int32_t found = table_.GetValue(task.id[slot]);
            // What is no page is nobody's: what comes out then is of no use, but nothing else is read.
            page = found >= 0 && static_cast<uint64_t>(found) < t.pages ? static_cast<uint64_t>(found) : 0;
        }
        return task.kvHead * t.kv_head_pitch + page * t.kv_page_pitch;
    }
    // Keys or values of a slot to NZ form with as many rows as there are keys, rounded up.
    __aicore__ inline void LoadPage(const LocalTensor<T> &to, const GlobalTensor<T> &from, uint32_t keys)
    {
        Nd2NzParams p;
        p.ndNum = 1;
        p.nValue = static_cast<uint16_t>(keys);
        p.dValue = static_cast<uint16_t>(s_->t.head_dim);
        p.srcNdMatrixStride = 0;
        p.srcDValue = static_cast<uint16_t>(s_->t.kv_row_pitch);
        p.dstNzC0Stride = static_cast<uint16_t>(Up16(keys));
        p.dstNzNStride = 1;
        p.dstNzMatrixStride = 0;
        DataCopy(to, from, p);
    }
    __aicore__ inline void LoadQueries(const Task &task)
    {
        const MsaMainBranchTiling &t = s_->t;
        const uint32_t width = t.heads * t.head_dim;
        Nd2NzParams p;
        p.ndNum = static_cast<uint16_t>(task.queries);
        p.nValue = static_cast<uint16_t>(s_->group);
        p.dValue = static_cast<uint16_t>(t.head_dim);
        p.srcNdMatrixStride = static_cast<uint16_t>(width);
        p.srcDValue = static_cast<uint16_t>(t.head_dim);
        p.dstNzC0Stride = static_cast<uint16_t>(Up16(task.rows));
        p.dstNzNStride = 1;
        p.dstNzMatrixStride = static_cast<uint16_t>(s_->group * Sizes::kWide);
        WaitFlag<HardEvent::MTE1_MTE2>(kQueriesEvent);
        DataCopy(queries_, q_[static_cast<uint64_t>(task.query) * width + task.kvHead * s_->group * t.head_dim], p);
        SetFlag<HardEvent::MTE2_MTE1>(kQueriesEvent);
        WaitFlag<HardEvent::MTE2_MTE1>(kQueriesEvent);
    }

    // Scores of a task: to the vector cores.
    __aicore__ inline void Scores(const Task &task, uint32_t ring)
    {
        const MsaMainBranchTiling &t = s_->t;
        const uint32_t m = Up16(task.rows);
        if (task.first != 0) {
            LoadQueries(task);
        }
        for (uint32_t slot = 0; slot < task.slots; slot++) {
            const uint32_t n = Up16(task.keys[slot]);
            WaitFlag<HardEvent::MTE1_MTE2>(kKeysEvent + keyStage_);
            LoadPage(keys_[keyStage_], k_[Page(task, slot)], task.keys[slot]);
            SetFlag<HardEvent::MTE2_MTE1>(kKeysEvent + keyStage_);
            WaitFlag<HardEvent::MTE2_MTE1>(kKeysEvent + keyStage_);
            for (uint32_t row = 0; row < m; row += kPieceRows) {
                const uint32_t rows = Least(kPieceRows, m - row);
                WaitFlag<HardEvent::FIX_M>(scoreStage_);
                for (uint32_t k = 0; k < t.head_dim; k += Sizes::kStep) {
                    const uint32_t size = Least(Sizes::kStep, t.head_dim - k), wide = Ceil(size, Sizes::kWide);
                    WaitFlag<HardEvent::M_MTE1>(stage_);
                    LoadLeft(left_[stage_], queries_[k * m + row * Sizes::kWide], rows / kLane, wide, m / kLane);
                    LoadKeys(right_[stage_], keys_[keyStage_][k * n], n / kLane, wide);
                    SetFlag<HardEvent::MTE1_M>(stage_);
                    WaitFlag<HardEvent::MTE1_M>(stage_);
                    MmadParams p;
                    p.m = static_cast<uint16_t>(rows);
                    // Columns beyond the keys come of what lay in L1; the vector cores overwrite them.
                    p.n = static_cast<uint16_t>(n);
                    p.k = static_cast<uint16_t>(size);
                    p.cmatrixInitVal = k == 0;
                    if (k > 0) {
                        PipeBarrier<PIPE_M>();
                    }
                    Mmad(scores_[scoreStage_], left_[stage_], right_[stage_], p);
                    SetFlag<HardEvent::M_MTE1>(stage_);
                    stage_ = 1 - stage_;
                }
                SetFlag<HardEvent::M_FIX>(scoreStage_);
                WaitFlag<HardEvent::M_FIX>(scoreStage_);
                StoreRows(scratch_.scores[(ring * kMaxRows + row) * s_->pitch + slot * s_->block16], scores_[scoreStage_],
                          Least(rows, task.rows - row), rows, n, s_->pitch);
                SetFlag<HardEvent::FIX_M>(scoreStage_);
                scoreStage_ = 1 - scoreStage_;
            }
            SetFlag<HardEvent::MTE1_MTE2>(kKeysEvent + keyStage_);
            keyStage_ = 1 - keyStage_;
        }
        if (task.last != 0) {
            SetFlag<HardEvent::MTE1_MTE2>(kQueriesEvent);
        }
        CrossCoreSetFlag<2, PIPE_FIX>(kScoresFull);
    }

    __aicore__ inline void LoadValuesStage(const Task &task, uint32_t slot)
    {
        const uint32_t keys = task.keys[slot], rest = Up16(keys) - keys;
        WaitFlag<HardEvent::MTE1_MTE2>(kValuesEvent + fillStage_);
        if (rest != 0) {
            // The rest of the last fractal: its weights are zero, but 0 x NaN is NaN.
            InitConstValueParams<T> zero;
            zero.repeatTimes = static_cast<uint16_t>(Ceil(s_->t.head_dim, Sizes::kWide));
            zero.blockNum = static_cast<uint16_t>(rest);
            zero.dstGap = static_cast<uint16_t>(keys);
            zero.initValue = static_cast<T>(0.0f);
            Fill(values_[fillStage_][keys * Sizes::kWide], zero);
        }
        LoadPage(values_[fillStage_], v_[Page(task, slot)], keys);
        SetFlag<HardEvent::MTE2_MTE1>(kValuesEvent + fillStage_);
        fillStage_ = 1 - fillStage_;
    }

    // Weights times values: to the vector cores.
    __aicore__ inline void Values(const Task &task, uint32_t ring)
    {
        const uint32_t m = Up16(task.rows), tile = m * s_->block16;
        uint32_t loaded = 0;
        while (loaded < kStages && loaded < task.slots) {
            LoadValuesStage(task, loaded++);
        }
        CrossCoreWaitFlag<2, PIPE_MTE2>(kWeightsFull);
        WaitFlag<HardEvent::MTE1_MTE2>(kWeightsEvent);
        Nd2NzParams w;
        w.ndNum = 1;
        w.nValue = static_cast<uint16_t>(task.rows);
        w.dValue = static_cast<uint16_t>(task.slots * s_->block16);
        w.srcNdMatrixStride = 0;
        w.srcDValue = static_cast<uint16_t>(s_->pitch);
        w.dstNzC0Stride = static_cast<uint16_t>(m);
        w.dstNzNStride = 1;
        w.dstNzMatrixStride = 0;
        DataCopy(weights_, scratch_.weights[ring * kMaxRows * s_->pitch], w);
        SetFlag<HardEvent::MTE2_MTE1>(kWeightsEvent);
        WaitFlag<HardEvent::MTE2_MTE1>(kWeightsEvent);
        WaitFlag<HardEvent::FIX_M>(kPartEvent);
        for (uint32_t slot = 0; slot < task.slots; slot++) {
            const uint32_t keys = Up16(task.keys[slot]);
            WaitFlag<HardEvent::MTE2_MTE1>(kValuesEvent + useStage_);
            for (uint32_t k = 0; k < keys; k += Sizes::kStep) {
                const uint32_t size = Least(Sizes::kStep, keys - k);
                WaitFlag<HardEvent::M_MTE1>(stage_);
                LoadLeft(left_[stage_], weights_[slot * tile + k * m], m / kLane, size / Sizes::kWide, m / kLane);
                LoadValues(right_[stage_], values_[useStage_], keys, k, size, s_->dim16);
                SetFlag<HardEvent::MTE1_M>(stage_);
                WaitFlag<HardEvent::MTE1_M>(stage_);
                MmadParams p;
                p.m = static_cast<uint16_t>(m);
                p.n = static_cast<uint16_t>(s_->dim16);
                p.k = static_cast<uint16_t>(size);
                p.cmatrixInitVal = slot == 0 && k == 0;
                if (slot > 0 || k > 0) {
                    PipeBarrier<PIPE_M>();
                }
                Mmad(sums_, left_[stage_], right_[stage_], p);
                SetFlag<HardEvent::M_MTE1>(stage_);
                stage_ = 1 - stage_;
            }
            SetFlag<HardEvent::MTE1_MTE2>(kValuesEvent + useStage_);
            useStage_ = 1 - useStage_;
            if (loaded < task.slots) {
                LoadValuesStage(task, loaded++);
            }
        }
        SetFlag<HardEvent::MTE1_MTE2>(kWeightsEvent);
        SetFlag<HardEvent::M_FIX>(kPartEvent);
        WaitFlag<HardEvent::M_FIX>(kPartEvent);
        StoreRows(scratch_.parts[ring * kMaxRows * s_->dim16], sums_, task.rows, m, s_->dim16, s_->dim16);
        SetFlag<HardEvent::FIX_M>(kPartEvent);
        CrossCoreSetFlag<2, PIPE_FIX>(kPartFull);
    }

    const Sizes *s_;
    GlobalTensor<T> q_, k_, v_;
    GlobalTensor<int32_t> table_;
    LocalTensor<T> queries_, weights_, keys_[kStages], values_[kStages], left_[kStages], right_[kStages];
    LocalTensor<float> scores_[kStages], sums_;
    Tasks<T> tasks_;
    Task task_[2];
    Scratch<T> scratch_;
    int32_t stage_ = 0, keyStage_ = 0, scoreStage_ = 0, fillStage_ = 0, useStage_ = 0;
};

constexpr uint32_t kBlockFloats = 8; // of 32 bytes
constexpr uint32_t kRepeatFloats = 64;

// Events. Of MTE2 and V: scores 0 and 1, a part 2. Of MTE3 and V: weights 0 and 1, results 2.
constexpr int32_t kScoresIn = 0, kPartIn = 2, kWeightsOut = 0, kResultOut = 2;

template <class T> class VectorPart {
    using Sizes = Shape<T>;
    static constexpr uint32_t kSlice = kSliceRows * Sizes::kMaxKeys; // elements
    // UB, in bytes.
    static constexpr uint32_t kUbScores = 0;
    static constexpr uint32_t kUbWeights = kUbScores + 2 * kSlice * sizeof(float);
    static constexpr uint32_t kUbTree = kUbWeights + 2 * kSlice * sizeof(T);
    static constexpr uint32_t kUbSums = kUbTree + kSlice / kBlockFloats * sizeof(float);
    static constexpr uint32_t kUbPart = kUbSums + kHalfRows * kMaxDim * sizeof(float);
    static constexpr uint32_t kUbMaxima = kUbPart + kPartRows * kMaxDim * sizeof(float);
    static constexpr uint32_t kUbWeightSums = kUbMaxima + kHalfRows * 32;
    static constexpr uint32_t kUbFactors = kUbWeightSums + 2 * kHalfRows * 32;
    static constexpr uint32_t kUbSpread = kUbFactors + kRing * kHalfRows * 32;
    static constexpr uint32_t kUbStats = kUbSpread + kMaxSlots * kSliceRows * 32;
    static constexpr uint32_t kUbRow = kUbStats + kSliceRows * 32;
    static constexpr uint32_t kUbSeen = kUbRow + (kSliceRows + kHalfRows) * sizeof(float);
    static constexpr uint32_t kUbZero = kUbSeen + kMaxRows * 32;
    static constexpr uint32_t kUbEnd = kUbZero + kMaxDim * sizeof(float);
    static_assert(kUbEnd <= kUbBytes, "UB");

public:
    __aicore__ inline void Init(const Sizes &s, GM_ADDR ids, GM_ADDR out, GM_ADDR seen, GM_ADDR workspace)
    {
        s_ = &s;
        const uint32_t core = static_cast<uint32_t>(GetBlockIdx()) / 2;
        sub_ = static_cast<uint32_t>(GetSubBlockIdx());
        out_.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(out));
        seenOut_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t *>(seen));
        tasks_.Init(s, ids, core);
        scratch_.Init(s, workspace, core);
        for (uint32_t i = 0; i < 2; i++) {
            scores_[i] = LocalTensor<float>(TPosition::VECIN, kUbScores + i * kSlice * sizeof(float), kSlice);
            weights_[i] = LocalTensor<T>(TPosition::VECOUT, kUbWeights + i * kSlice * sizeof(T), kSlice);
            weightSums_[i] = LocalTensor<float>(TPosition::VECCALC, kUbWeightSums + i * kHalfRows * 32, kHalfRows * kBlockFloats);
            factors_[i] = LocalTensor<float>(TPosition::VECCALC, kUbFactors + i * kHalfRows * 32, kHalfRows * kBlockFloats);
        }
        tree_ = LocalTensor<float>(TPosition::VECCALC, kUbTree, kSlice / kBlockFloats);
        sums_ = LocalTensor<float>(TPosition::VECOUT, kUbSums, kHalfRows * kMaxDim);
        part_ = LocalTensor<float>(TPosition::VECIN, kUbPart, kPartRows * kMaxDim);
        maxima_ = LocalTensor<float>(TPosition::VECCALC, kUbMaxima, kHalfRows * kBlockFloats);
        spread_ = LocalTensor<float>(TPosition::VECCALC, kUbSpread, kMaxSlots * kSliceRows * kBlockFloats);
        stats_ = LocalTensor<float>(TPosition::VECCALC, kUbStats, kSliceRows * kBlockFloats);
        row_ = LocalTensor<float>(TPosition::VECCALC, kUbRow, kSliceRows + kHalfRows);
        more_ = LocalTensor<float>(TPosition::VECCALC, kUbRow + kSliceRows * sizeof(float), kHalfRows);
        seen_ = LocalTensor<int32_t>(TPosition::VECOUT, kUbSeen, kMaxRows * kBlockFloats);
        zero_ = LocalTensor<float>(TPosition::VECOUT, kUbZero, kMaxDim);
    }

    __aicore__ inline void Process()
    {
        SetFlag<HardEvent::V_MTE2>(kScoresIn);
        SetFlag<HardEvent::V_MTE2>(kScoresIn + 1);
        SetFlag<HardEvent::V_MTE2>(kPartIn);
        SetFlag<HardEvent::MTE3_V>(kWeightsOut);
        SetFlag<HardEvent::MTE3_V>(kWeightsOut + 1);
        SetFlag<HardEvent::MTE3_V>(kResultOut);
        Duplicate(zero_, 0.0f, static_cast<int32_t>(kMaxDim));
        Duplicate(row_, 0.0f, static_cast<int32_t>(kSliceRows + kHalfRows));

        uint32_t now = 0, done = 0;
        bool more = NextTask(task_[0]);
        if (more) {
            Weights(task_[0], 0);
        }
        while (more) {
            more = NextTask(task_[1 - now]);
            if (more) {
                Weights(task_[1 - now], (done + 1) % kRing);
            }
            Finish(task_[now], done % kRing);
            now = 1 - now;
            done++;
        }
        WaitFlag<HardEvent::V_MTE2>(kScoresIn);
        WaitFlag<HardEvent::V_MTE2>(kScoresIn + 1);
        WaitFlag<HardEvent::V_MTE2>(kPartIn);
        WaitFlag<HardEvent::MTE3_V>(kWeightsOut);
        WaitFlag<HardEvent::MTE3_V>(kWeightsOut + 1);
        WaitFlag<HardEvent::MTE3_V>(kResultOut);
    }

private:
    // Rows of a task that are this core's: how many, and the first.
    __aicore__ inline uint32_t Mine(const Task &task) const
    {
        const uint32_t half = (task.rows + 1) / 2;
        return sub_ == 0 ? half : task.rows - half;
    }
    __aicore__ inline uint32_t From(const Task &task) const { return sub_ == 0 ? 0 : (task.rows + 1) / 2; }

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
    // Where a row's result begins.
    __aicore__ inline uint64_t Result(const Task &task, uint32_t row) const
    {
        const uint32_t query = row / s_->group;
        const uint64_t head = static_cast<uint64_t>(task.query + query) * s_->t.heads + task.kvHead * s_->group + row - query * s_->group;
        return head * s_->t.head_dim;
    }
    __aicore__ inline void Nothing(const Task &task)
    {
        WaitFlag<HardEvent::MTE3_V>(kResultOut);
        Seen(task, task.queries);
        SetFlag<HardEvent::V_MTE3>(kResultOut);
        WaitFlag<HardEvent::V_MTE3>(kResultOut);
        const uint32_t rows = Mine(task), from = From(task);
        const DataCopyExtParams p{1, static_cast<uint32_t>(s_->t.head_dim * sizeof(float)), 0, 0, 0};
        for (uint32_t r = 0; r < rows; r++) {
            DataCopyPad(out_[Result(task, from + r)], zero_, p);
        }
        StoreSeen(task);
        SetFlag<HardEvent::MTE3_V>(kResultOut);
    }
    // Which queries see something: not the first `blind` ones.
    __aicore__ inline void Seen(const Task &task, uint32_t blind)
    {
        if (sub_ != 0) {
            return;
        }
        Duplicate(seen_, static_cast<int32_t>(1), static_cast<int32_t>(task.queries * kBlockFloats));
        if (blind > 0) {
            VECTOR_ORDER();
            Duplicate(seen_, static_cast<int32_t>(0), static_cast<int32_t>(blind * kBlockFloats));
        }
    }
    __aicore__ inline void StoreSeen(const Task &task)
    {
        if (sub_ != 0) {
            return;
        }
        const uint32_t gap = static_cast<uint32_t>((s_->t.kv_heads - 1) * sizeof(int32_t));
        const DataCopyExtParams p{static_cast<uint16_t>(task.queries), static_cast<uint32_t>(sizeof(int32_t)), 0, gap, 0};
        DataCopyPad(seenOut_[static_cast<uint64_t>(task.query) * s_->t.kv_heads + task.kvHead], seen_, p);
    }

    // Columns from `keys` to `end` of some rows of `width64` columns: minus infinity.
    __aicore__ inline void Hide(const LocalTensor<float> &scores, uint32_t keys, uint32_t end, uint32_t rows, uint32_t width64)
    {
        const uint8_t pitch = static_cast<uint8_t>(width64 / kBlockFloats);
        for (uint32_t c = keys / kRepeatFloats * kRepeatFloats; c < end; c += kRepeatFloats) {
            const uint32_t width = Least(kRepeatFloats, end - c);
            uint64_t mask[2] = {width == kRepeatFloats ? ~0ull : (1ull << width) - 1, 0};
            if (keys > c) {
                mask[0] &= ~((1ull << (keys - c)) - 1);
            }
            if (mask[0] != 0) {
                Duplicate(scores[c], -kInfinity, mask, static_cast<uint8_t>(rows), 1, pitch);
            }
        }
    }
    // What the queries of a slice do not see. Rows are counted from the first of the item.
    __aicore__ inline void Mask(const LocalTensor<float> &scores, const Task &task, uint32_t row, uint32_t rows, uint32_t width64)
    {
        const MsaMainBranchTiling &t = s_->t;
        const uint32_t width = task.slots * s_->block16;
        if (width < width64) {
            Hide(scores[width], 0, width64 - width, rows, width64);
        }
        for (uint32_t slot = 0; slot < task.slots; slot++) {
            const uint32_t begin = task.id[slot] * t.block;
            for (uint32_t at = 0; at < rows;) {
                const uint32_t query = (row + at) / s_->group, end = t.start + task.query + query + 1;
                const uint32_t sees = begin < end ? Least(end - begin, task.keys[slot]) : 0;
                // What this query sees whole, the later ones see whole.
                const uint32_t stop = sees == task.keys[slot] ? rows : Least(rows, (query + 1) * s_->group - row);
                Hide(scores[at * width64 + slot * s_->block16], sees, s_->block16, stop - at, width64);
                at = stop;
            }
        }
    }

    // Scores of a task to weights, which go to the cube core.
    __aicore__ inline void Weights(const Task &task, uint32_t ring)
    {
        CrossCoreWaitFlag<2, PIPE_MTE2>(kScoresFull);
        const uint32_t mine = Mine(task);
        LocalTensor<float> sums = weightSums_[task.parity];
        if (task.first != 0 && mine > 0) {
            // Finite, so that no difference of maxima is NaN.
            Duplicate(maxima_, -kLargest, static_cast<int32_t>(mine * kBlockFloats));
            Duplicate(sums, 0.0f, static_cast<int32_t>(mine * kBlockFloats));
        }
        for (uint32_t row = 0; row < mine; row += kSliceRows) {
            Slice(task, ring, row, Least(kSliceRows, mine - row));
        }
        CrossCoreSetFlag<2, PIPE_MTE3>(kWeightsFull);
        if (mine > 0) {
            const int32_t all = static_cast<int32_t>(mine * kBlockFloats);
            Brcb(spread_, more_, static_cast<uint8_t>(Ceil(mine, kBlockFloats)), {1, 8});
            Mul(sums, sums, factors_[ring], all);
            VECTOR_ORDER();
            Add(sums, sums, spread_, all);
        }
    }

    __aicore__ inline void Slice(const Task &task, uint32_t ring, uint32_t row, uint32_t rows)
    {
        const MsaMainBranchTiling &t = s_->t;
        const uint32_t width = task.slots * s_->block16, width64 = Ceil(width, kRepeatFloats) * kRepeatFloats, count = rows * width64;
        const uint32_t from = From(task) + row, repeats = width64 / kRepeatFloats, eighth = width64 / kBlockFloats;
        const int32_t few = static_cast<int32_t>(rows * kBlockFloats);
        const uint32_t place = (ring * kMaxRows + from) * s_->pitch;
        LocalTensor<float> scores = scores_[slice_];
        LocalTensor<T> weights = weights_[slice_];
        WaitFlag<HardEvent::V_MTE2>(kScoresIn + slice_);
        DataCopyParams in;
        in.blockCount = static_cast<uint16_t>(rows);
        in.blockLen = static_cast<uint16_t>(width * sizeof(float) / 32);
        in.srcStride = static_cast<uint16_t>((s_->pitch - width) * sizeof(float) / 32);
        in.dstStride = static_cast<uint16_t>((width64 - width) * sizeof(float) / 32);
        DataCopy(scores, scratch_.scores[place], in);
        SetFlag<HardEvent::MTE2_V>(kScoresIn + slice_);
        WaitFlag<HardEvent::MTE2_V>(kScoresIn + slice_);

        Mask(scores, task, from, rows, width64);
        VECTOR_ORDER();
        Muls(scores, scores, t.scale, static_cast<int32_t>(count));
        VECTOR_ORDER();
        const LocalTensor<float> maxima = maxima_[row * kBlockFloats], factors = factors_[ring][row * kBlockFloats];
        BlockReduceMax(tree_, scores, static_cast<int32_t>(rows * repeats), static_cast<int32_t>(kRepeatFloats), 1, 1, 8);
        VECTOR_ORDER();
        WholeReduceMax(row_, tree_, static_cast<int32_t>(eighth), static_cast<int32_t>(rows), 1, 1, static_cast<int32_t>(repeats),
                       ReduceOrder::ORDER_ONLY_VALUE);
        VECTOR_ORDER();
        Brcb(stats_, row_, static_cast<uint8_t>(Ceil(rows, kBlockFloats)), {1, 8});
        VECTOR_ORDER();
        Max(stats_, stats_, maxima, few);
        VECTOR_ORDER();
        // What the sums so far are worth.
        Sub(factors, maxima, stats_, few);
        // A block of each maximum for each block of a repeat.
        Copy(spread_, stats_, static_cast<uint64_t>(kBlockFloats) * repeats, static_cast<uint8_t>(rows),
             {1, 0, static_cast<uint16_t>(repeats), 1});
        VECTOR_ORDER();
        Exp(factors, factors, few);
        Copy(maxima, stats_, static_cast<uint64_t>(kBlockFloats), static_cast<uint8_t>(rows), {1, 1, 1, 1});
        Sub(scores, scores, spread_, static_cast<uint64_t>(kRepeatFloats), static_cast<uint8_t>(rows * repeats), {1, 1, 0, 8, 8, 1});
        VECTOR_ORDER();
        Exp(scores, scores, static_cast<int32_t>(count));
        VECTOR_ORDER();
        WaitFlag<HardEvent::MTE3_V>(kWeightsOut + slice_);
        Round(weights, scores, count);
        SetFlag<HardEvent::V_MTE3>(kWeightsOut + slice_);
        BlockReduceSum(tree_, scores, static_cast<int32_t>(rows * repeats), static_cast<int32_t>(kRepeatFloats), 1, 1, 8);
        VECTOR_ORDER();
        SetFlag<HardEvent::V_MTE2>(kScoresIn + slice_);
        WholeReduceSum(more_[row], tree_, static_cast<int32_t>(eighth), static_cast<int32_t>(rows), 1, 1,
                       static_cast<int32_t>(repeats));
        VECTOR_ORDER();

        WaitFlag<HardEvent::V_MTE3>(kWeightsOut + slice_);
        DataCopyParams out;
        out.blockCount = static_cast<uint16_t>(rows);
        out.blockLen = static_cast<uint16_t>(width * sizeof(T) / 32);
        out.srcStride = static_cast<uint16_t>((width64 - width) * sizeof(T) / 32);
        out.dstStride = static_cast<uint16_t>((s_->pitch - width) * sizeof(T) / 32);
        DataCopy(scratch_.weights[place], weights, out);
        SetFlag<HardEvent::MTE3_V>(kWeightsOut + slice_);
        slice_ = 1 - slice_;
    }
    __aicore__ inline void Round(const LocalTensor<bfloat16_t> &to, const LocalTensor<float> &from, uint32_t count)
    {
        Cast(to, from, RoundMode::CAST_RINT, static_cast<int32_t>(count));
    }
    __aicore__ inline void Round(const LocalTensor<half> &to, const LocalTensor<float> &from, uint32_t count)
    {
        Cast(to, from, RoundMode::CAST_RINT, static_cast<int32_t>(count));
    }
    __aicore__ inline void Round(const LocalTensor<float> &to, const LocalTensor<float> &from, uint32_t count)
    {
        Adds(to, from, 0.0f, static_cast<int32_t>(count));
    }

    // The part of a task is there: to the sums of the item, and these to the result.
    __aicore__ inline void Finish(const Task &task, uint32_t ring)
    {
        CrossCoreWaitFlag<2, PIPE_MTE2>(kPartFull);
        const uint32_t mine = Mine(task), from = From(task);
        const uint8_t pitch = static_cast<uint8_t>(s_->dim16 / kBlockFloats);
        if (task.first != 0) {
            WaitFlag<HardEvent::MTE3_V>(kResultOut);
            if (mine > 0) {
                Duplicate(sums_, 0.0f, static_cast<int32_t>(mine * s_->dim16));
            }
        }
        VECTOR_ORDER();
        for (uint32_t row = 0; row < mine; row += kPartRows) {
            const uint32_t rows = Least(kPartRows, mine - row), count = rows * s_->dim16;
            WaitFlag<HardEvent::V_MTE2>(kPartIn);
            DataCopy(part_, scratch_.parts[(ring * kMaxRows + from + row) * s_->dim16], count);
            SetFlag<HardEvent::MTE2_V>(kPartIn);
            const LocalTensor<float> sums = sums_[row * s_->dim16];
            for (uint32_t c = 0; c < s_->dim16; c += kRepeatFloats) {
                const uint64_t mask = Least(kRepeatFloats, s_->dim16 - c);
                Mul(sums[c], sums[c], factors_[ring][row * kBlockFloats], mask, static_cast<uint8_t>(rows), {1, 1, 0, pitch, pitch, 1});
            }
            VECTOR_ORDER();
            WaitFlag<HardEvent::MTE2_V>(kPartIn);
            Add(sums, sums, part_, static_cast<int32_t>(count));
            SetFlag<HardEvent::V_MTE2>(kPartIn);
        }
        if (task.last == 0) {
            return;
        }
        if (mine > 0) {
            const LocalTensor<float> by = weightSums_[task.parity];
            // Nothing was seen: 0 / 0 is no result.
            Maxs(by, by, kSmallest, static_cast<int32_t>(mine * kBlockFloats));
            VECTOR_ORDER();
            for (uint32_t c = 0; c < s_->dim16; c += kRepeatFloats) {
                const uint64_t mask = Least(kRepeatFloats, s_->dim16 - c);
                Div(sums_[c], sums_[c], by, mask, static_cast<uint8_t>(mine), {1, 1, 0, pitch, pitch, 1});
            }
        }
        const uint32_t position = s_->t.start + task.query, block = task.least * s_->t.block;
        Seen(task, block > position ? Least(block - position, task.queries) : 0);
        SetFlag<HardEvent::V_MTE3>(kResultOut);
        WaitFlag<HardEvent::V_MTE3>(kResultOut);
        const uint32_t bytes = s_->t.head_dim * sizeof(float), skip = s_->dim16 * sizeof(float) / 32 - Ceil(bytes, 32);
        for (uint32_t row = 0; row < mine;) {
            // The heads of a query are neighbours.
            const uint32_t stop = Least(mine, ((from + row) / s_->group + 1) * s_->group - from);
            const DataCopyExtParams p{static_cast<uint16_t>(stop - row), bytes, skip, 0, 0};
            DataCopyPad(out_[Result(task, from + row)], sums_[row * s_->dim16], p);
            row = stop;
        }
        StoreSeen(task);
        SetFlag<HardEvent::MTE3_V>(kResultOut);
    }

    const Sizes *s_;
    uint32_t sub_;
    GlobalTensor<float> out_;
    GlobalTensor<int32_t> seenOut_;
    LocalTensor<float> scores_[2], weightSums_[2], factors_[kRing], tree_, sums_, part_, maxima_, spread_, stats_, row_, more_,
        zero_;
    LocalTensor<T> weights_[2];
    LocalTensor<int32_t> seen_;
    Tasks<T> tasks_;
    Task task_[2];
    Scratch<T> scratch_;
    int32_t slice_ = 0;
};

template <class T>
__aicore__ inline void Run(GM_ADDR q, GM_ADDR k, GM_ADDR v, GM_ADDR table, GM_ADDR ids, GM_ADDR out, GM_ADDR seen, GM_ADDR workspace,
                           GM_ADDR tiling)
{
    Shape<T> shape;
    shape.Init(tiling);
    if ASCEND_IS_AIC {
        CubePart<T> part;
        part.Init(shape, q, k, v, table, ids, workspace);
        part.Process();
    }
    if ASCEND_IS_AIV {
        VectorPart<T> part;
        part.Init(shape, ids, out, seen, workspace);
        part.Process();
    }
}

} // namespace main_branch

extern "C" __global__ __aicore__ void msa_main_branch(GM_ADDR q, GM_ADDR k, GM_ADDR v, GM_ADDR table, GM_ADDR ids, GM_ADDR out,
                                                      GM_ADDR seen, GM_ADDR workspace, GM_ADDR tiling)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
    AscendC::GlobalTensor<uint32_t> words;
    words.SetGlobalBuffer(reinterpret_cast<__gm__ uint32_t *>(tiling), 7);
    const uint32_t dtype = words.GetValue(6);
    if (dtype == 0) {
        main_branch::Run<bfloat16_t>(q, k, v, table, ids, out, seen, workspace, tiling);
    } else if (dtype == 1) {
        main_branch::Run<half>(q, k, v, table, ids, out, seen, workspace, tiling);
    } else {
        main_branch::Run<float>(q, k, v, table, ids, out, seen, workspace, tiling);
    }
}
