// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Attention of consecutive queries over listed blocks of keys.
//
// An item is a KV head and a tile of queries that share a list: at most 128 rows, a row being a query and one of the heads
// that share the KV head. A core takes its items in tasks of a few blocks. The cube core multiplies queries and keys, the
// two vector cores make weights of the scores, half of the rows each, and the cube core multiplies these and the values.
// The vector cores keep the sums of an item's rows, and scale them down whenever a task has a larger score.
//
// The cube core multiplies the keys of two tasks more before the weights of a task and the values. Together with the order
// of the vector cores, which finish a task before they begin the one after the next, that keeps everything from being
// overwritten while it is in use: scores have three places, and those of a task come after the weights of the one three
// before; weights and parts have two, and those of a task come after the part of the one two before was taken.

#if __NPU_ARCH__ == 3510
#include "arch_3510.h"
#else
#include "arch_2201.h"
#endif

namespace main_branch {

constexpr float kInfinity = __builtin_huge_valf();
constexpr float kLargest = 3.4028234e38f;
constexpr float kSmallest = 1.1754944e-38f;
constexpr float kHidden = -1e9f; // of a mask, or less: the key is not seen

constexpr uint16_t kScoresFull = 0, kWeightsFull = 2, kPartFull = 4;

// L0, in bytes.
constexpr uint32_t kL0Stage = 32 * 1024; // of L0A and L0B
constexpr uint32_t kL0cStage = kPieceRows * kMaxBlock * sizeof(float);
constexpr uint32_t kL0cPart = kStages * kL0cStage;
static_assert(kMaxRows <= 2 * kPieceRows, "L0C");
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
        const uint32_t ahead = kScoresRing * kMaxRows * s.pitch;
        const uint64_t number = core;
        scores.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(workspace + s.t.ws_scores) + number * ahead, ahead);
        weights.SetGlobalBuffer(reinterpret_cast<__gm__ T *>(workspace + s.t.ws_weights) + number * size, size);
        parts.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(workspace + s.t.ws_parts) + number * part, part);
    }
};

template <class T> constexpr uint32_t kWeights = kMaxRows * Shape<T>::kMaxKeys; // elements of a task
// Where weights lie in L1, in bytes.
template <class T> constexpr uint32_t kL1Weights = (kMaxRows * kMaxDim + 2 * kStages * kMaxBlock * kMaxDim) * sizeof(T);

template <class T> class CubePart {
    using Sizes = Shape<T>;
    static constexpr uint32_t kPage = kMaxBlock * kMaxDim; // elements
    // L1, in bytes.
    static constexpr uint32_t kL1Queries = 0;
    static constexpr uint32_t kL1Keys = kL1Queries + kMaxRows * kMaxDim * sizeof(T);
    static constexpr uint32_t kL1Values = kL1Keys + kStages * kPage * sizeof(T);
    static constexpr uint32_t kL1Weights = main_branch::kL1Weights<T>;
    static_assert(kL1Weights == kL1Values + kStages * kPage * sizeof(T), "L1");
    static constexpr uint32_t kL1End = kL1Weights + (kDirect<T> ? kRing : 1) * kWeights<T> * sizeof(T);
    static_assert(kL1End <= kL1Bytes, "L1");

public:
    __aicore__ inline void Init(const Sizes &s, GM_ADDR q, GM_ADDR k, GM_ADDR v, GM_ADDR table, GM_ADDR ids, GM_ADDR status,
                                GM_ADDR workspace)
    {
        s_ = &s;
        const uint32_t core = static_cast<uint32_t>(GetBlockIdx());
        q_.SetGlobalBuffer(reinterpret_cast<__gm__ T *>(q));
        k_.SetGlobalBuffer(reinterpret_cast<__gm__ T *>(k));
        v_.SetGlobalBuffer(reinterpret_cast<__gm__ T *>(v));
        table_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t *>(table));
        tasks_.Init(s, ids, core);
        status_.Init(status, core);
        scratch_.Init(s, workspace, core);
        queries_ = LocalTensor<T>(TPosition::A1, kL1Queries, kMaxRows * kMaxDim);
        weights_ = LocalTensor<T>(TPosition::A1, kL1Weights, kWeights<T>);
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
        if constexpr (!kDirect<T>) {
            SetFlag<HardEvent::MTE1_MTE2>(kWeightsEvent);
        }
        SetFlag<HardEvent::MTE1_MTE2>(kQueriesEvent);
        SetFlag<HardEvent::M_MTE1>(0);
        SetFlag<HardEvent::M_MTE1>(1);
        SetFlag<HardEvent::FIX_M>(0);
        SetFlag<HardEvent::FIX_M>(1);
        SetFlag<HardEvent::FIX_M>(kPartEvent);

        uint32_t scored = 0;
        bool more = true;
        for (uint32_t done = 0;; done++) {
            while (more && scored < done + kScoresRing) {
                Task &next = task_[scored % kScoresRing];
                more = NextTask(next);
                if (more) {
                    Scores(next, scored % kScoresRing);
                    scored++;
                }
            }
            if (done == scored) {
                break;
            }
            Values(task_[done % kScoresRing], done % kRing);
        }

        WaitFlag<HardEvent::MTE1_MTE2>(kKeysEvent);
        WaitFlag<HardEvent::MTE1_MTE2>(kKeysEvent + 1);
        WaitFlag<HardEvent::MTE1_MTE2>(kValuesEvent);
        WaitFlag<HardEvent::MTE1_MTE2>(kValuesEvent + 1);
        if constexpr (!kDirect<T>) {
            WaitFlag<HardEvent::MTE1_MTE2>(kWeightsEvent);
        }
        WaitFlag<HardEvent::MTE1_MTE2>(kQueriesEvent);
        WaitFlag<HardEvent::M_MTE1>(0);
        WaitFlag<HardEvent::M_MTE1>(1);
        WaitFlag<HardEvent::FIX_M>(0);
        WaitFlag<HardEvent::FIX_M>(1);
        WaitFlag<HardEvent::FIX_M>(kPartEvent);
        if (tasks_.IsBad()) {
            status_.Add(kBadIndex);
        }
        status_.Store();
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
    __aicore__ inline uint64_t Page(const Task &task, uint32_t slot)
    {
        const MsaMainBranchTiling &t = s_->t;
        uint64_t page = task.id[slot];
        if (t.has_table != 0) {
            const int32_t found = table_.GetValue(task.id[slot]);
            // What is no page is nobody's: what comes out then is of no use, but nothing else is read.
            const bool isPage = found >= 0 && static_cast<uint64_t>(found) < t.pages;
            page = isPage ? static_cast<uint64_t>(found) : 0;
            if (!isPage) {
                status_.Add(kBadIndex);
            }
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
            // The pieces of L0C take turns, also where there is one.
            for (uint32_t k = 0; k < t.head_dim; k += Sizes::kStep) {
                const uint32_t size = Least(Sizes::kStep, t.head_dim - k), wide = Ceil(size, Sizes::kWide);
                WaitFlag<HardEvent::M_MTE1>(stage_);
                LoadLeft(left_[stage_], queries_[k * m], m / kLane, wide, m / kLane);
                LoadKeys(right_[stage_], keys_[keyStage_][k * n], n / kLane, wide);
                SetFlag<HardEvent::MTE1_M>(stage_);
                WaitFlag<HardEvent::MTE1_M>(stage_);
                int32_t piece = scoreStage_;
                for (uint32_t row = 0; row < m; row += kPieceRows) {
                    if (k == 0) {
                        WaitFlag<HardEvent::FIX_M>(piece);
                    } else {
                        PipeBarrier<PIPE_M>();
                    }
                    MmadParams p;
                    p.m = static_cast<uint16_t>(Least(kPieceRows, m - row));
                    // Columns beyond the keys come of what lay in L1; the vector cores overwrite them.
                    p.n = static_cast<uint16_t>(n);
                    p.k = static_cast<uint16_t>(size);
                    p.cmatrixInitVal = k == 0;
                    Mmad(scores_[piece], left_[stage_][row * wide * Sizes::kWide], right_[stage_], p);
                    if (k + Sizes::kStep >= t.head_dim) {
                        SetFlag<HardEvent::M_FIX>(piece);
                    }
                    piece = 1 - piece;
                }
                SetFlag<HardEvent::M_MTE1>(stage_);
                stage_ = 1 - stage_;
            }
            SetFlag<HardEvent::MTE1_MTE2>(kKeysEvent + keyStage_);
            keyStage_ = 1 - keyStage_;
            for (uint32_t row = 0; row < m; row += kPieceRows) {
                const uint32_t rows = Least(kPieceRows, m - row);
                WaitFlag<HardEvent::M_FIX>(scoreStage_);
                StoreRows(scratch_.scores[(ring * kMaxRows + row) * s_->pitch + slot * s_->block16], scores_[scoreStage_],
                          Least(rows, task.rows - row), rows, n, s_->pitch);
                SetFlag<HardEvent::FIX_M>(scoreStage_);
                scoreStage_ = 1 - scoreStage_;
            }
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

    // From global memory to NZ form with m rows.
    __aicore__ inline void LoadWeights(const Task &task, uint32_t ring, uint32_t m)
    {
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
    }

    // Weights times values: to the vector cores.
    __aicore__ inline void Values(const Task &task, uint32_t ring)
    {
        const uint32_t m = Up16(task.rows), tile = m * s_->block16;
        uint32_t loaded = 0;
        while (loaded < kStages && loaded < task.slots) {
            LoadValuesStage(task, loaded++);
        }
        LocalTensor<T> weights = weights_;
        if constexpr (kDirect<T>) {
            CrossCoreWaitFlag<2, PIPE_MTE1>(kWeightsFull);
            weights = LocalTensor<T>(TPosition::A1, kL1Weights + ring * kWeights<T> * sizeof(T), kWeights<T>);
        } else {
            LoadWeights(task, ring, m);
        }
        WaitFlag<HardEvent::FIX_M>(kPartEvent);
        for (uint32_t slot = 0; slot < task.slots; slot++) {
            const uint32_t keys = Up16(task.keys[slot]);
            WaitFlag<HardEvent::MTE2_MTE1>(kValuesEvent + useStage_);
            for (uint32_t k = 0; k < keys; k += Sizes::kStep) {
                const uint32_t size = Least(Sizes::kStep, keys - k);
                WaitFlag<HardEvent::M_MTE1>(stage_);
                LoadLeft(left_[stage_], weights[slot * tile + k * m], m / kLane, size / Sizes::kWide, m / kLane);
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
        if constexpr (!kDirect<T>) {
            SetFlag<HardEvent::MTE1_MTE2>(kWeightsEvent);
        }
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
    Status status_;
    Task task_[kScoresRing];
    Scratch<T> scratch_;
    int32_t stage_ = 0, keyStage_ = 0, scoreStage_ = 0, fillStage_ = 0, useStage_ = 0;
};

constexpr uint32_t kBlockFloats = 8; // of 32 bytes
constexpr uint32_t kRepeatFloats = 64;
constexpr uint32_t kQueriesSeen = 16; // that a copy says something about

// Events. Of MTE2 and V: scores 0 and 1, sums 2 and 3, a row of the mask 4. Of MTE3 and V: weights 0 and 1, results 2. Of MTE3 and MTE2: sums 0, 1.
constexpr int32_t kScoresIn = 0, kSumsIn = 2, kMaskIn = 4, kWeightsOut = 0, kResultOut = 2, kSumsOut = 0;

template <class T> class VectorPart {
    using Sizes = Shape<T>;
    static constexpr uint32_t kSlice = kSliceRows * Sizes::kMaxKeys; // elements
    static constexpr uint32_t kRowStats = kHalfRows * 32; // bytes of a block for each row
    // UB, in bytes.
    static constexpr uint32_t kUbScores = 0;
    static constexpr uint32_t kUbWeights = kUbScores + 2 * kSlice * sizeof(float);
    static constexpr uint32_t kUbTree = kUbWeights + 2 * kSlice * sizeof(T);
    static constexpr uint32_t kUbSums = kUbTree + kSlice / kBlockFloats * sizeof(float);
    static constexpr uint32_t kUbMaxima = kUbSums + 2 * kHalfRows * kMaxDim * sizeof(float);
    static constexpr uint32_t kUbWeightSums = kUbMaxima + 2 * kRowStats;
    static constexpr uint32_t kUbFactors = kUbWeightSums + 2 * kRowStats;
    static constexpr uint32_t kUbBranches = kUbFactors + kRing * kRowStats;
    static constexpr uint32_t kUbSpread = kUbBranches + kRowStats;
    static constexpr uint32_t kSpread = kMaxSlots * kSliceRows * 32 > 2 * kRowStats ? kMaxSlots * kSliceRows * 32 : 2 * kRowStats;
    static constexpr uint32_t kUbRow = kUbSpread + kSpread;
    static constexpr uint32_t kUbZeros = kUbRow + (kSliceRows + kHalfRows) * sizeof(float);
    static constexpr uint32_t kUbOnes = kUbZeros + kMaxDim * sizeof(float);
    static constexpr uint32_t kUbScale = kUbOnes + kQueriesSeen * 32;
    static constexpr uint32_t kUbEnd = kUbScale + 32;
    static_assert(kUbEnd <= kUbBytes, "UB");
    static_assert(kMaxDim * sizeof(float) >= kQueriesSeen * 32, "zeros serve as rows and as what is not seen");

public:
    __aicore__ inline void Init(const Sizes &s, GM_ADDR ids, GM_ADDR mask, GM_ADDR out, GM_ADDR seen, GM_ADDR status,
                                GM_ADDR workspace)
    {
        s_ = &s;
        isMasked_ = s.t.has_mask != 0;
        // A mask is added to scaled scores.
        factor_ = isMasked_ ? 1.0f : s.t.scale;
        const uint32_t core = static_cast<uint32_t>(GetBlockIdx()) / 2;
        sub_ = static_cast<uint32_t>(GetSubBlockIdx());
        out_.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(out));
        seenOut_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t *>(seen));
        mask_.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(mask));
        tasks_.Init(s, ids, core);
        status_.Init(status, s.blocks + 2 * core + sub_);
        scratch_.Init(s, workspace, core);
        for (uint32_t i = 0; i < 2; i++) {
            scores_[i] = LocalTensor<float>(TPosition::VECIN, kUbScores + i * kSlice * sizeof(float), kSlice);
            weights_[i] = LocalTensor<T>(TPosition::VECOUT, kUbWeights + i * kSlice * sizeof(T), kSlice);
            sums_[i] = LocalTensor<float>(TPosition::VECIN, kUbSums + i * kHalfRows * kMaxDim * sizeof(float), kHalfRows * kMaxDim);
            maxima_[i] = LocalTensor<float>(TPosition::VECCALC, kUbMaxima + i * kRowStats, kHalfRows * kBlockFloats);
            weightSums_[i] = LocalTensor<float>(TPosition::VECCALC, kUbWeightSums + i * kRowStats, kHalfRows * kBlockFloats);
            factors_[i] = LocalTensor<float>(TPosition::VECCALC, kUbFactors + i * kRowStats, kHalfRows * kBlockFloats);
        }
        tree_ = LocalTensor<float>(TPosition::VECCALC, kUbTree, kSlice / kBlockFloats);
        branches_ = LocalTensor<float>(TPosition::VECCALC, kUbBranches, kHalfRows * kBlockFloats);
        spread_ = LocalTensor<float>(TPosition::VECCALC, kUbSpread, kSpread / sizeof(float));
        row_ = LocalTensor<float>(TPosition::VECCALC, kUbRow, kSliceRows + kHalfRows);
        more_ = LocalTensor<float>(TPosition::VECCALC, kUbRow + kSliceRows * sizeof(float), kHalfRows);
        zeros_ = LocalTensor<float>(TPosition::VECOUT, kUbZeros, kMaxDim);
        ones_ = LocalTensor<int32_t>(TPosition::VECOUT, kUbOnes, kQueriesSeen * kBlockFloats);
        scale_ = LocalTensor<float>(TPosition::VECCALC, kUbScale, kBlockFloats);
    }

    __aicore__ inline void Process()
    {
        SetFlag<HardEvent::V_MTE2>(kScoresIn);
        SetFlag<HardEvent::V_MTE2>(kScoresIn + 1);
        SetFlag<HardEvent::V_MTE2>(kSumsIn);
        SetFlag<HardEvent::V_MTE2>(kSumsIn + 1);
        SetFlag<HardEvent::MTE3_V>(kWeightsOut);
        SetFlag<HardEvent::MTE3_V>(kWeightsOut + 1);
        Duplicate(zeros_, 0.0f, static_cast<int32_t>(kMaxDim));
        Duplicate(ones_, static_cast<int32_t>(1), static_cast<int32_t>(kQueriesSeen * kBlockFloats));
        Duplicate(row_, 0.0f, static_cast<int32_t>(kSliceRows + kHalfRows));
        Duplicate(scale_, factor_, static_cast<int32_t>(kBlockFloats));
        if (isMasked_) {
            // Between the rows of the mask lies what is nobody's, but it is looked at.
            Duplicate(spread_, 0.0f, static_cast<int32_t>(kMaxSlots * kRepeatFloats));
        }

        uint32_t now = 0, done = 0;
        bool more = NextTask(task_[0]);
        if (more) {
            Weights(task_[0], 0, 0);
        }
        while (more) {
            more = NextTask(task_[1 - now]);
            if (more) {
                Weights(task_[1 - now], (done + 1) % kScoresRing, (done + 1) % kRing);
            }
            Finish(task_[now], done % kRing);
            now = 1 - now;
            done++;
        }
        WaitFlag<HardEvent::V_MTE2>(kScoresIn);
        WaitFlag<HardEvent::V_MTE2>(kScoresIn + 1);
        FreeSums(0);
        FreeSums(1);
        WaitFlag<HardEvent::MTE3_V>(kWeightsOut);
        WaitFlag<HardEvent::MTE3_V>(kWeightsOut + 1);
        status_.Store();
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
        SetFlag<HardEvent::V_MTE3>(kResultOut);
        WaitFlag<HardEvent::V_MTE3>(kResultOut);
        const uint32_t rows = Mine(task), from = From(task);
        const DataCopyExtParams p{1, static_cast<uint32_t>(s_->t.head_dim * sizeof(float)), 0, 0, 0};
        for (uint32_t r = 0; r < rows; r++) {
            DataCopyPad(out_[Result(task, from + r)], zeros_, p);
        }
        StoreSeen(task, task.queries);
    }
    // Which queries see something: not the first `blind` ones.
    __aicore__ inline void StoreSeen(const Task &task, uint32_t blind)
    {
        if (blind > 0) {
            status_.Add(kBlind);
        }
        if (sub_ != 0) {
            return;
        }
        const uint32_t gap = static_cast<uint32_t>((s_->t.kv_heads - 1) * sizeof(int32_t));
        for (uint32_t query = 0; query < task.queries;) {
            const bool sees = query >= blind;
            const uint32_t count = Least(kQueriesSeen, (sees ? task.queries : blind) - query);
            const DataCopyExtParams p{static_cast<uint16_t>(count), static_cast<uint32_t>(sizeof(int32_t)), 0, gap, 0};
            DataCopyPad(seenOut_[static_cast<uint64_t>(task.query + query) * s_->t.kv_heads + task.kvHead],
                        sees ? ones_ : zeros_.template ReinterpretCast<int32_t>(), p);
            query += count;
        }
    }

    // Where a mask says it: a query sees something if the sum of its weights is more than nothing, which is `kSmallest` here.
    __aicore__ inline void StoreSeen(const Task &task, const LocalTensor<float> &weightSums)
    {
        const uint32_t mine = Mine(task), from = From(task);
        SetFlag<HardEvent::V_S>(0);
        WaitFlag<HardEvent::V_S>(0);
        for (uint32_t query = Ceil(from, s_->group); query * s_->group < from + mine; query++) {
            const bool sees = weightSums.GetValue((query * s_->group - from) * kBlockFloats) != kSmallest;
            const DataCopyExtParams p{1, static_cast<uint32_t>(sizeof(int32_t)), 0, 0, 0};
            DataCopyPad(seenOut_[static_cast<uint64_t>(task.query + query) * s_->t.kv_heads + task.kvHead],
                        sees ? ones_ : zeros_.template ReinterpretCast<int32_t>(), p);
            if (!sees) {
                status_.Add(kBlind);
            }
        }
        SetFlag<HardEvent::S_V>(0);
        WaitFlag<HardEvent::S_V>(0);
    }

    // Adds the mask to scaled scores. Rows are counted from the first of the item.
    __aicore__ inline void AddMask(const LocalTensor<float> &scores, const Task &task, uint32_t row, uint32_t rows, uint32_t width64)
    {
        const MsaMainBranchTiling &t = s_->t;
        const int32_t width = static_cast<int32_t>(width64);
        const uint8_t pitch = static_cast<uint8_t>(width64 / kBlockFloats);
        const uint32_t bytes = t.block * sizeof(float), square = t.block * t.block;
        const DataCopyExtParams p{static_cast<uint16_t>(task.slots), bytes, static_cast<uint32_t>((square - t.block) * sizeof(float)),
                                  s_->block16 / kBlockFloats - Ceil(bytes, 32), 0};
        const DataCopyPadExtParams<float> pad{true, 0, static_cast<uint8_t>((kBlockFloats - t.block % kBlockFloats) % kBlockFloats), 0.0f};
        const LocalTensor<uint8_t> hidden = row_.template ReinterpretCast<uint8_t>();
        Duplicate(tree_, -kInfinity, width);
        for (uint32_t at = 0; at < rows;) {
            const uint32_t inItem = (row + at) / s_->group, query = task.query + inItem;
            const uint32_t stop = Least(rows, (inItem + 1) * s_->group - row);
            const uint64_t slot = static_cast<uint64_t>(query / t.block) * t.mask_slots + task.id[0];
            SetFlag<HardEvent::V_MTE2>(kMaskIn);
            WaitFlag<HardEvent::V_MTE2>(kMaskIn);
            DataCopyPad(spread_, mask_[slot * square + query % t.block * t.block], p, pad);
            SetFlag<HardEvent::MTE2_V>(kMaskIn);
            WaitFlag<HardEvent::MTE2_V>(kMaskIn);
            CompareScalar(hidden, spread_, kHidden, CMPMODE::LE, width64);
            VECTOR_ORDER();
            Select(spread_, hidden, tree_, spread_, SELMODE::VSEL_TENSOR_TENSOR_MODE, width64);
            VECTOR_ORDER();
            for (uint32_t c = 0; c < width64; c += kRepeatFloats) {
                const LocalTensor<float> to = scores[at * width64 + c];
                Add(to, to, spread_[c], static_cast<uint64_t>(kRepeatFloats), static_cast<uint8_t>(stop - at), {1, 1, 1, pitch, pitch, 0});
            }
            at = stop;
        }
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
                const uint32_t sees = isMasked_ ? t.block : begin < end ? Least(end - begin, task.keys[slot]) : 0;
                // What this query sees whole, the later ones see whole.
                const uint32_t stop = sees == task.keys[slot] ? rows : Least(rows, (query + 1) * s_->group - row);
                Hide(scores[at * width64 + slot * s_->block16], sees, s_->block16, stop - at, width64);
                at = stop;
            }
        }
    }

    // Scores of a task to weights, which go to the cube core.
    __aicore__ inline void Weights(const Task &task, uint32_t from, uint32_t ring)
    {
        CrossCoreWaitFlag<2, PIPE_MTE2>(kScoresFull);
        const uint32_t mine = Mine(task);
        uint32_t grown = 0; // rows whose sums have come to a block each, not to a value
        for (uint32_t row = 0; row < mine; row += kSliceRows) {
            grown += Slice(task, from, ring, row, Least(kSliceRows, mine - row));
        }
        CrossCoreSetFlag<2, PIPE_MTE3>(kWeightsFull);
        if (mine > 0) {
            const int32_t all = static_cast<int32_t>(mine * kBlockFloats);
            const uint8_t blocks = static_cast<uint8_t>(Ceil(mine, kBlockFloats));
            const LocalTensor<float> sums = weightSums_[task.parity], now = maxima_[maximaStage_];
            if (grown > 0) {
                BlockReduceSum(more_, branches_, static_cast<int32_t>(grown / kBlockFloats), static_cast<int32_t>(kRepeatFloats), 1, 1, 8);
                VECTOR_ORDER();
            }
            if (task.first != 0) {
                Brcb(sums, more_, blocks, {1, 8});
            } else {
                // What the sums so far are worth, of maxima as they were used.
                const LocalTensor<float> before = spread_[kHalfRows * kBlockFloats], added = branches_;
                Muls(spread_, now, -factor_, all);
                Muls(before, maxima_[1 - maximaStage_], -factor_, all);
                Brcb(added, more_, blocks, {1, 8});
                VECTOR_ORDER();
                Sub(factors_[ring], spread_, before, all);
                VECTOR_ORDER();
                Exp(factors_[ring], factors_[ring], all);
                VECTOR_ORDER();
                FusedMulAdd(sums, factors_[ring], added, all);
            }
            maximaStage_ = 1 - maximaStage_;
        }
    }

    // A slice of rows. Their sums go to `branches_`, a block each, if that many rows are returned, else to `more_`.
    __aicore__ inline uint32_t Slice(const Task &task, uint32_t source, uint32_t ring, uint32_t row, uint32_t rows)
    {
        const MsaMainBranchTiling &t = s_->t;
        const uint32_t width = task.slots * s_->block16, width64 = Ceil(width, kRepeatFloats) * kRepeatFloats, count = rows * width64;
        const uint32_t from = From(task) + row, repeats = width64 / kRepeatFloats, eighth = width64 / kBlockFloats;
        const int32_t few = static_cast<int32_t>(rows * kBlockFloats), all = static_cast<int32_t>(rows * repeats);
        // Rows of 512 columns come to one value in three reductions by eight.
        const bool isTree = repeats == kBlockFloats && rows % kBlockFloats == 0;
        LocalTensor<float> scores = scores_[slice_];
        LocalTensor<T> weights = weights_[slice_];
        WaitFlag<HardEvent::V_MTE2>(kScoresIn + slice_);
        DataCopyParams in;
        in.blockCount = static_cast<uint16_t>(rows);
        in.blockLen = static_cast<uint16_t>(width * sizeof(float) / 32);
        in.srcStride = static_cast<uint16_t>((s_->pitch - width) * sizeof(float) / 32);
        in.dstStride = static_cast<uint16_t>((width64 - width) * sizeof(float) / 32);
        DataCopy(scores, scratch_.scores[(source * kMaxRows + from) * s_->pitch], in);
        SetFlag<HardEvent::MTE2_V>(kScoresIn + slice_);
        WaitFlag<HardEvent::MTE2_V>(kScoresIn + slice_);

        Mask(scores, task, from, rows, width64);
        VECTOR_ORDER();
        if (isMasked_) {
            Muls(scores, scores, t.scale, static_cast<int32_t>(count));
            AddMask(scores, task, from, rows, width64);
            VECTOR_ORDER();
            // What lay between rows of the mask is no score.
            Mask(scores, task, from, rows, width64);
            VECTOR_ORDER();
        }
        const LocalTensor<float> now = maxima_[maximaStage_][row * kBlockFloats], branches = branches_[row * kBlockFloats];
        BlockReduceMax(tree_, scores, all, static_cast<int32_t>(kRepeatFloats), 1, 1, 8);
        VECTOR_ORDER();
        if (isTree) {
            BlockReduceMax(branches, tree_, static_cast<int32_t>(rows), static_cast<int32_t>(kRepeatFloats), 1, 1, 8);
            VECTOR_ORDER();
            BlockReduceMax(row_, branches, static_cast<int32_t>(rows / kBlockFloats), static_cast<int32_t>(kRepeatFloats), 1, 1, 8);
        } else {
            WholeReduceMax(row_, tree_, static_cast<int32_t>(eighth), static_cast<int32_t>(rows), 1, 1,
                           static_cast<int32_t>(repeats), ReduceOrder::ORDER_ONLY_VALUE);
        }
        VECTOR_ORDER();
        Brcb(now, row_, static_cast<uint8_t>(Ceil(rows, kBlockFloats)), {1, 8});
        VECTOR_ORDER();
        if (task.first != 0) {
            // Finite, so that no difference of maxima is NaN.
            Maxs(now, now, -kLargest, few);
        } else {
            Max(now, now, maxima_[1 - maximaStage_][row * kBlockFloats], few);
        }
        VECTOR_ORDER();
        // Less the scaled maximum: a block for each block of a repeat.
        Muls(spread_, now, -factor_, static_cast<uint64_t>(kBlockFloats) * repeats, static_cast<uint8_t>(rows),
             {1, 0, static_cast<uint8_t>(repeats), 1});
        VECTOR_ORDER();
        FusedMulAdd(scores, scale_, spread_, static_cast<uint64_t>(kRepeatFloats), static_cast<uint8_t>(all), {1, 0, 0, 8, 0, 1});
        VECTOR_ORDER();
        Exp(scores, scores, static_cast<int32_t>(count));
        VECTOR_ORDER();
        WaitFlag<HardEvent::MTE3_V>(kWeightsOut + slice_);
        Round(weights, scores, count);
        SetFlag<HardEvent::V_MTE3>(kWeightsOut + slice_);
        BlockReduceSum(tree_, scores, all, static_cast<int32_t>(kRepeatFloats), 1, 1, 8);
        SetFlag<HardEvent::V_MTE2>(kScoresIn + slice_);
        VECTOR_ORDER();
        if (isTree) {
            BlockReduceSum(branches, tree_, static_cast<int32_t>(rows), static_cast<int32_t>(kRepeatFloats), 1, 1, 8);
        } else {
            WholeReduceSum(more_[row], tree_, static_cast<int32_t>(eighth), static_cast<int32_t>(rows), 1, 1,
                           static_cast<int32_t>(repeats));
        }
        VECTOR_ORDER();

        WaitFlag<HardEvent::V_MTE3>(kWeightsOut + slice_);
        if constexpr (kDirect<T>) {
            const LocalTensor<T> to(TPosition::A1, kL1Weights<T> + ring * kWeights<T> * sizeof(T), kWeights<T>);
            Nd2NzParams out;
            out.ndNum = 1;
            out.nValue = static_cast<uint16_t>(rows);
            out.dValue = static_cast<uint16_t>(width);
            out.srcNdMatrixStride = 0;
            out.srcDValue = static_cast<uint16_t>(width64);
            out.dstNzC0Stride = static_cast<uint16_t>(Up16(task.rows));
            out.dstNzNStride = 1;
            out.dstNzMatrixStride = 0;
            DataCopy(to[from * Sizes::kWide], weights, out);
        } else {
            DataCopyParams out;
            out.blockCount = static_cast<uint16_t>(rows);
            out.blockLen = static_cast<uint16_t>(width * sizeof(T) / 32);
            out.srcStride = static_cast<uint16_t>((width64 - width) * sizeof(T) / 32);
            out.dstStride = static_cast<uint16_t>((s_->pitch - width) * sizeof(T) / 32);
            DataCopy(scratch_.weights[(ring * kMaxRows + from) * s_->pitch], weights, out);
        }
        SetFlag<HardEvent::MTE3_V>(kWeightsOut + slice_);
        slice_ = 1 - slice_;
        return isTree ? rows : 0;
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

    // The place for sums is no longer read: by this core, or by the copy of a result.
    __aicore__ inline void FreeSums(uint32_t stage)
    {
        if (isOut_[stage]) {
            WaitFlag<HardEvent::MTE3_MTE2>(kSumsOut + static_cast<int32_t>(stage));
        } else {
            WaitFlag<HardEvent::V_MTE2>(kSumsIn + static_cast<int32_t>(stage));
        }
    }

    // The part of a task is there: the sums of the item are added to it, and it takes their place. The last is the result.
    __aicore__ inline void Finish(const Task &task, uint32_t ring)
    {
        CrossCoreWaitFlag<2, PIPE_MTE2>(kPartFull);
        const uint32_t mine = Mine(task), from = From(task), stage = sumsStage_;
        const uint8_t pitch = static_cast<uint8_t>(s_->dim16 / kBlockFloats);
        const LocalTensor<float> sums = sums_[stage], before = sums_[1 - stage];
        FreeSums(stage);
        isOut_[stage] = false;
        if (mine > 0) {
            DataCopy(sums, scratch_.parts[(ring * kMaxRows + from) * s_->dim16], mine * s_->dim16);
        }
        SetFlag<HardEvent::MTE2_V>(kSumsIn);
        WaitFlag<HardEvent::MTE2_V>(kSumsIn);
        VECTOR_ORDER();
        if (task.first == 0) {
            for (uint32_t c = 0; mine > 0 && c < s_->dim16; c += kRepeatFloats) {
                const uint64_t mask = Least(kRepeatFloats, s_->dim16 - c);
                MulAddDst(sums[c], before[c], factors_[ring], mask, static_cast<uint8_t>(mine), {1, 1, 0, pitch, pitch, 1});
            }
            SetFlag<HardEvent::V_MTE2>(kSumsIn + static_cast<int32_t>(1 - stage));
        }
        sumsStage_ = 1 - stage;
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
                Div(sums[c], sums[c], by, mask, static_cast<uint8_t>(mine), {1, 1, 0, pitch, pitch, 1});
            }
        }
        const uint32_t position = s_->t.start + task.query, block = task.least * s_->t.block;
        SetFlag<HardEvent::V_MTE3>(kResultOut);
        WaitFlag<HardEvent::V_MTE3>(kResultOut);
        const uint32_t bytes = s_->t.head_dim * sizeof(float), skip = s_->dim16 * sizeof(float) / 32 - Ceil(bytes, 32);
        for (uint32_t row = 0; row < mine;) {
            // The heads of a query are neighbours.
            const uint32_t stop = Least(mine, ((from + row) / s_->group + 1) * s_->group - from);
            const DataCopyExtParams p{static_cast<uint16_t>(stop - row), bytes, skip, 0, 0};
            DataCopyPad(out_[Result(task, from + row)], sums[row * s_->dim16], p);
            row = stop;
        }
        if (isMasked_) {
            StoreSeen(task, weightSums_[task.parity]);
        } else {
            StoreSeen(task, block > position ? Least(block - position, task.queries) : 0);
        }
        SetFlag<HardEvent::MTE3_MTE2>(kSumsOut + static_cast<int32_t>(stage));
        isOut_[stage] = true;
    }

    const Sizes *s_;
    uint32_t sub_;
    bool isMasked_;
    float factor_; // of what comes before the exponential
    GlobalTensor<float> out_, mask_;
    GlobalTensor<int32_t> seenOut_;
    LocalTensor<float> scores_[2], sums_[2], maxima_[2], weightSums_[2], factors_[kRing], tree_, branches_, spread_, row_, more_,
        zeros_, scale_;
    LocalTensor<T> weights_[2];
    LocalTensor<int32_t> ones_;
    Tasks<T> tasks_;
    Status status_;
    Task task_[2];
    Scratch<T> scratch_;
    int32_t slice_ = 0;
    uint32_t maximaStage_ = 0, sumsStage_ = 0;
    bool isOut_[2] = {false, false};
};

template <class T>
__aicore__ inline void Run(GM_ADDR q, GM_ADDR k, GM_ADDR v, GM_ADDR table, GM_ADDR ids, GM_ADDR mask, GM_ADDR out, GM_ADDR seen,
                           GM_ADDR status, GM_ADDR workspace, GM_ADDR tiling)
{
    Shape<T> shape;
    shape.Init(tiling);
    if ASCEND_IS_AIC {
        CubePart<T> part;
        part.Init(shape, q, k, v, table, ids, status, workspace);
        part.Process();
    }
    if ASCEND_IS_AIV {
        VectorPart<T> part;
        part.Init(shape, ids, mask, out, seen, status, workspace);
        part.Process();
    }
}

} // namespace main_branch

extern "C" __global__ __aicore__ void msa_main_branch(GM_ADDR q, GM_ADDR k, GM_ADDR v, GM_ADDR table, GM_ADDR ids, GM_ADDR mask,
                                                      GM_ADDR out, GM_ADDR seen, GM_ADDR status, GM_ADDR workspace, GM_ADDR tiling)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
    AscendC::GlobalTensor<uint32_t> words;
    words.SetGlobalBuffer(reinterpret_cast<__gm__ uint32_t *>(tiling), 7);
    const uint32_t dtype = words.GetValue(6);
    if (dtype == 0) {
        main_branch::Run<bfloat16_t>(q, k, v, table, ids, mask, out, seen, status, workspace, tiling);
    } else if (dtype == 1) {
        main_branch::Run<half>(q, k, v, table, ids, mask, out, seen, status, workspace, tiling);
    } else {
        main_branch::Run<float>(q, k, v, table, ids, mask, out, seen, status, workspace, tiling);
    }
}
