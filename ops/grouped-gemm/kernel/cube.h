// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The cube core. Weights come in stages of 64 KB, of which three are on their way while one is used, across tiles and
// experts. Rows of a few tokens stay in L1 for all tiles of their expert, two experts at a time; more come with the
// weights, stage by stage.

#ifndef GROUPED_GEMM_CUBE_H
#define GROUPED_GEMM_CUBE_H

#include "common.h"

namespace moe {

constexpr uint32_t kStages = 4;
constexpr uint32_t kStageBytes = 64 * 1024;
constexpr uint32_t kRowBytes = 192 * 1024;
constexpr uint32_t kSlotBytes = kRowBytes / 2;
constexpr uint32_t kRowStageBytes = kRowBytes / kStages;
constexpr uint32_t kL0Bytes = 32 * 1024; // of one of two buffers
constexpr uint32_t kSumBytes = arch::kL0CBytes / 2; // of one of two buffers in L0C

static_assert(kRowBytes + kStages * kStageBytes <= arch::kL1Bytes, "L1");

// One of the two products.
struct Product {
    GlobalTensor<bfloat16_t> left; // [rows][pitch]
    GlobalTensor<bfloat16_t> weights;
    uint32_t pitch;
    uint32_t depth; // K
    uint32_t blocks; // of 16 columns; pairs in the first product
    uint32_t columns; // of the result; of gate in the first product
    uint32_t width; // blocks of a wide tile
    uint32_t stage; // depth of a stage of a wide tile
    bool pairs;
};

// Where the rows of a tile are while it is multiplied.
struct Place {
    bool streamed; // they come with each stage
    uint32_t slots; // bits: 1 the first, 2 the second
    uint32_t slot; // of the flag, and of the data
};

class Cube {
public:
    __aicore__ inline void Run(const Arguments &a)
    {
        a_ = a;
        flat_ = a.t.layout == 0;
        rows_.Init(a);
        out_.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(a.out), static_cast<uint64_t>(a.t.rows) * a.t.hidden);
        outbox_.Init(a);
        tail_.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(a.workspace + a.t.tail), static_cast<uint64_t>(a.t.rows) * kC0);
        Prime();

        Product p;
        const uint32_t pairs = Ceil(a.t.intermediate, kC0);
        p.left.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(a.x), static_cast<uint64_t>(a.t.rows) * a.t.hidden);
        p.pitch = a.t.hidden;
        p.depth = a.t.hidden;
        p.blocks = pairs;
        p.columns = a.t.intermediate;
        p.width = a.t.columns1 / kC0;
        p.stage = a.t.depth1;
        p.pairs = true;
        SetWeights(p, a.w13);
        Multiply(p, false);
        outbox_.Drain();

        p.left.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(a.workspace + a.t.a16),
                               static_cast<uint64_t>(a.t.rows) * pairs * kC0);
        p.pitch = pairs * kC0;
        p.depth = a.t.intermediate;
        p.blocks = Ceil(a.t.hidden, kC0);
        p.columns = a.t.hidden;
        p.width = a.t.columns2 / kC0;
        p.stage = a.t.depth2;
        p.pairs = false;
        SetWeights(p, a.w2);
        Multiply(p, true);
        Drain();
        if (a.t.hidden % kC0 != 0) {
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
        Place place;
        uint32_t k; // of the next stage
        uint32_t stage;
        uint32_t slot; // for the next rows that take one
    };

    __aicore__ inline LocalTensor<bfloat16_t> L1(uint32_t address, uint32_t bytes)
    {
        return LocalTensor<bfloat16_t>(TPosition::A1, address, bytes / sizeof(bfloat16_t));
    }

    __aicore__ inline void SetWeights(Product &p, GM_ADDR weights)
    {
        const uint64_t round = flat_ ? 1 : kC0;
        const uint64_t rows = (p.columns + round - 1) / round * round, depth = (p.depth + round - 1) / round * round;
        p.weights.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(weights),
                                  a_.t.experts * rows * depth * (p.pairs ? 2 : 1));
        if (a_.t.stream != 0) {
            p.weights.SetL2CacheHint(CacheMode::CACHE_MODE_DISABLE);
        }
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
        return t.narrow ? 2 * p.stage : p.stage;
    }
    __aicore__ inline static uint32_t Columns16(const Product &p, const Tile &t) { return p.pairs ? 2 * t.blocks : t.blocks; }

    __aicore__ inline void Open(Cursor &c, const Product &p)
    {
        c.tiles.Init(a_, rows_, p.blocks, p.width, p.pairs);
        c.more = c.tiles.Next(c.next);
        c.place.streamed = false;
        Step(c, p);
    }
    // Goes to the next tile.
    __aicore__ inline void Step(Cursor &c, const Product &p)
    {
        c.tile = c.next;
        c.open = c.more;
        c.k = 0;
        if (!c.open) {
            return;
        }
        c.more = c.tiles.Next(c.next);
        if (c.tile.group) {
            const uint32_t bytes = c.tile.padded * RoundUp(p.depth, kC0) * sizeof(bfloat16_t);
            c.place.streamed = bytes > kSlotBytes;
            c.place.slot = c.place.streamed ? 0 : c.slot;
            c.place.slots = c.place.streamed ? 3 : 1u << c.slot;
            if (!c.place.streamed) {
                c.slot ^= 1;
            }
        }
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

    // Begins the next copy into L1, if there is one and room for it. `rows`: rows that stay in L1 come now.
    __aicore__ inline bool Load(const Product &p, bool rows)
    {
        Cursor &c = load_;
        if (!c.open || ahead_ == kStages) {
            return false;
        }
        const Tile &t = c.tile;
        if (c.k == 0 && t.group) {
            if (!(c.place.streamed && streaming_)) {
                if ((held_ & c.place.slots) != 0) {
                    return false;
                }
                held_ |= c.place.slots;
                for (int32_t i = 0; i < 2; i++) {
                    if ((c.place.slots >> i & 1) != 0) {
                        WaitFlag<HardEvent::MTE1_MTE2>(static_cast<int32_t>(kStages) + i);
                    }
                }
            }
            streaming_ = c.place.streamed;
            if (!c.place.streamed && rows) {
                LoadRows(p);
            }
        }
        const uint32_t depth = Min(StageDepth(p, t), p.depth - c.k);
        WaitFlag<HardEvent::MTE1_MTE2>(static_cast<int32_t>(c.stage));
        CopyWeights(p, t, c.k, depth, L1(kRowBytes + c.stage * kStageBytes, kStageBytes));
        if (c.place.streamed) {
            CopyRows(p, t, c.k, depth, L1(c.stage * kRowStageBytes, kRowStageBytes));
        }
        SetFlag<HardEvent::MTE2_MTE1>(static_cast<int32_t>(c.stage));
        c.stage = (c.stage + 1) % kStages;
        c.k += depth;
        ahead_++;
        if (c.k == p.depth) {
            Step(c, p);
        }
        return true;
    }
    __aicore__ inline void LoadRows(const Product &p) { LoadRows(p, load_.tile, load_.place); }
    __aicore__ inline void LoadRows(const Product &p, const Tile &t, const Place &place)
    {
        CopyRows(p, t, 0, p.depth, L1(place.slot * kSlotBytes, kSlotBytes));
        SetFlag<HardEvent::MTE2_MTE1>(static_cast<int32_t>(kStages + place.slot));
    }

    __aicore__ inline void Multiply(const Product &p, bool wait)
    {
        Open(load_, p);
        Open(work_, p);
        streaming_ = false;
        if (wait) {
            // Weights need not wait for the activations, rows do.
            const bool early = load_.open && !load_.place.streamed;
            const Tile first = load_.tile;
            const Place place = load_.place;
            if (early) {
                while (Load(p, false) && !(load_.k == 0 && load_.tile.group)) {
                }
            }
            CrossCoreWaitFlag<2, PIPE_MTE2>(kRowsToCube);
            if (early) {
                LoadRows(p, first, place);
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
        const Place place = work_.place;
        const uint32_t rows16 = t.padded / kC0, columns16 = Columns16(p, t);
        const bool large = t.padded * columns16 * kC0 * sizeof(float) > kSumBytes;
        if (large) {
            sum_ = 0;
        }
        const LocalTensor<float> sum(TPosition::CO1, sum_ * kSumBytes, (large ? 2 : 1) * kSumBytes / sizeof(float));
        WaitFlag<HardEvent::FIX_M>(static_cast<int32_t>(sum_));
        if (large) {
            WaitFlag<HardEvent::FIX_M>(1);
        }
        while (Load(p, true)) {
        }
        if (t.group && !place.streamed) {
            WaitFlag<HardEvent::MTE2_MTE1>(static_cast<int32_t>(kStages + place.slot));
        }
        for (uint32_t k = 0; k < p.depth;) {
            while (Load(p, true)) {
            }
            const uint32_t depth = Min(StageDepth(p, t), p.depth - k);
            Stage(t, place, k, depth, rows16, columns16, sum);
            k += depth;
        }
        Step(work_, p);
        const bool last = !work_.open || work_.tile.group;
        if (last && !(place.streamed && work_.open && work_.place.streamed)) {
            held_ &= ~place.slots;
            for (int32_t i = 0; i < 2; i++) {
                if ((place.slots >> i & 1) != 0) {
                    SetFlag<HardEvent::MTE1_MTE2>(static_cast<int32_t>(kStages) + i);
                }
            }
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
    __aicore__ inline void Stage(const Tile &t, const Place &place, uint32_t k, uint32_t depth, uint32_t rows16,
                                 uint32_t columns16, const LocalTensor<float> &sum)
    {
        const int32_t stage = static_cast<int32_t>(work_.stage);
        const uint32_t depth16 = Ceil(depth, kC0), step = columns16 <= 8 ? 128 : 64;
        const LocalTensor<bfloat16_t> left = place.streamed ? L1(work_.stage * kRowStageBytes, kRowStageBytes)
                                                            : L1(place.slot * kSlotBytes, kSlotBytes);
        const LocalTensor<bfloat16_t> right = L1(kRowBytes + work_.stage * kStageBytes, kStageBytes);
        const uint32_t begin16 = place.streamed ? 0 : k / kC0;
        WaitFlag<HardEvent::MTE2_MTE1>(stage);
        for (uint32_t at = 0; at < depth; at += step) {
            const uint32_t now = Min(step, depth - at), now16 = Ceil(now, kC0);
            const int32_t pair = static_cast<int32_t>(pair_);
            const LocalTensor<bfloat16_t> l0a(TPosition::A2, pair_ * kL0Bytes, kL0Bytes / sizeof(bfloat16_t));
            const LocalTensor<bfloat16_t> l0b(TPosition::B2, pair_ * kL0Bytes, kL0Bytes / sizeof(bfloat16_t));
            WaitFlag<HardEvent::M_MTE1>(pair);
            arch::LoadLeft(l0a, left, rows16, begin16 + at / kC0, now16);
            arch::LoadRight(l0b, right, columns16, depth16, at / kC0, now16, flat_);
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
            pair_ ^= 1;
        }
        SetFlag<HardEvent::MTE1_MTE2>(stage);
        work_.stage = (work_.stage + 1) % kStages;
        ahead_--;
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
    GlobalTensor<bfloat16_t> tail_;
    Cursor load_ = {};
    Cursor work_ = {};
    bool flat_ = false;
    bool streaming_ = false; // the last rows that were loaded came with stages
    uint32_t ahead_ = 0; // stages that were loaded and not yet used
    uint32_t held_ = 0; // slots of rows that were loaded and not yet given back
    uint32_t pair_ = 0; // of buffers in L0A and L0B
    uint32_t sum_ = 0; // buffer in L0C
};

} // namespace moe

#endif
