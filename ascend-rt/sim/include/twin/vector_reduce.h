// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Reductions, sorting and transposition. Included by vector.h.

#ifndef ASCEND_TWIN_VECTOR_REDUCE_H
#define ASCEND_TWIN_VECTOR_REDUCE_H

namespace ascend_twin {

template <class T, class U>
inline MoveCall reduce_call(const char *api, Site site, AscendC::ReduceType type, const AscendC::LocalTensor<T> &dst,
                            const AscendC::LocalTensor<U> &src, const MaskArg &mask, bool set, int64_t repeat, int64_t dstRep,
                            int64_t srcBlk, int64_t srcRep)
{
    MoveCall c;
    c.api = api;
    c.site = site;
    c.args = 2;
    c.mode = static_cast<uint8_t>(type);
    c.n[0] = dstRep;
    c.arg[0] = vec_arg(dst);
    c.arg[1] = vec_arg(src, static_cast<uint32_t>(srcBlk), static_cast<uint32_t>(srcRep));
    c.mask = mask.with(set, repeat, kWide<U>);
    return c;
}

template <class T, class U> constexpr bool reduce_sum_pair()
{
    return std::is_same<T, U>::value || (std::is_same<T, int32_t>::value && std::is_same<U, int16_t>::value) ||
           (std::is_same<T, uint32_t>::value && std::is_same<U, uint16_t>::value);
}

} // namespace ascend_twin

namespace AscendC {

#define ASCEND_TWIN_REDUCE_TYPES(T, U, call, isSum)                                                                    \
    ASCEND_TWIN_TYPES(U, call, F16 | F32, I16 | U16 | F16 | I32 | U32 | F32)                                           \
    static_assert(std::is_same<T, U>::value || ((isSum) && ascend_twin::reduce_sum_pair<T, U>()),                      \
                  call ": destination and source differ in type")

// One value for each repeat.
template <ReduceType reduceType, class T, class U, bool isSetMask = true>
void ReduceRepeat(const LocalTensor<T> &dst, const LocalTensor<U> &src, ascend_twin::MaskArg mask, int64_t repeatTime,
                  int64_t dstRepStride, int64_t srcBlkStride, int64_t srcRepStride, ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX,
                  ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_REDUCE_TYPES(T, U, "ReduceRepeat", reduceType == ReduceType::SUM);
    auto c = ascend_twin::reduce_call("ReduceRepeat", site, reduceType, dst, src, mask, isSetMask, repeatTime, dstRepStride, srcBlkStride,
                                      srcRepStride);
    c.order = static_cast<uint8_t>(order);
    ascend_twin::vector_reduce_repeat(c);
}
#define ASCEND_TWIN_WHOLE_REDUCE(call, type)                                                                           \
    template <class T, bool isSetMask = true>                                                                          \
    void call(const LocalTensor<T> &dst, const LocalTensor<T> &src, ascend_twin::MaskArg mask, int64_t repeatTime,     \
              int64_t dstRepStride, int64_t srcBlkStride, int64_t srcRepStride,                                        \
              ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX, ascend_twin::Site site = ascend_twin::Site::here())  \
    {                                                                                                                  \
        ASCEND_TWIN_REDUCE_TYPES(T, T, #call, false);                                                                  \
        auto c = ascend_twin::reduce_call(#call, site, type, dst, src, mask, isSetMask, repeatTime, dstRepStride,      \
                                          srcBlkStride, srcRepStride);                                                 \
        c.order = static_cast<uint8_t>(order);                                                                         \
        ascend_twin::vector_reduce_repeat(c);                                                                          \
    }
ASCEND_TWIN_WHOLE_REDUCE(WholeReduceMax, ReduceType::MAX)
ASCEND_TWIN_WHOLE_REDUCE(WholeReduceMin, ReduceType::MIN)

template <class T, bool isSetMask = true>
void WholeReduceSum(const LocalTensor<T> &dst, const LocalTensor<T> &src, ascend_twin::MaskArg mask, int64_t repeatTime,
                    int64_t dstRepStride, int64_t srcBlkStride, int64_t srcRepStride,
                    ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_REDUCE_TYPES(T, T, "WholeReduceSum", true);
    ascend_twin::vector_reduce_repeat(ascend_twin::reduce_call("WholeReduceSum", site, ReduceType::SUM, dst, src, mask, isSetMask,
                                                               repeatTime, dstRepStride, srcBlkStride, srcRepStride));
}
template <class T, class U, bool isSetMask = true>
void WholeReduceSum(const LocalTensor<T> &dst, const LocalTensor<U> &src, ascend_twin::MaskArg mask, int64_t repeatTime,
                    int64_t dstRepStride, int64_t srcBlkStride, int64_t srcRepStride,
                    ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_REDUCE_TYPES(T, U, "WholeReduceSum", true);
    ascend_twin::vector_reduce_repeat(ascend_twin::reduce_call("WholeReduceSum", site, ReduceType::SUM, dst, src, mask, isSetMask,
                                                               repeatTime, dstRepStride, srcBlkStride, srcRepStride));
}
// As WholeReduceSum; the block stride of the destination has no meaning for one value.
template <class T, bool isSetMask = true>
void RepeatReduceSum(const LocalTensor<T> &dst, const LocalTensor<T> &src, int64_t repeatTime, ascend_twin::MaskArg mask, int64_t,
                     int64_t srcBlkStride, int64_t dstRepStride, int64_t srcRepStride,
                     ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "RepeatReduceSum", F16 | F32, F16 | F32)
    ascend_twin::vector_reduce_repeat(ascend_twin::reduce_call("RepeatReduceSum", site, ReduceType::SUM, dst, src, mask, isSetMask,
                                                               repeatTime, dstRepStride, srcBlkStride, srcRepStride));
}

// One value for each block of 32 B.
template <ReduceType reduceType, class T, class U, bool isSetMask = true>
void ReduceDataBlock(const LocalTensor<T> &dst, const LocalTensor<U> &src, ascend_twin::MaskArg mask, int64_t repeatTime,
                     int64_t dstRepStride, int64_t srcBlkStride, int64_t srcRepStride,
                     ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(U, "ReduceDataBlock", F16 | F32, F16 | F32)
    static_assert(std::is_same<T, U>::value, "ReduceDataBlock: destination and source differ in type");
    ascend_twin::vector_reduce_block(ascend_twin::reduce_call("ReduceDataBlock", site, reduceType, dst, src, mask, isSetMask, repeatTime,
                                                              dstRepStride, srcBlkStride, srcRepStride));
}
#define ASCEND_TWIN_BLOCK_REDUCE(call, type)                                                                           \
    template <class T, bool isSetMask = true>                                                                          \
    void call(const LocalTensor<T> &dst, const LocalTensor<T> &src, int64_t repeatTime, ascend_twin::MaskArg mask,     \
              int64_t dstRepStride, int64_t srcBlkStride, int64_t srcRepStride,                                        \
              ascend_twin::Site site = ascend_twin::Site::here())                                                      \
    {                                                                                                                  \
        ASCEND_TWIN_TYPES(T, #call, F16 | F32, F16 | F32)                                                              \
        ascend_twin::vector_reduce_block(ascend_twin::reduce_call(#call, site, type, dst, src, mask, isSetMask,        \
                                                                  repeatTime, dstRepStride, srcBlkStride, srcRepStride)); \
    }
ASCEND_TWIN_BLOCK_REDUCE(BlockReduceMax, ReduceType::MAX)
ASCEND_TWIN_BLOCK_REDUCE(BlockReduceMin, ReduceType::MIN)
ASCEND_TWIN_BLOCK_REDUCE(BlockReduceSum, ReduceType::SUM)

// One value for each pair of neighbours.
template <ReduceType reduceType, class T, class U, bool isSetMask = true>
void ReducePairElem(const LocalTensor<T> &dst, const LocalTensor<U> &src, ascend_twin::MaskArg mask, int64_t repeatTime,
                    int64_t dstRepStride, int64_t srcBlkStride, int64_t srcRepStride,
                    ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(U, "ReducePairElem", F16 | F32, F16 | F32)
    static_assert(std::is_same<T, U>::value && reduceType == ReduceType::SUM, "ReducePairElem: sums of one type");
    ascend_twin::vector_reduce_pair(ascend_twin::reduce_call("ReducePairElem", site, reduceType, dst, src, mask, isSetMask, repeatTime,
                                                             dstRepStride, srcBlkStride, srcRepStride));
}
template <class T, bool isSetMask = true>
void PairReduceSum(const LocalTensor<T> &dst, const LocalTensor<T> &src, int64_t repeatTime, ascend_twin::MaskArg mask,
                   int64_t dstRepStride, int64_t srcBlkStride, int64_t srcRepStride,
                   ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "PairReduceSum", F16 | F32, F16 | F32)
    ascend_twin::vector_reduce_pair(ascend_twin::reduce_call("PairReduceSum", site, ReduceType::SUM, dst, src, mask, isSetMask, repeatTime,
                                                             dstRepStride, srcBlkStride, srcRepStride));
}

// One value for all.
template <class T>
void ReduceMax(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<T> &sharedTmpBuffer, int64_t count,
               bool calIndex = false, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "ReduceMax", F16 | F32, I16 | U16 | F16 | I32 | U32 | F32 | I64 | U64)
    auto c = ascend_twin::reduce_call("ReduceMax", site, ReduceType::MAX, dst, src, 1, true, 1, 1, 1, 8);
    c.mask = ascend_twin::vec_count(count);
    c.index = calIndex;
    c.arg[2] = ascend_twin::vec_arg(sharedTmpBuffer);
    ascend_twin::vector_reduce(c);
}
template <class T>
void ReduceMin(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<T> &sharedTmpBuffer, int64_t count,
               bool calIndex = false, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "ReduceMin", F16 | F32, I16 | U16 | F16 | I32 | U32 | F32 | I64 | U64)
    auto c = ascend_twin::reduce_call("ReduceMin", site, ReduceType::MIN, dst, src, 1, true, 1, 1, 1, 8);
    c.mask = ascend_twin::vec_count(count);
    c.index = calIndex;
    c.arg[2] = ascend_twin::vec_arg(sharedTmpBuffer);
    ascend_twin::vector_reduce(c);
}
template <class T, bool isSetMask = true>
void ReduceSum(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<T> &sharedTmpBuffer, int64_t count,
               ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "ReduceSum", F16 | F32, F16 | I32 | U32 | F32 | I64 | U64)
    auto c = ascend_twin::reduce_call("ReduceSum", site, ReduceType::SUM, dst, src, 1, true, 1, 1, 1, 8);
    c.mask = ascend_twin::vec_count(count, isSetMask);
    c.arg[2] = ascend_twin::vec_arg(sharedTmpBuffer);
    ascend_twin::vector_reduce(c);
}
template <class T>
void ReduceMax(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<T> &sharedTmpBuffer, ascend_twin::MaskArg mask,
               int64_t repeatTime, int64_t srcRepStride, bool calIndex = false, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "ReduceMax with mask", F16 | F32, I16 | U16 | F16 | I32 | U32 | F32)
    auto c = ascend_twin::reduce_call("ReduceMax", site, ReduceType::MAX, dst, src, mask, true, repeatTime, 1, 1, srcRepStride);
    c.index = calIndex;
    c.arg[2] = ascend_twin::vec_arg(sharedTmpBuffer);
    ascend_twin::vector_reduce(c);
}
template <class T>
void ReduceMin(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<T> &sharedTmpBuffer, ascend_twin::MaskArg mask,
               int64_t repeatTime, int64_t srcRepStride, bool calIndex = false, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "ReduceMin with mask", F16 | F32, I16 | U16 | F16 | I32 | U32 | F32)
    auto c = ascend_twin::reduce_call("ReduceMin", site, ReduceType::MIN, dst, src, mask, true, repeatTime, 1, 1, srcRepStride);
    c.index = calIndex;
    c.arg[2] = ascend_twin::vec_arg(sharedTmpBuffer);
    ascend_twin::vector_reduce(c);
}
template <class T>
void ReduceSum(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<T> &sharedTmpBuffer, ascend_twin::MaskArg mask,
               int64_t repeatTime, int64_t srcRepStride, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "ReduceSum with mask", F16 | F32, F16 | I32 | U32 | F32)
    auto c = ascend_twin::reduce_call("ReduceSum", site, ReduceType::SUM, dst, src, mask, true, repeatTime, 1, 1, srcRepStride);
    c.arg[2] = ascend_twin::vec_arg(sharedTmpBuffer);
    ascend_twin::vector_reduce(c);
}

template <class T> T twin_from_bits(uint64_t bits)
{
    T v;
    memcpy(static_cast<void *>(&v), &bits, sizeof(T));
    return v;
}
#define ASCEND_TWIN_REDUCE_SPR(call)                                                                                   \
    template <class T> void call(T &maxMinValue, T &maxMinIndex, ascend_twin::Site site = ascend_twin::Site::here())   \
    {                                                                                                                  \
        ASCEND_TWIN_TYPES(T, #call, F16 | F32, NONE)                                                                   \
        maxMinValue = twin_from_bits<T>(ascend_twin::vector_reduce_result(0, #call, site));                            \
        maxMinIndex = twin_from_bits<T>(ascend_twin::vector_reduce_result(1, #call, site));                            \
    }                                                                                                                  \
    template <class T> void call(T &maxMinValue, ascend_twin::Site site = ascend_twin::Site::here())                   \
    {                                                                                                                  \
        ASCEND_TWIN_TYPES(T, #call, F16 | F32, NONE)                                                                   \
        maxMinValue = twin_from_bits<T>(ascend_twin::vector_reduce_result(0, #call, site));                            \
    }
ASCEND_TWIN_REDUCE_SPR(GetReduceRepeatMaxMinSpr)
ASCEND_TWIN_REDUCE_SPR(GetReduceMaxMinCount)
template <class T> T GetReduceRepeatSumSpr(ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "GetReduceRepeatSumSpr", F16 | F32, F16 | F32)
    return twin_from_bits<T>(ascend_twin::vector_reduce_result(2, "GetReduceRepeatSumSpr", site));
}
template <class T> T GetAccVal(ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "GetAccVal", F16 | F32, F16 | F32)
    return twin_from_bits<T>(ascend_twin::vector_reduce_result(2, "GetAccVal", site));
}

// Sorting. Sorted data are pairs of 8 B: the score in the low bytes, the index in the high four.
template <class T>
void Sort32(const LocalTensor<T> &dst, const LocalTensor<T> &src0, const LocalTensor<uint32_t> &src1, int64_t repeatTime,
            ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "Sort32", F16 | F32, F16 | F32)
    ascend_twin::MoveCall c;
    c.api = "Sort32";
    c.site = site;
    c.n[0] = repeatTime;
    c.arg[0] = ascend_twin::vec_arg(dst);
    c.arg[1] = ascend_twin::vec_arg(src0);
    c.arg[2] = ascend_twin::vec_arg(src1);
    ascend_twin::vector_sort32(c);
}
template <class T>
void MrgSort(const LocalTensor<T> &dst, const MrgSortSrcList<T> &src, const MrgSort4Info &params,
             ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "MrgSort", F16 | F32, F16 | F32)
    ascend_twin::MoveCall c;
    c.api = "MrgSort";
    c.site = site;
    c.index = params.ifExhaustedSuspension;
    for (int i = 0; i < 4; i++) {
        c.n[i] = params.elementLengths[i];
    }
    c.n[4] = params.repeatTimes;
    c.n[5] = params.validBit;
    c.arg[0] = ascend_twin::vec_arg(dst);
    ascend_twin::VecArg list[4] = {ascend_twin::vec_arg(src.src1), ascend_twin::vec_arg(src.src2), ascend_twin::vec_arg(src.src3),
                                   ascend_twin::vec_arg(src.src4)};
    ascend_twin::vector_merge(c, list);
}
inline void GetMrgSortResult(uint16_t &mrgSortList1, uint16_t &mrgSortList2, uint16_t &mrgSortList3, uint16_t &mrgSortList4,
                             ascend_twin::Site site = ascend_twin::Site::here())
{
    uint16_t counts[4] = {0, 0, 0, 0};
    ascend_twin::vector_sort_result(counts, "GetMrgSortResult", site);
    mrgSortList1 = counts[0];
    mrgSortList2 = counts[1];
    mrgSortList3 = counts[2];
    mrgSortList4 = counts[3];
}
// As MrgSort, with the counts that were taken of each list when `isExhaustedSuspension`.
template <class T, bool isExhaustedSuspension = false>
void MrgSort(const LocalTensor<T> &dst, const MrgSortSrcList<T> &sortList, const uint16_t elementCountList[4], uint32_t sortedNum[4],
             uint16_t validBit, int64_t repeatTime, ascend_twin::Site site = ascend_twin::Site::here())
{
    MrgSort(dst, sortList, MrgSort4Info(elementCountList, isExhaustedSuspension, validBit, repeatTime), site);
    if (isExhaustedSuspension) {
        uint16_t counts[4] = {0, 0, 0, 0};
        ascend_twin::vector_sort_result(counts, "MrgSort", site);
        for (int i = 0; i < 4; i++) {
            sortedNum[i] = counts[i];
        }
    }
}
// The chips here sort values as they are: nothing is joined.
template <class T>
void Concat(LocalTensor<T> &concat, const LocalTensor<T> &src, const LocalTensor<T> &, int64_t,
            ascend_twin::Site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "Concat", F16 | F32, F16 | F32)
    concat = src;
}
template <class T, bool isFullSort>
void Sort(const LocalTensor<T> &dst, const LocalTensor<T> &concat, const LocalTensor<uint32_t> &index, LocalTensor<T> &tmp,
          int64_t repeatTime, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "Sort", F16 | F32, F16 | F32)
    ascend_twin::MoveCall c;
    c.api = "Sort";
    c.site = site;
    c.n[0] = repeatTime;
    c.n[1] = isFullSort;
    c.arg[0] = ascend_twin::vec_arg(dst);
    c.arg[1] = ascend_twin::vec_arg(concat);
    c.arg[2] = ascend_twin::vec_arg(index);
    c.arg[3] = ascend_twin::vec_arg(tmp);
    ascend_twin::vector_full_sort(c);
}
template <class T>
void Extract(const LocalTensor<T> &dstValue, const LocalTensor<uint32_t> &dstIndex, const LocalTensor<T> &sorted, int64_t repeatTime,
             ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "Extract", F16 | F32, F16 | F32)
    ascend_twin::MoveCall c;
    c.api = "Extract";
    c.site = site;
    c.n[0] = repeatTime;
    c.arg[0] = ascend_twin::vec_arg(dstValue);
    c.arg[1] = ascend_twin::vec_arg(dstIndex);
    c.arg[2] = ascend_twin::vec_arg(sorted);
    ascend_twin::vector_extract(c);
}
// In elements of T: a sorted pair takes 8 B.
template <class T> uint32_t GetSortOffset(const uint32_t elemOffset) { return elemOffset * (8 / static_cast<uint32_t>(sizeof(T))); }
template <class T> uint32_t GetSortLen(const uint32_t elemCount) { return elemCount * (8 / static_cast<uint32_t>(sizeof(T))); }

// Transposition.
enum class TransposeType : uint8_t {
    TRANSPOSE_TYPE_NONE,
    TRANSPOSE_NZ2ND_0213,
    TRANSPOSE_NZ2NZ_0213,
    TRANSPOSE_NZ2NZ_012_WITH_N,
    TRANSPOSE_NZ2ND_012_WITH_N,
    TRANSPOSE_NZ2ND_012_WITHOUT_N,
    TRANSPOSE_NZ2NZ_012_WITHOUT_N,
    TRANSPOSE_ND2ND_ONLY,
    TRANSPOSE_ND_UB_GM,
    TRANSPOSE_GRAD_ND_UB_GM,
    TRANSPOSE_ND2ND_B16,
    TRANSPOSE_NCHW2NHWC,
    TRANSPOSE_NHWC2NCHW
};
struct TransposeParamsExt {
    constexpr TransposeParamsExt() = default;
    constexpr TransposeParamsExt(uint16_t n, uint16_t c, uint16_t h, uint16_t w, TransposeType type)
        : nSize(n), cSize(c), hSize(h), wSize(w), transposeType(type)
    {}
    uint16_t nSize = 0;
    uint16_t cSize = 0;
    uint16_t hSize = 0;
    uint16_t wSize = 0;
    TransposeType transposeType = TransposeType::TRANSPOSE_ND2ND_B16;
};

template <class T>
void Transpose(const LocalTensor<T> &dst, const LocalTensor<T> &src, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "Transpose", I16 | U16 | F16, I16 | U16 | F16)
    ascend_twin::MoveCall c;
    c.api = "Transpose";
    c.site = site;
    c.arg[0] = ascend_twin::vec_arg(dst);
    c.arg[1] = ascend_twin::vec_arg(src);
    ascend_twin::vector_transpose(c);
}
template <class T>
void Transpose(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<uint8_t> &sharedTmpBuffer,
               const TransposeParamsExt &transposeParams, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "Transpose with parameters", I8 | U8 | I16 | U16 | F16 | I32 | U32 | F32,
                      I8 | U8 | FP8 | I16 | U16 | F16 | BF16 | I32 | U32 | F32)
    ascend_twin::MoveCall c;
    c.api = "Transpose";
    c.site = site;
    c.mode = static_cast<uint8_t>(transposeParams.transposeType);
    c.n[0] = transposeParams.nSize;
    c.n[1] = transposeParams.cSize;
    c.n[2] = transposeParams.hSize;
    c.n[3] = transposeParams.wSize;
    c.arg[0] = ascend_twin::vec_arg(dst);
    c.arg[1] = ascend_twin::vec_arg(src);
    c.arg[2] = ascend_twin::vec_arg(sharedTmpBuffer);
    ascend_twin::vector_transpose_ext(c);
}

template <class T>
void TransDataTo5HD(uint64_t dstList[NCHW_CONV_ADDR_LIST_SIZE], uint64_t srcList[NCHW_CONV_ADDR_LIST_SIZE],
                    const TransDataTo5HDParams &p, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "TransDataTo5HD", I8 | U8 | I16 | U16 | F16 | I32 | U32 | F32, I8 | U8 | I16 | U16 | F16 | BF16 | I32 | U32 | F32)
    ascend_twin::MoveCall c;
    c.api = "TransDataTo5HD";
    c.site = site;
    c.n[0] = p.repeatTimes;
    c.n[1] = p.dstRepStride;
    c.n[2] = p.srcRepStride;
    c.high[0] = p.dstHighHalf;
    c.high[1] = p.srcHighHalf;
    c.arg[0].type = ascend_twin::TypeOf<T>::value;
    ascend_twin::vector_5hd(c, dstList, srcList);
}
template <class T>
void TransDataTo5HD(const LocalTensor<T> (&dstList)[NCHW_CONV_ADDR_LIST_SIZE], const LocalTensor<T> (&srcList)[NCHW_CONV_ADDR_LIST_SIZE],
                    const TransDataTo5HDParams &p, ascend_twin::Site site = ascend_twin::Site::here())
{
    uint64_t dst[NCHW_CONV_ADDR_LIST_SIZE], src[NCHW_CONV_ADDR_LIST_SIZE];
    for (int i = 0; i < NCHW_CONV_ADDR_LIST_SIZE; i++) {
        dst[i] = dstList[i].twin_addr();
        src[i] = srcList[i].twin_addr();
    }
    TransDataTo5HD<T>(dst, src, p, site);
}
// The addresses are read from the tensors with the scalar unit.
template <class T>
void TransDataTo5HD(const LocalTensor<uint64_t> &dst, const LocalTensor<uint64_t> &src, const TransDataTo5HDParams &p,
                    ascend_twin::Site site = ascend_twin::Site::here())
{
    uint64_t dstList[NCHW_CONV_ADDR_LIST_SIZE], srcList[NCHW_CONV_ADDR_LIST_SIZE];
    for (uint32_t i = 0; i < NCHW_CONV_ADDR_LIST_SIZE; i++) {
        dstList[i] = dst.GetValue(i, site);
        srcList[i] = src.GetValue(i, site);
    }
    TransDataTo5HD<T>(dstList, srcList, p, site);
}

// Rearranging (3510).
#define ASCEND_TWIN_INTERLEAVE(call, direction)                                                                        \
    template <class T>                                                                                                 \
    void call(const LocalTensor<T> &dst0, const LocalTensor<T> &dst1, const LocalTensor<T> &src0, const LocalTensor<T> &src1, \
              int64_t count, ascend_twin::Site site = ascend_twin::Site::here())                                       \
    {                                                                                                                  \
        ASCEND_TWIN_TYPES(T, #call, NONE, I8 | U8 | I16 | U16 | F16 | BF16 | I32 | U32 | F32 | I64 | U64)              \
        ascend_twin::MoveCall c;                                                                                       \
        c.api = #call;                                                                                                 \
        c.site = site;                                                                                                 \
        c.args = 4;                                                                                                    \
        c.mode = direction;                                                                                            \
        c.n[0] = count;                                                                                                \
        c.arg[0] = ascend_twin::vec_arg(dst0);                                                                         \
        c.arg[1] = ascend_twin::vec_arg(dst1);                                                                         \
        c.arg[2] = ascend_twin::vec_arg(src0);                                                                         \
        c.arg[3] = ascend_twin::vec_arg(src1);                                                                         \
        ascend_twin::vector_interleave(c);                                                                             \
    }
ASCEND_TWIN_INTERLEAVE(Interleave, 0)
ASCEND_TWIN_INTERLEAVE(DeInterleave, 1)
template <class T>
void DeInterleave(const LocalTensor<T> &dst0, const LocalTensor<T> &dst1, const LocalTensor<T> &src, int64_t srcCount,
                  ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "DeInterleave", NONE, I8 | U8 | I16 | U16 | F16 | BF16 | I32 | U32 | F32 | I64 | U64)
    ascend_twin::MoveCall c;
    c.api = "DeInterleave";
    c.site = site;
    c.args = 3;
    c.mode = 1;
    c.n[0] = srcCount;
    c.arg[0] = ascend_twin::vec_arg(dst0);
    c.arg[1] = ascend_twin::vec_arg(dst1);
    c.arg[2] = ascend_twin::vec_arg(src);
    ascend_twin::vector_interleave(c);
}
// Low half of the product to `dst0`, high half to `dst1`.
template <class T>
void Mull(const LocalTensor<T> &dst0, const LocalTensor<T> &dst1, const LocalTensor<T> &src0, const LocalTensor<T> &src1, int64_t count,
          ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "Mull", NONE, I32 | U32)
    ascend_twin::MoveCall c;
    c.api = "Mull";
    c.site = site;
    c.n[0] = count;
    c.arg[0] = ascend_twin::vec_arg(dst0);
    c.arg[1] = ascend_twin::vec_arg(dst1);
    c.arg[2] = ascend_twin::vec_arg(src0);
    c.arg[3] = ascend_twin::vec_arg(src1);
    ascend_twin::vector_mull(c);
}

} // namespace AscendC

#endif
