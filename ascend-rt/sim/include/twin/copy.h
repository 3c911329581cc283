// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Copies between memories, and what belongs to them. The work is done in the library; here are the parameters and the
// overloads, which only say which places and element types take part.

#ifndef ASCEND_TWIN_COPY_H
#define ASCEND_TWIN_COPY_H

#include <limits>

#include "tensor.h"

namespace ascend_twin {

template <class T> class Field;

// A number on its way into a Field: what constructors and calls take.
template <class T> class Given {
public:
    template <class V, std::enable_if_t<std::is_arithmetic<V>::value || std::is_enum<V>::value, int> = 0>
    constexpr Given(V v) : wide_(widen(v))
    {
    }
    template <class U> constexpr Given(const Field<U> &f) : wide_(f.wide()) {}
    constexpr int64_t wide() const { return wide_; }

    template <class V> static constexpr int64_t widen(V v)
    {
        if constexpr (std::is_integral<V>::value && std::is_unsigned<V>::value && sizeof(V) == 8) {
            return v > static_cast<V>(std::numeric_limits<int64_t>::max()) ? std::numeric_limits<int64_t>::max()
                                                                          : static_cast<int64_t>(v);
        } else {
            return static_cast<int64_t>(v);
        }
    }

private:
    int64_t wide_;
};

// An integer field of a parameter structure. It has the type of the genuine field where it is read, and remembers the
// number that was written, so that a call can tell that this did not fit. No number becomes a Field by itself, so that
// `condition ? params.m : 16` has the type of a number.
template <class T> class Field {
public:
    using Type = T;

    constexpr Field() = default;
    template <class V, std::enable_if_t<std::is_arithmetic<V>::value || std::is_enum<V>::value, int> = 0>
    explicit constexpr Field(V v) : wide_(Given<T>::widen(v))
    {
    }
    template <class U> constexpr Field(const Given<U> &g) : wide_(g.wide()) {}
    template <class U> explicit constexpr Field(const Field<U> &o) : wide_(o.wide()) {}

    constexpr operator T() const { return static_cast<T>(wide_); }
    constexpr int64_t wide() const { return wide_; }

    template <class V, std::enable_if_t<std::is_arithmetic<V>::value || std::is_enum<V>::value, int> = 0>
    constexpr Field &operator=(V v)
    {
        wide_ = Given<T>::widen(v);
        return *this;
    }
    template <class U> constexpr Field &operator=(const Field<U> &o)
    {
        wide_ = o.wide();
        return *this;
    }
    template <class V> constexpr Field &operator+=(V v) { return *this = wide_ + static_cast<int64_t>(v); }
    template <class V> constexpr Field &operator-=(V v) { return *this = wide_ - static_cast<int64_t>(v); }
    template <class V> constexpr Field &operator*=(V v) { return *this = wide_ * static_cast<int64_t>(v); }
    template <class V> constexpr Field &operator/=(V v) { return *this = wide_ / static_cast<int64_t>(v); }
    template <class V> constexpr Field &operator%=(V v) { return *this = wide_ % static_cast<int64_t>(v); }
    template <class V> constexpr Field &operator|=(V v) { return *this = wide_ | static_cast<int64_t>(v); }
    template <class V> constexpr Field &operator&=(V v) { return *this = wide_ & static_cast<int64_t>(v); }
    template <class V> constexpr Field &operator<<=(V v) { return *this = wide_ << static_cast<int64_t>(v); }
    template <class V> constexpr Field &operator>>=(V v) { return *this = wide_ >> static_cast<int64_t>(v); }
    constexpr Field &operator++() { return *this += 1; }
    constexpr Field &operator--() { return *this -= 1; }
    constexpr T operator++(int)
    {
        const T before = *this;
        *this += 1;
        return before;
    }
    constexpr T operator--(int)
    {
        const T before = *this;
        *this -= 1;
        return before;
    }

private:
    int64_t wide_ = 0;
};

// The element type of an operand.
struct Kind {
    uint8_t type; // AscendTwinType
    uint8_t bits; // of one element
};

template <class T> constexpr Kind kind()
{
    constexpr uint8_t type = TypeOf<T>::value;
    constexpr bool nibble = type == ASCEND_TWIN_I4 || type == ASCEND_TWIN_E2M1 || type == ASCEND_TWIN_E1M2;
    return Kind{type, static_cast<uint8_t>(nibble ? 4 : 8 * sizeof(T))};
}

// Where an operand lies.
struct Place {
    Mem mem;
    uint8_t l2;
    uint64_t addr;
    Buffer buffer;
};

template <class T> Place place(const AscendC::LocalTensor<T> &t)
{
    return Place{t.twin_mem(), 0, t.twin_addr(), t.twin_buffer()};
}
template <class T> Place place(const AscendC::GlobalTensor<T> &t)
{
    return Place{Mem::GM, t.twin_l2(), t.twin_addr(), t.twin_buffer()};
}

} // namespace ascend_twin

enum class pad_t { PAD_NONE, PAD_MODE1, PAD_MODE2, PAD_MODE3, PAD_MODE4, PAD_MODE5, PAD_MODE6, PAD_MODE7, PAD_MODE8 };

namespace AscendC {

namespace twin_field {
using U8 = ascend_twin::Field<uint8_t>;
using U16 = ascend_twin::Field<uint16_t>;
using U32 = ascend_twin::Field<uint32_t>;
using U64 = ascend_twin::Field<uint64_t>;
using I32 = ascend_twin::Field<int32_t>;
using I64 = ascend_twin::Field<int64_t>;
#if __NPU_ARCH__ == 3510
using Stride = I64; // of DataCopyPad
using Wide = U64; // pitches of ND matrices in GM
using Wide32 = U32;
#else
using Stride = U32;
using Wide = U16;
using Wide32 = U16;
#endif
} // namespace twin_field
// The same for parameters.
namespace twin_given {
using U8 = ascend_twin::Given<uint8_t>;
using U16 = ascend_twin::Given<uint16_t>;
using U32 = ascend_twin::Given<uint32_t>;
using U64 = ascend_twin::Given<uint64_t>;
using I32 = ascend_twin::Given<int32_t>;
using I64 = ascend_twin::Given<int64_t>;
#if __NPU_ARCH__ == 3510
using Stride = I64; // of DataCopyPad
using Wide = U64; // pitches of ND matrices in GM
using Wide32 = U32;
#else
using Stride = U32;
using Wide = U16;
using Wide32 = U16;
#endif
} // namespace twin_given

// Bytes that copies count in.
constexpr uint32_t ONE_BLK_SIZE = 32;

template <class A, class B> using IsSameType = std::is_same<A, B>;

enum class BlockMode : uint8_t {
    BLOCK_MODE_NORMAL = 0,
    BLOCK_MODE_MATRIX,
    BLOCK_MODE_VECTOR,
    BLOCK_MODE_SMALL_CHANNEL,
    BLOCK_MODE_DEPTHWISE
};
enum class DeqScale : uint8_t { DEQ_NONE = 0, DEQ, VDEQ, DEQ8, VDEQ8, DEQ16, VDEQ16 };
enum class PaddingMode : uint8_t { Normal = 0, Compact };
enum class DataCopyMVType : uint8_t { UB_TO_OUT = 0, OUT_TO_UB = 1 };

struct DataCopyParams {
    constexpr DataCopyParams() {}
    constexpr DataCopyParams(twin_given::U16 count, twin_given::U16 len, twin_given::U16 srcStrideIn, twin_given::U16 dstStrideIn)
        : blockCount(count), blockLen(len), srcStride(srcStrideIn), dstStride(dstStrideIn)
    {
    }

    twin_field::U16 blockCount{1};
    twin_field::U16 blockLen{0}; // 32 B; DataCopyPad: bytes
    union {
        twin_field::U16 srcGap{0}; // end to start
        twin_field::U16 srcStride;
    };
    union {
        twin_field::U16 dstGap{0};
        twin_field::U16 dstStride;
    };
};

struct DataCopyEnhancedParams {
    DataCopyEnhancedParams() {}
    DataCopyEnhancedParams(BlockMode blockModeIn, DeqScale deqScaleIn, uint64_t deqValueIn, uint8_t sidStoreModeIn, bool isReluIn,
                           pad_t padModeIn, uint64_t padValueIn)
        : blockMode(blockModeIn), deqScale(deqScaleIn), deqValue(deqValueIn), sidStoreMode(sidStoreModeIn), isRelu(isReluIn),
          padMode(padModeIn), padValue(padValueIn)
    {
    }

    BlockMode blockMode = BlockMode::BLOCK_MODE_NORMAL;
    DeqScale deqScale = DeqScale::DEQ_NONE;
    uint64_t deqValue = 0;
    uint8_t sidStoreMode = 0;
    bool isRelu = false;
    pad_t padMode = pad_t::PAD_NONE;
    uint64_t padValue = 0;
    uint64_t deqTensorAddr = 0;
};

struct DataCopyPadParams {
    DataCopyPadParams() {}
    DataCopyPadParams(bool isPadValue, twin_given::U8 leftPadValue, twin_given::U8 rightPadValue, uint64_t padValue)
        : isPad(isPadValue), leftPadding(leftPadValue), rightPadding(rightPadValue), paddingValue(padValue)
    {
    }

    bool isPad = false;
    twin_field::U8 leftPadding{0}; // elements
    twin_field::U8 rightPadding{0};
    uint64_t paddingValue = 0;
};

struct DataCopyExtParams {
    constexpr DataCopyExtParams() {}
    constexpr DataCopyExtParams(twin_given::U16 count, twin_given::U32 len, twin_given::Stride srcStrideIn,
                                twin_given::Stride dstStrideIn, twin_given::U32 rsvIn)
        : blockCount(count), blockLen(len), srcStride(srcStrideIn), dstStride(dstStrideIn), rsv(rsvIn)
    {
    }

    twin_field::U16 blockCount{1};
    twin_field::U32 blockLen{0}; // bytes
    twin_field::Stride srcStride{0}; // end to start: bytes in GM, 32 B on chip
    twin_field::Stride dstStride{0};
    twin_field::U32 rsv{0};
};

template <class T> struct DataCopyPadExtParams {
    DataCopyPadExtParams() { memset(static_cast<void *>(&paddingValue), 0, sizeof(T)); }
    template <class V>
    DataCopyPadExtParams(bool isPadValue, twin_given::U8 leftPadValue, twin_given::U8 rightPadValue, V padValue)
        : isPad(isPadValue), leftPadding(leftPadValue), rightPadding(rightPadValue), paddingValue(static_cast<T>(padValue))
    {
    }

    bool isPad = false;
    twin_field::U8 leftPadding{0}; // elements
    twin_field::U8 rightPadding{0};
    T paddingValue;
};

struct Nd2NzParams {
    Nd2NzParams() {}
    Nd2NzParams(twin_given::U16 ndNumIn, twin_given::U16 nValueIn, twin_given::Wide32 dValueIn, twin_given::Wide srcNdMatrixStrideIn,
                twin_given::Wide srcDValueIn, twin_given::U16 dstNzC0StrideIn, twin_given::U16 dstNzNStrideIn,
                twin_given::Wide32 dstNzMatrixStrideIn)
        : ndNum(ndNumIn), nValue(nValueIn), dValue(dValueIn), srcNdMatrixStride(srcNdMatrixStrideIn), srcDValue(srcDValueIn),
          dstNzC0Stride(dstNzC0StrideIn), dstNzNStride(dstNzNStrideIn), dstNzMatrixStride(dstNzMatrixStrideIn)
    {
    }

    twin_field::U16 ndNum{0};
    twin_field::U16 nValue{0}; // rows
    twin_field::Wide32 dValue{0}; // columns
    twin_field::Wide srcNdMatrixStride{0}; // elements
    twin_field::Wide srcDValue{0}; // pitch of rows, elements
    twin_field::U16 dstNzC0Stride{0}; // 32 B
    twin_field::U16 dstNzNStride{0}; // 32 B
    twin_field::Wide32 dstNzMatrixStride{0}; // elements
};

struct Nz2NdParamsFull {
    Nz2NdParamsFull() {}
    Nz2NdParamsFull(twin_given::U16 ndNumIn, twin_given::U16 nValueIn, twin_given::U16 dValueIn, twin_given::U16 srcNdMatrixStrideIn,
                    twin_given::U16 srcNStrideIn, twin_given::U16 dstDStrideIn, twin_given::U16 dstNdMatrixStrideIn)
        : ndNum(ndNumIn), nValue(nValueIn), dValue(dValueIn), srcNdMatrixStride(srcNdMatrixStrideIn), srcNStride(srcNStrideIn),
          dstDStride(dstDStrideIn), dstNdMatrixStride(dstNdMatrixStrideIn)
    {
    }

    twin_field::U16 ndNum{1};
    twin_field::U16 nValue{0};
    twin_field::U16 dValue{0};
    twin_field::U16 srcNdMatrixStride{1}; // 256 elements
    twin_field::U16 srcNStride{0}; // 16 elements
    twin_field::U16 dstDStride{0}; // elements
    twin_field::U16 dstNdMatrixStride{1}; // elements
};

#if __NPU_ARCH__ == 3510
// As Nd2NzParams, the source transposed: nValue columns, dValue rows of pitch srcDValue.
struct Dn2NzParams {
    Dn2NzParams() {}
    Dn2NzParams(twin_given::U16 dnNumIn, twin_given::U16 nValueIn, twin_given::U32 dValueIn, twin_given::U64 srcDnMatrixStrideIn,
                twin_given::U64 srcDValueIn, twin_given::U16 dstNzC0StrideIn, twin_given::U16 dstNzNStrideIn,
                twin_given::U32 dstNzMatrixStrideIn)
        : dnNum(dnNumIn), nValue(nValueIn), dValue(dValueIn), srcDnMatrixStride(srcDnMatrixStrideIn), srcDValue(srcDValueIn),
          dstNzC0Stride(dstNzC0StrideIn), dstNzNStride(dstNzNStrideIn), dstNzMatrixStride(dstNzMatrixStrideIn)
    {
    }

    twin_field::U16 dnNum{0};
    twin_field::U16 nValue{0};
    twin_field::U32 dValue{0};
    twin_field::U64 srcDnMatrixStride{0};
    twin_field::U64 srcDValue{0};
    twin_field::U16 dstNzC0Stride{0};
    twin_field::U16 dstNzNStride{0};
    twin_field::U32 dstNzMatrixStride{0};
};

struct LoopModeParams {
    LoopModeParams() {}
    LoopModeParams(twin_given::U32 loop1SizeIn, twin_given::U32 loop2SizeIn, twin_given::U64 loop1SrcStrideIn,
                   twin_given::U64 loop1DstStrideIn, twin_given::U64 loop2SrcStrideIn, twin_given::U64 loop2DstStrideIn)
        : loop1Size(loop1SizeIn), loop2Size(loop2SizeIn), loop1SrcStride(loop1SrcStrideIn), loop1DstStride(loop1DstStrideIn),
          loop2SrcStride(loop2SrcStrideIn), loop2DstStride(loop2DstStrideIn)
    {
    }

    twin_field::U32 loop1Size{0}; // inner
    twin_field::U32 loop2Size{0}; // outer
    twin_field::U64 loop1SrcStride{0}; // bytes, start to start
    twin_field::U64 loop1DstStride{0};
    twin_field::U64 loop2SrcStride{0};
    twin_field::U64 loop2DstStride{0};
};
#endif

struct SliceInfo {
    SliceInfo() {}
    SliceInfo(uint32_t startIndexIn, uint32_t endIndexIn, uint32_t strideIn, uint32_t burstLenIn, uint32_t shapeValueIn = 0)
        : startIndex(startIndexIn), endIndex(endIndexIn), stride(strideIn), burstLen(burstLenIn), shapeValue(shapeValueIn)
    {
    }

    uint32_t startIndex = 0;
    uint32_t endIndex = 31;
    uint32_t stride = 0;
    uint32_t burstLen = 32;
    uint32_t shapeValue = 0;
};

} // namespace AscendC

namespace ascend_twin {

// Defined in lib/copy.cpp.
struct PadWish {
    bool is_pad;
    bool compact;
    int64_t left, right; // elements
    uint64_t value; // bits of one element
};
void data_copy(const Place &dst, const Place &src, Kind kind, Field<uint32_t> count, Site site);
void data_copy(const Place &dst, const Place &src, Kind to, Kind from, const AscendC::DataCopyParams &p, Site site);
void data_copy(const Place &dst, const Place &src, Kind kind, const AscendC::Nd2NzParams &p, bool small_c0, Site site);
void data_copy(const Place &dst, const Place &src, Kind kind, const AscendC::Nz2NdParamsFull &p, Site site);
void data_copy_slices(const Place &dst, const Place &src, Kind kind, const AscendC::SliceInfo *to, const AscendC::SliceInfo *from,
                      uint32_t dims, Site site);
void check_plain(const AscendC::DataCopyEnhancedParams &p, Site site);
void data_copy_pad(const Place &dst, const Place &src, Kind kind, const AscendC::DataCopyExtParams &p, const PadWish &pad, Site site);
void data_copy_through_gm(Site site);
void set_pad_value(uint64_t bits, Site site);
void set_atomic(int op, Kind kind, const char *api, Site site);
#if __NPU_ARCH__ == 3510
void data_copy(const Place &dst, const Place &src, Kind kind, const AscendC::Dn2NzParams &p, bool small_c0, Site site);
void l1_to_ub(const Place &dst, const Place &src, Kind kind, int sub_block, const AscendC::DataCopyParams &p, Site site);
void l1_to_ub(const Place &dst, const Place &src, Kind kind, int sub_block, Field<uint32_t> count, Site site);
void set_loop_mode(const AscendC::LoopModeParams *p, AscendC::DataCopyMVType type, Site site);
#endif

template <class T> uint64_t bits_of(const T &v)
{
    uint64_t bits = 0;
    memcpy(&bits, &v, sizeof(T) < 8 ? sizeof(T) : 8);
    return bits;
}

} // namespace ascend_twin

namespace AscendC {

#define ASCEND_TWIN_SITE ::ascend_twin::Site site = ::ascend_twin::Site::here()

// ---- contiguous
template <class T>
void DataCopy(const LocalTensor<T> &dst, const GlobalTensor<T> &src, twin_given::U32 count, ASCEND_TWIN_SITE)
{
    ascend_twin::data_copy(ascend_twin::place(dst), ascend_twin::place(src), ascend_twin::kind<T>(), count, site);
}
template <class T>
void DataCopy(const GlobalTensor<T> &dst, const LocalTensor<T> &src, twin_given::U32 count, ASCEND_TWIN_SITE)
{
    ascend_twin::data_copy(ascend_twin::place(dst), ascend_twin::place(src), ascend_twin::kind<T>(), count, site);
}
template <class T>
void DataCopy(const LocalTensor<T> &dst, const LocalTensor<T> &src, twin_given::U32 count, ASCEND_TWIN_SITE)
{
    ascend_twin::data_copy(ascend_twin::place(dst), ascend_twin::place(src), ascend_twin::kind<T>(), count, site);
}

// ---- blocks with gaps
template <class T>
void DataCopy(const LocalTensor<T> &dst, const GlobalTensor<T> &src, const DataCopyParams &repeatParams, ASCEND_TWIN_SITE)
{
    constexpr auto k = ascend_twin::kind<T>();
    ascend_twin::data_copy(ascend_twin::place(dst), ascend_twin::place(src), k, k, repeatParams, site);
}
template <class T>
void DataCopy(const GlobalTensor<T> &dst, const LocalTensor<T> &src, const DataCopyParams &repeatParams, ASCEND_TWIN_SITE)
{
    constexpr auto k = ascend_twin::kind<T>();
    ascend_twin::data_copy(ascend_twin::place(dst), ascend_twin::place(src), k, k, repeatParams, site);
}
template <class T, class U>
void DataCopy(const LocalTensor<T> &dst, const LocalTensor<U> &src, const DataCopyParams &repeatParams, ASCEND_TWIN_SITE)
{
    ascend_twin::data_copy(ascend_twin::place(dst), ascend_twin::place(src), ascend_twin::kind<T>(), ascend_twin::kind<U>(),
                           repeatParams, site);
}

// ---- the form of older chips: only what needs no conversion
template <class T>
void DataCopy(const LocalTensor<T> &dst, const GlobalTensor<T> &src, const DataCopyParams &intriParams,
              const DataCopyEnhancedParams &enhancedParams, ASCEND_TWIN_SITE)
{
    ascend_twin::check_plain(enhancedParams, site);
    DataCopy(dst, src, intriParams, site);
}
template <class T>
void DataCopy(const GlobalTensor<T> &dst, const LocalTensor<T> &src, const DataCopyParams &intriParams,
              const DataCopyEnhancedParams &enhancedParams, ASCEND_TWIN_SITE)
{
    ascend_twin::check_plain(enhancedParams, site);
    DataCopy(dst, src, intriParams, site);
}
template <class T>
void DataCopy(const LocalTensor<T> &dst, const LocalTensor<T> &src, const DataCopyParams &intriParams,
              const DataCopyEnhancedParams &enhancedParams, ASCEND_TWIN_SITE)
{
    ascend_twin::check_plain(enhancedParams, site);
    DataCopy(dst, src, intriParams, site);
}

// ---- changes of layout
template <class T, bool enableSmallC0 = false>
void DataCopy(const LocalTensor<T> &dst, const GlobalTensor<T> &src, const Nd2NzParams &intriParams, ASCEND_TWIN_SITE)
{
    static_assert(!enableSmallC0 || __NPU_ARCH__ == 3510, "DataCopy: this chip has no enableSmallC0");
    ascend_twin::data_copy(ascend_twin::place(dst), ascend_twin::place(src), ascend_twin::kind<T>(), intriParams, enableSmallC0, site);
}
template <class T>
void DataCopy(const LocalTensor<T> &dst, const LocalTensor<T> &src, const Nd2NzParams &intriParams, ASCEND_TWIN_SITE)
{
    ascend_twin::data_copy(ascend_twin::place(dst), ascend_twin::place(src), ascend_twin::kind<T>(), intriParams, false, site);
}
template <class T>
void DataCopy(const GlobalTensor<T> &dst, const LocalTensor<T> &src, const Nz2NdParamsFull &intriParams, ASCEND_TWIN_SITE)
{
    ascend_twin::data_copy(ascend_twin::place(dst), ascend_twin::place(src), ascend_twin::kind<T>(), intriParams, site);
}
#if __NPU_ARCH__ == 3510
template <class T, bool enableSmallC0 = false>
void DataCopy(const LocalTensor<T> &dst, const GlobalTensor<T> &src, const Dn2NzParams &intriParams, ASCEND_TWIN_SITE)
{
    ascend_twin::data_copy(ascend_twin::place(dst), ascend_twin::place(src), ascend_twin::kind<T>(), intriParams, enableSmallC0, site);
}
#endif

// ---- slices of tensors of up to 8 dimensions
template <class T>
void DataCopy(const LocalTensor<T> &dst, const GlobalTensor<T> &src, const SliceInfo dstSliceInfo[], const SliceInfo srcSliceInfo[],
              uint32_t dimValue = 1, ASCEND_TWIN_SITE)
{
    ascend_twin::data_copy_slices(ascend_twin::place(dst), ascend_twin::place(src), ascend_twin::kind<T>(), dstSliceInfo, srcSliceInfo,
                                  dimValue, site);
}
template <class T>
void DataCopy(const GlobalTensor<T> &dst, const LocalTensor<T> &src, const SliceInfo dstSliceInfo[], const SliceInfo srcSliceInfo[],
              uint32_t dimValue = 1, ASCEND_TWIN_SITE)
{
    ascend_twin::data_copy_slices(ascend_twin::place(dst), ascend_twin::place(src), ascend_twin::kind<T>(), dstSliceInfo, srcSliceInfo,
                                  dimValue, site);
}

// ---- blocks of any length
template <class T, PaddingMode mode = PaddingMode::Normal>
void DataCopyPad(const LocalTensor<T> &dst, const GlobalTensor<T> &src, const DataCopyExtParams &dataCopyParams,
                 const DataCopyPadExtParams<T> &padParams, ASCEND_TWIN_SITE)
{
    static_assert(mode == PaddingMode::Normal || __NPU_ARCH__ == 3510, "DataCopyPad: this chip has no PaddingMode::Compact");
    const ascend_twin::PadWish pad{padParams.isPad, mode == PaddingMode::Compact, padParams.leftPadding.wide(),
                                   padParams.rightPadding.wide(), ascend_twin::bits_of(padParams.paddingValue)};
    ascend_twin::data_copy_pad(ascend_twin::place(dst), ascend_twin::place(src), ascend_twin::kind<T>(), dataCopyParams, pad, site);
}
template <class T, PaddingMode mode = PaddingMode::Normal>
void DataCopyPad(const LocalTensor<T> &dst, const GlobalTensor<T> &src, const DataCopyParams &dataCopyParams,
                 const DataCopyPadParams &padParams, ASCEND_TWIN_SITE)
{
    static_assert(mode == PaddingMode::Normal || __NPU_ARCH__ == 3510, "DataCopyPad: this chip has no PaddingMode::Compact");
    const ascend_twin::PadWish pad{padParams.isPad, mode == PaddingMode::Compact, padParams.leftPadding.wide(),
                                   padParams.rightPadding.wide(), padParams.paddingValue};
    ascend_twin::data_copy_pad(ascend_twin::place(dst), ascend_twin::place(src), ascend_twin::kind<T>(),
                               DataCopyExtParams(dataCopyParams.blockCount, dataCopyParams.blockLen, dataCopyParams.srcStride,
                                                 dataCopyParams.dstStride, 0),
                               pad, site);
}
template <class T, PaddingMode mode = PaddingMode::Normal>
void DataCopyPad(const GlobalTensor<T> &dst, const LocalTensor<T> &src, const DataCopyExtParams &dataCopyParams, ASCEND_TWIN_SITE)
{
    static_assert(mode == PaddingMode::Normal || __NPU_ARCH__ == 3510, "DataCopyPad: this chip has no PaddingMode::Compact");
    const ascend_twin::PadWish pad{false, mode == PaddingMode::Compact, 0, 0, 0};
    ascend_twin::data_copy_pad(ascend_twin::place(dst), ascend_twin::place(src), ascend_twin::kind<T>(), dataCopyParams, pad, site);
}
template <class T, PaddingMode mode = PaddingMode::Normal>
void DataCopyPad(const GlobalTensor<T> &dst, const LocalTensor<T> &src, const DataCopyParams &dataCopyParams, ASCEND_TWIN_SITE)
{
    DataCopyPad<T, mode>(dst, src,
                         DataCopyExtParams(dataCopyParams.blockCount, dataCopyParams.blockLen, dataCopyParams.srcStride,
                                           dataCopyParams.dstStride, 0),
                         site);
}
// These two need a server kernel of the matrix library that this twin does not have.
template <class T>
void DataCopyPad(const LocalTensor<T> &, const LocalTensor<T> &, const DataCopyExtParams &, const Nd2NzParams &, ASCEND_TWIN_SITE)
{
    ascend_twin::data_copy_through_gm(site);
}
template <class T>
void DataCopyPad(const LocalTensor<T> &, const LocalTensor<T> &, const DataCopyParams &, const Nd2NzParams &, ASCEND_TWIN_SITE)
{
    ascend_twin::data_copy_through_gm(site);
}
template <class T, TPosition pos = TPosition::MAX> void SetPadValue(T paddingValue, ASCEND_TWIN_SITE)
{
    static_assert(pos == TPosition::MAX || pos == TPosition::VECIN || pos == TPosition::VECOUT, "SetPadValue: wrong position");
    ascend_twin::set_pad_value(ascend_twin::bits_of(paddingValue), site);
}

#if __NPU_ARCH__ == 3510
inline void SetLoopModePara(const LoopModeParams &loopParams, DataCopyMVType type, ASCEND_TWIN_SITE)
{
    ascend_twin::set_loop_mode(&loopParams, type, site);
}
inline void ResetLoopModePara(DataCopyMVType type, ASCEND_TWIN_SITE) { ascend_twin::set_loop_mode(nullptr, type, site); }

template <class T, uint8_t subBlockId = 0>
void DataCopyL1ToUB(const LocalTensor<T> &dst, const LocalTensor<T> &src, twin_given::U32 count, ASCEND_TWIN_SITE)
{
    static_assert(subBlockId <= 1, "DataCopyL1ToUB: subBlockId is 0 or 1");
    ascend_twin::l1_to_ub(ascend_twin::place(dst), ascend_twin::place(src), ascend_twin::kind<T>(), subBlockId, count, site);
}
template <class T, uint8_t subBlockId = 0>
void DataCopyL1ToUB(const LocalTensor<T> &dst, const LocalTensor<T> &src, const DataCopyParams &repeatParams, ASCEND_TWIN_SITE)
{
    static_assert(subBlockId <= 1, "DataCopyL1ToUB: subBlockId is 0 or 1");
    ascend_twin::l1_to_ub(ascend_twin::place(dst), ascend_twin::place(src), ascend_twin::kind<T>(), subBlockId, repeatParams, site);
}
#endif

// ---- atomic copies to GM
template <class T> void SetAtomicAdd(ASCEND_TWIN_SITE) { ascend_twin::set_atomic(1, ascend_twin::kind<T>(), "SetAtomicAdd", site); }
template <class T> void SetAtomicMax(ASCEND_TWIN_SITE) { ascend_twin::set_atomic(2, ascend_twin::kind<T>(), "SetAtomicMax", site); }
template <class T> void SetAtomicMin(ASCEND_TWIN_SITE) { ascend_twin::set_atomic(3, ascend_twin::kind<T>(), "SetAtomicMin", site); }
// Changes the type and keeps the operation.
template <class T> void SetAtomicType(ASCEND_TWIN_SITE)
{
    ascend_twin::set_atomic(-1, ascend_twin::kind<T>(), "SetAtomicType", site);
}
inline void SetAtomicNone(ASCEND_TWIN_SITE) { ascend_twin::set_atomic(0, ascend_twin::Kind{0, 0}, "SetAtomicNone", site); }
inline void DisableDmaAtomic(ASCEND_TWIN_SITE) { ascend_twin::set_atomic(0, ascend_twin::Kind{0, 0}, "DisableDmaAtomic", site); }

} // namespace AscendC

#endif
