// SPDX-License-Identifier: MIT OR Apache-2.0
//
// 2201: capacities, and the copies that differ.

#ifndef MSA_MAIN_BRANCH_ARCH_H
#define MSA_MAIN_BRANCH_ARCH_H

#include "shape.h"

// Orders dependent vector instructions. A macro, so that every use is a place of its own in reports.
#define VECTOR_ORDER() AscendC::PipeBarrier<PIPE_V>()

namespace main_branch {

constexpr uint32_t kPieceRows = 64; // of a score tile in L0C
constexpr uint32_t kSliceRows = 16; // of a vector core at a time
// Whether weights go from the vector cores to L1, not through global memory.
template <class T> constexpr bool kDirect = false;
constexpr uint32_t kUbBytes = 184 * 1024 - 256;
constexpr uint32_t kL1Bytes = 512 * 1024 - 256;
constexpr uint32_t kL0cBytes = 128 * 1024;

// A [m16 x 16, k of `wide` fractals] from rows of NZ form with `rows16` x 16 of them.
template <class T>
__aicore__ inline void LoadLeft(const LocalTensor<T> &to, const LocalTensor<T> &from, uint32_t m16, uint32_t wide, uint32_t rows16)
{
    LoadData2DParams p;
    p.repeatTimes = static_cast<uint8_t>(wide);
    p.srcStride = static_cast<uint16_t>(rows16);
    p.dstGap = 0;
    p.ifTranspose = false;
    for (uint32_t i = 0; i < m16; i++) {
        LoadData(to[i * wide * Shape<T>::kFractal], from[i * Shape<T>::kFractal], p);
    }
}
// B from keys [n16 x 16 rows, k]: fractals lie in the order of L0B.
template <class T>
__aicore__ inline void LoadKeys(const LocalTensor<T> &to, const LocalTensor<T> &from, uint32_t n16, uint32_t wide)
{
    LoadData2DParams p;
    p.repeatTimes = static_cast<uint8_t>(n16 * wide);
    p.srcStride = 1;
    p.dstGap = 0;
    p.ifTranspose = false;
    LoadData(to, from, p);
}
// B [k x n] from values of `rows` rows and n columns, of which the k rows from `first` on.
template <class T>
__aicore__ inline void LoadValues(const LocalTensor<T> &to, const LocalTensor<T> &from, uint32_t rows, uint32_t first, uint32_t k,
                                  uint32_t n)
{
    LoadData3DParamsV2<T> p;
    p.l1H = 1;
    p.l1W = static_cast<uint16_t>(rows);
    p.channelSize = static_cast<uint16_t>(n);
    p.kExtension = static_cast<uint16_t>(n);
    p.mExtension = static_cast<uint16_t>(k);
    p.mStartPt = static_cast<uint16_t>(first);
    p.enTranspose = true;
    LoadData(to, from, p);
}
// Rows of L0C, of which there are `m`, n columns each, to rows of global memory.
__aicore__ inline void StoreRows(const GlobalTensor<float> &to, const LocalTensor<float> &from, uint32_t rows, uint32_t m, uint32_t n,
                                 uint32_t pitch)
{
    FixpipeParamsV220 p;
    p.nSize = static_cast<uint16_t>(n);
    p.mSize = static_cast<uint16_t>(rows);
    p.srcStride = static_cast<uint16_t>(m);
    p.dstStride = pitch;
    p.quantPre = QuantMode_t::NoQuant;
    p.ndNum = 1;
    Fixpipe<float, float, CFG_ROW_MAJOR>(to, from, p);
}

} // namespace main_branch

#endif
