// SPDX-License-Identifier: MIT OR Apache-2.0
//
// FP8 weights scaled by the cube core of dav-2201. The vector cores only unpack codes to half numbers. The cube core
// multiplies them by a scale, as a matrix with that scale on its diagonal (twice for scales of blocks: a half number and
// what it leaves of the scale), and its Fixpipe rounds the F32 sums to BF16 into L1, from where they are the right operand
// of the product. The host has proved for each expert that every weight comes out as code times scale, rounded once.
//
// A piece is 64 of K of the columns of one part (gate, up or down) of a tile. A stage in the ring has its pieces one after
// the other, each as two steps of 32 of K, and a step as fractals [16 columns][16 of K], two for each 16 columns.

#ifndef GROUPED_GEMM_SCALE_2201_H
#define GROUPED_GEMM_SCALE_2201_H

#include "common.h"

namespace moe {
namespace arch {

constexpr bool kScales = true;
constexpr uint32_t kPiece = 64; // of K
constexpr uint32_t kStep = 32; // of K
constexpr uint32_t kPieces = 3; // in L1
constexpr uint32_t kPieceBytes = 16 * 1024;

// L1 behind the stages.
constexpr uint32_t kPieceAt = kRowBytes + kStages * kStageBytes;
constexpr uint32_t kTileAt = kPieceAt + kPieces * kPieceBytes;
static_assert(kTileAt + kStages * kStageTiles * kTileBytes <= kL1Bytes, "L1");

// L0 where weights are FP8. Buffers of the product come first: 16 KB for rows and 16 KB for weights, two of each.
constexpr uint32_t kCodedL0Bytes = 16 * 1024;
constexpr uint32_t kHalfAt0A = 2 * kCodedL0Bytes; // two buffers of half numbers
constexpr uint32_t kDiagonalAt = 2 * kCodedL0Bytes; // buffers of two 32 x 32 matrices
constexpr uint32_t kDiagonalBytes = 4 * kFractal * sizeof(half);
constexpr uint32_t kDiagonals = 4;
constexpr uint32_t kCodedSumBytes = 32 * 1024;
constexpr uint32_t kWideAt0C = 2 * kCodedSumBytes; // two buffers of scaled numbers
static_assert(kHalfAt0A + 2 * kPieceBytes <= 64 * 1024 && kDiagonalAt + 2 * kDiagonals * kDiagonalBytes <= 64 * 1024, "L0");
static_assert(kWideAt0C + 2 * 2 * kPieceBytes <= kL0CBytes, "L0C");

// The cube core's side.
class Scaler {
public:
    __aicore__ inline void Init(uint32_t terms)
    {
        terms_ = terms;
        // What is off the diagonal stays zero.
        const LocalTensor<half> zero(TPosition::B2, kDiagonalAt, 2 * kDiagonals * kDiagonalBytes / sizeof(half));
        InitConstValueParams<half> p;
        p.repeatTimes = 1;
        p.blockNum = 8 * kDiagonals;
        p.dstGap = 0;
        p.initValue = static_cast<half>(0.0f);
        InitConstValue(zero, p);
        for (int32_t i = 0; i < 2; i++) {
            SetFlag<HardEvent::M_MTE1>(2 + i);
            SetFlag<HardEvent::M_MTE1>(4 + i);
            SetFlag<HardEvent::FIX_M>(2 + i);
        }
        for (uint32_t i = 0; i < kPieces; i++) {
            SetFlag<HardEvent::MTE1_FIX>(static_cast<int32_t>(i));
        }
    }
    __aicore__ inline void Drain()
    {
        for (int32_t i = 0; i < 2; i++) {
            WaitFlag<HardEvent::M_MTE1>(2 + i);
            WaitFlag<HardEvent::M_MTE1>(4 + i);
            WaitFlag<HardEvent::FIX_M>(2 + i);
        }
        for (uint32_t i = 0; i < kPieces; i++) {
            WaitFlag<HardEvent::MTE1_FIX>(static_cast<int32_t>(i));
        }
    }
    // Whether there is room for one more piece.
    __aicore__ inline bool HasRoom() const { return made_ - used_ < kPieces; }
    // Diagonals of a stage in L1, from a tile on.
    __aicore__ inline static LocalTensor<half> Tile(uint32_t stage, uint32_t tile)
    {
        return LocalTensor<half>(TPosition::A1, kTileAt + (stage * kStageTiles + tile) * kTileBytes,
                                 (kStageTiles - tile) * kTileBytes / sizeof(half));
    }
    // Scales the piece that begins with fractal `first` of a stage: `steps` steps of 32 of K of `blocks` blocks of columns.
    // `number`: of its tile of diagonals in the stage; `fresh`: it was not used yet.
    __aicore__ inline void Scale(const LocalTensor<half> &stage, uint32_t first, uint32_t blocks, uint32_t steps, const LocalTensor<half> &tile,
                                 uint32_t number, bool fresh)
    {
        const int32_t b = static_cast<int32_t>(2 + made_ % 2), slot = static_cast<int32_t>(made_ % kPieces);
        const uint32_t at = made_ % 2;
        const LocalTensor<half> l0a(TPosition::A2, kHalfAt0A + at * kPieceBytes, kPieceBytes / sizeof(half));
        if (fresh) {
            // The buffer was last read four tiles ago, and so at least as many pieces; two pieces ago is what `b` waits for.
            buffers_[number] = loaded_++ % kDiagonals;
        }
        const LocalTensor<half> l0b(TPosition::B2, kDiagonalAt + buffers_[number] * 2 * kDiagonalBytes, 2 * kDiagonalBytes / sizeof(half));
        const LocalTensor<float> wide(TPosition::CO1, kWideAt0C + at * 2 * kPieceBytes, 2 * kPieceBytes / sizeof(float));
        WaitFlag<HardEvent::M_MTE1>(b);
        LoadData2DParams p;
        p.startIndex = static_cast<uint16_t>(first);
        p.repeatTimes = static_cast<uint8_t>(2 * blocks * steps);
        p.srcStride = 1;
        LoadData(l0a, stage, p);
        for (uint32_t i = 0; fresh && i < terms_; i++) {
            LoadData2DParams d;
            d.startIndex = static_cast<uint16_t>(i);
            d.repeatTimes = 2;
            d.srcStride = 0;
            d.dstGap = 2;
            LoadData(l0b[i * kDiagonalBytes / sizeof(half)], tile, d);
        }
        SetFlag<HardEvent::MTE1_M>(b);
        WaitFlag<HardEvent::MTE1_M>(b);
        WaitFlag<HardEvent::FIX_M>(b);
        MmadParams m;
        m.m = static_cast<uint16_t>(blocks * kC0);
        m.n = kStep;
        m.k = kStep;
        for (uint32_t i = 0; i < terms_; i++) {
            m.cmatrixInitVal = i == 0;
            if (i != 0 && 2 * blocks < 10) {
                PipeBarrier<PIPE_M>();
            }
            for (uint32_t s = 0; s < steps; s++) {
                const uint32_t step = s * 2 * blocks * kFractal;
                Mmad(wide[step], l0a[step], l0b[i * kDiagonalBytes / sizeof(half)], m);
            }
        }
        SetFlag<HardEvent::M_MTE1>(b);
        SetFlag<HardEvent::M_FIX>(b);
        WaitFlag<HardEvent::M_FIX>(b);
        WaitFlag<HardEvent::MTE1_FIX>(slot);
        FixpipeParamsV220 f;
        f.nSize = static_cast<uint16_t>(steps * kStep);
        f.mSize = m.m;
        f.srcStride = m.m;
        f.dstStride = m.m; // of 32 bytes
        f.quantPre = F322BF16;
        Fixpipe<bfloat16_t, float, CFG_NZ>(Piece(made_), wide, f);
        SetFlag<HardEvent::FIX_M>(b);
        SetFlag<HardEvent::FIX_MTE1>(slot);
        made_++;
    }
    // Loads the oldest piece, of which `steps16` steps of 16 of K count, and gives its place back.
    __aicore__ inline void Load(const LocalTensor<bfloat16_t> &to, uint32_t blocks, uint32_t steps16)
    {
        const int32_t slot = static_cast<int32_t>(used_ % kPieces);
        WaitFlag<HardEvent::FIX_MTE1>(slot);
        LoadData2DParams p;
        p.startIndex = 0;
        p.repeatTimes = static_cast<uint8_t>(blocks * steps16);
        p.srcStride = 1;
        LoadData(to, Piece(used_), p);
        SetFlag<HardEvent::MTE1_FIX>(slot);
        used_++;
    }

private:
    __aicore__ inline static LocalTensor<bfloat16_t> Piece(uint32_t number)
    {
        return LocalTensor<bfloat16_t>(TPosition::A1, kPieceAt + number % kPieces * kPieceBytes, kPieceBytes / sizeof(bfloat16_t));
    }
    uint32_t terms_ = 1, made_ = 0, used_ = 0, loaded_ = 0;
    uint32_t buffers_[kStageTiles] = {};
};

// The vector core's side. Where things lie in UB is the caller's.

// One matrix: ones on its diagonal.
__aicore__ inline void MakeUnit(const LocalTensor<half> &to)
{
    Duplicate(to, static_cast<half>(0.0f), static_cast<int32_t>(kFractal));
    VectorBarrier();
    // Bit 16 i + j of a mask is column j of row i, of 8 rows.
    uint64_t upper[2] = {1ull | 1ull << 17 | 1ull << 34 | 1ull << 51, 1ull << 4 | 1ull << 21 | 1ull << 38 | 1ull << 55};
    uint64_t lower[2] = {upper[0] << 8, upper[1] << 8};
    Duplicate(to, static_cast<half>(1.0f), upper, static_cast<uint8_t>(1), static_cast<uint16_t>(1), static_cast<uint8_t>(8));
    Duplicate(to[128], static_cast<half>(1.0f), lower, static_cast<uint8_t>(1), static_cast<uint16_t>(1), static_cast<uint8_t>(8));
    VectorBarrier();
}

} // namespace arch
} // namespace moe

#endif
