// SPDX-License-Identifier: MIT OR Apache-2.0
//
// D[m, n] = silu(A[m, k] B[k, n] + bias[n]): BF16 in and out, F32 sums and activation. One cube core and two vector cores
// work on a tile: the cube core multiplies, each vector core finishes half of the rows.
//
// The product goes from one to the other through a ring of slots. On 2201 the ring is in global memory, on 3510 in the
// unified buffers of the two vector cores, where Fixpipe puts half of the rows each. The cube core says "full" for every
// tile; the vector cores say "empty" when they have read it. The cube core is at most kSlots tiles ahead, and takes the last
// "empty" of every slot before it ends.

#include "matmul.h"

using namespace AscendC;

namespace {

constexpr uint32_t kSlots = 2;
constexpr uint16_t kFull = 0, kEmpty = 1;
constexpr uint16_t kSecond = 16; // mode 4: the flags of the second vector core, as the cube core counts them

struct Tile {
    uint32_t m0, m, n0, n;
};

class Tiles {
public:
    __aicore__ inline Tiles(const MatmulTiling &t) : t_(t), columns_(kernels::Ceil(t.n, t.tileN)) {}
    __aicore__ inline uint32_t Count() const { return kernels::Ceil(t_.m, t_.tileM) * columns_; }
    __aicore__ inline Tile At(uint32_t i) const
    {
        Tile r;
        r.m0 = i / columns_ * t_.tileM;
        r.n0 = i % columns_ * t_.tileN;
        r.m = kernels::Least(t_.tileM, t_.m - r.m0);
        r.n = kernels::Least(t_.tileN, t_.n - r.n0);
        return r;
    }

private:
    const MatmulTiling &t_;
    uint32_t columns_;
};

// Columns of a tile in its slot.
__aicore__ inline uint32_t Pitch(uint32_t n) { return kernels::Ceil(n, kernels::kFractal) * kernels::kFractal; }
// Rows of a tile for each vector core.
__aicore__ inline uint32_t Half(uint32_t m) { return kernels::Ceil(m, kernels::kFractal) * kernels::kFractal / 2; }

#if __NPU_ARCH__ == 3510
constexpr FixpipeConfig kToUb = {CO2Layout::ROW_MAJOR, true};
#endif

__aicore__ inline void Cube(GM_ADDR a, GM_ADDR b, GM_ADDR workspace, const MatmulTiling &t, uint32_t block, uint32_t blocks)
{
    uint32_t slotSize = t.tileM * t.tileN;
#if __NPU_ARCH__ == 3510
    (void)workspace;
#endif
#if __NPU_ARCH__ != 3510
    GlobalTensor<float> ring;
    ring.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(workspace) + static_cast<uint64_t>(block) * kSlots * slotSize,
                         kSlots * slotSize);
#endif
    kernels::MatmulTile tile;
    tile.Init(a, b, t);
    tile.Begin();
    Tiles tiles(t);
    uint32_t done = 0;
    for (uint32_t i = block; i < tiles.Count(); i += blocks) {
        Tile at = tiles.At(i);
        LocalTensor<float> sums = tile.Compute(at.m0, at.m, at.n0, at.n);
        uint32_t slot = done % kSlots;
        uint32_t rows = 2 * Half(at.m);
#if __NPU_ARCH__ == 3510
        if (done >= kSlots) {
            CrossCoreWaitFlag<4, PIPE_FIX>(kEmpty);
            CrossCoreWaitFlag<4, PIPE_FIX>(kEmpty + kSecond);
        }
        FixpipeParamsArch3510<CO2Layout::ROW_MAJOR> p;
        p.params.ndNum = 1;
        p.params.srcNdStride = 0;
        p.params.dstNdStride = 0;
        p.nSize = Pitch(at.n);
        p.mSize = rows;
        p.srcStride = rows;
        p.dstStride = Pitch(at.n);
        p.quantPre = QuantMode_t::NoQuant;
        p.dualDstCtl = 1; // the first half of the rows to one vector core, the rest to the other
        LocalTensor<float> to(TPosition::VECIN, slot * slotSize / 2 * sizeof(float), slotSize / 2);
        Fixpipe<float, float, kToUb>(to, sums, p);
        tile.Taken();
        CrossCoreSetFlag<4, PIPE_FIX>(kFull);
        CrossCoreSetFlag<4, PIPE_FIX>(kFull + kSecond);
#else
        if (done >= kSlots) {
            CrossCoreWaitFlag<2, PIPE_FIX>(kEmpty);
        }
        FixpipeParamsV220 p;
        p.ndNum = 1;
        p.srcNdStride = 0;
        p.dstNdStride = 0;
        p.nSize = Pitch(at.n);
        p.mSize = at.m;
        p.srcStride = rows;
        p.dstStride = t.tileN;
        p.quantPre = QuantMode_t::NoQuant;
        Fixpipe<float, float, CFG_ROW_MAJOR>(ring[slot * slotSize], sums, p);
        tile.Taken();
        CrossCoreSetFlag<2, PIPE_FIX>(kFull);
#endif
        done++;
    }
    for (uint32_t i = 0; i < kernels::Least(done, kSlots); i++) {
#if __NPU_ARCH__ == 3510
        CrossCoreWaitFlag<4, PIPE_FIX>(kEmpty);
        CrossCoreWaitFlag<4, PIPE_FIX>(kEmpty + kSecond);
#else
        CrossCoreWaitFlag<2, PIPE_FIX>(kEmpty);
#endif
    }
    tile.End();
}

// 3510 orders dependent vector instructions by itself.
constexpr bool kBarriers = __NPU_ARCH__ != 3510;

__aicore__ inline void Vector(GM_ADDR bias, GM_ADDR d, GM_ADDR workspace, const MatmulTiling &t, uint32_t block, uint32_t blocks)
{
    uint32_t half = GetSubBlockIdx();
    uint32_t slotSize = t.tileM * t.tileN, mine = slotSize / 2;
#if __NPU_ARCH__ == 3510
    (void)workspace;
#endif
    GlobalTensor<float> biasGm;
    GlobalTensor<bfloat16_t> out;
    biasGm.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(bias), t.n);
    out.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t *>(d), static_cast<uint64_t>(t.m) * t.n);
#if __NPU_ARCH__ != 3510
    GlobalTensor<float> ring;
    ring.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(workspace) + static_cast<uint64_t>(block) * kSlots * slotSize,
                         kSlots * slotSize);
#endif
    LocalTensor<float> sums[kSlots], row[2];
    LocalTensor<bfloat16_t> result[2];
    uint32_t at = 0;
    for (uint32_t s = 0; s < kSlots; s++, at += mine * sizeof(float)) {
        sums[s] = LocalTensor<float>(TPosition::VECIN, at, mine);
    }
    for (uint32_t s = 0; s < 2; s++, at += t.tileN * sizeof(float)) {
        row[s] = LocalTensor<float>(TPosition::VECIN, at, t.tileN);
    }
    for (uint32_t s = 0; s < 2; s++, at += mine * sizeof(bfloat16_t)) {
        result[s] = LocalTensor<bfloat16_t>(TPosition::VECOUT, at, mine);
    }
    LocalTensor<float> work(TPosition::VECCALC, at, mine);

    SetFlag<HardEvent::V_MTE2>(EVENT_ID0);
    SetFlag<HardEvent::V_MTE2>(EVENT_ID1);
    SetFlag<HardEvent::MTE3_V>(EVENT_ID0);
    SetFlag<HardEvent::MTE3_V>(EVENT_ID1);
    Tiles tiles(t);
    uint32_t done = 0;
    for (uint32_t i = block; i < tiles.Count(); i += blocks) {
        Tile tile = tiles.At(i);
        int32_t stage = done % 2;
        uint32_t slot = done % kSlots;
        uint32_t first = half * Half(tile.m);
        uint32_t rows = tile.m <= first ? 0 : kernels::Least(tile.m - first, Half(tile.m));
        uint32_t pitch = Pitch(tile.n);

        WaitFlag<HardEvent::V_MTE2>(stage);
        DataCopyExtParams copy;
        copy.blockCount = 1;
        copy.blockLen = tile.n * sizeof(float);
        copy.srcStride = 0;
        copy.dstStride = 0;
        copy.rsv = 0;
        DataCopyPadExtParams<float> pad{false, 0, 0, 0};
        DataCopyPad(row[stage], biasGm[tile.n0], copy, pad);
#if __NPU_ARCH__ != 3510
        CrossCoreWaitFlag<2, PIPE_MTE2>(kFull);
        if (rows > 0) {
            DataCopyParams part;
            part.blockCount = rows;
            part.blockLen = pitch * sizeof(float) / 32;
            part.srcStride = (t.tileN - pitch) * sizeof(float) / 32;
            part.dstStride = 0;
            DataCopy(sums[slot], ring[slot * slotSize + first * t.tileN], part);
        }
        CrossCoreSetFlag<2, PIPE_MTE2>(kEmpty);
#endif
        SetFlag<HardEvent::MTE2_V>(stage);

        WaitFlag<HardEvent::MTE2_V>(stage);
#if __NPU_ARCH__ == 3510
        CrossCoreWaitFlag<4, PIPE_V>(kFull);
#endif
        int32_t count = rows * pitch;
        if (rows > 0) {
            for (uint32_t r = 0; r < rows; r++) {
                Add(sums[slot][r * pitch], sums[slot][r * pitch], row[stage], static_cast<int32_t>(tile.n));
            }
            if (kBarriers) {
                PipeBarrier<PIPE_V>();
            }
            Muls(work, sums[slot], -1.0f, count);
            if (kBarriers) {
                PipeBarrier<PIPE_V>();
            }
            Exp(work, work, count);
            if (kBarriers) {
                PipeBarrier<PIPE_V>();
            }
            Adds(work, work, 1.0f, count);
            if (kBarriers) {
                PipeBarrier<PIPE_V>();
            }
            Div(work, sums[slot], work, count);
            if (kBarriers) {
                PipeBarrier<PIPE_V>();
            }
        }
        SetFlag<HardEvent::V_MTE2>(stage);
#if __NPU_ARCH__ == 3510
        CrossCoreSetFlag<4, PIPE_V>(kEmpty);
#endif
        WaitFlag<HardEvent::MTE3_V>(stage);
        if (rows > 0) {
            Cast(result[stage], work, RoundMode::CAST_RINT, static_cast<uint32_t>(count));
        }
        SetFlag<HardEvent::V_MTE3>(stage);

        WaitFlag<HardEvent::V_MTE3>(stage);
        if (rows > 0) {
            DataCopyExtParams store;
            store.blockCount = rows;
            store.blockLen = tile.n * sizeof(bfloat16_t);
            store.srcStride = 0;
            store.dstStride = (t.n - tile.n) * sizeof(bfloat16_t);
            store.rsv = 0;
            DataCopyPad(out[static_cast<uint64_t>(tile.m0 + first) * t.n + tile.n0], result[stage], store);
        }
        SetFlag<HardEvent::MTE3_V>(stage);
        done++;
    }
    WaitFlag<HardEvent::V_MTE2>(EVENT_ID0);
    WaitFlag<HardEvent::V_MTE2>(EVENT_ID1);
    WaitFlag<HardEvent::MTE3_V>(EVENT_ID0);
    WaitFlag<HardEvent::MTE3_V>(EVENT_ID1);
}

} // namespace

extern "C" __global__ __aicore__ void mix_silu(GM_ADDR a, GM_ADDR b, GM_ADDR bias, GM_ADDR d, GM_ADDR workspace, GM_ADDR tiling)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
    MatmulTiling t;
    GlobalTensor<uint32_t> words;
    words.SetGlobalBuffer(reinterpret_cast<__gm__ uint32_t *>(tiling), sizeof(MatmulTiling) / sizeof(uint32_t));
    t.m = words.GetValue(0);
    t.n = words.GetValue(1);
    t.k = words.GetValue(2);
    t.tileM = words.GetValue(3);
    t.tileN = words.GetValue(4);
    t.tileK = words.GetValue(5);
    t.stepK = words.GetValue(6);
    uint32_t blocks = GetBlockNum();
    uint32_t index = GetBlockIdx();
    if ASCEND_IS_AIC {
        Cube(a, b, workspace, t, index, blocks);
    }
    if ASCEND_IS_AIV {
        // Vector cores are counted through all blocks.
        Vector(bias, d, workspace, t, index / 2, blocks);
    }
}
