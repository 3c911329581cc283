// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Calls of the vector unit. What is here checks types and turns the arguments of a call into a `VecCall`; the library
// (lib/vector*.cpp) checks the numbers, builds the instruction and does the work.

#ifndef ASCEND_TWIN_VECTOR_H
#define ASCEND_TWIN_VECTOR_H

#include "tensor.h"

namespace AscendC {

enum class RoundMode : uint8_t {
    CAST_NONE = 0,
    CAST_RINT,
    CAST_FLOOR,
    CAST_CEIL,
    CAST_ROUND,
    CAST_TRUNC,
    CAST_ODD,
    CAST_HYBRID,
    UNKNOWN = 0xFF
};
enum class CMPMODE : uint8_t { LT = 0, GT, EQ, LE, GE, NE };
enum class SELMODE : uint8_t { VSEL_CMPMASK_SPR = 0, VSEL_TENSOR_SCALAR_MODE, VSEL_TENSOR_TENSOR_MODE };
enum class ReduceType : uint8_t { MAX = 0, MIN, SUM };
enum class ReduceOrder : uint8_t { ORDER_VALUE_INDEX = 0, ORDER_INDEX_VALUE, ORDER_ONLY_VALUE, ORDER_ONLY_INDEX };
enum class MaskMode : uint8_t { NORMAL = 0, COUNTER };
enum class GatherMaskMode : uint8_t { VERSION_V1 = 0, VERSION_V2 };

constexpr uint64_t MASK_PLACEHOLDER = 0;
constexpr uint64_t MASK_PLACEHOLDER_LIST[2] = {0, 0};
constexpr int32_t DEFAULT_BLK_NUM = 8;
constexpr int32_t DEFAULT_BLK_STRIDE = 1;
constexpr uint8_t DEFAULT_REPEAT_STRIDE = 8;
constexpr int32_t NCHW_CONV_ADDR_LIST_SIZE = 16;
constexpr int32_t VDEQ_TENSOR_SIZE = 16;
constexpr int32_t MRG_SORT_ELEMENT_LEN = 4;
constexpr GatherMaskMode defaultGatherMaskMode =
    __NPU_ARCH__ == 2201 ? GatherMaskMode::VERSION_V2 : GatherMaskMode::VERSION_V1;

// Strides count blocks of 32 B. The fields are wider than those of the hardware, so that values which do not fit are seen.
struct UnaryRepeatParams {
    constexpr UnaryRepeatParams() = default;
    template <class A, class B, class C, class D>
    constexpr UnaryRepeatParams(A dstBlk, B srcBlk, C dstRep, D srcRep)
        : dstBlkStride(static_cast<uint32_t>(dstBlk)), srcBlkStride(static_cast<uint32_t>(srcBlk)),
          dstRepStride(static_cast<uint32_t>(dstRep)), srcRepStride(static_cast<uint32_t>(srcRep))
    {}
    template <class A, class B, class C, class D>
    constexpr UnaryRepeatParams(A dstBlk, B srcBlk, C dstRep, D srcRep, bool half)
        : UnaryRepeatParams(dstBlk, srcBlk, dstRep, srcRep)
    {
        halfBlock = half;
    }
    uint32_t blockNumber = 8;
    uint32_t dstBlkStride = 1;
    uint32_t srcBlkStride = 1;
    uint32_t dstRepStride = 8;
    uint32_t srcRepStride = 8;
    bool repeatStrideMode = false;
    bool strideSizeMode = false;
    bool halfBlock = false;
};

struct BinaryRepeatParams {
    constexpr BinaryRepeatParams() = default;
    template <class A, class B, class C, class D, class E, class F>
    constexpr BinaryRepeatParams(A dstBlk, B src0Blk, C src1Blk, D dstRep, E src0Rep, F src1Rep)
        : dstBlkStride(static_cast<uint32_t>(dstBlk)), src0BlkStride(static_cast<uint32_t>(src0Blk)),
          src1BlkStride(static_cast<uint32_t>(src1Blk)), dstRepStride(static_cast<uint32_t>(dstRep)),
          src0RepStride(static_cast<uint32_t>(src0Rep)), src1RepStride(static_cast<uint32_t>(src1Rep))
    {}
    uint32_t blockNumber = 8;
    uint32_t dstBlkStride = 1;
    uint32_t src0BlkStride = 1;
    uint32_t src1BlkStride = 1;
    uint32_t dstRepStride = 8;
    uint32_t src0RepStride = 8;
    uint32_t src1RepStride = 8;
    bool repeatStrideMode = false;
    bool strideSizeMode = false;
};

struct CopyRepeatParams {
    constexpr CopyRepeatParams() = default;
    template <class A, class B, class C, class D>
    constexpr CopyRepeatParams(A dst, B src, C dstRepeat, D srcRepeat)
        : dstStride(static_cast<uint32_t>(dst)), srcStride(static_cast<uint32_t>(src)),
          dstRepeatSize(static_cast<uint32_t>(dstRepeat)), srcRepeatSize(static_cast<uint32_t>(srcRepeat))
    {}
    uint32_t dstStride = 1;
    uint32_t srcStride = 1;
    uint32_t dstRepeatSize = 8;
    uint32_t srcRepeatSize = 8;
};

struct BrcbRepeatParams {
    constexpr BrcbRepeatParams() = default;
    template <class A, class B>
    constexpr BrcbRepeatParams(A blk, B rep) : dstRepStride(static_cast<uint32_t>(rep)), dstBlkStride(static_cast<uint32_t>(blk))
    {}
    uint32_t blockNumber = 8;
    uint32_t dstRepStride = 8;
    uint32_t dstBlkStride = 1;
};

struct GatherRepeatParams {
    constexpr GatherRepeatParams() = default;
    template <class A, class B>
    constexpr GatherRepeatParams(A blk, B rep)
        : dstRepStride(static_cast<uint32_t>(rep)), dstBlkStride(static_cast<uint32_t>(blk))
    {}
    uint32_t blockNumber = 8;
    uint32_t dstRepStride = 8;
    uint32_t dstBlkStride = 1;
};

struct GatherMaskParams {
    constexpr GatherMaskParams() = default;
    template <class A, class B, class C, class D>
    constexpr GatherMaskParams(A blk, B times, C rep0, D rep1)
        : src0BlockStride(static_cast<uint32_t>(blk)), repeatTimes(static_cast<uint32_t>(times)),
          src0RepeatStride(static_cast<uint32_t>(rep0)), src1RepeatStride(static_cast<uint32_t>(rep1))
    {}
    uint32_t src0BlockStride = 1;
    uint32_t repeatTimes = 0;
    uint32_t src0RepeatStride = 8;
    uint32_t src1RepeatStride = 8;
};

struct TransDataTo5HDParams {
    constexpr TransDataTo5HDParams() = default;
    template <class A, class B, class C>
    constexpr TransDataTo5HDParams(bool dstHigh, bool srcHigh, A times, B dstRep, C srcRep)
        : dstHighHalf(dstHigh), srcHighHalf(srcHigh), repeatTimes(static_cast<uint32_t>(times)),
          dstRepStride(static_cast<uint32_t>(dstRep)), srcRepStride(static_cast<uint32_t>(srcRep))
    {}
    bool dstHighHalf = false;
    bool srcHighHalf = false;
    uint32_t repeatTimes = 1;
    uint32_t dstRepStride = 0;
    uint32_t srcRepStride = 0;
};

struct MrgSort4Info {
    constexpr MrgSort4Info() = default;
    template <class A, class B>
    MrgSort4Info(const uint16_t lengths[4], bool suspend, A valid, B times)
        : ifExhaustedSuspension(suspend), validBit(static_cast<uint16_t>(valid)), repeatTimes(static_cast<uint32_t>(times))
    {
        for (int i = 0; i < 4; i++) {
            elementLengths[i] = lengths[i];
        }
    }
    uint16_t elementLengths[4] = {0, 0, 0, 0};
    bool ifExhaustedSuspension = false;
    uint16_t validBit = 0;
    uint32_t repeatTimes = 1;
};

template <class T> struct MrgSortSrcList {
    MrgSortSrcList() = default;
    MrgSortSrcList(const LocalTensor<T> &a, const LocalTensor<T> &b, const LocalTensor<T> &c, const LocalTensor<T> &d)
        : src1(a), src2(b), src3(c), src4(d)
    {}
    LocalTensor<T> src1;
    LocalTensor<T> src2;
    LocalTensor<T> src3;
    LocalTensor<T> src4;
};

struct VdeqInfo {
    VdeqInfo() = default;
    VdeqInfo(const float scale[16], const int16_t offset[16], const bool sign[16])
    {
        for (int i = 0; i < 16; i++) {
            vdeqScale[i] = scale[i];
            vdeqOffset[i] = offset[i];
            vdeqSignMode[i] = sign[i];
        }
    }
    float vdeqScale[16] = {};
    int16_t vdeqOffset[16] = {};
    bool vdeqSignMode[16] = {};
};

struct BinaryConfig {
    int8_t scalarTensorIndex = 1;
};
constexpr BinaryConfig DEFAULT_BINARY_CONFIG = {1};
struct BinaryDefaultType {};

enum class ExpAlgo { INTRINSIC = 0, PRECISION_1ULP_FTZ_TRUE, PRECISION_1ULP_FTZ_FALSE };
struct ExpConfig {
    ExpAlgo algo = ExpAlgo::INTRINSIC;
};
constexpr ExpConfig DEFAULT_EXP_CONFIG = {ExpAlgo::INTRINSIC};
enum class LnAlgo { INTRINSIC = 0, PRECISION_1ULP_FTZ_TRUE, PRECISION_1ULP_FTZ_FALSE };
struct LnConfig {
    LnAlgo algo = LnAlgo::INTRINSIC;
};
constexpr LnConfig DEFAULT_LN_CONFIG = {LnAlgo::INTRINSIC};
enum class ReciprocalAlgo { INTRINSIC = 0, PRECISION_1ULP_FTZ_TRUE, PRECISION_1ULP_FTZ_FALSE };
struct ReciprocalConfig {
    ReciprocalAlgo algo = ReciprocalAlgo::INTRINSIC;
};
constexpr ReciprocalConfig DEFAULT_RECIPROCAL_CONFIG = {ReciprocalAlgo::INTRINSIC};
enum class DivAlgo {
    INTRINSIC = 0,
    DIFF_COMPENSATION,
    PRECISION_1ULP_FTZ_TRUE,
    PRECISION_0ULP_FTZ_TRUE,
    PRECISION_0ULP_FTZ_FALSE,
    PRECISION_1ULP_FTZ_FALSE
};
struct DivConfig {
    DivAlgo algo = DivAlgo::INTRINSIC;
};
constexpr DivConfig DEFAULT_DIV_CONFIG = {DivAlgo::INTRINSIC};
enum class SqrtAlgo { INTRINSIC = 0, FAST_INVERSE, PRECISION_1ULP_FTZ_TRUE, PRECISION_0ULP_FTZ_FALSE, PRECISION_1ULP_FTZ_FALSE };
struct SqrtConfig {
    SqrtAlgo algo = SqrtAlgo::INTRINSIC;
};
constexpr SqrtConfig DEFAULT_SQRT_CONFIG = {SqrtAlgo::INTRINSIC};
enum class RsqrtAlgo { INTRINSIC = 0, FAST_INVERSE, PRECISION_1ULP_FTZ_TRUE, PRECISION_0ULP_FTZ_FALSE, PRECISION_1ULP_FTZ_FALSE };
struct RsqrtConfig {
    RsqrtAlgo algo = RsqrtAlgo::INTRINSIC;
};
constexpr RsqrtConfig DEFAULT_RSQRT_CONFIG = {RsqrtAlgo::INTRINSIC};

} // namespace AscendC

namespace ascend_twin {

enum class VecOp : uint8_t {
    // one source
    Abs, Exp, Ln, Sqrt, Rsqrt, Reciprocal, Relu, Not, Neg, Copy, Truncate, Cast,
    // two sources
    Add, Sub, Mul, Div, Max, Min, And, Or, AddRelu, SubRelu, Prelu, AbsSub, ExpSub, ShiftLeftBy, ShiftRightBy,
    AddReluCast, SubReluCast, MulCast, AddDeqRelu,
    // two sources and the old destination
    MulAddDst, FusedMulAdd, MulAddRelu,
    // a source and a scalar (or a single element)
    Adds, Subs, SubsFrom, Muls, Divs, DivsFrom, Maxs, Mins, Ands, Ors, ShiftLeft, ShiftRight, LeakyRelu, MulsCast,
    // a source, a scalar and the old destination
    Axpy,
    // none
    Duplicate, Index
};

struct VecArg {
    uint64_t addr = 0;
    Buffer buffer;
    uint64_t bytes = 0; // of the tensor from here on
    uint32_t blk = 1; // strides, in blocks of 32 B
    uint32_t rep = 8;
    uint8_t type = ASCEND_TWIN_NONE;
    Mem mem = Mem::UB;
    bool single = false; // one element that is used for all
};

template <class T> inline VecArg vec_arg(const AscendC::LocalTensor<T> &t, uint32_t blk = 1, uint32_t rep = 8)
{
    VecArg a;
    a.addr = t.twin_addr();
    a.buffer = t.twin_buffer();
    a.bytes = static_cast<uint64_t>(t.GetSize()) * ElementBits<T>::value / 8;
    a.blk = blk;
    a.rep = rep;
    a.type = TypeOf<T>::value;
    a.mem = t.twin_mem();
    return a;
}

// Which elements of how many repeats take part.
struct VecMask {
    enum Kind : uint8_t {
        Count, // the first `n` elements, contiguous
        Lanes, // the first `n` of each repeat
        Bits, // those of the pattern
        Register // what SetVectorMask said
    };
    Kind kind = Count;
    int64_t n = 0;
    int64_t repeat = 1;
    uint64_t bits[2] = {0, 0};
};

inline VecMask vec_count(int64_t n, bool set = true)
{
    VecMask m;
    m.kind = set || __NPU_ARCH__ == 3510 ? VecMask::Count : VecMask::Register;
    m.n = n;
    return m;
}

// The mask argument of a call: a number of elements, or a pattern of two words.
struct MaskArg {
    template <class I, std::enable_if_t<std::is_integral<I>::value, int> = 0>
    MaskArg(I lanes) : kind(VecMask::Lanes), n(static_cast<int64_t>(lanes))
    {}
    MaskArg(const uint64_t *bits) : kind(VecMask::Bits), pattern(bits) {}
    VecMask with(bool set, int64_t repeat, bool wide) const
    {
        VecMask m;
        m.kind = set ? kind : VecMask::Register;
        m.n = set ? n : 0;
        m.repeat = repeat;
        if (m.kind == VecMask::Bits) {
            // Types of 32 bits and more need no second word.
            m.bits[0] = pattern[0];
            m.bits[1] = wide ? 0 : pattern[1];
        }
        return m;
    }
    VecMask::Kind kind;
    int64_t n = 0;
    const uint64_t *pattern = nullptr;
};

struct VecCall {
    const char *api = "";
    Site site{};
    VecOp op = VecOp::Copy;
    uint8_t round = 0;
    uint8_t args = 0; // destination included
    bool update = false; // reads the old destination
    bool flush = false; // subnormal results become 0
    bool round_shift = false;
    uint16_t blk_limit = 255;
    uint16_t rep_limit = 255;
    VecArg arg[3];
    VecMask mask;
    uint64_t scalar = 0; // bits
    uint64_t step = 0; // bits: of Index, when `stepped`
    bool stepped = false;
    uint8_t scalar_type = ASCEND_TWIN_NONE;
};

template <class T> inline uint64_t scalar_bits(const T &v)
{
    static_assert(sizeof(T) <= 8, "scalar");
    uint64_t bits = 0;
    memcpy(&bits, &v, sizeof(T));
    return bits;
}

void vector_call(const VecCall &call);

// Sets of element types, for the checks of calls.
namespace types {
constexpr uint32_t F32 = 1u << ASCEND_TWIN_F32, F16 = 1u << ASCEND_TWIN_F16, BF16 = 1u << ASCEND_TWIN_BF16,
                   I8 = 1u << ASCEND_TWIN_I8, U8 = 1u << ASCEND_TWIN_U8, I16 = 1u << ASCEND_TWIN_I16,
                   U16 = 1u << ASCEND_TWIN_U16, I32 = 1u << ASCEND_TWIN_I32, U32 = 1u << ASCEND_TWIN_U32,
                   I64 = 1u << ASCEND_TWIN_I64, U64 = 1u << ASCEND_TWIN_U64,
                   FP8 = (1u << ASCEND_TWIN_E4M3) | (1u << ASCEND_TWIN_E5M2) | (1u << ASCEND_TWIN_HIF8) | (1u << ASCEND_TWIN_E8M0),
                   FP4 = (1u << ASCEND_TWIN_E2M1) | (1u << ASCEND_TWIN_E1M2), NONE = 0;
template <class T> constexpr bool in(uint32_t set)
{
    return TypeOf<T>::value != ASCEND_TWIN_NONE && ((set >> TypeOf<T>::value) & 1) != 0;
}
} // namespace types


// A sentence at compile time where the chip does not have the call for the type.
#if __NPU_ARCH__ == 3510
#define ASCEND_TWIN_TYPES(T, call, on2201, on3510)                                                                     \
    {                                                                                                                  \
        using namespace ascend_twin::types;                                                                            \
        static_assert(ascend_twin::types::in<T>(on3510), call " does not take this element type on dav-3510; it takes " #on3510); \
    }
#else
#define ASCEND_TWIN_TYPES(T, call, on2201, on3510)                                                                     \
    {                                                                                                                  \
        using namespace ascend_twin::types;                                                                            \
        static_assert(ascend_twin::types::in<T>(on2201), call " does not take this element type on dav-2201; it takes " #on2201); \
    }
#endif
#define ASCEND_TWIN_ONLY_3510(T, call)                                                                                 \
    static_assert(sizeof(T) != 0 && __NPU_ARCH__ == 3510, call " does not exist on dav-2201")

template <class T> constexpr bool kWide = ElementBits<T>::value >= 32;

template <class T>
inline void vec_unary(VecOp op, const char *api, const AscendC::LocalTensor<T> &dst, const AscendC::LocalTensor<T> &src,
                      VecMask mask, const AscendC::UnaryRepeatParams &p, Site site, bool flush = false)
{
    VecCall c;
    c.api = api;
    c.site = site;
    c.op = op;
    c.args = 2;
    c.flush = flush;
    c.blk_limit = 65535;
    c.arg[0] = vec_arg(dst, p.dstBlkStride, p.dstRepStride);
    c.arg[1] = vec_arg(src, p.srcBlkStride, p.srcRepStride);
    c.mask = mask;
    vector_call(c);
}

template <class D, class A, class B>
inline void vec_binary(VecOp op, const char *api, const AscendC::LocalTensor<D> &dst, const AscendC::LocalTensor<A> &a,
                       const AscendC::LocalTensor<B> &b, VecMask mask, const AscendC::BinaryRepeatParams &p, Site site,
                       bool update = false)
{
    VecCall c;
    c.api = api;
    c.site = site;
    c.op = op;
    c.args = 3;
    c.update = update;
    c.arg[0] = vec_arg(dst, p.dstBlkStride, p.dstRepStride);
    c.arg[1] = vec_arg(a, p.src0BlkStride, p.src0RepStride);
    c.arg[2] = vec_arg(b, p.src1BlkStride, p.src1RepStride);
    c.mask = mask;
    vector_call(c);
}

template <class D, class A, class S>
inline void vec_scalar(VecOp op, const char *api, const AscendC::LocalTensor<D> &dst, const AscendC::LocalTensor<A> &src,
                       const S &scalar, VecMask mask, const AscendC::UnaryRepeatParams &p, Site site, bool update = false,
                       bool round_shift = false)
{
    VecCall c;
    c.api = api;
    c.site = site;
    c.op = op;
    c.args = 2;
    c.update = update;
    c.round_shift = round_shift;
    c.blk_limit = 65535;
    c.arg[0] = vec_arg(dst, p.dstBlkStride, p.dstRepStride);
    c.arg[1] = vec_arg(src, p.srcBlkStride, p.srcRepStride);
    c.mask = mask;
    c.scalar = scalar_bits(scalar);
    c.scalar_type = TypeOf<S>::value;
    vector_call(c);
}

} // namespace ascend_twin

namespace AscendC {

// Calls with one source: (dst, src, count) and (dst, src, mask, repeat, params).
#define ASCEND_TWIN_UNARY(call, on2201, on3510_count, on3510)                                                          \
    template <class T>                                                                                                 \
    void call(const LocalTensor<T> &dst, const LocalTensor<T> &src, int64_t count,                                     \
              ascend_twin::Site site = ascend_twin::Site::here())                                                      \
    {                                                                                                                  \
        ASCEND_TWIN_TYPES(T, #call, on2201, on3510_count)                                                              \
        ascend_twin::vec_unary(ascend_twin::VecOp::call, #call, dst, src, ascend_twin::vec_count(count),               \
                               UnaryRepeatParams(), site);                                                             \
    }                                                                                                                  \
    template <class T, bool isSetMask = true>                                                                          \
    void call(const LocalTensor<T> &dst, const LocalTensor<T> &src, ascend_twin::MaskArg mask, int64_t repeatTime,     \
              const UnaryRepeatParams &repeatParams, ascend_twin::Site site = ascend_twin::Site::here())               \
    {                                                                                                                  \
        ASCEND_TWIN_TYPES(T, #call " with mask", on2201, on3510)                                                       \
        ascend_twin::vec_unary(ascend_twin::VecOp::call, #call, dst, src,                                              \
                               mask.with(isSetMask, repeatTime, ascend_twin::kWide<T>), repeatParams, site);           \
    }

ASCEND_TWIN_UNARY(Abs, F16 | F32, I8 | I16 | F16 | I32 | F32 | I64, I16 | F16 | I32 | F32)
ASCEND_TWIN_UNARY(Relu, F16 | I32 | F32, F16 | I32 | F32 | I64, F16 | I32 | F32)
ASCEND_TWIN_UNARY(Not, I16 | U16, I8 | U8 | I16 | U16 | F16 | I32 | U32 | F32 | I64 | U64, I16 | U16 | F16 | I32 | U32 | F32)

// The same with a configuration of the algorithm (3510): <T, config>, <T, isSetMask, config>.
#define ASCEND_TWIN_UNARY_CONFIG(call, Config, kDefault, flushes, on3510_count)                                        \
    template <class T, const Config &config = kDefault>                                                                \
    void call(const LocalTensor<T> &dst, const LocalTensor<T> &src, int64_t count,                                     \
              ascend_twin::Site site = ascend_twin::Site::here())                                                      \
    {                                                                                                                  \
        ASCEND_TWIN_TYPES(T, #call, F16 | F32, on3510_count)                                                           \
        ascend_twin::vec_unary(ascend_twin::VecOp::call, #call, dst, src, ascend_twin::vec_count(count),               \
                               UnaryRepeatParams(), site, __NPU_ARCH__ == 3510 && (flushes));                          \
    }                                                                                                                  \
    template <class T, bool isSetMask = true, const Config &config = kDefault>                                         \
    void call(const LocalTensor<T> &dst, const LocalTensor<T> &src, ascend_twin::MaskArg mask, int64_t repeatTime,     \
              const UnaryRepeatParams &repeatParams, ascend_twin::Site site = ascend_twin::Site::here())               \
    {                                                                                                                  \
        ASCEND_TWIN_TYPES(T, #call " with mask", F16 | F32, F16 | F32)                                                 \
        ascend_twin::vec_unary(ascend_twin::VecOp::call, #call, dst, src,                                              \
                               mask.with(isSetMask, repeatTime, ascend_twin::kWide<T>), repeatParams, site,            \
                               __NPU_ARCH__ == 3510 && (flushes));                                                     \
    }

ASCEND_TWIN_UNARY_CONFIG(Exp, ExpConfig, DEFAULT_EXP_CONFIG, config.algo != ExpAlgo::PRECISION_1ULP_FTZ_FALSE, F16 | F32)
ASCEND_TWIN_UNARY_CONFIG(Ln, LnConfig, DEFAULT_LN_CONFIG, config.algo != LnAlgo::PRECISION_1ULP_FTZ_FALSE, F16 | F32)
ASCEND_TWIN_UNARY_CONFIG(Sqrt, SqrtConfig, DEFAULT_SQRT_CONFIG,
                         config.algo == SqrtAlgo::INTRINSIC || config.algo == SqrtAlgo::PRECISION_1ULP_FTZ_TRUE, F16 | F32)
ASCEND_TWIN_UNARY_CONFIG(Rsqrt, RsqrtConfig, DEFAULT_RSQRT_CONFIG,
                         config.algo == RsqrtAlgo::INTRINSIC || config.algo == RsqrtAlgo::PRECISION_1ULP_FTZ_TRUE, F16 | F32)
ASCEND_TWIN_UNARY_CONFIG(Reciprocal, ReciprocalConfig, DEFAULT_RECIPROCAL_CONFIG,
                         config.algo != ReciprocalAlgo::PRECISION_1ULP_FTZ_FALSE, F16 | F32 | I64 | U64)

template <class T>
void Neg(const LocalTensor<T> &dst, const LocalTensor<T> &src, int64_t count, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "Neg", NONE, I8 | I16 | F16 | I32 | F32 | I64)
    ascend_twin::vec_unary(ascend_twin::VecOp::Neg, "Neg", dst, src, ascend_twin::vec_count(count), UnaryRepeatParams(), site);
}

// Calls with two sources of the destination's type.
#define ASCEND_TWIN_BINARY_AS(call, op, old, on2201, on3510_count, on3510)                                             \
    template <class T>                                                                                                 \
    void call(const LocalTensor<T> &dst, const LocalTensor<T> &src0, const LocalTensor<T> &src1, int64_t count,        \
              ascend_twin::Site site = ascend_twin::Site::here())                                                      \
    {                                                                                                                  \
        ASCEND_TWIN_TYPES(T, #call, on2201, on3510_count)                                                              \
        ascend_twin::vec_binary(ascend_twin::VecOp::op, #call, dst, src0, src1, ascend_twin::vec_count(count),         \
                                BinaryRepeatParams(), site, old);                                                      \
    }                                                                                                                  \
    template <class T, bool isSetMask = true>                                                                          \
    void call(const LocalTensor<T> &dst, const LocalTensor<T> &src0, const LocalTensor<T> &src1,                       \
              ascend_twin::MaskArg mask, int64_t repeatTime, const BinaryRepeatParams &repeatParams,                   \
              ascend_twin::Site site = ascend_twin::Site::here())                                                      \
    {                                                                                                                  \
        ASCEND_TWIN_TYPES(T, #call " with mask", on2201, on3510)                                                       \
        ascend_twin::vec_binary(ascend_twin::VecOp::op, #call, dst, src0, src1,                                        \
                                mask.with(isSetMask, repeatTime, ascend_twin::kWide<T>), repeatParams, site, old);     \
    }
#define ASCEND_TWIN_BINARY(call, on2201, on3510_count, on3510)                                                         \
    ASCEND_TWIN_BINARY_AS(call, call, false, on2201, on3510_count, on3510)

ASCEND_TWIN_BINARY(Add, I16 | F16 | I32 | F32, I8 | U8 | I16 | U16 | F16 | BF16 | I32 | U32 | F32 | I64 | U64,
                   I16 | U16 | F16 | BF16 | I32 | U32 | F32)
ASCEND_TWIN_BINARY(Sub, I16 | F16 | I32 | F32, I8 | U8 | I16 | U16 | F16 | BF16 | I32 | U32 | F32 | I64 | U64,
                   I16 | U16 | F16 | BF16 | I32 | U32 | F32)
ASCEND_TWIN_BINARY(Mul, I16 | F16 | I32 | F32, I16 | U16 | F16 | BF16 | I32 | U32 | F32 | I64 | U64,
                   I16 | U16 | F16 | BF16 | I32 | U32 | F32)
ASCEND_TWIN_BINARY(Max, I16 | F16 | I32 | F32, I8 | U8 | I16 | U16 | F16 | BF16 | I32 | U32 | F32 | I64 | U64,
                   I16 | U16 | F16 | BF16 | I32 | U32 | F32)
ASCEND_TWIN_BINARY(Min, I16 | F16 | I32 | F32, I8 | U8 | I16 | U16 | F16 | BF16 | I32 | U32 | F32 | I64 | U64,
                   I16 | U16 | F16 | BF16 | I32 | U32 | F32)
ASCEND_TWIN_BINARY(And, I16 | U16, I8 | U8 | I16 | U16 | I32 | U32 | I64 | U64, I16 | U16 | I32 | U32)
ASCEND_TWIN_BINARY(Or, I16 | U16, I8 | U8 | I16 | U16 | I32 | U32 | I64 | U64, I16 | U16 | I32 | U32)
ASCEND_TWIN_BINARY(AddRelu, I16 | F16 | F32, I16 | F16 | F32 | I64 | U64, I16 | F16 | F32)
ASCEND_TWIN_BINARY(SubRelu, I16 | F16 | F32, I16 | F16 | F32 | I64 | U64, I16 | F16 | F32)
ASCEND_TWIN_BINARY_AS(FusedMulAdd, FusedMulAdd, true, F16 | F32, F16 | BF16 | F32 | I64 | U64, F16 | BF16 | F32)
ASCEND_TWIN_BINARY_AS(MulAddRelu, MulAddRelu, true, F16 | F32, F16 | F32 | I64 | U64, F16 | F32)
ASCEND_TWIN_BINARY_AS(FusedMulAddRelu, MulAddRelu, true, F16 | F32, F16 | F32 | I64 | U64, F16 | F32)

template <class T, const DivConfig &config = DEFAULT_DIV_CONFIG>
void Div(const LocalTensor<T> &dst, const LocalTensor<T> &src0, const LocalTensor<T> &src1, int64_t count,
         ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "Div", F16 | F32, I16 | U16 | F16 | I32 | U32 | F32 | I64 | U64)
    ascend_twin::vec_binary(ascend_twin::VecOp::Div, "Div", dst, src0, src1, ascend_twin::vec_count(count), BinaryRepeatParams(), site);
}
template <class T, bool isSetMask = true, const DivConfig &config = DEFAULT_DIV_CONFIG>
void Div(const LocalTensor<T> &dst, const LocalTensor<T> &src0, const LocalTensor<T> &src1, ascend_twin::MaskArg mask,
         int64_t repeatTime, const BinaryRepeatParams &repeatParams, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "Div with mask", F16 | F32, I16 | U16 | F16 | I32 | U32 | F32)
    ascend_twin::vec_binary(ascend_twin::VecOp::Div, "Div", dst, src0, src1,
                            mask.with(isSetMask, repeatTime, ascend_twin::kWide<T>), repeatParams, site);
}

#define ASCEND_TWIN_BINARY_COUNT(call, on3510)                                                                         \
    template <class T>                                                                                                 \
    void call(const LocalTensor<T> &dst, const LocalTensor<T> &src0, const LocalTensor<T> &src1, int64_t count,        \
              ascend_twin::Site site = ascend_twin::Site::here())                                                      \
    {                                                                                                                  \
        ASCEND_TWIN_TYPES(T, #call, NONE, on3510)                                                                      \
        ascend_twin::vec_binary(ascend_twin::VecOp::call, #call, dst, src0, src1, ascend_twin::vec_count(count),       \
                                BinaryRepeatParams(), site);                                                           \
    }
ASCEND_TWIN_BINARY_COUNT(Prelu, F16 | F32)
ASCEND_TWIN_BINARY_COUNT(AbsSub, F16 | F32)

template <class T, class U>
void ExpSub(const LocalTensor<T> &dst, const LocalTensor<U> &src0, const LocalTensor<U> &src1, int64_t count,
            ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "ExpSub", NONE, F16 | F32)
    ASCEND_TWIN_TYPES(U, "ExpSub", NONE, F16 | F32)
    ascend_twin::vec_binary(ascend_twin::VecOp::ExpSub, "ExpSub", dst, src0, src1, ascend_twin::vec_count(count), BinaryRepeatParams(),
                            site);
}

#define ASCEND_TWIN_SHIFT_BY(call, op)                                                                                 \
    template <class T, class U>                                                                                        \
    void call(const LocalTensor<T> &dst, const LocalTensor<T> &src0, const LocalTensor<U> &src1, int64_t count,        \
              ascend_twin::Site site = ascend_twin::Site::here())                                                      \
    {                                                                                                                  \
        ASCEND_TWIN_TYPES(T, #call " by a tensor", NONE, I8 | U8 | I16 | U16 | I32 | U32 | I64 | U64)                  \
        ASCEND_TWIN_TYPES(U, #call " by a tensor", NONE, I8 | I16 | I32 | I64)                                         \
        static_assert(sizeof(T) == sizeof(U), #call " by a tensor: the shifts have as many bytes as the values");      \
        ascend_twin::vec_binary(ascend_twin::VecOp::op, #call, dst, src0, src1, ascend_twin::vec_count(count),         \
                                BinaryRepeatParams(), site);                                                           \
    }
ASCEND_TWIN_SHIFT_BY(ShiftLeft, ShiftLeftBy)
ASCEND_TWIN_SHIFT_BY(ShiftRight, ShiftRightBy)

// Calls with a scalar of the element type.
#define ASCEND_TWIN_SCALAR_CALL(call, on2201, on3510_count, on3510)                                                    \
    template <class T, bool isSetMask = true>                                                                          \
    void call(const LocalTensor<T> &dst, const LocalTensor<T> &src, const T &scalarValue, int64_t count,               \
              ascend_twin::Site site = ascend_twin::Site::here())                                                      \
    {                                                                                                                  \
        ASCEND_TWIN_TYPES(T, #call, on2201, on3510_count)                                                              \
        ascend_twin::vec_scalar(ascend_twin::VecOp::call, #call, dst, src, scalarValue,                                \
                                ascend_twin::vec_count(count, isSetMask), UnaryRepeatParams(), site);                  \
    }                                                                                                                  \
    template <class T, bool isSetMask = true>                                                                          \
    void call(const LocalTensor<T> &dst, const LocalTensor<T> &src, const T &scalarValue, ascend_twin::MaskArg mask,   \
              int64_t repeatTime, const UnaryRepeatParams &repeatParams,                                               \
              ascend_twin::Site site = ascend_twin::Site::here())                                                      \
    {                                                                                                                  \
        ASCEND_TWIN_TYPES(T, #call " with mask", on2201, on3510)                                                       \
        ascend_twin::vec_scalar(ascend_twin::VecOp::call, #call, dst, src, scalarValue,                                \
                                mask.with(isSetMask, repeatTime, ascend_twin::kWide<T>), repeatParams, site);          \
    }

ASCEND_TWIN_SCALAR_CALL(Adds, I16 | F16 | I32 | F32, I8 | U8 | I16 | F16 | BF16 | I32 | F32 | I64 | U64,
                        I16 | F16 | BF16 | I32 | F32)
ASCEND_TWIN_SCALAR_CALL(Muls, I16 | F16 | I32 | F32, I16 | F16 | BF16 | I32 | F32 | I64 | U64, I16 | F16 | BF16 | I32 | F32)
ASCEND_TWIN_SCALAR_CALL(Maxs, I16 | F16 | I32 | F32, I8 | U8 | I16 | F16 | BF16 | I32 | F32 | I64 | U64,
                        I16 | F16 | BF16 | I32 | F32)
ASCEND_TWIN_SCALAR_CALL(Mins, I16 | F16 | I32 | F32, I8 | U8 | I16 | F16 | BF16 | I32 | F32 | I64 | U64,
                        I16 | F16 | BF16 | I32 | F32)
ASCEND_TWIN_SCALAR_CALL(LeakyRelu, F16 | F32, F16 | F32, F16 | F32)
ASCEND_TWIN_SCALAR_CALL(ShiftLeft, I16 | U16 | I32 | U32, I8 | U8 | I16 | U16 | I32 | U32 | I64 | U64, I16 | U16 | I32 | U32)

template <class T, bool isSetMask = true>
void ShiftRight(const LocalTensor<T> &dst, const LocalTensor<T> &src, const T &scalarValue, int64_t count,
                ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "ShiftRight", I16 | U16 | I32 | U32, I8 | U8 | I16 | U16 | I32 | U32 | I64 | U64)
    ascend_twin::vec_scalar(ascend_twin::VecOp::ShiftRight, "ShiftRight", dst, src, scalarValue,
                            ascend_twin::vec_count(count, isSetMask), UnaryRepeatParams(), site);
}
template <class T, bool isSetMask = true>
void ShiftRight(const LocalTensor<T> &dst, const LocalTensor<T> &src, const T &scalarValue, ascend_twin::MaskArg mask,
                int64_t repeatTime, const UnaryRepeatParams &repeatParams, bool roundEn = false,
                ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "ShiftRight with mask", I16 | U16 | I32 | U32, I16 | U16 | I32 | U32)
    ascend_twin::vec_scalar(ascend_twin::VecOp::ShiftRight, "ShiftRight", dst, src, scalarValue,
                            mask.with(isSetMask, repeatTime, ascend_twin::kWide<T>), repeatParams, site, false, roundEn);
}

template <class T, class U> constexpr bool twin_widening()
{
    return std::is_same<T, U>::value || (std::is_same<T, float>::value && std::is_same<U, half>::value);
}

template <class T, class U>
void Axpy(const LocalTensor<T> &dst, const LocalTensor<U> &src, const U &scalarValue, int64_t count,
          ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "Axpy", F16 | F32, F16 | BF16 | F32 | I64 | U64)
    static_assert(twin_widening<T, U>(), "Axpy: the source has the destination's type, or is half where that is float");
    ascend_twin::vec_scalar(ascend_twin::VecOp::Axpy, "Axpy", dst, src, scalarValue, ascend_twin::vec_count(count),
                            UnaryRepeatParams(), site, true);
}
template <class T, class U, bool isSetMask = true>
void Axpy(const LocalTensor<T> &dst, const LocalTensor<U> &src, const U &scalarValue, ascend_twin::MaskArg mask,
          int64_t repeatTime, const UnaryRepeatParams &repeatParams, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "Axpy with mask", F16 | F32, F16 | BF16 | F32)
    static_assert(twin_widening<T, U>(), "Axpy: the source has the destination's type, or is half where that is float");
    ascend_twin::vec_scalar(ascend_twin::VecOp::Axpy, "Axpy", dst, src, scalarValue,
                            mask.with(isSetMask, repeatTime, ascend_twin::kWide<T>), repeatParams, site, true);
}

template <class T, class U>
void MulAddDst(const LocalTensor<T> &dst, const LocalTensor<U> &src0, const LocalTensor<U> &src1, int64_t count,
               ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "MulAddDst", F16 | F32, F16 | F32 | I64 | U64)
    static_assert(twin_widening<T, U>(), "MulAddDst: the sources have the destination's type, or are half where that is float");
    ascend_twin::vec_binary(ascend_twin::VecOp::MulAddDst, "MulAddDst", dst, src0, src1, ascend_twin::vec_count(count),
                            BinaryRepeatParams(), site, true);
}
template <class T, class U, bool isSetMask = true>
void MulAddDst(const LocalTensor<T> &dst, const LocalTensor<U> &src0, const LocalTensor<U> &src1, ascend_twin::MaskArg mask,
               int64_t repeatTime, const BinaryRepeatParams &repeatParams, ascend_twin::Site site = ascend_twin::Site::here())
{
    ASCEND_TWIN_TYPES(T, "MulAddDst with mask", F16 | F32, F16 | F32)
    static_assert(twin_widening<T, U>(), "MulAddDst: the sources have the destination's type, or are half where that is float");
    ascend_twin::vec_binary(ascend_twin::VecOp::MulAddDst, "MulAddDst", dst, src0, src1,
                            mask.with(isSetMask, repeatTime, ascend_twin::kWide<T>), repeatParams, site, true);
}

// Two sources of one type, a destination of another: the result is converted.
#define ASCEND_TWIN_BINARY_CAST(call, pairs, text)                                                                     \
    template <class T, class U>                                                                                        \
    void call(const LocalTensor<T> &dst, const LocalTensor<U> &src0, const LocalTensor<U> &src1, int64_t count,        \
              ascend_twin::Site site = ascend_twin::Site::here())                                                      \
    {                                                                                                                  \
        static_assert(pairs, #call text);                                                                              \
        ascend_twin::vec_binary(ascend_twin::VecOp::call, #call, dst, src0, src1, ascend_twin::vec_count(count),       \
                                BinaryRepeatParams(), site);                                                           \
    }                                                                                                                  \
    template <class T, class U, bool isSetMask = true>                                                                 \
    void call(const LocalTensor<T> &dst, const LocalTensor<U> &src0, const LocalTensor<U> &src1,                       \
              ascend_twin::MaskArg mask, int64_t repeatTime, const BinaryRepeatParams &repeatParams,                   \
              ascend_twin::Site site = ascend_twin::Site::here())                                                      \
    {                                                                                                                  \
        static_assert(pairs, #call text);                                                                              \
        ascend_twin::vec_binary(ascend_twin::VecOp::call, #call, dst, src0, src1,                                      \
                                mask.with(isSetMask, repeatTime, ascend_twin::kWide<U>), repeatParams, site);          \
    }

template <class T, class U> constexpr bool twin_relu_pair()
{
    return (std::is_same<T, int8_t>::value && (std::is_same<U, half>::value || std::is_same<U, int16_t>::value)) ||
           (std::is_same<T, half>::value && std::is_same<U, float>::value);
}
ASCEND_TWIN_BINARY_CAST(AddReluCast, (twin_relu_pair<T, U>()), " goes from half or int16_t to int8_t, and from float to half")
ASCEND_TWIN_BINARY_CAST(SubReluCast, (twin_relu_pair<T, U>()), " goes from half or int16_t to int8_t, and from float to half")
ASCEND_TWIN_BINARY_CAST(MulCast, (std::is_same<U, half>::value && (std::is_same<T, int8_t>::value || std::is_same<T, uint8_t>::value)),
                        " goes from half to int8_t or uint8_t")

inline void AddDeqRelu(const LocalTensor<half> &dst, const LocalTensor<int32_t> &src0, const LocalTensor<int32_t> &src1, int64_t count,
                       ascend_twin::Site site = ascend_twin::Site::here())
{
    ascend_twin::vec_binary(ascend_twin::VecOp::AddDeqRelu, "AddDeqRelu", dst, src0, src1, ascend_twin::vec_count(count),
                            BinaryRepeatParams(), site);
}
template <bool isSetMask = true>
void AddDeqRelu(const LocalTensor<half> &dst, const LocalTensor<int32_t> &src0, const LocalTensor<int32_t> &src1,
                ascend_twin::MaskArg mask, int64_t repeatTime, const BinaryRepeatParams &repeatParams,
                ascend_twin::Site site = ascend_twin::Site::here())
{
    ascend_twin::vec_binary(ascend_twin::VecOp::AddDeqRelu, "AddDeqRelu", dst, src0, src1, mask.with(isSetMask, repeatTime, true),
                            repeatParams, site);
}
template <class T, class U>
void AddDeqRelu(const LocalTensor<T> &dst, const LocalTensor<U> &src0, const LocalTensor<U> &src1, int64_t count,
                ascend_twin::Site site = ascend_twin::Site::here())
{
    static_assert(std::is_same<T, half>::value && std::is_same<U, int32_t>::value, "AddDeqRelu goes from int32_t to half");
    AddDeqRelu(dst, src0, src1, count, site);
}
template <class T, class U, bool isSetMask = true>
void AddDeqRelu(const LocalTensor<T> &dst, const LocalTensor<U> &src0, const LocalTensor<U> &src1, ascend_twin::MaskArg mask,
                int64_t repeatTime, const BinaryRepeatParams &repeatParams, ascend_twin::Site site = ascend_twin::Site::here())
{
    static_assert(std::is_same<T, half>::value && std::is_same<U, int32_t>::value, "AddDeqRelu goes from int32_t to half");
    AddDeqRelu<isSetMask>(dst, src0, src1, mask, repeatTime, repeatParams, site);
}

} // namespace AscendC

#include "vector_data.h"

// dst = a + b, for the whole of dst. The place in the kernel is not known to an operator.
namespace ascend_twin {

enum class Infix : uint8_t { Add, Sub, Mul, Div, And, Or, LT, GT, EQ, LE, GE, NE };

template <class T, Infix op> struct Expression {
    static constexpr bool twin_expression = true;
    AscendC::LocalTensor<T> a, b;
    template <class D> void twin_assign(const AscendC::LocalTensor<D> &dst) const
    {
        constexpr Site nowhere{"operator", 0};
        int64_t n = dst.GetSize();
        if constexpr (op == Infix::Add) {
            AscendC::Add(dst, a, b, n, nowhere);
        } else if constexpr (op == Infix::Sub) {
            AscendC::Sub(dst, a, b, n, nowhere);
        } else if constexpr (op == Infix::Mul) {
            AscendC::Mul(dst, a, b, n, nowhere);
        } else if constexpr (op == Infix::Div) {
            AscendC::Div(dst, a, b, n, nowhere);
        } else if constexpr (op == Infix::And) {
            AscendC::And(dst, a, b, n, nowhere);
        } else if constexpr (op == Infix::Or) {
            AscendC::Or(dst, a, b, n, nowhere);
        } else {
            constexpr auto mode = op == Infix::LT   ? AscendC::CMPMODE::LT
                                  : op == Infix::GT ? AscendC::CMPMODE::GT
                                  : op == Infix::EQ ? AscendC::CMPMODE::EQ
                                  : op == Infix::LE ? AscendC::CMPMODE::LE
                                  : op == Infix::GE ? AscendC::CMPMODE::GE
                                                    : AscendC::CMPMODE::NE;
            AscendC::Compare(dst, a, b, mode, a.GetSize(), nowhere);
        }
    }
};

} // namespace ascend_twin

namespace AscendC {

#define ASCEND_TWIN_INFIX(sign, op)                                                                                    \
    template <class T>                                                                                                 \
    ascend_twin::Expression<T, ascend_twin::Infix::op> operator sign(const LocalTensor<T> &a, const LocalTensor<T> &b) \
    {                                                                                                                  \
        return {a, b};                                                                                                 \
    }
ASCEND_TWIN_INFIX(+, Add)
ASCEND_TWIN_INFIX(-, Sub)
ASCEND_TWIN_INFIX(*, Mul)
ASCEND_TWIN_INFIX(/, Div)
ASCEND_TWIN_INFIX(&, And)
ASCEND_TWIN_INFIX(|, Or)
ASCEND_TWIN_INFIX(<, LT)
ASCEND_TWIN_INFIX(>, GT)
ASCEND_TWIN_INFIX(==, EQ)
ASCEND_TWIN_INFIX(<=, LE)
ASCEND_TWIN_INFIX(>=, GE)
ASCEND_TWIN_INFIX(!=, NE)
#undef ASCEND_TWIN_INFIX

} // namespace AscendC

#endif
