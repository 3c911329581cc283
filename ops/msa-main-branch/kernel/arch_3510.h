// SPDX-License-Identifier: MIT OR Apache-2.0
//
// 3510: capacities, and the copies that differ.

#ifndef MSA_MAIN_BRANCH_ARCH_H
#define MSA_MAIN_BRANCH_ARCH_H

#include "shape.h"

// The chip orders dependent vector instructions by itself.
#define VECTOR_ORDER() static_cast<void>(0)

namespace main_branch {

constexpr uint32_t kPieceRows = 128; // of a score tile in L0C: all, since L0A has no place where some rows are alone
constexpr uint32_t kSliceRows = 24; // of a vector core at a time
// Whether weights go from the vector cores to L1, not through global memory: there is room for those of two tasks, but not in
// F32, which the cube takes so long to multiply that it makes no difference.
template <class T> constexpr bool kDirect = sizeof(T) == 2;
constexpr uint32_t kUbBytes = 248 * 1024;
constexpr uint32_t kL1Bytes = 512 * 1024;
constexpr uint32_t kL0cBytes = 256 * 1024;

template <class T>
__aicore__ inline void LoadTile(const LocalTensor<T> &to, const LocalTensor<T> &from, uint32_t m16, uint32_t wide, uint32_t rows16)
{
    LoadData2DParamsV2 p;
    p.mStartPosition = 0;
    p.kStartPosition = 0;
    p.mStep = static_cast<uint16_t>(m16);
    p.kStep = static_cast<uint16_t>(wide);
    p.srcStride = static_cast<int32_t>(rows16);
    p.dstStride = static_cast<uint16_t>(m16);
    p.ifTranspose = false;
    LoadData(to, from, p);
}
// A [m16 x 16, k of `wide` fractals] from rows of NZ form with `rows16` x 16 of them.
template <class T>
__aicore__ inline void LoadLeft(const LocalTensor<T> &to, const LocalTensor<T> &from, uint32_t m16, uint32_t wide, uint32_t rows16)
{
    LoadTile(to, from, m16, wide, rows16);
}
// B from keys [n16 x 16 rows, k].
template <class T>
__aicore__ inline void LoadKeys(const LocalTensor<T> &to, const LocalTensor<T> &from, uint32_t n16, uint32_t wide)
{
    LoadTile(to, from, n16, wide, n16);
}
// B [k x n] from values of `rows` rows and n columns, of which the k rows from `first` on.
template <class T>
__aicore__ inline void LoadValues(const LocalTensor<T> &to, const LocalTensor<T> &from, uint32_t rows, uint32_t first, uint32_t k,
                                  uint32_t n)
{
    LoadData2DParamsV2 p;
    p.mStartPosition = first / kLane;
    p.kStartPosition = 0;
    p.mStep = static_cast<uint16_t>(k / kLane);
    p.kStep = static_cast<uint16_t>(n / Shape<T>::kWide);
    p.srcStride = static_cast<int32_t>(rows / kLane);
    p.dstStride = static_cast<uint16_t>(n / kLane);
    p.ifTranspose = true;
    LoadData(to, from, p);
}
// Rows of L0C, of which there are `m`, n columns each, to rows of global memory.
__aicore__ inline void StoreRows(const GlobalTensor<float> &to, const LocalTensor<float> &from, uint32_t rows, uint32_t m, uint32_t n,
                                 uint32_t pitch)
{
    FixpipeParamsArch3510<CO2Layout::ROW_MAJOR> p;
    p.nSize = static_cast<uint16_t>(n);
    p.mSize = static_cast<uint16_t>(rows);
    p.srcStride = static_cast<uint16_t>(m);
    p.dstStride = pitch;
    p.quantPre = QuantMode_t::NoQuant;
    p.params.ndNum = 1;
    p.params.srcNdStride = 0;
    p.params.dstNdStride = 0;
    Fixpipe<float, float, CFG_ROW_MAJOR>(to, from, p);
}

} // namespace main_branch

#endif
