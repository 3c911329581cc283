// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The cube core. Weights come in stages of 64 KB, of which three are on their way while one is used, across tiles and
// experts. Rows of tokens have two slots. A few rows fit one with all of K, and stay for all tiles of their expert; more
// come part by part along K, again for each tile.

#ifndef GROUPED_GEMM_CUBE_H
#define GROUPED_GEMM_CUBE_H

#include "common.h"

namespace moe {

constexpr uint32_t kSlotBytes = kRowBytes / 2;
constexpr uint32_t kL0Bytes = 32 * 1024; // of one of two buffers
constexpr int32_t kRowsOfL0 = 4; // events of L0A's buffers where the cube core scales weights
constexpr uint32_t kSumBytes = arch::kL0CBytes / 2; // of one of two buffers in L0C

static_assert(kRowBytes + kStages * kStageBytes <= arch::kL1Bytes, "L1");

class Cube {
public:
    __aicore__ inline void Run(const Arguments &a)
    {
        a_ = a;
        flat_ = a.t.layout == 0;
        coded_ = a.t.layout == 2;
        scales_ = coded_ && arch::kScales;
        l0_ = coded_ ? arch::kCodedL0Bytes : kL0Bytes;
        sums_ = coded_ ? arch::kCodedSumBytes : kSumBytes;
        weights_.Init(a);
        rows_.Init(a);
        if (scales_) {
            scaler_.Init(a.t.scale_kind == 0 ? 2 : 1);
        }
        out_.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(a.out), static_cast<uint64_t>(a.t.rows) * a.t.hidden);
        outbox_.Init(a);
        tail_.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(a.workspace + a.t.tail), static_cast<uint64_t>(a.t.rows) * kC0);
        Prime();

        Product p;
        FirstProduct(p, a);
        SetWeights(p, a.w13);
        Multiply(p, false);
        outbox_.Drain();

        SecondProduct(p, a);
        SetWeights(p, a.w2);
        Multiply(p, true);
        Drain();
        if (scales_) {
            scaler_.Drain();
        }
        if (HasEpilogue(a)) {
            CrossCoreSetFlag<0, PIPE_FIX>(kResultAmongCubes);
            CrossCoreWaitFlag<0, PIPE_FIX>(kResultAmongCubes);
            CrossCoreSetFlag<2, PIPE_FIX>(kResultToVector);
        }
        if (a.core == 0 && rows_.Clamped()) {
            GlobalTensor<uint32_t> status;
            status.SetGlobalBuffer(reinterpret_cast<__gm__ uint32_t *>(a.status), 16);
            status.SetValue(0, 1);
            DataCacheCleanAndInvalid<uint32_t, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(status);
        }
    }

private:
    // A place in the order of stages. Loading and multiplying go through it alike, the one ahead of the other.
    struct Cursor {
        Tiles tiles;
        Tile tile;
        bool open; // there is a tile
        Tile next;
        bool more; // there is one behind it
        uint32_t part; // depth of the rows in a slot
        bool stays; // the rows are the same for the next tile
        uint32_t k; // of the next stage
        uint32_t stage;
        uint32_t count; // of tiles before it
        uint32_t slot; // of the rows in use, or of the next ones
        uint32_t stages; // before the next one
    };

    __aicore__ inline LocalTensor<bfloat16_t> L1(uint32_t address, uint32_t bytes)
    {
        return LocalTensor<bfloat16_t>(TPosition::A1, address, bytes / sizeof(bfloat16_t));
    }

    __aicore__ inline void SetWeights(Product &p, GM_ADDR weights)
    {
        if (coded_) {
            ways_.Init(a_, p);
            return;
        }
        const uint64_t round = flat_ ? 1 : kC0;
        const uint64_t rows = (p.columns + round - 1) / round * round, depth = (p.depth + round - 1) / round * round;
        p.weights.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(weights),
                                  a_.t.experts * rows * depth * (p.pairs ? 2 : 1));
    }

    __aicore__ inline void Prime()
    {
        for (int32_t i = 0; i < 6; i++) {
            SetFlag<HardEvent::MTE1_MTE2>(i);
        }
        for (int32_t i = 0; i < 2; i++) {
            SetFlag<HardEvent::M_MTE1>(i);
            SetFlag<HardEvent::FIX_M>(i);
        }
    }
    __aicore__ inline void Drain()
    {
        for (int32_t i = 0; i < 6; i++) {
            WaitFlag<HardEvent::MTE1_MTE2>(i);
        }
        for (int32_t i = 0; i < 2; i++) {
            WaitFlag<HardEvent::M_MTE1>(i);
            WaitFlag<HardEvent::FIX_M>(i);
        }
    }

    __aicore__ inline static uint32_t StageDepth(const Product &p, const Tile &t)
    {
        return t.narrow ? p.fewStage : p.stage;
    }
    __aicore__ inline static uint32_t Columns16(const Product &p, const Tile &t) { return p.pairs ? 2 * t.blocks : t.blocks; }

    __aicore__ inline void Open(Cursor &c, const Product &p)
    {
        c.tiles.Init(a_, rows_, p.blocks, p.width, p.fewWidth);
        c.more = c.tiles.Next(c.next);
        c.count = 0;
        c.stages = 0;
        Step(c, p);
    }
    // Whether this core scales the weights of a tile.
    __aicore__ inline bool Scaled(const Tile &t) { return scales_ && ways_.First(t.expert) != 0.0f; }
    // Goes to the next tile.
    __aicore__ inline void Step(Cursor &c, const Product &p)
    {
        c.count++;
        c.tile = c.next;
        c.open = c.more;
        c.k = 0;
        if (!c.open) {
            return;
        }
        c.more = c.tiles.Next(c.next);
        const uint32_t most = kSlotBytes / (c.tile.padded * sizeof(bfloat16_t));
        const bool whole = RoundUp(p.depth, kC0) <= most;
        c.part = whole ? p.depth : most / StageDepth(p, c.tile) * StageDepth(p, c.tile);
        c.stays = whole && c.more && !c.next.group;
    }
    // Whether rows are needed before the stage at `k`.
    __aicore__ inline static bool Begins(const Cursor &c, const Product &p)
    {
        return c.part == p.depth ? c.k == 0 && c.tile.group : c.k % c.part == 0;
    }
    // Whether the rows were used when the stage before `k` was.
    __aicore__ inline static bool Ends(const Cursor &c, const Product &p)
    {
        return c.k == p.depth ? !c.stays : c.k % c.part == 0;
    }

    __aicore__ inline void CopyRows(const Product &p, const Tile &t, uint32_t k, uint32_t depth, const LocalTensor<bfloat16_t> &to)
    {
        Nd2NzParams n;
        n.ndNum = 1;
        n.nValue = static_cast<uint16_t>(t.rows);
        n.dValue = static_cast<uint16_t>(depth);
        n.srcNdMatrixStride = 0;
        n.srcDValue = static_cast<uint16_t>(p.pitch);
        n.dstNzC0Stride = static_cast<uint16_t>(t.padded);
        n.dstNzNStride = 1;
        n.dstNzMatrixStride = 0;
        DataCopy(to, p.left[static_cast<uint64_t>(t.row) * p.pitch + k], n);
    }

    // Weights of a stage: for each block of 16 columns its fractals along K; gate before up.
    __aicore__ inline void CopyWeights(const Product &p, const Tile &t, uint32_t k, uint32_t depth, const LocalTensor<bfloat16_t> &to)
    {
        const uint32_t fractals = Ceil(depth, kC0), parts = p.pairs ? 2 : 1;
        for (uint32_t part = 0; part < parts; part++) {
            const LocalTensor<bfloat16_t> half = to[part * t.blocks * fractals * kFractal];
            if (flat_) {
                const uint32_t pitch = p.columns * parts;
                Nd2NzParams n;
                n.ndNum = 1;
                n.nValue = static_cast<uint16_t>(depth);
                n.dValue = static_cast<uint16_t>(Min(t.blocks * kC0, p.columns - t.block * kC0));
                n.srcNdMatrixStride = 0;
                n.srcDValue = static_cast<uint16_t>(pitch);
                n.dstNzC0Stride = static_cast<uint16_t>(fractals * kC0);
                n.dstNzNStride = 1;
                n.dstNzMatrixStride = 0;
                DataCopy(half,
                         p.weights[(static_cast<uint64_t>(t.expert) * p.depth + k) * pitch + part * p.columns + t.block * kC0], n);
            } else {
                const uint32_t all = Ceil(p.depth, kC0);
                DataCopyParams d;
                d.blockCount = static_cast<uint16_t>(t.blocks);
                d.blockLen = static_cast<uint16_t>(fractals * kFractal * sizeof(bfloat16_t) / 32);
                d.srcGap = static_cast<uint16_t>((parts * all - fractals) * kFractal * sizeof(bfloat16_t) / 32);
                d.dstGap = 0;
                const uint64_t block = static_cast<uint64_t>(t.expert) * p.blocks * parts + t.block * parts + part;
                DataCopy(half, p.weights[(block * all + k / kC0) * kFractal], d);
            }
        }
    }

    // Begins the next copy into L1, if there is one and room for it. `rows`: those that are needed come now.
    __aicore__ inline bool Load(const Product &p, bool rows)
    {
        Cursor &c = load_;
        if (!c.open || ahead_ == kStages) {
            return false;
        }
        // Vector cores decode one tile ahead of the one they wait for.
        if (coded_ && c.count > work_.count + 1) {
            return false;
        }
        if (Begins(c, p)) {
            // A flag must not be set again before it was waited for, in the order of the program.
            if ((held_ >> c.slot & 1) != 0) {
                return false;
            }
            held_ |= 1u << c.slot;
            if (rows) {
                LoadRows(p, c.tile, c.k, Min(c.part, p.depth - c.k), c.slot);
            }
        }
        const uint32_t depth = Min(StageDepth(p, c.tile), p.depth - c.k);
        if (!coded_ || weights_.kCopies) {
            WaitFlag<HardEvent::MTE1_MTE2>(static_cast<int32_t>(c.stage));
            if (coded_) {
                const bool scaled = Scaled(c.tile);
                const uint32_t round = scaled ? arch::kStep : kC0;
                weights_.Take(L1(kRowBytes + c.stage * kStageBytes, kStageBytes), c.stage,
                              Columns16(p, c.tile) * kC0 * RoundUp(depth, round), arch::Scaler::Tile(c.stage, 0),
                              scaled ? Parts(p) * Ceil(depth, 128) : 0);
            } else {
                CopyWeights(p, c.tile, c.k, depth, L1(kRowBytes + c.stage * kStageBytes, kStageBytes));
            }
            SetFlag<HardEvent::MTE2_MTE1>(static_cast<int32_t>(c.stage));
        }
        ahead_++;
        Advance(c, p, depth);
        return true;
    }
    __aicore__ inline void LoadRows(const Product &p, const Tile &t, uint32_t k, uint32_t depth, uint32_t slot)
    {
        WaitFlag<HardEvent::MTE1_MTE2>(static_cast<int32_t>(kStages + slot));
        CopyRows(p, t, k, depth, L1(slot * kSlotBytes, kSlotBytes));
        SetFlag<HardEvent::MTE2_MTE1>(static_cast<int32_t>(kStages + slot));
    }
    // Goes to the next stage.
    __aicore__ inline void Advance(Cursor &c, const Product &p, uint32_t depth)
    {
        c.k += depth;
        c.stages++;
        c.stage = (c.stage + 1) % kStages;
        if (Ends(c, p)) {
            c.slot ^= 1;
        }
        if (c.k == p.depth) {
            Step(c, p);
        }
    }

    __aicore__ inline void Multiply(Product &p, bool wait)
    {
        Open(load_, p);
        Open(work_, p);
        if (scales_) {
            Open(scale_, p);
            // It need not have gone to the end of the last product, whose last tiles others may have scaled.
            scale_.stage = work_.stage;
        }
        if (!coded_ && load_.tiles.Once()) {
            p.weights.SetL2CacheHint(CacheMode::CACHE_MODE_DISABLE);
        }
        if (wait) {
            // Weights need not wait for the activations, rows do.
            const Tile first = load_.tile;
            const uint32_t part = load_.part, slot = load_.slot;
            const bool open = load_.open;
            while (Load(p, false) && load_.open && !Begins(load_, p)) {
            }
            CrossCoreWaitFlag<2, PIPE_MTE2>(kRowsToCube);
            if (open) {
                LoadRows(p, first, 0, part, slot);
            }
        }
        while (work_.open) {
            Work(p);
        }
    }

    // One tile.
    __aicore__ inline void Work(const Product &p)
    {
        const Tile t = work_.tile;
        const uint32_t rows16 = t.padded / kC0, columns16 = Columns16(p, t);
        const bool large = t.padded * columns16 * kC0 * sizeof(float) > sums_, scaled = Scaled(t);
        if (large) {
            sum_ = 0;
        }
        const LocalTensor<float> sum(TPosition::CO1, sum_ * sums_, (large ? 2 : 1) * sums_ / sizeof(float));
        WaitFlag<HardEvent::FIX_M>(static_cast<int32_t>(sum_));
        if (large) {
            WaitFlag<HardEvent::FIX_M>(1);
        }
        for (uint32_t k = 0; k < p.depth;) {
            while (Load(p, true)) {
            }
            const uint32_t depth = Min(StageDepth(p, t), p.depth - k);
            if (scaled) {
                ScaledStage(p, t, k, depth, rows16, sum);
            } else {
                Stage(p, t, k, depth, rows16, columns16, sum);
            }
            k += depth;
        }
        SetFlag<HardEvent::M_FIX>(static_cast<int32_t>(sum_));
        WaitFlag<HardEvent::M_FIX>(static_cast<int32_t>(sum_));
        if (p.pairs) {
            outbox_.Send(t, sum);
        } else {
            StoreResult(p, t, sum);
        }
        SetFlag<HardEvent::FIX_M>(static_cast<int32_t>(sum_));
        if (large) {
            SetFlag<HardEvent::FIX_M>(1);
        }
        sum_ ^= 1;
    }

    // The products of one stage.
    __aicore__ inline void Stage(const Product &p, const Tile &t, uint32_t k, uint32_t depth, uint32_t rows16, uint32_t columns16,
                                 const LocalTensor<float> &sum)
    {
        const int32_t stage = static_cast<int32_t>(work_.stage), slot = static_cast<int32_t>(kStages + work_.slot);
        const uint32_t depth16 = Ceil(depth, kC0), step = (columns16 <= 8 ? 128 : columns16 <= 16 ? 64 : 32) / (kL0Bytes / l0_);
        const LocalTensor<bfloat16_t> left = L1(work_.slot * kSlotBytes, kSlotBytes);
        const LocalTensor<bfloat16_t> right = L1(kRowBytes + work_.stage * kStageBytes, kStageBytes);
        const uint32_t begin16 = k % work_.part / kC0;
        if (Begins(work_, p)) {
            WaitFlag<HardEvent::MTE2_MTE1>(slot);
        }
        const bool direct = coded_ && !weights_.kCopies;
        if (direct) {
            weights_.Wait();
        } else {
            WaitFlag<HardEvent::MTE2_MTE1>(stage);
        }
        for (uint32_t at = 0; at < depth; at += step) {
            const uint32_t now = Min(step, depth - at), now16 = Ceil(now, kC0);
            const int32_t pair = static_cast<int32_t>(pair_);
            const LocalTensor<bfloat16_t> l0a(TPosition::A2, pair_ * l0_, l0_ / sizeof(bfloat16_t));
            const LocalTensor<bfloat16_t> l0b(TPosition::B2, pair_ * l0_, l0_ / sizeof(bfloat16_t));
            WaitFlag<HardEvent::M_MTE1>(pair);
            if (scales_) {
                WaitFlag<HardEvent::M_MTE1>(kRowsOfL0 + pair);
            }
            arch::LoadLeft(l0a, left, rows16, begin16 + at / kC0, now16);
            arch::LoadRight(l0b, right, columns16, depth16, at / kC0, now16, flat_ || coded_);
            SetFlag<HardEvent::MTE1_M>(pair);
            WaitFlag<HardEvent::MTE1_M>(pair);
            MmadParams m;
            m.m = static_cast<uint16_t>(t.padded);
            m.n = static_cast<uint16_t>(columns16 * kC0);
            m.k = static_cast<uint16_t>(now);
            m.cmatrixInitVal = k + at == 0;
            if (k + at != 0 && rows16 * columns16 < 10) {
                PipeBarrier<PIPE_M>();
            }
            Mmad(sum, l0a, l0b, m);
            SetFlag<HardEvent::M_MTE1>(pair);
            if (scales_) {
                SetFlag<HardEvent::M_MTE1>(kRowsOfL0 + pair);
            }
            pair_ ^= 1;
        }
        if (direct) {
            weights_.Free();
        } else {
            SetFlag<HardEvent::MTE1_MTE2>(stage);
        }
        ahead_--;
        FreeRows(p, k + depth);
        Advance(work_, p, depth);
    }
    // Gives rows back that are not needed from `k` on.
    __aicore__ inline void FreeRows(const Product &p, uint32_t k)
    {
        const bool stays = k == p.depth ? work_.stays : k % work_.part != 0;
        if (!stays) {
            SetFlag<HardEvent::MTE1_MTE2>(static_cast<int32_t>(kStages + work_.slot));
            held_ &= ~(1u << work_.slot);
        }
    }

    // Scales the next piece of the stages that have come, if there is one and room for it.
    __aicore__ inline bool Scale(const Product &p)
    {
        Cursor &c = scale_;
        while (c.open && !Scaled(c.tile)) {
            Advance(c, p, Min(StageDepth(p, c.tile), p.depth - c.k));
        }
        if (!c.open || c.stages >= load_.stages || !scaler_.HasRoom()) {
            return false;
        }
        const Tile &t = c.tile;
        const int32_t stage = static_cast<int32_t>(c.stage);
        const uint32_t depth = Min(StageDepth(p, t), p.depth - c.k), steps = Ceil(depth, arch::kStep);
        if (at_ == 0 && part_ == 0) {
            WaitFlag<HardEvent::MTE2_MTE1>(stage);
        }
        const LocalTensor<half> from = L1(kRowBytes + c.stage * kStageBytes, kStageBytes).ReinterpretCast<half>();
        const uint32_t step = at_ / arch::kStep, now = Min(arch::kPiece / arch::kStep, steps - step);
        const uint32_t tile = part_ * Ceil(depth, 128) + at_ / 128;
        scaler_.Scale(from, (part_ * steps + step) * t.blocks * 2, t.blocks, now, arch::Scaler::Tile(c.stage, tile), tile, at_ % 128 == 0);
        if (++part_ == Parts(p)) {
            part_ = 0;
            at_ += arch::kPiece;
        }
        if (at_ >= depth) {
            at_ = 0;
            SetFlag<HardEvent::MTE1_MTE2>(stage);
            ahead_--;
            Advance(c, p, depth);
        }
        return true;
    }

    // The products of one stage whose weights were scaled here, piece by piece.
    __aicore__ inline void ScaledStage(const Product &p, const Tile &t, uint32_t k, uint32_t depth, uint32_t rows16,
                                       const LocalTensor<float> &sum)
    {
        const LocalTensor<bfloat16_t> left = L1(work_.slot * kSlotBytes, kSlotBytes);
        const uint32_t begin16 = k % work_.part / kC0;
        if (Begins(work_, p)) {
            WaitFlag<HardEvent::MTE2_MTE1>(static_cast<int32_t>(kStages + work_.slot));
        }
        for (uint32_t at = 0; at < depth; at += arch::kPiece) {
            const uint32_t now = Min(arch::kPiece, depth - at), now16 = Ceil(now, kC0);
            const int32_t rows = static_cast<int32_t>(kRowsOfL0 + row_);
            const LocalTensor<bfloat16_t> l0a(TPosition::A2, row_ * l0_, l0_ / sizeof(bfloat16_t));
            for (uint32_t part = 0; part < Parts(p); part++) {
                while (Load(p, true)) {
                }
                while (Scale(p)) {
                }
                const int32_t pair = static_cast<int32_t>(pair_);
                const LocalTensor<bfloat16_t> l0b(TPosition::B2, pair_ * l0_, l0_ / sizeof(bfloat16_t));
                if (part == 0) {
                    WaitFlag<HardEvent::M_MTE1>(rows);
                    arch::LoadLeft(l0a, left, rows16, begin16 + at / kC0, now16);
                }
                WaitFlag<HardEvent::M_MTE1>(pair);
                scaler_.Load(l0b, t.blocks, now16);
                SetFlag<HardEvent::MTE1_M>(pair);
                WaitFlag<HardEvent::MTE1_M>(pair);
                MmadParams m;
                m.m = static_cast<uint16_t>(t.padded);
                m.n = static_cast<uint16_t>(t.blocks * kC0);
                m.k = static_cast<uint16_t>(now);
                m.cmatrixInitVal = k + at == 0;
                if (k + at != 0 && rows16 * t.blocks < 10) {
                    PipeBarrier<PIPE_M>();
                }
                Mmad(sum[part * t.blocks * t.padded * kC0], l0a, l0b, m);
                SetFlag<HardEvent::M_MTE1>(pair);
                pair_ ^= 1;
            }
            SetFlag<HardEvent::M_MTE1>(rows);
            row_ ^= 1;
        }
        FreeRows(p, k + depth);
        Advance(work_, p, depth);
    }

    // A tile of the result, rounded. Columns that do not fill a block go to the workspace.
    __aicore__ inline void StoreResult(const Product &p, const Tile &t, const LocalTensor<float> &sum)
    {
        const bool ragged = (t.block + t.blocks) * kC0 > p.columns;
        const uint32_t whole = ragged ? t.blocks - 1 : t.blocks;
        if (whole != 0) {
            arch::Round(out_[static_cast<uint64_t>(t.row) * p.columns + t.block * kC0], p.columns, sum, t.rows, t.padded, whole * kC0);
        }
        if (ragged) {
            arch::Round(tail_[static_cast<uint64_t>(t.row) * kC0], kC0, sum[whole * t.padded * kC0], t.rows, t.padded, kC0);
        }
    }

    Arguments a_;
    Rows rows_;
    GlobalTensor<bfloat16_t> out_;
    arch::Outbox outbox_;
    arch::WeightsGate weights_;
    GlobalTensor<bfloat16_t> tail_;
    arch::Scaler scaler_;
    Ways ways_; // of FP8 weights
    Cursor load_ = {};
    Cursor scale_ = {};
    Cursor work_ = {};
    bool flat_ = false;
    bool coded_ = false; // weights are FP8
    uint32_t ahead_ = 0; // stages that were loaded and not yet used
    uint32_t held_ = 0; // slots of rows that were loaded and not yet given back
    bool scales_ = false; // this core may have to scale weights
    uint32_t l0_ = 0; // bytes of a buffer in L0A and L0B
    uint32_t sums_ = 0; // bytes of a buffer in L0C
    uint32_t at_ = 0, part_ = 0; // of the next piece to be scaled
    uint32_t row_ = 0; // buffer of rows in L0A, where they are not loaded with weights
    uint32_t pair_ = 0; // of buffers in L0A and L0B
    uint32_t sum_ = 0; // buffer in L0C
};

} // namespace moe

#endif
