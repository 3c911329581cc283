// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The rest of the vector calls: conversion, filling, comparison, selection, gathering, reduction, sorting, transposition,
// and the mask registers. Included by vector.h.

#ifndef ASCEND_TWIN_VECTOR_DATA_H
#define ASCEND_TWIN_VECTOR_DATA_H

namespace ascend_twin {

// The rounding modes (bit RoundMode) that a conversion takes; 0: there is no such conversion.
constexpr uint16_t cast_rounds(int arch, uint8_t dst, uint8_t src)
{
    constexpr uint16_t none = 1u << 0, five = 0x3e, odd = 1u << 6, hif = (1u << 4) | (1u << 7), rint = 1u << 1;
    const bool n = arch == 3510;
    switch (src) {
    case ASCEND_TWIN_I4:
        return dst == ASCEND_TWIN_F16 || (n && (dst == ASCEND_TWIN_I16 || dst == ASCEND_TWIN_BF16)) ? none : 0;
    case ASCEND_TWIN_I8:
        return dst == ASCEND_TWIN_F16 || (n && (dst == ASCEND_TWIN_I16 || dst == ASCEND_TWIN_I32)) ? none : 0;
    case ASCEND_TWIN_U8:
        return dst == ASCEND_TWIN_F16 || (n && (dst == ASCEND_TWIN_U16 || dst == ASCEND_TWIN_U32)) ? none : 0;
    case ASCEND_TWIN_E2M1:
    case ASCEND_TWIN_E1M2:
        return n && dst == ASCEND_TWIN_BF16 ? none : 0;
    case ASCEND_TWIN_HIF8:
        return n && (dst == ASCEND_TWIN_F16 || dst == ASCEND_TWIN_F32) ? none : 0;
    case ASCEND_TWIN_E4M3:
    case ASCEND_TWIN_E5M2:
        return n && dst == ASCEND_TWIN_F32 ? none : 0;
    case ASCEND_TWIN_I16:
        if (dst == ASCEND_TWIN_F16) {
            return n ? five : five | none;
        }
        return dst == ASCEND_TWIN_F32 ||
                       (n && (dst == ASCEND_TWIN_I4 || dst == ASCEND_TWIN_U8 || dst == ASCEND_TWIN_I32 || dst == ASCEND_TWIN_U32))
                   ? none
                   : 0;
    case ASCEND_TWIN_U16:
        return n && (dst == ASCEND_TWIN_U8 || dst == ASCEND_TWIN_U32) ? none : 0;
    case ASCEND_TWIN_F16:
        if (dst == ASCEND_TWIN_F32) {
            return none;
        }
        if (dst == ASCEND_TWIN_HIF8) {
            return n ? hif : 0;
        }
        if (dst == ASCEND_TWIN_I4 || dst == ASCEND_TWIN_I8 || dst == ASCEND_TWIN_U8) {
            return n ? five : five | none;
        }
        // The page's own example converts half to int32_t with CAST_NONE, as with CAST_RINT.
        return dst == ASCEND_TWIN_I32 ? five | none : dst == ASCEND_TWIN_I16 || (n && dst == ASCEND_TWIN_BF16) ? five : 0;
    case ASCEND_TWIN_BF16:
        if (dst == ASCEND_TWIN_F32) {
            return none;
        }
        return dst == ASCEND_TWIN_I32 || (n && (dst == ASCEND_TWIN_E2M1 || dst == ASCEND_TWIN_E1M2 || dst == ASCEND_TWIN_F16)) ? five
                                                                                                                              : 0;
    case ASCEND_TWIN_I32:
        if (dst == ASCEND_TWIN_F16) {
            return 0xff; // the mode is not used, SetDeqScale is
        }
        if (dst == ASCEND_TWIN_F32) {
            return n ? five : five | none;
        }
        return dst == ASCEND_TWIN_I16 || dst == ASCEND_TWIN_I64 || (n && (dst == ASCEND_TWIN_U8 || dst == ASCEND_TWIN_U16)) ? none : 0;
    case ASCEND_TWIN_U32:
        return n && (dst == ASCEND_TWIN_U8 || dst == ASCEND_TWIN_I16 || dst == ASCEND_TWIN_U16) ? none : 0;
    case ASCEND_TWIN_F32:
        switch (dst) {
        case ASCEND_TWIN_F16:
            return five | odd | none;
        case ASCEND_TWIN_BF16:
        case ASCEND_TWIN_I16:
        case ASCEND_TWIN_I32:
        case ASCEND_TWIN_F32:
        case ASCEND_TWIN_I64:
            return five;
        case ASCEND_TWIN_HIF8:
            return n ? hif : 0;
        case ASCEND_TWIN_E4M3:
        case ASCEND_TWIN_E5M2:
            return n ? rint : 0;
        default:
            return 0;
        }
    case ASCEND_TWIN_I64:
        return dst == ASCEND_TWIN_I32 ? none : dst == ASCEND_TWIN_F32 ? five : 0;
    default:
        return 0;
    }
}

template <class T, class U>
inline void vec_cast(const AscendC::LocalTensor<T> &dst, const AscendC::LocalTensor<U> &src, AscendC::RoundMode round, VecMask mask,
                     const AscendC::UnaryRepeatParams &p, Site site)
{
    constexpr uint16_t rounds = cast_rounds(__NPU_ARCH__, TypeOf<T>::value, TypeOf<U>::value);
#if __NPU_ARCH__ == 3510
    static_assert(rounds != 0, "Cast: dav-3510 has no conversion between these element types");
#else
    static_assert(rounds != 0, "Cast: dav-2201 has no conversion between these element types (half and bfloat16_t go through float)");
#endif
    if (((rounds >> static_cast<int>(round)) & 1) == 0) {
        fail(Rule::Range, "Cast", "roundMode", site, "roundMode %d is not one that this pair of element types takes",
             static_cast<int>(round));
    }
    VecCall c;
    c.api = "Cast";
    c.site = site;
    c.op = VecOp::Cast;
    c.round = static_cast<uint8_t>(round);
    c.args = 2;
    c.blk_limit = 65535;
    c.arg[0] = vec_arg(dst, p.dstBlkStride, p.dstRepStride);
    c.arg[1] = vec_arg(src, p.srcBlkStride, p.srcRepStride);
    c.mask = mask;
    vector_call(c);
}

// A source or a single element of a call with a flexible scalar (3510).
struct Flexible {
    VecArg arg;
    uint64_t bits = 0;
    uint8_t type = ASCEND_TWIN_NONE;
    bool tensor = false;
};
template <class T, class E> inline Flexible flexible(const AscendC::LocalTensor<E> &t, uint32_t blk, uint32_t rep)
{
    static_assert(std::is_same<T, E>::value, "the element types of destination and source differ");
    Flexible f;
    f.arg = vec_arg(t, blk, rep);
    f.tensor = true;
    return f;
}
template <class T, class V> inline Flexible flexible(const V &v, uint32_t, uint32_t)
{
    Flexible f;
    f.bits = scalar_bits(static_cast<T>(v));
    f.type = TypeOf<T>::value;
    return f;
}
// `index`: which of the two is the single element when both are tensors.
template <class T, class S, class V>
inline void vec_flexible(VecOp op, VecOp reversed, const char *api, const AscendC::LocalTensor<T> &dst, const S &a, const V &b,
                         int index, VecMask mask, const AscendC::UnaryRepeatParams &p, Site site)
{
    Flexible x = flexible<T>(a, p.srcBlkStride, p.srcRepStride), y = flexible<T>(b, p.srcBlkStride, p.srcRepStride);
    bool first = !x.tensor || (y.tensor && index == 0);
    VecCall c;
    c.api = api;
    c.site = site;
    c.op = first ? reversed : op;
    c.args = 2;
    c.blk_limit = 65535;
    c.arg[0] = vec_arg(dst, p.dstBlkStride, p.dstRepStride);
    const Flexible &vector = first ? y : x, &scalar = first ? x : y;
    c.arg[1] = vector.arg;
    if (scalar.tensor) {
        c.arg[2] = scalar.arg;
        c.arg[2].single = true;
        c.args = 3;
    } else {
        c.scalar = scalar.bits;
        c.scalar_type = scalar.type;
    }
    c.mask = mask;
    vector_call(c);
}

// What the other calls need; unused fields stay 0.
struct MoveCall {
    const char *api = "";
    Site site{};
    uint8_t args = 0;
    uint8_t mode = 0;
    uint8_t order = 0;
    bool index = false;
    bool high[2] = {false, false};
    VecArg arg[4];
    VecMask mask;
    uint64_t scalar = 0;
    int64_t n[6] = {0, 0, 0, 0, 0, 0};
};
void vector_compare(const MoveCall &call); // dst, src0, src1; n[0]: 1 the second is a scalar, 2 it is a single element; mode
void vector_compare_register(const MoveCall &call); // src0, src1
void vector_select(const MoveCall &call); // dst, mask, src0, src1
void vector_gather(const MoveCall &call); // dst, src, offsets; n[0] base, n[1] dstRepStride
void vector_scatter(const MoveCall &call); // dst, src, offsets; n[0] base, n[1] srcRepStride
void vector_gatherb(const MoveCall &call); // dst, src, offsets; n[0] repeat
uint64_t vector_gather_mask(const MoveCall &call); // dst, src, [pattern]; n: pattern, reduceMode, mask, repeat
void vector_brcb(const MoveCall &call); // dst, src; n[0] repeat
// Reductions. mode: AscendC::ReduceType. n[0] stride of the destination.
void vector_reduce_repeat(const MoveCall &call); // dst, src; order
void vector_reduce_block(const MoveCall &call); // dst, src
void vector_reduce_pair(const MoveCall &call); // dst, src
void vector_reduce(const MoveCall &call); // dst, src, tmp; index
void vector_sort32(const MoveCall &call); // dst, src, index; n[0] repeat
void vector_merge(const MoveCall &call, const VecArg src[4]); // dst; n: lengths, repeat, valid; index: suspend
void vector_extract(const MoveCall &call); // values, indices, sorted; n[0] repeat
void vector_full_sort(const MoveCall &call); // dst, concat, index, tmp; n[0] repeat, n[1] full
void vector_transpose(const MoveCall &call); // dst, src
void vector_transpose_ext(const MoveCall &call); // dst, src, tmp; n: N, C, H, W; mode
void vector_5hd(const MoveCall &call, const uint64_t dst[16], const uint64_t src[16]); // arg[0]: type; n: repeat, strides
void vector_interleave(const MoveCall &call); // dst0, dst1, src0, src1; n[0] count, mode 0 interleave 1 back
void vector_mull(const MoveCall &call); // dst0, dst1, src0, src1; n[0] count
void vector_cast_deq(const MoveCall &call); // dst, src; mode 1: per channel; index: half block
void vector_set_cmpmask(const MoveCall &call); // src
void vector_get_cmpmask(const MoveCall &call); // dst
void vector_sort_result(uint16_t counts[4], const char *api, Site site);
uint64_t vector_reduce_result(int which, const char *api, Site site); // 0 value, 1 index, 2 sum
void vector_set_mask(uint64_t high, uint64_t low, bool dirty, const char *api, Site site);
void vector_set_mask_mode(bool counter, const char *api, Site site);
// A value of F32 as bits of another type.
uint64_t scalar_cast(uint8_t type, float v, uint8_t round);
void vector_deq_scale(uint64_t bits, const char *api, Site site);

} // namespace ascend_twin

namespace AscendC {

template <class T, class U>
void Cast(const LocalTensor<T> &dst, const LocalTensor<U> &src, const RoundMode &roundMode, int64_t count,
          ascend_twin::Site site = ascend_twin::Site::here())
{
    ascend_twin::vec_cast(dst, src, roundMode, ascend_twin::vec_count(count), UnaryRepeatParams(), site);
}
template <class T, class U, bool isSetMask = true>
void Cast(const LocalTensor<T> &dst, const LocalTensor<U> &src, const RoundMode &roundMode, ascend_twin::MaskArg mask,
          int64_t repeatTime, const UnaryRepeatParams &repeatParams, ascend_twin::Site site = ascend_twin::Site::here())
{
    ascend_twin::vec_cast(dst, src, roundMode,
                          mask.with(isSetMask, repeatTime, ascend_twin::kWide<T> || ascend_twin::kWide<U>), repeatParams, site);
}

// Conversions of single values, by the scalar unit.
inline float Cast(const bfloat16_t &bVal) { return bVal; }
inline bfloat16_t Cast(const float &fVal) { return bfloat16_t(fVal); }
inline float ToFloat(const bfloat16_t &bVal) { return bVal; }
inline bfloat16_t ToBfloat16(const float &fVal) { return bfloat16_t(fVal); }
template <class T, class U, RoundMode roundMode> U Cast(T valueIn)
{
    static_assert(std::is_same<T, float>::value && (std::is_same<U, half>::value || std::is_same<U, int32_t>::value),
                  "Cast of a value goes from float to half or int32_t");
    uint64_t bits = ascend_twin::scalar_cast(ascend_twin::TypeOf<U>::value, static_cast<float>(valueIn), static_cast<uint8_t>(roundMode));
    U v;
    memcpy(static_cast<void *>(&v), &bits, sizeof(U));
    return v;
}
template <class T, class U, RoundMode roundMode> U ScalarCast(T valueIn)
{
    return Cast<T, U, roundMode>(valueIn);
}

template <class T, RoundMode roundMode>
void Truncate(const LocalTensor<T> &dst, const LocalTensor<T> &src, int64_t count, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "Truncate", NONE, F16 | F32 | BF16)
    static_assert(roundMode >= RoundMode::CAST_RINT && roundMode <= RoundMode::CAST_TRUNC,
                  "Truncate: CAST_RINT, CAST_FLOOR, CAST_CEIL, CAST_ROUND or CAST_TRUNC");
    ascend_twin::VecCall c;
    c.api = "Truncate";
    c.site = site;
    c.op = ascend_twin::VecOp::Truncate;
    c.round = static_cast<uint8_t>(roundMode);
    c.args = 2;
    c.arg[0] = ascend_twin::vec_arg(dst);
    c.arg[1] = ascend_twin::vec_arg(src);
    c.mask = ascend_twin::vec_count(count);
    ascend_twin::vector_call(c);
}

template <class T>
void Duplicate(const LocalTensor<T> &dst, const T &scalarValue, int64_t count, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "Duplicate", I16 | U16 | F16 | BF16 | I32 | U32 | F32,
                      I8 | U8 | FP4 | FP8 | I16 | U16 | F16 | BF16 | I32 | U32 | F32 | I64 | U64)
    ascend_twin::VecCall c;
    c.api = "Duplicate";
    c.site = site;
    c.op = ascend_twin::VecOp::Duplicate;
    c.args = 1;
    c.arg[0] = ascend_twin::vec_arg(dst);
    c.mask = ascend_twin::vec_count(count);
    c.scalar = ascend_twin::scalar_bits(scalarValue);
    c.scalar_type = ascend_twin::TypeOf<T>::value;
    ascend_twin::vector_call(c);
}
template <class T, bool isSetMask = true>
void Duplicate(const LocalTensor<T> &dst, const T &scalarValue, ascend_twin::MaskArg mask, int64_t repeatTime, int64_t dstBlockStride,
               int64_t dstRepeatStride, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "Duplicate with mask", I16 | U16 | F16 | BF16 | I32 | U32 | F32, I16 | U16 | F16 | BF16 | I32 | U32 | F32)
    ascend_twin::VecCall c;
    c.api = "Duplicate";
    c.site = site;
    c.op = ascend_twin::VecOp::Duplicate;
    c.args = 1;
    c.blk_limit = 65535;
    c.arg[0] = ascend_twin::vec_arg(dst, static_cast<uint32_t>(dstBlockStride), static_cast<uint32_t>(dstRepeatStride));
    c.mask = mask.with(isSetMask, repeatTime, ascend_twin::kWide<T>);
    c.scalar = ascend_twin::scalar_bits(scalarValue);
    c.scalar_type = ascend_twin::TypeOf<T>::value;
    ascend_twin::vector_call(c);
}
// The first element of `src`.
template <class T>
void Duplicate(const LocalTensor<T> &dst, const LocalTensor<T> &src, int64_t count, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "Duplicate of a tensor", NONE, I8 | U8 | FP8 | I16 | U16 | F16 | BF16 | I32 | U32 | F32 | I64 | U64)
    ascend_twin::VecCall c;
    c.api = "Duplicate";
    c.site = site;
    c.op = ascend_twin::VecOp::Copy;
    c.args = 2;
    c.arg[0] = ascend_twin::vec_arg(dst);
    c.arg[1] = ascend_twin::vec_arg(src);
    c.arg[1].single = true;
    c.mask = ascend_twin::vec_count(count);
    ascend_twin::vector_call(c);
}

template <class T>
void CreateVecIndex(LocalTensor<T> dst, const T &firstValue, int64_t count, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "CreateVecIndex", I16 | F16 | I32 | F32, I8 | I16 | F16 | I32 | F32 | I64)
    ascend_twin::VecCall c;
    c.api = "CreateVecIndex";
    c.site = site;
    c.op = ascend_twin::VecOp::Index;
    c.args = 1;
    c.arg[0] = ascend_twin::vec_arg(dst);
    c.mask = ascend_twin::vec_count(count);
    c.scalar = ascend_twin::scalar_bits(firstValue);
    c.scalar_type = ascend_twin::TypeOf<T>::value;
    ascend_twin::vector_call(c);
}
template <class T>
void CreateVecIndex(LocalTensor<T> dst, const T &firstValue, ascend_twin::MaskArg mask, int64_t repeatTime, int64_t dstBlkStride,
                    int64_t dstRepStride, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "CreateVecIndex with mask", I16 | F16 | I32 | F32, I16 | F16 | I32 | F32)
    ascend_twin::VecCall c;
    c.api = "CreateVecIndex";
    c.site = site;
    c.op = ascend_twin::VecOp::Index;
    c.args = 1;
    c.blk_limit = 65535;
    c.arg[0] = ascend_twin::vec_arg(dst, static_cast<uint32_t>(dstBlkStride), static_cast<uint32_t>(dstRepStride));
    c.mask = mask.with(true, repeatTime, ascend_twin::kWide<T>);
    c.scalar = ascend_twin::scalar_bits(firstValue);
    c.scalar_type = ascend_twin::TypeOf<T>::value;
    ascend_twin::vector_call(c);
}

// first, first + diff, first + 2 diff, ...
#define ASCEND_TWIN_ARANGE(call)                                                                                       \
    template <class T>                                                                                                 \
    void call(const LocalTensor<T> &dst, const T firstValue, const T diffValue, int64_t count,                         \
              ascend_twin::Site site = ascend_twin::Site::here())                                                      \
    {                                                                                                                  \
        ASCEND_TWIN_TYPES(T, #call, I16 | F16 | I32 | F32, I16 | F16 | I32 | F32 | I64)                                \
        ascend_twin::VecCall c;                                                                                        \
        c.api = #call;                                                                                                 \
        c.site = site;                                                                                                 \
        c.op = ascend_twin::VecOp::Index;                                                                              \
        c.args = 1;                                                                                                    \
        c.arg[0] = ascend_twin::vec_arg(dst);                                                                          \
        c.mask = ascend_twin::vec_count(count);                                                                        \
        c.scalar = ascend_twin::scalar_bits(firstValue);                                                               \
        c.scalar_type = ascend_twin::TypeOf<T>::value;                                                                 \
        c.step = ascend_twin::scalar_bits(diffValue);                                                                  \
        c.stepped = true;                                                                                              \
        ascend_twin::vector_call(c);                                                                                   \
    }
ASCEND_TWIN_ARANGE(ArithProgression)
ASCEND_TWIN_ARANGE(Arange)

template <class T, bool isSetMask = true>
void Copy(const LocalTensor<T> &dst, const LocalTensor<T> &src, ascend_twin::MaskArg mask, int64_t repeatTime,
          const CopyRepeatParams &repeatParams, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "Copy", I16 | U16 | F16 | BF16 | I32 | U32 | F32,
                      I8 | U8 | FP8 | I16 | U16 | F16 | BF16 | I32 | U32 | F32 | I64 | U64)
    ascend_twin::VecCall c;
    c.api = "Copy";
    c.site = site;
    c.op = ascend_twin::VecOp::Copy;
    c.args = 2;
    c.blk_limit = 65535;
    c.rep_limit = 4095;
    c.arg[0] = ascend_twin::vec_arg(dst, repeatParams.dstStride, repeatParams.dstRepeatSize);
    c.arg[1] = ascend_twin::vec_arg(src, repeatParams.srcStride, repeatParams.srcRepeatSize);
    c.mask = mask.with(isSetMask, repeatTime, ascend_twin::kWide<T>);
    ascend_twin::vector_call(c);
}
template <class T, bool isSetMask = true>
void Copy(const LocalTensor<T> &dst, const LocalTensor<T> &src, int64_t count, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "Copy of the first elements", NONE,
                      I8 | U8 | FP4 | FP8 | I16 | U16 | F16 | BF16 | I32 | U32 | F32 | I64 | U64)
    ascend_twin::vec_unary(ascend_twin::VecOp::Copy, "Copy", dst, src, ascend_twin::vec_count(count), UnaryRepeatParams(), site);
}

// Calls where the scalar stands on either side, and may be an element of a tensor (3510).
#if __NPU_ARCH__ == 3510
#define ASCEND_TWIN_FLEXIBLE(call, op, reversed, on3510_count, on3510)                                                 \
    template <class T = BinaryDefaultType, bool isSetMask = true, const BinaryConfig &config = DEFAULT_BINARY_CONFIG, class U, \
              class S, class V>                                                                                        \
    void call(const LocalTensor<U> &dst, const S &src0, const V &src1, int64_t count,                                  \
              ascend_twin::Site site = ascend_twin::Site::here())                                                      \
    {                                                                                                                  \
        ASCEND_TWIN_TYPES(U, #call, NONE, on3510_count)                                                                \
        ascend_twin::vec_flexible(ascend_twin::VecOp::op, ascend_twin::VecOp::reversed, #call, dst, src0, src1,        \
                                  config.scalarTensorIndex, ascend_twin::vec_count(count), UnaryRepeatParams(), site); \
    }                                                                                                                  \
    template <class T = BinaryDefaultType, bool isSetMask = true, const BinaryConfig &config = DEFAULT_BINARY_CONFIG, class U, \
              class S, class V>                                                                                        \
    void call(const LocalTensor<U> &dst, const S &src0, const V &src1, ascend_twin::MaskArg mask, int64_t repeatTime,  \
              const UnaryRepeatParams &repeatParams, ascend_twin::Site site = ascend_twin::Site::here())               \
    {                                                                                                                  \
        ASCEND_TWIN_TYPES(U, #call " with mask", NONE, on3510)                                                         \
        ascend_twin::vec_flexible(ascend_twin::VecOp::op, ascend_twin::VecOp::reversed, #call, dst, src0, src1,        \
                                  config.scalarTensorIndex,                                                            \
                                  mask.with(isSetMask, repeatTime, ascend_twin::kWide<U>), repeatParams, site);        \
    }
ASCEND_TWIN_FLEXIBLE(Adds, Adds, Adds, I8 | U8 | I16 | F16 | BF16 | I32 | F32 | I64 | U64, I16 | F16 | BF16 | I32 | F32)
ASCEND_TWIN_FLEXIBLE(Subs, Subs, SubsFrom, I16 | F16 | BF16 | I32 | F32 | I64 | U64, I16 | F16 | BF16 | I32 | F32)
ASCEND_TWIN_FLEXIBLE(Muls, Muls, Muls, I16 | F16 | BF16 | I32 | F32 | I64 | U64, I16 | F16 | BF16 | I32 | F32)
ASCEND_TWIN_FLEXIBLE(Divs, Divs, DivsFrom, F16 | F32 | I64 | U64, F16 | F32)
ASCEND_TWIN_FLEXIBLE(Maxs, Maxs, Maxs, I8 | U8 | I16 | F16 | BF16 | I32 | F32 | I64 | U64, I16 | F16 | BF16 | I32 | F32)
ASCEND_TWIN_FLEXIBLE(Mins, Mins, Mins, I8 | U8 | I16 | F16 | BF16 | I32 | F32 | I64 | U64, I16 | F16 | BF16 | I32 | F32)
ASCEND_TWIN_FLEXIBLE(Ands, Ands, Ands, I16 | U16 | I64 | U64, I16 | U16)
ASCEND_TWIN_FLEXIBLE(Ors, Ors, Ors, I16 | U16 | I64 | U64, I16 | U16)

// float times scalar to half, rounded half away from zero.
template <class T0 = BinaryDefaultType, class T1 = BinaryDefaultType, const BinaryConfig &config = DEFAULT_BINARY_CONFIG, class S, class V>
void MulsCast(const LocalTensor<half> &dst, const S &src0, const V &src1, int64_t count,
              ascend_twin::Site site = ascend_twin::Site::here())
{
    using namespace ascend_twin;
    Flexible x = flexible<float>(src0, 1, 8), y = flexible<float>(src1, 1, 8);
    bool first = !x.tensor || (y.tensor && config.scalarTensorIndex == 0);
    VecCall c;
    c.api = "MulsCast";
    c.site = site;
    c.op = VecOp::MulsCast;
    c.round = static_cast<uint8_t>(RoundMode::CAST_ROUND);
    c.args = 2;
    c.arg[0] = vec_arg(dst);
    const Flexible &vector = first ? y : x, &scalar = first ? x : y;
    c.arg[1] = vector.arg;
    if (scalar.tensor) {
        c.arg[2] = scalar.arg;
        c.arg[2].single = true;
        c.args = 3;
    } else {
        c.scalar = scalar.bits;
        c.scalar_type = scalar.type;
    }
    c.mask = vec_count(count);
    vector_call(c);
}
#endif

// Masks.
template <class T, MaskMode mode = MaskMode::NORMAL>
void SetVectorMask(const uint64_t maskHigh, const uint64_t maskLow, ascend_twin::Site site = ascend_twin::Site::here())
{
    ascend_twin::vector_set_mask(mode == MaskMode::COUNTER ? 0 : maskHigh, maskLow, true, "SetVectorMask", site);
}
template <class T, MaskMode mode = MaskMode::NORMAL>
void SetVectorMask(int32_t len, ascend_twin::Site site = ascend_twin::Site::here())
{
    if (mode == MaskMode::COUNTER) {
        ascend_twin::vector_set_mask(0, static_cast<uint64_t>(len), true, "SetVectorMask", site);
        return;
    }
    constexpr int32_t lanes = 2048 / static_cast<int32_t>(ascend_twin::ElementBits<T>::value) > 128 ? 128 : 2048 / static_cast<int32_t>(ascend_twin::ElementBits<T>::value);
    if (len < 0 || len > lanes) {
        ascend_twin::fail(ascend_twin::Rule::Range, "SetVectorMask", "len", site, "%d elements, a repeat has %d", len, lanes);
    }
    auto ones = [](int32_t n) { return n <= 0 ? 0 : n >= 64 ? ~0ull : (1ull << n) - 1; };
    ascend_twin::vector_set_mask(ones(len - 64), ones(len), true, "SetVectorMask", site);
}
inline void ResetMask(ascend_twin::Site site = ascend_twin::Site::here())
{
    ascend_twin::vector_set_mask(~0ull, ~0ull, false, "ResetMask", site);
}
inline void SetMaskCount(ascend_twin::Site site = ascend_twin::Site::here())
{
    ascend_twin::vector_set_mask_mode(true, "SetMaskCount", site);
}
inline void SetMaskNorm(ascend_twin::Site site = ascend_twin::Site::here())
{
    ascend_twin::vector_set_mask_mode(false, "SetMaskNorm", site);
}

// Quantisation.
inline void SetDeqScale(half scale, ascend_twin::Site site = ascend_twin::Site::here())
{
    ascend_twin::vector_deq_scale(scale.bits, "SetDeqScale", site);
}
inline void SetDeqScale(float scale, int16_t offset, bool signMode, ascend_twin::Site site = ascend_twin::Site::here())
{
    uint64_t bits = ascend_twin::scalar_bits(scale) | (static_cast<uint64_t>(offset & 0x1ff) << 37) | (static_cast<uint64_t>(signMode) << 46);
    ascend_twin::vector_deq_scale(bits, "SetDeqScale", site);
}
// Writes sixteen words of scale, offset and sign to `vdeq` with the scalar unit.
template <class T>
void SetDeqScale(const LocalTensor<T> &vdeq, const VdeqInfo &vdeqInfo, ascend_twin::Site site = ascend_twin::Site::here())
{
    static_assert(std::is_same<T, uint64_t>::value, "SetDeqScale: the tensor holds uint64_t");
    for (int i = 0; i < 16; i++) {
        uint64_t bits = ascend_twin::scalar_bits(vdeqInfo.vdeqScale[i]) | (static_cast<uint64_t>(vdeqInfo.vdeqOffset[i] & 0x1ff) << 37) |
                        (static_cast<uint64_t>(vdeqInfo.vdeqSignMode[i]) << 46);
        vdeq.SetValue(static_cast<uint32_t>(i), bits, site);
    }
    ascend_twin::vector_deq_scale(vdeq.twin_addr(), "SetDeqScale", site);
}

#define ASCEND_TWIN_CAST_DEQ(call)                                                                                     \
    template <class T, class U, bool isVecDeq = true, bool halfBlock = true>                                           \
    void call(const LocalTensor<T> &dst, const LocalTensor<U> &src, int64_t count,                                     \
              ascend_twin::Site site = ascend_twin::Site::here())                                                      \
    {                                                                                                                  \
        static_assert((std::is_same<T, half>::value && std::is_same<U, int32_t>::value) ||                             \
                          ((std::is_same<T, int8_t>::value || std::is_same<T, uint8_t>::value) && std::is_same<U, int16_t>::value), \
                      #call " goes from int32_t to half and from int16_t to int8_t or uint8_t");                       \
        ascend_twin::MoveCall c;                                                                                       \
        c.api = #call;                                                                                                 \
        c.site = site;                                                                                                 \
        c.mode = isVecDeq;                                                                                             \
        c.index = halfBlock;                                                                                           \
        c.arg[0] = ascend_twin::vec_arg(dst);                                                                          \
        c.arg[1] = ascend_twin::vec_arg(src);                                                                          \
        c.mask = ascend_twin::vec_count(count);                                                                        \
        ascend_twin::vector_cast_deq(c);                                                                               \
    }                                                                                                                  \
    template <class T, class U, bool isSetMask = true, bool isVecDeq = true, bool halfBlock = true>                    \
    void call(const LocalTensor<T> &dst, const LocalTensor<U> &src, ascend_twin::MaskArg mask, int64_t repeatTime,     \
              const UnaryRepeatParams &p, ascend_twin::Site site = ascend_twin::Site::here())                          \
    {                                                                                                                  \
        static_assert((std::is_same<T, half>::value && std::is_same<U, int32_t>::value) ||                             \
                          ((std::is_same<T, int8_t>::value || std::is_same<T, uint8_t>::value) && std::is_same<U, int16_t>::value), \
                      #call " goes from int32_t to half and from int16_t to int8_t or uint8_t");                       \
        ascend_twin::MoveCall c;                                                                                       \
        c.api = #call;                                                                                                 \
        c.site = site;                                                                                                 \
        c.mode = isVecDeq;                                                                                             \
        c.index = halfBlock;                                                                                           \
        c.arg[0] = ascend_twin::vec_arg(dst, p.dstBlkStride, p.dstRepStride);                                          \
        c.arg[1] = ascend_twin::vec_arg(src, p.srcBlkStride, p.srcRepStride);                                          \
        c.mask = mask.with(isSetMask, repeatTime, ascend_twin::kWide<U>);                                              \
        ascend_twin::vector_cast_deq(c);                                                                               \
    }
ASCEND_TWIN_CAST_DEQ(CastDequant)
ASCEND_TWIN_CAST_DEQ(CastDeq)

// Comparison: one bit for each element.
#define ASCEND_TWIN_COMPARE_CHECK(T, U, call, mode)                                                                    \
    ASCEND_TWIN_TYPES(T, call, F16 | F32 | I32, I8 | U8 | I16 | U16 | F16 | BF16 | I32 | U32 | F32 | I64 | U64)        \
    static_assert(sizeof(U) == 1, call ": the destination holds bits, as int8_t or uint8_t");                          \
    if (__NPU_ARCH__ == 2201 && std::is_same<T, int32_t>::value && (mode) != CMPMODE::EQ) {                            \
        ascend_twin::fail(ascend_twin::Rule::Type, call, "cmpMode", site, "int32_t is compared for equality only");    \
    }

template <class T, class U>
void Compare(const LocalTensor<U> &dst, const LocalTensor<T> &src0, const LocalTensor<T> &src1, CMPMODE cmpMode, int64_t count,
             ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_COMPARE_CHECK(T, U, "Compare", cmpMode)
    ascend_twin::MoveCall c;
    c.api = "Compare";
    c.site = site;
    c.args = 3;
    c.mode = static_cast<uint8_t>(cmpMode);
    c.arg[0] = ascend_twin::vec_arg(dst);
    c.arg[1] = ascend_twin::vec_arg(src0);
    c.arg[2] = ascend_twin::vec_arg(src1);
    c.mask = ascend_twin::vec_count(count);
    ascend_twin::vector_compare(c);
}
template <class T, class U, bool isSetMask = true>
void Compare(const LocalTensor<U> &dst, const LocalTensor<T> &src0, const LocalTensor<T> &src1, CMPMODE cmpMode,
             ascend_twin::MaskArg mask, int64_t repeatTime, const BinaryRepeatParams &p,
             ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_COMPARE_CHECK(T, U, "Compare", cmpMode)
    ascend_twin::MoveCall c;
    c.api = "Compare";
    c.site = site;
    c.args = 3;
    c.mode = static_cast<uint8_t>(cmpMode);
    c.arg[0] = ascend_twin::vec_arg(dst, p.dstBlkStride, p.dstRepStride);
    c.arg[1] = ascend_twin::vec_arg(src0, p.src0BlkStride, p.src0RepStride);
    c.arg[2] = ascend_twin::vec_arg(src1, p.src1BlkStride, p.src1RepStride);
    c.mask = mask.with(isSetMask, repeatTime, ascend_twin::kWide<T>);
    ascend_twin::vector_compare(c);
}
// To the comparison mask register.
template <class T, bool isSetMask = true>
void Compare(const LocalTensor<T> &src0, const LocalTensor<T> &src1, CMPMODE cmpMode, ascend_twin::MaskArg mask,
             const BinaryRepeatParams &p, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "Compare to the register", F16 | F32, F16 | F32)
    ascend_twin::MoveCall c;
    c.api = "Compare";
    c.site = site;
    c.mode = static_cast<uint8_t>(cmpMode);
    c.arg[0] = ascend_twin::vec_arg(src0, p.src0BlkStride, p.src0RepStride);
    c.arg[1] = ascend_twin::vec_arg(src1, p.src1BlkStride, p.src1RepStride);
    c.mask = mask.with(isSetMask, 1, ascend_twin::kWide<T>);
    ascend_twin::vector_compare_register(c);
}

#define ASCEND_TWIN_COMPARES(call)                                                                                     \
    template <class T, class U>                                                                                        \
    void call(const LocalTensor<U> &dst, const LocalTensor<T> &src0, const T src1Scalar, CMPMODE cmpMode, int64_t count, \
              ascend_twin::Site site = ascend_twin::Site::here())                                                      \
    {                                                                                                                  \
        ASCEND_TWIN_COMPARE_CHECK(T, U, #call, cmpMode)                                                                \
        ascend_twin::MoveCall c;                                                                                       \
        c.api = #call;                                                                                                 \
        c.site = site;                                                                                                 \
        c.args = 2;                                                                                                    \
        c.mode = static_cast<uint8_t>(cmpMode);                                                                        \
        c.n[0] = 1;                                                                                                    \
        c.scalar = ascend_twin::scalar_bits(src1Scalar);                                                               \
        c.arg[0] = ascend_twin::vec_arg(dst);                                                                          \
        c.arg[1] = ascend_twin::vec_arg(src0);                                                                         \
        c.mask = ascend_twin::vec_count(count);                                                                        \
        ascend_twin::vector_compare(c);                                                                                \
    }                                                                                                                  \
    template <class T, class U, bool isSetMask = true>                                                                 \
    void call(const LocalTensor<U> &dst, const LocalTensor<T> &src0, const T src1Scalar, CMPMODE cmpMode,              \
              ascend_twin::MaskArg mask, int64_t repeatTime, const UnaryRepeatParams &p,                               \
              ascend_twin::Site site = ascend_twin::Site::here())                                                      \
    {                                                                                                                  \
        ASCEND_TWIN_COMPARE_CHECK(T, U, #call, cmpMode)                                                                \
        ascend_twin::MoveCall c;                                                                                       \
        c.api = #call;                                                                                                 \
        c.site = site;                                                                                                 \
        c.args = 2;                                                                                                    \
        c.mode = static_cast<uint8_t>(cmpMode);                                                                        \
        c.n[0] = 1;                                                                                                    \
        c.scalar = ascend_twin::scalar_bits(src1Scalar);                                                               \
        c.arg[0] = ascend_twin::vec_arg(dst, p.dstBlkStride, p.dstRepStride);                                          \
        c.arg[1] = ascend_twin::vec_arg(src0, p.srcBlkStride, p.srcRepStride);                                         \
        c.mask = mask.with(isSetMask, repeatTime, ascend_twin::kWide<T>);                                              \
        ascend_twin::vector_compare(c);                                                                                \
    }
ASCEND_TWIN_COMPARES(Compares)
ASCEND_TWIN_COMPARES(CompareScalar)

template <class T> void SetCmpMask(const LocalTensor<T> &src, ascend_twin::Site site = ascend_twin::Site::here())
{
    ascend_twin::MoveCall c;
    c.api = "SetCmpMask";
    c.site = site;
    c.arg[0] = ascend_twin::vec_arg(src);
    ascend_twin::vector_set_cmpmask(c);
}
template <class T> void GetCmpMask(const LocalTensor<T> &dst, ascend_twin::Site site = ascend_twin::Site::here())
{
    ascend_twin::MoveCall c;
    c.api = "GetCmpMask";
    c.site = site;
    c.arg[0] = ascend_twin::vec_arg(dst);
    ascend_twin::vector_get_cmpmask(c);
}

// Selection.
#define ASCEND_TWIN_SELECT_CHECK(T, U, with)                                                                           \
    ASCEND_TWIN_TYPES(T, "Select" with, F16 | F32, I8 | U8 | I16 | U16 | F16 | BF16 | I32 | U32 | F32 | I64 | U64)     \
    ASCEND_TWIN_TYPES(U, "Select's mask", U8 | U16 | U32 | U64, U8 | U16 | U32 | U64)

template <class T, class U>
void Select(const LocalTensor<T> &dst, const LocalTensor<U> &selMask, const LocalTensor<T> &src0, T src1, SELMODE selMode, int64_t count,
            ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_SELECT_CHECK(T, U, "")
    ascend_twin::MoveCall c;
    c.api = "Select";
    c.site = site;
    c.args = 3;
    c.mode = static_cast<uint8_t>(selMode);
    c.scalar = ascend_twin::scalar_bits(src1);
    c.arg[0] = ascend_twin::vec_arg(dst);
    c.arg[1] = ascend_twin::vec_arg(selMask);
    c.arg[2] = ascend_twin::vec_arg(src0);
    c.mask = ascend_twin::vec_count(count);
    ascend_twin::vector_select(c);
}
template <class T, class U>
void Select(const LocalTensor<T> &dst, const LocalTensor<U> &selMask, const LocalTensor<T> &src0, const LocalTensor<T> &src1,
            SELMODE selMode, int64_t count, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_SELECT_CHECK(T, U, "")
    ascend_twin::MoveCall c;
    c.api = "Select";
    c.site = site;
    c.args = 4;
    c.mode = static_cast<uint8_t>(selMode);
    c.arg[0] = ascend_twin::vec_arg(dst);
    c.arg[1] = ascend_twin::vec_arg(selMask);
    c.arg[2] = ascend_twin::vec_arg(src0);
    c.arg[3] = ascend_twin::vec_arg(src1);
    c.mask = ascend_twin::vec_count(count);
    ascend_twin::vector_select(c);
}
template <class T, class U, bool isSetMask = true>
void Select(const LocalTensor<T> &dst, const LocalTensor<U> &selMask, const LocalTensor<T> &src0, T src1, SELMODE selMode,
            ascend_twin::MaskArg mask, int64_t repeatTime, const BinaryRepeatParams &p,
            ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_SELECT_CHECK(T, U, " with mask")
    ascend_twin::MoveCall c;
    c.api = "Select";
    c.site = site;
    c.args = 3;
    c.mode = static_cast<uint8_t>(selMode);
    c.scalar = ascend_twin::scalar_bits(src1);
    c.arg[0] = ascend_twin::vec_arg(dst, p.dstBlkStride, p.dstRepStride);
    c.arg[1] = ascend_twin::vec_arg(selMask);
    c.arg[2] = ascend_twin::vec_arg(src0, p.src0BlkStride, p.src0RepStride);
    c.mask = mask.with(isSetMask, repeatTime, ascend_twin::kWide<T>);
    ascend_twin::vector_select(c);
}
template <class T, class U, bool isSetMask = true>
void Select(const LocalTensor<T> &dst, const LocalTensor<U> &selMask, const LocalTensor<T> &src0, const LocalTensor<T> &src1,
            SELMODE selMode, ascend_twin::MaskArg mask, int64_t repeatTime, const BinaryRepeatParams &p,
            ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_SELECT_CHECK(T, U, " with mask")
    ascend_twin::MoveCall c;
    c.api = "Select";
    c.site = site;
    c.args = 4;
    c.mode = static_cast<uint8_t>(selMode);
    c.arg[0] = ascend_twin::vec_arg(dst, p.dstBlkStride, p.dstRepStride);
    c.arg[1] = ascend_twin::vec_arg(selMask);
    c.arg[2] = ascend_twin::vec_arg(src0, p.src0BlkStride, p.src0RepStride);
    c.arg[3] = ascend_twin::vec_arg(src1, p.src1BlkStride, p.src1RepStride);
    c.mask = mask.with(isSetMask, repeatTime, ascend_twin::kWide<T>);
    ascend_twin::vector_select(c);
}
// With the mask registers: the bits (or, below, the scalar) come from SetCmpMask, the elements that take part from SetVectorMask.
template <class T, SELMODE selMode>
void Select(const LocalTensor<T> &dst, const LocalTensor<T> &src0, const LocalTensor<T> &src1, int64_t repeatTime,
            const BinaryRepeatParams &p, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_SELECT_CHECK(T, uint8_t, " without mask")
    static_assert(selMode == SELMODE::VSEL_CMPMASK_SPR, "Select without mask: the twin has only VSEL_CMPMASK_SPR for two tensors");
    ascend_twin::MoveCall c;
    c.api = "Select";
    c.site = site;
    c.args = 4;
    c.n[0] = 1;
    c.mode = static_cast<uint8_t>(selMode);
    c.arg[0] = ascend_twin::vec_arg(dst, p.dstBlkStride, p.dstRepStride);
    c.arg[2] = ascend_twin::vec_arg(src0, p.src0BlkStride, p.src0RepStride);
    c.arg[3] = ascend_twin::vec_arg(src1, p.src1BlkStride, p.src1RepStride);
    c.mask.kind = ascend_twin::VecMask::Register;
    c.mask.repeat = repeatTime;
    ascend_twin::vector_select(c);
}
template <class T, class U>
void Select(const LocalTensor<T> &dst, const LocalTensor<U> &selMask, const LocalTensor<T> &src0, int64_t repeatTime,
            const BinaryRepeatParams &p, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_SELECT_CHECK(T, U, " without mask")
    ascend_twin::MoveCall c;
    c.api = "Select";
    c.site = site;
    c.args = 3;
    c.n[0] = 1;
    c.mode = static_cast<uint8_t>(SELMODE::VSEL_TENSOR_SCALAR_MODE);
    c.arg[0] = ascend_twin::vec_arg(dst, p.dstBlkStride, p.dstRepStride);
    c.arg[1] = ascend_twin::vec_arg(selMask);
    c.arg[2] = ascend_twin::vec_arg(src0, p.src0BlkStride, p.src0RepStride);
    c.mask.kind = ascend_twin::VecMask::Register;
    c.mask.repeat = repeatTime;
    ascend_twin::vector_select(c);
}

// Gathering.
template <class T>
void Gather(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<uint32_t> &srcOffset, const uint32_t srcBaseAddr,
            int64_t count, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "Gather", I16 | U16 | F16 | BF16 | I32 | U32 | F32,
                      I8 | U8 | I16 | U16 | F16 | BF16 | I32 | U32 | F32 | I64 | U64)
    ascend_twin::MoveCall c;
    c.api = "Gather";
    c.site = site;
    c.n[0] = srcBaseAddr;
    c.arg[0] = ascend_twin::vec_arg(dst);
    c.arg[1] = ascend_twin::vec_arg(src);
    c.arg[2] = ascend_twin::vec_arg(srcOffset);
    c.mask = ascend_twin::vec_count(count);
    ascend_twin::vector_gather(c);
}
template <class T>
void Gather(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<uint32_t> &srcOffset, const uint32_t srcBaseAddr,
            ascend_twin::MaskArg mask, int64_t repeatTime, int64_t dstRepStride, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "Gather with mask", I16 | U16 | F16 | BF16 | I32 | U32 | F32,
                      I16 | U16 | F16 | BF16 | I32 | U32 | F32 | I64 | U64)
    ascend_twin::MoveCall c;
    c.api = "Gather";
    c.site = site;
    c.n[0] = srcBaseAddr;
    c.arg[0] = ascend_twin::vec_arg(dst, 1, static_cast<uint32_t>(dstRepStride));
    c.arg[1] = ascend_twin::vec_arg(src);
    c.arg[2] = ascend_twin::vec_arg(srcOffset);
    c.mask = mask.with(true, repeatTime, ascend_twin::kWide<T>);
    ascend_twin::vector_gather(c);
}
template <class T>
void Scatter(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<uint32_t> &dstOffset, const uint32_t dstBaseAddr,
             int64_t count, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "Scatter", NONE, I8 | U8 | I16 | U16 | F16 | BF16 | I32 | U32 | F32 | I64 | U64)
    ascend_twin::MoveCall c;
    c.api = "Scatter";
    c.site = site;
    c.n[0] = dstBaseAddr;
    c.arg[0] = ascend_twin::vec_arg(dst);
    c.arg[1] = ascend_twin::vec_arg(src);
    c.arg[2] = ascend_twin::vec_arg(dstOffset);
    c.mask = ascend_twin::vec_count(count);
    ascend_twin::vector_scatter(c);
}
template <class T>
void Scatter(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<uint32_t> &dstOffset, const uint32_t dstBaseAddr,
             ascend_twin::MaskArg mask, int64_t repeatTime, int64_t srcRepStride, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "Scatter with mask", NONE, I16 | U16 | F16 | BF16 | I32 | U32 | F32 | I64 | U64)
    ascend_twin::MoveCall c;
    c.api = "Scatter";
    c.site = site;
    c.n[0] = dstBaseAddr;
    c.arg[0] = ascend_twin::vec_arg(dst);
    c.arg[1] = ascend_twin::vec_arg(src, 1, static_cast<uint32_t>(srcRepStride));
    c.arg[2] = ascend_twin::vec_arg(dstOffset);
    c.mask = mask.with(true, repeatTime, ascend_twin::kWide<T>);
    ascend_twin::vector_scatter(c);
}
template <class T>
void Gatherb(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<uint32_t> &offset, int64_t repeatTime,
             const GatherRepeatParams &p, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "Gatherb", U16 | U32, I8 | U8 | I16 | U16 | F16 | BF16 | I32 | U32 | F32 | I64 | U64)
    ascend_twin::MoveCall c;
    c.api = "Gatherb";
    c.site = site;
    c.n[0] = repeatTime;
    c.arg[0] = ascend_twin::vec_arg(dst, p.dstBlkStride == 0 ? 1 : p.dstBlkStride, p.dstRepStride);
    c.arg[1] = ascend_twin::vec_arg(src);
    c.arg[2] = ascend_twin::vec_arg(offset);
    ascend_twin::vector_gatherb(c);
}
template <class T>
void Brcb(const LocalTensor<T> &dst, const LocalTensor<T> &src, int64_t repeatTime, const BrcbRepeatParams &p,
          ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "Brcb", I16 | U16 | F16 | BF16 | I32 | U32 | F32, I8 | U8 | I16 | U16 | F16 | BF16 | I32 | U32 | F32 | I64 | U64)
    ascend_twin::MoveCall c;
    c.api = "Brcb";
    c.site = site;
    c.n[0] = repeatTime;
    c.arg[0] = ascend_twin::vec_arg(dst, p.dstBlkStride, p.dstRepStride);
    c.arg[1] = ascend_twin::vec_arg(src);
    ascend_twin::vector_brcb(c);
}

template <class T, class U, GatherMaskMode mode = defaultGatherMaskMode>
void GatherMask(const LocalTensor<T> &dst, const LocalTensor<T> &src0, const LocalTensor<U> &src1Pattern, const bool reduceMode,
                const uint32_t mask, const GatherMaskParams &p, uint64_t &rsvdCnt, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "GatherMask", I16 | U16 | F16 | BF16 | I32 | U32 | F32, I8 | U8 | I16 | U16 | F16 | BF16 | I32 | U32 | F32)
    static_assert(std::is_unsigned<U>::value && sizeof(U) == sizeof(T),
                  "GatherMask: the pattern is an unsigned type as wide as the elements");
    ascend_twin::MoveCall c;
    c.api = "GatherMask";
    c.site = site;
    c.args = 3;
    c.n[1] = reduceMode;
    c.n[2] = mask;
    c.n[3] = p.repeatTimes;
    c.arg[0] = ascend_twin::vec_arg(dst);
    c.arg[1] = ascend_twin::vec_arg(src0, p.src0BlockStride, p.src0RepeatStride);
    c.arg[2] = ascend_twin::vec_arg(src1Pattern, 1, p.src1RepeatStride);
    rsvdCnt = ascend_twin::vector_gather_mask(c);
}
template <class T, GatherMaskMode mode = defaultGatherMaskMode>
void GatherMask(const LocalTensor<T> &dst, const LocalTensor<T> &src0, const uint8_t src1Pattern, const bool reduceMode,
                const uint32_t mask, const GatherMaskParams &p, uint64_t &rsvdCnt, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "GatherMask", I16 | U16 | F16 | BF16 | I32 | U32 | F32, I8 | U8 | I16 | U16 | F16 | BF16 | I32 | U32 | F32)
    ascend_twin::MoveCall c;
    c.api = "GatherMask";
    c.site = site;
    c.args = 2;
    c.n[0] = src1Pattern;
    c.n[1] = reduceMode;
    c.n[2] = mask;
    c.n[3] = p.repeatTimes;
    c.arg[0] = ascend_twin::vec_arg(dst);
    c.arg[1] = ascend_twin::vec_arg(src0, p.src0BlockStride, p.src0RepeatStride);
    rsvdCnt = ascend_twin::vector_gather_mask(c);
}

} // namespace AscendC

#include "vector_reduce.h"

#endif
